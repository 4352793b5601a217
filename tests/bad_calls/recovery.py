"""recover, complete, solve and iterate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import LinearOperator

import lowtucker as lt
from bad_calls.setting import (
    BATCH,
    HOLES,
    INF,
    NAN,
    RANK,
    SHAPE,
    A,
    M,
    P,
    X,
    bad,
    function,
    nan_row,
    recover,
    y,
)

SINGLE = lt.gaussian(SHAPE, M, seed=1, dtype=np.float32)


def complete(**change):
    return lt.complete(**({"values": HOLES, "rank": (1, 1, 1), "max_epochs": 2} | change))


def solve(**change):
    return lt.solve(**({"problem": P, "rank": RANK, "stop": lt.MaxEpochs(2)} | change))


def iterate(**change):
    return next(lt.iterate(**({"problem": P, "rank": RANK} | change)))


RECOVER = [
    (lambda: recover(A=None), TypeError, "A must ... Give numbers, or a list"),
    (lambda: recover(A="A.npy"), TypeError, "A must ... Try lowtucker.io.load_operator"),
    (lambda: recover(A=np.sum), TypeError, "A must ... Try lowtucker.FunctionOperator"),
    (lambda: recover(A=5), ValueError, "A must ... For one measurement try"),
    (lambda: recover(A=[[1, 2], [3]]), ValueError, "A must be an array of numbers"),
    (lambda: recover(A=np.array([["a"]])), TypeError, "A must ... Try numpy.asarray("),
    (lambda: recover(A=A.matrix), ValueError, "shape is ... Try shape=(30, 30, 10)"),
    (lambda: recover(A=A.matrix, shape=(5, 5)), ValueError, "matrix has ... Check shape, or"),
    (
        lambda: recover(A=A.matrix, shape=SHAPE, order="X"),
        ValueError,
        'order must be "C" (row-major) or "F"',
    ),
    (
        lambda: recover(A=A.matrix, shape=SHAPE, order=np.array([1, 2])),
        TypeError,
        'order must be "C" (row-major) or "F"',
    ),
    (lambda: recover(order="F"), ValueError, "A is a DenseOperator, whose order"),
    (lambda: recover(A=bad(A.matrix), shape=SHAPE), ValueError, "matrix has ... Leave out the"),
    (
        lambda: recover(A=np.ones((0, 36)), y=[], shape=SHAPE),
        ValueError,
        "matrix must ... Remove the empty modes",
    ),
    (
        lambda: recover(A=np.ma.masked_less(A.matrix, 0), shape=SHAPE),
        TypeError,
        "A must ... Fill the masked",
    ),
    (
        lambda: recover(A=A.matrix.astype(np.longdouble), shape=SHAPE),
        TypeError,
        "matrix must ... Try numpy.asarray(",
    ),
    (
        lambda: recover(A=scipy.sparse.csr_array(A.matrix)),
        ValueError,
        "shape is ... Try shape=(30, 30, 10)",
    ),
    (
        lambda: recover(A=scipy.sparse.csr_array(bad(A.matrix)), shape=SHAPE),
        ValueError,
        "matrix has ... Leave out those rows of",
    ),
    (lambda: recover(shape=(1, 2)), ValueError, "shape= ... Leave it out"),
    (lambda: recover(shape=b"x"), TypeError, "shape must ... Try shape=(30, 30, 10)"),
    (lambda: recover(shape={4, 3}), TypeError, "shape must ... Try shape=(30, 30, 10)"),
    (lambda: recover(shape=36), TypeError, "shape must ... For a vector write"),
    (lambda: recover(shape=(4, 0, 3)), ValueError, "shape must ... Try shape=(30, 30, 10)"),
    (lambda: recover(shape=(2**40, 2**40)), ValueError, "shape= ... Leave it out"),
    (
        lambda: recover(A=SINGLE, y=1e60 * y),
        ValueError,
        "y has entries up to ... Create A in double",
    ),
    (
        lambda: recover(A=SINGLE, y=1e-60 * y),
        ValueError,
        "y has entries up to ... Create A in double",
    ),
    (
        lambda: recover(A=SINGLE, weights=np.full(M, 1e-60)),
        ValueError,
        "weights has entries up to ... or rescale weights",
    ),
    (lambda: recover(y=None), TypeError, "y must ... Give numbers, or a list"),
    (lambda: recover(y="y"), TypeError, "y must ... Give numbers, or a list"),
    (lambda: recover(y=y[:5]), ValueError, "y must ... Is it the y of another"),
    (lambda: recover(y=bad(y)), ValueError, "y has ... or give them the weight"),
    (lambda: recover(y=1j * y), ValueError, "y is ... otherwise give y.real"),
    (lambda: recover(y=[[1], [1, 2]]), ValueError, "y must be an array of numbers"),
    (lambda: recover(rank=None, solver="tiht"), ValueError, "rank is needed"),
    (lambda: recover(rank=2), TypeError, "rank must ... Try rank=(2, 2, 2)"),
    (lambda: recover(rank=(2, 2)), ValueError, "rank must have one entry per mode:"),
    (lambda: recover(rank=(2, 9, 2)), ValueError, "rank[1] = 9 must be between 1 and 3, the"),
    (lambda: recover(rank=(0, 2, 2)), ValueError, "rank[0] = 0 must be between 1 and 4, the"),
    (lambda: recover(rank=(2.0, 2, 2)), TypeError, "rank must ... Try rank=(2, 2, 2)"),
    (lambda: recover(rank="best"), ValueError, "rank must be a tuple of integers or"),
    *[
        (lambda rank=rank: recover(rank=rank), TypeError, "rank must be a tuple of integers, got")
        for rank in (b"\1\1\1", bytearray(3), {1, 2, 3}, {1: 1, 2: 1, 3: 1}, iter((1, 1, 1)))
    ],
    (lambda: recover(start=1j * np.ones(SHAPE)), ValueError, "start is complex, but A and y are"),
    (lambda: recover(X_true=1j * np.ones(SHAPE)), ValueError, "X_true is complex, but A and y"),
    (lambda: recover(start=1e308 * np.ones(SHAPE)), ValueError, "start has the norm 2^1026, whose"),
    (lambda: recover(X_true=1e308 * np.ones(SHAPE)), ValueError, "X_true has the norm 2^1026"),
    (lambda: recover(y=1.7e308 * np.ones(M)), ValueError, "A takes a tensor ... in other units"),
    (lambda: recover(noise_std=1e308), ValueError, "noise_std = 1e+308 is as large as y"),
    (
        lambda: recover(callbacks=[lambda progress: np.ones(3)]),
        TypeError,
        "callbacks must return True to stop the run, or None, got ndarray",
    ),
    (lambda: recover(rank=(True, 2, 2)), TypeError, "rank must ... Try rank=(3, 3, 2)"),
    (lambda: recover(solver="newton"), ValueError, "solver must be one of 'auto', 'tiht'"),
    (lambda: recover(solver=5), TypeError, "solver must be one of 'auto', 'tiht'"),
    (lambda: recover(solver="als"), TypeError, 'ALS is ... Try solver="auto", or'),
    (lambda: recover(tol=-1), ValueError, "tol must be a finite number, at"),
    (lambda: recover(tol=NAN), ValueError, "tol must be a finite number, at"),
    (lambda: recover(tol=1.0), ValueError, "tol must ... Try tol=1e-6"),
    (lambda: recover(tol=2), ValueError, "tol must ... Try tol=1e-6"),
    (lambda: recover(tol="small"), TypeError, "tol must ... Try float(...)"),
    (lambda: recover(tol=None), TypeError, "tol must ... Try float(...)"),
    (lambda: recover(tol=np.array([0.001, 0.001])), ValueError, "tol must ... Try tol=1e-6"),
    (lambda: recover(tol=np.array("a")), TypeError, "tol must ... Try float(...)"),
    (lambda: recover(tol=10**400), ValueError, "tol must be a finite number, at"),
    (lambda: recover(tol=True), TypeError, "tol must ... Try float(...)"),
    (lambda: recover(max_epochs=0), ValueError, "max_epochs must be at least 1"),
    (lambda: recover(max_epochs=1.5), TypeError, "max_epochs must ... Try int(...)"),
    (lambda: recover(max_epochs=10**30), ValueError, "max_epochs must be between 1 and"),
    (lambda: recover(max_epochs=None), TypeError, "max_epochs must ... Try int(...)"),
    (lambda: recover(max_seconds=0), ValueError, "max_seconds must be positive"),
    (lambda: recover(max_seconds=NAN), ValueError, "max_seconds must be positive"),
    (lambda: recover(max_seconds="x"), TypeError, "max_seconds must ... Try float(...)"),
    (lambda: recover(noise_std=-1), ValueError, "noise_std must be a finite number, at"),
    (lambda: recover(noise_std=INF), ValueError, "noise_std must be a finite number, at"),
    (
        lambda: recover(noise_std=1000000000.0),
        ValueError,
        "noise_std = ... Is it in the units of y?",
    ),
    (lambda: recover(noise_std=[1.0]), TypeError, "noise_std must ... Try float(...)"),
    (lambda: recover(weights=np.ones(3)), ValueError, "weights must ... Is it the weights of"),
    (lambda: recover(weights=-np.ones(M)), ValueError, "weights must ... To leave out a"),
    (
        lambda: recover(weights=bad(np.ones(M))),
        ValueError,
        "weights has ... or give them the weight",
    ),
    (lambda: recover(weights=1j * np.ones(M)), ValueError, "weights must ... Try abs(weights)"),
    (lambda: recover(weights="x"), TypeError, "weights must ... Give numbers, or a list"),
    (lambda: recover(loss="l1"), ValueError, "loss must be one of squared, huber"),
    (lambda: recover(start=np.zeros((2, 2))), ValueError, "start must have the shape of the"),
    (lambda: recover(start=np.full(SHAPE, NAN)), ValueError, "start has ... Leave it out"),
    (lambda: recover(checkpoint=5), TypeError, 'checkpoint must ... Try "run.ckpt"'),
    (lambda: recover(start="x"), TypeError, "start must ... Give numbers, or a list"),
    (lambda: recover(start=X, rank="auto"), ValueError, "start has a rank of its own: give"),
    (
        lambda: recover(start=lt.random_tucker((4, 3, 2), (1, 1, 1))),
        ValueError,
        "start must have the shape of the",
    ),
    (lambda: recover(X_true=np.zeros(SHAPE)), ValueError, "X_true is zero: the error"),
    (lambda: recover(X_true=np.ones((2, 2))), ValueError, "X_true must have shape (4, 3, 3)"),
    (lambda: recover(X_true=np.full(SHAPE, INF)), ValueError, "X_true has NaN or infinite entries"),
    (lambda: recover(X_true="x"), TypeError, "X_true must ... Give numbers, or a list"),
    (lambda: recover(seed=-1), ValueError, "seed must not be negative"),
    (lambda: recover(seed=1.5), TypeError, "seed must be an integer or a pair"),
    (lambda: recover(seed=2**64), ValueError, "seed must be below 2**64"),
    (lambda: recover(seed=None), TypeError, "seed must be an integer or a pair"),
    (lambda: recover(callbacks=5), TypeError, "callbacks must ... Try callbacks=[lowtucker"),
    (
        lambda: recover(callbacks=[lt.ProgressBar]),
        TypeError,
        "callbacks must ... Try callbacks=[lowtucker",
    ),
    (lambda: recover(callbacks=print), TypeError, "callbacks must ... Try callbacks=[lowtucker"),
    (
        lambda: recover(A=function(forward=nan_row)),
        ValueError,
        "FunctionOperator._forward returned ... lowtucker.check_adjoint(",
    ),
    (
        lambda: recover(A=function(adjoint=lambda v: np.full(SHAPE, NAN))),
        ValueError,
        "FunctionOperator._adjoint returned ... lowtucker.check_adjoint(",
    ),
    (
        lambda: recover(A=function(forward=lambda Z: A.forward(Z)[:5])),
        ValueError,
        "FunctionOperator._forward returned ... Check the operator's m",
    ),
    (
        lambda: recover(A=function(forward=lambda Z: None)),
        TypeError,
        "FunctionOperator._forward returned ... Does it return its",
    ),
    (lambda: recover(A=BATCH, y=y), ValueError, "y must ... Is it the y of another"),
    (
        lambda: recover(A=BATCH, y=np.stack([y, y]), rank="auto"),
        ValueError,
        "A search for the rank takes one problem",
    ),
    (
        lambda: recover(A=BATCH, y=np.stack([y, y]), tol=np.array([0.001] * 3)),
        ValueError,
        "tol must ... Try tol=1e-6",
    ),
    (
        lambda: recover(solver=lt.TIHT(thresholding=3)),
        TypeError,
        "thresholding must ... Try lowtucker.HOSVD",
    ),
    (
        lambda: recover(rank=lt.RankSearch(max=(9, 9))),
        ValueError,
        "RankSearch(max= ... have one entry per mode:",
    ),
    (lambda: recover(A=np.ones(5)), ValueError, "A must ... For one measurement try"),
    (
        lambda: recover(A=lt.scale(function(forward=nan_row), 2.0)),
        ValueError,
        "FunctionOperator._forward returned ... lowtucker.check_adjoint(",
    ),
    (
        lambda: recover(
            A=LinearOperator(
                (M, 36),
                matvec=lambda x: bad(A.matrix @ x, 5),
                rmatvec=lambda v: A.matrix.T @ v,
                dtype=float,
            ),
            shape=SHAPE,
        ),
        ValueError,
        "LinearOperatorAdapter._forward returned ... lowtucker.check_adjoint(",
    ),
    (
        lambda: recover(rank=lt.RankSearch(max=(9, 9, 9))),
        ValueError,
        "RankSearch(max= ... between 1 and 4, the",
    ),
]

COMPLETE = [
    (lambda: complete(values=None), TypeError, "values must ... Give numbers, or a list of them."),
    (
        lambda: complete(values="x.npy"),
        TypeError,
        "values must ... got str. ... lowtucker.io.load_array(path)",
    ),
    (
        lambda: complete(values=Path("x")),
        TypeError,
        "values must ... Path. ... lowtucker.io.load_array(path)",
    ),
    (lambda: complete(values=5), ValueError, "values must be a tensor with entries"),
    (lambda: complete(values=np.full(SHAPE, NAN)), ValueError, "values has nothing but NaN: no"),
    (
        lambda: complete(values=np.full(SHAPE, INF)),
        ValueError,
        "values is ... Mark what is not known",
    ),
    (lambda: complete(rank=(9, 9, 9)), ValueError, "rank[0] = 9 must be between 1 and 4, the"),
    (lambda: complete(held_out=1), ValueError, "held_out is ... Try 0.1"),
    (lambda: complete(held_out=-0.1), ValueError, "held_out must be a finite number, at"),
    (lambda: complete(held_out="x"), TypeError, "held_out must ... Try float(...)"),
    (lambda: complete(indices=[[0, 0, 0]]), ValueError, "shape is needed with indices:"),
    (
        lambda: complete(values=[1.0, 2.0], indices=[[0, 0, 0]], shape=SHAPE),
        ValueError,
        "values must have one entry for each",
    ),
    (
        lambda: complete(values=[1.0], indices=[[0, 0, 9]], shape=SHAPE),
        ValueError,
        "indices[0, 2] = ... Subtract 1 if yours",
    ),
    (
        lambda: complete(values=[1.0], indices=[[0, 0, -1]], shape=SHAPE),
        ValueError,
        "indices[0, 2] = ... Subtract 1 if yours",
    ),
    (
        lambda: complete(values=[1.0], indices=[[0.5, 0, 0]], shape=SHAPE),
        TypeError,
        "indices must be integers",
    ),
    (
        lambda: complete(values=[NAN], indices=[[0, 0, 0]], shape=SHAPE),
        ValueError,
        "values[0] is ... Leave out what is not",
    ),
    (
        lambda: complete(values=[1.0], indices=[[0, 0, 0]]),
        ValueError,
        "shape is needed with indices:",
    ),
    (lambda: complete(shape=(1, 2)), ValueError, "values has ... Leave shape out, or"),
    (lambda: complete(tol=1), ValueError, "tol must ... Try tol=1e-6"),
    (lambda: complete(X_true=np.zeros(SHAPE)), ValueError, "X_true is zero: the error"),
]

SOLVE = [
    (lambda: solve(problem="x"), TypeError, "problem must ... Try lowtucker.Problem(A"),
    (lambda: solve(problem=A), TypeError, "problem must ... Try lowtucker.Problem(A"),
    (lambda: iterate(problem=A), TypeError, "problem must ... Try lowtucker.Problem(A"),
    (lambda: iterate(problem=None), TypeError, "problem must ... Try lowtucker.Problem(A"),
    (lambda: solve(rank=None), ValueError, "rank is needed for"),
    (lambda: solve(rank=(9, 9, 9)), ValueError, "rank[0] = 9 must be between 1 and 4, the"),
    (lambda: solve(stop="x"), TypeError, "stop must ... Rules combine with |"),
    (lambda: solve(start=np.ones((2, 2))), ValueError, "start must have the shape of the"),
    (lambda: solve(X_true=np.ones(2)), ValueError, "X_true must have shape (4, 3, 3)"),
    (lambda: solve(seed="x"), TypeError, "seed must be an integer or a pair"),
    (
        lambda: solve(stop=lt.ErrorBelow(0.001)),
        ValueError,
        "ErrorBelow needs X_true: give it to the call",
    ),
    (lambda: iterate(rank=None), ValueError, "rank is needed for"),
    (lambda: iterate(start=np.ones((2, 2))), ValueError, "start must have the shape of the"),
    (lambda: iterate(seed=-1), ValueError, "seed must not be negative"),
]

RESULT = lt.recover(A, y, RANK)
MANY = recover(A=BATCH, y=BATCH.forward(X))
PICTURES = [
    (lambda: RESULT.plot_entries([0, 0, 0]), ValueError, "indices must have shape (k, 3)"),
    (lambda: RESULT.plot_entries([[0, 0, 9]]), ValueError, "indices must be 0-based, from 0 to 2"),
    (lambda: RESULT.plot_entries([[0.5, 0, 0]]), TypeError, "indices must be integers"),
    (lambda: RESULT.plot_entries(np.empty((0, 3), int)), ValueError, "indices must have at least"),
    (lambda: RESULT.plot_entries([[0, 0, 0]], 95), ValueError, "level must ... Try level=0.95"),
    (
        lambda: RESULT.plot_entries([[0, 0, 0]], method="bootstrap"),
        ValueError,
        "method must be one of auto, model, conformal",
    ),
    (
        lambda: RESULT.plot_entries([[0, 0, 0]], method="conformal"),
        ValueError,
        "There is no calibration ... Try lowtucker.complete(values)",
    ),
    (
        lambda: RESULT.plot_entries([[0, 0, 0]], X_true=np.ones((4, 3))),
        ValueError,
        "X_true must have shape (4, 3, 3)",
    ),
    (
        lambda: RESULT.plot_entries([[0, 0, 0]], X_true="truth"),
        TypeError,
        "X_true must be an array of numbers",
    ),
    *(
        (
            lambda labels=labels: RESULT.plot_entries([[0, 0, 0], [1, 0, 0]], labels=labels),
            ValueError,
            "labels must have one text or number for each of the 2 rows",
        )
        for labels in (["a"], "ab", 5, [[1, 2], [3, 4]])
    ),
    (lambda: RESULT.plot_slice((0, 0)), ValueError, "modes must be one mode or two different"),
    (lambda: RESULT.plot_slice((0, 1, 2)), ValueError, "modes must be one mode or two different"),
    (lambda: RESULT.plot_slice((0, 3)), ValueError, "modes must be between 0 and 2, got 3"),
    (lambda: RESULT.plot_slice((0, 1.5)), TypeError, "modes must be an integer"),
    (lambda: RESULT.plot_slice("01"), TypeError, "modes must be an array of numbers"),
    (lambda: RESULT.plot_slice(at=3), ValueError, "at must be between 0 and 2, got 3"),
    (lambda: RESULT.plot_slice(at=-1), ValueError, "at must be between 0 and 2, got -1"),
    (lambda: RESULT.plot_slice(at=(0, 1)), ValueError, "at must have an index for each of the"),
    (lambda: RESULT.plot_slice(at=0.5), TypeError, "at must be an integer"),
    (lambda: RESULT.plot_slice(method="x"), ValueError, "method must be one of auto, model"),
    (lambda: MANY.plot_slice(), ValueError, "plot_slice draws one ... Try result.trial(k)"),
    (lambda: MANY.plot_entries([[0, 0, 0]]), ValueError, "plot_entries draws one ... Try"),
]

ROWS = [*RECOVER, *COMPLETE, *SOLVE, *PICTURES]
