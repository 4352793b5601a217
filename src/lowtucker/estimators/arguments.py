"""Argument checks shared by the estimators: samples that are tensors, ranks, seeds."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from lowtucker._array import as_shape, as_tuple, size
from lowtucker.recovery import RankSearch
from lowtucker.tensor.rank import check_rank

__all__ = [
    "Rank",
    "as_rows",
    "as_seed_number",
    "check_numbers",
    "check_samples",
    "limit_of",
    "shape_of",
]

Rank = tuple[int, ...]
NumPyArray = np.ndarray[Any, Any]
# Entries whose sums do not overflow
LARGEST = 2.0**1000


def as_rows(X: Any) -> tuple[Any, Rank | None]:
    """Return X as (n, N), and the shape of a sample if X has more than two axes.

    Input with at most two axes is returned unchanged: scikit-learn handles data frames.
    """
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise TypeError(
            "X is a masked array, whose masked entries would be used as data. Try "
            "X.filled(numpy.nan), and a TuckerImputer for the missing values."
        )
    check_numbers(X, "X")
    try:
        axes = len(X.shape) if hasattr(X, "shape") else np.ndim(X)
    except (TypeError, ValueError):  # ragged lists
        return X, None
    if axes <= 2:
        return X, None
    given: NumPyArray = np.asarray(X)
    if given.ndim != axes:
        raise TypeError(
            f"X must be an array of numbers, got {type(X).__name__}. Give the samples as rows."
        )
    return given.reshape(given.shape[0], size(given.shape[1:])), given.shape[1:]


def check_numbers(values: Any, name: str) -> None:
    """Refuse text, dates and numbers whose sums overflow, which scikit-learn words by no name."""
    if hasattr(values, "toarray"):  # sparse: scikit-learn refuses it
        return
    try:
        given: NumPyArray = np.asarray(values)
    except (TypeError, ValueError):  # ragged lists
        return
    kind = given.dtype.kind
    if kind in "USmM" or (kind == "O" and any(isinstance(v, str | bytes) for v in given.flat)):
        what = "dates" if kind in "mM" else "text"
        raise ValueError(
            f"{name} must be numbers, got {what}. Encode it first, such as by "
            "sklearn.preprocessing.OrdinalEncoder."
        )
    if kind in "fiu" and given.size:
        with np.errstate(invalid="ignore"):
            largest = max(-float(np.fmin.reduce(given, None)), float(np.fmax.reduce(given, None)))
        if LARGEST < largest < np.inf:
            raise ValueError(
                f"{name} has entries up to {largest:.3g}, whose sums overflow. Give {name} in "
                "other units."
            )


def shape_of(tensor_shape: Any, of_X: Rank | None, features: int) -> Rank:
    """Return the shape of a sample: ``tensor_shape``, that of X, or a vector."""
    if tensor_shape is None:
        return (features,) if of_X is None else of_X
    try:
        shape = as_shape(tensor_shape)
    except (TypeError, ValueError) as error:
        raise type(error)(f"tensor_shape={tensor_shape!r}: {error}") from None
    if of_X is not None and of_X != shape:
        raise ValueError(
            f"X has samples of shape {of_X}, not tensor_shape={shape}. Omit tensor_shape, or give "
            "X as (n_samples, n_features)."
        )
    if size(shape) != features:
        raise ValueError(
            f"tensor_shape={shape} has {size(shape)} entries, but X has {features} features. "
            "Give the shape whose product is the number of columns of X."
        )
    return shape


def check_samples(of_X: Rank | None, shape: Rank) -> None:
    """Check that samples have the shape of those in the fit."""
    if of_X is not None and of_X != shape:
        raise ValueError(
            f"X has samples of shape {of_X}, but the fit has samples of shape {shape}. Give X as "
            f"(n_samples, {', '.join(map(str, shape))}) or (n_samples, {size(shape)})."
        )


def limit_of(rank: Any, shape: Rank) -> Rank | None:
    """Return the largest rank to try, or None (after a check) if ``rank`` is a tuple."""
    if isinstance(rank, str):
        if rank.lower() != "auto":
            raise ValueError(
                f'rank must be "auto", a tuple of {len(shape)} integers, one per mode of '
                f"{shape}, or a lowtucker.RankSearch, got {rank!r}."
            )
        return shape
    if isinstance(rank, RankSearch):
        return rank.limit(shape)
    if isinstance(rank, numbers.Number) or rank is None:
        example = ", ".join("1" for _ in shape) + ("," if len(shape) == 1 else "")
        raise TypeError(
            f"rank must be a tuple of {len(shape)} integers, one per mode of {shape}, got "
            f'{rank!r}. Try rank=({example}) or rank="auto".'
        )
    entries = as_tuple(rank)
    if entries is None:
        raise TypeError(
            f"rank must be a tuple of {len(shape)} integers, one per mode of {shape}, got "
            f'{rank!r:.80}: estimators work at Tucker ranks. Try rank="auto".'
        )
    check_rank(entries, shape, warn=False)
    return None


def as_seed_number(random_state: Any) -> int:
    """Return a seed from an integer, a random generator, or None, which draws one."""
    from sklearn.utils import check_random_state

    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ValueError(
                f"random_state must not be negative, got {random_state}. Try random_state=0."
            )
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except (TypeError, ValueError):
        raise ValueError(
            f"random_state must be an integer, a random generator or None, got "
            f"{random_state!r:.80}. Try random_state=0."
        ) from None
