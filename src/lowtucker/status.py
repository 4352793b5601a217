"""Why a run ended, and findings about its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = ["UNDETERMINED", "Finding", "Status"]

# Kinds of findings that say what the measurements cannot determine
UNDETERMINED = ("unsampled", "undersampled")


class Status(Enum):
    """Reason why a run ended; ``str(status)`` says what it means, ``result.advice`` what to try.

    Examples
    --------
    >>> Status.CONVERGED.success, Status.MAX_EPOCHS.success
    (True, False)
    >>> print(Status.RANK_TOO_SMALL.words)
    rank too small
    >>> print(Status.RANK_TOO_SMALL)
    A larger rank predicts held-out measurements clearly better.
    """

    CONVERGED = "The residual fell below the tolerance: X fits the measurements."
    ERROR_REACHED = (
        "The error against X_true fell below its tolerance. That is no verdict: it used the truth."
    )
    NOISE_FLOOR = "X is recovered up to noise: the residual is as large as noise leaves it."
    APPROXIMATED = (
        "The data are noisy, or not exactly of low rank (or of the given format): X approximates "
        "them, and predicts held-out data."
    )
    UNDERDETERMINED = (
        "The measurements do not determine X: other tensors fit them as well, and this is one of "
        "many."
    )
    RANK_TOO_SMALL = "A larger rank predicts held-out measurements clearly better."
    LOCAL_MINIMUM = (
        "X is not recovered: the fit ended at a local minimum, with a residual that is not noise."
    )
    STALLED = (
        "The residual stopped falling above the tolerance: a local minimum, a rank that does not "
        "fit, noise, or a tolerance below rounding error."
    )
    MAX_EPOCHS = "The limit on the epochs was reached before the residual was small."
    MAX_SECONDS = "The time limit was reached before the end."
    INTERRUPTED = "The run was interrupted: X is the best so far."
    DIVERGED = "The iteration blew up: X is its last finite iterate, and is not recovered."

    @property
    def success(self) -> bool:
        """Whether the tensor can be trusted."""
        return self in (Status.CONVERGED, Status.NOISE_FLOOR, Status.APPROXIMATED)

    @property
    def words(self) -> str:
        """The name in words."""
        return self.name.lower().replace("_", " ")

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
