"""Figures 3, 4 and 5: success rates and epochs to success."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from lowtucker.recovery import solve
from lowtucker.run.stopping import ErrorBelow, MaxEpochs
from lowtucker.simulation.base import (
    Columns,
    Experiment,
    Figure,
    Highlights,
    Results,
    draw_trials,
    rank_label,
)
from lowtucker.solvers import TIHT, Solver, StoTIHT
from lowtucker.solvers.sampling import RandomRows

__all__ = [
    "ALGORITHMS",
    "SUCCESS",
    "EpochsToSuccess",
    "Recoveries",
    "Setting",
    "SuccessManyMeasurements",
    "SuccessRates",
    "few_measurements",
    "many_measurements",
    "published_solver",
    "until_success",
]

ALGORITHMS = ("TIHT", "StoTIHT")
RANKS = ((1, 1, 2), (1, 2, 2), (2, 2, 2), (2, 2, 3))
SUCCESS = 1e-5  # relative error that counts as recovered in the paper


@dataclass(frozen=True)
class Setting:
    """A rank, a number of measurements, a step."""

    rank: tuple[int, ...]
    m: int
    mu_over_m: float

    def __str__(self) -> str:
        return f"{rank_label(self.rank)}-m{self.m}-mu{self.mu_over_m:g}"


@dataclass(frozen=True)
class Recoveries(Experiment):
    """TIHT and StoTIHT with a new random set of rows at every iteration.

    A trial ends when its error is at most ``tol``, or after ``epochs`` epochs.
    """

    name: str
    measurements: tuple[int, ...]
    mus_over_m: tuple[float, ...]
    blocks: int  # b = round(m / blocks)
    epochs: int
    tol: float
    shape: tuple[int, ...] = (5, 5, 6)
    ranks: tuple[tuple[int, ...], ...] = RANKS

    def cells(self) -> Sequence[Setting]:
        """Return every combination of rank, m and step."""
        return [
            Setting(rank, m, mu)
            for rank in self.ranks
            for m in self.measurements
            for mu in self.mus_over_m
        ]

    def compute(self, cell: Setting, first: int, count: int, seed: int) -> Columns:
        """Compute the final error and the epochs of every trial with each algorithm."""
        problem, X_true = draw_trials(self.shape, cell.rank, cell.m, seed, first, count)
        b = round(cell.m / self.blocks)
        columns = {}
        for name in ALGORITHMS:
            result = solve(
                problem, published_solver(name, cell.m, b, cell.mu_over_m), cell.rank,
                stop=ErrorBelow(self.tol) | MaxEpochs(self.epochs), X_true=X_true,
                seed=(seed, first),
            )  # fmt: skip
            columns[f"{name}_error"] = result.history["error"][-1].copy()
            columns[f"{name}_epochs"] = np.asarray(result.epochs)
        return columns

    def work(self, cell: Setting) -> float:
        """Return the expected cost of the iterations; most trials end early."""
        epochs = min(self.epochs, 400 / self.blocks)
        return epochs * (1 + self.blocks) * (1 + cell.m / 300)


def published_solver(name: str, m: int, b: int, mu_over_m: float) -> Solver:
    """Return a solver with the paper's step: mu multiplies the sum, ``step`` the mean."""
    mu = mu_over_m * m
    if name == "TIHT":
        return TIHT(step=mu * m)
    return StoTIHT(step=mu * b, sampler=RandomRows(b))


# A trial whose error reaches a thousandth of the threshold counts as a success: continued to the
# last epoch, none exceeded the threshold again (docs/reproduce.md has the count).
SETTLED = 1e-3 * SUCCESS


def few_measurements() -> Recoveries:
    """Return the settings of Figure 3."""
    return Recoveries("few", tuple(range(18, 103, 6)), (1.0,), 2, 200, SETTLED)


def many_measurements() -> Recoveries:
    """Return the settings of Figure 4."""
    return Recoveries("many", tuple(range(240, 461, 20)), (0.5,), 4, 80, SETTLED)


def until_success() -> Recoveries:
    """Return the settings of Figure 5."""
    return Recoveries("epochs", tuple(range(240, 461, 20)), (0.4,), 4, 1000, SUCCESS)


