// Lines over time: the series that the server keeps, and what was seen since they were read.

import { request } from "../api.js";
import { h } from "../dom.js";
import { topologyPath } from "../parts.js";

const SPANS = [
  ["10 min", 600],
  ["1 h", 3600],
  ["24 h", 86400],
];

// What a page with lines over time knows: the series as they were read last, and what was seen since.
export const newView = (more) => ({ span: 600, series: {}, state: null, tail: [], clock: null, ...more });

const MOVES_MS = 250;
const TAIL_SECS = 10;

// Take in a state; `values(state)` are the newest values of the series, by name.
export function takeState(view, state, values) {
  view.state = state;
  if (!state.at || state.at === view.tail.at(-1)?.at) return;
  view.clock = { at: state.at, seen: performance.now() };
  view.tail.push({ at: state.at, values: values() });
  while (view.tail[0].at < state.at - TAIL_SECS) view.tail.shift();
}

// The server's time, in seconds.
export const timeOf = (view) => (view.clock ? view.clock.at + (performance.now() - view.clock.seen) / 1000 : null);

// Let the lines move on, four times a second, whether anything has changed or not.
export function moveCharts(page, view) {
  const timer = setInterval(() => {
    if (page.signal.aborted) clearInterval(timer);
    else if (!document.hidden && view.state && view.span === 600) page.redraw("div.charts", () => view.charts(view));
  }, MOVES_MS);
}

// Draw at most for a tenth of the time: large pages less often. What changes meanwhile is drawn later.
export function paced(draw) {
  let free = 0;
  let waits = false;
  const now = () => {
    waits = false;
    const began = performance.now();
    draw();
    const ended = performance.now();
    free = ended + 9 * (ended - began);
  };
  return () => {
    if (waits) return;
    const ms = free - performance.now();
    if (ms <= 0) return now();
    waits = true;
    setTimeout(now, ms);
  };
}

// Keep series of the page up to date.
export async function readSeries(page, id, view, names, draw) {
  while (!page.signal.aborted) {
    const query = new URLSearchParams([["secs", view.span], ...names.map((name) => ["name", name])]);
    try {
      view.series = (await request(`/live${topologyPath(id)}/series?${query}`, { signal: page.signal })).series;
      draw();
    } catch {
      if (page.signal.aborted) return;
    }
    await new Promise((done) => {
      view.again = done;
      setTimeout(done, view.span > 600 ? 10000 : 2000);
    });
  }
}

export function spans(view, draw) {
  return h(
    "div.spans",
    { role: "group", "aria-label": "Time shown" },
    SPANS.map(([text, secs]) =>
      h(
        "button.ghost",
        {
          type: "button",
          "aria-pressed": String(view.span === secs),
          onclick: () => {
            view.span = secs;
            view.again?.();
            draw();
          },
        },
        text,
      ),
    ),
  );
}

// A line: the series, and from its newest value on what was seen since.
export function lineOf(view, key, name, tone) {
  const { times, values } = view.series[key] ?? { times: [], values: [] };
  if (view.span !== 600) return { name, tone, times, values };
  const from = times.at(-1) ?? 0;
  const tail = view.tail.filter((one) => one.at >= from && one.values[key] !== undefined);
  const kept = tail.length ? times.length - 1 : times.length;
  return {
    name,
    tone,
    times: [...times.slice(0, Math.max(0, kept)), ...tail.map((one) => one.at)],
    values: [...values.slice(0, Math.max(0, kept)), ...tail.map((one) => one.values[key])],
  };
}
