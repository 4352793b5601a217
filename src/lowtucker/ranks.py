"""The rank, where it is not known: a search, and verdicts on one that was given."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lowtucker._arrays import like, real_dtype, to_numpy
from lowtucker._random import Stream, as_seed, generator
from lowtucker.fitting import OVER, Fit
from lowtucker.noise import PLENTY
from lowtucker.problem import Problem
from lowtucker.result import Result
from lowtucker.solvers import RGN, RSGD, Solver
from lowtucker.status import Status
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom, spectra
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["RankSearch", "larger_rank_fits", "search_rank", "smaller_rank"]

# Share of the measurements that is held out
SHARE = 1 / 8
# Measurements per degree of freedom of the largest rank that is tried
MARGIN = 1.5
# Starts of a fit on the way, where measurements are few
STARTS = 5
# A larger rank must lower the held-out residual by so much; a smaller one may raise it by so much
BETTER, EQUAL = 0.02, 0.01
# A rank is too small when a larger one lowers the held-out residual by so much
CLEARLY = 0.1

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


def search_rank(problem: Problem, search: RankSearch, fit: Fit) -> Result:
    """Find the rank by held-out measurements, and fit it to all."""
    limit = search.limit(problem.shape)
    train, held = _split(problem, fit)
    found, lowest, notes = None, np.inf, []
    rank: Rank = (0,) * len(limit)
    result, misses = None, 0
    while (larger := _larger(rank, limit, train)) is not None:
        solver = _quick(train, larger) if fit.solver == "auto" else fit.solver
        label = "rank " + ",".join(map(str, larger))
        result = fit(train, larger, solver=solver, before=result, label=label)
        X, score = _trimmed(result.X, held, fit)
        notes.append(f"{X.rank} {score:.2g}")
        if score < (1 - BETTER) * lowest:
            rank, misses, known = X.rank, 0, False
            found, lowest = X, score
        else:
            known = found is not None and X.rank == found.rank  # a larger rank says the same
            rank, misses = larger, misses + 1
        if score <= fit.tol or known or misses == 2 or result.status in OVER:
            break
    if found is None:  # not even rank one can be tried
        found = hosvd(problem.A.adjoint(problem.y), (1,) * len(limit))
        notes.append("too few measurements to hold any out")
    result = fit(problem, found.rank, start=found, before=result, label="all rows")
    note = f"Rank {found.rank} was found; held-out residuals: {', '.join(notes)}."
    return replace(result, notes=(*result.notes, note))


def larger_rank_fits(problem: Problem, result: Result, fit: Fit) -> Rank | None:
    r"""Larger rank that foretells held-out measurements clearly better, if there is one.

    The residual of the rank that was given is corrected for what it has fitted,
    :math:`\rho / (1 - dof/m)`. Where the larger fit needs no larger rank after all, the one that
    was given had run into a local minimum. None also where there are too few measurements to
    tell (2.8 per degree of freedom of the larger rank).
    """
    larger = attainable_rank(
        tuple(min(r + 1, n) for r, n in zip(result.rank, problem.shape, strict=True))
    )
    dof = degrees_of_freedom(problem.shape, larger)
    train, held = _split(problem, fit)
    if larger == result.rank or train.equations < PLENTY * dof:
        return None
    other = fit(train, larger, solver=_quick(train, larger))
    X, score = _trimmed(other.X, held, fit)
    expected = result.residual / (1 - result.degrees_of_freedom / result.m)
    grown = any(a > b for a, b in zip(X.rank, result.rank, strict=True))
    return X.rank if grown and score < (1 - CLEARLY) * expected else None


def smaller_rank(result: Result) -> Rank | None:
    """Rank without the directions that are smaller than the error to be expected, if there are any.

    Dropping them changes X by less than noise, or what is left of y, has changed it already.
    """
    share = 10 * result.residual if result.status is Status.CONVERGED else result.error_estimate
    if share is None:
        return None
    ranks = []
    for values in spectra(result.X).values:
        s = np.asarray(to_numpy(values), dtype=np.float64)
        tail = np.sqrt(np.cumsum(s[::-1] ** 2))[::-1]  # of direction j and all after it
        ranks.append(max(1, int(np.sum(tail > share * tail[0]))))
    rank = attainable_rank(tuple(ranks))
    return rank if rank != result.rank else None


def _split(problem: Problem, fit: Fit) -> tuple[Problem, Problem]:
    """Measurements to fit and those held out: by weights, so that no operator is copied."""
    drawn = generator(as_seed(fit.seed), Stream.HELD_OUT).random(problem.m) < SHARE
    given = 1.0 if problem.weights is None else problem.weights

    def part(mask: np.ndarray) -> Problem:
        weights = like(mask.astype(np.float64), problem.y, real_dtype(problem.y)) * given
        return Problem(problem.A, problem.y, weights)

    return part(~drawn), part(drawn)


def _larger(rank: Rank, limit: Rank, train: Problem) -> Rank | None:
    """Next rank to try: larger in all modes by one or some, within limits and measurements."""
    for more in dict.fromkeys((max(1, round(0.4 * max(rank))), 1)):
        grown = tuple(min(r + more, n) for r, n in zip(rank, limit, strict=True))
        grown = attainable_rank(grown)
        enough = train.equations >= MARGIN * degrees_of_freedom(train.shape, grown)
        if enough and any(a > b for a, b in zip(grown, rank, strict=True)):
            return grown
    return None


def _quick(train: Problem, rank: Rank) -> list[Solver]:
    """As "auto", with fewer starts: a fit that fails is no loss here."""
    if train.equations < PLENTY * degrees_of_freedom(train.shape, rank):
        return [RGN(starts=STARTS)]
    blocks = train.A.designs and train.A.restricts
    return [*([RSGD(least_squares=True)] if blocks else []), RGN()]


def _trimmed(X: TuckerTensor, held: Problem, fit: Fit) -> tuple[TuckerTensor, float]:
    """Tensor without directions that held-out measurements do not miss, and their residual."""
    X = hosvd(X, X.rank, warn=False)  # directions in order
    score = lowest = fit.score(held, X)
    for k in range(len(X.rank)):
        while X.rank[k] > 1:
            smaller = _without_last_direction(X, k)
            now = fit.score(held, smaller)
            if not now <= max((1 + EQUAL) * lowest, fit.tol):
                break
            X, score, lowest = smaller, now, min(now, lowest)
    return hosvd(X, attainable_rank(X.rank), warn=False), score


def _without_last_direction(X: TuckerTensor, k: int) -> TuckerTensor:
    core = X.core[(slice(None),) * k + (slice(0, -1),)]
    factors = [U[:, :-1] if j == k else U for j, U in enumerate(X.factors)]
    return TuckerTensor.trusted(core, factors)
