"""The benchmark of verdicts: its problems, the rules by which results are judged, its tables.

No test asserts a time, nor that verdicts are right: that is what the benchmark measures.
"""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli.main import main
from lowtucker.lab.bench import confusion, datasets, draws, verdict, zoo
from lowtucker.lab.bench.datasets import Source
from lowtucker.lab.bench.draws import OPERATORS, Target, Trial
from lowtucker.lab.bench.verdict import Row, oracle_error
from lowtucker.lab.bench.zoo import FAMILIES, problem

# A problem of seed 0 whose call takes some hundredths of a second
FAST = 7
NAN = math.nan


@pytest.fixture
def small_data(monkeypatch):
    """Data in the place of those that TensorLy ships, with an entry that nobody knows."""
    X = 1 + lt.random_tucker((9, 8, 7), (2, 2, 2), seed=0).full()
    X[0, 0, 0] = np.nan
    source = Source(lambda folder: None, "nowhere", lambda folder: X)
    monkeypatch.setattr(zoo, "SOURCES", dict.fromkeys(datasets.SOURCES, source))
    zoo._read.cache_clear()
    yield X
    zoo._read.cache_clear()


def drawn(family: str, k: int = 0) -> Trial:
    return FAMILIES[family].draw(np.random.default_rng(k))


def row(**changed) -> Row:
    """A success with 1 % noise, as good as the oracle's and with a good estimate."""
    given = {
        "seed": 0, "index": 0, "family": "exact", "operator": "gaussian", "noise": "unknown",
        "level": 0.01, "given": "right", "shape": "5,5,6", "rank": "1,2,2", "rank_given": "1,2,2",
        "m": 66, "m_per_dof": 3.0, "status": "NOISE_FLOOR", "success": True, "error": 0.01,
        "estimate": 0.01, "oracle": 0.01, "seconds": 1.0,
    }  # fmt: skip
    made = Row(**(given | changed))
    return replace(made, verdict=made.verdict or verdict.verdict(made))


def failure(**changed) -> Row:
    return row(**({"success": False, "status": "STALLED"} | changed))


# Problems


@pytest.mark.usefixtures("small_data")
def test_problems_are_pure_functions_of_seed_and_index():
    first = [problem(3, index) for index in range(12)]
    again = [problem(3, index) for index in reversed(range(12))][::-1]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.y, other.y)
        np.testing.assert_array_equal(one.X_true, other.X_true)
        assert repr(one) == repr(other)
        X = np.random.default_rng(0).standard_normal(one.A.shape)
        np.testing.assert_array_equal(one.A.forward(X), other.A.forward(X))
    assert repr(problem(4, 0)).split(":")[1] != repr(first[0]).split(":")[1]
    assert (first[5].seed, first[5].index) == (3, 5)


@pytest.mark.usefixtures("small_data")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_draws_valid_problems(family):
    for k in range(4):
        trial = drawn(family, k)
        assert trial.y.shape == (trial.A.m,)
        assert np.isfinite(trial.y).all()
        assert trial.X_true.shape == trial.A.shape
        assert ("noise_std" in trial.arguments) == (trial.noise == "known")
        assert set(trial.arguments) <= {"rank", "noise_std", "loss"}
        assert trial.given in draws.GIVEN
        if trial.rank is not None:
            assert lt.multilinear_rank(trial.X_true, 1e-9) == trial.rank
        if trial.noise == "none":
            np.testing.assert_array_equal(trial.y, trial.A.forward(trial.X_true))


@pytest.mark.parametrize("kind", OPERATORS)
def test_every_operator_has_the_measurements_per_degree_of_freedom(kind):
    rng = np.random.default_rng(1)
    target = Target(lt.random_tucker((8, 9, 7), (2, 2, 2), seed=0).full(), (2, 2, 2))
    dof = lt.degrees_of_freedom((8, 9, 7), (2, 2, 2))
    for _ in range(5):
        A = draws.draw_operator(rng, kind, target)
        equations = lt.Problem(A, A.forward(target.X)).equations
        assert 0.9 * dof - 1 <= equations <= 6 * dof + 1
        lt.check_adjoint(A)


def test_noise_has_its_size_and_is_known_where_it_is_given():
    rng = np.random.default_rng(2)
    target = Target(lt.random_tucker((9, 9, 9), (2, 2, 2), seed=0).full(), (2, 2, 2))
    A = lt.gaussian((9, 9, 9), 4000, seed=0)
    clean = A.forward(target.X)
    for noise in (draws.white, zoo._student, zoo._uneven_noise):
        trials = [draws.measured(rng, "gaussian", A, target, noise=noise) for _ in range(6)]
        sizes = [np.linalg.norm(t.y - clean) / np.linalg.norm(clean) / t.level for t in trials]
        assert np.median(sizes) == pytest.approx(1, abs=0.1)
        stds = [t.arguments["noise_std"] / t.level for t in trials if t.noise == "known"]
        np.testing.assert_allclose(stds, np.linalg.norm(clean) / 4000**0.5)
        assert stds


