"""Available memory, and what does not fit into it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["available_memory", "check_full", "check_room", "readable_bytes"]

# Bytes that are always there: to ask the system takes 50 microseconds
NOTICEABLE = 1 << 27

# Files with the memory limit and the memory use of a container, on Linux
CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def check_room(nbytes: int, what: str, advice: str) -> None:
    """Refuse what does not fit into memory, before any of it is taken.

    Everything that makes arrays of a size that a user gives calls it first. NumPy would raise
    ``MemoryError`` in the middle of the work, or the system would end the process.

    Parameters
    ----------
    nbytes : int
        What is needed.
    what : str
        What needs it, as the beginning of a sentence.
    advice : str
        What to try.

    Examples
    --------
    >>> check_room(10**3, "A list", "Try a shorter one.")
    >>> check_room(10**18, "A list", "Try a shorter one.")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: A list would take 1e+06 TB, and ... free. Try a shorter one.
    """
    if nbytes > NOTICEABLE and nbytes > (free := available_memory()):
        raise ValueError(
            f"{what} would take {readable_bytes(nbytes)}, and {readable_bytes(free)} are free. "
            f"{advice}"
        )


def check_full(shape: tuple[int, ...], dtype: Any) -> None:
    """Refuse a full tensor, or a batch of them, that does not fit into memory."""
    count = getattr(dtype, "itemsize", 8)
    for n in shape:
        count *= n
    if count > NOTICEABLE:
        advice = "Try entries of it, such as X.entries(indices), or a smaller shape."
        check_room(count, f"A full tensor of shape {shape}", advice)


def available_memory() -> int:
    """Return the bytes available without swapping: of the machine, container and process."""
    return min(_of_machine(), _of_process(), *(_of_container(*files) for files in CGROUPS))


def _of_process() -> int:
    """Address space that is left where it is limited (``ulimit -v``)."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return sys.maxsize
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return max(0, limit - pages * resource.getpagesize())
    except (ImportError, OSError, ValueError, AttributeError):  # not Linux
        return sys.maxsize


def _of_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        return 1024 * int(kilobytes)
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return sys.maxsize


def _of_container(limit: str, used: str) -> int:
    try:
        return max(0, int(Path(limit).read_text()) - int(Path(used).read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return sys.maxsize


def readable_bytes(count: int) -> str:
    """Format a number of bytes with a unit.

    Examples
    --------
    >>> readable_bytes(999), readable_bytes(233_280_000), readable_bytes(2_000_000_000)
    ('999 bytes', '233 MB', '2 GB')
    """
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"
