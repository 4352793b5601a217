"""Dask arrays with holes: workers find the known entries, and fill the holes chunk by chunk."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lowtucker._array import as_float, size, to_numpy
from lowtucker._array.memory import available_memory, check_room
from lowtucker.labels.data import Data, Errors, Samples, full_tensor
from lowtucker.operators import EntriesOperator
from lowtucker.tensor import TuckerTensor, multi_mode_product
from lowtucker.tensor.iterate import Iterate

__all__ = ["DaskData", "lazy_tensor"]

NumPyArray = np.ndarray[Any, Any]


class DaskData(Data):
    """A Dask array, NaN where it is unknown: only known entries come here.

    Chunks are read once, on the cluster of the session (``distributed.Client``) where there is one,
    otherwise in threads; twice where all entries would not fit into memory here, to count those
    that are known first.
    """

    def __init__(self, array: Any) -> None:
        if any(math.isnan(n) for n in array.shape):
            raise ValueError(
                f"values has chunks of unknown size, shape {array.shape}. Try "
                "values.compute_chunk_sizes() first."
            )
        self.shape = tuple(int(n) for n in array.shape)
        if not self.shape or not size(self.shape):
            raise ValueError(f"values must be a tensor with entries, got shape {self.shape}.")
        # of an empty chunk, for the dtype and its errors
        self._array = array.astype(as_float(np.empty(0, array.dtype), "values").dtype)

    def samples(self) -> Samples:
        """Operator and values of what is not NaN, in row-major order."""
        self._check_memory()
        flat, y = _gathered(self._array)
        if not len(y):
            raise ValueError("values has nothing but NaN: no entry is known.")
        order = np.argsort(flat, kind="stable")
        flat, y = flat[order], y[order]
        indices = np.stack(np.unravel_index(flat, self.shape), axis=1)
        infinite = np.flatnonzero(np.isinf(y))
        if len(infinite):
            where = tuple(indices[infinite[0]].tolist())
            raise ValueError(f"values is infinite at {where}. Mark what is not known by NaN.")
        return EntriesOperator(self.shape, indices), y

    def _check_memory(self) -> None:
        one = self._array.dtype.itemsize + 8 * (len(self.shape) + 2)  # value, indices, their order
        if one * size(self.shape) < available_memory():
            return
        import dask.array as da

        known = int((~da.isnan(self._array)).sum().compute())
        check_room(
            one * known,
            f"The {known} known entries of a tensor of shape {self.shape}",
            "Try a part of the array, or a sample of its entries with indices=.",
        )

    def filled(self, X: Iterate, errors: Errors) -> Any:
        """Return a Dask array of the same chunks, which computes the missing entries when asked."""
        import dask.array as da

        return da.where(da.isnan(self._array), lazy_tensor(X, self._array.chunks), self._array)


def lazy_tensor(X: Iterate, chunks: tuple[tuple[int, ...], ...]) -> Any:
    """X as a Dask array: chunks are computed from the factors, where it has any."""
    import dask.array as da

    if not isinstance(X, TuckerTensor) or X.batch_shape:
        return da.from_array(full_tensor(X), chunks=chunks)
    core, factors = to_numpy(X.core), [to_numpy(U) for U in X.factors]
    return da.map_blocks(
        _block, chunks=chunks, dtype=core.dtype, meta=np.empty((0,) * core.ndim, core.dtype),
        core=core, factors=factors,
    )  # fmt: skip


def _block(core: NumPyArray, factors: list[NumPyArray], block_info: Any = None) -> NumPyArray:
    """Part of a Tucker tensor: some rows of each factor."""
    places = block_info[None]["array-location"]
    rows = [U[first:last] for U, (first, last) in zip(factors, places, strict=True)]
    made: NumPyArray = multi_mode_product(core, rows)
    return made


def _gathered(array: Any) -> tuple[NumPyArray, NumPyArray]:
    """Flat indices and values of what is not NaN, chunk after chunk."""
    import dask

    blocks = array.to_delayed()
    starts = [np.cumsum([0, *lengths[:-1]]) for lengths in array.chunks]
    found = dask.delayed(_known, pure=True)
    tasks = [
        found(block, [int(s[i]) for s, i in zip(starts, where, strict=True)], array.shape)
        for where, block in np.ndenumerate(blocks)
    ]
    parts = dask.compute(*tasks)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _known(block: Any, start: list[int], shape: tuple[int, ...]) -> tuple[NumPyArray, NumPyArray]:
    """Flat indices, in the whole array, and values of what is not NaN in a chunk."""
    block = np.asarray(block)
    known = ~np.isnan(block)
    where = [i + first for i, first in zip(np.nonzero(known), start, strict=True)]
    return np.ravel_multi_index(where, shape), block[known]
