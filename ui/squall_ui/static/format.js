// Numbers and times for people.

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (value < 10) return value.toFixed(1);
  return short(value);
}

export function short(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (value >= size) {
      const scale = unit === "k" ? 1e3 : size;
      const scaled = value / scale;
      return `${scaled >= 100 ? scaled.toFixed(0) : scaled.toFixed(1)} ${unit}`;
    }
  }
  return Math.round(value).toLocaleString("en");
}

export function ms(value) {
  if (value === null || value === undefined || value === 0) return "–";
  if (value >= 60000) return `${(value / 60000).toFixed(1)} min`;
  if (value >= 1000) return `${(value / 1000).toFixed(value < 10000 ? 2 : 1)} s`;
  if (value >= 100) return `${value.toFixed(0)} ms`;
  if (value >= 1) return `${value.toFixed(1)} ms`;
  return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} µs`;
}

export function percent(value) {
  if (value === null || value === undefined) return "–";
  return `${Math.round(value * 100)} %`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
  }
  return `${value} B`;
}

// Of a bolt that waits in its calls, how many are under way, and their limit: "12 of 100"; empty for
// others.
export function callsShare(one) {
  if ((one.callsMax ?? null) === null) return "";
  const calls = one.calls ?? 0;
  return `${calls >= 9.95 ? Math.round(calls).toLocaleString("en") : calls.toFixed(1)} of ${one.callsMax.toLocaleString("en")}`;
}

// The same with what is counted: "12 of 100 calls".
export function callsWords(one) {
  const share = callsShare(one);
  return share && `${share} ${one.onThreads ? "thread" : "call"}${one.callsMax === 1 ? "" : "s"}`;
}

export const CAPACITY = "Share of the last ten minutes in execute; of an async bolt, and of one on threads, its calls under way and their limit";

// How large the state of a component or an executor is; "" where there is none.
export function stateSize(one) {
  if ((one.stateKeys ?? null) === null) return "";
  const keys = `${short(one.stateKeys)} ${one.stateKeys === 1 ? "key" : "keys"}`;
  return (one.stateBytes ?? null) === null ? keys : `${keys}, ${bytes(one.stateBytes)}`;
}

export const STATE_SIZE = "Its keys (of windows, those with an open one), and what is stored of it, packed";

export function duration(secs) {
  if (!secs || secs < 0) return "0 s";
  const parts = [
    [86400, "d"],
    [3600, "h"],
    [60, "m"],
    [1, "s"],
  ];
  const first = parts.findIndex(([size]) => secs >= size);
  return parts
    .slice(first, first + 2)
    .map(([size, unit], index) => {
      const count = Math.floor(index ? (secs % parts[first][0]) / size : secs / size);
      return `${count} ${unit}`;
    })
    .join(" ");
}

export function ago(epochSecs) {
  if (!epochSecs) return "–";
  return `${duration(Math.max(0, Math.floor(Date.now() / 1000 - epochSecs)))} ago`;
}

export function clock(epochSecs) {
  return new Date(epochSecs * 1000).toLocaleTimeString("en-GB");
}
