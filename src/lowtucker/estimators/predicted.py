r"""A fitted coefficient as a filter that takes more rows, and how uncertain predictions are.

For centred rows D in tangent coordinates at the coefficient, the coordinates have the covariance
:math:`C = \sigma^2 (D^T W D + \alpha I)^{-1}`, that of a Bayesian ridge with the variance
:math:`\sigma^2 / \alpha`, and a prediction at a sample x the variance

.. math:: \sigma^2 (1 + 1 / \sum_i w_i) + d^T C d

with d the tangent coordinates of :math:`x - \bar x`; the second 1 is the intercept's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from lowtucker.estimators.rows import Centred
from lowtucker.operators import DenseOperator
from lowtucker.problem import Problem
from lowtucker.solvers.rgn import LARGE
from lowtucker.streams.averages import Averages
from lowtucker.streams.recursion import Recursion, Tally
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.uncertainty.bars import Uncertainty
from lowtucker.uncertainty.information import Information

__all__ = ["Filter", "Means", "Spread", "absorbed", "filter_of", "spread_of"]

NumPyArray = np.ndarray[Any, Any]
Filter = Recursion | Averages


class Means(NamedTuple):
    """Weighted means of rows that are not kept, and the sum of their weights.

    The weight is infinite where there is no intercept: the means are zero, and stay so.
    """

    x: NumPyArray
    y: NumPyArray
    weight: float

    @classmethod
    def of(cls, rows: Centred, weight: float, intercept: bool) -> Means:
        """Means that were subtracted from rows."""
        return cls(rows.mean_x, rows.mean_y, weight if intercept else math.inf)

    def with_more(self, rows: Centred, weight: float) -> tuple[Means, Centred]:
        r"""Means of both sets of rows, and what the new ones add to centred normal equations.

        That is the new rows, centred by themselves, and one more row for the distance of the means,
        :math:`\sqrt{v w / (v + w)} (\bar x_{new} - \bar x)` for sets of the weights v and w.
        """
        if math.isinf(self.weight):
            return self, rows
        total = self.weight + weight
        share, step_x, step_y = weight / total, rows.mean_x - self.x, rows.mean_y - self.y
        root = math.sqrt(self.weight * share)
        more = replace(
            rows,
            X=np.concatenate([rows.X, root * step_x[None, :]]),
            Y=np.concatenate([rows.Y, root * step_y[None, :]]),
        )
        return Means(self.x + share * step_x, self.y + share * step_y, total), more


class Spread(NamedTuple):
    """Uncertainty of a fitted coefficient, and the means of the rows that it was fitted to."""

    information: Information
    means: Means

    def of_predictions(self, X: NumPyArray) -> NumPyArray:
        """Standard deviations of y at some samples, noise included. Cost: dof^2 flops a sample."""
        T = self.information.T
        design = DenseOperator(X - self.means.x, T.X.shape).tangent(T)
        fitted = np.asarray(self.information.deviations(design))
        noise = self.information.sigma * math.sqrt(1 + 1 / self.means.weight)
        return np.asarray(np.hypot(fitted, noise))

    @property
    def uncertainty(self) -> Uncertainty:
        """Error bars of the coefficient."""
        return Uncertainty(self.information.T.X, information=self.information)


def filter_of(rows: Centred, target: int, X: TuckerTensor, alpha: float, used: int) -> Filter:
    """Filter of a coefficient that was fitted to rows. One pass over them, dof^2 numbers.

    ``used`` is the number of degrees of freedom that the intercept takes.
    """
    problem = problem_of(rows, target, X.shape)
    if X.degrees_of_freedom > LARGE:
        averaged = Averages.of(problem, X)
        return replace(averaged, information=averaged.information + alpha)
    made = Recursion.of(problem, X)
    here, count = made.T.here, float(rows.count - used)
    return replace(
        made,
        gram=made.gram + alpha * np.eye(made.T.dof),
        gradient=made.gradient - alpha * here,
        squares=made.squares + alpha * float(here @ here),
        tally=Tally(count, count, made.tally.energy),
    )


def absorbed(made: Filter, rows: Centred, target: int) -> Filter:
    """Filter with more rows, each used once; linearised at its new coefficient.

    Rows count as many as they were before one was added for their mean.
    """
    after = made.absorbed(problem_of(rows, target, made.X.shape), None)
    if isinstance(after, Recursion):
        after = after.relinearised()
    count = made.tally.count + rows.count
    return replace(after, tally=Tally(count, count, after.tally.energy))


def problem_of(rows: Centred, target: int, shape: tuple[int, ...]) -> Problem:
    """Rows and one target as a problem."""
    return Problem(DenseOperator(rows.X, shape), rows.Y[:, target].copy())


def spread_of(made: Filter, alpha: float, means: Means) -> Spread | None:
    r"""Uncertainty of the coefficient of a filter; None above 5000 degrees of freedom.

    The ridge leaves less than dof degrees of freedom to the fit, and its part of the cost,
    :math:`\alpha \|X\|^2`, is no residual.
    """
    if not isinstance(made, Recursion):
        return None
    T = made.T
    found = Information.of_gram(T, made.gram, made.gradient, 0.0, 0.0)
    taken = T.dof - alpha * float(np.sum(found.root**2))
    spare = max(made.tally.count - taken, 0.0)
    fitted = T.here + found.left
    squares = made.squares - float(found.left @ made.gradient) - alpha * float(fitted @ fitted)
    sigma = math.sqrt(max(squares, 0.0) / spare) if spare else math.inf
    return Spread(replace(found, sigma=sigma, spare=spare), means)
