"""Error bars: against plain linear algebra, SciPy's distributions and simulations."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import scipy.stats

import lowtucker as lt
from lowtucker._array import to_numpy
from lowtucker._array.errors import FileFormatError
from lowtucker.uncertainty import information
from lowtucker.uncertainty.information import Noise
from test_accuracy import KINDS, SHAPE, linear_model, problem_at

DRAWS = np.random.default_rng(5)
INDICES = np.stack([DRAWS.integers(0, n, 30) for n in SHAPE], axis=1)


def bars_at(kind, noise=information.UNKNOWN):
    problem, X = problem_at(kind)
    return problem, X, lt.Uncertainty(X, problem, noise)


def entries_of_tangents(X):
    """Entries of all tangent basis vectors, shape (entries, dof)."""
    basis = lt.TangentSpace(X).basis()
    return np.stack([basis[(slice(None), *index)] for index in INDICES])


def least_squares(problem, X):
    """Covariance in units of sigma^2, sigma, and the step that is left."""
    D, r = linear_model(problem, X)
    step = np.linalg.lstsq(D, r, rcond=None)[0]
    sigma = np.linalg.norm(r - D @ step) / np.sqrt(len(r) - D.shape[1])
    return np.linalg.pinv(D.conj().T @ D), sigma, step


@pytest.mark.parametrize("kind", KINDS)
def test_standard_errors_are_those_of_least_squares(kind):
    problem, X, bars = bars_at(kind)
    covariance, sigma, step = least_squares(problem, X)
    t = entries_of_tangents(X)
    variance = np.einsum("ki,ij,kj->k", t, covariance, t.conj()).real
    expected = np.sqrt(sigma**2 * variance + np.abs(t @ step) ** 2)
    np.testing.assert_allclose(bars.standard_error(INDICES), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["real", "complex-weighted", "real-from-complex-weighted"])
def test_products_give_the_same(monkeypatch, kind):
    """A solve for each of few entries; random draws for many, to what 64 draws tell."""
    problem, X, bars = bars_at(kind)
    exact = bars.standard_error(INDICES)
    whole = np.argwhere(np.ones(SHAPE))
    all_of_them = bars.standard_error(whole)
    value = bars.functional(np.ones(SHAPE))
    monkeypatch.setattr(information, "COSTLY", 0.0)
    by_products = lt.Uncertainty(X, problem)
    np.testing.assert_allclose(by_products.standard_error(INDICES), exact, rtol=1e-2)
    ratio = by_products.standard_error(whole) / all_of_them
    assert 0.8 < np.sqrt(np.mean(ratio**2)) < 1.25
    again = by_products.functional(np.ones(SHAPE))
    assert again.estimate == pytest.approx(value.estimate)
    assert again.standard_error == pytest.approx(value.standard_error, rel=1e-2)
    assert by_products.sample(2).batch_shape == (2,)


@pytest.mark.parametrize("kind", ["real", "complex", "real-from-complex-weighted"])
def test_intervals_have_quantiles_of_student(kind):
    problem, X, bars = bars_at(kind)
    error = bars.standard_error(INDICES)
    parts = 2 if np.iscomplexobj(X.core) else 1
    spare = parts * (int(problem.equations) - X.degrees_of_freedom)
    for level in (0.5, 0.95):
        low, high = bars.interval(INDICES, level)
        width = scipy.stats.t.ppf((1 + level) / 2, spare) * error / math.sqrt(parts)
        np.testing.assert_allclose((high - low).real / 2, width)
        np.testing.assert_allclose((high + low) / 2, X.entries(INDICES), atol=1e-12)
        if parts == 2:
            np.testing.assert_allclose((high - low).imag / 2, width)


def test_a_known_noise_has_normal_quantiles():
    problem, X, _ = bars_at("real-weighted")
    bars = lt.Uncertainty(X, problem, Noise(0.1))
    D, _ = linear_model(problem, X)
    weights = problem.weights
    sigma = 0.1 * math.sqrt(weights.sum() / np.count_nonzero(weights))
    t = entries_of_tangents(X)
    variance = np.einsum("ki,ij,kj->k", t, np.linalg.pinv(D.T @ D), t)
    step = least_squares(problem, X)[2]
    expected = np.sqrt(sigma**2 * variance + (t @ step) ** 2)
    low, high = bars.interval(INDICES, 0.9)
    np.testing.assert_allclose((high - low) / 2, scipy.stats.norm.ppf(0.95) * expected)


def test_hubers_loss_has_a_sandwich():
    problem, X, _ = bars_at("real-weighted")
    D = problem.A.tangent(lt.TangentSpace(X)).dense()
    r, given = problem.y - problem.A.forward(X), problem.weights
    kink = np.quantile(np.abs(r), 0.7)
    share = np.minimum(1, kink / np.abs(r))
    share[np.abs(r) > 3 * kink] = 0
    weights = given * share
    bars = lt.Uncertainty(X, problem, Noise(huber=weights))
    H = sum(v * np.outer(d, d) for v, d, s in zip(given, D, share, strict=True) if s == 1)
    S = sum((w * e) ** 2 * np.outer(d, d) for w, e, d in zip(weights, r, D, strict=True))
    count, dof = np.count_nonzero(weights), D.shape[1]
    covariance = np.linalg.inv(H) @ S @ np.linalg.inv(H) * count / (count - dof)
    t = entries_of_tangents(X)
    expected = np.sqrt(np.einsum("ki,ij,kj->k", t, covariance, t))
    np.testing.assert_allclose(bars.standard_error(INDICES), expected, rtol=1e-8)


def test_functionals_of_every_kind_of_tensor():
    problem, X, bars = bars_at("real")
    covariance, sigma, step = least_squares(problem, X)
    W = lt.random_tucker(SHAPE, (2, 1, 2), seed=9)
    dense = W.full()
    basis = lt.TangentSpace(X).basis().reshape(-1, dense.size)
    w = basis @ dense.reshape(-1)
    error = math.sqrt(sigma**2 * (w @ covariance @ w) + (w @ step) ** 2)
    index = np.argwhere(np.ones(SHAPE))
    sparse = lt.Sparse(dense.size)(dense)
    for one in (dense, W, (index, dense.reshape(-1)), sparse):
        found = bars.functional(one, 0.9)
        assert found.estimate == pytest.approx(float(np.sum(X.full() * dense)))
        assert found.standard_error == pytest.approx(error)
        spare = problem.m - X.degrees_of_freedom
        t = found.estimate / error
        assert found.p_value == pytest.approx(2 * scipy.stats.t.sf(abs(t), spare))
        low, high = found.interval
        width = error * scipy.stats.t.ppf(0.95, spare)
        assert (low, high) == pytest.approx((found.estimate - width, found.estimate + width))


def test_a_functional_of_a_matrix_may_be_sparse():
    A = lt.gaussian((6, 5), m=60, seed=0)
    X = lt.random_tucker((6, 5), (2, 2), seed=1)
    noise = np.random.default_rng(0).standard_normal(60)
    result = lt.recover(A, A.forward(X) + 0.01 * noise, rank=2)
    W = scipy.sparse.csr_array(np.eye(6, 5))
    assert result.functional(W) == result.functional(W.toarray())


def test_a_complex_functional_has_the_p_value_of_an_f_test():
    problem, X, bars = bars_at("complex")
    found = bars.functional((INDICES[:1], [1.0 + 0j]))
    assert found.estimate == pytest.approx(complex(X.entries(INDICES[:1])[0]))
    assert found.standard_error == pytest.approx(float(bars.standard_error(INDICES[:1])[0]))
    spare = 2 * (problem.m - X.degrees_of_freedom)
    ratio = abs(found.estimate) ** 2 / found.standard_error**2
    assert found.p_value == pytest.approx(scipy.stats.f.sf(ratio, 2, spare))


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_draws_have_the_covariance(kind):
    """To first order: the noise is small here, so that X moves along its tangent space."""
    problem, X = problem_at(kind, noise=1e-4)
    fitted = lt.solve(problem, "rgn", X.rank, start=X, stop=lt.MaxEpochs(8)).X
    bars = lt.Uncertainty(fitted, problem)
    drawn = bars.sample(1500, seed=3)
    assert (drawn.batch_shape, drawn.rank) == ((1500,), X.rank)
    spread = np.std(drawn.entries(INDICES), axis=0)
    np.testing.assert_allclose(spread / bars.standard_error(INDICES), 1, atol=0.1)
    same = bars.sample(2, seed=3)
    np.testing.assert_array_equal(same.core, bars.sample(2, seed=3).core)
    assert not np.array_equal(same.core, bars.sample(2, seed=4).core)


SMALL, RANK, COUNT = (7, 6, 5), (2, 2, 2), 200


def noisy_batch(count=COUNT, noise=0.05):
    """Problems with one operator and one truth, and other noise in each."""
    A = lt.gaussian(SMALL, m=200, seed=1)
    X = lt.random_tucker(SMALL, RANK, seed=0)
    y = A.forward(X)
    draws = np.random.default_rng(7).standard_normal((count, len(y)))
    return A, X, y + noise * np.linalg.norm(y) / math.sqrt(len(y)) * draws


@pytest.mark.slow
def test_intervals_cover_as_often_as_they_say():
    """Binomial bounds: entries of one fit are correlated, so that fits are what counts."""
    A, X, y = noisy_batch()
    result = lt.recover(A, y, rank=RANK)
    assert result.success.all()
    rng = np.random.default_rng(0)
    indices = np.stack([rng.integers(0, n, 20) for n in SMALL], axis=1)
    low, high = result.interval(indices, 0.9)
    truth = X.entries(indices)
    covered = (low <= truth) & (truth <= high)
    assert low.shape == (COUNT, 20)
    per_entry = scipy.stats.binom(COUNT, 0.9)
    assert abs(covered.mean() - 0.9) < 4 * per_entry.std() / COUNT
    assert covered.sum(axis=0).min() > per_entry.ppf(1e-4)
    W = rng.standard_normal(SMALL)
    found = result.functional(W, 0.9)
    inside = (found.interval[0] <= np.sum(W * X.full())) & (
        np.sum(W * X.full()) <= found.interval[1]
    )
    assert per_entry.ppf(1e-4) < inside.sum() <= per_entry.ppf(1 - 1e-4)


def test_a_batch_is_its_problems():
    A, _, y = noisy_batch(3)
    result = lt.recover(A, y, rank=RANK)
    index = [[0, 1, 2], [6, 5, 4]]
    together = result.standard_error(index)
    W = np.ones(SMALL)
    for k in range(3):
        alone = lt.Uncertainty(result.X.trial(k), lt.Problem(A, y[k]))
        np.testing.assert_allclose(together[k], alone.standard_error(index), rtol=1e-9)
        one = result.trial(k)
        np.testing.assert_array_equal(one.standard_error(index), together[k])
        assert one.functional(W).p_value == result.functional(W).p_value[k]
        np.testing.assert_array_equal(one.interval(index)[0], result.interval(index)[0][k])
    with pytest.raises(ValueError, match=r"result.trial\(k\).sample"):
        result.sample(3)


def recovered(noise=0.05):
    A, X, y = noisy_batch(1, noise)
    return A, X, y[0], lt.recover(A, y[0], rank=RANK)


@pytest.mark.parametrize("power", [-600, 600])
def test_units_scale_error_bars(power):
    A, _, y, result = recovered()
    index = [[0, 0, 0], [3, 2, 1]]
    other = lt.recover(A, np.ldexp(y, power), rank=RANK)
    np.testing.assert_array_equal(
        other.standard_error(index), np.ldexp(result.standard_error(index), power)
    )
    np.testing.assert_array_equal(
        other.interval(index)[1], np.ldexp(result.interval(index)[1], power)
    )
    again = other.with_measurements(A, np.ldexp(y, power))
    np.testing.assert_allclose(again.standard_error(index), other.standard_error(index), rtol=1e-6)
    found, expected = other.functional(np.ones(SMALL)), result.functional(np.ones(SMALL))
    assert found.estimate == math.ldexp(expected.estimate, power)
    assert found.p_value == expected.p_value
    assert float(other.sample(1).norm()[0]) == math.ldexp(float(result.sample(1).norm()[0]), power)


def test_files_keep_what_was_computed(tmp_path):
    A, _, y, result = recovered()
    index = [[0, 0, 0], [3, 2, 1]]
    result.save(tmp_path / "before.npz")
    expected = result.standard_error(index)
    result.save(tmp_path / "after.npz")
    np.testing.assert_array_equal(lt.load(tmp_path / "after.npz").standard_error(index), expected)
    without = lt.load(tmp_path / "before.npz")
    with pytest.raises(ValueError, match="with_measurements"):
        without.standard_error(index)
    again = without.with_measurements(A, y)
    np.testing.assert_array_equal(again.standard_error(index), expected)
    with pytest.raises(ValueError, match="batch shape"):
        without.with_measurements(A, np.stack([y, y]))
    with pytest.raises(ValueError, match="noise_std"):
        without.with_measurements(A, y, noise_std=-1)
    again = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(again.standard_error(index), expected)
    assert len(pickle.dumps(without.with_measurements(A, y))) < A.matrix.nbytes


def test_a_file_of_another_basis_is_not_believed(tmp_path):
    """Another LAPACK may choose other signs: then the file has no covariance."""
    _, _, _, result = recovered()
    result.standard_error([[0, 0, 0]])
    (kept,) = result.uncertainty.kept()
    other = lt.Uncertainty.of_kept(result.X, (replace(kept, probe=-kept.probe),))
    with pytest.raises(ValueError, match="with_measurements"):
        other.standard_error([[0, 0, 0]])
    same = lt.Uncertainty.of_kept(result.X, (kept,))
    assert same.standard_error([[0, 0, 0]]) == result.standard_error([[0, 0, 0]])


def test_what_is_not_measured_has_no_error_bar():
    """Nothing samples the last slice: its entries may be anything."""
    X = lt.random_tucker(SMALL, (1, 1, 1), seed=2)
    known = np.argwhere(np.ones(SMALL))
    known = known[known[:, 0] < 6]
    bars = lt.Uncertainty(X, lt.Problem(lt.entries(SMALL, known), X.entries(known)))
    found = bars.standard_error([[5, 0, 0], [6, 0, 0]])
    assert np.isfinite(found[0])
    assert np.isinf(found[1])
    assert bars.functional(([[6, 0, 0]], [1.0])).p_value == 1.0
    with pytest.raises(ValueError, match="do not determine X"):
        bars.sample(1)


def test_what_products_do_not_measure_has_no_error_bar(monkeypatch):
    """Few entries by solves, many by draws: those of the unsampled slice are unknown."""
    monkeypatch.setattr(information, "COSTLY", 0.0)
    X = lt.random_tucker(SMALL, (1, 1, 1), seed=2)
    known = np.argwhere(np.ones(SMALL))
    known = known[known[:, 0] < 6]
    y = X.entries(known) + 1e-3 * np.random.default_rng(0).standard_normal(len(known))
    bars = lt.Uncertainty(X, lt.Problem(lt.entries(SMALL, known), y))
    every = np.argwhere(np.ones(SMALL))
    np.testing.assert_array_equal(np.isinf(bars.standard_error(every)), every[:, 0] == 6)
    few = every[[0, 50, -1, -2]]
    np.testing.assert_array_equal(np.isinf(bars.standard_error(few)), few[:, 0] == 6)
    assert math.isinf(bars.functional(np.ones(SMALL)).standard_error)
    with pytest.raises(ValueError, match="do not determine X"):
        bars.sample(1)


def test_functionals_of_any_scale():
    _, _, _, result = recovered()
    one, tiny = (result.functional(np.full(SMALL, scale)) for scale in (1.0, 2.0**-1000))
    assert tiny.standard_error == math.ldexp(one.standard_error, -1000)
    assert tiny.p_value == one.p_value


@pytest.mark.parametrize(
    ("W", "text"),
    [
        (1j * np.ones((7, 6, 5)), "W is complex, but X is real"),
        (([[0, 0, 0]], [1j]), "W is complex, but X is real"),
        (([[0, 0, 0]], [np.nan]), "NaN or infinite"),
        (np.full((7, 6, 5), np.inf), "NaN or infinite"),
        (np.ones((5, 6, 7)), "the shape of X"),
        (([[0, 0, 0]], [1.0, 2.0]), "one value for each of the 1 rows"),
        (([[0, 0, 9]], [1.0]), "indices"),
    ],
)
def test_functionals_of_other_tensors_are_refused(W, text):
    _, _, _, result = recovered()
    with pytest.raises(ValueError, match=text):
        result.functional(W)


def test_copies_share_the_measurements():
    _, _, _, result = recovered()
    again = copy.deepcopy(result)
    np.testing.assert_array_equal(
        again.standard_error([[0, 0, 0]]), result.standard_error([[0, 0, 0]])
    )


@pytest.mark.parametrize(
    "change",
    [
        {"root": np.zeros((3, 3))}, {"left": np.full(26, np.nan)}, {"sigma": -1.0},
        {"sigma": "a"}, {"spare": -5.0}, {"power": 1.5}, {"spare": None},
    ],
)  # fmt: skip
def test_a_damaged_covariance_is_refused(tmp_path, change):
    _, _, _, result = recovered()
    result.standard_error([[0, 0, 0]])
    (kept,) = result.uncertainty.kept()
    result.uncertainty.kept = lambda: (replace(kept, **change),)
    result.save(tmp_path / "x.npz")
    with pytest.raises(FileFormatError, match="damaged"):
        lt.load(tmp_path / "x.npz")


def test_a_fit_without_spare_equations_has_no_error_bar():
    X = lt.random_tucker(SMALL, (1, 1, 1), seed=2)
    A = lt.gaussian(SMALL, m=X.degrees_of_freedom, seed=0)
    bars = lt.Uncertainty(X, lt.Problem(A, A.forward(X)))
    assert np.isinf(bars.standard_error([[0, 0, 0]])).all()
    assert bars.functional(np.ones(SMALL)).p_value == 1.0


def test_a_verdict_that_does_not_support_the_model_is_named():
    _, _, _, result = recovered()
    doubtful = replace(result, status=lt.Status.APPROXIMATED)
    for call in (
        lambda: doubtful.standard_error([[0, 0, 0]]),
        lambda: doubtful.interval([[0, 0, 0]]),
        lambda: doubtful.functional(np.ones(SMALL)),
        lambda: doubtful.sample(1),
    ):
        with pytest.warns(lt.ModelWarning, match=r"presume .* the verdict is APPROXIMATED"):
            call()


def test_other_formats_have_none():
    A = lt.gaussian((30,), m=25, seed=0)
    X = np.zeros(30)
    X[[3, 8]] = 1
    result = lt.recover(A, A.forward(X), lt.Sparse(2))
    with pytest.raises(ValueError, match="need a TuckerTensor"):
        result.interval([[0]])


def test_no_entries_have_no_errors():
    _, _, _, result = recovered()
    assert result.standard_error(np.zeros((0, 3), int)).shape == (0,)


def test_every_kind_of_array(kind):
    """Bars are arrays of the kind of X, and equal those of NumPy's."""
    problem, X, bars = bars_at("real")
    A = lt.DenseOperator(kind(problem.A.matrix), SHAPE)
    moved = lt.TuckerTensor(kind(X.core), [kind(U) for U in X.factors])
    again = lt.Uncertainty(moved, lt.Problem(A, kind(problem.y)))
    found, (low, _) = again.standard_error(INDICES), again.interval(INDICES)
    assert kind.owns(found)
    assert kind.owns(low)
    np.testing.assert_allclose(to_numpy(found), bars.standard_error(INDICES))
    np.testing.assert_allclose(to_numpy(low), bars.interval(INDICES)[0])
    W = np.ones(SHAPE)
    assert again.functional(kind(W)).p_value == pytest.approx(bars.functional(W).p_value)
    assert kind.owns(again.sample(2).core)
