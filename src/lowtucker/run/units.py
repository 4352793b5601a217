"""Units: powers of two that are taken out of A, y and the weights before a run, and put back.

Squares of what is larger than 1e154 overflow, those of what is smaller than 1e-162 vanish, and
LAPACK rounds otherwise long before that. To multiply by a power of two changes no digit: so a
problem of any scale is solved as one of moderate scale, and its result is the same to the bit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lowtucker._array import (
    Array,
    as_float,
    as_number,
    eps,
    is_complex,
    like,
    namespace,
    size,
    to_numpy,
)
from lowtucker._array.memory import check_room
from lowtucker._array.random import Stream, generator
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.combined import is_real
from lowtucker.problem import Problem
from lowtucker.run.history import History
from lowtucker.run.result import Result
from lowtucker.solvers import Solver, State
from lowtucker.tensor.products import exponent, norm, shifted
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding import Iterate

__all__ = [
    "Units",
    "check_tensor",
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
# Power of two by which numbers whose norm overflows are made smaller
FAR = 64
# Exponents of a start or a truth, in the units of X, up to which squares of its measurements, and
# of its distance from X, do not overflow
LARGEST = (40, 300)
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

    Cost: a pass over y, and a forward of 16 rows, or of all rows where an operator is not
    row-separable. Sampled entries have the scale 1.

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
    single = eps(y) > 1e-10
    if problem.batch_shape:
        _check_one_scale(y)
    reach, limit = (pair[not single] for pair in (REACH, LIMIT))
    of_w = 0 if w is None else exponent(namespace(w).max(w)) // 2 * 2
    known = problem.A.scale_exponent()
    of_A = exponent_of(problem.A) if known is None else known
    of_y = exponent_of_norm(y)
    of_y = of_A if of_y is None else of_y  # zero is zero in any units
    if abs(of_y - of_A) > limit:
        raise ValueError(
            f"A takes a tensor of norm 1 to measurements of norm 2^{of_A}, and y has the norm "
            f"2^{of_y}: X, of the norm 2^{of_y - of_A}, would not be a number of "
            f"{'single' if single else 'double'} precision. Give A or y in other units."
        )
    if abs(of_A) + abs(of_y) + abs(of_w) <= reach:
        return Units()
    return Units(of_A if abs(of_A) > OF_A * reach else 0, of_y, of_w)


def exponent_of_norm(y: Array) -> int | None:
    """Exponent of the norm, which may exceed the largest number; None for zero."""
    for power in (0, FAR):
        with np.errstate(over="ignore"):
            length = float(norm(shifted(y, -power)))
        if math.isfinite(length):
            break
    return exponent(length) + power if length else None


def _check_one_scale(y: Array) -> None:
    """Refuse a batch whose problems are of so different scales that one unit cannot serve all."""
    with np.errstate(over="ignore"):
        sizes = np.ravel(to_numpy(norm(y, batch_ndim=y.ndim - 1)))
    sizes = np.minimum(sizes, np.finfo(sizes.dtype).max)
    sizes = sizes[sizes > 0]
    most = float(np.finfo(sizes.dtype).max) ** 0.25
    if len(sizes) > 1 and sizes.max() / most > sizes.min():
        raise ValueError(
            f"The problems of a batch must be of similar scales, got y of norms from "
            f"{sizes.min():.2g} to {sizes.max():.2g}. Divide each y by its norm, or solve them one "
            "by one."
        )


def exponent_of(A: MeasurementOperator) -> int:
    """Exponent of ||A(X)|| for some X of norm 1; 0 where that cannot be told."""
    what = f"Two vectors for each mode of shape {A.shape}"
    check_room(16 * sum(A.shape), what, "Are these the sizes of the modes?")
    rng = generator(0, Stream.PROBE)
    vectors = [rng.standard_normal((n, 1)) for n in A.shape]
    factors = [like(v / np.linalg.norm(v), A.prototype, A.dtype) for v in vectors]
    core = like(np.ones((1,) * len(A.shape)), A.prototype, A.dtype)
    few = A.restrict(slice(None, None, A.m // ROWS)) if A.traits.row_separable and A.m > ROWS else A
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
    return Problem(problem.A.in_units(-units.A), shifted(problem.y, -units.y), weights)


def solver_in_units(solver: Any, units: Units) -> Any:
    """Solver, or solvers, whose fixed steps do in the units what they do without."""
    if isinstance(solver, list | tuple):
        return [solver_in_units(one, units) for one in solver]
    if not isinstance(solver, Solver) or units.plain:
        return solver
    return solver.in_units(2 * units.A + units.weights)


def check_tensor(value: Any, name: str, problem: Problem, units: Units) -> None:
    """Refuse a start or a truth of another field than X, or so large that its squares overflow."""
    X = value.X if isinstance(value, State | Result) else value
    X = X if isinstance(X, Iterate) else as_float(X, name)
    first = next(iter(X.parts().values())) if isinstance(X, Iterate) else X
    if is_complex(first) and is_real(problem.tensor_dtype):
        raise ValueError(
            f"{name} is complex, but A and y are real, and so is X. Give the real part of {name}, "
            "or a complex A: lowtucker.DenseOperator(matrix, shape, dtype=complex)."
        )
    if isinstance(value, State | Result):
        return  # of a run, which ends where it diverges
    most = LARGEST[eps(first) < 1e-10]
    with np.errstate(over="ignore"):
        of_X = exponent_of_norm(namespace(first).reshape(first, (-1,)))
    if of_X is not None and of_X - units.X > most:
        raise ValueError(
            f"{name} has the norm 2^{of_X}, whose measurements have squares that overflow. Give "
            f"{name} in the units of X: y = A(X)."
        )


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
    if isinstance(value, Iterate | State | Result):
        return _moved(value, Units(*(-power for power in units)))
    return shifted(as_float(value, name), -units.X)


def out_of_units(value: Value, units: Units) -> Value:
    """Tensor, state or result as it would be without units.

    The history's cost is infinite, or zero, where it is not a number of double precision. A state
    loses its cache, which a resumed run recomputes.
    """
    moved: Value = value if units.plain else _moved(value, units)
    return moved


def _moved(value: Any, units: Units) -> Any:
    """Tensor, state or result times the powers of two; what solvers remember has no units."""
    if isinstance(value, State):
        return replace(value, X=_moved(value.X, units), cache=None)
    if isinstance(value, Iterate):
        return _moved_iterate(value, units.X)
    with np.errstate(all="ignore"):
        cost = np.ldexp(value.history["cost"], 2 * units.y + units.weights)
        weights = None if value.weights is None else shifted(value.weights, units.weights)
    return replace(
        value,
        X=_moved(value.X, units),
        state=None if value.state is None else _moved(value.state, units),
        history=History.of({**value.history, "cost": cost}),
        weights=weights,
        calibration=value.calibration and value.calibration.shifted(units.X),
    )


def _moved_iterate(X: Any, power: int) -> Any:
    """Iterate times a power of two; where it blew up, the largest power that leaves it finite."""
    norm_ = float(namespace(X.norm()).max(X.norm()))
    most = 120 if eps(X.norm()) > 1e-10 else 1000
    return X.shifted(min(power, most - exponent(norm_)))
