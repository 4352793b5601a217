"""TuckerTensor as an iterate: batches, named parts, projection, exact scaling."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker._array import to_numpy
from lowtucker.tensor.products import multi_mode_product

SHAPE, RANK = (4, 3, 5), (2, 1, 2)


def batch(kind, trials=4, seed=0, dtype=np.float64):
    X = lt.random_tucker(SHAPE, RANK, trials=trials, seed=seed, dtype=dtype)
    return lt.TuckerTensor.trusted(kind(X.core), [kind(U) for U in X.factors])


def arrays(X):
    return [to_numpy(part) for part in X.parts().values()]


def assert_same(X, expected):
    for part, other in zip(arrays(X), expected, strict=True):
        assert part.dtype == other.dtype
        np.testing.assert_array_equal(part, other)


def test_take_selects_problems_by_position(kind):
    X = batch(kind)
    some = X.take([2, 0, 2])
    assert kind.owns(some.core)
    assert_same(some, [part[[2, 0, 2]] for part in arrays(X)])


@pytest.mark.parametrize("as_kind", [False, True])
def test_take_selects_problems_by_mask(kind, as_kind):
    X, mask = batch(kind), np.array([True, False, False, True])
    assert_same(X.take(kind(mask) if as_kind else mask), [part[mask] for part in arrays(X)])


def test_take_accepts_an_empty_selection(kind):
    assert batch(kind).take([]).batch_shape == (0,)


@pytest.mark.parametrize("trials", [[True, False], 1, [[0, 1]]])
def test_take_rejects_a_selection_of_another_shape(trials):
    with pytest.raises(ValueError, match=r"one boolean for each; got batch shape \(4,\)"):
        lt.random_tucker(SHAPE, RANK, trials=4).take(trials)


def test_take_rejects_a_single_tensor():
    with pytest.raises(ValueError, match=r"take expects a batch of problems.*batch shape \(\)"):
        lt.random_tucker(SHAPE, RANK).take([0])


@pytest.mark.parametrize("as_kind", [False, True])
def test_where_chooses_for_each_problem(kind, as_kind):
    X, Y, mask = batch(kind), batch(kind, seed=9), np.array([True, False, True, False])
    mixed = X.where(kind(mask) if as_kind else mask, Y)
    assert kind.owns(mixed.core)
    for part, old, new in zip(arrays(mixed), arrays(X), arrays(Y), strict=True):
        np.testing.assert_array_equal(part[mask], old[mask])
        np.testing.assert_array_equal(part[~mask], new[~mask])


def test_where_chooses_for_a_single_tensor(kind):
    X, Y = batch(kind).trial(0), batch(kind).trial(1)
    assert_same(X.where(True, Y), arrays(X))
    assert_same(X.where(kind(False), Y), arrays(Y))


def test_where_ignores_non_finite_values_that_are_not_selected():
    X = lt.random_tucker(SHAPE, RANK, trials=2, seed=0)
    broken = lt.TuckerTensor.trusted(np.full_like(X.core, np.nan), X.factors)
    assert_same(X.where([True, True], broken), arrays(X))


def test_where_rejects_a_mask_or_a_rank_that_does_not_fit():
    X = lt.random_tucker(SHAPE, RANK, trials=2)
    with pytest.raises(ValueError, match=r"mask of shape \(2,\).*got a mask of shape \(3,\)"):
        X.where([True, True, False], X)
    with pytest.raises(ValueError, match=r"tensor of rank \(2, 1, 2\), got .* rank \(1, 1, 1\)"):
        X.where([True, True], lt.random_tucker(SHAPE, (1, 1, 1), trials=2))


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_parts_and_back_keeps_every_bit(kind, dtype):
    X = batch(kind, dtype=dtype)
    parts = X.parts()
    assert list(parts) == ["core", "factor_0", "factor_1", "factor_2"]
    Y = lt.TuckerTensor.from_parts(dict(reversed(parts.items())))
    assert Y.core is X.core
    assert all(U is V for U, V in zip(Y.factors, X.factors, strict=True))


def test_from_parts_sorts_factors_by_number():
    X = lt.random_tucker((2,) * 11, (1,) * 11, seed=0)
    parts = X.parts()
    assert_same(lt.TuckerTensor.from_parts({k: parts[k] for k in sorted(parts)}), arrays(X))


@pytest.mark.parametrize("names", [[], ["core"], ["core", "factor_1"], ["factor_0", "factor_1"]])
def test_from_parts_rejects_other_names(names):
    with pytest.raises(ValueError, match="parts must be named 'core', 'factor_0'"):
        lt.TuckerTensor.from_parts(dict.fromkeys(names, np.ones((1, 1))))


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_project_is_the_product_with_the_adjoint_factors(kind, dtype):
    X, rng = batch(kind, dtype=dtype), np.random.default_rng(1)
    G = kind(rng.standard_normal((4, *SHAPE)).astype(dtype))
    P = X.project(G)
    core = multi_mode_product(G, X.factors, transpose=True)
    assert_same(P, [to_numpy(core), *map(to_numpy, X.factors)])


def test_project_is_an_orthogonal_projection():
    X = lt.random_tucker(SHAPE, RANK, seed=0, dtype=complex)
    rng = np.random.default_rng(1)
    G = rng.standard_normal(SHAPE) + 1j * rng.standard_normal(SHAPE)
    P = X.project(G).full()
    np.testing.assert_allclose(X.project(P).full(), P, atol=1e-13)
    assert abs(np.vdot(P, G - P)) < 1e-12


def test_concat_joins_batches_along_the_leading_axis(kind):
    X, Y = batch(kind, 2), batch(kind, 3, seed=5)
    joined = lt.TuckerTensor.concat([X, Y])
    assert kind.owns(joined.core)
    pairs = zip(arrays(X), arrays(Y), strict=True)
    assert_same(joined, [np.concatenate(pair) for pair in pairs])


def test_batched_and_single_undo_each_other(kind):
    X = batch(kind).trial(1)
    one = X.batched()
    assert one.batch_shape == (1,)
    assert one.shape == SHAPE
    assert_same(one.single(), arrays(X))


def test_batched_and_single_copy_nothing():
    X = lt.random_tucker(SHAPE, RANK)
    for part, other in zip(X.parts().values(), X.batched().single().parts().values(), strict=True):
        assert np.shares_memory(part, other)


@pytest.mark.parametrize("trials", [None, 2])
def test_single_rejects_any_other_batch(trials):
    X = lt.random_tucker(SHAPE, RANK, trials=trials)
    with pytest.raises(ValueError, match=r"single\(\) expects a batch of one problem"):
        X.single()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("power", [0, 1, -100, 110])
def test_shifted_multiplies_exactly(kind, dtype, power):
    X = batch(kind, dtype=dtype)
    moved = X.shifted(power)
    assert_same(moved, [arrays(X)[0] * 2.0**power, *arrays(X)[1:]])
    assert_same(moved.shifted(-power), arrays(X))


@pytest.mark.parametrize("power", [2000, -2000])
def test_shifted_is_safe_for_powers_that_are_no_floats(power):
    tiny = lt.random_tucker(SHAPE, RANK, seed=0).shifted(-power // 2)
    assert_same(tiny.shifted(power).shifted(-power), arrays(tiny))
