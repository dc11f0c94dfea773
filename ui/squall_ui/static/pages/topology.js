// One topology: what holds it up, its graph, its rates over time, components and workers.

import { follow, request } from "../api.js";
import { chart, meter } from "../chart.js";
import { h } from "../dom.js";
import { ago, bytes, callsShare, duration, ms, percent, rate, short } from "../format.js";
import { graph } from "../graph.js";
import { apiPath, ask, facts, failed, finishedPill, healthPill, inputWords, path, poll, post, section, statusPill, table, topologyPath, viewPath } from "../parts.js";
import { onStatus } from "./cluster.js";
import { show as showConfiguration } from "./configuration.js";
import { lineOf, moveCharts, newView, paced, readSeries, spans, takeState, timeOf } from "./overtime.js";

const TOTALS = ["sourceRate", "ackRate", "failRate", "completeMs", "busy"];

export function topology(page, id) {
  const view = newView({ charts: topologyCharts });
  const draw = paced(() => view.state && drawPage(page, id, view, draw));
  follow(
    `/live${topologyPath(id)}`,
    (state) => {
      takeState(view, state, () => Object.fromEntries(TOTALS.map((one) => [`.${one}`, state.totals?.[one]])));
      draw();
    },
    (status, why) => {
      onStatus(page, status, why);
      if (status === "gone" && !view.state) failed(page, { message: why });
    },
    page.signal,
  );
  readSeries(page, id, view, TOTALS.map((one) => `.${one}`), draw);
  moveCharts(page, view);
}

function topologyCharts(view) {
  const now = view.span === 600 ? timeOf(view) : null;
  return [
    chart({ label: "Messages a second", secs: view.span, now, format: short, lines: [lineOf(view, ".sourceRate", "emitted", "a"), lineOf(view, ".ackRate", "acked", "b"), lineOf(view, ".failRate", "failed", "c")] }),
    chart({ label: "Complete latency", secs: view.span, now, format: ms, lines: [lineOf(view, ".completeMs", "mean", "a")] }),
    chart({ label: "Busiest executor", secs: view.span, now, format: percent, max: 1, lines: [lineOf(view, ".busy", "busy", "a")] }),
  ];
}

export function crumbs(id, name, ...more) {
  return h("nav.crumbs", { "aria-label": "Where you are" }, h("a", { href: "/" }, "Cluster"), name ? h("a", { href: topologyPath(id) }, name) : null, ...more);
}

function drawPage(page, id, view, draw) {
  const { state } = view;
  const one = state.topology;
  if (!one) {
    page.draw(crumbs(id), h("h1", {}, id), h("p.notice.bad", { role: "alert" }, state.error ?? "Nimbus has not answered yet."));
    return;
  }
  page.title(one.name);
  const { totals } = state;
  page.draw(
    crumbs(id),
    h(
      "div.head",
      {},
      h("h1", {}, one.name),
      state.gone ? h("span.pill.tone-bad", {}, "ended") : [statusPill(one.status), healthPill(one.health), finishedPill(state.finished)],
      page.actions && !state.gone ? actions(page, one, state) : null,
    ),
    state.error ? h("p.notice.bad", { role: "alert" }, `Not up to date: ${state.error}`) : null,
    facts([
      ["Uptime", duration(one.uptimeSeconds)],
      ["From spouts", `${rate(totals.sourceRate)}/s`, "Messages that spouts emit"],
      ["Acked", `${rate(totals.ackRate)}/s`, "Messages whose tree is complete"],
      ["Failed", `${rate(totals.failRate)}/s`],
      ["Complete latency", ms(totals.completeMs), "From a spout's emit to its ack, the mean of the last seconds"],
      ["Workers", one.workersTotal],
      ["Executors", one.executorsTotal],
      ["Tasks", one.tasksTotal],
      ...checkpoints(state.checkpoints),
      one.restarts ? ["Restarts", one.restarts, "Workers that ended unexpectedly within a day"] : null,
    ]),
    h(
      "nav.tabs",
      { "aria-label": "More about this topology" },
      h("a", { href: topologyPath(id, "errors") }, "Errors"),
      h("a", { href: topologyPath(id, "logs") }, "Logs"),
      h("a", { href: `/search?${new URLSearchParams({ topology: id })}` }, "Search logs"),
      h("a", { href: topologyPath(id, "dead-letters") }, "Dead letters"),
      h("a", { href: topologyPath(id, "configuration") }, "Configuration"),
      h("button.link", { type: "button", onclick: () => askForReport(page, id, one.name) }, "Report"),
    ),
    findings(id, state),
    section(
      "Graph",
      graph(state, (name) => topologyPath(id, "component", name)),
      h(
        "p.legend",
        {},
        h("span.tone-calm", {}, "under 60 % busy"),
        h("span.tone-warn", {}, "60 to 80 %"),
        h("span.tone-bad", {}, "over 80 %"),
        h("span.tone-path", {}, "slowest path"),
      ),
    ),
    section(
      "Over time",
      spans(view, draw),
      h(
        "div.charts",
        {},
        view.charts(view),
      ),
    ),
    section("Spouts", components(id, state, "spout")),
    section("Bolts", components(id, state, "bolt")),
    ...stateSizes(id, state),
    section("Workers", workers(page, one, state), state.cpuNote && state.workers.some((each) => each.cpu !== null) ? h("p.quiet", {}, state.cpuNote) : null),
  );
}

