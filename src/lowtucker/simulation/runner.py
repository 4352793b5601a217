"""Compute missing results on several workers and save each as it finishes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from lowtucker._array import one_blas_thread
from lowtucker.run import interrupts_raise
from lowtucker.simulation.base import Columns, Experiment, Results, quietly
from lowtucker.simulation.farm import farmed
from lowtucker.simulation.store import Store

__all__ = ["Job", "available_workers", "pending", "results", "run", "worker_pool"]


@dataclass(frozen=True)
class Job:
    """A range of trials of a cell; pure, so that any worker can compute it."""

    experiment: Experiment
    cell: Any
    seed: int
    first: int
    count: int

    def __call__(self) -> Columns:
        """Compute the columns; Ctrl-C raises KeyboardInterrupt."""
        with interrupts_raise():
            return self.compute()

    def compute(self) -> Columns:
        """Compute the columns with one BLAS thread and without expected warnings."""
        with one_blas_thread(), quietly():
            return self.experiment.compute(self.cell, self.first, self.count, self.seed)

    @property
    def work(self) -> float:
        """Relative cost."""
        return self.count * self.experiment.work(self.cell)


def pending(experiments: Iterable[Experiment], store: Store, seed: int, trials: int) -> list[Job]:
    """Return the jobs to be computed, longest first to balance the load."""
    jobs = [
        Job(experiment, cell, seed, first, count)
        for experiment in experiments
        for cell in experiment.cells()
        for first, count in store.missing(experiment, cell, seed, experiment.trials(trials))
    ]
    return sorted(jobs, key=lambda job: -job.work)


def run(
    jobs: Sequence[Job],
    store: Store,
    *,
    workers: int = 1,
    client: Any = None,
    pool: Executor | None = None,
    report: Callable[[Job], None] = lambda job: None,
) -> None:
    """Run jobs and store their results; call ``report`` with each stored job.

    Uses ``workers`` processes, those of a ``pool`` that outlives the call if there is one
    (:func:`worker_pool`), or a Dask cluster if its ``client`` is given. The results do not depend
    on this choice. After an interruption the stored results remain; running jobs
    are lost.
    """
    made = _done(jobs, workers, pool) if client is None else farmed(client, jobs)
    with closing(made):  # immediately, even if a traceback holds a reference
        for job, columns in made:
            store.put(job.experiment, job.cell, job.seed, job.first, columns)
            report(job)


def results(experiment: Experiment, store: Store, seed: int, trials: int) -> Results | None:
    """Return all columns of an experiment; None if some are missing."""
    found = {}
    for cell in experiment.cells():
        columns = store.get(experiment, cell, seed, experiment.trials(trials))
        if columns is None:
            return None
        found[cell] = columns
    return found


def available_workers() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _done(
    jobs: Sequence[Job], workers: int, kept: Executor | None
) -> Generator[tuple[Job, Columns]]:
    if workers <= 1 or len(jobs) <= 1:
        for job in jobs:
            yield job, job()
        return
    if kept is not None:  # no job queued: it would delay the jobs of a next call
        yield from _as_they_come(kept, jobs, workers)
        return
    with worker_pool(min(workers, len(jobs))) as pool:
        yield from _as_they_come(pool, jobs, 2 * workers)


def _as_they_come(pool: Executor, jobs: Sequence[Job], ahead: int) -> Iterator[tuple[Job, Columns]]:
    """Yield results in the order of completion; queue only a few jobs in the pool."""
    waiting, running = list(reversed(jobs)), dict[Future[Columns], Job]()
    try:
        while waiting or running:
            while waiting and len(running) < ahead:
                job = waiting.pop()
                with _interrupts_held():  # submit may start a worker
                    running[pool.submit(job)] = job
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    except BrokenProcessPool as error:
        raise OSError(
            "A worker process was killed; it may have run out of memory. Results so far are kept: "
            "run the same command to resume, with --workers 1 if memory is short."
        ) from error


@contextmanager
def worker_pool(workers: int) -> Iterator[Executor]:
    """Yield a pool of processes that are terminated if this one is interrupted.

    They start with the first job. A pool that serves several calls of :func:`run` saves their
    start, half a second or more each time.
    """
    # spawned, not forked: BLAS threads do not survive a fork
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker)
    try:
        yield pool
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C while workers start: until they ignore it, they would print a traceback.

    They inherit that it is blocked. Here another thread may receive it, such as one of BLAS, and
    Python's handler then runs all the same: it is noted, and raised when they have started.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before, noted = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}), list[Any]()
    handler = signal.getsignal(signal.SIGINT)
    ours = callable(handler) and threading.current_thread() is threading.main_thread()
    try:
        if ours:
            signal.signal(signal.SIGINT, lambda *_: noted.append(True))
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if noted:
            signal.raise_signal(signal.SIGINT)


def _begin_worker() -> None:
    """Ignore Ctrl-C, which the parent handles, and watch the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    """Exit if the parent dies: otherwise the worker would wait for jobs forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
