"""The one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from lowtucker._arrays import as_number, eps, is_complex, like, to_numpy
from lowtucker._random import Seed
from lowtucker.monitoring import Callback
from lowtucker.operators import as_operator
from lowtucker.operators.matrix import Order
from lowtucker.problem import Problem
from lowtucker.result import Result
from lowtucker.solve import solve
from lowtucker.solvers.rgn import PLENTY
from lowtucker.status import Status
from lowtucker.stopping import MaxEpochs, MaxSeconds, ResidualBelow, Stalled, StoppingRule
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom
from lowtucker.tensor.unfolding import unfold

__all__ = ["recover"]

# Spectral norms above so many times those of noise are structure; residuals above so much of y are
# too large to be called noise
STRUCTURE, CLEAR = 1.05, 0.3


def recover(
    A: Any,
    y: Any,
    rank: tuple[int, ...],
    *,
    shape: tuple[int, ...] | None = None,
    order: Order = "C",
    solver: Any = "auto",
    tol: float = 1e-6,
    max_epochs: int = 500,
    max_seconds: float | None = None,
    noise_std: float | None = None,
    weights: Any = None,
    loss: Literal["squared"] = "squared",
    start: Any = None,
    X_true: Any = None,
    seed: Seed = 0,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
) -> Result:
    r"""Find a tensor X of low Tucker rank with y = A(X).

    Parameters
    ----------
    A : MeasurementOperator, array, SciPy sparse matrix, SciPy or PyLops linear operator
        An array of shape (m, n_1, ..., n_d), or (m, N) with ``shape``. A stack of trials
        (a DenseOperator with leading axes) is solved as one.
    y : array, shape (m,)
        The measurements.
    rank : tuple of int
        Tucker rank (r_1, ..., r_d).
    shape : tuple of int, optional
        Shape of the tensor; needed unless ``A`` tells.
    order : "C" or "F"
        How the rows of an (m, N) matrix were vectorised; "F" is MATLAB's way.
    solver : str or Solver
        "auto" (see :func:`lowtucker.solve`), "tiht", "stotiht", "rsgd", "rgn", "rcg", or a solver
        with settings such as ``StoTIHT(block_size=100, step=0.5)``.
    tol : float
        The residual :math:`\|y - A(X)\| / \|y\|` to reach (weighted where there are weights).
    max_epochs : int
        An epoch reads about as many rows as there are.
    max_seconds : float, optional
        Limit on the time of the iterations; looked at when an epoch ends.
    noise_std : float, optional
        Standard deviation of the noise in y, in the units of y: the run ends at the noise floor,
        the residual that a fit leaves of it, about :math:`\sigma \sqrt{m - dof}`.
    weights : array, shape (m,), optional
        Weights of the squared residuals; 0 leaves a measurement out.
    loss : "squared"
    start : TuckerTensor, array, State or Result, optional
        Where to begin; by default zero (TIHT, StoTIHT), or the HOSVD of the adjoint of y (the
        Riemannian solvers, and so "auto"). ``result.state`` continues that run.
    X_true : TuckerTensor or array, optional
        The truth, for the error column of the history. The solver never sees it.
    seed : int
    callbacks : sequence of callables
        Each gets a Progress after every epoch, and may return True to stop.
        ``[lowtucker.ProgressBar()]`` draws a progress bar.
    checkpoint : None
        Reserved.

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
    An epoch of "auto" reads the rows once; while it works on blocks, once more to measure the
    residual. Memory: a few tensors of the full size and dof^2 numbers beside A; nothing of A's
    size. Where ``noise_std`` is not given and the run gets stuck, a last pass looks whether what
    is left of y has any structure: if not, it is noise, and the status says so.

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
    """
    _check_not_yet(rank, loss, checkpoint)
    operator = as_operator(A, shape, order=order)
    problem = Problem(operator, y, weights)
    _check_fields(problem)
    stop = _stopping(problem, rank, tol, max_epochs, max_seconds, noise_std)
    result = solve(
        problem,
        solver,
        rank,
        stop=stop,
        start=start,
        X_true=X_true,
        seed=seed,
        callbacks=callbacks,
    )
    if noise_std is None and _leaves_noise(problem, result):
        return replace(result, status=Status.NOISE_FLOOR, success=True)
    return result


def _leaves_noise(problem: Problem, result: Result) -> bool:
    r"""Whether what a run that got stuck leaves of y looks like noise, and like nothing else.

    What is left of a signal shows in :math:`G = \mathcal{A}^*(r)` as unfoldings of large
    spectral norm. Noise through measurements that are alike leaves a G without structure: its
    unfoldings have the spectral norm of Gaussian matrices,
    :math:`(\sqrt{n_k} + \sqrt{N/n_k}) \|G\|_F / \sqrt N`. Measured over shapes from 5x5x6 to
    30x30x30: noise at most 1.02 times that, a rank that is too small 1.02 to 1.6 times, the
    paper's candle 1.3 and more. One pass.

    Fewer than 2.8 measurements per degree of freedom cannot tell: of 600 noiseless problems with
    1.2 to 1.6, six local minima looked like noise.
    """
    stalled = not problem.batch_shape and result.status is Status.STALLED
    if not stalled or not problem.A.designs:
        return False
    enough = problem.equations >= PLENTY * result.degrees_of_freedom
    if not enough or not 100 * eps(problem.y) < result.residual <= CLEAR:
        return False
    residual = problem.residual(result.X)
    weighted = residual if problem.weights is None else problem.weights * residual
    G = to_numpy(problem.A.adjoint(weighted))
    entry = np.linalg.norm(G) / np.sqrt(G.size)
    for k, n in enumerate(G.shape):
        largest = np.linalg.norm(unfold(G, k), 2)
        if not largest <= STRUCTURE * entry * (np.sqrt(n) + np.sqrt(G.size / n)):
            return False
    return True


def _stopping(
    problem: Problem,
    rank: Any,
    tol: float,
    max_epochs: int,
    max_seconds: float | None,
    noise_std: float | None,
) -> StoppingRule:
    rule: StoppingRule = ResidualBelow(tol)
    if noise_std is not None:
        rule = rule | ResidualBelow(_noise_floor(problem, noise_std, rank), Status.NOISE_FLOOR)
    rule = rule | Stalled() | MaxEpochs(max_epochs)
    return rule if max_seconds is None else rule | MaxSeconds(max_seconds)


def _noise_floor(problem: Problem, noise_std: Any, rank: Any) -> np.ndarray[Any, Any]:
    r"""Relative residual that noise of that size leaves, one number for every trial.

    A fit of dof numbers to M equations leaves :math:`\sigma^2 (M - dof)` of the noise, give or
    take a share of :math:`\sqrt{2/(M - dof)}`; two of these are allowed for.
    """
    std = as_number(noise_std, "noise_std", 0.0)
    total = problem.m if problem.weights is None else to_numpy(problem.weights).sum(axis=-1)
    attained = attainable_rank(check_rank(rank, problem.shape, warn=False))
    equations = np.asarray(problem.equations)
    spare = np.maximum(equations - degrees_of_freedom(problem.shape, attained), 1)
    share = spare / equations * (1 + 2 * np.sqrt(2 / spare))
    size = to_numpy(problem.y_norm)
    size = np.where(size > 0, size, np.inf)
    if np.any(std * np.sqrt(total) >= size):
        raise ValueError(
            f"noise_std = {std:g} is as large as y itself, whose root mean square is "
            f"{float(np.min(size / np.sqrt(total))):.3g}: zero would do. Is it in the units of y?"
        )
    return np.asarray(std * np.sqrt(total * share) / size)


def _check_fields(problem: Problem) -> None:
    """Refuse complex measurements that no tensor of the operator's can give."""
    zero = like(np.zeros(problem.shape), problem.A.prototype, problem.A.dtype)
    if is_complex(problem.y) and not is_complex(problem.A.forward(zero)):
        raise ValueError(
            "y is complex, but A gives real measurements of real tensors. For complex tensors try "
            "lowtucker.DenseOperator(matrix, shape, dtype=complex); otherwise give y.real."
        )


def _check_not_yet(rank: Any, loss: Any, checkpoint: Any) -> None:
    """Refuse, before any work, what the interface names and this version does not do."""
    if isinstance(rank, str):
        raise NotImplementedError(
            f"rank={rank!r} is not there yet: give a tuple such as rank=(3, 3, 2). "
            "lowtucker.spectra of a similar tensor shows which."
        )
    if loss != "squared":
        raise NotImplementedError(f'loss must be "squared" in this version, got {loss!r}.')
    if checkpoint is not None:
        raise NotImplementedError(
            "checkpoint is not there yet: keep result.state, or result.save(path)."
        )
