"""RGN: Riemannian Gauss-Newton with Levenberg-Marquardt damping."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from lowtucker._array import Array, all_finite, as_flag, as_integer, as_number, eps, namespace
from lowtucker._array.random import Seed
from lowtucker.problem import Problem
from lowtucker.solvers.base import State
from lowtucker.solvers.manifold import (
    Manifold,
    Model,
    ProductModel,
    blown_up,
    dot,
)
from lowtucker.solvers.noise import PLENTY, is_noise
from lowtucker.solvers.tiht import TIHT
from lowtucker.tensor.rank import degrees_of_freedom
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["RGN"]

# A local minimum: after so many iterations from a start, a fall of less than a share in so many;
# sooner where there are other starts
LONG, SHORT = (12, 5, 0.03), (6, 3, 0.05)
# Share of the squared residual below which a promised decrease is none
NOTHING = 1e-7
# Ends of starts that are as close as this are one and the same minimum
SAME = 1.001
# Degrees of freedom above which products with D are the better way: a gram of 200 MB; and for
# operators without a design of their own, where D takes a forward for each
LARGE, FEW = 5000, 100
# Multiple of the rounding unit at which a residual cannot fall any more
ROUNDING = 10


@dataclass(frozen=True, repr=False, kw_only=True)
class RGN(Manifold):
    r"""Riemannian Gauss-Newton: least squares in the tangent space, then the retraction.

    With D the tangent design at :math:`X^t` and r the residual,

    .. math::

        \xi &= \arg\min_\xi \|r - D \xi\|^2 + \lambda s \rho \|\xi\|^2, \quad
        s = \mathrm{tr}(D^* D) / dof, \; \rho = \min(1, \|r\| / \|y\|) \\
        X^{t+1} &= H_r(X^t + \xi)

    A step is taken where the residual falls; :math:`\lambda` follows the ratio of what fell to
    what the model foretold. Quadratic where the residual is zero.

    Parameters
    ----------
    damping : float
        The first :math:`\lambda`.
    starts : int
        How many starts to try. A start is given up when the residual stops falling (a local
        minimum); the next one weighs the measurements anew, at random.
    iht_steps : int
        Steps of TIHT, with automatic step, that every other start, beginning with the second, is
        prepared by. They leave the tangent space, and with it the local minima that few
        measurements have: of 36 starts on 15x15x15 tensors of rank (5,5,5) with 1.6 measurements
        per degree of freedom 11 led to the truth without them, and all with ten. On tiny tensors
        they make no difference.
    products : bool, optional
        Whether to solve by products with D alone (LSMR) rather than by normal equations. By
        default where these would be too large (more than 5000 degrees of freedom), or where the
        operator has no fast tangent design (more than 100).

    Notes
    -----
    By normal equations a step costs one pass: :math:`D^* D` and :math:`D^* r` are summed while
    the rows are read. Memory: :math:`dof^2` numbers. By products it costs two passes, and two
    more for every iteration of LSMR. Memory: a few vectors, and what the operator's products
    need. A start costs two passes and a few rows, and two passes and a full tensor for every step
    of TIHT.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=36, seed=1)  # 22 degrees of freedom
    >>> X_true = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    >>> lt.recover(A, A.forward(X_true), rank=(1, 2, 2), solver=RGN(starts=10)).success
    True
    """

    damping: float = 10.0
    starts: int = 1
    iht_steps: int = 0
    products: bool | None = None

    judges_itself: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the settings."""
        as_number(self.damping, "damping", positive=True)
        as_integer(self.starts, "starts")
        as_integer(self.iht_steps, "iht_steps", 0)
        if self.products is not None:
            as_flag(self.products, "products")

    @property
    def steps_per_epoch(self) -> int:
        """One: a step reads all the rows."""
        return 1

    def label(self, state: State) -> str:
        """RGN, with the number of the restart."""
        return self.name if not state.attempt else f"{self.name} restart {state.attempt}"

    def residual(self, problem: Problem, state: State) -> Array:
        """Residual, which the model has."""
        if state.model is None:
            return super().residual(problem, state)
        residual: Array = state.model.residual
        return residual

    @property
    def makes_tensors(self) -> bool:
        """Those of the steps of TIHT that prepare a start."""
        return self.iht_steps > 0

    def _by_gram(self, problem: Problem, dof: int) -> bool:
        if self.products is None:
            return dof <= (LARGE if problem.A.traits.has_fast_tangent else FEW)
        return not self.products

    def _model(self, problem: Problem, X: TuckerTensor) -> Model | ProductModel:
        dof = degrees_of_freedom(problem.shape, self._rank)
        return (Model if self._by_gram(problem, dof) else ProductModel).at(problem, X)

    def error_estimate(self, problem: Problem, state: State, residual: float) -> float | None:
        """Estimate where the last start came as far as the best: the model is one of its X."""
        if not state.trace or state.trace[-1] > 1.01 * residual:
            return None
        return super().error_estimate(problem, state, residual)

    def _own_start(self, problem: Problem, seed: Seed, k: int) -> tuple[TuckerTensor, float, float]:
        X, level, passes = super()._own_start(problem, seed, k)
        if not self.iht_steps or k % 2 == 0:
            return X, level, passes
        tiht = TIHT().bind(problem, self._rank)
        state = tiht.init(problem, X, seed)
        for _ in range(self.iht_steps):
            state = tiht.advance(problem, state)
        return state.X, 0.0, passes + state.passes

    def _look(self, problem: Problem, state: State) -> State:
        model = self._model(problem, state.X)
        relative = float(problem.relative(model.residual))
        # a state of other measurements or weights begins anew
        first = not state.trace or abs(relative - state.trace[-1]) > 1e-3 * relative
        xp = namespace(state.damping)
        damping = xp.full_like(state.damping, self.damping) if first else state.damping
        trace = (relative,) if first else state.trace
        passes = state.passes + model.passes
        return replace(state, X=model.T.X, model=model, damping=damping, trace=trace, passes=passes)

    def advance(self, problem: Problem, state: State) -> State:
        """One damped Gauss-Newton step, or a new start where the last one got stuck."""
        T = state.model.T
        relative, damping = state.trace[-1], float(state.damping)
        accuracy = max(0.1 * min(1.0, relative), eps(problem.y))
        xi, foretold, passes = state.model.step(damping * min(1.0, relative), accuracy)
        state = replace(state, passes=state.passes + passes)
        if not all_finite(xi):
            return blown_up(state)
        falling = len(state.trace) < 2 or relative < 0.5 * state.trace[-2]
        if relative <= ROUNDING * eps(problem.y) and not falling:  # as good as it gets
            return replace(state, t=state.t + 1, stuck=True)
        stuck = _is_stuck(state.trace, SHORT if self.starts > 1 else LONG)
        if stuck or self._at_minimum(problem, state, xi):
            return self._restart(problem, state)
        model = self._model(problem, T.retract(xi))
        now = float(problem.relative(model.residual))
        scale = float(problem.y_norm) or 1.0
        fell = (relative * relative - now * now) * scale * scale
        better = now < relative
        gain = fell / foretold if foretold > 0 else 0.0
        factor = 6.0 if not better else 0.2 if gain > 0.75 else 3.0 if gain < 0.25 else 1.0
        kept = model if better else state.model
        return replace(
            state,
            X=kept.T.X,
            t=state.t + 1,
            model=kept,
            damping=state.damping * factor,
            trace=(*state.trace, now if better else relative),
            passes=state.passes + model.passes,
        )

    def _at_minimum(self, problem: Problem, state: State, xi: Array) -> bool:
        """Whether the step promises nothing: a least-squares solution that is not zero."""
        promise = dot(xi, state.model.gradient)
        left = state.trace[-1] * float(problem.y_norm)
        return promise <= NOTHING * left * left

    def _restart(self, problem: Problem, state: State) -> State:
        attempt = state.attempt + 1
        ends = (*state.ends, state.trace[-1])
        dof = state.model.T.dof
        # the lowest end, found again and again, is what the measurements leave; with few of them
        # it is most often a local minimum that is found again
        again = sum(end <= SAME * min(ends) for end in ends)
        enough = 2 if problem.equations >= PLENTY * dof else 20
        over = attempt >= self.starts or again >= enough
        noise = is_noise(problem, state.model.residual, dof) if not over and attempt == 1 else None
        state = replace(state, passes=state.passes + (noise is not None))
        if over or noise:
            return replace(state, t=state.t + 1, stuck=True, ends=ends)
        seed = (state.seed, state.trials[0])
        X, _, passes = self._own_start(problem, seed, attempt)
        fresh = replace(
            state, X=X, t=state.t + 1, attempt=attempt, trace=(), ends=ends,
            passes=state.passes + passes,
        )  # fmt: skip
        return self._look(problem, fresh)


def _is_stuck(trace: tuple[float, ...], patience: tuple[int, int, float]) -> bool:
    """Whether a start has come to a local minimum."""
    after, window, fall = patience
    return len(trace) > after and trace[-1] > (1 - fall) * trace[-1 - window]
