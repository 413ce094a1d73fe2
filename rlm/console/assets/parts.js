// Parts that the views share: bars, charts, cards, tables, pages of a list.

import { KINDS, described, parts } from "./bar.js";
import { h } from "./dom.js";
import { duration, number, plural } from "./format.js";
import { lines } from "./history.js";

export const PAGE = 50;
const [WIDTH, HEIGHT] = [120, 28];

export const topicLink = (topic) => `#/topic/${encodeURIComponent(topic)}`;
export const partitionLink = (topic, partition) => `${topicLink(topic)}/${partition}`;
export const readersLink = (topic) => `#/readers/${encodeURIComponent(topic)}`;
export const segmentLink = (topic, partition, id) => `${partitionLink(topic, partition)}/${encodeURIComponent(id)}`;

export function bar(row, isLarge = false) {
  const found = parts(row);
  const classes = ["bar", isLarge && "large", row.frozen && "frozen", !found.length && "none"];
  return h(
    "div",
    { class: classes.filter(Boolean).join(" "), role: "img", "aria-label": described(row) },
    found.map((part) =>
      h("i", {
        class: part.kind,
        title: `${KINDS[part.kind]}: ${number(part.start)} to ${number(part.end)}`,
        style: { "flex-grow": String(part.end - part.start) },
      }),
    ),
  );
}

export function legend() {
  const rows = Object.entries(KINDS).map(([kind, words]) =>
    h("li", {}, h("i", { class: `swatch ${kind}` }), words),
  );
  return h("ul", { class: "legend", "aria-label": "Colours of the bars" }, rows);
}

export function chart(history, name, words, said) {
  const samples = history.samples(name);
  const runs = lines(samples, WIDTH, HEIGHT);
  const known = samples.map((one) => one.value).filter((value) => value !== null);
  const most = known.length ? Math.max(...known) : null;
  const label = known.length
    ? `${said}: ${words(known[known.length - 1])} now, at most ${words(most)} since this page is open`
    : `${said}: not seen yet`;
  return h(
    "svg",
    {
      class: "chart",
      viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    h("line", { x1: 0, y1: HEIGHT, x2: WIDTH, y2: HEIGHT }),
    runs.map((run) => [
      h("path", { class: "area", d: `M${run[0][0].toFixed(1)} ${HEIGHT}L${drawn(run)}L${run[run.length - 1][0].toFixed(1)} ${HEIGHT}Z` }),
      h("path", { d: `M${drawn(run)}` }),
    ]),
  );
}

function drawn(run) {
  return run.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
}

// A value that takes two polls to know is being measured until then.
export function measured(history, name, words) {
  return history.samples(name).length ? words(history.last(name)) : "measuring…";
}

export const unknownToo = (count) => (count ? `and ${plural(count, "partition")} unknown` : "");

export function card(title, value, note, drawing) {
  return h(
    "section",
    { class: "card", "aria-label": title },
    h("h3", {}, title),
    h("p", { class: "value" }, value),
    h("p", { class: "note" }, note || "\u00a0"),
    drawing ?? h("div", { class: "chart" }),
  );
}

// `columns`: [title, class]. Each row is a list of cells.
export function table(caption, columns, rows, empty) {
  if (!rows.length) {
    return h("div", { class: "scroll" }, h("p", { class: "empty" }, empty));
  }
  const head = columns.map(([title, kind]) => h("th", { scope: "col", class: kind || null }, title));
  const body = rows.map(({ key, cells, kind }) =>
    h(
      "tr",
      { key, class: kind || null },
      cells.map((cell, at) =>
        h(
          "td",
          { class: columns[at][1] || null, "data-label": columns[at][0] },
          h("div", { class: "cell" }, cell),
        ),
      ),
    ),
  );
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, head)),
      h("tbody", {}, body),
    ),
  );
}

export function chip(kind, text) {
  return h("span", { class: `chip ${kind}` }, text);
}

export function problemChips(problems) {
  const found = [];
  if (problems.alarm) found.push(chip("alarm", plural(problems.alarm, "alarm")));
  if (problems.warning) found.push(chip("warning", plural(problems.warning, "warning")));
  if (problems.note) found.push(chip("note", plural(problems.note, "note")));
  return found;
}

export function problemRow(problem, nowMs) {
  return h(
    "li",
    { class: `problem ${problem.severity}`, key: `${problem.kind} ${problem.subject} ${problem.text}` },
    h(
      "p",
      { class: "subject" },
      chip(problem.severity, problem.severity),
      problem.topic ? h("a", { href: topicLink(problem.topic) }, problem.subject) : problem.subject,
    ),
    h("p", {}, problem.text),
    h(
      "p",
      { class: "note" },
      problem.since_ms === null ? "for some time" : `for ${duration(Math.max(0, nowMs - problem.since_ms))}`,
      `, reported by ${problem.nodes.length === 1 ? "node" : "nodes"} ${problem.nodes.join(", ")} · `,
      h("a", { href: `#/kind/${encodeURIComponent(problem.kind)}` }, `what ${problem.kind} means`),
    ),
  );
}

export function problemList(found, count, nowMs) {
  if (!found.length) return h("p", { class: "empty" }, "No problem is reported.");
  return [
    h("ul", { class: "problems" }, found.map((one) => problemRow(one, nowMs))),
    count > found.length && h("p", { class: "note" }, `and ${number(count - found.length)} more: rlm status`),
  ];
}

// Search, order and pages of a list; `ui` is what the user has chosen.
export function listTools(ui, list, orders, what) {
  const last = Math.min(ui.start + list.rows.length, list.count);
  const shown = list.count ? `${number(ui.start + 1)} to ${number(last)} of ${number(list.count)}` : "none";
  return h(
    "div",
    { class: "tools" },
    h("input", {
      type: "search",
      id: "search",
      placeholder: `Find ${what}`,
      "aria-label": `Find ${what}`,
      value: ui.search,
      oninput: (event) => ui.change({ search: event.target.value, start: 0 }, true),
    }),
    orders.length > 1 && h(
      "label",
      {},
      "Order ",
      h(
        "select",
        { onchange: (event) => ui.change({ sort: event.target.value, start: 0 }) },
        orders.map(([value, title]) => h("option", { value, selected: ui.sort === value }, title)),
      ),
    ),
    h("span", { class: "pages" },
      h("span", {}, shown),
      pageButton("Previous", ui.start > 0, () => ui.change({ start: Math.max(0, ui.start - PAGE) })),
      pageButton("Next", last < list.count, () => ui.change({ start: ui.start + PAGE })),
    ),
  );
}

function pageButton(title, isOn, onclick) {
  return h("button", { type: "button", disabled: !isOn, onclick }, title);
}

export function pairs(rows) {
  return h(
    "dl",
    { class: "pairs" },
    rows.filter(Boolean).map(([title, value]) => h("div", {}, h("dt", {}, title), h("dd", {}, value))),
  );
}
