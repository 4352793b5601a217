"""Whether a residual is noise: false alarms, misfits that are seen, and rows that count."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.limits import STRUCTURE
from lowtucker.solvers import noise
from lowtucker.solvers.noise import is_noise, structure

SHAPE, RANK, M = (9, 8, 7), (2, 2, 2), 300


def entries(seed):
    known = np.random.default_rng(seed).choice(math.prod(SHAPE), M, replace=False)
    return lt.entries(SHAPE, np.stack(np.unravel_index(known, SHAPE), axis=1))


def rank_one(seed):
    rng = np.random.default_rng(seed)
    return lt.rank_one([rng.standard_normal((M, n)) for n in SHAPE])


OPERATORS = {
    "gaussian": lambda seed: lt.gaussian(SHAPE, M, seed=seed),
    "entries": entries,
    "rank-one": rank_one,
    "dct": lambda seed: lt.subsampled_transform(SHAPE, M, "dct", seed=seed),
    "fft": lambda seed: lt.subsampled_transform(SHAPE, M, "fft", seed=seed),
}
NOISE = {
    "normal": lambda rng: rng.standard_normal(M),
    "student": lambda rng: rng.standard_t(3, M),
    "unequal": lambda rng: rng.standard_normal(M) * np.logspace(0, -2, M),
}


def fitted(A, y, rank=RANK, weights=None):
    """Fit and residual, from the rank's truncation of a full least-squares fit or from X."""
    problem = lt.Problem(A, y, weights)
    X = lt.solve(problem, lt.RGN(), rank, stop=lt.MaxEpochs(60) | lt.Stalled()).X
    return problem, problem.residual(X), X


@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("name", OPERATORS)
def test_noise_has_no_structure_and_a_missing_direction_has(name, kind):
    for seed in range(2):
        A, rng = OPERATORS[name](seed), np.random.default_rng(seed)
        X = lt.random_tucker(SHAPE, RANK, seed=seed)
        y, e = A.forward(X), NOISE[kind](rng)
        e = e * (np.exp(2j * np.pi * rng.random(M)) if np.iscomplexobj(y) else 1)
        e = 0.1 * np.linalg.norm(y) / np.linalg.norm(e) * e
        found = structure(*fitted(A, y + e))
        assert found.excess < STRUCTURE
        more = A.forward(lt.random_tucker(SHAPE, (1, 1, 1), seed=9 + seed))
        more = 0.5 * np.linalg.norm(y) / np.linalg.norm(more) * more
        assert structure(*fitted(A, y + e + more)).excess > STRUCTURE


def test_noise_alone_is_noise_of_any_size():
    """It is not compared with any size: in other units the answer is the same."""
    A, rng = lt.gaussian(SHAPE, M, seed=0), np.random.default_rng(0)
    X = lt.random_tucker(SHAPE, RANK, seed=0)
    r = rng.standard_normal(M)
    found = structure(lt.Problem(A, r), r, X)
    assert found.excess < 3
    for scale in (1e-200, 1e-3, 1e200):
        other = structure(lt.Problem(A, r), scale * r, X)
        np.testing.assert_allclose(other, found, rtol=1e-9)


def test_the_excess_is_that_of_spectral_norms_over_those_with_random_signs():
    """Against a comparison with 400 random signs, one unfolding after the other."""
    A, rng = lt.gaussian(SHAPE, M, seed=1), np.random.default_rng(1)
    X = lt.random_tucker(SHAPE, RANK, seed=1)
    more = lt.random_tucker(SHAPE, (1, 1, 1), seed=2)
    r = A.forward(more) + 0.3 * rng.standard_normal(M)

    def largest(v):
        G = A.adjoint(v)
        for k, U in enumerate(X.factors):
            G = np.moveaxis(np.tensordot(np.eye(SHAPE[k]) - U @ U.T, G, axes=(1, k)), 0, k)
        unfolded = [np.moveaxis(G, k, 0).reshape(SHAPE[k], -1) for k in range(3)]
        return max(np.linalg.norm(matrix, 2) for matrix in unfolded)

    others = [largest(r * rng.choice([-1, 1], M)) for _ in range(400)]
    excess = (largest(r) - np.mean(others)) / np.std(others)
    found = structure(lt.Problem(A, r), r, X)
    assert excess > 10
    assert 0.6 * excess < found.excess < 2.5 * excess  # 16 signs: it is known to a sixth


