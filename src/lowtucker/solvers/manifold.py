"""What the Riemannian solvers share: binding to one problem, the start, the linear model at X."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import Array, conj, eps, is_complex, like, namespace, real, to_numpy
from lowtucker._array.clock import TimeUp, check_time, unwatched
from lowtucker._array.linalg import eigvalsh, solve
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.operators.design import NormalEquations, TangentDesign
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Memory, Solver, State
from lowtucker.solvers.iht import settle_thresholding
from lowtucker.solvers.start import adopt, as_start, first_state
from lowtucker.tensor.products import exponent, norm, shifted
from lowtucker.tensor.rank import attainable_rank, check_rank
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = [
    "Manifold",
    "Model",
    "ProductModel",
    "blown_up",
    "bootstrap_start",
    "covariance_error",
    "damped_step",
    "dot",
    "eigenvalues",
    "full_rank_margin",
    "has_full_rank",
]


# Rows that settle the scale of a start: to some ten per cent, which is enough
ROWS = 64
# Most iterations of LSMR in a step
INNER = 200
# Directions whose measurements are smaller than those of others by so much are not measured
NOT_SEEN = 1e-3


class Step(NamedTuple):
    """A step in tangent coordinates, the fall of the cost it promises, and the passes it took."""

    xi: Array
    promise: float
    passes: float


class Model(NamedTuple):
    """Linear model of the measurements at X: the normal equations and the residual."""

    T: TangentSpace
    equations: NormalEquations

    @classmethod
    def at(cls, problem: Problem, X: TuckerTensor) -> Model:
        """Model of a problem or a block, by one pass over its rows."""
        T = TangentSpace(X)
        return cls(T, problem.A.tangent(T).normal_equations(problem.y, problem.weights))

    @property
    def passes(self) -> float:
        """Passes over the rows that it took."""
        return 1.0

    @property
    def residual(self) -> Array:
        """Residual r = y - A(X)."""
        return self.equations.residual

    @property
    def gradient(self) -> Array:
        """D^* W r."""
        return self.equations.gradient

    def step(self, damping: float, _accuracy: float) -> Step:
        """Damped least squares, from the normal equations. No pass."""
        xi = damped_step(self.equations, damping)
        gram, gradient = self.equations[:2]
        return Step(xi, 2 * dot(xi, gradient) - dot(xi, gram @ xi), 0.0)


class ProductModel(NamedTuple):
    """The same model by products with D alone, where the gram matrix would be too large."""

    T: TangentSpace
    design: TangentDesign
    weights: Array | None
    residual: Array
    gradient: Array
    scale: float  # s, by what the measurements see of X itself

    @classmethod
    def at(cls, problem: Problem, X: TuckerTensor) -> ProductModel:
        """Model of a problem, by the residual and D^* r."""
        T = TangentSpace(X)
        design = problem.A.tangent(T)
        residual, gradient = design.misfit(problem.y, problem.weights)
        seen = float(problem.weighted_norm(problem.y - residual))
        ratio = seen / (float(X.norm()) or 1.0)
        return cls(T, design, problem.weights, residual, gradient, ratio * ratio)

    @property
    def passes(self) -> float:
        """Passes over the rows that it took."""
        return 2.0

    def step(self, damping: float, accuracy: float) -> Step:
        """Damped least squares by LSMR, to a relative accuracy. Two passes an iteration.

        Complex numbers are pairs of real ones to it: the inner product is its real part. It gets
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
            x, _, iterations, *_ = lsmr(
                D, shifted(b, -size), damp, atol=accuracy, btol=accuracy, conlim=0, maxiter=INNER
            )
        fall = math.ldexp(float(norm(times(x))), size)
        xi = shifted(_from_reals(x, core), size - unit)
        promise = 2 * dot(xi, self.gradient) - fall * fall
        return Step(xi, promise, 2.0 * iterations + 2)


def _as_reals(x: Array) -> Any:
    """Vector of numbers as NumPy reals; complex ones as pairs."""
    flat = np.ascontiguousarray(to_numpy(x))
    return flat.view(real(flat).dtype)


def _from_reals(x: Any, example: Array) -> Array:
    """Go back, to numbers of the kind of an example."""
    x = np.ascontiguousarray(x, dtype=to_numpy(real(example[:0, ...])).dtype)
    return like(x.view(to_numpy(example[:0, ...]).dtype), example)


@dataclass(frozen=True)
class Level(Memory):
    """Relative residual of the rows that the last step read, before it; 0 if not known."""

    level: Array


