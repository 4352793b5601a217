"""Solvers, one algorithm a file. A new one is one line in ``SOLVERS``."""

from __future__ import annotations

from typing import Any

from lowtucker.solvers.als import ALS
from lowtucker.solvers.amp import AMP
from lowtucker.solvers.annealing import Annealing
from lowtucker.solvers.base import Bound, Memory, Solver, State
from lowtucker.solvers.nuclear import NuclearNorm
from lowtucker.solvers.rcg import RCG
from lowtucker.solvers.rgn import RGN
from lowtucker.solvers.rsgd import RSGD
from lowtucker.solvers.schedule import GrowingRank
from lowtucker.solvers.stogradmp import StoGradMP
from lowtucker.solvers.stotiht import StoTIHT
from lowtucker.solvers.tiht import TIHT

__all__ = [
    "ALS",
    "AMP",
    "RCG",
    "RGN",
    "RSGD",
    "SOLVERS",
    "TIHT",
    "Annealing",
    "Bound",
    "GrowingRank",
    "Memory",
    "NuclearNorm",
    "Solver",
    "State",
    "StoGradMP",
    "StoTIHT",
    "as_solver",
]

SOLVERS: dict[str, type[Solver]] = {
    "tiht": TIHT,
    "stotiht": StoTIHT,
    "rsgd": RSGD,
    "rgn": RGN,
    "rcg": RCG,
    "als": ALS,
    "stogradmp": StoGradMP,
    "amp": AMP,
    "annealing": Annealing,
    "nuclear": NuclearNorm,
}


def as_solver(solver: Any) -> Solver:
    """Make a solver of a name, a class or a solver."""
    if isinstance(solver, Solver):
        return solver
    if isinstance(solver, Bound):  # which was bound to another problem, perhaps
        return solver.solver
    if isinstance(solver, type) and issubclass(solver, Solver):
        return solver()
    if isinstance(solver, str) and solver.lower() in SOLVERS:
        return SOLVERS[solver.lower()]()
    raise (ValueError if isinstance(solver, str) else TypeError)(
        f"solver must be one of {', '.join(map(repr, ['auto', *SOLVERS]))}, or a solver such as "
        f"lowtucker.StoTIHT(block_size=100); got {solver!r}."
    )
