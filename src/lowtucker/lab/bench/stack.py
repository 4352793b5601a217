"""Many small problems, and many starts of one, in one call: ``lowtucker bench stack``.

A batch of problems against a loop over single calls in the same run, with one BLAS thread. The
calls are public ones: what a batch cannot do yet is a row without a number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker.lab.bench.methods import Case
from lowtucker.lab.bench.timing import (
    REPEATS,
    Row,
    Spread,
    check_names,
    holds,
    machine_rows,
    side_by_side,
    timed,
)
from lowtucker.lab.bench.yardsticks import SEED, TOL, Recovery
from lowtucker.metrics import relative_error
from lowtucker.problem import Problem
from lowtucker.recovery import recover, solve
from lowtucker.run.result import Result
from lowtucker.run.stopping import MaxEpochs, ResidualBelow
from lowtucker.simulation.runner import available_workers
from lowtucker.solvers import RGN
from lowtucker.tensor import degrees_of_freedom, random_tucker
from lowtucker.theory import phase_transition, plan

__all__ = ["NAMES", "chosen", "run"]

# The setting of Figure 3 of the paper, with few measurements; A3, for its starts
SMALL: dict[str, Any] = {"shape": (5, 5, 6), "rank": (1, 2, 2), "orthonormal": False}
CUBE: dict[str, Any] = {"shape": (15, 15, 15), "rank": (5, 5, 5), "core_mean": 0.1}
# Share of the problems by which the success of a batch may be below that of single calls:
# rounding decides some that have few measurements
ROUNDING = 0.01
# Share of the starts' passes that may be lost where they share the rows
SHARED = 0.9
# Seconds after which what takes long is not repeated
BUDGET = 120.0
# The phase diagram: ranks (r, r, r), and measurements per degree of freedom
RANKS, PER_DOF = range(1, 7), (1.2, 1.4, 1.7, 2.0, 2.5, 3.0)


def run(names: Sequence[str] | None = None, repeats: int = REPEATS) -> Iterator[Row]:
    """Yield the rows as they are measured; medians of so many repeats."""
    with one_blas_thread():
        yield from machine_rows()
        for name in NAMES if names is None else names:
            yield WORKS[name](repeats)


def chosen(names: Sequence[str]) -> Sequence[str]:
    """Check the names of some yardsticks."""
    check_names(names, NAMES)
    return names


def steps_row(repeats: int = REPEATS, problems: int = 200, singles: int = 20) -> Row:
    """E1: CPU time of a Gauss-Newton step per problem, in a loop over single calls and a batch."""
    what = f"E1 Gauss-Newton, m = 36, per problem and step: loop / batch of {problems}"
    batch, loop = _problems(problems, 36), _singles(singles, 36)

    def fit(case: Case) -> Result:
        stop = ResidualBelow(1e-9) | MaxEpochs(20)
        return solve(Problem(case.A, case.y), RGN(), case.rank, stop=stop)

    actions: dict[str, Callable[[], list[Result]]] = {
        "loop": lambda: [fit(case) for case in loop],
        "batch": lambda: [fit(batch)],
    }

    def measured() -> Row:
        steps = {name: sum(np.sum(one.epochs) for one in fits()) for name, fits in actions.items()}
        times = side_by_side(actions, repeats)
        each = {name: took / float(steps[name]) for name, took in times.items()}
        detail = ", ".join(f"{name} {took.text(1e6, 'us')}" for name, took in each.items())
        return _row(what, each["loop"].median / each["batch"].median, ">= 25", detail)

    return _unless_refused(measured, what, ">= 25")


def verdicts_row(repeats: int = REPEATS, problems: int = 200) -> Row:
    """E2: CPU time of A1 at m = 28 to the verdict, single calls and a batch, and their success."""
    batch, loop = _problems(problems, 28), _singles(problems, 28)
    results: dict[str, list[Result]] = {}

    def keep(name: str, cases: Sequence[Case]) -> Callable[[], None]:
        def call() -> None:
            results[name] = [recover(case.A, case.y, case.rank) for case in cases]

        return call

    times = side_by_side({"loop": keep("loop", loop), "batch": keep("batch", [batch])}, repeats)
    recovered = {name: _recovered(results[name], batch.X_true) for name in times}
    called = {name: sum(np.sum(one.success) for one in made) for name, made in results.items()}
    detail = ", ".join(
        f"{name} {took.text(1, 's')}, {recovered[name]} recovered, {called[name]} called so"
        for name, took in times.items()
    )
    row = _row(
        f"E2 A1 at m = 28, {problems} problems to the verdict: loop / batch",
        times["loop"].median / times["batch"].median, ">= 15", detail,
    )  # fmt: skip
    same = recovered["batch"] >= recovered["loop"] - ROUNDING * problems
    return row if same else replace(row, met=False)


def starts_row(repeats: int = REPEATS, starts: int = 100) -> Row:
    """E3: passes of many starts of one problem of A3, one by one and as a batch that shares A.

    A start ends when it is at a local minimum, so that the longest has to read all rows alone.
    """
    del repeats  # passes are the same every time
    what = f"E3 passes of {starts} starts of one A3 problem: one by one / together"
    case = _yardstick(**CUBE, m=450).draw(0)
    first = random_tucker(case.A.shape, case.rank, seed=(SEED + 1, 0), trials=starts)

    def fit(y: Any, start: Any) -> Result:
        return solve(Problem(case.A, y), RGN(), case.rank, start=start)

    each = [fit(case.y, first.trial(k)).passes for k in range(starts)]
    target = f">= {SHARED * sum(each) / max(each):.3g}"

    def measured() -> Row:
        together = fit(np.broadcast_to(case.y, (starts, case.A.m)), first).passes
        detail = f"{sum(each):.0f} one by one, the longest {max(each):.1f}; {together:.1f} together"
        return _row(what, sum(each) / together, target, detail)

    return _unless_refused(measured, what, target)


def plan_row(
    repeats: int = REPEATS, shape: tuple[int, ...] = (30, 30, 30), rank: tuple[int, ...] = (3, 3, 3)
) -> Row:
    """E4: wall seconds of ``lowtucker plan``, with as many processes as there are cores."""
    workers = available_workers()
    took, made = _repeated(lambda: plan(shape, rank, workers=workers), repeats, time.perf_counter)
    detail = f"{took.text(1, 's')}, {workers} processes; m = {made.m}"
    return _row(f"E4 plan for {_text(shape)}, rank {rank}: seconds", took.median, "<= 10", detail)


def phase_row(
    repeats: int = REPEATS,
    shape: tuple[int, ...] = (10, 10, 10),
    ranks: Sequence[int] = RANKS,
    trials: int = 20,
) -> Row:
    """E5: CPU seconds of a phase diagram of the default solver, in one process."""

    def diagram() -> list[Any]:
        found = []
        for r in ranks:
            rank = (r,) * len(shape)
            dof = degrees_of_freedom(shape, rank)
            levels = [math.ceil(ratio * dof) for ratio in PER_DOF]
            found.append(
                phase_transition("gaussian", shape, rank, measurements=levels, trials=trials)
            )
        return found

    took, found = _repeated(diagram, repeats, time.process_time)
    cells = len(ranks) * len(PER_DOF)
    recovered = sum(int(one.recovered.sum()) for one in found)
    detail = f"{took.text(1, 's')}; {recovered} of {cells * trials} recovered"
    what = f"E5 phase diagram, {_text(shape)}, {cells} cells x {trials} trials: seconds"
    return _row(what, took.median, "<= 15", detail)


WORKS: Mapping[str, Callable[[int], Row]] = {
    "E1": steps_row,
    "E2": verdicts_row,
    "E3": starts_row,
    "E4": plan_row,
    "E5": phase_row,
}
NAMES = tuple(WORKS)


def _yardstick(**settings: Any) -> Recovery:
    return Recovery(
        name="E", trials=0, compared=0, slow=0, tuning=0, batched=True, **settings
    )  # fmt: skip


def _problems(count: int, m: int) -> Case:
    """Problems of A1 as a batch."""
    (batch,) = _yardstick(**SMALL, m=m).cases(count, SEED, batch=True)
    return batch


def _singles(count: int, m: int) -> list[Case]:
    """The same problems, one by one."""
    return list(_yardstick(**SMALL, m=m).cases(count, SEED, batch=False))


def _recovered(results: Sequence[Result], X_true: Any) -> int:
    """Count the problems with an error below the tolerance, of a batch or of single results."""
    truth = X_true.full()
    found = np.concatenate([np.reshape(one.X.full(), (-1, *X_true.shape)) for one in results])
    return sum(
        float(relative_error(X, Y)) <= TOL for X, Y in zip(found, truth, strict=True)
    )  # fmt: skip


def _repeated(
    action: Callable[[], Any], repeats: int, clock: Callable[[], float]
) -> tuple[Spread, Any]:
    """Seconds of a call, and its last result; fewer repeats if they take long."""
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < repeats and not (times and time.perf_counter() - begin > BUDGET):
        result, took = timed(action, clock)
        times.append(took)
    return Spread.of(times), result


def _unless_refused(measured: Callable[[], Row], what: str, target: str) -> Row:
    """Row of a measurement; without a number where the solver takes no batch."""
    try:
        return measured()
    except ValueError as error:
        return _row(what, math.nan, target, f"not possible: {error}")


def _row(what: str, ratio: float, target: str, detail: str) -> Row:
    return Row(what, ratio, target, holds(ratio, target), detail)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
