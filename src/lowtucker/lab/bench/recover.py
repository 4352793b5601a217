"""Compare ``recover`` with other methods on the yardsticks: ``lowtucker bench recover``."""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker.lab.bench.methods import COMPARATORS, Case, IHTMethod, Method, Outcome, best_step
from lowtucker.lab.bench.timing import (
    Spread,
    all_met,
    holds,
    machine,
    peak_memory,
    target_text,
    timed,
)
from lowtucker.lab.bench.yardsticks import SEED, TUNING, Recovery, Yardstick

__all__ = ["DEFAULT", "PHASES", "Job", "Row", "jobs", "measure", "phase_plot", "run", "tune"]

# Name of the default solver in the table
DEFAULT = "auto"
# Rows measured at a time, if not timed
WORKERS = min(2, os.cpu_count() or 1)
# Columns with targets, and their names in the table
LABELS = {"value": "", "passes_to_tol": "passes", "time": "time"}
# Tuned methods, and the share of their time that the default solver may take on B1; ratios on the
# others are without a target
RATIOS, COMPARED = {"TIHT": "<= 0.2", "StoTIHT": "<= 0.333"}, ("B1",)
# The plot: panels, and a line per method
PHASES = {"A1": "5x5x6, rank (1, 2, 2)", "A2": "15x15x15, rank (2, 2, 2)"}
STYLES = {DEFAULT: "C3o-", "RGN": "C1s-", "NTIHT": "C0^-", "TIHT": "C0v:", "StoTIHT": "C2d--",
          "TensorLy": "C7x-."}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One method on one yardstick.

    Parameters
    ----------
    work, method : str
    m : int
    m_per_dof : float
        Measurements per degree of freedom.
    trials : int
    measure : str
        Meaning of ``value``: a share of the trials ("recovered", "rank found"), a count
        ("worse"), or else a median over the trials.
    value : float
    passes : float
        Passes over A of the whole run, as counted by ``Result.passes``; of TIHT and StoTIHT
        without those that only compute a residual. The median.
    passes_to_tol : float
        Passes until the error was small enough; the median. NaN if not reached, not known, or if
        the row is not timed.
    time : float
        CPU time of the whole call (TIHT and StoTIHT: of the iterations alone) in units of a
        product ``A @ x``; the median.
    time_least, time_greatest : float
        Spread of the time.
    memory : float
        Peak memory of the first call in addition to the problem, in MB.
    target : str
    met : bool or None
        None if there is no target.
    note : str
    """

    work: str
    m: int
    m_per_dof: float
    method: str
    trials: int
    measure: str
    value: float
    passes: float
    passes_to_tol: float
    time: float
    time_least: float
    time_greatest: float
    memory: float
    target: str
    met: bool | None
    note: str


class Job(NamedTuple):
    """Settings of a row; the method None is the default solver."""

    yardstick: Yardstick
    method: Method | None
    trials: int


def run(yardsticks: Sequence[Yardstick], trials: int | None = None) -> Iterator[Row]:
    """Yield rows as they are measured, in other processes with one BLAS thread.

    Timed rows come first, each alone in a new process; then the others, two at a time.

    Parameters
    ----------
    yardsticks : sequence of Yardstick
    trials : int, optional
        Trials of the default solver, and the maximum for other methods.
    """
    work = [job for yardstick in yardsticks for job in jobs(yardstick, trials)]
    timed = [job for job in work if job.yardstick.timed]
    others = [job for job in work if not job.yardstick.timed]
    for some, workers, tasks in ((timed, 1, 1), (others, WORKERS, None)):
        if not some:
            continue
        with (
            multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=tasks) as pool,
            ThreadPoolExecutor(workers) as threads,
        ):
            rows = []
            for row in threads.map(partial(_in_processes, pool), some):
                rows.append(row)
                yield row
        yield from ratios(rows)


def ratios(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the times of the default solver in units of those of TIHT and StoTIHT, where known."""
    times = {(row.work, row.m, row.method): row.time for row in rows}
    for row in rows:
        for method, target in RATIOS.items():
            theirs = times.get((row.work, row.m, method), math.nan)
            if row.method == DEFAULT and not math.isnan(row.time / theirs):
                ratio = row.time / theirs
                target = target if row.work in COMPARED else ""
                yield replace(
                    row, method=f"{DEFAULT} / {method}", measure="time", value=ratio,
                    passes=math.nan, passes_to_tol=math.nan, time=math.nan, time_least=math.nan,
                    time_greatest=math.nan, memory=math.nan, target=target,
                    met=holds(ratio, target) if target else None, note="",
                )  # fmt: skip


