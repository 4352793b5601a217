"""The benchmark of streams: they move as it says, and its rows compare what they claim to.

No test asserts that streams are good: that is what the benchmark measures.
"""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli.main import main
from lowtucker.lab.bench import online
from lowtucker.lab.bench.online import Refit, Setting, Stream, one_pass, tracking

TINY = {kind: Setting(kind, (5, 4, 6), (1, 2, 2)) for kind in online.KINDS}
ROW = online.Row(
    "F3", "a stream", "blocks of 1", "batch fit", 2, 0.1, 1.0, 1.05, 0.5, 1.0, 2.0, 3.0,
    "error <= 1.1", True,
)  # fmt: skip


def numbers(row):
    """A row without its times."""
    return replace(row, cost=0.0, note="", kept=0.0, peak=0.0, warm_up=0.0, met=None)


# Streams


@pytest.mark.parametrize("kind", TINY)
def test_every_row_measures_the_tensor_of_its_time(kind, monkeypatch):
    monkeypatch.setattr(online, "NOISE", 0.0)
    stream = Stream.drawn(TINY[kind], 3, 0.5, seed=1)
    rows = [stream.A.adjoint(unit) for unit in np.eye(stream.A.m)]
    expected = [np.vdot(row, stream.X(i).full()) for i, row in enumerate(rows)]
    np.testing.assert_allclose(stream.y, expected, rtol=1e-9, atol=1e-12)


def test_all_principal_angles_grow_by_the_angle_in_dof_rows():
    setting = TINY["entries"]
    stream = Stream.drawn(setting, 3, 0.25, seed=0)
    first, later = stream.X(0), stream.X(2 * setting.dof)
    for U, V in zip(first.factors, later.factors, strict=True):
        cosines = np.linalg.svd(U.T @ V, compute_uv=False)
        np.testing.assert_allclose(np.arccos(cosines), 0.5, atol=1e-7)
    assert later.norm() == pytest.approx(first.norm())


def test_noise_is_one_percent_and_a_tensor_at_rest_stays():
    stream = Stream.drawn(TINY["rank-one"], 400, 0.0, seed=0)
    clean = stream.A.forward(stream.X(0))
    noise = np.linalg.norm(stream.y - clean) / np.linalg.norm(clean)
    assert noise == pytest.approx(0.01, rel=0.05)
    assert lt.metrics.relative_error(stream.X(1000), stream.X(0)) < 1e-12


def test_blocks_are_all_rows_in_order():
    stream = Stream.drawn(TINY["gaussian"], 3, 0.1, seed=0)
    blocks = list(stream.blocks(7))
    assert [b.m for b in blocks[:-1]] == [7] * (len(blocks) - 1)
    assert np.array_equal(np.concatenate([b.y for b in blocks]), stream.y)


# Rows


@pytest.mark.slow
def test_one_pass_is_compared_with_the_batch_fit_of_the_same_stream():
    setting = TINY["gaussian"]
    rows = list(one_pass(setting, 2))
    assert [row.method for row in rows] == ["blocks of 1", "blocks of 2", "blocks of 20"]
    ratios, errors = [], []
    for seed in (0, 1):
        stream = Stream.drawn(setting, online.LENGTH, 0.0, seed)
        batch = lt.recover(stream.A, stream.y, setting.rank)
        errors.append(lt.metrics.relative_error(online._X_after(stream, setting, 1), stream.X(0)))
        ratios.append(errors[-1] / lt.metrics.relative_error(batch.X, stream.X(0)))
    assert rows[0].error == pytest.approx(median(errors))
    assert (rows[0].ratio, rows[0].worst) == pytest.approx((median(ratios), max(ratios)))
    assert all(row.met is (row.worst <= online.ONE_PASS) for row in rows)
    assert all(0 < row.kept <= row.peak for row in rows)
    assert all(row.cost > 0 and row.streams == 2 for row in rows)
    assert list(map(numbers, one_pass(setting, 2))) == list(map(numbers, rows))


def test_memory_counts_what_a_stream_keeps(monkeypatch):
    """A stream that keeps 50 numbers a row, and uses 1000 once, in the first half."""

    class Keeping:
        X = 0

        def __init__(self, shape, rank):
            self.rows = []

        def update(self, A, y):
            if not self.rows:
                np.ones(100_000)
            self.rows.append(np.ones((len(y), 50)))

    monkeypatch.setattr(online, "Online", Keeping)
    setting = TINY["rank-one"]
    stream, unit = Stream.drawn(setting, 10, 0.0, 0), setting.dof**2
    kept, second, first = online.memory_in_use(stream, setting, setting.dof)
    assert kept == pytest.approx(50 * stream.A.m / unit, rel=0.5)
    assert kept <= second < 100_000 / unit <= first


