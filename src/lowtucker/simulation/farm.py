"""Jobs on the workers of a Dask cluster: the same as on processes here, with the same bits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from lowtucker._version import __version__
from lowtucker.operators.connection import check_workers
from lowtucker.run import interruptible, interrupts_raise
from lowtucker.simulation.base import Columns, Experiment

__all__ = ["farmed"]

AHEAD = 2  # jobs that a worker has, of which one waits: none idles while results travel
LOOK = 0.5  # seconds after which one looks for Ctrl-C, and whether there still are workers
PATIENCE = 30.0  # seconds in which killed workers may come back
WATCH = 0.2  # seconds after which a job looks whether it is still wanted
KEPT = "What was computed is kept: the same command goes on from there."

# A worker may have many threads, but the number of BLAS threads, on which the order of sums
# depends, and the filters of warnings belong to the process: it does one job at a time
_one_at_a_time = threading.Lock()


class Work(Protocol):
    """What can be farmed."""

    @property
    def experiment(self) -> Experiment:
        """Whose it is."""
        ...

    def compute(self) -> Columns:
        """Compute the columns."""
        ...


W = TypeVar("W", bound=Work)


class Abandoned(RuntimeError):  # noqa: N818 - says what it is
    """A job ended early because nobody waits for it any more."""


def farmed(client: Any, jobs: Sequence[W]) -> Generator[tuple[W, Columns]]:
    """Results in the order they are ready; only a few jobs are at the cluster at a time.

    A worker that dies is no harm: its jobs are done by others. When this is left, by an
    exception or Ctrl-C, the jobs at work are cancelled.

    Parameters
    ----------
    client : distributed.Client
    jobs : sequence
        The first are begun first.
    """
    from distributed import CancelledError, KilledWorker

    waiting, running = list(reversed(jobs)), dict[Any, W]()
    try:
        with interruptible() as interrupt:  # raised inside of Dask, Ctrl-C may show a traceback
            while waiting or running:
                most = AHEAD * _workers(client)
                while waiting and len(running) < most:
                    job = waiting.pop()
                    running[_submitted(client, job)] = job
                for future in _ready(client, running):
                    columns = _fetched(client, future)
                    if columns is not None:
                        yield running.pop(future), columns
                if interrupt.asked:
                    raise KeyboardInterrupt
    except KilledWorker as error:
        raise OSError(
            "Workers of the Dask cluster died one after the other while they did the same job. "
            f"Perhaps their memory was full: start them with more. {KEPT}"
        ) from error
    except CancelledError as error:
        raise _lost() from error
    finally:
        with suppress(Exception):  # where there is no scheduler any more, nothing is to be ended
            client.cancel(list(running))


def _workers(client: Any) -> int:
    """Count the workers, and look at those that are new."""
    try:
        check_workers(client, PATIENCE)
        return len(client.nthreads())
    except TimeoutError as error:
        raise TimeoutError(f"{error} {KEPT}") from error
    except OSError as error:
        raise _lost() from error


def _lost() -> ConnectionError:
    return ConnectionError(
        f"The connection to the Dask cluster is lost: was its scheduler ended? {KEPT}"
    )


def _ready(client: Any, running: Iterable[Any]) -> list[Any]:
    """Futures that have ended; perhaps none, after some time."""
    from distributed import wait

    try:
        with client.as_current():
            return list(wait(list(running), LOOK, return_when="FIRST_COMPLETED").done)
    except TimeoutError:
        return []


def _submitted(client: Any, job: W) -> Any:
    """Future of a job. Its key is new: a job that was cancelled must not be taken for this one."""
    key = f"lowtucker-{job.experiment.name}-{uuid4().hex}"
    return client.submit(_on_a_worker, job, __version__, key=key, pure=False)


def _fetched(client: Any, future: Any) -> Columns | None:
    """Result of a job that has ended; None where it was lost, and is computed again."""
    try:
        columns: Columns = future.result(timeout=PATIENCE)
    except OSError as error:
        if future.status == "error":  # the job's own
            raise
        if isinstance(error, TimeoutError):
            return None
        raise _lost() from error
    except ImportError:
        check_workers(client)  # says it better where a worker has another lowtucker, or none
        raise
    return columns


def _on_a_worker(job: Work, version: str) -> Columns:
    """Compute the columns on a worker, or end early when the job is cancelled."""
    if version != __version__:  # a worker that came after the others had been looked at
        raise ImportError(f"lowtucker {version} asks lowtucker {__version__} to compute.")
    with interrupts_raise(), interruptible() as interrupt:

        def end() -> None:
            interrupt.asked = True

        with _told_when_cancelled(end), _one_at_a_time:
            columns = {} if interrupt.asked else job.compute()
        if interrupt.asked:  # what was computed may be cut off
            raise Abandoned("The job was cancelled.")
    return columns


@contextmanager
def _told_when_cancelled(tell: Callable[[], None]) -> Iterator[None]:
    """Watch the task of this thread: Dask forgets it when it is cancelled, but lets it run."""
    from distributed import get_worker
    from distributed.worker import thread_state

    worker, key, left = get_worker(), thread_state.key, threading.Event()

    def watch() -> None:
        while not left.wait(WATCH):
            task = worker.state.tasks.get(key)
            if task is None or task.state == "cancelled":
                tell()
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        left.set()
