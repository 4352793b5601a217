"""Tensor regression with the scikit-learn interface."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from lowtucker._array import as_flag, as_number, size
from lowtucker._array.errors import ModelWarning, warn_caller
from lowtucker.estimators.arguments import (
    Rank,
    as_rows,
    as_seed_number,
    check_numbers,
    check_samples,
    limit_of,
    shape_of,
)
from lowtucker.estimators.fits import Fitting, noted
from lowtucker.estimators.predicted import Filtered, Means
from lowtucker.estimators.rows import Data, in_own_order, is_held, joined, parted
from lowtucker.limits import PLENTY
from lowtucker.run import interrupts_raise
from lowtucker.run.result import Result
from lowtucker.solvers.rgn import LARGE
from lowtucker.status import Status

__all__ = ["TuckerRegressor"]

NumPyArray = np.ndarray[Any, Any]
# Number of features N up to which partial_fit keeps the triangular factor of all rows, N^2 numbers
EXACT = 1024


class _Given(NamedTuple):
    """Validated data of a call, and the shape of a sample."""

    data: Data
    digest: NumPyArray
    shape: Rank
    one_target: bool


class TuckerRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    r"""Linear regression with a coefficient tensor of low Tucker rank.

    .. math:: y_i = \langle A_i, X \rangle + b + \text{noise}, \quad
        \min_{\mathrm{rank}\, X \le r,\, b}
        \sum_i w_i (y_i - \langle A_i, X \rangle - b)^2 + \alpha \|X\|_F^2

    Parameters
    ----------
    rank : "auto", tuple of int, or RankSearch
        Tucker rank of the coefficient, one number per mode. "auto" searches for the one that
        predicts held-out rows, a fifth, best; ``RankSearch(max=...)`` limits the search.
    tensor_shape : tuple of int, optional
        Shape of a sample, if X is given as (n_samples, n_features), row-major. By default that
        of X, if it has more than two axes; otherwise a sample is a vector, and the fit is ordinary
        least squares.
    solver : str or Solver
        "auto" is Riemannian Gauss-Newton with up to five starts; others as in
        :func:`lowtucker.recover`.
    fit_intercept : bool
    alpha : float
        Ridge penalty, as in ``sklearn.linear_model.Ridge``. If positive, there may be fewer rows
        than degrees of freedom.
    tol : float
        Relative residual that counts as zero. With noise, fits do not reach it and stop where the
        residual stagnates; ``result_.status`` reports which.
    max_epochs : int
        Maximum number of passes over the rows, as in :func:`lowtucker.recover`.
    random_state : int, RandomState or None
        Seed for the starts after the first. None draws a new one for every fit.

    Attributes
    ----------
    coef_ : array, shape (n_features,) or (n_targets, n_features)
    intercept_ : float or array, shape (n_targets,)
    coef_tensor_ : TuckerTensor
        The coefficient in Tucker format. A list with one item per target if y has two axes, as
        are ``rank_`` and ``result_``.
    rank_ : tuple of int
    result_ : Result
        Status and history of the fit, and for rank "auto" a note with the ranks tried. Its
        residual is that of the centred rows, including the ridge. Rows with equal samples are
        merged, with their mean y; the spread of these y is not part of it.
    tensor_shape_ : tuple of int
    n_features_in_ : int
        Number of entries of a sample.
    feature_names_in_ : array
        If X was a data frame.
    n_iter_ : int
        Number of epochs, the maximum over the targets.

    Warns
    -----
    UnderdeterminedWarning
        There are fewer rows than degrees of freedom and no ridge, unless every tensor has the
        rank (as for vectors) and the fit is ordinary least squares.

    Notes
    -----
    The fit is bit-wise independent of the order of the rows: they are sorted by a digest, and rows
    with equal samples are merged, with their mean y. So a weight of 3 equals three copies of a
    row. Cost: a copy of X; about ten passes over X for every start, and dof^2 numbers; the ridge
    adds about N. Rank "auto" takes a fit or two, from a smaller one, for every rank it tries.

    For up to 1024 features, ``partial_fit`` keeps the triangular factor of all rows so far, at most
    2 (N + 2)^2 numbers (twice that if the rank is searched for), and minimises the same
    objective as ``fit`` on all of them; so every call fits a bounded number of rows. With more
    features, rows are kept until there are 2.8 per degree of freedom. After that, and after
    ``fit``, they are not: the filter of :class:`lowtucker.Online` takes each row once and keeps
    dof^2 numbers. The rank is then the one found until there.

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> from lowtucker.estimators import TuckerRegressor
    >>> rng = np.random.default_rng(0)
    >>> truth = lt.random_tucker((12, 10), (2, 2), seed=0).full()
    >>> X = rng.standard_normal((300, 12, 10))
    >>> y = 5 + np.tensordot(X, truth, 2) + 0.1 * rng.standard_normal(300)
    >>> model = TuckerRegressor().fit(X[:200], y[:200])
    >>> model.rank_
    (2, 2)
    >>> model.score(X[200:], y[200:]) > 0.95
    True
    >>> model.coef_tensor_
    TuckerTensor of shape (12, 10), rank (2, 2): 48 numbers instead of 120 (2.5x)
    """

    def __init__(
        self,
        rank: Any = "auto",
        *,
        tensor_shape: Any = None,
        solver: Any = "auto",
        fit_intercept: bool = True,
        alpha: float = 0.0,
        tol: float = 1e-6,
        max_epochs: int = 500,
        random_state: Any = 0,
    ) -> None:
        self.rank = rank
        self.tensor_shape = tensor_shape
        self.solver = solver
        self.fit_intercept = fit_intercept
        self.alpha = alpha
        self.tol = tol
        self.max_epochs = max_epochs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the coefficient and the intercept.

        Parameters
        ----------
        X : array, shape (n_samples, n_1, ..., n_d) or (n_samples, n_features)
        y : array, shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array, shape (n_samples,), optional
            Weights of the squared errors; 0 excludes a row.

        Returns
        -------
        self
        """
        given = self._given(X, y, sample_weight, first=True)
        self._take_shape(given)
        self._kept: list[Data] | None = None
        with interrupts_raise():  # a partial fit is not a valid result
            self._solve(given.data, is_held(given.digest), in_place=True)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Update the fit with a batch of rows.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`. A batch may be as small as one row.

        Returns
        -------
        self
        """
        first = not hasattr(self, "coef_")
        given = self._given(X, y, sample_weight, first=first)
        if first:
            self._take_shape(given)
            self._kept = []
        elif given.one_target != self._one_target or given.data.Y.shape[1] != len(self._filters):
            raise ValueError(
                f"y has {given.data.Y.shape[1]} targets in {2 - given.one_target} axes, but the "
                f"first call had {len(self._filters)} in {2 - self._one_target}. Give as many."
            )
        with interrupts_raise():
            self._take_batch(given)
        return self

    def _take_batch(self, given: _Given) -> None:
        if self._kept is not None:
            searches = limit_of(self.rank, given.shape) is not None
            parts = parted(given.data, given.digest) if searches else [given.data]
            if self._kept and len(self._kept) != len(parts):
                raise ValueError(
                    f"rank={self.rank!r} was changed since the first call of partial_fit, between "
                    "a given rank and a rank search. Keep it, or start again with fit."
                )
            pairs = zip(self._kept, parts, strict=True) if self._kept else ((b,) for b in parts)
            self._kept = [joined(pair).compressed() for pair in pairs]
            data = joined(self._kept)
            self._solve(data, np.arange(len(data.root)) < len(self._kept[0].root))
            dof = max(result.degrees_of_freedom for result in self._results())
            if size(given.shape) > EXACT and data.count >= PLENTY * dof:
                self._kept = None
        else:
            self._update(given.data)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        r"""Predict y.

        Parameters
        ----------
        X : array, shape (n_samples, n_1, ..., n_d) or (n_samples, n_features)
        return_std : bool
            Whether to return standard deviations as well, by the linear model at the coefficient:
            the noise of a row of weight 1, and the error of the coefficient and of the intercept.
            :math:`y \pm 1.96\, std` is a 95 % prediction interval, if the residual is normal noise,
            the coefficient has the rank, and rows are many more than its degrees of freedom; for
            few rows take a quantile of Student's t instead of 1.96. Infinite where rows do not
            determine a prediction.

        Returns
        -------
        y : array, shape (n_samples,) or (n_samples, n_targets)
        std : array of the same shape
            Only with ``return_std``.
        """
        check_is_fitted(self, "coef_")
        as_flag(return_std, "return_std")
        X, of_X = as_rows(X)
        check_samples(of_X, self.tensor_shape_)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        predicted: NumPyArray = X @ self.coef_.T + self.intercept_
        return (predicted, self._deviations(X)) if return_std else predicted

    def _deviations(self, X: NumPyArray) -> NumPyArray:
        """Standard deviations of predictions."""
        bars = [result.uncertainty for result in self._results()]
        if None in bars:
            raise ValueError(
                f"return_std=True needs the covariance of the coefficient, which is not formed for "
                f"more than {LARGE} degrees of freedom, got rank {self.rank_}. Try a smaller rank."
            )
        self._warn_of_the_model()
        each = [
            made.deviations(X, self._means, one.information)
            for made, one in zip(self._filters, bars, strict=True)
            if one is not None
        ]
        return each[0] if self._one_target else np.stack(each, axis=1)

    def _warn_of_the_model(self) -> None:
        """Warn where the verdict does not support the model of the deviations."""
        names = sorted({r.status.name for r in self._results() if _is_doubtful(r)})
        if names and not self.alpha:
            warn_caller(
                f"The standard deviations presume that the coefficient has rank {self.rank_} and "
                f"that the residual is noise; the verdict is {', '.join(names)}. "
                "result_.advice says what to try.",
                ModelWarning,
            )

    def _given(self, X: Any, y: Any, sample_weight: Any, *, first: bool) -> _Given:
        """Check the arguments of a fit and the constructor parameters."""
        as_flag(self.fit_intercept, "fit_intercept")
        as_number(self.alpha, "alpha", 0.0)
        X, of_X = as_rows(X)
        check_numbers(y, "y")
        X, y = validate_data(
            self, X, y, reset=first, dtype=np.float64, multi_output=True, y_numeric=True
        )
        if first:
            shape = shape_of(self.tensor_shape, of_X, X.shape[1])
        else:
            shape = self.tensor_shape_
            check_samples(of_X, shape)
        limit_of(self.rank, shape)
        check_numbers(sample_weight, "sample_weight")
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if np.any(weights < 0) or not np.any(weights > 0):
            raise ValueError(
                "sample_weight must be non-negative, and positive for some sample, got values from "
                f"{weights.min():g} to {weights.max():g}. A weight of 0 excludes a sample."
            )
        Y = np.asarray(y, dtype=np.float64)
        data, digest = in_own_order(X, Y.reshape(len(Y), -1), weights)
        return _Given(data, digest, shape, Y.ndim == 1)

    def _take_shape(self, given: _Given) -> None:
        self.tensor_shape_, self._one_target = given.shape, given.one_target

    def _fitting(self) -> Fitting:
        return Fitting(
            self.tensor_shape_, float(self.alpha), bool(self.fit_intercept), self.solver, self.tol,
            self.max_epochs, as_seed_number(self.random_state),
        )  # fmt: skip

    def _solve(self, data: Data, held: NumPyArray, *, in_place: bool = False) -> None:
        """Fit every target to all rows, which are centred first; the rank by held-out ones."""
        fitting, limit = self._fitting(), limit_of(self.rank, self.tensor_shape_)
        targets = range(data.Y.shape[1])
        found = [(self.rank, "") for _ in targets]
        rows = data.centred(fitting.intercept, in_place=in_place)
        if limit is not None:
            found = [fitting.best_rank(rows, held, target, limit) for target in targets]
        results = [noted(fitting(rows, k, rank), note) for k, (rank, note) in enumerate(found)]
        self._means = Means.of(rows, float(data.root @ data.root), fitting.intercept)
        self._filters = [
            Filtered.of(rows, k, result.X, fitting.alpha, int(fitting.intercept))
            for k, result in enumerate(results)
        ]
        self._take(results)

    def _update(self, data: Data) -> None:
        """Add rows to the filters, which are then all that is known of them."""
        total = float(data.root @ data.root)
        means, rows = self._means.with_more(data.centred(bool(self.fit_intercept)), total)
        filters = [made.absorbed(rows, k) for k, made in enumerate(self._filters)]
        pairs = zip(filters, self._results(), strict=True)
        results = [made.updated(result, data.count, float(self.tol)) for made, result in pairs]
        self._means, self._filters = means, filters
        self._take(results)

    def _results(self) -> list[Result]:
        found: Any = self.result_
        return [found] if self._one_target else list(found)

    def _take(self, results: list[Result]) -> None:
        """Set the fitted attributes. Results have covariances instead of the rows."""
        means = self._means
        results = [
            replace(result, uncertainty=made.uncertainty)
            for result, made in zip(results, self._filters, strict=True)
        ]
        coef = np.stack([np.ravel(result.X.full()) for result in results])
        constant = means.y - [w @ means.x for w in coef]
        one = self._one_target
        self.coef_ = coef[0] if one else coef
        self.intercept_ = float(constant[0]) if one else constant
        self.coef_tensor_ = results[0].X if one else [result.X for result in results]
        self.rank_ = results[0].rank if one else [result.rank for result in results]
        self.result_ = results[0] if one else results
        self.n_iter_ = max(int(result.epochs) for result in results)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _is_doubtful(result: Result) -> bool:
    """Whether deviations by a model cannot be trusted; fits to noise may end as stalled."""
    plenty = result.m >= PLENTY * result.degrees_of_freedom
    stuck = result.status is Status.STALLED and plenty
    return not (result.status.success or stuck)
