"""Advice: short, the most likely cause first, and a next call that runs as shown."""

from __future__ import annotations

import inspect
import math
import re
import shlex
import warnings
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli import main
from lowtucker.lab.app.advice import fields_to_change
from lowtucker.lab.app.limits import Limits
from lowtucker.lab.app.settings import parsed
from lowtucker.recovery.advice import explained
from lowtucker.run.advice import ENDS, SENTENCES
from lowtucker.run.call import Call

SHAPE, RANK, M = (8, 7, 6), (2, 2, 2), 200
X = lt.random_tucker(SHAPE, RANK, seed=0)
A = lt.gaussian(SHAPE, M, seed=1)
Y = A.forward(X)
RNG = np.random.default_rng(0)
NOISY = Y + 0.01 * np.linalg.norm(Y) / math.sqrt(M) * RNG.standard_normal(M)
HOLES = np.where(RNG.random(SHAPE) < 0.4, np.nan, X.full())
FULL = X.full() + 0.05 * RNG.standard_normal(SHAPE)
FEW = lt.gaussian(SHAPE, 75, seed=1)  # 1.2 per degree of freedom of the next tensor
LARGER = lt.random_tucker(SHAPE, (3, 3, 3), seed=0)
STOP = lt.ResidualBelow(1e-6) | lt.MaxEpochs(3)


def soon(progress):
    return progress.epoch > 2


def at_once(progress):
    return True


def recovered(*arguments, y=Y, A=A, **options):
    return lt.recover(A, y, *arguments, **options), {"A": A, "y": y}


def completed(*arguments, **options):
    return lt.complete(HOLES, *arguments, **options), {"values": HOLES}


def solved(y, *arguments, **options):
    problem = lt.Problem(A, y)
    return lt.solve(problem, *arguments, **options), {"problem": problem, "stop": STOP}


