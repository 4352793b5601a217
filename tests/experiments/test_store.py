"""Results on disk: real files, some of them damaged."""

from __future__ import annotations

import io
import pickle
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtucker.simulation.base import Experiment
from lowtucker.simulation.store import Store


@dataclass(frozen=True)
class Numbers(Experiment):
    """Numbers that identify their cell and trial."""

    stack: int = 50
    scale: float = 1.0
    columns: tuple[str, ...] = ("trial", "value", "curve")

    @property
    def name(self):
        return "numbers"

    def cells(self):
        return ["a", "b"]

    def compute(self, cell, first, count, seed):
        trial = np.arange(first, first + count)
        value = self.scale * (trial + 1000 * seed + 1e6 * ord(cell))
        made = {"trial": trial, "value": value, "curve": value[:, None] + np.arange(3) / 8}
        return {name: made[name] for name in self.columns}

    def work(self, cell):
        return 1.0


NUMBERS = Numbers()
TWO_COLUMNS = Numbers(columns=("trial", "value"))
SEED = 7


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cells")


def put(store, first, stop, experiment=NUMBERS, cell="a", seed=SEED):
    store.put(experiment, cell, seed, first, experiment.compute(cell, first, stop - first, seed))


def get(store, trials, experiment=NUMBERS, cell="a", seed=SEED):
    return store.get(experiment, cell, seed, trials)


def missing(store, trials, experiment=NUMBERS, cell="a", seed=SEED):
    return store.missing(experiment, cell, seed, trials)


def assert_equal_columns(found, expected):
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        assert found[name].dtype == column.dtype
        np.testing.assert_array_equal(found[name], column, strict=True)


def assert_has(store, trials, experiment=NUMBERS, cell="a", seed=SEED):
    assert missing(store, trials, experiment, cell, seed) == []
    found = get(store, trials, experiment, cell, seed)
    assert_equal_columns(found, experiment.compute(cell, 0, trials, seed))


def only_file(store, name="*.npz"):
    (path,) = store.folder.rglob(name)
    return path


def test_columns_round_trip(store):
    made = {
        "float": np.array([0.1, np.nan, -np.inf, -0.0]),
        "single": np.array([1, 2, 3, 4], dtype=np.float32),
        "integer": np.array([-1, 0, 2**62, 3]),
        "bool": np.array([True, False, False, True]),
        "complex": np.arange(4) * 1j,
        "tensor": np.arange(4 * 6, dtype=float).reshape(2, 3, 4).T,
    }
    store.put(NUMBERS, "a", SEED, 0, made)
    assert_equal_columns(get(store, 4), made)


def test_missing_folder_holds_no_results(store):
    assert get(store, 1) is None
    assert missing(store, 60) == [(0, 50), (50, 10)]
    assert not store.folder.exists()


@pytest.mark.parametrize(
    ("stack", "stored", "trials", "expected"),
    [
        (50, [], 20, [(0, 20)]),
        (50, [], 50, [(0, 50)]),
        (50, [], 101, [(0, 50), (50, 50), (100, 1)]),
        (50, [(0, 20)], 100, [(20, 30), (50, 50)]),
        (50, [(0, 20), (20, 100)], 100, []),
        (50, [(60, 70)], 100, [(0, 50), (50, 10), (70, 30)]),
        (50, [(0, 100)], 20, []),
        (50, [(90, 120)], 100, [(0, 50), (50, 40)]),
        (50, [(100, 120)], 100, [(0, 50), (50, 50)]),
        (4, [(2, 5), (4, 7), (9, 10)], 12, [(0, 2), (7, 1), (8, 1), (10, 2)]),
        (1, [(1, 2)], 4, [(0, 1), (2, 1), (3, 1)]),
    ],
)
def test_missing_ranges_end_at_multiples_of_the_batch(store, stack, stored, trials, expected):
    experiment = Numbers(stack)
    for first, stop in stored:
        put(store, first, stop, experiment)
    assert missing(store, trials, experiment) == expected


def test_more_trials_need_only_the_missing_ones(store):
    put(store, 0, 20)
    assert_has(store, 20)
    assert get(store, 100) is None
    ranges = missing(store, 100)
    assert sum(count for _, count in ranges) == 80
    for first, count in reversed(ranges):  # in any order
        put(store, first, first + count)
    assert_has(store, 100)


