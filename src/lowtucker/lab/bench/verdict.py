r"""How often the verdict of ``recover`` is right: ``lowtucker bench verdict``.

Each problem of the zoo (:mod:`lowtucker.lab.bench.zoo`; with ``--hostile``
:mod:`lowtucker.lab.bench.hostile`) is solved, and its result compared with the truth. With the true
relative error e (on the hidden entries, for real data), the estimate (``error_estimate``, or
``held_out`` where there is none) and the oracle's error :math:`e_o`:

- *false success*: success, although e > 1, or e > 3 times the estimate (or there is none) and
  e > 1e-5.
- *false failure*: no success, although e is within a factor 2 of the oracle's and
  :math:`e_o \le 0.1`: the verdict is at fault.
- *missed*: no success, e above twice the oracle's, although :math:`e_o \le 0.1` and there are 1.5
  measurements or more per degree of freedom: the solver is at fault.
- *crash*: an exception, or a NaN in the result.
- *success* and *failure*: all others.

No failure is counted where the rank is too small or m is at most the degrees of freedom.

The oracle knows the truth, a tensor of exact rank, and starts there. With noise its error is that
of Gauss-Newton from the truth, at the rank that is given (the true one where none is), or that of
least squares on the true tangent space if this is larger: where the design is ill-conditioned,
Gauss-Newton hardly leaves its start. Without noise it is what the tolerance leaves open in the
worst direction, :math:`tol \, \|y\| / (\sigma_{\min} \|X\|)` with the smallest singular value of
the tangent design: nearly zero where the measurements determine X well, infinite where they do not.
Errors below 1e-5 count as zero.
Where the rank is too small or the tensor has no low rank, there is no oracle.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker.lab.bench import hostile, zoo
from lowtucker.lab.bench.draws import Trial
from lowtucker.lab.bench.timing import timed
from lowtucker.problem import Problem
from lowtucker.recovery import recover, solve
from lowtucker.run.result import Result
from lowtucker.run.stopping import MaxEpochs, ResidualBelow, Stalled
from lowtucker.solvers import RGN
from lowtucker.tensor import TangentSpace, hosvd

__all__ = [
    "CRASH",
    "FAILURE",
    "FALSE_FAILURE",
    "FALSE_SUCCESS",
    "MISSED",
    "MISSES",
    "NEGLIGIBLE",
    "SKIPPED",
    "SOURCES",
    "SUCCESS",
    "Row",
    "check_kernel",
    "examine",
    "judge",
    "oracle_error",
    "outcome",
    "run",
    "solved",
    "verdict",
]

NumPyArray = np.ndarray[Any, Any]
# Where problems come from
SOURCES = {"usual": zoo.problem, "hostile": hostile.problem}
# Verdicts that are wrong, in the order of the tables
MISSES = (FALSE_SUCCESS, FALSE_FAILURE, MISSED, CRASH) = (
    "false success", "false failure", "missed", "crash",
)  # fmt: skip
SUCCESS, FAILURE, SKIPPED = "success", "failure", "skipped"
# Variable by which OpenBLAS is told its kernel, as it is loaded
CORETYPE = "OPENBLAS_CORETYPE"
# Wall seconds of a call
SECONDS = 20.0
# Tolerance of the residual, the default of `recover`; errors that count as zero
TOL, NEGLIGIBLE = 1e-6, 1e-5
# False success: so many estimates. Failures: so many oracle's errors, if that is at most SMALL
COVERED, NEAR, SMALL, PLENTY = 3.0, 2.0, 0.1, 1.5
# Tangent designs with a smaller ratio of singular values are singular to rounding
SINGULAR = 1e-12
# Distance of the oracle's start from the truth, where the rank that is given is larger
NUDGE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Row:
    """One problem, its result, and the judgement.

    Parameters
    ----------
    seed, index : int
        What the problem is a function of.
    family, operator, noise, given : str
        As in :class:`lowtucker.lab.bench.zoo.Trial`.
    level : float
        Size of the noise.
    shape, rank, rank_given : str
    m : int
    m_per_dof : float
        Equations per degree of freedom of the rank that is given, or else of the true one.
    status : str
    success : bool or None
        None after a crash.
    error : float
        True relative error.
    estimate, low, high : float
        Estimate of it and its interval; NaN where there is none.
    oracle : float
        Error of the oracle; NaN where there is none.
    verdict : str
    seconds : float
        CPU seconds of the call.
    note : str
        The exception.
    """

    seed: int
    index: int
    family: str
    operator: str
    noise: str
    level: float
    given: str
    shape: str
    rank: str
    rank_given: str
    m: int
    m_per_dof: float
    status: str = ""
    success: bool | None = None
    error: float = math.nan
    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    oracle: float = math.nan
    verdict: str = ""
    seconds: float = math.nan
    note: str = ""

    @property
    def recoverable(self) -> bool:
        """Whether the oracle's error is small, and a failure would be at fault."""
        return self.given != "small" and self.m_per_dof > 1 and self.oracle <= SMALL

    @property
    def near(self) -> bool:
        """Whether the error is about the oracle's."""
        return self.error <= max(NEAR * self.oracle, NEGLIGIBLE)

    @property
    def covered(self) -> bool:
        """Whether the error is at most a few estimates."""
        return self.error <= 1 and (
            self.error <= NEGLIGIBLE or self.error <= COVERED * self.estimate
        )


