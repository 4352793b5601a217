"""Verdicts: success is False if the available numbers contradict it."""

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
    """At full rank every tensor qualifies."""
    A, X = lt.gaussian((3, 4), 12, seed=0), lt.random_tucker((3, 4), (3, 3), seed=0)
    assert lt.recover(A, A.forward(X), (3, 3)).success
    A, x = lt.gaussian((6,), 6, seed=0), np.arange(1.0, 7)
    assert lt.recover(A, A.forward(x), (1,)).success


def test_an_estimate_of_a_large_error_is_no_success():
    """The noise is known and the fit is at its floor, but X may be far off."""
    rng = np.random.default_rng(0)
    A = lt.kronecker([rng.standard_normal((n, n)) for n in (24, 20, 12)])
    A = A.restrict(rng.choice(5760, 760, replace=False))
    X = lt.random_tucker((24, 20, 12), (3, 3, 2), seed=0)
    y = A.forward(X)
    std = 0.05 * float(np.std(y))
    result = lt.recover(A, y + std * rng.standard_normal(760), (3, 3, 2), noise_std=std)
    assert result.status is lt.Status.UNDERDETERMINED
    [finding] = [f for f in result.findings if f.kind == "error estimate"]
    assert finding.numbers["estimate"] > 1
    assert "may have changed X by" in result.advice
    # zero would be closer: it is shrunk, and has no estimate
    assert error(result, X) < 1
    assert result.error_estimate is result.error_interval is None


def test_a_blur_that_loses_directions_is_detected():
    """Moving averages of 3 of 8 entries have a zero singular value: a perfect fit can be wrong."""
    shape = (12, 8, 6)
    blur = pylops.Smoothing2D((3, 3), shape, axes=(0, 1))
    A = lt.compose(lt.gaussian(shape, 200, seed=0), blur, shape=shape)
    X = lt.random_tucker(shape, (3, 3, 2), seed=0)
    result = lt.recover(A, A.forward(X), (3, 3, 2))
    assert result.residual < 1e-6
    assert error(result, X) > 0.05
    assert result.status is lt.Status.UNDERDETERMINED
    assert "RGN" in result.solver  # conjugate gradients hand over when they are slow


@pytest.mark.parametrize("seed", [9, pytest.param(11, marks=pytest.mark.slow)])
def test_a_rank_that_grows_in_some_modes_only_is_not_mistaken_for_noise(seed):
    """From (1, 1, 1), one more in every mode is too many directions, and fits badly.

    The search still finds the better rank, up to its limit.
    """
    shape, rank = (10, 10, 10), (2, 1, 2)
    X = lt.random_tucker(shape, rank, seed=seed)
    m = 8 * lt.degrees_of_freedom(shape, rank)
    flat = np.random.default_rng(seed).choice(1000, m, replace=False)
    A = lt.entries(shape, np.stack(np.unravel_index(flat, shape), axis=1))
    y = A.forward(X)
    assert lt.recover(A, y, (1, 1, 1)).status is lt.Status.RANK_TOO_SMALL
    found = lt.recover(A, y, "auto")
    assert "Held-out residuals: (1, 1, 1)" in found.notes[0]
    assert found.success
    assert found.rank == rank
    assert error(found, X) < 1e-5
    assert error(found, X) / 10 < found.error_estimate < 10 * error(found, X)
    few = lt.recover(A, y, lt.RankSearch(max=(1, 1, 1)))
    assert few.rank == (1, 1, 1)
    assert not few.success


def test_epochs_spent_on_other_starts_are_reported():
    """A limit that other starts used up is no reason to raise it."""
    A = lt.gaussian((8, 8, 8), 60, seed=0)
    y = np.random.default_rng(0).standard_normal(60)
    result = lt.recover(A, y, (2, 2, 2), max_epochs=40)
    assert result.status is lt.Status.LOCAL_MINIMUM
    [starts] = [finding for finding in result.findings if finding.kind == "starts"]
    assert (
        starts.text
        == f"{starts.numbers['restarts']} other starts led no further within max_epochs."
    )
    [few] = [finding for finding in result.findings if finding.kind == "few"]
    assert few.numbers["per_dof"] == 60 / 44
    (attempts,) = result.state.memory.problems
    assert starts.numbers["restarts"] == attempts.begun - 1 > 1
    assert few.numbers["starts"] == attempts.begun - len(attempts.starts)  # some have not ended
    assert few.changes == {"m": 124}  # 2.8 measurements per degree of freedom
    assert "Take about 124 measurements" in result.advice
    assert "max_epochs" not in result.advice


@pytest.mark.parametrize("kind", ["dct", pytest.param("fft", marks=pytest.mark.slow)])
def test_noise_is_recognised_where_there_is_no_tangent_design(kind):
    shape, rng = (8, 8, 8), np.random.default_rng(0)
    A = lt.subsampled_transform(shape, 300 if kind == "dct" else 150, kind, seed=0)
    y = A.forward(lt.random_tucker(shape, (2, 2, 2), seed=0))
    noise = rng.standard_normal((2, A.m)).T @ np.array([1, 1j if kind == "fft" else 0])
    noise = noise if kind == "fft" else noise.real
    y = y + 0.05 * np.linalg.norm(y) / np.linalg.norm(noise) * noise
    assert lt.recover(A, y, (2, 2, 2)).status is lt.Status.NOISE_FLOOR
    y = A.forward(lt.random_tucker(shape, (3, 3, 3), seed=0))
    assert not lt.recover(A, y, (2, 2, 2)).success


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_rounding_does_not_hide_a_null_space(dtype):
    """A 2x4 map of one mode: the smallest eigenvalue is zero, up to rounding.

    Its inverse gave an estimate of 0.1 % for a tensor that was wrong by 60 %.
    """
    shape = (3, 4, 2)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        sizes = [(5, 3), (2, 4), (3, 2)]
        maps = [rng.standard_normal(size).astype(dtype) for size in sizes]
        A = lt.kronecker(maps)
        X = lt.random_tucker(shape, (1, 1, 1), seed=seed, dtype=dtype)
        result = lt.recover(A, A.forward(X), (1, 1, 1))
        assert error(result, X) > 0.1
        assert result.status is lt.Status.UNDERDETERMINED
        assert result.error_estimate is None
        factors = [f.numbers["factor"] for f in result.findings if f.kind == "nothing recovered"]
        fitted = result.X * (1 / factors[0] if factors else 1)
        assert float(lt.Problem(A, A.forward(X)).relative_residual(fitted)) < 1e-5
