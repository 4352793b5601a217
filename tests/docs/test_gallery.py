"""Every gallery example runs, draws figures, and checks its claims by its own asserts."""

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
# script -> required packages other than lowtucker and matplotlib
NEEDS = {
    "plot_03_hyperspectral": ["tensorly"],
    "plot_04_holes": ["tensorly"],
    "plot_06_regression": ["sklearn"],
    "plot_09_cluster": ["dask", "distributed"],
    "plot_15_error_bars": ["tensorly"],
}


def run(script, folder, monkeypatch):
    """Run a script as ``python script.py`` does, in another folder; return globals and figures."""
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


def test_gallery_has_all_topics_listed_on_the_site():
    topics = {script.stem.split("_", 2)[2] for script in SCRIPTS}
    assert topics == {
        "first_recovery", "candle", "hyperspectral", "holes", "coded_aperture", "regression",
        "own_operator", "larger_than_memory", "cluster", "from_matlab",
        "spikes", "many_columns", "tensor_train", "tubal_video", "error_bars", "tracking",
    }  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example_contains_asserts(script):
    checks = [node for node in ast.walk(ast.parse(script.read_text())) if type(node) is ast.Assert]
    assert checks, f"{script.name} has no assert"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example_runs_and_draws(script, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("LOWTUCKER_CANDLE", raising=False)
    made, figures = run(script, tmp_path, monkeypatch)
    assert figures > 0
    assert capsys.readouterr().out
    assert os.listdir(tmp_path) == [], "the example leaves files behind"
    if script.stem == "plot_02_candle":
        assert made["clip"].synthetic


@pytest.mark.slow
def test_candle_example_uses_the_authors_clip_if_available(tmp_path, monkeypatch, capsys):
    if not CANDLE.exists():
        pytest.skip(f"the candle clip is third-party data and not available at {CANDLE}")
    monkeypatch.setenv("LOWTUCKER_CANDLE", str(CANDLE))
    script = next(script for script in SCRIPTS if script.stem == "plot_02_candle")
    run(script, tmp_path, monkeypatch)
    assert "the authors' candle" in capsys.readouterr().out
