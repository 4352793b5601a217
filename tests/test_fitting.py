"""The Huber loss: outliers, weights, and one history of many fits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.recovery import fit as fitting
from lowtucker.recovery import robust
from lowtucker.recovery.fit import Fit, joined

SHAPE, RANK, M_ROWS = (8, 7, 6), (2, 2, 2), 240
COLUMNS = ["epoch", "passes", "seconds", "phase", "residual", "cost"]


def make(
    shape=SHAPE, rank=RANK, m=M_ROWS, seed=0, noise=0.01, share=0.1, dtype=np.float64, size=10.0
):
    """Operator, corrupted measurements, truth, clean measurements, and a mask of the outliers."""
    A = lt.gaussian(shape, m, seed=seed, dtype=dtype)
    X = lt.random_tucker(shape, rank, seed=1000 + seed, dtype=dtype)
    rng = np.random.default_rng(seed)
    y = A.forward(X)
    std = np.linalg.norm(y) / np.sqrt(m)
    clean = y + noise * std * rng.standard_normal(m)
    bad = np.zeros(m, dtype=bool)
    bad[rng.permutation(m)[: round(share * m)]] = True
    gross = size * std * rng.choice([-1.0, 1.0], m) * rng.uniform(1, 2, m)
    return A, np.where(bad, clean + gross, clean), X, clean, bad


def error(result, X):
    return float(lt.metrics.relative_error(result.X, X))


def weights_by_the_formula(residual, counts=None):
    """Huber's weights, one by one."""
    size = [abs(r) for r in np.asarray(residual).tolist()]
    kept = [s for s, c in zip(size, counts if counts is not None else size, strict=True) if c > 0]
    sigma = 1.4826 * float(np.median(kept))
    return np.array([0.0 if s > 6 * sigma else min(1.0, 1.345 * sigma / s) for s in size])


def spied(monkeypatch):
    """Record of all fits: (problem, start, result)."""
    fits = []
    solve = fitting.execute

    def recorded(problem, *args, **options):
        result = solve(problem, *args, **options)
        fits.append((problem, options["start"], result))
        return result

    monkeypatch.setattr(fitting, "execute", recorded)
    return fits


# outliers


@pytest.mark.parametrize("share", [0.01, 0.1])
@pytest.mark.parametrize(
    ("shape", "rank", "m"),
    [(SHAPE, RANK, M_ROWS), ((9, 8), (2, 2), 160), ((4, 5, 4, 4), (2, 2, 1, 2), 160)],
)
def test_outliers_change_the_result_no_more_than_leaving_them_out(shape, rank, m, share):
    A, y, X, clean, bad = make(shape, rank, m, seed=1, share=share)
    robust, squares = lt.recover(A, y, rank, loss="huber"), lt.recover(A, y, rank, max_epochs=30)
    keep = np.flatnonzero(~bad)
    without = lt.recover(A.restrict(keep), clean[keep], rank)
    assert 0.001 < error(without, X) < 0.02
    assert error(robust, X) <= 1.3 * error(without, X)
    assert error(squares, X) > 20 * error(without, X)
    np.testing.assert_array_equal(robust.weights == 0, bad)
    assert squares.weights is None
    assert not squares.success


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("share", [0.01, 0.1])
def test_without_noise_outliers_do_not_change_the_result(seed, share):
    A, y, X, _, bad = make(seed=seed, noise=0.0, share=share)
    result = lt.recover(A, y, RANK, loss="huber")
    assert result.status is lt.Status.CONVERGED
    assert result.success
    assert error(result, X) < 1e-6
    assert (result.weights[bad] == 0).all()


