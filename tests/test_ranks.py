"""Search for an unknown rank, and verdicts on a given one."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings

import numpy as np
import pytest

import lowtucker as lt
from lowtucker._array.random import Stream, generator
from lowtucker.recovery.fit import Fit
from lowtucker.recovery.growth import Gradient
from lowtucker.recovery.holdout import Candidate, Holdout
from lowtucker.recovery.rank import (
    SHARE,
    Comparison,
    _larger,
    _trimmed,
    compare_larger_rank,
    search_rank,
    smaller_rank,
)

SHAPE, RANK = (8, 8, 8), (2, 1, 2)


def split(problem, how):
    """Measurements to fit, and the held-out ones."""
    return Holdout.draw(problem, SHARE, how.seed)


def scored(X, held, how):
    return Holdout(held, held).score(X, how)


def trimmed(X, held, how):
    return _trimmed(scored(X, held, how), Holdout(held, held), how)


def tensor(shape, rank, seed, least=0.25):
    """Random tensor whose smallest singular value is well above the noise."""
    for k in range(200):
        X = lt.random_tucker(shape, rank, seed=(seed, k))
        if all(s.min() > least * s.max() for s in map(np.asarray, lt.spectra(X).values)):
            return X
    raise AssertionError("no tensor is far from a lower rank")


def make(shape=SHAPE, rank=RANK, m=None, seed=0, noise=0.0, ratio=5):
    m = m or math.ceil(ratio * lt.degrees_of_freedom(shape, rank))
    A = lt.gaussian(shape, m, seed=seed)
    X = tensor(shape, rank, seed)
    y = A.forward(X)
    e = np.random.default_rng(seed).standard_normal(m)
    return A, y + noise * np.linalg.norm(y) / np.linalg.norm(e) * e, X


def fit(**changes):
    settings = {
        "solver": "auto", "tol": 1e-6, "max_epochs": 500, "max_seconds": None, "noise_std": None,
        "X_true": None, "seed": 0, "callbacks": (), "loss": "squared",
    }  # fmt: skip
    return Fit(**(settings | changes))


def error(result, X):
    return float(lt.metrics.relative_error(result.X, X))


def held_out(weights, seed=0):
    """An eighth of the measurements that count, at least one."""
    counting = [k for k, w in enumerate(weights) if w > 0]
    drawn = generator(seed, Stream.HELD_OUT).permutation(counting)
    mask = np.zeros(len(weights), dtype=bool)
    mask[drawn[: max(1, round(len(counting) / 8))]] = True
    return mask


def spied(monkeypatch):
    """Record of all fits of a search, with all their rounds: (rank, epochs)."""
    fits = []
    call = Fit.__call__

    def recorded(self, problem, rank, **options):
        result = call(self, problem, rank, **options)
        before = options.get("before")
        fits.append((rank, result.epochs - (0 if before is None else before.epochs)))
        return result

    monkeypatch.setattr(Fit, "__call__", recorded)
    return fits


# the search


RANKS = [
    ((9, 8), (2, 2)),
    ((10, 9), (3, 3)),
    ((8, 8, 8), (2, 1, 2)),
    ((8, 9, 7), (1, 3, 3)),
    ((8, 8, 8), (3, 2, 2)),
    ((7, 7, 7), (1, 1, 1)),
    ((4, 4, 4, 4), (2, 2, 1, 2)),
    ((5, 4, 4, 5), (1, 2, 2, 1)),
]


@pytest.mark.parametrize(("shape", "rank"), RANKS)
@pytest.mark.parametrize("seed", range(2))
def test_the_rank_is_found_without_noise(shape, rank, seed):
    A, y, X = make(shape, rank, seed=seed, ratio=4)
    result = lt.recover(A, y, "auto", seed=seed)
    assert result.rank == result.X.rank == rank
    assert result.status is lt.Status.CONVERGED
    assert result.success
    assert error(result, X) < 1e-5
    assert result.m == A.m
    assert result.degrees_of_freedom == lt.degrees_of_freedom(shape, rank)
    assert result.notes[0].startswith(f"Rank {rank} was found. Held-out residuals: (1")
    assert len(result.notes) == 1  # and no smaller rank suffices


@pytest.mark.parametrize(("shape", "rank"), RANKS)
def test_the_rank_is_found_in_noise(shape, rank):
    A, y, X = make(shape, rank, noise=0.01)
    result = lt.recover(A, y, "auto")
    assert result.rank == rank
    assert error(result, X) < 0.02


def test_equal_singular_values_do_not_end_the_search_too_soon():
    """Small ranks predict almost nothing of the held-out measurements; larger ones predict all."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X = (
            np.linalg.qr(rng.standard_normal((10, 5)))[0]
            @ np.linalg.qr(rng.standard_normal((10, 5)))[0].T
        )
        A = lt.gaussian((10, 10), 250, seed=seed)
        result = lt.recover(A, A.forward(X), "auto", seed=seed)
        assert result.rank == (5, 5)
        assert result.success


def test_a_rank_without_a_search_needs_no_note():
    A, y, _ = make()
    assert lt.recover(A, y, RANK).notes == ()


def test_upper_case_is_auto_too():
    A, y, _ = make()
    assert lt.recover(A, y, "AUTO").rank == RANK


def test_the_history_is_that_of_the_search_and_the_fit(monkeypatch):
    A, y, X = make(noise=0.01)
    fits = spied(monkeypatch)
    result = lt.recover(A, y, "auto", X_true=X)
    history = result.history
    numbers, done = [], 0
    for _, epochs in fits:  # the start of a fit is where the last one ended
        numbers += range(done, done + epochs + 1)
        done += epochs
    np.testing.assert_array_equal(history.epoch, numbers)
    assert result.epochs == done
    assert (np.diff(history.passes) >= 0).all()
    assert (np.diff(history.seconds) >= 0).all()
    phases = history.phase.tolist()
    assert phases[0].startswith("rank 1,1,1 R")
    assert phases[-1].startswith("all rows R")
    heads = list(dict.fromkeys(" ".join(p.split()[:2]) for p in phases))
    assert heads[0] == "rank 1,1,1"
    assert heads[1].startswith("rank 2")
    assert heads[-1] == "all rows"
    assert result.passes > history.passes[-1]  # held-out residuals, and diagnosis
    assert history.error[-1] == pytest.approx(error(result, X), rel=1e-3)


def test_the_truth_does_not_affect_the_search():
    A, y, X = make(noise=0.01)
    plain = lt.recover(A, y, "auto")
    for truth in (X, lt.random_tucker(SHAPE, RANK, seed=9)):
        other = lt.recover(A, y, "auto", X_true=truth)
        assert other.rank == plain.rank
        assert other.status is plain.status
        assert other.notes == plain.notes
        np.testing.assert_array_equal(other.X.core, plain.X.core)
        np.testing.assert_array_equal(other.history.residual, plain.history.residual)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_intermediate_fits_do_not_use_held_out_measurements(loss):
    A, y, _ = make(noise=0.01)
    held = held_out(np.ones(A.m))
    assert held.sum() == 22
    corrupted = np.where(held & (np.arange(A.m) % 3 > 0), 1e3 * y[::-1], y)
    options = {"rank": lt.RankSearch(max=(1, 1, 1)), "loss": loss}
    one, two = lt.recover(A, y, **options), lt.recover(A, corrupted, **options)
    parts = []
    for result in (one, two):
        rows = [p.startswith("rank 1,1,1") for p in result.history.phase]
        parts.append(result.history.residual[rows])
        assert len(parts[-1]) > 3
    np.testing.assert_array_equal(*parts)
    assert one.notes != two.notes  # they score the fits
    assert one.history.residual[-1] != two.history.residual[-1]  # and are part of the final fit