def test_tracking_takes_the_best_length_of_each_and_their_ratio(monkeypatch):
    errors = {1.0: 0.4, 1.5: 0.3, 2.0: 0.5, 3.0: 0.6}
    monkeypatch.setattr(online, "MEMORIES", (1.0, 1.5))
    monkeypatch.setattr(online, "followed", lambda stream, setting, k: (errors[k], 0.01))
    monkeypatch.setattr(online, "refitted", lambda stream, setting, k, refit: (errors[k], 0.1))
    refits = {"slow": Refit(None, (2.0, 3.0)), "other": Refit(None, (1.0,), judged=False)}
    monkeypatch.setattr(online, "REFITS", refits)
    slow, other = tracking(TINY["entries"], 3)
    assert (slow.method, slow.other) == ("memory 1.5 dof", "slow, window 2 dof")
    assert (slow.streams, slow.error) == (3, 0.3)
    assert (slow.ratio, slow.cost) == pytest.approx((0.6, 0.1))
    assert slow.met is False  # by the cost
    assert (other.met, other.target) == (None, "")
    monkeypatch.setattr(online, "refitted", lambda stream, setting, k, refit: (errors[k], 1.0))
    assert next(tracking(TINY["entries"], 1)).met is True


def test_refits_see_the_rows_of_their_window_and_the_last_fit(monkeypatch):
    setting = TINY["rank-one"]
    stream = Stream.drawn(setting, online.BEFORE + online.WHILE, online.ANGLE, 0)
    seen = []

    def fit(problem, rank, start):
        seen.append((problem.y, start))
        return stream.X(len(seen))

    online.refitted(stream, setting, 2.0, Refit(fit, (2.0,)))
    block, begin = online._block(setting), online.BEFORE * setting.dof
    assert len(seen) == (stream.A.m - begin) // block
    for k, (y, start) in enumerate(seen):
        end = begin + (k + 1) * block
        assert np.array_equal(y, stream.y[end - 2 * setting.dof : end])
        assert start.rank == setting.rank
        if k:
            assert lt.metrics.relative_error(start, stream.X(k)) < 1e-12
    seen.clear()
    online.refitted(stream, setting, 2.0, Refit(fit, (2.0,), warm=False, every=4))
    assert seen[0][1] is None


def test_tracking_of_a_stream_is_a_pure_function_of_the_seed(monkeypatch):
    monkeypatch.setattr(online, "MEMORIES", (2.0,))
    monkeypatch.setattr(online, "REFITS", {"warm": Refit(online._warm, (3.0,))})
    monkeypatch.setattr(online, "WHILE", 2)
    (first,), (again,) = (list(tracking(TINY["gaussian"], 1)) for _ in range(2))
    assert numbers(first) == numbers(again)
    assert first.note.endswith("ms a block")


# The command


def invoke(*options):
    return CliRunner().invoke(main, ["bench", "online", *map(str, options)])


@pytest.mark.slow
def test_command_prints_the_table_and_writes_rows(monkeypatch, tmp_path):
    monkeypatch.setattr(online, "ONE_PASS_SETTINGS", (TINY["gaussian"],))
    monkeypatch.setattr(online, "ONE_PASS", math.inf)
    monkeypatch.setattr(online, "tracking", None)
    file = tmp_path / "rows.csv"
    done = invoke("--only", "f3", "--trials", 1, "--csv", file)
    assert done.exit_code == 0, done.output
    assert (
        "F3 gaussian, 5x4x6, rank (1, 2, 2), blocks of 1, against batch fit: error" in done.output
    )
    with open(file, newline="") as lines:
        written = list(csv.DictReader(lines))
    assert [line["method"] for line in written] == ["blocks of 1", "blocks of 2", "blocks of 20"]
    assert {line["streams"] for line in written} == {"1"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [("F3", 20), ("F4", 5)]),
        (("--quick",), [("F3", 2), ("F4", 1)]),
        (("--only", "F4", "--trials", "3"), [("F4", 3)]),
    ],
)
def test_command_runs_what_is_asked_for(monkeypatch, options, expected):
    asked = []

    def run(names, streams):
        asked.append((*names, streams))
        return [ROW]

    monkeypatch.setattr(online, "run", run)
    assert invoke(*options).exit_code == 0
    assert asked == expected


def test_command_exits_with_3_where_a_target_is_missed(monkeypatch):
    monkeypatch.setattr(online, "run", lambda *given: [ROW, replace(ROW, met=False)])
    done = invoke("--only", "F3")
    assert done.exit_code == 3, done.output


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--only", "F1"), "Unknown yardstick 'F1'. Choose from F3, F4."),
        (("--data", "."), "--data is not an option of online, but of realdata, uncertainty. The"),
        (("--data", "."), "options of online are --csv, --only, --trials, --quick."),
    ],
)
def test_invalid_options_are_rejected(options, text):
    done = invoke(*options)
    assert done.exit_code == 2
    assert text in " ".join(done.output.replace("│", " ").split())
