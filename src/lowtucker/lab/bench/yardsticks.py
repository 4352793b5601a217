"""Yardsticks: work that others published, and what the one call must reach on it."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lowtucker.lab.bench.methods import STOTIHT, Case, Outcome, passes_to
from lowtucker.lab.bench.timing import check_names, listed
from lowtucker.metrics import relative_error
from lowtucker.operators import gaussian
from lowtucker.recovery import recover
from lowtucker.run.result import Result
from lowtucker.tensor import TangentSpace, attainable_rank, degrees_of_freedom, random_tucker

__all__ = ["NAMES", "SEED", "TOL", "TUNING", "Recovery", "Yardstick", "chosen"]

NAMES = ("A1", "A2", "A3", "A5", "B1", "B2", "B3", "C1", "C2", "C3", "S")
Floats = np.ndarray[Any, Any]
# Seeds of the problems to measure on, and of those to tune on
SEED, TUNING = 0, 1
# The error that counts as recovered, unless a yardstick has its own
TOL = 1e-5


@dataclass(frozen=True, kw_only=True)
class Yardstick(ABC):
    """Gaussian measurements of tensors, how the answer is judged, and what must be reached.

    Parameters
    ----------
    name : str
    shape, rank : tuple of int
    m : int
    trials : int
        How many problems the default solver gets.
    targets : mapping
        Columns of the row, and what they should be: ``{"value": ">= 0.95"}``.
    noise : float
        Norm of the noise, as a share of ||y||.
    timed : bool
        Whether speed and memory matter.
    """

    name: str
    shape: tuple[int, ...]
    rank: tuple[int, ...]
    m: int
    trials: int
    targets: Mapping[str, str] = field(default_factory=dict)
    noise: float = 0.0
    timed: bool = False

    measure: ClassVar[str]  # what the value of its row is

    @property
    def m_per_dof(self) -> float:
        """Measurements per degree of freedom."""
        return self.m / degrees_of_freedom(self.shape, self.rank)

    def truth(self, seed: tuple[int, int]) -> Any:
        """Tensor to recover."""
        return random_tucker(self.shape, self.rank, seed=seed)

    def draw(self, trial: int, seed: int = SEED) -> Case:
        """Problem of a number."""
        X_true = self.truth((seed, trial))
        A = gaussian(self.shape, self.m, seed=(seed, trial))
        y = A.forward(X_true)
        if self.noise:
            y = y + noise_of(self.noise * float(np.linalg.norm(y)), self.m, trial)
        return Case(A, y, X_true, self.rank)

    def recover(self, case: Case, X_true: Any = None) -> Result:
        """Recover as a user does; X_true is for a look at the history alone."""
        return recover(case.A, case.y, case.rank, X_true=X_true)

    def run(self, case: Case) -> Outcome:
        """Score, passes, and the time of the whole call."""
        begin = time.perf_counter()
        result = self.recover(case)
        seconds = time.perf_counter() - begin
        return Outcome(self.score(case, result), result.passes, seconds)

    @abstractmethod
    def score(self, case: Case, result: Result) -> float:
        """Judge a result by the truth."""

    def summary(self, scores: Floats) -> tuple[float, str]:
        """Value of the row and a remark: the median, and the worst."""
        note = f"worst {scores.max():.4g}" if scores.size > 1 else ""
        return float(np.median(scores)), note


def noise_of(size: float, m: int, trial: int) -> Any:
    """Gaussian noise of a norm."""
    e = np.random.default_rng([SEED, trial]).standard_normal(m)
    return size / np.linalg.norm(e) * e


@dataclass(frozen=True, kw_only=True)
class Recovery(Yardstick):
    """How many of the problems are recovered, by all the methods."""

    tol: float = TOL
    orthonormal: bool = True
    core_mean: float = 0.0
    compared: int  # trials of the other methods
    slow: int  # trials of the slow ones
    tuning: int  # problems on which steps are chosen
    stacked: bool = False  # small problems: run the trials as one, where a method can

    measure: ClassVar[str] = "recovered"

    def truth(self, seed: tuple[int, int], trials: int | None = None) -> Any:
        """Tensor to recover, or a stack of them."""
        return random_tucker(
            self.shape, self.rank, seed=seed, trials=trials,
            orthonormal=self.orthonormal, core_mean=self.core_mean,
        )  # fmt: skip

    def cases(self, trials: int, seed: int, *, stack: bool) -> Iterator[Case]:
        """Problems one by one; as one stack where it is wanted and they are small."""
        if stack and self.stacked:
            X_true = self.truth((seed, 0), trials)
            A = gaussian(self.shape, self.m, seed=seed, trials=trials)
            yield Case(A, A.forward(X_true), X_true, self.rank)
        else:
            for k in range(trials):
                yield self.draw(k, seed)

    def run(self, case: Case) -> Outcome:
        """Run; where speed matters once more, for the passes that the error took."""
        outcome = super().run(case)
        if not self.timed:
            return outcome
        again = self.recover(case, case.X_true)
        return outcome._replace(passes_to_tol=passes_to(again, self.tol))

    def score(self, case: Case, result: Result) -> float:
        """Relative error."""
        return float(relative_error(result.X, case.X_true))

    def summary(self, scores: Floats) -> tuple[float, str]:
        """Share of those with a small error."""
        return float(np.mean(scores <= self.tol)), ""


@dataclass(frozen=True, kw_only=True)
class Candle(Yardstick):
    """Error on the part of the authors' clip that the paper uses, which is not of low rank."""

    path: Path

    measure: ClassVar[str] = "error"

    @cached_property
    def pixels(self) -> Any:
        """Grey values, rows and columns and frames as in the paper."""
        from lowtucker.lab.video import load_video

        return load_video(self.path, rows=(61, 90), columns=(71, 100), frames=(1, 10))

    def truth(self, seed: tuple[int, int]) -> Any:
        """Return the clip: only the measurements differ."""
        return self.pixels

    def score(self, case: Case, result: Result) -> float:
        """Relative error."""
        return float(relative_error(result.X, case.X_true))


