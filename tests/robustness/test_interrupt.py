"""Ctrl-C: once ends after the step with the best result so far, twice ends at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.recovery import rank as ranks
from lowtucker.run import interruptible, interrupts_raise
from runs import assert_same

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent another way")

RANK = (1, 2, 2)


@pytest.fixture(autouse=True)
def ctrl_c():
    """Ctrl-C as in a terminal; a script that runs the tests in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def data():
    A = lt.gaussian((5, 5, 6), 120, seed=1)
    return A, A.forward(lt.random_tucker((5, 5, 6), RANK, seed=0))


def pressing(A, at):
    """Operator during whose n-th measurement Ctrl-C is pressed."""
    count = [0]

    def forward(X):
        count[0] += 1
        if count[0] in at:
            signal.raise_signal(signal.SIGINT)
        return A._forward(X)

    return lt.FunctionOperator(forward, A._adjoint, A.shape, A.m), count


@pytest.mark.parametrize("solver", [lt.TIHT(step=0.3), lt.RCG(), "auto", lt.RGN(products=True)])
def test_one_ctrl_c_ends_after_the_step_with_the_best_iterate(data, solver, capsys):
    A, y = data
    slow, _ = pressing(A, {9})
    result = lt.recover(slow, y, RANK, solver=solver)
    assert result.status is lt.Status.INTERRUPTED
    assert not result.success
    assert np.isfinite(result.X.full()).all()
    assert result.residual == result.history["residual"].min()
    assert "Ctrl-C again stops at once" in capsys.readouterr().err
    quiet, _ = pressing(A, set())
    assert lt.recover(quiet, y, RANK, solver=solver, start=result.state, max_epochs=3000).success
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_two_ctrl_c_end_at_once(data):
    A, y = data
    slow, count = pressing(A, {11, 12})
    # one step of RGN by products measures many times
    with pytest.raises(KeyboardInterrupt):
        lt.recover(slow, y, RANK, solver=lt.RGN(products=True))
    assert count[0] == 12
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_with_a_checkpoint_the_message_says_how_to_resume(data, tmp_path):
    A, y = data
    path = tmp_path / "run.ckpt"
    slow, _ = pressing(A, {20})

    def run(**more):
        return lt.recover(slow, y, RANK, solver=lt.TIHT(step=0.3), **more)

    whole = lt.recover(pressing(A, set())[0], y, RANK, solver=lt.TIHT(step=0.3))
    result = run(checkpoint=path)
    assert result.status is lt.Status.INTERRUPTED
    assert f"The same call with the checkpoint {path} resumes from here." in result.notes
    assert result.advice.endswith(f'solver=lt.TIHT(step=0.3), checkpoint="{path}")')
    assert_same(run(checkpoint=path), whole)


def test_a_comparison_with_larger_ranks_is_interrupted_too(monkeypatch, tmp_path):
    A = lt.gaussian((6, 6, 6), 200, seed=1)
    y = A.forward(lt.random_tucker((6, 6, 6), (2, 2, 2), seed=0))
    assert lt.recover(A, y, (1, 1, 1)).status is lt.Status.RANK_TOO_SMALL
    choose = ranks.automatic

    def pressed(*arguments, **settings):
        signal.raise_signal(signal.SIGINT)
        return choose(*arguments, **settings)

    monkeypatch.setattr(ranks, "automatic", pressed)
    path = tmp_path / "run.ckpt"
    result = lt.recover(A, y, (1, 1, 1), checkpoint=path)
    assert result.status is lt.Status.INTERRUPTED
    assert "The comparison with larger ranks was not finished." in result.notes
    monkeypatch.setattr(ranks, "automatic", choose)
    assert_same(lt.recover(A, y, (1, 1, 1), checkpoint=path), lt.recover(A, y, (1, 1, 1)))


def test_other_threads_and_other_handlers_are_left_alone(data):
    A, y = data
    seen = []

    def work():
        seen.append(lt.recover(A, y, RANK).success)
        seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True, signal.default_int_handler]
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        slow, _ = pressing(A, {5})
        assert lt.recover(slow, y, RANK, solver=lt.TIHT(step=0.5)).success
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [1]


def test_trials_of_experiments_raise_keyboard_interrupt(data):
    A, y = data
    slow, _ = pressing(A, {9})
    with interrupts_raise(), pytest.raises(KeyboardInterrupt):
        lt.recover(slow, y, RANK, solver=lt.TIHT(step=0.3))


def test_nested_interrupt_handlers_are_one():
    with interruptible() as outer, interruptible() as inner:
        assert inner is outer
        signal.raise_signal(signal.SIGINT)
        assert inner.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with interruptible() as fresh:
        assert not fresh.asked


def test_a_process_acknowledges_the_first_signal_and_ends_at_the_second(tmp_path):
    script = textwrap.dedent("""
        import signal, time, lowtucker as lt
        signal.signal(signal.SIGINT, signal.default_int_handler)
        A = lt.gaussian((5, 5, 6), 120, seed=1)
        y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))
        def forward(X):
            print("measuring", flush=True)
            time.sleep(600)
            return A._forward(X)
        slow = lt.FunctionOperator(forward, A._adjoint, A.shape, A.m)
        lt.solve(lt.Problem(slow, y), "tiht", (1, 2, 2))
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "measuring\n"
    try:
        process.send_signal(signal.SIGINT)
        assert "Ctrl-C again stops at once" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
