"""TrimTIHT and KaczTIHT against plain loops of the published updates (arXiv:2502.02843)."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from steps import advanced, begun

SHAPE, RANK, M_ROWS, N = (4, 3, 5), (2, 2, 2), 43, 60


def plain_hosvd(Z, rank=RANK):
    """H_r: project every mode on its leading left singular vectors, all computed from Z."""
    out = Z
    for k, r in enumerate(rank):
        fibres = np.moveaxis(Z, k, 0).reshape(Z.shape[k], -1)
        U = np.linalg.svd(fibres)[0][:, :r]
        out = np.moveaxis(np.tensordot(U @ U.conj().T, out, axes=(1, k)), 0, k)
    return out


def make(dtype=float, seed=8):
    """Matrix with rows of other lengths, and y."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        z = rng.standard_normal(shape)
        return z + 1j * rng.standard_normal(shape) if dtype is complex else z

    matrix = draw(M_ROWS, N) * rng.uniform(0.2, 2, (M_ROWS, 1))
    return matrix, matrix @ draw(N)


def plain_trimmed_gradient(matrix, y, X, k, weights=None):
    """Mean of w_j a_j (<a_j, x> - y_j) over all but the k rows of the largest w_j |r_j|^2."""
    weights = np.ones(len(y)) if weights is None else weights
    live = [j for j in range(len(y)) if weights[j] > 0]
    sizes = {j: weights[j] * abs(y[j] - matrix[j] @ X.ravel()) ** 2 for j in live}
    kept = sorted(live, key=lambda j: sizes[j])[: len(live) - k]
    total = sum(weights[j] * matrix[j].conj() * (matrix[j] @ X.ravel() - y[j]) for j in kept)
    # the objective is a mean over all rows: leaving out k of those that count makes up for k
    scale = len(live) / (len(live) - k) / len(y)
    return scale * total.reshape(SHAPE)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("weighted", [False, True])
def test_ten_steps_of_trimmed_tiht(dtype, weighted):
    matrix, y = make(dtype)
    weights = np.random.default_rng(1).uniform(0, 2, M_ROWS) if weighted else None
    if weighted:
        weights[:7] = 0
    problem = lt.Problem(lt.DenseOperator(matrix, SHAPE), y, weights)
    k = round(0.2 * (M_ROWS - 7 * weighted))
    solver = lt.TIHT(step=0.3, trim=0.2).bind(problem, RANK)
    state, X = begun(solver), np.zeros(SHAPE, dtype)
    for _ in range(10):
        X = plain_hosvd(X - 0.3 * plain_trimmed_gradient(matrix, y, X, k, weights))
        state = advanced(solver, state)
        np.testing.assert_allclose(state.X.full(), X, rtol=0, atol=1e-10 * np.abs(X).max())


def test_blocks_are_trimmed_by_themselves():
    matrix, y = make()
    problem = lt.Problem(lt.DenseOperator(matrix, SHAPE), y)
    solver = lt.StoTIHT(sampler=lt.Shuffled(20), step=0.2, trim=0.1).bind(problem, RANK)
    sampler = lt.Shuffled(20).bind(problem)
    state, X = begun(solver, None, 3), np.zeros(SHAPE)
    for t in range(6):
        draw = sampler.draw(t, 3)
        block, data = matrix[draw.rows], y[draw.rows]
        step = 0.2 * draw.weight
        X = plain_hosvd(X - step * plain_trimmed_gradient(block, data, X, round(0.1 * len(data))))
        state = advanced(solver, state)
        np.testing.assert_allclose(state.X.full(), X, rtol=0, atol=1e-10 * np.abs(X).max())


def test_an_automatic_step_is_the_line_search_for_the_rows_that_are_kept():
    """At X with factors U: the minimum over mu of the trimmed objective at X - mu P g."""
    matrix, y = make()
    problem = lt.Problem(lt.DenseOperator(matrix, SHAPE), y)
    start = lt.hosvd((np.linalg.pinv(matrix) @ y).reshape(SHAPE), RANK)
    X, k = start.full(), round(0.2 * M_ROWS)
    r = y - matrix @ X.ravel()
    kept = np.argsort(np.abs(r))[: M_ROWS - k]
    g = plain_trimmed_gradient(matrix, y, X, k)
    P = g
    for axis, U in enumerate(start.factors):
        P = np.moveaxis(np.tensordot(U @ U.T, P, axes=(1, axis)), 0, axis)
    seen = matrix[kept] @ P.ravel()
    best = -(r[kept] @ seen) / (seen @ seen)
    noise = max((np.sqrt(n) + np.sqrt(N / n)) ** 2 for n in SHAPE) / M_ROWS
    state = begun(lt.TIHT(trim=0.2).bind(problem, RANK), start)
    assert float(state.cache.step) == pytest.approx(best / max(1, noise / 2), rel=1e-10)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize(("b", "mu"), [(M_ROWS, 0.5), (20, 0.2)])
