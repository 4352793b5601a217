"""Plans of experiments: the number of measurements, the solver and the memory to expect."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from lowtucker._array import as_integer, as_shape, size
from lowtucker._array.memory import readable_bytes
from lowtucker.solvers.auto import automatic
from lowtucker.solvers.rgn import LARGE
from lowtucker.tensor.random import MOST_TRIALS
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.theory.search import smallest_level
from lowtucker.theory.transition import PhaseTransition, check_rate
from lowtucker.theory.trials import (
    LARGE_MATRIX,
    RandomRecoveries,
    Report,
    Simulation,
    as_operator_name,
    check_noise,
    draw_operator,
    per_dof,
)

__all__ = ["Plan", "plan"]

NumPyArray = np.ndarray[Any, Any]

# Number of measurements per degree of freedom that is simulated first
FIRST = {"gaussian": 3.0, "dct": 4.0, "rank-one": 8.0, "entries": 8.0}
# Relative error that counts as recovered
TOL = 1e-5
# Epochs of a trial; fewer where Gauss-Newton steps are slow, and a trial takes so many seconds: a
# success needs few, a failure all, the last ones of several starts each. 30x30x30, rank (3,3,3): a
# failure takes 5 to 8 s with 60 epochs and 1 s with 30; with 1.75 dof measurements 19 of 20 were
# recovered with 60 and 4 of 6 with 30, with 2 dof all with both
EPOCHS, FEWER_EPOCHS, LONG = 60, 30, 0.5
# Default number of trials: the largest, the smallest, and the seconds to spend on a level
MOST, FEWEST, PER_LEVEL = 20, 5, 10
# Seconds of a trial, and bytes of its operator, above which a smaller tensor is simulated
SLOW, LARGE_A = 6.0, 1.8e8
# Smallest n_k / r_k of that tensor, unless the true one has less: below it there are too few
# entries to sample
ROOM = 4
# Safety factor of an extrapolation: about one level
MARGIN = 1.25
# Bytes of a matrix above which generating its rows on the fly pays off
HUGE = 10**9


@dataclass(frozen=True, eq=False)
class Plan:
    """Expected cost and outcome of an experiment; ``str`` formats it as a table.

    Attributes
    ----------
    shape, rank : tuple of int
    operator : str
    noise : float
        Relative to the root mean square of the measurements.
    rate : float
        Required recovery rate.
    dof : int
        Degrees of freedom, a lower bound on the number of measurements.
    m : int or None
        Suggested number of measurements; None if no simulated number reached the rate.
    transition : PhaseTransition
        The simulation, of this tensor or of a smaller one (``scaled_down``).
    solvers : tuple of str
        The solvers that "auto" runs for m measurements, in order.
    operator_bytes, working_bytes : int
        Memory of the operator in double precision, and the approximate working memory of the
        recovery; 0 if m is None.
    notes : tuple of str
        Limitations of these numbers.
    """

    shape: tuple[int, ...]
    rank: tuple[int, ...]
    operator: str
    noise: float
    rate: float
    dof: int
    m: int | None
    transition: PhaseTransition
    solvers: tuple[str, ...]
    operator_bytes: int
    working_bytes: int
    notes: tuple[str, ...]

    @property
    def scaled_down(self) -> bool:
        """Whether m is extrapolated from the simulation of a smaller tensor."""
        return (self.transition.shape, self.transition.rank) != (self.shape, self.rank)

    @property
    def share(self) -> float | None:
        """Measurements per entry, m / N."""
        return None if self.m is None else self.m / size(self.shape)

    @property
    def simulated(self) -> dict[str, Any] | None:
        """Row of ``transition`` that m is based on: trials, recovered, rate and its interval.

        It is the level above the smallest one that reached the rate, possibly by chance.
        """
        m, rows = self.transition.suggest(self.rate), self.transition.rows()
        enough = [row for row in rows if m is not None and row["m"] >= m]
        return enough[:2][-1] if enough else None

    @property
    def passes(self) -> float | None:
        """Number of passes over A: the median of the simulation."""
        return None if self.simulated is None else self.simulated["median_passes"]

    @property
    def error(self) -> float | None:
        """Relative error of X: the median of the simulation."""
        return None if self.simulated is None else self.simulated["median_error"]

    def __repr__(self) -> str:
        noise = f", noise {self.noise:.3g}" if self.noise else ", no noise"
        head = f"Plan: shape {self.shape}, rank {self.rank}, operator {self.operator}{noise}"
        lines = [("degrees of freedom", str(self.dof)), *self._expected()]
        return "\n".join(
            [head, *(f"  {name:20}{text}" for name, text in lines)]
            + [f"  Note: {note}" for note in self.notes]
        )

    def _expected(self) -> list[tuple[str, str]]:
        row = self.simulated
        if self.m is None or row is None:
            most = self.transition.m[-1] / self.transition.dof
            return [("measurements", f"none up to {most:.3g} dof reached a rate of {self.rate:g}")]
        rates = f"{row['rate_low']:.0%} and {row['rate_high']:.0%} (95 % confidence)"
        recovered = f"{row['recovered']} of {row['trials']} simulated; the rate is between {rates}"
        median = "median"
        if self.scaled_down:  # its rate is not this tensor's
            recovered = f"not simulated: m is extrapolated from shape {self.transition.shape}"
            median = "median of the smaller tensor"
        return [
            ("measurements", f"{self.m}: {self.m / self.dof:.2f} dof, {self.share:.3g} per entry "
             "of X"),
            ("recovered", recovered),
            ("solver", f"auto: {', then '.join(self.solvers)}"),
            ("passes over A", f"{row['median_passes']:.1f} ({median})"),
            ("error", f"{row['median_error']:.1e} ({median})"),
            ("memory of A", readable_bytes(self.operator_bytes)),
            ("working memory", f"about {readable_bytes(self.working_bytes)}"),
        ]  # fmt: skip


def plan(
    shape: tuple[int, ...],
    rank: tuple[int, ...],
    operator: str = "gaussian",
    *,
    noise: float = 0.0,
    rate: float = 0.95,
    trials: int | None = None,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    workers: int = 1,
    progress: Report | bool | None = None,
) -> Plan:
    r"""Plan an experiment: the number of measurements, the solver and the memory it needs.

    Simulates recoveries of random tensors with 3 measurements per degree of freedom ("dct": 4,
    "entries" and "rank-one": 8), then with fewer until the rate is not reached, or with more until
    it is. On the way down, five trials that reach the rate suffice. Suggests the level above the
    smallest one that reached the rate, which may have done so by chance, and requires that as many
    new trials reach the rate there, too.

    Parameters
    ----------
    shape, rank : tuple of int
    operator : "gaussian", "rank-one", "entries" or "dct"
        For other operators see :func:`phase_transition`.
    noise : float
        Standard deviation of the noise, relative to the root mean square of A(X). A tensor counts
        as recovered if the relative error is at most 1e-5 or, if that is larger, the noise.
    rate : float
        Required recovery rate.
    trials : int, optional
        Number of trials at each level. A level ends as soon as its failures make the rate
        impossible, and the suggested level has twice as many trials. By default 20, down to 5
        for trials of more than half a second: 10 for 30 x 30 x 30 tensors of rank (3, 3, 3).
    seed : int
    folder : path, optional
        Where to store the trials; stored trials are reused.
    workers : int
        Number of processes. The plan does not depend on it.
    progress : callable or bool, optional
        Called as ``progress(done, total, text)`` for every trial; True shows a progress bar.

    Notes
    -----
    A trial is limited to 60 epochs, or 30 where Gauss-Newton steps are slow, and slow convergence
    counts as failure; :func:`lowtucker.recover` allows 500 epochs. Real tensors are not random,
    and an exact rank is the best case. Trials of small tensors without noise run as batches; large
    Gaussian matrices (more than 10^6 numbers) are in single precision, which suffices for an error
    of 1e-5 and takes 0.6 of the time.

    The tensor itself is simulated if a trial takes at most about 6 seconds and 180 MB: up to 30 x
    30 x 30 for "gaussian", 100 x 100 x 100 and more for the others. A plan then takes up to a
    minute on two cores, and some 10 seconds for 30 x 30 x 30 and rank (3, 3, 3). For larger tensors
    a smaller one is simulated (of smaller rank, if the rank is large), and m is extrapolated: it
    grows as dof or as :math:`\sqrt N`, whichever grows faster, times a safety factor of 1.25. A
    spectral start needs m of the order of :math:`\sqrt N`, so m / dof grows with the shape.
    For sampled entries, m is increased until every slice of the true shape is sampled.

    Examples
    --------
    >>> made = plan((5, 5, 6), (1, 2, 2), trials=10)
    >>> made.dof, made.simulated["rate"] >= 0.95, made.operator_bytes == 8 * 150 * made.m
    (22, True, True)
    """
    shape = as_shape(shape)
    rank = attainable_rank(check_rank(rank, shape))
    advice = "For other operators use lowtucker.theory.phase_transition."
    operator = as_operator_name(operator, advice)
    noise, rate = check_noise(noise), check_rate(rate)
    small, ranks = _affordable(operator, shape, rank)
    seconds = _seconds(operator, small, ranks)
    few = min(MOST, max(FEWEST, int(PER_LEVEL / seconds)))
    trials = few if trials is None else as_integer(trials, "trials", high=MOST_TRIALS)
    epochs = _epochs(operator, degrees_of_freedom(small, ranks), seconds)
    dtype = _dtype(operator, small, ranks)
    experiment = RandomRecoveries(operator, (), small, ranks, "auto", noise, TOL, epochs, dtype)
    settings = {"seed": seed, "folder": folder, "workers": workers, "progress": progress}
    with Simulation.opened(**settings) as simulation:
        transition = smallest_level(experiment, simulation, rate, trials, FIRST[operator])
    dof = degrees_of_freedom(shape, rank)
    draft = Plan(shape, rank, operator, noise, rate, dof, None, transition, (), 0, 0, ())
    return _completed(replace(draft, notes=_notes_on(draft, epochs)))


def _seconds(operator: str, shape: tuple[int, ...], rank: tuple[int, ...]) -> float:
    """Approximate time of a successful trial; coefficients measured on one core, rounded."""
    dof, N = degrees_of_freedom(shape, rank), size(shape)
    if operator == "entries" and dof > LARGE:  # eigenvectors of every mode for the start, then ALS
        return 4e-10 * sum(n**3 for n in shape) + 6e-6 * dof * math.prod(rank)
    retractions = 1e-6 * len(rank) * math.prod(2 * r for r in rank)  # of large cores
    if operator == "dct":
        return N / 4e5 + retractions
    passes = dof * N / 8e6 if operator == "gaussian" else 0.0
    return passes + 1.5e-9 * dof**3 + retractions


def _dtype(operator: str, shape: tuple[int, ...], rank: tuple[int, ...]) -> str:
    """Precision of Gaussian rows: single if a matrix is large, and most of the time to read it.

    Of 24 tensors of 30x30x30, rank (3,3,3), with 1.75 dof measurements, 14 were recovered in both
    precisions, the same ones after the same number of epochs, in 0.6 of the time in single.
    """
    m = per_dof(FIRST[operator], degrees_of_freedom(shape, rank))
    large = operator == "gaussian" and m * size(shape) > LARGE_MATRIX
    return "float32" if large else "float64"


def _epochs(operator: str, dof: int, seconds: float) -> int:
    """Number of epochs of a trial: RCG and ALS need many, each of them fast."""
    newton = operator != "dct" and (operator != "entries" or dof <= LARGE)
    return FEWER_EPOCHS if newton and seconds > LONG else EPOCHS


def _affordable(
    operator: str, shape: tuple[int, ...], rank: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and rank to simulate: the true ones, or the largest that are fast to simulate."""
    pairs = list(zip(shape, rank, strict=True))
    shrunk = [0.95**k for k in range(400)]
    candidates = [(tuple(min(n, max(ROOM * r, round(s * n))) for n, r in pairs), rank)
                  for s in shrunk]  # fmt: skip
    roomy = [(min(n, ROOM * r), r) for n, r in pairs]
    for s in shrunk[1:]:  # if the rank is large, reduce it as well
        ranks = tuple(max(1, round(s * r)) for _, r in roomy)
        sizes = tuple(
            max(min(n, 2 * r), round(s * n)) for (n, _), r in zip(roomy, ranks, strict=True)
        )
        candidates.append((sizes, attainable_rank(ranks)))
    for small, ranks in candidates:
        m = per_dof(FIRST[operator], degrees_of_freedom(small, ranks))
        light = _bytes_of(operator, small, m) <= LARGE_A
        if light and _seconds(operator, small, ranks) <= SLOW:
            return small, ranks
    raise ValueError(
        f"shape {shape} has too many modes, {len(shape)}, to simulate even a small tensor of that "
        "order. Merge some of the modes."
    )


