"""Tensor completion: fill the holes of an array, or all that was not sampled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from lowtucker._array import as_number
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.labels import as_data
from lowtucker.problem import Problem
from lowtucker.recovery.advice import explained
from lowtucker.recovery.entry import (
    checked_truth,
    format_or_rank,
    log_call,
    shrinkage_only,
    warn_of_unsampled,
)
from lowtucker.recovery.fit import Fit, Loss, degrees_of_freedom_of
from lowtucker.recovery.hard import held_out_fit
from lowtucker.recovery.norank import LEFT, without_rank
from lowtucker.recovery.rank import RankSearch
from lowtucker.run.call import Call
from lowtucker.run.progress import Callback
from lowtucker.run.result import Result
from lowtucker.run.scope import Scope
from lowtucker.tensor.rank import attainable_rank, check_rank
from lowtucker.thresholding import Thresholding

__all__ = ["complete", "held_samples"]

NumPyArray = np.ndarray[Any, Any]


def complete(
    values: Any,
    rank: tuple[int, ...] | int | RankSearch | Thresholding | Literal["auto"] | None = None,
    *,
    indices: Any = None,
    shape: tuple[int, ...] | None = None,
    index: Sequence[str] | None = None,
    value: str | None = None,
    held_out: float = 0.1,
    solver: Any = "auto",
    tol: float = 1e-6,
    max_epochs: int = 500,
    max_seconds: float | None = None,
    noise_std: float | None = None,
    loss: Loss = "squared",
    X_true: Any = None,
    seed: Seed = 0,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
) -> Result:
    """Find the tensor of low Tucker rank that agrees with the known entries.

    Parameters
    ----------
    values : array, DataArray or DataFrame
        The tensor with NaN (or masked elements) where it is unknown: an array of NumPy, torch, JAX
        or Dask, or an xarray DataArray; or, with ``indices``, the values of the samples, shape
        (m,); or, with ``index``, a pandas or polars table with a row for each sample. A table
        without ``index`` is a matrix, unless it is a pandas one with a MultiIndex, whose levels
        then are the modes.
    rank : tuple of int, int, "auto", RankSearch, Thresholding or None
        As in :func:`lowtucker.recover`. None, the default, needs none: data that are only nearly of
        low rank are completed by a combination of shrinkage fits (:class:`lowtucker.Annealing`)
        that predicts held-out samples best; where the spectra have a clear gap, a tensor of that
        rank is fitted. (For tensors of more than 10^7 entries it means "auto".)
    indices : array of int, shape (m, d), optional
        Where the samples are, counted from 0.
    shape : tuple of int, optional
        Shape of the tensor; needed with ``indices``.
    index : list of str, optional
        Columns of a table that hold labels: each becomes a mode. Its slices are the different
        labels, sorted; categories keep their order, and those that do not occur are left out.
    value : str, optional
        Column of the values, which may be missing; needed where several columns are left.
    held_out : float
        Share of the samples that a first fit does not see, to measure its error on them:
        ``result.held_out``. The second fit, whose tensor is returned, starts there and uses all.
        None are held out for 0, or where fewer than 1.5 samples per degree of freedom would
        remain. Without a rank, the share of a fold; 0 is then 0.1, since held-out samples decide.
    solver, tol, max_epochs, max_seconds, noise_std, loss, X_true, seed, callbacks, checkpoint
        As in :func:`lowtucker.recover`.

    Returns
    -------
    Result
        ``result.X`` is the tensor by its factors: ``result.X.full()``, or
        ``result.X.entries(indices)`` for some entries of one that is too large for that. Its
        arrays are of the kind, dtype and device of ``values``.

        ``result.filled()`` is the completed data in the form that was given: an array, a DataArray
        with its coordinates, a table with every combination of labels and its standard errors.

        ``result.interval(indices, level=0.9)`` gives intervals for entries, and
        ``result.standard_error(indices)`` standard errors: by the held-out samples
        (``method="conformal"``) where the data are only approximately of low rank, and by the
        Gauss-Newton covariance (``method="model"``) where X is recovered.

    Warns
    -----
    UnderdeterminedWarning
        A slice without samples: its row of the factor cannot be determined, and is left zero.

    Notes
    -----
    With a rank, nothing of the size of the tensor is formed, beside ``values`` itself: cost and
    memory are those of :func:`lowtucker.entries` and the solver. Without one, some tensors of the
    full size are, and some hundred multilinear spectra of them. Duplicate samples count twice, so
    that their mean is fitted; a finding says how many there are.

    Arrays of torch, JAX and others are copied to NumPy and back, and have no gradients; the state
    of the result, and its error bars, are NumPy's. Of a Dask array only the known entries and
    their indices come to this process; its workers read the chunks.

    Conformal intervals cover the values of unseen entries, noise included, with the given
    probability on average, if entries are missing at random, or as whole fibres; not if they are
    missing because of their values. Every slice has a scale of its own. Fewer held-out samples make
    the probability less certain: there are at most 30 % of the samples (with a rank, the share
    ``held_out``). Where only a second fit, from other starts, is a success there are none.

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> X_true = lt.random_tucker((20, 20, 20), (2, 2, 2), seed=0).full()
    >>> holes = np.random.default_rng(0).random((20, 20, 20)) < 0.8
    >>> array = np.where(holes, np.nan, X_true)
    >>> result = lt.complete(array, rank=(2, 2, 2))
    >>> result.success, lt.metrics.relative_error(result.X, X_true) < 1e-5
    (True, True)
    >>> result.held_out < 1e-5
    True
    >>> bool(np.isnan(result.filled()).any())
    False

    Without a rank; the spectrum shows that it is (2, 2, 2):

    >>> lt.complete(array).rank
    (2, 2, 2)

    Data with much noise, and intervals for entries that are not known:

    >>> noisy = array + 0.01 * np.random.default_rng(1).standard_normal(array.shape)
    >>> low, high = lt.complete(noisy).interval([[0, 0, 0], [19, 19, 19]], level=0.9)
    >>> bool(np.all(low < high))
    True

    A table, whose columns of labels become modes; every combination of labels comes back:

    >>> import pandas as pd
    >>> names = ["station", "day", "hour"]
    >>> table = pd.DataFrame(np.argwhere(~holes), columns=names).assign(count=array[~holes])
    >>> filled = lt.complete(table, (2, 2, 2), index=names, value="count").filled()
    >>> len(table), len(filled), int(filled["observed"].sum())
    (1619, 8000, 1619)
    """
    call = Call.of(complete, locals())
    data = as_data(values, indices=indices, shape=shape, index=index, value=value)
    A, y = data.samples()
    share = as_number(held_out, "held_out", 0.0)
    if share >= 1:
        raise ValueError(f"held_out is a share of the samples, below 1, got {share:g}. Try 0.1.")
    problem = Problem(A, y)
    solver = solver.lower() if isinstance(solver, str) else solver
    soft, solver = shrinkage_only(solver, rank)
    no_rank = rank is None and solver == "auto"
    rank, solver = format_or_rank(rank, solver, problem)
    fit = Fit(solver, tol, max_epochs, max_seconds, noise_std, X_true, seed, callbacks, loss)
    warn_of_unsampled(problem)
    fit = replace(fit, X_true=checked_truth(X_true, problem))
    settings = fit.identity | {"rank": rank, "held_out": share} | soft
    log_call(call, problem)
    with Scope(problem, checkpoint, settings, X_true=fit.X_true) as scope:
        if no_rank:
            result = without_rank(scope.problem, fit.within(scope), share, **soft)
        else:
            held = held_samples(A, rank, share, seed, solver)
            result = held_out_fit(scope.problem, rank, fit.within(scope), held)
    result = explained(scope.export(result, noise_std), call)
    return replace(result, X=data.converted(result.X), labels=data.labels, data=data)


def held_samples(A: Any, rank: Any, share: float, seed: Seed, solver: Any = "auto") -> NumPyArray:
    """Samples to hold out, so that every slice keeps enough; none where there are too few."""
    held = np.zeros(A.m, dtype=bool)
    least: Any = (1,) * len(A.shape)
    if isinstance(rank, tuple | list):
        least = attainable_rank(check_rank(tuple(rank), A.shape, warn=False))
    phases = solver if isinstance(solver, list | tuple) else [solver]
    dof = degrees_of_freedom_of(A.shape, phases, None if rank is None else least)
    count = min(round(share * A.m), A.m - int(np.ceil(LEFT * dof)))
    if count < 1:
        return held
    drawn = generator(as_seed(seed), Stream.HELD_OUT).permutation(A.m)[:count]
    held[drawn] = True
    for k, r in enumerate(least):
        slices = A.indices[:, k]
        left = np.bincount(slices[~held], minlength=A.shape[k])
        held &= left[slices] > r
    return held
