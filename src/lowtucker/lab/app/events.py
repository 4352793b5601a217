"""Stream the events of a run to the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from starlette.responses import Response

from lowtucker.lab.app.processes import BusyError, WorkerEndedError, Workers

__all__ = ["Events"]


class Events(Response):  # type: ignore[misc]
    """Events of a run as ``text/event-stream``; the run stops if the client disconnects."""

    def __init__(
        self,
        workers: Workers,
        job: Mapping[str, Any],
        seconds: float,
        first: Mapping[str, Any],
        held: Sequence[AbstractContextManager[None]] = (),
    ) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self.workers, self.job, self.seconds, self.first = workers, job, seconds, first
        self.held = held

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Run until the job or the connection ends."""
        with ExitStack() as stack:
            for folder in self.held:
                stack.enter_context(folder)
            await self._answer(receive, send)

    async def _answer(self, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        working = asyncio.ensure_future(self._work(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, leaving):
                task.cancel()
            done = await asyncio.gather(working, leaving, return_exceptions=True)
        if isinstance(done[0], Exception):
            raise done[0]

    async def _work(self, send: Any) -> None:
        async def emit(data: bytes) -> None:
            body = b"data: " + data + b"\n\n"
            await send({"type": "http.response.body", "body": body, "more_body": True})

        try:
            await emit(json.dumps(self.first).encode())
            async with asyncio.timeout(self.seconds), self.workers.one() as worker:
                async for event in worker.events(self.job):
                    await emit(event)
        except TimeoutError:
            await emit(_error(f"Time limit of {self.seconds:g} s reached. Use a smaller tensor or "
                              "fewer trials."))  # fmt: skip
        except (BusyError, WorkerEndedError) as error:
            await emit(_error(str(error)))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _error(text: str) -> bytes:
    return json.dumps({"event": "error", "text": text}).encode()
