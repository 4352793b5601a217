"""Limits are limits: the wall time of a whole call, by fake clocks; no test measures time."""

from __future__ import annotations

import math
import pkgutil

import numpy as np
import pytest

import lowtucker as lt
from lowtucker._array.clock import Clock, TimeUp, check_time, unwatched
from lowtucker.run.scope import DEFAULT_SECONDS, is_small

SHAPE, RANK = (6, 5, 4), (2, 2, 2)


def signal(seed=0):
    return lt.random_tucker(SHAPE, RANK, seed=seed)


def problem(m=90, noise=0.0, seed=1):
    A = lt.gaussian(SHAPE, m, seed=seed)
    y = A.forward(signal())
    return A, y + noise * np.random.default_rng(seed).standard_normal(m)


class Slow(lt.MeasurementOperator):
    """Operator whose passes take a second each, by the fake clock, and nothing else does."""

    def __init__(self, A, ticks):
        self.A, self.ticks = A, ticks
        self.shape, self.m = A.shape, A.m

    def _forward(self, X):
        self.ticks.advance(1)
        return self.A.forward(X)

    def _adjoint(self, v):
        self.ticks.advance(1)
        return self.A.adjoint(v)


@pytest.fixture
def passing(ticks, monkeypatch):
    """A clock that only the passes of a Slow operator move."""
    monkeypatch.setattr(type(ticks), "perf_counter", type(ticks).monotonic)
    return ticks


def found(result, kind="time limit"):
    return [finding for finding in result.findings if finding.kind == kind]


# The clock


def test_a_clock_knows_what_is_left(ticks):
    clock = Clock(3)
    assert (clock.seconds, clock.left(), clock.is_up) == (0, 3, False)
    ticks.advance(3)
    assert (clock.seconds, clock.left(), clock.is_up) == (3, 0, True)
    assert Clock().left() is None
    assert not Clock().is_up


def test_passes_look_at_a_clock_where_one_is_watched(ticks):
    A, _ = problem()
    clock, X = Clock(1), signal()
    ticks.advance(1)
    check_time()
    with clock.watched():
        for pass_over_rows in (A.forward, lambda X: A.adjoint(np.ones(A.m)), A.residual):
            with pytest.raises(TimeUp):
                pass_over_rows(X)
        with unwatched():
            A.forward(X)
        with Clock().watched():
            A.forward(X)
    A.forward(X)


# The whole call


SOLVERS = {
    "auto": "auto",
    "TIHT": "tiht",
    "StoTIHT": lt.StoTIHT(block_size=30),
    "RCG": "rcg",
    "RGN": lt.RGN(products=False),
    "RGN by products": lt.RGN(products=True),
    "RGN with restarts": lt.RGN(starts=50, iht_steps=10),
}


@pytest.mark.filterwarnings("ignore::lowtucker.SlowOperatorWarning")
@pytest.mark.parametrize("limit", [1, 12, 40])
@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_a_call_ends_within_a_few_passes_after_its_limit(passing, solver, limit):
    """A Gauss-Newton model of this operator takes as many passes as degrees of freedom: 30."""
    A, y = problem(noise=0.3)
    result = lt.recover(Slow(A, passing), y, RANK, solver=solver, tol=1e-12, max_seconds=limit)
    assert result.status is lt.Status.MAX_SECONDS
    # a start takes two, and is always made; the residual of what is returned takes one
    assert passing.monotonic() <= max(limit, 3) + 3
    (finding,) = found(result)
    assert f"The time limit of {limit} s was reached." in finding.text
    assert finding.numbers["skipped"]
    expected = np.linalg.norm(y - A.forward(result.X)) / np.linalg.norm(y)
    assert result.residual == pytest.approx(expected)


@pytest.mark.parametrize("spread", [1.0, 1e4])
@pytest.mark.parametrize("limit", [5, 30, 60, 100])
def test_a_call_without_a_rank_ends_within_a_few_passes_after_its_limit(passing, limit, spread):
    """To make its rows isotropic, or to see what they do not measure, takes hundreds of passes.

    A start, which is always made, takes some 20.
    """
    rng = np.random.default_rng(0)
    levels = np.geomspace(1, 1 / spread, 90)[:, None]
    A = lt.DenseOperator(levels * rng.standard_normal((90, *SHAPE)).reshape(90, -1), SHAPE)
    decays = np.einsum("i,j,k->ijk", *(1 / np.arange(1, n + 1) for n in SHAPE))
    y = A.forward(rng.standard_normal(SHAPE) * decays)
    lt.recover(Slow(A, passing), y, max_seconds=limit)
    assert passing.monotonic() <= limit + 30


