r"""NuclearNorm: convex recovery by nuclear norms of unfoldings, with a certificate of optimality."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from lowtucker._array import (
    Array,
    adjoint,
    as_number,
    conj,
    eps,
    like,
    namespace,
    per_trial,
    real,
    real_dtype,
    reshaped,
    size,
    to_numpy,
)
from lowtucker._array.clock import check_time
from lowtucker._array.linalg import eigh, svdvals
from lowtucker._array.random import Seed, as_seed
from lowtucker.problem import Problem
from lowtucker.solvers.ball import (
    GRAM,
    Ball,
    adjoint_of,
    measured,
    short_vector,
    weighted,
    weighted_data,
)
from lowtucker.solvers.base import TENSORS, VECTORS, Bound, Memory, State
from lowtucker.solvers.shrinking import Shrinking
from lowtucker.solvers.start import adopt, first_state, start_tensor
from lowtucker.status import Finding
from lowtucker.tensor.products import norm
from lowtucker.tensor.rank import attainable_rank, degrees_of_freedom
from lowtucker.thresholding import ShrunkTensor

__all__ = ["Certificate", "NuclearNorm"]

NumPyArray = np.ndarray[Any, Any]
# Iterations of an epoch, after which the gap is computed
INNER = 10
# Over-relaxation of an iteration; between 0 and 2
RELAXATION = 1.6
# First threshold, in units of the norm of the smallest tensor that fits
FIRST = 0.1
# Epochs in which the threshold is balanced, and its largest change in one
BALANCED, CHANGE = 40, 2.0
# Tolerances up to which measurements are exact: small balls make for slow convergence
EXACT = 1e-5
# Share of the tolerance, and rounding errors, that X leaves: they must not decide whether it fits
SAFE, ROUNDING = 1e-9, 20


@dataclass(frozen=True)
class Splitting(Memory):
    """What the splitting remembers, in units of :class:`lowtucker.solvers.ball.Ball`.

    Attributes
    ----------
    points : array, shape (*batch, K, n_1, ..., n_d)
        What is shrunk next, for each unfolding.
    threshold : array, shape (*batch,)
        By how much its singular values are shrunk: the inverse of the penalty.
    dual : array, shape (*batch,)
        Largest lower bound on the minimum so far.
    gap : array, shape (*batch,)
        Relative duality gap of X.
    """

    points: Array
    threshold: Array
    dual: Array
    gap: Array


class Certificate(NamedTuple):
    r"""Proof that no tensor that fits as well has a much smaller sum of nuclear norms.

    Attributes
    ----------
    primal : array, shape (*batch,)
        Sum of the nuclear norms of X.
    dual : array, shape (*batch,)
        Lower bound on that of any tensor whose residual is no larger:
        :math:`\mathrm{Re} \langle \lambda, y \rangle - \|y - A(X)\|_W \|W^{-1/2} \lambda\|`.
    gap : array, shape (*batch,)
        (primal - dual) / primal.
    multiplier : array, shape (*batch, m)
        :math:`\lambda`.
    parts : tuple of arrays, shape (*batch, n_1, ..., n_d)
        Tensors :math:`V_k` whose unfoldings have spectral norms of at most 1, and
        :math:`\sum_k V_k = A^*(\lambda)`.
    """

    primal: Array
    dual: Array
    gap: Array
    multiplier: Array
    parts: tuple[Array, ...]


@dataclass(frozen=True, repr=False, kw_only=True)
class NuclearNorm(Shrinking):
    r"""Convex recovery: the smallest sum of nuclear norms among all tensors that fit. No rank.

    .. math::

        \min_X \sum_k \|X_{(k)}\|_* \quad \text{subject to} \quad \|A(X) - y\|_W \le \epsilon \|y\|_W

    over all unfoldings (the sum of nuclear norms of Gandy, Recht and Yamada), or for one, such as
    the near-square one of Mu, Huang, Wright and Goldfarb. :math:`\epsilon` is the residual at which
    the call ends: ``tol``, or the noise floor where ``noise_std`` is given; 0 where that is at most
    1e-5. A baseline: these norms
    need more measurements than the degrees of freedom, :math:`O(r n^{d-1})` of them for the sum and
    :math:`O(r^{d/2} n^{d/2})` for the square one.

    Alternating directions (ADMM, as Douglas-Rachford splitting) with one copy
    :math:`Z_k` of X for each of K unfoldings, singular value shrinkage :math:`S_\tau` and the
    projection P onto the tensors that fit:

    .. math::

        Z_k = S_\tau(W_k), \qquad X = P\Big(\tfrac1K \sum_k (2 Z_k - W_k)\Big), \qquad
        W_k \leftarrow W_k + \theta (X - Z_k)

    The threshold :math:`\tau` balances the primal and the dual residual in the first epochs. The
    multipliers :math:`V_k = (W_k - Z_k) / \tau` have spectral norms of at most 1. After every epoch
    the part of their sum that is no :math:`A^*(\lambda)` is subtracted from them in equal parts, and
    all are divided by the largest spectral norm: then

    .. math:: \mathrm{Re} \langle \lambda, y \rangle - \epsilon \|y\|_W \|W^{-1/2} \lambda\|
              \le \min_X \sum_k \|X_{(k)}\|_*

    is a proven bound, and so is the gap between it and the sum of nuclear norms of X.

    Parameters
    ----------
    unfolding : None, "square", int or tuple of int
        None: all unfoldings, one for each mode (for matrices the one there is). "square": one
        matrix whose rows are the modes that make it nearest to square, by trying all subsets. A
        mode, or a tuple of modes: these are the rows of the one matrix.
    gap : float
        Relative duality gap at which the run ends.

    Notes
    -----
    Until the gap is reached, the iterate is the tensor that fits, multiplied by the bound over its
    sum of nuclear norms: it has less of them than any tensor that fits, so that its residual is
    above the tolerance (it is the gap, where the tolerance is small), and no stopping rule ends the
    run before the minimum is certified. A finding of the kind "duality gap" has the number.

    An epoch is ten iterations and a bound. An iteration costs two passes over A and K
    eigendecompositions, :math:`O(N \sum_k n_k)`. The projection divides by :math:`A A^*`: a number
    for orthogonal rows, the weights for sampled entries; up to 3000 measurements of other kinds
    its eigendecomposition is computed once, beyond that (and for complex measurements of real
    tensors) Lanczos steps of two passes each, 10 to 40 in an iteration, take its place.
    Memory: some 6 K + 4 tensors, and m^2 numbers where there is a decomposition.

    Examples
    --------
    >>> import lowtucker as lt
    >>> X_true = lt.random_tucker((6, 6, 6), (1, 1, 1), seed=0)
    >>> A = lt.gaussian((6, 6, 6), m=120, seed=1)
    >>> result = lt.recover(A, A.forward(X_true), solver=NuclearNorm())
    >>> result.status.name, lt.metrics.relative_error(result.X, X_true) < 1e-3
    ('CONVERGED', True)
    >>> [finding.numbers["gap"] < 1e-4 for finding in result.findings]
    [True]
    """

    batch_first: ClassVar[bool] = True

    unfolding: Literal["square"] | int | tuple[int, ...] | None = None
    gap: float = 1e-4

    def __post_init__(self) -> None:
        """Check the settings."""
        if as_number(self.gap, "gap", positive=True) >= 1:
            raise ValueError(f"gap is relative and must be below 1, got {self.gap:g}. Try 1e-4.")
        if self.unfolding is None or self.unfolding == "square":
            return
        modes = self.unfolding if isinstance(self.unfolding, tuple) else (self.unfolding,)
        whole = all(isinstance(k, int) and not isinstance(k, bool) for k in modes)
        if not whole or not modes or len(set(modes)) < len(modes):
            raise ValueError(
                'unfolding must be None, "square", a mode or a tuple of different modes, got '
                f'{self.unfolding!r:.80}. Try unfolding="square".'
            )

    def unfoldings(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the modes that are the rows of each unfolding, for tensors of a shape.

        Examples
        --------
        >>> NuclearNorm().unfoldings((4, 5, 6))
        ((0,), (1,), (2,))
        >>> NuclearNorm(unfolding="square").unfoldings((4, 5, 6, 7))
        ((0, 3),)
        """
        modes = range(len(shape))
        if self.unfolding is None:
            return tuple((k,) for k in (modes if len(shape) != 2 else (0,)))
        if self.unfolding == "square":
            return (_nearest_to_square(shape),)
        rows = self.unfolding if isinstance(self.unfolding, tuple) else (self.unfolding,)
        if not all(k in modes for k in rows):
            raise ValueError(
                f"unfolding = {self.unfolding!r} must have modes from 0 to {len(shape) - 1}, those "
                f'of a tensor of shape {shape}. Try unfolding="square".'
            )
        return (rows,)  # type: ignore[return-value]

    def bind(self, problem: Problem, rank: tuple[int, ...] | None) -> Bound:
        """Check that there is no rank, and that there are the modes."""
        self.unfoldings(problem.shape)
        return super().bind(problem, rank)

    def init(self, bound: Bound, start: Any, seed: Seed) -> State:
        """State at the start, after a look at the rows."""
        problem, ball = bound.problem, Ball.of(bound.problem)
        if isinstance(start, State):
            state = adopt(start, problem, None, Splitting)
        else:
            zero = like(np.zeros(problem.batch_shape), problem.y, real_dtype(problem.y))
            X = ShrunkTensor(start_tensor(start, problem), zero)
            state = first_state(X, None, as_seed(seed))
        state = state if problem.batch_shape else state.batched()
        memory = state.memory or self._fresh(problem, ball, state.X)
        return replace(state, memory=memory, cache=ball)

    def _fresh(self, problem: Problem, ball: Ball, X: ShrunkTensor) -> Splitting:
        """Splitting that begins at X."""
        xp, one = namespace(X.tensor), namespace(ball.unit).ones_like(ball.unit)
        copies = [X.tensor / per_trial(ball.unit, X.tensor)] * len(self.unfoldings(problem.shape))
        return Splitting(xp.stack(copies, axis=1), FIRST * one, 0 * one, one)

    def advance(self, bound: Bound, state: State) -> State:
        """Iterations of an epoch, and the bound that they prove."""
        problem, ball, memory = bound.problem, state.cache, state.memory
        xp, splits = namespace(problem.y), self.unfoldings(problem.shape)
        y = weighted_data(problem, ball)
        inner, outer = _radii(bound.tol, y)
        points, tau, Z = memory.points, memory.threshold, memory.points
        for _ in range(INNER):
            check_time()
            before, (Z, spectra) = Z, _shrunk(points, tau, splits)
            ahead = xp.mean(2 * Z - points, axis=1)
            v = short_vector(problem, ball, measured(problem, ahead) - y, inner)
            X = ahead - adjoint_of(problem, v)
            V = (points - Z) / per_trial(tau, Z)
            points = points + RELAXATION * (X[:, None, ...] - Z)
        found = _dual_point(problem, ball, V, splits)
        dual = xp.maximum(memory.dual, found.bound(y, outer))
        primal = _sum_of_norms(X, splits)
        gap = _relative(primal, dual)
        if state.t < BALANCED:
            after = tau * _balance(X[:, None, ...] - Z, Z, (Z - before) / per_trial(tau, Z), V)
            points, tau = points + per_trial(after - tau, V) * V, after
        # less than a tensor that fits can have, until the bound is close enough
        least = like(2 * np.minimum(np.maximum(bound.tol, 0.0), EXACT), gap, gap.dtype)
        shown = xp.where(gap <= self.gap, xp.ones_like(gap), 1 - xp.maximum(gap, least))
        level = np.broadcast_to(np.maximum(bound.tol, self.gap), (X.shape[0],))
        effective = like(_effective(spectra, level, problem.shape, splits), X, gap.dtype)
        Y = ShrunkTensor(X * per_trial(shown * ball.unit, X), effective)
        broken = state.diverged | ~xp.isfinite(Y.norm())
        return replace(
            state,
            X=state.X.where(broken, Y) if bool(xp.any(broken)) else Y,
            t=state.t + 1,
            memory=Splitting(points, tau, dual, gap),
            diverged=broken,
        )

    def is_stuck(self, state: State) -> Any:
        """Whether the gap is reached, for each problem."""
        if state.memory is None:
            return False
        return to_numpy(state.memory.gap) <= self.gap

    def findings(self, state: State) -> tuple[Finding, ...]:
        """Report the duality gap of one problem."""
        if state.memory is None or not state.t:
            return ()
        gap = float(np.ravel(to_numpy(state.memory.gap))[0])
        text = f"The duality gap is {gap:.1e}: no tensor that fits has nuclear norms that are"
        text = f"{text} smaller by a larger share."
        return (Finding("duality gap", text, {"gap": gap, "limit": self.gap}),)

    def memory_estimate(self, problem: Problem, rank: tuple[int, ...]) -> int:
        """Count the numbers that a run has beside A at a time, roughly."""
        copies, by_gram = len(self.unfoldings(problem.shape)), problem.A.entry_samples() is None
        tensors = (6 * copies + TENSORS) * size(problem.shape)
        gram = 4 * problem.m**2 if by_gram and problem.m <= GRAM else 0
        return size(problem.batch_shape) * (VECTORS * problem.m + tensors + gram)

    def certificate(self, problem: Problem, state: State) -> Certificate:
        """Prove how close a result is to the minimum.

        The proof needs nothing of the solver: the spectral norms of ``parts``, their sum
        and ``dual`` can be computed anew from A and y.

        Parameters
        ----------
        problem : Problem
            The one that was solved.
        state : State
            ``result.state``.

        Notes
        -----
        Cost: that of the first state of a run, three passes, and a few decompositions.

        Examples
        --------
        >>> import numpy as np, lowtucker as lt
        >>> A = lt.gaussian((5, 5, 5), m=100, seed=1)
        >>> problem = lt.Problem(A, A.forward(lt.random_tucker((5, 5, 5), (1, 1, 1), seed=0)))
        >>> solver = NuclearNorm()
        >>> found = solver.certificate(problem, lt.solve(problem, solver).state)
        >>> bool(found.gap < 2e-4)
        True
        >>> max(np.linalg.norm(lt.unfold(V, k), 2) for k, V in enumerate(found.parts)) < 1 + 1e-12
        True
        """
        state = adopt(state, problem, None, Splitting)
        if state.memory is None:
            raise ValueError(
                "certificate needs the state of a run of NuclearNorm, got that of another solver. "
                "Give result.state of lowtucker.solve(problem, lowtucker.NuclearNorm())."
            )
        batch = state if problem.batch_shape else state.batched()
        splits, ball, memory = self.unfoldings(problem.shape), Ball.of(problem), batch.memory
        xp, X, y = namespace(problem.y), batch.X.tensor, weighted_data(problem, ball)
        Z, _ = _shrunk(memory.points, memory.threshold, splits)
        found = _dual_point(
            problem, ball, (memory.points - Z) / per_trial(memory.threshold, Z), splits
        )
        fits = norm(measured(problem, X / per_trial(ball.unit, X)) - y, batch_ndim=1)
        dual = xp.maximum(found.bound(y, _host(fits)), 0 * fits) * ball.unit
        primal = _sum_of_norms(X, splits)
        multiplier = weighted(problem, found.vector)
        parts = [found.parts[:, k, ...] for k in range(len(splits))]
        out = (primal, dual, _relative(primal, dual), multiplier, *parts)
        primal, dual, gap, multiplier, *parts = (
            x if problem.batch_shape else x[0, ...] for x in out
        )
        return Certificate(primal, dual, gap, multiplier, tuple(parts))


