"""Protection against requests from other sites and against DNS rebinding."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any

__all__ = ["HEADERS", "Guard", "host_allowed"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def host_allowed(header: str, bound: str) -> bool:
    """Return whether a Host header is allowed.

    A loopback server allows only loopback names. Otherwise any numeric address and the bound name
    are allowed: a page that rebinds its own name to this machine has neither.

    Examples
    --------
    >>> host_allowed("localhost:8000", "127.0.0.1"), host_allowed("evil.example", "127.0.0.1")
    (True, False)
    >>> host_allowed("192.168.1.5:8000", "0.0.0.0"), host_allowed("evil.example:8000", "0.0.0.0")
    (True, False)
    """
    name = _name_of(header)
    if name in (*LOOPBACK, bound.lower()):
        return True
    return not _is_loopback(bound) and _is_address(name)


def _name_of(header: str) -> str:
    """Return the host without port and brackets."""
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return name.lower() == "localhost" or (_is_address(name) and ip_address(name).is_loopback)


class Guard:
    """ASGI middleware that checks Host and Origin and adds headers to every response."""

    def __init__(self, app: Any, bound: str) -> None:
        self.app, self.bound = app, bound

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward or reject a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        host, origin = headers.get("host", ""), headers.get("origin")
        if not host_allowed(host, self.bound):
            await _refuse(send, f"Host {host!r:.80} is not allowed; open the page by its address.")
        elif scope["method"] not in ("GET", "HEAD") and origin not in (None, f"http://{host}"):
            await _refuse(send, f"Requests from {origin!r:.80} are rejected.")
        else:
            await self.app(scope, receive, _with_headers(send))


def _with_headers(send: Send) -> Send:
    extra = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return sending


async def _refuse(send: Send, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    start = {"type": "http.response.start", "status": 403, "headers": headers}
    await _with_headers(send)(start)
    await send({"type": "http.response.body", "body": text.encode()})
