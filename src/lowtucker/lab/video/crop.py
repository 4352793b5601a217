"""Cropping, grey conversion and limits shared by all sources of clips."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtucker._array.errors import FileFormatError
from lowtucker.io.guards import memory_limit, physical_memory

__all__ = ["MOST_PIXELS", "Crop", "Span", "grey", "needed", "require_pixels"]

Span = tuple[int, int]

_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601
MOST_PIXELS = 2**26  # per frame; twice an 8K frame


@dataclass(frozen=True)
class Crop:
    """The part of a clip to read, and its memory limit."""

    path: Path
    rows: Span | None
    columns: Span | None
    frames: Span | None
    max_bytes: int | None

    def cut(self, axis: str, size: int) -> slice:
        """Return the slice of an axis; raise ValueError if it is outside the clip."""
        first, last = getattr(self, axis) or (1, size)
        if last > size:
            raise ValueError(
                f"{axis} {first}:{last} are outside the clip, which has {axis} 1:{size};"
                f" choose {axis} of {self.path} in this range"
            )
        return slice(first - 1, last)

    def require_memory(self, rows: slice, columns: slice, frames: int) -> tuple[int, int, int]:
        """Return the shape of the clip; raise FileFormatError if it is too large."""
        shape = (rows.stop - rows.start, columns.stop - columns.start, frames)
        limit = min(physical_memory(), memory_limit(self.max_bytes))
        if 8 * math.prod(shape) > limit:
            raise FileFormatError(
                f"{self.path}: a clip of shape {shape} needs {8 * math.prod(shape)} bytes of"
                f" memory; at most {limit} are allowed here; choose fewer frames, rows or columns"
            )
        return shape


def needed(module: str) -> Any:
    """Import a decoder; raise ImportError with installation advice."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"Videos need PyAV and images need Pillow; {module} is not installed."
            ' Try: pip install "lowtucker[video]"'
        ) from error


def require_pixels(path: Path, height: int, width: int) -> None:
    """Raise FileFormatError for an implausible frame size."""
    if not 1 <= height * width <= MOST_PIXELS:
        raise FileFormatError(
            f"{path} claims frames of {height} x {width} pixels; expected 1 to {MOST_PIXELS};"
            " export it again, or smaller"
        )


def grey(where: object, array: NDArray[Any], colour: bool) -> NDArray[np.float64]:
    """Convert to grey floats in [0, 1]; colours are on the last axis."""
    if array.dtype.kind == "c":
        raise ValueError(f"{where} holds complex numbers; expected real ones; save their np.abs")
    with np.errstate(invalid="ignore"):
        low, high = array.min(), array.max()
    scale = _largest(array.dtype, int(high)) if array.dtype.kind in "iu" else 1
    if not (low >= 0 and high <= scale):  # written so that NaN is rejected
        raise ValueError(
            f"{where} holds values from {low:g} to {high:g}; expected floats between 0 and 1, or"
            " integers that are not negative; replace NaN, and divide by the largest value, for"
            " example by 255"
        )
    if not colour:
        grey = array.astype(np.float64, order="C")
        grey /= scale
        return grey
    grey = np.zeros(array.shape[:-1])
    for channel, weight in enumerate(_LUMA):
        grey += np.multiply(array[..., channel], weight / scale, dtype=np.float64)
    np.minimum(grey, 1, out=grey)
    return grey


def _largest(dtype: np.dtype[Any], high: int) -> int:
    """Return the value of white: of 8 or 16 bits, also for wider integers."""
    if dtype.itemsize <= 2:
        return int(np.iinfo(dtype).max)
    return 255 if high <= 255 else 65535
