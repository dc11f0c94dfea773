// One component: its rates over time, streams, executors and errors.

import { follow, request } from "../api.js";
import { chart, meter } from "../chart.js";
import { h } from "../dom.js";
import { bytes, callsShare, callsWords, CAPACITY, duration, ms, percent, rate, short, stateSize, STATE_SIZE } from "../format.js";
import { apiPath, ask, facts, failed, inputWords, post, section, table, topologyPath, viewPath } from "../parts.js";
import { onStatus } from "./cluster.js";
import { flamePath } from "./flame.js";
import { lineOf, moveCharts, newView, paced, readSeries, spans, takeState, timeOf } from "./overtime.js";
import { crumbs, errorList } from "./topology.js";

const SHARES = ["p50", "p95", "p99"];
export const WINDOWS = [
  ["10 min", "600"],
  ["3 h", "10800"],
  ["1 day", "86400"],
  ["All time", ":all-time"],
];

export function component(page, id, name) {
  const view = newView({ window: "600", detail: null, charts: () => charts(name, view) });
  page.title(name);
  const draw = paced(() => view.detail && drawPage(page, id, name, view, draw));
  follow(
    `/live${topologyPath(id)}`,
    (state) => {
      takeState(view, state, () => newest(name, state.components?.[name]));
      draw();
    },
    (status, why) => onStatus(page, status, why),
    page.signal,
  );
  readSeries(page, id, view, ["rate", "ms", "failed", "busy", "queue", "keys", ...SHARES].map((one) => `${name}.${one}`), draw);
  readDetail(page, id, name, view, draw);
  moveCharts(page, view);
}

// The values of the component's series in a state.
function newest(name, live) {
  if (!live) return {};
  const spout = live.type === "spout";
  return {
    [`${name}.rate`]: spout ? live.emitRate : live.executeRate,
    [`${name}.ms`]: spout ? live.completeMs : live.executeMs,
    ...Object.fromEntries(SHARES.map((one) => [`${name}.${one}`, live[one] ?? undefined])),
    [`${name}.failed`]: live.failRate,
    [`${name}.busy`]: live.busy,
    [`${name}.queue`]: live.queue ?? undefined,
    [`${name}.keys`]: live.stateKeys ?? undefined,
  };
}

function charts(name, view) {
  const live = view.state?.components?.[name];
  const spout = view.detail?.componentType === "spout";
  const now = view.span === 600 ? timeOf(view) : null;
  return [
    chart({ label: "Tuples a second", secs: view.span, now, format: short, lines: [lineOf(view, `${name}.rate`, spout ? "emitted" : "executed", "a"), lineOf(view, `${name}.failed`, "failed", "c")] }),
    chart({
      label: spout ? "Complete latency" : "Execute latency",
      secs: view.span,
      now,
      format: ms,
      lines: live && live.p99 !== null ? SHARES.map((one, index) => lineOf(view, `${name}.${one}`, one, "abc"[index])) : [lineOf(view, `${name}.ms`, "mean", "a")],
    }),
    spout ? null : chart({ label: "Busiest executor", secs: view.span, now, format: percent, max: 1, lines: [lineOf(view, `${name}.busy`, "busy", "a")] }),
    live?.queue === null || live?.queue === undefined ? null : chart({ label: "Waiting", secs: view.span, now, format: short, lines: [lineOf(view, `${name}.queue`, "tuples", "a")] }),
    (live?.stateKeys ?? null) === null ? null : chart({ label: "Keys of its state", secs: view.span, now, format: short, lines: [lineOf(view, `${name}.keys`, "keys", "a")] }),
  ];
}

async function readDetail(page, id, name, view, draw) {
  while (!page.signal.aborted) {
    try {
      const detail = await request(`${apiPath("topology", id, "component", name)}?${new URLSearchParams({ window: view.window })}`, { signal: page.signal });
      view.detail = { ...detail, allTime: windowsOf(detail).at(-1) };
      draw();
    } catch (error) {
      if (page.signal.aborted) return;
      if (!view.detail) failed(page, error);
    }
    await new Promise((done) => {
      view.reread = done;
      setTimeout(done, 3000);
    });
  }
}

