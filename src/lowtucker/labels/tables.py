"""Tables: columns of labels become modes, and every combination of labels comes back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtucker._array.memory import check_room
from lowtucker.labels.data import Data, Errors, Samples, averaged, full_tensor
from lowtucker.labels.record import Labels, plain_labels
from lowtucker.operators import EntriesOperator
from lowtucker.tensor.iterate import Iterate

__all__ = ["ANSWER", "Codes", "TableData", "is_frame", "named_columns"]

NumPyArray = np.ndarray[Any, Any]
# Columns that the completed table has beside those of the given one
ANSWER = ("standard_error", "observed")


@dataclass(frozen=True, eq=False)
class Codes:
    """A column of labels: the different ones in their order, and which of them each row has.

    Attributes
    ----------
    codes : array of int, shape (m,)
        -1 for a missing label.
    labels : sequence with ``take``, or array
        In the library's own type, so that it comes back as it was.
    """

    codes: NumPyArray
    labels: Any

    def take(self, codes: NumPyArray) -> Any:
        """Labels of some codes."""
        if hasattr(self.labels, "gather"):  # polars
            return self.labels.gather(codes)
        return self.labels.take(codes)


class TableData(Data):
    """Rows of labels and a value; NaN in the value, or no row, is a hole.

    Parameters
    ----------
    columns : sequence of Codes
    values : array, shape (m,)
        NaN where there is none.
    names : sequence of str
        Of the columns of labels.
    value : str
        Name of the column of values.
    """

    def __init__(
        self, columns: Sequence[Codes], values: NumPyArray, names: Sequence[str], value: str
    ) -> None:
        for name, column in zip(names, columns, strict=True):
            _check_labels(name, column)
        check_names(names, value)
        self._columns, self.shape = tuple(columns), tuple(len(c.labels) for c in columns)
        coordinates = tuple(plain_labels(c.labels) for c in columns)
        self.labels: Labels = Labels(tuple(names), coordinates, value)
        known = ~np.isnan(values)
        infinite = np.flatnonzero(np.isinf(values))
        if len(infinite):
            raise ValueError(
                f"column {value!r} is infinite in row {infinite[0]}. Leave out what is not known, "
                "or mark it by NaN."
            )
        if not known.any():
            raise ValueError(f"column {value!r} has nothing but missing values: none is known.")
        codes = np.stack([c.codes for c in columns], axis=1)[known]
        self._A, self._y = EntriesOperator(self.shape, codes), values[known]

    def samples(self) -> Samples:
        """Operator and values of the rows with a value."""
        return self._A, self._y

    def answer(self, X: Iterate, errors: Errors) -> dict[str, Any]:
        """Columns of the completed table: every combination of labels, sorted.

        Known values are kept, those of duplicate rows as their mean. Standard errors are those of
        the others, and NaN where the value was observed.
        """
        count, d = int(np.prod(self.shape)), len(self.shape)
        check_room(
            8 * count * (2 * d + 4),
            f"A table of all {count} combinations of labels",
            "Try result.X.entries(indices) for some of them.",
        )
        values = full_tensor(X).reshape(-1)
        where, means = averaged(self._A.indices, self._y, self.shape)
        observed = np.zeros(count, dtype=bool)
        values[where], observed[where] = means, True
        codes = np.unravel_index(np.arange(count), self.shape)
        pairs = zip(self.labels.names, self._columns, codes, strict=True)
        made: dict[str, Any] = {name: column.take(k) for name, column, k in pairs}
        made[str(self.labels.value)] = values
        found = errors(np.stack([k[~observed] for k in codes], axis=1))
        if found is not None:
            made["standard_error"] = np.full(count, np.nan)
            made["standard_error"][~observed] = found
        made["observed"] = observed
        return made

    def filled(self, X: Iterate, errors: Errors) -> Any:
        """Return the columns of the completed table by name."""
        return self.answer(X, errors)


def check_names(names: Sequence[str], value: str) -> None:
    """Refuse names that the completed table would have twice."""
    used = [*names, value]
    for name in used:
        if used.count(name) > 1:
            raise ValueError(f"column {name!r} is given twice in index and value.")
        if name in ANSWER:
            raise ValueError(
                f"column {name!r} has a name that the completed table uses itself. Rename it."
            )


def _check_labels(name: str, column: Codes) -> None:
    missing = np.flatnonzero(column.codes < 0)
    if len(missing):
        raise ValueError(
            f"column {name!r} has no label in row {missing[0]} (and {len(missing) - 1} others). "
            "Leave out such rows, or give them a label."
        )
    count = len(column.labels)
    if not count:
        raise ValueError(f"column {name!r} has no labels: the table has no rows.")
    if count == 1:
        only = column.labels[0]
        shown = only.item() if isinstance(only, np.generic) else only
        raise ValueError(
            f"column {name!r} has one label only, {shown!r}: a mode needs at least two. Leave it "
            "out of index."
        )


def is_frame(value: Any) -> bool:
    """Whether a value is a table or a series of pandas or polars."""
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if polars is not None and isinstance(value, polars.LazyFrame):
        raise TypeError("values must be a table in memory, got a LazyFrame. Try frame.collect().")
    kinds = [] if pandas is None else [pandas.DataFrame, pandas.Series]
    kinds += [] if polars is None else [polars.DataFrame]
    return isinstance(value, tuple(kinds))


def named_columns(
    columns: Sequence[str], index: Any, value: Any, what: str = "index"
) -> tuple[list[str], str]:
    """Columns of the labels and of the value, by name; ValueError if there are no such columns."""
    listed = ", ".join(map(repr, columns))
    if isinstance(index, str) or not isinstance(index, Sequence) or not index:
        raise TypeError(
            f"{what} must be a list of the columns that hold labels, got {index!r:.80}. The "
            f"columns are {listed}."
        )
    for name in [*index, *([] if value is None else [value])]:
        if name not in columns:
            raise ValueError(f"there is no column {name!r}; the columns are {listed}.")
    if value is None:
        others = [name for name in columns if name not in index]
        if len(others) != 1:
            raise ValueError(
                f"value is needed, the column of the values: one of "
                f"{', '.join(map(repr, others)) or 'none that is left'}."
            )
        value = others[0]
    check_names(index, value)
    return list(index), value
