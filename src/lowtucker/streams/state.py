"""The state of a stream: a record that a block turns into another one, or leaves as it is."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowtucker._array import Array, as_array_shape, as_number, like, real_dtype
from lowtucker._array.errors import UnderdeterminedWarning
from lowtucker._array.memory import check_room
from lowtucker._array.random import Seed, as_seed
from lowtucker.limits import PLENTY
from lowtucker.problem import Problem
from lowtucker.recovery import recover
from lowtucker.run import interrupts_raise
from lowtucker.run.result import Result
from lowtucker.solvers.rgn import LARGE
from lowtucker.status import Finding, Status
from lowtucker.streams.averages import Averages
from lowtucker.streams.blocks import Block, joined
from lowtucker.streams.recursion import Recursion, aged, decay_of
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["FIRST", "FirstFit", "Past", "Settings", "State"]

# Equations per degree of freedom at the first fit, the growth between fits, and those that end the
# warm-up whatever the verdict. With 1.5 and 2 six fits to 20x20x20 tensors of rank 3 with 1 % noise
# took 1.3 to 10 seconds, and four failed; with 3 three took 0.1 to 0.2 seconds, and none did
FIRST, GROWTH, LAST = PLENTY, 1.5, 10.0
# Verdicts that end the warm-up before that. Approximations do not: of 14 first fits with 3 rows
# per degree of freedom that were called so, 7 led to more than twice the error of a fit to all
GOOD = (Status.CONVERGED, Status.NOISE_FLOOR)
# New rows, per degree of freedom, that a first fit must predict before the blocks are freed. Of 22
# streams of sampled entries one began with a wrong fit that was called a success: this showed it
CONFIRMED = 0.25
# Residual of another fit at that time, in units of that at hand, below which the first fit was a
# local minimum. Of 60 streams of 8x8x8 tensors of rank 2 with 5 % noise one was, with twice the
# residual: new rows were predicted as badly, and it ended as a success, with an error of 2.5 times
# the estimate
BETTER = 0.9
# Gauss-Newton steps from the first fit, to which all rows are equal, to that which forgets
STEPS = 2
# Past tensors that are kept: one for such a share of the memory, for so many memories
SHARE, REACH = 0.25, 1.5


@dataclass(frozen=True)
class Settings:
    """What a stream is asked for."""

    shape: tuple[int, ...]
    rank: tuple[int, ...]
    memory: float | None
    tol: float
    seed: Seed

    @property
    def dof(self) -> int:
        """Degrees of freedom of the rank."""
        return degrees_of_freedom(self.shape, self.rank)

    def checked(self) -> Settings:
        """Settings in one spelling; refuses what a user must not give."""
        shape = as_array_shape(self.shape)
        rank = attainable_rank(check_rank(self.rank, shape))
        dof = degrees_of_freedom(shape, rank)
        check_room(
            2 * 8 * dof**2,
            f"A stream of rank {rank}, with {dof} degrees of freedom, keeps dof^2 numbers, which",
            "Try a smaller rank or shape, or lowtucker.recover on all measurements.",
        )
        memory, tol = self.memory, as_number(self.tol, "tol", 0.0)
        if memory is not None:
            memory = as_number(memory, "memory", positive=True)
            if memory < dof:
                raise ValueError(
                    f"memory must be at least {dof} measurements, one for each degree of freedom "
                    f"of rank {rank}, got {memory:g}. Try memory={2 * dof}, or a smaller rank."
                )
        return Settings(shape, rank, memory, tol, as_seed(self.seed))


@dataclass(frozen=True)
class FirstFit:
    """Verdict of the first fit, after m measurements, and the deviation of its residual."""

    status: Status
    findings: tuple[Finding, ...]
    m: int
    sigma: float


@dataclass(frozen=True, eq=False)
class Past:
    """The tensor after m measurements."""

    m: int
    X: TuckerTensor


@dataclass(frozen=True, eq=False)
class State:
    """All that is known of a stream.

    Attributes
    ----------
    settings : Settings
    m : int
        Measurements so far.
    equations : int
        Real equations among the blocks that are kept.
    example : array or None
        Of no entries, of the kind and dtype of the tensor; None before the first block.
    kept : tuple of Block
        The measurements of the warm-up, until a first fit has predicted some more of them.
    tried : int
        Equations at the last fit of the warm-up.
    filter : Recursion, Averages or None
        None during the warm-up.
    start : FirstFit or None
        Of the fit that ended the warm-up.
    past : tuple of Past
        Earlier tensors, where there is forgetting.
    """

    settings: Settings
    m: int = 0
    equations: int = 0
    example: Array | None = None
    kept: tuple[Block, ...] = ()
    tried: int = 0
    filter: Recursion | Averages | None = None
    start: FirstFit | None = None
    past: tuple[Past, ...] = ()

    def after(self, problem: Problem) -> State:
        """State after a block, which has been checked."""
        if self.filter is None:
            return self._warmed(problem)
        absorbed = self.filter.absorbed(problem, self.settings.memory)
        now = replace(self, m=self.m + problem.m, filter=absorbed)._remembered()
        return now._keeping(problem)._confirmed(absorbed) if self.kept else now

    def _keeping(self, problem: Problem) -> State:
        """State that keeps a block."""
        equations = self.equations + int(problem.equations)
        return replace(self, equations=equations, kept=(*self.kept, Block.of(problem)))

    def _warmed(self, problem: Problem) -> State:
        """State after a block of the warm-up."""
        return replace(self, m=self.m + problem.m)._keeping(problem)._fitted()

    def _fitted(self) -> State:
        """State with a first tensor, where it is time for a fit to all, and that succeeds."""
        dof = self.settings.dof
        if self.equations < FIRST * dof or self.equations < GROWTH * self.tried:
            return self
        whole = self.problem()
        return self._begun(whole, quietly_recovered(whole, self.settings, self.settings.rank))

    def _begun(self, whole: Problem, result: Result) -> State:
        """State with the tensor of a fit to all, if that is a success."""
        enough = self.equations >= LAST * self.settings.dof
        if result.status not in GOOD and not enough:
            return replace(self, tried=self.equations, filter=None, start=None, past=())
        made = self._filter_at(whole, result.X)
        start = FirstFit(result.status, result.findings, self.m, made.sigma)
        now = replace(self, tried=self.equations, filter=made, start=start, past=())._remembered()
        return now._freed() if enough else now

    def _freed(self) -> State:
        """State without the measurements of the warm-up."""
        return replace(self, kept=(), equations=0, tried=0)

    def _confirmed(self, now: Recursion | Averages) -> State:
        """State after a first fit has predicted new rows: well, or it was none.

        Before the rows are freed they are fitted once more: the first fit may be a local minimum.
        """
        recent, start, dof = now.recent, self.start, self.settings.dof
        if start is None or recent.count < CONFIRMED * dof:
            return self
        if recent.squares <= (10 * self.settings.tol) ** 2 * recent.energy:  # exact
            return self._freed()
        if recent.exceeds(start.sigma):
            return replace(self, filter=None, start=None, past=())._fitted()
        whole = self.problem()
        again = quietly_recovered(whole, self.settings, self.settings.rank)
        ages = self._ages(whole)
        seen = whole if ages is None else aged(whole, ages)[0]
        other, here = (float(seen.relative_residual(X)) for X in (again.X, now.X))
        return self._begun(whole, again) if other < BETTER * here else self._freed()

    def _filter_at(self, whole: Problem, X: TuckerTensor) -> Recursion | Averages:
        if self.settings.dof > LARGE:
            return Averages.of(whole, X)
        ages = self._ages(whole)
        made = Recursion.of(whole, X, ages)
        for _ in range(STEPS if ages is not None else 0):
            made = Recursion.of(whole, made.X, ages)
        return made

    def _ages(self, whole: Problem) -> Array | None:
        """What forgetting leaves of the weights of the blocks that are kept."""
        memory, lengths = self.settings.memory, [int(block.y.shape[0]) for block in self.kept]
        if memory is None:
            return None
        later = np.cumsum(lengths[::-1])[::-1] - lengths  # rows after each block
        weights = [decay_of(int(n), memory) for n in later]
        return like(np.repeat(weights, lengths), whole.y, real_dtype(whole.y))

    def problem(self) -> Problem:
        """Problem of all blocks that are kept."""
        assert self.example is not None
        return joined(self.kept, self.settings.shape, self.example.dtype)

    def _remembered(self) -> State:
        """State that keeps the tensor for later, where it is time and the tensor is at hand."""
        memory, now = self.settings.memory, self.filter
        if memory is None or now is None or not now.at_hand:
            return self
        if self.past and self.m - self.past[-1].m < SHARE * memory:
            return self
        recent = tuple(one for one in self.past if self.m - one.m <= REACH * memory)
        return replace(self, past=(*recent, Past(self.m, now.X)))


def quietly_recovered(problem: Problem, asked: Settings, rank: Any) -> Result:
    """Fit to all measurements so far, without a limit of time: its result is repeatable."""
    with warnings.catch_warnings(), interrupts_raise():  # half a fit is of no use
        warnings.simplefilter("ignore", UnderdeterminedWarning)  # the status says so
        return recover(
            problem.A,
            problem.y,
            rank,
            weights=problem.weights,
            tol=asked.tol,
            seed=asked.seed,
            max_seconds=math.inf,
        )
