"""The same few problems with the library and with what people use instead: ``bench compare``.

Completion of real data with holes, and recovery from Gaussian measurements with m well below the
number of entries. Small problems, all data shipped with packages, minutes.
"""

from __future__ import annotations

import datetime
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker.datasets import indian_pines
from lowtucker.lab.bench.datasets import Completion, Holes
from lowtucker.lab.bench.imputers import IMPUTERS, SIMPLE, Imputer
from lowtucker.lab.bench.methods import STOTIHT, Case, TensorLy
from lowtucker.lab.bench.realdata import warm_up
from lowtucker.lab.bench.timing import check_names, timed
from lowtucker.lab.experiments.success import published_solver
from lowtucker.metrics import relative_error
from lowtucker.operators import gaussian, to_pylops
from lowtucker.problem import Problem
from lowtucker.recovery import complete, recover, solve
from lowtucker.run.result import Result
from lowtucker.run.stopping import MaxEpochs
from lowtucker.tensor import random_tucker

__all__ = ["NAMES", "PROBLEMS", "Holed", "Measured", "Row", "chosen", "markdown", "run"]

NumPyArray = np.ndarray[Any, Any]
DEFAULT = "lowtucker"
# What people complete real data with; main effects and means have no package
OTHERS = (*(one for one in IMPUTERS if one.name not in ("means", "main effects")), SIMPLE)
GIVEN = {
    "TensorLy tucker": "rank, by held-out entries",
    "TensorLy parafac": "rank, by held-out entries",
    "KNNImputer": "unfolding, by held-out entries",
    "IterativeImputer": "unfolding, by held-out entries",
    "SimpleImputer": "unfolding, by held-out entries",
}
# The authors' script of Figure 3, the only one with m < N: mu = m, blocks of m/2 rows, 200 epochs
MU_OVER_M, BLOCKS, EPOCHS = 1.0, 2, 200
LSQR = 1000
# StoTIHT stops at this error where it is told the truth
TOL = 1e-8


@dataclass(frozen=True)
class Row:
    """A method on a problem.

    Parameters
    ----------
    problem : str
        Key of :data:`PROBLEMS`.
    data, method : str
    given : str
        What the method has to be given besides the data and the operator.
    error : float
        Relative: on hidden entries, or of the whole tensor where it was measured. NaN if the method
        was not run.
    seconds : float
        CPU seconds with one BLAS thread; the choice of settings is included unless the note says
        otherwise, imports are not.
    ratio : float
        Seconds in units of those of the library's own default call.
    note : str
        Settings that were chosen; why a method was not run.
    measured : str
        Date of the run.
    """

    problem: str
    data: str
    method: str
    given: str
    error: float
    seconds: float
    ratio: float
    note: str
    measured: str


class Outcome(NamedTuple):
    """Error of a method, its CPU seconds, and a note."""

    error: float
    seconds: float
    note: str = ""


class Contender(NamedTuple):
    """A method on one problem: its name, what it is given, and its run."""

    method: str
    given: str
    run: Callable[[], Outcome]


@dataclass(frozen=True)
class Holed:
    """Real data of which entries are hidden."""

    task: Completion
    others: Sequence[Imputer] = OTHERS

    @property
    def what(self) -> str:
        """The data, and what is hidden."""
        return self.task.what

    def contenders(self) -> Iterator[Contender]:
        """Yield the methods, the library first."""
        holes = self.task.holes(Path())
        yield Contender(DEFAULT, "nothing", partial(self._ours, holes))
        for other in self.others:
            yield Contender(other.name, GIVEN[other.name], partial(self._theirs, other, holes))

    def _ours(self, holes: Holes) -> Outcome:
        result, seconds = timed(lambda: complete(holes.array), time.process_time)
        return Outcome(self.task.error(result.X.full(), holes), seconds, _note(result))

    def _theirs(self, other: Imputer, holes: Holes) -> Outcome:
        filled, seconds = timed(lambda: other(holes), time.process_time)
        return Outcome(self.task.error(filled.X, holes), seconds, filled.label)


@dataclass(frozen=True)
class Measured:
    """A tensor that is measured by a Gaussian operator.

    Parameters
    ----------
    what : str
    truth : callable
        Returns the tensor.
    m : int
    rank : tuple of int
        For the methods that need one. Of Indian Pines it is the one at which StoTIHT has the
        smallest true error, among 11 from (2, 2, 2) to (10, 10, 4): in favour of these methods.
    steps : tuple of float
        Steps of StoTIHT from which the truth chooses.
    """

    what: str
    truth: Callable[[], NumPyArray]
    m: int
    rank: tuple[int, ...]
    steps: tuple[float, ...] = STOTIHT.steps

    def contenders(self) -> Iterator[Contender]:
        """Yield the methods, the library first."""
        truth = self.truth()
        A = gaussian(truth.shape, self.m, seed=0)
        case = Case(A, A.forward(truth), truth, self.rank)
        rank = f"rank {self.rank}"
        yield Contender(DEFAULT, "nothing", partial(_ours, case, None))
        yield Contender(f"{DEFAULT}, rank given", rank, partial(_ours, case, self.rank))
        yield Contender("PyLops lsqr", "nothing", partial(_least_norm, case))
        for name in ("TIHT", "StoTIHT"):
            yield Contender(f"{name}, published", f"{rank}, step", partial(_published, case, name))
        truthful = f"{rank}, step and end, by the truth"
        yield Contender("StoTIHT, tuned", truthful, partial(_tuned, case, self.steps))
        yield Contender("TensorLy TuckerRegressor", rank, partial(_regression, case))


