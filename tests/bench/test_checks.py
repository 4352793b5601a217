"""The benchmark of checks: its cases are what they claim to be, its rows count what is wrong.

No test asserts that checks are right: that is what the benchmark measures.
"""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from lowtucker import limits
from lowtucker.cli.main import main
from lowtucker.lab.bench import cases, checks
from lowtucker.lab.bench.checks import SIMULATIONS, Claim, Outcome, Simulation, simulated
from lowtucker.lab.bench.draws import OPERATORS
from lowtucker.recovery import evidence
from lowtucker.tensor import TangentSpace

BY_NAME = {simulation.draw.__name__: simulation for simulation in SIMULATIONS}
# Those that call a solver take longer
SOLVING = {"few": 1, "right_rank": 2, "rank_too_small": 2, "error_interval": 3}
CLAIM = Claim("a check", "noise is signal", "excess", "> {STRUCTURE:g}", 0.1)


def rows_of(name, cases=5, seed=0):
    return simulated(BY_NAME[name], seed, SOLVING.get(name, cases))


def row_of(*outcomes, claim=CLAIM):
    """Row of given outcomes."""
    (row,) = simulated(Simulation(_in_turn(outcomes), 0, (claim,)), 0, len(outcomes))
    return row


def _in_turn(outcomes):
    left = iter(outcomes)
    return lambda rng: [next(left)]


# Cases


@pytest.mark.parametrize("kind", OPERATORS)
def test_cases_have_a_critical_point_at_x_with_the_residual(kind):
    rng = np.random.default_rng(0)
    case = cases.draw_case(rng, (kind,), (1.5, 4.0))
    e, _ = cases.noisy(rng, case.clean, 0.1)
    residual = case.left(e)
    found = case.evidence(residual)
    np.testing.assert_allclose(found.residual, residual, rtol=1e-9, atol=1e-12 * abs(e).max())
    design = np.asarray(case.A.tangent(TangentSpace(case.X)).dense())
    gradient = np.real(design.conj().T @ residual)
    assert np.linalg.norm(gradient) <= 1e-10 * np.linalg.norm(design) * np.linalg.norm(e)
    assert 1.5 <= found.per_dof <= 4.0
    by_lstsq = np.linalg.lstsq(*map(cases._as_real, (design, e)), rcond=None)[0]
    np.testing.assert_allclose(residual, e - design @ by_lstsq, atol=1e-9 * np.linalg.norm(e))


@pytest.mark.parametrize("kind", cases.NOISE)
def test_noise_has_the_standard_deviation(kind):
    rng = np.random.default_rng(1)
    e, std = cases.noisy(rng, np.full(200_000, 3.0), 0.1, kind)
    assert std == pytest.approx(0.3)
    # Student's t with 3 degrees of freedom has no fourth moment: compare the middle half
    middle = {"normal": 0.6745, "student": 0.7649 / math.sqrt(3)}
    if kind in middle:
        assert np.quantile(abs(e), 0.5) == pytest.approx(std * middle[kind], rel=0.02)
    else:
        assert np.std(e) == pytest.approx(std, rel=0.02)


@pytest.mark.parametrize("make", cases.DEFICIENT)
def test_deficient_designs_are_singular_and_miss_no_more_than_they_should(make):
    rng, shape, rank = np.random.default_rng(2), (6, 5, 7), (2, 2, 3)
    A = make(rng, shape, rank)
    X = cases.gaussian_core(rng, shape, rank)
    values = np.linalg.svd(np.asarray(A.tangent(TangentSpace(X)).dense()), compute_uv=False)
    zeros = int(np.sum(values < 1e-12 * values[0]))
    assert X.degrees_of_freedom < A.m
    # prod (r_k - 1) numbers of the core, or a row of a factor
    assert zeros in ({2} if make is cases._corner else set(rank))


def test_deficient_corners_need_ranks_above_one():
    assert cases._corner(np.random.default_rng(0), (4, 4, 4), (1, 2, 2)) is None


# Rows


def test_row_counts_wrong_claims_and_knows_the_threshold_for_the_stated_rate():
    outcomes = [Outcome(float(k), k > 5) for k in range(20)]
    row = row_of(*outcomes, None)
    assert (row.cases, row.wrong, row.rate) == (20, 14, 0.7)
    assert row.threshold == f"> {limits.STRUCTURE:g}"
    assert (row.low, row.high) == (0, 19)
    assert sum(k > row.needed for k in range(20)) <= 0.1 * 20
    assert sum(k > row.needed - 1 for k in range(20)) > 0.1 * 20 - 1
    assert row.met is False
    low = row_of(*outcomes, claim=replace(CLAIM, threshold="<= 3"))
    assert sum(k < low.needed for k in range(20)) <= 0.1 * 20
    assert math.isnan(row_of(*outcomes, claim=replace(CLAIM, threshold="0.5 to 2")).needed)


