"""A stream gives what a fit to all of it gives, and says what it knows."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import sys
import threading
from dataclasses import replace

import array_api_strict as strict
import numpy as np
import pytest

import lowtucker as lt
from lowtucker.streams import state as states
from lowtucker.streams.averages import Averages

SHAPE, RANK = (8, 8, 8), (2, 2, 2)
DOF = lt.degrees_of_freedom(SHAPE, RANK)


def rows_of(kind, m, seed):
    rng = np.random.default_rng(seed)
    if kind == "dense":
        return lt.as_operator(rng.standard_normal((m, *SHAPE)))
    if kind == "rank one":
        return lt.rank_one([rng.standard_normal((m, n)) for n in SHAPE])
    return lt.entries(SHAPE, np.stack([rng.integers(0, n, m) for n in SHAPE], axis=1))


def problem(kind="dense", per_dof=8, noise=0.01, seed=0):
    X = lt.random_tucker(SHAPE, RANK, seed=seed)
    A = rows_of(kind, per_dof * DOF, seed)
    y = A.forward(X)
    size = np.linalg.norm(y) / np.sqrt(len(y))
    return A, y + noise * size * np.random.default_rng(seed + 1).standard_normal(len(y)), X


def streamed(A, y, block, weights=None, **settings):
    online = lt.Online(SHAPE, RANK, **settings)
    for start in range(0, len(y), block):
        rows = slice(start, min(start + block, len(y)))
        online.update(A.restrict(rows), y[rows], None if weights is None else weights[rows])
    return online


def same_bits(X, Y):
    parts = zip([X.core, *X.factors], [Y.core, *Y.factors], strict=True)
    return all(np.array_equal(a, b) for a, b in parts)


# Against independent references


@pytest.mark.parametrize("memory", [None, 30.0])
def test_at_full_rank_it_is_recursive_least_squares(memory):
    """Rank (3, 3) of a 3 x 4 matrix is full: X is linear in y. Blocks of 10 rows, equally old."""
    rng = np.random.default_rng(0)
    A, X = rng.standard_normal((100, 12)), rng.standard_normal(12)
    y, weights = A @ X + 0.1 * rng.standard_normal(100), rng.uniform(0.5, 2, 100)
    online = lt.Online((3, 4), 3, memory=memory)
    assert online.rank == (3, 3)
    for k in range(0, 100, 10):
        online.update(A[k : k + 10], y[k : k + 10], weights[k : k + 10])
    assert not online.warming_up
    w = weights.copy()
    for k in range(0, 100, 10):
        w[k : k + 10] *= 1 if memory is None else np.exp(-(90 - k) / memory)
    root = np.sqrt(w)
    expected = np.linalg.lstsq(root[:, None] * A, root * y, rcond=None)[0]
    np.testing.assert_allclose(online.X.full().ravel(), expected, atol=1e-10)
    squares = np.sum(w * (y - A @ expected) ** 2)
    assert online.result().residual == pytest.approx(np.sqrt(squares / np.sum(w * y**2)), rel=1e-6)
    # the covariance of weighted least squares whose weights are ages, not variances
    ages = w / weights
    sigma2 = squares / (ages.sum() - 12 * np.sum(ages**2) / ages.sum())
    trace = np.trace(np.linalg.inv((A.T * w) @ A)) * np.sum(ages**2) / ages.sum()
    accuracy = online._state.filter.accuracy
    assert accuracy.noise == pytest.approx(np.sqrt(sigma2 * trace) / np.linalg.norm(expected))


@pytest.mark.parametrize(
    ("kind", "block"),
    [("dense", 7), ("dense", DOF), ("dense", 8 * DOF), ("rank one", DOF), ("entries", 7)],
)
def test_one_pass_is_as_good_as_a_fit_to_all(kind, block):
    A, y, X = problem(kind)
    online, batch = streamed(A, y, block), lt.recover(A, y, RANK)
    error, best = (lt.metrics.relative_error(Z, X) for Z in (online.X, batch.X))
    assert error < 1.1 * best
    assert online.m == len(y)
    result = online.result()
    assert result.status is online.status is lt.Status.NOISE_FLOOR
    assert result.error_estimate == pytest.approx(batch.error_estimate, rel=0.05)
    assert result.residual == pytest.approx(batch.residual, rel=0.01)


def test_the_information_is_that_of_all_rows():
    """The gram matrix, moved along several times, against the design of all rows at the end."""
    A, y, _ = problem("dense")
    now = streamed(A, y, 10)._state.filter.relinearised()
    D = A.tangent(now.T).dense()
    np.testing.assert_allclose(now.gram, D.T @ D, atol=0.03 * np.max(D.T @ D))
    residual = y - D @ now.T.here
    assert now.squares == pytest.approx(np.sum(residual**2), rel=0.01)


def test_exact_measurements_converge():
    A, y, X = problem(noise=0.0)
    online = streamed(A, y, 20)
    assert online.status is lt.Status.CONVERGED
    assert lt.metrics.relative_error(online.X, X) < 1e-6


def test_complex_tensors():
    rng = np.random.default_rng(0)
    X = lt.random_tucker(SHAPE, RANK, seed=3, dtype=np.complex128)
    A = lt.as_operator(rng.standard_normal((6 * DOF, *SHAPE, 2)) @ np.array([1, 1j]))
    y = A.forward(X) + 0.01 * rng.standard_normal(6 * DOF)
    online, batch = streamed(A, y, 25), lt.recover(A, y, RANK)
    error, best = (lt.metrics.relative_error(Z, X) for Z in (online.X, batch.X))
    assert error < 1.1 * best


def test_rows_with_weight_zero_are_left_out():
    A, y, _ = problem()
    weights = np.ones(len(y))
    weights[::5] = 0
    wrong = np.where(weights > 0, y, 1e3)
    online, without = streamed(A, wrong, 40, weights), streamed(A, y, 40, weights)
    assert same_bits(online.X, without.X)


def test_other_arrays_give_the_same_tensor():
    A, y, _ = problem(per_dof=5)
    online = streamed(A, y, 50)
    other = lt.Online(SHAPE, RANK)
    for start in range(0, len(y), 50):
        rows = slice(start, start + 50)
        other.update(strict.asarray(A.matrix[rows]), strict.asarray(y[rows]))
    assert isinstance(other.X.core, type(strict.zeros(1)))
    np.testing.assert_allclose(np.asarray(other.X.full()), online.X.full(), atol=1e-6)


# Forgetting


def turning(blocks, block, rate, seed=0):
    """Rank-one rows of a tensor whose first factor turns in a plane, and the tensors."""
    rng = np.random.default_rng(seed)
    X = lt.random_tucker(SHAPE, RANK, seed=seed)
    angle = rate * block / DOF
    turn = np.eye(8)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    for _ in range(blocks):
        X = lt.TuckerTensor(X.core, [turn @ X.factors[0], *X.factors[1:]])
        A = lt.rank_one([rng.standard_normal((block, n)) for n in SHAPE])
        noise = 0.01 * float(X.norm()) * rng.standard_normal(block)
        yield A, A.forward(X) + noise, X


@pytest.mark.slow
def test_a_memory_follows_a_tensor_that_turns():
    follows, stays = lt.Online(SHAPE, RANK, memory=1.5 * DOF), lt.Online(SHAPE, RANK)
    errors, estimates = [], []
    for k, (A, y, X) in enumerate(turning(90, 14, 0.03)):
        for online in (follows, stays):
            online.update(A, y)
        if k > 45 and not k % 4:
            errors.append(lt.metrics.relative_error(follows.X, X))
            estimates.append(follows.error_estimate)
    assert np.median(errors) < 0.06 < lt.metrics.relative_error(stays.X, X)
    assert 0.5 < np.median(estimates) / np.median(errors) < 2
    assert follows.status is lt.Status.NOISE_FLOOR
    assert [f.kind for f in stays.result().findings][-1] in ("changing", "lost")


def test_a_memory_that_is_never_reached_changes_little():
    A, y, _ = problem()
    online, forgets = streamed(A, y, 30), streamed(A, y, 30, memory=1e9)
    np.testing.assert_allclose(online.X.full(), forgets.X.full(), atol=1e-5)


# Warm-up


def test_until_there_are_enough_it_says_so_and_gives_a_shrunk_estimate():
    A, y, _ = problem(per_dof=5)
    online = lt.Online(SHAPE, RANK)
    with pytest.raises(ValueError, match="no measurements yet"):
        _ = online.X
    first = slice(0, DOF)
    online.update(A.restrict(first), y[first])
    assert online.warming_up
    assert online.needed == int(np.ceil(states.FIRST * DOF)) - DOF
    assert online.status is lt.Status.UNDERDETERMINED
    assert online.error_estimate is None
    assert f"{online.needed} more needed" in repr(online)
    result = online.result()
    assert result.status is lt.Status.UNDERDETERMINED
    assert f"needs about {DOF + online.needed}" in result.advice
    expected = lt.recover(A.restrict(first), y[first])
    np.testing.assert_array_equal(online.X.full(), expected.X.full())
    assert online.result() is result  # computed once
    rest = slice(DOF, 5 * DOF)
    online.update(A.restrict(rest), y[rest])
    assert not online.warming_up
    assert online.needed == 0


def test_a_first_fit_that_does_not_predict_is_dropped(monkeypatch):
    """Too early a fit, with a good verdict: new rows show it, and all are fitted again."""
    A, y, X = problem(per_dof=8)
    calls = []

    def first_called_good(*arguments, **settings):
        calls.append(lt.recover(*arguments, **settings))
        return calls[-1] if calls[1:] else replace(calls[-1], status=lt.Status.NOISE_FLOOR)

    monkeypatch.setattr(states, "recover", first_called_good)
    monkeypatch.setattr(states, "FIRST", 1.1)
    monkeypatch.setattr(states, "GROWTH", 3.0)
    online = streamed(A, y, 10)
    assert lt.metrics.relative_error(calls[0].X, X) > 0.5
    assert len(calls) == 3  # the last one before the rows are freed
    assert online.status is lt.Status.NOISE_FLOOR
    assert lt.metrics.relative_error(online.X, X) < 0.01


def test_a_first_fit_in_a_local_minimum_is_replaced():
    """Its residual is twice that of the truth, and new rows are predicted as badly."""
    rng = np.random.default_rng(35)
    X = lt.random_tucker(SHAPE, RANK, seed=35).full()
    X /= np.linalg.norm(X)
    online = lt.Online(SHAPE, RANK)
    for _ in range(30):
        rows = rng.standard_normal((10, *SHAPE))
        online.update(rows, np.tensordot(rows, X, 3) + 0.05 * rng.standard_normal(10))
    assert online.status is lt.Status.NOISE_FLOOR
    assert lt.metrics.relative_error(online.X, X) < 1.5 * online.error_estimate


def test_blocks_are_freed_after_the_warm_up():
    A, y, _ = problem()
    online = streamed(A, y, 10)
    assert not online._state.kept


def test_the_callers_arrays_may_be_used_again():
    """A buffer that is filled anew for every block."""
    A, y, _ = problem()
    y = y[:350]
    plain, buffered = streamed(A, y, 10), lt.Online(SHAPE, RANK)
    rows, values = np.empty((10, 512)), np.empty(10)
    for start in range(0, len(y), 10):
        rows[:], values[:] = A.matrix[start : start + 10], y[start : start + 10]
        buffered.update(rows, values)
    assert same_bits(plain.X, buffered.X)


@pytest.mark.slow
def test_blocks_of_different_kinds():
    A, y, X = problem("dense", per_dof=4, seed=2)
    B, z, _ = problem("entries", per_dof=4, seed=2)
    online = lt.Online(SHAPE, RANK)
    for k in range(0, len(y), 40):
        rows = slice(k, min(k + 40, len(y)))
        online.update(A.restrict(rows), y[rows])
        online.update(B.restrict(rows), z[rows])
    assert lt.metrics.relative_error(online.X, X) < 0.01


# Spellings


def test_one_measurement_at_a_time():
    A, y, _ = problem(per_dof=4)
    many, tensors, vectors, lists = (lt.Online(SHAPE, RANK) for _ in range(4))
    for k in range(len(y)):
        many.update(A.matrix[k : k + 1], y[k : k + 1])
        tensors.update(A.matrix[k].reshape(SHAPE), y[k])
        vectors.update(A.matrix[k], float(y[k]))
        lists.update(A.matrix[k].reshape(SHAPE), [y[k]])
    assert same_bits(many.X, tensors.X)
    assert same_bits(many.X, vectors.X)
    assert same_bits(many.X, lists.X)


def test_entries_have_a_spelling_of_their_own():
    A, y, _ = problem("entries", per_dof=5)
    plain, short = streamed(A, y, 1), lt.Online(SHAPE, RANK)
    for index, value in zip(A.indices, y, strict=True):
        short.update_entries(index, value)
    short.update_entries(np.zeros((0, 3), int), [])
    assert same_bits(plain.X, short.X)


def test_an_empty_block_changes_nothing():
    online = lt.Online(SHAPE, RANK)
    online.update(np.zeros((0, *SHAPE)), np.zeros(0))
    assert online.m == 0


@pytest.mark.parametrize("per_dof", [1, 5], ids=["warm-up", "later"])
def test_weights_that_are_all_zero_change_nothing(per_dof):
    A, y, _ = problem(per_dof=per_dof)
    online = streamed(A, y, DOF)
    before = online._state
    online.update(A.matrix[:5], np.full(5, np.nan), np.zeros(5))
    online.update_entries([0, 0, 0], 1.0, 0.0)
    assert online._state is before
    with pytest.raises(ValueError, match="y_block must have one entry"):
        online.update(A.matrix[:5], y[:4], np.zeros(5))


def test_pieces_of_weight_zero():
    """A large block is used in pieces: one of them has no weight at all."""
    A, y, _ = problem(per_dof=8)
    weights = np.ones(len(y))
    weights[4 * DOF : 5 * DOF] = 0
    online = streamed(A, y, 4 * DOF, weights)
    assert online.m == len(y)
    assert online.status is lt.Status.NOISE_FLOOR


def test_updates_from_several_threads_are_all_used():
    A, y, _ = problem(per_dof=12)
    online = streamed(A.restrict(slice(0, 4 * DOF)), y[: 4 * DOF], DOF)

    def work(k):
        for start in range(4 * DOF + 5 * k, len(y) - 4, 20):
            rows = slice(start, start + 5)
            online.update(A.matrix[rows], y[rows])

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    finally:
        sys.setswitchinterval(switch)
    assert online.m == 4 * DOF + 5 * ((len(y) - 4 * DOF) // 5)


@pytest.mark.parametrize(
    "twin", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copies_go_their_own_way(twin):
    A, y, _ = problem(per_dof=6)
    half = 3 * DOF
    online = streamed(A.restrict(slice(0, half)), y[:half], DOF)
    other = twin(online)
    for one in (online, other):
        assert one.m == half
        one.update(A.matrix[half:], y[half:])
    assert same_bits(online.X, other.X)


def test_a_context_closes_the_stream():
    A, y, _ = problem(per_dof=4)
    with lt.Online(SHAPE, RANK) as online:
        online.update(A, y)
    assert "closed" in repr(online)
    assert online.result().success
    with pytest.raises(ValueError, match="closed"):
        online.update(A, y)


def test_error_bars_need_no_measurements():
    A, y, X = problem(per_dof=10)
    where = np.argwhere(np.ones(SHAPE))[::7]
    result, batch = streamed(A, y, 25).result(), lt.recover(A, y, RANK)
    bars = result.standard_error(where)
    np.testing.assert_allclose(bars, batch.standard_error(where), rtol=0.1)
    low, high = result.interval(where)
    assert np.mean((low <= X.entries(where)) & (X.entries(where) <= high)) > 0.85


# Many degrees of freedom


@pytest.mark.parametrize("kind", ["dense", "entries"])
def test_many_degrees_of_freedom_by_products(kind, monkeypatch):
    monkeypatch.setattr(states, "LARGE", 1)
    A, y, X = problem(kind, per_dof=12)
    online = streamed(A, y, 20)
    assert isinstance(online._state.filter, Averages)
    first = lt.recover(A.restrict(slice(0, 3 * DOF)), y[: 3 * DOF], RANK)
    error = lt.metrics.relative_error(online.X, X)
    assert error < 0.8 * lt.metrics.relative_error(first.X, X)
    assert error < 2 * lt.metrics.relative_error(lt.recover(A, y, RANK).X, X)
    assert 0.4 < online.error_estimate / error < 2
    assert online.result().error_interval is None  # the estimate is rough
    assert online.status is lt.Status.NOISE_FLOOR


# Files


@pytest.mark.parametrize("kind", ["dense", "entries"])
@pytest.mark.parametrize("memory", [None, 3.0 * DOF])
@pytest.mark.parametrize("large", [False, True])
def test_a_stream_resumes_bit_for_bit(kind, memory, large, tmp_path, monkeypatch):
    """Saved and loaded after every block, in the warm-up too."""
    if large:
        monkeypatch.setattr(states, "LARGE", 1)
    A, y, _ = problem(kind, per_dof=6)
    plain = streamed(A, y, 40, memory=memory)
    online, path = lt.Online(SHAPE, RANK, memory=memory), tmp_path / "stream.npz"
    for start in range(0, len(y), 40):
        rows = slice(start, min(start + 40, len(y)))
        online.update(A.restrict(rows), y[rows])
        online.save(path, overwrite=True)
        online = lt.Online.load(path)
    assert same_bits(online.X, plain.X)
    assert online.error_estimate == plain.error_estimate
    assert repr(online) == repr(plain)


def test_a_stream_of_other_arrays_resumes(tmp_path):
    A, y, _ = problem(per_dof=5)
    online = lt.Online(SHAPE, RANK)
    online.update(strict.asarray(A.matrix), strict.asarray(y))
    online.save(tmp_path / "stream.npz")
    again = lt.Online.load(tmp_path / "stream.npz", example=strict.zeros(1))
    assert isinstance(again.X.core, type(strict.zeros(1)))
    np.testing.assert_array_equal(np.asarray(again.X.core), np.asarray(online.X.core))


def test_operators_of_the_warm_up_cannot_be_saved(tmp_path):
    A, y, _ = problem("rank one", per_dof=5)
    online = lt.Online(SHAPE, RANK)
    online.update(A.restrict(slice(0, 10)), y[:10])
    with pytest.raises(ValueError, match="RankOneOperator of its first blocks"):
        online.save(tmp_path / "stream.npz")
    online.update(A, y)
    online.update(A, y)
    online.save(tmp_path / "stream.npz")
    assert same_bits(lt.Online.load(tmp_path / "stream.npz").X, online.X)


@pytest.mark.parametrize("change", [lambda b: b[:200], lambda b: b.replace(b"rank", b"rinK")])
def test_damaged_files_are_refused(change, tmp_path):
    A, y, _ = problem(per_dof=5)
    online, path = streamed(A, y, 100), tmp_path / "stream.npz"
    online.save(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(lt.FileFormatError):
        lt.Online.load(path)


def set_in(record, name, value):
    """Change a field of a record in the JSON of a file."""
    next(pair for pair in record["record"][1] if pair[0] == name)[1] = value


def stored(x, change):
    x["filter.gram"] = change(x["filter.gram"])


# Changes of the arrays x and of the text t of a file
DAMAGES = {
    "gram cut": lambda x, t: stored(x, lambda gram: gram[:-1]),
    "gram nan": lambda x, t: stored(x, lambda gram: gram * np.nan),
    "gram negative": lambda x, t: stored(x, lambda gram: -gram),
    "gram of integers": lambda x, t: stored(x, lambda gram: gram.astype(int)),
    "gram complex": lambda x, t: stored(x, lambda gram: gram * 1j),
    "gradient": lambda x, t: x.update({"filter.gradient": np.zeros(3)}),
    "m": lambda x, t: t.update(m=-5),
    "equations": lambda x, t: t.update(equations="x"),
    "tried": lambda x, t: t.update(tried=1.5),
    "past": lambda x, t: t.update(past=None),
    "kept": lambda x, t: t.update(kept=None),
    "start": lambda x, t: t.update(start=None),
    "sigma": lambda x, t: set_in(t["start"], "sigma", "a"),
    "example": lambda x, t: t.update(example=None),
    "filter": lambda x, t: t.update(filter=None),
    "settings": lambda x, t: t.update(settings=None),
    "memory": lambda x, t: set_in(t["settings"], "memory", "a"),
    "short memory": lambda x, t: set_in(t["settings"], "memory", 3.0),
    "seed": lambda x, t: set_in(t["settings"], "seed", None),
}


def damaged(online, path, change):
    online.save(path)
    arrays = dict(np.load(path))
    text = json.loads(arrays["meta"].tobytes())
    change(arrays, text["stream"])
    arrays["meta"] = np.frombuffer(json.dumps(text).encode(), np.uint8)
    np.savez(path, **arrays)


@pytest.mark.parametrize("change", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_streams_are_refused_when_they_are_loaded(change, tmp_path):
    A, y, _ = problem(per_dof=5)
    path = tmp_path / "stream.npz"
    damaged(streamed(A, y, 100, memory=3.0 * DOF), path, change)
    with pytest.raises(lt.FileFormatError, match=r"damaged stream .*\. Start over, or"):
        lt.Online.load(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("y", np.zeros((2, 2))), ("y", np.full(20, np.nan)), ("indices", np.full((20, 3), 8)),
     ("indices", np.zeros((20, 3))), ("indices", np.zeros((20, 2), int))],
)  # fmt: skip
def test_damaged_blocks_are_refused_when_they_are_loaded(name, value, tmp_path):
    A, y, _ = problem("entries", per_dof=1)
    path, key = tmp_path / "stream.npz", f"kept.0.{name}"
    damaged(streamed(A, y, 20), path, lambda x, t: x.update({key: value}))
    with pytest.raises(lt.FileFormatError, match="damaged stream"):
        lt.Online.load(path)


def test_a_result_is_no_stream(tmp_path):
    A, y, _ = problem(per_dof=4)
    lt.recover(A, y, RANK).save(tmp_path / "result.npz")
    with pytest.raises(lt.FileFormatError, match="has the format"):
        lt.Online.load(tmp_path / "result.npz")


# What is refused leaves the stream as it was


def bad_rows(A, y):
    matrix = A.matrix[:20].copy()
    matrix[3, 5] = np.nan
    values = y[:20].copy()
    values[4] = np.inf
    return [
        (matrix, y[:20], "in row 3"),
        (A.matrix[:20], values, "the first at 4"),
        (A.matrix[:20], y[:19], "one entry for each of the 20"),
        (np.ones((20, 4, 4, 4)), y[:20], "tensors of shape"),
        (A.matrix[:20] * 1j, y[:20] * 1j, "complex128"),
        (A.matrix[:20], y[:20] * 1j, "complex, but A gives real"),
        (A.matrix[:20].astype(np.float32), y[:20].astype(np.float32), "float32"),
        (strict.asarray(A.matrix[:20]), strict.asarray(y[:20]), "array_api_strict"),
    ]


@pytest.mark.parametrize("per_dof", [1, 5], ids=["warm-up", "later"])
@pytest.mark.parametrize("which", range(8))
def test_a_block_that_is_refused_changes_nothing(which, per_dof):
    A, y, _ = problem(per_dof=per_dof)
    online = streamed(A, y, DOF)
    before = online._state
    rows, values, text = bad_rows(A, y)[which]
    with pytest.raises((ValueError, TypeError), match=text):
        online.update(rows, values)
    assert online._state is before


def test_nan_that_an_operator_makes_is_named_by_its_row():
    A, y, _ = problem(per_dof=5)
    online = streamed(A, y, DOF)
    before = online._state
    bad = np.full(10, 1.0)
    bad[7] = np.nan
    B = A.restrict(slice(0, 10))
    operator = lt.FunctionOperator(lambda Z: bad * B.forward(Z), B.adjoint, SHAPE, 10)
    with pytest.raises(ValueError, match="row 7"):
        online.update(operator, y[:10])
    assert online._state is before


@pytest.mark.parametrize("per_dof", [1, 5], ids=["warm-up", "later"])
def test_an_interrupt_changes_nothing(per_dof, monkeypatch):
    A, y, _ = problem(per_dof=8)
    n = per_dof * DOF
    online = streamed(A.restrict(slice(0, n)), y[:n], DOF)
    before = online._state

    def interrupted(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(lt.TangentSpace, "transported", interrupted)
    monkeypatch.setattr(states, "recover", interrupted)
    with pytest.raises(KeyboardInterrupt):
        online.update(A.restrict(slice(n, n + 3 * DOF)), y[n : n + 3 * DOF])
    assert online._state is before


def test_ctrl_c_in_a_first_fit_goes_to_the_caller(monkeypatch, caplog):
    """No word of a best result so far: the block is dropped."""
    A, y, _ = problem(per_dof=4)
    online, forward = lt.Online(SHAPE, RANK), type(A).residual

    def pressed(*arguments):
        monkeypatch.setattr(type(A), "residual", forward)
        os.kill(os.getpid(), signal.SIGINT)
        return forward(*arguments)

    monkeypatch.setattr(type(A), "residual", pressed)
    with pytest.raises(KeyboardInterrupt):
        online.update(A, y)
    assert not caplog.records
    assert not online.m
    online.update(A, y)
    assert online.m == len(y)
