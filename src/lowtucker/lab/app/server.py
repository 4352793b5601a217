"""The web server of the playground."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from lowtucker._version import __version__
from lowtucker.lab.app.anatomy import anatomy
from lowtucker.lab.app.connections import limited
from lowtucker.lab.app.events import Events
from lowtucker.lab.app.guard import Guard, is_loopback
from lowtucker.lab.app.inspection import ARRAYS, VIDEOS
from lowtucker.lab.app.limits import Limits
from lowtucker.lab.app.problems import code
from lowtucker.lab.app.processes import BusyError, WorkerEndedError, Workers
from lowtucker.lab.app.settings import Data, Recovery, parsed
from lowtucker.lab.app.sharing import Patience, Shares, SlowError, TooManyError
from lowtucker.lab.app.uploads import Store, Stored, TooLargeError, too_large
from lowtucker.lab.app.words import SettingError

__all__ = ["Playground", "create_app", "listen", "serve"]

STATIC = Path(__file__).parent / "static"
FILES = {"result.npz": "application/octet-stream", "report.html": "text/html"}
# Maximum size of the settings in bytes; time limit for reading a file in seconds
LONGEST, READING = 20_000, 30.0


class Playground:
    """State shared by the routes: limits, processes, files."""

    def __init__(self, limits: Limits, public: bool = False) -> None:
        def share(most: int) -> int:
            return max(1, most // 2) if public else most  # others get in

        self.limits = limits
        self.running = Shares("runs", limits.runs, share(limits.runs))
        self.receiving = Shares("large uploads", limits.files, share(limits.files))
        self.workers = Workers(limits.runs)
        self.uploads = Store(limits.files)
        self.results = Store(limits.files)
        self.decomposing = asyncio.Lock()
        self.decomposed: dict[str, Any] | None = None

    async def close(self) -> None:
        """Stop all runs and remove all files."""
        await self.workers.close()
        self.uploads.close()
        self.results.close()

    async def about(self, request: Request) -> Response:
        """Return the version, the limits and the supported files."""
        return JSONResponse({
            "version": __version__, "limits": self.limits.to_json(),
            "suffixes": [*ARRAYS, *VIDEOS],
        })  # fmt: skip

    async def patterns(self, request: Request) -> Response:
        """Return the photograph as patterns and their mixture; computed once."""
        async with self.decomposing:
            if self.decomposed is None:
                self.decomposed = await asyncio.to_thread(anatomy)
        return JSONResponse(self.decomposed)

    async def describe(self, request: Request) -> Response:
        """Check settings; return derived numbers and equivalent Python code."""
        values = await _settings(request)
        setting = parsed(values, self.limits, self._upload_info(values))
        return JSONResponse({**setting.facts(), "code": code(setting)})

    async def run(self, request: Request) -> Response:
        """Run settings and stream the events; disconnecting stops the run."""
        values = await _settings(request)
        upload = self.uploads.get(values.get("file"))
        setting = parsed(values, self.limits, self._upload_info(values))
        self.workers.require_free()
        client = _client(request)
        self.running.require(client)
        job = {"task": "run", "values": values, "limits": self.limits.to_json()}
        first: dict[str, Any] = {"event": "code", "code": code(setting)}
        held: list[AbstractContextManager[None]] = [self.running.one(client)]
        if isinstance(setting, Data) and upload is not None:
            folder = self.results.new(client)
            held += [self.uploads.hold(upload), self.results.hold(folder)]
            job |= {"upload": upload.info, "path": str(upload.path), "folder": str(folder.folder)}
            first["result"] = folder.key
        is_recovery = isinstance(setting, Recovery)
        seconds = self.limits.seconds if is_recovery else self.limits.long_seconds
        return Events(self.workers, job, seconds + self.limits.grace, first, held)

    def _upload_info(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        item = self.uploads.get(values.get("file"))
        return None if item is None else item.info

    async def upload(self, request: Request) -> Response:
        """Receive a file as the raw body; return a description of its content."""
        name, most = request.query_params.get("name", ""), self.limits.upload_bytes
        announced = request.headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > most:
            raise too_large(most)
        example, client = request.query_params.get("example") == "flame", _client(request)
        item = await self.uploads.receive(
            "flame.npy" if example else name, request.stream(), most, client,
            self.receiving.one(client),
        )  # fmt: skip
        try:
            with self.running.one(client):
                item.info = await self._inspected(item, example)
            self.uploads.add(item)
        except BaseException:
            self.uploads.drop(item)
            raise
        return JSONResponse({"key": item.key, **item.info})

    async def _inspected(self, item: Stored, example: bool) -> dict[str, Any]:
        job = {"task": "inspect", "path": str(item.path), "limits": self.limits.to_json(),
               "example": example}  # fmt: skip
        if example and item.path is not None:
            item.path.unlink()
        found: dict[str, Any] = {}
        try:
            async with asyncio.timeout(READING), self.workers.one() as worker:
                async for event in worker.events(job):
                    content = json.loads(event)
                    if content["event"] in ("upload", "error"):
                        found = content
        except TimeoutError:
            raise ValueError(
                f"Time limit of {READING:g} s for reading a file reached. Upload a shorter part."
            ) from None
        if found.get("event") != "upload":
            raise ValueError(found.get("text", "The file could not be read."))
        return found | {"example": example, "original": item.original}

    async def forget(self, request: Request) -> Response:
        """Remove a file."""
        self.uploads.remove(request.path_params["key"])
        return Response(status_code=204)

    async def fetch(self, request: Request) -> Response:
        """Return a file of a run for download."""
        item, name = self.results.get(request.path_params["key"]), request.path_params["name"]
        if item is None or name not in FILES or not (item.folder / name).is_file():
            return _problem(404, "This result is no longer available. Run it again.")
        path = item.folder / name
        return FileResponse(path, media_type=FILES[name], filename=name)


async def _settings(request: Request) -> dict[str, Any]:
    """Parse the settings in the body of a request."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST:
            raise SettingError("", f"Settings must have at most {LONGEST} bytes.")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):  # the latter for deeply nested brackets
        values = None
    if not isinstance(values, dict):
        raise SettingError("", "Settings must be a JSON object of named values.")
    return values


