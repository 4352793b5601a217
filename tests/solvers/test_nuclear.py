"""NuclearNorm: its minimum against closed forms, and its proofs of optimality in plain NumPy."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.solvers import ball, splitting

SHAPE, RANK, M = (5, 4, 6), (1, 1, 1), 90
TRUTH = lt.random_tucker(SHAPE, RANK, seed=0).full()


def draws(seed=0):
    return np.random.default_rng(seed)


def matrix_of(X, rows):
    """Unfolding with these modes as its rows, in plain NumPy."""
    rest = [k for k in range(X.ndim) if k not in rows]
    height = int(np.prod([X.shape[k] for k in rows]))
    return np.transpose(X, (*rows, *rest)).reshape(height, -1)


def nuclear_norms(X, splits):
    return sum(np.linalg.svd(matrix_of(X, rows), compute_uv=False).sum() for rows in splits)


def of_complex(seed):
    A = lt.gaussian(SHAPE, M, seed=seed, dtype=np.complex128)
    return A, A.forward(lt.random_tucker(SHAPE, RANK, seed=0, dtype=complex))


def of(A, X=TRUTH):
    return A, A.forward(X)


def some_entries(count, seed=2, twice=False):
    places = draws(seed).choice(TRUTH.size, count, replace=twice)
    return lt.entries(SHAPE, np.stack(np.unravel_index(places, SHAPE), axis=1))


def functions():
    rows = lt.gaussian(SHAPE, M, seed=1).matrix
    return lt.FunctionOperator(
        lambda X: rows @ X.reshape(-1), lambda v: (rows.T @ v).reshape(SHAPE), SHAPE, M
    )


# name -> operator and measurements
MEASUREMENTS = {
    "gaussian": lambda: of(lt.gaussian(SHAPE, M, seed=1)),
    "entries": lambda: of(some_entries(100)),
    "scaled entries": lambda: of(lt.scale(some_entries(100), draws(3).random(100) + 0.3)),
    "duplicates": lambda: of(some_entries(200, twice=True)),
    "orthogonal": lambda: of(lt.subsampled_transform(SHAPE, M, "dct", seed=1)),
    "complex": lambda: of_complex(1),
    "complex rows, real tensor": lambda: of(lt.subsampled_transform(SHAPE, 60, "fft", seed=1)),
    "functions": lambda: of(functions()),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", MEASUREMENTS)
@pytest.mark.parametrize("tol", [1e-6, 0.05])
def test_the_certificate_proves_the_minimum(rows, tol, weighted):
    """By the spectral norms of its parts, their sum and the measurements alone."""
    A, y = MEASUREMENTS[rows]()
    w = draws(4).random(A.m) + 0.2 if weighted else np.ones(A.m)
    w[:3] = 0 if weighted else 1
    problem, solver = lt.Problem(A, y, w if weighted else None), lt.NuclearNorm()
    result = lt.solve(problem, solver, stop=lt.ResidualBelow(tol) | lt.MaxEpochs(300))
    assert result.status is lt.Status.CONVERGED
    found = solver.certificate(problem, result.state)
    norms = [np.linalg.norm(matrix_of(V, (k,)), 2) for k, V in enumerate(found.parts)]
    assert max(norms) <= 1 + 1e-12
    np.testing.assert_allclose(A.adjoint(found.multiplier), sum(found.parts), rtol=0, atol=1e-8)
    assert (found.multiplier[w == 0] == 0).all()
    # any X with that residual: sum <V_k, X> = Re <lambda, A(X)> is no more than the nuclear norms
    residual = np.sqrt(np.sum(w * np.abs(y - A.forward(result.X.full())) ** 2))
    length = np.linalg.norm(found.multiplier[w > 0] / np.sqrt(w[w > 0]))
    bound = np.vdot(found.multiplier, y).real - residual * length
    primal = nuclear_norms(result.X.full(), [(0,), (1,), (2,)])
    assert primal == pytest.approx(float(found.primal), rel=1e-10)
    assert bound == pytest.approx(float(found.dual), rel=1e-8)
    assert -1e-9 * primal <= primal - bound <= 3e-4 * primal


@pytest.mark.parametrize("shape", [(9, 7), (7, 9)])
def test_all_entries_of_a_matrix_are_shrunk(shape):
    """The nearest matrix of least nuclear norm is that of shrunk singular values."""
    Y = draws(1).standard_normal(shape)
    U, s, Vh = np.linalg.svd(Y, full_matrices=False)
    tol = 0.3
    low, high = 0.0, s[0]
    for _ in range(80):  # the threshold at which the residual is as large as it may be
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if np.linalg.norm(np.minimum(s, middle)) < tol * np.linalg.norm(Y)
            else (low, middle)
        )
    expected = (U * np.maximum(s - low, 0)) @ Vh
    A = lt.entries(shape, np.argwhere(np.ones(shape)))
    result = lt.recover(A, Y.reshape(-1), solver=lt.NuclearNorm(gap=1e-9), tol=tol)
    np.testing.assert_allclose(result.X.full(), expected, rtol=0, atol=1e-4)
    assert np.linalg.norm(result.X.full() - Y) <= tol * np.linalg.norm(Y)


def test_the_missing_entry_of_a_two_by_two_matrix():
    """Of [[1, 2], [2, x]], by a grid: the least nuclear norm is not that of rank 1, x = 4."""
    A = lt.entries((2, 2), [[0, 0], [0, 1], [1, 0]])
    result = lt.recover(A, [1.0, 2.0, 2.0], solver=lt.NuclearNorm(gap=1e-7))
    grid = np.linspace(-5, 5, 100_001)
    norms = np.sqrt(9 + grid**2 + 2 * np.abs(grid - 4))  # (s1 + s2)^2 = ||X||_F^2 + 2 |det|
    best = grid[np.argmin(norms)]
    assert float(result.X.full()[1, 1]) == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize(
    ("unfolding", "shape", "expected"),
    [
        (None, (4, 5, 6), ((0,), (1,), (2,))),
        (None, (4, 5), ((0,),)),
        (None, (4,), ((0,),)),
        ("square", (6, 6, 6, 6), ((0, 1),)),
        ("square", (2, 3, 36, 6), ((0, 1, 3),)),
        ("square", (30, 5, 6), ((0,),)),
        ("square", (5, 5, 5), ((0,),)),
        (1, (4, 5, 6), ((1,),)),
        ((0, 2), (4, 5, 6), ((0, 2),)),
    ],
)
def test_unfoldings(unfolding, shape, expected):
    assert lt.NuclearNorm(unfolding=unfolding).unfoldings(shape) == expected


@pytest.mark.parametrize("shape", [(2, 3, 4, 5, 6), (7, 2, 2, 3), (3, 9, 27, 2)])
def test_the_square_unfolding_is_the_best_of_all_subsets(shape):
    (rows,) = lt.NuclearNorm(unfolding="square").unfoldings(shape)

    def longer_side(rows):
        height = int(np.prod([shape[k] for k in rows]))
        return max(height, int(np.prod(shape)) // height)

    every = [c for n in range(len(shape)) for c in itertools.combinations(range(len(shape)), n)]
    assert longer_side(rows) == min(map(longer_side, every))


@pytest.mark.parametrize("unfolding", ["square", 2, (1, 2)])
def test_one_unfolding_equals_the_problem_of_its_matrix(unfolding):
    shape = (3, 4, 4, 2)
    solver = lt.NuclearNorm(unfolding=unfolding, gap=1e-6)
    (rows,) = solver.unfoldings(shape)
    X = lt.random_tucker(shape, (1, 1, 1, 1), seed=0).full()
    A = lt.gaussian(shape, 70, seed=1)
    result = lt.recover(A, A.forward(X), solver=solver)
    matrices = np.stack([matrix_of(row, rows) for row in A.matrix.reshape(70, *shape)])
    same = lt.recover(matrices, A.forward(X), solver=lt.NuclearNorm(gap=1e-6))
    np.testing.assert_allclose(
        matrix_of(result.X.full(), rows), same.X.full(), rtol=0, atol=1e-6 * np.linalg.norm(X)
    )
    height, width = same.X.shape
    rank = np.linalg.matrix_rank(same.X.full(), tol=1e-3 * np.linalg.norm(X))
    assert result.X.degrees_of_freedom == rank * (height + width - rank)


def numbers_of(result):
    (finding,) = (f for f in result.findings if f.kind == "duality gap")
    return finding.numbers


@pytest.mark.parametrize("tol", [1e-6, 1e-3, 0.05])
def test_a_run_ends_when_its_gap_is_reached_and_not_when_it_fits(tol):
    problem = lt.Problem(*of(lt.gaussian(SHAPE, M, seed=1)))
    gaps, rule = [], lt.ResidualBelow(tol)
    note = [lambda progress: gaps.append(float(progress.state.memory.gap))]
    result = lt.solve(problem, "nuclear", stop=rule | lt.MaxEpochs(99), callbacks=note)
    assert result.status is lt.Status.CONVERGED
    assert len(gaps) > 2
    assert gaps[-1] <= 1e-4 < min(gaps[:-1])
    assert (result.history.residual[1:] <= tol).all()
    assert result.history.phase[-1] == f"NuclearNorm, gap {gaps[-1]:.1e}"
    assert numbers_of(result) == {"gap": gaps[-1], "limit": 1e-4}
    short = lt.solve(problem, "nuclear", stop=rule | lt.MaxEpochs(result.epochs - 1))
    assert short.status is lt.Status.MAX_EPOCHS
    assert numbers_of(short) == {"gap": gaps[-2], "limit": 1e-4}


def test_a_start_that_fits_is_not_the_end():
    """Zeros at the free entries fit too; Huber's loss begins where all but the outliers fit."""
    A, y = of(some_entries(100))
    result = lt.recover(A, y, solver="nuclear", start=A.adjoint(y), X_true=TRUTH)
    assert result.history.residual[0] == 0
    assert result.error < 1e-2
    A, y = of(lt.gaussian(SHAPE, M, seed=1))
    y[::20] += 10 * np.std(y)
    robust = lt.recover(A, y, solver="nuclear", loss="huber", X_true=TRUTH)
    assert (robust.weights[::20] == 0).all()
    assert robust.error < 1e-3