def test_rank_that_is_given_differs_by_one_in_one_mode():
    rng = np.random.default_rng(0)
    target = Target(lt.random_tucker((6, 6, 6), (2, 3, 2), seed=0).full(), (2, 3, 2))
    found = {draws._given(rng, target, exact=True) for _ in range(200)}
    assert {given for given, _ in found} == set(draws.GIVEN)
    for given, rank in found:
        step = {"right": 0, "small": -1, "large": 1}.get(given)
        if step is not None:
            assert sorted(np.subtract(rank, target.rank) * (step or 1)) == [0, 0, abs(step)]
            assert lt.attainable_rank(rank) == rank


def test_unfoldings_have_conditions_up_to_the_largest():
    found = []
    for k in range(40):
        target = draws.low_rank(np.random.default_rng(k))
        values = zip(lt.spectra(target.X).values, target.rank, strict=True)
        found.append(max(float(s[0] / s[r - 1]) for s, r in values))
    assert min(found) == pytest.approx(1)
    assert 10 < np.quantile(found, 0.9) < 35


def test_hidden_entries_are_not_measured(small_data):
    trial = drawn("real")
    places = tuple(trial.A.indices.T)
    assert not trial.hidden[places].any()
    np.testing.assert_array_equal(trial.y, trial.X_true[places])
    assert trial.hidden.any()
    assert not np.isnan(trial.X_true[trial.hidden]).any()


def test_corner_is_three_slices_through_an_entry():
    mask = zoo._corner(np.random.default_rng(0), (4, 5, 6))
    assert mask.sum() == 4 * 5 * 6 - 3 * 4 * 5
    assert mask.all(axis=(1, 2)).sum() == mask.all(axis=(0, 2)).sum() == 1


def test_few_entries_of_a_thin_slice_may_be_sampled():
    for k in range(10):
        mask = zoo._thin_slice(np.random.default_rng(k), (5, 6, 7))
        modes = [mask.sum(axis=tuple(j for j in range(3) if j != m)) for m in range(3)]
        assert min(map(min, modes)) <= 4
        assert mask.sum() >= 5 * 6 * 7 - 6 * 7


# Rules


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "success"),
        ({"error": 0.029}, "success"),  # of three estimates at most
        ({"error": 0.031}, "false success"),
        ({"estimate": NAN}, "false success"),
        ({"estimate": NAN, "error": 9e-6}, "success"),  # negligible
        ({"estimate": 5.0, "error": 1.01}, "false success"),  # worse than zero
        ({"error": math.inf, "estimate": math.inf}, "false success"),
        ({"success": None}, "crash"),
        ({"oracle": NAN, "given": "small"}, "success"),  # an estimate that says so is enough
    ],
)
def test_successes_are_judged_by_their_estimate(changed, expected):
    assert row(**changed).verdict == expected


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "false failure"),
        ({"error": 0.019}, "false failure"),
        ({"error": 0.021}, "missed"),
        ({"error": 0.021, "m_per_dof": 1.49}, "failure"),
        ({"m_per_dof": 1.1}, "false failure"),
        ({"m_per_dof": 1.0}, "failure"),
        ({"given": "small"}, "failure"),
        ({"oracle": 0.11, "error": 0.11}, "failure"),
        ({"oracle": math.inf}, "failure"),
        ({"oracle": NAN}, "failure"),
        ({"oracle": 1e-7, "error": 9e-6}, "false failure"),  # both negligible
        ({"oracle": 1e-7, "error": 2e-5}, "missed"),
    ],
)
def test_failures_are_judged_by_the_oracle(changed, expected):
    assert failure(**changed).verdict == expected


def exact_trial(noise: float, m: int = 120, **changed) -> Trial:
    X = lt.random_tucker((6, 7, 8), (2, 2, 2), seed=0)
    A = lt.gaussian((6, 7, 8), m, seed=1)
    e = np.random.default_rng(2).standard_normal(m)
    y = A.forward(X)
    y = y + noise * np.linalg.norm(y) / m**0.5 * e
    given = {"noise": "unknown" if noise else "none", "level": noise, "given": "right",
             "rank": (2, 2, 2), "arguments": {"rank": (2, 2, 2)}}  # fmt: skip
    return Trial(**({"A": A, "y": y, "X_true": X.full(), "operator": "gaussian"} | given | changed))


