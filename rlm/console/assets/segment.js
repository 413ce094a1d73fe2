// One remote segment: its record in the ledger, and what else is known of it in the order of time.

import { deletionTable } from "./activity.js";
import { h } from "./dom.js";
import { UNKNOWN, bytes, isKnown, number, plural, time } from "./format.js";
import { STATES, stateChips } from "./partition.js";
import { chip, pairs, partitionLink, segmentLink, table, topicLink } from "./parts.js";

export function segment(data, ui, history, route) {
  const { row } = data;
  const head = [
    h("p", { class: "crumbs" },
      h("a", { href: "#/" }, "Cluster"), " / ",
      h("a", { href: topicLink(route.topic) }, route.topic), " / ",
      h("a", { href: partitionLink(route.topic, route.partition) }, `Partition ${route.partition}`), " / "),
    h("h1", { tabindex: "-1" }, row ? `Segment ${number(row.start)} to ${number(row.end)}` : "Segment"),
  ];
  if (!row) return [head, h("p", { class: "empty" }, "The ledger has no such segment, or has it no more: one that was deleted leaves it, with a line in the audit log of the service that deleted it.")];
  return [
    head,
    h("p", { class: "state" }, stateChips(row)),
    pairs([
      ["Segment id", h("span", { class: "mono" }, row.id)],
      ["Size", bytes(row.bytes)],
      ["Layout", row.layout ?? UNKNOWN],
      ["Objects", h("span", { class: "mono" }, row.objects ?? UNKNOWN)],
      ["Store", h("span", { class: "mono" }, row.store_id ?? UNKNOWN)],
      ["Leader epochs", epochs(data)],
    ]),
    h("section", { "aria-label": "History", key: "history" }, h("h2", {}, "History"), historyTable(data), notes(data)),
    h("section", { "aria-label": "Other copies", key: "others" }, h("h2", {}, "Other copies of these offsets"), otherTable(data, route)),
    data.deletions.length > 0 && h("section", { "aria-label": "Deletions that can be undone", key: "deletions" }, h("h2", {}, "Deletions that can be undone"), deletionTable(data, data.deletions)),
  ];
}

function epochs(data) {
  const words = data.epochs.map(([epoch, start]) => `${number(epoch)} from ${number(start)}`).join(", ");
  const left = data.epoch_count - data.epochs.length;
  return left ? `${words}, and ${number(left)} more` : words || UNKNOWN;
}

// What the record itself says comes first where its time is not known. Times of one moment stay in this order.
export function steps(data) {
  const { row } = data;
  const found = [];
  if (isKnown(row.newest_ms)) found.push({ key: "newest", at_ms: row.newest_ms, what: "newest record", text: "By the timestamp that its producer or broker gave it." });
  found.push({ key: "state", at_ms: row.recorded_ms, what: "ledger", state: row.state, text: recorded(row) });
  for (const one of data.events) found.push({ key: `${one.node_id} ${one.number}`, at_ms: one.at_ms, what: one.task, failed: one.failed, names_it: one.names_it, text: `Broker ${one.node_id}: ${one.text}` });
  const known = found.filter((one) => isKnown(one.at_ms)).sort((a, b) => a.at_ms - b.at_ms);
  return [...found.filter((one) => !isKnown(one.at_ms)), ...known];
}

const RECORDED = {
  COPY_SEGMENT_STARTED: "began to copy it",
  COPY_SEGMENT_FINISHED: "finished the copy",
  DELETE_SEGMENT_STARTED: "began to delete it",
  DELETE_SEGMENT_FINISHED: "finished deleting it",
};

function recorded(row) {
  const done = RECORDED[row.state];
  if (!done) return `State ${row.state}.`;
  if (isKnown(row.broker)) return `Broker ${row.broker} ${done}.`;
  return row.state === "COPY_SEGMENT_FINISHED"
    ? "No broker copied it: it was imported. The time is that of its object."
    : "No broker copied it: it was found in the store.";
}

function historyTable(data) {
  return table(
    "History",
    [["Time", ""], ["What", "state"], ["Says", "wide"]],
    steps(data).map((one) => ({
      key: one.key,
      cells: [
        time(one.at_ms),
        one.state ? chip(...(STATES[one.state] ?? ["unknown", one.state])) : [chip(one.failed ? "warning" : "note", one.failed ? `${one.what} failed` : one.what), one.names_it && chip("note", "names it")],
        one.text,
      ],
    })),
    "",
  );
}

function notes(data) {
  const left = data.event_count - data.events.length;
  return [
    h("p", { class: "note" }, "The ledger keeps the newest record of a segment: when it came into earlier states, and when it was last verified, is not in it. Besides, these are decisions of the tasks of its partition since each service began, up to 1,000 a service; the services' logs have all."),
    left > 0 && h("p", { class: "note" }, `${plural(left, "earlier decision")} not shown: rlm events`),
    data.silent === null
      ? h("p", { class: "note" }, "You may not see which services have answered: decisions may be missing.")
      : data.silent.map((one) => h("p", { class: "problem warning", key: one.node_id }, `The decisions of node ${one.node_id} are not known: ${one.text}`)),
  ];
}

function otherTable(data, route) {
  return [
    table(
      "Other copies of these offsets",
      [["Offsets", "wide"], ["Size", "n"], ["State", "state"], ["Since", ""], ["Broker", ""]],
      data.others.map((row) => ({
        key: row.id,
        cells: [
          h("a", { href: segmentLink(route.topic, route.partition, row.id) }, `${number(row.start)} to ${number(row.end)}`),
          bytes(row.bytes),
          stateChips(row),
          time(row.recorded_ms),
          row.broker ?? "none",
        ],
      })),
      "None in the ledger.",
    ),
    data.other_count > data.others.length && h("p", { class: "note" }, `and ${number(data.other_count - data.others.length)} more`),
  ];
}
