"""Names of modes and labels of slices: what a result knows of the data beside their numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Labels", "plain_labels"]

NumPyArray = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Labels:
    """Names of the modes, labels of their slices, and what the values are called.

    Attributes
    ----------
    names : tuple of str
        One for each mode.
    coordinates : tuple of (array or None)
        Labels of the slices of each mode: numbers, texts, dates (datetime64) or durations
        (timedelta64); None for a mode without labels.
    value : str or None
        Name of the values.
    attributes : mapping of str to text, numbers or lists of them
        Such as units.

    Examples
    --------
    >>> labels = Labels(("station", "hour"), (np.array(["A", "B"]), None))
    >>> labels.coordinates[0][1]
    np.str_('B')
    """

    names: tuple[str, ...]
    coordinates: tuple[NumPyArray | None, ...]
    value: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def default(cls, order: int) -> Labels:
        """Labels of a tensor that has none: modes are called mode_0, mode_1, ..."""
        return cls(tuple(f"mode_{k}" for k in range(order)), (None,) * order)

    def check_same(self, other: Labels | None) -> None:
        """Refuse labels that are not these, naming the first mode that differs."""
        if other is None or other.names != self.names:
            names = None if other is None else other.names
            raise ValueError(f"The modes of values are called {names}, those of X {self.names}.")
        for name, mine, theirs in zip(self.names, self.coordinates, other.coordinates, strict=True):
            if not same_labels(mine, theirs):
                raise ValueError(
                    f"The labels of {name!r} are not those of X. Give the data that were completed."
                )

    def kept(self) -> dict[str, Any]:
        """Return numbers, texts and arrays of numbers, for a file."""
        return {
            "names": list(self.names),
            "coordinates": [None if c is None else _packed(c) for c in self.coordinates],
            "value": self.value,
            "attributes": json.dumps(dict(self.attributes)),
        }

    @classmethod
    def of_kept(cls, kept: Mapping[str, Any], shape: tuple[int, ...]) -> Labels:
        """Labels from a file; ValueError unless they fit a tensor of that shape."""
        coordinates = tuple(None if c is None else _unpacked(*c) for c in kept["coordinates"])
        lengths = [n if c is None else len(c) for c, n in zip(coordinates, shape, strict=True)]
        if tuple(lengths) != shape or len(kept["names"]) != len(shape):
            raise ValueError(f"labels of {kept['names']} for a tensor of shape {shape}")
        if not all(isinstance(name, str) for name in [*kept["names"], kept["value"] or ""]):
            raise TypeError(f"names {kept['names']!r:.80}")
        attributes = dict(json.loads(kept["attributes"]))
        return cls(tuple(kept["names"]), coordinates, kept["value"], attributes)


def plain_labels(values: Any) -> NumPyArray:
    """Labels as numbers, dates, durations or texts, whatever they are; 1-D.

    Examples
    --------
    >>> plain_labels(["b", 2]).tolist()
    ['b', '2']
    """
    array = np.asarray(values)
    if array.dtype.kind == "O":
        found = _of_one_type(array)
        array = np.array([str(one) for one in array.tolist()]) if found is None else found
    return array if array.dtype.kind in "biufMmU" else array.astype(str)


def _of_one_type(array: NumPyArray) -> NumPyArray | None:
    """Array of objects as numbers, where all are; None otherwise."""
    items = array.tolist()
    if not items or not all(type(one) in (bool, int, float) for one in items):
        return None
    made = np.array(items)
    return made if made.dtype.kind in "biuf" else None


def plain_attributes(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes that JSON can hold: texts, numbers, and lists of them; others are left out."""
    made = {}
    for name, value in attributes.items():
        plain = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        try:
            json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError):
            continue
        made[str(name)] = plain
    return made


def same_labels(one: Sequence[Any] | NumPyArray | None, other: Any) -> bool:
    """Whether labels are equal, one by one."""
    if one is None or other is None:
        return one is None and other is None
    return len(one) == len(other) and bool(np.all(np.asarray(one) == np.asarray(other)))


def _packed(labels: NumPyArray) -> list[Any]:
    """Kind of labels and an array of numbers: files hold nothing else."""
    if labels.dtype.kind == "U":
        text = json.dumps(labels.tolist()).encode()
        return ["text", np.frombuffer(text, dtype=np.uint8)]
    if labels.dtype.kind in "Mm":
        return [labels.dtype.str, labels.view(np.int64)]
    return ["number", labels]


def _unpacked(kind: str, array: NumPyArray) -> NumPyArray:
    if kind == "text":
        made = np.array(json.loads(array.tobytes()))
    else:
        made = array if kind == "number" else array.view(np.dtype(kind))
    if made.ndim != 1 or made.dtype.kind not in "biufMmU":
        raise ValueError(f"labels of kind {kind!r:.80}")
    return made