def test_oracle_with_noise_has_the_error_of_least_squares_on_the_tangent_space():
    trial = exact_trial(1e-4)
    X = trial.X_true.reshape(-1)
    T = lt.TangentSpace(lt.hosvd(trial.X_true, (2, 2, 2)))
    basis = np.stack([T.tensor(e).full().reshape(-1) for e in np.eye(T.dof)], axis=1)
    best = basis @ np.linalg.lstsq(trial.A.matrix @ basis, trial.y, rcond=None)[0]
    expected = np.linalg.norm(best - X) / np.linalg.norm(X)
    assert oracle_error(trial) == pytest.approx(expected, rel=1e-2)
    larger = replace(trial, given="large", arguments={"rank": (2, 3, 2)})
    assert expected < oracle_error(larger) < 2 * expected  # more degrees of freedom


def test_oracle_without_noise_is_the_error_that_the_tolerance_allows():
    trial = exact_trial(0.0)
    error = oracle_error(trial)
    assert 1e-7 < error < 1e-5
    doubled = replace(trial, y=3 * trial.y, X_true=3 * trial.X_true)
    assert oracle_error(doubled) == pytest.approx(error)
    assert oracle_error(exact_trial(0.0, m=30)) == math.inf
    damped = np.eye(6) - (1 - 1e-3) * np.outer(np.eye(6)[0], np.eye(6)[0])
    rows = np.einsum("mabc,ad->mdbc", trial.A.matrix.reshape(-1, 6, 7, 8), damped)
    A = lt.as_operator(rows.reshape(-1, 336), (6, 7, 8))
    assert oracle_error(replace(trial, A=A, y=A.forward(trial.X_true))) > 100 * error


def test_oracle_of_complex_measurements_of_real_tensors_counts_real_equations():
    X = lt.random_tucker((6, 7, 8), (2, 2, 2), seed=0)
    dof = lt.degrees_of_freedom((6, 7, 8), (2, 2, 2))
    A = lt.subsampled_transform((6, 7, 8), int(0.7 * dof), "fft", seed=1)
    trial = exact_trial(0.0, A=A, y=A.forward(X))
    assert trial.m_per_dof == pytest.approx(1.4, abs=0.05)
    assert oracle_error(trial) < 1e-3


@pytest.mark.parametrize("changed", [{"given": "small"}, {"rank": None}])
def test_there_is_no_oracle_without_the_rank(changed):
    assert math.isnan(oracle_error(exact_trial(0.01, **changed)))


def test_row_has_the_numbers_of_a_plain_call():
    trial = exact_trial(0.01)
    result = lt.recover(trial.A, trial.y, (2, 2, 2))
    found = verdict.judge(trial)
    assert found.status == result.status.name
    assert found.success == result.success
    assert found.error == pytest.approx(lt.metrics.relative_error(result.X.full(), trial.X_true))
    assert found.estimate == result.error_estimate
    assert found.verdict == "success"
    assert (found.shape, found.rank, found.rank_given) == ("6,7,8", "2,2,2", "2,2,2")
    assert found.seconds >= 0


def test_errors_of_hidden_entries_count_alone_and_of_zero_are_infinite():
    hidden = np.zeros((6, 7, 8), dtype=bool)
    hidden[0] = True
    trial = exact_trial(0.0, hidden=hidden)
    X = trial.X_true.copy()
    X[1:] += 1
    assert verdict._error(trial, X) == 0
    assert verdict._error(trial, np.zeros_like(X)) == 1
    nothing = replace(trial, X_true=np.zeros_like(X), hidden=None)
    assert verdict._error(nothing, X) == math.inf
    assert verdict._error(nothing, np.zeros_like(X)) == 0


def test_exceptions_and_nan_are_crashes(monkeypatch):
    trial = exact_trial(0.01)
    result = verdict.solved(trial)
    found = verdict.judge(replace(trial, arguments={"rank": (2, 2, 2), "tol": -1.0}))
    assert found.verdict == "crash"
    assert found.note.startswith("ValueError: tol must be")
    monkeypatch.setattr(verdict, "solved", lambda trial: replace(result, X=NAN * result.X))
    found = verdict.judge(trial)
    assert (found.verdict, found.note) == ("crash", "NaN: X")


def test_data_that_are_not_installed_are_skipped(monkeypatch):
    def missing(seed, index):
        raise ImportError("No module named 'tensorly'")

    monkeypatch.setitem(verdict.SOURCES, "usual", missing)
    found = verdict.outcome(0, 5)
    assert (found.verdict, found.index) == ("skipped", 5)
    assert "tensorly" in found.note
    assert confusion.grouped([found, row()], "family") == {"exact": [row()]}


# Tables


