"""Properties of the tensor algebra, for any order, rank, batch shape and dtype."""

from __future__ import annotations

import math
import warnings

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import lowtucker as lt

settings.register_profile("fixed", derandomize=True, max_examples=30, deadline=None, database=None)
fixed = settings.get_profile("fixed")

DTYPES = [np.float32, np.float64, np.complex128]
seeds = st.integers(0, 2**16)
dtypes = st.sampled_from(DTYPES)
batches = st.lists(st.integers(1, 3), max_size=2).map(tuple)
shapes = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)


@st.composite
def shapes_and_ranks(draw, attainable=True):
    shape = draw(shapes)
    rank = tuple(draw(st.integers(1, n)) for n in shape)
    return shape, lt.attainable_rank(rank) if attainable else rank


def make(seed, shape, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        X = X + 1j * rng.standard_normal(shape)
    return X.astype(dtype)


def tolerance(dtype):
    """Rounding of a few dozen operations on numbers of size one."""
    return 2000 * float(np.finfo(dtype).eps)


def close(a, b, dtype, scale=1.0):
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance(dtype) * max(1.0, scale))


def make_tucker(seed, shape, rank, dtype=np.float64, batch=()):
    core = make(seed, batch + rank, dtype)
    factors = [
        make(seed + 1 + k, (*batch, n, r), dtype)
        for k, (n, r) in enumerate(zip(shape, rank, strict=True))
    ]
    X = lt.TuckerTensor.from_factors(core, factors)
    # of norm one, so that one tolerance applies to all
    norms = np.linalg.norm(np.reshape(X.core, (*batch, -1)), axis=-1)
    core = X.core / np.reshape(norms, (*batch, *(1,) * len(rank))).astype(X.core.real.dtype)
    return lt.TuckerTensor(core, X.factors)


