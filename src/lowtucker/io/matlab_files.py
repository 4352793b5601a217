"""MATLAB's formats: version 5 with a reader of its own, version 7.3 with h5py.

scipy.io.loadmat crashes the interpreter on damaged version 5 files (seen with SciPy 1.17), which
no caller can catch; hence the small reader here.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowtucker._array.errors import FileFormatError
from lowtucker.io.guards import (
    NUMERIC,
    RATIO,
    ArrayInfo,
    choose,
    damage_reported,
    file_size,
    require_memory,
    require_room,
    require_shape,
)
from lowtucker.operators.chunks import check_hdf5, check_hdf5_rows

_PIECE = 1 << 20  # bytes that are read or decompressed at a time
_LARGEST_CHUNK = 1 << 26  # of a version 7.3 file; read whole, beside the array
_SLACK = 1 << 16  # names, tags and padding around the data of a variable in a .mat file


_CLASSES = dict(
    enumerate(
        (
            *("cell", "struct", "object", "char", "sparse", "float64", "float32", "int8", "uint8"),
            *("int16", "uint16", "int32", "uint32", "int64", "uint64", "function", "object"),
        ),
        start=1,
    )
)
_TYPES = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_COMPLEX = {"float64": "complex128", "float32": "complex64"}


class _Variable(NamedTuple):
    """Position of a variable in the file, and its header."""

    info: ArrayInfo
    order: str
    start: int
    stored: int
    inflated: int  # 0 if not compressed
    dtype: str  # of the values, also of a sparse matrix


def _parts(data: bytes | memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield type and bytes of each element of a variable."""
    at, view = 0, memoryview(data)
    while at < len(view):
        kind, size = struct.unpack_from(f"{order}II", view, at)
        start, end = at + 8, at + 8 + size + -size % 8
        if kind >> 16:  # a short element: type, size and data in 8 bytes
            kind, size, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        if start + size > len(view) or start + size > end:
            raise ValueError(f"an element of {size} bytes is truncated")
        yield kind, view[start : start + size]
        at = end


def _values(part: tuple[int, memoryview], order: str) -> NDArray[Any]:
    kind, data = part
    if kind not in _TYPES:
        raise ValueError(f"unknown data type {kind}")
    return np.frombuffer(data, order + _TYPES[kind])


def _variable_info(path: Path, head: bytes, order: str, size: int) -> tuple[ArrayInfo, str]:
    """Parse the header of a variable; return it with the dtype of the values."""
    flags, dims, label = islice(_parts(head, order), 3)
    (bits,) = struct.unpack_from(f"{order}I", flags[1])
    kind = _CLASSES.get(bits & 0xFF, "unknown class")
    if bits & 0xFF == 17:  # objects of newer classes have no dimensions here
        dims, label = (5, memoryview(b"")), dims
    shape, name = tuple(_values(dims, order).tolist()), bytes(label[1]).decode("latin-1")
    dtype = "bool" if bits & 0x200 else "float64" if kind == "sparse" else kind
    dtype = _COMPLEX.get(dtype, f"complex {dtype}") if bits & 0x800 else dtype
    if kind == "sparse" or not NUMERIC.fullmatch(dtype):
        return ArrayInfo(
            name, shape, "sparse" if kind == "sparse" else f"MATLAB {kind}", size
        ), dtype
    count, itemsize = math.prod(shape), np.dtype(dtype).itemsize
    require_shape(path, shape, itemsize)
    require_room(path, count, size)  # small integers are stored in one byte for any class
    require_room(path, size, count * max(itemsize, 8) + _SLACK)
    return ArrayInfo(name, shape, dtype, count * itemsize), dtype


def _variables(path: Path) -> list[_Variable]:
    """List the variables; decompress at most 4096 bytes of each."""
    with damage_reported(path), open(path, "rb") as file:
        order, at, found = "<" if file.read(128).endswith(b"IM") else ">", 128, []
        while at < file_size(path):
            file.seek(at)
            tag = file.read(8)
            kind, stored = struct.unpack(f"{order}II", tag)
            require_room(path, at + 8 + stored, file_size(path))
            head = tag + file.read(min(stored, 4096))
            if kind == 15:
                head = zlib.decompressobj().decompress(head[8:], 4096)
            inner, size = struct.unpack_from(f"{order}II", head)
            if inner != 14:
                raise ValueError(f"no variable begins at byte {at}")
            require_room(path, size, stored * (RATIO if kind == 15 else 1))
            info, dtype = _variable_info(path, head[8:], order, size)
            inflated = size if kind == 15 else 0
            found.append(_Variable(info, order, at + 8, stored, inflated, dtype))
            at += 8 + stored
    return [v for v in found if v.info.name]  # unnamed variables belong to function handles


