"""What was given to complete: its known entries, and the completed data in the same form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from lowtucker._array import Array, as_float, is_array, is_numpy, like, reshaped, to_numpy
from lowtucker._array.memory import check_full
from lowtucker.labels.record import Labels
from lowtucker.operators import EntriesOperator
from lowtucker.tensor.iterate import Iterate

__all__ = [
    "ArrayData",
    "Data",
    "Errors",
    "SampleData",
    "Samples",
    "TensorForm",
    "averaged",
    "full_tensor",
]

NumPyArray = np.ndarray[Any, Any]
Samples: TypeAlias = tuple[EntriesOperator, NumPyArray]
# Standard errors of the entries at some indices; None where there are none
Errors = Callable[[NumPyArray], NumPyArray | None]


class Data(ABC):
    """Data that a tensor was completed from.

    Attributes
    ----------
    labels : Labels or None
    shape : tuple of int
    prototype : array or None
        Array of the kind that the tensor is to have; None for NumPy.
    """

    labels: Labels | None = None
    shape: tuple[int, ...]
    prototype: Array | None = None

    def samples(self) -> Samples:
        """Operator and values of the known entries."""
        raise NotImplementedError

    @abstractmethod
    def filled(self, X: Iterate, errors: Errors) -> Any:
        """Return the data with what is missing taken from X, in the form they were given in."""

    def converted(self, X: Iterate) -> Iterate:
        """Return X in arrays of the kind that was given."""
        if self.prototype is None:
            return X
        return X.with_parts({name: like(x, self.prototype) for name, x in X.parts().items()})

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the data out of pickles."""
        return _left_out, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Data:
        """Return itself: nothing of it is ever changed."""
        return self


def _left_out() -> None:
    """What a pickle has in the place of data."""


class TensorForm(Data):
    """Nothing is known of X but its shape: what was measured are no entries."""

    def __init__(self, shape: tuple[int, ...], prototype: Array | None = None) -> None:
        self.shape, self.prototype = shape, prototype

    def filled(self, X: Iterate, errors: Errors) -> Any:
        """Return the full tensor."""
        return like(full_tensor(X), self.prototype)


class ArrayData(Data):
    """An array, NaN where it is unknown."""

    def __init__(self, values: Any) -> None:
        y, self.prototype = _as_numbers(values)
        self.shape = y.shape
        if y.ndim < 1 or not y.size:
            raise ValueError(f"values must be a tensor with entries, got shape {y.shape}.")
        self._known = ~np.isnan(y)
        if not self._known.any():
            raise ValueError("values has nothing but NaN: no entry is known.")
        if np.isinf(y).any():
            where = tuple(int(i) for i in np.argwhere(np.isinf(y))[0])
            raise ValueError(f"values is infinite at {where}. Mark what is not known by NaN.")
        self._y = y[self._known]

    def samples(self) -> Samples:
        """Operator and values of what is not NaN."""
        return EntriesOperator(self.shape, np.argwhere(self._known)), self._y

    def filled(self, X: Iterate, errors: Errors) -> Any:
        """Return an array of the kind given, without NaN."""
        full = full_tensor(X)
        full[self._known] = self._y
        return like(full, self.prototype)


class SampleData(Data):
    """Values at some indices."""

    def __init__(self, values: Any, indices: Any, shape: Any) -> None:
        self._y, self.prototype = _as_numbers(values)
        if shape is None:
            raise ValueError("shape is needed with indices: the shape of the tensor.")
        self._A = EntriesOperator(shape, to_numpy(indices) if is_array(indices) else indices)
        self.shape = self._A.shape
        _check_values(self._y, self._A.m)

    def samples(self) -> Samples:
        """Indices and values as they were given."""
        return self._A, self._y

    def filled(self, X: Iterate, errors: Errors) -> Any:
        """Return the full tensor as an array, with the means of the samples where there are any."""
        full = full_tensor(X)
        where, means = averaged(self._A.indices, self._y, self.shape)
        full.reshape(-1)[where] = means
        return like(full, self.prototype)


def _check_values(y: NumPyArray, m: int) -> None:
    """Check that there is one finite value for each of m indices."""
    if y.shape != (m,):
        raise ValueError(
            f"values must have one entry for each of the {m} rows of indices, got shape {y.shape}."
        )
    unknown = np.flatnonzero(~np.isfinite(y))
    if len(unknown):
        raise ValueError(
            f"values[{unknown[0]}] is masked, NaN or infinite. Leave out what is not known, "
            "and its row of indices: keep = numpy.isfinite(values)."
        )


def averaged(
    indices: NumPyArray, values: NumPyArray, shape: tuple[int, ...]
) -> tuple[NumPyArray, NumPyArray]:
    """Flat indices without duplicates, and the means of the values there."""
    flat = np.ravel_multi_index(tuple(indices.T), shape)
    where, inverse, counts = np.unique(flat, return_inverse=True, return_counts=True)
    if len(where) == len(flat):
        return flat, values
    total = np.zeros(len(where), dtype=values.dtype)
    np.add.at(total, inverse, values)
    return where, total / counts.astype(values.real.dtype)


def full_tensor(X: Iterate) -> NumPyArray:
    """Full tensor as a NumPy array that may be written to, where it fits into memory."""
    check_full((*X.batch_shape, *X.shape), X.dtype)
    full = to_numpy(X.full())
    return full if full.flags.writeable and not _is_part(full, X) else full.copy()


def _is_part(full: NumPyArray, X: Iterate) -> bool:
    """Whether an array is one of those that X is made of."""
    return any(np.may_share_memory(full, to_numpy(part)) for part in X.parts().values())


def _as_numbers(values: Any) -> tuple[NumPyArray, Array | None]:
    """NumPy array of floating point numbers, and an empty array of the kind given, if another."""
    if isinstance(values, np.ma.MaskedArray):
        known = ~np.ma.getmaskarray(values)
        values = np.where(known, as_float(values.data, "values"), np.nan)
    x = as_float(values, "values")
    if is_numpy(x):
        return x, None
    return to_numpy(x), reshaped(x, (-1,))[:0]
