"""Operators: to make, to apply, to restrict and to check them."""

from __future__ import annotations

import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import lowtucker as lt
from bad_calls.setting import bad

SHAPE, N, M = (3, 4), 12, 5
MATRIX = np.random.default_rng(0).standard_normal((M, N))
X = np.random.default_rng(1).standard_normal(SHAPE)
Y = np.random.default_rng(2).standard_normal(M)
T = lt.TangentSpace(lt.random_tucker(SHAPE, (2, 2)))
RAGGED = [[1.0, 2.0], [3.0]]
SPARSE = scipy.sparse.csr_array(MATRIX)
A = lt.DenseOperator(MATRIX, SHAPE)
BATCH = lt.gaussian(SHAPE, M, seed=1, trials=3)


def linear_operator():
    return aslinearoperator(MATRIX)


def function(**change):
    parts = {
        "forward": lambda X: MATRIX @ X.ravel(),
        "adjoint": lambda v: (MATRIX.T @ v).reshape(SHAPE),
        "shape": SHAPE,
        "m": M,
    }
    return lt.FunctionOperator(**(parts | change))


def nan_row(X):
    return bad(MATRIX @ X.ravel())


def with_entry(value, dtype=float):
    matrix = MATRIX.astype(dtype)
    matrix[2, 3] = value
    return matrix


