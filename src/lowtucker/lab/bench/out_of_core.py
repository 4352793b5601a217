"""Recovery from a matrix on disk: time of reading, computing and recovering, and memory."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from lowtucker._array import size
from lowtucker._array.random import Seed, Stream, generator
from lowtucker.io import stored
from lowtucker.lab.bench.timing import memory_now, timed
from lowtucker.metrics import relative_error
from lowtucker.operators import DenseOperator
from lowtucker.operators.streamed import BLOCK_BYTES
from lowtucker.recovery import recover
from lowtucker.tensor import TangentSpace, TuckerTensor, random_tucker

__all__ = [
    "AnonymousMemory",
    "Timings",
    "free_space",
    "measure",
    "pass_times",
    "read_once",
    "write_matrix",
]

NumPyArray = np.ndarray[Any, Any]
DTYPE = np.dtype(np.float32)
# Bytes of the matrix written at a time
WRITTEN = 1 << 24
# Bytes of the matrix on which a pass from memory is timed; larger than the caches
IN_MEMORY = 1 << 28
# Seconds between two samples of the memory
INTERVAL = 0.02


class Timings(NamedTuple):
    """Timings of a matrix on disk in seconds, and anonymous memory in MB."""

    read: float  # of the file
    compute: float  # a pass over rows in memory
    both: float  # the same pass from disk
    recover: float
    passes: float
    error: float
    memory: float


class AnonymousMemory:
    """Context manager that records the peak anonymous memory of this process, in MB.

    File-backed pages are not counted: the system reclaims them on demand. NaN without /proc.
    """

    def __enter__(self) -> Self:
        self.peak = memory_now("RssAnon")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(INTERVAL):
            self._look()

    def _look(self) -> None:
        self.peak = max(self.peak, memory_now("RssAnon"))


def free_space(folder: str | None) -> int:
    """Return the free bytes in a folder; None is the system's temporary folder."""
    return shutil.disk_usage(tempfile.gettempdir() if folder is None else folder).free


def measure(folder: str | None, shape: tuple[int, ...], rank: tuple[int, ...], m: int) -> Timings:
    """Write a matrix, time passes over it, and recover a tensor from it.

    Parameters
    ----------
    folder : str or None
        Parent of a temporary folder, which is removed at the end.
    shape, rank : tuple of int
    m : int
    """
    X_true = random_tucker(shape, rank, seed=0)
    with tempfile.TemporaryDirectory(prefix="lowtucker-", dir=folder) as scratch:
        path = Path(scratch) / "A.npy"
        y = write_matrix(path, X_true, m, seed=0)
        read, compute, both = pass_times(path, random_tucker(shape, rank, 1, dtype=DTYPE), y)
        _forget(path)
        with AnonymousMemory() as memory:
            result, seconds = timed(lambda: recover(stored(path, shape), y, rank))
    error = float(relative_error(result.X, X_true))
    return Timings(read, compute, both, seconds, float(result.passes), error, memory.peak)


def pass_times(path: Path, X: TuckerTensor, y: NumPyArray, repeats: int = 3) -> list[float]:
    """Return the seconds of reading a file, of a pass from memory, and of a pass from disk.

    The pass is that of a Gauss-Newton step at X: the normal equations of the tangent design. From
    memory it is timed on a part of the rows. The times are medians of interleaved calls; before
    each call the file is dropped from the system's cache, if supported.
    """
    T = TangentSpace(X)
    height = max(1, IN_MEMORY // (DTYPE.itemsize * size(X.shape)))
    some = DenseOperator(np.array(np.load(path, mmap_mode="r")[:height]), X.shape)
    actions: list[Callable[[], Any]] = [
        lambda: read_once(path),
        lambda: some.tangent(T).normal_equations(y[: some.m]),
        lambda: stored(path, X.shape).tangent(T).normal_equations(y),
    ]
    times = np.empty((repeats, len(actions)))
    for k in range(repeats):
        for i, action in enumerate(actions):
            _forget(path)
            _, times[k, i] = timed(action)
    scale = [1, len(y) / some.m, 1]
    return [float(seconds) for seconds in np.median(times, axis=0) * scale]


def write_matrix(path: Path, X_true: TuckerTensor, m: int, seed: Seed) -> NumPyArray:
    """Write a Gaussian matrix in single precision block by block; return measurements with it.

    The measurements use the rounded numbers, in double precision.
    """
    x = X_true.full().reshape(-1)
    rng = generator(seed, Stream.OPERATOR)
    y = np.empty(m)
    header = {"descr": DTYPE.str, "fortran_order": False, "shape": (m, x.size)}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        height = max(1, WRITTEN // (DTYPE.itemsize * x.size))
        for start in range(0, m, height):
            rows = slice(start, min(start + height, m))
            block = rng.standard_normal((rows.stop - start, x.size), dtype=np.float32)
            y[rows] = block.astype(np.float64) @ x
            block.tofile(file)
        file.flush()
        os.fsync(file.fileno())  # unwritten pages cannot be dropped from the cache
    return y


def read_once(path: Path) -> int:
    """Read all rows of a file once into one buffer, in an operator's blocks; return the bytes.

    The file is reopened for each block, as the operator does: the read-ahead of Linux made a file
    that stays open up to five times slower.
    """
    rows = np.load(path, mmap_mode="r")
    buffer = np.empty(max(1, BLOCK_BYTES // rows[0].nbytes) * rows[0].nbytes, np.uint8)
    done = 0
    for start in range(rows.offset, rows.offset + rows.nbytes, buffer.size):
        with open(path, "rb", buffering=0) as file:
            file.seek(start)
            done += file.readinto(buffer.data)
    return done


def _forget(path: Path) -> None:
    """Drop a file from the system's cache, if supported."""
    if hasattr(os, "posix_fadvise"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
