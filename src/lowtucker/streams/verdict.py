"""The verdict on a stream: its status, the error to expect, and a result."""

from __future__ import annotations

import math
from dataclasses import replace

from lowtucker.limits import POOR_FIT
from lowtucker.recovery.accuracy import Accuracy
from lowtucker.run.history import History
from lowtucker.run.result import Result
from lowtucker.solvers.models import dot
from lowtucker.status import Finding, Status
from lowtucker.streams.recursion import Recursion
from lowtucker.streams.state import FIRST, State, quietly_recovered
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.uncertainty.bars import Uncertainty
from lowtucker.uncertainty.information import Information

__all__ = ["accuracy_of", "finding_of", "result_of"]


def finding_of(state: State) -> Finding:
    """What decides the status of a stream."""
    now, start, dof = state.filter, state.start, state.settings.dof
    if now is None or start is None:
        return _too_few(state)
    accuracy, numbers = now.accuracy, {"m": state.m, "count": now.tally.count}
    if not accuracy.determined:
        text = "The measurements so far do not determine X: some directions are not measured."
        return Finding("not determined", text, numbers, Status.UNDERDETERMINED)
    if now.residual <= state.settings.tol:
        return Finding("verdict", str(Status.CONVERGED), numbers, Status.CONVERGED)
    score = now.recent.score
    if score is not None and score > POOR_FIT:
        text = f"New measurements are predicted to {score:.2g} only: X is not found, or is lost."
        return Finding("lost", text, {"score": score}, Status.LOCAL_MINIMUM)
    if now.recent.exceeds(accuracy.sigma):
        text = (
            "New measurements are predicted worse than old ones were fitted: the tensor changes. "
            f"Try {'a shorter memory' if state.settings.memory else f'memory={5 * dof}'}."
        )
        return Finding("changing", text, {"score": score}, Status.APPROXIMATED)
    if start.status in (Status.CONVERGED, Status.NOISE_FLOOR):
        text = f"The fit to the first {start.m} measurements was a success."
        return Finding("verdict", text, numbers, Status.NOISE_FLOOR)
    if start.status is Status.UNDERDETERMINED and score is not None:
        start = replace(start, status=Status.APPROXIMATED)
    text = f"The fit to the first {start.m} measurements: {start.status.words}."
    return Finding("verdict", text, numbers, start.status)


def _too_few(state: State) -> Finding:
    dof = state.settings.dof
    needed = math.ceil(FIRST * dof)
    if state.equations < needed:
        text = (
            f"There are {state.m} measurements so far; rank {state.settings.rank}, with {dof} "
            f"degrees of freedom, needs about {needed}. Until then X is a shrunk estimate."
        )
    else:
        text = (
            f"Rank {state.settings.rank} was fitted to {state.m} measurements, without success so "
            "far: more are needed, or another rank. Until then X is a shrunk estimate."
        )
    numbers = {"m": state.m, "needed": needed, "dof": dof}
    changes = {"m": needed} if state.equations < needed else {}
    return Finding("few", text, numbers, Status.UNDERDETERMINED, changes=changes)


def accuracy_of(state: State) -> Accuracy | None:
    """Error of X by noise, and by lag where there is forgetting; None during the warm-up."""
    now = state.filter
    if now is None or not now.accuracy.determined:
        return None
    return replace(now.accuracy, step=_lag(state, now.X, now.accuracy.noise))


def _lag(state: State, X: TuckerTensor, noise: float) -> float:
    """Relative distance that X is behind a tensor that moves steadily."""
    found = _behind(state, X, noise)
    return 0.0 if found is None else found[1]


def _behind(state: State, X: TuckerTensor, noise: float) -> tuple[TuckerTensor, float] | None:
    r"""An earlier tensor, and the relative distance that X is behind; None where it is not.

    Exponential weights of memory M look back M measurements on average: the lag is the distance
    that X has moved in that time, less what noise moves it by.
    """
    memory, size = state.settings.memory, float(X.norm())
    known = [one for one in state.past if memory and state.m - one.m >= memory / 2]
    if memory is None or not known or not size:
        return None
    one = min(known, key=lambda past: abs(state.m - past.m - memory))
    age = (state.m - one.m) / memory
    moved = float((X - one.X).norm()) / size
    by_noise = 2 * noise * noise * (1 - math.exp(-age))
    lag = math.sqrt(max(moved * moved - by_noise, 0.0)) / age
    return (one.X, lag) if lag else None


def result_of(state: State) -> Result:
    """Result of a stream so far."""
    finding = finding_of(state)
    if state.filter is None:
        return quietly_recovered(state.problem(), state.settings, None).found(finding)
    now, accuracy = state.filter, accuracy_of(state)
    X, asked, residual = now.X, state.settings, now.residual
    cost = 0.5 * residual**2 * now.tally.energy
    row = {
        "epoch": 0, "passes": 1.0, "seconds": 0.0, "residual": residual, "cost": cost,
        "phase": "stream",
    }  # fmt: skip
    # by the mean information the estimate is rough: no interval can be given
    interval = accuracy.interval if accuracy and isinstance(now, Recursion) else None
    others = state.start.findings if state.start is not None else ()
    # what was said of the first measurements may not be so for all
    kept = tuple(f for f in others if f.status is finding.status and f.status is not None)
    return Result(
        X=X,
        residual=residual,
        status=finding.status,
        history=History.of({name: [value] for name, value in row.items()}),
        rank=X.rank,
        epochs=1,
        passes=1.0,
        seconds=0.0,
        solver=f"Online(memory={asked.memory})" if asked.memory else "Online()",
        m=state.m,
        degrees_of_freedom=X.degrees_of_freedom,
        error_estimate=None if accuracy is None else accuracy.error,
        error_interval=interval,
        held_out=now.recent.score,
        findings=(*kept, finding),
        uncertainty=_uncertainty(state),
    )


def _uncertainty(state: State) -> Uncertainty | None:
    """Error bars by the information at hand, at X; none where only its mean is known.

    What X is behind a tensor that moves counts in the direction in which X has moved.
    """
    if not isinstance(state.filter, Recursion):
        return None
    now = state.filter.relinearised()
    sigma = now.accuracy.sigma * math.sqrt(now.tally.share)
    spare = float(now.accuracy.spare or 0)
    made = Information.of_gram(now.T, now.gram, None, sigma if spare else math.inf, spare)
    X = now.T.X
    behind = _behind(state, X, now.accuracy.noise)
    if behind is not None:
        moved = now.T.coordinates(X - behind[0])
        length = math.sqrt(float(dot(moved, moved)))
        made = replace(made, left=moved * (behind[1] * float(X.norm()) / (length or 1.0)))
    return Uncertainty(X, information=made)
