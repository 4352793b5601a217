"""Without a rank: shrinkage or a hard rank, whichever predicts held-out measurements better."""

from __future__ import annotations

from dataclasses import replace

from lowtucker._array import eps
from lowtucker._array.log import logger
from lowtucker.problem import Problem
from lowtucker.recovery.diagnosis import concluded, examined
from lowtucker.recovery.evidence import Evidence
from lowtucker.recovery.fit import OVER, Fit, joined
from lowtucker.recovery.gains import unless_unseen
from lowtucker.recovery.hard import held_out_fit, recovered
from lowtucker.recovery.holdout import by_held_out
from lowtucker.recovery.precondition import isotropic_in_time, of_given_rows
from lowtucker.recovery.rank import RankSearch, search_rank, smaller_rank
from lowtucker.recovery.soft import Soft, fits_in_memory, soft_fit, weighted_by_error
from lowtucker.run.result import Result
from lowtucker.status import Finding, Status
from lowtucker.tensor.rank import attainable_rank, degrees_of_freedom

__all__ = ["without_rank"]

log = logger("recovery")
# Measurements per degree of freedom that must be left when some are held out
LEFT = 1.5
# A rank that the spectrum shows is kept where it predicts held-out data as well, up to this; a
# larger factor where its fit is a success: both then predict up to noise
TIE, NOISY_TIE = 1.02, 1.1
# Held-out residuals above this tell that shrinkage has found little; where measurements are few, a
# lower one: below 5 per degree of freedom shrinkage may miss what a rank of 4 fits exactly
POOR, FAIR, FEW, SMALL_RANK = 0.5, 0.05, 5.0, 4
# Findings about the data, whatever is fitted to them
OF_THE_DATA = ("fibres", "offset")
# Where the spectra have a gap the data are fitted to this
EXACT = 1e-8


def without_rank(
    problem: Problem, fit: Fit, share: float = 0.0, *, only_shrinkage: bool = False
) -> Result:
    """Fit by shrinkage, and by a rank where data may be of low rank; keep what predicts better.

    A rank is fitted where the spectra of the shrunk tensor have a clear gap, and is searched where
    shrinkage finds little: with few measurements of a tensor that is exactly of low rank only a
    hard rank recovers it. All of this with rows that were made isotropic, where they are far from
    it. With ``only_shrinkage`` no rank is fitted.
    """
    choose = _shrunk if only_shrinkage else _chosen
    made = None
    if fit.loss == "squared" and problem.as_entries is None and fits_in_memory(problem):
        made = isotropic_in_time(problem, fit)
    if made is None:
        return unless_unseen(problem, fit, choose(problem, fit, share))
    log.info("The rows are far from isotropic: equivalent isotropic ones are fitted instead.")
    made = weighted_by_error(made, fit)
    result = choose(made.problem, replace(fit, noise_std=None), share)
    return unless_unseen(made.problem, fit, of_given_rows(problem, fit, made, result))


def _shrunk(problem: Problem, fit: Fit, share: float) -> Result:
    """Fit by shrinkage alone."""
    soft = soft_fit(problem, fit, share) if fits_in_memory(problem) else None
    if soft is None:
        raise ValueError(
            f'solver="shrinkage" holds some of the {problem.m} measurements out and forms tensors '
            f'of the full size, {problem.shape}: that is too few, or too large. Try rank="auto".'
        )
    return _or_little(soft, soft.result)


def _chosen(problem: Problem, fit: Fit, share: float) -> Result:
    soft = soft_fit(problem, fit, share) if fits_in_memory(problem) else None
    if soft is None:
        log.info("Shrinkage needs more measurements, or memory: a rank is searched instead.")
        return recovered(problem, RankSearch(), fit)
    log.info("Without a rank, shrinkage predicts held-out measurements to %.2g.", soft.score)
    if soft.result.status in OVER:
        return soft.result
    result = soft.result
    if soft.rank is not None and _enough(problem, soft.rank):
        log.info("The spectra have a gap after rank %s: it is fitted too.", soft.rank)
        result = _of_the_gap(problem, fit, soft, soft.rank)
    elif soft.score > POOR:
        log.info("That is little: a rank is searched.")
        result = _searched(problem, fit, soft)
    elif soft.score > FAIR and _few(problem) and fit.loss == "squared":
        log.info("There are few measurements: a small rank that fits exactly is searched.")
        result = _exact(problem, fit, soft)
    return _or_little(soft, result) if result.X is soft.result.X else result


def _or_little(soft: Soft, result: Result) -> Result:
    """Shrunk result; no success where it predicts next to nothing."""
    if not soft.score > POOR or result.status in OVER:
        return result
    text = (
        f"Held-out measurements are predicted to {soft.score:.2g} only, and no "
        "rank was found that explains them. There are too few measurements, much noise, or "
        "outliers."
    )
    return result.found(
        Finding("little found", text, {"score": soft.score}, Status.UNDERDETERMINED)
    )


