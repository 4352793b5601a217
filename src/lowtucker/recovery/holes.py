"""Holes: how entries are missing, what to hold out like them, and what to start from."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowtucker._array import size
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.operators import EntriesOperator
from lowtucker.problem import Problem

__all__ = ["additive_effects", "distinct", "held_like_the_holes", "missing_fibres", "places_of"]

NumPyArray = np.ndarray[Any, Any]
# Fibres of a mode are missing as a whole where the empty ones hold so much more of what is missing
# than by chance
FIBRES = 0.5
# Weights are not divided by zero
TINY = np.finfo(float).tiny


def places_of(problem: Problem) -> NumPyArray:
    """Where the samples are in the flattened tensor."""
    A: Any = problem.A
    return np.asarray(np.ravel_multi_index(tuple(A.indices.T), problem.shape))


def observed(problem: Problem) -> NumPyArray:
    """Mask of the sampled entries, of the tensor's shape."""
    seen = np.zeros(size(problem.shape), dtype=bool)
    seen[places_of(problem)] = True
    return seen.reshape(problem.shape)


def distinct(problem: Problem) -> Problem:
    """Return the problem with every entry sampled once: duplicates by their weighted mean.

    So they are also held out together.
    """
    places, y = places_of(problem), np.asarray(problem.y)
    first, which = np.unique(places, return_inverse=True)
    if len(first) == len(places):
        return problem
    which = which.reshape(-1)
    given = np.ones(len(y)) if problem.weights is None else np.asarray(problem.weights)
    total = np.bincount(which, given)
    parts = [np.bincount(which, given * part) for part in (y.real, y.imag)]
    mean = (parts[0] + 1j * parts[1] if np.iscomplexobj(y) else parts[0]) / np.maximum(total, TINY)
    index = np.stack(np.unravel_index(first, problem.shape), axis=1)
    weights = None if problem.weights is None else total.astype(given.dtype)
    return Problem(EntriesOperator(problem.shape, index), mean.astype(y.dtype), weights)


def missing_fibres(problem: Problem) -> int | None:
    """Mode along which whole fibres are missing, if that is how most entries are missing.

    Empty fibres hold all that is missing where fibres are missing as a whole, and the share
    :math:`(1 - p)^{n_k - 1}` where entries are missing at random: they must hold the larger part
    of the difference. So three colours of a pixel count too, of which few are known.
    """
    seen = observed(problem)
    missing = seen.size - np.count_nonzero(seen)
    if not missing:
        return None
    share, excess = missing / seen.size, np.zeros(seen.ndim)
    for k, n in enumerate(seen.shape):
        by_chance = share ** (n - 1)
        if by_chance < 1:
            empty = np.count_nonzero(~seen.any(axis=k)) * n / missing
            excess[k] = (empty - by_chance) / (1 - by_chance)
    mode = int(np.argmax(excess))
    return mode if seen.ndim > 1 and excess[mode] > FIBRES else None


def held_like_the_holes(
    problem: Problem, share: float, mode: int | None, folds: int, seed: Seed
) -> list[NumPyArray]:
    """Masks of samples to hold out: at random, or whole fibres of a mode; none holds out all."""
    rng, places = generator(as_seed(seed), Stream.HELD_OUT), places_of(problem)
    whose = np.arange(len(places))
    if mode is not None:
        index = np.stack(np.unravel_index(places, problem.shape), axis=1)
        _, whose = np.unique(np.delete(index, mode, axis=1), axis=0, return_inverse=True)
    groups = int(whose.max()) + 1
    order, count = rng.permutation(groups), max(1, round(min(share, 1 / folds) * groups))
    drawn = [order[k * count : (k + 1) * count] for k in range(folds)]
    masks = [np.isin(whose.reshape(-1), some) for some in drawn if len(some)]
    return [held for held in masks if not held.all()]


def additive_effects(problem: Problem, sweeps: int = 20) -> NumPyArray:
    """Tensor of main effects of every mode, and of shrunken means over each mode.

    Backfitting; a mean of c samples is shrunk as if one more (three, for means over one mode) had
    been zero. Where whole fibres are missing, nothing else says what is in them.
    """
    shape, y = problem.shape, np.asarray(problem.y)
    values = np.zeros(size(shape), dtype=y.dtype)
    values[places_of(problem)] = y
    values, seen = values.reshape(shape), observed(problem)
    modes = range(len(shape))
    effects = [np.zeros([n if j == k else 1 for j, n in enumerate(shape)], y.dtype) for k in modes]
    for _ in range(sweeps):
        for k in modes:
            others = tuple(j for j in modes if j != k)
            rest = sum(e for j, e in enumerate(effects) if j != k)
            counts = seen.sum(axis=others, keepdims=True)
            total = np.where(seen, values - rest, 0).sum(axis=others, keepdims=True)
            effects[k] = total / (counts + 1)
    X = np.broadcast_to(sum(effects), shape).copy()
    for k in modes if len(shape) > 2 else ():
        counts = seen.sum(axis=k, keepdims=True)
        X += np.where(seen, values - X, 0).sum(axis=k, keepdims=True) / (counts + 3)
    return X
