"""What message passing must know of the rows: their size, and whether they are orthogonal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    conj,
    is_complex,
    like,
    namespace,
    per_trial,
    real,
    real_dtype,
    size,
    to_numpy,
)
from lowtucker._array.random import Stream, generator
from lowtucker.problem import Problem
from lowtucker.solvers.base import Cache
from lowtucker.solvers.shrinking import host, of_each, spread
from lowtucker.tensor.products import norm

__all__ = [
    "Rows",
    "is_complex_tensor",
    "look_at_rows",
    "normal_numbers",
    "spread_of_rows",
]

# Rows are orthogonal where A(A*(v)) is a multiple of v to this
ORTHOGONAL = 1e-3
# Random tensors that give the size of the rows, where their norms are not at hand. Its relative
# error is (2 / (PROBES m))^(1/2); one of 5 % raised the error of a fit from 0.073 to 0.10
PROBES = 10


@dataclass(frozen=True)
class Rows(Cache):
    """What is known of the rows, beside A: numbers, or NumPy arrays with one for each problem.

    Attributes
    ----------
    gain : float
        Weighted sum of the squared row norms, over N: A*A is about this times the identity.
    total : float
        Sum of the weights of all equations.
    orthogonal : bool
        Whether A(A*(v)) is a multiple of v.
    equal : bool
        Whether all weights are 1 or 0.
    spread : float
        Mean square of the eigenvalues of A A* over their squared mean, in units of that of i.i.d.
        rows, 1 + m/N: larger where rows are not isotropic.
    """

    gain: Any
    total: Any
    orthogonal: Any
    equal: Any
    spread: Any

    def of_part(self, total: float) -> Rows:
        """Return what is known of a random part of the rows, by the sum of its weights."""
        return replace(self, gain=self.gain * total / self.total, total=total)

    def noise(self, vector: Array, shape: tuple[int, ...]) -> Any:
        """Variance of the noise in Z that a vector leads to."""
        squares = host(norm(vector, batch_ndim=vector.ndim - 1)) ** 2
        share = np.where(self.orthogonal, 1 - self.total / size(shape), 1.0)
        return host(squares / (self.gain * self.total) * np.maximum(share, 0.0))


def look_at_rows(problem: Problem, seed: int, trials: Sequence[int]) -> Rows:
    """Look at the rows; random numbers are those of (seed, trial). Two to 2 + PROBES passes."""
    parts = 2 if is_complex(problem.y) and not is_complex_tensor(problem) else 1
    weights = np.ones(problem.m) if problem.weights is None else to_numpy(problem.weights)
    total, N = parts * host(np.sum(weights, axis=-1)), size(problem.shape)
    draws = [generator((seed, trial), Stream.PROBE) for trial in trials]

    def normal(rng: Any) -> Any:
        return normal_numbers(rng, (problem.m,), is_complex(problem.y))

    v = of_each(normal, problem, draws, problem.y.dtype)
    back = problem.A.forward(problem.A.adjoint(v))
    ratio = host(_real_inner(v, back)) / host(_real_inner(v, v))
    rest = back - (per_trial(spread(ratio, problem), v) if problem.batch_shape else ratio) * v
    away, length, of_v = (host(norm(x, batch_ndim=x.ndim - 1)) for x in (rest, back, v))
    away = away / _or_one(length)
    isotropic = 1 + parts * problem.m / N
    found = (length / _or_one(ratio * of_v)) ** 2 / isotropic
    equal = host(np.all((weights == 0) | (weights == 1), axis=-1)) > 0
    orthogonal = (away < ORTHOGONAL) & (total < N)
    if np.all(orthogonal):
        return Rows(ratio * total / N, total, orthogonal, equal, found)
    if problem.A.traits.has_fast_row_norms:
        norms = to_numpy(problem.A.row_norms())
        gain = host(np.sum(weights * norms**2, axis=-1)) / N
    else:
        gain = _gain_by_probes(problem, draws)
    gain = host(np.where(orthogonal, ratio * total / N, gain))
    return Rows(gain, total, orthogonal, equal, found)


def _gain_by_probes(problem: Problem, draws: Sequence[Any]) -> Any:
    """Weighted sum of the squared row norms, over N, by random tensors."""

    def normal(rng: Any) -> Any:
        return normal_numbers(rng, problem.shape, is_complex_tensor(problem))

    sizes = [
        host(problem.measured_norm(of_each(normal, problem, draws, problem.tensor_dtype))) ** 2
        for _ in range(PROBES)
    ]
    return host(np.mean(sizes, axis=0)) / size(problem.shape)


def _or_one(numbers: Any) -> Any:
    """Numbers to divide by: 1 for 0."""
    return host(np.where(numbers == 0, 1.0, numbers))


def spread_of_rows(problem: Problem, seed: tuple[int, int]) -> float:
    """Spread of the eigenvalues of A A*, as in :class:`Rows`, of rows with their weights.

    By a random vector, and by ones: what all rows have in common is one eigenvalue, which a random
    vector may miss. Three passes.
    """
    xp, rng = namespace(problem.y), generator(seed, Stream.PROBE)
    v = like(normal_numbers(rng, (problem.m,), is_complex(problem.y)), problem.y, problem.y.dtype)
    roots = like(np.ones(problem.m), problem.y, real_dtype(problem.y))
    roots = roots if problem.weights is None else xp.sqrt(problem.weights)
    v = xp.where(roots > 0, v, xp.zeros_like(v))
    back = roots * problem.A.forward(problem.A.adjoint(roots * v))
    sizes = [float(to_numpy(_real_inner(*pair))) for pair in ((v, v), (v, back), (back, back))]
    if not sizes[1] > 0:
        return 1.0
    spread = sizes[0] * sizes[2] / sizes[1] ** 2
    spread = spread / (1 + float(problem.equations) / size(problem.shape))
    ones = xp.astype(roots, problem.y.dtype)
    common = float(to_numpy(norm(problem.A.adjoint(roots * ones)))) ** 2
    count = float(to_numpy(_real_inner(ones, ones)))
    return max(spread, common / count / (sizes[1] / sizes[0]) / 2)  # it varies more


def is_complex_tensor(problem: Problem) -> bool:
    """Whether X is complex."""
    return bool(namespace(problem.y).isdtype(problem.tensor_dtype, "complex floating"))


def normal_numbers(rng: Any, shape: tuple[int, ...], is_complex: bool) -> Any:
    """Normal numbers of variance 1."""
    numbers = rng.standard_normal(shape)
    return (numbers + 1j * rng.standard_normal(shape)) / 2**0.5 if is_complex else numbers


def _real_inner(x: Array, y: Array) -> Array:
    return real(namespace(x).sum(conj(x) * y, axis=-1))
