// What the store costs a month, today and at the growth of the last day.

import { h } from "./dom.js";
import { UNKNOWN, bytes, isKnown } from "./format.js";
import { card, listTools, table, topicLink } from "./parts.js";

const ORDERS = [["", "most remote bytes"], ["growth", "fastest growth"], ["name", "name"]];

export function money(value, currency) {
  if (!isKnown(value)) return UNKNOWN;
  const text = value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  return `${text} ${currency}`.trim();
}

export function costs(data, ui) {
  const [today, later] = data.months;
  const of = (value) => money(value, data.currency);
  const both = (name) => `${of(later[name])} in 30 days`;
  return [
    h("h1", { tabindex: "-1" }, "Cost"),
    h("p", { class: "note" }, "What the store costs a month, by the prices in the configuration, and in a year at the growth of the last day if nothing expires. rlm cost has the brokers' disks besides."),
    data.missing.length > 0 && h("p", { class: "problem warning" }, `Not set, so not known: ${data.missing.join(", ")}`),
    data.problems.map((text) => h("p", { class: "problem warning" }, `Reads are not known: ${text}`)),
    h(
      "div",
      { class: "cards" },
      card("A month", of(today.total), both("total"), months(data.months, "total", of)),
      card("Storage", of(today.storage), both("storage"), months(data.months, "storage", of)),
      card("Writes", of(today.puts), "at the rate of the last day", null),
      card("Reads", of(today.gets), "since each service began", null),
    ),
    h("section", { "aria-label": "Topics", key: "topics" }, h("h2", {}, "Topics"), listTools(ui, data.topics, ORDERS, "topics"), topicTable(data, of)),
  ];
}

// One bar for each month from now on.
function months(found, name, of) {
  const values = found.map((one) => one[name]);
  const most = Math.max(...values.filter(isKnown), 0);
  const last = values[values.length - 1];
  return h(
    "div",
    { class: "chart months", role: "img", "aria-label": `${of(values[0])} now, ${of(last)} in a year` },
    values.map((value, at) => h("i", {
      title: `in ${at} months: ${of(value)}`,
      style: { height: `${most > 0 && isKnown(value) ? ((value / most) * 100).toFixed(1) : 0}%` },
    })),
  );
}

function topicTable(data, of) {
  return table(
    "Topics",
    [["Topic", "wide"], ["Remote", "n"], ["Growth a day", "n"], ["Storage a month", "n"], ["In 30 days", "n"]],
    data.topics.rows.map((row) => ({
      key: row.topic,
      cells: [
        h("a", { href: topicLink(row.topic) }, row.topic),
        bytes(row.remote_bytes),
        bytes(row.bytes_a_day),
        of(row.storage),
        of(row.storage_later),
      ],
    })),
    "No topic has remote data, or none that you search for.",
  );
}
