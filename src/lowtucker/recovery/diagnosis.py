"""Diagnosis: what a result and its problem say of noise, of the rank, and of what is determined.

A check is a function of a :class:`Case` that returns findings, each with the numbers behind it. The
checks run in the order of the tables at the end of this file; a later one sees what the earlier
ones found, and overrides the status that they decided. A new check is one function and one line
there. All thresholds are in :mod:`lowtucker.limits`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from lowtucker._array import eps, size, to_numpy
from lowtucker._array.clock import TimeUp
from lowtucker.limits import (
    CLEAR,
    DOUBT,
    HOPELESS,
    NEAR_CLEAR,
    NEAR_ESTIMATE,
    NEAR_ROUNDING,
    NEAR_STRUCTURE,
    NEAR_TOL,
    PLENTY,
    STRUCTURE,
)
from lowtucker.problem import Problem
from lowtucker.recovery.advice import explained
from lowtucker.recovery.fit import Fit, noise_floor
from lowtucker.recovery.rank import compare_larger_rank, smaller_rank
from lowtucker.run.interrupt import interruptible
from lowtucker.run.result import Result
from lowtucker.solvers.manifold import (
    covariance_error,
    eigenvalues,
    full_rank_margin,
    has_full_rank,
)
from lowtucker.solvers.noise import structure
from lowtucker.solvers.rgn import LARGE
from lowtucker.status import UNDETERMINED, Finding, Status
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Case", "concluded", "examined", "larger_rank_of"]

# Flops of a gram matrix that is formed to check the rank of the design; more are left to products
COSTLY = 1e10


@dataclass(frozen=True)
class Case:
    """What checks look at.

    Attributes
    ----------
    problem : Problem
        With the weights of the last fit.
    result : Result
        With the findings so far.
    fit : Fit
        The settings of the call.
    rank_settled : bool
        Whether the rank is given, or a search came to its end: otherwise the residual holds what
        no rank that could be tried has fitted, and is not noise.
    determined : bool
        Whether the tangent design has full rank, as far as was looked at.
    margin : float or None
        Smallest eigenvalue of the design's gram matrix in units of rounding, where it was computed.
    share : float
        The same relative to the largest eigenvalue.
    """

    problem: Problem
    result: Result
    fit: Fit
    rank_settled: bool = True
    determined: bool = True
    margin: float | None = None
    share: float = 1.0

    @property
    def is_tucker(self) -> bool:
        """Whether X has a Tucker rank and a tangent space; other formats have neither."""
        return isinstance(self.result.X, TuckerTensor)

    def checked(self, checks: Iterable[Check]) -> Case:
        """Case with the findings of checks; those that there is no time for are left out."""
        case = self
        for check in checks:
            try:
                with case.fit.clock.watched():
                    findings = check(case)
            except TimeUp:
                findings = case.out_of_time(LONG_CHECKS.get(check, check.__name__))
            case = replace(case, result=case.result.found(*findings))
        return case

    def out_of_time(self, what: str) -> list[Finding]:
        """Note what is not checked; a fit that did not converge has then no other verdict."""
        self.fit.clock.skip(what)
        text = "The time limit was reached before the verdict."
        stalled = self.result.status is Status.STALLED
        return [Finding("verdict", text, {}, Status.MAX_SECONDS)] if stalled else []


Check = Callable[[Case], list[Finding]]


def examined(problem: Problem, result: Result, fit: Fit, rank_settled: bool) -> Case:
    """Check a fit for noise, and its rank against larger ones."""
    if result.weights is not None:
        problem = Problem(problem.A, problem.y, result.weights)
    return Case(problem, result, fit, rank_settled).checked(CHECKS_OF_THE_FIT)


def concluded(case: Case) -> Result:
    """Result with all findings: whether X is determined, and what to try."""
    case = case.checked(CHECKS_OF_THE_MEASUREMENTS)
    if case.result.success:
        try:
            with case.fit.clock.watched():
                case = _design_examined(case)
        except TimeUp:
            case.out_of_time("the check whether the measurements determine X")
        case = case.checked(CHECKS_OF_A_SUCCESS)
    return explained(case.result)


def larger_rank_of(case: Case) -> Finding | None:
    """Finding of a larger rank that predicts held-out measurements better, if there is one."""
    found = (f for f in case.result.findings if f.status is Status.RANK_TOO_SMALL)
    return next(found, None)


# Noise


def near_the_noise_floor(case: Case) -> list[Finding]:
    """Whether the residual reached, or missed, the given noise floor by little."""
    result, fit = case.result, case.fit
    relevant = result.status in (Status.NOISE_FLOOR, Status.STALLED)
    if fit.noise_std is None or result.weights is not None or not relevant:
        return []
    floor = float(noise_floor(case.problem, fit.noise_std, result.rank))
    spare = max(case.problem.equations - result.degrees_of_freedom, 1)
    # half a standard deviation of what noise leaves
    if abs(result.residual / floor - 1) > 0.5 / math.sqrt(2 * spare):
        return []
    text = f"The residual, {result.residual:.4g}, is close to the noise floor, {floor:.4g}."
    numbers = {"residual": result.residual, "floor": floor}
    return [Finding("noise floor", text, numbers, borderline=True)]


def without_structure(case: Case) -> list[Finding]:
    """Whether a fit that got stuck above rounding error leaves noise. One pass."""
    problem, result = case.problem, case.result
    if case.fit.noise_std is not None or not case.rank_settled or _at_rounding(case):
        return []
    if result.status is not Status.STALLED:
        return []
    found = structure(problem, problem.residual(result.X), result.degrees_of_freedom)
    if found is None:
        return []
    findings, numbers = [], {"structure": found, "limit": STRUCTURE}
    if abs(found - STRUCTURE) < NEAR_STRUCTURE:
        text = (
            f"The residual has {found:.3f} times the spectral norm of noise; up to {STRUCTURE} it "
            "is taken for noise."
        )
        findings.append(Finding("structure", text, numbers, borderline=True))
    if found <= STRUCTURE:
        text = f"The residual has no structure: {found:.2f} times the spectral norm of noise."
        findings.append(Finding("verdict", text, numbers, Status.NOISE_FLOOR))
    return findings


def _at_rounding(case: Case) -> bool:
    return bool(case.result.residual <= 100 * eps(case.problem.y))


# Rank


def larger_rank(case: Case) -> list[Finding]:
    """Whether a larger rank predicts held-out measurements better, where "auto" got stuck."""
    problem, result, fit = case.problem, case.result, case.fit
    if result.status is not Status.STALLED or fit.solver != "auto" or not case.is_tucker:
        return []
    quietly = replace(fit, loss="squared", callbacks=())
    with interruptible() as interrupt:
        rank, nothing_better, findings = compare_larger_rank(problem, result, quietly)
    if interrupt.asked:
        text = "The comparison with larger ranks was not finished."
        return [*findings, Finding("comparison unfinished", text, {}, Status.INTERRUPTED)]
    traits = problem.A.traits
    by_structure = traits.isotropic and traits.has_fast_tangent  # which tells more
    more = list(findings)
    if nothing_better and not by_structure and not _at_rounding(case):
        more += _nothing_but_noise(result)
    if rank is not None:
        text = f"Rank {rank} predicts held-out measurements better."
        more.append(Finding("larger rank", text, {"rank": rank}, Status.RANK_TOO_SMALL))
    return more


def _nothing_but_noise(result: Result) -> list[Finding]:
    """A residual that no larger rank predicts is noise, unless it is large."""
    found, numbers = [], {"residual": result.residual, "limit": CLEAR}
    if CLEAR / NEAR_CLEAR < result.residual < CLEAR * NEAR_CLEAR:
        text = (
            f"The residual, {result.residual:.3f}, is close to {CLEAR}, the most that is taken for "
            "noise."
        )
        found.append(Finding("residual", text, numbers, borderline=True))
    if result.residual < CLEAR:
        text = "No larger rank predicts held-out measurements better: the residual is noise."
        found.append(Finding("verdict", text, numbers, Status.NOISE_FLOOR))
    return found


def near_the_tolerance(case: Case) -> list[Finding]:
    """Whether a fit that did not converge missed the tolerance by little."""
    result, tol = case.result, case.fit.tol
    if result.success or not tol < result.residual <= NEAR_TOL * tol:
        return []
    text = f"The residual, {result.residual:.2g}, is close to tol = {tol:g}."
    numbers = {"residual": result.residual, "tol": tol}
    return [Finding("tolerance", text, numbers, borderline=True)]


def smaller_rank_suffices(case: Case) -> list[Finding]:
    """Whether some directions of X are smaller than the expected error."""
    result = case.result
    rank = smaller_rank(result) if result.success and case.is_tucker else None
    if rank is None:
        return []
    text = f"Rank {rank} suffices: the rest of {result.rank} is smaller than the error."
    return [Finding("smaller rank", text, {"rank": rank})]


# What the measurements determine


def of_the_operator(case: Case) -> list[Finding]:
    """What the operator itself knows: slices without samples, duplicates."""
    weights = case.problem.weights
    counting = None if weights is None else to_numpy(weights) > 0
    rank = case.result.rank if case.is_tucker else (1,) * len(case.problem.shape)
    return case.problem.A.diagnose(rank, counting)


def _design_examined(case: Case) -> Case:
    """Case with whether the tangent design at X has full rank, so that no other X near it fits.

    Examined where the error estimate is missing or large, as it is where sampled entries leave out
    a slice. One pass then, which gives an estimate from all rows; without a design, or where it is
    too large and measurements are few, some 30.
    """
    problem, result = case.problem, case.result
    dof = result.degrees_of_freedom
    small = result.error_estimate is not None and result.error_estimate < DOUBT
    if small or not case.is_tucker:
        return case
    if problem.equations == dof < size(problem.shape):
        # as many equations as unknowns, not linear: several tensors fit
        return replace(case, determined=False)
    if result.status is not Status.CONVERGED and result.error_estimate is not None:
        return case  # with noise the estimate is the measure
    fast = problem.A.traits.has_fast_tangent
    if not fast or dof > LARGE or problem.equations * dof**2 > COSTLY:
        plenty = fast and problem.equations >= PLENTY * dof
        return replace(case, determined=plenty or has_full_rank(problem, result.X, case.fit.seed))
    try:
        values = eigenvalues(problem, result.X)
    except np.linalg.LinAlgError:  # it cannot be told
        return case
    margin = full_rank_margin(values)
    estimate = covariance_error(problem, result.X, values, result.residual)
    share = float(values[0] / values[-1]) if values[-1] else 0.0
    result = replace(result, error_estimate=estimate)
    return replace(case, result=result, determined=margin > 1, margin=margin, share=share)


def near_rank_deficiency(case: Case) -> list[Finding]:
    """Whether the design's smallest eigenvalue is close to rounding error."""
    low, high = NEAR_ROUNDING
    if case.margin is None or not low < case.margin < high:
        return []
    text = (
        f"The smallest eigenvalue of the tangent design is {case.share:.0e} of the largest, close "
        "to rounding error."
    )
    numbers = {"margin": case.margin, "share": case.share}
    return [Finding("eigenvalue", text, numbers, borderline=True)]


