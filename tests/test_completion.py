"""Completion: inputs, held-out samples, limits and verdicts."""

from __future__ import annotations

import importlib
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse.linalg

import lowtucker as lt
from lowtucker._array import to_numpy
from lowtucker.recovery import accuracy, hard
from lowtucker.recovery.completion import held_samples as _held
from lowtucker.recovery.fit import Fit
from lowtucker.solvers.models import has_full_rank
from lowtucker.uncertainty import information

# functions of these names hide the modules
entries = importlib.import_module("lowtucker.operators.entries")

SHAPE, RANK = (15, 14, 13), (2, 2, 2)
DOF = 2 * 13 + 2 * 12 + 2 * 11 + 8


def truth(shape=SHAPE, rank=RANK, seed=0):
    return lt.random_tucker(shape, rank, seed=seed).full()


def with_holes(X, keep=0.25, seed=0):
    holes = np.random.default_rng(seed).random(X.shape) >= keep
    return np.where(holes, X.dtype.type(np.nan), X)


X = truth()
HOLES = with_holes(X)
INDICES = np.argwhere(~np.isnan(HOLES))
VALUES = HOLES[~np.isnan(HOLES)]
m = len(VALUES)


def noise(level, seed=1):
    return level * np.sqrt(np.mean(VALUES**2)) * np.random.default_rng(seed).standard_normal(m)


def from_samples(values, rank=RANK, indices=INDICES, shape=SHAPE, **options):
    return lt.complete(values, rank, indices=indices, shape=shape, **options)


def error(result, expected=X):
    return np.linalg.norm(result.X.full() - expected) / np.linalg.norm(expected)


def held_samples(rank=RANK, share=0.1, seed=0, indices=INDICES, shape=SHAPE):
    return _held(lt.entries(shape, indices), rank, share, seed)


def entries_of(T, index):
    """Entries of a Tucker tensor of three modes, by the definition."""
    rows = [U[index[:, k]] for k, U in enumerate(T.factors)]
    return np.einsum("abc,ia,ib,ic->i", T.core, *rows)


# what may be given


def masked():
    garbage = np.where(np.isnan(HOLES), np.inf, HOLES)
    given = np.ma.array(garbage, mask=np.isnan(HOLES))
    given.data[np.isnan(HOLES)] = np.resize([np.inf, 7.0, np.nan], np.isnan(HOLES).sum())
    return given


KINDS = {
    "float64": HOLES,
    "float32": HOLES.astype(np.float32),
    "half precision, exact": np.where(np.isnan(HOLES), np.nan, 1).astype(np.float16),
    "complex128": HOLES * (3 - 4j),
    "complex64": (HOLES * (3 - 4j)).astype(np.complex64),
    "masked": masked(),
    "masked float32": np.ma.masked_invalid(HOLES.astype(np.float32)),
    "masked complex": np.ma.masked_invalid(HOLES * (3 - 4j)),
    "column-major": np.asfortranarray(HOLES),
    "nested lists": HOLES.tolist(),
}


@pytest.mark.parametrize("given", KINDS)
def test_holes_are_filled(given):
    values = KINDS[given]
    expected = np.ones(SHAPE) if "half" in given else X * (3 - 4j) if "complex" in given else X
    rank = (1, 1, 1) if "half" in given else RANK
    result = lt.complete(values, rank)
    assert result.success
    assert result.m == m
    assert error(result, expected) < 1e-5
    assert result.held_out < 1e-5
    wanted = getattr(values, "dtype", np.dtype(float))
    assert result.X.core.dtype == (np.float64 if wanted == np.float16 else wanted)


def test_a_nan_that_is_not_masked_is_a_hole_too():
    mask = np.isnan(HOLES)
    some = np.flatnonzero(mask)[::2]
    mask.reshape(-1)[some] = False
    result = lt.complete(np.ma.array(HOLES, mask=mask), RANK)
    assert result.m == m
    assert error(result) < 1e-5


def test_a_nan_in_either_part_of_a_complex_number_is_a_hole():
    values = HOLES + 0j
    values.reshape(-1)[np.flatnonzero(np.isnan(HOLES))[::2]] = complex(1, np.nan)
    assert lt.complete(values, RANK).m == m


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool])
def test_integers(dtype):
    i, j, k = np.ogrid[1:7, 1:6, 1:5]
    whole = np.ones((6, 5, 4), bool) if dtype is bool else (i * j * k)
    mask = np.random.default_rng(0).random((6, 5, 4)) < 0.4
    for values in (whole.astype(dtype), np.ma.array(whole.astype(dtype), mask=mask)):
        result = lt.complete(values, (1, 1, 1))
        assert result.success
        assert result.m == np.ma.count(values)
        np.testing.assert_allclose(result.X.full(), whole, rtol=0, atol=1e-4 * whole.max())


@pytest.mark.parametrize(
    ("shape", "rank", "keep"),
    [((9,), (1,), 1), ((20, 18), (2, 2), 0.5), ((8, 1, 9), (1, 1, 1), 0.7),
     ((8, 7, 6, 9), (2, 2, 2, 2), 0.3)],
    ids=str,
)  # fmt: skip
def test_every_order(shape, rank, keep):
    expected = truth(shape, rank)
    result = lt.complete(with_holes(expected, keep), rank)
    assert result.success
    assert result.X.shape == shape
    assert error(result, expected) < 1e-5


def test_samples_by_index_are_those_of_the_array():
    result = lt.complete(HOLES, RANK)
    for indices in (INDICES, INDICES.astype(np.uint8), INDICES.tolist()):
        again = from_samples(VALUES, indices=indices, shape=list(SHAPE))
        np.testing.assert_array_equal(again.X.full(), result.X.full())
        assert again.held_out == result.held_out
    again = lt.complete(HOLES, RANK, shape=list(SHAPE))  # its own shape may be given
    np.testing.assert_array_equal(again.X.full(), result.X.full())


