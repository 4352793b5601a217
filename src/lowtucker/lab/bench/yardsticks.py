"""Yardsticks: published recovery problems, with targets for ``recover``."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lowtucker.lab.bench.methods import STOTIHT, Case, Outcome, passes_to
from lowtucker.lab.bench.timing import REPEATS, Benchmark, check_names, listed, timed
from lowtucker.metrics import relative_error
from lowtucker.operators import gaussian
from lowtucker.recovery import recover
from lowtucker.run.result import Result
from lowtucker.tensor import TangentSpace, attainable_rank, degrees_of_freedom, random_tucker

__all__ = ["NAMES", "SEED", "TOL", "TUNING", "Recovery", "Yardstick", "chosen"]

NAMES = ("A1", "A2", "A3", "A5", "B1", "B2", "B3", "C1", "C2", "C3", "S")
Floats = np.ndarray[Any, Any]
# Seeds of the test problems and of the tuning problems
SEED, TUNING = 0, 1
# The error that counts as recovered by default
TOL = 1e-5


@dataclass(frozen=True, kw_only=True)
class Yardstick(Benchmark):
    """Gaussian measurements of tensors, and the score of a result.

    Parameters
    ----------
    noise : float
        Norm of the noise relative to ||y||.
    timed : bool
        Whether time and memory are measured.
    time_by_bandwidth : ((GB/s, GB/s), (number, number)), optional
        Bound of the time at two memory bandwidths, in place of a target: the unit, a product
        ``A @ x``, is as fast as memory, the rest of a step is not.
    """

    noise: float = 0.0
    timed: bool = False
    time_by_bandwidth: tuple[tuple[float, float], tuple[float, float]] | None = None

    measure: ClassVar[str]  # meaning of the value of its row

    @property
    def m_per_dof(self) -> float:
        """Measurements per degree of freedom."""
        return self.m / degrees_of_freedom(self.shape, self.rank)

    def targets_at(self, bandwidth: float) -> Mapping[str, str]:
        """Return the targets on a machine of that memory bandwidth, linear in between."""
        if self.time_by_bandwidth is None:
            return self.targets
        return {**self.targets, "time": f"<= {np.interp(bandwidth, *self.time_by_bandwidth):.3g}"}

    def truth(self, seed: tuple[int, int]) -> Any:
        """Return the tensor to recover."""
        return random_tucker(self.shape, self.rank, seed=seed)

    def draw(self, trial: int, seed: int = SEED) -> Case:
        """Return the problem of a trial."""
        X_true = self.truth((seed, trial))
        A = gaussian(self.shape, self.m, seed=(seed, trial))
        y = A.forward(X_true)
        if self.noise:
            y = y + noise_of(self.noise * float(np.linalg.norm(y)), self.m, trial)
        return Case(A, y, X_true, self.rank)

    def recover(self, case: Case, X_true: Any = None) -> Result:
        """Recover with default settings; X_true only adds the error to the history."""
        return recover(case.A, case.y, case.rank, X_true=X_true)

    def run(self, case: Case) -> Outcome:
        """Return the score, the passes, and the CPU time of the whole call."""
        result, seconds = timed(lambda: self.recover(case), time.process_time)
        return Outcome(self.score(case, result), result.passes, seconds)

    @abstractmethod
    def score(self, case: Case, result: Result) -> float:
        """Return the score of a result, given the true tensor."""

    def summary(self, scores: Floats) -> tuple[float, str]:
        """Return the value of the row and a note: the median and the maximum."""
        note = f"worst {scores.max():.4g}" if scores.size > 1 else ""
        return float(np.median(scores)), note


def noise_of(size: float, m: int, trial: int) -> Any:
    """Draw Gaussian noise of a given norm."""
    e = np.random.default_rng([SEED, trial]).standard_normal(m)
    return size / np.linalg.norm(e) * e


@dataclass(frozen=True, kw_only=True)
class Recovery(Yardstick):
    """Share of the problems recovered, for all methods."""

    tol: float = TOL
    orthonormal: bool = True
    core_mean: float = 0.0
    compared: int  # trials of other methods
    slow: int  # trials of slow methods
    tuning: int  # problems for choosing steps
    batched: bool = False  # small problems: run the trials as a batch, if supported

    measure: ClassVar[str] = "recovered"

    def truth(self, seed: tuple[int, int], trials: int | None = None) -> Any:
        """Return the tensor to recover, or a batch of tensors."""
        return random_tucker(
            self.shape, self.rank, seed=seed, trials=trials,
            orthonormal=self.orthonormal, core_mean=self.core_mean,
        )  # fmt: skip

    def cases(self, trials: int, seed: int, *, batch: bool) -> Iterator[Case]:
        """Yield the problems one by one, or as one batch if requested and they are small."""
        if batch and self.batched:
            X_true = self.truth((seed, 0), trials)
            A = gaussian(self.shape, self.m, seed=seed, trials=trials)
            yield Case(A, A.forward(X_true), X_true, self.rank)
        else:
            for k in range(trials):
                yield self.draw(k, seed)

    def run(self, case: Case) -> Outcome:
        """Run; if timed, run again to count the passes to the tolerance."""
        outcome = super().run(case)
        if not self.timed:
            return outcome
        again = self.recover(case, case.X_true)
        return outcome._replace(passes_to_tol=passes_to(again, self.tol))

    def score(self, case: Case, result: Result) -> float:
        """Return the relative error."""
        return float(relative_error(result.X, case.X_true))

    def summary(self, scores: Floats) -> tuple[float, str]:
        """Return the share of problems recovered."""
        return float(np.mean(scores <= self.tol)), ""


@dataclass(frozen=True, kw_only=True)
class Candle(Yardstick):
    """Error on the part of the authors' clip used in the paper, which is not of low rank."""

    path: Path

    measure: ClassVar[str] = "error"

    @cached_property
    def pixels(self) -> Any:
        """Grey values, cropped as in the paper."""
        from lowtucker.lab.video import load_video

        return load_video(self.path, rows=(61, 90), columns=(71, 100), frames=(1, 10))

    def truth(self, seed: tuple[int, int]) -> Any:
        """Return the clip for every seed; only the measurements differ."""
        return self.pixels

    def score(self, case: Case, result: Result) -> float:
        """Return the relative error."""
        return float(relative_error(result.X, case.X_true))