MAKE = [
    (lambda: lt.batch([]), ValueError, "operators must have one operator ... Try lowtucker.batch"),
    (lambda: lt.batch(A), TypeError, "operators must be a sequence ... DenseOperator. Try"),
    (lambda: lt.batch(3), TypeError, "operators must be a sequence of operators, got int. Try"),
    (lambda: lt.batch([A, BATCH]), ValueError, "operators[1] is a batch of (3,). Give its"),
    (
        lambda: lt.batch([A, lt.gaussian((4, 3), M)]),
        ValueError,
        "operators must have one shape ... operators[1] has (4, 3) ... Solve them one by one",
    ),
    (
        lambda: lt.batch([A, lt.gaussian(SHAPE, M, dtype=np.float32)]),
        ValueError,
        "operators must have one shape ... float32 ... Solve them one by one",
    ),
    *(
        (lambda other=other: lt.batch([A, other]), TypeError, "A must be ... Try lowtucker")
        for other in (None, MATRIX, "A")
    ),
    (lambda: lt.DenseOperator(None), TypeError, "matrix must be an array ... NoneType"),
    (lambda: lt.DenseOperator("A"), TypeError, "matrix must be an array of numbers, got str"),
    (lambda: lt.DenseOperator(RAGGED), ValueError, "matrix must be ... ragged list"),
    (
        lambda: lt.DenseOperator(np.array([[None, 1]])),
        TypeError,
        "matrix must be an array of numbers, got dtype object",
    ),
    (lambda: lt.DenseOperator(3.0), ValueError, "matrix must have one row ... ()"),
    (
        lambda: lt.DenseOperator(np.ones(12), SHAPE),
        ValueError,
        "matrix must have one row per measurement, got shape (12,)",
    ),
    (
        lambda: lt.DenseOperator(with_entry(np.nan), SHAPE),
        ValueError,
        "matrix has NaN or infinite entries. Leave out the",
    ),
    (
        lambda: lt.DenseOperator(with_entry(-np.inf), SHAPE),
        ValueError,
        "matrix has NaN or infinite entries. Leave out the",
    ),
    (
        lambda: lt.DenseOperator(with_entry(1j * np.nan, complex), SHAPE),
        ValueError,
        "matrix has NaN or infinite entries. Leave out the",
    ),
    (
        lambda: lt.DenseOperator(MATRIX),
        ValueError,
        "shape is needed to read the rows of a matrix of shape (5, 12)",
    ),
    (
        lambda: lt.DenseOperator(MATRIX, (3, 5)),
        ValueError,
        "matrix has rows of 12 entries ... tensors of shape (3, 5) have 15. Check shape, or",
    ),
    (
        lambda: lt.DenseOperator(MATRIX.T, SHAPE),
        ValueError,
        "matrix has rows of 5 entries ... Check shape, or transpose the matrix",
    ),
    (lambda: lt.DenseOperator(MATRIX, 12), TypeError, "shape must ... number 12"),
    (
        lambda: lt.DenseOperator(MATRIX, (3.0, 4)),
        ValueError,
        "shape must be a tuple of positive integers, got (3.0, 4)",
    ),
    (lambda: lt.DenseOperator(MATRIX, ()), ValueError, "shape must ... ()"),
    (
        lambda: lt.DenseOperator(MATRIX, SHAPE, order="X"),
        ValueError,
        'order must be "C" (row-major) or "F" ... got \'X\'',
    ),
    (
        lambda: lt.DenseOperator(MATRIX, SHAPE, order=None),
        ValueError,
        'order must be "C" (row-major) or "F" ... got None',
    ),
    (lambda: lt.DenseOperator(MATRIX, SHAPE, dtype="foo"), TypeError, "dtype must be ... 'foo'"),
    (
        lambda: lt.DenseOperator(MATRIX, SHAPE, dtype=np.dtype(int)),
        TypeError,
        "dtype must be ... int64",
    ),
    (
        lambda: lt.DenseOperator(np.zeros((0, N)), SHAPE),
        ValueError,
        "matrix must have ... got shape (0, 12)",
    ),
    (
        lambda: lt.DenseOperator(np.zeros((3, 0, 4))),
        ValueError,
        "matrix must ... got shape (3, 0, 4)",
    ),
    (lambda: lt.as_operator(None), TypeError, "A must be ... NoneType"),
    (
        lambda: lt.as_operator("a.npy"),
        TypeError,
        "A must be an operator or an array, got the path 'a.npy'",
    ),
    (
        lambda: lt.as_operator(A, (4, 3)),
        ValueError,
        "shape=(4, 3) is not the shape of A's tensors, (3, 4)",
    ),
    (
        lambda: lt.as_operator(SPARSE),
        ValueError,
        "shape is needed to read csr_array of shape (5, 12)",
    ),
    (
        lambda: lt.as_operator(A, order="F"),
        ValueError,
        'A is a DenseOperator ... pass order="F" when you create the operator',
    ),
    (lambda: lt.as_operator(A, order="X"), ValueError, "order must be ... got 'X'"),
    (
        lambda: lt.as_operator(lambda X: X.ravel(), SHAPE),
        TypeError,
        "A must ... got a function. Try lowtucker.FunctionOperator(forward, adjoint, shape, m)",
    ),
    (
        lambda: lt.as_operator((np.ravel, np.ravel), SHAPE),
        TypeError,
        "A must ... got a function. Try lowtucker.FunctionOperator(forward, adjoint, shape, m)",
    ),
    (
        lambda: lt.as_operator(
            scipy.sparse.linalg.LinearOperator((M, N), matvec=lambda x: MATRIX @ x, dtype=float),
            SHAPE,
        ),
        ValueError,
        "_CustomLinearOperator has no rmatvec ... FunctionOperator(forward, adjoint, shape, m)",
    ),
    (
        lambda: lt.as_operator(SimpleNamespace(shape=(M, N), matvec=np.ravel), SHAPE),
        TypeError,
        "operator must have shape, matvec and rmatvec ... FunctionOperator",
    ),
    (lambda: lt.as_operator(MATRIX, SHAPE, order="X"), ValueError, "order must be ... got 'X'"),
    (lambda: lt.as_operator(linear_operator()), ValueError, "shape is ... Try shape=(30, 30, 10)"),
    (
        lambda: lt.SparseOperator(MATRIX, SHAPE),
        TypeError,
        "matrix must be a SciPy sparse array, got ndarray. Try lowtucker.as_operator",
    ),
    (
        lambda: lt.SparseOperator(None, SHAPE),
        TypeError,
        "matrix must be a SciPy sparse array, got NoneType",
    ),
    (
        lambda: lt.SparseOperator(scipy.sparse.csr_array(with_entry(np.nan)), SHAPE),
        ValueError,
        "matrix has NaN or infinite entries",
    ),
    (
        lambda: lt.SparseOperator(SPARSE, (3, 5)),
        ValueError,
        "A has shape (5, 12), expected (m, 15) for tensors of shape (3, 5) ... Check shape, or",
    ),
    (lambda: lt.SparseOperator(SPARSE, SHAPE, order="X"), ValueError, "order must be ... got 'X'"),
    (
        lambda: lt.SparseOperator(scipy.sparse.eye_array(5), SHAPE),
        ValueError,
        "A has ... Check shape, or",
    ),
    (
        lambda: lt.LinearOperatorAdapter(5, SHAPE),
        TypeError,
        "operator must ... int. Try lowtucker.FunctionOperator",
    ),
    (lambda: lt.LinearOperatorAdapter(None, SHAPE), TypeError, "operator must ... NoneType"),
    (
        lambda: lt.LinearOperatorAdapter(linear_operator(), (3, 5)),
        ValueError,
        "A has shape (5, 12), expected (m, 15) ... Check shape, or",
    ),
    (
        lambda: lt.LinearOperatorAdapter(
            LinearOperator((M, N), matvec=lambda x: x, dtype=float), SHAPE
        ),
        ValueError,
        "_CustomLinearOperator has ... Define it, or try",
    ),
    (
        lambda: lt.FunctionOperator(None, len, SHAPE, M),
        TypeError,
        "forward must be callable, got NoneType",
    ),
    (lambda: lt.FunctionOperator(len, 3, SHAPE, M), TypeError, "adjoint must be callable, got int"),
    (lambda: lt.FunctionOperator(len, len, SHAPE, 0), ValueError, "m must be at least 1, got 0"),
    (
        lambda: lt.FunctionOperator(len, len, 12, M),
        TypeError,
        "shape must have one entry per mode, got the number 12",
    ),
    (
        lambda: lt.FunctionOperator(len, len, SHAPE, M, dtype="foo"),
        TypeError,
        "dtype must be ... 'foo'",
    ),
    (
        lambda: lt.gaussian(SHAPE, M, normalize="foo"),
        ValueError,
        'normalize must be None, "unit" or "frobenius", got \'foo\'',
    ),
    (lambda: lt.gaussian(SHAPE, 0), ValueError, "m must be at least 1, got 0"),
    (lambda: lt.gaussian(SHAPE, 5.0), TypeError, "m must be an integer, got 5.0. Try int(...)"),
    (lambda: lt.gaussian((), M), ValueError, "shape must ... got (). Try shape=(30, 30, 10)"),
    (lambda: lt.gaussian(None, M), TypeError, "shape must ... NoneType"),
    (lambda: lt.gaussian(SHAPE, M, -3), ValueError, "seed must not be negative, got -3"),
    (
        lambda: lt.gaussian(SHAPE, M, "a"),
        TypeError,
        "seed must be an integer or a pair ... got 'a'",
    ),
    (
        lambda: lt.gaussian(SHAPE, M, dtype=int),
        TypeError,
        "dtype must be float32, float64, complex64 or complex128, got int64",
    ),
    (
        lambda: lt.gaussian(SHAPE, M, dtype=np.longdouble),
        TypeError,
        "dtype must be float32, float64, complex64 or complex128, got",
    ),
    (lambda: lt.gaussian(SHAPE, M, trials=0), ValueError, "trials must be at least 1, got 0"),
    (lambda: lt.gaussian(b"x", 5), TypeError, "shape must ... Try shape=(30, 30, 10)"),
    (lambda: lt.gaussian((2**40, 2**40), 5), ValueError, "shape must ... sizes of the modes?"),
    (lambda: lt.gaussian((3, -1), 5), ValueError, "shape must ... Try shape=(30, 30, 10)"),
    (lambda: lt.gaussian(SHAPE, 10**30), ValueError, "m must be between 1 and"),
    (lambda: lt.gaussian(SHAPE, 10**15), ValueError, "m = ... Try lowtucker.seeded_gaussian"),
    (
        lambda: lt.gaussian(SHAPE, 5, normalize=np.array([1, 2])),
        TypeError,
        'normalize must be None, "unit" or',
    ),
    (lambda: lt.gaussian(SHAPE, 5, dtype="x"), TypeError, "dtype must be float32, float64"),
    (lambda: lt.gaussian(SHAPE, 5, trials="x"), TypeError, "trials must ... Try int(...)"),
    (
        lambda: lt.check_adjoint(5),
        TypeError,
        "A must be a MeasurementOperator, got int. Try lowtucker.as_operator",
    ),
    (lambda: lt.check_adjoint(A, seed=-1), ValueError, "seed must not be negative, got -1"),
    (lambda: lt.check_adjoint(A, rtol=-1), ValueError, "rtol must be a finite number, at"),
    (
        lambda: lt.check_restriction(MATRIX),
        TypeError,
        "A must be a MeasurementOperator, got ndarray",
    ),
    (lambda: lt.operator_norm(None), TypeError, "A must be a MeasurementOperator, got NoneType"),
    (
        lambda: lt.operator_norm(BATCH),
        ValueError,
        "operator_norm expects one operator, got a batch",
    ),
    (lambda: lt.to_scipy(5), TypeError, "A must be a MeasurementOperator, got int"),
    (
        lambda: lt.to_scipy(BATCH),
        ValueError,
        "A must be one operator, got a batch. Convert each operator",
    ),
    (
        lambda: lt.seeded_gaussian((2**40, 2**40), 5),
        ValueError,
        "shape must ... sizes of the modes?",
    ),
    (lambda: lt.seeded_gaussian(SHAPE, 10**30), ValueError, "m must be between 1 and"),
    (
        lambda: lt.seeded_gaussian(SHAPE, 5, dtype=complex),
        TypeError,
        "dtype must be float32 or float64",
    ),
    (lambda: function(forward=5), TypeError, "forward must ... For an array try"),
    (lambda: function(m=10**30), ValueError, "m must be between 1 and"),
    (lambda: function(prototype=[1, 2]), TypeError, "prototype must ... For NumPy leave it out"),
    (
        lambda: function(forward=nan_row).forward(X),
        ValueError,
        "FunctionOperator._forward returned ... lowtucker.check_adjoint(",
    ),
    (
        lambda: function(adjoint=lambda v: np.full(SHAPE, np.inf)).adjoint(Y),
        ValueError,
        "FunctionOperator._adjoint returned ... lowtucker.check_adjoint(",
    ),
    (lambda: lt.rank_one(np.ones((3, 3))), TypeError, "factors must ... For one matrix write"),
    (
        lambda: lt.rank_one([np.ones((3, 2)), np.ones((4, 2))]),
        ValueError,
        "factors[1] must ... Transpose it?",
    ),
    (
        lambda: lt.rank_one([bad(np.ones((5, 2)))]),
        ValueError,
        "factors[0] has ... Leave out those rows",
    ),
    (lambda: lt.rank_one([np.ones(3)]), ValueError, "factors[0] must ... Reshape it"),
    (lambda: lt.entries(SHAPE, [[0]]), ValueError, "indices must ... Try np.argwhere(mask)"),
    (lambda: lt.entries(SHAPE, [[0, 9]]), ValueError, "indices[0, 1] = ... Subtract 1 if yours"),
    (lambda: lt.entries(SHAPE, [[0, 0.5]]), TypeError, "indices must be integers"),
    (lambda: lt.entries(SHAPE, "x"), TypeError, "indices must be an array of numbers, got str"),
    (
        lambda: lt.kronecker([bad(np.ones((5, 2)))]),
        ValueError,
        "matrices[0] has ... Leave out those rows",
    ),
    (
        lambda: lt.kronecker([np.eye(4), np.eye(3)], final=np.ones((2, 5))),
        ValueError,
        "final must ... Transpose it?",
    ),
    (lambda: lt.subsampled_transform(SHAPE, 5, "dst"), ValueError, 'kind must be "dct", "fft" or'),
    (lambda: lt.subsampled_transform(SHAPE, 99), ValueError, "m must be at most 12, the number"),
    (lambda: lt.subsampled_transform(SHAPE, 0), ValueError, "m must be at least 1"),
    (
        lambda: lt.subsampled_transform(SHAPE, 5, "dct", signs="no"),
        TypeError,
        "signs must be True or False",
    ),
    (lambda: lt.stack([]), TypeError, "operators must be a list of at least one"),
    (lambda: lt.stack([A, 5]), TypeError, "operators[1] must ... Try lowtucker.as_operator"),
    (
        lambda: lt.stack([A, lt.gaussian((2, 2), 3)]),
        ValueError,
        "operators must measure tensors of one",
    ),
    (lambda: lt.scale(A, 0), ValueError, "factor is ... To leave out"),
    (lambda: lt.scale(A, np.nan), ValueError, "factor has NaN or infinite"),
    (lambda: lt.scale(5, 2.0), TypeError, "A must ... Try lowtucker.as_operator"),
    (
        lambda: lt.compose(np.ones((3, 4)), A),
        ValueError,
        "maps[0] (ndarray) takes ... The last map is applied",
    ),
    (lambda: lt.stored(None), TypeError, "source must ... For a file try"),
    (lambda: lt.stored(np.ones((3, N))), ValueError, "shape is ... Try shape=(30, 30, 10)"),
]

