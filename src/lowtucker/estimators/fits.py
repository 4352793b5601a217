"""Regression fits: one target at a given rank, and the rank by held-out rows."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowtucker._array import size
from lowtucker._array.linalg import svd
from lowtucker.estimators.arguments import Rank
from lowtucker.estimators.penalty import Penalty
from lowtucker.estimators.rows import Centred
from lowtucker.limits import PLENTY
from lowtucker.operators import DenseOperator, MeasurementOperator, stack
from lowtucker.problem import Problem
from lowtucker.recovery import recover
from lowtucker.recovery.fit import Fit
from lowtucker.recovery.holdout import Holdout
from lowtucker.recovery.rank import Climb
from lowtucker.run import History
from lowtucker.run.result import Result
from lowtucker.solvers import RGN
from lowtucker.solvers.noise import FULL
from lowtucker.status import Finding, Status
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.rank import attainable_rank, degrees_of_freedom

__all__ = ["Fitting", "noted"]

NumPyArray = np.ndarray[Any, Any]
# Number of starts of "auto", and of TIHT steps that prepare every other start. On 12x12x8 tensors
# of rank (2,2,2) with 10 % noise and 1.6 rows per degree of freedom, five starts find the lowest
# minimum that a hundred find; a single start does so in one problem of five
STARTS, IHT_STEPS = 5, 20
# Number of starts of fits that compare ranks if rows are few; otherwise one, as local minima are
# rare
FEW = 2
LINEAR = "Every tensor has this rank: the fit is linear, and solved by least squares."


@dataclass(frozen=True)
class Fitting:
    r"""Settings to minimise :math:`\|y - Xw\|^2 + \alpha \|w\|^2` over tensors w of low rank.

    Parameters
    ----------
    shape : tuple of int
    alpha : float
    intercept : bool
    solver, tol, max_epochs, seed
        As in :func:`lowtucker.recover`.
    quick : bool
        Whether an approximate fit suffices, to compare ranks.
    """

    shape: Rank
    alpha: float
    intercept: bool
    solver: Any
    tol: float
    max_epochs: int
    seed: int
    quick: bool = False

    def __call__(self, rows: Centred, target: int, rank: Rank) -> Result:
        """Fit one target.

        If every tensor has the rank, the problem is linear and solved by least squares.
        """
        attained = attainable_rank(tuple(rank))
        if degrees_of_freedom(self.shape, attained) == size(self.shape):
            return self._linear(rows, rows.Y[:, target].copy(), attained)
        problem = self._problem(rows, target, isotropic=rows.is_plain)
        return recover(
            problem.A,
            problem.y,
            tuple(rank),
            solver=self._solver(rows, attained),
            tol=self.tol,
            max_epochs=self.max_epochs,
            seed=self.seed,
        )

    def _problem(self, rows: Centred, target: int, *, isotropic: bool) -> Problem:
        """Rows of the data, and those of the penalty, if there is one."""
        A: MeasurementOperator = DenseOperator(rows.X, self.shape, isotropic=isotropic)
        y = rows.Y[:, target].copy()
        if self.alpha:
            A = stack([A, Penalty(self.shape, self.alpha)])
            y = np.concatenate([y, np.zeros(size(self.shape))])
        return Problem(A, y)

    def _solver(self, rows: Centred, rank: Rank) -> Any:
        if not isinstance(self.solver, str) or self.solver.lower() != "auto":
            return self.solver
        if self.quick and rows.count >= PLENTY * degrees_of_freedom(self.shape, rank):
            return RGN()
        starts = FEW if self.quick else STARTS
        return RGN(starts=starts, iht_steps=IHT_STEPS if size(self.shape) <= FULL else 0)

    def _linear(self, rows: Centred, y: NumPyArray, rank: Rank) -> Result:
        """Solve by least squares of minimum norm, with an SVD of the rows."""
        begin = time.perf_counter()
        U, s, Vt = svd(rows.X)
        cut = max(rows.X.shape) * np.finfo(float).eps * s.max(initial=0.0)
        s = np.where(s > cut, s, np.inf)
        w = Vt.T @ ((U.T @ y) / (s + self.alpha / s))
        X = hosvd(w.reshape(self.shape), rank, warn=False)
        misfit, whole = (float(np.linalg.norm(v)) for v in (y - rows.X @ w, y))
        residual = misfit / (whole or 1.0)
        status = Status.CONVERGED if residual <= self.tol else Status.NOISE_FLOOR
        if not self.alpha and rows.count - self.intercept < w.size:
            status = Status.UNDERDETERMINED
        history = History.of(
            {"epoch": [0], "passes": [1.0], "seconds": [0.0], "residual": [residual],
             "cost": [misfit * misfit / 2], "phase": ["least squares"]}
        )  # fmt: skip
        return Result(
            X, residual, status, history, X.rank, 1, 1.0,
            time.perf_counter() - begin, "least squares", rows.count, w.size,
            findings=(Finding("linear", LINEAR),),
        )  # fmt: skip

    def best_rank(
        self, rows: Centred, held: NumPyArray, target: int, limit: Rank
    ) -> tuple[Rank, str]:
        """Return the rank that predicts held-out rows best, and a note on the search.

        ``held`` is a mask of rows. Without a ridge, only ranks with at least 1.3 rows per degree of
        freedom are tried. Each costs a fit or two, from the fit of a smaller rank.
        """
        ones = (1,) * len(self.shape)
        if attainable_rank(limit) == ones:
            return ones, ""
        # features may be of any scale: the gradient does not count what is missing
        problem = self._problem(rows, target, isotropic=False)
        mask = np.zeros(problem.m, dtype=bool)
        mask[: len(held)] = held
        if held.any() and not held.all():
            quick = replace(self, quick=True)
            fit = Fit(
                quick._solver(rows, attainable_rank(limit)), self.tol, self.max_epochs, None, None,
                None, self.seed, (), "squared",
            )  # fmt: skip
            search = Climb(Holdout.by_weights(problem, mask), limit, fit, math.inf)
            search.go()
            if search.best is not None:
                rank, tried = search.best.X.rank, ", ".join(search.tried)
                return rank, f"Rank {rank} was found. Held-out residuals: {tried}."
        return ones, f"Rank {ones}, the smallest: there are too few rows to hold any out."


def noted(result: Result, note: str) -> Result:
    """Return the result with one more finding, before the others."""
    found = (Finding("rank found", note),) if note else ()
    return replace(result, findings=(*found, *result.findings))
