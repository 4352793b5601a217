"""Fixtures: the documentation site, built once per session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
GENERATED = shutil.ignore_patterns("_build", "generated", "__pycache__")


@pytest.fixture(scope="session")
def site(tmp_path_factory, build):
    """Folder of the built site: LOWTUCKER_SITE (after ``make docs``), or a new build."""
    for package in ("sphinx", "myst_parser", "sphinx_gallery", "pydata_sphinx_theme", "numpydoc"):
        pytest.importorskip(package)
    if "LOWTUCKER_SITE" in os.environ:
        return (REPOSITORY / os.environ["LOWTUCKER_SITE"]).resolve()
    root = tmp_path_factory.mktemp("site")
    source = copy_of_sources(root)
    built = build(source, root / "html", "-n")
    assert built.returncode == 0, built.stderr[-5000:]
    return root / "html"


def copy_of_sources(root):
    """Copy the sources of the site without generated files."""
    shutil.copytree(REPOSITORY / "docs", root / "docs", ignore=GENERATED)
    shutil.rmtree(root / "docs" / "gallery", ignore_errors=True)
    shutil.copytree(REPOSITORY / "examples", root / "examples", ignore=GENERATED)
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        shutil.copy(REPOSITORY / name, root / name)
    return root / "docs"


@pytest.fixture(scope="session")
def build():
    """Run Sphinx as in ``make docs``: warnings are errors."""
    pytest.importorskip("sphinx")

    def run(source, target, *options):
        command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", *options, source, target]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run
