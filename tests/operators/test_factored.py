"""Rows that are outer products: rank-one measurements and sampled entries."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.solvers.models import has_full_rank

SHAPE, RANK = (15, 15, 15), (2, 2, 2)


def rank_one(m, shape=SHAPE, seed=0):
    rng = np.random.default_rng(seed)
    return lt.rank_one([rng.standard_normal((m, n)) for n in shape])


def samples(m, shape=SHAPE, seed=0):
    flat = np.random.default_rng(seed).choice(int(np.prod(shape)), m, replace=False)
    return np.stack(np.unravel_index(flat, shape), axis=1)


def test_rank_one_rows_are_outer_products():
    A = rank_one(5, (3, 4, 2))
    X = np.random.default_rng(1).standard_normal((3, 4, 2))
    for j, y in enumerate(A.forward(X)):
        a, b, c = (F[j] for F in A.factors)
        assert y == pytest.approx(np.einsum("i,j,k,ijk", a, b, c, X))
    norms = [np.linalg.norm(np.einsum("i,j,k", *(F[j] for F in A.factors))) for j in range(5)]
    np.testing.assert_allclose(A.row_norms(), norms)


def test_entries_measure_entries():
    index = np.array([[0, 3, 1], [2, 0, 0], [0, 3, 1]])  # one of them twice
    X = np.random.default_rng(1).standard_normal((3, 4, 2))
    np.testing.assert_array_equal(lt.entries((3, 4, 2), index).forward(X), X[tuple(index.T)])
    Z = lt.entries((3, 4, 2), index).adjoint(np.array([1.0, 2.0, 4.0]))
    expected = np.zeros((3, 4, 2))
    expected[0, 3, 1], expected[2, 0, 0] = 5, 2
    np.testing.assert_array_equal(Z, expected)


@pytest.mark.parametrize("m", [200, 300])
def test_rank_one_measurements_recover(m):
    """TIHT fails at any m here; 86 degrees of freedom."""
    for seed in range(2):
        A = rank_one(m, seed=seed)
        X = lt.random_tucker(SHAPE, RANK, seed=seed, core_mean=0.1)
        result = lt.recover(A, A.forward(X), RANK)
        assert result.success
        assert lt.metrics.relative_error(result.X, X) < 1e-5


@pytest.mark.parametrize("noise", [0, 0.02])
def test_completion(noise):
    for seed in range(2):
        index = samples(600, seed=seed)
        X = lt.random_tucker(SHAPE, RANK, seed=seed)
        y = X.entries(index)
        std = noise * np.sqrt(np.mean(y**2))
        y = y + std * np.random.default_rng(seed).standard_normal(600)
        result = lt.recover(lt.entries(SHAPE, index), y, RANK, noise_std=std or None)
        assert result.success
        assert lt.metrics.relative_error(result.X, X) < (2 * noise or 1e-5)


def test_products_with_the_design_are_those_of_its_rows():
    X = lt.random_tucker((5, 4, 6), (2, 3, 2), seed=0)
    T = lt.TangentSpace(X)
    rng = np.random.default_rng(0)
    for A in (rank_one(30, X.shape), lt.entries(X.shape, samples(30, X.shape))):
        design = A.tangent(T)
        D, r, w = design.dense(), rng.standard_normal(30), rng.uniform(0.5, 2, 30)
        np.testing.assert_allclose(design.rmatvec(r), D.T @ r, rtol=0, atol=1e-12)
        c = rng.standard_normal(T.dof)
        np.testing.assert_allclose(design.matvec(c), D @ c, rtol=0, atol=1e-12)
        residual, gradient = design.misfit(r, w)
        np.testing.assert_allclose(residual, r - A.forward(X.full()), rtol=0, atol=1e-12)
        np.testing.assert_allclose(gradient, D.T @ (w * residual), rtol=0, atol=1e-11)


def test_a_rank_one_start_clips_large_measurements():
    A = rank_one(40, (5, 4, 6))
    v = np.random.default_rng(0).standard_t(2, 40)
    limit = np.quantile(np.abs(v), 0.9)
    expected = lt.hosvd(A.adjoint(np.clip(v, -limit, limit)), RANK)
    np.testing.assert_allclose(A.spectral_start(v, RANK).full(), expected.full(), atol=1e-12)


def test_a_start_of_entries_omits_the_diagonal():
    shape, index = (6, 5, 7), samples(90, (6, 5, 7))
    v = np.random.default_rng(0).standard_normal(90)
    Z = np.zeros(shape)
    Z[tuple(index.T)] = v
    projected = Z
    for k, n in enumerate(shape):
        B = np.moveaxis(Z, k, 0).reshape(n, -1)
        gram = B @ B.T
        U = np.linalg.eigh(gram - np.diag(np.diag(gram)))[1][:, -2:]
        projected = np.moveaxis(np.tensordot(U @ U.T, projected, axes=(1, k)), 0, k)
    start = lt.entries(shape, index).spectral_start(v, (2, 2, 2))
    np.testing.assert_allclose(start.full(), projected, rtol=0, atol=1e-12)


ONES = np.ones((4, 3))


@pytest.mark.parametrize(
    ("factors", "exception", "message"),
    [
        (ONES, TypeError, "factors must be a list of matrices"),
        ([], TypeError, "factors must be a list of matrices"),
        ([ONES, np.ones((5, 3))], ValueError, r"factors\[1\] must be a matrix.*\(4, n_1\)"),
        ([ONES, np.ones(4)], ValueError, r"factors\[1\] must be a matrix"),
        ([ONES, np.full((4, 3), np.nan)], ValueError, r"factors\[1\] has NaN"),
        ([np.full((4, 3), "a")], TypeError, r"factors\[0\]"),
    ],
)
def test_bad_factors_are_refused(factors, exception, message):
    with pytest.raises(exception, match=message):
        lt.rank_one(factors)


@pytest.mark.parametrize(
    ("indices", "exception", "message"),
    [
        ([[0, 0]], ValueError, "3 columns.*np.argwhere"),
        ([0, 1, 2], ValueError, "one row for each sample"),
        (np.zeros((0, 3), dtype=int), ValueError, "one row for each sample"),
        ([[0.0, 1.0, 2.0]], TypeError, "indices must be integers"),
        ([[0, 0, 0], [3, 0, 0]], ValueError, r"indices\[1, 0\] = 3 must be between 0 and 2"),
        ([[0, -1, 0]], ValueError, r"indices\[0, 1\] = -1.*count from 0"),
    ],
)
def test_bad_indices_are_refused(indices, exception, message):
    with pytest.raises(exception, match=message):
        lt.entries((3, 4, 2), indices)


def test_a_slice_without_samples_is_no_success():
    index = samples(1000)
    index = index[index[:, 0] != 4]
    X = lt.random_tucker(SHAPE, RANK, seed=1)
    message = "Mode 0 has no samples in slice 4: X is not determined there"
    with pytest.warns(lt.UnderdeterminedWarning, match=message):
        result = lt.recover(lt.entries(SHAPE, index), X.entries(index), RANK)
    assert result.residual < 1e-6  # all measurements are fitted
    assert result.status is lt.Status.UNDERDETERMINED
    assert not result.success
    assert message in result.advice
    # all other entries are right, and the slice is zero
    keep = np.arange(15) != 4
    np.testing.assert_allclose(result.X.full()[keep], X.full()[keep], atol=1e-5)
    np.testing.assert_allclose(result.X.full()[4], 0, atol=1e-12)


def test_slices_with_fewer_samples_than_degrees_of_freedom_are_reported():
    index = samples(1000)
    few = np.flatnonzero(index[:, 2] == 7)[1:]  # one sample is left
    index = np.delete(index, few, axis=0)
    X = lt.random_tucker(SHAPE, RANK, seed=1)
    result = lt.recover(lt.entries(SHAPE, index), X.entries(index), RANK)
    assert result.status is lt.Status.UNDERDETERMINED
    assert "Mode 2 has fewer than 2 samples in slice 7" in result.advice
    weights = np.ones(1000)
    index = samples(1000)
    weights[index[:, 1] == 3] = 0  # a sample of weight zero does not count
    with pytest.warns(lt.UnderdeterminedWarning, match="Mode 1 has no samples in slice 3"):
        lt.recover(lt.entries(SHAPE, index), X.entries(index), RANK, weights=weights)


def test_duplicate_samples_are_averaged_with_a_note():
    shape = (10, 10, 10)
    index = samples(400, shape)
    twice = np.concatenate([index, index[:50]])
    X = lt.random_tucker(shape, RANK, seed=1)
    y = X.entries(twice)
    shift = 1e-3 * np.random.default_rng(0).standard_normal(50)
    y[:50] += shift
    y[400:] -= shift  # so that the means are right
    result = lt.recover(lt.entries(shape, twice), y, RANK, tol=1e-12)
    assert "50 of the 450 samples are duplicates: their mean is fitted." in result.notes
    assert lt.metrics.relative_error(result.X, X) < 1e-7


@pytest.mark.parametrize("kind", ["entries", "rank one"])
def test_noise_is_distinguished_from_a_rank_that_is_too_small(kind):
    """Rows are not isotropic here: held-out measurements, predicted by a larger rank, decide."""
    shape, m = (10, 10, 10), 450
    A = lt.entries(shape, samples(m, shape)) if kind == "entries" else rank_one(m, shape)
    y = A.forward(lt.random_tucker(shape, RANK, seed=1))
    noise = np.random.default_rng(1).standard_normal(m)
    y = y + 0.05 * np.linalg.norm(y) / np.linalg.norm(noise) * noise
    assert lt.recover(A, y, RANK).status is lt.Status.NOISE_FLOOR
    y = A.forward(lt.random_tucker(shape, (3, 3, 2), seed=1))
    assert not lt.recover(A, y, RANK).success


def test_lost_directions_are_detected_without_a_tangent_design():
    """Wide matrices on single modes lose directions of the factors; the fit is perfect."""
    rng = np.random.default_rng(0)
    first = [rng.standard_normal((8, 20)) for _ in range(3)]
    A = lt.kronecker(first, final=rng.standard_normal((350, 512)))
    X = lt.random_tucker((20, 20, 20), RANK, seed=0)
    result = lt.recover(A, A.forward(X), RANK)
    assert result.residual < 1e-6
    assert lt.metrics.relative_error(result.X, X) > 0.1
    assert result.status is lt.Status.UNDERDETERMINED
    assert "do not determine X" in result.advice


@pytest.mark.parametrize("seed", range(12))
def test_full_rank_by_products_agrees_with_the_singular_values(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(4, 9, 3).tolist())
    X = lt.random_tucker(shape, RANK, seed=seed)
    m = int(lt.degrees_of_freedom(shape, RANK) * (1.3, 1.02, 3)[seed % 3])
    matrix = rng.standard_normal((m, int(np.prod(shape))))
    if seed % 2:
        matrix.reshape(m, *shape)[:, :, 2] = 0  # an unsampled slice
    problem = lt.Problem(lt.DenseOperator(matrix, shape), matrix @ X.full().reshape(-1))
    D = problem.A.tangent(lt.TangentSpace(X)).dense()
    assert (
        has_full_rank(problem, X, 0) == (np.linalg.matrix_rank(D) == D.shape[1]) == (not seed % 2)
    )


def test_an_underdetermined_fit_of_too_large_a_rank_is_no_success():
    """126 degrees of freedom, and a truth of smaller rank: many tensors fit the samples."""
    right = wrong = 0
    for seed in range(6):
        index = samples(192, (15, 14, 13), seed=seed)
        X = lt.random_tucker((15, 14, 13), RANK, seed=seed)
        result = lt.recover(lt.entries(X.shape, index), X.entries(index), (3, 3, 3))
        if result.residual > 1e-6:
            continue
        good = lt.metrics.relative_error(result.X, X) < 1e-3
        assert result.success == good
        right, wrong = right + good, wrong + (not good)
    assert wrong >= 3