def list_mat5(path: Path) -> list[ArrayInfo]:
    """List the variables of a version 5 file."""
    return [variable.info for variable in _variables(path)]


class _Element(NamedTuple):
    """Numbers in a variable: how they are stored, how many, and those of a short element."""

    dtype: np.dtype[Any]
    length: int
    short: bytes | None


class _Contents:
    """Elements of a variable in order, read and decompressed a piece at a time.

    No more is decompressed than the variable declares, and no more than a piece is in memory
    beside the arrays that are filled.
    """

    def __init__(self, file: BinaryIO, variable: _Variable) -> None:
        file.seek(variable.start)
        self.file, self.order, self.stored = file, variable.order, variable.stored
        self.inflater = zlib.decompressobj() if variable.inflated else None
        self.rest, self.left = b"", variable.stored
        if variable.inflated:
            self.left = 8 + variable.inflated
            self._read(8)  # the variable's own tag
        for _ in range(3):  # flags, shape, name
            kind, size = struct.unpack(f"{self.order}II", self._read(8))
            size = 0 if kind >> 16 else size + -size % 8
            for start in range(0, size, _PIECE):
                self._read(min(_PIECE, size - start))

    def element(self) -> _Element:
        """Return what the next element holds."""
        tag = self._read(8)
        kind, size = struct.unpack(f"{self.order}II", tag)
        room, short = self.left, None
        if kind >> 16:  # type, size and data in 8 bytes
            kind, size, room, short = kind & 0xFFFF, kind >> 16, 4, tag[4:]
        if kind not in _TYPES:
            raise ValueError(f"unknown data type {kind}")
        dtype: np.dtype[Any] = np.dtype(self.order + _TYPES[kind])
        if size > room or size % dtype.itemsize:
            raise ValueError(f"an element of {size} bytes is truncated")
        return _Element(dtype, size // dtype.itemsize, short)

    def fill(self, element: _Element, out: NDArray[Any]) -> None:
        """Read the numbers of an element into an array of any dtype."""
        dtype, count, short = element
        if count != out.size:
            raise ValueError(f"{count} numbers where {out.size} are declared")
        if short is not None:
            out[...] = np.frombuffer(short, dtype, count)
            return
        step = _PIECE // dtype.itemsize
        for start in range(0, count, step):
            part = out[start : start + step]
            part[...] = np.frombuffer(self._read(part.size * dtype.itemsize), dtype)
        self._read(min(-count * dtype.itemsize % 8, self.left))

    def array(self) -> NDArray[Any]:
        """Read the next element as an array of its dtype."""
        element = self.element()
        out: NDArray[Any] = np.empty(element.length, element.dtype)
        self.fill(element, out)
        return out

    def values(self, dtype: str, count: int | None = None) -> NDArray[Any]:
        """Read the values of a variable, real and imaginary parts; they are its last elements."""
        element = self.element()
        out: NDArray[Any] = np.empty(element.length if count is None else count, dtype)
        self.fill(element, out.real)
        if out.dtype.kind == "c":
            self.fill(self.element(), out.imag)
        surplus = self.left
        if self.inflater is not None:
            surplus += len(self.inflater.decompress(self.rest or self.file.read(self.stored), 1))
            surplus += not self.inflater.eof
        if surplus:
            raise ValueError(f"there are data after the {out.size} values of {dtype}")
        return out

    def _read(self, count: int) -> bytes:
        if count > self.left:
            raise ValueError(f"an element of {count} bytes is truncated")
        self.left -= count
        pieces = []
        while count:
            if not self.rest:
                self.rest = self.file.read(min(self.stored, _PIECE))
                self.stored -= len(self.rest)
            if not self.rest:
                raise ValueError("it does not decompress to its declared size")
            if self.inflater is None:
                piece, self.rest = self.rest[:count], self.rest[count:]
            else:
                piece = self.inflater.decompress(self.rest, count)
                self.rest = self.inflater.unconsumed_tail
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)