def test_an_eighth_of_the_measurements_that_count_is_held_out():
    A, y, _ = make()
    given = np.random.default_rng(0).uniform(0, 1, A.m)
    for weights in (None, given, given * (np.arange(A.m) % 3 > 0)):
        for seed in (0, 5):
            problem = lt.Problem(A, y, weights)
            train, held = split(problem, fit(seed=seed))
            w = np.ones(A.m) if weights is None else weights
            mask = held_out(w, seed)
            np.testing.assert_array_equal(held.weights, np.where(mask, w, 0))
            np.testing.assert_array_equal(train.weights, np.where(mask, 0, w))
            assert train.A is held.A is A
    ones = np.ones(A.m)
    assert not np.array_equal(held_out(ones, 0), held_out(ones, 5))


@pytest.mark.parametrize(
    ("count", "held"),
    [(2, 1), (3, 1), (8, 1), (11, 1), (13, 2), (19, 2), (21, 3), (100, 12), (101, 13), (175, 22)],
)
def test_how_many_are_held_out(count, held):
    A, y, _ = make()
    drawn = set()
    for seed in range(20):
        weights = np.zeros(A.m)
        weights[np.random.default_rng(seed).permutation(A.m)[:count]] = 0.5
        train, out = split(lt.Problem(A, y, weights), fit(seed=seed))
        assert np.count_nonzero(out.weights) == held
        assert np.count_nonzero(train.weights) == count - held
        np.testing.assert_array_equal(out.weights + train.weights, weights)
        drawn.add(tuple(np.flatnonzero(out.weights)))
    assert len(drawn) > 10


def test_one_measurement_cannot_be_held_out():
    A, y, _ = make()
    assert split(lt.Problem(A, y, np.eye(A.m)[3]), fit()) is None
    assert split(lt.Problem(A.restrict([3]), y[[3]]), fit()) is None


@pytest.mark.parametrize("m", [8, 11])
def test_a_single_held_out_row_decides(m):
    """It has no standard error: any improvement counts."""
    found = 0
    for seed in range(4):
        A = lt.gaussian((2, 2), m, seed=seed)
        rng = np.random.default_rng(seed)
        y = A.forward(np.linalg.qr(rng.standard_normal((2, 2)))[0])
        result = lt.recover(A, y + 0.01 * rng.standard_normal(m), "auto", seed=seed)
        found += result.rank == (2, 2)
    assert found >= 3


# with everything else


def test_weights_leave_measurements_out():
    A, y, X = make(ratio=7)
    weights = np.random.default_rng(0).uniform(0.5, 2, A.m)
    weights[::6] = 0
    y = np.where(weights > 0, y, np.nan)
    result = lt.recover(A, y, "auto", weights=weights)
    assert result.rank == RANK
    assert result.success
    assert error(result, X) < 1e-5
    assert result.m == np.count_nonzero(weights)


def test_noise_of_known_size():
    A, y, X = make(noise=0.03, ratio=7, seed=1)
    std = 0.03 * np.linalg.norm(y) / np.sqrt(A.m)
    result = lt.recover(A, y, "auto", noise_std=std)
    assert result.rank == RANK
    assert result.status is lt.Status.NOISE_FLOOR
    assert error(result, X) < 0.04


def test_outliers_do_not_hide_the_rank():
    A, y, X = make((9, 8), (2, 2), 200, seed=1, noise=0.0)
    bad = np.zeros(200, dtype=bool)
    bad[np.random.default_rng(0).permutation(200)[:20]] = True
    corrupted = y + np.where(bad, 30 * np.std(y), 0)
    result = lt.recover(A, corrupted, "auto", loss="huber")
    assert result.rank == (2, 2)
    assert result.success
    assert error(result, X) < 1e-5
    assert (result.weights[bad] == 0).all()
    squares = lt.recover(A, corrupted, "auto")
    assert not squares.success
    assert error(squares, X) > 0.3


def test_functions():
    """Functions: neither row-separable nor with a fast tangent."""
    A, y, X = make()
    given = lt.FunctionOperator(A.forward, A.adjoint, A.shape, A.m)
    result = lt.recover(given, y, "auto")
    assert result.rank == RANK
    assert result.success
    assert error(result, X) < 1e-5


class Minimal(lt.MeasurementOperator):
    """A custom operator as in the documentation."""

    def __init__(self, rows):
        self.rows, self.m, self.shape = rows, len(rows), rows.shape[1:]

    def _forward(self, X):
        return np.einsum("mijk,ijk->m", self.rows, X)

    def _adjoint(self, v):
        return np.einsum("mijk,m->ijk", self.rows, v)


def test_custom_operators():
    A, y, X = make((5, 6, 5), (2, 2, 1))
    result = lt.recover(Minimal(A.matrix.reshape(A.m, 5, 6, 5)), y, "auto")
    assert result.rank == (2, 2, 1)
    assert error(result, X) < 1e-5


@pytest.mark.parametrize("kind", ["readonly", "torch"], indirect=True)
def test_the_rank_is_found_for_other_array_kinds(kind):
    A, y, X = make((6, 5, 5), (2, 1, 2))
    result = lt.recover(lt.DenseOperator(kind(A.matrix), A.shape), kind(y), "auto")
    assert result.rank == (2, 1, 2)
    assert result.success
    assert kind.owns(result.X.core)
    assert lt.metrics.relative_error(np.asarray(result.X.full()), X.full()) < 1e-5


@pytest.mark.parametrize("solver", ["tiht", lt.RGN(), lt.RCG(), [lt.RSGD(), lt.RGN()]], ids=repr)
def test_any_solver_can_do_the_fits(solver):
    A, y, X = make(ratio=7)
    result = lt.recover(A, y, "auto", solver=solver, max_epochs=5000)
    assert result.rank == RANK
    assert result.success
    assert error(result, X) < 1e-4
    names = {phase.split()[2] for phase in result.history.phase.tolist()}
    allowed = {"TIHT"} if solver == "tiht" else {"RGN", "RSGD"} if solver != lt.RCG() else {"RCG"}
    assert names <= allowed


def test_complex_tensors():
    A = lt.gaussian(SHAPE, 250, seed=0, dtype=np.complex128)
    X = lt.random_tucker(SHAPE, RANK, seed=1, dtype=np.complex128)
    result = lt.recover(A, A.forward(X), "auto")
    assert result.rank == RANK
    assert error(result, X) < 1e-5


# growth


