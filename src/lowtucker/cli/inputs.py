"""Arrays in files: which of several is meant, and what is missing to read it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from lowtucker.cli.words import lacks

__all__ = ["Source", "as_entries", "check_complete"]


class Source(NamedTuple):
    """An array in a file.

    Attributes
    ----------
    path : Path
    name : str or None
        None for the only array of a file.
    """

    path: Path
    name: str | None = None

    @classmethod
    def found(
        cls, path: Path, name: str | None, likely: str, option: str, *, alone: bool = True
    ) -> Source:
        """Find an array by its name, or by the likely one where a file holds several.

        Raises ValueError where neither says which; and where the only array of a file cannot be it,
        since that is not ``alone``.
        """
        if name is not None or path.suffix.lower() == ".zarr":
            return cls(path, name)
        infos = listed(path)
        names = [info.name for info in infos]
        matching = [one for one in names if one == likely]
        matching = matching or [one for one in names if one.lower() == likely.lower()]
        if len(names) == 1 and (alone or not matching):
            if not alone:
                raise ValueError(
                    f"{path} holds one array, {_described(infos)}: give the file of y after that "
                    "of A, as in `lowtucker recover A.npy y.npy`."
                )
            return cls(path)
        if len(matching) == 1:
            return cls(path, matching[0])
        raise ValueError(
            f"{path} holds several arrays, {_described(infos)}, and none of them is named "
            f"{likely}. Give {option}, such as {option} {names[0]}."
        )

    def array(self) -> Any:
        """Read it."""
        import lowtucker as lt

        return lt.io.load_array(self.path, self.name)

    def vector(self) -> Any:
        """Read a vector; flatten a matrix of one column or row, as MATLAB stores vectors."""
        array = self.array()
        return array.reshape(-1) if array.ndim == 2 and 1 in array.shape else array


def listed(path: Path) -> list[Any]:
    """Arrays of a file; a sparse matrix of SciPy, which is several, as one."""
    import lowtucker as lt

    infos = lt.io.describe(path)
    if path.suffix.lower() == ".npz" and lt.io.is_sparse(path):
        return [next(info for info in infos if info.name == "data")]
    return infos


def as_entries(A: Any) -> Any:
    """Sampled entries, where every row of a sparse matrix picks one; otherwise the operator.

    Then als works.
    """
    import numpy as np

    import lowtucker as lt

    matrix = A.matrix if isinstance(A, lt.SparseOperator) else None
    if matrix is None or matrix.nnz != A.m or not np.all(matrix.data == 1):
        return A
    if np.any(np.diff(matrix.indptr) != 1):
        return A
    return lt.entries(A.shape, np.stack(np.unravel_index(matrix.indices, A.shape, A.order), axis=1))


def _described(infos: list[Any]) -> str:
    return ", ".join(f"{info.name} {info.shape}" for info in infos)


def check_complete(
    of_A: Source, shape: tuple[int, ...] | None, order: str | None, needed: Mapping[str, Any]
) -> None:
    """Raise an error that names all options that are missing, where any is.

    Those of ``needed`` that are None, and what the file of A needs.
    """
    missing = [name for name, value in needed.items() if value is None]
    if shape is None and not _has_shape(of_A):
        missing.append("shape")
    if order is None and of_A.path.suffix.lower() == ".mat":
        missing.append("order")
    if missing:
        context = click.get_current_context()
        raise lacks(context, [param for param in context.command.params if param.name in missing])


def _has_shape(source: Source) -> bool:
    """Whether an array (m, *shape) is in the file, or may be."""
    if source.path.suffix.lower() == ".zarr":
        return True
    infos = [one for one in listed(source.path) if source.name in (None, one.name)]
    return not infos or (len(infos[0].shape) > 2 and infos[0].dtype != "sparse")
