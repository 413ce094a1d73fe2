// Checks of the console's scripts that need no page; run by test_console_scripts.py.

import assert from "node:assert/strict";
import { test } from "node:test";

const from = (name) => import(new URL(name, `file://${process.env.CONSOLE_ASSETS}/`));
const { counts, described, extent, holesLeftOut, leftToRead, parts, placeOf } = await from("bar.js");
const { bytes, duration, limit, number, perSecond, plural, rate, sum, time } = await from("format.js");
const { History, SAMPLES_MAX, lines } = await from("history.js");
const { seen: seenTopic } = await from("topic.js");
const { seen: seenCluster } = await from("overview.js");
const { lossDue } = await from("partition.js");
const { steps } = await from("segment.js");
const { placed, remoteShare } = await from("readers.js");

const ROW = {
  remote_start: 0, remote_end: 900, local_start: 700, log_end: 1_000,
  holes: [], copying: [], frozen: "",
};
const kinds = (row) => parts(row).map((part) => [part.kind, part.start, part.end]);

test("a partition in both tiers", () => {
  assert.deepEqual(kinds(ROW), [["remote", 0, 700], ["both", 700, 900], ["local", 900, 1_000]]);
  assert.deepEqual(counts(ROW), { remote: 700, both: 200, local: 100 });
  assert.match(described(ROW), /^Offsets 0 to 1,000: remote only 0 to 700, remote and local 700 to 900/);
});

test("parts cover the offsets once, whatever a row says", () => {
  const values = [null, 0, 10, 40, 90];
  for (const remote_start of values) for (const remote_end of values)
    for (const local_start of values) for (const log_end of values) {
      const row = { ...ROW, remote_start, remote_end, local_start, log_end, holes: [[5, 15], [80, 200]], copying: [[40, 60]] };
      const found = parts(row);
      const whole = extent(row);
      if (whole === null) { assert.deepEqual(found, []); continue; }
      assert.deepEqual([found[0].start, found[found.length - 1].end], whole);
      found.forEach((part, at) => {
        assert.ok(part.start < part.end);
        if (at) assert.equal(part.start, found[at - 1].end);
      });
    }
});

test("a hole, a copy that runs, and what neither tier has", () => {
  assert.deepEqual(kinds({ ...ROW, holes: [[100, 200]] }).slice(0, 3), [["remote", 0, 100], ["hole", 100, 200], ["remote", 200, 700]]);
  assert.deepEqual(kinds({ ...ROW, copying: [[900, 950]] }).slice(2), [["copying", 900, 950], ["local", 950, 1_000]]);
  assert.deepEqual(kinds({ ...ROW, local_start: 950 }), [["remote", 0, 900], ["broken", 900, 950], ["local", 950, 1_000]]);
  assert.deepEqual(kinds({ ...ROW, local_start: 950, holes: [[900, 950]] })[1], ["hole", 900, 950]);
  assert.match(described({ ...ROW, frozen: "orphans" }), /Frozen\.$/);
});

test("what no tier has is seen also where nothing is remote", () => {
  const lost = { ...ROW, remote_end: null };
  assert.deepEqual(kinds(lost), [["broken", 0, 700], ["local", 700, 1_000]]);
  assert.deepEqual(kinds({ ...lost, holes: [[0, 700]] }), [["hole", 0, 700], ["local", 700, 1_000]]);
  assert.deepEqual(kinds({ ...lost, local_start: 700, log_end: 700 }), [["broken", 0, 700]]);
  assert.deepEqual(kinds({ ...lost, remote_start: 900 }), [["local", 700, 1_000]]);
  assert.deepEqual(kinds({ ...ROW, holes: [[1_000, 1_200]] }).at(-1), ["hole", 1_000, 1_200]);
  assert.deepEqual(parts({ ...lost, local_start: null, log_end: null, holes: [[0, 700]] }), []);
});

