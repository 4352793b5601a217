"""Gradients of a block other than the plain one: trimmed, and row by row.

S. Suryanarayanan and E. Rebrova, "On trimming tensor-structured measurements and efficient low-rank
tensor recovery", arXiv:2502.02843: the methods that they call TrimTIHT and KaczTIHT.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker._array import Array, as_number, like, per_trial, real_dtype, to_numpy
from lowtucker.problem import Problem
from lowtucker.solvers.sampling import Draw

__all__ = ["check_trim", "swept", "trimmed", "trimmed_gradient"]


def check_trim(trim: Any) -> None:
    """Check the share of the measurements that a step leaves out."""
    if trim is not None and as_number(trim, "trim", positive=True) >= 1:
        raise ValueError(
            f"trim must be a share of the measurements, below 1, got {trim:g}. Try trim=0.05."
        )


def trimmed(block: Problem, residual: Array, share: float) -> Problem:
    r"""Block without the measurements that fit worst: the trimmed objective.

    .. math::
        f_i^{trim}(X) = \frac{1}{2 (b - k)} \sum_{j \in K} w_j |y_j - \langle A_j, X \rangle|^2,
        \quad k = \mathrm{round}(share\; b)

    with K all rows but the k largest :math:`w_j |y_j - \langle A_j, X \rangle|^2`. It is the block
    with other weights, :math:`w_j b / (b - k)` in K and else 0; b counts positive weights only.

    Costs a sort of b numbers, and no pass.
    """
    weights = block.weights
    sizes, live = np.abs(to_numpy(residual)), to_numpy(block.count)
    if weights is not None:
        w = to_numpy(weights)
        sizes = np.sqrt(w) * sizes
        live = np.minimum(np.count_nonzero(w > 0, axis=-1), live)
    k = np.minimum(np.rint(share * live), live - 1)
    # places from the largest on; NaN last, so that it stays, and the run ends as diverged
    places = np.argsort(np.argsort(-sizes, axis=-1, kind="stable"), axis=-1)
    factors = (places >= k[..., None]) * (live / (live - k))[..., None]
    kept = like(factors, residual, real_dtype(residual))
    return Problem(
        block.A,
        block.y,
        kept if weights is None else weights * kept,
        _trusted=True,
        _known_dtype=block.__dict__.get("tensor_dtype"),
    )


def trimmed_gradient(block: Problem, X: Array, share: float) -> tuple[Problem, Array, Array]:
    """Trimmed block, residual of all its measurements, gradient of its objective. Two passes."""
    residual = block.y - block.A.forward(X)
    block = trimmed(block, residual, share)
    gradient = block.A.adjoint(block.weights * residual)
    return block, residual, gradient * per_trial(-1.0 / block.count, gradient)


def swept(problem: Problem, draw: Draw, X: Array, step: Any) -> Array:
    r"""Go through the rows of a draw one after the other: a relaxed Kaczmarz sweep.

    .. math:: X \leftarrow X + \frac{\mu}{b} v_j w_j A_j (y_j - \langle A_j, X \rangle)

    with the draw's row weights :math:`v_j`. One pass over its b rows, in b calls of the operator.

    Parameters
    ----------
    problem : Problem
    draw : Draw
        With row weights.
    X : array, shape (*batch, n_1, ..., n_d)
    step : float or array (*batch,)
    """
    each = isinstance(draw.rows, tuple)
    order, weights = np.asarray(draw.rows), np.asarray(draw.row_weights)
    lengths = np.asarray(step)[..., None] * weights / order.shape[-1]
    dtype = real_dtype(X)
    with np.errstate(over="ignore", invalid="ignore"):  # the run reports divergence
        for i in range(order.shape[-1]):
            at = order[..., i]
            rows = tuple(slice(j, j + 1) for j in at.tolist()) if each else slice(at, at + 1)
            gradient = problem.trusted_block(rows).residual_and_gradient(X)[1]
            X = X - per_trial(like(lengths[..., i], X, dtype), X) * gradient
    return X
