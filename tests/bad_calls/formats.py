"""Formats other than Tucker's, and their thresholdings."""

from __future__ import annotations

import numpy as np

import lowtucker as lt

Z = np.arange(24.0).reshape(2, 3, 4)
TRAIN = lt.TensorTrain((2, 2))(Z)
CORES = [np.ones((1, 2, 2)), np.ones((2, 3, 1))]


def calls(H):
    """What every thresholding refuses."""
    return [
        (lambda: H("tensor"), TypeError, "Z must be an array of numbers, got str"),
        (lambda: H(None), TypeError, "Z must be an array of numbers, got NoneType"),
        (lambda: H(np.ones((0, 3, 4))), ValueError, "Z must have entries in every mode"),
        (lambda: H(np.full((2, 3, 4), np.inf)), ValueError, "X has NaN or infinite entries"),
    ]


RANKS = [
    (lambda: lt.TensorTrain(0), ValueError, "rank must be at least 1, got 0"),
    (lambda: lt.TensorTrain((2, 0)), ValueError, "rank[1] must be at least 1, got 0"),
    (lambda: lt.TensorTrain((2, 1.5)), TypeError, "rank[1] must be an integer, got 1.5"),
    (lambda: lt.TensorTrain(True), TypeError, "rank must be an integer, got True"),
    (lambda: lt.TensorTrain(None), TypeError, "rank must be a tuple of integers ... got None"),
    (lambda: lt.TensorTrain(()), ValueError, "rank must have an entry at least, got ()"),
    (
        lambda: lt.TensorTrain((2, 2, 2)).for_shape((2, 3, 4)),
        ValueError,
        "TensorTrain has 2 ranks for a tensor of 3 modes ... got 3, (2, 2, 2). Try rank=2",
    ),
    (
        lambda: lt.TensorTrain((2, 2, 2))(Z),
        ValueError,
        "TensorTrain has 2 ranks for a tensor of 3 modes",
    ),
    (
        lambda: lt.TensorTrain(2).for_shape((5,)),
        ValueError,
        "TensorTrain takes tensors of two modes at least, got shape (5,). Try lowtucker.Sparse",
    ),
]

TENSORS = [
    (
        lambda: TRAIN.compress((3, 1)),
        ValueError,
        "compress expects ... each at most that of (2, 2), got (3, 1)",
    ),
    (lambda: TRAIN.compress((1,)), ValueError, "compress expects a rank of 2 entries"),
    (lambda: TRAIN.compress(0), ValueError, "rank must be at least 1, got 0"),
    (lambda: TRAIN.batched().compress(), ValueError, "compress needs a rank for a batch"),
    (lambda: TRAIN + Z, TypeError, "expected a TTTensor, got ndarray. Use X.full()"),
    (lambda: TRAIN.inner(Z), TypeError, "expected a TTTensor, got ndarray"),
    (lambda: TRAIN * np.ones(3), ValueError, "A TTTensor can be multiplied by a number"),
    (lambda: lt.TTTensor.from_cores(CORES[:1]), ValueError, "cores must have two entries"),
    (
        lambda: lt.TTTensor.from_cores(CORES[::-1]),
        ValueError,
        "cores[0] must have shape (1, n, r), got (2, 3, 1)",
    ),
    (lambda: lt.TTTensor.from_cores([CORES[0]] * 2), ValueError, "cores[1] must have shape (2, n"),
    (
        lambda: lt.TTTensor.from_cores([CORES[0], np.ones((2, 3, 2))]),
        ValueError,
        "the last core must have one column, got 2",
    ),
    (
        lambda: lt.TTTensor.from_cores([np.full((1, 2, 2), np.nan), CORES[1]]),
        ValueError,
        "cores[0] is empty, or has NaN",
    ),
    (
        lambda: lt.TTTensor.from_parts({"root": CORES[1]}),
        ValueError,
        "parts must be named 'root', 'basis_0'",
    ),
]

ROWS = [*calls(lt.TensorTrain((2, 2))), *RANKS, *TENSORS]
