"""DataArrays of xarray: named dimensions with coordinates, in and out."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from lowtucker._array import to_numpy
from lowtucker.labels.dask import DaskData
from lowtucker.labels.data import ArrayData, Data, Errors, Samples, TensorForm
from lowtucker.labels.record import Labels, plain_attributes, plain_labels, same_labels
from lowtucker.labels.tables import is_frame
from lowtucker.operators.dask import is_dask
from lowtucker.tensor import TuckerTensor
from lowtucker.tensor.iterate import Iterate

__all__ = ["XarrayData", "XarrayForm", "factors_of", "is_dataarray", "labelled"]


def is_dataarray(value: Any) -> bool:
    """Whether a value is an xarray DataArray; TypeError for a Dataset."""
    xarray = sys.modules.get("xarray")
    if xarray is not None and isinstance(value, xarray.Dataset):
        names = list(map(str, value.data_vars))
        example = names[0] if names else "name"
        raise TypeError(
            f"values must be one DataArray, got a Dataset with {', '.join(names) or 'none'}. Try "
            f'dataset["{example}"].'
        )
    return xarray is not None and isinstance(value, xarray.DataArray)


class XarrayForm(Data):
    """Form of a DataArray; what is in it is in ``inner``."""

    def __init__(self, template: Any, inner: Data) -> None:
        self.shape, self.prototype = inner.shape, inner.prototype
        self.labels = labels_of(template)
        self._inner = inner
        # coordinates, attributes and names without the data
        self._template = template.copy(data=np.broadcast_to(np.nan, template.shape))

    def samples(self) -> Samples:
        """Operator and values of what is not NaN."""
        return self._inner.samples()

    def filled(self, X: Iterate, errors: Errors) -> Any:
        """Return a DataArray with the coordinates, attributes and names of the one given."""
        data = self._inner.filled(X, errors)
        if data.ndim == self._template.ndim:
            return self._template.copy(data=data)
        return self._template.expand_dims({"problem": len(data)}).copy(data=data)


class XarrayData(XarrayForm):
    """A DataArray, NaN where it is unknown."""

    def __init__(self, given: Any) -> None:
        data = given.data
        super().__init__(given, DaskData(data) if is_dask(data) else ArrayData(data))


def labels_of(array: Any) -> Labels:
    """Labels of a DataArray."""
    coordinates = tuple(
        plain_labels(array.indexes[dim]) if dim in array.indexes else None for dim in array.dims
    )
    names = tuple(str(dim) for dim in array.dims)
    value = None if array.name is None else str(array.name)
    return Labels(names, coordinates, value, plain_attributes(array.attrs))


def labelled(A: Any, y: Any, shape: Any) -> tuple[Any, Any, Data | None]:
    """Arrays of A and y, and the form of the tensors where A is a DataArray (m, n_1, ..., n_d)."""
    if is_dataarray(y) or is_frame(y):
        y = _measured(y, A)
    if not is_dataarray(A):
        return A, y, None
    if shape is not None or A.ndim < 2:
        raise ValueError(
            "A DataArray has one dimension for the measurements and one for each mode, and no "
            f"shape beside; got the dimensions {tuple(A.dims)} and shape={shape}. Try A.data."
        )
    row = A.isel({A.dims[0]: 0}, drop=True).rename(None).drop_attrs()
    return A.data, y, XarrayForm(row, TensorForm(tuple(row.shape)))


def _measured(y: Any, A: Any) -> Any:
    """Measurements as an array; ValueError if their labels are not those of the rows of A."""
    if is_dataarray(y):
        own = y.indexes.get(y.dims[-1]) if y.dims else None
        values = y.data.compute() if is_dask(y.data) else y.data
    else:
        own, values = getattr(y, "index", None), y.to_numpy()
    if own is None or not is_dataarray(A) or A.dims[0] not in A.indexes:
        return values
    rows = A.indexes[A.dims[0]]
    unnamed = type(own).__name__ == "RangeIndex" and not is_dataarray(y)
    if not unnamed and not same_labels(plain_labels(rows), plain_labels(own)):
        raise ValueError(
            f"The labels of y are not those of A along {A.dims[0]!r}: {list(own[:3])}... and "
            f"{list(rows[:3])}... Bring y into the order of A: y.sel({A.dims[0]}=A.{A.dims[0]}) "
            "for a DataArray, y.loc[...] for a Series."
        )
    return values


def factors_of(X: Iterate, labels: Labels | None, attributes: dict[str, Any]) -> Any:
    """Dataset of the core and the factors; of the full tensor for another format."""
    try:
        import xarray
    except ImportError as error:
        raise ImportError(
            'to_xarray needs xarray, which is not installed. Try: pip install "lowtucker[xarray]"'
        ) from error
    labels = labels or Labels.default(len(X.shape))
    pairs = zip(labels.names, labels.coordinates, strict=True)
    coords = {name: labels for name, labels in pairs if labels is not None}
    lead = tuple(f"problem_{k}" if k else "problem" for k in range(len(X.batch_shape)))
    variables: dict[str, Any] = {}
    if isinstance(X, TuckerTensor):
        ranks = [f"rank_{name}" for name in labels.names]
        variables["core"] = ((*lead, *ranks), to_numpy(X.core))
        for name, rank, U in zip(labels.names, ranks, X.factors, strict=True):
            variables[f"factor_{name}"] = ((*lead, name, rank), to_numpy(U))
    else:
        variables["tensor"] = ((*lead, *labels.names), to_numpy(X.full()))
    if labels.value is not None:
        attributes = {"value": labels.value, **attributes}
    return xarray.Dataset(variables, coords, attrs={**labels.attributes, **attributes})
