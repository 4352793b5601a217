// The page: tabs, the address, and the dialog with Python code.
import { about } from "./stream.js";
import { Data } from "./data.js";
import { Picture } from "./picture.js";
import { Phase } from "./phase.js";
import { Synthetic } from "./synthetic.js";

const limits = await about();
document.getElementById("version").textContent = limits.version;
const panels = { picture: new Picture(), synthetic: new Synthetic(), data: new Data(limits.limits), phase: new Phase() };
const tabs = [...document.querySelectorAll('[role="tab"]')];
let current = "picture";

// The address holds the settings of the open tab, except the file.
function address() {
  const { file, ...values } = panels[current].values();
  return `?${new URLSearchParams(values)}`;
}

let waiting = 0;
function remember(how) {
  clearTimeout(waiting);
  const url = address();
  if (url !== location.search) history[how](null, "", url);
}

function open(name, focus) {
  current = name;
  for (const tab of tabs) {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !chosen;
    if (chosen && focus) tab.focus();
  }
  panels[name].redraw();
}

function restore() {
  const values = Object.fromEntries(new URLSearchParams(location.search));
  const name = Object.hasOwn(panels, values.tab ?? "") ? values.tab : "picture";
  panels[name].restore(values);
  open(name);
}

for (const [k, tab] of tabs.entries()) {
  tab.addEventListener("click", () => { open(tab.id.slice(4)); remember("pushState"); });
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -k, End: tabs.length - 1 - k }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    open(tabs[(k + step + tabs.length) % tabs.length].id.slice(4), true);
    remember("pushState");
  });
}

for (const panel of Object.values(panels)) {
  panel.onChange = () => { clearTimeout(waiting); waiting = setTimeout(() => remember("replaceState"), 250); };
  // a run keeps its entry in the history; later changes go into a new entry
  panel.onRun = () => { if (address() !== panel.lastRun) history.pushState(null, "", address()); panel.lastRun = address(); };
  panel.adapt();
  panel.check();
}
addEventListener("popstate", restore);

// A file dropped outside the box is accepted too, instead of replacing the page.
for (const kind of ["dragover", "drop"]) {
  addEventListener(kind, (event) => {
    if (event.defaultPrevented || !event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    if (kind === "dragover") return;
    open("data");
    remember("pushState");
    panels.data.dropped(event);
  });
}
restore();

const dialog = document.getElementById("code");
document.getElementById("show-code").addEventListener("click", async () => {
  await panels[current].ask();
  document.getElementById("code-text").textContent = panels[current].shownCode();
  dialog.showModal();
});
document.getElementById("close-code").addEventListener("click", () => dialog.close());

function copies(button, text) {
  const before = button.textContent;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = before; }, 1500);
  });
}
copies(document.getElementById("copy-code"), () => document.getElementById("code-text").textContent);
copies(document.getElementById("share"), () => new URL(address(), location.href).href);
document.documentElement.dataset.ready = "true";
