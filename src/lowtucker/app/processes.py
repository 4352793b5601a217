"""Worker processes, seen from the server: warm ones at hand, and killed when nobody listens."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from lowtucker.app.worker import HEAD, IDLE

__all__ = ["BusyError", "Worker", "WorkerEndedError", "Workers"]

# Runs share the cores: each computes on one
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Idle processes that are kept
SPARE = 2


class BusyError(RuntimeError):
    """As many runs as are allowed are at work."""


class WorkerEndedError(RuntimeError):
    """A worker is gone in the middle of its job: killed from outside, or out of memory."""


class Worker:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls) -> Worker:
        """Start a process; it warms up while it waits for a job."""
        command = (sys.executable, "-P", "-m", "lowtucker.app.worker")
        environment = os.environ | dict.fromkeys(ONE_THREAD, "1")
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True
            )
        )

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self.process.returncode is None

    async def events(self, job: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """Do a job; its events as JSON, until the worker is idle again."""
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
                "The process of this run is gone; perhaps the memory was full. Try a smaller "
                "tensor or fewer measurements."
            ) from error

    async def kill(self) -> None:
        """End the process now, and its work."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


class Workers:
    """All processes of a server."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.idle: list[Worker] = []
        self.busy: set[Worker] = set()
        self.taken = 0
        self.closed = False
        self._starting: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        """Whether a further run has to wait."""
        return self.taken >= self.most

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Worker]:
        """Worker for one job; whoever leaves before it is done ends its work."""
        if self.full or self.closed:
            raise BusyError(
                f"{self.most} runs are at work already, which is the limit. Stop one, or try again "
                "in a while."
            )
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
        return await Worker.start()

    async def _keep(self, worker: Worker) -> None:
        if self.closed or len(self.idle) >= SPARE or not worker.alive:
            await worker.kill()
        else:
            self.idle.insert(0, worker)

    def prepare(self) -> None:
        """Start a process for the next run, where none waits; nobody need wait for it."""
        starting = self._starting is not None and not self._starting.done()
        if not (self.closed or self.full or self.idle or starting):
            self._starting = asyncio.get_running_loop().create_task(self._prepare())

    async def _prepare(self) -> None:
        await self._keep(await Worker.start())

    async def close(self) -> None:
        """End all processes."""
        self.closed = True
        if self._starting is not None:
            await self._starting
        for worker in [*self.idle, *self.busy]:
            await worker.kill()
        self.idle.clear()
