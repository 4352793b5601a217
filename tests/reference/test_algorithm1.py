"""Algorithm 1 against a plain loop written from the paper, without using the library."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from steps import advanced, begun

SHAPE, RANK, M_ROWS, B = (4, 3, 5), (2, 2, 2), 23, 6  # b does not divide m: the last block has 5
P = (0.4, 0.1, 0.2, 0.3)


def plain_hosvd(Z, rank):
    """H_r: project every mode on its leading left singular vectors, all computed from Z."""
    out = Z.copy()
    for k, r in enumerate(rank):
        fibres = np.array([Z.take(i, axis=k).ravel() for i in range(Z.shape[k])])
        U = np.linalg.svd(fibres)[0][:, :r]
        out = np.moveaxis(np.einsum("ij,j...->i...", U @ U.T, np.moveaxis(out, k, 0)), 0, k)
    return out


def plain_gradient(matrix, y, X, rows):
    """Equation (4.3): the mean over the block of A_j (<A_j, X> - y_j)."""
    total = np.zeros(X.size)
    for j in rows:
        inner = sum(matrix[j, i] * X.ravel()[i] for i in range(X.size))
        total += matrix[j] * (inner - y[j])
    return total.reshape(X.shape) / len(rows)


@pytest.fixture
def data():
    rng = np.random.default_rng(8)
    matrix = rng.standard_normal((M_ROWS, 60))
    core, factors = rng.standard_normal(RANK), [rng.standard_normal((n, 2)) for n in SHAPE]
    X_true = np.einsum("abc,ia,jb,kc->ijk", core, *factors)
    return matrix, X_true, matrix @ X_true.ravel()


def test_ten_iterations_with_non_uniform_p_and_b_that_does_not_divide_m(data):
    matrix, _, y = data
    problem = lt.Problem(lt.DenseOperator(matrix, SHAPE), y)
    mu, seed = 0.3, 4
    solver = lt.StoTIHT(block_size=B, step=mu, p=P).bind(problem, RANK)
    state = begun(solver, None, seed)
    sampler = lt.Partition(B, P).bind(problem)
    X = np.zeros(SHAPE)
    seen = set()
    for t in range(10):
        rows = range(M_ROWS)[sampler.draw(t, seed).rows]
        i = rows.start // B
        seen.add(i)
        # weight b_i / (m p(i)), the paper's 1 / (M p(i)) if b divides m
        weight = len(rows) / (M_ROWS * P[i])
        X = plain_hosvd(X - mu * weight * plain_gradient(matrix, y, X, rows), RANK)
        state = advanced(solver, state)
        np.testing.assert_allclose(state.X.full(), X, rtol=0, atol=1e-10 * np.abs(X).max())
    assert len(seen) == 4  # a seed that draws every block, including the short one


def test_ten_iterations_of_tiht(data):
    matrix, _, y = data
    problem = lt.Problem(lt.DenseOperator(matrix, SHAPE), y)
    X = np.zeros(SHAPE)
    solver = lt.TIHT(step=0.4).bind(problem, RANK)
    state = begun(solver, None, 0)
    for _ in range(10):
        X = plain_hosvd(X - 0.4 * plain_gradient(matrix, y, X, range(M_ROWS)), RANK)
        state = advanced(solver, state)
        np.testing.assert_allclose(state.X.full(), X, rtol=0, atol=1e-10 * np.abs(X).max())


def test_normalised_step_is_the_exact_line_search_on_the_projected_gradient(data):
    """At X with factors U: argmin over mu of F(X - mu P g), by a fine search."""
    matrix, X_true, y = data
    problem = lt.Problem(lt.DenseOperator(matrix, SHAPE), y)
    start = lt.hosvd(X_true + 0.1, RANK)
    g = plain_gradient(matrix, y, start.full(), range(M_ROWS))
    for k, U in enumerate(start.factors):
        g = np.moveaxis(np.tensordot(U @ U.T, g, axes=(1, k)), 0, k)
    values = np.linspace(0, 3, 300001)
    Ag, r = matrix @ g.ravel(), y - matrix @ start.full().ravel()
    costs = 0.5 * ((r @ r) + 2 * values * (r @ Ag) + values**2 * (Ag @ Ag))
    best = values[np.argmin(costs)]
    noise = max((np.sqrt(n) + np.sqrt(60 / n)) ** 2 for n in SHAPE) / M_ROWS
    solver = lt.TIHT().bind(problem, RANK)
    state = begun(solver, start, 0)
    Z = start.full() - best / max(1, noise / 2) * plain_gradient(
        matrix, y, start.full(), range(M_ROWS)
    )
    np.testing.assert_allclose(advanced(solver, state).X.full(), plain_hosvd(Z, RANK), atol=1e-4)


def test_stotiht_with_one_block_is_tiht_bit_for_bit(data):
    matrix, _, y = data
    problem = lt.Problem(lt.DenseOperator(matrix, SHAPE), y)
    for step in (0.4, "auto"):
        runs = [
            lt.solve(problem, solver, RANK, stop=lt.MaxEpochs(15), seed=seed)
            for solver, seed in (
                (lt.TIHT(step=step), 0),
                (lt.StoTIHT(block_size=M_ROWS, step=step), 11),
            )
        ]
        np.testing.assert_array_equal(runs[0].X.core, runs[1].X.core)
        np.testing.assert_array_equal(runs[0].history.residual, runs[1].history.residual)
        assert runs[0].passes == runs[1].passes
