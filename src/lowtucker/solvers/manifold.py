"""What the Riemannian solvers share: binding, the start, the linear model at X."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lowtucker._array import Array, like, namespace, real, real_dtype, to_numpy
from lowtucker._array.clock import TimeUp, unwatched
from lowtucker._array.linalg import eigvalsh
from lowtucker._array.random import Seed, Stream, as_seed, spawned
from lowtucker._array.readings import side_by_side
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Memory, Solver, State
from lowtucker.solvers.iht import settle_thresholding
from lowtucker.solvers.models import Model, covariance_error, dot
from lowtucker.solvers.start import adopt, as_start, first_state
from lowtucker.tensor.rank import attainable_rank, check_rank
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Level", "Manifold", "Starts", "blown_up", "bootstrap_starts", "of_members"]


# Rows that settle the scale of a start: to some ten per cent, which is enough
ROWS = 64


@dataclass(frozen=True)
class Level(Memory):
    """Relative residual of the rows that the last step read, before it; 0 if not known."""

    level: Array


class Starts(NamedTuple):
    """Starts of the problems of a batch, or of one problem.

    ``levels`` are relative residuals on a few rows, 0 where they are not known.
    """

    X: TuckerTensor
    levels: np.ndarray[Any, Any]


@dataclass(frozen=True, repr=False, kw_only=True)
class Manifold(Solver):
    """Solver on the tensors of one Tucker rank, for one problem or a batch.

    A subclass has ``_memory``, ``advance``, ``_first_memory``, and ``_look`` where the next step
    needs what is measured at X beforehand.
    """

    batch_first: ClassVar[bool] = True
    # What it remembers
    _memory: ClassVar[type[Memory]] = Level

    def bind(self, problem: Problem, rank: tuple[int, ...] | None) -> Bound:
        """Settle the rank: what no tensor attains is clipped."""
        if rank is None:
            raise ValueError(f"{type(self).__name__} needs a rank: give rank=(r1, ..., rd).")
        return Bound(self, problem, attainable_rank(check_rank(rank, problem.shape)))

    def init(self, bound: Bound, start: Any, seed: Seed) -> State:
        """State at the start: a given tensor, or the truncated adjoint, scaled."""
        problem, rank = bound.problem, bound.rank
        if isinstance(start, State):
            state = adopt(start, problem, rank, self._memory)
            state = state if bound.is_batch else state.batched()
            if state.memory is None:
                levels = np.ones(state.X.batch_shape)
                state = replace(state, memory=self._first_memory(state.X, levels))
            return self._looked(bound, state)
        X = as_start(start, problem, settle_thresholding(None, rank, problem))
        X, seed = X if bound.is_batch else X.batched(), as_seed(seed)
        count = X.batch_shape[0]
        trials = bound.trials or tuple(range(seed[1], seed[1] + count))
        levels = np.zeros(count)
        zero = np.flatnonzero(to_numpy(X.norm()) == 0)  # there is no tangent space at zero
        if zero.size:
            with unwatched():  # even a call that has no time left returns a start
                numbers = [(k, 0) for k in zero.tolist()]
                made = self._starts(bound, numbers, (seed[0], trials))
            X = made.X if zero.size == count else X.put(zero, made.X)
            levels[zero] = made.levels
        memory = self._first_memory(X, levels)
        state = first_state(X, memory, seed)
        return self._looked(bound, replace(state, trials=trials))

    def _looked(self, bound: Bound, state: State) -> State:
        """State from which a step may follow; as it is where there is no time for one."""
        try:
            return self._look(bound, state)
        except TimeUp:
            return state

    def _first_memory(self, X: TuckerTensor, levels: np.ndarray[Any, Any]) -> Memory:
        """Memory at a start with these relative residuals on a few rows (0 if not known)."""
        return Level(like(levels, X.core, real_dtype(X.core)))

    def _starts(
        self,
        bound: Bound,
        which: Sequence[tuple[int, int]],
        seeds: tuple[int, tuple[int, ...]],
    ) -> Starts:
        """Make starts, each given by the position of its problem and its number there.

        ``seeds`` are the seed of the run and the numbers of all problems.
        """
        owners = [k for k, _ in which]
        problem = of_members(bound.problem, owners)
        draws = [((seeds[0], seeds[1][k]), number) for k, number in which]
        return bootstrap_starts(problem, bound.rank, draws)

    def error_estimate(self, bound: Bound, state: State, residual: float) -> float | None:
        """Estimate by the covariance of the last model; see :func:`covariance_error`.

        A model of a block stands for all rows only where these are isotropic: a block of entries
        may miss a slice that others sample.
        """
        model = state.cache
        if not isinstance(model, Model):
            return None
        problem = bound.problem
        share = model.residual.shape[-1] / problem.m  # of the rows that the model has seen
        if share < 1 and not problem.A.traits.isotropic:
            return None
        try:
            values = real(eigvalsh(model.equations.gram)) / share
        except np.linalg.LinAlgError:
            return None
        return covariance_error(problem, model.T.X, to_numpy(values), residual)

    def _look(self, bound: Bound, state: State) -> State:
        """Measure at X what the next step needs: nothing, if it does so itself."""
        return state


def of_members(problem: Problem, owners: Sequence[int]) -> Problem:
    """Problem of each of several iterates, given by positions in a batch; one problem stays."""
    if not problem.batch_shape or list(owners) == list(range(problem.batch_shape[0])):
        return problem
    return problem.select(owners)


def bootstrap_starts(
    problem: Problem, rank: tuple[int, ...], draws: Sequence[tuple[Seed, int]]
) -> Starts:
    r"""Truncations of :math:`\mathcal{A}^*(w y)`, scaled by what some rows see of them.

    One start for each seed and number: of every problem of a batch, or of one problem, whose rows
    are read once for all.

    w are the problem's weights for start 0; further starts multiply them by i.i.d. Exp(1)
    numbers: as if the measurements had been drawn again. The scale is that which fits the
    measurements of the first rows to y best; of all rows, where these are not isotropic.
    """
    A, y_plain, count = problem.A, problem.y, len(draws)
    xp, m = namespace(y_plain), problem.m
    v = y_plain if problem.weights is None else problem.weights * y_plain
    v = xp.broadcast_to(v, (count, m))
    if any(number for _, number in draws):
        factors = np.ones((count, m))
        for k, (seed, number) in enumerate(draws):
            if number:
                factors[k] = spawned(as_seed(seed), Stream.PROBE, number).exponential(size=m)
        v = like(factors, v, real(v).dtype) * v
    X = _spectral_starts(A, v, rank)
    sizes = to_numpy(X.norm())
    # were A a multiple c of an isometry, X would be c^2 X* and ||y|| = c ||X*||
    ratio = np.where(sizes > 0, to_numpy(problem.y_norm) / np.where(sizes > 0, sizes, 1), 1.0)
    X = X * (ratio * ratio)
    few = min(m, ROWS) if A.traits.isotropic else m
    one_block = A.traits.row_separable and few < m
    A = A.restrict(slice(0, few)) if one_block else A
    few = min(few, A.m)  # the problems of a batch may have fewer rows than its longest
    measured, y = A.forward(X)[..., :few], y_plain[..., :few]
    w = 1.0 if problem.weights is None else problem.weights[..., :few]
    seen = dot(w * measured, measured)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(seen > 0, np.abs(dot(w * measured, y)) / seen, 0.0)
    factor = np.where(factor > 0, factor, 1.0)
    left = y - like(factor, y, real(y).dtype)[:, None] * measured
    size = dot(w * y, y)
    level = np.sqrt(dot(w * left, left) / np.where(size > 0, size, 1.0))
    level = np.where((size > 0) & (sizes > 0), level, 1.0)
    return Starts(X * factor, np.broadcast_to(level, (count,)))


def _spectral_starts(A: Any, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
    """Starts of a batch: together where the rows are then read once, else one after the other."""
    if A.traits.has_batch_tangent:
        together: TuckerTensor = A.spectral_start(v, rank)
        return together
    each = side_by_side([(A.trial(k), v[k, ...]) for k in range(v.shape[0])])
    found = [one.spectral_start(vector[: one.m], rank).batched() for one, vector in each]
    return TuckerTensor.concat(found)


def blown_up(state: State, which: Any = True) -> State:
    """State of a run whose next step is not finite, for some problems: they stay where they are."""
    xp = namespace(state.diverged)
    mask = like(np.broadcast_to(which, state.diverged.shape), state.diverged)
    return replace(state, t=state.t + 1, diverged=xp.logical_or(state.diverged, mask))
