"""Supplements to the figures: each method tuned, and ordinary least squares for m > N."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from lowtucker.lab.experiments.clip import ClipRecovery
from lowtucker.lab.experiments.convergence import Convergence, Run
from lowtucker.lab.experiments.success import ALGORITHMS, SUCCESS, Recoveries
from lowtucker.metrics import relative_error
from lowtucker.simulation.base import Columns, Experiment, Figure, Highlights, Results, draw_trials
from lowtucker.tensor import unfold

__all__ = ["Choice", "Facts", "Tuned"]

# The clip has no exact rank: errors level off at a floor, and a run has reached it when its error
# is within this factor of the lowest one of all runs
FLOOR = 1.02


@dataclass(frozen=True)
class Choice:
    """Role of a step in the table: published, best of its grid, best at the edge of its grid."""

    published: bool = False
    best: bool = False
    at_edge: bool = False

    def __str__(self) -> str:
        best = "best (at the edge of the grid)" if self.at_edge else "best"
        marks = (("published", self.published), (best, self.best))
        return " and ".join(text for text, holds in marks if holds)


@dataclass(frozen=True)
class Facts(Experiment):
    """Two facts about the paper's problems that require no recovery."""

    name: str = "facts"
    shape: tuple[int, ...] = (5, 5, 6)
    rank: tuple[int, ...] = (1, 2, 2)
    m: int = 360
    impossible: tuple[int, ...] = (1, 1, 2)

    max_trials: ClassVar[int | None] = 50

    def cells(self) -> Sequence[str]:
        """Return the only cell."""
        return [self.name]

    def compute(self, cell: Any, first: int, count: int, seed: int) -> Columns:
        """Compute the error of least squares in Figure 1's setting, and the rank of a target."""
        problem, X_true = draw_trials(self.shape, self.rank, self.m, seed, first, count)
        errors = []
        A: Any = problem.A
        for matrix, y, X in zip(A.matrix, problem.y, X_true, strict=True):
            x = np.linalg.lstsq(matrix, y, rcond=None)[0]
            errors.append(relative_error(x.reshape(self.shape), X))
        _, targets = draw_trials(self.shape, self.impossible, 1, seed, first, count)
        values = np.linalg.svd(np.stack([unfold(X, 2) for X in targets]), compute_uv=False)
        return {
            "least_squares_error": np.asarray(errors),
            "second_singular_value": values[:, 1] / values[:, 0],
        }

    def work(self, cell: Any) -> float:
        """Return a small constant."""
        return 10.0


def _tuned_tiht() -> Convergence:
    steps = (0.30, 0.35, 0.38, 0.40, 0.42, 0.46)
    return Convergence("tuned-TIHT", block_sizes=(360,), mus_over_m=steps, epochs=25)


def _tuned_stotiht() -> Convergence:
    steps = (0.46, 0.75, 1.0, 1.25, 1.5, 1.75)
    return Convergence("tuned-StoTIHT", block_sizes=(90,), mus_over_m=steps, epochs=25)


def _tuned_epochs() -> Recoveries:
    steps = (0.25, 0.3, 0.35, 0.4, 0.5, 0.7, 1.0, 1.4, 1.8, 2.4, 3.0)
    return Recoveries(
        "tuned-epochs", (240, 320, 400, 460), steps, 4, 80, SUCCESS, ranks=((1, 2, 2),)
    )


