"""Files that are not what they claim, with every reader; interrupted writing, by every writer.

The formats one by one, with truncation at every byte and random damage, are in tests/io.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from click.testing import CliRunner

import lowtucker as lt
from lowtucker import FileFormatError
from lowtucker.cli import main
from lowtucker.io import guards
from lowtucker.lab.bench.timing import Row, write_csv
from lowtucker.lab.video import load_video, save_gif

SHAPE, RANK = (4, 3, 2), (1, 1, 1)
A = lt.gaussian(SHAPE, 40, seed=0)
X = lt.random_tucker(SHAPE, RANK, seed=0)
RESULT = lt.recover(A, A.forward(X), RANK)


# ---- bad files ----


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (Path.write_text, (Path("ran"), "code of the file"))


def npy(shape, body=b"", descr="<f8"):
    head = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + body


def saved(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def zipped(members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def mat(*parts):
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(parts)


def kept(array):
    stream = io.BytesIO()
    scipy.io.savemat(stream, {"A": array}, do_compression=True)
    return stream.getvalue()


TERABYTE = npy((10**6, 125_000), bytes(800))
TRAPPED = saved(np.array([Trap()], dtype=object))
GOOD = saved(A.matrix)
HTML = b"<!DOCTYPE html><html><body>404</body></html>"
HUGE = struct.pack("<IIIIIIII", 14, 64, 6, 8, 6, 0, 5, 8) + struct.pack("<ii", 2**30, 2**30)
BOMB = zlib.compress(bytes(10**7))
FILES = {
    "terabyte.npy": TERABYTE,
    "overflow.npy": npy((2**62, 2**62), bytes(100)),
    "negative.npy": npy((-3, 4), bytes(100)),
    "code.npy": npy("__import__('pathlib').Path('ran').touch()", bytes(100)),
    "trapped.npy": TRAPPED,
    "pickle.npy": pickle.dumps(Trap()),
    "html.npy": HTML,
    "empty.npy": b"",
    "text.npy": b"1,2,3\n",
    "words.npy": saved(np.array(["a", "b"])),
    **{f"cut{n}.npy": GOOD[:n] for n in (4, 9, 60, 127, 128, 2000, len(GOOD) - 1)},
    "longer.npy": GOOD + b"x",
    "terabyte.npz": zipped({"A.npy": TERABYTE}),
    "trapped.npz": zipped({"A.npy": TRAPPED}),
    "trapped_meta.npz": zipped({"meta.npy": TRAPPED, "core.npy": GOOD}),
    "bomb.npz": zipped({"A.npy": saved(np.zeros(4)) + bytes(10**7)}),
    "none.npz": zipped({"a.txt": b"x"}),
    "html.npz": HTML,
    "empty.npz": b"",
    **{f"cut{n}.npz": zipped({"A.npy": GOOD})[:n] for n in (3, 30, 500, -30, -1)},
    "huge.mat": mat(HUGE, bytes(40)),
    "header.mat": mat(b"\xff" * 200),
    "bomb.mat": mat(struct.pack("<II", 15, len(BOMB)), BOMB),
    "html.mat": HTML,
    "empty.mat": b"",
    **{f"cut{n}.mat": kept(A.matrix)[:n] for n in (50, 127, 130, 140, -5)},
    "damaged73.mat": b"\x89HDF\r\n\x1a\n" + b"\xff" * 300,
    "damaged.h5": b"\x89HDF\r\n\x1a\n" + b"\xff" * 300,
    "html.h5": HTML,
    "empty.h5": b"",
    "pickle.csv": pickle.dumps(Trap()),
    "binary.csv": GOOD,
    "html.csv": HTML,
    "empty.csv": b"",
    "words.csv": b"a,b,c\nx,y,z\n",
    "ragged.csv": b"0,0,1\n0,1\n",
    "infinite.csv": b"0,0,inf\n",
    "halves.csv": b"0.5,0,1\n",
    "empty.gif": b"",
    "html.gif": HTML,
    "huge.gif": b"GIF89a" + struct.pack("<HH", 65535, 65535) + bytes(100),
    "huge.png": b"\x89PNG\r\n\x1a\n" + bytes(50),
}
ARRAYS, TABLES = (".npy", ".npz", ".mat"), (".csv",)


def run(*arguments):
    """Command that must end as bad input, without a traceback; its message as an exception."""
    done = CliRunner().invoke(main, [str(a) for a in arguments])
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    raise FileFormatError(done.stderr.removeprefix("Error: "))


def recovering(*more):
    return [
        "recover",
        "A.npy",
        "y.npy",
        "--shape",
        "4,3,2",
        "--rank",
        "1,1,1",
        "-o",
        "x.npz",
        *more,
    ]


READERS = {
    "load_array": ((*ARRAYS, ".h5"), lambda p: lt.io.load_array(p)),
    "load_array mapped": ((".npy",), lambda p: lt.io.load_array(p, mmap=True)),
    "load_array by name": (
        (".npy", ".npz", ".mat", ".h5"),
        lambda p: lt.io.load_array(p, lt.io.describe(p)[0].name),
    ),
    "load_sparse": (ARRAYS, lambda p: lt.io.load_sparse(p)),
    "load_operator": ((*ARRAYS, ".h5"), lambda p: lt.io.load_operator(p, SHAPE, order="C")),
    "stored": ((*ARRAYS, ".h5"), lambda p: lt.stored(p, SHAPE)),
    "load": (ARRAYS, lambda p: lt.load(p)),
    "load_samples": (TABLES, lambda p: lt.io.load_samples(p, 2)),
    "load_indices": (TABLES, lambda p: lt.io.load_indices(p, 3)),
    "load_video": ((*ARRAYS, ".gif"), lambda p: load_video(p)),
    "images": ((".png",), lambda p: load_video(Path(p).parent)),
    "recover A": ((*ARRAYS, ".h5"), lambda p: run("recover", p, *recovering("--order", "C")[2:])),
    "recover Y": ((*ARRAYS, ".h5"), lambda p: run("recover", "A.npy", p, *recovering()[3:])),
    "--weights": (ARRAYS, lambda p: run(*recovering("--weights", p))),
    "--start": (ARRAYS, lambda p: run(*recovering("--start", p))),
    "--truth": ((*ARRAYS, ".h5"), lambda p: run(*recovering("--truth", p))),
    "complete": (
        (*ARRAYS, *TABLES),
        lambda p: run("complete", p, "--shape", "2,2", "--rank", "1,1", "-o", "x.npz"),
    ),
    "check": (ARRAYS, lambda p: run("check", p, "--shape", "4,3,2", "--rank", "1,1,1")),
}
PAIRS = [
    (reader, name)
    for reader, (suffixes, _) in READERS.items()
    for name in FILES
    if Path(name).suffix in suffixes
    # of an archive of several arrays they ask for the name of one
    and not (name == "trapped_meta.npz" and reader in ("load_array", "load_operator", "load_video"))
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("A.npy", A.matrix)
    np.save("y.npy", A.forward(X))
    return tmp_path


def peak_of(call):
    """Peak of the bytes that a call allocates."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def warm():
    """Readers, and kinds of files, for which all is imported: that is memory as well."""
    return set()


