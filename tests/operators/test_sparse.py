"""Sparse matrices: their tangent design, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import lowtucker as lt
from lowtucker.operators import sparse
from lowtucker.operators.design import TangentDesign
from lowtucker.operators.sparse import FilledDesign, SparseDesign
from lowtucker.solvers.auto import automatic

CASES = [((4, 3, 5), (2, 2, 2)), ((6, 7), (2, 2)), ((9,), (1,)), ((3, 2, 4, 3), (2, 1, 2, 2))]


def matrix(m, shape, density, dtype=float):
    rng = np.random.default_rng(0)
    full = rng.standard_normal((m, *shape)).reshape(m, -1).astype(dtype)
    if np.dtype(dtype).kind == "c":
        full += 1j * rng.standard_normal(full.shape)
    full[rng.random(full.shape) > density] = 0
    return scipy.sparse.csr_array(full)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_design_is_that_of_forwards(case, dtype, order, monkeypatch):
    shape, rank = case
    monkeypatch.setattr(sparse, "CHUNK", 4)
    A = lt.SparseOperator(matrix(11, shape, 0.3, dtype), shape, order=order)
    T = lt.TangentSpace(lt.random_tucker(shape, rank, seed=1, dtype=np.dtype(dtype)))
    expected = TangentDesign(A, T).dense()
    for kind in (SparseDesign, FilledDesign):
        np.testing.assert_allclose(kind(A, T).dense(), expected, rtol=0, atol=1e-12)
    rows = np.array([3, 3, 10, 0])
    for some, block in ((rows, A.restrict(rows)), (slice(2, 9, 3), A.restrict(slice(2, 9, 3)))):
        np.testing.assert_allclose(SparseDesign(block, T).dense(), expected[some], atol=1e-12)
    twice = A.restrict(slice(1, 11)).restrict(rows[:2])
    np.testing.assert_allclose(SparseDesign(twice, T).dense(), expected[[4, 4]], atol=1e-12)


def test_the_design_follows_the_share_of_stored_elements():
    T = lt.TangentSpace(lt.random_tucker((10, 10, 10), (2, 2, 2), seed=0))
    for density, kind in ((0.01, SparseDesign), (0.5, FilledDesign)):
        A = lt.SparseOperator(matrix(50, (10, 10, 10), density), (10, 10, 10))
        assert type(A.tangent(T)) is kind


def test_rows_of_few_elements_are_like_samples():
    shape = (10, 10, 10)
    assert lt.SparseOperator(matrix(50, shape, 0.1), shape).traits.isotropic
    few = lt.SparseOperator(matrix(50, shape, 0.01), shape)
    assert not few.traits.isotropic
    assert not few.restrict(slice(0, 7)).traits.isotropic
    one = lt.SparseOperator(scipy.sparse.eye_array(1000), shape)
    assert not one.traits.isotropic


def test_auto_takes_no_normal_equations_where_rows_are_short():
    shape = (20, 20, 20)
    long = lt.SparseOperator(matrix(2000, shape, 0.1), shape)
    short = lt.SparseOperator(matrix(2000, shape, 0.001), shape)
    for A, rank, names in (
        (long, (2, 2, 2), ["RSGD", "RGN"]),
        (short, (8, 8, 8), ["RCG", "RGN"]),
    ):
        problem = lt.Problem(A, np.ones(A.m))
        assert [one.name for one in automatic(problem, rank)] == names
        scaled = lt.Problem(lt.scale(A, 2.0), np.ones(A.m))
        assert [one.name for one in automatic(scaled, rank)] == names


@pytest.mark.parametrize("density", [0.02, 0.3])
def test_recovery_takes_the_passes_of_the_dense_twin(density):
    shape, rank = (12, 12, 12), (2, 2, 2)
    M = matrix(400, shape, density)
    X = lt.random_tucker(shape, rank, seed=0)
    results = []
    for A in (lt.SparseOperator(M, shape), lt.DenseOperator(M.toarray(), shape)):
        results.append(lt.recover(A, A.forward(X), rank))
        assert results[-1].success
        assert lt.metrics.relative_error(results[-1].X, X) < 1e-5
    assert results[0].passes <= 1.2 * results[1].passes
