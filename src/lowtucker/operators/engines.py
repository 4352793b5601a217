"""Engines that compute with the chunks of a Dask array: in threads, or on a cluster.

A *group* is a run of successive chunks that one task computes with. Groups are fixed once, by the
number of threads: sums are taken in the same order wherever a group is computed, so a run that
loses a worker ends with the same bits.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import time
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker._array.memory import available_memory, readable_bytes
from lowtucker.operators.connection import check_workers

__all__ = ["Engine", "Task", "engine_for"]

NumPyArray = np.ndarray[Any, Any]
# Share of the memory that chunks may be kept in
KEPT = 0.6
# Sums that one task adds up on the way to the client
FAN_IN = 8
# Bytes of a vector from which on it is kept on the workers, and how many of these
LONG, VECTORS = 1 << 16, 6
# Seconds between two looks at the cluster while it works; and without any worker, until it is
# given up
LOOK, GRACE = 2.0, 20.0


class Task(NamedTuple):
    """Call for one group: ``function(chunks, vectors, *arguments)``.

    ``chunks`` and ``vectors`` are lists: the chunks' rows, and the parts of vectors of
    measurements (or None) that belong to them.
    """

    group: int
    chunks: Sequence[int]
    vectors: Sequence[Any]
    arguments: tuple[Any, ...]


class Moved(Exception):  # noqa: N818 - nothing went wrong yet
    """Workers that tasks wait for are gone, but others are available."""


class Held:
    """Parts of a vector that are kept on the worker of a group, and here to be sent again."""

    def __init__(self, group: int, parts: Any) -> None:
        self.group, self.parts, self.future = group, parts, None


class Engine(ABC):
    """Chunks of rows, and the threads or workers that compute with them.

    Parameters
    ----------
    array : dask.array.Array, shape (m, N)
        Chunked along rows only.
    threads : int
        The number of tasks that run at a time, which is the number of groups.
    keep : bool
        Whether chunks stay in memory, or are computed again in every pass.
    """

    def __init__(self, array: Any, threads: int, keep: bool) -> None:
        self.array, self.keep = array, keep
        self.groups = _split(array.chunks[0], threads)

    @abstractmethod
    def ask(self, function: Callable[..., Any], tasks: Sequence[Task], *, total: bool) -> Any:
        """Results of the tasks, in their order; or their total, a tuple of arrays."""

    def vector(self, v: NumPyArray, parts: Sequence[Sequence[slice]]) -> list[Any]:
        """Parts of a vector of measurements for the tasks, a list for each group."""
        return [[v[part] for part in of_group] for of_group in parts]


class Threads(Engine):
    """Chunks in the memory of this process, and a thread for each group."""

    def __init__(self, array: Any, keep: bool | None) -> None:
        if keep is None:
            keep = array.nbytes <= KEPT * available_memory()
        super().__init__(array, _cores(), keep)
        self._kept: list[Any] | None = None

    def ask(self, function: Callable[..., Any], tasks: Sequence[Task], *, total: bool) -> Any:
        """Results, one thread per task, each with one BLAS thread; a single task runs here."""
        if self.keep and self._kept is None:
            import dask

            self._kept = list(dask.compute(*_chunks(self.array), scheduler="threads"))

        def answer(task: Task) -> Any:
            sources = [self._source(k) for k in task.chunks]
            return function(sources, task.vectors, *task.arguments)

        if len(tasks) == 1:
            answers = [answer(tasks[0])]
        else:
            with one_blas_thread(), ThreadPoolExecutor(len(tasks)) as pool:
                answers = list(pool.map(answer, tasks))
        return _total(answers) if total else answers

    def _source(self, k: int) -> Any:
        return Loader(self.array.blocks[k]) if self._kept is None else self._kept[k]


class Cluster(Engine):
    """Chunks on the workers of a Dask cluster: only tasks and their small results travel.

    Parameters
    ----------
    array : dask.array.Array, shape (m, N)
    client : distributed.Client
    keep : bool, optional
    """

    def __init__(self, array: Any, client: Any, keep: bool | None) -> None:
        check_workers(client)
        self.client = client
        threads = client.nthreads()
        if keep is None:
            room = KEPT * _memory(client, len(threads))
            keep = array.nbytes <= room
            if not keep:
                warnings.warn(
                    f"A has {readable_bytes(array.nbytes)}, more than the workers can keep "
                    f"({readable_bytes(int(room))}): its chunks are computed again in every pass. "
                    "Give the workers more memory, or start more of them.",
                    stacklevel=4,
                )
        super().__init__(array, sum(threads.values()), keep)
        self._name, self._number = uuid.uuid4().hex, itertools.count()
        self._crowded, self._settled = False, 0.0
        self._thread = ThreadPoolExecutor(1, "lowtucker-gather")
        self._homes = self._assigned(threads)
        self._futures = [self._placed(g) for g in range(len(self.groups))] if keep else []
        self._vectors: dict[bytes, list[Any]] = {}

    def ask(self, function: Callable[..., Any], tasks: Sequence[Task], *, total: bool) -> Any:
        """Results of fused tasks, one for each group, on the worker that holds its chunks."""
        with _quiet(), self._reached():
            while True:
                futures = self._asked(function, tasks, total)
                try:
                    answers = self._gathered(futures, tasks)
                    break
                except Moved:
                    # a scheduler never gives tasks to new workers that are bound to old ones
                    # (however loosely) and came to wait while there were none
                    self._spread(self.client.nthreads())
        if len(tasks) <= FAN_IN or not total:
            self._settle(tasks, [where for _, where in answers])
        values = [value for value, _ in answers]
        return _total(values) if total else values

    def vector(self, v: NumPyArray, parts: Sequence[Sequence[slice]]) -> list[Any]:
        """Parts of a vector: short ones travel with the tasks, long ones are kept.

        They are known by their contents; those that were used last are kept.
        """
        if v.nbytes < LONG:
            return super().vector(v, parts)
        key = hashlib.blake2b(np.ascontiguousarray(v).data, digest_size=16).digest()
        key += str(v.dtype).encode()
        kept = self._vectors.pop(key, None)
        if kept is None:
            kept = [Held(group, some) for group, some in enumerate(super().vector(v, parts))]
            for held in kept:
                self._send(held)
        self._vectors[key] = kept  # the latest last
        if len(self._vectors) > VECTORS:
            del self._vectors[next(iter(self._vectors))]
        return kept

    def _asked(self, function: Callable[..., Any], tasks: Sequence[Task], total: bool) -> list[Any]:
        """Futures of the results, or of partial sums."""
        futures = [self._submitted(function, task) for task in tasks]
        while total and len(futures) > FAN_IN:  # on the workers, so that the client adds up few
            futures = [
                self._submit(_added, futures[k : k + FAN_IN])
                for k in range(0, len(futures), FAN_IN)
            ]
        return futures

    def _submitted(self, function: Callable[..., Any], task: Task) -> Any:
        if self.keep:
            first = self.groups[task.group].start
            sources = [self._futures[task.group][k - first] for k in task.chunks]
        else:
            sources = [Loader(self.array.blocks[k]) for k in task.chunks]
        vectors = [v.future if isinstance(v, Held) else v for v in task.vectors]
        arguments = (function, sources, vectors, task.arguments)
        return self._submit(_answered, *arguments, home=self._homes[task.group])

    def _submit(self, function: Callable[..., Any], *arguments: Any, home: str = "") -> Any:
        with _quiet():
            return self.client.submit(
                function,
                *arguments,
                key=f"lowtucker{function.__name__}-{self._name}-{next(self._number)}",
                workers=[home] if home else None,
                allow_other_workers=bool(home),
            )

    def _send(self, held: Held) -> None:
        """Send parts as a task, not by scatter: Dask can then recreate them if a worker is lost."""
        held.future = self._submit(_same, held.parts, home=self._homes[held.group])

    def _assigned(self, threads: dict[str, int]) -> list[str]:
        """Worker of each group: as many groups as it has threads."""
        homes = [worker for worker, count in sorted(threads.items()) for _ in range(count)]
        return [homes[g % len(homes)] for g in range(len(self.groups))]

    def _placed(self, group: int) -> list[Any]:
        """Futures of a group's chunks, which the scheduler can recompute from the graph."""
        from distributed import futures_of

        chunks = self.groups[group]
        # a unique name: chunks that are placed again are not those that are elsewhere
        part = self.array.blocks[chunks.start : chunks.stop].map_blocks(
            _same, dtype=self.array.dtype, name=f"lowtucker_rows-{self._name}-{next(self._number)}"
        )
        with _quiet():
            kept = self.client.persist(part, workers=[self._homes[group]], allow_other_workers=True)
        futures = {future.key: future for future in futures_of(kept, self.client)}
        return [futures[key] for key in itertools.chain.from_iterable(kept.__dask_keys__())]

    def _gathered(self, futures: Sequence[Any], tasks: Sequence[Task]) -> list[Any]:
        """Wait for results while watching the workers; errors are explained."""
        alone: float | None = None
        # in a thread: it has no timeout, and waits forever if the last worker is lost
        coming = self._thread.submit(self.client.gather, futures)
        while True:
            try:
                return list(coming.result(LOOK))
            except TimeoutError:
                if coming.done():
                    raise
                try:
                    alone = self._watched(alone, tasks)
                except (OSError, Moved):
                    self.client.cancel(futures, force=True)  # which ends the waiting
                    raise
            except Exception as error:
                if type(error).__name__ == "KilledWorker":
                    raise OSError(
                        "Workers died repeatedly at the same chunk of A: most likely they ran "
                        "out of memory. Make chunks smaller (A.rechunk), or give workers more "
                        f"memory. Dask says: {error}"
                    ) from error
                if self.client.status == "running":
                    error.add_note("This happened on a worker of the Dask cluster.")
                    # the client keeps the error, and its traceback would keep A on the workers
                    self.client.cancel(futures, force=True)
                raise

    def _watched(self, alone: float | None, tasks: Sequence[Task]) -> float | None:
        """Time since when there is no worker; an error after a while without any."""
        if self.client.status != "running":
            raise self._lost()
        try:
            there = self.client.nthreads()
        except OSError as error:
            raise self._lost() from error
        if there:
            if any(self._homes[task.group] not in there for task in tasks):
                raise Moved
            return None
        alone = time.monotonic() if alone is None else alone
        if time.monotonic() - alone > GRACE or self._has_ended:
            raise ConnectionError(
                f"The Dask cluster {self._address} has no workers left: they died or were stopped, "
                f"and no others came in {GRACE:.0f} s. Start workers and call again; with "
                "checkpoint= it resumes where it stopped."
            )
        return alone

    @property
    def _has_ended(self) -> bool:
        """Whether no worker will come back: Ctrl-C ends those of a LocalCluster for good."""
        workers = getattr(self.client.cluster, "workers", {})
        ended = {"closing", "closed", "failed"}
        return bool(workers) and all(worker.status.name in ended for worker in workers.values())

    @property
    def _address(self) -> str:
        scheduler = self.client.scheduler
        return "" if scheduler is None else str(scheduler.address)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Context of the client's work: reports the loss of its scheduler as such."""
        try:
            with self.client.as_current():
                yield
        except ConnectionError:
            raise
        except Exception as error:  # of many kinds
            if self.client.status == "running":
                raise
            raise self._lost() from error

    def _lost(self) -> ConnectionError:
        return ConnectionError(
            f"The Dask scheduler {self._address} is gone. Start the cluster and call again; with "
            "checkpoint= it resumes where it stopped."
        )

    def _settle(self, tasks: Sequence[Task], where: Sequence[str]) -> None:
        """Reassign groups whose worker is gone: otherwise they would stay where Dask moved them."""
        homes = self._homes
        moved = any(at != homes[task.group] for task, at in zip(tasks, where, strict=True))
        if moved or (self._crowded and time.monotonic() - self._settled > LOOK):
            self._spread(self.client.nthreads())

    def _spread(self, threads: dict[str, int]) -> None:
        """Move groups to workers with an idle thread, including new ones."""
        self._settled = time.monotonic()
        for group, home in enumerate(self._homes):
            load = {w: self._homes.count(w) / count for w, count in threads.items() if count}
            if not load or load.get(home, math.inf) <= 1:
                continue
            idlest = min(load, key=lambda worker: load[worker])
            if home not in load or load[idlest] < 1:
                self._homes[group] = idlest
                if self.keep:
                    self._futures[group] = self._placed(group)
                for vector in self._vectors.values():
                    self._send(vector[group])
        self._crowded = any(self._homes.count(w) > count for w, count in threads.items())


