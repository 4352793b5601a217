"""Events of a run."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

import lowtucker as lt
from lowtucker.lab.app import tasks
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


def test_nan_is_sent_as_none(watch):
    events = watch(1, float("inf"))
    assert events[1][1]["points"][0][3] is None
