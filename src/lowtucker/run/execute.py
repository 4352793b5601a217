"""One fit: a run from its start, or from a checkpoint, to its result."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from lowtucker._array.clock import Clock
from lowtucker._array.random import Seed, as_seed
from lowtucker._array.readings import side_by_side
from lowtucker.problem import Problem
from lowtucker.run.interrupt import interruptible
from lowtucker.run.loop import Run
from lowtucker.run.parts import joined_parts, parts_of, some_of_batch
from lowtucker.run.progress import Callback
from lowtucker.run.result import Result
from lowtucker.run.stopping import StoppingRule, epochs_allowed
from lowtucker.solvers import Solver
from lowtucker.status import Status

__all__ = ["Keeper", "execute"]


class Keeper:
    """Keeps the fits of a call: this one keeps nothing but the result of a run that failed.

    Attributes
    ----------
    keeps : bool
        Whether it wants snapshots.
    partial : Result or None
        What a run had found when its rows could not be read.
    """

    keeps = False
    partial: Any = None

    def next_fit(self, max_epochs: int | None) -> tuple[Any, Any]:
        """Result of the next fit if it is finished, or else what to resume from, if anything."""
        return None, None

    def close(self) -> None:
        """Keep nothing of what follows."""

    def epoch(self, kept: Any) -> None:
        """Note the end of an epoch."""

    def finish(self, max_epochs: int | None, result: Any, kept: Any) -> None:
        """Note the end of a fit."""

    def write(self) -> None:
        """Write what is not written yet."""

    def release(self) -> None:
        """Let other calls have what it keeps fits in."""


def execute(
    problem: Problem,
    phases: list[Solver],
    rank: Any,
    *,
    stop: StoppingRule,
    start: Any,
    X_true: Any,
    seed: Seed,
    callbacks: Sequence[Callback],
    keeper: Keeper,
    clock: Clock | None = None,
    stage: str = "",
) -> Result:
    """Run solvers on a problem, or on a batch in parts that fit into memory; see :func:`run_one`.

    Problem k of a batch has the seed (seed, k), in whatever part it is.
    """
    run = partial(
        run_one,
        phases=phases,
        rank=rank,
        stop=stop,
        callbacks=callbacks,
        keeper=keeper,
        clock=clock,
    )
    parts = parts_of(problem, phases, rank) if problem.batch_shape else []
    if len(parts) < 2:
        return run(problem, start=start, X_true=X_true, seed=seed, stage=stage)
    number, first = as_seed(seed)
    results: list[Result] = []
    # readings of one A by several parts add up
    for part in side_by_side(parts) if problem.A.batch_shape else parts:
        label = f"problems {part.start + 1} to {part.stop} of {parts[-1].stop}"
        one = run(
            problem.select(part),
            start=some_of_batch(start, part),
            X_true=some_of_batch(X_true, part),
            seed=(number, first + part.start),
            stage=", ".join(filter(None, (stage, label))),
            ends=any(Status.INTERRUPTED in one.status for one in results),
        )
        results.append(one)
    return joined_parts(results)


def run_one(
    problem: Problem,
    *,
    phases: list[Solver],
    rank: Any,
    stop: StoppingRule,
    start: Any,
    X_true: Any,
    seed: Seed,
    callbacks: Sequence[Callback],
    keeper: Keeper,
    clock: Clock | None = None,
    stage: str = "",
    ends: bool = False,
) -> Result:
    """Run solvers on a problem of moderate scale; what is kept already is not computed again.

    A run that ``ends`` has nothing but its start: an earlier part of its batch was interrupted.
    """
    limit = epochs_allowed(stop)
    if clock is not None and clock.is_up:
        keeper.close()  # with more time another fit might come here
    run = Run(
        problem, phases, rank, stop, X_true, seed, keeps=keeper.keeps, clock=clock, stage=stage
    )
    with run.readings.counting():
        return _executed(run, start, callbacks, keeper, limit, ends)


def _executed(
    run: Run,
    start: Any,
    callbacks: Sequence[Callback],
    keeper: Keeper,
    limit: int | None,
    ends: bool,
) -> Result:
    finished, kept = keeper.next_fit(limit)
    if finished is not None:
        result: Result = finished
        run.readings.rows = round(result.passes * run.rows_of_call)  # as if they were read again
        return result
    interrupt = None
    try:
        with interruptible() as interrupt:
            if kept is None:
                run.begin(start)
            else:
                run.resume(kept)
            if ends:
                run.interrupt()
            run.go(callbacks, interrupt, keeper.epoch)
    except OSError:  # rows that could not be read
        if run.ledger.history.rows < 2:
            raise
        run.interrupt()
        if interrupt is None or not interrupt.asked:
            keeper.partial = run.result()
            keeper.finish(limit, keeper.partial, run.kept)
            raise
        # Ctrl-C, which ends the workers of a LocalCluster too
    result = run.result()
    keeper.finish(limit, result, run.kept)
    return result
