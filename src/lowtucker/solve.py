"""Run a solver on a problem: to the end, or step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from lowtucker._array import (
    Array,
    all_finite,
    as_float,
    namespace,
    same_kind,
    size,
    to_numpy,
    without_gradients,
)
from lowtucker._array.memory import available_memory, readable_bytes
from lowtucker._array.random import Seed
from lowtucker.checkpoint import Journal, fingerprint
from lowtucker.driver import Run, bind, conditions, epochs_allowed
from lowtucker.problem import Problem
from lowtucker.result import Result
from lowtucker.run import Callback, interruptible
from lowtucker.run.interrupt import Interrupt
from lowtucker.run.stopping import MaxEpochs, ResidualBelow, Stalled, StoppingRule
from lowtucker.scaling import (
    Units,
    into_units,
    out_of_units,
    scaled,
    solver_in_units,
    units_of,
)
from lowtucker.solvers import ALS, RCG, RGN, RSGD, TIHT, Solver, State, StoTIHT, as_solver
from lowtucker.solvers.noise import FULL, PLENTY
from lowtucker.solvers.rgn import LARGE
from lowtucker.solvers.sampling import Shuffled
from lowtucker.solvers.stotiht import default_block_size
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.tensor.tucker import TuckerTensor

__all__ = ["automatic", "in_units_of", "iterate", "run_solvers", "solve", "told_without"]

# Bytes below which nobody asks how much memory is free
NOTICEABLE = 10**8
# Starts that "auto" tries when it meets local minima, and how it prepares them
STARTS, IHT_STEPS = 100, 20


def iterate(
    problem: Problem,
    solver: Any = "auto",
    rank: tuple[int, ...] | None = None,
    *,
    start: Any = None,
    seed: Seed = 0,
) -> Iterator[State]:
    """States of a run, the start first, without end: the loop in your own hands.

    Parameters
    ----------
    problem : Problem
    solver : Solver or name
        "auto" is its first phase here: what to do when it gets stuck is in your hands too.
    rank : tuple of int
    start : TuckerTensor, array, or State, optional
    seed : int

    Examples
    --------
    >>> import itertools
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
    >>> problem = lt.Problem(A, A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)))
    >>> for state in itertools.islice(lt.iterate(problem, lt.TIHT(step=0.6), (1, 2, 2)), 100):
    ...     pass
    >>> state.t, float(problem.relative_residual(state.X)) < 1e-6
    (99, True)
    """
    _check_problem(problem)
    units = units_of(problem)
    start = into_units(_tensor_or_state(start, problem), units, "start")
    problem, solver = scaled(problem, units), solver_in_units(solver, units)
    bound = bind(problem, _phases(solver, problem, rank)[0], rank)
    with np.errstate(all="ignore"):
        first = bound.init(problem, start, seed)

    def states() -> Iterator[State]:
        state = first
        while True:
            yield out_of_units(state, units)
            with np.errstate(all="ignore"):
                state = bound.advance(problem, state)

    return states()


def solve(
    problem: Problem,
    solver: Any = "auto",
    rank: tuple[int, ...] | None = None,
    *,
    stop: StoppingRule | None = None,
    start: Any = None,
    X_true: Any = None,
    seed: Seed = 0,
    callbacks: Sequence[Callback] = (),
    checkpoint: Any = None,
) -> Result:
    """Run a solver on a problem until a rule says stop.

    Parameters
    ----------
    problem : Problem
        One, or a stack of trials: then ``success``, ``status`` and ``epochs`` of the result are
        arrays, and trials that have ended are frozen while the others go on. Trial k is the
        single run with ``seed=(seed, k)``, to rounding ("auto" takes other solvers for a single
        problem).
    solver : Solver, name, or a list of them that take over from each other
        "auto" starts from the truncated adjoint of y; takes least-squares steps on blocks
        (:class:`lowtucker.RSGD`) where there are 2.8 measurements or more per degree of freedom;
        then Gauss-Newton steps on all rows (:class:`lowtucker.RGN`), with up to 100 starts where
        it meets local minima. The history's ``phase`` says which did what. An operator without
        a tangent design of its own (functions, sparse and SciPy operators) gets
        :class:`lowtucker.RCG`, then RGN; sampled entries with more than 5000 degrees of freedom
        :class:`lowtucker.ALS`, then RGN; a stack of trials StoTIHT with automatic steps, then TIHT.
    rank : tuple of int
    stop : StoppingRule, optional
        ``ResidualBelow(1e-6) | Stalled() | MaxEpochs(500)`` by default; looked at every epoch.
    start : TuckerTensor, array, State or Result, optional
        A state is continued as if it had never been left. A result of fewer measurements is where
        a run with more begins.
    X_true : TuckerTensor or array, optional
        The truth, for the error column of the history. Nothing else looks at it.
    seed : int
    callbacks : sequence of callables
        Each gets one Progress after every epoch, outside the clock, and may return True to stop.
    checkpoint : path-like, optional
        File to write to, and to go on from where it is there: as in :func:`lowtucker.recover`.

    Notes
    -----
    The residual is measured at every epoch's end: one more reading of the rows, not counted in
    ``passes`` and ``seconds``, unless the solver has it at hand (TIHT, RGN, RCG).

    Where rows cannot be read in the middle of a run (:func:`lowtucker.stored`), the ``OSError`` has
    a ``result``: what was found until then.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
    >>> problem = lt.Problem(A, A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)))
    >>> rule = lt.ResidualBelow(1e-3) | lt.MaxEpochs(100)
    >>> lt.solve(problem, lt.TIHT(), (1, 2, 2), stop=rule).status.name
    'CONVERGED'
    """
    _check_problem(problem)
    if stop is None:
        stop = ResidualBelow(1e-6) | Stalled() | MaxEpochs(500)
    journal = None
    if checkpoint is not None:
        settings = {"solver": solver, "rank": rank, "seed": seed, "stop": conditions(stop)}
        journal = Journal(checkpoint, fingerprint(problem, start, X_true, settings), problem.y)
    with interruptible(), in_units_of(problem) as units:
        result = run_solvers(
            scaled(problem, units),
            solver_in_units(solver, units),
            rank,
            stop=stop,
            start=into_units(start, units, "start"),
            X_true=into_units(X_true, units, "X_true"),
            seed=seed,
            callbacks=told_without(units, callbacks),
            journal=journal,
        )
    if journal is not None:
        journal.write()
    return out_of_units(result, units)


@contextmanager
def in_units_of(problem: Problem) -> Iterator[Units]:
    """Units of a problem; a result that an error carries is brought out of them."""
    with without_gradients():
        units = units_of(problem)
        try:
            yield units
        except OSError as error:
            if hasattr(error, "result"):
                error.result = out_of_units(error.result, units)
            raise


def told_without(units: Units, callbacks: Any) -> Any:
    """Callbacks that are told states without units; as they are, where there are none."""
    if units.plain or not isinstance(callbacks, Sequence):
        return callbacks

    def told(callback: Callback) -> Callback:
        return lambda progress: callback(
            replace(progress, state=out_of_units(progress.state, units))
        )

    # progress bars look at no tensors, and are entered by the run
    return [c if isinstance(c, AbstractContextManager) else told(c) for c in callbacks]


def run_solvers(
    problem: Problem,
    solver: Any,
    rank: tuple[int, ...] | None,
    *,
    stop: StoppingRule,
    start: Any,
    X_true: Any,
    seed: Seed,
    callbacks: Sequence[Callback],
    journal: Journal | None,
) -> Result:
    """Do what :func:`solve` does, for a problem of moderate scale, with a journal to go on from."""
    if len(problem.batch_shape) > 1:
        raise ValueError(
            f"A stack of trials has one leading axis, got {problem.batch_shape}. Flatten it."
        )
    if not isinstance(stop, StoppingRule):
        raise TypeError(
            f"stop must be a stopping rule, got {stop!r}. Rules combine with | and &: "
            "lowtucker.ResidualBelow(1e-6) | lowtucker.MaxEpochs(100)."
        )
    fit = isinstance(callbacks, Sequence) and all(
        callable(c) and not isinstance(c, type) for c in callbacks
    )
    if not fit:
        raise TypeError(
            f"callbacks must be a sequence of callables, got {callbacks!r}. "
            "Try callbacks=[lowtucker.ProgressBar()]."
        )
    phases = _phases(solver, problem, rank)
    truth, limit = _truth(X_true, problem), epochs_allowed(stop)
    check_memory(problem, phases, rank)
    run = Run(problem, phases, rank, stop, truth, keeps=journal is not None)
    finished, kept = (None, None) if journal is None else journal.next_fit(limit)
    if finished is not None:
        return finished
    interrupt = None
    try:
        with interruptible() as interrupt, _entered(callbacks):
            if kept is None:
                run.begin(_tensor_or_state(start, problem), seed)
            else:
                run.resume(kept, seed)
            _go(run, interrupt, callbacks, journal)
    except OSError as error:  # rows that could not be read
        if run.history.rows < 2:
            raise
        run.interrupt()
        if interrupt is None or not interrupt.asked:
            error.result = run.result()  # type: ignore[attr-defined]
            error.add_note("What was found until then is the error's result: start=error.result.")
            if journal is not None:
                journal.finish(limit, error.result, run.kept)  # type: ignore[attr-defined]
            raise
        # Ctrl-C, which ends the workers of a LocalCluster too
    result = run.result()
    if journal is not None:
        journal.finish(limit, result, run.kept)
    return result


def check_memory(problem: Problem, phases: Sequence[Solver], rank: Any) -> None:
    """Refuse a run that cannot fit into memory, before the kernel ends it."""
    for solver in phases:
        given: Any = getattr(solver, "thresholding", None)
        if rank is None and (given is None or isinstance(given, type)):
            continue  # nobody has said a rank, which binding the solver will say
        of_rank = check_rank(given.rank if rank is None else rank, problem.shape, warn=False)
        need = to_numpy(problem.y[..., :0]).itemsize * solver.numbers(problem, of_rank)
        if need < NOTICEABLE or need <= (free := available_memory()):
            continue
        dof = degrees_of_freedom(problem.shape, attainable_rank(of_rank))
        advice = f"It makes {dof}^2 numbers. Try lowtucker.RGN(products=True), or a smaller rank."
        if solver.makes_tensors:
            advice = 'It makes tensors of the full size. Try solver="auto", which need not.'
        elif problem.A.traits.forms_full_tensor:
            advice = (
                f"{type(problem.A).__name__} makes tensors of the full size, {problem.shape}: try "
                "operators that need not (entries, kronecker), or a smaller tensor."
            )
        raise MemoryError(
            f"{solver.name} would need about {readable_bytes(need)} beside A, and "
            f"{readable_bytes(free)} are free. {advice}"
        )


def _go(
    run: Run, interrupt: Interrupt, callbacks: Sequence[Callback], journal: Journal | None
) -> None:
    """Epoch after epoch, until all is ended, or Ctrl-C ends it."""
    try:
        while run.active.size:
            run.epoch(lambda: interrupt.asked)
            if journal is not None and run.active.size:
                journal.epoch(run.kept)
            run.tell(callbacks)
    except KeyboardInterrupt:
        if interrupt.raises or interrupt.asked:
            raise
        run.interrupt()


@contextmanager
def _entered(callbacks: Sequence[Callback]) -> Iterator[None]:
    """Enter those of the callbacks that are context managers."""
    with ExitStack() as stack:
        for callback in callbacks:
            if isinstance(callback, AbstractContextManager):
                stack.enter_context(callback)
        yield


def _phases(solver: Any, problem: Problem, rank: Any) -> list[Solver]:
    """Solvers that take over from each other."""
    if isinstance(solver, list | tuple) and solver:
        return [as_solver(one) for one in solver]
    if not isinstance(solver, str) or solver.lower() != "auto":
        return [as_solver(solver)]
    if rank is None:
        raise ValueError('rank is needed for solver="auto".')
    return automatic(problem, rank)


def automatic(problem: Problem, rank: Any, *, quick: bool = False) -> list[Solver]:
    """Solvers that "auto" is made of; a quick fit gives up soon where it meets local minima."""
    rank = check_rank(rank, problem.shape, warn=False)
    if problem.batch_shape:  # the Riemannian solvers take one problem
        return [StoTIHT(sampler=Shuffled(default_block_size(problem, rank))), TIHT()]
    dof = degrees_of_freedom(problem.shape, attainable_rank(rank))
    plenty = problem.equations >= PLENTY * dof
    starts = (1 if plenty else 3) if quick else STARTS
    if not problem.A.traits.has_fast_tangent:
        return [RCG(), RGN(starts=starts)]
    if dof > LARGE and problem.A.entry_samples() is not None:
        return [ALS(), RGN()]  # which needs a start as good as that: other starts lead nowhere
    if not plenty:
        return [RGN(starts=starts, iht_steps=IHT_STEPS if size(problem.shape) <= FULL else 0)]
    small = problem.A.traits.row_separable and dof <= LARGE  # dof^2 numbers for a block
    blocks: list[Solver] = [RSGD(least_squares=True)] if small else []
    return [*blocks, RGN(starts=starts)]


def _check_problem(problem: Any) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(
            f"problem must be a Problem, got {type(problem).__name__}. Try lowtucker.Problem(A, y)."
        )


def _tensor_or_state(start: Any, problem: Problem) -> Any:
    """Result -> its state, or its tensor if it is of other measurements; all else as it is."""
    if not isinstance(start, Result):
        return start
    others = start.m != int(np.min(problem.equations))
    return start.X if others or start.state is None else start.state


def _truth(X_true: Any, problem: Problem) -> TuckerTensor | Array | None:
    if X_true is None:
        return None
    if not isinstance(X_true, TuckerTensor):
        X_true = as_float(X_true, "X_true")
        if not all_finite(X_true):
            raise ValueError("X_true has NaN or infinite entries.")
    core = X_true.core if isinstance(X_true, TuckerTensor) else X_true
    same_kind(core, problem.A.prototype, "X_true", "the operator")
    shape = tuple(X_true.shape)
    if isinstance(X_true, TuckerTensor):
        shape = (*X_true.batch_shape, *shape)
    if shape != (*problem.batch_shape, *problem.shape):
        raise ValueError(
            f"X_true must have shape {(*problem.batch_shape, *problem.shape)}, got {shape}."
        )
    if not bool(namespace(core).any(core != 0)):
        raise ValueError("X_true is zero: the error relative to it has no meaning.")
    return X_true