@pytest.mark.parametrize(("wrong", "met"), [(0, True), (8, True), (20, False)])
def test_a_stated_rate_is_missed_only_where_chance_does_not_explain_it(wrong, met):
    """Of 50 at 10 %: 8 or more in 12 %, 20 or more in 1e-8 of all cases."""
    row = row_of(*(Outcome(0.0, k < wrong) for k in range(50)))
    assert row.met is met


def test_without_cases_there_is_no_rate():
    row = row_of(None, None)
    assert (row.cases, row.met) == (0, None)
    assert math.isnan(row.rate)
    assert math.isnan(row.median)


def test_infinite_statistics_have_quantiles():
    row = row_of(Outcome(1.0, False), Outcome(math.inf, True))
    assert (row.low, row.high) == (1, math.inf)


# Simulations


@pytest.mark.parametrize("name", BY_NAME)
def test_simulations_are_pure_functions_of_the_seed(name):
    first, again = rows_of(name), rows_of(name)
    assert repr(first) == repr(again)
    assert len(first) == len(BY_NAME[name].claims)
    for row in first:
        assert 0 <= row.wrong <= row.cases <= 5
    if name not in SOLVING:
        assert repr(rows_of(name, seed=1)) != repr(first)


def test_cases_do_not_depend_on_how_many_there_are():
    drawn = []

    def recorded(rng):
        drawn.append(float(rng.random()))
        return [None]

    for count in (3, 5):
        simulated(Simulation(recorded, 0, (CLAIM,)), 7, count)
    assert drawn[:3] == drawn[3:6]
    assert len(set(drawn)) == 5


@pytest.mark.parametrize(
    ("name", "limit", "moved", "claim"),
    [
        ("noise_of_unknown_size", "STRUCTURE", -math.inf, 0),
        ("misfit", "STRUCTURE", math.inf, 0),
        ("outliers", "KURTOSIS", math.inf, 1),
    ],
)
def test_a_threshold_that_is_moved_changes_the_rate(monkeypatch, name, limit, moved, claim):
    before = rows_of(name, 12)[claim]
    assert before.cases
    assert before.wrong < before.cases
    monkeypatch.setattr(limits, limit, moved)
    after = rows_of(name, 12)[claim]
    assert after.wrong == after.cases == before.cases
    assert after.median == before.median


def test_a_threshold_of_evidence_changes_the_rate(monkeypatch):
    assert all(row.cases and not row.wrong for row in rows_of("uneven"))
    monkeypatch.setattr(evidence, "UNEVEN", 100.0)
    assert all(row.rate == 1 for row in rows_of("uneven"))


def test_residuals_above_the_floor_are_wrong(monkeypatch):
    """The floor of twice the noise is never exceeded, that of a tenth always."""
    floor = checks.noise_floor
    for factor, rate in ((2.0, 0), (0.1, 1)):
        monkeypatch.setattr(
            checks, "noise_floor", lambda p, std, rank, f=factor: floor(p, f * std, rank)
        )
        assert {row.rate for row in rows_of("noise_of_the_given_size", 8)} == {rate}


def test_misfits_are_outside_the_tangent_space_and_not_noise():
    (row,) = rows_of("misfit", 20)
    assert row.cases
    assert row.median > limits.STRUCTURE


def test_designs_with_a_damped_direction_are_further_from_rounding_than_deficient_ones():
    assert rows_of("determined", 10)[0].low > 1 > rows_of("deficient", 10)[0].high


# The command


def test_command_prints_the_table_and_writes_rows(monkeypatch, tmp_path):
    some = tuple(BY_NAME[name]._replace(cases=30) for name in ("deficient", "uneven"))
    monkeypatch.setattr(checks, "SIMULATIONS", some)
    file = tmp_path / "rows.csv"
    done = CliRunner().invoke(
        main, ["bench", "checks", "--quick", "--seed", "3", "--csv", str(file)]
    )
    assert done.exit_code == 0, done.output
    assert all(text in done.output for text in ("stated", "needed", "0.00%"))
    assert "determined: a deficient design is: 0 of 3" in done.output
    with open(file, newline="") as lines:
        written = list(csv.DictReader(lines))
    expected = [row for simulation in some for row in simulated(simulation, 3, 3)]
    for line, row in zip(written, expected, strict=True):
        assert (line["check"], line["cases"]) == (row.check, str(row.cases))
        assert float(line["median"]) == row.median or math.isnan(row.median)


def test_command_exits_with_3_where_a_stated_rate_is_missed(monkeypatch):
    always = Simulation(lambda rng: [Outcome(9.0, True)], 100, (CLAIM,))
    monkeypatch.setattr(checks, "SIMULATIONS", (always,))
    done = CliRunner().invoke(main, ["bench", "checks"])
    assert done.exit_code == 3, done.output
    assert "100.00%" in done.output


def test_other_options_are_rejected():
    done = CliRunner().invoke(main, ["bench", "checks", "--jobs", "2"])
    assert done.exit_code == 2
    assert "--jobs is not an option of checks" in done.output
