// What can be done from here where console.actions is on: each asks first, and says what happens.
// An action runs as long as its request, so it ends when the page is closed.

import { act } from "./api.js";
import { h, render } from "./dom.js";
import { bytes, duration, isKnown, limit, number, plural } from "./format.js";

const SHOWN_MAX = 4;
const MIB = 1 << 20;
const runs = [];
let asked = null;
let begun = 0;

export function buttons(data, offers) {
  const found = offers.filter((offer) => offer && data.actions?.includes(offer.name));
  return found.length ? h("p", { class: "actions", key: "actions" }, found.map((offer) => button(data, offer))) : null;
}

export function button(data, offer) {
  if (!data.actions?.includes(offer.name)) return null;
  return h("button", { type: "button", onclick: () => ask(offer), key: `${offer.name} ${offer.what}` }, offer.title, h("span", { class: "unseen" }, ` ${offer.what}`));
}

export function copyOffer(topic, partition) {
  const what = isKnown(partition) ? `${topic}-${partition}` : topic;
  return {
    name: "copy",
    what,
    title: "Copy now",
    asks: `Copy ${what} now`,
    noun: `Copy of ${what}`,
    body: () => (isKnown(partition) ? { topic, partition } : { topic }),
    says: [
      `All closed segments of ${what} that are not remote yet are copied to the store, within the copy limits.`,
      "Nothing is deleted. It goes on while this page is open; copies at their usual times go on anyhow.",
    ],
    line: (row) => (row.error ? `${row.topic}-${row.partition}: ${row.error}` : `${row.topic}-${row.partition}: ${row.doing}, ${number(row.segments)} of ${plural(row.segments_total, "segment")}, ${bytes(row.bytes)}`),
    isBad: (row) => Boolean(row.error) && row.doing === "done",
    key: (row) => row.partition,
  };
}

export function verifyOffer(topic) {
  return {
    name: "verify",
    what: topic,
    title: "Verify",
    asks: `Verify ${topic}`,
    noun: `Verification of ${topic}`,
    body: () => ({ topic }),
    says: [
      `The offsets of ${topic} are compared between ledger, brokers and store, and that its objects are there with their sizes.`,
      "Nothing is changed. rlm verify --deep reads every byte besides.",
    ],
    line: (row) => {
      if (isKnown(row.segments)) return `node ${row.node_id}: ${number(row.segments)} of ${plural(row.segments_total, "segment")}`;
      if (row.text) return `partition ${row.partition}: ${row.text}${row.action ? `; ${row.action}` : ""}`;
      const where = row.partition < 0 ? "all partitions" : `partition ${row.partition}`;
      if (row.unchecked.length) return `${where}: not checked: ${row.unchecked.join("; ")}`;
      return `${where}: ${row.findings ? plural(row.findings, "finding") : "clean"}`;
    },
    isBad: (row) => row.finding || row.findings > 0 || row.unchecked?.length > 0,
    key: (row) => (isKnown(row.segments) ? `node ${row.node_id}` : row.text ? `${row.partition} ${row.text}` : row.partition),
  };
}

export function freezeOffer(topic) {
  return {
    name: "freeze",
    what: topic,
    title: "Freeze…",
    asks: `Freeze ${topic}`,
    noun: `Freeze of ${topic}`,
    input: { name: "why", title: "Why", type: "text", maxlength: 500, required: true },
    body: (text) => ({ topic, why: text }),
    says: [
      `Nothing of ${topic} is trimmed or deleted any more, on no broker and in no store, until rlm unfreeze ${topic}.`,
      "Copies go on. The brokers' disks fill as long as nothing is trimmed.",
    ],
    line: () => "frozen",
  };
}

export function copyLimitOffer() {
  return {
    name: "copy-limit",
    what: "of all services",
    title: "Copy limit…",
    asks: "Limit the copies of all services",
    noun: "Copy limit",
    input: { name: "limit", title: "MiB per second, for each service", type: "number", min: 1, step: 1, placeholder: "as configured" },
    body: (text) => (text ? { bytes: Math.round(Number(text) * MIB) } : {}),
    says: [
      "Every service copies at most so many MiB a second from now on, until this is changed again. One that has a limit of its own by rlm copy-limit --node keeps that.",
      "Empty: the limit for all ends, and what each service is configured with counts again.",
    ],
    line: (row) => row.nodes.map((one) => `node ${one.node_id}: ${one.problem || (isKnown(one.bytes) ? `${bytes(one.bytes)}/s` : "unknown")}`).join(", "),
  };
}

