"""Checks of arguments. Messages say what was given, what was expected and what to try."""

from __future__ import annotations

import math
import numbers
import os
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from lowtucker._array.namespace import (
    FLOATS,
    Array,
    dtype_name,
    is_array,
    is_complex,
    is_jax,
    is_numpy,
    is_torch,
    kind,
    like,
    namespace,
    size,
)

__all__ = [
    "as_array",
    "as_array_shape",
    "as_choice",
    "as_flag",
    "as_float",
    "as_float_on",
    "as_integer",
    "as_number",
    "as_shape",
    "as_tensor",
    "as_time",
    "as_tuple",
    "same_kind",
]

# What to try with the path of a file
_READING = "; lowtucker.io.load_array(path) reads a file"
# Most modes of a tensor: arrays of NumPy and torch have up to 64 axes, some of them for batches
MODES = 60


def as_array(value: Any, name: str) -> Array:
    """Convert ``value`` to a numeric array; an array keeps its kind, dtype and device.

    Lists, numbers and subclasses of NumPy arrays become plain NumPy arrays. Non-numeric values
    and masked elements raise ``TypeError``.
    """
    if is_numpy(value) and not isinstance(value, np.ndarray):
        value = np.asarray(value)
    if isinstance(value, np.ndarray | np.generic) or not is_array(value):
        if value is None or isinstance(value, str | bytes | dict | set):
            raise TypeError(
                f"{name} must be an array of numbers, got {type(value).__name__}. "
                f"Give numbers, or a list of them{_READING if isinstance(value, str) else ''}."
            )
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            raise TypeError(
                f"{name} must be an array of numbers, got a masked array. Fill the masked "
                "elements with numpy.ma.filled(..., value), or remove them."
            )
        if not isinstance(value, np.ndarray) and hasattr(
            value, "full"
        ):  # do not form the full tensor silently
            raise TypeError(
                f"{name} must be an array of numbers, got {type(value).__name__}. Try X.full()."
            )
        given = value
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise ValueError(
                f"{name} must be an array of numbers, got a ragged {type(value).__name__}: "
                f"make all rows equally long."
            ) from error
        if value.dtype.kind == "O" and value.ndim == 0:
            reading = _READING if isinstance(given, os.PathLike) else ""
            raise TypeError(
                f"{name} must be an array of numbers, got {type(given).__name__}. "
                f"Give numbers, or a list of them{reading}."
            )
    if is_numpy(value) and value.dtype.kind not in "biufc":
        raise TypeError(
            f"{name} must be an array of numbers, got dtype {value.dtype}. "
            "Try numpy.asarray(..., dtype=float)."
        )
    if is_torch(value):
        _check_torch(value, name)
    return value


def _check_torch(value: Any, name: str) -> None:
    """Reject meta tensors and sparse torch tensors."""
    if value.is_meta:
        raise TypeError(
            f"{name} must hold numbers, got a torch tensor on the meta device, which has none. "
            "Create it on a device such as cpu or cuda."
        )
    if str(value.layout) != "torch.strided":
        raise TypeError(
            f"{name} must be a dense torch tensor, got the layout {value.layout}. Try "
            "value.to_dense(), or a SciPy sparse matrix, which stays sparse."
        )


def as_float(value: Any, name: str) -> Array:
    """Convert ``value`` to an array of real or complex floating point numbers.

    float32, float64 and complex dtypes are kept; integers, booleans and half precision become
    float64 (float32 if the back end has no float64); extended precision is rejected.
    """
    if type(value) is np.ndarray and value.dtype.char in "fdFD":  # most calls: next to free
        return value
    x = as_array(value, name)
    if (x.dtype.char in "fdFD") if is_numpy(x) else dtype_name(x.dtype) in FLOATS:
        return x
    if is_numpy(x) and x.dtype.kind in "fc" and x.dtype.itemsize > 8:
        raise TypeError(
            f"{name} must be of single or double precision, got dtype {x.dtype}. "
            "Try numpy.asarray(..., dtype=float)."
        )
    xp = namespace(x)
    if is_jax(x):  # float64 only if enabled
        return xp.astype(x, xp.asarray(0.5).dtype)
    return xp.astype(x, xp.complex128 if is_complex(x) else xp.float64)


def as_float_on(value: Any, prototype: Array | None, name: str, owner: str) -> Array:
    """Apply :func:`as_float`; convert lists to the kind of ``prototype``, reject other kinds."""
    x = as_float(value, name)
    if is_array(value):
        return same_kind(x, prototype, name, owner)
    return x if prototype is None or is_numpy(prototype) else like(x, prototype)


def as_tensor(value: Any, name: str) -> Array:
    """Apply :func:`as_array`, and require at least one mode and no empty mode."""
    x = as_array(value, name)
    if x.ndim == 0:
        raise ValueError(
            f"{name} must be a tensor with at least one mode, got a number. Try [number]."
        )
    if not size(x.shape):
        raise ValueError(
            f"{name} must have entries in every mode, got shape {tuple(x.shape)}. Remove the "
            "empty modes."
        )
    return x