def read_mat5(path: Path, info: ArrayInfo) -> NDArray[Any]:
    """Read a full variable of a version 5 file."""
    variable = next(v for v in _variables(path) if v.info.name == info.name)
    with damage_reported(path), open(path, "rb") as file:
        array = _Contents(file, variable).values(variable.dtype, math.prod(info.shape))
        return array.reshape(info.shape, order="F")


def sparse_mat5(path: Path, name: str | None, max_bytes: int | None) -> Any:
    """Read a sparse variable of a version 5 file."""
    from scipy import sparse

    info = choose(path, list_mat5(path), name)
    require_memory(path, info.nbytes, max_bytes)
    variable = next(v for v in _variables(path) if v.info.name == info.name)
    with damage_reported(path), open(path, "rb") as file:
        contents = _Contents(file, variable)
        rows, starts = contents.array(), contents.array()
        values = contents.values(variable.dtype)
        used = int(starts[-1])
        native = [part.astype(part.dtype.newbyteorder("="), copy=False) for part in (rows, starts)]
        return sparse.csc_array((values[:used], native[0][:used], native[1]), shape=info.shape)


_MATLAB_NUMBERS = {"double": "float64", "single": "float32", "logical": "bool"} | {
    kind: kind for kind in _CLASSES.values() if "int" in kind
}


def _open_hdf5(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{path} is a MATLAB version 7.3 file, which h5py reads; run"
            ' pip install "lowtucker[hdf5]", or save it in MATLAB with -v7'
        ) from error
    return h5py.File(path, "r")


def _hdf5_info(path: Path, file: Any, name: str) -> ArrayInfo:
    if type(file.get(name, getlink=True)).__name__ != "HardLink":
        return ArrayInfo(name, (), "a link", 0)
    item = file[name]
    kind = item.attrs.get("MATLAB_class", b"no MATLAB_class")
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if "MATLAB_sparse" in item.attrs:
        return ArrayInfo(name, (int(item.attrs["MATLAB_sparse"]),), "sparse", 0)  # not read
    if kind not in _MATLAB_NUMBERS or not hasattr(item, "dtype"):
        return ArrayInfo(name, getattr(item, "shape", ())[::-1], f"MATLAB {kind}", 0)
    return _dataset_info(path, item, name, kind)


def _dataset_info(path: Path, item: Any, name: str, kind: str) -> ArrayInfo:
    if math.prod(item.chunks or ()) * item.dtype.itemsize > _LARGEST_CHUNK:
        raise FileFormatError(f"{path}: {name} is not stored in MATLAB's layout; export it again")
    check_hdf5(item, f"{path}, {name},")
    if item.attrs.get("MATLAB_empty", 0) and item.size <= 32 and not all(item[()]):
        return ArrayInfo(name, tuple(int(n) for n in item[()]), _MATLAB_NUMBERS[kind], 0)
    require_room(path, item.nbytes, RATIO * file_size(path))
    dtype = str(item.dtype)
    if item.dtype.names == ("real", "imag"):
        dtype = _COMPLEX.get(str(item.dtype["real"].newbyteorder("=")), dtype)
    return ArrayInfo(name, item.shape[::-1], "bool" if kind == "logical" else dtype, item.nbytes)


def list_hdf5(path: Path) -> list[ArrayInfo]:
    """List the variables of a version 7.3 file."""
    with damage_reported(path), _open_hdf5(path) as file:
        if len(file) == 0:  # raises for a damaged group, in which names may never end
            return []
        return [_hdf5_info(path, file, name) for name in file if not name.startswith("#")]


def read_hdf5(path: Path, info: ArrayInfo) -> NDArray[Any]:
    """Read a variable of a version 7.3 file; MATLAB stores the axes in reverse order."""
    dtype = np.dtype(info.dtype).newbyteorder("=")
    with damage_reported(path), _open_hdf5(path) as file:
        item = file[info.name]
        if info.nbytes == 0:
            return np.zeros(info.shape, dtype)
        if item.chunks is not None:
            check_hdf5_rows(item, 0, item.shape[0], f"{path}, {info.name},")
        single = dtype.type(0).real.dtype
        kept = [("real", single), ("imag", single)] if dtype.kind == "c" else item.dtype
        raw: NDArray[Any] = np.empty(item.shape, np.dtype(kept).newbyteorder("="))
        item.read_direct(raw)
        return raw.view(dtype).T if dtype.kind == "c" else raw.astype(dtype, copy=False).T
