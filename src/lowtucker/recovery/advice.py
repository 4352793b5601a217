"""What to try next, where no check has said so: by the status, the call and its numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from lowtucker._array import size
from lowtucker.limits import PLENTY
from lowtucker.run.call import Call
from lowtucker.run.result import Result
from lowtucker.status import Finding, Status
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding import Sparse, SparseTensor

__all__ = ["explained"]

# Measurements per degree of freedom below which these are the likely cause of a failure
FEW = 1.5
# A residual that falls by less than this share over the last fifth of a run no longer falls
FLAT = 0.01
# The default of max_epochs
EPOCHS = 500
Hint = tuple[str, dict[str, Any]]


def explained(result: Result, call: Call | None = None) -> Result:
    """Result of a call that knows it, with a hint for each of its statuses.

    A hint is a finding with the likely cause and what to change in the call. Without a call, the
    result is as it was: fits inside of a call are explained at its end. No passes.
    """
    if call is None:
        return result
    result = replace(result, call=call)
    if not result.each:
        return _hinted(result, call)
    each = list(result.each)
    for k, status in enumerate(result.status):
        if status in HINTS:
            one = _hinted(result.trial(k), call, of_batch=True)
            each[k] = replace(each[k], findings=one.findings)
    return replace(result, each=tuple(each))


def _hinted(result: Result, call: Call, *, of_batch: bool = False) -> Result:
    """Result of one problem with a hint, where its status has one."""
    if result.status not in HINTS:
        return result
    text, changes = HINTS[result.status](result, call)
    if of_batch:  # which has one rank, and one loss
        changes = {k: v for k, v in changes.items() if k not in ("rank", "loss")}
    numbers = {"status": result.status.name, "per_dof": _per_dof(result)}
    return result.found(Finding("hint", text, numbers, changes=changes))


def _underdetermined(result: Result, call: Call) -> Hint:
    changes = _more_measurements(result)
    if result.rank is None:
        return "", changes | {"loss": "huber"}
    changes |= _without(call, "rank")
    return f"There are only {_per_dof(result):.2g} measurements per degree of freedom.", changes


def _rank_too_small(result: Result, call: Call) -> Hint:
    found = (f for f in reversed(result.findings) if f.status is Status.RANK_TOO_SMALL)
    larger = next((f.numbers.get("rank") for f in found), None)
    return "", _without(call, "rank") if larger is None else {"rank": larger}


def _local_minimum(result: Result, call: Call) -> Hint:
    if _is_few(result):
        return _too_few(result, call)
    return "", _other_start(call)


def _stalled(result: Result, call: Call) -> Hint:
    """Of ``solve``, of a batch, and of solvers that were picked by hand."""
    if result.rank is not None and not isinstance(result.X, TuckerTensor):
        text = (
            "The residual stopped falling: there is noise, no tensor of this format fits, or there "
            "are too few measurements. lowtucker.compare tells how other formats predict."
        )
        return text, _diagnosed(call) or {"seed": _next_seed(call)}
    if not isinstance(result.X, TuckerTensor):
        text = (
            "Shrinkage leaves noise in the residual, which need not vanish: held-out measurements "
            "tell the error."
        )
        return text, _diagnosed(call)
    stalled = np.atleast_1d(result.status) == Status.STALLED
    residual = float(np.max(np.atleast_1d(result.residual)[stalled]))
    if residual < 1e-12:
        tol = 10.0 ** math.ceil(math.log10(10 * max(residual, 1e-16)))
        text = "The residual is at rounding error, above the tolerance."
        return text, (_diagnosed(call) if call.function == "solve" else {}) | {"tol": tol}
    # random numbers are fitted about as well as that
    if residual > 0.5 * max(0.0, 1 - 1 / _per_dof(result)) ** 0.5:
        text = (
            "Little was fitted: the rank is too small, the entries are in another order (shape, "
            "order), or noise or outliers are as large as the signal."
        )
        return text, _without(call, "rank")
    if _is_few(result):
        return _too_few(result, call)
    text = "The residual stopped falling: there is noise, or the rank does not fit."
    return text, _diagnosed(call) or _without(call, "rank") or {"seed": _next_seed(call)}


def _limited(result: Result, call: Call) -> Hint:
    """Of a run that ran out of epochs, or of time."""
    longer = {"max_epochs": None} if call.number("max_epochs", EPOCHS) < EPOCHS else {}
    if _is_few(result):
        text, changes = _too_few(result, call)
        return text, changes | longer
    if _no_longer_falls(result):
        text = (
            "The residual no longer falls: the rank does not fit, or there is noise or are "
            "outliers."
        )
        return text, longer | (_diagnosed(call) or _without(call, "rank") or {"loss": "huber"})
    return "", _resumed(result, call)


def _interrupted(result: Result, call: Call) -> Hint:
    if call.has("checkpoint"):
        return "", {}  # the same call resumes
    changes = _resumed(result, call)
    return "", changes if changes.get("start") else {"checkpoint": "run.ckpt"}


def _diverged(_result: Result, call: Call) -> Hint:
    text = "The iteration blew up, and nothing was recovered: the step is too large."
    if call.has("solver"):
        return text, {"solver": "auto"}
    text = "The iteration blew up, and nothing was recovered: the rows of A differ much in size."
    return text, _without(call, "rank") or {"rank": "auto"}


HINTS = {
    Status.UNDERDETERMINED: _underdetermined,
    Status.RANK_TOO_SMALL: _rank_too_small,
    Status.LOCAL_MINIMUM: _local_minimum,
    Status.STALLED: _stalled,
    Status.MAX_EPOCHS: _limited,
    Status.MAX_SECONDS: _limited,
    Status.INTERRUPTED: _interrupted,
    Status.DIVERGED: _diverged,
}


# What the numbers say


def _per_dof(result: Result) -> float:
    return result.m / result.degrees_of_freedom


def _is_few(result: Result) -> bool:
    """Whether the measurements are few, and there could be more."""
    few = result.rank is not None and _per_dof(result) < FEW
    return few and result.m < size(result.X.shape)


def _no_longer_falls(result: Result) -> bool:
    """Whether the last fifth of the last phase lowered the best residual by less than 1 %."""
    if any(f.numbers.get("restarts") for f in result.findings):
        return True  # it stopped falling before each of them
    history = result.history
    residual = history["residual"][history["phase"] == history["phase"][-1]]
    residual = residual if residual.ndim == 1 else np.median(residual, axis=1)
    best = np.minimum.accumulate(np.nan_to_num(residual, nan=np.inf))
    before = best[-1 - max(1, len(best) // 5)] if len(best) > 1 else np.inf
    return bool(best[-1] > (1 - FLAT) * before)


# What to change


def _too_few(result: Result, call: Call) -> Hint:
    text = (
        f"There are too few measurements: {_per_dof(result):.2g} per degree of freedom of rank "
        f"{result.rank}."
    )
    return text, _more_measurements(result) | _without(call, "rank")


def _more_measurements(result: Result) -> dict[str, Any]:
    """As many as recover most tensors of the rank; twice as many where there is none."""
    enough = 2 * result.m if result.rank is None else PLENTY * result.degrees_of_freedom
    if isinstance(result.X, SparseTensor):  # s of N places have to be found, too
        enough = max(enough, Sparse(result.rank).block_size(result.X.shape))
    m = min(math.ceil(enough), size(result.X.shape))
    return {"m": m} if m > result.m else {}


def _without(call: Call, name: str) -> dict[str, Any]:
    """Leave out an argument that was given, and a solver that needs it."""
    if call.function == "solve" or not call.has(name) or (name == "rank" and call.has_format):
        return {}
    return {name: None} | ({"solver": "auto"} if call.has("solver") else {})


def _diagnosed(call: Call) -> dict[str, Any]:
    """Let ``recover`` choose the solver, which then looks for the cause itself."""
    if call.function == "solve":
        return {"function": "recover", "solver": "auto"}
    return {"solver": "auto"} if call.has("solver") else {}


def _other_start(call: Call) -> dict[str, Any]:
    return _diagnosed(call) or {"seed": _next_seed(call), "start": None}


def _next_seed(call: Call) -> int:
    return call.number("seed", 0) + 1


def _resumed(result: Result, call: Call) -> dict[str, Any]:
    """Continue from the state, where the function takes one; otherwise raise the limit."""
    out_of_epochs = Status.MAX_EPOCHS in np.atleast_1d(result.status)
    # the rank of a search that was cut short is not yet the one to continue with
    can = call.function != "complete" and (call.has_rank or out_of_epochs)
    if (
        can
        and not call.has("checkpoint")
        and result.state is not None
        and isinstance(result.X, TuckerTensor)
    ):
        changes: dict[str, Any] = {} if call.has_rank else {"rank": result.rank}
        if call.number("max_epochs", EPOCHS) < EPOCHS:
            changes["max_epochs"] = None
        if call.has("max_seconds"):
            changes["max_seconds"] = _more_seconds(result)
        return changes | {"start": "result.state"}
    if out_of_epochs:
        return {"max_epochs": 2 * max(call.number("max_epochs", EPOCHS), EPOCHS // 2)}
    return {"max_seconds": _more_seconds(result)}


def _more_seconds(result: Result) -> float | None:
    """Ten times the limit that was reached; None, the default, where none was."""
    limits = (f.numbers["limit"] for f in result.findings if f.kind == "time limit")
    limit = next(limits, None)
    return None if limit is None else 10 * limit
