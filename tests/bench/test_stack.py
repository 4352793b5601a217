"""The rows of the benchmark of batches are correct. No test asserts a time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli.main import main
from lowtucker.lab.bench import stack, timing


@pytest.fixture
def small_machine(monkeypatch):
    """Rows of the machine without its 256 MB."""
    monkeypatch.setattr(stack, "machine_rows", lambda: [timing.Row("machine", 1.0, "", None, "")])


def test_batch_and_loop_have_the_same_problems():
    batch, loop = stack._problems(3, 28), stack._singles(3, 28)
    for k, case in enumerate(loop):
        np.testing.assert_array_equal(batch.A.matrix[k], case.A.matrix)
        np.testing.assert_allclose(batch.y[k], case.y, atol=1e-12)


def test_steps_are_compared_or_the_refusal_is_reported():
    row = stack.steps_row(repeats=1, problems=3, singles=2)
    assert row.target == ">= 25"
    if math.isnan(row.ratio):
        assert row.met is False
        assert row.detail.startswith("not possible: RGN takes one problem")
    else:
        assert row.ratio > 0
        assert "loop " in row.detail
        assert "batch " in row.detail


def test_verdicts_count_what_was_recovered():
    row = stack.verdicts_row(repeats=1, problems=3)
    singles = [lt.recover(case.A, case.y, case.rank) for case in stack._singles(3, 28)]
    truth = stack._problems(3, 28).X_true
    right = sum(
        np.linalg.norm(one.X.full() - X) <= 1e-5 * np.linalg.norm(X)
        for one, X in zip(singles, truth.full(), strict=True)
    )
    called = sum(one.success for one in singles)
    assert f", {right} recovered, {called} called so, batch" in row.detail
    assert row.ratio > 0


def test_a_faster_batch_that_recovers_less_misses_its_target(monkeypatch):
    fast = {"loop": timing.Spread(30, 30, 30), "batch": timing.Spread(1, 1, 1)}

    def measured(actions, repeats):
        for action in actions.values():
            action()
        return fast

    def nothing(A, y, rank):
        result = lt.recover(A, y, rank, max_epochs=30)
        return replace(result, X=0 * result.X) if A.batch_shape else result

    monkeypatch.setattr(stack, "side_by_side", measured)
    monkeypatch.setattr(stack, "_recovered", lambda results, X: 3)
    assert stack.verdicts_row(repeats=1, problems=3).met
    monkeypatch.undo()
    monkeypatch.setattr(stack, "side_by_side", measured)
    monkeypatch.setattr(stack, "recover", nothing)
    assert stack.verdicts_row(repeats=1, problems=3).met is False


def test_target_of_starts_is_what_the_longest_leaves(monkeypatch):
    monkeypatch.setattr(stack, "CUBE", {"shape": (5, 5, 6), "rank": (1, 2, 2)})
    row = stack.starts_row(starts=3)
    case = stack._yardstick(**stack.CUBE, m=450).draw(0)
    first = lt.random_tucker(case.A.shape, case.rank, seed=(1, 0), trials=3)
    each = [
        lt.solve(lt.Problem(case.A, case.y), lt.RGN(), case.rank, start=first.trial(k)).passes
        for k in range(3)
    ]
    assert row.target == f">= {0.9 * sum(each) / max(each):.3g}"
    assert math.isnan(row.ratio) or row.ratio <= 3.0001


def test_plan_and_phase_diagram_state_seconds():
    planned = stack.plan_row(1, (3, 3, 3), (1, 1, 1))
    assert planned.target == "<= 10"
    assert "m = " in planned.detail
    diagram = stack.phase_row(1, (4, 4, 4), ranks=(1,), trials=2)
    assert "6 cells x 2 trials" in diagram.what
    assert diagram.detail.endswith("of 12 recovered")


def test_slow_calls_are_not_repeated(monkeypatch):
    calls = []
    monkeypatch.setattr(stack, "BUDGET", -1.0)
    took, result = stack._repeated(lambda: calls.append(1) or "made", 9, lambda: 0.0)
    assert (len(calls), result, took.median) == (1, "made", 0.0)
    monkeypatch.setattr(stack, "BUDGET", 1e9)
    stack._repeated(lambda: calls.append(1), 9, lambda: 0.0)
    assert len(calls) == 10


def test_command_runs_what_was_asked_for(small_machine, monkeypatch):
    asked = []

    def row(repeats):
        asked.append(repeats)
        return timing.Row("E4 plan", 5.0, "<= 10", True, "5 s")

    monkeypatch.setattr(stack, "WORKS", {**stack.WORKS, "E4": row})
    done = CliRunner().invoke(main, ["bench", "stack", "--only", "e4", "--quick"])
    assert done.exit_code == 0, done.output
    assert "E4 plan: 5" in done.output
    assert CliRunner().invoke(main, ["bench", "stack", "--only", "E4"]).exit_code == 0
    assert asked == [1, timing.REPEATS]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--only", "E9"], "Unknown yardstick 'E9'. Choose from E1, E2"),
        (["--trials", "3"], "--trials is not an option of stack, but of recover"),
    ],
)
def test_invalid_options_are_rejected_before_the_run(options, text):
    done = CliRunner().invoke(main, ["bench", "stack", *options])
    assert done.exit_code == 2
    assert text in done.output
