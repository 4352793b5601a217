"""Exceptions and warnings of the package, and the one way to word an error.

Every message has three parts: what was given, what was expected, what to try.
"""

from __future__ import annotations

__all__ = [
    "CheckError",
    "FileFormatError",
    "RankWarning",
    "SlowOperatorWarning",
    "UnderdeterminedWarning",
]


class FileFormatError(ValueError):
    """A file is not what it says: wrong type, truncated, pickled, or larger than it may be."""


class CheckError(AssertionError):
    """An operator failed a property that every measurement operator must have."""


class RankWarning(UserWarning):
    """A Tucker rank that no tensor attains; the work goes on."""


class UnderdeterminedWarning(UserWarning):
    """Fewer measurements than degrees of freedom; the work goes on."""


class SlowOperatorWarning(UserWarning):
    """A correct but slow fallback is in use."""
