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
from lowtucker.solvers.base import Memory, State, mapped
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding import Iterate, Shrinkage, ShrunkTensor, TuckerTruncation

__all__ = [
    "adopt",
    "as_start",
    "failed_start",
    "first_state",
    "in_dtype",
    "start_tensor",
    "zero_iterate",
]


def as_start(start: Any, problem: Problem, thresholding: Any) -> Any:
    """Make a first iterate of what the user gave: a tensor, an array, or nothing (zero)."""
    if start is None:
        return zero_iterate(problem, thresholding)
    X = start if isinstance(start, Iterate) else as_float(start, "start")
    shape = (*X.batch_shape, *X.shape) if isinstance(X, Iterate) else tuple(X.shape)
    if shape != (*problem.batch_shape, *problem.shape):
        raise ValueError(
            f"start must have the shape of the tensor, {(*problem.batch_shape, *problem.shape)}, "
            f"got {shape}."
        )
    parts = list(X.parts().values()) if isinstance(X, Iterate) else [X]
    same_kind(parts[0], problem.A.prototype, "start", type(problem.A).__name__)
    _check_finite(parts)
    if not isinstance(X, Iterate) or not _is_own(X, problem, thresholding):
        X = thresholding(X.full() if isinstance(X, Iterate) else X)
    return in_dtype(X, problem)


def _is_own(X: Iterate, problem: Problem, thresholding: Any) -> bool:
    """Whether an iterate is of a thresholding's format and rank."""
    zero = zero_iterate(problem, thresholding)
    return type(X) is type(zero) and (X.rank, X.layout) == (zero.rank, zero.layout)


def start_tensor(start: Any, problem: Problem) -> Array:
    """Full tensor of what the user gave: a tensor, an array, or nothing (zero)."""
    shape = (*problem.batch_shape, *problem.shape)
    if start is None:
        return like(np.zeros(shape), problem.y, problem.tensor_dtype)
    full = start.full() if isinstance(start, Iterate) else start
    X = as_start(ShrunkTensor(as_float(full, "start"), np.zeros(())), problem, Shrinkage(1.0))
    tensor: Array = X.full()
    return tensor


def adopt(state: State, problem: Problem, rank: Any, memory: type) -> State:
    """Check that a state can be continued on a problem; move its arrays to the problem's kind.

    What another solver remembered is dropped: its memory is then None.
    """
    given = (*state.X.batch_shape, *state.X.shape)
    if given != (*problem.batch_shape, *problem.shape) or state.X.rank != rank:
        raise ValueError(
            f"start is a state of shape {given} and rank {state.X.rank}, expected "
            f"{(*problem.batch_shape, *problem.shape)} and {rank}. To begin at its tensor, give "
            "start=result.X."
        )
    _check_finite(list(state.X.parts().values()))
    real = real_dtype(problem.y)

    def moved(x: Array) -> Array:
        x = to_numpy(x)
        if x.dtype.kind in "biu":  # counts and flags, which stay NumPy arrays
            return x
        return like(x, problem.y) if x.dtype.kind == "c" else like(x, problem.y, real)

    return replace(
        state,
        X=in_dtype(state.X, problem),
        diverged=like(to_numpy(state.diverged), problem.y),
        memory=mapped(moved, state.memory) if isinstance(state.memory, memory) else None,
        cache=None,
    )


def _check_finite(parts: list[Array]) -> None:
    if not all(map(all_finite, parts)):
        raise ValueError(
            "start has NaN or infinite entries. Leave it out, or start from the last finite tensor."
        )


def in_dtype(X: Any, problem: Problem) -> Any:
    """Iterate in the problem's dtype, kind and device."""
    dtype = problem.tensor_dtype

    def moved(x: Array) -> Array:
        if type(x) is type(problem.y) and x.dtype == dtype:
            return x
        host = to_numpy(x)
        return like(host, problem.y, host.dtype if host.dtype.kind in "biu" else dtype)

    return X.with_parts({name: moved(x) for name, x in X.parts().items()})


def first_state(X: Iterate, memory: Memory | None, seed: tuple[int, int]) -> State:
    """State at the start."""
    number, first = seed
    trials = tuple(range(first, first + size(X.batch_shape)))
    one = namespace(X.norm()).ones_like(X.norm())
    return State(X, 0, number, trials, 0.0, one < 0, memory)


def failed_start(problem: Problem, thresholding: Any, seed: Seed) -> State:
    """State of a run that could not begin: at zero, and at its end."""
    state = first_state(zero_iterate(problem, thresholding), None, as_seed(seed))
    return replace(state, diverged=~state.diverged)


def zero_iterate(problem: Problem, thresholding: Any) -> Any:
    """Zero, the paper's X^0, as an iterate of a thresholding's format."""
    if isinstance(thresholding, TuckerTruncation):
        return zero_tensor(problem, thresholding.rank)
    shape = (*problem.batch_shape, *problem.shape)
    return thresholding(like(np.zeros(shape), problem.y, problem.tensor_dtype))


def zero_tensor(problem: Problem, rank: tuple[int, ...]) -> TuckerTensor:
    """Zero, the paper's X^0, with unit vectors as factors, in the problem's dtype and kind."""
    dtype = problem.tensor_dtype
    batch = problem.batch_shape

    def array(value: Any) -> Array:
        return like(np.broadcast_to(value, (*batch, *value.shape)).copy(), problem.y, dtype)

    factors = [array(np.eye(n, r)) for n, r in zip(problem.shape, rank, strict=True)]
    return TuckerTensor.trusted(array(np.zeros(rank)), factors)