@pytest.mark.parametrize("weighted", [False, True])
def test_measurements_without_weight_do_not_count(weighted):
    A, rng = lt.gaussian(SHAPE, M, seed=0), np.random.default_rng(0)
    X = lt.random_tucker(SHAPE, RANK, seed=0)
    r = rng.standard_normal(M)
    more = A.forward(lt.random_tucker(SHAPE, (1, 1, 1), seed=2))
    bad = np.arange(M) < 150
    r = np.where(bad, 10 * more, r)
    weights = np.where(bad, 0.0, 1.0) if weighted else None
    found = structure(lt.Problem(A, r, weights), r, X)
    assert (found.excess > STRUCTURE) == (not weighted)


def test_rows_that_count():
    """All of i.i.d. rows, few of an ill-conditioned matrix, of rows of different sizes."""
    rng = np.random.default_rng(0)
    X = lt.random_tucker(SHAPE, RANK, seed=0)
    r, N = rng.standard_normal(M), math.prod(SHAPE)

    def count(matrix):
        A = lt.DenseOperator(matrix, SHAPE)
        return structure(lt.Problem(A, r), r, X).effective

    matrix = rng.standard_normal((M, N))
    assert count(matrix) > 0.8 * M
    U, V = (np.linalg.qr(rng.standard_normal((n, M)))[0] for n in (M, N))
    values = np.logspace(0, -4, M)
    expected = np.sum(values**2) ** 2 / np.sum(values**4)  # about 30
    assert count((U * values) @ V.T) == pytest.approx(expected, rel=0.5)
    sizes = np.where(np.arange(M) < 20, 1, 1e-3)
    assert count(matrix * sizes[:, None]) < 40


def test_what_cannot_be_seen_is_said():
    """A tenth of the entries shows a misfit of rank one as little as noise."""
    shape = (20, 20, 20)
    rng = np.random.default_rng(0)
    known = np.stack(np.unravel_index(rng.choice(8000, 400, replace=False), shape), axis=1)
    X = lt.random_tucker(shape, (1, 1, 1), seed=0)
    r = rng.standard_normal(400)
    few = structure(lt.Problem(lt.entries(shape, known), r), r, X)
    A = lt.gaussian(shape, 400, seed=0)
    many = structure(lt.Problem(A, r), r, X)
    assert few.visible < 1 < many.visible


def test_no_answer(monkeypatch):
    A, X = lt.gaussian(SHAPE, M, seed=0), lt.random_tucker(SHAPE, RANK, seed=0)
    y = A.forward(X)
    r = 0.1 * np.std(y) * np.random.default_rng(0).standard_normal(M)
    problem = lt.Problem(A, y)
    assert structure(problem, r, X.full()) is None
    assert is_noise(problem, r, X) is True
    assert is_noise(problem, 10 * r, X) is None  # as large as y
    keep = np.arange(150)
    assert is_noise(lt.Problem(A.restrict(keep), y[keep]), r[keep], X) is None  # 2.8 per dof: 151
    other = lt.DenseOperator(A.matrix, SHAPE, isotropic=False)
    assert is_noise(lt.Problem(other, y), r, X) is None
    monkeypatch.setattr(noise, "FULL", math.prod(SHAPE) - 1)
    assert structure(problem, r, X) is None


def test_zero_and_not_finite_residuals():
    A, X = lt.gaussian(SHAPE, M, seed=0), lt.random_tucker(SHAPE, RANK, seed=0)
    problem = lt.Problem(A, A.forward(X))
    assert structure(problem, np.zeros(M), X) == (0.0, math.inf, M)
    r = np.ones(M)
    r[7] = np.nan
    assert structure(problem, r, X).excess == math.inf
