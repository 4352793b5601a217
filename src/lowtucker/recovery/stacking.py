"""Completion by a stack of shrinkage fits: each may be right somewhere, held-out samples weigh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import eps, size
from lowtucker._array.linalg import eigh
from lowtucker._array.log import logger
from lowtucker.problem import Problem
from lowtucker.recovery.fit import Fit
from lowtucker.recovery.holdout import calibrated
from lowtucker.recovery.holes import (
    additive_effects,
    held_like_the_holes,
    missing_fibres,
    places_of,
)
from lowtucker.run.result import Result
from lowtucker.solvers import Annealing
from lowtucker.solvers.annealing import LEVELS
from lowtucker.status import Status
from lowtucker.thresholding import ShrunkTensor
from lowtucker.uncertainty.conformal import Calibration

__all__ = ["CUT_SHORT", "Stack", "stacked_fit"]

NumPyArray = np.ndarray[Any, Any]
log = logger("recovery")
# Folds of held-out samples for tensors of up to so many entries; one for larger ones
FOLDS = {30_000: 3, 100_000: 2}
# Entries from which on the search works in single precision, at twice the speed
SINGLE = 100_000
# Steps at a noise level, in the search and on all samples. With 5 to 8 in the search the errors of
# car parks, metro, IL2 and kinetic data differ by at most 3 %
STEPS, FINAL = 6, 8
# Ways that predict held-out samples worse than the best by this factor are left
CONTENDER = 2.0
# Means smaller than this share of the spread are not taken out
CENTRED = 0.3
# A transform must predict better than none: by this much on average, and by so many standard errors
# more often
BETTER, SURELY = 0.02, 2.0
# Spread of the weights about equal ones that is expected; the largest kurtosis of errors that is
# believed; the least weight of a way in the stack
PRIOR, HEAVIEST, LEAST = 0.3, 30.0, 0.05
# Endings after which nothing more is tried
CUT_SHORT = (Status.INTERRUPTED, Status.MAX_SECONDS)


class Transform(NamedTuple):
    """A transform that stabilises the variance, and its inverse."""

    name: str
    apply: Callable[[NumPyArray], NumPyArray]
    invert: Callable[[NumPyArray], NumPyArray]


PLAIN = Transform("none", lambda x: x, lambda x: x)
ROOT = Transform("square root", np.sqrt, lambda x: np.maximum(x, 0) ** 2)


def logarithm(y: NumPyArray) -> Transform:
    """Logarithm of non-negative data, offset by their median: the same whatever their unit."""
    unit = float(np.median(y[y > 0]))
    return Transform(
        "logarithm", lambda x: np.log1p(x / unit), lambda x: unit * np.expm1(np.minimum(x, 50))
    )


def counting(problem: Problem, values: Any) -> NumPyArray:
    """Values of the samples that count: those of positive weight."""
    given: NumPyArray = np.asarray(values)
    return given if problem.weights is None else given[np.asarray(problem.weights) > 0]


@dataclass(frozen=True)
class Way:
    """A way to shrink: a transform, a prior, and whether noise is subtracted from variances."""

    transform: Transform
    prior: Any
    subtract: bool

    def __str__(self) -> str:
        parts = [f"{self.prior} prior"]
        parts += ["noise subtracted"] if self.subtract else []
        parts += [] if self.transform is PLAIN else [f"on the {self.transform.name} of the data"]
        return ", ".join(parts)

    def into(self, problem: Problem) -> tuple[Problem, Any]:
        """Return the problem in transformed and centred data, and the centre."""
        values = self.transform.apply(np.asarray(problem.y))
        known = counting(problem, values)
        centre = np.mean(known)
        if abs(centre) < CENTRED * np.std(known):  # which would cost a direction of every mode
            centre = 0 * centre
        return Problem(problem.A, values - centre, problem.weights), centre

    def out_of(self, values: NumPyArray, centre: Any) -> NumPyArray:
        """Return numbers in the data's own units."""
        return self.transform.invert(values + centre)


@dataclass
class Tried:
    """What a way gave on the folds that it was tried on."""

    way: Way
    scores: list[float] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    predictions: list[NumPyArray] = field(default_factory=list)
    X: Any = None  # the tensor of the first fold, in the data's own units

    @property
    def score(self) -> float:
        """Root mean square of the scores."""
        return float(np.sqrt(np.mean(np.square(self.scores))))

    @property
    def level(self) -> int:
        """Level in the middle of the best ones."""
        return round(float(np.mean(self.levels)))


