"""Methods that fill holes, to compare ``complete`` with; each chooses its settings honestly.

A method with several settings predicts held-out entries with each of them, takes the best, and is
run again on all that is known. Held out are a tenth of the known entries, in the units in which
entries are hidden: whole fibres where whole fibres are. That time counts.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lowtucker.lab.bench.datasets import Holes
from lowtucker.tensor import fold, unfold

__all__ = ["IMPUTERS", "SIMPLE", "Candidate", "Filled", "Imputer", "held_out"]

NumPyArray = np.ndarray[Any, Any]
# Share of the known units that is held out to choose settings
SHARE = 0.1
TUCKER_RANKS, CP_RANKS = (2, 3, 4, 6, 8, 12, 16, 24), (2, 3, 5, 8, 12, 20, 30)
# Iterations of TensorLy's methods; the default of both is 100
ITERATIONS = 200
# Columns that IterativeImputer regresses a column on, and the most columns it is given
NEAREST, MOST_COLUMNS = 20, 120
# The most samples between which KNNImputer computes distances
MOST_SAMPLES = 3000


class Candidate(NamedTuple):
    """A method with settings: from an array with NaN to an array without."""

    label: str
    fill: Callable[[NumPyArray], NumPyArray]


class Filled(NamedTuple):
    """A completed array, and the settings that were chosen."""

    X: NumPyArray
    label: str


@dataclass(frozen=True)
class Imputer:
    """A method, and the settings that it may choose from for a tensor of some shape."""

    name: str
    candidates: Callable[[tuple[int, ...]], Sequence[Candidate]]

    def __call__(self, holes: Holes) -> Filled:
        """Choose settings by held-out entries; fill with them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of no convergence, of columns without data
            best = self._best(holes)
            return Filled(best.fill(holes.array), best.label)

    def _best(self, holes: Holes) -> Candidate:
        found = self.candidates(holes.truth.shape)
        if len(found) == 1:
            return found[0]
        array, held = holes.array, held_out(holes)
        training = np.where(held, np.nan, array)

        def score(candidate: Candidate) -> float:
            try:
                error = np.linalg.norm((candidate.fill(training) - array)[held])
            except np.linalg.LinAlgError:  # singular normal equations of a rank that is too large
                return np.inf
            return float(error) if np.isfinite(error) else np.inf

        return min(found, key=score)


def held_out(holes: Holes) -> NumPyArray:
    """Mask of a tenth of the units that have known entries."""
    known = ~np.isnan(holes.array)
    units = np.unique(holes.units[known])
    drawn = np.random.default_rng(1).permutation(units)[: max(1, round(SHARE * len(units)))]
    mask: NumPyArray = np.isin(holes.units, drawn) & known
    return mask


def _means(shape: tuple[int, ...]) -> list[Candidate]:
    """Means over one of the modes."""

    def over(mode: int) -> Candidate:
        def fill(array: NumPyArray) -> NumPyArray:
            means = np.nanmean(array, axis=mode, keepdims=True)
            means = np.where(np.isnan(means), np.nanmean(array), means)
            return np.where(np.isnan(array), means, array)

        return Candidate(f"over mode {mode + 1}", fill)

    return [over(k) for k in range(len(shape))]


def main_effects(array: NumPyArray) -> NumPyArray:
    """Fill by the least-squares fit of a constant and an effect of every index of every mode."""
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import lsqr

    known = ~np.isnan(array)
    centre, index = array[known].mean(), np.argwhere(known)
    columns = index + np.cumsum([0, *array.shape[:-1]])
    rows = np.repeat(np.arange(len(index)), array.ndim)
    size = (len(index), sum(array.shape))
    design = csr_array((np.ones(columns.size), (rows, columns.reshape(-1))), shape=size)
    effects = lsqr(design, array[known] - centre, atol=1e-10, btol=1e-10)[0]
    parts = np.split(effects, np.cumsum(array.shape)[:-1])
    total = centre + sum(np.ix_(*parts))
    return np.where(known, array, total)


