"""What has no meaning is refused by name, before any work: the problem."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt

SHAPE, M = (3, 4), 5
A = lt.gaussian(SHAPE, M, seed=1)
STACK = lt.gaussian(SHAPE, M, seed=1, trials=3)
Y = np.arange(1.0, 6.0)
YS = np.ones((3, M))
X = np.ones(SHAPE)

bad_problems = {
    "A-matrix": (
        lambda: lt.Problem(np.ones((5, 12)), Y),
        TypeError,
        "A must be a MeasurementOperator, got ndarray.*as_operator",
    ),
    "A-None": (lambda: lt.Problem(None, Y), TypeError, "A must be a MeasurementOperator, got None"),
    "y-None": (
        lambda: lt.Problem(A, None),
        TypeError,
        "y must be an array of numbers, got NoneType",
    ),
    "y-string": (lambda: lt.Problem(A, "y"), TypeError, "y must be an array of numbers, got str"),
    "y-objects": (
        lambda: lt.Problem(A, np.array([None] * M)),
        TypeError,
        "y must be an array of numbers, got dtype object",
    ),
    "y-ragged": (lambda: lt.Problem(A, [[1.0], [1.0, 2.0]]), ValueError, "y must be .*ragged list"),
    "y-number": (lambda: lt.Problem(A, 1.0), ValueError, r"y must have one entry .*got shape \(\)"),
    "y-short": (
        lambda: lt.Problem(A, np.ones(4)),
        ValueError,
        r"y must have one entry for each of the 5 measurements, got shape \(4,\)",
    ),
    "y-column": (
        lambda: lt.Problem(STACK, np.ones((M, 1))),
        ValueError,
        r"y must have one entry for each of the 5 measurements, got shape \(5, 1\)",
    ),
    "y-empty": (lambda: lt.Problem(A, []), ValueError, r"y must have one entry .*got shape \(0,\)"),
    "y-nan": (
        lambda: lt.Problem(A, [1.0, 2.0, np.nan, np.inf, 0.0]),
        ValueError,
        r"y has NaN or infinite entries, the first at 2.*A\[keep\].*A\.restrict\(keep\).*weight 0",
    ),
    "y-inf": (
        lambda: lt.Problem(A, [1.0, np.inf, -np.inf, 0.0, 0.0]),
        ValueError,
        "y has NaN or infinite entries, the first at 1",
    ),
    "y-complex-nan": (
        lambda: lt.Problem(lt.gaussian(SHAPE, M, dtype=complex), [complex(1, np.inf), 1, 1, 1, 1]),
        ValueError,
        "y has NaN or infinite entries, the first at 0",
    ),
    "y-nan-in-a-stack": (
        lambda: lt.Problem(STACK, np.where(np.arange(15).reshape(3, 5) == 8, np.nan, 1.0)),
        ValueError,
        "y has NaN or infinite entries, the first at 3",
    ),
    "y-one-for-a-stack": (
        lambda: lt.Problem(STACK, Y),
        ValueError,
        r"y must have shape \(3, 5\), one row for each problem of the batch A, got \(5,\)",
    ),
    "y-other-stack": (
        lambda: lt.Problem(STACK, np.ones((2, M))),
        ValueError,
        r"y must have shape \(3, 5\).*got \(2, 5\)",
    ),
    "w-short": (
        lambda: lt.Problem(A, Y, np.ones(4)),
        ValueError,
        r"weights must have one entry for each of the 5 measurements, got shape \(4,\)",
    ),
    "w-number": (
        lambda: lt.Problem(A, Y, 2.0),
        ValueError,
        r"weights must have one entry .*got shape \(\)",
    ),
    "w-string": (lambda: lt.Problem(A, Y, "w"), TypeError, "weights must be an array of numbers"),
    "w-nan": (
        lambda: lt.Problem(A, Y, [1, 1, 1, 1, np.nan]),
        ValueError,
        "weights has NaN or infinite entries, the first at 4",
    ),
    "w-inf": (
        lambda: lt.Problem(A, Y, [1, np.inf, 1, 1, 1]),
        ValueError,
        "weights has NaN or infinite entries, the first at 1",
    ),
    "w-negative": (
        lambda: lt.Problem(A, Y, [1, 1, -1, 1, 1]),
        ValueError,
        "weights must be real, not negative, and not all zero",
    ),
    "w-zero": (lambda: lt.Problem(A, Y, np.zeros(M)), ValueError, "weights must be .*not all zero"),
    "w-complex": (lambda: lt.Problem(A, Y, 1j * np.ones(M)), ValueError, "weights must be real"),
    "w-stack-for-one": (
        lambda: lt.Problem(A, Y, np.ones((7, M))),
        ValueError,
        r"weights must have shape .*got .*\(7, 5\)",
    ),
    "w-other-stack": (
        lambda: lt.Problem(STACK, YS, np.ones((2, M))),
        ValueError,
        r"weights must have shape .*got .*\(2, 5\)",
    ),
}


@pytest.mark.parametrize("name", bad_problems)
def test_parts_that_do_not_make_a_problem_are_refused_by_name(name):
    make, error, message = bad_problems[name]
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    "method", ["residual", "relative_residual", "cost", "objective", "gradient"]
)
@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (None, TypeError, "X must be an array of numbers, got NoneType"),
        ("x", TypeError, "X must be an array of numbers, got str"),
        (np.array([None]), TypeError, "X must be an array of numbers, got dtype object"),
        (np.ones((4, 3)), ValueError, r"expects X of shape .*got \(4, 3\)"),
        (np.ones(12), ValueError, r"expects X of shape .*got \(12,\)"),
        (lt.random_tucker((4, 3), (1, 1)), ValueError, r"expects X of shape .*got \(4, 3\)"),
    ],
    ids=["None", "string", "objects", "shape", "vector", "tucker"],
)
def test_tensors_that_do_not_fit_the_problem_are_refused(method, given, error, message):
    with pytest.raises(error, match=message):
        getattr(lt.Problem(A, Y), method)(given)


bad_rows = {
    "None": (None, TypeError, "rows must be .*NoneType"),
    "string": ("rows", TypeError, "rows must be .*str"),
    "number": (3, TypeError, "rows must be a slice, a 1-D integer array"),
    "floats": ([0.5], TypeError, "rows must be a slice, a 1-D integer array"),
    "beyond": ([5], ValueError, "rows must be from 0 to 4, got values from 5 to 5"),
    "negative": ([-1, 2], ValueError, "rows must be from 0 to 4, got values from -1 to 2"),
    "none": (slice(2, 2), ValueError, "rows selects none of the 5 measurements"),
}


@pytest.mark.parametrize("given", bad_rows)
@pytest.mark.parametrize("problem", [lt.Problem(A, Y), lt.Problem(STACK, YS)], ids=["one", "stack"])
def test_blocks_of_rows_that_do_not_exist_are_refused(problem, given):
    rows, error, message = bad_rows[given]
    with pytest.raises(error, match=message):
        problem.block(rows)


def test_a_block_of_a_batch_has_one_entry_per_problem():
    with pytest.raises(ValueError, match="one entry for each of the 3 problems, got 2"):
        lt.Problem(STACK, YS).block((slice(0, 1), slice(0, 1)))


def test_torch_and_numpy_are_not_mixed():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"y is a torch .*DenseOperator holds NumPy"):
        lt.Problem(A, torch.ones(M))
    with pytest.raises(TypeError, match=r"weights is a torch .*DenseOperator holds NumPy"):
        lt.Problem(A, Y, torch.ones(M))


def test_y_and_weights_are_not_changed_and_lists_are_taken():
    y, w = [1, 2, 3, 4, 5], [1, 0, 1, 2, 1]
    problem = lt.Problem(A, y, w)
    assert problem.y.dtype == problem.weights.dtype == np.float64
    assert problem.objective(X).shape == ()
    assert (y, w) == ([1, 2, 3, 4, 5], [1, 0, 1, 2, 1])


def test_zero_data_have_the_absolute_residual():
    problem = lt.Problem(A, np.zeros(M))
    assert problem.relative_residual(X) == pytest.approx(np.linalg.norm(A.forward(X)))


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 3.0, 4.0, 5.0]], ids=["plain", "weighted"])
def test_single_precision_stays_single_precision(weights):
    """Whatever the precision of y and of the weights: the operator's decides."""
    single = lt.gaussian(SHAPE, M, seed=1, dtype=np.float32)
    for y in (Y.astype(np.float32), Y):
        problem = lt.Problem(single, y, weights)
        X32 = X.astype(np.float32)
        residual, gradient = problem.residual_and_gradient(X32)
        for value in (residual, gradient, problem.residual(X32), problem.cost(X32)):
            assert value.dtype == np.float32


