"""``lowtucker check`` on files."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.io import savemat

from lowtucker.cli import main

MATRIX = np.random.default_rng(0).standard_normal((100, 150))


def run(*arguments):
    return CliRunner().invoke(main, ["check", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "A.npy", MATRIX)
    np.save(tmp_path / "few.npy", MATRIX[:15])
    np.save(tmp_path / "tensors.npy", MATRIX.reshape(100, 5, 5, 6))
    savemat(tmp_path / "A.mat", {"A": MATRIX})
    return tmp_path


def test_good_measurements(folder):
    done = run(folder / "A.npy", "--shape", "5,5,6", "--rank", "1,2,2", "--starts", 1)
    assert done.exit_code == 0, done.output
    last = done.stdout.splitlines()[-1]
    assert last == "These measurements can determine a tensor of rank (1, 2, 2)."
    assert "delta >=" in done.stdout
    assert "certified by witnesses" in done.stdout
    assert "the tangent design has full rank" in done.stdout


def test_bad_measurements_exit_with_3(folder):
    done = run(folder / "few.npy", "--shape", "5,5,6", "--rank", "1,2,2", "--starts", 1)
    assert done.exit_code == 3
    assert "These measurements are not sufficient: 15 equations for 22" in done.stdout


def test_shape_is_read_from_the_file_and_block_size_from_the_option(folder):
    done = run(folder / "tensors.npy", "--rank", "1,2,2", "--block-size", 25, "--starts", 1)
    assert done.exit_code == 0, done.output
    assert "4 blocks of 25 rows" in done.stdout


def test_matlab_files_need_an_order(folder):
    done = run(folder / "A.mat", "--shape", "5,5,6", "--rank", "1,2,2")
    assert done.exit_code == 2
    assert "--order [C|F]" in done.stderr
    done = run(
        folder / "A.mat", "--shape", "5,5,6", "--rank", "1,2,2", "--order", "F", "--starts", 1
    )
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["A.npy", "--rank", "1,2,2"], "--shape N1,N2"),
        (["A.npy", "--shape", "5,5,7", "--rank", "1,2,2"], "tensors of shape (5, 5, 7) have 175"),
        (["A.npy", "--shape", "5,5,6", "--rank", "1,2"], "rank must have one entry per mode"),
        (["A.npy", "--shape", "5,5,6", "--rank", "9,2,2"], "rank[0] = 9"),
        (["A.npy", "--shape", "5,5,6"], "--rank N1,N2"),
        (["A.npy", "--shape", "5,5,6", "--rank", "1,2,2", "--block-size", "101"], "blocks must be"),
        (["none.npy", "--shape", "5,5,6", "--rank", "1,2,2"], "none.npy does not exist"),
    ],
)
def test_bad_input_prints_one_line(folder, arguments, message):
    done = run(folder / arguments[0], *arguments[1:])
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
