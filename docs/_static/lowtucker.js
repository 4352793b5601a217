/* Tables that do not fit are stacked: every row becomes a block, every cell says its column. The roles keep
   them tables for screen readers, which forget them when `display` changes. Without scripts they scroll. */
const ROLES = { thead: "rowgroup", tbody: "rowgroup", tr: "row", th: "columnheader", td: "cell" };

function label(table) {
  const heads = [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) => cell.textContent.trim());
  table.setAttribute("role", "table");
  for (const [tag, role] of Object.entries(ROLES))
    for (const part of table.getElementsByTagName(tag)) part.setAttribute("role", role);
  for (const row of table.tBodies[0]?.rows ?? [])
    [...row.cells].forEach((cell, k) => { if (heads[k]) cell.dataset.label = heads[k]; });
}

function fit(table) {
  table.classList.remove("stacked");
  if (table.scrollWidth <= table.parentElement.clientWidth + 1) return;
  label(table);
  table.classList.add("stacked");
}

/* What scrolls can be scrolled by keyboard */
function reachable(box) {
  if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
  else box.removeAttribute("tabindex");
}

function arrange() {
  document.querySelectorAll(".pst-scrollable-table-container > table").forEach(fit);
  document.querySelectorAll("div.math, span.math").forEach(reachable);
}

/* Names for what the theme shows as a symbol only */
function name() {
  for (const summary of document.querySelectorAll(".bd-sidebar-primary summary")) {
    const link = summary.closest("li")?.querySelector("a");
    summary.setAttribute("aria-label", `Pages of “${link?.textContent.trim() ?? "this section"}”`);
  }
  for (const button of document.querySelectorAll(".search-button-field"))
    button.setAttribute("aria-label", button.innerText.replace(/\s+/g, " ").trim() || "Search");
}

function start() {
  name();
  arrange();
  addEventListener("load", arrange);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) arrange();
    width = innerWidth;
  });
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
