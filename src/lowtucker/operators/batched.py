"""Batches of operators: one for each problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from lowtucker._array import Array, Rows, as_tuple, is_array, kind, like, namespace, real_dtype
from lowtucker._array.readings import side_by_side
from lowtucker.operators.base import MeasurementOperator, check_operator
from lowtucker.operators.traits import Traits
from lowtucker.status import Finding
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["BatchOperator", "batch"]


class BatchOperator(MeasurementOperator):
    """Operators of the problems of a batch, each with its own; see :func:`batch`.

    Those with fewer rows than others are padded with rows of zeros, which measure nothing.

    Parameters
    ----------
    operators : sequence of MeasurementOperator
    batch_shape : tuple of int, optional
    m : int, optional
        Measurements of each, the padding included: a selection keeps the length of its batch.
    """

    takes_rows_per_problem = True

    def __init__(
        self,
        operators: Sequence[MeasurementOperator],
        batch_shape: tuple[int, ...] | None = None,
        m: int | None = None,
    ) -> None:
        self.operators, first = list(operators), operators[0]
        self.batch_shape = (len(operators),) if batch_shape is None else batch_shape
        self.shape, self.dtype, self.prototype = first.shape, first.dtype, first.prototype
        self.m = max(A.m for A in operators) if m is None else m
        every = [A.traits for A in operators]
        self.traits = Traits(
            row_separable=all(one.row_separable for one in every),
            has_fast_tangent=all(one.has_fast_tangent for one in every),
            isotropic=all(one.isotropic for one in every),
            forms_full_tensor=any(one.forms_full_tensor for one in every),
            supports_batch=True,
            has_fast_row_norms=all(one.has_fast_row_norms for one in every),
        )

    @cached_property
    def count(self) -> Any:
        """Rows of each problem without the padding; m if there is none."""
        counts = np.array([A.m for A in self.operators])
        if counts.min() == self.m:
            return self.m
        return like(counts.reshape(self.batch_shape), self.prototype, real_dtype(self._number))

    @property
    def rows_read(self) -> int:
        """Rows that a product reads of one problem."""
        return max(A.rows_read for A in self.operators)

    @property
    def _number(self) -> Array:
        """An array of the kind and dtype of the tensors."""
        return like(np.zeros(1), self.prototype, self.dtype)

    def _each(self, function: Callable[[Any, Array], Array], x: Array, core_ndim: int) -> list[Any]:
        """Results of a function of every operator and what is its own of an array."""
        xp, core = namespace(x), x.shape[x.ndim - core_ndim :]
        x = xp.reshape(xp.broadcast_to(x, (*self.batch_shape, *core)), (-1, *core))
        return [function(A, x[k, ...]) for k, A in enumerate(self.operators)]

    def _joined(self, parts: Sequence[Array]) -> Array:
        """Measurements of all problems, padded with zeros."""
        xp = namespace(*parts)
        zeros = [like(np.zeros(self.m - len(part)), part, part.dtype) for part in parts]
        rows = [xp.concat(pair) for pair in zip(parts, zeros, strict=True)]
        return xp.reshape(xp.stack(rows), (*self.batch_shape, self.m))

    def _forward(self, X: Array) -> Array:
        return self._joined(self._each(lambda A, x: A.forward(x), X, len(self.shape)))

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        if not X.batch_shape:
            return self._joined([A.forward(X) for A in self.operators])
        return self._joined([A.forward(X.trial(k)) for k, A in enumerate(self.operators)])

    def _adjoint(self, v: Array) -> Array:
        back = self._each(lambda A, v: A.adjoint(v[: A.m]), v, 1)
        xp = namespace(*back)
        return xp.reshape(xp.stack(back), (*self.batch_shape, *self.shape))

    def diagnose(self, rank: tuple[int, ...], mask: Array | None = None) -> list[Finding]:
        """Findings of all operators, each with the number of its problem."""
        return [
            replace(found, text=f"Problem {k}: {found.text}")
            for k, A in enumerate(self.operators)
            for found in A.diagnose(rank, None)
        ]

    def _row_norms(self) -> Array:
        return self._joined([A.row_norms() for A in self.operators])

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        each = rows if isinstance(rows, tuple) else (rows,) * len(self.operators)
        pairs = side_by_side(zip(self.operators, each, strict=True))
        return BatchOperator([A._restrict(_within(r, A.m)) for A, r in pairs], self.batch_shape)

    def own_rows(self, rows: Rows, *, fill: bool) -> Rows:
        """Rows without those of the padding: other ones for every problem, where there is any."""
        if not is_array(self.count):
            return rows
        each = rows if isinstance(rows, tuple) else (rows,) * len(self.operators)
        positions = [np.arange(self.m)[one] for one in each]
        pairs = zip(positions, self.operators, strict=True)
        return tuple(
            one[one < A.m] if (one < A.m).any() or not fill else one[:1] % A.m for one, A in pairs
        )

    def _select(self, trials: Sequence[int]) -> MeasurementOperator:
        return BatchOperator([self.operators[k] for k in trials], m=self.m)

    def _trial(self, k: int) -> MeasurementOperator:
        return self.operators[k]

    def arranged(self, batch_shape: tuple[int, ...]) -> MeasurementOperator:
        """Batch with its problems arranged along these leading axes."""
        return BatchOperator(self.operators, batch_shape, self.m)


def _within(rows: Any, m: int) -> Any:
    """Rows that an operator has, of those of the longest."""
    return rows if isinstance(rows, slice) else np.asarray(rows)[np.asarray(rows) < m]


def _described(A: MeasurementOperator) -> str:
    """What the operators of a batch have in common."""
    array = "NumPy" if A.prototype is None else kind(A.prototype)
    return f"{A.shape}, {A.dtype}, {array}"


def batch(operators: Sequence[Any]) -> MeasurementOperator:
    """Make a batch of operators, one for each of several problems of the same shape.

    :func:`lowtucker.solve` and :func:`lowtucker.recover` then solve all of them together.

    Parameters
    ----------
    operators : sequence of MeasurementOperator
        Of the same shape, dtype and kind of array. Their numbers of measurements may differ:
        measurements of those with fewer are padded with zeros.

    Notes
    -----
    Operators are applied one after the other; what solvers compute from their measurements is
    computed for all together. Matrices in one array (:class:`lowtucker.DenseOperator` with a
    leading axis) are faster. No rows are copied.

    Examples
    --------
    Completion of two tensors, each with its own samples:

    >>> import numpy as np, lowtucker as lt
    >>> X_true = lt.random_tucker((10, 10, 10), (2, 2, 2), seed=0, trials=2)
    >>> rng = np.random.default_rng(0)
    >>> known = [np.argwhere(rng.random((10, 10, 10)) < 0.4) for _ in range(2)]
    >>> A = lt.batch([lt.entries((10, 10, 10), indices) for indices in known])
    >>> lt.recover(A, A.forward(X_true), (2, 2, 2)).success
    array([ True,  True])
    """
    if as_tuple(operators) is None and not isinstance(operators, Iterator):
        raise TypeError(
            f"operators must be a sequence of operators, got {type(operators).__name__}. "
            "Try lowtucker.batch([A, B])."
        )
    every = list(operators)
    if not every:
        raise ValueError(
            "operators must have one operator at least, got none. Try lowtucker.batch([A, B])."
        )
    first = check_operator(every[0])
    for k, A in enumerate(every):
        check_operator(A)
        if A.batch_shape:
            raise ValueError(f"operators[{k}] is a batch of {A.batch_shape}. Give its operators.")
        pair = [_described(one) for one in (A, first)]
        if pair[0] != pair[1]:
            raise ValueError(
                "operators must have one shape, dtype and kind of array: "
                f"operators[{k}] has {pair[0]}, the first has {pair[1]}. Solve them one by one."
            )
    return BatchOperator(every)
