// Where a component, a task or a worker spends its time: sampled when the page opens, drawn here.

import { request } from "../api.js";
import { h } from "../dom.js";
import { flame, hottest, tree } from "../flame.js";
import { percent } from "../format.js";
import { apiPath, post, section, table, topologyPath } from "../parts.js";
import { crumbs } from "./topology.js";

// py-spy samples for a second at least, and begins a little later.
const SECS = { tasks: 2, native: 1 };
const WRITE_MS = { tasks: 200, native: 300 };
const LENGTH = 2 * 1024 * 1024; // of a part, as large as logviewers give
const PARTS_MAX = 8;
const POLL_MS = 100;
const TRIES_MS = 20_000;
const ROWS = 25;

export function flamePage(page, id) {
  const { query } = page;
  const view = {
    component: query.get("component"),
    task: query.get("task"),
    worker: query.get("worker"),
    cpu: "all",
    busy: false,
    stacks: null,
    focus: null,
    problems: [],
    secs: 0,
  };
  const draw = () => drawPage(page, id, view, draw);
  page.title(`Flame graph of ${what(view)}`);
  if (page.actions) sample(page, id, view, draw);
  else draw();
}

const what = (view) => (view.worker ? view.worker : view.task ? `task ${view.task}${view.component ? ` of ${view.component}` : ""}` : view.component ?? "all components");

const kindOf = (view) => (view.worker ? "native" : "tasks");

// The workers to sample: { host, port }.
async function workersOf(page, id, view) {
  if (view.worker) {
    const at = view.worker.lastIndexOf(":");
    return [{ host: view.worker.slice(0, at), port: Number(view.worker.slice(at + 1)) }];
  }
  if (!view.component) return (await request(apiPath("topology-workers", id), { signal: page.signal })).hostPortList;
  const found = await request(`${apiPath("topology", id, "component", view.component)}?window=600`, { signal: page.signal });
  const wanted = found.executorStats.filter((one) => {
    if (!view.task) return true;
    const [first, last] = one.id.match(/\d+/g).map(Number);
    return first <= Number(view.task) && Number(view.task) <= last;
  });
  return [...new Map(wanted.map((one) => [`${one.host}:${one.port}`, { host: one.host, port: one.port }])).values()];
}

async function sample(page, id, view, draw) {
  const began = performance.now();
  Object.assign(view, { busy: true, stacks: null, focus: null, problems: [] });
  draw();
  try {
    const workers = await workersOf(page, id, view);
    if (!workers.length) throw new Error(`No worker runs ${what(view)} now.`);
    const found = await Promise.all(workers.map((one) => sampleWorker(page, id, view, one)));
    view.stacks = found.flat();
  } catch (error) {
    if (page.signal.aborted) return;
    view.problems.push(error.message);
    view.stacks = [];
  }
  view.busy = false;
  view.secs = (performance.now() - began) / 1000;
  draw();
}

async function sampleWorker(page, id, view, { host, port }) {
  const kind = kindOf(view);
  const route = view.worker ? (view.cpu === "on" ? "samplenative" : "samplenativeidle") : "sample";
  const asked = await post(apiPath("topology", id, "profiling", route, `${host}:${port}`, String(SECS[kind])));
  const file = `${id}/${port}/${asked.file}`;
  const until = performance.now() + TRIES_MS;
  await new Promise((done) => setTimeout(done, SECS[kind] * 1000 + WRITE_MS[kind]));
  for (;;) {
    try {
      const text = await readFile(page, view, host, file);
      return view.worker ? native(text) : byTask(text, view);
    } catch (error) {
      if (page.signal.aborted) throw error;
      if (performance.now() > until) {
        view.problems.push(`${host}:${port}: ${await reason(page, id, asked.file, error)}`);
        return [];
      }
    }
    await new Promise((done) => setTimeout(done, POLL_MS));
  }
}

// The whole file, in parts of whole lines. What is beyond the last part is left out, and said.
async function readFile(page, view, host, file) {
  let text = "";
  let start = 0;
  for (let parts = 0; parts < PARTS_MAX; parts++) {
    const query = new URLSearchParams({ file, start, length: LENGTH, lines: "yes" });
    const part = await request(`/logs/of/${encodeURIComponent(host)}/part?${query}`, { signal: page.signal });
    text += part.text;
    if (part.end <= start || part.end >= part.size) return text;
    start = part.end;
  }
  view.problems.push(`${file} on ${host} is very large: only its first ${(PARTS_MAX * LENGTH) >> 20} MiB are shown.`);
  return text;
}

