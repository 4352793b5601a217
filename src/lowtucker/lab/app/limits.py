"""What a visitor of the page may ask for: sizes, times, numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Limits of one server.

    Attributes
    ----------
    entries : int
        Entries of a tensor.
    matrix_bytes : int
        Bytes of a dense measurement matrix.
    seconds, long_seconds : float
        Time of a recovery; of a phase diagram or a figure.
    grace : float
        Seconds beyond these, after which a process is killed; the solvers heed the others.
    runs : int
        Runs at once.
    upload_bytes : int
        Size of a file that is sent.
    array_bytes : int
        Memory that reading a file may take.
    files : int
        Files, and results of runs, that are kept; older ones are removed.
    cells, trials : int
        Fields of a phase diagram; tensors for each.

    Examples
    --------
    >>> Limits(runs=2).runs
    2
    """

    entries: int = 500_000
    matrix_bytes: int = 400_000_000
    seconds: float = 60.0
    long_seconds: float = 300.0
    grace: float = 15.0
    runs: int = 4
    upload_bytes: int = 200_000_000
    array_bytes: int = 1_000_000_000
    files: int = 6
    cells: int = 200
    trials: int = 100

    def to_json(self) -> dict[str, Any]:
        """Limits by their names."""
        return asdict(self)