def _completed(draft: Plan) -> Plan:
    """Complete a plan with what follows from its simulation."""
    t, notes, row = draft.transition, draft.notes, draft.simulated
    if row is None:
        return replace(draft, notes=(*notes, "Try a smaller rank, or another operator."))
    m = row["m"]
    solvers, beside = _solvers(draft.operator, t.shape, t.rank, m)
    notes = (*notes, *_notes_on_verdicts(row))
    if draft.scaled_down:
        m = min(size(draft.shape), per_dof(row["m_over_dof"] * _growth(draft), draft.dof))
        if draft.operator == "entries":
            m, notes = _sampled(draft, m, notes)
        there = solvers
        solvers, beside = _solvers(draft.operator, draft.shape, draft.rank, m)
        if solvers != there:
            notes = (*notes, f"The smaller tensor was recovered by {', then '.join(there)}, which "
                     "may need a different number of passes.")  # fmt: skip
    of_A = _bytes_of(draft.operator, draft.shape, m)
    if m >= size(draft.shape):
        notes = (*notes, "There are as many measurements as entries: measure every entry, or "
                 "solve by ordinary least squares.")  # fmt: skip
    if draft.operator == "gaussian" and of_A >= HUGE:
        notes = (*notes, "Gaussian rows need not be stored: lowtucker.seeded_gaussian generates "
                 "them on the fly.")  # fmt: skip
    return replace(
        draft, m=m, solvers=solvers, operator_bytes=of_A, working_bytes=beside, notes=notes
    )


