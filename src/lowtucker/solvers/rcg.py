"""RCG: Riemannian conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lowtucker._array import Array, to_numpy
from lowtucker.solvers.base import Bound, Memory, State
from lowtucker.solvers.conjugate import Search
from lowtucker.solvers.escape import Patient, after_steps
from lowtucker.solvers.manifold import Manifold, blown_up, of_members
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["RCG"]


@dataclass(frozen=True)
class Direction(Patient):
    """Direction of the last step in tangent coordinates, in units of the gradient; None before."""

    direction: Any = None


@dataclass(frozen=True, repr=False, kw_only=True)
class RCG(Manifold):
    r"""Riemannian conjugate gradients (Polak-Ribiere, with the exact step of the linear model).

    .. math::

        \eta^t = g^t + \beta_t P_T \eta^{t-1}, \quad
        X^{t+1} = H_r(X^t + \alpha_t \eta^t), \quad
        \alpha_t = \langle g^t, \eta^t \rangle / \|\mathcal{A}(\eta^t)\|^2

    with :math:`g = P_T \mathcal{A}^*(y - \mathcal{A}(X))`. Nothing of the size dof x dof is made.
    Where a step lowers the residual by less than 10 %, a step along the gradient itself follows
    (``lowtucker.solvers.escape``).

    Notes
    -----
    A step costs two passes: one along the direction, one for the next gradient. An
    attempt to leave a plateau takes three more, up to 18 for rows that are not isotropic.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
    >>> X_true = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    >>> lt.recover(A, A.forward(X_true), rank=(1, 2, 2), solver=RCG()).success
    True
    """

    patience: ClassVar[tuple[int, float]] = (15, 0.3)  # slow where conditioning is bad

    _memory: ClassVar[type[Memory]] = Direction

    def is_stuck(self, state: State) -> Any:
        """Whether it is at a minimum whose residual is not zero, for every problem."""
        return state.memory.stuck if isinstance(state.memory, Patient) else False

    def residual(self, bound: Bound, state: State) -> Array:
        """Residual, which the last step measured."""
        return super().residual(bound, state) if state.cache is None else state.cache.residual

    def _first_memory(self, X: TuckerTensor, levels: Any) -> Memory:
        return Direction(**vars(Patient.of(len(levels))), direction=None)

    def _look(self, bound: Bound, state: State) -> State:
        search, kept = Search.at(bound.problem, state.X), state.memory.direction
        if kept is not None:  # a resumed run keeps its direction
            search = search._replace(direction=search.in_units(kept, 1))
        memory = replace(state.memory, direction=search.kept)
        return replace(state, memory=memory, cache=search)

    def advance(self, bound: Bound, state: State) -> State:
        """One step along the direction, and the next direction."""
        problem, old = bound.problem, state.cache
        new, broken = old.step(problem)
        if broken.any():
            which = broken.nonzero()[0].tolist()
            new = new.put(which, old.select(which))
        before, now = (to_numpy(problem.relative(one.residual)) for one in (old, new))
        memory, escapes = after_steps(
            state.memory, (before, now), problem, new.T.X, residual=new.residual, going=~broken
        )
        found = {k: X.batched() for k, X in enumerate(escapes) if X is not None}
        if found:
            X, which = TuckerTensor.concat(list(found.values())), list(found)
            new = new.put(which, Search.at(of_members(problem, which), X))
        memory = replace(memory, direction=new.kept)
        after = replace(state, X=new.T.X, t=state.t + 1, memory=memory, cache=new)
        return blown_up(replace(after, t=state.t), broken) if broken.any() else after
