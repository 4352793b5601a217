"""TuckerImputer: known entries are kept, missing ones predicted, for fitted and new samples."""

from __future__ import annotations

import joblib
import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lowtucker as lt
from lowtucker.estimators import TuckerImputer
from lowtucker.estimators.subspace import Subspace, learned


def tensor(n=50, shape=(7, 6), rank=(2, 2, 2), missing=0.4, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    truth = lt.random_tucker((n, *shape), rank, seed=seed).full()
    truth /= np.sqrt(np.mean(truth**2))
    X = truth + noise * rng.standard_normal(truth.shape)
    holes = rng.random(truth.shape) < missing
    return np.where(holes, np.nan, X), truth, holes


def error(filled, truth, holes):
    return np.sqrt(np.mean((filled - truth)[holes] ** 2) / np.mean(truth[holes] ** 2))


@pytest.mark.parametrize("rank", [(2, 2, 2), "auto", None])
def test_low_rank_tensor_is_completed(rank):
    X, truth, holes = tensor()
    imputer = TuckerImputer(rank)
    filled = imputer.fit_transform(X)
    assert imputer.rank_ == (2, 2, 2)
    assert error(filled, truth, holes) < 1e-4
    np.testing.assert_array_equal(filled[~holes], X[~holes])
    np.testing.assert_allclose(imputer.tensor_.full(), truth, atol=1e-3)
    assert imputer.tensor_.rank == (2, 2, 2)
    assert ("was found" in imputer.note_) == (rank != (2, 2, 2))
    assert imputer.n_iter_ > 0


@pytest.mark.parametrize("missing", [0.4, 0.8])
def test_new_samples_are_completed(missing):
    X, truth, holes = tensor(90, (8, 9), missing=missing)
    imputer = TuckerImputer((2, 2, 2)).fit(X[:60])
    filled = imputer.transform(X[60:])
    assert error(filled, truth[60:], holes[60:]) < 1e-3
    np.testing.assert_array_equal(filled[~holes[60:]], X[60:][~holes[60:]])


def test_few_entries_suffice_for_least_squares():
    """EM sweeps alone stop at 0.03 here: each feature is known in six samples."""
    X, truth, holes = tensor(30, (20, 10), missing=0.8)
    filled = TuckerImputer((2, 2, 2)).fit_transform(X)
    assert error(filled, truth, holes) < 1e-4


def test_coefficients_are_the_posterior_mean(rng):
    """Against the formula of conditional normal distributions."""
    B = np.linalg.qr(rng.standard_normal((6, 3)))[0]
    L = rng.standard_normal((3, 3))
    model = Subspace(B, rng.standard_normal(3), L @ L.T, 0.3)
    x, known = rng.standard_normal(6), np.array([1.0, 0, 1, 0, 0, 0])
    c, P = model.coefficients((x * known)[None], known[None])
    K = known > 0
    S, Bk = model.covariance, B[K]
    gain = S @ Bk.T @ np.linalg.inv(Bk @ S @ Bk.T + 0.3 * np.eye(2))
    np.testing.assert_allclose(c[0], model.mean + gain @ (x[K] - Bk @ model.mean), atol=1e-10)
    np.testing.assert_allclose(P[0], S - gain @ Bk @ S, atol=1e-10)


def test_sweeps_increase_the_likelihood(rng):
    """Expectation-maximisation of a matrix never decreases it."""
    X, _, holes = tensor(40, (8,), (3, 3), 0.3, 0.5)
    Z, known = np.where(holes, 0, X), (~holes).astype(float)
    values = []
    for sweeps in range(1, 12):
        m, _, _ = learned(Z, known, (8,), (3, 3), tol=1e-6, max_epochs=sweeps)
        total = 0.0
        for z, k in zip(Z, known > 0, strict=True):
            B = m.basis[k]
            V = B @ m.covariance @ B.T + m.noise * np.eye(k.sum())
            left = z[k] - B @ m.mean
            total -= 0.5 * (np.linalg.slogdet(V)[1] + left @ np.linalg.solve(V, left))
        values.append(total)
    assert np.all(np.diff(values) > -1e-6)
    assert values[-1] > values[0] + 1


def test_distribution_of_samples_is_estimated(rng):
    """Ignoring the uncertainty of the coefficients would underestimate the covariance."""
    n, N = 4000, 6
    B = np.linalg.qr(rng.standard_normal((N, 2)))[0]
    covariance = B @ np.diag([3.0, 1.0]) @ B.T
    X = rng.multivariate_normal(np.zeros(N), covariance, n) + 0.7 * rng.standard_normal((n, N))
    X[rng.random(X.shape) < 0.5] = np.nan
    imputer = TuckerImputer((2, 2)).fit(X)
    found = imputer.components_.T @ imputer.covariance_ @ imputer.components_
    np.testing.assert_allclose(found, covariance, atol=0.12)
    np.testing.assert_allclose(imputer.noise_variance_, 0.49, rtol=0.05)


def test_low_noise_is_fitted_by_least_squares():
    X, truth, holes = tensor(100, (20, 10), (3, 2, 2), 0.9, 0.05, seed=2)
    assert error(TuckerImputer((3, 2, 2)).fit_transform(X), truth, holes) < 0.03  # sweeps: 0.034


@pytest.mark.parametrize("data", [load_iris, pytest.param(load_wine, marks=pytest.mark.slow)])
@pytest.mark.parametrize("missing", [0.1, 0.4])
def test_imputation_beats_means_and_matches_neighbours(data, missing):
    truth = StandardScaler().fit_transform(data().data)
    holes = np.random.default_rng(0).random(truth.shape) < missing
    X = np.where(holes, np.nan, truth)
    ours, means, near = (
        error(imputer.fit_transform(X), truth, holes)
        for imputer in (TuckerImputer(), SimpleImputer(), KNNImputer())
    )
    assert ours < 0.85 * means
    assert ours < 1.15 * near


def test_noise_is_not_taken_for_structure(rng):
    truth = rng.standard_normal((40, 8))
    holes = rng.random(truth.shape) < 0.2
    filled = TuckerImputer().fit_transform(np.where(holes, np.nan, truth))
    assert error(filled, truth, holes) < 1.1  # that of zero is 1
    search = TuckerImputer(lt.RankSearch(max=(1, 1, 1)))
    assert search.fit(tensor()[0]).rank_ == (1, 1, 1)


def test_new_samples_are_completed_without_a_rank():
    X, truth, holes = tensor(60)
    filled = TuckerImputer().fit(X[:40]).transform(X[40:])
    assert error(filled, truth[40:], holes[40:]) < 1e-4
    np.testing.assert_array_equal(filled[~holes[40:]], X[40:][~holes[40:]])


def test_distant_values_are_centred():
    """An offset of 300 times the spread does not hide the signal."""
    X, truth, holes = tensor(60, (6, 5), missing=0.3, noise=0.1)
    imputer = TuckerImputer().fit(X[:40] + 300)
    assert abs(imputer.offset_ - 300) < 0.2
    filled = imputer.transform(X[40:] + 300)
    assert error(filled - 300, truth[40:], holes[40:]) < 0.1
    np.testing.assert_allclose(imputer.tensor_.full() - 300, truth[:40], atol=0.5)


def test_data_of_nearly_low_rank_are_completed_without_a_rank():
    """Mode covariances whose spectra decay: against fits of any rank, on new samples."""
    rng = np.random.default_rng(0)
    shape = (6, 5)
    roots = [np.linalg.qr(rng.standard_normal((m, m)))[0] * 0.6 ** np.arange(m) for m in shape]
    truth = np.einsum("nij,ai,bj->nab", rng.standard_normal((80, *shape)), *roots)
    holes = rng.random(truth.shape) < 0.3
    X = np.where(holes, np.nan, truth + 0.05 * rng.standard_normal(truth.shape))
    ours, *others = (
        error(TuckerImputer(rank).fit(X[:60]).transform(X[60:]), truth[60:], holes[60:])
        for rank in (None, (2, 2, 2), (4, 3, 3), (6, 3, 3))
    )
    assert ours < 0.95 * min(others)


# Patterns of missing entries


def test_sample_without_known_entries_is_the_mean():
    X, truth, _ = tensor(60, noise=0.1)
    X += 2
    X[5] = np.nan
    imputer = TuckerImputer((3, 3, 3)).fit(X)
    filled = imputer.transform(X[5:6])[0]
    np.testing.assert_allclose(filled.ravel(), imputer.mean_ @ imputer.components_)
    np.testing.assert_allclose(filled, (truth + 2).mean(axis=0), atol=0.4)
    others = TuckerImputer((3, 3, 3)).fit(np.delete(X, 5, 0))
    np.testing.assert_array_equal(others.components_, imputer.components_)


def test_sample_with_fewer_known_entries_than_directions_is_near_the_others():
    X, truth, _ = tensor(60, rank=(3, 3, 3), missing=0.2)
    imputer = TuckerImputer((3, 3, 3)).fit(X)
    new = np.full((1, 7, 6), np.nan)
    new[0, 0, 0] = truth[3, 0, 0]
    filled = imputer.transform(new)
    assert np.abs(filled).max() < 3 * np.abs(truth).max()
    assert filled[0, 0, 0] == truth[3, 0, 0]


def test_unknown_feature_is_predicted_from_its_row_and_column():
    X, truth, _ = tensor(60, missing=0.3)
    X[:, 2, 3] = np.nan  # a warning would be an error
    filled = TuckerImputer((2, 2, 2)).fit_transform(X)
    np.testing.assert_allclose(filled[:, 2, 3], truth[:, 2, 3], atol=1e-2)


@pytest.mark.parametrize(
    ("shape", "where", "text"),
    [
        ((9,), np.s_[:, 4], r"in features \[4\]: they are filled with zeros"),
        ((7, 6), np.s_[:, :, 5], r"slices of mode 1 of the samples \[5\]"),
    ],
)
def test_unknown_slices_are_zero_with_a_warning(shape, where, text):
    X, _, _ = tensor(40, shape, (2,) * (1 + len(shape)), 0.2, 0.1)
    X[where] = np.nan
    with pytest.warns(lt.UnderdeterminedWarning, match=text):
        filled = TuckerImputer((2,) * (1 + len(shape))).fit_transform(X)
    assert not np.isnan(filled).any()
    np.testing.assert_allclose(filled[where], 0, atol=1e-6)


def test_complete_arrays_are_unchanged():
    X, truth, _ = tensor(missing=0.0)
    np.testing.assert_array_equal(TuckerImputer((1, 1, 1)).fit_transform(X), X)
    assert np.all(TuckerImputer((1, 1)).fit_transform(np.zeros((5, 4))) == 0)
    zeros = np.zeros((5, 4))
    zeros[2, 2] = np.nan
    assert np.all(TuckerImputer((1, 1)).fit_transform(zeros) == 0)
    del truth


# Data


def test_fit_does_not_depend_on_input_layout_or_sample_order(rng):
    X, _, _ = tensor(noise=0.2)
    one = TuckerImputer((2, 2, 2)).fit(X)
    flat = X.reshape(len(X), -1)
    two = TuckerImputer((2, 2, 2), tensor_shape=(7, 6)).fit(flat)
    order = rng.permutation(len(X))
    three = TuckerImputer((2, 2, 2)).fit(X[order])
    for other in (two, three):
        np.testing.assert_array_equal(other.components_, one.components_)
        assert other.noise_variance_ == one.noise_variance_
    np.testing.assert_array_equal(two.transform(flat), one.transform(X).reshape(flat.shape))
    np.testing.assert_allclose(three.tensor_.full(), one.tensor_.full()[order], atol=1e-10)
    assert one.n_features_in_ == 42


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_fit_does_not_depend_on_units(scale):
    X, _, _ = tensor(noise=0.2)
    one = TuckerImputer((2, 2, 2)).fit_transform(X)
    np.testing.assert_allclose(TuckerImputer((2, 2, 2)).fit_transform(X * scale) / scale, one)


def test_many_samples_are_filled_block_by_block(monkeypatch):
    from lowtucker.estimators import imputer as module

    X, _, _ = tensor(noise=0.2)
    model = TuckerImputer((2, 2, 2)).fit(X)
    whole = model.transform(X)
    monkeypatch.setattr(module, "BLOCK", 100)
    np.testing.assert_allclose(model.transform(X), whole, rtol=1e-12)


def test_noise_variance_and_unchanged_input():
    X, truth, _ = tensor(200, (9, 8), noise=0.3, missing=0.2)
    before = X.copy()
    imputer = TuckerImputer((2, 2, 2)).fit(X)
    filled = imputer.transform(X)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_allclose(imputer.noise_variance_, 0.09, rtol=0.1)
    np.testing.assert_allclose(imputer.components_ @ imputer.components_.T, np.eye(2), atol=1e-12)
    single = imputer.transform(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, filled, atol=1e-4)
    del truth


def test_pipeline_grid_search_clone_files_and_names(tmp_path):
    pd = pytest.importorskip("pandas")
    X, truth, _ = tensor(80, (10,), (2, 2), 0.3)
    y = truth @ np.arange(10.0)
    pipe = make_pipeline(StandardScaler(), TuckerImputer(), Ridge(1e-3))
    ranks = [(1, 1), (3, 3)]
    search = GridSearchCV(pipe, {"tuckerimputer__rank": ranks}, cv=3).fit(X, y)
    assert search.best_params_["tuckerimputer__rank"] == (3, 3)
    imputer = clone(TuckerImputer((2, 2))).set_output(transform="pandas")
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(10)])
    filled = imputer.fit_transform(frame)
    assert list(filled.columns) == list(frame.columns) == list(imputer.get_feature_names_out())
    assert not filled.isna().any().any()
    joblib.dump(imputer, tmp_path / "imputer.joblib")
    again = joblib.load(tmp_path / "imputer.joblib")
    pd.testing.assert_frame_equal(again.transform(frame), filled)
    assert "TuckerImputer" in imputer._repr_html_()


