"""How often error bars cover the truth: ``lowtucker bench uncertainty``, yardstick F1.

The tensor is 40x40x40 of rank 3 (360 degrees of freedom), measured 5 and 10 times per degree of
freedom with noise of 1 and 10 %. Every run draws a truth and noise, fits, and asks for 95 %
intervals of 20 entries and of ten random functionals. The oracle knows the tangent space at the
truth and the standard deviation of the noise: its interval is that of linear least squares.
Gaussian rows are drawn anew for every 25 runs, rank-one rows for every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker.operators import EntriesOperator, MeasurementOperator, gaussian, rank_one
from lowtucker.problem import Problem
from lowtucker.recovery import solve
from lowtucker.tensor import TuckerTensor, degrees_of_freedom, random_tucker
from lowtucker.uncertainty.bars import Uncertainty, student_quantile
from lowtucker.uncertainty.information import Noise, information_at

__all__ = ["SETTINGS", "Row", "Setting", "covered", "run"]

SHAPE, RANK = (40, 40, 40), (3, 3, 3)
LEVEL, ENTRIES, FUNCTIONALS = 0.95, 20, 10
# Runs of each of the eight settings, and runs that share Gaussian rows
RUNS, SHARED = 250, 25
# Coverage and width that F1 asks for
LOW, HIGH, WIDTH = 0.93, 0.97, 1.05


@dataclass(frozen=True)
class Setting:
    """Problems of one kind: operator, measurements per degree of freedom, relative noise."""

    kind: str
    per_dof: int
    noise: float
    shape: tuple[int, ...] = SHAPE
    rank: tuple[int, ...] = RANK

    @property
    def m(self) -> int:
        """The number of measurements."""
        return self.per_dof * degrees_of_freedom(self.shape, self.rank)

    def operator(self, seed: int) -> MeasurementOperator:
        """Rows of this kind."""
        if self.kind == "gaussian":
            return gaussian(self.shape, self.m, seed=seed)
        rng = np.random.default_rng(seed)
        return rank_one([rng.standard_normal((self.m, n)) for n in self.shape])


KINDS = ("gaussian", "rank-one")
SETTINGS = tuple(
    Setting(kind, per, noise) for kind in KINDS for per in (5, 10) for noise in (0.01, 0.1)
)


@dataclass(frozen=True)
class Row:
    """Coverage of one setting, with the larger standard error of both; that counts runs."""

    work: str
    kind: str
    m: int
    noise: float
    runs: int
    entries: float
    functionals: float
    error: float
    width: float
    target: str
    met: bool | None
    note: str = ""

    @property
    def what(self) -> str:
        """What was measured, in words."""
        return f"{self.work} {self.kind} m = {self.m}, noise {self.noise:.0%}"


def run(settings: Sequence[Setting] = SETTINGS, runs: int = RUNS, seed: int = 0) -> Iterator[Row]:
    """Yield a row for every setting."""
    with one_blas_thread():
        for setting in settings:
            yield row_of(setting, covered(setting, runs, seed))


def covered(setting: Setting, runs: int, seed: int = 0) -> list[tuple[float, float, float]]:
    """Shares of entries and of functionals covered, and the width over the oracle's."""
    found = []
    A: Any = None
    for k in range(runs):
        if A is None or setting.kind != "gaussian" or k % SHARED == 0:
            A = None  # frees the rows before others are drawn
            A = setting.operator(seed + k)
        rng = np.random.default_rng([seed, k])
        X = random_tucker(setting.shape, setting.rank, seed=(seed, k))
        clean = A.forward(X)
        std = setting.noise * float(np.linalg.norm(clean)) / math.sqrt(A.m)
        problem = Problem(A, clean + std * rng.standard_normal(A.m))
        fitted = solve(problem, "auto", setting.rank, seed=k)
        found.append(_judged(rng, problem, fitted.X, X, std))
    return found


def _judged(
    rng: np.random.Generator, problem: Problem, fitted: TuckerTensor, X: TuckerTensor, std: float
) -> tuple[float, float, float]:
    """What the intervals of one fit cover."""
    indices = np.stack([rng.integers(0, n, ENTRIES) for n in X.shape], axis=1)
    bars = Uncertainty(fitted, problem)
    low, high = bars.interval(indices, LEVEL)
    truth = X.entries(indices)
    inside = [_is_inside(bars, rng.standard_normal(X.shape), X) for _ in range(FUNCTIONALS)]
    clean = Problem(problem.A, problem.A.forward(X))
    oracle = information_at(clean, X, Noise(std))
    design = EntriesOperator(X.shape, indices).tangent(oracle.T)
    least = student_quantile(LEVEL, math.inf) * oracle.deviations(design)
    width = float(np.median((high - low) / (2 * least)))
    return float(np.mean((low <= truth) & (truth <= high))), float(np.mean(inside)), width


def _is_inside(bars: Uncertainty, W: Any, X: TuckerTensor) -> bool:
    low, high = bars.functional(W, LEVEL).interval
    return bool(low <= float(np.sum(W * X.full())) <= high)


def row_of(setting: Setting, found: list[tuple[float, float, float]]) -> Row:
    """Row of a setting, with its verdict."""
    entries, inside, width = (np.array(column) for column in zip(*found, strict=True))
    shares = float(entries.mean()), float(inside.mean())
    error = float(max(entries.std(), inside.std())) / math.sqrt(len(found))
    middle = float(np.median(width))
    met = all(LOW <= share <= HIGH for share in shares) and middle <= WIDTH
    return Row(
        "F1", setting.kind, setting.m, setting.noise, len(found), *shares, error, middle,
        f"{LOW:.0%} to {HIGH:.0%}, width <= {WIDTH}", met,
    )  # fmt: skip
