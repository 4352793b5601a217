"""Batches that are cut into parts: the same results, whatever the memory."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.run import parts
from lowtucker.status import Status

SHAPE, RANK = (5, 5, 6), (1, 2, 2)


@pytest.fixture
def batch():
    A = lt.gaussian(SHAPE, m=30, seed=1, trials=7)
    X = lt.random_tucker(SHAPE, RANK, seed=2, trials=7)
    return A, A.forward(X), X


@pytest.fixture
def little_room(monkeypatch):
    """Room for two problems at a time."""
    one = lt.RGN().memory_estimate(lt.Problem(lt.gaussian(SHAPE, m=30), np.ones(30)), RANK)
    monkeypatch.setattr(parts, "ROOM", 8 * 2.5 * one)


@pytest.mark.usefixtures("little_room")
def test_parts_are_of_about_equal_length(batch):
    A, y, _ = batch
    cut = parts.parts_of(lt.Problem(A, y), [lt.RGN()], RANK)
    assert [len(part) for part in cut] == [1, 2, 2, 2]
    assert [k for part in cut for k in part] == list(range(7))


@pytest.mark.parametrize("solver", ["auto", "stotiht", lt.RCG()])
def test_results_do_not_depend_on_the_parts(batch, solver, request):
    A, y, X = batch
    whole = lt.recover(A, y, RANK, solver=solver, seed=4, X_true=X, max_epochs=40)
    request.getfixturevalue("little_room")
    cut = lt.recover(A, y, RANK, solver=solver, seed=4, X_true=X, max_epochs=40)
    assert cut.status.tolist() == whole.status.tolist()
    np.testing.assert_array_equal(cut.epochs, whole.epochs)
    np.testing.assert_allclose(cut.X.full(), whole.X.full(), rtol=0, atol=1e-9)
    np.testing.assert_allclose(cut.error, whole.error, rtol=1e-3, atol=1e-9)
    for k in range(7):
        one, other = cut.trial(k).history, whole.trial(k).history
        np.testing.assert_allclose(one.residual, other.residual, rtol=1e-5, atol=1e-12)
    assert cut.history.rows == whole.history.rows


@pytest.mark.usefixtures("little_room")
def test_a_start_is_cut_too(batch):
    A, y, X = batch
    assert lt.solve(lt.Problem(A, y), lt.RGN(), RANK, start=X).epochs.tolist() == [0] * 7


@pytest.mark.usefixtures("little_room")
def test_parts_after_an_interrupt_have_nothing_but_their_start(batch):
    A, y, _ = batch
    result = lt.solve(lt.Problem(A, y), lt.RGN(), RANK, callbacks=[lambda progress: True])
    assert (result.status == Status.INTERRUPTED).all()
    assert result.epochs.tolist() == [1] + [0] * 6


@pytest.mark.usefixtures("little_room")
def test_a_checkpoint_of_parts_resumes_bit_for_bit(batch, tmp_path):
    A, y, _ = batch
    problem, rule = lt.Problem(A, y), lt.ResidualBelow(1e-6) | lt.MaxEpochs(40)
    expected = lt.solve(problem, lt.RGN(starts=5), RANK, stop=rule)
    count = 0

    def stop(progress):
        nonlocal count
        count += 1
        return count == 12

    kept = tmp_path / "run.npz"
    lt.solve(problem, lt.RGN(starts=5), RANK, stop=rule, checkpoint=kept, callbacks=[stop])
    again = lt.solve(problem, lt.RGN(starts=5), RANK, stop=rule, checkpoint=kept)
    np.testing.assert_array_equal(again.X.full(), expected.X.full())
    assert again.status.tolist() == expected.status.tolist()


def test_every_problem_of_a_batch_has_its_verdict():
    """One of noise, one that is exact, one that is not of low rank: as single calls."""
    rng = np.random.default_rng(0)
    A = lt.gaussian(SHAPE, m=120, seed=1, trials=3)
    X = lt.random_tucker(SHAPE, RANK, seed=2, trials=3)
    y = A.forward(X)
    y[1] += 0.05 * np.linalg.norm(y[1]) / np.sqrt(120) * rng.standard_normal(120)
    y[2] = A.trial(2).forward(rng.standard_normal(SHAPE))
    result = lt.recover(A, y, RANK, seed=3)
    assert result.status[:2].tolist() == [Status.CONVERGED, Status.NOISE_FLOOR]
    assert result.success.tolist() == [True, True, False]
    for k in range(3):
        one, single = result.trial(k), lt.recover(A.trial(k), y[k], RANK, seed=(3, k))
        assert one.status is single.status
        assert [f.kind for f in one.findings if f.kind != "hint"] == [
            f.kind for f in single.findings if f.kind != "hint"
        ]
        assert (one.error_estimate is None) == (single.error_estimate is None)
        if one.error_estimate is not None:
            # a single run to the tolerance estimates by its last block, a batch by all rows
            rtol = 0.1 if one.status is Status.CONVERGED else 1e-3
            np.testing.assert_allclose(one.error_estimate, single.error_estimate, rtol=rtol)
            np.testing.assert_allclose(result.error_estimate[k], one.error_estimate)
        assert one.advice == single.advice or one.advice.split(" Try:")[0] in single.advice


def test_a_result_of_a_batch_is_saved_and_loaded(batch, tmp_path):
    A, y, _ = batch
    result = lt.recover(A, y, RANK)
    result.save(tmp_path / "batch.npz")
    again = lt.load(tmp_path / "batch.npz")
    np.testing.assert_array_equal(again.error_estimate, result.error_estimate)
    assert str(again) == str(result)
    for k in (0, 6):
        one, other = again.trial(k), result.trial(k)
        assert one.error_interval == other.error_interval
        assert [f.text for f in one.findings] == [f.text for f in other.findings]
        np.testing.assert_array_equal(one.state.X.core, other.state.X.core)
