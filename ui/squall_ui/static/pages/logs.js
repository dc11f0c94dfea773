// Logs of all nodes: lists, one file (followed), search over a topology, dead letters.

import { request } from "../api.js";
import { h } from "../dom.js";
import { ago, bytes } from "../format.js";
import { failed, poll, section, table, viewPath } from "../parts.js";
import { crumbs } from "./topology.js";

const LENGTH = 65536;
const KEPT_CHARS = 2_000_000;

const of = (host, route, query, ...more) =>
  `/logs/of/${[host, route, ...more].map(encodeURIComponent).join("/")}?${new URLSearchParams(query)}`;

async function hosts(page) {
  const [supervisors, nimbuses] = await Promise.all([
    request("/api/v1/supervisor/summary", { signal: page.signal }),
    request("/api/v1/nimbus/summary", { signal: page.signal }),
  ]);
  return [...new Set([...supervisors.supervisors, ...nimbuses.nimbuses].map((one) => one.host))].sort();
}

// One answer or error for each host.
async function fromAll(page, names, urlOf) {
  return Promise.all(
    names.map(async (host) => {
      try {
        return { host, found: await request(urlOf(host), { signal: page.signal }) };
      } catch (error) {
        return { host, problem: error.message };
      }
    }),
  );
}

// The line of a match: what is before and after it may begin and end within a word.
function lineOfMatch({ beforeString, matchString, afterString }) {
  const before = beforeString.split("\n");
  const after = afterString.split("\n");
  const cut = before.length === 1 && beforeString.length >= 128;
  return [cut ? `…${before[0].replace(/^\S*\s/, "")}` : before.at(-1), h("mark", {}, matchString), after[0], after.length === 1 && afterString.length >= 128 ? "…" : ""];
}

const problems = (answers) => answers.filter((one) => one.problem).map((one) => h("p.notice.warn", {}, one.problem));

export function logs(page, id) {
  page.title("Logs");
  poll(page, 5, async () => {
    const answers = await fromAll(page, await hosts(page), (host) => of(host, "files", id ? { topoId: id } : {}));
    const files = answers.flatMap((one) => (one.found?.files ?? []).map((file) => ({ host: one.host, ...file })));
    files.sort((a, b) => b.modified - a.modified);
    const daemons = id ? [] : answers.flatMap((one) => (one.found?.daemonLogs ?? []).map((name) => ({ host: one.host, name })));
    page.draw(
      id ? crumbs(id, id) : null,
      h("h1", {}, id ? "Logs of the topology" : "Logs"),
      problems(answers),
      section(
        "Workers",
        table(
          "Logs of workers",
          [
            { name: "File", cell: (one) => h("a", { href: viewPath(one.host, one.file) }, one.name) },
            { name: "Worker", cell: (one) => `${one.host}:${one.port}` },
            id ? null : { name: "Topology", cell: (one) => one.topologyId },
            { name: "Size", num: true, cell: (one) => bytes(one.bytes) },
            { name: "Changed", num: true, cell: (one) => ago(one.modified) },
          ].filter((column) => column),
          files,
          { empty: "There are no logs of workers." },
        ),
      ),
      id
        ? null
        : section(
            "Daemons",
            table(
              "Logs of daemons",
              [
                { name: "File", cell: (one) => h("a", { href: viewPath(one.host, one.name, true) }, one.name) },
                { name: "Host", cell: (one) => one.host },
              ],
              daemons,
              { empty: "There are no logs of daemons." },
            ),
          ),
    );
  });
}

