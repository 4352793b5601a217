"""Advice: what to try, where diagnosis has decided what happened."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker.run.result import Result
from lowtucker.status import Finding, Status
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["explained"]


def explained(result: Result) -> Result:
    """Result with what the numbers suggest where it stalled and nothing else was found."""
    stalled = np.atleast_1d(result.status) == Status.STALLED
    if not stalled.any() or result.notes:  # the notes say more
        return result
    if result.rank is None and not isinstance(result.X, TuckerTensor):
        text = (
            "Shrinkage leaves noise in the residual, which need not vanish. A call without a "
            "solver and without a rank also estimates the error, by held-out measurements."
        )
        return result.found(Finding("hint", text, {"status": "STALLED"}))
    residual = float(np.max(np.atleast_1d(result.residual)[stalled]))
    ratio = result.m / result.degrees_of_freedom
    # random numbers are fitted about as well as that
    if residual > 0.5 * max(0.0, 1 - 1 / ratio) ** 0.5:
        text = (
            "Little was fitted: try a larger rank, check shape=, order= and "
            "lowtucker.check_adjoint(A), or see whether the noise is as large as the signal."
        )
    elif residual < 1e-12:
        text = "The residual is at rounding error: raise tol."
    elif ratio < 3:
        text = (
            f"With {ratio:.1f} measurements per degree of freedom the rank may be too large: "
            "try more measurements, a smaller rank, or another seed."
        )
    else:
        text = "Try noise_std= where there is noise, a larger rank, or another seed."
    numbers: dict[str, Any] = {"status": "STALLED", "residual": residual, "per_dof": ratio}
    return result.found(Finding("hint", text, numbers))
