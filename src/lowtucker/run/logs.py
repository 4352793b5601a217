"""What a run tells the logger ``lowtucker.run``: INFO its phases, DEBUG its epochs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lowtucker._array.log import logger
from lowtucker.run.history import span
from lowtucker.run.ledger import Found
from lowtucker.run.result import Result
from lowtucker.solvers import Solver

if TYPE_CHECKING:
    from lowtucker.run.loop import Run

__all__ = ["begun", "ended", "recorded", "taken_over"]

log = logger("run")


def begun(run: Run, how: str) -> None:
    """Tell how a run starts or resumes, and with what."""
    if log.isEnabledFor(logging.INFO):
        m = int(np.min(run.problem.equations))
        each = f" each of {run.count} problems" if run.is_batch else ""
        log.info("%s %s with %r: %d measurements%s.", _fit(run), how, run.bound.solver, m, each)


def recorded(run: Run) -> None:
    """Tell the last row of the history, and whether another start was begun with it."""
    if not log.isEnabledFor(logging.INFO):
        return
    history = run.ledger.history
    row, phases = history.last, history["phase"][-2:]
    restarts = run.bound.solver.restarts(run.state)
    if restarts and len(phases) > 1 and phases[0] != phases[1]:
        log.info("%s tries start %d.", _fit(run), restarts + 1)
    log.debug(
        "Epoch %d, %s: residual %s, %.1f passes, %.3g s.",
        row["epoch"], row["phase"], span(row["residual"], ".2e"), row["passes"], row["seconds"],
    )  # fmt: skip


def taken_over(run: Run, before: Solver, best: Sequence[Found]) -> None:
    """Tell that another solver takes over the problems that are active now."""
    if log.isEnabledFor(logging.INFO):
        log.info(
            "%s: %s %s at a residual of %s; %r takes over.",
            _fit(run), before.name, _endings(run.ledger.statuses[run.ledger.active]),
            span([found.residual for found in best], ".2e"), run.bound.solver,
        )  # fmt: skip


def ended(run: Run, result: Result) -> None:
    """Tell how a run ended, and what it took."""
    if log.isEnabledFor(logging.INFO):
        log.info(
            "%s ended, %s: residual %s, %s epochs, %.1f passes, %.3g s.",
            _fit(run), _endings(np.atleast_1d(result.status)), span(result.residual, ".2e"),
            span(result.epochs), result.passes, result.seconds,
        )  # fmt: skip


def _fit(run: Run) -> str:
    """What is fitted: the stage of the call, or else the rank."""
    if run.stage:
        return f"The fit ({run.stage})"
    return "The fit" if run.bound.rank is None else f"The fit of rank {run.bound.rank}"


def _endings(statuses: Any) -> str:
    return ", ".join(dict.fromkeys(status.words for status in statuses))