@pytest.mark.parametrize("isotropic", [True, False])
def test_a_grown_start_has_the_leading_directions_outside_of_the_fit(isotropic):
    A, y, _ = make((10, 9, 8), (3, 2, 2), 700, noise=0.01)
    A = lt.DenseOperator(A.matrix, A.shape, isotropic=isotropic)
    weights = np.random.default_rng(0).uniform(0.5, 2, A.m)
    problem = lt.Problem(A, y, weights)
    small = lt.solve(problem, lt.RGN(), (2, 2, 2)).X
    gradient = Gradient.at(problem, small)
    np.testing.assert_allclose(gradient.residual, y - A.forward(small.full()), atol=1e-10)
    start = gradient.grown((3, 2, 2), 0).X
    assert start.rank == (3, 2, 2)
    G = A.adjoint(weights * gradient.residual).reshape(10, -1)
    U, V = small.factors[0], start.factors[0]
    new = np.linalg.svd(G - U @ (U.T @ G))[0][:, 0]
    assert np.linalg.norm(V.T @ U) ** 2 == pytest.approx(2)  # what was there stays
    seen = np.linalg.norm(V.T @ new)
    assert seen == pytest.approx(1) if isotropic else seen > 0.8  # a truncation stands for G
    # the step along G is the best one, but for being measured by a few rows
    before, after = (float(problem.relative_residual(Z)) for Z in (small, start))
    assert after < 0.9 * before
    assert (gradient.missing == (1, 0, 0)) if isotropic else (gradient.missing is None)


def test_directions_that_noise_shows_are_not_missing():
    A, y, _ = make((10, 9, 8), (3, 2, 2), 700, noise=0.05)
    fitted = lt.solve(lt.Problem(A, y), lt.RGN(), (3, 2, 2)).X
    assert Gradient.at(lt.Problem(A, y), fitted).missing == (0, 0, 0)
    assert min(Gradient.at(lt.Problem(A, y), None).missing) > 0


def test_a_warm_start_in_a_local_minimum_is_noticed():
    """The fit of (2, 2) is poor, and larger ones from there too; one that starts over is not."""
    truth = (1.0, 0.9, 0.2)
    stuck = (0.7, 0.6, 0.2)

    class Stuck(PrescribedFits):
        def __call__(self, problem, rank, *, start=None, label="", **options):
            cold = label.endswith("cold")
            self.tensors[3, 3] = diagonal(*(truth if cold else stuck))
            return super().__call__(problem, rank, start=start, label=label, **options)

    A = rows((N, N), 2000)
    fits = Stuck({(1, 1): diagonal(0.8), (2, 2): diagonal(0.75, 0.65)})
    found, settled = search_rank(lt.Problem(A, A.forward(diagonal(*truth))), lt.RankSearch(), fits)
    assert [label for label, *_ in fits.calls].count("rank 3,3 cold") == 1
    assert settled
    assert found.rank == (3, 3)


# limits


def test_a_largest_rank_is_respected():
    A, y, _ = make(SHAPE, (3, 2, 2), 300)
    for limit, found in (
        ((5, 5, 5), (3, 2, 2)),
        ((3, 2, 2), (3, 2, 2)),
        ((2, 2, 2), (2, 2, 2)),
        ((1, 1, 5), (1, 1, 1)),
    ):
        result = lt.recover(A, y, lt.RankSearch(max=limit))
        assert result.rank == found
        assert result.success == (found == (3, 2, 2))
        for phase in result.history.phase.tolist():
            if phase.startswith("rank"):
                tried = map(int, phase.split()[1].split(","))
                assert all(r <= n for r, n in zip(tried, limit, strict=True))
        said = "The search stopped early" in result.notes[0]
        assert said == (found != (3, 2, 2))


@pytest.mark.parametrize(
    ("limit", "exception", "message"),
    [
        ((3, 2), ValueError, r"RankSearch\(max=\(3, 2\)\): .*2 entries.*3 modes"),
        ((2, 2, 2, 2), ValueError, r"RankSearch\(max=\(2, 2, 2, 2\)\): .*4 entries"),
        ((0, 1, 1), ValueError, r"RankSearch\(max=\(0, 1, 1\)\): .*between 1 and 8"),
        ((8, 9, 8), ValueError, r"RankSearch\(max=\(8, 9, 8\)\): .*between 1 and 8"),
        (4, TypeError, r"RankSearch\(max=4\): .*one entry per mode"),
        ((2.0, 2, 2), TypeError, r"RankSearch\(max=\(2\.0, 2, 2\)\): .*integers"),
    ],
)
def test_a_wrong_limit_is_named(limit, exception, message):
    A, y, _ = make()
    with pytest.raises(exception, match=message):
        lt.recover(A, y, lt.RankSearch(max=limit))


def test_invalid_searches_are_refused():
    A, y, X = make()
    with pytest.raises(ValueError, match=r"start has a rank of its own: give rank=start\.rank"):
        lt.recover(A, y, "auto", start=X)
    with pytest.raises(ValueError, match=r'a tuple of integers or "auto", got \'foo\''):
        lt.recover(A, y, "foo")
    batch = lt.gaussian((4, 4), 40, seed=0, trials=2)
    with pytest.raises(ValueError, match=r"search for the rank takes one problem, .* \(2,\)"):
        lt.recover(batch, np.ones((2, 40)), "auto")
    with pytest.raises(ValueError, match="takes one problem"):
        lt.recover(batch, np.ones((2, 40)), lt.RankSearch(max=(2, 2)))


def test_a_search_that_ends_at_its_limit_is_not_settled():
    A, y, _ = make(SHAPE, (3, 2, 2), 300, noise=0.01)
    problem = lt.Problem(A, y)
    _, settled = search_rank(problem, lt.RankSearch(max=(2, 2, 2)), fit())
    assert not settled
    result, settled = search_rank(problem, lt.RankSearch(), fit())
    assert settled
    assert result.rank == (3, 2, 2)
    # an exact fit needs no larger rank to be settled
    problem = lt.Problem(A, A.forward(tensor(SHAPE, (3, 2, 2), 0)))
    _, settled = search_rank(problem, lt.RankSearch(max=(3, 2, 2)), fit())
    assert settled


def test_the_residual_of_a_search_at_its_limit_may_be_noise():
    A, y, X = make(noise=0.01, ratio=6)
    assert lt.recover(A, y, RANK).status is lt.Status.NOISE_FLOOR
    result = lt.recover(A, y, lt.RankSearch(max=RANK))
    assert result.rank == RANK
    assert error(result, X) < 0.02
    assert result.status is lt.Status.NOISE_FLOOR
    assert result.success
    assert "Larger ranks" not in result.notes[0]


@pytest.mark.parametrize("seed", [0])
def test_a_residual_due_to_few_measurements_is_not_called_noise(seed):
    """55 measurements to fit: enough for (1, 1, 1), with 22, not for (2, 2, 2), with 44."""
    A, y, X = make(SHAPE, (1, 1, 1), 63, seed=seed, noise=0.01)
    for rank in ((1, 1, 1), lt.RankSearch(max=(1, 1, 1)), "auto"):
        result = lt.recover(A, y, rank, seed=seed)
        assert result.rank == (1, 1, 1)
        assert error(result, X) < 0.02
        assert result.status is lt.Status.APPROXIMATED
        low, high = result.error_interval
        assert low < error(result, X) < high
    assert "The search stopped early" in result.notes[0]
    assert result.notes[1].endswith("larger ranks could not be tried.")


def test_noise_is_recognised_when_no_larger_rank_can_be_tried():
    A = lt.gaussian((6,), 40, seed=0)
    y = A.forward(np.arange(1.0, 7.0)) + 0.1 * np.random.default_rng(0).standard_normal(40)
    assert lt.recover(A, y, (1,)).status is lt.Status.NOISE_FLOOR
    assert lt.recover(A, y, "auto").status is lt.Status.NOISE_FLOOR


