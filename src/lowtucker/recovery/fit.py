"""One fit: the settings of a call, and how its runs follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from lowtucker._array import Array, as_number, as_time, to_numpy
from lowtucker._array.clock import Clock
from lowtucker._array.random import Seed
from lowtucker.limits import PLENTY
from lowtucker.problem import Problem
from lowtucker.recovery import robust
from lowtucker.run.execute import Keeper, execute
from lowtucker.run.history import History
from lowtucker.run.progress import Callback
from lowtucker.run.result import Result
from lowtucker.run.scope import RESUMABLE, Scope
from lowtucker.run.stopping import MaxEpochs, ResidualBelow, Stalled, StoppingRule
from lowtucker.solvers import RGN
from lowtucker.solvers.auto import automatic, check_memory, phases_of
from lowtucker.status import Status
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.thresholding import Thresholding

__all__ = ["OVER", "Fit", "Loss", "degrees_of_freedom_of", "joined", "noise_floor"]

Loss = Literal["squared", "huber"]

# Share of normal noise that leaves more than the noise floor
LARGER = 0.02
# Endings that leave this call nothing to continue with
OVER = {*RESUMABLE, Status.DIVERGED}


@dataclass(frozen=True)
class Fit:
    """A way to fit a problem, by least squares or by Huber's loss.

    Parameters
    ----------
    solver, tol, max_epochs, max_seconds, noise_std, X_true, seed, callbacks, loss
        As in :func:`lowtucker.recover`.
    keeper : Keeper
        What keeps the fits of this call.
    clock : Clock
        Wall time of the call, and its limit: all fits of the call share it.
    stage : str
        What the fits are for, as callbacks are told: "held out", "all samples".
    rough : StoppingRule, optional
        A further rule, for fits that need not converge.
    thorough : bool
        Whether diagnosis may take fits of its own.
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
    keeper: Keeper = field(default_factory=Keeper)
    clock: Clock = field(default_factory=Clock)
    stage: str = ""
    rough: StoppingRule | None = None
    thorough: bool = True

    def __post_init__(self) -> None:
        """Check the settings that are not checked where they are used."""
        is_word = self.loss is None or isinstance(self.loss, str)
        if not is_word or self.loss not in get_args(Loss):
            raise (ValueError if is_word else TypeError)(
                f"loss must be one of {', '.join(get_args(Loss))}, got {self.loss!r:.80}."
            )
        if self.max_seconds is not None:
            as_time(self.max_seconds, "max_seconds")

    def within(self, scope: Scope) -> Fit:
        """Return the same fit for the problem inside of a scope."""
        if self.noise_std is not None:
            as_number(self.noise_std, "noise_std", 0.0)
        scope.limit_time(self.max_seconds, self.solver)
        return replace(
            self,
            solver=scope.solver(self.solver),
            noise_std=scope.noise_std(self.noise_std),
            X_true=scope.into(self.X_true, "X_true"),
            callbacks=scope.callbacks(self.callbacks),
            keeper=scope.keeper,
            clock=scope.clock,
        )

    def seconds_left(self) -> float | None:
        """Wall time that is left to the call; None where it has no limit."""
        return self.clock.left()

    @property
    def time_is_up(self) -> bool:
        """Whether the time limit of the call is reached: nothing more is to be begun."""
        return self.clock.is_up

    @property
    def identity(self) -> dict[str, Any]:
        """Settings that make it another fit than others; limits and callbacks do not."""
        return {
            name: getattr(self, name) for name in ("solver", "tol", "noise_std", "loss", "seed")
        }

    def __call__(
        self,
        problem: Problem,
        rank: Any,
        *,
        start: Any = None,
        solver: Any = None,
        before: Result | None = None,
        label: str = "",
    ) -> Result:
        """Fit. Time and history continue those of ``before``; epochs start from zero."""
        solver = self.solver if solver is None else solver
        if self.loss == "squared":
            return self._squares(problem, rank, start, solver, before, label, 0)
        return self._huber(problem, rank, start, solver, before, label)

    def _huber(
        self,
        problem: Problem,
        rank: Any,
        start: Any,
        solver: Any,
        before: Result | None,
        label: str,
    ) -> Result:
        """Fits with weights that are renewed until they settle; see :mod:`robust`."""
        first = 0 if before is None else before.epochs
        result: Result | None = None
        if start is None:
            clipped = robust.clipped(problem)
            quick = automatic(clipped, rank, quick=True) if solver == "auto" else solver
            result = self._squares(clipped, rank, None, quick, before, label, 0)
            if result.status in OVER or result.epochs - first >= self.max_epochs:
                return result
            start, before = result.X, result
        again = RGN() if solver == "auto" else solver
        for k in range(1, robust.ROUNDS + 1):
            if result is not None and self.time_is_up:
                self.clock.skip(f"the rounds of Huber's weights after {k - 1}")
                return replace(result, status=Status.MAX_SECONDS)
            X = getattr(start, "X", start)  # a state knows the residuals of other weights
            weights = robust.weights_at(problem, X, self.tol)
            fresh = Problem(problem.A, problem.y, weights)
            done = 0 if before is None else before.epochs - first
            name = f"{label} huber {k}".strip()
            result = self._squares(fresh, rank, X, again, before, name, done)
            result = replace(result, weights=weights)
            over = result.status in OVER or result.epochs - first >= self.max_epochs
            if over or robust.settled(result, X, self.tol):
                break
            start, before = result.X, result
        assert result is not None  # there is one round at least
        return result

    def _squares(
        self,
        problem: Problem,
        rank: Any,
        start: Any,
        solver: Any,
        before: Result | None,
        label: str,
        epochs: int,
    ) -> Result:
        """One run by least squares."""
        phases = phases_of(solver, problem, rank)
        stage = ", ".join(filter(None, (self.stage, label)))
        check_memory(problem, phases, rank)
        result = execute(
            problem,
            phases,
            rank,
            stop=self._stop(problem, degrees_of_freedom_of(problem.shape, phases, rank), epochs),
            start=tensor_or_state(start, problem),
            X_true=self.X_true,
            seed=self.seed,
            callbacks=self.callbacks,
            keeper=self.keeper,
            clock=self.clock,
            stage=stage,
        )
        if self.clock.limit is not None and Status.MAX_SECONDS in np.atleast_1d(result.status):
            self.clock.skip(f"the fit of {stage or f'rank {rank}'}")
        return joined(before, result, label)

    def losses(self, problem: Problem, residual: Array) -> np.ndarray[Any, Any]:
        """Squares of the residuals that count, in units of ||y||; clipped at 3 sigma by Huber."""
        unit = float(problem.y_norm) or 1.0
        sizes: np.ndarray[Any, Any] = np.abs(to_numpy(residual)) / unit
        if self.loss == "huber":
            sizes = np.minimum(sizes, robust.CLIP * robust.spread(problem, residual) / unit)
        squares = sizes**2
        if problem.weights is None:
            return squares
        weights = to_numpy(problem.weights)
        counting: np.ndarray[Any, Any] = (weights * squares)[weights > 0]
        return counting

    def _stop(self, problem: Problem, dof: int, epochs: int) -> StoppingRule:
        """Rule for the remaining epochs; the clock is that of the whole call."""
        rule: StoppingRule = ResidualBelow(self.tol)
        rule = rule if self.rough is None else rule | self.rough
        if self.noise_std is not None:
            floor = noise_floor(problem, self.noise_std, dof)
            if self.solver == "auto":  # local minima of few may be as low: other starts tell
                floor = np.where(problem.equations < PLENTY * dof, 0.0, floor)
            rule = rule | ResidualBelow(floor, Status.NOISE_FLOOR)
        left = self.max_epochs - epochs if epochs else self.max_epochs
        return rule | Stalled() | MaxEpochs(left)


