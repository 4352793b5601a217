"""How many rows operators read during a call: the count behind ``passes``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, cast

__all__ = ["Readings", "at_least", "read", "reading", "side_by_side", "uncounted"]

Method = TypeVar("Method", bound=Callable[..., Any])
Item = TypeVar("Item")


class Readings:
    """Rows that were read: those of every product, by the operator that a caller asked for it.

    A batch counts as one problem, and iterates that share an operator as one iterate.

    Parameters
    ----------
    m : int
        Rows that are one pass; by default those of the readings inside of which these count.

    Attributes
    ----------
    rows : int
        Rows that were read so far.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=40, seed=1)
    >>> readings = Readings()
    >>> with readings.counting():
    ...     back = A.adjoint(A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)))
    >>> readings.rows
    80
    """

    __slots__ = ("m", "rows", "times", "within")

    def __init__(self, m: int = 0) -> None:
        self.m, self.rows = m, 0
        self.within, self.times = False, 1  # whether a product is at work, and its readings

    @contextmanager
    def counting(self) -> Iterator[Readings]:
        """Count what is read inside; it counts outside as well."""
        outside, before = _current.get(), self.rows
        if outside is not None:
            self.m = self.m or outside.m
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)
            if outside is not None:
                outside.rows += self.rows - before


_current: ContextVar[Readings | None] = ContextVar("lowtucker_readings", default=None)


def reading(method: Method) -> Method:
    """Let a method of something with ``rows_read`` count as one reading of these rows.

    What it calls itself does not count again.
    """

    @wraps(method)
    def _counted(self: Any, *arguments: Any, **options: Any) -> Any:
        count = _current.get()
        if count is None or count.within:
            return method(self, *arguments, **options)
        count.within, count.times = True, 1
        try:
            out = method(self, *arguments, **options)
        finally:
            count.within = False
        count.rows += count.times * self.rows_read
        return out

    return cast(Method, _counted)


def at_least(times: int) -> None:
    """Say that the product at work reads its rows so many times, not once."""
    count = _current.get()
    if count is not None:
        count.times = max(count.times, times)


def read(rows: int) -> None:
    """Count rows that are read other than by a product."""
    count = _current.get()
    if count is not None and not count.within:
        count.rows += rows


@contextmanager
def uncounted() -> Iterator[None]:
    """Count nothing of what is inside."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def side_by_side(problems: Iterable[Item]) -> Iterator[Item]:
    """Go through the problems of a batch: what counts is the one that reads the most."""
    count = _current.get()
    if count is None:
        yield from problems
        return
    before = most = count.rows
    for problem in problems:
        count.rows = before
        yield problem
        most = max(most, count.rows)
    count.rows = most
