"""Measuring side by side: ratios inside one run, since machines are shared and noisy."""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Row", "holds", "one_thread", "side_by_side", "write_csv"]


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


def one_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise ImportError(
            'Benchmarks need threadpoolctl and TensorLy. Try: pip install "lowtucker[bench]"'
        ) from error
    limits: AbstractContextManager[Any] = threadpool_limits(1)
    return limits


def holds(value: float, target: str) -> bool:
    """Whether a number is what a target such as ``<= 4`` asks for; NaN never is."""
    relation, bound = target.split()
    return value <= float(bound) if relation == "<=" else value >= float(bound)


def write_csv(rows: Iterable[Any], path: str | Path) -> None:
    """Write the rows of a benchmark: dataclasses of one kind."""
    lines = [asdict(row) for row in rows]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
