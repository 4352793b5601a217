"""`import lowtucker` and `lowtucker --help` load little, and every public name loads on demand.

Which modules are loaded is tested, not how long it takes: see `lowtucker bench iteration`.
"""

from __future__ import annotations

import ast
import json
import pickle
import pkgutil
import pydoc
import subprocess
import sys
import types
from pathlib import Path

import click
import pytest

import lowtucker
from lowtucker.cli.main import SUMMARIES, main
from lowtucker.lab.bench import iteration

HELP = "from lowtucker.cli import main; main({}, prog_name='lowtucker', standalone_mode=False)"


def run(code):
    """Run statements in a fresh interpreter; what they print."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_after(code):
    """Modules of the package, and top-level packages, that statements load."""
    printed = run(f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))")
    loaded = json.loads(printed.splitlines()[-1])
    own = {name for name in loaded if name.split(".")[0] == "lowtucker"}
    return own, {name.split(".")[0] for name in loaded}


# What is loaded


def test_import_loads_the_package_alone():
    own, packages = modules_after("import lowtucker")
    assert own == {"lowtucker", "lowtucker._version"}
    assert not packages & {"numpy", "scipy", "array_api_compat", "click", "rich", "logging"}


def test_a_small_call_without_noise_needs_numpy_alone():
    """SciPy's special functions, and what they load, take several times as long as the call."""
    _, packages = modules_after(
        "import lowtucker as lt; A = lt.gaussian((5, 5, 6), m=60, seed=1)\n"
        "y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))\n"
        "assert lt.recover(A, y, (1, 2, 2)).error_interval"
    )
    assert not packages & {"scipy", "array_api_compat", "click", "rich"}


def test_a_name_loads_what_it_needs_only():
    own, packages = modules_after("import lowtucker; lowtucker.hosvd")
    assert "lowtucker.tensor" in own
    assert not own & {"lowtucker.operators", "lowtucker.solvers", "lowtucker.run", "lowtucker.io"}
    assert not packages & {"scipy", "click", "rich"}


def test_the_first_recover_loads_no_command_line_theory_or_lab():
    own, packages = modules_after("import lowtucker; lowtucker.recover")
    parts = {name.split(".")[1] for name in own if "." in name}
    assert not parts & {"cli", "estimators", "lab", "simulation", "theory"}
    assert not packages & {"scipy", "click", "rich", "dask", "sklearn", "matplotlib"}


@pytest.mark.parametrize("arguments", [["--help"], ["-h"]])
def test_help_loads_no_command_and_no_numpy(arguments):
    own, packages = modules_after(HELP.format(arguments))
    assert own == {"lowtucker", "lowtucker._version", "lowtucker.cli", "lowtucker.cli.main",
                   "lowtucker.cli.verbose"}  # fmt: skip
    assert not packages & {"numpy", "scipy", "rich"}


def test_help_of_a_command_loads_that_command_alone():
    own, packages = modules_after(HELP.format(["check", "--help"]))
    assert "lowtucker.cli.check" in own
    assert "lowtucker.cli.recover" not in own
    assert not packages & {"numpy", "scipy", "rich"}


# Public names


