// The graph of a topology, drawn in layers from its sources to its sinks.
//
// The layers come from the server. Here each layer is ordered so that edges cross little (each
// component goes to the mean place of its neighbours, some times to and fro), and drawn as SVG.
// Positions are kept as long as components and edges stay the same.

import { toneOf } from "./chart.js";
import { h } from "./dom.js";
import { bytes, callsWords, ms, percent, rate } from "./format.js";

const BOX = { width: 160, height: 66, pad: 10 };
const NAME = { font: "600 13px" };
const DOES = { font: "11px", most: 2 }; // lines of a box that say what its component does
const LINE = 14;
const GAP = { x: 76, y: 22 }; // wide enough for bytes a second
const SWEEPS = 6;

let lastShape = null;
let lastPlaces = null;

export function place(names, layers, edges, boxHeight = BOX.height) {
  const shape = JSON.stringify([names, layers, edges.map((one) => [one.source, one.target]), boxHeight]);
  if (shape === lastShape) return lastPlaces;
  const rows = [];
  for (const name of names) (rows[layers[name] ?? 0] ??= []).push(name);
  const above = new Map(names.map((name) => [name, []]));
  const below = new Map(names.map((name) => [name, []]));
  for (const { source, target } of edges) {
    if (!above.has(source) || !above.has(target) || source === target) continue;
    below.get(source).push(target);
    above.get(target).push(source);
  }
  const at = new Map();
  const number = (row) => row.forEach((name, index) => at.set(name, index - (row.length - 1) / 2));
  rows.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    const near = down ? above : below;
    for (const row of down ? rows : [...rows].reverse()) {
      if (!row) continue;
      const wish = new Map(
        row.map((name) => {
          const others = near.get(name);
          return [name, others.length ? others.reduce((sum, one) => sum + at.get(one), 0) / others.length : at.get(name)];
        }),
      );
      row.sort((a, b) => wish.get(a) - wish.get(b));
      number(row);
    }
  }
  const height = Math.max(...rows.map((row) => row?.length ?? 0));
  const places = new Map();
  rows.forEach((row, layer) => {
    row?.forEach((name) => {
      places.set(name, {
        x: 8 + layer * (BOX.width + GAP.x),
        y: 8 + (at.get(name) + (height - 1) / 2) * (boxHeight + GAP.y),
      });
    });
  });
  lastShape = shape;
  lastPlaces = {
    places,
    width: rows.length * (BOX.width + GAP.x) - GAP.x + 16,
    height: height * (boxHeight + GAP.y) - GAP.y + 16,
  };
  return lastPlaces;
}

let pen = null;
const fitted = new Map(); // lines by font, room and text: they are drawn four times a second

// A name in one line. Names of one topology often begin alike, so its middle is left out.
function nameOf(text, room) {
  const key = `name ${room} ${text}`;
  if (!fitted.has(key)) {
    const fits = penOf(NAME.font);
    const letters = [...text]; // (no half of a pair is left)
    let [begin, end] = [Math.ceil(letters.length / 2), Math.floor(letters.length / 2)];
    const shown = () => (begin + end >= letters.length ? text : `${letters.slice(0, begin).join("")}…${letters.slice(letters.length - end).join("")}`);
    while (begin + end > 0 && !fits(shown(), room)) begin > end ? (begin -= 1) : (end -= 1);
    fitted.set(key, shown());
  }
  return fitted.get(key);
}

// A text in lines that a box has room for; what is left out is shown as "…".
export function linesOf(text, { font, room = BOX.width - 2 * BOX.pad, most = 1 }) {
  const key = `${font} ${room} ${text}`;
  if (!fitted.has(key)) fitted.set(key, wrap(text, font, room, most));
  return fitted.get(key);
}

function penOf(font) {
  pen ??= document.createElement("canvas").getContext("2d");
  pen.font = `${font} ${getComputedStyle(document.documentElement).fontFamily}`;
  return (line, room) => pen.measureText(line).width <= room;
}

function wrap(text, font, room, most) {
  const within = penOf(font);
  const fits = (line) => within(line, room);
  const lines = [];
  for (const word of text.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && (fits(longer) || lines.length === most)) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.map((line) => {
    if (fits(line)) return line;
    let left = line.split(" ");
    while (left.length > 1 && !fits(`${left.join(" ")} …`)) left = left.slice(0, -1);
    if (left.length > 1) return `${left.join(" ")} …`;
    let [word] = left;
    while (word && !fits(`${word}…`)) word = word.slice(0, -1);
    return `${word}…`;
  });
}

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

