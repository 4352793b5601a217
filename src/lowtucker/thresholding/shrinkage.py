r"""Shrinkage: soft thresholding of the multilinear spectrum, where no rank is exact."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from lowtucker._array import (
    Array,
    all_finite,
    as_choice,
    as_number,
    eps,
    like,
    namespace,
    per_trial,
    real_dtype,
    size,
)
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.iterate import NO_LAYOUT, Iterate
from lowtucker.tensor.products import norm
from lowtucker.tensor.rank import spectra
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding.protocol import ThresholdingDefaults
from lowtucker.thresholding.spectrum import multilinear_spectrum, synthesis

__all__ = [
    "Shrinkage",
    "ShrunkTensor",
    "pieces",
    "shrunk",
    "signal_variances",
    "wiener_factors",
]

Prior = Literal["sum", "product"]
# Entries that are shrunk at a time, in a batch: with 10^5 and more a batch was slower than a loop
PIECE = 20_000


@dataclass(frozen=True, repr=False, eq=False)
class ShrunkTensor(Iterate):
    """Tensor whose multilinear spectrum was shrunk, with its effective degrees of freedom.

    It has no rank: every direction is kept, each shrunk by the share of it that is signal.

    Parameters
    ----------
    tensor : array, shape (*batch, n_1, ..., n_d)
    effective : array, shape (*batch,)
        Sum of the factors between 0 and 1 that the coefficients were multiplied by.

    Examples
    --------
    >>> import numpy as np
    >>> Shrinkage(sigma=0.5)(np.ones((4, 5, 6)))
    ShrunkTensor of shape (4, 5, 6), 0.9 effective degrees of freedom
    """

    tensor: Array
    effective: Array

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of a batch; () for one tensor."""
        return tuple(self.effective.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (n_1, ..., n_d), without the leading axes."""
        return tuple(self.tensor.shape[self.effective.ndim :])

    @property
    def rank(self) -> None:
        """None: no direction is dropped."""
        return

    @property
    def degrees_of_freedom(self) -> int:
        """Effective degrees of freedom, rounded up; the most in a batch."""
        return max(1, math.ceil(float(namespace(self.effective).max(self.effective)) - 1e-9))

    def parts(self) -> dict[str, Array]:
        """Return the arrays that make up the tensor, by name."""
        return {"tensor": self.tensor, "effective": self.effective}

    @classmethod
    def from_parts(
        cls, parts: Mapping[str, Array], layout: Mapping[str, Any] = NO_LAYOUT
    ) -> ShrunkTensor:
        """Build from the arrays of :meth:`parts`, which are used unchanged and not checked."""
        return cls(parts["tensor"], parts["effective"])

    def validated(self) -> ShrunkTensor:
        """Return the tensor, its parts checked as those of a file must be."""
        lead = tuple(self.tensor.shape[: self.effective.ndim])
        if lead != self.batch_shape or self.tensor.ndim <= self.effective.ndim:
            raise ValueError(f"tensor {self.tensor.shape}, effective {self.effective.shape}")
        if not (all_finite(self.tensor) and all_finite(self.effective)):
            raise ValueError("tensor has NaN or infinite entries")
        return self

    def full(self) -> Array:
        """Return the full tensor, shape (*batch, n_1, ..., n_d)."""
        return self.tensor

    def norm(self) -> Array:
        """Frobenius norm, shape (*batch,)."""
        return norm(self.tensor, batch_ndim=len(self.batch_shape))

    def tucker(self, tol: float = 1e-2) -> TuckerTensor:
        """Compress to a TuckerTensor within a relative accuracy.

        Every mode keeps the directions without which the error would exceed ``tol / sqrt(d)``.

        Parameters
        ----------
        tol : float

        Examples
        --------
        >>> import numpy as np
        >>> Shrinkage(sigma=0.1)(np.ones((4, 5, 6))).tucker().rank
        (1, 1, 1)
        """
        if self.batch_shape:
            raise ValueError(f"tucker takes one tensor, got a batch of {self.batch_shape}.")
        tol = as_number(tol, "tol", 0.0)
        ranks = []
        for values in spectra(self.tensor).values:
            s = np.asarray(values, dtype=np.float64)
            tail = np.sqrt(np.cumsum(s[::-1] ** 2))[::-1]
            ranks.append(max(1, int(np.sum(tail > tol / math.sqrt(len(self.shape)) * tail[0]))))
        return hosvd(self.tensor, tuple(ranks), warn=False)

    def project(self, G: Array) -> ShrunkTensor:
        """Return a full tensor as it is: a line search may move in all directions."""
        return ShrunkTensor(G, self.effective)

    def __mul__(self, number: Any) -> ShrunkTensor:
        """Multiply by a number, or by one for each tensor of a batch."""
        number = like(number, self.tensor, self.tensor.dtype)
        return ShrunkTensor(self.tensor * per_trial(number, self.tensor), self.effective)

    def __add__(self, number: float) -> ShrunkTensor:
        """Add a number to every entry."""
        return ShrunkTensor(self.tensor + number, self.effective)

    def __repr__(self) -> str:
        batch = f"batch of {self.batch_shape[0]}, each " if self.batch_shape else ""
        mean = float(namespace(self.effective).mean(self.effective))
        return f"ShrunkTensor {batch}of shape {self.shape}, {mean:.1f} effective degrees of freedom"


@dataclass(frozen=True)
class Shrinkage(ThresholdingDefaults):
    r"""Multilinear shrinkage: an empirical Bayes Wiener filter in place of :math:`H_r`.

    With the full bases :math:`U_k` of the unfoldings,
    :math:`Z_{(k)} Z_{(k)}^* = U_k \,\mathrm{diag}(w_k)\, U_k^*`, and
    :math:`G = Z \times_1 U_1^* \cdots \times_d U_d^*`,

    .. math::

        \lambda_{k,i} &= w_{k,i} / (N / n_k) - \rho\, \sigma^2
            \quad \text{(the signal variance of slab i of mode k)} \\
        v_i &= d \Big/ \sum_k 1 / \lambda_{k,i_k} \quad \text{("sum")}, \qquad
        v_i = s \prod_k \lambda_{k,i_k} / s \quad \text{("product", s the mean variance)} \\
        f &= v / (v + \sigma^2), \qquad
        S(Z) = (f * G) \times_1 U_1 \cdots \times_d U_d

    "sum" is a Kronecker sum of precisions: one majorise-minimise step for
    :math:`\sum_k \log\det(X_{(k)} X_{(k)}^* + \epsilon I)`. "product" is the tensor normal prior.
    :math:`H_r` is the case f in {0, 1}.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise in an entry of Z.
    prior : "sum" or "product"
    subtract : float
        The share :math:`\rho` of the noise variance that is subtracted from the variances.

    Notes
    -----
    Cost: an eigendecomposition of every Gram matrix, and 2 d mode products with square matrices:
    :math:`O(N \sum n_k)` flops. Memory: a few tensors. A batch, with leading axes, costs the same
    for each tensor, but for the overhead of Python (0.2 ms), and a few tensors each.

    Examples
    --------
    More noise leaves fewer degrees of freedom; nothing is dropped altogether.

    >>> import numpy as np
    >>> Z = np.random.default_rng(0).standard_normal((6, 6, 6)) + 5
    >>> [round(float(Shrinkage(sigma)(Z).effective)) for sigma in (0.01, 1.0, 100.0)]
    [216, 5, 0]
    """

    sigma: float
    prior: Prior = "sum"
    subtract: float = 1.0
    # of the tensors, where there may be leading axes; by default Z has none
    modes: int | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the settings."""
        as_number(self.sigma, "sigma", positive=True)
        as_choice(self.prior, "prior", get_args(Prior))
        if as_number(self.subtract, "subtract", 0.0) > 1:
            raise ValueError(f"subtract is a share, at most 1, got {self.subtract:g}. Try 1.")

    @property
    def rank(self) -> None:
        """None: no direction is dropped."""
        return

    @property
    def eta(self) -> float:
        """Infinity: S is no approximation to a set, and (3.6) has no meaning for it."""
        return math.inf

    def for_shape(self, shape: tuple[int, ...]) -> Shrinkage:
        """Return the shrinkage of tensors of that shape, which may have leading axes."""
        return replace(self, modes=len(shape))

    def degrees_of_freedom(self, shape: tuple[int, ...]) -> int:
        """Return the number of entries, the most that is effective."""
        return size(shape)

    def __call__(self, Z: Array) -> ShrunkTensor:
        """Shrink Z, shape (*batch, n_1, ..., n_d)."""
        modes = Z.ndim if self.modes is None else self.modes
        noise = self.sigma * self.sigma
        return shrunk(Z, noise, self.prior, self.subtract, batch_ndim=Z.ndim - modes)


def shrunk(
    Z: Array, noise: Any, prior: Prior, subtract: Any, *, batch_ndim: int = 0, drop: float = 0.0
) -> ShrunkTensor:
    """Shrink tensors; see :class:`Shrinkage`.

    Parameters
    ----------
    Z : array, shape (*batch, n_1, ..., n_d)
    noise : float or array, shape (*batch,)
        Variance of the noise in an entry.
    prior, subtract
        As in :class:`Shrinkage`; ``subtract`` may be an array of shape (*batch,) as well.
    batch_ndim : int
    drop : float
        Directions whose variance, as a share of the noise, is below this are dropped: their factors
        are no larger (d times that for the prior "sum"), and products with few directions are
        cheap. Each tensor of a batch drops its own.
    """
    shape, xp = tuple(Z.shape[batch_ndim:]), namespace(Z)
    if batch_ndim == 1 and len(cut := pieces(Z.shape[0], size(shape))) > 1:
        parts = [
            shrunk(Z[some, ...], _part(noise, some), prior, _part(subtract, some), batch_ndim=1,
                   drop=drop)
            for some in cut
        ]  # fmt: skip
        return ShrunkTensor.concat(parts)
    least = (subtract + drop) * noise if drop else None
    bases, variances, core = multilinear_spectrum(Z, batch_ndim, least)
    signal = [signal_variances(w, noise, subtract) for w in variances]
    if not (drop and batch_ndim):
        f = wiener_factors(signal, noise, prior, shape)
    else:  # the variances of what was dropped are zeros, and so are its factors
        signal = [
            xp.where(w == 0, xp.zeros_like(v), v) for w, v in zip(variances, signal, strict=True)
        ]
        with np.errstate(divide="ignore"):
            f = wiener_factors(signal, noise, prior, shape)
    full = synthesis(xp.astype(f, real_dtype(Z), copy=False) * core, bases, batch_ndim)
    return ShrunkTensor(full, xp.sum(f, axis=tuple(range(batch_ndim, Z.ndim))))


def pieces(count: int, entries: int) -> list[slice]:
    """Cut a batch of tensors so that a piece, and all that is made of it, stays in the cache."""
    some = max(1, PIECE // entries)
    return [slice(k, k + some) for k in range(0, count, some)]


def _part(numbers: Any, some: slice) -> Any:
    return numbers[some] if getattr(numbers, "ndim", 0) else numbers


def signal_variances(w: Array, noise: Any, subtract: Any) -> Array:
    """Variances of the signal in the slabs of a mode: positive, down to rounding error."""
    xp = namespace(w)
    least = 100 * eps(w) * xp.max(w, axis=-1, keepdims=True) + xp.finfo(w.dtype).smallest_normal
    return xp.maximum(w - _trailing(subtract * noise, 1), least)


def wiener_factors(
    signal: Sequence[Array],
    noise: Any,
    prior: Prior,
    shape: tuple[int, ...],
    modes: Sequence[float] | None = None,
) -> Array:
    """Factors f of the coefficients, between 0 and 1, shape (*batch, r_1, ..., r_d).

    Parameters
    ----------
    signal : arrays, shape (*batch, r_k)
        Variances of the signal in the slabs of each mode.
    noise : float or array, shape (*batch,)
    prior : "sum" or "product"
    shape : tuple of int
    modes : numbers, optional
        Weights of the modes in the prior "sum"; equal by default.
    """
    d, xp = len(signal), namespace(*signal)
    b = signal[0].ndim - 1
    noise = _trailing(noise, d)
    spread = [
        xp.reshape(v, (*v.shape[:b], *(-1 if j == k else 1 for j in range(d))))
        for k, v in enumerate(signal)
    ]
    if prior == "sum":
        weights = [1.0] * d if modes is None else modes
        total = sum(weights)
        return total / (total + noise * sum(c / v for c, v in zip(weights, spread, strict=True)))
    # dropped directions have no variance to speak of: the sum over the others is that of all
    k = int(np.argmin(shape))
    mean = _trailing(xp.sum(signal[k], axis=-1) / shape[k], d)
    v = mean
    for one in spread:
        v = v * (one / mean)
    return v / (v + noise)


def _trailing(value: Any, axes: int) -> Any:
    """Give an array with one number for each tensor of a batch axes to broadcast along."""
    if not getattr(value, "ndim", 0):
        return value
    return namespace(value).reshape(value, (*value.shape, *(1,) * axes))