class _Dual(NamedTuple):
    """Feasible point of the dual problem: a vector, and the parts of its adjoint."""

    vector: Array
    parts: Array

    def bound(self, y: Array, radius: Any) -> Array:
        """Lower bound on the sum of nuclear norms of tensors that fit y to within the radius."""
        v = self.vector
        inner = real(namespace(v).sum(conj(v) * y, axis=-1))
        return inner - like(radius, y, inner.dtype) * norm(v, batch_ndim=1)


def _dual_point(problem: Problem, ball: Ball, V: Array, splits: Sequence[tuple[int, ...]]) -> _Dual:
    """Feasible point of the dual problem next to some multipliers. Two passes."""
    xp = namespace(V)
    total = xp.sum(V, axis=1)
    v = short_vector(problem, ball, measured(problem, total), 0.0)
    parts = V - ((total - adjoint_of(problem, v)) / len(splits))[:, None, ...]
    norms = [svdvals(_matrix(parts[:, k, ...], rows))[:, 0] for k, rows in enumerate(splits)]
    largest = xp.max(xp.stack(norms), axis=0)
    largest = xp.where(largest > 0, largest, xp.ones_like(largest))
    return _Dual(v / largest[:, None], parts / per_trial(largest, parts))


def _radii(tol: Any, y: Array) -> tuple[NumPyArray, NumPyArray]:
    """Radius for X, and that of all tensors that fit, a little larger: zeros for exact data."""
    tol, length = np.asarray(tol, dtype=np.float64), _host(norm(y, batch_ndim=1))
    outer = np.where(tol > EXACT, tol, 0.0)
    return np.maximum((1 - SAFE) * outer - ROUNDING * eps(y), 0.0) * length, outer * length


