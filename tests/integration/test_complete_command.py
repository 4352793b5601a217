"""The command ``lowtucker complete``, as used by scripts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli import main
from lowtucker.io import guards
from lowtucker.labels import as_data
from lowtucker.recovery import completion
from runs import interrupted

SHAPE, RANK = (9, 8, 7), (2, 2, 2)
X = lt.random_tucker(SHAPE, RANK, seed=0).full()
HOLES = np.random.default_rng(0).random(SHAPE) < 0.5
KNOWN = np.argwhere(~HOLES)
CELLS = np.array([[0, 0, 0], [8, 7, 6], [4, 0, 3]])
TABLE = ["complete", "samples.csv", "--shape", "9,8,7", "--rank", "2,2,2"]
ARRAY = ["complete", "holes.npy", "--rank", "2,2,2"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lt.io.save_samples("samples.csv", KNOWN, X[~HOLES])
    np.savetxt("cells.csv", CELLS, fmt="%d", delimiter=",", header="i,j,k", comments="")
    np.save("holes.npy", np.where(HOLES, np.nan, X))
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def close(found):
    np.testing.assert_allclose(found, X, rtol=0, atol=1e-5 * abs(X).max())


def test_complete_from_a_table(folder):
    done = run(*TABLE, "-o", "X.npz", "--predict", "cells.csv", "out.csv", "--plot", "run.png")
    assert done.exit_code == 0, done.output
    result = lt.load("X.npz")
    close(result.X.full())
    assert result.m == len(KNOWN)
    assert "Result: recovered" in done.stdout
    assert f"held out  {result.held_out:.1e}, the error on held-out samples" in done.stdout
    assert "written   X.npz, run.png, out.csv" in done.stdout
    assert (folder / "run.png").stat().st_size > 1000
    indices, values = lt.io.load_samples("out.csv", 3)
    np.testing.assert_array_equal(indices, CELLS)
    np.testing.assert_array_equal(values, result.X.entries(CELLS))  # to the bit
    np.testing.assert_allclose(values, X[tuple(CELLS.T)], atol=1e-5 * abs(X).max())


@pytest.mark.parametrize(("name", "mark"), [("s.TSV", "\t"), ("s.txt", " "), ("s.csv", ";")])
def test_other_tables(folder, name, mark):
    rows = np.column_stack([KNOWN, X[~HOLES]])
    np.savetxt(name, rows, delimiter=mark, fmt=["%d"] * 3 + ["%.17g"], newline="\r\n")
    assert run("complete", name, *TABLE[2:], "-o", "X.npy", "-q").exit_code == 0
    close(np.load("X.npy"))


def test_arrays_with_missing_entries(folder):
    holes = np.load("holes.npy")
    np.savez("several.npz", other=np.ones(3), mine=holes)
    np.savez("one.npz", mine=holes)
    scipy.io.savemat("both.mat", {"mine": holes, "other": 1.0})
    for file, *options in (
        ["holes.npy"],
        ["holes.npy", "--shape", "9,8,7"],
        ["one.npz"],
        ["several.npz", "--name", "mine"],
        ["both.mat", "--name", "mine"],
    ):
        output = f"{len(list(folder.iterdir()))}.npy"
        done = run("complete", file, "--rank", "2,2,2", "-o", output, "-q", *options)
        assert (done.exit_code, done.output) == (0, ""), file
        close(np.load(output))


def test_full_tensor_for_matlab(folder):
    assert run(*ARRAY, "-o", "X.mat", "-q").exit_code == 0
    close(scipy.io.loadmat("X.mat")["X"])


def test_unknown_rank(folder):
    done = run(*ARRAY[:-1], "auto", "--max-rank", "3,3,3", "-o", "X.npz")
    assert done.exit_code == 0, done.output
    assert "Rank (2, 2, 2) was found" in " ".join(done.stdout.split())
    assert lt.load("X.npz").rank == RANK


def nearly_of_low_rank():
    grid = np.linspace(0, 1, 9)
    smooth = np.exp(-8 * np.abs(grid[:, None, None] - grid[None, :, None]) ** 1.5 - grid[:7])
    return smooth + 0.05 * np.random.default_rng(1).standard_normal(smooth.shape)


def test_no_rank_at_all(folder, monkeypatch):
    array = nearly_of_low_rank()
    hidden = np.random.default_rng(2).random(array.shape) < 0.4
    np.save("real.npy", np.where(hidden, np.nan, array))
    written = ["-o", "X.npz", "--plot", "X.png", "--predict", "cells.csv", "out.csv"]
    done = run("complete", "real.npy", *written)
    assert done.exit_code == 0, done.output
    result = lt.load("X.npz")
    assert result.rank is None
    text = " ".join(done.stdout.split())
    assert f"shape (9, 9, 7), {float(result.X.effective):.1f} effective degrees of freedom" in text
    assert "per effective degree of freedom" in text
    assert (folder / "X.png").stat().st_size > 1000
    _, values = lt.io.load_samples("out.csv", 3)
    np.testing.assert_array_equal(values, result.X.full()[tuple(CELLS.T)])
    kept = replace(result, data=as_data(np.load("real.npy")))
    monkeypatch.setattr(lt, "complete", lambda *_, **__: kept)
    for name in ("Y.npy", "Y.mat"):
        assert run("complete", "real.npy", "-o", name, "-q").exit_code == 0
    filled = np.where(hidden, result.X.full(), array)  # known entries are kept
    np.testing.assert_array_equal(np.load("Y.npy"), filled, strict=True)
    np.testing.assert_array_equal(scipy.io.loadmat("Y.mat")["X"], filled, strict=True)


def test_a_table_with_labels_becomes_an_array(folder):
    rows = ["station,hour,kind,count"]
    rows += [
        f"{station},{hour},{kind},{(i + 1) * (j + 2) * (k + 1) + 0.01 * (i * j - k)}"
        for i, station in enumerate("ABCDE")
        for j, hour in enumerate((6, 12, 18, 24))
        for k, kind in enumerate("xyz")
        if (i + j + k) % 5
    ]
    Path("counts.csv").write_text("\n".join(rows))
    assert run("complete", "counts.csv", "-o", "counts.npy", "-q").exit_code == 0
    array = np.load("counts.npy")
    assert array.shape == (5, 4, 3)
    assert array[1, 2, 0] == 8.02  # as given
    assert array[0, 0, 0] == pytest.approx(2, rel=0.1)  # not given


def test_time_limit_of_the_whole_command(folder, ticks):
    done = run("complete", "holes.npy", "-o", "X.npz", "--max-seconds", "20")
    assert done.exit_code == 3
    assert ticks.monotonic() < 25
    text = " ".join(done.stdout.split())
    assert "status MAX_SECONDS" in text
    assert "The time limit of 20 s was reached. Not finished:" in text
    assert lt.load("X.npz").status is lt.Status.MAX_SECONDS


def test_no_samples_held_out(folder):
    done = run(*TABLE, "-o", "X.npz", "--held-out", "0")
    assert done.exit_code == 0
    assert "held out" not in done.stdout
    assert lt.load("X.npz").held_out is None


def test_options_are_passed_on(folder, monkeypatch):
    given = []

    def complete(values, rank, **settings):
        given.append(settings)
        return completion.complete(values, rank, **settings)

    monkeypatch.setattr(lt, "complete", complete)
    options = {
        "held_out": 0.3, "solver": "rgn", "tol": 1e-4, "max_epochs": 30, "max_seconds": 100.0,
        "noise_std": 1e-6, "loss": "huber", "seed": 5,
    }  # fmt: skip
    words = [w for k, v in options.items() for w in ("--" + k.replace("_", "-"), v)]
    done = run(*TABLE, "-o", "X.npz", "-q", *words)
    assert done.exit_code == 0, done.output
    assert given[0].items() >= options.items()
    expected = completion.complete(X[~HOLES], RANK, indices=KNOWN, shape=SHAPE, **options)
    result = lt.load("X.npz")
    np.testing.assert_array_equal(result.X.full(), expected.X.full())
    assert result.held_out == expected.held_out
    np.testing.assert_array_equal(result.weights, expected.weights)
    assert run(*TABLE, "-o", "Y.npz", "-q").exit_code == 0
    usual = {"held_out": 0.1, "solver": "auto", "tol": 1e-6, "max_epochs": 500, "max_seconds": None,
             "noise_std": None, "loss": "squared", "seed": 0}  # fmt: skip
    assert given[1].items() >= usual.items()


def test_quiet_prints_nothing(folder):
    done = run(*TABLE, "-o", "X.npz", "-q", "--predict", "cells.csv", "out.csv")
    assert (done.exit_code, done.output) == (0, "")
    assert (folder / "out.csv").exists()


def test_failed_recovery_is_written_and_exits_with_3(folder):
    done = run(*TABLE[:-1], "1,1,1", "-o", "X.npz", "--predict", "cells.csv", "out.csv")
    assert done.exit_code == 3
    assert "not recovered" in done.stdout
    assert "RANK_TOO_SMALL" in done.stdout
    assert lt.load("X.npz").status is lt.Status.RANK_TOO_SMALL
    assert len(lt.io.load_samples("out.csv")[1]) == len(CELLS)


def test_slices_without_samples_print_one_warning(folder):
    keep = KNOWN[:, 1] != 3
    lt.io.save_samples("fewer.csv", KNOWN[keep], X[~HOLES][keep])
    done = run("complete", "fewer.csv", *TABLE[2:], "-o", "X.npz", "-q")
    assert done.exit_code == 3
    assert done.stderr.count("Mode 1 has no samples in slice 3") == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("UnderdeterminedWarning: ")


def test_overwrite(folder):
    options = ["-o", "X.npz", "--predict", "cells.csv", "out.csv", "-q"]
    for name in ("X.npz", "out.csv"):
        (folder / name).write_text("mine")
        done = run(*TABLE, *options)
        assert done.exit_code == 2
        assert f"output {name} exists. Give another name, or --overwrite." in done.stderr
        assert (folder / name).read_text() == "mine"
        done = run(*TABLE, *options, "--overwrite")
        assert done.exit_code == 0, done.output
        close(lt.load("X.npz").X.full())
        assert len(lt.io.load_samples("out.csv")[1]) == len(CELLS)
        for made in ("X.npz", "out.csv"):
            (folder / made).unlink()
    before = (folder / "holes.npy").read_bytes()
    done = run(*ARRAY, "-o", "holes.npy", "-q", "--overwrite")
    assert done.exit_code == 2
    assert "output holes.npy is an input, which is never replaced" in done.stderr
    assert (folder / "holes.npy").read_bytes() == before


BAD = [
    (["complete", "none.csv", *TABLE[2:], "-o", "x.npz"], "none.csv does not exist"),
    (["complete", "none.npy", *ARRAY[2:], "-o", "x.npz"], "none.npy does not exist"),
    (["complete", "holes.dat", *ARRAY[2:], "-o", "x.npz"], "has the suffix '.dat'"),
    (["complete", "page.csv", *TABLE[2:], "-o", "x.npz"], "is an HTML page"),
    (["complete", "page.npy", *ARRAY[2:], "-o", "x.npz"], "is an HTML page"),
    (["complete", "two.npz", *ARRAY[2:], "-o", "x.npz"], "give the name of one of: a (9, 8, 7), b"),
    (["complete", "nan.npy", *ARRAY[2:], "-o", "x.npz"], "nothing but NaN"),
    (["complete", "inf.npy", *ARRAY[2:], "-o", "x.npz"], "infinite at (0, 0, 0)"),
    (["complete", "number.npy", *ARRAY[2:], "-o", "x.npz"], "values must be a tensor with entries"),
    ([*TABLE[:3], "9,8", *TABLE[4:], "-o", "x.npz"], "has 4 columns; expected 3"),
    ([*TABLE[:3], "9,8,6", *TABLE[4:], "-o", "x.npz"], "= 6 must be between 0 and 5"),
    ([*TABLE[:3], "9,8,0", *TABLE[4:], "-o", "x.npz"], "shape must be a tuple of positive"),
    ([*TABLE[:3], "-9,8,7", *TABLE[4:], "-o", "x.npz"], "shape must be a tuple of positive"),
    ([*TABLE[:3], "9x8x7", *TABLE[4:], "-o", "x.npz"], "not a list of integers such as 30,30,10"),
    ([*ARRAY, "--shape", "9,8,6", "-o", "x.npz"], "the shape (9, 8, 7), not --shape 9,8,6"),
    ([*TABLE[:-2], "-o", "x.npz", "--solver", "als"], "--rank is needed with these"),
    (TABLE, "-o, --output PATH"),
    ([*TABLE[:-1], "2,2", "-o", "x.npz"], "rank must have one entry per mode"),
    ([*TABLE[:-1], "2,2,8", "-o", "x.npz"], "rank[2] = 8 must be between 1 and 7"),
    ([*TABLE, "--max-rank", "3,3,3", "-o", "x.npz"], "--max-rank belongs to --rank auto"),
    ([*TABLE, "--held-out", "1", "-o", "x.npz"], "1.0 is not in the range 0<=x<1"),
    ([*TABLE, "--held-out", "-0.1", "-o", "x.npz"], "-0.1 is not in the range 0<=x<1"),
    ([*TABLE, "--held-out", "nan", "-o", "x.npz"], "--held-out must be a finite number"),
    ([*TABLE, "--solver", "tiht", "-o", "x.npz"], "'tiht' is not one of"),
    ([*TABLE, "--loss", "cauchy", "-o", "x.npz"], "'cauchy' is not one of"),
    ([*TABLE, "--seed", "-1", "-o", "x.npz"], "-1 is not in the range x>=0"),
    ([*TABLE, "-o", "x.csv"], "x.csv would be a table, and the data have no labels. Try -o x.npz"),
    ([*TABLE, "-o", "none/x.npz"], "none is not a folder"),
    ([*TABLE, "-o", "x.npz", "--plot", "x.xyz"], "plot must be an image file such as x.png"),
    ([*TABLE, "-o", "x.npz", "--plot", "none/x.png"], "none is not a folder"),
    ([*TABLE, "-o", "x.npz", "--predict", "none.csv", "p.csv"], "none.csv does not exist"),
    ([*TABLE, "-o", "x.npz", "--predict", "cells.csv", "none/p.csv"], "none is not a folder"),
    ([*TABLE, "-o", "x.npz", "--predict", "cells.csv", "cells.csv"], "output cells.csv exists"),
    ([*TABLE, "-o", "x.npz", "--predict", "samples.csv", "p.csv"], "has 4 columns; expected 3"),
    ([*TABLE, "-o", "x.npz", "--predict", "far.csv", "p.csv"], "[0, 1] = 8 must be between 0 and"),
    ([*ARRAY, "-o", "x.npz", "--predict", "far.csv", "p.csv"], "[0, 1] = 8 must be between 0 and"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda v: str(v)[-45:])
def test_bad_input_prints_one_line_and_exits_with_2(folder, arguments, message):
    for name in ("page.csv", "page.npy"):
        (folder / name).write_text("<html></html>")
    (folder / "holes.dat").write_bytes((folder / "holes.npy").read_bytes())
    (folder / "far.csv").write_text("0,8,0\n")
    np.savez("two.npz", a=X, b=X)
    np.save("nan.npy", np.full((3, 3, 3), np.nan))
    np.save("inf.npy", X + np.inf)
    np.save("number.npy", 3.0)
    before = {path.name for path in folder.iterdir()}
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.output
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize("output", ["x.npy", "x.mat"])
def test_full_tensor_larger_than_memory_is_rejected_before_the_run(folder, monkeypatch, output):
    monkeypatch.setattr(lt, "complete", None)
    done = run(*TABLE[:3], "90000,80000,70000", *TABLE[4:], "-o", output)
    assert done.exit_code == 2
    assert "more than fits into memory. Try -o x.npz, which holds the factors" in done.stderr


def test_outputs_that_fit_into_memory_are_accepted(folder, monkeypatch):
    monkeypatch.setattr(guards, "physical_memory", lambda: 16 * X.size - 1)
    assert run(*ARRAY, "-o", "x.npy", "-q").exit_code == 2
    assert run(*ARRAY, "-o", "x.npz", "-q").exit_code == 0  # the factors are small
    monkeypatch.setattr(guards, "physical_memory", lambda: 16 * X.size)
    assert run(*ARRAY, "-o", "x.npy", "-q").exit_code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("held_out", ["0", "0.1"])
def test_ctrl_c_writes_the_result_so_far_and_exits_with_130(folder, held_out):
    """Send SIGINT to a real process."""
    command = [*ARRAY, "-o", "X.npz", "--solver", "als", "--held-out", held_out]
    code, out = interrupted(command, solver="als", step=2)
    assert code == 130
    assert "INTERRUPTED" in out
    result = lt.load("X.npz")
    assert result.status is lt.Status.INTERRUPTED
    assert result.epochs == 2  # epochs recorded before the interrupted step


def test_help_has_examples():
    text = run("complete", "--help").stdout
    assert "lowtucker complete samples.csv --shape 300,400,500 --rank 12,4,3 -o X.npz" in text
    assert "--predict cells.csv predicted.csv" in text


# errors that would lose a result


def test_two_outputs_with_one_name_are_rejected(folder, monkeypatch):
    monkeypatch.setattr(lt, "complete", None)
    for more in ([], ["--overwrite"]):
        done = run(*TABLE, "-o", "X.npz", "--predict", "cells.csv", folder / "X.npz", *more)
        assert done.exit_code == 2
        assert "X.npz" in done.stderr


@pytest.mark.parametrize("which", ["X.npz", "out.csv"])
def test_folder_is_rejected_as_output(folder, monkeypatch, which):
    (folder / which).mkdir()
    monkeypatch.setattr(lt, "complete", None)
    done = run(*TABLE, "-o", "X.npz", "--predict", "cells.csv", "out.csv", "--overwrite")
    assert done.exit_code == 2
    assert which in done.stderr


def test_result_is_kept_if_predictions_cannot_be_written(folder, monkeypatch):
    def fails(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(lt.io, "save_samples", fails)
    done = run(*TABLE, "-o", "X.npz", "--predict", "cells.csv", "out.csv", "-q")
    assert done.exit_code == 4
    assert "No space left on device. The result is in X.npz." in done.stderr
    close(lt.load("X.npz").X.full())


def test_name_is_rejected_for_a_table(folder):
    done = run(*TABLE, "-o", "X.npz", "--name", "mine")
    assert done.exit_code == 2
    assert "--name" in done.stderr


def test_complex_predictions_are_rejected_before_the_run(folder, monkeypatch):
    np.save("complex.npy", np.load("holes.npy") * (1 + 2j))
    monkeypatch.setattr(lt, "complete", None)
    call = ["complete", "complex.npy", *ARRAY[2:], "-o", "X.npz"]
    done = run(*call, "--predict", "cells.csv", "out.csv")
    assert done.exit_code == 2
    assert "--predict" in done.stderr
