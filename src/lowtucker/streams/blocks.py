"""Blocks of a stream: checked as they come, and kept until there are enough for a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    IntArray,
    all_finite,
    as_array,
    as_float,
    in_precision_of,
    is_array,
    is_complex,
    is_numpy,
    like,
    namespace,
    same_kind,
    size,
    to_numpy,
)
from lowtucker.operators import DenseOperator, as_operator, entries, stack
from lowtucker.operators.arguments import of_one_dtype
from lowtucker.operators.base import MeasurementOperator
from lowtucker.problem import Problem, as_finite, as_vector
from lowtucker.recovery.entry import check_fields

__all__ = ["Block", "as_block", "in_stream", "joined"]


def as_block(A: Any, y: Any, weights: Any, shape: tuple[int, ...], name: str) -> Problem | None:
    """Check a block, whose y the caller calls so; None for one that tells nothing."""
    A, y, weights = _with_axis(A, y, weights, shape, name)
    if _is_empty(A) and _is_empty(y):
        return None
    try:
        operator = as_operator(A, _shape_for(A, shape))
    except ValueError:
        _name_bad_row(A)
        raise
    if operator.batch_shape:
        raise ValueError(
            f"A_block must be one operator, got a batch of {operator.batch_shape}. Use one stream "
            "for each problem."
        )
    if operator.shape != shape:
        raise ValueError(
            f"A_block measures tensors of shape {operator.shape}, this stream is one of {shape}. "
            "Give rows of that shape, or start another stream."
        )
    y = as_vector(y, name, operator)
    if y.ndim > 1:
        raise ValueError(
            f"{name} must have shape ({operator.m},), got {tuple(y.shape)}. Give the "
            "measurements of one tensor."
        )
    if weights is None:  # with weights, those of weight 0 may be NaN
        y = as_finite(y, name, operator)
    elif _are_zero(weights, operator.m):
        return None
    problem = Problem(operator, y, weights)
    check_fields(problem)
    _check_scale(problem, low=0.0)
    return problem


def _check_scale(problem: Problem, low: float) -> None:
    """Refuse measurements whose squares would overflow, or vanish if there is a lower limit."""
    limits, length = namespace(problem.y).finfo(problem.y.dtype), float(problem.y_norm)
    if length and not low * limits.smallest_normal**0.5 <= length <= 1e-4 * limits.max**0.5:
        raise ValueError(
            f"y_block has the norm {length:.3g}, whose square {problem.y.dtype} cannot represent "
            "with enough digits. Give y_block in other units: X is then in those units too."
        )


def _with_axis(
    A: Any, y: Any, weights: Any, shape: tuple[int, ...], name: str
) -> tuple[Any, Any, Any]:
    """Block of one row, if that is given as a tensor or a vector, or with one number."""
    if isinstance(A, list | tuple) or is_array(A):
        A = as_array(A, "A_block")
        if tuple(A.shape) in (shape, (size(shape),)):
            if size(np.shape(y)) != 1:
                raise ValueError(
                    f"A_block is one row, of shape {tuple(A.shape)}, but {name} has shape "
                    f"{np.shape(y)}. Give one number with it, or rows of shape (b, n_1, ..., n_d)."
                )
            A = A[None, ...]
    rows = A.m if isinstance(A, MeasurementOperator) else (getattr(A, "shape", None) or [None])[0]
    if rows == 1:
        y, weights = _as_vector(y), None if weights is None else _as_vector(weights)
    return A, y, weights


def _as_vector(x: Any) -> Any:
    """Vector of one number; anything else as it is."""
    if is_array(x) and not x.ndim:
        return namespace(x).reshape(x, (1,))
    return [x] if np.isscalar(x) and not isinstance(x, str) else x


def _are_zero(weights: Any, m: int) -> bool:
    """Whether there are m weights, and all are 0."""
    w = to_numpy(as_array(weights, "weights"))
    return w.shape == (m,) and not w.any()


def _shape_for(A: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Shape that an array does not have itself."""
    whole = is_array(A) and A.ndim == len(shape) + 1 and A.ndim != 2
    return None if whole or isinstance(A, MeasurementOperator) else shape


def _is_empty(x: Any) -> bool:
    shape = getattr(x, "shape", None)
    return isinstance(x, list | tuple) and not x if shape is None else tuple(shape)[:1] == (0,)


