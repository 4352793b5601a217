"""Random tensors, operators and measurements: what the problems of the zoo are made of.

Every function draws from the generator that it is given. A kind of operator is a function, and a
line in :data:`OPERATORS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

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
from lowtucker.tensor import attainable_rank, degrees_of_freedom, fold, multi_mode_product, unfold
from lowtucker.tensor.random import gaussians

__all__ = [
    "LITTLE",
    "OPERATORS",
    "Kind",
    "Rng",
    "Size",
    "Target",
    "Trial",
    "any_operator",
    "between",
    "draw_operator",
    "draw_rank",
    "draw_sizes",
    "low_rank",
    "measured",
    "number",
    "sampled",
    "white",
]

NumPyArray = np.ndarray[Any, Any]
Rng = np.random.Generator
SIDES = (3, 16)
ORDERS = {2: 0.2, 3: 0.4, 4: 0.25, 5: 0.15}
# Noise, relative to the measurements; rank that is given; measurements per degree of freedom
LEVELS = (0.0, 1e-3, 0.01, 0.05, 0.1)
GIVEN = {"right": 0.7, "small": 0.075, "large": 0.075, "auto": 0.075, "none": 0.075}
PER_DOF = (0.9, 6.0)
# Largest condition of an unfolding, and how often each unfolding gets its singular values in turn
CONDITION, SWEEPS = 30.0, 5


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
        Rank that is given: a key of :data:`GIVEN`; "small" for any rank of a tensor without a low
        one.
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
    refusable : bool
        Whether a ValueError is a right answer: the operator is wrong itself.
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
    refusable: bool = False
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


# Tensors


class Size(NamedTuple):
    """Most entries and degrees of freedom of a tensor."""

    entries: int
    dof: int


# A fit takes a second at most; some hundredths
USUAL, LITTLE = Size(3000, 250), Size(150, 24)


class Target(NamedTuple):
    """A tensor, and its rank; where it has no low one, a rank to fit to it."""

    X: NumPyArray
    rank: tuple[int, ...]


def draw_sizes(rng: Rng, most: Size = USUAL) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw a shape and an attainable rank of which that shape has clearly more entries."""
    orders = {d: share for d, share in ORDERS.items() if SIDES[0] ** d <= most.entries}
    shares = np.array(list(orders.values()))
    d = int(rng.choice(list(orders), p=shares / shares.sum()))
    longest = min(SIDES[1], int(1.6 * most.entries ** (1 / d)))
    while True:
        shape = tuple(int(n) for n in rng.integers(SIDES[0], longest + 1, d))
        rank = draw_rank(rng, shape)
        dof = degrees_of_freedom(shape, rank)
        if math.prod(shape) <= most.entries and dof <= min(most.dof, 0.6 * math.prod(shape)):
            return shape, rank


def draw_rank(rng: Rng, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Draw an attainable rank with entries from 1 to 4."""
    return attainable_rank(tuple(min(int(rng.integers(1, 5)), n) for n in shape))


def low_rank(rng: Rng, most: Size = USUAL, *, dtype: Any = np.float64) -> Target:
    """Draw a tensor of low rank and any size; conditions of unfoldings up to 30 are aimed at."""
    shape, rank = draw_sizes(rng, most)
    condition = CONDITION ** rng.random() if rng.random() < 0.8 else 1.0
    core = gaussians(rng, rank, np.dtype(dtype))
    for k in SWEEPS * tuple(range(len(rank))):
        U, _, Vh = np.linalg.svd(unfold(core, k), full_matrices=False)
        core = fold(U * np.geomspace(1, 1 / condition, rank[k]) @ Vh, k, rank)
    sizes = zip(shape, rank, strict=True)
    factors = [np.linalg.qr(gaussians(rng, n, np.dtype(dtype)))[0] for n in sizes]
    X = multi_mode_product(core, factors)
    return Target(X / np.linalg.norm(X) * 10 ** rng.uniform(-2, 3), rank)


def between(rng: Rng, low: float, high: float) -> float:
    """Draw log-uniformly."""
    return float(low * (high / low) ** rng.random())


# Operators


def _gaussian(rng: Rng, shape: tuple[int, ...], m: int, dtype: Any) -> MeasurementOperator:
    return gaussian(shape, m, seed=_seed(rng), dtype=dtype)


def _rank_one(rng: Rng, shape: tuple[int, ...], m: int, dtype: Any) -> MeasurementOperator:
    return rank_one([gaussians(rng, (m, n), np.dtype(dtype)) for n in shape])


def _entries(rng: Rng, shape: tuple[int, ...], m: int, dtype: Any) -> MeasurementOperator:
    return sampled(shape, rng.choice(math.prod(shape), m, replace=False))


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

    density = between(rng, 0.03, 0.5)
    rows = rng.standard_normal((m, math.prod(shape)))
    rows *= rng.random(rows.shape) < density
    return as_operator(sparse.csr_array(rows), shape)


def _function(rng: Rng, shape: tuple[int, ...], m: int, dtype: Any) -> MeasurementOperator:
    rows = rng.standard_normal((m, math.prod(shape)))
    return FunctionOperator(
        lambda X: rows @ X.reshape(-1), lambda v: (v @ rows).reshape(shape), shape, m
    )


def sampled(shape: tuple[int, ...], places: NumPyArray) -> MeasurementOperator:
    """Sample entries, given by their places in the flattened tensor."""
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


def number(rng: Rng, target: Target, most: float = math.inf, equations: int = 1) -> int:
    """Draw m: so many measurements per degree of freedom, each of one or two real equations."""
    dof = degrees_of_freedom(target.X.shape, target.rank)
    return max(2, int(min(most, round(between(rng, *PER_DOF) * dof / equations))))


def draw_operator(rng: Rng, kind: str, target: Target) -> MeasurementOperator:
    """Draw an operator of a kind, and how many measurements it takes."""
    shape, found = target.X.shape, OPERATORS[kind]
    m = number(rng, target, found.most(shape), equations=2 if kind == "fft" else 1)
    return found.draw(rng, shape, m, target.X.dtype)


def any_operator(rng: Rng, target: Target) -> tuple[str, MeasurementOperator]:
    """Draw the kind of an operator, and the operator."""
    kind = str(rng.choice(list(OPERATORS)))
    return kind, draw_operator(rng, kind, target)


# Measurements and arguments


def measured(
    rng: Rng,
    kind: str,
    A: MeasurementOperator,
    target: Target,
    *,
    noise: Callable[[Rng, NumPyArray], NumPyArray] | None = None,
    exact: bool = True,
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
    y = clean + size * (noise or white)(rng, clean) if level else clean
    known = bool(rng.random() < 0.5) and level > 0
    given, rank = _given(rng, target, exact=exact)
    settings: dict[str, Any] = {"rank": rank}
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


def white(rng: Rng, y: NumPyArray) -> NumPyArray:
    """Draw Gaussian noise of unit variance for some measurements, complex for complex ones."""
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
