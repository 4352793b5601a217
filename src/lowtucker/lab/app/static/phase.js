// Tab 4: success rates over (m/dof, rank), and the figures of the paper.
import { counted, make, part, short } from "./dom.js";
import { Panel } from "./panel.js";
import { Curves } from "./plot.js";
import { Gallery } from "./pictures.js";

const PALETTE = ["--tiht", "--stotiht", "--auto", "#b04fc4", "#8a8f2a", "#d0417e", "--soft"];
const STORIES = {
  grid: "Each cell shows the share of random tensors recovered, for a rank and a number of measurements per degree of freedom. There is a sharp transition from failure to success.",
  fig1: "Figure 1: with the published step, StoTIHT needs slightly fewer epochs with larger blocks, and for every block size fewer than TIHT, which uses all rows at once (b = m).",
  fig2: "Figure 2: the same runs against time, where small blocks are slow because of their many iterations.",
  fig3: "Figure 3: how often TIHT and StoTIHT recover a 5 × 5 × 6 tensor from few measurements, with the paper's settings.",
  fig4: "Figure 4: many measurements, but few epochs.",
  fig5: "Figure 5: epochs to recovery for TIHT and StoTIHT.",
  fig6: "Figure 6: a clip recovered from 30 000 measurements. A synthetic flame replaces the authors' candle. The matrix takes 1.1 GB, and the run half a minute.",
  fig7: "Figure 7: cost and error on the clip of Figure 6. The matrix takes 1.1 GB, and the run half a minute.",
};

function grouped(rows, key) {
  const groups = new Map();
  for (const row of rows) groups.set(key(row), [...(groups.get(key(row)) ?? []), row]);
  return groups;
}

// A table whose cells are coloured as their values arrive.
class Heat {
  constructor(place, title, corner, columns, rows) {
    this.fields = new Map();
    const head = make("tr", {}, make("th", { scope: "col" }, corner), ...columns.map((c) => make("th", { scope: "col" }, c[1])));
    const compact = columns.length > 10;
    const body = rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row[1], ...(row[2] ? [make("small", {}, ` ${row[2]}`)] : [])), ...columns.map((column) => {
      const field = make("td", {}, "");
      this.fields.set(`${row[0]} ${column[0]}`, field);
      return field;
    })));
    const table = make("table", { class: "heat" }, make("thead", {}, head), make("tbody", {}, ...body));
    if (compact) table.style.minWidth = `${5 + 2.4 * columns.length}rem`;
    place.append(make("div", { class: "card" }, make("div", { class: "card-head" }, make("h2", {}, title)), make("div", { class: "scroll" }, table)));
  }

  fill(row, column, share, text, title) {
    const field = this.fields.get(`${row} ${column}`);
    field.dataset.rate = share;
    field.style.setProperty("--rate", share);
    field.classList.toggle("high", share > 0.9);
    field.textContent = text;
    field.title = title;
    delete field.dataset.guess;
    this.guess();
  }

  // Empty cells get the colour of the nearest computed one, faintly: the diagram fills coarse to fine.
  guess() {
    const all = [...this.fields.values()], places = new Map(all.map((field) => [field, [field.parentElement.rowIndex, field.cellIndex]]));
    const known = all.filter((field) => field.dataset.rate !== undefined);
    for (const field of all) {
      if (field.dataset.rate !== undefined) continue;
      const [i, j] = places.get(field), far = (other) => { const [k, l] = places.get(other); return Math.hypot(2 * (i - k), j - l); };
      const nearest = known.reduce((best, other) => (far(other) < far(best) ? other : best));
      field.dataset.guess = nearest.dataset.rate;
      field.style.setProperty("--rate", nearest.dataset.rate);
    }
  }
}

export class Phase extends Panel {
  constructor() {
    super("phase");
    this.preset = this.values().preset;
    this.curves = new Curves(this.root);
    this.gallery = new Gallery(this.root);
    this.root.querySelector("details").addEventListener("toggle", () => this.curves.tabulate());
  }

  adapt(target) {
    const own = this.values().preset === "grid";
    part(this.root, "grid").hidden = !own;
    part(this.root, "trials").hidden = ["fig6", "fig7"].includes(this.values().preset); // one clip each
    if (target?.dataset.field === "preset") this.choose();
  }

  // Another experiment: its story, and no answer yet.
  choose() {
    this.story();
    if (this.running) return;
    this.preset = this.values().preset;
    this.found = null;
    this.answer();
  }

