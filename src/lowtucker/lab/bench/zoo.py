"""Random recovery problems of many kinds, with known answers: those of ``bench verdict``.

Problem ``index`` of a seed is a pure function of the two. A kind of problem is a function of a
random generator that returns a :class:`Trial`, and a line in :data:`FAMILIES`; a kind of operator
is a function, and a line in :data:`OPERATORS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lowtucker.lab.bench.datasets import SOURCES, Holes
from lowtucker.operators import (
    FunctionOperator,
    MeasurementOperator,
    as_operator,
    entries,
    gaussian,
    kronecker,
    rank_one,
    seeded_gaussian,
    subsampled_transform,
)
from lowtucker.problem import Problem
from lowtucker.tensor import (
    attainable_rank,
    degrees_of_freedom,
    mode_product,
    multi_mode_product,
    multilinear_rank,
)
from lowtucker.tensor.random import gaussians

__all__ = ["FAMILIES", "OPERATORS", "REAL", "Trial", "problem"]

NumPyArray = np.ndarray[Any, Any]
Rng = np.random.Generator
# Limits of the problems: a fit takes a second at most
LARGEST, MOST_DOF, SIDES = 3000, 250, (3, 16)
# Noise, relative to the measurements; rank that is given; measurements per degree of freedom
LEVELS = (0.0, 1e-3, 0.01, 0.05, 0.1)
GIVEN = {"right": 0.7, "small": 0.075, "large": 0.075, "auto": 0.075, "none": 0.075}
PER_DOF = (0.9, 6.0)
# Largest ratio of the core's singular values that is aimed at
CONDITION = 30.0
# Data sets of which parts are hidden
REAL = ("IL2", "kinetic", "covid")


@dataclass(frozen=True, eq=False, kw_only=True)
class Trial:
    """A problem with its answer.

    Parameters
    ----------
    seed, index : int
        What it is a function of.
    family, operator : str
        Keys of :data:`FAMILIES` and of :data:`OPERATORS` (or another word for the operator).
    noise : "none", "known" or "unknown"
        "known" noise has its size among the arguments; outliers and misfit count as noise.
    level : float
        Size of the noise relative to that of the measurements; NaN for real data.
    given : str
        Rank that is given: a key of :data:`GIVEN`.
    A : MeasurementOperator
    y : array
    X_true : array
        NaN where nobody knows it.
    rank : tuple of int or None
        Tucker rank of ``X_true``; None if it has no low one.
    arguments : mapping
        Further arguments of :func:`lowtucker.recover`.
    hidden : array of bool or None
        Entries on which the error is counted; None for all.
    """

    A: MeasurementOperator
    y: NumPyArray
    X_true: NumPyArray
    operator: str
    noise: str
    level: float
    given: str
    rank: tuple[int, ...] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    hidden: NumPyArray | None = None
    seed: int = 0
    index: int = 0
    family: str = ""

    @property
    def fitted_rank(self) -> tuple[int, ...] | None:
        """The rank that is given, or else the true one."""
        given = self.arguments.get("rank")
        return given if isinstance(given, tuple) else self.rank

    @property
    def m_per_dof(self) -> float:
        """Real equations per degree of freedom of the fitted rank; NaN without one."""
        if self.fitted_rank is None:
            return math.nan
        equations = float(Problem(self.A, self.y).equations)
        return equations / degrees_of_freedom(self.A.shape, self.fitted_rank)

    def __repr__(self) -> str:
        noise = self.noise if math.isnan(self.level) else f"{self.noise} ({self.level:g})"
        settings = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return (
            f"Problem {self.index} of seed {self.seed}: {self.family}, {self.operator}, noise "
            f"{noise}, shape {self.A.shape}, true rank {self.rank}, m = {self.A.m}, "
            f"{self.m_per_dof:.2f} per degree of freedom; recover(A, y, {settings})"
        )


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


# Tensors


class Target(NamedTuple):
    """A tensor, its rank, and a rank that problems of its size refer to."""

    X: NumPyArray
    rank: tuple[int, ...]


def _sizes(rng: Rng) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw a shape and an attainable rank of which that shape has clearly more entries."""
    while True:
        d = int(rng.choice([2, 3, 4, 5], p=[0.2, 0.4, 0.25, 0.15]))
        shape = tuple(int(n) for n in rng.integers(SIDES[0], SIDES[1] + 1, d))
        rank = _some_rank(rng, shape)
        dof = degrees_of_freedom(shape, rank)
        if math.prod(shape) <= LARGEST and dof <= min(MOST_DOF, 0.6 * math.prod(shape)):
            return shape, rank


