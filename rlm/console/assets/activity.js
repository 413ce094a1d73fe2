// What runs and what is about to happen: problems, copies, verifications, deletions, freezes.

import { button, undoOffer } from "./actions.js";
import { h } from "./dom.js";
import { bytes, duration, isKnown, limit, number, time } from "./format.js";
import { chip, partitionLink, problemChips, problemList, table, topicLink } from "./parts.js";

export function problems(data) {
  return [
    h("h1", { tabindex: "-1" }, "Problems ", problemChips(data.severities)),
    h("p", { class: "note" }, `The data is ${data.verdict.words}, as rlm status --health says.`),
    problemList(data.problems, data.problem_count, data.now_ms),
  ];
}

export function kind(data, ui, history, route) {
  const found = data.kinds[route.kind];
  return [
    h("p", { class: "crumbs" }, h("a", { href: "#/problems" }, "Problems"), " / "),
    h("h1", { tabindex: "-1" }, route.kind),
    found
      ? [
        h("p", {}, chip(found.severity, found.severity), " data: ", found.risk),
        h("p", {}, found.meaning),
        h("p", { class: "note" }, "In the documentation: reference/problems. The text of each problem says what to do."),
      ]
      : h("p", { class: "empty" }, "This service does not know this kind: a newer service reports it."),
  ];
}

export function activity(data) {
  return [
    h("h1", { tabindex: "-1" }, "Activity"),
    h("section", { "aria-label": "Copies", key: "copies" }, h("h2", {}, "Segments being copied"), copyTable(data)),
    h("section", { "aria-label": "Verifications", key: "verifications" }, h("h2", {}, "Verifications"), verifyTable(data.verifications)),
    h("section", { "aria-label": "Deletions that can be undone", key: "deletions" }, h("h2", {}, "Deletions that can be undone"), deletionTable(data, data.deletions ?? [])),
    h("section", { "aria-label": "Freezes", key: "freezes" }, h("h2", {}, "Freezes by command"), freezeTable(data.freezes)),
  ];
}

function copyTable(data) {
  return [
    table(
      "Segments being copied",
      [["Partition", "wide"], ["Offsets", "wide"], ["Size", "n"], ["Leader", ""]],
      data.copies.map((row) => ({
        key: `${row.topic} ${row.partition}`,
        cells: [
          h("a", { href: partitionLink(row.topic, row.partition) }, `${row.topic}-${row.partition}`),
          row.ranges.map(([start, end]) => `${number(start)} to ${number(end)}`).join(", "),
          bytes(row.bytes),
          isKnown(row.leader) ? row.leader : "none",
        ],
      })),
      "Nothing is being copied.",
    ),
    data.copy_count > data.copies.length && h("p", { class: "note" }, `and ${number(data.copy_count - data.copies.length)} more partitions`),
  ];
}

function verifyTable(rows) {
  return table(
    "Verifications",
    [["Topic", "wide"], ["Kind", ""], ["Node", ""], ["Segments", "n"], ["Bytes", "n"]],
    rows.map((row, at) => ({
      key: `${row.node_id} ${row.topic ?? ""} ${at}`,
      cells: [
        row.topic ?? "all",
        row.deep ? "every byte" : "by size",
        row.node_id,
        `${number(row.segments)} of ${number(row.segments_total)}`,
        row.bytes_total ? `${bytes(row.bytes)} of ${bytes(row.bytes_total)}` : "not read",
      ],
    })),
    "Nobody has asked for a verification that runs now. Begin one with: rlm verify",
  );
}

const UNDONE = {
  retention: (row) => `total retention becomes ${limit(row.retention_ms, duration)}, ${limit(row.retention_bytes, bytes)}`,
  discard: (row) => `all that is remote of partition ${row.partition}`,
  "topic-disable": () => "all that is remote: the topic was disabled with --delete",
  "topic-gone": () => "all that is remote: the topic was deleted in Kafka",
  "topic-purge": () => "all that is remote: by rlm topic purge",
};

export function deletionTable(data, rows) {
  return table(
    "Deletions that can be undone",
    [["Topic", "wide"], ["What goes", "wide"], ["Size", "n"], ["In force in", "n"], ["Decided", ""], ["Undo with", "mono"]],
    rows.map((row) => ({
      key: `${row.kind} ${row.topic} ${row.partition ?? ""}`,
      cells: [
        h("a", { href: topicLink(row.topic) }, row.topic),
        [(UNDONE[row.kind] ?? (() => row.kind))(row), row.waits && h("span", { class: "why" }, `waits: ${row.waits}`)],
        isKnown(row.bytes) ? bytes(row.bytes) : "see rlm topic plan",
        isKnown(row.due_in_ms) ? duration(row.due_in_ms) : "not announced yet",
        [time(row.decided_ms), row.by && ` by ${row.by}`],
        [undoCommand(row), button(data, undoOffer(row))],
      ],
    })),
    "None.",
  );
}

function undoCommand(row) {
  return isKnown(row.partition) ? `rlm deletions undo ${row.topic} -p ${row.partition}` : `rlm deletions undo ${row.topic}`;
}

function freezeTable(rows) {
  return table(
    "Freezes by command",
    [["Topic", "wide"], ["Stopped", ""], ["By", ""], ["Since", ""], ["Why", "wide"]],
    rows.map((row) => ({
      key: row.topic ?? "",
      cells: [row.topic ?? "everything", row.stopped, row.by, time(row.since_ms), row.why],
    })),
    "None.",
  );
}
