"""The page on formats shows the numbers that ``lowtucker bench family`` measured."""

from __future__ import annotations

import csv
import importlib.util
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import lowtucker as lt
from lowtucker.lab.bench.family import Point, read
from lowtucker.lab.bench.family_claims import CLAIMS, Judged
from lowtucker.lab.bench.family_plot import PANELS, RATIO
from lowtucker.lab.bench.family_series import NAMES, name_of, standard

DOCS = Path(__file__).parents[2] / "docs"
POINTS, STATED = DOCS / "family" / "points.csv", DOCS / "family" / "claims.csv"


@pytest.fixture(scope="module")
def directive():
    """Import the site's extension."""
    pytest.importorskip("sphinx")
    sys.path.insert(0, str(DOCS / "_ext"))
    spec = importlib.util.spec_from_file_location("docs_family", DOCS / "_ext" / "family.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(DOCS / "_ext"))
    return module


def claims():
    with open(STATED, newline="") as file:
        return list(csv.DictReader(file))


def test_committed_points_are_of_the_present_benchmark():
    points = read(POINTS, Point)
    found = {(p.panel, p.method, p.m, p.trials) for p in points if name_of(p.panel) != "trimmed"}
    wanted = {(s.panel, s.method, m, s.trials) for s in standard() for m in s.measurements()}
    assert found == wanted
    assert {name_of(p.panel) for p in points} == set(NAMES)


def test_committed_claims_are_the_present_ones_and_judged():
    rows = claims()
    assert list(rows[0]) == [one.name for one in fields(Judged)]
    assert [(r["name"], r["claim"], r["source"]) for r in rows] == [
        (c.name, c.text, c.source) for c in CLAIMS
    ]
    assert all(r["verdict"] in ("supported", "refuted", "mixed") and r["numbers"] for r in rows)


def test_committed_claims_follow_from_the_committed_points():
    points = read(POINTS, Point)
    judged = {(r["name"], r["claim"]): r["numbers"] for r in claims()}
    for claim in CLAIMS:
        if claim.check.__module__.endswith("family_claims"):  # others are experiments
            own = [p for p in points if name_of(p.panel) == claim.name]
            assert judged[claim.name, claim.text] == claim.check(own, False).numbers


def test_page_shows_every_verdict():
    page = (DOCS / "family.md").read_text()
    shown = " ".join(re.findall(r":verdicts: (.*)\n", page)).split()
    assert sorted(shown) == ["mixed", "refuted", "supported"]


def test_formats_of_the_page_exist():
    page = (DOCS / "family.md").read_text()
    for name in re.findall(r"`(?:lt\.)(\w+)", page):
        assert name == "theory" or name in lt.__all__


def test_halves_are_those_of_the_points(directive):
    lines = directive.halves(read(POINTS, Point))
    assert len(lines) == 1 + sum(p != RATIO and not p.startswith("trimmed") for p in PANELS)
    assert lines[0] == ["diagram", "degrees of freedom", "ancestors", "default"]
    assert lines[1][1] == "5"
    assert lines[1][2].startswith("IHT ")


def test_claims_are_a_table(directive):
    lines = directive.claims(claims())
    assert len(lines) == 1 + len(CLAIMS)
    assert {len(line) for line in lines} == {4}