// What a topology with checkpoints shows of them; nothing for one without.
function checkpoints(report) {
  if (!report) return [];
  const longest = report.longestTask ? `, longest: ${report.longestTask} ${ms(report.longestMs)}` : "";
  const waited = report.waitedFor ? `The last one waited for ${report.waitedFor}` : undefined;
  return [
    ["Checkpoint", report.epoch ? `${report.epoch}, ${ms(report.waitingMs)} ago` : "none yet", `One is due every ${ms(report.intervalMs)}`],
    report.durationMs === null ? null : ["Took", `${ms(report.durationMs)}, ${bytes(report.sizeBytes)}`, `From its begin to its completion${longest}`],
    report.givenUp ? ["Given up", report.givenUp, waited] : null,
    report.failure ? ["Store", "fails", report.failure] : null,
    report.rollbacks ? ["Rollbacks", report.rollbacks, report.rollbackReason || undefined] : null,
  ];
}

// As bad as what is slow, but it need not be slow.
const NOT_SLOW = new Set(["failing", "restart", "checkpoints"]);

function findings(id, state) {
  const stopped = state.findings.some((one) => one.severity === "stopped");
  const slow = state.findings.some((one) => one.severity === "slow");
  const wrong = slow && state.findings.every((one) => one.severity !== "slow" || NOT_SLOW.has(one.kind));
  const title = stopped ? "Why is nothing moving?" : wrong ? "What is wrong?" : slow ? "Why is it slow?" : state.findings.length ? "Worth knowing" : "Nothing holds it up";
  return h(
    "section.findings",
    { "data-key": "findings", class: stopped ? "stopped" : slow ? "slow" : "fine" },
    h("h2", {}, title),
    state.findings.length
      ? h(
          "ul",
          {},
          state.findings.map((one) =>
            h(
              "li",
              { class: one.severity },
              h("strong", {}, one.component ? h("a", { href: topologyPath(id, "component", one.component) }, one.title) : one.title),
              one.trend && one.trend !== "steady" ? h("span.trend", {}, one.trend) : null,
              h("p", {}, one.text),
            ),
          ),
        )
      : h("p", {}, "All tasks run, no executor is near its limit, and no message fails."),
  );
}

