// Helpers: elements, numbers, and the settings in controls.
export const part = (root, name) => root.querySelector(`[data-part="${name}"]`);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function short(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 0.01 && size < 10000 ? String(Number(value.toPrecision(3))) : value.toExponential(1);
}

export const counted = (n) => Number(n).toLocaleString("en");

const joins = { shape: ",", rank: ",", rows: ":", columns: ":", frames: ":" };

function fields(root) {
  const found = new Map();
  for (const control of root.querySelectorAll("[data-field]")) {
    const name = control.dataset.field;
    found.set(name, [...(found.get(name) ?? []), control]);
  }
  return found;
}

// Settings of a panel, as texts for the address and the server.
export function read(root) {
  const values = {};
  for (const [name, controls] of fields(root)) {
    if (controls[0].type === "checkbox") {
      values[name] = controls.filter((c) => c.checked).map((c) => c.value).join(",");
    } else {
      values[name] = controls.map((c) => c.value).join(joins[name] ?? ",");
    }
  }
  return values;
}

export function write(root, values) {
  for (const [name, controls] of fields(root)) {
    if (!(name in values)) continue;
    if (controls[0].type === "checkbox") {
      const chosen = values[name].split(",");
      for (const control of controls) control.checked = chosen.includes(control.value);
      continue;
    }
    const words = values[name].split(controls.length > 1 ? joins[name] ?? "," : "\0");
    controls.forEach((control, k) => {
      const value = words[k] ?? "";
      if (control.type === "range" && Number(value) > Number(control.max)) control.max = value;
      if (control.type === "range" && Number(value) < Number(control.min)) control.min = value;
      if (control.tagName !== "SELECT" || [...control.options].some((o) => o.value === value)) control.value = value;
    });
  }
  label(root);
}

// Show the values of the sliders.
export function label(root) {
  for (const slider of root.querySelectorAll('input[type="range"]:not([data-field="slice"])')) {
    const output = slider.parentElement.querySelector("output");
    const value = Number(slider.value);
    const units = { "×": `${value}×`, "%": `${(100 * value).toFixed(1)} %`, share: `${value} %` };
    const text = units[slider.dataset.unit] ?? String(value);
    if (output) output.textContent = text;
    slider.setAttribute("aria-valuetext", text);
  }
}

export function mark(root, field) {
  for (const control of root.querySelectorAll("[data-field]")) {
    if (field && control.dataset.field === field) control.setAttribute("aria-invalid", "true");
    else control.removeAttribute("aria-invalid");
  }
}

export function say(element, text) {
  element.textContent = text;
  element.hidden = !text;
}

export function table(columns, rows) {
  const head = make("tr", {}, ...columns.map((name) => make("th", { scope: "col" }, name)));
  const body = rows.map((row) => make("tr", {}, ...row.map((value) => make("td", {}, value))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}
