"""Interrupted, resumed and extended runs give the same tables as a single run."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import suppress
from io import StringIO
from pathlib import Path

import numpy as np
import psutil
import pytest

from lowtucker.datasets import flame
from lowtucker.lab.experiments.clip import Clip, ClipRecovery
from lowtucker.lab.experiments.convergence import Convergence
from lowtucker.lab.experiments.figures import Paper
from lowtucker.lab.experiments.reproduce import Reproduction
from lowtucker.lab.experiments.success import Recoveries
from lowtucker.simulation.runner import Job, run

RANKS = ((1, 1, 2), (1, 2, 2))
SMALL = Paper(
    convergence=Convergence(block_sizes=(60, 360), epochs=4),
    few=Recoveries("few", (42, 54), (1.0,), 2, 6, 1e-8, ranks=RANKS),
    epochs=Recoveries("epochs", (240, 300), (0.4,), 4, 12, 1e-5, ranks=RANKS),
    clip=ClipRecovery(
        clip=Clip(flame((8, 8, 4)).values, "a small flame", True),
        rank=(3, 3, 2), m=600, epochs=3,
    ),
)  # fmt: skip
NAMES = ("fig1", "fig2", "fig3", "fig5", "fig6", "fig7")


def small(out, trials=6, workers=1, seed=0):
    return Reproduction(NAMES, out, trials, seed, workers, SMALL)


@pytest.fixture(scope="module", autouse=True)
def without_pictures():
    """Skip the plots, which would take longer than the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lowtucker.lab.experiments.reproduce.png", lambda figure: b"a picture")
        yield


@pytest.fixture(scope="module")
def direct(tmp_path_factory, without_pictures):
    """All trials in a single run with one worker."""
    made = small(tmp_path_factory.mktemp("direct"))
    made.run(made.pending())
    return made


def files(reproduction):
    """Bytes of the tables."""
    found = {path.name: path.read_bytes() for path in reproduction.out.glob("*.csv")}
    assert sorted(found) == [f"{name}.csv" for name in NAMES]
    return found


def tables(reproduction):
    """The tables; that of Figure 2 without its seconds."""
    found = files(reproduction)
    rows = list(csv.DictReader(StringIO(found["fig2.csv"].decode())))
    assert all(float(row.pop("seconds")) >= 0 for row in rows)
    return {**found, "fig2.csv": rows}


class Interrupt(Exception):
    """Represents any interruption of a run."""


@pytest.mark.slow
def test_tables_do_not_depend_on_workers_or_interruptions(direct, tmp_path):
    made, kept = small(tmp_path / "new" / "folder", workers=2), []

    def report(job):
        kept.append(job)
        if len(kept) == 4:
            raise Interrupt

    jobs = made.pending()
    with pytest.raises(Interrupt):
        made.run(jobs, report)
    assert not list(made.out.glob("*.csv"))
    rest = made.pending()
    assert [job for job in jobs if job not in kept] == rest
    made.run(rest)
    assert tables(made) == tables(direct)


def test_trials_added_later_give_the_tables_of_a_single_run(direct, tmp_path):
    first, then = small(tmp_path, trials=3), small(tmp_path, trials=6)
    run(first.pending(), first.store)
    jobs = then.pending()
    assert {(job.first, job.count) for job in jobs} == {(3, 3)}
    assert {job.experiment.name for job in jobs} == {"convergence", "few", "epochs"}
    then.run(jobs)
    assert tables(then) == tables(direct)


def test_running_again_computes_and_changes_nothing(direct):
    before = files(direct)
    cells = {path: path.stat().st_mtime_ns for path in direct.store.folder.rglob("*.npz")}
    assert direct.pending() == []
    for name in before:
        (direct.out / name).unlink()
    direct.run(direct.pending())
    assert files(direct) == before
    assert {p: p.stat().st_mtime_ns for p in direct.store.folder.rglob("*.npz")} == cells
    log = (direct.store.folder / "log.txt").read_text()
    assert len(log.splitlines()) == 1  # of the only run with jobs


