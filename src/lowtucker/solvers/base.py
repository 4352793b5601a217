"""What a solver is: a frozen record of settings with pure methods.

All that changes is in a :class:`State`; one loop (:mod:`lowtucker.run.loop`) calls the methods. A
new solver is one file with a subclass of :class:`Solver` and one line in ``solvers/__init__.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from lowtucker._array import Array, is_array, like, namespace, size
from lowtucker._array.random import Seed
from lowtucker._array.readings import Readings
from lowtucker.problem import Problem
from lowtucker.solvers.sampling import BlockSampler
from lowtucker.status import Finding
from lowtucker.tensor.rank import attainable_rank, degrees_of_freedom
from lowtucker.thresholding import Thresholding

__all__ = ["Bound", "Cache", "Memory", "Solver", "State"]

Record = TypeVar("Record")
# Numbers beside A: vectors, tensors of the full size, gram matrices (and designs of blocks)
VECTORS, TENSORS, GRAMS = 20, 4, 6


class Memory:
    """What a solver keeps from step to step beside the iterate; a subclass is a frozen dataclass.

    Arrays have one entry for each problem of a batch along their leading axis. Other fields
    (numbers, tuples, None) are kept as they are, unless a subclass overrides the methods.
    Checkpoints and result files keep all of it.
    """

    def select(self, which: Sequence[int]) -> Self:
        """Memory of some problems of a batch, by position."""
        return selected(self, which)

    def batched(self) -> Self:
        """Memory of one problem as that of a batch of one."""
        return mapped(_grown, self)

    def single(self) -> Self:
        """Memory of a batch of one as that of its problem."""
        return mapped(_first, self)

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Join memories of batches; other fields than arrays are those of the first."""
        names = cls.__dataclass_fields__  # type: ignore[attr-defined]
        return cls(*(_joined([getattr(part, name) for part in parts]) for name in names))


class Cache:
    """What the next step needs and can be recomputed; a subclass is a frozen dataclass.

    Arrays have one entry for each problem of a batch along their leading axis.
    """

    def select(self, which: Sequence[int]) -> Self:
        """Select problems of a batch, by position."""
        return selected(self, which)


@dataclass(frozen=True, eq=False, repr=False)
class State:
    """All that changes from step to step.

    Attributes
    ----------
    X : TuckerTensor, or another iterate
        A batch of them for a batch of problems.
    t : int
        Steps done.
    seed : int
    trials : tuple of int
        The number of each problem of the batch; the draws of step t are a function of (seed,
        trial, t).
    passes : float
        Passes over all the rows that the start and the steps took, by what operators read
        (bound solvers count); without residuals that were measured for the history.
    diverged : bool array, shape (*batch,)
        Problems whose next iterate was not finite; they stay at their last finite one.
    memory : Memory
        What belongs to the solver: damping, a direction, a trace of residuals.
    phase : int
        Which of several solvers is at work.
    cache : object or None
        What the next step needs and can be recomputed from X. Not kept in files. It has a method
        ``select``, as a memory has; and ``single``, where it has a leading axis for one problem.
    """

    X: Any
    t: int
    seed: int
    trials: tuple[int, ...]
    passes: float
    diverged: Array
    memory: Any
    phase: int = 0
    cache: Any = None

    def __repr__(self) -> str:
        """Say where it is; the arrays are too long to read."""
        return f"State after {self.t} steps, {self.passes:.1f} passes: {self.X!r}"

    def select(self, which: Sequence[int]) -> State:
        """State of some problems of a batch, by position."""
        return replace(
            self,
            X=self.X.take(which),
            trials=tuple(self.trials[k] for k in which),
            diverged=_taken(self.diverged, which),
            memory=self.memory and self.memory.select(which),
            cache=self.cache and self.cache.select(which),
        )

    @classmethod
    def concat(cls, states: Sequence[State]) -> State:
        """Join states of batches after the same number of steps, without their caches."""
        first = states[0]
        return replace(
            first,
            X=type(first.X).concat([state.X for state in states]),
            trials=tuple(k for state in states for k in state.trials),
            passes=max(state.passes for state in states),
            diverged=_joined([state.diverged for state in states]),
            memory=first.memory and type(first.memory).concat([s.memory for s in states]),
            cache=None,
        )

    def batched(self) -> State:
        """State of one problem as that of a batch of one. The cache stays as it is."""
        memory = self.memory and self.memory.batched()
        return self._moved(self.X.batched(), _grown(_array(self.diverged)), memory, self.cache)

    def single(self) -> State:
        """State of a batch of one as that of its problem."""
        memory = self.memory and self.memory.single()
        cache = self.cache.single() if hasattr(self.cache, "single") else self.cache
        return self._moved(self.X.single(), _first(_array(self.diverged)), memory, cache)

    def _moved(self, X: Any, diverged: Array, memory: Any, cache: Any) -> State:
        """State with its arrays moved; without `replace`, for this runs at every step."""
        return State(
            X, self.t, self.seed, self.trials, self.passes, diverged, memory, self.phase, cache
        )