def _some_rank(rng: Rng, shape: tuple[int, ...]) -> tuple[int, ...]:
    return attainable_rank(tuple(min(int(rng.integers(1, 5)), n) for n in shape))


def _low_rank(rng: Rng, *, dtype: Any = np.float64) -> Target:
    """Draw a tensor whose core has singular values from equal ones to a ratio of 30."""
    shape, rank = _sizes(rng)
    dtype = np.dtype(dtype)
    decay = CONDITION ** -(rng.random() if rng.random() < 0.8 else 0.0)
    core = gaussians(rng, rank, dtype)
    for k, r in enumerate(rank):
        core = mode_product(core, np.diag(np.geomspace(1, decay, r)).astype(dtype), k)
    sizes = zip(shape, rank, strict=True)
    X = multi_mode_product(core, [np.linalg.qr(gaussians(rng, n, dtype))[0] for n in sizes])
    return Target(X / np.linalg.norm(X) * 10 ** rng.uniform(-2, 3), rank)


def _between(rng: Rng, low: float, high: float) -> float:
    """Draw log-uniformly."""
    return float(low * (high / low) ** rng.random())


# Operators


def _gaussian(rng: Rng, shape: tuple[int, ...], m: int, dtype: Any) -> MeasurementOperator:
    return gaussian(shape, m, seed=_seed(rng), dtype=dtype)


def _rank_one(rng: Rng, shape: tuple[int, ...], m: int, dtype: Any) -> MeasurementOperator:
    return rank_one([gaussians(rng, (m, n), np.dtype(dtype)) for n in shape])


def _entries(rng: Rng, shape: tuple[int, ...], m: int, dtype: Any) -> MeasurementOperator:
    return _sampled(shape, rng.choice(math.prod(shape), m, replace=False))


def _kronecker(rng: Rng, shape: tuple[int, ...], m: int, dtype: Any) -> MeasurementOperator:
    whole = kronecker([gaussians(rng, (n, n), np.dtype(dtype)) for n in shape])
    return whole.restrict(rng.choice(math.prod(shape), m, replace=False))


def _transform(kind: Any, signs: bool) -> Any:
    def draw(rng: Rng, shape: tuple[int, ...], m: int, dtype: Any) -> MeasurementOperator:
        return subsampled_transform(shape, m, kind, signs=signs, seed=_seed(rng))

    return draw


def _seeded(rng: Rng, shape: tuple[int, ...], m: int, dtype: Any) -> MeasurementOperator:
    return seeded_gaussian(shape, m, seed=_seed(rng))


def _sparse(rng: Rng, shape: tuple[int, ...], m: int, dtype: Any) -> MeasurementOperator:
    from scipy import sparse

    density = _between(rng, 0.03, 0.5)
    rows = rng.standard_normal((m, math.prod(shape)))
    rows *= rng.random(rows.shape) < density
    return as_operator(sparse.csr_array(rows), shape)


def _function(rng: Rng, shape: tuple[int, ...], m: int, dtype: Any) -> MeasurementOperator:
    rows = rng.standard_normal((m, math.prod(shape)))
    return FunctionOperator(
        lambda X: rows @ X.reshape(-1), lambda v: (v @ rows).reshape(shape), shape, m
    )


def _sampled(shape: tuple[int, ...], places: NumPyArray) -> MeasurementOperator:
    return entries(shape, np.stack(np.unravel_index(np.sort(places), shape), axis=1))


def _seed(rng: Rng) -> int:
    return int(rng.integers(2**32))


def _no_limit(shape: tuple[int, ...]) -> float:
    return math.inf


def _frequencies(shape: tuple[int, ...]) -> int:
    """Count the frequencies of which no two are conjugates."""
    return (math.prod(shape) + math.prod(2 - n % 2 for n in shape)) // 2


class Kind(NamedTuple):
    """How to draw an operator, its largest m, and whether it measures complex tensors."""

    draw: Callable[[Rng, tuple[int, ...], int, Any], MeasurementOperator]
    most: Callable[[tuple[int, ...]], float] = _no_limit
    takes_complex: bool = False


