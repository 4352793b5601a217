"""lowtucker.Problem: its parts, its methods and its blocks."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import lowtucker as lt

SHAPE, M = (3, 4), 5
A = lt.gaussian(SHAPE, M, seed=1)
BATCH = lt.gaussian(SHAPE, M, seed=1, trials=3)
Y = np.arange(1.0, 6.0)
YS = np.ones((3, M))
X = np.ones(SHAPE)
ONE, THREE = lt.Problem(A, Y), lt.Problem(BATCH, YS)


def torch():
    return pytest.importorskip("torch")


PARTS = [
    (
        lambda: lt.Problem(np.ones((5, 12)), Y),
        TypeError,
        "A must be a MeasurementOperator, got ndarray. Try lowtucker.as_operator",
    ),
    (lambda: lt.Problem(None, Y), TypeError, "A must be a MeasurementOperator, got NoneType"),
    (lambda: lt.Problem(A, None), TypeError, "y must be an array of numbers, got NoneType"),
    (lambda: lt.Problem(A, "y"), TypeError, "y must be an array of numbers, got str"),
    (
        lambda: lt.Problem(A, np.array([None] * M)),
        TypeError,
        "y must be an array of numbers, got dtype object",
    ),
    (lambda: lt.Problem(A, [[1.0], [1.0, 2.0]]), ValueError, "y must be ... ragged list"),
    (lambda: lt.Problem(A, 1.0), ValueError, "y must have one entry ... got shape ()"),
    (
        lambda: lt.Problem(A, np.ones(4)),
        ValueError,
        "y must have one entry for each of the 5 measurements, got shape (4,). "
        "Is it the y of another",
    ),
    (
        lambda: lt.Problem(BATCH, np.ones((M, 1))),
        ValueError,
        "y must have one entry for each of the 5 measurements, got shape (5, 1)",
    ),
    (
        lambda: lt.Problem(A, []),
        ValueError,
        "y must have one entry ... got shape (0,). Is it the y of another",
    ),
    (
        lambda: lt.Problem(A, [1.0, 2.0, np.nan, np.inf, 0.0]),
        ValueError,
        "y has NaN or infinite entries, the first at 2 "
        "... A[keep] ... A.restrict(keep) ... weight 0",
    ),
    (
        lambda: lt.Problem(A, [1.0, np.inf, -np.inf, 0.0, 0.0]),
        ValueError,
        "y has NaN or infinite entries, the first at 1",
    ),
    (
        lambda: lt.Problem(lt.gaussian(SHAPE, M, dtype=complex), [complex(1, np.inf), 1, 1, 1, 1]),
        ValueError,
        "y has NaN or infinite entries, the first at 0",
    ),
    (
        lambda: lt.Problem(BATCH, np.where(np.arange(15).reshape(3, 5) == 8, np.nan, 1.0)),
        ValueError,
        "y has NaN or infinite entries, the first at 3",
    ),
    (
        lambda: lt.Problem(BATCH, Y),
        ValueError,
        "y must have shape (3, 5), one row for each problem of the batch A, got (5,). "
        "Is it the y of another",
    ),
    (
        lambda: lt.Problem(BATCH, np.ones((2, M))),
        ValueError,
        "y must have shape (3, 5) ... got (2, 5)",
    ),
    (
        lambda: lt.Problem(A, Y, np.ones(4)),
        ValueError,
        "weights must have one entry for each of the 5 measurements, got shape (4,)",
    ),
    (lambda: lt.Problem(A, Y, 2.0), ValueError, "weights must have one entry ... got shape ()"),
    (lambda: lt.Problem(A, Y, "w"), TypeError, "weights must be an array of numbers"),
    (
        lambda: lt.Problem(A, Y, [1, 1, 1, 1, np.nan]),
        ValueError,
        "weights has NaN or infinite entries, the first at 4",
    ),
    (
        lambda: lt.Problem(A, Y, [1, np.inf, 1, 1, 1]),
        ValueError,
        "weights has NaN or infinite entries, the first at 1",
    ),
    (
        lambda: lt.Problem(A, Y, [1, 1, -1, 1, 1]),
        ValueError,
        "weights must be real, not negative, and not all zero. To leave out a",
    ),
    (
        lambda: lt.Problem(A, Y, np.zeros(M)),
        ValueError,
        "weights must be ... not all zero. To leave out a",
    ),
    (lambda: lt.Problem(A, Y, 1j * np.ones(M)), ValueError, "weights must be real"),
    (
        lambda: lt.Problem(A, Y, np.ones((7, M))),
        ValueError,
        "weights must have shape (5,), got (7, 5)",
    ),
    (
        lambda: lt.Problem(BATCH, YS, np.ones((2, M))),
        ValueError,
        "weights must have shape ... got (2, 5)",
    ),
    (
        lambda: lt.Problem(A, torch().ones(M)),
        TypeError,
        "y is a torch ... DenseOperator holds NumPy",
    ),
    (
        lambda: lt.Problem(A, Y, torch().ones(M)),
        TypeError,
        "weights is a torch ... DenseOperator holds NumPy",
    ),
    (
        lambda: lt.Problem(A, [1, 1, np.nan, np.nan, 1], [1, 1, 0, 2, 1]),
        ValueError,
        "y has NaN or infinite entries, the first at 3",
    ),
    (
        lambda: lt.Problem(A, [1, 1, np.inf, np.inf, 1], [1, 1, 0, 2, 1]),
        ValueError,
        "y has NaN or infinite entries, the first at 3",
    ),
]

NOT_TENSORS = [
    (None, TypeError, "X must be an array of numbers, got NoneType"),
    ("x", TypeError, "X must be an array of numbers, got str. Give numbers, or a list"),
    (np.array([None]), TypeError, "X must be an array of numbers, got dtype object"),
]

WRONG_SHAPES = [
    (np.ones((4, 3)), "(4, 3)"),
    (np.ones(12), "(12,)"),
    (lt.random_tucker((4, 3), (1, 1)), "(4, 3)"),
]


def methods():
    for name in ("residual", "relative_residual", "cost", "objective", "gradient"):
        method = getattr(ONE, name)
        for value, error, text in NOT_TENSORS:
            yield partial(method, value), error, text
        inside = "misfit" if name == "gradient" else "forward"
        for value, got in WRONG_SHAPES:
            text = f"DenseOperator.{inside} expects X of shape ... got {got}. Did you vectorise the"
            yield partial(method, value), ValueError, text


BAD_ROWS = [
    (None, TypeError, "rows must be ... NoneType"),
    ("rows", TypeError, "rows must be ... str"),
    (3, TypeError, "rows must be a slice, a 1-D integer array"),
    ([0.5], TypeError, "rows must be a slice, a 1-D integer array"),
    ([5], ValueError, "rows must be from 0 to 4, got values from 5 to 5"),
    ([-1, 2], ValueError, "rows must be from 0 to 4, got values from -1 to 2"),
    ([], ValueError, "rows selects none of the 5 measurements. Choose at least one"),
    (slice(2, 2), ValueError, "rows selects none of the 5 measurements ... Choose at least one"),
    (slice(None, None, 0), ValueError, "rows must be a slice of integers"),
]

BLOCKS = [
    *(
        (partial(problem.block, rows), error, text)
        for problem in (ONE, THREE)
        for rows, error, text in BAD_ROWS
    ),
    (
        lambda: THREE.block((slice(0, 1), slice(0, 1))),
        ValueError,
        "rows must have one entry for each of the 3 problems, got 2",
    ),
]

LEADING_AXES = [
    (
        lambda: lt.Problem(A, np.ones((3, M))).residual(np.ones((2, *SHAPE))),
        ValueError,
        "X and y must have the same leading axes ... (2,) ... (3,)",
    ),
]

ROWS = [*PARTS, *methods(), *BLOCKS, *LEADING_AXES]
