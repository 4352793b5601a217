"""Encode tensors for display on the page."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

__all__ = ["difference", "finite", "thumbnail", "volume"]

NumPyArray = np.ndarray[Any, Any]


def volume(X: NumPyArray, low: float, high: float) -> dict[str, Any]:
    """Quantise a tensor (rows, columns, slices) to 256 levels, stored slice by slice.

    Examples
    --------
    >>> volume(np.array([[[0.0, 1.0]]]), 0, 1)["data"]
    'AP8='
    """
    scale = 255 / (high - low) if high > low else 0.0
    levels = np.clip(np.rint((np.nan_to_num(X) - low) * scale), 0, 255).astype(np.uint8)
    data = np.ascontiguousarray(np.moveaxis(levels, 2, 0)).tobytes()
    return {
        "shape": list(X.shape),
        "low": low,
        "high": high,
        "data": base64.b64encode(data).decode(),
    }


def difference(X: NumPyArray, X_true: NumPyArray) -> dict[str, Any]:
    """Quantise the difference to the true tensor, on a symmetric scale."""
    gap = np.asarray(X, dtype=np.float64) - X_true
    largest = float(np.max(np.abs(gap)))
    largest = largest if 0 < largest < math.inf else 1.0
    return volume(gap, -largest, largest)


def thumbnail(frame: NumPyArray, most: int = 240) -> dict[str, Any]:
    """Quantise one slice, subsampled to at most ``most`` pixels per side."""
    stride = max(1, math.ceil(max(frame.shape) / most))
    small = np.asarray(frame, dtype=np.float64)[::stride, ::stride, None]
    return volume(small, float(small.min()), float(small.max()))


def finite(value: Any) -> float | None:
    """Return a number for JSON; None for infinity and NaN."""
    return float(value) if math.isfinite(value) else None
