// Curves, drawn by uPlot, with an equivalent table.
import { part, short, table } from "./dom.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const onTheme = (draw) => dark.addEventListener("change", draw);
export const isDark = () => dark.matches;

const SUPERS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const power = (k) => `10${k < 0 ? "⁻" : ""}${[...String(Math.abs(k))].map((d) => SUPERS[d]).join("")}`;

function decades(u, low, high) {
  if (low === null || !(low > 0)) return [1e-8, 1];
  const floor = Math.floor(Math.log10(low) + 1e-9), ceil = Math.ceil(Math.log10(high) - 1e-9);
  return [10 ** floor, 10 ** Math.max(ceil, floor + 1)];
}

// A grid line per power of ten, or fewer if there are many.
function tens(u, axis, low, high) {
  const first = Math.round(Math.log10(low)), last = Math.round(Math.log10(high)), every = Math.ceil((last - first) / 9);
  const lines = [];
  for (let k = first; k <= last; k += every) lines.push(10 ** k);
  return lines;
}

export class Curves {
  // curves: [{label, color (a CSS variable), x: [], y: [], dash}]
  constructor(root) {
    this.root = root;
    this.place = part(root, "plot");
    this.curves = [];
    this.options = { x: "epoch", y: "error", log: true };
    this.waiting = false;
    this.chart = null;
    new ResizeObserver(() => this.resize()).observe(this.place);
    onTheme(() => this.rebuild());
  }

  show(curves, options = {}) {
    const before = this.signature;
    this.curves = curves;
    this.options = { ...this.options, ...options };
    this.signature = JSON.stringify([curves.map((c) => [c.label, c.color]), this.options]);
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (!this.chart || this.drawn !== this.signature) this.rebuild();
      else this.chart.setData(this.data());
      this.describe();
    });
    return before;
  }

  clear() {
    this.chart?.destroy();
    this.chart = null;
    this.curves = [];
    part(this.root, "table")?.replaceChildren();
  }

  data() {
    const clean = (v) => (v === null || (this.options.log && !(v > 0)) ? (this.options.log && v === 0 ? 1e-17 : null) : v);
    const tables = this.curves.filter((c) => c.x.length).map((c) => [c.x, c.y.map(clean)]);
    if (!tables.length) return [[], ...this.curves.map(() => [])];
    const joined = uPlot.join(tables);
    let k = 0;
    return [joined[0], ...this.curves.map((c) => (c.x.length ? joined[++k] : joined[0].map(() => null)))];
  }

  resize() {
    const width = this.place.clientWidth;
    if (this.chart && width && width !== this.chart.width) this.chart.setSize({ width, height: this.height(width) });
    else if (!this.chart && width && this.curves.length) this.rebuild();
  }

  height(width) { return Math.round(Math.max(220, Math.min(340, width * 0.5))); }

  rebuild() {
    const width = this.place.clientWidth;
    this.chart?.destroy();
    this.chart = null;
    this.drawn = this.signature;
    if (!this.curves.length || !width) return;
    const { log, x, y, tolerance } = this.options;
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 20 };
    const shown = (u, v) => (v === null || v === undefined ? "" : short(v));
    this.chart = new uPlot({
      width, height: this.height(width),
      scales: { x: { time: false, ...(this.options.domain ? { range: this.options.domain } : {}) }, y: log ? { distr: 3, range: decades } : { range: (u, a, b) => [0, (b || 1) * 1.05] } },
      axes: [{ ...axis, label: x }, { ...axis, label: y, size: 52, ...(log ? { splits: tens, filter: (u, splits) => splits, values: (u, splits) => splits.map((v) => power(Math.round(Math.log10(v)))) } : {}) }],
      series: [{ label: x, value: shown }, ...this.curves.map((c) => ({
        label: c.label, stroke: c.faint ? `${css(c.color) || c.color}80` : css(c.color) || c.color, width: c.faint ? 1 : 2.2, spanGaps: true, dash: c.dash, points: { show: (u) => u.data[0].length < 40, size: 5 }, value: shown,
      }))],
      legend: { markers: { // solid or dashed, as the line
        width: 3, fill: (u, k) => (u.series[k].dash ? "transparent" : u.series[k].stroke(u, k)), dash: (u, k) => (u.series[k].dash ? "dashed" : "solid"),
      } },
      cursor: { points: { size: 7 }, drag: { x: false, y: false } },
      hooks: { draw: [(u) => tolerance && this.line(u, tolerance)] },
    }, this.data(), this.place);
  }

  line(u, value) {
    const y = Math.round(u.valToPos(value, "y", true));
    if (y < u.bbox.top || y > u.bbox.top + u.bbox.height) return;
    u.ctx.save();
    u.ctx.strokeStyle = css("--soft");
    u.ctx.setLineDash([4, 5]);
    u.ctx.beginPath();
    u.ctx.moveTo(u.bbox.left, y);
    u.ctx.lineTo(u.bbox.left + u.bbox.width, y);
    u.ctx.stroke();
    u.ctx.restore();
  }

  // Update the description for screen readers and the table.
  describe() {
    const { x, y } = this.options;
    const ends = this.curves.filter((c) => c.y.length).map((c) => `${c.label}: ${short(c.y.at(-1))} at ${x} ${short(c.x.at(-1))}`);
    this.place.setAttribute("aria-label", `${y} against ${x}. ${ends.join("; ") || "No data yet"}.`);
    const place = part(this.root, "table");
    if (!place || !place.parentElement.open) return;
    this.tabulate();
  }

  tabulate() {
    const { x, y } = this.options;
    const rows = [];
    for (const c of this.curves) {
      const every = Math.max(1, Math.ceil(c.x.length / 60));
      c.x.forEach((v, k) => { if (k % every === 0 || k === c.x.length - 1) rows.push([c.label, short(v), short(c.y[k])]); });
    }
    part(this.root, "table").replaceChildren(table(["curve", x, y], rows));
  }
}
