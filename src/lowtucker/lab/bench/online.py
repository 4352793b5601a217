"""One pass over a stream, and tensors that change: ``lowtucker bench online``, F3 and F4.

F3: :class:`lowtucker.Online` reads ten measurements per degree of freedom once, in blocks, and is
compared with :func:`lowtucker.recover` on all of them. F4: the tensor moves, and it is compared
with a fit to a sliding window, repeated after every block of a quarter of dof rows: from nothing,
from the last fit, and by one Gauss-Newton step from it, each at its best window.

The cost of F4 has a floor. Where factors rotate by 1 % per dof the best window is about 2 dof, and
a warm refit takes some five Gauss-Newton steps: 40 blocks are read, and five systems solved. The
stream reads one block, solves one system, and moves its tangent space every fourth time: a fortieth
where reading dominates, about a ninth where solving does.

CPU times are ratios within one run, with one BLAS thread.
"""

from __future__ import annotations

import gc
import math
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker.lab.bench.timing import check_names, timed
from lowtucker.metrics import relative_error
from lowtucker.operators import EntriesOperator, MeasurementOperator, gaussian, rank_one
from lowtucker.problem import Problem
from lowtucker.recovery import recover, solve
from lowtucker.run.stopping import MaxEpochs
from lowtucker.streams import Online
from lowtucker.tensor import TuckerTensor, degrees_of_freedom, random_tucker

__all__ = ["NAMES", "STREAMS", "Row", "Setting", "Stream", "one_pass", "run", "tracking"]

NumPyArray = np.ndarray[Any, Any]
NAMES = ("F3", "F4")
STREAMS = {"F3": 20, "F4": 5}  # of each setting
NOISE = 0.01
# F3: measurements per degree of freedom, and blocks: one row, and shares of the degrees of freedom
LENGTH, BLOCKS = 10, (0.0, 0.1, 1.0)
# F4: radians by which the factors rotate in as many measurements as there are degrees of freedom;
# measurements per degree of freedom before, and while, errors and times are taken; of a block; and
# of the windows and memories of which the best is taken
ANGLE, BEFORE, WHILE, EVERY = 0.01, 10, 10, 0.25
WINDOWS, MEMORIES = (1.5, 2.0, 3.0, 4.0), (1.0, 1.5, 2.0, 3.0)
# Targets: error over that of the batch fit, over that of the refit, and CPU time over its
ONE_PASS, TRACKING, COST = 1.1, 1.5, 0.05


@dataclass(frozen=True)
class Setting:
    """Streams of one kind of rows."""

    kind: str
    shape: tuple[int, ...]
    rank: tuple[int, ...] = (3, 3, 3)

    @property
    def dof(self) -> int:
        """Degrees of freedom."""
        return degrees_of_freedom(self.shape, self.rank)

    @property
    def what(self) -> str:
        """The setting, in words."""
        return f"{self.kind}, {'x'.join(map(str, self.shape))}, rank {self.rank}"

    def rows(self, m: int, seed: int) -> MeasurementOperator:
        """Operator of m rows."""
        rng = np.random.default_rng([seed, 1])
        if self.kind == "gaussian":
            return gaussian(self.shape, m, seed=seed)
        if self.kind == "rank-one":
            return rank_one([rng.standard_normal((m, n)) for n in self.shape])
        return EntriesOperator(self.shape, rng.integers(0, self.shape, (m, len(self.shape))))


SMALL, LARGE = (20, 20, 20), (40, 40, 40)
KINDS = ("gaussian", "rank-one", "entries")
# Gaussian rows of the large tensor would take 1.8 GB
ONE_PASS_SETTINGS = (
    *(Setting(kind, SMALL) for kind in KINDS), *(Setting(kind, LARGE) for kind in KINDS[1:]),
)  # fmt: skip
TRACKING_SETTINGS = tuple(Setting(kind, SMALL) for kind in KINDS)


