"""A small run of all figures."""

from __future__ import annotations

import pytest

from lowtucker.lab.experiments.reproduce import Reproduction
from small_paper import small_paper

NAMES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "shrinkage", "tuned")


@pytest.fixture(scope="session")
def reproduction(tmp_path_factory):
    """All files of a small ``lowtucker reproduce all``."""
    run = Reproduction(NAMES, tmp_path_factory.mktemp("all"), trials=2, paper=small_paper())
    claims = run.run(run.pending())
    return run, claims
