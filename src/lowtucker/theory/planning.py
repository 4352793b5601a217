"""What to expect of an experiment before it is made."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from lowtucker._array import as_integer, as_shape, size
from lowtucker._array.memory import readable_bytes
from lowtucker.simulation.base import Columns
from lowtucker.simulation.runner import pending, run
from lowtucker.simulation.store import Store
from lowtucker.solvers.auto import automatic
from lowtucker.solvers.rgn import LARGE
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.theory.transition import (
    COLUMNS,
    NAMES,
    Level,
    PhaseTransition,
    RandomRecoveries,
    Report,
    as_told,
    as_whole_seed,
    check_noise,
    check_rate,
    drawn,
    kept_in,
    per_dof,
    progressing,
    table,
)

__all__ = ["Plan", "plan"]

NumPyArray = np.ndarray[Any, Any]

# Measurements per degree of freedom that are simulated, and where to begin
LADDER = (1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 24.0, 32.0)
FIRST = {"gaussian": 3.0, "dct": 4.0, "rank-one": 8.0, "entries": 8.0}
# Relative error that counts as recovered
TOL = 1e-5
# Epochs of a trial; of Gauss-Newton steps that are slow, of which few succeed and all fail
EPOCHS, FEWER_EPOCHS = 60, 30
# Trials unless others are asked for: most and fewest, and the seconds for those of a level
MOST, FEWEST, PER_LEVEL = 20, 5, 20
# Seconds of a trial, and bytes of its A, above which a smaller tensor is simulated
SLOW, LARGE_A = 6.0, 1.8e8
# Least n_k / r_k of that tensor, unless the true one has less: with less, entries run out
ROOM = 4
# What an extrapolation adds to be safe: about a level
MARGIN = 1.25
# Levels that a search is thought to take, for the bar
LEVELS = 5
# Below this m N a trial takes less than starting a process for it would
SMALL = 10**5
# Bytes of a matrix above which it is worth making its rows anew
HUGE = 10**9


@dataclass(frozen=True, eq=False)
class Plan:
    """What to expect of an experiment; ``str`` is a table.

    Attributes
    ----------
    shape, rank : tuple of int
    operator : str
    noise : float
        Relative to the root mean square of the measurements.
    rate : float
        Share of tensors that should be recovered.
    dof : int
        Degrees of freedom, the least with which recovery can be hoped for.
    m : int or None
        Suggested number of measurements; None where no number that was tried reached the rate.
    transition : PhaseTransition
        What was simulated: this tensor, or a smaller one (``scaled_down``).
    solvers : tuple of str
        What "auto" takes with m measurements, in turn.
    operator_bytes, working_bytes : int
        Memory of the operator in double precision, and about what recovery needs beside it; 0
        where m is None.
    notes : tuple of str
        What to know before these numbers are trusted.
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
        """Whether a smaller tensor was simulated, from which m is extrapolated."""
        return (self.transition.shape, self.transition.rank) != (self.shape, self.rank)

    @property
    def share(self) -> float | None:
        """Measurements per entry, m / N."""
        return None if self.m is None else self.m / size(self.shape)

    @property
    def simulated(self) -> dict[str, Any] | None:
        """Row of ``transition`` that m stands on: trials, recovered, rate and its interval.

        It is the one above the smallest m with that rate, which may have been lucky.
        """
        m, rows = self.transition.suggest(self.rate), self.transition.rows()
        enough = [row for row in rows if m is not None and row["m"] >= m]
        return enough[:2][-1] if enough else None

    @property
    def passes(self) -> float | None:
        """Readings of all the rows: the median of the simulation."""
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
            return [("measurements", f"none up to {most:.3g} dof had a rate of {self.rate:g}")]
        rates = f"{row['rate_low']:.0%} and {row['rate_high']:.0%} (95 % confidence)"
        recovered = f"{row['recovered']} of {row['trials']} simulated; the rate is between {rates}"
        median = "median"
        if self.scaled_down:  # its rate is not this tensor's
            recovered = f"not simulated: m is extrapolated from shape {self.transition.shape}"
            median = "median of the smaller tensor"
        return [
            ("measurements", f"{self.m}: {self.m / self.dof:.2f} dof, {self.share:.3g} for each "
             "entry of X"),
            ("recovered", recovered),
            ("solver", f"auto: {', then '.join(self.solvers)}"),
            ("passes over A", f"{row['median_passes']:.1f} ({median})"),
            ("error", f"{row['median_error']:.1e} ({median})"),
            ("memory of A", readable_bytes(self.operator_bytes)),
            ("memory beside A", f"about {readable_bytes(self.working_bytes)}"),
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
    r"""Say what to expect before an experiment: how many measurements, what solver, what memory.

    Recoveries of random tensors are simulated with 3 measurements per degree of freedom ("dct": 4,
    "entries" and "rank-one": 8), then with fewer until the rate is not reached, or with more until
    it is. Suggested is the level above the smallest that reached it, which may have been lucky, and
    as many trials again must reach the rate there too.

    Parameters
    ----------
    shape, rank : tuple of int
    operator : "gaussian", "rank-one", "entries" or "dct"
        For one of your own: :func:`phase_transition`.
    noise : float
        Standard deviation of the noise, relative to the root mean square of A(X). Recovered is a
        relative error of at most 1e-5, or the noise where that is more.
    rate : float
        Share of the tensors that should be recovered.
    trials : int, optional
        For each number of measurements; a level ends as soon as its failures make the rate
        impossible, and the suggested one has twice as many. By default 20, down to 5 where they
        take long.
    seed : int
    folder : path, optional
        Where to keep the trials; those that are there are not computed again.
    workers : int
        Processes. The plan does not depend on them.
    progress : callable or bool, optional
        Called as ``progress(done, total, text)`` after every trial; True draws a bar.

    Notes
    -----
    A trial has 60 epochs, or 30 where Gauss-Newton steps are slow: failing slowly counts as
    failing, where :func:`lowtucker.recover` would go on to 500. Real tensors are not random ones,
    and an exact rank is the best case.

    The tensor itself is simulated where a trial takes at most about 6 seconds and 180 MB: up to
    30 x 30 x 30 for "gaussian", 100 x 100 x 100 and more for the others. Then a plan takes about a
    minute on two cores. Beyond that a smaller tensor is simulated (a large rank is made smaller
    too), and m is extrapolated: it grows as dof or as :math:`\sqrt N`, whichever grows faster, and
    a quarter is added. A start from the adjoint needs m of the order of :math:`\sqrt N`, so that
    m / dof grows with the shape.
    For sampled entries every slice must be met: m is raised until that is so at the true shape.

    Examples
    --------
    >>> made = plan((5, 5, 6), (1, 2, 2), trials=10)
    >>> made.dof, made.simulated["rate"] >= 0.95, made.operator_bytes == 8 * 150 * made.m
    (22, True, True)
    """
    shape = as_shape(shape)
    rank = attainable_rank(check_rank(rank, shape))
    if not isinstance(operator, str) or operator not in NAMES:
        raise ValueError(
            f"operator must be one of {', '.join(NAMES)}, got {as_told(operator)}. For an operator "
            "of your own try lowtucker.theory.phase_transition."
        )
    noise, rate, seed = check_noise(noise), check_rate(rate), as_whole_seed(seed)
    workers = as_integer(workers, "workers")
    small, ranks = _affordable(operator, shape, rank)
    seconds = _seconds(operator, small, ranks)
    few = min(MOST, max(FEWEST, int(PER_LEVEL / seconds)))
    trials = few if trials is None else as_integer(trials, "trials")
    epochs = _epochs(operator, degrees_of_freedom(small, ranks), seconds)
    experiment = RandomRecoveries(operator, (), small, ranks, "auto", noise, TOL, epochs)
    with kept_in(folder) as store, progressing(progress) as report:
        simulation = _Simulation(experiment, store, rate, trials, seed, workers, report)
        transition = _climbed(simulation, FIRST[operator])
    dof = degrees_of_freedom(shape, rank)
    draft = Plan(shape, rank, operator, noise, rate, dof, None, transition, (), 0, 0, ())
    return _completed(replace(draft, notes=_notes_on(draft, epochs)))


def _seconds(operator: str, shape: tuple[int, ...], rank: tuple[int, ...]) -> float:
    """About what a trial that succeeds takes: measured on one core, and rounded."""
    dof, N = degrees_of_freedom(shape, rank), size(shape)
    if operator == "entries" and dof > LARGE:  # eigenvectors of every mode to begin with, ALS
        return 4e-10 * sum(n**3 for n in shape) + 6e-6 * dof * math.prod(rank)
    retractions = 1e-6 * len(rank) * math.prod(2 * r for r in rank)  # of large cores
    if operator == "dct":
        return N / 4e5 + retractions
    reading = dof * N / 8e6 if operator == "gaussian" else 0.0
    return reading + 1.5e-9 * dof**3 + retractions


def _epochs(operator: str, dof: int, seconds: float) -> int:
    """Epochs of a trial: RCG and ALS need many quick ones."""
    newton = operator != "dct" and (operator != "entries" or dof <= LARGE)
    return FEWER_EPOCHS if newton and seconds > 1 else EPOCHS


def _affordable(
    operator: str, shape: tuple[int, ...], rank: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and rank to simulate: the true ones, or the largest whose trials are quick."""
    pairs = list(zip(shape, rank, strict=True))
    shrunk = [0.95**k for k in range(400)]
    candidates = [(tuple(min(n, max(ROOM * r, round(s * n))) for n, r in pairs), rank)
                  for s in shrunk]  # fmt: skip
    roomy = [(min(n, ROOM * r), r) for n, r in pairs]
    for s in shrunk[1:]:  # a large rank: that is made smaller too
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
        "order. Merge some of them."
    )


@dataclass(frozen=True)
class _Simulation:
    """Trials of one number of measurements after the other."""

    experiment: RandomRecoveries
    store: Store
    rate: float
    trials: int
    seed: int
    workers: int
    report: Report

    def m(self, ratio: float) -> int:
        """Measurements of a level; as many as there are entries tell all."""
        e = self.experiment
        return min(per_dof(ratio, degrees_of_freedom(e.shape, e.rank)), size(e.shape))

    def level(self, m: int, trials: int, before: int) -> tuple[Level, Columns, bool]:
        """Level, its trials up to the one that made the rate impossible, and whether none did.

        Trials ``before`` it are for the report.
        """
        level = Level(m, str(self.experiment.operator))
        one = replace(self.experiment, levels=(level,))
        jobs = pending([one], self.store, self.seed, trials)
        begun = self._first(one, level, min((job.first for job in jobs), default=trials))
        store = _Watched(self, one, trials, before, begun["error"])
        workers = self.workers if m * size(one.shape) > SMALL else 1
        try:
            store.judge()
            run(jobs, store, workers=workers)
            found = self._first(one, level, trials)
        except _Enough:
            found = self._first(one, level, store.counted)
        failed = np.cumsum(~one.recovered(found["error"]))
        end = int(np.searchsorted(failed, self.too_many(trials))) + 1  # the same for any workers
        return level, {name: x[:end] for name, x in found.items()}, end > len(failed)

    def too_many(self, trials: int) -> int:
        """Failures that make the rate impossible."""
        return math.floor((1 - self.rate) * trials + 1e-9) + 1

    def _first(self, one: RandomRecoveries, level: Level, count: int) -> Columns:
        """Trials that are kept, from the first on."""
        found = self.store.get(one, level, self.seed, count) if count else None
        return found or dict.fromkeys(COLUMNS, np.zeros(0))

    def tell(self, done: int, text: str) -> None:
        """Report trials; how many there will be is a guess."""
        total = max(LEVELS * self.trials, math.ceil(done / self.trials) * self.trials)
        self.report(done, total, text)


class _Enough(Exception):  # noqa: N818 - ends a level, and is no error
    """The failures make the rate impossible."""


class _Watched(Store):
    """Store that ends a run when the trials it was given are enough to judge a level.

    Failures are counted in the order of the trials, in which workers need not come.
    """

    def __init__(
        self,
        simulation: _Simulation,
        one: RandomRecoveries,
        trials: int,
        before: int,
        begun: NumPyArray,
    ) -> None:
        super().__init__(simulation.store.folder)
        self.simulation, self.one, self.trials, self.before = simulation, one, trials, before
        self.errors = dict(enumerate(begun))
        self.counted = self.failures = 0

    def put(self, experiment: Any, cell: Any, seed: int, first: int, made: Columns) -> None:
        """Keep, tell and judge."""
        super().put(experiment, cell, seed, first, made)
        self.errors[first] = made["error"][0]
        done = len(self.errors)
        self.simulation.tell(self.before + done, f"m = {cell.m}: {done} of {self.trials}")
        self.judge()

    def judge(self) -> None:
        """Count on; raise where the rate has become impossible."""
        while self.counted in self.errors:
            self.failures += not self.one.recovered(self.errors[self.counted])
            self.counted += 1
        if self.failures >= self.simulation.too_many(self.trials):
            raise _Enough


class _Search:
    """Levels that were simulated; one that is asked for twice gets twice the trials."""

    def __init__(self, simulation: _Simulation) -> None:
        self.simulation = simulation
        self.found: dict[int, tuple[Level, Columns, bool]] = {}
        self.before = 0

    def reached(self, ratio: float, again: bool = False) -> bool:
        """Whether the rate is reached; all entries are but one level."""
        m, trials = self.simulation.m(ratio), self.simulation.trials
        if again:
            self.found[m] = self.simulation.level(m, 2 * trials, self.before - trials)
        elif m not in self.found:
            self.found[m] = self.simulation.level(m, trials, self.before)
        else:
            return self.found[m][2]
        self.before += trials
        return self.found[m][2]


def _climbed(simulation: _Simulation, first: float) -> PhaseTransition:
    """Levels from the first on: down until the rate is not reached, then up until it is, twice.

    The second is suggested, so it must hold for new trials too. The first was chosen by its luck.
    """
    search, passed = _Search(simulation), 0
    for lowest in LADDER[LADDER.index(first) :: -1]:
        if not search.reached(lowest):
            break
    for ratio in LADDER[LADDER.index(lowest) :]:
        passed = passed + 1 if search.reached(ratio) else 0
        if passed == 2:
            if search.reached(ratio, again=True):
                break
            passed = 0
    simulation.tell(max(LEVELS * simulation.trials, search.before), "done")
    levels = list(search.found.values())
    whole = replace(simulation.experiment, levels=tuple(level for level, _, _ in levels))
    return table(whole, [columns for _, columns, _ in levels])


def _completed(draft: Plan) -> Plan:
    """Plan with what follows from the simulation."""
    t, notes, row = draft.transition, draft.notes, draft.simulated
    if row is None:
        return replace(draft, notes=(*notes, "Take a smaller rank, or another operator."))
    m = row["m"]
    solvers, beside = _solvers(draft.operator, t.shape, t.rank, m)
    notes = (*notes, *_notes_on_verdicts(row))
    if draft.scaled_down:
        m = min(size(draft.shape), per_dof(row["m_over_dof"] * _growth(draft), draft.dof))
        if draft.operator == "entries":
            m, notes = _met(draft, m, notes)
        there = solvers
        solvers, beside = _solvers(draft.operator, draft.shape, draft.rank, m)
        if solvers != there:
            notes = (*notes, f"The smaller tensor was recovered by {', then '.join(there)}, which "
                     "may need other passes.")  # fmt: skip
    of_A = _bytes_of(draft.operator, draft.shape, m)
    if m >= size(draft.shape):
        notes = (*notes, "These are as many as there are entries: read them all, or solve by plain "
                 "least squares.")  # fmt: skip
    if draft.operator == "gaussian" and of_A >= HUGE:
        notes = (*notes, "Gaussian rows need not be stored: lowtucker.seeded_gaussian makes them "
                 "when they are read.")  # fmt: skip
    return replace(
        draft, m=m, solvers=solvers, operator_bytes=of_A, working_bytes=beside, notes=notes
    )


def _solvers(
    operator: str, shape: tuple[int, ...], rank: tuple[int, ...], m: int
) -> tuple[tuple[str, ...], int]:
    """Names of what "auto" takes, and the bytes that it needs beside A.

    Found with a tiny operator that stands for one of that kind.
    """
    A = drawn(operator, (2,) * len(shape), 1, 0)
    samples = A if A.entry_samples() is not None else None
    problem: Any = SimpleNamespace(
        A=A, shape=shape, batch_shape=(), equations=m, m=m, as_entries=samples
    )
    solvers = automatic(problem, rank)
    numbers = max(solver.memory_estimate(problem, rank) for solver in solvers)
    return tuple(solver.name for solver in solvers), 8 * numbers


def _growth(draft: Plan) -> float:
    """By how much m / dof grows from the simulated shape: m as the larger of dof and sqrt(N)."""
    t = draft.transition
    dof = degrees_of_freedom(draft.shape, t.rank) / t.dof
    return MARGIN * max(1.0, math.sqrt(size(draft.shape) / size(t.shape)) / dof)


def _notes_on(draft: Plan, epochs: int) -> tuple[str, ...]:
    """What was simulated, and what counted."""
    t, level = draft.transition, max(TOL, draft.noise)
    slow = (f"Recovered is an error of at most {level:g} within {epochs} epochs: failing slowly "
            "counts as failing.")  # fmt: skip
    if not draft.scaled_down:
        return (slow,)
    return slow, (f"This is an extrapolation: the true shape takes too long to simulate. Simulated "
                  f"was {t.shape}, rank {t.rank}, with {t.dof} degrees of freedom; per degree of "
                  f"freedom m is {_growth(draft):.2f} times as large here.")  # fmt: skip


def _notes_on_verdicts(row: dict[str, Any]) -> tuple[str, ...]:
    """Whether runs doubt what is right, by more than a trial."""
    if row["recovered"] - row["called_success"] <= 1:
        return ()
    return (f"Of the {row['recovered']} that were recovered {row['called_success']} runs said so "
            "(result.success); the others were right, and in doubt.",)  # fmt: skip


def _met(draft: Plan, m: int, notes: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """Raise m until the slices of the true shape have samples enough, as often as recovery."""
    before, N = m, size(draft.shape)
    while m < N and _chance_to_meet(draft.shape, draft.rank, m) < draft.rate:
        m = min(N, math.ceil(1.1 * m))
    if m == before:
        return m, notes
    note = f"Of {before} entries too few would be in some slices of the true shape: {m} are not."
    return m, (*notes, note)


def _chance_to_meet(shape: tuple[int, ...], rank: tuple[int, ...], m: int) -> float:
    """Chance that every slice of mode k has r_k of m samples: their numbers are Poisson's."""
    from scipy.special import pdtr

    poor = sum(n * pdtr(r - 1, m / n) for n, r in zip(shape, rank, strict=True))
    return math.exp(-poor)


def _bytes_of(operator: str, shape: tuple[int, ...], m: int) -> int:
    """Memory of the operator: rows, vectors, indices, or places and the signs of all entries."""
    if operator == "gaussian":
        return 8 * m * size(shape)
    if operator == "rank-one":
        return 8 * m * sum(shape)
    return 8 * m * len(shape) if operator == "entries" else 8 * m + size(shape)
