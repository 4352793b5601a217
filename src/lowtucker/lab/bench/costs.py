"""``lowtucker bench costs``: what a step of each solver costs on sampled entries, and the model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import threadpoolctl

from lowtucker.lab.bench.timing import Row
from lowtucker.operators import EntriesOperator
from lowtucker.problem import Problem
from lowtucker.solvers import ALS, RCG, RGN, Solver
from lowtucker.solvers.costs import COEFFICIENTS, seconds, terms
from lowtucker.tensor.random import random_tucker
from lowtucker.tensor.rank import degrees_of_freedom

__all__ = ["coefficients", "measured", "run"]

SOLVERS: dict[str, Solver] = {
    "ALS": ALS(),
    "RCG": RCG(),
    "products": RGN(products=True),
    "gram": RGN(products=False),
}
# Shapes, ranks and samples; normal equations are measured on those with at most GRAM dof
CASES = (
    ((20, 20, 20), (2, 2, 2), 1200),
    ((50, 50, 50), (3, 3, 3), 4500),
    ((50, 50, 50), (3, 3, 3), 20000),
    ((30, 40, 50), (12, 4, 3), 6000),
    ((100, 100, 100), (5, 5, 5), 40000),
    ((100, 100, 100), (8, 8, 8), 40000),
    ((20, 20, 20, 20), (3, 3, 3, 3), 20000),
)
GRAM, REPEATS = 700, 3


def measured(
    solver: str, shape: tuple[int, ...], rank: tuple[int, ...], m: int, repeats: int = REPEATS
) -> float:
    """Median CPU seconds of a sweep, a step or, by products, a pass."""
    draws = np.random.default_rng(0).integers(0, shape, (m, len(shape)))
    A = EntriesOperator(shape, draws)
    problem = Problem(A, A.forward(random_tucker(shape, rank, seed=0)))
    bound = SOLVERS[solver].bind(problem, rank)
    state, times = bound.init(None, 0), []
    for _ in range(repeats):
        begin, before = time.process_time(), state.passes
        state = bound.advance(state)
        passes = state.passes - before if solver == "products" else 1.0
        times.append((time.process_time() - begin) / passes)
    return median(times)


def coefficients(points: list[tuple[tuple[float, ...], float]]) -> tuple[float, ...]:
    """Non-negative coefficients of the terms that fit the times best, relative to each time."""
    from scipy.optimize import nnls

    rows = np.array([np.asarray(each) / took for each, took in points])
    scale = rows.max(axis=0)
    found = nnls(rows / scale, np.ones(len(rows)))[0] / scale
    return tuple(float(c) for c in found)


def run(cases: Any = CASES) -> Iterator[Row]:
    """Rows: measured seconds over those of the model, which has no target; then coefficients."""
    with threadpoolctl.threadpool_limits(1):
        for solver in SOLVERS:
            points = []
            for shape, rank, m in cases:
                if solver == "gram" and degrees_of_freedom(shape, rank) > GRAM:
                    continue
                took = measured(solver, shape, rank, m)
                points.append((terms(solver, m, shape, rank), took))
                what = f"{solver} {'x'.join(map(str, shape))}, rank {rank}, m = {m}"
                ratio = took / seconds(solver, m, shape, rank)
                yield Row(what, ratio, "", None, f"{1e3 * took:.3g} ms")
            best = ", ".join(f"{c:.2g}" for c in coefficients(points))
            used = ", ".join(f"{c:.2g}" for c in COEFFICIENTS[solver])
            yield Row(f"{solver}: coefficients", 1.0, "", None, f"({best}), in use ({used})")