function drawPage(page, id, name, view, draw) {
  const { detail } = view;
  const live = view.state?.components?.[name];
  const spout = detail.componentType === "spout";
  page.draw(
    crumbs(id, detail.name),
    h("div.head", {}, h("h1", {}, name), h("span.pill.tone-calm", {}, detail.componentType), page.actions ? sampling(page, id, detail) : null),
    live
      ? facts([
          [spout ? "Emitted" : "Executed", `${rate(spout ? live.emitRate : live.executeRate)}/s`],
          ["Acked", `${rate(live.ackRate)}/s`],
          ["Failed", `${rate(live.failRate)}/s`],
          [spout ? "Complete latency" : "Execute latency", ms(spout ? live.completeMs : live.executeMs)],
          spout ? null : ["Process latency", ms(live.processMs)],
          live.p99 === null ? null : ["p50, p95, p99", `${ms(live.p50)}, ${ms(live.p95)}, ${ms(live.p99)}`],
          callsWords(live) ? [live.onThreads ? "In execute" : "Under way", callsWords(live), "On average, of the most that there can be"] : null,
          spout ? null : ["Busiest executor", percent(live.busy), live.busiest],
          live.executors > 1 ? ["Skew", live.skew.toFixed(1), "The busiest executor's tuples against the mean"] : null,
          live.queue === null ? null : [spout ? "Pending" : "Queue", short(live.queue)],
          inputWords(live) ? ["Input", inputWords(live), "Drained: all of it is read, and none of its messages is in flight"] : null,
          detail.allTime?.queueBytes ? ["Queue in bytes", bytes(detail.allTime.queueBytes)] : null,
          live.stateKeys === null ? null : ["State", stateSize(live), STATE_SIZE],
          ...Object.entries(detail.allTime?.credit ?? {}).map(([to, left]) => [`Credit of ${to}`, bytes(left), "The least that a task of another worker still takes from it"]),
          ["Executors", detail.executors],
          ["Tasks", detail.tasks],
        ])
      : null,
    live && Object.keys(live.blocked).length
      ? h("p.notice.warn", {}, "Waits for ", Object.entries(live.blocked).map(([by, share]) => `${by} (${percent(share)} of its time)`).join(", "))
      : null,
    section(
      "Over time",
      spans(view, draw),
      h(
        "div.charts",
        {},
        view.charts(view),
      ),
    ),
    detail.plan?.length ? section("Plan", plan(detail.plan)) : null,
    section("Errors", errorList(id, detail.componentErrors)),
    section("By window", windows(windowsOf(detail), spout)),
    h(
      "div.spans",
      { role: "group", "aria-label": "Window of the tables below", "data-key": "windows" },
      WINDOWS.map(([text, window]) =>
        h(
          "button.ghost",
          {
            type: "button",
            "aria-pressed": String(view.window === window),
            onclick: () => {
              view.window = window;
              view.reread?.();
              draw();
            },
          },
          text,
        ),
      ),
    ),
    spout ? null : section("Inputs", inputs(id, detail)),
    section("Outputs", outputs(detail, spout)),
    section("Executors", executors(page, id, detail, spout)),
  );
}

// What it does: its calls, with their windows and functions.
function plan(steps) {
  return h(
    "ol.plan",
    {},
    steps.map((one) => h("li", {}, h("div", {}, h("code", {}, one.step), one.windows ? h("span", {}, `over ${one.windows}`) : null, one.functions.map((path) => h("code.quiet", {}, path))))),
  );
}

export const num = (name, field) => ({ name, num: true, cell: (one) => (typeof one[field] === "string" ? ms(Number(one[field])) : short(one[field])) });

// Columns of the percentiles that rows have.
export function percentiles(rows, spout) {
  const kind = spout ? "complete" : "execute";
  if (!rows.some((one) => one.latencies?.[kind])) return [];
  return SHARES.map((share) => ({ name: share, num: true, title: `${share} of the ${kind} latency`, cell: (one) => ms(one.latencies?.[kind]?.[share]) }));
}

// A column of what components were waited for, if rows have any.
export function blockedBy(rows) {
  if (!rows.some((one) => Object.keys(one.blocked ?? {}).length)) return [];
  return [{ name: "Waited for", title: "The share of its time that it waited for each component downstream", cell: (one) => Object.entries(one.blocked ?? {}).map(([by, share]) => `${by} ${percent(share)}`).join(", ") }];
}

export function windows(rows, spout) {
  return table(
    "By window",
    [
      { name: "Window", cell: (one) => one.windowPretty },
      num("Emitted", "emitted"),
      num("Transferred", "transferred"),
      ...(spout ? [num("Complete latency", "completeLatency")] : [num("Executed", "executed"), num("Execute latency", "executeLatency"), num("Process latency", "processLatency")]),
      ...percentiles(rows, spout),
      num("Acked", "acked"),
      num("Failed", "failed"),
      ...blockedBy(rows),
    ],
    rows,
    { key: (one) => one.window },
  );
}

const windowsOf = (detail) => detail.spoutSummary ?? detail.boltStats;

function inputs(id, detail) {
  return table(
    "Inputs",
    [
      { name: "From", cell: (one) => h("a", { href: topologyPath(id, "component", one.component) }, one.component) },
      { name: "Stream", cell: (one) => h("code", {}, one.stream) },
      num("Executed", "executed"),
      num("Execute latency", "executeLatency"),
      num("Process latency", "processLatency"),
      num("Acked", "acked"),
      num("Failed", "failed"),
    ],
    detail.inputStats,
    { key: (one) => `${one.component} ${one.stream}`, empty: "It has executed nothing in this window." },
  );
}

