"""What it takes to add a part: one file (here: one class or function) and one line.

A toy of each kind is added by the line that a contributor would write, and put through what users
do with it. A toy operator is in test_wrappers.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import lowtucker as lt
from lowtucker._array.random import as_seed
from lowtucker.recovery import diagnosis
from lowtucker.solvers import SOLVERS, Bound, Memory, Solver, State
from lowtucker.solvers.start import adopt, as_start, first_state
from lowtucker.tensor.iterate import Iterate
from lowtucker.thresholding import FORMATS, ThresholdingDefaults

SHAPE, RANK = (6, 5, 4), (2, 2, 1)
X_TRUE = lt.random_tucker(SHAPE, RANK, seed=0)
A = lt.gaussian(SHAPE, 110, seed=1)
Y = A.forward(X_TRUE)


# A solver: this class, and a line in SOLVERS


@dataclass(frozen=True)
class Velocity(Memory):
    """The last step of a run with momentum."""

    step: Any


@dataclass(frozen=True, repr=False, kw_only=True)
class HeavyBall(Solver):
    """Hard thresholding with momentum: Z = X - 0.6 grad F(X) + 0.2 (X - X_before)."""

    momentum: float = 0.2

    def bind(self, problem: lt.Problem, rank: Any) -> Bound:
        return Bound(self, problem, tuple(rank), lt.HOSVD(rank))

    def init(self, bound: Bound, start: Any, seed: Any) -> State:
        if isinstance(start, State):
            return adopt(start, bound.problem, bound.rank, Velocity)
        X = as_start(start, bound.problem, bound.thresholding)
        return first_state(X, Velocity(0 * X.full()), as_seed(seed))

    def advance(self, bound: Bound, state: State) -> State:
        full = state.X.full()
        gradient = bound.problem.gradient(full)
        X = bound.thresholding(full - 0.6 * gradient + self.momentum * state.memory.step)
        memory = Velocity(X.full() - full)
        return replace(state, X=X, t=state.t + 1, memory=memory)


@pytest.fixture
def heavy_ball(monkeypatch):
    monkeypatch.setitem(SOLVERS, "heavyball", HeavyBall)


def test_a_solver_is_known_by_its_name_and_recovers(heavy_ball):
    result = lt.recover(A, Y, RANK, solver="heavyball", tol=1e-8)
    assert result.status is lt.Status.CONVERGED
    assert result.solver == "HeavyBall()"
    assert lt.metrics.relative_error(result.X, X_TRUE) < 1e-6
    # a step and the residual of an epoch: a pass each
    assert result.history.passes[-1] == 2 * result.epochs + 1


def test_its_memory_is_in_checkpoints_and_files(heavy_ball, tmp_path):
    whole = lt.recover(A, Y, RANK, solver="heavyball", max_epochs=12)
    path = tmp_path / "run.ckpt"
    lt.recover(A, Y, RANK, solver="heavyball", max_epochs=12, checkpoint=path,
               callbacks=[lambda progress: progress.epoch >= 5])  # fmt: skip
    resumed = lt.recover(A, Y, RANK, solver="heavyball", max_epochs=12, checkpoint=path)
    np.testing.assert_array_equal(resumed.X.full(), whole.X.full())
    half = lt.recover(A, Y, RANK, solver="heavyball", max_epochs=5)
    half.save(tmp_path / "half.npz")
    state = lt.load(tmp_path / "half.npz").state
    np.testing.assert_array_equal(state.memory.step, half.state.memory.step)
    rest = lt.recover(A, Y, RANK, solver="heavyball", max_epochs=7, start=state)
    np.testing.assert_array_equal(rest.state.X.full(), whole.state.X.full())


def test_it_takes_batches_and_other_units(heavy_ball):
    batch = lt.gaussian(SHAPE, 110, seed=1, trials=3)
    truths = lt.random_tucker(SHAPE, RANK, seed=0, trials=3)
    result = lt.recover(batch, batch.forward(truths), RANK, solver=HeavyBall())
    assert result.success.all()
    assert lt.recover(A, 2.0**300 * Y, RANK, solver="heavyball", max_epochs=9).X.norm() > 2.0**290


# A thresholding with a format of its own: these two classes, and a line in FORMATS


@dataclass(frozen=True, eq=False)
class FewEntries(Iterate):
    """Tensor of which all but a few entries are zero: values, and where they are."""

    values: Any
    places: Any
    shape: tuple[int, ...] = SHAPE

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.values.shape[:-1]

    @property
    def rank(self) -> int:
        return self.values.shape[-1]

    @property
    def degrees_of_freedom(self) -> int:
        return self.rank

    def parts(self) -> dict[str, Any]:
        return {"values": self.values, "places": self.places}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Any], layout: Mapping[str, Any]) -> FewEntries:
        return cls(**parts)

    def full(self) -> Any:
        flat = np.zeros((*self.batch_shape, int(np.prod(self.shape))))
        np.put_along_axis(flat, self.places.astype(int), self.values, axis=-1)
        return flat.reshape(*self.batch_shape, *self.shape)

    def norm(self) -> Any:
        return np.linalg.norm(self.values, axis=-1)

    def project(self, G: Any) -> FewEntries:
        flat = G.reshape(*self.batch_shape, -1)
        return replace(self, values=np.take_along_axis(flat, self.places.astype(int), axis=-1))

    def __add__(self, other: Any) -> FewEntries:
        raise NotImplementedError

    def __mul__(self, factor: Any) -> FewEntries:
        return replace(self, values=self.values * np.asarray(factor)[..., None])


@dataclass(frozen=True)
class Largest(ThresholdingDefaults):
    """Keep the s largest entries: the thresholding of IHT."""

    rank: int
    eta: float = 1.0

    def __call__(self, Z: Any) -> FewEntries:
        flat = Z.reshape(*Z.shape[: Z.ndim - len(SHAPE)], -1)
        places = np.argsort(-np.abs(flat), axis=-1, kind="stable")[..., : self.rank]
        return FewEntries(np.take_along_axis(flat, places, axis=-1), places.astype(float))

    def for_shape(self, shape: tuple[int, ...]) -> Largest:
        if self.rank > np.prod(shape):
            raise ValueError(f"{self.rank} entries are more than a tensor of {shape} has.")
        return self

    def degrees_of_freedom(self, shape: tuple[int, ...]) -> int:
        return self.rank


@pytest.fixture
def sparse(monkeypatch):
    monkeypatch.setitem(FORMATS, "few entries", FewEntries)
    X = np.zeros(120)
    X[[3, 50, 77, 119]] = [1.0, -2.0, 0.5, 3.0]
    return X.reshape(SHAPE)


@pytest.mark.parametrize(
    "solver",
    [lt.TIHT, lt.StoTIHT, lambda **more: lt.StoTIHT(block_size=30, step=0.2, **more)],
    ids=["TIHT, automatic steps", "StoTIHT, automatic steps", "StoTIHT, fixed step"],
)
def test_a_format_works_in_every_thresholding_solver(sparse, solver, tmp_path):
    B = lt.gaussian(SHAPE, 90, seed=2)
    problem = lt.Problem(B, B.forward(sparse))
    result = lt.solve(problem, solver(thresholding=Largest(4)), X_true=sparse)
    assert result.success
    np.testing.assert_allclose(result.X.full(), sparse, atol=1e-4)
    assert result.error < 1e-4
    assert (result.rank, result.degrees_of_freedom) == (4, 4)
    result.save(tmp_path / "x.npz")
    np.testing.assert_array_equal(lt.load(tmp_path / "x.npz").X.full(), result.X.full())
    again = lt.recover(B, problem.y, None, solver=solver(thresholding=Largest(4)), tol=1e-5)
    assert again.success
    assert again.X.rank == 4


def test_a_format_is_kept_in_checkpoints_and_takes_batches(sparse, tmp_path):
    B = lt.gaussian(SHAPE, 90, seed=2)
    problem = lt.Problem(B, B.forward(sparse))
    solver = lt.StoTIHT(thresholding=Largest(4))
    whole = lt.solve(problem, solver, stop=lt.MaxEpochs(6))
    path = tmp_path / "run.ckpt"
    lt.solve(problem, solver, stop=lt.MaxEpochs(6), checkpoint=path,
             callbacks=[lambda progress: progress.epoch >= 3])  # fmt: skip
    resumed = lt.solve(problem, solver, stop=lt.MaxEpochs(6), checkpoint=path)
    np.testing.assert_array_equal(resumed.X.full(), whole.X.full())
    many = lt.gaussian(SHAPE, 90, seed=2, trials=3)
    batch = lt.solve(
        lt.Problem(many, many.forward(np.stack([sparse, -sparse, 2 * sparse]))), solver
    )
    assert batch.success.all()
    with pytest.raises(ValueError, match="121 entries are more than a tensor"):
        lt.solve(problem, lt.TIHT(thresholding=Largest(121)))


def test_a_format_that_is_not_registered_names_the_line(sparse, monkeypatch, tmp_path):
    monkeypatch.delitem(FORMATS, "few entries")
    B = lt.gaussian(SHAPE, 90, seed=2)
    problem = lt.Problem(B, B.forward(sparse))
    result = lt.solve(problem, lt.TIHT(thresholding=Largest(4)))
    with pytest.raises(TypeError, match=r"not in lowtucker.thresholding.FORMATS. Add it there"):
        result.save(tmp_path / "x.npz")


# A check of the verdict: this function, and a line in a table of checks


def is_lopsided(case):
    """Whether one direction of the first mode dominates X."""
    values = np.asarray(lt.spectra(case.result.X).values[0])
    share = float(values[0] / np.linalg.norm(values))
    if share < 0.5:
        return []
    return [lt.Finding("lopsided", f"One direction has {share:.0%} of X.", {"share": share})]


def never_trusted(case):
    return [lt.Finding("never", "A toy decides.", status=lt.Status.UNDERDETERMINED)]


def test_a_check_of_the_verdict_is_in_every_result(monkeypatch):
    checks = {**diagnosis.CHECKS_OF_THE_MEASUREMENTS, is_lopsided: "a check of mine"}
    monkeypatch.setattr(diagnosis, "CHECKS_OF_THE_MEASUREMENTS", checks)
    holes = np.where(np.random.default_rng(0).random(SHAPE) < 0.2, np.nan, X_TRUE.full())
    for result in (lt.recover(A, Y, RANK), lt.recover(A, Y, "auto"), lt.complete(holes, RANK)):
        (found,) = [f for f in result.findings if f.kind == "lopsided"]
        assert 0.5 < found.numbers["share"] <= 1
        assert found.text in result.notes
        assert found.text in repr(result)
        assert result.success


def test_a_check_may_decide_the_status(monkeypatch):
    checks = {**diagnosis.CHECKS_OF_A_SUCCESS, never_trusted: "a check of mine"}
    monkeypatch.setattr(diagnosis, "CHECKS_OF_A_SUCCESS", checks)
    result = lt.recover(A, Y, RANK)
    assert result.status is lt.Status.UNDERDETERMINED
    assert not result.success
    assert "A toy decides." in result.notes
