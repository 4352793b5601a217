"""The runner with real worker processes, some of which fail or are killed."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures.process import BrokenProcessPool
from itertools import pairwise

import numpy as np
import psutil
import pytest

from lowtucker.lab.experiments.beyond import Facts
from lowtucker.lab.experiments.convergence import Convergence
from lowtucker.lab.experiments.success import Recoveries
from lowtucker.simulation.runner import Job, _interrupts_held, pending, results, run
from lowtucker.simulation.store import Store

SEED = 3
DEADLINE = 60.0

# A separate module: workers cannot import a test module.
TINY = '''
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lowtucker.simulation.base import Experiment
from lowtucker.simulation.runner import pending, run
from lowtucker.simulation.store import Store


class Trouble(LookupError):
    """Defined only in this module."""


@dataclass(frozen=True)
class Tiny(Experiment):
    """Numbers that depend on cell, trial and seed; every call logs a line."""

    folder: str
    labels: str = "abc"
    stack: int = 4
    size: int = 3

    @property
    def name(self):
        return "tiny"

    def cells(self):
        return list(self.labels)

    def compute(self, cell, first, count, seed):
        with open(Path(self.folder, "log"), "a") as log:
            log.write(f"{cell} {first} {count} {os.getpid()}\\n")
        self.before(cell, first)
        made = [
            np.random.default_rng([seed, ord(cell), k]).random(self.size)
            for k in range(first, first + count)
        ]
        return {"trial": np.arange(first, first + count), "value": np.stack(made)}

    def before(self, cell, first):
        """Do nothing."""

    def work(self, cell):
        return 100.0 - ord(cell)


@dataclass(frozen=True)
class Faulty(Tiny):
    """The first job of cell "a" fails after some results are stored, unless it was healed."""

    fault: str = "error"
    after: int = 0

    def before(self, cell, first):
        folder = Path(self.folder)
        if (cell, first) != ("a", 0) or (folder / "healed").exists():
            return
        deadline = time.monotonic() + 300
        while self.fault == "endless" or len(list(folder.rglob("*.npz"))) < self.after:
            if time.monotonic() > deadline:
                (folder / "was not stopped").touch()
                return
            time.sleep(0.01)
        if self.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise Trouble(f"cell {cell} has a fault")


def work_for_ever(folder):
    """Write large results until this process is killed."""
    experiment, store = Tiny(folder, stack=2, size=200_000), Store(Path(folder, "cells"))
    run(pending([experiment], store, 3, 10_000), store)
'''

# Spawned workers run the script of their parent before their initializer.
SLOW_TO_BEGIN = """
import os, sys, time
from pathlib import Path

folder = Path(sys.argv[1])
if __name__ == "__mp_main__":
    (folder / f"begun-{os.getpid()}").touch()
    deadline = time.monotonic() + 60
    while not (folder / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
if __name__ == "__main__":
    from tiny_experiment import Store, Tiny, pending, run

    experiment, store = Tiny(str(folder)), Store(folder / "cells")
    run(pending([experiment], store, 3, 8), store, workers=2)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Folder of the module ``tiny_experiment``."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "tiny_experiment.py").write_text(TINY)
    return folder


@pytest.fixture
def tiny(home, monkeypatch):
    monkeypatch.syspath_prepend(home)
    yield importlib.import_module("tiny_experiment")
    sys.modules.pop("tiny_experiment", None)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cells")


@pytest.fixture(autouse=True)
def no_worker_stays():
    yield
    eventually(lambda: not workers_of(psutil.Process()))


def eventually(condition, deadline=DEADLINE):
    """Wait for a condition."""
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.005)


def workers_of(process):
    found = []
    for child in process.children(recursive=True):
        try:
            if "multiprocessing.spawn" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:  # it has ended
            continue
    return found


def lines(folder):
    log = folder / "log"
    if not log.exists():
        return []
    cells, firsts, counts, _ = zip(*map(str.split, log.read_text().splitlines()), strict=True)
    return list(zip(cells, map(int, firsts), map(int, counts), strict=True))


