// Tab 3: recovery of a part of an uploaded file.
import { counted, make, part, read, say, write } from "./dom.js";
import { Panel } from "./panel.js";
import { decoded, draw } from "./pictures.js";
import { Recovery, bars, critical } from "./recovery.js";
import { example, forget, upload } from "./stream.js";

const AXES = ["rows", "columns", "frames"];
const PART = [32, 32, 12];
const RANK = [6, 6, 3];

export class Data extends Panel {
  constructor(limits) {
    super("data");
    this.limits = limits;
    this.file = null;
    this.wanted = {};
    this.recovery = new Recovery(this.root, (truth) => (truth.low >= 0 && truth.high <= 1 ? "grey" : "viridis"));
    const drop = part(this.root, "drop"), input = part(this.root, "file");
    input.addEventListener("change", () => input.files[0] && this.take(() => upload(input.files[0]), input.files[0]));
    part(this.root, "example").addEventListener("click", () => this.take(example));
    for (const kind of ["dragover", "dragleave", "drop"]) {
      drop.addEventListener(kind, (event) => {
        event.preventDefault();
        drop.classList.toggle("over", kind === "dragover");
        if (kind === "drop") this.dropped(event);
      });
    }
    for (const button of this.root.querySelectorAll("[data-per-dof]")) button.addEventListener("click", () => this.perDof(Number(button.dataset.perDof)));
    this.listenToPreview();
    addEventListener("pagehide", () => this.file && forget(this.file.key));
  }

  dropped(event) {
    const file = event.dataTransfer.files[0];
    if (file) this.take(() => upload(file), file);
  }

  // A run with so many measurements per degree of freedom of the given rank.
  async perDof(ratio) {
    if (this.running) this.stop();
    write(this.root, { known: "given" });
    await this.ask();
    if (this.wrong) return;
    await this.preset(`share=${Math.min(100, (100 * ratio * this.facts.dof) / this.facts.entries).toPrecision(2)}`);
  }

  more() { return this.file ? { file: this.file.key } : {}; }
  ready() { return Boolean(this.file); }

  restore(values) {
    this.wanted = values;
    super.restore(values);
  }

  async take(send, file) {
    const status = part(this.root, "uploading");
    say(part(this.root, "refused"), "");
    if (file && file.size > this.limits.upload_bytes) {
      say(part(this.root, "refused"), `${file.name} has ${Math.ceil(file.size / 1e6)} MB; the limit of this page is ${this.limits.upload_bytes / 1e6} MB. Cut it, or use \`lowtucker video\`.`);
      return;
    }
    status.textContent = "Reading…";
    try {
      const found = await send();
      if (this.file) forget(this.file.key);
      this.file = found;
      this.opened();
    } catch (error) {
      status.textContent = "";
      say(part(this.root, "refused"), error.message);
    }
  }

  get chosen() {
    const name = read(this.root).array;
    return Math.max(0, this.file.arrays.findIndex((one) => one.name === name));
  }

  get shape() { return this.file.arrays[this.chosen].shape; }

  opened() {
    const select = this.root.querySelector('[data-field="array"]');
    select.replaceChildren(...this.file.arrays.map((one) => make("option", { value: one.name ?? "" }, `${one.name} (${one.shape.join(" × ")})`)));
    part(this.root, "array-row").hidden = this.file.arrays.length < 2;
    part(this.root, "chosen").hidden = false;
    this.cropped(true);
    this.wanted = {};
  }

  // The part in the address if it is valid, otherwise a central part that is quick to recover.
  cropped(first) {
    const values = {};
    part(this.root, "uploading").textContent = `${this.file.file}: ${this.shape.join(" × ")}`;
    this.shape.forEach((n, k) => {
      const given = first && /^(\d+):(\d+)$/.exec(this.wanted[AXES[k]] ?? "");
      const size = Math.min(n, PART[k]), begin = k < 2 ? Math.floor((n - size) / 2) + 1 : 1;
      values[AXES[k]] = given && Number(given[2]) <= n ? given[0] : `${begin}:${begin + size - 1}`;
      for (const control of this.root.querySelectorAll(`[data-field="${AXES[k]}"]`)) control.max = n;
    });
    const sizes = AXES.map((axis) => values[axis].split(":")).map(([low, high]) => high - low + 1);
    values.rank = (first && this.wanted.rank) || RANK.map((r, k) => Math.min(r, sizes[k])).join(",");
    write(this.root, values);
    this.adapt();
    this.check();
    this.onChange?.();
    this.frame();
  }

