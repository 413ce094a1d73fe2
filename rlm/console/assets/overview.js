// The whole cluster: what happens now, services, stores, disks, and a page of the topics.

import { buttons, copyLimitOffer } from "./actions.js";
import { h } from "./dom.js";
import { bytes, duration, isKnown, number, perSecond, plural, rate, sum } from "./format.js";
import { card, chart, chip, listTools, measured, problemChips, problemList, table, topicLink, unknownToo } from "./parts.js";

const ORDERS = [["", "name"], ["lag", "most to copy"], ["size", "most remote bytes"], ["problems", "problems"]];

// The sums of all services that are known; null where none is.
function added(services, value) {
  const known = services.map(value).filter(isKnown);
  return known.length ? known.reduce((a, b) => a + b, 0) : null;
}

function soonest(services) {
  const known = services.flatMap((one) => one.log_dirs.map((dir) => dir.full_in_ms)).filter(isKnown);
  return known.length ? Math.min(...known) : null;
}

export function seen(history, data) {
  const { totals, services, now_ms: atMs } = data;
  history.add("lag", atMs, totals.lag_bytes);
  history.add("copy rate", atMs, added(services, (one) => one.copying?.rate ?? null));
  history.add("full in", atMs, soonest(services));
  history.count("appends", atMs, totals.unexamined ? null : totals.offsets, totals.partitions);
}

export function overview(data, ui, history) {
  const { totals, services, verdict } = data;
  const fullIn = soonest(services);
  const left = services.filter((one) => one.copying?.bytes_left).map((one) => one.copying.left_ms).filter(isKnown);
  return [
    h("h1", { tabindex: "-1" }, "Cluster"),
    h(
      "div",
      { class: "cards" },
      card(
        "Remote",
        bytes(totals.remote_bytes),
        unknownToo(totals.remote_unknown) || `${plural(totals.remote_segments, "segment")}, ${plural(totals.topics, "topic")}, ${plural(totals.partitions, "partition")}`,
        h("div", { class: "chart words" }, totals.hole_offsets ? `${number(totals.hole_offsets)} offsets lost, on record` : ""),
      ),
      card(
        "To copy",
        bytes(totals.lag_bytes),
        totals.lag_unknown ? unknownToo(totals.lag_unknown) : left.length ? `${duration(Math.max(...left))} left at this rate` : "closed segments that are not remote",
        chart(history, "lag", bytes, "To copy"),
      ),
      card("Copy rate", rate(history.last("copy rate")), "of the last minute", chart(history, "copy rate", rate, "Copy rate")),
      card("Appended", measured(history, "appends", perSecond), "records, all topics", chart(history, "appends", perSecond, "Appended records")),
      card(
        "First disk full in",
        isKnown(fullIn) ? duration(fullIn) : services.some((one) => one.log_dirs.some((dir) => isKnown(dir.growth))) ? "does not grow" : "unknown",
        "at the growth of the last hour",
        chart(history, "full in", duration, "Time until the first disk is full"),
      ),
    ),
    data.problem_count > 0 && h(
      "section",
      { "aria-label": "Problems", key: "problems" },
      h("h2", {}, "Problems ", problemChips(data.severities)),
      problemList(data.problems.slice(0, 5), Math.min(5, data.problem_count), data.now_ms),
      data.problem_count > 5 && h("p", {}, h("a", { href: "#/problems" }, `All ${number(data.problem_count)} problems`)),
    ),
    verdict.on_record.length > 0 && h("section", { key: "record" }, h("h2", {}, "Losses on record"), h("ul", {}, verdict.on_record.map((text) => h("li", {}, text)))),
    h("section", { "aria-label": "Topics", key: "topics" }, h("h2", {}, "Topics"), listTools(ui, data.topics, ORDERS, "topics"), topicTable(data.topics.rows)),
    h("section", { "aria-label": "Services", key: "services" }, h("h2", {}, "Services"), buttons(data, [copyLimitOffer()]), serviceTable(services)),
    data.readers.length > 0 && h("section", { "aria-label": "Readers", key: "readers" }, h("h2", {}, "Readers"), readerTable(data.readers)),
    h("section", { "aria-label": "Stores", key: "stores" }, h("h2", {}, "Stores"), storeTable(services)),
    h("section", { "aria-label": "Disks of the brokers", key: "disks" }, h("h2", {}, "Disks of the brokers"), diskTable(services)),
  ];
}

function topicTable(rows) {
  return table(
    "Topics",
    [["Topic", "wide"], ["Partitions", "n"], ["Remote", "n"], ["Local", "n"], ["To copy", "n"], ["State", "state"]],
    rows.map((row) => ({
      key: row.topic,
      cells: [
        h("a", { href: topicLink(row.topic) }, row.topic),
        number(row.partitions),
        sum(bytes(row.remote_bytes), row.remote_unknown),
        sum(bytes(row.local_bytes), row.local_unknown),
        sum(bytes(row.lag_bytes), row.lag_unknown),
        topicState(row),
      ],
    })),
    "No topic is enabled, or none that you search for. Enable one with: rlm topic enable TOPIC",
  );
}

