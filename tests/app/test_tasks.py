"""Events of a run."""

from __future__ import annotations

import base64
import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.lab.app import tasks
from lowtucker.lab.app.limits import Limits
from lowtucker.lab.app.pictures import standard_errors
from lowtucker.lab.app.problems import code
from lowtucker.lab.app.settings import parsed
from lowtucker.run import Progress


@pytest.fixture
def watch(monkeypatch):
    """A callback whose clock advances by a second per reading."""
    monkeypatch.setattr(tasks, "POINTS", 0)
    monkeypatch.setattr(tasks, "PICTURES", 0)
    clock = itertools.count()
    monkeypatch.setattr(tasks, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    X_true, events = lt.random_tucker((4, 4, 3), (1, 1, 1), seed=0), []
    made = tasks._Watch("auto", X_true, X_true.full(), lambda *event: events.append(event))

    def told(epoch, residual, factor=1.0):
        made(Progress(epoch, epoch, residual, SimpleNamespace(X=X_true * factor)))
        return events

    return told


def test_pictures_show_the_best_iterate(watch):
    for epoch, residual in enumerate([0.5, 0.9, 0.7, 0.3], 1):
        events = watch(epoch, residual)
    kinds = [kind for kind, _ in events]
    assert kinds == ["start", "points", "picture", "points", "points", "points", "picture"]


def test_points_have_the_error_and_the_time_of_the_solver(watch):
    watch(1, 0.5, factor=1.5)
    events = watch(2, 0.2, factor=1.25)
    points = [point for kind, told in events if kind == "points" for point in told["points"]]
    assert [point[:2] for point in points] == [[1, 1], [2, 2]]
    assert [point[2] for point in points] == [1, 2]  # a second between two calls
    assert [point[4] for point in points] == pytest.approx([0.5, 0.25])


def sent_bars(**change):
    """The event of a run's standard errors, and the result of the same call."""
    values = {"tab": "synthetic", "shape": "6,5,4", "rank": "2,2,1", "solvers": "auto",
              "noise": "0.05", "ratio": "4"} | change  # fmt: skip
    limits, events = Limits(), []
    tasks.run({"limits": limits.to_json(), "values": values}, lambda *event: events.append(event))
    names = {}
    exec(code(parsed(values, limits)), names)
    (bars,) = (content for kind, content in events if kind == "bars")
    return events, bars, names["results"]["auto"]


def test_standard_errors_are_those_of_the_result():
    _, bars, result = sent_bars()
    error = result.standard_error(np.argwhere(np.ones((6, 5, 4)))).reshape(6, 5, 4)
    shown = bars["standard_error"]
    assert (shown["low"], shown["high"]) == (0, pytest.approx(error.max()))
    levels = np.frombuffer(base64.b64decode(shown["data"]), np.uint8).reshape(4, 6, 5)
    np.testing.assert_allclose(
        levels / 255 * error.max(), np.moveaxis(error, 2, 0), atol=0.51 / 255 * error.max()
    )
    assert bars["remark"] == ""


def test_standard_errors_say_what_they_presume():
    """In the remark, not by a warning as well, which would be a notice."""
    _, bars, result = sent_bars()
    said = standard_errors(replace(result, status=lt.Status.APPROXIMATED))
    assert said["standard_error"] == bars["standard_error"]
    assert "presumes that the tensor has rank (2, 2, 1) exactly" in said["remark"]


def test_too_few_measurements_have_no_standard_errors():
    with pytest.warns(UserWarning, match="cannot determine"):
        events, bars, _ = sent_bars(ratio="0.9")
    assert bars["standard_error"] is None
    assert bars["remark"] == "The measurements do not determine any entry."
    assert not any("error bars" in content["text"] for kind, content in events if kind == "notice")


def test_entries_that_nothing_measures_are_counted():
    index = np.argwhere(np.ones((6, 5, 4)))
    A = lt.entries((6, 5, 4), index[index[:, 0] != 2])
    with pytest.warns(UserWarning, match=r"slice|determine"):
        result = lt.recover(A, A.forward(lt.random_tucker((6, 5, 4), (1, 1, 1), seed=0)), (1, 1, 1))
    bars = standard_errors(result)
    assert "do not determine 20 entries" in bars["remark"]
    levels = np.frombuffer(base64.b64decode(bars["standard_error"]["data"]), np.uint8)
    assert (levels.reshape(4, 6, 5)[:, 2] == 255).all()


def test_standard_errors_that_take_too_long_are_left_out(monkeypatch):
    monkeypatch.setattr("lowtucker.lab.experiments.bars.FLOPS", 1e4)
    _, bars, _ = sent_bars()
    assert bars["standard_error"] is None
    assert "Standard errors of 120 entries at 21 degrees of freedom would take" in bars["remark"]


def test_tensors_without_a_rank_have_no_standard_errors():
    A = lt.gaussian((4, 4, 3), 40, seed=0)
    y = A.forward(lt.random_tucker((4, 4, 3), (1, 1, 1), seed=0))
    solver = lt.TIHT(step=0.3, thresholding=lt.Shrinkage(0.1))
    result = lt.solve(lt.Problem(A, y), solver, stop=lt.MaxEpochs(2))
    bars = standard_errors(result)
    assert bars == {
        "standard_error": None,
        "remark": "Standard errors need a Tucker rank; this tensor has none.",
    }


def test_nan_is_sent_as_none(watch):
    events = watch(1, float("inf"))
    assert events[1][1]["points"][0][3] is None