# every kind of operator

KINDS = [
    A,
    BATCH,
    lt.SparseOperator(SPARSE, SHAPE),
    lt.as_operator(linear_operator(), SHAPE),
    function(),
]

NOT_ARRAYS = [
    (None, TypeError, "{} must be an array of numbers, got NoneType. Give numbers, or a list"),
    ("x", TypeError, "{} must be an array of numbers, got str"),
    (RAGGED, ValueError, "{} must be an array of numbers, got a ragged list"),
    (np.array([None]), TypeError, "{} must be an array of numbers, got dtype object"),
]

WRONG_SHAPES = [(1.0, "()"), ([], "(0,)"), (np.ones((7, 9)), "(7, 9)")]

VECTORISED = [(np.ones(N), "(12,)"), (lt.random_tucker((4, 3), (1, 1)), "(4, 3)")]

BAD_ROWS = [
    (None, TypeError, "rows must be ... NoneType"),
    ("abc", TypeError, "rows must be ... str"),
    (2, TypeError, "rows must be a slice, a 1-D integer array ... shape ()"),
    ([0.0, 1.0], TypeError, "rows must be a slice, a 1-D integer array ... float64"),
    ([[0, 1]], TypeError, "rows must be a slice, a 1-D integer array ... shape (1, 2)"),
    ([True, False], TypeError, "rows must be ... boolean mask of length 5"),
    ([False] * M, ValueError, "rows selects none of the 5 measurements. Choose at least one"),
    ([], ValueError, "rows selects none of the 5 measurements. Choose at least one"),
    (np.array([], int), ValueError, "rows selects none of the 5 measurements. Choose at least one"),
    (slice(5, 9), ValueError, "rows selects none of the 5 measurements"),
    ([0, 5], ValueError, "rows must be from 0 to 4, got values from 0 to 5"),
    ([-1], ValueError, "rows must be from 0 to 4, got values from -1"),
    (slice("a", "b"), TypeError, "rows must be a slice of integers"),
    (slice(0.0, 2.0), TypeError, "rows must be a slice of integers"),
    (slice(0, 3, 0), ValueError, "rows must ... step"),
]


