"""Operators y = A vec(X): rows are vectorised sensing tensors."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

from lowtucker._array import Array, as_shape, is_complex, namespace, real, size
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.traits import Traits

__all__ = ["MatrixOperator", "Order", "check_order", "columns_as_shape", "shape_of_rows"]

Order = Literal["C", "F"]


class MatrixOperator(MeasurementOperator):
    r"""Base of the operators :math:`y = \mathbf{A}\,\mathrm{vec}(\mathbf{X})`, section 4.

    ``order`` is how the rows were vectorised: "C" is row-major, "F" column-major (MATLAB).
    Column-major rows are not rearranged: the tensor, which is small, is transposed instead.
    """

    traits = Traits(supports_batch=True)
    order: Order = "C"
    # Whether it measures complex tensors; if not, the adjoint is the real part.
    _complex_domain: bool = False

    @abstractmethod
    def _matvec(self, x: Array) -> Array:
        """Multiply: (*batch, N) -> (*batch, m)."""

    @abstractmethod
    def _rmatvec(self, v: Array) -> Array:
        """Multiply by the conjugate transpose: (*batch, m) -> (*batch, N)."""

    def _forward(self, X: Array) -> Array:
        return self._matvec(self._vec(X))

    def _adjoint(self, v: Array) -> Array:
        out = self._rmatvec(v)
        return self._unvec(out if self._complex_domain else real(out))

    def _vec(self, X: Array) -> Array:
        if is_complex(X) and not self._complex_domain:
            raise TypeError(
                "X is complex, but the operator measures real tensors. Create it from a complex "
                "matrix, or try DenseOperator(matrix, shape, dtype=complex)."
            )
        xp = namespace(X)
        batch = X.shape[: X.ndim - len(self.shape)]
        return xp.reshape(self._reversed(X), (*batch, size(self.shape)))

    def _unvec(self, x: Array) -> Array:
        xp = namespace(x)
        shape = self.shape if self.order == "C" else self.shape[::-1]
        return self._reversed(xp.reshape(x, (*x.shape[:-1], *shape)))

    def _reversed(self, X: Array) -> Array:
        if self.order == "C":
            return X
        batch_ndim = X.ndim - len(self.shape)
        axes = (*range(batch_ndim), *range(X.ndim - 1, batch_ndim - 1, -1))
        return namespace(X).permute_dims(X, axes)


def shape_of_rows(
    given: tuple[int, ...], shape: tuple[int, ...] | None, name: str
) -> tuple[int, ...]:
    """Shape of the tensors that the rows of an array, (m, N) or (m, n_1, ..., n_d), measure."""
    if shape is None:
        if len(given) == 2:
            raise ValueError(
                f"shape is needed to read rows of {given[1]} numbers as tensors. "
                "Try shape=(30, 30, 10)."
            )
        shape = given[1:]
    shape = as_shape(shape)
    if given[0] < 1 or given[1:] not in ((size(shape),), shape):
        raise ValueError(
            f"{name} has the shape {given}, expected (m, {size(shape)}) or "
            f"(m, {', '.join(map(str, shape))}) for tensors of shape {shape}. Check shape, or "
            f"transpose {name}."
        )
    return shape


def columns_as_shape(given: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Check the shape of the tensors that the rows of a matrix of a given shape measure."""
    shape = as_shape(shape)
    if len(given) != 2 or given[1] != size(shape) or given[0] < 1:
        raise ValueError(
            f"A has shape {tuple(given)}, expected (m, {size(shape)}) for tensors of shape "
            f"{shape}, with at least one row. Check shape, or transpose A."
        )
    return shape


def check_order(order: Any) -> Order:
    """Check the order in which rows were vectorised."""
    is_word = order is None or isinstance(order, str)
    if not is_word or order not in ("C", "F"):
        raise (ValueError if is_word else TypeError)(
            f'order must be "C" (row-major) or "F" (column-major, MATLAB), got {order!r:.80}.'
        )
    return "C" if order == "C" else "F"
