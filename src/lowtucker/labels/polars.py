"""Tables of polars."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker.labels.data import ArrayData, Data, Errors, Samples
from lowtucker.labels.record import Labels, plain_labels
from lowtucker.labels.tables import Codes, TableData, named_columns
from lowtucker.tensor.iterate import Iterate

__all__ = ["read"]

NumPyArray = np.ndarray[Any, Any]


def read(given: Any, index: Any, value: Any) -> Data:
    """Data of a DataFrame: with ``index`` a row is a sample, without it the frame is a matrix."""
    if index is not None:
        return LongTable(given, *named_columns(given.columns, index, value))
    if value is not None:
        raise ValueError(f"index is needed with value={value!r}: the columns that hold the labels.")
    return Matrix(given)


class LongTable(TableData):
    """Rows of labels and a value."""

    def __init__(self, frame: Any, index: list[str], value: str) -> None:
        codes = [_codes(frame[name]) for name in index]
        super().__init__(codes, _numbers(frame[value], value), index, value)

    def filled(self, X: Iterate, errors: Errors) -> Any:
        """Return a DataFrame of every combination; standard errors of observed values are null."""
        import polars as pl

        made = pl.DataFrame(self.answer(X, errors))
        return made.with_columns(pl.col("^standard_error$").fill_nan(None))


class Matrix(Data):
    """A DataFrame as a matrix, null or NaN where it is unknown; its columns are labels."""

    def __init__(self, frame: Any) -> None:
        self._columns = list(frame.columns)
        columns = [_numbers(frame[name], name, HINT) for name in self._columns]
        if not columns:
            raise ValueError("values must be a table with columns, got none.")
        self._inner = ArrayData(np.stack(columns, axis=1))
        self.shape = self._inner.shape
        self.labels = Labels(("row", "column"), (None, plain_labels(self._columns)))

    def samples(self) -> Samples:
        """Operator and values of what is not NaN."""
        return self._inner.samples()

    def filled(self, X: Iterate, errors: Errors) -> Any:
        """Return a DataFrame of the same columns."""
        import polars as pl

        return pl.DataFrame(self._inner.filled(X, errors), schema=self._columns)


HINT = ' If rows are samples, name the columns: index=["...", "..."], value="...".'


def _codes(column: Any) -> Codes:
    """Labels of a column in order, and where each row's is among them."""
    import polars as pl

    labels = column.drop_nulls().unique().sort()
    if labels.dtype.is_float():
        labels, column = labels.filter(labels.is_not_nan()), column.fill_nan(None)
    places = pl.DataFrame({"label": labels, "code": np.arange(len(labels))})
    joined = pl.DataFrame({"label": column}).join(
        places, on="label", how="left", maintain_order="left"
    )
    return Codes(joined["code"].fill_null(-1).to_numpy(), labels)


def _numbers(column: Any, name: str, hint: str = "") -> NumPyArray:
    """Values of a column; NaN where there is none."""
    import polars as pl

    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        shown = f"{column.drop_nulls()[0]!r}" if column.null_count() < len(column) else "nothing"
        raise ValueError(
            f"column {name!r} must have numbers, got {shown} of the type {column.dtype}. Try "
            f'pl.col("{name}").cast(pl.Float64).{hint}'
        )
    single = column.dtype == pl.Float32
    return np.asarray(column.cast(pl.Float32 if single else pl.Float64).to_numpy())
