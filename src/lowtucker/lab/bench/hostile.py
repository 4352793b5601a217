r"""Random problems of hostile operators, with known answers: ``lowtucker bench verdict --hostile``.

A problem is a small tensor of low rank, an operator of some kind (:data:`~.draws.OPERATORS`), a
*fault* of it and a *wrapper* around it; problem ``index`` of a seed is a pure function of the two.
A fault is a function of a random generator and a target that returns an operator, and a line in
:data:`FAULTS`; a wrapper is a function from operator to operator, and a line in :data:`WRAPPERS`.

Operators that are at fault themselves (a wrong adjoint, a map that is not linear) may be refused:
:attr:`~.draws.Trial.refusable`. Nothing that is wrong may be called a success.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from lowtucker.lab.bench.draws import (
    LITTLE,
    Rng,
    Target,
    Trial,
    any_operator,
    between,
    low_rank,
    measured,
    number,
)
from lowtucker.operators import (
    FunctionOperator,
    MeasurementOperator,
    as_operator,
    compose,
    scale,
    stack,
    to_scipy,
)
from lowtucker.tensor import mode_product, unfold

__all__ = ["FAULTS", "WRAPPERS", "problem"]

NumPyArray = np.ndarray[Any, Any]
# Largest decades by which singular values, rows or columns differ
DECADES = 9.0
# How often a solver is named
SOLVERS = {"auto": 0.7, "rgn": 0.06, "rcg": 0.06, "tiht": 0.06, "stotiht": 0.06, "rsgd": 0.06}


def problem(seed: int, index: int) -> Trial:
    """Return a problem: a pure function of its arguments.

    Examples
    --------
    >>> problem(0, 3).A.shape == problem(0, 3).X_true.shape
    True
    """
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, index, 25])))
    family = _drawn(rng, {name: fault.weight for name, fault in FAULTS.items()})
    fault = FAULTS[family]
    target = low_rank(rng, LITTLE)
    A, measures = fault.draw(rng, target)
    trial = measured(rng, family, measures, target)
    wrapper = "as it is"
    if fault.wrapped:
        wrapper = _drawn(rng, dict.fromkeys(WRAPPERS, 1.0))
        A = WRAPPERS[wrapper](rng, A)
    solver = _drawn(rng, SOLVERS) if trial.given in ("right", "small", "large") else "auto"
    return replace(
        trial,
        A=A,
        operator=wrapper,
        refusable=fault.refusable,
        arguments={**trial.arguments, "solver": solver},
        seed=seed,
        index=index,
        family=family,
    )


def _drawn(rng: Rng, weights: Mapping[str, float]) -> str:
    shares = np.array(list(weights.values()))
    return str(rng.choice(list(weights), p=shares / shares.sum()))


class Drawn(NamedTuple):
    """An operator for ``recover``, and the one that measures: another where the first lies."""

    given: MeasurementOperator
    measures: MeasurementOperator


def _sound(draw: Callable[[Rng, Target], MeasurementOperator]) -> Callable[[Rng, Target], Drawn]:
    def both(rng: Rng, target: Target) -> Drawn:
        A = draw(rng, target)
        return Drawn(A, A)

    return both


def _matrix(A: MeasurementOperator) -> NumPyArray:
    """Rows of an operator."""
    numbers = math.prod(A.shape)
    basis = np.eye(numbers, dtype=A.dtype).reshape(numbers, *A.shape)
    return np.stack([np.asarray(A.forward(one)) for one in basis], axis=1)


def _gaussian_rows(rng: Rng, target: Target) -> NumPyArray:
    return rng.standard_normal((number(rng, target), target.X.size))


# Faults: spectra


def _levels(rng: Rng, count: int) -> NumPyArray:
    """Positive numbers up to 1 that differ by at most 9 decades, in one of five ways."""
    decades = rng.uniform(0, DECADES)
    ways = {
        "even": np.linspace(0, 1, count),
        "random": rng.random(count),
        "two": (np.arange(count) > rng.integers(1, count + 1)).astype(float),
        "one": (np.arange(count) == count - 1).astype(float),
        "falling": np.log(np.arange(1, count + 1)) / math.log(count + 1),
    }
    return np.asarray(10 ** (-decades * ways[str(rng.choice(list(ways)))]))


def _spectrum(rng: Rng, target: Target) -> MeasurementOperator:
    """Singular values that differ by decades."""
    U, _, Vh = np.linalg.svd(_gaussian_rows(rng, target), full_matrices=False)
    return as_operator(U * _levels(rng, len(Vh)) @ Vh, target.X.shape)


def _mode_spectrum(rng: Rng, target: Target) -> MeasurementOperator:
    """Any kind, after a map of one mode whose singular values differ by decades."""
    k = int(rng.integers(target.X.ndim))
    n = target.X.shape[k]
    U, _, Vh = np.linalg.svd(rng.standard_normal((n, n)))
    return _after(any_operator(rng, target)[1], U * _levels(rng, n) @ Vh, k)


def _after(A: MeasurementOperator, M: NumPyArray, k: int) -> MeasurementOperator:
    """Measure what a matrix makes of mode k."""
    numbers = math.prod(A.shape)
    first = np.eye(numbers).reshape(numbers, *A.shape)
    whole = np.asarray(mode_product(first, M.T, k + 1)).reshape(numbers, numbers)
    return compose(A, as_operator(whole.T, A.shape))


def _scaled_rows(rng: Rng, target: Target) -> MeasurementOperator:
    A = any_operator(rng, target)[1]
    return scale(A, rng.permutation(_levels(rng, A.m)))


def _scaled_columns(rng: Rng, target: Target) -> MeasurementOperator:
    levels = rng.permutation(_levels(rng, target.X.size))
    return as_operator(_gaussian_rows(rng, target) * levels, target.X.shape)


def _heavy_tails(rng: Rng, target: Target) -> MeasurementOperator:
    """Entries of Student's distribution with one to three degrees of freedom."""
    rows = _gaussian_rows(rng, target)
    return as_operator(rng.standard_t(rng.uniform(1, 3), rows.shape), target.X.shape)