@dataclass(frozen=True, kw_only=True)
class NearOracle(Yardstick):
    """Error with noise, relative to that of an oracle with the true tangent space."""

    measure: ClassVar[str] = "error / oracle's"

    def score(self, case: Case, result: Result) -> float:
        """Return the ratio to the error of least squares on the true tangent space."""
        T = TangentSpace(case.X_true)
        D = case.A.tangent(T).dense()
        oracle = np.linalg.lstsq(D, case.y, rcond=None)[0]
        reach = np.linalg.norm(oracle - T.here) / np.linalg.norm(T.here)
        return float(relative_error(result.X, case.X_true) / reach)


@dataclass(frozen=True, kw_only=True)
class Outliers(Yardstick):
    """Error with outliers, relative to that without."""

    share: float = 0.01
    size: float = 30.0  # standard deviation, in root mean squares of y

    measure: ClassVar[str] = "error / outlier-free"

    def draw(self, trial: int, seed: int = SEED) -> Case:
        """Return the problem of a trial, with a share of outliers."""
        case = super().draw(trial, seed)
        rng = np.random.default_rng([seed, trial, 1])
        where = rng.choice(self.m, round(self.share * self.m), replace=False)
        y = case.y.copy()
        scale = self.size * np.linalg.norm(y) / np.sqrt(self.m)
        y[where] = scale * rng.standard_normal(where.size)
        return case._replace(y=y, clean=case.y)

    def recover(self, case: Case, X_true: Any = None) -> Result:
        """Recover with the Huber loss."""
        return recover(case.A, case.y, case.rank, loss="huber", X_true=X_true)

    def score(self, case: Case, result: Result) -> float:
        """Return the ratio to the error of the default loss without outliers."""
        free = recover(case.A, case.clean, case.rank)
        error = relative_error(result.X, case.X_true)
        return float(error / relative_error(free.X, case.X_true))


@dataclass(frozen=True, kw_only=True)
class UnknownRank(Yardstick):
    """Share of the problems whose rank is found."""

    measure: ClassVar[str] = "rank found"

    def recover(self, case: Case, X_true: Any = None) -> Result:
        """Recover with rank="auto"."""
        return recover(case.A, case.y, rank="auto", X_true=X_true)

    def score(self, case: Case, result: Result) -> float:
        """Return 1 if the rank is the true one, else 0."""
        return float(result.rank == case.rank)

    def summary(self, scores: Floats) -> tuple[float, str]:
        """Return the share, and the trials with another rank."""
        return float(np.mean(scores)), listed(np.flatnonzero(scores == 0))