def test_counts_and_goals_of_some_rows():
    rows = [row(), row(error=0.5), failure(), failure(error=0.5), failure(given="small"),
            row(success=None), row(estimate=0.004), row(error=1e-9)]  # fmt: skip
    expected = [3, 1, 1, 1, 1, 1]
    assert list(confusion.counts(rows).values()) == expected
    assert list(confusion.counts(rows)) == [
        "success", "false success", "failure", "false failure", "missed", "crash",
    ]  # fmt: skip
    goals = {goal.what: goal for goal in confusion.goals(rows)}
    assert goals["false success"].ratio == 1 / 8
    assert goals["false failure"].detail == "1 of 7"  # of those whose rank is not too small
    assert goals["missed"].met is None
    assert goals["estimate within a factor 2"].detail == "1 of 3"
    assert goals["error in its interval"].detail == "0 of 0"
    assert {goals[name].met for name in ("false success", "false failure", "crash")} == {False}
    assert all(goal.met is not False for goal in confusion.goals([row()] * 5))


def test_estimates_of_successes_that_are_not_negligible():
    ratios = [0.4, 0.6, 1.0, 1.0, 2.5]
    rows = [row(error=0.01 * ratio, low=0.005, high=0.02) for ratio in ratios]
    others = [row(estimate=NAN), row(error=1e-8), failure()]
    found = confusion.estimates([*rows, *others])
    assert (found.successes, found.without, found.good) == (6, 1, 3)
    np.testing.assert_allclose(found.quantiles, np.quantile(ratios, [0.05, 0.5, 0.95]))
    assert (found.intervals, found.inside) == (5, 3)
    assert np.isnan(confusion.estimates(others[1:]).quantiles).all()


def test_flips_are_the_indices_of_other_verdicts():
    rows = [row(index=index) for index in range(4)]
    others = [rows[0], replace(rows[1], status="CONVERGED"), replace(rows[2], error=0.011),
              replace(rows[3], success=False, status="STALLED")]  # fmt: skip
    assert confusion.flips(rows, others) == [1, 3]
    goal = confusion.goals(rows, others)[-1]
    assert (goal.ratio, goal.met) == (0.5, False)


def test_slowest_come_first():
    rows = [row(index=index, seconds=float(index % 5)) for index in range(20)]
    found = confusion.slowest(rows, 3)
    assert [one.seconds for one in found] == [4, 4, 4]


# The command


@pytest.mark.slow
def test_command_prints_tables_and_writes_rows(tmp_path):
    """In separate processes, as for a user."""
    file = tmp_path / "rows.csv"
    done = CliRunner().invoke(
        main, ["bench", "verdict", "--problems", "12", "--seed", "8", "--jobs", "1",
               "--csv", str(file)],
    )  # fmt: skip
    assert done.exit_code in (0, 3), done.output
    for text in ("recoverable", "error / estimate", "Misses: ", "Slowest: 10", "12 of 12"):
        assert text in done.output
    with open(file, newline="") as lines:
        written = list(csv.DictReader(lines))
    assert [line["index"] for line in written] == [str(index) for index in range(12)]
    for index, line in enumerate(written):
        trial = problem(8, index)
        assert (line["family"], line["operator"]) == (trial.family, trial.operator)


@pytest.mark.parametrize(("others", "code"), [({}, 0), ({"error": 0.5}, 3)])
def test_command_compares_kernels_and_exits_with_3_if_a_goal_is_missed(monkeypatch, others, code):
    def run(seed, indices, jobs, kernel, source):
        assert source == "usual"
        return iter([row(index=index, **others) for index in indices])

    monkeypatch.setattr(verdict, "run", run)
    monkeypatch.setattr(verdict, "check_kernel", lambda kernel: None)
    done = CliRunner().invoke(main, ["bench", "verdict", "--quick", "--kernel", "Haswell"])
    assert done.exit_code == code, done.output
    assert "Other verdicts with Haswell: 0" in done.output
    assert "60 of 60 with Haswell" in done.output
    assert ("59 false success" in done.output) == bool(others)


def test_single_problems_are_printed_whole():
    done = CliRunner().invoke(main, ["bench", "verdict", "--only", str(FAST)])
    assert done.exit_code == 0, done.output
    trial = problem(0, FAST)
    found, result = verdict.examine(trial)
    for text in (repr(trial), f"{FAST} {found.verdict}: ", "  effort", result.advice):
        assert text in done.output


@pytest.mark.slow
def test_unknown_kernels_are_rejected(monkeypatch):
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    with pytest.raises(ValueError, match=r"BLAS is .* as without it; expected another kernel"):
        verdict.check_kernel("NoSuchKernel")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["verdict", "--only", "A1"], "must be indices of problems"),
        (["verdict", "--only", "3", "--problems", "5"], "omit --problems"),
        (["recover", "--kernel", "Haswell"], "--kernel is not an option of recover"),
        (["verdict", "--problems", "0"], "0 is not in the range"),
    ],
)
def test_invalid_options_are_rejected(options, text):
    done = CliRunner().invoke(main, ["bench", *options])
    assert done.exit_code == 2
    assert text in done.output
