"""Rows that are made or read when they are needed: against the same matrix in memory."""

from __future__ import annotations

import threading

import h5py
import numpy as np
import pytest
import zarr

import lowtucker as lt
from lowtucker.operators import streamed

SHAPE, RANK, N, M = (6, 5, 4), (2, 2, 2), 120, 90


@pytest.fixture
def small_blocks(monkeypatch):
    """Seven rows of doubles at a time, so that there are many blocks and a short one."""
    monkeypatch.setattr(streamed, "BLOCK_BYTES", 7 * 8 * N)


def matrix(dtype=np.float64):
    return np.random.default_rng(0).standard_normal((M, N)).astype(dtype)


@pytest.fixture(params=["npy", "h5", "h5-chunked", "zarr", "memmap-view", "tensors"])
def source(request, tmp_path):
    kind, rows = request.param, matrix()
    if kind in ("npy", "memmap-view"):
        np.save(tmp_path / "A.npy", rows)
        if kind == "npy":
            return tmp_path / "A.npy"
        return np.load(tmp_path / "A.npy", mmap_mode="r").reshape(M, N)  # not a map of a file
    if kind == "tensors":
        np.save(tmp_path / "A.npy", rows.reshape(M, *SHAPE))
        return np.load(tmp_path / "A.npy", mmap_mode="r")
    if kind == "zarr":
        zarr.save_array(tmp_path / "A.zarr", rows)
        return tmp_path / "A.zarr"
    with h5py.File(tmp_path / "A.h5", "w") as file:
        file.create_dataset("rows", data=rows, chunks=(13, 50) if "chunked" in kind else None)
    return tmp_path / "A.h5"


def test_all_products_are_those_of_the_matrix(source, small_blocks, rng):
    A, B = lt.stored(source, SHAPE), lt.DenseOperator(matrix(), SHAPE)
    assert (A.m, A.shape, A.dtype) == (B.m, B.shape, B.dtype)
    assert A.traits.row_separable
    assert A.traits.has_fast_tangent
    X, v, w = rng.standard_normal(SHAPE), rng.standard_normal(M), rng.uniform(0.5, 2, M)
    near = {"rtol": 0, "atol": 1e-11}
    np.testing.assert_allclose(A.forward(X), B.forward(X), **near)
    np.testing.assert_allclose(A.adjoint(v), B.adjoint(v), **near)
    for got, expected in zip(A.misfit(X, v, w), B.misfit(X, v, w), strict=True):
        np.testing.assert_allclose(got, expected, **near)
    T = lt.TangentSpace(lt.random_tucker(SHAPE, RANK, seed=0))
    np.testing.assert_allclose(A.tangent(T).dense(), B.tangent(T).dense(), **near)
    ours, theirs = (op.tangent(T).normal_equations(v, w) for op in (A, B))
    for got, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(A.row_norms(), np.linalg.norm(matrix(), axis=1))
    rows = np.array([80, 3, 4, 5, 3, 89, 0, *range(20, 40)])  # more than a block of them
    for some in (slice(5, 60, 2), rows, slice(2, 5)):
        block = A.restrict(some)
        np.testing.assert_allclose(block.forward(X), B.forward(X)[some], **near)
        again = block.restrict(slice(1, 3))
        np.testing.assert_allclose(again.forward(X), B.forward(X)[some][1:3], **near)


def test_recover_takes_arrays_in_files_as_they_are(source, small_blocks):
    X = lt.random_tucker(SHAPE, RANK, seed=1)
    y = matrix() @ X.full().reshape(-1)
    if not hasattr(source, "shape"):
        source = lt.stored(source, SHAPE).source
    result = lt.recover(source, y, RANK, shape=SHAPE)
    assert result.success
    assert lt.metrics.relative_error(result.X, X) < 1e-5
    assert isinstance(lt.as_operator(source, SHAPE), lt.StoredOperator)


