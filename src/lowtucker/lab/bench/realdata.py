"""Real data, no rank given: ``bench realdata``."""

from __future__ import annotations

import csv
import datetime
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker.lab.bench.datasets import Completion, Sensing, Task, missing_data, tasks
from lowtucker.lab.bench.imputers import IMPUTERS, Imputer
from lowtucker.lab.bench.timing import all_met, check_names, holds, target_text, timed
from lowtucker.metrics import relative_error
from lowtucker.operators import to_scipy
from lowtucker.recovery import complete, recover
from lowtucker.run.result import Result
from lowtucker.solvers import TIHT

__all__ = ["DEFAULT", "NAMES", "Row", "chosen", "read", "run", "updated", "warm_up"]

NumPyArray = np.ndarray[Any, Any]
NAMES = (*(f"D{k}" for k in range(9)), "N1", "N2", "N3")
# Name of the library's own row
DEFAULT = "lowtucker"
# Methods for measurements that are no entries
OTHERS = (HARD, LINEAR) = ("TIHT", "least squares")
LABELS = {"error": "error", "seconds": "s", "passes": "passes"}
# Iterations of least squares without a model of the tensor
LSQR = 100


@dataclass(frozen=True)
class Row:
    """Outcome of a method on some data.

    Parameters
    ----------
    work : str
        Row of the yardsticks, such as D1.
    data : str
        Data, and what is hidden or measured.
    method : str
    measure : str
        How errors are counted: "RMSE" or "relative". On hidden entries; of the whole tensor where
        the measurements are no entries.
    error : float
        NaN if the data are not available.
    seconds : float
        CPU seconds, choice of settings included.
    passes : float
        Passes over the measurements; NaN for other methods.
    target : str
    met : bool or None
        None if there is no target.
    published : str
        Numbers of others, quoted and not run here.
    note : str
        Settings that were chosen; why a row was skipped.
    measured : str
        Date of the run.
    """

    work: str
    data: str
    method: str
    measure: str
    error: float
    seconds: float
    passes: float
    target: str
    met: bool | None
    published: str
    note: str
    measured: str


class Outcome(NamedTuple):
    """Error of a method, its CPU seconds and passes, and the settings it chose."""

    error: float
    seconds: float
    passes: float = math.nan
    note: str = ""


Trial = Callable[[], Outcome]


