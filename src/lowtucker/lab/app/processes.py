"""Worker processes of the server: kept warm, and killed when the client disconnects."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from lowtucker.lab.app.worker import HEAD, IDLE

__all__ = ["BusyError", "Worker", "WorkerEndedError", "Workers"]

# Runs share the cores: each uses one
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Idle processes to keep
SPARE = 2


class BusyError(RuntimeError):
    """The maximum number of simultaneous runs is reached."""


class WorkerEndedError(RuntimeError):
    """A worker ended during its job: killed, or out of memory."""


class Worker:
    """A process with a temporary folder."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process, self.folder = process, folder

    @classmethod
    async def start(cls, root: Path) -> Worker:
        """Start a process; it imports the package while it waits for a job."""
        folder = Path(tempfile.mkdtemp(prefix="worker-", dir=root))
        command = (sys.executable, "-P", "-m", "lowtucker.lab.app.worker")
        environment = os.environ | dict.fromkeys(ONE_THREAD, "1") | {"TMPDIR": str(folder)}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True
        )
        return cls(process, folder)

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self.process.returncode is None

    async def events(self, job: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """Run a job and yield its events as JSON until the worker is idle."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(job).encode() + b"\n")
            await stdin.drain()
            while True:
                head = await stdout.readexactly(HEAD)
                body = await stdout.readexactly(int.from_bytes(head[1:]))
                if head[:1] == IDLE:
                    return
                yield body
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise WorkerEndedError(
                "The process of this run ended unexpectedly; it may have run out of memory. Try a "
                "smaller tensor or fewer measurements."
            ) from error

    async def kill(self) -> None:
        """Kill the process and remove its folder."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Workers:
    """All processes of a server."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.root = Path(tempfile.mkdtemp(prefix=f"lowtucker-app-{os.getpid()}-"))
        self.idle: list[Worker] = []
        self.busy: set[Worker] = set()
        self.taken = 0
        self.closed = False
        self._starting: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        """Whether the maximum number of runs is reached."""
        return self.taken >= self.most

    def require_free(self) -> None:
        """Raise BusyError if no further run can start."""
        if self.full or self.closed:
            raise BusyError(
                f"{self.most} runs are in progress, which is the limit. Stop one, or try again "
                "later."
            )

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Worker]:
        """Yield a worker for one job; kill it if the job does not complete."""
        self.require_free()
        self.taken += 1
        worker = None
        try:
            worker = await self._take()
            self.busy.add(worker)
            self.prepare()
            yield worker
            self.busy.discard(worker)
            await self._keep(worker)
        except BaseException:
            if worker is not None:
                self.busy.discard(worker)
                await asyncio.shield(worker.kill())
            raise
        finally:
            self.taken -= 1
            self.prepare()

    async def _take(self) -> Worker:
        while self.idle:
            worker = self.idle.pop(0)
            if worker.alive:
                return worker
            await worker.kill()
        return await Worker.start(self.root)

    async def _keep(self, worker: Worker) -> None:
        if self.closed or len(self.idle) >= SPARE or not worker.alive:
            await worker.kill()
        else:
            self.idle.insert(0, worker)

    def prepare(self) -> None:
        """Start an idle process in the background, if there is none."""
        starting = self._starting is not None and not self._starting.done()
        if not (self.closed or self.full or self.idle or starting):
            self._starting = asyncio.get_running_loop().create_task(self._prepare())

    async def _prepare(self) -> None:
        await self._keep(await Worker.start(self.root))

    async def close(self) -> None:
        """Kill all processes."""
        self.closed = True
        if self._starting is not None:
            await self._starting
        for worker in [*self.idle, *self.busy]:
            await worker.kill()
        self.idle.clear()
        shutil.rmtree(self.root, ignore_errors=True)
