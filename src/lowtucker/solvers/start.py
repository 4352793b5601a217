"""Where an iteration starts."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker._arrays import Array, as_float, like
from lowtucker.problem import Problem
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding import Thresholding

__all__ = ["as_start", "zero_tensor"]


def as_start(start: Any, problem: Problem, thresholding: Thresholding) -> TuckerTensor:
    """Make a first iterate of what the user gave: a tensor, an array, or nothing (zero)."""
    if start is None:
        return zero_tensor(problem, thresholding.rank)
    X = start if isinstance(start, TuckerTensor) else as_float(start, "start")
    shape = (*X.batch_shape, *X.shape) if isinstance(X, TuckerTensor) else tuple(X.shape)
    if shape != (*problem.batch_shape, *problem.shape):
        raise ValueError(
            f"start must have the shape of the tensor, {(*problem.batch_shape, *problem.shape)}, "
            f"got {shape}."
        )
    if isinstance(X, TuckerTensor) and X.rank == thresholding.rank:
        return X
    return thresholding(X.full() if isinstance(X, TuckerTensor) else X)


def zero_tensor(problem: Problem, rank: tuple[int, ...]) -> TuckerTensor:
    """Zero, the paper's X^0, with unit vectors as factors, in the problem's dtype and kind."""
    dtype = problem.tensor_dtype
    batch = problem.batch_shape

    def array(value: Any) -> Array:
        return like(np.broadcast_to(value, (*batch, *value.shape)).copy(), problem.y, dtype)

    factors = [array(np.eye(n, r)) for n, r in zip(problem.shape, rank, strict=True)]
    return TuckerTensor.trusted(array(np.zeros(rank)), factors)
