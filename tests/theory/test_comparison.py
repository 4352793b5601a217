"""Comparison of runs with the bound of the theorem."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.theory import comparison

FEW = {"starts": 2, "samples": 20}  # starts and samples of the search for extreme tensors


@pytest.fixture
def short_search(monkeypatch):
    """Make contraction_of use FEW starts and samples."""
    monkeypatch.setattr(comparison, "trip", functools.partial(lt.theory.trip, **FEW))


def problem_of(shape=(5, 5, 6), rank=(1, 2, 2), m=360, noise=0.0, seed=0):
    X = lt.random_tucker(shape, rank, seed=seed)
    A = lt.gaussian(shape, m, seed=seed + 1)
    draws = np.random.default_rng(seed).standard_normal(m)
    return lt.Problem(A, A.forward(X) + noise * draws), X


def test_fitted_rate_of_a_known_curve():
    problem, X = problem_of()
    result = lt.solve(problem, lt.TIHT(step=0.5), (1, 2, 2), X_true=X)
    columns = dict(result.history)
    epochs = np.arange(30)
    columns = {
        "epoch": epochs, "passes": epochs, "seconds": epochs, "phase": np.full(30, "TIHT"),
        "residual": np.ones(30), "cost": np.ones(30), "error": np.maximum(0.7**epochs, 1e-3),
    }  # fmt: skip
    curve = replace(result, history=lt.History.of(columns))
    seen = lt.theory.compare(curve)
    assert seen.rate == pytest.approx(0.7, rel=1e-6)  # the plateau at 1e-3 does not count
    assert seen.what == "error"
    assert seen.bound is None
    assert seen.fitted[:, 1] == pytest.approx(0.7**epochs)


def test_stotiht_has_a_rate_per_iteration_and_per_epoch():
    problem, X = problem_of()
    solver = lt.StoTIHT(block_size=90, step=0.5)
    result = lt.solve(problem, solver, (1, 2, 2), X_true=X)
    seen = lt.theory.compare(result)
    assert seen.steps_per_epoch == 4
    assert seen.rate_per_iteration**4 == pytest.approx(seen.rate)
    error = result.history["error"]
    middle = slice(2, 8)
    slope = np.polyfit(np.arange(2, 8), np.log(error[middle]), 1)[0]
    assert seen.rate == pytest.approx(np.exp(slope), rel=0.3)
    assert f"multiplied by {seen.rate:.4g} per epoch" in str(seen)


def test_bound_is_the_recursion_from_the_start_of_the_run():
    problem, X = problem_of((3, 3), (1, 1), m=4000)
    solver = lt.TIHT(step=0.9)
    constants = lt.theory.contraction_of(problem, X, solver, delta="at_most")
    result = lt.solve(problem, solver, (1, 1), X_true=X)
    seen = lt.theory.compare(result, constants)
    expected = [result.history["error"][0] * constants.kappa**t for t in range(len(seen.epoch))]
    assert constants.contracts
    assert seen.bound == pytest.approx(expected)
    assert (seen.measured <= seen.bound).all()
    assert "kappa" in str(seen)


def test_noise_gives_a_floor_relative_to_the_truth():
    problem, X = problem_of((3, 3), (1, 1), m=4000, noise=0.01)
    solver = lt.TIHT(step=0.9)
    constants = lt.theory.contraction_of(problem, X, solver, delta="at_most")
    assert constants.sigma > 0
    result = lt.solve(problem, solver, (1, 1), X_true=X, stop=lt.MaxEpochs(60))
    scaled, plain = (
        lt.theory.compare(result, constants, X_true=one) for one in (X * 1.0, X.full())
    )
    error, bounds = scaled.measured[0], []
    for _ in scaled.epoch:
        bounds.append(error)
        error = constants.kappa * error + constants.sigma / float(X.norm())
    assert scaled.bound == pytest.approx(bounds)
    assert plain.bound == pytest.approx(scaled.bound)
    assert (scaled.measured <= scaled.bound).all()


def test_batches_are_compared_by_their_mean():
    targets = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0, trials=5)
    A = lt.gaussian((5, 5, 6), 360, seed=1, trials=5)
    problem = lt.Problem(A, A.forward(targets))
    result = lt.solve(problem, lt.TIHT(step=0.5), (1, 2, 2), X_true=targets, stop=lt.MaxEpochs(20))
    seen = lt.theory.compare(result)
    assert seen.measured == pytest.approx(result.history["error"].mean(axis=1))


def test_without_the_truth_the_residual_is_compared():
    problem, X = problem_of()
    result = lt.solve(problem, lt.TIHT(step=0.5), (1, 2, 2))
    assert lt.theory.compare(result).what == "residual"
    constants = lt.theory.contraction(0.1, 0.5)
    with pytest.raises(ValueError, match="The theorem bounds the error"):
        lt.theory.compare(result, constants)
    with pytest.raises(TypeError, match="result must be a Result, got TuckerTensor"):
        lt.theory.compare(X)


def test_history_of_one_row_has_no_rate():
    problem, X = problem_of()
    result = lt.solve(problem, lt.TIHT(step=0.5), (1, 2, 2), X_true=X)
    first = {name: column[:1] for name, column in result.history.items()}
    seen = lt.theory.compare(replace(result, history=lt.History.of(first), epochs=0))
    assert np.isnan(seen.rate)
    seen.plot()


@pytest.mark.parametrize("version", ["paper", "repaired"])
def test_plot_shows_measured_fitted_and_bound(version):
    pytest.importorskip("matplotlib")
    problem, X = problem_of((3, 3, 3), (1, 1, 1), m=120)
    solver = lt.StoTIHT(block_size=40, step=0.5)
    result = lt.solve(problem, solver, (1, 1, 1), X_true=X)
    constants = lt.theory.contraction_of(problem, X, solver, version=version)
    seen = lt.theory.compare(result, constants)
    axes = seen.plot()
    measured, fitted, bound = axes.get_lines()
    assert measured.get_ydata() == pytest.approx(seen.measured)
    assert fitted.get_linestyle() == "--"
    assert len(bound.get_ydata()) >= 1
    assert np.isfinite(bound.get_ydata()).all()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[0] == "measured error"
    assert labels[1] == f"fitted: {seen.rate:.3g} per epoch"
    assert labels[2] == f"bound, {version}: kappa = {constants.kappa:.3g}"
    low, high = axes.get_ylim()
    assert low < seen.measured.min() < seen.measured.max() < high  # the curve stays visible
    assert high / seen.measured.max() < 1e4


@pytest.mark.slow
@pytest.mark.parametrize("scale", [2.0**-20, 1.0, 2.0**20])
def test_constants_do_not_depend_on_the_scale_of_a(scale, short_search):
    X = lt.random_tucker((4, 4, 3), (1, 1, 1), seed=0)
    base = lt.gaussian((4, 4, 3), m=120, seed=1)
    A = lt.scale(base, scale)
    problem = lt.Problem(A, A.forward(X))
    solver = lt.StoTIHT(block_size=60, step=0.5 / scale**2)
    found = lt.theory.contraction_of(problem, X.full(), solver)
    plain = lt.theory.contraction_of(
        lt.Problem(base, base.forward(X)), X, lt.StoTIHT(block_size=60, step=0.5)
    )
    assert found.kappa == pytest.approx(plain.kappa, rel=1e-9)
    assert found.step == 0.5 / scale**2


def test_choice_of_delta(short_search):
    problem, X = problem_of((4, 4, 4), (1, 1, 1), m=300)
    solver = lt.TIHT(step=0.5)
    found = lt.theory.trip(problem.A, (3, 3, 3), **FEW)
    by = {
        which: lt.theory.contraction_of(problem, X, solver, delta=which)
        for which in ("at_least", "sampled", "at_most", found)
    }
    assert by["at_least"].delta == pytest.approx(found.scaled.delta)
    assert by["sampled"].delta == pytest.approx(found.scaled.delta_sampled)
    low, high = found.floor, found.block_norms.max()
    assert by["at_most"].delta == pytest.approx((high - low) / (high + low))
    assert by[found].kappa == by["at_least"].kappa
    assert by["sampled"].kappa < by["at_least"].kappa < by["at_most"].kappa
    given = lt.theory.contraction_of(problem, X, solver, delta=0.25)
    norm = np.linalg.norm(problem.A.matrix, 2) ** 2 / 300
    same = lt.theory.contraction(0.25, 0.5, eta=3**0.5, block_norms=[norm])
    assert given.kappa == pytest.approx(same.kappa)


def test_only_an_upper_bound_gives_a_guarantee():
    problem, X = problem_of((3, 3), (1, 1), m=4000)
    found = {
        which: lt.theory.contraction_of(problem, X, lt.TIHT(step=0.9), delta=which)
        for which in ("at_least", "sampled", "at_most", 0.05)
    }
    assert all(one.contracts for one in found.values())
    assert [one.proves for one in found.values()] == [False, False, True, True]
    assert "no guarantee: delta may be larger" in str(found["sampled"])
    assert "(sampled)" in str(found["sampled"])
    assert "(the error decreases)" in str(found["at_most"])
    again = lt.theory.contraction(
        found["at_most"].delta, found["at_most"].step / found["at_most"].scale_squared
    )
    assert again.kappa == pytest.approx(found["at_most"].kappa)


def test_trip_that_does_not_match_is_rejected():
    problem, X = problem_of((4, 4, 4), (1, 1, 1), m=300)
    for other in (
        lt.theory.trip(lt.gaussian((5, 4, 4), 300), (3, 3, 3), starts=1, samples=2),
        lt.theory.trip(problem.A, (1, 1, 1), starts=1, samples=2),
        lt.theory.trip(problem.A, (3, 3, 3), 100, starts=1, samples=2),
    ):
        with pytest.raises(ValueError, match=r"Try trip\(A, \(3, 3, 3\), 300\)"):
            lt.theory.contraction_of(problem, X, lt.TIHT(step=0.5), delta=other)
    with pytest.raises(ValueError, match="X_true must have the shape of the tensor"):
        lt.theory.contraction_of(problem, np.ones((4, 4)), lt.TIHT(step=0.5))


def test_probabilities_and_the_thresholding_come_from_the_solver():
    problem, X = problem_of((4, 4, 4), (1, 1, 1), m=300)
    solver = lt.StoTIHT(
        sampler=lt.Partition(100, p=[0.5, 0.25, 0.25]), step=0.5, thresholding=lt.HOOI((1, 1, 1))
    )
    found = lt.theory.contraction_of(problem, X, solver, delta=0.25)
    norms = [np.linalg.norm(problem.A.matrix[k : k + 100], 2) ** 2 / 100 for k in (0, 100, 200)]
    same = lt.theory.contraction(0.25, 0.5, [0.5, 0.25, 0.25], 3, 3**0.5, "repaired", norms)
    assert (found.alpha, found.lipschitz, found.kappa) == pytest.approx(
        (same.alpha, same.lipschitz, same.kappa)
    )
    by_norms = lt.theory.contraction_of(
        problem, X, lt.StoTIHT(block_size=100, p="norms", step=0.5), delta=0.25
    )
    energy = np.sum(problem.A.matrix**2, axis=1).reshape(3, 100).sum(axis=1)
    assert by_norms.alpha == pytest.approx(1.25 * np.max(energy.sum() / energy / 3))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"solver": lt.TIHT()}, TypeError, "with a step that is a number"),
        ({"solver": "rgn"}, TypeError, "solver must be TIHT or StoTIHT"),
        ({"solver": "auto"}, TypeError, "solver must be TIHT or StoTIHT"),
        (
            {"solver": lt.TIHT(step=0.5, trim=0.1)},
            TypeError,
            "solver must be TIHT or StoTIHT with a step that is a number and without trim",
        ),
        (
            {"solver": lt.StoTIHT(sampler=lt.KaczmarzRows(50), step=0.5)},
            ValueError,
            "KaczmarzRows draws any subset",
        ),
        (
            {"solver": lt.StoTIHT(sampler=lt.RandomRows(50), step=0.5)},
            ValueError,
            "RandomRows draws any subset",
        ),
        (
            {"solver": lt.StoTIHT(sampler=lt.Shuffled(50), step=0.5)},
            ValueError,
            "assumes blocks drawn with replacement",
        ),
        ({"delta": "best"}, ValueError, 'delta must be "at_least"'),
        ({"delta": 1.5}, ValueError, "delta must be between 0 and 1"),
        ({"version": "fixed"}, ValueError, 'version must be "paper" or "repaired"'),
    ],
)
def test_problems_the_theorem_does_not_cover_raise(change, error, message):
    problem, X = problem_of((4, 4, 4), (1, 1, 1), m=100)
    arguments = {"solver": lt.TIHT(step=0.5), "delta": 0.2} | change
    with pytest.raises(error, match=message):
        lt.theory.contraction_of(problem, X, **arguments)
    weighted = lt.Problem(problem.A, problem.y, np.ones(100))
    with pytest.raises(TypeError, match="a single Problem without weights"):
        lt.theory.contraction_of(weighted, X, lt.TIHT(step=0.5))


def test_samplers_give_the_probabilities_of_their_blocks():
    A = lt.gaussian((3, 4), m=10, seed=0)
    problem = lt.Problem(A, np.ones(10))
    p = [0.5, 0.3, 0.2]
    np.testing.assert_allclose(lt.Partition(4).bind(problem).probabilities, [1 / 3] * 3)
    np.testing.assert_array_equal(lt.Partition(4, p=p).bind(problem).probabilities, p)
    np.testing.assert_allclose(lt.Shuffled(5).bind(problem).probabilities, [0.5, 0.5])
    norms = lt.Partition(4, p="norms").bind(problem).probabilities
    squares = A.row_norms() ** 2
    np.testing.assert_allclose(norms[0], squares[:4].sum() / squares.sum())
