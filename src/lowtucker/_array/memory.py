"""Available memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["available_memory", "readable_bytes"]

# Files with the memory limit and the memory use of a container, on Linux
CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available_memory() -> int:
    """Return the bytes available without swapping, on the machine or in the container."""
    return min(_of_machine(), *(_of_container(*files) for files in CGROUPS))


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