@dataclass(frozen=True)
class Row:
    """The stream against another fit.

    Parameters
    ----------
    work : str
        F3 or F4.
    what, method, other : str
        Setting, how the stream was read, and what it is compared with.
    streams : int
        Number of streams.
    error : float
        Median relative error of the stream.
    ratio, worst : float
        Median and largest ratio of its error to that of the other.
    cost : float
        Median ratio of CPU times.
    kept, peak, warm_up : float
        F3: numbers of 8 bytes in use at the end, and at most in the second and in the first half
        of the first stream, in units of dof^2; the caller's rows are not counted. The first half
        has the warm-up.
    target : str
    met : bool or None
    note : str
    """

    work: str
    what: str
    method: str
    other: str
    streams: int
    error: float
    ratio: float
    worst: float
    cost: float
    kept: float
    peak: float
    warm_up: float
    target: str
    met: bool | None
    note: str = ""


@dataclass(frozen=True, eq=False)
class Stream:
    r"""Noisy measurements of a tensor that moves, row by row.

    The factor of each mode is :math:`U_k \cos \phi + V_k \sin \phi` with orthonormal columns
    :math:`V_k` orthogonal to those of :math:`U_k`: it rotates along a geodesic, by the angle
    :math:`\phi` in all its directions. At row i, :math:`\phi = i \alpha / dof`. The core stays.
    """

    A: MeasurementOperator
    y: NumPyArray
    core: NumPyArray
    factors: tuple[tuple[NumPyArray, NumPyArray], ...]
    rate: float  # radians per row

    @classmethod
    def drawn(cls, setting: Setting, per_dof: float, angle: float, seed: int) -> Stream:
        """Draw a stream of so many measurements per degree of freedom, with noise of 1 %."""
        rng = np.random.default_rng([seed, 2])
        dof, m = setting.dof, int(per_dof * setting.dof)
        X = random_tucker(setting.shape, setting.rank, seed=seed)
        factors = tuple((np.asarray(U), _orthogonal(rng, np.asarray(U))) for U in X.factors)
        A = setting.rows(m, seed)
        bare = cls(A, np.zeros(0), np.asarray(X.core), factors, angle / dof)
        clean = bare._measured()
        std = NOISE * float(np.linalg.norm(clean)) / math.sqrt(m)
        return cls(A, clean + std * rng.standard_normal(m), bare.core, factors, bare.rate)

    def _measured(self) -> NumPyArray:
        """Row i of A applied to the tensor at row i: multilinear in cosines and sines."""
        phi = self.rate * np.arange(self.A.m)
        waves = np.cos(phi), np.sin(phi)
        total = np.zeros(self.A.m)
        for which in product((0, 1), repeat=len(self.factors)):
            if self.rate or not any(which):
                factors = tuple(pair[k] for pair, k in zip(self.factors, which, strict=True))
                amplitude = np.prod([waves[k] for k in which], axis=0)
                total += amplitude * self.A.forward(TuckerTensor(self.core, factors))
        return total

    def X(self, row: int) -> TuckerTensor:
        """The tensor at a row."""
        phi = self.rate * row
        factors = [math.cos(phi) * U + math.sin(phi) * V for U, V in self.factors]
        return TuckerTensor.from_factors(self.core, factors)

    def blocks(self, rows: int) -> Iterator[Problem]:
        """Blocks of so many rows."""
        for start in range(0, self.A.m, rows):
            yield self.problem(start, min(start + rows, self.A.m))

    def problem(self, start: int = 0, end: int | None = None) -> Problem:
        """Problem of some rows."""
        rows = slice(start, self.A.m if end is None else end)
        return Problem(self.A.restrict(rows), self.y[rows])


def _orthogonal(rng: np.random.Generator, U: NumPyArray) -> NumPyArray:
    """Orthonormal columns, as many as those of U and orthogonal to them."""
    V = rng.standard_normal(U.shape)
    return np.asarray(np.linalg.qr(V - U @ (U.T @ V))[0])


