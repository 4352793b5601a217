"""The door: ``recover``, ``solve`` and ``iterate``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from lowtucker._array import (
    Array,
    all_finite,
    as_float,
    is_complex,
    like,
    namespace,
    same_kind,
    to_numpy,
)
from lowtucker._array.errors import UnderdeterminedWarning, warn_caller
from lowtucker._array.log import logger
from lowtucker._array.random import Seed
from lowtucker.labels.xarray import labelled
from lowtucker.operators import as_operator
from lowtucker.operators.matrix import Order
from lowtucker.problem import Problem
from lowtucker.recovery.advice import explained
from lowtucker.recovery.consistency import doubted, of_functions
from lowtucker.recovery.fit import Fit, Loss, tensor_or_state
from lowtucker.recovery.hard import rank_given_or_searched, recovered
from lowtucker.recovery.norank import without_rank
from lowtucker.recovery.rank import RankSearch
from lowtucker.run.call import Call
from lowtucker.run.execute import execute
from lowtucker.run.loop import bind
from lowtucker.run.progress import Callback
from lowtucker.run.result import Result
from lowtucker.run.scope import Scope
from lowtucker.run.stopping import MaxEpochs, ResidualBelow, Stalled, StoppingRule, conditions
from lowtucker.solvers import State
from lowtucker.solvers.auto import check_memory, of_format, phases_of
from lowtucker.status import UNDETERMINED
from lowtucker.tensor.rank import per_mode
from lowtucker.thresholding import Iterate, Thresholding, TuckerTruncation

__all__ = [
    "check_fields",
    "iterate",
    "log_call",
    "recover",
    "shrinkage_only",
    "solve",
    "warn_of_unsampled",
]

log = logger("recovery")


def recover(
    A: Any,
    y: Any,
    rank: tuple[int, ...] | int | RankSearch | Thresholding | Literal["auto"] | None = None,
    *,
    shape: tuple[int, ...] | None = None,
    order: Order = "C",
    solver: Any = "auto",
    tol: float = 1e-6,
    max_epochs: int = 500,
    max_seconds: float | None = None,
    noise_std: float | None = None,
    weights: Any = None,
    loss: Loss = "squared",
    start: Any = None,
    X_true: Any = None,
    seed: Seed = 0,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
) -> Result:
    r"""Find a tensor X of low Tucker rank, or of another simple format, with y = A(X).

    Parameters
    ----------
    A : MeasurementOperator, array, SciPy sparse matrix, SciPy or PyLops linear operator
        An array of shape (m, n_1, ..., n_d), or (m, N) with ``shape``. A batch of problems (a
        DenseOperator with leading axes) is solved as one. An xarray DataArray whose first dimension
        counts the measurements gives a result with the labels of the others:
        ``result.filled()`` is X as a DataArray.
    y : array, shape (m,) or (k, m)
        The measurements; also a DataArray or a Series, whose labels must be those of A's rows. The
        last axis counts them: (k, m) is a batch of k problems with one A, also for k = 1, and the
        result has that axis. Only a column (m, 1), as MATLAB's files have it, is read as (m,); give
        a row (1, m) of one problem as ``y[0]``.
    rank : tuple of int, int, "auto", RankSearch, Thresholding or None
        Tucker rank (r_1, ..., r_d); for a matrix also one number. "auto" searches for it,
        ``RankSearch(max=(10, 10, 5))`` up to a largest one. None, the default, needs none: data
        that are only nearly of low rank are shrunk (:class:`lowtucker.AMP`,
        :class:`lowtucker.Annealing`); where the spectra have a clear gap, a tensor of that rank is
        fitted, and kept if it predicts held-out measurements as well. ``result.X`` is then a
        :class:`lowtucker.ShrunkTensor` or a TuckerTensor.
        A thresholding, such as ``lowtucker.Sparse(5)`` or ``lowtucker.TensorTrain((2, 2))``, makes
        the solvers look for tensors of its format.
    shape : tuple of int, optional
        Shape of the tensor; needed unless ``A`` has it.
    order : "C" or "F"
        How the rows of an (m, N) matrix were vectorised; "F" is MATLAB's order.
    solver : str or Solver
        "auto" (see :func:`lowtucker.solve`), "tiht", "stotiht", "stogradmp", "rsgd", "rgn", "rcg",
        "als", "nuclear", "shrinkage" (what "auto" does first without a rank: none is looked for),
        a solver with settings such as ``StoTIHT(block_size=100, step=0.5)``, or a list of solvers
        that take over from each other.
    tol : float
        The residual :math:`\|y - A(X)\| / \|y\|` to reach (weighted where there are weights).
    max_epochs : int
        An epoch reads about as many rows as there are. Every rank that "auto" tries has so many.
        Shrinkage of sampled entries, without a rank, has its own number of steps.
    max_seconds : float, optional
        Limit on the wall time of the whole call: search, fits, restarts and diagnosis. It is kept
        to within 10 % or a pass, and the best result so far is returned; a finding of the kind
        "time limit" says what was not finished. By default 60 seconds where ``solver`` is "auto"
        and the data are small (a tensor of fewer than 10^6 entries, fewer than 10^6 measurements,
        and fewer than 10^9 numbers in a matrix), otherwise none. ``math.inf`` for no limit.
    noise_std : float, optional
        Standard deviation of the noise in y, in the units of y: the run ends at the noise floor,
        the residual that a fit leaves of it, about :math:`\sigma \sqrt{m - dof}`.
    weights : array, shape (m,), optional
        Weights of the squared residuals; 0 leaves a measurement out.
    loss : "squared" or "huber"
        Huber's loss is robust to gross outliers among the measurements; ``result.weights`` shows
        which they are.
    start : Iterate (such as a TuckerTensor), array, State or Result, optional
        Where to begin; by default zero (TIHT, StoTIHT), or the truncated adjoint of y (the
        Riemannian solvers, and so "auto"). ``result.state`` continues that run.
    X_true : TuckerTensor or array, optional
        The truth, for the error column of the history. The solver never sees it.
    seed : int
    callbacks : sequence of callables
        Each gets a Progress after every epoch, and may return True to stop.
        ``[lowtucker.ProgressBar()]`` draws a progress bar.
    checkpoint : path-like, optional
        File to keep the run in, written after epochs. Where it exists, the call resumes from it,
        and gives the result of an uninterrupted one, bit for bit; a run that a limit ended resumes
        where there are more epochs, and always after ``max_seconds``, which start from zero; one
        that has more epochs than ``max_epochs`` is returned as it is, with a finding. A checkpoint
        of another problem or solver is refused, and so is one that another process or thread is
        using (``BlockingIOError``); the page "Guarantees" says what is not noticed.

    Returns
    -------
    Result

    Warns
    -----
    RankWarning
        A rank that no tensor attains.
    UnderdeterminedWarning
        Fewer measurements than degrees of freedom.

    Notes
    -----
    An epoch of "auto" is one pass over the rows; where it works on blocks of fewer than 64 rows,
    or may have reached the tolerance, one more for the residual. Memory: a few tensors of the full
    size and dof^2 numbers beside A; nothing of A's size. Where a run stalls, diagnosis asks whether
    the residual is noise (33 adjoints, one reading of a matrix), whether a larger rank predicts
    held-out measurements better (two fits of "auto"), and whether the measurements determine X (no
    pass after Gauss-Newton steps, otherwise one, or some 20 to 100 by products); see
    docs/reading.md. All of it counts in ``result.passes``.

    When new measurements arrive, give the old result as ``start`` to a call with all of them.

    Examples
    --------
    >>> import lowtucker as lt
    >>> X_true = lt.random_tucker((10, 10, 5), rank=(2, 2, 2), seed=0)
    >>> A = lt.gaussian((10, 10, 5), m=300, seed=1)
    >>> result = lt.recover(A, A.forward(X_true), rank=(2, 2, 2))
    >>> result.success
    True
    >>> lt.metrics.relative_error(result.X, X_true) < 1e-5
    True

    Without a rank; the spectra show that it is (2, 2, 2):

    >>> lt.recover(A, A.forward(X_true)).rank
    (2, 2, 2)
    """
    call = Call.of(recover, locals())
    solver = solver.lower() if isinstance(solver, str) else solver
    A, y, form = labelled(A, y, shape)
    problem = Problem(as_operator(A, shape, order=order), y, weights)
    soft, solver = shrinkage_only(solver, rank, start)
    rank, solver = format_or_rank(rank, solver, problem)
    _, search = rank_given_or_searched(rank)
    no_rank = rank is None and solver == "auto"
    check_fields(problem)
    fit = Fit(solver, tol, max_epochs, max_seconds, noise_std, X_true, seed, callbacks, loss)
    _check_one(problem, search, loss, no_rank)
    warn_of_unsampled(problem)
    fit = replace(fit, X_true=checked_truth(X_true, problem))
    settings = fit.identity | {"rank": rank, "held_out": 0.0} | soft
    log_call(call, problem)
    with Scope(problem, checkpoint, settings, start=start, X_true=fit.X_true) as scope:
        start = scope.into(start, "start")
        fit = fit.within(scope)
        contradiction = of_functions(scope)
        if no_rank and start is None:
            result = without_rank(scope.problem, fit, **soft)
        else:
            result = recovered(scope.problem, rank, fit, start=start)
    result = explained(doubted(scope.export(result, noise_std), contradiction), call)
    return result if form is None else replace(result, labels=form.labels, data=form)


def iterate(
    problem: Problem,
    solver: Any = "auto",
    rank: tuple[int, ...] | int | Thresholding | None = None,
    *,
    start: Any = None,
    seed: Seed = 0,
) -> Iterator[State]:
    """Iterate over the states of a run, the start first, without end: a loop of your own.

    Parameters
    ----------
    problem : Problem
    solver : Solver or name
        "auto" is its first phase here: what to do when it gets stuck is up to you.
    rank : tuple of int, int or Thresholding
        As in :func:`lowtucker.recover`.
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
    rank, solver = format_or_rank(rank, solver, problem)
    with Scope(problem) as scope:
        start = scope.into(tensor_or_state(start, problem), "start")
        phases = phases_of(scope.solver(solver), scope.problem, rank)
        bound = bind(scope.problem, phases[0], rank)
        with np.errstate(all="ignore"):
            first = bound.init(start, seed)

    def outside(state: State) -> Any:
        return scope.outside(state if bound.is_batch else state.single())

    def states() -> Iterator[State]:
        state = first
        while True:
            yield outside(state)
            with np.errstate(all="ignore"):
                state = bound.advance(state)

    return states()


