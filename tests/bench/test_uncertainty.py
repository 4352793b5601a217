"""The benchmark of error bars: its rows count what is covered, and the command what was asked for.

No test asserts that bars are right: that is what the benchmark measures.
"""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli.main import main
from lowtucker.lab.bench import coverage_real, uncertainty
from lowtucker.lab.bench.coverage_real import CoverageRow, covered
from lowtucker.lab.bench.datasets import Holes
from lowtucker.lab.bench.uncertainty import Setting, row_of

TINY = [Setting(kind, 5, 0.05, (5, 4, 6), (1, 2, 2)) for kind in uncertainty.KINDS]
ROW = row_of(TINY[0], [(0.95, 0.95, 1.0)])
REAL = CoverageRow("D1", "some", 9, 8, 0.9, 0.9, 1.0, 0.9, (0.9,) * 4, 0.1, 0.2, 1.0, met=True)


# F1: synthetic tensors


@pytest.mark.parametrize("setting", TINY, ids=uncertainty.KINDS)
def test_runs_are_pure_functions_of_the_seed(setting):
    first = uncertainty.covered(setting, 2)
    assert first == uncertainty.covered(setting, 2)
    assert first[:1] == uncertainty.covered(setting, 1)
    for entries, functionals, width in first:
        assert entries * uncertainty.ENTRIES == pytest.approx(round(entries * uncertainty.ENTRIES))
        assert 0 <= functionals <= 1
        assert width > 0


@pytest.mark.parametrize(("factor", "share"), [(0.0, 0.0), (1e6, 1.0)])
def test_coverage_counts_what_is_inside(monkeypatch, factor, share):
    """Bars without width cover nothing, very wide ones everything."""
    quantile = uncertainty.Uncertainty.interval

    def scaled(self, indices, level):
        low, high = quantile(self, indices, level)
        middle, half = (low + high) / 2, factor * (high - low) / 2
        return middle - half, middle + half

    monkeypatch.setattr(uncertainty.Uncertainty, "interval", scaled)
    ((entries, _, width),) = uncertainty.covered(TINY[0], 1)
    assert entries == share
    assert width == 0 if not factor else width > 1e5


@pytest.mark.parametrize(
    ("found", "met"),
    [
        ([(0.94, 0.96, 1.0), (0.96, 0.94, 1.04)], True),
        ([(0.90, 0.95, 1.0), (0.92, 0.95, 1.0)], False),
        ([(0.95, 1.0, 1.0), (0.95, 0.98, 1.0)], False),
        ([(0.95, 0.95, 1.06), (0.95, 0.95, 1.06)], False),
    ],
)
def test_a_row_has_means_and_the_median_width(found, met):
    row = row_of(TINY[1], found)
    assert (row.runs, row.met) == (2, met)
    assert row.entries == pytest.approx(np.mean([one[0] for one in found]))
    assert row.functionals == pytest.approx(np.mean([one[1] for one in found]))
    assert row.width == pytest.approx(np.median([one[2] for one in found]))
    spread = max(np.std([one[k] for one in found]) for k in (0, 1))
    assert row.error == pytest.approx(spread / math.sqrt(2))
    assert row.what == f"F1 rank-one m = {TINY[1].m}, noise 5%"


# F2: real data


def test_hidden_entries_are_counted():
    rng = np.random.default_rng(0)
    truth = lt.random_tucker((12, 11, 10), (1, 1, 1), seed=0).full()
    truth = truth / np.std(truth) + 0.1 * rng.standard_normal(truth.shape)
    hidden = rng.random(truth.shape) < 0.3
    holes = Holes(truth, hidden, np.arange(truth.size).reshape(truth.shape))
    row = covered("D0", "noise", holes)
    result = lt.complete(holes.array)
    low, high = result.interval(np.argwhere(hidden), 0.9, method="conformal")
    inside = (low <= truth[hidden]) & (truth[hidden] <= high)
    assert (row.hidden, row.coverage) == (hidden.sum(), pytest.approx(inside.mean()))
    assert row.met is (abs(row.coverage - 0.9) <= 0.02)
    assert len(row.quarters) == 4
    assert np.mean(row.quarters) == pytest.approx(row.coverage, abs=0.01)


def test_data_that_are_missing_are_skipped_with_the_reason(tmp_path):
    rows = list(coverage_real.rows(tmp_path, ("D1",)))
    assert len(rows) == 2
    for row in rows:
        assert row.note.startswith("skipped: ")
        assert "Birmingham.mat does not exist; it comes from" in row.note
        assert row.met is None
        assert math.isnan(row.coverage)


# The command


def invoke(*options):
    return CliRunner().invoke(main, ["bench", "uncertainty", *map(str, options)])


@pytest.fixture
def asked(monkeypatch):
    """What the command asked for, instead of runs."""
    calls = []

    def run(runs):
        calls.append(("F1", runs))
        return [ROW]

    def rows(folder):
        calls.append(("F2", folder))
        return [REAL, replace(REAL, data="others", met=None, note="skipped: no such file")]

    monkeypatch.setattr(uncertainty, "run", run)
    monkeypatch.setattr(coverage_real, "rows", rows)
    return calls


@pytest.mark.parametrize(("options", "runs"), [((), 250), (("--quick",), 25), (("--trials", 7), 7)])
def test_command_runs_so_many(asked, options, runs):
    assert invoke("--only", "f1", *options).exit_code == 0
    assert asked == [("F1", runs)]


def test_command_writes_rows_of_both_kinds_to_one_file(asked, tmp_path):
    pytest.importorskip("tensorly")
    file = tmp_path / "rows.csv"
    done = invoke("--data", tmp_path, "--csv", file)
    assert done.exit_code == 0, done.output
    assert asked == [("F1", 250), ("F2", tmp_path)]
    assert "D1 some: coverage 90.0%" in done.output
    assert "D1 others: skipped: no such file" in done.output
    assert "nan" not in done.output
    with open(file, newline="") as lines:
        first, second, third = csv.DictReader(lines)
    assert (first["work"], first["entries"], first["coverage"]) == ("F1", "0.95", "")
    assert (second["work"], second["entries"], second["coverage"]) == ("D1", "", "0.9")
    assert (third["met"], third["note"]) == ("", "skipped: no such file")


def test_command_exits_with_3_where_a_target_is_missed(monkeypatch):
    monkeypatch.setattr(uncertainty, "run", lambda runs: [ROW, replace(ROW, met=False)])
    assert invoke("--only", "F1").exit_code == 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--only", "F3"), "Unknown yardstick 'F3'. Choose from F1, F2."),
        (("--data", "nowhere"), "--data nowhere is not a folder"),
        (("--jobs", "2"), "--jobs is not an option of uncertainty, but of verdict"),
    ],
)
def test_invalid_options_are_rejected(options, text):
    done = invoke(*options)
    assert done.exit_code == 2
    assert text in done.output
