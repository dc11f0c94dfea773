// The pages: which one an address means, the bar above them, and what they share.

import { h, listen, morph } from "./dom.js";
import { cluster } from "./pages/cluster.js";
import { component } from "./pages/component.js";
import { configuration } from "./pages/configuration.js";
import { executor } from "./pages/executor.js";
import { flamePage } from "./pages/flame.js";
import { deadLetters, logs, search, viewLog } from "./pages/logs.js";
import { owner } from "./pages/owner.js";
import { supervisor } from "./pages/supervisor.js";
import { errors, topology, topologyConfiguration } from "./pages/topology.js";

const ROUTES = [
  [/^\/$/, cluster],
  [/^\/topology\/([^/]+)$/, topology],
  [/^\/topology\/([^/]+)\/errors$/, errors],
  [/^\/topology\/([^/]+)\/configuration$/, topologyConfiguration],
  [/^\/topology\/([^/]+)\/dead-letters$/, deadLetters],
  [/^\/topology\/([^/]+)\/logs$/, logs],
  [/^\/topology\/([^/]+)\/flame$/, flamePage],
  [/^\/topology\/([^/]+)\/component\/([^/]+)$/, component],
  [/^\/topology\/([^/]+)\/component\/([^/]+)\/executor\/([^/]+)$/, executor],
  [/^\/supervisor\/([^/]+)$/, supervisor],
  [/^\/owner\/([^/]+)$/, owner],
  [/^\/logs$/, logs],
  [/^\/logs\/view$/, viewLog],
  [/^\/search$/, search],
  [/^\/configuration$/, configuration],
];

const top = document.getElementById("top");
const main = document.getElementById("main");
const status = document.getElementById("status");
const { title, user } = document.documentElement.dataset;
let current = null;
let connection = "waiting";

function theme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function toggleTheme() {
  const next = theme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("theme", next);
  } catch {
    // It lasts until the page is left.
  }
  drawTop();
}

function drawTop() {
  const path = location.pathname;
  const link = (href, text, on) => h("a", { href, "aria-current": on ? "page" : null }, text);
  const texts = { live: "Live", waiting: "Connecting", away: "Not up to date", gone: "Ended", still: "" };
  morph(top, [
    h("a.brand", { href: "/" }, h("img", { src: "/static/icon.svg", alt: "", width: 20, height: 20 }), title),
    h(
      "nav",
      { "aria-label": "Pages" },
      link("/", "Cluster", path === "/" || path.startsWith("/topology") || path.startsWith("/supervisor") || path.startsWith("/owner")),
      link("/logs", "Logs", path.startsWith("/logs")),
      link("/search", "Search", path === "/search"),
      link("/configuration", "Configuration", path === "/configuration"),
    ),
    texts[connection] ? h("span.connection", { class: connection }, h("i", { "aria-hidden": "true" }), texts[connection]) : null,
    user
      ? h(
          "form.user",
          { method: "post", action: "/logout" },
          h("span", { title: "You are logged in" }, user),
          h("button.ghost", { type: "submit" }, "Log out"),
        )
      : null,
    h("button.ghost", { type: "button", onclick: toggleTheme }, theme() === "dark" ? "Light" : "Dark"),
  ]);
}

// What a page gets.
function context(signal) {
  return {
    signal,
    actions: document.documentElement.dataset.actions === "yes",
    draw(...children) {
      if (!signal.aborted) morph(main, children);
    },
    // One part of the page, if it is there.
    redraw(selector, children) {
      const part = signal.aborted ? null : main.querySelector(selector);
      if (part) morph(part, children());
    },
    title(text) {
      document.title = text ? `${text} · ${title}` : title;
    },
    connection(state) {
      if (signal.aborted || state === connection) return;
      connection = state;
      drawTop();
    },
    say(text, tone = "done") {
      morph(status, [h("p", { class: tone }, text)]);
      setTimeout(() => status.firstChild?.textContent === text && morph(status, []), 8000);
    },
    query: new URLSearchParams(location.search),
    go,
  };
}

export function go(href, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", href);
  show();
}

function show() {
  current?.abort();
  current = new AbortController();
  connection = "still";
  const found = ROUTES.map(([pattern, page]) => [pattern.exec(location.pathname), page]).find(([match]) => match);
  const page = context(current.signal);
  page.title("");
  morph(main, [h("p.quiet", {}, "Loading …")]);
  drawTop();
  if (found) found[1](page, ...found[0].slice(1).map(decodeURIComponent));
  else page.draw(h("h1", {}, "There is no such page"), h("p", {}, h("a", { href: "/" }, "To the cluster")));
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const href = link.getAttribute("href");
  if (!href.startsWith("/") || href.startsWith("/api/") || link.hasAttribute("download")) return;
  event.preventDefault();
  go(href);
});
addEventListener("popstate", show);
listen(document.body);
show();