@pytest.mark.parametrize(("reader", "name"), PAIRS, ids=[" ".join(pair) for pair in PAIRS])
def test_a_bad_file_is_refused(folder, warm, reader, name):
    if name.endswith((".h5", "73.mat")):
        pytest.importorskip("h5py")
    if name.endswith((".gif", ".png")):
        pytest.importorskip("av")
        pytest.importorskip("PIL")
    path = folder / "images" / name
    path.parent.mkdir()
    path.write_bytes(FILES[name])

    def refused():
        with pytest.raises(FileFormatError) as caught:
            READERS[reader][1](path)
        assert caught.type is FileFormatError
        assert name in str(caught.value)

    if (reader, path.suffix) not in warm:
        refused()  # imports what it needs
        warm.add((reader, path.suffix))
    assert peak_of(refused) < 4 * 10**6
    assert not (folder / "ran").exists(), "code of the file was run"
    assert not (folder / "x.npz").exists()


MISSING = {
    "a folder": (FileFormatError, "is a directory or device"),
    "nothing": (FileNotFoundError, "does not exist; check the path"),
    "no permission": (PermissionError, "is not readable; change its permissions"),
}


@pytest.mark.parametrize("what", MISSING)
@pytest.mark.parametrize(
    ("reader", "suffix"),
    [
        (reader, suffix)
        for reader, (suffixes, _) in READERS.items()
        for suffix in suffixes
        if suffix in (".npy", ".h5", ".csv") and reader not in ("images", "load_video")
    ],
)
def test_a_path_without_a_file_to_read_is_refused(folder, monkeypatch, reader, suffix, what):
    if suffix == ".h5":
        pytest.importorskip("h5py")
    path = folder / f"data{suffix}"
    if what == "a folder":
        path.mkdir()
    elif what == "no permission":
        path.write_bytes(GOOD)
        forbid(monkeypatch, path)
    error, message = MISSING[what]
    with pytest.raises((error, FileFormatError), match=message) as caught:  # a command's message
        READERS[reader][1](path)
    assert path.name in str(caught.value)