def near_the_largest_error(case: Case) -> list[Finding]:
    """Whether the error estimate is close to the largest that is trusted."""
    estimate = case.result.error_estimate
    if estimate is None or not HOPELESS / NEAR_ESTIMATE < estimate < HOPELESS * NEAR_ESTIMATE:
        return []
    text = f"The estimated error, {estimate:.0%}, is close to the limit of {HOPELESS:.0%}."
    return [Finding("error estimate", text, {"estimate": estimate}, borderline=True)]


def not_determined(case: Case) -> list[Finding]:
    """Whether X is not determined: by a large error estimate, unsampled slices, or the design."""
    estimate = case.result.error_estimate
    unsampled = any(f.kind in UNDETERMINED for f in case.result.findings)
    status = Status.UNDERDETERMINED
    if estimate is not None and estimate > HOPELESS:
        text = f"The residual may have changed X by {estimate:.0%}: take more measurements."
        return [Finding("error estimate", text, {"estimate": estimate}, status)]
    if unsampled:
        return [Finding("verdict", "Some slices have too few samples.", {}, status)]
    if case.determined:
        return []
    text = (
        "The measurements do not determine X: the tangent design is rank-deficient. Take more "
        "measurements, or a smaller rank."
    )
    return [Finding("rank-deficient design", text, {"margin": case.margin}, status)]


CHECKS_OF_THE_FIT: tuple[Check, ...] = (near_the_noise_floor, without_structure, larger_rank)
# Those that read rows, by what they look for
LONG_CHECKS: dict[Check, str] = {
    without_structure: "the check whether the residual is noise",
    larger_rank: "the comparison with larger ranks",
}
CHECKS_OF_THE_MEASUREMENTS: tuple[Check, ...] = (near_the_tolerance, of_the_operator)
CHECKS_OF_A_SUCCESS: tuple[Check, ...] = (
    near_rank_deficiency,
    near_the_largest_error,
    not_determined,
    smaller_rank_suffices,
)
