"""A case: a result with the problem and the call that it comes from, for checks to look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lowtucker._array.clock import TimeUp
from lowtucker.metrics import relative_error
from lowtucker.problem import Problem
from lowtucker.recovery.evidence import Evidence
from lowtucker.recovery.fit import Fit
from lowtucker.recovery.holdout import Holdout
from lowtucker.run.interrupt import interruptible
from lowtucker.run.result import Result
from lowtucker.status import Finding, Status

__all__ = ["Case", "Check"]

# Share of the measurements that another fit does not see, and how many must be left per degree of
# freedom
HELD, LEAST = 1 / 8, 1.1


@dataclass(frozen=True)
class Case:
    """What checks look at.

    Attributes
    ----------
    evidence : Evidence
        What the measurements say of X; of its problem, with the weights of the last fit.
    result : Result
        With the findings so far.
    fit : Fit
        The settings of the call.
    rank_settled : bool
        Whether the rank is given, or a search came to its end: otherwise the residual holds what
        no rank that could be tried has fitted, and is not noise.
    known_score : float or None
        Held-out residual of a fit of this rank, where there was one.
    """

    evidence: Evidence
    result: Result
    fit: Fit
    rank_settled: bool = True
    known_score: float | None = None

    @property
    def problem(self) -> Problem:
        """The problem, with the weights of the last fit."""
        return self.evidence.problem

    def checked(self, checks: Mapping[Check, str]) -> Case:
        """Case with the findings of checks, in their order.

        Those that there is no time for are left out, and named.
        """
        case = self
        for check, name in checks.items():
            try:
                with case.fit.clock.watched():
                    findings = check(case)
            except TimeUp:
                findings = case.out_of_time(name)
            if findings:
                case = case.now(case.result.found(*findings))
        return case

    def now(self, result: Result) -> Case:
        """Case with another verdict on the same tensor; the evidence is kept."""
        case = replace(self, result=result)
        case.__dict__.update({k: v for k, v in self.__dict__.items() if k in ("score", "another")})
        return case

    @cached_property
    def score(self) -> float | None:
        """Held-out residual: of a fit before this, of a search, or of another fit; None without.

        Another fit has its own starts.
        """
        if self.known_score is not None:
            return self.known_score
        searches = [f.numbers.get("score") for f in self.result.findings if f.kind == "rank found"]
        if searches:
            return searches[-1]
        return None if self.another is None else self.another[0]

    @cached_property
    def another(self) -> tuple[float, float] | None:
        """Held-out residual of another fit, and its relative distance from X; None without."""
        return _another_fit(self)

    def predicts(self, factor: float) -> bool:
        """Whether held-out measurements are predicted as well as cross-validation says.

        Up to a factor. A tensor that another fit does not find is a local minimum, or one of many
        that fit.
        """
        expected = self.evidence.cross_validated
        return self.score is not None and expected / factor <= self.score <= expected * factor

    @property
    def scored(self) -> float | None:
        """The score, if some check has asked for it: it may take a fit."""
        found: float | None = self.__dict__.get("score")
        return found

    def out_of_time(self, what: str) -> list[Finding]:
        """Note what is not checked; a fit that did not converge has then no other verdict."""
        self.fit.clock.skip(what)
        text = "The time limit was reached before the verdict."
        stuck = self.result.status is Status.STALLED
        return [Finding("verdict", text, {}, Status.MAX_SECONDS)] if stuck else []


Check = Callable[[Case], list[Finding]]


def _another_fit(case: Case) -> tuple[float, float] | None:
    """Held-out residual of a fit to seven eighths of the measurements, from its own starts.

    And how far from X it ends.
    """
    result, fit = case.result, case.fit
    tucker = case.evidence.is_tucker
    # solvers that were given with a format may begin anywhere
    may = fit.thorough and (fit.solver == "auto" or not tucker)
    parts = Holdout.draw(case.problem, HELD, fit.seed) if may else None
    if parts is None or parts.train.equations < LEAST * result.degrees_of_freedom:
        return None
    quietly = replace(fit, loss="squared", callbacks=(), noise_std=None, X_true=None)
    with interruptible() as interrupt:
        again = quietly(parts.train, result.rank if tucker else None)
    if interrupt.asked:
        return None
    far = relative_error(again.X, result.X) if float(result.X.norm()) else math.inf
    return parts.score(again.X, fit).score, float(far)
