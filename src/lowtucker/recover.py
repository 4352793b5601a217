"""The one call."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from lowtucker._array import eps, is_complex, like, size, to_numpy
from lowtucker._array.errors import UnderdeterminedWarning, warn_caller
from lowtucker._array.random import Seed
from lowtucker.fitting import Fit, Loss, noise_floor
from lowtucker.operators import as_operator
from lowtucker.operators.matrix import Order
from lowtucker.problem import Problem
from lowtucker.ranks import RankSearch, larger_rank_fits, search_rank, smaller_rank
from lowtucker.result import Result
from lowtucker.run import Callback, interruptible
from lowtucker.scaling import into_units, out_of_units, scaled
from lowtucker.solve import in_units_of
from lowtucker.solvers.manifold import (
    covariance_error,
    eigenvalues,
    full_rank_margin,
    sees_all,
)
from lowtucker.solvers.noise import CLEAR, PLENTY, STRUCTURE, structure
from lowtucker.solvers.rgn import LARGE
from lowtucker.status import Status

__all__ = ["fitted", "recover", "warn_of_blind_spots"]

# Estimates of the error above this are a reason to look whether X is determined at all
DOUBT = 0.01
# Flops of a gram matrix that is made for that look; more are left to products
COSTLY = 1e10
# Estimates above this are a reason not to trust X
HOPELESS = 0.3
# Decisions are borderline where estimates, residuals and spectral norms are as close as this to
# their limits (factors, and a difference); and where smallest eigenvalues, in units of rounding
# error, are between these: a zero is of the order of 1 / (10 dof) of that unit
ROUGHLY, BARELY, NEARLY, SLIGHTLY, FAINT = 1.5, 2.0, 1.1, 0.03, (0.1, 100.0)


def recover(
    A: Any,
    y: Any,
    rank: tuple[int, ...] | RankSearch | Literal["auto"],
    *,
    shape: tuple[int, ...] | None = None,
    order: Order = "C",
    solver: Any = "auto",
    tol: float = 1e-6,
    max_epochs: int = 500,
    max_seconds: float | None = None,
    noise_std: float | None = None,
    weights: Any = None,
    loss: Loss = "squared",
    start: Any = None,
    X_true: Any = None,
    seed: Seed = 0,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
) -> Result:
    r"""Find a tensor X of low Tucker rank with y = A(X).

    Parameters
    ----------
    A : MeasurementOperator, array, SciPy sparse matrix, SciPy or PyLops linear operator
        An array of shape (m, n_1, ..., n_d), or (m, N) with ``shape``. A stack of trials
        (a DenseOperator with leading axes) is solved as one.
    y : array, shape (m,)
        The measurements.
    rank : tuple of int, "auto" or RankSearch
        Tucker rank (r_1, ..., r_d); "auto" looks for it, ``RankSearch(max=(10, 10, 5))`` up to
        a largest one.
    shape : tuple of int, optional
        Shape of the tensor; needed unless ``A`` tells.
    order : "C" or "F"
        How the rows of an (m, N) matrix were vectorised; "F" is MATLAB's way.
    solver : str or Solver
        "auto" (see :func:`lowtucker.solve`), "tiht", "stotiht", "rsgd", "rgn", "rcg", "als", a
        solver with settings such as ``StoTIHT(block_size=100, step=0.5)``, or a list of solvers
        that take over from each other.
    tol : float
        The residual :math:`\|y - A(X)\| / \|y\|` to reach (weighted where there are weights).
    max_epochs : int
        An epoch reads about as many rows as there are. Every rank that "auto" tries has so many.
    max_seconds : float, optional
        Limit on the time of the iterations; looked at when an epoch ends.
    noise_std : float, optional
        Standard deviation of the noise in y, in the units of y: the run ends at the noise floor,
        the residual that a fit leaves of it, about :math:`\sigma \sqrt{m - dof}`.
    weights : array, shape (m,), optional
        Weights of the squared residuals; 0 leaves a measurement out.
    loss : "squared" or "huber"
        Huber's loss bears gross outliers among the measurements; ``result.weights`` shows which.
    start : TuckerTensor, array, State or Result, optional
        Where to begin; by default zero (TIHT, StoTIHT), or the truncated adjoint of y (the
        Riemannian solvers, and so "auto"). ``result.state`` continues that run.
    X_true : TuckerTensor or array, optional
        The truth, for the error column of the history. The solver never sees it.
    seed : int
    callbacks : sequence of callables
        Each gets a Progress after every epoch, and may return True to stop.
        ``[lowtucker.ProgressBar()]`` draws a progress bar.
    checkpoint : path-like, optional
        File to keep the run in, written after epochs. Where it is there already, the call goes on
        from it, and ends with the result of an uninterrupted one, bit for bit; a run that a limit
        ended goes on where there are more epochs, and always after ``max_seconds``, which count
        anew. One that belongs to another problem or solver is refused.

    Returns
    -------
    Result

    Warns
    -----
    RankWarning
        A rank that no tensor attains.
    UnderdeterminedWarning
        Fewer measurements than degrees of freedom.

    Notes
    -----
    An epoch of "auto" reads the rows once; while it works on blocks, once more to measure the
    residual. Memory: a few tensors of the full size and dof^2 numbers beside A; nothing of A's
    size. Where ``noise_std`` is not given and the run gets stuck, a last pass looks whether what
    is left of y has any structure: if not, it is noise, and the status says so. If it has, "auto"
    fits this and a larger rank to seven eighths of the measurements, and says ``RANK_TOO_SMALL``
    where the larger one foretells the others better. A fit to ``tol`` whose tangent design has
    less than full rank is ``UNDERDETERMINED``. None of this counts in ``result.passes``.

    When new measurements arrive, give the old result as ``start`` to a call with all of them.

    Examples
    --------
    >>> import lowtucker as lt
    >>> X_true = lt.random_tucker((10, 10, 5), rank=(2, 2, 2), seed=0)
    >>> A = lt.gaussian((10, 10, 5), m=300, seed=1)
    >>> result = lt.recover(A, A.forward(X_true), rank=(2, 2, 2))
    >>> result.success
    True
    >>> lt.metrics.relative_error(result.X, X_true) < 1e-5
    True
    """
    _, search = _given_or_sought(rank)
    solver = solver.lower() if isinstance(solver, str) else solver
    problem = Problem(as_operator(A, shape, order=order), y, weights)
    _check_fields(problem)
    fit = Fit(solver, tol, max_epochs, max_seconds, noise_std, X_true, seed, callbacks, loss)
    _check_one(problem, search, loss)
    warn_of_blind_spots(problem)
    fit = fit.keeping(problem, rank, checkpoint, start=start)
    with interruptible(), in_units_of(problem) as units:
        start = into_units(start, units, "start")
        result = fitted(scaled(problem, units), rank, fit.within(units), start=start)
    return fit.written(out_of_units(result, units))


def fitted(
    problem: Problem,
    rank: Any,
    fit: Fit,
    *,
    start: Any = None,
    before: Result | None = None,
    solver: Any = None,
) -> Result:
    """Fit a rank that is given or sought, and the verdict; the history goes on from ``before``."""
    given, search = _given_or_sought(rank)
    settled = True
    if search is None:
        label = "" if before is None else "all samples"
        result = fit(problem, given, start=start, solver=solver, before=before, label=label)
    elif start is not None:
        raise ValueError('start has a rank of its own: give rank=start.rank, not "auto".')
    else:
        result, settled = search_rank(problem, search, fit)
    limit = None if search is None else search.limit(problem.shape)
    return _judged(problem, result, fit, settled, limit)


def _judged(
    problem: Problem, result: Result, fit: Fit, settled: bool, limit: Any, again: int = 3
) -> Result:
    """Result with what its residual and its singular values say of noise and of the rank.

    A rank that is not settled leaves what no rank that could be tried has fitted: not noise. Where
    the rank was sought, up to a limit, one that turns out better is fitted in its place.
    """
    if problem.batch_shape:
        return result
    if result.weights is not None:
        problem = Problem(problem.A, problem.y, result.weights)
    if fit.noise_std is not None:
        result = _near_the_floor(problem, result, fit)
    elif settled:
        result = _without_structure(problem, result)
    if result.status is Status.STALLED and fit.solver == "auto":
        quietly = replace(fit, loss="squared", callbacks=())
        with interruptible() as interrupt:
            rank, nothing_better, remarks = larger_rank_fits(problem, result, quietly)
        result = replace(result, borderline=(*result.borderline, *remarks))
        if interrupt.asked:
            note = "The look at larger ranks was not finished."
            notes = (*result.notes, note)
            return replace(result, status=Status.INTERRUPTED, success=False, notes=notes)
        told = (
            problem.A.traits.isotropic and problem.A.traits.has_fast_tangent
        )  # by the adjoint, which tells more
        if nothing_better and not told and 100 * eps(problem.y) < result.residual:
            if CLEAR / NEARLY < result.residual < CLEAR * NEARLY:
                remark = (
                    f"The residual, {result.residual:.3f}, is close to {CLEAR}, the most that is "
                    "taken for noise."
                )
                result = replace(result, borderline=(*result.borderline, remark))
            if result.residual < CLEAR:
                result = replace(result, status=Status.NOISE_FLOOR, success=True)
        if rank is not None:
            note = f"Rank {rank} foretells measurements that were held out better."
            within = limit is not None and all(r <= n for r, n in zip(rank, limit, strict=True))
            if within and again:
                better = fit(problem, rank, before=result, label="all rows")
                better = replace(better, notes=(*result.notes, note), borderline=result.borderline)
                return _judged(problem, better, fit, settled, limit, again - 1)
            result = replace(
                result, status=Status.RANK_TOO_SMALL, success=False, notes=(*result.notes, note)
            )
    if not result.success and fit.tol < result.residual <= BARELY * fit.tol:
        remark = f"The residual, {result.residual:.2g}, is close to tol = {fit.tol:g}."
        result = replace(result, borderline=(*result.borderline, remark))
    counting = None if problem.weights is None else to_numpy(problem.weights) > 0
    findings = problem.A.diagnose(result.rank, counting)
    unseen = [one for one in findings if one.kind in ("unsampled", "undersampled")]
    result = replace(result, notes=(*result.notes, *map(str, findings)))
    if result.success:
        result = _determined(problem, result, fit.seed, bool(unseen))
    smaller = smaller_rank(result) if result.success else None
    if smaller is not None:
        note = f"Rank {smaller} would do: the rest of {result.rank} is smaller than the error."
        result = replace(result, notes=(*result.notes, note))
    return result


def _determined(problem: Problem, result: Result, seed: Seed, unseen: bool) -> Result:
    """Result that stays a success only where the measurements determine X."""
    full_rank, result = _has_full_rank(problem, result, seed)
    estimate, notes = result.error_estimate, result.notes
    if estimate is not None and HOPELESS / ROUGHLY < estimate < HOPELESS * ROUGHLY:
        remark = f"The estimated error, {estimate:.0%}, is close to the limit of {HOPELESS:.0%}."
        result = replace(result, borderline=(*result.borderline, remark))
    if estimate is not None and estimate > HOPELESS:
        note = f"What is left of y may have changed X by {estimate:.0%}: take more measurements."
        notes = (*notes, note)
    elif full_rank and not unseen:
        return result
    elif not unseen:
        note = "The measurements do not see all that X may be: take more, or a smaller rank."
        notes = (*notes, note)
    return replace(result, status=Status.UNDERDETERMINED, success=False, notes=notes)


def _has_full_rank(problem: Problem, result: Result, seed: Seed) -> tuple[bool, Result]:
    """Whether the tangent design at X has full rank, so that no other X is near that fits.

    Looked at where the estimate of the error is missing or large, as it is where sampled entries
    leave out a slice. One pass then, which gives an estimate from all rows; without a design, or
    where it is too large and measurements are few, some 30.
    """
    if result.error_estimate is not None and result.error_estimate < DOUBT:
        return True, result
    if problem.equations == result.degrees_of_freedom < size(problem.shape):
        return False, result  # as many equations as unknowns, not linear: several tensors fit
    if result.status is not Status.CONVERGED and result.error_estimate is not None:
        return True, result  # with noise the estimate is the measure
    dof = result.degrees_of_freedom
    if not problem.A.traits.has_fast_tangent or dof > LARGE or problem.equations * dof**2 > COSTLY:
        plenty = problem.A.traits.has_fast_tangent and problem.equations >= PLENTY * dof
        return plenty or sees_all(problem, result.X, seed), result
    try:
        values = eigenvalues(problem, result.X)
    except np.linalg.LinAlgError:  # it cannot be told
        return True, result
    margin = full_rank_margin(values)
    estimate = covariance_error(problem, result.X, values, result.residual)
    remarks = list(result.borderline)
    if FAINT[0] < margin < FAINT[1]:
        share = values[0] / values[-1]
        remarks.append(
            f"The smallest eigenvalue of the tangent design is {share:.0e} of the largest, close "
            "to rounding error."
        )
    return margin > 1, replace(result, error_estimate=estimate, borderline=tuple(remarks))


def _without_structure(problem: Problem, result: Result) -> Result:
    """Result of a run that got stuck above rounding error: a success if it leaves noise.

    One pass.
    """
    if result.status is not Status.STALLED or result.residual <= 100 * eps(problem.y):
        return result
    found = structure(problem, problem.residual(result.X), result.degrees_of_freedom)
    if found is None:
        return result
    if abs(found - STRUCTURE) < SLIGHTLY:
        remark = (
            f"The residual has {found:.3f} times the spectral norm of noise; up to {STRUCTURE} it "
            "is taken for noise."
        )
        result = replace(result, borderline=(*result.borderline, remark))
    if found > STRUCTURE:
        return result
    return replace(result, status=Status.NOISE_FLOOR, success=True)


def _near_the_floor(problem: Problem, result: Result, fit: Fit) -> Result:
    """Result with a remark where it missed the noise floor, or reached it, by little."""
    if result.weights is not None or result.status not in (Status.NOISE_FLOOR, Status.STALLED):
        return result
    floor = float(noise_floor(problem, fit.noise_std, result.rank))
    spare = max(problem.equations - result.degrees_of_freedom, 1)
    # half a standard deviation of what noise leaves
    if abs(result.residual / floor - 1) > 0.5 / math.sqrt(2 * spare):
        return result
    remark = f"The residual, {result.residual:.4g}, is close to the noise floor, {floor:.4g}."
    return replace(result, borderline=(*result.borderline, remark))


def _given_or_sought(rank: Any) -> tuple[Any, RankSearch | None]:
    """Rank that was given, or the search that was asked for."""
    if isinstance(rank, str):
        if rank.lower() != "auto":
            raise ValueError(f'rank must be a tuple of integers or "auto", got {rank!r}.')
        rank = RankSearch()
    return (None, rank) if isinstance(rank, RankSearch) else (rank, None)


def _check_one(problem: Problem, search: RankSearch | None, loss: Any) -> None:
    """Check that what takes one problem gets one."""
    if problem.batch_shape and (search is not None or loss != "squared"):
        what = 'rank="auto"' if search is not None else f"loss={loss!r}"
        raise ValueError(f"{what} takes one problem, got a stack of {problem.batch_shape}.")


def warn_of_blind_spots(problem: Problem) -> None:
    """Warn before the work of what cannot be found at any rank."""
    counting = (
        None if problem.weights is None or problem.batch_shape else to_numpy(problem.weights) > 0
    )
    for spot in problem.A.diagnose((1,) * len(problem.shape), counting):
        if spot.kind in ("unsampled", "undersampled"):
            advice = "Add measurements, or leave these slices out."
            warn_caller(f"{spot} {advice}", UnderdeterminedWarning)


def _check_fields(problem: Problem) -> None:
    """Refuse complex measurements that no tensor of the operator's can give."""
    if not is_complex(problem.y):
        return
    zero = like(np.zeros(problem.shape), problem.A.prototype, problem.A.dtype)
    if not is_complex(problem.A.forward(zero)):
        raise ValueError(
            "y is complex, but A gives real measurements of real tensors. For complex tensors try "
            "lowtucker.DenseOperator(matrix, shape, dtype=complex); otherwise give y.real."
        )