@pytest.mark.parametrize("trials", [1, 19, 20, 21, 49, 99, 100])
def test_fewer_trials_than_stored_are_the_first_ones(store, trials):
    for first, stop in [(0, 20), (20, 50), (50, 100)]:
        put(store, first, stop)
    assert_has(store, trials)


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 30), (20, 60)],
        [(0, 60), (10, 20), (20, 60)],
        [(0, 10), (0, 60), (5, 15)],
        [(0, 40), (10, 50), (30, 80)],
        [(0, 60), (0, 60)],
    ],
    ids=str,
)
def test_overlapping_ranges_give_every_trial_once(store, ranges):
    for first, stop in ranges:
        put(store, first, stop)
    assert_has(store, 60)
    assert_has(store, 33)


@pytest.mark.parametrize(
    ("ranges", "hole"),
    [
        ([(0, 20), (50, 100)], [(20, 30)]),
        ([(0, 49), (50, 100)], [(49, 1)]),
        ([(1, 50), (50, 100)], [(0, 1)]),
        ([(0, 50), (50, 99)], [(99, 1)]),
    ],
)
def test_missing_range_gives_none(store, ranges, hole):
    for first, stop in ranges:
        put(store, first, stop)
    assert get(store, 100) is None
    assert missing(store, 100) == hole


def test_equal_columns_are_equal_bytes_and_are_written_in_place(store):
    put(store, 0, 20)
    path = only_file(store)
    before = path.read_bytes()
    put(store, 0, 20)
    assert only_file(store) == path
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["0-20.npz"]


def test_failed_write_keeps_the_old_file(store):
    put(store, 0, 20)
    with pytest.raises(TypeError, match="expected bool, integer, real or complex"):
        store.put(NUMBERS, "a", SEED, 0, {"value": np.array([object()] * 20)})
    assert_has(store, 20)
    assert [p.name for p in only_file(store).parent.iterdir()] == ["0-20.npz"]


def test_file_truncated_anywhere_is_computed_again(store):
    put(store, 0, 2, TWO_COLUMNS)
    path = only_file(store)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert get(store, 2, TWO_COLUMNS) is None, length
        assert missing(store, 2, TWO_COLUMNS) == [(0, 2)], length
    put(store, 0, 2, TWO_COLUMNS)
    assert_has(store, 2, TWO_COLUMNS)


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """Columns and missing ranges after changing each byte of a file in turn."""
    store = Store(tmp_path_factory.mktemp("changed"))
    put(store, 0, 2, TWO_COLUMNS)
    path = only_file(store)
    whole, found = path.read_bytes(), []
    for k, byte in enumerate(whole):
        path.write_bytes(whole[:k] + bytes([byte ^ 0xFF]) + whole[k + 1 :])
        found.append((get(store, 2, TWO_COLUMNS), missing(store, 2, TWO_COLUMNS)))
    return found


def test_changed_byte_never_changes_a_number(changed):
    """Either the range is computed again, or the byte is irrelevant."""
    expected = TWO_COLUMNS.compute("a", 0, 2, SEED)
    for columns, todo in changed:
        assert (columns is None) == (todo == [(0, 2)])
        for name, column in (columns or {}).items():
            np.testing.assert_array_equal(column, expected[name], strict=True)
    assert sum(columns is None for columns, _ in changed) > len(changed) / 2


def test_changed_byte_never_loses_a_column(changed):
    expected = TWO_COLUMNS.compute("a", 0, 2, SEED).keys()
    lost = [k for k, (columns, _) in enumerate(changed) if columns and columns.keys() != expected]
    assert not lost


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


