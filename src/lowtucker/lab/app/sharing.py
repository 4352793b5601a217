"""Fair shares: how much one client may have at a time, and how slowly it may send."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lowtucker.lab.app.processes import BusyError

__all__ = ["Patience", "Shares", "SlowError", "TooManyError"]

# Bytes of a body that must arrive in a second, after a time of grace
RATE = 20_000


class TooManyError(RuntimeError):
    """A client has its share already."""


class SlowError(RuntimeError):
    """A request arrives too slowly."""


class Shares:
    """Count of what clients have at a time.

    Parameters
    ----------
    what : str
        In the plural, for messages.
    most, each : int
        Maximum of all clients together, and of one.
    """

    def __init__(self, what: str, most: int, each: int) -> None:
        self.what, self.most, self.each = what, most, each
        self.taken: Counter[str] = Counter()

    def require(self, client: str) -> None:
        """Raise BusyError or TooManyError if a client can have no more."""
        if self.taken.total() >= self.most:
            raise BusyError(
                f"{self.most} {self.what} are in progress, which is the limit. Stop one, or try "
                "again later."
            )
        if self.taken[client] >= self.each:
            raise TooManyError(
                f"{self.each} {self.what} from your address are in progress, which is the limit. "
                "Stop one, or wait for its end."
            )

    @contextmanager
    def one(self, client: str) -> Iterator[None]:
        """Take one for a while."""
        self.require(client)
        self.taken[client] += 1
        try:
            yield
        finally:
            self.taken[client] -= 1
            if not self.taken[client]:
                del self.taken[client]


class Patience:
    """ASGI middleware that raises SlowError if the body of a request arrives too slowly."""

    def __init__(self, app: Any, grace: float) -> None:
        self.app, self.grace = app, grace

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        """Forward a request with a clock on its body."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        now = asyncio.get_running_loop().time
        begin, size, complete = now(), 0, False

        async def received() -> Any:
            nonlocal size, complete
            if complete:  # what follows is the end of the connection
                return await receive()
            try:
                # nor may a client that was fast once send nothing for long
                latest = min(begin + size / RATE, now()) + self.grace
                async with asyncio.timeout_at(latest):
                    message = await receive()
            except TimeoutError:
                raise SlowError(
                    f"Only {size} bytes of the request arrived in time; expected at least "
                    f"{RATE // 1000} kB per second. Send it again, or a smaller file."
                ) from None
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            return message

        await self.app(scope, received, send)
