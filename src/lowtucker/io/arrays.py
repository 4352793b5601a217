"""Read and write arrays in files; nothing is unpickled and sizes are checked before reading.

Each format has one function that lists its arrays from the headers and one that reads a listed
array. What a file claims is compared with what it can hold, and with the memory, in between.
"""

from __future__ import annotations

import io
import math
import os
import re
import secrets
import struct
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import ArrayLike, NDArray

from lowtucker._errors import FileFormatError

__all__ = ["ArrayInfo", "describe", "is_sparse", "load_array", "load_sparse", "save_arrays"]

_RATIO = 1032  # no deflated stream is larger than this many times its compressed bytes
_CHUNK = 1 << 20
_HEAD = 1 << 14  # numpy refuses .npy headers of more than 10 000 characters
_SLACK = 1 << 16  # names, tags and padding around the data of a variable in a .mat file
_NUMERIC = re.compile(r"bool|(u?int|float|complex)\d+|[<>][iufc]\d+")
_SPARSE_MEMBERS = {"format", "shape", "data"}
_KINDS = {".npy": ("npy",), ".npz": ("zip",), ".mat": ("mat5", "hdf5")}
_LOOKS = {
    "npy": "a NumPy .npy file",
    "zip": "a zip archive (.npz files are such archives)",
    "mat5": "a MATLAB version 5 file",
    "hdf5": "an HDF5 file (MATLAB version 7.3 files are such files)",
}
_MAGIC = [
    (0, rb"\x93NUMPY", "npy"),
    (0, rb"PK(\x03\x04|\x05\x06)", "zip"),
    (0, rb"\s*<(!doctype html|html|head|body)", "an HTML page, perhaps of a failed download"),
    (0, rb"version https://git-lfs", "a Git LFS pointer, not the data; run git lfs pull"),
    (0, rb"\x80[\x02-\x05]", "a pickle, which is never read"),
    (0, rb"\x1f\x8b", "a gzip file; unpack it first"),
    (0, rb"\x89HDF\r\n\x1a\n", "hdf5"),
    (512, rb"\x89HDF\r\n\x1a\n", "hdf5"),
    (124, rb"\x00\x01IM|\x01\x00MI", "mat5"),
    (0, rb"[\t\n\r -~]+\Z", "plain text"),
    (0, rb"\Z", "empty"),
]


