"""Where an iteration starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    all_finite,
    as_float,
    like,
    namespace,
    real_dtype,
    same_kind,
    size,
    to_numpy,
)
from lowtucker._array.random import Seed, as_seed
from lowtucker.problem import Problem
from lowtucker.solvers.base import State
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding import Thresholding

__all__ = ["adopt", "as_start", "failed_start", "zero_tensor"]


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
    parts = [X.core, *X.factors] if isinstance(X, TuckerTensor) else [X]
    same_kind(parts[0], problem.A.prototype, "start", type(problem.A).__name__)
    _check_finite(parts)
    if not isinstance(X, TuckerTensor) or X.rank != thresholding.rank:
        X = thresholding(X.full() if isinstance(X, TuckerTensor) else X)
    return _in_dtype(X, problem)


def adopt(state: State, problem: Problem, rank: tuple[int, ...]) -> State:
    """Check that a state can be continued on a problem; move its arrays to the problem's kind."""
    given = (*state.X.batch_shape, *state.X.shape)
    if given != (*problem.batch_shape, *problem.shape) or state.X.rank != rank:
        raise ValueError(
            f"start is a state of shape {given} and rank {state.X.rank}, expected "
            f"{(*problem.batch_shape, *problem.shape)} and {rank}. To begin at its tensor, give "
            "start=result.X."
        )
    _check_finite([state.X.core, *state.X.factors])
    real = real_dtype(problem.y)
    return replace(
        state,
        X=_in_dtype(state.X, problem),
        diverged=like(to_numpy(state.diverged), problem.y),
        damping=like(to_numpy(state.damping), problem.y, real),
        level=like(to_numpy(state.level), problem.y, real),
        carry=None if state.carry is None else like(to_numpy(state.carry), problem.y),
    )


def _check_finite(parts: list[Array]) -> None:
    if not all(map(all_finite, parts)):
        raise ValueError(
            "start has NaN or infinite entries. Leave it out, or start from the last finite tensor."
        )


def _in_dtype(X: TuckerTensor, problem: Problem) -> TuckerTensor:
    """Tensor in the problem's dtype, kind and device."""
    dtype = problem.tensor_dtype

    def moved(x: Array) -> Array:
        if type(x) is type(problem.y) and x.dtype == dtype:
            return x
        return like(to_numpy(x), problem.y, dtype)

    return TuckerTensor.trusted(moved(X.core), [moved(U) for U in X.factors])


def failed_start(problem: Problem, rank: tuple[int, ...], seed: Seed) -> State:
    """State of a run that could not begin: at zero, and at its end."""
    X = zero_tensor(problem, rank)
    number, first = as_seed(seed)
    trials = tuple(range(first, first + size(problem.batch_shape)))
    one = namespace(X.core).ones_like(X.norm())
    return State(X, 0, number, trials, 0.0, one > 0, one, one)


def zero_tensor(problem: Problem, rank: tuple[int, ...]) -> TuckerTensor:
    """Zero, the paper's X^0, with unit vectors as factors, in the problem's dtype and kind."""
    dtype = problem.tensor_dtype
    batch = problem.batch_shape

    def array(value: Any) -> Array:
        return like(np.broadcast_to(value, (*batch, *value.shape)).copy(), problem.y, dtype)

    factors = [array(np.eye(n, r)) for n, r in zip(problem.shape, rank, strict=True)]
    return TuckerTensor.trusted(array(np.zeros(rank)), factors)
