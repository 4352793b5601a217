"""One algorithm, every format: success against measurements, ``lowtucker bench family``.

Each format of the paper's family has a phase diagram: the fraction of random tensors that are
recovered against m in units of the format's degrees of freedom, the published ancestor beside the
library's default. The curves are those of ``family_series``; ``family_claims`` judges what the
publications claim.
"""

from __future__ import annotations

import csv
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lowtucker._array import one_blas_thread, size
from lowtucker._array.errors import RankWarning, UnderdeterminedWarning
from lowtucker.metrics import relative_error
from lowtucker.operators import MeasurementOperator, batch, entries, gaussian, kronecker
from lowtucker.problem import Problem
from lowtucker.recovery import solve
from lowtucker.run.result import Result
from lowtucker.run.stopping import MaxEpochs, ResidualBelow, Stalled, StoppingRule
from lowtucker.solvers import NuclearNorm
from lowtucker.tensor import degrees_of_freedom, hooi, random_tucker
from lowtucker.thresholding import random_tensor

__all__ = ["SEED", "USUAL", "Point", "Series", "half", "measure", "passes_of", "read", "run"]

NumPyArray = np.ndarray[Any, Any]
T = TypeVar("T")
SEED = 23
# Relative error that counts as recovered
TOL = 1e-4
USUAL = ResidualBelow(1e-6) | Stalled() | MaxEpochs(500)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One curve: a method, on random tensors of a format.

    Parameters
    ----------
    panel : str
        The diagram that it belongs to.
    method : str
    solver : Solver or "auto"
    target : Thresholding or tuple of int
        The format, or the Tucker rank; as it is given to ``solve``.
    shape : tuple of int
    per_dof : sequence of float
        Measurements per degree of freedom.
    trials : int
        Problems for each number of measurements.
    rows : "gaussian", "entries" or "columns"
        Gaussian rows; sampled entries; or one Gaussian matrix that measures every column of a
        matrix. Every problem has its own.
    truth : callable, optional
        (trials, seed) -> tensors; ``random_tensor`` or ``random_tucker`` by default.
    stop : StoppingRule
    tol : float
    near : bool
        Whether ``tol`` is a multiple of the error of the best approximation of that rank.
    split : bool
        Whether the columns are recovered one by one; the matrix is, if all of them are.
    """

    panel: str
    method: str
    solver: Any
    target: Any
    shape: tuple[int, ...]
    per_dof: Sequence[float]
    trials: int
    rows: str = "gaussian"
    truth: Callable[[int, int], Any] | None = None
    stop: StoppingRule = USUAL
    tol: float = TOL
    near: bool = False
    split: bool = False

    @property
    def dof(self) -> int:
        """Degrees of freedom of the format."""
        if isinstance(self.target, tuple):
            return degrees_of_freedom(self.shape, self.target)
        return int(self.target.for_shape(self.shape).degrees_of_freedom(self.shape))

    def measurements(self) -> list[int]:
        """Numbers of measurements, in whole columns where columns are measured."""
        step = self.shape[1] if self.rows == "columns" else 1
        found = {step * round(ratio * self.dof / step) for ratio in self.per_dof}
        return sorted(min(m, size(self.shape)) for m in found)

    def draw(self, trials: int, seed: int = SEED) -> Any:
        """Return a batch of tensors."""
        if self.truth is not None:
            return self.truth(trials, seed)
        if isinstance(self.target, tuple):
            return random_tucker(self.shape, self.target, seed=seed, trials=trials)
        return random_tensor(self.target, self.shape, seed=seed, trials=trials)

    def operator(self, m: int, trials: int) -> MeasurementOperator:
        """Return the measurements of a batch."""
        if self.rows == "columns":
            return batch([_columns(self.shape, m, k) for k in range(trials)])
        if self.rows == "entries":
            return batch([_sampled(self.shape, m, (SEED, m, k)) for k in range(trials)])
        return gaussian(self.shape, m, seed=(SEED + 1, 0), trials=trials)


@dataclass(frozen=True)
class Point:
    """A point of a phase diagram.

    Parameters
    ----------
    panel, method, target : str
    m, dof, trials, recovered : int
    epochs, passes : float
        Medians of the problems that were recovered; NaN if none was, or if nobody counted.
    gap : float
        Convex programs: largest duality gap, relative; NaN for others.
    published : float
        Published fraction recovered; NaN where there is none.
    seconds : float
        CPU time of all problems.
    measured : str
        Date.
    """

    panel: str
    method: str
    target: str
    m: int
    dof: int
    trials: int
    recovered: int
    epochs: float
    passes: float
    gap: float
    published: float
    seconds: float
    measured: str

    @property
    def per_dof(self) -> float:
        """Measurements per degree of freedom."""
        return self.m / self.dof

    @property
    def share(self) -> float:
        """Fraction recovered."""
        return self.recovered / self.trials


def run(series: Iterable[Series], *, quick: bool = False) -> Iterator[Point]:
    """Yield points as they are measured, on one BLAS thread.

    Parameters
    ----------
    series : iterable of Series
    quick : bool
        A fifth of the problems and half of the numbers of measurements.
    """
    with one_blas_thread(), warnings.catch_warnings():
        # few measurements, and dimension trees whose ranks are not attained, are the subject
        warnings.simplefilter("ignore", UnderdeterminedWarning)
        warnings.simplefilter("ignore", RankWarning)
        for one in series:
            one = quickly(one) if quick else one
            for m in one.measurements():
                yield measure(one, m)


def quickly(series: Series) -> Series:
    """Return a series of a tenth of the cost: the fewest measurements take longest."""
    few = max(2, series.trials // 5)
    return replace(series, trials=few, per_dof=tuple(series.per_dof)[1::2])


def measure(series: Series, m: int) -> Point:
    """Draw a batch of problems, solve it, and count what is recovered."""
    begin = time.process_time()
    X = series.draw(series.trials)
    A = series.operator(m, series.trials)
    result, errors = _solved(series, A, X)
    limit = series.tol * _least_errors(X, series.target) if series.near else series.tol
    found = errors < limit
    # columns that are recovered one by one have no epochs of the matrix
    ended = np.flatnonzero(found) if found.size == len(result.epochs) else np.array([], int)
    return Point(
        panel=series.panel,
        method=series.method,
        target=str(series.target),
        m=m,
        dof=series.dof,
        trials=series.trials,
        recovered=int(found.sum()),
        epochs=float(np.median(result.epochs[ended])) if len(ended) else math.nan,
        passes=float(np.median(passes_of(result)[ended])) if len(ended) else math.nan,
        gap=_gap(result),
        published=math.nan,
        seconds=time.process_time() - begin,
        measured=date.today().isoformat(),
    )


def passes_of(result: Result) -> NumPyArray:
    """Passes over the rows until each problem of a batch ended."""
    return np.array([result.trial(k).passes for k in range(len(result.epochs))])


def _solved(series: Series, A: MeasurementOperator, X: Any) -> tuple[Result, NumPyArray]:
    """Solve a batch; its result and the errors."""
    if series.split:
        n, count = series.shape
        of = [k for k in range(len(X)) for _ in range(count)]  # the matrix that measures a column
        B = batch([_columns((n, 1), A.m // count, k) for k in of])
        each = np.swapaxes(X, 1, 2).reshape(-1, n, 1)
        result = solve(Problem(B, B.forward(each)), series.solver, series.target, X_true=each)
        return result, np.asarray(result.error).reshape(-1, count).max(axis=1)
    rank = None if isinstance(series.solver, NuclearNorm) else series.target
    problem = Problem(A, A.forward(X))
    result = solve(problem, series.solver, rank, X_true=X, stop=series.stop)
    return result, np.asarray(result.error)


def _gap(result: Result) -> float:
    gaps = [f.numbers["gap"] for one in result.each for f in one.findings if "gap" in f.numbers]
    return float(max(gaps)) if gaps else math.nan


def _columns(shape: tuple[int, ...], m: int, k: int) -> MeasurementOperator:
    """The Gaussian matrix of problem k, of m / L rows, for every one of L columns."""
    rows = m // shape[1]
    B = np.random.default_rng([SEED, rows, k]).standard_normal((rows, shape[0])) / math.sqrt(rows)
    return kronecker([B, np.eye(shape[1])])


def _sampled(shape: tuple[int, ...], m: int, seed: Sequence[int]) -> MeasurementOperator:
    chosen = np.random.default_rng(list(seed)).choice(size(shape), m, replace=False)
    return entries(shape, np.stack(np.unravel_index(chosen, shape), axis=-1))


def _least_errors(X: NumPyArray, target: Any) -> NumPyArray:
    """Errors of the best approximations, by HOOI."""
    best = (hooi(one, target.rank).full() for one in X)
    return np.array([relative_error(Y, one) for Y, one in zip(best, X, strict=True)])


def half(points: Iterable[Point]) -> float:
    """Measurements at which half of the problems are recovered, by linear interpolation.

    NaN if the points do not enclose it.
    """
    ordered = sorted(points, key=lambda point: point.m)
    for low, high in pairwise(ordered):
        if low.share < 0.5 <= high.share:
            return low.m + (high.m - low.m) * (0.5 - low.share) / (high.share - low.share)
    return math.nan


def read(path: Path, kind: type[T]) -> list[T]:
    """Read rows, dataclasses of texts and numbers, that ``write_csv`` has written."""
    readers = {"str": str, "int": int, "float": float}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            kind(**{one.name: readers[str(one.type)](row[one.name]) for one in fields(kind)})  # type: ignore[arg-type]
            for row in csv.DictReader(file)
        ]
