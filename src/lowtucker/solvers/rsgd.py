"""RSGD: stochastic Riemannian descent, by line searches or by least squares on blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lowtucker._array import all_finite, as_flag, as_integer, namespace
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, State
from lowtucker.solvers.manifold import Level, Manifold, Model, blown_up, damped_step, dot
from lowtucker.solvers.sampling import Shuffled
from lowtucker.tensor.products import exponent, norm, shifted
from lowtucker.tensor.rank import degrees_of_freedom

__all__ = ["RSGD"]


@dataclass(frozen=True, repr=False, kw_only=True)
class RSGD(Manifold):
    r"""Stochastic Riemannian descent: a block of rows a step, in shuffled order.

    With :math:`D_b` the tangent design of the block and :math:`r_b` its residual,

    .. math::

        g = D_b^* r_b, \quad \xi = \frac{\|g\|^2}{\|D_b g\|^2}\, g
        \quad \text{or, by least squares,} \quad
        (D_b^* D_b + \lambda \rho_b^2 s I)\, \xi = D_b^* r_b, \quad
        X^{t+1} = H_r(X^t + \xi)

    where :math:`\rho_b = \|r_b\| / \|y_b\|` and s is the mean of the diagonal of
    :math:`D_b^* D_b`. There is no step size.

    Parameters
    ----------
    block_size : int, optional
        b; by default about a fifth of the degrees of freedom, and 1.2 to 2.4 times as many for
        least squares.
    least_squares : bool
        Solve on the block rather than search along its gradient: fewest passes, and in need of
        isotropic rows (Gaussian, say).

    Notes
    -----
    A step reads its b rows once. Memory: b dof numbers, and dof^2 for least squares.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((10, 10, 10), m=600, seed=1)
    >>> X_true = lt.random_tucker((10, 10, 10), (2, 2, 2), seed=0)
    >>> result = lt.recover(A, A.forward(X_true), (2, 2, 2), solver=RSGD(least_squares=True))
    >>> result.success
    True
    """

    block_size: int | None = None
    least_squares: bool = False

    patience: ClassVar[tuple[int, float]] = (3, 0.2)

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.block_size is not None:
            as_integer(self.block_size, "block_size")
        as_flag(self.least_squares, "least_squares")

    def bind(self, problem: Problem, rank: tuple[int, ...] | None) -> Bound:
        """Settle rank and blocks."""
        bound = super().bind(problem, rank)
        b = self.block_size
        if b is None:
            dof = degrees_of_freedom(problem.shape, bound.rank)
            target = 1.2 * dof if self.least_squares else max(1.0, dof / 5)
            b = math.ceil(problem.m / max(1, math.floor(problem.m / target)))
        return replace(bound, sampler=Shuffled(b).bind(problem))

    def chosen(self, bound: Bound | None) -> dict[str, Any]:
        """Block size."""
        known = bound is not None and bound.sampler is not None
        return {"block_size": bound.sampler.block_size} if known else {}  # type: ignore[union-attr]

    def _by_gram(self, problem: Problem, rank: tuple[int, ...]) -> bool:
        return True

    def advance(self, bound: Bound, state: State) -> State:
        """One step on the next block."""
        problem, sampler = bound.problem, bound.sampler
        assert sampler is not None
        rows = sampler.draw(state.t, (state.seed, state.trials[0])).rows
        block = problem.trusted_block(rows)
        model = Model.at(block, state.X)
        T, equations = model
        level = block.relative(equations.residual)  # of rows that the last steps have not seen
        passes = state.passes + block.m / problem.m
        state = replace(state, memory=Level(level), cache=model, passes=passes)
        if self.least_squares:
            strength = min(1.0, max(0.3, 2 / sampler.n_blocks))
            xi = damped_step(equations, strength * min(1.0, float(level)) ** 2)
        else:
            g = equations.gradient
            unit = shifted(g, -exponent(norm(g)))  # fourth powers of A must not overflow
            curvature = dot(unit, namespace(g).matmul(equations.gram, unit))
            xi = g * (dot(unit, unit) / curvature if curvature > 0 else 0.0)
        if not all_finite(xi):
            return blown_up(state)
        return replace(state, X=T.retract(xi), t=state.t + 1)

    def initial_residual(self, state: State, tol: float) -> float | None:
        """Residual of the rows that settled the scale of a start: one pass less."""
        level = _number(state.memory.level)
        return level if state.t == 0 and max(0.01, 2 * tol) < level < 1 else None

    def epoch_done(self, state: State, tol: float) -> bool:
        """Whether the tolerance seems to be reached.

        The last block had a residual below it before its own step; or a step by least squares,
        which about squares the residual, should have led there.
        """
        level = _number(state.memory.level)
        return level <= tol or (self.least_squares and 2 * level * level <= tol)


def _number(level: Any) -> float:
    """Level of one problem, alone or as a batch of one."""
    return float(level[0] if level.ndim else level)
