// One executor of a component: what it did by window, what waits, its errors.

import { request } from "../api.js";
import { meter } from "../chart.js";
import { h } from "../dom.js";
import { bytes, callsWords, CAPACITY, duration, short, stateSize, STATE_SIZE } from "../format.js";
import { apiPath, facts, poll, section, topologyPath, viewPath } from "../parts.js";
import { tasksOf, tasksText, windows, WINDOWS } from "./component.js";
import { flamePath } from "./flame.js";
import { crumbs, errorList } from "./topology.js";

const READ_SECS = 3;

export function executor(page, id, name, tasks) {
  const wanted = `[${tasks}]`;
  const text = tasksText(wanted.match(/^\[\d+-\d+\]$/) ? wanted : "[0-0]");
  page.title(`${name}, ${titleOf(text)}`);
  poll(page, READ_SECS, async () => {
    const url = apiPath("topology", id, "component", name);
    const details = await Promise.all(WINDOWS.map(([, window]) => request(`${url}?${new URLSearchParams({ window })}`, { signal: page.signal })));
    const found = details.map((detail) => detail.executorStats.find((one) => one.id === wanted));
    drawPage(page, id, name, text, details, found);
  });
}

const titleOf = (text) => `${text.includes("to") ? "tasks" : "task"} ${text}`;

function drawPage(page, id, name, text, details, found) {
  const [detail] = details;
  const one = found.at(-1);
  const spout = detail.componentType === "spout";
  const head = [
    crumbs(id, detail.name, h("a", { href: topologyPath(id, "component", name) }, name)),
    h("div.head", {}, h("h1", {}, `${name}, ${titleOf(text)}`), h("span.pill.tone-calm", {}, detail.componentType)),
  ];
  if (!one) {
    page.draw(...head, h("p.notice.warn", { role: "alert" }, `No worker runs an executor with ${titleOf(text)} now: a rebalance may have given its tasks to others.`));
    return;
  }
  const rows = found.map((each, index) => each && { ...each, window: WINDOWS[index][1], windowPretty: details[index].windowHint }).filter(Boolean);
  const ours = detail.componentErrors.filter((error) => error.errorHost === one.host && error.errorPort === one.port);
  page.draw(
    ...head,
    facts([
      ["Worker", h("a", { href: viewPath(one.host, `${id}/${one.port}/worker.log`) }, `${one.host}:${one.port}`)],
      ["Uptime", duration(one.uptimeSeconds)],
      spout ? null : ["Capacity", meter(Number(one.capacity), `capacity ${one.capacity}`, callsWords(one)), CAPACITY],
      one.queueTuples === undefined ? null : [spout ? "Pending" : "Queue", short(one.queueTuples)],
      one.queueBytes ? ["Queue in bytes", bytes(one.queueBytes)] : null,
      one.stateKeys === undefined ? null : ["State", stateSize(one), STATE_SIZE],
      ...Object.entries(one.credit ?? {}).map(([to, left]) => [`Credit of ${to}`, bytes(left), "The least that a task of another worker still takes from it"]),
    ]),
    page.actions
      ? h("nav.tabs", { "aria-label": "Flame graphs" }, tasksOf(one.id).map((task) => h("a", { href: flamePath(id, { component: name, task }) }, `Flame graph of task ${task}`)))
      : null,
    section("By window", windows(rows, spout)),
    section("Errors of its worker", errorList(id, ours)),
  );
}
