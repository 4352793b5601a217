"""Phase transitions: rates, stored trials and workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.simulation.runner import Job
from lowtucker.simulation.store import Store
from lowtucker.theory import transition, trials
from lowtucker.theory.transition import PhaseTransition, phase_transition, wilson
from lowtucker.theory.trials import OPERATORS, Level, RandomRecoveries, draw_operator

SHAPE, RANK = (5, 5, 6), (1, 2, 2)  # 22 degrees of freedom
SMALL = {"measurements": [33, 66], "trials": 4}
OWN = lt.gaussian(SHAPE, 100, seed=3)


def own(m, seed):
    """Operator from a picklable function."""
    return lt.gaussian(SHAPE, m, seed=(seed, 7))


def other(m, seed):
    return lt.gaussian(SHAPE, m, seed=(seed, 8))


def call(operator="gaussian", **settings):
    return phase_transition(operator, SHAPE, RANK, **{**SMALL, **settings})


def same(one, two):
    for name in ("m", "trials", "recovered", "error", "passes"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)


@pytest.fixture
def computed(monkeypatch):
    """(m, trial) of every trial that is computed."""
    seen = []
    before = RandomRecoveries.compute

    def compute(self, cell, first, count, seed):
        seen.extend((cell.m, k) for k in range(first, first + count))
        return before(self, cell, first, count, seed)

    monkeypatch.setattr(RandomRecoveries, "compute", compute)
    return seen


# Rates


@pytest.mark.parametrize("trials", [6, pytest.param(12, marks=pytest.mark.slow)])
def test_rates_of_gaussian_measurements(trials):
    """docs/solvers.md: 97 % at m = 26 and 100 % at 42; below dof no recovery is possible."""
    found = call(measurements=[26, 42], trials=trials)
    assert found.dof == 22
    np.testing.assert_array_equal(found.m, [26, 42])
    np.testing.assert_array_equal(found.trials, trials)
    assert trials * 0.97 - 3 * np.sqrt(trials * 0.97 * 0.03) <= found.recovered[0] <= trials
    assert found.recovered[1] == trials
    assert found.suggest() == (26 if found.recovered[0] >= 0.95 * trials else 42)
    assert found.passes[1] < found.passes[0]
    few = call(measurements=[21], trials=1)
    assert few.recovered[0] == 0
    assert found.error[1] < 1e-6 < 0.01 < few.error[0]


@pytest.mark.parametrize("name", OPERATORS)
def test_trials_equal_calls_of_recover(name):
    """Repeat each trial with public functions."""
    shape, rank, m = (8, 8, 8), (2, 2, 2), 200
    found = phase_transition(name, shape, rank, measurements=[m], trials=3, seed=5)
    errors = []
    for k in range(3):
        A = draw_operator(name, shape, m, (5, k))
        X_true = lt.random_tucker(shape, rank, seed=(5, k))
        y = A.forward(X_true)
        result = lt.recover(A, y, rank, seed=(5, k))
        errors.append(lt.metrics.relative_error(result.X, X_true))
    assert found.recovered[0] == 3
    assert np.isclose(found.error[0], np.median(errors), rtol=0.5, atol=1e-8)


def test_operators_by_name():
    shape, m = (4, 5, 6), 50
    kinds = {name: draw_operator(name, shape, m, (0, 1)) for name in OPERATORS}
    for name, A in kinds.items():
        assert (A.shape, A.m) == (shape, m)
        X = lt.random_tucker(shape, (2, 2, 2), seed=1)
        same_again, another = (draw_operator(name, shape, m, (0, k)).forward(X) for k in (1, 2))
        np.testing.assert_array_equal(A.forward(X), same_again)
        assert not np.allclose(A.forward(X), another)
    assert isinstance(kinds["gaussian"], lt.DenseOperator)
    assert isinstance(kinds["rank-one"], lt.RankOneOperator)
    assert isinstance(kinds["entries"], lt.EntriesOperator)
    assert len(np.unique(kinds["entries"].indices, axis=0)) == m  # none twice
    whole = draw_operator("dct", shape, 120, 0)
    X = np.random.default_rng(0).standard_normal(shape)
    assert np.isclose(np.linalg.norm(whole.forward(X)), np.sqrt(120) * np.linalg.norm(X))


@pytest.mark.slow
def test_other_operators_need_more_measurements():
    """Entries of 12 x 12 x 12 tensors of rank 2: no recovery at 1.1 dof, all at 8."""
    found = phase_transition("entries", (12,) * 3, (2,) * 3, measurements=[75, 544], trials=1)
    assert found.recovered[0] == 0
    assert found.recovered[1] == 1


def test_rows_are_drawn_from_a_given_operator():
    rows = draw_operator(OWN, SHAPE, 40, (0, 0))
    X = lt.random_tucker(SHAPE, RANK, seed=1)
    measured, whole = rows.forward(X), OWN.forward(X)
    assert rows.m == 40
    assert np.isclose(measured[:, None], whole).sum() == 40  # 40 distinct rows
    assert not np.allclose(draw_operator(OWN, SHAPE, 40, (0, 1)).forward(X), measured)
    assert draw_operator(OWN, SHAPE, 100, (0, 1)) is OWN
    np.testing.assert_array_equal(call(OWN).recovered, [4, 4])


def test_operator_without_blocks_does_not_warn():
    A = lt.FunctionOperator(OWN.forward, OWN.adjoint, SHAPE, 100)
    assert call(A, measurements=[60], trials=2).recovered[0] == 2


def test_callable_gets_a_new_seed_for_every_trial():
    given = []

    def make(m, seed):
        given.append((m, seed))
        return own(m, seed)

    found = call(make)
    np.testing.assert_array_equal(found.recovered, [4, 4])
    assert given[:2] == [(33, 0), (66, 0)]  # to identify the callable
    assert len(set(given[2:])) == 8
    assert all(isinstance(seed, int) and 0 <= seed < 2**31 for _, seed in given)


def test_complex_tensors_and_single_precision():
    A = lt.gaussian(SHAPE, 80, seed=1, dtype=complex)
    assert call(A, measurements=[80], trials=2).recovered[0] == 2
    A = lt.gaussian(SHAPE, 80, seed=1, dtype=np.float32)
    assert call(A, measurements=[80], trials=2, tol=1e-3).recovered[0] == 2


def test_array_kinds_other_than_numpy():
    xp = pytest.importorskip("array_api_strict")
    A = lt.DenseOperator(xp.asarray(lt.gaussian(SHAPE, 80, seed=1).matrix), SHAPE)
    found = call(A, measurements=[80], trials=2, noise=0.01, folder=None)
    assert found.recovered[0] == 2


@pytest.mark.slow
def test_noise_is_relative_to_the_measurements():
    """Least squares of dof numbers from m measurements: an error of noise sqrt(dof / m)."""
    found = call(measurements=[220], trials=4, noise=0.1)
    assert found.recovered[0] == 4
    assert 0.6 < found.error[0] / (0.1 * np.sqrt(22 / 220)) < 1.6
    half = call(measurements=[220], trials=4, noise=0.05)
    assert 0.4 < half.error[0] / found.error[0] < 0.6
    assert call(measurements=[220], trials=4).error[0] < 1e-6
    # the larger of noise and tol counts
    few = call(measurements=[28], trials=4, noise=0.1)
    assert few.recovered[0] < 4
    loose = call(measurements=[28], trials=4, noise=0.1, tol=0.5)
    assert loose.recovered[0] > few.recovered[0]


def test_solver_gets_the_noise_level(monkeypatch):
    given = []
    before = trials.Fit.__call__

    def remember(self, problem, rank):
        given.append((self.noise_std, problem))
        return before(self, problem, rank)

    monkeypatch.setattr(trials.Fit, "__call__", remember)
    call(measurements=[2000], trials=1, noise=0.1)
    std, problem = given[0]
    clean = problem.A.forward(lt.random_tucker(SHAPE, RANK, seed=(0, 0)))
    assert np.isclose(std, 0.1 * np.sqrt(np.mean(clean**2)))
    assert np.isclose(np.std(problem.y - clean), std, rtol=0.1)
    call(measurements=[66], trials=1)
    assert given[1][0] is None


def test_heavy_noise_on_few_measurements_does_not_raise():
    assert call(measurements=[2], trials=20, noise=0.99).trials[0] == 20


def test_solver_argument_is_used():
    assert call(solver=lt.TIHT(), measurements=[24], trials=1).recovered[0] == 0
    few = {"measurements": [66], "trials": 1}
    same(call(solver="RGN", **few), call(solver=lt.RGN(), **few))
    assert call(solver=[lt.RSGD(), lt.RGN()], **few).recovered[0] == 1


def test_default_measurements():
    dof = 22
    assert transition._levels(None, "gaussian", SHAPE, RANK) == [
        25, 28, 33, 39, 44, 55, 66, 88, 132, 176
    ]  # fmt: skip
    assert transition._levels(None, "entries", SHAPE, RANK)[-2:] == [132, 150]
    assert transition._levels(None, "dct", SHAPE, RANK)[-1] == 150
    assert transition._levels(None, OWN, SHAPE, RANK)[-2:] == [88, 100]
    assert transition._levels([50, 40, 50], own, SHAPE, RANK) == [40, 50]
    assert transition._levels(None, OWN.restrict(slice(dof)), SHAPE, RANK) == [22]


# Table


def by_hand(recovered, trials=20, m=None):
    n = len(recovered)
    return PhaseTransition(
        SHAPE, RANK, 22, np.array(m or range(30, 30 + 10 * n, 10)), np.full(n, trials),
        np.array(recovered), np.full(n, 1e-7), np.full(n, 3.5), np.array(recovered),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("recovered", "rate", "expected"),
    [
        ([0, 10, 19, 20], 0.95, 50),
        ([0, 10, 19, 20], 0.96, 60),
        ([0, 10, 19, 20], 0.5, 40),
        ([20, 20, 18, 20], 0.95, 60),  # levels below a gap do not count
        ([20, 20, 20, 20], 1.0, 30),
        ([20, 20, 20, 18], 0.95, None),
        ([0], 0.95, None),
        ([14], 0.7, 30),  # 14 / 20 is not less than 0.7
    ],
)
def test_suggestions(recovered, rate, expected):
    assert by_hand(recovered).suggest(rate) == expected


def test_wilson_against_known_values():
    """Newcombe (1998), table I: 81/263, 15/148, 0/20, 1/29."""
    low, high = wilson([81, 15, 0, 1], [263, 148, 20, 29])
    np.testing.assert_allclose(low, [0.2553, 0.0624, 0.0, 0.0061], atol=5e-5)
    np.testing.assert_allclose(high, [0.3662, 0.1605, 0.1611, 0.1718], atol=5e-5)
    np.testing.assert_allclose(wilson(20, 20), (0.8389, 1.0), atol=5e-5)


def test_rows_and_str():
    found = by_hand([5, 19, 20])
    np.testing.assert_allclose(found.rate, [0.25, 0.95, 1.0])
    np.testing.assert_allclose(found.interval[2], [0.8389, 1.0], atol=5e-5)
    rows = found.rows()
    assert rows[1]["m"] == 40
    assert rows[1]["m_over_dof"] == 40 / 22
    assert (rows[1]["recovered"], rows[1]["trials"], rows[1]["rate"]) == (19, 20, 0.95)
    assert all(type(value) in (int, float) for row in rows for value in row.values())
    lines = str(found).splitlines()
    assert lines[0] == "PhaseTransition: shape (5, 5, 6), rank (1, 2, 2), dof 22"
    assert lines[3].split() == ["40", "1.82", "19/20", "0.95", "(0.76-0.99)", "1.0e-07", "3.5"]


def test_plot():
    found = by_hand([0, 10, 20])
    ax = found.plot()
    assert ax.get_xlabel() == "measurements per degree of freedom, m / 22"
    assert ax.get_ylabel() == "share recovered"
    x, y = ax.lines[0].get_data()
    np.testing.assert_allclose(x, np.array([30, 40, 50]) / 22)
    np.testing.assert_allclose(y, [0, 0.5, 1])
    bars = ax.collections[0].get_segments()
    np.testing.assert_allclose([bar[:, 1] for bar in bars], found.interval, atol=1e-12)
    assert found.plot(ax) is ax


# Stored trials


def test_stored_trials_are_reused(tmp_path, computed):
    first = call(folder=tmp_path)
    assert sorted(computed) == [(m, k) for m in (33, 66) for k in range(4)]
    same(call(folder=tmp_path), first)
    same(call(folder=str(tmp_path), workers=2), first)
    assert len(computed) == 8
    more = call(folder=tmp_path, trials=6, measurements=[33, 50, 66])
    assert sorted(computed[8:]) == [
        (33, 4),
        (33, 5),
        *((50, k) for k in range(6)),
        (66, 4),
        (66, 5),
    ]
    same(more, call(trials=6, measurements=[33, 50, 66]))
    computed.clear()
    same(call(folder=tmp_path), first)  # fewer again
    assert computed == []


def test_without_a_folder_no_files_remain(tmp_path, monkeypatch):
    monkeypatch.setattr(trials.tempfile, "tempdir", str(tmp_path))
    call()
    assert list(tmp_path.iterdir()) == []


OTHERS = {
    "seed": {"seed": 1},
    "operator": {"operator": "entries"},
    "own operator": {"operator": OWN},
    "callable": {"operator": own},
    "solver": {"solver": "rgn"},
    "settings of a solver": {"solver": lt.RGN(damping=2.0)},
    "noise": {"noise": 0.01},
    "tol": {"tol": 1e-4},
    "rank": {"rank": (2, 2, 2)},
    "shape": {"shape": (5, 6, 5)},
}


@pytest.mark.parametrize("changed", OTHERS.values(), ids=OTHERS.keys())
def test_trials_are_stored_separately_for_each_setting(tmp_path, computed, changed):
    usual = {"operator": "gaussian", "shape": SHAPE, "rank": RANK, "trials": 2, "folder": tmp_path}
    phase_transition(**usual, measurements=[66])
    assert len(computed) == 2
    for _ in range(2):
        phase_transition(**{**usual, **changed}, measurements=[66])
        assert len(computed) == 4


def test_operators_are_identified_by_their_measurements(tmp_path, computed):
    def call_twice(operator):
        computed.clear()
        call(operator, folder=tmp_path, trials=1, measurements=[66])
        return len(computed)

    assert call_twice(own) == 1
    assert call_twice(own) == 0
    assert call_twice(lambda m, seed: own(m, seed)) == 0  # another function, the same operator
    assert call_twice(other) == 1
    assert call_twice(OWN) == 1
    assert call_twice(lt.gaussian(SHAPE, 100, seed=3)) == 0
    assert call_twice(lt.gaussian(SHAPE, 101, seed=3)) == 1
    assert call_twice(lt.gaussian(SHAPE, 100, seed=4)) == 1


def test_damaged_file_is_computed_again(tmp_path, computed):
    first = call(folder=tmp_path)
    files = sorted(tmp_path.rglob("0-4.npz"))
    assert len(files) == 2
    files[0].write_bytes(files[0].read_bytes()[:50])
    computed.clear()
    same(call(folder=tmp_path), first)
    assert [k for _, k in computed] == [0, 1, 2, 3]


@pytest.fixture(scope="module")
def uninterrupted():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RandomRecoveries, "stack", 2)
        return call()


@pytest.mark.parametrize("after", [0, 1, 5])
def test_phase_transition_resumes_after_an_interrupt(
    tmp_path, computed, after, uninterrupted, monkeypatch
):
    monkeypatch.setattr(RandomRecoveries, "stack", 2)  # batches of two trials

    def interrupt(done, total, text):
        if done > after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(folder=tmp_path, progress=interrupt)
    assert len(computed) == 2 * (after // 2 + 1)
    same(call(folder=tmp_path), uninterrupted)
    assert len(computed) == len(set(computed)) == 8


def test_interrupted_recovery_is_not_stored_as_a_failure(tmp_path, monkeypatch):
    """An interrupted solver returns a partial result, which must not be stored."""
    before = trials.Fit.__call__

    def interrupted(self, problem, rank):
        return replace(before(self, problem, rank), status=lt.Status.INTERRUPTED)

    monkeypatch.setattr(trials.Fit, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(folder=tmp_path)
    assert not list(tmp_path.rglob("*.npz"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "operator",
    [
        "gaussian",
        OWN,
        own,
    ],
    ids=["name", "operator", "callable"],
)
def test_two_workers_give_the_same_result(operator):
    few = {"measurements": [50, 66], "trials": 2}
    same(call(operator, workers=2, **few), call(operator, **few))


def test_trials_are_stored_as_an_experiment(tmp_path):
    call(folder=tmp_path)
    experiment = RandomRecoveries("gaussian", (), SHAPE, RANK, "auto", 0.0, 1e-5)
    columns = Store(tmp_path).get(experiment, Level(66, "gaussian"), 0, 4)
    assert sorted(columns) == ["error", "passes", "success"]
    assert (columns["error"] < 1e-5).all()


# Progress


def test_progress_is_reported(tmp_path):
    heard = []
    call(progress=lambda *news: heard.append(news), folder=tmp_path, trials=1)
    assert heard == [(1, 2, "m = 66"), (2, 2, "m = 33")]
    heard.clear()
    call(progress=lambda *news: heard.append(news), folder=tmp_path, trials=2)
    assert heard == [(3, 4, "m = 66"), (4, 4, "m = 33")]


def test_progress_bar_is_drawn_on_standard_error(capsys):
    call(progress=True, trials=1)
    out, err = capsys.readouterr()
    assert out == ""
    assert "m = 33" in err
    assert "2/2 trials" in err
    call(progress=False, trials=1)
    assert capsys.readouterr() == ("", "")


# Errors, raised before any trial

STACK = lt.gaussian(SHAPE, 100, trials=2)
BAD = [
    ({"operator": "gauss"}, ValueError, "of gaussian, rank-one, entries, dct, got 'gauss'"),
    ({"operator": 5}, TypeError, r"operator must be one of .* a callable \(m, seed\), or a Measur"),
    ({"operator": np.ones((5, 3, 3))}, TypeError,
     r"got a ndarray\. Try lowtucker.as_operator\(A, shape\)"),
    ({"operator": lt.DenseOperator}, TypeError, "operator must be one of"),
    ({"operator": lt.gaussian((5, 5, 5), 50)}, ValueError, r"of shape \(5, 5, 6\), got Dense"),
    ({"operator": STACK}, ValueError, "operator must measure single tensors"),
    ({"operator": lt.gaussian(SHAPE, 21), "measurements": None}, ValueError,
     r"operator has 21 rows, fewer than the 22 degrees of freedom of rank \(1, 2, 2\)"),
    ({"operator": OWN, "measurements": [101]}, ValueError, "measurements must be between 1 and 1"),
    ({"operator": "entries", "measurements": [151]}, ValueError, "be between 1 and 150, got 151"),
    ({"measurements": [0]}, ValueError, "measurements must be at least 1, got 0"),
    ({"measurements": [1.5]}, TypeError, r"measurements must be an integer, got 1\.5"),
    ({"measurements": []}, ValueError, r"got \[\]\. Try measurements=\[44, 88\]"),
    ({"measurements": 44}, ValueError, "measurements must be a sequence of integers, got 44"),
    ({"trials": 0}, ValueError, "trials must be between 1 and 1000000"),
    ({"workers": 0}, ValueError, "workers must be between 1 and 10000, got 0"),
    ({"noise": -0.1}, ValueError, "noise must be a finite number, at least 0"),
    ({"noise": 1.0}, ValueError, "noise must be below 1, got 1: it is relative to the"),
    ({"tol": 0}, ValueError, "tol must be positive"),
    ({"tol": 1.0}, ValueError, "tol must be below 1, the error of X = 0, got 1"),
    ({"seed": -1}, ValueError, "seed must not be negative"),
    ({"seed": (1, 2)}, TypeError, r"seed must be an integer, got \(1, 2\): trials are numbered"),
    ({"solver": "best"}, ValueError, "solver must be one of 'auto'"),
    ({"solver": 3}, TypeError, "solver must be one of 'auto'"),
    ({"solver": ["auto"]}, ValueError, "solver must be one of"),
    ({"progress": 3}, TypeError, r"progress must be a callable \(done, total, text\)"),
    ({"operator": lambda m, seed: own(m, seed), "workers": 2}, TypeError,
     r"operator cannot be sent to other processes .* Try workers=1, or a function"),
    ({"folder": 3}, TypeError, "folder must be a path or None, got 3"),
    ({"folder": __file__}, ValueError, "is a file. Give the name of a new"),
    ({"operator": lambda m, seed: 5}, TypeError, r"operator\(m, seed\) must return a Measurement"),
    ({"operator": lambda m, seed: OWN}, ValueError, r"seed\) must return an operator with 33"),
    ({"operator": lambda m, seed: lt.gaussian((5, 5, 5), m)}, ValueError, "tensors of shape"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "error", "message"), BAD, ids=lambda value: str(value).split(" at 0x")[0][:40]
)
def test_invalid_arguments_raise(changed, error, message, monkeypatch, tmp_path):
    monkeypatch.setattr(RandomRecoveries, "compute", None)
    with pytest.raises(error, match=message):
        call(**{"folder": tmp_path, **changed})
    assert list(tmp_path.iterdir()) == []


def test_invalid_shapes_and_ranks_raise():
    with pytest.raises(ValueError, match="shape must be a tuple of positive integers"):
        phase_transition("gaussian", (5, 0), (1, 1))
    with pytest.raises(ValueError, match=r"rank\[2\] = 7 must be between 1 and 6"):
        phase_transition("gaussian", SHAPE, (1, 1, 7))
    with pytest.raises(ValueError, match="rate must be at most 1"):
        by_hand([1]).suggest(95)
    with pytest.raises(ValueError, match="rate must be positive"):
        by_hand([1]).suggest(0)


def test_unattainable_rank_warns_and_the_attainable_one_is_used():
    with pytest.warns(lt.RankWarning, match="try rank"):
        found = phase_transition("gaussian", SHAPE, (1, 1, 2), measurements=[42], trials=3)
    assert found.rank == (1, 1, 1)
    assert found.dof == 14
    assert found.recovered[0] == 3


SCRIPT = """
import sys
from lowtucker.theory.transition import phase_transition
if __name__ == "__main__":
    phase_transition("gaussian", (12, 12, 12), (2, 2, 2), measurements=[60], trials=10_000,
                     folder=sys.argv[1], workers=int(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals differ on Windows")
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_leaves_only_complete_trials(tmp_path, workers):
    """A real process and a real signal, sent after two batches of 10,000 trials."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "kept"), str(workers)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as process:
        late = threading.Timer(300, process.kill)
        late.start()
        while len(list((tmp_path / "kept").rglob("*.npz"))) < 2 and process.poll() is None:
            threading.Event().wait(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate()
        late.cancel()
    assert process.returncode == -signal.SIGINT
    experiment = RandomRecoveries("gaussian", (), (12,) * 3, (2,) * 3, "auto", 0.0, 1e-5)
    level = Level(60, "gaussian")
    batch = experiment.batch(level)
    files = list((tmp_path / "kept").rglob("*.npz"))
    missing = Store(tmp_path / "kept").missing(experiment, level, 0, batch * (len(files) + 2))
    assert [n for _, n in missing] == [batch, batch]  # every stored file is complete
    k = int(files[0].stem.split("-")[0])  # the second worker may finish first
    errors = Job(experiment, level, 0, k, batch)()["error"]
    np.testing.assert_array_equal(lt.io.load_array(files[0], "error"), errors)  # not partial ones


# Batches


@pytest.mark.parametrize(
    "operator", [*OPERATORS, OWN, own], ids=[*OPERATORS, "operator", "callable"]
)
def test_trials_of_a_batch_are_those_of_single_ones(operator):
    experiment = RandomRecoveries(operator, (), SHAPE, RANK, "auto", 0.0, 1e-5)
    few = Level(28 if operator == "gaussian" else 80, "any")  # some take several starts
    assert experiment.batch(few) == 50
    made = experiment.compute(few, 3, 6, seed=2)
    single = [experiment.trial(few.m, (2, k)) for k in range(3, 9)]
    error, passes, success = np.array(single, dtype=float).T
    np.testing.assert_array_equal(made["error"] <= 1e-5, error <= 1e-5)
    np.testing.assert_array_equal(made["success"], success)
    np.testing.assert_allclose(np.log10(made["error"] + 1e-9), np.log10(error + 1e-9), atol=0.5)
    assert (made["passes"] >= passes - 1e-9).all()
    assert np.median(made["passes"] - passes) <= 0.15 * np.median(passes) + 1


def test_batches_are_cut_to_fit_and_large_problems_run_one_by_one():
    def trials_together(operator, shape, rank, m, noise=0.0):
        experiment = RandomRecoveries(operator, (), shape, rank, "auto", noise, 1e-5)
        return experiment.batch(Level(m, "any"))

    assert trials_together("gaussian", SHAPE, RANK, 44) == 50
    assert trials_together("gaussian", SHAPE, RANK, 44, noise=0.1) == 1
    assert trials_together("gaussian", (30,) * 3, (3,) * 3, 540) == 1
    assert trials_together("entries", (30,) * 3, (3,) * 3, 2000) > 1
    assert trials_together("entries", (40,) * 3, (3,) * 3, 2000) == 1
    # 1e6 numbers and 64 Gram matrices of 288^2
    count = trials_together("gaussian", (10,) * 3, (6,) * 3, 1000)
    assert count == int(2.56e8 / 8 / (10**6 + 64 * 288**2))


def test_progress_counts_the_trials_of_a_batch(tmp_path):
    heard = []
    call(progress=lambda *news: heard.append(news), folder=tmp_path, trials=3)
    assert heard == [(k, 6, "m = 66" if k < 4 else "m = 33") for k in range(1, 7)]
    assert len(list(tmp_path.rglob("0-3.npz"))) == 2