def of_every_kind():
    for A in KINDS:
        X, y = np.zeros((*A.batch_shape, *SHAPE)), np.zeros((*A.batch_shape, M))
        tensor, data = "Did you vectorise the tensor", "Did you restrict the operator"
        arguments = [
            (A.forward, "forward", "X", tensor),
            (A.adjoint, "adjoint", "v", data),
            (lambda V, A=A, y=y: A.misfit(V, y), "misfit", "X", tensor),
            (partial(A.misfit, X), "misfit", "y", data),
        ]
        for call, method, name, advice in arguments:
            for value, error, text in NOT_ARRAYS:
                yield partial(call, value), error, text.format(name)
            expects = f"{type(A).__name__}.{method} expects {name} of shape"
            for value, got in WRONG_SHAPES + (VECTORISED if method == "forward" else []):
                yield partial(call, value), ValueError, f"{expects} ... got {got}. {advice}"
        for rows, error, text in BAD_ROWS:
            yield partial(A.restrict, rows), error, text


APPLY = [
    (
        lambda: BATCH.forward(np.ones((7, 9))),
        ValueError,
        "DenseOperator.forward expects X of shape (3, 3, 4), got (7, 9)",
    ),
    (
        lambda: BATCH.forward(np.ones((2, *SHAPE))),
        ValueError,
        "DenseOperator.forward expects X of shape (3, 3, 4), got (2, 3, 4)",
    ),
    (
        lambda: BATCH.forward(np.ones((4, 3, *SHAPE))),
        ValueError,
        "DenseOperator.forward expects X of shape (3, 3, 4), got (4, 3, 3, 4)",
    ),
    (
        lambda: A.forward(1j * X),
        TypeError,
        "X is complex ... DenseOperator(matrix, shape, dtype=complex)",
    ),
    (
        lambda: A.misfit(np.ones((2, *SHAPE)), np.ones((3, M))),
        ValueError,
        "X and y must have the same leading axes ... (2,) ... (3,)",
    ),
    (
        lambda: A.misfit(X, Y, np.ones(M - 1)),
        ValueError,
        "weights must have shape (5,), got (4,). Give one weight per",
    ),
    (lambda: A.misfit(X, Y, "w"), TypeError, "weights must be an array of numbers, got str"),
    (lambda: A.misfit(X, Y, np.ones((2, M))), ValueError, "weights ... (2, 5)"),
    (
        lambda: A.misfit(X, Y, np.array([None] * M)),
        TypeError,
        "weights must be an array of numbers",
    ),
    (
        lambda: BATCH.restrict((slice(0, 1), slice(0, 1))),
        ValueError,
        "rows must have one entry for each of the 3 problems, got 2",
    ),
    (
        lambda: BATCH.restrict((slice(0, 1), slice(0, 1), np.array([9]))),
        ValueError,
        "rows must be from 0 to 4",
    ),
    (lambda: A.tangent(T.X), TypeError, "T must ... Try lowtucker.TangentSpace"),
    (
        lambda: BATCH.tangent(T),
        ValueError,
        "T must be a batch of (3,) tangent spaces ... got (). Try A.trial(k)",
    ),
    (
        lambda: A.tangent(lt.TangentSpace(lt.random_tucker((3, 3), (1, 1)))),
        ValueError,
        "DenseOperator.tangent expects ... Did you vectorise the",
    ),
    (
        lambda: A.spectral_start(Y[:3], (2, 2)),
        ValueError,
        "DenseOperator.spectral_start expects ... Did you restrict the",
    ),
    (lambda: A.spectral_start(Y, (9, 9)), ValueError, "rank[0] = 9 must be between 1 and 3, the"),
]


