"""Completion without a rank: shrinkage along a path of noise levels, chosen by held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import size
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.problem import Problem
from lowtucker.recovery.fit import Fit
from lowtucker.recovery.holdout import Candidate
from lowtucker.run.history import History
from lowtucker.run.result import Result
from lowtucker.solvers import TIHT
from lowtucker.status import Finding, Status
from lowtucker.tensor.rank import attainable_rank, spectra
from lowtucker.thresholding import Shrinkage, ShrunkTensor

__all__ = ["MOST", "clear_rank", "follow_path"]

NumPyArray = np.ndarray[Any, Any]
# Entries of the largest tensor that is completed so: tensors of the full size are formed
MOST = 10**7
# The path: noise levels from the data's standard deviation down to LOWEST of it. LEVELS of them
# with INNER iterations each choose a walk and a level, FINE ones with FINAL each lead there at the
# end. Car parks, 40 % missing: an error of 14.3 with 14 levels of 8 down to 1 %, 13.7 with 20 of 8
# down to 0.2 %, 13.1 with 20 of 16
LEVELS, INNER, FINE, FINAL, LOWEST = 14, 8, 20, 16, 0.002
# A walk that predicted held-out samples best so many levels ago is left
PATIENCE = 4
# Samples are held out twice; walks that are worse than the best by this factor at first, once
FOLDS, CONTENDER = 2, 1.3
# A transform must lower the error by this much, and by more than this many standard errors
BETTER, SURELY = 0.02, 2.0
# Share of the samples that is held out to choose the walk and the level
SHARE = 0.1
# Fibres of a mode are missing as a whole where the empty ones hold so much of what is missing
FIBRES = 0.5
# Ratio of successive singular values that is a gap: such data are of low rank
GAP = 10.0
# Endings after which nothing more is tried
CUT_SHORT = (Status.INTERRUPTED, Status.MAX_SECONDS, Status.DIVERGED)


class Transform(NamedTuple):
    """A transform that stabilises the variance, and its inverse."""

    name: str
    apply: Callable[[NumPyArray], NumPyArray]
    invert: Callable[[NumPyArray], NumPyArray]


PLAIN = Transform("none", lambda x: x, lambda x: x)
ROOT = Transform("square root", np.sqrt, lambda x: np.maximum(x, 0) ** 2)
LOGARITHM = Transform("logarithm", np.log1p, lambda x: np.expm1(np.minimum(x, 700)))


@dataclass(frozen=True)
class Walk:
    """A way down the path: a transform, a prior, and whether noise is subtracted from variances."""

    transform: Transform
    prior: Any
    subtract: bool

    def __str__(self) -> str:
        parts = [f"{self.prior} prior"]
        parts += ["noise subtracted"] if self.subtract else []
        parts += [] if self.transform is PLAIN else [f"on the {self.transform.name} of the data"]
        return ", ".join(parts)


class Stop(NamedTuple):
    """Where a walk predicted held-out samples best."""

    walk: Walk
    level: int
    candidate: Candidate  # of the first fold, with the losses of all


class Samples(NamedTuple):
    """Sampled entries, in the data's own units."""

    problem: Problem
    flat: NumPyArray  # where the samples are in the flattened tensor

    @classmethod
    def of(cls, problem: Problem) -> Samples:
        """Sampled entries of a problem with plain ones."""
        A: Any = problem.A
        return cls(problem, np.ravel_multi_index(tuple(A.indices.T), problem.shape))

    def part(self, which: NumPyArray) -> Samples:
        """Some of the samples, by a mask."""
        return Samples(self.problem.block(np.flatnonzero(which)), self.flat[which])

    def observed(self) -> NumPyArray:
        """Mask of the sampled entries, of the tensor's shape."""
        seen = np.zeros(size(self.problem.shape), dtype=bool)
        seen[self.flat] = True
        return seen.reshape(self.problem.shape)

    def score(self, X: ShrunkTensor, fit: Fit) -> Candidate:
        """Score a tensor by its residual on these samples."""
        found = X.full().reshape(-1)[self.flat]
        losses = fit.losses(self.problem, self.problem.y - found)
        whole = float(np.sum(fit.losses(self.problem, self.problem.y)))
        return Candidate(X, losses, float((np.sum(losses) / (whole or 1.0)) ** 0.5))


