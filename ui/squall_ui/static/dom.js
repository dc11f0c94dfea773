// Elements from descriptions, and a page that is changed in place.
//
//   h("td.num", { title: "a second" }, "12.3")
//   morph(main, [h("h1", {}, name)])        // keeps focus, scroll positions and open details
//
// Text is always set as text. There is no way here to set markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set([
  "svg", "g", "path", "rect", "circle", "line", "polyline", "text", "title", "marker", "defs", "tspan",
]);
// Properties that the user changes, too.
const LIVE = new Set(["value", "checked", "open"]);

export function h(spec, attributes = {}, ...children) {
  const [tag, ...classes] = spec.split(".");
  const isSvg = SVG_TAGS.has(tag) || attributes.svg === true;
  const node = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false || name === "svg") continue;
    if (name.startsWith("on")) (node.on ??= {})[name.slice(2)] = value;
    else if (name === "class") node.setAttribute("class", [...classes, value].filter(Boolean).join(" "));
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

// Make the children of an element like these.
export function morph(parent, children) {
  const wanted = [];
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    wanted.push(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  patchChildren(parent, wanted);
}

function keyOf(node) {
  return node.nodeType === 1 ? node.getAttribute("data-key") : null;
}

function patchChildren(parent, wanted) {
  const keyed = new Map();
  for (const node of parent.childNodes) {
    const key = keyOf(node);
    if (key !== null) keyed.set(key, node);
  }
  let at = parent.firstChild;
  for (const next of wanted) {
    const key = keyOf(next);
    let old = key !== null ? keyed.get(key) : at;
    if (key === null && old && keyOf(old) !== null) old = null;
    if (old && old.nodeName === next.nodeName && old.nodeType === next.nodeType) {
      if (old !== at) parent.insertBefore(old, at);
      patch(old, next);
      at = old.nextSibling;
    } else {
      parent.insertBefore(next, at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function patch(old, next) {
  if (old.nodeType !== 1) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !LIVE.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value && !(name === "value" && old === document.activeElement)) {
      old.setAttribute(name, value);
    }
  }
  old.on = next.on;
  // What a user types, or what fills itself, is left alone.
  if (old.hasAttribute("data-keep")) return;
  patchChildren(old, [...next.childNodes]);
}

// One listener for all: handlers are properties of elements, which `morph` brings up to date.
export function listen(root) {
  for (const type of ["click", "submit", "change", "input", "keydown"]) {
    root.addEventListener(type, (event) => {
      for (let node = event.target; node && node !== document; node = node.parentNode) {
        const handler = node.on?.[type];
        if (handler) {
          handler(event, node);
          return;
        }
      }
    });
  }
}
