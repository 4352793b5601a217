"""Claims about the paper's family that need an experiment of their own, beside the diagrams."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import size
from lowtucker.lab.bench.family import SEED, Point, Series, measure
from lowtucker.lab.bench.family_series import DEFAULT, sparse_truth
from lowtucker.operators import gaussian
from lowtucker.problem import Problem
from lowtucker.recovery import solve
from lowtucker.solvers import TIHT
from lowtucker.tensor import attainable_rank
from lowtucker.thresholding import HOSVD, HierarchicalTucker, SeMP, Sparse, TensorTrain, Tubal

__all__ = [
    "Evidence",
    "brute_force_tubal",
    "hierarchical_bound",
    "large_trains",
    "never_worse",
    "oracle",
    "train_bound",
]

NumPyArray = np.ndarray[Any, Any]
Modes = tuple[int, ...]
# Ratio of errors that is rounding
SAME = 1 + 1e-10


class Evidence(NamedTuple):
    """The numbers behind a claim, and whether its parts hold; None: too few points to tell."""

    numbers: str
    holds: Sequence[bool | None]


def oracle(points: Sequence[Point], quick: bool) -> Evidence:
    """The result with noise, against least squares on the right support."""
    n, s, m, trials = 256, 20, 140, 10 if quick else 50
    X = sparse_truth((n,), s)(trials, SEED)
    X += np.sign(X)  # no entry is lost in noise
    A = gaussian((n,), m, seed=SEED, trials=trials)
    rng = np.random.default_rng(SEED)
    noise = rng.standard_normal((trials, m))
    clean = np.asarray(A.forward(X))
    y = clean + 0.01 * noise * np.linalg.norm(clean, axis=1, keepdims=True) / math.sqrt(m)
    best = np.zeros_like(X)
    for k in range(trials):
        places = np.flatnonzero(X[k])
        best[k, places] = np.linalg.lstsq(np.asarray(A.matrix)[k][:, places], y[k], rcond=None)[0]
    least = np.linalg.norm(best - X, axis=1)
    parts, holds = [], []
    target: Any = Sparse(s)
    for name, solver in (("IHT", TIHT()), (DEFAULT, "auto")):
        found = np.asarray(solve(Problem(A, y), solver, target).X.full())
        away = np.linalg.norm(found - best, axis=1) / least
        equal = int((away < 0.01).sum())
        parts.append(f"{name}: {equal} of {trials} equal, median distance {np.median(away):.1e} of "
                     "the oracle's error")  # fmt: skip
        holds.append(equal >= 0.95 * trials)
    return Evidence(f"s = {s}, m = {m}, noise of 1 %: " + "; ".join(parts), holds)


def train_bound(points: Sequence[Point], quick: bool) -> Evidence:
    """Errors of TT-SVD over the largest error that some matricisation enforces."""
    return _bounds(TensorTrain, (3, 4, 5), lambda d: math.sqrt(d - 1), _beginnings, quick)


def hierarchical_bound(points: Sequence[Point], quick: bool) -> Evidence:
    """The same of hierarchical Tucker."""
    return _bounds(HierarchicalTucker, (4, 5), lambda d: math.sqrt(2 * d - 3), _halves, quick)


def large_trains(points: Sequence[Point], quick: bool) -> Evidence:
    """10x10x10x10, TT ranks 2 and 3; all must be recovered at the larger m of each kind."""
    parts, holds = [], []
    for r in (2, 3):
        for rows, per_dof in (("gaussian", (3.0, 4.0)), ("entries", (5.0, 8.0))):
            series = Series(panel="train", method="TIHT", solver=TIHT(), target=TensorTrain(r),
                            shape=(5 if quick else 10,) * 4, per_dof=per_dof, trials=4,
                            rows=rows)  # fmt: skip
            found = [measure(series, m) for m in series.measurements()]
            counts = ", ".join(f"m = {p.m}: {p.recovered} of {p.trials}" for p in found)
            parts.append(f"rank {r} ({series.dof} degrees of freedom), {rows}, {counts}")
            holds.append(found[-1].recovered == found[-1].trials)
    return Evidence("; ".join(parts), holds)


def never_worse(points: Sequence[Point], quick: bool) -> Evidence:
    """SeMP with its own order, and where that is worse with the best one, against the HOSVD."""
    rng, count = np.random.default_rng(SEED), 270 if quick else 2700
    ratios, best = np.empty(count), 0
    for k in range(count):
        d = int(rng.integers(3, 5))
        shape = tuple(int(n) for n in rng.integers(3, 8, d))
        rank = attainable_rank(tuple(int(rng.integers(1, n)) for n in shape))
        Z = rng.standard_normal(shape)
        if k % 3:  # spectra that decay
            Z = Z * np.prod(np.indices(shape) + 1.0, axis=0) ** -float(k % 3)
        limit = _distance(HOSVD(rank), Z)
        ratios[k] = _distance(SeMP(rank), Z) / limit
        if ratios[k] > SAME:
            best += min(_distance(SeMP(rank, p), Z) for p in permutations(range(d))) > SAME * limit
    worse = int((ratios > SAME).sum())
    text = f"{worse} of {count} random tensors are approximated worse, by at most "
    text += f"{ratios.max() - 1:.1%} ({best} by the best order); median error "
    return Evidence(f"{text}{np.median(ratios):.3f} of HOSVD's", [worse == 0])


def _distance(thresholding: Any, Z: NumPyArray) -> float:
    return float(np.linalg.norm(np.asarray(thresholding(Z).full()) - Z))


def brute_force_tubal(points: Sequence[Point], quick: bool) -> Evidence:
    """Tubal truncation against the SVD of every slice of the full Fourier transform."""
    rng, worst = np.random.default_rng(SEED), 0.0
    for n3 in (1, 2, 5, 8):
        Z = rng.standard_normal((6, 7, n3))
        slices = np.fft.fft(Z, axis=2)
        for k in range(n3):
            U, s, V = np.linalg.svd(slices[:, :, k], full_matrices=False)
            slices[:, :, k] = (U[:, :2] * s[:2]) @ V[:2]
        brute = np.fft.ifft(slices, axis=2).real
        worst = max(worst, float(np.abs(np.asarray(Tubal(2)(Z).full()) - brute).max()))
    return Evidence(f"largest difference {worst:.1e}", [worst < 1e-12])


def _beginnings(modes: Modes) -> list[Modes]:
    """Modes of the rows of the matricisations of a tensor train."""
    return [modes[:k] for k in range(1, len(modes))]


def _halves(modes: Modes) -> list[Modes]:
    """Modes of the nodes of a tree that halves the modes, and the halves again."""
    if len(modes) == 1:
        return []
    middle = (len(modes) + 1) // 2
    halves = (modes[:middle], modes[middle:])
    return [node for half in halves for node in (half, *_halves(half))]


def _bounds(
    kind: Callable[[int], Any],
    orders: Sequence[int],
    bound: Callable[[int], float],
    cuts: Callable[[Modes], list[Modes]],
    quick: bool,
) -> Evidence:
    """Ratios for random tensors, half of them with decaying spectra."""
    rng, parts, holds = np.random.default_rng(SEED), [], []
    count = 30 if quick else 300
    for d in orders:
        worst = 0.0
        for k in range(count):
            shape = tuple(int(n) for n in rng.integers(3, 6, d))
            Z = rng.standard_normal(shape)
            if k % 2:
                Z = Z * np.prod(np.indices(shape) + 1.0, axis=0) ** -1.0
            r = int(rng.integers(1, 3))
            error = _distance(kind(r).for_shape(shape), Z)
            least = max(_tail(Z, modes, r) for modes in cuts(tuple(range(d))))
            worst = max(worst, error / least)
        parts.append(f"d = {d}: {worst:.3f} (bound {bound(d):.3f})")
        holds.append(worst <= bound(d))
    return Evidence(f"largest ratio to a lower bound of the best error, {count} tensors each: "
                   + ", ".join(parts), holds)  # fmt: skip


def _tail(Z: NumPyArray, modes: Modes, rank: int) -> float:
    """Error that the rank of a matricisation enforces."""
    matrix = np.moveaxis(Z, modes, range(len(modes))).reshape(size([Z.shape[k] for k in modes]), -1)
    return float(np.linalg.norm(np.linalg.svd(matrix, compute_uv=False)[rank:]))
