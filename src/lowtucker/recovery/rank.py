"""The rank: a search where it is not known, and comparisons with larger and smaller ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import to_numpy
from lowtucker._array.log import logger
from lowtucker.limits import CLEARLY, NEAR_ERRORS, NEAR_EXPECTED, PLENTY, POOR, SURELY
from lowtucker.problem import Problem
from lowtucker.recovery import robust
from lowtucker.recovery.fit import OVER, Fit
from lowtucker.recovery.growth import Gradient
from lowtucker.recovery.holdout import Candidate, Holdout, select
from lowtucker.run.result import Result
from lowtucker.run.stopping import Stalled, StoppingRule
from lowtucker.solvers import RGN
from lowtucker.solvers.auto import automatic
from lowtucker.solvers.noise import is_noise
from lowtucker.solvers.rgn import LARGE
from lowtucker.status import Finding, Status
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.products import norm
from lowtucker.tensor.rank import Spectra, attainable_rank, check_rank, degrees_of_freedom, spectra
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Climb", "RankSearch", "compare_larger_rank", "search_rank", "smaller_rank"]

log = logger("recovery")
# Share of the measurements that is held out
SHARE = 1 / 8
# Measurements per degree of freedom of the largest rank that is tried
MARGIN = 1.3
# A fit of the search ends with an epoch in which the residual falls by less than half while
# directions are missing; by less than 0.05 otherwise, or where the gradient does not count them: of
# 15 tensors of sampled entries, 12 were then found with 0.5, 14 with 0.2, and 15 with 0.05
ROUGH = Stalled(window=1, fall=0.5, status=Status.APPROXIMATED)
STEADY = replace(ROUGH, fall=0.05)
# Rows of rough fits, per degree of freedom: with 3, 4, 6 and all, a search on 20x20x20 tensors of
# rank (5,3,2) took 2.7, 3.5, 4.0 and 3.9 times as long as a fit (medians of three)
ROWS_PER_DOF = 3.0
# Held-out residuals, in units of tol, of a fit to tol
EXACT = 10.0
# First damping of Gauss-Newton from a start that is a fit already
WARM = 1.0
# Directions so many times larger than the held-out residual, by so many measurements, are missed
PLAIN, MANY = 3.0, 30

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
    climb = None if parts is None else Climb(parts, limit, fit)
    if climb is not None:
        climb.go()
        if climb.result is not None and climb.result.status is Status.INTERRUPTED:
            text = "The search for the rank was not finished."
            unfinished = Finding("search unfinished", text)
            return replace(_best_so_far(problem, climb), findings=(unfinished,)), False
    best = None if climb is None else climb.best
    tried_ranks = [] if climb is None else climb.tried
    if best is None:
        tried_ranks.append("there are too few measurements to hold any out")
        start = problem.A.spectral_start(problem.y, (1,) * len(limit))
    else:
        start = best.X
    settled = best is not None and climb is not None and climb.settled
    result = _fit_to_all(problem, start, best, fit, None if climb is None else climb.result)
    rivals = set() if climb is None else climb.rivals
    rivals |= set() if best is None else best.rivals
    score = math.inf if best is None else best.score
    while (smaller := smaller_rank(result, most=score)) is not None and result.status not in OVER:
        tried_ranks.append(f"{result.rank} has directions smaller than the expected error")
        start = hosvd(result.X, smaller, warn=False)
        solver = RGN() if fit.solver == "auto" else fit.solver
        result = fit(problem, smaller, start=start, solver=solver, before=result, label="all rows")
    text = f"Rank {result.rank} was found. Held-out residuals: {', '.join(tried_ranks)}."
    if not settled:
        text += " The search stopped early: more measurements, or time, may lead further."
    factors = (1 / NEAR_EXPECTED, NEAR_EXPECTED)
    rivals |= {smaller_rank(result, factor, score) or result.rank for factor in factors}
    scored = best is not None and best.X.rank == result.rank
    numbers = {"rank": result.rank, "settled": settled, "score": score if scored else None}
    found_rank = Finding("rank found", text, numbers)
    return replace(result, findings=(found_rank, *_close_call(result.rank, rivals))), settled


def _best_so_far(problem: Problem, climb: Climb) -> Result:
    """Result of a search that was interrupted: the best fit, not the one at work. One pass."""
    result, best = climb.result, climb.best
    assert result is not None
    if best is None or best.X is result.X:
        return result
    residual = float(to_numpy(problem.relative_residual(best.X)))
    return replace(
        result, X=best.X, rank=best.X.rank, residual=residual, state=None, error=None,
        error_estimate=None, degrees_of_freedom=best.X.degrees_of_freedom,
    )  # fmt: skip


def _fit_to_all(
    problem: Problem, start: TuckerTensor, best: Candidate | None, fit: Fit, before: Result | None
) -> Result:
    """Fit the rank that was found to all measurements. One pass where it fits exactly."""
    solver = fit.solver
    if solver == "auto":
        exact = best is not None and best.score <= EXACT * fit.tol
        solver = automatic(problem, start.rank) if exact else RGN()
    result = fit(problem, start.rank, start=start, solver=solver, before=before, label="all rows")
    taken_over = result.error_estimate is None and result.status is Status.CONVERGED
    if taken_over and before is not None and before.rank == result.rank:
        # some of the rows determine X, and so do all
        return replace(result, error_estimate=before.error_estimate)
    return result


class Climb:
    """From rank to rank, each from the fit before it, until a larger one predicts no better.

    Parameters
    ----------
    parts : Holdout
    limit : tuple of int
        The largest rank.
    fit : Fit
    poor : float
        Held-out residuals above this tell little: the search goes on.

    Attributes
    ----------
    best : Candidate or None
        The best fit so far, without the directions that are not missed.
    result : Result or None
        The last fit, with the history of all.
    settled : bool
        Whether the search came to its end.
    tried : list of str
        Ranks and scores.
    rivals : set of tuple of int
        Ranks that were almost chosen.
    """

    def __init__(self, parts: Holdout, limit: Rank, fit: Fit, poor: float = POOR) -> None:
        self.parts, self.limit, self.fit, self._poor = parts, limit, fit, poor
        self.best: Candidate | None = None
        self.result: Result | None = None
        self.settled = False
        self.tried: list[str] = []
        self.rivals: set[Rank] = set()
        self._misses = 0  # in a row
        self._climbing = self._best_is_rough = False  # fits that need not converge
        self._gradient = self._gradient_at(None)

    def go(self) -> None:
        """Try larger and larger ranks."""
        rank: Rank = (0,) * len(self.limit)
        trimmed: set[int] = set()
        while not self.settled:
            larger = _larger(rank, self.limit, self.parts.train, trimmed, self._gradient.missing)
            if larger is None:
                tried = self._misses > 0 or rank == attainable_rank(self.limit)
                self.settled = self.best is not None and self.best.score < self._poor and tried
                return
            found = self._fitted(larger)
            better = self.best is None or self._is_better(found)
            if not better and not self._is_over and self._may_be_stuck():
                found = self._thorough(found, larger)
                better = self._is_better(found)
            self._choose(found, better)
            rank = found.X.rank if better else larger
            trimmed = {k for k, r in enumerate(rank) if r < larger[k]}
            if self._is_over:
                return
            if self.best is not None and self._gradient.X is not self.best.X and not self.settled:
                self._gradient = self._gradient_at(self.best.X)

    @property
    def _is_over(self) -> bool:
        """Whether the last fit leaves no time for others."""
        ending = None if self.result is None else self.result.status
        return ending in (Status.INTERRUPTED, Status.MAX_SECONDS)

    def _is_exact(self, found: Candidate) -> bool:
        """Whether a candidate of the last fit fits exactly; what it has not seen, almost so."""
        converged = self.result is not None and self.result.status is Status.CONVERGED
        return found.score <= (EXACT if converged else 1) * self.fit.tol

    def _is_better(self, found: Candidate) -> bool:
        return self._is_exact(found) or self.best is None or found.beats(self.best)

    def _choose(self, found: Candidate, better: bool) -> None:
        """Take a candidate, or count it as a miss; and see whether the search is at its end."""
        best, exact = self.best, self._is_exact(found)
        self.tried.append(f"{found.X.rank} {found.score:.2g}")
        said = "" if best is None else ", better" if better else ", no better"
        log.info("Rank %s predicts held-out data to %.2g%s.", found.X.rank, found.score, said)
        if best is not None and not exact and not self._best_is_rough and found.is_near(best):
            self.rivals |= {found.X.rank, best.X.rank}
        if best is None or better:
            self.best, self._misses, self.settled = found, 0, exact
            self._best_is_rough = self._climbing
            return
        self._misses += 1
        # a larger rank comes down to this one, or is not better again and again
        same = all(a <= b for a, b in zip(found.X.rank, best.X.rank, strict=True))
        if same:  # a second look at directions that were dropped by a small margin
            self.best = best._replace(rivals=best.rivals & found.rivals)
        self.settled = best.score < self._poor and (same or self._misses > 1)

    def _fitted(self, rank: Rank) -> Candidate:
        """Fit a rank, from a smaller fit that is grown.

        Roughly, on no more rows than that takes, while directions are missing and it predicts
        better; then with Gauss-Newton steps on all of them.
        """
        self._climbing = True
        start: Any = self._gradient.grown(rank, self.fit.seed)
        missing = self._gradient.missing
        first = _first_solver(self.parts.train, rank, self.fit)
        if first is not None and (missing is None or any(missing)):
            some = _some_rows(self.parts.train, rank, self.fit)
            rule = STEADY if missing is None else ROUGH
            self._run(some, rank, start, first, "", rule)
            found = self._seen()
            if self._is_over:
                return found
            if self._is_exact(found):
                return _trimmed(found, self.parts, self.fit)
            if any(self._gradient.missing or ()) and (self.best is None or found.beats(self.best)):
                return found
            start = self.result
        cold = self._gradient.X is None
        return self._polished(rank, None if cold else start.X, "")

    def _polished(
        self, rank: Rank, start: Any, label: str, rule: StoppingRule | None = STEADY
    ) -> Candidate:
        """Fit a rank on all rows, from a start or from none, and drop what is not missed."""
        train, solver = self.parts.train, self.fit.solver
        if solver == "auto":
            solver = automatic(train, rank, quick=True)
            if start is not None and isinstance(solver[-1], RGN) and _is_fast(train):
                solver = replace(solver[-1], damping=WARM, starts=1)
        self._climbing = False
        self._run(train, rank, start, solver, label, rule)
        found = self._seen()
        return found if self._is_over else _trimmed(found, self.parts, self.fit)

    def _thorough(self, found: Candidate, rank: Rank) -> Candidate:
        """Candidate of a rank by a fit that converges, or by one that starts over, if better."""
        assert self.result is not None
        if self.result.status is Status.APPROXIMATED:
            found = select([found, self._polished(rank, self.result.X, "on", None)])
        if self._is_better(found) or self._is_over:
            return found
        return select([found, self._polished(rank, None, "cold")])

    def _run(
        self,
        train: Problem,
        rank: Rank,
        start: Any,
        solver: Any,
        label: str,
        rule: StoppingRule | None,
    ) -> None:
        """One fit of the search; a rule ends those of "auto" that have a start."""
        early = self.fit.solver == "auto" and _is_fast(train) and start is not None
        fit = replace(self.fit, rough=rule) if early and rule is not None else self.fit
        name = f"rank {','.join(map(str, rank))} {label}".strip()
        self.result = fit(train, rank, start=start, solver=solver, before=self.result, label=name)

    def _seen(self) -> Candidate:
        """Score of the last fit; the gradient there is kept. One look at the rows."""
        assert self.result is not None
        X = self.result.X
        self._gradient = self._gradient_at(X)
        if self.parts.train.A is self.parts.held.A:
            return self.parts.candidate(X, self._gradient.residual, self.fit)
        return self.parts.score(X, self.fit)

    def _gradient_at(self, X: TuckerTensor | None) -> Gradient:
        """Gradient of the loss of the measurements that are fitted."""
        train = self.parts.train
        if self.fit.loss == "huber" and X is None:
            train = robust.clipped(train)
        elif self.fit.loss == "huber":
            train = Problem(train.A, train.y, robust.weights_at(train, X, self.fit.tol))
        return Gradient.at(train, X)

    def _may_be_stuck(self) -> bool:
        """Whether what the best fit leaves is not plainly noise: a cold start may lead further."""
        assert self.best is not None
        train, X = self.parts.train, self.best.X
        return not is_noise(train, train.residual(X), X)


def _is_fast(problem: Problem) -> bool:
    return problem.A.traits.has_fast_tangent


def _first_solver(problem: Problem, rank: Rank, fit: Fit) -> Any:
    """Solver of rough fits: the first of "auto", where Gauss-Newton steps follow it."""
    if fit.solver != "auto" or not _is_fast(problem):
        return None
    first, *others = automatic(problem, rank, quick=True)
    return first if others else None


def _some_rows(problem: Problem, rank: Rank, fit: Fit) -> Problem:
    """Problem of as many rows as a rough fit needs, where they are as good as others."""
    traits = problem.A.traits
    equivalent = traits.isotropic and traits.row_separable and fit.loss == "squared"
    few = math.ceil(ROWS_PER_DOF * degrees_of_freedom(problem.shape, rank))
    if not equivalent or few > problem.m / 2:
        return problem
    block = problem.block(slice(0, few))
    return block if block.equations >= few / 2 else problem  # weights may leave its rows out


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
    if candidate.score <= EXACT * fit.tol:
        now = lowest = _without_rounding(now, parts, fit)
    for k in range(len(candidate.X.rank)):
        while now.X.rank[k] > 1:
            if _is_plain(now, k, parts, fit):
                break
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


def _without_rounding(exact: Candidate, parts: Holdout, fit: Fit) -> Candidate:
    """Candidate that fits exactly, without the directions that are smaller than the tolerance."""
    rank = rank_above(spectra(exact.X), 10 * exact.score)
    if rank == exact.X.rank:
        return exact
    less = parts.score(hosvd(exact.X, rank, warn=False), fit)
    return less if less.score <= EXACT * fit.tol else exact


def _is_plain(candidate: Candidate, k: int, parts: Holdout, fit: Fit) -> bool:
    """Whether the last direction of a mode is much larger than the residual: it is missed."""
    if not parts.held.A.traits.isotropic or len(candidate.losses) < MANY:
        return False
    last = candidate.X.core[(slice(None),) * k + (-1, ...)]
    return float(norm(last)) > PLAIN * max(candidate.score, fit.tol) * float(candidate.X.norm())


class Comparison(NamedTuple):
    """What held-out measurements say of larger ranks.

    Attributes
    ----------
    score : float or None
        Held-out residual of the given rank; None where there are too few measurements to hold any
        out and to fit a larger rank.
    best : float
        Lowest held-out residual of a larger fit, without the directions that are not missed.
    rank : tuple of int
        Its rank.
    clearly : bool
        Whether that is clearly lower.
    findings : tuple of Finding
        A borderline one, where slightly different numbers would have changed the answer.
    """

    score: float | None
    best: float = math.inf
    rank: Rank = ()
    clearly: bool = False
    findings: tuple[Finding, ...] = ()

    def larger(self, than: Rank) -> bool:
        """Whether a larger rank predicts held-out measurements clearly better."""
        return self.clearly and any(a > b for a, b in zip(self.rank, than, strict=True))


def compare_larger_rank(
    problem: Problem, result: Result, fit: Fit, *, by_mode: bool = False
) -> Comparison:
    """Look for a larger rank that predicts held-out measurements clearly better.

    Both ranks are fitted to the others. Where the larger fit needs no larger rank after all, the
    one that was given is at a local minimum. Where nothing predicts them better, the residual is
    noise to any fit. Neither is said where there are too few measurements to tell (2.8 per degree
    of freedom of the larger rank). Two fits of seven eighths. ``by_mode`` also fits the ranks that
    leave one mode as it is, where the first is not better.
    """
    larger = attainable_rank(
        tuple(min(r + 1, n) for r, n in zip(result.rank, problem.shape, strict=True))
    )
    enough = (1 - SHARE) * problem.equations >= PLENTY * degrees_of_freedom(problem.shape, larger)
    differs = enough and larger != result.rank
    parts = Holdout.draw(problem, SHARE, fit.seed) if differs else None
    if parts is None:
        return Comparison(None)
    again = fit(parts.train, result.rank, start=result.X, solver=RGN(), before=result)
    if again.status is Status.INTERRUPTED:
        return Comparison(None)
    given = parts.score(again.X, fit)
    ranks = [larger]
    if by_mode and result.degrees_of_freedom <= LARGE:
        ranks += [(*larger[:k], r, *larger[k + 1 :]) for k, r in enumerate(result.rank)]
    found = given
    for rank in dict.fromkeys(map(attainable_rank, ranks)):
        if rank == result.rank or found.beats(given, CLEARLY, SURELY):
            continue
        solver = automatic(parts.train, rank, quick=True)
        other = fit(parts.train, rank, solver=solver, before=result)
        if other.status is Status.INTERRUPTED:
            return Comparison(None)
        trimmed = _trimmed(parts.score(other.X, fit), parts, fit)
        found = trimmed if found is given else select([found, trimmed])
    clearly = found.beats(given, CLEARLY, SURELY)
    log.info(
        "Rank %s predicts held-out measurements to %.2g, and after a larger fit rank %s to %.2g.",
        result.rank, given.score, found.X.rank, found.score,
    )  # fmt: skip
    close: tuple[Finding, ...] = ()
    if found.is_near(given, CLEARLY, SURELY):
        text = (
            f"Rank {found.X.rank} has a held-out residual of {found.score:.2g}, rank {result.rank} "
            f"one of {given.score:.2g}: close to where that would change the verdict."
        )
        numbers = {"rank": found.X.rank, "score": found.score, "given": given.score}
        close = (Finding("larger rank", text, numbers, borderline=True),)
    return Comparison(given.score, found.score, found.X.rank, clearly, close)


def smaller_rank(result: Result, factor: float = 1.0, most: float = math.inf) -> Rank | None:
    """Rank without the directions that are smaller than the expected error, if there are any.

    Dropping them changes X by less than the noise, or the residual, has changed it already. With a
    factor, those smaller than so many times that error, which is at most ``most``: an estimate is
    too large where the measurements hardly determine X.
    """
    share = 10 * result.residual if result.status is Status.CONVERGED else result.error_estimate
    if share is None:
        return None
    rank = rank_above(spectra(result.X), factor * min(share, most))
    return rank if rank != result.rank else None


def rank_above(values: Spectra, share: float) -> Rank:
    """Rank without the directions that are together smaller than a share of X, in each mode."""
    ranks = []
    for each in values.values:
        s = np.asarray(to_numpy(each), dtype=np.float64)
        s = s / (s.max(initial=0.0) or 1.0)  # squares of large ones would overflow
        tail = np.sqrt(np.cumsum(s[::-1] ** 2))[::-1]  # of direction j and all after it
        ranks.append(max(1, int(np.sum(tail > share * tail[0]))))
    return attainable_rank(tuple(ranks))


def _larger(
    rank: Rank, limit: Rank, train: Problem, trimmed: set[int], missing: Rank | None = None
) -> Rank | None:
    """Next rank to try: by the directions that are missing, where that is known and there are any.

    Otherwise larger in all modes, by 40 % (by one, where none seems to be missing); or else by one
    in those that were not trimmed.
    """
    by = max(1, round(0.4 * max(rank))) if missing is None else 1
    missing = missing or (0,) * len(rank)
    most = max(missing) if not any(rank) else 0  # few modes show all that they miss at first
    choices = [
        [max(most, s) for s in missing],
        [min(s, 1) for s in missing],
        *([step] * len(rank) for step in (by, 1)),
        [0 if k in trimmed else 1 for k in range(len(rank))],
    ]
    for steps in choices:
        grown = tuple(min(r + s, n) for r, s, n in zip(rank, steps, limit, strict=True))
        if min(grown) == 0:
            continue
        grown = attainable_rank(grown)
        enough = train.equations >= MARGIN * degrees_of_freedom(train.shape, grown)
        if enough and any(a > b for a, b in zip(grown, rank, strict=True)):
            return grown
    return None


def _without_last_direction(X: TuckerTensor, k: int) -> TuckerTensor:
    core = X.core[(slice(None),) * k + (slice(0, -1), ...)]
    factors = [U[:, :-1] if j == k else U for j, U in enumerate(X.factors)]
    return TuckerTensor.trusted(core, factors)