@dataclass(frozen=True)
class ArrayInfo:
    """What a file says of one of its arrays; `nbytes` counts bytes after decompression."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


_Lister = Callable[[Path], list[ArrayInfo]]
_Reader = Callable[[Path, ArrayInfo], NDArray[Any]]


def load_array(
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    mmap: bool = False,
    max_bytes: int | None = None,
) -> NDArray[Any]:
    """Read one array of numbers from a ``.npy``, ``.npz`` or ``.mat`` file.

    Parameters
    ----------
    path : path-like
        The file; its content must agree with its suffix.
    name : str, optional
        The array to read. Needed only where the file holds several.
    mmap : bool
        Map a ``.npy`` file read-only, in the byte order of the file, instead of reading it.
    max_bytes : int, optional
        Refuse larger arrays. The physical memory is a limit too, except with `mmap` alone.

    Returns
    -------
    ndarray
        In native byte order, with the shape it has in NumPy or MATLAB.

    Raises
    ------
    FileFormatError
        Where the file is damaged, of another format, too large, or holds no numbers.
    ValueError
        Where `name` does not single out an array.
    """
    path, kind = _identify(path)
    if mmap and kind != "npy":
        raise ValueError(f"{path}: only .npy files can be mapped; use mmap=False or np.save it")
    infos = _list(path, kind)
    if name is None and {i.name for i in infos} >= _SPARSE_MEMBERS:
        raise FileFormatError(f"{path} holds a sparse matrix; read it by load_sparse")
    info = _choose(path, infos, name)
    _require_numbers(path, info)
    if not mmap or max_bytes is not None:
        _require_memory(path, info.nbytes, max_bytes)
    return _map_npy(path) if mmap else _FORMATS[kind][1](path, info)


def load_sparse(
    path: str | os.PathLike[str], name: str | None = None, *, max_bytes: int | None = None
) -> Any:
    """Read a sparse matrix from a SciPy ``.npz`` file or a MATLAB version 5 ``.mat`` file.

    Parameters
    ----------
    path : path-like
        A file of `scipy.sparse.save_npz` or of MATLAB's ``save -v7``.
    name : str, optional
        The variable of the ``.mat`` file. Needed only where it holds several.
    max_bytes : int, optional
        Refuse what takes more memory; the physical memory is always a limit.

    Returns
    -------
    scipy.sparse.csr_array
    """
    path, kind = _identify(path)
    if not is_sparse(path, name):
        raise FileFormatError(f"{path} holds no sparse matrix; read it by load_array")
    if kind == "hdf5":
        raise FileFormatError(
            f"{path} is sparse in MATLAB's version 7.3, which is not read; use save(..., '-v7')"
        )
    matrix = (_sparse_npz if kind == "zip" else _sparse_mat5)(path, name, max_bytes)
    return _to_csr(path, matrix, max_bytes)


def is_sparse(path: str | os.PathLike[str], name: str | None = None) -> bool:
    """Whether `load_sparse`, not `load_array`, reads the file (or its variable `name`)."""
    path, kind = _identify(path)
    infos = _list(path, kind)
    if kind == "zip":
        return name is None and {i.name for i in infos} >= _SPARSE_MEMBERS
    return _choose(path, infos, name).dtype == "sparse"


def describe(path: str | os.PathLike[str]) -> list[ArrayInfo]:
    """List the arrays of a file from their headers, without reading the data.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "data.npz")
    ...     save_arrays(file, {"y": [1.0, 2.0]})
    ...     describe(file)
    [ArrayInfo(name='y', shape=(2,), dtype='float64', nbytes=16)]
    """
    path, kind = _identify(path)
    return _list(path, kind)


def save_arrays(
    path: str | os.PathLike[str], arrays: Mapping[str, ArrayLike], *, overwrite: bool = False
) -> None:
    """Write named arrays to an ``.npz`` file: completely, or not at all.

    Parameters
    ----------
    path : path-like
        Where to write; it must end in ``.npz``.
    arrays : mapping of str to array_like
        Booleans, integers, real or complex numbers.
    overwrite : bool
        Replace an existing file.
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise ValueError(f"cannot write {path}; expected a path ending in .npz; rename it")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; pass overwrite=True or give another path")
    if not arrays:
        raise ValueError(f"no arrays given for {path}; expected at least one")
    checked = {_checked_name(name): _checked_array(name, a) for name, a in arrays.items()}
    temporary = path.with_name(f".lowtucker-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            _write_npz(file, checked)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _checked_name(name: str) -> str:
    if not name or set(name) & set("/\\\0"):
        raise ValueError(f"array name {name!r}: expected a non-empty name without slashes")
    return name


def _checked_array(name: str, value: ArrayLike) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"array {name!r} has dtype {array.dtype}; expected bool, integer, real or complex"
            " numbers; convert it, for example with np.asarray(..., dtype=float)"
        )
    return array


def _write_npz(file: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # a fixed date: equal arrays, equal bytes
            with archive.open(member, "w", force_zip64=True) as stream:
                npy_format.write_array(stream, array, allow_pickle=False)


# ---- what all formats share ----


@contextmanager
def _damage_reported(where: object) -> Iterator[None]:
    """Turn whatever a reader raises on damaged bytes into FileFormatError, without warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (FileFormatError, ModuleNotFoundError):
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise FileFormatError(f"{where} is damaged: {reason}; export it again") from error


def _identify(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """Path and kind of a file, from its first bytes; refused where the suffix disagrees."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path")
    if not path.is_file():
        raise FileFormatError(f"{path} is a directory or device; expected a file")
    known = ", ".join(_KINDS)
    if path.suffix.lower() not in _KINDS:
        raise FileFormatError(f"{path} has the suffix {path.suffix!r}; files read: {known}")
    with open(path, "rb") as file:
        kind = _sniff(file.read(1024))
    if kind not in _KINDS[path.suffix.lower()]:
        looks = _LOOKS.get(kind, kind)
        raise FileFormatError(
            f"{path} is {looks}; expected the content of a {path.suffix} file; export it again"
            f" as one of {known}, or correct the suffix"
        )
    return path, kind


