"""Simulated recoveries of random tensors, which phase transitions and plans are made of."""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lowtucker._array import as_integer, as_number, like, one_blas_thread, size, to_numpy
from lowtucker._array.errors import SlowOperatorWarning
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.metrics import relative_error
from lowtucker.operators import (
    MeasurementOperator,
    batch,
    entries,
    gaussian,
    rank_one,
    subsampled_transform,
)
from lowtucker.problem import Problem
from lowtucker.recovery.fit import Fit
from lowtucker.run.progress import Callback
from lowtucker.run.result import Result
from lowtucker.simulation.base import Columns, Experiment
from lowtucker.simulation.runner import Job, pending, results, run
from lowtucker.simulation.store import Store
from lowtucker.status import Status
from lowtucker.tensor import TuckerTensor, degrees_of_freedom, random_tucker
from lowtucker.tensor.random import gaussians
from lowtucker.theory.isometry import as_accepted
from lowtucker.theory.passes import PassesOfEach

__all__ = [
    "OPERATORS",
    "Level",
    "RandomRecoveries",
    "Report",
    "Simulation",
    "as_operator_name",
    "check_noise",
    "describe_operator",
    "draw_operator",
    "per_dof",
]

NumPyArray = np.ndarray[Any, Any]
Report = Callable[[int, int, str], None]

OPERATORS = ("gaussian", "rank-one", "entries", "dct")
# Processes that a call may start
MOST_WORKERS = 10_000
# Operators that store no matrix
LEAN = ("rank-one", "entries", "dct")
# Columns of numbers, one row for each trial
COLUMNS = ("error", "passes", "success")
# Numbers of a matrix, and entries of a tensor that is measured without one, above which a batch
# takes as long as single trials: with 20 trials 2 to 5 times faster for 150 entries, with 8 to 20
# 1.4 times for 2e5 numbers, 1.1 for 9e5, 0.8 for 1.4e6; without a matrix 1.2 for 27000 entries
LARGE_MATRIX, LARGE_TENSOR = 10**6, 30_000
# Bytes of a batch, and the Gram matrices of a trial: 16 starts, and what replaces them (measured:
# 610 MB for 50 trials of 136 degrees of freedom, 118 MB of which is one for each start)
MEMORY, GRAMS = 2.56e8, 64


@dataclass(frozen=True)
class Level:
    """A number of measurements and their source: the name of an operator, or a hash of it."""

    m: int
    source: str

    def __str__(self) -> str:
        return f"m{self.m}"


@dataclass(frozen=True)
class RandomRecoveries(Experiment):
    """Random tensors, measured by an operator and recovered.

    The fingerprint of a level contains its ``source`` instead of the operator, because the
    ``repr`` of an operator does not identify it.
    """

    operator: Any = field(repr=False)
    levels: tuple[Level, ...] = field(repr=False)
    shape: tuple[int, ...]
    rank: tuple[int, ...]
    solver: Any
    noise: float
    tol: float
    max_epochs: int = 500
    dtype: str = "float64"  # of Gaussian rows
    name: str = "trials"

    def at(self, measurements: Sequence[int]) -> RandomRecoveries:
        """Return the experiment at these numbers of measurements."""
        levels = [Level(m, _source(self.operator, self.shape, m)) for m in measurements]
        return replace(self, levels=tuple(levels))

    def cells(self) -> Sequence[Level]:
        """Return one cell for each number of measurements."""
        return self.levels

    def batch(self, cell: Level) -> int:
        """Return the number of trials that are one batch of problems; 1 where that is no gain.

        With noise it is 1: the noise level differs between trials, and a fit takes one.
        """
        lean = isinstance(self.operator, str) and self.operator in LEAN
        N = size(self.shape)
        matrix = 0 if lean else cell.m * N
        if self.noise or matrix > LARGE_MATRIX or (lean and N > LARGE_TENSOR):
            return 1
        numbers = matrix + GRAMS * degrees_of_freedom(self.shape, self.rank) ** 2
        return max(1, min(self.stack, int(MEMORY / (8 * numbers))))

    def compute(self, cell: Level, first: int, count: int, seed: int) -> Columns:
        """Return relative error, passes and success of every trial."""
        if self.batch(cell) > 1 and count > 1:
            made = self.together(cell.m, (seed, first), count)
        else:
            made = [self.trial(cell.m, (seed, k)) for k in range(first, first + count)]
        columns = dict(zip(COLUMNS, np.array(made, dtype=float).T, strict=True))
        return columns | {"error": np.nan_to_num(columns["error"], nan=np.inf)}

    def work(self, cell: Level) -> float:
        """Return m: the more measurements, the longer a trial takes."""
        return float(cell.m)

    def recovered(self, error: NumPyArray) -> NumPyArray:
        """Return which errors count as recovery: at most ``tol``, or the noise level."""
        return np.asarray(error <= max(self.tol, self.noise))

    def trial(self, m: int, seed: Seed) -> tuple[float, float, bool]:
        """Return error, passes and success of one trial, a pure function of the arguments."""
        A = draw_operator(self.operator, self.shape, m, seed, self.dtype)
        X_true = self._truth(A, seed)
        y, std = _measured(A, X_true, self.noise, seed)
        result = self._solved(Problem(A, y), std, seed)
        return float(relative_error(result.X, X_true)), float(result.passes), result.success

    def together(self, m: int, seed: tuple[int, int], count: int) -> list[tuple[Any, ...]]:
        """Return what :meth:`trial` does for so many trials from ``seed`` on, to rounding.

        They are one batch of problems. Only ``passes`` may be larger: up to one for each solver, as
        trials of a batch end with an epoch, and where trials begin a start in the same epoch.
        """
        seeds = [(seed[0], seed[1] + k) for k in range(count)]
        if self.operator == "gaussian":  # matrices in one array
            A: MeasurementOperator = gaussian(self.shape, m, seed, trials=count, dtype=self.dtype)
        else:
            A = batch([draw_operator(self.operator, self.shape, m, one) for one in seeds])
        truths = [self._truth(A, one) for one in seeds]
        X_true = TuckerTensor.concat([X.batched() for X in truths])
        passes = PassesOfEach()
        result = self._solved(Problem(A, A.forward(X_true)), None, seed, passes)
        errors = to_numpy(relative_error(result.X, X_true))
        return list(zip(errors, passes.of(result, seed[1]), result.success, strict=True))

    def _truth(self, A: MeasurementOperator, seed: Seed) -> TuckerTensor:
        return as_accepted(A, random_tucker(self.shape, self.rank, seed, dtype=A.dtype or float))

    def _solved(
        self, problem: Problem, std: float | None, seed: Seed, *callbacks: Callback
    ) -> Result:
        fit = Fit(
            self.solver,
            0.1 * self.tol,
            self.max_epochs,
            None,
            std,
            None,
            seed,
            callbacks,
            "squared",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SlowOperatorWarning)
            result = fit(problem, self.rank)
        if Status.INTERRUPTED in np.atleast_1d(result.status):  # partial: must not be stored
            raise KeyboardInterrupt
        return result


