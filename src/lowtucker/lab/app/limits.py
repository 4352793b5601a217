"""Limits on the requests of a page."""

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
        Maximum number of entries of a tensor.
    matrix_bytes : int
        Maximum size of a dense measurement matrix.
    seconds, long_seconds : float
        Time limit of a recovery; of a phase diagram or a figure.
    grace : float
        Additional seconds before a process is killed; solvers observe the limits above.
    runs : int
        Maximum number of simultaneous runs.
    upload_bytes : int
        Maximum size of an uploaded file.
    array_bytes : int
        Maximum memory for reading a file.
    files : int
        Number of files and of results to keep; older ones are removed.
    members : int
        Maximum number of arrays in a file.
    connections, connections_each : int
        Maximum number of connections; of one client.
    patience : float
        Seconds for the head of a request, and before a slow body is refused; twice that without
        any progress ends a response.
    cells, trials : int
        Maximum cells of a phase diagram; maximum trials per cell.

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
    members: int = 1000
    connections: int = 400
    connections_each: int = 64
    patience: float = 15.0
    cells: int = 200
    trials: int = 100

    def to_json(self) -> dict[str, Any]:
        """Return the limits as a dictionary."""
        return asdict(self)