def _few(problem: Problem) -> bool:
    """Whether there are too few measurements for shrinkage to find even a small rank."""
    dof = degrees_of_freedom(problem.shape, _small_rank(problem))
    return bool(problem.equations < FEW * dof)


def _small_rank(problem: Problem) -> tuple[int, ...]:
    return attainable_rank(tuple(min(SMALL_RANK, n) for n in problem.shape))


def _enough(problem: Problem, rank: tuple[int, ...]) -> bool:
    return bool(problem.equations >= LEFT * degrees_of_freedom(problem.shape, rank))


def _of_the_gap(problem: Problem, fit: Fit, soft: Soft, rank: tuple[int, ...]) -> Result:
    """Fit the rank that the spectra show; keep shrinkage where that predicts better."""
    tol = min(fit.tol, max(EXACT, 100 * eps(problem.y)))
    exactly = replace(fit, stage=f"rank {rank}", tol=tol)
    hard = held_out_fit(problem, rank, exactly, soft.held)
    smaller = smaller_rank(hard) if hard.status is Status.CONVERGED else None
    if smaller is not None and not fit.time_is_up:  # a mean that was taken out adds directions
        hard = held_out_fit(problem, smaller, exactly, soft.held)
        rank = smaller
    if hard.status is Status.INTERRUPTED:
        return _kept(soft, hard, Status.INTERRUPTED)
    tie = NOISY_TIE if hard.success else TIE
    if hard.held_out is None or hard.held_out > tie * soft.of_held:  # of the same measurements
        return _kept(soft, hard)
    stuck = (Status.STALLED, Status.RANK_TOO_SMALL, Status.LOCAL_MINIMUM)
    if hard.status in stuck:  # it predicts as well all the same
        if not soft.isotropic:
            return _kept(soft, hard)
        hard = replace(hard, status=Status.APPROXIMATED, **by_held_out(hard.held_out))
    text = f"Rank {rank} was found, by a gap in the spectra of a shrunk fit."
    by_gap = Finding("rank found", text, {"rank": rank, "shrunk": soft.score})
    of_the_data = [f for f in soft.result.findings if f.kind in OF_THE_DATA]
    log.info("Rank %s is kept: it predicts held-out measurements as well as shrinkage.", rank)
    return _after(soft.result, replace(hard, findings=(by_gap, *of_the_data, *hard.findings)))


def _exact(problem: Problem, fit: Fit, soft: Soft) -> Result:
    """Search a small rank that fits exactly; keep shrinkage where there is none."""
    quietly = replace(fit, stage="rank search")
    hard, settled = search_rank(problem, RankSearch(_small_rank(problem)), quietly)
    if hard.status is Status.INTERRUPTED:
        return _kept(soft, hard, Status.INTERRUPTED)
    if hard.status is not Status.CONVERGED:
        return _kept(soft, hard)
    hard = concluded(examined(Evidence.of(problem, hard, fit.seed), quietly, settled))
    return _after(soft.result, hard) if hard.success else _kept(soft, hard)


def _searched(problem: Problem, fit: Fit, soft: Soft) -> Result:
    """Search a rank; keep shrinkage unless it is a success and predicts held-out data better."""
    quietly = replace(fit, stage="rank search")
    hard = recovered(problem, RankSearch(), quietly)
    if hard.status is Status.INTERRUPTED:
        return _kept(soft, hard, Status.INTERRUPTED)
    if not hard.success:
        return _kept(soft, hard)
    if hard.status is not Status.CONVERGED:
        if not soft.isotropic or fit.time_is_up:  # it cannot be told which is better
            return _kept(soft, hard)
        found = held_out_fit(problem, hard.rank, quietly, soft.held)
        if found.held_out is None or found.held_out > soft.of_held:
            return _kept(soft, hard)
        hard = replace(hard, held_out=found.held_out, calibration=found.calibration)
    return _after(soft.result, hard)


def _after(before: Result, after: Result) -> Result:
    """Result with the history and the cost of what was done before it."""
    rows = {name: after.history[name] for name in before.history}
    again = replace(after, history=type(after.history).of(rows))
    return joined(before, again, "")


def _kept(soft: Soft, hard: Result, status: Status | None = None) -> Result:
    """Shrunk result, with the history and the cost of the fit that it is kept for."""
    log.info("Shrinkage is kept: no rank is sure to predict better.")
    both = _after(soft.result, hard)
    return replace(
        soft.result,
        status=status or soft.result.status,
        history=both.history,
        epochs=both.epochs,
        passes=both.passes,
        seconds=both.seconds,
    )
