"""The examples run, and recover what they say: main([]) gives the relative error."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# script -> the largest error that it may end with
ERRORS = {"coded_aperture": 1e-4, "torch_device": 1e-5}


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(ERRORS)


@pytest.mark.parametrize("name", ERRORS)
def test_an_example_recovers(name, capsys):
    error = load(name).main([])
    assert isinstance(error, float)
    assert error < ERRORS[name]
    assert capsys.readouterr().out


def test_the_picture_of_coded_aperture_is_made_when_asked_for(tmp_path):
    pytest.importorskip("matplotlib")
    load("coded_aperture").main(["--plot", str(tmp_path / "out.png")])
    assert (tmp_path / "out.png").stat().st_size > 1000
