r"""What a thresholding is: a map onto simple tensors, the step :math:`H_r` of equation (3.5).

TIHT and StoTIHT choose none themselves: they call this interface, and work with whatever it
returns. A new format is one file with a thresholding and its iterate, and one line in
``thresholding/__init__.py``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol, Self, runtime_checkable

from lowtucker._array import Array, size
from lowtucker.tensor.iterate import Iterate

__all__ = ["Iterate", "Thresholding", "ThresholdingDefaults", "unfolded_noise"]


@runtime_checkable
class Thresholding(Protocol):
    """A map onto simple tensors, within ``eta`` of the best approximation, equation (3.6).

    A class of its own derives from ``lowtucker.thresholding.ThresholdingDefaults``, which has the
    last four methods.
    """

    @property
    def rank(self) -> Any:
        """What bounds the simple tensors: a Tucker rank, or whatever the format counts."""
        ...

    @property
    def eta(self) -> float:
        """Quasi-optimality of (3.6)."""
        ...

    def __call__(self, Z: Array) -> Any:
        """Approximate Z, shape (*batch, n_1, ..., n_d), by an :class:`Iterate`."""
        ...

    def for_shape(self, shape: tuple[int, ...]) -> Any:
        """Return the thresholding of tensors of that shape: itself, or one that knows the shape.

        Raises ValueError where tensors of that shape cannot be approximated.
        """
        ...

    def degrees_of_freedom(self, shape: tuple[int, ...]) -> int:
        """Count the degrees of freedom of what it returns for tensors of that shape."""
        ...

    def block_size(self, shape: tuple[int, ...]) -> int:
        """Return the number of Gaussian rows of a good block."""
        ...

    def noise_gain(self, shape: tuple[int, ...]) -> float:
        """Return how much of the noise of a block of b Gaussian rows is left, times b."""
        ...

    def at_rank(self, rank: Any) -> Any:
        """Return the thresholding at another rank."""
        ...

    def matricisations(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
        """List the matricisations whose rank is bounded: the modes of the rows, and the rank."""
        ...


class ThresholdingDefaults:
    """What automatic steps and blocks need to know of a thresholding, as it is for Tucker tensors.

    A thresholding is a frozen dataclass that derives from it; one whose noise behaves otherwise
    overrides what differs.
    """

    def block_size(self: Thresholding, shape: tuple[int, ...]) -> int:
        """Return the number of Gaussian rows of a good block: two for a degree of freedom."""
        return 2 * self.degrees_of_freedom(shape)

    def noise_gain(self, shape: tuple[int, ...]) -> float:
        r"""Return :math:`b \nu`: how much of a block's noise is left after the thresholding.

        The gradient of b Gaussian rows has noise of variance 1/b in every entry, in units of the
        error; :math:`\nu` is the largest share that a simple tensor takes of it. Here that of
        :func:`unfolded_noise`.
        """
        return unfolded_noise(shape)

    def at_rank(self, rank: Any) -> Self:
        """Return the thresholding at another rank."""
        return replace(self, rank=rank)  # type: ignore[type-var]

    def matricisations(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], int]]:
        """List the matricisations whose rank is bounded: none, unless a format says which."""
        return []


def unfolded_noise(shape: tuple[int, ...]) -> float:
    r"""Return the largest squared spectral norm of the unfoldings of a tensor of N(0, 1) numbers.

    :math:`\max_k (\sqrt{n_k} + \sqrt{N/n_k})^2`, nearly.
    """
    total = size(shape)
    return max((math.sqrt(n) + math.sqrt(total / n)) ** 2 for n in shape)
