"""The tensor algebra against plain loops over indices, written from the formulae."""

from __future__ import annotations

import functools
import itertools
import math
import warnings

import numpy as np
import pytest
import tensorly

import lowtucker as lt

SHAPES = [(4,), (3, 5), (3, 4, 2), (2, 1, 3, 2), (2, 3, 1, 2, 2)]


def indices(shape):
    return itertools.product(*map(range, shape))


def random_array(rng, shape, dtype=np.float64):
    X = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        X = X + 1j * rng.standard_normal(shape)
    return X.astype(dtype)


# References, without reshaping, transposing or contracting


def column_of(index, mode, shape):
    """Position of the element in its row of the unfolding: row-major in the other indices."""
    column = 0
    for k, (i, n) in enumerate(zip(index, shape, strict=True)):
        if k != mode:
            column = column * n + i
    return column


def loop_unfold(X, mode):
    M = np.zeros((X.shape[mode], X.size // X.shape[mode]), dtype=X.dtype)
    for index in indices(X.shape):
        M[index[mode], column_of(index, mode, X.shape)] = X[index]
    return M


def loop_mode_product(X, U, mode):
    shape = (*X.shape[:mode], U.shape[0], *X.shape[mode + 1 :])
    out = np.zeros(shape, dtype=np.result_type(X, U))
    for index in indices(shape):
        for i in range(X.shape[mode]):
            out[index] += U[index[mode], i] * X[(*index[:mode], i, *index[mode + 1 :])]
    return out


def loop_full(core, factors):
    """Every element as the sum over all indices of the core, equation (2.1)."""
    shape = tuple(U.shape[0] for U in factors)
    X = np.zeros(shape, dtype=core.dtype)
    for index in indices(shape):
        for inside in indices(core.shape):
            term = core[inside]
            for U, i, j in zip(factors, index, inside, strict=True):
                term = term * U[i, j]
            X[index] += term
    return X


def loop_inner(X, Y):
    total = 0.0
    for index in indices(X.shape):
        total = total + X[index] * np.conj(Y[index])
    return total


def loop_project(X, projectors):
    for k, P in enumerate(projectors):
        X = loop_mode_product(X, P, k)
    return X


def left_projector(M, r):
    U = np.linalg.svd(M, full_matrices=True)[0][:, :r]
    return U @ U.conj().T


def projector(U):
    return U @ U.conj().T


# Unfolding, products, inner product, norm


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unfold_matches_a_loop_over_elements(shape, rng):
    X = rng.standard_normal(shape)
    for mode in range(len(shape)):
        np.testing.assert_array_equal(lt.unfold(X, mode), loop_unfold(X, mode))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fold_is_the_inverse_of_unfold(shape, rng):
    X = rng.standard_normal(shape)
    for mode in range(len(shape)):
        np.testing.assert_array_equal(lt.fold(loop_unfold(X, mode), mode, shape), X)


def test_unfold_and_fold_of_a_batch_are_those_of_its_items(rng):
    X = rng.standard_normal((2, 3, 4, 2, 3))
    for mode in range(3):
        M = lt.unfold(X, mode, batch_ndim=2)
        for k in np.ndindex(2, 3):
            np.testing.assert_array_equal(M[k], loop_unfold(X[k], mode))
        np.testing.assert_array_equal(lt.fold(M, mode, (4, 2, 3)), X)


@pytest.mark.parametrize("shape", [(3, 4, 2), (2, 3, 1, 2)], ids=str)
def test_unfold_matches_tensorly(shape, rng):
    X = rng.standard_normal(shape)
    for mode in range(len(shape)):
        np.testing.assert_array_equal(lt.unfold(X, mode), tensorly.base.unfold(X, mode))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mode_product_is_the_sum_over_one_index(shape, dtype, rng):
    X = random_array(rng, shape, dtype)
    for mode, n in enumerate(shape):
        U = random_array(rng, (3, n), dtype)
        expected = loop_mode_product(X, U, mode)
        np.testing.assert_allclose(lt.mode_product(X, U, mode), expected, rtol=0, atol=1e-13)


def test_mode_product_of_a_batch_accepts_one_matrix_or_one_per_item(rng):
    X = rng.standard_normal((3, 4, 2, 5))
    for mode, n in enumerate((4, 2, 5)):
        many, one = rng.standard_normal((3, 6, n)), rng.standard_normal((6, n))
        with_many, with_one = (
            lt.mode_product(X, many, mode),
            lt.mode_product(X, one, mode, batch_ndim=1),
        )
        for k in range(3):
            np.testing.assert_allclose(
                with_many[k], loop_mode_product(X[k], many[k], mode), atol=1e-13
            )
            np.testing.assert_allclose(with_one[k], loop_mode_product(X[k], one, mode), atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_multi_mode_product_is_one_mode_after_the_other(dtype, rng):
    X = random_array(rng, (3, 4, 2), dtype)
    matrices = [random_array(rng, (2, 3), dtype), None, random_array(rng, (5, 2), dtype)]
    expected = loop_mode_product(loop_mode_product(X, matrices[0], 0), matrices[2], 2)
    np.testing.assert_allclose(lt.multi_mode_product(X, matrices), expected, rtol=0, atol=1e-13)


def test_multi_mode_product_transpose_conjugates(rng):
    X = random_array(rng, (3, 4, 2), np.complex128)
    matrices = [random_array(rng, (n, 3), np.complex128) for n in X.shape]
    expected = X
    for k, U in enumerate(matrices):
        expected = loop_mode_product(expected, np.conj(U).T, k)
    got = lt.multi_mode_product(X, matrices, transpose=True)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_inner_is_the_sum_of_products_with_the_second_conjugated(dtype, rng):
    X, Y = random_array(rng, (3, 2, 4), dtype), random_array(rng, (3, 2, 4), dtype)
    assert lt.inner(X, Y) == pytest.approx(loop_inner(X, Y), rel=1e-13)
    stacked = lt.inner(X, Y, batch_ndim=1)
    assert stacked.shape == (3,)
    for k in range(3):
        assert stacked[k] == pytest.approx(loop_inner(X[k], Y[k]), rel=1e-12)


def test_inner_of_bytes_does_not_overflow():
    X = np.array([[200, 3], [255, 1]], dtype=np.uint8)  # as images are stored
    expected = 200 * 200 + 3 * 3 + 255 * 255 + 1
    assert lt.inner(X, X) == expected


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-200, 1e-310])
def test_norm_is_the_root_of_the_sum_of_squares_at_any_scale(scale, dtype, rng):
    X = random_array(rng, (3, 2, 4), dtype)
    expected = math.sqrt(math.fsum(abs(X[index]) ** 2 for index in indices(X.shape)))
    got = lt.norm(X * scale)
    assert np.isrealobj(got)
    tolerance = 1e-13 if scale > 1e-300 else 1e-8  # 1e-310 itself has only a few digits
    assert float(got) / scale == pytest.approx(expected, rel=tolerance)


def test_norm_of_a_batch_scales_each_item_separately(rng):
    X = rng.standard_normal((3, 2, 4))
    scales = np.array([1e200, 0.0, 1e-200])
    got = lt.norm(X * scales[:, None, None], batch_ndim=1)
    assert got[1] == 0
    for k in (0, 2):
        assert got[k] / scales[k] == pytest.approx(np.sqrt(loop_inner(X[k], X[k])), rel=1e-13)


def test_norm_of_scalars_is_their_absolute_value():
    np.testing.assert_allclose(lt.norm(np.array([3 + 4j, -2]), batch_ndim=1), [5, 2])


def test_norm_of_an_infinite_tensor_is_infinite_and_of_nan_is_nan():
    assert lt.norm(np.array([1.0, -np.inf])) == np.inf
    assert np.isnan(lt.norm(np.array([1.0, np.nan])))


# The Tucker format


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(
    ("shape", "rank"), [((4,), (1,)), ((3, 4), (2, 2)), ((3, 4, 2), (2, 3, 2)), ((2, 3, 2, 2),) * 2]
)
def test_full_is_the_sum_over_all_core_indices(shape, rank, dtype, rng):
    core = random_array(rng, rank, dtype)
    factors = [
        np.linalg.qr(random_array(rng, (n, r), dtype))[0] for n, r in zip(shape, rank, strict=True)
    ]
    X = lt.TuckerTensor(core, factors)
    np.testing.assert_allclose(X.full(), loop_full(core, factors), rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_from_factors_keeps_the_tensor_for_any_factors(dtype, rng):
    core = random_array(rng, (2, 3, 4), dtype)
    factors = [random_array(rng, (n, r), dtype) for n, r in zip((5, 3, 2), core.shape, strict=True)]
    X = lt.TuckerTensor.from_factors(core, factors)
    np.testing.assert_allclose(X.full(), loop_full(core, factors), rtol=0, atol=1e-12)
    for U in X.factors:
        np.testing.assert_allclose(U.conj().T @ U, np.eye(U.shape[1]), rtol=0, atol=1e-14)


def test_entries_are_sums_over_the_core_indices(rng):
    core = rng.standard_normal((2, 3, 2))
    factors = [
        np.linalg.qr(rng.standard_normal((n, r)))[0]
        for n, r in zip((4, 5, 3), (2, 3, 2), strict=True)
    ]
    X = lt.TuckerTensor(core, factors)
    wanted = np.array([[0, 0, 0], [3, 4, 2], [1, 2, 0], [3, 4, 2]])
    expected = [
        sum(
            core[a, b, c] * factors[0][i, a] * factors[1][j, b] * factors[2][k, c]
            for a, b, c in indices(core.shape)
        )
        for i, j, k in wanted
    ]
    np.testing.assert_allclose(X.entries(wanted), expected, rtol=0, atol=1e-14)


def test_entries_in_chunks_are_the_same(monkeypatch):
    X = lt.random_tucker((4, 5, 3), (2, 3, 2), seed=4, trials=2)
    wanted = np.array(list(indices((4, 5, 3))))
    at_once = X.entries(wanted)
    monkeypatch.setattr("lowtucker.tensor.tucker.CHUNK", 7)
    np.testing.assert_array_equal(X.entries(wanted), at_once)
    np.testing.assert_allclose(at_once, X.full().reshape(2, -1), rtol=0, atol=1e-14)


# Truncations


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(
    ("shape", "rank"),
    [
        ((3, 4, 5), (2, 3, 2)),
        ((9, 2, 3), (2, 2, 2)),
        ((4, 6), (2, 2)),
        ((3, 2, 4, 2), (2, 1, 2, 2)),
    ],
    ids=str,
)
def test_hosvd_projects_on_the_leading_singular_spaces_of_the_unfoldings(shape, rank, dtype, rng):
    X = random_array(rng, shape, dtype)
    projectors = [left_projector(loop_unfold(X, k), r) for k, r in enumerate(rank)]
    got = lt.hosvd(X, rank)
    for U, P in zip(got.factors, projectors, strict=True):
        np.testing.assert_allclose(projector(U), P, rtol=0, atol=1e-11)
    np.testing.assert_allclose(got.full(), loop_project(X, projectors), rtol=0, atol=1e-11)
    for k, U in enumerate(got.factors):
        X = loop_mode_product(X, U.conj().T, k)
    np.testing.assert_allclose(got.core, X, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mode_order", [None, (0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_sthosvd_truncates_each_mode_of_the_previous_result(mode_order, rng):
    X, rank = rng.standard_normal((4, 5, 3)), (2, 3, 2)
    expected, projectors = X, {}
    for k in mode_order or (0, 1, 2):
        projectors[k] = left_projector(loop_unfold(expected, k), rank[k])
        expected = loop_mode_product(expected, projectors[k], k)
    got = lt.sthosvd(X, rank, mode_order=mode_order)
    for k, U in enumerate(got.factors):
        np.testing.assert_allclose(projector(U), projectors[k], rtol=0, atol=1e-11)
    np.testing.assert_allclose(got.full(), expected, rtol=0, atol=1e-11)


def test_sthosvd_depends_on_the_order_of_the_modes(rng):
    X = rng.standard_normal((4, 5, 3))
    first, last = lt.sthosvd(X, (2, 2, 2)), lt.sthosvd(X, (2, 2, 2), mode_order=(2, 1, 0))
    assert np.abs(first.full() - last.full()).max() > 1e-3


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("seed", range(4))
def test_hooi_is_never_worse_than_hosvd_and_stationary(seed, dtype):
    rng = np.random.default_rng(seed)
    X, rank = random_array(rng, (5, 4, 6), dtype), (2, 2, 3)
    first, best = lt.hosvd(X, rank), lt.hooi(X, rank, max_iterations=2000)
    error = np.linalg.norm(X - best.full())
    assert error <= np.linalg.norm(X - first.full()) * (1 + 1e-14)
    # a stationary point: each factor spans the leading space of X contracted with the others
    for k, r in enumerate(rank):
        contracted = X
        for j, U in enumerate(best.factors):
            if j != k:
                contracted = loop_mode_product(contracted, U.conj().T, j)
        kept = np.linalg.svd(loop_unfold(contracted, k), compute_uv=False)[:r]
        assert np.linalg.norm(kept) == pytest.approx(float(best.norm()), rel=1e-10)
    assert error**2 == pytest.approx(np.linalg.norm(X) ** 2 - float(best.norm()) ** 2, rel=1e-10)


def test_hooi_matches_tensorly(rng):
    X = lt.random_tucker((6, 5, 7), (2, 2, 3), seed=3).full() + 0.05 * rng.standard_normal(
        (6, 5, 7)
    )
    core, factors = tensorly.decomposition.tucker(X, (2, 2, 3), n_iter_max=500, tol=1e-14)
    expected = tensorly.tucker_to_tensor((core, factors))
    got = lt.hooi(X, (2, 2, 3), max_iterations=500).full()
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)


def test_truncations_of_a_tucker_tensor_are_those_of_its_full_tensor():
    X = lt.random_tucker((6, 5, 7), (3, 3, 4), seed=3)
    # the limit of HOOI depends on rounding: compare after five sweeps
    for truncate in (lt.hosvd, lt.sthosvd, functools.partial(lt.hooi, max_iterations=5)):
        through, direct = truncate(X, (2, 2, 3)), truncate(X.full(), (2, 2, 3))
        assert (through.shape, through.rank) == (direct.shape, direct.rank)
        np.testing.assert_allclose(through.full(), direct.full(), rtol=0, atol=1e-9)


def test_without_a_rank_nothing_is_truncated(rng):
    X = rng.standard_normal((3, 4, 2))
    for truncate in (lt.hosvd, lt.sthosvd, lt.hooi):
        np.testing.assert_allclose(truncate(X).full(), X, rtol=0, atol=1e-13)


def test_without_a_rank_nothing_is_truncated_from_a_batch_of_tucker_tensors():
    X = lt.random_tucker((4, 5, 3), (2, 3, 2), seed=1, trials=3)
    got = lt.hosvd(X)
    assert (got.batch_shape, got.shape) == ((3,), (4, 5, 3))
    np.testing.assert_allclose(got.full(), X.full(), rtol=0, atol=1e-13)


# The Gram matrix in leading_left may only be used where it is accurate


def with_spectrum(rng, shape, rank, values, dtype=np.float64):
    """A tensor of that rank whose unfoldings have about these singular values in every mode."""
    core = np.zeros(rank, dtype=dtype)
    for i, value in enumerate(values):
        core[(i,) * len(rank)] = value
    factors = [
        np.linalg.qr(random_array(rng, (n, r), dtype))[0] for n, r in zip(shape, rank, strict=True)
    ]
    return (
        loop_full(core, factors) if np.prod(shape) < 300 else lt.TuckerTensor(core, factors).full()
    )


RATIOS = (1.0, 1e-3, 1e-6, 1e-9, 1e-12)


@pytest.mark.parametrize("truncate", [lt.hosvd, lt.sthosvd, lt.hooi])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_truncation_is_the_identity_on_badly_scaled_tensors_of_that_rank(
    count, dtype, truncate, rng
):
    X = with_spectrum(rng, (7, 8, 9), (count,) * 3, RATIOS[:count], dtype)
    got = truncate(X, (count,) * 3)
    assert np.linalg.norm(got.full() - X) <= 1e-11 * np.linalg.norm(X)
    for U in got.factors:
        np.testing.assert_allclose(U.conj().T @ U, np.eye(count), rtol=0, atol=1e-13)


@pytest.mark.parametrize("smallest", [3e-2, 1e-3, 4e-4, 3.4e-4, 3e-4, 1e-4, 1e-6, 1e-9])
def test_hosvd_keeps_a_weak_direction_around_the_switch_to_the_svd(smallest, rng):
    """8 sqrt(eps) sigma_1^2 is at sigma_r = 3.5e-4 sigma_1: both sides must be right."""
    X = with_spectrum(rng, (12, 13, 11), (3, 3, 3), (1.0, 0.5, smallest))
    got = lt.hosvd(X, (3, 3, 3)).full()
    assert np.linalg.norm(got - X) <= 1e-11 * np.linalg.norm(X)
    # the weak direction is kept: without it the error would be `smallest`
    assert np.linalg.norm(got - X) <= 1e-3 * smallest


def test_hosvd_of_a_batch_with_some_badly_scaled_items(rng):
    spectra = [(1.0, 0.9, 0.8), (1.0, 1e-6, 1e-9), (1.0, 0.5, 0.4), (1e-3, 1e-9, 1e-12), (0, 0, 0)]
    X = np.stack([with_spectrum(rng, (7, 8, 9), (3, 3, 3), s) for s in spectra])
    for stack in (X, X[::-1].copy(), X[:4].reshape(2, 2, 7, 8, 9)):
        got = lt.hosvd(stack, (3, 3, 3)).full()
        for k in np.ndindex(stack.shape[:-3]):
            error = np.linalg.norm(got[k] - stack[k])
            assert error <= 1e-11 * np.linalg.norm(stack[k])


@pytest.mark.parametrize("truncate", [lt.hosvd, lt.sthosvd, lt.hooi])
@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e-200, "f8"), (1e-160, "f8"), (1e160, "f8"), (1e200, "f8"), (1e-25, "f4"), (1e25, "f4")],
)
def test_truncation_does_not_depend_on_the_scale_of_the_tensor(scale, dtype, truncate):
    """The Gram matrix of 1e-200 underflows and that of 1e200 overflows."""
    X = lt.random_tucker((5, 6, 7), (2, 3, 2), seed=1).full().astype(dtype)
    got = truncate(X * X.dtype.type(scale), (2, 3, 2)).full() / X.dtype.type(scale)
    assert np.linalg.norm(got - X) <= 1000 * np.finfo(dtype).eps * np.linalg.norm(X)


