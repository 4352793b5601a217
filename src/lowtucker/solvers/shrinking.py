"""What solvers that shrink have in common: no rank, and one problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Solver
from lowtucker.thresholding import Shrinkage

__all__ = ["Shrinking"]


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
        """Check that there is one problem, and no rank."""
        if rank is not None:
            raise ValueError(
                f"{self.name} shrinks and has no rank, got rank={rank!r}. Leave the rank out, or "
                'take another solver, such as "auto".'
            )
        if problem.batch_shape:
            raise ValueError(
                f"{self.name} takes one problem, got a batch of {problem.batch_shape}."
            )
        return Bound(self, problem, None, Shrinkage(1.0).for_shape(problem.shape))
