"""Tables of pandas and polars, against arrays that are built by plain loops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import lowtucker as lt

RANK, INDEX = (2, 2, 2), ["station", "day", "hour"]
STATIONS = ["a", "b", "c", "d", "e", "f", "g"]
DAYS = pd.date_range("2024-02-26", periods=6)
HOURS = [0, 3, 6, 9, 12]
SHAPE = (7, 6, 5)
RNG = np.random.default_rng(0)
X = lt.random_tucker(SHAPE, RANK, seed=0).full() + 1e-3 * RNG.standard_normal(SHAPE)
HOLES = RNG.random(SHAPE) < 0.35
EXPECTED = lt.complete(np.where(HOLES, np.nan, X), RANK)
FILLED = np.where(HOLES, EXPECTED.X.full(), X)


def long_table(shuffled=False):
    rows = [
        (STATIONS[i], DAYS[j], HOURS[k], X[i, j, k])
        for i, j, k in np.argwhere(~HOLES)
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=[*INDEX, "count"])
    return frame.sample(frac=1, random_state=0) if shuffled else frame


def in_polars(frame):
    return pl.DataFrame({name: frame[name].to_list() for name in frame})


def test_every_combination_comes_back():
    result = lt.complete(long_table(), RANK, index=INDEX, value="count")
    np.testing.assert_array_equal(result.X.full(), EXPECTED.X.full())  # to the bit
    table = result.filled()
    assert list(table.columns) == [*INDEX, "count", "standard_error", "observed"]
    expected = pd.MultiIndex.from_product([STATIONS, DAYS, HOURS], names=INDEX)
    assert pd.MultiIndex.from_frame(table[INDEX]).equals(expected)
    np.testing.assert_array_equal(table["count"].to_numpy().reshape(SHAPE), FILLED)
    np.testing.assert_array_equal(table["observed"].to_numpy().reshape(SHAPE), ~HOLES)
    errors = table["standard_error"].to_numpy().reshape(SHAPE)
    assert np.isnan(errors[~HOLES]).all()
    np.testing.assert_array_equal(errors[HOLES], EXPECTED.standard_error(np.argwhere(HOLES)))
    assert "standard_error" not in result.filled(standard_error=False)


def test_polars():
    given = in_polars(long_table())
    table = lt.complete(given, RANK, index=INDEX, value="count").filled()
    assert isinstance(table, pl.DataFrame)
    assert table.columns == [*INDEX, "count", "standard_error", "observed"]
    assert table.schema["day"] == given.schema["day"]
    np.testing.assert_array_equal(table["count"].to_numpy().reshape(SHAPE), FILLED)
    assert table["standard_error"].null_count() == (~HOLES).sum()
    assert table["station"].unique().sort().to_list() == STATIONS


def test_order_of_rows_does_not_matter():
    table = lt.complete(long_table(shuffled=True), RANK, index=INDEX).filled()
    np.testing.assert_allclose(table["count"].to_numpy().reshape(SHAPE), FILLED, atol=1e-4)
    assert list(table["station"].unique()) == STATIONS


def test_missing_values_and_duplicates():
    frame = long_table()
    first = frame.iloc[[0]]
    frame.loc[3, "count"] = np.nan
    frame = pd.concat([frame, first.assign(count=first["count"] + 2.0)])
    result = lt.complete(frame, RANK, index=INDEX, value="count")
    table = result.filled()
    assert table["count"][0] == pytest.approx(first["count"].iloc[0] + 1.0, abs=1e-12)
    assert result.m == (~HOLES).sum()
    place = np.flatnonzero(~HOLES.reshape(-1))[3]
    assert not table["observed"][place]
    assert np.isfinite(table["count"][place])


def test_levels_of_an_index():
    series = long_table().set_index(INDEX)["count"]
    for given in (series, series.to_frame()):
        table = lt.complete(given, RANK).filled()
        assert table.index.names == INDEX
        np.testing.assert_array_equal(table["count"].to_numpy().reshape(SHAPE), FILLED)
    mixed = long_table().set_index("station")  # a level among the columns of index
    np.testing.assert_array_equal(
        lt.complete(mixed, RANK, index=INDEX).filled()["count"].to_numpy().reshape(SHAPE), FILLED
    )


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_categories_keep_their_order_and_types_come_back(library):
    order = [*"gfedcbaz"]
    frame = long_table()
    frame["day"] = frame["day"].dt.tz_localize("Europe/Berlin")
    frame["station"] = pd.Categorical(frame["station"], order, ordered=True)
    given = frame
    if library == "polars":
        given = in_polars(frame)
        given = given.with_columns(pl.col("station").cast(pl.Enum(order)))
    result = lt.complete(given, RANK, index=INDEX, value="count")
    table = result.filled()
    assert table["station"].dtype == given["station"].dtype
    assert table["day"].dtype == given["day"].dtype
    assert list(result.labels.coordinates[0]) == order[:-1]  # without the one that does not occur
    values = table["count"].to_numpy().reshape(SHAPE)
    np.testing.assert_array_equal(values[~HOLES[::-1]], X[::-1][~HOLES[::-1]])


@pytest.mark.parametrize("dtype", ["Float64", "float32", "Int64"])
def test_types_of_values(dtype):
    frame = long_table()
    frame["count"] = (100 * frame["count"]).round().astype(dtype)
    frame.loc[2, "count"] = None
    table = lt.complete(frame, RANK, index=INDEX, value="count").filled()
    assert table["count"].dtype == (np.float32 if dtype == "float32" else np.float64)
    assert not table["count"].isna().any()


def test_a_frame_without_index_is_a_matrix():
    matrix = np.outer(np.arange(1.0, 7), np.arange(1.0, 6))
    matrix[1, 2] = matrix[4, 0] = np.nan
    frame = pd.DataFrame(matrix, index=DAYS, columns=list("vwxyz"))
    filled = lt.complete(frame, 1).filled()
    assert filled.index.equals(frame.index)
    assert filled.columns.equals(frame.columns)
    np.testing.assert_array_equal(filled.to_numpy(), lt.complete(matrix, 1).filled())
    wide = lt.complete(pl.DataFrame(matrix, schema=list("vwxyz")), 1).filled()
    assert wide.columns == list("vwxyz")
    np.testing.assert_array_equal(wide.to_numpy(), filled.to_numpy())


@pytest.mark.parametrize("given", [long_table(), long_table().set_index(INDEX)["count"]])
def test_labels_are_kept_in_files(tmp_path, given):
    named = {"index": INDEX, "value": "count"} if isinstance(given, pd.DataFrame) else {}
    result = lt.complete(given, RANK, **named)
    result.save(tmp_path / "r.npz")
    again = lt.load(tmp_path / "r.npz")
    assert again.labels.names == tuple(INDEX)
    np.testing.assert_array_equal(again.labels.coordinates[1], DAYS.to_numpy())
    found, expected = again.filled(given), result.filled()
    pd.testing.assert_frame_equal(found[["count", "observed"]], expected[["count", "observed"]])
    assert 'index=["station", "day", "hour"]' in result.call.code({}) or not named


def test_a_table_without_supported_error_bars_has_no_column_of_them():
    result = lt.complete(
        long_table(), RANK, index=INDEX, held_out=0, solver=lt.TIHT(), max_epochs=2
    )
    assert not result.success
    assert "standard_error" not in result.filled().columns


def changed(**change):
    return long_table().assign(**change)


BAD = {
    "no such column": ({"index": ["station", "dya"]}, ValueError, "no column 'dya'; the columns"),
    "no such value": ({"value": "cuont"}, ValueError, "there is no column 'cuont'"),
    "a text": ({"index": "station"}, TypeError, "index must be a list of the columns that hold"),
    "twice": ({"index": ["day", "day"]}, ValueError, "column 'day' is given twice"),
    "value in index": ({"value": "day"}, ValueError, "column 'day' is given twice"),
    "several values": (
        {"index": ["station", "day"], "value": None},
        ValueError,
        "value is needed, the column of the values: one of 'hour', 'count'",
    ),
    "no index": ({"index": None}, ValueError, "index is needed with value='count'"),
    "texts": (
        {"values": changed(count=["x"] * len(long_table()))},
        ValueError,
        "column 'count' must have numbers, got 'x' in row 0",
    ),
    "no label": (
        {"values": changed(hour=long_table()["hour"].astype(float).where(lambda h: h.index != 4))},
        ValueError,
        "column 'hour' has no label in row 4",
    ),
    "one label": ({"values": changed(hour=5)}, ValueError, "'hour' has one label only, 5: a mode"),
    "infinite": ({"values": changed(count=np.inf)}, ValueError, "'count' is infinite in row 0"),
    "no value": ({"values": changed(count=np.nan)}, ValueError, "nothing but missing values"),
    "reserved": (
        {"values": long_table().rename(columns={"day": "observed"}),
         "index": ["station", "observed", "hour"]},
        ValueError,
        "column 'observed' has a name that the completed table uses itself",
    ),
    "array": ({"values": X}, TypeError, "index and value name the columns of a pandas or polars"),
    "indices": ({"indices": [[0, 0]], "shape": (2, 2)}, TypeError, "indices belongs to an array"),
    "shape": ({"shape": (2, 2, 2)}, ValueError, r"values has the shape \(7, 6, 5\), not shape="),
    "lazy": ({"values": pl.LazyFrame({"a": [1]})}, TypeError, "Try frame.collect()"),
    "series": (
        {"values": pd.Series([1.0, 2.0]), "index": None, "value": None},
        ValueError,
        "values is a Series whose index has one level",
    ),
    "labels in a matrix": (
        {"index": None, "value": None}, ValueError, "column 'station' has no numbers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_tables(name):
    change, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        lt.complete(**{"values": long_table(), "index": INDEX, "value": "count", **change})


POLARS = in_polars(long_table())
BAD_POLARS = {
    "no such column": (POLARS.drop("hour"), ValueError, "there is no column 'hour'"),
    "texts": (
        POLARS.with_columns(pl.lit("x").alias("count")),
        ValueError,
        "column 'count' must have numbers, got 'x' of the type String",
    ),
    "no label": (
        POLARS.with_columns(hour=pl.when(pl.col("hour") > 3).then(pl.col("hour"))),
        ValueError,
        "column 'hour' has no label in row",
    ),
}


@pytest.mark.parametrize("name", BAD_POLARS)
def test_bad_tables_of_polars(name):
    given, kind, message = BAD_POLARS[name]
    with pytest.raises(kind, match=message):
        lt.complete(given, index=INDEX, value="count")
