"""What tensor trains and hierarchical tensors share: a tree of small arrays."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Self

import numpy as np

from lowtucker._array import (
    Array,
    all_finite,
    as_float,
    as_integer,
    as_tensor,
    as_tuple,
    eps,
    namespace,
    per_trial,
    reshaped,
    size,
    to_numpy,
)
from lowtucker._array.errors import RankWarning, warn_caller
from lowtucker.tensor.decompose import safely_scaled
from lowtucker.tensor.iterate import Iterate, checked_indices
from lowtucker.tensor.products import norm
from lowtucker.tensor.tucker import CHUNK, orthonormality_defect
from lowtucker.thresholding.protocol import ThresholdingDefaults

__all__ = [
    "Network",
    "NetworkTruncation",
    "by_chunks",
    "contiguous",
    "matrix_of",
    "named_arrays",
    "numerical_rank",
    "square_spectral_norm",
]


@dataclass(frozen=True, repr=False, eq=False)
class Network(Iterate):
    """Tensor made of small arrays, all of them orthonormal but the root, which has its norm.

    Attributes
    ----------
    bases : tuple of arrays, shapes (*batch, ..., r)
        Orthonormal as matrices with r columns.
    root : array
    """

    bases: tuple[Array, ...]
    root: Array

    def __post_init__(self) -> None:
        """Lay the arrays out as files do: rounding must not depend on where they come from."""
        object.__setattr__(self, "bases", tuple(map(contiguous, self.bases)))
        object.__setattr__(self, "root", contiguous(self.root))

    def parts(self) -> dict[str, Array]:
        """Return the root and the bases."""
        return {"root": self.root, **{f"basis_{k}": U for k, U in enumerate(self.bases)}}

    def validated(self) -> Self:
        """Return the tensor, its arrays checked as those of a file must be."""
        self._check_shapes()
        for name, part in self.parts().items():
            if not (size(part.shape) and all_finite(as_float(part, name))):
                raise ValueError(f"{name} is empty, or has NaN or infinite entries")
        for k, U in enumerate(self.bases):
            defect = orthonormality_defect(matrix_of(U, self.batch_shape))
            if defect:
                raise ValueError(f"basis_{k} is not orthonormal: |U^T U - I| reaches {defect:.1e}")
        return self

    @abstractmethod
    def _check_shapes(self) -> None:
        """Raise ValueError where the shapes of the arrays do not fit together."""

    @abstractmethod
    def _entries(self, index: Array) -> Array:
        """Elements at checked indices, not too many at a time."""

    def norm(self) -> Array:
        """Frobenius norm, shape (*batch,), which is that of the root."""
        return norm(self.root, batch_ndim=len(self.batch_shape))

    def entries(self, indices: Any) -> Array:
        """Return the elements at ``indices``, shape (*batch, k), without forming the full tensor.

        Parameters
        ----------
        indices : integer array, shape (k, d)
            One row of 0-based indices per element.
        """
        return by_chunks(self._entries, checked_indices(indices, self.shape))

    def _rank_to_keep(self, rank: Any, numerical: Any) -> tuple[int, ...]:
        """Rank of ``compress``: the given one, checked, or by default the numerical one."""
        if rank is None:
            if self.batch_shape:
                raise ValueError(
                    "compress needs a rank for a batch: the ranks of its tensors may differ."
                )
            return tuple(numerical)
        given = as_ranks(rank)
        kept = (given,) * len(self.rank) if isinstance(given, int) else given
        fits = len(kept) == len(self.rank)
        if not fits or any(r > most for r, most in zip(kept, self.rank, strict=True)):
            raise ValueError(
                f"compress expects a rank of {len(self.rank)} entries, each at most that of "
                f"{self.rank}, got {kept}. Leave it out to drop what is zero."
            )
        return kept

    def __mul__(self, number: Any) -> Self:
        """Multiply by a number, or by one for each tensor of a batch."""
        return replace(self, root=self.root * self._factor(number, self.root))

    def __repr__(self) -> str:
        stored = sum(size(part.shape) for part in self.parts().values()) // size(self.batch_shape)
        return self._described("rank", stored)


@dataclass(frozen=True)
class NetworkTruncation(ThresholdingDefaults):
    """What the truncations to such tensors share.

    Parameters
    ----------
    rank : tuple of int, or int
        An int stands for that rank everywhere, or the largest that is attained where it is lower.
    """

    rank: tuple[int, ...] | int

    def __post_init__(self) -> None:
        """Check the rank by itself; against the shape when a tensor comes."""
        object.__setattr__(self, "rank", as_ranks(self.rank))

    @property
    @abstractmethod
    def _order(self) -> int | None:
        """Number d of modes, where it is known."""

    @abstractmethod
    def _count(self, order: int) -> int:
        """Number of ranks of tensors with so many modes."""

    @abstractmethod
    def _attainable(self, rank: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the largest rank, at most ``rank``, that a tensor of that shape has."""

    @abstractmethod
    def _truncated(self, Z: Array, batch: tuple[int, ...]) -> Any:
        """Approximate Z at the rank, which is attainable."""

    def for_shape(self, shape: tuple[int, ...]) -> Self:
        """Return the thresholding of tensors of that shape, at the attainable rank.

        Warns
        -----
        RankWarning
            No tensor of that shape has the rank. The message names the attainable one.
        """
        rank = self._rank_for(shape)
        if isinstance(self.rank, tuple) and rank != self.rank:
            warn_caller(
                f"No tensor of shape {shape} has the rank {self.rank} of {type(self).__name__}. "
                f"The result has rank {rank}; try rank={rank}.",
                RankWarning,
            )
        return self if rank == self.rank else replace(self, rank=rank)

    def _rank_for(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Attainable rank of tensors of that shape."""
        name = type(self).__name__
        if len(shape) < 2:
            raise ValueError(
                f"{name} takes tensors of two modes at least, got shape {shape}. Try "
                "lowtucker.Sparse for vectors, or reshape them into more modes."
            )
        count = self._count(len(shape))
        rank = (self.rank,) * count if isinstance(self.rank, int) else self.rank
        if len(rank) != count:
            raise ValueError(
                f"{name} has {count} ranks for a tensor of {len(shape)} modes, shape {shape}; got "
                f"{len(rank)}, {rank}. Try rank={max(rank)} for all."
            )
        return self._attainable(rank, shape)

    def __call__(self, Z: Array) -> Any:
        """Approximate Z, shape (*batch, n_1, ..., n_d)."""
        Z = as_float(as_tensor(Z, "Z"), "Z")
        order = min(self._order or Z.ndim, Z.ndim)
        batch, shape = tuple(Z.shape[: Z.ndim - order]), tuple(Z.shape[Z.ndim - order :])
        fitting = self.for_shape(shape)
        Z, scale = safely_scaled(Z, order)
        X = fitting._truncated(Z, batch)
        if scale is None:
            return X
        return replace(X, root=X.root * per_trial(reshaped(scale, batch), X.root))


def as_ranks(rank: Any) -> tuple[int, ...] | int:
    """Check a rank by itself: one integer, or several."""
    if isinstance(rank, Integral):
        return as_integer(rank, "rank")
    entries = as_tuple(rank)
    if entries is None:
        raise TypeError(
            f"rank must be a tuple of integers, or one for all, got {rank!r:.80}. Try rank=3."
        )
    if not entries:
        raise ValueError("rank must have an entry at least, got (). Try rank=3.")
    return tuple(as_integer(r, f"rank[{k}]") for k, r in enumerate(entries))


def by_chunks(compute: Callable[..., Array], index: Any, width: int = 1) -> Array:
    """Elements at many indices, some at a time: fewer where each takes ``width`` times as much."""
    chunk = max(1, CHUNK // width)
    parts = [compute(index[i : i + chunk]) for i in range(0, max(1, len(index)), chunk)]
    return parts[0] if len(parts) == 1 else namespace(*parts).concat(parts, axis=-1)


def contiguous(x: Array) -> Array:
    """NumPy array in row-major order; others as they are."""
    return np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x


def matrix_of(U: Array, batch: tuple[int, ...]) -> Array:
    """Array as a matrix, or a batch of matrices: all axes but the last one are the rows."""
    return reshaped(U, (*batch, size(U.shape[len(batch) : -1]), U.shape[-1]))


def named_arrays(parts: Mapping[str, Array]) -> tuple[tuple[Array, ...], Array]:
    """Bases and root of the arrays of :meth:`Network.parts`."""
    names = [f"basis_{k}" for k in range(len(parts) - 1)]
    if not names or {"root", *names} != set(parts):
        raise ValueError(
            "parts must be named 'root', 'basis_0', 'basis_1', ..., as parts() returns them, got "
            f"{sorted(parts)}."
        )
    return tuple(parts[name] for name in names), parts["root"]


def square_spectral_norm(rows: int, columns: int) -> float:
    """Square of the spectral norm of a matrix of N(0, 1) numbers, nearly."""
    return (math.sqrt(rows) + math.sqrt(columns)) ** 2


def numerical_rank(s: Array) -> int:
    """Count the singular values above rounding error; 1 at least."""
    values = to_numpy(s)
    return max(1, int((values > 16 * len(values) * eps(s) * values[0]).sum()))
