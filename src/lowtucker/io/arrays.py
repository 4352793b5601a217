"""Read and write arrays in files; nothing is unpickled and sizes are checked before reading.

Each format has one function that lists its arrays from the headers and one that reads a listed
array. The declared sizes are checked against the file and the memory in between.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import ArrayLike, NDArray

from lowtucker._array import as_flag
from lowtucker._array.errors import FileFormatError
from lowtucker.io.guards import (
    ArrayInfo,
    as_path,
    check_target,
    choose,
    damage_reported,
    first_bytes,
    replacing,
    require_file,
    require_memory,
    require_numbers,
)
from lowtucker.io.hdf5_files import HDF5, list_h5, read_h5
from lowtucker.io.matlab_files import list_hdf5, list_mat5, read_hdf5, read_mat5, sparse_mat5
from lowtucker.io.numpy_files import (
    list_npy,
    list_npz,
    map_npy,
    read_members,
    read_npy,
    read_npz,
    sparse_npz,
)
from lowtucker.operators.sparse import check_sparse

__all__ = ["ArrayInfo", "describe", "is_sparse", "load_array", "load_sparse", "save_arrays"]

_SPARSE_MEMBERS = {"format", "shape", "data"}
_KINDS = {
    ".npy": ("npy",),
    ".npz": ("zip",),
    ".mat": ("mat5", "hdf5"),
    **dict.fromkeys(HDF5, ("hdf5",)),
}
_LOOKS = {
    "npy": "a NumPy .npy file",
    "zip": "a zip archive (.npz files are such archives)",
    "mat5": "a MATLAB version 5 file",
    "hdf5": "an HDF5 file (MATLAB version 7.3 files are such files)",
}
_MAGIC = [
    (0, rb"\x93NUMPY", "npy"),
    (0, rb"PK(\x03\x04|\x05\x06)", "zip"),
    (0, rb"\s*<(!doctype html|html|head|body)", "an HTML page, perhaps from a failed download"),
    (0, rb"version https://git-lfs", "a Git LFS pointer, not the data; run git lfs pull"),
    (0, rb"\x80[\x02-\x05]", "a pickle, which is never read"),
    (0, rb"\x1f\x8b", "a gzip file; unpack it first"),
    (0, rb"\x89HDF\r\n\x1a\n", "hdf5"),
    (512, rb"\x89HDF\r\n\x1a\n", "hdf5"),
    (124, rb"\x00\x01IM|\x01\x00MI", "mat5"),
    (0, rb"[\t\n\r -~]+\Z", "plain text"),
    (0, rb"\Z", "empty"),
]


_Lister = Callable[[Path], list[ArrayInfo]]
_Reader = Callable[[Path, ArrayInfo], NDArray[Any]]


def load_array(
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    mmap: bool = False,
    max_bytes: int | None = None,
) -> NDArray[Any]:
    """Read one array of numbers from a ``.npy``, ``.npz``, ``.mat`` or HDF5 (``.h5``) file.

    Parameters
    ----------
    path : path-like
        The file; its content must match its suffix.
    name : str, optional
        Name of the array. Required only if the file holds several.
    mmap : bool
        Map a ``.npy`` file read-only, in the byte order of the file, instead of reading it.
    max_bytes : int, optional
        Reject larger arrays. The physical memory is also a limit, except with `mmap` alone. An
        array more than ten times as large as its file, as in a decompression bomb, may take at
        most half of the free memory unless `max_bytes` is given.

    Returns
    -------
    ndarray
        In native byte order, with its shape in NumPy or MATLAB.

    Raises
    ------
    FileFormatError
        If the file is damaged, of another format, too large, or not numeric.
    ValueError
        If `name` does not identify an array.
    """
    path, kind = _identify(path)
    if as_flag(mmap, "mmap") and kind != "npy":
        raise ValueError(f"{path}: only .npy files can be mapped; use mmap=False or np.save it")
    infos = _list(path, kind)
    if name is None and {i.name for i in infos} >= _SPARSE_MEMBERS:
        raise FileFormatError(f"{path} holds a sparse matrix; read it with load_sparse")
    info = choose(path, infos, name)
    require_numbers(path, info)
    if not mmap or max_bytes is not None:
        require_memory(path, info.nbytes, max_bytes)
    return map_npy(path) if mmap else _FORMATS[kind][1](path, info)


def load_members(path: str | os.PathLike[str], infos: Sequence[ArrayInfo]) -> dict[str, Any]:
    """Read arrays of numbers that :func:`describe` listed in an ``.npz`` file."""
    path = as_path(path)
    for info in infos:
        require_numbers(path, info)
    require_memory(path, sum(info.nbytes for info in infos), None)
    return read_members(path, infos)


def load_sparse(
    path: str | os.PathLike[str], name: str | None = None, *, max_bytes: int | None = None
) -> Any:
    """Read a sparse matrix from a SciPy ``.npz`` file or a MATLAB version 5 ``.mat`` file.

    Parameters
    ----------
    path : path-like
        A file written by `scipy.sparse.save_npz` or MATLAB's ``save -v7``.
    name : str, optional
        Name of the variable. Required only if a ``.mat`` file holds several.
    max_bytes : int, optional
        Reject larger matrices; the physical memory is always a limit.

    Returns
    -------
    scipy.sparse.csr_array
    """
    path, kind = _identify(path)
    if not is_sparse(path, name):
        raise FileFormatError(f"{path} holds no sparse matrix; read it with load_array")
    if kind == "hdf5":
        raise FileFormatError(
            f"{path} is sparse in MATLAB's version 7.3, which is not supported; save it with -v7"
        )
    matrix = (sparse_npz if kind == "zip" else sparse_mat5)(path, name, max_bytes)
    return _to_csr(path, matrix, max_bytes)


def is_sparse(path: str | os.PathLike[str], name: str | None = None) -> bool:
    """Return whether the file (or its variable `name`) holds a sparse matrix."""
    path, kind = _identify(path)
    infos = _list(path, kind)
    if kind == "zip":
        return name is None and {i.name for i in infos} >= _SPARSE_MEMBERS
    return choose(path, infos, name).dtype == "sparse"


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
    """Write named arrays to an ``.npz`` file atomically.

    Parameters
    ----------
    path : path-like
        The file to write; it must end in ``.npz``.
    arrays : mapping of str to array_like
        Booleans, integers, real or complex numbers.
    overwrite : bool
        Replace an existing file.
    """
    path = as_path(path)
    if path.suffix.lower() != ".npz":
        raise ValueError(f"cannot write {path}; expected a path ending in .npz; rename it")
    check_target(path, overwrite)
    if not isinstance(arrays, Mapping):
        raise TypeError(
            f'arrays must be named, as in {{"y": y}}, got {type(arrays).__name__}; pass a dict'
        )
    if not arrays:
        raise ValueError(f"no arrays given for {path}; expected at least one, as {{'y': y}}")
    checked = {_checked_name(name): _checked_array(name, a) for name, a in arrays.items()}
    with replacing(path) as file:
        _write_npz(file, checked)


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name or set(name) & set("/\\\0"):
        raise ValueError(f"array name {name!r}: expected a non-empty name without slashes")
    return name


def _checked_array(name: str, value: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"array {name!r} has rows of unequal length; expected an array; pad them"
        ) from error
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"array {name!r} has dtype {array.dtype}; expected bool, integer, real or complex"
            " numbers; convert it, for example with np.asarray(..., dtype=float)"
        )
    return array


def _write_npz(file: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # fixed date: equal arrays, equal bytes
            with archive.open(member, "w", force_zip64=True) as stream:
                npy_format.write_array(stream, array, allow_pickle=False)


def _identify(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """Return path and kind of a file by its first bytes; reject a mismatched suffix."""
    path = as_path(path)
    require_file(path)
    known = ", ".join(_KINDS)
    if path.suffix.lower() not in _KINDS:
        raise FileFormatError(f"{path} has the suffix {path.suffix!r}; supported: {known}")
    head = first_bytes(path)
    kind = _sniff(head)
    if kind not in _KINDS[path.suffix.lower()]:
        looks = looks_like(head)
        raise FileFormatError(
            f"{path} is {looks}; expected the content of a {path.suffix} file; export it again"
            f" as one of {known}, or correct the suffix"
        )
    return path, "h5" if path.suffix.lower() in HDF5 else kind


def looks_like(head: bytes) -> str:
    """Describe a file by its first bytes."""
    kind = _sniff(head)
    return _LOOKS.get(kind, kind)


def _sniff(head: bytes) -> str:
    for offset, magic, kind in _MAGIC:
        if re.match(magic, head[offset:], re.IGNORECASE):
            return kind
    return "of an unknown format"


def _list(path: Path, kind: str) -> list[ArrayInfo]:
    if infos := _FORMATS[kind][0](path):
        return infos
    raise FileFormatError(f"{path} holds no arrays; expected at least one; export it again")


def _to_csr(path: Path, matrix: Any, max_bytes: int | None) -> Any:
    """Convert to csr_array; check the indices first, which SciPy does not."""
    from scipy import sparse

    with damage_reported(path):
        check_sparse(matrix)
        require_memory(path, _bytes_as_csr(matrix), max_bytes)
        return sparse.csr_array(matrix)


def _bytes_as_csr(matrix: Any) -> int:
    """Bytes of a matrix in CSR form, and of the check of its rows."""
    return int(matrix.data.size * (matrix.data.itemsize + 8) + 9 * (matrix.shape[0] + 1))


_FORMATS: dict[str, tuple[_Lister, _Reader]] = {
    "npy": (list_npy, read_npy),
    "zip": (list_npz, read_npz),
    "mat5": (list_mat5, read_mat5),
    "hdf5": (list_hdf5, read_hdf5),
    "h5": (list_h5, read_h5),
}