# what functions and custom operators return, or lack


def returned():
    for value, error, given in [
        (np.ones(M + 1), ValueError, "shape (6,)"),
        (1.0, TypeError, "float"),
        ([1.0] * (M + 1), TypeError, "list"),
        (None, TypeError, "NoneType"),
    ]:
        forward, adjoint = (
            function(forward=lambda X, v=value: v),
            function(adjoint=lambda _, v=value: v),
        )
        yield partial(forward.forward, X), error, f"FunctionOperator._forward returned {given}"
        yield partial(adjoint.adjoint, Y), error, f"FunctionOperator._adjoint returned {given}"


def quiet_block(A):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        return A.restrict([0, 1])


def wrong_length():
    """A SciPy operator that returns fewer measurements than it says."""
    return LinearOperator(
        (M, 12), matvec=lambda x: np.zeros(M - 1), rmatvec=lambda v: np.zeros(12), dtype=float
    )


class WrongProducts:
    shape, dtype = (M, N), np.dtype(float)

    def matvec(self, x):
        return x[:3]

    rmatvec = matvec


class Own(lt.MeasurementOperator):
    """An operator whose class forgot some of its attributes."""

    def __init__(self, **given):
        for name, value in given.items():
            setattr(self, name, value)

    def _forward(self, X):
        return MATRIX @ X.ravel()

    def _adjoint(self, v):
        return (MATRIX.T @ v).reshape(SHAPE)


