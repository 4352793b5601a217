"""Rows that are multiples of each other: they say the same of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker._array import eps, like, namespace, to_numpy
from lowtucker._array.random import Stream, generator
from lowtucker.operators.base import MeasurementOperator
from lowtucker.tensor.random import gaussians
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["repeated_rows"]

NumPyArray = np.ndarray[Any, Any]
# Ratios of measurements agree where they differ by so many roundings
AGREE = 1e3
# Entries of rows that are looked at first: those of a cache line
HEAD = 8


def repeated_rows(A: MeasurementOperator, dtype: Any) -> NumPyArray | None:
    """Number the rows so that multiples of a row have its number; None if no two are.

    By the measurements of two random tensors of rank one, whose ratios agree for multiples of a
    row: one pass, or two forwards of functions; none where the first entries of the rows of a
    matrix in memory show that all differ. Rows of zeros have a number in common; so have a row and
    its conjugate, if tensors are real. Only in double precision: None in single, where ratios
    agree by chance.

    Parameters
    ----------
    A : MeasurementOperator
    dtype : dtype
        Of the tensors.

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> A = lt.gaussian((3, 4), m=5, seed=0)
    >>> repeated_rows(A, np.float64) is None
    True
    >>> labels = repeated_rows(A.restrict(np.array([0, 1, 0])), np.float64)
    >>> bool(labels[0] == labels[2] != labels[1])
    True
    """
    core = like(np.ones((1,) * len(A.shape)), A.prototype, dtype)
    if A.batch_shape or eps(core) > np.finfo(np.float64).eps:
        return None
    is_real = not namespace(core).isdtype(dtype, "complex floating")
    draws, kind = generator((0, 0), Stream.PROBE), np.float64 if is_real else np.complex128
    heads = A.row_heads(HEAD)
    if heads is not None:
        seen = heads @ gaussians(draws, (heads.shape[1], 2), np.dtype(kind))
        if _numbered(seen[:, 0], seen[:, 1], is_real) is None:
            return None
    factors = []
    for n in A.shape:
        u = gaussians(draws, (2, n, 1), np.dtype(kind))
        factors.append(like(u / np.linalg.norm(u, axis=1, keepdims=True), core, dtype))
    both = TuckerTensor(namespace(core).stack([core, core]), tuple(factors))
    first, second = to_numpy(A.forward(both))
    return _numbered(first, second, is_real)


def _numbered(first: NumPyArray, second: NumPyArray, is_real: bool) -> NumPyArray | None:
    """Number pairs by their ratios; None if all differ."""
    zero = (first == 0) & (second == 0)
    with np.errstate(all="ignore"):  # a ratio may be infinite
        ratio = np.where(zero, 0, first / np.where(zero, 1, second))
    imaginary = np.abs(ratio.imag) if is_real else ratio.imag
    keys = np.stack([np.arctan(imaginary), np.arctan(ratio.real), zero])
    order = np.lexsort(keys)
    differs = np.any(np.abs(np.diff(keys[:, order])) > AGREE * np.finfo(np.float64).eps, axis=0)
    if np.all(differs):
        return None
    labels = np.empty(len(order), dtype=int)
    labels[order] = np.concatenate([[0], np.cumsum(differs)])
    return labels
