"""Without a rank: shrinkage or a hard rank, whichever predicts held-out measurements better."""

from __future__ import annotations

from dataclasses import replace

from lowtucker._array import eps
from lowtucker.problem import Problem
from lowtucker.recovery.fit import OVER, Fit, joined
from lowtucker.recovery.hard import held_out_fit, recovered
from lowtucker.recovery.rank import RankSearch
from lowtucker.recovery.soft import Soft, fits_in_memory, soft_fit
from lowtucker.run.result import Result
from lowtucker.status import Finding, Status
from lowtucker.tensor.rank import attainable_rank, degrees_of_freedom

__all__ = ["without_rank"]

# Measurements per degree of freedom that must be left when some are held out
LEFT = 1.5
# A rank that the spectrum shows is kept where it predicts held-out data as well, up to this
TIE = 1.02
# Held-out residuals above this tell that shrinkage has found little; where measurements are few, a
# lower one: below 5 per degree of freedom shrinkage may miss what a rank of 4 fits exactly
POOR, FAIR, FEW, SMALL_RANK = 0.5, 0.05, 5.0, 4
# Where the spectra have a gap the data are fitted to this
EXACT = 1e-8


def without_rank(problem: Problem, fit: Fit, share: float = 0.0) -> Result:
    """Fit by shrinkage, and by a rank where data may be of low rank; keep what predicts better.

    A rank is fitted where the spectra of the shrunk tensor have a clear gap, and is searched where
    shrinkage finds little: with few measurements of a tensor that is exactly of low rank only a
    hard rank recovers it.
    """
    soft = soft_fit(problem, fit, share) if fits_in_memory(problem) else None
    if soft is None:
        return recovered(problem, RankSearch(), fit)
    if soft.result.status in OVER:
        return soft.result
    if soft.rank is not None and _enough(problem, soft.rank):
        return _of_the_gap(problem, fit, soft, soft.rank)
    if soft.score > (FAIR if _few(problem) else POOR):
        return _searched(problem, fit, soft)
    return soft.result


def _few(problem: Problem) -> bool:
    """Whether there are too few measurements for shrinkage to find even a small rank."""
    rank = attainable_rank(tuple(min(SMALL_RANK, n) for n in problem.shape))
    return bool(problem.equations < FEW * degrees_of_freedom(problem.shape, rank))


def _enough(problem: Problem, rank: tuple[int, ...]) -> bool:
    return bool(problem.equations >= LEFT * degrees_of_freedom(problem.shape, rank))


def _of_the_gap(problem: Problem, fit: Fit, soft: Soft, rank: tuple[int, ...]) -> Result:
    """Fit the rank that the spectra show, and keep it where it predicts as well."""
    tol = min(fit.tol, max(EXACT, 100 * eps(problem.y)))
    exactly = replace(fit, stage=f"rank {rank}", tol=tol)
    hard = held_out_fit(problem, rank, exactly, soft.held)
    if hard.status is Status.INTERRUPTED:
        return replace(soft.result, status=Status.INTERRUPTED)
    if hard.held_out is None or hard.held_out > TIE * soft.score:  # of the same measurements
        return _with_cost_of(soft.result, hard)
    if hard.status in (Status.STALLED, Status.RANK_TOO_SMALL):  # it predicts as well all the same
        hard = replace(hard, status=Status.APPROXIMATED)
    text = f"Rank {rank} was found, by a gap in the spectra of a shrunk fit."
    by_gap = Finding("rank found", text, {"rank": rank, "shrunk": soft.score})
    return _after(soft.result, replace(hard, findings=(by_gap, *hard.findings)))


def _searched(problem: Problem, fit: Fit, soft: Soft) -> Result:
    """Search a rank; keep it where it is a success."""
    hard = recovered(problem, RankSearch(), replace(fit, stage="rank search"))
    if hard.success:
        return _after(soft.result, hard)
    cut_short = hard.status in (Status.INTERRUPTED, Status.MAX_SECONDS)
    text = (
        f"Little was found: held-out measurements are predicted to {soft.score:.2g} only, and no "
        "rank explains them. Take more measurements."
    )
    poor = Finding("little found", text, {"score": soft.score}, Status.UNDERDETERMINED)
    result = _with_cost_of(soft.result, hard).found(poor)
    return replace(result, status=hard.status) if cut_short else result


def _after(before: Result, after: Result) -> Result:
    """Result with the history and the cost of what was done before it."""
    rows = {name: after.history[name] for name in before.history}
    again = replace(after, history=type(after.history).of(rows))
    return joined(before, again, "")


def _with_cost_of(kept: Result, other: Result) -> Result:
    """Result that is kept, with the history and the cost of what was tried after it."""
    both = _after(kept, other)
    return replace(
        kept,
        history=both.history,
        epochs=both.epochs,
        passes=both.passes,
        seconds=both.seconds,
    )
