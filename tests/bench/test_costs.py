"""The costs: terms and coefficients that fit, problems with the condition number they claim."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.lab.bench import costs
from lowtucker.solvers.costs import COEFFICIENTS, terms


def test_coefficients_of_exact_times_are_found():
    points = []
    for shape, rank, m in costs.CASES:
        each = terms("RCG", m, shape, rank)
        points.append((each, float(np.dot(each, COEFFICIENTS["RCG"]))))
    assert costs.coefficients(points) == pytest.approx(COEFFICIENTS["RCG"], rel=1e-6)


def test_steps_are_measured_for_every_solver():
    rows = list(costs.step_rows([((6, 6, 6), (2, 2, 2), 150)], repeats=1))
    assert len(rows) == 2 * len(costs.SOLVERS)
    assert all(row.ratio > 0 and row.met is None for row in rows)


@pytest.mark.parametrize("condition", [1, 100])
def test_tensors_have_the_condition_number(condition):
    X, A = costs.conditioned(12, 3, condition, seed=0)
    for k in range(3):
        values = np.linalg.svd(lt.unfold(X.full(), k), compute_uv=False)[:3]
        assert values[0] / values[2] == pytest.approx(condition)
    assert A.m == 172
    assert len(np.unique(A.indices, axis=0)) == A.m


def test_the_default_is_compared_with_als(monkeypatch):
    monkeypatch.setattr(costs, "RANK", 2)
    monkeypatch.setattr(costs, "CONDITIONS", (1,))
    (row,) = costs.default_rows(n=25, trials=1, of_als=1)
    assert row.target == "<= 1"
    assert "1 of 1 right" in row.detail