def test_noise_is_recognised_after_outliers_are_excluded():
    A, y, _, _, _ = make(seed=1)
    result = lt.recover(A, y, RANK, loss="huber")
    assert result.status is lt.Status.NOISE_FLOOR
    # weight zero: they do not count
    assert result.m == np.count_nonzero(result.weights)
    left = y - A.forward(result.X)
    expected = np.sqrt(np.sum(result.weights * left**2) / np.sum(result.weights * y**2))
    assert result.residual == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_without_outliers_the_loss_is_nearly_least_squares(seed):
    A, y, X, _, _ = make(seed=seed, share=0.0)
    robust, squares = lt.recover(A, y, RANK, loss="huber"), lt.recover(A, y, RANK)
    assert float(lt.metrics.relative_error(robust.X, squares.X)) < 0.5 * error(squares, X)
    assert error(robust, X) < 1.2 * error(squares, X)
    assert np.count_nonzero(robust.weights) == M_ROWS  # six sigma: none of 240
    assert 0.6 < np.mean(robust.weights == 1) < 0.95  # 82 % of normal noise is below 1.345 sigma


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_the_result_does_not_depend_on_units(scale):
    A, y, _, _, _ = make(seed=1)
    base = lt.recover(A, y, RANK, loss="huber")
    other = lt.recover(A, scale * y, RANK, loss="huber")
    assert other.status is base.status
    np.testing.assert_allclose(other.weights, base.weights, rtol=0, atol=1e-6)
    np.testing.assert_allclose(other.X.full() / scale, base.X.full(), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "solver",
    ["rgn", "tiht", lt.TIHT(), lt.RCG(), [lt.RSGD(), lt.RGN()], (lt.RSGD(), lt.RGN())],
    ids=repr,
)
def test_every_solver_is_robust_to_outliers(solver):
    A, y, X, clean, bad = make(seed=2, m=300)
    result = lt.recover(A, y, RANK, loss="huber", solver=solver, max_epochs=2000)
    keep = np.flatnonzero(~bad)
    without = lt.recover(A.restrict(keep), clean[keep], RANK)
    assert result.success
    assert error(result, X) <= 1.3 * error(without, X)
    np.testing.assert_array_equal(result.weights == 0, bad)
    last = "TIHT" if "tiht" in repr(solver).lower() else "RCG" if "RCG" in repr(solver) else "RGN"
    assert result.history.phase[-1].endswith(last)


@pytest.mark.parametrize("real_tensor", [False, True])
def test_complex_measurements(real_tensor):
    A, y, X, clean, bad = make(dtype=np.complex128, m=200, seed=1)
    if real_tensor:
        A = lt.DenseOperator(A.matrix, SHAPE, dtype=np.dtype(np.float64))
        X = lt.random_tucker(SHAPE, RANK, seed=5)
        clean, y = (v - lt.gaussian(SHAPE, 200, seed=1, dtype=complex).forward(
            lt.random_tucker(SHAPE, RANK, seed=1001, dtype=complex)
        ) + A.forward(X) for v in (clean, y))  # fmt: skip
    result = lt.recover(A, y, RANK, loss="huber")
    keep = np.flatnonzero(~bad)
    without = lt.recover(A.restrict(keep), clean[keep], RANK)
    assert error(result, X) <= 1.3 * error(without, X)
    assert result.weights.dtype == np.float64
    np.testing.assert_array_equal(result.weights == 0, bad)
    assert result.X.dtype == (np.float64 if real_tensor else np.complex128)


def test_single_precision_is_kept():
    A, y, X, _, bad = make(dtype=np.float32, seed=1)
    result = lt.recover(A, y.astype(np.float32), RANK, loss="huber")
    assert result.X.core.dtype == result.weights.dtype == np.float32
    assert error(result, X) < 0.02
    np.testing.assert_array_equal(result.weights == 0, bad)


# the weights


@pytest.mark.parametrize("weighted", [False, True])
def test_each_fit_uses_the_weights_of_the_previous_residuals(monkeypatch, weighted):
    fits = spied(monkeypatch)
    A, y, _, _, _ = make(seed=1)
    given = np.ones(M_ROWS)
    if weighted:
        given = np.random.default_rng(3).uniform(0.5, 2, M_ROWS)
        given[::7] = 0
    result = lt.recover(A, y, RANK, loss="huber", weights=given if weighted else None)
    assert len(fits) > 3
    first, start, before = fits[0]
    assert start is None
    limit = 3 * 1.4826 * np.median(np.abs(y[given > 0]))
    np.testing.assert_allclose(first.y, np.clip(y, -limit, limit), rtol=1e-12)
    for problem, start, after in fits[1:]:
        assert start is before.X
        residual = y - A.forward(before.X.full())
        expected = given * weights_by_the_formula(residual, given)
        np.testing.assert_allclose(problem.weights, expected, rtol=1e-9)
        np.testing.assert_array_equal(problem.y, y)
        before = after
    np.testing.assert_array_equal(result.weights, fits[-1][0].weights)
    # converged: the last fit changed almost nothing
    now = given * weights_by_the_formula(y - A.forward(result.X.full()), given)
    np.testing.assert_allclose(result.weights, now, rtol=0, atol=0.05)


