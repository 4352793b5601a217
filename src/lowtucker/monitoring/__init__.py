"""What a run tells while it runs and afterwards."""

from lowtucker.monitoring.history import History
from lowtucker.monitoring.interrupt import interruptible, interrupts_raise
from lowtucker.monitoring.progress import Callback, Progress, ProgressBar

__all__ = ["Callback", "History", "Progress", "ProgressBar", "interruptible", "interrupts_raise"]
