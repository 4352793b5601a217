"""Methods to compare the one call with, each given what favours it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lowtucker.metrics import relative_error
from lowtucker.operators import DenseOperator
from lowtucker.problem import Problem
from lowtucker.recovery import recover, solve
from lowtucker.run.result import Result
from lowtucker.run.stopping import ErrorBelow, MaxEpochs, Stalled
from lowtucker.solvers import TIHT, StoTIHT

__all__ = [
    "COMPARATORS",
    "STOTIHT",
    "Case",
    "IHTMethod",
    "Method",
    "OneStart",
    "Outcome",
    "TensorLy",
    "best_step",
    "passes_to",
]


class Case(NamedTuple):
    """A problem whose truth is known: one, or a stack of trials."""

    A: DenseOperator
    y: Any
    X_true: Any
    rank: tuple[int, ...]
    clean: Any = None  # y before it was spoilt


class Outcome(NamedTuple):
    """What a run came to; arrays for a stack of trials."""

    score: Any  # the relative error, or what else a yardstick looks at
    passes: Any
    seconds: float
    passes_to_tol: Any = np.nan
    time: float = np.nan  # in products A @ x
    memory: float = np.nan  # in MB


def passes_to(result: Result, tol: float) -> float:
    """Passes after which the history first shows an error of at most ``tol``; NaN if never."""
    reached = result.history["passes"][result.history["error"] <= tol]
    return float(reached[0]) if reached.size else np.nan


class Method(ABC):
    """A way to recover a tensor. Subclasses are frozen dataclasses."""

    name: str
    takes_stacks: ClassVar[bool] = False
    slow: ClassVar[bool] = False  # runs on fewer trials

    @abstractmethod
    def run(self, case: Case, tol: float) -> Outcome:
        """Recover; an error of at most ``tol`` is good enough."""

    @property
    def note(self) -> str:
        """Settings that were chosen."""
        return ""


@dataclass(frozen=True)
class IHTMethod(Method):
    """TIHT or StoTIHT, favoured twice.

    A fixed step is the best of ``steps`` on tuning problems, judged by their truth. A run is told
    the truth too: it ends as soon as the error is small enough, and its seconds are those of the
    iterations alone, without the residuals that it would need to stop by itself.
    """

    name: str
    solver: TIHT | StoTIHT
    steps: tuple[float, ...] = ()
    epochs: int = 500

    takes_stacks: ClassVar[bool] = True

    def run(self, case: Case, tol: float) -> Outcome:
        """Error and passes at the end of the epoch that reached the error."""
        result = solve(
            Problem(case.A, case.y),
            self.solver,
            case.rank,
            stop=ErrorBelow(tol) | Stalled() | MaxEpochs(self.epochs),
            X_true=case.X_true,
        )
        passes: Any = result.passes
        if case.A.batch_shape:
            trials = range(case.A.batch_shape[0])
            passes = np.array([result.trial(k).history["passes"][-1] for k in trials])
        reached = np.where(np.asarray(result.error) <= tol, passes, np.nan)
        return Outcome(result.error, passes, result.seconds, reached)

    def with_step(self, step: float) -> IHTMethod:
        """Return the method with a fixed step."""
        return replace(self, solver=replace(self.solver, step=step))

    @property
    def note(self) -> str:
        """The step, where it is fixed."""
        return "" if self.solver.step == "auto" else f"step {self.solver.step:g}"


def best_step(method: IHTMethod, cases: Sequence[Case], tol: float) -> float:
    """Step with which most of the problems are recovered, and then in the fewest passes."""

    def cost(step: float) -> tuple[float, float]:
        outcomes = [method.with_step(step).run(case, tol) for case in cases]
        passes = np.concatenate([np.atleast_1d(one.passes_to_tol) for one in outcomes])
        good = ~np.isnan(passes)
        return -float(good.sum()), float(passes[good].mean()) if good.any() else np.inf

    return min(method.steps, key=cost)


@dataclass(frozen=True)
class OneStart(Method):
    """Riemannian Gauss-Newton from one start; it ends by itself."""

    name: str = "RGN"

    def run(self, case: Case, tol: float) -> Outcome:
        """Time of the whole call."""
        begin = time.perf_counter()
        result = recover(case.A, case.y, case.rank, solver="rgn", X_true=case.X_true)
        seconds = time.perf_counter() - begin
        return Outcome(result.error, result.passes, seconds, passes_to(result, tol))


@dataclass(frozen=True)
class TensorLy(Method):
    """TensorLy's ``TuckerRegressor``: alternating least squares from a random start.

    Its ridge is turned down and its tolerance is tightened, so that it can reach an error of
    1e-5; the limit of 100 iterations is its own. An iteration reads the rows once for every mode
    and once for the core.
    """

    name: str = "TensorLy"

    slow: ClassVar[bool] = True

    def run(self, case: Case, tol: float) -> Outcome:
        """Time of the fit."""
        from tensorly.regression import TuckerRegressor

        regressor = TuckerRegressor(
            list(case.rank), tol=1e-8, reg_W=1e-9, random_state=0, verbose=0
        )  # fmt: skip
        rows = case.A.matrix.reshape(-1, *case.A.shape)
        begin = time.perf_counter()
        regressor.fit(rows, case.y)
        seconds = time.perf_counter() - begin
        error = relative_error(regressor.weight_tensor_, case.X_true.full())
        passes = regressor.n_iterations_ * (len(case.rank) + 1)
        return Outcome(error, float(passes), seconds)


STOTIHT = IHTMethod("StoTIHT", StoTIHT(), steps=(0.2, 0.3, 0.45, 0.65))
COMPARATORS: tuple[Method, ...] = (
    IHTMethod("TIHT", TIHT(), steps=(0.3, 0.45, 0.65, 0.9)),
    IHTMethod("NTIHT", TIHT(step="auto")),
    STOTIHT,
    OneStart(),
    TensorLy(),
)
