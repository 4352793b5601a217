"""The contract of a format: a thresholding with its iterate, over every line of cases.FORMATS."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import lowtucker as lt
from cases import FORMATS
from lowtucker._array import to_numpy
from lowtucker.thresholding import FORMATS as KNOWN


@pytest.fixture(params=FORMATS)
def case(request):
    H, shape, m, step = FORMATS[request.param]
    return H.for_shape(shape), shape, m, step


def tensor(shape, seed=0, dtype=np.float64, trials=None):
    rng = np.random.default_rng(seed)
    shape = shape if trials is None else (trials, *shape)
    Z = rng.standard_normal(shape)
    return (Z + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else Z).astype(dtype)


def truth_of(case, seed=3):
    H, shape, *_ = case
    return H(tensor(shape, seed))


def close(X, expected, tol=1e-12):
    full = to_numpy(X.full() if hasattr(X, "full") else X)
    assert np.linalg.norm(full - expected) <= tol * max(1.0, np.linalg.norm(expected))


# The thresholding


def test_fits_the_protocol(case):
    H, shape, *_ = case
    assert isinstance(H, lt.Thresholding)
    assert H.eta >= 1
    X = H(tensor(shape))
    assert isinstance(X, lt.thresholding.Iterate)
    assert type(X) in KNOWN.values()
    assert (X.shape, X.batch_shape, X.rank) == (shape, (), H.rank)
    assert X.degrees_of_freedom == H.degrees_of_freedom(shape)
    assert H.block_size(shape) >= 1
    assert H.noise_gain(shape) > 0


def test_is_the_identity_on_its_own_tensors(case):
    H, X = case[0], truth_of(case).full()
    close(H(X), X)


def test_is_no_further_than_any_of_its_tensors_near_by(case):
    """Times eta: no tensor of the format is closer by more than that, in 50 directions."""
    H, shape, *_ = case
    Z = truth_of(case).full() + 0.1 * tensor(shape, 5)
    error = np.linalg.norm(H(Z).full() - Z)
    others = [H(Z + 0.05 * tensor(shape, 10 + k)).full() for k in range(50)]
    assert error <= H.eta * min(np.linalg.norm(X - Z) for X in others) * (1 + 1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_degrees_of_freedom_are_the_dimension_of_the_set(case, dtype):
    """By the numerical rank of many small differences of tensors of the format."""
    H, shape, *_ = case
    X = H(tensor(shape, 3, dtype)).full()
    count = H.degrees_of_freedom(shape) + 8
    moved = [H(X + 1e-7 * tensor(shape, 100 + k, dtype)).full() - X for k in range(count)]
    values = np.linalg.svd(np.array(moved).reshape(count, -1), compute_uv=False)
    assert int(np.sum(values > 1e-4 * values[0])) == H.degrees_of_freedom(shape)


def test_dtypes_are_kept(case):
    H, shape, *_ = case
    for dtype in (np.float32, np.float64, np.complex64, np.complex128):
        X = H(tensor(shape, dtype=dtype))
        assert X.dtype == dtype
        assert X.full().dtype == dtype
        assert X.norm().dtype == np.zeros(0, dtype).real.dtype


def test_a_batch_equals_a_loop(case):
    H, shape, *_ = case
    Z = tensor(shape, trials=3)
    X = H(Z)
    assert X.batch_shape == (3,)
    G = tensor(shape, seed=8, trials=3)
    for k in range(3):
        one = H(Z[k])
        close(X.trial(k), one.full())
        close(X.take([k]).single(), one.full())
        close(X.project(G).full()[k], one.project(G[k]).full())
        np.testing.assert_allclose(X.norm()[k], one.norm(), rtol=1e-12)
    # powers of two: exact, whatever cancels in an entry
    np.testing.assert_array_equal((X * [1.0, 2.0, -4.0]).full()[2], -4 * X.full()[2])


def test_the_input_is_not_changed(case):
    H, shape, *_ = case
    Z = tensor(shape)
    before = Z.copy()
    X = H(Z)
    full = X.full().copy()
    np.testing.assert_array_equal(Z, before)
    Z[:] = 0
    np.testing.assert_array_equal(X.full(), full)


def test_zero_gives_zero(case):
    H, shape, *_ = case
    X = H(np.zeros(shape))
    assert not X.full().any()
    assert float(X.norm()) == 0


def test_nan_is_refused(case):
    H, shape, *_ = case
    Z = tensor(shape)
    Z.flat[0] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite entries"):
        H(Z)


# The iterate


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_entries_norm_and_array_are_those_of_the_full_tensor(case, dtype):
    H, shape, *_ = case
    X = H(tensor(shape, dtype=dtype))
    full = X.full()
    indices = np.random.default_rng(0).integers(0, shape, (20, len(shape)))
    np.testing.assert_allclose(X.entries(indices), full[tuple(indices.T)], rtol=0, atol=1e-13)
    np.testing.assert_allclose(X.norm(), np.linalg.norm(full), rtol=1e-13)
    np.testing.assert_array_equal(np.asarray(X), full)
    with pytest.raises(ValueError, match="indices must be 0-based"):
        X.entries(np.full((1, len(shape)), 10**6))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_sums_and_multiples_are_exact_and_can_be_compressed(case, dtype):
    H, shape, *_ = case
    X, Y = H(tensor(shape, 1, dtype)), H(tensor(shape, 2, dtype))
    close(X + Y, X.full() + Y.full())
    close(X - Y, X.full() - Y.full())
    close(2.5 * X, 2.5 * X.full())
    close(-X, -X.full())
    twice = (X + X).compress(H.rank)
    assert twice.rank == H.rank
    close(twice, 2 * X.full())
    close((X + Y).compress(), X.full() + Y.full())
    with pytest.raises(TypeError, match="expected a"):
        X + X.full()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_project_is_an_orthogonal_projection_that_keeps_x(case, dtype):
    H, shape, *_ = case
    X, G, F = H(tensor(shape, 1, dtype)), tensor(shape, 2, dtype), tensor(shape, 3, dtype)
    P = X.project(G).full()
    close(X.project(P), P)
    close(X.project(X.full()), X.full())
    assert abs(np.vdot(P, F) - np.vdot(G, X.project(F).full())) < 1e-11


def test_layout_is_json_and_parts_make_the_same_tensor(case):
    X = truth_of(case)
    layout = json.loads(json.dumps(X.layout))
    again = type(X).from_parts(X.parts(), layout).validated()
    np.testing.assert_array_equal(again.full(), X.full())
    assert (again.rank, again.shape, again.layout) == (X.rank, X.shape, X.layout)


def test_repr_says_what_it_is(case):
    X = truth_of(case)
    assert repr(X).startswith(f"{type(X).__name__} of shape {X.shape}")
    assert str(X.rank) in repr(X)


def test_every_kind_of_array(case, kind):
    H, shape, *_ = case
    Z, G = tensor(shape), tensor(shape, seed=4)
    X, one = H(kind(Z)), H(Z)
    for part in X.parts().values():
        assert kind.owns(part)
    indices = np.zeros((2, len(shape)), dtype=int)
    for got, expected in [
        (X.full(), one.full()),
        (X.entries(indices), one.entries(indices)),
        (X.norm(), one.norm()),
        ((X + X).full(), 2 * one.full()),
        ((X + X).compress(H.rank).full(), 2 * one.full()),
        ((2 * X).full(), 2 * one.full()),
        (X.project(kind(G)).full(), one.project(G).full()),
    ]:
        np.testing.assert_allclose(to_numpy(got), expected, rtol=0, atol=1e-10)


# In the solvers


SOLVERS = {
    "TIHT": lambda H, m, step: lt.TIHT(thresholding=H, step=step),
    "TIHT, automatic steps": lambda H, m, step: lt.TIHT(thresholding=H),
    "StoTIHT": lambda H, m, step: lt.StoTIHT(thresholding=H, block_size=m // 2, step=step / 2),
    "StoTIHT, automatic steps": lambda H, m, step: lt.StoTIHT(thresholding=H),
    "random rows": lambda H, m, step: lt.StoTIHT(thresholding=H, sampler=lt.RandomRows(m // 2)),
    "shuffled": lambda H, m, step: lt.StoTIHT(thresholding=H, sampler=lt.Shuffled(m // 2)),
}


def make(case, seed=3, measure=lt.gaussian):
    X = truth_of(case, seed)
    A = measure(case[1], case[2], seed=seed)
    return lt.Problem(A, A.forward(X.full())), X


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_recover(case, name):
    H, _, m, step = case
    problem, X = make(case)
    result = lt.solve(problem, SOLVERS[name](H, m, step), X_true=X)
    assert result.success, result
    assert result.error < 1e-4
    assert result.rank == H.rank
    assert lt.metrics.relative_error(result.X, X) == pytest.approx(result.error)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_other_dtypes_are_recovered(case, dtype):
    H, shape, m, _ = case
    X = H(tensor(shape, 3, dtype))
    A = lt.gaussian(shape, m, seed=3, dtype=dtype)
    result = lt.recover(A, A.forward(X), H, tol=1e-4, X_true=X)
    assert result.success, result
    assert result.error < 1e-3
    assert result.X.dtype == dtype


def test_recover_takes_the_format_in_place_of_a_rank(case, tmp_path):
    H, shape, *_ = case
    problem, X = make(case)
    result = lt.recover(problem.A, problem.y, H, X_true=X)
    assert result.success
    assert result.degrees_of_freedom == H.degrees_of_freedom(shape)
    assert str(result.headline) in repr(result)
    result.plot()
    assert result._repr_html_()
    result.save(tmp_path / "x.npz")
    again = lt.load(tmp_path / "x.npz")
    np.testing.assert_array_equal(again.X.full(), result.X.full())
    assert type(again.X) is type(result.X)
    assert again.rank == result.rank
    resumed = lt.recover(problem.A, problem.y, H, start=again)
    assert resumed.success


@pytest.mark.parametrize("kind_of_A", ["sparse", "function", "scaled"])
def test_any_operator(case, kind_of_A):
    H, shape, _, _ = case
    problem, X = make(case)
    matrix = problem.A.matrix
    matrix = matrix.reshape(len(matrix), -1)
    if kind_of_A == "sparse":
        import scipy.sparse

        A = lt.as_operator(scipy.sparse.csr_array(matrix), shape)
    elif kind_of_A == "function":
        A = lt.FunctionOperator(
            lambda Z: matrix @ Z.reshape(-1),
            lambda v: (matrix.T @ v).reshape(shape),
            shape,
            len(matrix),
        )
    else:
        A = lt.scale(problem.A, 3.0)
    result = lt.recover(A, A.forward(X), H, solver="tiht")
    assert result.success
    close(result.X, X.full(), 1e-4)


def test_an_interrupted_run_is_resumed_bit_for_bit(case, tmp_path):
    H, *_ = case
    problem, _ = make(case)
    solver, rule = lt.StoTIHT(thresholding=H), lt.MaxEpochs(6)
    whole = lt.solve(problem, solver, stop=rule, seed=4)
    path = tmp_path / "run.ckpt"
    lt.solve(problem, solver, stop=rule, seed=4, checkpoint=path,
             callbacks=[lambda progress: progress.epoch >= 3])  # fmt: skip
    resumed = lt.solve(problem, solver, stop=rule, seed=4, checkpoint=path)
    np.testing.assert_array_equal(resumed.X.full(), whole.X.full())
    np.testing.assert_array_equal(resumed.history.residual, whole.history.residual)


def test_a_batch_of_problems_equals_its_problems_one_by_one(case):
    H, shape, m, _ = case
    X = H(tensor(shape, trials=3))
    A = lt.gaussian(shape, m, seed=0, trials=3)
    solver = lt.StoTIHT(thresholding=H)
    batch = lt.solve(lt.Problem(A, A.forward(X.full())), solver, seed=7)
    assert batch.success.all()
    for k in range(3):
        B = lt.gaussian(shape, m, seed=(0, k))
        alone = lt.solve(lt.Problem(B, B.forward(X.trial(k).full())), solver, seed=(7, k))
        assert batch.epochs[k] == alone.epochs
        close(batch.trial(k).X, alone.X.full(), 1e-9)


def test_other_units_give_the_same_tensor(case):
    H, *_ = case
    problem, _ = make(case)
    plain = lt.solve(problem, lt.TIHT(thresholding=H))
    large = lt.solve(lt.Problem(problem.A, 2.0**300 * problem.y), lt.TIHT(thresholding=H))
    close(large.X.shifted(-300), plain.X.full(), 1e-9)


def check_run(case, kind):
    H, shape, m, _ = case
    X = truth_of(case)
    matrix = np.random.default_rng(3).standard_normal((m, *shape))
    A = lt.DenseOperator(kind(matrix.reshape(m, -1)), shape)
    y = matrix.reshape(m, -1) @ X.full().reshape(-1)
    result = lt.recover(A, kind(y), H, max_seconds=np.inf)
    assert result.success
    assert kind.owns(result.X.full())
    close(result.X, X.full(), 1e-4)


def test_arrays_of_every_kind_in_a_run(case, kind):
    if kind.name in ("numpy", "readonly", "jax"):
        pytest.skip("a run makes arrays of its own; JAX compiles for seconds, in a slow test")
    check_run(case, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jax"], indirect=True)
def test_jax_arrays_in_a_run(case, kind):
    check_run(case, kind)


def test_few_measurements_are_no_success(case):
    H, shape, *_ = case
    X = truth_of(case)
    few = H.degrees_of_freedom(shape) - 1
    A = lt.gaussian(shape, few, seed=0)
    with pytest.warns(lt.UnderdeterminedWarning, match="cannot determine a tensor"):
        result = lt.recover(A, A.forward(X), H, max_epochs=100)
    assert result.status is lt.Status.UNDERDETERMINED


def test_a_solver_of_tucker_ranks_is_refused(case):
    H, *_ = case
    problem, _ = make(case)
    with pytest.raises(ValueError, match=r"works at Tucker ranks. Try solver=.auto."):
        lt.recover(problem.A, problem.y, H, solver="rgn")
    with pytest.raises(ValueError, match="has a thresholding of its own"):
        lt.recover(problem.A, problem.y, H, solver=lt.TIHT(thresholding=H))


def test_a_damaged_part_is_refused(case):
    X = truth_of(case)
    for name, part in X.parts().items():
        broken = np.array(part, dtype=np.float64)
        broken.flat[0] = np.nan
        with pytest.raises((ValueError, TypeError)):
            X.with_parts({**X.parts(), name: broken}).validated()


def test_it_is_a_frozen_record(case):
    H = case[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        H.rank = 3
    assert dataclasses.replace(H) == H
    assert hash(H) == hash(dataclasses.replace(H))
