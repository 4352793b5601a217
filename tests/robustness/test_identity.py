"""A checkpoint is taken by the same call only: whatever changes, and however it is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dask.array as da
import numpy as np
import pylops
import pytest
import scipy.sparse
import scipy.sparse.linalg

import cases
import lowtucker as lt
from lowtucker.run import identity as module
from lowtucker.run.identity import Identity, canonical, fingerprint

SHAPE, M = (4, 4, 3), 40
pytestmark = pytest.mark.filterwarnings("ignore::lowtucker.SlowOperatorWarning")


def draws(shape, seed=0, dtype=float):
    rng = np.random.default_rng(seed)
    real = rng.standard_normal(shape)
    made = real + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else real
    return made.astype(dtype)


def function(matrix):
    return lt.FunctionOperator(
        lambda X: matrix @ X.reshape(-1), lambda v: (matrix.conj().T @ v).reshape(SHAPE), SHAPE,
        len(matrix), dtype=matrix.dtype,
    )  # fmt: skip


class Source:
    """Rows that are read when they are needed."""

    ndim = 2

    def __init__(self, rows):
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype

    def __getitem__(self, where):
        return self.rows[where]


# Operators of a matrix
KINDS = {
    "dense": lambda rows: lt.DenseOperator(rows, SHAPE),
    "function": function,
    "stored": lambda rows: lt.stored(Source(rows), SHAPE),
    "dask": lambda rows: lt.from_dask(da.from_array(rows, chunks=(9, -1)), SHAPE),
    "sparse": lambda rows: lt.as_operator(scipy.sparse.csr_array(rows), SHAPE),
    "scipy": lambda rows: lt.as_operator(scipy.sparse.linalg.aslinearoperator(rows), SHAPE),
    "pylops": lambda rows: lt.as_operator(pylops.MatrixMult(rows, dtype=rows.dtype), SHAPE),
    "scaled": lambda rows: lt.scale(function(rows), 3.0),
    "stacked": lambda rows: lt.stack([function(rows[:30]), function(rows[30:])]),
    "composed": lambda rows: lt.compose(np.eye(M, dtype=rows.dtype), rows, shape=SHAPE),
}


def one_entry(rows):
    """A change of one entry by ten times what is said to be seen."""
    single = rows.dtype.char in "fF"
    seen = 1e-5 * rows.shape[1] ** 0.5 if single else 1e-10
    rows[7, 5] += 10 * seen * np.linalg.norm(rows[7])


def swap_modes(rows):
    tensors = rows.reshape(-1, *SHAPE)
    rows[:] = tensors.transpose(0, 2, 1, 3).reshape(rows.shape)


def another_row(rows):
    rows[11] = draws(rows.shape[1], 9, rows.dtype)


CHANGES = {
    "two rows": lambda rows: rows.__setitem__([3, 30], rows[[30, 3]]),
    "neighbours": lambda rows: rows.__setitem__([3, 4], rows[[4, 3]]),
    "columns": lambda rows: rows.__setitem__((slice(None), [0, 1]), rows[:, [1, 0]]),
    "permuted": lambda rows: rows.__setitem__(slice(None), rows[::-1].copy()),
    "modes": swap_modes,
    "one row": another_row,
    "one entry": one_entry,
    "a sign": lambda rows: rows.__setitem__(8, -rows[8]),
    "multiple": lambda rows: rows.__imul__(1.001),
}


def identity(A, **settings):
    return fingerprint(lt.Problem(A, np.ones((*A.batch_shape, A.m))), None, None, settings)


@pytest.fixture(autouse=True)
def by_sums(monkeypatch):
    """No matrix is hashed: all are treated like large ones."""
    monkeypatch.setattr(module, "HASHED", 0)


@pytest.mark.parametrize(
    ("dtype", "sums"),
    [(np.float32, 4), (np.float64, 1024), (np.complex64, 1024), (np.complex128, 4)],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_A_is_seen(kind, dtype, sums, monkeypatch):
    monkeypatch.setattr(module, "SUMS", sums)
    rows = draws((M, 48), 1, dtype)
    mine = identity(KINDS[kind](rows.copy()))
    assert not identity(KINDS[kind](rows.copy())).differences(mine)
    for name, change in CHANGES.items():
        other = rows.copy()
        change(other)
        (found,) = identity(KINDS[kind](other)).differences(mine)
        assert found.startswith("operator: there"), name


# Operators that are no matrix, and one that differs a little
PAIRS = {
    "entries, two swapped": lambda k: lt.entries(
        SHAPE, np.argwhere(np.ones(SHAPE))[[0, 1, 2] if k else [1, 0, 2]]
    ),
    "entries, modes swapped": lambda k: lt.entries(
        SHAPE, np.argwhere(draws(SHAPE) > 0)[:, [1, 0, 2] if k else [0, 1, 2]]
    ),
    "kronecker, modes swapped": lambda k: lt.kronecker(
        [draws((2, n), abs(j - k), float) for j, n in ((0, 4), (1, 4), (k + 2, 3))]
    ),
    "kronecker, one number": lambda k: lt.kronecker(
        [draws((2, n), n) + 1e-8 * k * (n == 3) for n in SHAPE]
    ),
    "rank-one, two rows": lambda k: lt.rank_one(
        [draws((9, n), n)[[0, 1, 2, 3] if k else [1, 0, 2, 3]] for n in SHAPE]
    ),
    "seeded": lambda k: lt.seeded_gaussian(SHAPE, 30, seed=k),
    "transform, signs": lambda k: lt.subsampled_transform(SHAPE, 20, "dct", seed=k),
    "stack, in another order": lambda k: lt.stack(
        [lt.seeded_gaussian(SHAPE, 30, seed=j) for j in ((0, 1) if k else (1, 0))]
    ),
    "scaled rows": lambda k: lt.scale(
        lt.seeded_gaussian(SHAPE, 30), 1 + 1e-7 * k * np.arange(30.0)
    ),
    "composed, final rows": lambda k: lt.compose(
        np.eye(16)[[0, 1, 2] if k else [1, 0, 2]], np.eye(48)[:16], shape=SHAPE
    ),
    "a batch, two problems": lambda k: lt.DenseOperator(
        draws((2, 9, 48))[:: -1 if k else 1], SHAPE
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_operators_that_are_no_matrix(pair):
    make = PAIRS[pair]
    assert not identity(make(0)).differences(identity(make(0)))
    assert identity(make(0)).differences(identity(make(1)))


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e300])
def test_any_scale(scale):
    rows = draws((M, 48)) * scale
    mine = identity(function(rows))
    assert not identity(function(rows.copy())).differences(mine)
    assert identity(function(draws((M, 48), 2) * (scale or 1.0))).differences(mine)


def test_many_measurements_are_known_by_sums():
    """Two rows of 100000, in single precision."""
    rows = draws((100_000, 8), 0, np.float32)
    other = rows.copy()
    other[[500, 501]] = other[[501, 500]]
    mine, its = (
        identity(lt.as_operator(scipy.sparse.csr_array(one), (2, 2, 2))) for one in (rows, other)
    )
    assert mine.sums.size < module.SUMS + 2
    assert mine.differences(its)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_any_bit_of_a_large_array_changes_its_hash(dtype):
    array = draws((3, 1_500_017), 0, dtype)
    hashes = {module._digest(array), module._digest(array.reshape(-1))}
    bits = array.view(np.uint8).reshape(-1)
    for where in (0, 8 * module.WORDS, 9_000_001, bits.size - 1):
        bits[where] ^= 128 if where % 2 else 1
        hashes.add(module._digest(array))
    array[:, [0, 1]] = array[:, [1, 0]]
    hashes.add(module._digest(array))
    assert len(hashes) == 7
    assert module._digest(array.copy()) == module._digest(array)
    assert module._digest(np.zeros((0, 3))) != module._digest(np.zeros((3, 0)))


def test_the_cost_is_one_forward():
    count = []
    A = function(draws((M, 48)))
    counted = lt.FunctionOperator(
        lambda X: count.append(1) or A.forward(X), A._adjoint, SHAPE, M, dtype=np.float64
    )
    identity(counted)
    assert len(count) == 1


CHILD = """
import sys, json, numpy as np, warnings
sys.path[:0] = json.loads(sys.argv[1])
warnings.simplefilter("ignore")
import cases, lowtucker as lt
from lowtucker.run import identity as module
module.HASHED = 0
found = {}
for name, make in cases.OPERATORS.items():
    A = make()
    y = np.ones((*A.batch_shape, A.m))
    one = module.fingerprint(lt.Problem(A, y), None, None, {})
    found[name] = [one.texts, one.sums.tolist(), one.rounding]
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    "setting",
    [
        {"OPENBLAS_CORETYPE": "Prescott"},
        pytest.param({"OPENBLAS_CORETYPE": "Nehalem"}, marks=pytest.mark.slow),
        pytest.param({"OPENBLAS_CORETYPE": "Haswell"}, marks=pytest.mark.slow),
        pytest.param({"OPENBLAS_NUM_THREADS": "2"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_another_cpu_or_number_of_threads_is_the_same_call(setting):
    folders = json.dumps([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, folders],
        env=os.environ | setting,
        capture_output=True,
        text=True,
        check=True,
    )
    there = json.loads(done.stdout)
    assert len(there) == len(cases.OPERATORS)
    for name, (texts, sums, rounding) in there.items():
        other = Identity(texts, np.array(sums), rounding)
        mine = identity(cases.OPERATORS[name]())
        assert not mine.differences(other), name
        assert np.max(np.abs(mine.sums - other.sums)) <= 0.1 * mine.rounding, name


# How a call is written


@pytest.mark.parametrize(
    "ways",
    [
        ((2, 2, 1), [2, 2, 1], np.array([2, 2, 1]), (np.int32(2), 2, True + 0)),
        (0, 0.0, np.float32(0), np.array(0)),
        (1e-3, np.float64(1e-3), np.array(1e-3)),
        ("run", Path("run")),
        ([lt.TIHT(), lt.RGN()], (lt.TIHT(), lt.RGN())),
        (lt.TIHT(step=1), lt.TIHT(step=1.0)),
        (lt.RankSearch(max=(2, 2, 2)), lt.RankSearch(max=[2, 2, 2])),
        (lt.Sparse(5), lt.Sparse(np.int64(5))),
    ],
    ids=str,
)
def test_one_setting_has_one_text(ways):
    assert len({canonical(way) for way in ways}) == 1


def test_different_settings_have_different_texts():
    values = [
        (2, 2), (2, 2, 2), 2, True, None, "2", "auto", 1e-6, 1e-7, lt.TIHT(), lt.TIHT(step=0.5),
        lt.HOSVD((2, 2)), lt.STHOSVD((2, 2)), float("inf"), float("nan"), 10**30, 10**30 + 1,
        [lt.TIHT()], np.arange(5000), np.arange(5000.0)[::-1],
    ]  # fmt: skip
    assert len({canonical(value) for value in values}) == len(values)


def test_a_call_that_is_written_otherwise_resumes(tmp_path):
    A = lt.gaussian(SHAPE, M, seed=1)
    X = lt.random_tucker(SHAPE, (1, 1, 1), seed=0)
    y, path = A.forward(X), tmp_path / "run.ckpt"
    ways = [
        {"rank": (1, 1, 1), "tol": 0, "seed": 0, "X_true": X.full(), "start": np.ones(SHAPE, int)},
        {"rank": [1, 1, 1], "tol": 0.0, "seed": np.int64(0), "X_true": X.full().tolist(),
         "start": np.ones(SHAPE)},
        {"rank": np.array([1, 1, 1]), "tol": np.array(0.0), "seed": 0, "X_true": X.full(),
         "start": np.ones(SHAPE).tolist()},
    ]  # fmt: skip
    results = [
        lt.recover(A, y, solver="tiht", max_epochs=k + 3, checkpoint=file, **way)
        for k, way in enumerate(ways)
        for file in (path, str(path))
    ]
    assert [one.epochs for one in results] == [3, 3, 4, 4, 5, 5]