test("holes that a service does not list are named", () => {
  const row = { ...ROW, holes: [[100, 200]], hole_count: 240 };
  assert.equal(holesLeftOut(row), "Only the lowest 1 of 240 holes are shown as such.");
  assert.match(described({ ...row, frozen: "orphans" }), /shown as such\. Frozen\.$/);
  assert.equal(holesLeftOut({ ...row, hole_count: 1 }), "");
  assert.equal(holesLeftOut({ ...ROW, hole_count: null }), "");
});

test("what is not known is no part and no number", () => {
  const nothing = { remote_start: null, remote_end: null, local_start: null, log_end: null, holes: [], copying: [], frozen: "" };
  assert.deepEqual(parts(nothing), []);
  assert.equal(described(nothing), "Its offsets are not known.");
  assert.equal(described({ ...nothing, local_start: 0, log_end: 0 }), "No records.");
  for (const words of [number, bytes, rate, perSecond, duration, time]) assert.equal(words(null), "unknown");
  assert.equal(sum("5 B", 2), "5 B + 2 unknown");
});

test("many parts are bounded", () => {
  const holes = Array.from({ length: 1_000 }, (_, at) => [at * 2, at * 2 + 1]);
  const found = parts({ ...ROW, remote_end: 5_000, local_start: 4_000, log_end: 6_000, holes });
  assert.ok(found.length <= 500 && found[found.length - 1].end === 6_000);
});

test("values in words", () => {
  assert.deepEqual([0, 1_023, 1_536, 12 * 1024 ** 2, 2 ** 60].map(bytes), ["0 B", "1023 B", "1.50 KiB", "12.0 MiB", "1.00 EiB"]);
  assert.deepEqual([5, 1_500, 90_000, 3_600_000, 90_000_000].map(duration), ["5 ms", "1.5 s", "1 min 30 s", "1 h", "1 d 1 h"]);
  assert.deepEqual([-1, -2, 5].map((value) => limit(value, number)), ["unlimited", "as total", "5"]);
  assert.deepEqual([plural(1, "hole"), plural(2, "hole")], ["1 hole", "2 holes"]);
});

test("rates come of counts; a restart and a gap are no rate", () => {
  const history = new History();
  history.count("n", 0, 100);
  assert.equal(history.samples("n").length, 0);
  history.count("n", 2_000, 300);
  assert.equal(history.last("n"), 100);
  history.count("n", 2_000, 900);
  assert.equal(history.samples("n").length, 1);
  history.count("n", 4_000, 50);
  assert.equal(history.last("n"), null);
  history.count("n", 90_000, 60);
  assert.equal(history.last("n"), null);
});

test("what a sum did not have before is no rate", () => {
  const history = new History();
  const totals = { partitions: 3, lag_bytes: 0, remote_bytes: 900, remote_unknown: 0, offsets: 900, unexamined: 0 };
  const polled = (atMs, given) => {
    const data = { topic: "t", now_ms: atMs, services: [], totals: { ...totals, ...given } };
    seenTopic(history, data);
    seenCluster(history, data);
    return ["t copied", "t appends", "t remote", "appends"].map((name) => history.last(name));
  };
  polled(0, {});
  assert.deepEqual(polled(1_000, { remote_bytes: 905, offsets: 910 }), [5, 10, 905, 10]);
  assert.deepEqual(polled(2_000, { remote_bytes: 300, remote_unknown: 2, offsets: 300, unexamined: 2 }), [null, null, null, null]);
  assert.deepEqual(polled(3_000, { remote_bytes: 600, remote_unknown: 1, offsets: 600, unexamined: 1 }), [null, null, null, null]);
  assert.deepEqual(polled(4_000, { remote_bytes: 905 }), [null, null, 905, null]);
  assert.deepEqual(polled(5_000, { remote_bytes: 5_000, offsets: 5_000, partitions: 4 }), [null, null, 5_000, null]);
  assert.deepEqual(polled(6_000, { remote_bytes: 5_001, offsets: 5_002, partitions: 4 }), [1, 2, 5_001, 2]);
});

