"""Rank by cross-validation: increase it while predictions improve, then decrease it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from lowtucker.estimators.arguments import Rank
from lowtucker.tensor.rank import attainable_rank

__all__ = ["RankGrowth"]

NumPyArray = np.ndarray[Any, Any]
# Consecutive ranks without improvement before growth in all modes ends
MISSES = 2
# Share of the squared error by which a larger rank must improve it
CLEARLY = 0.01


class RankGrowth:
    """Search for a rank by cross-validation.

    The rank grows in all modes at once until predictions become worse, or twice do not improve;
    then in single modes (and pairs of modes, if too few data ended the first stage); then it
    decreases in single modes while that costs less than a standard error over the folds.

    Parameters
    ----------
    errors : callable
        Returns the squared prediction errors of a rank, one for every fold.
    limit : tuple of int
        The largest rank.
    allowed : callable
        Returns whether there are enough data for a rank.
    whole : float
        Sum of squares of the predicted values.
    tol : float
        Relative error (root of the share of ``whole``) that counts as zero.

    Examples
    --------
    >>> import numpy as np
    >>> def errors(rank):  # of rank (2, 3, 2), with noise of 1
    ...     missing = sum(max(0, a - b) for a, b in zip((2, 3, 2), rank))
    ...     return (10 * missing + 1 + 0.1 * sum(rank)) * np.array([1.0, 1.2, 0.9])
    >>> RankGrowth(errors, (5, 5, 5), lambda rank: True, 100.0, 0.0).run()[0]
    (2, 3, 2)
    """

    def __init__(
        self,
        errors: Callable[[Rank], NumPyArray],
        limit: Rank,
        allowed: Callable[[Rank], bool],
        whole: float,
        tol: float,
    ) -> None:
        self.errors, self.limit, self.allowed = errors, limit, allowed
        self.whole, self.nothing = whole or 1.0, tol * tol * whole
        self.tried: dict[Rank, NumPyArray] = {}

    def run(self) -> tuple[Rank, str]:
        """Return the rank, and a note on the search."""
        ones = (1,) * len(self.limit)
        if attainable_rank(self.limit) == ones:
            return ones, ""
        if not self.allowed(ones):
            return ones, f"Rank {ones}, the smallest: there are too few data for cross-validation."
        best, stopped = self._grown(ones)
        best = self._shrunk(self._grown_in_some(best, pairs=stopped or best == ones))
        listed = ", ".join(
            f"{r} {math.sqrt(float(e.sum()) / self.whole):.3g}" for r, e in self.tried.items()
        )
        return best, f"Rank {best} was found by cross-validation. Held-out errors: {listed}."

    def _of(self, rank: Rank) -> NumPyArray:
        if rank not in self.tried:
            self.tried[rank] = self.errors(rank)
        return self.tried[rank]

    def _better(self, one: Rank, other: Rank) -> bool:
        """Whether one rank predicts better than another, by more than a standard error."""
        gain = self._of(other) - self._of(one)
        error = float(np.std(gain, ddof=1)) * math.sqrt(len(gain))
        least = max(error, CLEARLY * float(self._of(other).sum()), self.nothing)
        return float(gain.sum()) > least

    def _larger(self, rank: Rank, modes: Sequence[int]) -> Rank:
        """Increase the rank by one in some modes, within the limit and what is attainable."""
        more = (min(r + (k in modes), self.limit[k]) for k, r in enumerate(rank))
        return attainable_rank(tuple(more))

    def _grown(self, rank: Rank) -> tuple[Rank, bool]:
        """Grow in all modes; also return whether too few data ended the growth."""
        best, misses = rank, 0
        while misses < MISSES and float(self._of(best).sum()) > self.nothing:
            larger = self._larger(rank, range(len(rank)))
            if larger == rank or not self.allowed(larger):
                return best, larger != rank
            misses = 0 if self._better(larger, best) else misses + 1
            if misses and self._better(best, larger):
                break
            best, rank = (best if misses else larger), larger
        return best, False

    def _grown_in_some(self, rank: Rank, *, pairs: bool) -> Rank:
        modes = range(len(rank))
        sets = [some for k in ((1, 2) if pairs else (1,)) for some in combinations(modes, k)]
        while float(self._of(rank).sum()) > self.nothing:
            around = {self._larger(rank, some) for some in sets} - {rank}
            around = {r for r in around if self.allowed(r) and self._better(r, rank)}
            if not around:
                break
            rank = self._least(around)
        return rank

    def _shrunk(self, rank: Rank) -> Rank:
        while True:
            around = {
                attainable_rank((*rank[:k], r - 1, *rank[k + 1 :]))
                for k, r in enumerate(rank)
                if r > 1
            }
            around = {r for r in around if not self._better(rank, r)}
            if not around:
                return rank
            rank = self._least(around)

    def _least(self, ranks: set[Rank]) -> Rank:
        return min(sorted(ranks), key=lambda rank: float(self._of(rank).sum()))
