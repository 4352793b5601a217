"""Trials on a Dask cluster: real workers, some of which die or are unsuitable."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lowtucker import __version__
from lowtucker.cli import main
from lowtucker.lab.experiments.convergence import Convergence
from lowtucker.lab.experiments.reproduce import Reproduction
from lowtucker.lab.experiments.success import Recoveries
from lowtucker.operators.connection import check_workers, connect
from lowtucker.simulation.farm import _on_a_worker
from lowtucker.simulation.runner import pending, results, run
from lowtucker.simulation.store import Store
from small_paper import small_paper

distributed = pytest.importorskip("distributed", reason="Dask is not installed")

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals"),
    # Dask leaves sockets and loops to the garbage collector when workers are killed
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEED, DEADLINE = 3, 60.0

# A separate module: workers cannot import a test module.
TRIALS = '''
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lowtucker.simulation.base import Experiment


class Trouble(LookupError):
    """Defined only in this module."""


@dataclass(frozen=True)
class Trials(Experiment):
    """Numbers that depend on cell, trial and seed; every call logs two lines."""

    folder: str
    labels: str = "abc"
    stack: int = 4
    fault: str = ""
    seconds: float = 0.0

    name = "trials"

    def cells(self):
        return list(self.labels)

    def compute(self, cell, first, count, seed):
        self.log("begin", cell, first)
        if (cell, first) == ("a", 0):
            self.fail()
        time.sleep(self.seconds)
        trials = range(first, first + count)
        made = [np.random.default_rng([seed, ord(cell), k]).random(3) for k in trials]
        self.log("end", cell, first)
        return {"trial": np.array(trials), "value": np.stack(made)}

    def log(self, what, cell, first):
        with open(Path(self.folder, "log"), "a") as log:
            log.write(f"{what} {cell} {first}\\n")

    def fail(self):
        sign = Path(self.folder, "failed")
        if self.fault == "killed" or (self.fault == "killed once" and not sign.exists()):
            sign.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "error":
            raise Trouble("cell a has a fault")
        if self.fault == "late":
            raise TimeoutError("the clock has stopped")

    def work(self, cell):
        return 100.0 - ord(cell)
'''


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Module ``farmed_trials``; workers inherit the path of this process."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "farmed_trials.py").write_text(TRIALS)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("farmed_trials")
    sys.path.remove(str(folder))
    sys.modules.pop("farmed_trials", None)


@pytest.fixture(scope="module")
def cluster(trials):
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**settings, processes=True) as made:
        yield made


@pytest.fixture(scope="module")
def connected(cluster):
    with connect(cluster.scheduler_address) as client:
        yield client


@pytest.fixture
def client(cluster, connected):
    """Client of two workers; workers killed by a test are restarted."""
    connected.wait_for_workers(2, timeout=DEADLINE)
    return connected


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cells")


def eventually(condition, deadline=DEADLINE):
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.02)


def assert_same(found, wanted):
    """Equal to the bit, except seconds."""
    assert found is not None
    assert list(found) == list(wanted)
    for cell, columns in wanted.items():
        assert found[cell].keys() == columns.keys()
        for name in columns.keys() - {"seconds"}:
            np.testing.assert_array_equal(found[cell][name], columns[name], strict=True)


def locally(experiment, trials, folder):
    store = Store(folder / "local")
    run(pending([experiment], store, SEED, trials), store)
    return results(experiment, store, SEED, trials)


def plain(experiment, folder):
    """The experiment without a fault."""
    return type(experiment)(str(folder), experiment.labels, experiment.stack)


REAL = {
    "few": Recoveries("few", (42, 54), (1.0,), 2, 5, 1e-8, ranks=((1, 2, 2),)),
    "odd rank": Recoveries("odd", (240,), (0.5,), 4, 5, 1e-8, ranks=((1, 1, 2),)),
    "convergence": Convergence(block_sizes=(90, 360), epochs=3),
    "clip": small_paper().clip,
}


def test_results_equal_local_ones_to_the_bit(client, tmp_path, store):
    experiments, heard = list(REAL.values()), []
    jobs = pending(experiments, store, SEED, 3)
    run(jobs, store, client=client, report=heard.append)
    assert sorted(map(repr, heard)) == sorted(map(repr, jobs))
    assert not pending(experiments, store, SEED, 3)
    for experiment in experiments:
        found = results(experiment, store, SEED, 3)
        assert_same(found, locally(experiment, 3, tmp_path / experiment.name))


def test_report_names_the_cluster(client, tmp_path):
    paper = small_paper()
    made = Reproduction(["fig3"], tmp_path, trials=1, seed=SEED, paper=paper, client=client)
    made.run(made.pending())
    assert "a Dask cluster" in (tmp_path / "report.html").read_text()
    assert_same(results(paper.few, made.store, SEED, 1), locally(paper.few, 1, tmp_path))


def test_nothing_is_computed_twice(trials, client, tmp_path, store):
    experiment = trials.Trials(str(tmp_path))
    for count in (3, 9, 6):
        run(pending([experiment], store, SEED, count), store, client=client)
    lines = (tmp_path / "log").read_text().splitlines()
    begun = [line for line in lines if line.startswith("begin")]
    assert sorted(begun) == sorted(f"begin {c} {first}" for c in "abc" for first in (0, 3, 4, 8))
    assert_same(
        results(experiment, store, SEED, 9), locally(plain(experiment, tmp_path), 9, tmp_path)
    )


def test_no_jobs_do_not_contact_the_cluster(store):
    run([], store, client=object())
    assert not store.folder.exists()


@pytest.mark.slow
def test_killed_worker_changes_no_result(trials, client, tmp_path, store):
    experiment = trials.Trials(str(tmp_path), labels="abcd", fault="killed once", seconds=0.05)
    run(pending([experiment], store, SEED, 16), store, client=client)
    assert (tmp_path / "failed").exists()
    found = results(experiment, store, SEED, 16)
    assert_same(found, locally(plain(experiment, tmp_path), 16, tmp_path))


def test_job_that_kills_every_worker_raises_os_error(trials, cluster, client, tmp_path, store):
    experiment = trials.Trials(str(tmp_path), fault="killed")
    before, cluster.scheduler.allowed_failures = cluster.scheduler.allowed_failures, 0
    kept = []
    try:
        with pytest.raises(OSError, match=r"Several workers.*died.*memory.*same command"):
            run(pending([experiment], store, SEED, 8), store, client=client, report=kept.append)
    finally:
        cluster.scheduler.allowed_failures = before
    assert len(pending([experiment], store, SEED, 8)) == 6 - len(kept)


@pytest.mark.parametrize(
    ("fault", "message"), [("error", "^cell a has a fault$"), ("late", "^the clock has stopped$")]
)
def test_error_of_a_job_reaches_the_caller(trials, client, tmp_path, store, fault, message):
    experiment = trials.Trials(str(tmp_path), fault=fault)
    with pytest.raises((trials.Trouble, TimeoutError), match=message):
        run(pending([experiment], store, SEED, 8), store, client=client)
    eventually(lambda: not at_work(client))


def at_work(client):
    """Keys of the running jobs, including cancelled ones."""
    busy = client.run(lambda dask_worker: [task.key for task in dask_worker.state.executing])
    return [key for keys in busy.values() for key in keys]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_running_jobs_stop_when_the_caller_is_interrupted(trials, client, tmp_path, store, kind):
    """One of them would run for minutes."""
    endless = Recoveries("endless", (42,), (1.0,), 2, 10**7, 1e-300, ranks=((1, 2, 2),))
    short, kept = trials.Trials(str(tmp_path), labels="xy"), []

    def report(job):
        kept.append(job)
        if len(kept) == 2:
            eventually(lambda: any("endless" in key for key in at_work(client)))
            raise kind

    jobs = [*pending([endless], store, SEED, 2), *pending([short], store, SEED, 12)]
    with pytest.raises(kind):
        run(jobs, store, client=client, report=report)
    eventually(lambda: not at_work(client))
    assert len(kept) == 2
    assert len(pending([short], store, SEED, 12)) == 4
    run(pending([short], store, SEED, 12), store, client=client)
    assert_same(results(short, store, SEED, 12), locally(plain(short, tmp_path), 12, tmp_path))


COMMAND = [sys.executable, "-c", "from lowtucker.cli import main; main()", "reproduce", "fig3"]


def tasks_of(client):
    """Keys of all tasks of the scheduler, including failed ones of earlier tests."""
    return set(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks)))


@pytest.mark.slow
def test_ctrl_c_keeps_results_and_cancels_running_jobs(cluster, client, tmp_path):
    before = tasks_of(client)
    command = [
        *COMMAND,
        "--trials",
        "2",
        "-o",
        str(tmp_path),
        "--dask",
        cluster.scheduler_address,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            eventually(
                lambda: len(list(tmp_path.rglob("*.npz"))) >= 2 or process.poll() is not None
            )
            process.send_signal(signal.SIGINT)
            _, heard = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
    assert process.returncode == 130, heard.decode()
    assert "run the same command to resume" in " ".join(heard.decode().split())
    assert b"Traceback" not in heard
    eventually(lambda: not at_work(client))
    eventually(lambda: not tasks_of(client) - before)
    kept = len(list(tmp_path.rglob("*.npz")))
    assert kept >= 2
    left = Reproduction(["fig3"], tmp_path, trials=2).pending()
    every = Reproduction(["fig3"], tmp_path / "x", trials=2).pending()
    assert len(left) == len(every) - kept > 0


@contextmanager
def in_this_process(**settings):
    with (
        distributed.LocalCluster(processes=False, dashboard_address=":0", **settings) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_worker_with_many_threads_runs_one_job_at_a_time(trials, tmp_path, store):
    experiment = trials.Trials(str(tmp_path), seconds=0.02)
    with in_this_process(n_workers=1, threads_per_worker=4) as client:
        run(pending([experiment], store, SEED, 8), store, client=client)
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert [line[0] for line in lines] == ["begin", "end"] * 6
    assert all(a[1:] == b[1:] for a, b in zip(lines[::2], lines[1::2], strict=True))


def test_worker_of_another_version_rejects_jobs(trials, tmp_path, store):
    job = pending([trials.Trials(str(tmp_path))], store, SEED, 1)[0]
    with pytest.raises(ImportError, match=rf"0\.0\.1 sent a job to lowtucker {__version__}"):
        _on_a_worker(job, "0.0.1")
    assert not (tmp_path / "log").exists()


# Errors of a cluster


BLOCKED = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "lowtucker":
            raise ModuleNotFoundError("No module named 'lowtucker'", name="lowtucker")

sys.meta_path.insert(0, Blocker())
"""
OLDER = """
import sys, types
version = types.ModuleType("lowtucker._version")
version.__version__ = "0.0.1"
sys.modules["lowtucker._version"] = version
"""


