"""Tangent spaces of the tensors of fixed Tucker rank: coordinates, projection, retraction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lowtucker._array import Array, adjoint, as_float_on, conj, is_numpy, like, namespace, size
from lowtucker._array.linalg import inv, qr, svd
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.products import multi_mode_product, product
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.tensor.unfolding import fold, unfolded

__all__ = ["Complement", "TangentSpace"]

# Bytes of a tile that is read twice in a row, small enough to stay in the cache of a core
CACHE_BYTES = 1 << 20


@dataclass(frozen=True, repr=False, eq=False)
class Complement:
    r"""Implicit orthonormal basis :math:`U_\perp` of the complement of the columns of U.

    With :math:`U = [U_1; U_2]`, :math:`U_1 = P H` (polar), :math:`\tilde U = -U P^*` and
    :math:`E = [I; 0]`, the block reflector

    .. math:: Q = I - (E - \tilde U)(I - \tilde U_1)^{-1} (E - \tilde U)^*

    is unitary and maps E to :math:`\tilde U`; its other columns are :math:`U_\perp`. Since
    :math:`-\tilde U_1 = P H P^*` is positive semi-definite, the inverse is that of a matrix with
    eigenvalues between 1 and 2.

    Notes
    -----
    Memory: n r numbers. A product with a matrix of q columns costs 4 n r q flops.
    """

    reflected: Array  # U~, shape (n, r)
    inverse: Array  # (I - U~_1)^-1, shape (r, r)

    @classmethod
    def of(cls, U: Array) -> Complement:
        """Return the complement of orthonormal columns."""
        xp, r = namespace(U), U.shape[1]
        W, _, Vh = svd(U[:r, :])
        reflected = -xp.matmul(U, adjoint(xp.matmul(W, Vh)))
        unit = like(np.eye(r), U, U.dtype)
        return cls(reflected, inv(unit - reflected[:r, :]))

    def coordinates(self, B: Array) -> Array:
        r"""Return :math:`U_\perp^* B` for B of shape (*batch, n, q)."""
        xp, r = namespace(B), self.inverse.shape[0]
        lower = self.reflected[r:, :]
        across = B[..., :r, :] - xp.matmul(adjoint(self.reflected), B)
        return B[..., r:, :] + xp.matmul(xp.matmul(lower, self.inverse), across)

    def times(self, D: Array) -> Array:
        r"""Return :math:`U_\perp D` for D of shape (n - r, q)."""
        xp, r = namespace(D), self.inverse.shape[0]
        small = xp.matmul(self.inverse, xp.matmul(adjoint(self.reflected[r:, :]), D))
        top = small - xp.matmul(self.reflected[:r, :], small)
        return xp.concat([top, D - xp.matmul(self.reflected[r:, :], small)], axis=0)


class TangentSpace:
    r"""Tangent space at a tensor X of Tucker rank r.

    With :math:`V_k` an orthonormal basis of the row space of :math:`S_{(k)}` and
    :math:`U_{k\perp}` one of the complement of :math:`U_k`, every tangent vector is

    .. math::

        B \times_1 U_1 \cdots \times_d U_d + \sum_k \mathrm{fold}_k(U_{k\perp} D_k V_k^*)
        \times_{j \ne k} U_j

    and its coordinates c = (B, D_1, ..., D_d), as one vector, are orthonormal: norms and inner
    products of tangent vectors equal those of their coordinates.

    Parameters
    ----------
    X : TuckerTensor
        A single tensor, not a batch. If its core is rank-deficient, :math:`V_k` is completed
        arbitrarily: the space is then one of several possible tangent spaces.

    Attributes
    ----------
    X : TuckerTensor
    dof : int
        The dimension, :math:`\prod r_k + \sum r_k (n_k - r_k)` for an attainable rank.

    Examples
    --------
    >>> import lowtucker as lt
    >>> X = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    >>> T = TangentSpace(X)
    >>> T.dof
    22
    >>> lt.metrics.relative_error(T.full(T.here), X.full()) < 1e-14  # X is tangent at X
    True
    """

    def __init__(self, X: TuckerTensor) -> None:
        if not isinstance(X, TuckerTensor):
            raise TypeError(
                f"X must be a TuckerTensor, got {type(X).__name__}. Try lowtucker.hosvd(X, rank)."
            )
        if X.batch_shape:
            raise ValueError(
                f"X must be a single tensor, got a batch of {X.batch_shape}. Try X.trial(0)."
            )
        self.X = X
        self.complements = tuple(Complement.of(U) for U in X.factors)
        self.rows = tuple(_row_space(X.core, k) for k in range(len(X.rank)))
        arms = [(n - r, V.shape[1]) for n, r, V in zip(X.shape, X.rank, self.rows, strict=True)]
        self.blocks: tuple[tuple[int, ...], ...] = (X.rank, *arms)
        self.dof = sum(size(block) for block in self.blocks)

    @property
    def here(self) -> Array:
        """Coordinates of X itself, which is tangent at X: the core, then zeros."""
        core = self.X.core
        xp = namespace(core)
        flat = xp.reshape(core, (size(self.X.rank),))
        return xp.concat([flat, like(np.zeros(self.dof - flat.shape[0]), core, core.dtype)])

    def coordinates(self, Z: Any) -> Array:
        """Return the coordinates of the projection of tensors onto the space.

        Parameters
        ----------
        Z : array, shape (*batch, n_1, ..., n_d), or a single TuckerTensor

        Returns
        -------
        array, shape (*batch, dof)

        Notes
        -----
        Cost: two products of Z with r columns each; the rest operates on their smaller results.
        """
        if isinstance(Z, TuckerTensor):
            self._check_shape((*Z.batch_shape, *Z.shape), one=True)
            return self._coordinates_of_tucker(Z)
        Z = as_float_on(Z, self.X.core, "Z", "X")
        self._check_shape(tuple(Z.shape), one=False)
        d = len(self.X.rank)
        xp = namespace(Z)
        if not size(Z.shape):
            empty = np.zeros((*Z.shape[: Z.ndim - d], self.dof))
            return like(empty, self.X.core, self.X.core.dtype)
        batch = Z.shape[: Z.ndim - d]
        flat = xp.reshape(Z, (size(batch), *Z.shape[Z.ndim - d :]))
        return xp.reshape(self.rows_coordinates(flat), (*batch, self.dof))

    def _check_shape(self, given: tuple[int, ...], *, one: bool) -> None:
        shape = self.X.shape
        if given != shape if one else given[max(0, len(given) - len(shape)) :] != shape:
            hint = " Give a single TuckerTensor, not a batch." if one else ""
            raise ValueError(f"Z must have the shape of X, {shape}, got {given}.{hint}")

    def rows_coordinates(self, Z: Array) -> Array:
        """Compute :meth:`coordinates` of a batch with one leading axis, without checks.

        Only two products operate on all of Z: the last arm and the contraction of the last mode.
        The other modes are contracted one after the other from the smaller result.
        """
        xp, t, d = namespace(Z), Z.shape[0], len(self.X.rank)
        arms: list[Array] = []
        if d > 1:
            last, Z = self._without_last(Z)
            arms = [last]
        for k in range(d - 2, 1, -1):
            arms.insert(0, self._arm(Z, k))
            Z = product(Z, adjoint(self.X.factors[k]), k, 1)
        if d < 3:
            first = xp.reshape(Z, (t, self.X.shape[0], -1))
            left = [xp.matmul(first, self.rows[0])]
            core = xp.matmul(adjoint(self.X.factors[0]), first)
        else:
            left, core = self._two_modes(Z)
        arms = [*left, *arms]
        pairs = zip(self.complements, arms, strict=True)
        parts = [core, *(complement.coordinates(arm) for complement, arm in pairs)]
        return xp.concat([xp.reshape(part, (t, -1)) for part in parts], axis=1)

    def _without_last(self, Z: Array) -> tuple[Array, Array]:
        """Return the last arm of Z and Z x_d U_d^*, both from tiles that stay in the cache."""
        xp, t, n = namespace(Z), Z.shape[0], self.X.shape[-1]
        left, U = self._last, conj(self.X.factors[-1])
        if not is_numpy(Z):
            Z = xp.reshape(Z, (t, -1, n))
            arm, small = xp.matmul(left, Z), xp.matmul(Z, U)
        else:
            rest = size(self.X.shape[:-1])
            dtype = xp.result_type(Z, U)
            arm = xp.empty((t, left.shape[0], n), dtype=dtype)
            small = xp.empty((t, rest, U.shape[1]), dtype=dtype)
            height = max(1, CACHE_BYTES // (Z.dtype.itemsize * rest * n))
            for start in range(0, t, height):
                tile = slice(start, start + height)
                part = Z[tile].reshape(-1, rest, n)
                xp.matmul(part.reshape(-1, n), U, out=small[tile].reshape(-1, U.shape[1]))
                xp.matmul(left, part, out=arm[tile])
        small = xp.reshape(small, (t, *self.X.shape[:-1], U.shape[1]))
        return xp.matrix_transpose(arm), small

    def _arm(self, Z: Array, k: int) -> Array:
        """Return arm k of Z (t, n_1, ..., n_k, r_{k+1}, ..., r_d): (t, n_k, columns of V_k)."""
        xp, t, n = namespace(Z), Z.shape[0], self.X.shape[k]
        matrix = adjoint(self._left(k))
        rest = size(self.X.rank[k + 1 :])
        small = xp.matmul(matrix, xp.reshape(Z, (t, matrix.shape[1], n * rest)))
        small = xp.moveaxis(xp.reshape(small, (t, matrix.shape[0], n, rest)), 2, 1)
        return xp.matmul(xp.reshape(small, (t, n, -1)), self.rows[k])

    def _two_modes(self, Z: Array) -> tuple[list[Array], Array]:
        """Return arms 1 and 2 and the core part of Z (t, n_1, n_2, r_3, ..., r_d)."""
        xp, t = namespace(Z), Z.shape[0]
        (n1, n2), (r1, r2) = self.X.shape[:2], self.X.rank[:2]
        flat = xp.reshape(Z, (t * n1, -1))
        first = xp.reshape(xp.matmul(flat, self._first), (t, n1, -1))
        small = xp.matmul(adjoint(self.X.factors[0]), xp.reshape(Z, (t, n1, -1)))
        small = xp.moveaxis(xp.reshape(small, (t, r1, n2, -1)), 2, 1)
        small = xp.reshape(small, (t, n2, -1))  # (t, n_2, r_1 r_3 ... r_d)
        core = xp.matmul(adjoint(self.X.factors[1]), small)
        core = xp.moveaxis(xp.reshape(core, (t, r2, r1, -1)), 2, 1)
        return [first, xp.matmul(small, self.rows[1])], core

    @cached_property
    def _first(self) -> Array:
        """Contraction of all modes but the first from (n_2, r_3, ..., r_d), with V_1."""
        xp = namespace(self.X.core)
        V, U = self.rows[0], conj(self.X.factors[1])
        split = xp.reshape(V, (U.shape[1], -1))
        return xp.reshape(xp.matmul(U, split), (-1, V.shape[1]))

    @cached_property
    def _last(self) -> Array:
        """Contraction of all modes but the last, with V_d: (columns of V_d, N / n_d)."""
        k = len(self.X.rank) - 1
        xp = namespace(self.X.core)
        return xp.matrix_transpose(xp.matmul(conj(self._left(k)), self.rows[k]))

    def _left(self, k: int) -> Array:
        """Kronecker product of the factors before mode k: (n_1 ... n_{k-1}, r_1 ... r_{k-1})."""
        xp = namespace(self.X.core)
        K = self.X.factors[0]
        for U in self.X.factors[1:k]:
            K = xp.reshape(K[:, None, :, None] * U[None, :, None, :], (K.shape[0] * U.shape[0], -1))
        return K

    def _coordinates_of_tucker(self, Z: TuckerTensor) -> Array:
        """Coordinates from small matrices, without forming the tensor."""
        xp = namespace(self.X.core)
        inner = [xp.matmul(adjoint(U), W) for U, W in zip(self.X.factors, Z.factors, strict=True)]
        parts = []
        for k in (None, *range(len(inner))):
            small = Z.core[None, ...]
            for j, matrix in enumerate(inner):
                small = small if j == k else product(small, matrix, j, 1)
            if k is not None:
                matrix = xp.matmul(unfolded(small, k, 1)[0, ...], self.rows[k])
                small = self.complements[k].coordinates(xp.matmul(Z.factors[k], matrix))
            parts.append(xp.reshape(small, (-1,)))
        return xp.concat(parts)

    def split(self, c: Array) -> list[Array]:
        """Split a coordinate vector into (B, D_1, ..., D_d), each in its shape."""
        if tuple(c.shape) != (self.dof,):
            raise ValueError(f"c must have {self.dof} coordinates, got shape {tuple(c.shape)}.")
        xp, parts, start = namespace(c), [], 0
        for block in self.blocks:
            parts.append(xp.reshape(c[start : start + size(block)], block))
            start += size(block)
        return parts

    def tensor(self, c: Array, *, here: float = 0.0) -> TuckerTensor:
        """Return the tangent vector of coordinates c, plus ``here`` times X, of rank at most 2r.

        Cost: a QR of n_k x r_k for each mode, and a core of (2r)^d numbers.
        """
        xp = namespace(c)
        B, *arms = self.split(c)
        X = self.X
        factors: list[Array] = []
        corners: list[Array | None] = []
        for k, D in enumerate(arms):
            if not size(D.shape):
                factors.append(X.factors[k])
                corners.append(None)
                continue
            Q, R = qr(D)  # orthonormal even if D is rank-deficient
            factors.append(xp.concat([X.factors[k], self.complements[k].times(Q)], axis=1))
            corners.append(xp.matmul(R, adjoint(self.rows[k])))
        core = _placed(B + here * X.core, {}, factors)
        for k, corner in enumerate(corners):
            if corner is not None:
                shape = (*X.rank[:k], corner.shape[0], *X.rank[k + 1 :])
                core = core + _placed(fold(corner, k, shape), {k: X.rank[k]}, factors)
        return TuckerTensor.trusted(core, factors)

    def basis(self) -> Array:
        """Return the tangent vectors of all unit coordinates as arrays, shape (dof, n_1, ..., n_d).

        Memory: dof N numbers.
        """
        xp, X = namespace(self.X.core), self.X
        unit = like(np.eye(size(X.rank)), X.core, X.core.dtype)
        parts = [multi_mode_product(xp.reshape(unit, (-1, *X.rank)), X.factors)]
        for k, U in enumerate(X.factors):
            n, r = U.shape
            if n == r:
                continue
            V = self.rows[k]  # fewer than r columns, if the rank is not attainable
            rows = fold(adjoint(V), k, (*X.rank[:k], V.shape[1], *X.rank[k + 1 :]))
            rows = xp.expand_dims(xp.moveaxis(rows, k, 0), axis=k + 1)
            others = [None if j == k else W for j, W in enumerate(X.factors)]
            wide = multi_mode_product(rows, others)[None, ...]
            outside = self.complements[k].times(like(np.eye(n - r), X.core, X.core.dtype))
            shape = (n - r, 1, *(n if j == k else 1 for j in range(len(X.shape))))
            arm = xp.reshape(xp.matrix_transpose(outside), shape) * wide
            parts.append(xp.reshape(arm, (-1, *X.shape)))
        return xp.concat(parts, axis=0)

    def full(self, c: Array) -> Array:
        """Return the tangent vector of coordinates c as an array."""
        return self.tensor(c).full()

    def retract(self, c: Array) -> TuckerTensor:
        r"""Return :math:`H_r(X + \xi)` for the tangent vector of coordinates c.

        X plus a tangent vector has rank at most 2r, so the HOSVD is that of a core of (2r)^d
        numbers, exactly.
        """
        return hosvd(self.tensor(c, here=1.0), self.X.rank, warn=False)

    def __repr__(self) -> str:
        return f"TangentSpace of dimension {self.dof} at {self.X!r}"


def _row_space(core: Array, k: int) -> Array:
    """Orthonormal basis of the row space of S_(k), completed if it is rank-deficient."""
    return adjoint(svd(unfolded(core, k, 0))[2])


def _placed(block: Array, offsets: dict[int, int], factors: list[Array]) -> Array:
    """Place a block into a core of zeros, at given offsets."""
    xp = namespace(block)
    for mode, U in enumerate(factors):
        before = offsets.get(mode, 0)
        after = U.shape[1] - before - block.shape[mode]
        shape = list(block.shape)
        parts = []
        for length in (before, after):
            shape[mode] = length
            parts.append(like(np.zeros(shape), block, block.dtype))
        block = xp.concat([parts[0], block, parts[1]], axis=mode)
    return block
