"""Coverage of conformal intervals on hidden entries of real data: yardstick F2."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker.lab.bench.datasets import Completion, Holes, missing_data, tasks
from lowtucker.lab.bench.timing import timed
from lowtucker.recovery import complete

__all__ = ["LEVEL", "NAMES", "CoverageRow", "rows"]

NumPyArray = np.ndarray[Any, Any]
# Data of F2
NAMES = ("D1", "D5", "D7")
LEVEL = 0.9
# Distance of the coverage from the level that is a hit
WITHIN = 0.02
# Hidden entries without which the coverage of a slice is not counted
ENOUGH = 30


@dataclass(frozen=True)
class CoverageRow:
    """Coverage of conformal intervals for the hidden entries of some data.

    Parameters
    ----------
    work : str
        Row of the yardsticks, such as D1.
    data : str
        Data, and the hidden share.
    hidden, scores : int
        Number of hidden entries, and of held-out residuals that the intervals come from.
    level, coverage : float
        Share of the hidden entries that should be, and are, within their intervals.
    width : float
        Mean width of an interval, in standard deviations of the data.
    relative_width : float
        The same relative to intervals of one width for all entries that cover as many: no method
        without scales could be better.
    quarters : tuple of float
        Coverage of the quarters of the hidden entries by the size of their prediction.
    slices, slices_plain : float
        Standard deviation of the coverage of slices with 30 or more hidden entries, and of that by
        intervals of one width.
    seconds : float
        CPU seconds of the completion.
    target : str
    met : bool or None
        Whether the coverage is within 0.02 of the level; None for data that are not available.
    note : str
        Why data were skipped.
    """

    work: str
    data: str
    hidden: int
    scores: int
    level: float
    coverage: float
    width: float
    relative_width: float
    quarters: tuple[float, ...]
    slices: float
    slices_plain: float
    seconds: float
    target: str = f"{LEVEL - WITHIN:.0%} to {LEVEL + WITHIN:.0%}"
    met: bool | None = None
    note: str = ""


def rows(folder: Path, names: Sequence[str] = NAMES, level: float = LEVEL) -> Iterator[CoverageRow]:
    """Yield a row for every completion of the data; it says which are not available.

    Parameters
    ----------
    folder : Path
        Folder of the data that come with no package.
    names : sequence of str
        Rows of the yardsticks.
    level : float
    """
    for work in tasks():
        if work.name not in names or not isinstance(work, Completion):
            continue
        reason = missing_data(work.source, folder)
        if reason:
            yield _skipped(work, level, f"skipped: {reason}")
        else:
            yield covered(work.name, work.what, work.holes(folder), level)


def _skipped(work: Completion, level: float, note: str) -> CoverageRow:
    nan = math.nan
    return CoverageRow(
        work.name, work.what, 0, 0, level, nan, nan, nan, (), nan, nan, nan, note=note
    )


def covered(work: str, data: str, holes: Holes, level: float = LEVEL) -> CoverageRow:
    """Complete data, and count the hidden entries within their intervals."""
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result, seconds = timed(lambda: complete(holes.array), time.process_time)
    where, truth = np.argwhere(holes.hidden), holes.truth[holes.hidden]
    low, high = result.interval(where, level, method="conformal")
    calibration: Any = result.calibration
    half, predicted = (high - low) / 2, (high + low) / 2
    missed = np.abs(truth - predicted)
    inside = missed <= half
    plain = np.quantile(missed, np.mean(inside))  # the width for all that covers as many
    quarter = np.searchsorted(np.quantile(np.abs(predicted), [0.25, 0.5, 0.75]), np.abs(predicted))
    coverage = float(np.mean(inside))
    return CoverageRow(
        work=work,
        data=data,
        hidden=len(truth),
        scores=len(calibration.scores),
        level=level,
        coverage=coverage,
        width=float(2 * np.mean(half) / np.nanstd(holes.truth)),
        relative_width=float(np.mean(half) / plain),
        quarters=tuple(float(np.mean(inside[quarter == k])) for k in range(4)),
        slices=_spread(where, inside),
        slices_plain=_spread(where, missed <= plain),
        seconds=seconds,
        met=abs(coverage - level) <= WITHIN,
    )


def _spread(where: NumPyArray, inside: NumPyArray) -> float:
    """Standard deviation of the coverage of slices."""
    shares: list[NumPyArray] = []
    for at in where.T:
        counts = np.bincount(at)
        many = counts >= ENOUGH
        shares.append(np.bincount(at, inside)[many] / counts[many])
    return float(np.std(np.concatenate(shares)))
