"""The call that a result came from, as code: from it the next one is written."""

from __future__ import annotations

import inspect
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["Call"]

# Arguments that appear by their name, since code of them would be long
NAMED = ("stop",)
# Arguments of other functions
REFUSED = {
    "complete": ("start", "weights", "order"),
    "solve": ("loss", "tol", "max_epochs", "max_seconds", "noise_std"),
}
# Arguments that a checkpoint does not depend on
LIMITS = {"max_epochs", "max_seconds"}


@dataclass(frozen=True)
class Call:
    """A call of the package: its function, and the arguments that differ from their defaults.

    Attributes
    ----------
    function : str
        "recover", "complete" or "solve".
    data : tuple of str
        Arguments without a default, by name.
    arguments : mapping of str to str
        The others as code. What cannot be written down, such as an array, appears by its name.

    Examples
    --------
    >>> call = Call("recover", ("A", "y"), {"rank": "(2, 2, 2)", "weights": "weights"})
    >>> call.code({"rank": (3, 3, 2)})
    'lt.recover(A, y, rank=(3, 3, 2), weights=weights)'
    """

    function: str
    data: tuple[str, ...]
    arguments: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, function: Callable[..., Any], given: Mapping[str, Any]) -> Call:
        """Call of a function with these arguments, such as its ``locals()``."""
        defaults = _defaults(function)
        data = tuple(
            name for name, default in defaults.items() if default is inspect.Parameter.empty
        )
        arguments = {
            name: (name not in NAMED and _code(given[name])) or name
            for name, default in defaults.items()
            if name not in data and not _equal(given[name], default)
        }
        return cls(function.__name__, data, arguments)

    def has(self, name: str) -> bool:
        """Whether an argument was given."""
        return name in self.arguments

    @property
    def has_rank(self) -> bool:
        """Whether a rank was given, and not searched."""
        return self.has("rank") and not self.searches_rank

    @property
    def has_format(self) -> bool:
        """Whether a thresholding was given in place of a rank."""
        return self.arguments.get("rank", "").startswith("lt.") and not self.searches_rank

    @property
    def searches_rank(self) -> bool:
        """Whether the rank was searched, by "auto" or a RankSearch."""
        rank = self.arguments.get("rank", "")
        return rank.lower() == '"auto"' or rank.startswith("lt.RankSearch")

    def number(self, name: str, default: int) -> int:
        """Integer that was given; the default where there is none."""
        text = self.arguments.get(name, "")
        return int(text) if text.isdigit() else default

    def differing(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Changes that the function can take, and that make another call than this one."""
        refused = REFUSED.get(changes.get("function", self.function), ())
        return {
            name: value
            for name, value in changes.items()
            if name not in refused
            and _argument(name, value) != self.arguments.get(name)
            and not (name == "rank" and value == "auto" and self.searches_rank)
        }

    def code(self, changes: Mapping[str, Any]) -> str:
        """Python code of the call with some arguments changed; None leaves one out.

        ``"function"`` is a change too: :func:`lowtucker.recover` takes over from ``solve``.
        """
        function, data = changes.get("function", self.function), self.data
        arguments: dict[str, str | None] = dict(self.arguments)
        for name in self._left_out(changes):
            arguments[name] = None
        if function != self.function:
            data = ("problem.A", "problem.y")
            arguments |= {"stop": None, "weights": "problem.weights"}
        arguments |= {k: _argument(k, v) for k, v in changes.items() if k not in ("function", "m")}
        names = sorted(arguments, key=lambda name: name != "rank")
        options = [f"{name}={arguments[name]}" for name in names if arguments[name] is not None]
        return f"lt.{function}({', '.join([*data, *options])})"

    def _left_out(self, changes: Mapping[str, Any]) -> list[str]:
        """Arguments that the next call cannot have, or need not."""
        names = ["callbacks"]
        if set(changes) - LIMITS:
            names.append("checkpoint")  # it is of other settings
        if {"rank"} & set(changes):
            names.append("start")  # it has a rank of its own
        return names


@lru_cache(maxsize=16)
def _defaults(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Parameters of a function, with their defaults."""
    parameters = inspect.signature(function).parameters
    return {name: one.default for name, one in parameters.items()}


def _argument(name: str, value: Any) -> str | None:
    """Code of a changed argument; None for its default."""
    if value is None or (name == "solver" and value == "auto"):
        return None
    return str(value) if name == "start" else _code(value) or name


def _equal(value: Any, default: Any) -> bool:
    plain = value is None or isinstance(value, bool | int | float | str | tuple)
    return value is default or (plain and type(value) is type(default) and value == default)


def _code(value: Any) -> str | None:
    """Python code of a value; None where there is none."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None or isinstance(value, bool | int | float | str):
        return _plain(value)
    if isinstance(value, tuple | list):
        return _sequence(value)
    public = type(value).__module__.startswith("lowtucker.")
    return _record(value) if public and is_dataclass(value) else None


def _plain(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _sequence(values: Any) -> str | None:
    texts = [_code(one) for one in values]
    if len(texts) > 20 or None in texts:
        return None
    inside = ", ".join(map(str, texts))
    if isinstance(values, list):
        return f"[{inside}]"
    return f"({inside},)" if len(texts) == 1 else f"({inside})"


def _record(value: Any) -> str | None:
    """Code of a solver or a rank search, with the settings that differ from their defaults."""
    settings = []
    for one in fields(value):
        setting = getattr(value, one.name)
        if not one.init or not one.repr or _equal(setting, one.default):
            continue
        text = _code(setting)
        if text is None:
            return None
        settings.append(f"{one.name}={text}")
    return f"lt.{type(value).__name__}({', '.join(settings)})"
