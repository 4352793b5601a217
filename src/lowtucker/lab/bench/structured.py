"""Structured measurements, sampled entries and a matrix on disk: ``bench structured``."""

from __future__ import annotations

import math
import multiprocessing
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from lowtucker._array import one_blas_thread, size
from lowtucker._array.random import Seed, Stream, generator
from lowtucker.lab.bench import out_of_core
from lowtucker.lab.bench.methods import Outcome
from lowtucker.lab.bench.timing import (
    Benchmark,
    all_met,
    check_names,
    listed,
    peak_memory,
    target_text,
    timed,
)
from lowtucker.lab.bench.yardsticks import SEED, TOL
from lowtucker.metrics import relative_error
from lowtucker.operators import MeasurementOperator, entries, rank_one, subsampled_transform
from lowtucker.recovery import recover
from lowtucker.tensor import TuckerTensor, random_tucker

__all__ = [
    "NAMES",
    "Completion",
    "OutOfCore",
    "RankOne",
    "Row",
    "Transform",
    "Work",
    "chosen",
    "run",
    "yardsticks",
]

NAMES = ("A4", "B6", "B7", "B8", "B9", "B10", "O")
# Quantities with targets, and their names in the table
LABELS = {"seconds": "s", "worst": "worst s", "memory": "MB", "ratio": "pass / longer part"}


@dataclass(frozen=True)
class Row:
    """Outcome of ``recover`` on one yardstick.

    Parameters
    ----------
    work : str
    m : int
    trials : int
    recovered : float
        Share of the trials with an error of at most the tolerance.
    error : float
        Median over the trials: of X, or of entries not sampled.
    seconds, worst : float
        Wall time of the call: median and maximum.
    passes : float
        Passes over A, as counted by ``Result.passes``; the median.
    memory : float
        Peak memory of the process in MB: Python, the problem, all trials. For a matrix on disk,
        the peak anonymous memory during the call.
    target : str
    met : bool or None
        None if there is no target.
    note : str
    """

    work: str
    m: int
    trials: int
    recovered: float
    error: float
    seconds: float
    worst: float
    passes: float
    memory: float
    target: str
    met: bool | None
    note: str


@dataclass(frozen=True, kw_only=True)
class Work(Benchmark):
    """A recovery, measured by its success rate, time and memory.

    Parameters
    ----------
    tol : float
        The error that counts as recovered.
    """

    tol: float = TOL

    @abstractmethod
    def measure(self, trials: int) -> Row:
        """Return the row of some trials, measured in this process."""

    def row(
        self, outcomes: Sequence[Outcome], memory: float, *notes: str, ratio: float = math.nan
    ) -> Row:
        """Return the row of the outcomes, which may be empty."""
        errors, seconds, passes = (
            np.array([getattr(one, name) for one in outcomes] or [math.nan], dtype=float)
            for name in ("score", "seconds", "passes")
        )
        good = errors <= self.tol
        numbers = {
            "recovered": float(good.mean()) if outcomes else math.nan,
            "error": float(np.median(errors)),
            "seconds": float(np.median(seconds)),
            "worst": float(seconds.max()),
            "passes": float(np.median(passes)),
            "memory": memory,
        }
        values = {**numbers, "ratio": ratio}
        targets = dict(self.targets) if outcomes else {}
        missed = listed(np.flatnonzero(~good)) if outcomes and not good.all() else ""
        remarks = [*notes, f"not recovered: {missed}" if missed else ""]
        if math.isnan(memory) and "memory" in targets:
            del targets["memory"]
            remarks.append("memory is unknown on this system")
        labels = {"recovered": f"error <= {self.tol:g} in", **LABELS}
        return Row(
            work=self.name,
            m=self.m,
            trials=len(outcomes),
            **numbers,
            target=target_text(targets, labels),
            met=all_met(values, targets),
            note="; ".join(filter(None, remarks)),
        )


class Drawn(NamedTuple):
    """A problem with known solution; test entries if the tensor is too large."""

    A: MeasurementOperator
    X_true: TuckerTensor
    unseen: Any = None


@dataclass(frozen=True, kw_only=True)
class Trials(Work):
    """Random problems whose measurements are not stored as a matrix.

    Parameters
    ----------
    core_mean : float
        Mean of the core's entries.
    note : str
    """

    core_mean: float = 0.0
    note: str = ""

    @abstractmethod
    def draw(self, trial: int) -> Drawn:
        """Return the problem of a trial."""

    def truth(self, seed: Seed) -> TuckerTensor:
        """Return the tensor to recover."""
        return random_tucker(self.shape, self.rank, seed=seed, core_mean=self.core_mean)

    def run(self, trial: int) -> Outcome:
        """Recover with default settings; return the error and the time of the call."""
        A, X_true, unseen = self.draw(trial)
        y = A.forward(X_true)
        result, seconds = timed(lambda: recover(A, y, self.rank))
        X, truth = result.X, X_true
        if unseen is not None:
            X, truth = X.entries(unseen), X_true.entries(unseen)
        return Outcome(float(relative_error(X, truth)), float(result.passes), seconds)

    def measure(self, trials: int) -> Row:
        """Return the row of some trials, after a small one to exclude one-time costs."""
        d = len(self.shape)
        with one_blas_thread():
            replace(self, shape=(6,) * d, rank=(1,) * d, m=60).run(0)
            outcomes = [self.run(trial) for trial in range(trials)]
        return self.row(outcomes, peak_memory(), self.note)