def test_noise_of_a_given_size_is_the_ball():
    A, y = of(lt.gaussian(SHAPE, M, seed=1))
    sigma = 0.1 * np.linalg.norm(y) / M**0.5
    noisy = y + sigma * draws(5).standard_normal(M)
    result = lt.recover(A, noisy, solver="nuclear", noise_std=sigma, X_true=TRUTH)
    assert result.status is lt.Status.NOISE_FLOOR
    assert result.residual * np.linalg.norm(noisy) > sigma * (M - 15) ** 0.5
    exactly = lt.recover(A, noisy, solver=lt.NuclearNorm(), X_true=TRUTH)
    assert exactly.residual < 1e-10
    assert result.error < 0.8 * exactly.error
    assert nuclear_norms(result.X.full(), [(0,), (1,), (2,)]) < nuclear_norms(
        exactly.X.full(), [(0,), (1,), (2,)]
    )


@pytest.mark.parametrize("products", [False, True])
def test_more_measurements_than_entries(products, monkeypatch):
    """Most of the noise is in no tensor: the ball is what is left of it, in plain NumPy."""
    monkeypatch.setattr(ball, "GRAM", 0 if products else 100)
    A = lt.gaussian((3, 2, 4), 40, seed=1)
    y = A.forward(lt.random_tucker((3, 2, 4), (1, 1, 1), seed=0))
    y = y + 0.1 * np.std(y) * draws(1).standard_normal(40)
    basis = np.linalg.qr(A.matrix)[0]
    tol = 1.3 * np.linalg.norm(y - basis @ (basis.T @ y)) / np.linalg.norm(y)
    problem, solver = lt.Problem(A, y), lt.NuclearNorm()
    result = lt.solve(problem, solver, stop=lt.ResidualBelow(tol) | lt.MaxEpochs(100))
    assert result.status is lt.Status.CONVERGED
    assert result.residual == pytest.approx(tol, rel=1e-6)
    found = solver.certificate(problem, result.state)
    inside = np.linalg.norm(basis @ (basis.T @ y) - A.forward(result.X.full()))
    bound = found.multiplier @ y - inside * np.linalg.norm(found.multiplier)
    assert bound == pytest.approx(float(found.dual), rel=1e-6)
    np.testing.assert_allclose(A.adjoint(found.multiplier), sum(found.parts), rtol=0, atol=1e-6)
    primal = nuclear_norms(result.X.full(), [(0,), (1,), (2,)])
    assert 0 <= primal - bound <= 3e-4 * primal
    # and where no tensor fits, least squares
    few = lt.solve(problem, solver, stop=lt.ResidualBelow(tol / 2) | lt.MaxEpochs(100))
    assert few.status is lt.Status.STALLED
    np.testing.assert_allclose(
        few.X.full().reshape(-1), np.linalg.lstsq(A.matrix, y)[0], rtol=0, atol=1e-6
    )


