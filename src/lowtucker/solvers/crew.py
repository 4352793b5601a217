"""Starts that run together: of every problem of a batch one or several, which share its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from lowtucker._array import Array
from lowtucker.solvers.base import Memory
from lowtucker.solvers.models import some_of
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Attempts", "Crew", "Move", "Start", "Trace"]


@dataclass(frozen=True)
class Start(Memory):
    """A start at work.

    Attributes
    ----------
    number : int
        0 for the truncated adjoint; the others are drawn.
    damping : float
        The damping lambda.
    trace : tuple of float
        Relative residuals since the start, the latest last.
    last : bool
        Whether the residual was found to be noise: no other start follows, and this one goes on to
        its minimum.
    """

    number: int = 0
    damping: float = 1.0
    trace: tuple[float, ...] = ()
    last: bool = False

    @property
    def level(self) -> float:
        """The latest relative residual."""
        return self.trace[-1] if self.trace else 1.0


@dataclass(frozen=True)
class Attempts(Memory):
    """What is remembered of a problem.

    Attributes
    ----------
    starts : tuple of Start
        Those at work; at least one.
    begun : int
        Starts that were begun.
    ends : tuple of float
        Relative residuals where earlier starts ended.
    stuck : bool
        Whether it was given up.
    """

    starts: tuple[Start, ...] = (Start(),)
    begun: int = 1
    ends: tuple[float, ...] = ()
    stuck: bool = False

    @property
    def best(self) -> int:
        """Position of the start with the lowest residual."""
        return min(range(len(self.starts)), key=lambda k: self.starts[k].level)


@dataclass(frozen=True)
class Trace(Memory):
    """What a solver remembers whose starts run together.

    Attributes
    ----------
    problems : tuple of Attempts
        One for each problem.
    X : TuckerTensor
        The iterates of all starts at work, problem by problem: a batch.
    """

    problems: tuple[Attempts, ...]
    X: TuckerTensor

    @property
    def ends(self) -> tuple[float, ...]:
        """Relative residuals where starts of the first problem ended."""
        return self.problems[0].ends

    @property
    def starts(self) -> list[Start]:
        """All starts at work, problem by problem."""
        return [start for attempts in self.problems for start in attempts.starts]

    @property
    def owners(self) -> list[int]:
        """Position of the problem of every start at work."""
        return [k for k, attempts in enumerate(self.problems) for _ in attempts.starts]

    @property
    def best(self) -> list[int]:
        """Position of the best start of every problem, among all starts at work."""
        firsts = accumulate((len(attempts.starts) for attempts in self.problems), initial=0)
        pairs = zip(firsts, self.problems, strict=False)
        return [first + attempts.best for first, attempts in pairs]

    def select(self, which: Sequence[int]) -> Trace:
        """Memory of some problems of a batch, by position."""
        members = _members(self.owners, which)
        return Trace(tuple(self.problems[k] for k in which), self.X.take(members))

    @classmethod
    def concat(cls, parts: Sequence[Trace]) -> Trace:
        """Join memories of batches."""
        problems = tuple(attempts for part in parts for attempts in part.problems)
        return cls(problems, TuckerTensor.concat([part.X for part in parts]))

    def batched(self) -> Trace:
        """Return it as it is: starts are always a batch."""
        return self

    def single(self) -> Trace:
        """Return it as it is."""
        return self


@dataclass(frozen=True, eq=False)
class Crew:
    """Linear models of all starts at work; the problem of each, and the best of every problem."""

    model: Any
    owners: list[int]
    best: list[int]

    @property
    def residual(self) -> Array:
        """Residuals of the best starts."""
        everyone = self.best == list(range(len(self.owners)))
        return self.model.residual if everyone else some_of(self.model.residual, self.best)

    def select(self, which: Sequence[int]) -> Crew:
        """Models of some problems of a batch, by position."""
        members = _members(self.owners, which)
        place = {k: position for position, k in enumerate(which)}
        owners = [place[self.owners[i]] for i in members]
        position = {i: j for j, i in enumerate(members)}
        best = [position[self.best[k]] for k in which]
        return Crew(self.model.select(members), owners, best)

    def single(self) -> Any:
        """Model of the best start of one problem, without a leading axis."""
        return self.model.select(self.best).single()


def _members(owners: Sequence[int], which: Sequence[int]) -> list[int]:
    """Positions of the starts of some problems."""
    if owners[-1] + 1 == len(owners):  # one start each
        return list(which)
    of: dict[int, list[int]] = {}
    for i, owner in enumerate(owners):
        of.setdefault(owner, []).append(i)
    return [i for k in which for i in of[k]]


class Move(NamedTuple):
    """What a start of problem ``owner`` does next.

    From position ``member`` it tries its step, or goes to ``X``, or stays; one that is no member
    begins.
    """

    owner: int
    start: Start
    member: int | None = None
    X: TuckerTensor | None = None
    stays: bool = False

    @property
    def steps(self) -> bool:
        """Whether it tries the step that was computed for it."""
        return self.member is not None and self.X is None and not self.stays