def selected(record: Record, which: Sequence[int]) -> Record:
    """Record of some problems of a batch, by position."""
    return mapped(lambda x: _taken(x, which), record)


def _taken(x: Array, which: Sequence[int]) -> Array:
    return namespace(x).take(x, like(np.asarray(which), x), axis=0) if x.ndim else x


def _grown(x: Array) -> Array:
    return namespace(x).expand_dims(x, axis=0)


def _first(x: Array) -> Array:
    return x[0, ...]


def _joined(values: Sequence[Any]) -> Any:
    """Arrays joined along the leading axis; of other values the first."""
    return namespace(*values).concat(list(values)) if is_array(values[0]) else values[0]


def mapped(function: Callable[[Array], Array], record: Record) -> Record:
    """Record whose arrays are replaced by a function of them; None stays None."""
    if record is None:
        return record
    values = (getattr(record, name) for name in record.__dataclass_fields__)  # type: ignore[attr-defined]
    return type(record)(*(_applied(function, value) for value in values))


def _applied(function: Callable[[Array], Array], value: Any) -> Any:
    """Function of an array; other values as they are."""
    is_one = isinstance(value, np.generic) or is_array(value)
    return function(_array(value)) if is_one else value


def _array(x: Any) -> Array:
    """NumPy's scalars as arrays without axes; other arrays as they are."""
    return np.asarray(x) if isinstance(x, np.generic | bool) else x


@dataclass(frozen=True, eq=False, repr=False)
class Bound:
    """A solver with everything that depends on the problem: what :meth:`Solver.bind` returns.

    States that go in and come out are those of a batch, of one where the problem is one.

    Attributes
    ----------
    solver : Solver
    problem : Problem
    rank : tuple of int or None
        The rank at which the solver works; that of the thresholding, where it has one.
    thresholding : Thresholding or None
    sampler : BlockSampler or None
        What draws the blocks.
    trials : tuple of int or None
        The number of each problem of a batch, where these are not 0, 1, 2, ...
    tol : float or array
        The relative residual to reach; an array has one for each problem of a batch.
    """

    solver: Solver
    problem: Problem
    rank: Any
    thresholding: Thresholding | None = None
    sampler: BlockSampler | None = None
    trials: tuple[int, ...] | None = None
    tol: Any = 0.0

    @property
    def is_batch(self) -> bool:
        """Whether the problem is a batch, which the solver's steps then see as one."""
        return bool(self.problem.batch_shape)

    def __repr__(self) -> str:
        return self.solver.described(self)

    def init(self, start: Any, seed: Seed) -> State:
        """First state, from a tensor, from an earlier state (which it continues), or from zero."""
        with Readings().counting() as readings:
            if self.is_batch:
                state = self.solver.init(self, start, seed)
            else:
                state = self.solver.init(self, _of_one(start), seed)
                state = state if self.solver.batch_first else state.batched()
        # what is measured again of a state is no step of its run
        again = isinstance(start, State)
        return replace(state, passes=start.passes if again else readings.rows / self.problem.m)

    def advance(self, state: State) -> State:
        """Next state: one step."""
        with Readings().counting() as readings:
            if self.is_batch or self.solver.batch_first:
                after = self.solver.advance(self, state)
            else:
                after = self.solver.advance(self, state.single()).batched()
        return replace(after, passes=state.passes + readings.rows / self.problem.m)

    def residual(self, state: State) -> Array:
        """Residual y - A(X) of all measurements, shape (m,) or (batch, m)."""
        whole = self.is_batch or self.solver.batch_first
        return self.solver.residual(self, state if whole else state.single())

    def estimated_residual(self, state: State) -> Any:
        """Relative residual of every problem by some rows; NaN where it has to be measured."""
        unknown = np.full(len(state.trials), np.nan)
        if state.memory is None:  # of a start that failed
            return unknown
        return unknown if (found := self.solver.estimated_residual(self, state)) is None else found

    def error_estimate(self, state: State, residual: float) -> float | None:
        """Estimate of the relative error of X, where there is a model; none for a batch."""
        if self.is_batch:
            return None
        return self.solver.error_estimate(self, state.single(), residual)

    @property
    def steps_per_epoch(self) -> int:
        """Steps that read about as many rows as there are."""
        return 1 if self.sampler is None else self.sampler.steps_per_epoch

    def select(self, which: Sequence[int]) -> Bound:
        """Bound solver for some problems of its batch, by position."""
        if not self.is_batch:
            return self
        sampler = None if self.sampler is None else self.sampler.select(which)
        trials = None if self.trials is None else tuple(self.trials[k] for k in which)
        problem = self.problem.select(which)
        tol = self.tol[list(which)] if np.ndim(self.tol) else self.tol
        return replace(self, problem=problem, sampler=sampler, trials=trials, tol=tol)


