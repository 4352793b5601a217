"""With a rank: fits of a rank that is given or searched, and diagnosis; with a hold-out or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lowtucker._array import eps, like, size, to_numpy
from lowtucker._array.clock import TimeUp
from lowtucker._array.log import logger
from lowtucker._array.random import Stream, as_seed, generator
from lowtucker._array.readings import side_by_side
from lowtucker.limits import FAR, INEXACT, OVERFITTED, PREDICTED_WORSE, UNFINISHED
from lowtucker.metrics import relative_error
from lowtucker.problem import Problem
from lowtucker.recovery.accuracy import COSTLY
from lowtucker.recovery.diagnosis import concluded, examined, larger_rank_of
from lowtucker.recovery.evidence import Evidence
from lowtucker.recovery.fit import OVER, Fit, joined
from lowtucker.recovery.holdout import Holdout, by_held_out
from lowtucker.recovery.precondition import preconditioned
from lowtucker.recovery.rank import RankSearch, search_rank
from lowtucker.run.result import Result, Verdict
from lowtucker.solvers import RGN
from lowtucker.solvers.auto import automatic
from lowtucker.solvers.crew import Trace
from lowtucker.solvers.models import Model, dot
from lowtucker.solvers.noise import FULL
from lowtucker.solvers.rows import spread_of_rows
from lowtucker.solvers.rsgd import Blocks
from lowtucker.status import Finding, Status
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding import Iterate
from lowtucker.uncertainty.information import gram_is_affordable

__all__ = ["held_out_fit", "rank_given_or_searched", "recovered"]

NumPyArray = np.ndarray[Any, Any]
log = logger("recovery")
# How often a search takes up a larger rank that diagnosis has found better
RETRIES = 3
# Share of the measurements that tell whether anything was recovered; how many must be left per
# degree of freedom; and how much larger than expected the squared norm of X must be, and than so
# many standard deviations
HELD, ENOUGH, FAR_TOO_LARGE, DEVIATIONS = 0.2, 2.0, 2.0, 3.0
# Spread of the eigenvalues of A A* (1 for i.i.d. rows) above which neither tells
EVEN = 2.5


def rank_given_or_searched(rank: Any) -> tuple[Any, RankSearch | None]:
    """Rank that was given, or the search that was asked for."""
    if isinstance(rank, str):
        if rank.lower() != "auto":
            raise ValueError(f'rank must be a tuple of integers or "auto", got {rank!r}.')
        rank = RankSearch()
    return (None, rank) if isinstance(rank, RankSearch) else (rank, None)


def recovered(
    problem: Problem,
    rank: Any,
    fit: Fit,
    *,
    start: Any = None,
    before: Result | None = None,
    solver: Any = None,
    score: float | None = None,
) -> Result:
    """Fit a rank that is given or searched, and diagnose; the history continues ``before``.

    ``score`` is the held-out residual of a fit of the given rank, where there was one.
    """
    given, search = rank_given_or_searched(rank)
    if search is None:
        label = "" if before is None else "all samples"
        result = fit(problem, given, start=start, solver=solver, before=before, label=label)
        if problem.batch_shape:
            return each_diagnosed(problem, given, fit, result)
        return diagnosed(problem, given, fit, result, label=label, score=score)
    if start is not None:
        raise ValueError('start has a rank of its own: give rank=start.rank, not "auto".')
    result, settled = search_rank(problem, search, fit)
    limit = search.limit(problem.shape)
    case = examined(finished(problem, result, fit), fit, settled)
    for _ in range(RETRIES):
        larger = larger_rank_of(case)
        if (
            fit.time_is_up
            or larger is None
            or any(r > n for r, n in zip(larger.numbers["rank"], limit, strict=True))
        ):
            break
        log.info("%s It is fitted next.", larger)
        better = fit(case.problem, larger.numbers["rank"], before=case.result, label="all rows")
        earlier = tuple(replace(f, status=None) for f in case.result.findings)
        result = replace(better, findings=(*earlier, *better.findings))
        case = examined(finished(case.problem, result, fit), fit, settled)
    return no_worse_than_zero(problem, concluded(case), fit)


def diagnosed(
    problem: Problem,
    rank: Any,
    fit: Fit,
    result: Result,
    *,
    label: str = "",
    score: float | None = None,
) -> Result:
    """Result of a fit with the verdict on it, after its last steps."""
    result = preconditioned(problem, rank, fit, result) or result
    case = examined(finished(problem, result, fit, label), fit, True, score)
    return no_worse_than_zero(problem, concluded(case), fit)


def each_diagnosed(problem: Problem, rank: Any, fit: Fit, result: Result) -> Result:
    """Result of a batch with the verdict on every problem, as on a single one."""
    if result.rank is None:  # shrunk tensors
        return result
    seed, first = as_seed(fit.seed)
    models = models_at(problem, result) if isinstance(result.X, TuckerTensor) else None
    every = []
    # readings of one A for several problems add up
    each = enumerate(result.each)
    for k, known in side_by_side(each) if problem.A.batch_shape else each:
        truth = None if fit.X_true is None else _trial_of(fit.X_true, k)
        own = replace(fit, seed=(seed, first + k), X_true=truth, callbacks=())
        state = known.state
        if models and state and isinstance(state.memory, Trace | Blocks):  # others keep no model
            state = replace(state, cache=models.select([k]).single())
        alone = replace(result.trial(k), state=state, weights=None)
        every.append(diagnosed(problem.trial(k), rank, own, alone))
    return of_each(result, every)


def models_at(problem: Problem, result: Result) -> Model | None:
    """Linear models at all tensors of a batch, by one pass; None where they would not pay."""
    X = result.X
    if not gram_is_affordable(problem, X, COSTLY):
        return None
    try:
        return Model.at(problem, X)
    except np.linalg.LinAlgError:
        return None


def of_each(result: Result, every: Sequence[Result]) -> Result:
    """Result of a batch from those of its problems."""

    def together(name: str) -> NumPyArray:
        values = [getattr(one, name) for one in every]
        return np.array([np.nan if value is None else value for value in values])

    verdicts = tuple(
        Verdict(one.error_estimate, one.error_interval, one.findings, one.state, known.m)
        for one, known in zip(every, result.each, strict=True)
    )
    statuses = np.empty(len(every), dtype=object)
    statuses[:] = [one.status for one in every]
    return replace(
        result,
        X=type(result.X).concat([one.X.batched() for one in every]),
        residual=together("residual"),
        error=None if result.error is None else together("error"),
        status=statuses,
        epochs=together("epochs"),
        error_estimate=together("error_estimate"),
        passes=max(one.passes for one in every),
        each=verdicts,
    )


def _trial_of(X: Any, k: int) -> Any:
    return X.trial(k) if isinstance(X, Iterate) else X[k, ...]


def no_worse_than_zero(problem: Problem, result: Result, fit: Fit) -> Result:
    """Result that was not recovered, shrunk where it is plainly worse than zero.

    Its norm may be far larger than the measurements say. And where there are enough of them, a
    quick fit to most tells: if it predicts the others no better than zero does, X is multiplied by
    the number with which it predicts them best. One pass, or such a fit.
    """
    lost = (Status.LOCAL_MINIMUM, Status.UNDERDETERMINED)
    if not fit.thorough or fit.solver != "auto" or result.status not in lost or fit.time_is_up:
        return result
    if not isinstance(result.X, TuckerTensor):
        return result
    # the spread needs tensors of the full size
    if size(problem.shape) <= FULL and not spread_of_rows(problem, as_seed(fit.seed)) < EVEN:
        return result
    factor = min(_by_norm(problem, result, fit), _by_held_out(problem, result, fit))
    if factor >= 1:
        return result
    X = result.X * factor
    text = f"Nothing was recovered: X is worse than zero, and was multiplied by {factor:.2g}."
    shrunk = replace(
        result, X=X, residual=float(to_numpy(problem.relative_residual(X))), error_estimate=None,
        error_interval=None, error=_error(X, fit.X_true),
    )  # fmt: skip
    return shrunk.found(Finding("nothing recovered", text, {"factor": factor}))


def _by_norm(problem: Problem, result: Result, fit: Fit) -> float:
    r"""Factor for X + E with a large error E that has nothing to do with X.

    :math:`\|X\|^2` is about :math:`N \|y\|^2 / \|A\|_F^2`, where rows have no preference. The
    norm of A is that of its rows, where these are at hand, or else a random tensor gives it; no
    such tensor of more than 10^7 entries is formed.
    """
    if problem.A.traits.has_fast_row_norms:
        gain = float(problem.weighted_norm(problem.A.row_norms()))
    elif size(problem.shape) <= FULL:
        draws = generator(as_seed(fit.seed), Stream.PROBE).standard_normal(problem.shape)
        probe = like(draws, result.X.core, result.X.core.dtype)
        gain = float(problem.weighted_norm(problem.A.forward(probe)))
    else:
        return 1.0
    found = float(result.X.norm())
    expected = float(problem.y_norm) * size(problem.shape) ** 0.5 / gain if gain else found
    if not expected:
        return 1.0
    ratio = (expected / found) ** 2 if found else 1.0
    chance = (2 / problem.equations) ** 0.5  # relative error of the squared norm
    return ratio if 1 / ratio > FAR_TOO_LARGE * (1 + DEVIATIONS * chance) else 1.0


def _by_held_out(problem: Problem, result: Result, fit: Fit) -> float:
    """Factor with which a fit to some of the measurements predicts the others best."""
    parts = Holdout.draw(problem, HELD, fit.seed)
    if parts is None or parts.train.equations < ENOUGH * result.degrees_of_freedom:
        return 1.0
    quietly = replace(fit, callbacks=(), noise_std=None, X_true=None)
    solver = automatic(parts.train, result.rank, quick=True)
    first = quietly(parts.train, result.rank, solver=solver)
    residual = parts.held.residual(first.X)
    if first.status is Status.INTERRUPTED or parts.candidate(first.X, residual, fit).score <= 1:
        return 1.0
    measured = parts.held.y - residual
    weighted = parts.held.weights * measured
    seen = dot(weighted, measured)
    return min(max(dot(weighted, parts.held.y) / seen, 0.0), 1.0) if seen else 0.0


def _error(X: TuckerTensor, X_true: Any) -> float | None:
    return None if X_true is None else float(to_numpy(relative_error(X, X_true)))


def finished(problem: Problem, result: Result, fit: Fit, label: str = "") -> Evidence:
    """Evidence on a result of "auto" after the last Gauss-Newton steps, if they change X by much.

    A run that ends at the noise floor, or at tol where the measurements are ill-conditioned, is not
    yet at the minimum. The status stays. A few passes where there is something to do.
    """
    evidence = Evidence.of(problem, result, fit.seed)
    worth = (Status.CONVERGED, Status.NOISE_FLOOR, Status.STALLED)
    if fit.solver != "auto" or result.status not in worth or fit.time_is_up:
        return evidence
    if not evidence.is_tucker or result.degrees_of_freedom >= problem.equations:
        return evidence
    try:
        with fit.clock.watched():
            accuracy = evidence.accuracy
    except (TimeUp, np.linalg.LinAlgError):
        return evidence
    exact = result.status is Status.CONVERGED
    enough = FAR * fit.tol if exact else UNFINISHED * accuracy.noise
    if not accuracy.determined or accuracy.step <= enough:
        return evidence
    tol = max(100 * eps(problem.y), fit.tol * 1e-6) if exact else fit.tol
    last = replace(fit, loss="squared", noise_std=None, tol=tol)
    label = f"{label} last steps".strip()
    log.info("The fit is not yet at its minimum: some Gauss-Newton steps follow.")
    again = last(
        evidence.problem, result.rank, start=result.X, solver=RGN(), before=result, label=label
    )
    if not again.residual <= result.residual or again.status in OVER:
        return evidence
    status = Status.CONVERGED if again.residual <= fit.tol else result.status
    kept = replace(again, status=status, weights=result.weights, findings=result.findings)
    return Evidence.of(problem, kept, fit.seed)


def held_out_fit(problem: Problem, rank: Any, fit: Fit, held: NumPyArray) -> Result:
    """Fit the measurements that are not held out, score the fit on the others, and fit all."""
    if not held.any():
        return recovered(problem, rank, fit)
    by_rows = problem.A.entry_samples() is not None
    parts = (Holdout.by_rows if by_rows else Holdout.by_weights)(problem, held)
    first = recovered(parts.train, rank, replace(fit, thorough=False))
    residual = parts.held.residual(first.X)
    error = parts.candidate(first.X, residual, fit).score
    log.info("A fit to the others predicts %d held-out measurements to %.2g.", held.sum(), error)
    told: dict[str, Any] = {"held_out": error, "calibration": parts.calibration(residual)}
    if first.status is Status.INTERRUPTED:
        return replace(first, **told)
    if first.success:
        found = _tucker_rank(first)
        result = recovered(problem, found, fit, start=first.X, before=first, score=error)
        searched = not isinstance(rank, tuple | list)
        kept = [f for f in first.findings if searched and (f.kind == "rank found" or f.borderline)]
        result = replace(result, findings=_distinct(kept, result.findings), **told)
        result = _unless_predicted_worse(problem, result, error, fit)
        return _estimated_by(error, _unless_others_fit(first, result, error))
    result = _retried(problem, rank, fit, first, error)
    text = "The held-out error is that of a first fit, which did not converge."
    result = replace(result.found(Finding("held out", text, {"error": error})), **told)
    result = _estimated_by(error, _unless_others_fit(first, result, error))
    if result.status in (Status.CONVERGED, Status.NOISE_FLOOR):
        # the first fit was no success: its residuals are not of the same kind
        return replace(result, calibration=None)
    return result


def _unless_predicted_worse(problem: Problem, result: Result, error: float, fit: Fit) -> Result:
    """Result up to noise; an approximation, where held-out samples are not predicted so well.

    Few samples, fitted by almost as many degrees of freedom, leave a residual without structure.
    """
    if result.status is not Status.NOISE_FLOOR or result.weights is not None:
        return result
    expected = Evidence.of(problem, result, fit.seed).cross_validated
    if not error > PREDICTED_WORSE * expected:
        return result
    text = (
        f"Held-out samples were predicted to {error:.2g} only, where noise would leave "
        f"{expected:.2g}: the data are not exactly of this rank."
    )
    numbers = {"score": error, "expected": expected}
    return result.found(Finding("approximated", text, numbers, Status.APPROXIMATED))


def _unless_others_fit(first: Result, result: Result, error: float) -> Result:
    """Result of another format than Tucker; no success where tensors that fit differ elsewhere.

    That is where a first fit has residuals far smaller than its errors on held-out samples. Tucker
    tensors have a tangent space that tells.
    """
    fits = result.status is Status.CONVERGED and first.residual <= OVERFITTED * error
    if isinstance(result.X, TuckerTensor) or not fits or error <= INEXACT:
        return result
    text = (
        f"A first fit left {first.residual:.1g} of its samples, but predicted held-out ones to "
        f"{error:.2g} only."
    )
    finding = Finding("not determined", text, {"error": error}, Status.UNDERDETERMINED)
    return replace(result.found(finding), error_estimate=None, error_interval=None)


def _tucker_rank(result: Result) -> Any:
    """Rank that a fit was given or found; None for a format whose solvers know its own."""
    return result.rank if isinstance(result.X, TuckerTensor) else None


def _estimated_by(error: float, result: Result) -> Result:
    """Result that approximates, with the error on held-out samples as its estimate."""
    if result.status is not Status.APPROXIMATED:
        return result
    return replace(result, **by_held_out(error))


def _distinct(first: Iterable[Finding], second: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings of both, each sentence once."""
    return tuple({f.text: f for f in (*second, *first)}[t] for t in _texts(first, second))