@dataclass(frozen=True, kw_only=True)
class RankOne(Trials):
    """Measurements by outer products of standard normal vectors."""

    def draw(self, trial: int) -> Drawn:
        """Return the problem of a trial."""
        rng = generator((SEED, trial), Stream.OPERATOR)
        A = rank_one([rng.standard_normal((self.m, n)) for n in self.shape])
        return Drawn(A, self.truth((SEED, trial)))


@dataclass(frozen=True, kw_only=True)
class Transform(Trials):
    """Coefficients of a fast transform, after random signs."""

    kind: Literal["dct", "fft"]

    def draw(self, trial: int) -> Drawn:
        """Return the problem of a trial."""
        A = subsampled_transform(self.shape, self.m, kind=self.kind, seed=(SEED, trial))
        return Drawn(A, self.truth((SEED, trial)))


@dataclass(frozen=True, kw_only=True)
class Completion(Trials):
    """Sampled entries, evaluated on held-out entries."""

    held_out: int = 100_000

    def draw(self, trial: int) -> Drawn:
        """Return the problem of a trial, without forming an array of the size of the tensor."""
        rng = generator((SEED, trial), Stream.OPERATOR)
        N = size(self.shape)
        flat = rng.choice(N, min(N, self.m + self.held_out), replace=False)
        index = np.stack(np.unravel_index(flat, self.shape), axis=1)
        A = entries(self.shape, index[: self.m])
        return Drawn(A, self.truth((SEED, trial)), index[self.m :])


@dataclass(frozen=True, kw_only=True)
class OutOfCore(Work):
    """A matrix on disk: one file, one recovery, for any number of trials.

    Parameters
    ----------
    folder : str, optional
        Parent of a temporary folder; the system's by default.
    """

    folder: str | None = None

    def measure(self, trials: int) -> Row:
        """Return the row of a file, or a note on the disk space it needs."""
        needed, free = 4.4 * self.m * size(self.shape), out_of_core.free_space(self.folder)
        if free < needed:
            return self.row([], math.nan, f"skipped: needs {_gb(needed)} of disk, {_gb(free)} is "
                            "free. Try --folder or fewer --gigabytes")  # fmt: skip
        with one_blas_thread():
            done = out_of_core.measure(self.folder, self.shape, self.rank, self.m)
        times = f"pass {done.both:.3g} s, read {done.read:.3g} s, compute {done.compute:.3g} s"
        return self.row(
            [Outcome(done.error, done.passes, done.recover)],
            done.memory,
            f"{_gb(4 * self.m * size(self.shape))} on disk",
            times,
            "MB: RssAnon",
            ratio=done.both / max(done.read, done.compute),
        )


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"


def run(works: Sequence[Work], trials: int | None = None) -> Iterator[Row]:
    """Yield rows as they are measured, each alone in a new process with one BLAS thread.

    Parameters
    ----------
    works : sequence of Work
    trials : int, optional
        Overrides the number of trials of each yardstick.
    """
    for work in works:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            yield process.submit(work.measure, trials or work.trials).result()


def yardsticks(gigabytes: float = 2.0, folder: str | None = None) -> list[Work]:
    """Return all yardsticks."""
    cube: dict[str, Any] = {"shape": (15, 15, 15), "rank": (2, 2, 2), "core_mean": 0.1}
    four: dict[str, Any] = {"shape": (40,) * 4, "rank": (3,) * 4, "m": 3000, "tol": 0.01}
    large: dict[str, Any] = {"shape": (1000,) * 3, "rank": (5,) * 3, "tol": 1e-4}
    disk = (50, 50, 40)
    return [
        *(
            RankOne(name="A4", **cube, m=m, trials=100, targets={"recovered": target})
            for m, target in {300: ">= 0.98", 200: ">= 0.9"}.items()
        ),
        RankOne(name="B6", shape=(50, 50, 50), rank=(2, 2, 2), m=900, trials=40,
                targets={"recovered": ">= 0.95", "seconds": "<= 1", "memory": "<= 200"}),
        RankOne(name="B7", shape=(20,) * 4, rank=(2,) * 4, m=3200, trials=10,
                targets={"recovered": ">= 1", "worst": "<= 2"}),
        Transform(name="B8", **four, trials=20, kind="fft", note="Fourier",
                  targets={"recovered": ">= 0.99"}),
        Transform(name="B8", **{**four, "m": 6000}, trials=5, kind="dct",
                  note="DCT: as many real numbers"),
        Completion(name="B9", shape=(300, 400, 500), rank=(12, 4, 3), m=66750, trials=3, tol=1e-4,
                   targets={"recovered": ">= 1", "worst": "<= 15"}),
        *(
            Completion(name="B10", **large, m=m, trials=1,
                       targets={"recovered": ">= 1", "worst": "<= 60", "memory": "<= 1000"})
            for m in (3_000_000, 500_000)
        ),
        OutOfCore(name="O", shape=disk, rank=(3, 3, 3), m=round(gigabytes * 1e9 / 4 / size(disk)),
                  trials=1, folder=folder,
                  targets={"recovered": ">= 1", "ratio": "<= 1.5", "memory": "<= 1000"}),
    ]  # fmt: skip


def chosen(names: Sequence[str], gigabytes: float = 2.0, folder: str | None = None) -> list[Work]:
    """Return the yardsticks of some names."""
    check_names(names, NAMES)
    return [one for one in yardsticks(gigabytes, folder) if one.name in names]
