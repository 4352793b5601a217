"""A rank that grows during a run."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt

SHAPE, RANK = (8, 8, 8), (3, 3, 3)
A = lt.gaussian(SHAPE, 300, seed=1)
X = lt.random_tucker(SHAPE, RANK, seed=0)
PROBLEM = lt.Problem(A, A.forward(X))


def test_the_rank_of_every_epoch():
    solver = lt.TIHT(schedule=lt.GrowingRank(start=1, epochs=4))
    ranks = []
    lt.solve(PROBLEM, solver, RANK, stop=lt.MaxEpochs(6),
             callbacks=[lambda progress: ranks.append(progress.state.X.rank)])  # fmt: skip
    # the first step is that of epoch 0
    assert ranks == [(1, 1, 1), (1, 1, 1), (2, 2, 2), (2, 2, 2), RANK, RANK]


def test_formats_with_one_number_grow_too():
    schedule = lt.GrowingRank(start=2, epochs=2)
    assert [schedule.at(lt.Sparse(6), epoch).rank for epoch in (0, 1, 2, 9)] == [2, 4, 6, 6]
    x = np.zeros(60)
    x[[3, 30, 50]] = 3.0, 2.0, 1.0
    B = lt.gaussian((60,), 40, seed=0)
    grown = lt.recover(B, B.forward(x), lt.Sparse(3), solver=lt.TIHT(schedule=lt.GrowingRank(1, 3)))
    assert grown.success
    np.testing.assert_allclose(grown.X.full(), x, atol=1e-4)


def test_no_run_stalls_while_its_rank_grows():
    """Rank 1 is fitted after some epochs, and would stall for the other 80."""
    rule = lt.ResidualBelow(1e-6) | lt.Stalled(window=10) | lt.MaxEpochs(300)
    solver = lt.TIHT(schedule=lt.GrowingRank(start=1, epochs=120))
    result = lt.solve(PROBLEM, solver, RANK, stop=rule)
    assert result.success
    assert result.epochs > 80


def test_a_run_that_converges_early_keeps_its_smaller_rank():
    small = lt.random_tucker(SHAPE, (1, 1, 1), seed=0)
    solver = lt.TIHT(schedule=lt.GrowingRank(start=1, epochs=400))
    result = lt.solve(lt.Problem(A, A.forward(small)), solver, RANK, stop=lt.ResidualBelow(1e-4))
    assert result.success
    assert result.rank == result.X.rank == (1, 1, 1)


def test_ranks_that_no_tensor_has_are_passed_over(recwarn):
    schedule = lt.GrowingRank(start=(1, 1, 1), epochs=2)
    assert schedule.at(lt.HOSVD((1, 4, 4)), 1).rank == (1, 2, 2)
    assert schedule.at(lt.HOSVD((3, 1, 3)), 1).rank == (2, 1, 2)
    assert schedule.at(lt.HOSVD((2, 2, 4)), 1).rank == (1, 1, 1)  # not (1, 1, 2)
    train = lt.TensorTrain((3, 9, 3))
    assert lt.GrowingRank(1, epochs=2).at(train, 1, (3, 3, 3, 3)).rank == (2, 5, 2)
    assert lt.GrowingRank(1, epochs=9).at(train, 4, (3, 3, 3, 3)).rank == (1, 3, 1)  # not (1, 4, 1)
    assert not recwarn.list


@pytest.mark.parametrize(
    ("schedule", "rank", "message"),
    [
        (lt.GrowingRank(start=4), RANK, r"start = 4 of the schedule is larger than the rank"),
        (lt.GrowingRank(start=(1, 1)), RANK, r"does not fit a rank of \(3, 3, 3\). Try"),
    ],
)
def test_a_start_that_does_not_fit(schedule, rank, message):
    with pytest.raises(ValueError, match=message):
        lt.solve(PROBLEM, lt.TIHT(schedule=schedule), rank)


def test_bad_settings():
    with pytest.raises(ValueError, match="epochs"):
        lt.GrowingRank(epochs=0)
    with pytest.raises(TypeError, match="schedule must be a GrowingRank"):
        lt.TIHT(schedule=5)
    with pytest.raises(ValueError, match="needs a thresholding with a rank"):
        lt.solve(PROBLEM, lt.TIHT(thresholding=lt.Shrinkage(1.0), schedule=lt.GrowingRank()))


def test_semp_has_an_order_of_the_modes(rng):
    Z = rng.standard_normal((4, 10, 6))
    assert lt.SeMP((2, 2, 2)).modes(Z.shape) == (1, 2, 0)
    expected = lt.sthosvd(Z, (2, 2, 2), mode_order=(1, 2, 0)).full()
    np.testing.assert_array_equal(lt.SeMP((2, 2, 2))(Z).full(), expected)
    other = lt.sthosvd(Z, (2, 2, 2), mode_order=(2, 0, 1)).full()
    np.testing.assert_array_equal(lt.SeMP((2, 2, 2), order=(2, 0, 1))(Z).full(), other)
    with pytest.raises(ValueError, match="order must be a permutation of 0 to 2"):
        lt.SeMP((2, 2, 2), order=(0, 1, 1))
