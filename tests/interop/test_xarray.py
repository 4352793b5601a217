"""DataArrays in, DataArrays out: checked against calls with plain arrays."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from distributed import Client, LocalCluster

import lowtucker as lt

SHAPE, RANK = (9, 8, 7), (2, 2, 2)
RNG = np.random.default_rng(0)
X = lt.random_tucker(SHAPE, RANK, seed=0).full() + 1e-3 * RNG.standard_normal(SHAPE)
HOLES = RNG.random(SHAPE) < 0.4
ARRAY = np.where(HOLES, np.nan, X)
EXPECTED = lt.complete(ARRAY, RANK)
FILLED = np.where(HOLES, EXPECTED.X.full(), ARRAY)


def data_array(values=ARRAY):
    return xr.DataArray(
        values,
        dims=("station", "day", "hour"),
        coords={
            "station": list("abcdefghi"),
            "day": pd.date_range("2024-02-25", periods=8),
            "height": ("station", np.arange(9.0)),  # beside the dimensions
            "run": 3,
        },
        name="temperature",
        attrs={"units": "K", "sensors": [1, 2], "object": dict},
    )


def same_form(found, given):
    xr.testing.assert_identical(found, given.copy(data=found.data))


def test_holes_of_a_dataarray_are_filled():
    given = data_array()
    result = lt.complete(given, RANK)
    np.testing.assert_array_equal(result.X.full(), EXPECTED.X.full())
    filled = result.filled()
    same_form(filled, given)
    np.testing.assert_array_equal(filled.values, FILLED)
    assert np.isnan(given.values).sum() == HOLES.sum()


def test_the_answer_does_not_change_with_the_data_given():
    given = data_array(ARRAY.copy())
    result = lt.complete(given, RANK)
    given[:] = 0.0
    np.testing.assert_array_equal(result.filled().values, FILLED)


def test_integers_have_no_holes():
    given = xr.DataArray(np.arange(20).reshape(4, 5), dims=("a", "b"))
    filled = lt.complete(given, (2, 2)).filled()
    np.testing.assert_array_equal(filled.values, given.values)
    assert filled.dims == ("a", "b")


def test_factors_have_the_coordinates():
    result = lt.complete(data_array(), RANK)
    dataset = result.to_xarray()
    assert dataset["factor_station"].dims == ("station", "rank_station")
    np.testing.assert_array_equal(dataset["day"].values, data_array()["day"].values)
    product = dataset["core"]
    for name in ("station", "day", "hour"):
        product = xr.dot(product, dataset[f"factor_{name}"], dim=f"rank_{name}")
    np.testing.assert_allclose(product.values, result.X.full(), rtol=0, atol=1e-12)
    expected = {"status": "NOISE_FLOOR", "units": "K", "value": "temperature"}
    assert expected.items() <= dataset.attrs.items()
    assert dataset.attrs["held_out"] == result.held_out
    assert list(dataset.attrs["rank"]) == [2, 2, 2]
    assert "object" not in dataset.attrs  # no file could keep it


def test_tensors_without_factors_or_labels():
    noisy = ARRAY + 0.05 * np.random.default_rng(3).standard_normal(SHAPE)
    shrunk = lt.complete(noisy)
    assert shrunk.rank is None
    np.testing.assert_array_equal(shrunk.to_xarray()["tensor"].values, shrunk.X.full())
    assert shrunk.to_xarray()["tensor"].dims == ("mode_0", "mode_1", "mode_2")
    before = shrunk.X.full().copy()
    assert not np.isnan(shrunk.filled()).any()
    np.testing.assert_array_equal(shrunk.X.full(), before)  # not written into


def test_labels_are_kept_in_files(tmp_path):
    given = data_array()
    result = lt.complete(given, RANK)
    result.save(tmp_path / "r.npz")
    for again in (lt.load(tmp_path / "r.npz"), pickle.loads(pickle.dumps(result))):
        xr.testing.assert_identical(again.to_xarray(), result.to_xarray())
        with pytest.raises(ValueError, match=r"do not keep the data. Give them again: result.fill"):
            again.filled()
        xr.testing.assert_identical(again.filled(given), result.filled())
        with pytest.raises(ValueError, match=r"labels of 'station' are not those of X"):
            again.filled(given.assign_coords(station=list("abcdefghj")))
        with pytest.raises(ValueError, match=r"The modes of values are called None"):
            again.filled(ARRAY)
        with pytest.raises(ValueError, match=r"values has the shape \(3,\), and X \(9, 8, 7\)"):
            again.filled([1.0, 2.0, 3.0])


def test_a_dataset_is_refused():
    with pytest.raises(TypeError, match=r'got a Dataset with temperature. Try dataset\["temp'):
        lt.complete(data_array().to_dataset(), RANK)


@pytest.fixture(scope="module")
def client():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            yield client


def only_on_workers(block):
    """Fail where a whole chunk is computed in this process."""
    from distributed import get_worker

    get_worker()
    return block


def test_chunks_stay_on_the_cluster(client):
    given = data_array().chunk({"station": 4, "day": 3})
    given = given.copy(data=given.data.map_blocks(only_on_workers, dtype=float))
    result = lt.complete(given, RANK)
    np.testing.assert_array_equal(result.X.full(), EXPECTED.X.full())  # to the bit
    filled = result.filled()
    assert filled.chunks == given.chunks
    same_form(filled, given)
    np.testing.assert_allclose(filled.values, FILLED, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(filled.values[~HOLES], ARRAY[~HOLES])


def test_dask_arrays_without_a_cluster():
    given = da.from_array(ARRAY.astype(np.float32), chunks=(4, 8, 2))
    with_rank, without = lt.complete(given, RANK), lt.complete(given)
    expected = lt.complete(ARRAY.astype(np.float32), RANK)
    np.testing.assert_array_equal(with_rank.X.full(), expected.X.full())
    assert with_rank.filled().dtype == np.float32
    for result in (with_rank, without):
        assert result.filled().chunks == given.chunks
        np.testing.assert_allclose(
            result.filled().compute()[HOLES], result.X.full()[HOLES], rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (da.full((4, 4), np.nan), "values has nothing but NaN"),
        (da.full((4, 4), np.inf), r"values is infinite at \(0, 0\)"),
        (da.ones((4, 4))[da.ones(4) > 0], "chunks of unknown size"),
        (da.ones((0, 4)), "values must be a tensor with entries"),
    ],
)
def test_bad_dask_arrays(array, message):
    with pytest.raises(ValueError, match=message):
        lt.complete(array, 1)


def measurements(data):
    rows = xr.DataArray(data, dims=("sample", "x", "y"), coords={"x": [10, 20, 30, 40]})
    return rows.assign_coords(sample=np.arange(60))


def test_labelled_measurements():
    A = np.random.default_rng(1).standard_normal((60, 4, 5))
    y = np.einsum("mij,ij->m", A, np.outer(np.arange(1.0, 5), np.arange(2.0, 7)))
    expected = lt.recover(A, y, 1)
    labelled_y = xr.DataArray(y, dims="sample", coords={"sample": np.arange(60)})
    for rows in (measurements(A), measurements(da.from_array(A, chunks=(20, 4, 5)))):
        for given in (y, labelled_y, pd.Series(y)):
            filled = lt.recover(rows, given, 1).filled()
            assert filled.dims == ("x", "y")
            np.testing.assert_array_equal(filled["x"], [10, 20, 30, 40])
            np.testing.assert_allclose(filled.values, expected.X.full(), rtol=1e-5)
    np.testing.assert_array_equal(expected.filled(), expected.X.full())
    batch = lt.recover(measurements(A), np.stack([y, 2 * y]), 1)
    assert batch.filled().dims == ("problem", "x", "y")
    assert batch.trial(1).filled().dims == ("x", "y")
    with pytest.raises(ValueError, match="The labels of y are not those of A along 'sample'"):
        lt.recover(measurements(A), labelled_y[::-1], 1)
    with pytest.raises(ValueError, match="one dimension for the measurements"):
        lt.recover(measurements(A), y, 1, shape=(4, 5))


def test_xarray_is_needed_for_datasets_only():
    code = (
        "import sys; sys.modules['xarray'] = None\n"
        "import numpy as np, lowtucker as lt\n"
        "r = lt.complete(np.outer([1.0, 2, 3], [1.0, 2, 3]), 1)\n"
        "try: r.to_xarray()\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "lowtucker[xarray]"' in done.stdout