export function topicState(row) {
  const found = problemChips(row.problems);
  if (row.frozen) found.push(chip("alarm", `${number(row.frozen)} frozen`));
  if (row.failing) found.push(chip("warning", `${number(row.failing)} failing`));
  if (row.hole_offsets) found.push(chip("hole", "lost offsets"));
  if (row.copying_bytes) found.push(chip("copying", "copying"));
  if (row.unexamined) found.push(chip("unknown", `${number(row.unexamined)} unknown`));
  return found.length ? found : chip("well", "well");
}

function serviceTable(services) {
  return table(
    "Services",
    [["Broker", ""], ["State", "state"], ["API", ""], ["Heartbeat", "n"], ["To copy", "n"], ["Rate", "n"], ["Time left", "n"], ["Version", ""]],
    services.map((row) => ({
      key: row.node_id,
      cells: [
        row.node_id,
        row.reachable ? chip(row.health ?? "unknown", row.health ?? "unknown") : chip("alarm", "not reachable"),
        row.api || "unknown",
        isKnown(row.heartbeat_age_ms) ? `${duration(row.heartbeat_age_ms)} ago` : "unknown",
        row.copying ? sum(bytes(row.copying.bytes_left), row.copying.unmeasured) : "unknown",
        row.copying ? rate(row.copying.rate) : "unknown",
        row.copying ? (row.copying.bytes_left || row.copying.unmeasured ? duration(row.copying.left_ms) : "nothing left") : "unknown",
        row.version || "unknown",
      ],
    })),
    "You may not see services: that needs the right to describe every topic.",
  );
}

export function readerTable(readers, empty) {
  return table(
    "Readers",
    [["Reader", "wide"], ["State", "state"], ["Heartbeat", "n"], ["Version", ""]],
    readers.map((row) => ({
      key: row.address,
      cells: [
        row.address,
        row.alive ? chip("well", "well") : chip("warning", "no heartbeat"),
        isKnown(row.heartbeat_age_ms) ? `${duration(row.heartbeat_age_ms)} ago` : "unknown",
        row.version || "unknown",
      ],
    })),
    empty,
  );
}

function storeTable(services) {
  const found = new Map();
  for (const service of services) {
    for (const store of service.stores) {
      const key = `${store.name ?? ""} ${store.id ?? ""}`;
      const known = found.get(key) ?? { ...store, key, away: [], alarms: [] };
      if (store.problem) known.away.push([service.node_id, store.problem]);
      known.alarms = [...new Set([...known.alarms, ...store.alarms])];
      found.set(key, known);
    }
  }
  return table(
    "Stores",
    [["Store", ""], ["State", "state"], ["Segments", "n"], ["Size", "n"], ["Location", "wide"]],
    [...found.values()].map((row) => ({
      key: row.key,
      cells: [
        row.name ?? "not configured",
        row.away.length
          ? [chip("alarm", `not well for ${row.away.map(([node]) => node).join(", ")}`), h("span", { class: "why" }, row.away[0][1])]
          : row.alarms.length ? [chip("alarm", "alarm"), h("span", { class: "why" }, row.alarms[0])] : chip("well", "well"),
        number(row.segments),
        bytes(row.bytes),
        row.location || "unknown",
      ],
    })),
    "No store is configured: nothing is tiered.",
  );
}

function diskTable(services) {
  const rows = services.flatMap((service) =>
    service.log_dirs.map((dir) => ({
      key: `${service.node_id} ${dir.path}`,
      cells: [
        service.node_id,
        dir.path,
        dir.under_pressure ? chip("alarm", "nearly full") : usage(dir),
        bytes(dir.free_bytes),
        bytes(dir.bytes),
        isKnown(dir.full_in_ms) ? duration(dir.full_in_ms) : isKnown(dir.growth) ? "does not grow" : "unknown",
        sum(bytes(dir.untrimmable_bytes), dir.unmeasured),
      ],
    })),
  );
  return table(
    "Disks of the brokers",
    [["Broker", ""], ["Log directory", "wide"], ["Used", "state"], ["Free", "n"], ["Size", "n"], ["Full in", "n"], ["No trim may delete", "n"]],
    rows,
    "No service says what its disks are like.",
  );
}

function usage(dir) {
  if (!isKnown(dir.bytes) || !isKnown(dir.free_bytes) || !dir.bytes) return "unknown";
  const share = 1 - dir.free_bytes / dir.bytes;
  return [
    h("span", { class: "meter", role: "img", "aria-label": `${Math.round(share * 100)} % used` }, h("i", { style: { width: `${(share * 100).toFixed(1)}%` } })),
    `${Math.round(share * 100)} %`,
  ];
}