def test_inputs_are_not_changed():
    values, given, indices = HOLES.copy(), masked(), INDICES.copy()
    before = given.copy()
    indices.flags.writeable = values.flags.writeable = False
    lt.complete(values, RANK)
    lt.complete(given, RANK)
    np.testing.assert_array_equal(given.data, before.data)
    np.testing.assert_array_equal(given.mask, before.mask)
    samples = VALUES.copy()
    samples.flags.writeable = False
    from_samples(samples, indices=indices)


@pytest.mark.parametrize("solver", ["als", "RGN", "rcg", "tiht", lt.ALS(), ["als", "rgn"]], ids=str)
def test_solvers(solver):
    result = lt.complete(HOLES, RANK, solver=solver)
    assert result.success
    assert error(result) < 1e-5
    first = solver[0] if isinstance(solver, list) else getattr(solver, "__name__", solver)
    assert result.solver.lower().startswith(str(first).lower().removesuffix("()"))


@pytest.mark.parametrize("rank", ["auto", "AUTO", lt.RankSearch(max=(3, 3, 3))], ids=str)
def test_the_rank_is_found(rank):
    result = lt.complete(HOLES, rank)
    assert result.success
    assert result.rank == RANK
    assert error(result) < 1e-5
    assert result.held_out < 1e-5
    assert [note[:24] for note in result.notes] == ["Rank (2, 2, 2) was found"]


def test_a_search_keeps_to_its_largest_rank():
    result = lt.complete(HOLES, lt.RankSearch(max=(1, 1, 1)))
    assert result.rank == (1, 1, 1)
    assert not result.success
    assert result.held_out > 0.3


def test_too_large_a_rank_is_reported_once():
    result = lt.complete(X, (3, 3, 3))
    assert result.success
    note = "Rank (2, 2, 2) suffices: the rest of (3, 3, 3) is smaller than the error."
    assert result.notes == (note,)


def test_the_note_on_the_rank_describes_the_last_fit():
    result = from_samples(VALUES + noise(0.05), (3, 3, 3), noise_std=0.05 * np.std(VALUES))
    assert sum("suffices" in note for note in result.notes) <= 1


def test_the_truth_adds_a_column_and_changes_nothing_else():
    plain, compared = lt.complete(HOLES, RANK), lt.complete(HOLES, RANK, X_true=X)
    np.testing.assert_array_equal(plain.X.full(), compared.X.full())
    assert compared.error == pytest.approx(error(compared), rel=1e-3)
    assert len(compared.history["error"]) == len(plain.history["residual"])


# noise and outliers


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("rank", [RANK, "auto"], ids=str)
def test_noise(known, rank):
    added = noise(0.05)
    std = float(np.std(added)) if known else None
    result = from_samples(VALUES + added, rank, noise_std=std)
    assert result.status is lt.Status.NOISE_FLOOR
    assert result.success
    assert result.rank == RANK
    assert error(result) < 0.05  # sqrt(dof / m) of the noise, times two or so: 0.017 were ideal
    # the held-out samples have noise too, so no fit is below it
    held = held_samples(rank)
    share = np.linalg.norm(added[held]) / np.linalg.norm((VALUES + added)[held])
    assert 0.9 * share < result.held_out < 1.3 * share


def test_names_of_solvers_are_case_insensitive():
    """The test for noise is part of "auto" only."""
    result = from_samples(VALUES + noise(0.05), solver="AUTO", held_out=0)
    assert result.status is lt.Status.NOISE_FLOOR


def with_outliers():
    values, wrong = VALUES.copy(), np.random.default_rng(1).choice(m, 30, replace=False)
    values[wrong] += 10 * np.std(VALUES)
    return values, np.sort(wrong)


def test_outliers():
    values, wrong = with_outliers()
    result = from_samples(values, loss="huber")
    assert result.success
    assert error(result) < 1e-5
    assert np.all(result.weights[wrong] == 0)
    assert result.weights.shape == (m,)
    assert not from_samples(values, max_epochs=50).success


def test_held_out_samples_are_not_mistaken_for_outliers():
    values, wrong = with_outliers()
    result = from_samples(values, loss="huber")
    np.testing.assert_array_equal(np.flatnonzero(result.weights == 0), wrong)


def test_held_out_outliers_do_not_distort_the_error():
    values, wrong = with_outliers()
    assert held_samples()[wrong].any()
    assert from_samples(values, loss="huber").held_out < 0.5


# what is held out

# the second fit takes some steps
STEPS = {"held_out": 0.6, "tol": 1e-4, "solver": "tiht"}


def states(values, **options):
    """Tensors of all epochs, and the result; how many of them are of the first fit."""
    seen = []
    result = from_samples(values, callbacks=[lambda p: seen.append(p.state.X)], **options)
    second = [str(phase).startswith("all samples") for phase in result.history["phase"]]
    assert second == sorted(second)
    return seen, result, int(result.history["epoch"][second.count(False) - 1])


def test_the_held_out_error_is_that_of_a_fit_without_those_samples():
    held = held_samples()
    assert held.sum() == round(0.1 * m)
    for values in (VALUES, VALUES + noise(0.1)):
        result = from_samples(values)
        blind = lt.recover(lt.entries(SHAPE, INDICES[~held]), values[~held], RANK)
        missed = values[held] - entries_of(blind.X, INDICES[held])
        expected = np.linalg.norm(missed) / np.linalg.norm(values[held])
        assert result.held_out == pytest.approx(expected, rel=1e-6)
        first = blind.history.rows
        np.testing.assert_allclose(result.history["residual"][:first], blind.history["residual"])