def _of_one(start: Any) -> Any:
    """Start of one problem: a state inside of a run has the axis of a batch of one."""
    return start.single() if isinstance(start, State) and start.X.batch_shape == (1,) else start


class Solver(ABC):
    """A way to solve a problem. Subclasses are frozen dataclasses of settings.

    Passes are counted where operators read their rows, not by solvers.

    The methods get a bound solver, which has the problem, and states of one problem, or
    of a batch where the problem is one. Solvers that are ``batch_first`` get states of a batch, of
    one where there is one problem: the measurements y have no leading axis then.
    """

    # Whether states have a leading axis, of one problem too
    batch_first: ClassVar[bool] = False

    # Fall of the residual, over so many epochs, below which another solver should take over
    patience: ClassVar[tuple[int, float]] = (12, 0.05)
    # Whether the solver itself says when it is stuck (see `is_stuck`)
    self_terminating: ClassVar[bool] = False
    # Whether any tensor that fits will do. If not, a self-terminating solver must be stuck as well
    fit_suffices: ClassVar[bool] = True
    # Whether a lower residual means a better tensor. Soft thresholding leaves noise in the residual
    lower_residual_is_better: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name for tables and plots."""
        return type(self).__name__

    def __repr__(self) -> str:
        return self.described(None)

    def described(self, bound: Bound | None) -> str:
        """Settings that were given, and those that were chosen for a problem."""
        given = {
            f.name: getattr(self, f.name)
            for f in fields(self)  # type: ignore[arg-type]
            if f.repr and getattr(self, f.name) != f.default
        }
        settings = self.chosen(bound) | given
        text = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        return f"{type(self).__name__}({text})"

    def chosen(self, bound: Bound | None) -> dict[str, Any]:
        """Settings that were chosen for a problem, for the repr."""
        return {}

    @abstractmethod
    def bind(self, problem: Problem, rank: tuple[int, ...] | None) -> Bound:
        """Solver with everything settled that depends on the problem."""

    @abstractmethod
    def init(self, bound: Bound, start: Any, seed: Seed) -> State:
        """First state, from a tensor, from an earlier state (which it continues), or from zero."""

    @abstractmethod
    def advance(self, bound: Bound, state: State) -> State:
        """Next state: one step. Pure."""

    def in_units(self, power: int) -> Self:
        """Solver for a problem in other units, where fixed steps are 2^power times as long."""
        return self

    def residual(self, bound: Bound, state: State) -> Array:
        """Residual y - A(X) of all measurements; one pass unless the state has it."""
        return bound.problem.residual(state.X)

    def label(self, state: State) -> str:
        """Name of what it does now, for the history."""
        return self.name

    def estimated_residual(self, bound: Bound, state: State) -> Any:
        """Relative residuals by rows that were read anyway, NaN where they have to be measured.

        None where there are none.
        """
        return None

    def is_warming_up(self, bound: Bound, state: State) -> bool:
        """Whether what it is after still changes: no rule may call it stalled until then."""
        return False

    def is_stuck(self, state: State) -> Any:
        """Whether a self-terminating solver has given up: a bool, or one for each problem."""
        return False

    def restarts(self, state: State) -> int:
        """Starts that were used up, of a solver that restarts."""
        return 0

    def findings(self, state: State) -> tuple[Finding, ...]:
        """What the last state of a problem says of its result; nothing by default."""
        return ()

    def error_estimate(self, bound: Bound, state: State, residual: float) -> float | None:
        """Estimate of the relative error of X from a relative residual, where there is a model."""
        return None

    def memory_estimate(self, problem: Problem, rank: tuple[int, ...]) -> int:
        """Count the numbers that a run has beside A at a time, roughly.

        Residuals and the like, tensors of the full size where the solver or the operator forms
        any, gram matrices and designs of blocks. Peaks were 0.4 to 4 times as much, in eleven
        cases.
        """
        dof = degrees_of_freedom(problem.shape, attainable_rank(rank))
        made = VECTORS * (problem.m + dof)
        if self.forms_full_tensor or problem.A.traits.forms_full_tensor:
            made += TENSORS * size(problem.shape)
        made += GRAMS * dof**2 if self._by_gram(problem, attainable_rank(rank)) else 0
        return size(problem.batch_shape) * made

    def _by_gram(self, problem: Problem, rank: tuple[int, ...]) -> bool:
        """Whether it forms dof^2 numbers."""
        return False

    @property
    def forms_full_tensor(self) -> bool:
        """Whether it forms tensors of the full size, whatever the operator does."""
        return False