def without(missing, **given):
    calls = [
        lambda: Own(**given).forward(X),
        lambda: Own(**given).adjoint(Y),
        lambda: lt.Problem(Own(**given), Y).gradient(X),
    ]
    if missing == "m":
        calls.append(lambda: Own(**given).restrict([0]))
    for call in calls:
        yield call, TypeError, f"Own has no {missing}, ... set self.{missing} in"


class NaNInRow7(lt.MeasurementOperator):
    shape, m = SHAPE, 8

    def _forward(self, X):
        return bad(np.ones(8), 7)

    def _adjoint(self, v):
        return np.ones(SHAPE)


def nan_for_ones(Z):
    return bad(Y) if Z[0, 0] == 1 else Y


OUTPUT = [
    *returned(),
    (
        lambda: function(forward=lambda X: np.ones(1)).misfit(X, Y),
        ValueError,
        "FunctionOperator._forward returned",
    ),
    (
        lambda: function(adjoint=lambda v: np.ones(M)).misfit(X, Y),
        ValueError,
        "FunctionOperator._adjoint returned",
    ),
    (
        lambda: function(forward=lambda X: [1.0] * M).forward(np.ones((2, *SHAPE))),
        TypeError,
        "FunctionOperator._forward returned list",
    ),
    (
        lambda: quiet_block(function(forward=lambda X: [1.0] * M)).forward(X),
        TypeError,
        "FunctionOperator._forward returned list",
    ),
    (
        lambda: function(forward=lambda X: np.ones((1, M))).forward(X),
        ValueError,
        "FunctionOperator._forward returned shape (1, 5), expected (5,).",
    ),
    (
        lambda: lt.as_operator(wrong_length(), SHAPE).forward(X),
        ValueError,
        "_CustomLinearOperator.matvec of a vector of length 12 failed ... It must return",
    ),
    (
        lambda: lt.as_operator(WrongProducts(), SHAPE).adjoint(Y),
        ValueError,
        "WrongProducts.rmatvec returned shape (3,), expected (12,)",
    ),
    *without("m", shape=SHAPE),
    *without("shape", m=M),
    (lambda: NaNInRow7().forward(X), ValueError, "NaNInRow7._forward returned nan in row 7"),
    (
        lambda: NaNInRow7().forward(np.zeros((2, *SHAPE))),
        ValueError,
        "NaNInRow7._forward returned nan in row 7",
    ),
    (
        lambda: lt.recover(NaNInRow7(), np.ones(8), (1, 1)),
        ValueError,
        "NaNInRow7._forward returned nan in row 7",
    ),
    (
        lambda: function(forward=nan_for_ones).forward(np.stack([np.zeros(SHAPE), np.ones(SHAPE)])),
        ValueError,
        "FunctionOperator._forward returned nan in row 3",
    ),
]


