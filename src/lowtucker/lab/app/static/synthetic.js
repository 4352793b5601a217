// Tab 2: recovery of a synthetic tensor.
import { counted, make, part } from "./dom.js";
import { Panel } from "./panel.js";
import { Recovery, bars, critical } from "./recovery.js";

export class Synthetic extends Panel {
  constructor() {
    super("synthetic");
    this.recovery = new Recovery(this.root, () => (this.values().signal === "flame" ? "fire" : "viridis"), { stacked: true });
  }

  // No entry of the rank exceeds the size of its mode.
  adapt() {
    for (let k = 0; k < 3; k += 1) {
      const side = this.root.querySelector(`[data-field="shape"][data-index="${k}"]`);
      const rank = this.root.querySelector(`[data-field="rank"][data-index="${k}"]`);
      const most = Math.min(Number(side.value), Math.max(12, Number(rank.value)));
      if (Number(rank.max) !== most) rank.max = most;
      rank.parentElement.querySelector("output").textContent = rank.value;
    }
  }

  tell(facts) {
    const b = (text) => make("b", {}, text);
    const shape = this.values().shape.replaceAll(",", " × ");
    part(this.root, "story").replaceChildren(
      "A tensor of ", b(shape), " has ", b(counted(facts.entries)), " entries, but one of this Tucker rank has only ", b(counted(facts.dof)),
      " degrees of freedom. It is recovered from ", b(counted(facts.m)), ` measurements, ${(100 * facts.share).toPrecision(3)} % of its entries. ${critical(facts.ratio)}`,
    );
    bars(part(this.root, "bars"), facts);
  }

  begin() {
    this.recovery.begin();
  }

  hear(event) { this.recovery.hear(event); }
  question() { return "Are these measurements enough?"; }
  answers() { return this.recovery.answers(); }
  redraw() { this.recovery.draw(); }
  finished() { this.recovery.stopped(); }
}
