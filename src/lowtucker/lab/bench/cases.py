r"""Cases of ``bench checks``: tensors and measurements of which it is known what to say.

Most need no solver. With D the tangent design at X and :math:`r = (I - D D^+) e`, the measurements
:math:`y = \mathcal{A}(X) + r` have a critical point at X, with the residual that noise e leaves
there, as far as the model is linear.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lowtucker.lab.bench.draws import OPERATORS, Rng, between, low_rank, sampled, white
from lowtucker.operators import FunctionOperator, MeasurementOperator, kronecker
from lowtucker.problem import Problem
from lowtucker.recovery.evidence import Evidence
from lowtucker.recovery.fit import Fit
from lowtucker.run.history import History
from lowtucker.run.result import Result
from lowtucker.solvers import RGN
from lowtucker.status import Status
from lowtucker.tensor import TangentSpace, TuckerTensor, degrees_of_freedom, hosvd

__all__ = [
    "DEFICIENT",
    "FIT",
    "NOISE",
    "Case",
    "as_functions",
    "draw_case",
    "ended_at",
    "fitted",
    "gaussian_core",
    "noisy",
]

NumPyArray = np.ndarray[Any, Any]
# Settings of `recover` by default
FIT = Fit("auto", 1e-6, 500, None, None, None, 0, (), "squared")


class Case(NamedTuple):
    """A tensor, an operator, and an orthonormal basis of what tangent vectors measure."""

    X: TuckerTensor
    A: MeasurementOperator
    basis: NumPyArray

    @property
    def clean(self) -> NumPyArray:
        """Measurements without noise. One pass."""
        return np.asarray(self.A.forward(self.X))

    def left(self, e: NumPyArray) -> NumPyArray:
        """What a fit leaves of a vector e, to first order."""
        v = _as_real(e)
        for _ in range(2):  # once more against rounding
            v = v - self.basis @ (self.basis.T @ v)
        return v[: len(e)] + 1j * v[len(e) :] if np.iscomplexobj(e) else v

    def evidence(self, residual: NumPyArray) -> Evidence:
        """Evidence of a fit that ended at X with this residual."""
        problem = Problem(self.A, self.clean + residual)
        return Evidence(problem, ended_at(problem, self.X), 0)


def draw_case(rng: Rng, kinds: Sequence[str], per_dof: tuple[float, float]) -> Case:
    """Draw a case with an operator of one of some kinds, and equations per degree of freedom."""
    while True:
        target, kind = low_rank(rng), str(rng.choice(list(kinds)))
        shape, each = target.X.shape, 2 if kind == "fft" else 1
        dof = degrees_of_freedom(shape, target.rank)
        m = int(min(OPERATORS[kind].most(shape), between(rng, *per_dof) * dof / each))
        if each * m >= max(per_dof[0] * dof, dof + 1):  # there may be no more entries
            break
    A = OPERATORS[kind].draw(rng, shape, m, target.X.dtype)
    X = hosvd(target.X, target.rank)
    design = np.asarray(A.tangent(TangentSpace(X)).dense())
    return Case(X, A, np.linalg.qr(_as_real(design))[0])


def _as_real(a: NumPyArray) -> NumPyArray:
    return np.concatenate([a.real, a.imag]) if np.iscomplexobj(a) else a


def ended_at(problem: Problem, X: TuckerTensor) -> Result:
    """Result of a fit that ended at X, above its tolerance. One pass."""
    return Result(
        X, float(problem.relative_residual(X)), Status.STALLED, History(), X.rank, 0, 0.0, 0.0, "",
        problem.m, X.degrees_of_freedom,
    )  # fmt: skip


def fitted(problem: Problem, start: TuckerTensor) -> Result:
    """Fit by Gauss-Newton from a start."""
    return FIT(problem, start.rank, start=start, solver=RGN(starts=1))


def gaussian_core(rng: Rng, shape: tuple[int, ...], rank: tuple[int, ...]) -> TuckerTensor:
    """Draw a tensor with a Gaussian core and random factors."""
    sizes = zip(shape, rank, strict=True)
    factors = tuple(np.linalg.qr(rng.standard_normal(size))[0] for size in sizes)
    return TuckerTensor(rng.standard_normal(rank), factors)


def as_functions(A: MeasurementOperator) -> MeasurementOperator:
    """Operator that has no more than products: its design is not formed."""
    return FunctionOperator(
        lambda X: np.asarray(A.forward(X)), lambda v: np.asarray(A.adjoint(v)), A.shape, A.m
    )


# Noise of unit variance


def _student(rng: Rng, y: NumPyArray) -> NumPyArray:
    """Student's t with 3 degrees of freedom, whose variance is 3."""
    return np.asarray(white(rng, y) / np.sqrt(rng.chisquare(3, y.shape)))


def _unequal(rng: Rng, y: NumPyArray) -> NumPyArray:
    """Sizes that differ by 10."""
    sizes = rng.choice([1.0, 10.0], y.shape)
    return np.asarray(white(rng, y) * sizes / math.sqrt(np.mean(sizes**2)))


NOISE: Mapping[str, Callable[[Rng, NumPyArray], NumPyArray]] = {
    "normal": white,
    "student": _student,
    "unequal": _unequal,
}


def noisy(
    rng: Rng, clean: NumPyArray, level: float, kind: str = "normal"
) -> tuple[NumPyArray, float]:
    """Draw noise of a size relative to the measurements; return it and its standard deviation."""
    std = level * float(np.linalg.norm(clean)) / math.sqrt(clean.size)
    return std * NOISE[kind](rng, clean), std


# Operators whose design is rank-deficient, whatever X is; None where there is none of that kind


def _without_slice(rng: Rng, shape: tuple[int, ...], rank: tuple[int, ...]) -> Any:
    """Entries of all slices of a mode but one: there, the factor may have any row."""
    k = int(rng.integers(len(shape)))
    seen = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), k, 0)[1:].reshape(-1)
    m = round(between(rng, 0.3, 1.0) * seen.size)
    return sampled(shape, rng.choice(seen, m, replace=False))


def _flat(rng: Rng, shape: tuple[int, ...], rank: tuple[int, ...]) -> Any:
    """Mode-wise maps, one of them with a null space."""
    k = int(rng.integers(len(shape)))
    sizes = [(n - 1 if j == k else n, n) for j, n in enumerate(shape)]
    return kronecker([rng.standard_normal(size) for size in sizes])


def _corner(rng: Rng, shape: tuple[int, ...], rank: tuple[int, ...]) -> Any:
    """A slice of each mode, through one entry: prod (r_k - 1) numbers of the core are not seen."""
    if min(rank) == 1:
        return None
    seen = np.zeros(shape, dtype=bool)
    for k in range(len(shape)):
        np.moveaxis(seen, k, 0)[0] = True
    return sampled(shape, np.flatnonzero(seen))


DEFICIENT: tuple[Callable[[Rng, tuple[int, ...], tuple[int, ...]], Any], ...] = (
    _without_slice,
    _flat,
    _corner,
)