def _size(path: Path) -> int:
    return path.stat().st_size


def _sniff(head: bytes) -> str:
    for offset, magic, kind in _MAGIC:
        if re.match(magic, head[offset:], re.IGNORECASE):
            return kind
    return "of a format that is not known"


def _list(path: Path, kind: str) -> list[ArrayInfo]:
    if infos := _FORMATS[kind][0](path):
        return infos
    raise FileFormatError(f"{path} holds no arrays; expected at least one; export it again")


def _choose(path: Path, infos: list[ArrayInfo], name: str | None) -> ArrayInfo:
    if name is None and len(infos) == 1:
        return infos[0]
    for info in infos:
        if info.name == name:
            return info
    listed = ", ".join(f"{i.name} {i.shape}" for i in infos)
    given = "several arrays" if name is None else f"no array {name!r}"
    raise ValueError(f"{path} holds {given}; give the name of one of: {listed}")


def _require_numbers(path: Path, info: ArrayInfo) -> None:
    if info.dtype == "sparse":
        raise FileFormatError(f"{path}: {info.name} is a sparse matrix; read it by load_sparse")
    if not _NUMERIC.fullmatch(info.dtype):
        what = "pickled Python objects" if info.dtype == "object" else f"values of {info.dtype}"
        raise FileFormatError(
            f"{path}: {info.name} holds {what}; expected bool, integer, real or complex numbers;"
            " export a plain numeric array"
        )


def _require_memory(path: Path, nbytes: int, max_bytes: int | None) -> None:
    limit = min(_physical_memory(), sys.maxsize if max_bytes is None else max_bytes)
    if nbytes > limit:
        raise FileFormatError(
            f"{path} needs {nbytes} bytes of memory; at most {limit} are allowed here; export a"
            " smaller part of the data, or map a .npy file with mmap=True"
        )


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return sys.maxsize


def _require_room(where: object, claimed: int, room: int) -> None:
    if claimed > room:
        raise FileFormatError(
            f"{where} is truncated or damaged: it claims {claimed} bytes where the file holds at"
            f" most {room}; export it again"
        )


def _require_shape(where: object, shape: tuple[int, ...], itemsize: int) -> None:
    extent = math.prod(max(n, 1) for n in shape) * max(itemsize, 1)
    if min(shape, default=0) < 0 or len(shape) > 32 or extent > sys.maxsize:
        raise FileFormatError(
            f"{where} is damaged: it claims the shape {shape!s:.200}; export it again"
        )


# ---- .npy ----


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int
    nbytes: int

    def info(self, name: str) -> ArrayInfo:
        return ArrayInfo(name, self.shape, str(self.dtype), self.nbytes)


# version 3 differs from 2 in non-ASCII field names alone, and fields are refused
_VERSIONS = {
    (1, 0): npy_format.read_array_header_1_0,
    (2, 0): npy_format.read_array_header_2_0,
    (3, 0): npy_format.read_array_header_2_0,
}


def _npy_header(stream: Any, size: int, where: str) -> _Header:
    """Header of a .npy stream of `size` bytes, which must agree with it."""
    with _damage_reported(where):
        head = io.BytesIO(stream.read(_HEAD))
        version = npy_format.read_magic(head)
        if version not in _VERSIONS:
            raise FileFormatError(f"{where} has .npy version {version}; expected 1.0 to 3.0")
        shape, fortran, dtype = _VERSIONS[version](head)
    _require_shape(where, shape, dtype.itemsize)
    header = _Header(shape, fortran, dtype, head.tell(), math.prod(shape) * dtype.itemsize)
    if not dtype.hasobject:  # pickles, of any length, are listed and then refused
        _require_room(where, header.offset + header.nbytes, size)
        _require_end(where, size - header.offset - header.nbytes)
    return header


