"""Array kinds: results keep kind, device and dtype, and match NumPy."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import lowtucker as lt
from conftest import KINDS
from lowtucker import metrics
from lowtucker._array import to_numpy

SHAPE, RANK, M = (4, 5, 3), (2, 3, 2), 9
DTYPES = ["float64", "float32", "complex64", "complex128"]
REAL = {"float32": "float32", "float64": "float64", "complex64": "float32", "complex128": "float64"}


def every(jax=True, **parameters):
    """Every kind with every combination; for JAX, which compiles each, only the first."""
    cases = []
    for name in KINDS:
        combinations = list(itertools.product(*(values.items() for values in parameters.values())))
        for combination in combinations[: (int(jax) if name == "jax" else None)]:
            values = [value for _, value in combination]
            cases.append(
                pytest.param(name, *values, id="-".join([name, *(i for i, _ in combination)]))
            )
    return pytest.mark.parametrize(("kind", *parameters), cases, indirect=["kind"])


def named(*values):
    return {str(value): value for value in values}


EVERY_DTYPE = named(*DTYPES)
WEIGHTED = {"unweighted": False, "weighted": True}
TRIALS = {"one": None, "batch": 2}
every_dtype = every(dtype=EVERY_DTYPE)


def draw(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        X = X + 1j * rng.standard_normal(shape)
    return X.astype(dtype)


def name_of(dtype):
    return str(dtype).rsplit(".", maxsplit=1)[-1]


def device_of(array):
    return str(getattr(array, "device", "cpu"))


def tolerance(dtype):
    return 2e-4 if REAL[dtype] == "float32" else 1e-11


def agrees(kind, got, expected, dtype=None):
    """Check kind, device and dtype of the input, and the values of NumPy."""
    expected = np.asarray(expected)
    wanted = expected.dtype.name if dtype is None else dtype
    # a reduction of a NumPy array to one number is a NumPy scalar
    scalar = kind.module is np and expected.ndim == 0 and isinstance(got, np.generic)
    assert scalar or kind.owns(got), f"{type(got)} is not a {kind.name} array"
    assert name_of(got.dtype) == wanted
    assert device_of(got) == device_of(kind(np.zeros(1)))
    assert tuple(got.shape) == expected.shape
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(
        to_numpy(got) if not scalar else got, expected, rtol=0, atol=tolerance(wanted) * scale
    )


def tucker_of(kind, X):
    return lt.TuckerTensor(kind(X.core), [kind(U) for U in X.factors])


def agrees_tucker(kind, got, expected, dtype):
    for part in (got.core, *got.factors):
        assert kind.owns(part)
        assert name_of(part.dtype) == dtype
        assert device_of(part) == device_of(kind(np.zeros(1)))
    assert (got.batch_shape, got.shape, got.rank) == (
        expected.batch_shape,
        expected.shape,
        expected.rank,
    )
    agrees(kind, got.full(), expected.full(), dtype)


# Algebra


@every_dtype
def test_unfold_fold_and_products(kind, dtype):
    X, U = draw(SHAPE, dtype), draw((2, 5), dtype, 1)
    for mode in range(3):
        agrees(kind, lt.unfold(kind(X), mode), lt.unfold(X, mode))
        M = lt.unfold(X, mode)
        agrees(kind, lt.fold(kind(M), mode, SHAPE), X)
    agrees(kind, lt.mode_product(kind(X), kind(U), 1), lt.mode_product(X, U, 1))
    matrices = [None, U, draw((3, 3), dtype, 2)]
    agrees(
        kind,
        lt.multi_mode_product(kind(X), [V if V is None else kind(V) for V in matrices]),
        lt.multi_mode_product(X, matrices),
    )
    tall = [draw((n, 2), dtype, n) for n in SHAPE]
    agrees(
        kind,
        lt.multi_mode_product(kind(X), [kind(V) for V in tall], transpose=True),
        lt.multi_mode_product(X, tall, transpose=True),
    )


@every_dtype
def test_batches_of_products(kind, dtype):
    X, U = draw((2, *SHAPE), dtype), draw((2, 2, 5), dtype, 1)
    agrees(kind, lt.mode_product(kind(X), kind(U), 1), lt.mode_product(X, U, 1))
    agrees(kind, lt.unfold(kind(X), 2, batch_ndim=1), lt.unfold(X, 2, batch_ndim=1))


@every_dtype
def test_inner_and_norm(kind, dtype):
    X, Y = draw((2, *SHAPE), dtype), draw((2, *SHAPE), dtype, 1)
    for b in (0, 1):
        agrees(kind, lt.inner(kind(X), kind(Y), batch_ndim=b), lt.inner(X, Y, batch_ndim=b))
        agrees(kind, lt.norm(kind(X), batch_ndim=b), lt.norm(X, batch_ndim=b), REAL[dtype])
    agrees(kind, lt.norm(kind(X), batch_ndim=4), np.abs(X), REAL[dtype])


def test_norm_of_large_and_small_numbers(kind):
    X = draw(SHAPE, "float64")
    for scale in (1e200, 1e-200):
        got = to_numpy(lt.norm(kind(X * scale)))
        assert float(got) / scale == pytest.approx(np.linalg.norm(X), rel=1e-12)


@every(integers=named("int64", "uint8", "bool"))
def test_integers_become_float64(kind, integers):
    X = np.random.default_rng(0).integers(0, 2, SHAPE).astype(integers)
    got = lt.hosvd(kind(X), RANK)
    assert name_of(got.dtype) == "float64"
    agrees(kind, got.full(), lt.hosvd(X, RANK).full())
    assert float(lt.norm(kind(X))) == pytest.approx(np.linalg.norm(X.astype(float)))
    assert float(lt.inner(kind(X), kind(X))) == pytest.approx((X.astype(float) ** 2).sum())


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_jax_dtypes_are_kept(dtype):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    X = jax.numpy.asarray(draw(SHAPE, dtype))
    assert lt.unfold(X, 1).dtype == dtype
    assert lt.norm(X).dtype == REAL[dtype]
    assert lt.mode_product(X, X[0, :, :].T, 1).dtype == dtype
    A = lt.DenseOperator(X)
    assert A.forward(X[0, :, :]).dtype == A.adjoint(X[:, 0, 0]).dtype == dtype
    assert lt.Problem(A, X[:, 0, 0]).gradient(X[0, :, :]).dtype == dtype


# The Tucker format


@every(dtype=EVERY_DTYPE, trials=TRIALS)
def test_full_norm_and_entries(kind, dtype, trials):
    X = lt.random_tucker(SHAPE, RANK, 1, dtype=dtype, trials=trials)
    Z = tucker_of(kind, X)
    agrees(kind, Z.full(), X.full(), dtype)
    agrees(kind, Z.norm(), X.norm(), REAL[dtype])
    index = np.array([[0, 0, 0], [3, 4, 2], [1, 0, 2]])
    for given in (index, kind(index), index.tolist()):
        agrees(kind, Z.entries(given), X.entries(index), dtype)


@every(dtype=EVERY_DTYPE, trials=TRIALS)
def test_sum_difference_and_negative(kind, dtype, trials):
    X = lt.random_tucker(SHAPE, RANK, 1, dtype=dtype, trials=trials)
    Y = lt.random_tucker(SHAPE, (1, 2, 2), 2, dtype=dtype, trials=trials)
    V, W = tucker_of(kind, X), tucker_of(kind, Y)
    agrees_tucker(kind, V + W, X + Y, dtype)
    agrees_tucker(kind, V - W, X - Y, dtype)
    agrees_tucker(kind, -V, -X, dtype)
    agrees(kind, V.inner(W), X.inner(Y), dtype)


@every(
    dtype=EVERY_DTYPE,
    number={"float": -0.5, "int": 2, "numpy": np.float64(3.0)},
    trials=TRIALS,
)
def test_product_with_a_number(kind, dtype, number, trials):
    X = lt.random_tucker(SHAPE, RANK, 1, dtype=dtype, trials=trials)
    Z = tucker_of(kind, X)
    expected = (X.full() * float(number)).astype(dtype)
    for product in (Z * number, number * Z):
        assert name_of(product.core.dtype) == dtype
        agrees(kind, product.full(), expected, dtype)


@every_dtype
def test_product_with_an_array_of_its_own_kind(kind, dtype):
    X = lt.random_tucker(SHAPE, RANK, 1, dtype=dtype, trials=2)
    numbers = np.array([2.0, -1.0], dtype=REAL[dtype])
    got = tucker_of(kind, X) * kind(numbers)
    assert name_of(got.core.dtype) == dtype
    agrees(kind, got.full(), X.full() * numbers[:, None, None, None], dtype)


@every_dtype
def test_compress_and_from_factors(kind, dtype):
    X = lt.random_tucker(SHAPE, RANK, 1, dtype=dtype)
    Z = tucker_of(kind, X)
    agrees_tucker(kind, (Z + Z).compress(RANK), (X + X).compress(RANK), dtype)
    agrees(kind, (Z + Z).compress().full(), (X + X).full(), dtype)
    factors = [draw((n, r), dtype, n) for n, r in zip(SHAPE, RANK, strict=True)]
    core = draw(RANK, dtype)
    agrees_tucker(
        kind,
        lt.TuckerTensor.from_factors(kind(core), [kind(U) for U in factors]),
        lt.TuckerTensor.from_factors(core, factors),
        dtype,
    )


# Truncations


# tests/contracts/test_thresholdings.py covers JAX
@every(
    jax=False,
    dtype=EVERY_DTYPE,
    truncate={"hosvd": lt.hosvd, "sthosvd": lt.sthosvd, "hooi": lt.hooi},
    batch={"one": (), "batch": (3,)},
)
def test_truncations(kind, dtype, truncate, batch):
    noise = 0.01 * draw((*batch, *SHAPE), dtype, 5)
    X = lt.random_tucker(SHAPE, RANK, 1, dtype=dtype).full() + noise
    X = X.astype(dtype)
    agrees_tucker(kind, truncate(kind(X), RANK), truncate(X, RANK), dtype)
    Z = lt.hosvd(X, (3, 4, 3))
    agrees_tucker(kind, truncate(tucker_of(kind, Z), RANK), truncate(Z, RANK), dtype)


def test_hosvd_of_a_batch_with_badly_scaled_items(kind):
    """Mix items that need the SVD with items that do not."""
    batch = lt.random_tucker((6, 7, 8), (2, 2, 2), 1, trials=4)
    core = np.zeros((4, 2, 2, 2))
    core[:, 0, 0, 0] = 1.0
    core[:, 1, 1, 1] = [0.9, 1e-7, 0.8, 1e-10]
    X = lt.TuckerTensor(core, batch.factors).full()
    got = lt.hosvd(kind(X), (2, 2, 2))
    assert kind.owns(got.core)
    np.testing.assert_allclose(to_numpy(got.full()), X, rtol=0, atol=1e-12)


@every_dtype
def test_spectra_and_ranks(kind, dtype):
    X = lt.random_tucker(SHAPE, RANK, 1, dtype=dtype).full()
    for mine, theirs in zip(lt.spectra(kind(X)).values, lt.spectra(X).values, strict=True):
        agrees(kind, mine, theirs, REAL[dtype])
    assert lt.multilinear_rank(kind(X)) == lt.multilinear_rank(X) == RANK
    assert lt.spectra(kind(X)).energy((1, 1, 1)) == pytest.approx(
        lt.spectra(X).energy((1, 1, 1)), rel=1e-5
    )
    assert "mode 2" in repr(lt.spectra(kind(X)))


# Operators and problems


def operators(kind, dtype, order="C", trials=None):
    batch = () if trials is None else (trials,)
    matrix = draw((*batch, M, 60), dtype, 3)
    return lt.DenseOperator(kind(matrix), SHAPE, order=order), lt.DenseOperator(
        matrix, SHAPE, order=order
    )


@every(dtype=EVERY_DTYPE, order=named("F", "C"))
def test_dense_operator(kind, dtype, order):
    A, B = operators(kind, dtype, order)
    X, v = draw(SHAPE, dtype, 4), draw((M,), dtype, 5)
    agrees(kind, A.forward(kind(X)), B.forward(X), dtype)
    agrees(kind, A.adjoint(kind(v)), B.adjoint(v), dtype)
    agrees(kind, A.row_norms(), B.row_norms(), REAL[dtype])
    Z = lt.random_tucker(SHAPE, RANK, 1, dtype=dtype)
    agrees(kind, A.forward(tucker_of(kind, Z)), B.forward(Z), dtype)
    weights = np.linspace(0.5, 2, M).astype(REAL[dtype])
    for w in (None, weights):
        got = A.misfit(kind(X), kind(v), None if w is None else kind(w))
        for mine, theirs in zip(got, B.misfit(X, v, w), strict=True):
            agrees(kind, mine, theirs, dtype)


ROWS = {
    "index": np.array([8, 0, 0, 3]),
    "slice": slice(2, 7),
    "step": slice(0, 9, 3),
    "backwards": slice(None, None, -1),
    "mask": np.arange(M) % 2 == 0,
}


@every(rows=ROWS)
def test_restriction(kind, rows):
    A, B = operators(kind, "float64")
    X = draw(SHAPE, "float64", 4)
    agrees(kind, A.restrict(rows).forward(kind(X)), B.restrict(rows).forward(X))
    v = draw((B.restrict(rows).m,), "float64", 6)
    agrees(kind, A.restrict(rows).adjoint(kind(v)), B.restrict(rows).adjoint(v))
    if not isinstance(rows, slice):
        agrees(kind, A.restrict(kind(rows)).forward(kind(X)), B.restrict(rows).forward(X))


def test_real_matrix_with_complex_tensors_and_complex_matrix_with_real_tensors(kind):
    X, v = draw(SHAPE, "complex128", 4), draw((M,), "complex128", 5)
    real_matrix, complex_matrix = draw((M, 60), "float64", 3), draw((M, 60), "complex128", 3)
    complex_type, real_type = kind(v).dtype, kind(v.real.copy()).dtype
    A = lt.DenseOperator(kind(real_matrix), SHAPE, dtype=complex_type)
    B = lt.DenseOperator(real_matrix, SHAPE, dtype=np.dtype(complex))
    agrees(kind, A.forward(kind(X)), B.forward(X))
    agrees(kind, A.adjoint(kind(v)), B.adjoint(v))
    A = lt.DenseOperator(kind(complex_matrix), SHAPE, dtype=real_type)
    B = lt.DenseOperator(complex_matrix, SHAPE, dtype=np.dtype(float))
    agrees(kind, A.forward(kind(X.real)), B.forward(X.real))
    agrees(kind, A.adjoint(kind(v)), B.adjoint(v))
    for mine, theirs in zip(A.misfit(kind(X.real), kind(v)), B.misfit(X.real, v), strict=True):
        agrees(kind, mine, theirs)


@every_dtype
def test_checks_and_operator_norm(kind, dtype):
    A, B = operators(kind, dtype)
    assert lt.check_adjoint(A) <= tolerance(dtype)
    assert lt.check_restriction(A) <= tolerance(dtype)
    assert lt.operator_norm(A) == pytest.approx(lt.operator_norm(B), rel=1e-5)
    large = draw((40, 60), dtype, 7)
    norm = lt.operator_norm(lt.DenseOperator(kind(large), SHAPE))
    assert norm == pytest.approx(np.linalg.norm(large.astype(complex), 2), rel=1e-5)


@every_dtype
def test_to_scipy_uses_numpy(kind, dtype):
    A, B = operators(kind, dtype)
    x, v = draw((60,), dtype, 4), draw((M,), dtype, 5)
    S = lt.to_scipy(A)
    assert S.dtype == np.dtype(dtype)
    np.testing.assert_allclose(S @ x, B.matrix @ x, rtol=0, atol=100 * tolerance(dtype))
    np.testing.assert_allclose(
        S.rmatvec(v), B.matrix.conj().T @ v, rtol=0, atol=100 * tolerance(dtype)
    )


@every(dtype=EVERY_DTYPE, weighted=WEIGHTED)
def test_problem(kind, dtype, weighted):
    A, B = operators(kind, dtype)
    X, y = draw(SHAPE, dtype, 4), draw((M,), dtype, 5)
    w = np.linspace(0.5, 2, M).astype(REAL[dtype]) if weighted else None
    mine, theirs = lt.Problem(A, kind(y), None if w is None else kind(w)), lt.Problem(B, y, w)
    rows = [ROWS["index"]] if kind.name == "jax" else ROWS.values()  # JAX compiles each
    for P, Q in [(mine, theirs)] + [(mine.block(r), theirs.block(r)) for r in rows]:
        agrees(kind, P.residual(kind(X)), Q.residual(X), dtype)
        agrees(kind, P.gradient(kind(X)), Q.gradient(X), dtype)
        for method in ("cost", "objective", "relative_residual"):
            agrees(kind, getattr(P, method)(kind(X)), getattr(Q, method)(X), REAL[dtype])


@every(
    dtype=EVERY_DTYPE,
    rows={
        "lengths-differ": (slice(0, 4), slice(7, 9), np.array([3, 3, 8])),
        "one-length": (slice(0, 4), slice(5, 9), slice(2, 6)),
        "shared": slice(1, 6),
    },
    weighted=WEIGHTED,
)
def test_batch_of_problems(kind, dtype, weighted, rows):
    A, B = operators(kind, dtype, trials=3)
    X, y = draw((3, *SHAPE), dtype, 4), draw((3, M), dtype, 5)
    w = np.linspace(0.5, 2, M).astype(REAL[dtype]) if weighted else None
    mine, theirs = lt.Problem(A, kind(y), None if w is None else kind(w)), lt.Problem(B, y, w)
    for P, Q in ((mine, theirs), (mine.block(rows), theirs.block(rows))):
        agrees(kind, P.residual(kind(X)), Q.residual(X), dtype)
        agrees(kind, P.gradient(kind(X)), Q.gradient(X), dtype)
        agrees(kind, P.cost(kind(X)), Q.cost(X), REAL[dtype])
        agrees(kind, P.objective(kind(X)), Q.objective(X), REAL[dtype])


def test_partition_by_norms_draws_the_same_blocks(kind):
    A, B = operators(kind, "float64")
    y = draw((M,), "float64", 5)
    mine = lt.Partition(4, p="norms").bind(lt.Problem(A, kind(y)))
    theirs = lt.Partition(4, p="norms").bind(lt.Problem(B, y))
    for t in range(10):
        assert mine.draw(t).rows == theirs.draw(t).rows
        assert mine.draw(t).weight == pytest.approx(theirs.draw(t).weight, rel=1e-12)
    random = lt.RandomRows(4).bind(lt.Problem(A, kind(y)))
    X = draw(SHAPE, "float64", 4)
    rows = random.draw(3).rows
    agrees(
        kind,
        lt.Problem(A, kind(y)).block(rows).gradient(kind(X)),
        lt.Problem(B, y).block(rows).gradient(X),
    )


def test_function_operator_with_a_prototype(kind):
    matrix = draw((M, 60), "float64", 3)
    inside = kind(matrix)
    A = lt.FunctionOperator(
        lambda X: lt.DenseOperator(inside, SHAPE).forward(X),
        lambda v: lt.DenseOperator(inside, SHAPE).adjoint(v),
        SHAPE,
        M,
        prototype=inside,
    )
    B = lt.DenseOperator(matrix, SHAPE)
    X, v = draw((2, *SHAPE), "float64", 4), draw((2, M), "float64", 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        block = A.restrict(np.array([3, 0, 3]))
    agrees(kind, A.forward(kind(X)), B.forward(X))
    agrees(kind, A.adjoint(kind(v)), B.adjoint(v))
    agrees(kind, A.row_norms(), B.row_norms())
    agrees(kind, block.forward(kind(X)), B.restrict(np.array([3, 0, 3])).forward(X))
    agrees(kind, block.adjoint(kind(v[:, :3])), B.restrict(np.array([3, 0, 3])).adjoint(v[:, :3]))
    assert lt.check_adjoint(A) < 1e-13


# Metrics


def test_metrics(kind):
    X_true = np.random.default_rng(1).random((3, 12, 13))
    X = X_true + 0.1 * draw(X_true.shape, "float64", 2)
    for metric in (metrics.nmse, metrics.snr_db, metrics.psnr):
        got = metric(kind(X), kind(X_true))
        assert isinstance(got, float)
        assert got == pytest.approx(metric(X, X_true), rel=1e-12)
    assert metrics.ssim(kind(X[0]), kind(X_true[0])) == pytest.approx(
        metrics.ssim(X[0], X_true[0]), rel=1e-12
    )
    assert isinstance(metrics.relative_error(kind(X), kind(X_true)), float)
    agrees(
        kind,
        metrics.relative_error(kind(X), kind(X_true), batch_ndim=1),
        metrics.relative_error(X, X_true, batch_ndim=1),
    )


@every_dtype
def test_relative_error_of_tucker_batches(kind, dtype):
    X, Y = (lt.random_tucker(SHAPE, RANK, s, dtype=dtype, trials=2) for s in (1, 2))
    agrees(
        kind,
        metrics.relative_error(tucker_of(kind, X), tucker_of(kind, Y)),
        metrics.relative_error(X, Y),
        REAL[dtype],
    )


def test_operators_of_any_kind_accept_lists(kind):
    """Lists and numbers have no array kind: they are converted to that of the operator."""
    A, B = operators(kind, "float64")
    X, y = draw(SHAPE, "float64", 4), draw((M,), "float64", 5)
    agrees(kind, A.forward(X.tolist()), B.forward(X))
    agrees(kind, A.adjoint(y.tolist()), B.adjoint(y))
    agrees(kind, lt.Problem(A, y.tolist()).residual(kind(X)), lt.Problem(B, y).residual(X))
