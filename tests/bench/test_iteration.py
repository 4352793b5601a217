"""The benchmark compares equal computations. No test asserts a time."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.lab.bench import iteration
from lowtucker.lab.bench.timing import write_csv


def test_loops_compute_the_same_as_the_library(rng):
    Z = rng.standard_normal(iteration.SHAPE)
    ours = lt.hosvd(Z, iteration.RANK).full()
    np.testing.assert_allclose(iteration.numpy_hosvd(Z, iteration.RANK), ours, atol=1e-12)
    hosvd_only = iteration.tensorly_tucker(Z, iteration.RANK, n_iter_max=0)
    np.testing.assert_allclose(hosvd_only, ours, atol=1e-12)


def test_numpy_loop_solves_the_problem():
    X = lt.random_tucker(iteration.SHAPE, iteration.RANK, seed=0, orthonormal=False)
    A = lt.gaussian(iteration.SHAPE, iteration.M, seed=1, normalize="frobenius")
    found = iteration.numpy_stotiht(A.matrix, A.forward(X), 100, iteration.numpy_hosvd)
    assert lt.metrics.relative_error(found, X.full()) < 1e-4


@pytest.mark.parametrize(
    "make",
    [
        lambda: [iteration.gradient_row(m=20, shape=(4, 4, 4))],
        lambda: [iteration.hosvd_row(trials=3)],
        lambda: iteration.iteration_rows(trials=5, iterations=2),
        lambda: [iteration.import_row(repeats=1)],
    ],
)
def test_rows_state_ratio_target_and_times(make, tmp_path):
    rows = make()
    for row in rows:
        assert row.ratio > 0
        assert row.target.split()[0] in ("<=", ">=")
        assert " us" in row.detail
    write_csv(rows, tmp_path / "rows.csv")
    with open(tmp_path / "rows.csv", newline="") as file:
        assert [line["what"] for line in csv.DictReader(file)] == [row.what for row in rows]
