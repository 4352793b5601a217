"""Imputation of missing values by a low-rank tensor, with the scikit-learn interface."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from lowtucker._array import as_integer, as_number
from lowtucker._array.errors import UnderdeterminedWarning, warn_caller
from lowtucker.estimators.arguments import (
    Rank,
    as_rows,
    as_seed_number,
    check_samples,
    limit_of,
    shape_of,
)
from lowtucker.estimators.imputed import Spread, spread_of
from lowtucker.estimators.rows import digests
from lowtucker.estimators.subspace import Subspace, learned, of_completed, polished
from lowtucker.recovery import complete
from lowtucker.run import interrupts_raise
from lowtucker.run.result import Result
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.products import exponent
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom

__all__ = ["TuckerImputer"]

NumPyArray = np.ndarray[Any, Any]
# Largest number of array elements for a block of samples
BLOCK = 1 << 22
# Values whose mean is so many standard deviations from zero are centred
FAR = 10.0


class TuckerImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Impute missing values by a tensor of low Tucker rank, whose first mode indexes samples.

    A sample is :math:`x = B c` plus noise, with c normal of mean m and covariance :math:`\Sigma`;
    B has :math:`r_0` columns. ``fit`` completes the tensor of its samples as
    :func:`lowtucker.complete` does without a rank, and takes B, m and :math:`\Sigma` from it. At a
    given rank, B has Tucker rank :math:`(r_1, \dots, r_d)` in the other modes, and all are
    estimated from the known entries by expectation-maximisation.
    ``transform`` computes the most likely coefficients of a sample from its known entries K:

    .. math:: \min_c \|x_K - B_K c\|^2 + \sigma^2 (c - m)^T \Sigma^{-1} (c - m)

    Known entries are not changed. Without noise this is tensor completion.

    Parameters
    ----------
    rank : None, "auto", tuple of int, or RankSearch
        Tucker rank of the tensor of all samples, with the mode of samples first:
        (r_0, r_1, ..., r_d). None needs none; "auto" and ``RankSearch(max=...)`` search for it, as
        in :func:`lowtucker.complete`.
    tensor_shape : tuple of int, optional
        Shape of a sample, if X is given as (n_samples, n_features), row-major. By default that
        of X, if it has more than two axes; otherwise X is completed as a matrix.
    tol : float
        Relative noise that counts as zero.
    max_epochs : int
        Maximum number of sweeps over X.
    random_state : int, RandomState or None
        Seed for the held-out entries. None draws a new one for every fit.
    return_std : bool
        Whether ``transform`` and ``fit_transform`` return the filled samples and standard errors of
        the filled values, as a pair. A pipeline needs False.

    Attributes
    ----------
    rank_ : tuple of int
        That of ``tensor_``; data that are only nearly of low rank are shrunk, and have a large one.
    offset_ : float
        What is subtracted from all entries first: their mean, where no rank is given and it is more
        than ten standard deviations from zero; otherwise 0.
    components_ : array, shape (r_0, n_features)
        :math:`B^T`, orthonormal rows.
    mean_ : array, shape (r_0,)
    covariance_ : array, shape (r_0, r_0)
    noise_variance_ : float
        :math:`\sigma^2`.
    tensor_ : TuckerTensor
        The samples of ``fit`` in their order, complete and without noise.
    note_ : str
        How the rank was found, if it was searched for.
    tensor_shape_ : tuple of int
    n_features_in_ : int
        Number of entries of a sample.
    feature_names_in_ : array
        If X was a data frame.
    n_iter_ : int
        Number of sweeps.

    Warns
    -----
    UnderdeterminedWarning
        A slice of features is not known in any sample: it is filled with zeros. If samples have
        two or more modes, a single feature that is not known in any sample is predicted from
        other features in its row and column.

    Notes
    -----
    A sample with fewer known entries than B has columns is completed with the most likely values,
    and a sample without known entries with the mean; ``fit`` ignores samples without known
    entries, and does not depend on the order of samples. Apply a ``StandardScaler`` first if
    features have very different scales.

    Standard errors come from four more fits, each to three quarters of the samples: a standard
    deviation by the distribution above, times a factor for every slice of features with which 68 %
    of held-out values are within one standard error. The factors of samples of ``fit``, known by
    their entries, come from held-out entries of such samples; those of new samples from samples
    that were held out as a whole, whose errors are often larger. The entries should be missing at
    random, and new samples of the same kind as those of ``fit``.

    Cost of ``fit``: that of :func:`lowtucker.complete` and an SVD of the samples; at a given rank
    4 n N r_0^2 flops a sweep. Memory: about six copies of X. Cost of ``transform``: 2 N r_0^2 flops
    for every incomplete sample.

    Examples
    --------
    >>> import numpy as np, lowtucker as lt
    >>> from lowtucker.estimators import TuckerImputer
    >>> truth = lt.random_tucker((60, 8, 7), (2, 2, 2), seed=0).full()
    >>> holes = np.random.default_rng(0).random(truth.shape) < 0.4
    >>> X = np.where(holes, np.nan, truth)
    >>> imputer = TuckerImputer().fit(X[:40])
    >>> imputer.rank_
    (2, 2, 2)
    >>> filled = imputer.transform(X[40:])                # samples that are not in the fit
    >>> bool(np.abs(filled - truth[40:]).max() < 1e-4 * np.abs(truth).max())
    True
    """

    def __init__(
        self,
        rank: Any = None,
        *,
        tensor_shape: Any = None,
        tol: float = 1e-6,
        max_epochs: int = 500,
        random_state: Any = 0,
        return_std: bool = False,
    ) -> None:
        self.rank = rank
        self.tensor_shape = tensor_shape
        self.tol = tol
        self.max_epochs = max_epochs
        self.random_state = random_state
        self.return_std = return_std

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the subspace and the distribution of the samples.

        Parameters
        ----------
        X : array, shape (n_samples, n_1, ..., n_d) or (n_samples, n_features)
            NaN where an entry is missing.
        y : ignored

        Returns
        -------
        self
        """
        as_number(self.tol, "tol", 0.0)
        as_integer(self.max_epochs, "max_epochs")
        X, of_X = as_rows(X)
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan")
        shape = shape_of(self.tensor_shape, of_X, X.shape[1])
        known = ~np.isnan(X)
        seen = np.flatnonzero(known.any(axis=1))
        if not seen.size:
            raise ValueError(
                f"X has only NaN in its {len(X)} samples: no entry is known. Give samples with "
                "known entries."
            )
        whole = (len(seen), *shape)
        limit = None if self.rank is None else limit_of(self.rank, whole)
        _warn_of_empty_slices(known, shape)
        self.offset_ = _offset(X[known]) if self.rank is None else 0.0
        Z = np.where(known, X - self.offset_, 0.0)
        digest = digests(np.where(known, X, np.inf)[seen])
        order = seen[np.lexsort((digest[:, 1], digest[:, 0]))]
        unit = float(np.ldexp(1.0, exponent(np.abs(Z).max())))
        rows, mask = Z[order] / unit, known[order].astype(np.float64)
        self.tensor_shape_ = shape
        with interrupts_raise():  # a partial fit is not a valid result
            model, C, rank = self._model_of(rows, mask, shape, limit)
        self._take(model, unit, C, rank, order, len(X))
        if self.return_std:
            with interrupts_raise():
                self._spread = self._spread_of(X[order])
            self._seen = {tuple(one) for one in digest.tolist()}
        return self

    def _spread_of(self, X: NumPyArray) -> Spread:
        """Standard errors of imputed features, by fits that do not see everything."""
        seed = as_seed_number(self.random_state)
        settings = {"return_std": False, "tensor_shape": self.tensor_shape_, "random_state": seed}

        def fitted(rows: NumPyArray) -> Any:
            return clone(self).set_params(**settings).fit(rows)._with_deviations

        spread = spread_of(fitted, X, self.tensor_shape_, seed)
        if np.isnan(spread.unseen).any():
            warn_caller(
                f"{len(X)} samples with {np.count_nonzero(~np.isnan(X))} known entries are too few "
                "for standard errors of new samples: they are NaN. Give more samples.",
                UnderdeterminedWarning,
            )
        return spread

    def _model_of(
        self, rows: NumPyArray, mask: NumPyArray, shape: Rank, limit: Rank | None
    ) -> tuple[Subspace, NumPyArray, Rank | None]:
        """Subspace, coefficients of the samples, and the rank, if any; notes how it was found."""
        whole = (len(rows), *shape)
        rank, self.note_, searched = self.rank, "", limit is not None
        if rank is None or searched:
            result = self._completed(rows, mask, shape, rank if searched else None)
            self.note_ = " ".join(f.text for f in result.findings if f.kind == "rank found")
            rank = result.rank
        if not searched and self.rank is None:
            full = np.ravel(result.X.full()).reshape(rows.shape)
            self.n_iter_ = int(result.epochs)
            unseen = result.held_out or 0.0
            return *of_completed(full, rows, mask, tol=self.tol, unseen=unseen), rank
        rank = attainable_rank(check_rank(tuple(rank), whole))
        unknowns = degrees_of_freedom(whole, rank)
        if not searched and mask.sum() < unknowns:
            warn_caller(
                f"{int(mask.sum())} entries of X are known, fewer than the {unknowns} degrees of "
                f"freedom of rank {rank}: many tensors fit. Use a smaller rank, or more samples.",
                UnderdeterminedWarning,
            )
        settings: dict[str, Any] = {"tol": self.tol, "max_epochs": self.max_epochs}
        model, C, sweeps = learned(rows, mask, shape, rank, **settings)
        model, C, more = polished(model, C, rows, mask, shape, rank, **settings)
        self.n_iter_ = sweeps + more
        return model, C, rank

    def transform(self, X: Any) -> Any:
        """Fill the missing values of samples, those of the fit or new ones.

        Parameters
        ----------
        X : array, shape (n_samples, n_1, ..., n_d) or (n_samples, n_features)

        Returns
        -------
        array of the shape of X; with ``return_std`` a pair of them, the second with the standard
        errors of the filled values and zeros elsewhere
        """
        check_is_fitted(self, "components_")
        given, of_X = as_rows(X)
        check_samples(of_X, self.tensor_shape_)
        filled: NumPyArray = validate_data(
            self, given, reset=False, dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan", copy=True,
        )  # fmt: skip
        unknown = np.isnan(filled)
        holes = np.flatnonzero(unknown.any(axis=1))
        errors = np.zeros_like(filled) if self.return_std else None
        for some in self._blocks(holes):
            missing, given = unknown[some], filled[some]
            made, P = self._predicted(given)
            filled[some] = np.where(missing, made, given)
            if errors is not None:
                errors[some] = np.where(missing, self._errors(given, P), 0)
        full = filled if of_X is None else filled.reshape(len(filled), *of_X)
        return full if errors is None else (full, errors.reshape(full.shape))

    def _predicted(self, X: NumPyArray) -> tuple[NumPyArray, NumPyArray]:
        """All entries of samples by their known ones, and the covariances of coefficients."""
        missing = np.isnan(X)
        Z = np.where(missing, 0.0, X - self.offset_).astype(np.float64) / self._unit
        c, P = self._model.coefficients(Z, (~missing).astype(np.float64))
        return self.offset_ + self._unit * (c @ self.components_), P

    def _blocks(self, samples: NumPyArray) -> list[NumPyArray]:
        """Numbers of samples, so many at a time as fit into a block."""
        height = max(1, BLOCK // (len(self._model.basis) + len(self.mean_) ** 2))
        return [samples[start : start + height] for start in range(0, len(samples), height)]

    def _with_deviations(self, X: NumPyArray) -> tuple[NumPyArray, NumPyArray]:
        """All entries of samples by their known ones, and standard deviations by the model."""
        values, deviations = np.empty_like(X), np.empty_like(X)
        for some in self._blocks(np.arange(len(X))):
            values[some], P = self._predicted(X[some])
            deviations[some] = self._deviations(P)
        return values, deviations

    def _deviations(self, P: NumPyArray) -> NumPyArray:
        """Standard deviations of all entries, by the covariances of coefficients."""
        deviations: NumPyArray = self._unit * np.sqrt(self._model.variances(P))
        return deviations

    def _errors(self, X: NumPyArray, P: NumPyArray) -> NumPyArray:
        """Standard errors of all entries of samples."""
        if not hasattr(self, "_spread"):
            raise NotFittedError(
                "return_std was False when this TuckerImputer was fitted: there are no standard "
                "errors. Fit it again with return_std=True."
            )
        whose = digests(np.where(np.isnan(X), np.inf, X).astype(np.float64)).tolist()
        seen = np.array([tuple(one) in self._seen for one in whose])[:, None]
        factors = np.where(seen, self._spread.seen, self._spread.unseen)
        errors: NumPyArray = factors * self._deviations(P)
        return errors

    def _completed(self, rows: NumPyArray, mask: NumPyArray, shape: Rank, rank: Any) -> Result:
        """Completion of the samples, by the same means as any tensor."""
        array = np.where(mask > 0, rows, np.nan).reshape(len(rows), *shape)
        with warnings.catch_warnings():  # of slices, which were warned of
            warnings.simplefilter("ignore", UnderdeterminedWarning)
            return complete(
                array, rank, tol=self.tol, max_epochs=self.max_epochs,
                seed=as_seed_number(self.random_state),
            )  # fmt: skip

    def _take(
        self,
        model: Subspace,
        unit: float,
        C: NumPyArray,
        rank: Rank | None,
        order: NumPyArray,
        n: int,
    ) -> None:
        """Set the fitted attributes."""
        self._model, self._unit = model, unit
        self.components_ = model.basis.T
        self.mean_, self.covariance_ = unit * model.mean, unit * unit * model.covariance
        self.noise_variance_ = unit * unit * model.noise
        placed = np.tile(model.mean, (n, 1))
        placed[order] = C
        full = self.offset_ + (unit * placed @ self.components_).reshape(n, *self.tensor_shape_)
        if rank is not None and self.offset_:  # a constant tensor has rank one
            rank = tuple(min(r + 1, m) for r, m in zip(rank, full.shape, strict=True))
        self.tensor_ = hosvd(full).compress() if rank is None else hosvd(full, rank, warn=False)
        self.rank_ = self.tensor_.rank

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _offset(values: NumPyArray) -> float:
    """Mean of values that are far from zero, which would hide the rest; otherwise zero."""
    mean = float(np.mean(values))
    return mean if abs(mean) > FAR * float(np.std(values)) else 0.0


def _warn_of_empty_slices(known: NumPyArray, shape: Rank) -> None:
    """Warn about slices of features that are not known in any sample."""
    somewhere: NumPyArray = known.any(axis=0).reshape(shape)
    for k in range(len(shape)):
        others = tuple(j for j in range(len(shape)) if j != k)
        empty = np.flatnonzero(~somewhere.any(axis=others))
        if empty.size:
            what = "features" if len(shape) == 1 else f"slices of mode {k} of the samples"
            warn_caller(
                f"No sample has known entries in {what} {empty[:10].tolist()}: they are filled "
                "with zeros. Remove them, or give samples with known entries there.",
                UnderdeterminedWarning,
            )