def _require_end(where: str, surplus: int) -> None:
    if surplus:
        raise FileFormatError(f"{where} has {surplus} bytes after its array; export it again")


def _npy_data(stream: Any, header: _Header, where: str) -> NDArray[Any]:
    """Read what the header declares and no more, in pieces."""
    flat: NDArray[Any] = np.empty(math.prod(header.shape), header.dtype)
    view, done = flat.view(np.uint8).data, 0
    with _damage_reported(where):
        stream.read(header.offset)
        while count := stream.readinto(view[done : done + _CHUNK]):
            done += count
        _require_room(where, len(view), done)
        _require_end(where, len(stream.read(1)))
    if not flat.dtype.isnative:
        flat = flat.byteswap(inplace=True).view(flat.dtype.newbyteorder("="))
    return flat.reshape(header.shape, order="F" if header.fortran else "C")


def _file_header(path: Path) -> _Header:
    with open(path, "rb") as file:
        return _npy_header(file, _size(path), str(path))


def _list_npy(path: Path) -> list[ArrayInfo]:
    return [_file_header(path).info(path.stem)]


def _read_npy(path: Path, info: ArrayInfo) -> NDArray[Any]:
    with open(path, "rb") as file:
        return _npy_data(file, _file_header(path), str(path))


def _map_npy(path: Path) -> NDArray[Any]:
    shape, fortran, dtype, offset, _ = _file_header(path)
    order = cast(Any, "F" if fortran else "C")
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order=order)


# ---- .npz ----


def _member_header(archive: zipfile.ZipFile, name: str, path: Path) -> _Header:
    member, where = archive.getinfo(name), f"{path}, member {name},"
    if member.flag_bits & 1:
        raise FileFormatError(f"{where} is encrypted; export it without a password")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FileFormatError(f"{where} is neither stored nor deflated; write it by np.savez")
    _require_room(where, member.file_size, _RATIO * min(member.compress_size, _size(path)))
    with archive.open(member) as stream:
        return _npy_header(stream, member.file_size, where)


def _list_npz(path: Path) -> list[ArrayInfo]:
    with _damage_reported(path), zipfile.ZipFile(path) as archive:
        names = dict.fromkeys(n for n in archive.namelist() if n.endswith(".npy"))
        return [_member_header(archive, n, path).info(n.removesuffix(".npy")) for n in names]


def _read_npz(path: Path, info: ArrayInfo) -> NDArray[Any]:
    name = f"{info.name}.npy"
    with _damage_reported(path), zipfile.ZipFile(path) as archive:
        header = _member_header(archive, name, path)
        with archive.open(name) as stream:
            return _npy_data(stream, header, f"{path}, member {name},")


def _sparse_npz(path: Path, name: str | None, max_bytes: int | None) -> Any:
    from scipy import sparse

    infos = _list_npz(path)
    for info in infos:
        if info.name != "format" or info.nbytes > 64:
            _require_numbers(path, info)
    _require_memory(path, sum(info.nbytes for info in infos), max_bytes)
    with _damage_reported(path):
        return sparse.load_npz(path)


def _to_csr(path: Path, matrix: Any, max_bytes: int | None) -> Any:
    """Convert to csr_array; indices are checked first, for SciPy's loops trust them."""
    from scipy import sparse

    with _damage_reported(path):
        if matrix.ndim != 2:
            raise FileFormatError(f"{path} has {matrix.ndim} axes; expected a sparse matrix of 2")
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
            if np.any(np.diff(matrix.indptr) < 0):  # not checked above where indptr ends in 0
                raise ValueError("the index pointers decrease")
        _require_memory(path, 8 * (matrix.shape[0] + 1), max_bytes)
        return sparse.csr_array(matrix)


# ---- .mat, version 5 ----
# Read here, not by scipy.io.loadmat: that one crashes the interpreter on damaged files.

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
    """Where a variable is in the file, and what its header says."""

    info: ArrayInfo
    order: str
    start: int
    stored: int
    inflated: int  # 0 where it is not compressed
    dtype: str  # of the values, also of a sparse matrix


