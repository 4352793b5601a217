"""Preconditioning: rows that are far from isotropic are made isotropic, to find a better start."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowtucker._array import is_complex, like, real_dtype, size, to_numpy
from lowtucker._array.linalg import qr, svd
from lowtucker._array.random import as_seed
from lowtucker.operators import DenseOperator
from lowtucker.problem import Problem
from lowtucker.recovery.fit import Fit
from lowtucker.run.result import Result
from lowtucker.solvers import RGN, Solver
from lowtucker.solvers.amp import spread_of_rows
from lowtucker.solvers.auto import automatic
from lowtucker.status import Finding, Status

__all__ = ["Equivalent", "isotropic_rows", "preconditioned"]

NumPyArray = np.ndarray[Any, Any]
# Spread of the eigenvalues of A A* (1 for i.i.d. rows) from which on rows are made isotropic. Of
# 1600 matrices of i.i.d. rows, 20x64 to 600x1728, the largest had 1.34
SPREAD = 2.0
# Flops of the largest decomposition, in units of m N min(m, N)
COSTLY = 1e10
# Variances of noise that are tried, in units of the largest eigenvalue of A A*
NOISE = (0.0, *np.logspace(-14, 3, 35).tolist())
# Starts of the fit to isotropic rows. Ratios of residuals: a better fit, and the same
STARTS, CLEARLY, SAME = 10, 0.99, 1.001
STOPPED = (Status.INTERRUPTED, Status.MAX_SECONDS)
# Eigenvalues below this, relative to the largest, are rounding error
ROUNDING = 1e-26


@dataclass(frozen=True)
class Equivalent:
    """A problem with the solutions of another, and with rows that are closer to isotropic.

    Attributes
    ----------
    problem : Problem
    how : str
        What was done, for a sentence.
    spreads : tuple of float
        Spread of the eigenvalues of A A* before and after; see :class:`lowtucker.solvers.amp.Rows`.
    sizes : tuple of float
        Smallest and largest norm of the rows, or singular value, that was divided by.
    noise : float
        Estimated share of noise in y, in units of its norm.
    """

    problem: Problem
    how: str
    spreads: tuple[float, float]
    sizes: tuple[float, float]
    noise: float

    def finding(self, effect: str, residual: float) -> Finding:
        """What was done and what it led to, with the numbers."""
        low, high = self.sizes
        text = (
            f"The rows of A are far from isotropic. A start from {self.how} ({low:.1e} to "
            f"{high:.1e}) {effect}."
        )
        numbers = {
            "spread": self.spreads[0], "after": self.spreads[1], "smallest": low, "largest": high,
            "noise": self.noise, "residual": residual,
        }  # fmt: skip
        return Finding("preconditioned", text, numbers)


def preconditioned(problem: Problem, rank: Any, fit: Fit, result: Result) -> Result | None:
    r"""Fit rows that were made isotropic, and from there the given ones; keep the better fit.

    Where rows are far from isotropic, least squares has local minima that fit the strongest
    directions only. None where rows are isotropic, where the first fit did not stall, or where
    nothing can be done: see :func:`isotropic_rows`.

    Parameters
    ----------
    problem : Problem
    rank : tuple of int
    fit : Fit
    result : Result
        The first fit.

    Notes
    -----
    Two passes to look at the rows. Where they are anisotropic, a decomposition of the matrix, and
    two more fits: an automatic one to the isotropic rows, and Gauss-Newton steps to the given ones.
    The result has the history and the costs of all. Huber's loss is left alone: a mixture of
    rows would spread an outlier over all of them.
    """
    if fit.loss != "squared" or fit.time_is_up or problem.batch_shape:
        return None
    if not _met_local_minima(result):
        return None
    made = isotropic_rows(problem, as_seed(fit.seed))
    if made is None:
        return None
    solver = _few_starts(made.problem, rank) if fit.solver == "auto" else fit.solver
    rough = replace(fit, noise_std=None)
    last = rough(made.problem, rank, solver=solver, before=result, label="isotropic rows")
    if last.status not in STOPPED:
        solver = RGN() if fit.solver == "auto" else fit.solver
        start, label = last.X, "preconditioned"
        last = fit(problem, rank, start=start, solver=solver, before=last, label=label)
        last = replace(last, solver=result.solver)
        if last.residual < CLEARLY * result.residual:
            return last.found(made.finding("led to a better fit", last.residual))
        again = made.finding("led no further", last.residual)
        if result.status is Status.MAX_EPOCHS and last.residual < SAME * result.residual:
            return last.found(again)  # the same minimum, and it came to its end
        result = result.found(again)
    return replace(
        result,
        status=last.status if last.status in STOPPED else result.status,
        history=last.history,
        epochs=last.epochs,
        passes=last.passes,
        seconds=last.seconds,
    )


def _met_local_minima(result: Result) -> bool:
    """Whether a fit stalled, or ran out of epochs over its restarts."""
    restarts = (f.numbers.get("restarts") for f in result.findings)
    ran_out = result.status is Status.MAX_EPOCHS and any(restarts)
    return ran_out or result.status in (Status.STALLED, Status.DIVERGED)


def _few_starts(problem: Problem, rank: Any) -> list[Solver]:
    """Solvers of "auto", with fewer starts where they meet local minima."""
    return [
        replace(solver, starts=min(solver.starts, STARTS)) if isinstance(solver, RGN) else solver
        for solver in automatic(problem, rank)
    ]


def isotropic_rows(problem: Problem, seed: tuple[int, int]) -> Equivalent | None:
    r"""Return an equivalent problem whose rows are closer to isotropic; None where there is none.

    Rows of different norms are divided by them, by weights: this copies nothing. Where that is not
    enough, a matrix in memory is replaced by its right singular vectors:

    .. math::

        W^{1/2} A = U S V^*, \qquad V^* x = S^{-1} U^* W^{1/2} y, \qquad
        w_i = s_i^2 / (s_i^2 + \delta)

    The weights leave out what noise hides: :math:`\delta` is the ratio of the variance of the noise
    to that of the entries of X, by maximum likelihood of the numbers :math:`U^* W^{1/2} y`, as if
    they were normal with variances proportional to :math:`s_i^2 + \delta`.

    Only NumPy matrices of up to :math:`m N \min(m, N) = 10^{10}` are decomposed; sparse, stored and
    distributed matrices, functions and structured operators are not, but their rows are scaled
    where row norms are at hand.

    Notes
    -----
    Two passes where rows are isotropic; three more for row norms. The decomposition costs some
    :math:`4 m N \min(m, N)` flops, and two copies of the matrix in double precision.
    """
    m, N = problem.m, size(problem.shape)
    rows = problem.A.rows_in_memory() if m * N * min(m, N) <= COSTLY else None
    if rows is None and not problem.A.traits.has_fast_row_norms:
        return None
    before = spread_of_rows(problem, seed)
    if not before > SPREAD:
        return None
    made = None
    if problem.A.traits.has_fast_row_norms:
        made = _of_equal_norm(problem, before, seed)
        if made.spreads[1] <= SPREAD:
            return made
    if rows is not None:
        return _orthogonal(problem, rows.reshape(m, N), before)
    return made if made is not None and made.spreads[1] < before / 2 else None


def _of_equal_norm(problem: Problem, before: float, seed: tuple[int, int]) -> Equivalent:
    """Problem with rows divided by their norms, by weights."""
    given = np.ones(problem.m) if problem.weights is None else to_numpy(problem.weights)
    given = given.astype(np.float64)
    norms = to_numpy(problem.A.row_norms()).astype(np.float64)
    y = np.abs(to_numpy(problem.y))
    counting = (given > 0) & (norms > 0)
    squares = given[counting] * norms[counting] ** 2
    delta, noise = _noise_by_likelihood(squares, given[counting] * y[counting] ** 2)
    weights = np.zeros(problem.m)
    weights[counting] = given[counting] / (squares + delta)
    weights /= weights.max()
    scaled = Problem(problem.A, problem.y, like(weights, problem.y, real_dtype(problem.y)))
    after = spread_of_rows(scaled, seed)
    sizes = (float(squares.min() ** 0.5), float(squares.max() ** 0.5))
    return Equivalent(scaled, "rows divided by their norms", (before, after), sizes, noise)


def _orthogonal(problem: Problem, matrix: NumPyArray, before: float) -> Equivalent:
    """Problem with the right singular vectors of the weighted matrix as rows."""
    B, z = _weighted_equations(problem, matrix)
    U, s, Vh = _svd(B)
    kept = s**2 > ROUNDING * s[0] ** 2
    U, s, Vh = U[:, kept], s[kept], Vh[kept]
    t = U.conj().T @ z
    delta, noise = _noise_by_likelihood(s**2, np.abs(t) ** 2)
    dtype, isotropic = real_dtype(problem.y), problem.A.traits.isotropic
    rows = DenseOperator(
        _in_precision(Vh, dtype), problem.shape, dtype=problem.tensor_dtype, isotropic=isotropic
    )
    weights = s**2 / (s**2 + delta)
    white = Problem(rows, _in_precision(t / s, dtype), weights.astype(dtype))
    N = size(problem.shape)
    after = float(np.mean(weights**2) / np.mean(weights) ** 2) / (1 + len(s) / N)
    sizes = (float(s[-1]), float(s[0]))
    how = "rows divided by their singular values"
    return Equivalent(white, how, (before, after), sizes, noise)


def _in_precision(numbers: NumPyArray, dtype: Any) -> NumPyArray:
    """Real or complex numbers in the precision of a real dtype."""
    return numbers.astype(np.result_type(dtype, np.complex64) if is_complex(numbers) else dtype)


def _weighted_equations(problem: Problem, matrix: NumPyArray) -> tuple[NumPyArray, NumPyArray]:
    """Rows that count and their data, times the roots of the weights, in double precision.

    Complex measurements of a real tensor are two real equations each.
    """
    y = to_numpy(problem.y)
    B = matrix.astype(np.result_type(matrix.dtype, np.float64))
    z = y.astype(np.result_type(y.dtype, np.float64))
    if problem.weights is not None:
        w = to_numpy(problem.weights).astype(np.float64)
        counting = w > 0
        roots = np.sqrt(w[counting])
        B, z = roots[:, None] * B[counting], roots * z[counting]
    if is_complex(B) and np.dtype(problem.tensor_dtype).kind != "c":
        B, z = np.concatenate([B.real, B.imag]), np.concatenate([z.real, z.imag])
    return B, z


def _svd(B: NumPyArray) -> tuple[NumPyArray, NumPyArray, NumPyArray]:
    """Singular value decomposition of a wide matrix by that of its triangular factor."""
    if B.shape[0] >= B.shape[1]:
        return svd(B)
    Q, R = qr(B.conj().T)
    U, s, Vh = svd(R.conj().T)
    return U, s, Vh @ Q.conj().T


def _noise_by_likelihood(variances: NumPyArray, squares: NumPyArray) -> tuple[float, float]:
    """Variance of noise in units of that of the signal, by numbers of variance v + it, up to scale.

    Returns it with the share of noise in the numbers, in units of their norm. Where the variances
    do not differ, any noise is as likely: none is taken.
    """
    top = float(variances.max())

    def surprise(delta: float) -> float:
        total = variances / top + delta
        return float(len(total) * np.log(np.mean(squares / total) or 1.0) + np.sum(np.log(total)))

    delta = min(NOISE, key=surprise)
    share = float((delta / (delta + np.mean(variances) / top)) ** 0.5)
    return delta * top, share
