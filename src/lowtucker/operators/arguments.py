"""Checks of the arguments of operators and problems: rows, weights, leading axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    IntArray,
    Rows,
    all_finite,
    as_array,
    as_float,
    is_complex,
    namespace,
    same_kind,
    size,
    to_numpy,
)

__all__ = [
    "check_matrices",
    "check_matrix",
    "check_rows",
    "check_weights",
    "common_batch",
    "of_one_dtype",
]


def common_batch(X: Sequence[int], y: Sequence[int]) -> tuple[int, ...]:
    """Leading axes of the residual of tensors and data with these leading axes."""
    left, right = tuple(X), tuple(y)
    if left == right or not right:
        return left
    try:
        return np.broadcast_shapes(left, right)
    except ValueError:
        raise ValueError(
            f"X and y must have the same leading axes, or one of them none, got {left} and {right}."
        ) from None


def check_weights(weights: Array, shape: tuple[int, ...]) -> None:
    """Check that there is one weight for each number of that shape, or for each measurement."""
    if is_complex(weights):
        raise ValueError(f"weights must be real, got dtype {weights.dtype}. Try abs(weights).")
    if tuple(weights.shape) not in {shape, shape[-1:]}:
        either = "" if len(shape) == 1 else f" or {shape}"
        raise ValueError(
            f"weights must have shape {shape[-1:]}{either}, got {tuple(weights.shape)}. "
            "Give one weight per measurement."
        )


def check_matrices(matrices: Any, name: str, shape: str) -> list[Array]:
    """Check a list of matrices, one for each mode, and bring them to one dtype."""
    if not isinstance(matrices, Sequence) or isinstance(matrices, str) or not matrices:
        raise TypeError(
            f"{name} must be a list of matrices {shape}, one for each mode, got "
            f"{type(matrices).__name__}. For one matrix write [matrix]."
        )
    arrays = [as_float(A, f"{name}[{k}]") for k, A in enumerate(matrices)]
    for k, A in enumerate(arrays):
        same_kind(A, arrays[0], f"{name}[{k}]", f"{name}[0]")
        check_matrix(A, f"{name}[{k}]")
    return of_one_dtype(arrays)


def check_matrix(A: Array, name: str) -> None:
    """Check that A is a matrix of finite numbers."""
    if A.ndim != 2 or not size(A.shape):
        raise ValueError(
            f"{name} must be a matrix with entries, got shape {tuple(A.shape)}. Reshape it."
        )
    if not all_finite(A):
        row = int(np.argwhere(~np.isfinite(to_numpy(A)))[0, 0])
        raise ValueError(
            f"{name} has NaN or infinite entries, the first in row {row}. Leave out those rows."
        )


def of_one_dtype(arrays: list[Array]) -> list[Array]:
    """Bring arrays to their common dtype."""
    xp = namespace(*arrays)
    dtype = xp.result_type(*arrays)
    return [xp.astype(A, dtype) if A.dtype != dtype else A for A in arrays]


def check_rows(rows: Any, m: int, batch_shape: tuple[int, ...] = ()) -> Rows:
    """Check a set of measurements: a slice, integers from 0 to m - 1, or a mask of length m.

    Gives a slice with a positive step or NumPy integers, whatever the kind of ``rows``.
    """
    if isinstance(rows, slice):
        try:
            chosen = range(*rows.indices(m))
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"rows must be a slice of integers with a step that is not zero, got {rows!r}."
            ) from None
        if not chosen:
            raise ValueError(
                f"rows selects none of the {m} measurements, got {rows!r}. Choose at least one."
            )
        return rows if chosen.step > 0 else np.asarray(chosen)  # torch has no negative steps
    if isinstance(rows, tuple) and batch_shape:
        if len(rows) != size(batch_shape):
            raise ValueError(
                f"rows must have one entry for each of the {size(batch_shape)} problems, "
                f"got {len(rows)}."
            )
        return tuple(check_rows(one, m) for one in rows)
    return _check_row_numbers(to_numpy(as_array(rows, "rows")), m)


def _check_row_numbers(index: np.ndarray[Any, Any], m: int) -> IntArray:
    if index.shape == (0,):
        index = index.astype(np.int64)  # an empty list has no dtype of its own
    if index.ndim == 1 and index.dtype.kind == "b" and index.shape[0] == m:
        index = np.flatnonzero(index)
    if index.ndim != 1 or index.dtype.kind not in "iu":
        raise TypeError(
            f"rows must be a slice, a 1-D integer array or a boolean mask of length {m}; got "
            f"shape {tuple(index.shape)}, dtype {index.dtype}."
        )
    if not index.shape[0]:
        raise ValueError(f"rows selects none of the {m} measurements. Choose at least one.")
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= m:
        raise ValueError(f"rows must be from 0 to {m - 1}, got values from {low} to {high}.")
    return index.astype(np.int64, copy=False)
