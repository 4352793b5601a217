"""The directive ``status``: a small run that ends with a status, its curve, and what it says."""

from __future__ import annotations

import base64
import io
import math
import textwrap
import time
import warnings
from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import lowtucker as lt
from lowtucker.run.advice import ENDS

SHAPE, RANK = (10, 10, 8), (2, 2, 2)
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 460, 150, 52, 10, 22
COLUMNS = 72
Case = Callable[[], tuple[lt.Result, Any]]


def _case(
    m: int, *, true_rank: tuple[int, ...] = RANK, noise: float = 0.0, seed: int = 1, **options: Any
) -> tuple[lt.Result, Any]:
    """Result of a recovery from Gaussian measurements, and the truth."""
    truth = lt.random_tucker(SHAPE, true_rank, seed=seed).full()
    A, y = _measured(truth, m, noise, seed)
    return lt.recover(A, y, **options), truth


def _measured(truth: Any, m: int, noise: float, seed: int) -> tuple[Any, Any]:
    A = lt.gaussian(SHAPE, m, seed=seed)
    y = A.forward(truth)
    size = noise * np.linalg.norm(y) / math.sqrt(m)
    return A, y + size * np.random.default_rng(seed).standard_normal(m)


def _solved() -> tuple[lt.Result, Any]:
    """Result of ``solve``, which does not look for the cause."""
    truth = lt.random_tucker(SHAPE, RANK, seed=1).full()
    A, y = _measured(truth, 250, 0.05, 1)
    return lt.solve(lt.Problem(A, y), "tiht", RANK), truth


def _spectrum_that_decays() -> tuple[lt.Result, Any]:
    """A smooth function of three variables: nearly, but not exactly, of low rank."""
    x, y, z = np.meshgrid(*(np.linspace(0, 1, n) for n in (20, 20, 10)), indexing="ij")
    truth = np.exp(-4 * np.sqrt((x - 0.4) ** 2 + (y - z) ** 2 + 0.01))
    return lt.complete(np.where(_holes(truth), np.nan, truth)), truth


def _holes(truth: Any) -> Any:
    return np.random.default_rng(0).random(truth.shape) < 0.7


def _stop(progress: Any) -> bool:
    return bool(progress.epoch >= 15)


def _wait(_progress: Any) -> None:
    time.sleep(0.01)


# One call for each status
CASES: dict[str, Case] = {
    "CONVERGED": lambda: _case(130, rank=RANK),
    "NOISE_FLOOR": lambda: _case(250, noise=0.05, rank=RANK),
    "APPROXIMATED": _spectrum_that_decays,
    "UNDERDETERMINED": lambda: _case(60, true_rank=(3, 3, 3), rank=(3, 3, 3)),
    "RANK_TOO_SMALL": lambda: _case(250, rank=(1, 1, 1)),
    "LOCAL_MINIMUM": lambda: _case(57, rank=RANK, max_epochs=60, seed=2),
    "STALLED": _solved,
    "MAX_EPOCHS": lambda: _case(250, rank=RANK, solver="tiht", max_epochs=15),
    "MAX_SECONDS": lambda: _case(250, rank=RANK, solver="tiht", max_seconds=0.1, callbacks=[_wait]),
    "INTERRUPTED": lambda: _case(250, rank=RANK, solver="tiht", callbacks=[_stop]),
    "DIVERGED": lambda: _case(250, rank=RANK, solver=lt.TIHT(step=3.0)),
}


def result_of(name: str) -> tuple[lt.Result, float, Any]:
    """Return the result of a case, the true error of X, and the truth."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.UnderdeterminedWarning)
        result, truth = CASES[name]()
    return result, float(lt.metrics.relative_error(result.X, truth)), truth


def picture(result: lt.Result, error: float) -> str:
    """Residual against epochs, the true error, and where the result expects it to be, as SVG."""
    residual = np.clip(result.history["residual"], 1e-12, 1e12)
    shown = [*residual, min(max(error, 1e-12), 1e12), *(result.error_interval or ())]
    low, high = math.floor(math.log10(min(shown))), math.ceil(math.log10(max(shown)))
    high += low == high

    def across(k: float) -> float:
        return LEFT + (WIDTH - LEFT - 4) * k / max(len(residual) - 1, 1)

    def down(value: float) -> float:
        share = (math.log10(value) - low) / (high - low)
        return TOP + (HEIGHT - BOTTOM - TOP) * (1 - share)

    points = " ".join(f"{across(k):.1f},{down(r):.1f}" for k, r in enumerate(residual))
    level, right, floor = down(shown[len(residual)]), WIDTH - 4, HEIGHT - BOTTOM
    axes = f"M{LEFT},{TOP} V{floor} H{right}"
    parts = [
        *(_text(LEFT - 6, down(10.0**k) + 4, f"1e{k}", "end") for k in {low, high}),
        _text(right, HEIGHT - 6, f"{len(residual) - 1} epochs", "end"),
        f'<path d="{axes}" fill="none" stroke="currentColor" opacity=".5"/>',
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.6"/>',
        f'<path d="M{LEFT},{level:.1f} H{right}" stroke="#d9480f" stroke-dasharray="6 4"/>',
    ]  # fmt: skip
    if result.error_interval is not None:
        top, bottom = (down(min(max(v, 1e-12), 1e12)) for v in reversed(result.error_interval))
        band = f'x="{LEFT}" y="{top:.1f}" width="{right - LEFT}" height="{bottom - top:.1f}"'
        parts.insert(0, f'<rect {band} fill="#d9480f" opacity=".2"/>')
    label = f"The residual ends at {result.residual:.1e}; the true error of X is {error:.1e}."
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
        f'aria-label="{escape(label)}" style="max-width:100%">{"".join(parts)}</svg>'
    )


def slices(result: lt.Result, truth: Any) -> str:
    """A slice of what is known, of X, and of the truth, side by side, as images."""
    from matplotlib.image import imsave

    k = truth.shape[2] // 2
    known = np.where(_holes(truth), np.nan, truth)
    tiles = {"known": known, "X": np.asarray(result.X.full()), "truth": truth}
    made = []
    for name, tile in tiles.items():
        file = io.BytesIO()
        imsave(file, tile[:, :, k], vmin=0, vmax=truth.max(), cmap="inferno", format="png")
        source = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
        style = "width:9rem;image-rendering:pixelated;margin-right:1rem"
        made.append(f'<img src="{source}" alt="slice {k}: {name}" title="{name}" style="{style}">')
    return f"<p>{''.join(made)}</p>"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {where} font-size="12" fill="currentColor">{escape(text)}</text>'


def _wrapped(sentence: str) -> str:
    """Sentence in lines that fit the page; code is not broken."""
    return sentence if sentence.startswith("Try: ") else textwrap.fill(sentence, COLUMNS)


class StatusExample(SphinxDirective):
    """The picture of a status, and the verdict, the numbers and the advice of its result."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Run the case."""
        self.env.note_reread()  # the package can change without the page
        result, error, truth = result_of(self.arguments[0])
        first = f"{result.headline}; residual {result.residual:.1e}, true error {error:.1e}"
        text = "\n".join([first, *map(_wrapped, ENDS.split(result.advice))])
        approximated = result.status is lt.Status.APPROXIMATED
        drawn = slices(result, truth) if approximated else picture(result, error)
        return [
            nodes.raw("", drawn, format="html"),
            nodes.literal_block(text, text, language="text"),
        ]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("status", StatusExample)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
