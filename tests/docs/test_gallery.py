"""Every example of the gallery runs, draws, and holds what it says, by asserts of its own."""

from __future__ import annotations

import ast
import os
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = sorted((REPOSITORY / "examples" / "gallery").glob("*.py"))
CANDLE = REPOSITORY.parent / "shared" / "data" / "candle_5_A.mat"
# script -> what it needs beside lowtucker and matplotlib
NEEDS = {
    "plot_03_hyperspectral": ["tensorly"],
    "plot_04_holes": ["tensorly"],
    "plot_06_regression": ["sklearn"],
    "plot_09_cluster": ["dask", "distributed"],
}


def run(script, folder, monkeypatch):
    """Run a script as ``python script.py`` does, in another folder; its globals and figures."""
    for package in ("matplotlib", *NEEDS.get(script.stem, [])):
        pytest.importorskip(package)
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.use("Agg")
    monkeypatch.chdir(folder)
    plt.close("all")
    try:
        made = runpy.run_path(str(script), run_name="__main__")
        return made, len(plt.get_fignums())
    finally:
        plt.close("all")


def test_there_are_the_examples_that_the_site_promises():
    topics = {script.stem.split("_", 2)[2] for script in SCRIPTS}
    assert topics == {
        "first_recovery", "candle", "hyperspectral", "holes", "coded_aperture", "regression",
        "own_operator", "larger_than_memory", "cluster", "from_matlab",
    }  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_checks_itself(script):
    checks = [node for node in ast.walk(ast.parse(script.read_text())) if type(node) is ast.Assert]
    assert checks, f"{script.name} claims nothing that could fail"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_runs_and_draws(script, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("LOWTUCKER_CANDLE", raising=False)
    made, figures = run(script, tmp_path, monkeypatch)
    assert figures > 0
    assert capsys.readouterr().out
    assert os.listdir(tmp_path) == [], "an example leaves files behind"
    if script.stem == "plot_02_candle":
        assert made["clip"].synthetic


@pytest.mark.slow
def test_the_candle_is_that_of_the_authors_where_it_is_at_hand(tmp_path, monkeypatch, capsys):
    if not CANDLE.exists():
        pytest.skip(f"the candle clip is third-party data and not at {CANDLE}")
    monkeypatch.setenv("LOWTUCKER_CANDLE", str(CANDLE))
    script = next(script for script in SCRIPTS if script.stem == "plot_02_candle")
    run(script, tmp_path, monkeypatch)
    assert "the authors' candle" in capsys.readouterr().out