@pytest.mark.parametrize(
    ("rank", "loss"), [(RANK, "squared"), ("auto", "squared"), (RANK, "huber")], ids=str
)
def test_held_out_values_do_not_affect_the_first_fit(rank, loss):
    values, held = VALUES + noise(0.02), held_samples(rank)
    settings = {"rank": rank, "loss": loss, "max_epochs": 30, "noise_std": 0.02 * np.std(VALUES)}
    seen, result, count = states(values, **settings)
    assert result.success
    values[held] *= -3
    again, other, same = states(values, **settings)
    assert count == same
    assert count > 2
    for a, b in zip(seen[:count], again[:count], strict=True):
        np.testing.assert_array_equal(a.core, b.core)
        for U, V in zip(a.factors, b.factors, strict=True):
            np.testing.assert_array_equal(U, V)
    # x - (-3 x) is 4 x, in units of 3 x
    assert other.held_out == pytest.approx(4 / 3, rel=0.05)
    assert result.held_out < 0.1
    # the second fit sees them
    if loss == "squared":
        assert other.residual > 2 * result.residual
        assert other.m == m
    else:
        assert np.mean(other.weights[held] < 0.5) > 0.9  # those of small values stay


def test_all_other_values_affect_the_first_fit():
    held = held_samples()
    seen, _, _ = states(VALUES, max_epochs=1)
    for k in np.flatnonzero(~held)[[0, 100, -1]]:
        values = VALUES.copy()
        values[k] += 1e-3
        assert not np.array_equal(states(values, max_epochs=1)[0][0].core, seen[0].core)


def test_the_second_fit_begins_where_the_first_ended_and_has_full_rank():
    _, result, count = states(VALUES, **STEPS)
    held = held_samples(share=0.6)
    blind = lt.recover(
        lt.entries(SHAPE, INDICES[~held]), VALUES[~held], RANK, tol=1e-4, solver="tiht"
    )
    assert count == blind.epochs == blind.history.rows - 1
    at_start = np.linalg.norm(VALUES - entries_of(blind.X, INDICES)) / np.linalg.norm(VALUES)
    assert result.history["residual"][count + 1] == pytest.approx(at_start, rel=1e-5)
    at_end = np.linalg.norm(VALUES - entries_of(result.X, INDICES)) / np.linalg.norm(VALUES)
    assert result.residual == pytest.approx(at_end, rel=1e-5)
    assert at_end < 1e-4 < at_start
    assert result.m == m


def test_the_history_joins_both_fits():
    _, result, count = states(VALUES, X_true=X, **STEPS)
    rows = result.history
    assert 0 < count < rows.rows - 2
    for name in ("epoch", "passes", "seconds"):
        assert np.all(np.diff(rows[name]) >= 0)
    assert result.epochs == rows["epoch"][-1] == rows.rows - 2  # each fit has a row of its start
    assert result.passes >= rows["passes"][-1] > rows["passes"][count] > 0
    assert result.seconds == pytest.approx(rows["seconds"][-1])
    assert set(rows) == {"epoch", "passes", "seconds", "residual", "cost", "phase", "error"}
    assert result.residual == rows["residual"][-1]


def test_nothing_is_held_out_on_request():
    result = from_samples(VALUES, held_out=0)
    assert result.held_out is None
    assert "held out" not in repr(result)
    alone = lt.recover(lt.entries(SHAPE, INDICES), VALUES, RANK)
    np.testing.assert_array_equal(result.X.full(), alone.X.full())
    assert not any(str(phase).startswith("all") for phase in result.history["phase"])


