"""How many measurements recovery needs: measured, on random tensors."""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lowtucker._array import as_integer, as_number, as_shape, like, one_blas_thread, size, to_numpy
from lowtucker._array.errors import SlowOperatorWarning
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.metrics import relative_error
from lowtucker.operators import (
    MeasurementOperator,
    entries,
    gaussian,
    rank_one,
    subsampled_transform,
)
from lowtucker.problem import Problem
from lowtucker.recovery.fit import Fit
from lowtucker.simulation.base import Columns, Experiment
from lowtucker.simulation.runner import Job, pending, results, run
from lowtucker.simulation.store import Store
from lowtucker.solvers import as_solver
from lowtucker.status import Status
from lowtucker.tensor import TuckerTensor, random_tucker
from lowtucker.tensor.random import gaussians
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom

__all__ = [
    "COLUMNS",
    "NAMES",
    "Level",
    "PhaseTransition",
    "RandomRecoveries",
    "Report",
    "as_told",
    "as_whole_seed",
    "check_noise",
    "check_rate",
    "drawn",
    "kept_in",
    "per_dof",
    "phase_transition",
    "progressing",
    "table",
    "wilson",
]

NumPyArray = np.ndarray[Any, Any]
Report = Callable[[int, int, str], None]

NAMES = ("gaussian", "rank-one", "entries", "dct")
# What is kept of a trial
COLUMNS = ("error", "passes", "success")
# Of these there are only as many as the tensor has entries
LIMITED = ("entries", "dct")
# Measurements per degree of freedom that are tried
RATIOS = (1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
# Quantile of the normal distribution for intervals of 95 %
Z95 = 1.959963984540054


def wilson(recovered: Any, trials: Any) -> tuple[NumPyArray, NumPyArray]:
    r"""Wilson's interval for a share: where the true rate is, with a confidence of 95 %.

    .. math:: \frac{1}{1 + z^2/n} \Big( \hat p + \frac{z^2}{2n}
        \pm z \sqrt{\frac{\hat p (1 - \hat p)}{n} + \frac{z^2}{4 n^2}} \Big)

    Examples
    --------
    >>> low, high = wilson(19, 20)
    >>> print(f"{low:.3f} {high:.3f}")
    0.764 0.991
    """
    n = np.asarray(trials, dtype=float)
    p = np.asarray(recovered) / n
    centre = p + Z95**2 / (2 * n)
    half = Z95 * np.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))
    scale = 1 + Z95**2 / n
    return np.clip((centre - half) / scale, 0, 1), np.clip((centre + half) / scale, 0, 1)


