"""AMP: approximate message passing with shrinkage, for isotropic or orthogonal rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lowtucker._array import Array, eps, like, namespace, per_trial, real_dtype, size, to_numpy
from lowtucker._array.random import Seed, as_seed, counted
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Memory, State
from lowtucker.solvers.rows import Rows, is_complex_tensor, look_at_rows, normal_numbers
from lowtucker.solvers.shrinking import Shrinking, host, kept_finite, numbers_of, of_each, spread
from lowtucker.solvers.start import adopt, first_state, start_tensor
from lowtucker.thresholding import ShrunkTensor
from lowtucker.thresholding.sure import sure_shrinkage

__all__ = ["AMP"]

# A run ends when the noise has not fallen by FALL for so many steps, or has grown so much
FALL, PATIENCE, GROWN = 0.01, 5, 4.0
# The divergence of a shrinkage is no larger than the number of entries; an estimate may be
LARGEST = 0.99


@dataclass(frozen=True)
class Messages(Memory):
    """What message passing remembers.

    Attributes
    ----------
    guess : array, shape (*batch, n_1, ..., n_d)
        The tensor that the next step begins at: X, or the extrapolated one for orthogonal rows.
    vector : array, shape (*batch, m)
        What the next step takes back: the (weighted) residual with its Onsager term, or that of the
        extrapolated tensor.
    back : array, shape (*batch, n_1, ..., n_d)
        The adjoint of it.
    residual : array, shape (*batch, m)
        Residual of X.
    lowest : array, shape (*batch,)
        Lowest variance of the noise in Z so far.
    since : array, shape (*batch,)
        Steps since it last fell.
    best, effective, left : arrays, shape (*batch, n_1, ..., n_d), (*batch,) and (*batch, m)
        The tensor of that step, its effective degrees of freedom, and its residual.
    """

    guess: Array
    vector: Array
    back: Array
    residual: Array
    lowest: Array
    since: Array
    best: Array
    effective: Array
    left: Array


@dataclass(frozen=True, repr=False, kw_only=True)
class AMP(Shrinking):
    r"""Approximate message passing: TIHT with a soft threshold and a memory. It needs no rank.

    For rows whose entries are i.i.d. of variance c, the gradient step from X has the error of X and
    white Gaussian noise of known variance, if the residual carries the Onsager term:

    .. math::

        Z^t &= X^t + \tfrac{1}{cm} A^*(r^t), \qquad \sigma_t^2 = \|r^t\|^2 / (c m^2) \\
        X^{t+1} &= S_t(Z^t) \\
        r^{t+1} &= y - A(X^{t+1}) + \tfrac1m \,\mathrm{div}\,S_t(Z^t)\, r^t

    The first two lines are (3.4) and (3.5) with the step 1 and a shrinkage in place of :math:`H_r`:
    at every step the combination of filters like those of :class:`lowtucker.Shrinkage` that
    minimises Stein's unbiased estimate of the risk. For orthogonal rows (subsampled orthogonal
    transforms) the message is a tensor, freed of what the denoiser has in common with its input:

    .. math::

        \hat X^{t+1} = \frac{S_t(Z^t) - \alpha Z^t}{1 - \alpha}, \quad \alpha = \mathrm{div}\,S_t/N,
        \quad Z^{t+1} = \hat X^{t+1} + \tfrac{1}{cm} A^*(y - A(\hat X^{t+1})).

    Where the noise stops falling, the run ends with the tensor of the least noise.

    Parameters
    ----------
    max_steps : int
        The most steps.
    rows : Rows, optional
        What is known of the rows already; one look at them finds it out.

    Notes
    -----
    A step costs one pass over A (two with weights other than 0 and 1) and a shrinkage,
    :math:`O(N \sum n_k)`. Memory: some 20 tensors. Before the first step, four passes (13 where row
    norms are not at hand) find out how large the rows are and whether they are orthogonal.

    A batch has some 8 tensors of each problem; its shrinkages are cut into pieces. Problems that
    share A share its passes. The overhead of Python is saved, which is most of the time up to some
    1000 entries.

    Examples
    --------
    >>> import lowtucker as lt
    >>> X_true = lt.random_tucker((12, 12, 12), (2, 2, 2), seed=0)
    >>> A = lt.gaussian((12, 12, 12), m=900, seed=1)
    >>> result = lt.recover(A, A.forward(X_true), solver=AMP())
    >>> lt.metrics.relative_error(result.X, X_true) < 0.01
    True
    """

    max_steps: int = 36
    rows: Rows | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings."""
        if not isinstance(self.max_steps, int) or self.max_steps < 1:
            raise ValueError(f"max_steps must be a positive integer, got {self.max_steps!r}.")

    def init(self, bound: Bound, start: Any, seed: Seed) -> State:
        """State at the start, after a look at the rows."""
        problem = bound.problem
        if not isinstance(start, State):
            number, first = as_seed(seed)
            trials = numbers_of(problem, first)
            return self._first(problem, start_tensor(start, problem), number, trials)
        state = adopt(start, problem, None, Messages)
        if state.memory is None:  # of another solver
            fresh = self._first(problem, state.X.full(), state.seed, state.trials)
            return replace(fresh, t=state.t)
        rows = self.rows or look_at_rows(problem, state.seed, state.trials)
        return replace(state, cache=rows)

    def _first(self, problem: Problem, full: Array, seed: int, trials: tuple[int, ...]) -> State:
        rows = self.rows or look_at_rows(problem, seed, trials)
        residual, back = _misfit(problem, full)
        zero, vector = spread(0.0, problem), _weighted(problem, residual)
        lowest = spread(np.inf, problem)
        memory = Messages(full, vector, back, residual, lowest, zero, full, zero, residual)
        state = first_state(ShrunkTensor(full, zero), memory, (seed, trials[0]))
        return replace(state, trials=trials, cache=rows)

    def advance(self, bound: Bound, state: State) -> State:
        """One step; the last one of a problem returns to its best tensor."""
        problem, rows, old = bound.problem, state.cache, state.memory
        passed, broken = _passed(problem, rows, state)
        noise = rows.noise(passed.vector, problem.shape)
        lowest, since = host(passed.lowest), host(passed.since) + 1
        finite = np.isfinite(noise)
        grown = ~finite | (noise > GROWN * lowest)
        falls = finite & (noise < (1 - FALL) * lowest)
        since = np.where(falls, 0.0, np.where(grown, float(PATIENCE), since))
        better = np.asarray(finite & (noise < lowest))
        X = ShrunkTensor(passed.best, passed.effective)
        best = X.where(better, ShrunkTensor(old.best, old.effective))
        passed = replace(
            passed,
            lowest=spread(np.where(better, noise, lowest), problem),
            since=spread(since, problem),
            best=best.tensor,
            effective=best.effective,
            left=_either(better, passed.left, old.left),
        )
        if problem.batch_shape:
            X = state.X.where(broken, X)
        after = replace(state, X=X, t=state.t + 1, memory=passed, diverged=broken)
        stuck = self.is_stuck(after)
        if not np.any(stuck):
            return after
        residual = _either(stuck, passed.left, passed.residual)
        return replace(after, X=best.where(stuck, X), memory=replace(passed, residual=residual))

    def is_stuck(self, state: State) -> Any:
        """Whether the noise no longer falls, or all steps are used up.

        A bool; for a batch one for each problem.
        """
        if state.memory is None:
            return False
        stuck = (to_numpy(state.memory.since) >= PATIENCE) | (state.t >= self.max_steps)
        return stuck if np.ndim(stuck) else bool(stuck)

    def residual(self, bound: Bound, state: State) -> Array:
        """Residual of X, which the messages give."""
        if state.memory is None:
            return super().residual(bound, state)
        return state.memory.residual


