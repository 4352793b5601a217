"""The layers import downwards only, and the source keeps the promises that a reader can check."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import pytest

import lowtucker

SOURCE = Path(lowtucker.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# From the bottom. A part may import itself, parts on a lower level, and on its own those before it.
LEVELS = [
    ["_version", "limits", "status", "_array", "_plotting"],
    ["tensor"],
    ["operators", "io", "metrics", "problem", "thresholding", "labels"],
    ["solvers", "uncertainty"],
    ["run"],
    ["recovery"],
]
# On top of the six layers: nothing below imports these, and each may import those before it
FACES = ["datasets", "streams", "estimators", "simulation", "theory", "lab", "cli"]
ORDER = [*(part for parts in LEVELS for part in parts), *FACES]
PLACE = {part: place for place, part in enumerate(ORDER)}
# The readers of files know arrays and operators, no tensors and nothing above
ALLOWED_ONLY = {"io": {"_array", "operators"}}
# The foundation is flat but for what checks need to word an error
FOUNDATION = set(LEVELS[0])


@cache
def parsed(source):
    """Syntax tree, made once for all tests."""
    return ast.parse(source)


def tree_of(path):
    return parsed(path.read_text(encoding="utf-8"))


def in_every_file(check, files=FILES):
    """One test of all files: a test for each would take longer than what it checks."""

    def test():
        for path in files:
            check(path)

    test.__doc__ = check.__doc__
    return test


def part_of(path):
    """Top-level part of the package that a file belongs to; "" for the package itself."""
    relative = path.relative_to(SOURCE)
    return (
        ""
        if relative.name in ("__init__.py", "__main__.py") and len(relative.parts) == 1
        else (relative.parts[0].removesuffix(".py"))
    )


def module_of(path):
    parts = ["lowtucker", *path.relative_to(SOURCE).with_suffix("").parts]
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported_modules(path):
    """Every module of the package that a file imports, anywhere in it, with the line."""
    tree = tree_of(path)
    package = module_of(path) if path.name == "__init__.py" else module_of(path)[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "lowtucker":
                    yield name.name.split("."), node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            if base[:1] == ["lowtucker"]:
                # `from lowtucker import x` imports the part x, where there is one of that name
                for name in node.names:
                    yield (base if len(base) > 1 else [*base, name.name]), node.lineno


def violations(path):
    own = part_of(path)
    for module, line in imported_modules(path):
        part = module[1] if len(module) > 1 else ""
        where = (
            f"{path.relative_to(SOURCE)}:{line}: {own or '__init__'} imports {part or 'lowtucker'}"
        )
        if own in ("", part):
            continue
        if part not in PLACE:
            # a face may take the public names from the package itself, as a user would
            if own not in FACES:
                yield where + ": not a part below it"
        elif own in ALLOWED_ONLY:
            if part not in ALLOWED_ONLY[own]:
                yield where
        elif own in FOUNDATION:
            if part not in FOUNDATION:
                yield where
        elif PLACE[part] >= PLACE[own]:
            yield where


def test_every_file_belongs_to_a_layer():
    unknown = {part_of(path) for path in FILES} - set(PLACE) - {""}
    assert not unknown, f"give {sorted(unknown)} a place in LEVELS"


@in_every_file
def test_imports_go_downwards_only(path):
    assert not list(violations(path))


def test_the_check_of_imports_finds_a_violation(tmp_path, monkeypatch):
    """Also inside functions, relative, and by `from lowtucker import`."""
    (tmp_path / "tensor").mkdir()
    file = tmp_path / "tensor" / "bad.py"
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    for bad in (
        "from lowtucker.problem import Problem",
        "import lowtucker.operators.base",
        "def f():\n    from lowtucker.operators import gaussian",
        "from lowtucker import problem",
        "from ..solvers import Partition",
        "from .. import solve",
        "import lowtucker as lt",
    ):
        file.write_text(bad)
        assert len(list(violations(file))) == 1, bad
    for good in ("from lowtucker._array import Array", "from .rank import f", "import numpy"):
        file.write_text(good)
        assert not list(violations(file)), good


def test_modules_inside_a_part_do_not_import_each_other_in_a_circle():
    """At module level; what a function imports when it runs cannot close a circle."""
    edges = {}
    for path in FILES:
        if path.name == "__init__.py":
            continue
        tree = tree_of(path)
        targets = set()
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lowtucker."):
                targets.add(node.module)
        edges[".".join(module_of(path))] = targets
    done, open_ = set(), []

    def visit(module):
        assert module not in open_, " -> ".join([*open_[open_.index(module) :], module])
        if module in done:
            return
        open_.append(module)
        for target in edges.get(module, ()):
            visit(target)
        open_.pop()
        done.add(module)

    for module in edges:
        visit(module)


HEAVY = [
    "torch",
    "jax",
    "dask",
    "distributed",
    "sklearn",
    "pandas",
    "polars",
    "xarray",
    "matplotlib",
    "scipy.linalg",
    "tensorly",
    "h5py",
    "av",
    "PIL",
    "jinja2",
    "threadpoolctl",
    "click",
    "rich",
]


def test_import_is_light():
    code = f"import sys, lowtucker; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_every_public_name_exists_and_is_listed_once():
    assert len(set(lowtucker.__all__)) == len(lowtucker.__all__)
    for name in lowtucker.__all__:
        assert hasattr(lowtucker, name), name


# Promises about the source


# What the modern interface offers; everything else under np.random is the legacy global state
MODERN = {"Generator", "Philox", "SeedSequence", "PCG64", "BitGenerator", "default_rng"}
# RandomState(seed) has a state of its own: published experiments drew with it
LOCAL = {*MODERN, "RandomState"}


@in_every_file
def test_no_global_random_state(path):
    bad = [
        f"{path.name}:{node.lineno}: random.{node.attr}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "random"
        and isinstance(node.value.value, ast.Name)
        and node.value.value.id in ("np", "numpy")
        and node.attr not in LOCAL
    ]
    bad += [
        f"{path.name}:{node.lineno}: the random module of Python"
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.Import) and any(n.name == "random" for n in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "random" and not node.level)
    ]
    assert not bad


@in_every_file
def test_only_the_command_line_prints(path):
    if part_of(path) == "cli":
        return
    bad = [
        f"{path.name}:{node.lineno}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("print", "breakpoint")
    ]
    assert not bad


@in_every_file
def test_public_functions_name_their_arguments(path):
    """No public **kwargs: a misspelt argument must be an error."""
    if part_of(path) == "_plotting":
        return
    bad = [
        f"{path.name}:{node.lineno}: {node.name}(**{node.args.kwarg.arg})"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.args.kwarg is not None
        and (not node.name.startswith("_") or node.name in ("__init__", "__call__", "__new__"))
    ]
    assert not bad


@in_every_file
def test_only_one_module_knows_array_back_ends(path):
    """torch, JAX, CuPy and array_api_compat are imported by _array alone, and only lazily."""
    backends = {"torch", "jax", "cupy", "array_api_compat"}
    bad = []
    for node in ast.walk(tree_of(path)):
        names = []
        if isinstance(node, ast.Import):
            names = [n.name.split(".")[0] for n in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [(node.module or "").split(".")[0]]
        bad += [f"{path.name}:{node.lineno}: {name}" for name in names if name in backends]
    if part_of(path) == "_array":
        assert all("array_api_compat" in line for line in bad)
    else:
        assert not bad


@in_every_file
def test_frozen_records_are_set_in_post_init_only(path):
    """``object.__setattr__`` elsewhere would change what others believe to be frozen."""
    bad = []
    for function in ast.walk(tree_of(path)):
        if not isinstance(function, ast.FunctionDef) or function.name == "__post_init__":
            continue
        bad += [
            f"{path.name}:{node.lineno}"
            for node in ast.walk(function)
            if isinstance(node, ast.Attribute)
            and node.attr == "__setattr__"
            and isinstance(node.value, ast.Name)
            and node.value.id == "object"
        ]
    assert not bad


def private_names(part):
    """Private functions, methods and attributes that the files of a part define."""
    found = set()
    for path in FILES:
        if part_of(path) != part:
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return {name for name in found if is_private(name)}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


# Private parts of Python's own, which have no public counterpart
STANDARD = {"_fields", "_replace", "_asdict", "_make", "_processes", "_getframe", "_exit"}


@pytest.mark.parametrize("part", ORDER)
def test_a_part_uses_no_private_name_of_another(part):
    own, bad = private_names(part) | STANDARD, []
    for path in FILES:
        if part_of(path) != part:
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
                mine = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                if not mine:  # a hook of a class of another part that a subclass calls
                    bad.append(f"{path.relative_to(SOURCE)}:{node.lineno}: {node.attr}")
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lowtucker."):
                other = node.module.split(".")[1] != part
                bad += [
                    f"{path.relative_to(SOURCE)}:{node.lineno}: {name.name}"
                    for name in node.names
                    if other and is_private(name.name)
                ]
    assert not bad


LEAVES = {
    node.name
    for path in FILES
    if part_of(path) == "operators"
    for node in ast.walk(tree_of(path))
    if isinstance(node, ast.ClassDef) and node.name.endswith("Operator")
} - {"MeasurementOperator"}


@in_every_file
def test_operators_are_known_by_their_traits(path):
    """No ``isinstance`` of a kind of operator outside of ``operators``."""
    assert "EntriesOperator" in LEAVES
    if part_of(path) == "operators":
        return
    bad = [
        f"{path.name}:{node.lineno}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and any(isinstance(n, ast.Name) and n.id in LEAVES for n in ast.walk(node.args[1]))
    ]
    assert not bad


CORE = [part for parts in LEVELS[3:] for part in parts]


@partial(in_every_file, files=[path for path in FILES if part_of(path) in CORE])
def test_no_text_is_searched_to_decide_something(path):
    """``"restart" in phase``: what is decided by a word changes with the word."""
    bad = [
        f"{path.name}:{node.lineno}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Compare)
        and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops)
        and isinstance(node.left, ast.Constant)
        and isinstance(node.left.value, str)
        and not isinstance(node.comparators[0], ast.Set | ast.Tuple | ast.List)
        and ast.unparse(node.comparators[0]) not in NAMED
    ]
    assert not bad


# Mappings, whose keys are names and not texts
NAMED = {"history", "self.history", "sizes", "row", "columns", "f.numbers"}
