"""The policy of "auto": the cost model, and what it chooses."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.solvers.auto import automatic
from lowtucker.solvers.costs import expected, gram_pays, seconds, steps, terms


def samples(shape, m, seed=0):
    index = np.random.default_rng(seed).integers(0, shape, (m, len(shape)))
    return lt.Problem(lt.entries(shape, index), np.ones(m))


def names(problem, rank, **options):
    return [solver.name for solver in automatic(problem, rank, **options)]


def test_terms_are_those_of_the_docstring():
    shape, rank = (10, 20, 30), (2, 3, 4)
    dof = lt.degrees_of_freedom(shape, rank)
    assert terms("gram", 500, shape, rank) == (1.0, 500 * dof**2)
    assert terms("ALS", 500, shape, rank) == (1.0, 500, 500 * 24, 500 * 24**2)
    assert terms("RCG", 500, shape, rank) == terms("products", 500, shape, rank)
    assert terms("products", 500, shape, rank) == (1.0, 500, 500 * 24)
    large = terms("ALS", 500, (50, 50, 50), (10, 10, 10))  # by 20 conjugate gradients
    assert large == (1.0, 500, 500 * 1000, 500 * 20 * 1000)


@pytest.mark.parametrize("solver", ["ALS", "RCG", "products", "gram"])
def test_cost_grows_with_samples_and_rank_and_steps_fall_with_samples(solver):
    shape = (50, 50, 50)
    assert seconds(solver, 10000, shape, (3, 3, 3)) > seconds(solver, 1000, shape, (3, 3, 3))
    assert seconds(solver, 1000, shape, (5, 5, 5)) > seconds(solver, 1000, shape, (3, 3, 3))
    assert steps(solver, 5) > steps(solver, 10) > steps(solver, 80) > 1
    problem = samples(shape, 4500)
    whole = steps(solver, 10) * seconds(solver, 4500, shape, (3, 3, 3))
    assert expected(solver, problem, (3, 3, 3)) == pytest.approx(whole)


def test_small_samples_take_normal_equations_and_large_ones_do_not():
    small, large = samples((12, 12, 12), 800), samples((100, 100, 100), 100000)
    assert names(small, (2, 2, 2)) == ["RSGD", "RGN"]
    assert gram_pays(small, (2, 2, 2))
    first, last = automatic(large, (5, 5, 5))
    assert first.name == "RCG"  # as many samples as that: fewer flops than ALS
    assert last == lt.RGN(products=True, starts=1)
    assert not gram_pays(large, (5, 5, 5))
    # unequal or small ranks with few samples
    assert names(samples((60, 60, 60), 2700), (3, 3, 3)) == ["ALS", "RGN"]
    assert names(samples((1000, 1000, 1000), 300000), (8, 8, 8)) == ["RCG", "RGN"]


def test_starts_are_as_many_as_the_time_allows():
    many = automatic(samples((60, 60, 60), 2700), (3, 3, 3))[-1].starts
    few = automatic(samples((300, 300, 300), 30000), (5, 5, 5))[-1].starts
    assert many > few >= 1
    assert automatic(samples((60, 60, 60), 2700), (3, 3, 3), quick=True)[-1].starts == 1


def test_other_rows_that_are_outer_products_take_products_too():
    A = lt.subsampled_transform((60, 60, 60), 4000, "dct", signs=False, seed=0)
    problem = lt.Problem(A, np.ones(4000))
    assert names(problem, (6, 6, 6)) == ["RCG", "RGN"]
    assert names(problem, (1, 1, 1)) == ["RSGD", "RGN"]
    model = lt.RGN().bind(problem, (6, 6, 6)).init(lt.random_tucker(A.shape, (6, 6, 6), seed=0), 0)
    assert type(model.cache.model).__name__ == "ProductModel"


def test_matrices_keep_normal_equations():
    A = lt.gaussian((10, 10, 10), m=300, seed=0)
    problem = lt.Problem(A, np.ones(300))
    assert gram_pays(problem, (2, 2, 2))
    assert names(problem, (2, 2, 2)) == ["RSGD", "RGN"]
