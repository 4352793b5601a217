"""Annealing: shrinkage at noise levels that fall, for holes and for any other measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from lowtucker._array import (
    Array,
    as_number,
    is_numpy,
    like,
    namespace,
    put,
    real_dtype,
    size,
    to_numpy,
)
from lowtucker._array.clock import check_time
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Memory, State
from lowtucker.solvers.shrinking import Shrinking
from lowtucker.solvers.start import adopt, first_state, start_tensor
from lowtucker.tensor.products import norm
from lowtucker.thresholding import Shrinkage, ShrunkTensor
from lowtucker.thresholding.shrinkage import shrunk

__all__ = ["LEVELS", "Annealing"]

# Noise levels, as shares of the data's root mean square
LEVELS = tuple(np.geomspace(1.0, 0.002, 14).tolist())
# Steps of power iteration for the length of a gradient step, and its margin
POWER, MARGIN = 12, 1.05
# Directions with so little of the noise's variance are dropped
DROP = 0.01
# Least variance of noise: data may be zero
TINY = 1e-30


@dataclass(frozen=True)
class Course(Memory):
    """What annealing remembers.

    Attributes
    ----------
    previous : array, shape (n_1, ..., n_d)
        The tensor of the step before.
    score : array, shape ()
        Lowest score of all levels so far.
    level : array, shape ()
        The number of that level.
    answer : array
        What the judge said of it.
    best, effective : arrays, shape (n_1, ..., n_d) and ()
        Its tensor, and the effective degrees of freedom.
    """

    previous: Array
    score: Array
    level: Array
    answer: Array
    best: Array
    effective: Array


@dataclass(frozen=True)
class Rows:
    """What is known of the rows.

    Attributes
    ----------
    step : float
        Length of a gradient step.
    square : float
        Mean square of an entry of X, by the size of y.
    places : array of int or None
        Where the samples are in the flattened tensor, if each entry is sampled at most once.
    """

    step: float
    square: float
    places: Any


# Score of a tensor, and an array that goes with it
Judge = Callable[[Array], tuple[float, Any]]


@dataclass(frozen=True, repr=False, kw_only=True)
class Annealing(Shrinking):
    r"""Shrinkage in the paper's loop, while the noise level falls. It needs no rank.

    At every level :math:`\sigma` some steps of TIHT with the thresholding
    :class:`lowtucker.Shrinkage` and momentum :math:`\beta`,

    .. math::

        V &= X^t + \beta (X^t - X^{t-1}) \\
        X^{t+1} &= S_\sigma(V + \mu A^*(y - A(V))).

    For sampled entries :math:`\mu = 1`: what is known is known, what is not is what the last step
    made of it, an EM step. Elsewhere :math:`\mu = 1 / \|A\|^2`, by power iteration.

    Parameters
    ----------
    prior : "sum" or "product"
        As in :class:`lowtucker.Shrinkage`.
    subtract : bool
        Whether the noise is subtracted from the variances (its share of m / N).
    levels : tuple of float
        Noise levels, as shares of the root mean square of an entry, falling.
    inner : int
        Steps at each level.
    momentum : float
        :math:`\beta`. With 0.8, 8 steps at each level did better than 16 without (car parks).
    judge : callable, optional
        Gets the full tensor after every level, and returns a score and an array; the run ends with
        the tensor of the lowest score, when that has not fallen for ``wait`` levels.
    wait : int

    Notes
    -----
    An epoch is a level. A step costs one pass over A and a shrinkage, :math:`O(N \sum n_k)`.
    Memory: a few tensors.

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> X_true = lt.random_tucker((12, 12, 12), (2, 2, 2), seed=0).full()
    >>> known = np.argwhere(np.random.default_rng(0).random((12, 12, 12)) < 0.5)
    >>> A = lt.entries((12, 12, 12), known)
    >>> result = lt.recover(A, X_true[tuple(known.T)], solver=Annealing())
    >>> lt.metrics.relative_error(result.X, X_true) < 0.01
    True
    """

    prior: Literal["sum", "product"] = "sum"
    subtract: bool = True
    levels: tuple[float, ...] = field(default=LEVELS, repr=False)
    inner: int = 8
    momentum: float = 0.8
    judge: Judge | None = field(default=None, repr=False, compare=False)
    wait: int = 4

    def __post_init__(self) -> None:
        """Check the settings."""
        Shrinkage(1.0, self.prior)
        if not self.levels or any(not s > 0 for s in self.levels):
            raise ValueError(f"levels must be positive numbers, got {self.levels!r:.80}.")
        for name in ("inner", "wait"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}.")
        if as_number(self.momentum, "momentum", 0.0) >= 1:
            raise ValueError(f"momentum must be below 1, got {self.momentum:g}. Try 0.8.")

    def init(self, bound: Bound, start: Any, seed: Seed) -> State:
        """State at the start."""
        problem = bound.problem
        if isinstance(start, State):
            state = adopt(start, problem, None, Course)
            rows, _ = _rows(problem, (state.seed, state.trials[0]))
            memory = state.memory or _fresh(state.X.full())
            return replace(state, memory=memory, cache=rows)
        full = start_tensor(start, problem)
        rows, passes = _rows(problem, as_seed(seed))
        zero = like(np.zeros(()), problem.y, real_dtype(problem.y))
        state = first_state(ShrunkTensor(full, zero), _fresh(full), as_seed(seed), passes)
        return replace(state, cache=rows)

    def advance(self, bound: Bound, state: State) -> State:
        """All steps of one level."""
        problem, rows = bound.problem, state.cache
        share = self.levels[min(state.t, len(self.levels) - 1)]
        noise = max(share**2 * rows.square, TINY)
        known = min(problem.equations / size(problem.shape), 1.0) if self.subtract else 0.0
        X, previous = state.X, state.memory.previous
        for _ in range(self.inner):
            check_time()
            Z = _ahead(problem, rows, X.tensor + self.momentum * (X.tensor - previous))
            X, previous = shrunk(Z, noise, self.prior, known, drop=DROP), X.tensor
        broken = ~namespace(Z).isfinite(X.norm())
        if bool(broken):
            return replace(state, diverged=broken)
        memory = self._judged(X, replace(state.memory, previous=previous), state.t)
        passes = state.passes + self.inner
        after = replace(state, X=X, t=state.t + 1, memory=memory, passes=passes)
        if self.judge is None or not self.is_stuck(after):
            return after
        return replace(after, X=ShrunkTensor(memory.best, memory.effective))

    def _judged(self, X: ShrunkTensor, memory: Course, level: int) -> Course:
        if self.judge is None:
            return memory
        score, answer = self.judge(X.tensor)
        if not score < float(memory.score):
            return memory
        zero = memory.level * 0
        return Course(memory.previous, zero + score, zero + level, answer, X.tensor, X.effective)

    def is_stuck(self, state: State) -> bool:
        """Whether all levels are done, or the score has not fallen for a while."""
        if state.t >= len(self.levels):
            return True
        if self.judge is None or state.memory is None:
            return False
        last = float(to_numpy(state.memory.level).reshape(-1)[0])
        return state.t - 1 - last >= self.wait


def _fresh(full: Array) -> Course:
    zero = like(np.zeros(()), full, real_dtype(full))
    return Course(full, zero + np.inf, zero, zero, full, zero)


def _ahead(problem: Problem, rows: Rows, V: Array) -> Array:
    """Return V after a gradient step; V may be overwritten."""
    xp = namespace(V)
    if rows.places is None:
        _, ascent = problem.A.misfit(V, problem.y, problem.weights)
        return V + rows.step * ascent
    flat, y = xp.reshape(V, (-1,)), xp.astype(problem.y, V.dtype, copy=False)
    if is_numpy(V):
        flat[rows.places] = y
    else:
        flat = put(flat, rows.places, y)
    return xp.reshape(flat, problem.shape)


def _rows(problem: Problem, seed: tuple[int, int]) -> tuple[Rows, float]:
    """Look at the rows, and count the passes."""
    weights = np.ones(problem.m) if problem.weights is None else to_numpy(problem.weights)
    energy = float(to_numpy(problem.y_norm)) ** 2
    samples = problem.A.entry_samples()
    if samples is not None and samples[1] is None:
        square = energy / float(np.sum(weights))
        places = np.ravel_multi_index(tuple(samples[0].T), problem.shape)
        if problem.weights is None and len(np.unique(places)) == len(places):
            return Rows(1.0, square, places), 0.0
        most = np.bincount(np.unique(places, return_inverse=True)[1].reshape(-1), weights).max()
        return Rows(1.0 / float(most), square, None), 0.0
    rng = generator(seed, Stream.PROBE)
    v = like(rng.standard_normal(problem.shape), problem.y, problem.tensor_dtype)
    # the mean of ||A g||^2 is the sum of the squared row norms
    square = energy / float(to_numpy(problem.measured_norm(v))) ** 2
    largest = 0.0
    for _ in range(POWER):
        v = v / norm(v)
        _, ascent = problem.A.misfit(v, namespace(problem.y).zeros_like(problem.y), problem.weights)
        v, largest = -ascent, float(to_numpy(norm(ascent)))
    return Rows(1.0 / (MARGIN * largest), square, None), 1.0 + POWER
