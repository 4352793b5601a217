"""What a result says of itself: no success that the numbers at hand refute."""

from __future__ import annotations

import numpy as np
import pylops
import pytest

import lowtucker as lt


def error(result, X):
    return float(lt.metrics.relative_error(result.X, X))


@pytest.mark.parametrize("seed", range(4))
def test_as_many_measurements_as_degrees_of_freedom_are_not_enough(seed):
    """The equations are not linear: several tensors fit."""
    shape, rank = (10, 10, 5), (2, 2, 2)
    m = lt.degrees_of_freedom(shape, rank)
    A, X = lt.gaussian(shape, m, seed=seed), lt.random_tucker(shape, rank, seed=seed)
    result = lt.recover(A, A.forward(X), rank)
    assert result.status is lt.Status.UNDERDETERMINED
    assert error(result, X) > 0.1


def test_as_many_linear_equations_as_unknowns_are_enough():
    """Of full rank the tensor is any tensor."""
    A, X = lt.gaussian((3, 4), 12, seed=0), lt.random_tucker((3, 4), (3, 3), seed=0)
    assert lt.recover(A, A.forward(X), (3, 3)).success
    A, x = lt.gaussian((6,), 6, seed=0), np.arange(1.0, 7)
    assert lt.recover(A, A.forward(x), (1,)).success


def test_an_estimate_of_a_large_error_is_no_success():
    """The noise is known, the fit is at its floor, and X is not to be trusted."""
    rng = np.random.default_rng(0)
    A = lt.kronecker([rng.standard_normal((n, n)) for n in (24, 20, 12)])
    A = A.restrict(rng.choice(5760, 760, replace=False))
    X = lt.random_tucker((24, 20, 12), (3, 3, 2), seed=0)
    y = A.forward(X)
    std = 0.05 * float(np.std(y))
    result = lt.recover(A, y + std * rng.standard_normal(760), (3, 3, 2), noise_std=std)
    assert error(result, X) > 0.3
    assert result.error_estimate > 0.3
    assert result.status is lt.Status.UNDERDETERMINED
    assert "may have changed X by" in result.advice


@pytest.mark.parametrize("seed", range(2))
def test_a_blur_that_loses_directions_is_noticed(seed):
    """Means of three in a row, of 20, have a zero singular value: a fit is perfect, and wrong."""
    shape = (24, 20, 12)
    blur = pylops.Smoothing2D((3, 3), shape, axes=(0, 1))
    A = lt.compose(lt.gaussian(shape, 760, seed=seed), blur, shape=shape)
    X = lt.random_tucker(shape, (3, 3, 2), seed=seed)
    result = lt.recover(A, A.forward(X), (3, 3, 2))
    assert result.residual < 1e-6
    assert error(result, X) > 0.05
    assert result.status is lt.Status.UNDERDETERMINED
    assert "RGN" in result.solver  # conjugate gradients hand over where they are slow


def holes(seed):
    shape, rank = (20, 20, 20), (2, 1, 2)
    X = lt.random_tucker(shape, rank, seed=seed)
    m = 10 * lt.degrees_of_freedom(shape, rank)
    flat = np.random.default_rng(seed).choice(8000, m, replace=False)
    index = np.stack(np.unravel_index(flat, shape), axis=1)
    return lt.entries(shape, index), X


@pytest.mark.parametrize("seed", [0, 6, 9])
def test_a_rank_that_grows_in_some_modes_only_is_not_taken_for_noise(seed):
    """From (1, 1, 1) a rank with one more in every mode has directions too many, and fits badly."""
    A, X = holes(seed)
    small = lt.recover(A, A.forward(X), (1, 1, 1))
    assert not small.success
    found = lt.recover(A, A.forward(X), "auto")
    assert found.success == (error(found, X) < 1e-3)


def test_a_search_fits_what_turned_out_better_up_to_its_limit():
    right = 0
    for seed in (0, 2, 3, 6):
        A, X = holes(seed)
        found = lt.recover(A, A.forward(X), "auto")
        right += found.rank == (2, 1, 2) and error(found, X) < 1e-5
        few = lt.recover(A, A.forward(X), lt.RankSearch(max=(1, 1, 1)))
        assert few.rank == (1, 1, 1)
        assert not few.success
    assert right >= 3


def test_epochs_that_went_to_other_starts_are_said_to_have():
    A = lt.gaussian((8, 8, 8), 60, seed=0)
    y = np.random.default_rng(0).standard_normal(60)
    result = lt.recover(A, y, (2, 2, 2), max_epochs=40)
    assert result.status is lt.Status.MAX_EPOCHS
    assert "tried other starts" in result.advice


@pytest.mark.parametrize("kind", ["dct", "fft"])
def test_noise_is_recognised_where_there_is_no_tangent_design(kind):
    shape, rng = (12, 12, 12), np.random.default_rng(0)
    A = lt.subsampled_transform(shape, 700 if kind == "dct" else 350, kind, seed=0)
    y = A.forward(lt.random_tucker(shape, (2, 2, 2), seed=0))
    noise = rng.standard_normal((2, A.m)).T @ np.array([1, 1j if kind == "fft" else 0])
    noise = noise if kind == "fft" else noise.real
    y = y + 0.05 * np.linalg.norm(y) / np.linalg.norm(noise) * noise
    assert lt.recover(A, y, (2, 2, 2)).status is lt.Status.NOISE_FLOOR
    y = A.forward(lt.random_tucker(shape, (3, 3, 3), seed=0))
    assert not lt.recover(A, y, (2, 2, 2)).success