def run(names: Sequence[str] = NAMES, streams: int | None = None, seed: int = 0) -> Iterator[Row]:
    """Yield the rows of some yardsticks, with so many streams of each setting."""
    check_names(names, NAMES)
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # verdicts of single fits
        for setting in ONE_PASS_SETTINGS if "F3" in names else ():
            yield from one_pass(setting, streams or STREAMS["F3"], seed)
        for setting in TRACKING_SETTINGS if "F4" in names else ():
            yield from tracking(setting, streams or STREAMS["F4"], seed)


# F3


def one_pass(setting: Setting, streams: int, seed: int = 0) -> Iterator[Row]:
    """Rows of one setting: one for every size of blocks."""
    blocks = [max(round(share * setting.dof), 1) for share in BLOCKS]
    found: dict[int, list[tuple[float, float, float]]] = {block: [] for block in blocks}
    used = {}
    for k in range(streams):
        stream = Stream.drawn(setting, LENGTH, 0.0, seed + k)
        whole, truth = stream.problem(), stream.X(0)
        batch, took = timed(partial(recover, whole.A, whole.y, setting.rank), time.process_time)
        least = float(relative_error(batch.X, truth))
        for block in blocks:
            X, cpu = timed(partial(_X_after, stream, setting, block), time.process_time)
            error = float(relative_error(X, truth))
            found[block].append((error, error / least, cpu / took))
            if k == 0:
                used[block] = memory_in_use(stream, setting, block)
    for block in blocks:
        errors, ratios, costs = zip(*found[block], strict=True)
        yield Row(
            "F3", setting.what, f"blocks of {block}", "batch fit", streams,
            median(errors), median(ratios), max(ratios), median(costs), *used[block],
            f"error <= {ONE_PASS}", max(ratios) <= ONE_PASS,
        )  # fmt: skip


def _X_after(stream: Stream, setting: Setting, block: int) -> Any:
    """The tensor after one pass."""
    online = Online(setting.shape, setting.rank)
    for piece in stream.blocks(block):
        online.update(piece.A, piece.y)
    return online.X


def memory_in_use(stream: Stream, setting: Setting, block: int) -> tuple[float, float, float]:
    """Numbers of 8 bytes at the end, and at most in the second and first half, over dof^2."""
    unit = 8 * setting.dof**2
    tracemalloc.start()
    try:
        online = Online(setting.shape, setting.rank)
        first, read = 0, 0
        for piece in stream.blocks(block):
            online.update(piece.A, piece.y)
            read += piece.m
            if read - piece.m < stream.A.m / 2 <= read:
                first = tracemalloc.get_traced_memory()[1]
                tracemalloc.reset_peak()
        assert online.X is not None
        gc.collect()
        kept, second = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return kept / unit, second / unit, first / unit


# F4

# Mean relative error after the blocks of a stream, and mean CPU seconds of a block
Track = tuple[float, float]


def tracking(setting: Setting, streams: int, seed: int = 0) -> Iterator[Row]:
    """Rows of one setting: the stream against refits of each kind, all at their best lengths."""
    drawn = range(seed, seed + streams)
    online: dict[float, list[Track]] = {length: [] for length in MEMORIES}
    refits: dict[str, dict[float, list[Track]]] = {
        name: {length: [] for length in refit.windows} for name, refit in REFITS.items()
    }
    for k in drawn:
        stream = Stream.drawn(setting, BEFORE + WHILE, ANGLE, k)
        for length, tracks in online.items():
            tracks.append(followed(stream, setting, length))
        for name, windows in refits.items():
            for length, tracks in windows.items():
                tracks.append(refitted(stream, setting, length, REFITS[name]))
    memory = _best(online)
    for name, windows in refits.items():
        window = _best(windows)
        yield _tracking_row(
            setting, f"memory {memory:g} dof", f"{name}, window {window:g} dof",
            online[memory], windows[window], judged=REFITS[name].judged,
        )  # fmt: skip


