"""The page on real data shows the numbers that ``lowtucker bench realdata`` measured."""

from __future__ import annotations

import csv
import importlib.util
import re
from dataclasses import fields
from pathlib import Path

import pytest

from lowtucker.lab.bench.realdata import DEFAULT, NAMES, Row, chosen

DOCS = Path(__file__).parents[2] / "docs"
TABLE = DOCS / "realdata.csv"
GIVEN = {"work": "D1", "data": "car parks", "measure": "RMSE", "target": "", "met": "",
         "published": "", "note": "", "passes": "nan", "measured": "2026-11-17"}  # fmt: skip


@pytest.fixture(scope="module")
def directive():
    """Import the site's extension."""
    pytest.importorskip("sphinx")
    spec = importlib.util.spec_from_file_location("docs_realdata", DOCS / "_ext" / "realdata.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(**changed):
    return GIVEN | changed


def committed():
    with open(TABLE, newline="") as file:
        return list(csv.DictReader(file))


def test_lines_are_data_and_columns_are_methods(directive):
    rows = [
        row(method=DEFAULT, error="13.94", seconds="5.4", target="error <= 14, s <= 2",
            met="False", note="why; missed: s", published="BGCP 25.6"),
        row(method="means", error="237.8", seconds="0.004"),
        row(method=DEFAULT, error="0.2", seconds="1", data="other", measure="relative"),
    ]  # fmt: skip
    assert directive.pivoted(rows) == [
        ["data", DEFAULT, "means"],
        ["D1: car parks (RMSE)", "**13.9**<br>5.4 s", "238<br>< 0.1 s"],
        ["D1: other (relative)", "**0.2**<br>1 s", ""],
    ]
    assert directive.goals(rows) == [
        ["data", "goal", "published"],
        ["D1: car parks", "error <= 14, s <= 2: missed (s)", "BGCP 25.6"],
    ]


def test_columns_without_content_are_left_out_and_the_best_is_bold(directive):
    rows = [
        row(method=DEFAULT, error="0.5", seconds="2", passes="39.4", met="True",
            target="error <= 1, passes <= 40"),
        row(method="TIHT", error="0.4", seconds="1"),
    ]  # fmt: skip
    assert directive.pivoted(rows)[1][1:] == ["0.5<br>2 s, 39 passes", "**0.4**<br>1 s"]
    goal = "error <= 1, passes <= 40: reached"
    assert directive.goals(rows) == [["data", "goal"], ["D1: car parks", goal]]
    assert directive.goals([*rows[1:], row(method=DEFAULT, error="1", seconds="1")]) == []


def test_data_that_were_not_available_are_marked(directive):
    rows = [row(method=DEFAULT, error="nan", seconds="nan", target="error <= 1")]
    assert directive.pivoted(rows)[1][1:] == ["not available"]


def test_table_is_markdown(directive):
    text = directive.markdown([["a", "b"], ["1", "2"]])
    assert text == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_committed_table_is_of_the_present_benchmark():
    rows = committed()
    assert list(rows[0]) == [one.name for one in fields(Row)]
    ours = [(r["work"], r["data"], r["published"]) for r in rows if r["method"] == DEFAULT]
    assert ours == [(one.name, one.what, one.published) for one in chosen(NAMES)]
    assert all(float(r["error"]) > 0 for r in rows), "a row was skipped"


def test_page_shows_every_yardstick():
    page = (DOCS / "realdata.md").read_text()
    shown = " ".join(re.findall(r"```{realdata} (.*)\n", page)).split()
    assert sorted(shown) == sorted(NAMES)


@pytest.mark.slow
def test_site_shows_the_committed_numbers(site):
    html = Path(site / "realdata.html").read_text()
    for one in committed():
        assert f"{float(one['error']):.3g}" in html
        assert one["measured"] in html
