"""The objective: measurements, data and weights, equation (3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lowtucker._arrays import (
    Array,
    Rows,
    all_finite,
    as_float,
    is_complex,
    like,
    namespace,
    pad_and_stack,
    per_trial,
    real_dtype,
    same_kind,
    to_numpy,
)
from lowtucker.operators.base import MeasurementOperator, check_rows, count_rows
from lowtucker.tensor.products import norm
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Problem"]


@dataclass(frozen=True, eq=False)
class Problem:
    r"""Find a low-rank X with y = A(X): the least-squares objective of equation (3.2).

    .. math:: F(X) = \frac{1}{2m} \sum_{j=1}^m w_j (y_j - \langle A_j, X \rangle)^2

    A block of a problem is a problem: its objective is :math:`f_i`, which averages over its own
    measurements.

    Parameters
    ----------
    A : MeasurementOperator
    y : array, shape (*batch, m)
    weights : array, shape (m,) or (*batch, m), optional
        :math:`w_j \ge 0`; 1 by default, as in the paper.

    Attributes
    ----------
    count : int or array, shape (*batch,)
        The number of measurements that the objective averages over.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=66, seed=1)
    >>> X_true = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    >>> problem = lt.Problem(A, A.forward(X_true))
    >>> float(problem.relative_residual(X_true))
    0.0
    >>> problem.block(slice(0, 22)).m
    22
    """

    A: MeasurementOperator
    y: Array
    weights: Array | None = None
    count: Any = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Check the parts against each other."""
        if not isinstance(self.A, MeasurementOperator):
            raise TypeError(
                f"A must be a MeasurementOperator, got {type(self.A).__name__}. "
                "Try lowtucker.as_operator(A, shape)."
            )
        y = _checked_vector(self.y, "y", self.A)
        if self.A.batch_shape and tuple(y.shape[:-1]) != self.A.batch_shape:
            raise ValueError(
                f"y must have shape {(*self.A.batch_shape, self.A.m)}, one row for each trial of "
                f"A, got {tuple(y.shape)}."
            )
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "count", self.A.m)
        if self.weights is not None:
            object.__setattr__(self, "weights", _checked_weights(self.weights, self.A))

    @property
    def m(self) -> int:
        """The number of measurements."""
        return self.A.m

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor to be found."""
        return self.A.shape

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of a stack of trials."""
        return tuple(self.y.shape[:-1])

    @property
    def tensor_dtype(self) -> Any:
        """Dtype of the tensor to be found: the operator's, or else that of y."""
        return self.y.dtype if self.A.dtype is None else self.A.dtype

    def residual(self, X: Array | TuckerTensor) -> Array:
        """Return y - A(X), shape (*batch, m). One pass."""
        return self.y - self.A.forward(X)

    def relative_residual(self, X: Array | TuckerTensor) -> Array:
        """Return ||y - A(X)|| / ||y||, shape (*batch,). One pass."""
        return self.relative(self.residual(X))

    def relative(self, residual: Array) -> Array:
        """Norm of a residual vector, relative to y's (absolute where y is zero)."""
        scale = norm(self.y, batch_ndim=self.y.ndim - 1)
        xp = namespace(scale)
        scale = xp.where(scale > 0, scale, xp.ones_like(scale))
        return norm(residual, batch_ndim=residual.ndim - 1) / scale

    def cost(self, X: Array | TuckerTensor) -> Array:
        r"""Return :math:`\tfrac12 \sum_j w_j (y_j - \langle A_j, X \rangle)^2`. One pass.

        The quantity that the paper's figures plot: it has no 1/m.
        """
        return self.cost_of(self.residual(X))

    def cost_of(self, residual: Array) -> Array:
        """Cost of a residual vector that is at hand."""
        xp = namespace(residual)
        squares = xp.abs(residual) ** 2
        squares = squares if self.weights is None else self.weights * squares
        return 0.5 * xp.sum(squares, axis=-1)

    def objective(self, X: Array | TuckerTensor) -> Array:
        """Return F(X) of equation (3.2), and f_i(X) of a block: the cost over m. One pass."""
        return self.cost(X) / self.count

    def gradient(self, X: Array | TuckerTensor) -> Array:
        r"""Gradient of F (of :math:`f_i` for a block), shape (*batch, n_1, ..., n_d).

        .. math:: \nabla F(X) = \frac1m \sum_j w_j A_j (\langle A_j, X \rangle - y_j)

        One pass: each row is read once where the operator can.
        """
        return self.residual_and_gradient(X)[1]

    def residual_and_gradient(self, X: Array | TuckerTensor) -> tuple[Array, Array]:
        """Both from one pass."""
        residual, ascent = self.A.misfit(X, self.y, self.weights)
        return residual, ascent * per_trial(-1.0 / self.count, ascent)

    def block(self, rows: Rows) -> Problem:
        """Problem of some of the measurements.

        Parameters
        ----------
        rows : slice or integer array; for a stack also a tuple with one of these a trial
        """
        return self.trusted_block(check_rows(rows, self.m, self.batch_shape))

    def trusted_block(self, rows: Rows) -> Problem:
        """:meth:`block` for rows that are known to be right."""
        block = object.__new__(Problem)
        object.__setattr__(block, "A", self.A._restrict(rows))
        object.__setattr__(block, "y", _rows_of(self.y, rows))
        weights = None if self.weights is None else _rows_of(self._spread_weights(rows), rows)
        object.__setattr__(block, "weights", weights)
        object.__setattr__(block, "count", _count(rows, self.m, self.y))
        return block

    def select(self, trials: Sequence[int]) -> Problem:
        """Problem of some of the trials of a stack."""
        index = like(np.asarray(trials), self.y)
        xp = namespace(self.y)
        part = object.__new__(Problem)
        object.__setattr__(part, "A", self.A.select(trials))
        object.__setattr__(part, "y", xp.take(self.y, index, axis=0))
        weights = self.weights
        if weights is not None and weights.ndim > 1:
            weights = xp.take(weights, index, axis=0)
        object.__setattr__(part, "weights", weights)
        object.__setattr__(part, "count", self.count)
        return part

    def _spread_weights(self, rows: Rows) -> Array:
        """Weights, one set a trial where every trial takes other rows."""
        if not isinstance(rows, tuple):
            return self.weights
        return namespace(self.y).broadcast_to(self.weights, self.y.shape)