@dataclass(frozen=True, kw_only=True)
class NearOracle(Yardstick):
    """Error with noise, over that of an oracle who knows the true tangent space."""

    measure: ClassVar[str] = "error / oracle's"

    def score(self, case: Case, result: Result) -> float:
        """Compare with least squares on the tangent space at the truth, which contains it."""
        T = TangentSpace(case.X_true)
        D = case.A.tangent(T).dense()
        oracle = np.linalg.lstsq(D, case.y, rcond=None)[0]
        reach = np.linalg.norm(oracle - T.here) / np.linalg.norm(T.here)
        return float(relative_error(result.X, case.X_true) / reach)


@dataclass(frozen=True, kw_only=True)
class Outliers(Yardstick):
    """Error where some measurements are gross outliers, over that without them."""

    share: float = 0.01
    size: float = 30.0  # standard deviation, in root mean squares of y

    measure: ClassVar[str] = "error / outlier-free"

    def draw(self, trial: int, seed: int = SEED) -> Case:
        """Replace a share of the measurements."""
        case = super().draw(trial, seed)
        rng = np.random.default_rng([seed, trial, 1])
        where = rng.choice(self.m, round(self.share * self.m), replace=False)
        y = case.y.copy()
        scale = self.size * np.linalg.norm(y) / np.sqrt(self.m)
        y[where] = scale * rng.standard_normal(where.size)
        return case._replace(y=y, clean=case.y)

    def recover(self, case: Case, X_true: Any = None) -> Result:
        """Recover with the loss that is made for outliers."""
        return recover(case.A, case.y, case.rank, loss="huber", X_true=X_true)

    def score(self, case: Case, result: Result) -> float:
        """Compare with the default loss on the measurements that were replaced."""
        free = recover(case.A, case.clean, case.rank)
        error = relative_error(result.X, case.X_true)
        return float(error / relative_error(free.X, case.X_true))


@dataclass(frozen=True, kw_only=True)
class UnknownRank(Yardstick):
    """How often the rank is found."""

    measure: ClassVar[str] = "rank found"

    def recover(self, case: Case, X_true: Any = None) -> Result:
        """Recover without a rank."""
        return recover(case.A, case.y, rank="auto", X_true=X_true)

    def score(self, case: Case, result: Result) -> float:
        """1 where it is the true one."""
        return float(result.rank == case.rank)

    def summary(self, scores: Floats) -> tuple[float, str]:
        """Share, and the trials where it is another."""
        return float(np.mean(scores)), listed(np.flatnonzero(scores == 0))