export function undoOffer(row) {
  const isDiscard = isKnown(row.partition);
  const what = isDiscard ? `${row.topic}-${row.partition}` : row.topic;
  const kept = row.kind === "retention"
    ? `The total retention of ${row.topic} does not become ${limit(row.retention_ms, duration)}, ${limit(row.retention_bytes, bytes)}: the longer one stays.`
    : isDiscard
      ? `What is remote of ${what} is kept and not discarded.`
      : `What is remote of ${row.topic} is kept. The topic is disabled: nothing more is copied.`;
  return {
    name: "undo",
    what: `the deletion of ${what}`,
    title: "Undo",
    asks: `Undo the deletion of ${what}`,
    noun: `Undoing the deletion of ${what}`,
    body: () => (isDiscard ? { topic: row.topic, partition: row.partition } : { topic: row.topic }),
    says: [kept, isKnown(row.decided_ms) && row.by ? `${row.by} had decided the deletion.` : null],
    line: (done) => `undone; ${done.topic} is ${done.state}`,
  };
}

function ask(offer) {
  asked = offer;
  const dialog = document.getElementById("action");
  const { input } = offer;
  const form = document.getElementById("action-form");
  form.reset(); // what was typed for another subject, or given up
  render(form, [
    h("h2", { id: "action-title" }, `${offer.asks}?`),
    offer.says.filter(Boolean).map((text) => h("p", {}, text)),
    input && h("label", { key: input.name }, input.title, h("input", { ...input, title: null, id: "action-input", autocomplete: "off" })),
    h("p", { class: "answers" },
      h("button", { type: "button", value: "no", onclick: () => dialog.close() }, "Cancel"),
      h("button", { type: "submit", class: "primary" }, offer.title.replace("…", "")),
    ),
  ]);
  dialog.showModal();
}

export function confirmed() {
  const offer = asked;
  asked = null;
  if (offer) run(offer, offer.body(document.getElementById("action-input")?.value.trim() ?? ""));
}

async function run(offer, body) {
  const abort = new AbortController();
  begun += 1;
  const shown = { id: begun, offer, lines: new Map(), state: "running", abort };
  runs.unshift(shown);
  while (runs.length > SHOWN_MAX && runs.some((one) => one.state !== "running")) {
    runs.splice(runs.findLastIndex((one) => one.state !== "running"), 1);
  }
  showRuns();
  try {
    await act(offer.name, body, abort.signal, (row) => {
      shown.lines.set(offer.key ? offer.key(row) : "", { text: offer.line(row), isBad: Boolean(offer.isBad?.(row)) });
      showRuns();
    });
    shown.state = "done";
  } catch (error) {
    shown.state = error.name === "AbortError" ? "stopped" : "failed";
    shown.error = error.name === "AbortError" ? "" : error.message;
  }
  showRuns();
}

function showRuns() {
  render(document.getElementById("runs"), runs.map((one) => {
    const found = [...one.lines.values()];
    const bad = found.filter((line) => line.isBad);
    const lines = [...bad, ...found.filter((line) => !line.isBad).reverse()].slice(0, 4);
    const isRunning = one.state === "running";
    return h("li", { key: one.id, class: `run ${one.state === "failed" || bad.length ? "alarm" : one.state}` },
      h("p", { class: "subject" }, `${one.offer.noun}: ${one.state}`),
      one.error && h("p", {}, one.error),
      lines.map((line) => h("p", { class: "note" }, line.text)),
      found.length > lines.length && h("p", { class: "note" }, `and ${number(found.length - lines.length)} more`),
      h("button", { type: "button", onclick: () => (isRunning ? one.abort.abort() : close(one)) }, isRunning ? "Stop" : "Close"),
    );
  }));
}

function close(run) {
  runs.splice(runs.indexOf(run), 1);
  showRuns();
}
