// A configuration, with a filter.

import { request } from "../api.js";
import { h } from "../dom.js";
import { failed, table } from "../parts.js";

export async function configuration(page) {
  page.title("Configuration");
  try {
    show(page, "Configuration of Nimbus", null, await request("/api/v1/cluster/configuration", { signal: page.signal }));
  } catch (error) {
    failed(page, error);
  }
}

export function show(page, title, crumbs, conf, wanted = "") {
  const rows = Object.entries(conf).filter(([key, value]) => `${key} ${JSON.stringify(value)}`.toLowerCase().includes(wanted.toLowerCase()));
  page.draw(
    crumbs?.(),
    h("h1", {}, title),
    h(
      "label.filter",
      {},
      h("span", {}, "Filter"),
      h("input", { type: "search", "data-keep": true, oninput: (event) => show(page, title, crumbs, conf, event.target.value) }),
    ),
    table(
      title,
      [
        { name: "Key", cell: ([key]) => h("code", {}, key) },
        { name: "Value", cell: ([, value]) => h("code", {}, JSON.stringify(value)) },
      ],
      rows,
      { key: ([key]) => key, empty: "No key fits." },
    ),
  );
}
