"""``lowtucker bench costs``: what a step of each solver costs on sampled entries, and D10.

The coefficients of :mod:`lowtucker.solvers.costs`, by which ``solver="auto"`` decides, come from
here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from lowtucker.lab.bench.timing import Row, timed
from lowtucker.metrics import relative_error
from lowtucker.operators import EntriesOperator
from lowtucker.problem import Problem
from lowtucker.recovery.entry import recover
from lowtucker.solvers import ALS, RCG, RGN, Solver
from lowtucker.solvers.costs import COEFFICIENTS, seconds, terms
from lowtucker.tensor.random import random_tucker
from lowtucker.tensor.rank import degrees_of_freedom
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["coefficients", "conditioned", "default_rows", "measured", "run", "step_rows"]

SOLVERS: dict[str, Solver] = {
    "ALS": ALS(),
    "RCG": RCG(),
    "products": RGN(products=True),
    "gram": RGN(products=False),
}
Case = tuple[tuple[int, ...], tuple[int, ...], int]
# Shapes, ranks and samples; normal equations are measured on those with at most GRAM dof
CASES: tuple[Case, ...] = (
    ((20, 20, 20), (2, 2, 2), 1200),
    ((50, 50, 50), (3, 3, 3), 4500),
    ((50, 50, 50), (3, 3, 3), 20000),
    ((30, 40, 50), (12, 4, 3), 6000),
    ((100, 100, 100), (5, 5, 5), 40000),
    ((100, 100, 100), (8, 8, 8), 40000),
    ((20, 20, 20, 20), (3, 3, 3, 3), 20000),
)
GRAM, REPEATS = 700, 3
# D10: size, rank and known share of the tensors; condition numbers, and tensors of each; of ALS
SIZE, RANK, SHARE = 100, 5, 0.1
CONDITIONS, TRIALS, TRIALS_OF_ALS = (1, 10, 100), 7, 3


def run() -> Iterator[Row]:
    """Rows of all measurements, with one BLAS thread."""
    with threadpool_limits(1, user_api="blas"):
        yield from step_rows()
        yield from default_rows()


def step_rows(cases: Sequence[Case] = CASES, repeats: int = REPEATS) -> Iterator[Row]:
    """Measured seconds of a step over those of the model; then the coefficients that fit best."""
    for solver in SOLVERS:
        points = []
        for shape, rank, m in cases:
            if solver == "gram" and degrees_of_freedom(shape, rank) > GRAM:
                continue
            took = measured(solver, shape, rank, m, repeats)
            points.append((terms(solver, m, shape, rank), took))
            what = f"{solver}, {'x'.join(map(str, shape))}, rank {rank}, m = {m}"
            ratio = took / seconds(solver, m, shape, rank)
            yield Row(what, ratio, "", None, f"{1e6 * took:.0f} us, in units of the model")
        best, used = (
            ", ".join(f"{c:.2g}" for c in some)
            for some in (coefficients(points), COEFFICIENTS[solver])
        )
        yield Row(f"{solver}, coefficients", 1.0, "", None, f"({best}); in use ({used})")


def measured(
    solver: str, shape: tuple[int, ...], rank: tuple[int, ...], m: int, repeats: int = REPEATS
) -> float:
    """Median CPU seconds of a sweep, a step or, by products, a pass."""
    draws = np.random.default_rng(0).integers(0, shape, (m, len(shape)))
    A = EntriesOperator(shape, draws)
    bound = SOLVERS[solver].bind(Problem(A, A.forward(random_tucker(shape, rank, seed=0))), rank)
    state, times = bound.init(None, 0), []
    for _ in range(repeats):
        before = state.passes
        state, took = timed(partial(bound.advance, state), time.process_time)
        times.append(took / (state.passes - before if solver == "products" else 1.0))
    return median(times)


def coefficients(points: Sequence[tuple[Sequence[float], float]]) -> list[float]:
    """Non-negative coefficients of the terms that fit the times best, relative to each time."""
    from scipy.optimize import nnls

    rows = np.array([np.asarray(each) / took for each, took in points])
    scale = rows.max(axis=0)
    found: list[float] = (nnls(rows / scale, np.ones(len(rows)))[0] / scale).tolist()
    return found


def default_rows(n: int = SIZE, trials: int = TRIALS, of_als: int = TRIALS_OF_ALS) -> Iterator[Row]:
    """D10: CPU seconds of the default solver over those of ALS, and how often it is right."""
    for condition in CONDITIONS:
        problems = [conditioned(n, RANK, condition, seed) for seed in range(trials)]
        ours = [_solved(X, A, "auto") for X, A in problems]
        als = [_solved(X, A, "als") for X, A in problems[:of_als]]
        right = sum(error <= 1e-5 for error, _ in ours)
        times = [median(took for _, took in some) for some in (ours, als)]
        ratio = times[0] / times[1]
        what = f"D10, {n}^3, rank {RANK}, {SHARE:.0%} known, condition number {condition}"
        detail = (
            f"{1e6 * times[0]:.0f} us, ALS {1e6 * times[1]:.0f} us; "
            f"{right} of {trials} right to 1e-5"
        )
        yield Row(what, ratio, "<= 1", ratio <= 1 and right == trials, detail)


def conditioned(n: int, r: int, condition: float, seed: int) -> tuple[TuckerTensor, Any]:
    """Tensor n^3 of rank r whose unfoldings have a condition number, and an operator of samples."""
    rng = np.random.default_rng(seed)
    core = np.zeros((r, r, r))
    core[(np.arange(r),) * 3] = np.geomspace(1, 1 / condition, r) * n**1.5
    factors = [np.linalg.qr(rng.standard_normal((n, r)))[0] for _ in range(3)]
    flat = rng.choice(n**3, int(SHARE * n**3), replace=False)
    index = np.stack(np.unravel_index(flat, (n, n, n)), axis=1)
    return TuckerTensor.from_factors(core, factors), EntriesOperator((n, n, n), index)


def _solved(X: TuckerTensor, A: Any, solver: str) -> tuple[float, float]:
    """Error and CPU seconds of a recovery."""
    y = A.forward(X)
    result, took = timed(lambda: recover(A, y, X.rank, solver=solver), time.process_time)
    return float(relative_error(result.X, X)), took
