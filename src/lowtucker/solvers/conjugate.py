"""A step of Riemannian conjugate gradients."""

from __future__ import annotations

from typing import NamedTuple

from lowtucker._array import Array, all_finite
from lowtucker.operators.design import TangentDesign
from lowtucker.problem import Problem
from lowtucker.solvers.manifold import dot
from lowtucker.tensor.products import exponent, norm, shifted
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Search"]


class Search(NamedTuple):
    """Where to go from X: the design, the residual, the gradient and the direction."""

    design: TangentDesign
    residual: Array
    gradient: Array
    direction: Array

    @classmethod
    def at(cls, problem: Problem, X: TuckerTensor) -> Search:
        """Steepest descent at X. One pass."""
        design = problem.A.tangent(TangentSpace(X))
        residual, g = design.misfit(problem.y, problem.weights)
        g = g / problem.count
        return cls(design, residual, g, g)

    @property
    def T(self) -> TangentSpace:
        """Tangent space at X."""
        return self.design.T

    @property
    def unit(self) -> int:
        """Power of two that the gradient is near to."""
        return exponent(norm(self.gradient))

    @property
    def kept(self) -> Array:
        """Direction in that unit: a state has no other scale than that of X."""
        return shifted(self.direction, -self.unit)

    def step(self, problem: Problem) -> Search | None:
        """Go to the minimum of the model along the direction; None where that is not finite.

        The next direction is by Polak and Ribiere. Two passes.
        """
        seen = problem.weighted_norm(self.design.measured(self.direction, problem.weights))
        curvature = float(seen) * float(seen) / float(problem.count)
        length = dot(self.gradient, self.direction) / curvature if curvature > 0 else 0.0
        xi = self.direction * length
        if not all_finite(xi):
            return None
        new = Search.at(problem, self.T.retract(xi))
        before = new.T.coordinates(self.T.tensor(self.gradient))
        moved = new.T.coordinates(self.T.tensor(self.direction))
        size = dot(self.gradient, self.gradient)
        beta = max(0.0, dot(new.gradient, new.gradient - before) / size) if size > 0 else 0.0
        mixed = new.gradient + beta * moved
        return new._replace(direction=mixed) if dot(mixed, new.gradient) > 0 else new
