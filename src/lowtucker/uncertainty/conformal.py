"""Conformal intervals: by held-out entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Calibration"]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Held-out residuals (being written)."""

    def half_width(self, indices: Any, level: float) -> Any:
        """Half-widths."""
        raise NotImplementedError

    def standard_error(self, indices: Any) -> Any:
        """Return half-widths at 68.3 %."""
        raise NotImplementedError