@pytest.mark.parametrize("n", [1, 2, 5, 20])
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_every_tried_rank_gets_its_own_epochs(monkeypatch, n, loss):
    A, y, _ = make((6, 5, 6), (2, 2, 2), 150, noise=0.01)
    fits = spied(monkeypatch)
    result = lt.recover(A, y, "auto", loss=loss, max_epochs=n)
    assert len(fits) > 2
    epochs = [epochs for _, epochs in fits]
    assert max(epochs) <= n
    assert n > 2 or epochs.count(n) > 1
    assert sum(epochs) >= result.epochs > n  # without the fits of the verdict
    assert fits[0][0] == (1, 1, 1)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_a_callback_that_requests_a_stop_once_ends_the_call(loss):
    A, y, _ = make((6, 5, 6), (2, 2, 2), 150, noise=0.01)
    calls = []

    def stop(_):
        calls.append(1)
        return len(calls) == wanted

    for wanted in (1, 2):
        calls.clear()
        result = lt.recover(A, y, "auto", loss=loss, callbacks=[stop])
        assert len(calls) == wanted
        assert result.status is lt.Status.INTERRUPTED
        assert result.notes == ("The search for the rank was not finished.",)


def test_too_few_measurements_for_the_rank_are_no_success():
    """Rank (4, 4, 4) has 160 degrees of freedom."""
    for seed in range(2):
        A, y, X = make(SHAPE, (4, 4, 4), 150, seed=seed)
        result = lt.recover(A, y, "auto", seed=seed)
        assert not result.success
        assert error(result, X) > 0.1
        assert lt.degrees_of_freedom(SHAPE, result.rank) * 1.3 <= 150


@pytest.mark.parametrize("m", [1, 2, 5, 8, 12])
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_very_few_measurements_are_no_success(m, loss):
    A, y, _ = make(m=m)
    for seed in range(3):
        with pytest.warns(lt.UnderdeterminedWarning, match=f"{m} measurements cannot determine"):
            result = lt.recover(A, y, "auto", seed=seed, loss=loss)
        assert result.rank == (1, 1, 1)
        assert result.status is lt.Status.UNDERDETERMINED
        assert not result.success
        assert "too few measurements to hold any out" in result.notes[0]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_few_measurements_of_noise_and_a_rank_that_was_given(shape, seed):
    A = lt.gaussian(shape, 8, seed=0)
    y = np.random.default_rng(0).standard_normal(8)
    result = lt.recover(A, y, (1,) * len(shape), seed=seed)
    assert result.status is lt.Status.UNDERDETERMINED
    shrunk = any(finding.kind == "nothing recovered" for finding in result.findings)
    assert shrunk or result.error_estimate > 0.3


def test_few_measurements_that_count():
    A = lt.gaussian((2, 2), 60, seed=0)
    y = np.random.default_rng(0).standard_normal(60)
    weights = (np.arange(60) < 8).astype(float)
    assert not lt.recover(A, y, (1, 1), weights=weights).success


def test_order_1():
    A = lt.gaussian((6,), 40, seed=0)
    x = np.arange(1.0, 7.0)
    result = lt.recover(A, A.forward(x), "auto")
    assert result.rank == (1,)
    assert result.success
    np.testing.assert_allclose(result.X.full(), x, rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 1), (1, 6, 1)])
def test_modes_of_length_one(shape):
    A = lt.gaussian(shape, 60, seed=0)
    x = np.arange(1.0, 1 + math.prod(shape)).reshape(shape)
    result = lt.recover(A, A.forward(x), "auto")
    assert result.rank == (1,) * len(shape)
    assert result.success
    np.testing.assert_allclose(result.X.full(), x, rtol=1e-5)


@pytest.mark.parametrize("shape", [(4, 4), (3, 4, 3), (2, 3, 2, 2)])
def test_full_rank(shape):
    A, y, X = _full(shape)
    result = lt.recover(A, y, "auto")
    assert result.rank == shape
    assert result.success
    np.testing.assert_allclose(result.X.full(), X, rtol=0, atol=1e-4)


def _full(shape):
    X = np.random.default_rng(3).standard_normal(shape)
    A = lt.gaussian(shape, 5 * math.prod(shape), seed=0)
    return A, A.forward(X), X


def test_zero():
    A, y, _ = make()
    result = lt.recover(A, 0 * y, "auto")
    assert result.rank == (1, 1, 1)
    assert result.success
    assert np.abs(result.X.full()).max() == 0


@pytest.mark.parametrize("seed", [0])
@pytest.mark.parametrize(("shape", "m"), [((6, 5, 6), 150), ((9, 8), 160)])
def test_noise_alone_has_no_rank(shape, m, seed):
    A = lt.gaussian(shape, m, seed=seed)
    result = lt.recover(A, np.random.default_rng(50 + seed).standard_normal(m), "auto", seed=seed)
    assert result.status is lt.Status.LOCAL_MINIMUM
    assert result.error_estimate is None
    assert any(note.startswith("Nothing was recovered") for note in result.notes)
    assert math.prod(result.rank) <= 8
    assert result.residual > 0.6


# candidates


def candidates(seed=0, noise=0.05, weighted=False):
    A, y, X = make(SHAPE, (2, 2, 2), 300, seed=seed, noise=noise)
    weights = np.random.default_rng(1).uniform(0.5, 2, 300) if weighted else None
    _, held = split(lt.Problem(A, y, weights), fit())
    return X, held, fit()


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_and_standard_errors(weighted):
    X, held, how = candidates(weighted=weighted)
    small = lt.hosvd(X, (1, 1, 1))
    mask = held_out(np.ones(300))
    w = held.weights
    assert weighted == (len(set(w[mask])) > 1)
    losses = {}
    for name, Z in (("X", X), ("small", small)):
        candidate = scored(Z, held, how)
        unit = np.sum(w * held.y**2)
        losses[name] = (w * (held.y - held.A.forward(Z.full())) ** 2)[mask] / unit
        np.testing.assert_allclose(candidate.losses, losses[name], rtol=1e-9)
        whole = np.sum((w * held.y**2)[mask]) / unit
        assert candidate.score == pytest.approx(np.sqrt(np.sum(losses[name]) / whole))
    more = losses["small"] - losses["X"]
    expected = more.mean() / (np.sqrt(np.mean((more - more.mean()) ** 2)) / np.sqrt(len(more)))
    big, little = scored(X, held, how), scored(small, held, how)
    assert little.worse_by(big) == pytest.approx(expected)
    assert big.worse_by(little) == pytest.approx(-expected)
    assert big.worse_by(big) == 0
    assert expected > 1
    assert big.beats(little)
    assert not little.beats(big)
    assert not big.beats(big)


def test_to_beat_takes_two_hundredths_and_a_standard_error():
    X, _, _ = candidates()
    old = Candidate(X, np.array([1.0, 1.0, 1.0, 1.0]), 1.0)
    better = np.array([0.0, 0.1, 0.2, 0.1])
    assert Candidate(X, better, 0.97).beats(old)
    assert not Candidate(X, better, 0.99).beats(old)
    scattered = np.array([-2.0, 4.0, -2.0, 3.0])  # better by a quarter, give or take 1.4
    assert not Candidate(X, scattered, 0.5).beats(old)
    assert Candidate(X, better, 0.979).beats(old)
    assert not Candidate(X, better, 0.981).beats(old)
    for mean in (0.1, 0.24, 0.26, 0.4):  # a standard error is a quarter
        losses = 3.0 - mean + np.array([-1.0, 1.0] * 8)
        assert Candidate(X, losses, 0.5).beats(old._replace(losses=np.full(16, 3.0))) == (
            mean > 0.25
        )