def trials_computed(folder):
    return Counter((cell, k) for cell, first, n in lines(folder) for k in range(first, first + n))


def as_lines(jobs):
    return [(job.cell, job.first, job.count) for job in jobs]


def expected(experiment, trials, seed=SEED):
    """All columns, computed independently."""
    values = {
        cell: [
            np.random.default_rng([seed, ord(cell), k]).random(experiment.size)
            for k in range(trials)
        ]
        for cell in experiment.cells()
    }
    return {cell: {"trial": np.arange(trials), "value": np.stack(v)} for cell, v in values.items()}


def assert_same(found, wanted):
    assert found is not None
    assert list(found) == list(wanted)
    for cell, columns in wanted.items():
        assert found[cell].keys() == columns.keys()
        for name, column in columns.items():
            np.testing.assert_array_equal(found[cell][name], column, strict=True)


def test_longest_jobs_come_first(tiny, tmp_path, store):
    experiment = tiny.Tiny(str(tmp_path))
    jobs = pending([experiment], store, SEED, 6)
    work = [job.work for job in jobs]
    assert work == sorted(work, reverse=True)
    assert as_lines(jobs) == [
        ("a", 0, 4), ("b", 0, 4), ("a", 4, 2), ("b", 4, 2), ("c", 0, 4), ("c", 4, 2),
    ]  # fmt: skip
    run(jobs, store)
    assert lines(tmp_path) == as_lines(jobs)


def test_jobs_of_several_experiments_are_sorted_together(tiny, tmp_path, store):
    small, large = tiny.Tiny(str(tmp_path), stack=2), Recoveries("few", (42,), (1.0,), 2, 20, 1e-8)
    jobs = pending([small, large], store, SEED, 3)
    assert [job.experiment for job in jobs] == [large] * 4 + [small] * 6
    assert pending([], store, SEED, 3) == []


def test_maximum_number_of_trials_is_respected(store):
    facts = Facts()
    jobs = pending([facts], store, SEED, 500)
    assert as_lines(jobs) == [("facts", 0, 50)]
    assert as_lines(pending([facts], store, SEED, 5)) == [("facts", 0, 5)]
    run(jobs, store)
    assert not pending([facts], store, SEED, 500)
    assert len(results(facts, store, SEED, 500)["facts"]["least_squares_error"]) == 50


@pytest.mark.parametrize("workers", [1, 2])
def test_results_do_not_depend_on_the_workers(tiny, tmp_path, store, workers):
    experiment, heard = tiny.Tiny(str(tmp_path)), []
    jobs = pending([experiment], store, SEED, 10)
    assert pending([experiment], store, SEED, 10)
    assert results(experiment, store, SEED, 10) is None
    run(jobs, store, workers=workers, report=heard.append)
    assert not pending([experiment], store, SEED, 10)
    assert_same(results(experiment, store, SEED, 10), expected(experiment, 10))
    assert sorted(as_lines(heard)) == sorted(as_lines(jobs)) == sorted(lines(tmp_path))
    assert set(trials_computed(tmp_path).values()) == {1}


def test_no_jobs_start_no_workers(store):
    run([], store, workers=3)
    assert not store.folder.exists()


@pytest.mark.parametrize(
    ("steps", "last_on"), [((1, 2, 3, 11), 1), ((5, 9, 4, 11), 2), ((11, 3), 1)], ids=str
)
def test_nothing_is_computed_twice(tiny, tmp_path, store, steps, last_on):
    """Successive numbers of trials, on one worker and on two."""
    experiment = tiny.Tiny(str(tmp_path))
    for k, trials in enumerate(steps):
        workers = last_on if k == len(steps) - 1 else 1
        run(pending([experiment], store, SEED, trials), store, workers=workers)
        assert_same(results(experiment, store, SEED, trials), expected(experiment, trials))
        assert pending([experiment], store, SEED, trials) == []
    assert trials_computed(tmp_path) == Counter((c, k) for c in "abc" for k in range(11))


