"""Callbacks: what they are told, and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Callback", "Progress", "ProgressBar", "is_request"]


def is_request(returned: Any) -> bool:
    """Whether what a callback returned asks to stop; refuses what is neither True, False nor None.

    A number or an array would be taken for a request, or not, by chance.
    """
    if returned is None or isinstance(returned, bool | np.bool_):
        return bool(returned)
    raise TypeError(
        f"callbacks must return True to stop the run, or None, got {type(returned).__name__}. "
        "Try bool(...), or return nothing."
    )


@dataclass(frozen=True, repr=False)
class Progress:
    """What a callback is told after every epoch. It may return True to stop the run.

    Attributes
    ----------
    epoch : int
    passes : float
    residual : float, or array with one entry a trial
    state : State
    max_epochs : int or None
        The limit, where there is one.
    stage : str
        What of the call is at work: "rank 3,3,3", "all rows", "huber 2"; "" where it has one run.
    seconds : float
        Wall time of the call so far.
    max_seconds : float or None
        The limit of that time, where there is one.
    """

    epoch: int
    passes: float
    residual: Any
    state: Any
    max_epochs: int | None = None
    stage: str = ""
    seconds: float = 0.0
    max_seconds: float | None = None

    def __repr__(self) -> str:
        return f"Progress: {self.line}, {self.passes:.1f} passes"

    @property
    def line(self) -> str:
        """Say in a few words where the call is; the median residual of a batch."""
        stage = f"{self.stage}  " if self.stage else ""
        return f"{stage}epoch {self.epoch}  residual {float(np.median(self.residual)):.1e}"

    @property
    def limit(self) -> str:
        """The limit of the wall time, as a few words."""
        return "" if self.max_seconds is None else f"of {self.max_seconds:.3g} s"


Callback: TypeAlias = Callable[[Progress], bool | None]


class ProgressBar:
    """Callback that draws a progress bar, on a terminal and in a notebook.

    Parameters
    ----------
    label : str
    console : rich.console.Console, optional
        Where to draw; standard error by default, so that results can be piped.

    Examples
    --------
    >>> import lowtucker as lt
    >>> bar = lt.ProgressBar("recover")  # lt.recover(A, y, rank, callbacks=[bar])
    """

    def __init__(self, label: str = "recover", console: Any = None) -> None:
        self.label, self.console = label, console
        self._bar: _Terminal | _Notebook | None = None

    def __enter__(self) -> ProgressBar:
        in_notebook = self.console is None and _has_kernel()
        self._bar = _Notebook(self.label) if in_notebook else _Terminal(self.label, self.console)
        return self

    def __call__(self, progress: Progress) -> None:
        """Move the bar."""
        if self._bar is None:
            self.__enter__()
        assert self._bar is not None
        self._bar.show(progress)

    def __exit__(self, kind: object = None, *_: object) -> None:
        if self._bar is not None:
            self._bar.close(failed=kind is not None)
            self._bar = None


class _Terminal:
    """Bar drawn by rich."""

    def __init__(self, label: str, console: Any) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self.bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[line]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[limit]}"),
            console=console or Console(stderr=True),
        )
        self.bar.start()
        self.task = self.bar.add_task(label, total=None, line="", limit="")

    def show(self, progress: Progress) -> None:
        self.bar.update(
            self.task,
            completed=progress.epoch,
            total=progress.max_epochs,
            line=progress.line,
            limit=progress.limit,
        )

    def close(self, failed: bool) -> None:
        if failed and not self.bar.tasks[0].fields["line"]:
            self.bar.live.transient = True  # nothing was done: the error says why
        self.bar.stop()


class _Notebook:
    """Bar drawn by the browser: plain HTML that is replaced, which needs no widgets."""

    def __init__(self, label: str) -> None:
        from html import escape

        from IPython.display import HTML, display

        self.label, self.html = escape(label), HTML
        self.handle = display(HTML(self.label), display_id=True)

    def show(self, progress: Progress) -> None:
        limit = progress.max_epochs
        attributes = "" if limit is None else f' value="{progress.epoch}" max="{limit}"'
        bar = f"<progress{attributes}></progress>"
        time = f"{progress.seconds:.0f} s {progress.limit}".strip()
        self.handle.update(self.html(f"{self.label} {bar} {progress.line}  {time}"))

    def close(self, failed: bool) -> None:
        """Leave the last line where it is."""


def _has_kernel() -> bool:
    """Whether this runs in a notebook (or another front end of an IPython kernel)."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")