DAMAGED = {
    "empty": b"",
    "zeros": bytes(1000),
    "random bytes": np.random.default_rng(0).bytes(1000),
    "random bytes after the first": b"PK\x03\x04" + np.random.default_rng(1).bytes(1000),
    "text": b"not numbers",
    "page": b"<html></html>",
    "pickle": pickle.dumps({"value": np.ones(50)}),
    "one array": npy(np.ones(50)),
    "no arrays": npz(),
    "objects": npz(value=np.array([None] * 50)),
    "words": npz(value=np.array(["one"] * 50)),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_file_is_computed_again(store, content):
    for first in (0, 50, 100):
        put(store, first, first + 50)
    path = only_file(store, "50-100.npz")
    path.write_bytes(content)
    assert get(store, 150) is None
    assert missing(store, 150) == [(50, 50)]
    assert_has(store, 50)
    put(store, 50, 100)
    assert_has(store, 150)


def test_overlapping_files_replace_a_damaged_one(store):
    for first, stop in [(0, 30), (20, 50), (0, 60)]:
        put(store, first, stop)
    only_file(store, "20-50.npz").write_bytes(b"")
    assert_has(store, 60)
    only_file(store, "0-60.npz").write_bytes(b"")
    assert missing(store, 60) == [(30, 20), (50, 10)]


FOREIGN = [
    ".lowtucker-0123456789abcdef.tmp",
    ".0-20.npz",
    "0-20.npz.tmp",
    "0-20.npz~",
    "0-20.npy",
    "0-20.npz.npz",
    "0-20 (1).npz",
    "copy of 0-20.npz",
    "-1-20.npz",
    "0-.npz",
    "20.npz",
    "0_20.npz",
    "results.npz",
]


@pytest.mark.parametrize("name", FOREIGN)
def test_leftover_and_unrelated_files_are_ignored(store, name):
    put(store, 0, 20)
    only_file(store).rename(only_file(store).with_name(name))
    assert get(store, 20) is None
    assert missing(store, 20) == [(0, 20)]
    put(store, 0, 20)
    assert_has(store, 20)


@pytest.mark.parametrize("held", [0, 1, 19, 21, 40])
def test_file_with_a_wrong_number_of_trials_is_ignored(store, held):
    put(store, 0, 20)
    path = only_file(store)
    made = NUMBERS.compute("a", 0, held, SEED)
    path.write_bytes(npz(**made))
    assert get(store, 20) is None
    assert missing(store, 20) == [(0, 20)]


@pytest.mark.parametrize(
    "made",
    [
        {"value": np.ones(20), "curve": np.ones((19, 3)), "trial": np.arange(20)},
        {"value": np.ones(20), "curve": np.ones((20, 3)), "trial": np.array(3)},
    ],
    ids=["uneven", "scalar"],
)
def test_file_with_inconsistent_columns_is_ignored(store, made):
    put(store, 0, 20)
    only_file(store).write_bytes(npz(**made))
    assert get(store, 20) is None
    assert missing(store, 20) == [(0, 20)]


def test_cells_are_stored_separately(store):
    put(store, 0, 20, cell="a")
    assert get(store, 20, cell="b") is None
    put(store, 0, 20, cell="b")
    assert_has(store, 20, cell="a")
    assert_has(store, 20, cell="b")


OTHERS = {
    "seed": {"seed": SEED + 1},
    "setting": {"experiment": replace(NUMBERS, scale=2.0)},
    "close setting": {"experiment": replace(NUMBERS, scale=np.nextafter(1.0, 2.0))},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_other_seeds_and_settings_are_stored_separately(store, other):
    put(store, 0, 20)
    assert get(store, 20, **other) is None
    assert missing(store, 20, **other) == [(0, 20)]
    put(store, 0, 20, **other)
    assert_has(store, 20, **other)
    assert_has(store, 20)


def test_other_versions_are_stored_separately(store, monkeypatch):
    put(store, 0, 20)
    with monkeypatch.context() as context:
        context.setattr("lowtucker.simulation.base.__version__", "999.0")
        assert get(store, 20) is None
        assert missing(store, 20) == [(0, 20)]
        put(store, 0, 10)
        assert_has(store, 10)
    assert_has(store, 20)


TRIALS = 40
ranges = st.tuples(st.integers(0, TRIALS), st.integers(1, 15)).map(lambda r: (r[0], sum(r)))


@settings(max_examples=25, deadline=None)
@given(
    stack=st.integers(1, 17),
    files=st.lists(st.tuples(ranges, st.sampled_from(["good", "good", "good", "cut"])), max_size=7),
    trials=st.integers(1, TRIALS),
)
def test_missing_and_stored_ranges_cover_every_trial_exactly_once(stack, files, trials):
    experiment = Numbers(stack)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        state = {}
        for (first, stop), condition in files:
            put(store, first, stop, experiment)
            state[first, stop] = condition
            if condition == "cut":
                path = only_file(store, f"{first}-{stop}.npz")
                path.write_bytes(path.read_bytes()[:-30])
        stored = {k for r, condition in state.items() if condition == "good" for k in range(*r)}
        todo = missing(store, trials, experiment)
        listed = [k for first, count in todo for k in range(first, first + count)]
        assert listed == [k for k in range(trials) if k not in stored]
        for first, count in todo:
            assert first // stack == (first + count - 1) // stack
        assert (get(store, trials, experiment) is None) == bool(todo)
        for first, count in todo:
            put(store, first, first + count, experiment)
        assert_has(store, trials, experiment)
