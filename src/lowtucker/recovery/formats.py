"""Verdicts on tensors of other formats than Tucker, which have no tangent design."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker._array import Array, eps, like, namespace, size, to_numpy
from lowtucker._array.linalg import svd, svdvals
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.limits import AGREES, BLIND, HOPELESS
from lowtucker.problem import Problem
from lowtucker.recovery.case import Case
from lowtucker.status import Finding, Status
from lowtucker.thresholding import Thresholding

__all__ = ["format_approximates", "format_not_determined", "smallest_gain"]

# Numbers of a basis of the tangent space that may be formed, and more differences than dimensions
NUMBERS, MORE = 4_000_000, 8
# Length of a difference, in units of X
SHORT = 1e-6


def format_approximates(case: Case) -> list[Finding]:
    """Claim: X predicts held-out measurements as well as it fits the others.

    By another fit, to seven eighths of the measurements, from its own start, which must end near X.
    Whether the residual is noise or misfit cannot be told without a tangent space.
    """
    result, evidence = case.result, case.evidence
    if evidence.is_tucker or result.rank is None or result.status is not Status.STALLED:
        return []
    at_rounding = result.residual <= 100 * eps(case.problem.y)
    if at_rounding or not evidence.cross_validated < HOPELESS:
        return []
    another = case.another if case.predicts(AGREES) else None
    if another is None or max(another) >= HOPELESS:
        return []
    text = (
        f"Held-out measurements are predicted to {another[0]:.2g}: the residual is noise, or what "
        "no tensor of this format fits."
    )
    numbers = {"score": max(another), "distance": another[1]}
    return [Finding("approximated", text, numbers, Status.APPROXIMATED)]


def format_not_determined(case: Case) -> list[Finding]:
    """Claim: other tensors of the format near X have the same measurements, to first order.

    By differences of tensors of the format, as many as there are degrees of freedom; small
    problems only.
    """
    result, fit = case.result, case.fit
    if case.evidence.is_tucker or result.rank is None or not float(result.X.norm()):
        return []
    phases = fit.solver if isinstance(fit.solver, list | tuple) else [fit.solver]
    H: Any = getattr(phases[-1], "thresholding", None)
    if not isinstance(H, Thresholding) or isinstance(H, type):
        return []
    gain = smallest_gain(case.problem, result.X, H.for_shape(case.problem.shape), fit.seed)
    if gain is None or gain >= BLIND:
        return []
    text = (
        "The measurements do not determine X: they change by a share of "
        f"{gain:.1g} only along some tensors of this format."
    )
    return [Finding("not determined", text, {"gain": gain}, Status.UNDERDETERMINED)]


def smallest_gain(problem: Problem, X: Any, H: Any, seed: Seed) -> float | None:
    r"""Smallest singular value of A on the tangent space at X, relative to the largest.

    The space is spanned by differences :math:`H(X + \epsilon G) - X` for random G. None where a
    basis of it would have more than 4 million numbers.

    Notes
    -----
    Cost: dof thresholdings and forwards, and dof^2 N flops.
    """
    dof = H.degrees_of_freedom(problem.shape)
    count = dof + MORE
    if count * size(problem.shape) > NUMBERS:
        return None
    full, rng = X.full(), generator(as_seed(seed), Stream.PROBE)
    G = like(rng.standard_normal((count, *problem.shape)), full, full.dtype)
    length = SHORT * float(X.norm()) / size(problem.shape) ** 0.5
    moved = namespace(full).stack([H(full + length * G[k, ...]).full() for k in range(count)])
    flat = namespace(full).reshape(moved - full, (count, size(problem.shape)))
    _, s, basis = svd(flat)
    dimensions = min(dof, int(np.sum(to_numpy(s) > 1e-4 * float(s[0]))))
    tangent = namespace(full).reshape(basis[:dimensions, :], (dimensions, *problem.shape))
    return _ratio(_measured(problem, tangent))


def _measured(problem: Problem, tensors: Array) -> Array:
    """Weighted measurements of several tensors, as rows."""
    xp = namespace(tensors)
    rows = xp.stack([problem.A.forward(tensors[k, ...]) for k in range(tensors.shape[0])])
    return rows if problem.weights is None else rows * xp.sqrt(problem.weights)


def _ratio(rows: Array) -> float:
    values = to_numpy(svdvals(rows))
    few = rows.shape[0] > rows.shape[1]  # than measurements
    return 0.0 if few or not values[0] > 0 else float(values[-1] / values[0])
