"""The paper's figures on the page, reduced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtucker.lab.app.limits import Limits
from lowtucker.lab.app.problems import code
from lowtucker.lab.app.settings import FIGURES, parsed
from lowtucker.lab.app.tasks import run
from small_paper import small_paper


def tiny_paper():
    paper = small_paper()
    two = {"ranks": ((1, 2, 2), (1, 1, 2)), "epochs": 20}
    return replace(
        paper,
        few=replace(paper.few, measurements=(18, 102), **two),
        many=replace(paper.many, measurements=(460,), **two),
        epochs=replace(paper.epochs, measurements=(460,), **two),
    )


@pytest.mark.parametrize("name", FIGURES)
def test_figure_has_the_rows_of_its_code(name, monkeypatch):
    monkeypatch.setattr("lowtucker.lab.experiments.figures.Paper", tiny_paper)
    values = {"tab": "phase", "preset": name, "trials": "2", "seed": "0"}
    events = []
    run({"limits": Limits().to_json(), "values": values}, lambda *event: events.append(event))
    told = dict(events[:1])["problem"]
    rows = [row for kind, content in events if kind == "rows" for row in content["rows"]]
    names = {}
    exec(code(parsed(values, Limits())), names)
    table = [list(row.values()) for row in names["table"]]
    timed = name == "fig2"
    if timed:  # seconds differ
        rows, table = ([[*row[:2], *row[3:]] for row in part] for part in (rows, table))
    rows, table = (sorted(part, key=str) for part in (rows, table))
    clean = [[None if value != value else value for value in row] for row in table]
    assert rows == clean
    assert told["columns"] == list(names["figure"].columns)
    assert any(kind == "frames" for kind, _ in events) == (name == "fig6")


def test_matrix_of_the_paper_is_rejected_without_enough_memory(monkeypatch):
    monkeypatch.setattr("lowtucker._array.memory.available_memory", lambda: 10**9)
    values = {"tab": "phase", "preset": "fig7"}
    with pytest.raises(MemoryError, match=r"the matrix takes 1\.1 GB, 1\.0 are free"):
        run({"limits": Limits().to_json(), "values": values}, lambda *event: None)
