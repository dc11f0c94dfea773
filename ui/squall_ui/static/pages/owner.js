// An owner of topologies: what these use together, and which they are.

import { request } from "../api.js";
import { h } from "../dom.js";
import { facts, poll, section } from "../parts.js";
import { topologies } from "./cluster.js";

export function owner(page, name) {
  page.title(name);
  poll(page, 2, async () => {
    const one = await request(`/api/v1/owner-resources/${encodeURIComponent(name)}`, { signal: page.signal });
    page.draw(
      h("nav.crumbs", { "aria-label": "Where you are" }, h("a", { href: "/" }, "Cluster")),
      h("h1", {}, name),
      facts([
        ["Topologies", one.totalTopologies],
        ["Workers", one.totalWorkers],
        ["Executors", one.totalExecutors.toLocaleString("en")],
        ["Tasks", one.totalTasks.toLocaleString("en")],
      ]),
      section("Topologies", topologies(one.topologies, "This owner has no topologies.")),
    );
  });
}
