r"""Rank-r approximations: truncated HOSVD, its sequential form, and HOOI.

Each satisfies the assumption (3.6) of the paper,
:math:`\|H_r(Z) - Z\|_F \le \eta \|Z_{best} - Z\|_F`, with :math:`\eta = \sqrt d`.
"""

from __future__ import annotations

import math
from operator import index
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import (
    Array,
    adjoint,
    as_float,
    as_integer,
    as_number,
    as_tensor,
    eps,
    like,
    limits,
    namespace,
    put,
    same_kind,
    size,
    to_numpy,
)
from lowtucker._array.errors import NotFinite
from lowtucker._array.linalg import eigh, svd
from lowtucker.tensor.products import norm, product
from lowtucker.tensor.rank import check_rank
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.tensor.unfolding import unfolded

__all__ = ["hooi", "hosvd", "leading_left", "quasi_optimality", "safely_scaled", "sthosvd"]


def quasi_optimality(order: int) -> float:
    r"""Return the proven :math:`\eta` of (3.6) for all three truncations of a tensor of that order.

    :math:`\sqrt d`: the squared error is at most the sum of the d modes' discarded energies, and
    none of these exceeds the squared error of the best approximation. HOOI starts from the HOSVD
    and never increases the error. For vectors and matrices (d = 1, 2) it is 1: the truncations are
    those of the SVD, which are optimal.

    Examples
    --------
    >>> quasi_optimality(2), quasi_optimality(4)
    (1.0, 2.0)
    """
    order = as_integer(order, "order")
    return 1.0 if order < 3 else math.sqrt(order)


def leading_left(matrix: Array, r: int) -> Array:
    r"""Return an orthonormal basis of the span of the r leading left singular vectors.

    Parameters
    ----------
    matrix : array, shape (*batch, n, p)
    r : int
        At most n. If it exceeds the rank of ``matrix``, the basis is completed.

    Notes
    -----
    The eigenvectors of the Gram matrix are cheaper than the SVD, but resolve only directions
    with :math:`\sigma^2` above rounding error of :math:`\sigma_1^2`. They are used if
    :math:`\sigma_r^2 \ge 8 \sqrt\epsilon \sigma_1^2`, which bounds their contribution to the
    approximation error by about :math:`\epsilon^{3/4} \sigma_1`; otherwise the SVD is used,
    also if the squares would underflow. (The caller ensures that they do not overflow.)
    """
    xp = namespace(matrix)
    n, p = matrix.shape[-2:]
    if r == n:
        return xp.zeros_like(matrix[..., :, :1]) + like(np.eye(n), matrix, matrix.dtype)
    if n > p:
        return svd(matrix, full_matrices=r > p)[0][..., :, :r]
    values, vectors = eigh(xp.matmul(matrix, adjoint(matrix)))  # ascending
    # a copy, not a view: rounding must not depend on whether other problems need the SVD
    if isinstance(vectors, np.ndarray):
        basis = vectors[..., : n - r - 1 : -1].copy()
    else:
        basis = xp.take(vectors, like(np.arange(n - 1, n - r - 1, -1), vectors), axis=-1)
    epsilon, smallest = limits(matrix)
    tiny = smallest / epsilon
    strong = values[..., n - r] >= 8 * math.sqrt(epsilon) * values[..., n - 1] + tiny
    if bool(strong if matrix.ndim == 2 else xp.all(strong)):
        return basis
    if matrix.ndim == 2:
        return svd(matrix)[0][:, :r]
    flat = xp.reshape(matrix, (-1, n, p))
    where = like((~to_numpy(xp.reshape(strong, (-1,)))).nonzero()[0], matrix)
    better = svd(xp.take(flat, where, axis=0))[0][:, :, :r]
    return xp.reshape(put(xp.reshape(basis, (-1, n, r)), where, better), basis.shape)


def hosvd(X: Any, rank: tuple[int, ...] | None = None, *, warn: bool = True) -> TuckerTensor:
    r"""Truncated higher-order SVD, :math:`H_r` of the paper.

    Every factor :math:`U^{(k)}` consists of the :math:`r_k` leading left singular vectors of
    :math:`\mathbf{X}^{\{k\}}`, all from the same tensor, and
    :math:`\mathbf{S} = \mathbf{X} \times_1 U^{(1)*} \cdots \times_d U^{(d)*}`.

    Parameters
    ----------
    X : array, shape (*batch, n_1, ..., n_d), or TuckerTensor
        A TuckerTensor is truncated through its core, without forming the full tensor.
    rank : tuple of int, optional
        (r_1, ..., r_d). By default nothing is truncated.
    warn : bool
        Whether to warn about a rank that no tensor attains.

    Returns
    -------
    TuckerTensor
        Its error is at most :math:`\sqrt d` times that of the best approximation.

    Notes
    -----
    Cost: :math:`2 N \sum_k n_k` flops for the Gram matrices, an eigendecomposition of an
    :math:`n_k \times n_k` matrix for each mode, and one copy of ``X`` for each unfolding.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.add.outer(np.arange(4.0), np.add.outer(np.arange(5.0), np.arange(6.0)))
    >>> hosvd(X, (2, 2, 2))
    TuckerTensor of shape (4, 5, 6), rank (2, 2, 2): 38 numbers instead of 120 (3.16x)
    >>> bool(np.allclose(hosvd(X, (2, 2, 2)).full(), X))
    True
    """
    given = _prepare(X, rank, warn)
    return _finish(*_hosvd(given.X, given.rank), given)


