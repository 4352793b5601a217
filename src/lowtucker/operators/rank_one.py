"""Rank-one measurements: each row is an outer product of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowtucker._array import Array, Rows, adjoint, conj, like, namespace, real_dtype, to_numpy
from lowtucker.operators.arguments import check_matrices
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.factored import FactoredOperator, contracted, weighted_sum
from lowtucker.operators.traits import Traits
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["RankOneOperator", "rank_one"]

# Quantile of the measurements at which a start clips them
CLIP = 0.9


class RankOneOperator(FactoredOperator):
    r"""Measurements :math:`y_j = X \times_1 a_j^1 \cdots \times_d a_j^d`; see :func:`rank_one`.

    Parameters
    ----------
    factors : sequence of arrays, shapes (m, n_k)
    """

    # products of vectors have heavy tails; the start forms the adjoint
    traits = Traits(
        row_separable=True, has_fast_tangent=True, isotropic=False, has_fast_row_norms=True
    )

    def __init__(self, factors: Sequence[Any]) -> None:
        arrays = check_matrices(factors, "factors", "(m, n_k)")
        for k, F in enumerate(arrays):
            if F.shape[0] != arrays[0].shape[0]:
                raise ValueError(
                    f"factors[{k}] must be a matrix with one row per measurement, "
                    f"({arrays[0].shape[0]}, n_{k}), got shape {tuple(F.shape)}. Transpose it?"
                )
        self._set(arrays)

    def _set(self, factors: list[Array]) -> None:
        self.factors = factors
        self.shape = tuple(int(F.shape[1]) for F in factors)
        self.m = int(factors[0].shape[0])
        self.prototype, self.dtype = factors[0], factors[0].dtype

    def _mode_times(self, k: int, U: Array) -> Array:
        return namespace(U).matmul(self.factors[k], U)

    def _mode_adjoint(self, k: int, W: Array) -> Array:
        return namespace(W).matmul(adjoint(self.factors[k]), W)

    def _mode_rows(self, k: int, rows: slice) -> Array:
        return self.factors[k][rows, :]

    def _forward(self, X: Array) -> Array:
        return contracted(X, self.factors)

    def _adjoint(self, v: Array) -> Array:
        total = weighted_sum(v, [conj(F) for F in self.factors])
        return namespace(v).reshape(total, self.shape)

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        block = object.__new__(RankOneOperator)
        if isinstance(rows, slice):
            block._set([F[rows, :] for F in self.factors])
        else:
            index = like(rows, self.prototype)
            block._set([namespace(F).take(F, index, axis=0) for F in self.factors])
        return block

    def _spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        """Truncated adjoint of v with its largest entries clipped, whose rows would dominate.

        Products of vectors have heavy tails. |v| is clipped at its 90 % quantile. The adjoint is
        formed.
        """
        xp = namespace(v)
        sizes = xp.abs(v)
        limit = float(np.quantile(to_numpy(sizes), CLIP))
        factor = xp.where(sizes > limit, limit / xp.where(sizes > 0, sizes, 1.0), 1.0)
        return super()._spectral_start(v * xp.astype(factor, sizes.dtype), rank)

    def _row_norms(self) -> Array:
        xp = namespace(self.prototype)
        norms = like(np.ones(self.m), self.prototype, real_dtype(self.prototype))
        for F in self.factors:
            norms = norms * xp.linalg.vector_norm(F, axis=1)
        return norms


def rank_one(factors: Sequence[Any]) -> RankOneOperator:
    r"""Rank-one measurements: :math:`A_j = a_j^1 \circ \dots \circ a_j^d`.

    Parameters
    ----------
    factors : sequence of arrays, shapes (m, n_1), ..., (m, n_d)
        Row j of matrix k is :math:`a_j^k`. Nothing is conjugated.

    Notes
    -----
    Memory: m sum n_k numbers, where a dense matrix has m N. Measuring a TuckerTensor costs
    O(m sum n_k r_k), and so does a product with the tangent design; neither forms a full tensor.
    The start of a run does: it truncates the adjoint.

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> rng = np.random.default_rng(0)
    >>> A = lt.rank_one([rng.standard_normal((300, 15)) for _ in range(3)])
    >>> X_true = lt.random_tucker((15, 15, 15), (2, 2, 2), seed=0)
    >>> result = lt.recover(A, A.forward(X_true), rank=(2, 2, 2))
    >>> result.success, lt.metrics.relative_error(result.X, X_true) < 1e-5
    (True, True)
    """
    return RankOneOperator(factors)