def test_only_damaged_results_are_computed_again(tiny, tmp_path, store):
    experiment = tiny.Tiny(str(tmp_path))
    run(pending([experiment], store, SEED, 12), store)
    victim = next(p for p in store.folder.rglob("4-8.npz") if p.parent.name.startswith("b-"))
    victim.write_bytes(victim.read_bytes()[:100])
    assert results(experiment, store, SEED, 12) is None
    jobs = pending([experiment], store, SEED, 12)
    assert as_lines(jobs) == [("b", 4, 4)]
    run(jobs, store)
    assert_same(results(experiment, store, SEED, 12), expected(experiment, 12))


REAL = {
    "few": Recoveries("few", (42, 54), (1.0,), 2, 6, 1e-8, ranks=((1, 2, 2),)),
    "many": Recoveries("many", (240,), (0.5,), 4, 6, 1e-8, ranks=((2, 2, 3),)),
    "odd rank": Recoveries("odd", (240,), (0.5,), 4, 6, 1e-8, ranks=((1, 1, 2),)),
    "convergence": Convergence(block_sizes=(90, 360), epochs=4),
    "facts": Facts(),
}


@pytest.mark.parametrize("experiment", REAL.values(), ids=REAL.keys())
def test_trials_do_not_depend_on_their_batch(experiment, tmp_path):
    """Equal to the bit, except seconds."""
    found = []
    for k, cuts in enumerate([(0, 4), (0, 1, 4), range(5)]):
        store = Store(tmp_path / str(k))
        jobs = [
            Job(experiment, cell, SEED, first, stop - first)
            for cell in experiment.cells()
            for first, stop in pairwise(cuts)
        ]
        run(jobs, store)
        found.append(results(experiment, store, SEED, 4))
        for columns in found[-1].values():
            columns.pop("seconds", None)
    for others in found[1:]:
        assert_same(others, found[0])


@pytest.mark.slow
def test_real_results_are_the_same_on_two_workers(tmp_path):
    experiments, found = [REAL["few"], REAL["odd rank"]], []
    for workers in (1, 2):
        store = Store(tmp_path / str(workers))
        run(pending(experiments, store, SEED, 3), store, workers=workers)
        found.append([results(experiment, store, SEED, 3) for experiment in experiments])
    for one, two in zip(*found, strict=True):
        assert_same(two, one)


@pytest.mark.parametrize("workers", [1, 2])
def test_error_reaches_the_caller_and_results_are_kept(tiny, tmp_path, store, workers):
    experiment = tiny.Faulty(str(tmp_path), after=5)
    jobs = pending([experiment], store, SEED, 8)
    in_turn = jobs[::-1] if workers == 1 else jobs  # with two workers, the others continue
    kept = []
    with pytest.raises(tiny.Trouble, match=r"^cell a has a fault$") as raised:
        run(in_turn, store, workers=workers, report=kept.append)
    assert raised.type is tiny.Trouble
    assert len(kept) == 5
    assert as_lines(pending([experiment], store, SEED, 8)) == [("a", 0, 4)]
    (tmp_path / "healed").touch()
    run(pending([experiment], store, SEED, 8), store, workers=workers)
    assert_same(results(experiment, store, SEED, 8), expected(experiment, 8))
    counts = trials_computed(tmp_path)
    assert {key for key, n in counts.items() if n > 1} == {("a", k) for k in range(4)}


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_killed_worker_raises_os_error_and_results_are_kept(tiny, tmp_path, store):
    experiment = tiny.Faulty(str(tmp_path), labels="abcd", fault="killed", after=4)
    kept = []
    with pytest.raises(OSError, match=r"worker process was killed.*same command") as raised:
        run(pending([experiment], store, SEED, 12), store, workers=2, report=kept.append)
    assert raised.type is OSError
    assert isinstance(raised.value.__cause__, BrokenProcessPool)
    assert len(kept) >= 4
    todo = pending([experiment], store, SEED, 12)
    assert sorted(as_lines(todo) + as_lines(kept)) == [(c, k, 4) for c in "abcd" for k in (0, 4, 8)]
    (tmp_path / "healed").touch()
    (tmp_path / "log").unlink()
    run(todo, store)
    assert_same(results(experiment, store, SEED, 12), expected(experiment, 12))
    assert sorted(lines(tmp_path)) == sorted(as_lines(todo))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_workers_stop_when_the_caller_is_interrupted(tiny, tmp_path, store, kind):
    """One of them would run for minutes; the interrupt comes between two results."""
    experiment, kept = tiny.Faulty(str(tmp_path), fault="endless"), []

    def report(job):
        kept.append(job)
        if len(kept) == 2:
            raise kind

    with pytest.raises(kind):
        run(pending([experiment], store, SEED, 8), store, workers=2, report=report)
    assert not (tmp_path / "was not stopped").exists()
    assert not workers_of(psutil.Process())
    todo = pending([experiment], store, SEED, 8)
    assert sorted(as_lines(todo) + as_lines(kept)) == [(c, k, 4) for c in "abc" for k in (0, 4)]