def _coherent(rng: Rng, target: Target) -> MeasurementOperator:
    """Rows that hardly differ from one or two."""
    rows = _gaussian_rows(rng, target)
    common = rows[rng.integers(0, 2, len(rows))]
    return as_operator(common + between(rng, 1e-9, 1) * rows, target.X.shape)


def _smooth(rng: Rng, target: Target) -> MeasurementOperator:
    """Rows whose neighbouring entries are nearly the same."""
    rows = _gaussian_rows(rng, target)
    keep = 1 - between(rng, 1e-3, 1)
    for j in range(1, rows.shape[1]):
        rows[:, j] = keep * rows[:, j - 1] + math.sqrt(1 - keep**2) * rows[:, j]
    return as_operator(rows, target.X.shape)


# Faults: what is not measured


def _blind(least: float, most: float) -> Callable[[Rng, Target], MeasurementOperator]:
    """Any kind, after a direction of a mode, random or one slice, is damped."""

    def draw(rng: Rng, target: Target) -> MeasurementOperator:
        k = int(rng.integers(target.X.ndim))
        n = target.X.shape[k]
        u = rng.standard_normal(n) if rng.random() < 0.5 else np.eye(n)[rng.integers(n)]
        u = u / np.linalg.norm(u)
        damping = between(rng, least, most) if least else 0.0
        return _after(any_operator(rng, target)[1], np.eye(n) - (1 - damping) * np.outer(u, u), k)

    return draw


