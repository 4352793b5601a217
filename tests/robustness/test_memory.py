"""A run that cannot fit into memory is refused before it begins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from bad_calls import sizes
from lowtucker._array import memory as _memory
from lowtucker.cli import main
from lowtucker.solvers import auto


@pytest.fixture
def little(monkeypatch):
    """Half a megabyte of free memory."""
    monkeypatch.setattr(auto, "available_memory", lambda: 500_000)
    monkeypatch.setattr(auto, "NOTICEABLE", 0)


def problem(shape=(30, 30, 30), rank=(3, 3, 3), m=300):
    A = lt.entries(shape, np.random.default_rng(0).integers(0, shape, (m, len(shape))))
    return A, A.forward(lt.random_tucker(shape, rank, seed=0))


def test_runs_that_form_the_full_tensor_are_refused(little):
    A, y = problem()
    with pytest.raises(MemoryError, match=r"TIHT would need about 9\d\d kB beside A, and 500 kB"):
        lt.recover(A, y, (3, 3, 3), solver="tiht")
    with pytest.raises(MemoryError, match='Try solver="auto", which need not'):
        lt.recover(A, y, (3, 3, 3), solver=lt.StoTIHT(thresholding=lt.HOSVD((3, 3, 3))))


def test_runs_with_a_large_gram_matrix_are_refused(little):
    A, y = problem()
    with pytest.raises(MemoryError, match=r"It forms 270\^2 numbers. Try lowtucker.RGN\(products"):
        lt.recover(A, y, (3, 3, 3), solver="rgn")
    result = lt.recover(A, y, (3, 3, 3), solver=lt.RGN(products=True), max_epochs=2)
    assert result.epochs == 2


def test_operators_that_form_full_tensors_are_refused(little):
    A, y = problem()
    made = lt.FunctionOperator(A._forward, A._adjoint, A.shape, A.m)
    with pytest.raises(MemoryError, match="FunctionOperator forms tensors of the full size"):
        lt.recover(made, y, (3, 3, 3), solver="rcg")


def test_every_solver_of_a_chain_is_checked_before_the_first_one_runs(little):
    A, y = problem()
    progress = []
    with pytest.raises(MemoryError, match="RGN would need"):
        lt.recover(A, y, (3, 3, 3), solver=[lt.RCG(), lt.RGN()], callbacks=[progress.append])
    assert not progress


def test_runs_that_fit_into_memory_are_not_refused(monkeypatch):
    A, y = problem()
    monkeypatch.setattr(auto, "NOTICEABLE", 0)
    assert lt.recover(A, y, (3, 3, 3), solver="rcg", max_epochs=2).epochs == 2


def test_tiht_on_a_billion_entries_is_refused():
    """More than the machine has: 32 GB for four tensors, and as many again."""
    shape = (2000, 2000, 2000)
    A = lt.entries(shape, np.zeros((100, 3), dtype=int))
    with pytest.warns(lt.UnderdeterminedWarning), pytest.raises(MemoryError, match="GB beside A"):
        lt.recover(A, np.ones(100), (1, 1, 1), solver="tiht")


def test_the_command_line_reports_it_in_one_line(little, tmp_path):
    rows = np.random.default_rng(0).standard_normal((50, 1000))
    np.save(tmp_path / "A.npy", rows)
    np.save(tmp_path / "y.npy", rows @ np.ones(1000))
    call = ["recover", tmp_path / "A.npy", tmp_path / "y.npy", "--shape", "10,10,10"]
    more = ["--rank", "4,4,4", "--solver", "rgn", "-o", tmp_path / "X.npz", "-q"]
    done = CliRunner().invoke(main, [*map(str, [*call, *more])])
    assert done.exit_code == 1
    assert "there is not enough memory (RGN would need about" in done.stderr


def test_free_memory_is_the_limit_of_the_machine_or_the_container(tmp_path, monkeypatch):
    total = _memory.available_memory()
    assert 10**7 < total < 10**15
    limit, used = tmp_path / "max", tmp_path / "current"
    limit.write_text("1000000\n")
    used.write_text("400000\n")
    monkeypatch.setattr(_memory, "CGROUPS", ((str(limit), str(used)),))
    assert _memory.available_memory() == 600_000
    limit.write_text("max\n")
    assert abs(_memory.available_memory() - total) < 0.2 * total


# Absurd sizes

CHILD = """
import json, resource, signal, sys, traceback, warnings
sys.path[:0] = json.loads(sys.argv[1])
warnings.simplefilter("ignore")
import lowtucker
from bad_calls import sizes

class Slow(BaseException):
    pass

def alarm(*_):
    raise Slow("it took too long")

signal.signal(signal.SIGALRM, alarm)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 10**9,) * 2)
package, found = lowtucker.__path__[0], {}
for name, call in {**sizes.REFUSED, **sizes.FINE}.items():
    signal.setitimer(signal.ITIMER_REAL, 20)
    try:
        call()
        told = ["", "", True]
    except BaseException as error:
        own = traceback.extract_tb(error.__traceback__)[-1].filename.startswith(package)
        told = [type(error).__name__, str(error), own]
    signal.setitimer(signal.ITIMER_REAL, 0)
    found[name] = told
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def absurd():
    folders = json.dumps([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, folders], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
@pytest.mark.parametrize("name", sizes.REFUSED)
def test_absurd_sizes_are_refused_before_memory_is_taken(absurd, name):
    kind, message, own = absurd[name]
    assert kind in ("ValueError", "TypeError") or message.startswith("TIHT would need"), message
    assert own, message
    assert len(message) > 40


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
@pytest.mark.parametrize("name", sizes.FINE)
def test_sizes_that_need_no_memory_are_not_refused(absurd, name):
    assert not absurd[name][0], absurd[name]


@pytest.mark.parametrize(("need", "refused"), [(10**7, False), (10**8, True)])
def test_what_fits_is_not_refused(monkeypatch, need, refused):
    monkeypatch.setattr(_memory, "available_memory", lambda: 5 * 10**7)
    monkeypatch.setattr(_memory, "NOTICEABLE", 10**6)
    m = need // (8 * 8)
    if not refused:
        assert lt.gaussian((2, 2, 2), m).m == m
        return
    with pytest.raises(ValueError, match=r"m = \d+ rows of 8 numbers would take 100 MB, and 50 MB"):
        lt.gaussian((2, 2, 2), m)


def test_the_limit_of_the_process_counts(monkeypatch):
    resource = pytest.importorskip("resource", reason="limits are POSIX's")
    limits = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    assert _memory._of_process() == sys.maxsize
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10**15, 10**15))
    assert 0 < _memory._of_process() < 10**15 or sys.platform != "linux"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 1))
    assert _memory._of_process() == 0 or sys.platform != "linux"
