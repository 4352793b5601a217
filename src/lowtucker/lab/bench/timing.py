"""Timing, memory and targets of benchmarks.

Times are compared as ratios within one run, since machines are shared and noisy.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
import sys
import time
from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lowtucker.io import replacing

__all__ = [
    "REPEATS",
    "Benchmark",
    "Machine",
    "Row",
    "Spread",
    "all_met",
    "check_names",
    "holds",
    "listed",
    "machine",
    "machine_rows",
    "memory_now",
    "peak_memory",
    "side_by_side",
    "target_text",
    "timed",
    "write_csv",
]

T = TypeVar("T")
# Times are medians of so many
REPEATS = 9
# Megabytes of the matrix, larger than any cache, that the memory bandwidth is measured with; size
# of the matrices of the arithmetic
GEMV, GEMM = 256, 1000


@dataclass(frozen=True)
class Row:
    """One row of a benchmark: a ratio, its target if any, and the times it is computed from."""

    what: str
    ratio: float
    target: str
    met: bool | None
    detail: str


@dataclass(frozen=True, kw_only=True)
class Benchmark(ABC):
    """A recovery problem and its targets. Subclasses are frozen dataclasses.

    Parameters
    ----------
    name : str
    shape, rank : tuple of int
    m : int
    trials : int
        Number of problems for the default solver.
    targets : mapping
        Quantities of the row and their targets: ``{"recovered": ">= 0.95"}``.
    """

    name: str
    shape: tuple[int, ...]
    rank: tuple[int, ...]
    m: int
    trials: int
    targets: Mapping[str, str] = field(default_factory=dict)


def timed(
    action: Callable[[], T], clock: Callable[[], float] = time.perf_counter
) -> tuple[T, float]:
    """Return the result of a call and its seconds."""
    begin = clock()
    result = action()
    return result, clock() - begin


class Spread(NamedTuple):
    """Median, least and greatest of some numbers."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Spread:
        """Summarise numbers."""
        return cls(statistics.median(numbers), min(numbers), max(numbers))

    def __truediv__(self, number: float) -> Spread:
        """Divide all three."""
        return Spread(*(one / number for one in self))

    def text(self, factor: float = 1.0, unit: str = "") -> str:
        """Format for a table: "32.1 us (31.5-34)"."""
        median, least, greatest = (
            f"{value:.3g}" if value < 1000 else f"{value:.0f}"  # no exponents
            for value in (factor * one for one in self)
        )
        return f"{median}{f' {unit}' if unit else ''} ({least}-{greatest})"


def side_by_side(
    actions: dict[str, Callable[[], Any]],
    repeats: int = REPEATS,
    calls: int = 1,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, Spread]:
    """Return the seconds of each action; calls are interleaved against slow periods.

    CPU seconds of this process unless ``clock`` is another: machines are shared.
    """
    times: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()
    for _ in range(repeats):
        for name, action in actions.items():
            begin = clock()
            for _ in range(calls):
                action()
            times[name].append((clock() - begin) / calls)
    return {name: Spread.of(values) for name, values in times.items()}


class Machine(NamedTuple):
    """What a core of the machine can do, with one BLAS thread."""

    bandwidth: float  # GB/s of a product of a matrix that no cache holds with a vector
    arithmetic: float  # GFlop/s of a product of two matrices

    def __str__(self) -> str:
        return f"{self.bandwidth:.3g} GB/s, {self.arithmetic:.3g} GFlop/s"


def machine(repeats: int = REPEATS, megabytes: int = GEMV, size: int = GEMM) -> Machine:
    """Measure the machine: medians, in CPU seconds. The caller limits BLAS to one thread."""
    A, x = np.ones((megabytes * 10**6 // 8000, 1000)), np.ones(1000)
    B = np.ones((size, size))
    times = side_by_side({"gemv": lambda: A @ x, "gemm": lambda: B @ B}, repeats)
    return Machine(A.nbytes / 1e9 / times["gemv"].median, 2 * size**3 / 1e9 / times["gemm"].median)


def machine_rows() -> list[Row]:
    """Rows of a table of ratios that describe the machine."""
    found = machine()
    return [
        Row("machine: GB/s", found.bandwidth, "", None, f"gemv, {GEMV} MB, one thread"),
        Row("machine: GFlop/s", found.arithmetic, "", None, f"gemm, {GEMM}x{GEMM}, one thread"),
    ]


def peak_memory() -> float:
    """Return the peak memory of this process in MB; NaN on Windows.

    Without /proc, it may be the memory of a larger parent process.
    """
    peak = memory_now("VmHWM")
    if not math.isnan(peak):
        return peak
    try:
        import resource
    except ImportError:
        return math.nan
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def memory_now(line: str) -> float:
    """Return a line of /proc/self/status in MB, such as RssAnon; NaN if it does not exist."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            found = [text.split()[1] for text in file if text.startswith(f"{line}:")]
    except OSError:
        return math.nan
    return int(found[0]) * 1024 / 1e6 if found else math.nan


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise ValueError for unknown yardsticks."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"Unknown yardstick {unknown[0]!r}. Choose from {', '.join(known)}.")


def listed(trials: Any) -> str:
    """Format the indices of trials for a note."""
    return f"trials {', '.join(map(str, trials))}" if len(trials) else ""


def holds(value: float, target: str) -> bool:
    """Return whether a number meets a target such as ``<= 4``; NaN never does."""
    relation, bound = target.split()
    return value <= float(bound) if relation == "<=" else value >= float(bound)


def all_met(values: Mapping[str, float], targets: Mapping[str, str]) -> bool | None:
    """Return whether all targets are met; None if there are none."""
    return all(holds(values[name], t) for name, t in targets.items()) if targets else None


def target_text(targets: Mapping[str, str], labels: Mapping[str, str]) -> str:
    """Format targets for a table."""
    return ", ".join(f"{labels[name]} {target}".strip() for name, target in targets.items())


def write_csv(rows: Iterable[Any], path: str | Path) -> None:
    """Write the rows of a benchmark, dataclasses, atomically; what a row lacks stays empty."""
    lines = [asdict(row) for row in rows]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(dict.fromkeys(chain(*lines))))
    writer.writeheader()
    writer.writerows(lines)
    with replacing(Path(path)) as file:
        file.write(text.getvalue().encode())
