"""The next run to try, in the words of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtucker.lab.app.settings import Data, Recovery

__all__ = ["fields_to_change"]


def fields_to_change(setting: Recovery, changes: Mapping[str, Any]) -> str:
    """Fields of the page to change; what it has no field for is changed in its code.

    Examples
    --------
    >>> from lowtucker.lab.app.limits import Limits
    >>> from lowtucker.lab.app.settings import parsed
    >>> setting = parsed({"tab": "synthetic"}, Limits())
    >>> fields_to_change(setting, {"rank": (3, 3, 2), "solver": "auto"})
    'Tucker rank 3, 3, 2; the solver auto.'
    >>> fields_to_change(setting, {"loss": "huber"})
    '“Show me the code”, with loss="huber" in its call.'
    """
    fields, others = [], {}
    for name, value in changes.items():
        if name == "rank" and isinstance(value, tuple):
            fields.append(f"Tucker rank {', '.join(map(str, value))}")
        elif name == "rank" and value is None and isinstance(setting, Data):
            fields.append("Rank “not given”")
        elif name == "solver" and value == "auto":
            fields.append("the solver auto")
        elif name == "start":  # the page has no state to resume from
            others["max_epochs"] = str(2 * setting.max_epochs)
        elif value is not None or name == "rank":
            others[name] = f'"{value}"' if isinstance(value, str) else str(value)
    if others:
        written = ", ".join(f"{name}={text}" for name, text in others.items())
        fields.append(f"“Show me the code”, with {written} in its call")
    return f"{'; '.join(fields)}." if fields else ""
