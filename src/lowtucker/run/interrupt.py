"""Ctrl-C as a request: the run ends after its step; a second Ctrl-C ends it at once."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import Any

__all__ = ["Interrupt", "interruptible", "interrupts_raise"]


@dataclass
class Interrupt:
    """Whether Ctrl-C was pressed; and whether it is to end more than the run at work."""

    asked: bool = False
    raises: bool = False


_current: ContextVar[Interrupt | None] = ContextVar("lowtucker_interrupt", default=None)


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Note Ctrl-C rather than raise; only the outermost context listens.

    In other threads, and where somebody else handles the signal, nothing changes.
    """
    outer = _current.get()
    if outer is not None:
        yield outer
        return
    with _known_as(Interrupt()) as interrupt:
        if not _ours_to_take():
            yield interrupt
            return

        def listen(number: int, frame: FrameType | None) -> None:
            if interrupt.asked:
                signal.default_int_handler(number, frame)
            interrupt.asked = True
            _answer(
                "Stopping after this step, with the best result so far. Ctrl-C again stops at once."
            )

        before = signal.signal(signal.SIGINT, listen)
        try:
            yield interrupt
        finally:
            signal.signal(signal.SIGINT, before)


@contextmanager
def interrupts_raise() -> Iterator[None]:
    """Let Ctrl-C end all: a trial of an experiment must not end with half a result."""
    with _known_as(Interrupt(raises=True)):
        yield


@contextmanager
def _known_as(interrupt: Interrupt) -> Iterator[Interrupt]:
    token = _current.set(interrupt)
    try:
        yield interrupt
    finally:
        _current.reset(token)


def _answer(text: str) -> None:
    """Answer a key that was pressed, whatever is logged; not while another line is written."""
    with suppress(RuntimeError, OSError, AttributeError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _ours_to_take() -> bool:
    main = threading.current_thread() is threading.main_thread()
    return main and _raises(signal.getsignal(signal.SIGINT))


def _raises(handler: Any) -> bool:
    """Whether a handler of Ctrl-C raises KeyboardInterrupt: Python's own, or the command line's."""
    return handler is signal.default_int_handler or hasattr(handler, "raises_interrupt")
