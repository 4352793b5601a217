"""Gauss-Newton by products alone, where the solvers start, and what they measure there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

import lowtucker as lt
from lowtucker._array.readings import Readings
from lowtucker.operators.design import TangentDesign
from lowtucker.solvers import models, rgn
from lowtucker.solvers.models import Model, ProductModel
from lowtucker.solvers.noise import FLIPS
from lowtucker.solvers.rsgd import Blocks
from lowtucker.uncertainty import information
from steps import begun

SHAPE, RANK, M_ROWS = (6, 5, 6), (2, 2, 2), 150  # 35 degrees of freedom
DOF = lt.degrees_of_freedom(SHAPE, RANK)
LARGER = (12, 12, 13), (3, 3, 3), 400  # 111


def make(shape=SHAPE, rank=RANK, m=M_ROWS, seed=0, noise=0.0, dtype=np.float64, weights=None):
    A = lt.gaussian(shape, m, seed=seed, dtype=dtype)
    X_true = lt.random_tucker(shape, rank, seed=1000 + seed, dtype=dtype)
    y = A.forward(X_true)
    if noise:
        e = np.random.default_rng(seed).standard_normal(m)
        y = y + noise * np.linalg.norm(y) / np.linalg.norm(e) * e
    return lt.Problem(A, y, weights), X_true


def functions(A):
    return lt.FunctionOperator(A.forward, A.adjoint, A.shape, A.m, dtype=A.dtype)


class Counting(lt.MeasurementOperator):
    """Operator that counts how often all its rows are read."""

    def __init__(self, A):
        self.A, self.shape, self.m, self.dtype = A, A.shape, A.m, A.dtype
        self.forwards = self.adjoints = 0

    def _forward(self, X):
        self.forwards += 1
        return self.A.forward(X)

    def _adjoint(self, v):
        self.adjoints += 1
        return self.A.adjoint(v)


class Designing(Counting):
    """The same with a tangent design, so that noise can be recognised."""

    traits = lt.Traits(has_fast_tangent=True)

    def _tangent(self, T):
        return TangentDesign(self, T)


# the step


def fields(name):
    """A problem whose tensor and measurements are real or complex."""
    weights = np.random.default_rng(0).uniform(0, 2, M_ROWS)
    weights[::9] = 0
    if name == "real tensor, complex measurements":
        matrix = lt.gaussian(SHAPE, M_ROWS, seed=3, dtype=np.complex128).matrix
        A = lt.DenseOperator(matrix, SHAPE, dtype=np.dtype(np.float64))
        y = A.forward(lt.random_tucker(SHAPE, RANK, seed=7))
        return lt.Problem(A, y, weights)
    dtype = np.complex128 if name == "complex" else np.float64
    return make(dtype=dtype, weights=None if name == "unweighted" else weights, noise=0.1)[0]


@pytest.mark.parametrize("damping", [0.0, 0.3, 10.0])
@pytest.mark.parametrize(
    "name", ["unweighted", "weighted", "complex", "real tensor, complex measurements"]
)
def test_step_is_the_damped_least_squares_solution(name, damping):
    problem = fields(name)
    state = begun(lt.RGN(products=True).bind(problem, RANK), None, 0)
    model = state.cache
    assert isinstance(model, ProductModel)
    T = model.T
    w = np.ones(M_ROWS) if problem.weights is None else problem.weights
    unit = np.eye(T.dof, dtype=T.X.core.dtype)
    D = np.stack([problem.A.forward(T.full(e)) for e in unit], axis=1)
    r = problem.y - problem.A.forward(T.X.full())
    np.testing.assert_allclose(model.residual, r, rtol=0, atol=1e-10)
    D, r = np.sqrt(w)[:, None] * D, np.sqrt(w) * r
    if name.startswith("real tensor"):  # a real and an imaginary part are two equations
        D, r = np.vstack([D.real, D.imag]), np.concatenate([r.real, r.imag])
    np.testing.assert_allclose(model.gradient, D.conj().T @ r, rtol=0, atol=1e-9)
    X = T.X.full()
    s = np.sum(w * np.abs(problem.A.forward(X)) ** 2) / np.sum(np.abs(X) ** 2)
    stacked = np.vstack([D, np.sqrt(damping * s) * np.eye(T.dof)])
    expected = np.linalg.lstsq(stacked, np.concatenate([r, np.zeros(T.dof)]), rcond=None)[0]
    xi, promise = model.step(damping, 1e-15)
    assert xi.dtype == T.X.core.dtype
    np.testing.assert_allclose(xi, expected, rtol=0, atol=1e-9 * np.linalg.norm(expected))
    fall = np.linalg.norm(r) ** 2 - np.linalg.norm(r - D @ expected) ** 2
    assert promise == pytest.approx(fall, rel=1e-8)


def test_a_loosely_solved_step_is_cheaper_and_reduces_the_residual_less(monkeypatch):
    problem, _ = make(noise=0.1)
    model = ProductModel.at(problem, begun(lt.RGN().bind(problem, RANK), None, 0).X)
    with Readings().counting() as long:
        tight = model.step(0.1, 1e-12)
    with Readings().counting() as short:
        loose = model.step(0.1, 0.1)
    assert short.rows < 0.5 * long.rows
    assert 0 < loose.promise < tight.promise
    np.testing.assert_allclose(loose.xi, tight.xi, rtol=0, atol=0.2 * np.linalg.norm(tight.xi))
    monkeypatch.setattr(models, "INNER", 3)
    with Readings().counting() as few:
        model.step(0.1, 1e-12)
    assert few.rows == (2 * 3 + 2) * M_ROWS


@pytest.mark.parametrize(("starts", "noise"), [(1, 0.0), (1, 0.02), (3, 0.02)])
def test_passes_count_the_rows_that_are_read(starts, noise):
    problem, _ = make(noise=noise)
    A = Counting(problem.A)
    solver = lt.RGN(products=True, starts=starts)
    result = lt.solve(lt.Problem(A, problem.y), solver, RANK)
    assert result.passes == A.forwards + A.adjoints
    assert (result.status is lt.Status.STALLED) == bool(noise)
    assert (np.diff(result.history.passes)[:-1] >= 4).all()
    if starts > 1:
        assert solver.restarts(result.state) > 0


@pytest.mark.parametrize(("rank", "noise"), [(RANK, 0.01), ((2, 2, 1), 0.0), (RANK, 0.6)])
def test_a_check_for_noise_costs_a_pass_when_it_reads_the_rows(rank, noise):
    """Noise; structure; a residual that is too large to decide."""
    problem, _ = make((6, 5, 6), RANK, M_ROWS, noise=noise)
    A = Designing(problem.A)
    assert A.traits.has_fast_tangent
    result = lt.solve(lt.Problem(A, problem.y), lt.RGN(products=True, starts=3), rank)
    assert result.status is lt.Status.STALLED
    restarts = lt.RGN().restarts(result.state)
    assert (restarts == 0) == (noise == 0.01)  # noise needs no other start
    together = FLIPS if noise == 0.01 else 0  # all adjoints of a batch are one reading of a matrix
    assert result.passes == A.forwards + A.adjoints - together


@pytest.mark.parametrize(
    ("shape", "rank", "m", "dtype"),
    [
        (SHAPE, RANK, M_ROWS, np.float64),
        ((8, 7), (2, 2), 110, np.float64),
        ((6,), (1,), 40, np.float64),
        ((4, 4, 3, 4), (2, 2, 1, 2), 110, np.float64),
        ((5, 4, 5), (2, 2, 2), 110, np.complex128),
        ((3, 4, 2), (3, 4, 2), 60, np.float64),
        (SHAPE, RANK, M_ROWS, np.float32),
    ],
    ids=["order-3", "matrix", "vector", "order-4", "complex", "full-rank", "float32"],
)
def test_products_recover_the_same_tensor_as_normal_equations(shape, rank, m, dtype):
    problem, X_true = make(shape, rank, m, dtype=dtype)
    stop = lt.ResidualBelow(3e-6 if dtype == np.float32 else 1e-9) | lt.MaxEpochs(50)
    for products in (True, False):
        solver = lt.RGN(products=products)
        result = lt.solve(problem, solver, rank, stop=stop, X_true=X_true)
        assert result.success
        assert result.error < (1e-4 if dtype == np.float32 else 1e-7)
        assert result.X.dtype == np.dtype(dtype)


def test_noise_leaves_the_same_minimum():
    problem, _ = make(noise=0.05)
    one, two = (lt.solve(problem, lt.RGN(products=p), RANK) for p in (True, False))
    assert one.residual == pytest.approx(two.residual, rel=1e-6)
    assert float(lt.metrics.relative_error(one.X, two.X)) < 1e-3


def test_restarts_recover_from_few_measurements():
    for seed in range(2):
        problem, X_true = make((5, 5, 6), (1, 2, 2), 32, seed=seed)
        solver = lt.RGN(starts=40, products=True)
        result = lt.solve(problem, solver, (1, 2, 2), X_true=X_true)
        assert result.success
        assert result.error < 1e-4


def test_resumed_equals_uninterrupted(tmp_path):
    problem, _ = make(noise=0.01)
    solver = lt.RGN(products=True)
    whole = lt.solve(problem, solver, RANK, stop=lt.MaxEpochs(4))
    half = lt.solve(problem, solver, RANK, stop=lt.MaxEpochs(2))
    half.save(tmp_path / "half.npz")
    for start in (half, lt.load(tmp_path / "half.npz")):
        resumed = lt.solve(problem, solver, RANK, stop=lt.MaxEpochs(2), start=start)
        np.testing.assert_array_equal(resumed.state.X.core, whole.state.X.core)
        assert resumed.state.passes == whole.state.passes


# products or normal equations


def test_products_where_normal_equations_are_too_large(monkeypatch):
    assert (rgn.LARGE, rgn.FEW) == (5000, 300)
    problem, _ = make()
    slow = lt.Problem(functions(problem.A), problem.y)

    def model(given, **settings):
        return type(begun(lt.RGN(**settings).bind(given, RANK), None, 0).cache)

    assert model(problem) is model(slow) is Model
    assert model(problem, products=True) is model(slow, products=True) is ProductModel
    monkeypatch.setattr(rgn, "LARGE", DOF)
    monkeypatch.setattr(rgn, "FEW", DOF - 1)
    assert model(problem) is Model
    assert model(slow) is ProductModel
    assert model(slow, products=False) is Model
    monkeypatch.setattr(rgn, "LARGE", DOF - 1)
    assert model(problem) is ProductModel
    assert model(problem, products=False) is Model


def test_there_is_no_error_estimate_without_normal_equations():
    problem, _ = make(noise=0.01)
    assert lt.solve(problem, lt.RGN(products=True), RANK).error_estimate is None
    assert lt.solve(problem, lt.RGN(products=False), RANK).error_estimate > 0


def test_functions_with_many_degrees_of_freedom(monkeypatch):
    """Normal equations would need a forward for each."""
    shape, rank, m = LARGER
    for module in (rgn, information):
        monkeypatch.setattr(module, "FEW", 100)
    assert lt.degrees_of_freedom(shape, rank) > 100

    def refused(*_):
        raise AssertionError("normal equations")

    monkeypatch.setattr(Model, "at", refused)
    for seed, rows in ((0, m), (5, 220)):
        problem, X_true = make(shape, rank, rows, seed=seed)
        result = lt.recover(functions(problem.A), problem.y, rank, X_true=X_true)
        assert result.success
        assert result.error < 1e-5
    assert "RGN" in result.history.phase[-1]  # 2 measurements per degree: RCG alone got stuck
    A = Counting(problem.A)
    first = lt.solve(lt.Problem(A, problem.y), lt.RGN(), rank, stop=lt.MaxEpochs(2))
    assert first.passes == A.forwards + A.adjoints


# the start


def operators():
    matrix = np.random.default_rng(0).standard_normal((30, 60))
    dense = lt.DenseOperator(matrix, (3, 4, 5))
    return {
        "dense": dense,
        "matlab order": lt.DenseOperator(matrix, (3, 4, 5), order="F"),
        "complex": lt.gaussian((3, 4, 5), 30, seed=1, dtype=np.complex128),
        "sparse": lt.SparseOperator(scipy.sparse.coo_array(matrix), (3, 4, 5)),
        "functions": functions(dense),
        "block": dense.restrict(slice(3, 20)),
        "order 1": lt.gaussian((6,), 9, seed=2),
    }


@pytest.mark.parametrize("name", operators())
def test_spectral_start_is_the_adjoint_after_ten_sweeps_from_its_hosvd(name):
    A = operators()[name]
    v = np.random.default_rng(1).standard_normal(A.m)
    if name == "complex":
        v = v + 1j * v[::-1]
    rank = (2, 2, 3) if len(A.shape) == 3 else (1,)
    X = A.spectral_start(v, rank)
    assert X.rank == rank
    Z = A.adjoint(v)
    projections = [leading(Z, k, r) for k, r in enumerate(rank)]
    for _ in range(10):
        for k, r in enumerate(rank):
            others = [np.eye(len(P)) if j == k else P for j, P in enumerate(projections)]
            projections[k] = leading(projected(Z, others), k, r)
    expected = projected(Z, projections)
    np.testing.assert_allclose(X.full(), expected, rtol=0, atol=1e-7 * np.linalg.norm(Z))


def leading(Z, k, r):
    """Projection onto the leading left singular vectors of an unfolding."""
    U = np.linalg.svd(np.moveaxis(Z, k, 0).reshape(Z.shape[k], -1), full_matrices=False)[0]
    return U[:, :r] @ U[:, :r].conj().T


def projected(Z, projections):
    for k, P in enumerate(projections):
        Z = np.moveaxis(np.tensordot(P, Z, axes=(1, k)), 0, k)
    return Z


def test_spectral_start_of_a_batch():
    A = lt.gaussian((3, 4), 12, seed=0, trials=3)
    v = np.random.default_rng(0).standard_normal((3, 12))
    X = A.spectral_start(v, (2, 2))
    assert X.batch_shape == (3,)
    for k in range(3):
        one = lt.gaussian((3, 4), 12, seed=(0, k)).spectral_start(v[k], (2, 2))
        np.testing.assert_allclose(X.trial(k).full(), one.full(), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("v", "rank", "exception", "message"),
    [
        (np.ones(7), RANK, ValueError, r"spectral_start expects v of shape .*150.*, got \(7,\)"),
        (np.ones((2, 7)), RANK, ValueError, r"spectral_start expects v of shape .*got \(2, 7\)"),
        (np.ones(150), (2, 2), ValueError, "rank must have one entry per mode: got 2 entries"),
        (np.ones(150), (7, 2, 2), ValueError, r"rank\[0\] = 7 must be between 1 and 6"),
        (np.ones(150), 2, TypeError, r"rank must have one entry per mode, got the number 2"),
    ],
)
def test_spectral_start_refuses_bad_arguments(v, rank, exception, message):
    with pytest.raises(exception, match=message):
        make()[0].A.spectral_start(v, rank)


class Informed(lt.DenseOperator):
    """Operator with a spectral start of its own."""

    X_known = lt.random_tucker(SHAPE, RANK, seed=77)

    def _spectral_start(self, v, rank):
        self.starts = [*getattr(self, "starts", []), (np.array(v), rank)]
        X = self.X_known
        parts = {k: np.broadcast_to(x, v.shape[:-1] + x.shape) for k, x in X.parts().items()}
        return X.from_parts(parts)

    def _adjoint(self, v):
        raise AssertionError("formed the adjoint")


@pytest.mark.parametrize(
    "solver", [lt.RGN(), lt.RGN(products=True), lt.RSGD(), lt.RCG(), "auto"], ids=repr
)
@pytest.mark.parametrize("weighted", [False, True])
def test_solvers_use_the_spectral_start_of_the_operator(solver, weighted):
    problem, _ = make()
    A = Informed(problem.A.matrix, SHAPE)
    if solver != lt.RGN():
        A._adjoint = problem.A.adjoint  # needed later, not for the start
    weights = np.random.default_rng(0).uniform(0.5, 1, M_ROWS) if weighted else None
    state = next(lt.iterate(lt.Problem(A, problem.y, weights), solver, RANK))
    cosine = np.vdot(state.X.full(), A.X_known.full()) / float(state.X.norm() * A.X_known.norm())
    assert cosine == pytest.approx(1)
    [(v, rank)] = A.starts
    assert v.shape == (1, M_ROWS)  # a batch of one
    np.testing.assert_allclose(v[0], problem.y if weights is None else weights * problem.y)
    assert rank == RANK


def test_a_given_start_replaces_the_spectral_start():
    problem, X_true = make()
    A = Informed(problem.A.matrix, SHAPE)
    state = next(lt.iterate(lt.Problem(A, problem.y), lt.RGN(), RANK, start=X_true))
    np.testing.assert_allclose(state.X.full(), X_true.full(), rtol=0, atol=1e-12)
    assert not hasattr(A, "starts")


# the residuals that RSGD measures


def true_residual(problem, X):
    left = problem.y - problem.A.forward(X.full())
    w = np.ones(problem.m) if problem.weights is None else problem.weights
    return np.sqrt(np.sum(w * np.abs(left) ** 2) / np.sum(w * np.abs(problem.y) ** 2))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", [lt.RSGD(), lt.RSGD(least_squares=True)], ids=repr)
def test_rsgd_estimates_the_residual_of_its_own_start_only(solver, weighted):
    weights = np.random.default_rng(0).uniform(0.1, 2, M_ROWS) if weighted else None
    problem, _ = make(weights=weights)
    iterates = [state.X for state in _firsts(problem, solver)]
    result = lt.solve(problem, solver, RANK, stop=lt.MaxEpochs(3))
    estimate = true_residual(
        lt.Problem(
            problem.A.restrict(slice(0, 64)),
            problem.y[:64],
            None if weights is None else weights[:64],
        ),
        iterates[0],
    )
    residual = result.history.residual
    assert residual[0] == pytest.approx(estimate)
    assert residual[0] != pytest.approx(true_residual(problem, iterates[0]), rel=1e-6)
    for k in (1, 2, 3):
        assert residual[k] == pytest.approx(true_residual(problem, iterates[k]))
    half = (residual * float(problem.y_norm)) ** 2 / 2
    np.testing.assert_allclose(result.history.cost, half, rtol=1e-9)
    # a given start is measured
    given = lt.solve(problem, solver, RANK, stop=lt.MaxEpochs(1), start=iterates[0])
    assert given.history.residual[0] == pytest.approx(true_residual(problem, iterates[0]))


def _firsts(problem, solver, epochs=3):
    """States where epochs end, the start first."""
    steps = solver.bind(problem, RANK).steps_per_epoch
    states = lt.iterate(problem, solver, RANK)
    for t in range(epochs * steps + 1):
        state = next(states)
        if t % steps == 0:
            yield state


@pytest.mark.parametrize("ending", ["one epoch", "callback", "ctrl-c", "ctrl-c in auto"])
def test_the_residual_of_a_result_is_measured(ending, monkeypatch):
    problem, X_true = make(noise=0.01)
    solver = "auto" if ending.endswith("auto") else lt.RSGD()
    options = {"stop": lt.MaxEpochs(1)} if ending == "one epoch" else {}
    if ending == "callback":
        options["callbacks"] = [lambda _: True]
    if ending.startswith("ctrl-c"):

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(lt.RSGD, "advance", interrupted)
    result = lt.solve(problem, solver, RANK, X_true=X_true, **options)
    assert result.epochs == (0 if ending.startswith("ctrl-c") else 1)
    expected = lt.Status.MAX_EPOCHS if ending == "one epoch" else lt.Status.INTERRUPTED
    assert result.status is expected
    assert result.residual == pytest.approx(true_residual(problem, result.X), rel=1e-12)
    assert result.error == pytest.approx(float(lt.metrics.relative_error(result.X, X_true)))


def test_an_epoch_ends_early_when_the_estimated_residual_reaches_the_tolerance():
    problem, _ = make((10, 10, 10), RANK, 1500)
    solver = lt.RSGD(least_squares=True)
    steps = solver.bind(problem, RANK).steps_per_epoch
    assert steps > 10
    result = lt.solve(problem, solver, RANK, stop=lt.ResidualBelow(1e-6) | lt.MaxEpochs(20))
    assert result.success
    assert result.state.passes < 1.5  # the start, and part of the first epoch
    assert result.epochs == 1
    assert result.passes < 3  # the start, part of an epoch, and the residual
    assert result.residual == pytest.approx(true_residual(problem, result.X), rel=1e-6, abs=1e-12)
    assert result.residual <= 1e-6
    # without a tolerance, and with one that needs more, epochs are whole
    for stop in (
        lt.MaxEpochs(2),
        (lt.ResidualBelow(1e-6) & lt.MaxEpochs(2)) | lt.MaxEpochs(3),
    ):
        assert lt.solve(problem, solver, RANK, stop=stop).state.t == 2 * steps


@pytest.mark.parametrize("least_squares", [False, True])
def test_an_epoch_is_done_by_the_last_block(least_squares):
    problem, _ = make()
    bound = lt.RSGD(least_squares=least_squares).bind(problem, RANK)
    state = bound.advance(bound.init(None, 0))
    level = float(state.memory.level[0])
    assert 0.05 < level < 1
    # a step by least squares takes the residual to 2 level^2
    border = min(level, 2 * level**2) if least_squares else level
    assert least_squares == (border < 0.9 * level)
    for tol, done in [(1.01 * level, True), (1.01 * border, True), (0.99 * border, False)]:
        seen = replace(bound, tol=tol)
        once = seen.advance(seen.init(None, 0))
        assert once.memory.done.tolist() == [done]
        twice = seen.advance(once)
        assert twice.t == 2
        if done:  # the rest of the epoch is left out
            assert twice.passes == once.passes
            assert twice.X is once.X
        else:
            assert twice.passes > once.passes


def test_an_epoch_after_one_that_was_cut_short_too_early_is_whole():
    problem, _ = make()
    bound = replace(lt.RSGD().bind(problem, RANK), tol=2.0)  # every block is below
    state, steps = bound.init(None, 0), bound.steps_per_epoch
    read = []
    for _ in range(3 * steps):
        after = bound.advance(state)
        read.append(after.passes > state.passes)
        state = after
    assert steps > 3
    assert [sum(read[k : k + steps]) for k in (0, steps, 2 * steps)] == [1, steps, 1]


@pytest.mark.parametrize("level", [0.009, 0.011, 0.3, 0.999, 1.001])
def test_an_estimated_residual_is_far_above_the_tolerance_and_below_one(level):
    problem, _ = make()
    no = np.array([False])
    for tol in (-np.inf, 0.0, 1e-6, 0.4 * level, 0.49 * level, 0.51 * level, level, 2 * level):
        known = level < 1 and tol < level / 2
        for size in (63, 64):
            bound = replace(lt.RSGD(block_size=size).bind(problem, RANK), tol=tol)
            start = replace(bound.init(None, 0), memory=Blocks(np.array([level]), no, no))
            expected = level if known and level > 0.01 else np.nan
            np.testing.assert_equal(bound.estimated_residual(start), [expected])
            later = replace(start, t=1)
            expected = level if known and size == 64 else np.nan
            np.testing.assert_equal(bound.estimated_residual(later), [expected])
            done = replace(later, memory=Blocks(np.array([level]), ~no, no))
            np.testing.assert_equal(bound.estimated_residual(done), [np.nan])
    bound = lt.RGN().bind(problem, RANK)
    np.testing.assert_equal(bound.estimated_residual(bound.init(None, 0)), [np.nan])


@pytest.mark.parametrize(("m", "tol"), [(400, 0.3), (150, 0.5), (1500, 0.3)])
@pytest.mark.parametrize("by", ["tol", "noise_std"])
def test_no_run_ends_by_an_estimated_residual(m, tol, by):
    problem, _ = make(m=m)
    size = tol * float(problem.y_norm) / np.sqrt(m)
    options = {"tol": tol} if by == "tol" else {"noise_std": size}
    result = lt.recover(problem.A, problem.y, RANK, **options)
    true = true_residual(problem, result.X)
    assert result.residual == pytest.approx(true)
    assert true <= tol
    assert result.success == (result.error_estimate <= 0.3)


# lists of solvers


@pytest.mark.parametrize(
    "solver", [[lt.RSGD(), lt.RGN()], (lt.RSGD(), "rgn"), ["rsgd", lt.RGN]], ids=repr
)
def test_a_list_of_solvers_hands_over(solver):
    problem, X_true = make(noise=0.01)
    result = lt.recover(problem.A, problem.y, RANK, solver=solver, X_true=X_true)
    phases = result.history.phase.tolist()
    border = phases.index("RGN")
    assert set(phases[:border]) == {"RSGD"}
    assert set(phases[border:]) == {"RGN"}
    assert result.solver.startswith("RSGD(")
    assert result.solver.endswith("then RGN()")
    assert result.status is lt.Status.NOISE_FLOOR
    # RGN starts from the best iterate of RSGD
    best = result.history.residual[:border].min()
    assert result.history.residual[border:].max() <= best * (1 + 1e-12)
    alone = lt.recover(problem.A, problem.y, RANK, solver=lt.RGN())
    assert result.residual == pytest.approx(alone.residual, rel=1e-6)


def test_the_second_solver_of_a_list_does_not_run_if_the_first_converges():
    problem, _ = make()
    result = lt.recover(problem.A, problem.y, RANK, solver=[lt.RGN(), lt.TIHT()])
    assert result.success
    assert set(result.history.phase.tolist()) == {"RGN"}
    assert result.solver == "RGN()"


def test_an_empty_list_of_solvers_is_refused():
    problem, _ = make()
    with pytest.raises((TypeError, ValueError), match="solver must be"):
        lt.recover(problem.A, problem.y, RANK, solver=[])
    with pytest.raises(ValueError, match="solver must be one of 'auto', 'tiht'"):
        lt.recover(problem.A, problem.y, RANK, solver=["rsgd", "newton"])
