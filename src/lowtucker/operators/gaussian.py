"""Gaussian measurements."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from lowtucker._array import as_array_shape, as_choice, as_float_dtype, as_integer, size
from lowtucker._array.memory import check_room
from lowtucker._array.random import Seed, Stream, generator
from lowtucker.operators.dense import DenseOperator
from lowtucker.tensor.random import gaussians, items_of, stack_seeds

__all__ = ["gaussian"]


def gaussian(
    shape: tuple[int, ...],
    m: int,
    seed: Seed = 0,
    *,
    normalize: Literal["unit", "frobenius"] | None = None,
    dtype: Any = np.float64,
    trials: int | None = None,
) -> DenseOperator:
    r"""Gaussian measurements: independent entries in every sensing tensor.

    Parameters
    ----------
    shape : tuple of int
        Shape of the tensors.
    m : int
        The number of measurements.
    seed : int, or (int, trial)
    normalize : None, "unit" or "frobenius"
        None: entries N(0, 1), so that :math:`\tfrac1m \|\mathcal{A}(X)\|^2 \approx \|X\|_F^2` as
        in the TRIP (5.1). "unit": variance 1/m. "frobenius": divided by the Frobenius norm of
        the matrix, as in the paper's experiments.
    dtype : float or complex dtype
    trials : int, optional
        Make a batch: item k is the operator of ``seed=(seed, k)``.

    Notes
    -----
    Memory: m N numbers.

    Examples
    --------
    >>> gaussian((30, 30, 10), m=300, seed=1)
    DenseOperator: 300 measurements of tensors of shape (30, 30, 10) (0.033 per entry)
    """
    shape, m = as_array_shape(shape), as_integer(m, "m")
    as_choice(normalize, "normalize", (None, "unit", "frobenius"))
    dtype = as_float_dtype(dtype)
    of_trials = "" if trials is None else f", {trials} times,"
    check_room(
        m * size(shape) * dtype.itemsize * items_of(trials),
        f"m = {m} rows of {size(shape)} numbers{of_trials}",
        "Try lowtucker.seeded_gaussian(shape, m), which generates them on demand.",
    )
    matrices = []
    for one in stack_seeds(seed, trials):
        matrix = gaussians(generator(one, Stream.OPERATOR), (m, size(shape)), dtype)
        if normalize is not None:
            matrix /= matrix.real.dtype.type(
                np.sqrt(m) if normalize == "unit" else np.linalg.norm(matrix)
            )
        matrices.append(matrix)
    operator = object.__new__(DenseOperator)  # finite by construction: not read again to check
    operator.shape, operator.order = shape, "C"
    operator._set(matrices[0] if trials is None else np.stack(matrices), None)
    return operator
