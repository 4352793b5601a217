"""An operator from two functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowtucker._array import Array, as_float_dtype, as_integer, as_shape, is_array
from lowtucker.operators.base import MeasurementOperator

__all__ = ["FunctionOperator"]


class FunctionOperator(MeasurementOperator):
    """Measurements by two callables.

    Parameters
    ----------
    forward : callable
        One tensor of ``shape`` to an array of shape (m,).
    adjoint : callable
        An array of shape (m,) to one tensor of ``shape``. :func:`lowtucker.check_adjoint` tests
        that it is the adjoint of ``forward``.
    shape : tuple of int
    m : int
    dtype : dtype, optional
        Dtype of the tensors, if it is not float64.
    prototype : array, optional
        Any array of the kind and on the device that the callables work with; NumPy by default.

    Examples
    --------
    >>> import numpy as np
    >>> sums = FunctionOperator(
    ...     lambda X: X.sum(axis=0), lambda v: np.tile(v, (3, 1)), shape=(3, 4), m=4
    ... )
    >>> sums.forward(np.ones((3, 4)))
    array([3., 3., 3., 3.])
    """

    validate_output = True

    def __init__(
        self,
        forward: Callable[[Array], Array],
        adjoint: Callable[[Array], Array],
        shape: tuple[int, ...],
        m: int,
        *,
        dtype: Any = None,
        prototype: Array | None = None,
    ) -> None:
        for name, function in (("forward", forward), ("adjoint", adjoint)):
            if not callable(function):
                raise TypeError(
                    f"{name} must be callable, got {type(function).__name__}. For an array try "
                    "lowtucker.as_operator(A, shape)."
                )
        self._forward_function, self._adjoint_function = forward, adjoint
        self.shape, self.m = as_shape(shape), as_integer(m, "m")
        if prototype is not None and not is_array(prototype):
            raise TypeError(
                f"prototype must be an array, got {type(prototype).__name__}. For NumPy leave it "
                "out."
            )
        self.prototype = prototype
        self.dtype = None if dtype is None else as_float_dtype(dtype, prototype)

    def _forward(self, X: Array) -> Array:
        return self._forward_function(X)

    def _adjoint(self, v: Array) -> Array:
        return self._adjoint_function(v)
