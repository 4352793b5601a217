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
from typing import BinaryIO

from lowtucker._errors import FileFormatError

RATIO = 1032  # no deflated stream is larger than this many times its compressed bytes
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


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """File to write that takes the place of ``path`` when it is complete, or never."""
    temporary = path.with_name(f".lowtucker-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


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
    """Refuse what would not fit."""
    limit = min(physical_memory(), sys.maxsize if max_bytes is None else max_bytes)
    if nbytes > limit:
        raise FileFormatError(
            f"{path} needs {nbytes} bytes of memory; at most {limit} are allowed here; export a"
            " smaller part of the data, or map a .npy file with mmap=True"
        )


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
