"""Operators whose functions contradict each other, such as by a wrong adjoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lowtucker._array import to_numpy
from lowtucker._array.clock import TimeUp
from lowtucker._array.errors import OperatorWarning, warn_caller
from lowtucker.operators.checks import inconsistency
from lowtucker.recovery.hard import of_each
from lowtucker.run.result import Result
from lowtucker.run.scope import Scope
from lowtucker.status import Finding, Status

__all__ = ["doubted", "of_functions"]

# Relative differences above which a residual need not be noise; unmatched pairs of projections and
# back-projections differ by some per cent
GROSS = 0.1
UP_TO_NOISE = (Status.NOISE_FLOOR, Status.APPROXIMATED)


def of_functions(scope: Scope) -> Finding | None:
    """Warn before the work of an operator whose functions contradict each other.

    Only operators without a tangent design of their own are asked, for those are made of functions
    that the package does not know. Three passes.
    """
    A = scope.problem.A
    if A.traits.has_fast_tangent or not A.traits.forms_full_tensor or A.batch_shape:
        return None
    try:
        with scope.clock.watched():
            found = inconsistency(A, float(np.max(to_numpy(scope.problem.y_norm))))
    except TimeUp:
        return None
    if found is None:
        return None
    what, gap = found
    text = f"{type(A).__name__}: {what}. lowtucker.check_adjoint(A) tests it in more detail."
    warn_caller(text, OperatorWarning)
    return Finding("operator", text, {"gap": gap})


def doubted(result: Result, found: Finding | None) -> Result:
    """Result of an operator whose functions contradict each other.

    Where they do so grossly, the residual need not be noise, and no estimate holds: only a tensor
    that fits y exactly is a success.
    """
    if found is None:
        return result
    if result.each:
        every = [doubted(result.trial(k), found) for k in range(len(result.each))]
        return replace(of_each(result, every), passes=result.passes)
    if found.numbers["gap"] <= GROSS or result.status not in UP_TO_NOISE:
        return result.found(found)
    result = result.found(replace(found, status=Status.STALLED))
    return replace(result, error_estimate=None, error_interval=None)
