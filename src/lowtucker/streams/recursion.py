"""Recursive Gauss-Newton: the measurements so far, as a quadratic on one tangent space."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from lowtucker._array import (
    Array,
    adjoint,
    all_finite,
    conj,
    is_complex,
    namespace,
    real,
    to_numpy,
)
from lowtucker._array.linalg import eigh
from lowtucker.operators.design import NormalEquations
from lowtucker.problem import Problem
from lowtucker.recovery.accuracy import Accuracy
from lowtucker.solvers.models import damped_step, dot, full_rank_margin
from lowtucker.tensor.kernels import in_order
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["Recent", "Recursion", "Tally", "aged", "contiguous", "decay_of", "pieces"]

# Mean squared error of predictions, in units of what the residual predicts, above which they are
# clearly worse: a factor, and standard deviations of that of noise
WORSE, DEVIATIONS = 2.0, 6.0


def decay_of(rows: int, memory: float | None) -> float:
    """Factor by which so many new rows reduce the weight of the old ones."""
    return 1.0 if memory is None else math.exp(-rows / memory)


@dataclass(frozen=True)
class Tally:
    """Sums over the measurements so far, each with what forgetting has left of its weight.

    Attributes
    ----------
    count, squared : float
        Sums of the weights that forgetting gives to the real equations, and of their squares.
    energy : float
        Sum of w |y|^2.
    """

    count: float = 0.0
    squared: float = 0.0
    energy: float = 0.0

    def plus(self, problem: Problem, decay: float) -> Tally:
        """Tally with one more block."""
        n, energy = float(problem.equations), float(problem.y_norm) ** 2
        return Tally(
            decay * self.count + n, decay**2 * self.squared + n, decay * self.energy + energy
        )

    @property
    def share(self) -> float:
        """Variance of the weighted fit, in units of that of as many rows of weight 1."""
        return self.squared / self.count

    def spare(self, dof: int) -> float:
        """Equations beyond those that a fit of so many degrees of freedom takes up."""
        return self.count - dof * self.share


@dataclass(frozen=True)
class Recent:
    """How well the last rows were predicted before they were used: held-out data.

    Attributes
    ----------
    squares, energy, count : float
        Sums of w |y - A(X_0)|^2, of w |y|^2 and of equations, over about the last dof rows.
    leverage : float
        What the error of X adds to the squares, in units of sigma^2; as if rows were isotropic.
    """

    squares: float = 0.0
    energy: float = 0.0
    count: float = 0.0
    leverage: float = 0.0

    def plus(self, problem: Problem, squares: float, dof: int, ratio: float) -> Recent:
        """Sums with one more block.

        Its residual has these squares, and its mean information is so many times that of X.
        """
        kept = decay_of(problem.m, float(dof))
        energy, n = float(problem.y_norm) ** 2, float(problem.equations)
        return Recent(
            kept * self.squares + squares,
            kept * self.energy + energy,
            kept * self.count + n,
            kept * self.leverage + dof * ratio,
        )

    def exceeds(self, sigma: float) -> bool:
        """Whether the squares are clearly more than noise of that size makes them."""
        expected = sigma * sigma * (self.count + self.leverage)
        limit = WORSE + DEVIATIONS / math.sqrt(max(self.count, 1.0))
        return self.squares > limit * expected

    @property
    def score(self) -> float | None:
        """Relative error of the predictions; None without any."""
        return math.sqrt(self.squares / self.energy) if self.energy else None


@dataclass(frozen=True, eq=False)
class Recursion:
    r"""Weighted least squares over a stream, linearised at one tensor.

    With D the tangent design at :math:`X_0` and :math:`r = y - A(X_0)`, all that is known of the
    measurements is :math:`G = D^* W D`, :math:`g = D^* W r` and :math:`c = r^* W r`: the cost of
    a tensor near :math:`X_0` with the tangent part :math:`\xi` of :math:`X - X_0` is
    :math:`c - 2 \langle g, \xi \rangle + \langle \xi, G \xi \rangle`. This is the extended Kalman
    filter in information form.

    Notes
    -----
    Memory: dof^2 numbers. A block of b rows costs its design and b dof^2 flops, a solve dof^3 / 3,
    another linearisation as much and two structured products of G, some dof^2 max n_k.
    """

    T: TangentSpace
    gram: Array
    gradient: Array
    squares: float
    tally: Tally
    recent: Recent
    rows: int  # since it was linearised

    @classmethod
    def of(cls, problem: Problem, X: TuckerTensor, ages: Array | None = None) -> Recursion:
        """Linearise a problem at X; ``ages`` are the weights that forgetting leaves of its rows."""
        T = TangentSpace(contiguous(X))
        tally = Tally().plus(problem, 1.0)
        if ages is not None:
            problem, tally = aged(problem, ages)
        gram, gradient, squares = _equations(problem, T)
        return cls(T, in_order(gram), gradient, squares, tally, Recent(), 0)

    def absorbed(self, problem: Problem, memory: float | None) -> Recursion:
        """Recursion with one more block, linearised again after every dof rows."""
        now, dof = self, self.T.dof
        for block in pieces(problem, dof):
            now = now._plus(block, memory)
            now = now.relinearised() if now.rows >= dof else now
        return now

    def _plus(self, problem: Problem, memory: float | None) -> Recursion:
        """Recursion with one more block. One pass over its rows."""
        decay = decay_of(problem.m, memory)
        gram, gradient, squares = _equations(problem, self.T)
        before, added = _trace(self.gram), _trace(gram)
        return Recursion(
            self.T,
            in_order(decay * self.gram + gram),
            decay * self.gradient + gradient,
            decay * self.squares + squares,
            self.tally.plus(problem, decay),
            self.recent.plus(problem, squares, self.T.dof, added / before if before else 0.0),
            self.rows + problem.m,
        )

    @cached_property
    def step(self) -> Array:
        """Coordinates of the minimiser of the quadratic."""
        return damped_step(NormalEquations(self.gram, self.gradient, self.gradient), 0.0)

    @cached_property
    def X(self) -> TuckerTensor:
        """Retraction of the minimiser."""
        return contiguous(self.T.retract(self.step))

    @property
    def at_hand(self) -> bool:
        """Whether X costs no solve."""
        return not self.rows

    def relinearised(self) -> Recursion:
        """Same information at :attr:`X`: what is known of tangent parts there moves along."""
        xp, old = namespace(self.gram), self.T
        T = TangentSpace(self.X)
        moved = old.coordinates(self.X) - old.here
        curved = xp.matmul(self.gram, moved[:, None])[:, 0]
        # P^* G P, with P^* the projection of old tangent vectors onto the new space
        half = xp.matrix_transpose(T.transported(xp.matrix_transpose(self.gram), old))
        gram = conj(T.transported(conj(half), old))
        squares = self.squares - 2 * float(dot(moved, self.gradient)) + float(dot(moved, curved))
        return replace(
            self,
            T=T,
            gram=in_order(0.5 * (gram + adjoint(gram))),
            gradient=T.transported((self.gradient - curved)[None, :], old)[0, :],
            squares=max(squares, 0.0),
            rows=0,
        )

    @property
    def left(self) -> float:
        """Weighted sum of the squared residuals at the minimum."""
        return max(self.squares - float(dot(self.step, self.gradient)), 0.0)

    @property
    def residual(self) -> float:
        """Relative residual over all rows, with what forgetting leaves of their weights."""
        return math.sqrt(self.left / self.tally.energy) if self.tally.energy else 0.0

    @property
    def sigma(self) -> float:
        """Standard deviation of a measurement of weight 1; 0 where there are too few of them."""
        spare = self.tally.spare(self.T.dof)
        return math.sqrt(self.left / spare) if spare > 0 else 0.0

    @cached_property
    def accuracy(self) -> Accuracy:
        """Error of X by noise, from the eigenvalues of G."""
        values = np.asarray(to_numpy(real(eigh(self.gram)[0])), dtype=np.float64)
        size, parts = float(self.X.norm()), 2 if is_complex(self.gram) else 1
        margin, sigma = full_rank_margin(values), self.sigma
        spare = max(self.tally.spare(self.T.dof), 0.0)
        share = float(values[0] / values[-1]) if values[-1] > 0 else 0.0
        if margin <= 1 or not spare or not size:
            return Accuracy(0.0, math.inf, sigma, 1.0, 0, min(margin, 1.0), share)
        inverse = float(np.sum(1 / values))
        noise = sigma * math.sqrt(self.tally.share * inverse) / size
        directions = parts * inverse**2 / float(np.sum(1 / values**2))
        return Accuracy(0.0, noise, sigma, directions, int(parts * spare), margin, share)


def pieces(problem: Problem, rows: int) -> Iterator[Problem]:
    """Problem in pieces of so many rows; as it is, where it cannot be split at its own cost."""
    if not problem.A.traits.row_separable or problem.m <= rows:
        yield problem
        return
    for start in range(0, problem.m, rows):
        yield problem.block(slice(start, min(start + rows, problem.m)))


def _equations(problem: Problem, T: TangentSpace) -> tuple[Array, Array, float]:
    """Gram matrix, gradient and squared residual of a block; refuses what is not finite."""
    found = problem.A.tangent(T).normal_equations(problem.y, problem.weights)
    squares = float(problem.weighted_norm(found.residual)) ** 2
    if not (math.isfinite(squares) and all_finite(found.gram)):
        bad = np.flatnonzero(~np.isfinite(to_numpy(found.residual)))
        where = f", the first in row {bad[0]}" if len(bad) else ""
        raise ValueError(
            f"the block makes numbers that are not finite{where}: NaN in A, or numbers too large "
            "to square. Leave that row out, or rescale A and y."
        )
    return found.gram, found.gradient, squares


def _trace(gram: Array) -> float:
    return float(namespace(gram).sum(real(namespace(gram).linalg.diagonal(gram))))


def aged(problem: Problem, ages: Array) -> tuple[Problem, Tally]:
    """Problem with weights reduced by forgetting, and the tally of its rows."""
    w = ages if problem.weights is None else ages * problem.weights
    made = Problem(problem.A, problem.y, w)
    per_row = problem.equations / max(int(np.sum(to_numpy(w) > 0)), 1)
    kept = to_numpy(ages)[to_numpy(w) > 0]
    n, n2 = per_row * float(np.sum(kept)), per_row * float(np.sum(kept**2))
    return made, Tally(n, n2, float(made.y_norm) ** 2)


def contiguous(X: TuckerTensor) -> TuckerTensor:
    """Tensor whose parts lie in memory as those that are read from a file."""
    return TuckerTensor.trusted(in_order(X.core), [in_order(U) for U in X.factors])
