"""NumPy's own formats, .npy and .npz, and SciPy's sparse .npz."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from lowtucker._array.errors import FileFormatError
from lowtucker.io.guards import (
    RATIO,
    ArrayInfo,
    damage_reported,
    file_size,
    require_memory,
    require_numbers,
    require_room,
    require_shape,
)

_CHUNK = 1 << 20
_MOST_MEMBERS = 10_000  # listing them takes about a second
_HEAD = 1 << 14  # NumPy rejects .npy headers of more than 10 000 characters


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int
    nbytes: int

    def info(self, name: str) -> ArrayInfo:
        return ArrayInfo(name, self.shape, str(self.dtype), self.nbytes)


# version 3 differs from 2 only in non-ASCII field names, and fields are rejected
_VERSIONS = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
    (3, 0): npy_format.read_array_header_2_0,
}


def _npy_header(stream: Any, size: int, where: str) -> _Header:
    """Parse the header of a .npy stream of `size` bytes and check the size."""
    with damage_reported(where):
        head = io.BytesIO(stream.read(_HEAD))
        version = npy_format.read_magic(head)
        if version not in _VERSIONS:
            raise FileFormatError(f"{where} has .npy version {version}; expected 1.0 to 3.0")
        shape, fortran, dtype = _VERSIONS[version](head)
    require_shape(where, shape, dtype.itemsize)
    header = _Header(shape, fortran, dtype, head.tell(), math.prod(shape) * dtype.itemsize)
    if not dtype.hasobject:  # pickles have any length; they are listed and rejected later
        require_room(where, header.offset + header.nbytes, size)
        _require_end(where, size - header.offset - header.nbytes)
    return header


def _require_end(where: str, surplus: int) -> None:
    if surplus:
        raise FileFormatError(f"{where} has {surplus} bytes after its array; export it again")


def _npy_data(stream: Any, header: _Header, where: str) -> NDArray[Any]:
    """Read the declared bytes in chunks; reject surplus bytes."""
    flat: NDArray[Any] = np.empty(math.prod(header.shape), header.dtype)
    view, done = flat.view(np.uint8).data, 0
    with damage_reported(where):
        stream.read(header.offset)
        while count := stream.readinto(view[done : done + _CHUNK]):
            done += count
        require_room(where, len(view), done)
        _require_end(where, len(stream.read(1)))
    if not flat.dtype.isnative:
        flat = flat.byteswap(inplace=True).view(flat.dtype.newbyteorder("="))
    return flat.reshape(header.shape, order="F" if header.fortran else "C")


def _file_header(path: Path) -> _Header:
    with open(path, "rb") as file:
        return _npy_header(file, file_size(path), str(path))


def list_npy(path: Path) -> list[ArrayInfo]:
    """List the array of a .npy file."""
    return [_file_header(path).info(path.stem)]


def read_npy(path: Path, info: ArrayInfo) -> NDArray[Any]:
    """Read a .npy file."""
    with open(path, "rb") as file:
        return _npy_data(file, _file_header(path), str(path))


def map_npy(path: Path) -> NDArray[Any]:
    """Memory-map a .npy file."""
    shape, fortran, dtype, offset, _ = _file_header(path)
    order = cast(Any, "F" if fortran else "C")
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order=order)


def _member_header(archive: zipfile.ZipFile, name: str, path: Path) -> _Header:
    member, where = archive.getinfo(name), f"{path}, member {name},"
    if member.flag_bits & 1:
        raise FileFormatError(f"{where} is encrypted; export it without a password")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FileFormatError(f"{where} is neither stored nor deflated; write it with np.savez")
    require_room(where, member.file_size, RATIO * min(member.compress_size, file_size(path)))
    with archive.open(member) as stream:
        return _npy_header(stream, member.file_size, where)


def list_npz(path: Path) -> list[ArrayInfo]:
    """List the arrays of an .npz file."""
    with damage_reported(path), zipfile.ZipFile(path) as archive:
        names = [n for n in archive.namelist() if n.endswith(".npy")]
        if len(names) > _MOST_MEMBERS:
            raise FileFormatError(
                f"{path} holds {len(names)} arrays; at most {_MOST_MEMBERS} are read; split it"
            )
        if len(set(names)) < len(names):
            raise FileFormatError(f"{path} has two members of one name; export it again")
        return [_member_header(archive, n, path).info(n.removesuffix(".npy")) for n in names]


def read_npz(path: Path, info: ArrayInfo) -> NDArray[Any]:
    """Read one array of an .npz file."""
    return read_members(path, [info])[info.name]


def read_members(path: Path, infos: Sequence[ArrayInfo]) -> dict[str, NDArray[Any]]:
    """Read arrays of an .npz file, which is opened once."""
    arrays = {}
    with damage_reported(path), zipfile.ZipFile(path) as archive:
        for info in infos:
            name = f"{info.name}.npy"
            header = _member_header(archive, name, path)
            with archive.open(name) as stream:
                arrays[info.name] = _npy_data(stream, header, f"{path}, member {name},")
    return arrays


def sparse_npz(path: Path, name: str | None, max_bytes: int | None) -> Any:
    """Read a file written by scipy.sparse.save_npz."""
    from scipy import sparse

    infos = list_npz(path)
    for info in infos:
        if info.name != "format" or info.nbytes > 64:
            require_numbers(path, info)
        # SciPy reads other numbers of axes from 1.15 on
        if info.name == "shape" and len(info.shape) == 1 and info.shape[0] != 2:
            raise FileFormatError(f"{path} has {info.shape[0]} axes; expected a sparse matrix of 2")
    require_memory(path, sum(info.nbytes for info in infos), max_bytes)
    with damage_reported(path):
        return sparse.load_npz(path)
