"""Formats compared by held-out measurements."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.recovery.comparison import default_candidates

SHAPE = (6, 6, 6)
A = lt.gaussian(SHAPE, 120, seed=1)


def noisy(X, share, seed=0):
    y = A.forward(X)
    noise = np.random.default_rng(seed).standard_normal(len(y))
    return y + share * np.linalg.norm(y) * noise / np.linalg.norm(noise)


TRUTHS = {
    "Tucker rank (2, 2, 2)": (2, 2, 2),
    "TensorTrain(rank=(2, 2))": lt.TensorTrain((2, 2)),
    "Sparse(rank=9)": lt.Sparse(9),
    "Tubal(rank=1)": lt.Tubal(1),
}


def truth(candidate):
    if isinstance(candidate, tuple):
        return lt.random_tucker(SHAPE, candidate, seed=0).full()
    return lt.random_tensor(candidate, SHAPE, seed=0).full()


@pytest.mark.parametrize("name", TRUTHS)
def test_the_format_of_the_truth_predicts_best(name):
    found = lt.compare(A, A.forward(truth(TRUTHS[name])), list(TRUTHS.values()))
    good = [row.name for row in found.rows if row.held_out < 1e-4]
    assert name in good
    # a Tucker rank (2, 2, 2) is a tensor train of rank (2, 2) too
    assert set(good) <= {name, *({"TensorTrain(rank=(2, 2))"} if "Tucker" in name else set())}
    assert [row.name for row in found.ties] == good
    assert found.rows[-1].held_out > 0.3
    assert list(found.rows) == sorted(found.rows, key=lambda row: row.held_out)


def test_the_score_is_that_of_a_fit_to_the_others():
    """By hand: the same split, the same fit, plain NumPy."""
    y = noisy(truth(lt.Sparse(9)), 0.1)
    found = lt.compare(A, y, [lt.Sparse(9)], held_out=0.25, seed=3)
    (row,) = found.rows
    assert (found.fitted, found.held) == (90, 30)
    residual = y - A.matrix @ row.result.X.full().reshape(-1)
    # the fit has small residuals on what it saw: the held-out ones are those of its zero weights
    again = lt.recover(A, y, lt.Sparse(9), seed=3, weights=held_weights(row, y))
    np.testing.assert_allclose(again.X.full(), row.result.X.full(), atol=1e-6)
    held = held_weights(row, y) == 0
    expected = np.linalg.norm(residual[held]) / np.linalg.norm(y[held])
    assert row.held_out == pytest.approx(expected)
    squares = residual[held] ** 2
    error = row.held_out * squares.std() / 30**0.5 / (2 * squares.mean())
    assert row.standard_error == pytest.approx(error)


def held_weights(row, y):
    from lowtucker.recovery.holdout import Holdout

    return Holdout.draw(lt.Problem(A, y), 0.25, 3).train.weights


def test_noise_makes_ties():
    found = lt.compare(A, noisy(truth((2, 2, 2)), 0.3), [(2, 2, 2), (2, 2, 3), lt.Sparse(5)])
    assert {row.name for row in found.ties} >= {"Tucker rank (2, 2, 2)"}
    assert not found.rows[-1].tie
    assert found.rows[-1].name == "Sparse(rank=5)"


def test_known_entries_and_names():
    X = truth((1, 1, 1))
    known = np.random.default_rng(0).random(SHAPE) < 0.6
    B = lt.entries(SHAPE, np.argwhere(known))
    found = lt.compare(B, X[known], {"one": (1, 1, 1), "none": None, "nuclear": lt.NuclearNorm()})
    assert {row.name for row in found.rows} == {"one", "none", "nuclear"}
    assert found.best.held_out < 1e-4
    assert found.fitted + found.held == known.sum()
    again = lt.recover(B, X[known], found.best.candidate)
    assert again.success


def test_the_table_and_the_picture_have_every_candidate():
    found = lt.compare(A, A.forward(truth(lt.Sparse(9))), [(1, 1, 1), lt.Sparse(9)])
    for text in (repr(found), found._repr_html_()):
        assert "Sparse(rank=9) *" in text
        assert "Tucker rank (1, 1, 1)" in text
        assert "CONVERGED" in text
    ax = found.plot()
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["Tucker rank (1, 1, 1)", "Sparse(rank=9)"]
    assert ax.get_xscale() == "log"


@pytest.mark.parametrize(
    ("shape", "kinds"),
    [
        ((50,), {"shrinkage", "Sparse"}),
        ((9, 9), {"shrinkage", "Tucker", "Sparse"}),
        ((6, 6, 6), {"shrinkage", "Tucker", "Sparse", "TensorTrain", "Tubal"}),
        ((4, 4, 4, 4), {"shrinkage", "Tucker", "Sparse", "TensorTrain", "HierarchicalTucker"}),
    ],
)
def test_without_candidates_formats_that_measurements_can_determine(shape, kinds):
    m = 200
    made = default_candidates(shape, m)
    assert {name.split("(")[0].split(",")[0] for name in made} == kinds
    dofs = {
        name: one.for_shape(shape).degrees_of_freedom(shape)
        for name, one in made.items()
        if isinstance(one, lt.Thresholding)
    }
    assert all(dof <= m / 3 for dof in dofs.values())
    largest = max(one.rank for one in made.values() if isinstance(one, lt.Sparse))
    assert largest == min(m // 3, np.prod(shape))


def test_interrupted_it_returns_what_is_finished():
    found = lt.compare(A, A.forward(truth((2, 2, 2))), [(2, 2, 2), lt.Sparse(9), (1, 1, 1)],
                       callbacks=[lambda progress: True])  # fmt: skip
    assert [row.result.status for row in found.rows] == [lt.Status.INTERRUPTED]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"candidates": []}, ValueError, "candidates must have one entry at least"),
        ({"candidates": 3}, TypeError, "candidates must be a list, or a dict with names"),
        ({"candidates": [(2, 2)]}, ValueError, "rank must have one entry per mode"),
        ({"candidates": ["rgn"]}, ValueError, 'rank must be a tuple of integers or "auto"'),
        ({"candidates": [lt.Sparse(1000)]}, ValueError, r"Sparse\(1000\) keeps more than the 216"),
        ({"candidates": [lt.RowSparse(2)]}, ValueError, "RowSparse takes matrices"),
        ({"held_out": 1.0}, ValueError, "held_out is a share of the measurements, below 1"),
        ({"held_out": 0.0}, ValueError, "held_out must be positive"),
    ],
)
def test_bad_calls_are_refused_before_any_fit(changes, error, message, monkeypatch):
    monkeypatch.setattr(
        "lowtucker.recovery.comparison.recover", lambda *a, **k: pytest.fail("fitted")
    )
    call = {"candidates": [(1, 1, 1)]} | changes
    with pytest.raises(error, match=message):
        lt.compare(A, np.ones(120), **call)


def test_one_problem_and_enough_of_it():
    batch = lt.gaussian(SHAPE, 30, seed=1, trials=2)
    with pytest.raises(ValueError, match=r"compare takes one problem, got a batch of \(2,\)"):
        lt.compare(batch, np.ones((2, 30)), [(1, 1, 1)])
    with pytest.raises(ValueError, match="1 measurements are too few to hold any out"):
        lt.compare(lt.gaussian(SHAPE, 1), np.ones(1), [(1, 1, 1)])


def test_infinity_is_no_limit_of_time():
    y = A.forward(truth((2, 2, 2)))
    found = lt.compare(A, y, {"one": (1, 1, 1), "two": (2, 2, 2)}, max_seconds=np.inf)
    assert found.best.name == "two"