@dataclass(frozen=True, eq=False)
class PhaseTransition:
    """Share of random tensors that are recovered, for several numbers of measurements.

    Attributes
    ----------
    shape, rank : tuple of int
    dof : int
        Degrees of freedom: the unit of m.
    m : array of int
        Numbers of measurements, from the smallest.
    trials, recovered : arrays of int
        Tensors that were tried at each m, and those that were recovered.
    error, passes : arrays of float
        Medians over the trials of the relative error, and of the readings of all the rows.
    called_success : array of int
        Those of the recovered whose runs said so, without knowing X: ``result.success``.
    """

    shape: tuple[int, ...]
    rank: tuple[int, ...]
    dof: int
    m: NumPyArray
    trials: NumPyArray
    recovered: NumPyArray
    error: NumPyArray
    passes: NumPyArray
    called_success: NumPyArray

    @property
    def rate(self) -> NumPyArray:
        """Observed share, one for each m."""
        return np.asarray(self.recovered / self.trials)

    @property
    def interval(self) -> NumPyArray:
        """Wilson's intervals of 95 % for the rate, shape (levels, 2)."""
        return np.stack(wilson(self.recovered, self.trials), axis=1)

    def suggest(self, rate: float = 0.95) -> int | None:
        """Smallest measured m from which on every larger one has at least that rate.

        It is the observed rate that counts; :attr:`interval` says what that is worth. None where
        the largest m does not reach it.
        """
        reached = self.rate >= check_rate(rate) - 1e-12
        below = np.flatnonzero(~reached)
        first = below[-1] + 1 if len(below) else 0
        return int(self.m[first]) if first < len(self.m) else None

    def rows(self) -> list[dict[str, Any]]:
        """Table as a list of rows, for ``csv.DictWriter`` or ``pandas.DataFrame``."""
        columns = {
            "m": self.m,
            "m_over_dof": self.m / self.dof,
            "trials": self.trials,
            "recovered": self.recovered,
            "rate": self.rate,
            "rate_low": self.interval[:, 0],
            "rate_high": self.interval[:, 1],
            "median_error": self.error,
            "median_passes": self.passes,
            "called_success": self.called_success,
        }
        return [{name: x[i].item() for name, x in columns.items()} for i in range(len(self.m))]

    def plot(self, ax: Any = None) -> Any:
        """Rate against m / dof, with the intervals; returns the Matplotlib axes."""
        from lowtucker._plotting import new_axes

        ax = new_axes() if ax is None else ax
        bars = np.abs(self.interval.T - self.rate)
        ax.errorbar(self.m / self.dof, self.rate, yerr=bars, fmt="o-", markersize=4, capsize=3)
        ax.set_xlabel(f"measurements per degree of freedom, m / {self.dof}")
        ax.set_ylabel("share recovered")
        ax.set_ylim(-0.03, 1.03)
        ax.grid(alpha=0.3)
        return ax

    def __repr__(self) -> str:
        head = f"PhaseTransition: shape {self.shape}, rank {self.rank}, dof {self.dof}"
        lines = ["       m   m/dof   recovered   rate (95 %)      error    passes"]
        for row in self.rows():
            count = f"{row['recovered']}/{row['trials']}"
            span = f"({row['rate_low']:.2f}-{row['rate_high']:.2f})"
            lines.append(
                f"{row['m']:8d} {row['m_over_dof']:7.2f}   {count:>9}   {row['rate']:4.2f} {span} "
                f"{row['median_error']:8.1e} {row['median_passes']:9.1f}"
            )
        return "\n".join([head, *lines])


@dataclass(frozen=True)
class Level:
    """A number of measurements, and what measures: a name, or a hash of what it measures."""

    m: int
    source: str

    def __str__(self) -> str:
        return f"m{self.m}"


@dataclass(frozen=True)
class RandomRecoveries(Experiment):
    """Random tensors, measured by an operator and recovered.

    A level is told by its own ``source`` and not by the operator, of which ``repr`` says too little
    for a fingerprint.
    """

    stack: ClassVar[int] = 1  # every trial is kept as soon as it is done

    operator: Any = field(repr=False)
    levels: tuple[Level, ...] = field(repr=False)
    shape: tuple[int, ...]
    rank: tuple[int, ...]
    solver: Any
    noise: float
    tol: float
    max_epochs: int = 500
    name: str = "trials"

    def cells(self) -> Sequence[Level]:
        """One for each number of measurements."""
        return self.levels

    def compute(self, cell: Level, first: int, count: int, seed: int) -> Columns:
        """Relative error of X, passes and verdict of every trial."""
        made = [self.trial(cell.m, (seed, k)) for k in range(first, first + count)]
        columns = dict(zip(COLUMNS, np.array(made, dtype=float).T, strict=True))
        return columns | {"error": np.nan_to_num(columns["error"], nan=np.inf)}

    def work(self, cell: Level) -> float:
        """Many measurements take longer to read, few of them longer to fit."""
        return float(cell.m)

    def recovered(self, error: NumPyArray) -> NumPyArray:
        """Which errors are small enough: at most ``tol``, or the noise."""
        return np.asarray(error <= max(self.tol, self.noise))

    def trial(self, m: int, seed: Seed) -> tuple[float, float, bool]:
        """Error, passes and verdict of one trial, a function of its arguments."""
        A = drawn(self.operator, self.shape, m, seed)
        X_true = _on(random_tucker(self.shape, self.rank, seed, dtype=A.dtype or float), A)
        y, std = _measured(A, X_true, self.noise, seed)
        fit = Fit(
            self.solver, 0.1 * self.tol, self.max_epochs, None, std, None, seed, (), "squared"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SlowOperatorWarning)
            result = fit(Problem(A, y), self.rank)
        if result.status is Status.INTERRUPTED:  # not what the solver would have found
            raise KeyboardInterrupt
        return float(relative_error(result.X, X_true)), float(result.passes), result.success


