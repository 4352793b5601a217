"""The driver: the only loop. Stopping, history, callbacks, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np

from lowtucker._arrays import Array, all_finite, as_float, namespace, same_kind, to_numpy
from lowtucker._errors import UnderdeterminedWarning, warn_caller
from lowtucker._random import Seed
from lowtucker.metrics import relative_error
from lowtucker.monitoring import Callback, History, Progress
from lowtucker.problem import Problem
from lowtucker.result import Result
from lowtucker.solvers import Solver, State, as_solver
from lowtucker.status import Status
from lowtucker.stopping import MaxEpochs, ResidualBelow, Stalled, StoppingRule
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["iterate", "solve"]

# A residual that has grown by this factor is a blow-up, long before numbers overflow.
BLOW_UP = 1e6


def iterate(
    problem: Problem,
    solver: Any = "auto",
    rank: tuple[int, ...] | None = None,
    *,
    start: Any = None,
    seed: Seed = 0,
) -> Iterator[State]:
    """States of a run, the start first, without end: the loop in your own hands.

    Parameters
    ----------
    problem : Problem
    solver : Solver or name
    rank : tuple of int
    start : TuckerTensor, array, or State, optional
    seed : int

    Examples
    --------
    >>> import itertools
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
    >>> problem = lt.Problem(A, A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)))
    >>> for state in itertools.islice(lt.iterate(problem, lt.TIHT(step=0.6), (1, 2, 2)), 100):
    ...     pass
    >>> state.t, float(problem.relative_residual(state.X)) < 1e-6
    (99, True)
    """
    bound = _bind(problem, solver, rank)
    with np.errstate(all="ignore"):
        state = bound.init(problem, _tensor_or_state(start), seed)
    while True:
        yield state
        with np.errstate(all="ignore"):
            state = bound.advance(problem, state)


def solve(
    problem: Problem,
    solver: Any = "auto",
    rank: tuple[int, ...] | None = None,
    *,
    stop: StoppingRule | None = None,
    start: Any = None,
    X_true: Any = None,
    seed: Seed = 0,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run a solver on a problem until a rule says stop.

    Parameters
    ----------
    problem : Problem
        One, or a stack of trials: then ``success``, ``status`` and ``epochs`` of the result are
        arrays, and trials that have ended are frozen while the others go on. Trial k is the
        single run with ``seed=(seed, k)``, to rounding.
    solver : Solver or name
    rank : tuple of int
    stop : StoppingRule, optional
        ``ResidualBelow(1e-6) | Stalled() | MaxEpochs(500)`` by default; looked at every epoch.
    start : TuckerTensor, array, State or Result, optional
        A state is continued as if it had never been left.
    X_true : TuckerTensor or array, optional
        The truth, for the error column of the history. Nothing else looks at it.
    seed : int
    callbacks : sequence of callables
        Each gets one Progress after every epoch, outside the clock, and may return True to stop.

    Notes
    -----
    The residual is measured at every epoch's end: one more reading of the rows, not counted in
    ``passes`` and ``seconds``, unless the solver has it at hand (TIHT).

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
    >>> problem = lt.Problem(A, A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)))
    >>> rule = lt.ResidualBelow(1e-3) | lt.MaxEpochs(100)
    >>> lt.solve(problem, lt.TIHT(), (1, 2, 2), stop=rule).status.name
    'CONVERGED'
    """
    if len(problem.batch_shape) > 1:
        raise ValueError(
            f"A stack of trials has one leading axis, got {problem.batch_shape}. Flatten it."
        )
    if stop is None:
        stop = ResidualBelow(1e-6) | Stalled() | MaxEpochs(500)
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise TypeError(
            f"callbacks must be a sequence of callables, got {callbacks!r}. "
            "Try callbacks=[lowtucker.ProgressBar()]."
        )
    run = _Run(problem, solver, rank, stop, _truth(X_true, problem))
    with ExitStack() as stack:
        for callback in callbacks:
            if isinstance(callback, AbstractContextManager):
                stack.enter_context(callback)
        try:
            run.begin(_tensor_or_state(start), seed)
            while run.active.size:
                run.epoch()
                run.tell(callbacks)
        except KeyboardInterrupt:
            if run.state is None:
                raise
            run.interrupt()
    return run.result()


