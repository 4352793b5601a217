"""StoTIHT: stochastic iterative hard thresholding, Algorithm 1 of the paper."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

from lowtucker._arrays import Array, like, namespace, per_trial
from lowtucker._random import Seed, as_seed
from lowtucker.blocks import BlockSampler, Draw, Partition
from lowtucker.problem import Problem
from lowtucker.solvers.base import Solver, State
from lowtucker.solvers.start import as_start
from lowtucker.tensor.products import multi_mode_product, norm
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding import HOSVD, Thresholding

__all__ = ["StoTIHT"]

# The automatic step's guard (see `_judge`): after a step that did harm the damping is multiplied by
# CUT, after any other by GROW, up to 1.
HARM, CUT, GROW = 4.5, 0.5, 1.1


@dataclass(frozen=True, repr=False)
class StoTIHT(Solver):
    r"""Stochastic tensor iterative hard thresholding, Algorithm 1.

    A step draws a block :math:`i` with probability :math:`p(i)`, equations (4.3) and (3.5):

    .. math::

        \tilde X^t &= X^t - \frac{\mu}{M p(i)} \nabla f_i(X^t) \\
        X^{t+1} &= H_r(\tilde X^t)

    Parameters
    ----------
    block_size : int, optional
        b. Chosen from m and the degrees of freedom unless given.
    step : float or "auto"
        :math:`\mu`, which multiplies the mean gradient (with its 1/b). With rows of variance 1 a
        good step is below 1. "auto" is an exact line search along the block's gradient,
        projected onto the space of the current factors, times a damping that falls whenever a
        step did harm, so that it cannot blow up. The published experiments use another
        convention: :math:`\mu_{paper} b` is the step here.
    p : None, "norms" or M numbers
        Probabilities of the blocks; see :class:`lowtucker.Partition`.
    sampler : BlockSampler, optional
        How blocks are drawn, in place of ``block_size`` and ``p``.
    thresholding : Thresholding, or a class of them, optional
        :math:`H_r`; the truncated HOSVD at the rank of the call unless given.

    Notes
    -----
    A step costs one reading of b rows (two with ``step="auto"``), and an HOSVD of the full
    tensor: :math:`O(N \sum n_k)` flops, a few N-vectors of memory. Nothing of the size of A.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
    >>> X_true = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    >>> result = lt.recover(A, A.forward(X_true), rank=(1, 2, 2), solver=StoTIHT(block_size=60))
    >>> result.success
    True
    """

    block_size: int | None = None
    step: float | Literal["auto"] = "auto"
    p: Any = None
    sampler: BlockSampler | None = None
    thresholding: Any = None
    _sampler: Any = field(default=None, init=False, repr=False, compare=False)
    _threshold: Any = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings."""
        check_step(self.step)
        if self.sampler is not None:
            if not isinstance(self.sampler, BlockSampler):
                raise TypeError(
                    f"sampler must be a BlockSampler, got {type(self.sampler).__name__}. "
                    "Try lowtucker.Partition(block_size)."
                )
            if self.block_size is not None or self.p is not None:
                raise ValueError("Give block_size and p to the sampler, not beside it.")
        elif self.block_size is not None:
            Partition(self.block_size, self.p)

    def bind(self, problem: Problem, rank: tuple[int, ...] | None) -> Self:
        """Settle the thresholding and the blocks for a problem."""
        bound = replace(self)
        threshold = settle_thresholding(self.thresholding, rank, problem)
        sampler = self._settle_sampler(problem, threshold.rank)
        object.__setattr__(bound, "_threshold", threshold)
        object.__setattr__(bound, "_sampler", sampler.bind(problem))
        return bound

    def _settle_sampler(self, problem: Problem, rank: tuple[int, ...]) -> BlockSampler:
        if self.sampler is not None:
            return self.sampler
        b = self.block_size
        return Partition(default_block_size(problem, rank) if b is None else b, self.p)

    def __repr__(self) -> str:
        """Settings that were given, and those that were chosen for a problem."""
        given = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.init and getattr(self, f.name) != f.default
        }
        chosen: dict[str, Any] = {"step": self.step}
        if self._sampler is not None and "sampler" not in given and self._sampler.n_blocks > 1:
            chosen["block_size"] = self._sampler.block_size
        text = ", ".join(f"{name}={value!r}" for name, value in (chosen | given).items())
        return f"{type(self).__name__}({text})"

    @property
    def steps_per_epoch(self) -> int:
        """As many steps as there are blocks."""
        return int(self._sampler.steps_per_epoch)

    def init(self, problem: Problem, start: Any, seed: Seed) -> State:
        """State at the start, with the gradient of the first block."""
        number, first = as_seed(seed)
        if isinstance(start, State):
            t, number, trials, passes = start.t, start.seed, start.trials, start.passes
            X, damping, level = start.X, start.damping, start.level
        else:
            X = as_start(start, problem, self._threshold)
            trials = tuple(range(first, first + math.prod(problem.batch_shape)))
            t, passes = 0, 0.0
            damping = namespace(X.core).ones_like(X.norm())
            level = damping
        state = State(X, t, number, trials, passes, damping < 0, damping, level, X.core, X.core)
        return self._look(problem, state, X)

    def advance(self, problem: Problem, state: State) -> State:
        """One step of Algorithm 1."""
        draw = self._draw(state)
        if self.step == "auto":
            block = problem.trusted_block(draw.rows)
            size = state.damping * normalised_step(block, state, self._threshold)
            passes = block.m / problem.m
        else:
            size, passes = self.step * like_weight(draw, state), 0.0
        Z = state.X.full() - per_trial(size, state.gradient) * state.gradient  # (4.3)
        X, diverged = guarded(self._threshold, Z, state)  # (3.5)
        moved = replace(state, t=state.t + 1, passes=state.passes + passes, diverged=diverged)
        return self._look(problem, moved, X)

    def residual(self, problem: Problem, state: State) -> Array:
        """Residual of all measurements: at hand when there is one block."""
        if state.residual.shape[-1] == problem.m and self._sampler.block_size == problem.m:
            return state.residual
        return super().residual(problem, state)

    def _draw(self, state: State) -> Draw:
        if state.X.batch_shape:
            draw: Draw = self._sampler.draw(state.t, state.seed, state.trials)
            # one block for all: a stack of matrices needs no list of views
            return replace(draw, rows=slice(None)) if self._sampler.n_blocks == 1 else draw
        alone: Draw = self._sampler.draw(state.t, (state.seed, state.trials[0]))
        return alone

    def _look(self, problem: Problem, state: State, X: TuckerTensor) -> State:
        """Residual and gradient of the next block, and what they say of the last step."""
        block = problem.trusted_block(self._draw(state).rows)
        new = _measure(problem, block, replace(state, X=X))
        return new if self.step != "auto" else _judge(problem, block, new)


