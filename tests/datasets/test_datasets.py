"""Data sets of installed packages: values against the files themselves, labels, and advice."""

from __future__ import annotations

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.io import netcdf_file

import lowtucker as lt
from lowtucker import datasets
from lowtucker.datasets import base, catalogue, ferret

NAMES = ["indian_pines", "kinetic", "il2", "covid", "photograph", "climatology", "flame"]


def load(name, *arguments, **options):
    """Call a loader; skip, with the reason, where its package is not installed."""
    found = datasets.available()[name]
    if not found.installed:
        pytest.skip(f"{found.source} is not installed: {found.install}")
    return getattr(datasets, name)(*arguments, **options)


def file_of_tensorly(name):
    tensorly = pytest.importorskip("tensorly")
    return np.load(Path(tensorly.__file__).parent / "datasets" / "data" / name)


def test_every_loader_is_listed():
    assert sorted(datasets.available()) == sorted(NAMES)
    assert {*NAMES, "Availability", "Dataset", "available"} == set(datasets.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_records_are_complete(name):
    data = load(name, **({"repair": False} if name == "indian_pines" else {}))
    assert data.values.dtype == np.float64
    assert len(data.dims) == len(set(data.dims)) == data.values.ndim
    assert set(data.coords) <= set(data.dims)
    for mode, labels in data.coords.items():
        assert labels.shape == (data.shape[data.dims.index(mode)],)
        assert labels.dtype.kind in "fiUM"
    assert all((data.title, data.licence, data.citation, data.source))
    assert not np.isinf(data.values).any()
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.title = "another"


@pytest.mark.parametrize(
    ("name", "shape", "dims", "missing"),
    [
        ("kinetic", (64, 12, 10, 60), ("measurement", "emission", "excitation", "time"), 1754),
        ("il2", (13, 4, 12, 8), ("ligand", "time", "dose", "cell"), 192),
        ("covid", (438, 6, 11), ("sample", "antigen", "receptor"), 0),
        ("photograph", (427, 640, 3), ("row", "column", "colour"), 0),
        ("climatology", (12, 90, 180), ("month", "latitude", "longitude"), 89622),
        ("flame", (30, 30, 10), ("row", "column", "frame"), 0),
    ],
)
def test_shapes_and_missing_values(name, shape, dims, missing):
    data = load(name)
    assert (data.shape, data.dims) == (shape, dims)
    assert np.isnan(data.values).sum() == missing


def test_missing_values_of_kinetic_are_not_zeros():
    stored, lost = file_of_tensorly("Kinetic.npy"), file_of_tensorly("Kinetic_missing.npy")
    values = datasets.kinetic().values
    np.testing.assert_array_equal(np.isnan(values), lost)
    np.testing.assert_array_equal(values[~lost], stored[~lost])
    assert not stored[lost].any()


@pytest.mark.slow
def test_indian_pines_is_repaired_where_the_shipped_file_is_damaged():
    stored = file_of_tensorly("Indian_pines_corrected.npy")
    as_shipped = datasets.indian_pines(repair=False)
    np.testing.assert_array_equal(as_shipped.values, stored)
    gap = (stored >= 3328) & (stored < 3584)
    if gap.any():
        pytest.skip("this version of TensorLy ships values that are not damaged")
    data = datasets.indian_pines()
    change = data.values - stored
    assert set(np.unique(change)) == {0, 768}
    assert np.mean(change > 0) == pytest.approx(0.0277, abs=0.001)
    assert "repaired" in data.source
    assert "repaired" not in as_shipped.source
    # Independent of the low-rank approximations: in band 57, neighbouring pixels are alike
    before, after = (np.abs(np.diff(v[:, :, 56], axis=1)) for v in (stored / 1.0, data.values))
    assert np.mean(before > 500) > 0.1
    assert np.mean(after > 500) < 0.02


def test_values_without_the_damage_are_not_touched(monkeypatch):
    tensorly = pytest.importorskip("tensorly")
    shipped = tensorly.datasets.load_indian_pines()
    shipped["tensor"] = shipped["tensor"].copy()
    shipped["tensor"][0, 0, 0] = 3400  # between 3328 and 3583: no byte 13 was replaced
    monkeypatch.setattr(tensorly.datasets, "load_indian_pines", lambda: shipped)
    data = datasets.indian_pines()
    np.testing.assert_array_equal(data.values, shipped["tensor"])
    assert "repaired" not in data.source


def test_photograph_is_the_file_of_scikit_learn():
    picture = load("photograph").values
    import sklearn.datasets
    from PIL import Image

    folder = Path(sklearn.datasets.__file__).parent / "images"
    with Image.open(folder / "china.jpg") as opened:
        np.testing.assert_array_equal(np.rint(255 * picture), np.asarray(opened))
    about = (folder / "README.txt").read_text().partition("Image: flower.jpg")[0]
    for fact in ("china.jpg", "licenses/by/2.0", "danielbuechele", "6061409035"):
        assert fact in about


@pytest.mark.parametrize("variable", ferret.VARIABLES)
def test_climate_data_are_those_of_the_files(variable):
    data = load("climatology", variable)
    file, name = ferret.VARIABLES[variable]
    with netcdf_file(ferret.FERRET / file, mmap=False) as opened:
        raw = np.array(opened.variables[name].data, dtype=float)
    np.testing.assert_array_equal(np.isnan(data.values), np.abs(raw) > 1e9)
    np.testing.assert_array_equal(data.values[np.abs(raw) < 1e9], raw[np.abs(raw) < 1e9])
    assert data.coords["latitude"][0] < -88
    assert np.ptp(data.coords["longitude"]) == pytest.approx(358, abs=1)


def test_months_and_dates_are_labels():
    np.testing.assert_array_equal(load("climatology").coords["month"], np.arange(1, 13))
    times = load("climatology", "monthly_zonal_wind").coords["time"]
    months = times.astype("datetime64[M]")
    expected = np.arange(np.datetime64("1982-01"), np.datetime64("1993-01"))
    np.testing.assert_array_equal(months, expected)


def test_file_that_is_not_installed_is_named_with_its_package(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"coads_climatology\.cdf, which does not exist.*"
                       r"ferret-datasets.*apt install ferret-datasets"):  # fmt: skip
        datasets.climatology(folder=tmp_path)


def test_unknown_variable_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"one of sea_surface_temperature, .*got 'SST'"):
        datasets.climatology("SST")


