"""Random tensors of any format."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker._array import as_float_dtype, as_shape
from lowtucker._array.memory import check_full
from lowtucker._array.random import Seed, Stream, generator
from lowtucker.tensor.random import gaussians, items_of, stack_seeds
from lowtucker.thresholding.protocol import Thresholding

__all__ = ["random_tensor"]


def random_tensor(
    thresholding: Thresholding,
    shape: tuple[int, ...],
    seed: Seed = 0,
    *,
    dtype: Any = np.float64,
    trials: int | None = None,
) -> Any:
    """Draw a tensor of a format: the thresholding of a tensor of i.i.d. N(0, 1) numbers.

    Such tensors are well conditioned: the singular values that are kept are nearly equal, and the
    entries of a sparse one of nearly the same size.

    Parameters
    ----------
    thresholding : Thresholding
        Such as ``lowtucker.TensorTrain((2, 2, 2))``.
    shape : tuple of int
    seed : int, or (int, trial)
    dtype : float or complex dtype
    trials : int, optional
        Draw a batch of ``trials`` tensors: item k is the tensor of ``seed=(seed, k)``.

    See Also
    --------
    lowtucker.random_tucker : Tucker tensors of Gaussian cores, and the targets of the paper.

    Notes
    -----
    Memory: the full tensors.

    Examples
    --------
    >>> from lowtucker import Sparse
    >>> random_tensor(Sparse(3), (8, 9), seed=0)
    SparseTensor of shape (8, 9), sparsity 3: 6 numbers instead of 72 (12x)
    """
    if not isinstance(thresholding, Thresholding) or isinstance(thresholding, type):
        raise TypeError(
            f"thresholding must be a Thresholding, got {thresholding!r}. Try lowtucker.Sparse(3)."
        )
    shape, dtype = as_shape(shape), as_float_dtype(dtype)
    check_full(shape if trials is None else (items_of(trials), *shape), dtype)
    seeds = stack_seeds(seed, trials)
    draws = [gaussians(generator(one, Stream.TENSOR), shape, dtype) for one in seeds]
    H = thresholding.for_shape(shape)
    return H(draws[0] if trials is None else np.stack(draws))