def test_a_column_is_a_vector():
    problem = lt.Problem(A, Y[:, None], np.arange(5.0)[:, None])
    np.testing.assert_array_equal(problem.y, Y)
    np.testing.assert_array_equal(problem.weights, np.arange(5.0))
    one_row = lt.gaussian(SHAPE, 1, seed=1)
    assert lt.Problem(one_row, np.ones((1, 1))).batch_shape == (1,), "a batch of one problem"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_are_not_finite_may_have_the_weight_zero(bad):
    y, w = Y.copy(), np.array([1.0, 1.0, 0.0, 2.0, 1.0])
    y[2] = bad
    problem, clean = lt.Problem(A, y, w), lt.Problem(A, np.where(w > 0, Y, 0), w)
    np.testing.assert_array_equal(problem.y, clean.y)
    np.testing.assert_array_equal(problem.gradient(X), clean.gradient(X))
    assert problem.relative_residual(X) == clean.relative_residual(X)
    assert not np.isfinite(y[2]), "the data that were given are not changed"
    y[3] = bad
    with pytest.raises(ValueError, match="y has NaN or infinite entries, the first at 3"):
        lt.Problem(A, y, w)
    stacked, ws = np.tile(Y, (3, 1)), np.ones((3, M))
    stacked[1, 4], ws[1, 4] = bad, 0
    assert np.isfinite(lt.Problem(STACK, stacked, ws).gradient(np.stack([X] * 3))).all()


