"""With a rank: fits of a rank that is given or searched, and diagnosis; with a hold-out or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from lowtucker.problem import Problem
from lowtucker.recovery.diagnosis import concluded, examined, larger_rank_of
from lowtucker.recovery.fit import OVER, Fit, joined
from lowtucker.recovery.holdout import Holdout
from lowtucker.recovery.rank import RankSearch, search_rank
from lowtucker.run.result import Result
from lowtucker.solvers import RGN
from lowtucker.status import Finding, Status

__all__ = ["held_out_fit", "rank_given_or_searched", "recovered"]

NumPyArray = np.ndarray[Any, Any]
# How often a search takes up a larger rank that diagnosis has found better
RETRIES = 3


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
) -> Result:
    """Fit a rank that is given or searched, and diagnose; the history continues ``before``."""
    given, search = rank_given_or_searched(rank)
    if search is None:
        label = "" if before is None else "all samples"
        result = fit(problem, given, start=start, solver=solver, before=before, label=label)
        if problem.batch_shape:
            return result
        return concluded(examined(problem, result, fit, rank_settled=True))
    if start is not None:
        raise ValueError('start has a rank of its own: give rank=start.rank, not "auto".')
    result, settled = search_rank(problem, search, fit)
    limit = search.limit(problem.shape)
    case = examined(problem, result, fit, settled)
    for _ in range(RETRIES):
        larger = larger_rank_of(case)
        if (
            fit.time_is_up
            or larger is None
            or any(r > n for r, n in zip(larger.numbers["rank"], limit, strict=True))
        ):
            break
        better = fit(case.problem, larger.numbers["rank"], before=case.result, label="all rows")
        earlier = tuple(replace(f, status=None) for f in case.result.findings)
        result = replace(better, findings=(*earlier, *better.findings))
        case = examined(case.problem, result, fit, settled)
    return concluded(case)


def held_out_fit(problem: Problem, rank: Any, fit: Fit, held: NumPyArray) -> Result:
    """Fit the measurements that are not held out, score the fit on the others, and fit all."""
    if not held.any():
        return recovered(problem, rank, fit)
    by_rows = problem.A.entry_samples() is not None
    parts = (Holdout.by_rows if by_rows else Holdout.by_weights)(problem, held)
    first = recovered(parts.train, rank, fit)
    error = parts.score(first.X, fit).score
    if first.status is Status.INTERRUPTED:
        return replace(first, held_out=error)
    if first.success:
        result = recovered(problem, first.rank, fit, start=first.X, before=first)
        searched = not isinstance(rank, tuple | list)
        kept = [f for f in first.findings if searched and (f.kind == "rank found" or f.borderline)]
        return replace(result, findings=_distinct(kept, result.findings), held_out=error)
    result = _retried(problem, rank, fit, first, error)
    text = "The held-out error is that of a first fit, which did not converge."
    return replace(result.found(Finding("held out", text, {"error": error})), held_out=error)


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
        warm = recovered(problem, first.rank, fit, start=first.X, before=first, solver=local)
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
