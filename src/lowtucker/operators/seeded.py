"""Gaussian measurements that are generated on demand."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker._array import as_array_shape, as_float_dtype, as_integer, size
from lowtucker._array.random import Seed, as_seed, counted
from lowtucker.operators.streamed import StreamedOperator

__all__ = ["SeededGaussianOperator", "seeded_gaussian"]

NumPyArray = np.ndarray[Any, Any]
# Least numbers drawn from one generator: creating it takes as long as 2000
GROUP = 1 << 13


class SeededGaussianOperator(StreamedOperator):
    """Gaussian rows that are not stored; see :func:`seeded_gaussian`.

    Parameters
    ----------
    shape : tuple of int
    m : int
    seed : int, or (int, trial)
    dtype : float32 or float64
    """

    def __init__(
        self, shape: tuple[int, ...], m: int, seed: Seed = 0, dtype: Any = np.float64
    ) -> None:
        shape, m = as_array_shape(shape), as_integer(m, "m")
        self.seed = as_seed(seed)
        dtype = as_float_dtype(dtype)
        if dtype.kind == "c":
            raise TypeError(f"dtype must be float32 or float64, got {dtype}.")
        self._set(shape, m, dtype)
        self._together = max(1, GROUP // size(shape))

    def _place(self, start: int, stop: int) -> str:
        return f"Row {start} of a {type(self).__name__}"

    def _read(self, start: int, stop: int, out: NumPyArray) -> None:
        g = self._together
        for group in range(start // g, -(-stop // g)):
            rows = slice(max(start, group * g), min(stop, (group + 1) * g))
            # up to the last row needed: the earlier ones come first
            made = counted(self.seed, group).standard_normal((rows.stop - group * g, out.shape[1]))
            out[rows.start - start : rows.stop - start] = made[rows.start - group * g :]


def seeded_gaussian(
    shape: tuple[int, ...], m: int, seed: Seed = 0, *, dtype: Any = np.float64
) -> SeededGaussianOperator:
    r"""Gaussian measurements, entries N(0, 1), whose rows are never stored.

    A row is a function of the seed and its index: it is generated on demand, and is the same for
    any block or set of rows and, up to rounding, for any dtype. The numbers are not those of
    :func:`lowtucker.gaussian` with that seed.

    Parameters
    ----------
    shape : tuple of int
    m : int
        The number of measurements.
    seed : int, or (int, trial)
    dtype : float32 or float64

    Notes
    -----
    Memory: two blocks of 32 MB, for any m. A pass generates m N numbers, about 10 ns each; reading
    them from memory takes 1 ns, so use :func:`lowtucker.gaussian` if it fits. A thread generates
    the next block while one is in use. A block of rows costs its own rows.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.seeded_gaussian((10, 10, 10), m=300, seed=1)
    >>> X_true = lt.random_tucker((10, 10, 10), (2, 2, 2), seed=0)
    >>> result = lt.recover(A, A.forward(X_true), rank=(2, 2, 2))
    >>> result.success, lt.metrics.relative_error(result.X, X_true) < 1e-5
    (True, True)
    """
    return SeededGaussianOperator(shape, m, seed, dtype)
