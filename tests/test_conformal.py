"""Conformal intervals: coverage, the scale of slices, levels, files, units."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.estimators import TuckerImputer
from lowtucker.lab.bench.coverage_real import covered, rows
from lowtucker.lab.bench.datasets import Holes
from lowtucker.uncertainty import conformal
from lowtucker.uncertainty.conformal import Calibration


def nearly_low_rank(shape=(14, 12, 10), noise=0.1, loud=3.0, seed=0):
    """Tensor with a decaying spectrum, and noise that is larger in some slices."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape)
    for k, n in enumerate(shape):
        Q, _ = np.linalg.qr(rng.standard_normal((n, n)))
        X = np.moveaxis(np.tensordot(Q * 0.5 ** np.arange(n), X, (1, k)), 0, k)
    scale = np.where(np.arange(shape[0]) < shape[0] // 3, loud, 1.0)[:, None, None]
    return X / X.std() + noise * scale * rng.standard_normal(shape)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_quantile_covers_exactly_as_often_as_it_should(monkeypatch, level):
    """Of n + 1 exchangeable numbers each is as likely to be the new one: all are counted."""
    monkeypatch.setattr(conformal, "PRIOR", 1e300)  # all scales are 1
    sizes = np.random.default_rng(0).standard_normal(19) ** 3
    where = np.zeros((18, 1), dtype=int)
    covered = 0
    for new in range(19):
        made = Calibration.of((1,), where, np.delete(sizes, new))
        covered += abs(sizes[new]) <= made.half_width([[0]], level)[0]
    assert covered == np.ceil(round(19 * level, 9))


def test_slices_with_tenfold_noise_have_tenfold_scales():
    rng = np.random.default_rng(0)
    shape, quiet = (12, 9, 8), np.ones(12)
    loud = np.where(np.arange(12) == 5, 10.0, quiet)
    where = np.array(list(itertools.product(*map(range, shape))))
    residuals = loud[where[:, 0]] * rng.standard_normal(len(where))
    made = Calibration.of(shape, where, residuals)
    first = made.effects[0] / np.median(made.effects[0])
    assert 5 < first[5] < 12
    assert np.all(np.delete(first, 5) < 1.6)
    assert np.all(np.delete(first, 5) > 0.6)
    for effect in made.effects[1:]:
        assert np.all(np.abs(effect - 1) < 0.4)


def test_outliers_do_not_decide_the_scales():
    rng = np.random.default_rng(0)
    where = rng.integers(0, (6, 5), (600, 2))
    residuals = rng.standard_normal(600)
    before = Calibration.of((6, 5), where, residuals)
    residuals[17] = 1e9
    after = Calibration.of((6, 5), where, residuals)
    assert np.allclose(before.scale(where), after.scale(where), rtol=0.1)
    ratio = after.half_width(where, 0.9) / before.half_width(where, 0.9)
    assert np.all(np.abs(ratio - 1) < 0.15)


def test_few_residuals_leave_scales_near_one():
    made = Calibration.of((4, 4), np.array([[0, 0], [1, 1], [2, 2]]), np.array([1e-3, 1.0, 30.0]))
    assert all(np.all((effect > 0.8) & (effect < 1.3)) for effect in made.effects)


def test_zero_residuals_give_zero_widths():
    made = Calibration.of((3, 3), np.zeros((20, 2), dtype=int), np.zeros(20))
    assert np.array_equal(made.half_width([[0, 0], [2, 2]], 0.9), [0, 0])


def test_complex_residuals_count_by_their_size():
    rng = np.random.default_rng(0)
    where = rng.integers(0, (4, 4), (50, 2))
    z = rng.standard_normal(50) + 1j * rng.standard_normal(50)
    made, plain = Calibration.of((4, 4), where, z), Calibration.of((4, 4), where, np.abs(z))
    assert np.array_equal(made.scores, plain.scores)


def test_levels():
    made = Calibration.of((2,), np.arange(9)[:, None] % 2, np.arange(1.0, 10.0))
    assert made.quantile(0.9) == made.scores[-1]
    assert made.quantile(0.1) == made.scores[0]
    with pytest.raises(ValueError, match=r"level=0.95 needs at least 19 held-out .* are 9\. Try"):
        made.half_width([[0]], 0.95)
    with pytest.raises(ValueError, match="between 0 and 1"):
        made.half_width([[0]], 1.0)
    with pytest.raises(ValueError, match="from 0 to 1 in mode 0"):
        made.half_width([[2]], 0.5)
    widths = [made.half_width([[0]], level)[0] for level in (0.2, 0.5, 0.6827, 0.9)]
    assert widths == sorted(widths)
    assert made.standard_error([[0]])[0] == widths[2]


def test_scores_in_disorder_are_refused():
    with pytest.raises(ValueError, match="ascending"):
        Calibration(np.array([2.0, 1.0]), (np.ones(3),))


@pytest.fixture(scope="module")
def completed():
    truth = nearly_low_rank()
    hidden = np.random.default_rng(1).random(truth.shape) < 0.4
    return truth, hidden, lt.complete(np.where(hidden, np.nan, truth))


def test_intervals_cover_hidden_entries(completed):
    """With n = 300 scores and 670 entries the coverage has a standard deviation of 0.02."""
    truth, hidden, result = completed
    where = np.argwhere(hidden)
    assert result.status is lt.Status.APPROXIMATED
    low, high = result.interval(where, 0.9)
    inside = (low <= truth[hidden]) & (truth[hidden] <= high)
    assert 0.8 < np.mean(inside) < 0.99
    loud = where[:, 0] < 4
    assert np.mean(inside[loud]) > 0.75
    assert np.mean((high - low)[loud]) > 1.5 * np.mean((high - low)[~loud])
    narrow = result.interval(where, 0.5)
    assert 0.35 < np.mean((narrow[0] <= truth[hidden]) & (truth[hidden] <= narrow[1])) < 0.65


def test_calibration_survives_a_file(completed, tmp_path):
    _, _, result = completed
    result.save(tmp_path / "result.npz")
    again = lt.load(tmp_path / "result.npz")
    where = [[0, 0, 0], [13, 11, 9]]
    assert np.array_equal(
        again.interval(where, method="conformal"), result.interval(where, method="conformal")
    )
    assert np.array_equal(again.calibration.scores, result.calibration.scores)


@pytest.mark.parametrize("power", [-700, 700])
def test_intervals_have_the_units_of_the_data(power):
    truth = nearly_low_rank((8, 7, 6))
    array = np.where(np.random.default_rng(1).random(truth.shape) < 0.3, np.nan, truth)
    where = np.argwhere(np.isnan(array))
    width = lt.complete(array).calibration.half_width(where, 0.9)
    moved = lt.complete(np.ldexp(array, power)).calibration.half_width(where, 0.9)
    assert np.allclose(np.ldexp(moved, -power), width, rtol=1e-6)


def test_with_a_rank_the_held_out_samples_calibrate():
    truth = lt.random_tucker((12, 11, 10), (2, 2, 2), seed=0).full()
    rng = np.random.default_rng(0)
    noisy = truth + 0.1 * truth.std() * rng.standard_normal(truth.shape)
    hidden = rng.random(truth.shape) < 0.3
    result = lt.complete(np.where(hidden, np.nan, noisy), (2, 2, 2), held_out=0.3)
    assert len(result.calibration.scores) == round(0.3 * np.count_nonzero(~hidden))
    low, high = result.interval(np.argwhere(hidden), 0.9, method="conformal")
    assert 0.82 < np.mean((low <= noisy[hidden]) & (noisy[hidden] <= high)) < 0.97
    ratio = result.calibration.standard_error([[0, 0, 0]])[0] / (0.1 * truth.std())
    assert 0.6 < ratio < 1.7


def test_duplicates_of_samples_that_were_fitted_do_not_calibrate():
    truth = lt.random_tucker((8, 8, 8), (1, 1, 1), seed=0).full()
    where = np.argwhere(np.random.default_rng(0).random(truth.shape) < 0.5)
    twice = np.concatenate([where, where[: len(where) // 2]])
    y = truth[tuple(twice.T)]
    result = lt.complete(y, (1, 1, 1), indices=twice, shape=truth.shape, held_out=0.2)
    assert 0 < len(result.calibration.scores) < 0.2 * len(twice) - 10


def test_no_calibration_where_nothing_was_held_out():
    truth = lt.random_tucker((6, 5, 4), (1, 1, 1), seed=0).full()
    result = lt.complete(truth, (1, 1, 1), held_out=0)
    assert result.calibration is None
    with pytest.raises(ValueError, match="no calibration"):
        result.interval([[0, 0, 0]], method="conformal")


def test_entries_recovered_in_other_units_have_the_same_calibration():
    """``recover`` of scaled entries: residuals are those of X, not of the rows."""
    truth = nearly_low_rank((8, 7, 6))
    where = np.argwhere(np.random.default_rng(0).random(truth.shape) < 0.7)
    y = truth[tuple(where.T)]
    A = lt.entries(truth.shape, where)
    plain = lt.recover(A, y).calibration
    scaled = lt.recover(lt.scale(A, 4.0), 4.0 * y).calibration
    assert np.allclose(scaled.standard_error(where), plain.standard_error(where), rtol=1e-6)


# The imputer


@pytest.fixture(scope="module")
def imputed():
    rng = np.random.default_rng(0)
    truth = lt.random_tucker((60, 6, 5), (2, 2, 2), seed=0).full()
    truth = truth / truth.std() + 0.1 * rng.standard_normal(truth.shape)
    holes = rng.random(truth.shape) < 0.3
    X = np.where(holes, np.nan, truth)
    imputer = TuckerImputer((2, 2, 2), return_std=True)
    return truth, holes, X, imputer, imputer.fit_transform(X[:45])


def test_imputed_values_are_within_their_standard_errors(imputed):
    truth, holes, X, imputer, (filled, std) = imputed
    assert filled.shape == std.shape == (45, 6, 5)
    assert np.all(std[~holes[:45]] == 0)
    assert np.all(std[holes[:45]] > 0)
    seen = (np.abs(filled - truth[:45]) <= std)[holes[:45]]
    assert 0.55 < np.mean(seen) < 0.82
    filled, std = imputer.transform(X[45:])
    assert 0.5 < np.mean((np.abs(filled - truth[45:]) <= std)[holes[45:]]) < 0.87


def test_standard_errors_do_not_change_what_is_filled(imputed):
    _, _, X, imputer, (filled, std) = imputed
    plain = TuckerImputer((2, 2, 2)).fit(X[:45])
    assert np.array_equal(plain.transform(X[:45]), filled)
    assert np.array_equal(plain.transform(X[45:]), imputer.transform(X[45:])[0])
    assert np.array_equal(imputer.transform(X[:45])[1], std)  # as of samples of the fit


def test_samples_with_fewer_known_entries_have_larger_standard_errors(imputed):
    truth, _, _, imputer, _ = imputed
    many, few = truth[45:46].copy(), np.full_like(truth[45:46], np.nan)
    many[0, 0, 0] = np.nan
    few[0, 1, 1] = truth[45, 1, 1]
    assert imputer.transform(few)[1][0, 0, 0] > 1.5 * imputer.transform(many)[1][0, 0, 0]


def test_standard_errors_have_the_units_of_the_data(imputed):
    """Other units are other folds: samples are in the order of their digests."""
    _, holes, X, _, (_, std) = imputed
    _, moved = TuckerImputer((2, 2, 2), return_std=True).fit_transform(1024 * X[:45])
    assert 0.7 < np.median((moved / 1024)[holes[:45]] / std[holes[:45]]) < 1.4


def test_standard_errors_do_not_depend_on_the_order_of_samples(imputed):
    _, _, X, _, (_, std) = imputed
    order = np.random.default_rng(0).permutation(45)
    _, again = TuckerImputer((2, 2, 2), return_std=True).fit_transform(X[:45][order])
    assert np.allclose(again, std[order], rtol=1e-6)


def test_standard_errors_need_a_fit_with_them(imputed):
    _, _, X, _, _ = imputed
    imputer = TuckerImputer((2, 2, 2)).fit(X[:45]).set_params(return_std=True)
    with pytest.raises(ValueError, match="Fit it again with return_std=True"):
        imputer.transform(X[:45])


def test_one_sample_has_no_standard_errors_for_new_ones():
    X = np.outer(np.ones(1), np.arange(12.0))
    imputer = TuckerImputer((1, 1), return_std=True)
    with pytest.warns(lt.UnderdeterminedWarning, match="too few for standard errors"):
        imputer.fit(X)
    new = X.copy()
    new[0, 5] = np.nan
    assert np.isnan(imputer.transform(new)[1][0, 5])


# The benchmark


def test_bench_counts_hidden_entries_within_their_intervals(completed):
    truth, hidden, result = completed
    holes = Holes(truth, hidden, np.arange(truth.size).reshape(truth.shape))
    row = covered("T1", "synthetic", holes, 0.8)
    low, high = result.interval(np.argwhere(hidden), 0.8, method="conformal")
    inside = (low <= truth[hidden]) & (truth[hidden] <= high)
    assert row.coverage == pytest.approx(np.mean(inside))
    assert row.width == pytest.approx(np.mean(high - low) / truth.std())
    assert np.mean(row.quarters) == pytest.approx(row.coverage, abs=0.01)
    assert row.hidden == np.count_nonzero(hidden)
    assert row.slices < row.slices_plain
    assert row.met == (abs(row.coverage - 0.8) <= 0.02)


def test_data_that_are_not_there_are_left_out(tmp_path):
    for row in rows(tmp_path, ["D1"]):
        assert "does not exist" in row.note
        assert np.isnan(row.coverage)
        assert row.met is None
