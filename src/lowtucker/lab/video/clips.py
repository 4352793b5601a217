"""Read grey clips from videos, folders of images and arrays, and write them as GIF.

For any source, a clip is an array (rows, columns, frames) of floats between 0 and 1. The crop and
the memory are checked before pixels are read.
"""

from __future__ import annotations

import operator
import os
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lowtucker.io.arrays import load_array
from lowtucker.io.guards import as_path, check_target, replacing
from lowtucker.lab.video.crop import Crop, Span, grey
from lowtucker.lab.video.image_files import IMAGES, read_folder
from lowtucker.lab.video.video_files import CONTAINERS, encoded_gif, read_container, require_magnify

__all__ = ["load_video", "save_gif"]

_ARRAYS = (".npy", ".npz", ".mat")


def load_video(
    path: str | os.PathLike[str],
    *,
    frames: Span | None = None,
    rows: Span | None = None,
    columns: Span | None = None,
    name: str | None = None,
    max_bytes: int | None = None,
) -> NDArray[np.float64]:
    """Read a grey clip as an array (rows, columns, frames) with values in [0, 1].

    Parameters
    ----------
    path : path-like
        A video (``.mp4``, ``.m4v``, ``.mov``, ``.avi``, ``.webm``, ``.mkv``, ``.gif``); a folder
        of images of one size, read in the natural order of their names (``f2.png``
        before ``f10.png``); or an array in a ``.npy``, ``.npz`` or ``.mat`` file: (rows, columns,
        frames), or in colour (rows, columns, 3, frames) or (frames, rows, columns, 3).
    frames, rows, columns : (int, int), optional
        First and last to read, counted from 1, both included. All by default.
    name : str, optional
        Name of the array, if a file holds several.
    max_bytes : int, optional
        Reject larger clips (after the crop, in float64), and larger arrays in ``.npz`` and
        ``.mat`` files, which are read whole. The physical memory is also a limit.

    Returns
    -------
    ndarray
        Integers are divided by 255 or 65535: the largest value of their type, or for wider
        integers the smaller one that bounds them. Colours are weighted by 0.299, 0.587 and 0.114;
        for a video in YUV, the luma is used. Alpha is ignored.

    Raises
    ------
    FileFormatError
        If the file is damaged, of another format, or too large.
    ValueError
        If the crop is outside the clip, or values are outside [0, 1].

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "clip.npy")
    ...     np.save(file, np.full((20, 30, 8), 51, np.uint8))
    ...     clip = load_video(file, rows=(11, 20), frames=(3, 5))
    >>> clip.shape, float(clip.max())
    ((10, 30, 3), 0.2)
    """
    path = as_path(path)
    suffix = path.suffix.lower()
    spans = (_span("rows", rows), _span("columns", columns), _span("frames", frames))
    crop = Crop(path, *spans, max_bytes)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path, relative to {Path.cwd()}")
    if not path.is_dir() and suffix in _ARRAYS:
        return _read_array(path, crop, name)
    if name is not None:
        raise ValueError(f"name={name!r}: {path} holds no named arrays; omit the name")
    if path.is_dir():
        return read_folder(path, crop)
    if suffix not in CONTAINERS:
        known = ", ".join((*CONTAINERS, *_ARRAYS))
        raise ValueError(
            f"{path} has the suffix {suffix!r}; clips are read from {known}, or a folder of"
            f" images ({', '.join(IMAGES)}); convert it"
        )
    return read_container(path, crop)


def save_gif(
    path: str | os.PathLike[str],
    clip: ArrayLike,
    *,
    magnify: int = 1,
    frames_per_second: float = 10,
) -> None:
    """Write a grey clip as a looping GIF, atomically.

    Parameters
    ----------
    path : path-like
        The file to write; it must end in ``.gif``. An existing file is replaced.
    clip : array_like
        Floats (rows, columns, frames), clipped to [0, 1] and rounded to 256 grey levels.
    magnify : int
        Side of the square drawn for each pixel.
    frames_per_second : float
        Between 0.01 and 50. The frame time is rounded to hundredths of a second.
    """
    path, array = as_path(path), np.asarray(clip)
    if path.suffix.lower() != ".gif":
        raise ValueError(f"cannot write {path}; expected a path ending in .gif; rename it")
    check_target(path)
    if array.ndim != 3 or not array.size:
        raise ValueError(f"clip has the shape {array.shape}; expected (rows, columns, frames)")
    if array.dtype.kind not in "bf" or not np.isfinite(array).all():
        raise ValueError(
            f"clip has dtype {array.dtype}, or values that are not finite; expected finite floats"
            " between 0 and 1; divide integers by their largest value, and replace NaN"
        )
    require_magnify(magnify, *array.shape[:2])
    if not (isinstance(frames_per_second, Real) and 0.01 <= frames_per_second <= 50):
        raise ValueError(f"frames_per_second={frames_per_second!r}; expected 0.01 to 50")
    rate = Fraction(100, round(100 / frames_per_second))
    with replacing(path) as file:
        file.write(encoded_gif(array, int(magnify), rate))


def _span(argument: str, span: Any) -> Span | None:
    if span is None:
        return None
    try:
        first, last = (operator.index(n) for n in span)
    except (TypeError, ValueError):
        first, last = 0, 0
    if not 1 <= first <= last:
        raise ValueError(
            f"{argument}={span!r}; expected (first, last), whole numbers with 1 <= first <= last,"
            " counted from 1 and both included; or None for all"
        )
    return first, last


def _read_array(path: Path, crop: Crop, name: str | None) -> NDArray[np.float64]:
    mapped = path.suffix.lower() == ".npy"
    array = load_array(path, name, mmap=mapped, max_bytes=None if mapped else crop.max_bytes)
    array = _arranged(path, np.asarray(array))
    rows, columns, frames = map(crop.cut, ("rows", "columns", "frames"), array.shape)
    crop.require_memory(rows, columns, frames.stop - frames.start)
    return grey(path, array[rows, columns, frames], colour=array.ndim == 4)


def _arranged(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    """Transpose to (rows, columns, frames), followed by the colours if any."""
    matlab = array.ndim == 4 and array.shape[2] == 3
    imageio = array.ndim == 4 and array.shape[3] == 3
    if not array.size or not (array.ndim == 3 or matlab or imageio):
        raise ValueError(
            f"{path} has the shape {array.shape}; expected (rows, columns, frames), or in colour"
            " (rows, columns, 3, frames) or (frames, rows, columns, 3); reshape it"
        )
    if matlab and (path.suffix.lower() == ".mat" or not imageio):
        return array.transpose(0, 1, 3, 2)
    return array.transpose(1, 2, 0, 3) if imageio else array
