"""Parse and check the values of a query string."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["SettingError", "Words"]


class SettingError(ValueError):
    """An invalid setting, or one beyond a limit; ``field`` is its name on the page."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class Words:
    """Named texts, each parsed and checked by name.

    Examples
    --------
    >>> Words({"shape": "3,4,5"}).integers("shape", (1, 1, 1), 1, 9)
    (3, 4, 5)
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        if not isinstance(values, Mapping):
            raise SettingError("", f"Settings must be named values, got {type(values).__name__}.")
        self.values = values

    def text(self, field: str, default: str = "") -> str:
        """Return a short text."""
        value = self.values.get(field, default)
        if not isinstance(value, str) or len(value) > 200:
            raise SettingError(field, f"{field} must be a short text, got {value!r:.80}.")
        return value.strip()

    def choice(self, field: str, options: tuple[str, ...], default: str) -> str:
        """Return one of the options."""
        value = self.text(field, default)
        if value not in options:
            raise SettingError(field, f"{field} is {value!r}; expected {', '.join(options)}.")
        return value

    def number(self, field: str, default: float, low: float, high: float) -> float:
        """Return a number in a range."""
        text = self.text(field, str(default))
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:  # written so that NaN is rejected
            raise SettingError(field, f"{field} is {text!r}; expected a number, {low} to {high}.")
        return value

    def integer(self, field: str, default: int, low: int, high: int) -> int:
        """Return an integer in a range."""
        return self._whole(field, self.text(field, str(default)), low, high)

    def integers(
        self, field: str, default: tuple[int, ...], low: int, high: int
    ) -> tuple[int, ...]:
        """Return comma-separated integers, as many as the default has."""
        parts = self.text(field, ",".join(map(str, default))).split(",")
        if len(parts) != len(default):
            raise SettingError(
                field, f"{field} has {len(parts)} numbers; expected {len(default)}, as {default}."
            )
        return tuple(self._whole(field, part, low, high) for part in parts)

    def integer_or_auto(self, field: str, low: int, high: int) -> int | None:
        """Return an integer, or None for "auto"."""
        return None if self._is_auto(field) else self.integer(field, low, low, high)

    def number_or_auto(self, field: str) -> float | None:
        """Return a positive number, or None for "auto"."""
        return None if self._is_auto(field) else self.number(field, 1, 1e-9, 1e9)

    def span(self, field: str, size: int) -> tuple[int, int]:
        """Return first and last of a range such as 3:10."""
        parts = self.text(field, f"1:{size}").split(":")
        if len(parts) != 2:
            raise SettingError(field, f"{field} must be first:last, such as 1:{size}.")
        first, last = (self._whole(field, part, 1, size) for part in parts)
        if last < first:
            raise SettingError(field, f"{field} {first}:{last}: last must be at least first.")
        return first, last

    def _is_auto(self, field: str) -> bool:
        return self.text(field, "auto").lower() in ("auto", "")

    def _whole(self, field: str, text: str, low: int, high: int) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise SettingError(
                field, f"{field} is {text!r}; expected a whole number, {low} to {high}."
            )
        return value