def start(home, *arguments):
    path = os.pathsep.join(filter(None, [str(home), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_process_killed_while_writing_leaves_only_complete_files(tiny, home, tmp_path, store):
    experiment = tiny.Tiny(str(tmp_path), stack=2, size=200_000)

    def writes():
        return any(store.folder.rglob(".lowtucker-*.tmp"))

    for _ in range(2):
        before = len(list(store.folder.rglob("*.npz")))
        for leftover in store.folder.rglob(".lowtucker-*.tmp"):
            leftover.rename(leftover.with_name(".lowtucker-leftover"))  # of the previous kill
        with start(
            home, "-c", f"import tiny_experiment as t; t.work_for_ever({str(tmp_path)!r})"
        ) as p:
            try:
                eventually(lambda n=before: len(list(store.folder.rglob("*.npz"))) > n)
                eventually(writes)
            finally:
                p.kill()
                p.wait(DEADLINE)
        paths = list(store.folder.rglob("*.npz"))
        assert len(paths) > before
        for path in paths:
            with np.load(path) as file:
                first, stop = map(int, path.stem.split("-"))
                np.testing.assert_array_equal(file["trial"], np.arange(first, stop))
                assert file["value"].shape == (2, 200_000)
    todo = as_lines(pending([experiment], store, SEED, 10_000))
    assert len(set(lines(tmp_path)) - set(todo)) == len(paths)
    (tmp_path / "log").unlink()
    jobs = pending([experiment], store, SEED, 8)
    run(jobs, store)
    assert sorted(lines(tmp_path)) == sorted(as_lines(jobs))
    assert_same(results(experiment, store, SEED, 8), expected(experiment, 8))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="Windows has no such signals")
def test_interrupt_that_another_thread_receives_waits_for_workers_to_start():
    begin, reached = threading.Event(), []

    def receive():
        begin.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    other = threading.Thread(target=receive)
    other.start()

    def started():
        with _interrupts_held():
            begin.set()
            other.join()
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        started()
    assert reached


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_interrupt_does_not_reach_starting_workers(home, tmp_path, store):
    """Ctrl-C is sent to all processes while workers import NumPy."""
    script = tmp_path / "slow_to_begin.py"
    script.write_text(SLOW_TO_BEGIN)
    with start(home, script, tmp_path) as process:
        try:
            eventually(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
            for sign in tmp_path.glob("begun-*"):
                os.kill(int(sign.name.removeprefix("begun-")), signal.SIGINT)
            (tmp_path / "go").touch()
            _, heard = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
    assert b"Traceback" not in heard, heard.decode()
    assert process.returncode == 0
    assert len(list(store.folder.rglob("*.npz"))) == 6