@contextmanager
def worker_with(preload, address, folder, name):
    """A real worker that runs a script first."""
    script = Path(folder, f"preload_{name}.py")
    script.write_text(preload)
    command = [
        sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny", "--nthreads",
        "1", "--no-dashboard", "--name", name, "--preload", str(script),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE)


@pytest.fixture(scope="module")
def unfit(tmp_path_factory):
    """Scheduler with a worker without lowtucker and one with another version."""
    folder = tmp_path_factory.mktemp("unfit")
    with ExitStack() as stack:
        cluster = stack.enter_context(
            distributed.LocalCluster(n_workers=0, dashboard_address=":0", host="127.0.0.1")
        )
        client = stack.enter_context(connect(cluster.scheduler_address))
        for name, preload in (("blocked", BLOCKED), ("older", OLDER)):
            stack.enter_context(worker_with(preload, cluster.scheduler_address, folder, name))
        client.wait_for_workers(2, timeout=DEADLINE)
        yield client


def only(client, name):
    """The client restricted to one worker."""

    def addresses():  # the client hears of its workers a moment later
        workers = client.scheduler_info()["workers"]
        return [address for address, info in workers.items() if info["name"] == name]

    eventually(addresses)
    (address,) = addresses()

    class One:
        asynchronous, scheduler, status = False, client.scheduler, client.status
        run = client.run

        def nthreads(self):
            return {address: 1}

    return One()


