"""The least-squares objective: operator, data and weights, equation (3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    Rows,
    all_finite,
    as_float_on,
    in_precision_of,
    is_array,
    is_complex,
    is_numpy,
    like,
    namespace,
    pad_and_stack,
    per_trial,
    to_numpy,
)
from lowtucker.operators.arguments import check_rows, check_weights
from lowtucker.operators.base import MeasurementOperator, check_operator
from lowtucker.operators.repeats import repeated_rows
from lowtucker.tensor.products import norm
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Problem", "as_finite", "as_vector"]


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
        A column (m, 1) is read as (m,), unless A is a batch.
    weights : array, shape (m,) or (*batch, m), optional
        :math:`w_j \ge 0`; 1 by default, as in the paper. 0 leaves a measurement out: y may
        be anything there, even NaN (it is stored as 0).

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
    # For blocks of problems that were checked: skip the checks, and hand on the dtype of X
    _trusted: InitVar[bool] = field(default=False, kw_only=True)
    _known_dtype: Any = field(default=None, kw_only=True, repr=False)

    def __post_init__(self, _trusted: bool) -> None:
        """Check the parts against each other."""
        if _trusted:
            return
        check_operator(self.A)
        y = as_vector(self.y, "y", self.A)
        if self.A.batch_shape and tuple(y.shape[:-1]) != self.A.batch_shape:
            raise ValueError(
                f"y must have shape {(*self.A.batch_shape, self.A.m)}, one row for each problem "
                f"of the batch A, got {tuple(y.shape)}. Is it the y of another operator?"
            )
        if self.weights is not None:
            weights = _checked_weights(self.weights, self.A, tuple(y.shape))
            object.__setattr__(self, "weights", weights)
            if not all_finite(y):
                xp = namespace(y)
                y = xp.where(weights > 0, y, xp.zeros_like(y))
        if is_array(self.A.count):  # what lies in the padding of a batch measures nothing
            xp, measured = namespace(y), np.arange(self.A.m) < to_numpy(self.A.count)[..., None]
            y = xp.where(like(measured, y), y, xp.zeros_like(y))
        object.__setattr__(self, "y", as_finite(y, "y", self.A))

    @property
    def count(self) -> Any:
        """The number of measurements that the objective averages over: int, or array (*batch,)."""
        return self.A.count

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
        """Leading axes of a batch of problems."""
        return tuple(self.y.shape[:-1])

    @cached_property
    def tensor_dtype(self) -> Any:
        """Dtype of the tensor to be found: the operator's, or else that of y.

        If y is complex, the tensor is real if the adjoint is: computed once, for zeros.
        """
        if self._known_dtype is not None:
            return self._known_dtype
        if self.A.dtype is not None:
            return self.A.dtype
        if not is_complex(self.y):
            return self.y.dtype
        back = self.A.adjoint(namespace(self.y).zeros_like(self.y))
        return in_precision_of(self.y.dtype, self.y, is_complex=is_complex(back))

    @property
    def equations(self) -> Any:
        """The number of real equations: an int, or an array with one per problem of a batch.

        Measurements of positive weight; twice as many if y is complex and the tensor real: a real
        and an imaginary part each.
        """
        if self.weights is None:
            counts = to_numpy(self.count) if is_array(self.count) else np.asarray(self.count)
        else:
            counts = np.count_nonzero(to_numpy(self.weights) > 0, axis=-1)
            if is_array(self.count):  # without the padding
                counts = np.minimum(counts, to_numpy(self.count))
        parts = 2 if is_complex(self.y) and "complex" not in str(self.tensor_dtype) else 1
        return parts * int(counts) if counts.ndim == 0 else parts * counts.astype(int)

    @property
    def fewest_equations(self) -> int:
        """The number of real equations, the smallest of a batch."""
        return int(np.min(self.equations))

    @cached_property
    def repeated_rows(self) -> np.ndarray[Any, Any] | None:
        """Numbers of the rows, equal for multiples of a row; None if no two are. One pass."""
        return repeated_rows(self.A, self.tensor_dtype)

    @cached_property
    def y_norm(self) -> Array:
        """Weighted norm of y, shape (*batch,); infinite where no number is as large."""
        with np.errstate(over="ignore"):
            return self.weighted_norm(self.y)

    def residual(self, X: Array | TuckerTensor) -> Array:
        """Return y - A(X), shape (*batch, m). One pass."""
        return self.A.residual(X, self.y, self.weights)

    def measured_norm(self, X: Array | TuckerTensor) -> Array:
        """Weighted norm of A(X), shape (*batch,). One pass."""
        return self.weighted_norm(self.A.residual(X, None, self.weights))

    def relative_residual(self, X: Array | TuckerTensor) -> Array:
        """Return ||y - A(X)|| / ||y||, weighted by the weights. One pass."""
        return self.relative(self.residual(X))

    def relative(self, residual: Array) -> Array:
        """Weighted norm of a residual vector, relative to that of y (absolute if y is zero)."""
        scale, xp = self.y_norm, namespace(self.y)
        return self.weighted_norm(residual) / xp.where(scale > 0, scale, xp.ones_like(scale))

    def weighted_norm(self, v: Array) -> Array:
        r"""Return the weighted norm :math:`(\sum_j w_j |v_j|^2)^{1/2}`, shape (*batch,)."""
        known = self.A.known_norm(v, self.weights)
        if known is not None:
            return known
        v = v if self.weights is None else namespace(v).sqrt(self.weights) * v
        return norm(v, batch_ndim=v.ndim - 1)

    def cost(self, X: Array | TuckerTensor) -> Array:
        r"""Return :math:`\tfrac12 \sum_j w_j (y_j - \langle A_j, X \rangle)^2`. One pass.

        The quantity that the paper's figures plot: it has no 1/m.
        """
        return self.cost_of(self.residual(X))

    def cost_of(self, residual: Array) -> Array:
        """Cost of a given residual."""
        known = self.A.known_norm(residual, self.weights)
        if known is not None:
            return 0.5 * known**2
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

        One pass over a NumPy matrix; other operators do a forward and an adjoint.
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
        rows : slice or integer array; for a batch also a tuple with one of these per problem
        """
        block = self._block(check_rows(rows, self.m, self.batch_shape), fill=False)
        if is_array(block.count) and not bool(namespace(self.y).all(block.count > 0)):
            raise ValueError(
                f"rows selects no measurement of some problems of the batch, whose blocks are "
                f"shorter than the longest, {self.m}."
            )
        return block

    def trusted_block(self, rows: Rows) -> Problem:
        """:meth:`block` for rows that a sampler drew; one row at least of every problem."""
        return self._block(rows, fill=True)

    def _block(self, rows: Rows, *, fill: bool) -> Problem:
        if isinstance(rows, slice) and rows.indices(self.m) == (0, self.m, 1):
            return self
        rows = self.A.own_rows(rows, fill=fill)
        A = self.A.block(rows)
        if len(self.y.shape) > 2 and isinstance(rows, tuple):
            A = A.arranged(self.batch_shape)  # one operator has no leading axes of its own
        weights = None if self.weights is None else _rows_of(self._spread_weights(rows), rows)
        return Problem(
            A,
            _rows_of(self.y, rows),
            weights,
            _trusted=True,
            _known_dtype=self.__dict__.get("tensor_dtype"),
        )

    def select(self, trials: Sequence[int]) -> Problem:
        """Batch of some of the problems of a batch."""
        index = like(np.asarray(trials), self.y)
        xp = namespace(self.y)
        weights = self.weights
        if weights is not None and weights.ndim > 1:
            weights = xp.take(weights, index, axis=0)
        y = xp.take(self.y, index, axis=0)
        return Problem(self.A.select(trials), y, weights, _trusted=True)

    def trial(self, k: int) -> Problem:
        """Problem k of a batch, without the leading axis; a single problem stays."""
        if not self.batch_shape:
            return self
        A, w = self.A.trial(k), self.weights
        w = w if w is None or w.ndim == 1 else w[k, ...]
        # the rows of a batch of unequal blocks are padded
        y, w = self.y[k, : A.m], None if w is None else w[: A.m]
        return Problem(A, y, w, _trusted=True, _known_dtype=self.__dict__.get("tensor_dtype"))

    @cached_property
    def as_entries(self) -> Problem | None:
        """The same problem with plain sampled entries; None unless every row is one, scaled."""
        made = None if self.batch_shape else self.A.as_entries(self.y, self.weights)
        if made is None:
            return None
        return self if made[0] is self.A else Problem(*made, _trusted=True)

    def _spread_weights(self, rows: Rows) -> Array:
        """Weights, one set per problem if every problem takes other rows."""
        if not isinstance(rows, tuple):
            return self.weights
        return namespace(self.y).broadcast_to(self.weights, self.y.shape)


