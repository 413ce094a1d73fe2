// The console: which view is shown, when its data is asked for, and the token.
// One request a few seconds while the page is seen, none while it is hidden.

import * as activity from "./activity.js";
import { costs } from "./costs.js";
import { confirmed } from "./actions.js";
import { Refused, get, showToken } from "./api.js";
import { h, render } from "./dom.js";
import { duration } from "./format.js";
import { History } from "./history.js";
import { overview, seen as seenCluster } from "./overview.js";
import { PAGE } from "./parts.js";
import { partition, seen as seenPartition } from "./partition.js";
import { readers } from "./readers.js";
import { segment } from "./segment.js";
import { seen as seenTopic, topic } from "./topic.js";

const POLL_MS = 3_000;
const SLOWEST_MS = 15_000;
const HEAD_EVERY_MS = 12_000;
const TYPING_MS = 250;
const LIST_EVERY_MS = 15_000;
const COSTS_EVERY_MS = 60_000;

const history = new History();
const state = { route: null, ui: null, data: null, head: null, headAt: 0, error: "", at: 0, failures: 0 };
let timer = 0;
let running = null;
let kinds = null;

const listed = () => ({ search: state.ui.search, sort: state.ui.sort, start: state.ui.start, count: PAGE });

const VIEWS = {
  cluster: { title: "Cluster", isHead: true, load: (route, signal) => get("cluster", listed(), signal), seen: seenCluster, show: overview },
  topic: {
    load: (route, signal) => get("topic", { topic: route.topic, ...listed() }, signal),
    seen: seenTopic,
    show: topic,
  },
  partition: { load: loadPartition, seen: seenPartition, show: partition },
  segment: { load: loadSegment, show: segment },
  problems: { title: "Problems", isHead: true, load: (route, signal) => get("cluster", { count: 1 }, signal), seen: seenCluster, show: activity.problems },
  activity: { title: "Activity", isHead: true, load: loadActivity, seen: seenCluster, show: activity.activity },
  costs: { title: "Cost", load: loadCosts, show: costs },
  readers: { title: "Readers", isHead: true, load: loadReaders, seen: seenCluster, show: readers },
  kind: { load: async (route, signal) => (kinds ??= await get("kinds", {}, signal)), show: activity.kind },
};

async function loadActivity(route, signal) {
  const [found, due] = await Promise.all([get("cluster", { count: 1 }, signal), get("deletions", {}, signal)]);
  return { ...found, deletions: due.deletions };
}

// Segments are counted for it, so it is asked for once a minute and not at each poll.
async function loadCosts(route, signal) {
  const { ui } = state;
  const asked = JSON.stringify(listed());
  if (ui.page !== asked || performance.now() - ui.listedAt >= COSTS_EVERY_MS) {
    ui.costs = await get("costs", listed(), signal);
    Object.assign(ui, { page: asked, listedAt: performance.now() });
  }
  return ui.costs;
}

// What is refused leaves the rest of its page to be seen.
function orProblem(promise) {
  return promise.catch((error) => {
    if (!(error instanceof Refused) || error.asksToken) throw error;
    return { problem: error.message };
  });
}

// Positions of groups are asked of the broker, so those of a topic are not asked for at each poll.
async function loadReaders(route, signal) {
  const { ui } = state;
  const page = JSON.stringify(listed());
  const isOld = !route.topic || ui.page !== page || performance.now() - ui.listedAt >= LIST_EVERY_MS;
  const [found, who] = await Promise.all([
    get("cluster", { count: 1 }, signal),
    isOld ? orProblem(get("clients", { topic: route.topic, ...listed() }, signal)) : ui.who,
  ]);
  if (isOld) Object.assign(ui, { who, page, listedAt: performance.now() });
  return { ...found, who };
}

// An explanation takes a new snapshot of the partition, so it is asked for once and not at each poll.
// Segments are listed again where the polled row says that they have changed, and not too often.
async function loadPartition(route, signal) {
  const { ui } = state;
  const of = { topic: route.topic, partition: route.partition };
  const asked = `${ui.offset}`;
  const wants = ui.explained !== asked;
  const found = await get("partition", of, signal);
  const page = `${ui.from} ${ui.state}`;
  const changed = `${found.row?.remote_segments} ${JSON.stringify(found.row?.copying)}`;
  const isOld = ui.changed !== changed && performance.now() - ui.listedAt >= LIST_EVERY_MS;
  const lists = ui.page !== page || isOld;
  const [segments, explained] = await Promise.all([
    lists ? orProblem(get("segments", { ...of, from: ui.from, state: ui.state, count: PAGE }, signal)) : ui.segments,
    wants ? orProblem(get("explanation", { ...of, offset: ui.offset }, signal)) : ui.explanation,
  ]);
  Object.assign(ui, { explained: asked, explanation: explained, segments });
  if (lists) Object.assign(ui, { page, changed, listedAt: performance.now() });
  return { ...found, segments, explanation: explained };
}

// All services are asked for their events, so this is not asked for at each poll either.
async function loadSegment(route, signal) {
  const { ui } = state;
  if (!ui.segment || performance.now() - ui.listedAt >= LIST_EVERY_MS) {
    ui.segment = await get("segment", { topic: route.topic, partition: route.partition, id: route.segment }, signal);
    ui.listedAt = performance.now();
  }
  return ui.segment;
}

