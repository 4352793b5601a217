"""Tucker ranks: checks, numerical ranks and degrees of freedom."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

from lowtucker._array import (
    Array,
    all_finite,
    as_float,
    as_number,
    as_shape,
    as_tensor,
    as_tuple,
    eps,
    to_numpy,
)
from lowtucker._array.errors import RankWarning, warn_caller
from lowtucker._array.linalg import svdvals
from lowtucker.tensor.unfolding import unfold

__all__ = [
    "Spectra",
    "attainable_rank",
    "check_rank",
    "degrees_of_freedom",
    "multilinear_rank",
    "per_mode",
    "spectra",
]


def attainable_rank(rank: tuple[int, ...]) -> tuple[int, ...]:
    r"""Return the largest Tucker rank, at most ``rank``, that a tensor can have.

    The mode-k unfolding of the core has :math:`\prod_{j \ne k} r_j` columns, so no
    :math:`r_k` exceeds the product of the others.

    Examples
    --------
    >>> attainable_rank((1, 1, 2))
    (1, 1, 1)
    >>> attainable_rank((2, 2, 3))
    (2, 2, 3)
    """
    return _attainable(_as_integers(rank))


def _attainable(rank: tuple[int, ...]) -> tuple[int, ...]:
    """Compute :func:`attainable_rank`: only the largest entry can exceed the product of others."""
    largest = max(rank)
    k, others = rank.index(largest), math.prod(rank) // largest
    return rank if largest <= others else (*rank[:k], others, *rank[k + 1 :])


def per_mode(rank: Any, shape: tuple[int, ...] | None) -> Any:
    """Rank r of a matrix as its Tucker rank (r, r), of a vector as (r,); any other rank as it is.

    Examples
    --------
    >>> per_mode(3, (30, 20)), per_mode((3, 3, 3), (30, 20, 10))
    ((3, 3), (3, 3, 3))
    """
    is_number = isinstance(rank, numbers.Integral) and not isinstance(rank, bool)
    return (int(rank),) * len(shape) if is_number and shape and len(shape) <= 2 else rank


def _example(entries: tuple[Any, ...]) -> tuple[int, ...]:
    """The given rank if its numbers are whole, as in (2.0, 2.0, 1.0); another one otherwise."""
    known = [type(r) in (int, float) and r >= 1 and r % 1 == 0 for r in entries]
    return tuple(map(int, entries)) if len(known) > 1 and all(known) else (3, 3, 2)


def _as_integers(rank: Any, shape: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Check a rank, against a shape if given, and return a tuple of positive integers."""
    if type(rank) is tuple and rank and all(type(r) is int and r > 0 for r in rank):
        most = rank if shape is None else shape
        if len(rank) == len(most) and all(r <= n for r, n in zip(rank, most, strict=True)):
            return rank  # checked before: the abstract classes of numbers take microseconds
    rank = per_mode(rank, shape)
    if isinstance(rank, numbers.Integral) and not isinstance(rank, bool):
        example = (int(rank),) * (3 if shape is None else len(shape))
        raise TypeError(
            f"rank must have one entry per mode, got the number {rank}. Try rank={example}."
        )
    entries = as_tuple(rank)
    entries = (None,) if entries is None else entries
    if not all(isinstance(r, numbers.Integral) and not isinstance(r, bool) for r in entries):
        raise TypeError(
            f"rank must be a tuple of integers, got {rank!r}. Try rank={_example(entries)}."
        )
    if len(entries) != len(shape or entries) or not entries:
        of = "" if shape is None else f", for a tensor of {len(shape)} modes, shape {shape}"
        raise ValueError(
            f"rank must have one entry per mode: got {len(entries)} entries, {rank!r}{of}."
        )
    for k, r in enumerate(entries):
        if r < 1 or (shape is not None and r > shape[k]):
            bounds = "at least 1" if shape is None else (
                f"between 1 and {shape[k]}, the size of mode {k} of shape {shape}"
            )  # fmt: skip
            raise ValueError(f"rank[{k}] = {r} must be {bounds}.")
    return tuple(int(r) for r in entries)


def check_rank(
    rank: Any, shape: tuple[int, ...] | None = None, *, warn: bool = True
) -> tuple[int, ...]:
    """Check a Tucker rank, against a shape if given, and return it as a tuple.

    Raises
    ------
    TypeError, ValueError
        The rank is not one integer per mode, or an entry is outside 1..n_k.

    Warns
    -----
    RankWarning
        An entry exceeds the product of the others: no tensor has that rank. The message names
        the attainable one.
    """
    checked = _as_integers(rank, shape)
    attained = _attainable(checked)
    if warn and attained != checked:
        warn_caller(
            f"No tensor has Tucker rank {checked}: an entry cannot exceed the product of the "
            f"others. The result has rank {attained} at most; try rank={attained}.",
            RankWarning,
        )
    return checked


