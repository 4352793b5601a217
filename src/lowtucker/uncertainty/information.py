r"""What the measurements say of a tensor near X: the linear model at X as a covariance.

With D the tangent design at X, W the weights and r the residual, a fit to noisy measurements has
tangent coordinates of the covariance

.. math:: C = \sigma^2 (D^* W D)^{-1}, \qquad \sigma^2 = \|r - D D^+ r\|_W^2 / (m - dof)

and a linear functional of tangent coordinates d, such as an entry, the variance :math:`d^* C d`.
With Huber's loss, whose weights depend on the residual, it is the sandwich
:math:`H^{-1} S H^{-1}`, where :math:`H = \sum_j \rho''(r_j) d_j d_j^*` and
:math:`S = \sum_j \psi(r_j)^2 d_j d_j^*`.

All of it presumes that X has the rank of the truth and that the residual is noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from lowtucker._array import (
    Array,
    adjoint,
    eps,
    is_complex,
    like,
    namespace,
    real,
    real_dtype,
    to_numpy,
)
from lowtucker._array.linalg import eigh
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.operators.design import FORMED, TangentDesign
from lowtucker.problem import Problem
from lowtucker.solvers.models import Model, ProductModel, dot, has_full_rank
from lowtucker.solvers.rgn import FEW, LARGE
from lowtucker.tensor.products import norm
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor

__all__ = [
    "UNKNOWN",
    "Information",
    "Noise",
    "ProductInformation",
    "gram_is_affordable",
    "information_at",
    "random_noise",
    "sigma_of",
]

# Share of a functional that lies in directions that nothing measures, above which it is unknown
UNSEEN = 1e-6
# Functionals that are solved for one by one, where only products are at hand; more are estimated
# by so many random draws, to 9 % (one standard deviation)
SOLVES, PROBES = 64, 64
# Where only products are at hand: random directions that show what is not measured, and the share
# of a squared functional that lies there above which it is unknown
DIRECTIONS, UNSEEN_BY_PRODUCTS = 8, 1e-4
# Accuracy of solves by products: squared in the variance by CG, as it is in random draws
SOLVED = 1e-3
# Flops of a gram matrix that is formed for error bars, half a minute
COSTLY = 1e12


class Noise(NamedTuple):
    """What is known of the noise, beside the residual.

    Attributes
    ----------
    std : float or None
        Standard deviation of a measurement, where it was given.
    huber : array or None
        Weights of the last fit with Huber's loss, times those that were given.
    """

    std: float | None = None
    huber: Any = None


UNKNOWN = Noise()


@dataclass(frozen=True, eq=False)
class Information:
    """Covariance of tangent coordinates at X, from the normal equations.

    Attributes
    ----------
    T : TangentSpace
        At X.
    root : array, shape (dof, k)
        Root of the covariance in units of sigma^2: C = sigma^2 root root^*.
    null : array, shape (dof, dof - k)
        Orthonormal directions that nothing measures.
    left : array, shape (dof,)
        What another Gauss-Newton step would change.
    sigma : float
        Standard deviation of a measurement of weight 1.
    spare : float
        Degrees of freedom of sigma, as real numbers; infinite where it is known.
    """

    T: TangentSpace
    root: Array
    null: Array
    left: Array
    sigma: float
    spare: float

    @classmethod
    def of_gram(
        cls, T: TangentSpace, gram: Array, left: Any, sigma: float, spare: float
    ) -> Information:
        """Information of normal equations, whose null space may not be empty.

        ``left`` is None, or the gradient of the model: the step is solved for.
        """
        root, null = _inverse_root(gram)
        xp = namespace(root)
        zeros = like(np.zeros(T.dof), root, root.dtype)
        step = zeros if left is None else xp.matmul(root, xp.matmul(adjoint(root), left))
        return cls(T, root, null, step, sigma, spare)

    def deviations(self, design: TangentDesign) -> Array:
        """Standard deviations of the rows of a design: of what it measures of X, shape (m,).

        One pass over its rows, and m dof^2 flops.
        """
        parts = [self.deviations_of(rows) for _, rows in design.rows()]
        return namespace(*parts).concat(parts)

    def deviations_of(self, rows: Array) -> Array:
        """Standard deviations of linear functionals of the coordinates, given as rows."""
        xp = namespace(rows)
        return _with_unknown(
            rows,
            self.sigma * norm(xp.matmul(rows, self.root), batch_ndim=1),
            xp.abs(xp.matmul(rows, self.left)),
            norm(xp.matmul(rows, self.null), batch_ndim=1),
        )

    def draws(self, count: int, seed: Seed) -> Array:
        """Draw tangent coordinates from the covariance, shape (count, dof)."""
        root, xp = self.root, namespace(self.root)
        numbers = _normal(count, root.shape[1], root, seed)
        scale = like(_t_scales(count, self.spare, seed)[:, None], numbers, numbers.dtype)
        return self.sigma * scale * xp.matmul(numbers, xp.matrix_transpose(root))

    @property
    def determined(self) -> bool:
        """Whether the measurements determine X."""
        return not self.null.shape[1] and math.isfinite(self.sigma)


@dataclass(frozen=True, eq=False)
class ProductInformation:
    """The same by products with D alone, where the gram matrix would be too large.

    Attributes
    ----------
    problem : Problem
    model : ProductModel
        At X.
    left : array, shape (dof,)
    sigma, spare : float
    seed : int
    """

    problem: Problem
    model: ProductModel
    left: Array
    sigma: float
    spare: float
    seed: Seed = 0

    @property
    def T(self) -> TangentSpace:
        """Tangent space at X."""
        return self.model.T

    @cached_property
    def determined(self) -> bool:
        """Whether the measurements determine X: some 30 to 400 passes, once."""
        return math.isfinite(self.sigma) and has_full_rank(self.problem, self.T.X, self.seed)

    def deviations(self, design: TangentDesign) -> Array:
        """Standard deviations of the rows of a design.

        Up to 64 rows are solved for, 20 to 100 passes each; more are estimated by 64 solves for
        random noise, to 9 %.
        """
        xp, left = namespace(self.left), design.matvec(self.left)
        if design.shape[0] <= SOLVES:
            spread = self._solved(design.dense())
        else:
            squares = _squares(design.matvec, self._probes) / len(self._probes)
            spread = self.sigma * xp.sqrt(squares)
        return self._where_seen(design.matvec, xp.sqrt(spread**2 + xp.abs(left) ** 2))

    def _where_seen(self, times: Callable[[Array], Array], spread: Array) -> Array:
        """Deviations; infinite for functionals that see directions that nothing measures."""
        if self.determined:
            return spread
        given, missed = self._unseen
        xp = namespace(spread)
        unseen = _squares(times, missed) > UNSEEN_BY_PRODUCTS * _squares(times, given)
        return xp.where(unseen, like(np.full(spread.shape, np.inf), spread, spread.dtype), spread)

    @cached_property
    def _unseen(self) -> tuple[list[Array], list[Array]]:
        """Random tangent vectors, and their parts that nothing measures."""
        given = _normal(DIRECTIONS, self.T.dof, self.left, self.seed)
        vectors = [given[k, :] for k in range(DIRECTIONS)]
        seen = [replace(self.model, residual=self.model.design.matvec(g)) for g in vectors]
        pairs = zip(vectors, seen, strict=True)
        return vectors, [g - model.step(0.0, SOLVED).xi for g, model in pairs]

    def deviations_of(self, rows: Array) -> Array:
        """Standard deviations of functionals of the coordinates: a solve by CG each."""
        xp = namespace(rows)
        spread = self._solved(rows)
        spread = xp.sqrt(spread**2 + xp.abs(xp.matmul(rows, self.left)) ** 2)
        return self._where_seen(lambda xi: xp.matmul(rows, xi), spread)

    def _solved(self, rows: Array) -> Array:
        """Deviations by noise: a solve by CG each."""
        xp = namespace(rows)
        columns = xp.conj(rows) if is_complex(rows) else rows
        variances = [
            max(float(dot(c, self.model.inverse_times(c, SOLVED))), 0.0)
            for c in (columns[k, :] for k in range(columns.shape[0]))
        ]
        return like(self.sigma * np.sqrt(variances), rows, real_dtype(rows))

    def draws(self, count: int, seed: Seed) -> Array:
        """Draw tangent coordinates: a solve for random noise each, 20 to 100 passes."""
        scales = self.sigma * _t_scales(count, self.spare, seed)
        made = _responses(self.problem, self.model, count, generator(as_seed(seed), Stream.PROBE))
        return namespace(self.left).stack(
            [float(s) * xi for s, xi in zip(scales, made, strict=True)]
        )

    @cached_property
    def _probes(self) -> list[Array]:
        draws = generator(as_seed(self.seed), Stream.PROBE)
        return list(_responses(self.problem, self.model, PROBES, draws))


def information_at(
    problem: Problem, X: TuckerTensor, noise: Noise = UNKNOWN, seed: Seed = 0
) -> Information | ProductInformation:
    """Information of the measurements at X, for a single problem.

    One pass and dof^2 numbers where normal equations can be formed, three passes with Huber's
    loss; otherwise some 20 to 100 passes, and more for every functional that is asked for.
    """
    if not gram_is_affordable(problem, X, COSTLY):
        return _by_products(problem, X, noise, seed)
    if noise.huber is not None:
        return _sandwich(problem, X, noise.huber)
    model = Model.at(problem, X)
    gram, gradient, residual = model.equations
    made = Information.of_gram(model.T, gram, gradient, 0.0, _spare(problem, X))
    fitted = float(dot(made.left, gradient))
    squares = float(problem.weighted_norm(residual)) ** 2 - fitted
    sigma, spare = _scale(problem, X, squares, noise)
    return replace(made, sigma=sigma, spare=spare)


def sigma_of(problem: Problem, noise_std: float) -> float:
    """Standard deviation of an equation of weight 1, where that of all measurements is given."""
    total = problem.m if problem.weights is None else float(to_numpy(problem.weights).sum())
    return float(noise_std * math.sqrt(total / problem.equations))


def random_noise(problem: Problem, X: TuckerTensor, draws: np.random.Generator) -> Array:
    """Random noise of variance 1 / weight in every measurement."""
    noise = draws.standard_normal((2, problem.m))
    values = noise[0] + 1j * noise[1] if is_complex(problem.y) else noise[0]
    if problem.weights is not None:
        weights = to_numpy(problem.weights)
        values = np.where(weights > 0, values / np.sqrt(np.where(weights > 0, weights, 1)), 0)
    return like(values / math.sqrt(2) if is_complex(X.core) else values, problem.y, problem.y.dtype)


def gram_is_affordable(problem: Problem, X: TuckerTensor, flops: float) -> bool:
    """Whether normal equations at X take at most so many flops; for every problem of a batch.

    They cost a pass, or dof forwards and m dof numbers where the operator has no tangent design of
    its own. Solves by products take 100 passes and more, and do not see directions that are hardly
    measured.
    """
    dof, m = X.degrees_of_freedom, int(np.max(problem.equations))
    fast = problem.A.traits.has_fast_tangent
    small = dof <= LARGE if fast else dof <= FEW and m * dof <= FORMED
    return bool(small and m * dof**2 <= flops)


def _parts(X: TuckerTensor) -> int:
    """Real numbers of a coordinate."""
    return 2 if is_complex(X.core) else 1


def _spare(problem: Problem, X: TuckerTensor) -> float:
    return float(_parts(X) * max(int(problem.equations) - X.degrees_of_freedom, 0))


def _scale(problem: Problem, X: TuckerTensor, squares: float, noise: Noise) -> tuple[float, float]:
    """Sigma, and its degrees of freedom: given, or by the squares of the residual."""
    rounding = eps(problem.y) * float(problem.y_norm) / math.sqrt(problem.m)
    if noise.std is not None:
        return math.hypot(sigma_of(problem, noise.std), rounding), math.inf
    spare = _spare(problem, X)
    if not spare:
        return math.inf, 0.0
    sigma = math.sqrt(_parts(X) * max(squares, 0.0) / spare)
    return math.hypot(sigma, rounding), spare


def _by_products(problem: Problem, X: TuckerTensor, noise: Noise, seed: Seed) -> ProductInformation:
    """Information by products; Huber's weights count as given ones."""
    if noise.huber is not None:
        problem = Problem(problem.A, problem.y, noise.huber, _trusted=True)
    model = ProductModel.at(problem, X)
    left = model.step(0.0, SOLVED).xi
    rest = float(problem.weighted_norm(model.residual - model.design.matvec(left)))
    sigma, spare = _scale(problem, X, rest * rest, noise)
    return ProductInformation(problem, model, left, sigma, spare, seed)


