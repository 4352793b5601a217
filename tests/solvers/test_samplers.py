"""Samplers and their draws are values; probabilities and seeds at the ends of their range."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt

M = 10
PROBLEM = lt.Problem(lt.gaussian((3, 2), M, seed=1), np.ones(M))
SAMPLERS = [lt.Partition, lt.Shuffled, lt.RandomRows, lt.KaczmarzRows]


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_norms_do_not_depend_on_the_scale_of_the_operator(scale):
    matrix = np.random.default_rng(0).standard_normal((10, 6))
    plain, scaled = (
        lt.Partition(3, p="norms").bind(
            lt.Problem(lt.DenseOperator(matrix * s, (3, 2)), np.ones(10))
        )
        for s in (1.0, scale)
    )
    for t in range(8):
        assert plain.draw(t).rows == scaled.draw(t).rows
        assert plain.draw(t).weight == pytest.approx(scaled.draw(t).weight, rel=1e-12)


def test_single_precision_probabilities_that_sum_to_one_are_taken():
    p = np.random.default_rng(0).random(10).astype(np.float32)
    p /= p.sum()
    assert lt.Partition(1, p=p).bind(PROBLEM).n_blocks == 10


@pytest.mark.parametrize("make", SAMPLERS)
def test_draws_can_be_compared(make):
    sampler = make(3).bind(PROBLEM)
    assert sampler.draw(4, seed=1) == sampler.draw(4, seed=1)


def test_samplers_are_values():
    assert lt.Partition(3) == lt.Partition(3)
    assert lt.Partition(3) != lt.Partition(4)
    bound = lt.Partition(3).bind(PROBLEM)
    assert lt.Partition(3).m == 0, "bind gives a copy"
    assert bound.bind(PROBLEM).draw(3, 2) == bound.draw(3, 2)


def test_draws_of_a_batch_can_be_compared():
    for make in SAMPLERS:
        sampler = make(3).bind(PROBLEM)
        one, other = sampler.draw(0, 1, (0, 1)), sampler.draw(0, 1, range(2))
        assert one == other
        assert one != sampler.draw(0, 1, (0, 1, 2))
        assert one != sampler.draw(0, 1)
        assert one != "draw"


def test_norms_of_a_batch_are_drawn_for_all_its_problems():
    A = lt.gaussian((3, 2), M, seed=1, trials=3)
    sampler = lt.Partition(5, p="norms").bind(lt.Problem(A, np.ones((3, M))))
    assert len(sampler.draw(0, 0, range(3)).rows) == 3


@pytest.mark.parametrize("make", SAMPLERS)
def test_the_largest_seeds_and_steps_are_drawn_from(make):
    sampler = make(3).bind(PROBLEM)
    largest = 2**64 - 1
    for t, seed in ((largest, 0), (0, largest), (0, (0, largest))):
        assert sampler.draw(t, seed) == make(3).bind(PROBLEM).draw(t, seed)
    rows = {tuple(np.arange(M)[lt.RandomRows(3).bind(PROBLEM).draw(0, largest - k).rows])
            for k in range(6)}  # fmt: skip
    assert len(rows) > 3, "large seeds differ in their last bits too"


@pytest.mark.parametrize("make", SAMPLERS)
def test_trials_far_apart_draw_the_same_rows_as_alone(make):
    sampler = make(3).bind(PROBLEM)
    together = sampler.draw(2, 5, (0, 10**12))
    for k, trial in enumerate((0, 10**12)):
        alone = sampler.draw(2, (5, trial))
        np.testing.assert_array_equal(np.arange(M)[together.rows[k]], np.arange(M)[alone.rows])


@pytest.mark.parametrize("make", SAMPLERS)
def test_a_block_may_hold_all_measurements(make):
    assert make(M).bind(PROBLEM).n_blocks == 1
