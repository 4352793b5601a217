"""The next run to try, in the words of the page."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from lowtucker.lab.app.settings import Data, Picture, Recovery

__all__ = ["fields_to_change", "in_fields"]

MORE = re.compile(r"Take about (\d+) measurements(, [\d.]+ per degree of freedom)?\.")


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


def in_fields(setting: Recovery, advice: str) -> str:
    """Advice on the number of measurements, as a field of the page to change.

    Examples
    --------
    >>> from lowtucker.lab.app.limits import Limits
    >>> from lowtucker.lab.app.settings import parsed
    >>> setting = parsed({"tab": "synthetic", "shape": "8,8,6", "rank": "2,2,2"}, Limits())
    >>> in_fields(setting, "Take about 112 measurements, 2.8 per degree of freedom.")
    'Set “m, per degree of freedom” to 2.8 or more (112 measurements).'
    """
    size = math.prod(setting.shape)

    def field(found: re.Match[str]) -> str:
        m = int(found[1])
        if isinstance(setting, Picture):
            share = max(0, 100 - math.ceil(100 * m / size))
            return f"Set “Missing pixels” to {share} % or less."
        if isinstance(setting, Data):
            return f"Set “Measurements, share of entries” to {math.ceil(100 * m / size)} % or more."
        ratio = math.ceil(10 * m / (setting.dof or 1) - 1e-9) / 10
        return f"Set “m, per degree of freedom” to {ratio:g} or more ({m} measurements)."

    return MORE.sub(field, advice)
