r"""Huber's loss, which is robust to gross outliers among the measurements.

It is quadratic up to :math:`c \sigma` and linear beyond, so that a gross outlier pulls no more than
a residual of :math:`c \sigma`. It is minimised by fits with weights

.. math:: w_j = \min(1, c \sigma / |r_j|), \quad \sigma = 1.4826\, \mathrm{median}\,|r_j|,
    \quad c = 1.345

that are renewed after every fit; what is beyond :math:`6 \sigma` is left out altogether. The first
fit clips y at three standard deviations, also estimated by its median.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lowtucker._array import Array, eps, like, namespace, real_dtype, to_numpy
from lowtucker.metrics import relative_error
from lowtucker.problem import Problem
from lowtucker.run.result import Result
from lowtucker.tensor.products import norm
from lowtucker.thresholding import Iterate

__all__ = ["CLIP", "MAD", "ROUNDS", "clipped", "settled", "spread", "weights_at"]

# Standard deviations of normal noise in its median absolute value
MAD = 1.4826
# Residuals above so many standard deviations count less: 95 % efficient where all noise is normal
KINK = 1.345
# Residuals above so many are left out: normal noise has two in a thousand million
OUT = 6.0
# The first fit, and held-out measurements, are clipped at so many standard deviations
CLIP = 3.0
# Weights are settled when a fit changes X by less than so much of the residual
SETTLED, ROUNDS = 0.01, 30


def settled(result: Result, before: Any, tol: float) -> bool:
    """Whether a fit with new weights has hardly changed X."""
    return bool(_change(result.X, before) <= max(tol, SETTLED * result.residual))


def _change(X: Any, before: Any) -> float:
    """Distance from an earlier tensor, relative to it."""
    size = float(before.norm()) if isinstance(before, Iterate) else float(norm(before))
    if size:
        return float(relative_error(X, before))
    return math.inf if float(X.norm()) else 0.0


def clipped(problem: Problem) -> Problem:
    """Problem whose measurements are clipped at three standard deviations."""
    xp, y = namespace(problem.y), problem.y
    largest = CLIP * spread(problem, y)
    if not largest:
        return problem
    size = xp.abs(y)
    factor = largest / xp.where(size > largest, size, xp.full_like(size, largest))
    return Problem(problem.A, y * factor, problem.weights)


def spread(problem: Problem, residual: Array) -> float:
    """Standard deviation by the median, of the measurements that count."""
    size = np.abs(to_numpy(residual))
    if problem.weights is not None:
        size = size[to_numpy(problem.weights) > 0]
    return MAD * float(np.median(size)) if size.size else 0.0


def weights_at(problem: Problem, X: Any, tol: float = 0.0) -> Array:
    """Weights of the next fit, times those that were given."""
    residual = problem.residual(X)
    size = np.abs(to_numpy(residual))
    # a fit to the tolerance has no spread: what is larger than that is then an outlier
    least = max(tol, 10 * eps(problem.y)) * spread(problem, problem.y)
    sigma = max(spread(problem, residual), least)
    weights = np.ones_like(size)
    if sigma:
        weights = KINK * sigma / np.maximum(size, KINK * sigma)
        weights[size > OUT * sigma] = 0
    made = like(weights, problem.y, real_dtype(problem.y))
    return made if problem.weights is None else made * problem.weights
