"""eta of (3.6): proven, and measured against a best approximation."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lowtucker as lt


def noisy(seed, shape=(6, 7, 8)):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("make", [lt.HOSVD, lt.STHOSVD, lt.HOOI])
def test_proven_bounds(make):
    assert lt.theory.eta(make((2, 2, 2))).proven == pytest.approx(math.sqrt(3))
    assert lt.theory.eta(make((2, 2, 2, 2))).proven == 2
    assert lt.theory.eta(make((2, 2))).proven == 1
    assert lt.theory.eta(make((2, 2, 2)))[1:] == (None, None, None)


@pytest.mark.parametrize("make", [lt.HOSVD, lt.STHOSVD, lt.HOOI])
@pytest.mark.parametrize("seed", range(3))
def test_measured_eta_is_between_one_and_the_proven_bound(make, seed):
    Z, H = noisy(seed), make((2, 3, 2))
    found = lt.theory.eta(H, Z, starts=2)
    assert 1 <= found.measured <= found.proven
    best = np.linalg.norm(found.best.full() - Z)
    assert np.linalg.norm(H(Z).full() - Z) == pytest.approx(found.measured * best)
    assert found.best.rank == (2, 3, 2)


def test_eta_of_matrices_is_one():
    Z = noisy(1, (6, 9))
    found = lt.theory.eta(lt.HOSVD((2, 2)), Z, starts=3)
    values = np.linalg.svd(Z, compute_uv=False)
    assert np.linalg.norm(found.best.full() - Z) == pytest.approx(np.linalg.norm(values[2:]))
    assert found.measured == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_more_starts_find_a_better_approximation():
    """HOOI from the HOSVD stops in a local optimum here; random starts do not."""
    shape, rank = (8, 8, 8), (1, 1, 1)
    ratios = [
        [lt.theory.eta(lt.HOSVD(rank), noisy(seed, shape), starts=n).measured for n in (0, 20)]
        for seed in (0, 1, 3)
    ]
    few, many = np.array(ratios).T
    assert (many >= few).all()
    assert (many > few * 1.001).any()


def test_eta_of_a_tensor_with_known_best_approximation():
    """Two rank-one terms that share a factor: the HOSVD does not choose the best approximation.

    With e_i unit vectors, Z = 2 e1 e1 e1 + a (e1 e2 e2 + e2 e1 e2 + e2 e2 e1): best rank one error
    found by a grid over unit vectors (cos t, sin t), equal in all modes by symmetry.
    """
    a = 0.9
    Z = np.zeros((2, 2, 2))
    Z[0, 0, 0] = 2
    Z[0, 1, 1] = Z[1, 0, 1] = Z[1, 1, 0] = a
    t = np.linspace(0, np.pi, 200001)
    fit = 2 * np.cos(t) ** 3 + 3 * a * np.cos(t) * np.sin(t) ** 2
    best = math.sqrt(np.sum(Z**2) - np.max(fit**2))
    given = np.linalg.norm(lt.hosvd(Z, (1, 1, 1)).full() - Z)
    found = lt.theory.eta(lt.HOSVD((1, 1, 1)), Z)
    assert found.measured == pytest.approx(given / best, rel=1e-6)


def test_eta_of_a_tensor_of_that_rank_is_one_at_any_scale():
    X = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    for factor in (1.0, 1e150, 1e-150):
        assert lt.theory.eta(lt.HOSVD((1, 2, 2)), X * factor, starts=2).measured == 1
    assert lt.theory.eta(lt.HOSVD((1, 2, 2)), np.zeros((3, 3, 3)), starts=2).measured == 1
    one, two = (lt.theory.eta(lt.STHOSVD((2, 2, 2)), c * noisy(0), starts=2) for c in (1, 2.0**40))
    assert two.measured == pytest.approx(one.measured)
    assert float(two.best.norm()) == pytest.approx(2.0**40 * float(one.best.norm()))


def test_hooi_uses_the_given_start():
    Z = noisy(0)
    start = lt.random_tucker(Z.shape, (2, 2, 2), seed=3)
    only = lt.hooi(Z, (2, 2, 2), start=start, max_iterations=1)
    U = start.factors
    left = np.einsum("ijk,jb,kc->ibc", Z, U[1], U[2]).reshape(6, -1)
    expected = np.linalg.svd(left)[0][:, :2]
    overlap = np.linalg.svd(expected.T @ only.factors[0], compute_uv=False)
    assert overlap == pytest.approx([1, 1])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: lt.theory.eta("hosvd"), TypeError, "thresholding must be a Thresholding"),
        (lambda: lt.theory.eta(lt.HOSVD), TypeError, r"Try lowtucker.HOSVD\(\(3, 3, 3\)\)"),
        (lambda: lt.theory.eta(lt.HOSVD((2, 2)), noisy(0)), ValueError, "rank must have one entry"),
        (
            lambda: lt.theory.eta(lt.HOSVD((2, 2, 2)), noisy(0), starts=-1),
            ValueError,
            "starts must be at least 0",
        ),
        (
            lambda: lt.theory.eta(lt.HOSVD((1, 1)), np.array([[1.0, np.nan], [0, 0]])),
            ValueError,
            "NaN or infinite",
        ),
        (
            lambda: lt.hooi(noisy(0), (2, 2, 2), start=lt.random_tucker((6, 7, 8), (1, 2, 2))),
            ValueError,
            r"start must be a TuckerTensor of rank \(2, 2, 2\)",
        ),
        (
            lambda: lt.hooi(noisy(0), (2, 2, 2), start=lt.random_tucker((6, 7, 9), (2, 2, 2))),
            ValueError,
            "start must have the shape of X",
        ),
    ],
)
def test_invalid_arguments_raise(call, error, message):
    with pytest.raises(error, match=message):
        call()
