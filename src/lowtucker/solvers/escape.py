"""Leave a plateau: a step along the gradient itself, not along its tangent part."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from lowtucker._array import Array
from lowtucker._array.readings import side_by_side
from lowtucker.problem import Problem
from lowtucker.solvers.base import Memory
from lowtucker.solvers.conjugate import Search
from lowtucker.solvers.models import dot, some_of
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.rank import attainable_rank
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Patient", "after_steps", "escaped"]

# A step that lowers the residual by a smaller share is that of a plateau; by less than the second,
# where no escape was found either, that of a minimum
PLATEAU, MINIMUM = 0.1, 1e-4
# Share by which an escape must lower the residual: it costs as much as a few steps, which may go on
# slowly where the design is ill-conditioned
GAIN = 0.2
# Steps of conjugate gradients at a smaller rank
STEPS = 5


@dataclass(frozen=True)
class Patient(Memory):
    """Memory of a solver that leaves plateaus: NumPy arrays, one entry for each problem.

    Attributes
    ----------
    wait : array of int
        Steps until the next attempt.
    failed : array of int
        Attempts in a row that found nothing better; 2**failed steps pass before the next one.
    stuck : array of bool
        Whether it is at a minimum: a step and an attempt found nothing better.
    """

    wait: Any
    failed: Any
    stuck: Any

    @staticmethod
    def of(count: int) -> Patient:
        """Memory of so many problems at their start."""
        zero = np.zeros(count, dtype=np.int64)
        return Patient(zero, zero, zero > 0)


Kept = TypeVar("Kept", bound=Patient)


def after_steps(
    memory: Kept,
    levels: tuple[Any, Any],
    problem: Problem,
    X: TuckerTensor,
    *,
    residual: Array | None = None,
    going: Any = True,
) -> tuple[Kept, list[TuckerTensor | None]]:
    """Try to leave plateaus, where the last steps lowered the relative residuals by little.

    ``levels`` are these residuals before and after the steps. Returns the memory, with when to try
    again, and for every problem what was found. See :func:`escaped` for the cost; one pass more
    without the residual at X; none while the memory says to wait, or a problem is not ``going``.
    Attempts of a batch are made one after the other.
    """
    before, now = levels
    wait, failed = np.maximum(0, memory.wait - 1), memory.failed.copy()
    still = ((1 - MINIMUM) * before > 0) & ((1 - MINIMUM) * before < now)
    stuck = still & (failed > 0)
    plateau = ((1 - PLATEAU) * before > 0) & ((1 - PLATEAU) * before < now)
    outcome: list[TuckerTensor | None] = [None] * len(wait)
    for k in side_by_side(np.flatnonzero(plateau & (wait == 0) & going).tolist()):
        one = problem.trial(k)
        left = one.residual(X.trial(k)) if residual is None else some_of(residual, k)[: one.m]
        found = outcome[k] = escaped(one, X.trial(k), left)
        failed[k] = failed[k] + 1 if found is None else 0
        wait[k], stuck[k] = 2 ** failed[k], still[k] and failed[k] > 0
    return replace(memory, wait=wait, failed=failed, stuck=stuck), outcome


def escaped(problem: Problem, X: TuckerTensor, residual: Array) -> TuckerTensor | None:
    r"""Look for a tensor of lower residual by a step along the gradient, out of the tangent space.

    The best tensor of a smaller rank is a saddle of the objective at rank r, and a nearly
    stationary point: what it misses, :math:`\sigma\, u \circ v \circ w` with new directions in
    every mode, is orthogonal to the tangent space. Steps in the tangent space, or in one factor,
    take dozens of passes to find it, the more the larger the condition number. The gradient itself
    shows it at once:

    .. math:: X^+ = H_r(X + \alpha S), \quad S = H_r(\mathcal{A}^*(W r)), \quad
        \alpha = \langle W r, \mathcal{A}(S) \rangle / \|\mathcal{A}(S)\|_W^2

    with the operator's own ``spectral_start`` for S. Where that does not lower the residual by
    20 %, a direction of X that has fitted noise may outweigh the one that was not found yet, as it
    does for sampled entries. Where rows are not isotropic X is then fitted anew without its weakest
    directions, by conjugate gradients at a rank that is smaller by one in every mode, and S has
    rank one. Cost: 3 passes, and 14 for the second attempt (20 where a gradient takes two).

    Measured on 100^3 tensors of rank 5 with condition number 100, 10 % of the entries known: ALS
    takes 9 sweeps with it and 60 to 75 without, RCG 13 to 20 steps where it stalls without.
    """
    left = float(problem.weighted_norm(residual))
    found = _stepped(problem, X, residual, X.rank)
    if found is None:
        return None
    found = hosvd(found, X.rank, warn=False)
    if _is_lower(problem, found, left):
        return found
    found = None if problem.A.traits.isotropic else _replaced(problem, X)
    return found if found is not None and _is_lower(problem, found, left) else None


def _replaced(problem: Problem, X: TuckerTensor) -> TuckerTensor | None:
    """X with a direction of the gradient instead of its weakest ones.

    None at rank one, and where the ranks are so unequal that more than one would be lost.
    """
    rank = tuple(max(1, r - 1) for r in X.rank)
    if rank == X.rank or attainable_rank(rank) != rank:
        return None
    search = Search.at(problem, hosvd(X, rank, warn=False))
    for _ in range(STEPS):
        search, broken = search.step(problem)
        if broken:
            return None
    found = _stepped(problem, search.T.X, search.residual, (1,) * len(rank))
    return None if found is None else hosvd(found, X.rank, warn=False)


def _stepped(
    problem: Problem, X: TuckerTensor, residual: Array, rank: tuple[int, ...]
) -> TuckerTensor | None:
    """X plus a multiple of the gradient, truncated to a rank; None at its zeros. Two passes."""
    weighted = residual if problem.weights is None else problem.weights * residual
    S = problem.A.spectral_start(weighted, rank)
    along = problem.A.forward(S)
    seen = float(problem.weighted_norm(along))
    if not 0 < seen < math.inf:
        return None
    return X + S * float(dot(weighted, along) / seen / seen)


def _is_lower(problem: Problem, X: TuckerTensor, left: float) -> bool:
    """Whether the residual of X is clearly lower than a norm. One pass."""
    return float(problem.weighted_norm(problem.residual(X))) < (1 - GAIN) * left