class _Run:
    """One call of :func:`solve`: the trials that still run, and what is known of all."""

    def __init__(
        self, problem: Problem, solver: Any, rank: Any, stop: StoppingRule, X_true: Any
    ) -> None:
        self.solver = _bind(problem, solver, rank)
        self.settings, self.rank = as_solver(solver), rank
        self.stop, self.X_true = stop, X_true
        self.whole = self.problem = problem
        self.stacked = bool(problem.batch_shape)
        self.trials = problem.batch_shape[0] if self.stacked else 1
        self.active = np.arange(self.trials)
        self.statuses = np.full(self.trials, Status.INTERRUPTED, dtype=object)
        self.epochs = np.zeros(self.trials, dtype=int)
        self.ended: dict[int, TuckerTensor] = {}
        self.history = History()
        self.seconds = 0.0
        self.steps = 0
        self.state: Any = None

    def begin(self, start: Any, seed: Seed) -> None:
        """First state, and the first row of the history."""
        self._timed(lambda: self.solver.init(self.problem, start, seed))
        self._record()

    def epoch(self) -> None:
        """Steps of one epoch, a row of the history, and the verdict on every trial."""
        for _ in range(self.solver.steps_per_epoch):
            self._timed(lambda: self.solver.advance(self.problem, self.state))
            self.steps += 1
        self._record()
        self.epochs[self.active] += 1
        self._end(self._verdicts())

    def tell(self, callbacks: Sequence[Callback]) -> None:
        """Callbacks, outside the clock; any of them may stop the run."""
        row = self.history.last
        progress = Progress(
            row["epoch"], row["passes"], row["residual"], self.state, _limit(self.stop)
        )
        wishes = [callback(progress) for callback in callbacks]
        if True in wishes:
            self.interrupt()

    def interrupt(self) -> None:
        """End what still runs, with what it has."""
        if self.active.size:
            self._end(np.full(self.active.size, Status.INTERRUPTED, dtype=object))

    def _timed(self, action: Any) -> None:
        begin = time.perf_counter()
        with np.errstate(all="ignore"):  # blow-up is a status, not a warning
            self.state = action()
        self.seconds += time.perf_counter() - begin

    def _record(self) -> None:
        with np.errstate(all="ignore"):
            residual = self.solver.residual(self.problem, self.state)
            row = {
                "residual": self.problem.relative(residual),
                "cost": self.problem.cost_of(residual),
            }
            if self.X_true is not None:
                row["error"] = relative_error(self.state.X, self._truth())
        values = {name: self._spread(name, value) for name, value in row.items()}
        self.history.append(
            {
                "epoch": self.steps // self.solver.steps_per_epoch,
                "passes": self.state.passes,
                "seconds": self.seconds,
                "phase": self.settings.name,
                **values,
            }
        )

    def _spread(self, name: str, value: Any) -> Any:
        """Numbers of the running trials among those that the ended ones had last."""
        if not self.stacked:
            return float(value)
        before = self.history.last[name] if self.history.rows else np.zeros(self.trials)
        after = np.array(before, dtype=np.float64)
        after[self.active] = to_numpy(value)
        return after

    def _truth(self) -> Any:
        if self.active.size == self.trials:
            return self.X_true
        if isinstance(self.X_true, TuckerTensor):
            return _some(self.X_true, self.active)
        return namespace(self.X_true).stack([self.X_true[int(k), ...] for k in self.active])

    def _verdicts(self) -> np.ndarray[Any, Any]:
        """Status of every running trial; None where it goes on."""
        verdict = np.full(self.trials, None, dtype=object)
        for status, mask in self.stop.verdicts(self.history):
            where = np.broadcast_to(mask, (self.trials,)) & (verdict == None)  # noqa: E711
            verdict[where] = status
        residual = np.atleast_2d(self.history["residual"].T)  # one row a trial
        grown = ~(residual[:, -1] <= BLOW_UP * np.maximum(1.0, residual[:, 0]))
        verdict[grown] = Status.DIVERGED
        running = verdict[self.active]
        running[np.atleast_1d(to_numpy(self.state.diverged))] = Status.DIVERGED
        return running

    def _end(self, verdicts: np.ndarray[Any, Any]) -> None:
        """Freeze the trials that have a verdict; go on with the rest."""
        done = np.array([v is not None for v in verdicts], dtype=bool)
        if not done.any():
            return
        self.statuses[self.active[done]] = verdicts[done]
        if not self.stacked:
            self.active = self.active[:0]
            return
        for position in np.flatnonzero(done):
            self.ended[int(self.active[position])] = _some(self.state.X, [position])
        stay = np.flatnonzero(~done)
        self.active = self.active[stay]
        if stay.size:
            self.problem = self.problem.select(stay.tolist())
            self.state = self.state.select(stay.tolist())
            self.solver = self.solver.bind(self.problem, self.rank)

    def result(self) -> Result:
        """Verdict without the truth."""
        rank = self.state.X.rank
        dof = degrees_of_freedom(self.whole.shape, attainable_rank(rank))
        fitted = [s not in (Status.DIVERGED, Status.INTERRUPTED) for s in self.statuses]
        if self.whole.m < dof:
            self.statuses[fitted] = Status.UNDERDETERMINED
        success = np.array([s.success for s in self.statuses])
        last = self.history.last
        return Result(
            X=self._X(),
            status=self.statuses if self.stacked else self.statuses[0],
            success=success if self.stacked else bool(success[0]),
            history=self.history,
            rank=rank,
            epochs=self.epochs if self.stacked else int(self.epochs[0]),
            passes=last["passes"],
            seconds=self.seconds,
            solver=repr(self.solver),
            m=self.whole.m,
            degrees_of_freedom=dof,
            state=self.state if len(set(self.epochs.tolist())) == 1 else None,
        )

    def _X(self) -> TuckerTensor:
        if not self.stacked:
            alone: TuckerTensor = self.state.X
            return alone
        xp = namespace(self.state.X.core)
        items = [self.ended[k] for k in range(self.trials)]
        factors = [xp.concat(parts) for parts in zip(*(X.factors for X in items), strict=True)]
        return TuckerTensor.trusted(xp.concat([X.core for X in items]), factors)


