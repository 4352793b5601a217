r"""The multilinear spectrum of a tensor: bases of all unfoldings, and the core in them.

A tensor is multiplied along its first mode, which becomes the last; after d products the modes are
in their order again. So every product is one matrix product, and nothing is transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import Array, adjoint, conj, like, namespace, real, size
from lowtucker._array.linalg import eigh, svd

__all__ = ["Spectrum", "coefficients", "multilinear_spectrum", "synthesis"]


class Spectrum(NamedTuple):
    r"""Bases :math:`U_k` of the unfoldings, variances along them, and the core.

    Attributes
    ----------
    bases : list of arrays, shape (*batch, n_k, r_k)
        Orthonormal columns, by rising variance.
    variances : list of arrays, shape (*batch, r_k)
        Mean square of the core's entries in each slab, with N / n_k entries to a slab.
    core : array, shape (*batch, r_1, ..., r_d)
    """

    bases: list[Array]
    variances: list[Array]
    core: Array


def multilinear_spectrum(Z: Array, batch_ndim: int = 0, least: Any = None) -> Spectrum:
    r"""Decompose tensors, shape (*batch, n_1, ..., n_d), in full bases of their unfoldings.

    A mode with more entries than all others together gets no more directions than these have.

    Parameters
    ----------
    Z : array
    batch_ndim : int
        The number of leading axes.
    least : float or array, shape (*batch,), optional
        Directions of smaller variance are dropped, mode by mode, as in a sequentially truncated
        HOSVD; at least one of each mode stays. Tensors of a batch keep as many as the one with the
        most: what the others drop are zeros, in the bases as in the variances.

    Notes
    -----
    Cost: d Gram matrices, their eigendecompositions, and d products with the bases,
    :math:`O(N \sum n_k)` flops. Memory: two tensors.
    """
    shape = tuple(Z.shape[batch_ndim:])
    bases, variances, core = [], [], Z
    for n in shape:
        M = _unfolded(core, batch_ndim)
        w, U = _spectrum(M)
        w = w * (n / size(shape))
        if least is not None:
            w, U = _truncated(w, U, least)
        bases.append(U)
        variances.append(w)
        core = _turned(core, conj(U), batch_ndim)
    return Spectrum(bases, variances, core)


def coefficients(X: Array, bases: Sequence[Array], batch_ndim: int = 0) -> Array:
    """Return the core of a tensor in some bases: X multiplied by every adjoint."""
    for U in bases:
        X = _turned(X, conj(U), batch_ndim)
    return X


def synthesis(core: Array, bases: Sequence[Array], batch_ndim: int = 0) -> Array:
    """Return the tensor of a core in some bases."""
    xp = namespace(core)
    for U in bases:
        core = _turned(core, xp.matrix_transpose(U), batch_ndim)
    return core


def _unfolded(X: Array, b: int) -> Array:
    return namespace(X).reshape(X, (*X.shape[: b + 1], -1))


def _turned(X: Array, M: Array, b: int) -> Array:
    """Multiply the first mode by M^T; it becomes the last."""
    xp = namespace(X)
    product = xp.matmul(xp.matrix_transpose(_unfolded(X, b)), M)
    return xp.reshape(product, (*X.shape[:b], *X.shape[b + 1 :], M.shape[-1]))


def _spectrum(M: Array) -> tuple[Array, Array]:
    """Squared singular values of an unfolding, rising, and the left singular vectors.

    By the Gram matrix; of unfoldings with more rows than columns by an SVD, which leaves out
    directions that nothing is in.
    """
    xp = namespace(M)
    if M.shape[-2] <= M.shape[-1]:
        w, U = eigh(xp.matmul(M, adjoint(M)))
        return real(w), U
    U, s, _ = svd(M)
    return xp.flip(s * s, axis=-1), xp.flip(U, axis=-1)


def _truncated(w: Array, U: Array, least: Any) -> tuple[Array, Array]:
    """Directions above ``least``, the last one in any case."""
    xp = namespace(w)
    least = least[..., None] if getattr(least, "ndim", 0) else least
    above = w > least
    counts = xp.sum(xp.astype(above, xp.int64), axis=-1)
    kept = max(1, int(counts if w.ndim == 1 else xp.max(counts)))
    w, U, above = w[..., -kept:], U[..., -kept:], above[..., -kept:]
    if w.ndim == 1 or bool(xp.all(above)):
        return w, U
    above = above | like(np.arange(kept) == kept - 1, w)
    return xp.where(above, w, xp.zeros_like(w)), xp.where(above[..., None, :], U, xp.zeros_like(U))
