"""Step sizes of the iterative solvers: checking them, and choosing them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lowtucker._array import Array, as_number, namespace, size
from lowtucker.problem import Problem
from lowtucker.solvers.base import State
from lowtucker.thresholding.protocol import unfolded_noise

__all__ = ["check_step", "judge", "normalised_step"]

# The automatic step's guard (see `judge`): after a step that did harm the damping is multiplied by
# CUT, after any other by GROW, up to 1.
HARM, CUT, GROW = 4.5, 0.5, 1.1
# Longest step on sampled entries, in units of that on a tensor with entries of one size, N
SPREAD = 4.0


def check_step(step: Any) -> None:
    """Check a step size."""
    if isinstance(step, str):
        if step != "auto":
            raise ValueError(f'step must be a positive number or "auto", got {step!r}.')
    else:
        as_number(step, "step", positive=True)


def normalised_step(block: Problem, state: State, thresholding: Any) -> Array:
    r"""Exact line search on the gradient projected onto the current factors' space.

    .. math:: \|P g\|^2 / \big(\tfrac1b \sum_j w_j \langle A_j, P g \rangle^2\big), \quad
        P = \bigotimes_k U_k U_k^*

    Small blocks leave noise in the gradient: of Tucker tensors, for Gaussian rows, of spectral
    norm :math:`\sqrt{\nu} = (\sqrt{n_k} + \sqrt{N/n_k}) / \sqrt b` times the error (see
    :meth:`lowtucker.Thresholding.noise_gain`). The step is divided by :math:`\nu/2` where that
    exceeds 1; without it blocks of a few rows diverge.

    One pass over the block's rows. Where X is zero the factors are those of the gradient.
    """
    X, gradient = state.X, state.cache.gradient
    xp = namespace(gradient)
    zero = X.norm() == 0
    space = X
    if bool(xp.any(zero)):
        finite = xp.where(xp.isfinite(gradient), gradient, 0 * state.cache.full)
        space = thresholding(finite).where(zero, X)
    direction = space.project(gradient)
    # norms, squared last: the squares of small numbers vanish, and those of large ones overflow
    seen, length = block.measured_norm(direction), direction.norm()
    ok = (seen > 0) & xp.isfinite(seen)
    one = xp.ones_like(seen)
    search = block.count * xp.where(ok, length / xp.where(ok, seen, one), 0 * one) ** 2
    gain = thresholding.noise_gain(X.shape)
    samples = block.A.entry_samples()
    if samples is not None:
        # where a block of entries sees next to nothing of P g there is no telling how long the step
        # may be; and noise has heavier tails: tensor trains of order 6 blew up
        search = xp.minimum(search, SPREAD * size(X.shape) / _mean_square(block, samples[1]))
        gain = max(gain, unfolded_noise(X.shape))
    return search / xp.maximum(one, one * (gain / 2) / block.count)


def _mean_square(block: Problem, factors: Array | None) -> Array:
    """Mean squared norm of the rows of sampled entries, with their weights."""
    xp = namespace(block.y)
    one = xp.ones_like(xp.abs(block.y[..., :1])) if factors is None else xp.abs(factors) ** 2
    weighted = one if block.weights is None else one * block.weights
    mean = xp.mean(weighted, axis=-1)
    return xp.where(mean > 0, mean, xp.ones_like(mean))


def judge(problem: Problem, block: Problem, state: State) -> tuple[State, Array]:
    r"""Guard the automatic step: judge the last step by a fresh block.

    A step did harm when the relative residual of the next block, before that block's own step,
    exceeds the running mean by a factor of :math:`1 + 4.5 \sqrt{(1 - b/m)/b}`: six standard
    deviations of the norm of b out of m Gaussian numbers; with one block, any growth at all.
    Later steps are then damped. An iterate that is worse than zero by that factor is discarded: the
    run restarts from zero with shorter steps. So no residual can run away.

    Returns
    -------
    state : State
        With the damping and the running mean brought up to date.
    worse_than_zero : bool array, shape (*batch,)
    """
    damping, level = state.memory.damping, state.memory.level
    xp = namespace(damping)
    one = xp.ones_like(damping)
    scale = xp.where(problem.y_norm > 0, problem.y_norm, one)
    share = one * block.count / problem.count
    seen = block.weighted_norm(state.cache.residual) / scale / share**0.5
    much = 1 + HARM * ((1 - share) / block.count) ** 0.5
    # before the first step nothing did harm: with one block, rounding of ||y|| / ||y|| would decide
    harm = (seen > much * xp.minimum(level, one)) & (state.t > 0)
    damping = xp.where(harm, CUT * damping, xp.minimum(GROW * damping, one))
    worse_than_zero = (seen > much) & (state.t > 0)
    level = xp.where(worse_than_zero, one, (1 - share) * level + share * seen)
    memory = replace(state.memory, damping=damping, level=level)
    return replace(state, memory=memory), worse_than_zero
