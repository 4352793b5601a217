"""Hold-out and choice: measurements that a fit does not see decide between candidates."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import like, real_dtype, size, to_numpy
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.limits import BETTER, NEAR_ERRORS, NEAR_FALL
from lowtucker.problem import Problem
from lowtucker.recovery.fit import Fit
from lowtucker.uncertainty.conformal import Calibration

__all__ = ["Candidate", "Holdout", "by_held_out", "calibrated", "select"]

NumPyArray = np.ndarray[Any, Any]
# Entries from which on they have no number of 64 bits
LARGE = 2**62
# The error of X in units of the held-out residual, which has noise as well: of 24 tensors with
# spectra of power laws and 0 to 50 % noise it was 0.44 to 1.24
BELOW, ABOVE = 0.4, 1.4


class Holdout(NamedTuple):
    """A problem in two parts: by weights, so that no operator is copied, or by rows.

    Attributes
    ----------
    train : Problem
        The measurements to fit.
    held : Problem
        The held-out ones.
    """

    train: Problem
    held: Problem

    @classmethod
    def by_rows(cls, problem: Problem, held: np.ndarray[Any, Any]) -> Holdout:
        """Hold out the measurements where a mask, shape (m,), is true, as blocks of the problem.

        For sampled entries, whose blocks copy no more than indices: a fit of 60x60x60 tensors took
        1.5 times as long by weights.
        """
        return cls(problem.block(np.flatnonzero(~held)), problem.block(np.flatnonzero(held)))

    @classmethod
    def by_weights(cls, problem: Problem, held: np.ndarray[Any, Any]) -> Holdout:
        """Hold out the measurements where a mask, shape (m,), is true, by zero weights."""
        given = np.ones(problem.m) if problem.weights is None else to_numpy(problem.weights)

        def part(weights: Any) -> Problem:
            return Problem(problem.A, problem.y, like(weights, problem.y, real_dtype(problem.y)))

        return cls(part(np.where(held, 0, given)), part(np.where(held, given, 0)))

    @classmethod
    def draw(cls, problem: Problem, share: float, seed: Seed) -> Holdout | None:
        """Hold out a random share of the measurements that count; None where there are too few.

        Rows that are multiples of each other are held out together: those that are fitted would
        predict the others.
        """
        given = np.ones(problem.m) if problem.weights is None else to_numpy(problem.weights)
        counting = np.flatnonzero(given)
        labels = None if problem.as_entries is not None else problem.repeated_rows
        units = counting if labels is None else np.unique(labels[counting])
        if units.size < 2:
            return None
        drawn = generator(as_seed(seed), Stream.HELD_OUT).permutation(units)
        chosen = drawn[: max(1, round(share * units.size))]
        held = np.zeros(problem.m, dtype=bool)
        held[chosen if labels is None else np.isin(labels, chosen)] = True
        return cls.by_weights(problem, held)

    def score(self, X: Any, fit: Fit) -> Candidate:
        """Score a tensor by its residual on the held-out measurements."""
        return self.candidate(X, self.held.residual(X), fit)

    def calibration(self, residual: Any) -> Calibration | None:
        """Calibrate intervals by the residual of held-out entries; None for other measurements.

        Samples that have duplicates among those of the fit say nothing about unseen entries.
        """
        A, weights = self.held.A, self.held.weights
        held, train = A.as_entries(residual, weights), self.train.A.entry_samples()
        if held is None or train is None:
            return None
        entries: Any = held[0]
        counts = _unlike(entries.indices, train[0], A.shape)
        if held[2] is not None:
            counts &= to_numpy(held[2]) > 0
        return calibrated(A.shape, entries.indices[counts], to_numpy(held[1])[counts])

    def candidate(self, X: Any, residual: Any, fit: Fit) -> Candidate:
        """Score a tensor whose residual is known."""
        losses = fit.losses(self.held, residual)
        whole = float(np.sum(fit.losses(self.held, self.held.y)))
        return Candidate(X, losses, float((np.sum(losses) / (whole or 1.0)) ** 0.5))


class Candidate(NamedTuple):
    """A tensor with its losses on held-out measurements, and their relative residual.

    ``rivals`` are ranks that predict almost as well.
    """

    X: Any
    losses: Any
    score: float
    rivals: frozenset[tuple[int, ...]] = frozenset()

    def worse_by(self, other: Candidate) -> float:
        """Mean by which its losses exceed another's, in standard errors."""
        more = self.losses - other.losses
        mean, error = float(np.mean(more)), float(np.std(more)) / len(more) ** 0.5
        return mean / error if error else math.copysign(math.inf, mean) if mean else 0.0

    def beats(self, other: Candidate, fall: float = BETTER, errors: float = 1.0) -> bool:
        """Whether it is clearly better than one of smaller rank."""
        return self.score < (1 - fall) * other.score and other.worse_by(self) > errors

    def is_near(self, other: Candidate, fall: float = BETTER, errors: float = 1.0) -> bool:
        """Whether thresholds moved a little would change the answer of :meth:`beats`."""
        return self.beats(other, fall - NEAR_FALL, errors - NEAR_ERRORS) != self.beats(
            other, fall + NEAR_FALL, errors + NEAR_ERRORS
        )


def calibrated(
    shape: tuple[int, ...], indices: NumPyArray, residuals: NumPyArray
) -> Calibration | None:
    """Calibration by residuals of held-out samples; None without any, or after a fit blew up."""
    if not len(residuals) or not np.isfinite(residuals).all():
        return None
    return Calibration.of(shape, indices, residuals)


def _unlike(some: NumPyArray, others: NumPyArray, shape: tuple[int, ...]) -> NumPyArray:
    """Mask of the entries that are not among others."""
    if size(shape) >= LARGE:  # duplicates are rare
        return np.ones(len(some), dtype=bool)
    places = [np.ravel_multi_index(tuple(index.T), shape) for index in (some, others)]
    return np.isin(places[0], places[1], invert=True)


def select(candidates: list[Candidate]) -> Candidate:
    """Candidate that predicts the held-out measurements best."""
    return min(candidates, key=lambda candidate: candidate.score)


def by_held_out(score: float | None) -> dict[str, Any]:
    """Estimate of the error, and its interval, by the relative residual of held-out data."""
    if score is None or not math.isfinite(score):
        return {"error_estimate": None, "error_interval": None}
    return {"error_estimate": score, "error_interval": (BELOW * score, ABOVE * score)}
