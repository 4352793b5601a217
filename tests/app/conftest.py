"""One playground and one browser for the tests of a process."""

from __future__ import annotations

import shutil

import pytest

from app.served import playground


@pytest.fixture(scope="session")
def server():
    """A playground with its own limits, started by the command."""
    with playground() as served:
        yield served


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium."""
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
