"""Numbers of the paper's experiments from an independent port (PAPER.md, section 3)."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt

SHAPE, RANK, M_ROWS, TRIALS = (5, 5, 6), (1, 2, 2), 360, 100


@pytest.fixture(scope="module")
def figure_1():
    """Targets and matrices of Figure 1: Gaussian, divided by the Frobenius norm."""
    X_true = lt.random_tucker(SHAPE, RANK, seed=0, orthonormal=False, trials=TRIALS)
    A = lt.gaussian(SHAPE, M_ROWS, seed=1, normalize="frobenius", trials=TRIALS)
    return lt.Problem(A, A.forward(X_true)), X_true


def errors_after(figure_1, solver, epochs):
    problem, X_true = figure_1
    stop = lt.MaxEpochs(epochs)
    return lt.solve(problem, solver, RANK, stop=stop, X_true=X_true).history.error


def test_figure_1_stotiht_mean_error(figure_1):
    b = 90
    error = errors_after(figure_1, lt.StoTIHT(block_size=b, step=0.46 * M_ROWS * b), 25)
    assert 2.0e-4 / 3 < error[10].mean() < 2.0e-4 * 3
    assert 4.6e-9 / 3 < error[25].mean() < 4.6e-9 * 3


def test_figure_1_tiht_mean_error(figure_1):
    """Heavy-tailed: within a factor of 4."""
    error = errors_after(figure_1, lt.TIHT(step=0.46 * M_ROWS * M_ROWS), 25)
    assert 2.6e-3 / 4 < error[10].mean() < 2.6e-3 * 4
    assert 2.5e-5 / 4 < error[25].mean() < 2.5e-5 * 4


def test_auto_recovers_figure_3_problems_without_tuning():
    """Issue: 5x5x6, rank (1,2,2), m = 66: at least 95 of 100."""
    m = 66
    X_true = lt.random_tucker(SHAPE, RANK, seed=2, orthonormal=False, trials=TRIALS)
    A = lt.gaussian(SHAPE, m, seed=3, trials=TRIALS)
    result = lt.recover(A, A.forward(X_true), RANK, X_true=X_true)
    recovered = result.history.error[-1] <= 1e-5
    assert recovered.sum() >= 95
    # the status, which does not use the true tensor, agrees
    assert (result.success == recovered).mean() >= 0.97


def test_automatic_step_does_not_diverge_for_any_block_size():
    """Without safeguards, the block line search diverges for small blocks."""
    X_true = lt.random_tucker(SHAPE, RANK, seed=2, trials=10)
    A = lt.gaussian(SHAPE, 60, seed=3, trials=10)
    problem = lt.Problem(A, A.forward(X_true))
    for b in (1, 5, 22, 60):
        solver = lt.StoTIHT(block_size=b)
        result = lt.solve(problem, solver, RANK, stop=lt.MaxEpochs(5), X_true=X_true)
        assert (result.history.residual < 3).all()
        assert not np.any(result.status == lt.Status.DIVERGED)


def test_tiht_oscillates_for_effective_steps_above_one_as_in_figure_4():
    """m = 440, mu = 0.5 m: TIHT fails where StoTIHT with the same mu succeeds."""
    m, b = 440, 110
    X_true = lt.random_tucker(SHAPE, RANK, seed=0, orthonormal=False, trials=40)
    A = lt.gaussian(SHAPE, m, seed=1, normalize="frobenius", trials=40)
    problem = lt.Problem(A, A.forward(X_true))
    stop = lt.ErrorBelow(1e-5) | lt.MaxEpochs(80)
    solvers = (
        lt.TIHT(step=0.5 * m * m),
        lt.StoTIHT(step=0.5 * m * b, sampler=lt.RandomRows(b)),
    )
    tiht, stotiht = (
        (lt.solve(problem, s, RANK, stop=stop, X_true=X_true).history.error[-1] <= 1e-5).mean()
        for s in solvers
    )
    assert stotiht == 1.0
    assert tiht <= 0.15
