"""Standard errors of imputed values, by fits that do not see some samples and some entries."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array.random import Stream, generator
from lowtucker.estimators.arguments import Rank
from lowtucker.uncertainty.conformal import Calibration

__all__ = ["Spread", "spread_of"]

NumPyArray = np.ndarray[Any, Any]
# Predicts all entries of samples, shape (n, N), with standard deviations by the model
Predict = Callable[[NumPyArray], tuple[NumPyArray, NumPyArray]]
# Parts of the samples, each of which one fit does not see; share of the entries of the others that
# it does not see either; rounds in which all entries of the samples of a part are predicted
FOLDS, SHARE, ROUNDS = 4, 0.1, 10
# Residuals without which there is no standard error
LEAST = 3


class Spread(NamedTuple):
    """Standard errors of imputed features, shape (N,), in units of the model's.

    Attributes
    ----------
    seen : array
        For samples of the fit.
    unseen : array
        For others; NaN where there are too few samples to tell.
    """

    seen: NumPyArray
    unseen: NumPyArray


def spread_of(
    fit: Callable[[NumPyArray], Predict], X: NumPyArray, shape: Rank, seed: int
) -> Spread:
    """Fit parts of the samples, and compare what they predict to what they have not seen.

    Cost: four fits to three quarters of the samples, and ten imputations of all.

    Parameters
    ----------
    fit : callable
        Fits samples, and returns what predicts all entries of others by their known ones, with
        standard deviations by its model.
    X : array, shape (n, N)
        Samples in random order; NaN where an entry is not known.
    shape : tuple of int
        Shape of a sample.
    seed : int
    """
    rng = generator(seed, Stream.HELD_OUT)
    known = ~np.isnan(X)
    folds = min(FOLDS, len(X))
    seen, unseen = _Residuals(shape), _Residuals(shape)
    for fold in range(folds):
        out = np.arange(len(X)) % folds == fold if folds > 1 else np.zeros(len(X), dtype=bool)
        hidden = known[~out] & (rng.random(X[~out].shape) < SHARE)
        hidden &= (known[~out] & ~hidden).any(axis=1, keepdims=True)
        with warnings.catch_warnings():  # of slices, which were warned of
            warnings.simplefilter("ignore")
            predict = fit(np.where(hidden, np.nan, X[~out]))
        seen.add(predict, X[~out], hidden)
        turn = rng.integers(ROUNDS, size=X[out].shape)
        for k in range(ROUNDS if out.any() else 0):
            unseen.add(predict, X[out], known[out] & (turn == k))
    return Spread(seen.standard_errors(), unseen.standard_errors())


class _Residuals:
    """Residuals of held-out entries in units of the model's standard deviations, by feature."""

    def __init__(self, shape: Rank) -> None:
        self.shape = shape
        self.features: list[NumPyArray] = []
        self.ratios: list[NumPyArray] = []

    def add(self, predict: Predict, X: NumPyArray, hidden: NumPyArray) -> None:
        """Hide some entries of samples, and predict them by the others."""
        some = hidden.any(axis=1)
        if not some.any():
            return
        X, hidden = X[some], hidden[some]
        values, deviations = predict(np.where(hidden, np.nan, X))
        self.features.append(np.nonzero(hidden)[1])
        self.ratios.append((X - values)[hidden] / deviations[hidden])

    def standard_errors(self) -> NumPyArray:
        """Return those of all features, in the same units; NaN where there are too few."""
        every = np.argwhere(np.ones(self.shape, dtype=bool))
        ratios = np.concatenate([np.zeros(0), *self.ratios])
        if len(ratios) < LEAST or not np.isfinite(ratios).all():
            return np.full(len(every), np.nan)
        indices = every[np.concatenate(self.features)]
        return Calibration.of(self.shape, indices, ratios).standard_error(every)
