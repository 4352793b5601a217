"""The solver contract, over every solver in cases.SOLVERS."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import lowtucker as lt
from cases import SOLVERS, rank_given
from lowtucker.operators.design import TangentDesign
from lowtucker.solvers.manifold import Manifold


@pytest.fixture(params=SOLVERS)
def case(request):
    return SOLVERS[request.param]


def make(case, seed=0):
    _, (shape, rank, m, *kind) = case
    X_true = lt.random_tucker(shape, rank, seed=seed)
    A = (kind[0] if kind else lt.gaussian)(shape, m, seed=seed)
    return lt.Problem(A, A.forward(X_true)), X_true


def settings(case):
    """Solver, and the rank that it is given."""
    solver, (_, rank, *_) = case
    return solver, rank_given(solver, rank)


def parts(state):
    """Arrays of a state, in the iterate, the memory and the cache."""
    return [*state.X.parts().values(), *_arrays(state.memory), *_arrays(state.cache)]


def _arrays(item):
    """Arrays inside of a record: of a memory, of a linear model, of a search."""
    if isinstance(item, np.ndarray | np.generic):
        yield item
    elif isinstance(item, lt.TangentSpace):
        yield item.X.core
    elif isinstance(item, lt.TuckerTensor):
        yield from item.parts().values()
    elif dataclasses.is_dataclass(item):
        for field in dataclasses.fields(item):
            yield from _arrays(getattr(item, field.name))
    elif isinstance(item, tuple):
        for one in item:
            yield from _arrays(one)


def assert_same_bits(a, b):
    assert (a.t, a.passes, type(a.memory)) == (b.t, b.passes, type(b.memory))
    assert getattr(a.memory, "problems", None) == getattr(b.memory, "problems", None)
    for x, y in zip(parts(a), parts(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_recovers_its_easy_instance(case):
    solver, rank = settings(case)
    problem, X_true = make(case)
    result = lt.solve(problem, solver, rank, X_true=X_true)
    assert result.success
    assert result.status is lt.Status.CONVERGED
    assert lt.metrics.relative_error(result.X, X_true) < 1e-5
    assert result.X.rank == rank


def test_step_is_pure(case):
    solver, rank = settings(case)
    problem, _ = make(case)
    bound = solver.bind(problem, rank)
    state = bound.init(None, 3)
    for _ in range(3):
        before = [np.array(x) for x in parts(state)]
        first, second = bound.advance(state), bound.advance(state)
        assert_same_bits(first, second)
        for x, y in zip(before, parts(state), strict=True):
            np.testing.assert_array_equal(x, y)
        state = first


def batch_of(case, kind, trials=3):
    """Batch of problems, its truths, and the problems: each with its rows, or all with one A."""
    _, (shape, rank, m, *kinds) = case
    measure = kinds[0] if kinds else lt.gaussian
    truths = [lt.random_tucker(shape, rank, seed=(0, k)) for k in range(trials)]
    X_true = lt.TuckerTensor.concat([X.batched() for X in truths])
    if kind == "own":
        operators = [measure(shape, m, seed=(0, k)) for k in range(trials)]
        A = lt.batch(operators) if kinds else lt.gaussian(shape, m, seed=0, trials=trials)
        problems = [lt.Problem(B, B.forward(X)) for B, X in zip(operators, truths, strict=True)]
        return lt.Problem(A, A.forward(X_true)), X_true, problems
    A = measure(shape, m, seed=5)
    weights = np.random.default_rng(6).uniform(0.5, 1.5, (trials, m))
    problems = [lt.Problem(A, A.forward(X), w) for X, w in zip(truths, weights, strict=True)]
    return lt.Problem(A, np.stack([one.y for one in problems]), weights), X_true, problems


@pytest.mark.parametrize("kind", ["own", "shared"])
def test_a_batch_equals_its_problems_one_by_one(case, kind):
    """A matrix for each; and one A for all, with measurements and weights of each."""
    solver, rank = settings(case)
    problem, X_true, problems = batch_of(case, kind)
    trials = len(problems)
    rule = lt.ResidualBelow(1e-4) | lt.MaxEpochs(60)
    batched = lt.solve(problem, solver, rank, stop=rule, X_true=X_true, seed=7)
    assert batched.success.shape == batched.status.shape == batched.epochs.shape == (trials,)
    for k, one in enumerate(problems):
        alone = lt.solve(one, solver, rank, stop=rule, X_true=X_true.trial(k), seed=(7, k))
        assert batched.epochs[k] == alone.epochs
        assert batched.status[k] is alone.status
        np.testing.assert_allclose(
            batched.X.full()[k], alone.X.full(), rtol=0, atol=1e-9 * float(alone.X.norm())
        )
        # history: frozen at its end, equal before
        np.testing.assert_allclose(
            batched.history.residual[: alone.epochs + 1, k], alone.history.residual, rtol=1e-6
        )
        assert (
            batched.history.residual[alone.epochs :, k] == batched.history.residual[-1, k]
        ).all()


def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(case, tmp_path):
    solver, rank = settings(case)
    problem, _ = make(case)
    whole = lt.solve(problem, solver, rank, stop=lt.MaxEpochs(4), seed=5)
    half = lt.solve(problem, solver, rank, stop=lt.MaxEpochs(2), seed=5)
    assert half.status is lt.Status.MAX_EPOCHS
    half.save(tmp_path / "half.npz")
    for start in (half.state, half, lt.load(tmp_path / "half.npz")):
        resumed = lt.solve(problem, solver, rank, stop=lt.MaxEpochs(2), start=start, seed=99)
        # not the tensor of the result, which is the best one of its own run
        assert_same_bits(resumed.state, whole.state)
        np.testing.assert_array_equal(resumed.history.residual[1:], whole.history.residual[3:])


class CountingOperator(lt.MeasurementOperator):
    """Counts how often each row is read."""

    traits = lt.Traits(row_separable=True, has_fast_tangent=True)

    def __init__(self, matrix, shape, rows=None, counts=None):
        self.matrix, self.shape, self.m = matrix, shape, len(matrix)
        self.rows = np.arange(self.m) if rows is None else rows
        self.counts = np.zeros(self.m, dtype=int) if counts is None else counts

    def _forward(self, X):
        self.counts[self.rows] += 1
        return self.matrix @ X.reshape(-1)

    def _adjoint(self, v):
        self.counts[self.rows] += 1
        return (self.matrix.T @ v).reshape(self.shape)

    def _misfit(self, X, y, weights):
        self.counts[self.rows] += 1
        r = y - self.matrix @ X.reshape(-1)
        return r, (self.matrix.T @ (r if weights is None else weights * r)).reshape(self.shape)

    def _tangent(self, T):
        return CountingDesign(self, T)

    def _row_norms(self):
        return np.linalg.norm(self.matrix, axis=1)

    def _restrict(self, rows):
        return CountingOperator(self.matrix[rows], self.shape, self.rows[rows], self.counts)


class CountingDesign(TangentDesign):
    """One pass over the rows."""

    def rows(self):
        self.A.counts[self.A.rows] += 1
        yield slice(0, self.A.m), self.T.coordinates(self.A.matrix.reshape(-1, *self.A.shape))


def passes_over_a_row(solver):
    """Passes over a row by the start, and by a step."""
    if isinstance(solver, Manifold):  # the adjoint of y, a scale, the first model or gradient
        return 3, 2 if isinstance(solver, lt.RCG) else 1
    passes = 1 + (solver.step == "auto") + (solver.trim is not None)
    return passes, passes


def test_passes_count_how_often_rows_are_read(case):
    """Once for a fixed step; again for the line search of an automatic one, and to trim."""
    solver, (shape, rank, m, *kind) = case
    if kind:
        pytest.skip("takes sampled entries, whose rows are not read; test_als.py has its passes")
    if isinstance(solver, lt.NuclearNorm):
        pytest.skip("forms a gram matrix; test_nuclear.py has its passes")
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((m, int(np.prod(shape))))
    A = CountingOperator(matrix, shape)
    y = matrix @ lt.random_tucker(shape, rank, seed=0).full().reshape(-1)
    problem = lt.Problem(A, y)
    bound = solver.bind(problem, rank)
    A.counts[:] = 0
    state = bound.init(None, 0)
    start, step = passes_over_a_row(solver)
    assert A.counts.max() <= start
    assert A.counts.sum() / m == pytest.approx(state.passes)
    for _ in range(5):
        before = A.counts.copy()
        state = bound.advance(state)
        assert (A.counts - before).max() <= step
    assert A.counts.sum() / m == pytest.approx(state.passes)


def test_a_step_far_too_large_ends_as_diverged_without_a_warning(case):
    solver, rank = settings(case)
    if getattr(solver, "step", "auto") == "auto":
        pytest.skip("an automatic step cannot be too large")
    problem, _ = make(case)
    wild = dataclasses.replace(solver, step=1e6)
    result = lt.solve(problem, wild, rank)
    assert result.status is lt.Status.DIVERGED
    assert not result.success
    assert np.isfinite(result.X.full()).all()


@pytest.mark.parametrize("step", [1e150, 1e300])
def test_overflow_in_one_step_keeps_the_last_finite_iterate(step):
    A = lt.gaussian((4, 4, 4), 40, seed=0)
    problem = lt.Problem(A, 1e100 * A.forward(lt.random_tucker((4, 4, 4), (1, 1, 1), seed=0)))
    result = lt.solve(problem, lt.TIHT(step=step), (1, 1, 1))
    assert result.status is lt.Status.DIVERGED
    assert np.isfinite(result.X.full()).all()


def test_start_is_used(case):
    solver, rank = settings(case)
    problem, X_true = make(case)
    for start in (X_true, X_true.full()):
        first = next(lt.iterate(problem, solver, rank, start=start))
        np.testing.assert_allclose(first.X.full(), X_true.full(), atol=1e-12)


def test_iterate_gives_the_states_that_solve_goes_through(case):
    solver, rank = settings(case)
    problem, _ = make(case)
    result = lt.solve(problem, solver, rank, stop=lt.MaxEpochs(3), seed=2)
    states = itertools.islice(lt.iterate(problem, solver, rank, seed=2), result.state.t + 1)
    *_, last = states
    assert_same_bits(last, result.state)


def test_resumed_run_keeps_the_damping_of_an_automatic_step():
    """Few measurements and small blocks, so that steps do harm and the damping matters."""
    A = lt.gaussian((5, 5, 6), 60, seed=1)
    problem = lt.Problem(A, A.forward(lt.random_tucker((5, 5, 6), (2, 2, 2), seed=0)))
    solver, rank = lt.TIHT(), (2, 2, 2)
    half = lt.solve(problem, solver, rank, stop=lt.MaxEpochs(7))
    assert float(half.state.memory.damping) < 0.9
    whole = lt.solve(problem, solver, rank, stop=lt.MaxEpochs(15))
    resumed = lt.solve(problem, solver, rank, stop=lt.MaxEpochs(8), start=half.state)
    assert_same_bits(resumed.state, whole.state)
