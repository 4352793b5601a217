"""Measurement operators from files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lowtucker.io.arrays import is_sparse, load_array, load_sparse
from lowtucker.io.guards import as_path, physical_memory
from lowtucker.io.rows import HDF5, ZARR, stored
from lowtucker.operators import DenseOperator, MeasurementOperator, SparseOperator
from lowtucker.operators.matrix import Order

__all__ = ["load_operator"]


def load_operator(
    path: str | os.PathLike[str],
    shape: tuple[int, ...] | None = None,
    *,
    name: str | None = None,
    order: Order | None = None,
    max_bytes: int | None = None,
) -> MeasurementOperator:
    """Read a measurement operator from a ``.npy``, ``.npz``, ``.mat``, HDF5 or Zarr file.

    Parameters
    ----------
    path : path-like
        An array of shape (m, N) or (m, n_1, ..., n_d), or a sparse matrix (of
        ``scipy.sparse.save_npz`` or MATLAB's ``save -v7``). HDF5, Zarr, and ``.npy`` files larger
        than half the memory are read block by block: see :func:`stored`.
    shape : tuple of int, optional
        Shape of the tensors; required unless the array has it.
    name : str, optional
        Name of the array. Required only if the file holds several.
    order : "C" or "F", optional
        How the rows of an (m, N) matrix were vectorised. Row-major ("C") by default; required
        for ``.mat`` files: MATLAB's ``X(:)`` is "F".
    max_bytes : int, optional
        Reject larger arrays.

    Raises
    ------
    FileFormatError
        If the file is damaged or of another format.
    """
    path = as_path(path)
    if order is None and path.suffix.lower() == ".mat":
        raise ValueError(
            f'order is needed for {path}: "F" if the rows are MATLAB\'s X(:), "C" if they '
            "are row-major (as in NumPy)."
        )
    if max_bytes is None and _stays(path):
        return stored(path, shape, order=order or "C", name=name)
    if is_sparse(path, name):
        if shape is None:
            raise ValueError(
                f"shape is needed to read the sparse matrix in {path} as measurements. "
                "Try shape=(30, 30, 10)."
            )
        matrix = load_sparse(path, name, max_bytes=max_bytes)
        return _made(path, SparseOperator, matrix, shape, order)
    matrix = load_array(path, name, max_bytes=max_bytes)
    return _made(path, DenseOperator, matrix, shape, order)


def _made(path: Path, kind: Any, matrix: Any, shape: Any, order: Any) -> MeasurementOperator:
    """Operator of a matrix; a message about it names its file."""
    try:
        operator: MeasurementOperator = kind(matrix, shape, order=order or "C")
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from None
    return operator


def _stays(path: Path) -> bool:
    """Return whether the rows are read on demand."""
    suffix = path.suffix.lower()
    large = suffix == ".npy" and path.exists() and 2 * path.stat().st_size > physical_memory()
    return large or suffix in (*HDF5, ZARR)