  restore(values) { super.restore(values); this.choose(); }
  story() { part(this.root, "story").textContent = STORIES[this.values().preset]; }

  begin() {
    this.preset = this.values().preset;
    this.rows = [];
    this.found = null;
    this.done = 0;
    this.heats = {};
    this.curves.clear();
    this.gallery.clear();
    part(this.root, "curves").hidden = true;
    for (const name of ["diagrams", "notices"]) part(this.root, name).replaceChildren();
    this.progress("Starting…");
  }

  progress(text) {
    const place = part(this.root, "progress"), bar = place.querySelector("progress");
    place.hidden = false;
    if (this.total) Object.assign(bar, { max: this.total, value: this.done });
    else bar.removeAttribute("value");
    place.querySelector("span").textContent = text ?? `${this.done} of ${this.total}`;
  }

  hear(event) {
    if (event.event === "problem") this.problem(event);
    if (event.event === "cell") this.cell(event);
    if (event.event === "rows") this.more_rows(event.rows);
    if (event.event === "frames") this.frames(event);
    if (event.event === "notice") part(this.root, "notices").append(make("p", {}, event.text));
  }

  problem(event) {
    this.total = event.total;
    this.event = event;
    if (this.preset === "grid") {
      const columns = event.ratios.map((q) => [q, `${Number(q.toFixed(2))}`]);
      const rows = event.ranks.map((r, k) => [r.join("-"), `(${r.join(",")})`, `${event.dofs[k]} dof`]).reverse();
      this.heats.grid = new Heat(part(this.root, "diagrams"), "Share recovered, %, over measurements per degree of freedom", "rank", columns, rows);
    } else {
      part(this.root, "diagrams").append(make("p", { class: "caption" }, event.caption));
    }
    this.progress(this.total === 1 ? "One computation; results are shown at the end…" : null);
  }

  cell(event) {
    this.done += 1;
    const key = event.rank.join("-"), percent = Math.round(100 * event.rate);
    this.heats.grid.fill(key, event.ratio, event.rate, String(percent), `rank (${event.rank}), m = ${event.m}: ${event.recovered} of ${event.trials} recovered, median error ${short(event.median_error)}`);
    this.rows.push({ algorithm: "", rank: key, x: event.ratio, y: event.rate });
    this.progress();
    this.redraw();
  }

  more_rows(rows) {
    this.done += 1;
    const named = rows.map((row) => Object.fromEntries(this.event.columns.map((name, k) => [name, row[k]])));
    this.rows.push(...named);
    if (["fig3", "fig4", "fig5"].includes(this.preset)) named.forEach((row) => this.field(row));
    this.progress();
    this.redraw();
  }

  // Figures 3 to 5: one diagram per algorithm.
  field(row) {
    const epochs = this.preset === "fig5", ranks = ["2-2-3", "2-2-2", "1-2-2", "1-1-2"];
    if (!this.heats[row.algorithm]) {
      const [first, last] = this.domain(), step = this.preset === "fig3" ? 6 : 20, columns = [];
      for (let m = first; m <= last; m += step) columns.push([m, String(m)]);
      const title = `${row.algorithm}: ${epochs ? "mean epochs to success" : "share recovered, %"}, over measurements m`;
      this.heats[row.algorithm] = new Heat(part(this.root, "diagrams"), title, "rank", columns, ranks.map((r) => [r, `(${r.replaceAll("-", ",")})`]));
    }
    const value = epochs ? row.mean_epochs : row.success_rate;
    const share = epochs ? (value === null ? 0 : Math.max(0, 1 - value / 200)) : value;
    const text = epochs ? (value === null ? "–" : value.toFixed(0)) : String(Math.round(100 * value));
    this.heats[row.algorithm].fill(row.rank, row.m, share, text, `rank ${row.rank}, m = ${row.m}, ${row.trials} trials`);
  }

  frames(event) {
    this.gallery.show("truth", ["Original", ""], event.truth, "grey");
    for (const [name, volume] of Object.entries(event.found)) this.gallery.show(name, [name, ""], volume, "grey");
  }

  redraw() {
    if (!this.rows?.length || this.preset === "fig6") return;
    part(this.root, "curves").hidden = false;
    const lines = ["fig1", "fig2", "fig7"].includes(this.preset);
    part(this.root, "quantity").hidden = !lines;
    const [curves, options] = lines ? this.convergence() : this.success();
    this.curves.show(curves, options);
  }

