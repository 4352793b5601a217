"""Random recovery problems of many kinds, with known answers: those of ``bench verdict``.

Problem ``index`` of a seed is a pure function of the two. A kind of problem is a function of a
random generator that returns a :class:`Trial`, and a line in :data:`FAMILIES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lowtucker.lab.bench.datasets import SOURCES, Holes
from lowtucker.lab.bench.draws import (
    OPERATORS,
    Rng,
    Target,
    Trial,
    any_operator,
    between,
    draw_operator,
    draw_rank,
    draw_sizes,
    low_rank,
    measured,
    number,
    sampled,
    white,
)
from lowtucker.operators import as_operator, entries
from lowtucker.tensor import mode_product, multilinear_rank

__all__ = ["FAMILIES", "REAL", "Family", "Trial", "problem"]

NumPyArray = np.ndarray[Any, Any]
# Data sets of which parts are hidden
REAL = ("IL2", "kinetic", "covid")


def problem(seed: int, index: int) -> Trial:
    """Return a problem: a pure function of its arguments.

    Raises
    ------
    ImportError
        It is one of real data, and TensorLy, which ships them, is not installed.

    Examples
    --------
    >>> problem(0, 3).A.shape == problem(0, 3).X_true.shape
    True
    """
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, index])))
    weights = np.array([family.weight for family in FAMILIES.values()])
    name = str(rng.choice(list(FAMILIES), p=weights / weights.sum()))
    return replace(FAMILIES[name].draw(rng), seed=seed, index=index, family=name)


# Families: exact


def _exact(rng: Rng) -> Trial:
    kind = str(rng.choice(list(OPERATORS)))
    is_complex = OPERATORS[kind].takes_complex and rng.random() < 0.15
    target = low_rank(rng, dtype=np.complex128 if is_complex else np.float64)
    return measured(rng, kind, draw_operator(rng, kind, target), target)


# Families: matrices


def _dense(make: Callable[[Rng, int, tuple[int, ...]], NumPyArray]) -> Callable[[Rng], Trial]:
    """Family of a dense matrix, made from m and a shape."""

    def draw(rng: Rng) -> Trial:
        target = low_rank(rng)
        shape = target.X.shape
        matrix = make(rng, number(rng, target), shape)
        return measured(rng, "dense", as_operator(matrix, shape), target)

    return draw


def _spread(rng: Rng, m: int, shape: tuple[int, ...]) -> NumPyArray:
    """Singular values from 1 to at most 1e-5."""
    U, _, Vh = np.linalg.svd(rng.standard_normal((m, math.prod(shape))), full_matrices=False)
    return np.asarray(U * np.logspace(0, -rng.integers(0, 6), U.shape[1]) @ Vh)


def _damped(rng: Rng, m: int, shape: tuple[int, ...]) -> NumPyArray:
    """One direction of a mode is hardly measured."""
    k = int(rng.integers(len(shape)))
    u = rng.standard_normal(shape[k])
    u /= np.linalg.norm(u)
    damping = np.eye(shape[k]) - (1 - between(rng, 1e-6, 0.1)) * np.outer(u, u)
    rows = rng.standard_normal((m, *shape))
    return np.asarray(mode_product(rows, damping, k + 1)).reshape(m, -1)


def _mean(rng: Rng, m: int, shape: tuple[int, ...]) -> NumPyArray:
    return rng.standard_normal((m, math.prod(shape))) + between(rng, 0.1, 10)


def _uneven_rows(rng: Rng, m: int, shape: tuple[int, ...]) -> NumPyArray:
    sizes = 10 ** (rng.uniform(0.5, 3) * rng.random((m, 1)))
    return np.asarray(rng.standard_normal((m, math.prod(shape))) * sizes)


def _binary(rng: Rng, m: int, shape: tuple[int, ...]) -> NumPyArray:
    return (rng.random((m, math.prod(shape))) < rng.uniform(0.1, 0.7)).astype(float)


# Families: patterns of sampled entries


def _pattern(make: Callable[[Rng, tuple[int, ...]], NumPyArray]) -> Callable[[Rng], Trial]:
    """Family of sampled entries, from a mask of those that may be sampled."""

    def draw(rng: Rng) -> Trial:
        target = low_rank(rng)
        shape = target.X.shape
        allowed = np.flatnonzero(make(rng, shape))
        m = number(rng, target, allowed.size)
        return measured(
            rng, "entries", sampled(shape, rng.choice(allowed, m, replace=False)), target
        )

    return draw


def _corner(rng: Rng, shape: tuple[int, ...]) -> NumPyArray:
    """A slice of each mode, through one entry."""
    place = [int(rng.integers(n)) for n in shape]
    return np.asarray(np.any([_slice(shape, k, i) for k, i in enumerate(place)], axis=0))


def _without_fibres(rng: Rng, shape: tuple[int, ...]) -> NumPyArray:
    k = int(rng.integers(len(shape)))
    kept = rng.random([1 if j == k else n for j, n in enumerate(shape)]) > rng.uniform(0.1, 0.6)
    return np.broadcast_to(kept, shape)


def _without_block(rng: Rng, shape: tuple[int, ...]) -> NumPyArray:
    kept = np.ones(shape, dtype=bool)
    kept[tuple(slice(int(rng.integers(n // 2, n))) for n in shape)] = False
    return kept


def _thin_slice(rng: Rng, shape: tuple[int, ...]) -> NumPyArray:
    """One slice has between none and four entries."""
    k = int(rng.integers(len(shape)))
    inside = _slice(shape, k, int(rng.integers(shape[k])))
    kept = ~inside
    few = rng.choice(np.flatnonzero(inside), int(rng.integers(0, 5)), replace=False)
    kept.reshape(-1)[few] = True
    return kept


def _slice(shape: tuple[int, ...], k: int, i: int) -> NumPyArray:
    return np.broadcast_to(
        (np.arange(shape[k]) == i).reshape([-1 if j == k else 1 for j in range(len(shape))]), shape
    )


# Families: noise


def _outliers(rng: Rng) -> Trial:
    target = low_rank(rng)
    kind, A = any_operator(rng, target)
    trial = measured(rng, kind, A, target)
    y = trial.y.copy()
    where = rng.random(y.size) < rng.uniform(0.01, 0.1)
    size = np.linalg.norm(y) / math.sqrt(y.size)
    y[where] = size * between(rng, 2, 30) * white(rng, y[where])
    loss = str(rng.choice(["squared", "huber"]))
    noise = "unknown" if trial.noise == "none" else trial.noise
    return replace(trial, y=y, noise=noise, arguments={**trial.arguments, "loss": loss})


def _noisy(noise: Callable[[Rng, NumPyArray], NumPyArray]) -> Callable[[Rng], Trial]:
    """Family of any operator with that noise of unit variance."""

    def draw(rng: Rng) -> Trial:
        target = low_rank(rng)
        return measured(rng, *any_operator(rng, target), target, noise=noise)

    return draw


def _student(rng: Rng, y: NumPyArray) -> NumPyArray:
    """Student's t with 3 degrees of freedom, whose variance is 3."""
    noise: NumPyArray = np.asarray(rng.standard_t(3, y.shape)) / math.sqrt(3)
    return noise if y.dtype.kind == "f" else noise * np.exp(2j * np.pi * rng.random(y.shape))


