"""The rows of the benchmark of structured measurements are correct. No test asserts a time."""

from __future__ import annotations

import csv
import math
import multiprocessing
import shutil
import time
import tracemalloc
from collections import namedtuple
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli.main import main
from lowtucker.lab.bench import out_of_core, structured
from lowtucker.lab.bench.methods import Outcome
from lowtucker.lab.bench.structured import NAMES, Completion, OutOfCore, RankOne, Transform, chosen
from lowtucker.lab.bench.timing import memory_now, peak_memory

CUBE = {"shape": (8, 8, 8), "rank": (2, 2, 2)}
SMALL = RankOne(name="A4", **CUBE, m=150, trials=3, core_mean=0.1, targets={"recovered": ">= 1"})
SAMPLES = Completion(name="B9", shape=(15, 14, 13), rank=(2, 2, 2), m=900, trials=2, held_out=100)
DISK = OutOfCore(
    name="O", shape=(10, 10, 10), rank=(2, 2, 2), m=1000, trials=1,
    targets={"recovered": ">= 1", "ratio": "<= 1e9", "memory": "<= 1e9"},
)  # fmt: skip

needs_proc = pytest.mark.skipif(math.isnan(memory_now("VmHWM")), reason="no /proc")


# Problems


def test_every_name_has_yardsticks_whose_targets_can_be_met_and_missed():
    works = chosen(NAMES)
    assert [one.name for one in works] == sorted((w.name for w in works), key=NAMES.index)
    assert {one.name for one in works} == set(NAMES)
    good, bad = Outcome(0.0, 1.0, 0.1), Outcome(1.0, 1.0, 1e9)
    for one in works:
        if one.targets:
            assert one.row([good], 10.0, ratio=1.0).met is True
            assert one.row([bad], 10.0, ratio=1.0).met is False
    assert sum(not one.targets for one in works) == 1  # the cosine transform


def test_yardsticks_are_those_of_the_benchmarks():
    b9 = chosen(["B9"])[0]
    assert lt.degrees_of_freedom(b9.shape, b9.rank) == 6675 == b9.m / 10
    assert [one.m for one in chosen(["B10"])] == [3_000_000, 500_000]
    for gigabytes in (2.0, 12.0):
        disk = chosen(["O"], gigabytes)[0]
        assert 4 * disk.m * np.prod(disk.shape) == gigabytes * 1e9


def test_rank_one_rows_are_normal_vectors_and_the_core_has_its_mean():
    A, X_true, _ = SMALL.draw(1)
    assert all(F.shape == (150, 8) for F in A.factors)
    assert abs(np.std(np.concatenate(A.factors)) - 1) < 0.05
    a, b, c = A.factors
    expected = np.einsum("ijk,mi,mj,mk->m", X_true.full(), a, b, c)
    np.testing.assert_allclose(A.forward(X_true), expected)
    plain = lt.random_tucker((8, 8, 8), (2, 2, 2), seed=(0, 1))
    np.testing.assert_allclose(np.sum(X_true.core - plain.core), 0.8)


def test_samples_are_distinct_and_disjoint_from_test_entries():
    A, _, unseen = SAMPLES.draw(0)
    every = np.concatenate([A.indices, unseen])
    assert len(np.unique(every, axis=0)) == len(every) == 1000
    # all remaining entries of a small tensor
    assert len(replace(SAMPLES, held_out=10_000).draw(0).unseen) == 15 * 14 * 13 - 900


