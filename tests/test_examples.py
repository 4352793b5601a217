"""The example scripts run and recover their tensors: main([]) returns the relative error."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# script -> largest acceptable error
ERRORS = {"coded_aperture": 1e-4, "torch_device": 1e-5}


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(ERRORS)


@pytest.mark.parametrize("name", ERRORS)
def test_example_recovers_its_tensor(name, capsys):
    error = load(name).main([])
    assert isinstance(error, float)
    assert error < ERRORS[name]
    assert capsys.readouterr().out


def test_coded_aperture_saves_a_figure_if_requested(tmp_path):
    pytest.importorskip("matplotlib")
    load("coded_aperture").main(["--plot", str(tmp_path / "out.png")])
    assert (tmp_path / "out.png").stat().st_size > 1000