function components(id, state, type) {
  const rows = Object.entries(state.components).filter(([, one]) => one.type === type);
  const spout = type === "spout";
  const hasP99 = rows.some(([, one]) => one.p99 !== null);
  const hasEnd = rows.some(([, one]) => inputWords(one));
  const hasQueue = rows.some(([, one]) => one.queue !== null);
  return table(
    spout ? "Spouts" : "Bolts",
    [
      { name: spout ? "Spout" : "Bolt", cell: ([name]) => h("a", { href: topologyPath(id, "component", name) }, name) },
      { name: "Executors", num: true, cell: ([, one]) => one.executors },
      { name: "Tasks", num: true, cell: ([, one]) => one.tasks },
      spout ? null : { name: "Executed/s", num: true, cell: ([, one]) => rate(one.executeRate) },
      { name: "Emitted/s", num: true, cell: ([, one]) => rate(one.emitRate) },
      { name: "Acked/s", num: true, cell: ([, one]) => rate(one.ackRate) },
      { name: "Failed/s", num: true, cell: ([, one]) => rate(one.failRate) },
      { name: spout ? "Complete" : "Execute", num: true, title: "Mean latency of the last seconds", cell: ([, one]) => ms(spout ? one.completeMs : one.executeMs) },
      spout ? null : { name: "Process", num: true, cell: ([, one]) => ms(one.processMs) },
      hasP99 ? { name: "p99", num: true, cell: ([, one]) => ms(one.p99) } : null,
      hasQueue ? { name: spout ? "Pending" : "Queue", num: true, cell: ([, one]) => short(one.queue) } : null,
      hasEnd ? { name: "Input", title: "Drained: all of it is read, and none of its messages is in flight", cell: ([, one]) => inputWords(one) } : null,
      spout ? null : { name: "Busy", num: true, title: "The busiest executor's share of time in execute; of an async bolt, and of one on threads, its calls under way and their limit", cell: ([, one]) => meter(one.busy, one.busiest, callsShare(one)) },
      { name: "Skew", num: true, title: "The busiest executor's tuples against the mean", cell: ([, one]) => (one.executors > 1 ? one.skew.toFixed(1) : "") },
      { name: "Last error", wraps: true, cell: ([name, one]) => (one.error ? h("a.error", { href: topologyPath(id, "component", name), title: one.error }, `${ago(one.errorTime)}: ${one.error.length > 80 ? `${one.error.slice(0, 79)}…` : one.error}`) : "") },
    ].filter((column) => column),
    rows,
    { key: ([name]) => name },
  );
}

// How large the state of each bolt is; nothing where none has state.
function stateSizes(id, state) {
  const rows = Object.entries(state.components).filter(([, one]) => one.stateKeys !== null);
  if (!rows.length) return [];
  return [
    section(
      "State",
      table(
        "State",
        [
          { name: "Bolt", cell: ([name]) => h("a", { href: topologyPath(id, "component", name) }, name) },
          { name: "Tasks", num: true, cell: ([, one]) => one.tasks },
          { name: "Keys", num: true, title: "Of windows, keys with an open one", cell: ([, one]) => one.stateKeys.toLocaleString("en") },
          { name: "Stored", num: true, title: "Packed, in the store: what is read if its tasks start again", cell: ([, one]) => (one.stateBytes === null ? "–" : bytes(one.stateBytes)) },
        ],
        rows,
        { key: ([name]) => name },
      ),
    ),
  ];
}

function workers(page, topology, state) {
  const usage = state.workers.some((one) => one.cpu !== null);
  return table(
    "Workers",
    [
      { name: "Worker", cell: (one) => `${one.host}:${one.port}` },
      { name: "Uptime", num: true, cell: (one) => (one.started ? duration(one.uptime) : h("span.pill.tone-warn", {}, "starting")) },
      { name: "Executors", num: true, cell: (one) => one.executors },
      usage ? { name: "CPU", num: true, cell: (one) => percent(one.cpu) } : null,
      usage ? { name: "Memory", num: true, cell: (one) => bytes(one.memory) } : null,
      usage ? { name: "Loop lag", num: true, cell: (one) => ms(one.lagMs) } : null,
      { name: "Tasks", wraps: true, cell: (one) => Object.entries(one.components).map(([name, count]) => `${name} ${count}`).join(", ") },
      { name: "Log", cell: (one) => h("a", { href: viewPath(one.host, `${topology.id}/${one.port}/worker.log`) }, "worker.log") },
      page.actions ? { name: "Actions", cell: (one) => workerActions(page, topology, one) } : null,
    ].filter((column) => column),
    state.workers,
    { key: (one) => `${one.host}:${one.port}`, empty: "No worker has a slot." },
  );
}