def test_workers_without_lowtucker(unfit):
    wanted = rf"1 Dask worker.*cannot import lowtucker \(No module.*Install lowtucker {__version__}"
    with pytest.raises(ImportError, match=wanted):
        check_workers(only(unfit, "blocked"))
    with pytest.raises(ImportError, match=wanted):  # so does the whole cluster
        check_workers(unfit)


def test_workers_with_another_version(unfit):
    wanted = rf"with lowtucker 0\.0\.1, but here it is {__version__}.*Install lowtucker"
    with pytest.raises(ValueError, match=wanted):
        check_workers(only(unfit, "older"))


def test_command_rejects_such_workers_before_the_run(unfit, tmp_path):
    address = unfit.scheduler.address
    done = CliRunner().invoke(main, ["reproduce", "fig3", "-o", str(tmp_path), "--dask", address])
    assert done.exit_code == 2
    assert "cannot import lowtucker" in done.stderr
    assert not list(tmp_path.rglob("*.npz"))


def test_no_workers():
    wanted = r"has no workers.*within 0\.2 s.*`dask worker inproc"
    with in_this_process(n_workers=0) as client, pytest.raises(TimeoutError, match=wanted):
        check_workers(client, timeout=0.2)


def test_all_workers_lost(trials, tmp_path, store, monkeypatch):
    monkeypatch.setattr("lowtucker.simulation.farm.LOOK", 0.1)
    experiment, kept = trials.Trials(str(tmp_path)), []
    with in_this_process(n_workers=1, threads_per_worker=1) as client:

        def report(job):
            kept.append(job)
            client.cluster.scale(0)
            eventually(lambda: not client.nthreads())
            monkeypatch.setattr("lowtucker.simulation.farm.PATIENCE", 0.3)

        with pytest.raises(TimeoutError, match=r"has no workers.*Results so far are kept"):
            run(pending([experiment], store, SEED, 12), store, client=client, report=report)
    assert len(pending([experiment], store, SEED, 12)) == 9 - len(kept) < 9


