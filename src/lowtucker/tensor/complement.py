"""Bases of the complements of orthonormal columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lowtucker._array import Array, adjoint, like, namespace
from lowtucker._array.linalg import inv, qr, svd

__all__ = ["Complement", "ShortComplement", "complement_of"]

# Vectors of so many entries, or so many times the rank, are multiplied by a complement as a matrix
SHORT, MOST_FACTORED = 12, 4


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

    reflected: Array  # U~, shape (*batch, n, r)
    inverse: Array  # (I - U~_1)^-1, shape (*batch, r, r)

    @classmethod
    def of(cls, U: Array) -> Complement:
        """Return the complement of orthonormal columns, or those of a batch."""
        xp, r = namespace(U), U.shape[-1]
        W, _, Vh = svd(U[..., :r, :])
        reflected = -xp.matmul(U, adjoint(xp.matmul(W, Vh)))
        unit = like(np.eye(r), U, U.dtype)
        return cls(reflected, inv(unit - reflected[..., :r, :]))

    def coordinates(self, B: Array) -> Array:
        r"""Return :math:`U_\perp^* B` for B of shape (*batch, n, q), or (*batch, t, n, q)."""
        xp, r = namespace(B), self.inverse.shape[-1]
        mixed, reflected = self._mixed, adjoint(self.reflected)
        if reflected.ndim > 2 and B.ndim > reflected.ndim:
            mixed, reflected = mixed[..., None, :, :], reflected[..., None, :, :]
        across = B[..., :r, :] - xp.matmul(reflected, B)
        return B[..., r:, :] + xp.matmul(mixed, across)

    @cached_property
    def _mixed(self) -> Array:
        r"""The part of :math:`\tilde U` below the first r rows, times the inverse."""
        xp, r = namespace(self.reflected), self.inverse.shape[-1]
        return xp.matmul(self.reflected[..., r:, :], self.inverse)

    def times(self, D: Array) -> Array:
        r"""Return :math:`U_\perp D` for D of shape (*batch, n - r, q)."""
        xp, r = namespace(D), self.inverse.shape[-1]
        upper, lower = self.reflected[..., :r, :], self.reflected[..., r:, :]
        small = xp.matmul(self.inverse, xp.matmul(adjoint(lower), D))
        return xp.concat([small - xp.matmul(upper, small), D - xp.matmul(lower, small)], axis=-2)

    def map(self, function: Callable[..., Array], *others: Complement) -> Complement:
        """Apply a function to each array, together with those of others."""
        reflected = function(self.reflected, *(one.reflected for one in others))
        return Complement(reflected, function(self.inverse, *(one.inverse for one in others)))


@dataclass(frozen=True, repr=False, eq=False)
class ShortComplement:
    r"""Orthonormal basis :math:`U_\perp` of the complement of the columns of U, as a matrix.

    For short columns: n (n - r) numbers, and one product instead of several.
    """

    outside: Array  # shape (*batch, n, n - r)

    @classmethod
    def of(cls, U: Array) -> ShortComplement:
        """Return the complement of orthonormal columns, or those of a batch."""
        return cls(qr(U, complete=True)[0][..., U.shape[-1] :])

    def coordinates(self, B: Array) -> Array:
        r"""Return :math:`U_\perp^* B` for B of shape (*batch, n, q), or (*batch, t, n, q)."""
        onto = adjoint(self.outside)
        if onto.ndim > 2 and B.ndim > onto.ndim:
            onto = onto[..., None, :, :]
        return namespace(B).matmul(onto, B)

    def times(self, D: Array) -> Array:
        r"""Return :math:`U_\perp D` for D of shape (*batch, n - r, q)."""
        return namespace(D).matmul(self.outside, D)

    def map(self, function: Callable[..., Array], *others: ShortComplement) -> ShortComplement:
        """Apply a function to the array, together with those of others."""
        return ShortComplement(function(self.outside, *(one.outside for one in others)))


def complement_of(U: Array) -> Any:
    """Complement of orthonormal columns, or those of a batch: a matrix where they are short."""
    n, r = U.shape[-2:]
    return ShortComplement.of(U) if n <= SHORT or n <= MOST_FACTORED * r else Complement.of(U)
