r"""Sparse tensors: the s largest entries (IHT, StoIHT), or the s largest rows of a matrix (MMV)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from lowtucker._array import (
    Array,
    all_finite,
    as_float,
    as_integer,
    as_shape,
    as_tensor,
    like,
    namespace,
    put,
    size,
    to_numpy,
)
from lowtucker._array.memory import check_full
from lowtucker.tensor.iterate import NO_LAYOUT, Iterate
from lowtucker.tensor.products import norm
from lowtucker.thresholding.protocol import ThresholdingDefaults

__all__ = ["RowSparse", "Sparse", "SparseTensor", "Sparsity"]


@dataclass(frozen=True, repr=False, eq=False)
class SparseTensor(Iterate):
    """Tensor of which all but some entries, or all but some rows, are zero.

    Parameters
    ----------
    values : array, shape (*batch, s) or (*batch, s, n_2)
        The entries, or the rows.
    places : integer array, shape (*batch, s)
        Where they are, in ascending order: row-major positions in the first modes.
    full_shape : tuple of int
        Shape of the full tensor, without the leading axes of a batch.

    Examples
    --------
    >>> import numpy as np
    >>> X = Sparse(2)(np.array([[0.0, 3.0, 1.0], [-4.0, 2.0, 0.0]]))
    >>> X
    SparseTensor of shape (2, 3), sparsity 2: 4 numbers instead of 6 (1.5x)
    >>> X.full()
    array([[ 0.,  3.,  0.],
           [-4.,  0.,  0.]])
    """

    values: Array
    places: Array
    full_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (n_1, ..., n_d), without the leading axes."""
        return self.full_shape

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of a batch; () for one tensor."""
        return tuple(self.places.shape[:-1])

    @property
    def rank(self) -> int:
        """The number s of entries or rows."""
        return int(self.places.shape[-1])

    @property
    def row(self) -> tuple[int, ...]:
        """Shape of what stands at each place: () for entries, (n_2,) for the rows of a matrix."""
        return tuple(self.values.shape[self.places.ndim :])

    @property
    def degrees_of_freedom(self) -> int:
        """The number of entries that may differ from zero."""
        return self.rank * size(self.row)

    @property
    def layout(self) -> dict[str, Any]:
        """The shape."""
        return {"shape": list(self.shape)}

    def parts(self) -> dict[str, Array]:
        """Return values and places."""
        return {"values": self.values, "places": self.places}

    @classmethod
    def from_parts(
        cls, parts: Mapping[str, Array], layout: Mapping[str, Any] = NO_LAYOUT
    ) -> SparseTensor:
        """Build from the arrays of :meth:`parts` and the shape, which are not checked."""
        return cls(parts["values"], parts["places"], tuple(layout["shape"]))

    def validated(self) -> SparseTensor:
        """Return the tensor, its parts checked as those of a file must be."""
        shape, count = as_shape(self.shape), size(self._grid)
        places = to_numpy(self.places)
        fits = shape[len(shape) - len(self.row) :] == self.row and places.ndim
        if not fits or tuple(self.values.shape[: places.ndim]) != places.shape:
            raise ValueError(f"values {self.values.shape}, places {places.shape}, shape {shape}")
        if places.dtype.kind not in "iu" or (np.diff(places, axis=-1) <= 0).any():
            raise ValueError("places must be integers in ascending order")
        if places.size and not (places.min() >= 0 and places.max() < count):
            raise ValueError(f"places must be from 0 to {count - 1}")
        if not all_finite(self.values):
            raise ValueError("values has NaN or infinite entries")
        return self

    @property
    def _grid(self) -> tuple[int, ...]:
        """Modes that places count along."""
        return self.shape[: len(self.shape) - len(self.row)]

    def support(self, share: float = 0.0) -> np.ndarray[Any, Any]:
        """Return the places, of one tensor, whose entries or rows are not zero.

        Those up to a share of the largest count as zero.
        """
        sizes = to_numpy(_sizes(self.values, len(self.row)))
        found: np.ndarray[Any, Any] = sizes > share * sizes.max(initial=0.0)
        return np.asarray(to_numpy(self.places)[found])

    def full(self) -> Array:
        """Return the full tensor, shape (*batch, n_1, ..., n_d)."""
        xp, count, trials = namespace(self.values), size(self._grid), size(self.batch_shape)
        check_full((*self.batch_shape, *self.shape), self.values.dtype)
        zeros = like(np.zeros((trials * count, *self.row)), self.values, self.values.dtype)
        places = to_numpy(self.places).reshape(trials, self.rank)
        flat = np.ravel(places + count * np.arange(trials)[:, None])
        filled = put(zeros, flat, xp.reshape(self.values, (trials * self.rank, *self.row)))
        return xp.reshape(filled, (*self.batch_shape, *self.shape))

    def norm(self) -> Array:
        """Frobenius norm, shape (*batch,)."""
        return norm(self.values, batch_ndim=len(self.batch_shape))

    def project(self, G: Array) -> SparseTensor:
        """Restrict a full tensor to the places that are occupied."""
        return replace(self, values=_taken(_by_place(G, self._grid, self.row), self.places))

    def compress(self, rank: int | None = None) -> SparseTensor:
        """Keep the largest ``rank`` entries or rows; by default those that are not zero.

        Examples
        --------
        >>> import numpy as np
        >>> X = Sparse(2)(np.array([1.0, 0.0, -5.0, 3.0]))
        >>> (X + X).compress(1).full()
        array([  0.,   0., -10.,   0.])
        """
        sizes = to_numpy(_sizes(self.values, len(self.row)))
        if rank is None:
            rank = max(1, int(np.max(np.sum(sizes > 0, axis=-1))))
        rank = as_integer(rank, "rank", 1, self.rank)
        kept = _largest(sizes, rank)
        places = np.take_along_axis(to_numpy(self.places), kept, axis=-1)
        return SparseTensor(_taken(self.values, kept), like(places, self.places), self.shape)

    def __add__(self, other: Any) -> SparseTensor:
        """Return the sum, whose places are those of both; s is the largest of a batch."""
        self._check_partner(other)
        if self.row != other.row:
            raise ValueError(f"expected rows of shape {self.row}, got {other.row}.")
        full = self.full() + other.full()
        count = size(self._grid)
        occupied = np.zeros((size(self.batch_shape), count))
        for X in (self, other):
            places = to_numpy(X.places).reshape(size(X.batch_shape), X.rank)
            np.put_along_axis(occupied, places, 1.0, axis=-1)
        kept = _largest(occupied, int(occupied.sum(axis=-1).max()))
        kept = kept.reshape(*self.batch_shape, kept.shape[-1])
        values = _taken(_by_place(full, self._grid, self.row), kept)
        return SparseTensor(values, like(kept, self.values), self.shape)

    def __mul__(self, number: Any) -> SparseTensor:
        """Multiply by a number, or by one for each tensor of a batch."""
        return replace(self, values=self.values * self._factor(number, self.values))

    def __repr__(self) -> str:
        kind = "sparsity" if not self.row else "row sparsity"
        return self._described(kind, self.rank * (1 + size(self.row)))


@dataclass(frozen=True)
class Sparsity(ThresholdingDefaults):
    """What :class:`Sparse` and :class:`RowSparse` share.

    Parameters
    ----------
    rank : int
        The number s of entries or rows that are kept.
    """

    rank: int
    # of the tensors, where there may be leading axes; by default Z has none
    modes: int | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the number by itself; against the shape when a tensor comes."""
        object.__setattr__(self, "rank", as_integer(self.rank, "rank"))

    @property
    def eta(self) -> float:
        """1: the largest are the best approximation."""
        return 1.0

    @abstractmethod
    def _grid(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Modes that are thresholded together: the places that are counted."""

    def places(self, shape: tuple[int, ...]) -> int:
        """Count the entries, or rows, among which the largest are kept."""
        return size(self._grid(shape))

    def for_shape(self, shape: tuple[int, ...]) -> Self:
        """Return the thresholding of tensors of that shape, which may have leading axes."""
        count = self.places(shape)
        if self.rank > count:
            raise ValueError(
                f"{type(self).__name__}({self.rank}) keeps more than the {count} there are in a "
                f"tensor of shape {shape}. Try {type(self).__name__}({count}) at most."
            )
        return replace(self, modes=len(shape))

    def degrees_of_freedom(self, shape: tuple[int, ...]) -> int:
        """Count the entries that may differ from zero."""
        self.for_shape(shape)
        return self.rank * size(shape[len(self._grid(shape)) :])

    def __call__(self, Z: Array) -> SparseTensor:
        """Keep the largest of Z, shape (*batch, n_1, ..., n_d).

        Of entries of the same size those with the lower index.
        """
        Z = as_float(as_tensor(Z, "Z"), "Z")
        modes = Z.ndim if self.modes is None else self.modes
        shape = tuple(Z.shape[Z.ndim - modes :])
        if self.modes is None:
            self.for_shape(shape)
        if not all_finite(Z):
            raise ValueError("Z has NaN or infinite entries: it has no largest ones.")
        grid = self._grid(shape)
        flat = _by_place(Z, grid, shape[len(grid) :])
        kept = _largest(to_numpy(_sizes(flat, len(shape) - len(grid))), self.rank)
        return SparseTensor(_taken(flat, kept), like(kept, Z), shape)


@dataclass(frozen=True)
class Sparse(Sparsity):
    r"""Keep the s entries of largest absolute value: the thresholding of IHT and StoIHT.

    .. math:: H_s(Z) = \arg\min \{ \|X - Z\| : \|X\|_0 \le s \}

    TIHT with it is iterative hard thresholding (Blumensath, Davies 2009), StoTIHT is StoIHT
    (Nguyen, Needell, Woolf 2017), for vectors and tensors of any order.

    Parameters
    ----------
    rank : int
        s.

    Notes
    -----
    Cost: one partial sort of the N absolute values, on the host; memory: 2 s numbers.

    Examples
    --------
    >>> import lowtucker as lt, numpy as np
    >>> X = np.zeros(100)
    >>> X[[3, 50, 77]] = [1.0, -2.0, 0.5]
    >>> A = lt.gaussian((100,), m=40, seed=1)
    >>> result = lt.recover(A, A.forward(X), lt.Sparse(3))
    >>> result.success, bool(np.allclose(result.X.full(), X, atol=1e-5))
    (True, True)
    """

    def _grid(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def block_size(self, shape: tuple[int, ...]) -> int:
        r"""Return :math:`2 s \log(e N / s)` rows: s entries among N have to be found, too."""
        return math.ceil(2 * self.rank * math.log(math.e * size(shape) / self.rank))

    def noise_gain(self, shape: tuple[int, ...]) -> float:
        r"""Return :math:`2 s \log(e N / s)`: the squares of the s largest of N normal numbers."""
        return 2 * self.rank * math.log(math.e * size(shape) / self.rank)


@dataclass(frozen=True)
class RowSparse(Sparsity):
    r"""Keep the s rows of largest norm: columns with one support, the MMV problem (MStoIHT).

    .. math:: H_s(Z) = \arg\min \{ \|X - Z\|_F : X \text{ has at most s rows that are not zero} \}

    The rows are the slices of the first mode, so that X is a matrix of shape (n, L): L signals side
    by side, with one support. Signals that are measured by one matrix B, Y = B X, are
    ``lowtucker.kronecker([B, numpy.eye(L)])`` and ``Y.reshape(-1)``.

    Parameters
    ----------
    rank : int
        s.

    Examples
    --------
    >>> import numpy as np
    >>> RowSparse(1)(np.array([[1.0, 1.0], [0.0, 3.0], [2.0, 2.0]])).full()
    array([[0., 0.],
           [0., 3.],
           [0., 0.]])
    """

    def for_shape(self, shape: tuple[int, ...]) -> Self:
        """Return the thresholding of matrices of that shape."""
        if len(shape) != 2:
            raise ValueError(
                f"RowSparse takes matrices, whose columns are signals with one support; got shape "
                f"{shape}. Try lowtucker.Sparse, or reshape the modes into two."
            )
        return super().for_shape(shape)

    def _grid(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape[:1]

    def block_size(self, shape: tuple[int, ...]) -> int:
        r"""Return :math:`2 s (L + \log(e n / s))` rows: s rows among n have to be found, too."""
        n, columns = shape
        return math.ceil(2 * self.rank * (columns + math.log(math.e * n / self.rank)))

    def noise_gain(self, shape: tuple[int, ...]) -> float:
        r"""Return :math:`2 s (L + \log(e n / s))`: a bound on the s largest of n chi-squares."""
        return float(self.block_size(shape))


def _by_place(Z: Array, grid: tuple[int, ...], row: tuple[int, ...]) -> Array:
    """Tensors with the places along one axis, shape (*batch, places, *row)."""
    batch = tuple(Z.shape[: Z.ndim - len(grid) - len(row)])
    return namespace(Z).reshape(Z, (*batch, size(grid), *row))


def _sizes(values: Array, inner: int) -> Array:
    """Absolute values, or norms of rows, shape (*batch, places)."""
    return norm(values, batch_ndim=values.ndim - inner) if inner else namespace(values).abs(values)


def _largest(sizes: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Positions of the largest along the last axis, in ascending order; ties by position."""
    kept = np.argsort(-sizes, axis=-1, kind="stable")[..., :count]
    return np.sort(kept, axis=-1).astype(np.int64)


def _taken(values: Array, places: Any) -> Array:
    """What stands at some places, shape (*batch, s, *row)."""
    xp, places = namespace(values), to_numpy(places)
    batch, count, row = places.shape[:-1], values.shape[places.ndim - 1], places.ndim
    inner = tuple(values.shape[row:])
    trials = size(batch)
    flat = np.ravel(places.reshape(trials, -1) + count * np.arange(trials)[:, None])
    chosen = xp.take(xp.reshape(values, (trials * count, *inner)), like(flat, values), axis=0)
    return xp.reshape(chosen, (*places.shape, *inner))
