"""Error bars of a stream: those of the batch fit, and with the lag of a tensor that moves."""

from __future__ import annotations

import numpy as np

import lowtucker as lt

SHAPE, RANK = (8, 8, 8), (2, 2, 2)
DOF = lt.degrees_of_freedom(SHAPE, RANK)


def rows_of(rng, count):
    return lt.rank_one([rng.standard_normal((count, n)) for n in SHAPE])


def entries():
    return np.argwhere(np.ones(SHAPE))


def test_bars_are_those_of_all_rows_at_once(rng):
    X = lt.random_tucker(SHAPE, RANK, seed=0)
    A = rows_of(rng, 8 * DOF)
    y = A.forward(X) + 0.01 * rng.standard_normal(A.m)
    online = lt.Online(SHAPE, RANK)
    for start in range(0, A.m, 40):
        some = slice(start, min(start + 40, A.m))
        online.update(A.restrict(some), y[some])
    found = online.result().standard_error(entries())
    expected = lt.recover(A, y, rank=RANK).standard_error(entries())
    np.testing.assert_allclose(found, expected, rtol=0.05)


def test_bars_of_a_moving_tensor_have_the_lag(rng):
    """By noise alone they would cover a third: the tensor moves by many standard errors."""
    start = lt.random_tucker(SHAPE, RANK, seed=0)
    angle = np.random.default_rng(1).standard_normal(SHAPE)
    memory = 4 * DOF
    online = lt.Online(SHAPE, RANK, memory=memory)
    skew = [np.linalg.qr(angle[:, :, k])[0] for k in range(3)]
    generators = [Q - Q.T for Q in skew]

    def at(t):
        turned = []
        for U, K in zip(start.factors, generators, strict=True):
            turned.append(U + 0.01 * t * K @ U)
        return lt.TuckerTensor.from_factors(start.core, turned)

    count = 20
    for k in range(16 * DOF // count):
        A = rows_of(rng, count)
        X = at(k * count / DOF)
        online.update(A, A.forward(X) + 0.001 * rng.standard_normal(count))
    result = online.result()
    low, high = result.uncertainty.interval(entries())
    truth = X.entries(entries())
    covered = np.mean((low <= truth) & (truth <= high))
    error = lt.metrics.relative_error(result.X, X)
    assert 0.5 < result.error_estimate / error < 2
    assert covered > 0.75
