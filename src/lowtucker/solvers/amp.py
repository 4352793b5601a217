"""AMP: approximate message passing with shrinkage, for isotropic or orthogonal rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    conj,
    eps,
    is_complex,
    like,
    namespace,
    real,
    real_dtype,
    size,
    to_numpy,
)
from lowtucker._array.random import Seed, Stream, as_seed, counted, generator
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Memory, State
from lowtucker.solvers.shrinking import Shrinking
from lowtucker.solvers.start import adopt, first_state, start_tensor
from lowtucker.tensor.products import norm
from lowtucker.thresholding import ShrunkTensor
from lowtucker.thresholding.sure import sure_shrinkage

__all__ = ["AMP", "look_at_rows", "spread_of_rows"]

# Rows are orthogonal where A(A*(v)) is a multiple of v to this
ORTHOGONAL = 1e-3
# A run ends when the noise has not fallen by FALL for so many steps, or has grown so much
FALL, PATIENCE, GROWN = 0.01, 5, 4.0
# The divergence of a shrinkage is no larger than the number of entries; an estimate may be
LARGEST = 0.99
# Random tensors that give the size of the rows, where their norms are not at hand. Its relative
# error is (2 / (PROBES m))^(1/2); one of 5 % raised the error of a fit from 0.073 to 0.10
PROBES = 10


@dataclass(frozen=True)
class Messages(Memory):
    """What message passing remembers.

    Attributes
    ----------
    guess : array, shape (n_1, ..., n_d)
        The tensor that the next step begins at: X, or the extrapolated one for orthogonal rows.
    vector : array, shape (m,)
        What the next step takes back: the (weighted) residual with its Onsager term, or that of the
        extrapolated tensor.
    back : array, shape (n_1, ..., n_d)
        The adjoint of it.
    residual : array, shape (m,)
        Residual of X.
    lowest : array, shape ()
        Lowest variance of the noise in Z so far.
    since : array, shape ()
        Steps since it last fell.
    best, effective, left : arrays, shape (n_1, ..., n_d), () and (m,)
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


@dataclass(frozen=True)
class Rows:
    """What is known of the rows, beside A.

    Attributes
    ----------
    gain : float
        Weighted sum of the squared row norms, over N: A*A is about this times the identity.
    total : float
        Sum of the weights of all equations.
    orthogonal : bool
        Whether A(A*(v)) is a multiple of v.
    equal : bool
        Whether all weights are equal, or 0.
    spread : float
        Mean square of the eigenvalues of A A* over their squared mean, in units of that of i.i.d.
        rows, 1 + m/N: larger where rows are not isotropic.
    """

    gain: float
    total: float
    orthogonal: bool
    equal: bool
    spread: float

    def of_part(self, total: float) -> Rows:
        """Return what is known of a random part of the rows, by the sum of its weights."""
        return replace(self, gain=self.gain * total / self.total, total=total)

    def noise(self, vector: Array, shape: tuple[int, ...]) -> float:
        """Variance of the noise in Z that a vector leads to."""
        squares = float(to_numpy(norm(vector))) ** 2
        share = 1 - self.total / size(shape) if self.orthogonal else 1.0
        return squares / (self.gain * self.total) * max(share, 0.0)


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
    A step costs one pass over A (two with weights that differ) and a shrinkage,
    :math:`O(N \sum n_k)`. Memory: some 20 tensors. Before the first step, four passes (13 where row
    norms are not at hand) find out how large the rows are and whether they are orthogonal.

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
            return self._first(problem, start_tensor(start, problem), as_seed(seed))
        state = adopt(start, problem, None, Messages)
        pair = (state.seed, state.trials[0])
        if state.memory is None:  # of another solver
            fresh = self._first(problem, state.X.full(), pair)
            return replace(fresh, t=state.t, passes=state.passes)
        return replace(state, cache=self.rows or look_at_rows(problem, pair)[0])

    def _first(self, problem: Problem, full: Array, seed: tuple[int, int]) -> State:
        rows, passes = (self.rows, 0.0) if self.rows else look_at_rows(problem, seed)
        residual, back = _misfit(problem, full)
        zero, vector = _number(0.0, problem), _weighted(problem, residual)
        lowest = _number(np.inf, problem)
        memory = Messages(full, vector, back, residual, lowest, zero, full, zero, residual)
        state = first_state(ShrunkTensor(full, zero), memory, seed, passes + 1)
        return replace(state, cache=rows)

    def advance(self, bound: Bound, state: State) -> State:
        """One step; the last one returns to the best tensor."""
        problem, rows = bound.problem, state.cache
        passed = _passed(problem, rows, state)
        noise = rows.noise(passed.vector, problem.shape)
        finite = np.isfinite(noise)
        lowest, since = float(passed.lowest), float(passed.since) + 1
        if finite and noise < (1 - FALL) * lowest:
            since = 0.0
        elif not finite or noise > GROWN * lowest:
            since = float(PATIENCE)
        X = ShrunkTensor(passed.best, passed.effective)
        if not (finite and noise < lowest):
            old = state.memory
            passed = replace(passed, best=old.best, effective=old.effective, left=old.left)
        else:
            passed = replace(passed, lowest=_number(noise, problem))
        passed = replace(passed, since=_number(since, problem))
        read = 1 if rows.orthogonal or rows.equal else 2
        after = replace(state, X=X, t=state.t + 1, memory=passed, passes=state.passes + read)
        if not self.is_stuck(after):
            return after
        X = ShrunkTensor(passed.best, passed.effective)
        return replace(after, X=X, memory=replace(passed, residual=passed.left))

    def is_stuck(self, state: State) -> bool:
        """Whether the noise no longer falls, or all steps are used up."""
        if state.memory is None:
            return False
        since = float(to_numpy(state.memory.since).reshape(-1)[0])
        return since >= PATIENCE or state.t >= self.max_steps

    def residual(self, bound: Bound, state: State) -> Array:
        """Residual of X, which the messages give."""
        if state.memory is None:
            return super().residual(bound, state)
        return state.memory.residual