@dataclass(frozen=True, kw_only=True)
class Small(Yardstick):
    """In how many small problems the default is worse than StoTIHT at its best fixed step.

    The problems differ in order, shape, rank, and measurements per degree of freedom (1.3 to 6).
    The step is the best of a small grid for the very problem, by its truth. Errors below the
    tolerance are equal. There is no noise: with it, the best of several steps by the truth is the
    luckiest, and often a worse fit with a lower error.
    """

    shape: tuple[int, ...] = ()
    rank: tuple[int, ...] = ()
    m: int = 0

    measure: ClassVar[str] = "worse"

    @property
    def m_per_dof(self) -> float:
        """Not one number."""
        return math.nan

    def draw(self, trial: int, seed: int = SEED) -> Case:
        """Problem of a number, of its own shape."""
        rng = np.random.default_rng([seed, trial, 2])
        order = int(rng.integers(2, 5))
        low, high = {2: (8, 20), 3: (5, 10), 4: (3, 6)}[order]
        shape = tuple(rng.integers(low, high + 1, order).tolist())
        rank = attainable_rank(tuple(rng.integers(1, 4, order).tolist()))
        dof = degrees_of_freedom(shape, rank)
        m = min(math.ceil(rng.uniform(1.3, 6) * dof), math.prod(shape))
        X_true = random_tucker(shape, rank, seed=(seed, trial))
        A = gaussian(shape, m, seed=(seed, trial))
        return Case(A, A.forward(X_true), X_true, rank)

    def score(self, case: Case, result: Result) -> float:
        """1 where StoTIHT did better."""
        error = float(relative_error(result.X, case.X_true))
        if error <= TOL:  # nothing is better
            return 0.0
        runs = (STOTIHT.with_step(step).run(case, TOL) for step in STOTIHT.steps)
        return float(any(error > max(TOL, run.score) for run in runs))

    def summary(self, scores: Floats) -> tuple[float, str]:
        """Count, and which trials."""
        worse = np.flatnonzero(scores)
        return float(worse.size), listed(worse)


def yardsticks(candle: Path) -> list[Yardstick]:
    """All of them; A5 only where the authors' clip is."""
    A1 = {26: ">= 0.95", 28: ">= 0.98", 36: ">= 0.99", 42: ">= 0.99", 54: ">= 0.99",
          66: ">= 0.99", 90: ">= 0.99"}  # fmt: skip
    A2 = {120: None, 160: ">= 0.95", 200: ">= 1", 300: ">= 1", 400: ">= 1"}
    A5 = {2000: "<= 0.112", 4000: "<= 0.103"}
    B = {
        "B1": (3000, 1, {"time": "<= 4", "passes_to_tol": "<= 2"}),
        "B2": (1350, 1, {"time": "<= 12", "passes_to_tol": "<= 4"}),
        "B3": (810, 0, {"passes_to_tol": "<= 8"}),  # without TensorLy: half a minute a trial
    }
    paper: dict[str, Any] = {"shape": (5, 5, 6), "rank": (1, 2, 2), "orthonormal": False}
    cube: dict[str, Any] = {"shape": (15, 15, 15), "core_mean": 0.1, "tol": 1e-4}
    large: dict[str, Any] = {"shape": (30, 30, 30), "rank": (3, 3, 3)}
    noisy: dict[str, Any] = {**large, "m": 3000}
    return [
        *(
            Recovery(name="A1", **paper, m=m, trials=200, compared=50, slow=20, tuning=10,
                     stacked=True, targets={"value": target})
            for m, target in A1.items()
        ),
        *(
            Recovery(name="A2", **cube, rank=(2, 2, 2), m=m, trials=50, compared=20, slow=4,
                     tuning=4, targets={"value": target} if target else {})
            for m, target in A2.items()
        ),
        Recovery(name="A3", **cube, rank=(5, 5, 5), m=450, trials=20, compared=5, slow=1,
                 tuning=4, targets={"value": ">= 0.98"}),
        *(
            Candle(name="A5", shape=(30, 30, 10), rank=(8, 8, 2), m=m, trials=1, path=candle,
                   targets={"value": target})
            for m, target in A5.items() if candle.exists()
        ),
        *(
            Recovery(name=name, **large, m=m, trials=6, compared=2, slow=slow, tuning=1, timed=True,
                     targets={"value": ">= 1", **targets})
            for name, (m, slow, targets) in B.items()
        ),
        NearOracle(name="C1", **noisy, noise=0.1, trials=4, targets={"value": "<= 1.03"}),
        Outliers(name="C2", **noisy, noise=0.01, trials=4, targets={"value": "<= 2"}),
        UnknownRank(name="C3", **noisy, noise=0.01, trials=6, targets={"value": ">= 0.95"}),
        Small(name="S", trials=200, targets={"value": "<= 0"}),
    ]  # fmt: skip


def chosen(names: Sequence[str], candle: Path) -> list[Yardstick]:
    """Yardsticks of some names."""
    check_names(names, NAMES)
    found = [one for one in yardsticks(candle) if one.name in names]
    if not found:
        raise ValueError(f"A5 needs the authors' clip, which is not at {candle}.")
    return found