def degrees_of_freedom_of(shape: tuple[int, ...], phases: Sequence[Any], rank: Any) -> int:
    """Degrees of freedom of a Tucker rank, or else of the thresholding that the solvers have."""
    if rank is not None:
        return degrees_of_freedom(shape, attainable_rank(check_rank(rank, shape, warn=False)))
    given = (getattr(solver, "thresholding", None) for solver in phases)
    formats = [H for H in given if isinstance(H, Thresholding) and not isinstance(H, type)]
    return max((H.degrees_of_freedom(shape) for H in formats), default=1)


def tensor_or_state(start: Any, problem: Problem) -> Any:
    """Result -> its state, or its tensor if it is of other measurements; all else as it is."""
    if not isinstance(start, Result):
        return start
    others = start.m != int(np.min(problem.equations))
    return start.X if others or start.state is None else start.state


def joined(before: Result | None, after: Result, label: str) -> Result:
    """Result of a fit, its history after that of what was done before it."""
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
        passes=before.passes + after.passes,
        seconds=before.seconds + after.seconds,
    )


def noise_floor(problem: Problem, noise_std: Any, dof: int) -> np.ndarray[Any, Any]:
    r"""Relative residual that noise of that size leaves, one number for every problem of a batch.

    A fit of dof numbers to M equations leaves :math:`\sigma^2 (M - dof)` of the noise on average,
    with a chi-squared distribution: 2 % of all normal noise leave more than this.
    """
    from scipy.special import chdtri  # a module that takes long to load

    std = as_number(noise_std, "noise_std", 0.0)
    total = problem.m if problem.weights is None else to_numpy(problem.weights).sum(axis=-1)
    equations = np.asarray(problem.equations)
    spare = np.maximum(equations - dof, 1)
    share = chdtri(spare, LARGER) / equations
    size = to_numpy(problem.y_norm)
    size = np.where(size > 0, size, np.inf)
    if np.any(std >= size / np.sqrt(total)):
        raise ValueError(
            f"noise_std = {std:g} is as large as y itself, whose root mean square is "
            f"{float(np.min(size / np.sqrt(total))):.3g}: y is indistinguishable from zero signal. "
            "Is it in the units of y?"
        )
    return np.asarray(std * np.sqrt(total * share) / size)
