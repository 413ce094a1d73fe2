// One partition: its offsets and bytes as bars, what its leader's service says of it, its segments.

import { h } from "./dom.js";
import { buttons, copyOffer } from "./actions.js";
import { KINDS, counts, extent, holesLeftOut } from "./bar.js";
import { UNKNOWN, bytes, duration, isKnown, number, perSecond, plural, rate, time } from "./format.js";
import { bar, card, chart, chip, legend, measured, pairs, problemList, segmentLink, table, topicLink } from "./parts.js";
import { partitionState } from "./topic.js";

export const STATES = {
  COPY_SEGMENT_STARTED: ["copying", "being copied"],
  COPY_SEGMENT_FINISHED: ["well", "finished"],
  DELETE_SEGMENT_STARTED: ["warning", "being deleted"],
  DELETE_SEGMENT_FINISHED: ["note", "deleted"],
};

export function seen(history, data) {
  const { row, now_ms: atMs } = data;
  if (!row) return;
  const name = `${row.topic}/${row.partition}`;
  history.add(`${name} lag`, atMs, row.lag_bytes);
  history.count(`${name} copied`, atMs, row.remote_bytes);
  history.count(`${name} appends`, atMs, row.log_end);
}

export function partition(data, ui, history, route) {
  const { row } = data;
  const name = `${route.topic}/${route.partition}`;
  const head = [
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Cluster"), " / ", h("a", { href: topicLink(route.topic) }, route.topic), " / "),
    h("h1", { tabindex: "-1" }, `Partition ${route.partition}`),
  ];
  if (!row) return [head, h("p", { class: "empty" }, "No service reports this partition, and its topic may not be enabled.")];
  return [
    head,
    buttons(data, [copyOffer(route.topic, route.partition)]),
    h("p", { class: "state" }, partitionState(row)),
    h(
      "section",
      { "aria-label": "Offsets and bytes" },
      h("h2", {}, "Offsets"),
      bar(row, true),
      edges(row),
      legend(),
      offsetCounts(row),
      h("h2", {}, "Bytes"),
      byteBars(row),
    ),
    h(
      "div",
      { class: "cards" },
      card("To copy", bytes(row.lag_bytes), isKnown(row.lag_segments) ? `${number(row.lag_segments)} closed segments` : "", chart(history, `${name} lag`, bytes, "To copy")),
      card("Copied", measured(history, `${name} copied`, rate), "growth of what is remote", chart(history, `${name} copied`, rate, "Copied")),
      card("Appended", measured(history, `${name} appends`, perSecond), "records", chart(history, `${name} appends`, perSecond, "Appended records")),
      card("The broker deletes in", lossDue(row), "records that are not remote", h("div", { class: "chart" })),
    ),
    pairs([
      ["Leader", isKnown(row.leader) ? `${row.leader}, epoch ${row.leader_epoch ?? "unknown"}` : "none"],
      ["Remote", span(row.remote_start, row.remote_end)],
      ["Local", span(row.local_start, row.log_end)],
      ["High watermark", number(row.high_watermark)],
      ["Last stable offset", number(row.last_stable)],
      row.hole_count > 0 && ["Lost, on record", `${number(row.hole_offsets)} offsets in ${plural(row.hole_count, "hole")}`],
      row.copy_reason && ["Nothing is copied because", row.copy_reason],
      row.trim_reason && ["Nothing is trimmed because", row.trim_reason],
      row.expiry_reason && ["Total retention", row.expiry_reason],
      row.last_error && ["Last error", row.last_error],
    ]),
    data.problems.length > 0 && h("section", { "aria-label": "Problems", key: "problems" }, h("h2", {}, "Problems"), problemList(data.problems, data.problems.length, data.now_ms)),
    h("section", { "aria-label": "Explanation", key: "explanation" }, h("h2", {}, "Where it is, and why"), explanation(data.explanation, ui)),
    h("section", { "aria-label": "Segments", key: "segments" }, h("h2", {}, "Remote segments"), segments(data.segments, ui, route)),
  ];
}

export function stateChips(row) {
  return [chip(...(STATES[row.state] ?? ["unknown", row.state])), row.disputed && chip("alarm", "disputed")];
}

// No time is given where nothing is due, and where it is not known whether something is.
export function lossDue(row) {
  if (isKnown(row.loss_in_ms)) return duration(row.loss_in_ms);
  return isKnown(row.log_end) && isKnown(row.lag_bytes) ? "nothing due" : UNKNOWN;
}

