"""What an iterate is: a structured tensor, or a batch of them, made of a few arrays."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from lowtucker._array import Array, is_array, like, namespace, per_trial, put, to_numpy

__all__ = ["Iterate"]


class Iterate(ABC):
    """A structured tensor, given by named arrays whose leading axes count the problems of a batch.

    A subclass names its arrays (:meth:`parts`) and is made from them (:meth:`from_parts`); all that
    concerns batches follows from these. Solvers, states and files know iterates by this interface.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the full tensor, without leading axes."""

    @property
    @abstractmethod
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes."""

    @property
    @abstractmethod
    def rank(self) -> Any:
        """What bounds its complexity: a Tucker rank, or whatever the format counts."""

    @property
    @abstractmethod
    def degrees_of_freedom(self) -> int:
        """Count the degrees of freedom of the tensors of its rank."""

    @abstractmethod
    def parts(self) -> dict[str, Array]:
        """Return its arrays by name, as files keep them."""

    @classmethod
    @abstractmethod
    def from_parts(cls, parts: Mapping[str, Array]) -> Self:
        """Make an iterate of its arrays, bit for bit and without checks."""

    @abstractmethod
    def full(self) -> Array:
        """Return the full tensor, shape (*batch, n_1, ..., n_d)."""

    @abstractmethod
    def norm(self) -> Array:
        """Frobenius norm, shape (*batch,)."""

    @abstractmethod
    def project(self, G: Array) -> Any:
        """Project a full tensor onto the space in which the line search moves."""

    @abstractmethod
    def __mul__(self, factor: Any) -> Self:
        """Multiply by a number, or by one for each problem of a batch."""

    def validated(self) -> Self:
        """Return the iterate, its parts checked as those of a file must be."""
        return self

    def take(self, trials: Any) -> Self:
        """Return some problems of a batch, selected along the leading axis.

        Parameters
        ----------
        trials : integer array, shape (k,), or boolean array, shape (batch[0],)
            Positions, or a mask.

        Examples
        --------
        >>> from lowtucker import random_tucker
        >>> X = random_tucker((3, 4), (1, 1), trials=5)
        >>> X.take([4, 0]).batch_shape, X.take([True, False, False, True, True]).batch_shape
        ((2,), (3,))
        """
        index = self._positions(trials)
        return self._map(lambda x: namespace(x).take(x, like(index, x), axis=0))

    def put(self, trials: Any, other: Self) -> Self:
        """Return the batch with those of another, smaller one at some positions.

        Examples
        --------
        >>> from lowtucker import random_tucker
        >>> X = random_tucker((3, 4), (1, 1), trials=3, seed=0)
        >>> X.put([1], 0 * X.take([1])).norm() > 0
        array([ True, False,  True])
        """
        index = self._positions(trials)
        return self._map(lambda x, new: put(x, index, new), other)

    def where(self, mask: Any, other: Self) -> Self:
        """Return this tensor where ``mask`` is true and ``other`` elsewhere, problem by problem.

        Parameters
        ----------
        mask : boolean array, shape (*batch,)
        other : Iterate
            Of the same kind, batch shape, shape and rank.

        Examples
        --------
        >>> from lowtucker import random_tucker
        >>> X = random_tucker((3, 4), (1, 1), trials=3, seed=0)
        >>> X.where([True, False, True], 0 * X).norm() > 0
        array([ True, False,  True])
        """
        first = next(iter(self.parts().values()))
        mask = like(mask, first)
        if tuple(mask.shape) != self.batch_shape or self.rank != other.rank:
            raise ValueError(
                f"where expects a mask of shape {self.batch_shape} and a tensor of rank "
                f"{self.rank}, got a mask of shape {tuple(mask.shape)} and rank {other.rank}."
            )
        return self._map(lambda x, y: namespace(x).where(per_trial(mask, x), x, y), other)

    @classmethod
    def concat(cls, tensors: Sequence[Self]) -> Self:
        """Join batches of tensors of one shape and rank along the leading axis.

        Examples
        --------
        >>> from lowtucker import TuckerTensor, random_tucker
        >>> X = random_tucker((3, 4), (1, 1), trials=2)
        >>> TuckerTensor.concat([X, X, X]).batch_shape
        (6,)
        """
        first, *rest = tensors
        return first._map(lambda *parts: namespace(*parts).concat(parts), *rest)

    def batched(self) -> Self:
        """Add a leading axis of length 1: a batch of one problem. The arrays are views.

        Examples
        --------
        >>> from lowtucker import random_tucker
        >>> random_tucker((3, 4), (1, 1)).batched().batch_shape
        (1,)
        """
        return self._map(lambda x: x[None, ...])

    def single(self) -> Self:
        """Remove the leading axis of a batch of one problem, as :meth:`batched` adds it.

        Examples
        --------
        >>> from lowtucker import random_tucker
        >>> random_tucker((3, 4), (1, 1), trials=1).single().batch_shape
        ()
        """
        if self.batch_shape != (1,):
            raise ValueError(
                f"single() expects a batch of one problem, shape (1,), got {self.batch_shape}. "
                "Try X.take([k]) for one tensor of a batch."
            )
        return self._map(lambda x: x[0, ...])

    def shifted(self, power: int) -> Self:
        """Multiply by ``2**power``, exactly unless the elements overflow or underflow."""
        half = power // 2
        return self * math.ldexp(1.0, half) * math.ldexp(1.0, power - half)

    def _map(self, function: Callable[..., Array], *others: Self) -> Self:
        """Apply a function to each part, together with those of others."""
        more = [other.parts() for other in others]
        return self.from_parts(
            {name: function(x, *(p[name] for p in more)) for name, x in self.parts().items()}
        )

    def _positions(self, trials: Any) -> np.ndarray[Any, Any]:
        """Positions along the leading axis, from positions or a mask."""
        index = to_numpy(trials) if is_array(trials) else np.asarray(trials)
        count = self.batch_shape[0] if self.batch_shape else None
        is_mask = index.dtype == bool
        if count is None or index.ndim != 1 or (is_mask and index.size != count):
            raise ValueError(
                "take expects a batch of problems, and positions or one boolean for each; got "
                f"batch shape {self.batch_shape} and trials of shape {index.shape}."
            )
        return np.flatnonzero(index) if is_mask else index.astype(np.int64)