def _parts(data: bytes | memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and bytes of each element inside a variable."""
    at, view = 0, memoryview(data)
    while at < len(view):
        kind, size = struct.unpack_from(f"{order}II", view, at)
        start, end = at + 8, at + 8 + size + -size % 8
        if kind >> 16:  # a short element: type, size and data in 8 bytes
            kind, size, start, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        if start + size > len(view) or start + size > end:
            raise ValueError(f"an element of {size} bytes is cut off")
        yield kind, view[start : start + size]
        at = end


def _values(part: tuple[int, memoryview], order: str) -> NDArray[Any]:
    kind, data = part
    if kind not in _TYPES:
        raise ValueError(f"there is no data type {kind}")
    return np.frombuffer(data, order + _TYPES[kind])


def _variable_info(path: Path, head: bytes, order: str, size: int) -> tuple[ArrayInfo, str]:
    """Read what the first bytes of a variable say, and the dtype of its values."""
    flags, dims, label = islice(_parts(head, order), 3)
    (bits,) = struct.unpack_from(f"{order}I", flags[1])
    kind = _CLASSES.get(bits & 0xFF, "unknown class")
    if bits & 0xFF == 17:  # objects of newer classes have no dimensions here
        dims, label = (5, memoryview(b"")), dims
    shape, name = tuple(_values(dims, order).tolist()), bytes(label[1]).decode("latin-1")
    dtype = "bool" if bits & 0x200 else "float64" if kind == "sparse" else kind
    dtype = _COMPLEX.get(dtype, f"complex {dtype}") if bits & 0x800 else dtype
    if kind == "sparse" or not _NUMERIC.fullmatch(dtype):
        return ArrayInfo(
            name, shape, "sparse" if kind == "sparse" else f"MATLAB {kind}", size
        ), dtype
    count, itemsize = math.prod(shape), np.dtype(dtype).itemsize
    _require_shape(path, shape, itemsize)
    _require_room(path, count, size)  # small integers are stored in one byte, whatever the class
    _require_room(path, size, count * max(itemsize, 8) + _SLACK)
    return ArrayInfo(name, shape, dtype, count * itemsize), dtype


def _variables(path: Path) -> list[_Variable]:
    """Walk over the variables; at most 4096 bytes of each are decompressed."""
    with _damage_reported(path), open(path, "rb") as file:
        order, at, found = "<" if file.read(128).endswith(b"IM") else ">", 128, []
        while at < _size(path):
            file.seek(at)
            tag = file.read(8)
            kind, stored = struct.unpack(f"{order}II", tag)
            _require_room(path, at + 8 + stored, _size(path))
            head = tag + file.read(min(stored, 4096))
            if kind == 15:
                head = zlib.decompressobj().decompress(head[8:], 4096)
            inner, size = struct.unpack_from(f"{order}II", head)
            if inner != 14:
                raise ValueError(f"no variable begins at byte {at}")
            _require_room(path, size, stored * (_RATIO if kind == 15 else 1))
            info, dtype = _variable_info(path, head[8:], order, size)
            inflated = size if kind == 15 else 0
            found.append(_Variable(info, order, at + 8, stored, inflated, dtype))
            at += 8 + stored
    return [v for v in found if v.info.name]  # what has no name belongs to function handles


def _list_mat5(path: Path) -> list[ArrayInfo]:
    return [variable.info for variable in _variables(path)]


def _contents(path: Path, variable: _Variable) -> list[NDArray[Any]]:
    """Arrays of numbers in a variable; never more is decompressed than it declares."""
    with open(path, "rb") as file:
        file.seek(variable.start)
        data = memoryview(file.read(variable.stored))
    if variable.inflated:
        inflater = zlib.decompressobj()
        data = memoryview(inflater.decompress(data, variable.inflated + 9))[8:]
        if len(data) != variable.inflated or not inflater.eof:
            raise ValueError(f"{variable.info.name} does not inflate to the bytes it claims")
    return [_values(part, variable.order) for part in islice(_parts(data, variable.order), 3, None)]


def _joined(parts: list[NDArray[Any]], dtype: str) -> NDArray[Any]:
    """Real and, for complex numbers, imaginary parts as one array."""
    if len(parts) != 1 + dtype.startswith("complex"):
        raise ValueError(f"{len(parts)} blocks of data for {dtype}")
    array = parts[0].astype(dtype)
    if len(parts) == 2:
        array.imag = parts[1]
    return array


def _read_mat5(path: Path, info: ArrayInfo) -> NDArray[Any]:
    variable = next(v for v in _variables(path) if v.info.name == info.name)
    with _damage_reported(path):
        array = _joined(_contents(path, variable), variable.dtype)
        return array.reshape(info.shape, order="F")


def _sparse_mat5(path: Path, name: str | None, max_bytes: int | None) -> Any:
    from scipy import sparse

    info = _choose(path, _list_mat5(path), name)
    _require_memory(path, info.nbytes, max_bytes)
    variable = next(v for v in _variables(path) if v.info.name == info.name)
    with _damage_reported(path):
        rows, starts, *parts = _contents(path, variable)
        used = int(starts[-1])
        values = _joined([part[:used] for part in parts], variable.dtype)
        return sparse.csc_array((values, rows[:used], starts), shape=info.shape)


# ---- .mat, version 7.3 ----

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
        return ArrayInfo(name, (), "a link to another place", 0)
    item = file[name]
    kind = item.attrs.get("MATLAB_class", b"no MATLAB_class")
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if "MATLAB_sparse" in item.attrs:
        shape = (int(item.attrs["MATLAB_sparse"]), len(item["jc"]) - 1)
        return ArrayInfo(name, shape, "sparse", 0)
    if kind not in _MATLAB_NUMBERS or not hasattr(item, "dtype"):
        return ArrayInfo(name, getattr(item, "shape", ())[::-1], f"MATLAB {kind}", 0)
    return _dataset_info(path, item, name, kind)


def _dataset_info(path: Path, item: Any, name: str, kind: str) -> ArrayInfo:
    chunk = math.prod(item.chunks or ()) * item.dtype.itemsize
    if item.external or item.is_virtual or chunk > max(item.nbytes, 1 << 24):
        raise FileFormatError(f"{path}: {name} is not stored as MATLAB does; export it again")
    if item.attrs.get("MATLAB_empty", 0) and item.size <= 32 and not all(item[()]):
        return ArrayInfo(name, tuple(int(n) for n in item[()]), _MATLAB_NUMBERS[kind], 0)
    _require_room(path, item.nbytes, _RATIO * _size(path))
    dtype = str(item.dtype)
    if item.dtype.names == ("real", "imag"):
        dtype = _COMPLEX.get(str(item.dtype["real"].newbyteorder("=")), dtype)
    return ArrayInfo(name, item.shape[::-1], "bool" if kind == "logical" else dtype, item.nbytes)


def _list_hdf5(path: Path) -> list[ArrayInfo]:
    with _damage_reported(path), _open_hdf5(path) as file:
        return [_hdf5_info(path, file, name) for name in file if not name.startswith("#")]


def _read_hdf5(path: Path, info: ArrayInfo) -> NDArray[Any]:
    """MATLAB writes its axes in reverse order, hence the transpose."""
    dtype = np.dtype(info.dtype).newbyteorder("=")
    with _damage_reported(path), _open_hdf5(path) as file:
        item = file[info.name]
        if info.nbytes == 0:
            return np.zeros(info.shape, dtype)
        if dtype.kind != "c":
            return np.asarray(item[()].astype(dtype, copy=False).T)
        array = np.empty(item.shape, dtype)
        array.real, array.imag = item.fields("real")[()], item.fields("imag")[()]
        return array.T


_FORMATS: dict[str, tuple[_Lister, _Reader]] = {
    "npy": (_list_npy, _read_npy),
    "zip": (_list_npz, _read_npz),
    "mat5": (_list_mat5, _read_mat5),
    "hdf5": (_list_hdf5, _read_hdf5),
}
