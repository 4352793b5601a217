"""Units: powers of two that are taken out of A, y and the weights before a run, and put back.

Squares of what is larger than 1e154 overflow, those of what is smaller than 1e-162 vanish, and
LAPACK rounds otherwise long before that. To multiply by a power of two changes no digit: so a
problem of any scale is solved as one of moderate scale, and its result is the same to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from lowtucker._array import (
    Array,
    Deferred,
    Rows,
    as_float,
    as_number,
    eps,
    like,
    namespace,
    real_dtype,
    size,
)
from lowtucker._array.random import Stream, generator
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.combined import StackedOperator, gives_complex
from lowtucker.operators.dask import DaskOperator
from lowtucker.operators.design import TangentDesign
from lowtucker.operators.entries import EntriesOperator
from lowtucker.operators.kronecker import KroneckerOperator
from lowtucker.problem import Problem
from lowtucker.result import Result
from lowtucker.run import Callback, History, Progress
from lowtucker.solvers import State
from lowtucker.solvers.iht import IHT
from lowtucker.tensor.products import exponent, norm, shifted
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = [
    "Units",
    "callbacks_out_of_units",
    "into_units",
    "out_of_units",
    "scaled",
    "solver_in_units",
    "units_of",
]

Value = TypeVar("Value")
# Sum of the exponents of A, y and weights, in single and in double precision, up to which a problem
# is left as it is. The smallest and largest numbers that are met are the squares of A^*(w y), in
# the gram matrices of a start, and LAPACK scales, by what is no power of two, what is outside
# 2^-51 to 2^51 and 2^-485 to 2^485. The rest is for the number of entries, and small residuals.
REACH = (16, 160)
# Share of it that A may have: to scale A costs some flops, to scale y next to nothing
OF_A = 0.75
# Exponents of the largest and smallest tensors that can be told from infinity and zero
LIMIT = (110, 1000)
# Rows that settle the exponent of A
ROWS = 16


class Units(NamedTuple):
    """Exponents of the powers of two that a problem's A, y and weights are multiples of.

    Zeros, where the problem is left as it is. That of the weights is even: their roots are exact.

    Examples
    --------
    >>> Units(A=3, y=10).X
    7
    """

    A: int = 0
    y: int = 0
    weights: int = 0

    @property
    def plain(self) -> bool:
        """Whether nothing is scaled."""
        return not any(self)

    @property
    def X(self) -> int:
        """Exponent of the tensor."""
        return self.y - self.A

    def noise_std(self, given: Any) -> Any:
        """Standard deviation of noise, in the units of y."""
        if given is None or self.plain:
            return given
        return float(np.ldexp(as_number(given, "noise_std", 0.0), -self.y))


def units_of(problem: Problem) -> Units:
    """Units in which a problem is of moderate scale; plain ones where it is so already.

    Cost: a reading of y, and a forward of 16 rows, or of all rows where an operator cannot measure
    some alone. Sampled entries have the scale 1.

    Raises
    ------
    ValueError
        A and y are of such scales that X would not be a number of their precision.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=40, seed=1)
    >>> y = A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0))
    >>> units_of(lt.Problem(A, y))
    Units(A=0, y=0, weights=0)
    >>> units_of(lt.Problem(A, 2.0**500 * y))
    Units(A=0, y=503, weights=0)
    """
    y, w = problem.y, problem.weights
    if w is not None:
        y = namespace(y).where(w > 0, y, namespace(y).zeros_like(y))
    length = float(norm(y))
    single = eps(y) > 1e-10
    reach, limit = (pair[not single] for pair in (REACH, LIMIT))
    of_w = 0 if w is None else exponent(namespace(w).max(w)) // 2 * 2
    of_A = 0 if isinstance(problem.A, EntriesOperator) else exponent_of(problem.A)
    of_y = exponent(length) if length else of_A  # zero is zero in any units
    if abs(of_y - of_A) > limit:
        raise ValueError(
            f"A takes a tensor of norm 1 to measurements of norm 2^{of_A}, and y has the norm "
            f"2^{of_y}: X, of the norm 2^{of_y - of_A}, would not be a number of "
            f"{'single' if single else 'double'} precision. Give A or y in other units."
        )
    if abs(of_A) + abs(of_y) + abs(of_w) <= reach:
        return Units()
    return Units(of_A if abs(of_A) > OF_A * reach else 0, of_y, of_w)


def exponent_of(A: MeasurementOperator) -> int:
    """Exponent of ||A(X)|| for some X of norm 1; 0 where that cannot be told."""
    rng = generator(0, Stream.PROBE)
    vectors = [rng.standard_normal((n, 1)) for n in A.shape]
    factors = [like(v / np.linalg.norm(v), A.prototype, A.dtype) for v in vectors]
    core = like(np.ones((1,) * len(A.shape)), A.prototype, A.dtype)
    few = A.restrict(slice(None, None, A.m // ROWS)) if A.restricts and A.m > ROWS else A
    for some in (few, A):  # all, where the few measure nothing
        found = _exponent_of(some, A.m, core, factors)
        if found is not None:
            return found
    return 0


def _exponent_of(some: MeasurementOperator, m: int, core: Array, factors: Any) -> int | None:
    """Exponent by some of m rows; None where nothing is measured by them."""
    single = eps(core) > 1e-10
    # shorter and longer tensors, where the measurements of one of norm 1 overflow or vanish
    for power in (0, -60, 60) if single else (0, -500, 500):
        with np.errstate(all="ignore"):
            seen = some.forward(TuckerTensor.trusted(shifted(core, power), factors))
            length = float(norm(seen))
        if 0 < length < math.inf:
            trials = size(seen.shape) // some.m
            return exponent(length) + exponent(m / some.m / trials) // 2 - power
    return None


def scaled(problem: Problem, units: Units) -> Problem:
    """Problem in its units. Nothing of the size of A is copied.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=40, seed=1)
    >>> problem = lt.Problem(A, 2.0**500 * A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2))))
    >>> float(scaled(problem, units_of(problem)).y_norm) < 1
    True
    """
    if units.plain:
        return problem
    w = problem.weights
    weights = None if w is None else shifted(w, -units.weights)
    return Problem(_times(problem.A, -units.A), shifted(problem.y, -units.y), weights)


def solver_in_units(solver: Any, units: Units) -> Any:
    """Solver, or solvers, whose fixed steps do in the units what they do without."""
    if isinstance(solver, list | tuple):
        return [solver_in_units(one, units) for one in solver]
    if not isinstance(solver, IHT) or units.plain:
        return solver
    return solver.in_units(2 * units.A + units.weights)


def into_units(value: Any, units: Units, name: str) -> Any:
    """Start or truth, as a call may give them, in the units of X.

    Parameters
    ----------
    value : TuckerTensor, array, State, Result or None
    units : Units
    name : str
        Of the argument, for messages.
    """
    if value is None or units.plain:
        return value
    if isinstance(value, TuckerTensor | State | Result):
        return _moved(value, Units(*(-power for power in units)))
    return shifted(as_float(value, name), -units.X)


def out_of_units(value: Value, units: Units) -> Value:
    """Tensor, state or result as it would be without units.

    The history's cost is infinite, or zero, where it is not a number of double precision. A state
    loses its linear model, which a run that goes on makes anew.
    """
    moved: Value = value if units.plain else _moved(value, units)
    return moved


def callbacks_out_of_units(callbacks: Sequence[Callback], units: Units) -> Sequence[Callback]:
    """Callbacks that see states as they would be without units."""
    return callbacks if units.plain else [_Translated(callback, units) for callback in callbacks]


class _Translated:
    """Callback in other units; a context manager, as the callback may be."""

    def __init__(self, callback: Callback, units: Units) -> None:
        self.callback, self.units, self.stack = callback, units, ExitStack()

    def __enter__(self) -> _Translated:
        if isinstance(self.callback, AbstractContextManager):
            self.stack.enter_context(self.callback)
        return self

    def __exit__(self, *error: Any) -> None:
        self.stack.__exit__(*error)

    def __call__(self, progress: Progress) -> bool | None:
        return self.callback(replace(progress, state=out_of_units(progress.state, self.units)))


def _moved(value: Any, units: Units) -> Any:
    if isinstance(value, TuckerTensor):
        # of a run that blew up X may be no number in other units: the largest that is one stands
        most = 120 if eps(value.core) > 1e-10 else 1000
        largest = exponent(float(namespace(value.core).max(namespace(value.core).abs(value.core))))
        return TuckerTensor.trusted(
            shifted(value.core, min(units.X, most - largest)), value.factors
        )
    X = _moved(value.X, units)
    if isinstance(value, State):
        return replace(
            value,
            X=X,
            full=_shifted(value.full, units.X),
            residual=None
            if isinstance(value.residual, Deferred)
            else _shifted(value.residual, units.y),
            gradient=_shifted(value.gradient, units.A + units.y + units.weights),
            step=_shifted(value.step, -2 * units.A - units.weights),
            model=None,
        )
    with np.errstate(all="ignore"):
        cost = np.ldexp(value.history["cost"], 2 * units.y + units.weights)
    state = None if value.state is None else _moved(value.state, units)
    weights = _shifted(value.weights, units.weights)
    history = History.of({**value.history, "cost": cost})
    return replace(value, X=X, state=state, history=history, weights=weights)


def _shifted(x: Any, power: int) -> Any:
    """Array, number or None times a power of two."""
    with np.errstate(all="ignore"):
        if x is None or isinstance(x, float):
            return x if x is None else float(np.ldexp(x, power))
        return shifted(x, power)


def _times(A: MeasurementOperator, power: int) -> MeasurementOperator:
    """Operator times a power of two: one of which every number is that of A, times the power.

    Structure that a tangent design in closed form relies on is kept.
    """
    if not power:
        return A
    if isinstance(A, StackedOperator):
        return StackedOperator([_times(part, power) for part in A.parts], A.dtype, A.only_real)
    if isinstance(A, DaskOperator):  # where its rows are
        return A.each(partial(PoweredOperator, power=power))
    if isinstance(A, KroneckerOperator):
        other = object.__new__(KroneckerOperator)
        other._set([shifted(A.factors[0], power), *A.factors[1:]])
        return other
    return PoweredOperator(A, power)


class PoweredOperator(MeasurementOperator):
    """Operator times a power of two, which multiplies small arrays and no row.

    One half of the power before the operator and one after it: neither leaves the range of numbers.

    Parameters
    ----------
    inner : MeasurementOperator
    power : int
    """

    takes_stacks: ClassVar[bool] = True

    def __init__(self, inner: MeasurementOperator, power: int) -> None:
        self.inner, self.power = inner, power
        self.before, self.after = power // 2, power - power // 2
        self.shape, self.m, self.batch_shape = inner.shape, inner.m, inner.batch_shape
        self.dtype, self.prototype, self.alike = inner.dtype, inner.prototype, inner.alike

    @property
    def count(self) -> Any:
        """Rows that an average divides by."""
        return self.inner.count

    @property
    def complex_rows(self) -> bool:
        """Whether measurements are complex."""
        return gives_complex(self.inner)

    @property
    def restricts(self) -> bool:
        """Whether a block costs its own rows only."""
        return self.inner.restricts

    @property
    def designs(self) -> bool:
        """Whether the tangent design costs about a reading of the rows."""
        return self.inner.designs

    def _forward(self, X: Array) -> Array:
        return shifted(self.inner.forward(shifted(X, self.before)), self.after)

    def _forward_tucker(self, X: TuckerTensor) -> Array:
        small = TuckerTensor.trusted(shifted(X.core, self.before), X.factors)
        return shifted(self.inner.forward(small), self.after)

    def _adjoint(self, v: Array) -> Array:
        return shifted(self.inner.adjoint(shifted(v, self.before)), self.after)

    def _misfit(self, X: Array, y: Array, weights: Array | None) -> tuple[Array, Array]:
        """Rows read once where the inner operator does so: y, and weights, are scaled for it."""
        if weights is None:
            weights = like(np.ones(self.m), y, real_dtype(y))
        X, y = shifted(X, self.before), shifted(y, -self.after)
        residual, gradient = self.inner._misfit(X, y, shifted(weights, self.power))
        return shifted(residual, self.after), shifted(gradient, self.after)

    def _restrict(self, rows: Rows) -> MeasurementOperator:
        return PoweredOperator(self.inner._restrict(rows), self.power)

    def _select(self, trials: Sequence[int]) -> MeasurementOperator:
        return PoweredOperator(self.inner.select(trials), self.power)

    def _tangent(self, T: TangentSpace) -> TangentDesign:
        return PoweredDesign(self, T)

    def _spectral_start(self, v: Array, rank: tuple[int, ...]) -> TuckerTensor:
        # all of the power at once: LAPACK rounds otherwise where the adjoint is far from 1
        return self.inner.spectral_start(shifted(v, self.power), rank)

    def _blind_spots(self, rank: tuple[int, ...], measured: Array | None) -> tuple[str, ...]:
        return self.inner._blind_spots(rank, measured)

    def _remarks(self) -> tuple[str, ...]:
        return self.inner._remarks()

    def _row_norms(self) -> Array:
        return shifted(self.inner.row_norms(), self.power)


class PoweredDesign(TangentDesign):
    """Tangent design times a power of two."""

    A: PoweredOperator

    def __init__(self, A: PoweredOperator, T: TangentSpace) -> None:
        super().__init__(A, T)
        self.inner = A.inner.tangent(T)

    def matvec(self, c: Array) -> Array:
        """Return D c."""
        return shifted(self.inner.matvec(shifted(c, self.A.before)), self.A.after)

    def rmatvec(self, r: Array) -> Array:
        """Return D^* r."""
        return shifted(self.inner.rmatvec(shifted(r, self.A.before)), self.A.after)

    def misfit(self, y: Array, weights: Array | None = None) -> tuple[Array, Array]:
        """Residual and D^* W r, in the way of the inner design."""
        if type(self.inner).misfit is TangentDesign.misfit:
            return super().misfit(y, weights)
        residual = y - self.A.forward(self.T.X)
        return residual, self.rmatvec(residual if weights is None else weights * residual)

    def rows(self) -> Iterator[tuple[slice, Array]]:
        """D in blocks of rows."""
        for rows, block in self.inner.rows():
            yield rows, shifted(block, self.A.power)
