// What the page has seen: a bounded series of samples for each chart. Nothing is kept anywhere else.

import { isKnown } from "./format.js";

export const SAMPLES_MAX = 120;
const SERIES_MAX = 200;
const GAP_MS = 20_000;

export class History {
  #series = new Map();
  #counters = new Map();

  // A value as it is; null = not known then.
  add(name, atMs, value) {
    let samples = this.#series.get(name);
    if (!samples) {
      samples = [];
      this.#series.set(name, samples);
      if (this.#series.size > SERIES_MAX) {
        const oldest = this.#series.keys().next().value;
        this.#series.delete(oldest);
        this.#counters.delete(oldest);
      }
    }
    const last = samples[samples.length - 1];
    if (last && atMs <= last.atMs) return;
    samples.push({ atMs, value: isKnown(value) ? value : null });
    if (samples.length > SAMPLES_MAX) samples.shift();
  }

  // A count that only grows, as its rate per second. One that falls, or a long gap, begins again, and
  // so does a sum of `of` others once it is one of more or fewer.
  count(name, atMs, value, of = 1) {
    const before = this.#counters.get(name);
    if (before && atMs <= before.atMs) return;
    this.#counters.set(name, { atMs, value, of });
    const isUsable =
      before && isKnown(value) && isKnown(before.value) && value >= before.value &&
      before.of === of && atMs - before.atMs <= GAP_MS;
    if (!before) return;
    this.add(name, atMs, isUsable ? ((value - before.value) * 1_000) / (atMs - before.atMs) : null);
  }

  samples(name) {
    return this.#series.get(name) ?? [];
  }

  last(name) {
    const samples = this.samples(name);
    return samples.length ? samples[samples.length - 1].value : null;
  }
}

// The lines of a chart within width and height: one for each run of known values.
export function lines(samples, width, height) {
  const known = samples.filter((one) => one.value !== null);
  if (known.length < 2) return [];
  const [from, to] = [samples[0].atMs, samples[samples.length - 1].atMs];
  const most = Math.max(...known.map((one) => one.value));
  const x = (one) => ((one.atMs - from) / (to - from)) * width;
  const y = (one) => (most > 0 ? height - (one.value / most) * height : height);
  const found = [];
  let run = [];
  let before = null;
  for (const one of samples) {
    const breaks = one.value === null || (before !== null && one.atMs - before > GAP_MS);
    if (breaks && run.length) {
      found.push(run);
      run = [];
    }
    if (one.value !== null) run.push([x(one), y(one)]);
    before = one.atMs;
  }
  if (run.length) found.push(run);
  return found.filter((one) => one.length > 1);
}