def test_measurements_that_contradict_each_other_are_fitted_by_least_squares():
    indices = np.array([*np.ndindex(SHAPE)])
    A = lt.entries(SHAPE, np.concatenate([indices, indices[:5]]))
    y = A.forward(TRUTH)
    y[-5:] += 1.0
    weights = np.where(np.arange(A.m) < TRUTH.size, 1.0, 3.0)
    result = lt.solve(lt.Problem(A, y, weights), lt.NuclearNorm())
    assert result.status is lt.Status.STALLED
    means = TRUTH.reshape(-1).copy()
    means[:5] += 0.75
    np.testing.assert_allclose(result.X.full().reshape(-1), means, rtol=0, atol=1e-10)


@pytest.mark.parametrize("tol", [1e-6, 0.05])
@pytest.mark.parametrize("weighted", [False, True])
def test_projections_by_products_equal_those_of_the_gram_matrix(tol, weighted, monkeypatch):
    A, y = of(lt.gaussian(SHAPE, M, seed=1, trials=2))
    w = draws(4).random(y.shape) + 0.2 if weighted else None
    problem, rule = lt.Problem(A, y, w), lt.ResidualBelow(tol) | lt.MaxEpochs(4)
    by_gram = lt.solve(problem, lt.NuclearNorm(), stop=rule)
    monkeypatch.setattr(ball, "GRAM", 0)
    by_products = lt.solve(problem, lt.NuclearNorm(), stop=rule)
    assert by_products.passes > 5 * by_gram.passes
    np.testing.assert_allclose(
        by_products.X.full(), by_gram.X.full(), rtol=0, atol=1e-6 * np.linalg.norm(TRUTH)
    )


