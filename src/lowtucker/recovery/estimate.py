"""The error of a success: by the linear model at X, or by held-out measurements."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from lowtucker._array.clock import TimeUp
from lowtucker.limits import UNSEEN
from lowtucker.recovery.accuracy import Accuracy
from lowtucker.recovery.case import Case
from lowtucker.recovery.evidence import Evidence
from lowtucker.recovery.holdout import by_held_out
from lowtucker.status import Status
from lowtucker.tensor.products import norm
from lowtucker.uncertainty.information import Information, Noise, information_at, sigma_of

__all__ = ["with_estimate"]


def with_estimate(case: Case) -> Case:
    """Case of a success with an estimate of its error, and an interval."""
    result, evidence = case.result, case.evidence
    if not evidence.is_tucker and result.status is Status.APPROXIMATED and case.another:
        # the distance of another fit counts as well: with few held-out measurements. These have
        # noise of their own: of 75 errors at 5 % noise 26 were below 0.4 times the score, 0 above
        _, high = by_held_out(score := max(case.another))["error_interval"]
        return case.now(replace(result, error_estimate=score, error_interval=(0.1 * score, high)))
    if not evidence.is_tucker or not float(result.X.norm()):
        return case
    try:
        with case.fit.clock.watched():
            accuracy = evidence.accuracy
    except TimeUp:
        case.out_of_time("the check whether the measurements determine X")
        return case
    except np.linalg.LinAlgError:  # it cannot be told
        return case
    if not accuracy.determined:
        return case.now(replace(result, error_estimate=None, error_interval=None))
    accuracy = _of_huber(case, accuracy)
    known = case.fit.noise_std is not None and result.weights is None
    if known and result.status is Status.NOISE_FLOOR:
        accuracy = accuracy.with_sigma(sigma_of(case.problem, float(case.fit.noise_std or 0.0)))
    estimate, (low, high) = accuracy.error, accuracy.interval
    if result.status is Status.APPROXIMATED:
        # held-out measurements have noise as well: an upper bound, if rows are isotropic
        found = [f.numbers["score"] for f in result.findings if f.kind == "approximated"]
        score = found[-1] if found else evidence.cross_validated
        estimate, high = max(score, estimate), max(1.3 * score, high)
    elif result.status is Status.NOISE_FLOOR and not known:
        more = _more_than_fitted(case)
        estimate, high = more * estimate, math.hypot(more * high, _unseen(evidence))
    return case.now(replace(result, error_estimate=estimate, error_interval=(low, high)))


def _of_huber(case: Case, accuracy: Accuracy) -> Accuracy:
    """Accuracy by the sandwich covariance of Huber's loss; as it is for the squared loss."""
    given, result = case.evidence.given, case.result
    if given is None:
        return accuracy
    try:
        with case.fit.clock.watched():
            found = information_at(given, result.X, Noise(huber=result.weights), case.fit.seed)
    except (TimeUp, np.linalg.LinAlgError):
        return accuracy
    if not isinstance(found, Information) or not found.determined:
        return accuracy
    return replace(accuracy, noise=found.sigma * float(norm(found.root)) / float(result.X.norm()))


def _more_than_fitted(case: Case) -> float:
    """How much larger noise is than few measurements say, by held-out ones: few are overfitted.

    1 where no measurements were held out.
    """
    score = case.scored if case.evidence.few else None
    return max(1.0, score / case.evidence.cross_validated) if score is not None else 1.0


def _unseen(evidence: Evidence) -> float:
    """Size of a misfit that the test of noise does not see; all of it where it was not made."""
    found = evidence.structure
    visible = 0.0 if evidence.few or found is None else found.visible
    return min(1.0, UNSEEN / visible if visible else 1.0) * evidence.cross_validated
