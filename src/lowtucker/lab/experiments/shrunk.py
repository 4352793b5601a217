"""Beside Figure 7, and not in the paper: the same clip without a rank, by shrinkage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from lowtucker.lab.experiments.clip import Clip, ClipRecovery, flame
from lowtucker.lab.experiments.success import ALGORITHMS
from lowtucker.metrics import relative_error
from lowtucker.operators import gaussian
from lowtucker.recovery import recover
from lowtucker.simulation.base import Columns, Experiment, Figure, Highlights, Results
from lowtucker.tensor import hooi

__all__ = ["ClipShrinkage", "Measured", "ShrunkClip"]

OURS, PAPER, FLOOR = "shrinkage (ours)", "StoTIHT", "best approximation"


@dataclass(frozen=True)
class Measured:
    """A number of measurements."""

    m: int

    def __str__(self) -> str:
        return f"m{self.m}"


@dataclass(frozen=True)
class ClipShrinkage(Experiment):
    """Recover a clip from few Gaussian measurements, with ``recover(A, y)``: nothing to choose.

    A is in single precision, as for Figure 7.
    """

    name: str = "shrinkage"
    clip: Clip = field(default_factory=flame)
    measurements: tuple[int, ...] = (500, 1000, 2000, 4000, 8000)

    max_trials: ClassVar[int | None] = 1

    def cells(self) -> Sequence[Measured]:
        """Return the numbers of measurements."""
        return [Measured(m) for m in self.measurements]

    def compute(self, cell: Measured, first: int, count: int, seed: int) -> Columns:
        """Compute the error and the passes over A."""
        X_true = self.clip.pixels.astype(np.float32)
        A = gaussian(X_true.shape, cell.m, seed=seed, normalize="frobenius", dtype=np.float32)
        result = recover(A, A.forward(X_true), seed=seed)
        return {
            "relative_error": np.asarray([relative_error(result.X, X_true)], dtype=float),
            "passes": np.asarray([result.passes], dtype=float),
        }

    def work(self, cell: Measured) -> float:
        """Return the cost in units of small iterations."""
        return 50.0 * cell.m


@dataclass(frozen=True)
class ShrunkClip(Figure):
    """Error against the number of measurements, with the paper's setting for comparison."""

    published: ClipRecovery = field(default_factory=ClipRecovery)
    experiment: ClipShrinkage = field(default_factory=ClipShrinkage)

    name = "shrinkage"
    title = "Ours, not the paper's: the same clip without a rank"
    columns = ("algorithm", "m", "relative_error", "passes")

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """The runs without a rank, and the published run."""
        return (self.published, self.experiment)

    @property
    def label(self) -> str:
        """Name in running text."""
        return "Beside Figure 7"

    def rows(self, results: Results) -> list[tuple[Any, ...]]:
        """Return ours, the end of the published StoTIHT run, and the floor of its rank."""
        made: list[tuple[Any, ...]] = []
        for cell in self.experiment.cells():
            error, passes = (float(results[cell][name][0]) for name in self.columns[2:])
            made.append((OURS, cell.m, error, passes))
        p = self.published
        curve = results[p.name]["relative_error"][0, ALGORITHMS.index(PAPER)]
        floor = float(relative_error(hooi(p.clip.pixels, p.rank, warn=False), p.clip.pixels))
        return [*made, (PAPER, p.m, float(curve[-1]), float(p.epochs)), (FLOOR, "", floor, "")]

    def draw(self, table: list[dict[str, Any]], results: Results) -> Any:
        """Draw one panel."""
        from lowtucker._plotting import new_figure

        figure, panel = new_figure(1, 1, width=5.5, height=4)
        ours = [row for row in table if row["algorithm"] == OURS]
        (paper,) = (row for row in table if row["algorithm"] == PAPER)
        floor = table[-1]["relative_error"]
        rank = self.published.rank
        panel.loglog([r["m"] for r in ours], [r["relative_error"] for r in ours], "C3o-",
                     label="ours: shrinkage, no rank")  # fmt: skip
        panel.loglog([paper["m"]], [paper["relative_error"]], "k*", markersize=11,
                     label=f"the paper's setting: {PAPER}, rank {rank}")  # fmt: skip
        panel.axhline(floor, color="0.5", linestyle="--", linewidth=1,
                      label=f"best approximation of rank {rank}: {floor:.4f}")  # fmt: skip
        panel.set_xlabel("measurements m")
        panel.set_ylabel("relative error")
        panel.set_ylim(bottom=0.2 * min(r["relative_error"] for r in table))  # room for the legend
        panel.grid(alpha=0.3)
        panel.legend(
            fontsize=8, loc="lower left", title="not a figure of the paper", title_fontsize=8
        )
        return figure

    def caption(self) -> str:
        """Describe the comparison."""
        e, p = self.experiment, self.published
        size = e.clip.pixels.size
        return (
            f"This panel is ours, not the paper's. {e.clip.origin[:1].upper()}{e.clip.origin[1:]}: "
            f"relative error of recover(A, y) against the number m of Gaussian measurements of the "
            f"{size} pixels; no rank, no step and no other setting is given. Star: {PAPER} after "
            f"{p.epochs} epochs as in Figure 7, from m = {p.m}. Dashed: no tensor of its rank "
            f"{p.rank} is known to be closer to the clip (HOOI); shrinkage keeps all directions, "
            f"so that it is not bound by this."
        )

    def highlights(self, table: list[dict[str, Any]], results: Results) -> Highlights:
        """Return all rows."""
        rows: list[tuple[str, ...]] = [
            (row["algorithm"], str(row["m"]), f"{row['relative_error']:.4f}",
             f"{row['passes']:.0f}" if row["passes"] else "")
            for row in table
        ]  # fmt: skip
        return Highlights(("algorithm", "m", "error", "passes"), rows)
