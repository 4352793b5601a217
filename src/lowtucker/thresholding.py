r"""The thresholding :math:`H_r` of equation (3.5): maps onto tensors of low rank.

The iterative solvers choose none themselves: they call this interface. What it returns is a
TuckerTensor, whose factors the automatic step size uses too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lowtucker._arrays import Array, as_integer
from lowtucker.tensor.decompose import (
    check_mode_order,
    hooi,
    hosvd,
    quasi_optimality,
    sthosvd,
)
from lowtucker.tensor.rank import check_rank
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["HOOI", "HOSVD", "STHOSVD", "Thresholding"]


@runtime_checkable
class Thresholding(Protocol):
    """A map onto tensors of rank at most ``rank``, within ``eta`` of the best, equation (3.6)."""

    rank: tuple[int, ...]

    @property
    def eta(self) -> float:
        """Quasi-optimality of (3.6)."""
        ...

    def __call__(self, Z: Array) -> TuckerTensor:
        """Approximate Z, shape (*batch, n_1, ..., n_d)."""
        ...


@dataclass(frozen=True)
class _Truncation:
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


@dataclass(frozen=True)
class HOSVD(_Truncation):
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
class STHOSVD(_Truncation):
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
class HOOI(_Truncation):
    """Higher-order orthogonal iteration: closest to the best approximation, and dearest.

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
