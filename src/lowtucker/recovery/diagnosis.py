"""Diagnosis: what a result and its problem say of noise, of the rank, and of what is determined.

A check is a function of a :class:`Case` that returns findings, each with the numbers behind it. Its
docstring states what it claims; :mod:`lowtucker.limits` has the thresholds, and how often the
claims were wrong in simulations. The checks run in the order of the tables at the end of this file;
a later one sees what the earlier ones found, and overrides the status that they decided. A new
check is one function and one line there.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from lowtucker._array import eps, size, to_numpy
from lowtucker.limits import (
    AGAIN_SHARE,
    AGAIN_WITH_MORE,
    AGREES,
    AGREES_ROUGHLY,
    ALMOST_ALL,
    ALONE,
    AMPLIFIED,
    DOUBTFUL,
    FEW_ERROR,
    HOPELESS,
    KURTOSIS,
    LARGEST,
    LIKE_NOISE,
    LITTLE_MORE,
    MORE,
    NEAR_ESTIMATE,
    NEAR_ROUNDING,
    NEAR_STRUCTURE,
    NEAR_TOL,
    OUTLIERS,
    PLAINLY_VISIBLE,
    PLENTY,
    POOR_FIT,
    SMALL,
    STRUCTURE,
    VISIBLE,
)
from lowtucker.recovery.case import Case, Check
from lowtucker.recovery.estimate import with_estimate
from lowtucker.recovery.evidence import Evidence
from lowtucker.recovery.fit import Fit, noise_floor
from lowtucker.recovery.formats import format_approximates, format_not_determined
from lowtucker.recovery.rank import Comparison, compare_larger_rank, smaller_rank
from lowtucker.run.interrupt import interruptible
from lowtucker.run.result import Result
from lowtucker.status import UNDETERMINED, Finding, Status

__all__ = ["concluded", "examined", "larger_rank_of"]


def examined(evidence: Evidence, fit: Fit, rank_settled: bool, score: float | None = None) -> Case:
    """Check a fit for noise, and its rank against larger ones.

    ``score`` is the held-out residual of a fit of the same rank, where there was one.
    """
    case = Case(evidence, evidence.result, fit, rank_settled, score)
    return case.checked(CHECKS_OF_THE_FIT)


def concluded(case: Case) -> Result:
    """Result with all findings: whether X is determined, its error, and what to try."""
    case = case.checked(CHECKS_OF_THE_MEASUREMENTS)
    if case.result.success:
        case = with_estimate(case).checked(CHECKS_OF_A_SUCCESS)
    if not case.result.success and case.result.status is not Status.UNDERDETERMINED:
        # an estimate presumes that the model fits
        case = case.now(replace(case.result, error_estimate=None, error_interval=None))
    return case.result


def larger_rank_of(case: Case) -> Finding | None:
    """Finding of a larger rank that predicts held-out measurements better, if there is one."""
    found = (f for f in case.result.findings if f.status is Status.RANK_TOO_SMALL)
    return next((f for f in found if f.kind == "larger rank"), None)


# Noise


def out_of_starts(case: Case) -> list[Finding]:
    """Claim: epochs that went to other starts would not have lowered the residual."""
    restarts = max((f.numbers.get("restarts", 0) for f in case.result.findings), default=0)
    if case.result.status is not Status.MAX_EPOCHS or not restarts:
        return []
    other = "one other start" if restarts == 1 else f"{restarts} other starts"
    text = f"{other.capitalize()} led no further within max_epochs."
    return [Finding("starts", text, {"restarts": restarts}, Status.STALLED)]


def noise_of_the_given_size(case: Case) -> list[Finding]:
    """Claim: the residual is what noise of the given size leaves; 2 % of normal noise leave more.

    With few measurements, where local minima may be as low, several starts must agree.
    """
    result, fit, evidence = case.result, case.fit, case.evidence
    stopped = result.status in (Status.NOISE_FLOOR, Status.STALLED)
    if fit.noise_std is None or result.weights is not None or not stopped:
        return []
    floor = float(noise_floor(case.problem, fit.noise_std, result.degrees_of_freedom))
    numbers = {"residual": result.residual, "floor": floor}
    findings = []
    spare = max(case.problem.equations - result.degrees_of_freedom, 1)
    # half a standard deviation of what noise leaves
    if abs(result.residual / floor - 1) <= 0.5 / math.sqrt(2 * spare):
        text = f"The residual, {result.residual:.4g}, is close to the noise floor, {floor:.4g}."
        findings.append(Finding("noise floor", text, numbers, borderline=True))
    if result.residual > floor or (result.status is Status.NOISE_FLOOR and not evidence.uneven):
        return findings
    lowest, starts, _ = evidence.agreement
    if not (evidence.few or evidence.uneven) or _agreement(case):
        text = "The residual is as small as the given noise leaves it."
        return [*findings, Finding("verdict", text, numbers, Status.NOISE_FLOOR)]
    few = f"{evidence.per_dof:.1f} measurements per degree of freedom"
    few = few if evidence.few else "rows that are far from isotropic"
    text = f"With {few} other tensors may fit to within the noise as well."
    if starts:
        text = f"{text[:-1]}: {lowest} of {starts} starts led to this one."
    numbers |= {"starts": starts, "lowest": lowest}
    return [
        *findings,
        Finding("ambiguous", text, numbers, Status.UNDERDETERMINED, changes=_more(case)),
    ]


def noise_of_unknown_size(case: Case) -> list[Finding]:
    """Claim: the residual is noise, as it has no structure. Noise is found wanting in 0.1 %.

    With few measurements no structure would be seen: several starts, or held-out measurements of
    a search, must agree instead. One pass and 33 adjoints.
    """
    if not _asks_for_noise(case):
        return []
    evidence = case.evidence
    if evidence.few or evidence.uneven:
        return _noise_by_agreement(case)
    found = evidence.structure
    if found is None:
        return []
    numbers = {"excess": found.excess, "limit": STRUCTURE, "visible": found.visible}
    findings = []
    if abs(found.excess - STRUCTURE) < NEAR_STRUCTURE:
        text = (
            f"The residual exceeds noise by {found.excess:.1f} standard deviations; up to "
            f"{STRUCTURE:g} it is taken for noise."
        )
        findings.append(Finding("structure", text, numbers, borderline=True))
    doubtful, visible = _limits_of_noise(case)
    confirmed = evidence.agreement.confirmed and case.result.residual <= SMALL
    if found.excess <= doubtful and (found.visible >= visible or confirmed):
        text = f"The residual has no structure: {found.excess:.1f} standard deviations from noise."
        findings.append(Finding("verdict", text, numbers, Status.NOISE_FLOOR))
    return findings


def _limits_of_noise(case: Case) -> tuple[float, float]:
    """Excess above which, and visibility below which, larger ranks are compared with.

    Those of structure where they are not.
    """
    if case.fit.solver != "auto" or not case.fit.thorough:
        return STRUCTURE, VISIBLE
    return DOUBTFUL, VISIBLE if case.result.residual <= SMALL else PLAINLY_VISIBLE


def _noise_by_agreement(case: Case) -> list[Finding]:
    """Noise, where several starts led to the same residual, or unseen measurements agree."""
    text = _agreement(case)
    lowest, starts, _ = case.evidence.agreement
    numbers = {"starts": starts, "lowest": lowest}
    return [Finding("verdict", text, numbers, Status.NOISE_FLOOR)] if text else []


def _agreement(case: Case) -> str:
    """What confirms a fit of few measurements; nothing where nothing does.

    Several starts that agree, or another fit that predicts held-out measurements. Fewer than 1.5
    measurements per degree of freedom, with noise of unknown size, need both.
    """
    evidence = case.evidence
    lowest, starts, confirmed = evidence.agreement
    more = evidence.per_dof >= MORE
    # isotropic rows have fewer local minima
    easy = more and case.problem.A.traits.isotropic
    again = evidence.agreement.found_again(AGAIN_WITH_MORE if easy else AGAIN_SHARE)
    if confirmed or (again and (more or case.fit.noise_std is not None)):
        return f"{lowest} of {starts} starts led to the same residual: noise."
    small = evidence.accuracy.interval[1] <= FEW_ERROR
    factor = AGREES_ROUGHLY if again else AGREES
    if case.result.weights is None and (again or small) and case.predicts(factor):
        return f"Held-out measurements were predicted to {case.score:.2g}, as noise leaves it."
    return ""


def _asks_for_noise(case: Case) -> bool:
    """Whether a fit got stuck above rounding error, with noise of unknown size.

    Or where noise of the given size may have left a little more than it should.
    """
    result, std = case.result, case.fit.noise_std
    if result.status is not Status.STALLED or not case.rank_settled or _at_rounding(case):
        return False
    if not case.evidence.is_tucker:
        return False
    if std is None or result.weights is not None:
        return True
    floor = noise_floor(case.problem, std, result.degrees_of_freedom)
    return bool(result.residual <= LITTLE_MORE * floor)


def _at_rounding(case: Case) -> bool:
    return bool(case.result.residual <= 100 * eps(case.problem.y))


# Rank


def larger_rank(case: Case) -> list[Finding]:
    """Claim: a larger rank predicts held-out measurements better, or none does.

    By 10 % and two standard errors. Fits of seven eighths of the measurements.
    """
    result, fit = case.result, case.fit
    if result.status is not Status.STALLED or fit.solver != "auto" or not case.evidence.is_tucker:
        return []
    if _at_rounding(case) or not fit.thorough:
        return []
    quietly = replace(fit, loss="squared", callbacks=())
    found = case.evidence.structure
    structured = found is None or found.excess > DOUBTFUL
    with interruptible() as interrupt:
        compared = compare_larger_rank(case.problem, result, quietly, by_mode=structured)
    if interrupt.asked:
        text = "The comparison with larger ranks was not finished."
        unfinished = Finding("comparison unfinished", text, {}, Status.INTERRUPTED)
        return [*compared.findings, unfinished]
    return [*compared.findings, *_judged(case, compared)]


def _judged(case: Case, compared: Comparison) -> list[Finding]:
    """What a comparison with larger ranks means for a fit that got stuck."""
    result, evidence = case.result, case.evidence
    given, score = result.rank, compared.score
    numbers = {"score": score, "best": compared.best, "rank": compared.rank}
    if compared.larger(given):
        text = f"Rank {compared.rank} predicts held-out measurements better."
        changes = {"rank": compared.rank}
        status = Status.RANK_TOO_SMALL
        return [Finding("larger rank", text, numbers, status, changes=changes)]
    if compared.clearly:
        text = (
            f"Another tensor of this rank predicts held-out measurements to {compared.best:.2g}, "
            f"this one to {score:.2g}."
        )
        status = Status.LOCAL_MINIMUM
        return [Finding("local minimum", text, numbers, status, changes={"seed": _next(case)})]
    structured = evidence.structure is not None and evidence.structure.excess > STRUCTURE
    noise = _asks_for_noise(case) and not structured and not evidence.uneven
    if score is not None and noise and score < POOR_FIT:
        text = "No larger rank predicts held-out measurements better: the residual is noise."
        return [Finding("verdict", text, numbers, Status.NOISE_FLOOR)]
    return []


def _next(case: Case) -> int:
    """Seed that was not tried yet."""
    seed = case.fit.seed
    return (seed[0] if isinstance(seed, tuple) else int(seed)) + 1


def approximated(case: Case) -> list[Finding]:
    """Claim: X predicts held-out measurements this well, be the residual noise or misfit.

    By cross-validation, where it cannot be told which: too few measurements for a larger rank, or
    a structure that no larger rank explains. Small residuals without structure are called noise.
    """
    evidence = case.evidence
    if case.result.status is Status.STALLED and not case.rank_settled:
        return _approximated_by_search(case)
    if not _asks_for_noise(case) or evidence.few or evidence.uneven:
        return []
    score, found = evidence.cross_validated, evidence.structure
    if not score < POOR_FIT or (case.known_score is None and _outlying(case, ALMOST_ALL)):
        return []
    doubtful = LIKE_NOISE if evidence.amplified else _limits_of_noise(case)[0]
    unstructured = found is not None and found.excess <= doubtful
    if unstructured and case.result.residual <= SMALL:
        text = f"The residual, {case.result.residual:.2g}, is small and has no structure: noise."
        return [Finding("verdict", text, {"score": score}, Status.NOISE_FLOOR)]
    if case.fit.solver != "auto" or evidence.amplified:
        return []
    text = (
        f"Held-out measurements are predicted to {score:.2g}; whether the residual is noise, or "
        "what no rank of this size fits, cannot be told."
    )
    changes = {"rank": None}
    return [Finding("approximated", text, {"score": score}, Status.APPROXIMATED, changes=changes)]


def _approximated_by_search(case: Case) -> list[Finding]:
    """A rank that predicts held-out measurements, where larger ones could not be tried."""
    score = case.score
    if score is None or not score < POOR_FIT or case.evidence.uneven or _at_rounding(case):
        return []
    if case.evidence.accuracy.noise > AMPLIFIED * score:
        return []
    text = f"Held-out measurements are predicted to {score:.2g}; larger ranks could not be tried."
    return [
        Finding("approximated", text, {"score": score}, Status.APPROXIMATED, changes=_more(case))
    ]


def stuck(case: Case) -> list[Finding]:
    """Claim: what nothing else explains is a local minimum, or too few measurements."""
    result, evidence = case.result, case.evidence
    if result.status is not Status.STALLED or case.fit.solver != "auto" or _at_rounding(case):
        return []
    if not evidence.is_tucker:
        return []
    lowest, starts, _ = evidence.agreement
    numbers = {"starts": starts, "lowest": lowest, "per_dof": evidence.per_dof}
    if evidence.few:
        text = f"There are too few measurements, {evidence.per_dof:.2g} per degree of freedom"
        if evidence.agreement.found_again(AGAIN_SHARE):
            text = f"{text}, to tell noise from a misfit."
            return [Finding("few", text, numbers, Status.UNDERDETERMINED, changes=_more(case))]
        text = f"{text}, and many local minima: {lowest} of {starts} starts led to this one."
        return [Finding("few", text, numbers, Status.LOCAL_MINIMUM, changes=_more(case))]
    if evidence.amplified or evidence.uneven:
        text = (
            "Some directions of X are hardly measured: whether the residual is noise, or what no "
            "rank of this size fits, cannot be told."
        )
        numbers |= {"noise": evidence.accuracy.noise, "score": evidence.cross_validated}
        return [Finding("hardly measured", text, numbers, Status.UNDERDETERMINED)]
    if _outlying(case, ALMOST_ALL):
        _, count, share = evidence.outliers
        text = (
            f"A few measurements, {count}, hold {share:.0%} of the squared residual: outliers, or "
            "a local minimum."
        )
        changes: dict[str, Any] = {"loss": "huber"}
        return [Finding("local minimum", text, numbers, Status.LOCAL_MINIMUM, changes=changes)]
    structured = evidence.structure is not None and evidence.structure.excess > STRUCTURE
    if structured and starts > 1 and lowest == starts:
        text = "The residual has structure that no tensor of this rank fits."
        status = Status.RANK_TOO_SMALL
        return [Finding("structure", text, numbers, status, changes={"rank": None})]
    text = (
        f"Little was fitted: the residual is {result.residual:.0%} of the measurements; the "
        "entries are in another order (shape, order), or noise is as large as the signal."
    )
    if evidence.cross_validated < POOR_FIT and case.scored is not None:
        text = (
            f"Held-out measurements should be predicted to {evidence.cross_validated:.2g}, and "
            f"another fit predicts them to {case.scored:.2g}."
        )
    changes = {"seed": _next(case)}
    return [Finding("local minimum", text, numbers, Status.LOCAL_MINIMUM, changes=changes)]


def _more(case: Case) -> dict[str, int]:
    """Number of measurements with which local minima are rare."""
    dof = case.result.degrees_of_freedom
    parts = case.problem.equations / max(case.problem.m, 1)
    return {"m": math.ceil(PLENTY * dof / max(parts, 1))}


def near_the_tolerance(case: Case) -> list[Finding]:
    """Claim: slightly different numbers would have led to convergence."""
    result, tol = case.result, case.fit.tol
    if result.success or not tol < result.residual <= NEAR_TOL * tol:
        return []
    text = f"The residual, {result.residual:.2g}, is close to tol = {tol:g}."
    numbers = {"residual": result.residual, "tol": tol}
    return [Finding("tolerance", text, numbers, borderline=True)]


def smaller_rank_suffices(case: Case) -> list[Finding]:
    """Claim: some directions of X are smaller than the expected error."""
    result = case.result
    fits = result.success and case.evidence.is_tucker and result.status is not Status.APPROXIMATED
    rank = smaller_rank(result) if fits else None
    if rank is None:
        return []
    text = f"Rank {rank} suffices: the rest of {result.rank} is smaller than the error."
    return [Finding("smaller rank", text, {"rank": rank}, changes={"rank": rank})]


# What the measurements determine


def of_the_operator(case: Case) -> list[Finding]:
    """Claim: what the operator itself knows: slices without samples, duplicates."""
    weights = case.problem.weights
    counting = None if weights is None else to_numpy(weights) > 0
    rank = case.result.rank if case.evidence.is_tucker else (1,) * len(case.problem.shape)
    return case.problem.A.diagnose(rank, counting)


def outliers(case: Case) -> list[Finding]:
    """Claim: some measurements are outliers, and Huber's loss does better. One pass.

    The kurtosis of the residuals is too large by six standard deviations, and residuals beyond
    four, by the median, have a quarter of the squares.
    """
    relevant = (Status.NOISE_FLOOR, Status.STALLED, Status.LOCAL_MINIMUM, Status.RANK_TOO_SMALL,
                Status.APPROXIMATED)  # fmt: skip
    if case.fit.loss != "squared" or case.result.status not in relevant or _at_rounding(case):
        return []
    if case.evidence.few:  # residuals of few measurements are not normal, whatever the noise is
        return []
    found = case.evidence.structure
    structured = found is None or found.excess > STRUCTURE
    if structured and not case.problem.A.traits.isotropic:  # a misfit is not normal either
        return []
    if not _outlying(case):
        return []
    excess, count, share = case.evidence.outliers
    text = f"{count} measurements seem to be outliers, with {share:.0%} of the squared residual."
    numbers = {"excess": excess, "count": count, "share": share}
    return [Finding("outliers", text, numbers, changes={"loss": "huber"})]


def _outlying(case: Case, least: float = OUTLIERS) -> bool:
    """Whether a few measurements hold such a share of the squared residual."""
    excess, _, share = case.evidence.outliers
    return excess >= KURTOSIS and share >= least


def near_rank_deficiency(case: Case) -> list[Finding]:
    """Claim: the design's smallest eigenvalue is close to rounding error."""
    accuracy = _known_accuracy(case)
    low, high = NEAR_ROUNDING
    if accuracy is None or not low < accuracy.margin < high:
        return []
    text = (
        f"The smallest eigenvalue of the tangent design is {accuracy.share:.0e} of the largest, "
        "close to rounding error."
    )
    numbers = {"margin": accuracy.margin, "share": accuracy.share}
    return [Finding("eigenvalue", text, numbers, borderline=True)]


