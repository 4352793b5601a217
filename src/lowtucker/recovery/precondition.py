"""Preconditioning: rows that are far from isotropic are made isotropic, to find a better start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowtucker._array import is_complex, like, real_dtype, size, to_numpy
from lowtucker._array.clock import TimeUp
from lowtucker._array.linalg import qr, svd
from lowtucker._array.log import logger
from lowtucker._array.random import as_seed
from lowtucker.metrics import relative_error
from lowtucker.operators import DenseOperator, scale
from lowtucker.problem import Problem
from lowtucker.recovery.accuracy import accuracy_at
from lowtucker.recovery.fit import Fit
from lowtucker.recovery.holdout import by_held_out
from lowtucker.run.result import Result
from lowtucker.solvers import RGN, Solver
from lowtucker.solvers.auto import automatic
from lowtucker.solvers.noise import FULL
from lowtucker.solvers.rows import spread_of_rows
from lowtucker.status import Finding, Status
from lowtucker.tensor.rank import degrees_of_freedom
from lowtucker.tensor.tucker import TuckerTensor

__all__ = [
    "SPREAD",
    "Equivalent",
    "isotropic_in_time",
    "isotropic_rows",
    "of_given_rows",
    "preconditioned",
    "rows_at_hand",
    "weighted_equations",
]

NumPyArray = np.ndarray[Any, Any]
log = logger("recovery")
# Spread of the eigenvalues of A A* (1 for i.i.d. rows) above which some directions are hardly
# measured. Of 5700 matrices of i.i.d. rows, 20x64 to 300x1000, the largest had 1.34. Outer products
# of Gaussian vectors have 1.3 to 6, divided by their norms what i.i.d. rows have
SPREAD = 1.5
# The same, above which a fit that met local minima is tried again: of 20 problems with outer
# products and noise, which mostly have less, none gained by it
STRONG = 2.5
# Flops of the largest decomposition, in units of m N min(m, N)
COSTLY = 1e10
# Entries of tensors up to which an operator that is no matrix becomes one, by so many forwards: a
# fit that met local minima took thousands; and how many at a time
FEW, UNITS = 1000, 16
# Variances of noise that are tried, in units of the largest eigenvalue of A A*
NOISE = (0.0, *np.logspace(-14, 3, 103).tolist())
# With noise, shares of X that are unknown in the fits that lead from isotropic to given rows
STAGES = (0.3, 0.1, 0.03)
# Shares of X that a fit may miss
SHARES = np.logspace(-2, 0, 21).tolist()
# Starts of the fit to isotropic rows. Ratios of residuals: a better fit, and the same
STARTS, CLEARLY, SAME = 10, 0.99, 1.001
# Twice the logarithm of the likelihood by which noise must be more likely than none; one number of
# several hundred leads to some 5
EVIDENCE = 12.0
# Residuals in units of the estimated noise, which is right to a factor of 1.5, above which a rank
# does not fit
MISFIT = 1.7
# Residuals of all measurements in units of those of held-out ones; a fit has 1 at most, but for
# chance. Of 30 problems with outer products one had 2.3, and an error of 0.99
CHANCE = 1.5
TINY = np.finfo(float).tiny
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
        Spread of the eigenvalues of A A* before and after; see :mod:`lowtucker.solvers.rows`.
    sizes : tuple of float
        Smallest and largest norm of the rows, or singular value, that was divided by.
    noise : float
        Estimated share of noise in y, in units of its norm.
    squares : NumPy array, shape (m,)
        Squared norms of the rows, or singular values; 0 for measurements that do not count.
    delta : float
        Estimated variance of the noise, in units of that of the entries of X.
    """

    problem: Problem
    how: str
    spreads: tuple[float, float]
    sizes: tuple[float, float]
    noise: float
    squares: NumPyArray
    delta: float

    def expecting(self, share: float, lowest: float = 0.0) -> Equivalent:
        """Return the same rows with the best weights for an X that is known up to a share of it.

        Weights below the lowest, of measurements that are mostly noise, are 0.

        The measurements of the unknown part have variances proportional to
        share^2 + delta / s_i^2.
        """
        delta = self.delta / share**2
        weights = self.squares / (self.squares + delta + TINY)
        weights = weights / weights.max()
        weights[weights < lowest] = 0
        y = self.problem.y
        return replace(self, problem=Problem(self.problem.A, y, like(weights, y, real_dtype(y))))

    @property
    def effective(self) -> float:
        """Number of measurements that noise leaves: the sum of the weights."""
        return float(np.sum(self.squares / (self.squares + self.delta + TINY)))

    def unknown_share(self, held: Problem, X: Any) -> float:
        """Share of X that a tensor misses, by maximum likelihood of held-out residuals."""
        counting = to_numpy(held.weights) > 0
        residual, y = (to_numpy(v)[counting] for v in (held.residual(X), held.y))
        noise = self.delta / self.squares[counting]
        unit = float(np.mean(np.abs(y) ** 2 / (1 + noise)))  # variance of the entries of X

        def surprise(share: float) -> float:
            variances = share**2 + noise
            return float(np.sum(np.log(variances) + np.abs(residual) ** 2 / unit / variances))

        return float(min(SHARES, key=surprise))

    def finding(self, effect: str, residual: float, distance: float = np.inf) -> Finding:
        """What was done and what it led to, with the numbers; how far from the first fit."""
        low, high = self.sizes
        text = (
            f"The rows of A are far from isotropic. A start from {self.how} ({low:.1e} to "
            f"{high:.1e}) {effect}."
        )
        numbers = {
            "spread": self.spreads[0], "after": self.spreads[1], "smallest": low, "largest": high,
            "noise": self.noise, "effective": self.effective, "residual": residual,
            "distance": distance,
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
    Three passes to look at the rows. Where they are anisotropic, a decomposition of the matrix, and
    two more fits: an automatic one to the isotropic rows, and Gauss-Newton steps to the given ones.
    The result has the history and the costs of all. Huber's loss is left alone: a mixture of
    rows would spread an outlier over all of them.
    """
    if fit.loss != "squared" or fit.time_is_up or problem.batch_shape:
        return None
    if not _met_local_minima(result):
        return None
    made = isotropic_in_time(problem, fit, STRONG)
    if made is None:
        return None
    log.info("The rows are far from isotropic: a fit to equivalent rows may lead further.")
    solver = _few_starts(made.problem, rank) if fit.solver == "auto" else fit.solver
    rough = replace(fit, noise_std=None)
    last = rough(made.problem, rank, solver=solver, before=result, label="isotropic rows")
    local = RGN() if fit.solver == "auto" else fit.solver
    for share in STAGES if made.delta else ():
        if last.status in STOPPED:
            break
        stage = made.expecting(share).problem
        last = rough(stage, rank, start=last.X, solver=local, before=last, label="isotropic rows")
    if last.status not in STOPPED:
        start, label = last.X, "preconditioned"
        last = fit(problem, rank, start=start, solver=local, before=last, label=label)
        last = replace(last, solver=result.solver)
        if last.residual < CLEARLY * result.residual:
            return last.found(made.finding("led to a better fit", last.residual))
        apart = float(to_numpy(relative_error(last.X, result.X)))
        again = made.finding("led no further", last.residual, apart)
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


def of_given_rows(problem: Problem, fit: Fit, made: Equivalent, result: Result) -> Result:
    """Result of an equivalent problem as one of the given problem. One pass, or a fit of its rank.

    The error of shrinkage, and the held-out error, stay those of isotropic rows, which tell the
    error of X. A rank whose residual is clearly larger than the noise does not fit exactly: the
    held-out error is the estimate then.
    """
    if isinstance(result.X, TuckerTensor) and result.success and not fit.time_is_up:
        solver, label = RGN() if fit.solver == "auto" else fit.solver, "given rows"
        last = fit(problem, result.rank, start=result.X, solver=solver, before=result, label=label)
        kept = {
            name: getattr(result, name) for name in ("status", "findings", "held_out", "solver")
        }
        result = replace(last, **kept)
        accuracy = accuracy_at(problem, result, fit.seed)
        if accuracy.determined:
            result = replace(
                result, error_estimate=accuracy.error, error_interval=accuracy.interval
            )
        misfit = made.noise > 0 and result.residual > MISFIT * made.noise
        if misfit and result.held_out is not None and result.status is not Status.CONVERGED:
            changes: Any = {"status": Status.APPROXIMATED, **by_held_out(result.held_out)}
            result = _unless_by_chance(replace(result, **changes))
    else:
        result = _unless_by_chance(result)
        residual = float(to_numpy(problem.relative_residual(result.X)))
        result = replace(result, residual=residual, state=None)
    effect = f"gave a residual of {result.residual:.2g} with the given rows"
    result = _unless_too_few(result.found(made.finding(effect, result.residual)), made)
    return replace(result, m=int(problem.equations))


def _unless_too_few(result: Result, made: Equivalent) -> Result:
    """Result; no success where noise leaves fewer measurements than any tensor needs.

    Rows that hardly differ predict each other, so held-out ones do not tell.
    """
    least = degrees_of_freedom(made.problem.shape, (1,) * len(made.problem.shape))
    if result.status is not Status.APPROXIMATED or made.effective >= least:
        return result
    text = (
        f"Noise leaves {made.effective:.1f} of {len(made.squares)} measurements, and a tensor of "
        f"rank one has {least} degrees of freedom. Take other measurements, or less noisy ones."
    )
    numbers = {"effective": made.effective, "least": least}
    found = Finding("too few equations", text, numbers, Status.UNDERDETERMINED)
    return replace(result.found(found), error_estimate=None, error_interval=None)


def _unless_by_chance(result: Result) -> Result:
    """Result; no success where few held-out measurements are fitted far better than all are."""
    if result.held_out is None or not result.success or result.residual <= CHANCE * result.held_out:
        return result
    text = (
        f"Held-out measurements are predicted to {result.held_out:.2g}, but all of them to "
        f"{result.residual:.2g} only: the former is chance. Take more measurements."
    )
    numbers = {"held_out": result.held_out, "residual": result.residual, "limit": CHANCE}
    found = Finding("chance", text, numbers, Status.UNDERDETERMINED)
    return replace(result.found(found), error_estimate=None, error_interval=None)


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


def isotropic_in_time(problem: Problem, fit: Fit, limit: float = SPREAD) -> Equivalent | None:
    """Apply :func:`isotropic_rows`; None where the time of the call is up."""
    try:
        with fit.clock.watched():
            return isotropic_rows(problem, as_seed(fit.seed), limit)
    except TimeUp:
        return None


def isotropic_rows(
    problem: Problem, seed: tuple[int, int], limit: float = SPREAD
) -> Equivalent | None:
    r"""Return an equivalent problem whose rows are closer to isotropic; None where there is none.

    Rows of different norms are divided by them: this copies nothing. Where that is not
    enough, a matrix in memory is replaced by its right singular vectors:

    .. math::

        W^{1/2} A = U S V^*, \qquad V^* x = S^{-1} U^* W^{1/2} y, \qquad
        w_i = s_i^2 / (s_i^2 + \delta)

    The weights leave out what noise hides: :math:`\delta` is the ratio of the variance of the noise
    to that of the entries of X, by maximum likelihood of the numbers :math:`U^* W^{1/2} y`, as if
    they were normal with variances proportional to :math:`s_i^2 + \delta`.

    Only NumPy matrices of up to :math:`m N \min(m, N) = 10^{10}` are decomposed. So are the rows of
    all other operators where tensors have at most 1000 entries, by as many forwards; beyond, rows
    are scaled where their norms are at hand. Nothing is done for tensors of more than 10^7 entries:
    adjoints of random vectors tell how rows differ, and are formed in full.

    Notes
    -----
    Three passes where rows are isotropic; four more for row norms. The decomposition costs some
    :math:`4 m N \min(m, N)` flops, and two copies of the matrix in double precision.
    """
    m, N = problem.m, size(problem.shape)
    if N > FULL:
        return None
    rows = rows_at_hand(problem)
    if rows is None and not problem.A.traits.has_fast_row_norms:
        return None
    before = spread_of_rows(problem, seed)
    if not before > limit:
        return None
    made = None
    if problem.A.traits.has_fast_row_norms:
        made = _of_equal_norm(problem, before, seed)
        if made.spreads[1] <= SPREAD:
            return made
    if rows is not None:
        with suppress(np.linalg.LinAlgError):
            return _orthogonal(problem, rows().reshape(m, N), before)
    return made if made is not None and made.spreads[1] < before / 2 else None


def rows_at_hand(problem: Problem) -> Callable[[], NumPyArray] | None:
    """How to get the rows as a matrix that can be decomposed; None where there is no way.

    Those of functions and of structured operators are the measurements of the unit tensors.
    """
    A, m, N = problem.A, problem.m, size(problem.shape)
    if m * N * min(m, N) > COSTLY or A.batch_shape:
        return None
    rows = A.rows_in_memory()
    if rows is not None:
        return lambda: np.asarray(rows)
    if N > FEW:
        return None

    def measured() -> NumPyArray:
        columns = []
        for start in range(0, N, UNITS):  # each looks at the clock
            units = np.eye(min(UNITS, N - start), N, start).reshape(-1, *problem.shape)
            tensors = like(units, problem.y, problem.tensor_dtype)
            columns.append(np.asarray(to_numpy(A.forward(tensors))))
        return np.concatenate(columns).T

    return measured


def _of_equal_norm(problem: Problem, before: float, seed: tuple[int, int]) -> Equivalent:
    """Problem with weighted rows divided by their norms."""
    given = np.ones(problem.m) if problem.weights is None else to_numpy(problem.weights)
    norms = np.sqrt(given) * to_numpy(problem.A.row_norms())
    norms = norms.astype(np.float64)
    counting = norms > 0
    factor = np.where(counting, np.sqrt(given), 0) / np.where(counting, norms, 1)
    factor = like(factor, problem.y, real_dtype(problem.y))
    y, squares = factor * problem.y, norms[counting] ** 2
    delta, noise = _noise_by_likelihood(squares, squares * np.abs(to_numpy(y)[counting]) ** 2)
    sizes = (float(norms[counting].min()), float(norms.max()))
    scaled, how = Problem(scale(problem.A, factor), y), "rows divided by their norms"
    made = Equivalent(scaled, how, (before, before), sizes, noise, norms**2, delta).expecting(1.0)
    return replace(made, spreads=(before, spread_of_rows(made.problem, seed)))


def _orthogonal(problem: Problem, matrix: NumPyArray, before: float) -> Equivalent:
    """Problem with the right singular vectors of the weighted matrix as rows."""
    B, z = weighted_equations(problem, matrix)
    U, s, Vh = _svd(B)
    kept = s**2 > ROUNDING * s[0] ** 2
    U, s, Vh = U[:, kept], s[kept], Vh[kept]
    t = U.conj().T @ z
    delta, noise = _noise_by_likelihood(s**2, np.abs(t) ** 2)
    dtype, isotropic = real_dtype(problem.y), problem.A.traits.isotropic
    rows = DenseOperator(
        _in_precision(Vh, dtype), problem.shape, dtype=problem.tensor_dtype, isotropic=isotropic
    )
    white = Problem(rows, _in_precision(t / s, dtype))
    sizes, how = (float(s[-1]), float(s[0])), "rows divided by their singular values"
    made = Equivalent(white, how, (before, before), sizes, noise, s**2, delta).expecting(1.0)
    w = to_numpy(made.problem.weights)
    after = float(np.mean(w**2) / np.mean(w) ** 2) / (1 + len(s) / size(problem.shape))
    return replace(made, spreads=(before, after))


def _in_precision(numbers: NumPyArray, dtype: Any) -> NumPyArray:
    """Real or complex numbers in the precision of a real dtype."""
    return numbers.astype(np.result_type(dtype, np.complex64) if is_complex(numbers) else dtype)


def weighted_equations(problem: Problem, matrix: NumPyArray) -> tuple[NumPyArray, NumPyArray]:
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
    hardly differ, any noise is as likely: none is taken.
    """
    top = float(variances.max())

    def surprise(delta: float) -> float:
        total = variances / top + delta
        return float(len(total) * np.log(np.mean(squares / total) or 1.0) + np.sum(np.log(total)))

    delta = min(NOISE, key=surprise)
    if surprise(0.0) - surprise(delta) < EVIDENCE:
        return 0.0, 0.0
    share = float((delta / (delta + np.mean(variances) / top)) ** 0.5)
    return delta * top, share
