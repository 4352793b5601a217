"""What a solver is: a frozen record of settings with pure methods.

All that changes is in a :class:`State`; one driver (:mod:`lowtucker.solve`) owns the loop. A new
solver is one file with a subclass of :class:`Solver` and one line in ``solvers/__init__.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from lowtucker._array import Array, like, namespace, size
from lowtucker._array.random import Seed
from lowtucker.problem import Problem
from lowtucker.tensor.rank import attainable_rank, degrees_of_freedom
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Solver", "State"]

# Numbers beside A: vectors, tensors of the full size, gram matrices (and designs of blocks)
VECTORS, TENSORS, GRAMS = 20, 4, 6


@dataclass(frozen=True, eq=False, repr=False)
class State:
    """All that changes from step to step: arrays and numbers.

    Attributes
    ----------
    X : TuckerTensor
        The iterate; a stack of them for a stack of trials.
    t : int
        Steps done.
    seed : int
    trials : tuple of int
        The number of each trial; the draws of step t are a function of (seed, trial, t).
    passes : float
        Readings of all the rows so far, the start included.
    diverged : bool array, shape (*batch,)
        Trials whose next iterate was not finite; they stay at their last finite one.
    damping : array, shape (*batch,)
        Factor on automatic step sizes, 1 at most; it falls when a step did harm.
    level : array, shape (*batch,)
        Running mean of the blocks' relative residuals, each before its own step.
    phase : int
        Which of the solvers of "auto" is at work.
    attempt : int
        Starts that were used up, of a solver that restarts.
    trace : tuple of float
        Residuals since the start, of a solver that judges its own progress; the latest last.
    ends : tuple of float
        Residuals where earlier starts ended.
    stuck : bool
        Whether such a solver has given up.
    carry : array or None
        What a solver carries over from earlier steps and X does not give: a direction, say.
    full, residual, gradient, step, model : array or None
        What the next step needs and X gives: the full tensor, the residual y_b - A_b(X) and the
        gradient of the block that is drawn next, and the length to go; the linear model of a
        Riemannian solver. Not kept in files.
    """

    X: TuckerTensor
    t: int
    seed: int
    trials: tuple[int, ...]
    passes: float
    diverged: Array
    damping: Array
    level: Array
    phase: int = 0
    attempt: int = 0
    trace: tuple[float, ...] = ()
    ends: tuple[float, ...] = ()
    stuck: bool = False
    carry: Array = None
    full: Array = None
    residual: Array = None
    gradient: Array = None
    step: Any = None
    model: Any = None

    def __repr__(self) -> str:
        """Say where it is; the arrays are too long to read."""
        return f"State after {self.t} steps, {self.passes:.1f} passes: {self.X!r}"

    def select(self, which: Sequence[int]) -> State:
        """State of some of the trials of a stack."""
        xp = namespace(self.X.core)
        index = like(np.asarray(which), self.X.core)

        def take(x: Any) -> Any:
            return xp.take(x, index, axis=0) if getattr(x, "ndim", 0) else x

        return replace(
            self,
            X=TuckerTensor.trusted(take(self.X.core), [take(U) for U in self.X.factors]),
            trials=tuple(self.trials[k] for k in which),
            diverged=take(self.diverged),
            damping=take(self.damping),
            level=take(self.level),
            full=take(self.full),
            residual=take(self.residual),
            gradient=take(self.gradient),
            step=take(self.step),
        )


class Solver(ABC):
    """A way to solve a problem. Subclasses are frozen dataclasses of settings."""

    @property
    def name(self) -> str:
        """Name for tables and plots."""
        return type(self).__name__

    @property
    def _chosen(self) -> dict[str, Any]:
        """Settings that were chosen for a problem, for the repr."""
        return {}

    def __repr__(self) -> str:
        """Settings that were given, and those that were chosen for a problem."""
        given = {
            f.name: getattr(self, f.name)
            for f in fields(self)  # type: ignore[arg-type]
            if f.init and getattr(self, f.name) != f.default
        }
        text = ", ".join(f"{name}={value!r}" for name, value in (self._chosen | given).items())
        return f"{type(self).__name__}({text})"

    @abstractmethod
    def bind(self, problem: Problem, rank: tuple[int, ...] | None) -> Self:
        """Copy of the solver with everything settled that depends on the problem."""

    @abstractmethod
    def select(self, trials: Sequence[int]) -> Self:
        """Copy of a bound solver for some of the trials of its stack, by position."""

    @abstractmethod
    def init(self, problem: Problem, start: Any, seed: Seed) -> State:
        """First state, from a tensor, from an earlier state (which it continues), or from 0."""

    @abstractmethod
    def advance(self, problem: Problem, state: State) -> State:
        """Make the next state: one step."""

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """Steps that read about as many rows as there are."""

    def label(self, state: State) -> str:
        """Name of what it does now, for the history."""
        return self.name

    def guess(self, state: State, tol: float) -> float | None:
        """Relative residual of a start by a few rows, where that is far above the tolerance."""
        return None

    def settled(self, state: State, tol: float) -> bool:
        """Whether the residual seems to be below the tolerance: then an epoch ends early."""
        return False

    def error_estimate(self, problem: Problem, state: State, residual: float) -> float | None:
        """Estimate of the relative error of X from a relative residual, where there is a model."""
        return None

    def numbers(self, problem: Problem, rank: tuple[int, ...]) -> int:
        """Count the numbers that a run has beside A at a time, about.

        Residuals and the like, tensors of the full size where the solver or the operator makes any,
        gram matrices and designs of blocks. Peaks were 0.4 to 4 times as much, in eleven cases.
        """
        dof = degrees_of_freedom(problem.shape, attainable_rank(rank))
        made = VECTORS * (problem.m + dof)
        if self.makes_tensors or problem.A.traits.forms_full_tensor:
            made += TENSORS * size(problem.shape)
        grams = GRAMS * dof**2 if self._by_gram(problem, dof) else 0
        return size(problem.batch_shape) * made + grams

    def _by_gram(self, problem: Problem, dof: int) -> bool:
        """Whether it makes dof^2 numbers."""
        return False

    @property
    def makes_tensors(self) -> bool:
        """Whether it makes tensors of the full size, whatever the operator does."""
        return False

    # Fall of the residual, over so many epochs, below which another solver should take over
    patience: ClassVar[tuple[int, float]] = (12, 0.05)
    # Whether it says itself when it cannot go on (State.stuck)
    judges_itself: ClassVar[bool] = False

    def residual(self, problem: Problem, state: State) -> Array:
        """Residual y - A(X) of all the measurements; one pass unless the state has it."""
        return problem.residual(state.X)