@pytest.mark.parametrize("extra", [-30, 0, 1])
def test_too_few_samples_to_hold_any_out(extra):
    """The rest is 1.5 samples per degree of freedom."""
    count = math.ceil(1.5 * DOF) + extra
    assert held_samples(indices=INDICES[:: m // count][:count]).sum() == max(0, extra)
    keep = np.sort(np.random.default_rng(2).permutation(m)[:count])
    result = from_samples(VALUES[keep], indices=INDICES[keep], max_epochs=2, solver="als")
    assert (result.held_out is None) == (extra < 1)


def test_how_many_are_held_out():
    for share in (0.001, 0.02, 0.1, 0.25, 0.5):
        assert held_samples(share=share).sum() == round(share * m)
    enough = m - math.ceil(1.5 * DOF)
    for share in (0.9, 0.999):  # slices may want some back
        assert 0.9 * enough < held_samples(share=share).sum() <= enough
    assert not held_samples(share=0.4 / m).any()
    # a rank that no tensor has counts as the one that is attained; one that is sought as 1
    few = INDICES[:100]
    ones = math.ceil(1.5 * (15 + 14 + 13 - 2))
    for rank in ((1, 1, 3), [1, 1, 1], "auto", lt.RankSearch((4, 4, 4))):
        assert held_samples(rank, 0.9, indices=few).sum() <= 100 - ones
        assert held_samples(rank, 0.3, indices=few).any()
    for rank in ((2, 2, 2), [2, 2, 2]):
        assert not held_samples(rank, 0.3, indices=few).any()
    # (3, 3, 2) has 109 degrees of freedom, and 163.5 samples are 164
    assert held_samples((3, 3, 2), 0.3, indices=INDICES[::4][:165]).sum() == 1


@pytest.mark.parametrize("rank", [(2, 2, 2), (3, 2, 2), (2, 5, 4), (1, 1, 4), "auto"], ids=str)
def test_every_slice_keeps_more_samples_than_its_degrees_of_freedom(rank):
    least = (1, 1, 1) if rank in ("auto", (1, 1, 4)) else rank  # what is attained
    shape = (30, 12, 10)
    spared = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        # slices of mode 0 that are ever less likely
        first = np.minimum(rng.geometric(0.12, 900) - 1, 29)
        index = np.stack([first, rng.integers(0, 12, 900), rng.integers(0, 10, 900)], axis=1)
        held = held_samples(rank, 0.5, seed, index, shape)
        assert 200 < held.sum() <= 450
        for k, r in enumerate(least):
            before = np.bincount(index[:, k], minlength=shape[k])
            after = np.bincount(index[~held, k], minlength=shape[k])
            touched = before > after
            assert np.all(after[touched] > r)
            spared += np.sum(~touched & (before > 0))
        # no more than that is given back: half are out of slices with many
        many = np.bincount(index[:, 0], minlength=30)[index[:, 0]] > 60
        assert 0.4 < held[many].mean() < 0.6
    assert spared > 10


def test_seeds():
    masks = [held_samples(seed=seed) for seed in (0, 1, (0, 1))]
    assert all(not np.array_equal(a, b) for a, b in itertools.pairwise(masks))
    np.testing.assert_array_equal(masks[0], held_samples(seed=(0, 0)))
    values = VALUES + noise(0.05)
    std = 0.05 * np.std(VALUES)
    one, again, other = (from_samples(values, seed=seed, noise_std=std) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.X.full(), again.X.full())
    assert one.held_out == again.held_out != other.held_out
    # from anywhere in the list: every sample may be held out
    ever = np.mean([held_samples(seed=seed) for seed in range(60)], axis=0)
    assert 0.08 < ever.mean() < 0.12
    assert np.all(ever[::50] < 0.4)
    assert np.mean(ever == 0) < 0.01


def test_zero_values_have_an_absolute_error():
    values = VALUES.copy()
    values[held_samples()] = 0
    result = from_samples(values)
    blind = lt.complete(HOLES, RANK)
    assert result.held_out == pytest.approx(np.linalg.norm(VALUES[held_samples()]), rel=1e-3)
    assert blind.success


def test_the_second_fit_improves_a_failed_first_fit():
    rank = (1, 1, 1)
    result = from_samples(VALUES, rank)
    assert result.status is lt.Status.RANK_TOO_SMALL
    assert "Rank (2, 2, 2) predicts" in result.advice
    assert result.held_out > 0.3
    A = lt.entries(SHAPE, INDICES)
    # a stationary point of the cost of all samples, which the first fit has not seen
    g = A.tangent(lt.TangentSpace(result.X)).rmatvec(VALUES - A.forward(result.X))
    assert np.linalg.norm(g) < 1e-3 * np.linalg.norm(VALUES)
    assert result.m == m


def test_a_first_fit_with_too_few_samples_does_not_prevent_the_second():
    result = from_samples(VALUES, held_out=0.99, solver="als")
    assert result.success
    assert error(result) < 1e-5
    assert result.held_out > 0.1  # with 1.5 samples per degree of freedom nothing was found


def test_the_rank_is_searched_again_if_the_first_fit_fails():
    """It has 60 samples: enough for rank 1."""
    result = from_samples(VALUES, "auto", held_out=0.99)
    assert result.held_out > 0.3
    assert result.rank == RANK
    assert result.success
    assert error(result) < 1e-5


def test_the_held_out_error_is_kept(tmp_path):
    result = from_samples(VALUES)
    assert f"held out  {result.held_out:.1e}, the error on held-out samples" in repr(result)
    assert "held&#160;out" in result._repr_html_()
    assert "held out  0.0e+00" in repr(replace(result, held_out=0.0))
    result.save(tmp_path / "x.npz")
    again = lt.load(tmp_path / "x.npz")
    assert again.held_out == result.held_out
    assert repr(again) == repr(result)


# limits


def test_an_epoch_is_the_limit_of_each_fit():
    result = from_samples(VALUES, max_epochs=1)
    assert result.status is lt.Status.MAX_EPOCHS
    assert result.held_out > 0
    assert result.m == m


def test_the_second_fit_gets_the_remaining_time(ticks):
    whole = from_samples(VALUES, **STEPS)
    assert whole.success
    assert whole.seconds == ticks.monotonic()
    # the second fit has steps of its own; the last of them is cut off
    assert str(whole.history["phase"][-2]).startswith("all samples")
    short = from_samples(VALUES, max_seconds=whole.seconds - 1, **STEPS)
    assert short.status is lt.Status.MAX_SECONDS
    assert short.seconds == whole.seconds - 1
    assert short.held_out == whole.held_out


@pytest.mark.parametrize("rank", [RANK, "auto"], ids=str)
def test_time_is_not_counted_twice(ticks, rank):
    result = from_samples(VALUES, rank, solver="rcg", max_seconds=10)
    assert result.status is lt.Status.MAX_SECONDS
    assert ticks.monotonic() <= 15  # a start takes a second too


def test_the_history_has_a_first_fit_that_failed():
    result = from_samples(VALUES, max_epochs=2)
    assert result.history.rows > 3
    assert np.all(np.diff(result.history["passes"]) >= 0)
    phases = [str(phase).startswith("all samples") for phase in result.history["phase"]]
    assert phases == [False] * 3 + [True] * 3


@pytest.mark.parametrize("rank", [RANK, "auto"], ids=str)
def test_a_callback_stops_the_first_fit_for_good(rank):
    calls = []
    result = from_samples(VALUES, rank, callbacks=[lambda p: calls.append(p) or len(calls) == 2])
    assert result.status is lt.Status.INTERRUPTED
    assert not result.success
    assert len(calls) == 2


def test_a_callback_stops_the_second_fit():
    _, whole, count = states(VALUES, **STEPS)
    assert whole.epochs > count + 1
    calls = []

    def stop(progress):
        calls.append(progress)
        return len(calls) > count

    result = from_samples(VALUES, callbacks=[stop], **STEPS)
    assert len(calls) == count + 1
    assert result.status is lt.Status.INTERRUPTED
    assert not result.success
    assert result.held_out == whole.held_out
    assert result.m == m
    np.testing.assert_array_equal(
        result.history["residual"], whole.history["residual"][: count + 3]
    )


# unsampled slices and duplicate samples


@pytest.mark.parametrize("rank", [RANK, "auto"], ids=str)
def test_a_slice_without_samples(rank):
    values = HOLES.copy()
    values[:, 5] = np.nan
    message = "Mode 1 has no samples in slice 5: X is not determined there."
    with pytest.warns(lt.UnderdeterminedWarning) as warned:
        result = lt.complete(values, rank)
    assert [str(w.message) for w in warned] == [
        f"{message} Add measurements, or leave these slices out."
    ]
    assert warned[0].filename == __file__
    assert result.status is lt.Status.UNDERDETERMINED
    assert not result.success
    assert result.notes.count(message) == 1
    assert not any("do not determine X" in note for note in result.notes)  # the note says more
    found = result.X.full()
    np.testing.assert_allclose(found[:, 5], 0, atol=1e-12)
    keep = np.arange(14) != 5
    np.testing.assert_allclose(found[:, keep], X[:, keep], atol=1e-5)
    assert result.held_out < 1e-5


def test_a_slice_without_samples_is_no_success_with_noise_either():
    keep = INDICES[:, 1] != 5
    values, std = (VALUES + noise(0.05))[keep], 0.05 * np.std(VALUES)
    with pytest.warns(lt.UnderdeterminedWarning, match="Mode 1 has no samples in slice 5"):
        result = from_samples(values, indices=INDICES[keep], noise_std=std)
    assert result.residual < 0.05
    assert result.status is lt.Status.UNDERDETERMINED
    assert not result.success


def test_slices_are_named_in_every_mode():
    values = HOLES.copy()
    values[2:14] = np.nan
    values[..., [0, 3]] = np.nan
    few = np.argwhere(~np.isnan(values[1]))[1:]
    values[1][tuple(few.T)] = np.nan  # one sample is left
    with pytest.warns(lt.UnderdeterminedWarning) as warned:
        result = lt.complete(values, (2, 1, 2), max_epochs=1)
    texts = [str(w.message) for w in warned if "slice" in str(w.message)]
    assert texts[0].startswith(
        "Mode 0 has no samples in slices 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more: X is not"
    )
    assert texts[-1].startswith("Mode 2 has no samples in slices 0, 3: X")
    assert any("Mode 0 has no samples in slices 2" in note for note in result.notes)


def test_a_slice_with_fewer_samples_than_degrees_of_freedom():
    values = HOLES.copy()
    values[4, :, :] = np.nan
    values[4, 3, 2] = X[4, 3, 2]
    result = lt.complete(values, RANK)  # no warning: rank 1 might be found
    assert result.status is lt.Status.UNDERDETERMINED
    assert "Mode 0 has fewer than 2 samples in slice 4: X is not determined there." in result.notes
    assert not any("Mode 1" in note or "Mode 2" in note for note in result.notes)


def test_duplicate_samples_are_reported():
    index = np.concatenate([INDICES, INDICES[:40], INDICES[:3]])
    result = from_samples(np.concatenate([VALUES, VALUES[:40], VALUES[:3]]), indices=index)
    note = f"43 of the {m + 43} samples are duplicates: their mean is fitted"
    assert [text for text in result.notes if "samples" in text] == [f"{note}."]
    assert result.success
    assert not any("duplicate" in text for text in from_samples(VALUES).notes)


def test_duplicate_samples_of_a_tensor_with_too_many_entries_to_number():
    shape = (2**16,) * 4
    index = np.array([[0, 1, 2, 0], [2**16 - 1, 5, 2**16 - 1, 7], [0, 1, 2, 0], [0, 2, 1, 0]])
    duplicates, *unsampled = lt.entries(shape, index).diagnose((1, 1, 1, 1))
    assert duplicates.text == "1 of the 4 samples is a duplicate: the mean of both is fitted."
    assert duplicates.numbers == {"duplicates": 1, "samples": 4}
    assert {one.kind for one in unsampled} == {"unsampled"}
    kinds = [one.kind for one in lt.entries(shape, index[1:]).diagnose((1, 1, 1, 1))]
    assert kinds == ["unsampled"] * 4


# is X determined if the solver gives no estimate?


def like_slices(seed=1):
    """Tensor of which two slices are equal, and samples: none of slice 4 of mode 0."""
    T = lt.random_tucker(SHAPE, RANK, seed=seed)
    T.factors[2][5] = T.factors[2][2]
    flat = np.random.default_rng(2).choice(2730, 225, replace=False)
    index = np.stack(np.unravel_index(flat, SHAPE), axis=1)
    return np.einsum("abc,ia,jb,kc->ijk", T.core, *T.factors), index[index[:, 0] != 4][:205]


# two dependent samples of slice 4, and three independent ones
TWINS, OTHERS = [[4, 3, 2], [4, 3, 5]], [[4, 3, 2], [4, 8, 9], [4, 1, 1]]


@pytest.mark.parametrize("large", [5000, 10])
def test_als_is_no_success_when_the_samples_do_not_determine_x(monkeypatch, large):
    """By the eigenvalues, and by products alone where the design is too large for them."""
    monkeypatch.setattr(information, "LARGE", large)
    if large == 10:
        monkeypatch.setattr(accuracy, "_by_eigenvalues", None)
    expected, index = like_slices()
    for some, seen in ((OTHERS, True), (TWINS, False)):
        known = np.concatenate([index, some])
        values = expected[tuple(known.T)]
        result = from_samples(values, indices=known, solver="als", held_out=0, tol=1e-9)
        assert result.residual <= 1e-9
        assert (error(result, expected) < 1e-6) == seen
        assert (result.error_estimate is not None) == seen
        if seen:
            low, high = result.error_interval
            assert low < error(result, expected) < high
        assert result.success == seen
        told = "the measurements do not determine X: the tangent" in result.advice
        assert told == (not seen)
        assert result.status.name == ("CONVERGED" if seen else "UNDERDETERMINED")


@pytest.mark.parametrize(("some", "seen"), [(OTHERS, True), (TWINS, False)])
def test_full_rank_by_products_is_that_by_singular_values(some, seen):
    expected, index = like_slices()
    A = lt.entries(SHAPE, np.concatenate([index, some]))
    T = lt.hosvd(expected, RANK)
    values = np.linalg.svd(A.tangent(lt.TangentSpace(T)).dense())[1]
    assert (values[-1] > 1e-3 * values[0]) == seen
    assert values[-2] > 1e-3 * values[0]  # at most one direction is not measured
    verdict = [has_full_rank(lt.Problem(A, A.forward(T)), T, seed) for seed in range(8)]
    # a random vector has next to nothing of one direction, once in a hundred times
    assert verdict.count(seen) >= 7


def test_duplicate_samples_count_once_for_their_slice(monkeypatch):
    """With many samples, and too many degrees of freedom for the design."""
    monkeypatch.setattr(information, "LARGE", 10)
    known = np.concatenate([INDICES[INDICES[:, 0] != 4], [[4, 3, 2]] * 2])
    result = from_samples(X[tuple(known.T)], indices=known, solver="als", held_out=0)
    assert error(result) > 0.1
    assert not result.success


# starts in long modes


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64])
def test_a_start_by_sparse_eigenvectors_is_that_by_dense_ones(monkeypatch, dtype):
    shape, rank = (70, 12, 11), (3, 2, 2)
    rng = np.random.default_rng(0)
    index = rng.integers(0, shape, (2500, 3))
    index = index[index[:, 0] != 9]  # a slice without samples
    v = lt.random_tucker(shape, rank, seed=1).entries(index)
    if np.dtype(dtype).kind == "c":
        v = v + 1j * lt.random_tucker(shape, rank, seed=2).entries(index)
    A, v = lt.entries(shape, index), v.astype(dtype)
    dense = A.spectral_start(v, rank)
    calls, eigsh = [], scipy.sparse.linalg.eigsh

    def counted(gram, r, **options):
        calls.append((gram.shape, r))
        return eigsh(gram, r, **options)

    monkeypatch.setattr(scipy.sparse.linalg, "eigsh", counted)
    monkeypatch.setattr(entries, "DENSE", 20)
    sparse = A.spectral_start(v, rank)
    assert calls == [((70, 70), 3)]  # the long mode alone
    tol = 1e-3 if np.dtype(dtype).itemsize in (4, 8) and dtype != np.float64 else 1e-6
    for U, V in zip(sparse.factors, dense.factors, strict=True):
        assert U.dtype == dtype
        np.testing.assert_allclose(U.conj().T @ U, np.eye(U.shape[1]), atol=tol)
        assert np.linalg.norm(U - V @ (V.conj().T @ U), 2) < tol  # one subspace
    scale = np.abs(dense.full()).max()
    np.testing.assert_allclose(sparse.full(), dense.full(), atol=tol * scale)
    np.testing.assert_allclose(sparse.factors[0][9], 0, atol=tol)
    again = A.spectral_start(v, rank)
    np.testing.assert_array_equal(again.core, sparse.core)


