"""One run of solvers over a problem or a batch: the only loop.

Inside a run one problem is a batch of one: states, residuals and histories have a leading axis. The
axis is taken off where rules, callbacks and results meet the user.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lowtucker._array import like, namespace, size, to_numpy
from lowtucker._array.clock import Clock, TimeUp, check_time
from lowtucker._array.errors import NotFinite, UnderdeterminedWarning, warn_caller
from lowtucker._array.linalg import fallbacks
from lowtucker._array.random import Seed, as_seed
from lowtucker._array.readings import Readings, uncounted
from lowtucker.metrics import relative_error
from lowtucker.problem import Problem
from lowtucker.run import logs
from lowtucker.run.history import History
from lowtucker.run.interrupt import Interrupt
from lowtucker.run.ledger import Found, Ledger
from lowtucker.run.progress import Callback, Progress, is_request
from lowtucker.run.result import Result, Verdict
from lowtucker.run.stopping import Stalled, StoppingRule, epochs_allowed, tolerance
from lowtucker.solvers import Bound, Solver, State
from lowtucker.solvers.manifold import blown_up
from lowtucker.solvers.start import failed_start
from lowtucker.status import Finding, Status
from lowtucker.tensor.rank import attainable_rank, check_rank
from lowtucker.thresholding import HOSVD, Iterate, TuckerTruncation

__all__ = ["Run", "bind"]

# At the noise floor a second-order solver goes on while a step lowers the residual by so much
FINISHED = 1e-4
# A residual that has grown by this factor is a blow-up, long before numbers overflow.
BLOW_UP = 1e6
# What is raised where no algorithm can continue
FAILURES = (NotFinite, np.linalg.LinAlgError, ArithmeticError)
# Endings that rules read off the fall of the residual, epoch by epoch
OF_A_WHOLE_EPOCH = (Status.STALLED, Status.APPROXIMATED)
# Endings by a small residual
FITS = (Status.CONVERGED, Status.NOISE_FLOOR)
# Endings with which a problem keeps its best iterate rather than its last
BEST = (
    Status.STALLED,
    Status.APPROXIMATED,
    Status.MAX_EPOCHS,
    Status.MAX_SECONDS,
    Status.INTERRUPTED,
)


class Run:
    """Solvers that take over from each other, on a problem or a batch.

    Parameters
    ----------
    problem : Problem
    phases : list of Solver
    rank : tuple of int or None
    stop : StoppingRule
    X_true : TuckerTensor, array or None
    seed : int or (int, int)
    keeps : bool
        Whether snapshots are made, for a checkpoint.
    clock : Clock, optional
        Wall time of the call. Its limit ends the run after a step, or in the middle of one: the
        passes of a step look at it.
    stage : str
        What of the call this run is, for callbacks.
    """

    def __init__(
        self,
        problem: Problem,
        phases: list[Solver],
        rank: Any,
        stop: StoppingRule,
        X_true: Any,
        seed: Seed,
        *,
        keeps: bool = False,
        clock: Clock | None = None,
        stage: str = "",
    ) -> None:
        self.problem, self.phases, self.rank, self.seed = problem, phases, rank, seed
        self.stop, self.tol = stop, tolerance(stop)
        self.is_batch = bool(problem.batch_shape)
        self.count = problem.batch_shape[0] if self.is_batch else 1
        self.X_true = _truth(X_true, self.is_batch)
        self.ledger = Ledger.of(self.count)
        self.kept: Ledger | None = None  # the last row, not yet judged: what a later run resumes
        self.keeps = keeps
        self.clock, self.stage = clock or Clock(), stage
        self.readings = Readings()  # to be entered by what runs it
        self.state: Any = None
        self.bound: Bound
        self.failed = False  # whether no algorithm could continue
        self.cut_short = False  # whether the time was up in the middle of a step
        self.used: list[str] = []  # fallback algorithms since the last row

    # What a call does with it

    def begin(self, start: Any) -> None:
        """First state, and the first row of the history."""
        if isinstance(start, State):
            self.ledger.phase = min(start.phase, len(self.phases) - 1)
        self._bind(warn=True)
        self._start_phase(start)
        self.cut_short = self.clock.is_up  # a start that no step can follow is not to be resumed
        logs.begun(self, "starts" if start is None else "starts from a tensor")
        self._close()

    def resume(self, kept: Ledger) -> None:
        """Continue from a snapshot as if the run had never stopped."""
        self.kept, self.ledger = kept, kept.snapshot()
        self._bind(warn=False)
        self.readings.rows = kept.rows
        with np.errstate(all="ignore"), uncounted():  # it was read in the run that is continued
            self.state = self.bound.init(kept.recorded, self.seed)
        self.ledger.recorded = self.state
        logs.begun(self, "resumes")
        self._end(self._judged())

    def go(
        self,
        callbacks: Sequence[Callback],
        interrupt: Interrupt,
        on_epoch: Callable[[Ledger], None] = lambda kept: None,
    ) -> None:
        """Epoch after epoch, until all problems have ended or Ctrl-C ends the run.

        ``on_epoch`` gets a snapshot after every epoch but the last.
        """
        try:
            while self.ledger.active.size:
                self._epoch(interrupt)
                if self.kept is not None and self.ledger.active.size:
                    on_epoch(self.kept)
                self._tell(callbacks)
        except KeyboardInterrupt:
            if interrupt.raises or interrupt.asked:
                raise
            self.interrupt()

    def interrupt(self, status: Status = Status.INTERRUPTED) -> None:
        """End what still runs or waits, with the last row of the history."""
        self.state = self.ledger.recorded
        self._give_back_waiting(status)
        self.phases = self.phases[: self.ledger.phase + 1]
        if self.ledger.active.size:
            self._end(np.full(self.ledger.active.size, status, dtype=object))
        # a rough fit, which ended in this very epoch, is a part of a call that goes on
        self.ledger.statuses[self.ledger.statuses == Status.APPROXIMATED] = status

    def result(self) -> Result:
        """Outcome of the run; its verdict does not use the truth."""
        ledger, X = self.ledger, self.state.X
        found = [Found(*ledger.ended[k]) for k in range(self.count)]
        dof = np.array([one.X.degrees_of_freedom for one in found])  # shrunk tensors have their own
        few = self.problem.equations < dof
        kept = [s in (Status.DIVERGED, Status.INTERRUPTED) for s in ledger.statuses]
        ledger.statuses[few & ~np.array(kept)] = Status.UNDERDETERMINED
        error = None if self.X_true is None else np.array([one.error for one in found])
        tensors = self._of_one_rank([one.X for one in found])
        result = Result(
            X=self._out(type(X).concat(tensors)),
            residual=self._out(np.array([one.residual for one in found])),
            error=None if error is None else self._out(error),
            status=self._out(ledger.statuses),
            history=self._history(),
            rank=tensors[0].rank,
            epochs=self._out(ledger.epochs),
            passes=self._passes,
            seconds=ledger.seconds,
            solver=" then ".join(map(repr, [*self.phases[: ledger.phase], self.bound])),
            m=int(np.min(self.problem.equations)),
            degrees_of_freedom=int(dof.max()),
            state=self._out(self.state) if len(self.state.trials) == self.count else None,
            error_estimate=self.bound.error_estimate(self.state, found[0].residual),
            findings=() if self.is_batch else self._findings(self.state, ledger.statuses),
            each=self._each(found) if self.is_batch else (),
        )  # fmt: skip
        logs.ended(self, result)
        return result

    def _each(self, found: Sequence[Found]) -> tuple[Verdict, ...]:
        """What is known of every problem of a batch."""
        counts = np.broadcast_to(self.problem.equations, (self.count,)).tolist()
        return tuple(
            Verdict(
                findings=() if one.state is None else self._findings(one.state, [s]),
                state=one.state,
                m=int(m),
            )
            for one, s, m in zip(found, self.ledger.statuses, counts, strict=True)
        )

    def _findings(self, state: State, statuses: Any) -> tuple[Finding, ...]:
        """What the solver says of a problem at its end."""
        solver = self.bound.solver
        return (*_restarted(solver.restarts(state), statuses), *solver.findings(state))

    @property
    def _passes(self) -> float:
        """Passes so far, over the rows of the call."""
        return self.readings.rows / self.rows_of_call

    @property
    def rows_of_call(self) -> int:
        """Rows of the call that this run is a part of: it may fit some of them."""
        return self.readings.m or self.problem.m

    # One epoch

    def _epoch(self, interrupt: Interrupt) -> None:
        """Steps of one epoch, a row of the history, and the verdict on every problem.

        An interrupt ends it after the step at work, with the row of the last epoch; the time limit
        too, with a row of the steps that were finished.
        """
        for _ in range(self.bound.steps_per_epoch):
            if not self.failed:  # where even the start has failed there is nothing to advance from
                self._timed(self._step)
            if self.failed or self.cut_short:
                break
            if interrupt.asked:
                self.interrupt()
                return
        if self.cut_short and self.state is self.ledger.recorded:
            self.interrupt(Status.MAX_SECONDS)
            return
        self.ledger.epochs[self.ledger.active] += 1
        self._close()

    def _close(self) -> None:
        """Record the row, keep a snapshot, and judge the row.

        There is none of an epoch that was cut short: a later call repeats all of it.
        """
        self._record()
        if self.keeps and not self.cut_short:
            self.kept = self.ledger.snapshot()
        self._end(self._judged())

    def _tell(self, callbacks: Sequence[Callback]) -> None:
        """Call the callbacks, outside the clock; any of them may stop the run."""
        if not callbacks:
            return
        row = self.ledger.history.last
        progress = Progress(
            int(row["epoch"]),
            float(row["passes"]),
            self._out(row["residual"]),
            self._out(self.state),
            epochs_allowed(self.stop),
            self.stage,
            self.clock.seconds,
            self.clock.limit,
        )
        requests = [is_request(callback(progress)) for callback in callbacks]
        if any(requests):
            self.interrupt()

    def _start_phase(self, start: Any) -> None:
        """First state of a phase; where no time is left as well, for there must be one."""
        self._timed(lambda: self.bound.init(start, self.seed))
        if self.cut_short:
            self._timed(lambda: self.bound.init(start, self.seed), clock=Clock())

    def _step(self) -> State:
        """Next state: where a step of a batch fails, by steps of its problems alone."""
        check_time()
        try:
            return self.bound.advance(self.state)
        except FAILURES:
            if self.ledger.active.size == 1:
                raise
            return self._step_of_each()

    def _step_of_each(self) -> State:
        """Next state, by a step of every problem alone: those stay that cannot continue."""
        states, failed = [], 0
        for k in range(self.ledger.active.size):
            before = self.state.select([k])
            try:
                states.append(self.bound.select([k]).advance(before))
            except FAILURES as error:
                states.append(blown_up(before))
                failed, last = failed + 1, error
        if failed == len(states):
            raise last
        return self.bound.init(State.concat(states), self.seed)

    def _timed(self, action: Callable[[], State], clock: Clock | None = None) -> None:
        """Do something that gives a state, by the clock; the state stays where time runs out."""
        begin = time.perf_counter()
        self.failed = self.cut_short = False
        with np.errstate(all="ignore"), fallbacks() as used:  # blow-up is a status, not a warning
            try:
                with (clock or self.clock).watched():
                    self.state = action()
            except TimeUp:
                self.cut_short = True
            except FAILURES:
                self.state, self.failed = self._stopped(), True
        self.used += used
        self.ledger.seconds += time.perf_counter() - begin

    def _stopped(self) -> State:
        """State of a run that no algorithm can continue: it stays where it is."""
        if self.state is None:
            threshold = self.bound.thresholding or HOSVD(attainable_rank(self.bound.rank))
            state = failed_start(self.problem, threshold, self.seed)
            return state if self.is_batch else state.batched()
        return replace(blown_up(self.state), cache=None)

    def _record(self) -> None:
        """Add a row to the history, and keep what is the best so far."""
        ledger = self.ledger
        with np.errstate(all="ignore"):
            residual = self.bound.estimated_residual(self.state)
            estimated = ~np.isnan(residual)
            row = {"residual": residual}
            row["cost"] = 0.5 * (residual * to_numpy(self.bound.problem.y_norm)) ** 2
            self._measure(np.flatnonzero(~estimated), row)
            if self.X_true is not None:
                truth = self.X_true
                if ledger.active.size < self.count:
                    truth = _some(truth, ledger.active)
                row["error"] = self._error(truth)
        ledger.recorded, ledger.rows = self.state, self.readings.rows
        running = np.zeros(self.count, dtype=bool)
        running[ledger.active] = True
        entry = {
            "epoch": ledger.history.rows,
            "passes": self._passes,
            "seconds": ledger.seconds,
            "phase": " ".join([self.bound.solver.label(self.state), *dict.fromkeys(self.used)]),
            **{name: self._spread(name, value) for name, value in row.items()},
            "running": running,
        }
        ledger.history.append(entry)
        logs.recorded(self)
        self.used = []
        ledger.estimated[ledger.active] = estimated
        self._keep_best()

    def _measure(self, which: Any, row: dict[str, Any]) -> None:
        """Write residual and cost of some of the running problems, by position, into a row."""
        bound, state = self.bound, self.state
        if not len(which):
            return
        if len(which) < len(state.trials):
            bound, state = bound.select(which.tolist()), state.select(which.tolist())
        residual, problem = bound.residual(state), bound.problem
        row["residual"][which] = to_numpy(problem.relative(residual))
        row["cost"][which] = to_numpy(problem.cost_of(residual))

    def _error(self, truth: Any) -> Any:
        """Error of every running problem."""
        if self.is_batch:
            return relative_error(self.state.X, truth)
        return relative_error(self.state.X.single(), _some(truth, None))

    def _spread(self, name: str, value: Any) -> Any:
        """Numbers of the running problems among those that the ended ones had last."""
        ledger = self.ledger
        before = ledger.history.last[name] if ledger.history.rows else np.zeros(self.count)
        after = np.array(before, dtype=np.float64)
        after[ledger.active] = to_numpy(value)
        return after

    def _keep_best(self) -> None:
        """Take over the tensors whose residual is the lowest so far."""
        ledger, row = self.ledger, self.ledger.history.last
        active = ledger.active
        residual = row["residual"][active]
        error = np.broadcast_to(row.get("error", np.nan), (self.count,))[active]
        better = (residual < ledger.best_residual[active]) | ledger.best_estimated[active]
        if ledger.best is None or (active.size == self.count and better.all()):
            ledger.best, better = self.state.X, np.full(active.size, True)
        elif better.any():
            best, X = self._of_one_rank([ledger.best, self.state.X.take(better)])
            ledger.best = best.put(active[better], X)
        ledger.best_residual[active[better]] = residual[better]
        ledger.best_error[active[better]] = error[better]
        ledger.best_estimated[active[better]] = ledger.estimated[active[better]]

    def _of_one_rank(self, tensors: list[Any]) -> list[Any]:
        """Tensors as they are; at the whole rank where it grew between them."""
        if len({one.rank for one in tensors}) == 1:
            return tensors
        threshold: Any = self.bound.thresholding
        return [threshold(one.full()) for one in tensors]

    def _best_of(self, k: int) -> Found:
        """Best iterate of a problem."""
        ledger = self.ledger
        X = ledger.best.take([k])
        if ledger.best_estimated[k]:
            problem = self.problem.trial(k)
            ledger.best_residual[k] = float(problem.relative_residual(X.single()))
            ledger.best_estimated[k] = False
        return Found(X, float(ledger.best_residual[k]), float(ledger.best_error[k]))

    def _last(self, k: int, position: int) -> Found:
        """Tensor of a running problem, with what the last row says of it."""
        row = self.ledger.history.last
        error = float(row["error"][k]) if "error" in row else np.nan
        return Found(self.state.X.take([position]), float(row["residual"][k]), error)

    # Verdicts and phases

    def _judged(self) -> Any:
        """Status of every running problem; one that ends has its residual measured before."""
        ledger, verdicts = self.ledger, self._verdicts()
        ending = np.array([status is not None for status in verdicts], dtype=bool)
        late = np.flatnonzero(ending & ledger.estimated[ledger.active])
        if not late.size:
            return verdicts
        last = ledger.history.last
        row = {name: last[name][ledger.active] for name in ("residual", "cost")}
        with np.errstate(all="ignore"):
            self._measure(late, row)
        changed = {name: self._spread(name, value) for name, value in row.items()}
        ledger.history.amend(changed | {"passes": self._passes})
        ledger.estimated[ledger.active[late]] = False
        self._keep_best()
        return self._verdicts()

    def _verdicts(self) -> Any:
        """Status of every running problem; None where it goes on."""
        ledger, solver = self.ledger, self.bound.solver
        verdict = np.full(self.count, None, dtype=object)
        if solver.is_warming_up(self.bound, self.state):  # rows that a rule may not call stalled
            ledger.first_row = ledger.history.rows - 1
        rule = self.stop if self._is_last else self.stop | Stalled(*solver.patience)
        for status, mask in rule.verdicts(self._rows_of_phase()):
            where = np.broadcast_to(mask, (self.count,)) & (verdict == None)  # noqa: E711
            if solver.self_terminating:
                where = where & ~self._overrides(status)
            verdict[where] = status
        if self.clock.is_up:
            verdict[verdict == None] = Status.MAX_SECONDS  # noqa: E711
        if self.cut_short:  # part of an epoch may gain little where all of it would gain more
            partial = [status in OF_A_WHOLE_EPOCH for status in verdict]
            verdict[np.array(partial)] = Status.MAX_SECONDS
        residual = ledger.history["residual"]
        grown = ~(residual[-1] <= BLOW_UP * np.maximum(1.0, residual[0]))
        verdict[grown] = Status.DIVERGED
        running = verdict[ledger.active]
        running[self._is_stuck() & (running == None)] = Status.STALLED  # noqa: E711
        running[np.atleast_1d(to_numpy(self.state.diverged))] = Status.DIVERGED
        return running

    def _rows_of_phase(self) -> dict[str, Any]:
        """Columns that stopping rules see: the rows of this phase, as the user knows them."""
        history, first = self.ledger.history, self.ledger.first_row
        rows = {name: self._column(column)[first:] for name, column in history.items()}
        if self.is_batch:  # every problem counts its own epochs
            rows["epoch"] = (np.cumsum(history["running"], axis=0) - 1)[first:]
        else:
            del rows["running"]
        return rows

    def _is_stuck(self) -> Any:
        """Whether the solver has given up, for every running problem."""
        return np.broadcast_to(self.bound.solver.is_stuck(self.state), self.ledger.active.shape)

    def _overrides(self, status: Status) -> Any:
        """Whether a self-terminating solver goes on in spite of a rule, for every problem.

        It is not stalled before it says so, at a noise floor it finishes the fit, and where a fit
        does not suffice it goes on until it is done.
        """
        if not self.bound.solver.fit_suffices and status in FITS:
            goes_on = np.zeros(self.count, dtype=bool)
            goes_on[self.ledger.active] = ~self._is_stuck()
            return goes_on
        last = self.ledger.history["residual"][-2:]
        if status is not Status.NOISE_FLOOR or len(last) < 2:
            return np.full(self.count, status is Status.STALLED)
        falling = last[1] < (1 - FINISHED) * last[0]
        falling[self.ledger.active] &= ~self._is_stuck()
        return falling

    @property
    def _is_last(self) -> bool:
        return self.ledger.phase == len(self.phases) - 1

    def _end(self, verdicts: Any) -> None:
        """Freeze the problems that have a verdict; go on with the rest, or with the next phase."""
        ledger = self.ledger
        done = np.array([v is not None for v in verdicts], dtype=bool)
        if not done.any():
            return
        ledger.statuses[ledger.active[done]] = verdicts[done]
        for position in np.flatnonzero(done):
            k, status = int(ledger.active[position]), verdicts[position]
            if self._next_takes_over(status):
                ledger.waiting.append(k)
            else:
                best = status in BEST and self.bound.solver.lower_residual_is_better
                found = self._best_of(k) if best else self._last(k, int(position))
                ledger.ended[k] = found._replace(state=self._state_of(int(position)))
        stay = np.flatnonzero(~done)
        ledger.active = ledger.active[stay]
        if stay.size:
            self.bound = self.bound.select(stay.tolist())
            self.state = ledger.recorded = self.state.select(stay.tolist())
        elif Status.MAX_SECONDS in verdicts:  # the time limit is that of all
            self._give_back_waiting(Status.MAX_SECONDS)
        elif ledger.waiting:
            self._next_phase()

    def _state_of(self, position: int) -> State | None:
        """State of a problem of a batch, as that of a single one."""
        if not self.is_batch:
            return None
        batch: State = replace(self.state, cache=None)
        return batch.select([position]).single()

    def _next_takes_over(self, status: Status) -> bool:
        """Whether the next phase takes over what ended like this."""
        if self._is_last:
            return False
        finishes = self.phases[self.ledger.phase + 1].self_terminating  # the fit at a noise floor
        return status in (Status.STALLED, Status.DIVERGED) or (
            finishes and status is Status.NOISE_FLOOR
        )

    def _give_back_waiting(self, status: Status) -> None:
        """End the problems that wait for a phase which will not come."""
        ledger = self.ledger
        ledger.ended |= {k: self._best_of(k) for k in ledger.waiting}
        ledger.statuses[ledger.waiting] = status
        ledger.waiting = []

    def _next_phase(self) -> None:
        """Let the next solver take over the problems that got stuck, from the best they had."""
        ledger = self.ledger
        ledger.active, ledger.waiting = np.sort(ledger.waiting), []
        ledger.phase += 1
        ledger.first_row = ledger.history.rows - 1
        best = [self._best_of(k) for k in ledger.active.tolist()]
        before = self.bound.solver
        self._bind(warn=False)
        logs.taken_over(self, before, best)
        tensors = [found.X * float(found.residual < 1) for found in best]
        start = self._out(type(tensors[0]).concat(tensors))
        self._start_phase(start)
        if self.failed and self.is_batch:
            self._begin_without_failures(start, best)
            if not ledger.active.size:
                return
        trials = self.bound.trials
        self.state = ledger.recorded = replace(self.state, phase=ledger.phase, trials=trials)

    def _begin_without_failures(self, start: Any, best: list[Found]) -> None:
        """Begin a phase with the problems that can begin; the others end with their best."""
        ledger, waiting = self.ledger, self.ledger.active
        fine = [k for k in range(len(best)) if self._can_begin(start, k)]
        if len(fine) == len(best):  # they fail only together
            fine = []
        ledger.active = waiting[np.array(fine, dtype=int)]
        if fine:
            self._bind(warn=False)
            self._start_phase(start.take(fine))
        for position in set(range(len(best))) - set(fine):
            k = int(waiting[position])
            ledger.ended[k], ledger.statuses[k] = best[position], Status.DIVERGED

    def _can_begin(self, start: Any, position: int) -> bool:
        """Whether the phase can begin with a problem alone."""
        try:
            with np.errstate(all="ignore"):
                self.bound.select([position]).init(start.take([position]), self.seed)
        except FAILURES:
            return False
        return True

    def _bind(self, *, warn: bool) -> None:
        """Bind the solver of the phase to the problems that are active."""
        ledger, problem = self.ledger, self.problem
        if self.is_batch and ledger.active.size < self.count:
            problem = problem.select(ledger.active.tolist())
        rank = self.rank
        if not self.is_batch and rank is not None and ledger.phase and not warn:
            # the first phase has warned of what is not attainable
            rank = attainable_rank(check_rank(rank, problem.shape, warn=False))
        trials = tuple(as_seed(self.seed)[1] + int(k) for k in ledger.active)
        bound = bind(problem, self.phases[ledger.phase], rank, warn=warn)
        # tolerances of another number of problems are refused by the rule
        tol = np.take(self.tol, ledger.active, mode="clip") if np.ndim(self.tol) else self.tol
        self.bound = replace(bound, trials=trials, tol=tol)

    # The door: what the user sees has no leading axis where there is one problem

    def _out(self, value: Any) -> Any:
        if self.is_batch:
            return value
        if isinstance(value, State | Iterate):
            return value.single()
        first = value[0]
        return first.item() if isinstance(first, np.generic) else first

    def _column(self, column: Any) -> Any:
        return column[:, 0] if column.ndim > 1 and not self.is_batch else column

    def _history(self) -> History:
        """History as the user sees it."""
        history = self.ledger.history
        if self.is_batch:
            return history
        names = [name for name in history if name != "running"]
        return History.of({name: self._column(history[name]) for name in names})


def _restarted(restarts: int, statuses: Any) -> tuple[Finding, ...]:
    """What a run that ran out of epochs or time says of its restarts."""
    ran_out = [s for s in (Status.MAX_EPOCHS, Status.MAX_SECONDS) if s in statuses]
    if not restarts or not ran_out:
        return ()
    text = (
        "The last epochs tried other starts, none of them better: the rank may not fit, there may "
        "be noise or outliers, or too few measurements."
    )
    return (Finding("hint", text, {"status": ran_out[0].name, "restarts": restarts}),)


def _truth(X_true: Any, is_batch: bool) -> Any:
    """Truth with a leading axis."""
    if X_true is None or is_batch:
        return X_true
    return X_true.batched() if isinstance(X_true, Iterate) else X_true[None, ...]


def _some(X: Any, which: Any) -> Any:
    """Truth of some problems; of the only one, without leading axis, where ``which`` is None."""
    if which is None:
        return X.single() if isinstance(X, Iterate) else X[0, ...]
    if isinstance(X, Iterate):
        return X.take(which)
    return namespace(X).take(X, like(np.asarray(which), X), axis=0)


def bind(problem: Problem, solver: Solver, rank: Any, *, warn: bool = True) -> Bound:
    """Settle the solver for the problem; warn of too few measurements."""
    if rank is not None and warn:
        rank = check_rank(rank, problem.shape, warn=False)
    bound = solver.bind(problem, rank)
    known = bound.rank if bound.thresholding is None else bound.thresholding.rank
    if warn and known is not None:
        H = bound.thresholding or HOSVD(attainable_rank(known))
        dof, equations = H.degrees_of_freedom(problem.shape), int(np.min(problem.equations))
        if equations < dof:
            what = f"rank {known}" if isinstance(H, TuckerTruncation) else f"format {H!r}"
            better = min(max(3 * dof, H.block_size(problem.shape)), size(problem.shape))
            warn_caller(
                f"{equations} measurements cannot determine a tensor of shape "
                f"{problem.shape} and {what}, which has {dof} degrees of freedom. "
                f"Take at least {dof}{f', better {better}' if better > dof else ''}.",
                UnderdeterminedWarning,
            )
    return bound
