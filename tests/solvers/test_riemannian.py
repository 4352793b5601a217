"""The Riemannian solvers: steps against brute force, convergence, restarts, resumption."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import warnings

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.solvers.manifold import bootstrap_starts
from lowtucker.solvers.models import damped_step

SHAPE, RANK = (6, 5, 6), (2, 2, 2)
ALL = [lt.RGN(), lt.RSGD(block_size=30), lt.RSGD(least_squares=True), lt.RCG()]
FEW = ((5, 5, 6), (1, 2, 2), 28)


def make(shape=SHAPE, rank=RANK, m=150, seed=0, noise=0.0, dtype=np.float64, weights=None):
    A = lt.gaussian(shape, m, seed=seed, dtype=dtype)
    X_true = lt.random_tucker(shape, rank, seed=1000 + seed, dtype=dtype)
    y = A.forward(X_true)
    if noise:
        e = np.random.default_rng(seed).standard_normal(m)
        y = y + noise * np.linalg.norm(y) / np.linalg.norm(e) * e
    return lt.Problem(A, y, weights), X_true


def few(seed):
    shape, rank, m = FEW
    return make(shape, rank, m, seed=seed)


def brute_design(block, T):
    """Weighted matrix and residual of the linear model, column by column: sqrt(w) D, sqrt(w) r."""
    w = np.ones(block.m) if block.weights is None else block.weights
    unit = np.eye(T.dof, dtype=T.X.core.dtype)
    D = np.stack([block.A.forward(T.full(e)) for e in unit], axis=1)
    return np.sqrt(w)[:, None] * D, np.sqrt(w) * (block.y - block.A.forward(T.X.full()))


# Gauss-Newton


def test_rgn_squares_its_error():
    problem, X_true = make()
    stop = lt.ResidualBelow(1e-13) | lt.MaxEpochs(30)
    result = lt.solve(problem, lt.RGN(), RANK, stop=stop, X_true=X_true)
    error = result.history["error"]
    assert error[-1] < 1e-13
    assert result.state.passes == result.epochs + 2 + 64 / 150  # the start, and its scale
    near = [k for k in range(len(error) - 1) if 1e-7 < error[k] < 0.05]
    assert len(near) >= 2
    for k in near:
        assert error[k + 1] < 5 * error[k] ** 2


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_rgn_step_is_the_damped_least_squares_solution(dtype):
    weights = np.random.default_rng(0).uniform(0, 2, 150)
    problem, _ = make(dtype=dtype, weights=weights)
    bound = lt.RGN(damping=0.7).bind(problem, RANK)
    state = bound.init(None, 0)
    T = state.single().cache.T
    D, r = brute_design(problem, T)
    rho = min(1.0, float(problem.relative_residual(T.X)))
    scale = 0.7 * rho * np.linalg.norm(D) ** 2 / T.dof
    stacked = np.vstack([D, np.sqrt(scale) * np.eye(T.dof)])
    xi = np.linalg.lstsq(stacked, np.concatenate([r, np.zeros(T.dof)]), rcond=None)[0]
    expected = lt.hosvd(T.X.full() + T.full(xi), RANK).full()
    after = bound.advance(state).single()
    np.testing.assert_allclose(after.X.full(), expected, rtol=0, atol=1e-10)


def test_rgn_keeps_x_and_raises_the_damping_when_a_step_is_rejected():
    """Bad starts with almost no damping overshoot."""
    rejected = accepted = 0
    for seed in range(6):
        problem, _ = few(seed)
        bound = lt.RGN(damping=1e-6).bind(problem, FEW[1])
        state = bound.init(None, 0)
        for _ in range(10):
            after = bound.advance(state)
            (old,), (new,) = state.memory.starts, after.memory.starts
            factor = new.damping / old.damping
            if new.level == old.level:
                rejected += 1
                for x, y in zip(after.X.parts().values(), state.X.parts().values(), strict=True):
                    np.testing.assert_array_equal(x, y)
                for x, y in zip(
                    after.cache.model.equations, state.cache.model.equations, strict=True
                ):
                    np.testing.assert_array_equal(x, y)
                assert factor == pytest.approx(6)
                # the same step, only shorter
                equations = state.cache.model.equations
                short, long = (damped_step(equations, start.damping) for start in (new, old))
                assert np.linalg.norm(short) < np.linalg.norm(long)
            else:
                accepted += 1
                assert new.level < old.level
                assert min(abs(factor - f) for f in (0.2, 1.0, 3.0)) < 1e-12
            assert after.passes == state.passes + 1
            assert new.trace == (*old.trace, new.level)
            assert new.level == pytest.approx(
                float(problem.relative_residual(after.X.single())), rel=1e-9, abs=1e-15
            )
            if new.level < 1e-8:
                break
            state = after
    assert rejected >= 3
    assert accepted >= 10


@pytest.mark.parametrize("seed", range(5))
def test_rgn_restarts_recover_from_few_measurements(seed):
    problem, X_true = few(seed)
    result = lt.solve(problem, lt.RGN(starts=40), FEW[1], X_true=X_true, seed=seed)
    assert result.success
    assert result.error < 1e-4
    labels = list(dict.fromkeys(result.history["phase"].tolist()))
    (attempts,) = result.state.memory.problems
    # 1, 2, 4, 8 and 16 starts: as many as were begun before run together
    assert set(labels) <= {"RGN", *(f"RGN restart {k}" for k in range(1, attempts.begun))}
    assert labels[-1] == ("RGN" if attempts.begun == 1 else f"RGN restart {attempts.begun - 1}")
    assert len(attempts.ends) + len(attempts.starts) == attempts.begun


@functools.cache
def stubborn():
    """A seed where the first start ends in a local minimum."""
    for seed in range(20):
        problem, X_true = few(seed)
        result = lt.solve(problem, lt.RGN(starts=40), FEW[1], seed=3)
        if result.state.memory.problems[0].begun >= 4:
            return problem, X_true, result
    raise AssertionError("every problem was easy")


def test_rgn_without_restarts_reports_that_it_stalled():
    problem, _, _ = stubborn()
    result = lt.solve(problem, lt.RGN(), FEW[1], seed=3)
    assert result.status is lt.Status.STALLED
    assert not result.success
    assert result.state.memory.problems[0].stuck
    assert set(result.history["phase"].tolist()) == {"RGN"}


def test_restarts_are_a_function_of_the_seed():
    problem, _, first = stubborn()
    again = lt.solve(problem, lt.RGN(starts=40), FEW[1], seed=3)
    np.testing.assert_array_equal(again.X.core, first.X.core)
    np.testing.assert_array_equal(again.history["residual"], first.history["residual"])
    other = lt.solve(problem, lt.RGN(starts=40), FEW[1], seed=4)
    assert not np.array_equal(other.history["residual"], first.history["residual"])
    assert again.success
    assert other.success


def test_restarts_resume_bit_for_bit_from_any_state(tmp_path):
    problem, _, whole = stubborn()
    solver, rank = lt.RGN(starts=40), FEW[1]
    attempts = whole.history["phase"].tolist()
    borders = [k for k in range(1, len(attempts)) if attempts[k] != attempts[k - 1]][:2]
    for left in sorted({5, *borders, *(k + 1 for k in borders)}):
        half = lt.solve(problem, solver, rank, stop=lt.MaxEpochs(left), seed=3)
        half.save(tmp_path / "half.npz", overwrite=True)
        for start in (half.state, lt.load(tmp_path / "half.npz")):
            resumed = lt.solve(problem, solver, rank, start=start, seed=77)
            assert resumed.status is whole.status
            assert resumed.state.memory.problems == whole.state.memory.problems
            np.testing.assert_array_equal(resumed.state.X.core, whole.state.X.core)
            for U, V in zip(resumed.state.X.factors, whole.state.X.factors, strict=True):
                np.testing.assert_array_equal(U, V)
            assert resumed.history["phase"].tolist()[1:] == attempts[left + 1 :]


def test_noise_does_not_use_up_the_starts():
    """The same lowest residual again is that of the noise."""
    problem, X_true = make(m=150, noise=0.02)
    result = lt.solve(problem, lt.RGN(starts=40), RANK, X_true=X_true)
    assert result.state.memory.problems[0].begun <= 6
    assert result.error < 0.02


def start(problem, rank, seed, k):
    return bootstrap_starts(problem, rank, [(seed, k)]).X.single()


def test_bootstrap_starts():
    problem, _ = make()
    first = start(problem, RANK, 0, 0)
    expected = lt.hooi(problem.A.adjoint(problem.y), RANK, max_iterations=10)
    cosine = np.vdot(first.full(), expected.full()) / float(first.norm()) / float(expected.norm())
    assert cosine == pytest.approx(1)
    assert start(problem, RANK, 5, 0).full() == pytest.approx(first.full())
    one, two = start(problem, RANK, 0, 1), start(problem, RANK, 0, 2)
    assert not np.allclose(one.full(), two.full())
    assert not np.allclose(one.full(), start(problem, RANK, 1, 1).full())
    assert not np.allclose(one.full(), start(problem, RANK, (0, 1), 1).full())
    np.testing.assert_array_equal(one.core, start(problem, RANK, 0, 1).core)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [0, 1, 5])
def test_start_is_scaled_to_fit_the_first_rows(weighted, k):
    weights = np.random.default_rng(0).uniform(0, 2, 150) if weighted else None
    problem, _ = make(weights=weights)
    # one of several, made together
    starts, levels = bootstrap_starts(problem, RANK, [(0, 3), (0, k)])
    X, level = starts.trial(1), levels[1]
    rows = slice(0, 64)
    w = np.ones(150)[rows] if weights is None else weights[rows]
    measured = problem.A.forward(X)[rows]
    # the best multiple: the residual of those rows is orthogonal to A(X)
    assert abs(np.sum(w * (problem.y[rows] - measured) * measured)) < 1e-9 * np.sum(measured**2)
    left = np.sum(w * (problem.y[rows] - measured) ** 2) / np.sum(w * problem.y[rows] ** 2)
    assert level == pytest.approx(np.sqrt(left))


# blocks


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("weighted", [False, True])
def test_rsgd_goes_to_the_minimum_along_the_gradient_of_its_block(dtype, weighted):
    weights = np.random.default_rng(0).uniform(0.1, 2, 150) if weighted else None
    problem, _ = make(dtype=dtype, weights=weights)
    bound = lt.RSGD(block_size=9).bind(problem, RANK)
    state = bound.init(None, 4)
    for _ in range(3):
        T = lt.TangentSpace(state.X.single())
        rows = bound.sampler.draw(state.t, (4, 0)).rows
        D, r = brute_design(problem.block(rows), T)
        g = D.conj().T @ r

        def model(length, D=D, r=r, g=g):
            return np.linalg.norm(r - length * (D @ g)) ** 2

        # a parabola: its vertex from three values, refined against rounding
        scale = np.linalg.norm(r) / np.linalg.norm(D @ g)
        low, mid, high = model(0.0), model(scale), model(2 * scale)
        best = scale * (1 - (high - low) / (2 * (low - 2 * mid + high)))
        grid = best * np.linspace(0.5, 1.5, 101)
        assert grid[np.argmin([model(t) for t in grid])] == pytest.approx(best)
        after = bound.advance(state)
        expected = T.retract(best * g).full()
        np.testing.assert_allclose(after.X.single().full(), expected, rtol=0, atol=1e-10)
        assert after.passes == pytest.approx(state.passes + after.cache.residual.size / 150)
        state = after


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("block_size", [50, 15])
def test_rsgd_least_squares_is_the_dense_damped_solution(dtype, block_size):
    weights = np.random.default_rng(0).uniform(0.1, 2, 150)
    problem, _ = make(dtype=dtype, weights=weights)
    bound = lt.RSGD(block_size=block_size, least_squares=True).bind(problem, RANK)
    state = bound.init(None, 4)
    for _ in range(3):
        T = lt.TangentSpace(state.X.single())
        block = problem.block(bound.sampler.draw(state.t, (4, 0)).rows)
        D, r = brute_design(block, T)
        rho = min(1.0, np.linalg.norm(r) / float(block.y_norm))
        strength = min(1.0, max(0.3, 2 * block_size / 150))
        scale = strength * rho**2 * np.linalg.norm(D) ** 2 / T.dof
        stacked = np.vstack([D, np.sqrt(scale) * np.eye(T.dof)])
        xi = np.linalg.lstsq(stacked, np.concatenate([r, np.zeros(T.dof)]), rcond=None)[0]
        after = bound.advance(state)
        np.testing.assert_allclose(after.X.single().full(), T.retract(xi).full(), rtol=0, atol=1e-8)
        state = after


def test_rsgd_blocks():
    problem, _ = make()
    dof = lt.degrees_of_freedom(SHAPE, RANK)
    plain, squares = lt.RSGD().bind(problem, RANK), lt.RSGD(least_squares=True).bind(problem, RANK)
    assert dof / 5 <= plain.sampler.block_size <= 2 * dof / 5
    assert 1.2 * dof <= squares.sampler.block_size <= 2.1 * dof
    assert repr(lt.RSGD(block_size=7).bind(problem, RANK)) == "RSGD(block_size=7)"
    assert plain.steps_per_epoch == -(-150 // plain.sampler.block_size)
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        lt.RSGD(block_size=0)
    with pytest.raises(ValueError, match="block_size = 151 must be between 1 and the number of"):
        lt.RSGD(block_size=151).bind(problem, RANK)


def test_different_seeds_shuffle_the_blocks_differently():
    problem, _ = make()
    for solver in (lt.RSGD(), lt.RSGD(least_squares=True)):
        runs = [
            lt.solve(problem, solver, RANK, stop=lt.MaxEpochs(2), seed=seed) for seed in (1, 1, 2)
        ]
        np.testing.assert_array_equal(runs[0].state.X.core, runs[1].state.X.core)
        assert not np.array_equal(runs[0].state.X.core, runs[2].state.X.core)


# conjugate gradients


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("weighted", [False, True])
def test_rcg_goes_to_the_minimum_of_the_model_along_its_direction(dtype, weighted):
    weights = np.random.default_rng(0).uniform(0.1, 2, 150) if weighted else None
    problem, _ = make(dtype=dtype, weights=weights)
    bound = lt.RCG().bind(problem, RANK)
    state = bound.init(None, 0)
    for k in range(4):
        design, _, gradient, direction = state.single().cache
        T = design.T
        D, r = brute_design(problem, T)
        np.testing.assert_allclose(gradient, D.conj().T @ r / problem.m, rtol=0, atol=1e-10)
        if k == 0:
            np.testing.assert_array_equal(direction, gradient)
        seen = D @ direction
        best = np.vdot(seen, r).real / np.linalg.norm(seen) ** 2
        assert best > 0
        after = bound.advance(state)
        expected = T.retract(best * direction).full()
        np.testing.assert_allclose(after.X.single().full(), expected, rtol=0, atol=1e-9)
        assert after.passes == state.passes + 2
        # Polak-Ribiere, with what is carried over by projection
        new = after.single().cache
        T_new = new.T
        carried = T_new.coordinates(T.full(direction))
        before = T_new.coordinates(T.full(gradient))
        g = new.gradient
        beta = max(0.0, np.vdot(g, g - before).real / np.linalg.norm(gradient) ** 2)
        np.testing.assert_allclose(new.direction, g + beta * carried, rtol=0, atol=1e-9)
        state = after


def test_rcg_takes_fewer_steps_than_the_gradient_alone():
    problem, _ = make()
    states = lt.iterate(problem, lt.RCG(), RANK)
    conjugate = next(s for s in itertools.islice(states, 25, 26)).cache.residual
    bound = lt.RCG().bind(problem, RANK)
    state = bound.init(None, 0)
    for _ in range(25):
        state = bound.advance(state)
        plain = state.cache._replace(direction=state.cache.gradient)
        state = dataclasses.replace(state, cache=plain)
    assert np.linalg.norm(conjugate) < 0.3 * np.linalg.norm(state.cache.residual)


# all of them


@pytest.mark.parametrize(
    "solver", [lt.RGN(), lt.RSGD(), lt.RSGD(least_squares=True), lt.RCG()], ids=repr
)
@pytest.mark.parametrize(
    ("shape", "rank", "m", "dtype"),
    [
        ((8, 7), (2, 2), 110, np.float64),
        ((4, 4, 3, 4), (2, 2, 1, 2), 110, np.float64),
        ((5, 4, 5), (2, 2, 2), 110, np.complex128),
        ((3, 4, 2), (3, 4, 2), 60, np.float64),
    ],
    ids=["matrix", "order-4", "complex", "full-rank"],
)
def test_recovers(solver, shape, rank, m, dtype):
    problem, X_true = make(shape, rank, m, dtype=dtype)
    result = lt.solve(problem, solver, rank, X_true=X_true)
    assert result.success
    assert result.error < 1e-5
    assert result.X.rank == rank
    assert result.X.dtype == np.dtype(dtype)
    lt.TuckerTensor(result.X.core, result.X.factors)  # orthonormal


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_order_1_is_least_squares(solver):
    A = lt.gaussian((6,), 40, seed=0)
    x = np.arange(1.0, 7.0)
    result = lt.recover(A, A.forward(x), (1,), solver=solver)
    assert result.success
    np.testing.assert_allclose(result.X.full(), x, rtol=1e-4)


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_float32(solver):
    problem, X_true = make(dtype=np.float32)
    stop = lt.ResidualBelow(3e-6) | lt.Stalled() | lt.MaxEpochs(200)
    result = lt.solve(problem, solver, RANK, X_true=X_true, stop=stop)
    assert result.success
    assert result.X.core.dtype == np.float32
    assert all(U.dtype == np.float32 for U in result.X.factors)
    assert result.error < 1e-5


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_real_tensors_from_complex_measurements(solver):
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((60, 100)) + 1j * rng.standard_normal((60, 100))
    A = lt.DenseOperator(matrix, (5, 4, 5), dtype=np.dtype(np.float64))
    X_true = lt.random_tucker((5, 4, 5), (2, 2, 2), seed=1)
    result = lt.recover(A, A.forward(X_true), (2, 2, 2), solver=solver, X_true=X_true)
    assert result.success
    assert result.error < 1e-5
    assert result.X.dtype == np.float64


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_rows_of_weight_zero_do_not_matter(solver):
    problem, X_true = make()
    weights = np.ones(150)
    weights[::10] = 0
    results = []
    for garbage in (1e6, np.nan):
        y = np.where(weights > 0, problem.y, garbage)
        result = lt.recover(problem.A, y, RANK, solver=solver, weights=weights, X_true=X_true)
        assert result.success
        assert result.error < 1e-5
        results.append(result)
    np.testing.assert_allclose(results[0].X.full(), results[1].X.full(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_a_start_near_the_truth_stays_there(solver):
    problem, X_true = make()
    T = lt.TangentSpace(X_true)
    near = T.retract(1e-3 * np.random.default_rng(0).standard_normal(T.dof))
    for start in (near, near.full()):
        result = lt.solve(problem, solver, RANK, start=start, X_true=X_true)
        assert result.history["error"][0] < 0.01
        assert result.success
    exact = lt.solve(problem, solver, RANK, start=X_true)
    assert exact.epochs == 0
    assert exact.residual < 1e-12


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_an_unattainable_rank_is_clipped(solver):
    problem, X_true = make(rank=(1, 1, 1))
    with pytest.warns(lt.RankWarning, match=r"No tensor has Tucker rank \(1, 1, 2\)"):
        result = lt.solve(problem, solver, (1, 1, 2), X_true=X_true)
    assert result.X.rank == result.rank == (1, 1, 1)
    assert result.success
    assert result.error < 1e-5


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_there_must_be_a_rank(solver):
    with pytest.raises(ValueError, match=f"{type(solver).__name__} needs a rank"):
        lt.solve(make()[0], solver)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="damping must be positive, got 0"):
        lt.RGN(damping=0.0)
    with pytest.raises(ValueError, match="starts must be at least 1, got 0"):
        lt.RGN(starts=0)
    with pytest.raises(TypeError, match=r"starts must be an integer, got 1\.5"):
        lt.RGN(starts=1.5)


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_measurements_of_zero_give_zero(solver):
    A = lt.gaussian((4, 4, 4), 60, seed=0)
    result = lt.recover(A, np.zeros(60), (1, 1, 1), solver=solver)
    assert np.abs(result.X.full()).max() == 0
    assert result.success
    lt.TuckerTensor(result.X.core, result.X.factors)  # orthonormal


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_too_large_a_rank_still_reduces_the_error(solver):
    """The true rank is lower: cores of less than full rank on the way."""
    problem, X_true = make(rank=(1, 1, 1))
    result = lt.solve(problem, solver, RANK, X_true=X_true, stop=lt.MaxEpochs(15))
    assert result.error < 0.1
    lt.TuckerTensor(result.X.core, result.X.factors)  # orthonormal


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_the_result_does_not_depend_on_the_scale(solver):
    problem, X_true = make()
    base = lt.solve(problem, solver, RANK, X_true=X_true, seed=1)
    for scale in (1e-30, 1e30):
        other = lt.solve(
            lt.Problem(problem.A, scale * problem.y), solver, RANK, X_true=X_true * scale, seed=1
        )
        assert other.epochs == base.epochs
        assert other.success


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_operators_that_are_not_row_separable_are_recovered_from(solver):
    problem, _ = make((4, 4, 3), (1, 2, 2), 60)
    A = problem.A
    slow = lt.FunctionOperator(A.forward, A.adjoint, A.shape, A.m)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        one = lt.recover(slow, problem.y, (1, 2, 2), solver=solver, max_epochs=3)
    two = lt.recover(A, problem.y, (1, 2, 2), solver=solver, max_epochs=3)
    np.testing.assert_allclose(one.X.full(), two.X.full(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_resumed_equals_uninterrupted_bit_for_bit(solver, tmp_path):
    problem, _ = make(noise=0.01)
    whole = lt.solve(problem, solver, RANK, stop=lt.MaxEpochs(3), seed=5)
    for left in (1, 2):
        half = lt.solve(problem, solver, RANK, stop=lt.MaxEpochs(left), seed=5)
        half.save(tmp_path / f"{left}.npz")
        for start in (half.state, half, lt.load(tmp_path / f"{left}.npz")):
            resumed = lt.solve(
                problem, solver, RANK, stop=lt.MaxEpochs(3 - left), start=start, seed=99
            )
            assert (resumed.state.t, resumed.state.passes) == (whole.state.t, whole.state.passes)
            np.testing.assert_array_equal(resumed.state.X.core, whole.state.X.core)
            for U, V in zip(resumed.state.X.factors, whole.state.X.factors, strict=True):
                np.testing.assert_array_equal(U, V)


@pytest.mark.parametrize(
    ("name", "solver"), [("rgn", lt.RGN()), ("RSGD", lt.RSGD()), ("rcg", lt.RCG())]
)
def test_names(name, solver):
    problem, _ = make()
    named = lt.recover(problem.A, problem.y, RANK, solver=name)
    given = lt.recover(problem.A, problem.y, RANK, solver=solver)
    assert named.success
    assert named.solver == given.solver
    assert named.solver.startswith(type(solver).__name__)
    np.testing.assert_array_equal(named.X.core, given.X.core)


# error estimate


@pytest.mark.parametrize("seed", range(3))
def test_error_estimate_is_near_the_error(seed):
    problem, X_true = make((8, 8, 8), (2, 2, 2), 400, seed=seed, noise=0.02)
    for solver in (lt.RGN(), lt.RSGD(least_squares=True)):
        result = lt.solve(problem, solver, (2, 2, 2), X_true=X_true, stop=lt.MaxEpochs(8))
        assert 0.5 < result.error_estimate / result.error < 2


def test_error_estimate_is_that_of_the_gauss_newton_covariance():
    weights = np.random.default_rng(0).uniform(0.5, 2, 150)
    problem, _ = make(noise=0.02, weights=weights)
    result = lt.solve(problem, lt.RGN(), RANK)
    D, r = brute_design(problem, lt.TangentSpace(result.X))
    dof = D.shape[1]
    variance = np.sum(r**2) / (150 - dof)
    expected = np.sqrt(variance * np.trace(np.linalg.inv(D.T @ D))) / float(result.X.norm())
    assert result.error_estimate == pytest.approx(expected, rel=1e-3)


def test_there_is_no_estimate_without_spare_measurements():
    problem, _ = make(m=lt.degrees_of_freedom(SHAPE, RANK))
    result = lt.solve(problem, lt.RGN(), RANK, stop=lt.MaxEpochs(3))
    assert result.error_estimate is None
    assert lt.solve(make()[0], lt.RCG(), RANK, stop=lt.MaxEpochs(3)).error_estimate is None


@pytest.mark.parametrize("solver", ALL, ids=repr)
def test_a_non_finite_step_ends_as_diverged_at_the_last_iterate(solver):
    problem, _ = make()
    bound = solver.bind(problem, RANK)
    state = bound.init(None, 0)
    if isinstance(solver, lt.RSGD):  # it evaluates its block within the step
        problem = lt.Problem(problem.A, np.nan * problem.y, _trusted=True)
        bound, broken = dataclasses.replace(bound, problem=problem), None
    elif isinstance(solver, lt.RCG):
        broken = state.cache._replace(direction=np.nan * state.cache.direction)
    else:
        model = state.cache.model
        equations = model.equations._replace(gradient=np.nan * model.equations.gradient)
        model = dataclasses.replace(model, equations=equations)
        broken = dataclasses.replace(state.cache, model=model)
    after = bound.advance(dataclasses.replace(state, cache=broken))
    assert after.diverged.tolist() == [True]
    np.testing.assert_array_equal(after.X.core, state.X.core)


def test_a_rank_deficient_tangent_design_is_no_error():
    """A slice that is never measured: the normal equations are singular."""
    shape, rank = (6, 5, 6), (2, 2, 2)
    rows = np.random.default_rng(0).standard_normal((120, *shape))
    rows[:, 0] = 0
    y = np.tensordot(rows, lt.random_tucker(shape, rank, seed=1).full(), axes=3)
    result = lt.recover(lt.DenseOperator(rows), y, rank, solver=lt.RGN(starts=3), max_epochs=60)
    assert np.isfinite(result.X.full()).all()
    assert np.isfinite(result.history.residual).all()


def test_the_error_estimate_of_a_block_holds_for_all_rows():
    problem, _ = make((8, 8, 8), (2, 2, 2), 700, noise=0.05)
    result = lt.solve(problem, lt.RSGD(least_squares=True), (2, 2, 2), stop=lt.MaxEpochs(4))
    T = lt.TangentSpace(result.state.X)
    gram = problem.A.tangent(T).normal_equations(problem.y).gram
    size = result.residual * np.linalg.norm(problem.y) / np.sqrt(700 - T.dof)
    expected = size * np.sqrt(np.trace(np.linalg.inv(gram))) / float(T.X.norm())
    # blocks of 1.4 rows per degree of freedom are worse conditioned than their union: only above
    assert 0.9 < result.error_estimate / expected < 2.5
