"""Alternating least squares against plain least squares, and with many degrees of freedom."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.solvers import als
from lowtucker.solvers.als import _rows_of_factor, _step_of_core


def sampled(shape, m, seed=0):
    flat = np.random.default_rng(seed).choice(int(np.prod(shape)), m, replace=False)
    return np.stack(np.unravel_index(flat, shape), axis=1)


def problem_of(X, m, weights=False, seed=0):
    index = sampled(X.shape, m, seed)
    rng = np.random.default_rng(seed)
    w = rng.uniform(0.5, 2, m) if weights else None
    return lt.Problem(lt.entries(X.shape, index), X.entries(index), w)


def all_columns(factors, index, k):
    """Vectors z of the samples, by a loop over plain Kronecker products."""
    rows = []
    for i in index:
        z = np.ones(1)
        for j, U in enumerate(factors):
            if j != k:
                z = np.kron(z, U[i[j]])
        rows.append(z)
    return np.array(rows)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("chunk", [1 << 20, 40])
def test_a_factor_is_the_least_squares_solution_of_each_slice(dtype, weights, chunk, monkeypatch):
    monkeypatch.setattr("lowtucker.operators.factored.CHUNK_NUMBERS", chunk)
    shape, rank, k = (5, 4, 6), (2, 3, 2), 1
    problem = problem_of(lt.random_tucker(shape, rank, seed=0, dtype=dtype), 90, weights)
    X = lt.random_tucker(shape, rank, seed=1, dtype=dtype)
    got = _rows_of_factor(problem, X.core, list(X.factors), k, 0.0)
    index, root = problem.A.indices, np.sqrt(np.ones(90) if not weights else problem.weights)
    Z = all_columns(X.factors, index, k) @ np.moveaxis(X.core, k, 0).reshape(rank[k], -1).T
    for i in range(shape[k]):
        some = index[:, k] == i
        expected = np.linalg.lstsq(
            root[some, None] * Z[some], root[some] * problem.y[some], rcond=None
        )[0]
        np.testing.assert_allclose(got[i], expected, atol=1e-9)


@pytest.mark.parametrize("large", [500, 1])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("chunk", [1 << 20, 100])
def test_the_core_is_the_least_squares_solution_of_all(large, weights, chunk, monkeypatch):
    monkeypatch.setattr(als, "LARGE_CORE", large)  # 1: by conjugate gradients
    monkeypatch.setattr("lowtucker.operators.factored.CHUNK_NUMBERS", chunk)
    shape, rank = (5, 4, 6), (2, 3, 2)
    problem = problem_of(lt.random_tucker(shape, rank, seed=0), 100, weights)
    X = lt.random_tucker(shape, rank, seed=1)
    step, left = _step_of_core(problem, X.core, list(X.factors))
    F = all_columns(X.factors, problem.A.indices, None)
    root = np.ones(100) if not weights else np.sqrt(problem.weights)
    expected = np.linalg.lstsq(root[:, None] * F, root * problem.y, rcond=None)[0]
    got = (X.core + step).reshape(-1)
    tolerance = 1e-10 if large > 1 else 0.01 * np.linalg.norm(expected)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
    assert left == pytest.approx(np.linalg.norm(root * (problem.y - X.entries(problem.A.indices))))


def test_damping_holds_rows_back_while_the_residual_is_large():
    """By damping times the mean diagonal, towards the previous rows."""
    X = lt.random_tucker((6, 5, 4), (2, 2, 2), seed=1)
    problem = problem_of(lt.random_tucker((6, 5, 4), (2, 2, 2), seed=0), 70)
    index = problem.A.indices
    Z = all_columns(X.factors, index, 0) @ X.core.reshape(2, -1).T
    grams = [Z[index[:, 0] == i].T @ Z[index[:, 0] == i] for i in range(6)]
    held = 0.3 * np.mean([np.diag(G) for G in grams])
    got = _rows_of_factor(problem, X.core, list(X.factors), 0, 0.3)
    for i, G in enumerate(grams):
        some = index[:, 0] == i
        right = Z[some].T @ problem.y[some] + held * X.factors[0][i]
        np.testing.assert_allclose(got[i], np.linalg.solve(G + held * np.eye(2), right), atol=1e-10)


def test_the_residual_never_grows():
    X = lt.random_tucker((20, 20, 20), (2, 2, 2), seed=3)
    index = sampled(X.shape, 400, seed=3)
    y = X.entries(index) + 0.01 * np.random.default_rng(0).standard_normal(400)
    problem = lt.Problem(lt.entries(X.shape, index), y)
    residual = lt.solve(problem, "als", (2, 2, 2), stop=lt.MaxEpochs(60)).history.residual
    assert (np.diff(residual) <= 1e-9).all()


def test_passes_are_one_for_each_mode_the_core_and_the_residual():
    problem = problem_of(lt.random_tucker((6, 5, 4), (2, 2, 2), seed=0), 80)
    passes = lt.solve(problem, "als", (2, 2, 2), stop=lt.MaxEpochs(5)).history.passes
    np.testing.assert_allclose(np.diff(passes), 5)


def test_als_requires_sampled_entries():
    A = lt.gaussian((5, 5, 6), 100, seed=0)
    with pytest.raises(TypeError, match=r"ALS is for sampled entries.*DenseOperator.*Try solver"):
        lt.recover(A, np.ones(100), (1, 1, 1), solver="als")


@pytest.mark.parametrize(
    ("shape", "rank", "m"),
    [((30,), (1,), 30), ((12, 9), (2, 2), 90), ((5, 4, 6, 5), (2,) * 4, 420)],
)
def test_any_order(shape, rank, m):
    X = lt.random_tucker(shape, rank, seed=0)
    problem = problem_of(X, m)
    result = lt.solve(problem, "als", rank)
    assert float(problem.relative_residual(result.X)) < 1e-6
    assert lt.metrics.relative_error(result.X, X) < 1e-4


def test_unequal_ranks_and_a_poor_start():
    shape, rank = (40, 45, 50), (8, 4, 2)
    rng = np.random.default_rng(0)
    index = np.unique(np.stack([rng.integers(0, n, 6000) for n in shape], axis=1), axis=0)
    X = lt.random_tucker(shape, rank, seed=0)
    A, y = lt.entries(shape, index), X.entries(index)
    result = lt.recover(A, y, rank, solver=["als", "rgn"])
    assert result.success
    unseen = np.stack([rng.integers(0, n, 1000) for n in shape], axis=1)
    difference = result.X.entries(unseen) - X.entries(unseen)
    assert np.linalg.norm(difference) < 1e-5 * np.linalg.norm(X.entries(unseen))