def drawn(operator: Any, shape: tuple[int, ...], m: int, seed: Seed) -> MeasurementOperator:
    """Draw the operator of one trial: m rows, at random."""
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
        return gaussian(shape, m, seed)
    if operator == "rank-one":
        return rank_one([rng.standard_normal((m, n)) for n in shape])
    if operator == "dct":
        return subsampled_transform(shape, m, seed=seed)
    flat = rng.choice(size(shape), m, replace=False)
    return entries(shape, np.stack(np.unravel_index(flat, shape), axis=1))


def _made(
    operator: Callable[[int, int], Any], shape: tuple[int, ...], m: int, seed: int
) -> MeasurementOperator:
    """What a callable makes, checked."""
    A = operator(m, seed)
    if not isinstance(A, MeasurementOperator):
        raise TypeError(
            f"operator(m, seed) must return a MeasurementOperator, got {type(A).__name__}. "
            "Try lowtucker.as_operator(A, shape) in it."
        )
    if A.shape != shape or A.m != m or A.batch_shape:
        raise ValueError(
            f"operator({m}, seed) must measure tensors of shape {shape} by {m} measurements, got "
            f"{A!r}."
        )
    return A


def _on(X: TuckerTensor, A: MeasurementOperator) -> TuckerTensor:
    """Tensor of the kind that the operator measures."""
    return TuckerTensor.trusted(
        like(X.core, A.prototype), [like(U, A.prototype) for U in X.factors]
    )


def _measured(
    A: MeasurementOperator, X_true: TuckerTensor, noise: float, seed: Seed
) -> tuple[Any, float | None]:
    """Measurements with noise, and its standard deviation for the solver."""
    y = A.forward(X_true)
    if not noise:
        return y, None
    clean = to_numpy(y)
    std = noise * float(np.linalg.norm(clean)) / math.sqrt(A.m)
    rng = generator(seed, Stream.PROBE)
    noisy = clean + (std * gaussians(rng, clean.shape, clean.dtype)).astype(clean.dtype)
    # by bad luck a few measurements may nearly vanish in their noise, which no solver takes
    level = float(np.linalg.norm(noisy)) / math.sqrt(A.m)
    return like(noisy, y), min(std, 0.9 * level)