@dataclass(frozen=True, kw_only=True)
class Small(Yardstick):
    """Number of small problems where the default is worse than StoTIHT at its best fixed step.

    The problems differ in order, shape, rank, and measurements per degree of freedom (1.3 to 6).
    The step is the best of a small grid for each problem, by the true error. Errors below the
    tolerance count as equal. There is no noise: with noise, the step chosen by the true error is
    often a worse fit with a smaller error by chance.
    """

    shape: tuple[int, ...] = ()
    rank: tuple[int, ...] = ()
    m: int = 0

    measure: ClassVar[str] = "worse"

    @property
    def m_per_dof(self) -> float:
        """NaN: it differs between the problems."""
        return math.nan

    def draw(self, trial: int, seed: int = SEED) -> Case:
        """Return the problem of a trial, with a random shape."""
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
        """Return 1 if StoTIHT has a smaller error, else 0."""
        error = float(relative_error(result.X, case.X_true))
        if error <= TOL:
            return 0.0
        runs = (STOTIHT.with_step(step).run(case, TOL) for step in STOTIHT.steps)
        return float(any(error > max(TOL, run.score) for run in runs))

    def summary(self, scores: Floats) -> tuple[float, str]:
        """Return the number of such trials, and which."""
        worse = np.flatnonzero(scores)
        return float(worse.size), listed(worse)


def yardsticks(candle: Path) -> list[Yardstick]:
    """Return all yardsticks; A5 only if the authors' clip exists."""
    A1 = {26: ">= 0.95", 28: ">= 0.98", 36: ">= 0.99", 42: ">= 0.99", 54: ">= 0.99",
          66: ">= 0.99", 90: ">= 0.99"}  # fmt: skip
    A2 = {120: None, 160: ">= 0.95", 200: ">= 1", 300: ">= 1", 400: ">= 1"}
    A5 = {2000: "<= 0.112", 4000: "<= 0.103"}
    by_bandwidth = {"B1": ((10.0, 20.0), (4.0, 5.0))}
    B = {
        "B1": (3000, 1, {"passes_to_tol": "<= 2"}),
        "B2": (1350, 1, {"time": "<= 12", "passes_to_tol": "<= 4"}),
        "B3": (810, 0, {"passes_to_tol": "<= 8"}),  # without TensorLy: half a minute per trial
    }
    paper: dict[str, Any] = {"shape": (5, 5, 6), "rank": (1, 2, 2), "orthonormal": False}
    cube: dict[str, Any] = {"shape": (15, 15, 15), "core_mean": 0.1, "tol": 1e-4}
    large: dict[str, Any] = {"shape": (30, 30, 30), "rank": (3, 3, 3)}
    noisy: dict[str, Any] = {**large, "m": 3000}
    return [
        *(
            Recovery(name="A1", **paper, m=m, trials=200, compared=50, slow=20, tuning=10,
                     batched=True, targets={"value": target})
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
            Recovery(name=name, **large, m=m, trials=REPEATS, compared=REPEATS, slow=slow,
                     tuning=1, timed=True, targets={"value": ">= 1", **targets},
                     time_by_bandwidth=by_bandwidth.get(name))
            for name, (m, slow, targets) in B.items()
        ),
        NearOracle(name="C1", **noisy, noise=0.1, trials=4, targets={"value": "<= 1.03"}),
        Outliers(name="C2", **noisy, noise=0.01, trials=4, targets={"value": "<= 2"}),
        UnknownRank(name="C3", **noisy, noise=0.01, trials=6, targets={"value": ">= 0.95"}),
        Small(name="S", trials=200, targets={"value": "<= 0"}),
    ]  # fmt: skip


def chosen(names: Sequence[str], candle: Path) -> list[Yardstick]:
    """Return the yardsticks of some names."""
    check_names(names, NAMES)
    found = [one for one in yardsticks(candle) if one.name in names]
    if not found:
        raise ValueError(f"A5 needs the authors' clip, which is not at {candle}.")
    return found
