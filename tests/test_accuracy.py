"""Accuracy: error estimates against plain linear algebra, SciPy's distributions and simulations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pylops
import pytest
import scipy.stats

import lowtucker as lt
from lowtucker.recovery import accuracy
from lowtucker.recovery.accuracy import Accuracy, accuracy_at, accuracy_of_block

SHAPE, RANK = (6, 5, 4), (2, 2, 2)
# name -> (dtype of the matrix, dtype of tensors, weighted)
KINDS = {
    "real": (float, float, False),
    "complex": (complex, complex, False),
    "real-from-complex": (complex, float, False),
    "real-weighted": (float, float, True),
    "complex-weighted": (complex, complex, True),
    "real-from-complex-weighted": (complex, float, True),
}


def numbers(rng, shape, dtype):
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if dtype is complex else x


def problem_at(kind, m=120, noise=0.1):
    """Noisy problem, and a tensor near the solution that is none: steps are left."""
    dtype, of_tensors, weighted = KINDS[kind]
    rng = np.random.default_rng(3)
    A = lt.DenseOperator(numbers(rng, (m, math.prod(SHAPE)), dtype), SHAPE, dtype=of_tensors)
    X = lt.random_tucker(SHAPE, RANK, seed=4, dtype=of_tensors)
    y = A.forward(X) + noise * numbers(rng, m, dtype)
    near = lt.TuckerTensor(X.core + 0.03 * numbers(rng, RANK, of_tensors), X.factors)
    weights = None
    if weighted:
        weights = rng.uniform(0.5, 2, m)
        weights[::7] = 0
    return lt.Problem(A, y, weights), near


def result_at(problem, X, status=lt.Status.NOISE_FLOOR):
    """Result without the normal equations of a solver."""
    base = lt.solve(problem, lt.TIHT(), X.rank, stop=lt.MaxEpochs(1))
    residual = float(problem.relative_residual(X))
    return replace(base, X=X, residual=residual, status=status, state=None)


def linear_model(problem, X):
    """Weighted design and residual as real numbers, where X is real."""
    D = problem.A.tangent(lt.TangentSpace(X)).dense()
    r = problem.y - problem.A.forward(X.full())
    root = np.sqrt(np.ones(problem.m) if problem.weights is None else problem.weights)
    D, r = root[:, None] * D, root * r
    counting = root > 0
    D, r = D[counting], r[counting]
    if np.iscomplexobj(D) and not np.iscomplexobj(X.core):
        D, r = np.concatenate([D.real, D.imag]), np.concatenate([r.real, r.imag])
    return D, r


@pytest.mark.parametrize("kind", KINDS)
def test_step_and_noise_are_those_of_least_squares(kind):
    problem, X = problem_at(kind)
    found = accuracy_at(problem, result_at(problem, X), 0)
    D, r = linear_model(problem, X)
    size = np.linalg.norm(X.full())
    step = np.linalg.lstsq(D, r, rcond=None)[0]
    assert found.step == pytest.approx(np.linalg.norm(step) / size)
    assert found.step > 0.01
    covariance = np.linalg.pinv(D.conj().T @ D)
    spare = len(r) - D.shape[1]
    sigma = np.linalg.norm(r - D @ step) / np.sqrt(spare)
    assert found.sigma == pytest.approx(sigma)
    assert found.noise == pytest.approx(sigma * np.sqrt(np.trace(covariance).real) / size)
    assert found.error == pytest.approx(np.hypot(found.step, found.noise))
    # as real numbers, of which a complex one has two
    parts = 2 if np.iscomplexobj(X.core) else 1
    assert found.spare == parts * spare
    directions = np.trace(covariance).real ** 2 / np.linalg.norm(covariance) ** 2
    assert found.directions == pytest.approx(parts * directions)
    values = np.linalg.svd(D, compute_uv=False) ** 2
    assert found.share == pytest.approx(values[-1] / values[0])
    assert found.determined


@pytest.mark.parametrize("kind", ["real", "complex-weighted", "real-from-complex-weighted"])
def test_by_products_is_by_eigenvalues(monkeypatch, kind):
    """To a tenth, on average over what they draw; what is left without noise, exactly."""
    problem, X = problem_at(kind)
    result = result_at(problem, X)
    exact = accuracy_at(problem, result, 0)
    monkeypatch.setattr(accuracy, "COSTLY", 0.0)
    monkeypatch.setattr(accuracy, "_by_eigenvalues", None)
    found = [accuracy_at(problem, result, seed) for seed in range(8)]
    for one in found:
        assert one.step == pytest.approx(exact.step, rel=1e-2)
        assert one.sigma == pytest.approx(exact.sigma, rel=1e-3)
        assert one.noise == pytest.approx(exact.noise, rel=0.3)
        assert one.spare == exact.spare
        assert one.determined
    assert np.mean([one.noise for one in found]) == pytest.approx(exact.noise, rel=0.1)
    least = exact.directions / 4
    assert least < np.median([one.directions for one in found]) < 2 * exact.directions


def test_a_null_space_leaves_the_error_open(monkeypatch):
    shape = (3, 4, 2)
    rng = np.random.default_rng(0)
    A = lt.kronecker([rng.standard_normal(size) for size in ((5, 3), (2, 4), (3, 2))])
    X = lt.random_tucker(shape, (1, 1, 1), seed=0)
    problem = lt.Problem(A, A.forward(X) + 0.01 * rng.standard_normal(A.m))
    for costly in (1e10, 0.0):
        monkeypatch.setattr(accuracy, "COSTLY", costly)
        found = accuracy_at(problem, result_at(problem, X), 0)
        assert not found.determined
        assert found.noise == math.inf
        D, r = linear_model(problem, X)
        step = np.linalg.pinv(D, rcond=1e-6) @ r  # in the directions that are measured
        assert found.step == pytest.approx(np.linalg.norm(step) / float(X.norm()), rel=1e-2)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.float64])
def test_rounding_is_that_of_the_given_precision(dtype):
    """Eigenvalues that are rounding error are zero, whatever their sign."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        maps = [rng.standard_normal(size).astype(dtype) for size in ((5, 3), (2, 4), (3, 2))]
        A, X = lt.kronecker(maps), lt.random_tucker((3, 4, 2), (1, 1, 1), seed=seed, dtype=dtype)
        problem = lt.Problem(A, A.forward(X))
        found = accuracy_at(problem, result_at(problem, X, lt.Status.CONVERGED), 0)
        assert abs(found.margin) < 1
        assert not found.determined
        assert found.step < 1e-4