@pytest.mark.parametrize(
    ("name", "module", "package", "extra"),
    [
        *((name, "tensorly", "TensorLy", "bench") for name in NAMES[:4]),
        ("photograph", "sklearn", "scikit-learn", "sklearn"),
        ("photograph", "PIL", "Pillow", "video"),
    ],
)
def test_missing_package_is_named_with_how_to_install_it(name, module, package, extra, monkeypatch):
    def find(asked):
        return None if asked == module else importlib.util.find_spec(asked)

    monkeypatch.setattr(base, "find_spec", find)
    if module == "PIL":
        pytest.importorskip("sklearn")
    advice = rf'{name}\(\) needs {package}, .*pip install "lowtucker\[{extra}\]"'
    with pytest.raises(ImportError, match=advice):
        getattr(datasets, name)()
    found = datasets.available()[name]
    assert not found.installed
    assert extra in found.install


def test_missing_files_are_listed_as_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "FERRET", tmp_path / "nothing")
    assert datasets.available()["climatology"] == (
        False, "Debian's package ferret-datasets", "apt install ferret-datasets",
    )  # fmt: skip


def test_listing_imports_no_package():
    code = (
        "import sys, lowtucker as lt; lt.datasets.available()\n"
        "print(*{'tensorly', 'sklearn', 'PIL', 'xarray', 'scipy.io'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_repr_has_modes_labels_licence_and_citation():
    text = repr(load("il2"))
    for part in (
        "Dataset: Signalling responses", "ligand 13, time 4, dose 12, cell 8",
        "192 of 4992 values", "not stated", "time     4, 2, 1, 0.5", "MIT", "Orcutt-Jahns",
        "TensorLy",
    ):  # fmt: skip
        assert part in text
    assert max(map(len, text.splitlines())) <= 100


def test_data_arrays_have_coordinates_and_attributes():
    xarray = pytest.importorskip("xarray")
    data = lt.datasets.Dataset(
        values=np.array([[1.0, np.nan]]), dims=("place", "day"), title="Rain", unit="mm",
        licence="none", citation="nobody", source="here", coords={"day": np.array([3, 4])},
    )  # fmt: skip
    expected = xarray.DataArray(
        [[1.0, np.nan]], {"day": [3, 4]}, ("place", "day"),
        attrs={"long_name": "Rain", "units": "mm", "licence": "none", "citation": "nobody",
               "source": "here"},
    )  # fmt: skip
    xarray.testing.assert_identical(data.to_xarray(), expected)


def test_flame_of_another_shape():
    assert datasets.flame((8, 9, 4)).shape == (8, 9, 4)
