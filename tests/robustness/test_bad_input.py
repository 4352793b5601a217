"""Malformed calls are refused before any work; the message names the argument and helps.

The calls are in tests/bad_calls. What is a warning or a status instead: test_not_refused.py.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from click.testing import CliRunner

import lowtucker as lt
from bad_calls import (
    commands,
    files,
    formats,
    operators,
    problems,
    recovery,
    samplers,
    setting,
    solvers,
    streams,
    tensors,
    theory,
)
from lowtucker.cli import main

PACKAGE = str(Path(lt.__file__).parent)
AREAS = [recovery, problems, operators, solvers, samplers, tensors, formats, theory, streams, files]
CALLS = [
    pytest.param(*row, id=f"{area.__name__.split('.')[-1]}-{k}-{row[2][:24]}")
    for area in AREAS
    for k, row in enumerate(area.ROWS)
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    A = setting.A.matrix
    np.save(folder / "A.npy", A)
    np.save(folder / "y.npy", setting.y)
    np.save(folder / "holes.npy", setting.HOLES)
    np.save(folder / "text.npy", np.array(["a"]))
    np.save(folder / "bad.npy", setting.bad(A))
    np.savez(folder / "two.npz", a=1.0, b=2.0)
    scipy.sparse.save_npz(folder / "sparse.npz", scipy.sparse.csr_array(A))
    scipy.io.savemat(folder / "A.mat", {"A": A})
    (folder / "s.csv").write_text("i1,i2,i3,value\n0,0,0,1\n")
    (folder / "cells.csv").write_text("0,0,9\n")
    for name in ("old.npz", "old.csv", "old.png"):
        (folder / name).write_text("mine")
    return folder


@pytest.fixture
def folder(made, monkeypatch):
    """The working directory, in which a refused call changes nothing."""
    monkeypatch.chdir(made)
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    yield made
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before


def pattern(text):
    return ".*".join(re.escape(part) for part in text.split(" ... "))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("call", "exception", "text"), CALLS)
def test_a_malformed_call_is_refused(call, exception, text):
    with pytest.raises(exception) as caught:
        call()
    message = str(caught.value)
    # LinAlgError is a ValueError too, but comes from the middle of a computation
    own = caught.type.__module__.startswith("lowtucker")
    assert caught.type is exception or own, caught.type
    assert re.match(pattern(text), message, re.DOTALL), message
    innermost = traceback.extract_tb(caught.tb)[-1]
    assert innermost.filename.startswith(PACKAGE), "the message is not the package's"


def test_there_are_enough_rows():
    assert len(CALLS) >= 1150
    assert all(row.values[2] for row in CALLS)


# ---- the command line ----


@pytest.mark.parametrize(
    ("arguments", "message"), commands.ROWS, ids=[message[:30] for _, message in commands.ROWS]
)
def test_a_malformed_command_is_refused(folder, arguments, message):
    done = CliRunner().invoke(main, [part.format(folder.name) for part in arguments])
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OverflowError(34, "Numerical result out of range"), "Bring A and y to moderate sizes"),
        (np.linalg.LinAlgError("SVD did not converge"), "Bring A and y to moderate sizes"),
        (ZeroDivisionError("division by zero"), "Bring A and y to moderate sizes"),
        (MemoryError("8 GB"), "there is not enough memory (8 GB)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_numerical_failure_prints_one_line(folder, monkeypatch, error, message):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(lt, "recover", fails)
    done = CliRunner().invoke(main, [*commands.RECOVER_FILES, "-o", "x.npz", "-q"])
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.output
    done = CliRunner().invoke(main, ["--traceback", *commands.RECOVER_FILES, "-o", "x.npz", "-q"])
    assert done.exception is error