@pytest.mark.parametrize("radius", [0.0, 0.1, 2.0, 100.0])
def test_projections_onto_the_ball_are_nearest_points(radius):
    """X = V - A*(v) is the projection: it is in the ball, and v is along the residual."""
    A = lt.gaussian(SHAPE, M, seed=1)
    w = draws(4).random(M) + 0.2
    problem = lt.Problem(A, A.forward(TRUTH), w)
    V = draws(6).standard_normal((1, *SHAPE))
    look = ball.Ball.of(problem)
    c = ball.measured(problem, V) - np.sqrt(w) * problem.y
    v = ball.short_vector(problem, look, c, radius)
    X = V - ball.adjoint_of(problem, v)
    left = ball.measured(problem, X)[0] - np.sqrt(w) * problem.y
    if np.linalg.norm(c) <= radius:
        assert not v.any()
        return
    assert np.linalg.norm(left) == pytest.approx(radius, abs=1e-10)
    if radius:  # the normal cone of the ball
        cosine = v[0] @ left / np.linalg.norm(v) / np.linalg.norm(left)
        assert cosine == pytest.approx(1.0, abs=1e-9)


class Counted(lt.MeasurementOperator):
    """Counts the products with its rows, each of as many vectors as there are."""

    traits = lt.Traits(supports_batch=True)

    def __init__(self, matrix):
        self.matrix, self.shape, self.m, self.calls = matrix, SHAPE, len(matrix), Counter()

    def _forward(self, X):
        self.calls["forward"] += 1
        return X.reshape(*X.shape[:-3], -1) @ self.matrix.T

    def _adjoint(self, v):
        self.calls["adjoint"] += 1
        return (v @ self.matrix).reshape(*v.shape[:-1], *SHAPE)


