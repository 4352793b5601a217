"""Measuring side by side: ratios inside one run, since machines are shared and noisy."""

from __future__ import annotations

import csv
import io
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lowtucker.io import replacing

__all__ = [
    "Row",
    "check_names",
    "holds",
    "listed",
    "memory_now",
    "peak_memory",
    "side_by_side",
    "write_csv",
]


@dataclass(frozen=True)
class Row:
    """One line of a benchmark: a ratio, what it should be, and the times behind it."""

    what: str
    ratio: float
    target: str
    met: bool
    detail: str


def side_by_side(
    actions: dict[str, Callable[[], Any]], repeats: int = 7, calls: int = 1
) -> dict[str, float]:
    """Median seconds of a call of each action, interleaved so that a slow spell hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()
    for _ in range(repeats):
        for name, action in actions.items():
            begin = time.perf_counter()
            for _ in range(calls):
                action()
            times[name].append((time.perf_counter() - begin) / calls)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_memory() -> float:
    """Most that this process ever had in memory, in MB; NaN on Windows.

    Where there is no /proc, a process that was started by a larger one counts what that one had.
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
    """Line of /proc/self/status in MB, such as RssAnon; NaN where there is no such line."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            found = [text.split()[1] for text in file if text.startswith(f"{line}:")]
    except OSError:
        return math.nan
    return int(found[0]) * 1024 / 1e6 if found else math.nan


def check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Refuse yardsticks that there are not."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"There is no yardstick {unknown[0]!r}. Choose from {', '.join(known)}.")


def listed(trials: Any) -> str:
    """Numbers of trials, for a remark."""
    return f"trials {', '.join(map(str, trials))}" if len(trials) else ""


def holds(value: float, target: str) -> bool:
    """Whether a number is what a target such as ``<= 4`` asks for; NaN never is."""
    relation, bound = target.split()
    return value <= float(bound) if relation == "<=" else value >= float(bound)


def write_csv(rows: Iterable[Any], path: str | Path) -> None:
    """Write the rows of a benchmark, dataclasses of one kind: completely, or not at all."""
    lines = [asdict(row) for row in rows]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(lines[0]))
    writer.writeheader()
    writer.writerows(lines)
    with replacing(Path(path)) as file:
        file.write(text.getvalue().encode())
