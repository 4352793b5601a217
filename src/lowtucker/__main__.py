"""The ``lowtucker`` command, also as ``python -m lowtucker``.

Importing the commands takes some tenths of a second, during which there is nothing to save: Ctrl-C
then ends the program at once. What an exception would do in the middle of an import is anyone's
guess: a traceback, or an error of another kind.
"""

from __future__ import annotations

import os
import signal
from typing import Any

__all__ = ["run"]

INTERRUPTED = 130


def run() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, _leave)
    try:
        from lowtucker.cli import main

        main(prog_name="lowtucker", obj=_ready)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback while Python shuts down


def _ready() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from here on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: Any) -> None:
    os.write(2, b"Interrupted before there was a result.\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    run()
