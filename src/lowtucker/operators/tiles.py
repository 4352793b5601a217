"""Products with a matrix in one pass, without a complex copy of a real matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker._array import Array, is_complex, namespace

__all__ = ["TILE_BYTES", "joined_parts", "parts", "tiled_misfit", "tiles", "with_parts"]

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


def tiles(A: NumPyArray) -> list[slice]:
    """Sets of successive rows of TILE_BYTES, or of one row."""
    m, n = A.shape
    height = max(1, TILE_BYTES // (n * A.itemsize))
    return [slice(start, start + height) for start in range(0, m, height)]


def tiled_misfit(
    A: NumPyArray,
    x: NumPyArray,
    y: NumPyArray,
    weights: NumPyArray | None,
    residual: NumPyArray,
    gradient: NumPyArray,
) -> None:
    """Write y - A x and A^* (w (y - A x)) in one pass over A: tile by tile, in the cache."""
    gradient[...] = 0
    for rows in tiles(A):
        tile = A[rows]
        r = y[..., rows] - (tile @ x if x.ndim == 1 else x @ tile.T)
        residual[..., rows] = r
        if weights is not None:
            r = r * weights[..., rows]
        gradient += r.conj() @ tile  # conjugates the small vector, not the tile
    if gradient.dtype.kind == "c":
        np.conj(gradient, out=gradient)