LONG_STEPS = {
    # what takes a second, several times in a step: a product, a chunk of rows, a chunk of samples
    "RGN by products": (
        "lowtucker.operators.factored.FactoredDesign.matvec",
        lt.RGN(products=True),
    ),
    "RGN": ("lowtucker.operators.design.DenseDesign._chunk", lt.RGN(products=False)),
    "ALS": ("lowtucker.solvers.als.face_splitting", "als"),
}


@pytest.mark.parametrize(("name", "solver"), LONG_STEPS.values(), ids=LONG_STEPS)
def test_a_long_step_ends_in_its_middle(passing, monkeypatch, name, solver):
    monkeypatch.setattr("lowtucker.operators.design.CHUNK", 8)
    known = np.argwhere(np.random.default_rng(0).random(SHAPE) < 0.9)
    A = lt.gaussian(SHAPE, 90, seed=1) if "Dense" in name else lt.entries(SHAPE, known)
    original = pkgutil.resolve_name(name)

    def slow(*arguments):
        passing.advance(1)
        return original(*arguments)

    monkeypatch.setattr(name, slow)
    y = A.forward(signal()) + 0.1 * np.random.default_rng(1).standard_normal(A.m)
    for limit in range(10, 20):  # wherever a step ends
        begin = passing.monotonic()
        result = lt.recover(A, y, RANK, solver=solver, tol=1e-12, max_seconds=limit)
        assert result.status is lt.Status.MAX_SECONDS
        assert passing.monotonic() == begin + limit


@pytest.mark.filterwarnings("ignore::lowtucker.SlowOperatorWarning")
@pytest.mark.parametrize("settings", [{"rank": "auto"}, {"rank": RANK, "loss": "huber"}], ids=str)
def test_searches_and_rounds_share_the_limit(passing, settings):
    A, y = problem(noise=0.3)
    lt.recover(Slow(A, passing), y, max_seconds=60, **settings)
    assert passing.monotonic() <= 60 + 10  # a search scores what it has found, and fits it to all


def test_a_given_start_is_returned_where_there_is_no_time_at_all(ticks):
    A, y = problem()
    X = signal() * 1.5
    ticks.advance(1)
    result = lt.recover(A, y, RANK, solver="rgn", start=X, max_seconds=1e-9)
    assert result.status is lt.Status.MAX_SECONDS
    np.testing.assert_allclose(result.X.full(), X.full(), atol=1e-14)
    again = lt.recover(A, y, RANK, solver="rgn", start=result.state, max_seconds=math.inf)
    assert again.success


def test_steps_of_an_epoch_that_is_cut_short_are_kept(ticks):
    A, y = problem()
    solver = lt.StoTIHT(block_size=5)  # 18 steps an epoch
    result = lt.recover(A, y, RANK, solver=solver, max_seconds=30)
    assert result.status is lt.Status.MAX_SECONDS
    assert 18 < result.state.t < 36
    assert result.epochs == 2
    assert result.residual == pytest.approx(np.min(result.history["residual"]))


def test_a_phase_that_there_is_no_time_for_is_not_begun(ticks):
    A, y = problem(noise=0.3)
    chain = [lt.RCG(), lt.RGN()]
    whole = lt.recover(A, y, RANK, solver=chain, max_seconds=math.inf)
    first = int(np.sum(whole.history["phase"] == "RCG"))
    assert first < whole.history.rows
    result = lt.recover(A, y, RANK, solver=chain, max_seconds=first)
    assert result.status is lt.Status.MAX_SECONDS
    assert set(result.history["phase"]) == {"RCG"}
    assert result.residual == np.min(result.history["residual"])


def test_a_batch_shares_the_limit(ticks):
    targets = lt.random_tucker(SHAPE, RANK, seed=0, trials=3)
    A = lt.gaussian(SHAPE, 90, seed=1, trials=3)
    y = A.forward(targets) + 0.3 * np.random.default_rng(0).standard_normal((3, 90))
    result = lt.recover(A, y, RANK, tol=1e-12, max_seconds=10)
    assert set(result.status) == {lt.Status.MAX_SECONDS}
    assert found(result)


def test_solve_has_no_limit_but_its_rule(ticks):
    A, y = problem(noise=0.3)
    made = lt.Problem(A, y)
    result = lt.solve(made, "tiht", RANK, stop=lt.MaxEpochs(100))
    assert result.epochs == 100
    result = lt.solve(made, "tiht", RANK, stop=lt.MaxSeconds(10) | lt.MaxEpochs(100))
    assert result.status is lt.Status.MAX_SECONDS
    assert result.seconds == 10
    assert not found(result)


# Diagnosis


