"""Tensor regression against TensorLy's: ``lowtucker bench regression``."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker._array.errors import UnderdeterminedWarning
from lowtucker.lab.bench.timing import Row, holds, timed
from lowtucker.tensor import random_tucker

__all__ = ["Case", "Split", "patches", "pines", "run", "synthetic"]

NumPyArray = np.ndarray[Any, Any]
# Ridges of TensorLy's regressor, of which the best on the test data counts; its default is 1
RIDGES, DEFAULT = (0.01, 0.1, 1.0, 10.0, 100.0), 1.0
# Ridges of scikit-learn's RidgeCV, which chooses one on the training data
PLAIN_RIDGES = np.logspace(-2, 5, 15)
# Error of a useless fit: predicting the mean of y has error 1
NOTHING = 0.9
# Bands used, side and stride of the patches, and the classes to predict
BANDS, SIDE, STRIDE, SOYBEANS = slice(None, None, 4), 9, 3, (10, 11, 12)


@dataclass(frozen=True)
class Split:
    """Training and test data: samples of several modes, and a target."""

    X: NumPyArray
    y: NumPyArray
    X_test: NumPyArray
    y_test: NumPyArray


@dataclass(frozen=True)
class Case:
    """Splits of one kind of data, a rank, and the ridges to cross-validate on training data."""

    name: str
    rank: tuple[int, ...]
    splits: Callable[[], Sequence[Split]]
    alphas: tuple[float, ...] = (0.0,)


@dataclass(frozen=True)
class Outcome:
    """Relative root mean square errors on the test data, and CPU seconds of the fits."""

    errors: list[float]
    seconds: list[float]

    @property
    def error(self) -> float:
        """Median over the splits."""
        return statistics.median(self.errors)

    @property
    def time(self) -> float:
        """Median over the splits."""
        return statistics.median(self.seconds)


def run(regressor: Any, cases: Sequence[Case] | None = None) -> Iterator[Row]:
    """Yield the rows of the benchmark as they are measured; CPU time, one BLAS thread.

    Parameters
    ----------
    regressor : class
        ``lowtucker.estimators.TuckerRegressor``.
    cases : sequence of Case, optional
    """
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnderdeterminedWarning)
        for case in standard() if cases is None else cases:
            yield from rows_of(case, regressor)


def standard() -> list[Case]:
    """Return the cases: synthetic tensors of two sizes, and an aerial scene."""
    cases = [
        Case(f"12x12x8, n = {n}", (2, 2, 2), lambda n=n: synthetic((12, 12, 8), (2, 2, 2), n, 5))  # type: ignore[misc]
        for n in (100, 200, 400, 800)
    ]
    large = Case(
        "20x20x20, n = 1000", (3, 3, 3), lambda: synthetic((20, 20, 20), (3, 3, 3), 1000, 3)
    )
    scene = Case("Indian Pines 9x9x50", (2, 2, 3), pines, (1e2, 1e3, 1e4, 1e5))
    return [*cases, large, scene]


def synthetic(
    shape: tuple[int, ...], rank: tuple[int, ...], n: int, seeds: int, noise: float = 0.1
) -> list[Split]:
    """Draw Gaussian samples; the training data have noise of a tenth of the signal."""
    splits = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        truth = random_tucker(shape, rank, seed=seed).full()
        truth = truth / np.linalg.norm(truth)
        X, X_test = rng.standard_normal((n, *shape)), rng.standard_normal((1000, *shape))
        y, y_test = (np.tensordot(Z, truth, len(shape)) for Z in (X, X_test))
        splits.append(Split(X, y + noise * rng.standard_normal(n), X_test, y_test))
    return splits


def pines() -> list[Split]:
    """Load the share of soybeans in patches of the Indian Pines scene of TensorLy.

    Each half of the scene (left, right, upper, lower) predicts the other; patches across the
    border are omitted.
    """
    from tensorly.datasets import load_indian_pines

    data = load_indian_pines()
    X, y, corners = patches(np.asarray(data["tensor"]), np.asarray(data["ticks"][0]))
    middle = (np.asarray(data["tensor"]).shape[0] - 1) // 2
    splits = []
    for axis in (0, 1):
        before = corners[:, axis] + SIDE <= middle
        after = corners[:, axis] >= middle
        for train, test in ((before, after), (after, before)):
            splits.append(Split(X[train], y[train], X[test], y[test]))
    return splits


def patches(scene: NumPyArray, labels: NumPyArray) -> tuple[NumPyArray, NumPyArray, NumPyArray]:
    """Return standardised patches of a scene, the share of soybeans in each, and corners."""
    cube = scene[:, :, BANDS].astype(np.float64)
    cube = (cube - cube.mean(axis=(0, 1))) / cube.std(axis=(0, 1))
    wanted = np.isin(labels, SOYBEANS).astype(np.float64)
    corners = [
        (i, j)
        for i in range(0, scene.shape[0] - SIDE + 1, STRIDE)
        for j in range(0, scene.shape[1] - SIDE + 1, STRIDE)
    ]
    X = np.stack([cube[i : i + SIDE, j : j + SIDE] for i, j in corners])
    y = np.array([wanted[i : i + SIDE, j : j + SIDE].mean() for i, j in corners])
    return X, y, np.array(corners)


def rows_of(case: Case, regressor: Any) -> list[Row]:
    """Compare errors and times of a case with TensorLy at its default and its best ridge.

    Times are omitted if its fit is useless: with a large ridge it soon returns zero.
    """
    splits = case.splits()
    ours = outcome(lambda split: _ours(case, split, regressor), splits)
    theirs = {g: outcome(lambda split, g=g: _tensorly(case, split, g), splits) for g in RIDGES}  # type: ignore[misc]
    plain = outcome(_plain, splits)
    best = min(theirs, key=lambda g: theirs[g].error)
    rows = []
    for label, g in (("TensorLy's best", best), ("TensorLy's default", DEFAULT)):
        detail = (
            f"error {ours.error:.3g}, reg_W = {g:g} {theirs[g].error:.3g}, "
            f"RidgeCV {plain.error:.3g}; {1e3 * ours.time:.3g} ms, {1e3 * theirs[g].time:.3g} ms"
        )
        error, speed = ours.error / theirs[g].error, theirs[g].time / ours.time
        name = f"{case.name}: "
        rows.append(Row(f"{name}error / {label}", error, "<= 1", holds(error, "<= 1"), detail))
        if theirs[g].error < NOTHING:
            rows.append(
                Row(f"{name}time of {label} / ours", speed, ">= 5", holds(speed, ">= 5"), detail)
            )
    return rows


def outcome(
    fit: Callable[[Split], tuple[Callable[[NumPyArray], NumPyArray], float]],
    splits: Sequence[Split],
) -> Outcome:
    """Return the errors relative to predicting the training mean, and the seconds."""
    errors, seconds = [], []
    for split in splits:
        predict, elapsed = fit(split)
        missed = split.y_test - predict(split.X_test)
        whole = split.y_test - split.y.mean()
        errors.append(float(np.linalg.norm(missed) / np.linalg.norm(whole)))
        seconds.append(elapsed)
    return Outcome(errors, seconds)


def _ours(case: Case, split: Split, regressor: Any) -> tuple[Any, float]:
    """Fit ``regressor``; cross-validation of the ridge is not timed for any method."""
    alpha = case.alphas[0]
    if len(case.alphas) > 1:
        from sklearn.model_selection import GridSearchCV

        search = GridSearchCV(regressor(case.rank), {"alpha": list(case.alphas)}, cv=4)
        alpha = search.fit(split.X, split.y).best_params_["alpha"]
    model, seconds = timed(
        lambda: regressor(case.rank, alpha=alpha).fit(split.X, split.y), time.process_time
    )
    return model.predict, seconds


def _tensorly(case: Case, split: Split, ridge: float) -> tuple[Any, float]:
    """Fit TensorLy's regressor; it has no intercept, so its data are centred, untimed."""
    from tensorly.regression import TuckerRegressor

    mean_x, mean_y = split.X.mean(axis=0), split.y.mean()
    X, y = split.X - mean_x, split.y - mean_y
    model = TuckerRegressor(list(case.rank), reg_W=ridge, verbose=0, random_state=0)
    with np.errstate(all="ignore"):  # with a large ridge it divides by zero
        _, seconds = timed(lambda: model.fit(X, y), time.process_time)
    return lambda Z: np.asarray(model.predict(Z - mean_x)) + mean_y, seconds


def _plain(split: Split) -> tuple[Any, float]:
    """Fit ridge regression on vectors, tuned on the training data."""
    from sklearn.linear_model import RidgeCV

    X = split.X.reshape(len(split.X), -1)
    model, seconds = timed(lambda: RidgeCV(PLAIN_RIDGES).fit(X, split.y), time.process_time)
    return lambda Z: model.predict(Z.reshape(len(Z), -1)), seconds
