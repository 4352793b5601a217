r"""Accuracy: what the linear model at X says of its error.

With D the tangent design at X, W the weights and r the residual, a fit differs from the truth by

.. math:: \|D^+ r\|^2 + \sigma^2 \, \mathrm{tr}\,(D^* W D)^{-1}, \qquad
    \sigma^2 = \|r - D D^+ r\|^2 / (m - dof)

The first part is what another Gauss-Newton step would still change, the second what noise in the
measurements has changed. Both presume that the residual is noise, or vanishes: that is for
:mod:`~lowtucker.recovery.diagnosis` to find out.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np

from lowtucker._array import eps, is_complex, real, to_numpy
from lowtucker._array.linalg import eigh
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker._array.readings import uncounted
from lowtucker.problem import Problem
from lowtucker.run.result import Result
from lowtucker.solvers.crew import Trace
from lowtucker.solvers.models import Model, ProductModel, dot, full_rank_margin, has_full_rank
from lowtucker.solvers.rsgd import Blocks
from lowtucker.status import Status
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.uncertainty.information import gram_is_affordable, random_noise

__all__ = [
    "COSTLY",
    "Accuracy",
    "accuracy_at",
    "accuracy_of_block",
    "accuracy_unexamined",
]

# Flops of a gram matrix that is formed for the check; more are left to products
COSTLY = 1e10
# Accuracy of solves by products, and the degrees of freedom that random probes should have in all
SOLVED, PROBED = 1e-3, 200
# Quantiles of the interval: 95 %
LOW, HIGH = 0.025, 0.975
# What is left of a fit that has not converged is known up to this factor
UNFINISHED = 2.0
# Noise, in units of the step, that changes the interval by some 1e-6 of it: its quantiles,
# at most 32 squared, are left out. To load scipy.special takes longer than a small fit
NEGLIGIBLE = 1e-4
# A block's smallest eigenvalue, in units of that of isotropic rows, below which all rows are read
ISOTROPIC = 0.1


@dataclass(frozen=True)
class Accuracy:
    r"""What the linear model at X says of its error; all lengths relative to that of X.

    Attributes
    ----------
    step : float
        :math:`\|D^+ r\|`, what another Gauss-Newton step would change.
    noise : float
        :math:`\sigma (\mathrm{tr}\,(D^* W D)^{-1})^{1/2}`; infinite where D has not full rank.
    sigma : float
        Standard deviation of the residual, :math:`\|r\| / \sqrt{m - dof}`.
    directions : float
        Number of directions that the error by noise is spread over,
        :math:`(\sum_i 1/\lambda_i)^2 / \sum_i 1/\lambda_i^2` with the eigenvalues of
        :math:`D^* W D`; twice that of a complex X, whose coordinates have two parts.
    spare : int
        Equations beyond the degrees of freedom, in the same units; 0 where sigma is given.
    margin : float
        Smallest eigenvalue in units of what rounding makes of zero: below 1, D has not full rank.
    share : float
        The same relative to the largest eigenvalue; NaN if it was not computed.
    worst : float
        Relative change of X in the weakest direction by a relative residual of 1 there; 0 if it
        was not computed.
    """

    step: float
    noise: float
    sigma: float
    directions: float
    spare: int
    margin: float
    share: float
    worst: float = 0.0

    @property
    def determined(self) -> bool:
        """Whether D has full rank: no other tensor near X has the same measurements."""
        return self.margin > 1

    @property
    def error(self) -> float:
        """Relative error to expect."""
        return math.hypot(self.step, self.noise)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the relative error is to be expected in 95 of 100 cases, by the F distribution.

        Of 210 noisy fits with 1 to 7 measurements per degree of freedom 94.8 % were inside.
        """
        quantiles = self._quantiles() if self.noise > NEGLIGIBLE * self.step else (0.0, 0.0)
        low, high = (math.sqrt(q) * self.noise for q in quantiles)
        return math.hypot(self.step / UNFINISHED, low), math.hypot(self.step * UNFINISHED, high)

    def _quantiles(self) -> tuple[float, float]:
        """Quantiles of the squared error by noise, in units of its mean."""
        from scipy.special import chdtri, fdtri  # a module that takes long to load

        nu = max(self.directions, 1.0)
        if not self.spare:
            return float(chdtri(nu, 1 - LOW)) / nu, float(chdtri(nu, 1 - HIGH)) / nu
        return float(fdtri(nu, self.spare, LOW)), float(fdtri(nu, self.spare, HIGH))

    def with_sigma(self, sigma: float) -> Accuracy:
        """Accuracy where the standard deviation of the noise is known."""
        factor = sigma / self.sigma if self.sigma else 0.0
        noise = self.noise * factor if math.isfinite(self.noise) else self.noise
        return replace(self, noise=noise, sigma=sigma, spare=0)