X0 = tensor(10)[0]
BAD = [
    ({}, np.full((4, 3), np.nan), "X has only NaN in its 4 samples"),
    ({}, np.where(np.isnan(X0), np.inf, X0), "infinity"),
    ({}, X0[0, 0], "Expected 2D array"),
    ({}, X0[:0], "0 sample"),
    ({"rank": (2, 2)}, X0, "rank must have one entry per mode: got 2 entries"),
    ({"rank": (11, 2, 2)}, X0, r"rank\[0\] = 11 must be between 1 and 10"),
    ({"rank": 2}, X0, r"rank must be a tuple of 3 integers, one per mode of \(10, 7, 6\), got 2"),
    ({"rank": "all"}, X0, 'rank must be "auto"'),
    ({"tensor_shape": (7, 7)}, X0.reshape(10, -1), r"tensor_shape=\(7, 7\) has 49 entries, but X"),
    ({"tol": -1.0}, X0, "tol must be a finite number, at least 0, got -1"),
    ({"max_epochs": 0}, X0, "max_epochs must be at least 1, got 0"),
    ({"random_state": -1}, X0, "random_state must not be negative, got -1"),
]


@pytest.mark.parametrize(("settings", "X", "text"), BAD)
def test_invalid_arguments_raise(settings, X, text):
    with pytest.raises((ValueError, TypeError), match=text):
        TuckerImputer(**settings).fit(X)


def test_transform_error_gives_the_shape_of_the_fit():
    imputer = TuckerImputer((1, 1, 1)).fit(X0)
    with pytest.raises(ValueError, match=r"shape \(6, 7\), but the fit has .* \(7, 6\)"):
        imputer.transform(X0.transpose(0, 2, 1))
    with pytest.raises(NotFittedError):
        TuckerImputer().transform(X0)
