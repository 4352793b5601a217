"""Annealing: shrinkage at noise levels that fall, for holes and for any other measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from lowtucker._array import (
    Array,
    as_number,
    is_numpy,
    like,
    namespace,
    per_trial,
    put,
    size,
    to_numpy,
)
from lowtucker._array.clock import check_time
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Cache, Memory, State
from lowtucker.solvers.shrinking import Shrinking, host, kept_finite, numbers_of, of_each, spread
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
    previous : array, shape (*batch, n_1, ..., n_d)
        The tensor of the step before.
    score : array, shape (*batch,)
        Lowest score of all levels so far.
    level : array, shape (*batch,)
        The number of that level.
    best, effective : arrays, shape (*batch, n_1, ..., n_d) and (*batch,)
        Its tensor, and the effective degrees of freedom.
    """

    previous: Array
    score: Array
    level: Array
    best: Array
    effective: Array


@dataclass(frozen=True)
class Rows(Cache):
    """What is known of the rows.

    Attributes
    ----------
    step : float or array, shape (*batch,)
        Length of a gradient step.
    square : float or NumPy array, shape (*batch,)
        Mean square of an entry of X, by the size of y.
    places, values : NumPy array of int and array, shape (*batch, m), or None
        Where the samples are in the flattened tensor, if each entry is sampled at most once and
        counts fully or not at all; one that does is in the place of one that does not.
    """

    step: Any
    square: Any
    places: Any = None
    values: Any = None


# Score of a tensor of the problem of that number: 0, 1, ... in a batch
Judge = Callable[[Array, int], float]


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
        Gets the full tensor of a problem and its number in the batch (0 for one problem, with the
        default seed) after every level, and returns a score; the run ends with the tensor of the
        lowest score, when that has not fallen for ``wait`` levels.
    wait : int

    Notes
    -----
    An epoch is a level. A step costs one pass over A and a shrinkage, :math:`O(N \sum n_k)`.
    Memory: a few tensors. A batch has as many of each problem; its shrinkages are cut into pieces.
    It saves the overhead of Python, which is most of the time up to some 1000 entries (16 problems
    of 5x5x6: 7 times as fast), and little from 10^4 on.

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
            rows = _rows(problem, state.seed, state.trials)
            memory = state.memory or _fresh(state.X.full(), problem)
            return replace(state, memory=memory, cache=rows)
        full = start_tensor(start, problem)
        number, first = as_seed(seed)
        rows = _rows(problem, number, numbers_of(problem, first))
        X = ShrunkTensor(full, spread(0.0, problem))
        state = first_state(X, _fresh(full, problem), (number, first))
        return replace(state, cache=rows)

    def advance(self, bound: Bound, state: State) -> State:
        """All steps of one level."""
        problem, rows, batch_ndim = bound.problem, state.cache, len(bound.problem.batch_shape)
        share = self.levels[min(state.t, len(self.levels) - 1)]
        noise = host(np.maximum(share**2 * rows.square, TINY))
        known = host(np.minimum(problem.equations / size(problem.shape), 1.0))
        known = known if self.subtract else 0.0
        if batch_ndim:
            noise, known = spread(noise, problem), spread(known, problem)
        X, previous, broken = state.X, state.memory.previous, state.diverged
        for _ in range(self.inner):
            check_time()
            Z = _ahead(problem, rows, X.tensor + self.momentum * (X.tensor - previous))
            if batch_ndim:
                Z, broken = kept_finite(Z, state.X.tensor, broken)
            X, previous = (
                shrunk(Z, noise, self.prior, known, batch_ndim=batch_ndim, drop=DROP),
                X.tensor,
            )
        broken = broken | ~namespace(Z).isfinite(X.norm())
        if bool(namespace(Z).any(broken)):
            if not batch_ndim:
                return replace(state, diverged=broken)
            X = state.X.where(broken, X)
        memory = self._judged(bound, X, replace(state.memory, previous=previous), state)
        after = replace(state, X=X, t=state.t + 1, memory=memory, diverged=broken)
        stuck = self.is_stuck(after)
        if self.judge is None or not np.any(stuck):
            return after
        return replace(after, X=ShrunkTensor(memory.best, memory.effective).where(stuck, X))

    def _judged(self, bound: Bound, X: ShrunkTensor, memory: Course, state: State) -> Course:
        """Memory with the tensors that have the lowest score so far."""
        if self.judge is None:
            return memory
        each = (
            [X.tensor] if not X.batch_shape else [X.tensor[k, ...] for k in range(X.batch_shape[0])]
        )
        scores = [self.judge(one, k) for one, k in zip(each, state.trials, strict=True)]
        found = np.asarray(scores if X.batch_shape else scores[0])
        falls = np.asarray(found < host(memory.score))
        if not falls.any():
            return memory
        score, better = spread(found, bound.problem), like(falls, X.tensor)
        best = X.where(better, ShrunkTensor(memory.best, memory.effective))
        where = namespace(score).where
        return Course(
            memory.previous,
            where(better, score, memory.score),
            where(better, spread(state.t, bound.problem), memory.level),
            best.tensor,
            best.effective,
        )

    def is_stuck(self, state: State) -> Any:
        """Whether all levels are done, or the score has not fallen for a while.

        A bool; for a batch one for each problem.
        """
        stuck = np.full(state.X.batch_shape, state.t >= len(self.levels))
        if self.judge is not None and state.memory is not None:
            stuck = stuck | (state.t - 1 - to_numpy(state.memory.level) >= self.wait)
        return stuck if stuck.ndim else bool(stuck)


