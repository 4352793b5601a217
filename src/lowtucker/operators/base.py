"""The measurement operator: the contract that everything above relies on.

An operator of one's own needs ``shape``, ``m`` and two hooks::

    class Blur(MeasurementOperator):
        def __init__(self, shape, kernel): ...
        def _forward(self, X): ...      # one tensor of self.shape  ->  (m,)
        def _adjoint(self, v): ...      # (m,)  ->  one tensor of self.shape

The public methods check their arguments, loop over the leading axes of a stack, and check what
the hooks return. Run :func:`lowtucker.check_adjoint` on it once.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from lowtucker._arrays import (
    Array,
    IntArray,
    Rows,
    as_array,
    as_float,
    is_numpy,
    like,
    namespace,
    same_kind,
    size,
    to_numpy,
)
from lowtucker._errors import SlowOperatorWarning
from lowtucker.tensor.products import norm
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["MeasurementOperator", "RestrictedOperator", "check_rows", "count_rows"]


class MeasurementOperator(ABC):
    r"""A linear map :math:`\mathcal{A}: \mathbb{R}^{n_1 \times \dots \times n_d} \to \mathbb{R}^m`.

    Equation (3.1): :math:`y_i = \mathcal{A}_i(\mathbf{X}) = \langle A_i, \mathbf{X} \rangle`.

    Attributes
    ----------
    shape : tuple of int
        (n_1, ..., n_d), the shape of the tensors that are measured.
    m : int
        The number of measurements.
    batch_shape : tuple of int
        Leading axes, for an operator that is a stack of trials; ().
    dtype : dtype or None
        Dtype of the tensors, where the operator insists on one.
    prototype : array or None
        An array of the kind and on the device that the operator works with; None is NumPy.
    """

    shape: tuple[int, ...]
    m: int
    batch_shape: tuple[int, ...] = ()
    dtype: Any = None
    prototype: Array | None = None
    # Whether the hooks take leading axes themselves; otherwise the base class loops over them.
    takes_stacks: ClassVar[bool] = False

    # The hooks: two required, three that make it faster

    @abstractmethod
    def _forward(self, X: Array) -> Array:
        """Measure a tensor: ``shape`` -> ``(m,)``."""

    @abstractmethod
    def _adjoint(self, v: Array) -> Array:
        """Apply the adjoint: ``(m,)`` -> ``shape``."""

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        """Make the operator of some of the rows; ``rows`` are checked."""
        if not getattr(self, "_told_slow", False):
            self._told_slow = True
            warnings.warn(
                f"{type(self).__name__} cannot measure some of its rows alone: every block costs "
                "all the rows. Solvers that use all rows at once are as fast here; or give the "
                "operator a _restrict method.",
                SlowOperatorWarning,
                stacklevel=4,
            )
        return RestrictedOperator(self, rows)

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        """Measure a tensor given by its factors."""
        return self._stacked(self._forward, X.full(), len(self.shape))

    def _misfit(self, X: Array, y: Array, weights: Array | None) -> tuple[Array, Array]:
        """Residual y - A(X) and A*(weights * residual)."""
        residual = y - self._stacked(self._forward, X, len(self.shape))
        weighted = residual if weights is None else weights * residual
        return residual, self._stacked(self._adjoint, weighted, 1)

    def _row_norms(self) -> Array:
        """Frobenius norms of the rows, ``(m,)``: by default one adjoint for each."""
        unit = np.zeros(self.m)
        norms = np.zeros(self.m)
        for i in range(self.m):
            unit[i] = 1.0
            norms[i] = float(norm(self._adjoint(like(unit, self.prototype))))
            unit[i] = 0.0
        return like(norms, self.prototype)

    # What users and solvers call

    def forward(self, X: Array | TuckerTensor) -> Array:
        """Measure: A(X), shape (*batch, m).

        Parameters
        ----------
        X : array, shape (*batch, n_1, ..., n_d), or TuckerTensor
        """
        if isinstance(X, TuckerTensor):
            self._check(X.shape, X.batch_shape, self.shape, "forward", "X")
            return self._checked(self._forward_tucker(self._as_ours(X)), (self.m,), "_forward")
        X = self._tensor(X, "forward")
        return self._checked(
            self._stacked(self._forward, X, len(self.shape)), (self.m,), "_forward"
        )

    def adjoint(self, v: Array) -> Array:
        """Apply the adjoint: A*(v), shape (*batch, n_1, ..., n_d).

        Parameters
        ----------
        v : array, shape (*batch, m)
        """
        v = self._measurements(v, "adjoint", "v")
        return self._checked(self._stacked(self._adjoint, v, 1), self.shape, "_adjoint")

    def restrict(self, rows: Rows) -> MeasurementOperator:
        """Operator of some of the measurements: ``restrict(rows).forward(X) = forward(X)[rows]``.

        Parameters
        ----------
        rows : slice or integer array
            For a stack of trials also a tuple with one of these for every trial; where they
            differ in length the shorter ones are filled up with rows of zeros.
        """
        return self._restrict(check_rows(rows, self.m, self.batch_shape))

    def select(self, trials: Sequence[int]) -> MeasurementOperator:
        """Stack of some of the trials of a stack, without a copy; one operator for all stays."""
        return self._select(trials) if self.batch_shape else self

    def _select(self, trials: Sequence[int]) -> MeasurementOperator:
        raise NotImplementedError(f"{type(self).__name__} is a stack, but cannot select trials.")

    def misfit(
        self, X: Array | TuckerTensor, y: Array, weights: Array | None = None
    ) -> tuple[Array, Array]:
        """Residual y - A(X) and A*(weights * (y - A(X))), with each row read once where it can be.

        Parameters
        ----------
        X : array, shape (*batch, n_1, ..., n_d), or TuckerTensor
        y : array, shape (*batch, m)
        weights : array, shape (m,), optional

        Returns
        -------
        residual : array, shape (*batch, m)
        gradient : array, shape (*batch, n_1, ..., n_d)
        """
        X = X.full() if isinstance(X, TuckerTensor) else X
        y = self._measurements(y, "misfit", "y")
        return self._misfit(self._tensor(X, "misfit"), y, weights)

    def row_norms(self) -> Array:
        """Frobenius norms of the sensing tensors, shape (*batch, m)."""
        return self._row_norms()

    # Checks shared by the public methods

    def _stacked(self, hook: Any, x: Array, core_ndim: int) -> Array:
        """Apply a hook to every item of a stack."""
        batch = x.shape[: x.ndim - core_ndim]
        if not batch or self.takes_stacks:
            return hook(x)
        xp = namespace(x)
        flat = xp.reshape(x, (size(batch), *x.shape[x.ndim - core_ndim :]))
        out = xp.stack([hook(flat[i, ...]) for i in range(flat.shape[0])])
        return xp.reshape(out, (*batch, *out.shape[1:]))

    def _tensor(self, X: Any, caller: str) -> Array:
        X = as_float(X, "X")
        d = len(self.shape)
        self._check(tuple(X.shape[max(0, X.ndim - d) :]), X.shape[:-d], self.shape, caller, "X")
        return same_kind(X, self.prototype, "X", type(self).__name__)

    def _measurements(self, v: Any, caller: str, name: str) -> Array:
        v = as_float(v, name)
        self._check(tuple(v.shape[-1:]), v.shape[:-1], (self.m,), caller, name)
        return same_kind(v, self.prototype, name, type(self).__name__)

    def _as_ours(self, X: TuckerTensor) -> TuckerTensor:
        same_kind(X.core, self.prototype, "X", type(self).__name__)
        return X

    def _check(
        self, given: tuple[int, ...], batch: Any, wanted: tuple[int, ...], caller: str, name: str
    ) -> None:
        try:
            np.broadcast_shapes(tuple(batch), self.batch_shape)
            fits = given == wanted
        except ValueError:
            fits = False
        if not fits:
            stack = f"a stack of {self.batch_shape} " if self.batch_shape else "(*batch, "
            hint = (
                "Did you restrict the operator but not the data?"
                if name != "X"
                else "Did you vectorise the tensor, or is shape= not the tensor's?"
            )
            raise ValueError(
                f"{type(self).__name__}.{caller} expects {name} of shape {stack}"
                f"{', '.join(map(str, wanted))}), got {tuple(batch) + tuple(given)}. {hint}"
            )

    def _checked(self, out: Array, wanted: tuple[int, ...], hook: str) -> Array:
        if tuple(out.shape[out.ndim - len(wanted) :]) != wanted:
            raise ValueError(
                f"{type(self).__name__}.{hook} returned shape {tuple(out.shape)}, expected "
                f"(*batch, {', '.join(map(str, wanted))}). Check the operator's m and shape."
            )
        return out

    def __repr__(self) -> str:
        stack = f"stack of {self.batch_shape}, " if self.batch_shape else ""
        share = self.m / size(self.shape)
        return (
            f"{type(self).__name__}: {stack}{self.m} measurements of tensors of shape "
            f"{self.shape} ({share:.2g} per entry)"
        )


class RestrictedOperator(MeasurementOperator):
    """Some rows of an operator that cannot restrict itself: right, and slow.

    Every ``forward`` and ``adjoint`` costs that of the whole operator.
    """

    def __init__(self, whole: MeasurementOperator, rows: Rows) -> None:
        self.whole = whole
        self.rows = like(np.arange(whole.m)[rows if isinstance(rows, slice) else to_numpy(rows)],
                         whole.prototype)  # fmt: skip
        self.shape = whole.shape
        self.m = int(self.rows.shape[0])
        self.dtype = whole.dtype
        self.prototype = whole.prototype

    def _forward(self, X: Array) -> Array:
        out = self.whole._forward(X)
        return namespace(out).take(out, self._rows_like(out), axis=-1)

    def _adjoint(self, v: Array) -> Array:
        xp = namespace(v)
        # a matrix product with 0/1 columns would be m x m; adding up handles repeated rows too
        filled = np.zeros(self.whole.m, dtype=to_numpy(v).dtype)
        np.add.at(filled, to_numpy(self.rows), to_numpy(v))
        return self.whole._adjoint(filled if is_numpy(v) else xp.asarray(like(filled, v)))

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        if not isinstance(rows, slice):
            rows = to_numpy(rows)
        return RestrictedOperator(self.whole, to_numpy(self.rows)[rows])

    def _rows_like(self, out: Array) -> Array:
        return like(to_numpy(self.rows), out)


def count_rows(rows: Rows, m: int) -> int:
    """Count the measurements that ``rows`` select."""
    if isinstance(rows, tuple):
        return max(count_rows(one, m) for one in rows)
    return len(range(*rows.indices(m))) if isinstance(rows, slice) else int(rows.shape[0])


def check_rows(rows: Any, m: int, batch_shape: tuple[int, ...] = ()) -> Rows:
    """Check a set of measurements: a slice, integers from 0 to m - 1, or a mask of length m."""
    if isinstance(rows, slice):
        try:
            empty = not len(range(*rows.indices(m)))
        except TypeError:
            raise TypeError(f"rows must be a slice of integers, got {rows!r}.") from None
        if empty:
            raise ValueError(f"rows selects none of the {m} measurements, got {rows!r}.")
        return rows
    if isinstance(rows, tuple) and batch_shape:
        if len(rows) != size(batch_shape):
            raise ValueError(
                f"rows must have one entry for each of the {size(batch_shape)} trials, "
                f"got {len(rows)}."
            )
        return tuple(check_rows(one, m) for one in rows)
    return _check_row_numbers(as_array(rows, "rows"), m)


def _check_row_numbers(index: Array, m: int) -> IntArray:
    xp = namespace(index)
    if index.ndim == 1 and xp.isdtype(index.dtype, "bool") and index.shape[0] == m:
        index = xp.nonzero(index)[0]
    if index.ndim != 1 or not xp.isdtype(index.dtype, "integral"):
        raise TypeError(
            f"rows must be a slice, a 1-D integer array or a boolean mask of length {m}; got "
            f"shape {tuple(index.shape)}, dtype {index.dtype}."
        )
    if not index.shape[0]:
        raise ValueError(f"rows selects none of the {m} measurements.")
    low, high = int(xp.min(index)), int(xp.max(index))
    if low < 0 or high >= m:
        raise ValueError(f"rows must be from 0 to {m - 1}, got values from {low} to {high}.")
    return index
