// The parts of a partition's offsets, in order: which tiers have them, as its leader reports it.

import { isKnown, number } from "./format.js";

export const KINDS = {
  remote: "remote only",
  both: "remote and local",
  local: "local only",
  copying: "being copied",
  hole: "lost, on record",
  broken: "in neither tier",
};

const PARTS_MAX = 400;

function within(ranges, start, end) {
  return ranges.some(([from, to]) => from <= start && end <= to);
}

function overlap(from, to) {
  return isKnown(from) && isKnown(to) && to > from ? [[from, to]] : [];
}

// Null where the partition has not been examined, and for an empty one. What is missing between the
// start of the remote tier and that of the local log belongs to it, and holes do.
export function extent(row) {
  const known = [
    ...overlap(row.remote_start, row.remote_end),
    ...overlap(row.remote_start, row.local_start),
    ...overlap(row.local_start, row.log_end),
    ...(isKnown(row.local_start) ? row.holes : []),
  ].flat();
  return known.length ? [Math.min(...known), Math.max(...known)] : null;
}

export function parts(row) {
  const whole = extent(row);
  if (whole === null) return [];
  const [start, end] = whole;
  const remote = overlap(row.remote_start, row.remote_end);
  const local = overlap(row.local_start, row.log_end);
  const edges = new Set([start, end]);
  for (const range of [...remote, ...local, ...row.holes, ...row.copying]) {
    for (const edge of range) if (edge > start && edge < end) edges.add(edge);
  }
  const sorted = [...edges].sort((a, b) => a - b).slice(0, PARTS_MAX);
  if (sorted[sorted.length - 1] !== end) sorted.push(end);
  const found = [];
  for (let at = 0; at + 1 < sorted.length; at += 1) {
    const [from, to] = [sorted[at], sorted[at + 1]];
    const kind = kindOf(row, remote, local, from, to);
    const last = found[found.length - 1];
    if (last && last.kind === kind) last.end = to;
    else found.push({ kind, start: from, end: to });
  }
  return found;
}

function kindOf(row, remote, local, from, to) {
  const isLocal = within(local, from, to);
  if (!isLocal && within(row.holes, from, to)) return "hole";
  const isRemote = within(remote, from, to);
  if (isRemote) return isLocal ? "both" : "remote";
  if (isLocal) return within(row.copying, from, to) ? "copying" : "local";
  return "broken";
}

// Where an offset is: a kind of part, "end" from the end of the log on, "below" before all parts; null = not known.
export function placeOf(row, offset) {
  if (!row || !isKnown(row.log_end)) return null;
  if (offset >= row.log_end) return "end";
  const found = parts(row);
  if (found.length && offset < found[0].start) return "below";
  return found.find((part) => part.start <= offset && offset < part.end)?.kind ?? null;
}

// How many offsets from `offset` on are to be read, and how many of these are remote only; null = not known.
export function leftToRead(row, offset) {
  if (!row || !isKnown(row.log_end)) return null;
  const remote = parts(row).filter((part) => part.kind === "remote" && part.end > offset);
  return {
    all: Math.max(0, row.log_end - offset),
    remote: remote.reduce((sum, part) => sum + part.end - Math.max(part.start, offset), 0),
  };
}

// Empty where all holes are in the bar: a service gives the lowest ones only.
export function holesLeftOut(row) {
  return isKnown(row.hole_count) && row.hole_count > row.holes.length
    ? `Only the lowest ${number(row.holes.length)} of ${number(row.hole_count)} holes are shown as such.`
    : "";
}

// The same for those who do not see the bar.
export function described(row) {
  const found = parts(row);
  if (!found.length) {
    return isKnown(row.log_end) ? "No records." : "Its offsets are not known.";
  }
  const [start, end] = [found[0].start, found[found.length - 1].end];
  const shown = found.slice(0, 12).map(
    (part) => `${KINDS[part.kind]} ${number(part.start)} to ${number(part.end)}`,
  );
  const more = found.length > shown.length ? `, and ${found.length - shown.length} more parts` : "";
  const said = `Offsets ${number(start)} to ${number(end)}: ${shown.join(", ")}${more}.`;
  return [said, holesLeftOut(row), row.frozen && "Frozen."].filter(Boolean).join(" ");
}

// How many offsets each kind has, for the legend.
export function counts(row) {
  const found = {};
  for (const part of parts(row)) found[part.kind] = (found[part.kind] ?? 0) + part.end - part.start;
  return found;
}