@dataclass(frozen=True, repr=False, kw_only=True)
class Manifold(Solver):
    """Solver on the tensors of one Tucker rank; it takes one problem, not a batch.

    A subclass has ``advance``, ``_first_memory``, and ``_look`` where the next step needs what is
    measured at X beforehand.
    """

    def bind(self, problem: Problem, rank: tuple[int, ...] | None) -> Bound:
        """Settle the rank: what no tensor attains is clipped."""
        name = type(self).__name__
        if problem.batch_shape:
            raise ValueError(
                f"{name} takes one problem, got a batch of {problem.batch_shape}. Solve them one "
                "by one, or use TIHT or StoTIHT."
            )
        if rank is None:
            raise ValueError(f"{name} needs a rank: give rank=(r1, ..., rd).")
        return Bound(self, problem, attainable_rank(check_rank(rank, problem.shape)))

    def init(self, bound: Bound, start: Any, seed: Seed) -> State:
        """State at the start: a given tensor, or the truncated adjoint, scaled."""
        problem, rank = bound.problem, bound.rank
        if isinstance(start, State):
            state = adopt(start, problem, rank, type(self._first_memory(start.X, 0.0)))
            if state.memory is None:
                state = replace(state, memory=self._first_memory(state.X, 1.0))
            return replace(self._looked(bound, state), passes=start.passes)
        X = as_start(start, problem, settle_thresholding(None, rank, problem))
        passes = level = 0.0
        if float(X.norm()) == 0:  # there is no tangent space at zero
            with unwatched():  # even a call that has no time left returns a start
                X, level, passes = self._own_start(bound, as_seed(seed), 0)
        memory = self._first_memory(X, level)
        return self._looked(bound, first_state(X, memory, as_seed(seed), passes))

    def _looked(self, bound: Bound, state: State) -> State:
        """State from which a step may follow; as it is where there is no time for one."""
        try:
            return self._look(bound, state)
        except TimeUp:
            return state

    def _first_memory(self, X: TuckerTensor, level: float) -> Memory:
        """Memory at a start with that relative residual on a few rows (0 if not known)."""
        return Level(level * namespace(X.core).ones_like(X.norm()))

    def _own_start(self, bound: Bound, seed: Seed, k: int) -> tuple[TuckerTensor, float, float]:
        """Start k, its relative residual on a few rows (0 if not known), and the passes."""
        return bootstrap_start(bound.problem, bound.rank, seed, k)

    def error_estimate(self, bound: Bound, state: State, residual: float) -> float | None:
        """Estimate by the covariance of the last model; see :func:`covariance_error`.

        A model of a block stands for all rows only where these are isotropic: a block of entries
        may miss a slice that others sample.
        """
        if not isinstance(state.cache, Model):
            return None
        problem = bound.problem
        T, equations = state.cache
        share = equations.residual.shape[0] / problem.m  # of the rows that the model has seen
        if share < 1 and not problem.A.traits.isotropic:
            return None
        try:
            values = real(eigvalsh(equations.gram)) / share
        except np.linalg.LinAlgError:
            return None
        return covariance_error(problem, T.X, to_numpy(values), residual)

    def _look(self, bound: Bound, state: State) -> State:
        """Measure at X what the next step needs: nothing, if it does so itself."""
        return state


def bootstrap_start(
    problem: Problem, rank: tuple[int, ...], seed: Seed, k: int
) -> tuple[TuckerTensor, float, float]:
    r"""Truncation of :math:`\mathcal{A}^*(w y)`, scaled by what some rows see of it.

    Also the relative residual of these rows, and the passes.

    w are the problem's weights for start 0; further starts multiply them by i.i.d. Exp(1)
    numbers: as if the measurements had been drawn again. The scale is that which fits the
    measurements of the first rows to y best; of all rows, where these are not isotropic.
    """
    y_plain = problem.y
    y = y_plain if problem.weights is None else problem.weights * y_plain
    if k:
        draws = generator(as_seed(seed), Stream.PROBE).spawn(k)[-1]
        y = like(draws.exponential(size=problem.m), y, real(y).dtype) * y
    X = problem.A.spectral_start(y, rank)
    size = float(X.norm())
    if not size:
        return X, 1.0, 1.0
    # were A a multiple c of an isometry, X would be c^2 X* and ||y|| = c ||X*||
    ratio = float(problem.y_norm) / size
    X = X * (ratio * ratio)
    few = min(problem.m, ROWS) if problem.A.traits.isotropic else problem.m
    one_block = problem.A.traits.row_separable and few < problem.m
    A = problem.A.restrict(slice(0, few)) if one_block else problem.A
    measured, y = A.forward(X)[:few], y_plain[:few]
    w = 1.0 if problem.weights is None else problem.weights[:few]
    seen = dot(w * measured, measured)
    factor = (abs(dot(w * measured, y)) / seen if seen > 0 else 0.0) or 1.0
    left = y - factor * measured
    size = dot(w * y, y)
    level = math.sqrt(dot(w * left, left) / size) if size > 0 else 1.0
    return X * factor, level, 1.0 + (few / problem.m if one_block else 1.0)


def damped_step(equations: NormalEquations, damping: float) -> Array:
    """Solve (D^* W D + damping s I) c = D^* W r, s the mean of the diagonal.

    The damping is kept above rounding: D may have less than full rank.
    """
    xp = namespace(equations.gram)
    diagonal = real(xp.linalg.diagonal(equations.gram))
    # a design of zeros has a gradient of zeros: any other matrix solves it
    scale = max(damping, 4 * eps(diagonal)) * float(xp.mean(diagonal)) or 1.0
    unit = like(np.eye(diagonal.shape[0]), equations.gram, equations.gram.dtype)
    return solve(equations.gram + scale * unit, equations.gradient)


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
        missed = model._replace(residual=seen).step(0.0, accuracy).xi - g
        size = math.sqrt(dot(missed, missed))
        if size < 0.01 * length / model.T.dof**0.5:  # the part of g along one direction is larger
            return True
    return bool(float(problem.weighted_norm(model.design.matvec(missed))) > NOT_SEEN * size * unit)


def blown_up(state: State) -> State:
    """State of a run whose next step is not finite: it stays where it is."""
    return replace(state, t=state.t + 1, diverged=state.diverged | True)


def dot(a: Array, b: Array) -> float:
    """Real inner product of coordinates."""
    return float(real(namespace(a).sum(conj(a) * b)))
