"""A small problem, and calls on it of which a row changes one argument."""

from __future__ import annotations

import numpy as np

import lowtucker as lt

NAN, INF = float("nan"), float("inf")
SHAPE, RANK, M = (4, 3, 3), (2, 2, 2), 60
A = lt.gaussian(SHAPE, M, seed=1)
BATCH = lt.gaussian(SHAPE, M, seed=1, trials=2)
X = lt.random_tucker(SHAPE, RANK, seed=0)
y = A.forward(X)
P = lt.Problem(A, y)
HOLES = X.full().copy()
HOLES[0, 0, 0] = NAN


def recover(**change):
    return lt.recover(**({"A": A, "y": y, "rank": RANK, "max_epochs": 2} | change))


def function(**change):
    parts = {"forward": A.forward, "adjoint": A.adjoint, "shape": SHAPE, "m": M}
    return lt.FunctionOperator(**(parts | change))


def bad(array, row=3):
    """Copy with NaN in one row."""
    array = np.array(array, dtype=float)
    array[row] = NAN
    return array


def nan_row(Z):
    """Forward map whose row 7 is NaN."""
    return bad(A.forward(Z), 7)
