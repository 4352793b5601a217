"""Tensors as bytes that the page can draw."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

__all__ = ["difference", "finite", "thumbnail", "volume"]

NumPyArray = np.ndarray[Any, Any]


def volume(X: NumPyArray, low: float, high: float) -> dict[str, Any]:
    """Tensor (rows, columns, slices) in 256 levels between two values, slice by slice.

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
    """What is between a tensor and the true one, from minus to plus the largest of it."""
    gap = np.asarray(X, dtype=np.float64) - X_true
    largest = float(np.max(np.abs(gap)))
    largest = largest if 0 < largest < math.inf else 1.0
    return volume(gap, -largest, largest)


def thumbnail(frame: NumPyArray, most: int = 240) -> dict[str, Any]:
    """One slice, at most so many pixels wide and high."""
    stride = max(1, math.ceil(max(frame.shape) / most))
    small = np.asarray(frame, dtype=np.float64)[::stride, ::stride, None]
    return volume(small, float(small.min()), float(small.max()))


def finite(value: Any) -> float | None:
    """Number for JSON, which has none for infinity and NaN."""
    return float(value) if math.isfinite(value) else None