def test_without_a_standard_error_every_difference_counts():
    X, _, _ = candidates()
    one, two = (Candidate(X, np.array([x, x, x]), x) for x in (1.0, 2.0))
    assert two.worse_by(one) == math.inf
    assert one.worse_by(two) == -math.inf
    assert one.worse_by(one) == 0
    assert one.beats(two)
    assert not two.beats(one)


def padded(X, rank, size, seed=0):
    """Tensor with more directions, of a given size relative to its own."""
    rng = np.random.default_rng(seed)
    core = size * float(X.norm()) * rng.standard_normal(rank) / math.sqrt(math.prod(rank))
    core[tuple(slice(0, r) for r in X.rank)] += X.core
    factors = [
        np.linalg.qr(np.hstack([U, rng.standard_normal((U.shape[0], r - U.shape[1]))]))[0]
        for U, r in zip(X.factors, rank, strict=True)
    ]
    for U, V in zip(factors, X.factors, strict=True):
        U[:, : V.shape[1]] = V
    return lt.TuckerTensor(core, factors)


def test_directions_that_are_not_missed_are_dropped():
    dropped, seeds = 0, 24
    for seed in range(seeds):
        X, held, how = candidates(seed)
        whole = padded(X, (3, 4, 3), 0.01)
        assert whole.rank == (3, 4, 3)
        found = trimmed(whole, held, how)
        assert all(2 <= r <= n for r, n in zip(found.X.rank, (3, 4, 3), strict=True))
        dropped += 10 - sum(found.X.rank)
        assert float(lt.metrics.relative_error(found.X, X)) < 0.05
        again = scored(found.X, held, how)
        assert found.score == pytest.approx(again.score)
        np.testing.assert_allclose(found.losses, again.losses, rtol=1e-6)
    assert dropped > 0.7 * seeds * 4  # one in six is better by more than a standard error by chance


def test_directions_that_are_missed_stay():
    for seed in range(3):
        X, held, how = candidates(seed, noise=0.0)
        found = trimmed(X, held, how)
        assert found.X.rank == (2, 2, 2)
        assert float(lt.metrics.relative_error(found.X, X)) < 1e-12


def test_directions_below_the_tolerance_are_not_missed():
    X, held, how = candidates(noise=0.0)
    found = trimmed(padded(X, (3, 3, 3), 1e-8), held, how)
    assert found.X.rank == (2, 2, 2)


def test_the_next_rank_to_try():
    A = lt.gaussian(SHAPE, 500, seed=0)

    def larger(rank, limit=SHAPE, rows=500, trimmed=()):
        weights = (np.arange(500) < rows).astype(float)
        return _larger(rank, limit, lt.Problem(A, np.ones(500), weights), set(trimmed))

    assert larger((0, 0, 0)) == (1, 1, 1)
    assert larger((1, 1, 1)) == (2, 2, 2)
    assert larger((3, 3, 3)) == (4, 4, 4)
    assert larger((4, 4, 4)) == (6, 6, 6)  # 0.4 of 4 is two; 1.3 * 252 rows are there
    assert larger((4, 4, 4), rows=300) == (5, 5, 5)  # 1.3 * 170 = 221
    assert larger((4, 4, 4), rows=220) is None
    assert larger((1, 1, 1), limit=(1, 3, 3)) == (1, 2, 2)
    assert larger((2, 2, 2), limit=(2, 2, 2)) is None
    assert larger((1, 1, 1), limit=(1, 1, 8)) is None  # no tensor has (1, 1, 2)
    # not all modes: 1.3 dof are 117 for (3, 3, 3) and 69 for (3, 2, 2)
    dof = [lt.degrees_of_freedom(SHAPE, r) for r in ((3, 3, 3), (3, 2, 2))]
    assert larger((2, 2, 2), rows=math.ceil(1.3 * dof[0])) == (3, 3, 3)
    assert larger((2, 2, 2), rows=math.ceil(1.3 * dof[0]) - 1, trimmed={1, 2}) == (3, 2, 2)
    assert larger((2, 2, 2), rows=math.ceil(1.3 * dof[1]) - 1, trimmed={1, 2}) is None


class PrescribedFits:
    """A fit that returns prescribed tensors, by rank."""

    solver, tol, seed, loss = "rgn", 1e-6, 0, "squared"

    def __init__(self, tensors, statuses=None):
        self.tensors, self.statuses, self.calls = tensors, statuses or {}, []
        self.losses = fit().losses

    def __call__(self, problem, rank, *, start=None, solver=None, before=None, label=""):
        self.calls.append((label, rank, problem, start))
        X = start if label == "all rows" else self.tensors[rank]
        status = self.statuses.get(rank, lt.Status.STALLED)
        return result_of(X, status, 0.5)

    @property
    def tried(self):
        warm = [rank for label, rank, _, _ in self.calls if re.fullmatch(r"rank \S+", label)]
        return [rank[0] for rank in warm]


N = 6  # degrees of freedom of rank r: 11, 20, 27, 32, 35, 36


def diagonal(*values):
    """Matrix with these singular values, of their number as rank."""
    return lt.TuckerTensor(np.diag(values), [np.eye(N)[:, : len(values)]] * 2)


def rows(shape, m):
    """Operator that does not tell by the gradient how many directions are missing."""
    return lt.DenseOperator(lt.gaussian(shape, m, seed=0).matrix, shape, isotropic=False)


def searched(values, tensors, m=2000, limit=None, statuses=None):
    """Result of a search over prescribed fits, whether it is settled, and its fits."""
    A = rows((N, N), m)
    y = A.forward(diagonal(*values))
    prescribed = PrescribedFits(
        {(len(t),) * 2 if r is None else (r, r): diagonal(*t) for r, t in tensors}, statuses
    )
    found, settled = search_rank(lt.Problem(A, y), lt.RankSearch(max=limit), prescribed)
    assert len([1 for label, *_ in prescribed.calls if label == "all rows"]) == 1
    return found, settled, prescribed


# fits of (1, 1) and (2, 2) that get better, and fits of larger ranks that do not, although they
# need all their directions
TRUTH = (1.0, 0.9, 0.2, 0.2, 0.15, 0.15)
FIRST = [(None, (1.0,)), (None, (1.0, 0.9))]
MISS = [(None, (0.7, 0.6, 0.2)), (None, (0.7, 0.6, 0.2, 0.2)), (None, (0.6, 0.6, 0.2, 0.2, 0.15))]


def test_two_larger_ranks_in_a_row_that_are_not_better_settle_the_rank():
    found, settled, prescribed = searched(TRUTH, FIRST + MISS)
    assert prescribed.tried == [1, 2, 3, 4]
    assert settled
    assert found.rank == (2, 2)
    assert "Larger ranks" not in found.notes[0]


def test_a_larger_rank_that_is_better_restarts_the_count():
    better = (None, (1.0, 0.9, 0.2, 0.2))
    _, settled, prescribed = searched(TRUTH, [*FIRST, MISS[0], better, MISS[2], (6, TRUTH)])
    assert prescribed.tried == [1, 2, 3, 4, 6]  # 0.4 of 4 is two
    assert settled  # exact
    tail = [(None, (0.7, 0.6, 0.2, 0.2, 0.15, 0.15))]
    found, settled, prescribed = searched(TRUTH, [*FIRST, MISS[0], better, *tail])
    assert prescribed.tried == [1, 2, 3, 4, 6]
    assert settled  # there is nothing larger, and one was tried
    assert found.rank == (4, 4)


