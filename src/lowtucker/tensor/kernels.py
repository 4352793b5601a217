"""Products of many small matrices, in the order that memory has them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lowtucker._array import Array, is_numpy, namespace

__all__ = ["in_order", "kronecker", "two_products"]

# Bytes of a tile that is read twice in a row, small enough to stay in the cache of a core
CACHE_BYTES = 1 << 20


def in_order(x: Array) -> Array:
    """Array in row-major order: products of views inherit an order that is slow to reshape."""
    return np.ascontiguousarray(x) if is_numpy(x) else x


def kronecker(matrices: Sequence[Array]) -> Array:
    """Kronecker product of matrices, or of those of a batch."""
    K, *others = matrices
    for U in others:
        outer = K[..., :, None, :, None] * U[..., None, :, None, :]
        shape = (*K.shape[:-2], K.shape[-2] * U.shape[-2], K.shape[-1] * U.shape[-1])
        K = namespace(outer).reshape(outer, shape)
    return K


def two_products(Z: Array, left: Array, right: Array) -> tuple[Array, Array]:
    """Return left Z_j and Z_j right for all j, reading each tile of Z once.

    Z has shape (*batch, t, p, n), left (*batch, q, p) and right (*batch, n, r): the results have
    shapes (*batch, t, q, n) and (*batch, t, p, r).
    """
    xp = namespace(Z)
    *batch, t, p, n = Z.shape
    if not is_numpy(Z) or (batch and Z.nbytes <= CACHE_BYTES):
        along = left[:, None, :, :] if batch else left
        small = xp.matmul(xp.reshape(Z, (*batch, t * p, n)), right)
        return xp.matmul(along, Z), xp.reshape(small, (*batch, t, p, right.shape[-1]))
    dtype = xp.result_type(Z, right)
    arm = xp.empty((*batch, t, left.shape[-2], n), dtype=dtype)
    small = xp.empty((*batch, t, p, right.shape[-1]), dtype=dtype)
    if batch:
        height = max(1, CACHE_BYTES // (Z.dtype.itemsize * t * p * n))
        for start in range(0, batch[0], height):  # some problems, or one that has tiles of its own
            some = slice(start, start + height) if height > 1 else start
            arm[some], small[some] = two_products(Z[some], left[some], right[some])
        return arm, small
    if t > 1 and Z.strides[0] == Z.itemsize < Z.strides[-1]:
        _by_columns(Z, left, right, arm, small)
        return arm, small
    height = max(1, CACHE_BYTES // (Z.dtype.itemsize * p * n))
    for start in range(0, t, height):
        tile = slice(start, start + height)
        part = Z[tile]
        xp.matmul(part.reshape(-1, n), right, out=small[tile].reshape(-1, right.shape[-1]))
        xp.matmul(left, part, out=arm[tile])
    return arm, small


def _by_columns(Z: Array, left: Array, right: Array, arm: Array, small: Array) -> None:
    """Compute both products of rows of a column-major matrix, which are read as they are."""
    t, p, n = Z.shape
    across, turned = np.moveaxis(Z, 0, -1), np.moveaxis(small, 0, -1)
    sums = np.zeros((n, left.shape[0], t), dtype=arm.dtype)
    height = max(1, CACHE_BYTES // (Z.itemsize * n * t))
    for start in range(0, p, height):
        some = slice(start, start + height)
        turned[some] = np.matmul(right.T, across[some])
        sums += np.matmul(left[:, some], across[some].swapaxes(0, 1))
    arm[...] = np.moveaxis(sums, -1, 0).swapaxes(1, 2)