@dataclass(frozen=True)
class _OverMeasurements(Figure):
    """One panel per algorithm, one line per rank, over m."""

    experiment: Recoveries = field(default_factory=few_measurements)

    quantity: ClassVar[str]
    y_label: ClassVar[str]

    def highlights(self, table: list[dict[str, Any]], results: Results) -> Highlights:
        """Return one line per algorithm and rank, one column per m."""
        ms = self.experiment.measurements
        rows = []
        for name, rank in dict.fromkeys((row["algorithm"], row["rank"]) for row in table):
            line = [r for r in table if (r["algorithm"], r["rank"]) == (name, rank)]
            rows.append((name, rank, *map(self._text, line)))
        return Highlights(("algorithm", "rank", *map(str, ms)), rows)

    def _text(self, row: dict[str, Any]) -> str:
        return f"{row['success_rate']:.2f}"

    def rows(self, results: Results) -> list[tuple[Any, ...]]:
        """Return one row per algorithm and cell."""
        return [
            (name, rank_label(cell.rank), cell.m, *self._summary(name, columns))
            for name in ALGORITHMS
            for cell, columns in results.items()
        ]

    def _summary(self, name: str, columns: Columns) -> tuple[Any, ...]:
        raise NotImplementedError

    def draw(self, table: list[dict[str, Any]], results: Results) -> Any:
        """Draw two panels, as in the paper: (a) TIHT, (b) StoTIHT."""
        from lowtucker._plotting import new_figure

        figure, axes = new_figure(1, 2)
        for panel, name in zip(axes, ALGORITHMS, strict=True):
            for rank in map(rank_label, self.experiment.ranks):
                points = [r for r in table if r["algorithm"] == name and r["rank"] == rank]
                panel.plot(
                    [p["m"] for p in points],
                    [p[self.quantity] for p in points],
                    "o-",
                    markersize=4,
                    label=f"rank ({rank.replace('-', ', ')})",
                )
            panel.set_title(name)
            panel.set_xlabel("measurements m")
            panel.set_ylabel(self.y_label)
            panel.grid(alpha=0.3)
        axes[1].legend(fontsize=8)
        self._limit(axes)
        return figure

    def _limit(self, axes: Any) -> None:
        """Use the same scale in both panels."""
        for panel in axes:
            panel.set_ylim(-0.03, 1.03)

    def caption(self) -> str:
        """Describe the settings."""
        e = self.experiment
        return (
            f"Tensors of shape {e.shape}; step mu = {e.mus_over_m[0]:g} m; StoTIHT uses a new "
            f"random set of b = m/{e.blocks} rows at every iteration. "
        )


@dataclass(frozen=True)
class SuccessRates(_OverMeasurements):
    """Figure 3: few measurements."""

    name = "fig3"
    title = "Success rate, few measurements"
    columns = ("algorithm", "rank", "m", "success_rate", "trials")
    quantity = "success_rate"
    y_label = "success rate"

    def _summary(self, name: str, columns: Columns) -> tuple[Any, ...]:
        error = columns[f"{name}_error"]
        return float((error <= SUCCESS).mean()), len(error)

    def caption(self) -> str:
        """Describe the settings and the criterion of success."""
        e = self.experiment
        return super().caption() + (
            f"Success is a relative error of at most {SUCCESS:g} after {e.epochs} epochs (a trial "
            f"ends early at {e.tol:g})."
        )


@dataclass(frozen=True)
class SuccessManyMeasurements(SuccessRates):
    """Figure 4: many measurements, few epochs."""

    experiment: Recoveries = field(default_factory=many_measurements)

    name = "fig4"
    title = "Success rate, many measurements and few epochs"


@dataclass(frozen=True)
class EpochsToSuccess(_OverMeasurements):
    """Figure 5: epochs to success; failures are counted separately."""

    experiment: Recoveries = field(default_factory=until_success)

    name = "fig5"
    title = "Epochs to success"
    columns = ("algorithm", "rank", "m", "mean_epochs", "failures", "trials")
    quantity = "mean_epochs"
    y_label = "mean epochs to success"

    def _summary(self, name: str, columns: Columns) -> tuple[Any, ...]:
        error, epochs = columns[f"{name}_error"], columns[f"{name}_epochs"]
        reached = error <= SUCCESS
        mean = float(epochs[reached].mean()) if reached.any() else float("nan")
        return mean, int((~reached).sum()), len(error)

    def _text(self, row: dict[str, Any]) -> str:
        failures = f" ({row['failures']} failed)" if row["failures"] else ""
        return f"{row['mean_epochs']:.1f}{failures}"

    def _limit(self, axes: Any) -> None:
        top = max(panel.get_ylim()[1] for panel in axes)
        for panel in axes:
            panel.set_ylim(0, top)

    def caption(self) -> str:
        """Describe the settings and the mean."""
        e = self.experiment
        return super().caption() + (
            f"Mean over the trials that reached an error of {SUCCESS:g} within {e.epochs} epochs; "
            f"the others are counted as failures in the table."
        )