# A call, the status it ends with, and that of the call it advises; None where nothing is promised
CASES = {
    "converged": (lambda: recovered(RANK), "CONVERGED", None),
    "noise": (lambda: recovered(RANK, y=NOISY), "NOISE_FLOOR", None),
    "not of low rank": (lambda: recovered(y=A.forward(FULL)), "APPROXIMATED", None),
    "small rank": (lambda: recovered((1, 1, 1)), "RANK_TOO_SMALL", "CONVERGED"),
    "small rank, holes": (lambda: completed((1, 2, 2)), None, None),
    "fewer than dof": (
        lambda: recovered((3, 3, 3), A=FEW.restrict(range(60)), y=Y[:60]), "UNDERDETERMINED", None,
    ),
    "few, epochs": (
        lambda: recovered((3, 3, 3), A=FEW, y=FEW.forward(LARGER), max_epochs=30), None, None,
    ),
    "epochs": (lambda: recovered(RANK, solver="tiht", max_epochs=3), "MAX_EPOCHS", "CONVERGED"),
    "epochs, holes": (
        lambda: completed(RANK, solver="rcg", max_epochs=3), "MAX_EPOCHS", "CONVERGED"
    ),
    "epochs, solve": (lambda: solved(Y, lt.TIHT(), RANK, stop=STOP), "MAX_EPOCHS", "MAX_EPOCHS"),
    "seconds": (lambda: recovered(RANK, max_seconds=1e-9), "MAX_SECONDS", None),
    "seconds, no rank": (lambda: recovered(max_seconds=1e-9), "MAX_SECONDS", None),
    "interrupted": (
        lambda: recovered(RANK, solver="tiht", callbacks=[soon]), "INTERRUPTED", "CONVERGED"
    ),
    "interrupted search": (
        lambda: recovered("auto", callbacks=[at_once]), "INTERRUPTED", "CONVERGED"
    ),
    "interrupted, no rank": (lambda: recovered(callbacks=[soon]), "INTERRUPTED", "CONVERGED"),
    "interrupted, holes": (lambda: completed(callbacks=[soon]), "INTERRUPTED", "CONVERGED"),
    "interrupted, checkpoint": (
        lambda: recovered(RANK, solver="tiht", callbacks=[soon], checkpoint="mine.ckpt"),
        "INTERRUPTED", "CONVERGED",
    ),
    "diverged": (lambda: recovered(RANK, solver=lt.TIHT(step=9.0)), "DIVERGED", "CONVERGED"),
    "stalled solve": (lambda: solved(NOISY, lt.TIHT(), RANK), "STALLED", "NOISE_FLOOR"),
    "below rounding": (lambda: recovered(RANK, tol=0, solver="rgn"), None, "CONVERGED"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_advised_call_runs_as_shown(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # checkpoints are written there
    case, status, promised = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.UnderdeterminedWarning)
        result, given = case()
        assert status is None or result.status.name == status
        assert len(ENDS.split(result.advice)) <= SENTENCES
        _, found, code = result.advice.partition("Try: ")
        assert not (found and result.success)
        if not found:
            assert promised is None
            return
        again = eval(code, {"lt": lt, "result": result, **given})
    assert promised is None or again.status.name == promised
    assert again.call != result.call or promised == "CONVERGED"


@pytest.mark.parametrize(
    ("name", "said"),
    [("converged", "recovered"), ("noise", "recovered up to noise"),
     ("not of low rank", "approximated"), ("small rank", "not recovered: rank too small")],
)  # fmt: skip
def test_the_headline_says_what_was_reached(name, said):
    result, _ = CASES[name][0]()
    assert result.headline == said
    assert repr(result).startswith(f"Result: {said}\n")


def test_a_success_says_what_the_estimate_means():
    result = lt.recover(A, NOISY, RANK)
    result = replace(result, error_estimate=1.2e-2, error_interval=(9e-3, 1.5e-2))
    assert result.advice.endswith(
        "Expect a relative error of about 1.2e-02 (95 %: 9.0e-03 to 1.5e-02)."
    )
    assert "estimate  relative error 1.2e-02 (95 %: 9.0e-03 to 1.5e-02)\n" in repr(result)
    assert "no estimate" in replace(result, error_estimate=None).advice
    assert "was not checked" in lt.solve(lt.Problem(A, Y), lt.TIHT(), RANK).advice


# The order of causes


def test_too_few_measurements_come_before_more_epochs():
    result = lt.recover(FEW, FEW.forward(LARGER), (3, 3, 3), max_epochs=30)
    assert "too few measurements" in ENDS.split(result.advice)[0]
    assert "Take about 177 measurements, 2.8 per degree of freedom." in result.advice
    assert "max_epochs" not in result.advice


def test_more_epochs_are_not_advised_on_a_flat_floor():
    call = Call.of(lt.recover, defaults(rank=RANK, solver="tiht", max_epochs=400))
    result = lt.solve(
        lt.Problem(A, NOISY), lt.TIHT(), RANK, stop=lt.MaxEpochs(60) | lt.ResidualBelow(1e-6)
    )
    assert result.status is lt.Status.MAX_EPOCHS
    advice = explained(result, call).advice
    assert advice.startswith("The residual no longer falls")
    assert not re.search("max_epochs|start=", advice)
    falling = lt.solve(lt.Problem(A, Y), lt.TIHT(), RANK, stop=STOP)
    assert "start=result.state" in explained(falling, call).advice


def defaults(**given):
    """Arguments of ``recover``, the others as they are by default."""
    parameters = inspect.signature(lt.recover).parameters
    return {name: one.default for name, one in parameters.items()} | given


@pytest.mark.parametrize("rank", ["auto", lt.RankSearch((4, 4, 4)), None])
@pytest.mark.parametrize("status", lt.Status)
def test_no_advice_repeats_what_was_asked_for(rank, status):
    call = Call.of(lt.recover, defaults(rank=rank))
    finding = lt.Finding("toy", "A toy decides.", status=status, changes={"rank": rank})
    result = replace(lt.recover(A, NOISY, RANK), findings=(finding,), status=status)
    advice = explained(result, call).advice
    assert 'rank="auto"' not in advice.replace(call.code({}), "") or rank is None
    assert f"Try: {call.code({})}" != advice[-len(call.code({})) - 5 :]


def test_a_finding_that_decides_comes_first_and_names_the_call():
    result = lt.recover(A, NOISY, RANK)
    outliers = lt.Finding(
        "outliers", "20 of the 200 measurements are outliers.", {}, lt.Status.UNDERDETERMINED,
        changes={"loss": "huber"},
    )  # fmt: skip
    advice = explained(replace(result, error_estimate=None).found(outliers), result.call).advice
    assert advice == (
        "X is not recovered: 20 of the 200 measurements are outliers. "
        'Try: lt.recover(A, y, rank=(2, 2, 2), loss="huber")'
    )


def test_a_long_finding_is_cut_to_three_sentences():
    text = "One. Two, with 1.2 per dof. Three. Four."
    found = lt.Finding("toy", text, {}, lt.Status.RANK_TOO_SMALL, changes={"m": 300, "seed": 1})
    result = lt.recover(A, NOISY, RANK).found(found)
    per_dof = 300 / result.degrees_of_freedom
    assert result.advice == (
        f"One. Take about 300 measurements, {per_dof:.1f} per degree of freedom. "
        "Try: lt.recover(A, y, rank=(2, 2, 2), seed=1)"
    )


def test_a_local_minimum_says_that_nothing_was_recovered():
    result = lt.recover(A, NOISY, RANK, solver=lt.RGN(), seed=4)
    stuck = explained(replace(result, status=lt.Status.LOCAL_MINIMUM, findings=()), result.call)
    assert stuck.advice.startswith("X is not recovered: the fit ended at a local minimum")
    assert stuck.advice.endswith("Try: lt.recover(A, y, rank=(2, 2, 2), seed=4)")
    stuck = explained(stuck, lt.recover(A, NOISY, RANK, seed=4).call)
    assert stuck.advice.endswith("Try: lt.recover(A, y, rank=(2, 2, 2), seed=5)")


def test_slices_without_samples_are_named_with_what_to_do():
    index = np.argwhere(np.isfinite(HOLES))
    index = index[index[:, 0] != 4]
    with pytest.warns(lt.UnderdeterminedWarning):
        result = lt.recover(lt.entries(SHAPE, index), X.entries(index), RANK)
    assert result.advice == (
        "Mode 0 has no samples in slice 4: X is not determined there. "
        "Add samples there, or leave these slices out."
    )


def test_a_batch_has_advice_for_each_kind_of_ending():
    stack = lt.gaussian(SHAPE, M, seed=1, trials=2)
    y = stack.forward(lt.random_tucker(SHAPE, RANK, seed=0, trials=2))
    y[1] = np.random.default_rng(0).standard_normal(M)
    result = lt.recover(stack, y, RANK, max_epochs=60)
    first, second = result.advice.splitlines()
    assert first.startswith("The residual fell below the tolerance")
    assert result.headline == "1 of 2 problems recovered"
    assert "lt.recover(A, y" in second or "Try" not in second
    assert result.trial(1).advice == second


# Calls as code


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "lt.recover(A, y)"),
        ({"rank": [2, 2, 2]}, "lt.recover(A, y, rank=[2, 2, 2])"),
        ({"rank": (np.int64(2),)}, "lt.recover(A, y, rank=(2,))"),
        ({"rank": lt.RankSearch((3, 3, 3))}, "lt.recover(A, y, rank=lt.RankSearch(max=(3, 3, 3)))"),
        ({"solver": lt.StoTIHT(block_size=9)}, "lt.recover(A, y, solver=lt.StoTIHT(block_size=9))"),
        (
            {"solver": [lt.TIHT(step=0.5), "rgn"]},
            'lt.recover(A, y, solver=[lt.TIHT(step=0.5), "rgn"])',
        ),
        ({"solver": lt.StoTIHT(p=np.full(50, 0.02))}, "lt.recover(A, y, solver=solver)"),
        (
            {"solver": lt.StoTIHT().bind(lt.Problem(A, Y), RANK)},
            "lt.recover(A, y, solver=solver)",
        ),
        ({"weights": np.ones(3), "seed": 7}, "lt.recover(A, y, weights=weights, seed=7)"),
        ({"max_seconds": math.inf}, 'lt.recover(A, y, max_seconds=float("inf"))'),
        ({"noise_std": np.float64(0.5)}, "lt.recover(A, y, noise_std=0.5)"),
        ({"checkpoint": 'a "b".ckpt'}, r'lt.recover(A, y, checkpoint="a \"b\".ckpt")'),
        ({"callbacks": [soon]}, "lt.recover(A, y)"),
    ],
)
def test_a_call_is_written_as_it_was_made(given, code):
    assert Call.of(lt.recover, defaults(**given)).code({}) == code