@dataclass(frozen=True)
class Simulation:
    """Runs the trials of experiments, stores them and reports progress."""

    store: Store
    seed: int
    workers: int
    report: Report

    @classmethod
    @contextmanager
    def opened(cls, *, seed: Any, folder: Any, workers: Any, progress: Any) -> Iterator[Simulation]:
        """Check the settings, and open the store and the progress bar."""
        seed, workers = _check_seed(seed), as_integer(workers, "workers", high=MOST_WORKERS)
        with _stored_in(folder) as store, _reporting(progress) as report:
            yield cls(store, seed, workers, report)

    def run(self, experiment: RandomRecoveries, trials: int) -> dict[int, Columns]:
        """Compute the missing trials of all levels, and return the columns for each m."""
        if self.workers > 1:
            _check_pickles(experiment.operator)
        jobs = self.pending(experiment, trials)
        total = len(experiment.levels) * trials
        report = _counting(self.report, total - sum(job.count for job in jobs), total)
        run(jobs, self.store, workers=self.workers, report=report)
        found = results(experiment, self.store, self.seed, trials)
        assert found is not None
        return {level.m: found[level] for level in experiment.levels}

    def pending(self, experiment: RandomRecoveries, trials: int) -> list[Job]:
        """Return the trials of an experiment that are not stored."""
        return pending([experiment], self.store, self.seed, trials)

    def stored(self, experiment: RandomRecoveries, count: int) -> Columns:
        """Return the first ``count`` trials of an experiment with one level."""
        (level,) = experiment.levels
        found = self.store.get(experiment, level, self.seed, count) if count else None
        return found or dict.fromkeys(COLUMNS, np.zeros(0))


def draw_operator(
    operator: Any, shape: tuple[int, ...], m: int, seed: Seed, dtype: str = "float64"
) -> MeasurementOperator:
    """Draw the operator of one trial, with m rows; ``dtype`` is that of Gaussian rows."""
    rng = generator(seed, Stream.OPERATOR)
    if isinstance(operator, MeasurementOperator):
        if m == operator.m:
            return operator
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SlowOperatorWarning)
            return operator.restrict(np.sort(rng.choice(operator.m, m, replace=False)))
    if not isinstance(operator, str):
        return _made(operator, shape, m, int(rng.integers(2**31)))
    if operator == "gaussian":
        return gaussian(shape, m, seed, dtype=dtype)
    if operator == "rank-one":
        return rank_one([rng.standard_normal((m, n)) for n in shape])
    if operator == "dct":
        return subsampled_transform(shape, m, seed=seed)
    flat = rng.choice(size(shape), m, replace=False)
    return entries(shape, np.stack(np.unravel_index(flat, shape), axis=1))