def as_shape(shape: Any, name: str = "shape") -> tuple[int, ...]:
    """Check a tensor shape: a non-empty sequence of positive integers, not too many."""
    if (
        type(shape) is tuple
        and 0 < len(shape) <= MODES
        and all(type(n) is int and n > 0 for n in shape)
    ):
        return shape  # checked before: the abstract classes of numbers take microseconds
    if isinstance(shape, numbers.Integral):
        raise TypeError(
            f"{name} must have one entry per mode, got the number {shape}. "
            f"For a vector write {name}=({shape},)."
        )
    entries = as_tuple(shape)
    if entries is None:
        raise TypeError(
            f"{name} must be a tuple of positive integers, got {type(shape).__name__}. "
            f"Try {name}=(30, 30, 10)."
        )
    if not entries or not all(
        isinstance(n, numbers.Integral) and not isinstance(n, bool) and int(n) >= 1 for n in entries
    ):
        raise ValueError(
            f"{name} must be a tuple of positive integers, got {shape!r}. Try {name}=(30, 30, 10)."
        )
    if len(entries) > MODES:
        raise ValueError(
            f"{name} must have at most {MODES} modes, got {len(entries)}: arrays have no more "
            "axes. Merge some of the modes."
        )
    return tuple(int(n) for n in entries)


def as_tuple(value: Any) -> tuple[Any, ...] | None:
    """Entries of a sequence or an array; None for what only iterates.

    Bytes iterate as integers, sets have no order, dictionaries have keys, and an iterator is empty
    the second time.
    """
    if isinstance(value, bytes | bytearray | memoryview | Set | Mapping | Iterator):
        return None
    try:
        return tuple(value)
    except TypeError:
        return None


def as_array_shape(shape: Any, name: str = "shape") -> tuple[int, ...]:
    """Apply :func:`as_shape`, and require that an array of that shape can exist."""
    checked = as_shape(shape, name)
    if size(checked) > sys.maxsize // 16:
        raise ValueError(
            f"{name} must be the shape of an array, with at most {sys.maxsize // 16} entries, got "
            f"{checked!s:.80}. Are these the sizes of the modes?"
        )
    return checked


def as_integer(value: Any, name: str, low: int = 1, high: int | None = None) -> int:
    """Check an integer argument between ``low`` and ``high``, both included.

    ``high`` defaults to the largest size of an array.
    """
    plain = type(value) is int
    if not plain and (isinstance(value, bool) or not isinstance(value, numbers.Integral)):
        raise TypeError(f"{name} must be an integer, got {value!r:.80}. Try int(...).")
    number = int(value)
    most = sys.maxsize if high is None else high
    if not low <= number <= most:
        is_open = high is None and number < low
        bounds = f"at least {low}" if is_open else f"between {low} and {most}"
        raise ValueError(f"{name} must be {bounds}, got {number}.")
    return number


def as_number(value: Any, name: str, low: float = -math.inf, *, positive: bool = False) -> float:
    """Check a finite real argument that is at least ``low``, or positive."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {value!r:.80}. Try float(...).")
    try:
        number = float(value)
    except OverflowError:  # a large integer or fraction
        number = math.inf if value > 0 else -math.inf  # type: ignore[operator]
    if positive and not number > 0:
        raise ValueError(f"{name} must be positive, got {number:g}.")
    if not (math.isfinite(number) and number >= low):
        bound = "" if low == -math.inf else f", at least {low:g}"
        raise ValueError(f"{name} must be a finite number{bound}, got {number:g}.")
    return number


def as_time(value: Any, name: str) -> float:
    """Check a limit of time, in seconds: positive, or infinity for none."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and value == math.inf:
        return value
    return as_number(value, name, positive=True)


def as_choice(value: Any, name: str, choices: Sequence[str | None]) -> Any:
    """Check an argument that is one of several strings (or None, if that is a choice)."""
    is_word = value is None or isinstance(value, str)
    if is_word and value in choices:
        return value
    *others, last = ["None" if choice is None else f'"{choice}"' for choice in choices]
    raise (ValueError if is_word else TypeError)(
        f"{name} must be {', '.join(others)} or {last}, got {value!r:.80}."
    )


def as_flag(value: Any, name: str) -> bool:
    """Check a boolean argument; other values, such as "no", are rejected."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r:.80}. Try {name}=False.")
    return bool(value)


def same_kind(x: Array, prototype: Array | None, name: str, owner: str) -> Array:
    """Check that ``x`` has the array kind of ``prototype`` (NumPy if it is None)."""
    if type(x) is type(prototype):
        return x
    mine = np if prototype is None else namespace(prototype)
    if namespace(x) is not mine:
        theirs = "NumPy" if mine is np else kind(prototype)
        raise TypeError(
            f"{name} is a {kind(x)} array, but {owner} holds {theirs} arrays. Convert one of them."
        )
    return x
