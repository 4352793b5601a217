"""Checks shared by all formats: declared sizes against the file and the memory."""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from lowtucker._array import as_flag, as_integer
from lowtucker._array.errors import FileFormatError
from lowtucker._array.memory import available_memory

RATIO = 1032  # largest compression ratio of deflate
BOMB = 10  # arrays larger than this many times their file have a stricter limit
NUMERIC = re.compile(r"bool|(u?int|float|complex)\d+|[<>][iufc]\d+")


@dataclass(frozen=True)
class ArrayInfo:
    """Header of an array in a file; `nbytes` is the size after decompression."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


@contextmanager
def damage_reported(where: object) -> Iterator[None]:
    """Convert any exception of a reader to FileFormatError and suppress warnings."""
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
    """Check and convert a path."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(f'{name} must be a path such as "data.npz", got {type(path).__name__}.')
    text = os.fspath(path)
    if not text or "\0" in text:
        raise ValueError(f'{name} must be a path such as "data.npz", got {text!r}.')
    return Path(text)


class WriteError(OSError):
    """A file could not be written; a file that was there before is unchanged.

    Attributes
    ----------
    reason : str
        The path, why it cannot be written, and what to try; the message says, too, that nothing is
        lost as long as the program runs.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}. What was to be written is still in memory, and a file that was there is "
            "unchanged."
        )
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:  # for errors of other processes
        return WriteError, (self.reason,)


# What to try, by the reason why a file cannot be written
_REMEDIES = {
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ENOENT: "create the folder {folder}, or give another one",
    errno.ENOTDIR: "{folder} is not a folder: give another one",
    errno.EACCES: "change the permissions of {folder}, or give another folder",
    errno.EPERM: "change the permissions of {folder}, or give another folder",
    errno.EROFS: "give a folder on another disk",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or give another disk",
}


def check_target(path: Path, overwrite: Any = True) -> None:
    """Raise an error if a file cannot be written at a path, or must not be replaced.

    Folders, pipes, sockets and devices are never replaced. The folder must accept a byte: one that
    is read-only or on a full disk is found before the work begins. Costs about 0.1 ms.
    """
    _check_kind(path)
    if not as_flag(overwrite, "overwrite") and os.path.lexists(path):  # also a broken link
        raise FileExistsError(f"{path} exists; pass overwrite=True or give another path")
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(path))) as file:
            file.write(b"\0")
    except (FileNotFoundError, NotADirectoryError) as error:  # the path may be wrong
        raise type(error)(_unwritten(path, error).reason) from error
    except OSError as error:
        raise _unwritten(path, error) from error


def _check_kind(path: Path) -> None:
    """Raise an error if there is something other than a file at a path."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritten(path, error) from error
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder; give a file name")
    if not stat.S_ISREG(mode):
        raise FileFormatError(
            f"{path} is a pipe, a socket or a device; expected a file; give another name"
        )


def _unwritten(path: Path, error: OSError) -> WriteError:
    """Error for a file that cannot be written: the reason, and what to try."""
    remedy = _REMEDIES.get(error.errno or 0, "free some space, or give a folder on another disk")
    advice = remedy.format(folder=path.absolute().parent)
    made = WriteError(f"{path} cannot be written: {error.strerror or error}; {advice}")
    made.errno = error.errno
    return made


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file that replaces ``path`` on success.

    If ``path`` is a link, its target is replaced. Whatever fails, the file that was there is
    unchanged and no temporary file remains; after a kill one named ``.lowtucker-*.tmp`` may.

    Raises
    ------
    WriteError
        For any OSError; the message has the path, the reason and what to try.
    """
    _check_kind(path)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".lowtucker-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        with suppress(OSError):  # such as a folder that has become read-only
            temporary.unlink(missing_ok=True)


def require_file(path: Path) -> None:
    """Raise an error if the path is not an existing file."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path")
    if not path.is_file():
        raise FileFormatError(f"{path} is a directory or device; expected a file; check the path")


def first_bytes(path: Path) -> bytes:
    """Return the first 1024 bytes of a file."""
    try:
        with open(path, "rb") as file:
            return file.read(1024)
    except PermissionError as error:
        raise PermissionError(f"{path} is not readable; change its permissions") from error


def file_size(path: Path) -> int:
    """Return the size of a file in bytes."""
    return path.stat().st_size


def choose(path: Path, infos: list[ArrayInfo], name: str | None) -> ArrayInfo:
    """Return the array of the given name, or the only one."""
    if name is None and len(infos) == 1:
        return infos[0]
    for info in infos:
        if info.name == name:
            return info
    listed = ", ".join(f"{i.name} {i.shape}" for i in infos)
    given = "several arrays" if name is None else f"no array {name!r}"
    raise ValueError(f"{path} holds {given}; give the name of one of: {listed}")


def require_numbers(path: Path, info: ArrayInfo) -> None:
    """Raise FileFormatError if the array is not numeric."""
    if info.dtype == "sparse":
        raise FileFormatError(f"{path}: {info.name} is a sparse matrix; read it with load_sparse")
    if not NUMERIC.fullmatch(info.dtype):
        what = "pickled Python objects" if info.dtype == "object" else f"values of {info.dtype}"
        raise FileFormatError(
            f"{path}: {info.name} holds {what}; expected bool, integer, real or complex numbers;"
            " export a plain numeric array"
        )


def require_memory(path: Path, nbytes: int, max_bytes: int | None) -> None:
    """Raise FileFormatError if an array does not fit into memory.

    An array more than ten times as large as its file, as in a decompression bomb, may take at most
    half of the free memory unless ``max_bytes`` is given.
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
            f" {free} that are free; if this is intended, use"
            f" lowtucker.io.load_array(path, name, max_bytes={nbytes})"
        )


def memory_limit(max_bytes: Any) -> int:
    """Return the smaller of ``max_bytes`` and the physical memory."""
    most = sys.maxsize if max_bytes is None else as_integer(max_bytes, "max_bytes", 0)
    return min(physical_memory(), most)


def physical_memory() -> int:
    """Return the physical memory in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return sys.maxsize


def require_room(where: object, claimed: int, room: int) -> None:
    """Raise FileFormatError if a declared size exceeds the bytes available."""
    if claimed > room:
        raise FileFormatError(
            f"{where} is truncated or damaged: it claims {claimed} bytes where the file holds at"
            f" most {room}; export it again"
        )


def require_shape(where: object, shape: tuple[int, ...], itemsize: int) -> None:
    """Raise FileFormatError for an impossible shape."""
    extent = math.prod(max(n, 1) for n in shape) * max(itemsize, 1)
    if min(shape, default=0) < 0 or len(shape) > 32 or extent > sys.maxsize:
        raise FileFormatError(
            f"{where} is damaged: it claims the shape {shape!s:.200}; export it again"
        )
