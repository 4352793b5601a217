"""Figures 1 and 2: cost and error against epochs and seconds, for all block sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtucker.recovery import solve
from lowtucker.run.stopping import MaxEpochs
from lowtucker.simulation.base import Columns, Experiment, Figure, Highlights, Results, draw_trials
from lowtucker.solvers import TIHT, Solver, StoTIHT

__all__ = ["AgainstEpochs", "AgainstSeconds", "Convergence", "Run"]


@dataclass(frozen=True)
class Run:
    """A block size and a step: mu of the paper, over m. A block of all rows is TIHT."""

    block_size: int
    mu_over_m: float

    def __str__(self) -> str:
        return f"b{self.block_size}-mu{self.mu_over_m:g}"


@dataclass(frozen=True)
class Convergence(Experiment):
    """Fixed contiguous blocks drawn uniformly with replacement; a fixed number of epochs."""

    name: str = "convergence"
    shape: tuple[int, ...] = (5, 5, 6)
    rank: tuple[int, ...] = (1, 2, 2)
    m: int = 360
    block_sizes: tuple[int, ...] = (10, 30, 60, 90, 120, 180, 360)
    mus_over_m: tuple[float, ...] = (0.46,)
    epochs: int = 250

    def cells(self) -> Sequence[Run]:
        """Return one cell per block size and step."""
        return [Run(b, mu) for b in self.block_sizes for mu in self.mus_over_m]

    def solver(self, cell: Run) -> Solver:
        """Return TIHT for all rows, else StoTIHT; mu multiplies the sum, a step the mean."""
        step = cell.mu_over_m * self.m * cell.block_size
        if cell.block_size == self.m:
            return TIHT(step=step)
        return StoTIHT(step=step, block_size=cell.block_size)

    def compute(self, cell: Run, first: int, count: int, seed: int) -> Columns:
        """Compute cost, error and seconds of the iterations after every epoch, per trial."""
        problem, X_true = draw_trials(self.shape, self.rank, self.m, seed, first, count)
        result = solve(
            problem, self.solver(cell), self.rank, stop=MaxEpochs(self.epochs), X_true=X_true,
            seed=(seed, first),
        )  # fmt: skip
        history = result.history
        return {
            "cost": _all_epochs(history["cost"], self.epochs),
            "relative_error": _all_epochs(history["error"], self.epochs),
            # trials run as a batch: the time of one is its share
            "seconds": _all_epochs(
                np.repeat(history["seconds"][:, None] / count, count, axis=1), self.epochs
            ),
        }

    def work(self, cell: Run) -> float:
        """Return the number of iterations."""
        return self.epochs * (1 + self.m / cell.block_size)


def _all_epochs(column: Any, epochs: int) -> Any:
    """Return one row per trial; repeat the last values if all trials diverged early."""
    missing = epochs + 1 - len(column)
    return np.concatenate([column, np.repeat(column[-1:], missing, axis=0)]).T


@dataclass(frozen=True)
class AgainstEpochs(Figure):
    """Figure 1: means over the trials at the end of each epoch."""

    experiment: Convergence = Convergence()

    name = "fig1"
    title = "Cost and error against epochs"
    columns = ("algorithm", "block_size", "epoch", "cost", "relative_error")
    x_axis = ("epoch", "epoch")
    unit = ": mean (median)"

    def rows(self, results: Results) -> list[tuple[Any, ...]]:
        """Return means over trials. One block equals TIHT bit for bit and is listed as both."""
        rows = []
        for run, columns in results.items():
            x = self._x(columns)
            cost, error = columns["cost"].mean(axis=0), columns["relative_error"].mean(axis=0)
            names = ["StoTIHT"] + (["TIHT"] if run.block_size == self.experiment.m else [])
            for name in names:
                rows += [
                    (name, run.block_size, *(float(v) if i else v for i, v in enumerate(point)))
                    for point in zip(x, cost, error, strict=True)
                ]
        return rows

    def _x(self, columns: Columns) -> Any:
        return range(columns["cost"].shape[1])

    def draw(self, table: list[dict[str, Any]], results: Results) -> Any:
        """Draw two panels, as in the paper: (a) cost, (b) error."""
        from lowtucker._plotting import new_figure

        figure, axes = new_figure(1, 2)
        sizes = [run.block_size for run in results]
        column, label = self.x_axis
        for panel, quantity, name in (
            (axes[0], "cost", "cost"),
            (axes[1], "relative_error", "relative error"),
        ):
            for k, b in enumerate(sizes):
                points = [
                    row for row in table if row["block_size"] == b and row["algorithm"] == "StoTIHT"
                ]
                is_tiht = b == self.experiment.m
                panel.semilogy(
                    [p[column] for p in points],
                    [p[quantity] for p in points],
                    linestyle="--" if is_tiht else "-",
                    color="black" if is_tiht else f"C{k}",
                    label=f"b = {b}" + (" (TIHT)" if is_tiht else ""),
                )
            panel.set_xlabel(label)
            panel.set_ylabel(f"mean {name}")
            panel.grid(alpha=0.3)
        axes[1].legend(fontsize=8)
        self._limit(axes, table)
        return figure

    def _limit(self, axes: Any, table: list[dict[str, Any]]) -> None:
        """Show all epochs."""

    def highlights(self, table: list[dict[str, Any]], results: Results) -> Highlights:
        """Return mean and median error: TIHT's mean is dominated by a few slow trials."""
        epochs = [k for k in (10, 25, 50, 100, 250) if k <= self.experiment.epochs]
        rows = []
        for run, columns in results.items():
            name = "TIHT" if run.block_size == self.experiment.m else "StoTIHT"
            rows.append((name, str(run.block_size), *(self._at(columns, k) for k in epochs)))
        return Highlights(("algorithm", "b", *(f"epoch {k}{self.unit}" for k in epochs)), rows)

    def _at(self, columns: Columns, epoch: int) -> str:
        error = columns["relative_error"][:, epoch]
        return f"{error.mean():.1e} ({np.median(error):.1e})"

    def caption(self) -> str:
        """Describe the settings."""
        e = self.experiment
        return (
            f"StoTIHT with blocks of b measurements and TIHT (b = m, black, dashed). Tensors of "
            f"shape {e.shape}, Tucker rank {e.rank}, m = {e.m}, step mu = {e.mus_over_m[0]:g} m, "
            f"{e.epochs} epochs; means over the trials. "
        )


@dataclass(frozen=True)
class AgainstSeconds(AgainstEpochs):
    """Figure 2: the same runs against the time of their iterations alone."""

    name = "fig2"
    title = "Cost and error against time"
    columns = ("algorithm", "block_size", "seconds", "cost", "relative_error")
    x_axis = ("seconds", "seconds of the iterations of one trial")
    unit = ""

    def _x(self, columns: Columns) -> Any:
        return columns["seconds"].mean(axis=0).tolist()

    def _at(self, columns: Columns, epoch: int) -> str:
        return f"{1e3 * columns['seconds'][:, epoch].mean():.2f} ms"

    def _limit(self, axes: Any, table: list[dict[str, Any]]) -> None:
        """End the axis with TIHT: small blocks run long after convergence."""
        end = max(row["seconds"] for row in table if row["algorithm"] == "TIHT")
        for panel in axes:
            panel.set_xlim(0, end)

    def caption(self) -> str:
        """Describe the settings and the timing."""
        return super().caption() + (
            f"The runs of Figure 1. Trials run in batches of up to {self.experiment.stack} on one "
            f"core; the time of a trial is its share of the iterations of the batch, without the "
            f"recording of costs and errors. The axis ends at the last epoch of TIHT."
        )