@dataclass(frozen=True)
class Tuned(Figure):
    """The published step and the best of a grid for each method, on the same problems.

    Uses the settings of Figure 1 (TIHT, and StoTIHT with b = 90), of Figures 4 and 5
    (rank (1, 2, 2)) and of Figure 7.
    """

    published_clip: ClipRecovery
    tiht: Convergence = field(default_factory=_tuned_tiht)
    stotiht: Convergence = field(default_factory=_tuned_stotiht)
    epochs: Recoveries = field(default_factory=_tuned_epochs)
    facts: Facts = field(default_factory=Facts)

    name = "tuned"
    title = "As published, and each method tuned"
    columns = (
        "setting", "algorithm", "m", "mu_over_m", "quantity", "value", "failures", "choice",
    )  # fmt: skip

    @property
    def clip(self) -> ClipRecovery:
        """Recovery of the clip with other steps, and with ordinary least squares."""
        published = self.published_clip
        tried = {"TIHT": (0.08, 0.12, 0.18, 0.25, 0.30), "StoTIHT": (0.15, 0.20, 0.30, 0.60, 0.80)}
        steps = tuple((name, mu) for name, mus in tried.items() for mu in mus)
        return ClipRecovery(
            "tuned-clip", published.clip, published.rank, published.m, steps,
            published.blocks, published.epochs, least_squares=published.epochs,
        )  # fmt: skip

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """The grids of steps, and the published run on the clip."""
        return (
            self.tiht, self.stotiht, self.epochs, self.facts, self.published_clip, self.clip,
        )  # fmt: skip

    def rows(self, results: Results) -> list[tuple[Any, ...]]:
        """Return every step; ``choice`` marks the published one and the best."""
        rows = self._convergence(results) + self._clip(results)
        for setting, published in (("figure 4", 0.5), ("figure 5", 0.4)):
            rows += self._epochs(results, setting, published)
        groups: dict[Any, list[tuple[Any, ...]]] = {}
        for row in rows:
            groups.setdefault(row[:3], []).append(row)
        marked = []
        for group in groups.values():
            # NaN, where all trials fail, comes with the most failures; of equals, the published one
            best = min(group, key=lambda row: (row[6], row[5], not row[7].published))
            tried = [row[3] for row in group]
            found = {"best": True, "at_edge": best[3] in (min(tried), max(tried))}
            for row in group:
                choice = replace(row[7], **found) if row is best else row[7]
                marked.append((*row[:7], choice))
        return marked

    def _convergence(self, results: Results) -> list[tuple[Any, ...]]:
        quantity = "mean relative error after 10 epochs"
        rows = []
        for name, experiment in (("TIHT", self.tiht), ("StoTIHT", self.stotiht)):
            for run in experiment.cells():
                value = float(results[run]["relative_error"][:, 10].mean())
                choice = Choice(published=run.mu_over_m == 0.46)
                rows.append(
                    ("figure 1", name, experiment.m, run.mu_over_m, quantity, value, 0, choice)
                )
        return rows

    def _epochs(self, results: Results, setting: str, published: float) -> list[tuple[Any, ...]]:
        quantity = f"mean epochs to success (limit {self.epochs.epochs})"
        rows = []
        for name in ALGORITHMS:
            for cell in self.epochs.cells():
                columns = results[cell]
                reached = columns[f"{name}_error"] <= SUCCESS
                epochs = columns[f"{name}_epochs"][reached]
                value = float(epochs.mean()) if reached.any() else float("nan")
                choice = Choice(published=cell.mu_over_m == published)
                rows.append(
                    (setting, name, cell.m, cell.mu_over_m, quantity, value,
                     int((~reached).sum()), choice)
                )  # fmt: skip
        return rows

    def _clip(self, results: Results) -> list[tuple[Any, ...]]:
        floor = FLOOR * min(float(error[-1]) for *_, error in self._clip_curves(results))
        quantity = f"epochs to a relative error of {floor:.4f}"
        rows = []
        for experiment, name, mu, error in self._clip_curves(results):
            reached = np.flatnonzero(error <= floor)
            epochs = float(reached[0]) if reached.size else float("nan")
            choice = Choice(published=experiment is self.published_clip)
            rows.append(
                ("figure 7", name, experiment.m, mu, quantity, epochs, int(not reached.size),
                 choice)
            )  # fmt: skip
        return rows

    def _clip_curves(self, results: Results) -> Iterator[tuple[ClipRecovery, str, float, Any]]:
        """Yield the errors of every run on the clip, by epoch; the published ones first."""
        for experiment in (self.published_clip, self.clip):
            curves = results[experiment.name]["relative_error"][0]
            for (name, mu), error in zip(experiment.runs, curves, strict=True):
                yield experiment, name, mu, error

    def least_squares(self, results: Results) -> dict[str, float]:
        """Return the facts stated in the report."""
        facts = results["facts"]
        return {
            "small": float(np.median(facts["least_squares_error"])),
            "clip": float(results[self.clip.name]["least_squares_error"][0]),
            "second_singular_value": float(facts["second_singular_value"].max()),
        }

    def draw(self, table: list[dict[str, Any]], results: Results) -> Any:
        """Draw one panel per setting."""
        from lowtucker._plotting import new_figure

        figure, axes = new_figure(1, 3, width=14.5, height=4)
        self._draw_convergence(axes[0], table, results)
        self._draw_epochs(axes[1], table)
        self._draw_clip(axes[2], table, results)
        for panel in axes:
            panel.grid(alpha=0.3)
            panel.legend(fontsize=8)
        return figure

    def _draw_convergence(self, panel: Any, table: list[dict[str, Any]], results: Results) -> None:
        for name, b in (("TIHT", self.tiht.m), ("StoTIHT", self.stotiht.block_sizes[0])):
            for row in _chosen(table, "figure 1", name):
                error = results[Run(b, row["mu_over_m"])]["relative_error"].mean(axis=0)
                panel.semilogy(
                    error, _style(row["choice"].best), label=_label(row), color=COLOURS[name]
                )
        panel.set_title("setting of Figure 1")
        panel.set_xlabel("epoch")
        panel.set_ylabel("mean relative error")

    def _draw_epochs(self, panel: Any, table: list[dict[str, Any]]) -> None:
        for name in ALGORITHMS:
            for mark, step in (("published", "0.4 m"), ("best", "best step for each m")):
                points = [r for r in _chosen(table, "figure 5", name) if getattr(r["choice"], mark)]
                panel.plot(
                    [p["m"] for p in points], [p["value"] for p in points],
                    _style(mark == "best"), marker="o", color=COLOURS[name],
                    label=f"{name}, {step}",
                )  # fmt: skip
        panel.set_title("setting of Figure 5, rank (1, 2, 2)")
        panel.set_xlabel("measurements m")
        panel.set_ylabel("mean epochs to success")
        panel.set_ylim(bottom=0)

    def _draw_clip(self, panel: Any, table: list[dict[str, Any]], results: Results) -> None:
        for _, name, mu, error in self._clip_curves(results):
            for row in _chosen(table, "figure 7", name):
                if row["mu_over_m"] == mu:
                    panel.semilogy(
                        error, _style(row["choice"].best), label=_label(row), color=COLOURS[name]
                    )
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.set_title("setting of Figure 7")
        panel.set_xlabel("epoch")
        panel.set_ylabel("relative error")

    def caption(self) -> str:
        """Describe the tuning."""
        return (
            "Dashed: the published step, the same for both methods. Solid: the best step of a "
            "small grid for each method: by the mean error after 10 epochs (Figure 1), by "
            "failures and then mean epochs (Figures 4 and 5), by epochs to the floor (Figure 7: "
            f"within {FLOOR - 1:.0%} of the lowest error of all runs, which no step improves on by "
            "much, since the clip has no exact rank). A published step that none is better than "
            "is drawn solid. Steps were chosen on the trials shown, which favours both methods; "
            "tuned.csv lists all."
        )

    def highlights(self, table: list[dict[str, Any]], results: Results) -> Highlights:
        """Return the published and the best steps."""
        groups = dict.fromkeys((r["setting"], r["m"], r["quantity"]) for r in table)
        rows = []
        for setting, m, quantity in groups:
            cells = []
            for name in ALGORITHMS:
                for mark in ("published", "best"):
                    (row,) = [
                        r for r in _chosen(table, setting, name)
                        if r["m"] == m and getattr(r["choice"], mark)
                    ]  # fmt: skip
                    failed = f", {row['failures']} failed" if row["failures"] else ""
                    value = "never" if np.isnan(row["value"]) else f"{row['value']:.3g}"
                    cells.append(f"{value} ({row['mu_over_m']:g} m{failed})")
            rows.append((setting, str(m), quantity, *cells))
        names = [f"{name}, {mark}" for name in ALGORITHMS for mark in ("published", "best")]
        return Highlights(("setting of", "m", "quantity", *names), rows)


COLOURS = {"TIHT": "black", "StoTIHT": "C0"}


def _chosen(table: list[dict[str, Any]], setting: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of a setting and algorithm that are published or best."""
    rows = [r for r in table if r["setting"] == setting and r["algorithm"] == name]
    return [r for r in rows if r["choice"].published or r["choice"].best]


def _style(best: bool) -> str:
    return "-" if best else "--"


def _label(row: dict[str, Any]) -> str:
    return f"{row['algorithm']}, {row['mu_over_m']:g} m, {row['choice']}"
