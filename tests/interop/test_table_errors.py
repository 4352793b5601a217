"""What is wrong with a table is said with its column and row, in the words of the table."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt

pd = pytest.importorskip("pandas", reason="pandas is not installed")

INDEX = ["station", "day"]


def table(**columns):
    """Sixteen rows, numbered from 10 so that a row's label is not its position."""
    rows = [(f"s{i}", j, (i + 1.0) * (j + 2.0)) for i in range(4) for j in range(4)]
    made = pd.DataFrame(rows, columns=[*INDEX, "count"], index=range(10, 26))
    return made.assign(**columns)


def counts_as_text(dtype, row=None):
    texts = [str(one) for one in table()["count"]]
    if row is not None:
        texts[row] = "many"
    return pd.Series(texts, index=range(10, 26), dtype=dtype)


@pytest.mark.parametrize("dtype", [object, "str", "string"])
def test_the_row_that_is_not_a_number_is_named_for_every_type_of_text(dtype):
    with pytest.raises(ValueError, match=r"column 'count' must have numbers, got 'many' in row 4"):
        lt.complete(table(count=counts_as_text(dtype, 4)), 1, index=INDEX, value="count")


@pytest.mark.parametrize("dtype", [object, "str", "string"])
def test_numbers_written_as_text_are_read(dtype):
    expected = lt.complete(table(), 1, index=INDEX, value="count")
    result = lt.complete(table(count=counts_as_text(dtype)), 1, index=INDEX, value="count")
    np.testing.assert_array_equal(result.X.full(), expected.X.full())


def test_an_unknown_column_lists_those_of_the_table_alone():
    with pytest.raises(ValueError, match=r"no column 'dya'; .* are 'station', 'day', 'count'\.$"):
        lt.complete(table(), 1, index=["station", "dya"], value="count")


def test_a_level_of_the_index_may_be_named_beside_columns():
    result = lt.complete(table().set_index("day"), 1, index=INDEX, value="count")
    expected = lt.complete(table(), 1, index=INDEX, value="count")
    np.testing.assert_array_equal(result.X.full(), expected.X.full())


def test_a_table_without_rows_is_refused():
    with pytest.raises(ValueError, match="column 'station' has no labels: the table has no rows"):
        lt.complete(table().iloc[:0], 1, index=INDEX, value="count")


def test_a_column_with_one_label_is_shown_as_it_is():
    with pytest.raises(ValueError, match=r"'station' has one label only, 's0': .* out of index"):
        lt.complete(table(station="s0"), 1, index=INDEX, value="count")