@pytest.mark.parametrize("orthogonal", [False, True])
def test_passes(orthogonal):
    """Ten iterations and a bound, of two passes each."""
    rows = draws(1).standard_normal((M, TRUTH.size))
    A = Counted(np.linalg.qr(rows.T)[0].T if orthogonal else rows)
    bound = lt.NuclearNorm().bind(lt.Problem(A, A.matrix @ TRUTH.reshape(-1)), None)
    A.calls.clear()
    state = bound.init(None, 0)
    assert state.passes == A.calls.total() == (4 if orthogonal else 6)
    for _ in range(2):
        A.calls.clear()
        before, state = state.passes, bound.advance(state)
        assert state.passes - before == A.calls.total() == 2 * (splitting.INNER + 1)


def test_a_state_of_another_tolerance_or_other_measurements_goes_on():
    A, y = of(lt.gaussian(SHAPE, M, seed=1))
    first = lt.recover(A, y, solver=lt.NuclearNorm(), tol=0.05)
    for changed in (y, y + 0.1 * draws(2).standard_normal(M)):
        again = lt.recover(A, changed, solver=lt.NuclearNorm(), start=first.state)
        assert again.residual < 1e-10
        assert again.epochs > 0
        fresh = lt.recover(A, changed, solver=lt.NuclearNorm(gap=1e-6))
        norms = [nuclear_norms(r.X.full(), [(0,), (1,), (2,)]) for r in (again, fresh)]
        assert norms[0] == pytest.approx(norms[1], rel=2e-4)


def test_a_complex_run_resumes_bit_for_bit():
    problem = lt.Problem(*of_complex(1))
    solver = lt.NuclearNorm(gap=1e-9)
    whole = lt.solve(problem, solver, stop=lt.MaxEpochs(3))
    half = lt.solve(problem, solver, stop=lt.MaxEpochs(1))
    again = lt.solve(problem, solver, stop=lt.MaxEpochs(2), start=half.state)
    np.testing.assert_array_equal(again.X.full(), whole.X.full())
    assert again.degrees_of_freedom == whole.degrees_of_freedom


@pytest.mark.parametrize("power", [-600, 500])
def test_units(power):
    A, y = of(lt.gaussian(SHAPE, M, seed=1))
    plain = lt.recover(A, y, solver=lt.NuclearNorm(), tol=0.01)
    scaled = lt.recover(A, y * 2.0**power, solver=lt.NuclearNorm(), tol=0.01)
    np.testing.assert_array_equal(scaled.X.full(), plain.X.full() * 2.0**power)


def test_single_precision():
    A = lt.gaussian(SHAPE, M, seed=1, dtype=np.float32)
    result = lt.recover(A, A.forward(TRUTH.astype(np.float32)), solver="nuclear", tol=1e-5)
    assert result.status is lt.Status.CONVERGED
    assert result.X.full().dtype == result.state.memory.points.dtype == np.float32
    assert lt.metrics.relative_error(result.X, TRUTH) < 1e-3


