"""Verdicts on tensors of other formats than Tucker."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.recovery.formats import smallest_gain

CASES = {
    "sparse": (lt.Sparse(6), (40,)),
    "rows": (lt.RowSparse(3), (12, 4)),
    "train": (lt.TensorTrain((2, 2)), (4, 4, 4)),
    "tree": (lt.HierarchicalTucker(2), (3, 3, 3, 3)),
    "tubal": (lt.Tubal(1), (5, 5, 4)),
}
pytestmark = pytest.mark.filterwarnings("ignore::lowtucker.UnderdeterminedWarning")


@pytest.fixture(params=CASES)
def case(request):
    H, shape = CASES[request.param]
    return H.for_shape(shape), shape


def test_repeated_rows_do_not_determine_a_tensor(case):
    """Half as many different rows as degrees of freedom, each four times."""
    H, shape = case
    X = lt.random_tensor(H, shape, seed=0)
    few = lt.gaussian(shape, H.degrees_of_freedom(shape) // 2, seed=50).matrix
    A = lt.DenseOperator(np.concatenate([few] * 4).reshape(-1, X.full().size), shape)
    result = lt.recover(A, A.forward(X), H)
    assert not result.success
    assert lt.metrics.relative_error(result.X, X) > 0.1


def test_a_slice_that_nothing_measures_is_not_known(case):
    H, shape = case
    X = lt.random_tensor(H, shape, seed=0)
    rows = lt.gaussian(shape, 4 * H.degrees_of_freedom(shape), seed=1).rows_in_memory().copy()
    rows[:, -(shape[0] // 3) :] = 0
    A = lt.DenseOperator(rows.reshape(len(rows), -1), shape)
    result = lt.recover(A, A.forward(X), H)
    assert lt.metrics.relative_error(result.X, X) > 0.1
    assert result.status is lt.Status.UNDERDETERMINED
    assert any(f.kind == "not determined" for f in result.findings)


def test_as_many_measurements_as_degrees_of_freedom_are_no_success(case):
    H, shape = case
    A = lt.gaussian(shape, H.degrees_of_freedom(shape), seed=3)
    assert not lt.recover(A, A.forward(lt.random_tensor(H, shape, seed=0)), H).success


def test_every_problem_of_a_batch_has_its_verdict(case):
    """The second of three has few different rows."""
    H, shape = case
    X = lt.random_tensor(H, shape, seed=0, trials=3)
    rows = lt.gaussian(shape, 4 * H.degrees_of_freedom(shape), seed=1, trials=3).matrix.copy()
    few = H.degrees_of_freedom(shape) // 2
    rows[1] = np.concatenate([rows[1, :few]] * 9)[: rows.shape[1]]
    A = lt.DenseOperator(rows, shape)
    result = lt.recover(A, A.forward(X), H)
    assert [bool(one) for one in result.success] == [True, False, True]
    for k in range(3):
        alone = lt.recover(A.trial(k), A.forward(X)[k], H, seed=(0, k))
        assert result.status[k] is alone.status
    np.testing.assert_allclose(result.X.full()[[0, 2]], X.full()[[0, 2]], atol=1e-4)


def test_the_smallest_gain_is_that_of_the_support():
    """Of a sparse vector the tangent space is known: the columns of its support."""
    x = lt.random_tensor(lt.Sparse(4), (12,), seed=1)
    A = lt.gaussian((12,), 9, seed=2)
    values = np.linalg.svd(A.matrix[:, x.places], compute_uv=False)
    found = smallest_gain(lt.Problem(A, A.forward(x)), x, lt.Sparse(4).for_shape((12,)), 0)
    assert found == pytest.approx(values[-1] / values[0], rel=1e-3)


def test_the_smallest_gain_of_a_train_is_that_of_its_tangent_space():
    """Matrices as trains of two: the tangent space by its projection, in plain NumPy."""
    H = lt.TensorTrain((2,)).for_shape((5, 6))
    X = lt.random_tensor(H, (5, 6), seed=1)
    A = lt.gaussian((5, 6), 25, seed=2)
    U, _, V = np.linalg.svd(X.full())
    P, Q = U[:, :2] @ U[:, :2].T, V[:2].T @ V[:2]
    eye = np.eye(30).reshape(30, 5, 6)
    tangent = np.array([P @ E + E @ Q - P @ E @ Q for E in eye]).reshape(30, 30)
    basis = np.linalg.svd(tangent)[0][:, :18]
    values = np.linalg.svd(A.matrix @ basis, compute_uv=False)
    found = smallest_gain(lt.Problem(A, A.forward(X)), X, H, 0)
    assert found == pytest.approx(values[-1] / values[0], rel=1e-3)


def test_complex_measurements_of_real_tensors_are_two_equations_each():
    """Fewer of them than degrees of freedom, with twice as many equations."""
    H = lt.TensorTrain((2, 2)).for_shape((4, 4, 4))
    X = lt.random_tensor(H, (4, 4, 4), seed=0)
    rows = lt.gaussian((4, 4, 4), 23, seed=1, dtype=complex).matrix
    A = lt.DenseOperator(rows, (4, 4, 4), dtype=np.float64)
    assert H.degrees_of_freedom((4, 4, 4)) > 23
    assert smallest_gain(lt.Problem(A, A.forward(X)), X, H, 0) > 0.01


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_is_examined_too(dtype):
    H = lt.TensorTrain((2, 2)).for_shape((4, 4, 4))
    X = lt.random_tensor(H, (4, 4, 4), seed=0, dtype=dtype)
    A = lt.gaussian((4, 4, 4), 60, seed=1, dtype=dtype)
    result = lt.recover(A, A.forward(X), H, tol=1e-4)
    assert result.success
    few = lt.DenseOperator(np.concatenate([A.matrix[:12]] * 5), (4, 4, 4))
    assert not lt.recover(few, few.forward(X), H, tol=1e-4).success


def test_large_problems_are_not_examined():
    H = lt.TensorTrain((4, 4)).for_shape((40, 40, 40))
    X = lt.random_tensor(H, (40, 40, 40), seed=0)
    A = lt.entries((40, 40, 40), np.zeros((3, 3), dtype=int))
    assert smallest_gain(lt.Problem(A, np.ones(3)), X, H, 0) is None


def test_sparse_entries_that_were_not_sampled_are_unknown():
    X = lt.random_tensor(lt.Sparse(20), (6, 6, 6), seed=0).full()
    holes = np.random.default_rng(0).random(X.shape) < 0.5
    result = lt.complete(np.where(holes, np.nan, X), lt.Sparse(20))
    assert result.status is lt.Status.UNDERDETERMINED
    A = lt.entries(X.shape, np.argwhere(~holes))
    assert not lt.recover(A, X[~holes], lt.Sparse(20)).success
    seen = int((X[~holes] != 0).sum())
    assert lt.recover(A, X[~holes], lt.Sparse(seen)).success  # there are no others


@pytest.mark.slow
def test_two_completions_that_differ_elsewhere_are_no_success():
    """A fit that reaches the tolerance, and predicts held-out samples badly."""
    i, j, t = np.meshgrid(range(20), range(20), range(8), indexing="ij")
    W = np.exp(-0.5 * (((t - np.rint(0.7 * i) - np.rint(0.4 * j)) + 4) % 8 - 4) ** 2)
    holes = np.random.default_rng(0).random(W.shape) < 0.6
    result = lt.complete(np.where(holes, np.nan, W), lt.Tubal(3), max_epochs=2000)
    error = np.linalg.norm((result.X.full() - W)[holes]) / np.linalg.norm(W[holes])
    assert error > 0.1
    assert not result.success


@pytest.mark.parametrize(("s", "m"), [(10, 60), (20, 100)])
def test_noise_of_unknown_size_is_told_by_another_fit(s, m):
    rng = np.random.default_rng(0)
    x = np.zeros(256)
    x[rng.choice(256, s, replace=False)] = rng.standard_normal(s)
    A = lt.gaussian((256,), m, seed=0)
    y = A.forward(x)
    noise = rng.standard_normal(m)
    y = y + 0.05 * np.linalg.norm(y) * noise / np.linalg.norm(noise)
    result = lt.recover(A, y, lt.Sparse(s), X_true=x)
    assert result.status is lt.Status.APPROXIMATED
    assert result.error < 0.15
    low, high = result.error_interval
    assert low < result.error < high


def test_advice_keeps_the_format():
    X = lt.random_tensor(lt.Sparse(12), (125,), seed=0)
    stalled, few = (
        lt.recover(A, A.forward(X), lt.Sparse(12))
        for A in (lt.gaussian((125,), m, seed=0) for m in (30, 10))
    )
    assert "Try: lt.recover(A, y, rank=lt.Sparse(rank=12), seed=1)" in stalled.advice
    assert "Take about 81 measurements" in few.advice  # 2 s log(e N / s), not 2.8 s
    assert "Try: lt.recover(A, y)" not in few.advice


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda A, y: lt.recover(A, y, lt.Sparse), TypeError, r"Sparse is a class.*Try lowtucker"),
        (lambda A, y: lt.recover(A, y, lt.HOSVD), TypeError, r"got the class HOSVD. Try"),
        (
            lambda A, y: lt.recover(A, y, 5, solver=lt.TIHT(thresholding=lt.Sparse)),
            TypeError,
            r"Sparse is a class, and has no rank of its own. Try lowtucker.Sparse\(3\)",
        ),
        (lambda A, y: lt.degrees_of_freedom((5, 5), lt.Sparse), TypeError, "got the class Sparse"),
        (lambda A, y: lt.Tubal(2).degrees_of_freedom((5, 5)), ValueError, "three modes, got shape"),
        (lambda A, y: lt.theory.eta(lt.TensorTrain(2)), ValueError, "number of modes"),
        (
            lambda A, y: lt.NuclearNorm().certificate(lt.Problem(A, y), 3),
            TypeError,
            "state must be the state of a result, got int. Try result.state",
        ),
    ],
)
def test_bad_calls(call, error, message):
    A = lt.gaussian((5, 5, 5), 40)
    with pytest.raises(error, match=message):
        call(A, np.ones(40))
