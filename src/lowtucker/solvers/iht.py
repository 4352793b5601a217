"""Iterative hard thresholding: the step that TIHT and StoTIHT share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from lowtucker._array import Array, like, namespace, per_trial
from lowtucker._array.random import Seed, as_seed
from lowtucker.problem import Problem
from lowtucker.solvers.base import Solver, State
from lowtucker.solvers.sampling import BlockSampler, Draw
from lowtucker.solvers.start import adopt, as_start
from lowtucker.solvers.steps import check_step, judge, normalised_step
from lowtucker.tensor.rank import check_rank
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding import HOSVD, Thresholding

__all__ = ["IHT"]


@dataclass(frozen=True, repr=False, kw_only=True)
class IHT(Solver):
    """Gradient step on a block of measurements, then the thresholding: Algorithm 1.

    A subclass is a frozen dataclass with the settings ``step`` and ``thresholding``, and says by
    ``_make_sampler`` which blocks are drawn.
    """

    # what `bind` settles
    _sampler: Any = field(default=None, init=False, compare=False)
    _threshold: Any = field(default=None, init=False, compare=False)
    # power of two by which a fixed step is longer in the units of the problem
    _unit: int = field(default=0, init=False, compare=False)
    # the settings of every subclass, which says what they mean
    step: Any = "auto"
    thresholding: Any = None

    def __post_init__(self) -> None:
        """Check the settings."""
        check_step(self.step)

    @property
    def makes_tensors(self) -> bool:
        """Gradients, and what is thresholded."""
        return True

    @abstractmethod
    def _make_sampler(self, problem: Problem, rank: tuple[int, ...]) -> BlockSampler:
        """Blocks for a problem."""

    def bind(self, problem: Problem, rank: tuple[int, ...] | None) -> Self:
        """Settle the thresholding and the blocks for a problem."""
        bound = replace(self)
        threshold = settle_thresholding(self.thresholding, rank, problem)
        sampler = self._make_sampler(problem, threshold.rank)
        object.__setattr__(bound, "_threshold", threshold)
        object.__setattr__(bound, "_sampler", sampler.bind(problem))
        object.__setattr__(bound, "_unit", self._unit)
        return bound

    def in_units(self, power: int) -> Self:
        """Solver for a problem in other units, where steps are 2^power times as long.

        Automatic ones are so by themselves.
        """
        other = replace(self)
        object.__setattr__(other, "_unit", power)
        return other

    @property
    def _chosen(self) -> dict[str, Any]:
        """Settings that were chosen for a problem."""
        chosen: dict[str, Any] = {"step": self.step}
        given = getattr(self, "sampler", None)
        if self._sampler is not None and given is None and self._sampler.n_blocks > 1:
            chosen["block_size"] = self._sampler.block_size
        return chosen

    def select(self, trials: Sequence[int]) -> Self:
        """Go on with some of the trials."""
        part = replace(self)
        object.__setattr__(part, "_threshold", self._threshold)
        object.__setattr__(part, "_sampler", self._sampler.select(trials))
        object.__setattr__(part, "_unit", self._unit)
        return part

    @property
    def steps_per_epoch(self) -> int:
        """As many steps as there are blocks."""
        return int(self._sampler.steps_per_epoch)

    def init(self, problem: Problem, start: Any, seed: Seed) -> State:
        """State at the start, with the gradient of the first block."""
        if isinstance(start, State):
            state = adopt(start, problem, self._threshold.rank)
            draw = self._draw(state)
            block = problem.trusted_block(draw.rows)
            again = self._aim(problem, block, draw, _measure(problem, block, state))
            return replace(again, passes=start.passes)
        X = as_start(start, problem, self._threshold)
        number, first = as_seed(seed)
        trials = tuple(range(first, first + math.prod(problem.batch_shape)))
        one = namespace(X.core).ones_like(X.norm())
        return self._look(problem, State(X, 0, number, trials, 0.0, one < 0, one, one))

    def advance(self, problem: Problem, state: State) -> State:
        """One step of Algorithm 1."""
        Z = state.full - per_trial(state.step, state.gradient) * state.gradient  # (4.3)
        X, diverged = guarded(self._threshold, Z, state)  # (3.5)
        return self._look(problem, replace(state, X=X, t=state.t + 1, diverged=diverged))

    def residual(self, problem: Problem, state: State) -> Array:
        """Residual of all measurements: at hand when there is one block."""
        all_rows = state.residual is not None and state.residual.shape[-1] == problem.m
        if all_rows and self._sampler.block_size == problem.m:
            return state.residual
        return super().residual(problem, state)

    def _draw(self, state: State) -> Draw:
        if state.X.batch_shape:
            draw: Draw = self._sampler.draw(state.t, state.seed, state.trials)
            # one block for all: a stack of matrices needs no list of views
            return replace(draw, rows=slice(None)) if self._sampler.n_blocks == 1 else draw
        alone: Draw = self._sampler.draw(state.t, (state.seed, state.trials[0]))
        return alone

    def _look(self, problem: Problem, state: State) -> State:
        """All that the next step needs; an automatic one first learns how the last one did."""
        draw = self._draw(state)
        block = problem.trusted_block(draw.rows)
        state = _measure(problem, block, state)
        if self.step == "auto":
            state, worse_than_zero = judge(problem, block, state)
            xp = namespace(worse_than_zero)
            if bool(xp.any(worse_than_zero)):
                keep = xp.astype(~worse_than_zero, state.damping.dtype)
                state = _measure(problem, block, replace(state, X=state.X * keep))
        return self._aim(problem, block, draw, state)

    def _aim(self, problem: Problem, block: Problem, draw: Draw, state: State) -> State:
        """Settle the length of the next step."""
        if self.step != "auto":
            step = float(np.ldexp(float(self.step), self._unit))
            return replace(state, step=step * like_weight(draw, state))
        step = state.damping * normalised_step(block, state, self._threshold)
        return replace(state, step=step, passes=state.passes + block.m / problem.m)


def _measure(problem: Problem, block: Problem, state: State) -> State:
    """Residual and gradient of a block at X."""
    full = state.X.full()
    residual, gradient = block.residual_and_gradient(full)
    passes = state.passes + block.m / problem.m
    return replace(state, full=full, residual=residual, gradient=gradient, passes=passes)


def guarded(thresholding: Thresholding, Z: Array, state: State) -> tuple[TuckerTensor, Array]:
    """Threshold, but keep a trial at its last iterate where Z is not finite."""
    xp = namespace(Z)
    axes = tuple(range(len(state.X.batch_shape), Z.ndim))
    broken = ~xp.isfinite(xp.sum(xp.abs(Z), axis=axes)) | state.diverged
    if not bool(xp.any(broken)):
        return thresholding(Z), broken
    Z = xp.where(per_trial(broken, Z), state.full, Z)
    X = thresholding(Z)
    parts = [
        xp.where(per_trial(broken, new), old, new)
        for old, new in zip((state.X.core, *state.X.factors), (X.core, *X.factors), strict=True)
    ]
    return TuckerTensor.trusted(parts[0], parts[1:]), broken


def like_weight(draw: Draw, state: State) -> Any:
    """Weight of a draw as an array of the iterate's kind."""
    if isinstance(draw.weight, float):
        return draw.weight
    damping = state.damping
    return like(draw.weight, damping, damping.dtype)


def settle_thresholding(given: Any, rank: tuple[int, ...] | None, problem: Problem) -> Thresholding:
    """Thresholding that the user gave, or the HOSVD at the rank of the call."""
    if given is None or isinstance(given, type):
        if rank is None:
            raise ValueError("rank is needed: give it to the call, or a thresholding that has one.")
        made: Thresholding = (HOSVD if given is None else given)(
            check_rank(rank, problem.shape, warn=False)
        )
        return made
    if not isinstance(given, Thresholding):
        raise TypeError(
            f"thresholding must be a Thresholding or a class of them, got {given!r}. "
            "Try lowtucker.HOSVD."
        )
    if rank is not None and tuple(given.rank) != tuple(rank):
        raise ValueError(
            f"rank = {tuple(rank)} is not the thresholding's, {given.rank}. Leave one of them out."
        )
    check_rank(given.rank, problem.shape, warn=False)
    return given