def checked_imports():
    """Name -> module that type checkers see, from the block `if TYPE_CHECKING`."""
    tree = ast.parse(Path(lowtucker.__file__).read_text(encoding="utf-8"))
    block = next(
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {name.name: node.module for node in block.body for name in node.names}


def test_the_lists_of_names_agree():
    seen = checked_imports()
    parts = {name for name, module in seen.items() if module == "lowtucker"}
    homes = {name: f"lowtucker.{module}" for name, module in lowtucker._HOME.items()}
    assert homes == {name: seen[name] for name in seen.keys() - parts}
    assert set(lowtucker.__all__) == {"__version__", *parts, *homes}
    assert parts <= set(lowtucker._PARTS)


def test_dir_lists_the_public_names():
    assert dir(lowtucker) == sorted(lowtucker.__all__)


def test_every_name_loads_first():
    """In any order: no name relies on a module that another one loads."""
    run(
        "import importlib, sys, numpy, lowtucker\n"
        "groups = {}\n"
        "for name in lowtucker.__all__:\n"
        "    groups.setdefault(lowtucker._HOME.get(name, name), []).append(name)\n"
        "for names in groups.values():\n"
        "    for module in [m for m in sys.modules if m.split('.')[0] == 'lowtucker']:\n"
        "        del sys.modules[module]\n"
        "    lowtucker = importlib.import_module('lowtucker')\n"
        "    for name in names:\n"
        "        value = getattr(lowtucker, name)\n"
        "        assert name in vars(lowtucker), f'{name} is not kept'\n"
        "        assert getattr(lowtucker, name) is value, name\n"
    )


def test_every_part_is_there_without_an_import():
    run(
        "import sys, lowtucker\n"
        "for name in lowtucker._PARTS:\n"
        "    if name != 'estimators':\n"
        "        assert getattr(lowtucker, name).__name__ == 'lowtucker.' + name\n"
        "sys.modules['sklearn'] = None  # as if not installed; it takes seconds to import\n"
        "try:\n"
        "    lowtucker.estimators\n"
        "except ImportError as error:\n"
        "    assert 'lowtucker[sklearn]' in str(error)\n"
        "else:\n"
        "    raise AssertionError('no error')\n"
    )


def test_import_star_gives_every_public_name():
    run(
        "from lowtucker import *\n"
        "import lowtucker\n"
        "for name in lowtucker.__all__:\n"
        "    assert globals()[name] is getattr(lowtucker, name), name\n"
    )


def test_threads_may_load_names_at_the_same_time():
    run(
        "import threading, lowtucker\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "names = ['recover', 'complete', 'solve', 'recover', 'theory', 'RGN', 'gaussian', 'load']\n"
        "start = threading.Barrier(len(names))\n"
        "def get(name):\n"
        "    start.wait()\n"
        "    return getattr(lowtucker, name)\n"
        "with ThreadPoolExecutor(len(names)) as pool:\n"
        "    found = list(pool.map(get, names))\n"
        "assert found == [getattr(lowtucker, name) for name in names]\n"
    )


def test_an_unknown_name_is_an_error_with_a_suggestion():
    with pytest.raises(AttributeError, match=r"no attribute 'recovr'; dir\(lowtucker\) lists"):
        _ = lowtucker.recovr
    done = subprocess.run(
        [sys.executable, "-c", "import lowtucker; lowtucker.recovr"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Did you mean: 'recover'?" in done.stderr
    with pytest.raises(ImportError, match="recovr"):
        exec("from lowtucker import recovr")


def test_no_submodule_has_the_name_of_a_public_function():
    """Importing it would replace the function: Python stores a submodule in its package."""
    submodules = {module.name for module in pkgutil.iter_modules(lowtucker.__path__)}
    assert not submodules & set(lowtucker._HOME)


def test_functions_classes_and_the_package_are_pickled_by_name():
    for name in ("recover", "TuckerTensor", "RGN", "Status"):
        value = getattr(lowtucker, name)
        assert pickle.loads(pickle.dumps(value)) is value
    cloudpickle = pytest.importorskip("cloudpickle")
    assert pickle.loads(cloudpickle.dumps(lowtucker)) is lowtucker


def test_help_shows_public_names():
    assert isinstance(lowtucker, types.ModuleType)
    text = pydoc.plain(pydoc.render_doc(lowtucker.recover))
    assert "recover(" in text
    assert "low-Tucker-rank" in pydoc.plain(pydoc.render_doc(lowtucker))


# The command line


@pytest.mark.parametrize("name", sorted(SUMMARIES))
def test_the_list_of_commands_says_what_the_command_says(name):
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command.name == name
    assert command.get_short_help_str(1000) == SUMMARIES[name], "update SUMMARIES in cli/main.py"
    assert not command.hidden
    assert not command.deprecated


def test_every_file_of_a_command_is_listed():
    import lowtucker.cli as cli

    files = {module.name for module in pkgutil.iter_modules(cli.__path__)}
    shared = {
        *("common", "family", "inputs", "main", "outcome", "rescue", "uncertainty", "verbose"),
        *("verdict", "words"),
    }
    assert files - shared == set(SUMMARIES)


def test_an_unknown_command_is_none():
    assert main.get_command(click.Context(main), "recovr") is None


# The benchmark


def test_the_benchmark_shows_the_first_use_beside_the_import():
    rows = [iteration.import_row(what, repeats=1) for what in iteration.IMPORTS]
    assert [row.what for row in rows] == [
        "import lowtucker / import numpy",
        "first use of lowtucker.recover / import numpy",
        "lowtucker --help / import click, numpy",
    ]
    assert all(row.ratio > 0 for row in rows)
