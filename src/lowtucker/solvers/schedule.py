"""Rank schedules: a rank that grows during a run."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lowtucker._array import as_integer
from lowtucker._array.errors import RankWarning
from lowtucker.thresholding import Thresholding

__all__ = ["GrowingRank"]


@dataclass(frozen=True)
class GrowingRank:
    r"""A rank that grows from ``start`` to that of the thresholding, for TIHT and StoTIHT.

    .. math:: r_k(e) = s_k + \lfloor (r_k - s_k) \, \min(e, E) / E \rfloor
        \quad \text{in epoch } e, \text{ with E the number of epochs}

    The strongest directions are found first, and those that follow start from a good tensor: the
    continuation of de Morais Goulart and Favier (2017), with equal steps. A run cannot stall while
    its rank grows.

    Parameters
    ----------
    start : int or tuple of int
        The first rank; an int counts for every entry of a rank.
    epochs : int
        E, after which the rank is that of the thresholding.

    Examples
    --------
    >>> import lowtucker as lt
    >>> schedule = GrowingRank(start=1, epochs=10)
    >>> [schedule.at(lt.HOSVD((5, 5, 3)), epoch).rank for epoch in (0, 4, 10)]
    [(1, 1, 1), (2, 2, 1), (5, 5, 3)]
    >>> A = lt.gaussian((8, 8, 8), m=300, seed=1)
    >>> y = A.forward(lt.random_tucker((8, 8, 8), (3, 3, 3), seed=0))
    >>> lt.recover(A, y, lt.SeMP((3, 3, 3)), solver=lt.TIHT(schedule=schedule)).success
    True
    """

    start: Any = 1
    epochs: int = 50

    def __post_init__(self) -> None:
        """Check what can be checked without a rank."""
        object.__setattr__(self, "epochs", as_integer(self.epochs, "epochs"))
        several = isinstance(self.start, tuple | list)
        start = tuple(as_integer(r, "start") for r in (self.start if several else (self.start,)))
        object.__setattr__(self, "start", start if several else start[0])

    def at(
        self, thresholding: Thresholding, epoch: int, shape: tuple[int, ...] | None = None
    ) -> Any:
        """Thresholding in an epoch, counted from 0; at the rank that tensors of a shape attain."""
        whole: Any = thresholding
        return whole if epoch >= self.epochs else _grown(self, whole, epoch, shape)

    def _rank(self, rank: Any, epoch: int) -> Any:
        """Rank in an epoch."""
        first, share = self._first(rank), max(0, epoch) / self.epochs
        if not isinstance(rank, tuple):
            return first + int((rank - first) * share)
        return tuple(s + int((r - s) * share) for s, r in zip(first, rank, strict=True))

    def check(self, thresholding: Thresholding) -> None:
        """Refuse a thresholding whose rank cannot grow from the start."""
        rank = thresholding.rank
        if rank is None:
            raise ValueError(
                f"schedule needs a thresholding with a rank, got {thresholding!r}. Leave one of "
                "them out, or try lowtucker.HOSVD."
            )
        first = self._first(rank)
        pairs = zip(first, rank, strict=True) if isinstance(rank, tuple) else [(first, rank)]
        if any(s > r for s, r in pairs):
            raise ValueError(
                f"start = {self.start} of the schedule is larger than the rank, {rank}. Try "
                "GrowingRank(start=1)."
            )

    def _first(self, rank: Any) -> Any:
        """Start with as many entries as a rank has."""
        if not isinstance(rank, tuple):
            if isinstance(self.start, int):
                return self.start
        elif isinstance(self.start, int):
            return (self.start,) * len(rank)
        elif len(self.start) == len(rank):
            return self.start
        raise ValueError(
            f"start = {self.start} of the schedule does not fit a rank of {rank}. Try "
            "GrowingRank(start=1)."
        )


@lru_cache(maxsize=64)  # every step of an epoch asks
def _grown(
    schedule: GrowingRank, thresholding: Any, epoch: int, shape: tuple[int, ...] | None
) -> Any:
    """Thresholding of an epoch, without a warning of ranks that are passed over."""
    made = thresholding.at_rank(schedule._rank(thresholding.rank, epoch))
    if shape is None:
        return made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        return made.for_shape(shape)