def test_equations_are_real_ones_that_count():
    w = np.array([1.0, 0.0, 2.0, 0.0, 1.0])
    assert lt.Problem(A, Y).equations == 5
    assert lt.Problem(A, Y, w).equations == 3
    assert lt.Problem(A, Y + 1j).equations == 10, "complex data of real tensors"
    assert lt.Problem(A, Y + 1j, w).equations == 6
    assert lt.Problem(lt.gaussian(SHAPE, M, dtype=complex), Y + 1j).equations == 5
    per_trial = np.stack([w, np.ones(M), np.eye(M)[0]])
    assert lt.Problem(STACK, YS, per_trial).equations.tolist() == [3, 5, 1]
    blocks = (slice(0, 3), slice(3, 5), slice(0, 3))
    assert lt.Problem(STACK, YS).block(blocks).equations.tolist() == [3, 2, 3]
    assert lt.Problem(STACK, YS, w).block(blocks).equations.tolist() == [2, 1, 2]


def test_the_norm_of_y_is_weighted_and_computed_once():
    w = np.arange(5.0)
    problem = lt.Problem(A, Y, w)
    assert problem.y_norm == pytest.approx(np.sqrt((w * Y**2).sum()))
    assert problem.y_norm is problem.y_norm
    block = problem.block(slice(1, 3))
    assert block.y_norm == pytest.approx(np.sqrt((w * Y**2)[1:3].sum()))
    assert lt.Problem(STACK, YS).select([2, 0]).y_norm.shape == (2,)
