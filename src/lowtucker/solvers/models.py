"""Linear models of the measurements at X: normal equations, or products with the tangent design."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import Array, conj, eps, is_complex, like, namespace, real, to_numpy
from lowtucker._array.clock import check_time
from lowtucker._array.linalg import eigvalsh, solve
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker._array.readings import side_by_side
from lowtucker.operators.deferred import Deferred
from lowtucker.operators.design import NormalEquations, TangentDesign
from lowtucker.problem import Problem
from lowtucker.tensor.products import exponent, norm, shifted
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = [
    "Model",
    "ProductModel",
    "Step",
    "covariance_error",
    "damped_step",
    "dot",
    "eigenvalues",
    "finite_vectors",
    "full_rank_margin",
    "has_full_rank",
    "joined",
    "some_of",
]

# Most iterations of LSMR in a step
INNER = 200
# Directions whose measurements are smaller than those of others by so much are not measured
NOT_SEEN = 1e-3


class Step(NamedTuple):
    """A step in tangent coordinates, and the fall of the cost it promises.

    For a batch both have a leading axis.
    """

    xi: Array
    promise: Any


@dataclass(frozen=True, eq=False)
class Model:
    """Linear model of the measurements at X, or at a batch: normal equations and residual."""

    T: TangentSpace
    equations: NormalEquations

    @classmethod
    def at(cls, problem: Problem, X: TuckerTensor) -> Model:
        """Model of a problem or a block, by one pass over its rows, whatever the batch of X.

        X is a batch for a batch of problems; of one problem it may be one.
        """
        T = TangentSpace(X)
        return cls(T, problem.A.tangent(T).normal_equations(problem.y, problem.weights))

    @property
    def residual(self) -> Array:
        """Residual r = y - A(X)."""
        return self.equations.residual

    @property
    def gradient(self) -> Array:
        """D^* W r."""
        return self.equations.gradient

    def step(self, damping: Any, _accuracy: Any) -> Step:
        """Damped least squares, from the normal equations. No pass."""
        xi = damped_step(self.equations, damping)
        gram, gradient = self.equations[:2]
        curved = namespace(xi).matmul(gram, xi[..., None])[..., 0]
        return Step(xi, 2 * dot(xi, gradient) - dot(xi, curved))

    def select(self, which: Sequence[int]) -> Model:
        """Model of some of a batch, by position."""
        return Model(self.T.take(which), self.equations.map(lambda x: some_of(x, which)))

    def single(self) -> Model:
        """Model of a batch of one, without the leading axis."""
        return Model(self.T.take(0), self.equations.map(lambda x: some_of(x, 0)))

    @classmethod
    def chosen(cls, models: Sequence[Model], places: Sequence[int], _problem: Problem) -> Model:
        """Models at these places of several batches, one after the other."""
        first, *others = (model.equations for model in models)
        T = TangentSpace.concat([model.T for model in models])
        return cls(T, first.map(lambda *arrays: joined(arrays), *others)).select(places)


@dataclass(frozen=True, eq=False)
class ProductModel:
    """The same model by products with D alone, where the gram matrix would be too large."""

    T: TangentSpace
    design: TangentDesign
    weights: Array | None
    residual: Array
    gradient: Array
    scale: Any  # s, by what the measurements see of X itself

    @classmethod
    def at(cls, problem: Problem, X: TuckerTensor) -> ProductModel:
        """Model of a problem, by the residual and D^* r."""
        T = TangentSpace(X)
        design = problem.A.tangent(T)
        residual, gradient = design.misfit(problem.y, problem.weights)
        seen = to_numpy(problem.weighted_norm(problem.y - residual))
        size = to_numpy(X.norm())
        ratio = seen / np.where(size > 0, size, 1.0)
        return cls(T, design, problem.weights, residual, gradient, ratio * ratio)

    def select(self, which: Sequence[int]) -> ProductModel:
        """Model of some of a batch, by position."""
        T, w = self.T.take(which), self.weights
        w = w if w is None or w.ndim == 1 else some_of(w, which)
        residual, gradient, scale = (
            some_of(x, which) for x in (self.residual, self.gradient, self.scale)
        )
        return ProductModel(T, self.design.A.select(which).tangent(T), w, residual, gradient, scale)

    def single(self) -> ProductModel:
        """Model of a batch of one, without the leading axis."""
        return self._trial(0)

    def _trial(self, k: int) -> ProductModel:
        T, w = self.T.take(k), self.weights
        w = w if w is None or w.ndim == 1 else w[k, ...]
        residual, gradient = some_of(self.residual, k), self.gradient[k, ...]
        A = self.design.A.trial(k)
        if A.m < self.design.A.m:  # rows of a batch of unequal operators are padded
            residual, w = residual[: A.m], None if w is None else w[: A.m]
        return ProductModel(T, A.tangent(T), w, residual, gradient, self.scale[k])

    @classmethod
    def chosen(
        cls, models: Sequence[ProductModel], places: Sequence[int], problem: Problem
    ) -> ProductModel:
        """Models at these places of several batches, one after the other, of these problems."""
        T = TangentSpace.concat([model.T for model in models]).take(places)
        residual = some_of(joined([model.residual for model in models]), places)
        gradient = some_of(joined([model.gradient for model in models]), places)
        scale = np.concatenate([model.scale for model in models])[list(places)]
        return cls(T, problem.A.tangent(T), problem.weights, residual, gradient, scale)

    def step(self, damping: Any, accuracy: Any) -> Step:
        """Damped least squares by LSMR, to a relative accuracy. Two passes an iteration.

        The models of a batch one after the other, each with its damping and accuracy.
        """
        if not self.T.batch_shape:
            return self._step(float(damping), float(accuracy))
        count = self.T.batch_shape[0]
        given = zip(*np.broadcast_arrays(damping, accuracy, np.zeros(count))[:2], strict=True)
        each = side_by_side(enumerate(given))
        steps = [self._trial(k)._step(float(a), float(b)) for k, (a, b) in each]
        xi, promise = zip(*steps, strict=True)
        return Step(namespace(*xi).stack(xi), np.array(promise))

    def _step(self, damping: float, accuracy: float) -> Step:
        """Step of one model.

        Complex numbers are pairs of real ones to LSMR: the inner product is its real part. It gets
        D and r in units of their own, powers of two: it takes D for singular where that is small.
        """
        from scipy.sparse.linalg import LinearOperator, lsmr

        root = None if self.weights is None else namespace(self.weights).sqrt(self.weights)
        core, r = self.T.X.core, self.residual
        unit = exponent(math.sqrt(self.scale))

        def times(c: Any) -> Any:
            check_time()
            seen = self.design.matvec(shifted(_from_reals(c, core), -unit))
            return _as_reals(seen if root is None else root * seen)

        def adjoint_times(v: Any) -> Any:
            back = shifted(_from_reals(v, r), -unit)
            return _as_reals(self.design.rmatvec(back if root is None else root * back))

        b = _as_reals(r if root is None else root * r)
        size = exponent(norm(b))
        D = LinearOperator(
            (b.size, _as_reals(self.gradient).size),
            matvec=times, rmatvec=adjoint_times, dtype=b.dtype,
        )  # fmt: skip
        damp = math.sqrt(damping * math.ldexp(self.scale, -2 * unit))
        with np.errstate(over="ignore"):  # SciPy begins with 1e100, too large for float32
            x, *_ = lsmr(
                D, shifted(b, -size), damp, atol=accuracy, btol=accuracy, conlim=0, maxiter=INNER
            )
        fall = math.ldexp(float(norm(times(x))), size)
        xi = shifted(_from_reals(x, core), size - unit)
        promise = 2 * dot(xi, self.gradient) - fall * fall
        return Step(xi, promise)

    def inverse_times(self, c: Array, accuracy: float) -> Array:
        """Solve D^* W D x = c by conjugate gradients. Two passes an iteration; no batch."""
        from scipy.sparse.linalg import LinearOperator, cg

        core, w = self.T.X.core, self.weights
        unit = exponent(math.sqrt(self.scale))

        def times(x: Any) -> Any:
            check_time()
            seen = self.design.matvec(shifted(_from_reals(x, core), -unit))
            return _as_reals(self.design.rmatvec(shifted(seen if w is None else w * seen, -unit)))

        right = _as_reals(c)
        gram = LinearOperator((right.size, right.size), matvec=times, dtype=right.dtype)
        x, _ = cg(gram, right, rtol=accuracy, maxiter=INNER)
        return shifted(_from_reals(x, core), -2 * unit)


def some_of(x: Array, which: Any) -> Array:
    """Some of a batch, by position; one of them, without the leading axis, for an int.

    A residual that is elsewhere stays there.
    """
    if isinstance(x, Deferred):
        return x.take(which)
    if isinstance(which, int):
        return x[which, ...]
    return namespace(x).take(x, like(np.asarray(which), x), axis=0)


def joined(arrays: Sequence[Array]) -> Array:
    """Join batches along the leading axis."""
    if isinstance(arrays[0], Deferred):
        return Deferred.concat(arrays)
    return namespace(*arrays).concat(arrays)


def _as_reals(x: Array) -> Any:
    """Vector of numbers as NumPy reals; complex ones as pairs."""
    flat = np.ascontiguousarray(to_numpy(x))
    return flat.view(real(flat).dtype)


def _from_reals(x: Any, example: Array) -> Array:
    """Go back, to numbers of the kind of an example."""
    x = np.ascontiguousarray(x, dtype=to_numpy(real(example[:0, ...])).dtype)
    return like(x.view(to_numpy(example[:0, ...]).dtype), example)


def damped_step(equations: NormalEquations, damping: Any) -> Array:
    """Solve (D^* W D + damping s I) c = D^* W r, s the mean of the diagonal.

    The damping, one number or one for each of a batch, is kept above rounding: D may have less than
    full rank.
    """
    gram = equations.gram
    xp = namespace(gram)
    diagonal = real(xp.linalg.diagonal(gram))
    floor = np.maximum(damping, 4 * eps(diagonal))
    scale = like(floor, diagonal, diagonal.dtype) * xp.mean(diagonal, axis=-1)
    # a design of zeros has a gradient of zeros: any other matrix solves it
    scale = xp.where(scale > 0, scale, xp.ones_like(scale))
    unit = like(np.eye(diagonal.shape[-1]), gram, gram.dtype)
    damped = gram + scale[..., None, None] * unit
    return solve(damped, equations.gradient[..., None])[..., 0]


def eigenvalues(problem: Problem, X: TuckerTensor) -> np.ndarray[Any, Any]:
    """Eigenvalues of D^* W D at X, smallest first. One pass."""
    gram = Model.at(problem, X).equations.gram
    return to_numpy(real(eigvalsh(gram)))


def full_rank_margin(values: np.ndarray[Any, Any]) -> float:
    """Smallest eigenvalue of a gram matrix, in units of what rounding can make of zero.

    Below 1 the matrix has less than full rank, as far as can be told.
    """
    rounding = 10 * len(values) * eps(values) * float(values[-1])
    return float(values[0]) / rounding if rounding > 0 else 0.0


def covariance_error(
    problem: Problem, X: TuckerTensor, values: np.ndarray[Any, Any], residual: float
) -> float | None:
    r"""Relative error of X to expect where the residual is noise, by the Gauss-Newton covariance.

    .. math:: \sigma \sqrt{\mathrm{tr}\,(D^* W D)^{-1}} / \|X\|, \quad
        \sigma^2 = \|r\|^2 / (m - dof)

    None where there are no more equations than degrees of freedom, or where the eigenvalues of
    :math:`D^* W D` reach down to rounding error, which would decide the sum.
    """
    spare, size = problem.equations - len(values), float(X.norm())
    if spare <= 0 or not size or full_rank_margin(values) <= 1:
        return None
    left = residual * float(problem.y_norm)
    return math.sqrt(left * left / spare * float(np.sum(1 / values))) / size


def has_full_rank(problem: Problem, X: TuckerTensor, seed: Seed) -> bool:
    """Whether D has full rank, by products alone: some 30 passes, 400 at most.

    The measurements of a random tangent vector are solved for that vector by LSMR. What is missed
    has next to no measurements where D has a null space, and otherwise those of its smallest
    singular values.
    """
    model = ProductModel.at(problem, X)
    core = X.core
    draws = generator(as_seed(seed), Stream.PROBE).standard_normal((2, model.T.dof))
    g = like(draws[0] + 1j * draws[1] if is_complex(core) else draws[0], core, core.dtype)
    seen = model.design.matvec(g)
    length = math.sqrt(dot(g, g))
    unit = float(problem.weighted_norm(seen)) / length
    for accuracy in (1e-4, 10 * eps(core) ** 0.5):
        missed = replace(model, residual=seen).step(0.0, accuracy).xi - g
        size = math.sqrt(dot(missed, missed))
        if size < 0.01 * length / model.T.dof**0.5:  # the part of g along one direction is larger
            return True
    return bool(float(problem.weighted_norm(model.design.matvec(missed))) > NOT_SEEN * size * unit)


def dot(a: Array, b: Array) -> Any:
    """Real inner products of coordinates: a NumPy number, or an array of one for each vector."""
    return to_numpy(real(namespace(a, b).sum(conj(a) * b, axis=-1)))


def finite_vectors(x: Array) -> np.ndarray[Any, Any]:
    """Whether all entries of every vector of a batch are finite."""
    xp = namespace(x)
    found: np.ndarray[Any, Any] = to_numpy(xp.isfinite(xp.sum(xp.abs(x), axis=-1)))
    return found
