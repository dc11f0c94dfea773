// Parts that several pages share: tables, headings, pills, dialogs.

import { request } from "./api.js";
import { h, morph } from "./dom.js";

export const path = (...parts) => `/${parts.map(encodeURIComponent).join("/")}`;
export const topologyPath = (id, ...more) => path("topology", id, ...more);
export const apiPath = (...parts) => `/api/v1${path(...parts)}`;

export function viewPath(host, file, daemon = false) {
  const query = new URLSearchParams({ host, file });
  if (daemon) query.set("daemon", "yes");
  return `/logs/view?${query}`;
}

const LONG = 24; // characters; a longer text of a cell wraps, so that the columns beside it are seen

// Numbers stand to the right; in a column that wraps, texts of any length have room.
function columnClass(column) {
  return column.num ? "num" : column.wraps ? "wraps" : null;
}

function tableCell(column, row, isFirst) {
  const cell = h(isFirst ? "th" : "td", { scope: isFirst ? "row" : null, class: columnClass(column) }, column.cell(row));
  if (!cell.className && cell.textContent.length > LONG && !cell.querySelector("button")) cell.className = "long";
  return cell;
}

// columns: [{ name, cell(row), num, wraps, title }]
export function table(label, columns, rows, { key, empty = "Nothing here.", rowClass } = {}) {
  if (!rows.length) return h("p.quiet", {}, empty);
  return h(
    "div.scroll",
    { tabindex: 0, role: "group", "aria-label": label },
    h(
      "table",
      { "aria-label": label },
      h("thead", {}, h("tr", {}, columns.map((one) => h("th", { scope: "col", class: columnClass(one), title: one.title }, one.name)))),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            { "data-key": key ? key(row) : null, class: rowClass?.(row) },
            columns.map((one, index) => tableCell(one, row, index === 0)),
          ),
        ),
      ),
    ),
  );
}

export function section(title, ...children) {
  return h("section", { "data-key": `section ${title}` }, h("h2", {}, title), ...children);
}

const TONES = { ACTIVE: "good", INACTIVE: "warn", REBALANCING: "warn", KILLED: "bad" };

export function statusPill(status) {
  return h("span.pill", { class: `tone-${TONES[status] ?? "calm"}` }, status.toLowerCase());
}

export function healthPill(health) {
  if (!health) return null;
  const tone = health === "ok" ? "good" : health === "starting" ? "warn" : "bad";
  return h("span.pill", { class: `tone-${tone}` }, health === "ok" ? "healthy" : health);
}

export function finishedPill(finished) {
  return finished ? h("span.pill.tone-good", { title: "All input is read, and nothing is in flight" }, "finished") : null;
}

// In a list: what is finished is well, too.
export function conditionPill(one) {
  return one.finished && one.health === "ok" ? finishedPill(true) : healthPill(one.health);
}

// How far a spout whose source ends has come; empty for one that does not say whether it ends.
export function inputWords(one) {
  if (one.exhausted === null || one.exhausted === undefined) return "";
  if (one.exhausted === 0) return "more to read";
  if (one.exhausted < one.tasks) return `ended in ${one.exhausted} of ${one.tasks} tasks`;
  return one.queue ? "ended, messages in flight" : "drained";
}

export function facts(pairs) {
  return h(
    "dl.facts",
    {},
    pairs.filter((pair) => pair).map(([name, value, title]) => h("div", { title }, h("dt", {}, name), h("dd", {}, value))),
  );
}

export function failed(page, error) {
  page.draw(h("h1", {}, "This page cannot be shown"), h("p.notice.bad", { role: "alert" }, error.message));
}

// A question before something is done, with its fields; `act(values)` does it and says what was done.
export function ask(page, { title, text, more = null, fields = [], verb, danger = false, act }) {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "dialog-title");
  let busy = false;
  const draw = (problem) =>
    morph(dialog, [
      h(
        "form",
        {
          method: "dialog",
          onsubmit: async (event, form) => {
            event.preventDefault();
            if (busy) return;
            busy = true;
            draw();
            const values = Object.fromEntries(new FormData(form));
            try {
              page.say(await act(values));
              dialog.close();
            } catch (error) {
              busy = false;
              draw(error.message);
            }
          },
        },
        h("h2", { id: "dialog-title" }, title),
        text ? h("p", {}, text) : null,
        more,
        fields.map((field) => h("label.field", {}, h("span", {}, field.label), inputOf(field))),
        problem ? h("p.notice.bad", { role: "alert" }, problem) : null,
        h(
          "div.buttons",
          {},
          h("button.ghost", { type: "button", onclick: () => dialog.close() }, "Cancel"),
          h("button", { type: "submit", class: danger ? "danger" : "main", disabled: busy }, busy ? "Working …" : verb),
        ),
      ),
    ]);
  draw();
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function inputOf({ name, type = "number", value = "", min, max, step, options }) {
  if (options) return h("select", { name }, options.map((one) => h("option", { value: one, selected: one === value }, one)));
  return h("input", { name, type, value, min, max, step, autocomplete: "off" });
}

export const post = (url, body) => request(url, { method: "POST", body });

// Read again and again, one after the other, until the page is left.
export async function poll(page, secs, read) {
  while (!page.signal.aborted) {
    try {
      await read();
    } catch (error) {
      if (page.signal.aborted) return;
      failed(page, error);
    }
    await new Promise((done) => setTimeout(done, secs * 1000));
  }
}
