"""What a run tells while it runs and afterwards."""

from lowtucker.run.history import History
from lowtucker.run.interrupt import interruptible, interrupts_raise
from lowtucker.run.progress import Callback, Progress, ProgressBar

__all__ = ["Callback", "History", "Progress", "ProgressBar", "interruptible", "interrupts_raise"]
