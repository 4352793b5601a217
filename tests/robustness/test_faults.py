"""A matrix of faults at every write: no partial file, nothing lost, an error that says what to try.

Rows are the writers of the library, the commands and the app; columns are real faults (faults.py).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker._array.errors import CheckpointWarning
from lowtucker.cli import main
from lowtucker.cli.common import write_picture
from lowtucker.io import guards
from lowtucker.lab.bench.timing import Row, write_csv
from lowtucker.lab.experiments.report import csv_bytes, write_bytes
from lowtucker.simulation.store import Store
from robustness import faults

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")

SHAPE, RANK = (5, 5, 6), (1, 2, 2)
A = lt.gaussian(SHAPE, 120, seed=1)
X = lt.random_tucker(SHAPE, RANK, seed=0)
Y = A.forward(X)
REMEDY = r"free some space|give a|create the folder|change the permissions|raise the limit"
LEFT_OVER = re.compile(r"\.lowtucker-[0-9a-f]{16}\.tmp")


@cache
def result():
    return lt.recover(A, Y, RANK, solver="tiht", max_epochs=30)


@cache
def stream():
    online = lt.Online(SHAPE, RANK, seed=0)
    index = np.stack([np.random.default_rng(0).integers(0, k, 500) for k in SHAPE], axis=1)
    online.update_entries(index, X.entries(index))
    return online


@cache
def figure():
    pytest.importorskip("matplotlib")
    from lowtucker._plotting import new_figure

    drawn, axes = new_figure()
    axes.imshow(np.random.default_rng(0).random((40, 40)))
    axes.axis("off")
    return drawn


# ---- the writers: each writes one file at a path ----


def checkpoint(path):
    """A fault does not end the run: what it warns of is raised here."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", CheckpointWarning)
        found = lt.recover(A, Y, RANK, solver="tiht", max_epochs=30, checkpoint=path)
    assert np.array_equal(found.X.full(), result().X.full())
    if seen:
        raise OSError(str(seen[0].message))


def app_report(path):
    """The report of the app, in the folder of a run."""
    pytest.importorskip("jinja2")
    pytest.importorskip("av")
    from lowtucker.lab.app.report import DataReport
    from lowtucker.lab.experiments.clip import Clip

    report = DataReport(Clip(X.full(), "clip", False), RANK, 120, "tiht", 30, 0, 1, 60.0, -9.0, 9.0)
    report.write(path.parent, result())


def gif(path):
    pytest.importorskip("av")
    from lowtucker.lab.video import save_gif

    save_gif(path, np.ones((30, 30, 8)))


WRITERS = {
    "run.ckpt": checkpoint,
    "result.npz": lambda path: result().save(path, overwrite=True),
    "tensor.npz": lambda path: lt.io.save_arrays(path, X.parts(), overwrite=True),
    "stream.npz": lambda path: stream().save(path, overwrite=True),
    "samples.csv": lambda path: lt.io.save_samples(path, [[0, 1]] * 900, [1.0] * 900,
                                                   overwrite=True),
    "report.html": app_report,
    "page.html": lambda path: write_bytes(path, b"<p>page</p>" * 999),
    "table.csv": lambda path: write_bytes(path, csv_bytes(["a", "b"], [(1, 2.0)] * 999)),
    "bench.csv": lambda path: write_csv([Row("a", 1.0, "<= 2", True, "")] * 999, path),
    "figure.png": lambda path: write_picture(figure(), path),
    "figure.pdf": lambda path: write_picture(figure(), path),
    "movie.gif": gif,
}  # fmt: skip


# It draws for a second each time, and is killed less often unless LOWTUCKER_FAULTS is set
SLOW = pytest.param("report.html", marks=pytest.mark.slow)


@pytest.fixture(
    scope="module", params=[SLOW if name == SLOW.values[0] else name for name in WRITERS]
)
def cell(request, tmp_path_factory):
    """How to write a file, and one that was written."""
    write, path = WRITERS[request.param], tmp_path_factory.mktemp("there") / request.param
    write(path)
    return write, path


