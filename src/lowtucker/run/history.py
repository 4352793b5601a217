"""What happened, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

__all__ = ["History", "span"]

NumPyArray = np.ndarray[Any, Any]


class History(Mapping[str, NumPyArray]):
    """Columns with one row an epoch, the start included.

    ``epoch``, ``passes`` (over all the rows, by what was read until then), ``seconds`` (of the
    iterations alone), ``residual`` (||y - A(X)|| / ||y||), ``cost`` (0.5 ||y - A(X)||^2),
    ``phase`` (which part of the solver made the row), and ``error`` where X_true was given. For
    a batch of problems ``residual``, ``cost`` and ``error`` have one entry for each.

    Until :class:`lowtucker.RSGD` seems to reach the tolerance, ``residual`` and ``cost`` are
    estimates: by the block of at least 64 measurements that its last step read, before that step.
    The last row, and every row at which a solver ends, are by all measurements.

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
        self._columns: dict[str, NumPyArray] = {}  # with room for more rows
        self._count = 0

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
        for name, value in row.items():
            item = np.asarray(value)
            if not self._count:
                dtype = "U32" if item.dtype.kind == "U" else item.dtype
                self._columns[name] = np.empty((16, *item.shape), dtype=dtype)
            column = self._columns[name]
            if self._count == len(column):
                column = np.concatenate([column, np.empty_like(column)])
            if item.dtype != column.dtype and not np.can_cast(item.dtype, column.dtype):
                column = column.astype(np.result_type(column, item))
            column[self._count] = item
            self._columns[name] = column
        self._count += 1

    def amend(self, row: Mapping[str, Any]) -> None:
        """Replace numbers of the last row; what was taken by :meth:`until_now` keeps them."""
        for name, value in row.items():
            self._columns[name] = self._columns[name].copy()
            self._columns[name][self._count - 1] = value

    def until_now(self) -> History:
        """Rows so far, to be read only: without a copy."""
        now = History()
        now._columns, now._count = dict(self._columns), self._count
        return now

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._count

    @property
    def last(self) -> dict[str, Any]:
        """Return the last row."""
        return {name: column[self._count - 1] for name, column in self._columns.items()}

    def __getitem__(self, name: str) -> NumPyArray:
        if name not in self._columns:
            raise KeyError(f"history has no column {name!r}, only {', '.join(self)}")
        view = self._columns[name][: self._count]
        view.flags.writeable = False
        return view

    def __getattr__(self, name: str) -> NumPyArray:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(str(error)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"History of {self.rows} rows: {', '.join(self)}"


def span(values: Any, form: str = "") -> str:
    """One number, or the median and range of a batch's.

    Examples
    --------
    >>> span(0.01, ".1e"), span([3, 5, 9])
    ('1.0e-02', '5 (median; 3 to 9)')
    """
    values = np.atleast_1d(values)
    if values.size == 1:
        return format(values[0], form)
    middle = np.median(values)
    middle = middle if form else int(middle)
    return f"{middle:{form}} (median; {values.min():{form}} to {values.max():{form}})"
