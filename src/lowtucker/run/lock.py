"""A lock on a file that one call at a time may write, whatever process, thread or host it is in."""

from __future__ import annotations

import errno
import os
import platform
import stat
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["FileLock"]

# How the text begins
HEAD = "lowtucker lock of "
# How it is opened: no link is followed, which may lead to a file of somebody else
HOW = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
# What systems say of a lock that another one has
HELD = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}


class FileLock:
    """Holds a file for one call; the operating system releases it when the process ends.

    The lock is on a text beside the file, with ``.lock`` added to its name, which says who has it.
    It is a lock of the operating system, and not the existence of the text: what a killed process
    leaves, on this host or another, blocks nobody. The text is deleted when the lock is released.
    On file systems without locks (some network drives) nobody is refused.

    Parameters
    ----------
    path : Path
        The file.
    what : str
        What it is, for the message.

    Raises
    ------
    BlockingIOError
        Another call holds it; the message names its process and host.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path.with_name(path.name + ".lock")
        self._file: int | None = None
        while self._file is None:
            try:
                file = os.open(self.path, HOW, 0o666)
            except OSError:  # a folder or a link; the file itself will tell if there is no room
                return
            if not stat.S_ISREG(os.fstat(file).st_mode):  # a pipe
                os.close(file)
                return
            try:
                _lock(file)
            except OSError as error:
                owner = _owner(file)
                os.close(file)
                if error.errno not in HELD:
                    return
                raise BlockingIOError(
                    f"{what} {path} is in use by {owner}. Wait until that call has ended, or give "
                    "this one a file of its own."
                ) from None
            if not _text(file).startswith(HEAD[: os.fstat(file).st_size]):
                os.close(file)  # somebody's own file
                return
            if _is_at(file, self.path):
                self._file = file
            else:  # the one before has deleted it in between
                os.close(file)
        with suppress(OSError):  # a full disk
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
            os.write(self._file, (HEAD + _my_name()).encode())

    def release(self) -> None:
        """Let others have the file."""
        if self._file is None:
            return
        file, self._file = self._file, None
        with suppress(OSError):  # Windows deletes no open file
            self.path.unlink()  # while it is held, and so nobody else's
        os.close(file)


def _lock(file: int) -> None:
    """Lock an open file against all others who open it, threads of this process included."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(file, 1 << 20, os.SEEK_SET)  # beyond the text, which others may read
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _text(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    return os.read(file, 200).decode(errors="replace")


def _owner(file: int) -> str:
    name = ""
    with suppress(OSError):
        name = _text(file).removeprefix(HEAD)
    mine = ", which is this one: by another thread, or the call around this one"
    return f"{name or 'another process'}{mine if name == _my_name() else ''}"


def _my_name() -> str:
    return f"process {os.getpid()} on {platform.node() or 'this host'}"
