"""Leaving plateaus: the saddle points of tensors with a large condition number."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker._array.readings import Readings
from lowtucker.solvers import escape
from lowtucker.solvers.escape import PLATEAU, Patient, after_steps, escaped

SHAPE, RANK = (12, 11, 10), (3, 3, 3)


def tensor(sizes, seed=0, shape=SHAPE):
    """Sum of outer products of orthonormal vectors with given sizes."""
    rng = np.random.default_rng(seed)
    core = np.zeros((len(sizes),) * len(shape))
    core[(np.arange(len(sizes)),) * len(shape)] = sizes
    factors = [np.linalg.qr(rng.standard_normal((n, len(sizes))))[0] for n in shape]
    return lt.TuckerTensor.from_factors(core, factors)


def saddle(X, junk=0.0):
    """X without its last component; instead another, of a small size, in other directions."""
    core = X.core.copy()
    core[-1, -1, -1] = junk
    factors = []
    for k, U in enumerate(X.factors):
        other = np.random.default_rng(50 + k).standard_normal(U.shape[0])
        other -= U @ (U.T @ other)
        factors.append(np.column_stack([U[:, :-1], other / np.linalg.norm(other)]))
    return lt.TuckerTensor.from_factors(core, factors)


def samples(share, seed=1):
    return lt.entries(SHAPE, np.argwhere(np.random.default_rng(seed).random(SHAPE) < share))


OPERATORS = {
    "entries": lambda: samples(0.6),
    "gaussian": lambda: lt.gaussian(SHAPE, m=900, seed=1),
    "function": lambda: _function(lt.gaussian(SHAPE, m=900, seed=1)),
}


def counted(problem, action):
    """What an action returns, and the passes that it took."""
    readings = Readings()
    with readings.counting():
        found = action()
    return found, readings.rows / problem.m


def _function(A):
    return lt.FunctionOperator(A.forward, A.adjoint, SHAPE, A.m)


@pytest.mark.parametrize("make", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_shows_what_a_saddle_misses(make, weighted):
    X, A = tensor([10.0, 3.0, 1.0]), make()
    weights = np.random.default_rng(2).uniform(0.5, 1.5, A.m) if weighted else None
    problem, at = lt.Problem(A, A.forward(X), weights), saddle(X, 1e-3)
    residual = problem.residual(at)
    found, passes = counted(problem, lambda: escaped(problem, at, residual))
    before = float(problem.relative_residual(at))
    assert float(problem.relative_residual(found)) < 0.5 * before
    assert found.rank == RANK
    assert passes == 3


def conditioned(seed=0):
    """Samples of a tensor of condition number 100, and the tensor."""
    X = tensor(np.geomspace(1, 0.01, 3), seed, (30, 30, 30))
    known = np.argwhere(np.random.default_rng(seed).random(X.shape) < 0.3)
    return lt.Problem(lt.entries(X.shape, known), X.entries(known)), X


def test_a_direction_that_has_fitted_noise_is_replaced(monkeypatch):
    """The one that is missing is the smaller of the two: the truncation of the sum drops it."""
    problem, _ = conditioned()
    with monkeypatch.context() as patch:
        patch.setattr(escape, "PLATEAU", -np.inf)  # no attempts on the way
        at = lt.solve(problem, lt.RCG(), RANK, stop=lt.MaxEpochs(40)).X
    before = float(problem.relative_residual(at))
    assert 0.008 < before < 0.012  # of the third component
    residual = problem.residual(at)
    found, passes = counted(problem, lambda: escaped(problem, at, residual))
    assert float(problem.relative_residual(found)) < 0.5 * before
    assert passes == 23  # a gradient of samples takes two


def test_at_the_minimum_there_is_nothing_to_find():
    X, A = tensor([3.0, 2.0, 1.0]), samples(0.6)
    y = A.forward(X)
    noise = np.random.default_rng(3).standard_normal(A.m)
    y = y + 0.05 * np.linalg.norm(y) * noise / np.linalg.norm(noise)
    at = lt.solve(lt.Problem(A, y), lt.RGN(), RANK).X
    problem = lt.Problem(A, y)
    assert escaped(problem, at, problem.residual(at)) is None


def tried(memory, after, problem, X):
    """Attempts after steps from residuals 1 to these."""
    return after_steps(memory, (np.ones(len(after)), np.array(after)), problem, X)


def test_attempts_that_fail_become_rare():
    X, A = tensor([3.0, 2.0, 1.0]), samples(0.6)
    problem, X = lt.Problem(A, A.forward(X)), X.batched()
    memory, attempts = Patient.of(1), []
    for _ in range(20):  # at the solution no step lowers the residual by a hundredth
        (memory, (found,)), passes = counted(
            problem, lambda kept=memory: tried(kept, [0.999], problem, X)
        )
        assert found is None
        attempts.append(passes > 0)
    assert np.flatnonzero(attempts).tolist() == [0, 2, 6, 14]
    assert not memory.stuck[0]
    memory, _ = tried(memory, [1 - 1e-6], problem, X)
    assert memory.stuck[0]
    (memory, _), passes = counted(
        problem, lambda: tried(Patient.of(1), [0.99 * (1 - PLATEAU)], problem, X)
    )
    assert passes == 0  # no plateau
    assert (memory.wait[0], memory.failed[0], memory.stuck[0]) == (0, 0, False)


def test_the_problems_of_a_batch_escape_one_by_one():
    """One at a saddle, one at its solution, one that still falls, one whose step was not finite."""
    X, A = tensor([10.0, 3.0, 1.0]), samples(0.6)
    at = saddle(X, 1e-3)
    problem = lt.Problem(A, np.stack(4 * [A.forward(X)]))
    iterates = lt.TuckerTensor.concat([one.batched() for one in (at, X, at, at)])
    levels = (np.ones(4), np.array([0.999, 0.999, 0.5, 0.999]))
    going = np.array([True, True, True, False])
    memory, found = after_steps(Patient.of(4), levels, problem, iterates, going=going)
    one = problem.trial(0)
    alone = escaped(one, at, one.residual(at))
    np.testing.assert_allclose(found[0].full(), alone.full(), rtol=0, atol=1e-12)
    assert [one is None for one in found] == [False, True, True, True]
    assert memory.failed.tolist() == [0, 1, 0, 0]
    assert memory.wait.tolist() == [1, 2, 0, 0]


@pytest.mark.parametrize(
    "solver", [lt.ALS(), lt.RCG(), lt.RGN(products=False, starts=2), lt.RGN(products=True)]
)
def test_tensors_of_condition_number_100_are_found_in_few_steps(solver):
    problem, X = conditioned()
    result = lt.solve(problem, solver, RANK)
    assert result.success
    assert lt.metrics.relative_error(result.X, X) < 1e-5
    assert result.epochs < 40


@pytest.mark.parametrize("seed", [0, 2])
def test_gauss_newton_leaves_saddles_of_gaussian_measurements(seed):
    """With 11 measurements per degree of freedom these ended at the saddle, and were STALLED."""
    X, A = tensor([1.0, 0.3, 0.1], seed, (20, 20, 20)), lt.gaussian((20, 20, 20), 1950, seed=seed)
    result = lt.recover(A, A.forward(X), RANK)
    assert result.success
    assert lt.metrics.relative_error(result.X, X) < 1e-5


def test_starts_that_end_at_one_floor_are_enough():
    """A tensor of decaying spectrum: its best fit is found again, and 30 starts would not help."""
    rng = np.random.default_rng(0)
    core = rng.standard_normal((8, 8, 8)) / (1 + np.add.outer(np.add.outer(*2 * [np.arange(8)]),
                                                             np.arange(8))) ** 2  # fmt: skip
    A = lt.gaussian((8, 8, 8), 400, seed=1)
    result = lt.solve(lt.Problem(A, A.forward(core)), lt.RGN(starts=30), (2, 2, 2))
    assert result.status is lt.Status.STALLED
    assert len(result.state.memory.ends) <= 4
