"""Measurements by a sparse matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from lowtucker._array import Array, Rows, as_float, conj, is_complex, size
from lowtucker._array.memory import check_room
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.design import CHUNK, DenseDesign, TangentDesign
from lowtucker.operators.matrix import MatrixOperator, Order, check_order, columns_as_shape
from lowtucker.operators.traits import Traits
from lowtucker.tensor.tangent import TangentSpace

__all__ = ["SparseOperator", "check_sparse", "check_sparse_inside", "is_scipy_sparse"]

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
        check_sparse(matrix)
        shape = columns_as_shape(matrix.shape, shape)
        if matrix.format != "csr":
            what = f"matrix of shape {matrix.shape}, as CSR,"
            check_room(16 * (matrix.shape[0] + int(matrix.nnz)), what, "Leave out empty rows.")
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


def check_sparse(matrix: Any, name: str = "matrix") -> None:
    """Refuse a sparse matrix whose parts do not fit each other: SciPy's C code does not check.

    An index out of range there reads or writes memory of others. Cost: one pass over the indices.
    """
    if len(matrix.shape) != 2:
        raise ValueError(f"{name} has {len(matrix.shape)} axes, expected 2. Reshape it.")
    try:
        fine = _FITS[matrix.format](matrix)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):  # not even arrays
        fine = False
    if not fine:
        raise ValueError(
            f"{name} of shape {matrix.shape} has indices that do not fit its shape, or pointers "
            f"that do not fit its {matrix.format.upper()} form. Build it again, for instance with "
            "scipy.sparse.coo_array((values, (rows, columns)), shape), which checks them."
        )


def is_scipy_sparse(matrix: Any) -> bool:
    """Whether this is a sparse matrix of SciPy, which is imported only for what looks like one."""
    if not hasattr(matrix, "tocsr"):
        return False
    import scipy.sparse

    return bool(scipy.sparse.issparse(matrix))


def check_sparse_inside(operator: Any) -> None:
    """Refuse a linear operator that is made of such a matrix, at whatever depth.

    SciPy and PyLops keep the parts of sums, products and stacks in attributes of many names.
    """
    seen, waiting = {id(operator)}, [operator]
    while waiting:
        for part in _parts(waiting.pop()):
            if id(part) in seen:
                continue
            seen.add(id(part))
            if is_scipy_sparse(part):
                check_sparse(part, "the sparse matrix of A")
            elif isinstance(part, list | tuple | dict) or hasattr(part, "matvec"):
                waiting.append(part)


def _parts(whole: Any) -> list[Any]:
    """What an operator or a list of operators is made of."""
    if isinstance(whole, list | tuple):
        return list(whole)
    return list((whole if isinstance(whole, dict) else getattr(whole, "__dict__", {})).values())


def _compressed_fits(matrix: Any) -> bool:
    """Whether pointers increase within what is stored, and indices are within the shape."""
    high, wide = matrix.blocksize if matrix.format == "bsr" else (1, 1)
    slots, bound = matrix.shape[0] // high, matrix.shape[1] // wide
    if matrix.format == "csc":
        bound, slots = matrix.shape
    starts, index, data = matrix.indptr, matrix.indices, matrix.data
    if not (_are_indices(starts) and _are_indices(index) and len(starts) == slots + 1):
        return False
    used, axes = int(starts[-1]), 3 if matrix.format == "bsr" else 1
    return (
        data.ndim == axes
        and starts[0] == 0
        and used <= min(len(index), len(data))
        and bool(np.all(starts[1:] >= starts[:-1]))
        and _within(index[:used], bound)
    )


def _coo_fits(matrix: Any) -> bool:
    return matrix.data.ndim == 1 and all(
        _are_indices(index) and len(index) == len(matrix.data) and _within(index, n)
        for index, n in zip(matrix.coords, matrix.shape, strict=True)
    )


def _lil_fits(matrix: Any) -> bool:
    rows, columns = matrix.shape
    return len(matrix.rows) == len(matrix.data) == rows and all(
        len(index) == len(values) and _within(np.asarray(index, dtype=np.int64), columns)
        for index, values in zip(matrix.rows, matrix.data, strict=True)
    )


def _dia_fits(matrix: Any) -> bool:
    return (
        matrix.data.ndim == 2
        and _are_indices(matrix.offsets)
        and len(matrix.offsets) == len(matrix.data)
        and len(np.unique(matrix.offsets)) == len(matrix.offsets)
    )


def _dok_fits(matrix: Any) -> bool:
    return all(
        len(key) == 2 and all(0 <= i < n for i, n in zip(key, matrix.shape, strict=True))
        for key in matrix.keys()  # noqa: SIM118 - a DOK array iterates over its rows
    )


_FITS = {
    "csr": _compressed_fits,
    "csc": _compressed_fits,
    "bsr": _compressed_fits,
    "coo": _coo_fits,
    "lil": _lil_fits,
    "dia": _dia_fits,
    "dok": _dok_fits,
}


def _are_indices(index: Any) -> bool:
    """Whether this is a vector of whole numbers."""
    return isinstance(index, np.ndarray) and index.ndim == 1 and index.dtype.kind in "iu"


def _within(index: Any, bound: int) -> bool:
    """Whether all indices are in 0, ..., bound - 1."""
    return index.size == 0 or (int(index.min()) >= 0 and int(index.max()) < bound)
