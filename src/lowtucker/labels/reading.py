"""Recognise what was given, without importing what was not."""

from __future__ import annotations

import sys
from typing import Any

from lowtucker._array import as_shape
from lowtucker.io.tables import Table
from lowtucker.labels.dask import DaskData
from lowtucker.labels.data import ArrayData, Data, SampleData
from lowtucker.labels.tables import Codes, TableData, is_frame
from lowtucker.labels.xarray import XarrayData, is_dataarray
from lowtucker.operators.dask import is_dask

__all__ = ["as_data"]


def as_data(
    values: Any, *, indices: Any = None, shape: Any = None, index: Any = None, value: Any = None
) -> Data:
    """Data to complete, whatever they are in.

    Parameters
    ----------
    values, indices, shape, index, value
        As in :func:`lowtucker.complete`.
    """
    is_table = is_frame(values)
    if (index is not None or value is not None) and not is_table:
        raise TypeError(
            "index and value name the columns of a pandas or polars DataFrame, and values is a "
            f"{type(values).__name__}. Leave them out."
        )
    if indices is not None:
        if is_table and hasattr(values, "columns"):
            raise TypeError(
                "indices belongs to an array of values, and values is a DataFrame. Leave it out: "
                "index=[...] names the columns of the labels."
            )
        return SampleData(values, indices, shape)
    data = _table(values, index, value) if is_table else _array(values)
    if shape is not None and as_shape(shape) != data.shape:
        raise ValueError(
            f"values has the shape {data.shape}, not shape={tuple(shape)}. Leave shape out, or "
            "give the indices of the samples."
        )
    return data


def _array(values: Any) -> Data:
    if isinstance(values, Table):
        columns = [Codes(values.codes[:, k], one) for k, one in enumerate(values.labels)]
        return TableData(columns, values.values, values.names, values.value)
    if is_dataarray(values):
        return XarrayData(values)
    return DaskData(values) if is_dask(values) else ArrayData(values)


def _table(values: Any, index: Any, value: Any) -> Data:
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(values, polars.DataFrame):
        from lowtucker.labels.polars import read as read_polars

        return read_polars(values, index, value)
    from lowtucker.labels.pandas import read as read_pandas

    return read_pandas(values, index, value)
