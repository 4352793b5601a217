"""Errors of a recovered tensor relative to the true one.

All functions accept arrays and TuckerTensors. Only :func:`relative_error` returns one number per
problem of a batch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    all_finite,
    as_float,
    as_float_on,
    as_number,
    is_complex,
    namespace,
    size,
    to_numpy,
)
from lowtucker.tensor.iterate import Iterate
from lowtucker.tensor.products import norm
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["nmse", "psnr", "relative_error", "snr_db", "ssim"]


def relative_error(X: Any, X_true: Any, *, batch_ndim: int | None = None) -> Array:
    r"""Return :math:`\|X - X^\star\|_F / \|X^\star\|_F`, the recovery error of the paper.

    Two TuckerTensors are compared through their factors: the full tensors are not formed.

    Parameters
    ----------
    X, X_true : array or TuckerTensor
    batch_ndim : int, optional
        Number of leading batch axes; by default those of a TuckerTensor, or none.

    Returns
    -------
    float, or array of shape (*batch,)

    Examples
    --------
    >>> relative_error([1.0, 1.0], [1.0, 0.0])
    1.0
    """
    if isinstance(X, TuckerTensor) and isinstance(X_true, TuckerTensor):
        _check_finite(X_true.core)
        gap, scale = (X - X_true).norm(), X_true.norm()
    else:
        for T in (X, X_true):
            if isinstance(T, Iterate) and batch_ndim is None:
                batch_ndim = len(T.batch_shape)
        X, X_true = _pair(X, X_true)
        batch_ndim = batch_ndim or 0
        gap, scale = norm(X - X_true, batch_ndim=batch_ndim), norm(X_true, batch_ndim=batch_ndim)
    xp = namespace(scale)
    if not bool(xp.all(scale > 0)):
        raise ValueError("X_true is zero: the relative error is undefined.")
    ratio = gap / scale
    return float(ratio) if ratio.ndim == 0 else ratio


def nmse(X: Any, X_true: Any) -> float:
    r"""Return the normalised mean squared error, :math:`\|X - X^\star\|_F^2 / \|X^\star\|_F^2`.

    Examples
    --------
    >>> nmse([1.0, 1.0], [1.0, 0.0])
    1.0
    """
    return float(relative_error(*_pair(X, X_true))) ** 2


def snr_db(X: Any, X_true: Any) -> float:
    r"""Return the signal-to-noise ratio, :math:`-20 \log_{10}` of the relative error, in decibels.

    Examples
    --------
    >>> snr_db([1.0, 1.1], [1.0, 1.0])
    23.01...
    """
    error = float(relative_error(*_pair(X, X_true)))
    return math.inf if error == 0 else -20 * math.log10(error)


def psnr(X: Any, X_true: Any, data_range: float | None = None) -> float:
    r"""Return the peak signal-to-noise ratio :math:`10 \log_{10}(L^2 / \mathrm{MSE})`, in decibels.

    Parameters
    ----------
    X, X_true : array or TuckerTensor
    data_range : float, optional
        L, the range of the data: 1 for images in [0, 1], 255 for bytes. By default the range of
        ``X_true``.

    Examples
    --------
    >>> psnr([0.0, 0.9], [0.0, 1.0])
    23.01...
    """
    a, b = _images(X, X_true)
    length = None if data_range is None else _range(b, data_range)
    error = float(np.mean(np.abs(a - b) ** 2))
    if error == 0:
        return math.inf
    return 10 * math.log10((_range(b, None) if length is None else length) ** 2 / error)


def ssim(X: Any, X_true: Any, data_range: float | None = None) -> float:
    r"""Return the mean structural similarity of two images (or volumes); 1 if they are equal.

    Gaussian windows of standard deviation 1.5, :math:`K_1 = 0.01`, :math:`K_2 = 0.03`, as in
    Wang, Bovik, Sheikh and Simoncelli (2004); windows that extend beyond the image are
    left out. For a video, average over the frames.

    Parameters
    ----------
    X, X_true : array or TuckerTensor, at least 11 in every mode
    data_range : float, optional
        As in :func:`psnr`.

    Examples
    --------
    >>> import numpy as np
    >>> ssim(np.eye(16), np.eye(16))
    1.0
    """
    from scipy.ndimage import gaussian_filter

    radius = 5  # an 11-point window
    a, b = _images(X, X_true)
    if min(a.shape, default=0) < 2 * radius + 1:
        raise ValueError(
            f"ssim needs at least {2 * radius + 1} entries in every mode, got shape {a.shape}."
        )
    length = _range(b, data_range)

    def mean(x: Any) -> Any:
        return gaussian_filter(x, 1.5, radius=radius)[(slice(radius, -radius),) * x.ndim]

    mu_a, mu_b = mean(a), mean(b)
    var_a, var_b = mean(a * a) - mu_a**2, mean(b * b) - mu_b**2
    cov = mean(a * b) - mu_a * mu_b
    c1, c2 = (0.01 * length) ** 2, (0.03 * length) ** 2
    score = ((2 * mu_a * mu_b + c1) * (2 * cov + c2)) / (
        (mu_a**2 + mu_b**2 + c1) * (var_a + var_b + c2)
    )
    return float(score.mean())


def _pair(X: Any, X_true: Any) -> tuple[Array, Array]:
    """Convert both to full arrays of the same shape and kind; X_true must be finite."""
    a = as_float(_full(X), "X")
    b = as_float_on(_full(X_true), a, "X_true", "X")
    if a.shape != b.shape or not size(a.shape):
        raise ValueError(
            f"X and X_true must have the same shape, got {tuple(a.shape)} and {tuple(b.shape)}."
        )
    _check_finite(b)
    return a, b


def _full(T: Any) -> Any:
    return T.full() if isinstance(T, Iterate) else T


def _check_finite(X_true: Array) -> None:
    if not all_finite(X_true):
        raise ValueError("X_true has NaN or infinite entries: no error relative to it is defined.")


def _images(X: Any, X_true: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Convert both to real NumPy arrays in double precision."""
    a, b = _pair(X, X_true)
    if is_complex(a) or is_complex(b):
        raise TypeError(
            "X and X_true must be real, got complex numbers. Try their absolute values."
        )
    return to_numpy(a).astype(np.float64), to_numpy(b).astype(np.float64)


def _range(x: np.ndarray[Any, Any], data_range: Any) -> float:
    if data_range is not None:
        return as_number(data_range, "data_range", positive=True)
    length = float(x.max() - x.min())
    if not 0 < length < math.inf:
        raise ValueError(
            f"data_range must be positive, got {length:g}. For a constant X_true, give "
            "data_range=1 for images in [0, 1]."
        )
    return length
