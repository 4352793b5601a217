"""Climate data of Debian's package ferret-datasets."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lowtucker.datasets.base import Dataset, NumPyArray

__all__ = ["FERRET", "INSTALL", "VARIABLES", "Variable", "climatology"]

# Where Debian's package has its files
FERRET = Path("/usr/share/ferret-vis/data")
INSTALL = "apt install ferret-datasets"
# Hours between the months of a climatology, as in the files
MONTH = 730.485
# Units as the files write them, and as everybody else does
UNITS = {"DEG C": "°C", "M/S": "m/s", "G/KG": "g/kg", "MB": "mbar"}


class Variable(NamedTuple):
    """A variable of a NetCDF file."""

    file: str
    name: str


_COADS, _WINDS = "coads_climatology.cdf", "monthly_navy_winds.cdf"
VARIABLES = {
    "sea_surface_temperature": Variable(_COADS, "SST"),
    "air_temperature": Variable(_COADS, "AIRT"),
    "specific_humidity": Variable(_COADS, "SPEH"),
    "wind_speed": Variable(_COADS, "WSPD"),
    "zonal_wind": Variable(_COADS, "UWND"),
    "meridional_wind": Variable(_COADS, "VWND"),
    "sea_level_pressure": Variable(_COADS, "SLP"),
    "ocean_temperature": Variable("ocean_atlas_subset.nc", "TEMP"),
    "monthly_zonal_wind": Variable(_WINDS, "UWND"),
    "monthly_meridional_wind": Variable(_WINDS, "VWND"),
}


def climatology(
    variable: str = "sea_surface_temperature", *, folder: str | PathLike[str] = FERRET
) -> Dataset:
    """Load a variable of the climate data of Debian's package ferret-datasets.

    Parameters
    ----------
    variable : str
        Averages of the months over the oceans, 12x90x180, from ``coads_climatology.cdf``:
        ``"sea_surface_temperature"`` (default), ``"air_temperature"``, ``"specific_humidity"``,
        ``"wind_speed"``, ``"zonal_wind"``, ``"meridional_wind"``, ``"sea_level_pressure"``;
        with 19 depths ``"ocean_temperature"``, 12x19x90x180, from ``ocean_atlas_subset.nc``. The
        132 months 1982 to 1992, 132x73x144: ``"monthly_zonal_wind"`` and
        ``"monthly_meridional_wind"`` from ``monthly_navy_winds.cdf``.
    folder : path
        Where the files are.

    Returns
    -------
    Dataset
        NaN where there are no data, as on land.

    Raises
    ------
    FileNotFoundError
        The file is missing: the package is not installed.
    ValueError
        There is no such variable.

    Examples
    --------
    >>> from lowtucker import datasets
    >>> if datasets.available()["climatology"].installed:
    ...     assert datasets.climatology().dims == ("month", "latitude", "longitude")
    """
    if variable not in VARIABLES:
        raise ValueError(f"variable must be one of {', '.join(VARIABLES)}, got {variable!r}.")
    file, name = VARIABLES[variable]
    path = Path(folder) / file
    if not path.exists():
        raise FileNotFoundError(
            f"lowtucker.datasets.climatology() reads {path}, which does not exist. It is a file of "
            f"Debian's package ferret-datasets. Try: {INSTALL}, or folder= if you have it elsewhere"
        )
    from scipy.io import netcdf_file

    with netcdf_file(path, mmap=False) as opened:
        return _dataset(opened, name, variable)


def _dataset(opened: Any, name: str, variable: str) -> Dataset:
    data = opened.variables[name]
    axes = dict(_axis(opened.variables[axis]) for axis in data.dimensions)
    file = VARIABLES[variable].file
    return Dataset(
        values=np.where(data.data == data.missing_value, np.nan, data.data).astype(np.float64),
        dims=tuple(axes),
        coords=axes,
        title=variable.replace("_", " ").capitalize(),
        unit=UNITS.get(_text(getattr(data, "units", b"")).upper(), ""),
        licence="Ferret License Agreement (NOAA), in /usr/share/doc/ferret-datasets/copyright",
        citation=f"NOAA, Ferret, data set {Path(file).stem}",
        source=f"Debian's package ferret-datasets, {file}",
    )


def _axis(axis: Any) -> tuple[str, NumPyArray]:
    """Return the name of a mode by its unit, and its labels."""
    unit = _text(axis.units)
    values = np.array(axis.data, dtype=float)
    if unit.startswith("hour since"):
        origin = unit.removeprefix("hour since ")
        if origin.startswith("0000"):  # a climatology: the middle of each month
            return "month", (values // MONTH).astype(int) + 1
        start = np.datetime64(origin.replace(" ", "T"))
        return "time", start + np.round(3600 * values).astype("timedelta64[s]")
    names = {"degrees_east": "longitude", "degrees_north": "latitude", "METERS": "depth"}
    return names[unit], values


def _text(attribute: bytes) -> str:
    return attribute.decode("ascii")
