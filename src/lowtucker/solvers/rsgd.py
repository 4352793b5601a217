"""RSGD: stochastic Riemannian descent, by line searches or by least squares on blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from lowtucker._array import (
    Array,
    as_flag,
    as_integer,
    is_array,
    like,
    namespace,
    put,
    real_dtype,
    size,
    to_numpy,
)
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Memory, State
from lowtucker.solvers.manifold import ROWS, Level, Manifold, Starts, blown_up
from lowtucker.solvers.models import Model, damped_step, dot, finite_vectors, some_of
from lowtucker.solvers.sampling import Shuffled
from lowtucker.tensor.products import norm
from lowtucker.tensor.rank import degrees_of_freedom
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["RSGD"]

# Residual of a start above which an estimate is enough
FAR = 0.01
# Measurements per degree of freedom that are enough for a start: from 3.7 instead of 11, steps on
# 5 blocks rather than 4 lead to the tolerance (30x30x30, rank 3). And the fewest numbers in all
# rows for which that pays: a step costs more than the reading of a small matrix
ENOUGH, MANY = 3.5, 10**7


@dataclass(frozen=True)
class Blocks(Level):
    """Relative residual of the last block, before its step; and whether the epoch may end there.

    Attributes
    ----------
    done : array of bool
        Whether that was small enough: the rest of the epoch is left out.
    whole : array of bool
        Whether this epoch is not cut short, for the last one was, too early.
    """

    done: Any
    whole: Any


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
    A step reads its b rows once. At an epoch's end the residual is that of the last block, before
    its step, if b is 64 or more, until the tolerance seems to be reached; then, and where the run
    ends, one more pass measures it. Memory: b dof numbers, and dof^2 for least squares.

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
    _memory: ClassVar[type[Memory]] = Blocks

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

    def _first_memory(self, X: TuckerTensor, levels: Any) -> Memory:
        no = np.zeros(len(levels), dtype=bool)
        return Blocks(like(levels, X.core, real_dtype(X.core)), no, no)

    def _starts(
        self, bound: Bound, which: Sequence[tuple[int, int]], seeds: tuple[int, tuple[int, ...]]
    ) -> Starts:
        part = replace(bound, problem=_enough_rows(bound.problem, bound.rank))
        return super()._starts(part, which, seeds)

    def advance(self, bound: Bound, state: State) -> State:
        """One step on the next block; none for problems that have reached the tolerance."""
        sampler, memory = bound.sampler, state.memory
        assert sampler is not None
        done, whole = memory.done.copy(), memory.whole
        if state.t % sampler.steps_per_epoch == 0:
            done, whole = np.zeros_like(done), done
        going = np.flatnonzero(~done).tolist()
        if not going:
            return replace(state, t=state.t + 1)
        some = len(going) < len(done)
        part = state.select(going) if some else state
        X, level, model, broken = self._step(bound.select(going) if some else bound, part)
        levels = put(memory.level, np.asarray(going), level) if some else level
        tol = np.broadcast_to(bound.tol, done.shape)[going]
        done[going] = self._done(to_numpy(level), tol) & ~whole[going]
        state = replace(state, memory=Blocks(levels, done, whole))
        if len(done) == 1:  # for the error estimate, which one problem has
            state = replace(state, cache=model)
        if broken.any():
            mask = np.zeros(len(done), dtype=bool)
            mask[going] = broken
            state = blown_up(replace(state, t=state.t - 1), mask)
        X = state.X.put(going, X) if some else X
        return replace(state, X=X, t=state.t + 1)

    def _step(self, bound: Bound, state: State) -> tuple[TuckerTensor, Array, Model, Any]:
        """Next iterates, relative residuals of the blocks, the model, and which are not finite."""
        sampler: Any = bound.sampler
        seeds = (state.seed, state.trials) if bound.is_batch else ((state.seed, *state.trials),)
        block = bound.problem.trusted_block(sampler.draw(state.t, *seeds).rows)
        model = Model.at(block, state.X)
        level = block.relative(model.residual)  # of rows that the last steps have not seen
        if self.least_squares:
            strength = min(1.0, max(0.3, 2 / sampler.n_blocks))
            xi = damped_step(
                model.equations, strength * np.minimum(1.0, to_numpy(level)).astype(float) ** 2
            )
        else:
            xi = _by_line_search(model)
        broken = ~finite_vectors(xi)
        if not broken.any():
            return model.T.retract(xi), level, model, broken
        fine = np.flatnonzero(~broken).tolist()
        X = state.X
        if fine:
            X = X.put(fine, model.T.take(fine).retract(some_of(xi, fine)))
        return X, level, model, broken

    def _done(self, level: Any, tol: Any) -> Any:
        """Whether the tolerance seems to be reached.

        The last block had a residual below it before its own step; or a step by least squares,
        which about squares the residual, should have led there.
        """
        below = level <= tol
        return below | (2 * level * level <= tol) if self.least_squares else below

    def estimated_residual(self, bound: Bound, state: State) -> Any:
        """Residual of the last block before its step: one pass less.

        Of a start, that of the rows which settled its scale. Not where the tolerance seems to be
        reached, nor by few rows.
        """
        if state.t and bound.sampler.block_size < ROWS:  # type: ignore[union-attr]
            return None
        far = np.maximum(0.0 if state.t else FAR, 2 * np.asarray(bound.tol))
        level, done = to_numpy(state.memory.level).astype(float), state.memory.done
        known = ~done & (level > far) & (level < 1)
        return np.where(known, level, np.nan)


def _enough_rows(problem: Problem, rank: tuple[int, ...]) -> Problem:
    """Problem of every second row, every third, ... where these are enough for a start."""
    traits, dof = problem.A.traits, degrees_of_freedom(problem.shape, rank)
    step = problem.m // math.ceil(ENOUGH * dof)
    step = step if problem.m * size(problem.shape) >= MANY else 1
    uneven = problem.weights is not None or is_array(problem.count)
    if step < 2 or uneven or not (traits.isotropic and traits.row_separable):
        return problem
    return problem.trusted_block(slice(0, problem.m, step))


def _by_line_search(model: Model) -> Array:
    """Steps to the minimum of the model along its gradient."""
    g, xp = model.gradient, namespace(model.gradient)
    sizes = to_numpy(norm(g, batch_ndim=1))
    power = np.where(np.isfinite(sizes), np.frexp(np.where(np.isfinite(sizes), sizes, 0))[1], 0)
    # fourth powers of A must not overflow
    unit = g * like(np.ldexp(1.0, -power), g, real_dtype(g))[:, None]
    curvature = dot(unit, xp.matmul(model.equations.gram, unit[..., None])[..., 0])
    length = np.where(curvature > 0, dot(unit, unit) / np.where(curvature > 0, curvature, 1), 0.0)
    return g * like(length, g, real_dtype(g))[:, None]
