"""When to stop: rules that are pure in the history, and combine with ``|`` and ``&``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lowtucker._arrays import as_integer, as_number
from lowtucker.status import Status

__all__ = [
    "Either",
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
        return Either(self, other)

    def __and__(self, other: StoppingRule) -> StoppingRule:
        return _Both(self, other)

    def __bool__(self) -> bool:
        """Refuse ``or`` and ``and``, which would silently drop a rule."""
        raise TypeError("Stopping rules combine with | and &, not with `or` and `and`.")


@dataclass(frozen=True)
class Either(StoppingRule):
    """One rule or the other."""

    first: StoppingRule
    second: StoppingRule

    def met(self, history: Columns) -> Mask:
        """Whether one of them is met."""
        return np.logical_or(self.first.met(history), self.second.met(history))

    def verdicts(self, history: Columns) -> list[tuple[Status, Mask]]:
        """Verdicts of both."""
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
    """The relative residual is at most ``tol``: one number, or one for every trial of a stack."""

    tol: Any
    status: Status = Status.CONVERGED

    def __post_init__(self) -> None:
        """Check the tolerance."""
        if not isinstance(self.tol, np.ndarray):
            as_number(self.tol, "tol", 0.0)

    def met(self, history: Columns) -> Mask:
        """Compare the last residual."""
        return np.asarray(history["residual"][-1] <= self.tol)


@dataclass(frozen=True)
class ErrorBelow(StoppingRule):
    """The error against X_true is at most ``tol``; for experiments, where the truth is known.

    It is no success: a verdict never uses the truth.
    """

    tol: float
    status: Status = Status.ERROR_REACHED

    def __post_init__(self) -> None:
        """Check the tolerance."""
        as_number(self.tol, "tol", 0.0)

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
        as_number(self.fall, "fall", 0.0)

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
        return np.asarray(history["epoch"][-1] >= self.epochs)


@dataclass(frozen=True)
class MaxSeconds(StoppingRule):
    """The iterations took so many seconds; looked at when an epoch ends."""

    seconds: float
    status: Status = Status.MAX_SECONDS

    def __post_init__(self) -> None:
        """Check the number."""
        as_number(self.seconds, "max_seconds", positive=True)

    def met(self, history: Columns) -> Mask:
        """Compare the clock."""
        return np.asarray(history["seconds"][-1] >= self.seconds)
