"""Calls that checkpoints are tested on: every solver, every kind of call that makes fits."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import threadpoolctl

import cases
import lowtucker as lt

# Columns of a history that are the same in every run; seconds are not
SAME = ("epoch", "passes", "residual", "cost", "phase", "error", "running")


def _stack():
    targets = lt.random_tucker((5, 5, 4), (1, 2, 2), seed=0, trials=3)
    A = lt.gaussian((5, 5, 4), 80, seed=1, trials=3)
    return A, A.forward(targets), targets


def _noisy():
    X = lt.random_tucker((5, 5, 5), (2, 2, 2), seed=0)
    A = lt.gaussian((5, 5, 5), 130, seed=1)
    return A, A.forward(X) + 0.02 * np.random.default_rng(0).standard_normal(130), X


def _few():
    X = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=3)
    A = lt.gaussian((5, 5, 6), 30, seed=4)
    return A, A.forward(X), X


def _holes():
    X = lt.random_tucker((6, 6, 6), (2, 2, 2), seed=0).full()
    return np.where(np.random.default_rng(1).random(X.shape) < 0.4, np.nan, X)


def _outliers():
    A, y, X = _noisy()
    y[::20] += 30
    return A, y, X


def _by_solver(name):
    solver, (shape, rank, m, *make) = cases.SOLVERS[name]
    A = make[0](shape, m, 1) if make else lt.gaussian(shape, m, seed=1)
    X = lt.random_tucker(shape, rank, seed=0)
    tol = 1e-6 if "least-squares" in name else 1e-3  # one epoch would leave nothing to interrupt
    given = cases.rank_given(solver, rank)
    return lambda **more: lt.recover(
        A, A.forward(X), given, solver=solver, tol=tol, X_true=X, **more
    )


def _call(make, *arguments, **settings):
    A, y, X = make()
    return lambda **more: lt.recover(A, y, *arguments, X_true=X, **settings, **more)


CALLS = {
    **{name: (lambda name=name: _by_solver(name)) for name in cases.SOLVERS},
    "auto": lambda: _call(_noisy, (2, 2, 2)),
    "auto, few measurements": lambda: _call(_few, (1, 2, 2)),
    "auto, noise given": lambda: _call(_noisy, (2, 2, 2), noise_std=0.05),
    "rank too small": lambda: _call(_noisy, (1, 1, 1)),
    "rank unknown": lambda: _call(_noisy, "auto"),
    "huber": lambda: _call(_outliers, (2, 2, 2), loss="huber"),
    "a chain": lambda: _call(_noisy, (2, 2, 2), solver=[lt.StoTIHT(), lt.RCG(), lt.RGN()]),
    "a stack": lambda: _call(_stack, (1, 2, 2)),
    "a stack, few epochs": lambda: _call(_stack, (1, 2, 2), max_epochs=15),
    "completion": lambda: lambda **more: lt.complete(_holes(), (2, 2, 2), **more),
    "completion, rank unknown": lambda: lambda **more: lt.complete(_holes(), "auto", **more),
}


@functools.cache
def undisturbed(name):
    """The result of a call that nothing interrupts; computed once."""
    return CALLS[name]()()


def assert_same(one, other):
    """Check that results are identical, bit for bit, except for times."""
    assert one.rank == other.rank
    for x, y in zip(one.X.parts().values(), other.X.parts().values(), strict=True):
        np.testing.assert_array_equal(x, y, strict=True)
    numbers = ("residual", "error", "error_estimate", "success", "status", "epochs", "weights")
    for name in numbers:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in ("passes", "solver", "m", "held_out"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.borderline == other.borderline
    notes = [
        [note for note in result.notes if "resumes from here" not in note]
        for result in (one, other)
    ]
    assert notes[0] == notes[1]
    assert set(one.history) == set(other.history)
    for name in set(SAME) & set(one.history):
        np.testing.assert_array_equal(one.history[name], other.history[name], strict=True)


def slowly(progress):
    """Callback that makes an epoch take a while."""
    time.sleep(0.01)


def read_until(stream, word):
    """Read the output of a process until a word appears: then it is running."""
    seen = b""
    while word not in seen:
        chunk = stream.read1(4096)
        assert chunk, seen
        seen += chunk


# A command whose solver waits in a step until Ctrl-C is pressed: it cannot have finished before
HELD = """
import os, signal, sys, time
from lowtucker.cli import main
from lowtucker.run import interruptible
from lowtucker.solvers import SOLVERS

solver, step = SOLVERS[sys.argv.pop(1)], int(sys.argv.pop(1))
advance = solver.advance

def held(self, problem, state):
    if state.t == step:
        with interruptible() as ctrl_c:
            print("at work", file=sys.stderr, flush=True)
            parent = os.getppid()
            while not ctrl_c.asked and os.getppid() == parent:  # nobody is left to press it
                time.sleep(0.01)
    return advance(self, problem, state)

solver.advance = held
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what runs in the background
main()
"""


def interrupted(command, *, solver, step):
    """Exit code and output of a command that gets a real Ctrl-C while it is in a step."""
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, solver, str(step), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        read_until(process.stderr, b"at work")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    return process.returncode, " ".join(out.decode().split())


def serve():
    """Make calls on request, each in a process forked from this one.

    A line of JSON is a call: its name, its checkpoint, and the file for its result. Answers are
    the number of the process, and how it ended.
    """
    for line in sys.stdin:
        name, checkpoint, out = json.loads(line)
        child = os.fork()
        if not child:
            with threadpoolctl.threadpool_limits(1):
                CALLS[name]()(checkpoint=checkpoint, callbacks=[slowly]).save(out)
            os._exit(0)
        _answer(child)
        _answer(os.waitpid(child, 0)[1])


def _answer(number):
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()