function outputs(detail, spout) {
  return table(
    "Outputs",
    [
      { name: "Stream", cell: (one) => h("code", {}, one.stream) },
      num("Emitted", "emitted"),
      num("Transferred", "transferred"),
      ...(spout ? [num("Complete latency", "completeLatency"), num("Acked", "acked"), num("Failed", "failed")] : []),
    ],
    detail.outputStats,
    { key: (one) => one.stream, empty: "It has emitted nothing in this window." },
  );
}

const EXECUTORS_MAX = 200;

// Of thousands the busiest: a table of all would take the browser seconds, each time it is drawn.
export function shownExecutors(all) {
  if (all.length <= EXECUTORS_MAX) return all;
  const busy = (one) => Number(one.capacity ?? 0);
  return [...all].sort((a, b) => busy(b) - busy(a) || b.emitted - a.emitted).slice(0, EXECUTORS_MAX);
}

function executors(page, id, detail, spout) {
  const shown = shownExecutors(detail.executorStats);
  const rows = executorTable(page, id, { ...detail, executorStats: shown }, spout);
  const left = detail.executorStats.length - shown.length;
  return left ? [h("p.quiet", {}, `The ${shown.length} busiest of ${detail.executorStats.length}. The REST API has all.`), rows] : rows;
}

function executorTable(page, id, detail, spout) {
  return table(
    "Executors",
    [
      { name: "Tasks", cell: (one) => h("a.tasks", { href: topologyPath(id, "component", detail.id, "executor", one.id.slice(1, -1)) }, tasksText(one.id)) },
      { name: "Worker", cell: (one) => h("a", { href: viewPath(one.host, `${id}/${one.port}/worker.log`) }, `${one.host}:${one.port}`) },
      { name: "Uptime", num: true, cell: (one) => duration(one.uptimeSeconds) },
      detail.executorStats.some((one) => one.stateKeys !== undefined) ? { name: "State", num: true, title: STATE_SIZE, cell: stateSize } : null,
      num("Emitted", "emitted"),
      num("Transferred", "transferred"),
      ...(spout
        ? [num("Complete latency", "completeLatency")]
        : [
            { name: "Capacity", num: true, title: CAPACITY, cell: (one) => meter(Number(one.capacity), `capacity ${one.capacity}`, callsShare(one)) },
            num("Executed", "executed"),
            num("Execute latency", "executeLatency"),
            num("Process latency", "processLatency"),
          ]),
      ...percentiles(detail.executorStats, spout).slice(-1),
      detail.executorStats.some((one) => one.queueTuples !== undefined) ? num(spout ? "Pending" : "Queue", "queueTuples") : null,
      num("Acked", "acked"),
      num("Failed", "failed"),
      page.actions
        ? {
            name: "Time",
            cell: (one) => tasksOf(one.id).map((task) => [h("a", { href: flamePath(id, { component: detail.id, task }), "aria-label": `Flame graph of task ${task}` }, `task ${task}`), " "]),
          }
        : null,
    ].filter((column) => column),
    detail.executorStats,
    { key: (one) => one.id },
  );
}

export function tasksText(executor) {
  const [first, last] = executor.match(/\d+/g);
  return first === last ? first : `${first} to ${last}`;
}

// "[4-6]" are three tasks; of many, the first few.
export function tasksOf(executor) {
  const [first, last] = executor.match(/\d+/g).map(Number);
  return Array.from({ length: Math.min(8, last - first + 1) }, (_, index) => first + index);
}

function sampling(page, id, detail) {
  return h(
    "div.actions",
    {},
    h("a.ghost", { href: flamePath(id, { component: detail.id }) }, "Flame graph"),
    h(
      "button.ghost",
      {
        type: "button",
        onclick: () =>
          ask(page, {
            title: `Sample tuples of ${detail.id}`,
            text: "A share of its tuples is written to events.log of their workers. 0 switches it off.",
            verb: "Set",
            fields: [{ name: "percent", label: "Percent of tuples", value: detail.samplingPct, min: 0, max: 100, step: "any" }],
            act: async ({ percent: share }) => {
              const on = Number(share) > 0;
              await post(apiPath("topology", detail.topologyId, "component", detail.id, "debug", on ? "enable" : "disable", share || "0"));
              return on ? `${share} % of its tuples are sampled.` : "Its tuples are not sampled any more.";
            },
          }),
      },
      detail.debug ? `Sampling ${detail.samplingPct} %` : "Sample tuples",
    ),
  );
}