def test_scheduler_lost(trials, tmp_path, store):
    experiment, kept = trials.Trials(str(tmp_path)), []
    with in_this_process(n_workers=1, threads_per_worker=1) as client:

        def report(job):
            kept.append(job)
            client.cluster.close()

        with pytest.raises(ConnectionError, match=r"cluster is lost.*Results so far are kept"):
            run(pending([experiment], store, SEED, 12), store, client=client, report=report)
    assert len(pending([experiment], store, SEED, 12)) == 9 - len(kept) < 9


def test_workers_are_checked_once(client, monkeypatch):
    asked = []
    ask = client.run
    monkeypatch.setattr(client, "run", lambda *a, **k: asked.append(k["workers"]) or ask(*a, **k))
    monkeypatch.delattr(client, "_lowtucker_checked", raising=False)
    for _ in range(3):
        check_workers(client)
    assert [sorted(addresses) for addresses in asked] == [sorted(client.nthreads())]
    monkeypatch.setattr(client, "_lowtucker_checked", set(sorted(client.nthreads())[:1]))
    check_workers(client)
    assert asked[1:] == [sorted(client.nthreads())[1:]]


def test_unreachable_scheduler():
    wanted = r"scheduler at tcp://127\.0\.0\.1:1 cannot be reached.*`dask scheduler`"
    with pytest.raises(ConnectionError, match=wanted):
        connect("tcp://127.0.0.1:1", timeout=0.5)


BAD = {
    "http://127.0.0.1:8787": (ValueError, r"such as tcp://127\.0\.0\.1:8786.*web page"),
    "127.0.0.1": (ValueError, "address must be that of a scheduler"),
    "tcp://127.0.0.1:port": (ValueError, "address must be that of a scheduler"),
    "": (ValueError, "address must be that of a scheduler"),
}


@pytest.mark.parametrize("address", BAD)
def test_invalid_addresses(address, tmp_path):
    error, message = BAD[address]
    with pytest.raises(error, match=message):
        connect(address)
    done = CliRunner().invoke(main, ["reproduce", "-o", str(tmp_path), "--dask", address])
    assert done.exit_code == 2
    assert "address must be that of a scheduler" in done.stderr


def test_address_must_be_a_string():
    with pytest.raises(TypeError, match=r"address must be a string such as.*got int"):
        connect(8786)


def test_address_of_a_worker_is_rejected(client, tmp_path):
    address = next(iter(client.nthreads()))
    done = CliRunner().invoke(main, ["reproduce", "-o", str(tmp_path), "--dask", address])
    assert done.exit_code == 2
    assert f"At {address} there is a Worker, expected a Dask scheduler" in done.stderr


def test_workers_and_a_cluster_exclude_each_other(tmp_path):
    options = ["-o", str(tmp_path), "--workers", "2", "--dask", "tcp://127.0.0.1:1"]
    done = CliRunner().invoke(main, ["reproduce", *options])
    assert done.exit_code == 2
    assert "Omit one of them" in done.stderr


def test_invalid_clients(cluster):
    with pytest.raises(TypeError, match=r"client must be a distributed\.Client, got str"):
        check_workers("tcp://127.0.0.1:8786")

    async def asynchronous():
        async with distributed.Client(
            cluster.scheduler_address, asynchronous=True, set_as_default=False
        ) as client:
            check_workers(client)

    import asyncio

    with pytest.raises(TypeError, match=r"must be synchronous.*asynchronous=False"):
        asyncio.run(asynchronous())
    with connect(cluster.scheduler_address) as client:
        pass
    with pytest.raises(ConnectionError, match="client is closed"):
        check_workers(client)


def test_missing_dask_gives_installation_advice(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs distributed.*lowtucker\[dask\]"):
        connect("tcp://127.0.0.1:8786")


def test_dask_is_imported_on_demand():
    code = (
        "import sys, lowtucker.cli, lowtucker.simulation.runner\n"
        "import lowtucker.operators.connection\n"
        "assert not {'distributed', 'dask'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