def _ours(case: Case, rank: tuple[int, ...] | None) -> Outcome:
    result, seconds = timed(lambda: recover(case.A, case.y, rank), time.process_time)
    return Outcome(float(relative_error(result.X, case.X_true)), seconds, _note(result))


def _note(result: Result) -> str:
    """The status; whether the default time limit cut the call short."""
    cut = any(finding.kind == "time limit" for finding in result.findings)
    return f"{result.status.name}{', stopped at the time limit' if cut else ''}"


def _least_norm(case: Case) -> Outcome:
    """What PyLops offers for y = A x without a model of x: least squares, of minimum norm here."""
    from pylops.optimization.basic import lsqr

    operator = to_pylops(case.A)
    found, seconds = timed(
        lambda: lsqr(operator, case.y, niter=LSQR, atol=1e-8, btol=1e-8), time.process_time
    )
    error = float(relative_error(found[0].reshape(case.A.shape), case.X_true))
    return Outcome(error, seconds, f"minimum norm, {found[2]} iterations")


def _published(case: Case, name: str) -> Outcome:
    """The algorithm and the step of the authors' script, for which A has Frobenius norm 1."""
    A = gaussian(case.A.shape, case.A.m, seed=0, normalize="frobenius")
    problem = Problem(A, A.forward(case.X_true))
    solver = published_solver(name, A.m, A.m // BLOCKS, MU_OVER_M)
    result, seconds = timed(
        lambda: solve(problem, solver, case.rank, stop=MaxEpochs(EPOCHS)), time.process_time
    )
    error = float(relative_error(result.X, case.X_true))
    return Outcome(error, seconds, f"mu = m, {EPOCHS} epochs, as in Figure 3")


def _tuned(case: Case, steps: Sequence[float]) -> Outcome:
    """StoTIHT at the step with the smallest error; the truth also says when to stop."""
    runs = {step: STOTIHT.with_step(step).run(case, tol=TOL) for step in steps}
    best = min(runs, key=lambda step: float(runs[step].score))
    note = f"step {best:g}; stops by the truth; the time of the best run alone"
    return Outcome(float(runs[best].score), runs[best].seconds, note)


def _regression(case: Case) -> Outcome:
    found = TensorLy().run(case, tol=0.0)
    return Outcome(float(found.score), found.seconds, "at most 100 iterations, ridge 1e-9")


def _low_rank(
    shape: tuple[int, ...] = (20, 20, 20), rank: tuple[int, ...] = (3, 3, 3)
) -> NumPyArray:
    X: NumPyArray = random_tucker(shape, rank, seed=0).full()
    return X


def _farmland() -> NumPyArray:
    return indian_pines().values[40:60, 40:60, ::10]


PROBLEMS: Mapping[str, Holed | Measured] = {
    "photograph": Holed(
        Completion(name="photograph", what="photograph, 107x160x3, half of the values missing",
                   source="photograph", rate=0.5)
    ),
    "il2": Holed(
        Completion(name="il2", what="IL-2 responses, 13x4x12x8, half of the values missing",
                   source="IL2", rate=0.5)
    ),
    "kinetic": Holed(
        Completion(name="kinetic", what="fluorescence, 64x12x10x6, 80 % of the values missing",
                   source="kinetic", rate=0.8)
    ),
    "lowrank": Measured(
        "20x20x20, rank (3, 3, 3), 1000 Gaussian measurements", _low_rank, 1000, (3, 3, 3)
    ),
    "pines": Measured(
        "Indian Pines, 20x20x20, 1000 Gaussian measurements", _farmland, 1000, (8, 8, 3)
    ),
}  # fmt: skip
NAMES = tuple(PROBLEMS)


def chosen(names: Sequence[str]) -> dict[str, Holed | Measured]:
    """Return problems by name."""
    check_names(names, NAMES)
    return {name: PROBLEMS[name] for name in names}


def run(problems: Mapping[str, Holed | Measured]) -> Iterator[Row]:
    """Yield rows as they are measured, with one BLAS thread."""
    today = datetime.date.today().isoformat()
    _warm_up(problems)
    for name, problem in problems.items():
        ours = math.nan
        for method, given, trial in problem.contenders():
            with one_blas_thread(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcome = _tried(trial)
            ours = outcome.seconds if method == DEFAULT else ours
            yield Row(
                name, problem.what, method, given, outcome.error, outcome.seconds,
                outcome.seconds / ours, outcome.note, today,
            )  # fmt: skip


def _tried(trial: Callable[[], Outcome]) -> Outcome:
    """Run a method; say why not if its package is missing."""
    try:
        return trial()
    except ImportError as error:
        return Outcome(math.nan, math.nan, f"not run: {error}")


def _warm_up(problems: Mapping[str, Holed | Measured]) -> None:
    """Run every method on a small tensor, to exclude imports and other one-time costs."""
    kinds = {type(problem) for problem in problems.values()}
    if Holed in kinds:
        warm_up(OTHERS)
    if Measured in kinds:
        small = Measured("", lambda: _low_rank((5, 5, 5), (1, 1, 1)), 80, (1, 1, 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for contender in small.contenders():
                _tried(contender.run)


def markdown(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table; methods that were not run are left out."""
    lines = ["| data | method | given | error | CPU s | time / ours |", "| --- " * 6 + "|"]
    lines += [
        f"| {r.data} | {r.method} | {r.given} | {r.error:.2g} | {r.seconds:.2g} | {r.ratio:.2g} |"
        for r in rows
        if not math.isnan(r.error)
    ]
    return "\n".join(lines) + "\n"
