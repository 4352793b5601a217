"""The rank, where it is not known: a search, and verdicts on one that was given."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import like, real_dtype, to_numpy
from lowtucker._array.random import Stream, as_seed, generator
from lowtucker.fitting import OVER, Fit
from lowtucker.problem import Problem
from lowtucker.result import Result
from lowtucker.solve import automatic
from lowtucker.solvers import RGN
from lowtucker.solvers.noise import PLENTY
from lowtucker.solvers.rgn import LARGE
from lowtucker.status import Status
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom, spectra
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["RankSearch", "larger_rank_fits", "search_rank", "smaller_rank"]

# Share of the measurements that is held out
SHARE = 1 / 8
# Measurements per degree of freedom of the largest rank that is tried
MARGIN = 1.3
# A larger rank must lower the held-out residual by so much
BETTER = 0.02
# Held-out residuals above this tell little: the search goes on to the largest rank
POOR = 0.3
# A rank is too small when a larger one lowers the held-out residual by so much, and by more than so
# many standard errors
CLEARLY, SURELY = 0.1, 2.0
# A decision is borderline where thresholds moved by so much would change it: of the residual's
# fall, of standard errors, and of the error to be expected (a factor)
NEAR, DOUBTFUL, ROUGHLY = 0.05, 0.5, 1.2

Rank = tuple[int, ...]


@dataclass(frozen=True)
class RankSearch:
    """Find the Tucker rank: ``recover(A, y, rank=RankSearch(max=(10, 10, 5)))``.

    Ranks grow in all modes at once. Of every fit, directions of a mode without which the
    measurements that were held out (every eighth, at random) are foretold as well, are dropped.
    The search ends when a larger rank foretells them no better, and the rank that was found is
    fitted to all measurements.

    Parameters
    ----------
    max : tuple of int, optional
        The largest rank to try, one entry a mode.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((8, 8, 8), m=300, seed=1)
    >>> y = A.forward(lt.random_tucker((8, 8, 8), (2, 1, 2), seed=0))
    >>> lt.recover(A, y, rank="auto").rank
    (2, 1, 2)
    """

    max: Rank | None = None

    def limit(self, shape: Rank) -> Rank:
        """Largest rank of a shape that is to be tried."""
        if self.max is None:
            return shape
        try:
            return check_rank(self.max, shape, warn=False)
        except (TypeError, ValueError) as error:
            raise type(error)(f"RankSearch(max={self.max!r}): {error}") from None


def search_rank(problem: Problem, search: RankSearch, fit: Fit) -> tuple[Result, bool]:
    """Find the rank by held-out measurements, and fit it to all; and whether it is settled.

    It is not where the measurements do not suffice to try larger ranks, while ranks still got
    better.
    """
    limit = search.limit(problem.shape)
    train, held = _split(problem, fit) or (None, None)
    best: _Candidate | None = None
    rank: Rank = (0,) * len(limit)
    trimmed: set[int] = set()
    result, misses, settled, notes = None, 0, False, []
    rivals: set[Rank] = set()
    while train is not None and held is not None and not settled:
        larger = _larger(rank, limit, train, trimmed)
        if larger is None:
            tried = misses > 0 or rank == attainable_rank(limit)  # a larger one, or all
            settled = best is not None and best.score < POOR and tried
            break
        solver = automatic(train, larger, quick=True) if fit.solver == "auto" else fit.solver
        label = "rank " + ",".join(map(str, larger))
        result = fit(train, larger, solver=solver, before=result, label=label)
        found = _Candidate.of(result.X, held, fit).trimmed(held, fit)
        notes.append(f"{found.X.rank} {found.score:.2g}")
        exact = found.score <= fit.tol
        if best is not None and not exact and found.is_near(best):
            rivals |= {found.X.rank, best.X.rank}
        if best is None or exact or found.beats(best):
            trimmed = {k for k, r in enumerate(found.X.rank) if r < larger[k]}
            best, rank, misses, settled = found, found.X.rank, 0, exact
        else:
            rank, trimmed, misses = larger, set(), misses + 1
            # a larger rank comes down to this one, or is not better again and again
            same = all(a <= b for a, b in zip(found.X.rank, best.X.rank, strict=True))
            settled = best.score < POOR and (same or misses > 1)
        if result.status is Status.INTERRUPTED:
            return replace(result, notes=("The search for the rank was not finished.",)), False
        if result.status is Status.MAX_SECONDS:
            break
    if best is None:
        notes.append("there are too few measurements to hold any out")
        start = problem.A.spectral_start(problem.y, (1,) * len(limit))
    else:
        start = best.X
    solver = RGN() if fit.solver == "auto" else fit.solver  # from a good start
    result = fit(problem, start.rank, start=start, solver=solver, before=result, label="all rows")
    rivals |= set() if best is None else best.rivals
    while (smaller := smaller_rank(result)) is not None and result.status not in OVER:
        notes.append(f"{result.rank} has directions smaller than the error to be expected")
        start = hosvd(result.X, smaller, warn=False)
        result = fit(problem, smaller, start=start, solver=solver, before=result, label="all rows")
    text = f"Rank {result.rank} was found. Held-out residuals: {', '.join(notes)}."
    if best is None or not settled:
        text += " The search did not come to an end: more measurements, or time, may lead further."
    rivals |= {smaller_rank(result, factor) or result.rank for factor in (1 / ROUGHLY, ROUGHLY)}
    return replace(result, notes=(text,), borderline=_close_call(result.rank, rivals)), settled


def _close_call(rank: Rank, rivals: set[Rank]) -> tuple[str, ...]:
    """Remark on ranks that were almost chosen instead."""
    others = ", ".join(map(str, sorted(rivals - {rank})))
    return (f"Rank {rank} was chosen by a small margin over {others}.",) if others else ()


class _Candidate(NamedTuple):
    """A tensor, and what it leaves of measurements that were held out."""

    X: TuckerTensor
    losses: Any
    score: float
    rivals: frozenset[Rank] = frozenset()  # ranks that predict almost as well

    @classmethod
    def of(cls, X: TuckerTensor, held: Problem, fit: Fit) -> _Candidate:
        losses = fit.losses(held, held.residual(X))
        whole = float(np.sum(fit.losses(held, held.y)))
        return cls(X, losses, float((np.sum(losses) / (whole or 1.0)) ** 0.5))

    def worse_by(self, other: _Candidate) -> float:
        """Mean by which its losses exceed another's, in standard errors."""
        more = self.losses - other.losses
        mean, error = float(np.mean(more)), float(np.std(more)) / len(more) ** 0.5
        return mean / error if error else math.copysign(math.inf, mean) if mean else 0.0

    def beats(self, other: _Candidate, fall: float = BETTER, errors: float = 1.0) -> bool:
        """Whether it is clearly better than one of smaller rank."""
        return self.score < (1 - fall) * other.score and other.worse_by(self) > errors

    def is_near(self, other: _Candidate, fall: float = BETTER, errors: float = 1.0) -> bool:
        """Whether thresholds moved a little would change the answer of :meth:`beats`."""
        return self.beats(other, fall - NEAR, errors - DOUBTFUL) != self.beats(
            other, fall + NEAR, errors + DOUBTFUL
        )

    def trimmed(self, held: Problem, fit: Fit) -> _Candidate:
        """Without the directions that are not missed: by one standard error, if at all."""
        now = lowest = self._replace(X=hosvd(self.X, self.X.rank, warn=False))  # in order
        close = []
        for k in range(len(self.X.rank)):
            while now.X.rank[k] > 1:
                less = _Candidate.of(_without_last_direction(now.X, k), held, fit)
                missed = less.worse_by(lowest) if less.score > fit.tol else -math.inf
                if abs(missed - 1) < DOUBTFUL:
                    close += [less.X.rank, now.X.rank]
                if missed > 1:
                    break
                now = less
                lowest = less if less.score < lowest.score else lowest
        rank = attainable_rank(now.X.rank)
        rivals = frozenset(map(attainable_rank, close)) - {rank}
        return now._replace(X=hosvd(now.X, rank, warn=False), rivals=rivals)


