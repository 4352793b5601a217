"""Callbacks: what they are told, and a progress bar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Callback", "Progress", "ProgressBar"]


@dataclass(frozen=True)
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
    """

    epoch: int
    passes: float
    residual: Any
    state: Any
    max_epochs: int | None = None


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
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ProgressBar:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("epoch {task.completed:.0f}  residual {task.fields[residual]}"),
            TimeElapsedColumn(),
            console=self.console or Console(stderr=True),
            transient=False,
        )
        self._bar.start()
        self._task = self._bar.add_task(self.label, total=None, residual="1")
        return self

    def __call__(self, progress: Progress) -> None:
        """Move the bar."""
        if self._bar is None:
            self.__enter__()
        self._bar.update(
            self._task,
            completed=progress.epoch,
            total=progress.max_epochs,
            residual=f"{float(np.median(progress.residual)):.1e}",
        )

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
