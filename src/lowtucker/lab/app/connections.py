"""Connections of the server: how long they may wait, and how many there may be."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from lowtucker.lab.app.limits import Limits

__all__ = ["limited"]

# Seconds until a connection that is being closed is cut
CLOSING = 2.0
REASON = b"No complete request arrived in time. Send it again.\n"
LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(REASON), REASON)
)


def limited(limits: Limits) -> type[H11Protocol]:
    """Return the protocol class of a server with these limits."""
    return type("Limited", (Connection,), {"limits": limits})


class Connection(H11Protocol):  # type: ignore[misc]
    """A connection that is closed where a client does not send its request, or does not read.

    Where a client, or all together, have too many, the oldest one without a request makes room;
    if all are in use, the request on the new one is refused: status 429 or 503.
    """

    limits = Limits()
    _timer: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    @property
    def host(self) -> str:
        """Address of the client."""
        return self.client[0] if self.client else ""

    def connection_made(self, transport: Any) -> None:
        """Start the time limit; make room."""
        super().connection_made(transport)
        self.order = self.loop.time()
        self._wait()
        own = [one for one in self.connections if one.host == self.host]
        each, most = self.limits.connections_each, self.limits.connections
        if len(own) > each:
            self._make_room(own, 429, f"There are {each} connections from your address, ")
        elif len(self.connections) > most:
            self._make_room(list(self.connections), 503, f"There are {most} connections, ")

    def _make_room(self, others: list[Any], status: int, text: str) -> None:
        idle = [one for one in others if one is not self and one.waits]
        if idle:
            min(idle, key=lambda one: one.order).leave()
        else:
            self.app = _refusing(status, f"{text}which is the limit. Try again later.")

    def _wait(self) -> None:
        self._stop(self._timer)
        self._timer = self.loop.call_later(self.limits.patience, self.leave)

    def leave(self) -> None:
        """Close the connection if it has no request; say why."""
        if not self.waits:
            return
        self._stop(self._timer)
        if not self.transport.is_closing():
            self.transport.write(LATE)
            self.transport.close()
        self._timer = self.loop.call_later(CLOSING, self.transport.abort)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait()

    def pause_writing(self) -> None:
        """Note that the client does not read; end the connection if it does not for long."""
        super().pause_writing()
        self._stop(self._stalled)
        self._stalled = self.loop.call_later(2 * self.limits.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        self._stop(self._stalled)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._stop(self._timer)
        self._stop(self._stalled)
        super().connection_lost(exc)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def _refusing(status: int, text: str) -> Any:
    """Return an ASGI application that refuses a request."""
    body = json.dumps({"error": text, "field": ""}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app
