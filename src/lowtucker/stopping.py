"""When to stop: rules that are pure in the history, and combine with ``|`` and ``&``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lowtucker._arrays import as_integer
from lowtucker.status import Status

__all__ = [
    "ErrorBelow",
    "MaxEpochs",
    "MaxSeconds",
    "ResidualBelow",
    "Stalled",
    "StoppingRule",
]

Mask = np.ndarray[Any, Any]


class Columns(Protocol):
    """What a rule sees of a history: its columns, one row an epoch, then one entry a trial."""

    def __getitem__(self, name: str) -> Mask: ...
    def __contains__(self, name: object) -> bool: ...


class StoppingRule(ABC):
    """A condition on the history, and the status it ends a run with."""

    status: Status

    @abstractmethod
    def met(self, history: Columns) -> Mask:
        """Whether the last row fulfils it: a boolean, or one for every trial."""

    def verdicts(self, history: Columns) -> list[tuple[Status, Mask]]:
        """Statuses and where they hold, the most important first."""
        return [(self.status, self.met(history))]

    def __or__(self, other: StoppingRule) -> StoppingRule:
        return _Either(self, other)

    def __and__(self, other: StoppingRule) -> StoppingRule:
        return _Both(self, other)


@dataclass(frozen=True)
class _Either(StoppingRule):
    first: StoppingRule
    second: StoppingRule

    def met(self, history: Columns) -> Mask:
        return np.logical_or(self.first.met(history), self.second.met(history))

    def verdicts(self, history: Columns) -> list[tuple[Status, Mask]]:
        return self.first.verdicts(history) + self.second.verdicts(history)


@dataclass(frozen=True)
class _Both(StoppingRule):
    first: StoppingRule
    second: StoppingRule

    def met(self, history: Columns) -> Mask:
        return np.logical_and(self.first.met(history), self.second.met(history))

    def verdicts(self, history: Columns) -> list[tuple[Status, Mask]]:
        other = self.second.met(history)
        return [(s, np.logical_and(mask, other)) for s, mask in self.first.verdicts(history)]


@dataclass(frozen=True)
class ResidualBelow(StoppingRule):
    """The relative residual is at most ``tol``."""

    tol: float
    status: Status = Status.CONVERGED

    def __post_init__(self) -> None:
        """Check the tolerance."""
        _check_number(self.tol, "tol", zero=True)

    def met(self, history: Columns) -> Mask:
        """Compare the last residual."""
        return np.asarray(history["residual"][-1] <= self.tol)


@dataclass(frozen=True)
class ErrorBelow(StoppingRule):
    """The error against X_true is at most ``tol``; for experiments, where the truth is known."""

    tol: float
    status: Status = Status.CONVERGED

    def __post_init__(self) -> None:
        """Check the tolerance."""
        _check_number(self.tol, "tol", zero=True)

    def met(self, history: Columns) -> Mask:
        """Compare the last error."""
        if "error" not in history:
            raise ValueError("ErrorBelow needs X_true: give it to the call.")
        return np.asarray(history["error"][-1] <= self.tol)


@dataclass(frozen=True)
class Stalled(StoppingRule):
    """The best residual of the last ``window`` rows fell by less than the share ``fall``."""

    window: int = 50
    fall: float = 0.01
    status: Status = Status.STALLED

    def __post_init__(self) -> None:
        """Check the settings."""
        as_integer(self.window, "window")
        _check_number(self.fall, "fall", zero=True)

    def met(self, history: Columns) -> Mask:
        """Compare the best of the window with the best before it."""
        residual = history["residual"]
        if len(residual) <= self.window:
            return np.zeros(residual.shape[1:], dtype=bool)
        before = residual[: -self.window].min(axis=0)
        recent = residual[-self.window :].min(axis=0)
        return np.asarray(recent > (1 - self.fall) * before)


@dataclass(frozen=True)
class MaxEpochs(StoppingRule):
    """So many epochs were done in this call."""

    epochs: int
    status: Status = Status.MAX_EPOCHS

    def __post_init__(self) -> None:
        """Check the number."""
        as_integer(self.epochs, "max_epochs")

    def met(self, history: Columns) -> Mask:
        """Compare the epochs of this call."""
        return np.asarray(history["epoch"][-1] - history["epoch"][0] >= self.epochs)


@dataclass(frozen=True)
class MaxSeconds(StoppingRule):
    """The iterations took so many seconds; looked at when an epoch ends."""

    seconds: float
    status: Status = Status.MAX_SECONDS

    def __post_init__(self) -> None:
        """Check the number."""
        _check_number(self.seconds, "max_seconds")

    def met(self, history: Columns) -> Mask:
        """Compare the clock."""
        return np.asarray(history["seconds"][-1] >= self.seconds)


def _check_number(value: Any, name: str, zero: bool = False) -> None:
    positive = "a number, zero or more" if zero else "a positive number"
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name} must be {positive}, got {value!r}.")
    if math.isnan(value) or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name} must be {positive}, got {value!r}.")
