"""Batches that are too large for memory are cut into parts, which run one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from lowtucker._array import to_numpy
from lowtucker._array.memory import available_memory
from lowtucker.problem import Problem
from lowtucker.run.history import History
from lowtucker.run.result import Result
from lowtucker.solvers import Solver, State
from lowtucker.tensor.rank import check_rank
from lowtucker.thresholding import Iterate

__all__ = ["joined_parts", "parts_of", "some_of_batch"]

# Bytes beside A that a batch may take where so many are free, and the share of what is free
ROOM, SHARE = 1 << 29, 0.5


def parts_of(problem: Problem, phases: Sequence[Solver], rank: Any) -> list[range]:
    """Positions of the problems of a batch that run together."""
    count = problem.batch_shape[0]
    ones = (1,) * len(problem.shape)  # of solvers that need no rank
    rank = ones if rank is None else check_rank(rank, problem.shape, warn=False)
    numbers = max(solver.memory_estimate(problem, rank) for solver in phases) / count
    room = min(ROOM, SHARE * available_memory())
    together = int(room / (numbers * to_numpy(problem.y[..., :0]).itemsize))
    height = min(count, max(1, together))
    parts = -(-count // height)
    cuts = [count * k // parts for k in range(parts + 1)]  # of about equal length
    return [range(a, b) for a, b in pairwise(cuts)]


def some_of_batch(value: Any, part: range) -> Any:
    """Part of a batch of tensors, arrays or states; None stays None."""
    if value is None:
        return None
    if isinstance(value, Iterate):
        return value.take(list(part))
    return value.select(list(part)) if isinstance(value, State) else value[part.start : part.stop]


def joined_parts(results: Sequence[Result]) -> Result:
    """Result of a batch from those of its parts, in their order."""
    first = results[0]

    def together(name: str) -> Any:
        return np.concatenate([getattr(one, name) for one in results])

    return replace(
        first,
        X=type(first.X).concat([one.X for one in results]),
        residual=together("residual"),
        status=together("status"),
        epochs=together("epochs"),
        error=None if first.error is None else together("error"),
        history=_side_by_side([one.history for one in results]),
        passes=max(one.passes for one in results),
        seconds=sum(one.seconds for one in results),
        state=None,
        findings=tuple(finding for one in results for finding in one.findings),
        each=tuple(verdict for one in results for verdict in one.each),
    )


def _side_by_side(histories: Sequence[History]) -> History:
    """Histories of parts as one, which is as long as the longest; the others end before."""
    rows = max(history.rows for history in histories)
    longest = next(history for history in histories if history.rows == rows)
    columns: dict[str, Any] = {}
    for name in longest:
        every = [_lengthened(history[name], rows) for history in histories]
        if longest[name].ndim > 1:
            columns[name] = np.concatenate(every, axis=1)
        elif name == "seconds":
            columns[name] = np.sum(every, axis=0)
        else:
            columns[name] = longest[name]
    ends = np.concatenate(
        [np.arange(rows)[:, None] < [h.rows] * h["running"].shape[1] for h in histories], axis=1
    )
    columns["running"] = columns["running"] & ends
    return History.of(columns)


def _lengthened(column: Any, rows: int) -> Any:
    """Column with its last entry repeated."""
    return column[np.minimum(np.arange(rows), len(column) - 1)]