def test_each_row_is_read_once_a_pass_and_the_next_block_while_one_is_at_work(small_blocks):
    class Watched(lt.StoredOperator):
        def _read(self, start, stop, out):
            super()._read(start, stop, out)
            seen.append((start, stop, threading.current_thread() is threading.main_thread()))
            if len(seen) == 2:
                second.set()

    seen, second = [], threading.Event()
    A = Watched(matrix(), SHAPE)
    for action in (
        lambda: A.forward(np.ones(SHAPE)),
        lambda: A.adjoint(np.ones(M)),
        lambda: A.misfit(np.ones(SHAPE), np.ones(M)),
        lambda: A.tangent(lt.TangentSpace(lt.random_tucker(SHAPE, RANK, seed=0))).normal_equations(
            np.ones(M)
        ),
    ):
        seen.clear()
        action()
        assert [row for start, stop, _ in seen for row in range(start, stop)] == list(range(M))
        assert not any(main for *_, main in seen)
    blocks = A._blocks()
    seen.clear()
    second.clear()
    next(blocks)
    assert second.wait(60)  # the second block is read ahead
    assert len(seen) == 2
    blocks.close()


def test_a_small_block_is_loaded_into_memory(tmp_path):
    np.save(tmp_path / "A.npy", matrix())
    block = lt.stored(tmp_path / "A.npy", SHAPE).restrict(slice(10, 20))
    assert isinstance(block, lt.DenseOperator)
    (tmp_path / "A.npy").unlink()
    np.testing.assert_allclose(block.forward(np.ones(SHAPE)), matrix()[10:20].sum(axis=1))


@pytest.mark.parametrize("dtype", ["uint8", "int16", ">f8", ">f4", "float32", "complex64", "bool"])
def test_dtypes(dtype, tmp_path, small_blocks):
    rows = (10 * matrix()).astype(dtype)
    np.save(tmp_path / "A.npy", rows)
    A = lt.stored(tmp_path / "A.npy", SHAPE)
    native = np.dtype(dtype).newbyteorder("=")
    assert A.dtype == (native if native.char in "fdFD" else np.float64)
    X = np.random.default_rng(1).standard_normal(SHAPE)
    expected = rows.astype(np.complex128 if native.kind == "c" else float) @ X.reshape(-1)
    np.testing.assert_allclose(A.forward(X), expected, rtol=1e-4)


# Seeded rows


def test_seeded_rows_do_not_depend_on_blocks_sets_or_dtype(monkeypatch):
    shape = (7, 5, 3)  # 105 numbers: 78 rows are made together
    A = lt.seeded_gaussian(shape, 400, seed=5)

    def rows_of(operator):
        return np.concatenate([block.matrix.copy() for _, block in operator._blocks()])

    whole = rows_of(A)
    assert whole.shape == (400, 105)
    monkeypatch.setattr(streamed, "BLOCK_BYTES", 11 * 8 * 105)
    np.testing.assert_array_equal(rows_of(A), whole)
    some = np.array([399, 7, 8, 200, 7, *range(90, 110)])
    np.testing.assert_array_equal(rows_of(A.restrict(some)), whole[some])
    np.testing.assert_array_equal(A.restrict(slice(77, 80)).matrix, whole[77:80])
    single = lt.seeded_gaussian(shape, 400, seed=5, dtype=np.float32)
    np.testing.assert_array_equal(rows_of(single), whole.astype(np.float32))
    np.testing.assert_array_equal(rows_of(lt.seeded_gaussian(shape, 150, seed=5)), whole[:150])
    assert not np.isin(rows_of(lt.seeded_gaussian(shape, 400, seed=6)), whole).any()
    assert not np.isin(rows_of(lt.seeded_gaussian(shape, 400, seed=(5, 1))), whole).any()


def test_seeded_rows_are_pinned():
    """The values are guaranteed: Philox with key (seed, trial), counter (0, 0, group, 2^64 - 1)."""
    A = lt.seeded_gaussian((100, 100), 3, seed=(7, 2))
    bits = np.random.Philox(
        key=np.array([7, 2], np.uint64), counter=np.array([0, 0, 2, 2**64 - 1], np.uint64)
    )
    expected = np.random.Generator(bits).standard_normal(10000)
    np.testing.assert_array_equal(A.restrict(slice(2, 3)).matrix[0], expected)