def test_ranks_that_are_not_better_are_counted_in_a_row():
    truth = (1.0, 0.2, 0.2, 0.2, 0.1, 0.1)
    tensors = [truth[:1], (0.6, 0.2), truth[:3], (0.6, 0.2, 0.2, 0.2), truth]
    found, settled, prescribed = searched(truth, [(None, values) for values in tensors])
    assert prescribed.tried == [1, 2, 3, 4, 6]
    assert settled
    assert found.rank == (6, 6)


@pytest.mark.parametrize("down", [(1.0, 0.9, -0.1), (0.9, 0.8), (1.0,), (0.9,)])
def test_a_larger_fit_that_is_trimmed_to_the_rank_or_below_settles_it(down):
    found, settled, prescribed = searched(TRUTH, [*FIRST, (3, down)])
    assert prescribed.tried == [1, 2, 3]
    assert settled
    assert found.rank == (2, 2)


def test_a_fit_that_is_smaller_in_one_mode_and_larger_in_another_settles_nothing():
    def entries(*places):
        core = np.zeros((3, 3, 3))
        for place, value in places:
            core[place] = value
        return core

    one, two, three = ((0, 0, 0), 1.0), ((1, 0, 1), 0.4), ((0, 1, 1), 0.15)
    A = rows((3, 3, 3), 8000)
    problem = lt.Problem(A, A.forward(entries(one, two, three)))
    other = lt.hosvd(entries(((0, 0, 0), 0.8), three), (1, 2, 2))
    prescribed = PrescribedFits({
        (1, 1, 1): lt.hosvd(entries(one), (1, 1, 1)),
        (2, 2, 2): lt.hosvd(entries(one, two), (2, 1, 2), warn=False),
        (3, 2, 3): other,
        (3, 3, 3): lt.hosvd(entries(one, two, three), (2, 2, 2)),
    })  # fmt: skip
    _, held = split(problem, prescribed)
    assert trimmed(other, held, prescribed).X.rank == (1, 2, 2)
    found, settled = search_rank(problem, lt.RankSearch(), prescribed)
    assert [(label, rank) for label, rank, _, _ in prescribed.calls] == [
        ("rank 1,1,1", (1, 1, 1)),
        ("rank 2,2,2", (2, 2, 2)),
        ("rank 3,2,3", (3, 2, 3)),
        ("rank 3,2,3 cold", (3, 2, 3)),  # it is not better: is it a local minimum?
        ("rank 3,3,3", (3, 3, 3)),
        ("all rows", (2, 2, 2)),
    ]
    assert settled
    assert found.rank == (2, 2, 2)


@pytest.mark.parametrize(("last", "poor"), [(0.27, False), (0.34, True)])
def test_a_rank_that_predicts_little_is_not_settled_by_misses(last, poor):
    """Held-out residuals of about 0.26 and 0.32."""
    truth = (1.0, last)
    misses = [(r, (0.4, *(0.2,) * (r - 1))) for r in (3, 4, 5, 6)]
    found, settled, prescribed = searched(truth, [(1, (1.0,)), (2, (0.3, last)), *misses])
    score = float(re.search(r"\(1, 1\) ([0-9.]+)", found.notes[0])[1])
    assert poor == (score >= 0.3)
    assert 0.24 < score < 0.36
    assert settled == (not poor)
    assert prescribed.tried == ([1, 2, 3] if not poor else [1, 2, 3, 4, 6])
    assert ("The search stopped early" in found.notes[0]) == poor


def test_a_largest_rank_settles_a_search_that_predicts_well():
    for limit in ((2, 2), (3, 2), (2, 5)):  # no matrix has rank (3, 2)
        found, settled, prescribed = searched(TRUTH, FIRST, limit=limit)
        assert prescribed.tried == [1, 2]
        assert settled
        assert found.rank == (2, 2)
    _, settled, prescribed = searched(TRUTH, FIRST, limit=(1, 1))
    assert prescribed.tried == [1]
    assert not settled  # it predicts too little


def test_a_lack_of_measurements_does_not_settle_a_search_unless_a_larger_rank_was_tried():
    # 1.3 measurements per degree of freedom, in seven eighths: 30 rows for (2, 2), 41 for (3, 3)
    truth = (1.0, 0.9, 0.3)
    _, settled, prescribed = searched(truth, FIRST, m=38)
    assert prescribed.tried == [1, 2]
    assert not settled
    found, settled, prescribed = searched(truth, [*FIRST, (3, (1.0, 0.4, 0.3))], m=44)
    assert "(2, 2) 0.21, (3, 3) 0.32" in found.notes[0]  # it is not trimmed
    assert prescribed.tried == [1, 2, 3]
    assert settled
    assert found.rank == (2, 2)


def test_an_exact_fit_settles_at_once():
    found, settled, prescribed = searched((1.0, 0.5), [(1, (1.0,)), (2, (1.0, 0.5))])
    assert prescribed.tried == [1, 2]
    assert settled
    assert found.rank == (2, 2)


def test_the_time_limit_ends_the_search_with_the_best_result_so_far():
    A = rows((N, N), 2000)
    problem = lt.Problem(A, A.forward(diagonal(*TRUTH)))
    tensors = {(len(t), len(t)): diagonal(*t) for _, t in FIRST + MISS}
    prescribed = PrescribedFits(tensors, {(2, 2): lt.Status.MAX_SECONDS})
    found, settled = search_rank(problem, lt.RankSearch(), prescribed)
    assert prescribed.tried == [1, 2]
    assert not settled
    assert found.rank == (2, 2)
    assert prescribed.calls[-1][0] == "all rows"
    prescribed = PrescribedFits(tensors, {(3, 3): lt.Status.INTERRUPTED})
    found, settled = search_rank(problem, lt.RankSearch(), prescribed)
    assert prescribed.tried == [1, 2, 3]
    assert prescribed.calls[-1][0] == "rank 3,3"  # nothing is fitted after that
    assert not settled
    assert found.status is lt.Status.INTERRUPTED
    assert found.notes == ("The search for the rank was not finished.",)


def test_the_epoch_limit_of_a_fit_does_not_end_the_search():
    _, settled, prescribed = searched(
        TRUTH, FIRST + MISS, statuses=dict.fromkeys([(1, 1), (3, 3)], lt.Status.MAX_EPOCHS)
    )
    assert prescribed.tried == [1, 2, 3, 4]
    assert settled


def noisy(m, seed, second, noise=0.2):
    """Matrix of singular values 1 and ``second``, its measurements, and those held out."""
    A = lt.gaussian((N, N), m, seed=seed)
    y = A.forward(diagonal(1.0, second))
    problem = lt.Problem(A, y + noise * np.random.default_rng(seed).standard_normal(m))
    mask = held_out(np.ones(m))
    r = [(problem.y - A.forward(diagonal(*v).full()))[mask] for v in ((1.0,), (1.0, second))]
    more = r[0] ** 2 - r[1] ** 2
    errors = more.mean() / (more.std() / np.sqrt(len(more)))
    return problem, errors, np.linalg.norm(r[1]) / np.linalg.norm(r[0])


