"""Tensor completion: fill the holes of an array, or all that was not sampled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from lowtucker._array import as_float, as_number, as_shape, is_array, kind, size
from lowtucker._array.random import Seed, Stream, as_seed, generator
from lowtucker.operators import EntriesOperator
from lowtucker.problem import Problem
from lowtucker.recovery.advice import explained
from lowtucker.recovery.entry import checked_truth, format_or_rank, warn_of_unsampled
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
    values : array
        The tensor with NaN (or masked elements) where it is unknown; or, with ``indices``, the
        values of the samples, shape (m,).
    rank : tuple of int, int, "auto", RankSearch, Thresholding or None
        As in :func:`lowtucker.recover`. None, the default, needs none: data that are only nearly of
        low rank are completed by a combination of shrinkage fits (:class:`lowtucker.Annealing`)
        that predicts held-out samples best; where the spectra have a clear gap, a tensor of that
        rank is fitted. (For tensors of more than 10^7 entries it means "auto".)
    indices : array of int, shape (m, d), optional
        Where the samples are, counted from 0.
    shape : tuple of int, optional
        Shape of the tensor; needed with ``indices``.
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
        ``result.X.entries(indices)`` for some entries of one that is too large for that.

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
    >>> filled = np.where(holes, result.X.full(), array)

    Without a rank; the spectrum shows that it is (2, 2, 2):

    >>> lt.complete(array).rank
    (2, 2, 2)

    Data with much noise, and intervals for entries that are not known:

    >>> noisy = array + 0.01 * np.random.default_rng(1).standard_normal(array.shape)
    >>> low, high = lt.complete(noisy).interval([[0, 0, 0], [19, 19, 19]], level=0.9)
    >>> bool(np.all(low < high))
    True
    """
    call = Call.of(complete, locals())
    A, y = _samples(values, indices, shape)
    share = as_number(held_out, "held_out", 0.0)
    if share >= 1:
        raise ValueError(f"held_out is a share of the samples, below 1, got {share:g}. Try 0.1.")
    problem = Problem(A, y)
    solver = solver.lower() if isinstance(solver, str) else solver
    no_rank = rank is None and solver == "auto"
    rank, solver = format_or_rank(rank, solver, problem)
    fit = Fit(solver, tol, max_epochs, max_seconds, noise_std, X_true, seed, callbacks, loss)
    warn_of_unsampled(problem)
    fit = replace(fit, X_true=checked_truth(X_true, problem))
    settings = fit.identity | {"rank": rank, "held_out": share}
    with Scope(problem, checkpoint, settings, X_true=fit.X_true) as scope:
        if no_rank:
            result = without_rank(scope.problem, fit.within(scope), share)
        else:
            held = held_samples(A, rank, share, seed, solver)
            result = held_out_fit(scope.problem, rank, fit.within(scope), held)
    return explained(scope.export(result, noise_std), call)


def _samples(values: Any, indices: Any, shape: Any) -> tuple[EntriesOperator, NumPyArray]:
    """Operator and values of what is known."""
    if isinstance(values, np.ma.MaskedArray):
        known = ~np.ma.getmaskarray(values)
        values = np.where(known, as_float(values.data, "values"), np.nan)
    if is_array(values) and not isinstance(values, np.ndarray | np.generic):
        raise TypeError(
            f"values must be a NumPy array, got a {kind(values)} array. "
            "Try numpy.asarray(values), after values.cpu() for torch on a GPU."
        )
    y = as_float(values, "values")
    if indices is not None:
        if shape is None:
            raise ValueError("shape is needed with indices: the shape of the tensor.")
        A = EntriesOperator(shape, indices)
        if y.shape != (A.m,):
            raise ValueError(
                f"values must have one entry for each of the {A.m} rows of indices, got shape "
                f"{y.shape}."
            )
        unknown = np.flatnonzero(~np.isfinite(y))
        if len(unknown):
            raise ValueError(
                f"values[{unknown[0]}] is masked, NaN or infinite. Leave out what is not known, "
                "and its row of indices: keep = numpy.isfinite(values)."
            )
        return A, y
    if y.ndim < 1 or not size(y.shape):
        raise ValueError(f"values must be a tensor with entries, got shape {y.shape}.")
    if shape is not None and as_shape(shape) != y.shape:
        raise ValueError(
            f"values has the shape {y.shape}, not shape={tuple(shape)}. Leave shape out, or give "
            "the indices of the samples."
        )
    known = ~np.isnan(y)
    if not known.any():
        raise ValueError("values has nothing but NaN: no entry is known.")
    if np.isinf(y).any():
        where = tuple(int(i) for i in np.argwhere(np.isinf(y))[0])
        raise ValueError(f"values is infinite at {where}. Mark what is not known by NaN.")
    return EntriesOperator(y.shape, np.argwhere(known)), y[known]


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
