// Numbers for people: three digits, a unit, and a dash for nothing.
const NONE = "–";

function digits(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** 1234567 as 1,234,567. */
export function count(value) {
  return value === null || value === undefined ? NONE : Math.round(value).toLocaleString("en");
}

/** 1234567 as 1.23 M. */
export function short(value) {
  if (value === null || value === undefined) return NONE;
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e4]]) {
    if (value >= size) return `${digits(value / (size === 1e4 ? 1e3 : size))} ${unit}`;
  }
  return Math.round(value).toLocaleString("en");
}

/** A rate per second; a dash for none. */
export function rate(value) {
  if (!value) return NONE;
  return value >= 1e4 ? short(value) : value < 0.01 ? "<0.01" : value >= 100 ? Math.round(value).toLocaleString("en") : digits(value);
}

/** Seconds as 1.23 ms, 45 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds <= 0) return "0";
  if (seconds < 1e-3) return `${digits(seconds * 1e6)} µs`;
  if (seconds < 1) return `${digits(seconds * 1e3)} ms`;
  if (seconds < 60) return `${digits(seconds)} s`;
  const whole = Math.floor(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** A latency: a dash for none. */
export function latency(seconds) {
  return seconds ? duration(seconds) : NONE;
}

/** Seconds since 1970 as the time of the day here. */
export function clock(seconds) {
  return seconds ? new Date(seconds * 1000).toLocaleTimeString("en-GB") : NONE;
}

/** "1 actor", "2 actors". */
export function plural(value, word) {
  return `${count(value)} ${word}${value === 1 ? "" : "s"}`;
}