def verdict(row: Row) -> str:
    """Judge a row by the definitions of this module."""
    if row.success is None:
        return CRASH
    if row.success:
        return SUCCESS if row.covered else FALSE_SUCCESS
    if row.recoverable and row.near:
        return FALSE_FAILURE
    return MISSED if row.recoverable and row.m_per_dof >= PLENTY else FAILURE


def run(
    seed: int,
    indices: Sequence[int],
    jobs: int = 2,
    kernel: str | None = None,
    source: str = "usual",
) -> Iterator[Row]:
    """Yield the rows of some problems, in their order; in new processes with one BLAS thread.

    Parameters
    ----------
    seed : int
    indices : sequence of int
    jobs : int
        Number of processes.
    kernel : str, optional
        Kernel of OpenBLAS to use, such as "Haswell": it decides how sums are rounded, those that
        make the problem as well.
    source : {"usual", "hostile"}
        Where problems come from.

    Notes
    -----
    A call has 20 seconds of wall time: on a busy machine, slow problems may end earlier than on an
    idle one, with another verdict.
    """
    with _processes(jobs, kernel) as pool:
        yield from pool.map(partial(outcome, seed, source=source), indices)


def check_kernel(kernel: str) -> None:
    """Raise ValueError if BLAS does not change with this kernel: it ignores unknown names."""
    names = []
    for one in (None, kernel):
        with _processes(1, one) as pool:
            names.append(pool.submit(_architecture).result())
    if names[0] == names[1]:
        raise ValueError(
            f"With the kernel {kernel!r} BLAS is {names[1]}, as without it; expected another "
            "kernel of OpenBLAS that this CPU can run. Try Haswell, Nehalem or Prescott."
        )


def _architecture() -> str:
    from threadpoolctl import threadpool_info

    found = (pool for pool in threadpool_info() if pool["user_api"] == "blas")
    return ", ".join(dict.fromkeys(f"{p['internal_api']} {p.get('architecture')}" for p in found))


@contextmanager
def _processes(jobs: int, kernel: str | None) -> Iterator[ProcessPoolExecutor]:
    """Start new processes, in which BLAS has this kernel; None for the usual one."""
    before = os.environ.get(CORETYPE)
    if kernel is not None:
        os.environ[CORETYPE] = kernel
    try:
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
            yield pool
    finally:
        if before is not None:
            os.environ[CORETYPE] = before
        else:
            os.environ.pop(CORETYPE, None)


def outcome(seed: int, index: int, source: str = "usual") -> Row:
    """Draw a problem, solve and judge it."""
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            trial = SOURCES[source](seed, index)
        except ImportError as error:  # real data that are not installed
            return _skipped(seed, index, str(error))
        return judge(trial)


def _skipped(seed: int, index: int, reason: str) -> Row:
    return Row(
        seed=seed, index=index, family="real", operator="entries", noise="unknown", level=math.nan,
        given="none", shape="", rank="", rank_given="", m=0, m_per_dof=math.nan, verdict=SKIPPED,
        note=reason,
    )  # fmt: skip


def judge(trial: Trial) -> Row:
    """Return the row of :func:`examine`."""
    return examine(trial)[0]