class Stack(NamedTuple):
    """Outcome of a stacked fit.

    Attributes
    ----------
    X : ShrunkTensor
        In the data's own units.
    weights : dict of str to float
        Ways that it is made of.
    score : float
        Relative error on held-out samples; the weights of each fold are those of the others.
    first : float
        The same, of the first fold alone.
    untransformed : ShrunkTensor
        The same where no way transforms the data; else a fit to most of the samples by the best
        way that does not.
    held : mask of the samples of the first fold
    mode : int or None
        Mode along which whole fibres are missing.
    last : Result
        The last run, with the history and the cost of all.
    over : Status or None
        Why the search was cut short.
    calibration : Calibration or None
        By the residuals of held-out samples, predicted as for ``score``.
    """

    X: ShrunkTensor
    weights: dict[str, float]
    score: float
    first: float
    untransformed: Any
    held: NumPyArray
    mode: int | None
    last: Result
    over: Status | None
    calibration: Calibration | None


class Combination(NamedTuple):
    """Weights of ways; errors of all folds, and of the first; residuals, where any are known."""

    weights: NumPyArray
    score: float
    first: float
    calibration: Calibration | None = None


def stacked_fit(problem: Problem, fit: Fit, share: float) -> Stack | None:
    """Complete distinct sampled entries by shrinkage, without a rank.

    Both priors, with and without subtracting the noise, and square roots and logarithms of data
    that are not negative are tried on most of the samples, each down the noise levels until
    held-out samples are predicted worse. Those that come close to the best are combined with the
    weights, not negative, that predict the held-out samples best in the data's own units; each is
    fitted again to all samples. Samples are held out as the holes are: whole fibres where whole
    fibres are missing.

    None where there are too few samples to hold any out.

    Cost: 8 walks of up to 14 levels with 6 steps (4 where data have a sign), one more for each way
    in the stack and every other fold, and one for each on all samples; a step is a multilinear
    spectrum. Memory: some tensors of the full size.
    """
    mode = missing_fibres(problem)
    count = next((k for most, k in FOLDS.items() if size(problem.shape) <= most), 1)
    folds = held_like_the_holes(problem, share, mode, count, fit.seed)
    if not folds:
        return None
    search = Search(problem, folds, fit, mode is not None)
    ways, plain = search.all_ways()
    best = search.combined(ways)
    X, names = search.refitted(ways, best.weights)
    assert search.last is not None  # at least one walk was begun
    used = [one.way.transform for one, weight in zip(ways, best.weights, strict=True) if weight]
    untransformed = X if all(t is PLAIN for t in used) else plain.X
    return Stack(
        X, names, best.score, best.first, untransformed, folds[0], mode, search.last, search.over,
        best.calibration,
    )  # fmt: skip


