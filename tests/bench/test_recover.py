"""The rows of the benchmark of ``recover`` are correct. No test asserts a time."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli.main import main
from lowtucker.lab.bench import recover, yardsticks
from lowtucker.lab.bench.methods import COMPARATORS, STOTIHT, IHTMethod, TensorLy, best_step
from lowtucker.lab.bench.timing import holds, write_csv
from lowtucker.lab.bench.yardsticks import NAMES, TOL, TUNING, Recovery, chosen

NOWHERE = Path("no such clip.mat")
SMALL = Recovery(
    name="A1", shape=(5, 5, 6), rank=(1, 2, 2), m=60, trials=4, compared=3, slow=2, tuning=2,
    batched=True, orthonormal=False, targets={"value": ">= 0.5"},
)  # fmt: skip
NOISY = {"name": "C", "shape": (6, 6, 6), "rank": (2, 2, 2), "m": 150, "trials": 2, "noise": 0.1}


def method(name: str):
    return next(one for one in COMPARATORS if one.name == name)


# Problems


def test_batch_holds_the_single_problems():
    (batch,) = SMALL.cases(3, TUNING, batch=True)
    for k, case in enumerate(SMALL.cases(3, TUNING, batch=False)):
        np.testing.assert_array_equal(batch.A.matrix[k], case.A.matrix)
        np.testing.assert_allclose(batch.X_true.full()[k], case.X_true.full(), atol=1e-13)
        np.testing.assert_allclose(batch.y[k], case.y, atol=1e-12)
    assert not np.array_equal(SMALL.draw(0).A.matrix, batch.A.matrix[0])  # not the tuning problems


def test_noise_and_outliers_have_their_shares():
    clean = yardsticks.NearOracle(**{**NOISY, "noise": 0.0}).draw(0)
    noisy = yardsticks.NearOracle(**NOISY).draw(0)
    noise = np.linalg.norm(noisy.y - clean.y) / np.linalg.norm(clean.y)
    assert noise == pytest.approx(0.1)
    case = yardsticks.Outliers(**NOISY, share=0.02).draw(0)
    np.testing.assert_array_equal(case.clean, noisy.y)
    assert np.sum(case.y != case.clean) == 3


def test_small_problems_are_fixed_attainable_and_of_every_order():
    small = yardsticks.Small(name="S", trials=200)
    cases = [small.draw(k) for k in range(200)]
    assert {len(case.rank) for case in cases} == {2, 3, 4}
    for case in cases:
        assert case.X_true.rank == case.rank == lt.attainable_rank(case.rank)
        ratio = case.A.m / lt.degrees_of_freedom(case.A.shape, case.rank)
        assert ratio >= 1.3 or case.A.m == np.prod(case.A.shape)
    np.testing.assert_array_equal(small.draw(7).y, cases[7].y)


def test_every_name_has_yardsticks_and_targets():
    found = chosen(NAMES, NOWHERE)
    assert {one.name for one in found} == set(NAMES) - {"A5"}  # needs the clip
    assert all(any(one.targets for one in found if one.name == name) for name in NAMES[:3])


# Rows


def test_row_of_the_default_equals_a_plain_call():
    row = recover.measure(SMALL, None, 4)
    errors, passes = [], []
    for k in range(4):
        X = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=(0, k), orthonormal=False)
        A = lt.gaussian((5, 5, 6), 60, seed=(0, k))
        result = lt.recover(A, A.forward(X), (1, 2, 2))
        errors.append(np.linalg.norm(result.X.full() - X.full()) / np.linalg.norm(X.full()))
        passes.append(result.passes)
    assert (row.work, row.m, row.method, row.trials) == ("A1", 60, "auto", 4)
    assert row.m_per_dof == 60 / 22
    assert row.value == np.mean(np.array(errors) <= 1e-5)
    assert row.passes == np.median(passes)
    assert (row.target, row.met) == (">= 0.5", row.value >= 0.5)


def test_row_of_a_batch_equals_single_runs():
    """Trial k of the batch draws blocks as the single run with seed (0, k)."""
    fixed = STOTIHT.with_step(0.45)
    row = recover.measure(SMALL, fixed, 3)
    stop = lt.ErrorBelow(1e-5) | lt.Stalled() | lt.MaxEpochs(500)
    runs = [
        lt.solve(lt.Problem(c.A, c.y), lt.StoTIHT(step=0.45), c.rank, stop=stop, X_true=c.X_true,
                 seed=(0, k))
        for k, c in enumerate(SMALL.cases(3, 0, batch=False))
    ]  # fmt: skip
    assert row.value == np.mean([run.error <= 1e-5 for run in runs])
    assert row.passes == pytest.approx(np.median([run.state.passes for run in runs]))
    assert (row.method, row.met, row.note) == ("StoTIHT", None, "step 0.45")


def test_missed_target_is_reported():
    few = replace(SMALL, m=23, targets={"value": ">= 1", "passes_to_tol": "<= 1"})
    row = recover.measure(few, None, 2)
    assert row.met is False
    assert row.target == ">= 1, passes <= 1"
    assert holds(1, "<= 1")
    assert not holds(np.nan, "<= 1")
    assert not holds(np.nan, ">= 1")


def test_timed_rows_have_passes_to_tolerance_and_ratios():
    timed = replace(SMALL, timed=True, batched=False)
    row = recover.measure(timed, None, 2)
    reached = []
    for case in timed.cases(2, 0, batch=False):
        history = lt.recover(case.A, case.y, case.rank, X_true=case.X_true).history
        reached.append(next(p for p, e in zip(history.passes, history.error, strict=True)
                            if e <= TOL))  # fmt: skip
    assert row.passes_to_tol == np.median(reached) <= row.passes
    assert 0 < row.time_least <= row.time <= row.time_greatest
    assert row.memory >= 0
    assert "GB/s" in row.note
    assert "GFlop/s" in row.note
    plain = recover.measure(replace(timed, timed=False), method("RGN"), 1)
    assert np.isnan([plain.time, plain.memory, plain.passes_to_tol]).all()


def test_bound_of_the_time_follows_the_bandwidth_of_memory():
    one = replace(SMALL, time_by_bandwidth=((10, 20), (4, 5)))
    bounds = [one.targets_at(bandwidth)["time"] for bandwidth in (5, 10, 15, 20, 40)]
    assert bounds == ["<= 4", "<= 4", "<= 4.5", "<= 5", "<= 5"]
    assert one.targets_at(10)["value"] == ">= 0.5"
    assert SMALL.targets_at(10) == SMALL.targets


def test_ratios_to_tuned_methods_follow_from_the_rows():
    one = row(work="B1", m=60, time=3.0)
    rows = [one, replace(one, method="TIHT", time=30.0), replace(one, method="StoTIHT", time=6.0),
            replace(one, m=40, time=1.0)]  # fmt: skip
    made = list(recover.ratios(rows))
    assert [(r.method, r.value, r.met) for r in made] == [
        ("auto / TIHT", 0.1, True),
        ("auto / StoTIHT", 0.5, False),
    ]
    untimed = [replace(r, time=np.nan) for r in rows]
    assert not list(recover.ratios(untimed))
    (other, _) = recover.ratios([replace(r, work="B2") for r in rows])
    assert (other.target, other.met) == ("", None)


def test_near_oracle_divides_by_least_squares_on_the_tangent_space():
    yardstick = yardsticks.NearOracle(**NOISY)
    case = yardstick.draw(0)
    X = case.X_true.full().reshape(-1)
    T = lt.TangentSpace(case.X_true)
    basis = np.stack([T.tensor(e).full().reshape(-1) for e in np.eye(T.dof)], axis=1)
    best = basis @ np.linalg.lstsq(case.A.matrix @ basis, case.y, rcond=None)[0]
    result = lt.recover(case.A, case.y, case.rank)
    error = np.linalg.norm(result.X.full().reshape(-1) - X)
    expected = error / np.linalg.norm(best - X)
    assert yardstick.score(case, result) == pytest.approx(expected, rel=1e-6)
    assert 0.8 < expected < 1.3


@pytest.mark.slow
def test_outliers_are_compared_with_clean_measurements():
    yardstick = yardsticks.Outliers(**{**NOISY, "noise": 0.01}, share=0.02)
    case = yardstick.draw(1)
    free = lt.recover(case.A, case.clean, case.rank)
    assert yardstick.score(case, free) == pytest.approx(1)
    plain = lt.recover(case.A, case.y, case.rank)
    assert yardstick.run(case).score < 2 < yardstick.score(case, plain)


def test_unknown_rank_counts_true_ranks():
    yardstick = yardsticks.UnknownRank(**{**NOISY, "noise": 0.01})
    case = yardstick.draw(2)
    assert yardstick.run(case).score == 1
    assert yardstick.score(case, lt.recover(case.A, case.y, (2, 2, 1))) == 0
    assert yardstick.summary(np.array([1.0, 0.0, 1.0, 1.0])) == (0.75, "trials 1")


def test_small_counts_problems_where_the_default_is_worse():
    small = yardsticks.Small(name="S", trials=3)
    exact = small.draw(1)
    good = small.recover(exact)
    assert small.score(exact, good) == 0
    assert small.score(exact, replace(good, X=2 * exact.X_true)) == 1  # StoTIHT recovers it
    assert small.summary(np.array([0.0, 1.0, 0.0, 0.0, 1.0])) == (2, "trials 1, 4")


# Methods


def test_the_best_step_recovers_most_and_then_takes_the_fewest_passes():
    steps = (0.3, 0.65, 3.0)
    tiht = IHTMethod("TIHT", lt.TIHT(), steps=steps)
    cases = list(replace(SMALL, m=90).cases(4, TUNING, batch=True))
    outcomes = {s: tiht.with_step(s).run(cases[0], TOL) for s in steps}
    recovered = {s: int(np.sum(outcomes[s].score <= TOL)) for s in steps}
    assert recovered[3.0] == 0
    assert recovered[0.3] == recovered[0.65] == 4
    assert np.mean(outcomes[0.65].passes) < np.mean(outcomes[0.3].passes)
    assert best_step(tiht, cases, TOL) == 0.65
    assert recover.tune(replace(SMALL, m=90), tiht).note == "step 0.65"


def test_tensorly_takes_a_pass_per_mode_and_one_for_the_core():
    """Its error is that of the returned tensor, on a problem that it solves."""
    from tensorly.regression import TuckerRegressor

    case = replace(SMALL, m=140).draw(0)
    outcome = TensorLy().run(case, TOL)
    fit = TuckerRegressor([1, 2, 2], tol=1e-8, reg_W=1e-9, random_state=0, verbose=0)
    X = fit.fit(case.A.matrix.reshape(140, 5, 5, 6), case.y).weight_tensor_
    truth = case.X_true.full()
    assert outcome.score == pytest.approx(np.linalg.norm(X - truth) / np.linalg.norm(truth))
    assert outcome.score < 1e-5
    assert outcome.passes == 4 * fit.n_iterations_


@pytest.mark.parametrize("one", COMPARATORS, ids=lambda one: one.name)
def test_methods_recover_an_easy_problem(one):
    case = replace(SMALL, m=140).draw(1)
    outcome = (one.with_step(0.45) if one in (STOTIHT, method("TIHT")) else one).run(case, TOL)
    assert outcome.score <= TOL
    assert outcome.passes > 0


# The command


def test_jobs_respect_the_number_of_trials():
    counts = {job.method.name if job.method else "auto": job.trials for job in recover.jobs(SMALL)}
    assert counts == {"auto": 4, "TIHT": 3, "NTIHT": 3, "StoTIHT": 3, "RGN": 3, "TensorLy": 2}
    assert {job.trials for job in recover.jobs(SMALL, 1)} == {1}
    assert [job.trials for job in recover.jobs(replace(SMALL, slow=0))] == [4, 3, 3, 3, 3]


def test_command_prints_writes_and_plots(tmp_path, monkeypatch):
    """In separate processes, as for a user."""
    monkeypatch.setattr(yardsticks, "yardsticks", lambda candle: [SMALL])
    monkeypatch.setattr(recover, "COMPARATORS", (method("TIHT"),))
    files = [tmp_path / "new" / "rows.csv", tmp_path / "new" / "rows.png"]
    done = CliRunner().invoke(
        main, ["bench", "recover", "--only", "a1", "--trials", "1",
               "--csv", str(files[0]), "--plot", str(files[1])],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "A1 m = 60 auto: recovered 100.0%" in done.output
    with open(files[0], newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["method"] for line in lines] == ["auto", "TIHT"]
    assert [line["met"] for line in lines] == ["True", ""]
    assert files[1].read_bytes().startswith(b"\x89PNG")


def row(**changes):
    return replace(recover.measure(SMALL, None, 1), **changes)


@pytest.mark.parametrize(("met", "code"), [(True, 0), (None, 0), (False, 3)])
def test_exit_code_is_3_if_a_target_is_missed(met, code, monkeypatch):
    monkeypatch.setattr(recover, "run", lambda *_: iter([row(met=met), row(met=None)]))
    assert CliRunner().invoke(main, ["bench", "recover", "--only", "A1"]).exit_code == code


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["recover", "--only", "A1,Z9"], "Unknown yardstick 'Z9'. Choose from A1, A2"),
        (["recover", "--only", "B1", "--plot", "x.png"], "--plot shows A1 and A2"),
        (["recover", "--only", "A5", "--candle", "nowhere.mat"], "nowhere.mat does not exist"),
        (["iteration", "--only", "A1"], "not an option of iteration, but of stack, recover"),
    ],
)
def test_invalid_options_are_rejected_before_the_run(options, text):
    done = CliRunner().invoke(main, ["bench", *options])
    assert done.exit_code == 2
    assert text in done.output


def test_a5_alone_without_the_clip_is_an_error():
    with pytest.raises(ValueError, match="not at no such clip"):
        chosen(["A5"], NOWHERE)


def test_plot_has_a_panel_per_yardstick_and_a_line_per_method(tmp_path):
    one = row()
    rows = [replace(one, m=m, m_per_dof=m / 22, value=v) for m, v in ((26, 0.9), (36, 1.0))]
    figure = recover.phase_plot([*rows, replace(one, work="B1")])
    (panel,) = figure.axes
    line = panel.get_lines()[0]
    np.testing.assert_allclose(line.get_xdata(), [26 / 22, 36 / 22])
    np.testing.assert_allclose(line.get_ydata(), [90, 100])
    both = recover.phase_plot([*rows, replace(one, work="A2")])
    assert [p.get_title()[:2] for p in both.axes] == ["A1", "A2"]
    with pytest.raises(ValueError, match="Nothing to plot"):
        recover.phase_plot([replace(one, work="B1")])


def test_rows_are_written_to_csv(tmp_path):
    write_csv([row()], tmp_path / "rows.csv")
    with open(tmp_path / "rows.csv", newline="") as file:
        (line,) = csv.DictReader(file)
    assert float(line["value"]) == 1
    assert line["target"] == ">= 0.5"
