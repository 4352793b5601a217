"""Passes of each trial of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker.run.progress import Progress
from lowtucker.run.result import Result
from lowtucker.solvers.models import Model

__all__ = ["PassesOfEach"]


class PassesOfEach:
    """Callback of a batch that finds out how many passes each of its problems took.

    The history counts the passes of the problem that takes the most, epoch by epoch. In an epoch
    of Gauss-Newton steps those are the steps of all, one pass, and the new starts of a few: a
    problem that began no start, and ended none, took only the step.
    """

    def __init__(self) -> None:
        self.starts: list[dict[int, Any]] = [{}]  # after each epoch, for each problem that runs

    def __call__(self, progress: Progress) -> None:
        """Note the starts that were begun and ended."""
        state: Any = progress.state
        problems = getattr(state.memory, "problems", ())
        if problems and isinstance(state.cache.model, Model):
            known = [(one.begun, len(one.ends)) for one in problems]
            self.starts.append(dict(zip(state.trials, known, strict=True)))
        else:
            self.starts.append({})

    def of(self, result: Result, first: int) -> np.ndarray[Any, Any]:
        """Return the passes of the problems, which are numbered from ``first`` on."""
        running, passes = result.history["running"], result.history["passes"]
        epochs = np.diff(passes, prepend=0.0)
        total = np.zeros(running.shape[1])
        for t, of_all in enumerate(epochs):
            for k in np.flatnonzero(running[t]):
                total[k] += min(of_all, 1.0) if self._only_stepped(t, first + int(k)) else of_all
        return total

    def _only_stepped(self, t: int, trial: int) -> bool:
        before = self.starts[t - 1].get(trial) if t else None
        return before is not None and self.starts[t].get(trial, before) == before