def test_ranks_near_the_size_of_a_mode_use_dense_eigenvectors(monkeypatch):
    monkeypatch.setattr(entries, "DENSE", 5)
    index = np.random.default_rng(0).integers(0, (9, 8, 7), (300, 3))
    v = np.random.default_rng(1).standard_normal(300)
    start = lt.entries((9, 8, 7), index).spectral_start(v, (9, 7, 6))
    for U, r in zip(start.factors, (9, 7, 6), strict=True):
        np.testing.assert_allclose(U.T @ U, np.eye(r), atol=1e-12)


def test_the_largest_eigenvalues_come_first_and_not_those_of_largest_size(monkeypatch):
    """Two samples a, b of one fibre make a block ((0, ab), (ab, 0)) with eigenvalues ab and -ab."""
    monkeypatch.setattr(entries, "DENSE", 20)
    index = [[0, 0, 0], [1, 0, 0], [2, 0, 1], [3, 0, 1], [4, 1, 0], [5, 1, 0], [6, 1, 1]]
    values = np.array([4.0, 4, 5, -5, 3, 3, 50])
    U = lt.entries((70, 2, 2), index).spectral_start(values, (3, 2, 2)).factors[0]
    expected = np.zeros((70, 3))
    expected[[2, 3], 0] = 1, -1  # 25
    expected[[0, 1], 1] = 1, 1  # 16
    expected[[4, 5], 2] = 1, 1  # 9
    np.testing.assert_allclose(np.abs(U.T @ expected), np.sqrt(2) * np.eye(3), atol=1e-6)