def _unfolded(label: str, mode: int, as_rows: bool, imputer: Callable[[], Any]) -> Candidate:
    """An imputer of scikit-learn on an unfolding: the mode's indices are samples or features."""

    def fill(array: NumPyArray) -> NumPyArray:
        centre = np.nanmean(array)  # columns without data are filled by zero
        table = unfold(array - centre, mode)
        made = imputer().fit_transform(table if as_rows else table.T)
        filled = fold(made if as_rows else made.T, mode, array.shape) + centre
        return np.where(np.isnan(array), filled, array)

    return Candidate(f"{label} mode {mode + 1}", fill)


def _nearest_neighbours(shape: tuple[int, ...]) -> list[Candidate]:
    """Five nearest neighbours, scikit-learn's default: among slices of a mode, or its fibres."""
    from sklearn.impute import KNNImputer

    def imputer() -> Any:
        return KNNImputer(keep_empty_features=True)

    fibres = [k for k, n in enumerate(shape) if math.prod(shape) <= MOST_SAMPLES * n]
    return [
        *(_unfolded("slices of", k, True, imputer) for k in range(len(shape))),
        *(_unfolded("fibres of", k, False, imputer) for k in fibres),
    ]


def _column_means(shape: tuple[int, ...]) -> list[Candidate]:
    """Means of columns, scikit-learn's default: the indices of a mode are the samples."""
    from sklearn.impute import SimpleImputer

    def imputer() -> Any:
        return SimpleImputer(keep_empty_features=True)

    return [_unfolded("samples are", k, True, imputer) for k in range(len(shape))]


def _iterative(shape: tuple[int, ...]) -> list[Candidate]:
    """Bayesian ridge regression of every index of a mode on the nearest others, in turn."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    def imputer() -> Any:
        return IterativeImputer(
            keep_empty_features=True, n_nearest_features=NEAREST, random_state=0
        )

    modes = [k for k, n in enumerate(shape) if 1 < n <= MOST_COLUMNS]
    return [_unfolded("columns are", k, False, imputer) for k in modes]


def _tucker(shape: tuple[int, ...]) -> list[Candidate]:
    """TensorLy's ``tucker`` with a mask, at several ranks."""
    from tensorly import tucker_to_tensor
    from tensorly.decomposition import tucker

    def at(rank: tuple[int, ...]) -> Candidate:
        def fill(array: NumPyArray) -> NumPyArray:
            start, mask = _masked(array)
            found = tucker(start, list(rank), mask=mask, n_iter_max=ITERATIONS, random_state=0)
            return np.where(mask, array, tucker_to_tensor(found))

        return Candidate(f"rank {rank}", fill)

    ranks = dict.fromkeys(tuple(min(r, n) for n in shape) for r in TUCKER_RANKS)
    return [at(rank) for rank in ranks]


def _parafac(shape: tuple[int, ...]) -> list[Candidate]:
    """TensorLy's ``parafac`` with a mask, at several ranks from two starts."""
    from tensorly import cp_to_tensor
    from tensorly.decomposition import parafac

    def at(rank: int, start: str) -> Candidate:
        def fill(array: NumPyArray) -> NumPyArray:
            values, mask = _masked(array)
            found = parafac(
                values, rank, mask=mask, init=start, n_iter_max=ITERATIONS, random_state=0
            )  # fmt: skip
            return np.where(mask, array, cp_to_tensor(found))

        return Candidate(f"rank {rank}, {start} start", fill)

    return [at(rank, start) for rank in CP_RANKS for start in ("svd", "random")]


def _masked(array: NumPyArray) -> tuple[NumPyArray, NumPyArray]:
    """Values with the mean where nothing is known, and the mask of what is."""
    known = ~np.isnan(array)
    return np.where(known, array, array[known].mean()), known.astype(float)


SIMPLE = Imputer("SimpleImputer", _column_means)
IMPUTERS = (
    Imputer("TensorLy tucker", _tucker),
    Imputer("TensorLy parafac", _parafac),
    Imputer("KNNImputer", _nearest_neighbours),
    Imputer("IterativeImputer", _iterative),
    Imputer("means", _means),
    Imputer("main effects", lambda shape: [Candidate("", main_effects)]),
)
