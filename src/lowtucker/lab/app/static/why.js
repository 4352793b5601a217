// "Why does this work?": the photograph as a sum of few patterns, at the rank of a slider.
import { counted, make, part, short } from "./dom.js";
import { draw } from "./pictures.js";
import { onTheme } from "./plot.js";
import { patterns } from "./stream.js";

// Thickness of the patterns in the first picture, however many there are
const STRIP = 40;
const floats = (text) => new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
const level = (x) => Math.round(Math.max(0, Math.min(255, x)));

// Levels of a picture in one colour scale, of values in [-most, most]; NaN is transparent.
function signed(rows, columns, values, most) {
  const known = new Uint8Array(Math.ceil(values.length / 8));
  values.forEach((x, i) => { if (!Number.isNaN(x)) known[i >> 3] |= 128 >> (i & 7); });
  return { shape: [rows, columns, 1], levels: Uint8Array.from(values, (x) => level(127.5 + (127.5 * x) / most)), known };
}

const largest = (values) => values.reduce((most, x) => Math.max(most, Math.abs(x)), 0) || 1;

export class Why {
  constructor(root) {
    this.card = part(root, "why");
    this.slider = root.querySelector('[data-field="patterns"]');
    this.canvases = ["parts", "added", "sum"].map((name) => part(root, `why-${name}`));
    onTheme(() => this.draw());
    patterns().then((found) => {
      this.shape = found.shape;
      this.most = found.rank;
      this.norm = found.norm;
      this.factors = found.factors.map(floats);
      this.core = floats(found.core);
      this.card.hidden = false;
      this.draw();
    }).catch(() => {}); // without the photograph there is no panel; Run says why
  }

  rank(r) { return this.most.map((n) => Math.min(n, r)); }

  // Core and factors multiplied out, colour by colour, at the leading r patterns.
  sum(r) {
    const [rows, columns, colours] = this.shape, [a, b, c] = this.rank(r), [, wide, deep] = this.most, [U, V, W] = this.factors;
    const X = new Float32Array(rows * columns * colours), mixed = new Float32Array(b);
    for (let k = 0; k < colours; k += 1) {
      for (let i = 0; i < rows; i += 1) {
        mixed.fill(0);
        for (let p = 0; p < a; p += 1) for (let q = 0; q < b; q += 1) for (let s = 0; s < c; s += 1) mixed[q] += U[i * this.most[0] + p] * this.core[(p * wide + q) * deep + s] * W[k * deep + s];
        for (let j = 0; j < columns; j += 1) {
          let x = 0;
          for (let q = 0; q < b; q += 1) x += mixed[q] * V[j * wide + q];
          X[(k * rows + i) * columns + j] = x;
        }
      }
    }
    return X;
  }

  // The error of a truncated HOSVD follows from its core: the factors are orthonormal.
  error(r) {
    const [a, b, c] = this.rank(r), [, wide, deep] = this.most;
    let kept = 0;
    for (let p = 0; p < a; p += 1) for (let q = 0; q < b; q += 1) for (let s = 0; s < c; s += 1) kept += this.core[(p * wide + q) * deep + s] ** 2;
    return Math.sqrt(Math.max(0, 1 - kept / this.norm ** 2));
  }

  // The core in the corner, the patterns of rows below it, those of columns beside it.
  parts(r) {
    const [rows, columns] = this.shape, [most, wide, deep] = this.most, [a, b] = this.rank(r), [U, V] = this.factors;
    const height = STRIP + 2 + rows, width = STRIP + 2 + columns, values = new Float32Array(height * width).fill(NaN);
    const scales = (F, n, stride, count) => Array.from({ length: count }, (_, p) => largest(Float32Array.from({ length: n }, (_, i) => F[i * stride + p])));
    const down = scales(U, rows, most, a), across = scales(V, columns, wide, b), top = largest(this.core);
    const at = (x, count) => Math.floor((x * count) / STRIP); // the pattern at a place of the strip
    for (let x = 0; x < STRIP; x += 1) {
      const p = at(x, a), q = at(x, b);
      for (let i = 0; i < rows; i += 1) values[(STRIP + 2 + i) * width + x] = U[i * most + p] / down[p];
      for (let j = 0; j < columns; j += 1) values[x * width + STRIP + 2 + j] = V[j * wide + q] / across[q];
      // the first number of the core is by far the largest: cube roots show the others
      for (let z = 0; z < STRIP; z += 1) values[z * width + x] = Math.cbrt(this.core[(p * wide + at(z, b)) * deep] / top);
    }
    return signed(height, width, values, 1);
  }

  draw() {
    if (!this.core) return;
    const r = Number(this.slider.value), [rows, columns] = this.shape, n = rows * columns, X = this.sum(r), before = r > 1 ? this.sum(r - 1) : new Float32Array(X.length);
    const added = Float32Array.from({ length: n }, (_, i) => (X[i] - before[i] + X[n + i] - before[n + i] + X[2 * n + i] - before[2 * n + i]) / 3);
    const [first, second, third] = this.canvases, scale = largest(added), rank = this.rank(r), error = this.error(r);
    draw(first, this.parts(r), 0, "gap");
    draw(second, signed(rows, columns, added, scale), 0, "gap");
    draw(third, { shape: [rows, columns, 3], levels: Uint8Array.from(X, (x) => level(255 * x)) }, 0, "rgb");
    const said = [
      ["1. Patterns", `${r} of rows, ${r} of columns; the square says how they are mixed`],
      [r > 1 ? `2. What pattern ${r} adds` : "2. What one pattern draws", `to all colours, ±${short(scale)}`],
      ["3. Their sum", `relative error ${short(error)}`],
    ];
    this.canvases.forEach((canvas, k) => {
      canvas.nextElementSibling.replaceChildren(make("b", {}, said[k][0]), ` ${said[k][1]}`);
      canvas.setAttribute("aria-label", said[k].join(": "));
    });
    const dof = rank.reduce((product, k) => product * k, 1) + rank.reduce((sum, k, mode) => sum + k * (this.shape[mode] - k), 0);
    part(this.card, "why-words").textContent = `Tucker rank (${rank.join(", ")}): ${counted(dof)} degrees of freedom instead of ${counted(3 * n)} values, up to a relative error of ${short(error)}. `
      + "To find the whole picture, only these have to be found. That takes somewhat more known values than there are degrees of freedom, not all of them.";
  }
}
