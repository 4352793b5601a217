"""The page "Reading a result" shows each status by a run that ends with it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import lowtucker as lt

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def statuses():
    """Import the site's extension."""
    pytest.importorskip("sphinx")
    spec = importlib.util.spec_from_file_location("docs_statuses", DOCS / "_ext" / "statuses.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SHOWN = re.findall(r"```\{status\} (\w+)", (DOCS / "reading.md").read_text())


def test_each_status_has_a_section():
    # one that the truth decided is for experiments
    assert {*SHOWN, "ERROR_REACHED"} == set(lt.Status.__members__)
    headings = re.findall("^### (.*)$", (DOCS / "reading.md").read_text(), re.MULTILINE)
    assert headings == SHOWN


@pytest.mark.parametrize("name", SHOWN)
def test_the_run_ends_with_the_status_and_is_drawn(statuses, name):
    result, error, truth = statuses.result_of(name)
    # a local minimum is told from other endings by the checks of `recover`
    assert result.status.name == name
    assert result.success == (name in ("CONVERGED", "NOISE_FLOOR", "APPROXIMATED"))
    if result.success:
        assert error < 4 * result.error_estimate
    if name == "APPROXIMATED":
        assert statuses.slices(result, truth).count("data:image/png;base64,") == 3
    drawn = ElementTree.fromstring(statuses.picture(result, error))
    (curve,) = drawn.iter("polyline")
    points = [tuple(map(float, point.split(","))) for point in curve.get("points").split()]
    assert len(points) == result.history.rows
    assert all(0 <= x <= statuses.WIDTH and 0 <= y <= statuses.HEIGHT for x, y in points)
