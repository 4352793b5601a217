"""Batches of operators: blocks of unequal length, selections, several leading axes."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt

SHAPE = (3, 4, 2)
BATCH = lt.gaussian(SHAPE, 11, seed=2, trials=3)
ROWS = (slice(0, 2), slice(4, 8), np.array([8, 10, 9]))


@pytest.mark.parametrize("power", [0, 5])
def test_a_selection_of_short_blocks_keeps_the_length_of_the_batch(power, rng):
    """Its data are padded to the length of the longest block, which may not be selected."""
    blocks = BATCH.restrict(ROWS).in_units(power)
    X = rng.standard_normal((3, *SHAPE))
    y = blocks.forward(X)
    assert y.shape == (3, 4)
    some = blocks.select([2, 0])
    assert some.m == 4
    np.testing.assert_array_equal(some.count, [3, 2])
    np.testing.assert_array_equal(some.forward(X[[2, 0]]), y[[2, 0]])
    residual, gradient = some.misfit(0 * X[[2, 0]], y[[2, 0]])
    np.testing.assert_array_equal(residual, y[[2, 0]])
    np.testing.assert_allclose(gradient, blocks.adjoint(y)[[2, 0]], rtol=1e-12, atol=1e-10)
    np.testing.assert_array_equal(some.row_norms(), blocks.row_norms()[[2, 0]])
    np.testing.assert_array_equal(some.restrict(slice(1, 4)).forward(X[[2, 0]]), y[[2, 0], 1:])


def test_a_batch_of_blocks_of_unequal_length_is_recovered_from():
    X = lt.random_tucker(SHAPE, (1, 1, 1), seed=7, trials=3)
    blocks = lt.gaussian(SHAPE, 60, seed=2, trials=3).restrict(
        (slice(0, 40), slice(0, 60), slice(20, 60))
    )
    result = lt.recover(blocks, blocks.forward(X), (1, 1, 1))
    assert np.all(lt.metrics.relative_error(result.X, X) < 1e-4)


@pytest.mark.parametrize("isotropic", [True, False])
def test_blocks_and_selections_are_as_isotropic_as_the_batch(isotropic):
    A = lt.DenseOperator(BATCH.matrix, SHAPE, isotropic=isotropic)
    for one in (A, A.restrict(slice(2)), A.restrict(ROWS), A.select([1]), A.in_units(3)):
        assert one.traits.isotropic is isotropic
    with pytest.raises(TypeError, match="isotropic must be True or False, got 1"):
        lt.DenseOperator(BATCH.matrix, SHAPE, isotropic=1)


@pytest.mark.parametrize("power", [0, 5])
def test_blocks_of_one_operator_take_the_leading_axes_of_the_data(power, rng):
    A = lt.gaussian(SHAPE, 11, seed=2).in_units(power)
    X = rng.standard_normal((2, 3, *SHAPE))
    y = A.forward(X)
    rows = tuple(np.array([k, k + 2]) for k in range(6))
    block = lt.Problem(A, y).trusted_block(rows)
    assert block.A.batch_shape == block.batch_shape == (2, 3)
    np.testing.assert_allclose(block.residual(X), 0, atol=1e-10)
    np.testing.assert_allclose(block.y[1, 2], y[1, 2, [5, 7]], rtol=1e-12)


def test_an_operator_without_a_batch_cannot_be_selected_from_or_arranged():
    A = lt.gaussian(SHAPE, 5)
    assert A.select([0]) is A.arranged(()) is A
    with pytest.raises(NotImplementedError, match=r"DenseOperator is a batch of \(\), and cannot"):
        A.arranged((2,))
