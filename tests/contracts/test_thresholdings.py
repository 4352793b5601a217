"""The thresholding contract, over every thresholding in cases.THRESHOLDINGS."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from cases import THRESHOLDINGS

SHAPE, RANK = (5, 6, 7), (2, 3, 2)


@pytest.fixture(params=THRESHOLDINGS)
def H(request):
    return THRESHOLDINGS[request.param](RANK)


def orthonormality_defect(X):
    return max(np.abs(U.T.conj() @ U - np.eye(U.shape[1])).max() for U in X.factors)


def test_fits_the_protocol(H):
    assert isinstance(H, lt.Thresholding)


def test_rank_is_at_most_r_and_factors_are_orthonormal(H, rng):
    X = H(rng.standard_normal(SHAPE))
    assert X.rank == RANK
    assert lt.multilinear_rank(X.full()) == RANK
    assert orthonormality_defect(X) < 1e-13


def test_is_the_identity_on_tensors_of_that_rank(H):
    X = lt.random_tucker(SHAPE, RANK, seed=3).full()
    np.testing.assert_allclose(H(X).full(), X, rtol=0, atol=1e-12)


def test_error_is_within_eta_of_a_lower_bound_on_the_best(H, rng):
    Z = lt.random_tucker(SHAPE, RANK, seed=3).full() + 0.3 * rng.standard_normal(SHAPE)
    # no rank-r tensor is closer than the best rank-r_k approximation of any one unfolding
    tails = [np.linalg.svd(lt.unfold(Z, k))[1][r:] for k, r in enumerate(RANK)]
    discarded = [np.linalg.norm(tail) for tail in tails]
    lower = max(discarded)
    error = np.linalg.norm(H(Z).full() - Z)
    assert lower <= error * (1 + 1e-12)
    assert error <= np.linalg.norm(discarded) * (1 + 1e-12)
    assert error <= H.eta * lower * (1 + 1e-12)
    assert H.eta == pytest.approx(np.sqrt(3))


def test_a_batch_equals_a_loop(H, rng):
    Z = rng.standard_normal((4, *SHAPE))
    batched = H(Z).full()
    for k in range(4):
        np.testing.assert_allclose(batched[k], H(Z[k]).full(), rtol=0, atol=1e-10)


def test_complex_and_float32_are_kept(H, rng):
    Z = rng.standard_normal(SHAPE) + 1j * rng.standard_normal(SHAPE)
    X = H(Z)
    assert X.core.dtype == np.complex128
    assert orthonormality_defect(X) < 1e-13
    single = H(Z.real.astype(np.float32))
    assert single.core.dtype == np.float32
    assert all(U.dtype == np.float32 for U in single.factors)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("order", ["C", "F"])
def test_input_is_not_changed(H, dtype, order, rng):
    Z = np.array(rng.standard_normal(SHAPE), dtype=dtype, order=order)
    before = Z.copy()
    X = H(Z)
    np.testing.assert_array_equal(Z, before)
    Z[:] = 0  # the result is not a view of it
    np.testing.assert_array_equal(X.full(), H(before).full())


def test_zero_tensor_gives_the_zero_tensor_with_orthonormal_factors(H):
    X = H(np.zeros(SHAPE))
    assert not X.full().any()
    assert orthonormality_defect(X) < 1e-13


def test_nan_is_refused(H):
    Z = np.full(SHAPE, np.nan)
    with pytest.raises(ValueError, match="NaN or infinite entries"):
        H(Z)


def test_array_kinds_are_kept(H, kind, rng):
    Z = rng.standard_normal(SHAPE)
    X = H(kind(Z))
    assert kind.owns(X.core)
    assert all(kind.owns(U) for U in X.factors)
    np.testing.assert_allclose(np.asarray(X.full()), H(Z).full(), rtol=0, atol=1e-9)


def test_a_rank_larger_than_the_tensor_is_refused(H):
    with pytest.raises(ValueError, match=r"rank\[1\] = 3 must be between 1 and 2"):
        H(np.ones((5, 2, 7)))