function span(start, end) {
  return isKnown(start) && isKnown(end) ? `${number(start)} to ${number(end)}` : isKnown(end) ? `to ${number(end)}` : "none, or not known";
}

function edges(row) {
  const found = extent(row) ?? [row.log_end].filter(isKnown);
  if (!found.length) return h("p", { class: "edges" }, h("span", {}, "unknown"));
  return h("p", { class: "edges", "aria-hidden": "true" }, found.map((edge) => h("span", {}, number(edge))));
}

function offsetCounts(row) {
  const found = Object.entries(counts(row));
  if (!found.length) return null;
  const words = found.map(([kind, count]) => `${KINDS[kind]}: ${number(count)}`).join(" · ");
  const leftOut = holesLeftOut(row);
  return [h("p", { class: "note" }, words), leftOut && h("p", { class: "note" }, leftOut)];
}

function byteBars(row) {
  const local = row.local_bytes;
  const remote = row.remote_bytes;
  const most = Math.max(remote ?? 0, local ?? 0, 1);
  const left = Math.min(row.lag_bytes ?? 0, local ?? 0);
  const line = (title, value, rows) => h(
    "div",
    { class: "bytes" },
    h("span", { class: "title" }, title),
    h("div", { class: "bar", role: "img", "aria-label": `${title}: ${bytes(value)}` }, rows.map(([kind, count]) => h("i", { class: kind, style: { width: `${((count / most) * 100).toFixed(2)}%` } }))),
    h("span", { class: "n" }, bytes(value)),
  );
  return [
    line("Remote", remote, [["remote", remote ?? 0]]),
    line("Local", local, [["both", Math.max(0, (local ?? 0) - left)], ["local", left]]),
    h("p", { class: "note" }, `${bytes(row.lag_bytes)} of the local bytes are closed segments that are not remote yet${row.copying_bytes ? `, ${bytes(row.copying_bytes)} of them are being copied` : ""}.`),
  ];
}

function explanation(found, ui) {
  return [
    h(
      "form",
      { class: "tools", onsubmit: (event) => {
        event.preventDefault();
        ui.change({ offset: event.target.elements.offset.value.trim() });
      } },
      h("label", {}, "Offset ", h("input", { name: "offset", id: "search", inputmode: "numeric", pattern: "[0-9]*", maxlength: 19, placeholder: "the whole partition", value: ui.offset })),
      h("button", { type: "submit" }, "Explain"),
    ),
    !found && h("p", { class: "empty" }, "Asked…"),
    found?.problem && h("p", { class: "note" }, found.problem),
    found?.sentences && h("ul", { class: "sentences" }, found.sentences.map((text) => h("li", {}, text))),
  ];
}

function segments(found, ui, route) {
  const rows = found?.rows ?? [];
  return [
    h(
      "div",
      { class: "tools" },
      h("label", {}, "From offset ", h("input", { inputmode: "numeric", pattern: "[0-9]*", maxlength: 19, value: ui.from, placeholder: "0", onchange: (event) => ui.change({ from: event.target.value.replace(/\D/g, "") }) })),
      h("label", {}, "State ", h("select", { onchange: (event) => ui.change({ state: event.target.value }) },
        h("option", { value: "", selected: ui.state === "" }, "all"),
        Object.entries(STATES).map(([value, [, title]]) => h("option", { value, selected: ui.state === value }, title)),
      )),
      h("span", { class: "pages" },
        h("span", {}, found ? `${number(found.count)} from here on` : "unknown"),
        h("button", { type: "button", disabled: !ui.from, onclick: () => ui.change({ from: "" }) }, "First"),
        h("button", { type: "button", disabled: !found || rows.length >= found.count, onclick: () => ui.change({ from: String(rows[rows.length - 1].end) }) }, "Next"),
      ),
    ),
    table(
      "Remote segments",
      [["Offsets", "wide"], ["Size", "n"], ["State", "state"], ["Newest record", ""], ["Broker", ""], ["Objects", "wide mono"]],
      rows.map((row) => ({
        key: row.id,
        cells: [
          h("a", { href: segmentLink(route.topic, route.partition, row.id) }, `${number(row.start)} to ${number(row.end)}`),
          bytes(row.bytes),
          stateChips(row),
          time(row.newest_ms),
          row.broker ?? "none",
          row.objects ?? row.id,
        ],
      })),
      found?.problem || "No segment.",
    ),
  ];
}
