"""Rows in files: read block by block, the next block while one is in use."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from lowtucker._array import size
from lowtucker._array.errors import FileFormatError
from lowtucker.operators.chunks import check_hdf5, check_hdf5_rows, check_zarr
from lowtucker.operators.matrix import Order, check_order, shape_of_rows
from lowtucker.operators.streamed import StreamedOperator

__all__ = ["StoredOperator", "is_stored"]

NumPyArray = np.ndarray[Any, Any]


def is_stored(A: Any) -> bool:
    """Whether A is an array of rows in a file: memory-mapped, of HDF5 or of Zarr.

    Not a map of a column-major file: products read it column by column.
    """
    if isinstance(A, np.memmap):
        return bool(A.flags.c_contiguous)
    return _library(A) in ("h5py", "zarr") and hasattr(A, "dtype")


class StoredOperator(StreamedOperator):
    """Measurements by the rows of an array in a file; see :func:`lowtucker.stored`.

    Parameters
    ----------
    source : numpy.memmap, h5py.Dataset, zarr.Array
        Shape (m, N) or (m, n_1, ..., n_d). Or any object with ``shape`` and ``dtype`` whose
        rows are ``source[start:stop]``.
    shape : tuple of int, optional
        Shape of the tensors; needed if the rows of ``source`` are vectors.
    order : "C" or "F"
        How the rows were vectorised.
    """

    def __init__(
        self, source: Any, shape: tuple[int, ...] | None = None, *, order: Order = "C"
    ) -> None:
        given = _checked(source)
        shape = shape_of_rows(given, shape, "source")
        order = "C" if given[1:] == shape and len(shape) > 1 else check_order(order)
        _check_stored(source)
        self.source, self._file = source, _raw_file(source)
        self._sound: set[int] = set()  # bands of chunks of an HDF5 file that were checked
        self._set(shape, given[0], _dtype_in_memory(source), order)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle files by their names, not by their contents."""
        state = dict(self.__dict__)
        if self._file is not None:
            state["source"] = None
        elif _library(self.source) == "h5py":
            state["source"] = (self.source.file.filename, self.source.name)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["source"], tuple):
            import h5py

            path, name = state["source"]
            state["source"] = h5py.File(path, "r")[name]
            _check_stored(state["source"])
            state["_sound"] = set()  # it may be another file by now
        self.__dict__.update(state)

    def _place(self, start: int, stop: int) -> str:
        rows = f"row {start}" if stop == start + 1 else f"rows {start} to {stop - 1}"
        return f"{_name(self.source) if self._file is None else self._file[0]}, {rows},"

    def _read(self, start: int, stop: int, out: NumPyArray) -> None:
        try:
            if self._file is not None:
                self._read_file(start, stop, out)
            else:
                self._read_source(start, stop, out)
        except FileFormatError:
            raise
        except Exception as error:  # Zarr and its codecs raise almost any
            raise OSError(
                f"{self._place(start, stop)} could not be read: {error}. Check that the file is "
                "complete and the disk is mounted, then start again."
            ) from error

    def _read_source(self, start: int, stop: int, out: NumPyArray) -> None:
        if _library(self.source) == "h5py" and self.source.chunks is not None:
            self._check_rows(start, stop)
        same = self.source.dtype == out.dtype and self.source.ndim == 2
        if same and hasattr(self.source, "read_direct"):  # h5py, without a copy
            self.source.read_direct(out, np.s_[start:stop])
        else:
            out[...] = np.asarray(self.source[start:stop]).reshape(out.shape)

    def _check_rows(self, start: int, stop: int) -> None:
        """Check the chunks with these rows when they are read for the first time."""
        height = self.source.chunks[0]
        for band in range(start // height, -(-stop // height)):
            if band not in self._sound:
                check_hdf5_rows(self.source, band * height, band * height + 1, _name(self.source))
                self._sound.add(band)

    def _read_file(self, start: int, stop: int, out: NumPyArray) -> None:
        """Read the file, not the map: with the map an error of the disk would kill the process."""
        assert self._file is not None
        path, offset, dtype = self._file
        raw = out if dtype == out.dtype else np.empty(out.shape, dtype)
        view = raw.view(np.uint8).reshape(-1).data
        with open(path, "rb", buffering=0) as file:
            file.seek(offset + start * raw.shape[1] * dtype.itemsize)
            done = 0
            while done < len(view):
                count = file.readinto(view[done:])
                if not count:
                    raise OSError("the file ends before them: it is truncated")
                done += count
        if raw is not out:
            out[...] = raw


def _library(source: Any) -> str:
    """Name of the package of an object's class."""
    return type(source).__module__.partition(".")[0]


def _check_stored(source: Any) -> None:
    """Refuse an array of HDF5 or Zarr that is not stored completely in its own file."""
    check = {"h5py": check_hdf5, "zarr": check_zarr}.get(_library(source))
    if check is None:
        return
    try:
        check(source, _name(source))
    except FileFormatError:
        raise
    except Exception as error:  # of the libraries, for an index that makes no sense
        raise FileFormatError(
            f"{_name(source)} is damaged: {str(error) or type(error).__name__}. Export it again."
        ) from error


def _checked(source: Any) -> tuple[int, ...]:
    """Shape of a source of rows."""
    if not all(hasattr(source, name) for name in ("shape", "dtype", "__getitem__")):
        raise TypeError(
            "source must be a numpy.memmap, an HDF5 data set or a Zarr array, got "
            f"{type(source).__name__}. For a file try lowtucker.stored(path, shape)."
        )
    shape = tuple(int(n) for n in source.shape)
    if len(shape) < 2 or not size(shape):
        raise ValueError(f"source must have one row per measurement, (m, N), got shape {shape}.")
    if isinstance(source, np.ndarray) and not source.flags.c_contiguous:
        raise ValueError(
            "source must be row-major, so that rows are contiguous; this one is column-major or "
            "part of another array. Write it again: numpy.save(path, numpy.ascontiguousarray(A))"
        )
    return shape


def _dtype_in_memory(source: Any) -> np.dtype[Any]:
    """Dtype of the rows that are read: that of the file. Narrow ones are widened tile by tile."""
    dtype: np.dtype[Any] = np.dtype(source.dtype).newbyteorder("=")
    if dtype.kind not in "biufc" or dtype.char in "gG":
        raise FileFormatError(
            f"{_name(source)} holds {dtype}, expected numbers of single or double precision. "
            "Write it again as float32 or float64."
        )
    return dtype


def _raw_file(source: Any) -> tuple[str, int, np.dtype[Any]] | None:
    """Path, offset and dtype of a memory map of a whole file."""
    if not (isinstance(source, np.memmap) and isinstance(source.base, mmap.mmap)):
        return None
    return (os.fspath(source.filename), source.offset, source.dtype) if source.filename else None


def _name(source: Any) -> str:
    """Name of a source, for a message."""
    if hasattr(source, "file") and hasattr(source, "name"):  # h5py
        return f"{source.file.filename}, {source.name}"
    for attribute in ("filename", "store_path"):
        if getattr(source, attribute, None):
            return str(getattr(source, attribute))
    return type(source).__name__
