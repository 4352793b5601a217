"""A playground shared by the tests of a process."""

from __future__ import annotations

import pytest

from app.served import playground


@pytest.fixture(scope="session")
def server():
    """A playground with its default limits, started by the command."""
    with playground() as served:
        yield served
