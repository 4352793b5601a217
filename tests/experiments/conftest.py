"""One small run of all figures, and a browser to open its report."""

from __future__ import annotations

import shutil

import pytest

from lowtucker.experiments.reproduce import Reproduction
from small_paper import small_paper

NAMES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "tuned")


@pytest.fixture(scope="session")
def reproduction(tmp_path_factory):
    """Everything that ``lowtucker reproduce all`` writes, in small."""
    run = Reproduction(NAMES, tmp_path_factory.mktemp("all"), trials=6, paper=small_paper())
    claims = run.run(run.pending())
    return run, claims


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, without network of its own."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium here; on Debian: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield started
        started.close()
