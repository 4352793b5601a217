"""The command line, as used by scripts."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli import main
from lowtucker.lab.experiments.demo import Demo
from runs import interrupted


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = lt.random_tucker((6, 7, 5), (2, 2, 2), seed=0)
    A = lt.gaussian((6, 7, 5), 160, seed=1)
    np.save("A.npy", A.matrix)
    np.save("y.npy", A.forward(X))
    np.save("X.npy", X.full())
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


CALL = ["recover", "A.npy", "y.npy", "--shape", "6,7,5", "--rank", "2,2,2"]


def test_recover_writes_the_result_and_exits_with_0(folder):
    done = run(*CALL, "-o", "X.npz", "--truth", "X.npy", "--plot", "run.png")
    assert done.exit_code == 0, done.output
    assert "Result: recovered" in done.stdout
    assert "error" in done.stdout
    result = lt.load("X.npz")
    assert lt.metrics.relative_error(result.X.full(), np.load("X.npy")) < 1e-5
    assert (folder / "run.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "flops", "images"),
    [((), 5e10, 2), ((), 1e3, 0), (("--max-epochs", 2, "--solver", "tiht"), 5e10, 0)],
)
def test_plot_has_standard_errors_where_they_are_quick_and_sound(
    folder, monkeypatch, options, flops, images
):
    drawn = []
    monkeypatch.setattr("lowtucker.lab.experiments.bars.FLOPS", flops)
    monkeypatch.setattr("lowtucker.cli.outcome.write_picture", lambda *call: drawn.append(call))
    run(*CALL, "-o", "X.npz", "-q", "--plot", "run.png", *options)
    ((figure, _),) = drawn
    assert sum(len(axes.images) for axes in figure.axes[:4]) == images


def test_recover_that_fails_exits_with_3_and_can_be_resumed(folder):
    half = run(*CALL, "-o", "half.npz", "--max-epochs", 3, "-q", "--solver", "stotiht")
    assert half.exit_code == 3
    assert lt.load("half.npz").status is lt.Status.MAX_EPOCHS
    assert (
        run(*CALL, "-o", "X.npz", "--start", "half.npz", "-q", "--solver", "stotiht").exit_code == 0
    )


@pytest.mark.parametrize(
    "options",
    [
        ["--solver", "tiht"],
        ["--solver", "tiht", "--step", "0.6"],
        ["--solver", "stotiht", "--block-size", "80", "--step", "0.4", "--seed", "3"],
        ["--tol", "1e-4", "--max-seconds", "100"],
        ["--weights", "w.npy"],
        ["--start", "X.npy"],
    ],
    ids=str,
)
def test_options_of_recover(folder, options):
    np.save("w.npy", np.ones(160))
    done = run(*CALL, "-o", "X.npz", *options)
    assert done.exit_code == 0, done.output


def test_unknown_rank_and_outliers(folder):
    y = np.load("y.npy")
    y[[3, 77]] = 1000
    np.save("y.npy", y)
    call = [*CALL[:-1], "auto", "--max-rank", "3,3,3", "--loss", "huber", "-o", "X.npz"]
    done = run(*call, "--truth", "X.npy")
    assert done.exit_code == 0, done.output
    assert "Rank (2, 2, 2) was found" in " ".join(done.stdout.split())
    result = lt.load("X.npz")
    assert result.rank == (2, 2, 2)
    assert result.error < 1e-5
    np.testing.assert_array_equal(np.flatnonzero(result.weights == 0), [3, 77])


def test_no_rank_at_all(folder):
    done = run(*CALL[:-2], "-o", "X.npz", "--max-seconds", "inf")
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(lt.load("X.npz").X.full(), np.load("X.npy"), atol=1e-4)
    done = run(*CALL[:-2], "-o", "Y.npz", "--max-rank", "1,1,1")
    assert lt.load("Y.npz").rank == (1, 1, 1)
    done = run(*CALL[:-2], "-o", "Z.npz", "--start", "Y.npz")  # whose rank it has
    assert lt.load("Z.npz").rank == (1, 1, 1)


def test_full_tensor_for_numpy_and_matlab(folder):
    assert run(*CALL, "-o", "found.npy", "-q").exit_code == 0
    assert run(*CALL, "-o", "found.mat", "-q").exit_code == 0
    X = np.load("X.npy")
    assert lt.metrics.relative_error(np.load("found.npy"), X) < 1e-5
    np.testing.assert_allclose(scipy.io.loadmat("found.mat")["X"], np.load("found.npy"))


def test_quiet_prints_nothing(folder):
    done = run(*CALL, "-o", "X.npz", "--quiet")
    assert (done.exit_code, done.output) == (0, "")


def test_one_file_holds_the_whole_problem(folder):
    A, y, X = np.load("A.npy"), np.load("y.npy"), np.load("X.npy")
    rows = np.array([row.reshape(X.shape).reshape(-1, order="F") for row in A])
    scipy.io.savemat("p.mat", {"A": rows, "y": y[:, None], "truth": X})
    np.savez("p.npz", a=A, Y=y, X=X)
    with h5py.File("p.h5", "w") as file:
        file["A"], file["y"], file["data/X"] = A, y, X
    options = ["--shape", "6,7,5", "--rank", "2,2,2"]
    for file, name, more in (
        ("p.mat", "truth", ["--order", "F"]),
        ("p.npz", "X", []),
        ("p.h5", "data/X", []),
    ):
        done = run("recover", file, *options, *more, "--name-truth", name, "-o", f"{file}.npz")
        assert done.exit_code == 0, done.output
        assert lt.load(f"{file}.npz").error < 1e-5
    done = run("recover", "A.npy", "y.npy", *options, "--truth", "p.npz", "-o", "t.npz", "-q")
    assert lt.load("t.npz").error < 1e-5  # X of several arrays


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["A.npy"], "A.npy holds one array, A (160, 210): give the file of y after that of A"),
        (["p.npz"], "p.npz holds several arrays, Phi (160, 210), b (160,), and none of them is "
                    "named A. Give --name-a, such as --name-a Phi."),
        (["p.npz", "--name-a", "Phi"], "none of them is named y. Give --name-y"),
        (["p.npz", "--name-a", "Phi", "--name-y", "b", "--name-truth", "X"], "no array 'X'"),
        (["p.npz", "--name-a", "B", "--name-y", "b"], "p.npz holds no array 'B'"),
        (["A.npy", "y.npy", "--truth", "p.npz"], "is named X. Give --name-truth"),
        (["none.npz"], "none.npz does not exist"),
    ],
)  # fmt: skip
def test_arrays_that_are_not_found_are_asked_for(folder, arguments, message):
    np.savez("p.npz", Phi=np.load("A.npy"), b=np.load("y.npy"))
    done = run("recover", *arguments, "--shape", "6,7,5", "-o", "x.npz")
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_everything_that_is_missing_is_said_at_once(folder):
    np.savez("p.npz", A=np.load("A.npy"), y=np.load("y.npy"))
    scipy.io.savemat("p.mat", {"A": np.load("A.npy"), "y": np.load("y.npy")})
    for arguments, words in (
        (["recover"], ["  A\n", "-o, --output PATH  The result"]),
        (["recover", "p.npz"], ["-o, --output PATH", "--shape N1,N2,...  Shape of the tensor"]),
        (["recover", "p.mat"], ["-o, --output PATH", "--shape", "--order [C|F]"]),
        (["recover", "p.mat", "-o", "x.npz"], ["--shape", "--order"]),
        (["check", "p.mat"], ["--rank", "--shape", "--order"]),
        (["stream", "s.csv"], ["--shape", "--rank", "-o, --output"]),
        (["plan"], ["--shape", "--rank"]),
        (["video", "clip.mp4"], ["--measurements", "-o, --out"]),
    ):
        done = run(*arguments)
        assert done.exit_code == 2
        message = done.stderr.split("Missing:\n")[1]
        assert all(f"  {word}" in message or word in message for word in words), message
        assert len([line for line in message.splitlines() if line[2:3] in "-A"]) == len(words)
    # a full tensor per measurement needs no shape
    np.save("A4.npy", np.load("A.npy").reshape(160, 6, 7, 5))
    assert "--shape" not in run("recover", "A4.npy", "y.npy").stderr


def test_shrinkage_and_als_are_solvers(folder):
    done = run(*CALL[:-2], "--solver", "shrinkage", "-o", "soft.npz")
    assert done.exit_code == 0, done.output
    assert lt.load("soft.npz").rank is None
    done = run(*CALL, "--solver", "shrinkage", "-o", "x.npz")
    assert (done.exit_code, "--solver shrinkage needs no rank" in done.stderr) == (2, True)
    done = run(*CALL, "--solver", "als", "-o", "x.npz")  # Gaussian rows
    assert (done.exit_code, "ALS is for sampled entries" in done.stderr) == (2, True)
    assert "Try --solver auto" in done.stderr
    rng = np.random.default_rng(0)
    places = rng.permutation(210)[:170]
    scipy.sparse.save_npz("S.npz", scipy.sparse.csr_array(np.eye(210)[places]))
    np.save("z.npy", np.load("X.npy").reshape(-1)[places])
    call = ["recover", "S.npz", "z.npy", *CALL[3:], "--solver", "als", "-o", "als.npz"]
    done = run(*call)
    assert done.exit_code == 0, done.output
    assert "ALS" in lt.load("als.npz").solver


def test_verbose_tells_decisions_and_epochs_on_stderr(folder):
    for before, after, epochs in ((["-v"], [], False), ([], ["-v"], False), ([], ["-vv"], True)):
        done = run(*before, *CALL, *after, "-o", "X.npz", "--overwrite")
        assert "Auto takes RSGD, then RGN" in done.stderr
        assert " ms  Result: recovered. Residual" in done.stderr
        assert ("Epoch 1, RSGD" in done.stderr) == epochs
        assert "Auto takes" not in done.stdout
    assert "Auto takes" not in run(*CALL, "-o", "X.npz", "--overwrite").stderr


@pytest.mark.parametrize("command", ["recover", "stream", "video", "check"])
def test_help_says_what_exit_codes_mean(command):
    text = run(command, "--help").stdout
    assert "Exit codes:" in text
    for code in (0, 1, 2, 3, 130):
        assert f"\n    {code:<4} " in text
    said = "a problem was found" if command == "check" else "the tensor was not recovered"
    assert said in text


def test_findings_are_in_the_words_of_the_command_line(folder):
    done = run(*CALL[:-1], "1,1,1", "-o", "X.npz")
    assert done.exit_code == 3
    assert "--rank 2,2,2" in done.stdout
    assert "rank=" not in done.stdout
    y = np.load("y.npy") * (1 + 1e-7)
    np.save("y.npy", y)
    done = run(*CALL, "-o", "Y.npz", "--solver", "tiht", "--max-epochs", "2")
    assert "--start Y.npz" in done.stdout


def test_matlab_file(folder):
    A, X = np.load("A.npy"), np.load("X.npy")
    rows = np.array([row.reshape(X.shape).reshape(-1, order="F") for row in A])
    scipy.io.savemat("data.mat", {"A": rows, "y": np.load("y.npy")[:, None]})
    call = ["recover", "data.mat", "data.mat", "--name-a", "A", "--name-y", "y",
            "--shape", "6,7,5", "--rank", "2,2,2", "-o", "X.npz"]  # fmt: skip
    assert "--order [C|F]" in run(*call).stderr
    assert run(*call, "--order", "F").exit_code == 0


BAD = [
    (["recover", "none.npy", "y.npy", "--rank", "2,2,2", "-o", "x.npz"], "none.npy does not exist"),
    (["recover", "A.npy", "y.npy", "--rank", "2,2,2", "-o", "x.npz"], "--shape N1,N2"),
    ([*CALL[:-1], "2,2", "-o", "x.npz"], "rank must have one entry per mode"),
    ([*CALL[:-1], "2,2,a", "-o", "x.npz"], "is not a list of integers such as 30,30,10"),
    ([*CALL, "-o", "x.txt"], "output must be one of .npz, .npy, .mat"),
    ([*CALL, "-o", "none/x.npz"], "none is not a folder"),
    ([*CALL, "-o", "x.npz", "--plot", "run.xyz"], "plot must be an image file such as run.png"),
    ([*CALL, "-o", "y.npz"], "output y.npz exists"),
    ([*CALL, "-o", "x.npz", "--step", "-1"], "step must be positive"),
    ([*CALL[:-2], "-o", "x.npz", "--solver", "rgn"], "--rank is needed with these solver settings"),
    ([*CALL[:-2], "-o", "x.npz", "--start", "X.npy"], "--rank is needed with --start X.npy"),
    ([*CALL, "-o", "x.npz", "--max-seconds", "nan"], "--max-seconds must be positive"),
    ([*CALL, "-o", "x.npz", "--max-rank", "3,3,3"], "--max-rank belongs to --rank auto"),
    ([*CALL[:-1], "auto", "-o", "x.npz", "--max-rank", "3,3"], "--max-rank 3,3: rank must have"),
    ([*CALL, "-o", "x.npz", "--solver", "tiht", "--block-size", "5"], "not apply to tiht"),
    ([*CALL, "-o", "x.npz", "--solver", "newton"], "'newton' is not one of"),
    (["recover", "A.npy", "page.npy", "--shape", "6,7,5", "--rank", "2,2,2", "-o", "x.npz"],
     "is an HTML page"),
    (["recover", "y.npy", "A.npy", "--shape", "6,7,5", "--rank", "2,2,2", "-o", "x.npz"],
     "matrix must have one row per measurement"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda v: str(v)[-40:])
def test_bad_input_prints_one_line_and_exits_with_2(folder, arguments, message):
    np.savez("y.npz", a=np.ones(2))
    (folder / "page.npy").write_text("<html></html>")
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert not (folder / "x.npz").exists()


def test_warnings_print_one_line(folder):
    done = run(*CALL[:-1], "1,1,2", "-o", "X.npz", "--max-epochs", "2")
    assert "RankWarning: No tensor has Tucker rank (1, 1, 2)" in done.stderr


SMALL_DEMO = Demo(
    shape=(12, 12, 8),
    rank=(3, 3, 2),
    m=500,
    solvers=(
        ("TIHT", lt.TIHT(step=0.5)),
        ("StoTIHT", lt.StoTIHT(block_size=200, step=0.5)),
        ("auto", "auto"),
    ),
)


@pytest.mark.parametrize(
    "settings", [SMALL_DEMO, pytest.param(Demo(), marks=pytest.mark.slow, id="default")]
)
@pytest.mark.parametrize("where", ["pictures", "flame.pdf"])
def test_demo_shows_a_table_and_writes_a_figure(folder, monkeypatch, settings, where):
    monkeypatch.setattr(
        "lowtucker.lab.experiments.demo.Demo", lambda seed: replace(settings, seed=seed)
    )
    done = run("demo", "-o", where)
    assert done.exit_code == 0, done.output
    written = where if "." in where else f"{where}/demo.png"
    for word in ("TIHT", "StoTIHT", "auto", "CONVERGED", written):
        assert word in done.stdout
    assert done.stdout.count("yes") == 3
    assert (folder / written).stat().st_size > 10_000


def test_demo_refuses_what_is_no_picture(folder):
    done = run("demo", "-o", "flame.txt")
    assert (done.exit_code, "must be an image file such as flame.png" in done.stderr) == (2, True)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_writes_the_result_so_far_and_exits_with_130(folder):
    """Send SIGINT to a real process."""
    call = [*CALL, "-o", "X.npz", "--solver", "stotiht", "--block-size", "20", "--step", "0.05"]
    code, out = interrupted(call, solver="stotiht", step=20)
    assert code == 130
    assert "INTERRUPTED" in out
    result = lt.load("X.npz")
    assert result.status is lt.Status.INTERRUPTED
    assert result.epochs == 2  # of 8 steps each


def test_read_error_during_a_run_saves_the_partial_result(folder, monkeypatch):
    """HDF5 rows are read on demand; reading fails after some epochs."""
    with h5py.File("A.h5", "w") as file:
        file["rows"] = np.load("A.npy")
    reads = []

    def failing(self, start, stop, out):
        reads.extend([start] * (stop - start > 1))  # single rows give the scale first
        if len(reads) > 9:
            raise OSError(5, "Input/output error")
        out[...] = np.load("A.npy")[start:stop]

    monkeypatch.setattr(lt.StoredOperator, "_read_source", failing)
    call = ["recover", "A.h5", *CALL[2:], "--solver", "tiht"]
    for name in ("X-partial.npz", "X-partial1.npz"):  # existing files are not replaced
        reads.clear()
        done = run(*call, "-o", "X.npz")
        assert done.exit_code == 2
        assert "A.h5, /rows, rows 0 to 159, could not be read" in done.stderr
        assert f"resume with --start {name}" in done.stderr
        found = lt.load(name)
        assert found.status is lt.Status.INTERRUPTED
        assert found.epochs > 1
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    done = run(*call, "-o", "X.npz", "--start", "X-partial.npz")
    assert done.exit_code == 0, done.output


def test_help_has_examples():
    done = run("recover", "--help")
    assert "lowtucker recover A.npy y.npy --shape 30,30,10 --rank 8,8,2 -o X.npz" in done.stdout
    assert "Exit codes" in run("--help").stdout


def test_installed_command_runs():
    done = subprocess.run(
        [sys.executable, "-c", "from lowtucker.cli import main; main(['--version'])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == f"lowtucker, version {lt.__version__}"


def test_command_line_offers_every_solver():
    from lowtucker.cli.common import SOLVERS as NAMES
    from lowtucker.solvers import SOLVERS

    # for sparse formats; what shrinkage is made of; a baseline without a rank
    others = ("stogradmp", "amp", "annealing", "nuclear")
    assert ("auto", "shrinkage", *SOLVERS) == (*NAMES, *others)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_same_command_resumes_from_its_checkpoint(folder):
    """Interrupt by a real signal, then resume; the result equals that of one run to the bit."""
    solver = ["--solver", "stotiht", "--step", "0.2", "--block-size", "40", "--seed", "3"]
    call = [*CALL, *solver, "-o", "X.npz", "--checkpoint", "run.ckpt"]
    code, out = interrupted(call, solver="stotiht", step=20)
    assert code == 130
    assert "INTERRUPTED" in out
    assert "checkpoint run.ckpt resumes from here" in out
    assert lt.load("X.npz").epochs > 1
    done = run(*call)
    assert done.exit_code == 0, done.output
    whole = run(*CALL, *solver, "-o", "whole.npz")
    assert whole.exit_code == 0, whole.output
    found, expected = lt.load("X.npz"), lt.load("whole.npz")
    np.testing.assert_array_equal(found.X.core, expected.X.core)
    np.testing.assert_array_equal(found.history["residual"], expected.history["residual"])
    again = run(*call)  # the result of a completed run is not replaced
    assert again.exit_code == 2
    assert "X.npz" in again.stderr


def test_checkpoint_is_rejected_as_output(folder):
    done = run(*CALL, "-o", "X.npz", "--checkpoint", "X.npz")
    assert done.exit_code == 2
    assert "is an input" in done.stderr
    done = run(*CALL, "-o", "X.npz", "--checkpoint", "A.npy")
    assert done.exit_code == 2
    assert "A.npy is not a checkpoint" in done.stderr