function routeOf(hash) {
  const words = hash.replace(/^#\/?/, "").split("/").map(decoded);
  if (words[0] === "topic" && words[1] && /^\d+$/.test(words[2] ?? "")) {
    const of = { topic: words[1], partition: Number(words[2]) };
    return words[3] ? { view: "segment", ...of, segment: words[3] } : { view: "partition", ...of };
  }
  if (words[0] === "topic" && words[1]) return { view: "topic", topic: words[1] };
  if (words[0] === "kind" && words[1]) return { view: "kind", kind: words[1] };
  if (words[0] === "readers" && words[1]) return { view: "readers", topic: words[1] };
  return { view: ["problems", "activity", "costs", "readers"].includes(words[0]) ? words[0] : "cluster" };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

function newUi() {
  const ui = { search: "", sort: "", start: 0, offset: "", from: "", state: "", explained: null, explanation: null, page: null, changed: "", listedAt: 0, segments: null };
  ui.change = (values, isTyped = false) => {
    Object.assign(ui, values);
    schedule(isTyped ? TYPING_MS : 0);
  };
  return ui;
}

function go() {
  Object.assign(state, { route: routeOf(location.hash), ui: newUi(), data: null, error: "", failures: 0 });
  show();
  const main = document.getElementById("main");
  window.scrollTo(0, 0);
  if (document.activeElement !== document.body) main.focus({ preventScroll: true });
  schedule(0);
}

function schedule(ms) {
  clearTimeout(timer);
  running?.abort();
  running = null;
  if (!document.hidden) timer = setTimeout(poll, ms);
}

async function poll() {
  const abort = new AbortController();
  running = abort;
  const { route } = state;
  const view = VIEWS[route.view];
  try {
    const found = await view.load(route, abort.signal);
    if (running !== abort) return;
    view.seen?.(history, found);
    Object.assign(state, { data: found, error: "", at: performance.now(), failures: 0 });
    if (view.isHead) Object.assign(state, { head: found, headAt: performance.now() });
    else await loadHead(abort.signal);
  } catch (error) {
    if (running !== abort || error.name === "AbortError") return;
    state.failures += 1;
    state.error = error instanceof Refused ? error.message : "the service does not answer";
    if (error instanceof Refused && error.asksToken) {
      running = null;
      show();
      ask(error.message);
      return;
    }
  }
  if (running !== abort) return;
  running = null;
  show();
  if (!document.hidden) timer = setTimeout(poll, Math.min(SLOWEST_MS, POLL_MS * 2 ** Math.min(state.failures, 3)));
}

async function loadHead(signal) {
  if (state.head && performance.now() - state.headAt < HEAD_EVERY_MS) return;
  const found = await get("cluster", { count: 1 }, signal);
  seenCluster(history, found);
  Object.assign(state, { head: found, headAt: performance.now() });
}

function show() {
  const { route, data, error, head } = state;
  const view = VIEWS[route.view];
  const alarms = head?.severities.alarm ?? 0;
  const links = [["cluster", "#/", "Cluster"], ["problems", "#/problems", "Problems"], ["activity", "#/activity", "Activity"], ["readers", "#/readers", "Readers"], ["costs", "#/costs", "Cost"]];
  const current = { topic: "cluster", partition: "cluster", segment: "cluster", kind: "problems" }[route.view] ?? route.view;
  render(document.getElementById("nav"), links.map(([name, href, title]) =>
    h("a", { href, "aria-current": name === current ? "page" : null, key: name }, title, name === "problems" && head && head.problem_count > 0 && h("span", { class: alarms ? "count alarm" : "count" }, String(head.problem_count))),
  ));
  showVerdict();
  showAge();
  const name = route.kind ?? (route.partition !== undefined ? `${route.topic}-${route.partition}` : route.topic ?? view.title);
  document.title = `${name} · kafka-rlm`;
  render(document.getElementById("main"), [
    error && h("p", { class: "banner", role: "alert", key: "banner" }, data ? `What is shown is old: ${error}` : error),
    h("div", { key: location.hash, class: "view" }, data ? view.show(data, state.ui, history, route) : error ? null : h("p", { class: "empty" }, "Loading…")),
  ]);
}

function showVerdict() {
  const verdict = document.getElementById("verdict");
  const words = state.head?.verdict.words ?? "…";
  if (verdict.textContent !== words) verdict.textContent = words;
  verdict.className = `verdict ${state.head?.verdict.risk ?? "none-yet"}`;
  verdict.title = state.head ? "What rlm status --health says of the data" : "";
}

function showAge() {
  const age = document.getElementById("age");
  const since = performance.now() - state.at;
  const node = state.data?.node_id ?? state.head?.node_id;
  const of = node === undefined ? "" : `node ${node} · `;
  age.textContent = !state.at ? "" : since < 2 * POLL_MS ? `${of}live` : `${of}${duration(Math.floor(since / 1_000) * 1_000)} old`;
  age.classList.toggle("old", since >= 2 * POLL_MS + 1_000);
}

function ask(why) {
  const dialog = document.getElementById("token");
  document.getElementById("token-why").textContent = why;
  if (!dialog.open) dialog.showModal();
}

document.getElementById("token").addEventListener("close", () => {
  const input = document.getElementById("token-value");
  if (!input.value) return;
  showToken(input.value);
  input.value = "";
  schedule(0);
});

// Only its own submit button ends the dialog so; Escape and Cancel close it without.
document.getElementById("action-form").addEventListener("submit", confirmed);

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog")) return;
  const search = document.getElementById("search");
  if (search) {
    event.preventDefault();
    search.focus();
  }
});

document.addEventListener("visibilitychange", () => schedule(0));
window.addEventListener("hashchange", go);
setInterval(showAge, 1_000);
go();
