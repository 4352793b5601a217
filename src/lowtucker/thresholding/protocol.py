r"""What a thresholding is: a map onto simple tensors, the step :math:`H_r` of equation (3.5).

TIHT and StoTIHT choose none themselves: they call this interface, and work with whatever it
returns. A new format is one file with a thresholding and its iterate, and one line in
``thresholding/__init__.py``.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from lowtucker._array import Array
from lowtucker.tensor.iterate import Iterate

__all__ = ["Iterate", "Thresholding"]


@runtime_checkable
class Thresholding(Protocol):
    """A map onto simple tensors, within ``eta`` of the best approximation, equation (3.6)."""

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