# sparse matrices that are damaged: SciPy's loops would leave their arrays, and crash


def out_of_range(form, index):
    matrix = SPARSE.asformat(form).copy()
    if form == "coo":
        matrix.coords[1][2] = index
    elif form == "lil":
        matrix.rows[1][2] = index
    else:
        matrix.indices[-1] = index
    return matrix


def out_of_order(where, value):
    matrix = SPARSE.copy()
    matrix.indptr[where] = value
    return matrix


DAMAGED = [
    *(
        (
            lambda make=make, form=form, index=index: make(out_of_range(form, index), SHAPE),
            ValueError,
            "matrix of shape (5, 12) has indices that do not",
        )
        for make in (lt.SparseOperator, lt.as_operator)
        for form in ("csr", "csc", "bsr", "coo", "lil")
        for index in (-1, 10**8)
    ),
    *(
        (
            lambda where=where, value=value: lt.SparseOperator(out_of_order(where, value), SHAPE),
            ValueError,
            "matrix of ... pointers that do not fit its CSR form. Build it",
        )
        for where, value in [(0, 1), (2, 10**8), (2, 0), (-1, 10**8)]
    ),
]


# arrays of another kind


def torch_of(array):
    return pytest.importorskip("torch").asarray(array)


def jax_of(array):
    return pytest.importorskip("jax.numpy").asarray(array)


def torch_operator():
    return lt.DenseOperator(torch_of(MATRIX), SHAPE)


def torch_for_numpy():
    for A in KINDS:
        X, v = np.zeros((*A.batch_shape, *SHAPE)), np.zeros((*A.batch_shape, M))
        yield lambda A=A, X=X: A.forward(torch_of(X)), TypeError, "X is a torch ... NumPy"
        yield lambda A=A, v=v: A.adjoint(torch_of(v)), TypeError, "v is a torch ... NumPy"
        yield lambda A=A, X=X, v=v: A.misfit(torch_of(X), v), TypeError, "X is a torch ... NumPy"


OTHER_KIND = [
    *torch_for_numpy(),
    (
        lambda: torch_operator().forward(X),
        TypeError,
        "X is a NumPy array, but DenseOperator holds torch",
    ),
    (
        lambda: torch_operator().adjoint(Y),
        TypeError,
        "v is a NumPy array, but DenseOperator holds torch",
    ),
    (
        lambda: torch_operator().forward(lt.random_tucker(SHAPE, (1, 1))),
        TypeError,
        "X is a NumPy array, but DenseOperator holds torch",
    ),
    (
        lambda: lt.Problem(torch_operator(), Y),
        TypeError,
        "y is a NumPy array, but DenseOperator holds torch",
    ),
    (lambda: torch_operator().forward(jax_of(X)), TypeError, "X is a jax ... torch"),
]

ROWS = [*MAKE, *of_every_kind(), *APPLY, *OUTPUT, *DAMAGED, *OTHER_KIND]