def _measure(problem: Problem, block: Problem, state: State) -> State:
    residual, gradient = block.residual_and_gradient(state.X.full())
    passes = state.passes + block.m / problem.m
    return replace(state, residual=residual, gradient=gradient, passes=passes)


def _judge(problem: Problem, block: Problem, state: State) -> State:
    r"""Guard of the automatic step: what a fresh block says of the last one.

    A step did harm when the relative residual of the next block, before that block's own step,
    exceeds the running mean by a factor of :math:`1 + 4.5 \sqrt{(1 - b/m)/b}`: six standard
    deviations of the norm of b out of m Gaussian numbers; with one block, any growth at all.
    Then later steps are damped. An iterate that is worse than zero by that factor is thrown
    away: the trial starts again from zero with shorter steps. So no residual can run away.
    """
    xp = namespace(state.damping)
    scale = norm(problem.y, batch_ndim=problem.y.ndim - 1)
    scale = xp.where(scale > 0, scale, xp.ones_like(scale))
    mean_square = (norm(state.residual, batch_ndim=state.residual.ndim - 1) / scale) ** 2
    seen = xp.sqrt(mean_square * problem.m / block.count)
    much = 1 + HARM * math.sqrt((1 - block.m / problem.m) / block.m)
    one = xp.ones_like(seen)
    harm = seen > much * xp.minimum(state.level, one)
    damping = xp.where(harm, CUT * state.damping, xp.minimum(GROW * state.damping, one))
    share = block.m / problem.m
    level = (1 - share) * state.level + share * seen
    state = replace(state, damping=damping, level=level)
    worse_than_zero = seen > much
    if state.t == 0 or not bool(xp.any(worse_than_zero)):
        return state
    keep = xp.astype(~worse_than_zero, damping.dtype)
    state = replace(state, X=state.X * keep, level=xp.where(worse_than_zero, one, level))
    return _measure(problem, block, state)


