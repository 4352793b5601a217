"""RGN: Riemannian Gauss-Newton with Levenberg-Marquardt damping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from lowtucker._array import Array, as_flag, as_integer, as_number, eps, namespace, to_numpy
from lowtucker._array.clock import mostly_used
from lowtucker._array.readings import side_by_side
from lowtucker.limits import CLEAR, PLENTY
from lowtucker.problem import Problem
from lowtucker.solvers.base import Bound, Memory, State
from lowtucker.solvers.costs import gram_pays
from lowtucker.solvers.crew import Attempts, Crew, Move, Start, Trace
from lowtucker.solvers.escape import escaped
from lowtucker.solvers.manifold import Manifold, Starts, blown_up, of_members
from lowtucker.solvers.models import Model, ProductModel, Step, dot, finite_vectors, some_of
from lowtucker.solvers.noise import is_noise
from lowtucker.solvers.start import in_dtype
from lowtucker.solvers.tiht import TIHT
from lowtucker.tensor.rank import degrees_of_freedom
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["RGN"]

NumPyArray = np.ndarray[Any, Any]
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


# Starts of a problem that run together, at most, and the numbers of their gram matrices
TOGETHER, NUMBERS = 8, 2 * 10**7


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
        next ones reweight the measurements at random: one, then two, four, and up to eight run
        together, and share every pass over A.
    iht_steps : int
        Steps of TIHT, with automatic step, that every other start, beginning with the second, is
        prepared by. They leave the tangent space, and with it the local minima that few
        measurements have: of 36 starts on 15x15x15 tensors of rank (5,5,5) with 1.6 measurements
        per degree of freedom 11 led to the truth without them, and all with ten. On tiny tensors
        they make no difference.
    products : bool, optional
        Whether to solve by products with D alone (LSMR) rather than by normal equations. By
        default where these would be too large (more than 5000 degrees of freedom), where the
        operator has no fast tangent design (more than 300), or where rows are outer products and
        normal equations would take longer (some 200 to 500; ``lowtucker.solvers.costs``).

    Notes
    -----
    By normal equations a step costs one pass: :math:`D^* D` and :math:`D^* r` are summed while
    the rows are read. Memory: :math:`dof^2` numbers for every start at work. By products it costs
    two passes, and two more for every iteration of LSMR. Memory: a few vectors, and what the
    operator's products need. A start costs two passes and a few rows, and two passes and a full
    tensor for every step of TIHT.

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
    _memory: ClassVar[type[Memory]] = Trace

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

    def is_stuck(self, state: State) -> Any:
        """Whether no start leads further, for every problem."""
        if not isinstance(state.memory, Trace):
            return False
        return np.array([attempts.stuck for attempts in state.memory.problems])

    def restarts(self, state: State) -> int:
        """Starts that were begun after the first, of the problem with the most."""
        if not isinstance(state.memory, Trace):
            return 0
        return max(attempts.begun for attempts in state.memory.problems) - 1

    def residual(self, bound: Bound, state: State) -> Array:
        """Residual, which the model has."""
        if state.cache is None:
            return super().residual(bound, state)
        residual: Array = state.cache.residual
        return residual

    def _first_memory(self, X: TuckerTensor, levels: NumPyArray) -> Memory:
        return Trace(tuple(Attempts() for _ in levels), X)

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

    def _model(self, problem: Problem, X: TuckerTensor) -> Any:
        return (Model if self._by_gram(problem, X.rank) else ProductModel).at(problem, X)

    def error_estimate(self, bound: Bound, state: State, residual: float) -> float | None:
        """Estimate where a start at work came as far as the best: the model is one of its X."""
        memory = state.memory
        if not isinstance(memory, Trace) or not memory.starts[0].trace:
            return None
        if min(start.level for start in memory.starts) > 1.01 * residual:
            return None
        return super().error_estimate(bound, state, residual)

    def _starts(
        self, bound: Bound, which: Sequence[tuple[int, int]], seeds: tuple[int, tuple[int, ...]]
    ) -> Starts:
        made = super()._starts(bound, which, seeds)
        prepared = [i for i, (_, number) in enumerate(which) if number % 2]
        if not self.iht_steps or not prepared:
            return made
        tiht = TIHT().bind(_copies(bound.problem, [which[i][0] for i in prepared]), bound.rank)
        state = tiht.init(made.X.take(prepared), seeds[0])
        for _ in range(self.iht_steps):
            state = tiht.advance(state)
        X = made.X.put(prepared, state.X)
        return Starts(X, 0 * made.levels)

    def _look(self, bound: Bound, state: State) -> State:
        memory = state.memory
        X = in_dtype(memory.X, bound.problem)
        model, relative = self._measured(bound, X, memory.owners)
        levels = iter(relative)
        problems = [
            replace(
                attempts, starts=tuple(self._at(start, next(levels)) for start in attempts.starts)
            )
            for attempts in memory.problems
        ]
        return self._state(state, problems, model)

    def _at(self, start: Start, level: float) -> Start:
        """Start at a residual; a state of other measurements or weights begins anew."""
        if start.trace and abs(level - start.level) <= 1e-3 * level:
            return start
        return replace(start, damping=self.damping, trace=(level,))

    def _measured(
        self, bound: Bound, X: TuckerTensor, owners: Sequence[int]
    ) -> tuple[Any, list[float]]:
        """Model at iterates of these problems, and their relative residuals."""
        problem = of_members(bound.problem, owners)
        model = self._model(problem, X)
        relative = np.asarray(to_numpy(problem.relative(model.residual)), dtype=np.float64)
        return model, relative.tolist()

    def _state(self, state: State, problems: Sequence[Attempts], model: Any) -> State:
        """State with these starts at work, and their models."""
        memory = Trace(tuple(problems), model.T.X)
        crew = Crew(model, memory.owners, memory.best)
        everyone = crew.best == list(range(len(crew.owners)))
        X = memory.X if everyone else memory.X.take(crew.best)
        return replace(state, X=X, memory=memory, cache=crew)

    def advance(self, bound: Bound, state: State) -> State:
        """One damped Gauss-Newton step of every start at work; new starts for those at their end.

        One pass over the rows of a problem, whatever the number of its starts.
        """
        model, owners = state.cache.model, state.cache.owners
        levels = np.array([start.level for start in state.memory.starts])
        damping = np.array([start.damping for start in state.memory.starts])
        accuracy = np.maximum(0.1 * np.minimum(1.0, levels), eps(bound.problem.y))
        step = model.step(damping * np.minimum(1.0, levels), accuracy)
        scale = np.asarray(to_numpy(bound.problem.y_norm), dtype=np.float64)
        scale = np.broadcast_to(scale, (len(state.trials),))[owners]
        # a step that promises nothing: a least-squares solution that is not zero
        minimum = dot(step.xi, model.gradient) <= NOTHING * (levels * scale) ** 2
        state = replace(state, t=state.t + 1)
        state, problems, moves = self._planned(bound, state, finite_vectors(step.xi), minimum)
        squares = np.where(scale > 0, scale, 1.0) ** 2
        return self._moved(bound, state, problems, moves, step, squares)

    # What starts do next

    def _planned(
        self, bound: Bound, state: State, finite: NumPyArray, minimum: NumPyArray
    ) -> tuple[State, list[Attempts], list[Move]]:
        """Decide what the starts of every problem do next."""
        problems, moves, first = [], [], 0
        broken = np.zeros(len(state.trials), dtype=bool)
        for k, attempts in side_by_side(enumerate(state.memory.problems)):
            members = range(first, first + len(attempts.starts))
            first = members.stop
            broken[k] = not any(finite[i] for i in members)
            if attempts.stuck or broken[k]:
                some = [Move(k, attempts.starts[attempts.best], members[attempts.best], stays=True)]
            else:
                going = [
                    (Move(k, start, i), bool(minimum[i]))
                    for i, start in zip(members, attempts.starts, strict=True)
                    if finite[i]
                ]
                attempts, some = self._next(bound, state, attempts, going)
            problems.append(attempts)
            moves += some
        if broken.any():
            state = blown_up(replace(state, t=state.t - 1), broken)
        return state, problems, moves

    def _next(
        self, bound: Bound, state: State, attempts: Attempts, going: list[tuple[Move, bool]]
    ) -> tuple[Attempts, list[Move]]:
        """Decide what the starts of a problem do next.

        ``going`` are their steps, and whether these promise nothing.
        """
        moves: list[Move] = []
        k, rounding = going[0][0].owner, ROUNDING * eps(bound.problem.y)
        for position, (move, minimum) in enumerate(going):
            trace = move.start.trace
            falling = len(trace) < 2 or trace[-1] < 0.5 * trace[-2]
            if trace[-1] <= rounding and not falling:  # rounding error: no further fall
                return replace(attempts, stuck=True), [move._replace(stays=True)]
            patience = SHORT if self.starts > 1 and not move.start.last else LONG
            if not (minimum or _is_stuck(trace, patience)):
                moves.append(move)
                continue
            others = len(moves) + len(going) - position - 1
            attempts, after = self._ended(bound, state, attempts, move, minimum, others)
            if attempts.stuck:
                best, _ = min(going, key=lambda one: one[0].start.level)
                return attempts, [best._replace(stays=True)]
            moves += [] if after is None else [after]
        if len(moves) < len(attempts.starts):
            room = min(attempts.begun, self._together(bound)) - len(moves)
            numbers = range(attempts.begun, min(attempts.begun + room, self.starts))
            moves += [Move(k, Start(number)) for number in numbers]
            attempts = replace(attempts, begun=attempts.begun + len(numbers))
        return attempts, moves

    def _together(self, bound: Bound) -> int:
        """Starts of a problem that may run together."""
        if not self._by_gram(bound.problem, bound.rank):
            return 1
        dof = degrees_of_freedom(bound.problem.shape, bound.rank)
        return max(1, min(TOGETHER, NUMBERS // dof**2))

    def _ended(
        self, bound: Bound, state: State, attempts: Attempts, move: Move, minimum: bool, others: int
    ) -> tuple[Attempts, Move | None]:
        """Leave a saddle point, or give way to other starts, or give up; or go on, to noise."""
        model, start, i = state.cache.model, move.start, move.member
        problem = bound.problem.trial(move.owner)
        ends = (*attempts.ends, start.level)
        plenty = problem.equations >= PLENTY * model.T.dof
        over = (attempts.begun >= self.starts and not others) or start.last
        over = over or _same_again(ends, plenty) or mostly_used("other starts")
        X, residual = model.T.X.trial(i), some_of(model.residual, i)[: problem.m]
        noise = is_noise(problem, residual, X) if not over and len(ends) == 1 else None
        # with fewer measurements, by normal equations, other starts are cheaper; and one start
        # alone is a refit of something good
        if not noise and (isinstance(model, ProductModel) or (plenty and self.starts > 1)):
            found = escaped(problem, X, residual)
            if found is not None:
                return attempts, move._replace(X=found.batched())
        if noise and not minimum:
            return attempts, move._replace(start=replace(start, last=True))
        return replace(attempts, ends=ends, stuck=bool(over or noise)), None

    def _moved(
        self,
        bound: Bound,
        state: State,
        problems: Sequence[Attempts],
        moves: Sequence[Move],
        step: Step,
        squares: NumPyArray,
    ) -> State:
        """Do what is planned, with one model of all new iterates; keep what is better."""
        old, fresh = state.cache.model, [move for move in moves if not move.stays]
        models, levels = [old], iter(enumerate([0.0]))
        if fresh:
            X = self._iterates(bound, state, fresh, step.xi)
            tried, relative = self._measured(bound, X, [move.owner for move in fresh])
            models, levels = [tried, old], iter(enumerate(relative))
        starts: list[list[Start]] = [[] for _ in problems]
        places = []
        for move in moves:
            start, member = move.start, -1 if move.member is None else move.member
            place: int | None = None
            if not move.stays:
                place, level = next(levels)
                if not move.steps:
                    start = replace(start, damping=self.damping, trace=(level,))
                else:
                    fell = (start.level**2 - level**2) * squares[member]
                    start, better = _after(start, level, fell, float(step.promise[member]))
                    place = place if better else None
            starts[move.owner].append(start)
            places.append(len(fresh) + member if place is None else place)
        problems = [
            replace(attempts, starts=tuple(some))
            for attempts, some in zip(problems, starts, strict=True)
        ]
        problem = of_members(bound.problem, [move.owner for move in moves])
        return self._state(state, problems, _chosen(models, places, len(fresh), problem))

    def _iterates(
        self, bound: Bound, state: State, moves: Sequence[Move], xi: Array
    ) -> TuckerTensor:
        """Iterates to which starts go."""
        T = state.cache.model.T
        steps = [k for k, move in enumerate(moves) if move.steps]
        given = [k for k, move in enumerate(moves) if move.X is not None]
        new = [k for k, move in enumerate(moves) if move.member is None]
        parts: list[Any] = []
        if steps:
            members = [moves[k].member for k in steps]
            everyone = members == list(range(T.batch_shape[0]))
            parts.append(
                T.retract(xi) if everyone else T.take(members).retract(some_of(xi, members))
            )
        parts += [moves[k].X for k in given]
        if new:
            which = [(moves[k].owner, moves[k].start.number) for k in new]
            parts.append(self._starts(bound, which, (state.seed, state.trials)).X)
        if len(parts) == 1:
            found: TuckerTensor = parts[0]
            return found
        order = [*steps, *given, *new]
        return TuckerTensor.concat(parts).take(np.argsort(order))


def _after(start: Start, level: float, fell: float, promise: float) -> tuple[Start, bool]:
    """Start after a step to a residual, with its damping; and whether the step is taken."""
    better = level < start.level
    gain = fell / promise if promise > 0 else 0.0
    factor = 6.0 if not better else 0.2 if gain > 0.75 else 3.0 if gain < 0.25 else 1.0
    trace = (*start.trace, level if better else start.level)
    return replace(start, damping=start.damping * factor, trace=trace), better


def _chosen(models: Sequence[Any], places: Sequence[int], fresh: int, problem: Problem) -> Any:
    """Models at these places among new and old ones, without a copy where they are all new."""
    if list(places) == list(range(fresh)):
        return models[0]
    if all(place >= fresh for place in places):
        return models[-1].select([place - fresh for place in places])
    return type(models[0]).chosen(models, places, problem)


def _copies(problem: Problem, owners: Sequence[int]) -> Problem:
    """Batch with the problem of each of several starts; one operator is shared."""
    if problem.batch_shape:
        return of_members(problem, owners)
    y = namespace(problem.y).broadcast_to(problem.y, (len(owners), problem.m))
    return Problem(problem.A, y, problem.weights, _trusted=True)


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
