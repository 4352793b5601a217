"""One run of solvers over a problem or a stack: the only loop, told what to do by ``solve``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import Array, like, namespace, put, to_numpy
from lowtucker._array.errors import NotFinite, UnderdeterminedWarning, warn_caller
from lowtucker._array.linalg import fallbacks
from lowtucker._array.random import Seed, as_seed
from lowtucker.metrics import relative_error
from lowtucker.problem import Problem
from lowtucker.result import Result
from lowtucker.run import Callback, History, Progress
from lowtucker.run.stopping import (
    Either,
    MaxEpochs,
    MaxSeconds,
    ResidualBelow,
    Stalled,
    StoppingRule,
)
from lowtucker.solvers import Solver, State
from lowtucker.solvers.manifold import blown_up
from lowtucker.solvers.start import failed_start
from lowtucker.status import Status
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Run", "bind", "conditions", "epochs_allowed"]

# At the noise floor a second-order solver goes on while a step lowers the residual by so much
FINISHED = 1e-4
# What a run is made of beside its settings and its history
KEPT = (
    "phase", "active", "waiting", "statuses", "epochs", "ended", "best_X", "best_residual",
    "best_error", "guessed", "first_row", "seconds", "passes", "recorded",
)  # fmt: skip
# A residual that has grown by this factor is a blow-up, long before numbers overflow.
BLOW_UP = 1e6


class Found(NamedTuple):
    """A tensor, and what is known of it."""

    X: TuckerTensor
    residual: float
    error: float


class Run:
    """One call of :func:`solve`: the trials that still run, and what is known of all."""

    def __init__(
        self,
        problem: Problem,
        phases: list[Solver],
        rank: Any,
        stop: StoppingRule,
        X_true: Any,
        *,
        keeps: bool = False,
    ) -> None:
        self.whole = self.problem = problem
        self.phases, self.phase, self.rank = phases, 0, rank
        self.stop, self.X_true = stop, X_true
        self.tol = _tolerance(stop)
        self.stacked = bool(problem.batch_shape)
        self.trials = problem.batch_shape[0] if self.stacked else 1
        self.active = np.arange(self.trials)
        self.waiting: list[int] = []  # for the next phase
        self.statuses = np.full(self.trials, Status.INTERRUPTED, dtype=object)
        self.epochs = np.zeros(self.trials, dtype=int)
        self.ended: dict[int, Found] = {}
        # the best so far of all trials: tensors in one stack, residuals, errors
        self.best_X: Any = None
        self.best_residual = np.full(self.trials, np.nan)
        self.best_error = np.full(self.trials, np.nan)
        self.guessed = False  # whether the residual of the last row is one
        self.history = History()
        self.first_row = 0  # of the phase: a new one is not stalled by what the last one did
        self.seconds = self.passes = 0.0
        self.failed = False  # whether no algorithm led on
        self.used: list[str] = []  # algorithms that stood in for others since the last row
        self.state: Any = None
        self.recorded: Any = None  # the state of the last row of the history
        self.keeps = keeps
        self.kept: Any = None  # what a later run can go on from: the last row, not yet judged

    def begin(self, start: Any, seed: Seed) -> None:
        """First state, and the first row of the history."""
        self.seed = seed
        if isinstance(start, State):
            self.phase = min(start.phase, len(self.phases) - 1)
            self.passes = -start.passes  # those of an earlier call are not this one's
        self.solver = bind(self.problem, self.phases[self.phase], self.rank)
        self._timed(lambda: self.solver.init(self.problem, start, seed))
        self._record()
        self._close()

    def epoch(self, asked: Callable[[], bool]) -> None:
        """Steps of one epoch, a row of the history, and the verdict on every trial.

        Where it is asked to end, after the step at work: with what the last epoch had.
        """
        for _ in range(self.solver.steps_per_epoch):
            if not self.failed:  # where even the start has failed there is nothing to advance from
                self._timed(lambda: self.solver.advance(self.problem, self.state))
            if self.failed:
                break
            if asked():
                self.interrupt()
                return
            if self.solver.settled(self.state, self.tol):
                break
        self.epochs[self.active] += 1
        self._record()
        self._close()

    def _close(self) -> None:
        """Keep what this run is made of, and judge the last row."""
        if self.keeps:
            self.kept = {name: copy(getattr(self, name)) for name in KEPT}
            self.kept["history"] = self.history.until_now()
        self._end(self._verdicts())

    def resume(self, kept: dict[str, Any], seed: Seed) -> None:
        """Go on from a snapshot as if nothing had been in between."""
        self.seed = seed
        for name in (*KEPT, "history"):
            setattr(self, name, kept[name])
        self.kept = kept
        self.active, self.waiting = np.asarray(self.active, dtype=int), list(self.waiting)
        self.statuses = np.array(self.statuses, dtype=object)
        self.ended = {k: Found(*found) for k, found in self.ended.items()}
        if self.stacked and self.active.size < self.trials:
            self.problem = self.whole.select(self.active.tolist())
        self.solver = bind(self.problem, self.phases[self.phase], self._rank_of_phase(), warn=False)
        with np.errstate(all="ignore"):
            self.state = self.solver.init(self.problem, self.recorded, seed)
        self.recorded = self.state
        self._end(self._verdicts())

    def tell(self, callbacks: Sequence[Callback]) -> None:
        """Callbacks, outside the clock; any of them may stop the run."""
        row = self.history.last
        progress = Progress(
            int(row["epoch"]),
            float(row["passes"]),
            row["residual"],
            self.state,
            epochs_allowed(self.stop),
        )
        wishes = [callback(progress) for callback in callbacks]
        if True in wishes:
            self.interrupt()

    def interrupt(self) -> None:
        """End what still runs or waits, with what it has."""
        self.state = self.recorded  # the history and the tensor belong to one another
        self._give_back_waiting(Status.INTERRUPTED)
        self.phases = self.phases[: self.phase + 1]
        if self.active.size:
            self._end(np.full(self.active.size, Status.INTERRUPTED, dtype=object))

    def _give_back_waiting(self, status: Status) -> None:
        """End the trials that wait for a phase which will not come."""
        self.ended |= {k: self._best(k) for k in self.waiting}
        self.statuses[self.waiting] = status
        self.waiting = []

    def _timed(self, action: Any) -> None:
        begin = time.perf_counter()
        self.failed = False
        with np.errstate(all="ignore"), fallbacks() as used:  # blow-up is a status, not a warning
            try:
                self.state = action()
            except (NotFinite, np.linalg.LinAlgError, ArithmeticError):
                self.state, self.failed = self._stopped(), True
        self.used += used
        self.seconds += time.perf_counter() - begin

    def _stopped(self) -> State:
        """State of a run that no algorithm leads on: it stays where it is."""
        if self.state is None:
            rank = (1,) * len(self.problem.shape) if self.rank is None else self.rank
            return failed_start(self.problem, attainable_rank(rank), self.seed)
        return replace(blown_up(self.state), model=None, residual=None)

    def _record(self) -> None:
        with np.errstate(all="ignore"):
            guess = None if self.stacked else self.solver.guess(self.state, self.tol)
            if guess is None:
                residual = self.solver.residual(self.problem, self.state)
                row = {
                    "residual": self.problem.relative(residual),
                    "cost": self.problem.cost_of(residual),
                }
            else:
                row = {"residual": guess, "cost": 0.5 * (guess * self.problem.y_norm) ** 2}
            if self.X_true is not None:
                row["error"] = relative_error(self.state.X, self._truth())
        self.recorded = self.state
        entry = {
            "epoch": self.history.rows,
            "passes": self.passes + self.state.passes,
            "seconds": self.seconds,
            "phase": " ".join([self.solver.label(self.state), *dict.fromkeys(self.used)]),
            **{name: self._spread(name, value) for name, value in row.items()},
        }
        if self.stacked:
            entry["running"] = np.isin(np.arange(self.trials), self.active)
        self.history.append(entry)
        self.used = []
        self._keep_best()
        self.guessed = guess is not None

    def _keep_best(self) -> None:
        """Take over the tensors whose residual is the lowest so far."""
        row = self.history.last
        residual = np.atleast_1d(row["residual"])[self.active]
        error = np.broadcast_to(row.get("error", np.nan), (self.trials,))[self.active]
        better = (residual < self.best_residual[self.active]) | self.guessed
        if self.best_X is None or (self.active.size == self.trials and better.all()):
            self.best_X, better = self.state.X, np.full(self.active.size, True)
        elif better.any():
            self.best_X = _merged(self.best_X, self.active[better], _some(self.state.X, better))
        self.best_residual[self.active[better]] = residual[better]
        self.best_error[self.active[better]] = error[better]

    def _best(self, k: int) -> Found:
        """Best iterate of a trial."""
        if self.guessed:  # nothing but the start: what was a guess is measured
            self.best_residual[k] = float(self.problem.relative_residual(self.best_X))
            self.guessed = False
        X = _some(self.best_X, [k]) if self.stacked else self.best_X
        return Found(X, float(self.best_residual[k]), float(self.best_error[k]))

    def _found(self, k: int, position: int) -> Found:
        """Tensor of a running trial, with what the last row says of it."""
        row, X = self.history.last, self.state.X
        if not self.stacked:
            return Found(X, float(row["residual"]), float(row.get("error", np.nan)))
        error = float(row["error"][k]) if "error" in row else np.nan
        return Found(_some(X, [position]), float(row["residual"][k]), error)

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
        return _taken(self.X_true, self.active)

    def _verdicts(self) -> np.ndarray[Any, Any]:
        """Status of every running trial; None where it goes on."""
        verdict = np.full(self.trials, None, dtype=object)
        rule = self.stop if self._is_last else self.stop | Stalled(*self.solver.patience)
        rows = {name: column[self.first_row :] for name, column in self.history.items()}
        if self.stacked:  # every trial counts its own epochs
            rows["epoch"] = (np.cumsum(self.history["running"], axis=0) - 1)[self.first_row :]
        for status, mask in rule.verdicts(rows):
            if self.solver.judges_itself and self._knows_better(status):
                continue
            where = np.broadcast_to(mask, (self.trials,)) & (verdict == None)  # noqa: E711
            verdict[where] = status
        residual = np.atleast_2d(self.history["residual"].T)  # one row a trial
        grown = ~(residual[:, -1] <= BLOW_UP * np.maximum(1.0, residual[:, 0]))
        verdict[grown] = Status.DIVERGED
        running = verdict[self.active]
        if self.state.stuck and running[0] is None:
            running[0] = Status.STALLED
        running[np.atleast_1d(to_numpy(self.state.diverged))] = Status.DIVERGED
        return running

    def _knows_better(self, status: Status) -> bool:
        """Whether a solver that says itself when it is stuck goes on in spite of a rule.

        It is not stalled before it says so, and at a noise floor it finishes the fit.
        """
        if status is Status.STALLED:
            return True
        last = self.history["residual"][-2:]
        falling = len(last) == 2 and bool(last[1] < (1 - FINISHED) * last[0])
        return status is Status.NOISE_FLOOR and falling and not self.state.stuck

    @property
    def _is_last(self) -> bool:
        return self.phase == len(self.phases) - 1

    def _end(self, verdicts: np.ndarray[Any, Any]) -> None:
        """Freeze the trials that have a verdict; go on with the rest, or with the next phase."""
        done = np.array([v is not None for v in verdicts], dtype=bool)
        if not done.any():
            return
        self.statuses[self.active[done]] = verdicts[done]
        for position in np.flatnonzero(done):
            k, status = int(self.active[position]), verdicts[position]
            if self._goes_on(status):
                self.waiting.append(k)
            else:
                self.ended[k] = self._final(k, int(position), status)
        stay = np.flatnonzero(~done)
        self.active = self.active[stay]
        if stay.size:
            self.problem = self.problem.select(stay.tolist())
            self.state = self.recorded = self.state.select(stay.tolist())
            self.solver = self.solver.select(stay.tolist())
        elif Status.MAX_SECONDS in verdicts:  # the time is up for all
            self._give_back_waiting(Status.MAX_SECONDS)
        elif self.waiting:
            self._next_phase()

    def _goes_on(self, status: Status) -> bool:
        """Whether the next phase takes over what ended like this."""
        if self._is_last:
            return False
        finishes = self.phases[self.phase + 1].judges_itself  # the fit at a noise floor
        return status in (Status.STALLED, Status.DIVERGED) or (
            finishes and status is Status.NOISE_FLOOR
        )

    def _final(self, k: int, position: int, status: Status) -> Found:
        """Last iterate of a trial; where it did not come to an end by itself, its best one."""
        if status in (Status.STALLED, Status.MAX_EPOCHS, Status.MAX_SECONDS, Status.INTERRUPTED):
            return self._best(k)
        return self._found(k, position)

    def _next_phase(self) -> None:
        """Another solver takes over the trials that got stuck, from the best they had."""
        self.active, self.waiting = np.sort(self.waiting), []
        self.phase += 1
        self.first_row = self.history.rows - 1
        self.passes += self.state.passes
        if self.stacked:
            self.problem = self.whole.select(self.active.tolist())
        self.solver = bind(self.problem, self.phases[self.phase], self._rank_of_phase(), warn=False)
        best = [self._best(k) for k in self.active.tolist()]
        tensors = [found.X * float(found.residual < 1) for found in best]
        start = _joined(tensors) if self.stacked else tensors[0]
        self._timed(lambda: self.solver.init(self.problem, start, self.seed))
        numbers = tuple(as_seed(self.seed)[1] + int(k) for k in self.active)
        self.state = self.recorded = replace(self.state, phase=self.phase, trials=numbers)

    def _rank_of_phase(self) -> Any:
        """Rank of a phase but the first, which has warned of what is not attainable."""
        if self.stacked or self.rank is None or not self.phase:
            return self.rank
        return attainable_rank(check_rank(self.rank, self.problem.shape, warn=False))

    def result(self) -> Result:
        """Verdict without the truth."""
        rank = self.state.X.rank
        dof = degrees_of_freedom(self.whole.shape, attainable_rank(rank))
        few = np.broadcast_to(self.whole.equations, (self.trials,)) < dof
        kept = [s in (Status.DIVERGED, Status.INTERRUPTED) for s in self.statuses]
        self.statuses[few & ~np.array(kept)] = Status.UNDERDETERMINED
        success = np.array([s.success for s in self.statuses])
        found = [self.ended[k] for k in range(self.trials)]
        residual = np.array([one.residual for one in found])
        error = None if self.X_true is None else np.array([one.error for one in found])
        return Result(
            X=_joined([one.X for one in found]) if self.stacked else found[0].X,
            residual=residual if self.stacked else found[0].residual,
            error=error if self.stacked or error is None else found[0].error,
            status=self.statuses if self.stacked else self.statuses[0],
            success=success if self.stacked else bool(success[0]),
            history=self.history,
            rank=rank,
            epochs=self.epochs if self.stacked else int(self.epochs[0]),
            passes=self.history.last["passes"],
            seconds=self.seconds,
            solver=" then ".join(map(repr, [*self.phases[: self.phase], self.solver])),
            m=int(np.min(self.whole.equations)),
            degrees_of_freedom=dof,
            state=self.state if len(self.state.trials) == self.trials else None,
            error_estimate=None
            if self.stacked
            else self.solver.error_estimate(self.whole, self.state, found[0].residual),
        )


def _some(X: TuckerTensor, which: Any) -> TuckerTensor:
    """Some trials of a stack."""
    return TuckerTensor.trusted(_taken(X.core, which), [_taken(U, which) for U in X.factors])


def _taken(x: Array, which: Any) -> Array:
    """Some items of an array; by positions, or by a mask."""
    index = np.asarray(which)
    index = np.flatnonzero(index) if index.dtype == bool else index
    return namespace(x).take(x, like(index, x), axis=0)


def _merged(X: TuckerTensor, where: Any, new: TuckerTensor) -> TuckerTensor:
    """Stack with other trials at some places."""
    pairs = zip(X.factors, new.factors, strict=True)
    factors = [put(old, where, U) for old, U in pairs]
    return TuckerTensor.trusted(put(X.core, where, new.core), factors)


def _joined(tensors: list[TuckerTensor]) -> TuckerTensor:
    """Make one stack of stacks."""
    xp = namespace(tensors[0].core)
    factors = [xp.concat(parts) for parts in zip(*(X.factors for X in tensors), strict=True)]
    return TuckerTensor.trusted(xp.concat([X.core for X in tensors]), factors)


def bind(problem: Problem, solver: Solver, rank: Any, *, warn: bool = True) -> Solver:
    """Settle the solver for the problem; warn of too few measurements."""
    if rank is not None and warn:
        rank = check_rank(rank, problem.shape, warn=False)
        dof = degrees_of_freedom(problem.shape, attainable_rank(rank))
        equations = int(np.min(problem.equations))
        if equations < dof:
            warn_caller(
                f"{equations} measurements cannot determine a tensor of shape "
                f"{problem.shape} and rank {rank}, which has {dof} degrees of freedom. "
                f"Take at least {dof}, better {3 * dof}.",
                UnderdeterminedWarning,
            )
    return solver.bind(problem, rank)


def epochs_allowed(rule: Any) -> int | None:
    """Largest number of epochs that a rule allows, for progress bars."""
    if isinstance(rule, MaxEpochs):
        return rule.epochs
    limits = [
        epochs_allowed(getattr(rule, part)) for part in ("first", "second") if hasattr(rule, part)
    ]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def conditions(rule: Any) -> str:
    """What a rule asks for beside limits of epochs and time, as a text."""
    if isinstance(rule, MaxEpochs | MaxSeconds):
        return ""
    if hasattr(rule, "first"):
        parts = [conditions(rule.first), conditions(rule.second)]
        return f"{type(rule).__name__}({', '.join(filter(None, parts))})"
    return repr(rule)


def _tolerance(rule: Any) -> float:
    """Largest residual that ends a run by itself; a rule that is met only with another is none."""
    if isinstance(rule, ResidualBelow):
        return float(np.min(rule.tol))
    if isinstance(rule, Either):
        return max(_tolerance(rule.first), _tolerance(rule.second))
    return -math.inf
