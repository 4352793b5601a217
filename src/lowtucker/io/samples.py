"""Sampled entries in text files: columns i1, ..., id, value."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from lowtucker._array import as_array, as_integer
from lowtucker._array.errors import FileFormatError
from lowtucker.io.arrays import looks_like
from lowtucker.io.guards import (
    as_path,
    check_target,
    file_size,
    first_bytes,
    replacing,
    require_file,
    require_memory,
)

__all__ = [
    "TABLES",
    "delimiter_of",
    "is_header",
    "is_text",
    "load_indices",
    "load_samples",
    "save_samples",
]

NumPyArray = np.ndarray[Any, Any]
TABLES = (".csv", ".tsv", ".txt")
# Indices above this are not exact in double precision
EXACT = 2**53


def load_samples(
    path: str | os.PathLike[str], order: int | None = None
) -> tuple[NumPyArray, NumPyArray]:
    """Read sampled entries of a tensor from a text file.

    Parameters
    ----------
    path : path-like
        One line per sample, ``i1, ..., id, value`` with indices from 0, separated by commas,
        semicolons, tabs or blanks. A header line and comments after ``#`` are skipped.
    order : int, optional
        The expected number d of modes.

    Returns
    -------
    indices : array of int, shape (m, d)
    values : array, shape (m,)

    Raises
    ------
    FileFormatError
        If the file is not such a table; the message names the first invalid sample.
    """
    path = as_path(path)
    columns = None if order is None else as_integer(order, "order") + 1
    table = _table(path, columns, "i1, ..., id, value")
    indices = _as_indices(path, table[:, :-1])
    bad = np.flatnonzero(~np.isfinite(table[:, -1]))
    if bad.size:
        value = table[bad[0], -1]
        raise FileFormatError(
            f"{path}: sample {bad[0]} has the value {value}; omit unknown entries"
        )
    return indices, table[:, -1]


def load_indices(path: str | os.PathLike[str], order: int) -> NumPyArray:
    """Read indices with the columns i1, ..., id, one row per entry."""
    path = as_path(path)
    return _as_indices(path, _table(path, as_integer(order, "order"), "i1, ..., id"))


def save_samples(
    path: str | os.PathLike[str], indices: Any, values: Any, *, overwrite: bool = False
) -> None:
    """Write entries of a tensor as ``i1, ..., id, value``, as read by :func:`load_samples`."""
    path = as_path(path)
    check_target(path, overwrite)
    index, value = as_array(indices, "indices"), as_array(values, "values")
    if value.dtype.kind not in "iuf" or value.ndim != 1:
        raise TypeError(
            f"values must be a vector of real numbers to be written as a table, got dtype "
            f"{value.dtype} and shape {value.shape}. Try result.save(path)."
        )
    if index.dtype.kind not in "iu" or index.ndim != 2 or len(index) != len(value):
        raise ValueError(
            f"indices must be integers, one row (i1, ..., id) for each of the {len(value)} values, "
            f"got dtype {index.dtype} and shape {index.shape}. Try numpy.argwhere(...)."
        )
    names = [f"i{k + 1}" for k in range(index.shape[1])] + ["value"]
    with replacing(path) as file:
        file.write((",".join(names) + "\n").encode())
        for i, v in zip(index.tolist(), value.tolist(), strict=True):
            file.write((",".join(map(str, i)) + f",{v!r}\n").encode())


def _table(path: Path, columns: int | None, wanted: str) -> NumPyArray:
    """Read a text file of numbers, one row per line."""
    require_file(path)
    head = first_bytes(path)
    if not is_text(head) or head.lstrip()[:1] == b"<":
        raise FileFormatError(
            f"{path} is {looks_like(head)}; expected text with the columns {wanted}"
        )
    require_memory(path, 8 * file_size(path), None)  # at least two characters per number
    try:
        with open(path, encoding="utf-8-sig") as file:
            skipped, first = next(
                (
                    (k, text)
                    for k, line in enumerate(file)
                    if (text := line.partition("#")[0].strip())
                ),
                (0, ""),
            )
        if not first:
            raise FileFormatError(
                f"{path} has no lines with numbers; expected the columns {wanted}"
            )
        delimiter = delimiter_of(first)
        skipped += is_header(first, delimiter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about an empty table
            table = np.loadtxt(
                path, delimiter=delimiter, skiprows=skipped, ndmin=2, encoding="utf-8-sig"
            )
    except FileFormatError:
        raise
    except (ValueError, UnicodeDecodeError) as error:
        reason = str(error).replace("; use `usecols` to select a subset and avoid this error", "")
        raise FileFormatError(
            f"{path} is not a table of numbers ({reason}); expected the columns {wanted}"
        ) from None
    if not table.size:
        raise FileFormatError(f"{path} has no lines with numbers; expected the columns {wanted}")
    if columns is not None and table.shape[1] != columns:
        raise FileFormatError(
            f"{path} has {table.shape[1]} columns; expected {columns}, {wanted}; check --shape"
        )
    if table.shape[1] < 2 and columns is None:
        raise FileFormatError(f"{path} has one column; expected {wanted}")
    return table


def is_text(head: bytes) -> bool:
    """Return whether bytes begin a text in UTF-8."""
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # more than a truncated last character
            return False
        text = head[: error.start].decode("utf-8-sig")
    return bool(head) and not re.search(r"[^\t\n\r\x20-\x7e\x80-\U0010ffff]", text)


def delimiter_of(line: str) -> str | None:
    """Return what separates the columns of a line; None for blanks."""
    return next((mark for mark in ",;\t" if mark in line), None)


def is_header(line: str, delimiter: str | None) -> bool:
    """Return whether a line is a header: none of its parts begins like a number."""
    return not any(re.match(r"[-+.]?\d", part.strip(" \t\"'")) for part in line.split(delimiter))


def _as_indices(path: Path, table: NumPyArray) -> NumPyArray:
    wrong = np.argwhere((table != np.floor(table)) | (np.abs(table) > EXACT))
    if len(wrong):
        i, k = wrong[0]
        raise FileFormatError(
            f"{path}: sample {i} has the index {table[i, k]:g} in column {k + 1}; expected whole"
            " numbers from 0, and the value in the last column"
        )
    return table.astype(np.int64)
