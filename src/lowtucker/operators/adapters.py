"""Adapters: SciPy and PyLops operators as measurement operators, and the reverse."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    as_array,
    as_float,
    as_shape,
    in_precision_of,
    is_complex,
    like,
    size,
    to_numpy,
)
from lowtucker._array.memory import check_full
from lowtucker.operators.base import MeasurementOperator, check_operator
from lowtucker.operators.dask import from_dask, is_dask
from lowtucker.operators.dense import DenseOperator
from lowtucker.operators.matrix import MatrixOperator, Order, check_order, columns_as_shape
from lowtucker.operators.sparse import SparseOperator, check_sparse_inside
from lowtucker.operators.stored import StoredOperator, is_stored

__all__ = [
    "LinearOperatorAdapter",
    "as_operator",
    "to_pylops",
    "to_scipy",
]

# Attribute of the output of `to_scipy` and `to_pylops`: the operator that was converted
ORIGINAL = "_lowtucker_operator"


class LinearOperatorAdapter(MatrixOperator):
    """Measurements by a SciPy or PyLops linear operator of shape (m, N).

    Anything with ``shape``, ``matvec`` and ``rmatvec`` works; ``rmatvec`` is called once, with
    zeros, to check that it exists. It cannot measure some rows alone, so blocks are slow; the first
    one warns.

    Parameters
    ----------
    operator : object with shape, matvec, rmatvec
        A PyLops operator that is not complex-linear (``clinear``), such as the Fourier transform
        of real numbers, measures real tensors.
    shape : tuple of int
    order : "C" or "F"
    """

    validate_output = True

    def __init__(self, operator: Any, shape: tuple[int, ...], *, order: Order = "C") -> None:
        if not all(hasattr(operator, name) for name in ("shape", "matvec", "rmatvec")):
            raise TypeError(
                "operator must have shape, matvec and rmatvec, as those of SciPy and PyLops do; "
                f"got {type(operator).__name__}. Try lowtucker.FunctionOperator."
            )
        check_sparse_inside(operator)
        self.operator = operator
        self.shape = columns_as_shape(operator.shape, shape)
        self.order = check_order(order)
        self.m = int(operator.shape[0])
        dtype = as_float(np.empty(0, getattr(operator, "dtype", None)), "operator").dtype
        self._complex_domain = dtype.kind == "c" and getattr(operator, "clinear", True)
        self.dtype = in_precision_of(dtype, None, is_complex=self._complex_domain)
        try:
            self._product("rmatvec", np.zeros(self.m, dtype), size(self.shape))
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
        items = [self._product(name, item, length) for item in x.reshape(-1, x.shape[-1])]
        return np.stack(items).reshape(*x.shape[:-1], length)

    def _product(self, name: str, x: Array, length: int) -> Array:
        """One product, whose length is checked: SciPy's own message names nothing."""
        of = f"{type(self.operator).__name__}.{name}"
        try:
            made = np.asarray(getattr(self.operator, name)(x))
        except ValueError as error:
            raise ValueError(
                f"{of} of a vector of length {len(x)} failed ({error}). It must return one of "
                f"length {length}: check its shape."
            ) from error
        if made.size != length:
            raise ValueError(
                f"{of} returned shape {made.shape}, expected ({length},). Check its shape."
            )
        return made.reshape(length)