def test_rounds_continue_until_a_fit_changes_little(monkeypatch):
    fits = spied(monkeypatch)
    A, y, _, _, _ = make(seed=1)
    result = lt.recover(A, y, RANK, loss="huber")
    changes = [
        float(lt.metrics.relative_error(after.X, before.X)) / after.residual
        for (_, _, before), (_, _, after) in itertools.pairwise(fits)
    ]
    assert all(change > 0.01 for change in changes[:-1])
    assert changes[-1] <= 0.01
    np.testing.assert_array_equal(result.X.core, fits[-1][2].X.core)


def test_given_weights_are_multiplied_and_zero_stays_zero():
    A, y, X, _, bad = make(seed=1)
    weights = np.ones(M_ROWS)
    weights[5::20] = 0
    results = []
    for garbage in (1e9, np.nan):
        corrupted = np.where(weights > 0, y, garbage)
        result = lt.recover(A, corrupted, RANK, weights=weights, loss="huber")
        np.testing.assert_array_equal(result.weights == 0, bad | (weights == 0))
        assert error(result, X) < 0.02
        results.append(result)
    np.testing.assert_allclose(results[0].X.full(), results[1].X.full(), rtol=0, atol=1e-9)
    np.testing.assert_allclose(results[0].weights, results[1].weights, rtol=0, atol=1e-7)
    times_four = lt.recover(A, np.where(weights > 0, y, 0), RANK, weights=4 * weights, loss="huber")
    np.testing.assert_allclose(times_four.weights, 4 * results[0].weights, rtol=0, atol=1e-5)
    np.testing.assert_allclose(times_four.X.full(), results[0].X.full(), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("kind_of_start", "solver"),
    [("tensor", "auto"), ("array", "rgn"), ("result", "auto"), ("state", "rgn")],
)
def test_the_first_weights_come_from_the_start(monkeypatch, kind_of_start, solver):
    A, y, X, _, bad = make(seed=1)
    some = lt.solve(lt.Problem(A, y), lt.RGN(), RANK, stop=lt.MaxEpochs(2))
    start = {"tensor": some.X, "array": some.X.full(), "result": some, "state": some.state}
    fits = spied(monkeypatch)
    result = lt.recover(A, y, RANK, loss="huber", solver=solver, start=start[kind_of_start])
    problem, given, _ = fits[0]
    # a state or a result has the residuals of other weights: only its tensor is used
    assert given is getattr(start[kind_of_start], "X", start[kind_of_start])
    np.testing.assert_array_equal(problem.y, y)  # nothing is clipped
    expected = weights_by_the_formula(y - A.forward(some.X.full()))
    np.testing.assert_allclose(problem.weights, expected, rtol=1e-9)
    assert set(result.history.phase.tolist()) == {f"huber {k} RGN" for k in range(1, len(fits) + 1)}
    whole = lt.recover(A, y, RANK, loss="huber")
    np.testing.assert_array_equal(result.weights == 0, bad)
    assert float(lt.metrics.relative_error(result.X, whole.X)) < 0.1 * error(whole, X)


def test_a_converged_result_as_start_converges_at_once(monkeypatch):
    A, y, _, _, _ = make(seed=1)
    whole = lt.recover(A, y, RANK, loss="huber")
    fits = spied(monkeypatch)
    again = lt.recover(A, y, RANK, loss="huber", start=whole.X)
    assert len(fits) == 1
    np.testing.assert_allclose(again.weights, whole.weights, rtol=0, atol=0.02)
    assert float(lt.metrics.relative_error(again.X, whole.X)) <= 0.01 * again.residual


