"""Other people's operators as ours, and ours as SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker._arrays import (
    Array,
    Rows,
    as_array,
    as_float,
    as_shape,
    is_complex,
    like,
    size,
    to_numpy,
)
from lowtucker.operators.arguments import refuse_rows_of_trials
from lowtucker.operators.base import MeasurementOperator, check_operator
from lowtucker.operators.dense import DenseOperator
from lowtucker.operators.matrix import MatrixOperator, Order, check_order
from lowtucker.operators.stored import StoredOperator, is_stored

__all__ = ["LinearOperatorAdapter", "SparseOperator", "as_operator", "to_scipy"]


class SparseOperator(MatrixOperator):
    """Measurements by a SciPy sparse matrix of shape (m, N).

    Parameters
    ----------
    matrix : SciPy sparse array or matrix
    shape : tuple of int
    order : "C" or "F"

    Notes
    -----
    Held in CSR form: ``forward``, ``adjoint`` and a block cost their stored elements.

    Examples
    --------
    >>> import numpy as np, scipy.sparse
    >>> A = SparseOperator(scipy.sparse.eye_array(6), (2, 3))
    >>> A.forward(np.arange(6.0).reshape(2, 3))
    array([0., 1., 2., 3., 4., 5.])
    """

    def __init__(self, matrix: Any, shape: tuple[int, ...], *, order: Order = "C") -> None:
        import scipy.sparse

        if not scipy.sparse.issparse(matrix):
            raise TypeError(
                f"matrix must be a SciPy sparse array, got {type(matrix).__name__}. "
                "Try lowtucker.as_operator(matrix, shape)."
            )
        shape = _columns_as_shape(matrix.shape, shape)
        csr = scipy.sparse.csr_array(matrix)
        parts = (as_float(csr.data, "matrix"), csr.indices, csr.indptr)
        csr = scipy.sparse.csr_array(parts, shape=csr.shape)
        if not np.isfinite(csr.data).all():
            first = int(np.flatnonzero(~np.isfinite(csr.data))[0])
            row = int(np.searchsorted(csr.indptr, first, side="right")) - 1
            raise ValueError(
                f"matrix has NaN or infinite entries, the first in row {row}. Leave out those rows "
                "of A, and of y."
            )
        self._set(csr, shape, check_order(order))

    def _set(self, csr: Any, shape: tuple[int, ...], order: Order) -> None:
        self.matrix, self.shape, self.order = csr, shape, order
        self.m, self.dtype = int(csr.shape[0]), csr.dtype
        self._complex_domain = is_complex(csr.data)

    def _matvec(self, x: Array) -> Array:
        return (self.matrix @ x.reshape(-1, x.shape[-1]).T).T.reshape(*x.shape[:-1], self.m)

    def _rmatvec(self, v: Array) -> Array:
        flat = v.reshape(-1, v.shape[-1]).T
        out = (self.matrix.T @ flat.conj()).conj().T
        return out.reshape(*v.shape[:-1], self.matrix.shape[1])

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        refuse_rows_of_trials(rows, self)
        other = object.__new__(SparseOperator)
        other._set(self.matrix[rows], self.shape, self.order)
        return other

    def _row_norms(self) -> Array:
        return np.sqrt(np.asarray((abs(self.matrix) ** 2).sum(axis=1)).ravel())


class LinearOperatorAdapter(MatrixOperator):
    """Measurements by a SciPy or PyLops linear operator of shape (m, N).

    Anything with ``shape``, ``matvec`` and ``rmatvec`` will do; ``rmatvec`` is called once, with
    zeros, to see that it is there. It cannot measure some rows
    alone, so blocks are slow; a warning says so once.

    Parameters
    ----------
    operator : object with shape, matvec, rmatvec
    shape : tuple of int
    order : "C" or "F"
    """

    foreign = True

    def __init__(self, operator: Any, shape: tuple[int, ...], *, order: Order = "C") -> None:
        if not all(hasattr(operator, name) for name in ("shape", "matvec", "rmatvec")):
            raise TypeError(
                "operator must have shape, matvec and rmatvec, as those of SciPy and PyLops do; "
                f"got {type(operator).__name__}. Try lowtucker.FunctionOperator."
            )
        self.operator = operator
        self.shape = _columns_as_shape(operator.shape, shape)
        self.order = check_order(order)
        self.m = int(operator.shape[0])
        dtype = getattr(operator, "dtype", None)
        self.dtype = as_float(np.empty(0, dtype), "operator").dtype
        self._complex_domain = self.dtype.kind == "c"
        try:
            operator.rmatvec(np.zeros(self.m, self.dtype))
        except NotImplementedError as error:
            raise ValueError(
                f"{type(operator).__name__} has no rmatvec, the adjoint, which every solver needs. "
                "Define it, or try lowtucker.FunctionOperator(forward, adjoint, shape, m)."
            ) from error

    def _matvec(self, x: Array) -> Array:
        return self._each("matvec", x, self.m)

    def _rmatvec(self, v: Array) -> Array:
        return self._each("rmatvec", v, size(self.shape))

    def _each(self, name: str, x: Array, length: int) -> Array:
        product = getattr(self.operator, name)
        items = [np.asarray(product(item)) for item in x.reshape(-1, x.shape[-1])]
        for item in items:
            if item.size != length:
                raise ValueError(
                    f"{type(self.operator).__name__}.{name} returned shape {item.shape}, expected "
                    f"({length},). Check its shape."
                )
        return np.stack([item.reshape(length) for item in items]).reshape(*x.shape[:-1], length)


def as_operator(
    A: Any, shape: tuple[int, ...] | None = None, *, order: Order = "C"
) -> MeasurementOperator:
    """Make a measurement operator of whatever describes one.

    Parameters
    ----------
    A : MeasurementOperator, array, SciPy sparse matrix, SciPy or PyLops linear operator
        An array of shape (m, n_1, ..., n_d), or (m, N) with ``shape``; NumPy, torch, JAX or
        any other kind that follows the array API standard. Memory-mapped, HDF5 and Zarr arrays
        are read block by block (:func:`lowtucker.stored`).
    shape : tuple of int, optional
        Shape of the tensors; needed unless ``A`` tells.
    order : "C" or "F"
        How the rows of an (m, N) matrix were vectorised; "F" is MATLAB's way.

    See Also
    --------
    FunctionOperator : makes one of two functions.

    Examples
    --------
    >>> import numpy as np
    >>> as_operator(np.ones((2, 12)), shape=(3, 4))
    DenseOperator: 2 measurements of tensors of shape (3, 4) (0.17 per entry)
    """
    order = check_order(order)
    if isinstance(A, MeasurementOperator):
        if order == "F":
            raise ValueError(
                f"A is a {type(A).__name__}, which knows how its rows were vectorised: "
                'give order="F" when the operator is made.'
            )
        if shape is not None and as_shape(shape) != A.shape:
            raise ValueError(
                f"shape={tuple(shape)} is not the shape of A's tensors, {A.shape}. Leave it out."
            )
        return A
    if all(hasattr(A, name) for name in ("tocsr", "shape", "dot")):
        return SparseOperator(A, _needed(shape, A), order=order)
    if all(hasattr(A, name) for name in ("matvec", "shape")):
        return LinearOperatorAdapter(A, _needed(shape, A), order=order)
    if is_stored(A):
        return StoredOperator(A, shape, order=order)
    if isinstance(A, str | bytes) or hasattr(A, "__fspath__"):
        raise TypeError(
            f"A must be an operator or an array, got the path {A!r}. "
            "Try lowtucker.io.load_operator(path, shape), or lowtucker.stored(path, shape) for a "
            "file that is too large for the memory."
        )
    if callable(A) or (isinstance(A, tuple | list) and any(map(callable, A))):
        raise TypeError(
            "A must be an operator or an array, got a function. "
            "Try lowtucker.FunctionOperator(forward, adjoint, shape, m)."
        )
    A = as_array(A, "A")
    if A.ndim < 2:
        raise ValueError(
            f"A must have one row a measurement, (m, N), got shape {tuple(A.shape)}. For one "
            "measurement try A[None]."
        )
    return DenseOperator(A, shape, order=order)


def to_scipy(A: MeasurementOperator) -> Any:
    """SciPy ``LinearOperator`` of shape (m, N) on row-major vectors.

    Arrays of other kinds are moved to and from NumPy at every product. Complex measurements of
    real tensors are given as real ones of shape (2 m, N): real parts above imaginary parts.

    Examples
    --------
    >>> import numpy as np
    >>> to_scipy(as_operator(np.ones((2, 12)), shape=(3, 4))).shape
    (2, 12)
    """
    from scipy.sparse.linalg import LinearOperator

    if check_operator(A).batch_shape:
        raise ValueError(
            "A must be one operator, got a stack of trials. Make a SciPy operator for each."
        )
    probe = to_numpy(A.forward(like(np.zeros(A.shape), A.prototype)))
    domain = to_numpy(A.adjoint(like(probe, A.prototype)))
    parts = is_complex(probe) and not is_complex(domain)

    def matvec(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        y = to_numpy(A.forward(like(x.reshape(A.shape), A.prototype)))
        return np.concatenate([y.real, y.imag]) if parts else y

    def rmatvec(v: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        v = v.reshape(-1)
        v = v[: A.m] + 1j * v[A.m :] if parts else v
        return to_numpy(A.adjoint(like(v, A.prototype))).reshape(-1)

    rows, dtype = (2 * A.m, domain.dtype) if parts else (A.m, np.result_type(probe, domain))
    return LinearOperator((rows, size(A.shape)), matvec=matvec, rmatvec=rmatvec, dtype=dtype)


def _columns_as_shape(given: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    shape = as_shape(shape)
    if len(given) != 2 or given[1] != size(shape) or given[0] < 1:
        raise ValueError(
            f"A has shape {tuple(given)}, expected (m, {size(shape)}) for tensors of shape "
            f"{shape}, with at least one row. Check shape, or transpose A."
        )
    return shape


def _needed(shape: tuple[int, ...] | None, A: Any) -> tuple[int, ...]:
    if shape is None:
        raise ValueError(
            f"shape is needed to read {type(A).__name__} of shape {tuple(A.shape)} as measurements "
            f"of tensors. Try shape=(30, 30, 10), or shape=({A.shape[1]},) for vectors."
        )
    return shape
