// A tab: settings are checked as they change and stored in the address; one run at a time.
import { label, make, mark, part, read, say, write } from "./dom.js";
import { describe, run } from "./stream.js";

// Fields that change what is drawn, not what is computed
const VIEW = ["x", "y", "patterns"];

export class Panel {
  constructor(id) {
    this.id = id;
    this.root = document.getElementById(id);
    this.form = this.root.querySelector("form");
    this.button = this.root.querySelector(".run");
    this.facts = null;
    this.code = "";
    this.wrong = "";
    this.defaults = read(this.root);
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.toggle(); });
    this.root.addEventListener("input", (event) => this.changed(event));
    for (const button of this.root.querySelectorAll("[data-preset]")) button.addEventListener("click", () => this.preset(button.dataset.preset));
    label(this.root);
  }

  // Settings of a preset, and a run with them.
  async preset(query) {
    if (this.running) this.stop();
    write(this.root, Object.fromEntries(new URLSearchParams(query)));
    this.adapt();
    this.onChange?.();
    await this.ask();
    this.start();
  }

  // The answer beside Run: a badge and a sentence for each solver.
  answer(text = "") {
    const place = part(this.form, "outcome"), all = this.answers();
    if (!place || !this.question()) return;
    const lines = all.map(([kind, name, word, said]) => make("p", {}, make("span", { class: `badge ${kind}` }, name ? `${name}: ${word}` : word), ` ${said}`));
    place.replaceChildren(make("p", {}, make("strong", {}, this.question()), all.length || text ? ` ${text}` : " Press Run."), ...lines);
  }

  question() { return ""; }
  answers() { return []; }

  values() { return { tab: this.id, ...read(this.root), ...this.more() }; }
  more() { return {}; }
  ready() { return true; }
  get running() { return Boolean(this.control); }

  restore(values) {
    write(this.root, { ...this.defaults, ...values });
    this.adapt();
    this.check();
    this.redraw();
  }

  changed(event) {
    const name = event.target.dataset.field;
    if (!name) return;
    label(this.root);
    this.adapt(event.target);
    this.onChange?.();
    if (VIEW.includes(name)) this.redraw();
    else if (name !== "slice") this.check();
  }

  // Let the server check the settings; only the last request counts.
  check() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), 60);
  }

  async ask() {
    clearTimeout(this.timer);
    if (!this.ready()) return;
    this.asking?.abort();
    this.asking = new AbortController();
    try {
      const facts = await describe(this.values(), this.asking.signal);
      this.facts = facts;
      this.code = facts.code;
      this.wrong = "";
      mark(this.root, "");
      say(part(this.form, "problem"), "");
      this.button.disabled = false;
      this.tell(facts);
      if (!this.running && !this.answers().length) this.answer();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.wrong = error.message;
      mark(this.root, error.field);
      say(part(this.form, "problem"), error.message);
      this.button.disabled = !this.running;
    }
  }

  // The code of these settings, or why there is none.
  shownCode() {
    if (this.wrong) return `There is no code for these settings: ${this.wrong}`;
    return this.code || "Choose a file first.";
  }

  toggle() { if (this.running) this.stop(); else this.start(); }

  stop() {
    this.control?.abort();
    this.control = null;
    this.look(false);
    this.finished("Stopped.");
    this.answer("Stopped.");
  }

  look(running) {
    this.button.dataset.running = running;
    this.button.textContent = running ? "Stop" : "Run";
  }

  async start() {
    if (this.button.disabled || !this.ready()) return;
    const control = new AbortController();
    this.control = control;
    this.look(true);
    this.onRun?.();
    say(part(this.form, "problem"), "");
    part(this.root, "empty").hidden = true;
    this.begin();
    this.answer("Running…");
    if (innerWidth < 821) this.root.querySelector(".results").scrollIntoView({ block: "start" });
    let ended = "";
    try {
      await run(this.values(), control.signal, (event) => {
        if (this.control !== control) return;
        if (event.event === "error") say(part(this.form, "problem"), event.text);
        if (event.event === "error" || event.event === "end") ended = event.event;
        this.hear(event);
      });
      if (!ended) say(part(this.form, "problem"), "The server stopped this run. Try again.");
    } catch (error) {
      if (error.name !== "AbortError") {
        mark(this.root, error.field);
        say(part(this.form, "problem"), error.message);
      }
    } finally {
      if (this.control === control) {
        this.control = null;
        this.look(false);
        this.finished(ended === "end" ? "" : "Stopped early.");
        this.answer(ended === "end" ? "" : "Stopped early.");
      }
    }
  }

  adapt() {}
  redraw() {}
  tell() {}
  finished() {}
}
