"""The wall time of one call, and its limit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Clock", "TimeUp", "check_time", "mostly_used", "unwatched"]

# Share of the time that is left to what follows a fit that tries start after start
RESERVED = 0.3


class TimeUp(Exception):  # noqa: N818 - a short name for the condition
    """The time limit of the call is reached, in the middle of something that can be left out."""


class Clock:
    """Wall time since it was made, with a limit.

    Parameters
    ----------
    limit : float, optional
        Seconds; None for no limit.

    Attributes
    ----------
    skipped : list of str
        What was left out, or not finished, for lack of time.

    Examples
    --------
    >>> clock = Clock(limit=60)
    >>> clock.is_up
    False
    >>> 59 < clock.left() <= 60
    True
    """

    def __init__(self, limit: float | None = None) -> None:
        self.limit = limit
        self.skipped: list[str] = []
        self._begin = time.monotonic()

    @property
    def seconds(self) -> float:
        """Time since it was made."""
        return time.monotonic() - self._begin

    def left(self) -> float | None:
        """Seconds until the limit, negative after it; None where there is none."""
        return None if self.limit is None else self.limit - self.seconds

    @property
    def is_up(self) -> bool:
        """Whether the limit is reached."""
        return self.limit is not None and self.seconds >= self.limit

    def skip(self, what: str) -> None:
        """Note what is left out, or not finished, for lack of time; once."""
        if what not in self.skipped:
            self.skipped.append(what)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Let passes over the rows raise :class:`TimeUp` from the limit on.

        For code that can leave out what it does inside: a step of a solver, a check of a result.
        """
        with _watching(self):
            yield


_watched: ContextVar[Clock | None] = ContextVar("lowtucker_clock", default=None)


def check_time() -> None:
    """Raise :class:`TimeUp` where a limit is watched and reached. Called before every pass."""
    clock = _watched.get()
    if clock is not None and clock.is_up:
        raise TimeUp


def mostly_used(what: str) -> bool:
    """Whether the rest of the time is better spent on a verdict; ``what`` is then left out."""
    clock = _watched.get()
    if clock is None or clock.limit is None or clock.seconds < (1 - RESERVED) * clock.limit:
        return False
    clock.skip(what)
    return True


@contextmanager
def unwatched() -> Iterator[None]:
    """Finish what is inside, whatever the time."""
    with _watching(None):
        yield


@contextmanager
def _watching(clock: Clock | None) -> Iterator[None]:
    token = _watched.set(clock)
    try:
        yield
    finally:
        _watched.reset(token)