def _solvers(
    operator: str, shape: tuple[int, ...], rank: tuple[int, ...], m: int
) -> tuple[tuple[str, ...], int]:
    """Return the names of the solvers that "auto" chooses, and their working memory in bytes.

    Asks for a tiny operator of the same kind.
    """
    A = draw_operator(operator, (2,) * len(shape), 1, 0)
    problem: Any = SimpleNamespace(
        A=A, shape=shape, batch_shape=(), m=m, equations=m, fewest_equations=m
    )
    solvers = automatic(problem, rank)
    numbers = max(solver.memory_estimate(problem, rank) for solver in solvers)
    return tuple(solver.name for solver in solvers), 8 * numbers


def _growth(draft: Plan) -> float:
    """Growth of m / dof from the simulated shape: m grows as the larger of dof and sqrt(N)."""
    t = draft.transition
    dof = degrees_of_freedom(draft.shape, t.rank) / t.dof
    return MARGIN * max(1.0, math.sqrt(size(draft.shape) / size(t.shape)) / dof)


def _notes_on(draft: Plan, epochs: int) -> tuple[str, ...]:
    """Notes on what was simulated and what counts as recovered."""
    t, level = draft.transition, max(TOL, draft.noise)
    slow = (f"A tensor counts as recovered if the error is at most {level:g} within {epochs} "
            "epochs: slow convergence counts as failure.")  # fmt: skip
    if not draft.scaled_down:
        return (slow,)
    return slow, (f"This is an extrapolation: the true shape takes too long to simulate. The "
                  f"simulation is of shape {t.shape}, rank {t.rank}, with {t.dof} degrees of "
                  f"freedom; m / dof is {_growth(draft):.2f} times as large here.")  # fmt: skip