def degrees_of_freedom(shape: tuple[int, ...], rank: Any) -> int:
    r"""Return the dimension of the set of tensors of ``shape`` with Tucker rank ``rank``.

    .. math:: \mathrm{dof} = \prod_k r_k + \sum_k r_k (n_k - r_k)

    It is a lower bound on the number of measurements that recovery needs, and a natural unit for
    it. A rank that no tensor attains counts as the attainable one.

    Parameters
    ----------
    shape : tuple of int
    rank : tuple of int, or a Thresholding
        A thresholding counts the degrees of freedom of its own format.

    Examples
    --------
    >>> degrees_of_freedom((5, 5, 6), (1, 2, 2))
    22
    >>> from lowtucker import Sparse
    >>> degrees_of_freedom((5, 5, 6), Sparse(7))
    7
    """
    shape = as_shape(shape)
    if isinstance(rank, type):
        raise TypeError(
            f"rank must be a tuple of integers or a thresholding, got the class {rank.__name__}. "
            f"Try {rank.__name__}(3)."
        )
    if callable(getattr(rank, "degrees_of_freedom", None)):
        return int(rank.for_shape(shape).degrees_of_freedom(shape))
    attained = _attainable(check_rank(rank, shape))
    return math.prod(attained) + sum(r * (n - r) for r, n in zip(attained, shape, strict=True))


@dataclass(frozen=True, repr=False)
class Spectra:
    """Singular values of every unfolding of a tensor, in decreasing order.

    Attributes
    ----------
    values : tuple of arrays, shapes (min(n_k, N / n_k),)
    """

    values: tuple[Array, ...]

    def energy(self, rank: tuple[int, ...]) -> tuple[float, ...]:
        r"""Return :math:`\sum_{i \le r_k} \sigma_i^2 / \sum_i \sigma_i^2` for each mode."""
        rank = _as_integers(rank)
        if len(rank) != len(self.values):
            raise ValueError(
                f"rank must have one entry per mode: got {len(rank)} entries, {rank!r}, for a "
                f"tensor of {len(self.values)} modes."
            )
        shares = []
        for s, r in zip(map(to_numpy, self.values), rank, strict=True):
            scale = s[0] if s[0] > 0 else 1.0
            squares = (s / scale) ** 2
            total = float(squares.sum())
            shares.append(float(squares[:r].sum()) / total if total else 1.0)
        return tuple(shares)

    def rank(self, tol: float | None = None) -> tuple[int, ...]:
        """Count the singular values above ``tol`` times the largest, in each mode.

        ``tol`` defaults to rounding error, 16 machine epsilons for each singular value.
        """
        tol = None if tol is None else as_number(tol, "tol", 0)
        ranks = []
        for s in map(to_numpy, self.values):
            cut = 16 * len(s) * eps(s) if tol is None else tol
            ranks.append(int((s > cut * s[0]).sum()))
        return tuple(ranks)

    def plot(self, ax: Any = None) -> Any:
        """Draw a scree plot on a logarithmic scale, and return the Matplotlib axes."""
        from lowtucker._plotting import new_axes

        ax = new_axes() if ax is None else ax
        for k, s in enumerate(map(to_numpy, self.values)):
            ax.semilogy(range(1, len(s) + 1), s, marker="o", markersize=3, label=f"mode {k}")
        ax.set_xlabel("index")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_ylabel("singular value of the unfolding")
        ax.legend()
        return ax

    def __repr__(self) -> str:
        lines = [
            f"  mode {k}: " + " ".join(f"{float(v):.3g}" for v in s[:6]) + (" ..." * (len(s) > 6))
            for k, s in enumerate(map(to_numpy, self.values))
        ]
        return "\n".join(["Spectra", *lines])


def spectra(X: Any) -> Spectra:
    """Compute the singular values of every unfolding of ``X`` (an array or a TuckerTensor).

    Examples
    --------
    >>> import numpy as np
    >>> spectra(np.diag([3.0, 2.0, 0.0]))
    Spectra
      mode 0: 3 2 0
      mode 1: 3 2 0
    """
    if getattr(X, "batch_shape", ()):
        raise ValueError(
            f"X must be a single tensor, got a batch of {X.batch_shape}. Try X.trial(k)."
        )
    # orthonormal factors preserve singular values: those of the core are those of the tensor
    X = as_float(as_tensor(getattr(X, "core", X), "X"), "X")
    if not all_finite(X):
        raise ValueError("X has NaN or infinite entries: it has no singular values.")
    return Spectra(tuple(svdvals(unfold(X, k)) for k in range(X.ndim)))


def multilinear_rank(X: Any, tol: float | None = None) -> tuple[int, ...]:
    r"""Tucker rank :math:`r_k = \mathrm{rank}(\mathbf{X}^{\{k\}})` of an array or TuckerTensor.

    Parameters
    ----------
    X : array or TuckerTensor
    tol : float, optional
        Singular values below ``tol`` times the largest count as zero; rounding error by default.

    Examples
    --------
    >>> import numpy as np
    >>> multilinear_rank(np.ones((3, 4, 5)))
    (1, 1, 1)
    """
    return spectra(X).rank(tol)
