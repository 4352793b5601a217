"""NuclearNorm: convex recovery by nuclear norms of unfoldings, with a duality gap."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from lowtucker._array import (
    Array,
    as_number,
    like,
    namespace,
    per_trial,
    real_dtype,
    size,
    to_numpy,
)
from lowtucker._array.random import Seed, as_seed
from lowtucker.problem import Problem
from lowtucker.solvers.ball import (
    GRAM,
    Ball,
    measured,
    weighted,
    weighted_data,
)
from lowtucker.solvers.base import TENSORS, VECTORS, Bound, Memory, State
from lowtucker.solvers.shrinking import Shrinking, host
from lowtucker.solvers.splitting import (
    balancing,
    dual_point,
    iterated,
    radius_of,
    relative_gap,
)
from lowtucker.solvers.start import adopt, first_state, start_tensor
from lowtucker.solvers.unfoldings import (
    nearest_to_square,
    numerical_freedom,
    shrunk_unfoldings,
    sum_of_nuclear_norms,
)
from lowtucker.status import Finding
from lowtucker.tensor.products import norm
from lowtucker.thresholding import ShrunkTensor

__all__ = ["Certificate", "NuclearNorm"]

NumPyArray = np.ndarray[Any, Any]
# First threshold, in units of the norm of the smallest tensor that fits
FIRST = 0.1
# Epochs in which the threshold is balanced
BALANCED = 40


@dataclass(frozen=True)
class Splitting(Memory):
    """What the splitting remembers, in units of :class:`lowtucker.solvers.ball.Ball`.

    Attributes
    ----------
    points : array, shape (*batch, K, n_1, ..., n_d)
        What is shrunk next, for each unfolding.
    threshold : array, shape (*batch,)
        By how much its singular values are shrunk: the inverse of the penalty.
    gap : array, shape (*batch,)
        Relative duality gap of the last epoch; NaN where it is not known.
    """

    points: Array
    threshold: Array
    gap: Array


class Certificate(NamedTuple):
    r"""Proof that no tensor that fits as well has a much smaller sum of nuclear norms.

    Attributes
    ----------
    primal : array, shape (*batch,)
        Sum of the nuclear norms of X.
    dual : array, shape (*batch,)
        Lower bound on that of any tensor whose residual is no larger:
        :math:`\mathrm{Re} \langle \lambda, y \rangle - \|y - A(X)\|_w \|\lambda\|_{1/w}`, where the
        residual is that in the range of A: its other part is the same for all tensors.
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

        \min_X \sum_k \|X_{(k)}\|_* \quad \text{subject to} \quad
        \|A(X) - y\|_w \le \epsilon \|y\|_w

    over all unfoldings (the sum of nuclear norms of Gandy, Recht and Yamada), or for one of them,
    such as the near-square one of Mu, Huang, Wright and Goldfarb. The norms of measurements are
    weighted by the weights of the problem, and :math:`\epsilon` is the residual at which the call
    ends: ``tol``, or the noise floor where ``noise_std`` is given; 0 where that is at most 1e-5.

    It is a baseline: it needs more measurements than solvers with a rank. For tensors with d
    modes of length n and rank r, the sum needs :math:`O(r n^{d-1})` Gaussian measurements, the
    square unfolding :math:`O(r^{d/2} n^{d/2})`.

    Alternating directions (ADMM, in the form of Douglas-Rachford splitting) with a copy
    :math:`Z_k` of X for each of the K unfoldings, the shrinkage :math:`S_\tau` of its singular
    values by :math:`\tau`, and the projection P onto the tensors that fit:

    .. math::

        Z_k = S_\tau(U_k), \qquad X = P\Big(\tfrac1K \sum_k (2 Z_k - U_k)\Big), \qquad
        U_k \leftarrow U_k + 1.6\, (X - Z_k)

    In the first epochs :math:`\tau` is adapted such that the primal and the dual residual are of
    equal size; there is nothing to tune.

    The multipliers :math:`V_k = (U_k - Z_k) / \tau` have spectral norms of at most 1. After every
    epoch, what their sum has outside of the range of :math:`A^*` is subtracted from them in equal
    parts, and all are divided by the largest spectral norm. Then :math:`\sum_k V_k = A^*(\lambda)`,
    and

    .. math::

        \mathrm{Re} \langle \lambda, y \rangle - \epsilon \|y\|_w \|\lambda\|_{1/w}
        \le \min_X \sum_k \|X_{(k)}\|_*

    is a proven bound. The run ends when the sum of nuclear norms of X is within ``gap`` of it; a
    finding of the kind "duality gap" has the number, and :meth:`certificate` the proof.

    Parameters
    ----------
    unfolding : None, "square", int or tuple of int
        None: all unfoldings, one for each mode (for a matrix the only one there is). "square": one
        matrix, whose rows are the modes that make it nearest to square, out of all subsets. A mode
        or a tuple of modes: the rows of one matrix.
    gap : float
        Relative duality gap at which the run ends.

    Notes
    -----
    X fits after the first epoch already, and the run goes on to the gap; ``result.history.phase``
    has that of every epoch. A run that ends before has a tensor that fits, and a larger gap.

    An epoch is ten iterations and a bound: 22 passes over A. An iteration takes K
    eigendecompositions, :math:`O(N \sum_k n_k)` for the sum. The projection divides by
    :math:`A A^*`. It is a number for orthogonal rows, and diagonal for sampled entries. For other
    rows it is decomposed once, in :math:`O(m^3 + m^2 N)`, up to 3000 measurements; beyond, and
    for complex measurements of real tensors, every projection takes Lanczos steps of two passes
    each (20 for m = N / 10, 40 for m = N / 3). Memory: some 6 K + 4 tensors, and 4 m^2 numbers for
    a decomposition.

    References
    ----------
    S. Gandy, B. Recht, I. Yamada, "Tensor completion and low-n-rank tensor recovery via convex
    optimization", Inverse Problems 27 (2011). C. Mu, B. Huang, J. Wright, D. Goldfarb, "Square
    deal: lower bounds and improved relaxations for tensor recovery", ICML 2014.

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
    fit_suffices: ClassVar[bool] = False

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
            return (nearest_to_square(shape),)
        rows = self.unfolding if isinstance(self.unfolding, tuple) else (self.unfolding,)
        if not all(k in modes for k in rows):
            raise ValueError(
                f"unfolding = {self.unfolding!r} must have modes from 0 to {len(shape) - 1}, those "
                f'of a tensor of shape {shape}. Try unfolding="square".'
            )
        return (rows,)

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
        # a gap that was reached may be that of other measurements or of another tolerance
        xp, gap = namespace(memory.gap), memory.gap
        memory = replace(memory, gap=xp.where(gap <= self.gap, xp.nan + gap, gap))
        return replace(state, memory=memory, cache=ball)

    def _fresh(self, problem: Problem, ball: Ball, X: ShrunkTensor) -> Splitting:
        """Splitting that begins at X."""
        xp, one = namespace(X.tensor), namespace(ball.unit).ones_like(ball.unit)
        copies = [X.tensor / per_trial(ball.unit, X.tensor)] * len(self.unfoldings(problem.shape))
        return Splitting(xp.stack(copies, axis=1), FIRST * one, xp.nan * one)

    def advance(self, bound: Bound, state: State) -> State:
        """Iterations of an epoch, and the bound that they prove."""
        problem, ball, memory = bound.problem, state.cache, state.memory
        xp, splits = namespace(problem.y), self.unfoldings(problem.shape)
        y, tau = weighted_data(problem, ball), memory.threshold
        radius = ball.reached(radius_of(bound.tol, y))
        step = iterated(problem, ball, memory.points, tau, y, radius, splits)
        dual = dual_point(problem, ball, step.V, splits).bound(y, radius)
        gap = relative_gap(sum_of_nuclear_norms(step.X, splits), dual)
        points = step.points
        if state.t < BALANCED:
            tau = tau * balancing(step, tau)
            points = points + per_trial(tau - memory.threshold, points) * step.V
        level = np.broadcast_to(np.maximum(bound.tol, self.gap), gap.shape)
        effective = numerical_freedom(step.spectra, level, problem.shape, splits)
        X = ShrunkTensor(step.X * per_trial(ball.unit, step.X), like(effective, gap, gap.dtype))
        broken = state.diverged | ~xp.isfinite(X.norm())
        return replace(
            state,
            X=state.X.where(broken, X) if bool(xp.any(broken)) else X,
            t=state.t + 1,
            memory=Splitting(points, tau, gap),
            diverged=broken,
        )

    def is_stuck(self, state: State) -> Any:
        """Whether the gap is reached, for each problem."""
        if state.memory is None:
            return False
        return to_numpy(state.memory.gap) <= self.gap

    def label(self, state: State) -> str:
        """Name with the gap, for the history; the largest of a batch."""
        gap = math.nan if state.memory is None else float(np.max(to_numpy(state.memory.gap)))
        return self.name if math.isnan(gap) else f"{self.name}, gap {gap:.1e}"

    def findings(self, state: State) -> tuple[Finding, ...]:
        """Report the duality gap of one problem."""
        gap = math.nan if state.memory is None else float(np.ravel(to_numpy(state.memory.gap))[0])
        if math.isnan(gap):
            return ()
        text = (
            f"The duality gap is {gap:.1e}: no tensor that fits has a sum of nuclear norms that is "
            "smaller by more than this share."
        )
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
        >>> norms = [np.linalg.norm(lt.unfold(V, k), 2) for k, V in enumerate(found.parts)]
        >>> round(float(max(norms)), 9)
        1.0
        """
        if not isinstance(state, State):
            raise TypeError(
                f"state must be the state of a result, got {type(state).__name__}. Try "
                "result.state."
            )
        state = adopt(state, problem, None, Splitting)
        if state.memory is None:
            raise ValueError(
                "certificate needs the state of a run of NuclearNorm, got that of another solver. "
                "Give result.state of lowtucker.solve(problem, lowtucker.NuclearNorm())."
            )
        batch = state if problem.batch_shape else state.batched()
        splits, ball, memory = self.unfoldings(problem.shape), Ball.of(problem), batch.memory
        X, y = batch.X.tensor, weighted_data(problem, ball)
        Z, _ = shrunk_unfoldings(memory.points, memory.threshold, splits)
        V = (memory.points - Z) / per_trial(memory.threshold, Z)
        found = dual_point(problem, ball, V, splits)
        residual = norm(measured(problem, X / per_trial(ball.unit, X)) - y, batch_ndim=1)
        dual = found.bound(y, ball.reached(host(residual))) * ball.unit
        primal = sum_of_nuclear_norms(X, splits)
        parts = [found.parts[:, k, ...] for k in range(len(splits))]
        gap, multiplier = relative_gap(primal, dual), weighted(problem, found.vector)

        def out(x: Array) -> Array:
            return x if problem.batch_shape else x[0, ...]

        return Certificate(
            out(primal), out(dual), out(gap), out(multiplier), tuple(map(out, parts))
        )