test("nothing is due only where it is known what is left to copy", () => {
  const row = { loss_in_ms: null, log_end: 5, lag_bytes: 0 };
  assert.equal(lossDue(row), "nothing due");
  assert.equal(lossDue({ ...row, lag_bytes: null }), "unknown");
  assert.equal(lossDue({ ...row, log_end: null }), "unknown");
  assert.equal(lossDue({ ...row, loss_in_ms: 5_000, lag_bytes: null }), "5.0 s");
});

test("charts are bounded, and break where nothing was known", () => {
  const history = new History();
  for (let at = 0; at < 2 * SAMPLES_MAX; at += 1) history.add("v", at * 3_000, at % 10 === 5 ? null : at);
  const samples = history.samples("v");
  assert.equal(samples.length, SAMPLES_MAX);
  const runs = lines(samples, 120, 28);
  assert.ok(runs.length > 5);
  for (const run of runs) for (const [x, y] of run) assert.ok(x >= 0 && x <= 120 && y >= 0 && y <= 28);
  assert.deepEqual(lines([], 120, 28), []);
  assert.deepEqual(lines([{ atMs: 1, value: 0 }, { atMs: 2, value: 0 }], 10, 5), [[[0, 5], [10, 5]]]);
});

test("the history of a segment is in the order of time, and what has no time is first", () => {
  const row = { newest_ms: 50, recorded_ms: 90, state: "COPY_SEGMENT_FINISHED", broker: 2 };
  const event = (number, at_ms, task) => ({ node_id: 1, number, at_ms, task, failed: false, names_it: false, text: "t" });
  const events = [event(1, 10, "copy"), event(2, 90, "trim"), event(3, 99, "expiry")];
  const shown = (given) => steps({ row: { ...row, ...given }, events }).map((one) => one.what);
  assert.deepEqual(shown({}), ["copy", "newest record", "ledger", "trim", "expiry"]);
  assert.deepEqual(shown({ recorded_ms: null, newest_ms: null }), ["ledger", "copy", "trim", "expiry"]);
  const said = (given) => steps({ row: { ...row, ...given }, events: [] }).at(-1).text;
  assert.equal(said({}), "Broker 2 finished the copy.");
  assert.match(said({ broker: null }), /imported/);
  assert.match(said({ broker: null, state: "COPY_SEGMENT_STARTED" }), /found in the store/);
  assert.equal(said({ state: "NEW" }), "State NEW.");
});

test("where a position is, and how much is left to read from there", () => {
  const row = { ...ROW, remote_start: 10, holes: [[100, 200]] };
  const at = (offset) => placeOf(row, offset);
  assert.deepEqual([5, 10, 99, 100, 200, 699, 700, 900, 999, 1_000, 5_000].map(at), ["below", "remote", "remote", "hole", "remote", "remote", "both", "local", "local", "end", "end"]);
  assert.deepEqual(leftToRead(row, 650), { all: 350, remote: 50 });
  assert.deepEqual(leftToRead(row, 50), { all: 950, remote: 550 });
  assert.deepEqual(leftToRead(row, 2_000), { all: 0, remote: 0 });
  for (const unknown of [undefined, { ...ROW, log_end: null }]) {
    assert.equal(placeOf(unknown, 5), null);
    assert.equal(leftToRead(unknown, 5), null);
  }
});

test("what is remote only is an alarm for those who read past the proxies", () => {
  const kindOf = (through, offset) => placed(ROW, { through, offset })[0];
  assert.deepEqual([kindOf("broker", 5), kindOf("proxy", 5), kindOf(null, 5)], ["alarm", "note", "note"]);
  assert.deepEqual([kindOf("broker", 700), kindOf("broker", 1_000)], ["note", "well"]);
  assert.deepEqual(placed(undefined, { through: "broker", offset: 5 }), ["unknown", "unknown"]);
  assert.equal(placed({ ...ROW, holes: [[0, 9]] }, { through: "proxy", offset: 5 })[0], "alarm");
  assert.equal(remoteShare({ remote_bytes: 3, local_bytes: 1 }), 0.75);
  assert.equal(remoteShare({ remote_bytes: 0, local_bytes: 0 }), null);
});