@pytest.mark.parametrize("start", [None, 0.0])
def test_zero_has_no_outliers(start):
    A, y, _, _, _ = make()
    given = start if start is None else np.zeros(SHAPE)
    result = lt.recover(A, 0 * y, RANK, loss="huber", start=given)
    assert result.success
    assert np.abs(result.X.full()).max() == 0
    np.testing.assert_array_equal(result.weights, np.ones(M_ROWS))


def test_most_measurements_are_zero():
    """Their median is zero: all others are excluded."""
    A, y, _, _, _ = make()
    some = np.where(np.arange(M_ROWS) < 30, y, 0)
    result = lt.recover(A, some, RANK, loss="huber", max_epochs=100)
    assert np.isfinite(result.X.full()).all()
    assert result.residual <= 1 + 1e-12


# one history


def test_the_history_covers_all_rounds(monkeypatch):
    fits = spied(monkeypatch)
    A, y, X, _, _ = make(seed=1)
    result = lt.recover(A, y, RANK, loss="huber", X_true=X)
    history = result.history
    assert list(history) == [*COLUMNS, "error"]
    assert history.rows == sum(fit[2].history.rows for fit in fits)
    epochs = [fit[2].epochs for fit in fits]
    numbers = [
        done + k for done, n in zip(np.cumsum([0, *epochs]), epochs, strict=False)
        for k in range(n + 1)  # its start, where the last one ended, and its epochs
    ]  # fmt: skip
    np.testing.assert_array_equal(history.epoch, numbers)
    assert result.epochs == sum(epochs) == history.epoch[-1]
    assert (np.diff(history.passes) >= 0).all()
    assert (np.diff(history.seconds) >= 0).all()
    assert history.passes[-1] == pytest.approx(sum(f[2].history.passes[-1] for f in fits))
    assert result.passes > history.passes[-1]  # weights, and diagnosis
    assert result.seconds == pytest.approx(sum(fit[2].seconds for fit in fits))
    assert result.error == pytest.approx(error(result, X))
    expected = []
    for k, (_, _, fit) in enumerate(fits):
        label = f"huber {k} " if k else ""
        expected += [label + phase for phase in fit.history.phase.tolist()]
    assert history.phase.tolist() == expected
    for name in ("residual", "cost", "error"):
        joined = np.concatenate([fit[2].history[name] for fit in fits])
        np.testing.assert_array_equal(history[name], joined)
    lt.recover(A, y, RANK, loss="huber").plot()


def test_a_callback_ends_the_rounds():
    A, y, _, _, _ = make(seed=1)
    whole = lt.recover(A, y, RANK, loss="huber").history
    rows = [k for k, phase in enumerate(whole.phase) if phase.startswith("huber 2")]
    assert len(rows) > 3
    last = rows[-2]  # not the one that ends the round anyway
    wanted = last + 1 - 3  # the first row of each of three fits is its start, and no epoch
    calls = []

    def stop(progress):
        calls.append(progress.epoch)
        return len(calls) == wanted

    result = lt.recover(A, y, RANK, loss="huber", callbacks=[stop])
    assert len(calls) == wanted
    assert result.status is lt.Status.INTERRUPTED
    assert not result.success
    assert result.history.phase.tolist() == whole.phase.tolist()[: last + 1]


def test_the_time_limit_covers_all_rounds(ticks):
    A, y, _, _, _ = make(seed=1)
    whole = lt.recover(A, y, RANK, loss="huber", solver="rgn")
    first = sum(not phase.startswith("huber") for phase in whole.history.phase)
    assert first + 3 < whole.seconds
    limit = first + 3
    result = lt.recover(A, y, RANK, loss="huber", solver="rgn", max_seconds=limit)
    assert result.status is lt.Status.MAX_SECONDS
    assert limit <= result.seconds < limit + 1
    assert "huber" in result.history.phase[-1]


