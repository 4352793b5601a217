"""The rank: a search where it is not known, and comparisons with larger and smaller ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lowtucker._array import to_numpy
from lowtucker.limits import CLEARLY, NEAR_ERRORS, NEAR_EXPECTED, PLENTY, POOR, SURELY
from lowtucker.problem import Problem
from lowtucker.recovery.fit import OVER, Fit
from lowtucker.recovery.holdout import Candidate, Holdout, select
from lowtucker.run.result import Result
from lowtucker.solvers import RGN
from lowtucker.solvers.auto import automatic
from lowtucker.solvers.rgn import LARGE
from lowtucker.status import Finding, Status
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom, spectra
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["RankSearch", "compare_larger_rank", "search_rank", "smaller_rank"]

# Share of the measurements that is held out
SHARE = 1 / 8
# Measurements per degree of freedom of the largest rank that is tried
MARGIN = 1.3

Rank = tuple[int, ...]


@dataclass(frozen=True)
class RankSearch:
    """Find the Tucker rank: ``recover(A, y, rank=RankSearch(max=(10, 10, 5)))``.

    Ranks grow in all modes at once. Directions of a mode are dropped from a fit where held-out
    measurements (an eighth, at random) are predicted as well without them. The search ends when a
    larger rank predicts them no better; the rank found is then fitted to all measurements.

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
    parts = Holdout.draw(problem, SHARE, fit.seed)
    best: Candidate | None = None
    rank: Rank = (0,) * len(limit)
    trimmed: set[int] = set()
    result, misses, settled, tried_ranks = None, 0, False, []
    rivals: set[Rank] = set()
    while parts is not None and not settled:
        larger = _larger(rank, limit, parts.train, trimmed)
        if larger is None:
            tried = misses > 0 or rank == attainable_rank(limit)  # a larger one, or all
            settled = best is not None and best.score < POOR and tried
            break
        solver = automatic(parts.train, larger, quick=True) if fit.solver == "auto" else fit.solver
        label = "rank " + ",".join(map(str, larger))
        result = fit(parts.train, larger, solver=solver, before=result, label=label)
        found = _trimmed(parts.score(result.X, fit), parts, fit)
        tried_ranks.append(f"{found.X.rank} {found.score:.2g}")
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
            text = "The search for the rank was not finished."
            return replace(result, findings=(Finding("search unfinished", text),)), False
        if result.status is Status.MAX_SECONDS:
            break
    if best is None:
        tried_ranks.append("there are too few measurements to hold any out")
        start = problem.A.spectral_start(problem.y, (1,) * len(limit))
    else:
        start = best.X
    solver = RGN() if fit.solver == "auto" else fit.solver  # from a good start
    result = fit(problem, start.rank, start=start, solver=solver, before=result, label="all rows")
    rivals |= set() if best is None else best.rivals
    while (smaller := smaller_rank(result)) is not None and result.status not in OVER:
        tried_ranks.append(f"{result.rank} has directions smaller than the expected error")
        start = hosvd(result.X, smaller, warn=False)
        result = fit(problem, smaller, start=start, solver=solver, before=result, label="all rows")
    text = f"Rank {result.rank} was found. Held-out residuals: {', '.join(tried_ranks)}."
    if best is None or not settled:
        text += " The search stopped early: more measurements, or time, may lead further."
    factors = (1 / NEAR_EXPECTED, NEAR_EXPECTED)
    rivals |= {smaller_rank(result, factor) or result.rank for factor in factors}
    found_rank = Finding("rank found", text, {"rank": result.rank, "settled": settled})
    return replace(result, findings=(found_rank, *_close_call(result.rank, rivals))), settled


def _close_call(rank: Rank, rivals: set[Rank]) -> tuple[Finding, ...]:
    """Finding that names ranks that were almost chosen instead."""
    others = sorted(rivals - {rank})
    if not others:
        return ()
    text = f"Rank {rank} was chosen by a small margin over {', '.join(map(str, others))}."
    return (Finding("rank", text, {"rank": rank, "rivals": tuple(others)}, borderline=True),)


def _trimmed(candidate: Candidate, parts: Holdout, fit: Fit) -> Candidate:
    """Candidate without the directions that are not missed: by one standard error, if at all."""
    now = lowest = candidate._replace(X=hosvd(candidate.X, candidate.X.rank, warn=False))  # ordered
    close = []
    for k in range(len(candidate.X.rank)):
        while now.X.rank[k] > 1:
            less = parts.score(_without_last_direction(now.X, k), fit)
            missed = less.worse_by(lowest) if less.score > fit.tol else -math.inf
            if abs(missed - 1) < NEAR_ERRORS:
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
    findings : tuple of Finding
        A borderline one, where slightly different numbers would have changed the answer.
    """

    rank: Rank | None
    nothing_better: bool
    findings: tuple[Finding, ...] = ()


def compare_larger_rank(problem: Problem, result: Result, fit: Fit) -> Comparison:
    """Look for a larger rank that predicts held-out measurements clearly better.

    Both ranks are fitted to the others. Where the larger fit needs no larger rank after all, the
    one that was given is at a local minimum. Where nothing predicts them better, the residual is
    noise to any fit. Neither is said where there are too few measurements to tell (2.8 per degree
    of freedom of the larger rank).
    """
    larger = attainable_rank(
        tuple(min(r + 1, n) for r, n in zip(result.rank, problem.shape, strict=True))
    )
    enough = (1 - SHARE) * problem.equations >= PLENTY * degrees_of_freedom(problem.shape, larger)
    differs = enough and larger != result.rank
    parts = Holdout.draw(problem, SHARE, fit.seed) if differs else None
    if parts is None:
        return Comparison(None, False)
    again = fit(parts.train, result.rank, start=result.X, solver=RGN(), before=result)
    if again.status is Status.INTERRUPTED:
        return Comparison(None, False)
    given = parts.score(again.X, fit)
    ranks = {larger}
    if not problem.A.traits.isotropic and result.degrees_of_freedom <= LARGE:
        # nothing else tells noise: ranks that leave one mode as it is too
        for k, r in enumerate(result.rank):
            ranks.add(attainable_rank((*larger[:k], r, *larger[k + 1 :])))
    others = [
        fit(parts.train, rank, solver=automatic(parts.train, rank, quick=True), before=result)
        for rank in sorted(ranks - {result.rank})
    ]
    found = select([_trimmed(parts.score(other.X, fit), parts, fit) for other in others])
    grown = any(a > b for a, b in zip(found.X.rank, result.rank, strict=True))
    clearly = found.beats(given, CLEARLY, SURELY)
    close: tuple[Finding, ...] = ()
    if found.is_near(given, CLEARLY, SURELY):
        text = (
            f"Rank {found.X.rank} has a held-out residual of {found.score:.2g}, rank {result.rank} "
            f"one of {given.score:.2g}: close to where that would change the verdict."
        )
        numbers = {"rank": found.X.rank, "score": found.score, "given": given.score}
        close = (Finding("larger rank", text, numbers, borderline=True),)
    return Comparison(found.X.rank if grown and clearly else None, not clearly, close)


def smaller_rank(result: Result, factor: float = 1.0) -> Rank | None:
    """Rank without the directions that are smaller than the expected error, if there are any.

    Dropping them changes X by less than the noise, or the residual, has changed it already. With a
    factor, those smaller than so many times that error.
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


def _larger(rank: Rank, limit: Rank, train: Problem, trimmed: set[int]) -> Rank | None:
    """Next rank to try: larger in all modes, by 40 % or by one, or else in those not trimmed."""
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
