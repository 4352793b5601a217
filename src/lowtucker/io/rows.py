"""Rows of measurements in files larger than memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lowtucker._array.errors import FileFormatError
from lowtucker.io.arrays import load_array, looks_like
from lowtucker.io.guards import as_path, damage_reported, first_bytes, require_file
from lowtucker.io.hdf5_files import HDF5, data_sets, h5py_for
from lowtucker.operators.matrix import Order
from lowtucker.operators.stored import StoredOperator

__all__ = ["HDF5", "ZARR", "stored"]

ZARR = ".zarr"
METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")  # of Zarr


def stored(
    source: Any,
    shape: tuple[int, ...] | None = None,
    *,
    order: Order = "C",
    name: str | None = None,
) -> StoredOperator:
    """Return an operator whose rows are read from a file block by block.

    Parameters
    ----------
    source : path-like, numpy.memmap, h5py.Dataset or zarr.Array
        A ``.npy`` file, an HDF5 file (``.h5``, ``.hdf5``), a Zarr folder (``.zarr``), or an array
        of one of these, (m, N) or (m, n_1, ..., n_d). float32 takes half the time of float64.
    shape : tuple of int, optional
        Shape of the tensors; required if the rows are vectors.
    order : "C" or "F"
        How the rows of an (m, N) array were vectorised; "F" is MATLAB's order.
    name : str, optional
        Name of the data set or array. Required only if the file holds several.

    Raises
    ------
    FileFormatError
        If the file is damaged, truncated or of another format.
    OSError
        If rows cannot be read, also later during a pass; the message names the rows.

    Notes
    -----
    Memory: two blocks of 32 MB, and for compressed HDF5 and for Zarr up to three times a chunk,
    as chunks are read whole; the three must fit into the free memory. A pass reads each row once;
    a thread reads the next block during the computation, so that a pass takes about as long as the
    slower of the two. The fastest format is ``.npy``, then HDF5 without chunks, then Zarr. HDF5
    needs ``pip install "lowtucker[hdf5]"``, Zarr ``pip install "lowtucker[zarr]"``.

    What a file declares must be stored in it: external and virtual data sets of HDF5 and missing
    chunks are refused, and links are not followed. Chunks of HDF5 with gzip are checked when
    they are first read, which takes about as long as to read them.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np, lowtucker as lt
    >>> X_true = lt.random_tucker((8, 8, 8), (2, 2, 2), seed=0)
    >>> rows = np.random.default_rng(1).standard_normal((250, 512))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "A.npy")
    ...     np.save(path, rows)
    ...     A = lt.stored(path, shape=(8, 8, 8))
    ...     result = lt.recover(A, A.forward(X_true), rank=(2, 2, 2))
    >>> result.success, lt.metrics.relative_error(result.X, X_true) < 1e-5
    (True, True)
    """
    if not isinstance(source, str | os.PathLike):
        return StoredOperator(source, shape, order=order)
    path = as_path(source, "source")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path")
    suffix = path.suffix.lower()
    if suffix in HDF5:
        array = _of_hdf5(path, name)
    elif suffix == ZARR:
        array = _of_zarr(path, name)
    elif suffix == ".npy":
        array = load_array(path, mmap=True)
    else:
        known = ", ".join([".npy", *HDF5, ZARR])
        raise FileFormatError(
            f"{path} has the suffix {suffix!r}; rows are read from {known}. Try "
            "lowtucker.io.load_operator, which reads other files into memory."
        )
    try:
        return StoredOperator(array, shape, order=order)
    except FileFormatError:  # names its place in the file
        raise
    except ValueError as error:
        raise type(error)(f"{path}: {error}") from None


def _of_hdf5(path: Path, name: str | None) -> Any:
    """Open a data set of an HDF5 file."""
    h5py = h5py_for(path)
    require_file(path)
    head = first_bytes(path)
    if not h5py.is_hdf5(path):
        raise FileFormatError(f"{path} is {looks_like(head)}; expected an HDF5 file")
    with damage_reported(path):
        found = dict(data_sets(h5py.File(path, "r"), set()))
    return _chosen(path, found, name)


def _of_zarr(path: Path, name: str | None) -> Any:
    """Open an array of a Zarr folder."""
    try:
        import zarr
    except ImportError as error:
        raise ModuleNotFoundError(
            f'{path} is read with zarr; run pip install "lowtucker[zarr]"'
        ) from error
    for file in path.rglob("*") if path.is_dir() else ():
        if file.name in METADATA and not file.is_file():
            raise FileFormatError(f"{file} is a folder, a pipe or a device; expected a file")
    with damage_reported(path):
        opened = zarr.open(path, mode="r")
        if isinstance(opened, zarr.Array):
            return opened
        found = dict(opened.arrays())
    return _chosen(path, found, name)


def _chosen(path: Path, found: dict[str, Any], name: str | None) -> Any:
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is not None and name.strip("/") in found:
        return found[name.strip("/")]
    listed = ", ".join(f"{key} {tuple(item.shape)}" for key, item in found.items()) or "none"
    given = "several arrays or none" if name is None else f"no array {name!r}"
    raise ValueError(f"{path} holds {given}; give the name of one of: {listed}")
