"""What happened, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

__all__ = ["History"]

NumPyArray = np.ndarray[Any, Any]


class History(Mapping[str, NumPyArray]):
    """Columns with one row an epoch, the start included.

    ``epoch``, ``passes`` (readings of all the rows, by the solver), ``seconds`` (of the
    iterations alone), ``residual`` (||y - A(X)|| / ||y||), ``cost`` (0.5 ||y - A(X)||^2),
    ``phase`` (which part of the solver made the row), and ``error`` where X_true was given. For
    a stack of trials ``residual``, ``cost`` and ``error`` have one entry for every trial.

    A column is ``history["residual"]`` or ``history.residual``; ``dict(history)`` goes into a
    pandas DataFrame.

    Examples
    --------
    >>> h = History.of({"epoch": [0, 1], "residual": [1.0, 0.5]})
    >>> h.residual
    array([1. , 0.5])
    >>> h.rows
    2
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> History:
        """Make a history of whole columns."""
        history = cls()
        names = list(columns)
        for values in zip(*columns.values(), strict=True):
            history.append(dict(zip(names, values, strict=True)))
        return history

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row."""
        self._rows.append(dict(row))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self._rows)

    @property
    def last(self) -> dict[str, Any]:
        """Return the last row."""
        return dict(self._rows[-1])

    def __getitem__(self, name: str) -> NumPyArray:
        if not self._rows or name not in self._rows[0]:
            raise KeyError(f"history has no column {name!r}, only {', '.join(self)}")
        return np.array([row[name] for row in self._rows])

    def __getattr__(self, name: str) -> NumPyArray:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(str(error)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows[0] if self._rows else {})

    def __len__(self) -> int:
        return len(self._rows[0]) if self._rows else 0

    def __repr__(self) -> str:
        return f"History of {self.rows} rows: {', '.join(self)}"