// A request that failed is an error of __system that names the file.
async function reason(page, id, file, error) {
  try {
    const found = await request(`${apiPath("topology", id, "errors")}`, { signal: page.signal });
    const ours = found.errors?.find((one) => one.error.includes(file));
    if (ours) return ours.error.split("\n")[0];
  } catch {
    // The first error says enough.
  }
  return error.message;
}

function byTask(text, view) {
  const found = [];
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const [cpu, component, task, count, frames] = line.split("\t");
    if (view.component && component !== view.component) continue;
    if (view.task && task !== view.task) continue;
    found.push({ cpu, frames: (frames ?? "").split(";"), count: Number(count) });
  }
  return found;
}

// py-spy: `outer;inner 12`
function native(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const at = line.lastIndexOf(" ");
    if (at > 0) found.push({ cpu: "on", frames: line.slice(0, at).split(";"), count: Number(line.slice(at + 1)) || 0 });
  }
  return found;
}

function drawPage(page, id, view, draw) {
  const stacks = (view.stacks ?? []).filter((one) => view.worker || view.cpu === "all" || one.cpu === view.cpu);
  const root = tree(stacks);
  const again = () => view.busy || sample(page, id, view, draw);
  page.draw(
    crumbs(id, id.replace(/-\d+-\d+$/, "")),
    h("div.head", {}, h("h1", {}, `Where ${what(view)} spends its time`), page.actions ? h("div.actions", {}, h("button.ghost", { type: "button", onclick: again, "aria-disabled": view.busy ? "true" : null }, "Sample again")) : null),
    page.actions ? null : h("p.notice.warn", {}, "Actions are switched off (ui.actions.enabled), so nothing can be sampled."),
    switches(view, draw, again),
    view.problems.map((one) => h("p.notice.bad", { role: "alert" }, one)),
    view.busy ? h("p.quiet", { role: "status" }, `Sampling for ${SECS[kindOf(view)]} s …`) : null,
    !view.busy && view.stacks && !stacks.length && !view.problems.length ? h("p.quiet", {}, view.cpu === "on" ? "It was on no CPU." : "It did nothing in this time.") : null,
    stacks.length
      ? [
          section(
            "Flame graph",
            h("p.quiet", {}, `${root.count} samples of ${SECS[kindOf(view)]} s, ${view.worker ? "with native frames" : "Python frames"}. A box is a function, as wide as its share; below it is what it calls. Choose one to look closer.`),
            flame(root, {
              focus: view.focus && view.focus.root === root.count ? walk(root, view.focus.path) : root,
              label: `Flame graph of ${what(view)}`,
              pick: (node) => {
                const path = [];
                for (let at = node; at.parent; at = at.parent) path.unshift(at.name);
                view.focus = { root: root.count, path };
                draw();
              },
            }),
          ),
          section(
            "Hottest functions",
            table(
              "Hottest functions",
              [
                { name: "Function", cell: (one) => h("code", {}, one.name) },
                { name: "Itself", num: true, cell: (one) => percent(one.self / root.count) },
                { name: "With what it calls", num: true, cell: (one) => percent(one.total / root.count) },
              ],
              hottest(stacks, ROWS),
              { key: (one) => one.name },
            ),
          ),
        ]
      : null,
  );
}

function walk(root, path) {
  let at = root;
  for (const name of path) at = at.children.get(name) ?? at;
  return at;
}

function switches(view, draw, again) {
  const choices = view.worker ? [["all", "All threads"], ["on", "On CPU"]] : [["all", "All"], ["on", "On CPU"], ["off", "Waiting"]];
  return h(
    "div.spans",
    { role: "group", "aria-label": "What is shown" },
    choices.map(([cpu, text]) =>
      h(
        "button.ghost",
        {
          type: "button",
          "aria-pressed": String(view.cpu === cpu),
          onclick: () => {
            if (view.cpu === cpu || (view.worker && view.busy)) return;
            view.cpu = cpu;
            view.focus = null;
            if (view.worker) again();
            else draw();
          },
        },
        text,
      ),
    ),
  );
}

export const flamePath = (id, query) => `${topologyPath(id, "flame")}?${new URLSearchParams(query)}`;
