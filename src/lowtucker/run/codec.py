"""Values as JSON and named arrays: what result files and checkpoints are made of. No pickle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import fields
from typing import Any

import numpy as np

from lowtucker._array import Array, like, to_numpy
from lowtucker.run.history import History
from lowtucker.solvers import Memory, State
from lowtucker.status import Finding, Status
from lowtucker.thresholding import FORMATS, Iterate

__all__ = ["Codec", "check_members"]

# What a state has that is recomputed from X
RECOMPUTED = {State: ("cache",)}


class Codec:
    """Encodes values, and decodes them bit for bit.

    Numbers, texts, lists, tuples and dictionaries of these; arrays; statuses, findings, histories;
    iterates of every format in :data:`lowtucker.thresholding.FORMATS`; states with the memory of
    their solver; and records.

    Parameters
    ----------
    *records : dataclasses
        Records beside states, findings and memories.
    """

    def __init__(self, *records: type) -> None:
        self.records = records

    def encode(self, value: Any, arrays: dict[str, Any], name: str = "value") -> Any:
        """JSON of a value; arrays are added to ``arrays``, named by where they stand."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Status):
            return {"status": value.name}
        if isinstance(value, list):
            return [self.encode(one, arrays, f"{name}.{k}") for k, one in enumerate(value)]
        if isinstance(value, tuple):
            return {"tuple": self.encode(list(value), arrays, name)}
        if isinstance(value, Iterate):
            parts = self._pairs(value.parts(), arrays, name)
            return {"iterate": [_format_of(value), parts, self.encode(value.layout, arrays, name)]}
        if isinstance(value, History):
            columns = {column: _texts_as_list(value[column]) for column in value}
            return {"history": self._pairs(columns, arrays, name)}
        if type(value) in self._known().values():
            kind = type(value)
            skipped = RECOMPUTED.get(kind, ())
            items = {
                f.name: getattr(value, f.name)
                for f in fields(kind)
                if f.init and f.name not in skipped
            }
            return {"record": [kind.__name__, self._pairs(items, arrays, name)]}
        if isinstance(value, Mapping):
            return {"pairs": self._pairs(value, arrays, name)}
        array = to_numpy(value)
        if array.dtype == object:  # of statuses
            return {"statuses": [status.name for status in array.tolist()]}
        arrays[name] = array
        return {"array": name}

    def decode(self, value: Any, arrays: Mapping[str, Any], example: Array = None) -> Any:
        """Value of its JSON; iterates come back as arrays of the kind of ``example``."""
        if isinstance(value, list):
            return [self.decode(one, arrays, example) for one in value]
        if not isinstance(value, dict):
            return value
        ((kind, inside),) = value.items()
        if kind == "array":
            return arrays[inside]
        if kind == "status":
            return Status[inside]
        if kind == "statuses":
            return np.array([Status[name] for name in inside], dtype=object)
        if kind == "tuple":
            return tuple(self.decode(inside, arrays, example))
        if kind == "iterate":
            name, parts, layout = inside
            made = dict(self.decode(parts, arrays, example))
            if example is not None:
                made = {key: like(x, example) for key, x in made.items()}
            return FORMATS[name].from_parts(made, self.decode(layout, arrays))
        pairs = inside[1] if kind == "record" else inside
        items = dict(self.decode(pairs, arrays, example))
        if kind == "history":
            return History.of(items)
        return self._known()[inside[0]](**items) if kind == "record" else items

    def _pairs(self, items: Mapping[Any, Any], arrays: dict[str, Any], name: str) -> Any:
        return [[key, self.encode(x, arrays, f"{name}.{key}")] for key, x in items.items()]

    def _known(self) -> dict[str, type]:
        """Records by name: those of every solver, also of those that users wrote."""
        kinds = (State, Finding, *self.records, *_subclasses(Memory))
        return {kind.__name__: kind for kind in kinds}


def check_members(value: Any, names: Set[str]) -> None:
    """Raise ValueError unless the arrays of a file are those that its JSON lists.

    A name that was damaged in the directory of an archive makes an array appear under another.
    """
    listed = _names(value)
    if missing := sorted(listed - names):
        raise ValueError(f"{len(missing)} of its {len(listed)} arrays are missing: {missing[0]}")
    if surplus := sorted(names - listed):
        raise ValueError(f"{len(surplus)} arrays do not belong to it: {surplus[0]!r:.80}")


def _names(value: Any) -> set[str]:
    """Names of the arrays in a JSON value."""
    if isinstance(value, dict):
        found = {value["array"]} if set(value) == {"array"} else set()
        return found.union(*map(_names, value.values()))
    return set().union(*map(_names, value)) if isinstance(value, list) else set()


def _subclasses(kind: type) -> Iterator[type]:
    one: type
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)


def _format_of(X: Iterate) -> str:
    for name, kind in FORMATS.items():
        if type(X) is kind:
            return name
    raise TypeError(
        f"{type(X).__name__} cannot be kept in a file: its format is not in "
        "lowtucker.thresholding.FORMATS. Add it there, or keep X.full()."
    )


def _texts_as_list(column: Any) -> Any:
    return column.tolist() if column.dtype.kind == "U" else column