def test_a_mode_above_2000(monkeypatch):
    shape, rank = (2100, 7, 6), (2, 2, 2)
    whole, sizes = np.linalg.eigh, []
    monkeypatch.setattr(np.linalg, "eigh", lambda a: sizes.append(len(a)) or whole(a))
    T = lt.random_tucker(shape, rank, seed=0)
    index = np.random.default_rng(0).integers(0, shape, (40_000, 3))
    start = lt.entries(shape, index).spectral_start(T.entries(index), rank)
    Z = np.zeros(shape)
    np.add.at(Z, tuple(index.T), T.entries(index))
    gram = Z.reshape(2100, -1) @ Z.reshape(2100, -1).T
    np.fill_diagonal(gram, 0)
    assert sizes == [7, 6]  # nothing dense of the long mode
    V = scipy.sparse.linalg.eigsh(gram, 2, which="LA", tol=1e-12)[1]
    assert np.linalg.norm(start.factors[0] - V @ (V.T @ start.factors[0]), 2) < 0.01
    problem = lt.Problem(lt.entries(shape, index), T.entries(index))
    result = lt.solve(problem, "als", rank)
    assert result.success
    assert lt.metrics.relative_error(result.X, T) < 1e-5


def test_a_start_in_a_long_mode_where_all_samples_are_zero(monkeypatch):
    monkeypatch.setattr(entries, "DENSE", 20)
    index = np.random.default_rng(0).integers(0, (70, 6, 5), (900, 3))
    start = lt.entries((70, 6, 5), index).spectral_start(np.zeros(900), (2, 2, 2))
    assert float(start.norm()) == 0


