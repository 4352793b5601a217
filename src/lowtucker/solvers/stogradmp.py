"""StoGradMP: stochastic gradient matching pursuit, for sparse tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowtucker._array import Array, like, namespace, size, to_numpy
from lowtucker._array.linalg import svd
from lowtucker._array.random import Seed, as_seed
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Cache, Memory, State
from lowtucker.solvers.iht import drawn
from lowtucker.solvers.models import dot
from lowtucker.solvers.sampling import BlockSampler
from lowtucker.solvers.start import adopt, as_start, first_state
from lowtucker.solvers.stotiht import DrawnBlocks
from lowtucker.thresholding import SparseTensor, Thresholding
from lowtucker.thresholding.sparse import Sparsity

__all__ = ["StoGradMP"]

# Epochs with one support and no fall of the residual after which it is stuck
SETTLED = 3
# Fall of the gradient, and steps, after which conjugate gradients end
FALL, STEPS = 1e-9, 100


@dataclass(frozen=True)
class Support(Memory):
    """What the pursuit remembers.

    Attributes
    ----------
    unchanged : array, shape (*batch,)
        Epochs since the support changed.
    """

    unchanged: Array


@dataclass(frozen=True)
class Identified(Cache):
    """The gradient of the block that is drawn next."""

    gradient: Array


@dataclass(frozen=True, repr=False, kw_only=True)
class StoGradMP(DrawnBlocks):
    r"""Stochastic gradient matching pursuit (Nguyen, Needell, Woolf 2017), and MStoGradMP.

    A step draws a block i and merges supports, fits, and prunes:

    .. math::

        \hat\Gamma &= \operatorname{supp} H_{2s}(\nabla f_i(X^t)) \cup \operatorname{supp} X^t \\
        B &= \arg\min \{ F(W) : \operatorname{supp} W \subseteq \hat\Gamma \} \\
        X^{t+1} &= H_s(B)

    For :class:`lowtucker.Sparse` and :class:`lowtucker.RowSparse`; the analogue for Tucker tensors
    is a Gauss-Newton step on a block, which :class:`lowtucker.RSGD` takes.

    Parameters
    ----------
    block_size, p, sampler, thresholding
        As for :class:`lowtucker.StoTIHT`.

    Notes
    -----
    A step costs a pass over b rows for the gradient, and the least-squares fit: where the matrix is
    in memory, its 3 s columns of the support are read (a share 3 s / N of a pass) and decomposed,
    :math:`O(m s^2)` flops, m x 3 s numbers of memory; otherwise up to 100 conjugate gradient steps
    of a pass each. The problems of a batch are fitted one by one.

    Examples
    --------
    >>> import lowtucker as lt, numpy as np
    >>> X = lt.Sparse(10)(np.random.default_rng(0).standard_normal((8, 8, 8))).full()
    >>> A = lt.gaussian((8, 8, 8), m=80, seed=1)
    >>> result = lt.recover(A, A.forward(X), lt.Sparse(10), solver=StoGradMP())
    >>> result.success, result.epochs < 6
    (True, True)
    """

    block_size: int | None = None
    p: Any = None
    sampler: BlockSampler | None = None
    thresholding: Any = None

    def _check(self, thresholding: Thresholding) -> None:
        if not isinstance(thresholding, Sparsity):
            raise ValueError(
                f"StoGradMP merges supports and needs a sparse format, got {thresholding!r}. Try "
                "lowtucker.Sparse(s) or RowSparse(s); for Tucker ranks lowtucker.RSGD()."
            )

    def init(self, bound: Bound, start: Any, seed: Seed) -> State:
        """State at the start, with the gradient of the first block."""
        problem = bound.problem
        if isinstance(start, State):
            state = adopt(start, problem, bound.rank, Support)
            state = state if state.memory is not None else replace(state, memory=_fresh(state.X))
        else:
            X = as_start(start, problem, bound.thresholding)
            state = first_state(X, _fresh(X), as_seed(seed))
        return self._look(bound, state)

    def advance(self, bound: Bound, state: State) -> State:
        """Merge, fit and prune."""
        H: Any = bound.thresholding
        gradient = state.cache.gradient
        xp = namespace(gradient)
        axes = tuple(range(len(state.X.batch_shape), gradient.ndim))
        broken = ~xp.isfinite(xp.sum(xp.abs(gradient), axis=axes)) | state.diverged
        if bool(xp.all(broken)):
            return replace(state, t=state.t + 1, diverged=broken)
        some = min(2 * H.rank, H.places(bound.problem.shape))
        picked = H.at_rank(some)(xp.where(xp.isfinite(gradient), gradient, 0 * gradient))
        X = H(_fitted(bound.problem, state.X, picked))
        X = state.X.where(broken, X)
        same = xp.all(X.places == state.X.places, axis=-1)
        epochs = state.memory.unchanged + 1 / bound.steps_per_epoch
        memory = Support(xp.where(same, epochs, 0 * epochs))
        after = replace(state, X=X, t=state.t + 1, diverged=broken, memory=memory)
        return self._look(bound, after)

    def is_stuck(self, state: State) -> Any:
        """Whether the support has settled: the next fits would be the same."""
        return to_numpy(state.memory.unchanged) >= SETTLED

    def _look(self, bound: Bound, state: State) -> State:
        block = bound.problem.trusted_block(drawn(bound, state).rows)
        return replace(state, cache=Identified(block.gradient(state.X.full())))


def _fresh(X: SparseTensor) -> Support:
    return Support(namespace(X.norm()).zeros_like(X.norm()))


def _fitted(problem: Problem, X: SparseTensor, picked: SparseTensor) -> Array:
    """Least-squares fit on the places of both, as a full tensor."""
    if not problem.batch_shape:
        return _fit(problem, X, picked)
    count = problem.batch_shape[0]
    one_by_one = [_fit(problem.trial(k), X.trial(k), picked.trial(k)) for k in range(count)]
    return namespace(*one_by_one).stack(one_by_one)


def _fit(problem: Problem, X: SparseTensor, picked: SparseTensor) -> Array:
    places = np.union1d(X.support(), picked.support())
    rows = problem.A.rows_in_memory()
    if rows is None:
        return _by_products(problem, X, places)
    grid = X.shape[: len(X.shape) - len(X.row)]
    chosen = rows[(slice(None), *np.unravel_index(places, grid))].reshape(problem.m, -1)
    w = np.ones(problem.m) if problem.weights is None else np.sqrt(to_numpy(problem.weights))
    D, y = w[:, None] * chosen, w * to_numpy(problem.y)
    dtype = np.dtype(problem.tensor_dtype)
    if dtype.kind != "c" and (D.dtype.kind == "c" or y.dtype.kind == "c"):
        D, y = np.concatenate([D.real, D.imag]), np.concatenate([y.real, y.imag])
    U, s, V = svd(D)
    inverse = np.where(s > max(D.shape) * np.finfo(s.dtype).eps * s[0], s, np.inf) ** -1
    values = V.conj().T @ (inverse * (U.conj().T @ y))
    fitted = SparseTensor(values.reshape(-1, *X.row).astype(dtype), places, X.shape)
    return fitted.full()


def _by_products(problem: Problem, X: SparseTensor, places: Any) -> Array:
    """Fit by conjugate gradients on tensors with these places.

    From zero, so that it is the smallest one where the fit is not unique: from X the support
    changed too seldom (6 columns of row sparsity 6 by 13 rows: 3 of 8 recovered, not 8 of 10).
    """
    xp, full = namespace(problem.y), 0 * X.full()
    grid = X.shape[: len(X.shape) - len(X.row)]
    marks = np.zeros((size(grid), *(1,) * len(X.row)))
    marks[places] = 1.0
    mask = like(marks.reshape(*grid, *marks.shape[1:]), full, X.norm().dtype)
    g = mask * problem.gradient(full)
    p, size_ = -g, _square(g)
    first = size_
    for _ in range(STEPS):
        if not size_ > FALL**2 * first:
            break
        seen, back = problem.A.misfit(p, xp.zeros_like(problem.y), problem.weights)
        curvature = float(problem.weighted_norm(seen)) ** 2 / problem.m
        if not curvature > 0:
            break
        length = size_ / curvature
        full = full + length * p
        g = g - length / problem.m * mask * back
        size_, before = _square(g), size_
        p = (size_ / before) * p - g
    return full


def _square(g: Array) -> float:
    flat = namespace(g).reshape(g, (-1,))
    return float(dot(flat, flat))
