"""How to fit a problem: the settings of one call of ``recover``, and the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from lowtucker._array import (
    Array,
    as_number,
    eps,
    like,
    namespace,
    real_dtype,
    to_numpy,
)
from lowtucker._array.random import Seed
from lowtucker.checkpoint import Journal, fingerprint
from lowtucker.metrics import relative_error
from lowtucker.problem import Problem
from lowtucker.result import Result
from lowtucker.run import Callback, History
from lowtucker.run.stopping import MaxEpochs, MaxSeconds, ResidualBelow, Stalled, StoppingRule
from lowtucker.scaling import Units, into_units, solver_in_units
from lowtucker.solve import automatic, run_solvers, told_without
from lowtucker.solvers import RGN
from lowtucker.status import Status
from lowtucker.tensor.products import norm
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Fit", "Loss", "joined", "noise_floor"]

Loss = Literal["squared", "huber"]

# Standard deviations of normal noise in its median absolute value
MAD = 1.4826
# Residuals above so many standard deviations count less: 95 % efficient where all noise is normal
KINK = 1.345
# Residuals above so many are left out: normal noise has two in a thousand million
OUT = 6.0
# The first fit, and what is held out, see no measurement larger than so many standard deviations
CLIP = 3.0
# Weights are settled when a fit changes X by less than so much of the residual
SETTLED, ROUNDS = 0.01, 30
# Endings that another call can go on from; and those that leave this call nothing to go on with
GOES_ON = {Status.INTERRUPTED, Status.MAX_SECONDS, Status.MAX_EPOCHS}
OVER = {*GOES_ON, Status.DIVERGED}


@dataclass(frozen=True)
class Fit:
    r"""A way to fit a problem, by squares or by Huber's loss.

    Huber's loss is quadratic up to :math:`c \sigma` and linear beyond, so that a gross outlier
    pulls no more than a residual of :math:`c \sigma`. It is minimised by fits with weights

    .. math:: w_j = \min(1, c \sigma / |r_j|), \quad \sigma = 1.4826\, \mathrm{median}\,|r_j|,
        \quad c = 1.345

    that are renewed after every fit; what is beyond :math:`6 \sigma` is left out altogether.
    The first fit clips y at three standard deviations, by its median too.

    Parameters
    ----------
    solver, tol, max_epochs, max_seconds, noise_std, X_true, seed, callbacks, loss
        As in :func:`lowtucker.recover`.
    journal : Journal, optional
        Where the fits of this call are kept.
    """

    solver: Any
    tol: float
    max_epochs: int
    max_seconds: float | None
    noise_std: float | None
    X_true: Any
    seed: Seed
    callbacks: Sequence[Callback]
    loss: Loss
    journal: Journal | None = None

    def __post_init__(self) -> None:
        """Check the loss; the other settings are checked where they are used."""
        is_word = self.loss is None or isinstance(self.loss, str)
        if not is_word or self.loss not in get_args(Loss):
            raise (ValueError if is_word else TypeError)(
                f"loss must be one of {', '.join(get_args(Loss))}, got {self.loss!r:.80}."
            )
        if self.max_seconds is not None:
            as_number(self.max_seconds, "max_seconds", positive=True)

    def __call__(
        self,
        problem: Problem,
        rank: tuple[int, ...],
        *,
        start: Any = None,
        solver: Any = None,
        before: Result | None = None,
        label: str = "",
    ) -> Result:
        """Fit; time and history go on from what was done ``before``, epochs are counted anew."""
        solver = self.solver if solver is None else solver
        first = 0 if before is None else before.epochs
        if self.loss == "squared":
            return self._squares(problem, rank, start, solver, before, label, 0)
        if start is None:
            clipped = _clipped(problem)
            quick = automatic(clipped, rank, quick=True) if solver == "auto" else solver
            result = self._squares(clipped, rank, None, quick, before, label, 0)
            if result.status in OVER or result.epochs - first >= self.max_epochs:
                return result
            start, before = result.X, result
        again = RGN() if solver == "auto" or isinstance(solver, list | tuple) else solver
        for k in range(1, ROUNDS + 1):
            X = getattr(start, "X", start)  # a state knows the residuals of other weights
            weights = _huber_weights(problem, X, self.tol)
            fresh = Problem(problem.A, problem.y, weights)
            done = 0 if before is None else before.epochs - first
            name = f"{label} huber {k}".strip()
            result = self._squares(fresh, rank, X, again, before, name, done)
            result = replace(result, weights=weights)
            over = result.status in OVER or result.epochs - first >= self.max_epochs
            if over or _change(result.X, X) <= max(self.tol, SETTLED * result.residual):
                break
            start, before = result.X, result
        return result

    def _squares(
        self,
        problem: Problem,
        rank: tuple[int, ...],
        start: Any,
        solver: Any,
        before: Result | None,
        label: str,
        epochs: int,
    ) -> Result:
        result = run_solvers(
            problem,
            solver,
            rank,
            stop=self._stop(problem, rank, 0.0 if before is None else before.seconds, epochs),
            start=start,
            X_true=self.X_true,
            seed=self.seed,
            callbacks=self.callbacks,
            journal=self.journal,
        )
        return joined(before, result, label)

    def losses(self, problem: Problem, residual: Array) -> np.ndarray[Any, Any]:
        """Squares of the residuals that count, in units of ||y||; clipped at 3 sigma by Huber."""
        unit = float(problem.y_norm) or 1.0
        sizes: np.ndarray[Any, Any] = np.abs(to_numpy(residual)) / unit
        if self.loss == "huber":
            sizes = np.minimum(sizes, CLIP * _spread(problem, residual) / unit)
        squares = sizes**2
        if problem.weights is None:
            return squares
        weights = to_numpy(problem.weights)
        counting: np.ndarray[Any, Any] = (weights * squares)[weights > 0]
        return counting

    def _stop(self, problem: Problem, rank: Any, seconds: float, epochs: int) -> StoppingRule:
        """Rule for what is left of the time and the epochs."""
        rule: StoppingRule = ResidualBelow(self.tol)
        if self.noise_std is not None:
            floor = noise_floor(problem, self.noise_std, rank)
            rule = rule | ResidualBelow(floor, Status.NOISE_FLOOR)
        rule = rule | Stalled() | MaxEpochs(self.max_epochs - epochs if epochs else self.max_epochs)
        if self.max_seconds is None:
            return rule
        earlier = 0.0 if self.journal is None else self.journal.seconds  # of other calls
        left = self.max_seconds + earlier - seconds
        return rule | MaxSeconds(max(1e-9, left) if seconds else left)

    def within(self, units: Units) -> Fit:
        """Make the same fit for a problem in its units."""
        if units.plain:
            return self
        if self.noise_std is not None:
            as_number(self.noise_std, "noise_std", 0.0)
        return replace(
            self,
            solver=solver_in_units(self.solver, units),
            noise_std=units.noise_std(self.noise_std),
            X_true=into_units(self.X_true, units, "X_true"),
            callbacks=told_without(units, self.callbacks),
        )

    def keeping(
        self, problem: Problem, rank: Any, checkpoint: Any, *, start: Any = None, share: float = 0.0
    ) -> Fit:
        """Make the same fit with a checkpoint, which may have some of it already."""
        if checkpoint is None:
            return self
        names = ("solver", "tol", "noise_std", "loss", "seed")
        settings = {name: getattr(self, name) for name in names}
        settings |= {"rank": rank, "held_out": share}
        whose = fingerprint(problem, start, self.X_true, settings)
        return replace(self, journal=Journal(checkpoint, whose, problem.y))

    def written(self, result: Result) -> Result:
        """Result of the call, which is kept; with a word on how to go on with it."""
        if self.journal is None:
            return result
        self.journal.write()
        if self.journal.trouble:
            note = f"The checkpoint could not be written: {self.journal.trouble}."
            return replace(result, notes=(*result.notes, note))
        if not set(np.atleast_1d(result.status)) & GOES_ON:
            return result
        note = f'The same call with checkpoint="{self.journal.given}" goes on from here.'
        return replace(result, notes=(*result.notes, note))


def joined(before: Result | None, after: Result, label: str) -> Result:
    """Result of a fit, with the history of what was done before it."""
    rows = dict(after.history)
    if label:
        rows["phase"] = np.array([f"{label} {phase}" for phase in rows["phase"]])
    if before is None:
        return after if not label else replace(after, history=History.of(rows))
    first = before.history
    for name in ("epoch", "passes", "seconds"):
        rows[name] = rows[name] + first.last[name]
    history = History.of({name: [*first[name], *rows[name]] for name in first})
    return replace(
        after,
        history=history,
        epochs=before.epochs + after.epochs,
        passes=float(history.last["passes"]),
        seconds=before.seconds + after.seconds,
    )


def _change(X: TuckerTensor, before: Any) -> float:
    """Distance from an earlier tensor, relative to it."""
    size = float(before.norm()) if isinstance(before, TuckerTensor) else float(norm(before))
    if size:
        return float(relative_error(X, before))
    return math.inf if float(X.norm()) else 0.0


def _clipped(problem: Problem) -> Problem:
    """Problem without measurements that stick out."""
    xp, y = namespace(problem.y), problem.y
    largest = CLIP * _spread(problem, y)
    if not largest:
        return problem
    size = xp.abs(y)
    factor = largest / xp.where(size > largest, size, xp.full_like(size, largest))
    return Problem(problem.A, y * factor, problem.weights)


def _spread(problem: Problem, residual: Array) -> float:
    """Standard deviation by the median, of the measurements that count."""
    size = np.abs(to_numpy(residual))
    if problem.weights is not None:
        size = size[to_numpy(problem.weights) > 0]
    return MAD * float(np.median(size)) if size.size else 0.0


def _huber_weights(problem: Problem, X: TuckerTensor, tol: float = 0.0) -> Array:
    """Weights of the next fit, times those that were given."""
    residual = problem.residual(X)
    size = np.abs(to_numpy(residual))
    # a fit to the tolerance has no spread: what is larger than that is then an outlier
    least = max(tol, 10 * eps(problem.y)) * _spread(problem, problem.y)
    sigma = max(_spread(problem, residual), least)
    weights = np.ones_like(size)
    if sigma:
        weights = KINK * sigma / np.maximum(size, KINK * sigma)
        weights[size > OUT * sigma] = 0
    made = like(weights, problem.y, real_dtype(problem.y))
    return made if problem.weights is None else made * problem.weights


def noise_floor(problem: Problem, noise_std: Any, rank: Any) -> np.ndarray[Any, Any]:
    r"""Relative residual that noise of that size leaves, one number for every trial.

    A fit of dof numbers to M equations leaves :math:`\sigma^2 (M - dof)` of the noise, give or
    take a share of :math:`\sqrt{2/(M - dof)}`; two of these are allowed for.
    """
    std = as_number(noise_std, "noise_std", 0.0)
    total = problem.m if problem.weights is None else to_numpy(problem.weights).sum(axis=-1)
    attained = attainable_rank(check_rank(rank, problem.shape, warn=False))
    equations = np.asarray(problem.equations)
    spare = np.maximum(equations - degrees_of_freedom(problem.shape, attained), 1)
    share = spare / equations * (1 + 2 * np.sqrt(2 / spare))
    size = to_numpy(problem.y_norm)
    size = np.where(size > 0, size, np.inf)
    if np.any(std * np.sqrt(total) >= size):
        raise ValueError(
            f"noise_std = {std:g} is as large as y itself, whose root mean square is "
            f"{float(np.min(size / np.sqrt(total))):.3g}: zero would do. Is it in the units of y?"
        )
    return np.asarray(std * np.sqrt(total * share) / size)
