"""The ``lowtucker`` command, also as ``python -m lowtucker``.

Importing the commands takes some tenths of a second, during which there is nothing to save: Ctrl-C
then ends the program at once. An exception in the middle of an import has no certain effect:
a traceback, an error of another kind, or nothing. Later imports are waited for.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any

__all__ = ["run"]

INTERRUPTED = 130
# Seconds until Ctrl-C in the middle of an import is tried again
AGAIN = 0.02
CAN_WAIT = hasattr(signal, "setitimer")  # not on Windows


def run() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, _leave)
    try:
        from lowtucker.cli import main

        main(prog_name="lowtucker", obj=_ready)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback while Python shuts down
        if CAN_WAIT:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _ready() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from here on."""
    if CAN_WAIT:
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.signal(signal.SIGINT, _interrupt)
    else:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, after the import that is at work; a second Ctrl-C does not wait."""
    waiting = signal.getitimer(signal.ITIMER_REAL)[0] > 0
    if _imports(frame) and not waiting:
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
    else:
        signal.default_int_handler(number, frame)


_interrupt.raises_interrupt = True  # type: ignore[attr-defined]  # see run/interrupt.py


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _leave(*_: Any) -> None:
    os.write(2, b"Interrupted before there was a result.\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    run()
