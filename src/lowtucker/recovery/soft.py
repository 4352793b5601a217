"""Without a rank: shrinkage, or the rank that its spectra show, by held-out measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowtucker._array import like, namespace, real_dtype, size, to_numpy
from lowtucker._array.log import logger
from lowtucker._array.random import as_seed
from lowtucker.metrics import relative_error
from lowtucker.operators import FunctionOperator
from lowtucker.problem import Problem
from lowtucker.recovery import robust
from lowtucker.recovery.fit import Fit
from lowtucker.recovery.holdout import Holdout, by_held_out
from lowtucker.recovery.holes import distinct
from lowtucker.recovery.precondition import SPREAD, Equivalent
from lowtucker.recovery.stacking import CUT_SHORT, Stack, counting, stacked_fit
from lowtucker.run.result import Result
from lowtucker.solvers import AMP, Annealing
from lowtucker.solvers.rows import Rows, look_at_rows
from lowtucker.status import Finding, Status
from lowtucker.tensor.products import norm
from lowtucker.tensor.rank import attainable_rank, spectra
from lowtucker.thresholding import ShrunkTensor

__all__ = ["Soft", "clear_rank", "fits_in_memory", "soft_fit", "weighted_by_error"]

NumPyArray = np.ndarray[Any, Any]
log = logger("recovery")
# Entries of the largest tensor that is shrunk: tensors of the full size are formed
MOST = 10**7
# Share of the measurements that is held out: a tenth, or so many, up to the largest share. Of 80
# small problems three had an estimate that was far too low, by two or three held-out measurements
SHARE, FEWEST, LARGEST = 0.1, 12, 0.25
# Ratio of successive singular values that is a gap: such data are of low rank
GAP = 10.0
# Held-out residuals of message passing above this are a reason to try annealing
POOR = 0.5
# Steps of message passing on most of the measurements, and on all: together some 40 passes
FIRST, FINAL = 12, 24
# A fit to all measurements whose noise is larger than that of the first fit by this is not kept
WORSE = 2.0
# nor is one that differs from it by more than so many held-out residuals: one of them is wrong, and
# held-out measurements speak for the first
APART = 3.0
# Squared norm of the sum of the rows, 1 for rows without a mean, above which the mean is taken out.
# Of 5700 matrices of i.i.d. rows, 20x64 to 300x1000, the largest had 2.4
COMMON = 3.0
# Lowest weight of measurements with noise of different variances: others would be mostly noise
LOWEST = 0.25
# Kind of the finding that says that held-out measurements do not tell the error of X
ANISOTROPIC = "anisotropic rows"
# Rounds of Huber's weights
ROUNDS = 3
# An offset of so many times the spread is worth a finding
OFFSET = 10.0


@dataclass(frozen=True)
class Soft:
    """A fit by shrinkage.

    Attributes
    ----------
    result : Result
    rank : tuple of int or None
        The rank that the spectra show, where all modes have a clear gap.
    score : float
        Relative residual of held-out measurements, of fits to the others.
    held : mask of (some of) the held-out measurements of the given problem, shape (m,)
    of_held : float
        Relative residual of those.
    isotropic : bool
        Whether that tells the error of X.
    """

    result: Result
    rank: tuple[int, ...] | None
    score: float
    held: NumPyArray
    of_held: float
    isotropic: bool = True


def soft_fit(problem: Problem, fit: Fit, share: float) -> Soft | None:
    """Fit by shrinkage, without a rank; None where there are too few measurements to hold any out.

    Sampled entries by :func:`~lowtucker.recovery.stacking.stacked_fit`; other measurements by
    message passing (:class:`lowtucker.AMP`), and where that finds little by
    :class:`lowtucker.Annealing`. With Huber's loss, rounds of weights follow.
    """
    share = max(share or SHARE, min(LARGEST, FEWEST / int(problem.equations)))
    if fit.loss == "squared":
        return _fitted(problem, fit, share)
    squares = replace(fit, loss="squared")  # outliers have no weight
    made = _fitted(robust.clipped(problem), squares, share)
    if made is None:
        return None
    weights: Any = None
    for _ in range(ROUNDS):
        if made.result.status in CUT_SHORT or fit.time_is_up:
            break
        weights = robust.weights_at(problem, made.result.X, fit.tol)
        again = _fitted(Problem(problem.A, problem.y, weights), squares, share)
        if again is None:
            break
        made = again
    return replace(made, result=replace(made.result, weights=weights))


def _fitted(problem: Problem, fit: Fit, share: float) -> Soft | None:
    entries = problem.as_entries
    return _sensed(problem, fit, share) if entries is None else _completed(entries, fit, share)


# Sampled entries


def _completed(problem: Problem, fit: Fit, share: float) -> Soft | None:
    """Stack of shrinkage fits to sampled entries."""
    once = distinct(problem)
    stack = stacked_fit(once, fit, share)
    if stack is None:
        return None
    held = _as_given(problem, once, stack.held)
    status = stack.over or Status.APPROXIMATED
    findings = [_of_the_stack(stack), *problem.A.diagnose((1,) * len(problem.shape))]
    findings += _of_the_data(problem, stack)
    result = _concluded(problem, stack.last, stack.X, stack.score, status, findings, fit.X_true)
    result = replace(result, calibration=stack.calibration)
    rank = None if stack.over else clear_rank(stack.untransformed, stack.score)
    return Soft(result, rank, stack.score, held, stack.first)


def _as_given(problem: Problem, once: Problem, held: NumPyArray) -> NumPyArray:
    """Mask of held-out samples of a problem whose duplicates were merged in another."""
    if once is problem:
        return held
    A: Any = problem.A
    A_once: Any = once.A
    out = np.zeros(problem.shape, dtype=bool)
    out[tuple(A_once.indices[held].T)] = True
    return np.asarray(out[tuple(A.indices.T)])


def _of_the_stack(stack: Stack) -> Finding:
    parts = [f"{weight:.2f} {name}" for name, weight in stack.weights.items()]
    how = "; ".join(parts) if len(parts) > 1 else next(iter(stack.weights))
    text = (
        f"No rank was needed: shrinkage ({how}), with {float(stack.X.effective):.0f} effective "
        f"degrees of freedom, predicts held-out samples to {stack.score:.2g}."
    )
    numbers = {
        "weights": dict(stack.weights), "score": stack.score,
        "effective": float(stack.X.effective),
    }  # fmt: skip
    return Finding("approximated", text, numbers)


def _of_the_data(problem: Problem, stack: Stack) -> list[Finding]:
    """What was noticed of the samples: whole fibres missing, a large offset."""
    found = []
    if stack.mode is not None:
        text = (
            f"Whole fibres of mode {stack.mode} are missing; the held-out samples are whole fibres "
            "too."
        )
        found.append(Finding("fibres", text, {"mode": stack.mode}))
    y = counting(problem, problem.y)
    mean, spread = abs(complex(np.mean(y))), float(np.std(y))
    if spread and mean > OFFSET * spread:
        text = f"The mean of the data, {mean / spread:.0f} times their spread, was taken out first."
        found.append(Finding("offset", text, {"mean": mean, "spread": spread}))
    return found


# Other measurements


def _sensed(problem: Problem, fit: Fit, share: float) -> Soft | None:
    """Message passing on most of the measurements, and again on all."""
    number, trial = as_seed(fit.seed)
    rows = look_at_rows(problem, number, (trial,))
    given, common = problem, _in_common(problem, rows)
    if common > COMMON:
        problem = _centred(problem)
        rows = look_at_rows(problem, number, (trial,))
    parts = Holdout.draw(problem, share, fit.seed)
    if parts is None:
        return None
    held = to_numpy(parts.held.weights) > 0
    quietly = replace(fit, tol=min(fit.tol, 1e-9), noise_std=None, X_true=None)
    weights = to_numpy(parts.train.weights)
    of_train = rows.of_part(rows.total * float(np.sum(weights)) / _total(problem))
    solver: Any = AMP(max_steps=FIRST, rows=of_train)
    first = quietly(parts.train, None, solver=solver, label="held out, AMP")
    score = parts.score(first.X, fit).score
    solver = AMP(max_steps=FINAL, rows=rows)
    if (not score < POOR or first.status is Status.DIVERGED) and first.status not in CUT_SHORT:
        log.info("Message passing predicts held-out data to %.2g: annealing is tried.", score)
        first, solver, score = _annealed(parts, quietly, fit, first, score, solver)
    if first.status in CUT_SHORT:
        last, status = first, first.status
    else:
        last = quietly(problem, None, solver=solver, before=first, label="all measurements")
        status = last.status if last.status in CUT_SHORT else Status.APPROXIMATED
        # with few measurements another run may lead elsewhere
        worse = not _noise_of(last) <= WORSE * _noise_of(first)
        start = first.X.full()
        worse = worse or _size(last.X.full() - start) > APART * score * _size(start)
        if status in CUT_SHORT or worse:
            last = replace(last, X=first.X)
    X = last.X
    text = (
        f"No rank was needed: shrinkage ({solver.name}), with {float(X.effective):.0f} effective "
        f"degrees of freedom, predicts held-out measurements to {score:.2g}."
    )
    numbers = {"solver": solver.name, "effective": float(X.effective), "score": score}
    findings = [Finding("approximated", text, numbers), *_of_the_rows(rows.spread)]
    mask = None if problem.weights is None else to_numpy(problem.weights) > 0
    findings += given.A.diagnose((1,) * len(problem.shape), mask)
    of_held = score
    if common > COMMON:
        text = "What all rows of A have in common was taken out of them, and of y, first."
        findings.append(Finding("centred rows", text, {"common": common, "limit": COMMON}))
        of_held = Holdout.by_weights(given, held).score(first.X, fit).score
    result = _concluded(given, last, X, score, status, findings, fit.X_true)
    isotropic = not any(f.kind == ANISOTROPIC for f in findings)
    if not isotropic:
        undetermined = result.status if status in CUT_SHORT else Status.UNDERDETERMINED
        result = replace(result, error_estimate=None, error_interval=None, status=undetermined)
    rank = None if status in CUT_SHORT or score > POOR else clear_rank(X, score)
    return Soft(result, rank, score, held, of_held, isotropic)


def _size(X: Any) -> float:
    return float(to_numpy(norm(X)))


def _in_common(problem: Problem, rows: Rows) -> float:
    """Squared norm of the sum of the rows, in units of that of rows without a mean. One pass."""
    ones = np.ones(problem.m) if problem.weights is None else to_numpy(problem.weights)
    v = like(ones, problem.y, problem.y.dtype)
    whole = _size(problem.A.adjoint(v)) ** 2
    alone = rows.gain * size(problem.shape) * float(np.sum(ones**2) / np.sum(ones))
    return whole / alone if alone else 1.0


def _centred(problem: Problem) -> Problem:
    """Problem whose rows, and y, have no mean: one equation fewer, and a pass as before.

    Rows with a mean, such as zeros and ones, are far from isotropic by that alone.
    """
    A, w = problem.A, problem.weights
    xp = namespace(problem.y)
    shares = like(np.full(problem.m, 1 / problem.m), problem.y, real_dtype(problem.y))
    shares = shares if w is None else w / xp.sum(w)

    def forward(X: Any) -> Any:
        y = A.forward(X)
        return y - xp.sum(shares * y)

    def adjoint(v: Any) -> Any:
        return A.adjoint(v - shares * xp.sum(v))

    centred = FunctionOperator(
        forward, adjoint, problem.shape, problem.m, dtype=problem.tensor_dtype, prototype=problem.y
    )
    return Problem(centred, problem.y - xp.sum(shares * problem.y), w)


def weighted_by_error(made: Equivalent, fit: Fit) -> Equivalent:
    """Rows with the weights that are best for the error that message passing reaches.

    Of measurements with noise of different variances: as X becomes known, those with little noise
    tell more. A fit to most of them, and the likelihood of the residuals of the others, tell what
    is unknown. Up to some 40 passes; none where there is no noise.
    """
    unknown = 1.0
    quietly = replace(fit, callbacks=(), noise_std=None, X_true=None)
    made = made.expecting(unknown, LOWEST)
    for _ in range(ROUNDS if made.delta else 0):
        parts = Holdout.draw(made.problem, LARGEST, fit.seed)
        if parts is None or fit.time_is_up:
            break
        found = quietly(parts.train, None, solver=AMP(max_steps=FIRST))
        now = made.unknown_share(parts.held, found.X)
        if now > unknown / 1.5:
            break
        unknown = now
        made = made.expecting(unknown, LOWEST)
    return made


def _total(problem: Problem) -> float:
    """Sum of the weights."""
    return float(problem.m if problem.weights is None else np.sum(to_numpy(problem.weights)))


def _of_the_rows(spread: float) -> list[Finding]:
    """Whether held-out measurements tell the error of X: rows must see all directions equally."""
    if spread <= SPREAD:
        return []
    text = (
        "The rows of A are far from isotropic: some directions of X are hardly measured, and the "
        "error on held-out measurements is not that of X. Give a rank, if X has one."
    )
    return [Finding(ANISOTROPIC, text, {"spread": spread, "limit": SPREAD})]


def _noise_of(result: Result) -> float:
    """Noise that message passing ended with; 0 of other fits."""
    memory = None if result.state is None else result.state.memory
    lowest = getattr(memory, "lowest", None)
    return 0.0 if lowest is None else float(np.asarray(to_numpy(lowest)))


def _annealed(
    parts: Holdout, quietly: Fit, fit: Fit, first: Result, score: float, other: Any
) -> tuple[Result, Any, float]:
    """Annealing with either prior, where it predicts held-out measurements better."""
    whole = float(np.sum(fit.losses(parts.held, parts.held.y))) or 1.0

    def judge(full: Any, number: int) -> float:
        lost = float(np.sum(fit.losses(parts.held, parts.held.residual(full))))
        return float((lost / whole) ** 0.5)

    best: tuple[Result, Any, float] = (first, other, score)
    last = first
    for prior in ("sum", "product"):
        solver = Annealing(prior=prior, judge=judge)
        last = quietly(parts.train, None, solver=solver, before=last, label=f"held out, {prior}")
        course: Any = None if last.state is None else last.state.memory
        found = np.inf if course is None else float(np.asarray(to_numpy(course.score)))
        if found < best[2]:
            levels = solver.levels[: int(to_numpy(course.level)) + 1]
            best = (last, replace(solver, levels=levels, judge=None), found)
        if last.status in CUT_SHORT:
            break
    chosen, solver, score = best
    costs = {"history": last.history, "epochs": last.epochs, "passes": last.passes}
    return replace(chosen, **costs, seconds=last.seconds, status=last.status), solver, score


# Both


def _concluded(
    problem: Problem,
    last: Result,
    X: ShrunkTensor,
    score: float,
    status: Status,
    findings: list[Finding],
    X_true: Any,
) -> Result:
    """Result of a search, in the data's own units, with how it was chosen."""
    known = score if np.isfinite(score) else None
    error = None if X_true is None else float(to_numpy(relative_error(X, X_true)))
    return replace(
        last, X=X, residual=float(to_numpy(problem.relative_residual(X))), status=status,
        m=int(problem.equations), state=None, held_out=known, **by_held_out(known),
        findings=tuple(findings), degrees_of_freedom=X.degrees_of_freedom, rank=None, error=error,
    )  # fmt: skip


def clear_rank(X: Any, score: float) -> tuple[int, ...] | None:
    """Rank where the spectra of all modes have a clear gap; None where one has none.

    What is beyond the gap must be smaller than the error of X, by held-out measurements: an offset,
    too, makes a gap.
    """
    ranks = [_gap(np.asarray(to_numpy(values)), score) for values in spectra(X.full()).values]
    return attainable_rank(tuple(ranks)) if all(ranks) else None


def _gap(s: NumPyArray, score: float) -> int:
    """Rank before the first gap of a spectrum with little behind it; 0 where there is none."""
    if len(s) == 1:
        return 1
    total = float(np.linalg.norm(s)) or 1.0
    behind = np.sqrt(np.cumsum(s[::-1] ** 2))[::-1][1:] / total
    ratios = s[:-1] / np.maximum(s[1:], np.finfo(float).tiny)
    where = np.flatnonzero((ratios >= GAP) & (behind <= score))
    return int(where[0]) + 1 if len(where) else 0


def fits_in_memory(problem: Problem) -> bool:
    """Whether tensors of the full size may be formed."""
    return size(problem.shape) <= MOST
