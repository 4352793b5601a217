"""The sampler contract, over every sampler in cases.SAMPLERS."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from cases import SAMPLERS

M_ROWS = 10


def make_problem(m=M_ROWS, trials=None):
    A = lt.gaussian((3, 2, 2), m, seed=1, trials=trials)
    y = np.ones((m,) if trials is None else (trials, m))
    return lt.Problem(A, y)


@pytest.fixture(params=SAMPLERS)
def make(request):
    return SAMPLERS[request.param]


def as_rows(rows, m=M_ROWS):
    return np.arange(m)[rows]


def same(a, b):
    return np.array_equal(as_rows(a.rows), as_rows(b.rows)) and a.weight == b.weight


@pytest.mark.parametrize("b", [1, 3, 5, 10])
def test_pure_in_t_and_seed(make, b):
    sampler, again = make(b).bind(make_problem()), make(b).bind(make_problem())
    draws = [sampler.draw(t, seed=4) for t in range(30)]
    for t in reversed(range(30)):  # in another order, from another object
        assert same(draws[t], again.draw(t, seed=4))


def test_seeds_and_steps_differ(make):
    sampler = make(3).bind(make_problem())
    rows = {(t, s): tuple(as_rows(sampler.draw(t, s).rows)) for t in range(20) for s in range(5)}
    assert len({tuple(rows[t, s] for t in range(20)) for s in range(5)}) == 5
    assert len({rows[t, 0] for t in range(20)}) > 1


@pytest.mark.parametrize("b", [1, 3, 4, 7, 10])
def test_rows_are_in_range_and_different(make, b):
    sampler = make(b).bind(make_problem())
    for t in range(25):
        rows = as_rows(sampler.draw(t, seed=1).rows)
        assert 1 <= len(rows) <= b
        assert len(set(rows.tolist())) == len(rows)


@pytest.mark.parametrize("b", [3, 5])
def test_the_block_gradient_is_unbiased_also_when_b_does_not_divide_m(make, b, rng):
    """Mean of weight * grad f_i over many draws against grad F; b = 3 does not divide 10."""
    problem = make_problem()
    sampler = make(b).bind(problem)
    X = rng.standard_normal(problem.shape)
    draws = 3000
    samples, gradients = [], {}
    for t in range(draws):
        draw = sampler.draw(t, seed=2)
        rows = tuple(as_rows(draw.rows))
        if rows not in gradients:
            gradients[rows] = problem.block(draw.rows).gradient(X)
        samples.append(draw.weight * gradients[rows])
    samples = np.array(samples)
    spread = samples.std(axis=0) / np.sqrt(draws)
    # 5.5 standard errors: by chance once in 10^7 entries, and the seed is fixed
    assert (np.abs(samples.mean(axis=0) - problem.gradient(X)) < 5.5 * spread + 1e-12).all()


def test_a_batch_draws_the_same_rows_as_each_trial_alone(make):
    trials = 7
    problem = make_problem(trials=trials)
    sampler = make(3).bind(problem)
    for t in (0, 1, 5, 40):
        batched = sampler.draw(t, seed=3, trials=range(trials))
        for k in range(trials):
            alone_problem = lt.Problem(lt.gaussian((3, 2, 2), M_ROWS, seed=(1, k)), np.ones(M_ROWS))
            alone = make(3).bind(alone_problem).draw(t, seed=(3, k))
            assert np.array_equal(as_rows(batched.rows[k]), as_rows(alone.rows))
            assert batched.weight[k] == pytest.approx(alone.weight, rel=1e-12)


def test_block_size_outside_1_to_m_is_refused(make):
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        make(0)
    with pytest.raises(TypeError, match=r"block_size must be an integer, got 2\.5"):
        make(2.5)
    with pytest.raises(ValueError, match="block_size = 11 must be between 1 and the number of"):
        make(11).bind(make_problem())


def test_drawing_before_binding_is_refused(make):
    with pytest.raises(ValueError, match="does not know its problem yet"):
        make(3).draw(0)


def test_steps_per_epoch_covers_the_data_about_once(make):
    for b, steps in ((10, 1), (5, 2), (1, 10)):
        assert make(b).bind(make_problem()).steps_per_epoch == steps


def test_a_selection_draws_the_same_rows_as_in_the_whole_batch(make):
    sampler = make(3).bind(make_problem(trials=5))
    positions = [3, 0]
    part = sampler.select(positions)
    again = part.select([1])
    for t in (0, 1, 7):
        whole = sampler.draw(t, seed=3, trials=range(5))
        some = part.draw(t, seed=3, trials=positions)
        for i, k in enumerate(positions):
            assert np.array_equal(as_rows(some.rows[i]), as_rows(whole.rows[k]))
            assert some.weight[i] == whole.weight[k]
        assert np.array_equal(
            as_rows(again.draw(t, 3, (0,)).rows[0]), as_rows(sampler.draw(t, 3, range(5)).rows[0])
        )