function workerActions(page, topology, one) {
  const worker = `${one.host}:${one.port}`;
  const url = (what) => apiPath("topology", topology.id, "profiling", what, worker);
  const dump = async (what, url_) => {
    try {
      const done = await post(url_);
      page.say(`${what} of ${worker} was requested: ${done.file ?? "done"} will be among its logs.`);
    } catch (error) {
      page.say(error.message, "bad");
    }
  };
  return h(
    "div.row-actions",
    {},
    h("button.ghost", { type: "button", "aria-label": `Stacks of ${worker}`, onclick: () => dump("A dump of the stacks", url("dumpjstack")) }, "Stacks"),
    h("a.ghost", { href: `${topologyPath(topology.id, "flame")}?${new URLSearchParams({ worker })}`, "aria-label": `Flame graph of ${worker}` }, "Flame graph"),
    h(
      "button.ghost",
      {
        type: "button",
        "aria-label": `Restart ${worker}`,
        onclick: () =>
          ask(page, {
            title: `Restart ${worker}?`,
            text: "It drains, ends, and is started again. Its messages in flight are replayed if they time out.",
            verb: "Restart",
            danger: true,
            act: async () => {
              await post(url("restartworker"));
              return `${worker} is being restarted.`;
            },
          }),
      },
      "Restart",
    ),
  );
}

function askForReport(page, id, name) {
  ask(page, {
    title: `Report on ${name}`,
    text: "From its history: a verdict, throughput, latency, skew, hot keys, failures, and a parallelism. It is made now, which takes some seconds, and opens in this tab.",
    verb: "Make report",
    fields: [SPAN],
    act: async ({ span }) => {
      location.assign((await post(path("reports", id), { span })).report);
      return "The report is opening.";
    },
  });
}

const SPAN = { name: "span", label: "On the last", options: ["1 hour", "6 hours", "1 day", "all"], value: "1 day" };

function askForRecommendation(page, topology) {
  ask(page, {
    title: `Rebalance ${topology.name} from a report`,
    text: "A report on its history recommends executors and workers. It is made now, which takes some seconds, and shown before anything is changed.",
    verb: "Make report",
    fields: [SPAN],
    act: async ({ span }) => {
      const { changes, unjudged } = await post(path("reports", topology.id, "recommendation"), { span });
      const open = unjudged.length ? `The report has too little data to judge ${unjudged.map((name) => name || "the workers").join(", ")}.` : "";
      if (!changes.length) return `The report recommends no changes to ${topology.name}. ${open}`;
      askToApply(page, topology, changes, open);
      return "The report is made.";
    },
  });
}

function askToApply(page, topology, changes, open) {
  ask(page, {
    title: `Apply these changes to ${topology.name}?`,
    text: `Its spouts are off for the wait time, then its executors are spread again. ${open}`,
    more: table(
      "Changes",
      [
        { name: "Component", cell: (one) => one.component || "(workers)" },
        { name: "Now", num: true, cell: (one) => one.now },
        { name: "Recommended", num: true, cell: (one) => one.recommended },
        { name: "Why", cell: (one) => one.why },
      ],
      changes,
    ),
    verb: "Rebalance",
    fields: [{ name: "wait", label: "Wait, in seconds", value: 30, min: 0 }],
    act: async ({ wait }) => {
      const options = { executors: {} };
      for (const one of changes) {
        if (one.component) options.executors[one.component] = one.recommended;
        else options.numWorkers = one.recommended;
      }
      await post(apiPath("topology", topology.id, "rebalance", wait || "0"), { rebalanceOptions: options });
      return `${topology.name} is being rebalanced.`;
    },
  });
}