def forbid(monkeypatch, path):
    """Deny access, as for a user who is not the superuser."""
    plain = io.open

    def guarded(file, *arguments, **options):
        if not isinstance(file, int) and Path(file) == path:
            raise PermissionError(13, "Permission denied", str(file))
        return plain(file, *arguments, **options)

    monkeypatch.setattr("builtins.open", guarded)


CHILD = """
import resource, sys
import lowtucker as lt, lowtucker.io, scipy.sparse, scipy.io
def as_operator(path):
    return lt.io.load_operator(path, (4, 3, 2), order="C")

resource.setrlimit(resource.RLIMIT_AS, (2 * 10**9,) * 2)
for path in sys.argv[1:]:
    for reader in (lt.io.load_array, lt.load, lt.stored, as_operator):
        try:
            reader(path)
        except lt.FileFormatError:
            continue
        except BaseException as error:
            sys.exit(f"{path}: {error!r}")
        sys.exit(f"{path} was read")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
def test_declared_sizes_beyond_free_memory_are_refused(folder):
    names = ["terabyte.npy", "overflow.npy", "terabyte.npz", "bomb.npz", "huge.mat", "bomb.mat"]
    for name in names:
        Path(name).write_bytes(FILES[name])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *names],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# ---- archives that inflate ----


def test_an_archive_that_inflates_beyond_half_the_free_memory_needs_permission(folder, monkeypatch):
    array = np.zeros((1000, 24))
    np.savez_compressed("zeros.npz", A=array)
    np.savez("plain.npz", A=array)
    scipy.io.savemat("zeros.mat", {"A": array}, do_compression=True)
    monkeypatch.setattr(guards, "available_memory", lambda: 2 * array.nbytes)
    for name in ("zeros.npz", "plain.npz", "zeros.mat"):
        assert np.array_equal(lt.io.load_array(name), array)
    monkeypatch.setattr(guards, "available_memory", lambda: 2 * array.nbytes - 1)
    for name in ("zeros.npz", "zeros.mat"):
        with pytest.raises(FileFormatError, match=rf"inflates .*max_bytes={array.nbytes}\)"):
            lt.io.load_array(name)
        with pytest.raises(FileFormatError, match="inflates"):
            lt.io.load_operator(name, SHAPE, order="C")
        assert np.array_equal(lt.io.load_array(name, max_bytes=array.nbytes), array)
    assert np.array_equal(lt.io.load_array("plain.npz"), array)  # as large as its file


# ---- writers ----


def commanded(*options):
    def write(path, overwrite):
        extra = ["--overwrite"] if overwrite else []
        where = [str(path) if option == "FILE" else option for option in options]
        done = CliRunner().invoke(main, [*where, "-q", *extra])
        if done.exit_code in (2, 4):
            raise OSError(done.stderr)
        assert done.exit_code == 0, done.output

    return write


RECOVER = ("recover", "A.npy", "y.npy", "--shape", "4,3,2", "--rank", "1,1,1")
COMPLETE = ("complete", "full.npy", "--rank", "1,1,1")
ROW = Row("a", 1.0, "<= 2", True, "")
WRITERS = {
    "save_arrays.npz": lambda p, over: lt.io.save_arrays(p, {"a": np.ones(9)}, overwrite=over),
    "save_samples.csv": lambda p, over: lt.io.save_samples(p, [[0, 1]], [1.0], overwrite=over),
    "save.npz": lambda p, over: RESULT.save(p, overwrite=over),
    "recover.npz": commanded(*RECOVER, "-o", "FILE"),
    "recover.npy": commanded(*RECOVER, "-o", "FILE"),
    "recover.mat": commanded(*RECOVER, "-o", "FILE"),
    "plot.png": commanded(*RECOVER, "-o", "other.npz", "--plot", "FILE"),
    "plot.svg": commanded(*RECOVER, "-o", "other.npz", "--plot", "FILE"),
    "complete.npy": commanded(*COMPLETE, "-o", "FILE"),
    "predict.csv": commanded(*COMPLETE, "-o", "other.npz", "--predict", "cells.csv", "FILE"),
}
# They overwrite existing files, as documented
REPLACERS = {
    "save_gif.gif": lambda p, _: save_gif(p, np.ones((2, 2, 2))),
    "write_csv.csv": lambda p, _: write_csv([ROW], p),
}


@pytest.fixture
def ready(folder):
    np.save("full.npy", X.full())
    Path("cells.csv").write_text("0,0,0\n")
    return folder


def writing(name):
    """Writer of a name; what it needs may not be installed."""
    if name.startswith("plot"):
        pytest.importorskip("matplotlib")
    if name.endswith(".gif"):
        pytest.importorskip("av")
    return (WRITERS | REPLACERS)[name]


def left_behind(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_overwritten_unless_requested(ready, name):
    write, path = writing(name), ready / name
    path.write_text("mine")
    with pytest.raises(OSError, match=f"{name} exists"):
        write(path, False)
    assert path.read_text() == "mine"
    assert not (ready / "other.npz").exists(), "work was done before the refusal"
    write(path, True)
    assert path.read_bytes() != b"mine"
    assert left_behind(ready) == []


@pytest.mark.parametrize("name", WRITERS)
def test_a_dangling_link_is_not_overwritten_unless_requested(ready, name):
    write, path = writing(name), ready / name
    path.symlink_to(ready / "elsewhere")
    with pytest.raises(OSError, match=f"{name} exists"):
        write(path, False)
    write(path, True)
    assert path.is_symlink()  # what it points to was written
    assert (ready / "elsewhere").stat().st_size > 10


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_is_never_replaced(ready, name):
    write, path = writing(name), ready / name
    path.mkdir()
    with pytest.raises(OSError, match=f"{name} is a folder"):
        write(path, True)
    assert left_behind(ready) == []


class Full:
    """A file on a disk that is full after some bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


