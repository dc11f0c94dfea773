// Lines over time, as SVG: values that are missing are gaps.
//
//   chart({ label: "Tuples a second", lines: [{ name, times, values, tone }], secs, format, now })

import { h } from "./dom.js";

const WIDTH = 480;
const HEIGHT = 120;
const LEFT = 54;
const BOTTOM = 18;
const TOP = 8;

function niceMax(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) {
    if (value <= step * power) return step * power;
  }
  return 10 * power;
}

export function chart({ label, lines, secs, format, max, now }) {
  now ??= Math.max(0, ...lines.map((one) => one.times.at(-1) ?? 0)) || Date.now() / 1000;
  const begin = now - secs;
  let top = 0;
  for (const { values } of lines) for (const value of values) if (value > top) top = value;
  top = max ?? niceMax(top);
  const x = (time) => LEFT + ((time - begin) / secs) * (WIDTH - LEFT - 6);
  const y = (value) => TOP + (1 - Math.min(1, value / top)) * (HEIGHT - TOP - BOTTOM);
  const latest = lines
    .map((one) => `${one.name} ${format(one.values.at(-1) ?? null)}`)
    .join(", ");
  return h(
    "figure.chart",
    {},
    h(
      "figcaption",
      {},
      h("span.label", {}, label),
      lines.map((one) => h("span.key", { class: `tone-${one.tone}` }, one.name, " ", h("b", {}, format(one.values.at(-1) ?? null)))),
    ),
    h(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${label}: now ${latest}`, preserveAspectRatio: "none" },
      [0, 0.5, 1].map((part) => [
        h("line.grid", { x1: LEFT, x2: WIDTH - 6, y1: y(part * top), y2: y(part * top) }),
        h("text.tick", { x: LEFT - 6, y: y(part * top) + 4, "text-anchor": "end" }, part === 0 ? "0" : format(part * top)),
      ]),
      [0, 0.5, 1].map((part) =>
        h(
          "text.tick",
          {
            x: x(begin + part * secs),
            y: HEIGHT - 4,
            "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle",
          },
          new Date((begin + part * secs) * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" }),
        ),
      ),
      lines.map((one) => h("path.line", { class: `tone-${one.tone}`, d: pathOf(one, x, y, begin, Math.max(25, secs / 100)) })),
    ),
  );
}

// A gap longer than `most` seconds is left open.
function pathOf({ times, values }, x, y, begin, most) {
  const parts = [];
  let last = -Infinity;
  for (let at = 0; at < times.length; at += 1) {
    if (values[at] === null || times[at] < begin) continue;
    const pen = times[at] - last > most ? "M" : "L";
    parts.push(`${pen}${x(times[at]).toFixed(1)} ${y(values[at]).toFixed(1)}`);
    last = times[at];
  }
  return parts.join("");
}

// A share of 1, as a bar with its number, or other words, beside it.
export function meter(value, label, words = "") {
  const tone = toneOf(value);
  return h(
    "span.meter",
    { class: `tone-${tone}`, title: label },
    h(
      "svg",
      { viewBox: "0 0 60 8", "aria-hidden": "true" },
      h("rect.back", { width: 60, height: 8, rx: 2 }),
      h("rect.front", { width: Math.max(0, Math.min(1, value)) * 60, height: 8, rx: 2 }),
    ),
    h("span.num", {}, words || `${Math.round(value * 100)} %`),
  );
}

export function toneOf(busy) {
  if (busy >= 0.8) return "bad";
  return busy >= 0.6 ? "warn" : "calm";
}