@pytest.mark.parametrize(("directions", "spare"), [(3.5, 12), (20, 7), (1, 400)])
def test_the_interval_is_that_of_the_f_distribution(directions, spare):
    found = Accuracy(0.0, 0.2, 0.1, directions, spare, math.inf, 1.0)
    expected = 0.2 * np.sqrt(scipy.stats.f(directions, spare).ppf([0.025, 0.975]))
    np.testing.assert_allclose(found.interval, expected)
    low, high = replace(found, step=0.3).interval  # which is known up to a factor 2
    np.testing.assert_allclose((low, high), np.hypot((0.15, 0.6), expected))
    known = found.with_sigma(0.3)
    assert known.noise == pytest.approx(0.6)
    expected = 0.6 * np.sqrt(scipy.stats.chi2(directions).ppf([0.025, 0.975]) / directions)
    np.testing.assert_allclose(known.interval, expected)


@pytest.mark.parametrize(
    ("dtype", "std"),
    [(float, None), (float, 0.05), (complex, None)],
    ids=["real", "given", "complex"],
)
def test_the_interval_covers_the_error(dtype, std):
    """95 of 100 errors are meant to be inside; a few fits in doubt are left out."""
    rng = np.random.default_rng(5)
    A = lt.DenseOperator(numbers(rng, (60, 60), dtype), (5, 4, 3))
    X = lt.random_tucker((5, 4, 3), (1, 1, 1), seed=4, dtype=dtype)
    clean, inside, ratios = A.forward(X), 0, []
    for _ in range(60):
        y = clean + 0.05 * numbers(rng, 60, dtype)
        result = lt.recover(A, y, (1, 1, 1), solver="rgn", noise_std=std)
        if result.status is not lt.Status.NOISE_FLOOR:
            continue
        error = float(lt.metrics.relative_error(result.X, X))
        low, high = result.error_interval
        assert low < result.error_estimate < high
        inside += low <= error <= high
        ratios.append(error / result.error_estimate)
    assert len(ratios) >= 54
    assert len(ratios) - 9 <= inside < len(ratios)
    assert np.sqrt(np.mean(np.square(ratios))) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("kind", ["real-from-complex", "real", "real-weighted", "complex"])