def _client(request: Request) -> str:
    """Return the address of the client."""
    return request.client.host if request.client else ""


def _problem(status: int, text: str, field: str = "") -> JSONResponse:
    return JSONResponse({"error": text, "field": field}, status_code=status)


async def _refused(request: Request, error: Exception) -> Response:
    status = 413 if isinstance(error, TooLargeError) else 422
    return _problem(status, str(error), getattr(error, "field", ""))


async def _busy(request: Request, error: Exception) -> Response:
    return _problem(503, str(error))


async def _too_many(request: Request, error: Exception) -> Response:
    return _problem(429, str(error))


async def _slow(request: Request, error: Exception) -> Response:
    answer = _problem(408, str(error))
    answer.headers["Connection"] = "close"
    return answer


async def _no_room(request: Request, error: Exception) -> Response:
    reason = getattr(error, "strerror", None) or error
    return _problem(507, f"The server cannot store this file: {reason}. Try again later.")


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # the client has disconnected


def create_app(limits: Limits | None = None, bound: str = "127.0.0.1") -> Starlette:
    """Return the ASGI application; ``app.state.playground`` holds its state."""
    playground = Playground(limits or Limits(), public=not is_loopback(bound))

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        playground.workers.prepare()
        try:
            yield
        finally:
            await playground.close()

    async def index(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/api/about", playground.about),
            Route("/api/patterns", playground.patterns),
            Route("/api/describe", playground.describe, methods=["POST"]),
            Route("/api/run", playground.run, methods=["POST"]),
            Route("/api/uploads", playground.upload, methods=["POST"]),
            Route("/api/uploads/{key}", playground.forget, methods=["DELETE"]),
            Route("/api/results/{key}/{name}", playground.fetch),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[
            Middleware(Guard, bound=bound), Middleware(Patience, grace=playground.limits.patience)
        ],
        exception_handlers={
            ValueError: _refused, BusyError: _busy, WorkerEndedError: _refused,
            ClientDisconnect: _gone, TooManyError: _too_many, SlowError: _slow, OSError: _no_room,
        },
        lifespan=life,
    )  # fmt: skip
    app.state.playground = playground
    return app


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 picks a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(512)
    except OSError as error:
        made.close()
        raise OSError(
            f"Port {port} of {host} cannot be used: {error.strerror}. Another program may use it: "
            f"try --port {port + 1 if port < 65535 else 8000}, or --port 0 for a free port."
        ) from error
    return made


class _Server(uvicorn.Server):  # type: ignore[misc]
    """Server that stops all runs before it waits for their connections."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.config.app.state.playground.close()
        await super().shutdown(sockets)


def serve(
    listening: socket.socket,
    host: str,
    limits: Limits | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Call ``ready``, then serve until Ctrl-C."""
    limits = limits or Limits()
    app = create_app(limits, bound=host)
    config = uvicorn.Config(
        app, log_config=None, log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=3, lifespan="on", ws="none", proxy_headers=False,
        http=limited(limits),
    )  # fmt: skip
    ready()
    with suppress(asyncio.CancelledError):
        _Server(config).run(sockets=[listening])
    logging.getLogger("lowtucker").debug("The playground is closed.")
