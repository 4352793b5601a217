"""The policy of ``solver="auto"``: which solvers, in which order; and whether they fit memory."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lowtucker._array import size, to_numpy
from lowtucker._array.log import logger
from lowtucker._array.memory import available_memory, readable_bytes
from lowtucker.limits import PLENTY
from lowtucker.problem import Problem
from lowtucker.solvers import ALS, RCG, RGN, RSGD, TIHT, Solver, StoGradMP, StoTIHT, as_solver
from lowtucker.solvers.costs import expected, gram_pays, has_outer_products
from lowtucker.solvers.iht import Thresholded
from lowtucker.solvers.noise import FULL
from lowtucker.solvers.rgn import LARGE
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.thresholding import Thresholding
from lowtucker.thresholding.sparse import Sparsity

__all__ = ["automatic", "check_memory", "of_format", "phases_of"]

log = logger("solvers")
# Bytes below which nobody asks how much memory is free
NOTICEABLE = 10**8
# Starts that "auto" tries when it meets local minima, and how it prepares them; not those of TINY
# tensors: with 26 to 32 measurements of 5x5x6 tensors of rank (1,2,2) as many of 400 were found
# without (395, 398, 400 against 394, 397, 400); of 8x8x8 tensors, rank 2, m = 52, 72 of 100, not 85
STARTS, IHT_STEPS, TINY = 100, 20, 256
# Predicted seconds of all starts by products; measurements per degree of freedom from which on one
# start suffices
START_SECONDS, AMPLE = 20.0, 20.0


def phases_of(solver: Any, problem: Problem, rank: Any) -> list[Solver]:
    """Solvers that take over from each other, by what a call was given."""
    if isinstance(solver, list | tuple) and solver:
        return [as_solver(one) for one in solver]
    if not isinstance(solver, str) or solver.lower() != "auto":
        return [as_solver(solver)]
    if rank is None:
        raise ValueError('rank is needed for solver="auto".')
    return automatic(problem, rank)


def of_format(thresholding: Thresholding, solver: Any, problem: Problem) -> list[Solver]:
    """Solvers for a format that is given in place of a rank: all of them threshold to it.

    "auto" is StoGradMP for sparse formats, which recovered 50 of 50 vectors (n = 256, s = 20) at
    m = 70 where StoTIHT recovered 9 and TIHT 31, and then TIHT, which ends at the least-squares
    fit on the support. For others it is TIHT, after steps on blocks where there are 2.8
    measurements or more per degree of freedom: with fewer these end in local minima (6x6x6x6, TT
    rank 2, 1.75 per degree of freedom: 8 of 16, TIHT alone 14), and blocks of sampled entries say
    too little of a tensor (of order 6: StoTIHT did not converge at all).
    """
    if isinstance(solver, str) and solver.lower() == "auto":
        if isinstance(thresholding, Sparsity):
            return [StoGradMP(thresholding=thresholding), TIHT(thresholding=thresholding)]
        last = TIHT(thresholding=thresholding)
        plenty = PLENTY * thresholding.degrees_of_freedom(problem.shape)
        entries = problem.trial(0).A.entry_samples() is not None
        if entries or problem.fewest_equations < plenty:
            return [last]
        return [StoTIHT(thresholding=thresholding), last]
    phases = solver if isinstance(solver, list | tuple) and solver else [solver]
    return [_thresholding_to(thresholding, as_solver(one)) for one in phases]


def _thresholding_to(thresholding: Thresholding, solver: Solver) -> Solver:
    """Solver with a thresholding that a call gave in place of a rank."""
    if isinstance(solver, Thresholded) and solver.thresholding is None:
        return replace(solver, thresholding=thresholding)
    why = (
        "has a thresholding of its own"
        if isinstance(solver, Thresholded)
        else "works at Tucker ranks"
    )
    raise ValueError(
        f"rank is the format {thresholding!r}, but the solver {solver!r} {why}. Try "
        'solver="auto", or lowtucker.StoTIHT().'
    )


def automatic(problem: Problem, rank: Any, *, quick: bool = False) -> list[Solver]:
    """Solvers that "auto" is made of; a quick fit gives up early at local minima."""
    rank = check_rank(rank, problem.shape, warn=False)
    dof = degrees_of_freedom(problem.shape, attainable_rank(rank))
    phases, why = _policy(problem, attainable_rank(rank), dof, quick)
    level = logging.DEBUG if quick else logging.INFO
    if log.isEnabledFor(level):
        names, per_dof = ", then ".join(one.name for one in phases), problem.fewest_equations / dof
        said = "Rank %s has %.3g measurements per degree of freedom. Auto takes %s: %s."
        log.log(level, said, rank, per_dof, names, why)
    return phases


def _policy(
    problem: Problem, rank: tuple[int, ...], dof: int, quick: bool
) -> tuple[list[Solver], str]:
    """Solvers for a rank, and why these."""
    traits = problem.A.traits
    plenty = problem.fewest_equations >= PLENTY * dof
    starts = (1 if plenty else 3) if quick else STARTS
    samples = has_outer_products(problem)
    if not (traits.has_fast_tangent and (samples or gram_pays(problem, rank))):
        return [RCG(), RGN(starts=starts)], "products with A cost less than normal equations"
    if samples:
        cheap = _by_cost(problem, rank, starts)
        if cheap is not None:
            return cheap, "rows are outer products, and this should take the least time"
    if not plenty:
        prepared = TINY < size(problem.shape) <= FULL
        steps = IHT_STEPS if prepared else 0
        return [RGN(starts=starts, iht_steps=steps)], "that is too few for steps on blocks"
    small = traits.row_separable and dof <= LARGE  # dof^2 numbers for a block
    if not small:
        return [RGN(starts=starts)], "steps on blocks would cost too much"
    return [
        RSGD(least_squares=True),
        RGN(starts=starts),
    ], "that is enough for steps on blocks"


def _by_cost(problem: Problem, rank: tuple[int, ...], starts: int) -> list[Solver] | None:
    """Solvers for rows that are outer products, where normal equations would cost more; or None.

    ALS or RCG, whichever should take less time, then RGN by products. Both find what Gauss-Newton
    steps from the same start often miss; RGN makes the last steps quadratic, and tries other
    starts, as many as the time allows.
    """
    dof = degrees_of_freedom(problem.shape, rank)
    first: dict[str, Solver] = {"RCG": RCG()}
    if problem.A.entry_samples() is not None:
        first["ALS"] = ALS()
    best = min(first, key=lambda name: expected(name, problem, rank))
    if dof <= LARGE and gram_pays(problem, rank, best):
        return None
    affordable = int(START_SECONDS / expected("products", problem, rank))
    if problem.fewest_equations >= AMPLE * dof:
        affordable = 1
    return [first[best], RGN(products=True, starts=max(1, min(starts, affordable)))]


def check_memory(problem: Problem, phases: Sequence[Solver], rank: Any) -> None:
    """Refuse a run that cannot fit into memory, before the kernel ends it.

    Batches are cut into parts: it is one problem that must fit.
    """
    problem = problem.trial(0)
    for solver in phases:
        ones = (1,) * len(problem.shape)  # of a format that has its own rank: tensors count
        of_rank = ones if rank is None else check_rank(rank, problem.shape, warn=False)
        need = to_numpy(problem.y[..., :0]).itemsize * solver.memory_estimate(problem, of_rank)
        if need < NOTICEABLE or need <= (free := available_memory()):
            continue
        dof = degrees_of_freedom(problem.shape, attainable_rank(of_rank))
        advice = f"It forms {dof}^2 numbers. Try lowtucker.RGN(products=True), or a smaller rank."
        if solver.forms_full_tensor:
            advice = "It forms tensors of the full size. "
            advice += 'Try solver="auto", which need not.' if rank else "Try a smaller tensor."
        elif problem.A.traits.forms_full_tensor:
            advice = (
                f"{type(problem.A).__name__} forms tensors of the full size, {problem.shape}: try "
                "operators that need not (entries, kronecker), or a smaller tensor."
            )
        raise MemoryError(
            f"{solver.name} would need about {readable_bytes(need)} beside A, and "
            f"{readable_bytes(free)} are free. {advice}"
        )