def test_a_direction_is_missed_by_more_than_a_standard_error():
    kinds = set()
    for seed in range(60):
        problem, errors, _ = noisy(200, seed, 0.1)
        if min(abs(errors - 1), abs(errors)) < 0.02:
            continue
        _, held = split(problem, fit())
        found = trimmed(diagonal(1.0, 0.1), held, fit())
        assert found.X.rank == ((2, 2) if errors > 1 else (1, 1))
        kinds.add(math.floor(min(max(errors, -1), 2) * 2))
    assert kinds >= {-1, 0, 1, 2, 3, 4}


def test_directions_are_missed_together():
    """Each may improve by less than a standard error: they are compared with the best so far."""
    values, matters = (1.0, 0.1, 0.09, 0.08), 0
    for seed in range(40):
        A = lt.gaussian((N, N), 200, seed=seed)
        y = A.forward(diagonal(*values)) + 0.2 * np.random.default_rng(seed).standard_normal(200)
        mask = held_out(np.ones(200))
        losses = [(y - A.forward(diagonal(*values[:r]).full()))[mask] ** 2 for r in range(1, 5)]

        def errors(one, other, losses=losses):
            more = losses[one - 1] - losses[other - 1]
            return more.mean() / (more.std() / np.sqrt(len(more)))

        rank, steps = 4, 4
        while rank > 1:
            best = min(range(rank, 5), key=lambda r: losses[r - 1].sum())
            if errors(rank - 1, best) > 1:
                break
            rank -= 1
        while steps > 1 and errors(steps - 1, steps) <= 1:
            steps -= 1
        matters += rank != steps
        _, held = split(lt.Problem(A, y), fit())
        found = trimmed(diagonal(*values), held, fit())
        assert found.X.rank == (rank, rank)
    assert matters > 2


@pytest.mark.parametrize(
    ("m", "sizes"), [(120, np.linspace(0.02, 0.4, 20)), (8000, np.linspace(0.02, 0.2, 19))]
)
def test_a_larger_rank_must_be_better_by_a_tenth_and_two_standard_errors(m, sizes):
    kinds, close = set(), set()
    for k, second in enumerate(sizes.tolist()):
        problem, errors, ratio = noisy(m, k, second)
        given, larger = diagonal(1.0), diagonal(1.0, second)
        prescribed = PrescribedFits({(1, 1): given, (2, 2): larger})
        found = compare_larger_rank(problem, result_of(given, lt.Status.STALLED, 0.5), prescribed)
        clearly = errors > 2 and ratio < 0.9
        assert found.clearly == found.larger((1, 1)) == clearly
        assert found.rank == (2, 2) or not clearly
        assert found.best / found.score == pytest.approx(ratio) or found.rank == (1, 1)
        near = (errors > 1.5 and ratio < 0.95) != (errors > 2.5 and ratio < 0.85)
        assert bool(found.findings) == near
        kinds.add((bool(errors > 2), bool(ratio < 0.9)))
        close.add(near)
        assert [call[1] for call in prescribed.calls] == [(1, 1), (2, 2)]
        mask = held_out(np.ones(m))
        for _, _, train, _ in prescribed.calls:
            np.testing.assert_array_equal(train.weights, np.where(mask, 0, 1))
        assert prescribed.calls[0][3] is given  # its fit starts from there
    assert kinds >= {(True, True), (False, False), (False, True) if m == 120 else (True, False)}
    assert close == {True, False}


# verdicts


def result_of(X, status, residual=0.0, estimate=None):
    A = lt.gaussian(X.shape, 40, seed=0)
    base = lt.recover(A, np.ones(40), (1,) * len(X.shape), max_epochs=1)
    return dataclasses.replace(
        base, X=X, rank=X.rank, status=status, residual=residual, error_estimate=estimate
    )


def test_smaller_rank_drops_what_is_below_the_error():
    values = np.array([3.0, 1.0, 1e-2, 1e-5])
    X = lt.hosvd(np.diag(values), (4, 4))
    size = np.linalg.norm(values)
    for share in (1e-8, 2e-6, 1e-4, 3.1e-3, 3.3e-3, 0.1, 0.3, 0.4):
        tails = [np.linalg.norm(values[r:]) for r in range(5)]
        r = next(r for r in (1, 2, 3, 4) if tails[r] <= share * size)
        expected = None if r == 4 else (r, r)
        stuck = result_of(X, lt.Status.STALLED, 0.5, share)
        assert smaller_rank(stuck) == expected
        exact = result_of(X, lt.Status.CONVERGED, share / 10, 0.77)
        assert smaller_rank(exact) == expected
    assert smaller_rank(result_of(X, lt.Status.STALLED, 0.5, None)) is None
    assert smaller_rank(result_of(X, lt.Status.CONVERGED, 0.0)) is None


def test_smaller_rank_of_every_mode():
    X = padded(tensor(SHAPE, (2, 3, 2), 0), (3, 4, 5), 1e-6)
    assert smaller_rank(result_of(X, lt.Status.CONVERGED, 1e-6)) == (2, 3, 2)
    assert smaller_rank(result_of(X, lt.Status.CONVERGED, 1e-9)) is None


def test_compare_larger_rank():
    A, y, _ = make(SHAPE, (3, 2, 2), 350, noise=0.01, seed=1)
    problem = lt.Problem(A, y)
    small = lt.solve(problem, lt.RGN(), (2, 2, 2))
    found = compare_larger_rank(problem, small, fit())
    assert (found.rank, found.clearly, found.larger((2, 2, 2))) == ((3, 2, 2), True, True)
    assert found.best < 0.02 < 0.1 < found.score
    right = lt.solve(problem, lt.RGN(), (3, 2, 2))
    found = compare_larger_rank(problem, right, fit())
    assert not found.clearly
    assert not found.larger((3, 2, 2))
    assert found.score == pytest.approx(0.01, rel=0.3)
    # a local minimum: the larger fit is far better, and needs no larger rank
    worse = lt.TuckerTensor(-right.X.core, right.X.factors)
    local = PrescribedFits({(3, 2, 2): worse, (4, 3, 3): right.X})
    found = compare_larger_rank(problem, right, local)
    assert (found.rank, found.clearly, found.larger((3, 2, 2))) == ((3, 2, 2), True, False)
    prescribed = PrescribedFits({(2, 2, 2): small.X, (3, 3, 3): right.X})
    found = compare_larger_rank(problem, small, prescribed)
    assert (found.rank, found.clearly) == ((3, 2, 2), True)
    # 2.8 measurements per degree of freedom of (3, 3, 3) are 202, in seven eighths of all
    keep = np.arange(220)
    few = lt.Problem(A.restrict(keep), y[keep])
    assert compare_larger_rank(few, lt.solve(few, lt.RGN(), (2, 2, 2)), fit()) == Comparison(None)


def test_there_is_no_larger_rank_than_the_full_one():
    A, y, _ = _full((3, 3))
    problem = lt.Problem(A, y + np.random.default_rng(0).standard_normal(A.m))
    result = lt.solve(problem, lt.RGN(), (3, 3))
    assert compare_larger_rank(problem, result, fit()) == Comparison(None)


