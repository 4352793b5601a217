"""The benchmark compares equal computations. No test asserts a time."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.lab.bench import iteration
from lowtucker.lab.bench.timing import Machine, Spread, machine, side_by_side, write_csv


def test_loops_compute_the_same_as_the_library(rng):
    lean = iteration.lean_hosvd()
    for _ in range(3):  # what one call leaves must not show in the next
        Z = rng.standard_normal(iteration.SHAPE)
        ours = lt.hosvd(Z, iteration.RANK).full()
        np.testing.assert_allclose(lean(Z.reshape(-1)).reshape(Z.shape), ours, atol=1e-12)
    hosvd_only = iteration.tensorly_tucker(Z, n_iter_max=0)
    np.testing.assert_allclose(hosvd_only, ours, atol=1e-12)


def test_both_loops_solve_the_problem():
    X = lt.random_tucker(iteration.SHAPE, iteration.RANK, seed=0, orthonormal=False)
    A = lt.gaussian(iteration.SHAPE, iteration.M, seed=1, normalize="frobenius")
    y = A.forward(X)
    found = iteration.lean_stotiht(A.matrix, y, 100)
    plain = iteration.numpy_stotiht(A.matrix, y, 100, lambda Z: lt.hosvd(Z, iteration.RANK).full())
    assert lt.metrics.relative_error(found, X.full()) < 1e-4
    np.testing.assert_allclose(found, plain, atol=1e-10)


def test_side_by_side_gives_median_least_and_greatest():
    clock = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])
    spread = side_by_side({"one": lambda: None}, repeats=3, clock=lambda: next(clock))["one"]
    assert spread == Spread(2.0, 1.0, 3.0)
    assert (spread / 2).text(10, "us") == "10 us (5-15)"


def test_machine_states_bandwidth_and_arithmetic():
    found = machine(repeats=1, megabytes=1, size=20)
    assert found.bandwidth > 0
    assert found.arithmetic > 0
    assert str(Machine(22.46, 53.3)) == "22.5 GB/s, 53.3 GFlop/s"


@pytest.mark.parametrize(
    "make",
    [
        lambda: [iteration.gradient_row(m=20, shape=(4, 4, 4))],
        lambda: [iteration.hosvd_row(trials=3)],
        lambda: iteration.iteration_rows(trials=5, iterations=2, repeats=1),
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
