"""Iterative hard thresholding: the step that TIHT and StoTIHT share."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from lowtucker._array import Array, like, namespace, per_trial
from lowtucker._array.random import Seed, as_seed
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Cache, Memory, Solver, State
from lowtucker.solvers.gradients import check_trim, swept, trimmed_gradient
from lowtucker.solvers.sampling import BlockSampler, Draw
from lowtucker.solvers.schedule import GrowingRank
from lowtucker.solvers.start import adopt, as_start, first_state
from lowtucker.solvers.steps import check_step, judge, normalised_step
from lowtucker.tensor.rank import check_rank
from lowtucker.thresholding import HOSVD, Thresholding

__all__ = ["IHT", "Thresholded", "drawn", "settle_thresholding"]


@dataclass(frozen=True)
class Damping(Memory):
    """What an automatic step has learnt.

    Attributes
    ----------
    damping : array, shape (*batch,)
        Factor on automatic step sizes, 1 at most; it falls when a step did harm.
    level : array, shape (*batch,)
        Running mean of the blocks' relative residuals, each before its own step.
    """

    damping: Array
    level: Array


@dataclass(frozen=True)
class Look(Cache):
    """What the next step needs: the full tensor, and of the block that is drawn next the residual.

    Also its gradient, and the length of the step. A sweep over rows has no residual: each row is
    measured at another tensor.
    """

    full: Array
    residual: Array | None
    gradient: Array
    step: Any = None


@dataclass(frozen=True, repr=False, kw_only=True)
class Thresholded(Solver):
    """A solver that thresholds to a format, and looks at blocks of measurements.

    A subclass says by ``_make_sampler`` which blocks are drawn.
    """

    thresholding: Any = None

    @property
    def forms_full_tensor(self) -> bool:
        """Gradients, and what is thresholded."""
        return True

    @abstractmethod
    def _make_sampler(self, problem: Problem, thresholding: Thresholding) -> BlockSampler:
        """Blocks for a problem."""

    def bind(self, problem: Problem, rank: tuple[int, ...] | None) -> Bound:
        """Settle the thresholding and the blocks for a problem."""
        threshold = settle_thresholding(self.thresholding, rank, problem)
        self._check(threshold)
        sampler = self._make_sampler(problem, threshold).bind(problem)
        return Bound(self, problem, threshold.rank, threshold, sampler)

    def _check(self, thresholding: Thresholding) -> None:
        """Refuse a thresholding that the solver cannot work with."""

    def chosen(self, bound: Bound | None) -> dict[str, Any]:
        """Settings that were chosen for a problem."""
        if bound is None or bound.sampler is None or getattr(self, "sampler", None) is not None:
            return {}
        return {"block_size": bound.sampler.block_size} if bound.sampler.n_blocks > 1 else {}


@dataclass(frozen=True, repr=False, kw_only=True)
class IHT(Thresholded):
    """Gradient step on a block of measurements, then the thresholding: Algorithm 1.

    A subclass is a frozen dataclass with the settings ``step`` and ``thresholding``.
    """

    # the settings of every subclass, which says what they mean
    step: Any = "auto"
    trim: float | None = None
    thresholding: Any = None
    schedule: GrowingRank | None = None
    # power of two by which a fixed step is longer in the units of the problem
    unit: int = field(default=0, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings."""
        check_step(self.step)
        check_trim(self.trim)
        if self.schedule is not None and not isinstance(self.schedule, GrowingRank):
            raise TypeError(
                f"schedule must be a GrowingRank, got {self.schedule!r:.80}. "
                "Try lowtucker.GrowingRank(start=1, epochs=50)."
            )

    @property
    def lower_residual_is_better(self) -> bool:  # type: ignore[override]
        """Unless trimmed: an outlier that is left out has a residual of its own."""
        return self.trim is None

    def _check(self, thresholding: Thresholding) -> None:
        if self.schedule is not None:
            self.schedule.check(thresholding)

    def in_units(self, power: int) -> Self:
        """Solver for a problem in other units. Automatic steps adapt by themselves."""
        return replace(self, unit=power)

    def chosen(self, bound: Bound | None) -> dict[str, Any]:
        """Settings that were chosen for a problem."""
        return {"step": self.step} | super().chosen(bound)

    def init(self, bound: Bound, start: Any, seed: Seed) -> State:
        """State at the start, with the gradient of the first block."""
        problem = bound.problem
        if isinstance(start, State):
            state = adopt(start, problem, self._thresholding_before(bound, start).rank, Damping)
            if state.memory is None:
                state = replace(state, memory=_fresh(state.X))
            return self._aim(bound, *self._measure(bound, state))
        X = as_start(start, problem, bound.thresholding)
        return self._look(bound, first_state(X, _fresh(X), as_seed(seed)))

    def advance(self, bound: Bound, state: State) -> State:
        """One step of Algorithm 1."""
        look = state.cache
        Z = look.full - per_trial(look.step, look.gradient) * look.gradient  # (4.3)
        X, diverged = guarded(self._thresholding(bound, state.t), Z, state)  # (3.5)
        return self._look(bound, replace(state, X=X, t=state.t + 1, diverged=diverged))

    def residual(self, bound: Bound, state: State) -> Array:
        """Residual of all measurements: at hand when there is one block."""
        seen, m = state.cache.residual if state.cache is not None else None, bound.problem.m
        if seen is not None and seen.shape[-1] == m and bound.sampler.block_size == m:  # type: ignore[union-attr]
            return seen
        return super().residual(bound, state)

    def is_warming_up(self, bound: Bound, state: State) -> bool:
        """Whether the rank still grows."""
        return self.schedule is not None and state.t < self.schedule.epochs * bound.steps_per_epoch

    def _thresholding(self, bound: Bound, t: int) -> Any:
        """Thresholding of step t."""
        H: Any = bound.thresholding
        if self.schedule is None:
            return H
        return self.schedule.at(H, t // bound.steps_per_epoch, bound.problem.shape)

    def _thresholding_before(self, bound: Bound, state: State) -> Any:
        """Thresholding that X came from; a start has the whole rank."""
        return self._thresholding(bound, state.t - 1) if state.t else bound.thresholding

    def _look(self, bound: Bound, state: State) -> State:
        """All that the next step needs; an automatic one first learns how the last one did."""
        block, draw, state = self._measure(bound, state)
        if self.step == "auto":
            state, worse_than_zero = judge(bound.problem, block, state)
            xp = namespace(worse_than_zero)
            if bool(xp.any(worse_than_zero)):
                # an array again: np.astype takes scalars from NumPy 2.1 only
                keep = xp.astype(xp.asarray(~worse_than_zero), state.memory.damping.dtype)
                block, draw, state = self._measure(bound, replace(state, X=state.X * keep))
        return self._aim(bound, block, draw, state)

    def _measure(self, bound: Bound, state: State) -> tuple[Problem, Draw, State]:
        """Block whose objective the next step descends, its draw, and its gradient at X."""
        problem, draw, full = bound.problem, drawn(bound, state), state.X.full()
        if draw.row_weights is not None:
            # row weights make up for the units of the problem: the step has none
            gradient = full - swept(problem, draw, full, self.step * draw.weight)
            return problem, draw, replace(state, cache=Look(full, None, gradient, 1.0))
        block = problem.trusted_block(draw.rows)
        if self.trim is None:
            residual, gradient = block.residual_and_gradient(full)
        else:
            block, residual, gradient = trimmed_gradient(block, full, self.trim)
        return block, draw, replace(state, cache=Look(full, residual, gradient))

    def _aim(self, bound: Bound, block: Problem, draw: Draw, state: State) -> State:
        """Settle the length of the next step."""
        if state.cache.step is not None:  # of a sweep
            return state
        if self.step != "auto":
            step = float(np.ldexp(float(self.step), self.unit))
            return replace(state, cache=replace(state.cache, step=step * _weight(draw, state)))
        own = self._thresholding_before(bound, state)
        step = state.memory.damping * normalised_step(block, state, own)
        return replace(state, cache=replace(state.cache, step=step))


def _fresh(X: Any) -> Damping:
    one = namespace(X.norm()).ones_like(X.norm())
    return Damping(one, one)


def drawn(bound: Bound, state: State) -> Draw:
    """Block of the next step, of every problem of a batch."""
    sampler: Any = bound.sampler
    if not state.X.batch_shape:
        alone: Draw = sampler.draw(state.t, (state.seed, state.trials[0]))
        return alone
    draw: Draw = sampler.draw(state.t, state.seed, state.trials)
    if sampler.n_blocks > 1 or draw.row_weights is not None:
        return draw
    # one block for all: a batch of matrices needs no list of views
    return replace(draw, rows=slice(None))


def guarded(thresholding: Any, Z: Array, state: State) -> tuple[Any, Array]:
    """Threshold, but keep a problem at its last iterate where Z is not finite."""
    xp = namespace(Z)
    axes = tuple(range(len(state.X.batch_shape), Z.ndim))
    broken = ~xp.isfinite(xp.sum(xp.abs(Z), axis=axes)) | state.diverged
    if not bool(xp.any(broken)):
        return thresholding(Z), broken
    X = thresholding(xp.where(per_trial(broken, Z), state.cache.full, Z))
    return X if X.rank != state.X.rank else state.X.where(broken, X), broken


def _weight(draw: Draw, state: State) -> Any:
    """Weight of a draw as an array of the iterate's kind."""
    if isinstance(draw.weight, float):
        return draw.weight
    damping = state.memory.damping
    return like(draw.weight, damping, damping.dtype)


def settle_thresholding(given: Any, rank: tuple[int, ...] | None, problem: Problem) -> Thresholding:
    """Thresholding that the user gave, or the HOSVD at the rank of the call."""
    if given is None or isinstance(given, type):
        if rank is None:
            raise ValueError("rank is needed: give it to the call, or a thresholding that has one.")
        given = (HOSVD if given is None else given)(check_rank(rank, problem.shape, warn=False))
        rank = None
    if not isinstance(given, Thresholding):
        raise TypeError(
            f"thresholding must be a Thresholding or a class of them, got {given!r}. "
            "Try lowtucker.HOSVD."
        )
    if rank is not None and given.rank != tuple(rank):
        raise ValueError(
            f"rank = {tuple(rank)} is not the thresholding's, {given.rank}. Leave one of them out."
        )
    fitting: Thresholding = given.for_shape(problem.shape)
    return fitting