def _some(X: TuckerTensor, which: Any) -> TuckerTensor:
    """Some trials of a stack."""
    index = [int(k) for k in which]
    xp = namespace(X.core)

    def pick(x: Array) -> Array:
        return xp.stack([x[k, ...] for k in index])

    return TuckerTensor.trusted(pick(X.core), [pick(U) for U in X.factors])


def _bind(problem: Problem, solver: Any, rank: Any) -> Solver:
    """Settle the solver for the problem; warn of too few measurements."""
    if rank is not None:
        rank = check_rank(rank, problem.shape, warn=False)
        dof = degrees_of_freedom(problem.shape, attainable_rank(rank))
        if problem.m < dof:
            warn_caller(
                f"{problem.m} measurements cannot determine a tensor of shape {problem.shape} and "
                f"rank {rank}, which has {dof} degrees of freedom. Take at least {dof}, better "
                f"{3 * dof}.",
                UnderdeterminedWarning,
            )
    return as_solver(solver).bind(problem, rank)


def _tensor_or_state(start: Any) -> Any:
    """Result -> its state or tensor; everything else as it is."""
    if isinstance(start, Result):
        return start.X if start.state is None else start.state
    return start


def _truth(X_true: Any, problem: Problem) -> TuckerTensor | Array | None:
    if X_true is None:
        return None
    if not isinstance(X_true, TuckerTensor):
        X_true = as_float(X_true, "X_true")
        if not all_finite(X_true):
            raise ValueError("X_true has NaN or infinite entries.")
    core = X_true.core if isinstance(X_true, TuckerTensor) else X_true
    same_kind(core, problem.A.prototype, "X_true", "the operator")
    shape = tuple(X_true.shape)
    if isinstance(X_true, TuckerTensor):
        shape = (*X_true.batch_shape, *shape)
    if shape != (*problem.batch_shape, *problem.shape):
        raise ValueError(
            f"X_true must have shape {(*problem.batch_shape, *problem.shape)}, got {shape}."
        )
    return X_true


def _limit(rule: Any) -> int | None:
    """Largest number of epochs that a rule allows, for progress bars."""
    if isinstance(rule, MaxEpochs):
        return rule.epochs
    limits = [_limit(getattr(rule, part)) for part in ("first", "second") if hasattr(rule, part)]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None
