"""Compute what is missing, on as many workers as there are, and keep it as it comes."""

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

__all__ = ["Job", "available_workers", "pending", "results", "run"]


@dataclass(frozen=True)
class Job:
    """Some trials of a cell; pure, so that any worker may do it."""

    experiment: Experiment
    cell: Any
    seed: int
    first: int
    count: int

    def __call__(self) -> Columns:
        """Compute the columns; Ctrl-C ends all of it."""
        with interrupts_raise():
            return self.compute()

    def compute(self) -> Columns:
        """Compute the columns, with one BLAS thread and without known warnings."""
        with one_blas_thread(), quietly():
            return self.experiment.compute(self.cell, self.first, self.count, self.seed)

    @property
    def work(self) -> float:
        """Relative cost."""
        return self.count * self.experiment.work(self.cell)


def pending(experiments: Iterable[Experiment], store: Store, seed: int, trials: int) -> list[Job]:
    """Jobs that are still to be done, the longest first: nobody waits for one at the end."""
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
    report: Callable[[Job], None] = lambda job: None,
) -> None:
    """Do the jobs and keep their results; ``report`` hears of each that is kept.

    On so many processes, or on the workers of a Dask cluster where there is a ``client`` of it.
    The results do not depend on who computes them. What was kept stays when this is
    interrupted; the jobs at work then are lost.
    """
    made = _done(jobs, workers) if client is None else farmed(client, jobs)
    with closing(made):  # at once, also where an error keeps it alive
        for job, columns in made:
            store.put(job.experiment, job.cell, job.seed, job.first, columns)
            report(job)


def results(experiment: Experiment, store: Store, seed: int, trials: int) -> Results | None:
    """All columns of an experiment; None where some are missing."""
    found = {}
    for cell in experiment.cells():
        columns = store.get(experiment, cell, seed, experiment.trials(trials))
        if columns is None:
            return None
        found[cell] = columns
    return found


def available_workers() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _done(jobs: Sequence[Job], workers: int) -> Generator[tuple[Job, Columns]]:
    if workers <= 1 or len(jobs) <= 1:
        for job in jobs:
            yield job, job()
        return
    with _pool(min(workers, len(jobs))) as pool:
        yield from _as_they_come(pool, jobs, 2 * workers)


def _as_they_come(pool: Executor, jobs: Sequence[Job], ahead: int) -> Iterator[tuple[Job, Columns]]:
    """Results in the order they are ready; only a few jobs wait in the pool."""
    waiting, running = list(reversed(jobs)), dict[Future[Columns], Job]()
    try:
        while waiting or running:
            while waiting and len(running) < ahead:
                job = waiting.pop()
                with _interrupts_held():  # a submit may start a worker
                    running[pool.submit(job)] = job
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    except BrokenProcessPool as error:
        raise OSError(
            "A worker was ended from outside; perhaps the memory was full. What was computed is "
            "kept: run the same command again, with --workers 1 if the memory is short."
        ) from error


@contextmanager
def _pool(workers: int) -> Iterator[Executor]:
    """Worker processes that end at once when this one is interrupted."""
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
    """Block Ctrl-C while workers start: until they ignore it, they would show a traceback."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker() -> None:
    """Ctrl-C is the parent's business: it keeps what is done and ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    """A worker whose parent was killed would wait for jobs for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