@pytest.mark.parametrize("solver", ["auto", "rgn", "tiht"])
def test_the_epoch_limit_covers_all_rounds(monkeypatch, solver):
    fits = spied(monkeypatch)
    A, y, _, _, _ = make(seed=1)
    whole = lt.recover(A, y, RANK, loss="huber", solver=solver)
    first, total = fits[0][2].epochs, whole.epochs
    assert first + 3 < total < 500
    for n in (1, first + 1, total - 1):
        fits.clear()
        result = lt.recover(A, y, RANK, loss="huber", solver=solver, max_epochs=n)
        assert result.status is lt.Status.MAX_EPOCHS
        assert not result.success
        assert result.epochs == n == sum(fit[2].epochs for fit in fits)
        assert (len(fits) > 1) == (n > first)


def ended(how):
    """Options of a call that ends in its first fit."""
    return {
        "max_epochs": {"max_epochs": 3},
        "max_seconds": {"max_seconds": 1e-9},
        "interrupted": {"callbacks": [lambda _: True]},
        "diverged": {"solver": lt.TIHT(step=1e3)},
    }[how]


@pytest.mark.parametrize("how", ["max_epochs", "max_seconds", "interrupted", "diverged"])
def test_a_first_fit_that_does_not_converge_is_the_last(monkeypatch, how):
    fits = spied(monkeypatch)
    A, y, _, _, _ = make(seed=1)
    result = lt.recover(A, y, RANK, loss="huber", **ended(how))
    assert result.status.name == how.upper()
    assert len(fits) == 1
    assert result.weights is None
    assert not any("huber" in phase for phase in result.history.phase)


@pytest.mark.parametrize("how", ["max_epochs", "max_seconds", "interrupted", "diverged"])
def test_a_round_that_does_not_converge_is_the_last(monkeypatch, how):
    fits = spied(monkeypatch)
    A, y, X, _, _ = make(seed=1)
    result = lt.recover(A, y, RANK, loss="huber", start=X * 3.0, **ended(how))
    assert result.status.name == how.upper()
    assert len(fits) == 1
    np.testing.assert_array_equal(result.weights, fits[0][0].weights)


def test_a_callback_that_requests_a_stop_once_ends_the_call():
    A, y, _, _, _ = make(seed=1)
    calls = []

    def stop(progress):
        calls.append(progress.epoch)
        return len(calls) == 1

    result = lt.recover(A, y, RANK, loss="huber", callbacks=[stop])
    assert calls == [1]
    assert result.status is lt.Status.INTERRUPTED


def test_a_file_keeps_weights_and_notes(tmp_path):
    A, y, _, _, _ = make(seed=1, noise=0.0)
    result = lt.recover(A, y, (3, 2, 2), loss="huber")
    assert result.notes
    result.save(tmp_path / "result.npz")
    loaded = lt.load(tmp_path / "result.npz")
    np.testing.assert_array_equal(loaded.weights, result.weights)
    assert loaded.notes == result.notes
    assert loaded.history.phase.tolist() == result.history.phase.tolist()
    assert result.notes[0] in repr(loaded)
    plain = lt.recover(A, A.forward(lt.random_tucker(SHAPE, RANK, seed=1)), RANK)
    plain.save(tmp_path / "plain.npz")
    assert lt.load(tmp_path / "plain.npz").weights is None
    assert lt.load(tmp_path / "plain.npz").notes == ()


# refused


@pytest.mark.parametrize("loss", ["l1", "Huber"])
def test_unknown_losses_are_refused(loss):
    A, y, _, _, _ = make(m=60)
    with pytest.raises(ValueError, match=rf"loss must be one of squared, huber, got {loss!r}"):
        lt.recover(A, y, RANK, loss=loss)


def test_batches_are_refused():
    A = lt.gaussian((4, 4), 40, seed=0, trials=3)
    message = r"loss='huber' takes one problem, got a batch of \(3,\)"
    with pytest.raises(ValueError, match=message):
        lt.recover(A, np.ones((3, 40)), (1, 1), loss="huber")


# the parts