@pytest.mark.parametrize("scale", [1e-160, 1e160])
def test_truncation_of_a_batch_does_not_depend_on_the_scale_of_its_items(scale):
    X = lt.random_tucker((5, 6, 7), (2, 3, 2), seed=1, trials=2).full()
    scales = np.array([1.0, scale])[:, None, None, None]
    got = lt.hosvd(X * scales, (2, 3, 2)).full() / scales
    np.testing.assert_allclose(got, X, rtol=0, atol=1e-12)


# Ranks


def jacobian_rank(shape, rank, rng):
    """Rank of the derivative of (core, factors) -> tensor at a random point, by differences.

    The map is multilinear, so its derivative in one parameter is exactly the map with that
    parameter's array replaced by a unit array.
    """
    core = rng.standard_normal(rank)
    factors = [rng.standard_normal((n, r)) for n, r in zip(shape, rank, strict=True)]
    columns = []
    for which, part in enumerate([core, *factors]):
        for index in indices(part.shape):
            unit = np.zeros_like(part)
            unit[index] = 1.0
            parts = [core, *factors]
            parts[which] = unit
            X = parts[0]
            for k, U in enumerate(parts[1:]):
                X = np.moveaxis(np.tensordot(U, X, axes=(1, k)), 0, k)
            columns.append(X.ravel())
    values = np.linalg.svd(np.array(columns), compute_uv=False)
    return int((values > 1e-9 * values[0]).sum())


