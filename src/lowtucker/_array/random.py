"""Random numbers as pure functions of their arguments.

No generator state is kept: a number is determined by (seed, trial, stream, position), so that
resumed, batched and distributed runs draw the same numbers. They come from Philox, a
counter-based generator.
"""

from __future__ import annotations

import numbers
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np

__all__ = ["LIMIT", "Seed", "Stream", "as_seed", "counted", "generator", "spawned", "uniforms"]

# A number, or (number, trial): problem k of a batch with seed s equals the single one of (s, k).
Seed: TypeAlias = int | tuple[int, int]
# Seeds, trials and steps are 64-bit words of the key and the counter of Philox.
LIMIT = 2**64


class Stream(IntEnum):
    """Purpose of random numbers: different purposes with the same seed must not share them."""

    TENSOR = 1
    OPERATOR = 2
    BLOCKS = 3
    PROBE = 4
    HELD_OUT = 5
    SCALE = 6


def as_seed(seed: Any) -> tuple[int, int]:
    """Check a seed and return it as (number, trial).

    Examples
    --------
    >>> as_seed(7), as_seed((7, 2))
    ((7, 0), (7, 2))
    """
    pair = seed if isinstance(seed, tuple) else (seed, 0)
    if len(pair) != 2 or not all(
        isinstance(s, numbers.Integral) and not isinstance(s, bool) for s in pair
    ):
        raise TypeError(f"seed must be an integer or a pair (seed, trial), got {seed!r}.")
    if min(pair) < 0:
        raise ValueError(f"seed must not be negative, got {seed!r}.")
    if max(pair) >= LIMIT:
        raise ValueError(f"seed must be below 2**64, got {seed!r}.")
    return int(pair[0]), int(pair[1])


def generator(seed: Seed, stream: Stream) -> np.random.Generator:
    """Return the generator of a seed for one purpose."""
    entropy = np.random.SeedSequence([int(stream), *as_seed(seed)])
    return np.random.Generator(np.random.Philox(entropy))


def spawned(seed: Seed, stream: Stream, number: int) -> np.random.Generator:
    """Return the last of ``generator(seed, stream).spawn(number)``, without making the others."""
    parent: Any = generator(seed, stream).bit_generator
    key = (*parent.seed_seq.spawn_key, number - 1)
    child = np.random.SeedSequence(parent.seed_seq.entropy, spawn_key=key)
    return np.random.Generator(type(parent)(child))


def counted(seed: Seed, position: int) -> np.random.Generator:
    """Return the generator of one position among the rows of an operator, by direct access."""
    counter = np.array([0, 0, position, LIMIT - 1], np.uint64)  # larger than any step t
    return np.random.Generator(
        np.random.Philox(key=np.array(as_seed(seed), np.uint64), counter=counter)
    )


def uniforms(seed: int, t: int, trials: tuple[int, ...], count: int) -> np.ndarray[Any, Any]:
    """Return uniform numbers in [0, 1), shape ``(len(trials), count)``, for step or epoch ``t``.

    Row k depends only on (seed, t, trials[k]): Philox is advanced to the first trial and one
    sequence is drawn from there, so that one set-up (20 microseconds) serves a whole batch.
    """
    width = 4 * -(-count // 4)  # Philox generates four numbers per count
    first, last = min(trials), max(trials)
    if last - first > 1000 + 4 * len(trials):  # far apart: do not draw all numbers in between
        return np.concatenate([uniforms(seed, t, (k,), count) for k in trials])
    key, counter = np.array([seed, Stream.BLOCKS], np.uint64), np.array([0, 0, 0, t], np.uint64)
    bits = np.random.Philox(key=key, counter=counter)
    bits.advance(first * (width // 4))
    numbers = np.random.Generator(bits).random((last - first + 1, width))
    return numbers[np.subtract(trials, first), :count]
