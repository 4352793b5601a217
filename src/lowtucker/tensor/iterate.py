"""What an iterate is: a structured tensor, or a batch of them, made of a few arrays."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from lowtucker._array import (
    Array,
    as_array,
    as_float,
    as_integer,
    in_precision_of,
    is_array,
    is_complex,
    like,
    namespace,
    per_trial,
    put,
    same_kind,
    size,
    to_numpy,
)

__all__ = ["Iterate", "checked_indices", "picked"]


# The layout of formats whose arrays say all
NO_LAYOUT: Mapping[str, Any] = {}


class Iterate(ABC):
    """A structured tensor, given by named arrays whose leading axes count the problems of a batch.

    A subclass names its arrays (:meth:`parts`) and is made from them (:meth:`from_parts`) and from
    what is no array (:attr:`layout`); all that concerns batches follows from these. Solvers, states
    and files know iterates by this interface.
    """

    __array_priority__ = 1000  # NumPy scalars defer to __rmul__
    __array_ufunc__ = None

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

    @property
    def layout(self) -> dict[str, Any]:
        """What its arrays do not tell, in terms of JSON: the shape of a sparse tensor, a tree."""
        return {}

    @classmethod
    @abstractmethod
    def from_parts(cls, parts: Mapping[str, Array], layout: Mapping[str, Any] = NO_LAYOUT) -> Self:
        """Make an iterate of its arrays and its layout, bit for bit and without checks."""

    def with_parts(self, parts: Mapping[str, Array]) -> Self:
        """Return the iterate of other arrays with the same layout."""
        return self.from_parts(parts, self.layout)

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

    @property
    def dtype(self) -> Any:
        """Dtype of its entries."""
        return next(iter(self.parts().values())).dtype

    @property
    def order(self) -> int:
        """Number d of modes."""
        return len(self.shape)

    def entries(self, indices: Any) -> Array:
        """Return the elements at ``indices``, shape (*batch, k). Forms the full tensor.

        Parameters
        ----------
        indices : integer array, shape (k, d)
            One row of 0-based indices per element.
        """
        return picked(self.full(), checked_indices(indices, self.shape))

    def trial(self, k: int) -> Self:
        """Return tensor k of a batch, in row-major order of several batch axes.

        Examples
        --------
        >>> from lowtucker import random_tucker
        >>> random_tucker((3, 4), (1, 1), trials=5).trial(2)
        TuckerTensor of shape (3, 4), rank (1, 1): 8 numbers instead of 12 (1.5x)
        """
        batch = self.batch_shape
        if not batch:
            raise ValueError(
                f"trial(k) needs a batch of tensors, got a single tensor of shape {self.shape}. "
                "Use the tensor itself."
            )
        k = as_integer(k, "k", 0, size(batch) - 1)
        at = (*map(int, np.unravel_index(k, batch)), ...)
        return self._map(lambda x: x[at])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Return :meth:`full` as a NumPy array, for ``numpy.asarray(X)``."""
        if copy is False:
            raise ValueError(
                f"The elements of a {type(self).__name__} are computed: copy=False is not possible."
            )
        full = to_numpy(self.full())
        return full if dtype is None else full.astype(dtype, copy=False)

    def __rmul__(self, factor: Any) -> Self:
        """Multiply by a number, or by one for each problem of a batch."""
        product: Self = self * factor
        return product

    def __neg__(self) -> Self:
        """Return the negative tensor."""
        return self * -1.0

    def __sub__(self, other: Any) -> Self:
        """Return the difference, as the sum with the negative."""
        difference: Self = self + (-other)
        return difference

    @abstractmethod
    def __add__(self, other: Any) -> Self:
        """Add another tensor of the format, exactly: ranks add up."""

    def _check_partner(self, other: Any) -> None:
        """Check that another tensor can be added to this one."""
        if type(other) is not type(self):
            raise TypeError(
                f"expected a {type(self).__name__}, got {type(other).__name__}. Use X.full() to "
                "work with arrays."
            )
        if (self.batch_shape, self.shape) != (other.batch_shape, other.shape):
            raise ValueError(
                f"expected two tensors of the same shape, got {self.batch_shape + self.shape} and "
                f"{other.batch_shape + other.shape}."
            )
        one, two = (next(iter(X.parts().values())) for X in (self, other))
        same_kind(two, one, "the other tensor", "this one")

    def _factor(self, number: Any, part: Array) -> Array:
        """Number, or one for each tensor of a batch, as an array to multiply a part by."""
        number = to_numpy(as_float(number, "number"))
        promoted = is_complex(number) or is_complex(part)
        number = like(number, part, in_precision_of(part.dtype, part, is_complex=promoted))
        if tuple(number.shape) not in {(), self.batch_shape}:
            raise ValueError(
                f"A {type(self).__name__} can be multiplied by a number or by one number per "
                f"tensor of a batch, shape {self.batch_shape}; got shape {tuple(number.shape)}."
            )
        return per_trial(number, part)

    def _described(self, kind: str, stored: int) -> str:
        """Return a repr: batch, shape, what bounds the complexity, and what that saves."""
        batch, total = self.batch_shape, size(self.shape)
        batch_of = f"batch of {'x'.join(map(str, batch))}, each " if batch else ""
        return (
            f"{type(self).__name__} {batch_of}of shape {self.shape}, {kind} {self.rank}: "
            f"{stored} numbers instead of {total} ({total / stored:.3g}x)"
        )

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
        return self.with_parts(
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


def checked_indices(indices: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Check that indices are within the shape, and return them as NumPy integers."""
    index = to_numpy(as_array(indices, "indices"))
    if index.ndim != 2 or index.shape[1] != len(shape):
        raise ValueError(
            f"indices must have shape (k, {len(shape)}), one row of 0-based indices per "
            f"element, got {tuple(index.shape)}."
        )
    if index.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers, got dtype {index.dtype}.")
    for k, n in enumerate(shape):
        low, high = (int(f(index[:, k], initial=0)) for f in (np.min, np.max))
        if low < 0 or high >= n:
            raise ValueError(
                f"indices must be 0-based, from 0 to {n - 1} in mode {k}; got values from "
                f"{low} to {high}."
            )
    return index.astype(np.int64)


def picked(full: Array, index: np.ndarray[Any, Any]) -> Array:
    """Elements of full tensors at checked indices, shape (*batch, k)."""
    xp, d = namespace(full), index.shape[1]
    batch, shape = tuple(full.shape[: full.ndim - d]), tuple(full.shape[full.ndim - d :])
    flat = xp.reshape(full, (*batch, size(shape)))
    places = np.ravel_multi_index(tuple(index.T), shape)
    return xp.take(flat, like(places, flat), axis=-1)