@pytest.mark.parametrize(
    ("shape", "rank"),
    [
        ((6,), (1,)),
        ((4, 5), (2, 2)),
        ((5, 5, 6), (1, 2, 2)),
        ((5, 5, 6), (2, 2, 2)),
        ((5, 5, 6), (2, 2, 3)),
        ((3, 3, 3), (3, 3, 3)),
        ((3, 2, 4, 2), (2, 2, 2, 1)),
        ((4, 1, 3), (2, 1, 2)),
    ],
    ids=str,
)
def test_degrees_of_freedom_are_the_rank_of_the_jacobian(shape, rank, rng):
    assert lt.degrees_of_freedom(shape, rank) == jacobian_rank(shape, rank, rng)


@pytest.mark.parametrize(
    ("shape", "rank", "attained"),
    [
        ((5, 5, 6), (1, 1, 2), (1, 1, 1)),
        ((4, 5), (2, 3), (2, 2)),
        ((2, 2, 6), (2, 2, 5), (2, 2, 4)),
        ((4,), (3,), (1,)),
        ((3, 3, 4, 2), (1, 3, 1, 2), (1, 2, 1, 2)),
    ],
    ids=str,
)
def test_degrees_of_freedom_of_an_unattainable_rank_are_those_of_the_attainable_one(
    shape, rank, attained, rng
):
    with pytest.warns(lt.RankWarning, match="No tensor has Tucker rank"):
        dof = lt.degrees_of_freedom(shape, rank)
    assert lt.attainable_rank(rank) == attained
    assert dof == lt.degrees_of_freedom(shape, attained) == jacobian_rank(shape, rank, rng)


