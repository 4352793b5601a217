// Curves, verdicts and images shared by the synthetic tab and the data tab.
import { counted, make, part, short } from "./dom.js";
import { Curves } from "./plot.js";
import { Profile } from "./profile.js";
import { Gallery, errorTitle, gapTitle } from "./pictures.js";

const COLUMNS = ["epoch", "passes", "seconds", "residual", "error"];
const COLOURS = { TIHT: "--tiht", StoTIHT: "--stotiht", auto: "--auto" };
const LABELS = { epoch: "epochs", passes: "passes over the measurements", seconds: "seconds", residual: "relative residual", error: "relative error" };

const verdict = (event) => [event.success ? "yes" : "no", event.headline, event.advice];

// Data are only approximately of low rank: compare with the best approximation of the rank.
function nearness(event) {
  const near = event.error !== null && event.error <= Math.max(1.5 * event.best, 1e-4);
  const numbers = `The relative error is ${short(event.error)}; the best approximation of this rank has ${short(event.best)}.`;
  if (near && event.success) return ["yes", "recovered", numbers];
  if (near) return ["", "approximated", `${numbers} A larger rank, with enough measurements, is more accurate.`];
  return ["no", "not recovered", `${numbers} ${event.advice}`];
}

// What a user has without low rank.
function beforeTitle(before, share) {
  const error = `error ${short(before.error)}`;
  if (before.what === "holes") return ["Without it: holes", `${(100 * share).toPrecision(2)} % are known`];
  return ["Without low rank", `the least-norm answer, ${error}`];
}

// A column at the epochs of the least residual so far.
function bestSoFar(columns, name) {
  let least = Infinity, at = 0;
  return columns.residual.map((r, k) => {
    if (r !== null && r <= least) { least = r; at = k; }
    return columns[name][at];
  });
}

// Whether a run began again: its residual rises to more than thrice the least.
function rises(residual) {
  let least = Infinity;
  return residual.some((r) => { least = Math.min(least, r ?? Infinity); return r !== null && r > 3 * least; });
}

export class Recovery {
  constructor(root, colours, { stacked = false, judge } = {}) {
    this.root = root;
    this.colours = colours;
    this.stacked = stacked;
    this.own = Boolean(judge); // the page judges beside Run, the cards show the solver's own verdict
    this.judge = judge ?? ((event) => (event.best === null ? verdict(event) : nearness(event)));
    this.curves = new Curves(root);
    this.gallery = new Gallery(root);
    this.profile = new Profile(this.gallery);
    this.verdicts = part(root, "verdicts");
    this.runs = new Map();
    this.remarks = new Map(); // on standard errors: text, and the solvers that it is about
    root.querySelector("details").addEventListener("toggle", () => this.curves.tabulate());
  }

  begin() {
    this.runs.clear();
    this.curves.clear();
    this.gallery.clear();
    this.profile.clear();
    this.verdicts.replaceChildren();
    part(this.root, "notices").replaceChildren();
    part(this.root, "bars-words").hidden = true;
    part(this.root, "bars-remarks").replaceChildren();
    this.remarks.clear();
  }

  hear(event) {
    const heard = { problem: this.problem, start: this.start, points: this.points, picture: this.picture, result: this.result, bars: this.bars, notice: this.notice };
    heard[event.event]?.call(this, event);
  }

  problem(event) {
    this.palette = this.colours(event.truth);
    this.before = event.before;
    const truth = () => this.gallery.show("truth", ["Original", `${event.truth.shape.join(" × ")}`], event.truth, this.palette);
    if (this.stacked) truth();
    this.gallery.show("before", beforeTitle(event.before, event.share), event.before.picture, this.palette, this.stacked ? "truth" : "before");
    for (const name of event.solvers) {
      this.gallery.stack(name);
      if (!this.stacked) { truth(); this.gallery.stack(`${name} gap`); }
      const card = make("div", { class: "verdict" }, make("h3", {}, name, make("span", { class: "badge" }, "waiting")));
      card.style.setProperty("--c", `var(${COLOURS[name]})`);
      this.verdicts.append(card);
      const columns = Object.fromEntries(COLUMNS.map((column) => [column, []]));
      this.runs.set(name, { columns, card, done: false });
    }
    this.draw();
  }

  start(event) { this.runs.get(event.solver).card.querySelector(".badge").textContent = "running"; }

  points(event) {
    const { columns } = this.runs.get(event.solver);
    for (const point of event.points) COLUMNS.forEach((name, k) => columns[name].push(name === "epoch" ? columns.epoch.length + 1 : point[k])); // several fits count on
    this.draw();
  }