def _notes_on_verdicts(row: dict[str, Any]) -> tuple[str, ...]:
    """Note on recovered tensors that were not reported as success, if more than one."""
    if row["recovered"] - row["called_success"] <= 1:
        return ()
    return (f"Of the {row['recovered']} recovered tensors, {row['called_success']} were reported "
            "as success (result.success).",)  # fmt: skip


def _sampled(draft: Plan, m: int, notes: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Increase m until all slices have enough samples with a probability of at least the rate."""
    before, N = m, size(draft.shape)
    while m < N and _chance_of_samples(draft.shape, draft.rank, m) < draft.rate:
        m = min(N, math.ceil(1.1 * m))
    if m == before:
        return m, notes
    note = (f"With {before} entries some slices of the true shape have too few samples; {m} "
            "entries avoid this.")  # fmt: skip
    return m, (*notes, note)


def _chance_of_samples(shape: tuple[int, ...], rank: tuple[int, ...], m: int) -> float:
    """Probability that every slice of mode k has r_k samples or more, by a Poisson model."""
    from scipy.special import pdtr

    poor = sum(n * pdtr(r - 1, m / n) for n, r in zip(shape, rank, strict=True))
    return math.exp(-poor)


def _bytes_of(operator: str, shape: tuple[int, ...], m: int) -> int:
    """Memory of the operator: rows, vectors, indices, or positions and the signs of all entries."""
    if operator == "gaussian":
        return 8 * m * size(shape)
    if operator == "rank-one":
        return 8 * m * sum(shape)
    return 8 * m * len(shape) if operator == "entries" else 8 * m + size(shape)