def _relative(primal: Array, dual: Array) -> Array:
    """Gap between bounds, in units of the larger; 0 for zero."""
    xp = namespace(primal)
    return (primal - dual) / xp.where(primal > 0, primal, xp.ones_like(primal))


def _balance(off: Array, Z: Array, moved: Array, V: Array) -> Array:
    """Factor of the threshold by which primal and dual residual would be equal, if moderate."""
    lengths = [_host(norm(x, batch_ndim=1)) for x in (off, Z, moved, V)]
    primal, of_Z, dual, of_V = (np.maximum(x, 1e-30) for x in lengths)
    factor = np.sqrt((dual / of_V) / (primal / of_Z))
    return like(np.clip(factor, 1 / CHANGE, CHANGE), Z, real_dtype(Z))


# Unfoldings


def _nearest_to_square(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Modes whose product is nearest to that of the others; the first mode is one of them."""
    others, total = range(1, len(shape)), math.log(size(shape))
    subsets = ((0, *some) for count in range(len(shape)) for some in combinations(others, count))

    def excess(rows: tuple[int, ...]) -> float:
        return round(abs(2 * math.log(size([shape[k] for k in rows])) - total), 9)

    return min(subsets, key=excess)


def _order(X: Array, rows: tuple[int, ...]) -> tuple[int, ...]:
    """Axes of a batch in the order of an unfolding."""
    rest = [k + 1 for k in range(X.ndim - 1) if k not in rows]
    return (0, *(k + 1 for k in rows), *rest)


def _matrix(X: Array, rows: tuple[int, ...]) -> Array:
    """Unfold a batch, shape (batch, product of the rows, product of the rest)."""
    height = size([X.shape[k + 1] for k in rows])
    moved = namespace(X).permute_dims(X, _order(X, rows))
    return reshaped(moved, (X.shape[0], height, size(X.shape[1:]) // height))


def _folded(matrix: Array, like_this: Array, rows: tuple[int, ...]) -> Array:
    """Fold what :func:`_matrix` unfolded."""
    order = _order(like_this, rows)
    moved = reshaped(matrix, tuple(like_this.shape[k] for k in order))
    return namespace(moved).permute_dims(moved, tuple(np.argsort(order).tolist()))


def _shrunk(
    points: Array, tau: Array, splits: Sequence[tuple[int, ...]]
) -> tuple[Array, list[Array]]:
    """Shrink the singular values of every unfolding of its own copy; also what they are then."""
    xp = namespace(points)
    shrunk, spectra = [], []
    for k, rows in enumerate(splits):
        X = points[:, k, ...]
        M = _matrix(X, rows)
        tall = M.shape[1] > M.shape[2]
        values, U = eigh(adjoint(M) @ M if tall else M @ adjoint(M))
        roots = xp.sqrt(xp.maximum(values, 0 * values))
        kept = roots > tau[:, None]
        f = xp.where(kept, 1 - tau[:, None] / xp.where(kept, roots, xp.ones_like(roots)), 0 * roots)
        filters = (U * xp.astype(f, U.dtype, copy=False)[:, None, :]) @ adjoint(U)
        shrunk.append(_folded(M @ filters if tall else filters @ M, X, rows))
        spectra.append(f * roots)
    return xp.stack(shrunk, axis=1), spectra


def _sum_of_norms(X: Array, splits: Sequence[tuple[int, ...]]) -> Array:
    """Sum of the nuclear norms of the unfoldings, shape (batch,)."""
    xp = namespace(X)
    return sum((xp.sum(svdvals(_matrix(X, rows)), axis=-1) for rows in splits), start=0.0)


def _effective(
    spectra: Sequence[Array],
    level: NumPyArray,
    shape: tuple[int, ...],
    splits: Sequence[tuple[int, ...]],
) -> NumPyArray:
    """Degrees of freedom of tensors whose unfoldings have such singular values, for each problem.

    Those count that are above a level, relative to the largest: what noise and the gap leave open.
    """
    values = [_host(x) for x in spectra]
    ranks = np.stack([np.sum(x > level[:, None] * x[:, -1:], axis=-1) for x in values], axis=-1)
    if len(splits) == len(shape):
        each = [attainable_rank(tuple(np.maximum(rank, 1).tolist())) for rank in ranks]
        return np.array([degrees_of_freedom(shape, rank) for rank in each])
    height, (rank,) = size([shape[k] for k in splits[0]]), ranks.T
    return np.asarray(rank * (height + size(shape) // height - rank))


def _host(x: Array) -> NumPyArray:
    return np.asarray(to_numpy(x), dtype=np.float64)