def test_what_belongs_to_other_settings_is_left_out():
    call = Call("recover", ("A", "y"), {"rank": "(2, 2, 2)", "start": "start", "checkpoint": '"c"'})
    assert call.code({"max_epochs": 9}).endswith('start=start, checkpoint="c", max_epochs=9)')
    assert call.code({"rank": None}) == "lt.recover(A, y)"
    call = Call("complete", ("values",), {})
    assert call.differing({"start": "result.state", "rank": None, "seed": 1}) == {"seed": 1}


# Other words


def command(*words):
    return CliRunner().invoke(main, list(words), prog_name="lowtucker")


@pytest.mark.parametrize(
    "options",
    [
        ["recover", "A.npy", "y.npy", "--shape", "8,7,6", "--rank", "1,1,1", "--plot", "run.png"],
        ["recover", "A.npy", "y.npy", "--shape", "8,7,6", "--rank", "2,2,2", "--solver", "tiht",
         "--max-epochs", "3"],
        ["recover", "A.npy", "y.npy", "--shape", "8,7,6", "--rank", "2,2,2", "--solver", "tiht",
         "--step", "9"],
        ["complete", "my holes.npy", "--rank", "2,2,2", "--solver", "rcg", "--max-epochs", "3",
         "--checkpoint", "run.ckpt"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("output", ["X.npz", "X.npy"])
def test_the_advised_command_recovers(tmp_path, monkeypatch, options, output):
    monkeypatch.chdir(tmp_path)
    np.save("A.npy", A.matrix)
    np.save("y.npy", Y)
    np.save("my holes.npy", HOLES)
    failed = command(*options, "-o", output)
    assert failed.exit_code == 3, failed.output
    assert "lt." not in failed.stdout
    (advised,) = re.findall("Try: lowtucker (.*)", failed.stdout)
    done = command(*shlex.split(advised))
    assert done.exit_code == 0, done.output
    assert "Try" not in done.stdout


def test_the_app_names_its_fields():
    setting = parsed({"tab": "synthetic"}, Limits())
    assert fields_to_change(setting, {"rank": (3, 3, 2)}) == "Tucker rank 3, 3, 2."
    assert "max_epochs=1000" in fields_to_change(setting, {"start": "result.state"})
    assert "Show me the code" in fields_to_change(setting, {"rank": None})
    changes = {"rank": (3, 3, 2), "max_epochs": None}  # a limit that the page does not have
    assert fields_to_change(setting, changes) == "Tucker rank 3, 3, 2."
    assert fields_to_change(setting, {"max_epochs": None}) == ""
