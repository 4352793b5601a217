"""Gains: how strongly A measures directions of X, which held-out measurements do not show."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from lowtucker._array import Array, is_complex, like, size, to_numpy
from lowtucker._array.clock import TimeUp
from lowtucker._array.linalg import eigvalsh
from lowtucker._array.random import Stream, as_seed, generator
from lowtucker.limits import PLENTY, POOR_FIT
from lowtucker.problem import Problem
from lowtucker.recovery.accuracy import COSTLY
from lowtucker.recovery.fit import Fit
from lowtucker.recovery.holdout import by_held_out
from lowtucker.recovery.precondition import rows_at_hand, weighted_equations
from lowtucker.recovery.rank import rank_above
from lowtucker.recovery.soft import fits_in_memory
from lowtucker.run.result import Result
from lowtucker.solvers.models import Model
from lowtucker.solvers.rows import normal_numbers
from lowtucker.status import Finding, Status
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.rank import degrees_of_freedom, spectra
from lowtucker.tensor.unfolding import unfold
from lowtucker.uncertainty.information import gram_is_affordable

__all__ = ["gains_of_entries", "gains_of_modes", "gains_of_tangents", "unless_unseen"]

NumPyArray = np.ndarray[Any, Any]
# Errors in units of held-out ones above which those are misleading
CLEARLY = 1.2
# A gain that counts as zero
TINY = 1e-300
# Random adjoints that give the gains of a mode: columns of their unfoldings per row, and limits
COLUMNS, FEWEST, MOST = 20, 4, 64
# The least share of X that its leading part leaves out, where that must have a smaller rank
SHARE = 1e-3


def unless_unseen(problem: Problem, fit: Fit, result: Result) -> Result:
    r"""Result with the error of directions that A hardly measures; no success where it is large.

    Held-out measurements do not show what no measurement shows. With gains :math:`\lambda_i` of
    the directions of a mode (:func:`gains_of_modes`), a relative residual :math:`\rho` and a
    held-out error s, an X that has an equal part in all directions has the error

    .. math:: \Big( \frac{1}{n} \sum_i \min(1, \max(s^2, \rho^2 / \lambda_i)) \Big)^{1/2}

    of which the largest of all modes is taken. The same for the tangent space at the leading part
    of X (:func:`gains_of_tangents`), and for all N entries where there are as many equations
    (:func:`gains_of_entries`). Sampled entries have checks of their own.

    Notes
    -----
    Six passes, up to 66 for small tensors; of functions also a forward for each degree of freedom
    of the leading part, and, with at least N equations for at most 1000 entries, N forwards. Where
    the time of the call is up, nothing is changed.
    """
    held = result.held_out if result.status is Status.APPROXIMATED else None
    if held is None or problem.as_entries is not None or fit.loss != "squared":
        return result
    if not fits_in_memory(problem) or fit.time_is_up:
        return result
    try:
        with fit.clock.watched():
            error = _by_gains(problem, fit, result, held)
    except (TimeUp, np.linalg.LinAlgError):  # it cannot be told
        return result
    if error <= max(POOR_FIT, CLEARLY * held):
        return replace(result, **by_held_out(error))
    text = (
        f"Some directions of X are hardly measured: an error of {error:.0%} is to be "
        f"expected, though held-out measurements are predicted to {held:.2g}."
    )
    found = Finding("hardly measured", text, {"estimate": error}, Status.UNDERDETERMINED)
    return replace(result.found(found), error_estimate=None, error_interval=None)


def _by_gains(problem: Problem, fit: Fit, result: Result, held: float) -> float:
    """Error by the gains of modes, of the tangent space at X, and of all tensors if known."""
    known = [
        *gains_of_modes(problem, as_seed(fit.seed)),
        gains_of_tangents(problem, result.X, held),
        gains_of_entries(problem),
    ]
    squares, residual = [], float(to_numpy(problem.relative_residual(result.X)))
    for gains in known:
        if gains is not None:
            each = residual**2 / np.maximum(gains, TINY)
            squares.append(float(np.mean(np.minimum(np.maximum(each, held**2), 1.0))))
    return math.sqrt(max(squares))


def gains_of_modes(problem: Problem, seed: tuple[int, int]) -> list[NumPyArray]:
    r"""How strongly A measures the directions of each mode, weakest first, in units of the mean.

    The eigenvalues of :math:`G_k = \sum_j (A_j)_{(k)} (A_j)_{(k)}^*`, over their mean: all about 1
    where rows are isotropic, 0 for a direction of mode k in which A is blind. By 4 to 64 random
    adjoints, as many as needed to estimate :math:`G_k` to some 20 %.
    """
    shape, rng = problem.shape, generator(seed, Stream.PROBE)
    number = min(MOST, max(FEWEST, math.ceil(COLUMNS * max(shape) ** 2 / size(shape))))
    grams = [np.zeros((n, n)) for n in shape]
    roots = None if problem.weights is None else np.sqrt(to_numpy(problem.weights))
    for _ in range(number):
        v = normal_numbers(rng, (problem.m,), is_complex(problem.y))
        v = v if roots is None else roots * v
        back = problem.A.adjoint(like(v, problem.y, problem.y.dtype))
        for k in range(len(shape)):
            wide = to_numpy(unfold(back, k))
            grams[k] = grams[k] + wide @ wide.conj().T
    return [_gains(gram) for gram in grams]


def gains_of_tangents(problem: Problem, X: Any, share: float) -> NumPyArray | None:
    """How strongly A measures the tangent directions at the leading part of X, weakest first.

    In units of their mean. The leading part leaves out directions that are together smaller than a
    share of X, more of them until there are 2.8 equations per degree of freedom: A sees tangent
    directions then unless it is blind. None where even a tensor of rank one has more, or normal
    equations are not affordable. One pass, or a forward for each degree of freedom.
    """
    full = like(to_numpy(X.full()), problem.y, problem.tensor_dtype)
    values = spectra(full)
    while share < 1:
        rank = rank_above(values, share)
        if PLENTY * degrees_of_freedom(problem.shape, rank) <= problem.equations:
            break
        share = max(2 * share, SHARE)
    else:
        return None
    leading = hosvd(full, rank)
    if not gram_is_affordable(problem, leading, COSTLY):
        return None
    return _gains(Model.at(problem, leading).equations.gram)


def gains_of_entries(problem: Problem) -> NumPyArray | None:
    r"""How strongly A measures all directions of tensors, weakest first, in units of the mean.

    The eigenvalues of :math:`A^* W A`, over their mean. None where there are fewer equations than
    entries, so that A is blind in some directions in any case, or no rows can be had.

    Notes
    -----
    One pass over a matrix, N forwards of small tensors; :math:`m N^2` flops.
    """
    m, N = problem.m, size(problem.shape)
    rows = rows_at_hand(problem) if problem.equations >= N else None
    if rows is None:
        return None
    B, _ = weighted_equations(problem, rows().reshape(m, N))
    return _gains(B.conj().T @ B)


def _gains(gram: Array) -> NumPyArray:
    """Eigenvalues of a gram matrix over their mean, weakest first."""
    found = np.maximum(to_numpy(eigvalsh(gram)), 0.0)
    return np.asarray(found / (np.mean(found) or 1.0))