def run(works: Sequence[Task], folder: Path, quick: bool = False) -> Iterator[Row]:
    """Yield rows as they are measured, with one BLAS thread.

    Parameters
    ----------
    works : sequence of Task
    folder : Path
        Folder of the data that come with no package.
    quick : bool
        Only the library's own calls, without other methods.
    """
    warm_up(() if quick else IMPUTERS)
    for work in works:
        reason = missing_data(work.source, folder)
        if reason:
            yield _row(work, DEFAULT, Outcome(math.nan, math.nan, note=f"skipped: {reason}"))
            continue
        for method, trial in _trials(work, folder).items():
            if method == DEFAULT or not quick:
                with one_blas_thread(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    outcome = trial()
                yield _row(work, method, outcome)


def chosen(names: Sequence[str]) -> list[Task]:
    """Return the tasks of some names, in the order of the table."""
    check_names(names, NAMES)
    found = [one for one in tasks() if one.name in names]
    return sorted(found, key=lambda one: NAMES.index(one.name))


def read(file: Path) -> list[Row]:
    """Read the rows of an earlier run; their numbers remain text."""
    names = [one.name for one in fields(Row)]
    with file.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        if reader.fieldnames != names:
            raise ValueError(
                f"{file} has the columns {reader.fieldnames}, expected those of this benchmark, "
                f"{names}. Write a new file, without --update."
            )
        return [Row(**line) for line in reader]  # type: ignore[arg-type]


def updated(earlier: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Return the rows of an earlier run, with those that were measured again replaced.

    In the order of the table; rows of data or methods that no longer exist are dropped.
    """
    found = {_key(row): row for row in (*earlier, *rows)}
    places = {(one.name, one.what): place for place, one in enumerate(chosen(NAMES))}
    methods = [DEFAULT, *(one.name for one in IMPUTERS), *OTHERS]
    kept = [row for row in found.values() if row.method in methods and _key(row)[:2] in places]
    return sorted(kept, key=lambda row: (places[_key(row)[:2]], methods.index(row.method)))


def _key(row: Row) -> tuple[str, str, str]:
    return row.work, row.data, row.method


def _row(work: Any, method: str, outcome: Outcome) -> Row:
    """Row of an outcome; targets belong to the library's own."""
    ours = method == DEFAULT
    values = {name: getattr(outcome, name) for name in LABELS}
    counts = ours and not math.isnan(outcome.error)
    goals = work.targets.items() if counts else ()
    missed = [LABELS[name] for name, target in goals if not holds(values[name], target)]
    notes = [outcome.note, f"missed: {', '.join(missed)}" if missed else ""]
    return Row(
        work=work.name,
        data=work.what,
        method=method,
        measure=work.measure,
        **values,
        target=target_text(work.targets, LABELS) if ours else "",
        met=all_met(values, work.targets) if counts else None,
        published=work.published if ours else "",
        note="; ".join(filter(None, notes)),
        measured=datetime.date.today().isoformat(),
    )


def _trials(work: Task, folder: Path) -> dict[str, Trial]:
    """Return what to run on a task, by method."""
    if isinstance(work, Completion):
        return _completions(work, folder)
    assert isinstance(work, Sensing)
    return _recoveries(work, folder)


def _completions(work: Completion, folder: Path) -> dict[str, Trial]:
    holes = work.holes(folder)

    def default() -> Outcome:
        result, seconds = timed(lambda: complete(holes.array), time.process_time)
        return Outcome(work.error(result.X.full(), holes), seconds, result.passes, _note(result))

    def other(fill: Any) -> Outcome:
        filled, seconds = timed(lambda: fill(holes), time.process_time)
        return Outcome(work.error(filled.X, holes), seconds, note=filled.label)

    return {DEFAULT: default} | {one.name: partial(other, one) for one in IMPUTERS}


def _recoveries(work: Sensing, folder: Path) -> dict[str, Trial]:
    A, y, truth = work.problem(folder)

    def of(call: Callable[[], Result], note: str = "") -> Outcome:
        result, seconds = timed(call, time.process_time)
        error = float(relative_error(result.X, truth))
        return Outcome(error, seconds, result.passes, note or _note(result))

    def least_squares() -> Outcome:
        from scipy.sparse.linalg import lsqr

        solve = partial(lsqr, to_scipy(A), y, iter_lim=LSQR)
        found, seconds = timed(solve, time.process_time)
        error = float(relative_error(found[0].reshape(truth.shape), truth))
        return Outcome(error, seconds, note=f"minimum norm, {found[2]} iterations of LSQR")

    def hard() -> Result:
        return recover(A, y, work.rank, solver=TIHT(step="auto"))

    return {
        DEFAULT: lambda: of(lambda: recover(A, y)),
        HARD: lambda: of(hard, f"rank {work.rank}, chosen with the data at hand"),
        LINEAR: least_squares,
    }


def _note(result: Result) -> str:
    """What was chosen without a rank, and the error that held-out samples predict."""
    parts = [result.status.name]
    if result.rank is not None:
        parts.append(f"rank {result.rank}")
    if result.held_out is not None:
        parts.append(f"held out {result.held_out:.3g} (relative)")
    return ", ".join(parts)


def warm_up(imputers: Sequence[Imputer]) -> None:
    """Run every method on a small tensor, to exclude imports and other one-time costs."""
    from lowtucker.lab.bench.datasets import Holes

    truth = np.random.default_rng(0).random((7, 6, 8))
    hidden = np.random.default_rng(1).random(truth.shape) < 0.2
    holes = Holes(truth, hidden, np.arange(truth.size).reshape(truth.shape))
    complete(holes.array)
    for imputer in imputers:
        imputer(holes)
