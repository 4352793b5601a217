"""Tables of pandas."""

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
    """Data of a DataFrame or a Series.

    With ``index``, or a MultiIndex, a row is a sample; without both, the frame is a matrix.
    """
    import pandas as pd

    levels = isinstance(given.index, pd.MultiIndex)
    if isinstance(given, pd.Series):
        if not levels and index is None:
            raise ValueError(
                "values is a Series whose index has one level, which makes a vector. Give it a "
                "MultiIndex with a level for each mode, or a DataFrame with index and value."
            )
        given = given.to_frame("value" if given.name is None else given.name)
    if index is None and not levels:
        if value is not None:
            raise ValueError(
                f"index is needed with value={value!r}: the columns that hold the labels."
            )
        return Matrix(given)
    if index is None:
        names = [f"level_{k}" if n is None else n for k, n in enumerate(given.index.names)]
        flat = given.rename_axis(index=names).reset_index()
        return LongTable(flat, *named_columns(list(flat.columns), names, value), as_index=True)
    if any(name in given.index.names for name in _listed(index) if name not in given.columns):
        given = given.reset_index()
    return LongTable(given, *named_columns(list(given.columns), index, value), as_index=False)


def _listed(index: Any) -> list[Any]:
    return list(index) if isinstance(index, list | tuple) else []


class LongTable(TableData):
    """Rows of labels and a value."""

    def __init__(self, frame: Any, index: list[str], value: str, as_index: bool) -> None:
        for name in (*index, value):
            if getattr(frame[name], "ndim", 1) != 1:
                raise ValueError(f"there are several columns {name!r}. Rename them.")
        codes = [_codes(frame[name], name) for name in index]
        super().__init__(codes, _numbers(frame[value], value), index, value)
        self._as_index = as_index

    def filled(self, X: Iterate, errors: Errors) -> Any:
        """Return a DataFrame of every combination; with a MultiIndex where one was given."""
        import pandas as pd

        made = pd.DataFrame(self.answer(X, errors))
        return made.set_index(list(self.labels.names)) if self._as_index else made


class Matrix(Data):
    """A DataFrame as a matrix, NaN where it is unknown: labels are its index and its columns."""

    def __init__(self, frame: Any) -> None:
        for name in frame.columns:
            if frame[name].ndim == 1 and not _is_numeric(frame[name]):
                raise ValueError(
                    f"column {name!r} has no numbers, but {frame[name].dtype}. If rows are samples,"
                    f' name the columns of labels and of the value: index=["{name}", ...], '
                    'value="...".'
                )
        self._inner = ArrayData(frame.to_numpy(dtype=_float_of(frame), na_value=np.nan))
        self.shape = self._inner.shape
        self._index, self._columns = frame.index, frame.columns
        names = (_name(frame.index, "row"), _name(frame.columns, "column"))
        self.labels = Labels(names, (plain_labels(frame.index), plain_labels(frame.columns)))

    def samples(self) -> Samples:
        """Operator and values of what is not NaN."""
        return self._inner.samples()

    def filled(self, X: Iterate, errors: Errors) -> Any:
        """Return a DataFrame of the same index and columns."""
        import pandas as pd

        full = self._inner.filled(X, errors)
        return pd.DataFrame(full, index=self._index, columns=self._columns)


def _name(index: Any, default: str) -> str:
    return default if index.name is None else str(index.name)


def _codes(column: Any, name: str) -> Codes:
    """Labels of a column in order; categories keep theirs."""
    import pandas as pd

    try:
        codes, labels = pd.factorize(column, sort=True)
    except TypeError as error:
        raise TypeError(
            f"column {name!r} has labels that cannot be sorted ({error}). Make them of one type, "
            f'such as frame["{name}"].astype(str).'
        ) from error
    return Codes(np.asarray(codes, dtype=np.int64), labels)


def _numbers(column: Any, name: str) -> NumPyArray:
    """Values of a column; NaN where there is none."""
    import pandas as pd

    if not _is_numeric(column):
        texts = column.dtype == object or isinstance(column.dtype, pd.StringDtype)
        parsed = pd.to_numeric(column, errors="coerce") if texts else None
        wrong = np.flatnonzero(column.notna() & (True if parsed is None else parsed.isna()))
        if parsed is None or len(wrong):
            row = int(wrong[0]) if len(wrong) else 0
            raise ValueError(
                f"column {name!r} must have numbers, got {column.iloc[row]!r} in row {row}. Try "
                f'pandas.to_numeric(frame["{name}"]).'
                if len(column)
                else f"column {name!r} has no rows."
            )
        column = parsed
    return np.asarray(column.to_numpy(dtype=_float_of(column), na_value=np.nan))


def _is_numeric(column: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype))


def _float_of(data: Any) -> Any:
    """Floating point type of the numbers: single and complex are kept, others become double."""
    kinds = {str(t).lower() for t in np.atleast_1d(np.asarray(data.dtypes, dtype=object))}
    if kinds == {"float32"}:
        return np.float32
    return complex if any(k.startswith("complex") for k in kinds) else float
