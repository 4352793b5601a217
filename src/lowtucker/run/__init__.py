"""Runs: the loop, what ends it, what it records, and what surrounds it."""

from lowtucker.run.history import History
from lowtucker.run.interrupt import interruptible, interrupts_raise
from lowtucker.run.progress import Callback, Progress, ProgressBar

__all__ = ["Callback", "History", "Progress", "ProgressBar", "interruptible", "interrupts_raise"]
