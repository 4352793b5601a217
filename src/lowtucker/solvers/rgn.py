"""RGN: Riemannian Gauss-Newton with Levenberg-Marquardt damping."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from lowtucker._array import Array, all_finite, as_flag, as_integer, as_number, eps, namespace
from lowtucker._array.clock import mostly_used
from lowtucker._array.random import Seed
from lowtucker.limits import CLEAR, PLENTY
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Memory, State
from lowtucker.solvers.costs import gram_pays
from lowtucker.solvers.escape import escaped
from lowtucker.solvers.manifold import Manifold, Model, ProductModel, blown_up, dot
from lowtucker.solvers.noise import is_noise
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
# So many ends as close as this, with residuals that may be noise, are a floor: a start is given up
# while it still falls a little. On Indian Pines (rank (25,25,4) from 10 % of its DCT coefficients)
# 29 starts ended between 0.0394 and 0.0428; ends of local minima of sampled entries, 3 to 5 per
# degree of freedom, differ by more, or are above 0.3
FLOOR, ENDS = 1.05, 3
# Degrees of freedom above which products with D are the better way: a gram of 200 MB; and for
# operators without a design of their own, where D takes a forward for each
LARGE, FEW = 5000, 300
# Multiple of the rounding unit at which a residual cannot fall any more
ROUNDING = 10


@dataclass(frozen=True)
class Trace(Memory):
    """What Gauss-Newton remembers.

    Attributes
    ----------
    damping : array, shape ()
        The damping lambda.
    attempt : int
        Starts that were used up.
    trace : tuple of float
        Relative residuals since the start, the latest last.
    ends : tuple of float
        Relative residuals where earlier starts ended.
    stuck : bool
        Whether it has given up.
    last : bool
        Whether the residual was found to be noise: this start is the last, and goes on to its
        minimum.
    """

    damping: Any
    attempt: int = 0
    trace: tuple[float, ...] = ()
    ends: tuple[float, ...] = ()
    stuck: bool = False
    last: bool = False


@dataclass(frozen=True, repr=False, kw_only=True)
class RGN(Manifold):
    r"""Riemannian Gauss-Newton: least squares in the tangent space, then the retraction.

    With D the tangent design at :math:`X^t` and r the residual,

    .. math::

        \xi &= \arg\min_\xi \|r - D \xi\|^2 + \lambda s \rho \|\xi\|^2, \quad
        s = \mathrm{tr}(D^* D) / dof, \; \rho = \min(1, \|r\| / \|y\|) \\
        X^{t+1} &= H_r(X^t + \xi)

    A step is taken where the residual falls; :math:`\lambda` follows the ratio of the actual
    to the predicted decrease. Quadratic where the residual is zero.

    Parameters
    ----------
    damping : float
        The first :math:`\lambda`.
    starts : int
        How many starts to try. A start is given up when the residual stops falling (a local
        minimum). Where there are 2.8 measurements or more per degree of freedom and several starts,
        or products, a step along the gradient must fail first (``lowtucker.solvers.escape``). The
        next start reweights the measurements at random.
    iht_steps : int
        Steps of TIHT, with automatic step, that every other start, beginning with the second, is
        prepared by. They leave the tangent space, and with it the local minima that few
        measurements have: of 36 starts on 15x15x15 tensors of rank (5,5,5) with 1.6 measurements
        per degree of freedom 11 led to the truth without them, and all with ten. On tiny tensors
        they make no difference.
    products : bool, optional
        Whether to solve by products with D alone (LSMR) rather than by normal equations. By
        default where these would be too large (more than 5000 degrees of freedom), where the
        operator has no fast tangent design (more than 100), or where rows are outer products and
        normal equations would take longer (some 200 to 500; ``lowtucker.solvers.costs``).

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

    self_terminating: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the settings."""
        as_number(self.damping, "damping", positive=True)
        as_integer(self.starts, "starts")
        as_integer(self.iht_steps, "iht_steps", 0)
        if self.products is not None:
            as_flag(self.products, "products")

    def label(self, state: State) -> str:
        """RGN, with the number of the restart."""
        attempt = self.restarts(state)
        return self.name if not attempt else f"{self.name} restart {attempt}"

    def is_stuck(self, state: State) -> bool:
        """Whether no start leads further."""
        return isinstance(state.memory, Trace) and state.memory.stuck

    def restarts(self, state: State) -> int:
        """Starts that were used up."""
        return state.memory.attempt if isinstance(state.memory, Trace) else 0

    def residual(self, bound: Bound, state: State) -> Array:
        """Residual, which the model has."""
        if state.cache is None:
            return super().residual(bound, state)
        residual: Array = state.cache.residual
        return residual

    def _first_memory(self, X: TuckerTensor, level: float) -> Memory:
        return Trace(namespace(X.core).ones_like(X.norm()))

    @property
    def forms_full_tensor(self) -> bool:
        """Those of the steps of TIHT that prepare a start."""
        return self.iht_steps > 0

    def _by_gram(self, problem: Problem, rank: tuple[int, ...]) -> bool:
        dof = degrees_of_freedom(problem.shape, rank)
        if self.products is not None:
            return not self.products
        if not problem.A.traits.has_fast_tangent:
            return dof <= FEW
        return dof <= LARGE and gram_pays(problem, rank)

    def _model(self, problem: Problem, X: TuckerTensor) -> Model | ProductModel:
        return (Model if self._by_gram(problem, X.rank) else ProductModel).at(problem, X)

    def error_estimate(self, bound: Bound, state: State, residual: float) -> float | None:
        """Estimate where the last start came as far as the best: the model is one of its X."""
        trace = getattr(state.memory, "trace", ())
        if not trace or trace[-1] > 1.01 * residual:
            return None
        return super().error_estimate(bound, state, residual)

    def _own_start(self, bound: Bound, seed: Seed, k: int) -> tuple[TuckerTensor, float, float]:
        X, level, passes = super()._own_start(bound, seed, k)
        if not self.iht_steps or k % 2 == 0:
            return X, level, passes
        tiht = TIHT().bind(bound.problem, bound.rank)
        state = tiht.init(X, seed)
        for _ in range(self.iht_steps):
            state = tiht.advance(state)
        return state.X.single(), 0.0, passes + state.passes

    def _look(self, bound: Bound, state: State) -> State:
        problem, memory = bound.problem, state.memory
        model = self._model(problem, state.X)
        relative = float(problem.relative(model.residual))
        # a state of other measurements or weights starts over
        first = not memory.trace or abs(relative - memory.trace[-1]) > 1e-3 * relative
        if first:
            damping = namespace(memory.damping).full_like(memory.damping, self.damping)
            memory = replace(memory, damping=damping, trace=(relative,))
        passes = state.passes + model.passes
        return replace(state, X=model.T.X, memory=memory, cache=model, passes=passes)

    def advance(self, bound: Bound, state: State) -> State:
        """One damped Gauss-Newton step, or a new start where the last one got stuck."""
        problem, model, memory = bound.problem, state.cache, state.memory
        relative, damping = memory.trace[-1], float(memory.damping)
        accuracy = max(0.1 * min(1.0, relative), eps(problem.y))
        xi, predicted, passes = model.step(damping * min(1.0, relative), accuracy)
        state = replace(state, passes=state.passes + passes)
        if not all_finite(xi):
            return blown_up(state)
        falling = len(memory.trace) < 2 or relative < 0.5 * memory.trace[-2]
        if relative <= ROUNDING * eps(problem.y) and not falling:  # rounding error: no further fall
            return replace(state, t=state.t + 1, memory=replace(memory, stuck=True))
        patience = SHORT if self.starts > 1 and not memory.last else LONG
        at_minimum = self._at_minimum(problem, state, xi)
        if at_minimum or _is_stuck(memory.trace, patience):
            return self._restart(bound, state, at_minimum)
        tried = self._model(problem, model.T.retract(xi))
        now = float(problem.relative(tried.residual))
        scale = float(problem.y_norm) or 1.0
        fell = (relative * relative - now * now) * scale * scale
        better = now < relative
        gain = fell / predicted if predicted > 0 else 0.0
        factor = 6.0 if not better else 0.2 if gain > 0.75 else 3.0 if gain < 0.25 else 1.0
        kept = tried if better else model
        passes = state.passes + tried.passes
        trace = (*memory.trace, now if better else relative)
        memory = replace(memory, damping=memory.damping * factor, trace=trace)
        t = state.t + 1
        return replace(state, X=kept.T.X, t=t, memory=memory, cache=kept, passes=passes)

    def _at_minimum(self, problem: Problem, state: State, xi: Array) -> bool:
        """Whether the step promises nothing: a least-squares solution that is not zero."""
        promise = dot(xi, state.cache.gradient)
        left = state.memory.trace[-1] * float(problem.y_norm)
        return bool(promise <= NOTHING * left * left)

    def _restart(self, bound: Bound, state: State, at_minimum: bool) -> State:
        """Leave a saddle point, try another start, or give up; or go on, to the end of noise."""
        problem, model, memory = bound.problem, state.cache, state.memory
        attempt = memory.attempt + 1
        ends = (*memory.ends, memory.trace[-1])
        dof = model.T.dof
        plenty = problem.equations >= PLENTY * dof
        over = attempt >= self.starts or _same_again(ends, plenty) or mostly_used("other starts")
        over = over or memory.last
        noise = is_noise(problem, model.residual, model.T.X) if not over and attempt == 1 else None
        state = replace(state, t=state.t + 1, passes=state.passes + (noise is not None))
        # with fewer measurements, by normal equations, other starts are cheaper; and one start
        # alone is a refit of something good
        if not noise and (isinstance(model, ProductModel) or (plenty and self.starts > 1)):
            X, passes = escaped(problem, model.T.X, model.residual)
            state = replace(state, passes=state.passes + passes)
            if X is not None:
                return self._look(bound, replace(state, X=X, memory=replace(memory, trace=())))
        if noise and not at_minimum:
            return replace(state, memory=replace(memory, last=True))
        if over or noise:
            return replace(state, memory=replace(memory, stuck=True, ends=ends))
        X, _, passes = self._own_start(bound, (state.seed, state.trials[0]), attempt)
        memory = replace(memory, attempt=attempt, trace=(), ends=ends)
        return self._look(bound, replace(state, X=X, memory=memory, passes=state.passes + passes))


def _same_again(ends: tuple[float, ...], plenty: bool) -> bool:
    """Whether the lowest end was found again so often that other starts are pointless.

    It is then what the measurements leave. With few measurements it is most often a local minimum
    that is found again.
    """
    lowest = min(ends)
    same = sum(end <= SAME * lowest for end in ends)
    if not plenty:
        return same >= 20
    return same >= 2 or (lowest <= CLEAR and sum(end <= FLOOR * lowest for end in ends) >= ENDS)


def _is_stuck(trace: tuple[float, ...], patience: tuple[int, int, float]) -> bool:
    """Whether a start has reached a local minimum."""
    after, window, fall = patience
    return len(trace) > after and trace[-1] > (1 - fall) * trace[-1 - window]