def engine_for(array: Any, client: Any, keep: bool | None) -> Engine:
    """Engine of an array: the cluster of a client, or threads without one."""
    return Threads(array, keep) if client is None else Cluster(array, client, keep)


class Loader:
    """Chunk that is computed on demand, opaque to Dask."""

    def __init__(self, chunk: Any) -> None:
        import dask

        (self.chunk,) = dask.optimize(chunk)

    def __call__(self) -> Any:
        return self.chunk.compute(scheduler="synchronous")


def _answered(function: Any, sources: Any, vectors: Any, arguments: Any) -> tuple[Any, str]:
    """Result of a group, and the worker that computed it."""
    from distributed import get_worker

    return function(sources, vectors, *arguments), get_worker().address


def _added(answers: Sequence[tuple[Any, str]]) -> tuple[Any, str]:
    return _total([value for value, _ in answers]), ""


def _total(answers: Sequence[Any]) -> Any:
    """Sum of tuples of arrays, in their order."""
    total = list(answers[0])
    for answer in answers[1:]:
        total = [a + b for a, b in zip(total, answer, strict=True)]
    return tuple(total)


def _same(x: Any) -> Any:
    return x


def _chunks(array: Any) -> list[Any]:
    return [array.blocks[k] for k in range(array.numblocks[0])]


def _split(rows: Sequence[int], count: int) -> list[range]:
    """Split chunks of so many rows into runs of about equal numbers of rows."""
    ends = np.cumsum(rows)
    count = min(max(1, count), len(rows))
    targets = ends[-1] * np.arange(1, count) / count
    cuts = np.searchsorted(ends - np.asarray(rows) / 2, targets)
    edges = [0, *np.maximum.accumulate(cuts).tolist(), len(rows)]
    return [range(a, b) for a, b in itertools.pairwise(edges) if b > a]


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def _memory(client: Any, workers: int) -> float:
    """Bytes that the workers may use together; infinite without a limit."""
    known = [w["memory_limit"] or np.inf for w in client.scheduler_info()["workers"].values()]
    return float(np.mean(known)) * workers if known else 0.0


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress Dask's advice on large graphs: tensors are meant to travel with tasks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Ll]arge (graph|object).*")
        yield
