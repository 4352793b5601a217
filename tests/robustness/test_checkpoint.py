"""Checkpoints: an interrupted call that is repeated gives the uninterrupted result."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

import cases
import lowtucker as lt
from lowtucker._array.errors import FileFormatError
from lowtucker.run import checkpoint as module
from runs import CALLS, assert_same, undisturbed


class StopAfter:
    """Callback that ends a run after some epochs."""

    def __init__(self, epochs):
        self.left = epochs

    def __call__(self, progress):
        self.left -= 1
        return self.left <= 0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.ckpt"


@pytest.fixture
def problem():
    X = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    A = lt.gaussian((5, 5, 6), 120, seed=1)
    return A, A.forward(X)


def until_done(call, path, epochs, limit=400):
    """Repeat a call until it is done; each time it may do some epochs of each of its fits."""
    for count in range(limit):
        result = call(checkpoint=path, callbacks=[StopAfter(epochs)])
        if not any(s is lt.Status.INTERRUPTED for s in np.atleast_1d(result.status)):
            return result, count
    raise AssertionError("it does not end")


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupted_call_that_is_repeated_equals_an_uninterrupted_one(name, path):
    call = CALLS[name]()
    whole = undisturbed(name)
    epochs = max(1, int(np.max(whole.epochs)) // 2)
    result, interruptions = until_done(call, path, epochs)
    assert interruptions > 0
    assert_same(result, whole)


@pytest.mark.parametrize("name", ["auto", "StoTIHT", "rank unknown", "a stack, few epochs"])
def test_a_finished_call_is_not_computed_again(name, path, monkeypatch):
    call = CALLS[name]()
    first = call(checkpoint=path)
    monkeypatch.setattr("lowtucker.run.loop.Run._epoch", None)
    assert_same(call(checkpoint=path), first)


def test_a_checkpoint_does_not_change_the_result(path):
    call = CALLS["auto, few measurements"]()
    assert_same(call(checkpoint=path), undisturbed("auto, few measurements"))


def test_solve_takes_a_checkpoint(problem, path):
    A, y = problem
    one = lt.Problem(A, y)

    def run(**more):
        return lt.solve(one, lt.StoTIHT(block_size=40, step=0.4), (1, 2, 2), seed=3, **more)

    result, interruptions = until_done(run, path, 5)
    assert interruptions > 1
    assert_same(result, run())


def test_more_epochs_resume_where_the_last_call_ended(problem, path):
    A, y = problem

    def run(epochs, **more):
        return lt.recover(A, y, (1, 2, 2), solver=lt.TIHT(step=0.3), max_epochs=epochs, **more)

    first = run(10, checkpoint=path)
    assert first.status is lt.Status.MAX_EPOCHS
    assert f"checkpoint {path} resumes from here" in first.notes[-1]
    assert_same(run(10, checkpoint=path), first)
    assert_same(run(500, checkpoint=path), run(500))


def test_max_seconds_start_from_zero_in_every_call(problem, path, ticks):
    A, y = problem

    def run(**more):
        return lt.recover(A, y, (1, 2, 2), solver=lt.TIHT(step=0.3), tol=1e-3, **more)

    calls = []
    while not calls or calls[-1].status is lt.Status.MAX_SECONDS:
        calls.append(run(max_seconds=20.0, checkpoint=path))
        assert calls[-1].epochs > sum(result.epochs for result in calls[-2:-1])
    assert len(calls) > 2
    assert calls[-1].success
    assert calls[-1].seconds > 40
    assert_same(calls[-1], run())


@pytest.mark.parametrize("name", ["StoTIHT", *list(CALLS)[len(cases.SOLVERS) :]])
def test_a_call_that_runs_out_of_time_again_and_again_equals_an_uninterrupted_one(
    name, path, ticks
):
    """The time is up in the middle of fits, and between them.

    Not within the last epoch of the completion, two thirds of which are enough to converge.
    """
    call = CALLS[name]()
    whole = call(max_seconds=math.inf)
    limit = 3.5 if name == "completion" else max(3.5, ticks.monotonic() // 3)
    kinds, count = ["time limit"], 0
    while "time limit" in kinds:
        result = call(checkpoint=path, max_seconds=limit)
        kinds = [finding.kind for finding in result.findings]
        count += 1
        assert count < 60
    assert count > 1
    assert_same(result, whole)


def test_torch_tensors_come_back_as_torch(path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    X = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    A = lt.gaussian((5, 5, 6), 120, seed=1)
    matrix, y = torch.asarray(A.matrix), torch.asarray(A.forward(X))

    def run(**more):
        return lt.recover(matrix, y, (1, 2, 2), shape=(5, 5, 6), solver="tiht", **more)

    result, interruptions = until_done(run, path, 10)
    assert interruptions > 0
    assert isinstance(result.X.core, torch.Tensor)
    assert_same(result, run())


MATRIX = lt.gaussian((6, 6, 6), 150).matrix
OPERATORS = {
    "fft": lambda: lt.subsampled_transform((6, 6, 6), 60, "fft", seed=1),
    "functions": lambda: lt.FunctionOperator(
        lambda X: MATRIX @ X.ravel(), lambda v: (v @ MATRIX).reshape(6, 6, 6), (6, 6, 6), 150
    ),
    "seeded": lambda: lt.seeded_gaussian((6, 6, 6), 150, seed=1),
    "kronecker": lambda: lt.kronecker(
        [np.random.default_rng(k).standard_normal((7, 6)) for k in range(3)]
    ),
    "rank-one": lambda: lt.rank_one(
        [np.random.default_rng(k).standard_normal((150, 6)) for k in range(3)]
    ),
}


@pytest.mark.parametrize("make", OPERATORS.values(), ids=OPERATORS)
def test_any_operator(make, path):
    A = make()
    y = A.forward(lt.random_tucker((6, 6, 6), (1, 1, 1), seed=0))

    def run(**more):
        return lt.recover(A, y, (1, 1, 1), **more)

    result, _ = until_done(run, path, 1)
    assert_same(result, run())


# The call that it belongs to


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"y": 2.0}, "y: there"),
        ({"rank": (1, 1, 1)}, r"rank: there \(1, 2, 2\), here \(1, 1, 1\)"),
        ({"solver": "tiht"}, "solver: there 'auto', here 'tiht'"),
        ({"seed": 4}, "seed: there 0, here 4"),
        ({"tol": 1e-3}, "tol: there 1e-06, here 0.001"),
        ({"loss": "huber"}, "loss: there 'squared', here 'huber'"),
        ({"noise_std": 0.1}, "noise_std: there None, here 0.1"),
        ({"weights": np.full(120, 2.0)}, "weights: there none"),
        ({"matrix": 1e-9}, "operator: there DenseOperator"),
        ({"sign": -1.0}, "operator: there DenseOperator"),
        ({"start": True}, "start: there none"),
    ],
)
def test_a_checkpoint_of_another_call_is_refused_and_both_are_shown(problem, path, change, named):
    A, y = problem
    arguments = {"rank": (1, 2, 2), "checkpoint": path, "max_epochs": 1}
    lt.recover(A, y, **arguments)
    before = path.read_bytes()
    change = dict(change)
    y = y * change.pop("y", 1.0)
    if change.pop("start", False):
        change["start"] = lt.recover(A, y, (1, 2, 2)).X
    A = A if "sign" not in change else lt.as_operator(change.pop("sign") * A.matrix, A.shape)
    if "matrix" in change:  # one number of one row
        matrix = A.matrix.copy()
        matrix[77, 3] += change.pop("matrix")
        A = lt.as_operator(matrix, A.shape)
    with pytest.raises(ValueError, match=named) as caught:
        lt.recover(A, y, **arguments | change)
    assert "belongs to another call" in str(caught.value)
    assert "Give the checkpoint another name, or delete it" in str(caught.value)
    assert path.read_bytes() == before


def test_operators_without_a_matrix_are_identified_by_their_measurements(problem, path):
    A, y = problem
    plus, minus = (
        lt.FunctionOperator(
            lambda X, s=sign: s * A._forward(X), lambda v, s=sign: s * A._adjoint(v), A.shape, A.m
        )
        for sign in (1, -1)
    )
    lt.recover(plus, y, (1, 2, 2), checkpoint=path, max_epochs=1)
    with pytest.raises(ValueError, match="operator: there FunctionOperator"):
        lt.recover(minus, y, (1, 2, 2), checkpoint=path)


def test_another_held_out_share_is_another_call(path):
    array = np.where(np.random.default_rng(1).random((6, 6, 6)) < 0.4, np.nan, 1.0)
    lt.complete(array, (1, 1, 1), checkpoint=path)
    with pytest.raises(ValueError, match=r"held_out: there 0\.1, here 0\.2"):
        lt.complete(array, (1, 1, 1), held_out=0.2, checkpoint=path)


def test_a_stored_result_is_not_written_again(problem, path):
    A, y = problem
    lt.recover(A, y, (1, 2, 2), checkpoint=path)
    assert path.with_name("run.ckpt.previous").read_bytes() != path.read_bytes()
    before = path.stat().st_mtime_ns
    lt.recover(A, y, (1, 2, 2), checkpoint=path)
    assert path.stat().st_mtime_ns == before


def test_stopping_rules_and_states_are_distinguished(problem, path):
    A, y = problem
    one = lt.Problem(A, y)
    lt.solve(one, "tiht", (1, 2, 2), stop=lt.ResidualBelow(0.1) | lt.MaxEpochs(9), checkpoint=path)
    with pytest.raises(ValueError, match="stop: there"):
        lt.solve(one, "tiht", (1, 2, 2), stop=lt.ResidualBelow(1e-9) | lt.MaxEpochs(9),
                 checkpoint=path)  # fmt: skip
    path.unlink()
    part = lt.solve(one, lt.StoTIHT(block_size=40, step=0.3), (1, 2, 2), stop=lt.MaxEpochs(3))
    settings = {"solver": lt.StoTIHT(block_size=40, step=0.3), "rank": (1, 2, 2)}
    lt.solve(one, **settings, start=part.X, checkpoint=path)
    with pytest.raises(ValueError, match=r"start: there .* of a state after 9 steps"):
        lt.solve(one, **settings, start=part.state, checkpoint=path)


def test_limits_may_change(problem, path):
    A, y = problem
    first = lt.recover(A, y, (1, 2, 2), checkpoint=path, max_epochs=1)
    again = lt.recover(A, y, (1, 2, 2), checkpoint=path, max_epochs=100, max_seconds=100.0)
    assert again.epochs > first.epochs


@pytest.mark.parametrize("interrupted", [False, True])
def test_fewer_epochs_than_the_checkpoint_has_are_a_finding(problem, path, interrupted):
    """Not computed again, and not cut: the result is that of the epochs that were done."""
    A, y = problem

    def run(epochs, **more):
        return lt.recover(A, y, (1, 2, 2), solver=lt.TIHT(step=0.3), max_epochs=epochs, **more)

    done = run(30, checkpoint=path, callbacks=[StopAfter(20)] if interrupted else [])
    fewer = run(10, checkpoint=path)
    assert fewer.epochs == done.epochs == (20 if interrupted else 30)
    assert list(fewer.history["epoch"]) == list(range(fewer.epochs + 1))
    assert fewer.status is lt.Status.MAX_EPOCHS
    np.testing.assert_array_equal(fewer.X.core, done.X.core)
    (found,) = [one for one in fewer.findings if one.kind == "more epochs"]
    assert found.numbers == {"epochs": done.epochs, "max_epochs": 10}
    assert f"already has {done.epochs} epochs, more than max_epochs=10" in str(found)
    assert_same(run(500, checkpoint=path), run(500))
    found = {one.kind for one in run(10, checkpoint=path).findings}  # it has converged later
    assert "more epochs" in found


# The file


def test_the_file_is_numbers_and_json(problem, path):
    A, y = problem
    lt.recover(A, y, (1, 2, 2), checkpoint=path)
    data = path.read_bytes()
    assert data.startswith(b"lowtucker checkpoint 4\n")
    content, arrays = module._unpacked(path, path)
    json.dumps(content)
    assert content["version"] == lt.__version__
    assert all(array.dtype != object for array in arrays.values())


@pytest.mark.parametrize(
    ("where", "message"),
    [(5, "not a checkpoint"), (30, "is damaged"), (100, "is damaged"), (-1, "is damaged")],
)
def test_a_damaged_file_is_refused_and_the_previous_one_is_kept(problem, path, where, message):
    A, y = problem

    def run(**more):
        return lt.recover(A, y, (1, 2, 2), solver=lt.TIHT(step=0.3), **more)

    run(checkpoint=path, callbacks=[StopAfter(3)])
    run(checkpoint=path, callbacks=[StopAfter(3)])
    damaged = bytearray(path.read_bytes())
    damaged[where] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(FileFormatError, match=message):
        run(checkpoint=path)
    assert path.read_bytes() == damaged
    previous = path.with_name("run.ckpt.previous")
    if where > 30:
        with pytest.raises(FileFormatError, match=r"The one before it is .*run\.ckpt\.previous"):
            run(checkpoint=path)
    os.replace(previous, path)
    assert_same(run(checkpoint=path), run())


@pytest.mark.parametrize("cut", [0, 10, 40, 200, -1])
def test_a_truncated_file_is_refused(problem, path, cut):
    A, y = problem
    lt.recover(A, y, (1, 2, 2), checkpoint=path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(FileFormatError, match="checkpoint"):
        lt.recover(A, y, (1, 2, 2), checkpoint=path)


def test_other_files_are_not_touched(problem, path):
    A, y = problem
    path.write_text("my thesis")
    with pytest.raises(FileFormatError, match="is not a checkpoint of this version"):
        lt.recover(A, y, (1, 2, 2), checkpoint=path)
    assert path.read_text() == "my thesis"


def test_a_compressed_payload_is_refused(problem, path):
    """What lowtucker writes is not compressed: a small file cannot become a large one."""
    import hashlib
    import io

    A, y = problem
    buffer = io.BytesIO()
    np.savez_compressed(buffer, content=np.zeros(10**6, dtype=np.uint8))
    payload = buffer.getvalue()
    path.write_bytes(module.MAGIC + hashlib.sha256(payload).digest() + payload)
    with pytest.raises(FileFormatError, match="was not written by lowtucker"):
        lt.recover(A, y, (1, 2, 2), checkpoint=path)


@pytest.mark.parametrize("change", ["header", "json", "keys", "object"])
def test_a_hostile_file_with_a_right_checksum_is_refused(problem, path, change):
    import hashlib
    import io
    import tracemalloc
    import zipfile

    A, y = problem
    lt.recover(A, y, (1, 2, 2), solver="tiht", checkpoint=path, callbacks=[StopAfter(3)])
    content, arrays = module._unpacked(path, path)
    if change == "keys":
        content["current"]["pairs"] = [["problem", None]]
    text = b"no json" if change == "json" else json.dumps(content).encode()
    arrays["content"] = np.frombuffer(text, dtype=np.uint8)
    buffer = io.BytesIO()
    if change == "object":
        arrays["a0"] = np.array([None], dtype=object)
    np.savez(buffer, **arrays)
    if change == "header":  # 4 GB in a few bytes
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f8", "fortran_order": False, "shape": (500_000_000,)}
        )
        with zipfile.ZipFile(buffer, "a") as file:
            file.writestr("big.npy", header.getvalue())
    payload = buffer.getvalue()
    path.write_bytes(module.MAGIC + hashlib.sha256(payload).digest() + payload)
    tracemalloc.start()
    with pytest.raises(FileFormatError, match="was not written by lowtucker"):
        lt.recover(A, y, (1, 2, 2), solver="tiht", checkpoint=path)
    assert tracemalloc.get_traced_memory()[1] < 10**8
    tracemalloc.stop()


def test_a_link_to_a_checkpoint_keeps_the_previous_one(problem, path, tmp_path):
    A, y = problem
    link = tmp_path / "link.ckpt"
    link.symlink_to(path)
    for _ in range(2):
        lt.recover(A, y, (1, 2, 2), solver=lt.TIHT(step=0.3), checkpoint=link,
                   callbacks=[StopAfter(3)])  # fmt: skip
    previous = path.with_name("run.ckpt.previous")
    assert link.is_symlink()
    assert not previous.is_symlink()
    assert previous.read_bytes() != path.read_bytes()


def test_a_full_disk_leaves_the_last_checkpoint(problem, path, monkeypatch):
    A, y = problem

    def run(**more):
        return lt.recover(A, y, (1, 2, 2), solver=lt.TIHT(step=0.3), **more)

    run(checkpoint=path, callbacks=[StopAfter(3)])
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.warns(lt.CheckpointWarning, match="No space left on device"):
            result = run(checkpoint=path)
    assert "The checkpoint could not be written" in result.notes[-1]
    assert_same(replace(result, findings=result.findings[:-1]), run())
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir() if file.suffix == ".tmp"] == []
    assert_same(run(checkpoint=path), run())


def test_file_systems_without_links(problem, path, monkeypatch):
    A, y = problem

    def no_links(*_):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    for _ in range(2):
        lt.recover(A, y, (1, 2, 2), solver="tiht", checkpoint=path, callbacks=[StopAfter(3)])
    assert path.with_name("run.ckpt.previous").exists()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (3, TypeError, "checkpoint must be the path of a file, got 3"),
        (".", ValueError, "is a folder"),
        (
            "no/such/folder/run.ckpt",
            ValueError,
            r"cannot be written: No such file .* create the folder",
        ),
    ],
)
def test_invalid_paths_are_refused(problem, given, error, message):
    A, y = problem
    with pytest.raises(error, match=message):
        lt.recover(A, y, (1, 2, 2), checkpoint=given)


def test_writing_takes_a_small_part_of_the_time(problem, path, monkeypatch):
    """By a fake clock: writing takes 1 s, and an epoch 1 s."""
    A, y = problem
    clock = [0.0]
    writes = []
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    write = module.Journal.write

    def slow(self):
        before = clock[0]
        monkeypatch.setattr(module.time, "monotonic", lambda: before)
        write(self)
        clock[0] = before + 1
        monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
        self._written, self._cost = clock[0], 1.0
        writes.append(clock[0])

    monkeypatch.setattr(module.Journal, "write", slow)

    def tick(progress):
        clock[0] += 1

    result = lt.recover(
        A, y, (1, 2, 2), solver=lt.TIHT(step=0.3), checkpoint=path, callbacks=[tick]
    )
    between = np.diff(writes[:-2])
    assert result.epochs > 50
    assert (between >= module.RARELY).all()
    assert (between <= module.RARELY + 2).all()


def test_rows_that_cannot_be_read_leave_a_checkpoint(problem, path):
    A, y = problem
    broken = [False]

    def forward(X):
        if broken[0]:
            raise OSError(5, "Input/output error")
        return A._forward(X)

    unreliable = lt.FunctionOperator(forward, A._adjoint, A.shape, A.m)

    def run(**more):
        return lt.recover(unreliable, y, (1, 2, 2), solver=lt.TIHT(step=0.3), **more)

    def breaks(progress):
        broken[0] = progress.epoch == 5

    with pytest.raises(OSError, match="Input/output error") as caught:
        run(checkpoint=path, callbacks=[breaks])
    assert caught.value.result.epochs == 5
    broken[0] = False
    result = run(checkpoint=path)
    assert_same(result, run())


def test_a_copied_checkpoint_resumes_elsewhere(problem, path, tmp_path):
    A, y = problem

    def run(**more):
        return lt.recover(A, y, (1, 2, 2), solver=lt.StoTIHT(block_size=40, step=0.4), **more)

    run(checkpoint=path, callbacks=[StopAfter(4)])
    copy = tmp_path / "copy"
    shutil.copyfile(path, copy)
    assert_same(run(checkpoint=copy), run())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_refused_rather_than_waited_for(problem, path):
    os.mkfifo(path)
    with pytest.raises(ValueError, match=r"run.ckpt is a pipe, a socket or a device; .*\. Try"):
        lt.recover(*problem, (1, 2, 2), checkpoint=path)
    with pytest.raises(ValueError, match="/dev/null is a pipe, a socket or a device"):
        lt.recover(*problem, (1, 2, 2), checkpoint="/dev/null")
