// Tab 1: a photograph with holes.
import { make, part } from "./dom.js";
import { Panel } from "./panel.js";
import { Recovery } from "./recovery.js";
import { Why } from "./why.js";

// Relative errors up to here count as success: the holes cannot be seen any more.
const GOOD = 0.2;

export class Picture extends Panel {
  constructor() {
    super("picture");
    this.recovery = new Recovery(this.root, () => "rgb", { judge: (event) => this.judge(event) });
    this.why = new Why(this.root);
  }

  tell(facts) {
    const b = (text) => make("b", {}, text), known = (100 * facts.share).toPrecision(3);
    part(this.root, "story").replaceChildren(
      "A real photograph, of which only ", b(`${known} %`), " of the pixels are known. Rows, columns and colours of a picture resemble each other, so it is nearly ",
      "a tensor of low rank. Is that enough to fill in the rest?",
    );
  }

  // The page knows the original, the solver does not: its own verdict is in the card.
  judge(event) {
    const before = this.recovery.before;
    const numbers = `The relative error is ${event.error.toFixed(2)}; with holes left black it would be ${before.error.toFixed(2)}.`;
    if (event.error <= GOOD) return ["yes", "filled in", numbers];
    return ["no", "not recovered", `${numbers} Too few pixels are known: set “Missing pixels” to a smaller share.`];
  }

  question() { return "Are these pixels enough?"; }
  begin() { this.recovery.begin(); part(this.root, "curves").hidden = false; }
  hear(event) { this.recovery.hear(event); }
  answers() { return this.recovery.answers(); }
  redraw() { this.recovery.draw(); this.why.draw(); }
  finished() { this.recovery.stopped(); }
}
