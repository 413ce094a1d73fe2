// Values in words for people. Unknown values are null and are shown as "unknown", never as 0.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DURATIONS = [
  [86_400_000, "d", 3_600_000, "h"],
  [3_600_000, "h", 60_000, "min"],
  [60_000, "min", 1_000, "s"],
];

export const UNKNOWN = "unknown";

export function isKnown(value) {
  return value !== null && value !== undefined;
}

export function number(value) {
  return isKnown(value) ? Math.round(value).toLocaleString("en-US") : UNKNOWN;
}

export function bytes(value) {
  if (!isKnown(value)) return UNKNOWN;
  let scaled = value;
  let unit = 0;
  while (Math.abs(scaled) >= 1024 && unit < UNITS.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2;
  return `${scaled.toFixed(digits)} ${UNITS[unit]}`;
}

export function rate(value) {
  return isKnown(value) ? `${bytes(value)}/s` : UNKNOWN;
}

export function perSecond(value) {
  if (!isKnown(value)) return UNKNOWN;
  return `${value >= 10 || value === 0 ? number(value) : value.toFixed(1)}/s`;
}

export function duration(ms) {
  if (!isKnown(ms)) return UNKNOWN;
  for (const [large, largeName, small, smallName] of DURATIONS) {
    if (ms >= large) {
      const whole = Math.floor(ms / large);
      const rest = Math.floor((ms % large) / small);
      return rest ? `${whole} ${largeName} ${rest} ${smallName}` : `${whole} ${largeName}`;
    }
  }
  return ms < 1_000 ? `${Math.max(0, Math.round(ms))} ms` : `${(ms / 1_000).toFixed(1)} s`;
}

// Retention as Kafka has it: -1 is unlimited, -2 as total.
export function limit(value, words) {
  if (!isKnown(value)) return UNKNOWN;
  if (value === -1) return "unlimited";
  return value === -2 ? "as total" : words(value);
}

export function time(ms) {
  if (!isKnown(ms)) return UNKNOWN;
  return `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

// A sum that leaves some of its parts out.
export function sum(text, unknown) {
  return unknown ? `${text} + ${number(unknown)} unknown` : text;
}

export function plural(count, one, many) {
  return `${number(count)} ${count === 1 ? one : many ?? `${one}s`}`;
}
