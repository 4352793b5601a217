"""What every loader returns, and the packages that ship the data."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

__all__ = ["PILLOW", "SKLEARN", "TENSORLY", "Dataset", "NumPyArray", "Package", "require"]

NumPyArray = np.ndarray[Any, Any]


class Package(NamedTuple):
    """A Python package that ships data: its name, its module and the extra that installs it."""

    name: str
    module: str
    extra: str

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f'pip install "lowtucker[{self.extra}]"'

    @property
    def installed(self) -> bool:
        """Whether it can be imported, which is not tried."""
        return find_spec(self.module) is not None


TENSORLY = Package("TensorLy", "tensorly", "bench")
SKLEARN = Package("scikit-learn", "sklearn", "sklearn")
PILLOW = Package("Pillow", "PIL", "video")


def require(loader: str, *packages: Package) -> None:
    """Raise ImportError if a package that a loader needs is not installed."""
    for package in packages:
        if not package.installed:
            raise ImportError(
                f"lowtucker.datasets.{loader}() needs {package.name}, which is not installed. "
                f"Try: {package.install}"
            )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Dataset:
    """An array with the names and labels of its modes, and where it comes from.

    Parameters
    ----------
    values : array
        The data, floating point; NaN where they are missing.
    dims : tuple of str
        Name of each mode.
    title : str
        What the data are.
    unit : str
        Unit of the values; empty if the package that ships them does not state it.
    licence, citation : str
        Terms of use, and what to cite.
    source : str
        The package, and the file in it.
    coords : mapping from str to array
        Labels of modes, by name; modes without labels are left out.

    Examples
    --------
    >>> from lowtucker import datasets
    >>> datasets.flame().values.shape
    (30, 30, 10)
    """

    values: NumPyArray
    dims: tuple[str, ...]
    title: str
    unit: str = ""
    licence: str
    citation: str
    source: str
    coords: Mapping[str, NumPyArray] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return tuple(self.values.shape)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {n}" for name, n in zip(self.dims, self.shape, strict=True))
        missing = int(np.isnan(self.values).sum())
        lines = {
            "modes": sizes,
            "missing": f"{missing} of {self.values.size} values" if missing else "nothing",
            "unit": self.unit or "not stated",
            **{name: _ends(labels) for name, labels in self.coords.items()},
            "licence": self.licence,
            "cite": self.citation,
            "source": self.source,
        }
        width = max(map(len, lines)) + 4
        shown = [
            textwrap.fill(f"  {name:<{width - 2}}{text}", 100, subsequent_indent=" " * width)
            for name, text in lines.items()
        ]
        return "\n".join([f"Dataset: {self.title}", *shown])

    def to_xarray(self) -> Any:
        """Return an ``xarray.DataArray`` with the coordinates; the rest is in its attributes.

        Raises
        ------
        ImportError
            xarray is not installed.

        Examples
        --------
        >>> from lowtucker import datasets
        >>> datasets.flame().to_xarray().dims
        ('row', 'column', 'frame')
        """
        try:
            import xarray
        except ImportError as error:
            raise ImportError(
                "to_xarray needs xarray, which is not installed. "
                'Try: pip install "lowtucker[xarray]"'
            ) from error
        about = {
            "long_name": self.title,
            "units": self.unit,
            "licence": self.licence,
            "citation": self.citation,
            "source": self.source,
        }
        attributes = {name: text for name, text in about.items() if text}
        return xarray.DataArray(self.values, dict(self.coords), self.dims, attrs=attributes)


def _ends(labels: NumPyArray) -> str:
    """Return the first and the last of many labels, all of a few."""
    named = [f"{label:.6g}" if labels.dtype.kind == "f" else str(label) for label in labels]
    if len(named) <= 4:
        return ", ".join(named)
    return f"{named[0]}, {named[1]}, ..., {named[-1]}"