def copied(cell, folder):
    """The same files in another folder."""
    write, path = cell
    shutil.copytree(path.parent, folder, dirs_exist_ok=True)
    return write, folder / path.name


def refused(write, path, message=""):
    """The text of the error that a writer raises; it names the path and says what to try."""
    with pytest.raises((OSError, ValueError)) as caught:
        write(path)
    text = str(caught.value)
    assert path.parent.name in text  # the report of the app has a movie, which is made first
    assert path.name in text or path.name == "report.html"
    assert re.search(REMEDY, text), text
    assert re.search(message, text), text
    return text


def assert_intact(cell, path, *, killed=False):
    """The file is as it was, or was written again as a whole; nothing else is there."""
    names = {one.name for one in path.parent.iterdir()} - {"ballast"}
    if killed:  # which blocks nobody
        names -= {"run.ckpt.lock"}
    before = {one.name for one in cell[1].parent.iterdir()}
    assert names <= before | {"run.ckpt.previous"}, names
    if path.suffix == ".ckpt":
        checkpoint(path)  # can be read, and gives the result
    elif path.name in ("report.html", "figure.pdf"):  # the time is in them
        assert path.stat().st_size == pytest.approx(cell[1].stat().st_size, rel=0.01)
        assert path.read_bytes()[-9:] == cell[1].read_bytes()[-9:]
    else:
        assert path.read_bytes() == cell[1].read_bytes()


# ---- the faults ----


@pytest.mark.parametrize("left", [0, 4096])
def test_a_full_disk(cell, left, tmp_path):
    def scenario():
        disk = tmp_path / "disk"
        disk.mkdir()
        faults.mount(disk)
        write, path = copied(cell, disk)
        if path.suffix == ".ckpt":
            path.unlink()
            path.with_name("run.ckpt.previous").unlink(missing_ok=True)
        faults.fill(disk, left)
        if left == 0 or cell[1].stat().st_size > 2 * left:
            said = refused(write, path, "No space left|requested and|free some space")
            assert "still in memory" in said or path.suffix == ".ckpt"
        if path.suffix != ".ckpt":
            assert_intact(cell, path)
        (tmp_path / "room").mkdir()
        write(tmp_path / "room" / path.name)  # it is still in memory
        assert_intact(cell, tmp_path / "room" / path.name)

    faults.in_child(scenario)


def test_a_limit_on_the_size_of_files(cell, tmp_path):
    def scenario():
        write, path = copied(cell, tmp_path / "limited")
        if path.suffix == ".ckpt":
            path.unlink()
        faults.limit_files(1000)
        refused(write, path, "too large|free some space")
        if path.suffix != ".ckpt":
            assert_intact(cell, path)

    faults.in_child(scenario)


def test_a_disk_that_is_read_only(cell, tmp_path):
    def scenario():
        disk = tmp_path / "disk"
        disk.mkdir()
        libc = faults.mount(disk)
        write, path = copied(cell, disk)
        faults.make_read_only(libc, disk)
        refused(write, path, "Read-only file system")
        assert path.exists()

    faults.in_child(scenario)


def test_a_folder_without_permission(cell):
    def scenario():
        write, path = copied(cell, folder)
        folder.chmod(0o555)
        faults.become_nobody()
        refused(write, path, "Permission denied; change the permissions of")
        assert path.exists()

    folder = faults.open_folder()
    try:
        faults.in_child(scenario)
        assert {one.name for one in folder.iterdir()} == {
            one.name for one in cell[1].parent.iterdir()
        }
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_folder_that_does_not_exist(cell, tmp_path):
    refused(cell[0], tmp_path / "none" / cell[1].name, "No such file")


def test_a_folder_that_vanishes_while_a_file_is_written(cell, tmp_path):
    def scenario():
        write, path = copied(cell, tmp_path / "vanishing")
        if path.suffix == ".ckpt":
            path.unlink()

        def opened(*how):
            file = open(*how)  # noqa: SIM115 - it is closed by the writer
            shutil.rmtree(path.parent)
            return file

        guards.open = opened
        refused(write, path, "No such file")
        assert not path.parent.exists()

    faults.in_child(scenario)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder", "a loop of links"])
