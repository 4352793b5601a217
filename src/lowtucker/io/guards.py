"""What all formats share: claims are compared with what a file and the memory can hold."""

from __future__ import annotations

import math
import os
import re
import secrets
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lowtucker._array import as_flag, as_integer
from lowtucker._array.errors import FileFormatError
from lowtucker._array.memory import available_memory

RATIO = 1032  # no deflated stream is larger than this many times its compressed bytes
BOMB = 10  # arrays that are this many times their file are looked at more strictly
NUMERIC = re.compile(r"bool|(u?int|float|complex)\d+|[<>][iufc]\d+")


@dataclass(frozen=True)
class ArrayInfo:
    """What a file says of one of its arrays; `nbytes` counts bytes after decompression."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


@contextmanager
def damage_reported(where: object) -> Iterator[None]:
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


def as_path(path: Any, name: str = "path") -> Path:
    """Check the name of a file."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(f'{name} must be a path such as "data.npz", got {type(path).__name__}.')
    text = os.fspath(path)
    if not text or "\0" in text:
        raise ValueError(f'{name} must be a path such as "data.npz", got {text!r}.')
    return Path(text)


def check_target(path: Path, overwrite: Any) -> None:
    """Refuse to write where something is, unless it is a file that may be replaced."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it")
    if not as_flag(overwrite, "overwrite") and os.path.lexists(path):  # a link to nowhere too
        raise FileExistsError(f"{path} exists; pass overwrite=True or give another path")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """File to write that takes the place of ``path`` when it is complete, or never.

    Where ``path`` is a link, the file that it points to is replaced.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".lowtucker-{secrets.token_hex(8)}.tmp")
    try:
        with _opened_anew(temporary, path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _opened_anew(temporary: Path, path: Path) -> BinaryIO:
    try:
        return open(temporary, "xb")
    except OSError as error:
        raise type(error)(
            f"{path} cannot be written: {error.strerror}; check the folder {path.parent}"
        ) from error


def require_file(path: Path) -> None:
    """Refuse what is not there, or no file."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path")
    if not path.is_file():
        raise FileFormatError(f"{path} is a directory or device; expected a file; check the path")


def first_bytes(path: Path) -> bytes:
    """Beginning of a file, to see what it is."""
    try:
        with open(path, "rb") as file:
            return file.read(1024)
    except PermissionError as error:
        raise PermissionError(f"{path} may not be read; change its permissions") from error


def file_size(path: Path) -> int:
    """Bytes of a file."""
    return path.stat().st_size


def choose(path: Path, infos: list[ArrayInfo], name: str | None) -> ArrayInfo:
    """Find the array that was asked for, or the only one."""
    if name is None and len(infos) == 1:
        return infos[0]
    for info in infos:
        if info.name == name:
            return info
    listed = ", ".join(f"{i.name} {i.shape}" for i in infos)
    given = "several arrays" if name is None else f"no array {name!r}"
    raise ValueError(f"{path} holds {given}; give the name of one of: {listed}")


def require_numbers(path: Path, info: ArrayInfo) -> None:
    """Refuse what is not numbers."""
    if info.dtype == "sparse":
        raise FileFormatError(f"{path}: {info.name} is a sparse matrix; read it by load_sparse")
    if not NUMERIC.fullmatch(info.dtype):
        what = "pickled Python objects" if info.dtype == "object" else f"values of {info.dtype}"
        raise FileFormatError(
            f"{path}: {info.name} holds {what}; expected bool, integer, real or complex numbers;"
            " export a plain numeric array"
        )


def require_memory(path: Path, nbytes: int, max_bytes: int | None) -> None:
    """Refuse what would not fit.

    Where an array is more than ten times its file, as in an archive of zeros, or a bomb, it may
    take half the memory that is free now, unless ``max_bytes`` says that it is meant to.
    """
    limit = memory_limit(max_bytes)
    if nbytes > limit:
        raise FileFormatError(
            f"{path} needs {nbytes} bytes of memory; at most {limit} are allowed here; export a"
            " smaller part of the data, or map a .npy file with mmap=True"
        )
    inflates = nbytes > BOMB * file_size(path)
    if max_bytes is None and inflates and 2 * nbytes > (free := available_memory()):
        raise FileFormatError(
            f"{path} inflates from {file_size(path)} to {nbytes} bytes, more than half of the"
            f" {free} that are free; where it is meant to, read it by"
            f" lowtucker.io.load_array(path, name, max_bytes={nbytes})"
        )


def memory_limit(max_bytes: Any) -> int:
    """Bytes that an array may take: ``max_bytes``, but not more than there are."""
    most = sys.maxsize if max_bytes is None else as_integer(max_bytes, "max_bytes", 0)
    return min(physical_memory(), most)


def physical_memory() -> int:
    """Bytes of memory that the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return sys.maxsize


def require_room(where: object, claimed: int, room: int) -> None:
    """Refuse a claim of more bytes than the file can hold."""
    if claimed > room:
        raise FileFormatError(
            f"{where} is truncated or damaged: it claims {claimed} bytes where the file holds at"
            f" most {room}; export it again"
        )


def require_shape(where: object, shape: tuple[int, ...], itemsize: int) -> None:
    """Refuse a shape that no array has."""
    extent = math.prod(max(n, 1) for n in shape) * max(itemsize, 1)
    if min(shape, default=0) < 0 or len(shape) > 32 or extent > sys.maxsize:
        raise FileFormatError(
            f"{where} is damaged: it claims the shape {shape!s:.200}; export it again"
        )