def _passed(problem: Problem, rows: Rows, state: State) -> Messages:
    """Messages after one step; ``best`` is the new tensor, with what belongs to it."""
    memory: Messages = state.memory
    N = size(problem.shape)
    Z = memory.guess + memory.back / rows.gain
    noise = max(rows.noise(memory.vector, problem.shape), _tiny(Z))
    X, divergence, _ = sure_shrinkage(Z, noise, _probe(problem, state))
    if rows.orthogonal:
        alpha = min(max(divergence / N, 0.0), LARGEST)
        guess = (X.tensor - alpha * Z) / (1 - alpha)
        ahead, back = _misfit(problem, guess)
        vector = _weighted(problem, ahead)
        # X lies between guess and Z, and A(Z) is known: A A* is a multiple of the identity
        left = (1 - N / rows.total) if rows.equal else _shares(problem) - N / rows.total
        residual = (1 - alpha) * ahead + alpha * left * memory.vector
    else:
        guess, onsager = X.tensor, divergence / rows.total
        residual, back = _misfit(problem, guess)
        before = _weighted(problem, memory.vector)
        vector = _weighted(problem, residual) + onsager * before
        back = back + onsager * (memory.back if rows.equal else problem.A.adjoint(before))
    return replace(
        memory, guess=guess, vector=vector, back=back, residual=residual,
        best=X.tensor, effective=X.effective, left=residual,
    )  # fmt: skip


def _shares(problem: Problem) -> Array:
    """Inverse weights; 0 for measurements that do not count."""
    xp, w = namespace(problem.y), problem.weights
    assert w is not None  # they differ
    return xp.where(w > 0, 1 / xp.where(w > 0, w, xp.ones_like(w)), xp.zeros_like(w))


def _misfit(problem: Problem, X: Array) -> tuple[Array, Array]:
    """Residual, and the adjoint of it with its weights. One pass; two where rows are on workers."""
    residual, back = problem.A.misfit(X, problem.y, problem.weights)
    return +residual, back  # numbers: a residual on the workers of a cluster is fetched


