"""Why a run ended, and findings about its result. Every status is advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = ["UNDETERMINED", "Finding", "Status"]

# Kinds of findings that say what the measurements cannot determine
UNDETERMINED = ("unsampled", "undersampled")


class Status(Enum):
    """Reason why a run ended; ``str(status)`` says what it means and what to try.

    Examples
    --------
    >>> Status.CONVERGED.success, Status.MAX_EPOCHS.success
    (True, False)
    >>> print(Status.MAX_EPOCHS)
    The maximum number of epochs was reached. The residual may still be falling: ...
    """

    CONVERGED = "The residual fell below the tolerance."
    ERROR_REACHED = (
        "The error against X_true fell below its tolerance. That is no verdict: it used the truth."
    )
    NOISE_FLOOR = "The residual is noise: of the given size, or without structure."
    APPROXIMATED = (
        "The data are approximated, not exactly of low rank; held_out estimates the error, by fits "
        "to nine tenths of the data."
    )
    STALLED = (
        "The residual stopped falling above the tolerance: a local minimum, a rank that does not "
        "fit, noise, or a tolerance below rounding error."
    )
    LOCAL_MINIMUM = (
        "The fit ended at a local minimum: X is not the best tensor of its rank, as far as can be "
        "told."
    )
    RANK_TOO_SMALL = (
        "A larger rank predicts held-out measurements clearly better. Try the rank that the note "
        'names, or rank="auto".'
    )
    DIVERGED = (
        'The iteration blew up; X is its last finite iterate. Try a smaller step, or step="auto".'
    )
    UNDERDETERMINED = (
        "The measurements do not determine X: there are fewer than degrees of freedom, or the "
        "tangent design is rank-deficient. Many tensors of that rank fit, and this is one of them. "
        "Take more measurements, or a smaller rank."
    )
    MAX_EPOCHS = (
        "The maximum number of epochs was reached. The residual may still be falling: to resume, "
        "pass start=result.state, or raise max_epochs."
    )
    MAX_SECONDS = "Time limit reached. To resume, pass start=result.state, or raise max_seconds."
    INTERRUPTED = "Interrupted. To resume, pass start=result.state."

    @property
    def success(self) -> bool:
        """Whether the tensor can be trusted."""
        return self in (Status.CONVERGED, Status.NOISE_FLOOR, Status.APPROXIMATED)

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Finding:
    """One statement about a problem or a result, with the numbers behind it.

    Attributes
    ----------
    kind : str
        A name for programs: "unsampled", "duplicates", "larger rank", ...
    text : str
        A sentence for people.
    numbers : mapping of str to numbers
    status : Status or None
        The status that it decides, if any.
    borderline : bool
        Whether slightly different numbers would have led to another decision.
    changes : mapping of str to values
        Arguments of the next call to try that differ from those of this one, such as
        ``{"rank": (3, 3, 2)}``; ``{"m": 600}`` asks for so many measurements.
    """

    kind: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    status: Status | None = None
    borderline: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text
