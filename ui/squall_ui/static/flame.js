// Flame graphs, drawn from raw stacks: each box is a function, as wide as the samples that it was seen
// in, and stands on the function that called it.

import { h } from "./dom.js";
import { percent } from "./format.js";

const ROW = 20;
const LEAST = 0.0008; // of the width; what is narrower is not drawn
const BOXES_MAX = 4000;

// stacks: [{ frames: ["outer", "inner"], count }]
export function tree(stacks) {
  const root = { name: "all", count: 0, self: 0, depth: 0, children: new Map(), parent: null };
  for (const { frames, count } of stacks) {
    let at = root;
    at.count += count;
    for (const name of frames) {
      let child = at.children.get(name);
      if (!child) {
        child = { name, count: 0, self: 0, depth: at.depth + 1, children: new Map(), parent: at };
        at.children.set(name, child);
      }
      child.count += count;
      at = child;
    }
    at.self += count;
  }
  return root;
}

// The functions in which the most samples end, with those that they are part of.
export function hottest(stacks, most) {
  const found = new Map();
  for (const { frames, count } of stacks) {
    for (const name of new Set(frames)) {
      const one = found.get(name) ?? { name, self: 0, total: 0 };
      one.total += count;
      found.set(name, one);
    }
    const last = found.get(frames[frames.length - 1]);
    if (last) last.self += count;
  }
  return [...found.values()].sort((a, b) => b.self - a.self || b.total - a.total).slice(0, most);
}

function hue(name) {
  let number = 0;
  for (const letter of name.slice(0, 60)) number = (number * 31 + letter.codePointAt(0)) % 9973;
  return number % 6;
}

// The boxes that are shown with `focus` over the whole width: those below it, and what called it.
function boxes(focus) {
  const found = [];
  for (let at = focus.parent; at; at = at.parent) found.push({ node: at, x: 0, width: 1 });
  found.reverse();
  const waiting = [{ node: focus, x: 0, width: 1 }];
  while (waiting.length && found.length < BOXES_MAX) {
    const one = waiting.shift();
    found.push(one);
    let x = one.x;
    for (const child of [...one.node.children.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const width = (one.width * child.count) / one.node.count;
      if (width >= LEAST) waiting.push({ node: child, x, width });
      x += width;
    }
  }
  return found;
}

export function flame(root, { focus = root, pick, label }) {
  const shown = boxes(focus);
  const height = (Math.max(...shown.map(({ node }) => node.depth)) + 1) * ROW;
  // As wide as the page, but not so narrow that nothing can be read.
  const width = Math.max(720, document.getElementById("main").clientWidth - 36);
  return h(
    "div.scroll.flame",
    { tabindex: 0, role: "group", "aria-label": label },
    h(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, height },
      shown.map(({ node, x, width: share }) => {
        const wide = share * width;
        const letters = Math.floor((wide - 8) / 6.6);
        const text = `${node.name}: ${node.count} samples, ${percent(node.count / root.count)}`;
        return h(
          "g.box",
          {
            class: node === root ? "all" : `hue-${hue(node.name)}`,
            role: "button",
            tabindex: wide > 12 ? 0 : -1,
            "aria-label": text,
            onclick: () => pick(node),
            onkeydown: (event) => {
              if (event.key !== "Enter" && event.key !== " ") return;
              event.preventDefault();
              pick(node);
            },
          },
          h("title", {}, text),
          h("rect", { x: (x * width).toFixed(2), y: node.depth * ROW, width: Math.max(0.5, wide - 0.5).toFixed(2), height: ROW - 1 }),
          letters > 2 ? h("text", { x: (x * width + 4).toFixed(2), y: node.depth * ROW + 14 }, node.name.length > letters ? `${node.name.slice(0, letters - 1)}…` : node.name) : null,
        );
      }),
    ),
  );
}
