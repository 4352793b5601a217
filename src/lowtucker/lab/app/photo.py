"""A photograph with holes: its pixels, what is missing, and the Python code of both."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["SHAPE", "code_of_photo", "known_pixels", "photo"]

NumPyArray = np.ndarray[Any, Any]
# Means of 6x6 pixels: small enough to be completed in seconds
SHAPE = (71, 106, 3)


def photo() -> NumPyArray:
    """Return the photograph, reduced to ``SHAPE``: rows, columns, colours; values in [0, 1]."""
    from lowtucker.datasets import photograph

    pixels = photograph().values[:426, :636].reshape(71, 6, 106, 6, 3)
    return np.asarray(pixels.mean(axis=(1, 3)))


def known_pixels(missing: float, scratches: int, seed: int) -> NumPyArray:
    """Return which pixels are known: a share is missing at random, others are scratched out.

    Examples
    --------
    >>> known_pixels(0.5, 0, seed=0).shape
    (71, 106)
    """
    rng = np.random.default_rng(seed)
    known = rng.random(SHAPE[:2]) >= missing
    for first, last in rng.integers(0, SHAPE[1] - 1, (scratches, 2)):  # from top to bottom
        at = np.arange(SHAPE[0]), np.linspace(first, last, SHAPE[0]).astype(int)
        known[at] = known[at[0], at[1] + 1] = False
    return known


def code_of_photo(missing: float, scratches: int, seed: int) -> list[str]:
    """Return code for the same values, NaN where they are missing."""
    lines = [
        "pixels = lt.datasets.photograph().values[:426, :636].reshape(71, 6, 106, 6, 3)",
        "X_true = pixels.mean(axis=(1, 3))",
        "",
        f"rng = np.random.default_rng({seed})",
        f"known = rng.random((71, 106)) >= {missing!r}",
    ]
    if scratches:
        lines += [
            f"for first, last in rng.integers(0, 105, ({scratches}, 2)):  # scratches",
            "    at = np.arange(71), np.linspace(first, last, 71).astype(int)",
            "    known[at] = known[at[0], at[1] + 1] = False",
        ]
    return [*lines, "values = np.where(known[:, :, None], X_true, np.nan)"]
