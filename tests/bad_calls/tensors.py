"""The tensor algebra, Tucker tensors, thresholdings and metrics."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import lowtucker as lt

NAN, INF = np.full((3, 4), np.nan), np.full((3, 4), np.inf)
X = np.arange(24.0).reshape(2, 3, 4)
RAGGED = [[1.0, 2.0], [3.0]]
TUCKER = lt.random_tucker((4, 5, 3), (2, 2, 2), seed=1)
BATCH = lt.random_tucker((4, 5, 3), (2, 2, 2), seed=1, trials=3)

NOT_ARRAYS = [
    (None, TypeError, "{} must be an array of numbers, got NoneType"),
    ("tensor", TypeError, "{} must be an array of numbers, got str"),
    ({}, TypeError, "{} must be an array of numbers, got dict"),
    (
        np.array([[object(), object()]]),
        TypeError,
        "{} must be an array of numbers, got dtype object",
    ),
    (np.array(["a", "b"]), TypeError, "{} must be an array of numbers, got dtype"),
    (RAGGED, ValueError, "{} must be an array of numbers, got a ragged list"),
]

TAKES_AN_ARRAY = [
    (lambda V: lt.unfold(V, 0), "X"),
    (lambda V: lt.fold(V, 0, (2, 3)), "matrix"),
    (lambda V: lt.mode_product(V, np.eye(2), 0), "X"),
    (lambda V: lt.mode_product(X, V, 0), "U"),
    (lambda V: lt.multi_mode_product(V, [None]), "X"),
    (lambda V: lt.inner(V, X), "X"),
    (lambda V: lt.inner(X, V), "Y"),
    (lt.norm, "X"),
    (lambda V: lt.hosvd(V, (1, 1)), "X"),
    (lambda V: lt.sthosvd(V, (1, 1)), "X"),
    (lambda V: lt.hooi(V, (1, 1)), "X"),
    (lt.spectra, "X"),
    (lt.multilinear_rank, "X"),
    (lambda V: lt.TuckerTensor(V, [np.eye(2)]), "core"),
    (lambda V: lt.TuckerTensor(np.eye(2), [V, np.eye(2)]), "factors[0]"),
    (lambda V: lt.TuckerTensor.from_factors(V, [np.eye(2)]), "core"),
    (TUCKER.entries, "indices"),
    (lambda V: TUCKER * V, "number"),
    (lambda V: lt.HOSVD((1, 1))(V), "X"),
]

ARRAYS = [
    (partial(call, value), error, text.format(name))
    for call, name in TAKES_AN_ARRAY
    for value, error, text in NOT_ARRAYS
]

TRUNCATIONS = [
    lt.hosvd,
    lt.sthosvd,
    lt.hooi,
    lambda V, rank: lt.HOSVD(rank)(V),
    lambda V, rank: lt.STHOSVD(rank)(V),
    lambda V, rank: lt.HOOI(rank)(V),
]

TAKES_A_RANK = [
    *TRUNCATIONS,
    lambda V, rank: lt.hosvd(V).compress(rank),
    lambda V, rank: lt.random_tucker(V.shape, rank),
    lambda V, rank: lt.degrees_of_freedom(V.shape, rank),
]

BAD_RANKS = [
    ((2, 3, 5), ValueError, "rank[2] = 5 must be between 1 and 4, the"),
    ((0, 2, 2), ValueError, "rank[0] = 0 must be"),
    ((1, -1, 2), ValueError, "rank[1] = -1 must be"),
    ((1, 1, 1, 1), ValueError, "rank must have one entry per mode: got 4 entries"),
    (2, TypeError, "rank must have one entry per mode, got the number 2"),
    (2.0, TypeError, "rank must be a tuple of integers, got 2.0. Try rank=(3, 3, 2)"),
    ((2.0, 2, 2), TypeError, "rank must ... integers, got (2.0, 2, 2). Try rank=(2, 2, 2)."),
    ((2.5, 2, 2), TypeError, "rank must ... integers, got (2.5, 2, 2). Try rank=(3, 3, 2)."),
    ((True, 1, 1), TypeError, "rank must be a tuple of integers, got (True, 1, 1)"),
    ("abc", TypeError, "rank must be a tuple of integers, got 'abc'"),
    ((None, 1, 1), TypeError, "rank must be a tuple of integers, got (None"),
]

# a thresholding knows no shape yet: its messages mention none
WITHOUT_A_SHAPE = [
    ((), ValueError, "rank must have one entry per mode: got 0 entries, ()."),
    (None, TypeError, "rank must be a tuple of integers, got None. Try rank=(3, 3, 2)"),
    (5, TypeError, "rank must have one entry per mode, got the number 5. Try rank=(5, 5, 5)."),
    ((0, 2, 2), ValueError, "rank[0] = 0 must be at least 1."),
    ((1, -1, 2), ValueError, "rank[1] = -1 must be at least 1."),
]

RANKS = [
    *(
        (partial(call, X, rank), error, text)
        for call in TAKES_A_RANK
        for rank, error, text in BAD_RANKS
    ),
    *(
        (partial(make, rank), error, text)
        for make in (lt.HOSVD, lt.STHOSVD, lt.HOOI)
        for rank, error, text in WITHOUT_A_SHAPE
    ),
]


def longdouble(array):
    if np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("longdouble is float64 here")
    return array.astype(np.longdouble)


def masked():
    return np.ma.masked_greater(np.arange(6.0).reshape(2, 3), 4.0)


ENTRIES = [
    *(
        (partial(call, value, (1, 1)), ValueError, "X has NaN ... try lowtucker.complete(X)")
        for call in TRUNCATIONS
        for value in (NAN, INF)
    ),
    *(
        (partial(call, value), ValueError, "X has NaN or infinite entries")
        for call in (lt.hosvd, lt.sthosvd, lt.hooi, lt.spectra, lt.multilinear_rank)
        for value in (NAN, INF)
    ),
    *(
        (
            partial(call, np.ones((0, 3))),
            ValueError,
            "X must have entries in every mode, got shape (0, 3)",
        )
        for call in (lt.hosvd, lt.sthosvd, lt.hooi, lt.spectra)
    ),
    *(
        (
            lambda call=call: call(longdouble(X), (1, 1, 1)),
            TypeError,
            f"X must be of single or double precision, got dtype {np.dtype(np.longdouble)}. Try",
        )
        for call in (lt.hosvd, lt.sthosvd, lt.hooi)
    ),
    *(
        (
            lambda call=call: call(masked()),
            TypeError,
            f"{name} must be an array of numbers, got a masked array ... filled",
        )
        for call, name in [
            (lambda V: lt.hosvd(V, (1, 1)), "X"),
            (lt.norm, "X"),
            (lambda V: lt.DenseOperator(V, (3,)), "matrix"),
            (lambda V: lt.Problem(lt.gaussian((3,), 6), np.ma.ravel(V)), "y"),
        ]
    ),
    (
        lambda: lt.unfold(TUCKER, 0),
        TypeError,
        "X must be an array of numbers, got TuckerTensor. Try X.full()",
    ),
]

ALGEBRA = [
    (lambda: lt.unfold(5.0, 0), ValueError, "X ... at least one mode"),
    (lambda: lt.unfold(X, 3), ValueError, "mode must be between 0 and 2, got 3"),
    (lambda: lt.unfold(X, -1), ValueError, "mode must be between 0 and 2, got -1"),
    (lambda: lt.unfold(X, 1.0), TypeError, "mode must be an integer, got 1.0"),
    (lambda: lt.unfold(X, None), TypeError, "mode must be an integer, got None"),
    (
        lambda: lt.unfold(X, 0, batch_ndim=3),
        ValueError,
        "batch_ndim must be between 0 and 2, got 3",
    ),
    (
        lambda: lt.fold(np.ones((2, 5)), 0, (2, 3)),
        ValueError,
        "fold expects a matrix of shape (*batch, 2, 3) ... got (2, 5)",
    ),
    (lambda: lt.fold(np.ones(6), 0, (2, 3)), ValueError, "fold expects a matrix ... got (6,)"),
    (lambda: lt.fold(np.ones((2, 3)), 2, (2, 3)), ValueError, "mode must be between 0"),
    (lambda: lt.fold(np.ones((2, 3)), 0, ()), ValueError, "shape must ... got ()"),
    (lambda: lt.fold(np.ones((2, 3)), 0, 6), TypeError, "shape must ... the number 6"),
    (lambda: lt.fold(np.ones((2, 3)), 0, (2.0, 3)), ValueError, "shape must ... 2.0"),
    (lambda: lt.fold(np.ones((2, 3)), 0, (2, 0)), ValueError, "shape must ... (2, 0)"),
    (lambda: lt.fold(np.ones((2, 3)), 0, None), TypeError, "shape must ... NoneType"),
    (lambda: lt.fold(np.ones((4, 8)), 0, (4, 3, 3)), ValueError, "fold expects a matrix of shape"),
    (
        lambda: lt.mode_product(X, np.ones(2), 0),
        ValueError,
        "U must be a matrix of shape (r, n_k), got shape (2,)",
    ),
    (
        lambda: lt.mode_product(X, np.ones((2, 3)), 0),
        ValueError,
        "U has 3 columns, but mode 0 of X ... Did you mean the",
    ),
    (
        lambda: lt.mode_product(X, np.ones((2, 3)), 7),
        ValueError,
        "mode must be between 0 and 2, got 7",
    ),
    (lambda: lt.mode_product(X, np.ones((5, 7, 4)), 1), ValueError, "U ... (5, 7, 4)"),
    (
        lambda: lt.mode_product(X, np.ones((5, 7, 4)), 2, batch_ndim=0),
        ValueError,
        "U ... (5, 7, 4)",
    ),
    (
        lambda: lt.multi_mode_product(X, [None] * 4),
        ValueError,
        "matrices must have one entry for each mode of X ... got 4",
    ),
    (
        lambda: lt.multi_mode_product(X, []),
        ValueError,
        "matrices must have one entry for each mode of X ... got 0",
    ),
    (lambda: lt.multi_mode_product(X, 5), TypeError, "matrices must ... int"),
    (lambda: lt.multi_mode_product(X, None), TypeError, "matrices must ... NoneType"),
    (lambda: lt.multi_mode_product(X, "abc"), TypeError, "matrices[0] must be ... got str"),
    (
        lambda: lt.multi_mode_product(X, [np.ones(2), None, None]),
        ValueError,
        "matrices[0] must be a matrix of shape (r, n_k), got shape (2,)",
    ),
    (
        lambda: lt.multi_mode_product(X, [None, np.ones((2, 2)), None]),
        ValueError,
        "matrices[1] has 2 columns, but mode 1 of X",
    ),
    (
        lambda: lt.multi_mode_product(X, [np.ones((2, 0)), None, None]),
        ValueError,
        "matrices[0] has 0 columns, but mode 0 of X",
    ),
    (
        lambda: lt.inner(X, X[0]),
        ValueError,
        "inner expects two tensors of the same shape, got (2, 3, 4) and (3, 4)",
    ),
    (lambda: lt.inner(X, X, batch_ndim=4), ValueError, "batch_ndim must be between"),
    (
        lambda: lt.inner(np.ones(3), np.ones(4)),
        ValueError,
        "inner expects two tensors of the same shape",
    ),
    (lambda: lt.norm(X, batch_ndim=-1), ValueError, "batch_ndim must be between"),
    (lambda: lt.hosvd(3.0), ValueError, "X ... at least one mode, got a number. Try [number]"),
    (
        lambda: lt.spectra(3.0),
        ValueError,
        "X must be a tensor with at least one mode, got a number",
    ),
    (lambda: lt.spectra(BATCH), ValueError, "X must be a single tensor, got a batch"),
    (lambda: lt.spectra(X).energy((1, 2)), ValueError, "rank must ... 2 entries"),
    (lambda: lt.spectra(X).energy(2), TypeError, "rank must ... the number 2"),
    (lambda: lt.spectra(X).energy((1, 2, -1)), ValueError, "rank[2] = -1 must be"),
    (
        lambda: lt.sthosvd(X, (1, 1, 1), mode_order=(0, 0, 1)),
        ValueError,
        "mode_order must be a permutation of 0 to 2, got (0, 0, 1)",
    ),
    (
        lambda: lt.sthosvd(X, (1, 1, 1), mode_order=(0, 1)),
        ValueError,
        "mode_order must be a permutation of 0 to 2, got (0, 1)",
    ),
    (lambda: lt.sthosvd(X, (1, 1, 1), mode_order=1), TypeError, "mode_order must be a permutation"),
    (
        lambda: lt.sthosvd(X, (1, 1, 1), mode_order=(0.0, 1.0, 2.0)),
        TypeError,
        "mode_order must be a permutation",
    ),
    (
        lambda: lt.sthosvd(X, (1, 1, 1), mode_order=(0, "a", 1)),
        TypeError,
        "mode_order must be a permutation",
    ),
    (
        lambda: lt.hooi(X, (1, 1, 1), max_iterations=0),
        ValueError,
        "max_iterations must be at least 1, got 0",
    ),
    (
        lambda: lt.hooi(X, (1, 1, 1), max_iterations=2.5),
        TypeError,
        "max_iterations must be an integer, got 2.5",
    ),
    (lambda: lt.hooi(X, (1, 1, 1), tol="a"), TypeError, "tol must ... 'a'"),
    (lambda: lt.hooi(X, (1, 1, 1), tol=np.nan), ValueError, "tol must ... nan"),
    (
        lambda: lt.hooi(X, (1, 1, 1), tol=-1.0),
        ValueError,
        "tol must be a finite number, at least 0, got -1",
    ),
    (
        lambda: lt.HOOI((1, 1), max_iterations=0),
        ValueError,
        "max_iterations must be at least 1, got 0",
    ),
    (lambda: lt.quasi_optimality(0), ValueError, "order must be at least 1, got 0"),
    (lambda: BATCH.compress(), ValueError, "compress needs a rank for a batch"),
    (lambda: lt.multilinear_rank(BATCH), ValueError, "X must be a single tensor, got a batch"),
    (lambda: lt.multilinear_rank(X, tol=-1), ValueError, "tol must be a finite number, at"),
    (lambda: lt.attainable_rank(5), TypeError, "rank must ... the number 5"),
    (lambda: lt.attainable_rank((0, 1)), ValueError, "rank[0] = 0 must be at least 1"),
    (lambda: lt.attainable_rank((1.5, 2)), TypeError, "rank must ... 1.5"),
    (lambda: lt.random_tucker((), ()), ValueError, "shape must ... got ()"),
    (lambda: lt.random_tucker(5, (1,)), TypeError, "shape must ... number 5"),
    (
        lambda: lt.random_tucker((3, -4), (1, 1)),
        ValueError,
        "shape must be a tuple of positive integers, got (3, -4)",
    ),
    (
        lambda: lt.random_tucker((3, 4, 5), (1, 1)),
        ValueError,
        "rank must have one entry per mode: got 2 entries ... 3 modes",
    ),
    (
        lambda: lt.random_tucker((3, 4), (1, 1), seed=-1),
        ValueError,
        "seed must not be negative, got -1",
    ),
    (
        lambda: lt.random_tucker((3, 4), (1, 1), seed=1.5),
        TypeError,
        "seed must be an integer ... got 1.5",
    ),
    (
        lambda: lt.random_tucker((3, 4), (1, 1), seed=None),
        TypeError,
        "seed must be an integer ... got None",
    ),
    (
        lambda: lt.random_tucker((3, 4), (1, 1), seed=(1, 2, 3)),
        TypeError,
        "seed must be ... pair (seed, trial), got (1, 2, 3)",
    ),
    (
        lambda: lt.random_tucker((3, 4), (1, 1), dtype=int),
        TypeError,
        "dtype must be float32, float64, complex64 or complex128, got int64",
    ),
    (
        lambda: lt.random_tucker((3, 4), (1, 1), dtype=np.float16),
        TypeError,
        "dtype must be float32, float64, complex64 or complex128, got float16",
    ),
    (
        lambda: lt.random_tucker((3, 4), (1, 1), dtype=np.longdouble),
        TypeError,
        "dtype must be float32, float64, complex64 or complex128, got",
    ),
    (
        lambda: lt.random_tucker((3, 4), (1, 1), dtype="foo"),
        TypeError,
        "dtype must be float32, float64, complex64 or complex128, got 'foo'",
    ),
    (
        lambda: lt.random_tucker((3, 4), (1, 1), trials=0),
        ValueError,
        "trials must be at least 1, got 0",
    ),
    (lambda: lt.random_tucker((3, 4), (1, 1), core_mean="a"), TypeError, "core_mean must ... 'a'"),
    (
        lambda: lt.random_tucker((3, 4), (1, 1), core_mean=np.nan),
        ValueError,
        "core_mean must be a finite number, got nan",
    ),
    (lambda: lt.random_tucker((3, 4), (1, 1), core_mean=1j), TypeError, "core_mean must ... 1j"),
    (
        lambda: lt.TuckerTensor(np.ones((2, 2)), [np.eye(2)]),
        ValueError,
        "factors[0] must have shape (2, n, 2)",
    ),
    (lambda: TUCKER.trial(0), ValueError, "trial(k) needs ... Use the tensor itself"),
    (
        lambda: lt.HOSVD((2, 2, 2))(np.ones((3, 3))),
        ValueError,
        "rank must have one entry per mode:",
    ),
    (
        lambda: lt.metrics.relative_error(np.ones(3), np.zeros(3)),
        ValueError,
        "X_true is zero: the relative error",
    ),
    (
        lambda: lt.metrics.relative_error(np.ones(3), np.ones(4)),
        ValueError,
        "X and X_true must have the same shape",
    ),
    (
        lambda: lt.STHOSVD((1, 1), mode_order=(0, 0)),
        ValueError,
        "mode_order must be a permutation of 0 to 1",
    ),
]

BAD_PARTS = [
    ((np.ones((1, 1)), []), ValueError, "factors must have one matrix ... got 0"),
    (
        (np.ones(1), [np.eye(1)] * 2),
        ValueError,
        "factors must have one matrix ... got 2 for a core of shape (1,)",
    ),
    ((np.ones((1, 1)), 5), TypeError, "factors must be a list with one matrix per mode, got int"),
    ((np.ones((1, 1)), None), TypeError, "factors must ... None"),
    ((np.ones((1, 1)), "ab"), TypeError, "factors[0] must be an array ... str"),
    (
        (np.ones((1, 1)), [np.ones(3), np.ones((4, 1))]),
        ValueError,
        "factors[0] must have shape ... got (3,)",
    ),
    (
        (np.ones((1, 1)), [np.eye(3)[:, :2], np.eye(4)[:, :1]]),
        ValueError,
        "factors[0] must have shape (n, 1), no ... core of shape (1, 1), got (3, 2)",
    ),
    (
        (np.ones((2, 1, 1)), [np.ones((3, 4, 1)), np.ones((2, 4, 1))]),
        ValueError,
        "factors[0] must have shape ... got (3, 4, 1)",
    ),
    (
        (np.full((1, 1), np.nan), [np.eye(3)[:, :1]] * 2),
        ValueError,
        "core has NaN or infinite entries",
    ),
    (
        (np.ones((1, 1)), [np.eye(3)[:, :1], np.full((3, 1), np.inf)]),
        ValueError,
        "factors[1] has NaN or infinite entries",
    ),
]

BAD_INDICES = [
    ([[4, 0, 0]], ValueError, "indices must be 0-based, from 0 to 3 in mode 0"),
    ([[0, -1, 0]], ValueError, "indices must be 0-based ... mode 1; got values from -1"),
    ([[0.0, 1.0, 2.0]], TypeError, "indices must be integers, got dtype float64"),
    ([[True, True, True]], TypeError, "indices must be integers, got dtype bool"),
    ([0, 1, 2], ValueError, "indices must have shape (k, 3) ... got (3,)"),
    ([[0, 1]], ValueError, "indices must have shape (k, 3), one ... got (1, 2)"),
    ([], ValueError, "indices must have shape (k, 3) ... got (0,)"),
]

TUCKER_TENSORS = [
    *(
        (partial(make, *parts), error, text)
        for make in (lt.TuckerTensor, lt.TuckerTensor.from_factors)
        for parts, error, text in BAD_PARTS
    ),
    *((partial(TUCKER.entries, indices), error, text) for indices, error, text in BAD_INDICES),
    (
        lambda: lt.TuckerTensor(np.ones((1, 1)), [np.eye(3)[:, :1], np.ones((4, 1))]),
        ValueError,
        "factors[1] must have orthonormal ... Try TuckerTensor.from_factors",
    ),
    (
        lambda: np.asarray(TUCKER, copy=False),
        ValueError,
        "The elements ... copy=False is not possible",
    ),
    (lambda: BATCH.trial(-1), ValueError, "k must be between 0 and 2, got -1"),
    (lambda: BATCH.trial(3), ValueError, "k must be between 0 and 2, got 3"),
    (lambda: BATCH.trial(1.0), TypeError, "k must be an integer, got 1.0"),
    (
        lambda: BATCH.trial(0).trial(0),
        ValueError,
        "trial(k) needs a batch of tensors, got a single ... (4, 5, 3)",
    ),
    (lambda: TUCKER + TUCKER.full(), TypeError, "expected a TuckerTensor, got ndarray"),
    (lambda: TUCKER - 1, TypeError, "expected a TuckerTensor, got int. Use X.full() to work"),
    (lambda: TUCKER + 5, TypeError, "expected a TuckerTensor, got int. Use X.full() to work"),
    (
        lambda: TUCKER + lt.random_tucker((4, 5, 4), (2, 2, 2)),
        ValueError,
        "expected two tensors of the same shape, got (4, 5, 3) and (4, 5, 4)",
    ),
    (
        lambda: TUCKER + lt.random_tucker((4, 5), (2, 2)),
        ValueError,
        "expected two tensors of the same shape, got (4, 5, 3) and (4, 5)",
    ),
    (
        lambda: TUCKER + BATCH,
        ValueError,
        "expected two tensors of the same shape, got (4, 5, 3) and (3, 4, 5, 3)",
    ),
    (lambda: TUCKER.inner(TUCKER.full()), TypeError, "expected a TuckerTensor, got ndarray"),
    (lambda: TUCKER.inner(None), TypeError, "expected a TuckerTensor, got NoneType"),
    (
        lambda: TUCKER * np.ones(3),
        ValueError,
        "A TuckerTensor can be multiplied by a number ... got shape (3,)",
    ),
    (
        lambda: BATCH * np.ones(4),
        ValueError,
        "A TuckerTensor ... one number per tensor of a batch, shape (3,); got shape (4,)",
    ),
    (lambda: TUCKER * TUCKER, TypeError, "number must be an array of numbers"),
]


def torch_ones():
    return pytest.importorskip("torch").ones((2, 3))


OTHER_KIND = [
    (
        lambda call=call: call(torch_ones()),
        TypeError,
        f"{name} is a NumPy array, but ... holds torch",
    )
    for call, name in (
        (lambda T: lt.mode_product(T, np.ones((2, 2)), 0), "U"),
        (lambda T: lt.multi_mode_product(T, [None, np.ones((2, 3))]), "matrices[1]"),
        (lambda T: lt.inner(T, np.ones((2, 3))), "Y"),
        (lambda T: lt.TuckerTensor(T, [np.eye(2), np.eye(3)]), "factors[0]"),
        (lambda T: lt.hosvd(T) + lt.hosvd(np.ones((2, 3))), "the other tensor"),
    )
]

ROWS = [*ARRAYS, *RANKS, *ENTRIES, *ALGEBRA, *TUCKER_TENSORS, *OTHER_KIND]
