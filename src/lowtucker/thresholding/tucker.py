r"""The thresholding :math:`H_r` of equation (3.5): maps onto tensors of low Tucker rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from lowtucker._array import Array, as_array, as_float, as_integer, as_shape, as_tensor, size
from lowtucker.tensor.decompose import check_mode_order, hooi, hosvd, quasi_optimality, sthosvd
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom, multilinear_rank
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding.protocol import ThresholdingDefaults

__all__ = ["HOOI", "HOSVD", "STHOSVD", "SeMP", "TuckerTruncation"]


@dataclass(frozen=True)
class TuckerTruncation(ThresholdingDefaults):
    """What the three truncations share.

    Parameters
    ----------
    rank : tuple of int
    """

    rank: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check the rank by itself, and warn of it once; the shape when a tensor comes."""
        object.__setattr__(self, "rank", check_rank(self.rank))

    @property
    def eta(self) -> float:
        r"""Proven bound of (3.6): :math:`\sqrt d`, and 1 for vectors and matrices."""
        return quasi_optimality(len(self.rank))

    def __call__(self, Z: Array) -> TuckerTensor:
        """Approximate Z, shape (*batch, n_1, ..., n_d)."""
        raise NotImplementedError

    def for_shape(self, shape: tuple[int, ...]) -> Self:
        """Return itself; raise ValueError where the rank is none of tensors of that shape."""
        check_rank(self.rank, shape, warn=False)
        return self

    def degrees_of_freedom(self, shape: tuple[int, ...]) -> int:
        """Count the degrees of freedom of tensors of that shape and rank."""
        return degrees_of_freedom(shape, attainable_rank(self.rank))

    def matricisations(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
        """List the unfoldings: of every mode, with its rank."""
        return [((k,), r) for k, r in enumerate(self.rank)]

    def at_rank(self, rank: tuple[int, ...]) -> Self:
        """Return the truncation at another rank, or the attainable one."""
        return replace(self, rank=attainable_rank(rank))

    def to_pyproximal(self, shape: tuple[int, ...]) -> Any:
        r"""``ProxOperator`` of PyProximal: of the indicator of the tensors of this rank.

        .. math:: \mathrm{prox}_{\tau g}(x) = \mathrm{vec}(H_r(\mathbf{X})), \qquad
                  g = 0 \text{ where the rank of } \mathbf{X} \text{ is at most } r, \infty
                  \text{ elsewhere}

        It works on row-major vectors x = vec(X) of length N, whatever tau is. As for PyProximal's
        own sets, a call tells whether x is in the set. The set is not convex, and :math:`H_r` is a
        projection within the factor ``eta``: what holds of convex functions need not hold here.

        Parameters
        ----------
        shape : tuple of int

        Examples
        --------
        >>> import numpy as np
        >>> g = HOSVD((1, 1, 1)).to_pyproximal((2, 3, 4))
        >>> x = np.random.default_rng(0).standard_normal(24)
        >>> g(x), g(g.prox(x, 1.0))
        (False, True)
        """
        return _proximal_operator(self, as_shape(shape))


@dataclass(frozen=True)
class HOSVD(TuckerTruncation):
    """Truncated HOSVD, the paper's H_r.

    Examples
    --------
    >>> import numpy as np
    >>> H = HOSVD((1, 2, 2))
    >>> H(np.ones((5, 5, 6))).rank
    (1, 2, 2)
    >>> round(H.eta, 3)
    1.732
    """

    def __call__(self, Z: Array) -> TuckerTensor:
        """Approximate Z."""
        return hosvd(Z, self.rank, warn=False)


@dataclass(frozen=True)
class STHOSVD(TuckerTruncation):
    """Sequentially truncated HOSVD: cheaper, and noisier inside the iteration.

    Parameters
    ----------
    rank : tuple of int
    mode_order : permutation of 0..d-1, optional
    """

    mode_order: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.mode_order is not None:
            modes = check_mode_order(self.mode_order, len(self.rank))
            object.__setattr__(self, "mode_order", modes)

    def __call__(self, Z: Array) -> TuckerTensor:
        """Approximate Z."""
        return sthosvd(Z, self.rank, mode_order=self.mode_order, warn=False)


@dataclass(frozen=True)
class SeMP(TuckerTruncation):
    """Sequentially optimal modal projections (de Morais Goulart, Favier 2017).

    Mode by mode the best projection of what the modes before have left: the sequentially
    truncated HOSVD with an order of the modes. Its error is not always below that of the truncated
    HOSVD: above it, by 2 % at most, for 14 of 2700 random tensors (0 where all orders were tried).

    Parameters
    ----------
    rank : tuple of int
    order : "auto" or permutation of 0..d-1
        "auto" takes the mode first that is truncated most, by r_k / n_k.

    Examples
    --------
    >>> import numpy as np
    >>> Z = np.random.default_rng(0).standard_normal((4, 10, 6))
    >>> H = SeMP((2, 2, 2))
    >>> H.modes((4, 10, 6))
    (1, 2, 0)
    >>> bool(np.linalg.norm(H(Z).full() - Z) < np.linalg.norm(HOSVD((2, 2, 2))(Z).full() - Z))
    True
    """

    order: Literal["auto"] | tuple[int, ...] = "auto"

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.order != "auto":
            modes = check_mode_order(self.order, len(self.rank), name="order")
            object.__setattr__(self, "order", modes)

    def modes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Order of the modes for tensors of that shape."""
        if self.order != "auto":
            return self.order
        return tuple(sorted(range(len(shape)), key=lambda k: self.rank[k] / shape[k]))

    def __call__(self, Z: Array) -> TuckerTensor:
        """Approximate Z."""
        Z = as_float(as_tensor(Z, "Z"), "Z")
        shape = tuple(Z.shape[Z.ndim - len(self.rank) :])
        return sthosvd(Z, self.rank, mode_order=self.modes(shape), warn=False)


@dataclass(frozen=True)
class HOOI(TuckerTruncation):
    """Higher-order orthogonal iteration: closest to the best approximation, and most expensive.

    Parameters
    ----------
    rank : tuple of int
    max_iterations : int
    """

    max_iterations: int = 20

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        as_integer(self.max_iterations, "max_iterations")

    def __call__(self, Z: Array) -> TuckerTensor:
        """Approximate Z."""
        return hooi(Z, self.rank, max_iterations=self.max_iterations, warn=False)


def _proximal_operator(threshold: TuckerTruncation, shape: tuple[int, ...]) -> Any:
    check_rank(threshold.rank, shape, warn=False)
    try:
        from pyproximal import ProxOperator
    except ImportError as error:
        raise ImportError(
            "to_pyproximal needs PyProximal, which is not installed. Try: pip install pyproximal"
        ) from error

    class TuckerRank(ProxOperator):  # type: ignore[misc]
        """Indicator of the tensors of low Tucker rank."""

        def __call__(self, x: Array) -> bool:
            found = multilinear_rank(_as_tensor(x, shape))
            return all(r <= most for r, most in zip(found, threshold.rank, strict=True))

        def prox(self, x: Array, tau: Any) -> Array:
            if not np.all(np.asarray(tau) > 0):
                raise ValueError(f"tau must be positive, got {tau}.")
            return threshold(_as_tensor(x, shape)).full().reshape(-1)

    return TuckerRank(None, False)


def _as_tensor(x: Any, shape: tuple[int, ...]) -> Array:
    x = as_array(x, "x")
    if tuple(x.shape) not in ((size(shape),), shape):
        raise ValueError(
            f"x must be a vector of length {size(shape)}, row-major, for tensors of shape {shape}; "
            f"got shape {tuple(x.shape)}. Try X.reshape(-1)."
        )
    return x.reshape(shape)