def _best(tracks: dict[float, list[Track]]) -> float:
    """Length with the least median error."""
    return min(tracks, key=lambda length: median(error for error, _ in tracks[length]))


def _tracking_row(
    setting: Setting, method: str, other: str, ours: list[Track], theirs: list[Track], judged: bool
) -> Row:
    pairs = list(zip(ours, theirs, strict=True))
    ratios = [a[0] / b[0] for a, b in pairs]
    cost = median(a[1] / b[1] for a, b in pairs)
    times = " and ".join(f"{1e3 * median(t for _, t in some):.3g}" for some in (ours, theirs))
    return Row(
        "F4", setting.what, method, other, len(pairs), median(error for error, _ in ours),
        median(ratios), max(ratios), cost, math.nan, math.nan, math.nan,
        f"error <= {TRACKING}, CPU <= {COST}" if judged else "",
        (max(ratios) <= TRACKING and cost <= COST) if judged else None,
        f"{times} ms a block",
    )  # fmt: skip


def followed(stream: Stream, setting: Setting, length: float) -> Track:
    """Errors and times of the stream; the tensor is asked for after every block."""
    dof = setting.dof
    online = Online(setting.shape, setting.rank, memory=length * dof)
    begin, row, tracks = BEFORE * dof, 0, []
    for piece in stream.blocks(_block(setting)):
        _, update = timed(partial(online.update, piece.A, piece.y), time.process_time)
        row += piece.m
        if row > begin:
            X, ask = timed(lambda: online.X, time.process_time)
            tracks.append((float(relative_error(X, stream.X(row))), update + ask))
    return _mean(tracks)


def refitted(stream: Stream, setting: Setting, length: float, refit: Refit) -> Track:
    """Errors and times of fits to the last rows, so many per degree of freedom."""
    rows, block, begin = round(length * setting.dof), _block(setting), BEFORE * setting.dof
    first = stream.problem(begin - round(max(WINDOWS) * setting.dof), begin)
    X = recover(first.A, first.y, setting.rank).X if refit.warm else None
    tracks = []
    for row in range(begin + refit.every * block, stream.A.m + 1, refit.every * block):
        window = stream.problem(row - rows, row)
        X, took = timed(partial(refit.fit, window, setting.rank, X), time.process_time)
        tracks.append((float(relative_error(X, stream.X(row))), took))
    return _mean(tracks)


@dataclass(frozen=True)
class Refit:
    """A way to fit a window: every so many blocks, with or without the last fit as its start."""

    fit: Callable[[Problem, tuple[int, ...], Any], Any]
    windows: tuple[float, ...]
    warm: bool = True
    every: int = 1
    judged: bool = True


def _cold(problem: Problem, rank: tuple[int, ...], start: Any) -> Any:
    return recover(problem.A, problem.y, rank).X


def _warm(problem: Problem, rank: tuple[int, ...], start: Any) -> Any:
    return solve(problem, "rgn", rank, start=start).X


def _one_step(problem: Problem, rank: tuple[int, ...], start: Any) -> Any:
    return solve(problem, "rgn", rank, start=start, stop=MaxEpochs(1)).X


# Cold fits do not depend on each other: every fourth is enough. With fewer than three rows per
# degree of freedom they take seconds, and often fail
REFITS = {
    "cold refit": Refit(_cold, (3.0, 4.0), warm=False, every=4),
    "warm refit": Refit(_warm, WINDOWS),
    "one warm step": Refit(_one_step, WINDOWS, judged=False),
}


def _block(setting: Setting) -> int:
    return max(round(EVERY * setting.dof), 1)


def _mean(tracks: list[Track]) -> Track:
    error, took = np.mean(tracks, axis=0)
    return float(error), float(took)
