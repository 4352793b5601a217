"""Run a notebook in a real kernel: progress bar and display of a result."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

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
    assert "Result: recovered" in html[1]
    assert "<svg" in html[1]
    assert not [o for o in outputs if o.output_type == "error"]
