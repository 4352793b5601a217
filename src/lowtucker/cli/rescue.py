"""Keep a result whose file cannot be written, such as on a full disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["FAILURES", "save_or_keep"]

# Why a file may not be written though all was well at the start: a full disk, a folder that has
# vanished, something else of its name, no memory for the full tensor
FAILURES = (OSError, ValueError, MemoryError)


def save_or_keep(
    write: Callable[[], None], keep: Callable[[Path], None], path: Path, what: str = "result"
) -> None:
    """Write a file; if that fails, write the result elsewhere and raise an error that says where.

    Parameters
    ----------
    write : callable
        Writes what was asked for.
    keep : callable
        Writes the result to the ``.npz`` file that it is given.
    path : Path
        The file that ``write`` writes.
    what : str
        What is kept, for the message.
    """
    from lowtucker.io.guards import WriteError

    try:
        write()
    except FAILURES as error:
        found, tried = _kept(keep, f"{path.stem}.npz")
        where = (
            f"The {what} is in {found}"
            if found
            else f"There is no room in {', '.join(map(str, tried))} either: the {what} is lost. "
            "Free some space and run the command again; with --checkpoint on a disk with room, a "
            "run of `recover`, `complete` or `stream` resumes"
        )
        reason = getattr(error, "reason", f"{path} cannot be written: {error}")
        raise WriteError(f"{reason}. {where}") from error


def _kept(keep: Callable[[Path], None], name: str) -> tuple[Path | None, list[Path]]:
    """Write to a new folder, which others cannot read, where there is room; say what was tried."""
    tried = []
    for place in _places():
        with suppress(*FAILURES):
            tried.append(place)
            folder = Path(tempfile.mkdtemp(prefix="lowtucker-kept-", dir=place))
            try:
                keep(folder / name)
                return folder / name, tried
            except BaseException:
                folder.rmdir()
                raise
    return None, tried


def _places() -> list[Path]:
    """Folders that may have room: for temporary files, the home, the present one, memory."""
    found = []
    for named in (tempfile.gettempdir, Path.home, os.getcwd, lambda: "/dev/shm"):
        with suppress(OSError, RuntimeError):  # there is none
            found.append(Path(named()))
    return [place for place in dict.fromkeys(found) if place.is_dir()]
