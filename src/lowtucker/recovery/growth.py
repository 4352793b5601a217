"""Growth: a start of a larger rank, made of a fit of a smaller one and its residual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import Array, adjoint, like, namespace, real, size, to_numpy
from lowtucker._array.linalg import eigh, qr, svd
from lowtucker._array.random import Seed, as_seed
from lowtucker.operators.base import SWEEPS
from lowtucker.problem import Problem
from lowtucker.solvers import State
from lowtucker.solvers.manifold import ROWS
from lowtucker.solvers.models import dot
from lowtucker.solvers.noise import FULL
from lowtucker.solvers.rsgd import Blocks
from lowtucker.solvers.start import first_state
from lowtucker.tensor.decompose import hooi
from lowtucker.tensor.products import multi_mode_product
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.tensor.unfolding import unfold

__all__ = ["Gradient"]


class Gradient(NamedTuple):
    r"""The steepest descent :math:`G = \mathcal{A}^*(w r)` at X, and what it says of more rank.

    Attributes
    ----------
    problem : Problem
    X : TuckerTensor or None
        The fit so far; None for zero.
    residual : array, shape (m,)
        r = y - A(X).
    tensor : array or None
        G, where rows are isotropic and it may be formed.
    bases : list of arrays
        For each mode, the directions outside the span of X's factor, the leading ones first; where
        G is formed.
    missing : tuple of int or None
        For each mode, how many of these directions stand out of noise; None if that is not known.
    """

    problem: Problem
    X: TuckerTensor | None
    residual: Array
    tensor: Array | None = None
    bases: tuple[Array, ...] = ()
    missing: tuple[int, ...] | None = None

    @classmethod
    def at(cls, problem: Problem, X: TuckerTensor | None) -> Gradient:
        r"""Gradient of a problem at X. One pass over a NumPy matrix, two over other operators.

        Noise through isotropic measurements gives unfoldings whose largest singular value is about
        :math:`(\sqrt{n_k - r_k} + \sqrt{N/n_k}) \|G\|_F / \sqrt N`: larger ones are signal. On
        30x30x30 tensors of rank 3 from 3000 measurements, those of :math:`\mathcal{A}^*(y)` show
        two or three directions in every mode.
        """
        A, y, weights = problem.A, problem.y, problem.weights
        traits = A.traits
        if not (traits.isotropic and traits.has_fast_tangent and size(problem.shape) <= FULL):
            return cls(problem, X, y if X is None else problem.residual(X))
        if X is None:
            residual, G = y, A.adjoint(_weighted(problem, y))
        else:
            residual, G = A.misfit(X, y, weights)
        entry = float(np.linalg.norm(to_numpy(G))) / math.sqrt(size(problem.shape))
        bases, missing = [], []
        for k, n in enumerate(problem.shape):
            r = 0 if X is None else X.rank[k]
            values, vectors = _outside(unfold(G, k), None if X is None else X.factors[k])
            edge = entry * (math.sqrt(n - r) + math.sqrt(size(problem.shape) / n))
            missing.append(int(np.sum(values[: n - r] > edge)))
            bases.append(vectors)
        return cls(problem, X, residual, G, tuple(bases), tuple(missing))

    def grown(self, rank: tuple[int, ...], seed: Seed) -> State:
        r"""Start of a larger rank: X with the leading directions of G outside its factors.

        The core is that of :math:`X + t G` in the new subspaces, t by a line search on a few rows
        where they are isotropic. At zero it is the truncation of t G. One pass where G is not
        formed, for its truncation, which stands for it; another where all rows are searched.
        """
        problem, X = self.problem, self.X
        if X is None or self.tensor is None:
            v = _weighted(problem, self.residual)
            H = problem.A.spectral_start(v, rank) if self.tensor is None else hooi(
                self.tensor, rank, max_iterations=SWEEPS, warn=False
            )  # fmt: skip
        if X is None:
            return self._searched(TuckerTensor.trusted(0 * H.core, H.factors), H.core, seed)
        xp = namespace(X.core)
        G, bases, onto = self.tensor, self.bases, None
        if G is None:
            G, onto = H.core, H.factors
            parts = [xp.matmul(V, unfold(G, k)) for k, V in enumerate(onto)]
            bases = tuple(_outside(M, U)[1] for M, U in zip(parts, X.factors, strict=True))
        factors = [
            qr(xp.concat([U, new[:, : r - U.shape[1]]], axis=1))[0] if r > U.shape[1] else U
            for U, new, r in zip(X.factors, bases, rank, strict=True)
        ]
        core = multi_mode_product(X.core, _changes(factors, X.factors))
        if onto is None:
            uphill = multi_mode_product(G, factors, transpose=True)
        else:
            uphill = multi_mode_product(G, _changes(factors, onto))
        return self._searched(TuckerTensor.trusted(core, factors), uphill, seed)

    def _searched(self, X: TuckerTensor, uphill: Array, seed: Seed) -> State:
        """State at X plus a multiple of a core in the same subspaces, by a line search."""
        problem, traits = self.problem, self.problem.A.traits
        few = min(problem.m, ROWS) if traits.isotropic and traits.row_separable else problem.m
        block = problem.trusted_block(slice(0, few))
        measured, r = block.A.forward(TuckerTensor.trusted(uphill, X.factors)), self.residual[:few]
        weighted = _weighted(block, measured)
        curvature = dot(weighted, measured)
        t = float(dot(weighted, r) / curvature) if curvature > 0 else 0.0
        level = float(block.relative(r - t * measured))
        X = TuckerTensor.trusted(X.core + t * uphill, X.factors)
        known = level * namespace(X.core).ones_like(X.norm())
        memory = Blocks(known, np.zeros((), dtype=bool), np.zeros((), dtype=bool))
        return first_state(X, memory, as_seed(seed))


def _changes(factors: Sequence[Array], others: Sequence[Array]) -> list[Array]:
    """Matrices that take coordinates in other bases to those in ``factors``."""
    return [namespace(U).matmul(adjoint(U), V) for U, V in zip(factors, others, strict=True)]


def _weighted(problem: Problem, v: Array) -> Array:
    return v if problem.weights is None else problem.weights * v


def _outside(matrix: Array, U: Array | None) -> tuple[Any, Array]:
    """Singular values and left singular vectors of a matrix outside the span of U, if any."""
    xp = namespace(matrix)
    outside = matrix if U is None else matrix - xp.matmul(U, xp.matmul(adjoint(U), matrix))
    n, p = matrix.shape
    if n > p:
        vectors, values, _ = svd(outside)
        return to_numpy(values), vectors
    values, vectors = eigh(xp.matmul(outside, adjoint(outside)))  # ascending
    order = like(np.arange(n - 1, -1, -1), vectors)
    return np.sqrt(np.maximum(to_numpy(real(values))[::-1], 0)), xp.take(vectors, order, axis=1)