def follow_path(problem: Problem, fit: Fit, share: float = SHARE) -> Path | None:
    """Complete sampled entries by shrinkage, without a rank.

    Walks go down the path of noise levels on nine tenths of the samples, with either prior, with
    and without subtracting the noise, and on square roots or logarithms where data are not
    negative. The one that predicts the other samples best, in the data's own units, is walked again
    on all of them, to its best level. Samples are held out as the holes are: whole fibres where
    whole fibres are missing.

    None where there are too few samples to hold any out.

    Cost: up to twelve walks of 14 levels with 8 iterations and one of 20 with 16, each iteration an
    eigendecomposition of the Gram matrices of all unfoldings; fewer where a time limit is reached.
    Memory: some tensors of the full size.
    """
    samples = Samples.of(problem)
    mode = missing_fibres(samples.observed())
    folds = held_like_the_holes(samples, share or SHARE, mode, fit.seed)
    if not folds:
        return None
    search = Search(samples, folds, fit, mode is not None)
    for prior in ("sum", "product"):
        for subtract in (False, True):
            search.walk(Walk(PLAIN, prior, subtract))
    for transform in transforms_of(problem.y):
        search.walk(replace(search.best.walk, transform=transform))
    stop = search.best
    last = list(search.final(stop))
    result = _concluded(samples, stop, last, search, mode)
    rank = None if search.over else clear_rank(result.X)
    return Path(result, rank, folds[0], search.at_first)


class Path(NamedTuple):
    """What following the path gave.

    Attributes
    ----------
    result : Result
    rank : tuple of int or None
        The rank that the spectra show, where all modes have a clear gap.
    held : mask of the first held-out samples
    score : relative residual of those
    """

    result: Result
    rank: tuple[int, ...] | None
    held: NumPyArray
    score: float


class Search:
    """Walks down the path: what they found, and what they cost."""

    def __init__(self, samples: Samples, folds: list[NumPyArray], fit: Fit, additive: bool) -> None:
        self.samples, self.fit, self.additive = samples, fit, additive
        self.folds = [(samples.part(~held), samples.part(held)) for held in folds]
        self.best: Any = None
        self.at_first = np.inf  # its score on the first fold
        self.seconds = self.passes = 0.0
        self.epochs = 0
        self.latest: list[Result] = []
        self.over: Status | None = None  # why nothing more may be tried

    def walk(self, walk: Walk) -> None:
        """Walk until held-out samples are predicted worse; keep the best of all walks."""
        found = self._scored(walk, self.folds[:1])
        if found is None or (self.best and found.candidate.score > self.at_first * CONTENDER):
            return
        first = found.candidate.score
        if not self.over and len(self.folds) > 1:
            found = self._scored(walk, self.folds) or found
        if self.best is None or self._beaten_by(found):
            self.best, self.at_first = found, first

    def _beaten_by(self, found: Stop) -> bool:
        """Whether a walk is better than the best; clearly so, where it needs a transform."""
        best = self.best.candidate
        if found.walk.transform is PLAIN or len(found.candidate.losses) != len(best.losses):
            return bool(found.candidate.score < best.score)
        return bool(found.candidate.beats(best, BETTER, SURELY))

    def _scored(self, walk: Walk, folds: list[tuple[Samples, Samples]]) -> Stop | None:
        """Best level of a walk, by the held-out samples of some folds."""
        best: Stop | None = None
        runs = [self._steps(train, walk, _levels(LEVELS), INNER) for train, _ in folds]
        for level, results in enumerate(zip(*runs, strict=False)):
            scores = [
                unseen.score(outside(result.X, train, walk), self.fit)
                for result, (train, unseen) in zip(results, folds, strict=True)
            ]
            candidate = scores[0]._replace(
                losses=np.concatenate([one.losses for one in scores]),
                score=float(np.sqrt(np.mean([one.score**2 for one in scores]))),
            )
            if best is None or candidate.score < best.candidate.score:
                best = Stop(walk, level, candidate)
            if level - best.level >= PATIENCE:
                break
        return best

    def final(self, stop: Stop) -> Iterator[Result]:
        """Walk on all samples, to the best level."""
        lowest = _levels(LEVELS)[stop.level]
        fine = _levels(FINE)
        shares = np.append(fine[fine > 1.01 * lowest], lowest)
        return self._steps(self.samples, stop.walk, shares, FINAL)

    def _steps(
        self, samples: Samples, walk: Walk, shares: NumPyArray, inner: int
    ) -> Iterator[Result]:
        """Results of a walk on some samples, one a noise level (a share of the spread)."""
        y, _ = inside(samples, walk)
        problem = Problem(samples.problem.A, y)
        spread = float(np.std(y)) or 1.0
        known = problem.m / size(problem.shape) if walk.subtract else 0.0
        X: Any = None
        if self.additive:
            start = additive_effects(samples, y)
            X = ShrunkTensor(start, np.zeros((), dtype=start.real.dtype))
        for k, share in enumerate(shares.tolist()):
            if self.over:
                return
            shrinkage = Shrinkage(share * spread, walk.prior, known)
            solver = TIHT(step=float(problem.m), thresholding=shrinkage)  # an EM step
            label = f"{walk.prior} {k + 1}"
            result = self._limited(inner)(problem, None, start=X, solver=solver, label=label)
            self.seconds += result.seconds
            self.passes += result.passes
            self.epochs += result.epochs
            self.over = result.status if result.status in CUT_SHORT else None
            X, self.latest = result.X, [result]
            yield result

    def _limited(self, inner: int) -> Fit:
        """Fit of one noise level, within the remaining time."""
        return replace(self.fit, max_epochs=inner, tol=0.0, noise_std=None, X_true=None)


