"""A limit on the memory that reading a file may take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["bounded_memory"]

# Bytes for all but the array: threads, buffers, previews
SLACK = 200_000_000


@contextmanager
def bounded_memory(name: str, most: int) -> Iterator[None]:
    """Let the address space of this process grow by ``most`` bytes and some slack at most.

    A reader may be deceived about the size of an array: the system is not. Where there is no such
    limit (not Linux) nothing is done.

    Raises
    ------
    ValueError
        If the limit is reached.
    """
    try:
        with _limited(most + SLACK):
            yield
    except Exception as error:
        if not _out_of_memory(error):
            raise
        raise ValueError(
            f"{name} takes more than {most / 1e6:g} MB of memory to read, the limit of this page. "
            "Cut it, or use Python, which has no such limit."
        ) from error


@contextmanager
def _limited(nbytes: int) -> Iterator[None]:
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    wanted = pages * resource.getpagesize() + nbytes
    if before[1] != resource.RLIM_INFINITY:
        wanted = min(wanted, before[1])
    resource.setrlimit(resource.RLIMIT_AS, (wanted, before[1]))
    try:
        yield
    finally:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, before)


def _out_of_memory(error: BaseException | None) -> bool:
    """Whether a MemoryError is behind an error."""
    return error is not None and (
        isinstance(error, MemoryError) or _out_of_memory(error.__cause__ or error.__context__)
    )