def _rows_of(y: Array, rows: Rows) -> Array:
    """Some of the measurements; those of a batch are padded with zeros to equal length."""
    xp = namespace(y)
    if isinstance(rows, slice):
        return y[..., rows]
    if not isinstance(rows, tuple):
        return xp.take(y, like(rows, y), axis=-1)
    flat = xp.reshape(y, (len(rows), y.shape[-1]))
    if is_numpy(y):  # this runs in every step of a batch
        parts = [v[one] for v, one in zip(flat, rows, strict=True)]
    else:
        parts = [_rows_of(flat[k, :], one) for k, one in enumerate(rows)]
    joined = pad_and_stack(parts)
    return xp.reshape(joined, (*y.shape[:-1], joined.shape[-1]))


def as_vector(value: Any, name: str, A: MeasurementOperator) -> Array:
    """Check that there is one number for each measurement; accepts MATLAB's columns."""
    v = as_float_on(value, A.prototype, name, type(A).__name__)
    if tuple(v.shape) == (A.m, 1) and A.m > 1 and not A.batch_shape:
        v = v[:, 0]
    if v.ndim == 0 or v.shape[-1] != A.m:
        raise ValueError(
            f"{name} must have one entry for each of the {A.m} measurements, got shape "
            f"{tuple(v.shape)}. Is it the {name} of another operator? Give ({A.m},), or "
            f"(k, {A.m}) for a batch of k problems."
        )
    return v


