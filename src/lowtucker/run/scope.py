"""What surrounds the runs of one call: units, limits, interrupts, the checkpoint. Entered once."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from lowtucker._array import size, without_gradients
from lowtucker._array.clock import Clock
from lowtucker._array.log import logger
from lowtucker._array.readings import Readings
from lowtucker._array.threads import few_blas_threads
from lowtucker.problem import Problem
from lowtucker.run.checkpoint import Journal
from lowtucker.run.execute import Keeper
from lowtucker.run.history import span
from lowtucker.run.identity import fingerprint
from lowtucker.run.interrupt import Interrupt, interruptible
from lowtucker.run.progress import Callback, Progress
from lowtucker.run.result import Result
from lowtucker.run.units import (
    Units,
    check_tensor,
    into_units,
    out_of_units,
    scaled,
    solver_in_units,
    units_of,
)
from lowtucker.status import Finding, Status
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.uncertainty.bars import Uncertainty
from lowtucker.uncertainty.information import Noise

__all__ = ["Scope"]

log = logger("recovery")
# Wall time of a call whose limit and solver are left to us, and whose data are small: a tensor and
# measurements of fewer than SMALL numbers, and fewer than MATRIX numbers in a matrix of rows
DEFAULT_SECONDS = 60.0
SMALL, MATRIX = 10**6, 10**9
# Endings from which another call can resume
RESUMABLE = {Status.INTERRUPTED, Status.MAX_SECONDS, Status.MAX_EPOCHS}


class Scope:
    """Surroundings of the runs of one call, entered once at the door.

    Inside, the problem is of moderate scale, BLAS has one thread unless the user asked for more,
    Ctrl-C is a request, and fits are kept in a checkpoint where there is one. :meth:`export` takes
    all of it off again: what is below the door knows nothing of it.

    Parameters
    ----------
    problem : Problem
        As the user gave it.
    checkpoint : path-like, optional
    settings : dict, optional
        What makes this call another one than others, beside the problem: a checkpoint of other
        settings is refused.
    start, X_true : TuckerTensor, array, State, Result or None

    Attributes
    ----------
    keeper : Keeper
        What keeps the fits.
    interrupt : Interrupt
        Whether Ctrl-C was pressed.
    clock : Clock
        Wall time of the call, and its limit.
    """

    def __init__(
        self,
        problem: Problem,
        checkpoint: Any = None,
        settings: dict[str, Any] | None = None,
        *,
        start: Any = None,
        X_true: Any = None,
    ) -> None:
        self.clock, self._by_default = Clock(), False
        self._readings = Readings(problem.m)
        self._given = problem
        self.keeper = Keeper()
        self.interrupt = Interrupt()
        self._stack = ExitStack()
        if checkpoint is not None:
            whose = fingerprint(problem, start, X_true, settings or {})
            self.keeper = Journal(checkpoint, whose, problem.y)

    def __enter__(self) -> Scope:
        with ExitStack() as stack:
            stack.callback(self.keeper.release)
            self.interrupt = stack.enter_context(interruptible())
            stack.enter_context(self._readings.counting())
            stack.enter_context(without_gradients())
            stack.enter_context(few_blas_threads())
            self.units: Units = units_of(self._given)
            self.problem = scaled(self._given, self.units)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self.keeper.write()
        self._stack.__exit__(kind, error, trace)
        if isinstance(error, OSError) and self.keeper.partial is not None:  # rows are unreadable
            error.result = out_of_units(self.keeper.partial, self.units)  # type: ignore[attr-defined]
            error.add_note("The error's result is the partial result: start=error.result.")

    def into(self, value: Any, name: str) -> Any:
        """Start or truth, as a call may give them, in the units of X."""
        if value is not None:
            check_tensor(value, name, self._given, self.units)
        return into_units(value, self.units, name)

    def solver(self, solver: Any) -> Any:
        """Solver, or solvers, whose fixed steps do here what they do outside."""
        return solver_in_units(solver, self.units)

    def noise_std(self, given: Any) -> Any:
        """Standard deviation of noise, in the units of y."""
        return self.units.noise_std(given)

    def limit_time(self, max_seconds: float | None, solver: Any) -> None:
        """Limit the wall time of the call; None is the default, infinity is no limit."""
        self._by_default = (
            max_seconds is None
            and isinstance(solver, str)
            and solver == "auto"
            and is_small(self._given)
        )
        limit = DEFAULT_SECONDS if self._by_default else max_seconds
        self.clock.limit = None if limit == math.inf else limit

    def callbacks(self, callbacks: Any) -> Sequence[Callback]:
        """Callbacks that see states as they are outside; context managers are entered."""
        check_callbacks(callbacks)
        for callback in callbacks:
            if isinstance(callback, AbstractContextManager):
                self._stack.enter_context(callback)
        if self.units.plain:
            return list(callbacks)
        return [_Translated(callback, self.units) for callback in callbacks]

    def outside(self, value: Any) -> Any:
        """Tensor, state or result as it is outside."""
        return out_of_units(value, self.units)

    def export(self, result: Result, noise_std: float | None = None) -> Result:
        """Result of the call as it is outside, and kept; with findings on limits and resuming.

        It can compute error bars, from the measurements and ``noise_std`` as it was given.
        """
        passes = self._readings.rows / self._readings.m  # all of the call, not of the last fit
        uncertainty = self.uncertainty(result, noise_std)
        result = replace(self.outside(result), passes=passes, uncertainty=uncertainty)
        result = result.found(*self._time_limit(result))
        self._log(result)
        if not isinstance(self.keeper, Journal):
            return result
        result = result.found(*self.keeper.findings())
        if self.keeper.trouble:
            text = f"The checkpoint could not be written: {self.keeper.trouble}."
            return result.found(Finding("checkpoint not written", text))
        if not set(np.atleast_1d(result.status)) & RESUMABLE:
            return result
        text = f"The same call with the checkpoint {self.keeper.given} resumes from here."
        return result.found(Finding("resumable", text))

    def _log(self, result: Result) -> None:
        """Tell the verdict with what led to it, and what the whole call took."""
        if log.isEnabledFor(logging.INFO):
            for finding in result.findings:
                log.info("%s", finding)
            log.info(
                "Result: %s. Residual %s, %.1f passes over the rows, %.3g s of wall time.",
                result.headline, span(result.residual, ".2e"), result.passes, self.clock.seconds,
            )  # fmt: skip

    def uncertainty(self, result: Result, noise_std: float | None) -> Uncertainty | None:
        """What error bars are computed from, inside; None where X is in no Tucker format."""
        if not isinstance(result.X, TuckerTensor):
            return None
        noise = Noise(self.noise_std(noise_std), result.weights)
        return Uncertainty(result.X, self.problem, noise, power=self.units.X)

    def _time_limit(self, result: Result) -> list[Finding]:
        """Finding that says what a time limit left out, and how to allow more."""
        clock, reached = self.clock, Status.MAX_SECONDS in np.atleast_1d(result.status)
        if clock.limit is None or not (reached or clock.skipped):
            return []
        by_default, left_out = self._by_default, tuple(clock.skipped)
        which = ", the default for data of this size," if by_default else ""
        text = f"The time limit of {clock.limit:g} s{which} was reached."
        text += f" Not finished: {'; '.join(left_out)}." if left_out else ""
        numbers = {"limit": clock.limit, "default": by_default, "skipped": left_out}
        return [Finding("time limit", text, numbers)]


def is_small(problem: Problem) -> bool:
    """Whether the default time limit holds for a problem."""
    entries, m, batch = size(problem.shape), problem.m, size(problem.batch_shape)
    traits = problem.A.traits
    of_rows = traits.row_separable and traits.forms_full_tensor  # which are of the tensor's size
    matrix = batch * m * entries if of_rows else 0
    return batch * max(entries, m) < SMALL and matrix < MATRIX


def check_callbacks(callbacks: Any) -> None:
    """Refuse what is not a sequence of callables."""
    fit = (
        isinstance(callbacks, Sequence)
        and not isinstance(callbacks, str | bytes)
        and all(callable(c) and not isinstance(c, type) for c in callbacks)
    )
    if not fit:
        raise TypeError(
            f"callbacks must be a sequence of callables, got {callbacks!r}. "
            "Try callbacks=[lowtucker.ProgressBar()]."
        )


class _Translated:
    """Callback in other units."""

    def __init__(self, callback: Callback, units: Units) -> None:
        self.callback, self.units = callback, units

    def __call__(self, progress: Progress) -> bool | None:
        return self.callback(replace(progress, state=out_of_units(progress.state, self.units)))