def test_a_fit_that_converged_stays_so_where_no_time_is_left_to_check_it(ticks):
    A, y = problem()
    call = {"rank": RANK, "solver": "rcg"}
    seconds = lt.recover(A, y, **call, max_seconds=math.inf).seconds
    result = lt.recover(A, y, **call, max_seconds=seconds)
    assert result.status is lt.Status.CONVERGED
    (finding,) = found(result)
    assert finding.numbers["skipped"] == ("the check whether the measurements determine X",)


def test_a_fit_that_stalled_has_no_verdict_where_no_time_is_left_for_it(ticks):
    """Half a comparison with a larger rank must not say that the residual is noise."""
    X, rank = lt.random_tucker((12, 12, 12), (1, 1, 1), seed=0), (1, 1, 1)
    flat = np.random.default_rng(0).choice(12**3, 230, replace=False)
    known = np.stack(np.unravel_index(flat, X.shape), axis=1)
    A, y = lt.entries(X.shape, known), X.entries(known)
    y = y + 0.15 * np.std(y) * np.random.default_rng(1).standard_normal(len(y))
    whole = lt.recover(A, y, rank, max_seconds=math.inf)
    assert whole.status is lt.Status.NOISE_FLOOR
    assert whole.findings[-1].text.startswith("No larger rank predicts held-out measurements")
    first, total = whole.seconds, ticks.monotonic()
    assert total > first + 4  # the comparison fits too, which `seconds` leaves out
    for extra in (1, (total - first) // 2, total - first - 1):
        result = lt.recover(A, y, rank, max_seconds=first + extra)
        assert result.status is lt.Status.MAX_SECONDS
        np.testing.assert_array_equal(result.X.core, whole.X.core)
        (finding,) = found(result)
        assert finding.numbers["skipped"][-1] == "the comparison with larger ranks"


# By default


@pytest.mark.parametrize(
    ("A", "small"),
    [
        (lt.entries((99, 100, 101), [[0, 0, 0]]), True),
        (lt.entries((100, 100, 100), [[0, 0, 0]]), False),
        (lt.gaussian((5, 5), 10), True),
        (lt.seeded_gaussian((99, 100, 100), 1000), True),
        (lt.seeded_gaussian((99, 100, 100), 2000), False),  # 2e9 numbers, made again in every pass
        (lt.subsampled_transform((99, 100, 100), 2000), True),
    ],
)
def test_data_that_have_a_limit_by_default(A, small):
    assert is_small(lt.Problem(A, np.ones(A.m))) is small


@pytest.mark.parametrize("given", [None, math.inf, 100])
def test_a_minute_by_default(ticks, given):
    A, y = problem(m=34, noise=0.3)
    call = {"rank": RANK, "tol": 1e-12, "max_epochs": 300, "max_seconds": given}
    result = lt.recover(A, y, **call)
    limit = {None: DEFAULT_SECONDS, math.inf: math.inf}.get(given, given)
    if limit == math.inf:
        assert ticks.monotonic() > DEFAULT_SECONDS
        assert not found(result)
        return
    assert ticks.monotonic() <= limit + 2
    (finding,) = found(result)
    assert finding.numbers["default"] is (given is None)
    assert ("the default" in finding.text) is (given is None)
    assert finding.text in result.notes


def test_no_limit_by_default_for_a_solver_of_the_user(ticks):
    A, y = problem(noise=0.3)
    result = lt.recover(A, y, RANK, solver="tiht", tol=1e-12, max_epochs=70)
    assert result.seconds > DEFAULT_SECONDS
    assert result.status is not lt.Status.MAX_SECONDS


# What callbacks are told


def test_callbacks_are_told_the_stage_and_the_time(ticks):
    A, y = problem(noise=0.01)
    told = []
    lt.recover(A, y, "auto", max_seconds=500, callbacks=[told.append])
    stages = list(dict.fromkeys(progress.stage for progress in told))
    assert stages[:2] == ["rank 1,1,1", "rank 2,2,2"]
    assert stages[-1] == "all rows"
    seconds = [progress.seconds for progress in told]
    assert seconds == sorted(seconds)
    assert seconds[-1] > max(progress.epoch for progress in told)  # of the call, not of a fit
    assert {progress.max_seconds for progress in told} == {500}
    assert told[0].line.startswith("rank 1,1,1  epoch 1  residual")
    assert told[0].limit == "of 500 s"


def test_one_progress_bar_for_all_fits_of_a_call():
    entered = []

    class Bar:
        def __enter__(self):
            entered.append("in")
            return self

        def __exit__(self, *error):
            entered.append("out")

        def __call__(self, progress):
            entered.append(progress.stage)

    A, y = problem()
    lt.recover(A, y, "auto", callbacks=[Bar()])
    assert (entered.count("in"), entered.count("out")) == (1, 1)
    assert (entered[0], entered[-1]) == ("in", "out")
    assert len(set(entered)) > 3