def near_the_largest_error(case: Case) -> list[Finding]:
    """Claim: the error estimate is close to the largest that is trusted."""
    estimate = case.result.error_estimate
    if estimate is None or not HOPELESS / NEAR_ESTIMATE < estimate < HOPELESS * NEAR_ESTIMATE:
        return []
    text = f"The estimated error, {estimate:.0%}, is close to the limit of {HOPELESS:.0%}."
    return [Finding("error estimate", text, {"estimate": estimate}, borderline=True)]


def not_determined(case: Case) -> list[Finding]:
    """Claim: other tensors of this rank fit as well.

    The smallest eigenvalue of the tangent design is rounding error, there are no more equations
    than degrees of freedom, or slices have too few samples; or noise may have changed X by much.
    """
    result, status = case.result, Status.UNDERDETERMINED
    if any(f.kind in UNDETERMINED for f in result.findings):
        return [Finding("verdict", "Some slices have too few samples.", {}, status)]
    if not case.evidence.is_tucker:
        return []
    accuracy = _known_accuracy(case)
    different, dof = case.evidence.different, result.degrees_of_freedom
    if different <= dof < size(case.problem.shape):
        equations = int(case.problem.equations)
        which = f"{different} of {equations} equations are different"
        text = (
            f"{f'Only {which}' if different < equations else f'There are {equations} equations'}, "
            f"for {dof} degrees of freedom. Take other measurements, or a smaller rank."
        )
        numbers: dict[str, float] = {"different": different, "dof": dof}
        return [Finding("too few equations", text, numbers, status, changes=_more(case))]
    if accuracy is not None and not accuracy.determined:
        text = (
            "The measurements do not determine X: the tangent design is rank-deficient. Take more "
            "measurements, or a smaller rank."
        )
        numbers = {"margin": accuracy.margin}
        return [Finding("rank-deficient design", text, numbers, status, changes=_more(case))]
    open_to = 0.0 if accuracy is None else float(result.residual) * accuracy.worst
    if result.status is Status.CONVERGED and open_to > HOPELESS:
        text = (
            "Some directions of X are hardly measured: tensors that differ by "
            f"{min(open_to, 1.0):.0%} fit to the residual reached, {result.residual:.1e}. Take "
            "more measurements, or a smaller tol."
        )
        return [Finding("hardly measured", text, {"open": open_to}, status)]
    estimate, interval = result.error_estimate, result.error_interval
    doubtful = case.evidence.few or (accuracy is not None and accuracy.directions < ALONE)
    largest = FEW_ERROR if doubtful and result.status is Status.NOISE_FLOOR else LARGEST
    upper = largest if interval is None else interval[1]
    if result.status is Status.APPROXIMATED and estimate is not None and estimate <= POOR_FIT:
        return []
    if estimate is None or (estimate <= HOPELESS and upper <= largest):
        return []
    text = (
        f"The residual may have changed X by {estimate:.0%} (up to {upper:.0%}): take more "
        "measurements."
    )
    numbers = {"estimate": estimate, "upper": upper}
    return [Finding("error estimate", text, numbers, status, changes=_more(case))]


def _known_accuracy(case: Case) -> Any:
    """Accuracy that was computed already; None if there was no time for it."""
    return case.evidence.__dict__.get("accuracy")


# The checks, in their order, and what is not done where there is no time for one
CHECKS_OF_THE_FIT: dict[Check, str] = {
    out_of_starts: "the count of the starts",
    noise_of_the_given_size: "the comparison with the noise floor",
    noise_of_unknown_size: "the check whether the residual is noise",
    larger_rank: "the comparison with larger ranks",
    approximated: "the check whether held-out measurements are predicted",
    format_approximates: "the check whether held-out measurements are predicted",
}
CHECKS_OF_THE_MEASUREMENTS: dict[Check, str] = {
    stuck: "the check for local minima",
    outliers: "the check for outliers",
    near_the_tolerance: "the comparison with the tolerance",
    of_the_operator: "the check for slices without samples",
}
CHECKS_OF_A_SUCCESS: dict[Check, str] = {
    format_not_determined: "the check whether the measurements determine X",
    near_rank_deficiency: "the check of the smallest eigenvalue",
    near_the_largest_error: "the comparison with the largest error",
    not_determined: "the check whether the measurements determine X",
    smaller_rank_suffices: "the comparison with smaller ranks",
}