def look_at_rows(problem: Problem, seed: tuple[int, int]) -> tuple[Rows, float]:
    """Look at the rows, and count the passes."""
    parts = 2 if is_complex(problem.y) and not _is_complex_tensor(problem) else 1
    weights = np.ones(problem.m) if problem.weights is None else to_numpy(problem.weights)
    total, N = parts * float(np.sum(weights)), size(problem.shape)
    rng = generator(seed, Stream.PROBE)
    v = like(_normal(rng, (problem.m,), is_complex(problem.y)), problem.y, problem.y.dtype)
    back = problem.A.forward(problem.A.adjoint(v))
    ratio = float(to_numpy(_real_inner(v, back))) / float(to_numpy(_real_inner(v, v)))
    away = float(to_numpy(norm(back - ratio * v))) / (float(to_numpy(norm(back))) or 1.0)
    squares = (float(to_numpy(norm(back))) / (ratio * float(to_numpy(norm(v))) or 1.0)) ** 2
    spread = squares / (1 + parts * problem.m / N)
    equal = problem.weights is None or not np.any((weights > 0) & (weights < weights.max()))
    if away < ORTHOGONAL and total < N:
        return Rows(ratio * total / N, total, True, equal, spread), 2.0
    if problem.A.traits.has_fast_row_norms:
        norms = to_numpy(problem.A.row_norms())
        gain = float(np.sum(weights * norms**2)) / N
        return Rows(gain, total, False, equal, spread), 3.0
    dtype, shape = problem.tensor_dtype, problem.shape
    of_complex = _is_complex_tensor(problem)
    probes = [like(_normal(rng, shape, of_complex), problem.y, dtype) for _ in range(PROBES)]
    sizes = [float(to_numpy(problem.measured_norm(g))) ** 2 for g in probes]
    return Rows(float(np.mean(sizes)) / N, total, False, equal, spread), 2.0 + PROBES


def spread_of_rows(problem: Problem, seed: tuple[int, int]) -> float:
    """Spread of the eigenvalues of A A*, as in :class:`Rows`, of rows with their weights.

    By a random vector, and by ones: what all rows have in common is one eigenvalue, which a random
    vector may miss. Three passes.
    """
    xp, rng = namespace(problem.y), generator(seed, Stream.PROBE)
    v = like(_normal(rng, (problem.m,), is_complex(problem.y)), problem.y, problem.y.dtype)
    roots = like(np.ones(problem.m), problem.y, real_dtype(problem.y))
    roots = roots if problem.weights is None else xp.sqrt(problem.weights)
    v = xp.where(roots > 0, v, xp.zeros_like(v))
    back = roots * problem.A.forward(problem.A.adjoint(roots * v))
    sizes = [float(to_numpy(_real_inner(*pair))) for pair in ((v, v), (v, back), (back, back))]
    if not sizes[1] > 0:
        return 1.0
    spread = sizes[0] * sizes[2] / sizes[1] ** 2
    spread = spread / (1 + float(problem.equations) / size(problem.shape))
    ones = xp.astype(roots, problem.y.dtype)
    common = float(to_numpy(norm(problem.A.adjoint(roots * ones)))) ** 2
    count = float(to_numpy(_real_inner(ones, ones)))
    return max(spread, common / count / (sizes[1] / sizes[0]) / 2)  # it varies more


def _probe(problem: Problem, state: State) -> Array:
    """Random tensor of a step: a function of (seed, trial, t)."""
    rng = counted((state.seed, state.trials[0]), state.t)
    dtype = problem.tensor_dtype
    return like(_normal(rng, problem.shape, _is_complex_tensor(problem)), problem.y, dtype)


def _is_complex_tensor(problem: Problem) -> bool:
    """Whether X is complex."""
    return bool(namespace(problem.y).isdtype(problem.tensor_dtype, "complex floating"))


def _normal(rng: Any, shape: tuple[int, ...], is_complex: bool) -> Any:
    """Normal numbers of variance 1."""
    numbers = rng.standard_normal(shape)
    return (numbers + 1j * rng.standard_normal(shape)) / 2**0.5 if is_complex else numbers


def _real_inner(x: Array, y: Array) -> Array:
    return real(namespace(x).sum(conj(x) * y))


def _number(value: float, problem: Problem) -> Array:
    return like(np.asarray(value), problem.y, real_dtype(problem.y))


def _weighted(problem: Problem, v: Array) -> Array:
    return v if problem.weights is None else problem.weights * v


def _tiny(Z: Array) -> float:
    """Variance below rounding error: what is left where all noise is gone."""
    xp = namespace(Z)
    largest = float(to_numpy(xp.max(xp.abs(Z))))
    return (eps(Z) * largest) ** 2 + float(xp.finfo(real_dtype(Z)).smallest_normal)