export async function viewLog(page) {
  const { query } = page;
  const view = {
    host: query.get("host") ?? "",
    file: query.get("file") ?? "",
    daemon: query.get("daemon") === "yes",
    text: "",
    start: 0,
    end: null,
    size: 0,
    follow: !query.has("start"),
    matches: null,
    wanted: "",
  };
  page.title(view.file.split("/").at(-1));
  const read = (start, length = LENGTH) =>
    request(of(view.host, "part", { file: view.file, length, ...(start === null ? {} : { start }), ...(view.daemon ? { "is-daemon": "yes" } : {}) }), { signal: page.signal });
  const take = (part, where) => {
    if (where === "after") view.text += part.text;
    else if (where === "before") view.text = part.text + view.text;
    else view.text = part.text;
    if (where !== "after") view.start = part.start;
    if (where !== "before") view.end = part.end;
    view.size = part.size;
    if (view.text.length > KEPT_CHARS && where === "after") {
      view.text = view.text.slice(-KEPT_CHARS);
    }
  };
  const draw = () => drawLog(page, view, { read, take, draw });
  try {
    const asked = query.get("start");
    take(await read(asked === null ? null : Math.max(0, Number(asked) || 0)), "all");
    draw();
    if (view.follow) toEnd();
    while (!page.signal.aborted) {
      await new Promise((done) => setTimeout(done, 1000));
      if (!view.follow || page.signal.aborted || document.hidden) continue;
      const part = await read(view.end);
      // It was turned over: what is there now is another file.
      if (part.size < view.end) take(await read(null), "all");
      else if (part.text) take(part, "after");
      else continue;
      draw();
      toEnd();
    }
  } catch (error) {
    if (!page.signal.aborted) failed(page, error);
  }
}

function toEnd() {
  const box = document.querySelector("pre.log");
  if (box) box.scrollTop = box.scrollHeight;
}

function drawLog(page, view, { read, take, draw }) {
  const [topology] = view.daemon ? [null] : view.file.split("/");
  const safely = (work) => async (event) => {
    event?.preventDefault();
    try {
      await work(event);
      draw();
    } catch (error) {
      page.say(error.message, "bad");
    }
  };
  page.draw(
    topology ? crumbs(topology, topology) : h("nav.crumbs", { "aria-label": "Where you are" }, h("a", { href: "/logs" }, "Logs")),
    h("h1", {}, view.file.split("/").at(-1)),
    h("p.quiet", {}, `${view.host}${topology ? `, port ${view.file.split("/")[1]}` : ""}: bytes ${view.start.toLocaleString("en")} to ${view.end.toLocaleString("en")} of ${view.size.toLocaleString("en")}`),
    h(
      "div.tools",
      {},
      h("button.ghost", { type: "button", disabled: view.start === 0, onclick: safely(async () => take(await read(Math.max(0, view.start - LENGTH), Math.min(LENGTH, view.start)), "before")) }, "Earlier"),
      h("button.ghost", { type: "button", onclick: safely(async () => { take(await read(null), "all"); setTimeout(toEnd); }) }, "End"),
      h("button.ghost", { type: "button", "aria-pressed": String(view.follow), onclick: () => { view.follow = !view.follow; draw(); } }, view.follow ? "Following" : "Follow"),
      h(
        "form",
        {
          role: "search",
          onsubmit: safely(async (event) => {
            view.wanted = new FormData(event.target).get("wanted");
            view.matches = view.wanted
              ? (await request(of(view.host, "search", { file: view.file, "search-string": view.wanted, "num-matches": 100, ...(view.daemon ? { "is-daemon": "yes" } : {}) }), { signal: page.signal })).matches
              : null;
          }),
        },
        h("label", {}, h("span.hidden", {}, "Search in this file"), h("input", { type: "search", name: "wanted", placeholder: "Search in this file", "data-keep": true })),
        h("button.ghost", { type: "submit" }, "Search"),
      ),
    ),
    view.matches
      ? section(
          `${view.matches.length}${view.matches.length === 100 ? " or more" : ""} matches`,
          h(
            "ol.matches",
            {},
            view.matches.map((one) =>
              h(
                "li",
                {},
                h(
                  "button.match",
                  { type: "button", onclick: safely(async () => { view.follow = false; take(await read(Math.max(0, one.byteOffset - LENGTH / 4)), "all"); }) },
                  lineOfMatch(one),
                ),
              ),
            ),
          ),
        )
      : null,
    h("pre.log", { tabindex: 0, "aria-label": "Log", "data-key": "log" }, view.text || "(nothing)"),
  );
}

