r"""How uncertain the predictions of a regression are.

For centred rows D in tangent coordinates at the coefficient, the coordinates have the covariance
:math:`\sigma^2 (D^T W D + \alpha I)^{-1}`, that of a Bayesian ridge with the variance
:math:`\sigma^2 / \alpha`, and a prediction at a sample x the variance

.. math:: \sigma^2 (1 + 1 / \sum_i w_i) + d^T C d

with d the tangent coordinates of :math:`x - \bar x`; the second 1 is the intercept's.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from lowtucker.estimators.rows import Centred
from lowtucker.operators import DenseOperator
from lowtucker.solvers.rgn import LARGE
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.uncertainty.bars import Uncertainty
from lowtucker.uncertainty.information import Information

__all__ = ["Spread", "spread_of"]

NumPyArray = np.ndarray[Any, Any]


class Spread(NamedTuple):
    """Uncertainty of a fitted coefficient, and the mean of the rows that it was fitted to."""

    information: Information
    mean_x: NumPyArray
    weight: float  # sum of the weights, infinite without an intercept

    def of_predictions(self, X: NumPyArray) -> NumPyArray:
        """Standard deviations of y at some samples, noise included. Cost: dof^2 flops a sample."""
        T = self.information.T
        design = DenseOperator(X - self.mean_x, T.X.shape).tangent(T)
        fitted = np.asarray(self.information.deviations(design))
        noise = self.information.sigma * math.sqrt(1 + 1 / self.weight)
        return np.asarray(np.hypot(fitted, noise))

    @property
    def uncertainty(self) -> Uncertainty:
        """Error bars of the coefficient."""
        return Uncertainty(self.information.T.X, information=self.information)


def spread_of(
    rows: Centred, target: int, X: TuckerTensor, alpha: float, weight: float
) -> Spread | None:
    """Uncertainty of a coefficient that was fitted to rows; None above 5000 degrees of freedom.

    One pass over the rows, dof^2 numbers. The ridge takes away some degrees of freedom.
    """
    T = TangentSpace(X)
    if T.dof > LARGE or not len(rows.X):
        return None
    D = DenseOperator(rows.X, X.shape).tangent(T)
    gram, gradient, residual = D.normal_equations(rows.Y[:, target].copy())
    damped = gram + alpha * np.eye(T.dof)
    made = Information.of_gram(T, damped, gradient - alpha * T.here, 0.0, 0.0)
    used = T.dof - alpha * float(np.sum(made.root**2))
    spare = rows.count - used - math.isfinite(weight)
    left = residual - D.matvec(made.left)
    sigma = float(np.linalg.norm(left)) / math.sqrt(spare) if spare > 0 else math.inf
    information = Information(T, made.root, made.null, made.left, sigma, max(spare, 0.0))
    return Spread(information, rows.mean_x, weight)
