"""Unfoldings of a tensor (section 2 of the paper)."""

from __future__ import annotations

from lowtucker._array import Array, as_array, as_integer, as_shape, as_tensor, namespace, size

__all__ = ["fold", "unfold"]


def unfold(X: Array, mode: int, *, batch_ndim: int = 0) -> Array:
    r"""Mode-k unfolding :math:`\mathbf{X}^{\{k\}}`, the matrix of the mode-k fibres.

    Row :math:`i` contains the elements whose k-th index is :math:`i`, in row-major order of the
    other indices. (The literature orders the columns differently; singular values, ranks and
    subspaces are the same.)

    Parameters
    ----------
    X : array, shape (*batch, n_1, ..., n_d)
    mode : int
        k, from 0 to d - 1.
    batch_ndim : int
        Number of leading batch axes of ``X``.

    Returns
    -------
    array, shape (*batch, n_k, N / n_k)

    Examples
    --------
    >>> import numpy as np
    >>> unfold(np.arange(8).reshape(2, 2, 2), 1)
    array([[0, 1, 4, 5],
           [2, 3, 6, 7]])
    """
    X = as_tensor(X, "X")
    batch_ndim = as_integer(batch_ndim, "batch_ndim", 0, X.ndim - 1)
    mode = as_integer(mode, "mode", 0, X.ndim - batch_ndim - 1)
    return unfolded(X, mode, batch_ndim)


def unfolded(X: Array, mode: int, batch_ndim: int) -> Array:
    """Compute :func:`unfold` without checking the arguments."""
    xp = namespace(X)
    if mode:
        axis = batch_ndim + mode
        others = (k for k in range(batch_ndim, X.ndim) if k != axis)
        X = xp.permute_dims(X, (*range(batch_ndim), axis, *others))  # faster than moveaxis
    return xp.reshape(X, (*X.shape[: batch_ndim + 1], size(X.shape[batch_ndim + 1 :])))


def fold(matrix: Array, mode: int, shape: tuple[int, ...]) -> Array:
    """Return the tensor of ``shape`` whose mode-k unfolding is ``matrix``.

    Parameters
    ----------
    matrix : array, shape (*batch, n_k, N / n_k)
    mode : int
        k, from 0 to d - 1.
    shape : tuple of int
        (n_1, ..., n_d), without the leading axes.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(24).reshape(2, 3, 4)
    >>> bool(np.all(fold(unfold(X, 1), 1, X.shape) == X))
    True
    """
    matrix = as_array(matrix, "matrix")
    shape = as_shape(shape)
    mode = as_integer(mode, "mode", 0, len(shape) - 1)
    xp = namespace(matrix)
    expected = (shape[mode], size(shape) // shape[mode])
    if matrix.ndim < 2 or tuple(matrix.shape[-2:]) != expected:
        raise ValueError(
            f"fold expects a matrix of shape (*batch, {expected[0]}, {expected[1]}) for mode "
            f"{mode} of a tensor of shape {shape}, got {tuple(matrix.shape)}."
        )
    batch = matrix.shape[:-2]
    rest = shape[:mode] + shape[mode + 1 :]
    return xp.moveaxis(
        xp.reshape(matrix, (*batch, shape[mode], *rest)), len(batch), len(batch) + mode
    )
