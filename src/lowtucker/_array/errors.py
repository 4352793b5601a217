"""Exceptions and warnings of the package, and the one way to word an error.

Every message has three parts: what was given, what was expected, what to try.
"""

from __future__ import annotations

import sys
import warnings

__all__ = [
    "CheckError",
    "CheckpointWarning",
    "FileFormatError",
    "NotFinite",
    "RankWarning",
    "SlowOperatorWarning",
    "UnderdeterminedWarning",
    "warn_caller",
]


class FileFormatError(ValueError):
    """A file is not what it says: wrong type, truncated, pickled, or larger than it may be."""


class NotFinite(ValueError):  # noqa: N818 - says what it is
    """Numbers that are NaN or infinite where only finite ones have a meaning."""


class CheckError(AssertionError):
    """An operator failed a property that every measurement operator must have."""


class RankWarning(UserWarning):
    """A Tucker rank that no tensor attains; the work goes on."""


class UnderdeterminedWarning(UserWarning):
    """Fewer measurements than degrees of freedom; the work goes on."""


class SlowOperatorWarning(UserWarning):
    """A correct but slow fallback is in use."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the work goes on."""


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn, pointing at the line outside the package that led here."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 2
    # by the module's name, not its file: the __init__ of a dataclass has no file
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
