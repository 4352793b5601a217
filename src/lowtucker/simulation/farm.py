"""Run jobs on the workers of a Dask cluster, with results equal to the bit to local ones."""

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

AHEAD = 2  # jobs per worker, one of them queued, so that none idles during transfers
LOOK = 0.5  # seconds between checks for Ctrl-C and for lost workers
PATIENCE = 30.0  # seconds to wait for killed workers to restart
WATCH = 0.2  # seconds between checks whether a job was cancelled
KEPT = "Results so far are kept: run the same command to resume."

# A worker may have many threads, but the number of BLAS threads, which affects the order of sums,
# and the warning filters belong to the process: it runs one job at a time
_one_at_a_time = threading.Lock()


class Work(Protocol):
    """Interface of a job."""

    @property
    def experiment(self) -> Experiment:
        """Return the experiment of the job."""
        ...

    def compute(self) -> Columns:
        """Compute the columns."""
        ...


W = TypeVar("W", bound=Work)


class Abandoned(RuntimeError):  # noqa: N818 - a state, not a fault
    """Raised in a job that ends early because it was cancelled."""


def farmed(client: Any, jobs: Sequence[W]) -> Generator[tuple[W, Columns]]:
    """Yield jobs and results in the order of completion, submitting a few jobs at a time.

    The jobs of a worker that dies are run by others. If the generator is closed, by an exception
    or Ctrl-C, the running jobs are cancelled.

    Parameters
    ----------
    client : distributed.Client
    jobs : sequence
        Started in this order.
    """
    from distributed import CancelledError, KilledWorker

    waiting, running = list(reversed(jobs)), dict[Any, W]()
    try:
        with interruptible() as interrupt:  # inside Dask, Ctrl-C may print a traceback
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
            "Several workers of the Dask cluster died while running the same job. They may have "
            f"run out of memory: start them with more. {KEPT}"
        ) from error
    except CancelledError as error:
        raise _lost() from error
    finally:
        with suppress(Exception):  # without a scheduler there is nothing to cancel
            client.cancel(list(running))


def _workers(client: Any) -> int:
    """Return the number of workers, after checking new ones."""
    try:
        check_workers(client, PATIENCE)
        return len(client.nthreads())
    except TimeoutError as error:
        raise TimeoutError(f"{error} {KEPT}") from error
    except OSError as error:
        raise _lost() from error


def _lost() -> ConnectionError:
    return ConnectionError(
        f"The connection to the Dask cluster is lost: was its scheduler stopped? {KEPT}"
    )


def _ready(client: Any, running: Iterable[Any]) -> list[Any]:
    """Return the completed futures; an empty list after a timeout."""
    from distributed import wait

    try:
        with client.as_current():
            return list(wait(list(running), LOOK, return_when="FIRST_COMPLETED").done)
    except TimeoutError:
        return []


def _submitted(client: Any, job: W) -> Any:
    """Submit a job. Its key is new, so that it is not confused with a cancelled job."""
    key = f"lowtucker-{job.experiment.name}-{uuid4().hex}"
    return client.submit(_on_a_worker, job, __version__, key=key, pure=False)


def _fetched(client: Any, future: Any) -> Columns | None:
    """Return the result of a completed job; None if it was lost and is computed again."""
    try:
        columns: Columns = future.result(timeout=PATIENCE)
    except OSError as error:
        if future.status == "error":  # raised by the job itself
            raise
        if isinstance(error, TimeoutError):
            return None
        raise _lost() from error
    except ImportError:
        check_workers(client)  # clearer error if a worker has another lowtucker, or none
        raise
    return columns


def _on_a_worker(job: Work, version: str) -> Columns:
    """Compute the columns on a worker; stop early if the job is cancelled."""
    if version != __version__:  # a worker that joined after the check
        raise ImportError(f"lowtucker {version} sent a job to lowtucker {__version__}.")
    with interrupts_raise(), interruptible() as interrupt:

        def end() -> None:
            interrupt.asked = True

        with _on_cancellation(end), _one_at_a_time:
            columns = {} if interrupt.asked else job.compute()
        if interrupt.asked:  # the columns may be incomplete
            raise Abandoned("The job was cancelled.")
    return columns


@contextmanager
def _on_cancellation(notify: Callable[[], None]) -> Iterator[None]:
    """Call ``notify`` if the task of this thread is cancelled; Dask itself lets it run on."""
    from distributed import get_worker
    from distributed.worker import thread_state

    worker, key, left = get_worker(), thread_state.key, threading.Event()

    def watch() -> None:
        while not left.wait(WATCH):
            task = worker.state.tasks.get(key)
            if task is None or task.state == "cancelled":
                notify()
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        left.set()