def accuracy_at(problem: Problem, result: Result, seed: Seed) -> Accuracy:
    """Accuracy of a result, by all measurements.

    No pass where the solver has just formed the normal equations there; one pass, and dof^2
    numbers, where it pays to form them, or dof forwards and m dof numbers where the operator has
    no tangent design of its own; otherwise some 20 to 100 passes, by products.
    """
    X = result.X
    model = _model_of(problem, result)
    if model is None and gram_is_affordable(problem, X, COSTLY):
        with uncounted() if _lost_its_model(problem, result) else nullcontext():
            model = Model.at(problem, X)
    if model is None:
        return _by_products(problem, X, seed)
    return _by_eigenvalues(problem, model)


def accuracy_of_block(problem: Problem, result: Result) -> Accuracy | None:
    r"""Accuracy of a fit to the tolerance, by a block of rows that the solver used last. No pass.

    Since :math:`\|D e\| \ge \|D_b e\|`, the smallest eigenvalue of a block bounds the error; for
    isotropic rows the residual is about that of an error in any direction. None where there is no
    such block, rows are not declared isotropic, or this one's eigenvalues are not those of
    isotropic rows.
    """
    cache = None if result.state is None else result.state.cache
    if not isinstance(cache, Model) or not problem.A.traits.isotropic:
        return None
    rows, size = cache.residual.shape[0], float(result.X.norm())
    values = to_numpy(real(eigh(cache.equations.gram)[0])) * (problem.m / rows)
    mean, dof = float(np.mean(values)), len(values)
    expected = max(1 - math.sqrt(dof / rows), 0.0) ** 2
    if not size or not values[0] > ISOTROPIC * expected * mean > 0:
        return None
    left = result.residual * float(problem.y_norm)
    step = math.hypot(left / math.sqrt(mean), _rounding(problem, float(np.sum(1 / values)))) / size
    share = float(values[0] / values[-1])
    return Accuracy(step, 0.0, 0.0, 1.0, 0, full_rank_margin(values), share)


def accuracy_unexamined(result: Result) -> Accuracy:
    """Accuracy of a fit to the tolerance whose design is too large to look at.

    Plenty of measurements are taken to see errors in all directions equally.
    """
    return Accuracy(float(result.residual), 0.0, 0.0, 1.0, 0, math.inf, math.nan)


def _model_of(problem: Problem, result: Result) -> Model | None:
    """Normal equations that the solver left, if they are those of X and of all rows."""
    cache = None if result.state is None else result.state.cache
    if not isinstance(cache, Model) or cache.residual.shape[0] != problem.m:
        return None
    residual = float(problem.relative(cache.residual))
    return cache if abs(residual - result.residual) <= 1e-9 * result.residual else None


