"""Measurements by a sparse matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from lowtucker._array import Array, Rows, as_float, conj, is_complex, size
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.design import CHUNK, DenseDesign, TangentDesign
from lowtucker.operators.matrix import MatrixOperator, Order, check_order, columns_as_shape
from lowtucker.operators.traits import Traits
from lowtucker.tensor.tangent import TangentSpace

__all__ = ["SparseOperator", "check_sparse"]

# Share of stored elements above which products of arrays are faster than those of sparse matrices;
# measured on 15^3 to 30^3 tensors of rank 2 to 5: they break even between 5 and 10 %
DENSE = 0.06
# Elements of a row below which rows are more like sampled entries than like Gaussian rows
FEW = 30


class SparseOperator(MatrixOperator):
    """Measurements by a SciPy sparse matrix of shape (m, N).

    Parameters
    ----------
    matrix : SciPy sparse array or matrix
    shape : tuple of int
    order : "C" or "F"

    Notes
    -----
    Held in CSR form: ``forward``, ``adjoint`` and a block cost their stored elements; so does the
    tangent design, with a copy of them for each mode.

    Examples
    --------
    >>> import numpy as np, scipy.sparse
    >>> A = SparseOperator(scipy.sparse.eye_array(6), (2, 3))
    >>> A.forward(np.arange(6.0).reshape(2, 3))
    array([0., 1., 2., 3., 4., 5.])
    """

    traits = Traits(
        row_separable=True, has_fast_tangent=True, supports_batch=True, has_fast_row_norms=True
    )

    def __init__(self, matrix: Any, shape: tuple[int, ...], *, order: Order = "C") -> None:
        import scipy.sparse

        if not scipy.sparse.issparse(matrix):
            raise TypeError(
                f"matrix must be a SciPy sparse array, got {type(matrix).__name__}. "
                "Try lowtucker.as_operator(matrix, shape)."
            )
        shape = columns_as_shape(matrix.shape, shape)
        check_sparse(matrix)
        csr = scipy.sparse.csr_array(matrix)
        parts = (as_float(csr.data, "matrix"), csr.indices, csr.indptr)
        csr = scipy.sparse.csr_array(parts, shape=csr.shape)
        if not np.isfinite(csr.data).all():
            first = int(np.flatnonzero(~np.isfinite(csr.data))[0])
            row = int(np.searchsorted(csr.indptr, first, side="right")) - 1
            raise ValueError(
                f"matrix has NaN or infinite entries, the first in row {row}. Leave out those rows "
                "of A and of y."
            )
        self._set(csr, shape, check_order(order))
        if csr.nnz < self.m * min(FEW, size(shape) / 4):
            self.traits = replace(self.traits, isotropic=False)

    def _set(self, csr: Any, shape: tuple[int, ...], order: Order) -> None:
        self.matrix, self.shape, self.order = csr, shape, order
        self.m, self.dtype = int(csr.shape[0]), csr.dtype
        self._complex_domain = is_complex(csr.data)
        self._rows_of: tuple[SparseOperator, Rows] | None = None

    def _matvec(self, x: Array) -> Array:
        return (self.matrix @ x.reshape(-1, x.shape[-1]).T).T.reshape(*x.shape[:-1], self.m)

    def _rmatvec(self, v: Array) -> Array:
        flat = v.reshape(-1, v.shape[-1]).T
        out = (self.matrix.T @ flat.conj()).conj().T
        return out.reshape(*v.shape[:-1], self.matrix.shape[1])

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        other = object.__new__(SparseOperator)
        other._set(self.matrix[rows], self.shape, self.order)
        other._rows_of, other.traits = (self, rows), self.traits
        return other

    @property
    def stored_elements(self) -> int:
        """Elements that are stored."""
        return int(self.matrix.nnz)

    @cached_property
    def unfoldings(self) -> list[Any]:
        """Unfoldings of the rows, one below the other: for mode k (m n_k, N / n_k), in CSR form.

        Computed once; those of a block are rows of these.
        """
        if self._rows_of is not None:
            whole, rows = self._rows_of
            index = np.arange(whole.m)[rows][:, None]
            pairs = zip(whole.unfoldings, self.shape, strict=True)
            return [M[(index * n + np.arange(n)).reshape(-1)] for M, n in pairs]
        return [_unfolded(self.matrix, self.shape, self.order, k) for k in range(len(self.shape))]

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        many = self.matrix.nnz > DENSE * self.m * size(self.shape)
        return FilledDesign(self, T) if many else SparseDesign(self, T)

    def _row_norms(self) -> Array:
        return np.sqrt(np.asarray((abs(self.matrix) ** 2).sum(axis=1)).ravel())


class FilledDesign(DenseDesign):
    """Tangent design of a matrix that is sparse by name: tile by tile as an array."""

    def _tile(self, rows: slice) -> Array:
        A: Any = self.A
        return A.matrix[rows].toarray()


class SparseDesign(TangentDesign):
    r"""Tangent design of a sparse matrix, from the unfoldings of its rows.

    With :math:`M_k` the unfolding of a row, arm k of it is
    :math:`U_{k\perp}^T M_k (\bigotimes_{i \ne k} U_i) \bar V_k`, and the core part
    :math:`U_1^T M_1 \bigotimes_{i > 1} U_i`. Cost of D: products of the stored elements with
    :math:`\sum r_k + \prod_{k>1} r_k` columns, and O(m dof).
    """

    A: SparseOperator

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D in chunks of rows."""
        T, (first, *others) = self.T, self._right
        for start in range(0, self.A.m, CHUNK):
            rows = slice(start, min(start + CHUNK, self.A.m))
            wide = self._times(0, first, rows)
            core = T.X.factors[0].T @ wide
            arms = [wide @ conj(T.rows[0])]
            arms += [self._times(k, right, rows) for k, right in enumerate(others, 1)]
            pairs = zip(T.complements, arms, strict=True)
            parts = [core, *(conj(complement.coordinates(conj(arm))) for complement, arm in pairs)]
            yield rows, np.concatenate([part.reshape(len(wide), -1) for part in parts], axis=1)

    @cached_property
    def _right(self) -> list[Array]:
        """Products of all factors but one: of mode 1 as they are, of the others with V_k."""
        products, factors = [], self.T.X.factors
        for k, V in enumerate(self.T.rows):
            K = np.ones((1, 1), dtype=V.dtype)
            for U in (*factors[:k], *factors[k + 1 :]):
                K = np.kron(K, U)
            products.append(K @ conj(V) if k else K)
        return products

    def _times(self, k: int, right: Array, rows: slice) -> Array:
        """Unfoldings of some rows in mode k times a matrix: (t, n_k, columns)."""
        n = self.A.shape[k]
        product = self.A.unfoldings[k][rows.start * n : rows.stop * n] @ right
        return np.asarray(product).reshape(-1, n, right.shape[1])


