"""One call at a time has a checkpoint, in whatever process or thread; the dead hold nothing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.run.lock import FileLock
from runs import assert_same

RANK = (1, 2, 2)
A = lt.gaussian((5, 5, 6), 120, seed=1)
Y = A.forward(lt.random_tucker((5, 5, 6), RANK, seed=0))
# A call that says when it is at work, and ends when it is told to
CHILD = """
import sys, time, lowtucker as lt
A = lt.gaussian((5, 5, 6), 120, seed=1)
y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))
def wait(progress):
    if progress.epoch == 3:
        print("at work", flush=True)
        if sys.argv[2] == "wait":
            sys.stdin.readline()
        if sys.argv[2] == "raise":
            raise ZeroDivisionError
        if sys.argv[2] == "exit":
            sys.exit(3)
lt.recover(A, y, (1, 2, 2), solver=lt.TIHT(step=0.3), checkpoint=sys.argv[1], callbacks=[wait])
"""


def recover(**more):
    return lt.recover(A, Y, RANK, solver=lt.TIHT(step=0.3), **more)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.ckpt"


def start(path, how):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdout.readline() == "at work\n"
    return child


def test_a_second_process_is_refused_until_the_first_has_ended(path):
    child = start(path, "wait")
    with pytest.raises(BlockingIOError, match=rf"in use by process {child.pid} on .*\. Wait"):
        recover(checkpoint=path)
    child.communicate("\n")
    assert child.returncode == 0
    assert_same(recover(checkpoint=path), recover())
    assert sorted(os.listdir(path.parent)) == ["run.ckpt", "run.ckpt.previous"]


@pytest.mark.parametrize("how", ["kill", "raise", "exit"])
def test_the_lock_of_a_process_that_has_ended_blocks_nobody(path, how):
    child = start(path, "wait" if how == "kill" else how)
    if how == "kill":
        child.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    child.communicate()
    assert_same(recover(checkpoint=path), recover())
    assert not path.with_name("run.ckpt.lock").exists()


def test_a_second_thread_and_a_nested_call_are_refused(path):
    inside, leave, errors = threading.Event(), threading.Event(), []

    def wait(progress):
        if progress.epoch == 2:
            try:
                recover(checkpoint=path)
            except BlockingIOError as error:
                errors.append(str(error))
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=lambda: recover(checkpoint=path, callbacks=[wait]))
    thread.start()
    assert inside.wait(30)
    with pytest.raises(BlockingIOError, match="which is this one: by another thread, or the call"):
        recover(checkpoint=path)
    leave.set()
    thread.join()
    assert f"process {os.getpid()} on" in errors[0]
    assert_same(recover(checkpoint=path), recover())


def test_a_call_that_fails_lets_go_even_if_its_error_is_kept(path):
    def fails(progress):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as kept:
        recover(checkpoint=path, callbacks=[fails])
    path.unlink()
    small = lt.DenseOperator(A.matrix * 2.0**-600, A.shape)
    with pytest.raises(ValueError, match="would not be a number") as also_kept:
        lt.recover(small, Y * 2.0**450, RANK, checkpoint=path)
    assert recover(checkpoint=path).success
    assert not list(path.parent.glob("*.lock"))
    del kept, also_kept


def test_one_of_many_threads_has_it_at_a_time(tmp_path):
    """Locks that are taken, deleted and taken again: never two at once."""
    holders, most, taken, refused = [0], [0], [0], [0]
    guard, end = threading.Lock(), time.monotonic() + 1.0

    def work():
        while time.monotonic() < end:
            try:
                lock = FileLock(tmp_path / "f", "checkpoint")
            except BlockingIOError:
                with guard:
                    refused[0] += 1
                continue
            with guard:
                holders[0] += 1
                taken[0] += 1
                most[0] = max(most[0], holders[0])
            time.sleep(0.001)
            with guard:
                holders[0] -= 1
            lock.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 1
    assert taken[0] > 10
    assert refused[0] > 0
    assert not list(tmp_path.iterdir())


PROCESS = """
import sys, time, os
from pathlib import Path
from lowtucker.run.lock import FileLock
folder, end = Path(sys.argv[1]), time.time() + 1.0
mark = folder / "mark"
taken = 0
while time.time() < end:
    try:
        lock = FileLock(folder / "f", "checkpoint")
    except BlockingIOError:
        continue
    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))  # fails where another one has it too
    time.sleep(0.001)
    mark.unlink()
    lock.release()
    taken += 1
print(taken)
"""


def test_one_of_many_processes_has_it_at_a_time(tmp_path):
    children = [
        subprocess.Popen([sys.executable, "-c", PROCESS, tmp_path], stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    counts = [int(child.communicate()[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert sum(counts) > 10


@pytest.mark.parametrize("what", ["a folder", "a file", "a pipe", "a link", "no locks"])
def test_where_there_are_no_locks_nobody_is_refused(path, what, monkeypatch):
    def none(file):
        raise OSError(errno.ENOLCK, "No locks available")

    if what == "a folder":
        path.with_name("run.ckpt.lock").mkdir()
    elif what == "a file":
        path.with_name("run.ckpt.lock").write_text("my thesis")
    elif what == "a pipe":
        if not hasattr(os, "mkfifo"):
            pytest.skip("there are no pipes here")
        os.mkfifo(path.with_name("run.ckpt.lock"))
    elif what == "a link":
        path.with_name("run.ckpt.lock").symlink_to(path.with_name("of somebody else"))
    else:
        monkeypatch.setattr("lowtucker.run.lock._lock", none)
    assert recover(checkpoint=path).success
    assert recover(checkpoint=path).success
    if what == "a file":
        assert path.with_name("run.ckpt.lock").read_text() == "my thesis"
    assert not path.with_name("of somebody else").exists()


def test_other_checkpoints_in_one_folder_are_free(tmp_path):
    results = []

    def other(progress):
        if progress.epoch == 1:
            results.append(recover(checkpoint=tmp_path / "two"))

    results.append(recover(checkpoint=tmp_path / "one", callbacks=[other]))
    np.testing.assert_array_equal(results[0].X.core, results[1].X.core)