def test_seeded_rows_are_standard_normal():
    A = lt.seeded_gaussian((10, 10, 10), 200, seed=0)
    rows = A.restrict(slice(0, 200)).matrix
    assert abs(rows.mean()) < 0.01
    assert abs(rows.std() - 1) < 0.01
    gram = rows @ rows.T / 1000
    assert np.abs(gram - np.diag(np.diag(gram))).max() < 0.25  # rows differ


def test_making_a_row_costs_only_that_row(monkeypatch):
    made = []
    real = lt.operators.seeded.counted

    def counting(seed, position):
        made.append(position)
        return real(seed, position)

    monkeypatch.setattr("lowtucker.operators.seeded.counted", counting)
    lt.seeded_gaussian((50, 50, 50), 10**9, seed=0).restrict(slice(10**8, 10**8 + 2))
    assert made == [10**8, 10**8 + 1]


# Bad input


def stored_npy(path, array):
    np.save(path / "A.npy", array)
    return lt.stored(path / "A.npy", SHAPE)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: lt.stored(p / "no.npy", SHAPE), FileNotFoundError, "does not exist"),
        (lambda p: lt.stored(p, SHAPE), lt.FileFormatError, "rows are read from .npy, .h5"),
        (lambda p: stored_npy(p, np.ones((3, 7))), ValueError, r"A.npy: source has the shape"),
        (lambda p: stored_npy(p, np.ones(7)), ValueError, "one row per measurement"),
        (lambda p: stored_npy(p, np.ones((0, N))), ValueError, "one row per measurement"),
        (lambda p: stored_npy(p, np.array([["a"] * N])), lt.FileFormatError, "holds values of"),
        (lambda p: stored_npy(p, np.ones((3, N), np.longdouble)), lt.FileFormatError, "float128"),
        (
            lambda p: stored_npy(p, np.asfortranarray(matrix())),
            ValueError,
            "source must be row-major",
        ),
        (lambda p: lt.StoredOperator(matrix()), ValueError, "shape is needed"),
        (lambda p: lt.StoredOperator([1, 2], SHAPE), TypeError, "source must be a numpy.memmap"),
        (lambda p: lt.StoredOperator(matrix(), SHAPE, order="X"), ValueError, "order must be"),
        (lambda p: lt.seeded_gaussian(SHAPE, 3, dtype=complex), TypeError, "float32 or float64"),
        (lambda p: lt.seeded_gaussian(SHAPE, 0), ValueError, "m must be at least 1"),
        (lambda p: lt.seeded_gaussian(SHAPE, 3, seed=-1), ValueError, "seed must not be negative"),
    ],
)
def test_bad_input(make, error, text, tmp_path):
    with pytest.raises(error, match=text):
        make(tmp_path)


def test_files_that_are_not_hdf5_and_missing_names_are_refused(tmp_path):
    (tmp_path / "A.h5").write_text("<html>not found</html>")
    with pytest.raises(lt.FileFormatError, match=r"A\.h5 is an HTML page"):
        lt.stored(tmp_path / "A.h5", SHAPE)
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["group/A"], file["B"] = matrix(), matrix()
    with pytest.raises(ValueError, match=r"give the name of one of: B \(90, 120\), group/A"):
        lt.stored(tmp_path / "two.h5", SHAPE)
    with pytest.raises(ValueError, match="no array 'C'"):
        lt.stored(tmp_path / "two.h5", SHAPE, name="C")
    assert lt.stored(tmp_path / "two.h5", SHAPE, name="/group/A").m == M
    group = zarr.open_group(tmp_path / "two.zarr", mode="w")
    group["A"], group["B"] = matrix(), matrix()
    with pytest.raises(ValueError, match="give the name of one of"):
        lt.stored(tmp_path / "two.zarr", SHAPE)
    assert lt.stored(tmp_path / "two.zarr", SHAPE, name="B").m == M
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(lt.FileFormatError, match=r"empty.zarr is damaged"):
        lt.stored(tmp_path / "empty.zarr", SHAPE)