class Comparison(NamedTuple):
    """What held-out measurements say of larger ranks.

    Attributes
    ----------
    rank : tuple of int or None
        A larger rank that predicts them clearly better.
    nothing_better : bool
        Whether no fit predicts them clearly better.
    borderline : tuple of str
        Remark, where slightly different numbers would have changed the answer.
    """

    rank: Rank | None
    nothing_better: bool
    borderline: tuple[str, ...] = ()


def larger_rank_fits(problem: Problem, result: Result, fit: Fit) -> Comparison:
    """Look for a larger rank that predicts held-out measurements clearly better.

    Both ranks are fitted to the others. Where the larger fit needs no larger rank after all, the
    one that was given had run into a local minimum. Where nothing predicts them better, what is
    left is noise to any fit. Neither is said where there are too few measurements to tell (2.8 per
    degree of freedom of the larger rank).
    """
    larger = attainable_rank(
        tuple(min(r + 1, n) for r, n in zip(result.rank, problem.shape, strict=True))
    )
    enough = (1 - SHARE) * problem.equations >= PLENTY * degrees_of_freedom(problem.shape, larger)
    parts = _split(problem, fit) if enough and larger != result.rank else None
    if parts is None:
        return Comparison(None, False)
    train, held = parts
    again = fit(train, result.rank, start=result.X, solver=RGN(), before=result)
    if again.status is Status.INTERRUPTED:
        return Comparison(None, False)
    given = _Candidate.of(again.X, held, fit)
    candidates = {larger}
    if not problem.A.traits.isotropic and result.degrees_of_freedom <= LARGE:
        # nothing else tells noise: ranks that leave one mode as it is too
        for k, r in enumerate(result.rank):
            candidates.add(attainable_rank((*larger[:k], r, *larger[k + 1 :])))
    others = [
        fit(train, rank, solver=automatic(train, rank, quick=True), before=result)
        for rank in sorted(candidates - {result.rank})
    ]
    found = min(
        (_Candidate.of(other.X, held, fit).trimmed(held, fit) for other in others),
        key=lambda candidate: candidate.score,
    )
    grown = any(a > b for a, b in zip(found.X.rank, result.rank, strict=True))
    clearly = found.beats(given, CLEARLY, SURELY)
    close = found.is_near(given, CLEARLY, SURELY)
    remark = (
        f"Rank {found.X.rank} leaves {found.score:.2g} of held-out measurements, rank "
        f"{result.rank} {given.score:.2g}: close to where that would change the verdict."
    )
    return Comparison(
        found.X.rank if grown and clearly else None, not clearly, (remark,) if close else ()
    )