def _made(
    operator: Callable[[int, int], Any], shape: tuple[int, ...], m: int, seed: int
) -> MeasurementOperator:
    """Call ``operator(m, seed)`` and check what it returns."""
    A = operator(m, seed)
    if not isinstance(A, MeasurementOperator):
        raise TypeError(
            f"operator(m, seed) must return a MeasurementOperator, got {type(A).__name__}. "
            "Try returning lowtucker.as_operator(A, shape)."
        )
    if A.shape != shape or A.m != m or A.batch_shape:
        raise ValueError(
            f"operator({m}, seed) must return an operator with {m} measurements of tensors of "
            f"shape {shape}, got {A!r}."
        )
    return A


def _source(operator: Any, shape: tuple[int, ...], m: int) -> str:
    """Identify what measures at a level: a name, or a hash of the measurements of a tensor."""
    if isinstance(operator, str):
        return operator
    whole = isinstance(operator, MeasurementOperator)
    A = operator if whole else _made(operator, shape, m, 0)
    probe = generator(0, Stream.PROBE).standard_normal(shape)
    with one_blas_thread():  # the same order of summation in every run
        y = to_numpy(A.forward(like(probe, A.prototype, A.dtype)))
    head = repr((type(A).__name__, whole, y.dtype.str)).encode()
    return hashlib.sha256(head + y.tobytes()).hexdigest()[:16]


def _measured(
    A: MeasurementOperator, X_true: TuckerTensor, noise: float, seed: Seed
) -> tuple[Any, float | None]:
    """Return noisy measurements, and the standard deviation of the noise for the solver."""
    y = A.forward(X_true)
    if not noise:
        return y, None
    clean = to_numpy(y)
    std = noise * float(np.linalg.norm(clean)) / math.sqrt(A.m)
    rng = generator(seed, Stream.PROBE)
    noisy = clean + (std * gaussians(rng, clean.shape, clean.dtype)).astype(clean.dtype)
    # noise may cancel a few measurements almost entirely; solvers reject a std above the level
    level = float(np.linalg.norm(noisy)) / math.sqrt(A.m)
    return like(noisy, y), min(std, 0.9 * level)


def per_dof(ratio: float, dof: int) -> int:
    """Return the least m with ``m / dof >= ratio``, safe from rounding: 1.1 times 50 is 55."""
    return math.ceil(ratio * dof - 1e-9)


def as_operator_name(operator: Any, advice: str = "") -> str:
    """Check the name of an operator; ``advice`` ends the error message."""
    if not isinstance(operator, str) or operator not in OPERATORS:
        raise ValueError(
            f"operator must be one of {', '.join(OPERATORS)}, got {describe_operator(operator)}."
            f"{advice and ' '}{advice}"
        )
    return operator


def describe_operator(operator: Any) -> str:
    """Describe an ``operator`` argument on one line, for messages."""
    return f"{operator!r:.80}" if isinstance(operator, str) else f"a {type(operator).__name__}"


def check_noise(noise: Any) -> float:
    """Check a relative noise level."""
    number = as_number(noise, "noise", 0)
    if number >= 1:
        raise ValueError(
            f"noise must be below 1, got {number:g}: it is relative to the measurements, and a "
            "level of 1 is as large as the signal."
        )
    return number


def _check_seed(seed: Any) -> int:
    """Check a seed without a trial number: the trials of the simulation are numbered within it."""
    number, trial = as_seed(seed)
    if trial or isinstance(seed, tuple):
        raise TypeError(f"seed must be an integer, got {seed!r}: trials are numbered from 0.")
    return number


def _check_pickles(operator: Any) -> None:
    try:
        pickle.dumps(operator)
    except Exception as error:  # pickling runs arbitrary code
        raise TypeError(
            f"operator cannot be sent to other processes ({error}). Try workers=1, or a function "
            "defined at the top of a module instead of a lambda."
        ) from error


@contextmanager
def _stored_in(folder: str | os.PathLike[str] | None) -> Iterator[Store]:
    """Open a store in a folder, by default a temporary one."""
    if folder is not None:
        yield Store(_as_folder(folder))
        return
    with tempfile.TemporaryDirectory(prefix="lowtucker-") as temporary:
        yield Store(Path(temporary))


def _as_folder(folder: Any) -> Path:
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder must be a path or None, got {folder!r}.")
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise ValueError(f"folder {path} is a file. Give the name of a new or existing folder.")
    return path


def _counting(report: Report, done: int, total: int) -> Callable[[Job], None]:
    """Return a report for the runner that counts finished trials."""
    count = done

    def count_job(job: Job) -> None:
        nonlocal count
        for _ in range(job.count):
            count += 1
            report(count, total, f"m = {job.cell.m}")

    return count_job


@contextmanager
def _reporting(progress: Any) -> Iterator[Report]:
    """Turn the ``progress`` argument into a function: the caller's, a progress bar, or a no-op."""
    if progress is None or progress is False:
        yield lambda done, total, text: None
    elif progress is not True:
        if not callable(progress):
            raise TypeError(
                f"progress must be a callable (done, total, text), True or None, got {progress!r}."
            )
        yield progress
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f}/"
                   "{task.total:.0f} trials"), TimeElapsedColumn())  # fmt: skip
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("trials", total=1)
            yield lambda done, total, text: bar.update(
                task, completed=done, total=total, description=text
            )
