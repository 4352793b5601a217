"""A process that runs jobs one after the other: ``python -P -m lowtucker.lab.app.worker``.

Jobs are read from standard input and events are written to standard output, as frames of JSON:
nothing is pickled. The worker exits with the server.
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
    """Run jobs until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of libraries goes to standard error
    logging.basicConfig()  # and so do tracebacks of failed runs
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, jobs), daemon=True).start()
    _warm_up()
    while True:
        _do(jobs.get(), out)
        _send(out, IDLE, {})


def _listen(source: BinaryIO, jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Queue jobs; exit when the server closes the pipe or dies."""
    for line in source:
        jobs.put(json.loads(line))
    os._exit(0)


def _warm_up() -> None:
    """Import and run what would delay the first job."""
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
    """Return the message of an error without the folders of the server."""
    text = str(getattr(error, "reason", error))  # of a file that cannot be written
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
        return f"There is not enough memory ({text}). Use a smaller tensor or fewer measurements."
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
