"""Products with a matrix as it is in memory: without a copy in another dtype or order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lowtucker._array import Array, as_array, as_float, is_complex, is_numpy, namespace
from lowtucker._array.readings import at_least
from lowtucker.tensor.products import norm

__all__ = [
    "TILE_BYTES",
    "adjoint_times",
    "as_rows",
    "joined_parts",
    "parts",
    "tiled_misfit",
    "tiled_norms",
    "times",
    "wide_dtype",
    "with_parts",
]

NumPyArray = np.ndarray[Any, Any]

# Bytes of A that `misfit` reads twice in a row: small enough to stay in the cache, large enough
# that Python's part (5 us a tile) is small. With 1 MiB of L2 a gradient cost 1.03 to 1.4 times
# one `A @ x` for N from 1000 to 27000; with a half, up to 1.6; with two, the same as one.
TILE_BYTES = 1 << 20


def with_parts(product: Any, x: Array, complex_matrix: bool) -> Array:
    """Apply a real matrix to a complex vector part by part, so that the matrix stays real."""
    if complex_matrix or not is_complex(x):
        return product(x)
    xp = namespace(x)
    return product(xp.real(x)) + 1j * product(xp.imag(x))


def parts(x: NumPyArray) -> NumPyArray:
    """Real and imaginary part: (*batch, n) -> (*batch, 2, n)."""
    return np.stack([x.real, x.imag], axis=-2)


def joined_parts(x: NumPyArray) -> NumPyArray:
    """Undo :func:`parts`."""
    return x[..., 0, :] + 1j * x[..., 1, :]


def as_rows(value: Any, name: str) -> Array:
    """Convert to an array of numbers; NumPy integers, booleans and half precision stay narrow.

    All else is converted by :func:`lowtucker._array.as_float`.
    """
    x = as_array(value, name)
    return (
        x if is_numpy(x) and (x.dtype.kind in "biu" or x.dtype.char == "e") else as_float(x, name)
    )


def wide_dtype(matrix: Array) -> Any:
    """Dtype to compute in: double for integers and booleans, single for half precision."""
    dtype = matrix.dtype
    if not isinstance(dtype, np.dtype):
        return dtype
    if dtype.kind in "biu":
        return np.dtype(np.float64)
    return np.dtype(np.float32) if dtype.char == "e" else dtype.newbyteorder("=")


def _by_columns(A: NumPyArray) -> bool:
    """Whether the entries of a column are next to each other in memory."""
    rows, columns = A.strides
    return abs(rows) < abs(columns) and min(A.shape) > 1


def _tiles(A: NumPyArray, dtype: Any) -> Iterator[tuple[slice, slice, NumPyArray]]:
    """Rows, columns and entries, in the wide dtype, of TILE_BYTES: rows, or columns if A has them.

    One row or column is never cut.
    """
    columns = _by_columns(A)
    length, across = A.shape if columns else A.shape[::-1]
    step = max(1, TILE_BYTES // (length * dtype.itemsize))
    for start in range(0, across, step):
        some, rest = slice(start, start + step), slice(None)
        index = (rest, some) if columns else (some, rest)
        yield *index, A[index].astype(dtype, copy=False)


def times(A: NumPyArray, x: NumPyArray, dtype: Any) -> NumPyArray:
    """Multiply in the wide dtype: (*batch, N) -> (*batch, m). One pass, no copy of A."""
    if A.dtype == dtype:
        return A @ x if x.ndim == 1 else np.matmul(x, A.T)
    out = np.zeros((*x.shape[:-1], A.shape[0]), dtype)
    for rows, columns, tile in _tiles(A, dtype):
        out[..., rows] += x[..., columns] @ tile.T
    return out


def adjoint_times(A: NumPyArray, v: NumPyArray, dtype: Any) -> NumPyArray:
    """Multiply by the conjugate transpose: (*batch, m) -> (*batch, N). One pass, no copy of A."""
    v = v.conj()  # conjugates the small vectors, not the matrix
    if A.dtype == dtype:
        return np.asarray(np.conj(v @ A))
    out = np.zeros((*v.shape[:-1], A.shape[1]), dtype)
    for rows, columns, tile in _tiles(A, dtype):
        out[..., columns] += v[..., rows] @ tile
    return out.conj()


def tiled_norms(A: NumPyArray, dtype: Any) -> NumPyArray:
    """Norms of the rows, safe from overflow. One pass, no copy of A."""
    norms = np.zeros(A.shape[0], np.empty(0, dtype).real.dtype)
    for rows, _, tile in _tiles(A, dtype):
        norms[rows] = np.hypot(norms[rows], norm(tile, batch_ndim=1))
    return norms


def tiled_misfit(
    A: NumPyArray,
    x: NumPyArray,
    y: NumPyArray,
    weights: NumPyArray | None,
    residual: NumPyArray,
    gradient: NumPyArray,
) -> None:
    """Write y - A x and A^* (w (y - A x)) in one pass over A: tile by tile, in the cache.

    Two passes if A is in memory column by column: with 27000 columns, 1.5 times the time of rows;
    tiles of rows, of which a column has a few numbers each, take 3 to 10 times as long.
    """
    if _by_columns(A):
        at_least(2)
        residual[...] = y - times(A, x, gradient.dtype)
        r = residual if weights is None else residual * weights
        gradient[...] = adjoint_times(A, r, gradient.dtype)
        return
    gradient[...] = 0
    height = max(1, TILE_BYTES // (A.shape[1] * gradient.itemsize))
    for start in range(0, A.shape[0], height):
        rows = slice(start, start + height)
        tile = A[rows] if A.dtype == gradient.dtype else A[rows].astype(gradient.dtype)
        r = y[..., rows] - (tile @ x if x.ndim == 1 else x @ tile.T)
        residual[..., rows] = r
        if weights is not None:
            r = r * weights[..., rows]
        gradient += r.conj() @ tile  # conjugates the small vector, not the tile
    if gradient.dtype.kind == "c":
        np.conj(gradient, out=gradient)