def _hosvd(X: Array, rank: tuple[int, ...]) -> tuple[Array, list[Array]]:
    batch_ndim = X.ndim - len(rank)
    factors = [leading_left(unfolded(X, k, batch_ndim), r) for k, r in enumerate(rank)]
    return _project(X, factors), factors


def _project(X: Array, factors: list[Array], skip: int | None = None) -> Array:
    """Contract X with the adjoint of every factor except one, the strongest reduction first."""
    batch_ndim = X.ndim - len(factors)
    shares = [U.shape[-1] / U.shape[-2] for U in factors]
    for k in sorted(range(len(factors)), key=shares.__getitem__):
        if k != skip:
            X = product(X, adjoint(factors[k]), k, batch_ndim)
    return X


def sthosvd(
    X: Any,
    rank: tuple[int, ...] | None = None,
    *,
    mode_order: tuple[int, ...] | None = None,
    warn: bool = True,
) -> TuckerTensor:
    r"""Sequentially truncated HOSVD: truncate each mode before the next one.

    Parameters
    ----------
    X : array, shape (*batch, n_1, ..., n_d), or TuckerTensor
    rank : tuple of int, optional
    mode_order : permutation of 0..d-1, optional
        The order in which the modes are truncated; by default first to last.
    warn : bool
        As in :func:`hosvd`.

    Returns
    -------
    TuckerTensor
        Its error is at most :math:`\sqrt d` times that of the best approximation.

    Notes
    -----
    Cheaper than :func:`hosvd`, since the tensor becomes smaller with every mode. Algorithm 1 of
    the paper does not use it: its experiments are noisier with it.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.add.outer(np.arange(4.0), np.add.outer(np.arange(5.0), np.arange(6.0)))
    >>> bool(np.allclose(sthosvd(X, (2, 2, 2)).full(), X))
    True
    """
    given = _prepare(X, rank, warn)
    X, rank = given.X, given.rank
    modes = check_mode_order(mode_order, len(rank))
    batch_ndim = X.ndim - len(rank)
    factors: list[Array] = [None] * len(rank)
    for k in modes:
        factors[k] = leading_left(unfolded(X, k, batch_ndim), rank[k])
        X = product(X, adjoint(factors[k]), k, batch_ndim)
    return _finish(X, factors, given)


def check_mode_order(mode_order: Any, order: int, name: str = "mode_order") -> tuple[int, ...]:
    """Check an order of the modes; first to last if it is None."""
    if mode_order is None:
        return tuple(range(order))
    message = f"{name} must be a permutation of 0 to {order - 1}, got {mode_order!r}."
    try:
        modes = tuple(index(k) for k in mode_order)
    except TypeError:
        raise TypeError(message) from None
    if sorted(modes) != list(range(order)):
        raise ValueError(message)
    return modes


def hooi(
    X: Any,
    rank: tuple[int, ...] | None = None,
    *,
    max_iterations: int = 100,
    tol: float | None = None,
    start: TuckerTensor | None = None,
    warn: bool = True,
) -> TuckerTensor:
    r"""Higher-order orthogonal iteration: alternate over the modes until the fit stagnates.

    Starts from the truncated HOSVD and replaces one factor at a time by the leading left
    singular vectors of :math:`\mathbf{X} \times_{j \ne k} U^{(j)*}`; the error never increases.

    Parameters
    ----------
    X : array, shape (*batch, n_1, ..., n_d), or TuckerTensor
    rank : tuple of int, optional
    max_iterations : int
    tol : float, optional
        Stop if a sweep increases the norm of the core by less than ``tol`` times the norm of
        ``X``. By default 10 machine epsilons.
    start : TuckerTensor, optional
        Start from its factors instead. Several starts may find a better approximation.
    warn : bool
        As in :func:`hosvd`.

    Returns
    -------
    TuckerTensor
        Its error is at most :math:`\sqrt d` times that of the best approximation, and at most that
        of the HOSVD (neither holds with a ``start``).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(60.0).reshape(3, 4, 5) % 7
    >>> best, first = hooi(X, (2, 2, 2)), hosvd(X, (2, 2, 2))
    >>> float(best.norm()) >= float(first.norm())
    True
    """
    max_iterations = as_integer(max_iterations, "max_iterations")
    tol = None if tol is None else as_number(tol, "tol", 0)
    given = _prepare(X, rank, warn)
    X, rank = given.X, given.rank
    batch_ndim = X.ndim - len(rank)
    core, factors = _hosvd(X, rank) if start is None else _begun(X, rank, start, given)
    xp = namespace(X)
    fit = norm(core, batch_ndim=batch_ndim)
    least = (10 * eps(X) if tol is None else tol) * norm(X, batch_ndim=batch_ndim)
    for _ in range(max_iterations):
        for k, r in enumerate(rank):
            partial = _project(X, factors, skip=k)
            factors[k] = leading_left(unfolded(partial, k, batch_ndim), r)
        core = product(partial, adjoint(factors[-1]), len(rank) - 1, batch_ndim)
        previous, fit = fit, norm(core, batch_ndim=batch_ndim)
        if bool(xp.all(fit - previous <= least)):
            break
    return _finish(core, factors, given)


