"""StoGradMP: against a plain loop, by a matrix and by products, one by one and in batches."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import lowtucker as lt

N, S, M = 60, 4, 36


def sparse(seed=0, dtype=np.float64, shape=(N,), s=S):
    rng = np.random.default_rng(seed)
    X = np.zeros(int(np.prod(shape)), dtype=dtype)
    places = rng.choice(X.size, s, replace=False)
    X[places] = rng.standard_normal(s)
    if np.dtype(dtype).kind == "c":
        X[places] += 1j * rng.standard_normal(s)
    return X.reshape(shape)


def problem(seed=0, noise=0.0, dtype=np.float64):
    A = lt.gaussian((N,), M, seed=seed, dtype=dtype)
    rng = np.random.default_rng(seed + 99)
    return lt.Problem(A, A.forward(sparse(seed, dtype)) + noise * rng.standard_normal(M))


def reference(matrix, y, s, draws):
    """Merge, fit and prune in plain NumPy."""
    x = np.zeros(matrix.shape[1])
    for rows in draws:
        gradient = matrix[rows].T @ (matrix[rows] @ x - y[rows])
        merged = set(np.argsort(-np.abs(gradient))[: 2 * s]) | set(np.flatnonzero(x))
        columns = sorted(merged)
        fit, *_ = np.linalg.lstsq(matrix[:, columns], y, rcond=None)
        x = np.zeros_like(x)
        x[columns] = fit
        x[np.argsort(-np.abs(x))[s:]] = 0
    return x


def test_steps_are_those_of_a_plain_loop():
    one = problem(noise=0.1)
    solver = lt.StoGradMP(thresholding=lt.Sparse(S), block_size=M // 3)
    bound = solver.bind(one, None)
    states = lt.iterate(one, solver, seed=5)
    next(states)
    for k in range(1, 5):
        state = next(states)
        draws = [bound.sampler.draw(t, 5).rows for t in range(k)]
        expected = reference(one.A.matrix, one.y, S, draws)
        np.testing.assert_allclose(state.X.full(), expected, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_the_fit_is_that_of_the_oracle(dtype):
    one = problem(noise=0.01, dtype=dtype)
    pursuit = lt.solve(one, lt.StoGradMP(thresholding=lt.Sparse(S)))
    assert pursuit.epochs < 20  # the support has settled: no need to wait for 50
    result = lt.recover(one.A, one.y, lt.Sparse(S))
    places = np.flatnonzero(sparse(0, dtype))
    fit, *_ = np.linalg.lstsq(one.A.matrix[:, places], one.y, rcond=None)
    np.testing.assert_array_equal(pursuit.X.places, places)
    np.testing.assert_array_equal(result.X.places, places)
    np.testing.assert_allclose(result.X.values, fit, atol=1e-8)


def test_by_products_it_is_the_same():
    """An operator whose matrix is not in memory: conjugate gradients."""
    one = problem()
    matrix = one.A.matrix
    A = lt.FunctionOperator(lambda X: matrix @ X, lambda v: matrix.T @ v, (N,), M)
    solver = lt.StoGradMP(block_size=M // 2)
    with pytest.warns(lt.SlowOperatorWarning):
        result = lt.recover(A, one.y, lt.Sparse(S), solver=solver)
    assert result.success
    np.testing.assert_allclose(result.X.full(), sparse(), atol=1e-5)


def test_weights_leave_measurements_out():
    one = problem()
    y, weights = one.y.copy(), np.ones(M)
    y[:4], weights[:4] = 1e3, 0
    result = lt.recover(one.A, y, lt.Sparse(S), weights=weights)
    assert result.success
    np.testing.assert_allclose(result.X.full(), sparse(), atol=1e-6)


def test_real_tensors_of_complex_rows():
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((20, N)) + 1j * rng.standard_normal((20, N))
    A = lt.DenseOperator(matrix, (N,), dtype=np.float64)
    result = lt.recover(A, A.forward(sparse()), lt.Sparse(S))
    assert result.success
    assert result.X.dtype == np.float64
    np.testing.assert_allclose(result.X.full(), sparse(), atol=1e-8)


def test_a_batch_equals_its_problems():
    H = lt.Sparse(S)
    A = lt.gaussian((N,), M, seed=0, trials=3)
    X = np.stack([sparse(k) for k in range(3)])
    solver = lt.StoGradMP(thresholding=H, block_size=M // 2)
    batch = lt.solve(lt.Problem(A, A.forward(X)), solver, seed=7)
    assert batch.success.all()
    for k in range(3):
        B = lt.gaussian((N,), M, seed=(0, k))
        alone = lt.solve(lt.Problem(B, B.forward(X[k])), solver, seed=(7, k))
        assert batch.epochs[k] == alone.epochs
        np.testing.assert_allclose(batch.X.full()[k], alone.X.full(), atol=1e-10)


def test_an_interrupted_run_is_resumed_bit_for_bit(tmp_path):
    one = problem(noise=0.5)
    solver, rule = lt.StoGradMP(thresholding=lt.Sparse(S), block_size=M // 3), lt.MaxEpochs(4)
    whole = lt.solve(one, solver, stop=rule, seed=4)
    path = tmp_path / "run.ckpt"
    lt.solve(one, solver, stop=rule, seed=4, checkpoint=path,
             callbacks=[lambda progress: progress.epoch >= 2])  # fmt: skip
    resumed = lt.solve(one, solver, stop=rule, seed=4, checkpoint=path)
    np.testing.assert_array_equal(resumed.X.full(), whole.X.full())
    assert float(resumed.state.memory.unchanged) == float(whole.state.memory.unchanged)


def test_columns_with_one_support():
    """MMV: with few rows of one matrix for all columns, together more is found than alone."""
    rng = np.random.default_rng(3)
    B, columns, s = rng.standard_normal((15, 40)), 6, 6
    X = lt.RowSparse(s)(rng.standard_normal((40, columns)))
    A = lt.kronecker([B, np.eye(columns)])
    together = lt.recover(A, A.forward(X), lt.RowSparse(s))
    assert together.success
    np.testing.assert_allclose(together.X.full(), X.full(), atol=1e-5)
    one = lt.DenseOperator(B, (40,))
    alone = [lt.recover(one, B @ column, lt.Sparse(s)).success for column in X.full().T]
    assert sum(alone) < columns


def test_three_times_as_many_places_as_measurements_is_no_crash():
    A = lt.gaussian((N,), 20, seed=1)
    result = lt.solve(
        lt.Problem(A, A.forward(sparse(s=15))), lt.StoGradMP(thresholding=lt.Sparse(15))
    )
    assert not result.success
    assert np.isfinite(result.X.full()).all()


def test_it_needs_a_sparse_format():
    one = problem()
    with pytest.raises(ValueError, match=r"needs a sparse format, got HOSVD.*Try lowtucker.Sparse"):
        lt.solve(one, lt.StoGradMP(), (1,))
    with pytest.raises(ValueError, match="Give block_size and p to the sampler"):
        lt.StoGradMP(block_size=4, sampler=lt.Shuffled(4))
    assert dataclasses.replace(lt.StoGradMP(block_size=4)) == lt.StoGradMP(block_size=4)
