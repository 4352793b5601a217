"""Threads of BLAS during a call: one, unless the user asks for more."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

__all__ = ["VARIABLE", "few_blas_threads"]

# The most threads of BLAS in a call
VARIABLE = "LOWTUCKER_BLAS_THREADS"
# By these, users set the threads of the whole process: where one is set, nothing is changed
OF_LIBRARIES = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "OMP_NUM_THREADS",
)
_lock = threading.Lock()
# Calls at work, and the libraries that the first of them limited, with their threads before
_calls = 0
_limited: list[tuple[Any, int]] = []


@contextmanager
def few_blas_threads() -> Iterator[None]:
    """Limit the BLAS of NumPy and SciPy to one thread, or to what an environment variable says.

    The threads are those of the process: calls in parallel threads share the limit, and the last
    to end lifts it. A limit that is lower already stays. Cost: some 10 microseconds.
    """
    global _calls
    most = _most()
    if most is None:
        yield
        return
    with _lock:
        _calls += 1
        if _calls == 1:
            _limited[:] = _above(most)
            for library, _ in _limited:
                library.set_num_threads(most)
    try:
        yield
    finally:
        with _lock:
            _calls -= 1
            if not _calls:
                for library, before in _limited:
                    library.set_num_threads(before)


def _most() -> int | None:
    """Most threads of a call; None where the user has set those of the process."""
    given = os.environ.get(VARIABLE)
    if given is None:
        return None if any(os.environ.get(name) for name in OF_LIBRARIES) else 1
    if not (given.isdecimal() and int(given) >= 1):
        raise ValueError(
            f"The environment variable {VARIABLE} must be a positive integer, got {given!r:.80}. "
            f"Try {VARIABLE}=1."
        )
    return int(given)


def _above(most: int) -> list[tuple[Any, int]]:
    """Libraries that use more threads, with their number."""
    counts = [(one, one.get_num_threads()) for one in _libraries("scipy.linalg" in sys.modules)]
    return [(one, count) for one, count in counts if count is not None and count > most]


@lru_cache(maxsize=2)
def _libraries(with_scipy: bool) -> list[Any]:
    """Loaded BLAS libraries. SciPy may bring its own, later than NumPy: found again then.

    To find them takes 4 ms.
    """
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="blas")
    return list(found.lib_controllers)