def test_stored_results_are_reused(direct):
    assert small(direct.out, trials=4).pending() == []
    assert small(direct.out, workers=2).pending() == []
    assert {job.seed for job in small(direct.out, seed=1).pending()} == {1}
    assert len(small(direct.out, seed=1).pending()) == len(list(direct.store.folder.rglob("*.npz")))


SIGNALS = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
CELLS = 60  # of Figure 3
SCRIPT = Path(sysconfig.get_path("scripts"), "lowtucker")
COMMAND = [SCRIPT] if SCRIPT.exists() else ["-c", "from lowtucker.cli import main; main()"]


def eventually(condition, deadline=60.0):
    """Wait for a condition."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.005)


def members(session):
    """Live processes of a session, including orphans."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


class Started:
    """``lowtucker reproduce fig3 --trials 2 --workers 2``, running in its own session."""

    def __init__(self, out):
        self.out = out
        self.log = out.with_name(f"{out.name}.log")
        arguments = ["reproduce", "fig3", "--trials", "2", "--out", out, "--workers", "2"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *COMMAND, *arguments],
                stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
            )  # fmt: skip

    def until(self, cells):
        """Wait for a number of cells."""

        def there():
            assert self.process.poll() is None, self.log.read_text()
            return len(kept(self.out)) >= cells

        eventually(there)

    def end(self, number, everywhere=False):
        """Send a signal to it or to all its processes; return the exit code."""
        (os.killpg if everywhere else os.kill)(self.process.pid, number)
        return self.process.wait(60)


@pytest.fixture
def start(tmp_path):
    started = []

    def begin():
        started.append(Started(tmp_path / "out"))
        return started[-1]

    yield begin
    for one in started:
        for process in members(one.process.pid):
            with suppress(psutil.Error):
                process.kill()
        one.process.wait(60)


def kept(out):
    """Files of results."""
    return sorted((out / "cells").rglob("*.npz"))


def figure_3(out):
    return Reproduction(("fig3",), out, trials=2, workers=2)


def assert_consistent(out):
    """Files are valid, and their trials are not computed again."""
    for path in kept(out):
        with np.load(path) as file:
            assert path.name == "0-2.npz"
            assert {column.shape for column in file.values()} == {(2,)}
    assert len(figure_3(out).pending()) == CELLS - len(kept(out))


def assert_right(out, cells=1):
    """Some of the results equal those computed here."""
    made = figure_3(out)
    (experiment,) = made.paper.figures()["fig3"].experiments
    todo = {job.cell for job in made.pending()}
    for cell in [cell for cell in experiment.cells() if cell not in todo][:cells]:
        found = made.store.get(experiment, cell, 0, 2)
        for name, column in Job(experiment, cell, 0, 0, 2)().items():
            np.testing.assert_array_equal(found[name], column, strict=True)


@SIGNALS
def test_ctrl_c_keeps_results_and_the_same_command_resumes(start):
    before = {}
    for _ in range(2):
        command = start()
        command.until(len(before) + 1)
        assert command.end(signal.SIGINT, everywhere=True) == 130
        eventually(lambda session=command.process.pid: not members(session))
        out, heard = command.out, command.log.read_text()
        assert f"Interrupted. Results so far are kept in {out / 'cells'}" in heard
        assert "run the same command to resume" in heard
        assert "Traceback" not in heard
        assert not list(out.rglob(".lowtucker-*"))
        assert [path.name for path in out.iterdir()] == ["cells"]
        assert_consistent(out)
        now = {path: path.stat().st_mtime_ns for path in kept(out)}
        assert len(now) >= len(before) + 1
        assert now.items() >= before.items()
        before = now
    assert_right(out)


@SIGNALS
def test_killed_command_leaves_complete_results(start):
    command = start()
    command.until(1)
    assert command.end(signal.SIGKILL) == -signal.SIGKILL
    out = command.out
    done = len(kept(out))
    assert_consistent(out)
    made = figure_3(out)
    job = made.pending()[-1]
    run([job], made.store)
    assert len(kept(out)) == done + 1
    assert_consistent(out)
    assert made.store.get(job.experiment, job.cell, 0, 2) is not None


@pytest.mark.slow
@SIGNALS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
def test_no_worker_outlives_the_command(start, number):
    command = start()
    command.until(1)
    command.end(number)
    eventually(lambda: not members(command.process.pid))