def test_drawing_samples_does_not_form_the_full_tensor():
    work = replace(SAMPLES, shape=(1000, 1000, 1000), m=2000)
    tracemalloc.start()
    A, X_true, unseen = work.draw(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6
    assert (A.m, len(unseen), X_true.shape) == (2000, 100, work.shape)


# Rows


def test_row_equals_plain_calls():
    work = replace(SMALL, shape=(6, 6, 6), m=60, tol=1e-8)  # some errors are larger
    errors, passes = [], []
    for k in range(3):
        A, X_true, _ = work.draw(k)
        result = lt.recover(A, A.forward(X_true), (2, 2, 2))
        errors.append(np.linalg.norm(result.X.full() - X_true.full()) / X_true.norm())
        passes.append(result.passes)
    row = work.measure(3)
    assert (row.work, row.m, row.trials) == ("A4", 60, 3)
    assert row.recovered == np.mean(np.array(errors) <= 1e-8) < 1
    assert row.error == pytest.approx(np.median(errors), rel=1e-3)
    assert row.passes == np.median(passes)
    assert row.met is False
    assert 0 < row.seconds <= row.worst


def test_error_is_that_of_entries_not_sampled():
    few = replace(SAMPLES, m=60, targets={"recovered": ">= 1"})  # too few
    A, X_true, unseen = few.draw(0)
    with pytest.warns(lt.UnderdeterminedWarning):
        X = lt.recover(A, A.forward(X_true), (2, 2, 2)).X.full()
    at, truth = tuple(unseen.T), X_true.full()
    expected = np.linalg.norm(X[at] - truth[at]) / np.linalg.norm(truth[at])
    with pytest.warns(lt.UnderdeterminedWarning):
        row = few.measure(1)
    assert row.error == pytest.approx(expected, rel=1e-6)
    assert (row.recovered, row.met, row.note) == (0, False, "not recovered: trials 0")


def test_enough_samples_are_completed():
    row = SAMPLES.measure(2)
    assert (row.recovered, row.met, row.target, row.note) == (1, None, "", "")
    assert row.error < 1e-5


@pytest.mark.parametrize("kind", ["fft", "dct"])
def test_coefficients_of_transforms(kind):
    work = Transform(name="B8", **CUBE, m=200, trials=1, kind=kind, tol=0.01, note=kind)
    A, X_true, _ = work.draw(0)
    assert np.iscomplexobj(A.forward(X_true)) is (kind == "fft")
    row = work.measure(1)
    assert (row.recovered, row.note) == (1, kind)


def test_targets_refer_to_the_named_numbers():
    targets = {"recovered": ">= 0.5", "seconds": "<= 2", "worst": "<= 8", "memory": "<= 200"}
    work = replace(SMALL, targets=targets)
    runs = [Outcome(1e-6, 3.0, 1.0), Outcome(1e-5, 5.0, 2.0), Outcome(1e-4, 4.0, 7.0)]
    row = work.row(runs, 150.0, "a word")
    assert row.target == "error <= 1e-05 in >= 0.5, s <= 2, worst s <= 8, MB <= 200"
    assert (row.recovered, row.error, row.passes) == (2 / 3, 1e-5, 4)
    assert (row.seconds, row.worst, row.memory, row.met) == (2, 7, 150, True)
    assert row.note == "a word; not recovered: trials 2"
    assert work.row(runs, 201.0).met is False
    assert replace(work, targets={**targets, "worst": "<= 6"}).row(runs, 1.0).met is False
    unknown = work.row(runs, math.nan)
    assert unknown.met is True
    assert "MB" not in unknown.target
    assert "memory is unknown" in unknown.note


# Memory


@needs_proc
def test_peak_is_that_of_the_process_not_of_its_parent():
    ballast = np.ones(50_000_000)  # 400 MB
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        assert 10 < process.submit(peak_memory).result() < 300
    assert peak_memory() > ballast.nbytes / 1e6


@needs_proc
def test_anonymous_memory_records_the_peak():
    with out_of_core.AnonymousMemory() as memory:
        first = memory.peak
        ballast = np.ones(10_000_000)
        deadline = time.monotonic() + 90
        while memory.peak < first + 50 and time.monotonic() < deadline:
            time.sleep(0.01)
        del ballast
    assert first + 50 < memory.peak < first + 200


def test_memory_is_unknown_without_proc(monkeypatch):
    def nowhere(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", nowhere)
    assert math.isnan(memory_now("RssAnon"))
    with out_of_core.AnonymousMemory() as memory:
        pass
    assert math.isnan(memory.peak)


# Out of core


def test_file_holds_the_matrix_of_the_measurements(tmp_path, monkeypatch):
    X_true = lt.random_tucker((5, 6, 7), (2, 2, 2), seed=0)
    y = out_of_core.write_matrix(tmp_path / "A.npy", X_true, 100, seed=3)
    A = np.load(tmp_path / "A.npy")
    assert (A.dtype, A.shape) == (np.float32, (100, 210))
    assert abs(A.std() - 1) < 0.02
    np.testing.assert_allclose(y, A.astype(float) @ X_true.full().ravel(), rtol=1e-12)
    monkeypatch.setattr(out_of_core, "WRITTEN", 4 * 210 * 7)  # 7 rows do not divide 100
    other = out_of_core.write_matrix(tmp_path / "B.npy", X_true, 100, seed=3)
    np.testing.assert_array_equal(np.load(tmp_path / "B.npy"), A)
    np.testing.assert_allclose(other, y, rtol=1e-12)


@pytest.mark.parametrize("block", [1, 4 * 210 * 7, 1 << 25])
def test_read_once_reads_every_row_once(block, tmp_path, monkeypatch):
    monkeypatch.setattr(out_of_core, "BLOCK_BYTES", block)
    np.save(tmp_path / "A.npy", np.ones((100, 210), np.float32))
    assert out_of_core.read_once(tmp_path / "A.npy") == 4 * 100 * 210


def test_file_is_removed_after_the_recovery(tmp_path, monkeypatch):
    monkeypatch.setattr(out_of_core, "IN_MEMORY", 4 * 1000 * 300)  # a part of the rows
    row = replace(DISK, folder=str(tmp_path)).measure(1)
    assert (row.work, row.m, row.trials, row.recovered) == ("O", 1000, 1, 1)
    assert row.error <= 1e-5
    assert row.met is True
    assert row.passes > 0
    assert "pass / longer part <= 1e9" in row.target
    assert "0.004 GB on disk; pass" in row.note
    assert not list(tmp_path.iterdir())


def test_ratio_is_relative_to_the_longer_part(monkeypatch):
    times = out_of_core.Timings(2.0, 1.0, 2.5, 9.0, 3.0, 1e-7, 400.0)
    monkeypatch.setattr(out_of_core, "measure", lambda *_: times)
    row = replace(DISK, targets={"ratio": "<= 1.25"}).measure(1)
    assert (row.met, row.seconds, row.passes, row.memory) == (True, 9, 3, 400)
    assert "pass 2.5 s, read 2 s, compute 1 s" in row.note
    assert replace(DISK, targets={"ratio": "<= 1.2"}).measure(1).met is False


def test_insufficient_disk_space_is_reported_and_nothing_is_written(tmp_path, monkeypatch):
    asked = []

    def usage(path):
        asked.append(path)
        return namedtuple("usage", "total used free")(10**7, 0, 4_399_999)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr(out_of_core, "measure", None)  # must not be called
    row = replace(DISK, folder=str(tmp_path)).measure(1)
    assert asked == [str(tmp_path)]
    assert (row.trials, row.met, row.target) == (0, None, "")
    assert "skipped: needs 0.0044 GB of disk" in row.note
    assert np.isnan([row.recovered, row.error, row.seconds, row.passes, row.memory]).all()


# The command


def invoke(*options):
    return CliRunner().invoke(main, ["bench", "structured", *map(str, options)])


def test_command_prints_and_writes(tmp_path):
    """In separate processes, as for a user."""
    file = tmp_path / "new" / "rows.csv"
    done = invoke("--only", "a4", "--trials", 1, "--csv", file)
    assert done.exit_code == 0, done.output
    assert "A4 m = 300: recovered 100.0% in" in done.output
    assert "worst s" in done.output
    with open(file, newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["work"], row["m"], row["trials"]) for row in rows] == [
        ("A4", "300", "1"), ("A4", "200", "1")
    ]  # fmt: skip
    assert all(row["met"] == "True" and float(row["error"]) <= 1e-5 for row in rows)
    assert all(float(row["memory"]) > 20 for row in rows)


def test_command_passes_on_size_and_folder(tmp_path, monkeypatch):
    seen = []

    def run(works, trials):
        seen.extend(works)
        assert trials is None
        return iter([DISK.row([], math.nan, "skipped: why")])

    monkeypatch.setattr(structured, "run", run)
    folder = tmp_path / "made"
    done = invoke("--only", "O", "--gigabytes", 12, "--folder", folder)
    assert done.exit_code == 0, done.output
    assert [(one.m, one.folder) for one in seen] == [(30000, str(folder))]
    assert folder.is_dir()
    assert "O m = 1000: skipped: why" in done.output
    assert "nan" not in done.output


@pytest.mark.parametrize(("met", "code"), [(True, 0), (None, 0), (False, 3)])
def test_exit_code_is_3_if_a_target_is_missed(met, code, monkeypatch):
    row = replace(SMALL.row([Outcome(0.0, 1.0, 1.0)], 50.0), met=met)
    monkeypatch.setattr(structured, "run", lambda *_: iter([row, replace(row, met=None)]))
    assert invoke("--only", "A4").exit_code == code


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["structured", "--only", "A1"], "Unknown yardstick 'A1'. Choose from A4, B6"),
        (
            ["structured", "--only", "A4", "--plot", "x.png"],
            "--plot is not an option",
        ),
        (
            ["structured", "--only", "A4", "--candle", "x.mat"],
            "--candle is not an option",
        ),
        (["structured", "--only", "A4", "--gigabytes", "2"], "apply to O: include it in --only"),
        (["structured", "--only", "A4", "--folder", "."], "apply to O: include it in --only"),
        (["structured", "--only", "O", "--gigabytes", "0.1"], "0.1 is not in the range"),
        (["structured", "--trials", "0"], "0 is not in the range"),
        (["recover", "--gigabytes", "2"], "--gigabytes is not an option of recover"),
        (["iteration", "--folder", "."], "not an option of iteration, but of structured"),
    ],
)
def test_invalid_options_are_rejected_before_the_run(options, text):
    done = CliRunner().invoke(main, ["bench", *options])
    assert done.exit_code == 2
    assert text in done.output