@given(shapes, batches, dtypes, seeds)
@settings(fixed)
def test_fold_undoes_unfold(shape, batch, dtype, seed):
    X = make(seed, batch + shape, dtype)
    for mode in range(len(shape)):
        M = lt.unfold(X, mode, batch_ndim=len(batch))
        assert M.shape == (*batch, shape[mode], math.prod(shape) // shape[mode])
        back = lt.fold(M, mode, shape)
        assert back.dtype == X.dtype
        np.testing.assert_array_equal(back, X)


@given(shapes, batches, dtypes, seeds, st.data())
@settings(fixed)
def test_products_in_different_modes_commute(shape, batch, dtype, seed, data):
    assume(len(shape) > 1)
    j, k = data.draw(st.permutations(range(len(shape))))[:2]
    X = make(seed, batch + shape, dtype)
    U, V = (
        make(seed + 1, (*batch, 2, shape[j]), dtype),
        make(seed + 2, (*batch, 3, shape[k]), dtype),
    )
    one = lt.mode_product(lt.mode_product(X, U, j), V, k)
    other = lt.mode_product(lt.mode_product(X, V, k), U, j)
    assert one.dtype == dtype
    close(one, other, dtype, scale=np.abs(one).max())


@given(shapes, batches, dtypes, seeds, st.data())
@settings(fixed)
def test_products_in_one_mode_compose(shape, batch, dtype, seed, data):
    k = data.draw(st.integers(0, len(shape) - 1))
    X = make(seed, batch + shape, dtype)
    U, V = make(seed + 1, (*batch, 3, shape[k]), dtype), make(seed + 2, (*batch, 2, 3), dtype)
    one = lt.mode_product(lt.mode_product(X, U, k), V, k)
    other = lt.mode_product(X, V @ U, k)
    close(one, other, dtype, scale=np.abs(one).max())


@given(shapes, batches, seeds, st.data())
@settings(fixed)
def test_unfolding_of_a_product_is_the_matrix_times_the_unfolding(shape, batch, seed, data):
    k = data.draw(st.integers(0, len(shape) - 1))
    X, U = make(seed, batch + shape), make(seed + 1, (*batch, 3, shape[k]))
    got = lt.unfold(lt.mode_product(X, U, k), k, batch_ndim=len(batch))
    close(got, U @ lt.unfold(X, k, batch_ndim=len(batch)), np.float64)


@given(shapes_and_ranks(), batches, dtypes, seeds)
@settings(fixed)
def test_norm_of_a_tucker_tensor_is_that_of_its_core_and_of_the_full_tensor(
    pair, batch, dtype, seed
):
    X = make_tucker(seed, *pair, dtype, batch)
    assert X.batch_shape == batch
    flat = np.reshape(X.full(), (*batch, -1))
    close(X.norm(), np.linalg.norm(flat, axis=-1), dtype)
    assert X.norm().dtype == np.finfo(dtype).dtype


@given(shapes_and_ranks(), st.data(), batches, dtypes, seeds)
@settings(fixed)
def test_sum_and_difference_are_exact(pair, data, batch, dtype, seed):
    shape, rank = pair
    other = lt.attainable_rank(tuple(data.draw(st.integers(1, n)) for n in shape))
    X, Y = (
        make_tucker(seed, shape, rank, dtype, batch),
        make_tucker(seed + 9, shape, other, dtype, batch),
    )
    for Z, full in ((X + Y, X.full() + Y.full()), (X - Y, X.full() - Y.full()), (-X, -X.full())):
        close(Z.full(), full, dtype)
        assert Z.dtype == dtype
        lt.TuckerTensor(Z.core, Z.factors)  # orthonormal factors, or it raises


@given(shapes_and_ranks(), batches, dtypes, seeds)
@settings(fixed)
def test_a_tensor_minus_itself_is_zero(pair, batch, dtype, seed):
    X = make_tucker(seed, *pair, dtype, batch)
    close((X - X).norm(), np.zeros(batch, np.finfo(dtype).dtype), dtype)


@given(shapes_and_ranks(), dtypes, seeds, st.floats(-5, 5))
@settings(fixed)
def test_product_with_a_number_scales_every_element_and_keeps_the_dtype(pair, dtype, seed, number):
    X = make_tucker(seed, *pair, dtype)
    for Z in (X * number, number * X, np.float64(number) * X):
        close(Z.full(), (X.full() * number).astype(dtype), dtype, scale=5)
    assert (X * number).dtype == dtype
    assert (X * 3).dtype == dtype


@given(shapes_and_ranks(), st.data(), batches, dtypes, seeds)
@settings(fixed)
def test_inner_is_the_inner_product_of_the_full_tensors(pair, data, batch, dtype, seed):
    shape, rank = pair
    other = lt.attainable_rank(tuple(data.draw(st.integers(1, n)) for n in shape))
    X, Y = (
        make_tucker(seed, shape, rank, dtype, batch),
        make_tucker(seed + 9, shape, other, dtype, batch),
    )
    expected = lt.inner(X.full(), Y.full(), batch_ndim=len(batch))
    close(X.inner(Y), expected, dtype)
    close(Y.inner(X), np.conj(expected), dtype)


@given(shapes_and_ranks(), batches, dtypes, seeds, st.data())
@settings(fixed)
def test_entries_are_the_elements_of_the_full_tensor(pair, batch, dtype, seed, data):
    shape, rank = pair
    X = make_tucker(seed, shape, rank, dtype, batch)
    row = st.tuples(*(st.integers(0, n - 1) for n in shape))
    index = np.array(data.draw(st.lists(row, min_size=1, max_size=8)))
    close(X.entries(index), X.full()[(..., *index.T)], dtype)


@given(shapes_and_ranks(), dtypes, seeds)
@settings(fixed)
def test_compress_keeps_the_tensor_and_drops_redundant_directions(pair, dtype, seed):
    X = make_tucker(seed, *pair, dtype)
    twice = X + X
    got = twice.compress(X.rank)
    assert got.rank == X.rank
    close(got.full(), 2 * X.full(), dtype)
    without = twice.compress()
    assert all(r <= n for r, n in zip(without.rank, twice.rank, strict=True))
    close(without.full(), 2 * X.full(), dtype)


@given(shapes_and_ranks(), dtypes, seeds)
@settings(fixed)
def test_truncations_are_the_identity_on_tensors_of_that_rank(pair, dtype, seed):
    shape, rank = pair
    X = make_tucker(seed, shape, rank, dtype).full()
    for truncate in (lt.hosvd, lt.sthosvd, lt.hooi):
        got = truncate(X, rank)
        assert (got.shape, got.rank, got.dtype) == (shape, rank, X.dtype)
        close(got.full(), X, dtype)


@given(shapes, dtypes, seeds, st.data())
@settings(fixed)
def test_hosvd_error_decreases_with_the_rank(shape, dtype, seed, data):
    larger = tuple(data.draw(st.integers(1, n)) for n in shape)
    smaller = tuple(data.draw(st.integers(1, r)) for r in larger)
    X = make(seed, shape, dtype)
    size = np.linalg.norm(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.RankWarning)
        small, large = (np.linalg.norm(lt.hosvd(X, r).full() - X) for r in (smaller, larger))
    assert large <= small + tolerance(dtype) * size


@given(shapes, dtypes, seeds, st.data())
@settings(fixed)
def test_truncation_error_is_within_the_discarded_energies(shape, dtype, seed, data):
    """max_k tail_k <= error <= sqrt(sum_k tail_k^2), which proves eta = sqrt(d)."""
    rank = lt.attainable_rank(tuple(data.draw(st.integers(1, n)) for n in shape))
    X = make(seed, shape, dtype)
    slack = tolerance(dtype) * np.linalg.norm(X)
    tails = [np.linalg.norm(s[r:]) for s, r in zip(lt.spectra(X).values, rank, strict=True)]
    errors = {
        truncate.__name__: np.linalg.norm(truncate(X, rank).full() - X)
        for truncate in (lt.hosvd, lt.sthosvd, lt.hooi)
    }
    for error in errors.values():
        assert max(tails) - slack <= error <= np.linalg.norm(tails) + slack
    assert errors["hooi"] <= errors["hosvd"] + slack


@given(
    shapes, st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple), dtypes, seeds, st.data()
)
@settings(fixed)
def test_hosvd_of_a_batch_is_the_hosvd_of_each_item(shape, batch, dtype, seed, data):
    rank = lt.attainable_rank(tuple(data.draw(st.integers(1, n)) for n in shape))
    X = make(seed, batch + shape, dtype)
    for truncate in (lt.hosvd, lt.sthosvd):
        stacked = truncate(X, rank)
        assert (stacked.batch_shape, stacked.shape, stacked.rank) == (batch, shape, rank)
        for k in np.ndindex(batch):
            alone = truncate(X[k], rank)
            # bases may differ if singular values nearly coincide; errors may not
            gaps = [np.linalg.norm(Z - X[k]) for Z in (stacked.full()[k], alone.full())]
            assert abs(gaps[0] - gaps[1]) <= 100 * tolerance(dtype) * np.linalg.norm(X[k])


