"""All that a run is made of beside its settings: what a checkpoint keeps."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from lowtucker.run.history import History
from lowtucker.status import Status

__all__ = ["Found", "Ledger"]


# Arrays that epochs change in place
COPIED = (
    "active", "statuses", "epochs", "best_residual", "best_error", "estimated", "best_estimated",
)  # fmt: skip


class Found(NamedTuple):
    """A tensor, as a batch of one, its relative residual and error; of a batch also its state."""

    X: Any
    residual: float
    error: float
    state: Any = None


@dataclass
class Ledger:
    """All that a run is made of beside its settings: what a checkpoint keeps.

    Attributes
    ----------
    active : positions of the problems that the solver at work advances
    waiting : positions of those that wait for the next solver
    statuses, epochs : of every problem
    ended : tensor of every problem that has ended, by position
    best, best_residual, best_error : the best so far of all problems
    estimated, best_estimated : whether the residual of the last row, and of the best, is an
        estimate by some of the measurements; of every problem
    first_row : row of the history with which the phase began
    seconds, rows : of the run's clock, and rows that were read, at the last row of the history
    recorded : the state of the last row of the history
    """

    active: Any
    statuses: Any
    epochs: Any
    best_residual: Any
    best_error: Any
    estimated: Any
    best_estimated: Any
    phase: int = 0
    waiting: list[int] = field(default_factory=list)
    ended: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    best: Any = None
    first_row: int = 0
    seconds: float = 0.0
    rows: int = 0
    recorded: Any = None
    history: History = field(default_factory=History)

    @classmethod
    def of(cls, count: int) -> Ledger:
        """Ledger of a run that has not begun, of so many problems."""
        unknown, no = np.full(count, np.nan), np.zeros(count, dtype=bool)
        statuses = np.full(count, Status.INTERRUPTED, dtype=object)
        epochs = np.zeros(count, dtype=int)
        return cls(np.arange(count), statuses, epochs, unknown, unknown.copy(), no, no.copy())

    def snapshot(self) -> Ledger:
        """Copy that later epochs do not change."""
        kept = replace(self, history=self.history.until_now())
        for name in COPIED:
            setattr(kept, name, getattr(self, name).copy())
        kept.waiting, kept.ended = copy(self.waiting), copy(self.ended)
        return kept
