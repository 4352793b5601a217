"""Overhead and traffic of a Dask cluster: ``lowtucker bench dask``."""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from lowtucker.lab.bench.timing import Row, holds, side_by_side
from lowtucker.operators import DenseOperator, from_dask
from lowtucker.problem import Problem
from lowtucker.solvers import RGN
from lowtucker.tensor import random_tucker

__all__ = ["run"]

SHAPE, RANK = (30, 30, 30), (3, 3, 3)
N = 27000
# Rows of a chunk: 62 MB
CHUNK = 288


def run(gigabytes: float = 1.0, repeats: int = 7) -> Iterator[Row]:
    """Yield the rows of the benchmark as they are measured.

    Parameters
    ----------
    gigabytes : float
        Size of A, which is held in memory here and once more on the two workers.
    repeats : int
    """
    chunks = max(2, round(gigabytes * 1e9 / (CHUNK * N * 8)))
    yield from overhead_rows(chunks, repeats)
    yield from traffic_rows(max(1, chunks // 8))


def overhead_rows(chunks: int, repeats: int) -> list[Row]:
    """Time an RGN iteration on two workers and in one process with two BLAS threads."""
    from threadpoolctl import threadpool_limits

    matrix = np.concatenate([rows(k) for k in range(chunks)])
    here = step_of(DenseOperator(matrix, SHAPE))
    with cluster(2) as client:
        there = step_of(from_dask(lazily(chunks), SHAPE, client=client))
        few = step_of(from_dask(lazily(2)[::CHUNK], SHAPE, client=client))

        def alone(threads: int) -> Callable[[], Any]:
            def iteration() -> Any:
                with threadpool_limits(threads, user_api="blas"):
                    return here()

            return iteration

        times = side_by_side(
            {"one process": alone(2), "one thread": alone(1), "2 workers": there,
             "2 workers, 2 rows": few},
            repeats, clock=time.perf_counter,
        )  # fmt: skip
    size = matrix.nbytes / 1e9
    detail = ", ".join(f"{name} {took.text(1e3, 'ms')}" for name, took in times.items())
    workers = times["2 workers"].median
    detail += f"; A {size:.2f} GB, {size / workers / 2:.2f} GB/s per worker"
    ratio = workers / times["one process"].median
    what = "RGN iteration: 2 workers / one process"
    return [Row(what, ratio, "<= 1.3", holds(ratio, "<= 1.3"), detail)]


def traffic_rows(chunks: int) -> list[Row]:
    """Count the bytes transferred by an RGN iteration, by rows and by workers."""
    bytes_by_m, bytes_by_workers = {}, {}
    with cluster(2) as client:
        for times in (1, 2, 4):
            A = from_dask(lazily(4 * chunks, CHUNK * times // 4), SHAPE, client=client)
            bytes_by_m[A.m] = moved_by(step_of(A))
    for workers in (1, 2, 4):
        with cluster(workers) as client:
            A = from_dask(lazily(4 * chunks, CHUNK // 4), SHAPE, client=client)
            bytes_by_workers[workers] = moved_by(step_of(A))
    return [
        _traffic("bytes moved by an RGN iteration: 4 m rows / m", bytes_by_m, "m = ", "<= 1.1"),
        _traffic("bytes moved: 4 workers / 1", bytes_by_workers, "workers: ", "<= 5"),
    ]


def _traffic(what: str, measured: dict[int, float], unit: str, target: str) -> Row:
    detail = ", ".join(f"{unit}{k} {moved / 1e6:.2f} MB" for k, moved in measured.items())
    least, most = min(measured), max(measured)
    ratio = measured[most] / measured[least]
    return Row(what, ratio, target, holds(ratio, target), detail)


def rows(k: int, count: int = CHUNK) -> np.ndarray[Any, Any]:
    """Return chunk k of A; any worker can generate it."""
    return np.random.default_rng((0, k)).standard_normal((count, N))


def lazily(chunks: int, count: int = CHUNK) -> Any:
    """Return A as a Dask array."""
    import dask
    import dask.array as da

    load = dask.delayed(rows, pure=True)
    return da.concatenate(
        [da.from_delayed(load(k, count), (count, N), float) for k in range(chunks)]
    )


def step_of(A: Any) -> Callable[[], Any]:
    """Return a Gauss-Newton iteration of a noisy problem, from a tensor near the truth."""
    X = random_tucker(SHAPE, RANK, seed=0)
    y = A.forward(X)
    rng = np.random.default_rng(1)
    problem = Problem(A, y + 0.1 * np.std(y) * rng.standard_normal(A.m))
    solver = RGN().bind(problem, RANK)
    state = solver.init(X + 0.1 * random_tucker(SHAPE, RANK, seed=2), 0)
    return partial(solver.advance, state)


def moved_by(action: Callable[[], Any], repeats: int = 5) -> float:
    """Return the median bytes per call over the loopback interface, heartbeats included."""
    action()
    moved = []
    for _ in range(repeats):
        before = _loopback()
        action()
        moved.append(_loopback() - before)
    return statistics.median(moved)


def _loopback() -> int:
    import psutil

    time.sleep(0.05)
    counters = psutil.net_io_counters(pernic=True)
    name = next((name for name in ("lo", "lo0") if name in counters), None)
    if name is None:
        raise OSError(f"bench dask needs a loopback interface, not found on {os.name}.")
    return int(counters[name].bytes_sent)


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """Yield a client of a local cluster of processes with one thread each."""
    from distributed import Client, LocalCluster

    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask's own, such as about a port in use
        made = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
        yield stack.enter_context(Client(stack.enter_context(made), set_as_default=False))
