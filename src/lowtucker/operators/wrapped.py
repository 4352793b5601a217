"""Operators around one other operator: hooks are passed on, traits follow stated rules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lowtucker._array import Array, IntArray, Rows, like, namespace, to_numpy
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.traits import Traits
from lowtucker.status import Finding
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["RestrictedOperator", "WrappedOperator"]


class WrappedOperator(MeasurementOperator):
    """Base of the operators that wrap one other operator, whose hooks and findings they pass on.

    A subclass defines the measurements and :meth:`_around`; it overrides what it changes. The
    traits of operators made of operators follow these rules:

    ================= ================= ============== =============================== =========
    trait             scale, units      rows of a slow stack                           compose
                                        operator
    ================= ================= ============== =============================== =========
    row_separable     of the inner one  False          if all parts are                of maps[0]
    has_fast_tangent  of the inner one  False          if all parts have               False
    isotropic         of the inner one  of the inner   if all parts are                False
    forms_full_tensor of the inner one  True           if any part does, or N <= 10^7  True
    supports_batch    True              True           True                            True
    fast row norms    of the inner one  of the inner   if all parts have               False
    batch tangent     of the inner one  False          if all parts have               False
    ================= ================= ============== =============================== =========

    Parameters
    ----------
    inner : MeasurementOperator
    """

    def __init__(self, inner: MeasurementOperator) -> None:
        self.inner = inner
        self.shape, self.m, self.batch_shape = inner.shape, inner.m, inner.batch_shape
        self.dtype, self.prototype = inner.dtype, inner.prototype
        self.traits = self._combined_traits(inner.traits)

    @abstractmethod
    def _around(self, inner: MeasurementOperator) -> MeasurementOperator:
        """Wrap another operator with the same rows in the same way."""

    def _combined_traits(self, inner: Traits) -> Traits:
        """Traits of the wrapper; the public methods of the inner operator loop over a batch."""
        return replace(inner, supports_batch=True)

    @property
    def count(self) -> Any:
        """Rows that an average divides by."""
        return self.inner.count

    @property
    def rows_read(self) -> int:
        """Rows that a product reads: those of the inner operator."""
        return self.inner.rows_read

    @property
    def complex_rows(self) -> bool:
        """Whether measurements are complex."""
        return self.inner.complex_rows

    @property
    def stored_elements(self) -> int | None:
        """Those of the inner operator."""
        return self.inner.stored_elements

    def diagnose(self, rank: tuple[int, ...], mask: Array | None = None) -> list[Finding]:
        """Findings of the inner operator."""
        return self.inner.diagnose(rank, mask)

    def entry_samples(self) -> tuple[IntArray, Array | None] | None:
        """Entries that the inner operator samples."""
        return self.inner.entry_samples()

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        return self._around(self.inner.block(rows))

    def _select(self, trials: Sequence[int]) -> MeasurementOperator:
        return self._around(self.inner.select(trials))

    def _trial(self, k: int) -> MeasurementOperator:
        return self._around(self.inner.trial(k))

    def arranged(self, batch_shape: tuple[int, ...]) -> MeasurementOperator:
        """Batch with its problems arranged along these leading axes."""
        return self._around(self.inner.arranged(batch_shape))

    def _row_norms(self) -> Array:
        return self.inner.row_norms()


class RestrictedOperator(WrappedOperator):
    """Some rows of an operator that is not row-separable: correct, and slow.

    Every ``forward`` and ``adjoint`` costs that of all rows.

    Parameters
    ----------
    inner : MeasurementOperator
    rows : slice or integer array
    """

    def __init__(self, inner: MeasurementOperator, rows: Rows) -> None:
        super().__init__(inner)
        self.rows = np.arange(inner.m)[rows]
        self.m = len(self.rows)

    def _around(self, inner: MeasurementOperator) -> MeasurementOperator:
        return RestrictedOperator(inner, self.rows)

    def _combined_traits(self, inner: Traits) -> Traits:
        fast = inner.has_fast_row_norms
        return Traits(isotropic=inner.isotropic, supports_batch=True, has_fast_row_norms=fast)

    @property
    def count(self) -> Any:
        """Rows that an average divides by."""
        return self.m

    def diagnose(self, rank: tuple[int, ...], mask: Array | None = None) -> list[Finding]:
        """Findings of the inner operator with these rows only."""
        seen = np.zeros(self.inner.m, dtype=bool)
        seen[self.rows if mask is None else self.rows[mask]] = True
        return self.inner.diagnose(rank, seen)

    def entry_samples(self) -> tuple[IntArray, Array | None] | None:
        """Entries among these rows."""
        samples = self.inner.entry_samples()
        if samples is None:
            return None
        indices, factors = samples
        return indices[self.rows], None if factors is None else factors[self.rows]

    def _taken(self, y: Array) -> Array:
        return namespace(y).take(y, like(self.rows, y), axis=-1)

    def _filled(self, v: Array) -> Array:
        """Measurements of all rows, zeros for the others; repeated rows are added up."""
        given = to_numpy(v)
        filled = np.zeros((*given.shape[:-1], self.inner.m), dtype=given.dtype)
        place: Any = (..., self.rows)
        np.add.at(filled, place, given)
        return like(filled, v)

    def _forward(self, X: Array) -> Array:
        return self._taken(self.inner._batched(self.inner._forward, X, len(self.shape)))

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        return self._taken(self.inner.forward(X))

    def _adjoint(self, v: Array) -> Array:
        return self.inner._batched(self.inner._adjoint, self._filled(v), 1)

    def _spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        return self.inner.spectral_start(self._filled(v), rank)

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        return RestrictedOperator(self.inner, self.rows[rows])

    def _row_norms(self) -> Array:
        return self._taken(self.inner.row_norms())
