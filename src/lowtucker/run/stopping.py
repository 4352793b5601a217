"""When to stop: rules that are pure in the history, and combine with ``|`` and ``&``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lowtucker._array import as_integer, as_number, as_time
from lowtucker.status import Status

__all__ = [
    "Either",
    "ErrorBelow",
    "MaxEpochs",
    "MaxSeconds",
    "ResidualBelow",
    "Stalled",
    "StoppingRule",
    "conditions",
    "epochs_allowed",
    "tolerance",
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

    def _check_status(self) -> None:
        """Check what the rule ends a run with."""
        if not isinstance(self.status, Status):
            raise TypeError(
                f"status must be a Status, got {self.status!r:.80}. Try lowtucker.Status.CONVERGED."
            )

    def __bool__(self) -> bool:
        """Refuse ``or`` and ``and``, which would silently drop a rule."""
        raise TypeError("Stopping rules combine with | and &, not with `or` and `and`.")


@dataclass(frozen=True)
class Either(StoppingRule):
    """One rule or the other."""

    first: StoppingRule
    second: StoppingRule

    def __post_init__(self) -> None:
        """Check both."""
        _check_rules(self.first, self.second)

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

    def __post_init__(self) -> None:
        _check_rules(self.first, self.second)

    def met(self, history: Columns) -> Mask:
        return np.logical_and(self.first.met(history), self.second.met(history))

    def verdicts(self, history: Columns) -> list[tuple[Status, Mask]]:
        other = self.second.met(history)
        return [(s, np.logical_and(mask, other)) for s, mask in self.first.verdicts(history)]


def _check_rules(*rules: Any) -> None:
    for rule in rules:
        if not isinstance(rule, StoppingRule):
            raise TypeError(
                f"stop must be made of stopping rules, got {type(rule).__name__}. "
                "Try lowtucker.ResidualBelow(1e-6) | lowtucker.MaxEpochs(100)."
            )


@dataclass(frozen=True)
class ResidualBelow(StoppingRule):
    """The relative residual is at most ``tol``: one number, or one for every trial of a stack.

    To converge it must be below 1, the residual of the zero tensor.
    """

    tol: Any
    status: Status = Status.CONVERGED

    def __post_init__(self) -> None:
        """Check the tolerance."""
        self._check_status()
        for value in self.tol.flat if _is_vector(self.tol) else [self.tol]:
            number = as_number(value, "tol", 0.0)
            # a noise floor may be above: noise that leaves nothing to be found
            if number >= 1 and self.status is Status.CONVERGED:
                raise ValueError(
                    f"tol must be below 1, got {number:g}: the zero tensor has the relative "
                    "residual 1. Try tol=1e-6."
                )

    def met(self, history: Columns) -> Mask:
        """Compare the last residual."""
        residual = np.asarray(history["residual"][-1])
        if np.shape(self.tol) not in ((), residual.shape):
            wanted = f"or one for each of {len(residual)} trials, " if residual.ndim else ""
            raise ValueError(
                f"tol must be one number, {wanted}got shape {np.shape(self.tol)}. Try tol=1e-6."
            )
        return np.asarray(residual <= self.tol)


def _is_vector(tol: Any) -> bool:
    return isinstance(tol, np.ndarray) and tol.ndim == 1 and tol.size > 0


@dataclass(frozen=True)
class ErrorBelow(StoppingRule):
    """The error against X_true is at most ``tol``; for experiments, where the truth is known.

    It is no success: a verdict never uses the truth.
    """

    tol: float
    status: Status = Status.ERROR_REACHED

    def __post_init__(self) -> None:
        """Check the tolerance."""
        self._check_status()
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
        self._check_status()
        as_integer(self.window, "window")
        if as_number(self.fall, "fall", 0.0) >= 1:
            raise ValueError(f"fall must be a share below 1, got {self.fall:g}. Try fall=0.01.")

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
        self._check_status()
        as_integer(self.epochs, "max_epochs")

    def met(self, history: Columns) -> Mask:
        """Compare the epochs of this call."""
        return np.asarray(history["epoch"][-1] >= self.epochs)


@dataclass(frozen=True)
class MaxSeconds(StoppingRule):
    """The iterations took so many seconds, never for ``math.inf``; looked at after every epoch."""

    seconds: float
    status: Status = Status.MAX_SECONDS

    def __post_init__(self) -> None:
        """Check the number."""
        self._check_status()
        as_time(self.seconds, "max_seconds")

    def met(self, history: Columns) -> Mask:
        """Compare the clock."""
        return np.asarray(history["seconds"][-1] >= self.seconds)


def epochs_allowed(rule: Any) -> int | None:
    """Largest number of epochs that a rule allows, for progress bars."""
    if isinstance(rule, MaxEpochs):
        return rule.epochs
    limits = [
        epochs_allowed(getattr(rule, part)) for part in ("first", "second") if hasattr(rule, part)
    ]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def conditions(rule: Any) -> str:
    """What a rule asks for beside limits of epochs and time, as a text."""
    if isinstance(rule, MaxEpochs | MaxSeconds):
        return ""
    if hasattr(rule, "first"):
        parts = [conditions(rule.first), conditions(rule.second)]
        return f"{type(rule).__name__}({', '.join(filter(None, parts))})"
    return repr(rule)


def tolerance(rule: Any) -> Any:
    """Largest residual that ends a run by itself; a rule that is met only with another is none.

    A number, or an array of one for each problem.
    """
    if isinstance(rule, ResidualBelow):
        return rule.tol
    if isinstance(rule, Either):
        return np.maximum(tolerance(rule.first), tolerance(rule.second))
    return -math.inf