def problems():
    """Random measurements: plain, weighted, complex."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        m = 31 + seed
        dtype = np.complex128 if seed == 3 else np.float64
        A = lt.gaussian((3, 4), m, seed=seed, dtype=dtype)
        y = rng.standard_t(1.5, m).astype(dtype)
        if seed == 3:
            y = y * np.exp(1j * rng.uniform(0, 6, m))
        weights = rng.uniform(0, 2, m) * (rng.random(m) < 0.8) if seed % 2 else None
        yield lt.Problem(A, y, weights)


def counted(problem):
    return np.ones(problem.m, bool) if problem.weights is None else problem.weights > 0


def spread(problem, v):
    ordered = sorted(np.abs(v)[counted(problem)].tolist())
    n = len(ordered)
    return 1.4826 * (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def test_spread_is_the_median_of_those_that_count():
    for problem in problems():
        assert robust.spread(problem, problem.y) == pytest.approx(spread(problem, problem.y))
    rng = np.random.default_rng(0)
    A = lt.gaussian((2, 2), 20001, seed=0)
    normal = lt.Problem(A, 3.0 * rng.standard_normal(20001))
    assert robust.spread(normal, normal.y) == pytest.approx(3.0, rel=0.03)


def test_clipped_measurements_keep_their_sign_and_phase():
    clipped = 0
    for problem in problems():
        limit = 3 * spread(problem, problem.y)
        small = robust.clipped(problem)
        expected = [v if abs(v) <= limit else v / abs(v) * limit for v in problem.y.tolist()]
        np.testing.assert_allclose(small.y, expected, rtol=1e-12)
        assert small.weights is problem.weights
        assert small.A is problem.A
        clipped += int(np.sum(np.abs(problem.y) > limit))
    assert clipped > 5


def test_huber_weights_are_the_formula():
    kinds = np.zeros(3, dtype=int)
    for problem in problems():
        X = lt.random_tucker((3, 4), (1, 1), seed=9, dtype=problem.y.dtype)
        residual = problem.y - problem.A.forward(X.full())
        given = np.ones(problem.m) if problem.weights is None else problem.weights
        formula = weights_by_the_formula(residual, given)
        weights = robust.weights_at(problem, X)
        np.testing.assert_allclose(weights, given * formula, rtol=1e-12)
        kinds += [(formula == 0).sum(), (formula == 1).sum(), ((formula > 0) & (formula < 1)).sum()]
    assert (kinds > 1).all()


@pytest.mark.parametrize(
    ("size", "weight"), [(0.9, 1.0), (1.34, 1.0), (2.69, 0.5), (5.99, 1.345 / 5.99), (6.01, 0.0)]
)
def test_weights_at_so_many_standard_deviations(size, weight):
    X = lt.random_tucker((3, 4), (1, 1), seed=9)
    A = lt.gaussian((3, 4), 31, seed=0)
    residual = np.where(np.arange(31) % 2, 1.0, -1.0) / 1.4826  # sigma is one
    residual[4] = -size
    weights = robust.weights_at(lt.Problem(A, A.forward(X) + residual), X)
    assert weights[4] == pytest.approx(weight, abs=1e-9)
    assert (np.delete(weights, 4) == 1).all()


def test_weights_of_a_fit_to_rounding_exclude_unfitted_measurements():
    X = lt.random_tucker((3, 4), (1, 1), seed=9)
    A = lt.gaussian((3, 4), 30, seed=0)
    y = A.forward(X)
    y[4] += 1e-3
    weights = robust.weights_at(lt.Problem(A, y), X)
    np.testing.assert_array_equal(weights, np.arange(30) != 4)


def fit(loss, **changes):
    settings = {
        "solver": "auto", "tol": 1e-6, "max_epochs": 500, "max_seconds": None, "noise_std": None,
        "X_true": None, "seed": 0, "callbacks": (), "loss": loss,
    }  # fmt: skip
    return Fit(**(settings | changes))


def test_losses_are_squares_cut_at_three_standard_deviations():
    cut = 0
    for problem in problems():
        r = problem.y[::-1].copy()
        limit = 3 * spread(problem, r)
        w = np.ones(problem.m) if problem.weights is None else problem.weights
        unit = np.sum(w * np.abs(problem.y) ** 2)
        pairs = [(wj, abs(v)) for wj, v in zip(w, r.tolist(), strict=True) if wj > 0]
        squares = [wj * v**2 / unit for wj, v in pairs]
        np.testing.assert_allclose(fit("squared").losses(problem, r), squares, rtol=1e-12)
        capped = [wj * min(v, limit) ** 2 / unit for wj, v in pairs]
        np.testing.assert_allclose(fit("huber").losses(problem, r), capped, rtol=1e-12)
        cut += int(np.sum(np.abs(r[counted(problem)]) > limit))
    assert cut > 5


def test_joined_histories_continue():
    A, y, X, _, _ = make(m=120, seed=1)
    problem = lt.Problem(A, y)
    one = lt.solve(problem, lt.RGN(), RANK, stop=lt.MaxEpochs(4), X_true=X)
    two = lt.solve(problem, lt.RCG(), RANK, stop=lt.MaxEpochs(2), X_true=X)
    assert joined(None, one, "") is one
    named = joined(None, one, "first")
    assert set(named.history.phase.tolist()) == {"first RGN"}
    np.testing.assert_array_equal(named.history.residual, one.history.residual)
    both = joined(named, two, "second")
    assert both.history.rows == 5 + 3
    assert both.history.phase.tolist() == ["first RGN"] * 5 + ["second RCG"] * 3
    np.testing.assert_array_equal(both.history.epoch, [0, 1, 2, 3, 4, 4, 5, 6])
    assert both.epochs == 4 + 2
    for name in ("passes", "seconds"):
        expected = [*one.history[name], *(one.history[name][-1] + two.history[name])]
        np.testing.assert_allclose(both.history[name], expected, rtol=1e-12)
    assert both.passes == one.passes + two.passes
    assert both.seconds == one.seconds + two.seconds
    assert both.X is two.X
    assert both.status is two.status
    assert both.residual == two.residual
    # nothing is changed in place
    assert one.history.rows == 5
    assert two.history.phase.tolist() == ["RCG"] * 3


# ends and starts


def outliers(size=3.0, m=240, seed=1):
    A = lt.gaussian(SHAPE, m, seed=seed)
    X = lt.random_tucker(SHAPE, RANK, seed=1000 + seed)
    rng = np.random.default_rng(seed)
    y = A.forward(X)
    std = np.linalg.norm(y) / np.sqrt(m)
    y = y + 0.01 * std * rng.standard_normal(m)
    bad = np.zeros(m, dtype=bool)
    bad[rng.permutation(m)[: m // 10]] = True
    y = y + np.where(bad, size * std * rng.choice([-1.0, 1.0], m) * rng.uniform(1, 2, m), 0)
    return A, y, X, bad


@pytest.mark.parametrize(("solver", "n"), [("auto", 2), ("rgn", 5), ("tiht", 36)])
def test_a_first_fit_that_ends_in_its_last_epoch(solver, n):
    A = lt.gaussian((6, 5, 6), 150, seed=0)
    y = A.forward(lt.random_tucker((6, 5, 6), RANK, seed=1000))
    assert lt.recover(A, y, RANK, loss="huber", solver=solver, max_epochs=n).epochs <= n


@pytest.mark.filterwarnings("ignore::lowtucker.UnderdeterminedWarning")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_epochs_are_used_up_with_too_few_measurements(n):
    """UNDERDETERMINED takes the place of MAX_EPOCHS."""
    A = lt.gaussian((6, 5, 6), 20, seed=0)
    y = A.forward(lt.random_tucker((6, 5, 6), RANK, seed=1000))
    result = lt.recover(A, y, RANK, loss="huber", max_epochs=n)
    assert result.status is lt.Status.UNDERDETERMINED
    assert result.epochs <= n


@pytest.mark.parametrize(("start", "size"), [("zero", 3.0), ("state", 10.0)])
def test_any_start_leads_to_the_same_weights(start, size):
    """A start of zero, and a state with the residuals of another problem."""
    A, y, X, bad = outliers(size)
    some = lt.solve(lt.Problem(A, y), lt.RGN(), RANK, stop=lt.MaxEpochs(2))
    given = np.zeros(SHAPE) if start == "zero" else some.state
    result = lt.recover(A, y, RANK, loss="huber", start=given)
    np.testing.assert_array_equal(result.weights == 0, bad)
    assert float(lt.metrics.relative_error(result.X, X)) < 0.02