# what is refused

BAD_VALUES = [
    (np.full((3, 3), np.nan), ValueError, "values has nothing but NaN: no entry is known"),
    (np.ma.masked_all((3, 3)), ValueError, "values has nothing but NaN"),
    (np.array([[1, np.nan], [2, -np.inf]]), ValueError, r"infinite at \(1, 1\).*by NaN"),
    (3.0, ValueError, r"values must be a tensor with entries, got shape \(\)"),
    (np.ma.masked, ValueError, r"values must be a tensor with entries, got shape \(\)"),
    (np.zeros((0, 3)), ValueError, r"values must be a tensor with entries, got shape \(0, 3\)"),
    (None, TypeError, "values must be an array of numbers, got NoneType"),
    ("x.npy", TypeError, "values must be an array of numbers, got str"),
    ([[1, None]], TypeError, "values must be an array of numbers, got dtype object"),
    (np.ma.array([[1, None]], mask=[[0, 1]]), TypeError, "values .* dtype object"),
    (np.ones((3, 3), np.longdouble), TypeError, "values must be of single or double precision"),
    ([[1, 2], [3]], ValueError, "values must be an array of numbers, got a ragged list"),
    (lt.random_tucker((3, 3), (1, 1), seed=0), TypeError, r"Try X.full\(\)"),
]


@pytest.mark.parametrize(("values", "exception", "message"), BAD_VALUES, ids=lambda v: str(v)[:30])
def test_bad_values(values, exception, message):
    with pytest.raises(exception, match=message):
        lt.complete(values, (1, 1))


def test_every_kind_of_array_comes_back_as_it_was(kind):
    values = np.where(np.eye(6, 5) > 0, np.nan, np.outer(np.arange(1.0, 7), np.arange(2.0, 7)))
    result = lt.complete(kind(values), (1, 1))
    expected = lt.complete(values, (1, 1))
    assert type(result.X.core) is type(kind(values))
    np.testing.assert_array_equal(to_numpy(result.X.full()), expected.X.full())
    assert type(result.filled()) is type(kind(values))
    np.testing.assert_array_equal(to_numpy(result.filled()), expected.filled())
    known = np.argwhere(~np.isnan(values))
    sampled = lt.complete(kind(values[~np.isnan(values)]), 1, indices=kind(known), shape=(6, 5))
    np.testing.assert_array_equal(to_numpy(sampled.X.full()), expected.X.full())
    assert type(sampled.filled()) is type(kind(values))


SOME = {"indices": INDICES, "shape": SHAPE}
BAD_SETTINGS = [
    ({"indices": INDICES}, ValueError, "shape is needed with indices"),
    ({**SOME, "values": VALUES[:-1]}, ValueError, rf"each of the {m} rows .*\({m - 1},\)"),
    ({**SOME, "values": VALUES[:, None]}, ValueError, rf"rows of indices, got shape \({m}, 1\)"),
    ({**SOME, "indices": INDICES + 1}, ValueError, r"= 13 must be between 0 and 12.*Subtract 1"),
    ({**SOME, "indices": INDICES * 1.0}, TypeError, "indices must be integers, got dtype float64"),
    ({**SOME, "indices": ~np.isnan(HOLES)}, ValueError, "Try np.argwhere"),
    ({**SOME, "shape": (15, 14)}, ValueError, "2 columns"),
    ({**SOME, "shape": 15}, TypeError, "shape must have one entry per mode"),
    ({**SOME, "shape": (15, 14, 0)}, ValueError, "shape must be a tuple of positive integers"),
    ({"values": HOLES, "shape": (15, 14, 12)}, ValueError, "Leave shape out, or give the indices"),
    ({"values": VALUES, "shape": SHAPE}, ValueError, rf"values has the shape \({m},\), not shape="),
    ({"values": HOLES, "held_out": 1}, ValueError, "a share of the samples, below 1, got 1. Try"),
    ({"values": HOLES, "held_out": 10}, ValueError, "a share of the samples, below 1, got 10"),
    ({"values": HOLES, "held_out": -0.1}, ValueError, "held_out must be .*at least 0, got -0.1"),
    ({"values": HOLES, "held_out": np.nan}, ValueError, "held_out must be a finite number"),
    ({"values": HOLES, "held_out": True}, TypeError, "held_out must be a real number, got True"),
    ({"values": HOLES, "held_out": "0.1"}, TypeError, "held_out must be a real number"),
    ({"values": HOLES, "solver": "newton"}, ValueError, "solver must be one of .*got 'newton'"),
    ({"values": HOLES, "rank": (2, 2)}, ValueError, "rank must have one entry per mode"),
    ({"values": HOLES, "rank": (2, 2, 14)}, ValueError, r"rank\[2\] = 14 must be between 1 and 13"),
    ({"values": HOLES, "rank": 2}, TypeError, r"Try rank=\(2, 2, 2\)"),
    ({"values": HOLES, "rank": "full"}, ValueError, 'a tuple of integers or "auto", got \'full\''),
    ({"values": HOLES, "rank": (2.0, 2, 2)}, TypeError, "rank must be a tuple of integers"),
    ({"values": HOLES, "rank": lt.RankSearch((3, 3))}, ValueError, r"RankSearch\(max=\(3, 3\)\)"),
    ({"values": HOLES, "seed": -1}, ValueError, "seed must not be negative"),
    ({"values": HOLES, "tol": -1}, ValueError, "tol must be"),
    ({"values": HOLES, "max_epochs": 0}, ValueError, "max_epochs must be at least 1"),
    ({"values": HOLES, "max_seconds": 0}, ValueError, "max_seconds must be positive"),
    ({"values": HOLES, "noise_std": 1e3}, ValueError, "noise_std = 1000 is as large as y itself"),
    ({"values": HOLES, "X_true": X[1:]}, ValueError, r"X_true must have shape \(15, 14, 13\)"),
    ({"values": HOLES, "callbacks": None}, TypeError, "callbacks must be a sequence"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "exception", "message"),
    BAD_SETTINGS,
    ids=lambda v: (
        ", ".join(f"{k}={str(x)[:12]!r}" for k, x in v.items() if k != "values")
        if isinstance(v, dict)
        else ""
    ),
)
def test_bad_settings(settings, exception, message):
    given = {"values": VALUES, "rank": RANK, **settings}
    with pytest.raises(exception, match=message):
        lt.complete(given.pop("values"), given.pop("rank"), **given)


