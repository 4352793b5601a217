"""Batches of the solvers that shrink: each problem as alone, and gone when it has ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.thresholding import shrinkage
from lowtucker.thresholding.shrinkage import shrunk
from lowtucker.thresholding.sure import sure_shrinkage

SHAPE, COUNT = (7, 6, 5), 3


def draws(seed=0):
    return np.random.default_rng(seed)


def decaying(seed):
    """Tensor whose multilinear spectrum decays."""
    powers = [1.0 / (1 + np.arange(n)) ** 1.5 for n in SHAPE]
    core = draws(seed).standard_normal(SHAPE) * np.einsum("i,j,k->ijk", *powers)
    bases = [
        np.linalg.qr(draws(seed + k).standard_normal((n, n)))[0] for k, n in enumerate(SHAPE, 1)
    ]
    return (1 + seed) * np.einsum("abc,ia,jb,kc->ijk", core, *bases)


TRUTH = np.stack([decaying(10 * k) for k in range(COUNT)])


def functions():
    matrix = lt.gaussian(SHAPE, 150, seed=1).matrix
    return lt.FunctionOperator(
        lambda X: matrix @ X.reshape(-1), lambda v: (matrix.T @ v).reshape(SHAPE), SHAPE, 150
    )


OPERATORS = {
    "each its own": lambda: lt.gaussian(SHAPE, 150, seed=0, trials=COUNT),
    "shared": lambda: lt.gaussian(SHAPE, 150, seed=1),
    "orthogonal": lambda: lt.subsampled_transform(SHAPE, 150, "dct", seed=1),
    "function": functions,
    "entries": lambda: lt.entries(SHAPE, np.argwhere(draws(2).random(SHAPE) < 0.7)),
}
WEIGHTS = {
    "none": lambda shape: None,
    "common": lambda shape: draws(3).random(shape[-1:]) + 0.2,
    "zeros and ones": lambda shape: (draws(3).random(shape) < 0.85).astype(float),
    "different": lambda shape: draws(3).random(shape) + 0.2,
}
SOLVERS = {
    "AMP": lt.AMP(),
    "sum": lt.Annealing(inner=3),
    "product": lt.Annealing(prior="product", subtract=False, inner=3),
    "judged": lt.Annealing(
        prior="product", inner=3, wait=1, judge=lambda X, k: float(np.linalg.norm(X - TRUTH[k]))
    ),
}
CASES = [
    (rows, weights, solver)
    for rows in OPERATORS
    for weights in WEIGHTS
    for solver in SOLVERS
    # AMP is for rows that see all directions; of the others one is enough with every weight
    if (rows, solver) != ("entries", "AMP") and (weights == "none" or solver in ("AMP", "judged"))
]


def batch_of(rows, weights):
    A = OPERATORS[rows]()
    y = A.forward(TRUTH)
    return lt.Problem(A, y, WEIGHTS[weights](y.shape))


def one_of(batch, k):
    A = lt.gaussian(SHAPE, 150, seed=(0, k)) if batch.A.batch_shape else batch.A
    weights = batch.weights
    return lt.Problem(A, batch.y[k], weights[k] if np.ndim(weights) > 1 else weights)


@pytest.mark.parametrize(("rows", "weights", "name"), CASES)
def test_a_batch_equals_its_problems_one_by_one(rows, weights, name):
    """Rounding errors grow, as AMP divides differences of tensors that are close to each other.

    After five steps they were at most 5e-11 (Prescott, Haswell), after ten 4e-9.
    """
    solver, rule, problem = SOLVERS[name], lt.MaxEpochs(5), batch_of(rows, weights)
    together = lt.solve(problem, solver, stop=rule, X_true=TRUTH, seed=7)
    for k in range(COUNT):
        # the judge is told the number, which seeds are made of
        alone = lt.solve(one_of(problem, k), solver, stop=rule, X_true=TRUTH[k], seed=(7, k))
        assert together.epochs[k] == alone.epochs
        assert together.status[k] is alone.status
        size = float(alone.X.norm())
        np.testing.assert_allclose(together.X.full()[k], alone.X.full(), rtol=0, atol=1e-8 * size)
        np.testing.assert_allclose(together.X.effective[k], alone.X.effective, rtol=1e-6)
        for column in ("residual", "error"):
            ours, theirs = together.history[column][:, k], alone.history[column]
            np.testing.assert_allclose(ours[: alone.epochs + 1], theirs, rtol=1e-6)
            assert (ours[alone.epochs :] == ours[-1]).all()  # frozen at its end


@pytest.mark.parametrize("name", SOLVERS)
def test_a_batch_of_one_is_its_problem(name):
    A = lt.gaussian(SHAPE, 150, seed=1)
    y = A.forward(TRUTH[:1])
    rule = lt.MaxEpochs(6)
    one = lt.solve(lt.Problem(A, y), SOLVERS[name], stop=rule)
    alone = lt.solve(lt.Problem(A, y[0]), SOLVERS[name], stop=rule)
    np.testing.assert_allclose(one.X.full()[0], alone.X.full(), rtol=0, atol=1e-9)
    assert one.passes == alone.passes
    assert one.status[0] is alone.status


def test_problems_that_have_ended_leave_the_batch():
    calls = Counter()

    def judge(X, k):  # problem k is best at level k
        calls[k] += 1
        return float(abs(calls[k] - 1 - k))

    solver = lt.Annealing(inner=2, wait=2, judge=judge)
    running = []
    result = lt.solve(
        batch_of("entries", "none"),
        solver,
        stop=lt.MaxEpochs(20),
        callbacks=[lambda progress: running.append(len(progress.state.trials))],
    )
    assert result.epochs.tolist() == [3, 4, 5]
    assert dict(calls) == {0: 3, 1: 4, 2: 5}
    assert running[:2] == [3, 3]
    assert sorted(running, reverse=True) == running
    assert running[-1] == 1
    # and each has the tensor of its best level, not of its last
    for k in range(COUNT):
        plain = lt.Annealing(inner=2)
        best = lt.solve(one_of(batch_of("entries", "none"), k), plain, stop=lt.MaxEpochs(k + 1))
        np.testing.assert_allclose(result.X.full()[k], best.X.full(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["AMP", "sum", "judged"])
def test_one_problem_that_blows_up_does_not_end_the_others(name):
    solver = SOLVERS[name]
    bound = solver.bind(batch_of("shared", "none"), None)
    state = bound.advance(bound.init(None, 0))
    memory = state.memory
    field = "back" if name == "AMP" else "previous"
    wild = getattr(memory, field).copy()
    wild[1] = np.inf
    with np.errstate(all="ignore"):
        usual = bound.advance(state)
        after = bound.advance(replace(state, memory=replace(memory, **{field: wild})))
    assert after.diverged.tolist() == [False, True, False]
    assert not usual.diverged.any()
    np.testing.assert_allclose(after.X.full()[::2], usual.X.full()[::2], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(after.X.full()[1], state.X.full()[1])


@pytest.mark.parametrize("name", ["AMP", "sum"])
def test_a_batch_resumes_bit_for_bit(name, tmp_path):
    problem, solver = batch_of("shared", "different"), SOLVERS[name]
    whole = lt.solve(problem, solver, stop=lt.MaxEpochs(3), seed=5)
    half = lt.solve(problem, solver, stop=lt.MaxEpochs(2), seed=5)
    half.save(tmp_path / "half.npz")
    for start in (half.state, lt.load(tmp_path / "half.npz")):
        again = lt.solve(problem, solver, stop=lt.MaxEpochs(1), start=start, seed=99)
        np.testing.assert_array_equal(again.X.full(), whole.X.full())


@pytest.mark.parametrize("name", ["AMP", "judged"])
def test_a_batch_takes_all_kinds_of_arrays(kind, name):
    matrix = lt.gaussian(SHAPE, 150, seed=1).matrix
    A, plain = (lt.DenseOperator(array, SHAPE) for array in (kind(matrix), matrix))
    solver, y = SOLVERS[name], plain.forward(TRUTH)
    if name == "judged":
        solver = replace(solver, judge=lambda X, k: float(np.linalg.norm(np.asarray(X) - TRUTH[k])))
    # ranks change with every step, and JAX compiles for each; of those judged one ends at the third
    rule = lt.MaxEpochs(2 if (kind.name, name) == ("jax", "AMP") else 4)
    found = lt.solve(lt.Problem(A, kind(y)), solver, stop=rule)
    assert kind.owns(found.X.full())
    expected = lt.solve(lt.Problem(plain, y), solver, stop=rule)
    np.testing.assert_allclose(np.asarray(found.X.full()), expected.X.full(), atol=1e-7)


# Shrinkage itself


@pytest.fixture(params=["whole", "cut into pieces"])
def piece(request, monkeypatch):
    if request.param != "whole":
        monkeypatch.setattr(shrinkage, "PIECE", 2 * TRUTH[0].size)


@pytest.mark.parametrize("prior", ["sum", "product"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32])
def test_every_tensor_drops_its_own_directions(piece, prior, dtype):
    Z = TRUTH.astype(dtype)
    tol = 1e-5 if dtype is np.float32 else 1e-12
    real = Z.real.dtype
    noise, subtract = np.array([1e-6, 1e-2, 1.0], real), np.array([0.0, 0.5, 1.0], real)
    found = shrunk(Z, noise, prior, subtract, batch_ndim=1, drop=0.01)
    assert found.full().dtype == dtype
    ranks = set()
    for k in range(COUNT):
        alone = shrunk(Z[k], float(noise[k]), prior, float(subtract[k]), drop=0.01)
        np.testing.assert_allclose(found.full()[k], alone.full(), atol=tol * np.abs(Z[k]).max())
        np.testing.assert_allclose(found.effective[k], alone.effective, rtol=tol)
        ranks.add(lt.multilinear_rank(alone.full(), tol=1e-6))
    assert len(ranks) == COUNT  # otherwise this would be no test of dropping


def test_steins_combination_of_a_batch(piece):
    probes = draws(5).standard_normal(TRUTH.shape)
    noise = np.array([1e-4, 1e-2, 1.0])
    found = sure_shrinkage(TRUTH, noise, probes)
    for k in range(COUNT):
        alone = sure_shrinkage(TRUTH[k], float(noise[k]), probes[k])
        np.testing.assert_allclose(found.X.full()[k], alone.X.full(), atol=1e-9)
        np.testing.assert_allclose(found.divergence[k], alone.divergence, rtol=1e-6)
        np.testing.assert_allclose(found.risk[k], alone.risk, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("weight", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("rows", ["shared", "orthogonal"])
def test_weights_that_are_all_equal_leave_the_residual_right(rows, weight):
    A = OPERATORS[rows]()
    problem = lt.Problem(A, A.forward(TRUTH[0]), np.full(A.m, weight))
    result = lt.solve(problem, lt.AMP(), stop=lt.MaxEpochs(5))
    exact = float(problem.relative_residual(result.X))
    np.testing.assert_allclose(result.residual, exact, rtol=1e-9)