def fill(monkeypatch, room):
    def opened(*how):
        return Full(open(*how), room)

    monkeypatch.setattr(guards, "open", opened, raising=False)


def fails(*_):
    raise OSError(5, "Input/output error")


BREAKS = {
    "full at once": lambda patch: fill(patch, 0),
    "full after 10 bytes": lambda patch: fill(patch, 10),
    "not flushed": lambda patch: patch.setattr(os, "fsync", fails),
    "not renamed": lambda patch: patch.setattr(os, "replace", fails),
}


@pytest.mark.parametrize("how", BREAKS)
@pytest.mark.parametrize("name", [*WRITERS, *REPLACERS])
def test_interrupted_writing_leaves_the_old_file(ready, monkeypatch, name, how):
    write, path = writing(name), ready / name
    path.write_text("mine")
    BREAKS[how](monkeypatch)
    with pytest.raises(OSError, match="No space left" if "full" in how else "Input/output error"):
        write(path, True)
    assert path.read_text() == "mine"
    assert left_behind(ready) == []


@pytest.mark.parametrize("name", [*WRITERS, *REPLACERS])
def test_interrupted_writing_leaves_no_partial_file(ready, monkeypatch, name):
    write, path = writing(name), ready / name
    fill(monkeypatch, 10)
    with pytest.raises(OSError, match="No space left on device"):
        write(path, False)
    assert not path.exists()
    assert left_behind(ready) == []


