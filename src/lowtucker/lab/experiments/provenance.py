"""Provenance of results: version, machine, time."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime

import numpy as np

from lowtucker._version import __version__
from lowtucker.io.guards import physical_memory

__all__ = ["machine"]


def machine() -> dict[str, str]:
    """Describe the machine and the software, for a report."""
    import scipy

    return {
        "lowtucker": __version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "SciPy": scipy.__version__,
        "BLAS": _blas(),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _blas() -> str:
    from threadpoolctl import threadpool_info

    libraries = [pool for pool in threadpool_info() if pool.get("user_api") == "blas"]
    names = (f"{pool['internal_api']} {pool.get('version')}" for pool in libraries)
    return ", ".join(dict.fromkeys(names)) or "unknown"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> str:
    total = physical_memory()
    return "unknown" if total == sys.maxsize else f"{total / 2**30:.0f} GiB"
