"""Weighted rows of a regression: canonical order, centring, hold-out and compression."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtucker._array.linalg import qr

__all__ = ["Centred", "Data", "digests", "in_own_order", "is_held", "joined", "parted"]

NumPyArray = np.ndarray[Any, Any]
# One row in so many is held out where the rank is searched for
HELD = 5
# Number of rows that are centred at a time
BLOCK = 256


@dataclass(frozen=True)
class Data:
    r"""Rows :math:`\sqrt{w_i}\,(1, x_i, y_i)`, whose least-squares fit needs no weights.

    Orthogonal combinations of such rows define the same fit, so n need not exceed N + 1 plus the
    number of targets.

    Attributes
    ----------
    root : array, shape (n,)
    X : array, shape (n, N)
    Y : array, shape (n, t)
    count : int
        Number of original rows.
    """

    root: NumPyArray
    X: NumPyArray
    Y: NumPyArray
    count: int

    @property
    def is_plain(self) -> bool:
        """Whether the rows are original rows, not combinations of them."""
        return self.count == len(self.root)

    def compressed(self) -> Data:
        """Replace the rows by their triangular factor, if it has less than half as many."""
        width = 1 + self.X.shape[1] + self.Y.shape[1]
        if len(self.root) <= 2 * width:
            return self
        joint = np.concatenate([self.root[:, None], self.X, self.Y], axis=1)
        _, R = qr(joint)
        root, X, Y = np.split(R, [1, 1 + self.X.shape[1]], axis=1)
        return Data(root[:, 0].copy(), X.copy(), Y.copy(), self.count)

    def centred(self, intercept: bool, *, in_place: bool = False) -> Centred:
        """Subtract the means if there is an intercept. Copies X unless ``in_place``."""
        total = float(self.root @ self.root)
        if not intercept or not total:
            means = np.zeros(self.X.shape[1]), np.zeros(self.Y.shape[1])
            return Centred(self.X, self.Y, *means, self.count, self.is_plain)
        mean_x = self.root @ self.X / total
        # one by one: a target must not depend on the others, not even by rounding
        mean_y = np.array([self.root @ y.copy() for y in self.Y.T]) / total
        X = self.X if in_place else self.X.copy()
        for start in range(0, len(X), BLOCK):  # avoids a temporary array of the size of X
            some = slice(start, start + BLOCK)
            X[some] -= self.root[some, None] * mean_x
        Y = self.Y - self.root[:, None] * mean_y
        return Centred(X, Y, mean_x, mean_y, self.count, self.is_plain)


@dataclass(frozen=True)
class Centred:
    """Centred rows, and the means that give the intercept."""

    X: NumPyArray
    Y: NumPyArray
    mean_x: NumPyArray
    mean_y: NumPyArray
    count: int
    is_plain: bool


def in_own_order(X: NumPyArray, Y: NumPyArray, weights: NumPyArray) -> tuple[Data, NumPyArray]:
    """Return the rows in an order that does not depend on the input order, and their digests.

    Sorts by digests of X, so that successive rows are practically random. Drops rows of weight
    zero and merges rows of equal X, with the sum of the weights and the mean of y: the
    least-squares problem is the same. One copy of X.
    """
    counting = np.flatnonzero(weights)
    digest = digests(X)[counting]
    X, Y, weights = (a if len(counting) == len(a) else a[counting] for a in (X, Y, weights))
    order = np.lexsort((weights, *Y.T[::-1], digest[:, 1], digest[:, 0]))
    digest, w, Y = digest[order], weights[order], Y[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any(digest[1:] != digest[:-1], axis=1)
    first = np.flatnonzero(new)
    total = np.add.reduceat(w, first)
    base = Y[first]
    # relative to the first: the mean of equal numbers is exactly that number
    more = np.add.reduceat(w[:, None] * (Y - base[np.cumsum(new) - 1]), first)
    root = np.sqrt(total)
    rows = X[order[first]]
    if np.any(root != 1):
        rows *= root[:, None]
    means = base + more / total[:, None]
    return Data(root, rows, root[:, None] * means, len(root)), digest[first, 0]


def digests(X: NumPyArray) -> NumPyArray:
    """Return 128-bit digests of the rows, shape (n, 2). One pass over X."""
    # -0.0 + 0.0 is 0.0
    made = [hashlib.sha1(row + 0.0, usedforsecurity=False).digest()[:16] for row in X]
    return np.frombuffer(b"".join(made), dtype=np.uint64).reshape(-1, 2)


def is_held(digest: NumPyArray) -> NumPyArray:
    """Mask of held-out rows, by their digests: independent of how rows are batched."""
    mask: NumPyArray = digest % np.uint64(HELD) == 0
    return mask


def parted(data: Data, digest: NumPyArray) -> list[Data]:
    """Split the rows into those that are held out, and the others."""
    held = is_held(digest)
    chosen = [np.flatnonzero(mask) for mask in (held, ~held)]
    return [Data(data.root[i], data.X[i], data.Y[i], len(i)) for i in chosen]


def joined(parts: Sequence[Data]) -> Data:
    """Concatenate the rows of all parts."""
    if len(parts) == 1:
        return parts[0]
    return Data(
        np.concatenate([part.root for part in parts]),
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.Y for part in parts]),
        sum(part.count for part in parts),
    )