def _fresh(full: Array, problem: Problem) -> Course:
    zero = spread(0.0, problem)
    return Course(full, zero + np.inf, zero, full, zero)


def _ahead(problem: Problem, rows: Rows, V: Array) -> Array:
    """Return V after a gradient step; V may be overwritten."""
    if rows.places is None:
        _, ascent = problem.A.misfit(V, problem.y, problem.weights)
        return V + per_trial(rows.step, V) * ascent
    xp, where = namespace(V), rows.places
    if where.ndim > 1:
        where = where + size(problem.shape) * np.arange(len(where))[:, None]
    flat, values = (xp.reshape(x, (-1,)) for x in (V, rows.values))
    where = where.reshape(-1)
    if is_numpy(V):
        flat[where] = values
    else:
        flat = put(flat, where, values)
    return xp.reshape(flat, V.shape)


def _rows(problem: Problem, seed: int, trials: Sequence[int]) -> Rows:
    """Look at the rows."""
    energy = host(problem.y_norm) ** 2
    samples = problem.A.entry_samples()
    if samples is not None and samples[1] is None:
        return _samples(problem, samples[0], energy)

    def draw(trial: int) -> Any:
        return generator((seed, trial), Stream.PROBE).standard_normal(problem.shape)

    batch_ndim = len(problem.batch_shape)
    v = of_each(draw, problem, trials, problem.tensor_dtype)
    # the mean of ||A g||^2 is the sum of the squared row norms
    square = energy / host(problem.measured_norm(v)) ** 2
    largest: Any = 0.0
    for _ in range(POWER):
        v = v / per_trial(norm(v, batch_ndim=batch_ndim), v)
        _, ascent = problem.A.misfit(v, namespace(problem.y).zeros_like(problem.y), problem.weights)
        v, largest = -ascent, host(norm(ascent, batch_ndim=batch_ndim))
    return Rows(_step(1.0 / (MARGIN * largest), problem), square)


def _samples(problem: Problem, indices: Any, energy: Any) -> Rows:
    """Look at sampled entries."""
    weights = np.ones(problem.m) if problem.weights is None else to_numpy(problem.weights)
    square = energy / host(np.sum(weights, axis=-1))
    places = np.ravel_multi_index(tuple(indices.T), problem.shape)
    different, order = np.unique(places, return_inverse=True)
    if len(different) == len(places) and np.all((weights == 0) | (weights == 1)):
        shape = (*problem.batch_shape, problem.m)
        counts = np.broadcast_to(weights > 0, shape)
        column = np.argmax(counts, axis=-1)[..., None]
        column = np.where(counts, np.arange(problem.m), column)
        values = np.take_along_axis(to_numpy(problem.y), column, axis=-1)
        return Rows(1.0, square, places[column], like(values, problem.y, problem.tensor_dtype))
    each = np.atleast_2d(weights)
    most = np.array([np.bincount(order.reshape(-1), one).max() for one in each])
    return Rows(_step(1.0 / (most if weights.ndim > 1 else most[0]), problem), square)


def _step(value: Any, problem: Problem) -> Any:
    """Length of steps, for arrays of the problem: a float, or one for each of a batch."""
    return spread(value, problem) if problem.batch_shape else float(value)