def _passed(problem: Problem, rows: Rows, state: State) -> tuple[Messages, Array]:
    """Messages after one step; ``best`` is the new tensor, with what belongs to it.

    And which problems of a batch have tensors that are not finite.
    """
    memory: Messages = state.memory
    N, broken = size(problem.shape), state.diverged

    def each(numbers: Any, x: Array) -> Any:
        return per_trial(spread(numbers, problem), x) if problem.batch_shape else numbers

    Z = memory.guess + memory.back / each(rows.gain, memory.back)
    if problem.batch_shape:
        Z, broken = kept_finite(Z, memory.best, broken)
    noise = host(np.maximum(rows.noise(memory.vector, problem.shape), _tiny(Z, problem)))
    X, divergence, _ = sure_shrinkage(Z, noise, _probe(problem, state))
    orthogonal = np.asarray(rows.orthogonal)
    # those of the other kind have the number 0: alpha leaves as it is what onsager changes
    alpha = host(np.where(orthogonal, np.clip(divergence / N, 0.0, LARGEST), 0.0))
    onsager = host(np.where(orthogonal, 0.0, divergence / rows.total))
    guess = X.tensor
    if orthogonal.any():
        guess = (guess - each(alpha, Z) * Z) / each(1 - alpha, Z)
    residual, back = _misfit(problem, guess)
    vector = _weighted(problem, residual)
    if orthogonal.any():
        # X lies between guess and Z, and A(Z) is known: A A* is a multiple of the identity
        left = 1.0 if np.all(rows.equal) else _shares(problem)
        left = left - each(N / rows.total, residual)
        residual = (
            each(1 - alpha, residual) * residual + each(alpha, residual) * left * memory.vector
        )
    if not orthogonal.all():
        before = _weighted(problem, memory.vector)
        vector = vector + each(onsager, vector) * before
        again = memory.back if np.all(rows.equal) else problem.A.adjoint(before)
        back = back + each(onsager, back) * again
    passed = replace(
        memory, guess=guess, vector=vector, back=back, residual=residual,
        best=X.tensor, effective=X.effective, left=residual,
    )  # fmt: skip
    return passed, broken


