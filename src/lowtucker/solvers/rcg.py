"""RCG: Riemannian conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from lowtucker._array import Array, all_finite
from lowtucker.problem import Problem
from lowtucker.solvers.base import State
from lowtucker.solvers.manifold import Manifold, blown_up, dot
from lowtucker.tensor.products import exponent, norm, shifted
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["RCG"]


class _Search(NamedTuple):
    """Where to go from X: the space, the residual, the gradient and the direction."""

    T: TangentSpace
    residual: Array
    gradient: Array
    direction: Array

    @property
    def unit(self) -> int:
        """Power of two that the gradient is near to."""
        return exponent(norm(self.gradient))

    @property
    def carried(self) -> Array:
        """Direction in that unit: a state has it so, and no other scale than that of X."""
        return shifted(self.direction, -self.unit)


@dataclass(frozen=True, repr=False, kw_only=True)
class RCG(Manifold):
    r"""Riemannian conjugate gradients (Polak-Ribiere, with the exact step of the linear model).

    .. math::

        \eta^t = g^t + \beta_t P_T \eta^{t-1}, \quad
        X^{t+1} = H_r(X^t + \alpha_t \eta^t), \quad
        \alpha_t = \langle g^t, \eta^t \rangle / \|\mathcal{A}(\eta^t)\|^2

    with :math:`g = P_T \mathcal{A}^*(y - \mathcal{A}(X))`. Nothing of the size dof x dof is made.

    Notes
    -----
    A step costs two passes: one along the direction, one for the next gradient.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
    >>> X_true = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    >>> lt.recover(A, A.forward(X_true), rank=(1, 2, 2), solver=RCG()).success
    True
    """

    patience: ClassVar[tuple[int, float]] = (15, 0.3)  # slow where conditioning is bad

    @property
    def steps_per_epoch(self) -> int:
        """One: a step reads all the rows."""
        return 1

    def residual(self, problem: Problem, state: State) -> Array:
        """Residual, which the last step measured."""
        return super().residual(problem, state) if state.model is None else state.model.residual

    def _look(self, problem: Problem, state: State) -> State:
        X, passes = state.X, state.passes + 1
        search = self._measured(problem, X)
        if state.carry is not None:  # a run that goes on keeps its direction
            search = search._replace(direction=shifted(state.carry, search.unit))
        return replace(state, X=X, model=search, carry=search.carried, passes=passes)

    def _measured(self, problem: Problem, X: TuckerTensor) -> _Search:
        """Steepest descent at X. One pass."""
        T = TangentSpace(X)
        residual, g = problem.A.tangent(T).misfit(problem.y, problem.weights)
        g = g / problem.count
        return _Search(T, residual, g, g)

    def advance(self, problem: Problem, state: State) -> State:
        """One step along the direction, and the next direction."""
        old = state.model
        seen = problem.measured_norm(old.T.tensor(old.direction))
        curvature = float(seen) * float(seen) / float(problem.count)
        length = dot(old.gradient, old.direction) / curvature if curvature > 0 else 0.0
        step = old.direction * length
        if not all_finite(step):
            return blown_up(state)
        new = self._measured(problem, old.T.retract(step))
        before = new.T.coordinates(old.T.tensor(old.gradient))
        moved = new.T.coordinates(old.T.tensor(old.direction))
        size = dot(old.gradient, old.gradient)
        beta = max(0.0, dot(new.gradient, new.gradient - before) / size) if size > 0 else 0.0
        mixed = new.gradient + beta * moved
        if dot(mixed, new.gradient) > 0:
            new = new._replace(direction=mixed)
        passes = state.passes + 2
        return replace(state, X=new.T.X, t=state.t + 1, model=new, carry=new.carried, passes=passes)
