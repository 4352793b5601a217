"""The command ``lowtucker plan``."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli import main
from lowtucker.theory.planning import plan

SMALL = ["plan", "--shape", "4,4,3", "--rank", "1,1,1", "--trials", "2", "--workers", "1"]
COMMAND = [sys.executable, "-c", "from lowtucker.cli import main; main()"]
# A process that was started in the background ignores Ctrl-C
LISTENING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A completed command, and the folder of its trials."""
    folder = tmp_path_factory.mktemp("plan") / "trials"
    return run(*SMALL, "--folder", folder), folder


@pytest.mark.parametrize("operator", ["gaussian", "entries"])
def test_plan_is_printed(operator, kept):
    done = run(*SMALL, "--operator", operator, "-q", "--folder", kept[1])
    assert done.exit_code == 0, done.output
    folder = None if operator == "gaussian" else kept[1]  # once without a folder
    made = plan((4, 4, 3), (1, 1, 1), operator, trials=2, folder=folder)
    assert done.stdout == f"{made}\n\n{made.transition}\n"
    assert done.stderr == ""


def test_progress_bar_is_written_to_standard_error(kept):
    done = kept[0]
    assert done.exit_code == 0
    assert "trials" in done.stderr
    assert "done" in done.stderr
    assert done.stdout.startswith("Plan: shape (4, 4, 3), rank (1, 1, 1), operator gaussian")


def test_options_are_passed_on(monkeypatch, tmp_path):
    given, made = [], plan((4, 4, 3), (1, 1, 1), trials=1)

    def fake(shape, rank, operator, **settings):
        given.append((shape, rank, operator, settings))
        return made

    monkeypatch.setattr(lt.theory, "plan", fake)
    options = {"noise": 0.1, "rate": 0.5, "trials": 3, "seed": 4, "workers": 2}
    words = [w for name, value in options.items() for w in (f"--{name}", value)]
    done = run(*SMALL[:5], "--operator", "dct", *words, "--folder", tmp_path / "new", "-q")
    assert done.exit_code == 0, done.output
    expected = {**options, "folder": tmp_path / "new", "progress": False}
    assert given[0] == ((4, 4, 3), (1, 1, 1), "dct", expected)
    assert run(*SMALL[:5]).exit_code == 0
    settings = given[1][3]
    assert given[1][2] == "gaussian"
    assert settings.pop("workers") >= 1
    assert settings == {
        "noise": 0.0, "rate": 0.95, "trials": None, "seed": 0, "folder": None, "progress": True
    }  # fmt: skip


def test_stored_trials_are_reused(kept):
    first, folder = kept
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*.npz")}
    assert len(files) >= 6
    again = run(*SMALL, "--folder", folder, "-q")
    assert again.stdout == first.stdout
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.npz")} == files


def test_plot_is_written(kept, tmp_path):
    plot = ["--plot", tmp_path / "rate.png"]
    assert run(*SMALL, "-q", "--folder", kept[1], *plot).exit_code == 0
    assert (tmp_path / "rate.png").read_bytes().startswith(b"\x89PNG")


BAD = [
    (["plan", "--rank", "1,2,2"], "--shape N1,N2"),
    (["plan", "--shape", "5,5,6"], "--rank N1,N2"),
    (["plan", "--shape", "5x5", "--rank", "1,1"], "'5x5' is not a list of integers"),
    (["plan", "--shape", "5,0", "--rank", "1,1"], "shape must be a tuple of positive integers"),
    (["plan", "--shape", "5,5", "--rank", "1,6"], "rank[1] = 6 must be between 1 and 5"),
    (["plan", "--shape", "5,5", "--rank", "1,1,1"], "rank must have one entry per mode"),
    ([*SMALL, "--operator", "fft"], "'fft' is not one of"),
    ([*SMALL, "--noise", "2"], "noise must be below 1, got 2"),
    ([*SMALL, "--noise", "nan"], "noise must be a finite number"),
    ([*SMALL, "--rate", "95"], "rate must be at most 1, got 95. Write 95 % as --rate 0.95"),
    ([*SMALL, "--rate", "0"], "rate must be positive"),
    ([*SMALL, "--trials", "0"], "0 is not in the range x>=1"),
    ([*SMALL, "--workers", "0"], "0 is not in the range x>=1"),
    ([*SMALL, "--seed", "-1"], "-1 is not in the range x>=0"),
    ([*SMALL, "--folder", "file"], "'file' is a file"),
    ([*SMALL, "--folder", "file/below"], "cannot be written to"),
    ([*SMALL, "--plot", "none/x.png"], "cannot write none/x.png"),
    ([*SMALL, "--plot", "x.xyz"], "plot must be an image file such as x.png, got x.xyz"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda value: str(value)[-45:])
def test_bad_input_prints_one_line_and_exits_with_2(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_command_runs_in_a_process_with_two_workers():
    words = [*SMALL[:-2], "-q", "--workers"]
    done = subprocess.run(
        [*COMMAND, *words, "2"], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run(*words, "1").stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent another way there")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_keeps_results_and_exits_with_130(tmp_path, workers):
    """Send SIGINT to a real process after some trials."""
    folder = tmp_path / "trials"
    words = ["plan", "--shape", "8,8,8", "--rank", "2,2,2", "--trials", "20000", "-q"]
    command = [*COMMAND[:2], LISTENING + COMMAND[2], *words, "--folder", str(folder)]
    command += ["--workers", workers]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    late = threading.Timer(300, process.kill)
    late.start()
    while not any(folder.rglob("*.npz")) and process.poll() is None:
        threading.Event().wait(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    late.cancel()
    assert process.returncode == 130, err
    assert out == ""
    assert f"Results so far are kept in {folder}: run the same command to resume" in err
    assert "Traceback" not in err
    assert any(folder.rglob("*.npz"))


def test_help_has_an_example():
    text = run("plan", "--help").stdout
    assert "lowtucker plan --shape 30,30,30 --rank 3,3,3" in text


def test_interrupt_without_a_folder_advises_one(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(lt.theory, "plan", interrupted)
    done = run(*SMALL)
    assert done.exit_code == 130
    assert done.stdout == ""
    advice = "Use --folder to keep the trials and resume from them."
    assert done.stderr == f"Interrupted. {advice}\n"