def _either(which: Any, one: Array, other: Array) -> Array:
    """One vector or the other, problem by problem."""
    return namespace(one).where(per_trial(like(np.asarray(which), one), one), one, other)


def _shares(problem: Problem) -> Array:
    """Inverse weights; 0 for measurements that do not count."""
    xp, w = namespace(problem.y), problem.weights
    assert w is not None  # they differ
    return xp.where(w > 0, 1 / xp.where(w > 0, w, xp.ones_like(w)), xp.zeros_like(w))


def _misfit(problem: Problem, X: Array) -> tuple[Array, Array]:
    """Residual, and the adjoint of it with its weights. One pass; two where rows are on workers."""
    residual, back = problem.A.misfit(X, problem.y, problem.weights)
    return +residual, back  # numbers: a residual on the workers of a cluster is fetched


def _probe(problem: Problem, state: State) -> Array:
    """Random tensors of a step: a function of (seed, trial, t)."""

    def normal(trial: int) -> Any:
        return normal_numbers(counted((state.seed, trial), state.t), problem.shape, of_complex)

    of_complex = is_complex_tensor(problem)
    return of_each(normal, problem, state.trials, problem.tensor_dtype)


def _weighted(problem: Problem, v: Array) -> Array:
    return v if problem.weights is None else problem.weights * v


def _tiny(Z: Array, problem: Problem) -> Any:
    """Variance below rounding error: what is left where all noise is gone."""
    xp = namespace(Z)
    largest = host(xp.max(xp.abs(Z), axis=tuple(range(len(problem.batch_shape), Z.ndim))))
    return (eps(Z) * largest) ** 2 + float(xp.finfo(real_dtype(Z)).smallest_normal)