def test_something_else_in_place_of_the_file(cell, kind, tmp_path, monkeypatch):
    def scenario():
        import socket

        write, path = cell[0], tmp_path / cell[1].name
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "socket":
            monkeypatch.chdir(tmp_path)
            socket.socket(socket.AF_UNIX).bind(path.name)
        elif kind == "device":
            faults.make_device(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to(path.name)
        before = path.lstat()
        refused(write, path, "pipe, a socket or a device|is a folder|symbolic links")
        assert path.lstat()[:3] == before[:3]  # mode, inode and device
        assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []

    faults.in_child(scenario)


def test_a_name_that_is_too_long(cell, tmp_path):
    write, path = cell[0], tmp_path / ("x" * 252 + cell[1].suffix)
    if cell[1].name == "report.html":
        pytest.skip("the app gives this file its name")
    refused(write, path, "File name too long; give a shorter name")
    assert not [one for one in tmp_path.iterdir() if one.is_file()]


def test_a_kill_between_two_calls_of_the_system(cell, tmp_path):
    def count():
        write, path = copied(cell, tmp_path / "counted")
        if path.suffix == ".ckpt":
            path.unlink()
        killer = faults.Killer(guards, 0)
        write(path)
        (tmp_path / "count").write_text(str(killer.count))

    faults.in_child(count)
    most = int((tmp_path / "count").read_text())
    assert most >= 4  # open, write, fsync, rename
    points = {*range(1, 5), most // 2, *range(most - 3, most + 1)} - {0}
    if cell[1].name == SLOW.values[0] and "LOWTUCKER_FAULTS" not in os.environ:
        points = {2, most - 1}
    left = 0
    for n in sorted(points):
        write, path = copied(cell, tmp_path / f"killed-{n}")
        if path.suffix == ".ckpt":
            path.unlink()

        def scenario(write=write, path=path, n=n):
            faults.Killer(guards, n)
            write(path)

        assert faults.in_child(scenario) == faults.KILLED
        for one in path.parent.iterdir():
            if LEFT_OVER.fullmatch(one.name):
                left += 1
                one.unlink()
            elif one.is_dir() and one.name.startswith("tmp"):  # where the app made its movie
                shutil.rmtree(one)
        if path.suffix != ".ckpt" or path.exists():
            assert_intact(cell, path, killed=True)
        write(path)  # the next one works
        assert_intact(cell, path)
    assert left > 0


# ---- the commands: what they computed is kept where there is room ----


def table(path):
    index = np.stack([np.random.default_rng(0).integers(0, k, 700) for k in SHAPE], axis=1)
    lt.io.save_samples(path, index, X.entries(index))


SIZES = ("--shape", "5,5,6", "--rank", "1,2,2")
RECOVER = ("recover", "A.npy", "y.npy", *SIZES, "-o")
STREAM = ("stream", "samples.csv", *SIZES, "-o")
COMMANDS = {
    "recover .npz": (*RECOVER, "disk/X.npz"),
    "recover .npy": (*RECOVER, "disk/X.npy"),
    "recover .mat": (*RECOVER, "disk/X.mat"),
    "complete": ("complete", "samples.csv", *SIZES, "-o", "disk/X.npz"),
    "stream": (*STREAM, "disk/X.npz"),
    "video": ("video", "clip.npy", "--rank", "2,2,2", "--measurements", "300", "-o", "disk/out"),
}
# Where a second file fails, the first is written
SECOND = {
    "plot": (*RECOVER, "X.npz", "--plot", "disk/X.png"),
    "predict": ("complete", "samples.csv", *SIZES, "-o", "X.npz", "--predict", "cells.csv",
                "disk/p.csv"),
}  # fmt: skip


@pytest.fixture
def ready(tmp_path, monkeypatch):
    """Input files, and an empty folder that becomes a small disk."""
    monkeypatch.chdir(tmp_path)
    np.save("A.npy", np.asarray(A.matrix))
    np.save("y.npy", Y)
    np.save("clip.npy", (255 * np.random.default_rng(0).random((8, 8, 6))).astype(np.uint8))
    table("samples.csv")
    Path("cells.csv").write_text("0,0,0\n" * 900)
    Path("disk").mkdir()
    return tmp_path


def full_after(name):
    """Fill the disk when a function of the library returns: after the work, before the writes."""
    import importlib

    home, _, attribute = name.rpartition(".")
    owner = importlib.import_module(home) if home == "lowtucker" else _found(home)
    work = getattr(owner, attribute)

    def then_full(*given, **named):
        found = work(*given, **named)
        faults.fill("disk")
        return found

    setattr(owner, attribute, then_full)


def _found(path):
    import importlib

    home, _, name = path.rpartition(".")
    return getattr(importlib.import_module(home), name)


def filling(command):
    """Let the disk become full after the work of a command."""
    full_after({
        "recover": "lowtucker.recover", "complete": "lowtucker.complete",
        "stream": "lowtucker.Online.result",
        "video": "lowtucker.lab.experiments.video.VideoRecovery.run",
    }[command])  # fmt: skip


def called(*command):
    """Run a command on a disk that becomes full; return what it printed."""
    faults.mount("disk")
    filling(command[0])
    done = CliRunner().invoke(main, [*command, "-q"])
    assert done.exit_code == 4, (done.exit_code, done.output, done.exception)
    assert "No space left" in done.stderr or "free some space" in done.stderr
    assert {one.name for one in Path("disk").rglob("*")} <= {"ballast", "out"}
    return done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_does_not_lose_the_result(ready, name):
    def scenario():
        if name == "video":
            pytest.importorskip("av")
        tempfile.tempdir = str(ready / "temporary")
        Path("temporary").mkdir()
        said = called(*COMMANDS[name])
        kept = Path(re.search(r"The result is in (\S+\.npz)\.", said)[1])
        assert kept.parent.parent == ready / "temporary"
        assert kept.parent.stat().st_mode & 0o077 == 0  # others cannot read it
        assert lt.load(kept).X.full().shape == ((8, 8, 6) if name == "video" else SHAPE)

    faults.in_child(scenario)


@pytest.mark.parametrize("name", SECOND)
def test_a_full_disk_for_a_second_file(ready, name):
    def scenario():
        if name == "plot":
            pytest.importorskip("matplotlib")
        said = called(*SECOND[name])
        assert "The result is in X.npz." in said
        assert lt.load("X.npz").X.shape == SHAPE

    faults.in_child(scenario)


def test_no_room_anywhere_is_said(ready, monkeypatch):
    def scenario():
        monkeypatch.setattr("lowtucker.cli.rescue._places", lambda: [Path("disk").absolute()])
        said = called(*COMMANDS["recover .npz"])
        assert "no room in" in said
        assert "run the command again" in said

    faults.in_child(scenario)


def test_a_stream_goes_on_where_its_checkpoint_cannot_be_written(ready):
    def scenario():
        tempfile.tempdir = str(ready)
        faults.mount("disk")
        full_after("lowtucker.Online.update_entries")
        call = [*STREAM, "X.npz", "--checkpoint", "disk/s.npz", "--block", "100", "--every", "0"]
        done = CliRunner().invoke(main, call)
        assert done.exit_code == 4, done.output
        assert done.stderr.count("Warning: checkpoint disk/s.npz cannot be written") == 1
        kept = re.search(r"The stream is in (\S+\.npz)\.", done.stderr)[1]
        assert lt.Online.load(kept).m == lt.load("X.npz").m == 700

    faults.in_child(scenario)


def test_a_full_disk_for_the_paper_s_experiments(ready, monkeypatch):
    pytest.importorskip("jinja2")
    from small_paper import small_paper

    def scenario():
        monkeypatch.setattr("lowtucker.lab.experiments.figures.Paper", lambda **_: small_paper())
        faults.mount("disk")
        call = ["reproduce", "fig3", "--trials", "1", "--workers", "1", "-o", "disk/out"]
        put, stored = Store.put, []

        def then_full(self, *given):
            put(self, *given)
            stored.append(given)
            faults.fill("disk")

        monkeypatch.setattr(Store, "put", then_full)
        done = CliRunner().invoke(main, call)
        assert done.exit_code == 4, (done.output, done.exception)
        assert "Results so far are kept in disk/out/cells: run the same command" in done.stderr
        monkeypatch.setattr(Store, "put", put)
        Path("disk/ballast").unlink()
        done = CliRunner().invoke(main, call)  # the first is not computed again
        assert done.exit_code == 0, done.output
        assert Path("disk/out/report.html").stat().st_size > 1000
        assert len(stored) == 1

    faults.in_child(scenario)


# ---- the start of the command ----


LINE = "Interrupted before there was a result.\n"
STOPPING = "Stopping after this step, with the best result so far. Ctrl-C again stops at once.\n"


INTERRUPTED = """
import sys
import lowtucker.__main__ as program

listen = program.signal.signal

def told(*how):
    program.signal.signal = listen
    before = listen(*how)
    print(flush=True)
    return before

program.signal.signal = told  # before, Python itself handles Ctrl-C
sys.argv[1:] = "recover A.npy y.npy --shape 5,5,6 -o X.npz -q --overwrite".split()
program.run()
"""


def interrupted(seconds):
    """Exit code and messages of a command that gets Ctrl-C so long after it listens."""
    command, pipe = [sys.executable, "-c", INTERRUPTED], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as run:
        run.stdout.readline()
        time.sleep(seconds)
        run.send_signal(signal.SIGINT)
        return run.wait(), run.stderr.read()


MOMENTS = [0.002, 0.02, 0.06, 0.12, 0.2, 0.35]
MORE = 60 if "LOWTUCKER_FAULTS" in os.environ else 20


@pytest.mark.parametrize(
    "moments", [MOMENTS, pytest.param(np.linspace(0.002, 1.5, MORE), marks=pytest.mark.slow)]
)
def test_ctrl_c_while_modules_are_imported_is_one_line(ready, moments):
    for seconds in moments:
        code, said = interrupted(seconds)
        # ended before there was a result; done; while Python shuts down; at work on the result,
        # whose last step may succeed
        expected = {(130, LINE), (0, ""), (-2, ""), (130, STOPPING), (0, STOPPING)}
        assert (code, said) in expected, seconds


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here")
def test_an_import_cannot_swallow_ctrl_c(tmp_path):
    swallow = "import signal\ntry: signal.raise_signal(signal.SIGINT)\nexcept BaseException: pass"
    (tmp_path / "swallows.py").write_text(swallow)
    code = (
        "import time; from lowtucker.__main__ import _ready; _ready()\n"
        "try: import swallows; time.sleep(20)\n"
        "except KeyboardInterrupt: print('raised')"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("raised\n", "")


def test_a_second_ctrl_c_does_not_wait_for_an_import(tmp_path):
    twice = "import signal\nfor _ in range(2): signal.raise_signal(signal.SIGINT)\nprint('no')"
    (tmp_path / "twice.py").write_text(twice)
    code = (
        "from lowtucker.__main__ import _ready; _ready()\n"
        "try: import twice\n"
        "except KeyboardInterrupt: print('raised')"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("raised\n", "")


def test_an_import_that_turns_ctrl_c_into_another_error_is_an_interrupt(monkeypatch):
    def imported(name):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise RuntimeError("Error calling __set_name__") from error

    monkeypatch.setattr(sys.modules["lowtucker.cli.main"], "import_module", imported)
    done = CliRunner().invoke(main, ["check", "A.npy"])
    assert (done.exit_code, done.stderr) == (130, LINE)
