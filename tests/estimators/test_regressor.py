"""TuckerRegressor: the objective, and independence of the order of the rows."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("sklearn")
import joblib
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lowtucker as lt
from lowtucker.estimators import TuckerRegressor, regressor
from lowtucker.estimators.penalty import Penalty
from lowtucker.estimators.rows import in_own_order, parted
from lowtucker.status import Status

SHAPE, RANK = (6, 5, 4), (2, 2, 2)  # 30 degrees of freedom


def problem(n=150, noise=0.1, seed=0, shape=SHAPE, rank=RANK, offset=3.0):
    rng = np.random.default_rng(seed)
    truth = lt.random_tucker(shape, rank, seed=seed).full()
    truth /= np.linalg.norm(truth)
    X = rng.standard_normal((n, *shape)) + 0.5
    y = np.tensordot(X, truth, len(shape)) + offset + noise * rng.standard_normal(n)
    return X, y, truth


def error(model, truth):
    return np.linalg.norm(model.coef_ - truth.ravel()) / np.linalg.norm(truth)


# Objective


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 2.0])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("n", [60, 9])  # of 12 features
def test_vector_fit_is_least_squares_or_ridge(rng, intercept, alpha, weighted, n):
    X, Y = rng.standard_normal((n, 12)) + 2, rng.standard_normal((n, 2))
    weights = rng.integers(0, 4, n) if weighted else None
    other = (
        Ridge(alpha, fit_intercept=intercept, solver="svd")
        if alpha
        else LinearRegression(fit_intercept=intercept)
    )
    other.fit(X, Y, weights)
    for y, want in ((Y, slice(None)), (Y[:, 0], 0)):
        ours = TuckerRegressor(alpha=alpha, fit_intercept=intercept).fit(X, y, weights)
        np.testing.assert_allclose(ours.coef_, other.coef_[want], atol=1e-10)
        np.testing.assert_allclose(ours.intercept_, (other.intercept_ + np.zeros(2))[want])
        np.testing.assert_allclose(ours.predict(X), other.predict(X)[:, want], atol=1e-10)


def test_full_rank_fit_is_least_squares(rng):
    X, y, _ = problem(n=200)
    full = TuckerRegressor(SHAPE).fit(X, y)
    other = LinearRegression().fit(X.reshape(200, -1), y)
    np.testing.assert_allclose(full.coef_, other.coef_, atol=1e-10)
    assert full.result_.status is Status.NOISE_FLOOR
    assert full.rank_ == SHAPE


def ridge_by_alternation(X, y, w, shape, r, alpha, sweeps=300):
    """Plain loop: a matrix U V^T with V orthonormal has the norm of U, so U is a ridge fit."""
    total = w.sum()
    X, y = X - (w @ X) / total, y - (w @ y) / total
    X, y = np.sqrt(w)[:, None] * X, np.sqrt(w) * y
    A = X.reshape(-1, *shape)
    U, _, Vt = np.linalg.svd(np.tensordot(y, A, 1))
    V = Vt[:r].T
    for _ in range(sweeps):
        for swap in (False, True):
            rows = np.einsum("nij,jk->nik", A.transpose(0, 2, 1) if swap else A, V)
            D = rows.reshape(len(y), -1)
            solved = np.linalg.solve(D.T @ D + alpha * np.eye(D.shape[1]), D.T @ y)
            U = solved.reshape(-1, r)
            W = U @ V.T
            V = np.linalg.qr(U)[0]
    W = W.T
    return W, np.sum((y - X @ W.ravel()) ** 2) + alpha * np.sum(W**2)


@pytest.mark.parametrize("alpha", [0.0, 5.0])
def test_low_rank_fit_minimises_the_penalised_squares(rng, alpha):
    shape, r = (7, 6), 2
    X, y, _ = problem(120, 0.3, shape=shape, rank=(r, r))
    X, w = X.reshape(120, -1), rng.uniform(0.5, 2, 120)
    model = TuckerRegressor((r, r), tensor_shape=shape, alpha=alpha).fit(X, y, w)
    W, least = ridge_by_alternation(X, y, w, shape, r, alpha)
    left = y - model.predict(X)
    mine = np.sum(w * left**2) + alpha * np.sum(model.coef_**2)
    # a residual that is noise ends the run a little above, by far less than noise has changed
    np.testing.assert_allclose(mine, least, rtol=1e-6)
    np.testing.assert_allclose(model.coef_, W.ravel(), atol=2e-3)
    np.testing.assert_allclose(w @ left, 0, atol=1e-9)  # to be fitted by the intercept


def test_penalty_is_a_valid_operator(rng):
    A = Penalty((3, 4, 2), 2.5)
    lt.check_adjoint(A)
    lt.check_restriction(A)
    T = lt.TangentSpace(lt.random_tucker((3, 4, 2), (2, 2, 2), seed=0))
    D, y = A.tangent(T).dense(), rng.standard_normal(24)
    np.testing.assert_allclose(D.T @ D, 2.5 * np.eye(T.dof), atol=1e-12)
    w = rng.uniform(0, 2, 24)
    for weights, W in ((None, np.ones(24)), (w, w)):
        gram, gradient, residual = A.tangent(T).normal_equations(y, weights)
        np.testing.assert_allclose(gram, D.T @ (W[:, None] * D), atol=1e-12)
        np.testing.assert_allclose(residual, y - A.forward(T.X), atol=1e-12)
        np.testing.assert_allclose(gradient, D.T @ (W * residual), atol=1e-12)
        again = A.tangent(T).misfit(y, weights)
        np.testing.assert_allclose(again[0], residual)
        np.testing.assert_allclose(again[1], gradient, atol=1e-12)
    np.testing.assert_allclose(A.row_norms(), np.sqrt(2.5))


@pytest.mark.parametrize(
    "solver",
    ["tiht", pytest.param("stotiht", marks=pytest.mark.slow), "rcg", lt.RGN(products=True)],
)
def test_every_solver_finds_the_fit_with_and_without_ridge(solver):
    X, y, truth = problem(400, 0.01)
    for alpha in (0.0, 1e-3):
        model = TuckerRegressor(RANK, solver=solver, alpha=alpha, max_epochs=100).fit(X, y)
        assert error(model, truth) < 0.05


# Data


def test_fit_does_not_depend_on_input_layout():
    X, y, truth = problem()
    one = TuckerRegressor(RANK).fit(X, y)
    two = TuckerRegressor(RANK, tensor_shape=SHAPE).fit(X.reshape(len(X), -1), y)
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert one.coef_.shape == (120,)
    assert one.n_features_in_ == 120
    assert one.tensor_shape_ == SHAPE
    np.testing.assert_allclose(one.coef_tensor_.full().ravel(), one.coef_)
    np.testing.assert_array_equal(one.predict(X), two.predict(X.reshape(len(X), -1)))
    np.testing.assert_array_equal(one.predict(X.reshape(len(X), -1)), two.predict(X))
    assert one.rank_ == one.result_.rank == RANK
    assert one.n_iter_ == one.result_.epochs > 0
    assert error(one, truth) < 0.15
    assert abs(one.intercept_ - 3) < 0.2
    assert one.score(X, y) > 0.98


@pytest.mark.parametrize("rank", [RANK, "auto"])
def test_order_of_rows_changes_no_bit(rng, rank):
    X, y, _ = problem(40, 0.1, shape=(3, 3), rank=(2, 2))
    rank = rank if rank == "auto" else (2, 2)
    first = TuckerRegressor(rank).fit(X, y)
    for _ in range(2):
        order = rng.permutation(len(y))
        again = TuckerRegressor(rank).fit(X[order], y[order])
        np.testing.assert_array_equal(again.coef_, first.coef_)
        assert again.intercept_ == first.intercept_
        assert again.rank_ == first.rank_


@pytest.mark.parametrize("rank", [RANK, "auto"])
def test_integer_weights_equal_repeated_rows_exactly(rng, rank):
    X, y, _ = problem(40, 0.1, shape=(3, 3), rank=(2, 2))
    rank = rank if rank == "auto" else (2, 2)
    weights = rng.integers(0, 4, 40)
    many = np.repeat(np.arange(40), weights)
    repeated = TuckerRegressor(rank).fit(X[many], y[many])
    weighted = TuckerRegressor(rank).fit(X, y, weights)
    kept = weights > 0
    left_out = TuckerRegressor(rank).fit(X[kept], y[kept], weights[kept])
    shuffled = rng.permutation(len(many))
    again = TuckerRegressor(rank).fit(X[many][shuffled], y[many][shuffled])
    for other in (weighted, left_out, again):
        np.testing.assert_array_equal(other.coef_, repeated.coef_)
        assert other.intercept_ == repeated.intercept_
    assert not np.array_equal(TuckerRegressor(rank).fit(X, y).coef_, repeated.coef_)


def test_equal_rows_with_different_y_give_the_least_squares_fit(rng):
    X, y, _ = problem(60, 0.3)
    X, y = np.concatenate([X, X[:20]]), np.concatenate([y, y[:20] + rng.standard_normal(20)])
    model = TuckerRegressor(tensor_shape=(120,), alpha=0.5).fit(X.reshape(80, -1), y)
    other = Ridge(0.5, solver="svd").fit(X.reshape(80, -1), y)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-10)


def test_negative_zero_is_zero():
    X, y, _ = problem(100)
    X[:, 0, 0, 0] = 0.0
    first = TuckerRegressor(RANK).fit(X, y)
    X[::2, 0, 0, 0] = -0.0
    np.testing.assert_array_equal(TuckerRegressor(RANK).fit(X, y).coef_, first.coef_)


def test_scale_of_weights_does_not_matter_without_a_ridge(rng):
    X, y, _ = problem(150, 0.3)
    w = rng.uniform(0.1, 3, 150)
    one, two = (TuckerRegressor(RANK).fit(X, y, scale * w) for scale in (1, 64))
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-6, atol=1e-9)
    ridge = [TuckerRegressor(RANK, alpha=9 * s).fit(X, y, s * w).coef_ for s in (1, 64)]
    np.testing.assert_allclose(ridge[0], ridge[1], rtol=1e-4, atol=1e-6)
    assert np.linalg.norm(ridge[0]) < 0.99 * np.linalg.norm(one.coef_)


def test_several_targets_are_fitted_one_by_one():
    X, y, _ = problem(50, 0.2, shape=(3, 4), rank=(2, 2))
    _, z, _ = problem(50, 0.2, seed=1, shape=(3, 4), rank=(1, 1))
    Y = np.stack([y, z], 1)
    model = TuckerRegressor("auto").fit(X, Y)
    assert model.coef_.shape == (2, 12)
    assert model.predict(X).shape == (50, 2)
    for k in range(2):
        one = TuckerRegressor("auto").fit(X, Y[:, k])
        np.testing.assert_array_equal(model.coef_[k], one.coef_)
        assert model.intercept_[k] == one.intercept_
        assert model.rank_[k] == one.rank_ == model.result_[k].rank
        np.testing.assert_array_equal(model.coef_tensor_[k].core, one.coef_tensor_.core)
    column = TuckerRegressor((2, 2)).fit(X, y[:, None])
    assert column.coef_.shape == (1, 12)
    assert column.predict(X).shape == (50, 1)


def test_inputs_are_not_modified():
    X, y, _ = problem(100)
    w = np.full(100, 2.0)
    copies = [a.copy() for a in (X, y, w)]
    model = TuckerRegressor(RANK).fit(X, y, w)
    model.partial_fit(X, y, w)
    model.predict(X)
    for a, b in zip((X, y, w), copies, strict=True):
        np.testing.assert_array_equal(a, b)


def test_constant_y_has_a_zero_coefficient():
    X, _, _ = problem(50)
    for rank in (RANK, "auto"):
        model = TuckerRegressor(rank).fit(X, np.full(50, 7.0))
        assert np.all(model.coef_ == 0)
        assert model.intercept_ == 7


def test_single_row_gives_an_intercept():
    X, y, _ = problem(1)
    model = TuckerRegressor((1, 1, 1), alpha=1.0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y)
    assert np.all(model.coef_ == 0)


# Rank, ridge and warnings


def test_auto_finds_the_rank_with_enough_rows():
    X, y, _ = problem(100, 0.1, shape=(4, 4, 3), rank=(2, 1, 2))
    model = TuckerRegressor().fit(X, y)
    assert model.rank_ == (2, 1, 2)
    assert model.result_.notes[0].startswith("Rank (2, 1, 2) was found. Held-out residuals: (1")
    smaller = TuckerRegressor(lt.RankSearch(max=(1, 1, 1))).fit(X, y)
    assert smaller.rank_ == (1, 1, 1)


def test_auto_tries_no_rank_with_too_few_rows():
    X, y, _ = problem(
        36, 0.02, shape=(4, 4, 3)
    )  # about 29 in a fit; rank (3, 3, 3) has 33 unknowns
    (note, *_) = TuckerRegressor().fit(X, y).result_.notes
    assert "(2, 2, 2)" in note
    assert "(3, 3, 3)" not in note


def test_auto_chooses_a_small_rank_where_noise_hides_the_others():
    X, y, truth = problem(40, 1.0, seed=1, shape=(5, 4, 3))
    auto, given = TuckerRegressor().fit(X, y), TuckerRegressor(RANK).fit(X, y)
    assert auto.rank_ == (1, 1, 1)
    assert error(auto, truth) < error(given, truth)


def test_fewer_rows_than_unknowns_warn_only_without_a_ridge():
    X, y, _ = problem(15, 0.05, shape=(4, 4, 3))  # 18 unknowns
    with pytest.warns(lt.UnderdeterminedWarning, match="15 measurements cannot determine"):
        plain = TuckerRegressor(RANK).fit(X, y)
    assert plain.result_.status is Status.UNDERDETERMINED
    ridge = TuckerRegressor(RANK, alpha=3.0).fit(X, y)  # a warning would be an error
    assert np.linalg.norm(ridge.coef_) < np.linalg.norm(plain.coef_)
    auto = TuckerRegressor(lt.RankSearch(max=(1, 2, 2)), alpha=3.0).fit(X, y)
    assert np.all(np.isfinite(auto.coef_))


def test_noise_is_not_a_failure():
    X, y, _ = problem(200, 0.1)
    model = TuckerRegressor(RANK).fit(X, y)
    assert model.result_.status is Status.NOISE_FLOOR
    assert model.result_.success
    assert model.result_.residual > 0.05


# Batches


def batches(X, y, size):
    return [(X[i : i + size], y[i : i + size]) for i in range(0, len(y), size)]


@pytest.mark.parametrize("rank", [RANK, "auto"])
@pytest.mark.parametrize("intercept", [True, False])
def test_batches_are_as_good_as_all_rows(rank, intercept):
    shape = (4, 3) if rank == "auto" else SHAPE
    X, y, _ = problem(
        300, 0.3, offset=50.0 if intercept else 0.0, shape=shape, rank=(2,) * len(shape)
    )
    whole = TuckerRegressor(rank, fit_intercept=intercept, alpha=0.5).fit(X, y)
    parts = TuckerRegressor(rank, fit_intercept=intercept, alpha=0.5)
    sizes = 150 if rank == "auto" else 100
    for some in batches(X, y, sizes):
        parts.partial_fit(*some)
    assert parts.rank_ == whole.rank_
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-4)
    np.testing.assert_allclose(parts.intercept_, whole.intercept_, atol=1e-3)


def test_held_out_rows_do_not_depend_on_batches():
    X, y, _ = problem(80)
    X, Y, ones = X.reshape(80, -1), y[:, None], np.ones(80)

    def folds(rows):
        parts = parted(*in_own_order(X[rows], Y[rows], ones[rows]))
        return [{tuple(row) for row in part.X} for part in parts]

    halves = zip(folds(slice(0, 37)), folds(slice(37, 80)), strict=True)
    assert [a | b for a, b in halves] == folds(slice(0, 80))


def test_batches_keep_at_most_a_triangular_factor():
    X, y, _ = problem(1200, 0.3)
    model, widths = TuckerRegressor(RANK), []
    for some in batches(X, y, 100):
        model.partial_fit(*some)
        widths.append(sum(len(part.root) for part in model._kept))
    assert max(widths) <= 2 * (120 + 2)
    assert widths[1] == 200


def test_weights_in_batches(rng):
    X, y, _ = problem(400, 0.3)
    w = rng.integers(0, 3, 400)
    w[:50] = 1
    whole = TuckerRegressor(RANK).fit(X, y, w)
    parts = TuckerRegressor(RANK)
    for i in range(0, 400, 50):
        rows = slice(i, i + 50)
        parts.partial_fit(X[rows], y[rows], w[rows])
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-4)


def test_updates_approach_the_fit_on_all_rows_if_rows_are_not_kept(monkeypatch):
    monkeypatch.setattr(regressor, "EXACT", 10)
    X, y, truth = problem(1600, 0.5, offset=20.0)
    whole = TuckerRegressor(RANK).fit(X, y)
    first = TuckerRegressor(RANK).fit(X[:100], y[:100])
    parts, errors = TuckerRegressor(RANK), []
    for some in batches(X, y, 100):
        parts.partial_fit(*some)
        errors.append(error(parts, truth))
    assert parts._kept is None
    np.testing.assert_allclose(parts._means.x, X.reshape(1600, -1).mean(axis=0))
    np.testing.assert_allclose(parts._means.y, y.mean())
    assert parts._means.weight == parts.result_.m == 1600
    assert errors[0] == error(first, truth)
    assert errors[-1] < 0.3 * errors[0]
    assert errors[-1] < 1.1 * error(whole, truth)
    np.testing.assert_allclose(parts.intercept_, whole.intercept_, atol=0.05)
    std, of_whole = (model.predict(X[:9], return_std=True)[1] for model in (parts, whole))
    np.testing.assert_allclose(std, of_whole, rtol=0.02)
    # fitting only the last batch would be no better than the first
    last = TuckerRegressor(RANK).fit(X[-100:], y[-100:])
    assert errors[-1] < 0.5 * error(last, truth)


def test_batches_update_a_fit():
    X, y, truth = problem(600, 0.5)
    model = TuckerRegressor(RANK).fit(X[:300], y[:300])
    before = error(model, truth)
    model.partial_fit(X[300:].reshape(300, -1), y[300:])  # in either form
    whole = TuckerRegressor(RANK).fit(X, y)
    assert error(model, truth) < 0.9 * before
    assert error(model, truth) < 1.1 * error(whole, truth)


def test_batches_must_have_the_same_shape():
    X, y, _ = problem(60)
    model = TuckerRegressor((1, 1, 1)).partial_fit(X, y)
    with pytest.raises(ValueError, match="y has 2 targets in 2 axes, but the first call had 1 in"):
        model.partial_fit(X, np.stack([y, y], 1))
    with pytest.raises(ValueError, match=r"samples of shape \(4, 5, 6\), but the fit has"):
        model.partial_fit(X.reshape(60, 4, 5, 6), y)
    with pytest.raises(ValueError, match="expecting 120 features"):
        model.partial_fit(X.reshape(60, -1)[:, :60], y)


# Integration with scikit-learn


def test_grid_search_pipeline_and_clone():
    X, y, _ = problem(160, 0.2)
    flat = X.reshape(160, -1)
    steps = make_pipeline(StandardScaler(), TuckerRegressor(tensor_shape=SHAPE))
    ranks = [(1, 1, 1), RANK]
    search = GridSearchCV(steps, {"tuckerregressor__rank": ranks}, cv=3).fit(flat, y)
    assert search.best_params_["tuckerregressor__rank"] == RANK
    assert cross_val_score(TuckerRegressor(RANK), X, y, cv=3).min() > 0.9
    model = TuckerRegressor(RANK, alpha=2.0, random_state=3)
    assert clone(model).get_params() == model.get_params()
    assert "TuckerRegressor" in model._repr_html_()


def test_processes_and_pickles(tmp_path):
    X, y, _ = problem(120, 0.2)
    model = TuckerRegressor(RANK)
    search = GridSearchCV(model, {"alpha": [0.0, 1.0]}, cv=2, n_jobs=2).fit(X, y)
    model = search.best_estimator_
    joblib.dump(model, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    again.partial_fit(X[:10], y[:10])


def test_weights_are_routed():
    X, y, _ = problem(90, 0.3)
    flat, w = X.reshape(90, -1), np.arange(90.0)
    with sklearn.config_context(enable_metadata_routing=True):
        model = TuckerRegressor(RANK, tensor_shape=SHAPE).set_fit_request(sample_weight=True)
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        pipe.fit(flat, y, sample_weight=w)
    alone = TuckerRegressor(RANK, tensor_shape=SHAPE).fit(pipe[0].transform(flat), y, w)
    np.testing.assert_array_equal(pipe[-1].coef_, alone.coef_)


def test_names_of_features():
    pd = pytest.importorskip("pandas")
    X, y, _ = problem(60)
    frame = pd.DataFrame(X.reshape(60, -1), columns=[f"f{i}" for i in range(120)])
    model = TuckerRegressor((1, 1, 1), tensor_shape=SHAPE).fit(frame, y)
    assert model.feature_names_in_[3] == "f3"
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"f0": "other"}))


def test_random_states():
    X, y, _ = problem(40, 0.2)
    one, two = (TuckerRegressor(RANK, random_state=s).fit(X, y) for s in (0, 0))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    for state in (None, np.random.RandomState(0)):
        assert np.all(np.isfinite(TuckerRegressor(RANK, random_state=state).fit(X, y).coef_))


def test_without_scikit_learn_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['sklearn'] = None; import lowtucker; import lowtucker.estimators"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'pip install "lowtucker[sklearn]"' in done.stderr


# Errors

X0, Y0, _ = problem(20)
FLAT = X0.reshape(20, -1)
BAD = [
    ({"tensor_shape": (6, 5, 3)}, FLAT, Y0, None, r"tensor_shape=\(6, 5, 3\) has 90 entries, but "),
    ({"tensor_shape": (6, 5, 5)}, X0, Y0, None, r"X has samples of shape \(6, 5, 4\), not tensor_"),
    ({"tensor_shape": (6, -5, 4)}, FLAT, Y0, None, r"tensor_shape=\(6, -5, 4\): "),
    ({"tensor_shape": "6x5"}, FLAT, Y0, None, "tensor_shape='6x5': "),
    ({"rank": (2, 2)}, X0, Y0, None, "rank must have one entry per mode: got 2 entries"),
    ({"rank": (2, 2, 9)}, X0, Y0, None, r"rank\[2\] = 9 must be between 1 and 4"),
    ({"rank": (2, 2, 0)}, X0, Y0, None, r"rank\[2\] = 0 must be between 1 and 4"),
    ({"rank": 2}, X0, Y0, None, r"rank must be a tuple of 3 integers, one per mode of \(6, 5, 4\)"),
    ({"rank": None}, X0, Y0, None, r"rank must be a tuple of 3 integers.*Try rank=\(1, 1, 1\)"),
    ({"rank": "best"}, X0, Y0, None, r'rank must be "auto", a tuple of 3 integers.*got \'best\''),
    ({"rank": lt.RankSearch(max=(1, 1))}, X0, Y0, None, r"RankSearch\(max=\(1, 1\)\)"),
    ({"alpha": -1.0}, X0, Y0, None, "alpha must be a finite number, at least 0, got -1"),
    ({"alpha": np.nan}, X0, Y0, None, "alpha must be a finite number, at least 0, got nan"),
    ({"alpha": "much"}, X0, Y0, None, "alpha must be a real number, got 'much'"),
    ({"fit_intercept": "yes"}, X0, Y0, None, "fit_intercept must be True or False, got 'yes'"),
    (
        {"solver": "newton", "rank": RANK, "alpha": 1.0},
        X0,
        Y0,
        None,
        "solver must be one of .*'newton'",
    ),
    (
        {"tol": -1, "rank": RANK, "alpha": 1.0},
        X0,
        Y0,
        None,
        "tol must be a finite number, at least 0, got -1",
    ),
    (
        {"max_epochs": 0, "rank": RANK, "alpha": 1.0},
        X0,
        Y0,
        None,
        "max_epochs must be at least 1, got 0",
    ),
    ({"random_state": -3}, X0, Y0, None, "random_state must not be negative, got -3"),
    ({}, np.where(X0 > 2, np.nan, X0), Y0, None, "Input X contains NaN"),
    ({}, X0, np.where(Y0 > 3, np.inf, Y0), None, "contains infinity"),
    ({}, X0, Y0[:-1], None, "inconsistent numbers of samples"),
    ({}, X0[:0], Y0[:0], None, "0 sample"),
    ({}, FLAT[0], Y0, None, "Expected 2D array"),
    ({}, X0, None, None, "requires y to be passed"),
    (
        {},
        X0,
        Y0,
        np.zeros(20),
        "sample_weight must be non-negative, and positive for some|at least one non-zero",
    ),
    ({}, X0, Y0, np.linspace(-1, 1, 20), "sample_weight must be non-negative.*from -1 to 1"),
    ({}, X0, Y0, ["heavy"] * 20, "sample_weight must be numbers, got text"),
    ({}, X0, Y0, np.ones(19), r"sample_weight\.shape == \(19,\)"),
]


@pytest.mark.parametrize(("settings", "X", "y", "weights", "text"), BAD)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_invalid_arguments_raise(settings, X, y, weights, text, method):
    with pytest.raises((ValueError, TypeError), match=text):
        getattr(TuckerRegressor(**settings), method)(X, y, weights)


def test_predict_error_gives_the_shape_of_the_fit():
    model = TuckerRegressor((1, 1, 1), alpha=1.0).fit(X0, Y0)
    with pytest.raises(ValueError, match=r"shape \(5, 6, 4\), but the fit has .* \(6, 5, 4\)"):
        model.predict(X0.transpose(0, 2, 1, 3))
    with pytest.raises(ValueError, match="expecting 120 features"):
        model.predict(FLAT[:, :100])
    with pytest.raises(sklearn.exceptions.NotFittedError):
        TuckerRegressor().predict(X0)
