"""Encode tensors for display on the page."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np

from lowtucker.lab.experiments.bars import presumed, why_no_bars
from lowtucker.run.pictures import kind_of_bars
from lowtucker.run.result import Result

__all__ = ["difference", "finite", "holes", "standard_errors", "thumbnail", "volume"]

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


def holes(X: NumPyArray, known: NumPyArray, low: float, high: float) -> dict[str, Any]:
    """Quantise a tensor of which only some entries are known; ``known`` has a bit for each.

    Examples
    --------
    >>> holes(np.ones((1, 1, 2)), np.array([[[True, False]]]), 0, 1)["known"]
    'gA=='
    """
    bits = np.packbits(np.moveaxis(known, 2, 0)).tobytes()
    return volume(np.where(known, X, low), low, high) | {"known": base64.b64encode(bits).decode()}


def standard_errors(result: Result) -> dict[str, Any]:
    """Quantise the standard errors of all entries, from zero, with a remark on them.

    The picture is None where they would take too long or all are infinite; entries that the
    measurements do not determine are shown at the end of the scale.
    """
    shape = result.X.shape
    reason = why_no_bars(result, math.prod(shape))
    if reason:
        return {"standard_error": None, "remark": reason}
    with presumed():
        error = result.standard_error(np.indices(shape).reshape(len(shape), -1).T)
    error = np.asarray(error, dtype=np.float64).reshape(shape)
    known = np.isfinite(error)
    if not known.any():
        return {"standard_error": None, "remark": "The measurements do not determine any entry."}
    largest = float(error[known].max())
    return {
        "standard_error": volume(np.where(known, error, largest), 0.0, largest),
        "remark": _remark(result, int(np.count_nonzero(~known))),
    }


def _remark(result: Result, unknown: int) -> str:
    """What a reader of standard errors must know; "" where the verdict supports them."""
    remarks = []
    if kind_of_bars(result) == "presumed":
        remarks.append(
            f"The standard error presumes that the tensor has rank {result.rank} exactly and that "
            "the residual is noise; the verdict does not support this."
        )
    if unknown:
        remarks.append(f"The measurements do not determine {unknown} entries.")
    return " ".join(remarks)


def thumbnail(frame: NumPyArray, most: int = 240) -> dict[str, Any]:
    """Quantise one slice, subsampled to at most ``most`` pixels per side."""
    stride = max(1, math.ceil(max(frame.shape) / most))
    small = np.asarray(frame, dtype=np.float64)[::stride, ::stride, None]
    return volume(small, float(small.min()), float(small.max()))


def finite(value: Any) -> float | None:
    """Return a number for JSON; None for infinity and NaN."""
    return float(value) if math.isfinite(value) else None