  adapt(target) {
    if (!this.file) return;
    if (target?.dataset.field === "array") { this.cropped(false); return; }
    part(this.root, "ranks").hidden = read(this.root).known === "none";
    this.spans().forEach(([low, high], k) => {
      const rank = this.root.querySelector(`[data-field="rank"][data-index="${k}"]`);
      rank.max = Math.max(1, Math.min(24, high - low + 1));
      rank.parentElement.querySelector("output").textContent = rank.value;
    });
    this.frame();
  }

  spans() { return AXES.map((axis) => read(this.root)[axis].split(":").map(Number)); }

  // Draw the preview with a frame around the part.
  frame() {
    const canvas = part(this.root, "preview"), small = document.createElement("canvas");
    const seen = this.file.previews[this.chosen], volume = seen && decoded(seen); // only the first arrays have previews
    if (volume) draw(small, volume, 0, this.file.reader === "video" || (volume.low >= 0 && volume.high <= 1) ? "grey" : "viridis");
    const [rows, columns] = this.shape, context = canvas.getContext("2d");
    Object.assign(canvas, { width: 600, height: Math.max(40, Math.min(1200, Math.round((600 * rows) / columns))) });
    context.imageSmoothingEnabled = false;
    if (volume) context.drawImage(small, 0, 0, canvas.width, canvas.height);
    const [[top, bottom], [left, right]] = this.spans(), sy = canvas.height / rows, sx = canvas.width / columns;
    const box = [(left - 1) * sx, (top - 1) * sy, (right - left + 1) * sx, (bottom - top + 1) * sy];
    context.fillStyle = "#0a141499";
    context.beginPath();
    context.rect(0, 0, canvas.width, canvas.height);
    context.rect(...box);
    context.fill("evenodd");
    Object.assign(context, { lineWidth: 4, strokeStyle: "#35d0bd" });
    context.strokeRect(...box);
    canvas.setAttribute("aria-label", `Preview of the middle slice; rows ${top} to ${bottom} and columns ${left} to ${right} are selected`);
  }

  listenToPreview() {
    const canvas = part(this.root, "preview");
    let from = null;
    const at = (event) => {
      const box = canvas.getBoundingClientRect(), [rows, columns] = this.shape;
      const place = (x, size, n) => Math.max(1, Math.min(n, Math.ceil((x / size) * n)));
      return [place(event.clientY - box.top, box.height, rows), place(event.clientX - box.left, box.width, columns)];
    };
    canvas.addEventListener("pointerdown", (event) => { from = at(event); canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) return;
      const to = at(event), span = (k) => `${Math.min(from[k], to[k])}:${Math.max(from[k], to[k])}`;
      write(this.root, { rows: span(0), columns: span(1) });
      this.adapt();
    });
    canvas.addEventListener("pointerup", () => { from = null; this.check(); this.onChange?.(); });
  }

  tell(facts) {
    const b = (text) => make("b", {}, text);
    part(this.root, "story").replaceChildren(
      "This part has ", b(counted(facts.entries)), " entries. It is recovered from ", b(counted(facts.m)), " measurements: ",
      ...(facts.dof === null ? ["held-out measurements decide on a rank."] : [b(`${facts.ratio.toPrecision(3)} measurements`), ` per degree of freedom (${counted(facts.dof)} at this rank).`]),
      ` ${critical(facts.ratio) || "Real clips are only approximately of low rank, so a small error remains."}`,
    );
    bars(part(this.root, "bars"), facts);
  }

  begin() {
    this.recovery.begin();
    part(this.root, "curves").hidden = false;
    const links = part(this.root, "downloads");
    links.hidden = true;
    links.replaceChildren("Download: ");
    part(this.root, "summary").replaceChildren();
  }

  hear(event) {
    if (event.event === "code") this.result = event.result;
    if (event.event === "file") {
      const links = part(this.root, "downloads"), what = { "result.npz": "Result (.npz)", "report.html": "Report (.html)" };
      links.append(make("a", { href: `/api/results/${this.result}/${event.name}`, download: event.name }, what[event.name]));
      links.hidden = false;
    }
    if (event.event === "summary") {
      const rows = Object.entries(event.lines).map(([name, text]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, text)));
      part(this.root, "summary").replaceChildren(make("table", { class: "summary" }, make("tbody", {}, ...rows)));
    }
    this.recovery.hear(event);
  }

  question() { return "Are these measurements enough?"; }
  answers() { return this.recovery.answers(); }
  redraw() { this.recovery.draw(); }
  finished() { this.recovery.stopped(); }
}
