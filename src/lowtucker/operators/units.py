"""Operators in other units: times a power of two, which changes no digit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lowtucker._array import Array, IntArray, like, real_dtype, to_numpy
from lowtucker._array.readings import at_least
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.design import TangentDesign
from lowtucker.operators.wrapped import WrappedOperator
from lowtucker.tensor.products import shifted
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["PoweredDesign", "PoweredOperator"]


class PoweredOperator(WrappedOperator):
    """Operator times a power of two, which multiplies small arrays and no row.

    One half of the power before the operator and one after it: neither leaves the range of numbers.

    Parameters
    ----------
    inner : MeasurementOperator
    power : int
    """

    takes_rows_per_problem = True

    def __init__(self, inner: MeasurementOperator, power: int) -> None:
        super().__init__(inner)
        self.power = power
        self.before, self.after = power // 2, power - power // 2

    def _around(self, inner: MeasurementOperator) -> MeasurementOperator:
        return PoweredOperator(inner, self.power)

    def entry_samples(self) -> tuple[IntArray, Array | None] | None:
        """Entries that the inner operator samples, with their factors times the power."""
        samples = self.inner.entry_samples()
        if samples is None:
            return None
        indices, factors = samples
        ones = np.ones(self.m) if factors is None else to_numpy(factors)
        return indices, shifted(ones, self.power)

    def rows_in_memory(self) -> Array | None:
        """Return those of the inner operator times the power: a copy."""
        rows = self.inner.rows_in_memory()
        return None if rows is None else shifted(rows, self.power)

    def row_heads(self, count: int) -> Array | None:
        """Return those of the inner operator, of whose rows these are multiples."""
        return self.inner.row_heads(count)

    def _forward(self, X: Array) -> Array:
        return shifted(self.inner.forward(shifted(X, self.before)), self.after)

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        small = TuckerTensor.trusted(shifted(X.core, self.before), X.factors)
        return shifted(self.inner.forward(small), self.after)

    def _adjoint(self, v: Array) -> Array:
        return shifted(self.inner.adjoint(shifted(v, self.before)), self.after)

    def _misfit(self, X: Array, y: Array, weights: Array | None) -> tuple[Array, Array]:
        """One pass if the inner operator does so: y, and weights, are scaled for it."""
        if weights is None:
            weights = like(np.ones(self.m), y, real_dtype(y))
        X, y = shifted(X, self.before), shifted(y, -self.after)
        residual, gradient = self.inner._misfit(X, y, shifted(weights, self.power))
        return shifted(residual, self.after), shifted(gradient, self.after)

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        return PoweredDesign(self, T)

    def _spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        # all of the power at once: LAPACK rounds differently if the adjoint is far from 1
        return self.inner.spectral_start(shifted(v, self.power), rank)

    def _row_norms(self) -> Array:
        return shifted(self.inner.row_norms(), self.power)


class PoweredDesign(TangentDesign):
    """Tangent design times a power of two."""

    A: PoweredOperator

    def __init__(self, A: PoweredOperator, T: TangentSpace) -> None:
        super().__init__(A, T)
        self.inner = A.inner.tangent(T)

    def matvec(self, c: Array) -> Array:
        """Return D c."""
        return shifted(self.inner.matvec(shifted(c, self.A.before)), self.A.after)

    def rmatvec(self, r: Array) -> Array:
        """Return D^* r."""
        return shifted(self.inner.rmatvec(shifted(r, self.A.before)), self.A.after)

    def measured(self, c: Array, weights: Array | None = None) -> Array:
        """Return D c up to its sign, computed as the inner design does."""
        if type(self.inner).measured is TangentDesign.measured:
            return super().measured(c, weights)
        return shifted(self.inner.measured(shifted(c, self.A.before)), self.A.after)

    def misfit(self, y: Array, weights: Array | None = None) -> tuple[Array, Array]:
        """Residual and D^* W r, computed as the inner design does."""
        if type(self.inner).misfit is TangentDesign.misfit:
            return super().misfit(y, weights)
        at_least(2)
        residual = y - self.A.forward(self.T.X)
        return residual, self.rmatvec(residual if weights is None else weights * residual)

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D in blocks of rows."""
        for rows, block in self.inner.rows():
            yield rows, shifted(block, self.A.power)