def jobs(yardstick: Yardstick, trials: int | None = None) -> Iterator[Job]:
    """Yield the jobs of a yardstick, the default solver first."""
    most = yardstick.trials if trials is None else trials
    yield Job(yardstick, None, most)
    if isinstance(yardstick, Recovery):
        for method in COMPARATORS:
            enough = min(most, yardstick.slow if method.slow else yardstick.compared)
            if enough:
                yield Job(yardstick, method, enough)


def _in_processes(pool: Any, job: Job) -> Row:
    """Tune, then measure: if memory is measured, in a new process."""
    if isinstance(job.method, IHTMethod) and job.method.steps:
        job = job._replace(method=pool.apply(tune, (job.yardstick, job.method)))
    row: Row = pool.apply(measure, job)
    return row


def tune(yardstick: Recovery, method: IHTMethod) -> IHTMethod:
    """Return the method with its best step, chosen on separate problems."""
    with one_blas_thread():
        cases = list(yardstick.cases(yardstick.tuning, TUNING, batch=True))
        return method.with_step(best_step(method, cases, yardstick.tol))


def measure(yardstick: Yardstick, method: Method | None, trials: int) -> Row:
    """Return the row of a method on some trials."""
    action: Callable[[Case], Outcome] = yardstick.run
    cases: Iterable[Case] = (yardstick.draw(k) for k in range(trials))
    if method is not None:
        assert isinstance(yardstick, Recovery)
        action = partial(method.run, tol=yardstick.tol)
        cases = yardstick.cases(trials, SEED, batch=method.supports_batch)
    with one_blas_thread():
        if yardstick.timed:  # exclude one-time costs of the process
            action(replace(yardstick, shape=(6, 6, 6), rank=(1, 1, 1), m=60).draw(0))
            action = partial(_weighed, action)
        outcomes = [action(case) for case in cases]
        here = machine() if yardstick.timed and method is None else None  # after the peak memory
    columns = {
        name: np.concatenate([np.atleast_1d(getattr(outcome, name)) for outcome in outcomes])
        for name in Outcome._fields
    }
    value, note = yardstick.summary(columns["score"])
    if method is not None:
        note = method.note
    elif here is not None:
        note = f"worst: passes {columns['passes_to_tol'].max():.3g}; {here}"
    took = Spread.of(columns["time"].tolist())
    numbers = {
        "value": value,
        "memory": float(columns["memory"][0]),
        "time_least": took.least,
        "time_greatest": took.greatest,
    }
    for name in ("passes", "passes_to_tol", "time"):
        numbers[name] = float(np.median(columns[name]))
    if not yardstick.timed:
        numbers["passes_to_tol"] = math.nan
    targets = yardstick.targets if method is None else {}
    if here is not None:
        targets = yardstick.targets_at(here.bandwidth)
    return Row(
        work=yardstick.name,
        m=yardstick.m,
        m_per_dof=yardstick.m_per_dof,
        method=DEFAULT if method is None else method.name,
        trials=trials,
        measure=yardstick.measure,
        **numbers,
        target=target_text(targets, LABELS),
        met=all_met(numbers, targets),
        note=note,
    )


def _weighed(action: Callable[[Case], Outcome], case: Case) -> Outcome:
    """Run between two products ``A @ x``, and record the peak memory."""
    x = case.X_true.full().reshape(-1)

    def product() -> float:
        return timed(lambda: case.A.matrix @ x, time.process_time)[1]

    before, peak = product(), peak_memory()
    outcome = action(case)
    memory, after = peak_memory() - peak, product()
    return outcome._replace(time=outcome.seconds / ((before + after) / 2), memory=memory)


def phase_plot(rows: Iterable[Row]) -> Any:
    """Plot the share recovered against measurements per degree of freedom for A1 and A2."""
    from lowtucker._plotting import new_figure

    shown = [row for row in rows if row.work in PHASES]
    if not shown:
        raise ValueError(f"Nothing to plot: the plot shows {' and '.join(PHASES)}.")
    works = list(dict.fromkeys(row.work for row in shown))
    figure, axes = new_figure(1, len(works), height=4.0)
    for panel, work in zip(np.atleast_1d(axes), works, strict=True):
        for method, style in STYLES.items():
            line = [row for row in shown if (row.work, row.method) == (work, method)]
            panel.plot(
                [row.m_per_dof for row in line], [100 * row.value for row in line],
                style, label=method, markersize=5, linewidth=2.5 if method == DEFAULT else 1.2,
            )  # fmt: skip
        panel.set_title(f"{work}: {PHASES[work]}", fontsize=11)
        panel.set_xlabel("measurements per degree of freedom")
        panel.set_ylabel("recovered, %")
        panel.grid(alpha=0.3)
    panel.legend(loc="lower right", fontsize=9)
    return figure
