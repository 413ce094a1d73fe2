// Who reads: reader processes, Kafka clients of all proxies with what each tier gave them, and where groups are.

import { KINDS, leftToRead, placeOf } from "./bar.js";
import { h } from "./dom.js";
import { UNKNOWN, bytes, duration, number } from "./format.js";
import { readerTable } from "./overview.js";
import { chip, listTools, partitionLink, readersLink, table, topicLink } from "./parts.js";

export function readers(data, ui, history, route) {
  const { topic } = route;
  const found = data.who;
  return [
    topic && h("p", { class: "crumbs" }, h("a", { href: "#/readers" }, "Readers"), " / ", h("a", { href: topicLink(topic) }, topic), " / "),
    h("h1", { tabindex: "-1" }, topic ? `Readers of ${topic}` : "Readers"),
    topic && found.positions && h("section", { "aria-label": "Positions of groups", key: "positions" }, h("h2", {}, "Positions of groups"), positions(found, topic)),
    h("section", { "aria-label": "Clients", key: "clients" }, h("h2", {}, "Kafka clients of all proxies"), clients(found, ui, topic)),
    !topic && h("section", { "aria-label": "Reader processes", key: "processes" }, h("h2", {}, "Reader processes"),
      readerTable(data.readers, "None has been seen, or you may not see them: that needs the right to describe every topic.")),
  ];
}

function clients(found, ui, topic) {
  if (found.problem) return h("p", { class: "problem warning" }, `Clients are not known: ${found.problem}`);
  return [
    h("p", { class: "note" }, `Bytes count since each service began. ${topic ? "" : "A topic's page of readers has the positions of its groups. "}Clients of readers by gRPC, and those that go past the proxies, are not here.`),
    found.problems.map((one) => h("p", { class: "problem warning", key: one.node_id }, `The clients of node ${one.node_id} are not known: ${one.text}`)),
    listTools(ui, found.clients, [["", "principal"]], "clients"),
    table(
      "Clients",
      [["Client", "wide"], ["Principal", ""], ["Address", ""], ["Groups", "wide"], ["Remote", "n"], ["Local", "n"], ["Throttled", "n"], ["Connections", "n"], topic ? ["Share", "state"] : ["Topics", "wide"]],
      found.clients.rows.map((row) => ({
        key: `${row.principal ?? ""} ${row.name} ${row.address}`,
        cells: [
          [row.name || "no name", row.software.length > 0 && h("span", { class: "why" }, row.software.join(", "))],
          row.principal ?? "not proved",
          row.address || "others, together",
          row.groups.join(", ") || "none known",
          bytes(row.remote_bytes),
          bytes(row.local_bytes),
          row.throttled_ms ? duration(row.throttled_ms) : "no",
          number(row.connections),
          topic ? share(row) : topics(row),
        ],
      })),
      "No client has come to a proxy, or none that you search for.",
    ),
  ];
}

// Of what was read, how much came from the remote tier; null where nothing was.
export function remoteShare(row) {
  const all = row.remote_bytes + row.local_bytes;
  return all ? row.remote_bytes / all : null;
}

function share(row) {
  const found = remoteShare(row);
  if (found === null) return "nothing read";
  const words = `${Math.round(found * 100)} % remote`;
  return [h("span", { class: "meter", role: "img", "aria-label": words }, h("i", { style: { width: `${(found * 100).toFixed(1)}%` } })), words];
}

function topics(row) {
  const left = row.topic_count - row.topics.length;
  return [
    row.topics.map((one) => [
      one.topic === null ? "other topics" : h("a", { href: readersLink(one.topic) }, one.topic),
      h("span", { class: "why" }, `${bytes(one.remote_bytes)} remote, ${bytes(one.local_bytes)} local`),
    ]),
    left > 0 && h("span", { class: "why" }, `and ${number(left)} more`),
    !row.topic_count && "nothing read",
  ];
}

const THROUGH = { proxy: ["well", "through a proxy"], broker: ["warning", "past the proxies"] };

function positions(found, topic) {
  if (found.positions_problem) return h("p", { class: "problem warning" }, `Positions are not known: ${found.positions_problem}`);
  const left = found.position_count - found.positions.length;
  return [
    h("p", { class: "note" }, "What groups have committed; those with the most left to read come first, with how much of that is only remote. Past the proxies a group finds nothing that is remote only. A group whose clients no service has seen read since it began is counted among these."),
    table(
      "Positions of groups",
      [["Group", "wide"], ["Reads", "state"], ["Partition", "n"], ["Position", "n"], ["Where", "state"], ["Left to read", "n"], ["Only remote", "n"]],
      found.positions.map((one) => positionRow(one, found.partitions[one.partition], topic)),
      "No group has committed offsets of this topic.",
    ),
    left > 0 && h("p", { class: "note" }, `and ${number(left)} more: rlm clients ${topic} --json`),
  ];
}

function positionRow(one, row, topic) {
  const remains = leftToRead(row, one.offset);
  return {
    key: `${one.through ?? ""} ${one.partition} ${one.group ?? ""}`,
    cells: [
      one.group ?? "share groups, the lowest start",
      one.through ? chip(...THROUGH[one.through]) : "of all share groups",
      h("a", { href: partitionLink(topic, one.partition) }, number(one.partition)),
      number(one.offset),
      chip(...placed(row, one)),
      number(remains?.all),
      number(remains?.remote),
    ],
  };
}

// The chip of a position; what a group past the proxies does not find is an alarm.
export function placed(row, one) {
  const place = placeOf(row, one.offset);
  if (place === null) return ["unknown", UNKNOWN];
  if (place === "end") return ["well", "at the end"];
  if (place === "below") return ["alarm", "below the first offset"];
  const isLost = place === "hole" || place === "broken" || (place === "remote" && one.through === "broker");
  return [isLost ? "alarm" : "note", KINDS[place]];
}