def _levels(count: int) -> NumPyArray:
    """Noise levels, as shares of the data's standard deviation."""
    return np.geomspace(1.0, LOWEST, count)


def inside(samples: Samples, walk: Walk) -> tuple[NumPyArray, Any]:
    """Values of the samples, transformed and centred; and the centre."""
    values = walk.transform.apply(np.asarray(samples.problem.y))
    centre = values.mean()
    return values - centre, centre


def outside(X: ShrunkTensor, samples: Samples, walk: Walk) -> ShrunkTensor:
    """Tensor of a walk in the data's own units."""
    _, centre = inside(samples, walk)
    return ShrunkTensor(walk.transform.invert(X.full() + centre), X.effective)


def transforms_of(y: Any) -> list[Transform]:
    """Transforms that may suit the data: none for complex or negative numbers."""
    if np.iscomplexobj(y) or np.min(y) < 0 or not np.max(y) > 0:
        return []
    return [ROOT, LOGARITHM]


def missing_fibres(observed: NumPyArray) -> int | None:
    """Mode along which whole fibres are missing, if that is how most entries are missing.

    Empty fibres hold the share :math:`(1 - p)^{n_k - 1}` of what is missing where entries are
    missing at random; they must hold much more than that.
    """
    missing = observed.size - np.count_nonzero(observed)
    if not missing or observed.ndim < 2:
        return None
    share = missing / observed.size
    excess = [
        np.count_nonzero(~observed.any(axis=k)) * n / missing - share ** (n - 1)
        for k, n in enumerate(observed.shape)
    ]
    mode = int(np.argmax(excess))
    return mode if excess[mode] > FIBRES else None


def held_like_the_holes(
    samples: Samples, share: float, mode: int | None, seed: Seed
) -> list[NumPyArray]:
    """Samples to hold out, twice: at random, or whole fibres of a mode; at least one, never all."""
    rng, m = generator(as_seed(seed), Stream.HELD_OUT), len(samples.flat)
    whose = np.arange(m)
    if mode is not None:
        index = np.stack(np.unravel_index(samples.flat, samples.problem.shape), axis=1)
        _, whose = np.unique(np.delete(index, mode, axis=1), axis=0, return_inverse=True)
    groups = int(whose.max()) + 1
    order, count = rng.permutation(groups), max(1, round(min(share, 0.5) * groups))
    drawn = [order[k * count : (k + 1) * count] for k in range(FOLDS)]
    folds = [np.isin(whose.reshape(-1), some) for some in drawn if len(some)]
    return [held for held in folds if not held.all()]


