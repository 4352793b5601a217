"""What is packed and declared: the sdist has what its tests need, and lower bounds are tested."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
# Extras that `make minimum` does not install: large array libraries, and developers' tools
NOT_AT_MINIMUM = {"torch", "jax", "docs", "dev"}


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Paths in the sdist, relative to its folder."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: make dist")
    folder = tmp_path_factory.mktemp("sdist")
    code = "import hatchling.build as b, sys; b.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, check=True, capture_output=True)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        return {name.split("/", 1)[-1] for name in file.getnames()}


def test_sdist_has_every_committed_file(packed):
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a clone")
    assert {name for name in listed.stdout.split() if name != ".gitignore"} - packed == set()


def test_sdist_has_nothing_that_was_generated(packed):
    parts = ("_build/", "__pycache__/", "generated/", ".venv", "docs/gallery/")
    assert [name for name in packed if any(part in name for part in parts)] == []


def declared():
    """What a user installs, as pyproject.toml requires it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [line for name in extras.keys() - NOT_AT_MINIMUM for line in extras[name]]
    requirements = [Requirement(line) for line in [*project["dependencies"], *lines]]
    return [each for each in requirements if each.name != project["name"]]


def pinned(name):
    """Pins of a file of constraints, up to those that only other pins need."""
    text, _, _ = (ROOT / name).read_text(encoding="utf-8").partition("# Needed by these")
    return [Requirement(line) for line in text.splitlines() if not line.startswith("#")]


def versions(requirements, operator):
    """Versions by normalised name: every requirement has one with that operator."""
    found = {}
    for each in requirements:
        (version,) = [s.version for s in each.specifier if s.operator == operator]
        known = found.setdefault(canonicalize_name(each.name), Version(version))
        assert known == Version(version), f"{each.name} is listed twice, with two versions"
    return found


def test_minimum_constraints_pin_every_dependency_to_its_lower_bound():
    assert versions(pinned("constraints-minimum.txt"), "==") == versions(declared(), ">=")


def test_constraints_pin_every_dependency_to_an_allowed_version():
    pins = versions(pinned("constraints.txt"), "==")
    for each in declared():
        assert pins[canonicalize_name(each.name)] in each.specifier, each
