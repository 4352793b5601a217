"""Imputation of missing values by a low-rank tensor, with the scikit-learn interface."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from lowtucker._array import as_integer, as_number
from lowtucker._array.errors import UnderdeterminedWarning, warn_caller
from lowtucker._array.random import Stream, generator
from lowtucker.estimators.arguments import (
    Rank,
    as_rows,
    as_seed_number,
    check_samples,
    limit_of,
    shape_of,
)
from lowtucker.estimators.growth import RankGrowth
from lowtucker.estimators.rows import FOLDS, digests
from lowtucker.estimators.subspace import Subspace, learned, polished
from lowtucker.run import interrupts_raise
from lowtucker.tensor.decompose import hosvd
from lowtucker.tensor.products import exponent
from lowtucker.tensor.rank import attainable_rank, check_rank, degrees_of_freedom

__all__ = ["TuckerImputer"]

NumPyArray = np.ndarray[Any, Any]
# Largest number of array elements for a block of samples
BLOCK = 1 << 22


class TuckerImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Impute missing values by a tensor of low Tucker rank, whose first mode indexes samples.

    A sample is :math:`x = B c` plus noise, with c normal of mean m and covariance :math:`\Sigma`;
    B has :math:`r_0` columns, and Tucker rank :math:`(r_1, \dots, r_d)` in the other modes.
    ``fit`` estimates these from the known entries of its samples by expectation-maximisation.
    ``transform`` computes the most likely coefficients of a sample from its known entries K:

    .. math:: \min_c \|x_K - B_K c\|^2 + \sigma^2 (c - m)^T \Sigma^{-1} (c - m)

    Known entries are not changed. Without noise this is tensor completion.

    Parameters
    ----------
    rank : "auto", tuple of int, or RankSearch
        Tucker rank of the tensor of all samples, with the mode of samples first:
        (r_0, r_1, ..., r_d). "auto" chooses the one that predicts held-out entries best (five
        folds); ``RankSearch(max=...)`` limits the search.
    tensor_shape : tuple of int, optional
        Shape of a sample, if X is given as (n_samples, n_features), row-major. By default that
        of X, if it has more than two axes; otherwise X is completed as a matrix.
    tol : float
        Relative noise that counts as zero.
    max_epochs : int
        Maximum number of sweeps over X.
    random_state : int, RandomState or None
        Seed for the held-out entries of the rank search. None draws a new one for every fit.

    Attributes
    ----------
    rank_ : tuple of int
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
    features have very different scales or values are far from zero (temperatures in Kelvin,
    years): a large offset hides the remaining structure from rank "auto".

    Cost of a sweep: 4 n N r_0^2 flops; memory: about six copies of X. Rank "auto" takes five fits
    for every rank it tries. Cost of ``transform``: 2 N r_0^2 flops for every incomplete sample.

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
        rank: Any = "auto",
        *,
        tensor_shape: Any = None,
        tol: float = 1e-6,
        max_epochs: int = 500,
        random_state: Any = 0,
    ) -> None:
        self.rank = rank
        self.tensor_shape = tensor_shape
        self.tol = tol
        self.max_epochs = max_epochs
        self.random_state = random_state

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
        limit = limit_of(self.rank, whole)
        _warn_of_empty_slices(known, shape)
        Z = np.where(known, X, 0.0)
        digest = digests(np.where(known, X, np.inf)[seen])
        order = seen[np.lexsort((digest[:, 1], digest[:, 0]))]
        unit = float(np.ldexp(1.0, exponent(np.abs(Z).max())))
        rows, mask = Z[order] / unit, known[order].astype(np.float64)
        rank, self.note_ = self.rank, ""
        if limit is not None:
            rank, self.note_ = self._best_rank(rows, mask, shape, limit)
        rank = attainable_rank(check_rank(tuple(rank), whole))
        unknowns = degrees_of_freedom(whole, rank)
        if limit is None and mask.sum() < unknowns:
            warn_caller(
                f"{int(mask.sum())} entries of X are known, fewer than the {unknowns} degrees of "
                f"freedom of rank {rank}: many tensors fit. Use a smaller rank, or more samples.",
                UnderdeterminedWarning,
            )
        with interrupts_raise():  # a partial fit is not a valid result
            model, C, sweeps = self._learned(rows, mask, shape, rank)
            model, C, more = polished(
                model, C, rows, mask, shape, rank, tol=self.tol, max_epochs=self.max_epochs
            )
        self.tensor_shape_, self.rank_, self.n_iter_ = shape, rank, sweeps + more
        self._take(model, unit, C, order, len(X))
        return self

    def transform(self, X: Any) -> NumPyArray:
        """Fill the missing values of samples, those of the fit or new ones.

        Parameters
        ----------
        X : array, shape (n_samples, n_1, ..., n_d) or (n_samples, n_features)

        Returns
        -------
        array of the shape of X
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
        height = max(1, BLOCK // (filled.shape[1] + len(self.mean_) ** 2))
        for start in range(0, len(holes), height):
            some = holes[start : start + height]
            missing = unknown[some]
            Z = np.where(missing, 0.0, filled[some]).astype(np.float64) / self._unit
            c, _ = self._model.coefficients(Z, (~missing).astype(np.float64))
            made = self._unit * (c @ self.components_)
            filled[some] = np.where(missing, made, filled[some])
        return filled if of_X is None else filled.reshape(len(filled), *of_X)

    def _learned(
        self, Z: NumPyArray, known: NumPyArray, shape: Rank, rank: Rank
    ) -> tuple[Subspace, NumPyArray, int]:
        return learned(Z, known, shape, rank, tol=self.tol, max_epochs=self.max_epochs)

    def _best_rank(
        self, Z: NumPyArray, known: NumPyArray, shape: Rank, limit: Rank
    ) -> tuple[Rank, str]:
        """Return the rank that predicts held-out entries best, and a note on the search."""
        whole, there = (len(Z), *shape), np.flatnonzero(known)
        draws = generator(as_seed_number(self.random_state), Stream.HELD_OUT)
        parts = np.array_split(draws.permutation(there), FOLDS)
        left = there.size - parts[0].size

        def errors(rank: Rank) -> NumPyArray:
            out = []
            for part in parts:
                mask = known.copy()
                mask.reshape(-1)[part] = 0.0
                model, C, _ = self._learned(Z * mask, mask, shape, rank)
                missed = (Z - C @ model.basis.T).reshape(-1)[part]
                out.append(float(missed @ missed))
            return np.array(out)

        def allowed(rank: Rank) -> bool:
            return there.size >= FOLDS and left >= degrees_of_freedom(whole, rank)

        return RankGrowth(errors, limit, allowed, float(np.sum(Z * Z)), self.tol).run()

    def _take(self, model: Subspace, unit: float, C: NumPyArray, order: NumPyArray, n: int) -> None:
        """Set the fitted attributes."""
        self._model, self._unit = model, unit
        self.components_ = model.basis.T
        self.mean_, self.covariance_ = unit * model.mean, unit * unit * model.covariance
        self.noise_variance_ = unit * unit * model.noise
        placed = np.tile(model.mean, (n, 1))
        placed[order] = C
        full = (unit * placed @ self.components_).reshape(n, *self.tensor_shape_)
        self.tensor_ = hosvd(full, self.rank_, warn=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


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