def as_operator(
    A: Any, shape: tuple[int, ...] | None = None, *, order: Order = "C"
) -> MeasurementOperator:
    """Convert an array or a linear operator to a measurement operator.

    Parameters
    ----------
    A : MeasurementOperator, array, SciPy sparse matrix, SciPy or PyLops linear operator
        An array of shape (m, n_1, ..., n_d), or (m, N) with ``shape``; NumPy, torch, JAX or
        any other kind that follows the array API standard. Memory-mapped, HDF5 and Zarr arrays
        are read block by block (:func:`lowtucker.stored`); Dask arrays stay in their chunks
        (:func:`lowtucker.from_dask`).
    shape : tuple of int, optional
        Shape of the tensors; needed unless ``A`` determines it: an array of shape
        (m, n_1, ..., n_d), or a PyLops operator with several ``dims``.
    order : "C" or "F"
        How the rows of an (m, N) matrix were vectorised; "F" is MATLAB's way.

    See Also
    --------
    FunctionOperator : an operator from two functions.

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
                f"A is a {type(A).__name__}, whose order is already set: "
                'pass order="F" when you create the operator.'
            )
        if shape is not None and as_shape(shape) != A.shape:
            raise ValueError(
                f"shape={tuple(shape)} is not the shape of A's tensors, {A.shape}. Leave it out."
            )
        return A
    if all(hasattr(A, name) for name in ("tocsr", "shape", "dot")):
        return SparseOperator(A, _needed(shape, A), order=order)
    if all(hasattr(A, name) for name in ("matvec", "shape")):
        return _original(A, shape, order) or LinearOperatorAdapter(
            A, _needed(shape, A), order=order
        )
    if is_dask(A):
        return from_dask(A, shape, order=order)
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
            f"A must have one row per measurement, (m, N), got shape {tuple(A.shape)}. For one "
            "measurement try A[None]."
        )
    return DenseOperator(A, shape, order=order)


def to_scipy(A: MeasurementOperator) -> Any:
    r"""SciPy ``LinearOperator`` of shape (m, N) on row-major vectors.

    .. math:: x = \mathrm{vec}(\mathbf{X}) \mapsto \mathcal{A}(\mathbf{X}), \qquad
              v \mapsto \mathrm{vec}(\mathcal{A}^*(v))

    Arrays of other kinds are converted to and from NumPy in every product. Complex measurements of
    real tensors become real ones of shape (2 m, N): real parts above imaginary parts. A real
    operator is applied to complex vectors part by part.

    See Also
    --------
    as_operator : the reverse, which returns A itself.

    Examples
    --------
    >>> import numpy as np
    >>> to_scipy(as_operator(np.ones((2, 12)), shape=(3, 4))).shape
    (2, 12)
    """
    from scipy.sparse.linalg import LinearOperator

    if check_operator(A).batch_shape:
        raise ValueError("A must be one operator, got a batch. Convert each operator of the batch.")
    maps = _FlatMaps(A)
    made = LinearOperator(
        (maps.rows, size(A.shape)), dtype=maps.dtype,
        matvec=lambda x: maps.forward(x.reshape(-1)), matmat=lambda x: maps.forward(x.T).T,
        rmatvec=lambda v: maps.adjoint(v.reshape(-1)), rmatmat=lambda v: maps.adjoint(v.T).T,
    )  # fmt: skip
    if not maps.parts:
        setattr(made, ORIGINAL, A)
    return made


def to_pylops(A: MeasurementOperator) -> Any:
    """PyLops ``LinearOperator`` of shape (m, N), with ``dims=A.shape``.

    The same as :func:`to_scipy`, as a PyLops operator.

    See Also
    --------
    as_operator : the reverse, which returns A itself.

    Examples
    --------
    >>> import numpy as np
    >>> Op = to_pylops(as_operator(np.ones((2, 12)), shape=(3, 4)))
    >>> Op.dims, Op * np.ones((3, 4))
    ((3, 4), array([12., 12.]))
    """
    try:
        from pylops import LinearOperator
    except ImportError as error:
        raise ImportError(
            "to_pylops needs PyLops, which is not installed. Try: pip install pylops"
        ) from error

    flat = to_scipy(A)
    # measurements have one axis, with which PyLops cannot tell vectors from tensors: as its own
    # operators of that kind do, this one gives vectors
    made = LinearOperator(flat, dims=A.shape, forceflat=True, name=type(A).__name__)
    if hasattr(flat, ORIGINAL):
        setattr(made, ORIGINAL, A)
    return made


class _FlatMaps:
    """An operator on row-major NumPy vectors, with leading axes: (*batch, N) -> (*batch, rows)."""

    def __init__(self, A: MeasurementOperator) -> None:
        check_full(A.shape, np.dtype(float))
        probe = to_numpy(A.forward(like(np.zeros(A.shape), A.prototype)))
        domain = to_numpy(A.adjoint(like(probe, A.prototype)))
        self.A = A
        self.parts = is_complex(probe) and not is_complex(domain)
        self.rows = 2 * A.m if self.parts else A.m
        self.dtype = domain.dtype if self.parts else np.result_type(probe, domain)

    def forward(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Measure."""
        if self._by_parts(x):
            made: np.ndarray[Any, Any] = self.forward(x.real) + 1j * self.forward(x.imag)
            return made
        y = to_numpy(self.A.forward(self._moved(x.reshape(*x.shape[:-1], *self.A.shape))))
        return np.concatenate([y.real, y.imag], axis=-1) if self.parts else y

    def adjoint(self, v: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Apply the adjoint."""
        if self._by_parts(v):
            made: np.ndarray[Any, Any] = self.adjoint(v.real) + 1j * self.adjoint(v.imag)
            return made
        v = v[..., : self.A.m] + 1j * v[..., self.A.m :] if self.parts else v
        X = to_numpy(self.A.adjoint(self._moved(v)))
        return X.reshape(*v.shape[:-1], -1)

    def _by_parts(self, x: np.ndarray[Any, Any]) -> bool:
        return bool(np.iscomplexobj(x)) and self.dtype.kind != "c"

    def _moved(self, x: np.ndarray[Any, Any]) -> Array:
        return like(np.ascontiguousarray(x), self.A.prototype)  # torch has no negative steps


def _original(A: Any, shape: tuple[int, ...] | None, order: Order) -> MeasurementOperator | None:
    """Operator that `to_scipy` or `to_pylops` converted to A, if its shape is the same."""
    found: MeasurementOperator | None = getattr(A, ORIGINAL, None)
    same = found is not None and (shape is None or as_shape(shape) == found.shape)
    return found if same and order == "C" else None


def _needed(shape: tuple[int, ...] | None, A: Any) -> tuple[int, ...]:
    dims = tuple(getattr(A, "dims", ()))
    if shape is None and len(dims) > 1:  # of a PyLops operator that knows its tensors
        return dims
    if shape is None:
        raise ValueError(
            f"shape is needed to read {type(A).__name__} of shape {tuple(A.shape)} as measurements "
            f"of tensors. Try shape=(30, 30, 10), or shape=({A.shape[1]},) for vectors."
        )
    return shape
