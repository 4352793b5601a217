"""Verdicts that were once wrong, each on several seeds: what is called a success is one."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lowtucker as lt

CUBE = (10, 10, 10)


def error(result, X):
    return float(lt.metrics.relative_error(result.X, X))


def covers(result, X, factor=1.0):
    """Whether the interval contains the true error, up to a factor."""
    low, high = result.error_interval
    return low / factor <= error(result, X) <= factor * high


def assert_honest(result, X):
    """No success, or one whose interval covers the error."""
    assert not result.success or covers(result, X)


def noisy(y, share, seed):
    e = np.random.default_rng(seed).standard_normal(y.shape)
    return y + share * np.linalg.norm(y) / np.linalg.norm(e) * e


def conditioned(seed, spread, m=300, shape=CUBE):
    """Matrix whose singular values fall by a factor."""
    rng, n = np.random.default_rng(seed), math.prod(shape)
    U, V = (np.linalg.qr(rng.standard_normal((size, m)))[0] for size in (m, n))
    return lt.DenseOperator((U * np.logspace(0, -np.log10(spread), m)) @ V.T, shape)


# What measurements determine


@pytest.mark.parametrize(("seed", "known"), [
    pytest.param(2, True, marks=pytest.mark.slow),
    (6, True),
    pytest.param(6, False, marks=pytest.mark.slow),
])  # fmt: skip
def test_noise_at_its_floor_may_leave_x_open(seed, known):
    """52 cosine coefficients of 29 degrees of freedom: errors of 20 and 40 %."""
    shape, rank = (8, 5, 14), (2, 2, 1)
    A = lt.subsampled_transform(shape, 52, "dct", signs=False, seed=seed)
    X = lt.random_tucker(shape, rank, seed=seed)
    y = A.forward(X)
    std = 0.01 * np.linalg.norm(y) / math.sqrt(52) if known else None
    result = lt.recover(A, noisy(y, 0.01, seed), rank, noise_std=std)
    assert not result.success
    assert result.status in (lt.Status.UNDERDETERMINED, lt.Status.LOCAL_MINIMUM)


@pytest.mark.parametrize("seed", [1, 6])
def test_three_slices_through_a_corner_do_not_determine_a_tensor(seed):
    indices = np.indices(CUBE).reshape(3, -1).T
    A = lt.entries(CUBE, indices[(indices == 0).any(axis=1)])
    X = lt.random_tucker(CUBE, (2, 2, 2), seed=seed)
    result = lt.recover(A, A.forward(X), (2, 2, 2))
    assert error(result, X) > 0.3
    assert result.status is lt.Status.UNDERDETERMINED
    assert result.error_estimate is None
    assert "rank-deficient design" in [finding.kind for finding in result.findings]


@pytest.mark.parametrize("damping", [1e-3, 1e-5, 1e-6])
@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_the_error_in_a_direction_that_is_hardly_measured_is_part_of_the_estimate(damping, noise):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        u = rng.standard_normal(10)
        u /= np.linalg.norm(u)
        P = np.eye(10) - (1 - damping) * np.outer(u, u)
        rows = rng.standard_normal((300, *CUBE))
        A = lt.DenseOperator(np.einsum("mijk,il->mljk", rows, P))
        X = lt.random_tucker(CUBE, (2, 2, 2), seed=seed)
        result = lt.recover(A, noisy(A.forward(X), noise, seed), (2, 2, 2), tol=1e-7)
        if result.success:
            assert error(result, X) / 3 < result.error_estimate < 3 * error(result, X)
        else:
            assert noise / damping > 0.01


@pytest.mark.parametrize("seed", range(3))
def test_an_ill_conditioned_kronecker_product(seed):
    """A residual at the tolerance may leave an error that is far larger."""
    rng, shape = np.random.default_rng(seed), (4, 4, 3, 8)
    maps = []
    for n in shape:
        U, _, Vt = np.linalg.svd(rng.standard_normal((n, n)))
        maps.append(U * np.logspace(0, -1.5, n) @ Vt)
    A = lt.kronecker(maps).restrict(np.sort(rng.choice(math.prod(shape), 191, replace=False)))
    X = lt.random_tucker(shape, (2, 2, 2, 2), seed=seed)
    for noise in (0.0, 1e-3):
        assert_honest(lt.recover(A, noisy(A.forward(X), noise, seed), (2, 2, 2, 2)), X)


# Local minima, and what is noise


@pytest.mark.parametrize(
    ("solver", "seed", "spread"),
    [("auto", 0, 1e3), ("auto", 1, 1e4), ("auto", 2, 1e4), ("rgn", 0, 1e4), ("rcg", 0, 1e3)],
)
def test_local_minima_of_an_ill_conditioned_matrix_are_not_called_noise(solver, seed, spread):
    X = lt.random_tucker(CUBE, (2, 2, 2), seed=seed)
    A = conditioned(seed, spread)
    assert_honest(lt.recover(A, A.forward(X), (2, 2, 2), solver=solver), X)


@pytest.mark.parametrize("seed", [0, 1])
def test_noise_that_an_ill_conditioned_matrix_amplifies(seed):
    X = lt.random_tucker(CUBE, (2, 2, 2), seed=seed)
    A = conditioned(seed, 1e3)
    assert_honest(lt.recover(A, noisy(A.forward(X), 1e-3, seed), (2, 2, 2)), X)


@pytest.mark.parametrize("name", ["entries", "rank-one", "gaussian"])
def test_a_rank_too_small_is_not_called_noise(name):
    """Neither without noise nor with it; by operators whose rows show little of a misfit."""
    shape, m = (9, 8, 7), 300
    for seed in (0, 1) if name == "gaussian" else (0,):
        rng = np.random.default_rng(seed)
        if name == "entries":
            known = rng.choice(math.prod(shape), m, replace=False)
            A = lt.entries(shape, np.stack(np.unravel_index(known, shape), axis=1))
        elif name == "rank-one":
            A = lt.rank_one([rng.standard_normal((m, n)) for n in shape])
        else:
            A = lt.gaussian(shape, m, seed=seed)
        parts = [lt.random_tucker(shape, (r,) * 3, seed=(r, seed)).full() for r in (1, 2)]
        X = parts[1] / np.linalg.norm(parts[1]) + 0.5 * parts[0] / np.linalg.norm(parts[0])
        result = lt.recover(A, noisy(A.forward(X), 0.05, seed), (2, 2, 2))
        assert result.status is not lt.Status.NOISE_FLOOR
        assert_honest(result, X)


@pytest.mark.parametrize("seed", [0, 2])
def test_an_estimate_that_presumes_noise_is_not_shown_where_the_model_does_not_fit(seed):
    """No low rank fits: spectra fall slowly, and a fifth of the entries is hidden."""
    rng, shape = np.random.default_rng(seed), (9, 8, 7)
    core = rng.standard_normal(shape)
    for k, n in enumerate(shape):
        core *= (np.arange(1, n + 1) ** -1.2).reshape([-1 if j == k else 1 for j in range(3)])
    factors = [np.linalg.qr(rng.standard_normal((n, n)))[0] for n in shape]
    X = lt.TuckerTensor(core, factors).full()
    hidden = rng.random(shape) < 0.2
    known = np.argwhere(~hidden)
    result = lt.recover(lt.entries(shape, known), X[tuple(known.T)], (3, 3, 3))
    assert result.status is not lt.Status.CONVERGED
    missed = np.linalg.norm((result.X.full() - X)[hidden]) / np.linalg.norm(X[hidden])
    assert missed > 0.01
    if result.success:
        assert missed < 2 * result.error_interval[1]
    else:
        assert result.error_estimate is None


@pytest.mark.parametrize("kind", ["gaussian", "entries", "dct", "rank-one"])
def test_noise_of_unknown_size_is_recognised_by_all_operators(kind):
    """With the right rank and plenty of measurements, a fit is a success, and its error known."""
    shape, rank, good = (9, 8, 7), (2, 2, 2), 0
    for seed in range(2):
        m, rng = 260, np.random.default_rng(seed)
        if kind == "gaussian":
            A = lt.gaussian(shape, m, seed=seed)
        elif kind == "dct":
            A = lt.subsampled_transform(shape, m, "dct", seed=seed)
        elif kind == "rank-one":
            A = lt.rank_one([rng.standard_normal((m, n)) for n in shape])
        else:
            known = rng.choice(math.prod(shape), m, replace=False)
            A = lt.entries(shape, np.stack(np.unravel_index(known, shape), axis=1))
        X = lt.random_tucker(shape, rank, seed=seed)
        result = lt.recover(A, noisy(A.forward(X), 0.05, seed), rank)
        assert result.success
        good += covers(result, X, 1.1)
    assert good == 2


# Advice, limits, outliers


@pytest.mark.parametrize("seed", [0])
def test_a_search_does_not_advise_a_search(seed):
    """A tensor of full rank, and few measurements."""
    rng, shape = np.random.default_rng(seed), (6, 5, 6)
    A = lt.gaussian(shape, 150, seed=seed)
    full = rng.standard_normal(shape)
    few = A.restrict(np.arange(40))
    small = lt.random_tucker(shape, (2, 2, 2), seed=seed)
    for B, y in (
        (A, A.forward(full)),
        (few, noisy(few.forward(small), 0.1, seed)),
    ):
        result = lt.recover(B, y, "auto")
        assert all(finding.changes.get("rank") != "auto" for finding in result.findings)
        assert 'rank="auto")' not in result.advice  # but another seed, or more
        assert not result.success or covers(result, small)


@pytest.mark.parametrize("seed", range(2))
def test_few_measurements_are_said_to_be_few(seed):
    """1.2 for each degree of freedom: not that the run was too short."""
    shape, rank = (8, 8, 8), (2, 2, 2)
    A = lt.gaussian(shape, 53, seed=seed)
    X = lt.random_tucker(shape, rank, seed=seed)
    result = lt.recover(A, noisy(A.forward(X), 0.05, seed), rank, max_epochs=60)
    assert not result.success
    assert result.status in (lt.Status.LOCAL_MINIMUM, lt.Status.UNDERDETERMINED)
    assert "max_epochs" not in result.advice
    assert any(finding.changes.get("m", 0) >= 2.8 * 44 for finding in result.findings)


@pytest.mark.parametrize("seed", range(3))
def test_outliers_are_named_and_huber_finds_them(seed):
    shape, rank, m = (6, 6, 6), (2, 2, 2), 260
    rng = np.random.default_rng(seed)
    A = lt.gaussian(shape, m, seed=seed)
    X = lt.random_tucker(shape, rank, seed=seed)
    y = noisy(A.forward(X), 0.01, seed)
    bad = rng.permutation(m)[: m // 10]
    y[bad] += 10 * np.std(y) * rng.choice([-1, 1], len(bad)) * rng.uniform(1, 2, len(bad))
    squares = lt.recover(A, y, rank)
    assert_honest(squares, X)
    [named] = [finding for finding in squares.findings if finding.kind == "outliers"]
    assert named.changes == {"loss": "huber"}
    assert 0.5 * len(bad) <= named.numbers["count"] <= 1.5 * len(bad)
    robust = lt.recover(A, y, rank, loss="huber")
    assert (robust.weights[bad] == 0).all()
    assert robust.success
    assert covers(robust, X, 1.2)


@pytest.mark.parametrize("seed", range(3))
def test_normal_noise_has_no_outliers(seed):
    A = lt.gaussian((6, 6, 6), 260, seed=seed)
    y = A.forward(lt.random_tucker((6, 6, 6), (2, 2, 2), seed=seed))
    result = lt.recover(A, noisy(y, 0.1, seed), (2, 2, 2))
    assert "outliers" not in [finding.kind for finding in result.findings]


@pytest.mark.parametrize(("per_dof", "noise"), [(1.5, 0.0), (4.0, 0.0), (4.0, 0.02)])
def test_rounding_does_not_decide(per_dof, noise):
    """Measurements that differ by rounding have the same verdict."""
    shape, rank = (7, 6, 6), (2, 2, 2)
    m = round(per_dof * lt.degrees_of_freedom(shape, rank))
    A = lt.gaussian(shape, m, seed=3)
    y = noisy(A.forward(lt.random_tucker(shape, rank, seed=3)), noise, 3)
    rng = np.random.default_rng(0)
    first = lt.recover(A, y, rank)
    other = lt.recover(A, y * (1 + 1e-15 * rng.standard_normal(m)), rank)
    assert other.status is first.status
    if noise and first.success:
        assert other.error_estimate == pytest.approx(first.error_estimate, rel=0.05)