def solve(
    problem: Problem,
    solver: Any = "auto",
    rank: tuple[int, ...] | int | Thresholding | None = None,
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
        One, or a batch of problems: then ``success``, ``status`` and ``epochs`` of the result are
        arrays, and problems that have ended are frozen while the others continue. Problem k is the
        single run with ``seed=(seed, k)``, to rounding, where all have as many measurements:
        problems share the choices of "auto" and the size of blocks.
    solver : Solver, name, or a list of them that take over from each other
        "auto" starts from the truncated adjoint of y; takes least-squares steps on blocks
        (:class:`lowtucker.RSGD`) where there are 2.8 measurements or more per degree of freedom;
        then Gauss-Newton steps on all rows (:class:`lowtucker.RGN`), with up to 100 starts where
        it meets local minima, fewer where they end at the same residual. The history's ``phase``
        says which did what. An operator without a tangent design of its own (functions, SciPy
        operators) gets :class:`lowtucker.RCG`, then RGN by products. So do rows that are outer
        products, sampled entries above all, where normal equations would take longer (beyond some
        200 to 500 degrees of freedom); for entries RCG or :class:`lowtucker.ALS`, whichever a
        model of the cost (``lowtucker.solvers.costs``) predicts to be faster. A batch of
        problems gets the same.
    rank : tuple of int, int or Thresholding
        As in :func:`lowtucker.recover`.
    stop : StoppingRule, optional
        ``ResidualBelow(1e-6) | Stalled() | MaxEpochs(500)`` by default; checked every epoch.
    start : TuckerTensor, array, State or Result, optional
        A state is continued as if the run had never stopped. A result of fewer measurements is the
        start of a run with more.
    X_true : TuckerTensor or array, optional
        The truth, for the error column of the history. Nothing else uses it.
    seed : int
    callbacks : sequence of callables
        Each gets one Progress after every epoch, outside the clock, and may return True to stop.
    checkpoint : path-like, optional
        File to write to, and to resume from where it exists: as in :func:`lowtucker.recover`.

    Notes
    -----
    The residual is measured at every epoch's end: one more pass over the rows, which is not in
    ``seconds``, unless the solver has it at hand (TIHT, RGN, RCG) or an estimate is enough
    (:class:`lowtucker.RSGD`, until the tolerance seems to be reached).

    Where rows cannot be read in the middle of a run (:func:`lowtucker.stored`), the ``OSError`` has
    a ``result``: the partial result.

    Examples
    --------
    >>> import lowtucker as lt
    >>> A = lt.gaussian((5, 5, 6), m=120, seed=1)
    >>> problem = lt.Problem(A, A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)))
    >>> rule = lt.ResidualBelow(1e-3) | lt.MaxEpochs(100)
    >>> lt.solve(problem, lt.TIHT(), (1, 2, 2), stop=rule).status.name
    'CONVERGED'
    """
    call = Call.of(solve, locals())
    _check_problem(problem)
    if stop is None:
        stop = ResidualBelow(1e-6) | Stalled() | MaxEpochs(500)
    if not isinstance(stop, StoppingRule):
        raise TypeError(
            f"stop must be a stopping rule, got {stop!r}. Rules combine with | and &: "
            "lowtucker.ResidualBelow(1e-6) | lowtucker.MaxEpochs(100)."
        )
    _check_axes(problem)
    rank, solver = format_or_rank(rank, solver, problem)
    settings = {"solver": solver, "rank": rank, "seed": seed, "stop": conditions(stop)}
    X_true = checked_truth(X_true, problem)
    log_call(call, problem)
    with Scope(problem, checkpoint, settings, start=start, X_true=X_true) as scope:
        phases = phases_of(scope.solver(solver), scope.problem, rank)
        check_memory(scope.problem, phases, rank)
        result = execute(
            scope.problem,
            phases,
            rank,
            stop=stop,
            start=scope.into(tensor_or_state(start, problem), "start"),
            X_true=scope.into(X_true, "X_true"),
            seed=seed,
            callbacks=scope.callbacks(callbacks),
            keeper=scope.keeper,
        )
    return explained(scope.export(result), call)


def shrinkage_only(solver: Any, rank: Any, start: Any = None) -> tuple[dict[str, bool], Any]:
    """Setting of :func:`without_rank` for solver="shrinkage", and the solver of its fits."""
    if not isinstance(solver, str) or solver != "shrinkage":
        return {}, solver
    for name, value in (("rank", rank), ("start", start)):
        if value is not None:
            raise ValueError(
                f'solver="shrinkage" takes no {name}, got {value!r:.80}. Leave it out, or try '
                'solver="auto".'
            )
    return {"only_shrinkage": True}, "auto"


def log_call(call: Call, problem: Problem) -> None:
    """Tell what was called, and with how many measurements."""
    if log.isEnabledFor(logging.INFO):
        batch = f"{problem.batch_shape[0]} problems of " if problem.batch_shape else ""
        said = "%s: %s%d measurements of a tensor of shape %s."
        log.info(said, call.code({}), batch, problem.m, problem.shape)


def format_or_rank(rank: Any, solver: Any, problem: Problem) -> tuple[Any, Any]:
    """Rank, or none where a format is given in its place; and the solvers, which then have it."""
    phases = solver if isinstance(solver, list | tuple) else [solver]
    for given in (rank, *(getattr(one, "thresholding", None) for one in phases)):
        if isinstance(given, type) and not issubclass(given, TuckerTruncation):
            raise TypeError(
                f"{given.__name__} is a class, and has no rank of its own. Try "
                f"lowtucker.{given.__name__}(3) in place of the rank."
            )
    if isinstance(rank, type):
        raise TypeError(
            f"rank must be a tuple of integers, got the class {rank.__name__}. Try "
            f"lowtucker.{rank.__name__}((3, 3, 3))."
        )
    if isinstance(rank, Thresholding):
        return None, of_format(rank.for_shape(problem.shape), solver, problem)
    return per_mode(rank, problem.shape), solver


def _check_one(problem: Problem, search: RankSearch | None, loss: Any, no_rank: bool) -> None:
    """Check that what takes one problem gets one."""
    if problem.batch_shape and (search is not None or loss != "squared" or no_rank):
        what = f"loss={loss!r}" if loss != "squared" else "A call without a rank"
        what = what if search is None else "A search for the rank"
        raise ValueError(
            f"{what} takes one problem, got a batch of {problem.batch_shape}. Solve them one by "
            'one, or give a rank and loss="squared".'
        )
    _check_axes(problem)


def _check_axes(problem: Problem) -> None:
    """Check the leading axes of a batch."""
    if len(problem.batch_shape) > 1:
        raise ValueError(
            f"A batch of problems has one leading axis, got {problem.batch_shape}. Flatten it."
        )
    if problem.batch_shape == (0,):
        raise ValueError("A batch must have one problem at least, got none: y has no rows.")


def warn_of_unsampled(problem: Problem) -> None:
    """Warn before the work of what cannot be determined at any rank."""
    counting = (
        None if problem.weights is None or problem.batch_shape else to_numpy(problem.weights) > 0
    )
    for found in problem.A.diagnose((1,) * len(problem.shape), counting):
        if found.kind in UNDETERMINED:
            advice = "Add measurements, or leave these slices out."
            warn_caller(f"{found} {advice}", UnderdeterminedWarning)


def _check_problem(problem: Any) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(
            f"problem must be a Problem, got {type(problem).__name__}. Try lowtucker.Problem(A, y)."
        )


def checked_truth(X_true: Any, problem: Problem) -> Iterate | Array | None:
    """Refuse a truth that does not fit the problem."""
    if X_true is None:
        return None
    if not isinstance(X_true, Iterate):
        X_true = as_float(X_true, "X_true")
        if not all_finite(X_true):
            raise ValueError("X_true has NaN or infinite entries.")
    core = next(iter(X_true.parts().values())) if isinstance(X_true, Iterate) else X_true
    same_kind(core, problem.A.prototype, "X_true", "the operator")
    shape = tuple(X_true.shape)
    if isinstance(X_true, Iterate):
        shape = (*X_true.batch_shape, *shape)
    if shape != (*problem.batch_shape, *problem.shape):
        raise ValueError(
            f"X_true must have shape {(*problem.batch_shape, *problem.shape)}, got {shape}."
        )
    if not bool(namespace(core).any(core != 0)):
        raise ValueError("X_true is zero: the error relative to it has no meaning.")
    return X_true


def check_fields(problem: Problem) -> None:
    """Refuse complex measurements that no tensor of the operator's can give."""
    if not is_complex(problem.y):
        return
    zero = like(np.zeros(problem.shape), problem.A.prototype, problem.A.dtype)
    if not is_complex(problem.A.forward(zero)):
        raise ValueError(
            "y is complex, but A gives real measurements of real tensors. For complex tensors try "
            "lowtucker.DenseOperator(matrix, shape, dtype=complex); otherwise give y.real."
        )
