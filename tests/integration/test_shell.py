"""The command as shells see it: ``python -m lowtucker``, exit codes, completion by the Tab key."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import lowtucker as lt


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "lowtucker", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def completed(*words):
    """What a shell is offered for the last of these words."""
    done = run(
        _LOWTUCKER_COMPLETE="bash_complete",
        COMP_WORDS=" ".join(["lowtucker", *words]),
        COMP_CWORD=str(len(words)),
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_module_is_the_command():
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: lowtucker [OPTIONS] COMMAND")
    assert run("--version").stdout == f"lowtucker, version {lt.__version__}\n"
    assert run().returncode == run("bogus").returncode == 2
    assert run("recover", "none.npy", "y.npy", "-o", "x.npz").returncode == 2


def test_module_exits_with_0_only_on_success(tmp_path):
    A = lt.gaussian((5, 5, 6), m=120, seed=1)
    y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))
    np.savez(tmp_path / "problem.npz", A=A.matrix, y=y)
    call = ["recover", str(tmp_path / "problem.npz"), "--shape", "5,5,6", "-q", "-o"]
    assert run(*call, str(tmp_path / "X.npz"), "--rank", "1,2,2").returncode == 0
    assert run(*call, str(tmp_path / "Y.npz"), "--rank", "1,1,1").returncode == 3


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["re"], ["plain,recover", "plain,reproduce"]),
        (["recover", ""], ["file,"]),
        (["recover", "--name-"], ["plain,--name-a", "plain,--name-y", "plain,--name-truth"]),
        (["recover", "A.npy", "--solver", "s"], ["plain,shrinkage", "plain,stotiht"]),
        (["recover", "A.npy", "--truth", ""], ["file,"]),
        (["complete", "x.csv", "--loss", "h"], ["plain,huber"]),
    ],
)
def test_commands_options_choices_and_files_are_completed(words, offered):
    assert completed(*words) == offered


def test_completion_imports_no_numpy():
    code = (
        "import sys, atexit; atexit.register(lambda: sys.stderr.write(str('numpy' in sys.modules)))"
        "; sys.argv = ['lowtucker']; from lowtucker.__main__ import run; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env=os.environ | {"_LOWTUCKER_COMPLETE": "bash_complete", "COMP_CWORD": "2",
                          "COMP_WORDS": "lowtucker recover --sol"},
    )  # fmt: skip
    assert done.stdout == "plain,--solver\n"
    assert done.stderr == "False"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_help_says_how_to_enable_completion(shell):
    assert f"_LOWTUCKER_COMPLETE={shell}_source lowtucker" in run("--help").stdout
    done = run(_LOWTUCKER_COMPLETE=f"{shell}_source", PATH=os.environ["PATH"])
    assert "_lowtucker_completion" in done.stdout


BASH = """
eval "$(_LOWTUCKER_COMPLETE=bash_source lowtucker)"
COMP_WORDS=(lowtucker recover A.npy --solver r); COMP_CWORD=4
_lowtucker_completion lowtucker
echo "${COMPREPLY[@]}"
complete -p lowtucker
"""


# as ~/.zshrc has it; without compinit there is no compdef, which the script calls
ZSH = """
autoload -U compinit && compinit -D -u
eval "$(_LOWTUCKER_COMPLETE=zsh_source lowtucker)"
print -- $_comps[lowtucker]
"""
FISH = """
_LOWTUCKER_COMPLETE=fish_source lowtucker | source
complete -C "lowtucker recover A.npy --solver rg"
"""


def in_shell(folder, *command):
    """Output of a command of a shell, in which lowtucker is that of this interpreter."""
    program = folder / "lowtucker"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m lowtucker "$@"\n')
    program.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "HOME": str(folder)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=folder
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_takes_the_script(tmp_path):
    first, second = in_shell(tmp_path, "bash", "-c", BASH)
    assert first == "rsgd rgn rcg"
    assert "-F _lowtucker_completion lowtucker" in second


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_takes_the_script_after_compinit(tmp_path):
    assert in_shell(tmp_path, "zsh", "-f", "-c", ZSH) == ["_lowtucker_completion"]
    (line,) = [line for line in ZSH.splitlines() if "compinit" in line]
    assert line.removesuffix(" -D -u") in run("--help").stdout


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_takes_the_script(tmp_path):
    assert in_shell(tmp_path, "fish", "--no-config", "-c", FISH) == ["rgn"]
