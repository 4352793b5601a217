"""`bench compare`: rows have the errors of plain calls, and the table is Markdown."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli import main
from lowtucker.lab.bench import compare, datasets
from lowtucker.lab.bench.compare import Holed, Measured
from lowtucker.lab.bench.datasets import Completion, Source
from lowtucker.lab.bench.imputers import SIMPLE

pytest.importorskip("tensorly")
pytest.importorskip("sklearn")

SHAPE, RANK = (6, 5, 7), (1, 1, 1)


def low_rank():
    return lt.random_tucker(SHAPE, RANK, seed=3).full()


@pytest.fixture
def few(monkeypatch):
    """Two small problems, and no warm-up."""
    source = Source(lambda folder: None, "nowhere", lambda folder: 10 + low_rank())
    monkeypatch.setattr(datasets, "SOURCES", {"small": source})
    monkeypatch.setattr(compare, "_warm_up", lambda problems: None)
    task = Completion(name="holes", what="small, holes", source="small", rate=0.3)
    problems = {
        "holes": Holed(task, (SIMPLE,)),
        "measured": Measured("small, measured", low_rank, 100, RANK, (0.3,)),
    }
    monkeypatch.setattr(compare, "PROBLEMS", problems)
    monkeypatch.setattr(compare, "NAMES", tuple(problems))
    return problems


def test_every_contender_has_a_row(few):
    rows = list(compare.run(few))
    assert [row.method for row in rows] == [
        "lowtucker", "SimpleImputer", "lowtucker", "lowtucker, rank given", "PyLops lsqr",
        "TIHT, published", "StoTIHT, published", "StoTIHT, tuned", "TensorLy TuckerRegressor",
    ]  # fmt: skip
    assert [row.given for row in rows if row.method == "lowtucker"] == ["nothing"] * 2
    assert all(row.ratio == 1 for row in rows if row.method == "lowtucker")
    found = {row.method: row for row in rows if row.problem == "measured"}
    # the call stops at a residual of 1e-6, its default
    assert found["lowtucker, rank given"].error < 1e-5
    assert found["StoTIHT, tuned"].error <= compare.TOL


def test_a_call_that_the_time_limit_cuts_short_says_so(few, monkeypatch):
    monkeypatch.setattr(compare, "recover", partial(lt.recover, max_seconds=1e-9))
    runs = {one.method: one.run for one in few["measured"].contenders()}
    assert runs["lowtucker, rank given"]().note == "MAX_SECONDS, stopped at the time limit"


def test_least_norm_is_that_of_numpy(few):
    pytest.importorskip("pylops")
    rows = {row.method: row for row in compare.run({"measured": few["measured"]})}
    A, truth = lt.gaussian(SHAPE, 100, seed=0), low_rank()
    x = np.linalg.lstsq(A.matrix, A.forward(truth), rcond=None)[0]
    expected = lt.metrics.relative_error(x.reshape(SHAPE), truth)
    assert rows["PyLops lsqr"].error == pytest.approx(float(expected), rel=1e-4)
    assert rows["PyLops lsqr"].error > 0.3


def test_simple_imputer_is_scored_on_hidden_entries(few):
    task = few["holes"].task
    holes = task.holes(Path())
    (_, theirs) = compare.run({"holes": few["holes"]})
    assert theirs.error == pytest.approx(task.error(SIMPLE(holes).X, holes))


def test_missing_package_leaves_a_note_and_no_line_in_the_table(few, monkeypatch):
    def missing(A):
        raise ImportError("to_pylops needs PyLops, which is not installed.")

    monkeypatch.setattr(compare, "to_pylops", missing)
    rows = list(compare.run({"measured": replace(few["measured"], steps=(0.3,))}))
    (row,) = (row for row in rows if row.method == "PyLops lsqr")
    assert math.isnan(row.error)
    assert row.note.startswith("not run: to_pylops needs PyLops")
    assert "PyLops" not in compare.markdown(rows)


def test_command_writes_table_csv_and_markdown(few, tmp_path):
    out = [tmp_path / "rows.csv", tmp_path / "rows.md"]
    done = CliRunner().invoke(
        main, ["bench", "compare", "--only", "holes", "--csv", str(out[0]), "--markdown",
               str(out[1])],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "SimpleImputer" in done.output
    lines = out[1].read_text().splitlines()
    assert lines[0].startswith("| data | method | given | error |")
    assert all(line.count("|") == 7 for line in lines)
    assert len(lines) == 4
    assert out[0].read_text().startswith("problem,data,method,given,error,seconds,ratio,note,")


def test_unknown_problem_is_named():
    with pytest.raises(ValueError, match=r"'photo'. Choose from photograph, il2, kinetic"):
        compare.chosen(["photo"])
