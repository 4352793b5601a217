"""Standard deviations of predictions: against least squares, and by what they cover."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.estimators import TuckerRegressor


def reference(X, y, new, alpha, intercept, weights):
    """Ridge by normal equations, and the standard deviation of a prediction."""
    total = weights.sum()
    mean = weights @ X / total if intercept else np.zeros(X.shape[1])
    offset = weights @ y / total if intercept else 0.0
    root = np.sqrt(weights)[:, None]
    Z, z = root * (X - mean), root[:, 0] * (y - offset)
    gram = Z.T @ Z
    inverse = np.linalg.inv(gram + alpha * np.eye(len(gram)))
    w = inverse @ (Z.T @ z)
    used = np.trace(gram @ inverse) + intercept
    variance = np.sum((z - Z @ w) ** 2) / (len(y) - used)
    at = new - mean
    spread = 1 + np.einsum("ij,jk,ik->i", at, inverse, at) + (1 / total if intercept else 0)
    return offset + at @ w, np.sqrt(variance * spread)


@pytest.mark.parametrize("alpha", [0.0, 3.0])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_vectors_have_the_deviations_of_ridge_regression(rng, alpha, intercept, weighted):
    X, new = rng.standard_normal((40, 6)) + 2, rng.standard_normal((5, 6))
    y = X @ rng.standard_normal(6) + 1 + rng.standard_normal(40)
    weights = rng.uniform(0.5, 2, 40) if weighted else np.ones(40)
    model = TuckerRegressor(rank=(1,), alpha=alpha, fit_intercept=intercept)
    model.fit(X, y, weights)
    mean, std = model.predict(new, return_std=True)
    expected = reference(X, y, new, alpha, intercept, weights)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-8)
    np.testing.assert_allclose(std, expected[1], rtol=1e-8)
    np.testing.assert_array_equal(mean, model.predict(new))


def tensors(rng, n, noise=0.1, targets=1):
    truth = lt.random_tucker((8, 7), (2, 2), seed=0).full()
    X = rng.standard_normal((n, 8, 7)) + 1
    y = 5 + np.tensordot(X, truth, 2)[:, None] + noise * rng.standard_normal((n, targets))
    return X, y[:, 0] if targets == 1 else y


def test_prediction_intervals_cover_new_rows(rng):
    """30 fits, 100 new rows each: those of one fit are correlated by little."""
    inside = []
    for _ in range(30):
        X, y = tensors(rng, 120)
        model = TuckerRegressor(rank=(2, 2)).fit(X, y)
        new, at = tensors(rng, 100)
        mean, std = model.predict(new, return_std=True)
        inside.append(np.mean(np.abs(at - mean) < 1.96 * std))
    assert 0.93 < np.mean(inside) < 0.97


def test_targets_batches_and_pickles(rng):
    X, y = tensors(rng, 120, targets=2)
    new, _ = tensors(rng, 4)
    model = TuckerRegressor(rank=(2, 2)).fit(X, y)
    mean, std = model.predict(new, return_std=True)
    assert std.shape == mean.shape == (4, 2)
    for k in range(2):
        alone = TuckerRegressor(rank=(2, 2)).fit(X, y[:, k]).predict(new, return_std=True)
        np.testing.assert_allclose(std[:, k], alone[1])
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.predict(new, return_std=True)[1], std)
    batches = TuckerRegressor(rank=(2, 2))
    for start in range(0, 120, 40):
        batches.partial_fit(X[start : start + 40], y[start : start + 40])
    np.testing.assert_allclose(batches.predict(new, return_std=True)[1], std, rtol=1e-4)


def test_the_coefficient_has_error_bars(rng):
    X, y = tensors(rng, 120)
    model = TuckerRegressor(rank=(2, 2)).fit(X, y)
    low, high = model.result_.interval([[0, 0], [7, 6]])
    assert np.all(low < high)
    assert model.result_.uncertainty.problem is None  # the rows are not kept


def test_what_rows_do_not_determine_has_infinite_deviation(rng):
    X = rng.standard_normal((20, 4))
    X[:, 3] = 0
    model = TuckerRegressor(rank=(1,)).fit(X, X.sum(axis=1) + rng.standard_normal(20))
    std = model.predict(np.eye(4), return_std=True)[1]
    assert np.isfinite(std[:3]).all()
    assert np.isinf(std[3])


@pytest.mark.parametrize("alpha", [0.0, 2.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_rows_that_are_not_kept_give_the_same_linear_fit(rng, alpha, intercept):
    """Recursive least squares: a batch after a fit is as good as all rows at once."""
    X, new = rng.standard_normal((60, 6)) + 2, rng.standard_normal((5, 6))
    y = X @ rng.standard_normal(6) + 1 + rng.standard_normal(60)
    weights = rng.uniform(0.5, 2, 60)
    model = TuckerRegressor(rank=(1,), alpha=alpha, fit_intercept=intercept)
    model.fit(X[:20], y[:20], weights[:20])
    for start in (20, 21, 50):
        stop = {20: 21, 21: 50, 50: 60}[start]
        some = slice(start, stop)
        model.partial_fit(X[some], y[some], weights[some])
    mean, std = model.predict(new, return_std=True)
    expected = reference(X, y, new, alpha, intercept, weights)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-7)
    np.testing.assert_allclose(std, expected[1], rtol=1e-7)


@pytest.mark.parametrize("power", [-560, 560])
@pytest.mark.parametrize("of", ["features", "targets"])
def test_any_scale_has_deviations(rng, power, of):
    X, y = tensors(rng, 120)
    new, later = tensors(rng, 4), tensors(rng, 30)
    scale = {"features": (2.0**power, 1.0), "targets": (1.0, 2.0**power)}[of]
    found = []
    for a, b in ((1.0, 1.0), scale):
        model = TuckerRegressor(rank=(2, 2)).fit(a * X, b * y)
        model.partial_fit(a * later[0], b * later[1])
        mean, std = model.predict(a * new[0], return_std=True)
        found.append((mean / b, std / b))
    # other features are other digests, so another order of the rows and another end of the fit
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3 if of == "features" else 1e-9)


def test_rows_that_contradict_the_fit_end_its_success(rng):
    X, y = tensors(rng, 120)
    model = TuckerRegressor(rank=(2, 2)).fit(X, y)
    assert model.result_.success
    more = tensors(rng, 40)
    assert model.partial_fit(*more).result_.success
    model.partial_fit(more[0], 20 * rng.standard_normal(40))
    assert not model.result_.success
    with pytest.warns(lt.ModelWarning, match="the verdict is LOCAL_MINIMUM"):
        model.predict(X[:2], return_std=True)


def test_few_rows_are_no_evidence(rng):
    """Deviations of fits to hardly more rows than degrees of freedom come with a warning."""
    X, y = tensors(rng, 34, noise=0.5)
    model = TuckerRegressor(rank=(2, 2)).fit(X, y)
    with pytest.warns(lt.ModelWarning, match="presume that the coefficient has rank"):
        model.predict(X[:2], return_std=True)
