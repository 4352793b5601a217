"""What is packed: the sdist has what its tests need."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


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