def examine(trial: Trial) -> tuple[Row, Result | None]:
    """Solve a problem and compare the result with the truth and with the oracle.

    The result is None after an exception. Costs the call, and with an oracle another fit and the
    singular values of the tangent design.
    """
    row = Row(
        seed=trial.seed,
        index=trial.index,
        family=trial.family,
        operator=trial.operator,
        noise=trial.noise,
        level=trial.level,
        given=trial.given,
        shape=_sizes(trial.A.shape),
        rank=_sizes(trial.rank),
        rank_given=_sizes(trial.arguments.get("rank")),
        m=trial.A.m,
        m_per_dof=trial.m_per_dof,
    )
    try:
        row = replace(row, oracle=oracle_error(trial))
        result, seconds = timed(partial(solved, trial), time.process_time)
    except Exception as error:  # a crash is an outcome
        refused = trial.refusable and isinstance(error, ValueError)
        return replace(
            row, verdict=FAILURE if refused else CRASH, note=f"{type(error).__name__}: {error}"
        ), None
    row = replace(row, seconds=seconds, **_facts(trial, result))
    return replace(row, verdict=verdict(row)), result


def _sizes(numbers: Any) -> str:
    if numbers is None or isinstance(numbers, str):
        return numbers or "none"
    return ",".join(map(str, numbers))


def solved(trial: Trial) -> Result:
    """Call ``recover`` on a problem, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return recover(trial.A, trial.y, max_seconds=SECONDS, **trial.arguments)


def _facts(trial: Trial, result: Result) -> dict[str, Any]:
    """What a row says of a result; a NaN is a crash."""
    error = _error(trial, np.asarray(result.X.full()))
    estimate = result.held_out if result.error_estimate is None else result.error_estimate
    low, high = result.error_interval or (math.nan, math.nan)
    broken = [
        name
        for name, number in {"X": error, "residual": result.residual, "estimate": estimate}.items()
        if number is not None and math.isnan(number)
    ]
    return {
        "status": result.status.name,
        "success": None if broken else bool(result.success),
        "error": error,
        "estimate": math.nan if estimate is None else float(estimate),
        "low": float(low),
        "high": float(high),
        "note": f"NaN: {', '.join(broken)}" if broken else "",
    }


def _error(trial: Trial, X: NumPyArray) -> float:
    """Relative error, on the hidden entries where there are some; infinite if the truth is zero."""
    where = ... if trial.hidden is None else trial.hidden
    distance = float(np.linalg.norm(X[where] - trial.X_true[where]))
    size = float(np.linalg.norm(trial.X_true[where]))
    return distance / size if size else (math.inf if distance else 0.0)


def oracle_error(trial: Trial) -> float:
    """Error of the estimator that starts at the truth; NaN where there is none.

    Costs the singular values of the tangent design, and with noise a Gauss-Newton fit.
    """
    if trial.rank is None or trial.given == "small":
        return math.nan
    truth = hosvd(trial.X_true, trial.rank)
    design = np.asarray(trial.A.tangent(TangentSpace(truth)).dense())
    if np.iscomplexobj(design) and not np.iscomplexobj(trial.X_true):
        design = np.concatenate([design.real, design.imag])
    values = np.linalg.svd(design, compute_uv=False)
    if design.shape[0] < design.shape[1] or values[-1] <= SINGULAR * values[0]:
        return math.inf
    size = np.linalg.norm(trial.X_true)
    if trial.noise == "none":
        return float(TOL * np.linalg.norm(trial.y) / (values[-1] * size))
    error = _error(trial, np.asarray(_from_truth(trial).X.full()))
    if trial.arguments.get("loss") == "huber":
        return error
    noise = trial.y - trial.A.forward(trial.X_true)
    if len(noise) < len(design):
        noise = np.concatenate([noise.real, noise.imag])
    step = np.linalg.lstsq(design, noise, rcond=None)[0]
    return max(error, float(np.linalg.norm(step) / size))


def _from_truth(trial: Trial) -> Result:
    """Fit by Gauss-Newton from the truth, at the rank that is given or else the true one."""
    rank, X = trial.fitted_rank, trial.X_true
    if rank != trial.rank:  # a nudge, since the truth has no tangent space of that dimension
        nudge = np.random.default_rng(0).standard_normal(X.shape)
        X = X + NUDGE * np.linalg.norm(X) / np.linalg.norm(nudge) * nudge
    start = hosvd(X, rank)
    if "loss" in trial.arguments:
        changed = {"rank": rank, "solver": RGN(), "start": start}
        return solved(replace(trial, arguments={**trial.arguments, **changed}))
    stop = ResidualBelow(1e-12) | Stalled() | MaxEpochs(100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return solve(Problem(trial.A, trial.y), RGN(), rank, start=start, stop=stop)
