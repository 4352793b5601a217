"""Recovery: the calls, and what decides about their results."""

from lowtucker.recovery.comparison import FormatComparison, compare
from lowtucker.recovery.completion import complete
from lowtucker.recovery.entry import iterate, recover, solve
from lowtucker.recovery.rank import RankSearch

__all__ = ["FormatComparison", "RankSearch", "compare", "complete", "iterate", "recover", "solve"]