def _blind_to_one(rng: Rng, target: Target) -> MeasurementOperator:
    """One direction of all tensors, that of X or of its tangent space among them, is damped."""
    direction: Any = rng.standard_normal(target.X.shape)
    for k in range(int(rng.integers(0, target.X.ndim + 1))):  # nearer and nearer to the tangents
        U = np.linalg.svd(unfold(target.X, k), full_matrices=False)[0][:, : target.rank[k]]
        direction = mode_product(direction, U @ U.T, k)
    direction = direction.reshape(-1) / np.linalg.norm(direction)
    rows = _gaussian_rows(rng, target)
    damping = 0.0 if rng.random() < 0.5 else between(rng, 1e-12, 0.1)
    rows -= (1 - damping) * np.outer(rows @ direction, direction)
    return as_operator(rows, target.X.shape)


def _repeated_rows(rng: Rng, target: Target) -> MeasurementOperator:
    """Some rows, again and again: fewer than the degrees of freedom, or hardly more."""
    A = any_operator(rng, target)[1]
    few = max(1, round(between(rng, 0.2, 1) * A.m))
    return A.restrict(rng.integers(0, few, A.m))


# Faults: functions that lie


def _lying(make: Callable[[Rng, NumPyArray], tuple[Any, Any]]) -> Callable[[Rng, Target], Drawn]:
    """A function whose matrix is M, from functions of vectors."""

    def draw(rng: Rng, target: Target) -> Drawn:
        shape = target.X.shape
        M = _gaussian_rows(rng, target)
        forward, adjoint = make(rng, M)
        given = FunctionOperator(
            lambda X: forward(X.reshape(-1)), lambda v: adjoint(v).reshape(shape), shape, len(M)
        )
        return Drawn(given, as_operator(M, shape))

    return draw


def _wrong_adjoint(rng: Rng, M: NumPyArray) -> tuple[Any, Any]:
    """Wrong by a factor, by signs, order, rows or columns left out, or a little."""
    m, n = M.shape
    wrong = {
        "factor": M * between(rng, 1e-3, 1e3),
        "sign": -M,
        "reversed": M[::-1],
        "rolled": np.roll(M, 1, axis=1),
        "row": M * (np.arange(m) != rng.integers(m))[:, None],
        "columns": M * (rng.random(n) > rng.uniform(0.02, 0.5)),
        "other": rng.standard_normal(M.shape),
        "zero": np.zeros_like(M),
        "perturbed": M + between(rng, 1e-6, 1) * rng.standard_normal(M.shape),
        "weighted": M * 10 ** rng.uniform(-1, 1, (m, 1)),
    }
    W = wrong[str(rng.choice(list(wrong)))]
    return lambda x: M @ x, lambda v: v @ W


def _affine(rng: Rng, M: NumPyArray) -> tuple[Any, Any]:
    offset = between(rng, 1e-6, 10) * rng.standard_normal(len(M))
    return lambda x: M @ x + offset, lambda v: v @ M


def _clipped(rng: Rng, M: NumPyArray) -> tuple[Any, Any]:
    """A detector that saturates, or gives absolute values, or whole numbers."""
    ways = (lambda y: np.clip(y, -1, 1), np.abs, np.round, np.tanh)
    way = ways[int(rng.integers(len(ways)))]
    return lambda x: way(M @ x), lambda v: v @ M


def _unsteady(rng: Rng, M: NumPyArray) -> tuple[Any, Any]:
    """A function that gives other numbers each time."""
    noise, level = np.random.default_rng(int(rng.integers(2**32))), between(rng, 1e-9, 1)

    def forward(x: NumPyArray) -> NumPyArray:
        y = M @ x
        return np.asarray(y * (1 + level * noise.standard_normal(y.shape)))

    return forward, lambda v: v @ M


# Wrappers


def _as_it_is(rng: Rng, A: MeasurementOperator) -> MeasurementOperator:
    return A


def _as_functions(rng: Rng, A: MeasurementOperator) -> MeasurementOperator:
    return FunctionOperator(A.forward, A.adjoint, A.shape, A.m) if not A.complex_rows else A