def _unfolded(matrix: Any, shape: tuple[int, ...], order: Order, k: int) -> Any:
    """Unfoldings in mode k of the rows of a sparse matrix, one below the other."""
    import scipy.sparse

    given = matrix.tocoo()
    row, column = given.coords
    index = np.unravel_index(column, shape, order=order)
    others = [j for j in range(len(shape)) if j != k]
    rest = np.zeros(len(column), dtype=np.int64)
    for j in others:
        rest = rest * shape[j] + index[j]
    place = (row.astype(np.int64) * shape[k] + index[k], rest)
    sizes = (matrix.shape[0] * shape[k], size(shape) // shape[k])
    return scipy.sparse.csr_array((given.data, place), shape=sizes)


def check_sparse(matrix: Any) -> None:
    """Refuse a sparse matrix with indices out of bounds: SciPy's C code does not check them."""
    rows, columns = matrix.shape
    if matrix.format in ("csr", "csc", "bsr"):
        high, wide = matrix.blocksize if matrix.format == "bsr" else (1, 1)
        slots, bound = rows // high, columns // wide
        if matrix.format == "csc":
            slots, bound = columns, rows
        starts, used = matrix.indptr, min(len(matrix.indices), len(matrix.data))
        fine = len(starts) == slots + 1 and starts[0] == 0 and starts[-1] <= used
        fine = fine and bool(np.all(starts[1:] >= starts[:-1]))
        fine = fine and _within(matrix.indices[: starts[-1]], bound)
    elif matrix.format == "coo":
        fine = all(_within(index, n) for index, n in zip(matrix.coords, matrix.shape, strict=True))
    elif matrix.format == "lil":
        fine = all(_within(np.asarray(row, dtype=np.int64), columns) for row in matrix.rows)
    else:  # DIA and DOK keep no such arrays
        fine = True
    if not fine:
        raise ValueError(
            f"matrix of shape {matrix.shape} has indices that do not fit its shape, or pointers "
            f"that do not fit its {matrix.format.upper()} form. Build it again, for instance with "
            "scipy.sparse.coo_array((values, (rows, columns)), shape), which checks them."
        )


def _within(index: Any, bound: int) -> bool:
    """Whether all indices are in 0, ..., bound - 1."""
    return index.size == 0 or (int(index.min()) >= 0 and int(index.max()) < bound)
