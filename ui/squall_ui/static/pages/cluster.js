// The cluster: its topologies, supervisors and Nimbus nodes.

import { follow } from "../api.js";
import { h } from "../dom.js";
import { ago, duration } from "../format.js";
import { conditionPill, facts, path, section, statusPill, table, topologyPath, viewPath } from "../parts.js";

export function cluster(page) {
  follow("/live/cluster", (state) => draw(page, state), (status, why) => onStatus(page, status, why), page.signal);
}

export function onStatus(page, status, why) {
  page.connection(status);
  if (status !== "live" && why) page.say(why, "bad");
}

function draw(page, state) {
  const { summary } = state;
  if (!summary) {
    page.draw(h("h1", {}, "Cluster"), h("p.notice.bad", { role: "alert" }, state.error ?? "Nimbus has not answered yet."));
    return;
  }
  page.draw(
    h("h1", {}, "Cluster"),
    state.error ? h("p.notice.bad", { role: "alert" }, `Not up to date: ${state.error}`) : null,
    facts([
      ["Topologies", summary.topologies],
      ["Supervisors", summary.supervisors],
      ["Slots in use", `${summary.slotsUsed} of ${summary.slotsTotal}`],
      ["Executors", summary.executorsTotal.toLocaleString("en")],
      ["Tasks", summary.tasksTotal.toLocaleString("en")],
      ["Version", summary.stormVersion || "–"],
    ]),
    section("Topologies", topologies(state.topologies)),
    section("Supervisors", supervisors(state.supervisors)),
    section("Nimbus", nimbuses(state.nimbuses)),
  );
}

export function topologies(rows, empty = "No topology runs. Submit one with storm jar.") {
  return table(
    "Topologies",
    [
      { name: "Name", cell: (one) => h("a", { href: topologyPath(one.id) }, one.name) },
      { name: "Status", cell: (one) => statusPill(one.status) },
      { name: "Health", cell: conditionPill },
      { name: "Uptime", num: true, cell: (one) => duration(one.uptimeSeconds) },
      { name: "Workers", num: true, cell: (one) => one.workersTotal },
      { name: "Executors", num: true, cell: (one) => one.executorsTotal },
      { name: "Tasks", num: true, cell: (one) => one.tasksTotal },
      { name: "Restarts", num: true, title: "Workers that ended unexpectedly within a day", cell: (one) => one.restarts },
      { name: "Last exit", cell: (one) => (one.lastExit ? h("span", { title: one.lastExit.lastLine }, `${one.lastExit.reason}, ${ago(one.lastExit.time)}`) : "") },
      { name: "Owner", cell: (one) => (one.owner ? h("a", { href: path("owner", one.owner) }, one.owner) : "") },
    ],
    rows,
    { key: (one) => one.id, empty },
  );
}

export function supervisors(rows) {
  return table(
    "Supervisors",
    [
      { name: "Host", cell: (one) => h("a", { href: path("supervisor", one.id) }, one.host) },
      { name: "Id", cell: (one) => h("code", {}, one.id) },
      { name: "Uptime", num: true, cell: (one) => duration(one.uptimeSeconds) },
      { name: "Slots in use", num: true, cell: (one) => `${one.slotsUsed} of ${one.slotsTotal}` },
      { name: "Health", cell: (one) => (one.unhealthy ? [h("span.pill.tone-bad", {}, "unhealthy"), " ", one.unhealthy] : h("span.pill.tone-good", {}, "healthy")) },
      { name: "Version", cell: (one) => one.version },
      { name: "Log", cell: (one) => h("a", { href: viewPath(one.host, "supervisor.log", true) }, "supervisor.log") },
    ],
    rows,
    { key: (one) => one.id, empty: "No supervisor is connected. Start one with storm supervisor." },
  );
}

function nimbuses(rows) {
  return table(
    "Nimbus nodes",
    [
      { name: "Host", cell: (one) => `${one.host}:${one.port}` },
      { name: "Status", cell: (one) => h("span.pill", { class: one.isLeader ? "tone-good" : "tone-calm" }, one.isLeader ? "leader" : "standby") },
      { name: "Uptime", num: true, cell: (one) => duration(one.nimbusUpTimeSeconds) },
      { name: "Version", cell: (one) => one.version },
      { name: "Log", cell: (one) => h("a", { href: viewPath(one.host, "nimbus.log", true) }, "nimbus.log") },
    ],
    rows,
    { key: (one) => `${one.host}:${one.port}`, empty: "No Nimbus is known." },
  );
}
