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


def repeated_rows(A: MeasurementOperator, dtype: Any) -> NumPyArray | None:
    """Number the rows so that multiples of a row have its number; None if no two are.

    By the measurements of two random tensors of rank one, whose ratios agree for multiples of a
    row: two passes. Rows of zeros have a number in common; so have a row and its conjugate, if
    tensors are real. Only in double precision: None in single, where ratios agree by chance.

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
    >>> repeated_rows(A.restrict(np.array([0, 1, 0])), np.float64).tolist()
    [1, 0, 1]
    """
    core = like(np.ones((1,) * len(A.shape)), A.prototype, dtype)
    if A.batch_shape or eps(core) > np.finfo(np.float64).eps:
        return None
    draws, is_real = (
        generator((0, 0), Stream.PROBE),
        not namespace(core).isdtype(dtype, "complex floating"),
    )
    seen = []
    for _ in range(2):
        kind = np.dtype(np.float64 if is_real else np.complex128)
        vectors = [gaussians(draws, (n, 1), kind) for n in A.shape]
        factors = (like(u / np.linalg.norm(u), core, dtype) for u in vectors)
        seen.append(to_numpy(A.forward(TuckerTensor(core, tuple(factors)))))
    first, second = seen
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