def test_bad_input_is_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(hard, "recovered", None)
    for settings, exception, _ in BAD_SETTINGS[:17]:
        given = {"values": VALUES, "rank": RANK, **settings}
        with pytest.raises(exception):
            lt.complete(given.pop("values"), given.pop("rank"), **given)


NAN_AT_3 = np.where(np.arange(m) == 3, np.nan, VALUES)


@pytest.mark.parametrize(
    ("settings", "exception", "message"),
    [
        ({"values": HOLES, "loss": "cauchy"}, ValueError, "loss must be one of squared, huber"),
        ({"values": HOLES, "shape": 15}, TypeError, "shape must have one entry per mode"),
        ({**SOME, "values": NAN_AT_3}, ValueError, r"values.*\b3\b"),
        ({**SOME, "values": np.nan_to_num(NAN_AT_3, nan=np.inf)}, ValueError, r"values.*\b3\b"),
        ({**SOME, "values": np.ma.masked_invalid(NAN_AT_3)}, ValueError, r"values.*\b3\b"),
    ],
    ids=[
        "loss",
        "shape of an array",
        "NaN with indices",
        "infinity with indices",
        "masked with indices",
    ],
)
def test_more_bad_settings(settings, exception, message):
    given = {"values": VALUES, "rank": RANK, **settings}
    with pytest.raises(exception, match=message):
        lt.complete(given.pop("values"), given.pop("rank"), **given)


def test_bytes_in_the_other_order():
    assert lt.complete(HOLES.astype(HOLES.dtype.newbyteorder()), RANK).success


def test_an_unattainable_rank_warns_once():
    with pytest.warns(lt.RankWarning) as warned:
        lt.complete(HOLES, (1, 1, 2))
    assert len(warned) == 1


def test_small_values_do_not_give_a_small_error():
    assert lt.complete(HOLES * 1e-200, RANK, max_epochs=3).held_out > 0


def test_a_fit_that_reached_the_time_limit_is_kept(ticks):
    """The second fit once had no time left, and returned a tensor of error 0.38."""
    shape, rank = (30, 30, 30), (3, 3, 3)
    expected = lt.random_tucker(shape, rank, seed=0)
    known = np.argwhere(np.random.default_rng(0).random(shape) < 0.2)
    values = expected.entries(known)
    result = lt.complete(values, rank, indices=known, shape=shape, max_seconds=1.5)
    assert result.status is lt.Status.MAX_SECONDS
    assert result.held_out < 0.3
    assert error(result, expected.full()) < 1.5 * result.held_out


@pytest.mark.parametrize(("rank", "kept"), [("auto", True), (RANK, False)], ids=str)
def test_a_borderline_rank_search_is_reported(monkeypatch, rank, kept):
    recovered = hard.recovered

    def close(problem, given, fit, **options):
        result = recovered(problem, given, fit, **options)
        return (
            result if options else result.found(lt.Finding("rank", "a close call", borderline=True))
        )

    monkeypatch.setattr(hard, "recovered", close)
    assert (from_samples(VALUES, rank).borderline == ("a close call",)) == kept


@pytest.mark.parametrize("factor", [2.0, 8.0])
def test_noise_that_held_out_samples_contradict_is_none(factor):
    """A residual without structure may be overfitted: held-out samples are then far worse."""
    X = lt.random_tucker((8, 7, 6), (2, 2, 2), seed=0)
    known = np.argwhere(np.random.default_rng(0).random((8, 7, 6)) < 0.7)
    y = X.entries(known) + 0.01 * np.random.default_rng(1).standard_normal(len(known))
    problem = lt.Problem(lt.entries(X.shape, known), y)
    result = lt.complete(y, X.rank, indices=known, shape=X.shape)
    assert result.status is lt.Status.NOISE_FLOOR
    expected = result.residual / (1 - X.degrees_of_freedom / problem.m)
    fit = Fit("auto", 1e-6, 500, None, None, None, 0, (), "squared")
    judged = hard._unless_predicted_worse(problem, result, factor * expected, fit)
    assert judged.status is (lt.Status.NOISE_FLOOR if factor < 4 else lt.Status.APPROXIMATED)
    if factor > 4:
        assert "not exactly of this rank" in judged.findings[-1].text