def as_finite(v: Array, name: str, A: MeasurementOperator) -> Array:
    """Check that all are finite, and cast them to the operator's precision, if it has one."""
    if not all_finite(v):
        bad = np.flatnonzero(~np.isfinite(to_numpy(v)).reshape(-1, A.m).all(axis=0))
        raise ValueError(
            f"{name} has NaN or infinite entries, the first at {bad[0]}. Leave those measurements "
            f"out: keep = numpy.isfinite({name}), then {name}[keep] with A[keep] for an array A, "
            "A.restrict(keep) for an operator; or give them the weight 0."
        )
    if A.dtype is None:
        return v
    dtype = in_precision_of(A.dtype, v, is_complex=is_complex(v))
    return v if v.dtype == dtype else _converted(v, dtype, name)


def _converted(v: Array, dtype: Any, name: str) -> Array:
    """Numbers in the operator's precision, if that can represent the largest."""
    xp = namespace(v)
    largest, limits = float(xp.max(xp.abs(v))), xp.finfo(dtype)
    if largest and not float(limits.smallest_normal) <= largest <= float(limits.max):
        raise ValueError(
            f"{name} has entries up to {largest:.3g}, which A's precision, {dtype}, cannot "
            f"represent. Create A in double precision, or rescale {name}."
        )
    return xp.astype(v, dtype)


def _checked_weights(weights: Any, A: MeasurementOperator, shape: tuple[int, ...]) -> Array:
    w = as_finite(as_vector(weights, "weights", A), "weights", A)
    check_weights(w, shape)
    xp = namespace(w)
    if bool(xp.any(w < 0)) or not bool(xp.all(xp.any(w > 0, axis=-1))):
        raise ValueError(
            "weights must be real, not negative, and not all zero. "
            "To leave out a measurement, give it the weight 0."
        )
    return w
