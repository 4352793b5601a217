"""Residuals that stay with the rows: the norm is known, the numbers are fetched on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

__all__ = ["Deferred"]


class Deferred(np.lib.mixins.NDArrayOperatorsMixin):
    """Vector of measurements that is elsewhere: its norm is known, its numbers are fetched.

    Anything but its shape and its norm makes it a NumPy array, which may cost a pass over A.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype
    norm : array, shape (*batch,)
        With the weights below.
    weights : array or None
    fetch : callable
        Returns the numbers.

    Examples
    --------
    >>> v = Deferred((2,), np.dtype(float), 5.0, None, lambda: np.array([3.0, 4.0]))
    >>> v.norm
    5.0
    >>> 2 * v
    array([6., 8.])
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, norm: Any, weights: Any, fetch: Callable[[], Any]
    ) -> None:
        self.shape, self.dtype, self.norm, self.weights = shape, dtype, norm, weights
        self._fetch = fetch

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @cached_property
    def numbers(self) -> np.ndarray[Any, Any]:
        """The vector itself."""
        return np.asarray(self._fetch(), dtype=self.dtype)

    def take(self, which: Any) -> Deferred:
        """Return some problems of a batch, by position; their numbers are still elsewhere."""
        weights = self.weights
        if weights is not None and weights.ndim > 1:
            weights = weights[which]
        norm = np.asarray(self.norm)[which]
        shape = (*norm.shape, self.shape[-1])
        return Deferred(shape, self.dtype, norm, weights, lambda: self.numbers[which])

    @classmethod
    def concat(cls, parts: Sequence[Deferred]) -> Deferred:
        """Join batches along the leading axis; their numbers are still elsewhere."""
        norm = np.concatenate([np.atleast_1d(part.norm) for part in parts])
        shape, first = (*norm.shape, parts[0].shape[-1]), parts[0]

        def fetch() -> Any:
            return np.concatenate([part.numbers for part in parts])

        return cls(shape, first.dtype, norm, first.weights, fetch)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        return self.numbers[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.numbers, dtype=dtype) if copy else np.asarray(self.numbers, dtype)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return np

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        given = [x.numbers if isinstance(x, Deferred) else x for x in inputs]
        return getattr(ufunc, method)(*given, **options)