def test_an_interrupt_while_writing_leaves_the_old_file(ready, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    path = ready / "a.npz"
    path.write_text("mine")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lt.io.save_arrays(path, {"a": 1.0}, overwrite=True)
    assert path.read_text() == "mine"
    assert left_behind(ready) == []


def test_an_unwritable_folder_is_named(ready, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"a\.npz cannot be written: No such file.*no"):
        lt.io.save_arrays(ready / "no" / "a.npz", {"a": 1.0})

    def forbidden(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", forbidden)
    with pytest.raises(guards.WriteError, match=r"a\.npz cannot be written: Permission denied"):
        lt.io.save_arrays(ready / "a.npz", {"a": 1.0})


def test_numpy_matlab_and_the_package_read_what_was_written(ready):
    for name in ("recover.npz", "recover.npy", "recover.mat", "predict.csv"):
        WRITERS[name](ready / name, False)
        (ready / "other.npz").unlink(missing_ok=True)
    full = X.full()
    assert np.allclose(np.load("recover.npy"), full, atol=1e-4)
    assert np.allclose(scipy.io.loadmat("recover.mat")["X"], full, atol=1e-4)
    assert np.allclose(lt.load("recover.npz").X.full(), full, atol=1e-4)
    assert np.allclose(lt.io.load_samples("predict.csv")[1], full[0, 0, 0], atol=1e-4)


# ---- archives list their members ----


def stream_file(path):
    online = lt.Online(SHAPE, RANK)
    online.update(A, A.forward(X))
    online.save(path)


ARCHIVES = {"result": (RESULT.save, lt.load), "stream": (stream_file, lt.Online.load)}


@pytest.mark.parametrize("how", ["renamed", "missing", "surplus", "twice"])
@pytest.mark.parametrize("kind", ARCHIVES)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_holds_just_the_arrays_that_it_lists(folder, kind, how):
    save, read = ARCHIVES[kind]
    save("whole.npz")
    with zipfile.ZipFile("whole.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for victim in set(members) - {"meta.npy"}:
        with zipfile.ZipFile("changed.npz", "w") as archive:
            for name, data in members.items():
                if name != victim or how in ("surplus", "twice"):
                    archive.writestr(name, data)
            if how in ("renamed", "surplus"):
                archive.writestr(f"other.{victim}", members[victim])
            if how == "twice":
                archive.writestr(victim, members[victim])
        words = {"surplus": "1 arrays do not belong to it", "twice": "two members of one name"}
        expected = words.get(how, rf"1 of its \d+ arrays are missing: {victim[:-4]}")
        with pytest.raises(FileFormatError, match=rf"changed\.npz .*{expected}"):
            read("changed.npz")


def test_damage_in_the_directory_of_a_result_never_changes_it(folder):
    RESULT.save("whole.npz")
    data = Path("whole.npz").read_bytes()
    end = data.rindex(b"PK\x05\x06")
    (begin,) = struct.unpack_from("<I", data, end + 16)
    wanted = {name: column.tolist() for name, column in lt.load("whole.npz").history.items()}
    refused = 0
    for at in range(begin, len(data), 3):
        Path("bad.npz").write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        try:
            result = lt.load("bad.npz")
        except FileFormatError:
            refused += 1
            continue
        assert {name: column.tolist() for name, column in result.history.items()} == wanted
        assert np.array_equal(result.X.full(), RESULT.X.full())
    assert refused > 150
