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
from lowtucker.run.result import Result
from lowtucker.solvers.rgn import LARGE
from lowtucker.status import Finding, Status
from lowtucker.streams.averages import Averages
from lowtucker.streams.recursion import Recursion, Tally
from lowtucker.tensor.products import exponent
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.uncertainty.bars import Uncertainty
from lowtucker.uncertainty.information import Information

__all__ = ["Filtered", "Means"]

NumPyArray = np.ndarray[Any, Any]
Filter = Recursion | Averages
# Exponents up to which numbers, and squares of them, are left as they are
EXTREME = 160
# Rows that must be predicted before a fit that was no success is called one
FEWEST = 10


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


class Filtered(NamedTuple):
    """A coefficient that takes more rows: its filter, in units in which nothing overflows."""

    made: Filter
    units: tuple[int, int]
    alpha: float

    @classmethod
    def of(cls, rows: Centred, target: int, X: TuckerTensor, alpha: float, used: int) -> Filtered:
        """Filter of a coefficient that was fitted to rows. One pass over them, dof^2 numbers.

        ``used`` is the number of degrees of freedom that the intercept takes.
        """
        units = (_exponent(rows.X), _exponent(rows.Y[:, target]))
        alpha = math.ldexp(alpha, -2 * units[0])
        problem = _problem_of(rows, target, X.shape, units)
        X = X.shifted(units[0] - units[1])
        if X.degrees_of_freedom > LARGE:
            averaged = Averages.of(problem, X)
            known = averaged.information + alpha
            return cls(replace(averaged, information=known), units, alpha)
        made = Recursion.of(problem, X)
        here, count = made.T.here, float(rows.count - used)
        made = replace(
            made,
            gram=made.gram + alpha * np.eye(made.T.dof),
            gradient=made.gradient - alpha * here,
            squares=made.squares + alpha * float(here @ here),
            tally=Tally(count, count, made.tally.energy),
        )
        return cls(made, units, alpha)

    def absorbed(self, rows: Centred, target: int) -> Filtered:
        """Filter with more rows, each used once; linearised at its new coefficient.

        Rows count as many as they were before one was added for their mean.
        """
        problem = _problem_of(rows, target, self.made.X.shape, self.units)
        after = self.made.absorbed(problem, None)
        if isinstance(after, Recursion):
            after = after.relinearised()
        count = self.made.tally.count + rows.count
        after = replace(after, tally=Tally(count, count, after.tally.energy))
        return self._replace(made=after)

    @property
    def X(self) -> TuckerTensor:
        """The coefficient."""
        return self.made.X.shifted(self.units[1] - self.units[0])

    def updated(self, result: Result, rows: int, tol: float) -> Result:
        """Result after more rows, with their verdict."""
        made, accuracy = self.made, self.made.accuracy
        known = accuracy.determined
        result = replace(
            result,
            X=self.X,
            residual=made.residual,
            m=result.m + rows,
            error_estimate=accuracy.error if known else None,
            error_interval=accuracy.interval if known and isinstance(made, Recursion) else None,
            findings=tuple(f for f in result.findings if f.status is None),
        )
        return result.found(*self._findings(result.success, tol))

    def _findings(self, succeeded: bool, tol: float) -> list[Finding]:
        """What later rows say; nothing new of a success that predicts them."""
        made, accuracy = self.made, self.made.accuracy
        if not accuracy.determined:
            text = "The rows so far do not determine the coefficient."
            return [Finding("not determined", text, {}, Status.UNDERDETERMINED)]
        if made.residual <= tol:
            return [Finding("verdict", str(Status.CONVERGED), {}, Status.CONVERGED)]
        recent = made.recent
        if not recent.exceeds(accuracy.sigma):
            if succeeded or recent.count < FEWEST:
                return []
            text = "Rows of the last batches are predicted as well as earlier ones were fitted."
            numbers = {"score": recent.score}
            return [Finding("approximated", text, numbers, Status.APPROXIMATED)]
        text = "Rows of the last batches are predicted worse than earlier ones were fitted."
        return [Finding("changing", text, {"score": recent.score}, Status.LOCAL_MINIMUM)]

    @property
    def uncertainty(self) -> Uncertainty | None:
        """Error bars of the coefficient; None above 5000 degrees of freedom."""
        if not isinstance(self.made, Recursion):
            return None
        power = self.units[1] - self.units[0]
        return Uncertainty(self.made.T.X, information=self.information, power=power)

    def information(self) -> Information:
        r"""Covariance of the coefficient's tangent coordinates: some 10 dof^3 flops.

        The ridge leaves less than dof degrees of freedom to the fit, and its part of the cost,
        :math:`\alpha \|X\|^2`, is no residual.
        """
        made, alpha = self.made, self.alpha
        assert isinstance(made, Recursion)
        T = made.T
        found = Information.of_gram(T, made.gram, made.gradient, 0.0, 0.0)
        taken = T.dof - alpha * float(np.sum(found.root**2))
        spare = max(made.tally.count - taken, 0.0)
        fitted = T.here + found.left
        squares = made.squares - float(found.left @ made.gradient) - alpha * float(fitted @ fitted)
        sigma = math.sqrt(max(squares, 0.0) / spare) if spare else math.inf
        return replace(found, sigma=sigma, spare=spare)

    def deviations(self, X: NumPyArray, means: Means, known: Any) -> NumPyArray:
        """Standard deviations of y at some samples, noise included, by the information known.

        Cost: dof^2 flops a sample.
        """
        of_x, of_y = self.units
        design = DenseOperator(_scaled(X - means.x, -of_x), known.T.X.shape).tangent(known.T)
        noise = known.sigma * math.sqrt(1 + 1 / means.weight)
        return _scaled(np.hypot(np.asarray(known.deviations(design)), noise), of_y)


def _problem_of(
    rows: Centred, target: int, shape: tuple[int, ...], units: tuple[int, int]
) -> Problem:
    """Rows and one target as a problem in its units."""
    y = _scaled(rows.Y[:, target].copy(), -units[1])
    return Problem(DenseOperator(_scaled(rows.X, -units[0]), shape), y)


def _scaled(values: NumPyArray, power: int) -> NumPyArray:
    """Values times a power of two; not copied where that is 1."""
    return np.ldexp(values, power) if power else values


def _exponent(values: NumPyArray) -> int:
    """Exponent of the largest number, where squares of it might not be numbers; otherwise 0."""
    largest = float(np.abs(values).max(initial=0.0))
    power = exponent(largest) if largest else 0
    return power if abs(power) > EXTREME else 0
