r"""The contraction factor of Theorem 5.1: as printed, and as it can be proved.

``docs/theory.md`` derives the repaired constants step by step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from lowtucker._array import as_integer, as_number, to_numpy
from lowtucker.tensor.rank import check_rank
from lowtucker.tensor.unfolding import unfold
from lowtucker.thresholding import Thresholding

__all__ = ["Contraction", "Source", "Version", "best_step", "contraction"]

NumPyArray = np.ndarray[Any, Any]
# Largest step whose square does not overflow
LONGEST = 1e100
Version = Literal["paper", "repaired"]
Source = Literal["given", "at most", "at least", "sampled"]


@dataclass(frozen=True)
class Contraction:
    r"""Constants of Theorem 5.1, :math:`E\|X^{t+1} - X^*\| \le \kappa \|X^t - X^*\| + \sigma`.

    Attributes
    ----------
    version : "paper" or "repaired"
    delta : float
        :math:`\delta_{3r}` of Definition 5.1.
    step : float
        :math:`\mu`.
    eta : float
        Quasi-optimality of the thresholding, equation (3.6).
    n_blocks : int
        M, the number of iterations per epoch.
    rho_plus, rho_minus, alpha : float
        :math:`\rho^+, \rho^-, \alpha` of the theorem.
    lipschitz : float or None
        :math:`L = \max_i w_i L_i`, which bounds the unprojected gradient; not in the paper.
    kappa, sigma : float
    source : "given", "at most", "at least" or "sampled"
        Origin of delta: only a given value or an upper bound gives a guarantee.
    scale_squared : float
        The square of the scale c. The constants are those of c A, with the step divided by
        c^2: ``contraction(delta, step / scale_squared, ...)`` reproduces them.
    """

    version: Version
    delta: float
    step: float
    eta: float
    n_blocks: int
    rho_plus: float
    rho_minus: float
    alpha: float
    lipschitz: float | None
    kappa: float
    sigma: float
    source: Source = "given"
    scale_squared: float = 1.0

    @property
    def contracts(self) -> bool:
        """Whether the bound decreases: kappa < 1."""
        return self.kappa < 1

    @property
    def proves(self) -> bool:
        """Whether this is a guarantee: kappa < 1, with a given delta or an upper bound on it."""
        return self.contracts and self.source in ("given", "at most")

    def error_bound(self, t: Any, error: float) -> Any:
        r"""Bound on the expected error after t iterations, from a start at distance ``error``.

        .. math:: \kappa^t \|X^0 - X^*\|_F + \sigma \frac{1 - \kappa^t}{1 - \kappa}

        The last line of the paper's proof drops the factor of :math:`\sigma`, and so does
        ``version="paper"``.

        Parameters
        ----------
        t : int, or array of them
        error : float
            :math:`\|X^0 - X^*\|_F`; relative to :math:`\|X^*\|_F` it is 1 for a start at zero, but
            sigma is absolute.

        Examples
        --------
        >>> c = contraction(delta=0.05, step=0.9)
        >>> round(c.kappa, 3), round(c.error_bound(10, error=1.0), 4)
        (0.626, 0.0092)
        """
        error = as_number(error, "error", 0)
        steps = np.asarray(t, dtype=float)
        if not (np.isfinite(steps).all() and (steps >= 0).all()):
            raise ValueError(f"t must be a number of iterations, 0 or more, got {t!r}.")
        with np.errstate(over="ignore", invalid="ignore"):
            powers = np.power(self.kappa, steps)
            bound = powers * error if error else np.zeros_like(steps)  # inf * 0 is 0 here
            if self.version == "paper" or not self.sigma:
                bound = bound + self.sigma
            elif self.kappa == 1:
                bound = bound + self.sigma * steps
            else:
                bound = bound + self.sigma * (1 - powers) / (1 - self.kappa)
        return bound if steps.ndim else float(bound)

    def __str__(self) -> str:
        verdict = "no guarantee"
        if self.contracts:
            verdict = "the error decreases" if self.proves else "no guarantee: delta may be larger"
        size = "" if self.lipschitz is None else f", L = {self.lipschitz:.4g}"
        source = "" if self.source == "given" else f" ({self.source})"
        scale = "" if self.scale_squared == 1 else f", for A times {self.scale_squared**0.5:.4g}"
        return (
            f"Theorem 5.1, {self.version}: kappa = {self.kappa:.4g} ({verdict}), "
            f"sigma = {self.sigma:.4g}\n"
            f"  delta_3r = {self.delta:.4g}{source}, step = {self.step:.4g}, eta = {self.eta:.4g}, "
            f"M = {self.n_blocks}{scale}\n"
            f"  rho+ = {self.rho_plus:.4g}, rho- = {self.rho_minus:.4g}, "
            f"alpha = {self.alpha:.4g}{size}"
        )


def contraction(
    delta: float,
    step: float,
    p: Any = None,
    n_blocks: int | None = None,
    eta: Any = 1.0,
    version: Version = "repaired",
    block_norms: Any = None,
    gradients: Sequence[Any] | None = None,
    *,
    rank: tuple[int, ...] | None = None,
    block_sizes: Any = None,
) -> Contraction:
    r"""Contraction factor and tolerance of Theorem 5.1.

    With :math:`w_i = 1/(M p(i))`, ``version="paper"`` is as printed,
    :math:`\rho^+ = 2(1+\delta)`, :math:`\rho^- = 1-\delta`, :math:`\alpha = \max_i w_i \rho^+`,

    .. math::

        \kappa = 2\sqrt{1-(2-\mu\alpha)\mu\rho^-}
            + \sqrt{\eta^2-1}\,\sqrt{1+\mu^2\alpha\rho^+ - 2\mu\rho^-},

    which is never below :math:`\sqrt 2`: the first radicand is least at :math:`\mu = 1/\alpha`,
    where it is :math:`1 - \rho^-/\alpha`, and :math:`\alpha \ge \rho^+ \ge 2 \rho^-`. So the
    theorem as printed guarantees nothing.

    ``version="repaired"`` is a bound that can be proved: the losses are quadratic, so
    :math:`\rho^+ = 1+\delta`, and the unprojected gradient is bounded by the norms of the blocks,
    :math:`L_i = \|\mathcal{A}_{b_i}\|^2 / b_i`, :math:`L = \max_i w_i L_i`, in place of (5.6),

    .. math::

        \kappa = 2\sqrt{1+(\mu^2\alpha-2\mu)\,q} + \sqrt{\eta^2-1}\,\sqrt{1+(\mu^2 L-2\mu)\,q'},

    with :math:`q = \rho^-` while :math:`\mu\alpha \le 2` and :math:`\rho^+` above, and
    :math:`q'` the same with L.

    Parameters
    ----------
    delta : float
        :math:`\delta_{3r}`, between 0 and 1; see :func:`trip`.
    step : float
        :math:`\mu` of Algorithm 1: it multiplies the mean gradient of a block.
    p : M numbers, optional
        Probabilities of the blocks; uniform by default.
    n_blocks : int, optional
        M; by default the length of p, or 1, which is TIHT.
    eta : float or Thresholding
        Quasi-optimality of the thresholding, equation (3.6); see :func:`eta`. A thresholding has
        its own: 1 for ``lowtucker.Sparse(5)``, :math:`\sqrt{d-1}` for tensor trains.
    version : "repaired" or "paper"
    block_norms : M numbers, optional
        :math:`L_i`; required by the repaired version if eta > 1.
    gradients : M arrays, optional
        :math:`\nabla f_i(X^*)`, for sigma. Without noise they are zero, and so is sigma.
    rank : tuple of int, optional
        Rank of :math:`X^*`. It sharpens sigma: :math:`\|P_U g\|^2` is then at most the energy of
        the :math:`3 r_k` largest singular values of :math:`g_{(k)}`, for each k and any
        :math:`U^t`. Without it, the bound is :math:`\|g\|^2`.
    block_sizes : M numbers, optional
        :math:`b_i`, if b does not divide m: then :math:`w_i = b_i/(m\,p(i))`.

    Returns
    -------
    Contraction

    Examples
    --------
    >>> print(contraction(delta=0.05, step=0.9))
    Theorem 5.1, repaired: kappa = 0.626 (the error decreases), sigma = 0
      delta_3r = 0.05, step = 0.9, eta = 1, M = 1
      rho+ = 1.05, rho- = 0.95, alpha = 1.05
    >>> round(contraction(delta=0.0, step=0.5, version="paper").kappa, 4)  # the minimum
    1.4142
    """
    step = as_number(step, "step", positive=True)
    if step > LONGEST:
        raise ValueError(
            f"step must be at most {LONGEST:g}, got {step:g}: larger steps do not contract."
        )
    setting = _Setting.checked(delta, p, n_blocks, eta, version, block_norms, block_sizes)
    sigma = 0.0 if gradients is None else setting.sigma(step, gradients, rank)
    return Contraction(
        version=version,
        delta=setting.delta,
        step=step,
        eta=setting.eta,
        n_blocks=len(setting.p),
        rho_plus=setting.rho_plus,
        rho_minus=setting.rho_minus,
        alpha=setting.alpha,
        lipschitz=setting.lipschitz,
        kappa=setting.kappa(step),
        sigma=sigma,
    )


def best_step(
    delta: float,
    p: Any = None,
    n_blocks: int | None = None,
    eta: Any = 1.0,
    version: Version = "repaired",
    block_norms: Any = None,
    *,
    block_sizes: Any = None,
) -> float:
    r"""Return the step with the smallest :math:`\kappa`: :math:`1/\alpha` for eta = 1.

    Parameters
    ----------
    delta, p, n_blocks, eta, version, block_norms, block_sizes
        As in :func:`contraction`.

    Examples
    --------
    >>> round(best_step(delta=0.25), 4)  # 1 / (1 + delta)
    0.8
    >>> step = best_step(delta=0.0, eta=3**0.5, block_norms=[1.2])
    >>> contraction(0.0, step, eta=3**0.5, block_norms=[1.2]).contracts
    True
    """
    setting = _Setting.checked(delta, p, n_blocks, eta, version, block_norms, block_sizes)
    if setting.eta == 1:
        return 1 / setting.alpha
    from scipy.optimize import minimize_scalar

    # both roots are convex in the step, with minima at 1/alpha and 1/L (or below)
    largest = 1 / min(setting.alpha, setting.lipschitz or math.inf)
    found = minimize_scalar(
        setting.kappa, bounds=(0, largest), method="bounded", options={"xatol": 1e-10 * largest}
    )
    return min(float(found.x), 1 / setting.alpha, largest, key=setting.kappa)


@dataclass(frozen=True)
class _Setting:
    """The parameters of kappa other than the step."""

    version: Version
    delta: float
    eta: float
    p: NumPyArray
    weights: NumPyArray
    lipschitz: float | None

    @classmethod
    def checked(
        cls, delta: Any, p: Any, n_blocks: Any, eta: Any, version: Any, norms: Any, sizes: Any
    ) -> _Setting:
        """Check the arguments of :func:`contraction`."""
        eta = eta.eta if isinstance(eta, Thresholding) and not isinstance(eta, type) else eta
        if eta != eta:
            raise ValueError(
                "eta of this thresholding depends on the number of modes, which it does not know. "
                "Try thresholding.for_shape(shape)."
            )
        if eta == math.inf:
            raise ValueError(
                "eta is infinite: a shrinkage is no approximation to a set, and the theorem does "
                "not cover it. Try a hard thresholding, such as lowtucker.HOSVD."
            )
        delta, eta = as_number(delta, "delta", 0), as_number(eta, "eta", 1)
        if delta > 1:
            raise ValueError(
                f"delta must be between 0 and 1, got {delta:.4g}: above 1 some tensors may have "
                "measurements of zero. Scale A first: trip(A, rank).scaled has the best scale."
            )
        if version not in get_args(Version):
            raise ValueError(f'version must be "paper" or "repaired", got {version!r}.')
        M = as_integer(np.size(p) if n_blocks is None else n_blocks, "n_blocks")
        p = np.full(M, 1 / M) if p is None else _positive(p, "p", M)
        if not math.isclose(p.sum(), 1, rel_tol=1e-6):
            raise ValueError(f"p must sum to 1, got {p.sum():.6g}. Try p / p.sum().")
        shares = np.full(M, 1 / M)
        if sizes is not None:
            sizes = _positive(sizes, "block_sizes", M)
            shares = sizes / sizes.sum()
        weights, largest = shares / p, None
        if norms is not None and version == "repaired":
            largest = float(np.max(weights * _positive(norms, "block_norms", M)))
            if largest < (1 - delta) * (1 - 1e-9):
                raise ValueError(
                    f"block_norms are too small for delta = {delta:.4g}: L = {largest:.4g}, but "
                    f"||A(X)||^2/m is at least 1 - delta. Give ||A_b||^2 / b."
                )
        elif eta > 1 and version == "repaired":
            raise ValueError(
                f"block_norms is needed for eta = {eta:.4g} > 1: the theorem then needs a bound on "
                "the full gradient, which the TRIP does not give. Try trip(A, rank, blocks)"
                '.block_norms; version="paper" uses the unproved (5.6) instead.'
            )
        return cls(version, delta, eta, p, weights, largest)

    @property
    def rho_plus(self) -> float:
        return (2 if self.version == "paper" else 1) * (1 + self.delta)

    @property
    def rho_minus(self) -> float:
        return 1 - self.delta

    @property
    def alpha(self) -> float:
        return float(self.weights.max()) * self.rho_plus

    def kappa(self, step: float) -> float:
        """Evaluate kappa at a step."""
        if self.version == "paper":
            first = 1 - (2 - step * self.alpha) * step * self.rho_minus
            second = 1 + step**2 * self.alpha * self.rho_plus - 2 * step * self.rho_minus
        else:
            first = self._radicand(step, self.alpha)
            second = 0.0 if self.lipschitz is None else self._radicand(step, self.lipschitz)
        spread = math.sqrt(self.eta**2 - 1)
        return 2 * math.sqrt(max(first, 0)) + spread * math.sqrt(max(second, 0))

    def _radicand(self, step: float, largest: float) -> float:
        """Bound on E ||X' - X - mu w_i (...)||^2: 1 + (mu^2 L - 2 mu) q, with the worst q."""
        slope = step**2 * largest - 2 * step
        return 1 + slope * (self.rho_minus if slope <= 0 else self.rho_plus)

    def sigma(self, step: float, gradients: Sequence[Any], rank: Any) -> float:
        """Evaluate sigma for the gradients of the blocks at X*."""
        M = len(self.p)
        try:
            arrays = [np.asarray(to_numpy(g)) for g in gradients]
        except TypeError:
            arrays = []
        if len(arrays) != M or len({g.shape for g in arrays}) != 1:
            raise ValueError(
                f"gradients must be {M} arrays of one shape, one for each block, got {len(arrays)}."
            )
        if not all(np.isfinite(g).all() for g in arrays):
            raise ValueError("gradients have NaN or infinite entries.")
        whole = np.array([np.linalg.norm(g) for g in arrays])
        projected = whole
        if rank is not None:
            rank = check_rank(rank, arrays[0].shape, warn=False)
            projected = np.array([_largest_projection(g, rank) for g in arrays])
        terms = 2 * projected + math.sqrt(self.eta**2 - 1) * whole
        if self.version == "paper":
            return step * float(self.weights.max()) * float(self.p @ terms)
        return step * float((self.p * self.weights) @ terms)


def _largest_projection(g: NumPyArray, rank: tuple[int, ...]) -> float:
    """Bound on ||P_U g|| over all U spanned by three tensors of that rank."""
    energies = [
        np.linalg.norm(np.linalg.svd(unfold(g, k), compute_uv=False)[: 3 * r])
        for k, r in enumerate(rank)
    ]
    return float(min(energies))


def _positive(values: Any, name: str, count: int) -> NumPyArray:
    """Check an array of one positive number per block."""
    try:
        array = np.asarray(to_numpy(values), dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be {count} numbers, got {values!r}.") from None
    if array.shape != (count,):
        raise ValueError(
            f"{name} must be {count} numbers, one for each of the n_blocks = {count} blocks, "
            f"got shape {array.shape}."
        )
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ValueError(f"{name} must be positive and finite, got {array.tolist()}.")
    return array