export function graph(state, hrefOf) {
  const names = Object.keys(state.components);
  if (!names.length) return h("p.quiet", {}, "This topology has no components.");
  const does = new Map(names.map((name) => [name, state.components[name].does ? linesOf(state.components[name].does, DOES) : []]));
  const boxHeight = BOX.height + LINE * Math.max(...[...does.values()].map((lines) => lines.length));
  const { places, width, height } = place(names, state.layers, state.edges, boxHeight);
  const onPath = new Set(state.path.slice(1).map((name, index) => `${state.path[index]}\n${name}`));
  const most = Math.max(1, ...state.edges.map((one) => one.rate));
  return h(
    "div.graph",
    { tabindex: 0, role: "group", "aria-label": "Graph of the topology" },
    h(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}` },
      h(
        "defs",
        {},
        h("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto", markerUnits: "userSpaceOnUse" }, h("path.head", { d: "M0 0L8 4L0 8z" })),
      ),
      state.edges.map((edge) => drawEdge(edge, places, boxHeight, onPath.has(`${edge.source}\n${edge.target}`), most)),
      names.map((name) => drawBox(name, state.components[name], does.get(name), places.get(name), boxHeight, state.path.includes(name), hrefOf(name))),
    ),
  );
}

function drawEdge(edge, places, boxHeight, slow, most) {
  const from = places.get(edge.source);
  const to = places.get(edge.target);
  if (!from || !to) return null;
  const x1 = from.x + BOX.width;
  const y1 = from.y + boxHeight / 2;
  const x2 = to.x - 2;
  const y2 = to.y + boxHeight / 2;
  const back = x2 <= x1;
  const bend = back ? 60 : Math.max(28, (x2 - x1) / 2);
  const line = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  const width = edge.rate > 0 ? 1 + 2.5 * (Math.log1p(edge.rate) / Math.log1p(most)) : 1;
  const streams = edge.streams.map((one) => `${one.stream}: ${one.grouping}`).join("\n");
  return h(
    "g.edge",
    { class: `${slow ? "slow" : ""} ${edge.rate > 0 ? "" : "idle"}`, "data-key": `edge ${edge.source}\n${edge.target}` },
    h("title", {}, `${edge.source} → ${edge.target}\n${streams}\n${rate(edge.rate)} a second${edge.bytes > 0 ? `\n${byteRate(edge.bytes)} between workers` : ""}${slow ? "\non the slowest path" : ""}`),
    h("path", { d: line, "stroke-width": width.toFixed(1), "marker-end": "url(#arrow)" }),
    h("text.edge-label", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 5, "text-anchor": "middle" }, `${rate(edge.rate)}/s`),
    edge.bytes > 0 ? h("text.edge-label", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 + 12, "text-anchor": "middle" }, byteRate(edge.bytes)) : null,
  );
}

const byteRate = (value) => `${bytes(value < 1024 ? Math.round(value) : value)}/s`;

function drawBox(name, one, does, at, height, slow, href) {
  const spout = one.type === "spout";
  const waits = Object.entries(one.blocked).sort((a, b) => b[1] - a[1])[0];
  const blocked = waits && waits[1] >= 0.2;
  const tone = spout ? "spout" : toneOf(one.busy);
  const numbers = spout
    ? `${rate(one.emitRate)}/s   ${ms(one.completeMs)}`
    : `${rate(one.executeRate)}/s   ${ms(one.executeMs)}`;
  const third = blocked
    ? `waits for ${cut(waits[0], 12)} ${percent(waits[1])}`
    : spout
      ? `${one.failRate > 0 ? `${rate(one.failRate)}/s fail` : `${one.tasks} ${one.tasks === 1 ? "task" : "tasks"}`}`
      : callsWords(one) || `${percent(one.busy)} busy, ${one.tasks} ${one.tasks === 1 ? "task" : "tasks"}`;
  const said = `${one.type} ${name}: ${spout ? rate(one.emitRate) : rate(one.executeRate)} a second, ${third}${one.error ? ", has errors" : ""}`;
  return h(
    "a.box",
    { href, "data-key": `box ${name}`, "aria-label": said, class: `tone-${tone} ${blocked ? "blocked" : ""} ${slow ? "slow" : ""}`, svg: true },
    h("title", {}, `${said}${one.does ? `\n${one.does}` : ""}${one.skew > 1.5 ? `\nskew ${one.skew}` : ""}${one.error ? `\n${one.error}` : ""}`),
    h("rect.card", { x: at.x, y: at.y, width: BOX.width, height, rx: spout ? 14 : 5 }),
    spout ? null : h("rect.fill", { x: at.x + 1, y: at.y + height - 5, width: Math.max(0, Math.min(1, one.busy)) * (BOX.width - 2), height: 4 }),
    h("text.name", { x: at.x + 10, y: at.y + 20 }, nameOf(name, BOX.width - 2 * BOX.pad - (one.error ? 16 : 0))),
    h("text.numbers", { x: at.x + 10, y: at.y + 38 }, numbers),
    h("text.more", { x: at.x + 10, y: at.y + 54 }, third),
    does.map((line, index) => h("text.more", { x: at.x + BOX.pad, y: at.y + 54 + LINE * (index + 1) }, line)),
    one.error ? h("circle.flag", { cx: at.x + BOX.width - 12, cy: at.y + 15, r: 4 }) : null,
  );
}
