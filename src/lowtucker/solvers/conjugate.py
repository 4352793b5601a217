"""A step of Riemannian conjugate gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import Array, is_array, like, namespace, real_dtype, to_numpy
from lowtucker.operators.design import TangentDesign
from lowtucker.problem import Problem
from lowtucker.solvers.models import dot, finite_vectors, joined, some_of
from lowtucker.tensor.products import norm
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Search"]


class Search(NamedTuple):
    """Where to go from X: the design, the residual, the gradient and the direction.

    Of one problem, or of all problems of a batch, whose vectors have a leading axis.
    """

    design: TangentDesign
    residual: Array
    gradient: Array
    direction: Array

    @classmethod
    def at(cls, problem: Problem, X: TuckerTensor) -> Search:
        """Steepest descent at X. One pass."""
        design = problem.A.tangent(TangentSpace(X))
        residual, g = design.misfit(problem.y, problem.weights)
        g = g / (problem.count[..., None] if is_array(problem.count) else problem.count)
        return cls(design, residual, g, g)

    @property
    def T(self) -> TangentSpace:
        """Tangent space at X."""
        return self.design.T

    @property
    def unit(self) -> Any:
        """Powers of two that the gradients are near to."""
        sizes = to_numpy(norm(self.gradient, batch_ndim=self.gradient.ndim - 1))
        return np.frexp(np.where(np.isfinite(sizes), sizes, 0.0))[1]

    @property
    def kept(self) -> Array:
        """Direction in that unit: a state has no other scale than that of X."""
        return self.in_units(self.direction, -1)

    def in_units(self, direction: Array, sign: int) -> Array:
        """Direction into that unit, or out of it."""
        power = like(np.ldexp(1.0, sign * self.unit), direction, real_dtype(direction))
        return direction * power[..., None]

    def step(self, problem: Problem) -> tuple[Search, Any]:
        """Go to the minimum of the model along the direction; also which steps are not finite.

        These stay. The next direction is by Polak and Ribiere. Two passes.
        """
        seen = to_numpy(
            problem.weighted_norm(self.design.measured(self.direction, problem.weights))
        )
        curvature = np.asarray(seen, dtype=float) ** 2 / to_numpy(problem.count)
        length = _over(dot(self.gradient, self.direction), curvature)
        xi = self.direction * _each(length, self.direction)
        fine = finite_vectors(xi)
        xi = namespace(xi).where(like(fine, xi)[..., None], xi, namespace(xi).zeros_like(xi))
        new = Search.at(problem, self.T.retract(xi))
        before = new.T.coordinates(self.T.tensor(self.gradient))
        moved = new.T.coordinates(self.T.tensor(self.direction))
        size = dot(self.gradient, self.gradient)
        beta = np.maximum(0.0, _over(dot(new.gradient, new.gradient - before), size))
        mixed = new.gradient + _each(beta, moved) * moved
        descends = like(dot(mixed, new.gradient) > 0, mixed)[..., None]
        mixed = namespace(mixed).where(descends, mixed, new.gradient)
        return new._replace(direction=mixed), ~fine

    def select(self, which: Sequence[int]) -> Search:
        """Searches of some problems of a batch, by position."""
        A, T = self.design.A.select(which), self.T.take(which)
        arrays = (some_of(x, which) for x in (self.residual, self.gradient, self.direction))
        return Search(A.tangent(T), *arrays)

    def single(self) -> Search:
        """Search of a batch of one, without the leading axis."""
        T = self.T.take(0)
        arrays = (some_of(x, 0) for x in self[1:])
        return Search(self.design.A.trial(0).tangent(T), *arrays)

    def put(self, which: Sequence[int], other: Search) -> Search:
        """Searches of a batch with those of another at some positions."""
        count = self.gradient.shape[0]
        if len(which) == count:
            return other
        order = np.arange(count)
        order[list(which)] = count + np.arange(len(which))
        T = TangentSpace.concat([self.T, other.T]).take(order)
        arrays = (some_of(joined(pair), order) for pair in zip(self[1:], other[1:], strict=True))
        return Search(self.design.A.tangent(T), *arrays)


def _over(a: Any, b: Any) -> Any:
    """Quotient, 0 where the divisor is not positive."""
    return np.where(b > 0, a / np.where(b > 0, b, 1.0), 0.0)


def _each(numbers: Any, vectors: Array) -> Array:
    """One number for each vector of a batch, as an array that multiplies them."""
    return like(numbers, vectors, real_dtype(vectors))[..., None]