def test_rank_1_1_2_on_5_5_6_has_14_degrees_of_freedom():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.RankWarning)
        assert lt.degrees_of_freedom((5, 5, 6), (1, 1, 2)) == 14


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_spectra_are_the_singular_values_of_the_unfoldings(shape, rng):
    X = rng.standard_normal(shape)
    got = lt.spectra(X)
    assert len(got.values) == len(shape)
    for k, values in enumerate(got.values):
        expected = np.linalg.svd(loop_unfold(X, k), compute_uv=False)
        np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_spectra_of_a_tucker_tensor_are_those_of_the_full_one_up_to_zeros():
    X = lt.random_tucker((4, 5, 6), (2, 3, 2), seed=1)
    through, full = lt.spectra(X), lt.spectra(X.full())
    for few, many in zip(through.values, full.values, strict=True):
        np.testing.assert_allclose(few, many[: len(few)], rtol=1e-12)
        assert (many[len(few) :] < 1e-14).all()


def test_energy_is_the_share_of_the_squared_singular_values(rng):
    X, rank = rng.standard_normal((3, 4, 5)), (1, 3, 2)
    expected = []
    for k, r in enumerate(rank):
        s = np.linalg.svd(loop_unfold(X, k), compute_uv=False)
        expected.append(sum(v**2 for v in s[:r]) / sum(v**2 for v in s))
    for scale in (1.0, 1e-200, 1e200):
        assert lt.spectra(X * scale).energy(rank) == pytest.approx(expected, rel=1e-12)


def test_multilinear_rank_is_the_rank_of_the_unfoldings(rng):
    X = lt.random_tucker((5, 6, 7), (2, 4, 3), seed=3).full()
    assert lt.multilinear_rank(X) == (2, 4, 3)
    assert lt.multilinear_rank(X) == tuple(
        int(np.linalg.matrix_rank(loop_unfold(X, k))) for k in range(3)
    )
    assert lt.multilinear_rank(np.zeros((2, 3))) == (0, 0)
    noisy = X + 1e-6 * rng.standard_normal(X.shape)
    assert lt.multilinear_rank(noisy) == (5, 6, 7)
    assert lt.multilinear_rank(noisy, tol=1e-4) == (2, 4, 3)
    assert lt.multilinear_rank(1e200 * X) == lt.multilinear_rank(1e-200 * X) == (2, 4, 3)
