"""Methods to compare ``recover`` with, each with favourable settings."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lowtucker.lab.bench.timing import timed
from lowtucker.metrics import relative_error
from lowtucker.operators import DenseOperator
from lowtucker.problem import Problem
from lowtucker.recovery import recover, solve
from lowtucker.run.history import History
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
    """A problem with known solution, or a batch of problems."""

    A: DenseOperator
    y: Any
    X_true: Any
    rank: tuple[int, ...]
    clean: Any = None  # y without outliers


class Outcome(NamedTuple):
    """Outcome of a run; arrays for a batch of problems."""

    score: Any  # the relative error, or another quantity of the yardstick
    passes: Any
    seconds: float  # CPU time
    passes_to_tol: Any = np.nan
    time: float = np.nan  # in products A @ x
    memory: float = np.nan  # in MB


def passes_to(result: Result, tol: float) -> float:
    """Return the passes after which the error first is at most ``tol``; NaN if never."""
    reached = result.history["passes"][result.history["error"] <= tol]
    return float(reached[0]) if reached.size else np.nan


class Method(ABC):
    """A recovery method. Subclasses are frozen dataclasses."""

    name: str
    supports_batch: ClassVar[bool] = False
    slow: ClassVar[bool] = False  # run on fewer trials

    @abstractmethod
    def run(self, case: Case, tol: float) -> Outcome:
        """Recover the tensor; an error of at most ``tol`` suffices."""

    @property
    def note(self) -> str:
        """Description of the chosen settings."""
        return ""


@dataclass(frozen=True)
class IHTMethod(Method):
    """TIHT or StoTIHT, with two advantages.

    A fixed step is the best of ``steps`` on tuning problems, by the true error. A run also uses
    the true tensor to stop: it ends once the error is small enough, and its time and passes are
    those of the iterations alone, without the residuals that a practical stopping rule needs.
    """

    name: str
    solver: TIHT | StoTIHT
    steps: tuple[float, ...] = ()
    epochs: int = 500

    supports_batch: ClassVar[bool] = True

    def run(self, case: Case, tol: float) -> Outcome:
        """Return error and passes at the end of the epoch that reached ``tol``."""
        stop = ErrorBelow(tol) | Stalled() | MaxEpochs(self.epochs)
        problem, begin = Problem(case.A, case.y), time.process_time()
        result, wall = timed(
            lambda: solve(problem, self.solver, case.rank, stop=stop, X_true=case.X_true)
        )
        # of the wall time of the iterations, the share that other processes left to this one
        seconds = result.seconds * (time.process_time() - begin) / wall
        passes: Any = self._passes(result.history)
        if case.A.batch_shape:
            trials = range(case.A.batch_shape[0])
            passes = np.array([self._passes(result.trial(k).history) for k in trials])
        reached = np.where(np.asarray(result.error) <= tol, passes, np.nan)
        return Outcome(result.error, passes, seconds, reached)

    def _passes(self, history: History) -> float:
        """Passes of the iterations alone: StoTIHT measures the residual for every row."""
        residuals = history.rows if isinstance(self.solver, StoTIHT) else 0
        return float(history["passes"][-1]) - residuals

    def with_step(self, step: float) -> IHTMethod:
        """Return the method with a fixed step."""
        return replace(self, solver=replace(self.solver, step=step))

    @property
    def note(self) -> str:
        """The step, if fixed."""
        return "" if self.solver.step == "auto" else f"step {self.solver.step:g}"


def best_step(method: IHTMethod, cases: Sequence[Case], tol: float) -> float:
    """Return the step that recovers most problems; ties are broken by the fewest passes."""

    def cost(step: float) -> tuple[float, float]:
        outcomes = [method.with_step(step).run(case, tol) for case in cases]
        passes = np.concatenate([np.atleast_1d(one.passes_to_tol) for one in outcomes])
        good = ~np.isnan(passes)
        return -float(good.sum()), float(passes[good].mean()) if good.any() else np.inf

    return min(method.steps, key=cost)


@dataclass(frozen=True)
class OneStart(Method):
    """Riemannian Gauss-Newton from one start, with its own stopping rule."""

    name: str = "RGN"

    def run(self, case: Case, tol: float) -> Outcome:
        """Recover and time the whole call."""
        result, seconds = timed(
            lambda: recover(case.A, case.y, case.rank, solver="rgn", X_true=case.X_true),
            time.process_time,
        )
        return Outcome(result.error, result.passes, seconds, passes_to(result, tol))


@dataclass(frozen=True)
class TensorLy(Method):
    """TensorLy's ``TuckerRegressor``: alternating least squares from a random start.

    The ridge is reduced and the tolerance tightened, so that an error of 1e-5 is attainable; the
    limit of 100 iterations is the default. An iteration takes one pass per mode and one for the
    core.
    """

    name: str = "TensorLy"

    slow: ClassVar[bool] = True

    def run(self, case: Case, tol: float) -> Outcome:
        """Fit and time the regressor."""
        from tensorly.regression import TuckerRegressor

        regressor = TuckerRegressor(
            list(case.rank), tol=1e-8, reg_W=1e-9, random_state=0, verbose=0
        )  # fmt: skip
        rows = case.A.matrix.reshape(-1, *case.A.shape)
        _, seconds = timed(lambda: regressor.fit(rows, case.y), time.process_time)
        error = relative_error(regressor.weight_tensor_, case.X_true)
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