def _name_bad_row(A: Any) -> None:
    """Refuse NaN in an array by the row that it is in."""
    if not is_array(A) or A.ndim < 2:
        return
    rows = as_float(A, "A_block")
    if not all_finite(rows):
        bad = ~np.isfinite(to_numpy(rows)).reshape(rows.shape[0], -1).all(axis=1)
        raise ValueError(
            f"A_block has NaN or infinite entries, the first in row {np.flatnonzero(bad)[0]}. "
            "Leave such rows out: keep = numpy.isfinite(A_block).all(axis=1) for a matrix."
        ) from None


def in_stream(problem: Problem, example: Array) -> Problem:
    """Block in the precision of a stream; refuses one of another array kind or dtype."""
    same_kind(problem.y, example, "y_block", "this stream")
    real_stream = not is_complex(example)
    given = problem.A.dtype
    if given is None and not (real_stream and is_complex(problem.y)):
        dtype = in_precision_of(example.dtype, example, is_complex=is_complex(problem.y))
        if problem.y.dtype == dtype:
            return problem
        y = namespace(problem.y).astype(problem.y, dtype)
        return Problem(problem.A, y, problem.weights)
    dtype = problem.tensor_dtype
    if dtype != example.dtype:
        raise TypeError(
            f"the block measures tensors of dtype {dtype}, this stream is one of {example.dtype}. "
            "Convert A_block and y_block, or for a matrix try lowtucker.DenseOperator(matrix, "
            "shape, dtype=...); or start another stream."
        )
    return problem


@dataclass(frozen=True, eq=False)
class Block:
    """A block that is kept: a copy of its rows or indices, or its operator as it was given.

    Memory: d numbers a sample for entries, N a row for arrays; otherwise that of the operator.
    """

    y: Array
    weights: Array | None
    indices: IntArray | None = None
    rows: Array | None = None
    isotropic: bool = True
    operator: MeasurementOperator | None = None

    @classmethod
    def of(cls, problem: Problem) -> Block:
        """Copy a block: the caller may reuse its arrays."""
        A, w = problem.A, problem.weights
        y, w = _copy(problem.y), None if w is None else _copy(w)
        samples = A.entry_samples()
        if samples is not None and samples[1] is None:
            return cls(y, w, indices=np.array(samples[0]))
        rows = A.rows_in_memory()
        matrix: Any = getattr(A, "matrix", None)
        if rows is None and is_array(matrix) and not is_numpy(matrix) and _is_row_major(A):
            rows = matrix
        if rows is not None:
            rows = namespace(rows).reshape(_copy(rows), (A.m, *A.shape))
            return cls(y, w, rows=rows, isotropic=A.traits.isotropic)
        return cls(y, w, operator=A)

    @property
    def key(self) -> tuple[bool, bool, bool]:
        """Blocks of equal keys are joined."""
        return self.indices is not None, self.rows is not None, self.isotropic


def _is_row_major(A: MeasurementOperator) -> bool:
    return getattr(A, "order", "C") == "C"


def _copy(x: Array) -> Array:
    return namespace(x).asarray(x, copy=True)


def joined(blocks: Sequence[Block], shape: tuple[int, ...], dtype: Any) -> Problem:
    """Problem of all blocks, one below the other."""
    operators: list[MeasurementOperator] = []
    for (are_entries, are_rows, isotropic), some in groupby(blocks, lambda block: block.key):
        group = list(some)
        if are_entries:
            operators.append(entries(shape, np.concatenate([one.indices for one in group])))
        elif are_rows:
            rows = _concat([one.rows for one in group])
            operators.append(DenseOperator(rows, shape, dtype=dtype, isotropic=isotropic))
        else:
            operators += [one.operator for one in group if one.operator is not None]
    y = _concat([block.y for block in blocks])
    weights = None
    if any(block.weights is not None for block in blocks):
        weights = _concat([_weights(block) for block in blocks])
    whole = Problem(stack(operators), y, weights)
    _check_scale(whole, low=1e8)
    return whole


def _concat(arrays: Sequence[Any]) -> Array:
    arrays = of_one_dtype(list(arrays))
    return arrays[0] if len(arrays) == 1 else namespace(*arrays).concat(arrays)


def _weights(block: Block) -> Array:
    if block.weights is not None:
        return block.weights
    real = in_precision_of(block.y.dtype, block.y, is_complex=False)
    return like(np.ones(block.y.shape), block.y, real)