def _count(rows: Rows, m: int, y: Array) -> Any:
    """Count the measurements in a block; one count a trial where they differ."""
    if not isinstance(rows, tuple):
        return count_rows(rows, m)
    counts = [count_rows(one, m) for one in rows]
    if min(counts) == max(counts):
        return counts[0]
    return like(np.reshape(counts, y.shape[:-1]), y, real_dtype(y))


def _rows_of(y: Array, rows: Rows) -> Array:
    """Some of the measurements; those of a stack are filled up with zeros to equal length."""
    xp = namespace(y)
    if isinstance(rows, slice):
        return y[..., rows]
    if not isinstance(rows, tuple):
        return xp.take(y, like(rows, y), axis=-1)
    flat = xp.reshape(y, (len(rows), y.shape[-1]))
    parts = [_rows_of(flat[k, :], one) for k, one in enumerate(rows)]
    return xp.reshape(pad_and_stack(parts), (*y.shape[:-1], -1))


def _checked_vector(value: Any, name: str, A: MeasurementOperator) -> Array:
    """Check one number for each measurement."""
    v = same_kind(as_float(value, name), A.prototype, name, type(A).__name__)
    if v.ndim == 0 or v.shape[-1] != A.m:
        raise ValueError(
            f"{name} must have one entry for each of the {A.m} measurements, got shape "
            f"{tuple(v.shape)}. Is it the {name} of another operator?"
        )
    if not all_finite(v):
        bad = np.flatnonzero(~np.isfinite(to_numpy(v)).reshape(-1, A.m).all(axis=0))
        raise ValueError(
            f"{name} has NaN or infinite entries, the first at {bad[0]}. Leave those measurements "
            f"out: keep = numpy.isfinite({name}), then A.restrict(keep) and {name}[keep]."
        )
    return v


def _checked_weights(weights: Any, A: MeasurementOperator) -> Array:
    w = _checked_vector(weights, "weights", A)
    xp = namespace(w)
    if is_complex(w) or bool(xp.any(w < 0)) or not bool(xp.any(w > 0)):
        raise ValueError(
            "weights must be real, not negative, and not all zero. "
            "To leave out a measurement give it the weight 0."
        )
    return w
