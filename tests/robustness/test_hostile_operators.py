"""A fuzzer of operators: nothing that is wrong may be called a success.

LOWTUCKER_HOSTILE=10000 tries that many problems; 2000 otherwise, and 12 among the fast tests.
lab/bench/hostile.py says what is drawn, lab/bench/verdict.py what a false success is.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli import main
from lowtucker.lab.bench import verdict
from lowtucker.lab.bench.hostile import FAULTS, WRAPPERS, problem

CASES = int(os.environ.get("LOWTUCKER_HOSTILE", "2000"))
pytestmark = pytest.mark.filterwarnings("ignore::lowtucker.SlowOperatorWarning")


def judged(rows):
    """Counts of verdicts, and successes that are wrong; fails at an exception."""
    rows = list(rows)
    crashes = [row for row in rows if row.verdict == verdict.CRASH]
    assert not crashes, crashes
    wrong = [row for row in rows if row.verdict == verdict.FALSE_SUCCESS]
    return Counter(row.verdict for row in rows), wrong


def test_some_hostile_operators():
    counts, wrong = judged(verdict.outcome(1, index, "hostile") for index in range(20, 32))
    assert len(wrong) <= 1, wrong
    assert counts[verdict.SUCCESS] >= 2  # not all is refused


@pytest.mark.slow
def test_many_hostile_operators():
    """Allowed are 2 %.

    15 of 2000 were wrong, six of them because A is blind to a part of X: what is left is a tensor
    of smaller rank that fits exactly. Other CPUs have other last digits.
    """
    counts, wrong = judged(verdict.run(1, range(CASES), jobs=2, source="hostile"))
    assert len(wrong) <= 1 + 0.02 * CASES, wrong
    assert counts[verdict.SUCCESS] >= 0.2 * CASES


def test_problems_are_pure_functions_and_reach_every_fault_and_wrapper():
    drawn = [problem(3, index) for index in range(150)]
    again = problem(3, 149)
    np.testing.assert_array_equal(again.y, drawn[149].y)
    assert {trial.family for trial in drawn} == set(FAULTS)
    assert {trial.operator for trial in drawn} == set(WRAPPERS)
    for trial in drawn[:50]:
        if not trial.refusable:
            lt.check_adjoint(trial.A, rtol=1e-6)


def test_the_benchmark_runs_hostile_problems():
    done = CliRunner().invoke(main, ["bench", "verdict", "--hostile", "--only", "3"])
    assert done.exit_code == 0, done.output
    assert repr(problem(0, 3)).split(":")[0] in done.output


# Functions that contradict each other


M = np.random.default_rng(0).standard_normal((60, 60))
SHAPE, RANK = (5, 4, 3), (1, 1, 1)
X = lt.random_tucker(SHAPE, RANK, seed=0)
Y = M @ X.full().ravel()
NOISE = 0.02 * np.linalg.norm(Y) / 60**0.5 * np.random.default_rng(1).standard_normal(60)
WRONG = {
    "adjoint of other rows": (lambda x: M @ x, lambda v: v @ M[::-1]),
    "sign": (lambda x: M @ x, lambda v: -v @ M),
    "offset": (lambda x: M @ x + 10, lambda v: v @ M),
    "saturated": (lambda x: np.clip(M @ x, -1e-3, 1e-3), lambda v: v @ M),
}


def functions(forward, adjoint):
    return lt.FunctionOperator(
        lambda x: forward(x.reshape(-1)), lambda v: adjoint(v).reshape(SHAPE), SHAPE, 60
    )


@pytest.mark.parametrize("rank", [RANK, None])
@pytest.mark.parametrize("how", WRONG)
def test_functions_that_contradict_each_other_are_no_success(how, rank):
    text = "forward is not linear" if how in ("offset", "saturated") else "is not the adjoint of"
    with pytest.warns(lt.OperatorWarning, match=f"FunctionOperator: .*{text}.*check_adjoint"):
        result = lt.recover(functions(*WRONG[how]), Y + NOISE, rank)
    assert not result.success
    (found,) = [finding for finding in result.findings if finding.kind == "operator"]
    assert found.numbers["gap"] > 0.1


def test_each_problem_of_a_batch_is_judged():
    A = functions(*WRONG["sign"])
    with pytest.warns(lt.OperatorWarning, match="not the adjoint"):
        result = lt.recover(A, np.stack([Y + NOISE, Y]), RANK)
    assert result.success.tolist() == [False, True]  # an exact fit is one
    assert result.passes >= result.history["passes"][-1].max()
    for k in range(2):
        assert "operator" in [finding.kind for finding in result.trial(k).findings]


def test_functions_that_differ_a_little_are_named_but_trusted():
    A = functions(lambda x: M @ x, lambda v: 1.02 * v @ M)
    with pytest.warns(lt.OperatorWarning, match="not the adjoint"):
        result = lt.recover(A, Y + NOISE, RANK)
    assert result.success
    assert lt.metrics.relative_error(result.X, X) < 3 * result.error_estimate


def test_right_functions_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error", lt.OperatorWarning)
        assert lt.recover(functions(lambda x: M @ x, lambda v: v @ M), Y + NOISE, RANK).success


# What held-out measurements do not show


def test_rows_that_hardly_differ_predict_each_other_and_determine_nothing():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2, 80))[rng.integers(0, 2, 40)]
    rows = rows + 1e-6 * rng.standard_normal(rows.shape)
    y = rows @ lt.random_tucker((4, 4, 5), (3, 3, 1), seed=0).full().ravel()
    y = y + 0.01 * np.linalg.norm(y) / 40**0.5 * rng.standard_normal(40)
    with pytest.warns(lt.UnderdeterminedWarning, match="2 measurements cannot determine"):
        result = lt.recover(rows, y, shape=(4, 4, 5))
    assert result.status is lt.Status.UNDERDETERMINED


@pytest.mark.parametrize("as_functions", [False, True])
def test_the_error_in_one_direction_of_all_tensors_is_part_of_the_estimate(as_functions):
    """There are more rows than entries, but they are nearly blind in one direction."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((5, 4, 3)) / np.arange(1, 4) ** 2
    direction = rng.standard_normal(60)
    direction /= np.linalg.norm(direction)
    rows = rng.standard_normal((70, 60))
    rows -= (1 - 1e-7) * np.outer(rows @ direction, direction)
    y = rows @ truth.ravel()
    y = y + 1e-3 * np.linalg.norm(y) / 70**0.5 * rng.standard_normal(70)
    A = lt.DenseOperator(rows, SHAPE)
    if as_functions:
        A = lt.FunctionOperator(A.forward, A.adjoint, SHAPE, 70)
    result = lt.recover(A, y)
    error = lt.metrics.relative_error(result.X, truth)
    assert result.status is lt.Status.APPROXIMATED
    assert error < 3 * result.error_estimate
    assert result.error_estimate > 0.1 > 10 * result.residual
