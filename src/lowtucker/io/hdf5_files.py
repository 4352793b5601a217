"""Arrays of HDF5 files, as h5py and others write them; axes are not reversed as in MATLAB's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtucker._array.errors import FileFormatError
from lowtucker.io.guards import (
    RATIO,
    ArrayInfo,
    damage_reported,
    file_size,
    require_room,
)
from lowtucker.operators.chunks import check_hdf5, check_hdf5_rows

__all__ = ["HDF5", "data_sets", "h5py_for", "list_h5", "read_h5"]

HDF5 = (".h5", ".hdf5", ".hdf")
LARGEST_CHUNK = 1 << 26  # bytes; read whole, beside the array


def h5py_for(path: Path) -> Any:
    """Import h5py; say how to install it."""
    try:
        import h5py
    except ImportError as error:
        raise ModuleNotFoundError(
            f'{path} is read with h5py; run pip install "lowtucker[hdf5]"'
        ) from error
    return h5py


def data_sets(group: Any, seen: set[int], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names and data sets of an HDF5 file, each once; links to other places are not followed.

    Not ``visititems``: with a damaged heap it never returns (seen with HDF5 2.0).
    """
    import h5py

    if len(group) == 0:  # raises for a damaged group
        return
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        address = h5py.h5o.get_info(item.id).addr
        if address in seen:
            continue
        seen.add(address)
        if isinstance(item, h5py.Group):
            yield from data_sets(item, seen, f"{prefix}{name}/")
        elif isinstance(item, h5py.Dataset):
            yield f"{prefix}{name}", item


def list_h5(path: Path) -> list[ArrayInfo]:
    """List the data sets of a file."""
    with damage_reported(path), h5py_for(path).File(path, "r") as file:
        return [
            ArrayInfo(name, tuple(item.shape or ()), str(item.dtype), int(item.nbytes))
            for name, item in data_sets(file, set())
        ]


def read_h5(path: Path, info: ArrayInfo) -> NDArray[Any]:
    """Read a data set that was listed; what it declares must be stored in the file."""
    where = f"{path}, /{info.name},"
    with damage_reported(path), h5py_for(path).File(path, "r") as file:
        item = file[info.name]
        if math.prod(item.chunks or ()) * item.dtype.itemsize > LARGEST_CHUNK:
            raise FileFormatError(f"{where} has chunks of more than 64 MB; export it again")
        check_hdf5(item, where)
        require_room(path, item.nbytes, RATIO * file_size(path))
        if item.chunks is not None:
            check_hdf5_rows(item, 0, item.shape[0], where)
        made: NDArray[Any] = np.empty(item.shape, item.dtype.newbyteorder("="))
        if made.size:
            item.read_direct(made)
        return made