def test_kaczmarz_sweeps(dtype, b, mu):
    """Rows one by one with the relaxation mu N / b; b = 20 does not divide m."""
    matrix, y = make(dtype)
    problem = lt.Problem(lt.DenseOperator(matrix, SHAPE), y)
    sampler = lt.KaczmarzRows(b)
    solver = lt.StoTIHT(sampler=sampler, step=mu).bind(problem, RANK)
    state, X = begun(solver, None, 5), np.zeros(SHAPE, dtype)
    for t in range(6):
        draw, z = sampler.bind(problem).draw(t, 5), X.ravel()
        # M / m in place of 1 / b: the blocks of an epoch, the short one too, have equal steps
        gamma = mu * N * -(-M_ROWS // b) / M_ROWS
        for j in draw.rows:
            a = matrix[j].conj()
            z = z + gamma * (y[j] - matrix[j] @ z) * a / np.linalg.norm(a) ** 2
        X = plain_hosvd(z.reshape(SHAPE))
        state = advanced(solver, state)
        np.testing.assert_allclose(state.X.full(), X, rtol=0, atol=1e-10 * np.abs(X).max())


def test_an_epoch_of_sweeps_uses_every_row_once_in_another_order_each_time():
    matrix, y = make()
    sampler = lt.KaczmarzRows(20).bind(lt.Problem(lt.DenseOperator(matrix, SHAPE), y))
    epochs = [np.concatenate([sampler.draw(3 * e + i).rows for i in range(3)]) for e in range(2)]
    for rows in epochs:
        np.testing.assert_array_equal(np.sort(rows), np.arange(M_ROWS))
    assert (epochs[0] != epochs[1]).any()


def test_a_row_of_zeros_is_passed_over_by_a_sweep():
    matrix, y = make()
    matrix[4] = 0
    sampler = lt.KaczmarzRows(M_ROWS).bind(lt.Problem(lt.DenseOperator(matrix, SHAPE), y))
    draw = sampler.draw(0)
    weights = dict(zip(draw.rows.tolist(), draw.row_weights.tolist(), strict=True))
    assert weights[4] == 0
    assert weights[5] == pytest.approx(N / np.linalg.norm(matrix[5]) ** 2)


def unequal_batch():
    """Two problems of 40 and 44 measurements."""
    operators = [lt.gaussian((4, 3, 3), m, seed=m) for m in (40, 44)]
    truths = [lt.random_tucker((4, 3, 3), (1, 1, 1), seed=k) for k in range(2)]
    ys = [A.forward(X) for A, X in zip(operators, truths, strict=True)]
    y = np.stack([np.pad(one, (0, 44 - len(one))) for one in ys])
    return lt.Problem(lt.batch(operators), y), operators, ys


@pytest.mark.parametrize("solver", [lt.TIHT(step=1.0, trim=0.1), lt.TIHT(trim=0.1)])
def test_trimming_in_a_batch_of_other_lengths_equals_each_problem_alone(solver):
    batch, operators, ys = unequal_batch()
    stop = lt.MaxEpochs(6)
    together = lt.solve(batch, solver, (1, 1, 1), stop=stop)
    for k, (A, y) in enumerate(zip(operators, ys, strict=True)):
        alone = lt.solve(lt.Problem(A, y), solver, (1, 1, 1), stop=stop)
        np.testing.assert_allclose(together.X.full()[k], alone.X.full(), rtol=0, atol=1e-10)


def test_a_sweep_of_a_batch_of_other_lengths_passes_over_the_padding():
    batch, operators, ys = unequal_batch()
    sampler = lt.KaczmarzRows(44)
    state = lt.StoTIHT(sampler=sampler, step=0.7).bind(batch, (1, 1, 1)).init(None, 3)
    draw = sampler.bind(batch).draw(0, 3, range(2))
    for k, (A, y) in enumerate(zip(operators, ys, strict=True)):
        z = np.zeros(36)
        for j in draw.rows[k]:
            if j < A.m:
                a = A.matrix[j]
                z += 0.7 * 36 / A.m * (y[j] - a @ z) * a / (a @ a)
        np.testing.assert_allclose(-state.cache.gradient[k].ravel(), z, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "solver",
    [lt.TIHT(trim=0.1), lt.StoTIHT(sampler=lt.KaczmarzRows(120), step=1.0)],
    ids=["trim", "Kaczmarz"],
)
def test_results_do_not_depend_on_the_units_of_a(solver):
    A = lt.gaussian((5, 5, 6), 120, seed=1)
    y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))
    plain, scaled = (
        lt.recover(lt.scale(A, factor), y * factor, (1, 2, 2), solver=solver)
        for factor in (1.0, 2.0**40)
    )
    assert plain.success
    np.testing.assert_array_equal(plain.X.full(), scaled.X.full())


def test_trimming_is_robust_to_outliers():
    A = lt.gaussian((5, 5, 6), 160, seed=1)
    X_true = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    y = A.forward(X_true)
    y[::20] += 100 * np.abs(y).max()
    # not the usual rules, for which the residual of the outliers no longer falls
    stop, problem = lt.MaxEpochs(200), lt.Problem(A, y)
    errors = [
        lt.metrics.relative_error(lt.solve(problem, solver, (1, 2, 2), stop=stop).X, X_true)
        for solver in (lt.TIHT(trim=0.1), lt.TIHT(trim=0.1, step=0.5), lt.TIHT())
    ]
    assert max(errors[:2]) < 1e-6
    assert errors[2] > 1
