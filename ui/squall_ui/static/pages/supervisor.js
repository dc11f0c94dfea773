// A supervisor: its slots, and the workers in them.

import { request } from "../api.js";
import { h } from "../dom.js";
import { duration } from "../format.js";
import { facts, poll, section, table, topologyPath, viewPath } from "../parts.js";

export function supervisor(page, id) {
  poll(page, 2, async () => {
    const found = await request(`/api/v1/supervisor?${new URLSearchParams({ id })}`, { signal: page.signal });
    const one = found.supervisors[0];
    page.title(one.host);
    page.draw(
      h("nav.crumbs", { "aria-label": "Where you are" }, h("a", { href: "/" }, "Cluster")),
      h("h1", {}, one.host),
      one.unhealthy ? h("p.notice.bad", {}, "This node is unhealthy, so it gets no work: ", one.unhealthy) : null,
      facts([
        ["Id", h("code", {}, one.id)],
        ["Uptime", duration(one.uptimeSeconds)],
        ["Slots in use", `${one.slotsUsed} of ${one.slotsTotal}`],
        ["Version", one.version],
        ["Log", h("a", { href: viewPath(one.host, "supervisor.log", true) }, "supervisor.log")],
      ]),
      section(
        "Workers",
        table(
          "Workers",
          [
            { name: "Port", cell: (row) => row.port },
            { name: "Topology", cell: (row) => h("a", { href: topologyPath(row.topologyId) }, row.topologyName) },
            { name: "Uptime", num: true, cell: (row) => (row.uptimeSeconds ? duration(row.uptimeSeconds) : "starting") },
            { name: "Executors", num: true, cell: (row) => row.executorsTotal },
            { name: "Tasks", wraps: true, cell: (row) => Object.entries(row.componentNumTasks).map(([name, count]) => `${name} ${count}`).join(", ") },
            { name: "Log", cell: (row) => h("a", { href: viewPath(row.host, `${row.topologyId}/${row.port}/worker.log`) }, "worker.log") },
          ],
          found.workers,
          { key: (row) => `${row.topologyId} ${row.port}`, empty: "No worker runs here." },
        ),
      ),
    );
  });
}
