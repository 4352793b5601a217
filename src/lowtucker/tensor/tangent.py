"""Tangent spaces of the tensors of fixed Tucker rank: coordinates, projection, retraction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    adjoint,
    as_float_on,
    conj,
    is_numpy,
    like,
    moved_axis,
    namespace,
    reshaped,
    size,
)
from lowtucker._array.linalg import qr
from lowtucker.tensor.complement import ShortComplement, complement_of
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.kernels import in_order, kronecker, two_products
from lowtucker.tensor.products import product
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.tensor.unfolding import unfolded

__all__ = ["TangentSpace"]

# Last modes that are shorter make slow products: the first is then contracted first, in tensors of
# many entries. 1.1 to 2.3 times as fast on 12^4, 10^5, 100x100x3, 60x60x10 and 64x64x8; 0.8 to 1.2
# on tensors of up to 4000 entries
SHORT_LAST, MANY_ENTRIES = 16, 10**4


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
        A single tensor, or a batch with one leading axis: then a tangent space for each, and
        coordinates of shape (batch, dof). If a core is rank-deficient, :math:`V_k` is completed
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
        if len(X.batch_shape) > 1:
            raise ValueError(
                f"X must be a single tensor or a batch with one leading axis, got {X.batch_shape}."
            )
        self.X = X
        self.complements: tuple[Any, ...] = tuple(complement_of(U) for U in X.factors)
        self.rows = tuple(_row_space(X.core, k, len(X.rank)) for k in range(len(X.rank)))
        arms = [(n - r, V.shape[-1]) for n, r, V in zip(X.shape, X.rank, self.rows, strict=True)]
        self.blocks: tuple[tuple[int, ...], ...] = (X.rank, *arms)
        self.dof = sum(size(block) for block in self.blocks)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axis of a batch of spaces; () for one."""
        return self.X.batch_shape

    def take(self, which: Any) -> TangentSpace:
        """Return some spaces of a batch, by position; one space, without the axis, for an int."""
        if isinstance(which, int):
            X = self.X.trial(which)

            def some(x: Array) -> Array:
                return x[which, ...]
        else:
            X = self.X.take(which)

            def some(x: Array) -> Array:
                return namespace(x).take(x, like(np.asarray(which), x), axis=0)

        return self._of(X, some)

    @classmethod
    def concat(cls, spaces: Sequence[TangentSpace]) -> TangentSpace:
        """Join batches of spaces of one shape and rank along the leading axis."""
        first, *others = spaces
        X = TuckerTensor.concat([space.X for space in spaces])
        return first._of(X, lambda *x: namespace(*x).concat(x), *others)

    def _of(
        self, X: TuckerTensor, function: Callable[..., Array], *others: TangentSpace
    ) -> TangentSpace:
        """Space at X whose bases are a function of these and of others, which are not computed."""
        made = object.__new__(TangentSpace)
        made.X, made.blocks, made.dof = X, self.blocks, self.dof
        every = (self, *others)
        made.rows = tuple(map(function, *(T.rows for T in every)))
        made.complements = tuple(
            first.map(function, *rest)
            for first, *rest in zip(*(T.complements for T in every), strict=True)
        )
        return made

    @property
    def here(self) -> Array:
        """Coordinates of X itself, which is tangent at X: the core, then zeros."""
        core, batch = self.X.core, self.batch_shape
        xp = namespace(core)
        flat = xp.reshape(core, (*batch, size(self.X.rank)))
        zeros = like(np.zeros((*batch, self.dof - flat.shape[-1])), core, core.dtype)
        return xp.concat([flat, zeros], axis=-1)

    def coordinates(self, Z: Any) -> Array:
        """Return the coordinates of the projection of tensors onto the space.

        Parameters
        ----------
        Z : array, shape (*batch, n_1, ..., n_d), or TuckerTensor
            For a batch of spaces, one tensor for each. For one space any batch of arrays, or one
            TuckerTensor.

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
        self._check_shape(tuple(Z.shape), one=bool(self.batch_shape))
        xp, batch = namespace(Z), Z.shape[: Z.ndim - len(self.X.rank)]
        if not size(Z.shape):
            return like(np.zeros((*batch, self.dof)), self.X.core, self.X.core.dtype)
        if self.batch_shape:
            return self.rows_coordinates(xp.expand_dims(Z, axis=1))[:, 0, :]
        flat = xp.reshape(Z, (size(batch), *self.X.shape))
        return xp.reshape(self.rows_coordinates(flat), (*batch, self.dof))

    def _check_shape(self, given: tuple[int, ...], *, one: bool) -> None:
        shape = (*self.batch_shape, *self.X.shape)
        if given != shape if one else given[max(0, len(given) - len(shape)) :] != shape:
            hint = " Give one tensor for each tangent space." if one else ""
            raise ValueError(f"Z must have the shape of X, {shape}, got {given}.{hint}")

    def rows_coordinates(self, Z: Array) -> Array:
        """Compute coordinates of many tensors in every space of a batch, without checks.

        Parameters
        ----------
        Z : array, shape (t, n_1, ..., n_d) or (batch, t, n_1, ..., n_d)
            The same tensors for all spaces, which are read once for all of them, or others for
            each.

        Returns
        -------
        array, shape (*batch, t, dof)

        Notes
        -----
        Only two products operate on all of Z: the last arm and the contraction of the last mode, or
        those of the first, where the last is short. The other modes are contracted one after the
        other from the smaller result.
        """
        xp, d = namespace(Z), len(self.X.rank)
        if self._begins_with_first:
            return self._after_first(Z)
        if d == 1:  # nothing to contract
            Z = Z if Z.ndim == len(self.batch_shape) + 2 else Z[None, ...]
        arms: list[Array] = []
        if d > 1:
            last, Z = self._without_last(Z)
            arms = [last]
        lead = (*self.batch_shape, Z.shape[-d - 1])  # of a batch, and the tensors
        for k in range(d - 2, 1, -1):
            arms.insert(0, self._arm(Z, k, lead))
            Z = product(Z, self._along(adjoint(self.X.factors[k])), k, len(lead))
        if d < 3:
            first = xp.reshape(Z, (*Z.shape[: Z.ndim - d], self.X.shape[0], -1))
            left = [xp.matmul(first, self._along(self.rows[0]))]
            core = xp.matmul(self._along(adjoint(self.X.factors[0])), first)
        else:
            left, core = self._two_modes(Z, lead)
        arms = [*left, *arms]
        pairs = zip(self.complements, arms, strict=True)
        parts = [core, *(complement.coordinates(arm) for complement, arm in pairs)]
        return xp.concat([xp.reshape(part, (*lead, -1)) for part in parts], axis=-1)

    def _along(self, matrix: Array) -> Array:
        """Matrix that multiplies every tensor of a space."""
        return matrix[:, None, :, :] if self.batch_shape else matrix

    @property
    def _begins_with_first(self) -> bool:
        """Whether the first mode is contracted first."""
        shape = self.X.shape
        large = len(shape) > 2 and size(shape) >= MANY_ENTRIES
        return large and shape[-1] < SHORT_LAST and self.X.rank[0] < shape[0] >= shape[-1]

    def _after_first(self, Z: Array) -> Array:
        """Coordinates by the first arm of Z, and those of Z x_1 U_1^* in a smaller space."""
        xp, n, rest = namespace(Z), self.X.shape[0], size(self.X.shape[1:])
        Z = xp.reshape(Z, (*Z.shape[: Z.ndim - len(self.X.rank)], n, rest))
        small, arm = self._both_products(Z, adjoint(self.X.factors[0]), self._head)
        inner = self._inner
        found = inner.rows_coordinates(xp.reshape(small, (*small.shape[:-2], *inner.X.shape)))
        arm, core = self.complements[0].coordinates(arm), size(self.X.rank)
        flat = xp.reshape(arm, (*found.shape[:-1], size(self.blocks[1])))
        return xp.concat([found[..., :core], flat, found[..., core:]], axis=-1)

    @cached_property
    def _inner(self) -> TangentSpace:
        """Space of the tensors X x_1 U_1^*, which has no arm in mode 1."""
        X, r = self.X, self.X.rank[0]
        unit = namespace(X.core).broadcast_to(
            like(np.eye(r), X.core, X.core.dtype), (*self.batch_shape, r, r)
        )
        made = object.__new__(TangentSpace)
        made.X, made.rows = TuckerTensor.trusted(X.core, [unit, *X.factors[1:]]), self.rows
        made.complements = (ShortComplement(unit[..., :0]), *self.complements[1:])
        made.blocks = (self.blocks[0], (0, self.blocks[1][1]), *self.blocks[2:])
        made.dof = self.dof - size(self.blocks[1])
        return made

    @cached_property
    def _head(self) -> Array:
        """Contraction of all modes but the first, with V_1: (N / n_1, columns of V_1)."""
        xp = namespace(self.X.core)
        return xp.matmul(conj(kronecker(self.X.factors[1:])), self.rows[0])

    def _without_last(self, Z: Array) -> tuple[Array, Array]:
        """Return the last arm of Z and Z x_d U_d^*, both from tiles that stay in the cache."""
        xp, shape = namespace(Z), self.X.shape
        U = conj(self.X.factors[-1])
        Z = xp.reshape(Z, (*Z.shape[: Z.ndim - len(shape)], size(shape[:-1]), shape[-1]))
        arm, small = self._both_products(Z, self._last, U)
        small = xp.reshape(small, (*small.shape[:-2], *shape[:-1], U.shape[-1]))
        return xp.matrix_transpose(arm), small

    def _both_products(self, Z: Array, left: Array, right: Array) -> tuple[Array, Array]:
        """Return left Z_j and Z_j right for all tensors, in every space.

        Z has shape (t, p, n), or (batch, t, p, n); left (*batch, q, p), right (*batch, n, r).
        """
        if not self.batch_shape or Z.ndim == 4:
            return two_products(Z, left, right)
        xp, s = namespace(Z), self.batch_shape[0]  # wide products with the same tensors
        (p, n), q, r = Z.shape[-2:], left.shape[-2], right.shape[-1]
        wide = xp.reshape(xp.moveaxis(right, 0, 1), (n, s * r))
        above, beside = two_products(Z, xp.reshape(left, (s * q, p)), wide)
        above = xp.moveaxis(xp.reshape(above, (-1, s, q, n)), 1, 0)
        return above, xp.moveaxis(xp.reshape(beside, (-1, p, s, r)), 2, 0)

    def _arm(self, Z: Array, k: int, lead: tuple[int, ...]) -> Array:
        """Return arm k of Z (*lead, n_1, ..., n_k, r_{k+1}, ..., r_d): (*lead, n_k, q)."""
        xp, n = namespace(Z), self.X.shape[k]
        matrix = self._along(adjoint(self._left(k)))
        rest = size(self.X.rank[k + 1 :])
        small = xp.matmul(matrix, xp.reshape(Z, (*lead, matrix.shape[-1], n * rest)))
        small = xp.moveaxis(xp.reshape(small, (*lead, matrix.shape[-2], n, rest)), -2, -3)
        return xp.matmul(xp.reshape(small, (*lead, n, -1)), self._along(self.rows[k]))

    def _two_modes(self, Z: Array, lead: tuple[int, ...]) -> tuple[list[Array], Array]:
        """Return arms 1 and 2 and the core part of Z (*lead, n_1, n_2, r_3, ..., r_d)."""
        xp = namespace(Z)
        (n1, n2), (r1, r2) = self.X.shape[:2], self.X.rank[:2]
        flat = xp.reshape(Z, (*lead[:-1], lead[-1] * n1, -1))
        first = xp.reshape(xp.matmul(flat, self._first), (*lead, n1, -1))
        small = xp.matmul(self._along(adjoint(self.X.factors[0])), xp.reshape(Z, (*lead, n1, -1)))
        small = xp.moveaxis(xp.reshape(small, (*lead, r1, n2, -1)), -2, -3)
        small = xp.reshape(small, (*lead, n2, -1))  # n_2 x r_1 r_3 ... r_d
        core = xp.matmul(self._along(adjoint(self.X.factors[1])), small)
        core = xp.moveaxis(xp.reshape(core, (*lead, r2, r1, -1)), -2, -3)
        return [first, xp.matmul(small, self._along(self.rows[1]))], core

    @cached_property
    def _first(self) -> Array:
        """Contraction of all modes but the first from (n_2, r_3, ..., r_d), with V_1."""
        xp = namespace(self.X.core)
        V, U = self.rows[0], conj(self.X.factors[1])
        split = xp.reshape(V, (*self.batch_shape, U.shape[-1], -1))
        return xp.reshape(xp.matmul(U, split), (*self.batch_shape, -1, V.shape[-1]))

    @cached_property
    def _last(self) -> Array:
        """Contraction of all modes but the last, with V_d: (columns of V_d, N / n_d)."""
        k = len(self.X.rank) - 1
        xp = namespace(self.X.core)
        return xp.matrix_transpose(xp.matmul(conj(self._left(k)), self.rows[k]))

    def _left(self, k: int) -> Array:
        """Kronecker product of the factors before mode k: (n_1 ... n_{k-1}, r_1 ... r_{k-1})."""
        return kronecker(self.X.factors[:k])

    def _coordinates_of_tucker(self, Z: TuckerTensor) -> Array:
        """Coordinates from small matrices, without forming the tensor."""
        xp, batch = namespace(self.X.core), self.batch_shape
        inner = [xp.matmul(adjoint(U), W) for U, W in zip(self.X.factors, Z.factors, strict=True)]
        parts = []
        for k in (None, *range(len(inner))):
            small = Z.core
            for j, matrix in enumerate(inner):
                small = small if j == k else product(small, matrix, j, len(batch))
            if k is not None:
                matrix = xp.matmul(unfolded(small, k, len(batch)), self.rows[k])
                small = self.complements[k].coordinates(xp.matmul(Z.factors[k], matrix))
            parts.append(xp.reshape(small, (*batch, -1)))
        return xp.concat(parts, axis=-1)

    def split(self, c: Array) -> list[Array]:
        """Split coordinate vectors into (B, D_1, ..., D_d), each in its shape."""
        if tuple(c.shape) != (*self.batch_shape, self.dof):
            wanted = (*self.batch_shape, self.dof)
            raise ValueError(f"c must have shape {wanted}, one coordinate each, got {c.shape}.")
        xp, parts, start = namespace(c), [], 0
        for block in self.blocks:
            part = c[..., start : start + size(block)]
            parts.append(xp.reshape(part, (*self.batch_shape, *block)))
            start += size(block)
        return parts

    def transported(self, c: Array, other: TangentSpace) -> Array:
        """Return the coordinates here of tangent vectors of another space, projected.

        Both spaces are single ones, of the same shape.

        Parameters
        ----------
        c : array, shape (t, dof of the other space)
            Coordinates there.
        other : TangentSpace

        Returns
        -------
        array, shape (t, dof)

        Notes
        -----
        By products of small matrices, never a full tensor: O(t sum n_k r_k^2) flops and O(t dof)
        numbers, and t cores of d^2 products each.

        Examples
        --------
        >>> import numpy as np, lowtucker as lt
        >>> X, Y = (lt.random_tucker((5, 5, 6), (1, 2, 2), seed=k) for k in range(2))
        >>> here, there = TangentSpace(X), TangentSpace(Y)
        >>> moved = here.transported(np.eye(there.dof), there)
        >>> bool(np.allclose(moved, here.coordinates(there.basis())))
        True
        """
        xp, d, t, rank = namespace(c), len(self.X.rank), c.shape[0], other.X.rank
        U, W = self.X.factors, other.X.factors
        turns = [xp.matmul(adjoint(one), two) for one, two in zip(U, W, strict=True)]
        B, arms = other._blocks_of(c)
        outside = [C.times(D) for C, D in zip(other.complements, arms, strict=True)]
        # what lies in the other factors, but for one mode, where it lies in the factor of X
        beside = []
        for k, D in enumerate(outside):
            small = xp.matmul(xp.matmul(adjoint(U[k]), D), adjoint(other.rows[k]))
            small = xp.reshape(small, (t, small.shape[1], *rank[:k], *rank[k + 1 :]))
            beside.append(xp.moveaxis(small, 1, k + 1))
        parts = []
        for k in (None, *range(d)):
            core = _turned(B, turns, (k,))
            for j, small in enumerate(beside):
                core = core if j == k else core + _turned(small, turns, (j, k))
            if k is not None:
                V = xp.reshape(adjoint(other.rows[k]), (-1, *rank[:k], *rank[k + 1 :]))
                V = _turned(V, turns[:k] + turns[k + 1 :], ())
                V = xp.matmul(xp.reshape(V, (V.shape[0], -1)), self.rows[k])
                arm = xp.matmul(W[k], xp.matmul(unfolded(core, k, 1), self.rows[k]))
                core = self.complements[k].coordinates(arm + xp.matmul(outside[k], V))
            parts.append(xp.reshape(core, (t, size(core.shape[1:]))))
        return xp.concat(parts, axis=-1)

    def _blocks_of(self, c: Array) -> tuple[Array, list[Array]]:
        """Split many coordinate vectors (t, dof) of one space into B and D_1, ..., D_d."""
        xp, parts, start = namespace(c), [], 0
        for block in self.blocks:
            parts.append(xp.reshape(c[:, start : start + size(block)], (c.shape[0], *block)))
            start += size(block)
        return parts[0], parts[1:]

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
            factors.append(xp.concat([X.factors[k], self.complements[k].times(Q)], axis=-1))
            corners.append(xp.matmul(R, adjoint(self.rows[k])))
        blocks: list[tuple[Array, int | None]] = [(B + here * X.core if here else B, None)]
        for k, corner in enumerate(corners):
            if corner is not None:
                shape = (*self.batch_shape, corner.shape[-2], *X.rank[:k], *X.rank[k + 1 :])
                first = len(self.batch_shape)
                moved = moved_axis(reshaped(corner, shape), first, first + k)
                blocks.append((moved, k))
        return TuckerTensor.trusted(self._core(blocks, factors), factors)

    def _core(self, blocks: list[tuple[Array, int | None]], factors: list[Array]) -> Array:
        """Core of a tangent vector: its part in the factors of X, and one beside it in each mode.

        A block is given with the mode that it lies beside in; None for the first.
        """
        wide, rank = tuple(U.shape[-1] for U in factors), self.X.rank
        if is_numpy(factors[0]):
            dtype = np.result_type(*(block for block, _ in blocks))
            core = np.zeros((*self.batch_shape, *wide), dtype=dtype)
            for block, k in blocks:
                inside: Any = [slice(0, r) for r in rank]
                if k is not None:
                    inside[k] = slice(rank[k], wide[k])
                core[(..., *inside)] = block
            return core
        placed = [_placed(block, {} if k is None else {k: rank[k]}, wide) for block, k in blocks]
        return sum(placed[1:], placed[0])

    def basis(self) -> Array:
        """Return the tangent vectors of all unit coordinates, shape (*batch, dof, n_1, ..., n_d).

        Memory: dof N numbers for each space.
        """
        xp, X, batch = namespace(self.X.core), self.X, self.batch_shape
        rows = [in_order(xp.matrix_transpose(U)) for U in X.factors]
        parts = [kronecker(rows)]
        for k, (n, r) in enumerate(zip(X.shape, X.rank, strict=True)):
            if n == r:
                continue
            W = in_order(
                adjoint(self.rows[k])
            )  # of fewer than r rows, if the rank is not attainable
            W = xp.matmul(W, kronecker(rows[:k] + rows[k + 1 :])) if rows[1:] else W
            unit = xp.broadcast_to(like(np.eye(n), X.core, X.core.dtype), (*batch, n, n))
            outside = in_order(conj(self.complements[k].coordinates(unit)))
            left, right, q = size(X.shape[:k]), size(X.shape[k + 1 :]), W.shape[-2]
            # axes: a column outside the factor, a row W; then modes before, of, and after k
            W = xp.reshape(W, (*batch, 1, q, left, 1, right))
            outside = xp.reshape(outside, (*batch, n - r, 1, 1, n, 1))
            parts.append(xp.reshape(outside * W, (*batch, (n - r) * q, left * n * right)))
        return xp.reshape(xp.concat(parts, axis=-2), (*batch, self.dof, *X.shape))

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


def _row_space(core: Array, k: int, order: int) -> Array:
    """Orthonormal basis of the row space of S_(k), completed if it is rank-deficient."""
    return qr(adjoint(unfolded(core, k, core.ndim - order)))[0]


def _turned(core: Array, matrices: Sequence[Array], without: tuple[int | None, ...]) -> Array:
    """Multiply cores (t, r_1, ..., r_d) by a matrix in every mode but some."""
    for k, matrix in enumerate(matrices):
        core = core if k in without else product(core, matrix, k, 1)
    return core


def _placed(block: Array, offsets: dict[int, int], wide: tuple[int, ...]) -> Array:
    """Place a block into a core of zeros of shape ``wide``, at given offsets."""
    xp, d = namespace(block), len(wide)
    batch = block.shape[: block.ndim - d]
    for mode, n in enumerate(wide):
        before, axis = offsets.get(mode, 0), len(batch) + mode
        lengths = (before, n - before - block.shape[axis])
        shapes = [(*block.shape[:axis], length, *block.shape[axis + 1 :]) for length in lengths]
        zeros = [like(np.zeros(one), block, block.dtype) for one in shapes]
        block = xp.concat([zeros[0], block, zeros[1]], axis=axis)
    return block
