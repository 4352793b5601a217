"""lowtucker.theory."""

from __future__ import annotations

import numpy as np

import lowtucker as lt
from bad_calls.setting import BATCH, NAN, RANK, SHAPE, A
from lowtucker import theory

ROWS = [
    (lambda: theory.trip(5, RANK), ValueError, "A must ... For one measurement try"),
    (lambda: theory.trip(A, RANK, starts=0), ValueError, "starts must be between 1 and 1000000"),
    (lambda: theory.trip(A, RANK, samples=-1), ValueError, "samples must be between 1 and 1000000"),
    (lambda: theory.trip(A, RANK, blocks=0), ValueError, "blocks must be between 1 and 60"),
    (lambda: theory.trip(BATCH, RANK), ValueError, "A must ... Try A.select"),
    (lambda: theory.contraction(-1, 0.5), ValueError, "delta must be a finite number, at"),
    (lambda: theory.contraction(0.1, 0), ValueError, "step must be positive"),
    (lambda: theory.contraction(0.1, "x"), TypeError, "step must ... Try float(...)"),
    (lambda: theory.contraction(0.1, 0.5, eta=0.5), ValueError, "eta must be a finite number, at"),
    (lambda: theory.contraction(0.1, 0.5, n_blocks=0), ValueError, "n_blocks must be at least 1"),
    (
        lambda: theory.contraction(0.1, 0.5, p=(0.5, 0.5), n_blocks=1),
        ValueError,
        "p must be 1 numbers, one for each",
    ),
    (
        lambda: theory.contraction(0.1, 0.5, version="new"),
        ValueError,
        'version must be "paper" or "repaired"',
    ),
    (
        lambda: theory.contraction(0.1, 0.5).error_bound(-1, 1.0),
        ValueError,
        "t must be a number of iterations",
    ),
    (
        lambda: theory.contraction(0.1, 0.5).error_bound(1, NAN),
        ValueError,
        "error must be a finite number, at",
    ),
    (lambda: theory.best_step("x"), TypeError, "delta must ... Try float(...)"),
    (lambda: theory.best_step(2.0), ValueError, "delta must ... Scale A first: trip(A"),
    (lambda: theory.eta(5), TypeError, "thresholding must ... Try lowtucker.HOSVD((3"),
    (lambda: theory.eta(lt.HOSVD(RANK), np.full(SHAPE, NAN)), ValueError, "Z has NaN or infinite"),
    (
        lambda: theory.eta(lt.HOSVD(RANK), np.ones((2, 2))),
        ValueError,
        "rank must have one entry per mode:",
    ),
    (lambda: theory.examine(A, (9, 9, 9)), ValueError, "rank[0] = 9 must be between 1 and 4, the"),
    (lambda: theory.examine(A, RANK, block_size=0), ValueError, "blocks must be between 1 and 60"),
    (lambda: theory.compare(5), TypeError, "result must be a Result"),
]
