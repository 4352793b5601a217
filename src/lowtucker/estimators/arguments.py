"""Checks that the estimators share: arrays of several modes, ranks, seeds."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from lowtucker._array import as_shape, size
from lowtucker.recovery import RankSearch
from lowtucker.tensor.rank import check_rank

__all__ = ["Rank", "as_rows", "as_seed_number", "check_samples", "limit_of", "shape_of"]

Rank = tuple[int, ...]
NumPyArray = np.ndarray[Any, Any]


def as_rows(X: Any) -> tuple[Any, Rank | None]:
    """X as (n, N), with the shape of a sample where X has more than two axes.

    What has two axes or fewer is left to scikit-learn, which knows data frames.
    """
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise TypeError(
            "X is a masked array, whose masked entries would be taken for data. Try "
            "X.filled(numpy.nan), and a TuckerImputer for what is missing."
        )
    try:
        axes = len(X.shape) if hasattr(X, "shape") else np.ndim(X)
    except (TypeError, ValueError):  # ragged lists
        return X, None
    if axes <= 2:
        return X, None
    given: NumPyArray = np.asarray(X)
    return given.reshape(given.shape[0], size(given.shape[1:])), given.shape[1:]


def shape_of(tensor_shape: Any, of_X: Rank | None, features: int) -> Rank:
    """Shape of a sample: that which was given, that of X, or a vector."""
    if tensor_shape is None:
        return (features,) if of_X is None else of_X
    try:
        shape = as_shape(tensor_shape)
    except (TypeError, ValueError) as error:
        raise type(error)(f"tensor_shape={tensor_shape!r}: {error}") from None
    if of_X is not None and of_X != shape:
        raise ValueError(
            f"X has samples of shape {of_X}, not tensor_shape={shape}. Leave tensor_shape out, or "
            "give X as (n_samples, n_features)."
        )
    if size(shape) != features:
        raise ValueError(
            f"tensor_shape={shape} has {size(shape)} entries, but X has {features} features. "
            "Give the shape whose product is the number of columns of X."
        )
    return shape


def check_samples(of_X: Rank | None, shape: Rank) -> None:
    """Refuse samples of another shape than those of the fit."""
    if of_X is not None and of_X != shape:
        raise ValueError(
            f"X has samples of shape {of_X}, but the fit saw samples of shape {shape}. Give X as "
            f"(n_samples, {', '.join(map(str, shape))}) or (n_samples, {size(shape)})."
        )


def limit_of(rank: Any, shape: Rank) -> Rank | None:
    """Largest rank to try where one is sought; None, after a check, where it was given."""
    if isinstance(rank, str):
        if rank.lower() != "auto":
            raise ValueError(
                f'rank must be "auto", a tuple of {len(shape)} integers, one a mode of '
                f"{shape}, or a lowtucker.RankSearch, got {rank!r}."
            )
        return shape
    if isinstance(rank, RankSearch):
        return rank.limit(shape)
    if isinstance(rank, numbers.Number) or rank is None:
        example = ", ".join("1" for _ in shape) + ("," if len(shape) == 1 else "")
        raise TypeError(
            f"rank must be a tuple of {len(shape)} integers, one a mode of {shape}, got {rank!r}. "
            f'Try rank=({example}) or rank="auto".'
        )
    check_rank(tuple(rank), shape, warn=False)
    return None


def as_seed_number(random_state: Any) -> int:
    """Seed from an integer, a generator, or None, which draws one."""
    from sklearn.utils import check_random_state

    if isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ValueError(
                f"random_state must not be negative, got {random_state}. Try random_state=0."
            )
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