def _sandwich(problem: Problem, X: TuckerTensor, weights: Array) -> Information:
    r"""Information of a fit with Huber's loss: :math:`H^{-1} S H^{-1}`.

    A residual in the quadratic part has :math:`\rho'' = 1`, one in the linear part 0; for complex
    residuals the mean over directions, half its weight. S is multiplied by m / (m - dof).
    """
    given = np.ones(problem.m) if problem.weights is None else to_numpy(problem.weights)
    used = to_numpy(weights)
    share = used / np.where(given > 0, given, 1.0)
    beyond = share / 2 if is_complex(problem.y) else 0.0
    curvature = given * np.where(share >= 1 - 1e-9, 1.0, beyond)
    model = _weighted(problem, X, curvature)
    gram, _, residual = model.equations
    spread = _weighted(problem, X, (used * np.abs(to_numpy(residual))) ** 2).equations.gram
    counting = Problem(problem.A, problem.y, weights, _trusted=True)
    spare = _spare(counting, X)
    root, null = _inverse_root(gram)
    xp = namespace(root)
    values, vectors = eigh(spread)
    roots = xp.sqrt(xp.where(values > 0, values, xp.zeros_like(values)))
    half = xp.matmul(adjoint(root), vectors * roots)  # H^-1 = root root^*
    left = like(np.zeros(model.T.dof), root, root.dtype)
    equations = float(_parts(X) * int(counting.equations))
    sigma = math.sqrt(equations / spare) if spare else math.inf
    return Information(model.T, xp.matmul(root, half), null, left, sigma, spare)