OPERATORS: Mapping[str, Kind] = {
    "gaussian": Kind(_gaussian, takes_complex=True),
    "rank_one": Kind(_rank_one, takes_complex=True),
    "entries": Kind(_entries, math.prod),
    "kronecker": Kind(_kronecker, math.prod, takes_complex=True),
    "dct": Kind(_transform("dct", signs=False), math.prod),
    "dct signs": Kind(_transform("dct", signs=True), math.prod),
    "fft": Kind(_transform("fft", signs=True), _frequencies),
    "seeded": Kind(_seeded),
    "sparse": Kind(_sparse),
    "function": Kind(_function),
}


def _number(rng: Rng, target: Target, most: float = math.inf, equations: int = 1) -> int:
    """Draw m: so many measurements per degree of freedom, each of one or two real equations."""
    dof = degrees_of_freedom(target.X.shape, target.rank)
    return max(2, int(min(most, round(_between(rng, *PER_DOF) * dof / equations))))


def _operator(rng: Rng, kind: str, target: Target) -> MeasurementOperator:
    shape, found = target.X.shape, OPERATORS[kind]
    m = _number(rng, target, found.most(shape), equations=2 if kind == "fft" else 1)
    return found.draw(rng, shape, m, target.X.dtype)


def _any_operator(rng: Rng, target: Target) -> tuple[str, MeasurementOperator]:
    kind = str(rng.choice(list(OPERATORS)))
    return kind, _operator(rng, kind, target)


# Measurements and arguments


def _trial(
    rng: Rng,
    kind: str,
    A: MeasurementOperator,
    target: Target,
    *,
    noise: Callable[[Rng, NumPyArray], NumPyArray] | None = None,
    exact: bool = True,
    **arguments: Any,
) -> Trial:
    """Measure, add noise (Gaussian by default), and draw what is given.

    Parameters
    ----------
    noise : callable, optional
        Noise of unit variance for some measurements.
    exact : bool
        Whether the tensor has the rank of the target.
    """
    clean = np.asarray(A.forward(target.X))
    levels = LEVELS if noise is None else LEVELS[1:]
    level = float(rng.choice(levels))
    size = level * float(np.linalg.norm(clean)) / math.sqrt(clean.size)
    y = clean + size * (noise or _white)(rng, clean) if level else clean
    known = bool(rng.random() < 0.5) and level > 0
    given, rank = _given(rng, target, exact=exact)
    settings: dict[str, Any] = {"rank": rank, **arguments}
    if known:
        settings["noise_std"] = size
    return Trial(
        A=A,
        y=y,
        X_true=target.X,
        operator=kind,
        noise="known" if known else "unknown" if level else "none",
        level=level,
        given=given,
        rank=target.rank if exact else None,
        arguments=settings,
    )


def _white(rng: Rng, y: NumPyArray) -> NumPyArray:
    return gaussians(rng, y.shape, y.dtype)


def _given(rng: Rng, target: Target, *, exact: bool) -> tuple[str, Any]:
    """Draw the rank to give, and how it relates to the true one."""
    given = str(rng.choice(list(GIVEN), p=list(GIVEN.values())))
    if given in ("auto", "none"):
        return given, "auto" if given == "auto" else None
    if not exact:
        return "small", target.rank
    if given != "right":
        step = 1 if given == "large" else -1
        for k in map(int, rng.permutation(len(target.rank))):
            other = tuple(r + step * (j == k) for j, r in enumerate(target.rank))
            if 0 < other[k] <= target.X.shape[k] and attainable_rank(other) == other:
                return given, other
    return "right", target.rank


# Families: exact


def _exact(rng: Rng) -> Trial:
    kind = str(rng.choice(list(OPERATORS)))
    is_complex = OPERATORS[kind].takes_complex and rng.random() < 0.15
    target = _low_rank(rng, dtype=np.complex128 if is_complex else np.float64)
    return _trial(rng, kind, _operator(rng, kind, target), target)


# Families: matrices


def _dense(make: Callable[[Rng, int, tuple[int, ...]], NumPyArray]) -> Callable[[Rng], Trial]:
    """Family of a dense matrix, made from m and a shape."""

    def draw(rng: Rng) -> Trial:
        target = _low_rank(rng)
        shape = target.X.shape
        matrix = make(rng, _number(rng, target), shape)
        return _trial(rng, "dense", as_operator(matrix, shape), target)

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
    damping = np.eye(shape[k]) - (1 - _between(rng, 1e-6, 0.1)) * np.outer(u, u)
    rows = rng.standard_normal((m, *shape))
    return np.asarray(mode_product(rows, damping, k + 1)).reshape(m, -1)


