"""What solvers that shrink have in common: no rank, and decisions problem by problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lowtucker._array import Array, like, namespace, per_trial, real_dtype, size, to_numpy
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Solver
from lowtucker.thresholding import Shrinkage

__all__ = ["Shrinking", "host", "kept_finite", "numbers_of", "of_each", "spread"]


@dataclass(frozen=True, repr=False, kw_only=True)
class Shrinking(Solver):
    """A solver with a soft threshold: it has no rank, forms full tensors, and ends by itself."""

    self_terminating: ClassVar[bool] = True
    lower_residual_is_better: ClassVar[bool] = False

    @property
    def forms_full_tensor(self) -> bool:
        """Iterates, and what is shrunk."""
        return True

    def bind(self, problem: Problem, rank: tuple[int, ...] | None) -> Bound:
        """Check that there is no rank."""
        if rank is not None:
            raise ValueError(
                f"{self.name} shrinks and has no rank, got rank={rank!r}. Leave the rank out, or "
                'take another solver, such as "auto".'
            )
        return Bound(self, problem, None, Shrinkage(1.0).for_shape(problem.shape))


def host(x: Array) -> Any:
    """Number of one problem as a float, those of a batch as a NumPy array: to decide by."""
    numbers = np.asarray(to_numpy(x), dtype=np.float64)
    return numbers if numbers.ndim else float(numbers)


def spread(value: Any, problem: Problem) -> Array:
    """Numbers as an array of the problem's kind and real dtype, shape (*batch,)."""
    numbers = np.broadcast_to(np.asarray(value), problem.batch_shape)
    return like(numbers, problem.y, real_dtype(problem.y))


def of_each(draw: Callable[[Any], Any], problem: Problem, whose: Sequence[Any], dtype: Any) -> Any:
    """Draw for every problem, by its number or generator; shape (*batch, ...)."""
    drawn = [draw(one) for one in whose]
    return like(np.stack(drawn) if problem.batch_shape else drawn[0], problem.y, dtype)


def kept_finite(Z: Array, instead: Array, broken: Array) -> tuple[Array, Array]:
    """Batch with other tensors where one is not finite or was not, and which those are.

    No decomposition takes what is not finite; one such problem must not end the others.
    """
    xp = namespace(Z)
    broken = broken | ~xp.isfinite(xp.sum(xp.abs(Z) ** 2, axis=tuple(range(1, Z.ndim))))
    return xp.where(per_trial(broken, Z), instead, Z), broken


def numbers_of(problem: Problem, first: int) -> tuple[int, ...]:
    """Number the problems of a batch."""
    return tuple(range(first, first + size(problem.batch_shape)))
