"""Verdicts on tensors of other formats than Tucker, which have no tangent design."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker._array import Array, eps, is_complex, like, namespace, size, to_numpy
from lowtucker._array.linalg import svd, svdvals
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.limits import AGREES, BLIND, HOPELESS, LEAST_HELD
from lowtucker.problem import Problem
from lowtucker.recovery.case import HELD, Case
from lowtucker.status import Finding, Status
from lowtucker.thresholding import SparseTensor, Thresholding

__all__ = ["format_approximates", "format_not_determined", "smallest_gain"]

# Numbers of a basis of the tangent space that may be formed, and more differences than dimensions
NUMBERS, MORE = 4_000_000, 8
# Length of a difference, in units of X, as a power of machine epsilon: 5e-7 in double precision;
# and of entries that count as found, of the largest
SHORT, FOUND = 0.4, 1e-5


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
    held = int(HELD * case.problem.equations)
    if another is None or max(another) >= HOPELESS or held < LEAST_HELD:
        return []
    text = (
        f"Held-out measurements are predicted to {another[0]:.2g}: the residual is noise, or what "
        "no tensor of this format fits."
    )
    numbers = {"score": max(another), "distance": another[1]}
    return [Finding("approximated", text, numbers, Status.APPROXIMATED)]


def format_not_determined(case: Case) -> list[Finding]:
    """Claim: other tensors of the format have the same measurements.

    As many measurements as degrees of freedom are fitted by many. Near X, to first order, by
    differences of tensors of the format, as many as there are degrees of freedom; small problems
    only. Entries of a sparse tensor that nothing measures are zero only if all s were found.
    """
    result, fit, X = case.result, case.fit, case.result.X
    if case.evidence.is_tucker or result.rank is None or not float(X.norm()):
        return []
    dof = result.degrees_of_freedom
    if case.problem.equations <= dof:
        text = f"As many measurements as degrees of freedom, {dof}, are fitted by many tensors."
        return [Finding("not determined", text, {"dof": dof}, Status.UNDERDETERMINED)]
    if isinstance(X, SparseTensor) and (seen := len(X.support(FOUND))) < X.rank:
        blind = _unmeasured(case.problem, fit.seed)
        if blind:
            text = (
                f"Only {seen} of {X.rank} were found, and {blind} entries are not measured: the "
                "others may be there."
            )
            return [Finding("not determined", text, {"blind": blind}, Status.UNDERDETERMINED)]
    phases = fit.solver if isinstance(fit.solver, list | tuple) else [fit.solver]
    H: Any = getattr(phases[-1], "thresholding", None)
    if not isinstance(H, Thresholding) or isinstance(H, type):
        return []
    gain = smallest_gain(case.problem, X, H.for_shape(case.problem.shape), fit.seed)
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
    Cost: dof thresholdings, 2 dof forwards (two passes over a matrix), and dof^2 N flops.
    """
    dof = H.degrees_of_freedom(problem.shape)
    count = dof + MORE
    if count * size(problem.shape) > NUMBERS:
        return None
    full, rng = X.full(), generator(as_seed(seed), Stream.PROBE)
    G = like(rng.standard_normal((count, *problem.shape)), full, full.dtype)
    length = eps(full) ** SHORT * float(X.norm()) / size(problem.shape) ** 0.5
    moved = namespace(full).stack([H(full + length * G[k, ...]).full() for k in range(count)])
    flat = namespace(full).reshape(moved - full, (count, size(problem.shape)))
    _, s, basis = svd(flat)
    dimensions = min(dof, _above(s, 1e-4))
    tangent = namespace(full).reshape(basis[:dimensions, :], (dimensions, *problem.shape))
    if _rank(_measured(problem, G)) <= dof:  # whatever was fitted
        return 0.0
    return _ratio(_measured(problem, tangent))


def _measured(problem: Problem, tensors: Array) -> Array:
    """Weighted measurements of several tensors, as rows."""
    rows = problem.A.forward(tensors)
    rows = rows if problem.weights is None else rows * namespace(rows).sqrt(problem.weights)
    if not is_complex(rows) or is_complex(tensors):
        return rows
    xp = namespace(rows)  # two real equations each
    return xp.concat([xp.real(rows), xp.imag(rows)], axis=-1)


def _unmeasured(problem: Problem, seed: Seed) -> int:
    """Count the entries that no measurement of positive weight depends on, by two adjoints."""
    rng = generator(as_seed(seed), Stream.PROBE)
    seen = np.zeros(problem.shape)
    for _ in range(2):
        v = like(rng.standard_normal(problem.m), problem.y, problem.y.dtype)
        back = problem.A.adjoint(v if problem.weights is None else problem.weights * v)
        seen = np.maximum(seen, np.abs(to_numpy(back)))
    return int(np.sum(seen <= 100 * eps(problem.y) * seen.max()))


def _above(values: Array, share: float) -> int:
    """Count the singular values above a share of the largest."""
    sizes = to_numpy(values)
    return int(np.sum(sizes > share * sizes[0]))


def _rank(rows: Array) -> int:
    """Numerical rank."""
    return _above(svdvals(rows), 1e-9 if eps(rows) < 1e-10 else 1e-4)


def _ratio(rows: Array) -> float:
    values = to_numpy(svdvals(rows))
    few = rows.shape[0] > rows.shape[1]  # than measurements
    return 0.0 if few or not values[0] > 0 else float(values[-1] / values[0])