def _as_scipy(rng: Rng, A: MeasurementOperator) -> MeasurementOperator:
    return as_operator(to_scipy(A), A.shape) if not A.complex_rows else A


def _as_sparse(rng: Rng, A: MeasurementOperator) -> MeasurementOperator:
    from scipy import sparse

    return as_operator(sparse.csr_array(_matrix(A)), A.shape)


def _as_matrix(rng: Rng, A: MeasurementOperator) -> MeasurementOperator:
    return as_operator(_matrix(A), A.shape)


def _as_dask(rng: Rng, A: MeasurementOperator) -> MeasurementOperator:
    try:
        from dask import array
    except ImportError:
        return A
    return as_operator(array.from_array(_matrix(A), chunks=(max(1, A.m // 2), -1)), A.shape)


def _in_parts(rng: Rng, A: MeasurementOperator) -> MeasurementOperator:
    half = A.m // 2
    return stack([A.restrict(slice(0, half)), A.restrict(slice(half, A.m))]) if half else A


def _in_other_units(rng: Rng, A: MeasurementOperator) -> MeasurementOperator:
    """Far from 1, and back: the same measurements."""
    unit = 2.0 ** int(rng.integers(-300, 301))
    return scale(scale(A, unit), 1 / unit)


def _twice_weighted(rng: Rng, A: MeasurementOperator) -> MeasurementOperator:
    """Rows scaled and scaled back."""
    sizes = 2.0 ** rng.integers(-20, 21, A.m)
    return scale(scale(A, sizes), 1 / sizes)


def _composed(rng: Rng, A: MeasurementOperator) -> MeasurementOperator:
    return compose(as_operator(np.eye(A.m), (A.m,)), A)


WRAPPERS: Mapping[str, Callable[[Rng, MeasurementOperator], MeasurementOperator]] = {
    "as it is": _as_it_is,
    "functions": _as_functions,
    "scipy": _as_scipy,
    "sparse": _as_sparse,
    "matrix": _as_matrix,
    "dask": _as_dask,
    "parts": _in_parts,
    "units": _in_other_units,
    "weights": _twice_weighted,
    "composed": _composed,
}


class Fault(NamedTuple):
    """How to draw an operator, how often, and what may be done with it.

    Parameters
    ----------
    draw : callable
    weight : float
        Share of the problems, in units of the sum.
    wrapped : bool
        Whether wrappers apply.
    refusable : bool
        Whether ``recover`` may refuse it.
    """

    draw: Callable[[Rng, Target], Drawn]
    weight: float = 1.0
    wrapped: bool = True
    refusable: bool = False


FAULTS: Mapping[str, Fault] = {
    "spectrum": Fault(_sound(_spectrum), 3),
    "mode spectrum": Fault(_sound(_mode_spectrum), 2),
    "scaled rows": Fault(_sound(_scaled_rows), 2),
    "scaled columns": Fault(_sound(_scaled_columns), 2),
    "heavy tails": Fault(_sound(_heavy_tails)),
    "coherent rows": Fault(_sound(_coherent)),
    "smooth rows": Fault(_sound(_smooth)),
    "blind": Fault(_sound(_blind(0, 0)), 2),
    "nearly blind": Fault(_sound(_blind(1e-12, 0.3)), 3),
    "blind to one": Fault(_sound(_blind_to_one), 2),
    "repeated rows": Fault(_sound(_repeated_rows), 2),
    "wrong adjoint": Fault(_lying(_wrong_adjoint), 2, wrapped=False, refusable=True),
    "affine": Fault(_lying(_affine), 0.5, wrapped=False, refusable=True),
    "not linear": Fault(_lying(_clipped), 0.5, wrapped=False, refusable=True),
    "unsteady": Fault(_lying(_unsteady), 0.5, wrapped=False, refusable=True),
}
