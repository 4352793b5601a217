"""Formats other than Tucker's, and their thresholdings."""

from __future__ import annotations

import numpy as np

import lowtucker as lt

Z = np.arange(24.0).reshape(2, 3, 4)
TRAIN = lt.TensorTrain((2, 2))(Z)
TUBAL = lt.Tubal(1)(Z)
HIERARCHICAL = lt.HierarchicalTucker(2)(Z)
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

TUBAL_RANK = [
    (lambda: lt.Tubal(0), ValueError, "rank must be at least 1, got 0"),
    (lambda: lt.Tubal((2, 2)), TypeError, "rank must be an integer, got (2, 2)"),
    (
        lambda: lt.Tubal(3).for_shape((2, 3, 4)),
        ValueError,
        "Tubal(3) exceeds the largest tubal rank ... (2, 3, 4), which is 2. Try Tubal(2) at most",
    ),
    (
        lambda: lt.Tubal(3)(Z),
        ValueError,
        "Tubal(3) exceeds the largest tubal rank",
    ),
    (
        lambda: lt.Tubal(1).for_shape((2, 3)),
        ValueError,
        "Tubal takes tensors of three modes, got shape (2, 3). Try lowtucker.TensorTrain",
    ),
    (lambda: lt.Tubal(1)(np.ones((2, 3))), ValueError, "Tubal takes tensors of three modes, got"),
    (
        lambda: lt.recover(np.ones((5, 2, 2, 2, 2)), np.ones(5), lt.Tubal(1)),
        ValueError,
        "Tubal takes tensors of three modes, got shape (2, 2, 2, 2)",
    ),
    (lambda: TUBAL.compress(2), ValueError, "rank must be between 1 and 1, got 2"),
    (lambda: TUBAL.batched().compress(), ValueError, "compress needs a rank for a batch"),
    (lambda: TUBAL + TRAIN, TypeError, "expected a TubalTensor, got TTTensor. Use X.full()"),
    (lambda: TUBAL * np.ones(3), ValueError, "A TubalTensor can be multiplied by a number"),
]

TREES = [
    (lambda: lt.HierarchicalTucker(0), ValueError, "rank must be at least 1, got 0"),
    (lambda: lt.HierarchicalTucker("a"), TypeError, "rank[0] must be an integer, got 'a'"),
    (
        lambda: lt.HierarchicalTucker((2, 2)).for_shape((2, 3, 4)),
        ValueError,
        "HierarchicalTucker has 4 ranks for a tensor of 3 modes ... got 2, (2, 2). Try rank=2",
    ),
    (
        lambda: lt.HierarchicalTucker(2).for_shape((5,)),
        ValueError,
        "HierarchicalTucker takes tensors of two modes at least, got shape (5,)",
    ),
    (
        lambda: lt.HierarchicalTucker(2, ((0, 1), (2, 3))).for_shape((2, 3, 4)),
        ValueError,
        "tree has 4 modes, ((0, 1), (2, 3)), but the tensor has 3 ... Try tree=((0, 1), 2)",
    ),
    (
        lambda: lt.HierarchicalTucker(2, ((0, 1), 3)),
        ValueError,
        "tree must have every mode from 0 on once, got the modes (0, 1, 3). Try ((0, 1), 2)",
    ),
    (
        lambda: lt.HierarchicalTucker(2, ((0, 1), (1, 2))),
        ValueError,
        "tree must have every mode from 0 on once, got the modes (0, 1, 1, 2)",
    ),
    (
        lambda: lt.HierarchicalTucker(2, (0, 1, 2)),
        ValueError,
        "tree must be binary, got a node of 3 in (0, 1, 2). Try ((0, 1), (2, 3))",
    ),
    (lambda: lt.HierarchicalTucker(2, ((0,), 1)), ValueError, "tree must be binary, got a node of"),
    (lambda: lt.HierarchicalTucker(2, ()), ValueError, "tree must be binary, got a node of 0"),
    (lambda: lt.HierarchicalTucker(2, 0), ValueError, "tree must be a pair at least, got the mode"),
    (lambda: lt.HierarchicalTucker(2, (0, -1)), ValueError, "tree must have every mode from 0 on"),
    (
        lambda: lt.HierarchicalTucker(2, "balanced"),
        TypeError,
        "tree must be nested pairs of modes, got 'balanced'",
    ),
    (
        lambda: lt.HierarchicalTucker(2, (0, 1.0)),
        TypeError,
        "tree must be nested pairs of modes, got 1.0 in (0, 1.0)",
    ),
    (
        lambda: HIERARCHICAL + lt.HierarchicalTucker(2, (0, (1, 2)))(Z),
        ValueError,
        "expected a tensor of the tree ((0, 1), 2), got (0, (1, 2)). Try",
    ),
    (lambda: HIERARCHICAL + TRAIN, TypeError, "expected a HTTensor, got TTTensor. Use X.full()"),
    (lambda: HIERARCHICAL.compress(3), ValueError, "compress expects a rank of 4 entries"),
    (lambda: HIERARCHICAL.batched().compress(), ValueError, "compress needs a rank for a batch"),
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

ALL = [lt.TensorTrain((2, 2)), lt.Tubal(1), lt.HierarchicalTucker(2)]
ROWS = [*(row for H in ALL for row in calls(H)), *RANKS, *TUBAL_RANK, *TREES, *TENSORS]
