"""SIGKILL at random moments: computed results are never lost, and the result is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import lowtucker as lt
import runs

# Kills of each call: 48 over the suite
KILLS = 8
NAMES = ["StoTIHT", "RGN-starts", "auto, few measurements", "huber", "a stack",
         "completion, rank unknown"]  # fmt: skip
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def server():
    """Process that forks others: importing takes longer than what they do."""
    folder = str(Path(runs.__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-c", "import runs; runs.serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"},
    ) as process:
        yield process


def begin(server, name, checkpoint, out):
    server.stdin.write(json.dumps([name, str(checkpoint), str(out)]) + "\n")
    server.stdin.flush()
    return int(server.stdout.readline())


def killed(server, name, checkpoint, out, moment):
    """Whether a call was killed: some time after it has written its checkpoint."""
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
    child = begin(server, name, checkpoint, out)
    limit = time.monotonic() + 60
    while not out.exists() and time.monotonic() < limit:
        if checkpoint.exists() and checkpoint.stat().st_mtime_ns > before:
            break
        time.sleep(0.0005)
    time.sleep(moment)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return int(server.stdout.readline()) == signal.SIGKILL


@pytest.mark.parametrize("name", NAMES)
def test_a_run_killed_at_random_moments_gives_the_same_result(name, server, tmp_path):
    checkpoint, out = tmp_path / "run.ckpt", tmp_path / "X.npz"
    moments = np.random.default_rng(NAMES.index(name))
    kills = 0
    while kills < KILLS:
        kills += killed(server, name, checkpoint, out, moments.uniform(0, 0.02))
        if out.exists() and kills < KILLS:  # it finished: start again
            for file in (out, checkpoint):
                file.unlink()
    if not out.exists():
        begin(server, name, checkpoint, out)
        assert server.stdout.readline() == "0\n"
    runs.assert_same(lt.load(out), runs.CALLS[name]()())
