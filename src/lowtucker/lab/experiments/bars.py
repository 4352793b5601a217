"""Error bars in reports and on the page, where they are quickly computed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from lowtucker._array.errors import ModelWarning
from lowtucker.run.pictures import kind_of_bars
from lowtucker.run.result import Result

__all__ = ["presumed", "why_no_bars"]

# Flops of standard errors: 2 s of one core at 2.6 GHz, up to 1600 degrees of freedom
FLOPS = 5e10


def why_no_bars(result: Result, entries: int) -> str:
    """Why standard errors of so many entries are not computed; "" where they are.

    A report does not take longer for them than a recovery does.
    """
    if kind_of_bars(result) == "conformal":  # by residuals that are known
        return ""
    dof = result.degrees_of_freedom
    if result.uncertainty is None:
        return "Standard errors need a Tucker rank; this tensor has none."
    if (result.m + entries) * dof**2 > FLOPS:
        return (
            f"Standard errors of {entries} entries at {dof} degrees of freedom would take too "
            "long here: result.standard_error(indices) computes them."
        )
    return ""


@contextmanager
def presumed() -> Iterator[None]:
    """Leave out the warning that bars presume a model: the words beside them say it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        yield