def test_zero_is_the_smallest_tensor_that_measures_zero():
    A = lt.gaussian(SHAPE, M, seed=1)
    result = lt.recover(A, np.zeros(M), solver="nuclear")
    assert result.status is lt.Status.CONVERGED
    assert not result.X.full().any()
    state = next(itertools.islice(lt.iterate(lt.Problem(A, np.zeros(M)), "nuclear"), 2, None))
    assert not state.X.full().any()


def test_too_few_measurements_are_underdetermined():
    A, y = of(lt.gaussian(SHAPE, 30, seed=1))
    result = lt.recover(A, y, solver="nuclear", X_true=TRUTH)
    assert result.error > 0.1
    assert result.status is lt.Status.UNDERDETERMINED
    assert not result.success


def test_the_certificate_of_a_batch_has_one_proof_for_each_problem():
    A, y = of(lt.gaussian(SHAPE, M, seed=1, trials=3))
    problem, solver = lt.Problem(A, y), lt.NuclearNorm()
    result = lt.solve(problem, solver, stop=lt.MaxEpochs(2))
    found = solver.certificate(problem, result.state)
    assert found.gap.shape == (3,)
    assert found.multiplier.shape == (3, M)
    assert [V.shape for V in found.parts] == [(3, *SHAPE)] * 3
    kinds = [[finding.kind for finding in one.findings] for one in result.each]
    assert all("duality gap" in some for some in kinds)


def test_a_certificate_needs_the_state_of_its_solver():
    problem = lt.Problem(*of(lt.gaussian(SHAPE, M, seed=1)))
    result = lt.solve(problem, lt.Annealing(inner=1), stop=lt.MaxEpochs(1))
    with pytest.raises(ValueError, match=r"NuclearNorm, got that of another solver\. Give"):
        lt.NuclearNorm().certificate(problem, result.state)


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("dtype", [float, complex])
def test_every_kind_of_array(kind, products, dtype, monkeypatch):
    if kind.name == "jax" and (products or dtype is complex):
        pytest.skip("compiling takes seconds")
    monkeypatch.setattr(ball, "GRAM", 0 if products else 100)
    X = lt.random_tucker((3, 2, 2), RANK, seed=0, dtype=dtype)
    A, y = of(lt.gaussian((3, 2, 2), 9, seed=1, dtype=dtype), X)
    weights = draws(1).random(9) + 0.5
    given = lt.Problem(lt.DenseOperator(kind(A.matrix), A.shape), kind(y), kind(weights))
    rule = lt.ResidualBelow(0.05) | lt.MaxEpochs(2)
    expected = lt.solve(lt.Problem(A, y, weights), "nuclear", stop=rule)
    result = lt.solve(given, "nuclear", stop=rule)
    assert kind.owns(result.X.full())
    np.testing.assert_allclose(np.asarray(result.X.full()), expected.X.full(), rtol=0, atol=1e-8)
    if kind.name != "jax":
        found = lt.NuclearNorm().certificate(given, result.state)
        assert all(map(kind.owns, (found.multiplier, *found.parts)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "first", "second", "m"),
    [((6, 6, 6, 6), "square", None, 200), ((10, 10, 10), None, "square", 200)],
)
def test_the_square_deal_needs_fewer_measurements_of_order_four_only(shape, first, second, m):
    """Rank 1. m at 50 % success: 156 and 273 for 6^4 (square, sum); K = 3 gains nothing."""
    A = lt.gaussian(shape, m, seed=1, trials=20)
    X = lt.random_tucker(shape, (1,) * len(shape), seed=2, trials=20)
    problem = lt.Problem(A, A.forward(X))
    found = [
        int((lt.solve(problem, lt.NuclearNorm(unfolding=u), X_true=X).error < 1e-2).sum())
        for u in (first, second)
    ]
    assert found[0] >= 17
    assert found[0] >= found[1]