export async function search(page) {
  page.title("Search");
  const { query } = page;
  const topology = query.get("topology") ?? "";
  const wanted = query.get("text") ?? "";
  const archived = query.get("archived") === "on";
  try {
    const all = (await request("/api/v1/topology/summary", { signal: page.signal })).topologies;
    const form = h(
      "form.search",
      {
        role: "search",
        onsubmit: (event) => {
          event.preventDefault();
          page.go(`/search?${new URLSearchParams(new FormData(event.target))}`);
        },
      },
      h("label.field", {}, h("span", {}, "Topology"), h("select", { name: "topology" }, all.map((one) => h("option", { value: one.id, selected: one.id === topology }, one.name)))),
      h("label.field", {}, h("span", {}, "Text"), h("input", { type: "search", name: "text", value: wanted, required: true })),
      h("label.check", {}, h("input", { type: "checkbox", name: "archived", checked: archived }), " also in older files"),
      h("button.main", { type: "submit" }, "Search"),
    );
    const head = [h("h1", {}, "Search in logs"), all.length ? form : h("p.quiet", {}, "No topology runs.")];
    page.draw(...head, topology && wanted ? h("p.quiet", {}, "Searching …") : null);
    if (!(topology && wanted)) return;
    const asked = { "search-string": wanted, "num-matches": 50, ...(archived ? { "search-archived": "on" } : {}) };
    const answers = await fromAll(page, await hosts(page), (host) => of(host, "deepSearch", asked, topology));
    const rows = answers.flatMap((one) =>
      (one.found ?? []).flatMap((port) => port.matches.flatMap((file) => file.matches.map((match) => ({ host: one.host, file: file.fileName, match })))),
    );
    page.draw(
      ...head,
      problems(answers),
      h("p", { role: "status" }, `${rows.length} matches`),
      table(
        "Matches",
        [
          { name: "File", cell: (one) => h("a", { href: `${viewPath(one.host, one.file)}&start=${Math.max(0, one.match.byteOffset - 2000)}` }, one.file.split("/").slice(1).join("/")) },
          { name: "Host", cell: (one) => one.host },
          { name: "Line", cell: (one) => h("code.line", {}, lineOfMatch(one.match)) },
        ],
        rows,
        { empty: "No log has this text." },
      ),
    );
  } catch (error) {
    if (!page.signal.aborted) failed(page, error);
  }
}

export async function deadLetters(page, id) {
  page.title("Dead letters");
  try {
    const answers = await fromAll(page, await hosts(page), (host) => of(host, "files", { topoId: id }));
    const files = answers.flatMap((one) => (one.found?.files ?? []).filter((file) => file.name.startsWith("dead-letters.jsonl")).map((file) => ({ host: one.host, ...file })));
    const parts = await Promise.all(files.map((file) => request(of(file.host, "part", { file: file.file, length: 262144 }), { signal: page.signal })));
    const rows = parts.flatMap((part, index) => part.text.split("\n").filter(Boolean).map((line) => ({ ...files[index], letter: parsed(line) })));
    page.draw(
      crumbs(id, id),
      h("h1", {}, "Dead letters"),
      h("p.quiet", {}, "Messages that failed too often, or were in hand at several exits of a worker. Those that a bolt consumes are not here."),
      problems(answers),
      table(
        "Dead letters",
        [
          { name: "Message", cell: (one) => h("code.line", {}, JSON.stringify(one.letter.message_id ?? one.letter.line)) },
          { name: "Component", cell: (one) => one.letter.component ?? one.letter.spout ?? "" },
          { name: "Reason", cell: (one) => one.letter.reason ?? "" },
          { name: "Values", cell: (one) => h("code.line", {}, JSON.stringify(one.letter.values ?? null)) },
          { name: "File", cell: (one) => h("a", { href: viewPath(one.host, one.file) }, `${one.host}:${one.port}`) },
        ],
        rows,
        { empty: "There are no dead letters in files." },
      ),
    );
  } catch (error) {
    if (!page.signal.aborted) failed(page, error);
  }
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return { line };
  }
}
