"""Ridge penalty as measurements: every entry of the tensor, times the root of alpha."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lowtucker._array import Array, Rows, size
from lowtucker.operators import EntriesOperator, MeasurementOperator, Traits, scale
from lowtucker.operators.design import NormalEquations, TangentDesign
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Penalty"]


class Penalty(MeasurementOperator):
    r"""Operator with the rows :math:`\sqrt\alpha\, e_j` for all N entries, which are not stored.

    Appended to the rows of the data, with zeros (or :math:`\sqrt\alpha\, C`) appended to y, they
    add :math:`\alpha \|X\|_F^2` (or :math:`\alpha \|X - C\|_F^2`) to the sum of squares.

    Parameters
    ----------
    shape : tuple of int
    alpha : float

    Notes
    -----
    Coordinates of a tangent space are orthonormal, so :math:`D^* D = \alpha I`: the normal
    equations cost N flops per rank and dof numbers. A forward returns N numbers.

    Examples
    --------
    >>> import numpy as np
    >>> Penalty((2, 2), 4.0).forward(np.eye(2))
    array([2., 0., 0., 2.])
    """

    traits = Traits(
        row_separable=True,
        has_fast_tangent=True,
        isotropic=False,
        supports_batch=True,
        has_fast_row_norms=True,
        has_batch_tangent=True,
    )

    def __init__(self, shape: tuple[int, ...], alpha: float) -> None:
        self.shape, self.m = shape, size(shape)
        self.alpha, self.root = alpha, math.sqrt(alpha)

    def _forward(self, X: Array) -> Array:
        return self.root * X.reshape(*X.shape[: X.ndim - len(self.shape)], self.m)

    def _adjoint(self, v: Array) -> Array:
        return self.root * v.reshape(*v.shape[:-1], *self.shape)

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        chosen = np.arange(self.m)[rows]
        entries = EntriesOperator(self.shape, np.stack(np.unravel_index(chosen, self.shape), 1))
        return scale(entries, self.root)

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        return PenaltyDesign(self, T)

    def _spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        return super()._spectral_start(v, rank)

    def _row_norms(self) -> Array:
        return np.full(self.m, self.root)


class PenaltyDesign(TangentDesign):
    """Tangent design of all entries: its Gram matrix is a multiple of the identity."""

    A: Penalty

    def normal_equations(self, y: Array, weights: Array | None = None) -> NormalEquations:
        """Return alpha I, D^* r and r, without forming D unless there are weights."""
        if weights is not None:
            return super().normal_equations(y, weights)
        residual = y - self.A.forward(self.T.X)
        unit = np.broadcast_to(np.eye(self.T.dof), (*self.T.batch_shape, *[self.T.dof] * 2))
        return NormalEquations(self.A.alpha * unit, self.rmatvec(residual), residual)

    def misfit(self, y: Array, weights: Array | None = None) -> tuple[Array, Array]:
        """Return the residual r and D^* W r."""
        residual: Any = y - self.A.forward(self.T.X)
        return residual, self.rmatvec(residual if weights is None else weights * residual)