def _uneven_noise(rng: Rng, y: NumPyArray) -> NumPyArray:
    sizes = 10 ** rng.random(y.shape)
    return np.asarray(sizes / math.sqrt(np.mean(sizes**2)) * white(rng, y))


# Families: tensors


def _offset(rng: Rng) -> Trial:
    """A low-rank tensor and a constant, which adds one to its rank in most modes."""
    target = low_rank(rng)
    size = np.linalg.norm(target.X) / math.sqrt(target.X.size)
    X = target.X + size * between(rng, 0.3, 10)
    target = Target(X, multilinear_rank(X, 1e-10))
    return measured(rng, *any_operator(rng, target), target)


def _power_law(rng: Rng) -> Trial:
    """Nearly of low rank: singular values fall as a power of their number."""
    shape, rank = draw_sizes(rng)
    power = rng.uniform(0.7, 3)
    X = rng.standard_normal(shape)
    for k, n in enumerate(shape):
        Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
        X = mode_product(X, Q * np.arange(1, n + 1) ** -power, k)
    return _inexact(rng, Target(X, rank))


def _unstructured(rng: Rng) -> Trial:
    """Random numbers: there is nothing to recover."""
    shape, rank = draw_sizes(rng)
    return _inexact(rng, Target(rng.standard_normal(shape), rank))


def _pure_noise(rng: Rng) -> Trial:
    """The tensor is zero."""
    trial = _unstructured(rng)
    settings = {name: x for name, x in trial.arguments.items() if name != "noise_std"}
    y = white(rng, trial.y)
    X = np.zeros_like(trial.X_true)
    return replace(trial, y=y, X_true=X, noise="unknown", level=math.inf, arguments=settings)


def _inexact(rng: Rng, target: Target) -> Trial:
    """Problem of a tensor that has not the rank of the target."""
    return measured(rng, *any_operator(rng, target), target, exact=False)


# Families: real data


@cache
def _read(source: str) -> NumPyArray:
    return SOURCES[source].read(Path())


def _real(rng: Rng) -> Trial:
    """Parts of real data of which some entries are hidden."""
    truth = _read(str(rng.choice(REAL)))
    part = np.ix_(*(np.sort(rng.choice(n, min(n, 24), replace=False)) for n in truth.shape))
    truth = truth[part]
    hidden = (rng.random(truth.shape) < rng.uniform(0.1, 0.8)) & ~np.isnan(truth)
    holes = Holes(truth, hidden, np.arange(truth.size).reshape(truth.shape)).without_empty_slices()
    known = np.argwhere(~np.isnan(holes.array))
    shape = holes.truth.shape
    rank = draw_rank(rng, shape)
    given = bool(rng.random() < 0.4)
    return Trial(
        A=entries(shape, known),
        y=holes.truth[tuple(known.T)],
        X_true=holes.truth,
        operator="entries",
        noise="unknown",
        level=math.nan,
        given="small" if given else "none",
        arguments={"rank": rank if given else None},
        hidden=holes.hidden,
    )


class Family(NamedTuple):
    """How to draw a problem, and how many of 1000 problems are of this family."""

    draw: Callable[[Rng], Trial]
    weight: float


FAMILIES: Mapping[str, Family] = {
    "exact": Family(_exact, 760),
    "spread": Family(_dense(_spread), 20),
    "damped": Family(_dense(_damped), 16),
    "mean": Family(_dense(_mean), 12),
    "uneven rows": Family(_dense(_uneven_rows), 12),
    "binary": Family(_dense(_binary), 10),
    "corner": Family(_pattern(_corner), 10),
    "without fibres": Family(_pattern(_without_fibres), 10),
    "without block": Family(_pattern(_without_block), 10),
    "thin slice": Family(_pattern(_thin_slice), 10),
    "outliers": Family(_outliers, 24),
    "student": Family(_noisy(_student), 10),
    "uneven noise": Family(_noisy(_uneven_noise), 10),
    "offset": Family(_offset, 12),
    "power law": Family(_power_law, 24),
    "unstructured": Family(_unstructured, 10),
    "pure noise": Family(_pure_noise, 10),
    "real": Family(_real, 30),
}