def _weighted(problem: Problem, X: TuckerTensor, weights: Any) -> Model:
    made = like(weights, problem.y, real_dtype(problem.y))
    return Model.at(Problem(problem.A, problem.y, made, _trusted=True), X)


def _inverse_root(gram: Array) -> tuple[Array, Array]:
    """Root R of the inverse of a gram matrix, R R^*, and a basis of its null space."""
    values, vectors = eigh(gram)
    sizes = to_numpy(real(values))
    rounding = 10 * len(sizes) * eps(sizes) * float(sizes[-1])
    unseen = int(np.count_nonzero(sizes <= rounding))
    kept = like(1 / np.sqrt(sizes[unseen:]), vectors, vectors.dtype)
    return vectors[:, unseen:] * kept, vectors[:, :unseen]


def _with_unknown(rows: Array, spread: Array, left: Array, unseen: Array) -> Array:
    """Deviations of rows; infinite where they are not measured."""
    xp = namespace(spread)
    known = unseen <= UNSEEN * norm(rows, batch_ndim=1)
    unknown = like(np.full(spread.shape, np.inf), spread, spread.dtype)
    return xp.where(known, xp.sqrt(spread**2 + left**2), unknown)


def _squares(times: Callable[[Array], Array], vectors: list[Array]) -> Array:
    """Sum over tangent vectors of the squares of what is measured of them."""
    xp = namespace(vectors[0])
    total: Any = 0.0
    for xi in vectors:
        total = total + xp.abs(times(xi)) ** 2
    return total


def _responses(
    problem: Problem, model: ProductModel, count: int, draws: np.random.Generator
) -> Iterable[Array]:
    """Coordinates of fits to random noise."""
    for _ in range(count):
        noise = random_noise(problem, model.T.X, draws)
        yield replace(model, residual=noise).step(0.0, SOLVED).xi


def _normal(count: int, length: int, example: Array, seed: Seed) -> Array:
    """Independent normal numbers; complex ones have variance 1 as well."""
    draws = generator(as_seed(seed), Stream.PROBE).standard_normal((2, count, length))
    values = (draws[0] + 1j * draws[1]) / math.sqrt(2) if is_complex(example) else draws[0]
    return like(values, example, example.dtype)


def _t_scales(count: int, spare: float, seed: Seed) -> np.ndarray[Any, Any]:
    """Factors that make normal draws draws from a t distribution: sigma is estimated."""
    if not math.isfinite(spare):
        return np.ones(count)
    squares = generator(as_seed(seed), Stream.SCALE).chisquare(spare, count)
    return np.asarray(np.sqrt(spare / squares))
