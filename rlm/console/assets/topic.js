// One topic: how it is set up, and a page of its partitions, each as a bar of its offsets.

import { h } from "./dom.js";
import { bytes, duration, isKnown, limit, number, perSecond, plural, rate } from "./format.js";
import { buttons, copyOffer, freezeOffer, verifyOffer } from "./actions.js";
import { deletionTable } from "./activity.js";
import { bar, card, chart, chip, legend, listTools, measured, pairs, partitionLink, problemList, readersLink, table, unknownToo } from "./parts.js";

const ORDERS = [["", "number"], ["lag", "most to copy"], ["size", "most remote bytes"], ["problems", "problems"]];

export function seen(history, data) {
  const { totals, topic, now_ms: atMs } = data;
  if (!totals) return;
  history.add(`${topic} lag`, atMs, totals.lag_bytes);
  const remote = totals.remote_unknown ? null : totals.remote_bytes;
  history.add(`${topic} remote`, atMs, remote);
  history.count(`${topic} copied`, atMs, remote, totals.partitions);
  history.count(`${topic} appends`, atMs, totals.unexamined ? null : totals.offsets, totals.partitions);
}

export function topic(data, ui, history) {
  const name = data.topic;
  const totals = data.totals;
  return [
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Cluster"), " / "),
    h("h1", { tabindex: "-1" }, name),
    h("p", { class: "note" }, h("a", { href: readersLink(name) }, "Who reads it, and where they are")),
    buttons(data, [copyOffer(name), verifyOffer(name), freezeOffer(name)]),
    data.description && setUp(data.description),
    data.description_problem && h("p", { class: "note" }, `How it is set up is not known: ${data.description_problem}`),
    totals && h(
      "div",
      { class: "cards" },
      card("Remote", bytes(totals.remote_bytes), unknownToo(totals.remote_unknown) || plural(totals.remote_segments, "segment"), chart(history, `${name} remote`, bytes, "Remote bytes")),
      card("Local", bytes(totals.local_bytes), unknownToo(totals.local_unknown) || plural(totals.partitions, "partition"), h("div", { class: "chart" })),
      card("To copy", bytes(totals.lag_bytes), totals.lag_unknown ? unknownToo(totals.lag_unknown) : totals.copying_bytes ? `${bytes(totals.copying_bytes)} being copied` : "", chart(history, `${name} lag`, bytes, "To copy")),
      card("Copied", measured(history, `${name} copied`, rate), "growth of what is remote", chart(history, `${name} copied`, rate, "Copied")),
      card("Appended", measured(history, `${name} appends`, perSecond), "records", chart(history, `${name} appends`, perSecond, "Appended records")),
    ),
    data.problem_count > 0 && h("section", { "aria-label": "Problems", key: "problems" }, h("h2", {}, "Problems"), problemList(data.problems, data.problem_count, data.now_ms)),
    data.deletions.length > 0 && h("section", { "aria-label": "Deletions that can be undone", key: "deletions" }, h("h2", {}, "Deletions that can be undone"), deletionTable(data, data.deletions)),
    h(
      "section",
      { "aria-label": "Partitions", key: "partitions" },
      h("h2", {}, "Partitions"),
      legend(),
      listTools(ui, data.partitions, ORDERS, "a partition"),
      partitionTable(data.partitions.rows),
    ),
  ];
}

// As `rlm topics describe` has it; -1 is "at local retention", not "without a limit".
function copiedWhen(ageMs, sizeBytes) {
  if (ageMs === 0 || sizeBytes === 0) return "as soon as a segment is closed";
  const age = ageMs < 0 ? "at local retention" : `${duration(ageMs)} old`;
  return `${age} or ${sizeBytes < 0 ? "at local retention by size" : `${bytes(sizeBytes)} behind`}`;
}

function setUp(found) {
  const retention = `${limit(found.retention_ms, duration)}, ${limit(found.retention_bytes, bytes)}`;
  const local = `${limit(found.local_retention_ms, duration)}, ${limit(found.local_retention_bytes, bytes)}`;
  return [
    pairs([
      ["State", [chip(found.state === "enabled" ? "well" : "warning", found.state), found.gone && chip("alarm", "deleted in Kafka")]],
      ["Mode", found.mode],
      ["Trim", found.trim ? "on" : "off"],
      ["Total retention", retention],
      ["Local retention", local],
      ["Copied", copiedWhen(found.copy_lag_ms, found.copy_lag_bytes)],
      isKnown(found.min_insync_replicas) && ["min.insync.replicas", number(found.min_insync_replicas)],
    ]),
    [...found.warnings, ...found.notes].map((text) => h("p", { class: "note" }, text)),
  ];
}

function partitionTable(rows) {
  return table(
    "Partitions",
    [["Partition", ""], ["Offsets", "bars"], ["Remote", "n"], ["Local", "n"], ["To copy", "n"], ["Leader", ""], ["State", "state"]],
    rows.map((row) => ({
      key: row.partition,
      cells: [
        h("a", { href: partitionLink(row.topic, row.partition) }, row.partition),
        bar(row),
        bytes(row.remote_bytes),
        bytes(row.local_bytes),
        bytes(row.lag_bytes),
        isKnown(row.leader) ? row.leader : "none",
        partitionState(row),
      ],
    })),
    "No partition that you search for.",
  );
}

// The gravest first; what runs or was lost besides is named too.
export function partitionState(row) {
  const besides = [
    row.hole_offsets > 0 && chip("hole", "lost offsets"),
    row.copying_bytes > 0 && chip("copying", "copying"),
  ].filter(Boolean);
  const grave = graveState(row);
  return [grave ?? (besides.length ? null : chip("well", "well")), besides];
}

function graveState(row) {
  const why = (text) => h("span", { class: "why" }, text);
  if (row.frozen) return [chip("alarm", "frozen"), why(row.frozen)];
  if (row.alarms.length) return [chip("alarm", plural(row.alarms.length, "alarm")), why(row.alarms[0])];
  if (!isKnown(row.log_end)) return [chip("unknown", "unknown"), why(row.last_error || "its leader's service has not examined it yet")];
  if (isKnown(row.loss_in_ms)) return chip("alarm", `loss in ${duration(row.loss_in_ms)}`);
  if (row.last_error) return [chip("warning", "error"), why(row.last_error)];
  return null;
}
