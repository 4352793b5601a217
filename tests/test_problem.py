"""lowtucker.Problem: its data, its weights, and the quantities that are derived from them."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt

SHAPE, M = (3, 4), 5
A = lt.gaussian(SHAPE, M, seed=1)
BATCH = lt.gaussian(SHAPE, M, seed=1, trials=3)
Y = np.arange(1.0, 6.0)
YS = np.ones((3, M))
X = np.ones(SHAPE)


def test_y_and_weights_are_not_changed_and_lists_are_taken():
    y, w = [1, 2, 3, 4, 5], [1, 0, 1, 2, 1]
    problem = lt.Problem(A, y, w)
    assert problem.y.dtype == problem.weights.dtype == np.float64
    assert problem.objective(X).shape == ()
    assert (y, w) == ([1, 2, 3, 4, 5], [1, 0, 1, 2, 1])


def test_zero_data_have_the_absolute_residual():
    problem = lt.Problem(A, np.zeros(M))
    assert problem.relative_residual(X) == pytest.approx(np.linalg.norm(A.forward(X)))


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 3.0, 4.0, 5.0]], ids=["plain", "weighted"])
def test_single_precision_stays_single_precision(weights):
    """Whatever the precision of y and of the weights: the operator's decides."""
    single = lt.gaussian(SHAPE, M, seed=1, dtype=np.float32)
    for y in (Y.astype(np.float32), Y):
        problem = lt.Problem(single, y, weights)
        X32 = X.astype(np.float32)
        residual, gradient = problem.residual_and_gradient(X32)
        for value in (residual, gradient, problem.residual(X32), problem.cost(X32)):
            assert value.dtype == np.float32


def test_a_column_is_a_vector():
    problem = lt.Problem(A, Y[:, None], np.arange(5.0)[:, None])
    np.testing.assert_array_equal(problem.y, Y)
    np.testing.assert_array_equal(problem.weights, np.arange(5.0))
    one_row = lt.gaussian(SHAPE, 1, seed=1)
    assert lt.Problem(one_row, np.ones((1, 1))).batch_shape == (1,), "a batch of one problem"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_are_not_finite_may_have_the_weight_zero(bad):
    y, w = Y.copy(), np.array([1.0, 1.0, 0.0, 2.0, 1.0])
    y[2] = bad
    problem, clean = lt.Problem(A, y, w), lt.Problem(A, np.where(w > 0, Y, 0), w)
    np.testing.assert_array_equal(problem.y, clean.y)
    np.testing.assert_array_equal(problem.gradient(X), clean.gradient(X))
    assert problem.relative_residual(X) == clean.relative_residual(X)
    assert not np.isfinite(y[2]), "the data that were given are not changed"
    stacked, ws = np.tile(Y, (3, 1)), np.ones((3, M))
    stacked[1, 4], ws[1, 4] = bad, 0
    assert np.isfinite(lt.Problem(BATCH, stacked, ws).gradient(np.stack([X] * 3))).all()


def test_equations_count_real_equations_with_positive_weight():
    w = np.array([1.0, 0.0, 2.0, 0.0, 1.0])
    assert lt.Problem(A, Y).equations == 5
    assert lt.Problem(A, Y, w).equations == 3
    assert lt.Problem(A, Y + 1j).equations == 10, "complex data of real tensors"
    assert lt.Problem(A, Y + 1j, w).equations == 6
    assert lt.Problem(lt.gaussian(SHAPE, M, dtype=complex), Y + 1j).equations == 5
    per_trial = np.stack([w, np.ones(M), np.eye(M)[0]])
    assert lt.Problem(BATCH, YS, per_trial).equations.tolist() == [3, 5, 1]
    blocks = (slice(0, 3), slice(3, 5), slice(0, 3))
    assert lt.Problem(BATCH, YS).block(blocks).equations.tolist() == [3, 2, 3]
    assert lt.Problem(BATCH, YS, w).block(blocks).equations.tolist() == [2, 1, 2]


def test_the_norm_of_y_is_weighted_and_computed_once():
    w = np.arange(5.0)
    problem = lt.Problem(A, Y, w)
    assert problem.y_norm == pytest.approx(np.sqrt((w * Y**2).sum()))
    assert problem.y_norm is problem.y_norm
    block = problem.block(slice(1, 3))
    assert block.y_norm == pytest.approx(np.sqrt((w * Y**2)[1:3].sum()))
    assert lt.Problem(BATCH, YS).select([2, 0]).y_norm.shape == (2,)
