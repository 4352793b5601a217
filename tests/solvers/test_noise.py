"""Whether a residual is noise: false alarms, misfits that are seen, and rows that count."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.limits import PLAINLY_VISIBLE, STRUCTURE
from lowtucker.solvers import noise
from lowtucker.solvers.noise import is_noise, structure

SHAPE, RANK, M = (9, 8, 7), (2, 2, 2), 400


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
    "fft": lambda seed: lt.subsampled_transform(SHAPE, 250, "fft", seed=seed),
}
NOISE = {
    "normal": lambda rng, m: rng.standard_normal(m),
    "student": lambda rng, m: rng.standard_t(3, m),
    "unequal": lambda rng, m: rng.standard_normal(m) * np.logspace(0, -2, m),
}


def fitted(A, y, rank=RANK, weights=None):
    """Problem, residual and tensor of a fit."""
    problem = lt.Problem(A, y, weights)
    X = lt.solve(problem, lt.RGN(), rank, stop=lt.MaxEpochs(60) | lt.Stalled()).X
    return problem, problem.residual(X), X


@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("name", OPERATORS)
def test_noise_has_no_structure_and_a_missing_direction_has(name, kind):
    for seed in range(2):
        A, rng = OPERATORS[name](seed), np.random.default_rng(seed)
        X = lt.random_tucker(SHAPE, RANK, seed=seed)
        y, e = A.forward(X), NOISE[kind](rng, A.m)
        e = e * (np.exp(2j * np.pi * rng.random(A.m)) if np.iscomplexobj(y) else 1)
        e = 0.1 * np.linalg.norm(y) / np.linalg.norm(e) * e
        found = structure(*fitted(A, y + e))
        assert found.excess < STRUCTURE
        u, v, w = (rng.choice([-1.0, 1.0], n) for n in SHAPE)
        more = A.forward(np.einsum("i,j,k->ijk", u, v, w))
        left = e + 2 * np.linalg.norm(e) / np.linalg.norm(more) * more
        found = structure(lt.Problem(A, y), left, X)
        # rows of products have heavy tails, in which little can be seen
        assert found.excess > STRUCTURE or (name == "rank-one" and found.visible < PLAINLY_VISIBLE)


def test_noise_alone_is_noise_of_any_size():
    """It is not compared with any size: in other units the answer is the same."""
    A, rng = lt.gaussian(SHAPE, M, seed=0), np.random.default_rng(0)
    X = lt.random_tucker(SHAPE, RANK, seed=0)
    r = rng.standard_normal(M)
    found = structure(lt.Problem(A, r), r, X)
    assert found.excess < STRUCTURE
    for scale in (1e-200, 1e-3, 1e200):
        other = structure(lt.Problem(A, r), scale * r, X)
        np.testing.assert_allclose(other, found, rtol=1e-9)


def test_the_excess_is_that_of_spectral_norms_over_those_with_random_signs():
    """Against 100 random signs, one set of modes and one unfolding after the other."""
    A, rng = lt.gaussian(SHAPE, M, seed=1), np.random.default_rng(1)
    X = lt.random_tucker(SHAPE, RANK, seed=1)
    more = np.einsum("i,j,k->ijk", *(rng.choice([-1.0, 1.0], n) for n in SHAPE))
    r = A.forward(more)
    r = r / np.std(r) + rng.standard_normal(M)

    def norms(v):
        G, found = A.adjoint(v), []
        for outside in itertools.product((False, True), repeat=3):
            part = G
            for k, (U, out) in enumerate(zip(X.factors, outside, strict=True)):
                P = np.eye(len(U)) - U @ U.T if out else U @ U.T
                part = np.moveaxis(np.tensordot(P, part, axes=(1, k)), 0, k)
            unfoldings = [np.moveaxis(part, k, 0).reshape(SHAPE[k], -1) for k in range(3)]
            sizes = [np.linalg.norm(unfoldings[k], 2) for k in range(3) if outside[k]]
            found.append(max(sizes, default=0.0))
        return np.array(found[1:])

    others = [norms(r * rng.choice([-1, 1], M)) for _ in range(100)]
    excess = ((norms(r) - np.mean(others, axis=0)) / np.std(others, axis=0)).max()
    found = structure(lt.Problem(A, r), r, X)
    assert excess > STRUCTURE
    assert 0.6 * excess < found.excess < 2 * excess  # 16 signs: the spread is known to a fifth


@pytest.mark.parametrize("weighted", [False, True])
def test_measurements_without_weight_do_not_count(weighted):
    A, rng = lt.gaussian(SHAPE, M, seed=0), np.random.default_rng(0)
    X = lt.random_tucker(SHAPE, RANK, seed=0)
    r = rng.standard_normal(M)
    more = A.forward(lt.random_tucker(SHAPE, (1, 1, 1), seed=2))
    bad = np.arange(M) < 150
    r = np.where(bad, 10 / np.std(more) * more, r)
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
    assert count((U * values) @ V.T) < 0.5 * M
    sizes = np.where(np.arange(M) < 20, 1, 1e-3)
    assert count(matrix * sizes[:, None]) < 40


def test_what_cannot_be_seen_is_said():
    """A twentieth of the entries shows a misfit of rank one as little as noise."""
    shape = (20, 20, 20)
    rng = np.random.default_rng(0)
    known = np.stack(np.unravel_index(rng.choice(8000, 400, replace=False), shape), axis=1)
    X = lt.random_tucker(shape, (1, 1, 1), seed=0)
    r = rng.standard_normal(400)
    few = structure(lt.Problem(lt.entries(shape, known), r), r, X)
    r = rng.standard_normal(6000)
    known = np.stack(np.unravel_index(rng.choice(8000, 6000, replace=False), shape), axis=1)
    many = structure(lt.Problem(lt.entries(shape, known), r), r, X)
    assert few.visible < 1
    assert many.visible > 3


def test_no_answer(monkeypatch):
    A, X = lt.gaussian(SHAPE, M, seed=0), lt.random_tucker(SHAPE, RANK, seed=0)
    y = A.forward(X)
    r = 0.1 * np.std(y) * np.random.default_rng(0).standard_normal(M)
    problem = lt.Problem(A, y)
    assert structure(problem, r, X.full()) is None
    assert is_noise(problem, r, X) is True
    assert is_noise(problem, 10 * r, X) is None  # as large as y
    keep = np.arange(123)
    assert X.degrees_of_freedom * 2.8 > 123
    assert is_noise(lt.Problem(A.restrict(keep), y[keep]), r[keep], X) is None
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
