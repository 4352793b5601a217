"""``lowtucker stream``: files that grow, pipes, checkpoints, and lines that are no samples."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker._array.errors import FileFormatError
from lowtucker.cli.main import main
from lowtucker.io.lines import SampleLines
from lowtucker.run.lock import FileLock

SHAPE, RANK = (9, 8, 7), (2, 2, 2)
OPTIONS = ["--shape", "9,8,7", "--rank", "2,2,2"]
X_TRUE = lt.random_tucker(SHAPE, RANK, seed=0)


def samples(n, seed=0):
    rng = np.random.default_rng(seed)
    index = np.stack([rng.integers(0, k, n) for k in SHAPE], axis=1)
    return index, X_TRUE.entries(index) + 1e-4 * rng.standard_normal(n)


def lines(n, seed=0):
    pairs = zip(*samples(n, seed), strict=True)
    return "".join(f"{i},{j},{k},{float(v)!r}\n" for (i, j, k), v in pairs)


def stream(*arguments, text=None):
    return CliRunner().invoke(main, ["stream", *map(str, arguments)], input=text)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "samples.csv"
    path.write_text("i1,i2,i3,value\n" + lines(700))
    return path


def test_a_file_is_used_sample_by_sample(tmp_path, table):
    done = stream(table, *OPTIONS, "-o", tmp_path / "X.npz", "--block", 50, "--every", 0)
    assert done.exit_code == 0, done.output
    result = lt.load(tmp_path / "X.npz")
    assert result.m == 700
    assert lt.metrics.relative_error(result.X, X_TRUE) < 0.01
    reports = done.stderr.splitlines()
    assert reports[0].startswith("50 samples, ")
    assert "not enough for the rank yet, at least" in reports[0]
    assert "error about" in reports[-1]
    online = lt.Online(SHAPE, RANK)
    for start in range(0, 700, 50):
        index, values = samples(700)
        online.update_entries(index[start : start + 50], values[start : start + 50])
    np.testing.assert_array_equal(result.X.core, online.X.core)


def test_a_pipe_is_read_to_its_end(tmp_path):
    done = stream("-", *OPTIONS, "-o", tmp_path / "X.npy", text=lines(700))
    assert done.exit_code == 0, done.output
    assert lt.metrics.relative_error(np.load(tmp_path / "X.npy"), X_TRUE.full()) < 0.01


def test_samples_of_a_pipe_are_new(tmp_path):
    out, kept = tmp_path / "X.npz", tmp_path / "kept.npz"
    for k in range(2):
        done = stream("-", *OPTIONS, "-o", out, "--checkpoint", kept, text=lines(300, seed=k))
        assert done.exit_code == 0, done.output
        assert lt.load(out).m == 300 * (k + 1)


def test_too_few_samples_are_not_recovered(tmp_path):
    done = stream("-", *OPTIONS, "-o", tmp_path / "X.npz", text=lines(40))
    assert done.exit_code == 3, done.output
    assert "needs about" in done.output


def test_a_checkpoint_that_another_stream_has_is_refused(tmp_path, table):
    kept, out = tmp_path / "s.npz", tmp_path / "X.npz"
    held = FileLock(kept, "checkpoint")
    try:
        refused = stream(table, *OPTIONS, "-o", out, "--checkpoint", kept)
        assert refused.exit_code == 2
        assert "is in use by process" in refused.stderr
        assert not out.exists()
    finally:
        held.release()
    for _ in range(2):  # each releases it
        assert stream(table, *OPTIONS, "-o", out, "--checkpoint", kept).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} >= {"s.npz", "X.npz"}
    assert not list(tmp_path.glob("*.lock"))


def test_a_checkpoint_resumes_after_the_samples_that_were_used(tmp_path, table):
    whole = tmp_path / "whole.npz"
    stream(table, *OPTIONS, "-o", whole, "--block", 100)
    text = table.read_text().splitlines(keepends=True)
    table.write_text("".join(text[:401]))
    out, kept = tmp_path / "X.npz", tmp_path / "kept.npz"
    first = stream(table, *OPTIONS, "-o", out, "--checkpoint", kept, "--block", 100)
    assert first.exit_code == 0, first.output
    assert lt.load(out).m == 400
    table.write_text("".join(text))
    again = stream(table, *OPTIONS, "-o", out, "--checkpoint", kept, "--block", 100)
    assert again.exit_code == 0, again.output
    np.testing.assert_array_equal(lt.load(out).X.core, lt.load(whole).X.core)
    other = stream(table, *OPTIONS, "-o", out, "--checkpoint", kept, "--memory", 300)
    assert other.exit_code == 2
    assert "memory None, not of" in other.stderr
    table.write_text("".join(text[:100]))
    shorter = stream(table, *OPTIONS, "-o", out, "--checkpoint", kept)
    assert "samples fewer than the checkpoint has used" in shorter.stderr


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("1,2,x,3", "line 3: '1,2,x,3' is not made of numbers"),
        ("1,2,3", "line 3: 3 columns"),
        (
            "1,2,7,0.5",
            "line 3: the index 7 in column 3, not from 0 to 6. Subtract 1 if yours count",
        ),
        ("1;2;3;0,5", "line 3: 2 columns in '1;2;3;0,5' (write 0.5 for 0,5)"),
        ("1,-2,3,0.5", "line 3: the index -2 in column 2"),
        ("1,2.5,3,0.5", "line 3: the index 2.5 in column 2"),
        ("1,2,3,nan", "line 3: the value nan; omit unknown entries"),
    ],
)
def test_a_line_that_is_no_sample_is_named(tmp_path, line, text):
    given = f"# a comment\n0,0,0,1.0\n{line}\n0,0,0,1.0\n"
    kept = tmp_path / "kept.npz"
    done = stream("-", *OPTIONS, "-o", tmp_path / "X.npz", "--checkpoint", kept, text=given)
    assert done.exit_code == 2
    assert text in done.stderr
    assert lt.Online.load(kept).m == 1  # what came before is not lost


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["missing.csv", *OPTIONS], "does not exist"),
        (["-", "--shape", "9,8,7", "--rank", "10,2,2"], "rank"),
        (["-", *OPTIONS, "--memory", "3"], "memory must be at least"),
        (["-", *OPTIONS], "has no samples"),
    ],
)
def test_bad_input(tmp_path, arguments, text):
    done = stream(*arguments, "-o", tmp_path / "X.npz", text="")
    assert done.exit_code == 2
    assert text in done.stderr
    assert "Traceback" not in done.output


def test_a_file_that_grows_is_followed_until_ctrl_c(tmp_path):
    path, out = tmp_path / "growing.csv", tmp_path / "X.npz"
    text = lines(700)
    path.write_text(text[:2000])
    code = "from lowtucker.cli.main import main; main()"
    command = [sys.executable, "-c", code, "stream", str(path), *OPTIONS, "-o", str(out),
               "--follow", "--every", "0"]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert "samples" in process.stderr.readline()  # it has begun, and has come to the end
        with path.open("a") as file:
            file.write(text[2000:])
        for said in process.stderr:
            if said.startswith("700 samples"):
                break
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert lt.load(out).m == 700


def in_a_process(arguments, **settings):
    code = "from lowtucker.cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "stream", *map(str, arguments)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, **settings,
    )  # fmt: skip


def test_the_end_of_the_standard_input_ends_a_stream_that_is_followed(tmp_path):
    """The last line has no end."""
    out = tmp_path / "X.npz"
    text = lines(300).rstrip("\n")
    with in_a_process(["-", *OPTIONS, "-o", out, "--follow"], stdin=subprocess.PIPE) as process:
        output = process.communicate(text, timeout=60)
    assert process.returncode == 0, output
    assert lt.load(out).m == 300


def test_a_standard_input_that_is_closed(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ValueError, match="the standard input is closed"):
        SampleLines(Path("-"), SHAPE)


@pytest.mark.parametrize("what", ["deleted", "replaced", "truncated"])
def test_a_file_that_is_lost_ends_the_stream_with_its_result(what, tmp_path, table):
    out = tmp_path / "X.npz"
    with in_a_process([table, *OPTIONS, "-o", out, "--follow", "--every", "0"]) as process:
        assert process.stderr is not None
        assert "700 samples" in process.stderr.readline()
        if what == "truncated":
            os.truncate(table, 10)
        elif what == "deleted":
            table.unlink()
        else:
            other = tmp_path / "other.csv"
            other.write_text(lines(900))
            other.rename(table)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"{table} was {what} while" in said
    assert "Traceback" not in said
    assert lt.load(out).m == 700


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_lines_that_end_with_cr_alone(tmp_path, follow):
    path = tmp_path / "mac.csv"
    path.write_bytes(lines(50).replace("\n", "\r").encode())
    done = stream(path, *OPTIONS, "-o", tmp_path / "X.npz", *follow)
    assert done.exit_code == 2
    assert "lines that end with CR alone (convert them: tr" in done.stderr


def test_half_a_line_is_left_for_later(tmp_path):
    path = tmp_path / "growing.csv"
    path.write_text("1 2 3 0.5\n4 5 6 0.")
    with SampleLines(path, SHAPE) as reader:
        index, values = reader.read(10)
        assert (index.tolist(), values.tolist()) == ([[1, 2, 3]], [0.5])
        assert not len(reader.read(10)[1])
        with path.open("a") as file:
            file.write("25\n")
        index, values = reader.read(10)
        assert (index.tolist(), values.tolist()) == ([[4, 5, 6]], [0.25])
        path.write_text("1")
        with pytest.raises(FileFormatError, match="was truncated while"):
            reader.read(10)


def test_samples_before_a_bad_line_are_returned_first(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("1;2;3;0.5\nno\n")
    with SampleLines(path, SHAPE) as reader:
        assert len(reader.read(10)[1]) == 1
        for _ in range(2):
            with pytest.raises(FileFormatError, match="line 2"):
                reader.read(10)