function actions(page, topology, state) {
  const url = (...more) => apiPath("topology", topology.id, ...more);
  const button = (text, options, kind = "ghost") => h(`button.${kind}`, { type: "button", onclick: () => ask(page, options) }, text);
  const names = Object.keys(state.components);
  const inactive = topology.status === "INACTIVE";
  return h(
    "div.actions",
    {},
    inactive
      ? button("Activate", { title: `Activate ${topology.name}?`, text: "Its spouts emit again.", verb: "Activate", act: async () => (await post(url("activate")), `${topology.name} was activated.`) })
      : button("Deactivate", { title: `Deactivate ${topology.name}?`, text: "Its spouts stop. What is in flight finishes, and its workers stay.", verb: "Deactivate", act: async () => (await post(url("deactivate")), `${topology.name} was deactivated.`) }),
    button("Rebalance", {
      title: `Rebalance ${topology.name}?`,
      text: "Its spouts are off for the wait time, then its executors are spread again. Fields that are left empty stay as they are.",
      verb: "Rebalance",
      fields: [
        { name: "wait", label: "Wait, in seconds", value: 30, min: 0 },
        { name: "workers", label: `Workers (now ${topology.workersTotal})`, min: 1 },
        ...names.map((name) => ({ name: `executors ${name}`, label: `Executors of ${name} (now ${state.components[name].executors}, at most ${state.components[name].tasks})`, min: 1, max: state.components[name].tasks })),
      ],
      act: async (values) => {
        const options = { executors: {} };
        if (values.workers) options.numWorkers = Number(values.workers);
        for (const name of names) {
          if (values[`executors ${name}`]) options.executors[name] = Number(values[`executors ${name}`]);
        }
        await post(url("rebalance", values.wait || "0"), { rebalanceOptions: options });
        return `${topology.name} is being rebalanced.`;
      },
    }),
    h("button.ghost", { type: "button", onclick: () => askForRecommendation(page, topology) }, "Rebalance from report"),
    button("Debug", {
      title: `Sample tuples of ${topology.name}`,
      text: "A share of the tuples of all components is written to events.log of their workers. 0 switches it off.",
      verb: "Set",
      fields: [{ name: "percent", label: "Percent of tuples", value: state.debug ? 10 : 1, min: 0, max: 100, step: "any" }],
      act: async ({ percent: share }) => {
        const on = Number(share) > 0;
        await post(url("debug", on ? "enable" : "disable", share || "0"));
        return on ? `${share} % of the tuples are sampled.` : "Tuples are not sampled any more.";
      },
    }),
    button("Log level", {
      title: `Log level of ${topology.name}`,
      text: "Workers log from this level on, until the time is over.",
      verb: "Set",
      fields: [
        { name: "logger", label: "Logger", type: "text", value: "ROOT" },
        { name: "level", label: "Level", value: "DEBUG", options: ["DEBUG", "INFO", "WARN", "ERROR"] },
        { name: "timeout", label: "For how many seconds (0: until it is changed)", value: 300, min: 0 },
      ],
      act: async ({ logger, level, timeout }) => {
        await post(url("logconfig"), { namedLoggerLevels: { [logger]: { target_level: level, reset_level: "INFO", timeout: Number(timeout) || 0 } } });
        return `${logger} logs from ${level} on.`;
      },
    }),
    button("Kill", {
      title: `Kill ${topology.name}?`,
      text: "Its spouts stop at once. After the wait time its workers end, and its name is free.",
      verb: "Kill",
      danger: true,
      fields: [{ name: "wait", label: "Wait, in seconds", value: 30, min: 0 }],
      act: async ({ wait }) => (await post(url("kill", wait || "0")), `${topology.name} is being killed.`),
    }, "ghost.danger"),
  );
}

export function errors(page, id) {
  poll(page, 3, async () => {
    const found = (await request(`${apiPath("topology", id, "errors")}`, { signal: page.signal })).errors;
    page.title("Errors");
    page.draw(crumbs(id, id), h("h1", {}, "Errors"), errorList(id, found));
  });
}

export function errorList(id, found) {
  if (!found.length) return h("p.quiet", {}, "No errors.");
  return h(
    "ul.errors",
    {},
    found.map((one) =>
      h(
        "li",
        { "data-key": `${one.component}${one.errorTime}${one.error.slice(-80)}` },
        h(
          "details",
          {},
          h(
            "summary",
            {},
            one.component ? h("b", {}, `${one.component} `) : null,
            h("span.error", {}, one.headline),
            h("span.quiet", {}, ` ${ago(one.errorTime)}${one.count > 1 ? `, ${one.count} times` : ""}`),
          ),
          h("pre", { tabindex: 0, "aria-label": "Traceback" }, one.error),
        ),
        one.errorHost && one.errorPort !== "" ? h("a", { href: viewPath(one.errorHost, `${id}/${one.errorPort}/worker.log`) }, `log of ${one.errorHost}:${one.errorPort}`) : null,
      ),
    ),
  );
}

export async function topologyConfiguration(page, id) {
  page.title("Configuration");
  try {
    const found = await request(apiPath("topology", id), { signal: page.signal });
    showConfiguration(page, `Configuration of ${found.name}`, () => crumbs(id, found.name), found.configuration);
  } catch (error) {
    failed(page, error);
  }
}