def _mean(rng: Rng, m: int, shape: tuple[int, ...]) -> NumPyArray:
    return rng.standard_normal((m, math.prod(shape))) + _between(rng, 0.1, 10)


def _uneven_rows(rng: Rng, m: int, shape: tuple[int, ...]) -> NumPyArray:
    sizes = 10 ** (rng.uniform(0.5, 3) * rng.random((m, 1)))
    return np.asarray(rng.standard_normal((m, math.prod(shape))) * sizes)


def _binary(rng: Rng, m: int, shape: tuple[int, ...]) -> NumPyArray:
    return (rng.random((m, math.prod(shape))) < rng.uniform(0.1, 0.7)).astype(float)


# Families: patterns of sampled entries


def _pattern(make: Callable[[Rng, tuple[int, ...]], NumPyArray]) -> Callable[[Rng], Trial]:
    """Family of sampled entries, from a mask of those that may be sampled."""

    def draw(rng: Rng) -> Trial:
        target = _low_rank(rng)
        shape = target.X.shape
        allowed = np.flatnonzero(make(rng, shape))
        m = _number(rng, target, allowed.size)
        return _trial(
            rng, "entries", _sampled(shape, rng.choice(allowed, m, replace=False)), target
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
    target = _low_rank(rng)
    kind, A = _any_operator(rng, target)
    trial = _trial(rng, kind, A, target)
    y = trial.y.copy()
    where = rng.random(y.size) < rng.uniform(0.01, 0.1)
    size = np.linalg.norm(y) / math.sqrt(y.size)
    y[where] = size * _between(rng, 2, 30) * _white(rng, y[where])
    loss = str(rng.choice(["squared", "huber"]))
    noise = "unknown" if trial.noise == "none" else trial.noise
    return replace(trial, y=y, noise=noise, arguments={**trial.arguments, "loss": loss})


def _noisy(noise: Callable[[Rng, NumPyArray], NumPyArray]) -> Callable[[Rng], Trial]:
    """Family of any operator with that noise of unit variance."""

    def draw(rng: Rng) -> Trial:
        target = _low_rank(rng)
        return _trial(rng, *_any_operator(rng, target), target, noise=noise)

    return draw


def _student(rng: Rng, y: NumPyArray) -> NumPyArray:
    """Student's t with 3 degrees of freedom, whose variance is 3."""
    noise: NumPyArray = np.asarray(rng.standard_t(3, y.shape)) / math.sqrt(3)
    return noise if y.dtype.kind == "f" else noise * np.exp(2j * np.pi * rng.random(y.shape))


def _uneven_noise(rng: Rng, y: NumPyArray) -> NumPyArray:
    sizes = 10 ** rng.random(y.shape)
    return np.asarray(sizes / math.sqrt(np.mean(sizes**2)) * _white(rng, y))


# Families: tensors


def _offset(rng: Rng) -> Trial:
    """A low-rank tensor and a constant, which adds one to its rank in most modes."""
    target = _low_rank(rng)
    size = np.linalg.norm(target.X) / math.sqrt(target.X.size)
    X = target.X + size * _between(rng, 0.3, 10)
    target = Target(X, multilinear_rank(X, 1e-10))
    return _trial(rng, *_any_operator(rng, target), target)


def _power_law(rng: Rng) -> Trial:
    """Nearly of low rank: singular values fall as a power of their number."""
    shape, rank = _sizes(rng)
    power = rng.uniform(0.7, 3)
    X = rng.standard_normal(shape)
    for k, n in enumerate(shape):
        Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
        X = mode_product(X, Q * np.arange(1, n + 1) ** -power, k)
    return _inexact(rng, Target(X, rank))


def _unstructured(rng: Rng) -> Trial:
    """Random numbers: there is nothing to recover."""
    shape, rank = _sizes(rng)
    return _inexact(rng, Target(rng.standard_normal(shape), rank))


def _pure_noise(rng: Rng) -> Trial:
    """The tensor is zero."""
    trial = _unstructured(rng)
    settings = {name: x for name, x in trial.arguments.items() if name != "noise_std"}
    y = _white(rng, trial.y)
    X = np.zeros_like(trial.X_true)
    return replace(trial, y=y, X_true=X, noise="unknown", level=math.inf, arguments=settings)


def _inexact(rng: Rng, target: Target) -> Trial:
    """Problem of a tensor that has not the rank of the target."""
    return _trial(rng, *_any_operator(rng, target), target, exact=False)


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
    rank = _some_rank(rng, shape)
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
