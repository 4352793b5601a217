"""The advice that a result gives, written from its status and its findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lowtucker.limits import HOPELESS
from lowtucker.status import UNDETERMINED, Finding, Status

if TYPE_CHECKING:
    from lowtucker.run.result import Result

__all__ = ["SENTENCES", "Words", "advised", "estimate_text", "next_call"]

# How a face writes the next call, given what changes: Python code, a command, fields of a form
Words = Callable[[Mapping[str, Any]], str]

SENTENCES = 3
ENDS = re.compile(r"(?<=[.!?]) (?=[A-Z])")


def advised(result: Result, status: Status, words: Words | None = None) -> str:
    """Advice for a status of a result: the cause, what to do, and the next call to try.

    At most three sentences. ``words`` writes the next call; Python code by default. Of a batch, the
    advice for the first problem that ended like this.
    """
    if result.each:
        return advised(result.trial(result.status.tolist().index(status)), status, words)
    if status.success or status is Status.ERROR_REACHED:
        return _of_a_success(result, status)
    last = _measurements(result, status)
    try_this = next_call(result, status, words)
    if try_this:
        last.append(f"Try: {try_this}")
    first = ENDS.split(_cause(result, status))[: SENTENCES - len(last)]
    return " ".join([*first, *last])


def next_call(result: Result, status: Status, words: Words | None = None) -> str:
    """The next call to try, as a face writes it; "" where there is none."""
    changes = {k: v for k, v in _changes(result, status).items() if k != "m"}
    if result.call is None or status.success or _unsampled(result, status) is not None:
        return ""
    changes = result.call.differing(changes)
    again = status is Status.INTERRUPTED and result.call.has("checkpoint")
    if not changes and not again:
        return ""
    return (words or result.call.code)(changes)


def estimate_text(result: Result) -> str:
    """The error estimate, with its interval where there is one."""
    text = f"{result.error_estimate:.1e}"
    if result.error_interval is None:
        return text
    low, high = result.error_interval
    return f"{text} (95 %: {low:.1e} to {high:.1e})"


def _of_a_success(result: Result, status: Status) -> str:
    """What the status and the estimate mean."""
    if result.error_estimate is not None and status.success:
        return f"{status} Expect a relative error of about {estimate_text(result)}."
    if status is Status.CONVERGED and result.call is not None and result.call.function == "solve":
        return f"{status} Whether the measurements determine X was not checked."
    if status in (Status.NOISE_FLOOR, Status.APPROXIMATED):
        return f"{status} There is no estimate of the error of X."
    return str(status)


def _cause(result: Result, status: Status) -> str:
    """The most likely cause: what decided the status, or what the numbers suggest."""
    unsampled = _unsampled(result, status)
    found = unsampled or _deciding(result, status) or _hint(result, status)
    text = str(status) if found is None or not found.text else found.text
    if found is unsampled or text == str(status) or not _is_nothing(result, status):
        return text
    return f"X is not recovered: {text[0].lower()}{text[1:]}"


def _is_nothing(result: Result, status: Status) -> bool:
    """Whether X may be anything: not one of its digits is to be trusted."""
    estimate = result.error_estimate
    unknown = estimate is None or estimate > HOPELESS
    return status is Status.LOCAL_MINIMUM or (status is Status.UNDERDETERMINED and unknown)


def _changes(result: Result, status: Status) -> Mapping[str, Any]:
    """Arguments to change, by the finding that decided, or else by the numbers."""
    for found in (_deciding(result, status), _hint(result, status)):
        if found is not None and found.changes:
            return found.changes
    return {}


def _measurements(result: Result, status: Status) -> list[str]:
    """How many measurements to take, where more of them are needed."""
    if _unsampled(result, status) is not None:
        return ["Add samples there, or leave these slices out."]
    m = _changes(result, status).get("m")
    if m is None or m <= result.m:
        return []
    per_dof = ""
    if result.rank is not None:
        per_dof = f", {m / result.degrees_of_freedom:.1f} per degree of freedom"
    return [f"Take about {m:.0f} measurements{per_dof}."]


def _unsampled(result: Result, status: Status) -> Finding | None:
    """What the operator says of slices without samples, where X is not determined."""
    if status is not Status.UNDERDETERMINED:
        return None
    return next((f for f in result.findings if f.kind in UNDETERMINED), None)


def _deciding(result: Result, status: Status) -> Finding | None:
    """The last finding that decided this status."""
    return next((f for f in reversed(result.findings) if f.status is status), None)


def _hint(result: Result, status: Status) -> Finding | None:
    hints = (f for f in reversed(result.findings) if f.kind == "hint")
    return next((f for f in hints if f.numbers.get("status") == status.name), None)
