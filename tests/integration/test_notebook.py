"""Run a notebook in a real kernel: progress bar and display of a result."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import lowtucker as lt
from lowtucker.run.notebook import convergence

CODE = """
import lowtucker as lt
A = lt.gaussian((5, 5, 6), m=120, seed=1)
y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))
result = lt.recover(A, y, rank=(1, 2, 2), callbacks=[lt.ProgressBar("my run")])
result
"""


# the libraries of the kernel issue unrelated warnings
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning:zmq")
def test_notebook_shows_a_bar_and_the_result(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE)])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = notebook.cells[0].outputs
    html = [o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {})]
    assert "my run <progress value=" in html[0]
    assert "residual" in html[0]
    assert ">recovered</strong>" in html[1]
    assert "<svg" in html[1]
    assert not [o for o in outputs if o.output_type == "error"]


SHAPE, RANK = (5, 5, 6), (1, 2, 2)


def measured(noise=0.0):
    A = lt.gaussian(SHAPE, m=120, seed=1)
    y = A.forward(lt.random_tucker(SHAPE, RANK, seed=0))
    return A, y + noise * np.random.default_rng(0).standard_normal(120)


def parsed(html):
    """Elements of HTML that is also XML: every tag is closed, and all text is escaped."""
    return ElementTree.fromstring(html.replace("<br>", "<br/>"))


def texts(html):
    return " ".join(" ".join(parsed(html).itertext()).split())


def test_failure_shows_its_verdict_advice_and_the_next_call():
    html = lt.recover(*measured(0.001), (1, 1, 1))._repr_html_()
    assert "not recovered: rank too small" in texts(html)
    assert "RANK_TOO_SMALL Rank (1, 2, 2) predicts held-out measurements better." in texts(html)
    code = [one.text for one in parsed(html).iter("code")]
    assert code == ["lt.recover(A, y, rank=(1, 2, 2))"]


def test_plot_has_a_curve_in_logarithms_and_a_mark_for_every_phase():
    result = lt.recover(*measured(0.001), RANK, X_true=lt.random_tucker(SHAPE, RANK, seed=0))
    picture = ElementTree.fromstring(convergence(result.history))
    curves = [one.get("points").split() for one in picture.iter("polyline")]
    assert [len(points) for points in curves] == [result.history.rows] * 2  # residual and error
    heights = np.array([float(point.split(",")[1]) for point in curves[0]])
    logs = np.log10(result.history["residual"])
    np.testing.assert_allclose(np.corrcoef(heights, logs)[0, 1], -1, atol=1e-3)
    names = [one.text.split(",")[0] for one in picture.iter("title")]
    assert names == list(dict.fromkeys(result.history["phase"].tolist()))


def test_batch_has_a_row_for_each_kind_of_ending():
    A, y = measured()
    html = lt.recover(A, np.stack([y, y + measured(0.01)[1], 1e9 * y]), RANK)._repr_html_()
    tables = list(parsed(html).iter("table"))
    cells = [[" ".join(td.itertext()) for td in row.iter("td")] for row in tables[-1].iter("tr")]
    assert sum(int(row[1].split()[0]) for row in cells[1:]) == 3
    assert len(list(parsed(html).iter("polygon"))) == 1


def test_every_text_is_escaped():
    result = lt.recover(*measured(), RANK)
    evil = "<script>alert('x')</script>"
    rows = dict(result.history) | {"phase": np.array([evil[:30]] * result.history.rows)}
    found = (lt.Finding("remark", evil), lt.Finding("close", evil, borderline=True))
    named = replace(
        result, solver=evil, findings=found, history=type(result.history).of(rows)
    )._repr_html_()
    assert "<script" not in named
    assert named.count("&lt;script") >= 4


def test_curves_of_failed_runs_are_drawn_as_far_as_they_go():
    history = lt.recover(*measured(), RANK).history
    for values in ([np.nan] * 3, [1.0, np.inf, np.nan], [0.0, 0.0, 0.0], [1.0, 1e200, 1e300]):
        rows = {"epoch": [0, 1, 2], "residual": values, "phase": ["TIHT"] * 3}
        text = convergence(type(history).of(rows))
        assert "nan" not in text
        assert "inf" not in text
    assert convergence(type(history).of({"epoch": [0], "residual": [1.0], "phase": ["a"]})) == ""


def test_notebook_repr_imports_no_matplotlib():
    code = (
        "import sys, lowtucker as lt\n"
        "A = lt.gaussian((5, 5, 6), m=120, seed=1)\n"
        "y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))\n"
        "lt.recover(A, y, (1, 2, 2))._repr_html_()\n"
        "print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