def test_noise_of_a_given_size_is_the_same_in_other_units_of_weights(kind):
    """And it is that of measurements, of which complex ones have two parts for a real tensor."""
    problem, _ = problem_at(kind, m=300)
    A, y, weights = problem.A, problem.y, problem.weights
    std = 0.1 * (np.sqrt(2) if np.iscomplexobj(y) else 1)
    result = lt.recover(A, y, RANK, noise_std=std, weights=weights)
    found = lt.recover(A, y, RANK, weights=weights)
    assert result.status is found.status is lt.Status.NOISE_FLOOR
    assert result.error_estimate == pytest.approx(found.error_estimate, rel=0.15)
    times = 100 * (np.ones(A.m) if weights is None else weights)
    other = lt.recover(A, y, RANK, noise_std=std, weights=times)
    assert other.error_estimate == pytest.approx(result.error_estimate, rel=1e-3)


def test_a_block_of_rows_bounds_what_a_fit_to_the_tolerance_has_left():
    A = lt.gaussian(SHAPE, 400, seed=1)
    X = lt.random_tucker(SHAPE, RANK, seed=2)
    problem = lt.Problem(A, A.forward(X))
    solved = lt.solve(problem, lt.RSGD(least_squares=True), RANK, stop=lt.ResidualBelow(1e-4))
    found = accuracy_of_block(problem, solved)
    error = float(lt.metrics.relative_error(solved.X, X))
    assert error / 2 < found.error < 2 * error
    whole = accuracy_at(problem, replace(solved, state=None), 0)
    assert found.step == pytest.approx(whole.step, rel=0.5)
    other = lt.DenseOperator(A.matrix, SHAPE, isotropic=False)
    assert accuracy_of_block(lt.Problem(other, problem.y), solved) is None
    assert accuracy_of_block(problem, replace(solved, state=None)) is None


@pytest.mark.parametrize("kind", ["pylops", "functions"])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_operators_without_a_design_have_an_estimate(kind, noise):
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((200, math.prod(SHAPE)))
    if kind == "pylops":
        A = lt.as_operator(pylops.MatrixMult(matrix), shape=SHAPE)
    else:
        A = lt.FunctionOperator(
            lambda X: matrix @ X.ravel(), lambda v: (matrix.T @ v).reshape(SHAPE), SHAPE, 200
        )
    for seed in range(2):
        X = lt.random_tucker(SHAPE, RANK, seed=seed)
        y = A.forward(X)
        y = y + noise * np.std(y) * rng.standard_normal(200)
        result = lt.recover(A, y, RANK)
        assert result.status is (lt.Status.NOISE_FLOOR if noise else lt.Status.CONVERGED)
        error = float(lt.metrics.relative_error(result.X, X))
        assert error / 2 < result.error_estimate < 2 * error
        low, high = result.error_interval
        assert low < error < high


@pytest.mark.parametrize("spare", [0, 1, 14])
@pytest.mark.parametrize("directions", [1.0, 9.6, 300.0])
def test_negligible_noise_is_left_out_of_the_interval(directions, spare, monkeypatch):
    noise = 0.99 * accuracy.NEGLIGIBLE
    one = Accuracy(1.0, noise, noise, directions, spare, margin=1e6, share=0.1)
    without = one.interval
    monkeypatch.setattr(accuracy, "NEGLIGIBLE", 0.0)
    np.testing.assert_allclose(without, one.interval, rtol=2e-6)
    assert without != one.interval