@given(shapes_and_ranks(attainable=False), seeds)
@settings(fixed)
def test_attainable_rank_is_attained_and_the_largest_possible(pair, seed):
    shape, rank = pair
    attained = lt.attainable_rank(rank)
    assert all(1 <= a <= r for a, r in zip(attained, rank, strict=True))
    assert lt.attainable_rank(attained) == attained
    X = make_tucker(seed, shape, attained)
    assert lt.multilinear_rank(X.full(), tol=1e-10) == attained
    # no entry can be increased towards the requested rank
    for k, (a, r) in enumerate(zip(attained, rank, strict=True)):
        if a < r:
            raised = (*attained[:k], a + 1, *attained[k + 1 :])
            assert lt.attainable_rank(raised) != raised
    # and a random tensor with a core of the requested size has exactly that rank
    assert lt.multilinear_rank(make_tucker(seed, shape, rank).full(), tol=1e-10) == attained


@given(shapes_and_ranks(), seeds, st.integers(1, 3), dtypes, st.booleans())
@settings(fixed)
def test_random_tucker_batch_consists_of_the_single_tensors(pair, seed, trials, dtype, orthonormal):
    shape, rank = pair
    options = {"dtype": dtype, "orthonormal": orthonormal, "core_mean": 0.5}
    stack = lt.random_tucker(shape, rank, seed, trials=trials, **options)
    assert (stack.batch_shape, stack.shape, stack.rank) == ((trials,), shape, rank)
    assert stack.dtype == dtype
    for k in range(trials):
        alone = lt.random_tucker(shape, rank, (seed, k), **options).full()
        close(stack.full()[k], alone, dtype, scale=np.abs(alone).max())
