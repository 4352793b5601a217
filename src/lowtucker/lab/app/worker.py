"""A process that does one job after the other: ``python -P -m lowtucker.lab.app.worker``.

Jobs come in on standard input and events go out on standard output, as frames of JSON: nothing
is pickled in either direction. When the server is gone, so is the worker.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import sys
import tempfile
import threading
from typing import Any, BinaryIO

__all__ = ["EVENT", "HEAD", "IDLE", "main"]

# A frame: one letter, four bytes of length, JSON
HEAD = 5
EVENT, IDLE = b"e", b"i"


def main() -> None:
    """Work until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to handle
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what libraries print goes elsewhere
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, jobs), daemon=True).start()
    _warm_up()
    while True:
        _do(jobs.get(), out)
        _send(out, IDLE, {})


def _listen(source: BinaryIO, jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Take jobs; when the server closes the pipe, or dies, end at once."""
    for line in source:
        jobs.put(json.loads(line))
    os._exit(0)


def _warm_up() -> None:
    """Import what a first run would have to wait for."""
    import lowtucker as lt
    from lowtucker.lab.app import inspection, tasks  # noqa: F401

    A = lt.gaussian((3, 3, 3), 20)
    y = A.forward(lt.random_tucker((3, 3, 3), (1, 1, 1)))
    for solver in ("stotiht", "auto"):
        lt.recover(A, y, (1, 1, 1), solver=solver)


def _do(job: dict[str, Any], out: BinaryIO) -> None:
    from lowtucker.lab.app import inspection, tasks

    def emit(name: str, content: dict[str, Any]) -> None:
        _send(out, EVENT, {"event": name, **content})

    try:
        (inspection.inspect if job["task"] == "inspect" else tasks.run)(job, emit)
        emit("end", {})
    except Exception as error:
        emit("error", {"text": _explained(error, job)})


def _explained(error: Exception, job: dict[str, Any]) -> str:
    """What to show of an error: the file by the visitor's name for it."""
    text = str(error)
    for folder in (
        os.path.dirname(job.get("path") or ""),
        job.get("folder"),
        tempfile.gettempdir(),
    ):
        text = text.replace(f"{folder}{os.sep}", "") if folder else text
    known = (ValueError, TypeError, OSError, ImportError, NotImplementedError)
    if isinstance(error, known):
        return text
    if isinstance(error, MemoryError):
        return f"There is not enough memory ({text}). Take a smaller tensor or fewer measurements."
    logging.getLogger("lowtucker").exception("A run of the playground failed.")
    return f"The computation failed ({type(error).__name__}: {text}). Try other settings."


def _send(out: BinaryIO, kind: bytes, content: dict[str, Any]) -> None:
    body = json.dumps(content, allow_nan=False).encode()
    data = kind + len(body).to_bytes(4) + body
    try:
        while data:
            data = data[out.write(data) :]
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