def clear_rank(X: ShrunkTensor) -> tuple[int, ...] | None:
    """Rank where the spectra of all modes have a clear gap; None where one has none.

    At the level that predicts held-out samples best: where the noise level is too high, the spectra
    of any data have one.
    """
    gaps = [_first_gap(np.asarray(values)) for values in spectra(X.full()).values]
    if min(ratio for ratio, _ in gaps) < GAP:
        return None
    return attainable_rank(tuple(rank for _, rank in gaps))


def _first_gap(s: NumPyArray) -> tuple[float, int]:
    """Ratio at the first gap of a spectrum, and the rank before it; (0, 1) where there is none."""
    if len(s) == 1:
        return np.inf, 1
    ratios = s[:-1] / np.maximum(s[1:], np.finfo(float).tiny)
    where = np.flatnonzero(ratios >= GAP)
    return (float(ratios[where[0]]), int(where[0]) + 1) if len(where) else (0.0, 1)


def additive_effects(samples: Samples, y: NumPyArray, sweeps: int = 20) -> NumPyArray:
    """Tensor of main effects of every mode, and of shrunken means over each mode.

    Backfitting; a mean of c samples is shrunk as if one more (three, for means over one mode) had
    been zero. Where whole fibres are missing, nothing else says what is in them.
    """
    shape = samples.problem.shape
    values = np.zeros(size(shape), dtype=y.dtype)
    values[samples.flat] = y  # of duplicates the last one: this is a start
    values, seen = values.reshape(shape), samples.observed()
    modes = range(len(shape))
    effects = [np.zeros([n if j == k else 1 for j, n in enumerate(shape)], y.dtype) for k in modes]
    for _ in range(sweeps):
        for k in modes:
            others = tuple(j for j in modes if j != k)
            rest = sum(e for j, e in enumerate(effects) if j != k)
            counts = seen.sum(axis=others, keepdims=True)
            total = np.where(seen, values - rest, 0).sum(axis=others, keepdims=True)
            effects[k] = total / (counts + 1)
    X = np.broadcast_to(sum(effects), shape).copy()
    for k in modes if len(shape) > 2 else ():
        counts = seen.sum(axis=k, keepdims=True)
        X += np.where(seen, values - X, 0).sum(axis=k, keepdims=True) / (counts + 3)
    return X


def _concluded(
    samples: Samples, stop: Stop, last: Sequence[Result], search: Search, mode: int | None
) -> Result:
    """Result of the last walk, in the data's own units, with how it was chosen."""
    problem, X = samples.problem, stop.candidate.X  # cut short: the best so far
    if last and not search.over:
        X = outside(last[-1].X, samples, stop.walk)
    residual = samples.score(X, search.fit).score
    score = stop.candidate.score
    text = (
        f"No rank was needed: shrinkage ({stop.walk}), with {float(X.effective):.0f} effective "
        f"degrees of freedom, predicts held-out samples to {score:.2g}."
    )
    numbers = {
        "prior": stop.walk.prior, "subtract": stop.walk.subtract, "level": stop.level,
        "transform": stop.walk.transform.name, "effective": float(X.effective), "score": score,
    }  # fmt: skip
    unsampled = problem.A.diagnose((1,) * len(problem.shape))
    findings = [Finding("approximated", text, numbers), *unsampled]
    if mode is not None:
        text = (
            f"Whole fibres of mode {mode} are missing; the held-out samples are whole fibres too."
        )
        findings.append(Finding("fibres", text, {"mode": mode}))
    final = joined_walk(last or search.latest, search)
    status = search.over or Status.APPROXIMATED
    return replace(
        final, X=X, residual=residual, status=status, m=int(problem.equations), state=None,
        error_estimate=score, held_out=score, findings=tuple(findings), solver=str(stop.walk),
        degrees_of_freedom=X.degrees_of_freedom,
    )  # fmt: skip


def joined_walk(results: Sequence[Result], search: Search) -> Result:
    """Last result of a walk, with the history of all of it and the cost of the whole search."""
    first = results[0]
    columns: dict[str, list[Any]] = {name: [] for name in first.history}
    done = {"epoch": 0, "passes": 0.0, "seconds": 0.0}
    for result in results:
        for name, column in result.history.items():
            columns[name] += (column + done[name] if name in done else column).tolist()
        done = {name: columns[name][-1] for name in done}
    return replace(
        results[-1],
        history=History.of(columns),
        epochs=search.epochs,
        passes=search.passes,
        seconds=search.seconds,
    )
