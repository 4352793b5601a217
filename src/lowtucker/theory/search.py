"""Search for the smallest number of measurements with which random tensors are recovered."""

from __future__ import annotations

import math
from concurrent.futures import Executor
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import size
from lowtucker.simulation.base import Columns
from lowtucker.simulation.runner import run, worker_pool
from lowtucker.simulation.store import Store
from lowtucker.tensor.rank import degrees_of_freedom
from lowtucker.theory.transition import PhaseTransition
from lowtucker.theory.trials import RandomRecoveries, Simulation, per_dof

__all__ = ["smallest_level"]

# Numbers of measurements per degree of freedom that are simulated
LADDER = (1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 24.0, 32.0)
# Trials of a first look at a level on the way down
LOOK = 5
# Number of levels that a search is assumed to take, for the progress bar
LEVELS = 5
# m N below which a trial takes less time than starting a process
SMALL = 10**5


def smallest_level(
    experiment: RandomRecoveries, simulation: Simulation, rate: float, trials: int, first: float
) -> PhaseTransition:
    """Simulate levels from ``first`` measurements per degree of freedom on: down, then up again.

    All levels share their worker processes.
    """
    several = simulation.workers > 1
    with worker_pool(simulation.workers) if several else nullcontext() as pool:
        return _Search(experiment, simulation, pool, rate, trials).run(first)


class _Simulated(NamedTuple):
    """Trials of a level up to the failure that made the rate impossible, if there was one."""

    columns: Columns
    reached: bool
    wanted: int


class _Search:
    """Search for the smallest number of measurements that reaches a rate."""

    def __init__(
        self,
        experiment: RandomRecoveries,
        simulation: Simulation,
        pool: Executor | None,
        rate: float,
        trials: int,
    ) -> None:
        self.experiment, self.simulation, self.pool = experiment, simulation, pool
        self.rate, self.trials = rate, trials
        self.dof = degrees_of_freedom(experiment.shape, experiment.rank)
        self.levels: dict[int, _Simulated] = {}
        self.done = 0  # trials so far, for the report

    def run(self, first: float) -> PhaseTransition:
        """Go down from the first level until the rate is missed, then up until it holds twice.

        On the way down a first look at a level suffices if it reaches the rate: the way up decides.
        The second level that reaches the rate is suggested, so it must also hold for new trials:
        the first one may have been selected by chance.
        """
        passed = 0
        for lowest in LADDER[LADDER.index(first) :: -1]:
            few = min(LOOK, self.trials)
            if not (self.reached(lowest, few) or self.reached(lowest, self.trials)):
                break
        for ratio in LADDER[LADDER.index(lowest) :]:
            passed = passed + 1 if self.reached(ratio, self.trials) else 0
            if passed == 2:
                if self.reached(ratio, 2 * self.trials):
                    break
                passed = 0
        done = max(LEVELS * self.trials, self.before(), self.done)
        self.simulation.report(done, done, "done")
        columns = {m: level.columns for m, level in self.levels.items()}
        return PhaseTransition.of(self.experiment, columns)

    def reached(self, ratio: float, trials: int) -> bool:
        """Whether a level reaches the rate in so many trials, or did so in more."""
        # levels above the number of entries are one level
        m = min(per_dof(ratio, self.dof), size(self.experiment.shape))
        if m not in self.levels or self.levels[m].wanted < trials:
            self.levels[m] = self.simulate(m, trials)
        return self.levels[m].reached

    def before(self, m: int | None = None) -> int:
        """Return the number of trials of the levels so far, but for one."""
        return sum(level.wanted for k, level in self.levels.items() if k != m)

    def simulate(self, m: int, trials: int) -> _Simulated:
        """Simulate a level."""
        one = self.experiment.at([m])
        jobs = self.simulation.pending(one, trials)
        stored = min((job.first for job in jobs), default=trials)
        before = self.before(m)
        store = _WatchedStore(self, one, trials, before, self.simulation.stored(one, stored))
        workers = self.simulation.workers if m * size(one.shape) > SMALL else 1
        try:
            store.check()
            run(jobs, store, workers=workers, pool=self.pool)
            found = self.simulation.stored(one, trials)
        except _RateMissed:
            found = self.simulation.stored(one, store.counted)
        failed = np.cumsum(~one.recovered(found["error"]))
        # independent of the order in which the workers finish
        end = int(np.searchsorted(failed, self.too_many(trials))) + 1
        columns = {name: x[:end] for name, x in found.items()}
        return _Simulated(columns, end > len(failed), trials)

    def too_many(self, trials: int) -> int:
        """Return the number of failures that makes the rate impossible."""
        return math.floor((1 - self.rate) * trials + 1e-9) + 1

    def report(self, done: int, text: str) -> None:
        """Report finished trials; their total number is an estimate."""
        self.done = done = max(done, self.done)
        total = max(LEVELS * self.trials, math.ceil(done / self.trials) * self.trials)
        self.simulation.report(done, total, text)


class _RateMissed(Exception):  # noqa: N818 - ends a level, not an error
    """The failures make the rate impossible."""


class _WatchedStore(Store):
    """Store that ends a run as soon as its trials decide a level.

    Failures are counted in the order of the trials, which is not that of the workers.
    """

    def __init__(
        self, search: _Search, one: RandomRecoveries, trials: int, before: int, stored: Columns
    ) -> None:
        super().__init__(search.simulation.store.folder)
        self.search, self.one, self.trials, self.before = search, one, trials, before
        self.errors = dict(enumerate(stored["error"]))
        self.counted = self.failures = 0

    def put(self, experiment: Any, cell: Any, seed: int, first: int, made: Columns) -> None:
        """Store and report a batch of trials; end the level if it is decided."""
        super().put(experiment, cell, seed, first, made)
        for k, error in enumerate(made["error"], first):
            self.errors[k] = error
            done = len(self.errors)
            self.search.report(self.before + done, f"m = {cell.m}: {done} of {self.trials}")
        self.check()

    def check(self) -> None:
        """Count failures; raise if the rate has become impossible."""
        while self.counted in self.errors:
            self.failures += not self.one.recovered(self.errors[self.counted])
            self.counted += 1
        if self.failures >= self.search.too_many(self.trials):
            raise _RateMissed
