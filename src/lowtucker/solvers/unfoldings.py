"""Unfoldings of batches along any set of modes: singular value shrinkage and nuclear norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from lowtucker._array import Array, adjoint, namespace, reshaped, size, to_numpy
from lowtucker._array.linalg import eigh, svdvals
from lowtucker.tensor.rank import attainable_rank, degrees_of_freedom

__all__ = [
    "nearest_to_square",
    "numerical_freedom",
    "shrunk_unfoldings",
    "sum_of_nuclear_norms",
    "unfolded",
]

NumPyArray = np.ndarray[Any, Any]


def nearest_to_square(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Modes whose product is nearest to that of the others; the first mode is one of them."""
    others, total = range(1, len(shape)), math.log(size(shape))
    subsets = ((0, *some) for count in range(len(shape)) for some in combinations(others, count))

    def excess(rows: tuple[int, ...]) -> float:
        return round(abs(2 * math.log(size([shape[k] for k in rows])) - total), 9)

    return min(subsets, key=excess)


def _order(X: Array, rows: tuple[int, ...]) -> tuple[int, ...]:
    """Axes of a batch in the order of an unfolding."""
    rest = [k + 1 for k in range(X.ndim - 1) if k not in rows]
    return (0, *(k + 1 for k in rows), *rest)


def unfolded(X: Array, rows: tuple[int, ...]) -> Array:
    """Unfold a batch, shape (batch, product of the rows, product of the rest)."""
    height = size([X.shape[k + 1] for k in rows])
    moved = namespace(X).permute_dims(X, _order(X, rows))
    return reshaped(moved, (X.shape[0], height, size(X.shape[1:]) // height))


def _folded(matrix: Array, like_this: Array, rows: tuple[int, ...]) -> Array:
    """Fold what :func:`unfolded` unfolded."""
    order = _order(like_this, rows)
    moved = reshaped(matrix, tuple(like_this.shape[k] for k in order))
    return namespace(moved).permute_dims(moved, tuple(np.argsort(order).tolist()))


def shrunk_unfoldings(
    points: Array, tau: Array, splits: Sequence[tuple[int, ...]]
) -> tuple[Array, list[Array]]:
    """Shrink the singular values of every unfolding of its own copy; also what they are then."""
    xp = namespace(points)
    shrunk, spectra = [], []
    for k, rows in enumerate(splits):
        X = points[:, k, ...]
        M = unfolded(X, rows)
        tall = M.shape[1] > M.shape[2]
        values, U = eigh(adjoint(M) @ M if tall else M @ adjoint(M))
        roots = xp.sqrt(xp.maximum(values, 0 * values))
        kept = roots > tau[:, None]
        f = xp.where(kept, 1 - tau[:, None] / xp.where(kept, roots, xp.ones_like(roots)), 0 * roots)
        filters = (U * xp.astype(f, U.dtype, copy=False)[:, None, :]) @ adjoint(U)
        shrunk.append(_folded(M @ filters if tall else filters @ M, X, rows))
        spectra.append(f * roots)
    return xp.stack(shrunk, axis=1), spectra


def sum_of_nuclear_norms(X: Array, splits: Sequence[tuple[int, ...]]) -> Array:
    """Sum of the nuclear norms of the unfoldings, shape (batch,)."""
    xp = namespace(X)
    return sum((xp.sum(svdvals(unfolded(X, rows)), axis=-1) for rows in splits), start=0.0)


def numerical_freedom(
    spectra: Sequence[Array],
    level: NumPyArray,
    shape: tuple[int, ...],
    splits: Sequence[tuple[int, ...]],
) -> NumPyArray:
    """Degrees of freedom of tensors whose unfoldings have such singular values, for each problem.

    Those count that are above a level, relative to the largest: what noise and the gap leave open.
    """
    values = [np.asarray(to_numpy(x), dtype=np.float64) for x in spectra]
    ranks = np.stack([np.sum(x > level[:, None] * x[:, -1:], axis=-1) for x in values], axis=-1)
    if len(splits) == len(shape):
        each = [attainable_rank(tuple(np.maximum(rank, 1).tolist())) for rank in ranks]
        return np.array([degrees_of_freedom(shape, rank) for rank in each])
    height, (rank,) = size([shape[k] for k in splits[0]]), ranks.T
    return np.asarray(rank * (height + size(shape) // height - rank))
