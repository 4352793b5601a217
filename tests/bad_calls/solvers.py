"""Settings of solvers, and stopping rules."""

from __future__ import annotations

import numpy as np

import lowtucker as lt
from bad_calls.setting import recover

SOLVERS = [
    (lambda: lt.TIHT(step=0), ValueError, "step must be positive"),
    (lambda: lt.TIHT(step="fast"), ValueError, "step must be a positive number or"),
    (lambda: lt.TIHT(trim=0), ValueError, "trim must be positive, got 0"),
    (lambda: lt.TIHT(trim=-0.1), ValueError, "trim must be positive, got -0.1"),
    (lambda: lt.TIHT(trim=float("nan")), ValueError, "trim must be positive, got nan"),
    (lambda: lt.TIHT(trim=5), ValueError, "trim must be a share ... got 5. Try trim=0.05"),
    (lambda: lt.StoTIHT(trim=1.0), ValueError, "trim must be a share ... got 1. Try trim=0.05"),
    (lambda: lt.TIHT(trim="auto"), TypeError, "trim must be a real number, got 'auto'"),
    (lambda: lt.TIHT(trim=True), TypeError, "trim must be a real number, got True"),
    (
        lambda: lt.StoTIHT(sampler=lt.KaczmarzRows(10)),
        ValueError,
        "KaczmarzRows needs a fixed step ... got step='auto' ... Try step=1.0",
    ),
    (
        lambda: lt.StoTIHT(sampler=lt.KaczmarzRows(10), step=1.0, trim=0.1),
        ValueError,
        "KaczmarzRows needs a fixed step and no trim, got ... trim=0.1",
    ),
    (lambda: lt.StoTIHT(block_size=0), ValueError, "block_size must be at least 1"),
    (lambda: lt.StoTIHT(block_size=2.5), TypeError, "block_size must ... Try int(...)"),
    (
        lambda: recover(solver=lt.StoTIHT(block_size=10**6)),
        ValueError,
        "block_size = ... between 1 and the",
    ),
    (lambda: lt.StoTIHT(block_size=20, p=(0.5, 0.6)), ValueError, "p must ... Try p / p.sum()"),
    (
        lambda: recover(solver=lt.StoTIHT(block_size=30, p=(0.5, 0.25, 0.25))),
        ValueError,
        "p must have one probability",
    ),
    (lambda: lt.StoTIHT(sampler=3), TypeError, "sampler must ... Try lowtucker.Partition("),
    (
        lambda: lt.StoTIHT(sampler=lt.Shuffled(10), block_size=4),
        ValueError,
        "Give block_size and p to the sampler, not beside",
    ),
    (
        lambda: recover(solver=lt.TIHT(thresholding=lt.HOSVD((1, 1, 1)))),
        ValueError,
        "rank = ... Leave one of them out",
    ),
    (lambda: lt.RSGD(block_size=0), ValueError, "block_size must be at least 1"),
    (lambda: lt.RGN(damping=0), ValueError, "damping must be positive"),
    (lambda: lt.RGN(starts=0), ValueError, "starts must be at least 1"),
    (lambda: lt.RGN(iht_steps=-1), ValueError, "iht_steps must be at least 0"),
    (lambda: lt.NuclearNorm(gap=0), ValueError, "gap must be positive"),
    (lambda: lt.NuclearNorm(gap=1), ValueError, "gap is relative ... got 1. Try 1e-4"),
    (lambda: lt.NuclearNorm(gap="small"), TypeError, "gap must"),
    (
        lambda: lt.NuclearNorm(unfolding="sqare"),
        ValueError,
        "unfolding must be None, ... got 'sqare'. Try unfolding=",
    ),
    (
        lambda: lt.NuclearNorm(unfolding=(0, 0)),
        ValueError,
        "unfolding must ... different modes, got (0, 0). Try",
    ),
    (
        lambda: lt.NuclearNorm(unfolding=()),
        ValueError,
        "unfolding must ... different modes, got (). Try",
    ),
    (
        lambda: lt.NuclearNorm(unfolding=[0, 1]),
        ValueError,
        "unfolding must ... different modes, got [0, 1]. Try",
    ),
    (
        lambda: recover(rank=None, solver=lt.NuclearNorm(unfolding=3)),
        ValueError,
        "unfolding = 3 must have modes from 0 to 2 ... Try unfolding=",
    ),
    (
        lambda: recover(solver=lt.NuclearNorm()),
        ValueError,
        "NuclearNorm shrinks and has no rank ... Leave the rank out",
    ),
]

RULES = [
    (lambda: lt.ResidualBelow(-1), ValueError, "tol must be a finite number, at"),
    (lambda: lt.ResidualBelow(1), ValueError, "tol must ... Try tol=1e-6"),
    (lambda: lt.ResidualBelow(np.array([0.1, 3.0])), ValueError, "tol must ... Try tol=1e-6"),
    (lambda: lt.ResidualBelow(np.ones((2, 2)) / 2), TypeError, "tol must ... Try float(...)"),
    (lambda: lt.ResidualBelow(np.array("a")), TypeError, "tol must ... Try float(...)"),
    (lambda: lt.ResidualBelow([0.001]), TypeError, "tol must ... Try float(...)"),
    (
        lambda: lt.ResidualBelow(0.001, status="x"),
        TypeError,
        "status must ... Try lowtucker.Status.CONVERGED",
    ),
    (lambda: lt.ErrorBelow(-1), ValueError, "tol must be a finite number, at"),
    (
        lambda: lt.ErrorBelow(0.001, status=None),
        TypeError,
        "status must ... Try lowtucker.Status.CONVERGED",
    ),
    (lambda: lt.Stalled(window=0), ValueError, "window must be at least 1"),
    (lambda: lt.Stalled(fall=2), ValueError, "fall must ... Try fall=0.01"),
    (lambda: lt.Stalled(status="x"), TypeError, "status must ... Try lowtucker.Status.CONVERGED"),
    (lambda: lt.MaxEpochs(0), ValueError, "max_epochs must be at least 1"),
    (
        lambda: lt.MaxEpochs(2, status=[1, 2]),
        TypeError,
        "status must ... Try lowtucker.Status.CONVERGED",
    ),
    (lambda: lt.MaxSeconds(0), ValueError, "max_seconds must be positive"),
    (
        lambda: lt.MaxSeconds(1, status=5),
        TypeError,
        "status must ... Try lowtucker.Status.CONVERGED",
    ),
    (lambda: lt.MaxEpochs(2) | "x", TypeError, "stop must ... Try lowtucker.ResidualBelow"),
    (lambda: lt.MaxEpochs(2) & None, TypeError, "stop must ... Try lowtucker.ResidualBelow"),
    (lambda: lt.MaxEpochs(2) or lt.MaxEpochs(3), TypeError, "Stopping rules combine with | and &"),
]

ROWS = [*SOLVERS, *RULES]