def smaller_rank(result: Result, factor: float = 1.0) -> Rank | None:
    """Rank without the directions that are smaller than the error to be expected, if there are any.

    Dropping them changes X by less than noise, or what is left of y, has changed it already. With
    a factor, those smaller than so many times that error.
    """
    share = 10 * result.residual if result.status is Status.CONVERGED else result.error_estimate
    if share is None:
        return None
    ranks = []
    for values in spectra(result.X).values:
        s = np.asarray(to_numpy(values), dtype=np.float64)
        s = s / (s.max(initial=0.0) or 1.0)  # squares of large ones would overflow
        tail = np.sqrt(np.cumsum(s[::-1] ** 2))[::-1]  # of direction j and all after it
        ranks.append(max(1, int(np.sum(tail > factor * share * tail[0]))))
    rank = attainable_rank(tuple(ranks))
    return rank if rank != result.rank else None


def _split(problem: Problem, fit: Fit) -> tuple[Problem, Problem] | None:
    """Measurements to fit and those held out, if there are enough for both.

    By weights, so that no operator is copied.
    """
    given = np.ones(problem.m) if problem.weights is None else to_numpy(problem.weights)
    counting = np.flatnonzero(given)
    if counting.size < 2:
        return None
    drawn = generator(as_seed(fit.seed), Stream.HELD_OUT).permutation(counting)
    held, rest = np.zeros(problem.m), given.copy()
    out = drawn[: max(1, round(SHARE * counting.size))]
    held[out], rest[out] = given[out], 0

    def part(weights: Any) -> Problem:
        return Problem(problem.A, problem.y, like(weights, problem.y, real_dtype(problem.y)))

    return part(rest), part(held)


def _larger(rank: Rank, limit: Rank, train: Problem, trimmed: set[int]) -> Rank | None:
    """Next rank to try: larger in all modes by some or by one, or else in those not trimmed."""
    for more, modes in ((max(1, round(0.4 * max(rank))), set()), (1, set()), (1, trimmed)):
        steps = [0 if k in modes else more for k in range(len(rank))]
        grown = tuple(min(r + s, n) for r, s, n in zip(rank, steps, limit, strict=True))
        grown = attainable_rank(grown)
        enough = train.equations >= MARGIN * degrees_of_freedom(train.shape, grown)
        if enough and any(a > b for a, b in zip(grown, rank, strict=True)):
            return grown
    return None


def _without_last_direction(X: TuckerTensor, k: int) -> TuckerTensor:
    core = X.core[(slice(None),) * k + (slice(0, -1),)]
    factors = [U[:, :-1] if j == k else U for j, U in enumerate(X.factors)]
    return TuckerTensor.trusted(core, factors)
