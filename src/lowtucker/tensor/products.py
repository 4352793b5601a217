"""Mode products, inner product and norm (section 2 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    adjoint,
    as_flag,
    as_float,
    as_float_on,
    as_integer,
    as_tensor,
    conj,
    eps,
    namespace,
    reshaped,
    size,
    transposed,
)

__all__ = ["exponent", "inner", "mode_product", "multi_mode_product", "norm", "shifted"]


def mode_product(X: Array, U: Array, mode: int, *, batch_ndim: int | None = None) -> Array:
    r"""Mode-k product :math:`\mathbf{X} \times_k \mathbf{U}`: multiply every mode-k fibre by U.

    :math:`(\mathbf{X} \times_k \mathbf{U})^{\{k\}} = \mathbf{U} \mathbf{X}^{\{k\}}`.

    Parameters
    ----------
    X : array, shape (*batch, n_1, ..., n_d)
    U : array, shape (*batch, r, n_k) or (r, n_k)
    mode : int
        k, from 0 to d - 1.
    batch_ndim : int, optional
        Number of leading batch axes of ``X``; by default that of ``U``.

    Returns
    -------
    array, shape (*batch, n_1, ..., r, ..., n_d)

    Notes
    -----
    Cost: 2 r N flops, no copy of ``X``.

    Examples
    --------
    >>> import numpy as np
    >>> mode_product(np.ones((2, 3, 4)), np.ones((5, 3)), 1).shape
    (2, 5, 4)
    """
    X = as_float(as_tensor(X, "X"), "X")
    U = _as_matrix(U, "U", X)
    batch_ndim = U.ndim - 2 if batch_ndim is None else batch_ndim
    batch_ndim = as_integer(batch_ndim, "batch_ndim", 0, X.ndim - 1)
    mode = as_integer(mode, "mode", 0, X.ndim - batch_ndim - 1)
    _check_fit(U, "U", X, mode, batch_ndim)
    return product(X, U, mode, batch_ndim)


def _as_matrix(U: Any, name: str, X: Array) -> Array:
    """Check a matrix, or a batch of matrices, of the array kind of X."""
    U = as_float_on(U, X, name, "X")
    if U.ndim < 2:
        raise ValueError(f"{name} must be a matrix of shape (r, n_k), got shape {tuple(U.shape)}.")
    return U


def _check_fit(U: Array, name: str, X: Array, mode: int, batch_ndim: int) -> None:
    """Check a matrix against the mode of X that it multiplies."""
    n = X.shape[batch_ndim + mode]
    if U.shape[-1] != n:
        raise ValueError(
            f"{name} has {U.shape[-1]} columns, but mode {mode} of X (shape {tuple(X.shape)}) has "
            f"{n} entries. Did you mean the transpose of {name}?"
        )
    batch = tuple(X.shape[:batch_ndim])
    if tuple(U.shape[:-2]) not in {(), batch}:
        raise ValueError(
            f"{name} must be one matrix, or one per problem of X (leading axes {batch}), got "
            f"shape {tuple(U.shape)}."
        )


def product(X: Array, U: Array, mode: int, batch_ndim: int) -> Array:
    """Compute :func:`mode_product` without checking the arguments."""
    xp = namespace(X, U)
    axis = batch_ndim + mode
    batch, left = X.shape[:batch_ndim], X.shape[batch_ndim:axis]
    n, right = X.shape[axis], X.shape[axis + 1 :]
    if not right:  # the last mode: one matrix product with all other modes merged
        lead = (size((*batch, *left)),) if U.ndim == 2 else (*batch, size(left))
        out = xp.matmul(reshaped(X, (*lead, n)), transposed(U))
        out = reshaped(out, (*batch, size(left), U.shape[-2])) if U.ndim == 2 else out
    else:
        flat = reshaped(X, (*batch, size(left), n, size(right)))
        out = xp.matmul(U[..., None, :, :], flat)
    return reshaped(out, (*out.shape[:batch_ndim], *left, U.shape[-2], *right))


def multi_mode_product(
    X: Array, matrices: Sequence[Array | None], *, transpose: bool = False
) -> Array:
    r"""Product with a matrix in every mode, :math:`\mathbf{X} \times_1 U_1 \cdots \times_d U_d`.

    Parameters
    ----------
    X : array, shape (*batch, n_1, ..., n_d)
        d is the number of ``matrices``; leading axes beyond it are batch axes.
    matrices : sequence of d arrays, shape (*batch, r_k, n_k) or (r_k, n_k); None skips a mode
    transpose : bool
        Multiply by the conjugate transposes of matrices of shape (*batch, n_k, r_k).

    Notes
    -----
    The modes are processed in the order that reduces the tensor fastest.

    Examples
    --------
    >>> import numpy as np
    >>> multi_mode_product(np.ones((2, 3, 4)), [np.ones((5, 2)), None, np.ones((1, 4))]).shape
    (5, 3, 1)
    """
    X = as_float(as_tensor(X, "X"), "X")
    as_flag(transpose, "transpose")
    try:
        matrices = list(matrices)
    except TypeError:
        raise TypeError(
            f"matrices must be a list with one matrix per mode, got {type(matrices).__name__}."
        ) from None
    if not 1 <= len(matrices) <= X.ndim:
        raise ValueError(
            f"matrices must have one entry for each mode of X (None to skip a mode): got "
            f"{len(matrices)} for X of shape {tuple(X.shape)}."
        )
    batch_ndim = X.ndim - len(matrices)
    given = []
    for k, U in enumerate(matrices):
        if U is not None:
            U = _as_matrix(U, f"matrices[{k}]", X)
            given.append((k, adjoint(U) if transpose else U))
            _check_fit(given[-1][1], f"matrices[{k}]", X, k, batch_ndim)
    for k, U in sorted(given, key=lambda item: item[1].shape[-2] / max(1, item[1].shape[-1])):
        X = product(X, U, k, batch_ndim)
    return X


def inner(X: Array, Y: Array, *, batch_ndim: int = 0) -> Array:
    r"""Inner product :math:`\langle X, Y \rangle = \mathrm{vec}(Y)^* \mathrm{vec}(X)`.

    Returns
    -------
    array, shape (*batch,)

    Examples
    --------
    >>> import numpy as np
    >>> float(inner(np.arange(3.0), np.ones(3)))
    3.0
    """
    X = as_float(X, "X")
    Y = as_float_on(Y, X, "Y", "X")
    if X.shape != Y.shape:
        raise ValueError(
            f"inner expects two tensors of the same shape, got {tuple(X.shape)} and "
            f"{tuple(Y.shape)}."
        )
    axes = tuple(range(as_integer(batch_ndim, "batch_ndim", 0, X.ndim), X.ndim))
    return namespace(X, Y).sum(X * conj(Y), axis=axes)


def norm(X: Array, *, batch_ndim: int = 0) -> Array:
    r"""Frobenius norm :math:`\|X\|_F = \sqrt{\langle X, X \rangle}`, safe from overflow.

    Returns
    -------
    array, shape (*batch,), real

    Examples
    --------
    >>> import numpy as np
    >>> float(norm(np.array([[3.0, 0.0], [0.0, 4.0]])))
    5.0
    """
    X = as_float(X, "X")
    xp = namespace(X)
    axes = tuple(range(as_integer(batch_ndim, "batch_ndim", 0, X.ndim), X.ndim))
    if isinstance(X, np.ndarray) and axes and X.size:
        return _numpy_norm(X, axes)
    modulus = xp.abs(X)
    if not axes or not size(X.shape):
        return xp.sum(modulus, axis=axes) if axes else modulus
    # scaled by the largest element, so that squares neither overflow nor underflow
    largest = xp.max(modulus, axis=axes, keepdims=True)
    scale = xp.where((largest > 0) & xp.isfinite(largest), largest, xp.ones_like(largest))
    squares = xp.sum((modulus / scale) ** 2, axis=axes)
    return xp.reshape(scale, squares.shape) * xp.sqrt(squares)


def _numpy_norm(X: np.ndarray[Any, Any], axes: tuple[int, ...]) -> Any:
    """Compute :func:`norm` as below, with fewer calls and arrays: solvers need it all the time."""
    modulus = np.abs(X)
    largest = np.maximum.reduce(modulus, axis=axes, keepdims=True)
    if largest.size == 1:
        if not 0 < largest.item() < math.inf:
            largest = np.ones_like(largest)
    else:
        largest = np.where((largest > 0) & np.isfinite(largest), largest, np.ones_like(largest))
    modulus /= largest
    modulus *= modulus
    squares = np.add.reduce(modulus, axis=axes)
    return largest.reshape(squares.shape) * np.sqrt(squares)


def exponent(number: Any) -> int:
    """Return the exponent e of a positive number in [2^(e-1), 2^e); 0 for zero, inf and NaN.

    Examples
    --------
    >>> exponent(1.0), exponent(0.3), exponent(0.0)
    (1, -1, 0)
    """
    number = float(number)
    return math.frexp(number)[1] if math.isfinite(number) else 0


def shifted(X: Array, power: int) -> Array:
    """Multiply by 2^power, exactly unless the result overflows or underflows.

    Examples
    --------
    >>> import numpy as np
    >>> shifted(np.array([3.0, 1e-300]), 2).tolist()
    [12.0, 4e-300]
    """
    if not power:
        return X
    most = 100 if eps(X) > 1e-10 else 1000  # 2^most and 2^-most are representable
    while power:
        step = max(-most, min(most, power))
        X, power = X * 2.0**step, power - step
    return X
