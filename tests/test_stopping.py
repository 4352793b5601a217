"""Stopping rules are pure in the history and combine."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt


def history(residual, **columns):
    rows = len(residual)
    return lt.History.of(
        {"epoch": list(range(rows)), "seconds": list(range(rows)), "residual": residual} | columns
    )


def test_residual_below():
    rule = lt.ResidualBelow(1e-3)
    assert not rule.met(history([1, 0.1]))
    assert rule.met(history([1, 1e-3]))


def test_rules_decide_for_each_problem_of_a_batch():
    mask = lt.ResidualBelow(0.5).met(history([np.array([1.0, 1.0]), np.array([0.4, 0.6])]))
    assert mask.tolist() == [True, False]


def test_either_gives_the_first_status_that_holds():
    rule = lt.ResidualBelow(0.5) | lt.MaxEpochs(1)
    verdicts = [(s.name, bool(m)) for s, m in rule.verdicts(history([1, 0.4]))]
    assert verdicts == [("CONVERGED", True), ("MAX_EPOCHS", True)]
    assert rule.met(history([1, 0.9]))
    assert not (lt.ResidualBelow(0.5) | lt.MaxEpochs(5)).met(history([1, 0.9]))


def test_both_needs_both():
    rule = lt.ResidualBelow(0.5) & lt.MaxEpochs(2)
    assert not rule.met(history([1, 0.4]))
    assert rule.met(history([1, 0.4, 0.4]))
    assert [bool(m) for _, m in rule.verdicts(history([1, 0.4]))] == [False]


def test_stalled_needs_a_window_without_a_fall():
    rule = lt.Stalled(window=3, fall=0.1)
    assert not rule.met(history([1, 0.9, 0.9]))
    assert rule.met(history([1, 0.5, 0.5, 0.49, 0.48]))
    assert not rule.met(history([1, 0.5, 0.5, 0.49, 0.40]))
    # oscillation above the best does not count as a fall
    assert rule.met(history([1, 0.5, 0.7, 0.52, 0.7]))


def test_error_below_and_max_seconds():
    assert lt.ErrorBelow(0.1).met(history([1, 1], error=[1, 0.05]))
    assert lt.MaxSeconds(1).met(history([1, 1]))
    assert not lt.MaxSeconds(2).met(history([1, 1]))


def test_error_below_is_no_success():
    A = lt.gaussian((4, 4), 40, seed=0)
    X_true = lt.random_tucker((4, 4), (1, 1), seed=0)
    problem = lt.Problem(A, A.forward(X_true))
    result = lt.solve(problem, "tiht", (1, 1), stop=lt.ErrorBelow(0.5), X_true=X_true)
    assert result.status is lt.Status.ERROR_REACHED
    assert not result.success


def test_or_instead_of_a_bar_is_refused():
    with pytest.raises(TypeError, match=r"combine with \| and &"):
        lt.ResidualBelow(0.5) or lt.MaxEpochs(5)
    A = lt.gaussian((4, 4), 40, seed=0)
    with pytest.raises(TypeError, match="stop must be a stopping rule"):
        lt.solve(lt.Problem(A, np.ones(40)), "tiht", (1, 1), stop=5)


def test_history_keeps_its_rows_while_it_grows():
    h = lt.History()
    for k in range(100):
        h.append({"epoch": k, "residual": np.array([k, 2.0 * k]), "phase": "StoTIHT"})
    assert h.epoch.tolist() == list(range(100))
    assert h.residual[99].tolist() == [99, 198]
    assert set(h.phase) == {"StoTIHT"}


def test_error_below_without_the_truth_is_refused():
    A = lt.gaussian((3, 3), 20)
    problem = lt.Problem(A, np.ones(20))
    with pytest.raises(ValueError, match="ErrorBelow needs X_true"):
        lt.solve(problem, "tiht", (1, 1), stop=lt.ErrorBelow(0.1))


def test_history_columns_and_messages():
    h = history([1.0, 0.5])
    assert h.rows == 2
    assert dict(h)["residual"].tolist() == [1.0, 0.5]
    with pytest.raises(KeyError, match="no column 'error', only epoch, seconds, residual"):
        h["error"]
    with pytest.raises(AttributeError, match="no column 'error'"):
        h.error  # noqa: B018
    assert repr(h) == "History of 2 rows: epoch, seconds, residual"


def test_progress_bar_draws_on_a_terminal(capsys):
    import io

    from rich.console import Console

    target = io.StringIO()
    bar = lt.ProgressBar("job", Console(file=target, force_terminal=True, width=100))
    A = lt.gaussian((4, 4), 40, seed=0)
    y = A.forward(lt.random_tucker((4, 4), (1, 1), seed=0))
    result = lt.recover(A, y, (1, 1), callbacks=[bar])
    text = target.getvalue()
    assert "job" in text
    assert f"epoch {result.epochs}" in text
    assert capsys.readouterr().out == ""
