"""Malformed calls: each is refused before any work by a message that names the argument and helps.

A row is a call, the exception (exactly that type), how the message begins, and a part of what it
advises or expects. What DESIGN.md makes a warning or a status is tested as that, further down.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from click.testing import CliRunner
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import lowtucker as lt
from lowtucker import FileFormatError, theory
from lowtucker.cli import main
from lowtucker.lab.video import load_video, save_gif

PACKAGE = str(Path(lt.__file__).parent)
NAN, INF = float("nan"), float("inf")
SHAPE, RANK, M = (4, 3, 3), (2, 2, 2), 60
A = lt.gaussian(SHAPE, M, seed=1)
SINGLE = lt.gaussian(SHAPE, M, seed=1, dtype=np.float32)
STACK = lt.gaussian(SHAPE, M, seed=1, trials=2)
X = lt.random_tucker(SHAPE, RANK, seed=0)
T = lt.TangentSpace(X)
y = A.forward(X)
P = lt.Problem(A, y)
HOLES = X.full().copy()
HOLES[0, 0, 0] = NAN
lin = aslinearoperator(A.matrix)


def recover(**change):
    return lt.recover(**({"A": A, "y": y, "rank": RANK, "max_epochs": 2} | change))


def complete(**change):
    return lt.complete(**({"values": HOLES, "rank": (1, 1, 1), "max_epochs": 2} | change))


def solve(**change):
    return lt.solve(**({"problem": P, "rank": RANK, "stop": lt.MaxEpochs(2)} | change))


def iterate(**change):
    return next(lt.iterate(**({"problem": P, "rank": RANK} | change)))


def problem(**change):
    return lt.Problem(**({"A": A, "y": y} | change))


def fun(**change):
    parts = {"forward": A.forward, "adjoint": A.adjoint, "shape": SHAPE, "m": M}
    return lt.FunctionOperator(**(parts | change))


def bad(array, row=3):
    array = np.array(array, dtype=float)
    array[row] = NAN
    return array


class BytesPath:
    def __fspath__(self):
        return b"A.npy"


def nan_row(Z):
    return bad(A.forward(Z), 7)


RECOVER = [
    (lambda: recover(A=None), TypeError, "A must", "Give numbers, or a list"),
    (lambda: recover(A="A.npy"), TypeError, "A must", "Try lowtucker.io.load_op"),
    (lambda: recover(A=np.sum), TypeError, "A must", "Try lowtucker.FunctionOp"),
    (lambda: recover(A=5), ValueError, "A must", "For one measurement try"),
    (lambda: recover(A=[[1, 2], [3]]), ValueError, "A must", "an array of numbers"),
    (lambda: recover(A=np.array([["a"]])), TypeError, "A must", "Try numpy.asarray("),
    (lambda: recover(A=A.matrix), ValueError, "shape is", "Try shape=(30, 30, 10)"),
    (lambda: recover(A=A.matrix, shape=(5, 5)), ValueError, "matrix has", "Check shape, or"),
    (
        lambda: recover(A=A.matrix, shape=SHAPE, order="X"),
        ValueError,
        "order must",
        '"C" (row-major) or "F"',
    ),
    (
        lambda: recover(A=A.matrix, shape=SHAPE, order=np.array([1, 2])),
        TypeError,
        "order must",
        '"C" (row-major) or "F"',
    ),
    (lambda: recover(order="F"), ValueError, "A is", "a DenseOperator, whose order"),
    (lambda: recover(A=bad(A.matrix), shape=SHAPE), ValueError, "matrix has", "Leave out the"),
    (
        lambda: recover(A=np.ones((0, 36)), y=[], shape=SHAPE),
        ValueError,
        "matrix must",
        "Remove the empty modes",
    ),
    (
        lambda: recover(A=np.ma.masked_less(A.matrix, 0), shape=SHAPE),
        TypeError,
        "A must",
        "Fill the masked",
    ),
    (
        lambda: recover(A=A.matrix.astype(np.longdouble), shape=SHAPE),
        TypeError,
        "matrix must",
        "Try numpy.asarray(",
    ),
    (
        lambda: recover(A=scipy.sparse.csr_array(A.matrix)),
        ValueError,
        "shape is",
        "Try shape=(30, 30, 10)",
    ),
    (
        lambda: recover(A=scipy.sparse.csr_array(bad(A.matrix)), shape=SHAPE),
        ValueError,
        "matrix has",
        "Leave out those rows of",
    ),
    (lambda: recover(shape=(1, 2)), ValueError, "shape=", "Leave it out"),
    (lambda: recover(shape=b"x"), TypeError, "shape must", "Try shape=(30, 30, 10)"),
    (lambda: recover(shape={4, 3}), TypeError, "shape must", "Try shape=(30, 30, 10)"),
    (lambda: recover(shape=36), TypeError, "shape must", "For a vector write"),
    (lambda: recover(shape=(4, 0, 3)), ValueError, "shape must", "Try shape=(30, 30, 10)"),
    (lambda: recover(shape=(2**40, 2**40)), ValueError, "shape=", "Leave it out"),
    (
        lambda: recover(A=SINGLE, y=1e60 * y),
        ValueError,
        "y has entries up to",
        "Create A in double",
    ),
    (
        lambda: recover(A=SINGLE, y=1e-60 * y),
        ValueError,
        "y has entries up to",
        "Create A in double",
    ),
    (
        lambda: recover(A=SINGLE, weights=np.full(M, 1e-60)),
        ValueError,
        "weights has entries up to",
        "or rescale weights",
    ),
    (lambda: recover(y=None), TypeError, "y must", "Give numbers, or a list"),
    (lambda: recover(y="y"), TypeError, "y must", "Give numbers, or a list"),
    (lambda: recover(y=y[:5]), ValueError, "y must", "Is it the y of another"),
    (lambda: recover(y=bad(y)), ValueError, "y has", "or give them the weight"),
    (lambda: recover(y=1j * y), ValueError, "y is", "otherwise give y.real"),
    (lambda: recover(y=[[1], [1, 2]]), ValueError, "y must", "an array of numbers"),
    (lambda: recover(rank=None), ValueError, "rank is", "needed for"),
    (lambda: recover(rank=2), TypeError, "rank must", "Try rank=(2, 2, 2)"),
    (lambda: recover(rank=(2, 2)), ValueError, "rank must", "have one entry per mode:"),
    (lambda: recover(rank=(2, 9, 2)), ValueError, "rank[1] =", "between 1 and 3, the"),
    (lambda: recover(rank=(0, 2, 2)), ValueError, "rank[0] =", "between 1 and 4, the"),
    (lambda: recover(rank=(2.0, 2, 2)), TypeError, "rank must", "Try rank=(3, 3, 2)"),
    (lambda: recover(rank="best"), ValueError, "rank must", "a tuple of integers or"),
    (lambda: recover(rank=b"x"), ValueError, "rank must", "have one entry per mode:"),
    (lambda: recover(rank=(True, 2, 2)), TypeError, "rank must", "Try rank=(3, 3, 2)"),
    (lambda: recover(solver="newton"), ValueError, "solver must", "one of 'auto', 'tiht'"),
    (lambda: recover(solver=5), TypeError, "solver must", "one of 'auto', 'tiht'"),
    (lambda: recover(solver="als"), TypeError, "ALS is", 'Try solver="auto", or'),
    (lambda: recover(tol=-1), ValueError, "tol must", "a finite number, at"),
    (lambda: recover(tol=NAN), ValueError, "tol must", "a finite number, at"),
    (lambda: recover(tol=1.0), ValueError, "tol must", "Try tol=1e-6"),
    (lambda: recover(tol=2), ValueError, "tol must", "Try tol=1e-6"),
    (lambda: recover(tol="small"), TypeError, "tol must", "Try float(...)"),
    (lambda: recover(tol=None), TypeError, "tol must", "Try float(...)"),
    (lambda: recover(tol=np.array([0.001, 0.001])), ValueError, "tol must", "Try tol=1e-6"),
    (lambda: recover(tol=np.array("a")), TypeError, "tol must", "Try float(...)"),
    (lambda: recover(tol=10**400), ValueError, "tol must", "a finite number, at"),
    (lambda: recover(tol=True), TypeError, "tol must", "Try float(...)"),
    (lambda: recover(max_epochs=0), ValueError, "max_epochs must", "at least 1"),
    (lambda: recover(max_epochs=1.5), TypeError, "max_epochs must", "Try int(...)"),
    (lambda: recover(max_epochs=10**30), ValueError, "max_epochs must", "between 1 and"),
    (lambda: recover(max_epochs=None), TypeError, "max_epochs must", "Try int(...)"),
    (lambda: recover(max_seconds=0), ValueError, "max_seconds must", "positive"),
    (lambda: recover(max_seconds=NAN), ValueError, "max_seconds must", "positive"),
    (lambda: recover(max_seconds="x"), TypeError, "max_seconds must", "Try float(...)"),
    (lambda: recover(noise_std=-1), ValueError, "noise_std must", "a finite number, at"),
    (lambda: recover(noise_std=INF), ValueError, "noise_std must", "a finite number, at"),
    (
        lambda: recover(noise_std=1000000000.0),
        ValueError,
        "noise_std =",
        "Is it in the units of y?",
    ),
    (lambda: recover(noise_std=[1.0]), TypeError, "noise_std must", "Try float(...)"),
    (lambda: recover(weights=np.ones(3)), ValueError, "weights must", "Is it the weights of"),
    (lambda: recover(weights=-np.ones(M)), ValueError, "weights must", "To leave out a"),
    (
        lambda: recover(weights=bad(np.ones(M))),
        ValueError,
        "weights has",
        "or give them the weight",
    ),
    (lambda: recover(weights=1j * np.ones(M)), ValueError, "weights must", "Try abs(weights)"),
    (lambda: recover(weights="x"), TypeError, "weights must", "Give numbers, or a list"),
    (lambda: recover(loss="l1"), ValueError, "loss must", "one of squared, huber"),
    (lambda: recover(start=np.zeros((2, 2))), ValueError, "start must", "have the shape of the"),
    (lambda: recover(start=np.full(SHAPE, NAN)), ValueError, "start has", "Leave it out"),
    (lambda: recover(checkpoint=5), TypeError, "checkpoint must", 'Try "run.ckpt"'),
    (lambda: recover(start="x"), TypeError, "start must", "Give numbers, or a list"),
    (lambda: recover(start=X, rank="auto"), ValueError, "start has", "a rank of its own: give"),
    (
        lambda: recover(start=lt.random_tucker((4, 3, 2), (1, 1, 1))),
        ValueError,
        "start must",
        "have the shape of the",
    ),
    (lambda: recover(X_true=np.zeros(SHAPE)), ValueError, "X_true is", "zero: the error"),
    (lambda: recover(X_true=np.ones((2, 2))), ValueError, "X_true must", "have shape (4, 3, 3)"),
    (
        lambda: recover(X_true=np.full(SHAPE, INF)),
        ValueError,
        "X_true has",
        "NaN or infinite entries",
    ),
    (lambda: recover(X_true="x"), TypeError, "X_true must", "Give numbers, or a list"),
    (lambda: recover(seed=-1), ValueError, "seed must", "not be negative"),
    (lambda: recover(seed=1.5), TypeError, "seed must", "an integer or a pair"),
    (lambda: recover(seed=2**64), ValueError, "seed must", "below 2**64"),
    (lambda: recover(seed=None), TypeError, "seed must", "an integer or a pair"),
    (lambda: recover(callbacks=5), TypeError, "callbacks must", "Try callbacks=[lowtucker"),
    (
        lambda: recover(callbacks=[lt.ProgressBar]),
        TypeError,
        "callbacks must",
        "Try callbacks=[lowtucker",
    ),
    (lambda: recover(callbacks=print), TypeError, "callbacks must", "Try callbacks=[lowtucker"),
    (
        lambda: recover(A=fun(forward=nan_row)),
        ValueError,
        "FunctionOperator._forward returned",
        "lowtucker.check_adjoint(",
    ),
    (
        lambda: recover(A=fun(adjoint=lambda v: np.full(SHAPE, NAN))),
        ValueError,
        "FunctionOperator._adjoint returned",
        "lowtucker.check_adjoint(",
    ),
    (
        lambda: recover(A=fun(forward=lambda Z: A.forward(Z)[:5])),
        ValueError,
        "FunctionOperator._forward returned",
        "Check the operator's m",
    ),
    (
        lambda: recover(A=fun(forward=lambda Z: None)),
        TypeError,
        "FunctionOperator._forward returned",
        "Does it return its",
    ),
    (lambda: recover(A=STACK, y=y), ValueError, "y must", "Is it the y of another"),
    (
        lambda: recover(A=STACK, y=np.stack([y, y]), rank="auto"),
        ValueError,
        "rank=",
        '"auto" takes one problem',
    ),
    (
        lambda: recover(A=STACK, y=np.stack([y, y]), tol=np.array([0.001] * 3)),
        ValueError,
        "tol must",
        "Try tol=1e-6",
    ),
    (
        lambda: recover(A=STACK, y=np.stack([y, y]), solver="rgn"),
        ValueError,
        "RGN takes",
        "Solve them one by one",
    ),
]

COMPLETE = [
    (lambda: complete(values=None), TypeError, "values must", "Give numbers, or a list"),
    (lambda: complete(values=5), ValueError, "values must", "a tensor with entries"),
    (lambda: complete(values=np.full(SHAPE, NAN)), ValueError, "values has", "nothing but NaN: no"),
    (
        lambda: complete(values=np.full(SHAPE, INF)),
        ValueError,
        "values is",
        "Mark what is not known",
    ),
    (lambda: complete(rank=None), ValueError, "rank is", "needed for"),
    (lambda: complete(rank=(9, 9, 9)), ValueError, "rank[0] =", "between 1 and 4, the"),
    (lambda: complete(held_out=1), ValueError, "held_out is", "Try 0.1"),
    (lambda: complete(held_out=-0.1), ValueError, "held_out must", "a finite number, at"),
    (lambda: complete(held_out="x"), TypeError, "held_out must", "Try float(...)"),
    (lambda: complete(indices=[[0, 0, 0]]), ValueError, "shape is", "needed with indices:"),
    (
        lambda: complete(values=[1.0, 2.0], indices=[[0, 0, 0]], shape=SHAPE),
        ValueError,
        "values must",
        "have one entry for each",
    ),
    (
        lambda: complete(values=[1.0], indices=[[0, 0, 9]], shape=SHAPE),
        ValueError,
        "indices[0, 2] =",
        "Subtract 1 if yours",
    ),
    (
        lambda: complete(values=[1.0], indices=[[0, 0, -1]], shape=SHAPE),
        ValueError,
        "indices[0, 2] =",
        "Subtract 1 if yours",
    ),
    (
        lambda: complete(values=[1.0], indices=[[0.5, 0, 0]], shape=SHAPE),
        TypeError,
        "indices must",
        "integers",
    ),
    (
        lambda: complete(values=[NAN], indices=[[0, 0, 0]], shape=SHAPE),
        ValueError,
        "values[0] is",
        "Leave out what is not",
    ),
    (
        lambda: complete(values=[1.0], indices=[[0, 0, 0]]),
        ValueError,
        "shape is",
        "needed with indices:",
    ),
    (lambda: complete(shape=(1, 2)), ValueError, "values has", "Leave shape out, or"),
    (lambda: complete(tol=1), ValueError, "tol must", "Try tol=1e-6"),
    (lambda: complete(X_true=np.zeros(SHAPE)), ValueError, "X_true is", "zero: the error"),
]

SOLVE = [
    (lambda: solve(problem="x"), TypeError, "problem must", "Try lowtucker.Problem(A"),
    (lambda: solve(problem=A), TypeError, "problem must", "Try lowtucker.Problem(A"),
    (lambda: iterate(problem=A), TypeError, "problem must", "Try lowtucker.Problem(A"),
    (lambda: iterate(problem=None), TypeError, "problem must", "Try lowtucker.Problem(A"),
    (lambda: solve(rank=None), ValueError, "rank is", "needed for"),
    (lambda: solve(rank=(9, 9, 9)), ValueError, "rank[0] =", "between 1 and 4, the"),
    (lambda: solve(stop="x"), TypeError, "stop must", "Rules combine with |"),
    (lambda: solve(start=np.ones((2, 2))), ValueError, "start must", "have the shape of the"),
    (lambda: solve(X_true=np.ones(2)), ValueError, "X_true must", "have shape (4, 3, 3)"),
    (lambda: solve(seed="x"), TypeError, "seed must", "an integer or a pair"),
    (
        lambda: solve(stop=lt.ErrorBelow(0.001)),
        ValueError,
        "ErrorBelow needs X_true:",
        "give it to the call",
    ),
    (lambda: iterate(rank=None), ValueError, "rank is", "needed for"),
    (lambda: iterate(start=np.ones((2, 2))), ValueError, "start must", "have the shape of the"),
    (lambda: iterate(seed=-1), ValueError, "seed must", "not be negative"),
    (lambda: problem(A=A.matrix), TypeError, "A must", "Try lowtucker.as_operato"),
    (lambda: problem(y=y[:3]), ValueError, "y must", "Is it the y of another"),
    (lambda: problem(weights=-np.ones(M)), ValueError, "weights must", "To leave out a"),
    (lambda: problem(A=STACK), ValueError, "y must", "Is it the y of another"),
    (lambda: P.block([]), ValueError, "rows selects none of the", "Choose at least one"),
    (lambda: P.block([99]), ValueError, "rows must", "from 0 to 59"),
    (lambda: P.block(slice(0, 0)), ValueError, "rows selects none of the", "Choose at least one"),
    (lambda: P.block(slice(None, None, 0)), ValueError, "rows must", "a slice of integers"),
    (
        lambda: P.residual(np.ones((2, 2))),
        ValueError,
        "DenseOperator.forward expects",
        "Did you vectorise the",
    ),
    (lambda: P.gradient("x"), TypeError, "X must", "Give numbers, or a list"),
]

OPERATORS = [
    (
        lambda: A.forward(np.ones((2, 2))),
        ValueError,
        "DenseOperator.forward expects",
        "Did you vectorise the",
    ),
    (lambda: A.forward(None), TypeError, "X must", "Give numbers, or a list"),
    (
        lambda: A.forward(np.ones(36)),
        ValueError,
        "DenseOperator.forward expects",
        "Did you vectorise the",
    ),
    (
        lambda: A.adjoint(np.ones(3)),
        ValueError,
        "DenseOperator.adjoint expects",
        "Did you restrict the",
    ),
    (lambda: A.restrict([]), ValueError, "rows selects none of the", "Choose at least one"),
    (lambda: A.restrict([-1]), ValueError, "rows must", "from 0 to 59"),
    (lambda: A.tangent(X), TypeError, "T must", "Try lowtucker.TangentSpa"),
    (
        lambda: STACK.tangent(T),
        ValueError,
        "DenseOperator.tangent takes",
        "Make a tangent design for each",
    ),
    (
        lambda: A.tangent(lt.TangentSpace(lt.random_tucker((3, 3), (1, 1)))),
        ValueError,
        "DenseOperator.tangent expects",
        "Did you vectorise the",
    ),
    (
        lambda: A.spectral_start(y[:3], RANK),
        ValueError,
        "DenseOperator.spectral_start expects",
        "Did you restrict the",
    ),
    (lambda: A.spectral_start(y, (9, 9, 9)), ValueError, "rank[0] =", "between 1 and 4, the"),
    (
        lambda: A.misfit(X, y[:3]),
        ValueError,
        "DenseOperator.misfit expects",
        "Did you restrict the",
    ),
    (lambda: A.misfit(X, y, np.ones(3)), ValueError, "weights must", "Give one weight per"),
    (lambda: lt.gaussian(b"x", 5), TypeError, "shape must", "Try shape=(30, 30, 10)"),
    (lambda: lt.gaussian((2**40, 2**40), 5), ValueError, "shape must", "sizes of the modes?"),
    (
        lambda: lt.seeded_gaussian((2**40, 2**40), 5),
        ValueError,
        "shape must",
        "sizes of the modes?",
    ),
    (lambda: lt.gaussian((), 5), ValueError, "shape must", "Try shape=(30, 30, 10)"),
    (lambda: lt.gaussian((3, -1), 5), ValueError, "shape must", "Try shape=(30, 30, 10)"),
    (lambda: lt.gaussian(SHAPE, 0), ValueError, "m must", "at least 1"),
    (lambda: lt.gaussian(SHAPE, 2.5), TypeError, "m must", "Try int(...)"),
    (lambda: lt.gaussian(SHAPE, 10**30), ValueError, "m must", "between 1 and"),
    (lambda: lt.gaussian(SHAPE, 10**15), ValueError, "m =", "Try lowtucker.seeded_gau"),
    (lambda: lt.gaussian(SHAPE, 5, seed="x"), TypeError, "seed must", "an integer or a pair"),
    (
        lambda: lt.gaussian(SHAPE, 5, normalize="rows"),
        ValueError,
        "normalize must",
        'None, "unit" or',
    ),
    (
        lambda: lt.gaussian(SHAPE, 5, normalize=np.array([1, 2])),
        TypeError,
        "normalize must",
        'None, "unit" or',
    ),
    (lambda: lt.gaussian(SHAPE, 5, dtype=int), TypeError, "dtype must", "float32, float64"),
    (lambda: lt.gaussian(SHAPE, 5, dtype="x"), TypeError, "dtype must", "float32, float64"),
    (lambda: lt.gaussian(SHAPE, 5, trials=0), ValueError, "trials must", "at least 1"),
    (lambda: lt.gaussian(SHAPE, 5, trials="x"), TypeError, "trials must", "Try int(...)"),
    (lambda: lt.seeded_gaussian(SHAPE, 10**30), ValueError, "m must", "between 1 and"),
    (
        lambda: lt.seeded_gaussian(SHAPE, 5, dtype=complex),
        TypeError,
        "dtype must",
        "float32 or float64",
    ),
    (lambda: lt.DenseOperator(np.ones(3)), ValueError, "matrix must", "have one row per"),
    (
        lambda: lt.DenseOperator(np.ones((3, 36)), (5, 5)),
        ValueError,
        "matrix has",
        "Check shape, or",
    ),
    (
        lambda: lt.DenseOperator(np.ones((3, 36)), SHAPE, order=None),
        ValueError,
        "order must",
        '"C" (row-major) or "F"',
    ),
    (
        lambda: lt.DenseOperator(bad(np.ones((5, 36))), SHAPE),
        ValueError,
        "matrix has",
        "Leave out the",
    ),
    (
        lambda: lt.SparseOperator(np.ones((3, 36)), SHAPE),
        TypeError,
        "matrix must",
        "Try lowtucker.as_operato",
    ),
    (
        lambda: lt.SparseOperator(scipy.sparse.eye_array(5), SHAPE),
        ValueError,
        "A has",
        "Check shape, or",
    ),
    (
        lambda: lt.LinearOperatorAdapter(5, SHAPE),
        TypeError,
        "operator must",
        "Try lowtucker.FunctionOp",
    ),
    (lambda: lt.LinearOperatorAdapter(lin, (5, 5)), ValueError, "A has", "Check shape, or"),
    (lambda: lt.as_operator(lin), ValueError, "shape is", "Try shape=(30, 30, 10)"),
    (lambda: lt.to_scipy(STACK), ValueError, "A must", "Convert each operator"),
    (lambda: fun(forward=5), TypeError, "forward must", "For an array try"),
    (lambda: fun(m=0), ValueError, "m must", "at least 1"),
    (lambda: fun(m=10**30), ValueError, "m must", "between 1 and"),
    (lambda: fun(prototype=[1, 2]), TypeError, "prototype must", "For NumPy leave it out"),
    (
        lambda: fun(forward=nan_row).forward(X),
        ValueError,
        "FunctionOperator._forward returned",
        "lowtucker.check_adjoint(",
    ),
    (
        lambda: fun(adjoint=lambda v: np.full(SHAPE, INF)).adjoint(y),
        ValueError,
        "FunctionOperator._adjoint returned",
        "lowtucker.check_adjoint(",
    ),
    (lambda: lt.rank_one(np.ones((3, 3))), TypeError, "factors must", "For one matrix write"),
    (
        lambda: lt.rank_one([np.ones((3, 2)), np.ones((4, 2))]),
        ValueError,
        "factors[1] must",
        "Transpose it?",
    ),
    (
        lambda: lt.rank_one([bad(np.ones((5, 2)))]),
        ValueError,
        "factors[0] has",
        "Leave out those rows",
    ),
    (lambda: lt.rank_one([np.ones(3)]), ValueError, "factors[0] must", "Reshape it"),
    (lambda: lt.entries(SHAPE, [[0, 0]]), ValueError, "indices must", "Try np.argwhere(mask)"),
    (
        lambda: lt.entries(SHAPE, [[0, 0, 9]]),
        ValueError,
        "indices[0, 2] =",
        "Subtract 1 if yours",
    ),
    (lambda: lt.entries(SHAPE, [[0, 0, 0.5]]), TypeError, "indices must", "integers"),
    (lambda: lt.entries(SHAPE, "x"), ValueError, "indices must", "Try np.argwhere(mask)"),
    (
        lambda: lt.kronecker([bad(np.ones((5, 2)))]),
        ValueError,
        "matrices[0] has",
        "Leave out those rows",
    ),
    (
        lambda: lt.kronecker([np.eye(4), np.eye(3)], final=np.ones((2, 5))),
        ValueError,
        "final must",
        "Transpose it?",
    ),
    (lambda: lt.subsampled_transform(SHAPE, 5, "dst"), ValueError, "kind must", '"dct", "fft" or'),
    (lambda: lt.subsampled_transform(SHAPE, 99), ValueError, "m must", "at most 36, the number"),
    (lambda: lt.subsampled_transform(SHAPE, 0), ValueError, "m must", "at least 1"),
    (
        lambda: lt.subsampled_transform(SHAPE, 5, "dct", signs="no"),
        TypeError,
        "signs must",
        "True or False",
    ),
    (lambda: lt.stack([]), TypeError, "operators must", "a list of at least one"),
    (lambda: lt.stack([A, 5]), TypeError, "operators[1] must", "Try lowtucker.as_operato"),
    (
        lambda: lt.stack([A, lt.gaussian((2, 2), 3)]),
        ValueError,
        "operators must",
        "measure tensors of one",
    ),
    (lambda: lt.scale(A, 0), ValueError, "factor is", "To leave out"),
    (lambda: lt.scale(A, NAN), ValueError, "factor has", "NaN or infinite"),
    (lambda: lt.scale(5, 2.0), TypeError, "A must", "Try lowtucker.as_operato"),
    (
        lambda: lt.compose(np.ones((3, 5)), A),
        ValueError,
        "maps[0] (ndarray) takes",
        "The last map is applied",
    ),
    (lambda: lt.check_adjoint(5), TypeError, "A must", "Try lowtucker.as_operato"),
    (lambda: lt.check_adjoint(A, rtol=-1), ValueError, "rtol must", "a finite number, at"),
    (lambda: lt.stored(None), TypeError, "source must", "For a file try"),
    (lambda: lt.stored(np.ones((3, 36))), ValueError, "shape is", "Try shape=(30, 30, 10)"),
    (lambda: lt.stored("none.npy"), FileNotFoundError, "none.npy does not", "check the path"),
    (lambda: lt.stored("A.npy"), ValueError, "A.npy:", "Try shape=(30, 30, 10)"),
    (lambda: lt.stored("A.npy", (5, 5)), ValueError, "A.npy:", "Check shape, or transpose"),
    (lambda: lt.stored("s.csv"), FileFormatError, "s.csv has", "Try lowtucker.io.load_op"),
    (lambda: lt.stored("A.npy", SHAPE, order="X"), ValueError, "A.npy:", '"C" (row-major) or "F"'),
]

SOLVERS = [
    (lambda: lt.TIHT(step=0), ValueError, "step must", "positive"),
    (lambda: lt.TIHT(step="fast"), ValueError, "step must", "a positive number or"),
    (lambda: lt.StoTIHT(block_size=0), ValueError, "block_size must", "at least 1"),
    (lambda: lt.StoTIHT(block_size=2.5), TypeError, "block_size must", "Try int(...)"),
    (
        lambda: recover(solver=lt.StoTIHT(block_size=10**6)),
        ValueError,
        "block_size =",
        "between 1 and the",
    ),
    (lambda: lt.StoTIHT(block_size=20, p=(0.5, 0.6)), ValueError, "p must", "Try p / p.sum()"),
    (
        lambda: recover(solver=lt.StoTIHT(block_size=30, p=(0.5, 0.25, 0.25))),
        ValueError,
        "p must",
        "have one probability",
    ),
    (lambda: lt.StoTIHT(sampler=3), TypeError, "sampler must", "Try lowtucker.Partition("),
    (
        lambda: lt.StoTIHT(sampler=lt.Shuffled(10), block_size=4),
        ValueError,
        "Give block_size and p to",
        "the sampler, not beside",
    ),
    (
        lambda: recover(solver=lt.TIHT(thresholding=lt.HOSVD((1, 1, 1)))),
        ValueError,
        "rank =",
        "Leave one of them out",
    ),
    (lambda: lt.RSGD(block_size=0), ValueError, "block_size must", "at least 1"),
    (lambda: lt.RGN(damping=0), ValueError, "damping must", "positive"),
    (lambda: lt.RGN(starts=0), ValueError, "starts must", "at least 1"),
    (lambda: lt.RGN(iht_steps=-1), ValueError, "iht_steps must", "at least 0"),
    (lambda: lt.Partition(0), ValueError, "block_size must", "at least 1"),
    (lambda: lt.Partition(20, p="rows"), ValueError, "p must", 'None (uniform), "norms"'),
    (lambda: lt.Partition(20, p=(0.5, -0.5)), ValueError, "p must", "Try p=None (uniform)"),
    (lambda: lt.Partition(20, p=[[1.0]]), ValueError, "p must", "Try p=None (uniform)"),
    (
        lambda: lt.Partition(20, p="norms").bind(
            lt.Problem(lt.DenseOperator(np.zeros((M, 36)), SHAPE), y)
        ),
        ValueError,
        "p=",
        "Remove the zero",
    ),
    (lambda: lt.Partition(99).bind(P), ValueError, "block_size =", "between 1 and the"),
    (lambda: lt.Shuffled(5).bind(A), TypeError, "problem must", "Try lowtucker.Problem(A"),
    (lambda: lt.RandomRows(5).draw(0), ValueError, "RandomRows does not", "know its problem yet:"),
    (lambda: lt.RandomRows(5).bind(P).draw(-1), ValueError, "t must", "between 0 and"),
    (
        lambda: lt.Shuffled(5).bind(P).draw(0, seed="x"),
        TypeError,
        "seed must",
        "an integer or a pair",
    ),
    (
        lambda: lt.Shuffled(5).bind(P).draw(0, trials=b"x"),
        TypeError,
        "trials must",
        "Try trials=range(2)",
    ),
    (
        lambda: lt.Shuffled(5).bind(P).draw(0, trials=()),
        ValueError,
        "trials must",
        "Try trials=range(2)",
    ),
    (
        lambda: lt.Partition(5).bind(P).draw(0, trials=5),
        TypeError,
        "trials must",
        "Try trials=range(2)",
    ),
    (
        lambda: recover(rank=lt.RankSearch(max=(9, 9, 9))),
        ValueError,
        "RankSearch(max=",
        "between 1 and 4, the",
    ),
]

RULES = [
    (lambda: lt.ResidualBelow(-1), ValueError, "tol must", "a finite number, at"),
    (lambda: lt.ResidualBelow(1), ValueError, "tol must", "Try tol=1e-6"),
    (lambda: lt.ResidualBelow(np.array([0.1, 3.0])), ValueError, "tol must", "Try tol=1e-6"),
    (lambda: lt.ResidualBelow(np.ones((2, 2)) / 2), TypeError, "tol must", "Try float(...)"),
    (lambda: lt.ResidualBelow(np.array("a")), TypeError, "tol must", "Try float(...)"),
    (lambda: lt.ResidualBelow([0.001]), TypeError, "tol must", "Try float(...)"),
    (
        lambda: lt.ResidualBelow(0.001, status="x"),
        TypeError,
        "status must",
        "Try lowtucker.Status.CON",
    ),
    (lambda: lt.ErrorBelow(-1), ValueError, "tol must", "a finite number, at"),
    (
        lambda: lt.ErrorBelow(0.001, status=None),
        TypeError,
        "status must",
        "Try lowtucker.Status.CON",
    ),
    (lambda: lt.Stalled(window=0), ValueError, "window must", "at least 1"),
    (lambda: lt.Stalled(fall=2), ValueError, "fall must", "Try fall=0.01"),
    (lambda: lt.Stalled(status="x"), TypeError, "status must", "Try lowtucker.Status.CON"),
    (lambda: lt.MaxEpochs(0), ValueError, "max_epochs must", "at least 1"),
    (lambda: lt.MaxEpochs(2, status=[1, 2]), TypeError, "status must", "Try lowtucker.Status.CON"),
    (lambda: lt.MaxSeconds(0), ValueError, "max_seconds must", "positive"),
    (lambda: lt.MaxSeconds(1, status=5), TypeError, "status must", "Try lowtucker.Status.CON"),
    (lambda: lt.MaxEpochs(2) | "x", TypeError, "stop must", "Try lowtucker.ResidualBe"),
    (lambda: lt.MaxEpochs(2) & None, TypeError, "stop must", "Try lowtucker.ResidualBe"),
    (
        lambda: lt.MaxEpochs(2) or lt.MaxEpochs(3),
        TypeError,
        "Stopping rules combine",
        "with | and &",
    ),
]

TENSORS = [
    (
        lambda: lt.TuckerTensor(np.ones((2, 2)), [np.eye(2)]),
        ValueError,
        "factors[0] must",
        "have shape (2, n, 2)",
    ),
    (
        lambda: lt.TuckerTensor(np.ones((2, 2)), [np.ones((3, 2)), np.eye(3)[:, :2]]),
        ValueError,
        "factors[0] must",
        "Try TuckerTensor.from_fa",
    ),
    (
        lambda: lt.TuckerTensor(np.ones((2, 2)), 5),
        TypeError,
        "factors must",
        "a list with one matrix",
    ),
    (
        lambda: lt.TuckerTensor(np.full((1, 1), NAN), [np.eye(2)[:, :1]] * 2),
        ValueError,
        "core has",
        "NaN or infinite entries",
    ),
    (
        lambda: lt.TuckerTensor.from_factors(np.ones((2, 2)), [np.ones((3, 1)), np.ones((3, 2))]),
        ValueError,
        "factors[0] must",
        "have shape (n, 2), no",
    ),
    (lambda: X.entries([[0, 0, 9]]), ValueError, "indices must", "0-based, from 0 to 2 in"),
    (lambda: X.entries([[0, 0]]), ValueError, "indices must", "have shape (k, 3), one"),
    (lambda: X + 5, TypeError, "expected a TuckerTensor,", "Use X.full() to work"),
    (
        lambda: X + lt.random_tucker((2, 2), (1, 1)),
        ValueError,
        "expected two tensors",
        "of the same shape",
    ),
    (lambda: X.trial(0), ValueError, "trial(k) needs", "Use the tensor itself"),
    (
        lambda: lt.random_tucker(SHAPE, RANK, core_mean=NAN),
        ValueError,
        "core_mean must",
        "a finite number",
    ),
    (lambda: lt.random_tucker(SHAPE, RANK, trials=0), ValueError, "trials must", "at least 1"),
    (lambda: lt.hosvd(np.full(SHAPE, NAN), RANK), ValueError, "X has", "NaN or infinite"),
    (lambda: lt.hosvd(np.ones(SHAPE), (9, 9, 9)), ValueError, "rank[0] =", "between 1 and 4, the"),
    (lambda: lt.hosvd(5.0, (1,)), ValueError, "X must", "Try [number]"),
    (lambda: lt.sthosvd(np.full(SHAPE, INF), RANK), ValueError, "X has", "NaN or infinite"),
    (
        lambda: lt.hooi(np.ones(SHAPE), RANK, max_iterations=0),
        ValueError,
        "max_iterations must",
        "at least 1",
    ),
    (lambda: lt.hooi(np.ones(SHAPE), RANK, tol=-1), ValueError, "tol must", "a finite number, at"),
    (lambda: lt.HOSVD(None), TypeError, "rank must", "Try rank=(3, 3, 2)"),
    (lambda: lt.HOSVD(RANK)(np.ones((3, 3))), ValueError, "rank must", "have one entry per mode:"),
    (lambda: lt.unfold(np.ones(SHAPE), 3), ValueError, "mode must", "between 0 and 2"),
    (lambda: lt.fold(np.ones((4, 8)), 0, SHAPE), ValueError, "fold expects", "a matrix of shape"),
    (
        lambda: lt.mode_product(np.ones(SHAPE), np.ones((2, 9)), 0),
        ValueError,
        "U has",
        "Did you mean the",
    ),
    (
        lambda: lt.inner(np.ones(3), np.ones(4)),
        ValueError,
        "inner expects",
        "two tensors of the same shape",
    ),
    (lambda: lt.spectra(np.full(SHAPE, NAN)), ValueError, "X has", "NaN or infinite"),
    (
        lambda: lt.multilinear_rank(np.ones(SHAPE), tol=-1),
        ValueError,
        "tol must",
        "a finite number, at",
    ),
    (lambda: lt.attainable_rank((0, 1)), ValueError, "rank[0] =", "at least 1"),
    (lambda: lt.quasi_optimality(0), ValueError, "order must", "at least 1"),
    (
        lambda: lt.metrics.relative_error(np.ones(3), np.zeros(3)),
        ValueError,
        "X_true is",
        "zero: the relative error",
    ),
    (
        lambda: lt.metrics.relative_error(np.ones(3), np.ones(4)),
        ValueError,
        "X and X_true must",
        "have the same shape",
    ),
]

THEORY = [
    (lambda: theory.trip(5, RANK), ValueError, "A must", "For one measurement try"),
    (lambda: theory.trip(A, RANK, starts=0), ValueError, "starts must", "at least 1"),
    (lambda: theory.trip(A, RANK, samples=-1), ValueError, "samples must", "at least 1"),
    (lambda: theory.trip(A, RANK, blocks=0), ValueError, "blocks must", "between 1 and 60"),
    (lambda: theory.trip(STACK, RANK), ValueError, "A must", "Try A.select"),
    (lambda: theory.contraction(-1, 0.5), ValueError, "delta must", "a finite number, at"),
    (lambda: theory.contraction(0.1, 0), ValueError, "step must", "positive"),
    (lambda: theory.contraction(0.1, "x"), TypeError, "step must", "Try float(...)"),
    (lambda: theory.contraction(0.1, 0.5, eta=0.5), ValueError, "eta must", "a finite number, at"),
    (lambda: theory.contraction(0.1, 0.5, n_blocks=0), ValueError, "n_blocks must", "at least 1"),
    (
        lambda: theory.contraction(0.1, 0.5, p=(0.5, 0.5), n_blocks=1),
        ValueError,
        "p must",
        "1 numbers, one for each",
    ),
    (
        lambda: theory.contraction(0.1, 0.5, version="new"),
        ValueError,
        "version must",
        '"paper" or "repaired"',
    ),
    (
        lambda: theory.contraction(0.1, 0.5).error_bound(-1, 1.0),
        ValueError,
        "t must",
        "a number of iterations",
    ),
    (
        lambda: theory.contraction(0.1, 0.5).error_bound(1, NAN),
        ValueError,
        "error must",
        "a finite number, at",
    ),
    (lambda: theory.best_step("x"), TypeError, "delta must", "Try float(...)"),
    (lambda: theory.best_step(2.0), ValueError, "delta must", "Scale A first: trip(A"),
    (lambda: theory.eta(5), TypeError, "thresholding must", "Try lowtucker.HOSVD((3"),
    (
        lambda: theory.eta(lt.HOSVD(RANK), np.full(SHAPE, NAN)),
        ValueError,
        "Z has",
        "NaN or infinite",
    ),
    (
        lambda: theory.eta(lt.HOSVD(RANK), np.ones((2, 2))),
        ValueError,
        "rank must",
        "have one entry per mode:",
    ),
    (lambda: theory.examine(A, (9, 9, 9)), ValueError, "rank[0] =", "between 1 and 4, the"),
    (lambda: theory.examine(A, RANK, block_size=0), ValueError, "blocks must", "between 1 and 60"),
    (lambda: theory.compare(5), TypeError, "result must", "a Result"),
]

FILES = [
    (lambda: lt.io.load_array(BytesPath()), TypeError, "path must", "a path such as"),
    (lambda: lt.io.load_array(None), TypeError, "path must", "a path such as"),
    (lambda: lt.io.load_array(""), ValueError, "path must", "a path such as"),
    (
        lambda: lt.io.load_array("none.npy"),
        FileNotFoundError,
        "none.npy does not",
        "check the path",
    ),
    (lambda: lt.io.load_array("."), FileFormatError, ". is a directory", "check the path"),
    (lambda: lt.io.load_array("s.csv"), FileFormatError, "s.csv has", "supported: .npy, .npz"),
    (lambda: lt.io.load_array("two.npz"), ValueError, "two.npz holds", "give the name of one"),
    (lambda: lt.io.load_array("two.npz", "c"), ValueError, "two.npz holds", "give the name of one"),
    (
        lambda: lt.io.load_array("sparse.npz"),
        FileFormatError,
        "sparse.npz holds",
        "read it with load_sparse",
    ),
    (lambda: lt.io.load_array("A.npy", mmap="no"), TypeError, "mmap must", "Try mmap=False"),
    (
        lambda: lt.io.load_array("two.npz", "a", mmap=True),
        ValueError,
        "two.npz:",
        "use mmap=False or",
    ),
    (lambda: lt.io.load_array("A.npy", max_bytes="x"), TypeError, "max_bytes must", "Try int(...)"),
    (
        lambda: lt.io.load_array("A.npy", max_bytes=10),
        FileFormatError,
        "A.npy needs 17280 bytes of memory;",
        "export a smaller part",
    ),
    (lambda: lt.io.load_array("A.npy", max_bytes=-1), ValueError, "max_bytes must", "at least 0"),
    (lambda: lt.io.load_operator(None), TypeError, "path must", "a path such as"),
    (lambda: lt.io.load_operator("A.npy"), ValueError, "shape is", "Try shape=(30, 30, 10)"),
    (lambda: lt.io.load_operator("A.npy", (5, 5)), ValueError, "matrix has", "Check shape, or"),
    (lambda: lt.io.load_operator("sparse.npz"), ValueError, "shape is", "Try shape=(30, 30, 10)"),
    (lambda: lt.io.load_operator("a.mat", SHAPE), ValueError, "order is", 'needed for a.mat: "F"'),
    (lambda: lt.io.load_sparse(5), TypeError, "path must", "a path such as"),
    (lambda: lt.io.load_sparse("A.npy"), FileFormatError, "A.npy holds", "read it with load_array"),
    (lambda: lt.io.load_samples("s.csv", "x"), TypeError, "order must", "Try int(...)"),
    (lambda: lt.io.load_samples("s.csv", 2), FileFormatError, "s.csv has", "check --shape"),
    (lambda: lt.io.load_samples("A.npy"), FileFormatError, "A.npy is", "expected text with the"),
    (lambda: lt.io.load_samples("."), FileFormatError, ". is a directory", "check the path"),
    (lambda: load_video(None), TypeError, "path must", "a path such as"),
    (lambda: load_video("s.csv"), ValueError, "s.csv has", "convert it"),
    (lambda: load_video("A.npy"), ValueError, "A.npy has", "reshape it"),
    (lambda: load_video("A.npy", rows=(0, 5)), ValueError, "rows=", "or None for all"),
    (lambda: lt.load(None), TypeError, "path must", "a path such as"),
    (lambda: lt.load("two.npz"), FileFormatError, "two.npz is", "Try lowtucker.io.load_ar"),
    (lambda: lt.io.save_arrays(None, {"a": 1}), TypeError, "path must", "a path such as"),
    (lambda: lt.io.save_arrays("n.npz", [1, 2]), TypeError, "arrays must", "pass a dict"),
    (
        lambda: lt.io.save_arrays("n.npz", {}),
        ValueError,
        "no arrays given for n.npz;",
        "expected at least one",
    ),
    (
        lambda: lt.io.save_arrays("n.npz", {"": 1}),
        ValueError,
        "array name '':",
        "expected a non-empty",
    ),
    (
        lambda: lt.io.save_arrays("n.npz", {5: 1}),
        ValueError,
        "array name 5:",
        "expected a non-empty",
    ),
    (
        lambda: lt.io.save_arrays("n.npz", {"a": "x"}),
        TypeError,
        "array 'a' has",
        "convert it, for example",
    ),
    (
        lambda: lt.io.save_arrays("n.npz", {"a": [[1], [1, 2]]}),
        ValueError,
        "array 'a' has",
        "pad them",
    ),
    (lambda: lt.io.save_arrays("n.npy", {"a": 1}), ValueError, "cannot write n.npy;", "rename it"),
    (
        lambda: lt.io.save_arrays("old.npz", {"a": 1}),
        FileExistsError,
        "old.npz exists;",
        "pass overwrite=True or",
    ),
    (
        lambda: lt.io.save_arrays("old.npz", {"a": 1}, overwrite="no"),
        TypeError,
        "overwrite must",
        "Try overwrite=False",
    ),
    (
        lambda: lt.io.save_arrays("no/n.npz", {"a": 1}),
        FileNotFoundError,
        "no/n.npz cannot",
        "check the folder no",
    ),
    (
        lambda: lt.io.save_samples("old.csv", [[0]], [1.0]),
        FileExistsError,
        "old.csv exists;",
        "pass overwrite=True or",
    ),
    (
        lambda: lt.io.save_samples("n.csv", [0], [1.0]),
        ValueError,
        "indices must",
        "Try numpy.argwhere(...)",
    ),
    (
        lambda: lt.io.save_samples("n.csv", [[0]], [1.0, 2.0]),
        ValueError,
        "indices must",
        "Try numpy.argwhere(...)",
    ),
    (
        lambda: lt.io.save_samples("n.csv", [[0]], [1j]),
        TypeError,
        "values must",
        "Try result.save(path)",
    ),
    (
        lambda: lt.io.save_samples("n.csv", [[0.5]], [1.0]),
        ValueError,
        "indices must",
        "Try numpy.argwhere(...)",
    ),
    (
        lambda: save_gif("n.png", np.ones((2, 2, 2))),
        ValueError,
        "cannot write n.png;",
        "rename it",
    ),
    (lambda: save_gif("n.gif", np.ones((2, 2))), ValueError, "clip has", "expected (rows"),
    (
        lambda: save_gif("n.gif", np.full((2, 2, 2), NAN)),
        ValueError,
        "clip has",
        "divide integers by",
    ),
    (
        lambda: save_gif("n.gif", np.ones((2, 2, 2)), magnify=0),
        ValueError,
        "magnify=",
        "expected a whole number",
    ),
    (
        lambda: save_gif("n.gif", np.ones((2, 2, 2)), frames_per_second=0),
        ValueError,
        "frames_per_second=",
        "expected 0.01 to 50",
    ),
    (
        lambda: lt.LinearOperatorAdapter(
            LinearOperator((M, 36), matvec=lambda x: x, dtype=float), SHAPE
        ),
        ValueError,
        "_CustomLinearOperator has",
        "Define it, or try",
    ),
    (
        lambda: recover(solver=lt.TIHT(thresholding=3)),
        TypeError,
        "thresholding must",
        "Try lowtucker.HOSVD",
    ),
    (
        lambda: recover(rank=lt.RankSearch(max=(9, 9))),
        ValueError,
        "RankSearch(max=",
        "have one entry per mode:",
    ),
    (lambda: recover(A=np.ones(5)), ValueError, "A must", "For one measurement try"),
    (
        lambda: A.restrict(np.array([], dtype=int)),
        ValueError,
        "rows selects none of the",
        "Choose at least one",
    ),
    (
        lambda: recover(A=lt.scale(fun(forward=nan_row), 2.0)),
        ValueError,
        "FunctionOperator._forward returned",
        "lowtucker.check_adjoint(",
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
        "LinearOperatorAdapter._forward returned",
        "lowtucker.check_adjoint(",
    ),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("A.npy", A.matrix)
    np.save("y.npy", y)
    np.save("holes.npy", HOLES)
    np.save("text.npy", np.array(["a"]))
    np.save("bad.npy", bad(A.matrix))
    np.savez("two.npz", a=1.0, b=2.0)
    scipy.sparse.save_npz("sparse.npz", scipy.sparse.csr_array(A.matrix))
    scipy.io.savemat("A.mat", {"A": A.matrix})
    Path("s.csv").write_text("i1,i2,i3,value\n0,0,0,1\n")
    Path("cells.csv").write_text("0,0,9\n")
    for name in ("old.npz", "old.csv", "old.png"):
        Path(name).write_text("mine")
    return tmp_path


ROWS = [
    *RECOVER, *COMPLETE, *SOLVE, *OPERATORS, *SOLVERS, *RULES, *TENSORS, *THEORY, *FILES,
]  # fmt: skip


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("call", "exception", "names", "advises"),
    ROWS,
    ids=[f"{k}-{names[:24]}" for k, (_, _, names, _) in enumerate(ROWS)],
)
def test_a_malformed_call_is_refused(call, exception, names, advises):
    before = sorted(path.name for path in Path().iterdir())
    with pytest.raises(exception) as caught:
        call()
    message = str(caught.value)
    # LinAlgError is a ValueError too, but says that something failed in the depths
    own = caught.type.__module__.startswith("lowtucker")
    assert caught.type is exception or own, caught.type
    assert message.startswith(names), message
    assert advises in message
    innermost = traceback.extract_tb(caught.tb)[-1]
    assert innermost.filename.startswith(PACKAGE), "the message is not the package's"
    assert sorted(path.name for path in Path().iterdir()) == before


def test_there_are_enough_rows():
    assert len(ROWS) >= 150
    assert all(names and advises for _, _, names, advises in ROWS)


# ---- the command line ----

RECOVER_FILES = ["recover", "A.npy", "y.npy", "--shape", "4,3,3", "--rank", "2,2,2"]
COMPLETE_FILES = ["complete", "holes.npy", "--rank", "1,1,1"]
COMMANDS = [
    ([*RECOVER_FILES, "-o", "x.npz", "--tol", "2"], "tol must be below 1"),
    ([*RECOVER_FILES, "-o", "x.npz", "--tol", "nan"], "tol must be a finite number"),
    ([*RECOVER_FILES, "-o", "x.npz", "--max-epochs", "0"], "max_epochs must be at least 1"),
    ([*RECOVER_FILES, "-o", "x.npz", "--max-seconds", "-1"], "max_seconds must be positive"),
    ([*RECOVER_FILES, "-o", "x.npz", "--noise-std", "-1"], "noise_std must be a finite"),
    ([*RECOVER_FILES, "-o", "x.npz", "--rank", "9,9,9"], "rank[0] = 9 must be between 1 and 4"),
    ([*RECOVER_FILES, "-o", "x.npz", "--rank", "x"], "Invalid value for '--rank'"),
    ([*RECOVER_FILES, "-o", "x.npz", "--max-rank", "2,2,2"], "--max-rank belongs to --rank auto"),
    ([*RECOVER_FILES, "-o", "x.npz", "--shape", "5,5"], "Check shape, or transpose the matrix"),
    ([*RECOVER_FILES, "-o", "x.npz", "--seed", "-1"], "Invalid value for '--seed'"),
    ([*RECOVER_FILES, "-o", "x.npz", "--solver", "newton"], "Invalid value for '--solver'"),
    ([*RECOVER_FILES, "-o", "x.npz", "--solver", "rgn", "--step", "1"], "do not apply to rgn"),
    ([*RECOVER_FILES, "-o", "x.npz", "--weights", "none.npy"], "none.npy does not exist"),
    ([*RECOVER_FILES, "-o", "x.npz", "--start", "y.npy"], "start must have the shape"),
    ([*RECOVER_FILES, "-o", "x.npz", "--truth", "y.npy"], "X_true must have shape"),
    ([*RECOVER_FILES, "-o", "x.npz", "--name-a", "B"], "A.npy holds no array 'B'"),
    ([*RECOVER_FILES, "-o", "x.txt"], "output must be one of .npz, .npy, .mat, got x.txt. Try"),
    ([*RECOVER_FILES, "-o", "old.npz"], "output old.npz exists. Give another name, or --overwrite"),
    ([*RECOVER_FILES, "-o", "no/x.npz"], "no is not a folder"),
    ([*RECOVER_FILES, "-o", "A.npy", "--overwrite"], "output A.npy is an input"),
    ([*RECOVER_FILES, "-o", "../{}/y.npy", "--overwrite"], "y.npy is an input"),
    ([*RECOVER_FILES, "-o", "x.npz", "--plot", "old.png"], "output old.png exists"),
    ([*RECOVER_FILES, "-o", "x.npz", "--plot", "x.npz"], "must be different files"),
    ([*RECOVER_FILES, "-o", "x.npz", "--plot", "x.xyz"], "plot must be an image file such as"),
    (["recover", "bad.npy", *RECOVER_FILES[2:], "-o", "x.npz"], "matrix has NaN or infinite"),
    (["recover", "none.npy", *RECOVER_FILES[2:], "-o", "x.npz"], "none.npy does not exist"),
    (["recover", "text.npy", *RECOVER_FILES[2:], "-o", "x.npz"], "text.npy: text holds values"),
    (["recover", "A.mat", *RECOVER_FILES[2:], "-o", "x.npz"], "order is needed for A.mat"),
    (["recover", "s.csv", *RECOVER_FILES[2:], "-o", "x.npz"], "s.csv has the suffix '.csv'"),
    (["recover", "two.npz", *RECOVER_FILES[2:], "-o", "x.npz"], "give the name of one of: a"),
    ([*COMPLETE_FILES, "-o", "x.npz", "--held-out", "1"], "Invalid value for '--held-out'"),
    ([*COMPLETE_FILES, "-o", "x.npz", "--shape", "1,2"], "Leave shape out"),
    ([*COMPLETE_FILES, "-o", "holes.npy", "--overwrite"], "output holes.npy is an input"),
    ([*COMPLETE_FILES, "-o", "x.npz", "--predict", "cells.csv", "p.csv"], "indices[0, 2] = 9"),
    ([*COMPLETE_FILES, "-o", "x.npz", "--predict", "s.csv", "old.csv"], "output old.csv exists"),
    (["complete", "s.csv", "--rank", "1,1,1", "-o", "x.npz"], "--shape is needed"),
    (["check", "A.npy", "--shape", "4,3,3", "--rank", "9,9,9"], "rank[0] = 9 must be between"),
    (["check", "none.npy", "--rank", "1,1,1"], "none.npy does not exist"),
    (["bench", "recover", "--only", "Z9", "--csv", "old.csv"], "output old.csv exists"),
    (["bench", "recover", "--only", "Z9"], "Z9"),
    (["bench", "iteration", "--only", "A1"], "--only is not an option of iteration"),
    (["video", "none.gif", "--rank", "1,1,1", "--measurements", "5", "-o", "v"], "does not exist"),
    (["reproduce", "fig9"], "Invalid value for '[FIGURE]...'"),
]


@pytest.mark.parametrize(("arguments", "message"), COMMANDS, ids=[m[:30] for _, m in COMMANDS])
def test_a_malformed_command_is_refused(folder, arguments, message):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = CliRunner().invoke(main, [part.format(folder.name) for part in arguments])
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OverflowError(34, "Numerical result out of range"), "Bring A and y to moderate sizes"),
        (np.linalg.LinAlgError("SVD did not converge"), "Bring A and y to moderate sizes"),
        (ZeroDivisionError("division by zero"), "Bring A and y to moderate sizes"),
        (MemoryError("8 GB"), "there is not enough memory (8 GB)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failure_in_the_depths_is_one_line(folder, monkeypatch, error, message):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(lt, "recover", fails)
    done = CliRunner().invoke(main, [*RECOVER_FILES, "-o", "x.npz", "-q"])
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.output
    done = CliRunner().invoke(main, ["--traceback", *RECOVER_FILES, "-o", "x.npz", "-q"])
    assert done.exception is error


# ---- what is a warning, or a status ----


def test_a_rank_that_no_tensor_attains_is_a_warning():
    with pytest.warns(lt.RankWarning, match=r"\(1, 1, 1\)"):
        result = recover(rank=(1, 1, 3), max_epochs=20)
    assert result.rank == (1, 1, 1)
    assert np.isfinite(result.X.full()).all()


def test_few_measurements_are_a_warning_and_a_status():
    B = lt.gaussian(SHAPE, 10, seed=1)
    with pytest.warns(lt.UnderdeterminedWarning, match="16 degrees of freedom. Take at least 16"):
        result = lt.recover(B, B.forward(X), RANK)
    assert result.status is lt.Status.UNDERDETERMINED
    assert not result.success


def test_an_operator_without_rows_of_its_own_is_a_warning():
    with pytest.warns(lt.SlowOperatorWarning, match="_restrict"):
        recover(A=fun(), solver="stotiht")


@pytest.mark.parametrize("A", [A, fun()], ids=["dense", "functions"])
@pytest.mark.parametrize("step", [1e3, 1e100, 1e300])
def test_a_step_far_too_large_is_a_status(A, step):
    result = recover(A=A, solver=lt.TIHT(step=step), max_epochs=50)
    assert result.status is lt.Status.DIVERGED
    assert not result.success
    assert np.isfinite(result.X.full()).all()


def test_a_limit_is_a_status():
    assert recover(solver="tiht", tol=0).status is lt.Status.MAX_EPOCHS
    result = recover(solver="tiht", tol=0, max_epochs=10**6, max_seconds=1e-9)
    assert result.status is lt.Status.MAX_SECONDS
    assert recover(max_epochs=500, callbacks=[lambda _: True]).status is lt.Status.INTERRUPTED


def test_nothing_measured_is_the_zero_tensor():
    result = recover(y=np.zeros(M))
    assert result.residual == 0
    assert float(result.X.norm()) == 0


# ---- operators that return NaN ----


def test_an_operator_of_ones_own_that_returns_nan_is_named():
    class Mine(lt.MeasurementOperator):
        shape, m = SHAPE, M

        def _forward(self, X):
            return nan_row(X)

        def _adjoint(self, v):
            return A.adjoint(v)

    with pytest.raises(ValueError, match=r"Mine\._forward returned nan in row 7"):
        Mine().forward(X)
    with pytest.raises(ValueError, match=r"Mine\._forward returned nan in row 7"):
        Mine().forward(np.zeros((2, *SHAPE)))
    with pytest.raises(ValueError, match=r"Mine\._forward returned nan in row 7"):
        recover(A=Mine())


def test_the_first_bad_row_is_named_for_a_stack():
    def forward(Z):
        return bad(A.forward(Z), 5) if Z[0, 0, 0] == 1 else A.forward(Z)

    with pytest.raises(ValueError, match="nan in row 5"):
        fun(forward=forward).forward(np.stack([np.zeros(SHAPE), np.ones(SHAPE)]))


def test_numbers_that_are_not_finite_and_overflow_pass_through():
    assert np.isnan(fun().forward(np.full(SHAPE, NAN))).all()
    with np.errstate(over="ignore", invalid="ignore"):
        assert not np.isfinite(fun().forward(np.full(SHAPE, 1e308))).all()
    assert not np.isfinite(A.forward(np.full(SHAPE, NAN))).any()


def test_the_package_does_not_look_at_what_its_own_operators_return(monkeypatch):
    def looks(_):
        raise AssertionError("a pass over what a dense operator gave")

    monkeypatch.setattr("lowtucker.operators.base.all_finite", looks)
    A.adjoint(A.forward(X.full()))
    with pytest.raises(AssertionError):
        fun().forward(X.full())