def default_block_size(problem: Problem, rank: tuple[int, ...]) -> int:
    """Choose b: blocks of equal size, about two degrees of freedom, at least two of them.

    On Gaussian problems of 1.2 to 16 measurements per degree of freedom (5x5x6 and 30x30x30)
    blocks of 1.5 to 2.5 degrees of freedom needed the fewest epochs, and one block alone failed
    most often.
    """
    dof = degrees_of_freedom(problem.shape, attainable_rank(rank))
    return math.ceil(problem.m / max(2, round(problem.m / (2 * dof))))


def normalised_step(block: Problem, state: State, thresholding: Thresholding) -> Array:
    r"""Exact line search on the gradient projected onto the current factors' space.

    .. math:: \|P g\|^2 / \big(\tfrac1b \sum_j w_j \langle A_j, P g \rangle^2\big), \quad
        P = \bigotimes_k U_k U_k^*

    Small blocks leave noise in the unfoldings of the gradient: for Gaussian rows of spectral
    norm :math:`\sqrt{\nu} = (\sqrt{n_k} + \sqrt{N/n_k}) / \sqrt b` times the error. The step is
    divided by :math:`\nu/2` where that exceeds 1; without it blocks of a few rows diverge.

    One reading of the block's rows. Where X is zero the factors are those of the gradient.
    """
    xp = namespace(state.gradient)
    X = state.X
    zero = X.norm() == 0
    factors = X.factors
    if bool(xp.any(zero)):
        fresh = thresholding(state.gradient).factors
        pairs = zip(fresh, X.factors, strict=True)
        factors = tuple(xp.where(per_trial(zero, U), V, U) for V, U in pairs)
    core = multi_mode_product(state.gradient, factors, transpose=True)
    direction = TuckerTensor.trusted(core, factors)
    seen = block.cost_of(block.A.forward(direction)) * 2 / block.count
    length = direction.norm() ** 2
    ok = (seen > 0) & xp.isfinite(seen)
    search = xp.where(ok, length / xp.where(ok, seen, xp.ones_like(seen)), xp.zeros_like(seen))
    total = math.prod(X.shape)
    noise = max((math.sqrt(n) + math.sqrt(total / n)) ** 2 for n in X.shape) / block.m
    return search / max(1.0, noise / 2)


def guarded(thresholding: Thresholding, Z: Array, state: State) -> tuple[TuckerTensor, Array]:
    """Threshold, but keep a trial at its last iterate where Z is not finite."""
    xp = namespace(Z)
    axes = tuple(range(len(state.X.batch_shape), Z.ndim))
    broken = ~xp.isfinite(xp.sum(xp.abs(Z), axis=axes)) | state.diverged
    if not bool(xp.any(broken)):
        return thresholding(Z), broken
    Z = xp.where(per_trial(broken, Z), state.X.full(), Z)
    X = thresholding(Z)
    parts = [
        xp.where(per_trial(broken, new), old, new)
        for old, new in zip((state.X.core, *state.X.factors), (X.core, *X.factors), strict=True)
    ]
    return TuckerTensor.trusted(parts[0], parts[1:]), broken


def like_weight(draw: Draw, state: State) -> Any:
    """Weight of a draw as an array of the iterate's kind."""
    if isinstance(draw.weight, float):
        return draw.weight
    damping = state.damping
    return like(draw.weight, damping, damping.dtype)


def settle_thresholding(given: Any, rank: tuple[int, ...] | None, problem: Problem) -> Thresholding:
    """Thresholding that the user gave, or the HOSVD at the rank of the call."""
    if given is None or isinstance(given, type):
        if rank is None:
            raise ValueError("rank is needed: give it to the call, or a thresholding that has one.")
        made: Thresholding = (HOSVD if given is None else given)(
            check_rank(rank, problem.shape, warn=False)
        )
        return made
    if not isinstance(given, Thresholding):
        raise TypeError(
            f"thresholding must be a Thresholding or a class of them, got {given!r}. "
            "Try lowtucker.HOSVD."
        )
    if rank is not None and tuple(given.rank) != tuple(rank):
        raise ValueError(
            f"rank = {tuple(rank)} is not the thresholding's, {given.rank}. Leave one of them out."
        )
    check_rank(given.rank, problem.shape, warn=False)
    return given


def check_step(step: Any) -> None:
    """Check a step size."""
    if isinstance(step, str):
        if step != "auto":
            raise ValueError(f'step must be a positive number or "auto", got {step!r}.')
    elif isinstance(step, bool) or not isinstance(step, numbers.Real):
        raise TypeError(f'step must be a positive number or "auto", got {step!r}.')
    elif not (math.isfinite(step) and float(step) > 0):
        raise ValueError(f'step must be a positive number or "auto", got {step!r}.')