  picture(event) {
    this.gallery.show(event.solver, [this.stacked ? event.solver : "Recovered", ""], event.recovered, this.palette);
    this.gallery.show(`${event.solver} gap`, [event.solver, gapTitle(event.difference)], event.difference, "gap", this.stacked ? event.solver : undefined);
  }

  result(event) {
    const run = this.runs.get(event.solver);
    run.columns = event.history;
    run.done = true;
    const [kind, word, text] = this.judge(event);
    run.answer = [kind, this.runs.size > 1 ? event.solver : "", word, text];
    const [tone, headline, said] = this.own ? verdict(event) : [kind, word, text];
    const badge = make("span", { class: `badge ${tone}` }, headline);
    const numbers = [["error", short(event.error)], ["residual", short(event.residual)], ["effort", `${counted(event.epochs)} epochs, ${short(event.passes)} passes, ${short(event.seconds)} s`]];
    const list = make("dl", {}, ...numbers.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
    run.card.dataset.status = event.status;
    run.card.replaceChildren(make("h3", {}, event.solver, badge), make("p", {}, said), list);
    this.picture(event);
    this.draw();
  }

  // Standard errors on a scale of their own, and what they presume.
  bars(event) {
    const { solver, standard_error: errors, remark } = event;
    if (errors) {
      this.gallery.show(`${solver} error`, [solver, errorTitle(errors)], errors, "error", this.stacked ? solver : undefined);
      part(this.root, "bars-words").hidden = false;
      if (this.palette !== "rgb") this.profile.show(solver);
    }
    if (remark) this.remarks.set(remark, [...(this.remarks.get(remark) ?? []), solver]);
    const lines = [...this.remarks].map(([text, names]) => make("p", { class: "hint" }, make("b", {}, names.join(", ")), `: ${text}`));
    part(this.root, "bars-remarks").replaceChildren(...lines);
  }

  notice(event) { part(this.root, "notices").append(make("p", {}, event.text)); }

  draw() {
    const pick = (name) => this.root.querySelector(`[data-field="${name}"]`).value;
    const x = pick("x"), known = [...this.runs.values()].some((run) => run.columns.error.some((v) => v !== null));
    const y = this.runs.size && !known ? "residual" : pick("y"); // combined fits have no history of errors
    const main = [], attempts = [];
    for (const [label, { columns }] of this.runs) {
      const best = bestSoFar(columns, y);
      main.push({ label, color: COLOURS[label], x: columns[x], y: best });
      if (rises(columns.residual)) attempts.push({ label: `${label}, every epoch`, color: COLOURS[label], x: columns[x], y: columns[y], faint: true });
    }
    const note = part(this.root, "sawtooth");
    note.hidden = !attempts.length;
    note.textContent = "Bold: the best tensor so far, by its residual. Thin: every epoch; where it rises, the solver began again from another start or with other settings.";
    const curves = [...main, ...attempts];
    this.curves.show(curves, { x: LABELS[x], y: LABELS[y], log: true, tolerance: y === "residual" ? 1e-6 : null });
  }

  // Of finished runs: kind, solver, word, sentence.
  answers() { return [...this.runs.values()].filter((run) => run.answer).map((run) => run.answer); }

  stopped() {
    for (const run of this.runs.values()) {
      if (!run.done) run.card.querySelector(".badge").textContent = "stopped";
    }
  }
}

// What the number of measurements means for the degrees of freedom, where it is critical.
export function critical(ratio) {
  if (ratio === null || ratio >= 1.5) return "";
  return ratio < 1 ? "This is fewer than its degrees of freedom: recovery is impossible." : "This is close to the minimum.";
}

// Three bars to scale: entries, measurements, degrees of freedom.
export function bars(place, facts) {
  const most = Math.max(facts.entries, facts.m);
  const rows = [["entries", facts.entries, "all"], ["measurements", facts.m, "m"], ["degrees of freedom", facts.dof, "dof"]].filter(([, n]) => n !== null);
  place.replaceChildren(...rows.flatMap(([name, n, kind]) => {
    const bar = make("i", { class: kind });
    bar.style.width = `${(100 * n) / most}%`;
    return [make("span", {}, `${counted(n)} ${name}`), bar];
  }));
  place.setAttribute("aria-label", rows.map(([name, n]) => `${counted(n)} ${name}`).join(", "));
  place.hidden = false;
}