def _lost_its_model(problem: Problem, result: Result) -> bool:
    """Whether a checkpoint has not kept normal equations at X: their pass was counted before."""
    state = result.state
    if state is None or state.cache is not None:
        return False
    if isinstance(state.memory, Blocks):  # those of a block, which are enough for isotropic rows
        enough = state.t > 0 and result.status is Status.CONVERGED
        return bool(enough and problem.A.traits.isotropic)
    if not isinstance(state.memory, Trace):
        return False
    level = min(start.level for start in state.memory.starts)
    return bool(abs(level - result.residual) <= 1e-9 * result.residual)


def _by_eigenvalues(problem: Problem, model: Model) -> Accuracy:
    """Accuracy by the eigenvalues of the normal equations."""
    gram, gradient, residual = model.equations
    values, vectors = (to_numpy(part) for part in eigh(gram))
    values, size = real(values), float(model.T.X.norm())
    margin, share, rounding = full_rank_margin(values), 0.0, eps(values)
    values = np.asarray(values, dtype=np.float64)
    if values[-1] > 0:
        share = float(values[0] / values[-1])
    seen = np.abs(vectors.conj().T @ to_numpy(gradient)) ** 2
    kept = values > values[-1] * 10 * len(values) * rounding
    step = math.sqrt(float(np.sum(seen[kept] / values[kept] ** 2)))
    fitted = float(np.sum(seen[kept] / values[kept]))
    spare = max(int(problem.equations) - len(values), 0)
    left = max(float(problem.weighted_norm(residual)) ** 2 - fitted, 0.0)
    sigma = math.sqrt(left / spare) if spare else 0.0
    if margin <= 1 or not size:
        return Accuracy(_over(step, size), math.inf, sigma, 1.0, spare, margin, share)
    inverse = float(np.sum(1 / values))
    step = math.hypot(step, _rounding(problem, inverse))
    parts = _parts(model.T.X)
    directions = parts * inverse**2 / float(np.sum(1 / values**2))
    noise = sigma * math.sqrt(inverse) / size
    worst = float(problem.y_norm) / (math.sqrt(float(values[0])) * size)
    return Accuracy(step / size, noise, sigma, directions, parts * spare, margin, share, worst)


def _by_products(problem: Problem, X: TuckerTensor, seed: Seed) -> Accuracy:
    """Accuracy by least-squares solves for the residual and for random noise (LSMR)."""
    size, dof = float(X.norm()), X.degrees_of_freedom
    model = ProductModel.at(problem, X)
    spare = max(int(problem.equations) - dof, 0)
    xi = model.step(0.0, SOLVED).xi
    step = math.sqrt(dot(xi, xi))
    left = float(problem.weighted_norm(model.residual - model.design.matvec(xi)))
    sigma = left / math.sqrt(spare) if spare else 0.0
    if not has_full_rank(problem, X, seed):
        return Accuracy(_over(step, size), math.inf, sigma, 1.0, spare, 0.0, math.nan)
    draws = generator(as_seed(seed), Stream.PROBE)
    squares = []
    for _ in range(math.ceil(PROBED / dof) if dof < PROBED else 1):
        xi = replace(model, residual=random_noise(problem, X, draws)).step(0.0, SOLVED).xi
        squares.append(dot(xi, xi))
    inverse = float(np.mean(squares))
    step = math.hypot(step, _rounding(problem, inverse))
    parts = _parts(X)
    directions = float(parts * dof)
    if np.ptp(squares):
        directions = min(directions, 2 * inverse**2 / float(np.var(squares, ddof=1)))
    noise = sigma * math.sqrt(inverse) / size
    return Accuracy(step / size, noise, sigma, directions, parts * spare, math.inf, math.nan)


def _rounding(problem: Problem, inverse: float) -> float:
    """Error that rounding of the measurements makes."""
    return eps(problem.y) * float(problem.y_norm) * math.sqrt(inverse / problem.m)


def _parts(X: TuckerTensor) -> int:
    """Real numbers of a coordinate."""
    return 2 if is_complex(X.core) else 1


def _over(length: float, size: float) -> float:
    return length / size if size else math.inf
