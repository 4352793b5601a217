// Draw slices of tensors on canvases: 256 levels from the server, coloured here.
import { isDark, onTheme } from "./plot.js";
import { make, part, short } from "./dom.js";

const STOPS = {
  fire: [[4, 4, 16], [60, 15, 90], [150, 38, 100], [220, 80, 60], [250, 160, 30], [252, 250, 180]],
  grey: [[0, 0, 0], [255, 255, 255]],
  viridis: [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]],
  gap: [[48, 110, 205], [247, 247, 247], [205, 60, 45]],
  gapDark: [[110, 165, 255], [26, 33, 40], [255, 125, 100]],
  error: [[247, 247, 247], [158, 120, 200], [66, 20, 110]],
  errorDark: [[26, 33, 40], [130, 95, 180], [235, 215, 255]],
};

function lookup(name) {
  const stops = (isDark() && STOPS[`${name}Dark`]) || STOPS[name];
  const colours = new Uint8ClampedArray(1024);
  for (let level = 0; level < 256; level += 1) {
    const at = (level / 255) * (stops.length - 1), k = Math.min(Math.floor(at), stops.length - 2);
    for (let c = 0; c < 3; c += 1) colours[4 * level + c] = stops[k][c] + (at - k) * (stops[k + 1][c] - stops[k][c]);
    colours[4 * level + 3] = 255;
  }
  return colours;
}

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

export function decoded(volume) {
  return { ...volume, levels: bytes(volume.data), known: volume.known && bytes(volume.known), data: null };
}

const isKnown = (volume, at) => !volume.known || (volume.known[at >> 3] >> (7 - (at & 7))) & 1;

// Three slices as red, green and blue; unknown pixels are transparent.
function drawColour(canvas, volume) {
  const [rows, columns] = volume.shape, n = rows * columns, image = new ImageData(columns, rows);
  if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
  for (let i = 0; i < n; i += 1) {
    for (let c = 0; c < 3; c += 1) image.data[4 * i + c] = volume.levels[c * n + i];
    image.data[4 * i + 3] = isKnown(volume, i) ? 255 : 0;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// The mean of all slices, as a volume of one slice.
function flat(volume) {
  const [rows, columns, slices] = volume.shape, n = rows * columns, levels = new Uint8Array(n);
  for (let i = 0; i < n; i += 1) {
    let sum = 0;
    for (let c = 0; c < slices; c += 1) sum += volume.levels[c * n + i];
    levels[i] = Math.round(sum / slices);
  }
  return { ...volume, shape: [rows, columns, 1], levels };
}

// stretch: the part of a symmetric scale that the levels fill.
export function draw(canvas, volume, slice, colours, stretch = 1) {
  if (colours === "rgb") { drawColour(canvas, volume); return; }
  const [rows, columns, slices] = volume.shape;
  const k = Math.max(0, Math.min(slice, slices - 1)), table = lookup(colours);
  if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
  const image = new ImageData(columns, rows);
  for (let i = 0, at = k * rows * columns; i < rows * columns; i += 1, at += 1) {
    const level = 4 * Math.round(127.5 + stretch * (volume.levels[at] - 127.5));
    image.data[4 * i] = table[level];
    image.data[4 * i + 1] = table[level + 1];
    image.data[4 * i + 2] = table[level + 2];
    image.data[4 * i + 3] = isKnown(volume, at) ? 255 : 0;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// Images side by side that share one slider.
export class Gallery {
  constructor(root) {
    this.root = root;
    this.card = part(root, "gallery");
    this.place = part(this.card, "pictures");
    this.slider = this.card.querySelector('[data-field="slice"]');
    this.items = new Map();
    this.stacks = new Map();
    this.slider.addEventListener("input", () => this.redraw());
    const play = part(this.card, "play");
    play.addEventListener("click", () => {
      const on = play.getAttribute("aria-pressed") !== "true";
      play.setAttribute("aria-pressed", on);
      play.textContent = on ? "Pause" : "Play";
      clearInterval(this.timer);
      if (on) this.timer = setInterval(() => this.step(), 140);
    });
    onTheme(() => this.redraw());
  }

  step() {
    this.slider.value = (Number(this.slider.value) % Number(this.slider.max)) + 1;
    this.slider.dispatchEvent(new Event("input", { bubbles: true }));
  }

  clear() {
    this.items.clear();
    this.stacks.clear();
    this.place.replaceChildren();
    this.card.hidden = true;
  }

  // A container for images below each other; grey until they arrive.
  stack(name) {
    if (!this.stacks.has(name)) {
      this.stacks.set(name, make("div", { class: "stack" }));
      this.place.append(this.stacks.get(name));
    }
    return this.stacks.get(name);
  }

  show(key, title, volume, colours, stack = key) {
    if (!this.items.has(key)) {
      const canvas = make("canvas", { class: "pixels", role: "img" });
      const caption = make("figcaption");
      this.stack(stack).append(make("figure", {}, canvas, caption));
      this.items.set(key, { canvas, caption });
    }
    const inColour = [...this.items.values()].some((item) => item.colours === "rgb"), made = decoded(volume);
    Object.assign(this.items.get(key), { title, volume: inColour && colours !== "rgb" ? flat(made) : made, colours });
    const slices = volume.shape[2];
    if (Number(this.slider.max) !== slices) {
      this.slider.max = slices;
      this.slider.dispatchEvent(new Event("change", { bubbles: true }));
    }
    this.card.hidden = false;
    this.redraw(colours === "gap" ? undefined : key); // differences share a scale
  }

  redraw(only) {
    const slice = Number(this.slider.value) - 1;
    const output = this.slider.parentElement.querySelector("output");
    output.textContent = `${Math.min(slice + 1, Number(this.slider.max))} of ${this.slider.max}`;
    this.slider.setAttribute("aria-valuetext", output.textContent);
    const widest = Math.max(0, ...[...this.items.values()].filter((item) => item.colours === "gap").map((item) => item.volume.high));
    for (const [key, item] of this.items) {
      if (only && key !== only) continue;
      draw(item.canvas, item.volume, slice, item.colours, item.colours === "gap" ? item.volume.high / widest : 1);
      const name = item.title[0], what = item.colours === "gap" ? `${item.title[1]}; colours ±${short(widest)}` : item.title[1];
      item.caption.replaceChildren(make("b", {}, name), what ? ` ${what}` : "");
      item.canvas.setAttribute("aria-label", `${name} ${what}, slice ${slice + 1}`);
    }
  }
}

export const errorTitle = (volume) => `standard error, ≤\u00a0${short(volume.high)}`;
export const gapTitle = (volume) => `difference, at most ${short(volume.high)}`;
