"""Tables of samples: valid tables, rejected tables and written tables."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lowtucker._array.errors import FileFormatError
from lowtucker.io import TABLES, guards, load_indices, load_samples, samples, save_samples

INDICES, VALUES = [[0, 10], [3, 2], [12, 0]], [2.5, -3.0, 1e-7]
ROWS = [("0", "10", "2.5"), ("3", "2", "-3"), ("12", "0", "1e-7")]


def table(mark=",", end="\n", rows=ROWS):
    return end.join(mark.join(row) for row in rows) + end


@pytest.fixture
def put(tmp_path):
    def write(content, name="samples.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


GOOD = {
    "commas": table(),
    "commas and blanks": table(", "),
    "semicolons": table(";"),
    "tabs": table("\t"),
    "blanks": table("   "),
    "blanks in front": "  " + table("  "),
    "no last line end": table().rstrip(),
    "names": "i,j,value\n" + table(),
    "names in quotes": '"i","j","the value"\n' + table(),
    "names between semicolons": "i;j;value\n" + table(";"),
    "names with blanks between tabs": "user id\titem id\tscore\n" + table("\t"),
    "names between blanks": "i j value\n" + table(" "),
    "windows": "i,j,value\r\n" + table(end="\r\n"),
    "old mac": "i,j,value\r" + table(end="\r"),
    "comments": "# made by hand; see a, b\n\n#\n" + table(),
    "comments, then names": "# made by hand\n\n  \ni,j,value\n# units: m\n\n" + table(),
    "names as a comment": "#i;j;value\n" + table(),
    "comments between and behind": "0,10,2.5\n# one\n3,2,-3 # two\n\n12,0,1e-7\n#",
    "signs and exponents": "+0,1E1,+2.5e0\n3.0,2,-300E-2\n12,0,.0000001\n",
    "signs": "+0,+10,+2.5\n+3,+2,-3\n+12,+0,+1e-7\n",
    "long": "i,j,value\n" + table() + "# " + "x" * 3000,
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_valid_tables(put, text):
    indices, values = load_samples(put(text))
    assert indices.tolist() == INDICES
    assert values.tolist() == VALUES
    assert indices.dtype == np.int64
    assert values.dtype == np.float64
    again = load_samples(str(put(text, "again.txt")), 2)
    assert again[0].tolist() == INDICES


def test_one_line_and_one_mode(put):
    indices, values = load_samples(put("7,2.5\n"), 1)
    assert (indices.tolist(), values.tolist()) == ([[7]], [2.5])
    indices, values = load_samples(put("1 2 3 4 5\n"))
    assert (indices.tolist(), values.tolist()) == ([[1, 2, 3, 4]], [5.0])


def test_indices_alone(put):
    for text in ("i,j\n0,1\n2,3\n", "0 1\n2 3", "0;1\r\n2;3\r\n"):
        index = load_indices(put(text), 2)
        assert index.tolist() == [[0, 1], [2, 3]]
        assert index.dtype == np.int64
    assert load_indices(put("cell\n4\n5\n"), 1).tolist() == [[4], [5]]


def test_indices_are_exact(put):
    largest = 2**53 - 1
    assert load_indices(put(f"{largest}\n"), 1).tolist() == [[largest]]


BAD = [
    (b"", "is empty; expected text with the columns i1, ..., id, value"),
    ("7\n8\n", "has one column; expected i1, ..., id, value"),
    ("0,1,2\n0,1\n", r"columns changed from 3 to 2 at row 2\); expected"),
    ("0,0.5,2\n", "sample 0 has the index 0.5 in column 2; expected whole numbers from 0"),
    ("0,1,2\n1.25,0,2\n", "sample 1 has the index 1.25 in column 1"),
    ("0,nan,2\n", "sample 0 has the index nan in column 2"),
    ("inf,0,2\n", "sample 0 has the index inf in column 1"),
    ("0,-1e300,2\n", r"sample 0 has the index -1e\+300 in column 2"),
    ("0,1,2\n0,2,nan\n", "sample 1 has the value nan; omit unknown entries"),
    ("0,1,-inf\n", "sample 0 has the value -inf"),
    ("0,1,2\n1,1,2\n0,two,2\n", "could not convert string 'two' .*row 2, column 2"),
    ("i,j,value\n0,1,2\n1,1,\n", "could not convert string '' .*row 1, column 3"),
    ("0\t1\t2\n0\t\t2\n", "could not convert string '' .*row 1, column 2"),
    ("0;1;2,5\n0;2;2,5\n", "is not a table of numbers"),
    ("0,1,1+2j\n0,2,1+2j\n", "is not a table of numbers"),
    ("<!DOCTYPE html><html></html>", "is an HTML page, perhaps from a failed download"),
    ("\n <p>Not found</p>", "expected text with the columns"),
    ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is not a table of numbers"),
    (pickle.dumps([1, 2]), "is a pickle, which is never read"),
    (b"\x93NUMPY\x01\x00", "is a NumPy .npy file"),
    (b"PK\x03\x04", "is a zip archive"),
    (b"\x1f\x8b\x08\x00", "is a gzip file; unpack it first"),
    (bytes(range(256)), "is of an unknown format"),
    ("0,1,2\n".encode("utf-16"), "is of an unknown format"),
    (b"0,1,2\n" * 300 + b"\xff\xfe\n", "is not a table of numbers .*utf-8"),
    (b"0,1,2\n" * 300 + b"\x00\n", "is not a table of numbers"),
]


@pytest.mark.parametrize(("content", "message"), BAD, ids=lambda v: str(v)[:25])
def test_invalid_tables(put, content, message):
    path = put(content)
    with pytest.raises(FileFormatError, match=message) as caught:
        load_samples(path)
    assert str(caught.value).startswith(str(path))
    assert "usecols" not in str(caught.value)  # NumPy's advice does not apply


def test_number_of_columns_must_match_the_shape(put):
    path = put("0,1,2\n")
    with pytest.raises(FileFormatError, match=r"has 3 columns; expected 4, i1, ..., id, value"):
        load_samples(path, 3)
    with pytest.raises(FileFormatError, match=r"has 3 columns; expected 2, i1, ..., id; check"):
        load_indices(path, 2)
    with pytest.raises(FileFormatError, match=r"sample 0 has the index 1.5 in column 2"):
        load_indices(put("0,1.5\n"), 2)


def test_missing_file(tmp_path):
    for read in (load_samples, lambda path: load_indices(path, 2)):
        with pytest.raises(FileNotFoundError, match=r"none.csv does not exist; check the path"):
            read(tmp_path / "none.csv")


def test_table_larger_than_memory_is_rejected(put, monkeypatch):
    path = put(table())
    monkeypatch.setattr(guards, "physical_memory", lambda: 8 * path.stat().st_size)
    load_samples(path)
    monkeypatch.setattr(guards, "physical_memory", lambda: 8 * path.stat().st_size - 1)
    monkeypatch.setattr(samples.np, "loadtxt", None)
    with pytest.raises(FileFormatError, match="bytes of memory"):
        load_samples(path)


def test_suffixes():
    assert TABLES == (".csv", ".tsv", ".txt")


# writing


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hnp.arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 4)),
               elements=st.integers(0, 2**53 - 1)),
    st.data(),
)  # fmt: skip
def test_round_trip_is_exact(tmp_path, indices, data):
    finite = st.floats(allow_nan=False, allow_infinity=False)
    values = data.draw(hnp.arrays(np.float64, len(indices), elements=finite))
    path = tmp_path / "x.csv"
    save_samples(path, indices, values, overwrite=True)
    again, same = load_samples(path, indices.shape[1])
    np.testing.assert_array_equal(again, indices)
    assert same.tobytes() == values.tobytes()


def test_written_table_has_a_header(tmp_path):
    path = tmp_path / "x.csv"
    save_samples(path, [[0, 1, 2], [3, 4, 5]], np.array([0.1, 2]))
    assert path.read_bytes() == b"i1,i2,i3,value\n0,1,2,0.1\n3,4,5,2.0\n"
    single = np.array([0.1], dtype=np.float32)
    save_samples(path, np.array([[7]]), single, overwrite=True)
    assert load_samples(path)[1].astype(np.float32) == single


def test_values_with_two_axes_are_rejected(tmp_path):
    with pytest.raises(TypeError, match=r"values must be a vector .* shape \(1, 1\)"):
        save_samples(tmp_path / "x.csv", [[0]], [[1.0]])
    assert not list(tmp_path.iterdir())


def test_existing_file_is_kept(tmp_path):
    path = tmp_path / "x.csv"
    save_samples(path, [[0]], [1.0])
    with pytest.raises(FileExistsError, match=r"x.csv exists; pass overwrite=True"):
        save_samples(path, [[0]], [2.0])
    assert load_samples(path)[1] == [1.0]
    save_samples(path, [[0]], [2.0], overwrite=True)
    assert load_samples(path)[1] == [2.0]


def test_failed_write_leaves_no_file(tmp_path):
    path = tmp_path / "x.csv"
    save_samples(path, [[0]], [1.0])
    with pytest.raises(ValueError, match=r"one row .* for each of the 2 values"):
        save_samples(path, [[0], [1], [2]], [1.0, 2.0], overwrite=True)
    assert load_samples(path)[1] == [1.0]
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]


# samples must not be lost silently


@pytest.mark.parametrize(
    "first", ["0,10,2.5 # by hand", "0,10,", "0,10,NA", "0,10,2.5x", "0x0,10,2.5", '"0","10","2.5"']
)
def test_first_sample_is_not_mistaken_for_a_header(put, first):
    """It is read or rejected like any other sample."""
    try:
        indices, _ = load_samples(put(f"{first}\n3,2,-3\n"))
    except FileFormatError:
        return
    assert len(indices) == 2


@pytest.mark.parametrize("cut", [*range(1, 12), 400])
def test_a_long_comment_in_front(put, cut):
    """The first 1024 bytes end anywhere in the header or the first sample."""
    before = "#" * (1023 - cut) + "\n"
    for text in ("10,3,2e-05\n3,2,-3\n", "i,j,value\n10,3,2e-05\n3,2,-3\n"):
        for longer in (before, before + "# x\n" * 300):
            assert len(load_samples(put(longer + text))[0]) == 2


@pytest.mark.parametrize("text", ["\n\n", "# nothing\n", "i,j,value\n"])
def test_a_table_without_numbers(put, text):
    with pytest.raises(FileFormatError, match="has no lines with numbers; expected the columns"):
        load_samples(put(text))


# tables of spreadsheets


@pytest.mark.parametrize(
    "text", ["\ufeff" + table(), "\ufeffi,j,value\n" + table(), "größe,j,value\n" + table(),
             "# µm\n" + table(), "#" + "µ" * 600 + "\n" + table(),
             "##" + "µ" * 600 + "\n" + table()],
    ids=["mark", "mark and names", "names", "comment", "cut in a character", "cut between them"],
)  # fmt: skip
def test_tables_of_spreadsheets(put, text):
    assert load_samples(put(text))[0].tolist() == INDICES


def test_comment_after_the_first_line(put):
    assert load_samples(put("  # from a, b\n" + table(" ")))[0].tolist() == INDICES


def test_comment_before_commas_after_the_first_line(put):
    assert load_samples(put("  # from a, b\n" + table()))[0].tolist() == INDICES
    assert load_samples(put("  # from a, b\ni,j,value\n" + table()))[0].tolist() == INDICES


def test_complex_values_are_rejected_or_read(tmp_path):
    path = tmp_path / "x.csv"
    try:
        save_samples(path, [[0, 1]], [1 + 2j])
    except (TypeError, ValueError):
        return
    assert load_samples(path)[1] == [1 + 2j]