@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("seed", [0])
def test_a_rank_one_too_small_is_called_too_small(seed, noise):
    A, y, _ = make(SHAPE, (3, 2, 2), 400, seed=seed, noise=noise)
    result = lt.recover(A, y, (2, 2, 2), seed=seed)
    assert result.status is lt.Status.RANK_TOO_SMALL
    assert not result.success
    [note] = result.notes
    found = r"\(3, 2, 2\)" if not noise else r"\(3, [23], [23]\)"
    assert re.fullmatch(f"Rank {found} predicts held-out measurements better.", note)
    assert note in result.advice
    assert lt.recover(A, y, (3, 2, 2), seed=seed).success
    # it is the tensor of the rank that was given
    assert result.rank == result.X.rank == (2, 2, 2)
    assert result.residual == pytest.approx(
        np.linalg.norm(y - A.forward(result.X.full())) / np.linalg.norm(y)
    )
    assert "rank 3" not in " ".join(result.history.phase.tolist())


def test_only_auto_tries_a_larger_rank():
    A, y, _ = make(SHAPE, (3, 2, 2), 400)
    assert lt.recover(A, y, (2, 2, 2), solver=lt.RGN()).status is lt.Status.STALLED


@pytest.mark.parametrize(
    ("shape", "rank", "ratio"),
    [((8, 8, 8), (2, 2, 2), 8), ((8, 9, 7), (1, 3, 3), 8), ((12, 12, 12), (2, 2, 2), 5)],
)
def test_a_right_rank_is_not_called_too_small_for_noise(shape, rank, ratio):
    for seed in range(3):
        A, y, X = make(shape, rank, seed=seed, noise=0.01, ratio=ratio)
        result = lt.recover(A, y, rank, seed=seed)
        # a residual that is not recognised as noise is at least borderline
        assert result.status is lt.Status.NOISE_FLOOR or result.borderline
        assert result.status is not lt.Status.RANK_TOO_SMALL
        assert result.notes == ()
        assert error(result, X) < 0.02


def test_a_local_minimum_of_few_measurements_is_not_called_too_small():
    stuck = 0
    for m, k in ((26, 13), (26, 69), (28, 196), (36, 49)):
        X = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=(41, k), orthonormal=False)
        A = lt.gaussian((5, 5, 6), m, seed=(42, k))
        result = lt.recover(A, A.forward(X), (1, 2, 2), seed=k, max_epochs=30)
        if result.success:
            continue
        # or starts agree, as with noise, which may then have changed X by much
        assert result.status in (lt.Status.LOCAL_MINIMUM, lt.Status.UNDERDETERMINED)
        asked = [finding.changes for finding in result.findings if finding.changes]
        assert asked
        assert all(changes["m"] == 62 for changes in asked)  # 2.8 for each of 22
        stuck += 1
    assert stuck


@pytest.mark.parametrize(
    ("given", "noise"), [((3, 3, 3), 0.0), ((2, 2, 2), 0.0), ((2, 2, 2), 0.01), ((3, 1, 3), 0.05)]
)
def test_a_rank_too_large_names_the_one_that_suffices(given, noise):
    for seed in (0,):
        A, y, X = make(SHAPE, RANK, 420, seed=seed, noise=noise)
        result = lt.recover(A, y, given, seed=seed)
        assert result.success
        assert result.rank == given
        message = f"Rank {RANK} suffices: the rest of {given} is smaller than the error."
        assert result.notes == (message,)
        assert message in repr(result)
        right = lt.recover(A, y, RANK, seed=seed)
        assert right.success
        assert right.notes == ()
        assert error(right, X) < max(1e-5, noise)


def test_noise_hides_directions_that_are_smaller_than_the_error():
    """Rank (2, 2) with a second singular value of 1e-4, in noise of 1 %."""
    hits = 0
    for seed in range(4):
        U = [
            np.linalg.qr(np.random.default_rng((seed, k)).standard_normal((9, 2)))[0]
            for k in (0, 1)
        ]
        X = U[0] @ np.diag([1.0, 1e-4]) @ U[1].T
        A = lt.gaussian((9, 9), 400, seed=seed)
        y = A.forward(X)
        y = y + 0.01 * np.linalg.norm(y) / 20 * np.random.default_rng(seed).standard_normal(400)
        result = lt.recover(A, y, (2, 2))
        if not result.success:
            continue
        s = np.linalg.svd(result.X.full(), compute_uv=False)
        reported = result.notes == (
            "Rank (1, 1) suffices: the rest of (2, 2) is smaller than the error.",
        )
        assert reported == (s[1] <= result.error_estimate * np.linalg.norm(s))
        hits += reported
    assert hits


def test_verdicts_do_not_use_the_truth():
    A, y, X = make(SHAPE, (3, 2, 2), 400)
    plain = lt.recover(A, y, (2, 2, 2))
    other = lt.recover(A, y, (2, 2, 2), X_true=X)
    assert (plain.status, plain.notes) == (other.status, other.notes)
    np.testing.assert_array_equal(plain.X.core, other.X.core)


def test_verdicts_emit_no_warnings():
    """Fits of larger ranks are internal: they emit no warnings."""
    A, y, _ = make(SHAPE, (3, 2, 2), 400)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lt.recover(A, y, (1, 1, 1)).status is lt.Status.RANK_TOO_SMALL


@pytest.mark.parametrize(("shape", "rank", "m"), [((9, 8), (2, 2), 159), ((10, 9), (4, 4), 240)])
def test_noise_does_not_make_a_right_rank_too_small(shape, rank, m):
    for seed in range(2):
        A = lt.gaussian(shape, m, seed=seed)
        y = A.forward(lt.random_tucker(shape, rank, seed=1000 + seed))
        e = np.random.default_rng(seed).standard_normal(m)
        y = y + 0.01 * np.linalg.norm(y) / np.linalg.norm(e) * e
        assert lt.recover(A, y, rank).status is not lt.Status.RANK_TOO_SMALL


def test_upper_case_solvers():
    A, y, _ = make(SHAPE, (3, 2, 2), 400)
    one, two = (lt.recover(A, y, (2, 2, 2), solver=name) for name in ("auto", "AUTO"))
    assert one.status is two.status is lt.Status.RANK_TOO_SMALL
    np.testing.assert_array_equal(one.X.core, two.X.core)


@pytest.mark.parametrize(("rank", "seed"), [((2, 1, 2), 3)])
def test_outliers_and_noise_and_a_rank_that_is_not_known(rank, seed):
    m = 250
    A = lt.gaussian(SHAPE, m, seed=seed)
    X = lt.random_tucker(SHAPE, rank, seed=1000 + seed)
    y = A.forward(X)
    rng = np.random.default_rng(seed)
    e = rng.standard_normal(m)
    y = y + 0.01 * np.linalg.norm(y) / np.linalg.norm(e) * e
    bad = rng.permutation(m)[: m // 10]
    y[bad] += 10 * y.std() * rng.choice([-1, 1], len(bad)) * rng.uniform(1, 2, len(bad))
    result = lt.recover(A, y, "auto", loss="huber")
    assert error(result, X) < 0.02
    assert (result.weights[bad] == 0).all()


def test_a_search_in_large_units():
    A = lt.gaussian((6, 5, 6), 150, seed=0)
    y = A.forward(lt.random_tucker((6, 5, 6), (2, 2, 2), seed=1000))
    y = y + 0.01 * np.random.default_rng(0).standard_normal(150)
    assert lt.recover(A, y, "auto").rank == (2, 2, 2)
    assert lt.recover(A, 1e80 * y, "auto").rank == (2, 2, 2)
