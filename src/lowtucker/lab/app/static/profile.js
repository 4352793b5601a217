// One row of the slice: original, recovered, and two standard errors around it.
import { make, short } from "./dom.js";
import { css, onTheme } from "./plot.js";

const value = (volume, level) => volume.low + (level / 255) * (volume.high - volume.low);

export class Profile {
  constructor(gallery) {
    this.gallery = gallery;
    this.slider = make("input", { type: "range", min: "1", max: "1", value: "1" });
    this.output = make("output");
    this.plot = make("div", { class: "plot", role: "img", "aria-label": "Profile of a row; no data yet" });
    this.card = make("div", { class: "profile" }, make("div", { class: "card-head" }, make("h3", {}, "A row with error bars"),
      make("div", { class: "scrub" }, make("label", {}, "Row ", this.slider, this.output))), this.plot,
    make("p", { class: "hint" }, "Point at a picture, or move the slider. The band is the recovered row ± 2 standard errors. Pictures and rows are drawn in 256 levels."));
    this.card.hidden = true;
    gallery.place.after(this.card);
    this.slider.addEventListener("input", () => this.draw());
    gallery.slider.addEventListener("input", () => this.draw());
    gallery.place.addEventListener("pointermove", (event) => this.point(event));
    new ResizeObserver(() => this.draw()).observe(this.plot);
    onTheme(() => this.draw());
  }

  clear() { this.solver = null; this.card.hidden = true; }

  show(solver) {
    const first = !this.solver;
    this.solver = solver;
    this.card.hidden = false;
    const rows = this.gallery.items.get("truth").volume.shape[0];
    this.slider.max = rows;
    if (first) this.slider.value = Math.ceil(rows / 2);
    this.draw();
  }

  point(event) {
    if (!this.solver || event.target.tagName !== "CANVAS") return;
    const box = event.target.getBoundingClientRect();
    this.slider.value = Math.floor(((event.clientY - box.top) / box.height) * Number(this.slider.max)) + 1;
    this.draw();
  }

  row(key) {
    const { volume } = this.gallery.items.get(key), [rows, columns, slices] = volume.shape;
    const slice = Math.min(Number(this.gallery.slider.value), slices) - 1, from = (slice * rows + Number(this.slider.value) - 1) * columns;
    return [...volume.levels.subarray(from, from + columns)].map((level) => value(volume, level));
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!this.solver || !width) return;
    const truth = this.row("truth"), found = this.row(this.solver), error = this.row(`${this.solver} error`);
    const low = found.map((v, k) => v - 2 * error[k]), high = found.map((v, k) => v + 2 * error[k]);
    const text = `${this.slider.value} of ${this.slider.max}`, largest = Math.max(...error);
    this.output.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    this.plot.setAttribute("aria-label", `Row ${text}, ${this.solver}: recovered from ${short(Math.min(...found))} to ${short(Math.max(...found))}, standard errors up to ${short(largest)}`);
    this.chart?.destroy();
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const shown = (u, v) => (v === null || v === undefined ? "" : short(v)), line = css("--auto");
    this.chart = new uPlot({
      width, height: 200, scales: { x: { time: false } }, axes: [{ ...axis, label: "column", labelSize: 20, labelFont: axis.font }, { ...axis, size: 52 }],
      series: [{ label: "column", value: shown }, { label: "original", stroke: css("--ink"), dash: [5, 4], width: 1.5, points: { show: false }, value: shown }, { label: `recovered by ${this.solver}`, stroke: line, width: 2, points: { show: false }, value: shown },
        { label: "+ 2 standard errors", stroke: `${line}80`, width: 1, points: { show: false }, value: shown }, { label: "− 2 standard errors", stroke: `${line}80`, width: 1, points: { show: false }, value: shown }],
      bands: [{ series: [3, 4], fill: `${line}40` }], cursor: { drag: { x: false, y: false } },
    }, [found.map((_, k) => k + 1), truth, found, high, low], this.plot);
  }
}