class Search:
    """Walks down the noise levels: what they found, and what they cost.

    One after the other. With the walks of a stage as one batch a call took 0.8 to 0.9 of the time
    for 200 to 5000 entries (IL2: 0.9), and as long from 8000 on: single walks drop more directions.
    """

    def __init__(self, problem: Problem, folds: list[NumPyArray], fit: Fit, additive: bool) -> None:
        self.problem, self.folds, self.additive = problem, folds, additive
        self.fit = replace(fit, tol=0.0, noise_std=None, X_true=None, loss="squared")
        self.losses = fit.losses
        self.last: Result | None = None
        self.over: Status | None = None  # why nothing more may be tried

    def all_ways(self) -> tuple[list[Tried], Tried]:
        """Ways of the stack, tried on all folds, the best first; and the best plain one."""
        tried = [
            self._tried(Way(PLAIN, prior, subtract))
            for prior in ("sum", "product")
            for subtract in (False, True)
        ]
        best = [min(pair, key=lambda t: t.score) for pair in (tried[:2], tried[2:])]
        stack = [t for t in best if t.score <= CONTENDER * min(one.score for one in best)]
        going = best
        for transform in transforms_of(counting(self.problem, self.problem.y)):
            others = [(self._tried(replace(t.way, transform=transform)), t) for t in going]
            stack += [one for one, plain in others if self._surely_better(one, plain)]
            # where a transform does harm, a stronger one does more
            going = [plain for one, plain in others if one.score < (1 + BETTER) * plain.score]
        stack = [t for t in stack if t.score <= CONTENDER * min(one.score for one in stack)]
        for k in range(1, len(self.folds)):
            for one in stack:
                self._try(one, k)
        folds = min(len(t.scores) for t in stack)
        for one in stack:
            one.scores, one.levels = one.scores[:folds], one.levels[:folds]
        plain = min(best, key=lambda t: t.score)
        return sorted(stack, key=lambda t: t.score), plain

    def _surely_better(self, one: Tried, other: Tried) -> bool:
        """Whether a way predicts the first fold better: on average, and more often than by chance.

        Counts, not mean differences: errors have heavy tails.
        """
        if not (one.predictions and other.predictions):
            return False
        truth = np.asarray(self.problem.y)[self.folds[0]]
        closer = np.abs(truth - one.predictions[0]) < np.abs(truth - other.predictions[0])
        chance = SURELY * 0.5 / len(truth) ** 0.5
        return bool(one.score < (1 - BETTER) * other.score and np.mean(closer) > 0.5 + chance)

    def _tried(self, way: Way) -> Tried:
        tried = Tried(way)
        self._try(tried, 0)
        if not tried.scores:  # there was no time for any level
            tried.scores, tried.levels = [np.inf], [0]
        return tried

    def _try(self, tried: Tried, fold: int) -> None:
        """Walk on the samples that a fold leaves; judge by the others."""
        if self.over:
            return
        held = self.folds[fold]
        train = self.problem.block(np.flatnonzero(~held))
        unseen = self.problem.block(np.flatnonzero(held))
        inside, centre = tried.way.into(train)
        where = places_of(unseen)
        whole = float(np.sum(self.losses(unseen, unseen.y))) or 1.0

        def predicted(full: Any) -> NumPyArray:
            return tried.way.out_of(np.asarray(full).reshape(-1)[where], centre)

        def judge(full: Any, number: int = 0) -> float:
            lost = float(np.sum(self.losses(unseen, unseen.y - predicted(full))))
            return float((lost / whole) ** 0.5)

        result = self._walked(tried.way, inside, LEVELS, judge, f"{tried.way}, fold {fold + 1}")
        course: Any = None if result.state is None else result.state.memory
        if fold == 0:
            X = result.X if course is None else ShrunkTensor(course.best, course.effective)
            full = tried.way.out_of(np.asarray(X.full()), centre)
            tried.X = ShrunkTensor(full, X.effective)
        if course is None:
            return
        score, level, best = float(course.score), int(course.level), course.best
        if not np.isfinite(score) and result.status is Status.CONVERGED:  # zero needs no step
            best = result.X.full()
            score = judge(best)
        if not np.isfinite(score):
            return
        tried.scores.append(score)
        log.info("Shrinkage (%s) predicts fold %d to %.2g.", tried.way, fold + 1, score)
        tried.levels.append(level)
        tried.predictions.append(np.asarray(predicted(best), dtype=unseen.y.dtype))

    def _walked(
        self, way: Way, inside: Problem, levels: tuple[float, ...], judge: Any, label: str
    ) -> Result:
        """Walk down the levels."""
        start = additive_effects(inside) if self.additive else None
        y = np.asarray(inside.y)
        if judge is not None and size(inside.shape) >= SINGLE:
            narrow = np.complex64 if np.iscomplexobj(y) else np.float32
            inside = Problem(inside.A, y.astype(narrow), inside.weights)
        steps = FINAL if judge is None else STEPS
        solver = Annealing(
            prior=way.prior, subtract=way.subtract, levels=levels, inner=steps, judge=judge
        )
        fit = replace(self.fit, max_epochs=len(levels) + 1)
        result = fit(inside, None, start=start, solver=solver, before=self.last, label=label)
        self.last = result
        self.over = result.status if result.status in CUT_SHORT else self.over
        return result

    def combined(self, ways: list[Tried]) -> Combination:
        """Weights of the ways, by held-out samples, and how well they predict."""
        folds = min(len(t.predictions) for t in ways)
        alone = Combination(np.eye(len(ways))[0], ways[0].score, ways[0].scores[0])
        if not folds:
            return alone
        parts = [self.problem.block(np.flatnonzero(held)) for held in self.folds[:folds]]
        where: list[Any] = [counting(part, part.A.indices) for part in parts]  # type: ignore[attr-defined]
        truth = [counting(part, part.y) for part in parts]
        guesses = [
            counting(part, np.stack([t.predictions[k] for t in ways], axis=1))
            for k, part in enumerate(parts)
        ]
        of_best = [t - g[:, 0] for t, g in zip(truth, guesses, strict=True)]
        alone = alone._replace(calibration=self._calibration(where, of_best))
        if len(ways) < 2:
            return alone
        halves = folds == 1
        if halves:  # they stand for folds
            half = np.arange(len(truth[0])) % 2 == 0
            where, truth, guesses = (
                [one[0][half], one[0][~half]] for one in (where, truth, guesses)
            )
        squares = np.zeros((len(truth), 2))
        residuals = []
        for k in range(len(truth)):
            others = [j for j in range(len(truth)) if j != k]
            a = _weights([guesses[j] for j in others], [truth[j] for j in others])
            missed = truth[k] - guesses[k] @ a
            squares[k] = [np.sum(np.abs(x) ** 2) for x in (missed, truth[k])]
            residuals.append(missed)
        a = _weights(guesses, truth)
        if a.max() < LEAST:
            return alone
        if a.min() < LEAST:  # the others take over what it had
            kept = a >= LEAST
            again = self.combined([t for t, one in zip(ways, kept, strict=True) if one])
            weights = np.zeros(len(ways))
            weights[kept] = again.weights
            return again._replace(weights=weights)
        first = squares if halves else squares[:1]
        return Combination(
            a, _relative(squares), _relative(first), self._calibration(where, residuals)
        )

    def _calibration(self, where: list[Any], residuals: list[NumPyArray]) -> Calibration | None:
        shape = self.problem.shape
        return calibrated(shape, np.concatenate(where), np.concatenate(residuals))

    def refitted(
        self, tried: list[Tried], weights: NumPyArray
    ) -> tuple[ShrunkTensor, dict[str, float]]:
        """Fit all samples by every way in the stack, to its best level, and combine them."""
        total: Any = 0.0
        effective = 0.0
        for one, weight in zip(tried, weights.tolist(), strict=True):
            if not weight:
                continue
            full, count = one.X.full(), float(one.X.effective)
            if not self.over:
                inside, centre = one.way.into(self.problem)
                levels = LEVELS[: one.level + 1]
                result = self._walked(one.way, inside, levels, None, f"{one.way}, all samples")
                if not self.over:
                    full = one.way.out_of(np.asarray(result.X.full()), centre)
                    count = float(result.X.effective)
            total = total + weight * full
            effective += weight * count
        names = {str(t.way): w for t, w in zip(tried, weights.tolist(), strict=True) if w}
        real = np.asarray(self.problem.y).real.dtype
        return ShrunkTensor(total, np.asarray(effective, dtype=real)), names


