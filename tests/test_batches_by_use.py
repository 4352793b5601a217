"""Batches as users make them: what one problem has must not depend on its neighbours."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.status import Status

SHAPE, RANK = (5, 5, 6), (2, 2, 2)


def tensors(count, seed=0):
    return lt.random_tucker(SHAPE, RANK, seed=seed, trials=count)


@pytest.mark.parametrize(("small", "dtype"), [(1e-200, float), (1e-160, float), (1e-20, "f4")])
def test_very_different_scales_are_refused(small, dtype):
    A = lt.DenseOperator(lt.gaussian(SHAPE, 100, seed=1, trials=2).matrix.astype(dtype), SHAPE)
    y = A.forward(tensors(2).full().astype(dtype)) * np.array([[1], [small]], dtype=dtype)
    with pytest.raises(ValueError, match=r"problems of a batch must be of similar scales, .* one"):
        lt.recover(A, y, RANK)
    with pytest.raises(ValueError, match="similar scales"):
        lt.solve(lt.Problem(A, y), "rgn", RANK)


def test_scales_that_differ_by_less_are_solved():
    A = lt.gaussian(SHAPE, 100, seed=1, trials=2)
    y = A.forward(tensors(2)) * np.array([[1e20], [1e-20]])
    result = lt.recover(A, y, RANK)
    assert result.success.all()
    expected = tensors(2) * np.array([1e20, 1e-20])
    for k in range(2):
        assert lt.metrics.relative_error(result.X.trial(k), expected.trial(k)) < 1e-5


@pytest.mark.parametrize("seed", [0, 1, 5])
def test_starts_of_problems_with_unequal_rows(seed):
    A = lt.batch([lt.gaussian(SHAPE, 100, seed=0), lt.gaussian(SHAPE, 40, seed=1)])
    result = lt.recover(A, A.forward(tensors(2, seed)), RANK)
    assert [result.trial(k).m for k in range(2)] == [100, 40]
    assert result.success[0]


@pytest.mark.parametrize("solver", [lt.AMP(), lt.Annealing()], ids=str)
def test_shrinkage_of_a_batch_has_a_text(solver):
    A = lt.gaussian(SHAPE, 100, seed=1, trials=2)
    y = A.forward(tensors(2))
    result = lt.recover(A, y, None, solver=solver)
    assert "batch of 2" in repr(result)
    assert result.trial(1).X.shape == SHAPE
    assert lt.solve(lt.Problem(A, y), solver).trial(0).advice


def test_restarts_and_findings_are_those_of_each_problem():
    A = lt.gaussian(SHAPE, 34, seed=2, trials=6)
    y = A.forward(tensors(6, 3))
    settings = {"solver": lt.RGN(starts=3), "max_epochs": 10}
    result = lt.recover(A, y, RANK, seed=1, **settings)
    singles = [lt.recover(A.trial(k), y[k], RANK, seed=(1, k), **settings) for k in range(6)]
    assert result.status.tolist() == [one.status for one in singles]
    assert len(set(result.status.tolist())) > 1
    for k, single in enumerate(singles):
        one = result.trial(k)
        assert [(f.kind, f.text) for f in one.findings] == [
            (f.kind, f.text) for f in single.findings
        ]


@pytest.mark.parametrize("solver", ["rcg", "tiht"])
def test_error_estimates_are_those_of_each_problem(solver):
    A = lt.gaussian(SHAPE, 100, seed=1, trials=2)
    y = A.forward(tensors(2, 5))
    result = lt.recover(A, y, RANK, solver=solver)
    for k in range(2):
        single = lt.recover(A.trial(k), y[k], RANK, solver=solver, seed=(0, k))
        np.testing.assert_allclose(result.error_estimate[k], single.error_estimate, rtol=1e-6)


def test_padding_is_neither_counted_nor_fitted():
    A = lt.batch([lt.gaussian(SHAPE, m, seed=m) for m in (100, 80, 90)])
    y = A.forward(tensors(3))
    assert lt.Problem(A, y).equations.tolist() == [100, 80, 90]
    assert lt.Problem(A, y, np.ones((3, 100))).equations.tolist() == [100, 80, 90]
    y[1, 80:] = 5.0
    assert not lt.Problem(A, y).y[1, 80:].any()
    assert lt.recover(A, y, RANK, solver="tiht").status.tolist() == [Status.CONVERGED] * 3


def test_weights_of_no_problem_are_all_zero():
    A = lt.gaussian(SHAPE, 100, seed=1)
    weights = np.ones((2, 100))
    weights[1] = 0
    with pytest.raises(ValueError, match="not all zero"):
        lt.Problem(A, A.forward(tensors(2)), weights)


def test_a_slice_without_samples_is_named_with_its_problem():
    known = np.argwhere(np.ones(SHAPE))
    A = lt.batch([lt.entries(SHAPE, known), lt.entries(SHAPE, known[:120])])
    with pytest.warns(lt.UnderdeterminedWarning, match="Problem 1: Mode 0 has no samples"):
        lt.recover(A, A.forward(tensors(2)), (1, 1, 1))


def test_a_batch_of_nothing_is_refused():
    A = lt.gaussian(SHAPE, 100, seed=1)
    with pytest.raises(ValueError, match="one problem at least"):
        lt.recover(A, np.zeros((0, 100)), RANK)


def test_parts_that_read_one_matrix_add_up(monkeypatch):
    from lowtucker.run import parts

    A = lt.gaussian(SHAPE, 60, seed=1)
    problem = lt.Problem(A, A.forward(tensors(4)))
    whole = lt.solve(problem, lt.TIHT(step=0.3), RANK, stop=lt.MaxEpochs(5))
    monkeypatch.setattr(parts, "ROOM", 1)
    cut = lt.solve(problem, lt.TIHT(step=0.3), RANK, stop=lt.MaxEpochs(5))
    assert cut.history.passes[-1] == whole.history.passes[-1]
    assert cut.passes > 3 * whole.passes
