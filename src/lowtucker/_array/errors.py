"""Exceptions and warnings of the package.

Every error message says what was given, what was expected and what to try.
"""

from __future__ import annotations

import sys
import warnings

__all__ = [
    "CheckError",
    "CheckpointWarning",
    "FileFormatError",
    "ModelWarning",
    "NotFinite",
    "OperatorWarning",
    "RankWarning",
    "SlowOperatorWarning",
    "UnderdeterminedWarning",
    "warn_caller",
]


class FileFormatError(ValueError):
    """A file is invalid: wrong type, truncated, pickled, or larger than allowed."""


class NotFinite(ValueError):  # noqa: N818 - a short name for the condition
    """Values are NaN or infinite where finite ones are required."""


class CheckError(AssertionError):
    """An operator failed a property that every measurement operator must have."""


class RankWarning(UserWarning):
    """No tensor attains the rank; the computation continues."""


class UnderdeterminedWarning(UserWarning):
    """There are fewer measurements than degrees of freedom; the computation continues."""


class SlowOperatorWarning(UserWarning):
    """A correct but slow fallback is in use."""


class ModelWarning(UserWarning):
    """Error bars presume a model that the verdict does not support; they are returned."""


class OperatorWarning(UserWarning):
    """Functions of an operator contradict each other; the computation continues."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the computation continues."""


def warn_caller(message: str, category: type[Warning]) -> None:
    """Issue a warning that points at the calling line outside the package."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 2
    # by the module's name, not its file: the __init__ of a dataclass has no file
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
