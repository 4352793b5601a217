"""Protection against requests from other sites and against DNS rebinding."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any

__all__ = ["HEADERS", "Guard", "host_allowed", "is_loopback"]

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
# A name or an address of version 4, or one of version 6 in brackets; a port
HOST = re.compile(
    r"(?:(?P<name>[a-z0-9](?:[a-z0-9.-]{0,252}))|\[(?P<address>[0-9a-f.]*:[0-9a-f:.]{1,45})\])"
    r"(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)
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
    return not is_loopback(bound) and _is_address(name)


def _name_of(header: str) -> str:
    """Return the host without port and brackets; empty if the header is malformed."""
    found = HOST.fullmatch(header.lower())
    if found is None or int(found["port"] or 0) > 65535:
        return ""
    return found["name"] or found["address"]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Return whether only this machine can reach a server that is bound to a name."""
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
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        host = ", ".join(hosts)
        if not host_allowed(host, self.bound):
            await _refuse(send, f"Host {host!r:.80} is not allowed; open the page by its address.")
        elif scope["method"] not in ("GET", "HEAD") and origins - {f"http://{host}"}:
            origin = ", ".join(sorted(origins))
            await _refuse(send, f"Requests from {origin!r:.80} are rejected.")
        else:
            await self.app(scope, receive, _with_headers(send))


def _values(scope: Scope, name: bytes) -> set[str]:
    """Return the values of a header; a request may have several, but not of these."""
    return {v.decode("latin-1") for k, v in scope["headers"] if k.lower() == name}


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
