"""Summaries of ``bench verdict``: how often verdicts are right, and how good estimates are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lowtucker.lab.bench import timing
from lowtucker.lab.bench.verdict import (
    CRASH,
    FAILURE,
    FALSE_FAILURE,
    FALSE_SUCCESS,
    MISSED,
    NEGLIGIBLE,
    SKIPPED,
    SUCCESS,
    Row,
)

__all__ = ["CLASSES", "Estimates", "counts", "estimates", "flips", "goals", "grouped", "slowest"]

# Columns of the confusion table, from left to right
CLASSES = (SUCCESS, FALSE_SUCCESS, FAILURE, FALSE_FAILURE, MISSED, CRASH)
# Ratios of error to estimate: those that count as good, and the quantiles of the table
GOOD, QUANTILES = (0.5, 2.0), (0.05, 0.5, 0.95)
# Goals: shares of the problems, of the recoverable ones, of the successes
MOST_FALSE_SUCCESSES, MOST_FALSE_FAILURES, LEAST_GOOD, MOST_FLIPS = 0.001, 0.03, 0.95, 0.001


class Estimates(NamedTuple):
    """Estimates of the successes whose error is not negligible.

    Parameters
    ----------
    successes, without : int
        How many there are, and how many of them have no estimate.
    quantiles : tuple of float
        Quantiles 5, 50 and 95 % of the ratio of error to estimate; NaN if there are no estimates.
    good : int
        How many ratios are between 0.5 and 2.
    intervals, inside : int
        How many have an interval, and how many of these contain the error.
    """

    successes: int
    without: int
    quantiles: tuple[float, ...]
    good: int
    intervals: int
    inside: int


def grouped(rows: Sequence[Row], column: str) -> dict[str, list[Row]]:
    """Return the rows that were not skipped by the values of a column, in the order of these."""
    kept = [row for row in rows if row.verdict != SKIPPED]
    values = sorted({getattr(row, column) for row in kept})
    return {value: [row for row in kept if getattr(row, column) == value] for value in values}


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many rows have each verdict of :data:`CLASSES`."""
    return {name: sum(row.verdict == name for row in rows) for name in CLASSES}


def estimates(rows: Sequence[Row]) -> Estimates:
    """Compare estimates with errors, over the successes."""
    found = [row for row in rows if row.success and row.error > NEGLIGIBLE]
    ratios = np.array([row.error / row.estimate for row in found if row.estimate > 0])
    inside = [row.low <= row.error <= row.high for row in found if not math.isnan(row.high)]
    quantiles = np.quantile(ratios, QUANTILES) if ratios.size else [math.nan] * len(QUANTILES)
    return Estimates(
        successes=len(found),
        without=len(found) - ratios.size,
        quantiles=tuple(map(float, quantiles)),
        good=int(np.sum((ratios >= GOOD[0]) & (ratios <= GOOD[1]))),
        intervals=len(inside),
        inside=sum(inside),
    )


def flips(rows: Sequence[Row], others: Sequence[Row]) -> list[int]:
    """Return the indices of problems whose verdicts differ between two runs."""
    return [
        row.index
        for row, other in zip(rows, others, strict=True)
        if (row.success, row.status) != (other.success, other.status)
    ]


def slowest(rows: Sequence[Row], count: int = 10) -> list[Row]:
    """Return the rows that took the most CPU seconds, the slowest first."""
    measured = [row for row in rows if not math.isnan(row.seconds)]
    return sorted(measured, key=lambda row: -row.seconds)[:count]


def goals(rows: Sequence[Row], others: Sequence[Row] | None = None) -> list[timing.Row]:
    """Compare shares with the goals.

    Parameters
    ----------
    rows : sequence of Row
    others : sequence of Row, optional
        Rows of the same problems with another BLAS kernel.
    """
    judged = [row for row in rows if row.verdict != SKIPPED]
    recoverable = sum(row.recoverable for row in judged)
    number, found = counts(judged), estimates(judged)
    made = [
        _goal(FALSE_SUCCESS, number[FALSE_SUCCESS], len(judged), f"<= {MOST_FALSE_SUCCESSES}"),
        _goal(FALSE_FAILURE, number[FALSE_FAILURE], recoverable, f"<= {MOST_FALSE_FAILURES}"),
        _goal(MISSED, number[MISSED], recoverable),
        _goal("estimate within a factor 2", found.good, found.successes, f">= {LEAST_GOOD}"),
        _goal("error in its interval", found.inside, found.intervals),
        _goal(CRASH, number[CRASH], len(judged), "<= 0"),
    ]
    if others is not None:
        changed = len(flips(rows, others))
        made.append(_goal("another verdict", changed, len(rows), f"<= {MOST_FLIPS}"))
    return made


def _goal(what: str, count: int, total: int, target: str = "") -> timing.Row:
    share = count / total if total else math.nan
    met = timing.holds(share, target) if target and total else None
    return timing.Row(what, share, target, met, f"{count} of {total}")