def _begun(X: Array, rank: tuple[int, ...], start: Any, given: _Given) -> tuple[Array, list[Array]]:
    """Check a start, and return its core and factors."""
    fits = isinstance(start, TuckerTensor) and given.through is None
    if not fits or tuple(start.rank) != rank or start.core.ndim != X.ndim:
        raise ValueError(
            f"start must be a TuckerTensor of rank {rank} for an array X of shape "
            f"{tuple(X.shape)}, got {start!r}."
        )
    same_kind(start.core, X, "start", "X")
    if any(U.shape[-2] != n for U, n in zip(start.factors, X.shape[-len(rank) :], strict=True)):
        raise ValueError(f"start must have the shape of X, {tuple(X.shape)}, got {start.shape}.")
    factors = list(start.factors)
    return _project(X, factors), factors


class _Given(NamedTuple):
    """What to truncate: ``X`` times ``scale``, which is the core of ``through`` if not None."""

    X: Array
    rank: tuple[int, ...]
    through: TuckerTensor | None
    scale: Array | None


def _prepare(X: Any, rank: tuple[int, ...] | None, warn: bool) -> _Given:
    """Check the arguments, and scale entries whose squares LAPACK would scale."""
    through = X if isinstance(X, TuckerTensor) else None
    if through is not None:
        rank = through.rank if rank is None else check_rank(rank, through.shape, warn=warn)
        if any(r > s for r, s in zip(rank, through.rank, strict=True)):
            # larger than the rank of the core: the full tensor completes it
            X, through = through.full(), None
        else:
            X = through.core
    else:
        X = as_float(as_tensor(X, "X"), "X")
        rank = tuple(X.shape) if rank is None else _rank_of(X, rank, warn)
    X, scale = safely_scaled(X, len(rank))
    return _Given(X, rank, through, scale)


def safely_scaled(X: Array, order: int) -> tuple[Array, Array | None]:
    """Return tensors of that order, and what to multiply them by: powers of two, or None for 1.

    They are scaled only where squares of their entries would overflow or underflow. Raises
    NotFinite where there are NaN or infinite entries.
    """
    xp = namespace(X)
    modulus = xp.abs(X)
    largest = float(xp.max(modulus)) if size(X.shape) else 0.0
    if not largest < math.inf:
        raise NotFinite(
            "X has NaN or infinite entries: it has no low-rank approximation. To fill in missing "
            "values, try lowtucker.complete(X)."
        )
    epsilon, smallest = limits(X)
    least = (smallest / epsilon) ** 0.25
    if largest == 0 or (least < largest and largest * math.sqrt(size(X.shape)) < 1 / least):
        return X, None
    axes = tuple(range(X.ndim - order, X.ndim))
    scale = _powers_of_two(xp.max(modulus, axis=axes, keepdims=True))
    return X / scale, scale


def _powers_of_two(sizes: Array) -> Array:
    """Return powers of two near the given numbers, for exact scaling; 1 for zero."""
    given = to_numpy(sizes)
    limits = np.finfo(given.dtype)
    power = np.clip(np.frexp(given)[1], limits.minexp, limits.maxexp - 1)
    return like(np.ldexp(np.ones_like(given), power), sizes, sizes.dtype)


def _rank_of(X: Array, rank: Any, warn: bool) -> tuple[int, ...]:
    """Check a rank against the last modes of X."""
    try:
        order = min(max(1, len(rank)), X.ndim)
    except TypeError:
        order = X.ndim
    return check_rank(rank, tuple(X.shape[X.ndim - order :]), warn=warn)


def _finish(core: Array, factors: list[Array], given: _Given) -> TuckerTensor:
    if given.through is not None:
        xp = namespace(core)
        factors = [xp.matmul(U, V) for U, V in zip(given.through.factors, factors, strict=True)]
    return TuckerTensor.trusted(core if given.scale is None else core * given.scale, factors)