def _texts(*groups: Iterable[Finding]) -> dict[str, None]:
    return dict.fromkeys(f.text for group in groups for f in group)


def _retried(problem: Problem, rank: Any, fit: Fit, first: Result, error: float) -> Result:
    """Fit all samples after a first fit that was no success, and lose nothing that it found.

    Its tensor is improved, unless it is no better than zero. Where that does not converge either,
    and there is time, all starts are tried again; their tensor counts only if it is a success: a
    lower residual alone does not say that unseen entries are closer.
    """
    local = RGN() if fit.solver == "auto" else fit.solver
    better_than_zero = error < 1
    warm = first
    if better_than_zero:
        warm = recovered(
            problem,
            _tucker_rank(first),
            fit,
            start=first.X,
            before=first,
            solver=local,
            score=error,
        )
        if warm.success or warm.status in {*OVER, Status.RANK_TOO_SMALL}:
            return warm
    known = first.rank if isinstance(rank, tuple | list) else rank  # warned of already
    again = joined(warm, recovered(problem, known, fit), "all samples")
    if again.success or not better_than_zero:
        return again
    cut_short = again.status in (Status.INTERRUPTED, Status.MAX_SECONDS)
    return replace(
        warm,
        status=again.status if cut_short else warm.status,
        history=again.history,
        epochs=again.epochs,
        passes=again.passes,
        seconds=again.seconds,
    )