def _relative(squares: NumPyArray) -> float:
    """Relative error, by sums of squares of what was missed and of all."""
    missed, whole = np.sum(squares, axis=0)
    return float((missed / (whole or 1.0)) ** 0.5)


def _weights(guesses: list[NumPyArray], truth: list[NumPyArray]) -> NumPyArray:
    r"""Non-negative weights with which guesses are closest to the truth.

    Drawn to equal ones, by a prior of standard deviation PRIOR: with errors e of heavy tails few
    samples decide, and the variance of the weights grows by the kurtosis of e.
    """
    from scipy.optimize import nnls

    left, right = np.concatenate(guesses), np.concatenate(truth)
    if np.iscomplexobj(right) or np.iscomplexobj(left):
        left = np.concatenate([left.real, left.imag])
        right = np.concatenate([right.real, right.imag])
    ways = left.shape[1]
    errors = (right - np.mean(left, axis=1)) ** 2
    unit = float(np.mean(right**2)) or 1.0
    square = float(np.mean(errors)) / unit
    kurtosis = float(np.mean(errors**2)) / float(np.mean(errors)) ** 2 if square else 1.0
    ridge = square * min(kurtosis, HEAVIEST) / PRIOR**2 + 1e-12 * len(right)
    gram = left.T @ left / unit + ridge * np.eye(ways)
    w, U = eigh(gram)  # least squares with as many equations as ways
    root = np.sqrt(np.maximum(w, eps(w) * w[-1]))
    towards = U.T @ (left.T @ right / unit + ridge / ways) / root
    found: NumPyArray = nnls(root[:, None] * U.T, towards)[0]
    return found


def transforms_of(y: NumPyArray) -> list[Transform]:
    """Transforms that may suit the data: none for complex or negative numbers."""
    if np.iscomplexobj(y) or np.min(y) < 0 or not np.max(y) > 0:
        return []
    return [ROOT, logarithm(y)]