def phase_transition(
    operator: Any,
    shape: tuple[int, ...],
    rank: tuple[int, ...],
    *,
    measurements: Sequence[int] | None = None,
    trials: int = 20,
    solver: Any = "auto",
    noise: float = 0.0,
    tol: float = 1e-5,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    workers: int = 1,
    progress: Report | bool | None = None,
) -> PhaseTransition:
    """Share of random tensors that are recovered, against the number of measurements.

    Parameters
    ----------
    operator : "gaussian", "rank-one", "entries", "dct", callable, or MeasurementOperator
        A callable ``(m, seed) -> MeasurementOperator`` makes a new one for every trial; ``seed`` is
        an integer below 2**31, and 0 in a first call for each m that tells callables apart. Of an
        operator's own rows m are drawn at random for every trial.
    shape, rank : tuple of int
    measurements : sequence of int, optional
        Numbers m to try; 1.1 to 8 times the degrees of freedom by default, as far as there are so
        many entries ("entries", "dct") or rows.
    trials : int
        Tensors for each m: ``random_tucker(shape, rank, seed=(seed, k))``, k = 0, 1, ...
    solver : str or Solver
        As in :func:`lowtucker.recover`, with its limit of 500 epochs.
    noise : float
        Standard deviation of the noise, relative to the root mean square of A(X_true). The solver
        is told.
    tol : float
        Recovered is a relative error of at most ``max(tol, noise)``. The residual to reach is a
        tenth of ``tol``.
    seed : int
    folder : path, optional
        Where to keep the trials: those that are there are not computed again, more trials add to
        them, and an interrupt loses nothing that is finished. Another operator, rank, solver, seed
        ... and another version of the package have trials of their own.
    workers : int
        Processes. The operator goes to them with every trial, so it must pickle.
    progress : callable or bool, optional
        Called as ``progress(done, total, text)`` after every trial; True draws a bar.

    Notes
    -----
    Trials that fail take the longest: "auto" tries up to 100 starts. Memory: that of one operator
    for each worker.

    Examples
    --------
    >>> found = phase_transition("gaussian", (5, 5, 6), (1, 2, 2), measurements=[20, 66], trials=5)
    >>> found.rate, found.suggest()
    (array([0., 1.]), 66)
    """
    shape = as_shape(shape)
    rank = attainable_rank(check_rank(rank, shape))
    _check_operator(operator, shape)
    wanted = _levels(measurements, operator, shape, rank)
    trials, workers = as_integer(trials, "trials"), as_integer(workers, "workers")
    seed = as_whole_seed(seed)
    noise, tol = check_noise(noise), _check_tol(tol)
    checked = _check_solver(solver)
    if workers > 1:
        _check_pickles(operator)
    levels = tuple(Level(m, _source(operator, shape, m)) for m in wanted)
    experiment = RandomRecoveries(operator, levels, shape, rank, checked, noise, tol)
    with kept_in(folder) as store, progressing(progress) as report:
        jobs = pending([experiment], store, seed, trials)
        done = len(levels) * trials - len(jobs)
        run(jobs, store, workers=workers, report=_counting(report, done, len(levels) * trials))
        found = results(experiment, store, seed, trials)
    assert found is not None
    return table(experiment, [found[level] for level in levels])


def table(experiment: RandomRecoveries, columns: Sequence[Columns]) -> PhaseTransition:
    """Table of what the trials of all levels came to, from the smallest m."""
    order = np.argsort([level.m for level in experiment.levels])
    columns = [columns[i] for i in order]
    return PhaseTransition(
        experiment.shape,
        experiment.rank,
        degrees_of_freedom(experiment.shape, experiment.rank),
        np.array([experiment.levels[i].m for i in order]),
        np.array([len(c["error"]) for c in columns]),
        np.array([experiment.recovered(c["error"]).sum() for c in columns]),
        np.array([np.median(c["error"]) for c in columns]),
        np.array([np.median(c["passes"]) for c in columns]),
        np.array([(experiment.recovered(c["error"]) & (c["success"] > 0)).sum() for c in columns]),
    )


@contextmanager
def kept_in(folder: str | os.PathLike[str] | None) -> Iterator[Store]:
    """Store in a folder; where there is none, in one that is gone afterwards."""
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
        raise ValueError(f"folder {path} is a file. Give the name of a folder, new or old.")
    return path


def _counting(report: Report, done: int, total: int) -> Callable[[Job], None]:
    """Report of the runner's that counts jobs."""
    count = done

    def hear(job: Job) -> None:
        nonlocal count
        count += 1
        report(count, total, f"m = {job.cell.m}")

    return hear


@contextmanager
def progressing(progress: Any) -> Iterator[Report]:
    """What to tell: the caller's function, a bar, or nobody."""
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


def per_dof(ratio: float, dof: int) -> int:
    """Measurements that are at least so many per degree of freedom; 1.1 times 50 are 55."""
    return math.ceil(ratio * dof - 1e-9)


def check_rate(rate: Any) -> float:
    """Check a rate to reach: above 0, at most 1."""
    number = as_number(rate, "rate", positive=True)
    if number > 1:
        raise ValueError(f"rate must be at most 1, got {number:g}. 95 % is rate=0.95.")
    return number


def check_noise(noise: Any) -> float:
    """Check a relative noise level."""
    number = as_number(noise, "noise", 0)
    if number >= 1:
        raise ValueError(
            f"noise must be below 1, got {number:g}: it is relative to the measurements, and at 1 "
            "as large as they are."
        )
    return number


