"""Calls that are not refused: a warning, a status or the result reports what is wrong."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from bad_calls.setting import NAN, RANK, SHAPE, A, M, X, function, recover


def test_a_rank_that_no_tensor_attains_is_a_warning():
    with pytest.warns(lt.RankWarning, match=r"\(1, 1, 1\)"):
        result = recover(rank=(1, 1, 3), max_epochs=20)
    assert result.rank == (1, 1, 1)
    assert np.isfinite(result.X.full()).all()


def test_few_measurements_are_a_warning_and_a_status():
    B = lt.gaussian(SHAPE, 10, seed=1)
    with pytest.warns(lt.UnderdeterminedWarning, match="16 degrees of freedom. Take at least 16"):
        result = lt.recover(B, B.forward(X), RANK)
    assert result.status is lt.Status.UNDERDETERMINED
    assert not result.success


def test_the_advice_on_few_measurements_does_not_name_one_number_twice():
    with pytest.warns(lt.UnderdeterminedWarning, match="Take at least 3\\.$"):
        lt.solve(
            lt.Problem(lt.gaussian((3,), 2, seed=0), np.ones(2)),
            lt.TIHT(),
            (1,),
            stop=lt.MaxEpochs(1),
        )


def test_an_operator_that_is_not_row_separable_is_a_warning():
    with pytest.warns(lt.SlowOperatorWarning, match="_restrict"):
        recover(A=function(), solver="stotiht")


@pytest.mark.parametrize("A", [A, function()], ids=["dense", "functions"])
@pytest.mark.parametrize("step", [1e3, 1e100, 1e300])
def test_a_step_far_too_large_is_a_status(A, step):
    result = recover(A=A, solver=lt.TIHT(step=step), max_epochs=50)
    assert result.status is lt.Status.DIVERGED
    assert not result.success
    assert np.isfinite(result.X.full()).all()


def test_a_limit_is_a_status():
    assert recover(solver="tiht", tol=0).status is lt.Status.MAX_EPOCHS
    result = recover(solver="tiht", tol=0, max_epochs=10**6, max_seconds=1e-9)
    assert result.status is lt.Status.MAX_SECONDS
    assert recover(max_epochs=500, callbacks=[lambda _: True]).status is lt.Status.INTERRUPTED


def test_zero_data_give_the_zero_tensor():
    result = recover(y=np.zeros(M))
    assert result.residual == 0
    assert float(result.X.norm()) == 0


def test_non_finite_tensors_and_overflow_pass_through():
    assert np.isnan(function().forward(np.full(SHAPE, NAN))).all()
    with np.errstate(over="ignore", invalid="ignore"):
        assert not np.isfinite(function().forward(np.full(SHAPE, 1e308))).all()
    assert not np.isfinite(A.forward(np.full(SHAPE, NAN))).any()


def test_the_output_of_built_in_operators_is_not_checked(monkeypatch):
    def check(_):
        raise AssertionError("a pass over the output of a dense operator")

    monkeypatch.setattr("lowtucker.operators.base.all_finite", check)
    A.adjoint(A.forward(X.full()))
    with pytest.raises(AssertionError):
        function().forward(X.full())


def test_the_last_axis_of_y_counts_the_measurements():
    """A row is a batch of one; only a column is read as one problem, as MATLAB's files have it."""
    y = A.forward(X)
    one, row, column, two = (
        recover(y=given, max_epochs=3).X.full() for given in (y, y[None], y[:, None], [y, y])
    )
    assert one.shape == column.shape == SHAPE
    assert row.shape == (1, *SHAPE)
    assert two.shape == (2, *SHAPE)
    np.testing.assert_array_equal(column, one)
    np.testing.assert_allclose(row[0], one, rtol=1e-6, atol=1e-9)


def test_no_limit_of_time_is_infinity():
    for infinity in (float("inf"), np.float32("inf"), np.array(np.inf)):
        assert recover(max_seconds=infinity).status is not lt.Status.MAX_SECONDS
    history = {"seconds": np.array([1e9])}
    assert not lt.MaxSeconds(float("inf")).met(history)
    assert lt.MaxSeconds(1.0).met(history)


def test_callbacks_may_return_booleans_of_numpy():
    assert recover(callbacks=[lambda _: np.True_]).status is lt.Status.INTERRUPTED
    assert recover(callbacks=[lambda _: np.False_]).status is not lt.Status.INTERRUPTED