  convergence() {
    const quantity = this.values().y === "cost" ? "cost" : "relative_error", x = this.preset === "fig2" ? "seconds" : "epoch";
    const groups = grouped(this.rows, (row) => (row.block_size ? (row.algorithm === "TIHT" ? "TIHT, all rows" : `b = ${row.block_size}`) : row.algorithm));
    const names = [...groups.keys()].filter((name) => !(name === "b = 360" && groups.has("TIHT, all rows")));
    const isTiht = (name) => groups.get(name)[0].algorithm === "TIHT";
    const curves = names.map((name, k) => ({ label: name, color: isTiht(name) ? "--ink" : PALETTE[k % PALETTE.length], dash: isTiht(name) ? [6, 4] : undefined, x: groups.get(name).map((row) => row[x]), y: groups.get(name).map((row) => row[quantity]) }));
    return [curves, { x: x === "epoch" ? "epochs" : "seconds of one trial", y: `mean ${quantity.replace("_", " ")}`, log: true, domain: null }];
  }

  success() {
    const grid = this.preset === "grid", y = grid ? "y" : this.preset === "fig5" ? "mean_epochs" : "success_rate";
    const groups = grouped(this.rows, (row) => `${row.algorithm} ${row.rank.replaceAll("-", ",")}`.trim());
    const ranks = [...new Set(this.rows.map((row) => row.rank))].sort();
    const curves = [...groups].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, rows]) => {
      const sorted = [...rows].sort((a, b) => (grid ? a.x - b.x : a.m - b.m));
      return { label: name, color: PALETTE[ranks.indexOf(rows[0].rank) % PALETTE.length], dash: rows[0].algorithm === "TIHT" ? [6, 4] : undefined, x: sorted.map((r) => (grid ? r.x : r.m)), y: sorted.map((r) => r[y]) };
    });
    return [curves, { x: grid ? "measurements per degree of freedom" : "measurements m", y: y === "mean_epochs" ? "mean epochs" : "share recovered", log: false, domain: grid ? [Math.min(...this.event.ratios), Math.max(...this.event.ratios)] : this.domain() }];
  }

  domain() { return this.preset === "fig3" ? [18, 102] : [240, 460]; }

  tell(facts) {
    this.story();
    if (facts.recoveries) part(this.root, "story").append(` ${counted(facts.cells)} cells, ${counted(facts.recoveries)} recoveries.`);
  }

  // The smallest ratio from which on every computed cell has a rate of at least 95 %.
  turning() {
    const ratios = [...new Set(this.rows.map((row) => row.x))].sort((a, b) => b - a);
    const all = (q) => this.rows.filter((row) => row.x === q).every((row) => row.y >= 0.95);
    const times = (q) => `${Number(q.toFixed(2))} × dof`;
    let least = null;
    for (const q of ratios) { if (!all(q)) break; least = q; }
    if (!ratios.length) return ["no", "none", "No cell was computed: all need more measurements than there are entries."];
    if (least === null) return ["no", `more than ${times(ratios[0])}`, "Not all ranks are recovered even at the largest ratio."];
    const there = this.rows.filter((row) => row.x >= least), wanted = this.event.ratios.filter((q) => q >= least).length * this.event.ranks.length;
    if (there.length === wanted) return ["yes", `m ≥ ${times(least)}`, "At least 95 % are recovered at all ranks."];
    const ranks = this.event.ranks.map((r) => r.join("-")).filter((r) => there.some((row) => row.rank === r)).map((r) => `(${r.replaceAll("-", ",")})`);
    return ["yes", `m ≥ ${times(least)}`, `At least 95 % are recovered in all computed cells: at the ranks ${ranks.join(", ")}. ${wanted - there.length} of ${wanted} cells were not computed: they need more measurements than there are entries.`];
  }

  question() { return this.preset === "grid" ? "How many measurements are enough?" : `Figure ${this.preset.slice(3)}:`; }
  answers() { return this.found ? [this.found] : []; }

  finished(text) {
    for (const heat of Object.values(this.heats)) for (const field of heat.fields.values()) delete field.dataset.guess;
    const [kind, word, said] = this.preset === "grid" ? this.turning() : ["", "done", `${this.done} of ${this.total} computed.`];
    this.found = text ? null : [kind, "", word, said];
    part(this.root, "progress").hidden = true;
    this.total = 0;
  }
}