def _check_tol(tol: Any) -> float:
    number = as_number(tol, "tol", positive=True)
    if number >= 1:
        raise ValueError(f"tol must be below 1, the error of zero, got {number:g}. Try tol=1e-5.")
    return number


def _check_operator(operator: Any, shape: tuple[int, ...]) -> None:
    if isinstance(operator, str):
        if operator not in NAMES:
            raise ValueError(
                f"operator must be one of {', '.join(NAMES)}, got {as_told(operator)}."
            )
    elif isinstance(operator, MeasurementOperator):
        if operator.shape != shape or operator.batch_shape:
            raise ValueError(
                f"operator must measure single tensors of shape {shape}, got {operator!r}."
            )
    elif not callable(operator) or isinstance(operator, type):
        raise TypeError(
            f"operator must be one of {', '.join(NAMES)}, a callable (m, seed), or a "
            f"MeasurementOperator, got {as_told(operator)}. Try lowtucker.as_operator(A, shape)."
        )


def as_told(operator: Any) -> str:
    """What was given for an operator, on one line."""
    return f"{operator!r:.80}" if isinstance(operator, str) else f"a {type(operator).__name__}"


def _levels(
    measurements: Any, operator: Any, shape: tuple[int, ...], rank: tuple[int, ...]
) -> list[int]:
    """Numbers of measurements, as given, or multiples of dof as far as there are so many."""
    whole = isinstance(operator, MeasurementOperator)
    limited = isinstance(operator, str) and operator in LIMITED
    most = size(shape) if limited else operator.m if whole else None
    dof = degrees_of_freedom(shape, rank)
    if measurements is not None:
        try:
            given = list(measurements)
        except TypeError:
            given = []
        if not given:
            raise ValueError(
                f"measurements must be a sequence of integers, got {measurements!r:.80}. "
                f"Try measurements=[{2 * dof}, {4 * dof}]."
            )
        return sorted({as_integer(m, "measurements", 1, most) for m in given})
    if most is not None and most < dof:
        raise ValueError(
            f"operator has {most} rows, fewer than the {dof} degrees of freedom of rank {rank}: no "
            "tensor could be recovered. Take an operator with more rows, or a smaller rank."
        )
    wanted = (per_dof(x, dof) for x in RATIOS)
    return sorted({m if most is None else min(m, most) for m in wanted})


def as_whole_seed(seed: Any) -> int:
    """Check a seed that trials are numbered within."""
    number, trial = as_seed(seed)
    if trial or isinstance(seed, tuple):
        raise TypeError(f"seed must be an integer, got {seed!r}: trials are numbered from 0.")
    return number


def _check_solver(solver: Any) -> Any:
    """Solver with its settings, so that a cache knows it again by any name; "auto" stays."""
    if isinstance(solver, list | tuple) and solver:
        return tuple(map(as_solver, solver))
    automatic = isinstance(solver, str) and solver.lower() == "auto"
    return "auto" if automatic else as_solver(solver)


def _check_pickles(operator: Any) -> None:
    try:
        pickle.dumps(operator)
    except Exception as error:  # whatever its parts raise
        raise TypeError(
            f"operator cannot be sent to other processes ({error}). Try workers=1, or a function "
            "defined at the top of a module instead of a lambda."
        ) from error


def _source(operator: Any, shape: tuple[int, ...], m: int) -> str:
    """What measures at a level: a name, or a hash of the measurements of a fixed tensor."""
    if isinstance(operator, str):
        return operator
    whole = isinstance(operator, MeasurementOperator)
    A = operator if whole else _made(operator, shape, m, 0)
    probe = generator(0, Stream.PROBE).standard_normal(shape)
    with one_blas_thread():  # the same sums in every run
        y = to_numpy(A.forward(like(probe, A.prototype, A.dtype)))
    head = repr((type(A).__name__, whole, y.dtype.str)).encode()
    return hashlib.sha256(head + y.tobytes()).hexdigest()[:16]