def test_a_truncated_file_is_refused_and_one_cut_later_is_named_with_its_rows(
    tmp_path, small_blocks
):
    path = tmp_path / "A.npy"
    np.save(path, matrix())
    A = lt.stored(path, SHAPE)
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 8 * N * 20)  # without the last twenty rows
    with pytest.raises(lt.FileFormatError, match="truncated or damaged"):
        lt.stored(path, SHAPE)
    with pytest.raises(OSError, match=r"A\.npy, rows 70 to 76, could not be read: .*truncated"):
        A.forward(np.ones(SHAPE))
    path.unlink()
    with pytest.raises(OSError, match=r"A\.npy, rows 0 to 6, could not be read: .*No such file"):
        A.adjoint(np.ones(M))


def test_a_read_error_in_the_middle_of_a_run_names_the_rows(tmp_path, small_blocks):
    class Failing:
        shape, dtype, ndim, filename = (M, N), np.dtype(float), 2, "/mnt/lost/A.npy"

        def __getitem__(self, rows):
            if rows.start >= 50 and self.broken:
                raise OSError(5, "Input/output error")
            return matrix()[rows]

    source = Failing()
    source.broken = False
    A = lt.StoredOperator(source, SHAPE)
    y = A.forward(lt.random_tucker(SHAPE, RANK, seed=0))
    calls = []

    def spoil(progress):
        calls.append(progress)
        source.broken = True

    message = r"/mnt/lost/A.npy, row.*could not be read.*Input/output"
    with pytest.raises(OSError, match=message) as caught:
        lt.recover(A, y, RANK, tol=1e-14, solver="rgn", callbacks=[spoil])
    assert calls
    found = caught.value.result  # nothing is lost
    assert found.status is lt.Status.INTERRUPTED
    assert found.epochs == 1
    assert "error.result" in caught.value.__notes__[0]
    source.broken = False
    whole = lt.recover(A, y, RANK, tol=1e-12, solver="rgn")
    again = lt.recover(A, y, RANK, tol=1e-12, solver="rgn", start=found)
    assert again.success
    assert again.epochs == whole.epochs - 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_in_a_row_is_named_when_it_is_read(bad, tmp_path, small_blocks):
    rows = matrix()
    rows[33, 7] = bad
    np.save(tmp_path / "A.npy", rows)
    A = lt.stored(tmp_path / "A.npy", SHAPE)
    T = lt.TangentSpace(lt.random_tucker(SHAPE, RANK, seed=0))
    for action in (
        lambda: A.forward(np.ones(SHAPE)),
        lambda: A.adjoint(np.ones(M)),
        lambda: A.misfit(np.ones(SHAPE), np.ones(M)),
        lambda: A.tangent(T).normal_equations(np.ones(M)),
        lambda: lt.recover(A, np.ones(M), RANK),
    ):
        message = r"A\.npy, row 33, has NaN or infinite entries"
        with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
            action()


def test_a_memory_map_of_a_column_major_file_is_not_copied(tmp_path):
    np.save(tmp_path / "A.npy", np.asfortranarray(matrix()))
    A = lt.as_operator(np.load(tmp_path / "A.npy", mmap_mode="r"), SHAPE)
    assert isinstance(A, lt.DenseOperator)
    np.testing.assert_allclose(A.forward(np.ones(SHAPE)), matrix().sum(axis=1))


def test_files_are_loaded_or_streamed(tmp_path, monkeypatch):
    np.save(tmp_path / "A.npy", matrix())
    with h5py.File(tmp_path / "A.h5", "w") as file:
        file["rows"] = matrix()
    load = lt.io.load_operator
    assert isinstance(load(tmp_path / "A.npy", SHAPE), lt.DenseOperator)
    assert isinstance(load(tmp_path / "A.h5", SHAPE), lt.StoredOperator)
    monkeypatch.setattr("lowtucker.io.operators.physical_memory", lambda: 100_000)
    assert isinstance(load(tmp_path / "A.npy", SHAPE), lt.StoredOperator)
