"""The contract of array kinds: results are of the kind of the input, with the values of NumPy.

One line adds an operator to OPERATORS or a call to CALLS. The algebra: tests/test_arrays.py.
"""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt

SHAPE, RANK, N = (3, 4, 2), (2, 2, 2), 24


def numbers(shape, dtype=float, seed=0):
    rng = np.random.default_rng((seed, *shape))
    real = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        return (real + 1j * rng.standard_normal(shape)).astype(dtype)
    return real.astype(dtype)


def matrices(kind, rows, columns):
    return [kind(numbers(size)) for size in zip(rows, columns, strict=True)]


def dense(kind, dtype=float, tensors=None):
    tensors = None if tensors is None else kind(np.zeros(1, tensors)).dtype
    return lt.DenseOperator(kind(numbers((30, N), dtype)), SHAPE, dtype=tensors)


def outer(kind, m=12):
    return lt.rank_one(matrices(kind, (m, m, m), SHAPE))


def stacked(kind):
    rows = lt.DenseOperator(kind(numbers((5, N))), SHAPE)
    return lt.stack([outer(kind, 3), lt.scale(rows, kind(numbers((5,), complex)))])


# name -> the operator, made of arrays of a kind
OPERATORS = {
    "dense": dense,
    "dense-float32": lambda kind: dense(kind, np.float32),
    "dense-complex": lambda kind: dense(kind, complex),
    "dense-complex-matrix-real-tensors": lambda kind: dense(kind, complex, float),
    "rank-one": outer,
    "kronecker": lambda kind: lt.kronecker(matrices(kind, (2, 3, 2), SHAPE)),
    "modewise-final": lambda kind: lt.kronecker(
        matrices(kind, (5, 2), (12, 2)), SHAPE, final=kind(numbers((7, 10)))
    ),
    "stack-scale": stacked,
    "compose": lambda kind: lt.compose(kind(numbers((4, 8))), stacked(kind)),
}

# JAX compiles every operation for seconds
JAX_MEASURES = {"rank-one", "kronecker", "modewise-final", "compose"}
JAX_DESIGNS = {"dense-complex-matrix-real-tensors", "kronecker"}


def skip_jax(kind, name, but):
    if kind.name == "jax" and name not in but:
        pytest.skip("compiling takes seconds")


def moved(kind, X):
    return lt.TuckerTensor(kind(X.core), [kind(U) for U in X.factors])


def tensors_of(reference):
    """dtype of the tensors of an operator."""
    return np.dtype(float if reference.dtype is None else reference.dtype)


@pytest.mark.parametrize("name", OPERATORS)
def test_measurements(kind, name):
    skip_jax(kind, name, JAX_MEASURES)
    A, reference = OPERATORS[name](kind), OPERATORS[name](np.asarray)
    X = lt.random_tucker(SHAPE, RANK, seed=0, dtype=tensors_of(reference))
    given, y = moved(kind, X), reference.forward(X)
    v = numbers(y.shape, y.dtype)
    start = (3, 2, 2)  # the Kronecker product has two rows in mode 0
    several = np.array([3, 0, 0])
    for got, expected in (
        (A.forward(given), y),
        (A.forward(kind(X.full())), y),
        (A.adjoint(kind(v)), reference.adjoint(v)),
        (A.row_norms(), reference.row_norms()),
        (A.restrict(slice(1, 3)).forward(given), y[1:3]),
        (A.restrict(several).forward(given), y[several]),
        (A.spectral_start(kind(v), start).full(), reference.spectral_start(v, start).full()),
    ):
        assert kind.owns(got)
        atol = 1e-4 if expected.dtype.itemsize == 4 else 1e-11
        np.testing.assert_allclose(np.asarray(got), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("name", OPERATORS)
def test_tangent_designs(kind, name):
    skip_jax(kind, name, JAX_DESIGNS)
    A, reference = OPERATORS[name](kind), OPERATORS[name](np.asarray)
    dtype = tensors_of(reference)
    X = lt.random_tucker(SHAPE, RANK, seed=1, dtype=dtype)
    T = lt.TangentSpace(moved(kind, X))
    design = A.tangent(T)
    # the signs of the basis may differ from those of NumPy's
    basis = [T.full(kind(unit)) for unit in np.eye(T.dof, dtype=dtype)]
    D = np.stack([reference.forward(np.asarray(part)) for part in basis], axis=1)
    y, c = numbers((A.m,), D.dtype), numbers((T.dof,), dtype)
    w = np.linspace(0, 2, A.m).astype(X.core.real.dtype)
    residual = y - reference.forward(X)

    def back(v):
        product = D.conj().T @ v
        return product if dtype.kind == "c" else product.real

    plain = back(D), back(residual), residual
    weighted = back(w[:, None] * D), back(w * residual), residual
    for got, expected in (
        (design.dense(), D),
        (design.matvec(kind(c)), D @ c),
        (design.rmatvec(kind(y)), back(y)),
        *zip(design.normal_equations(kind(y)), plain, strict=True),
        *zip(design.normal_equations(kind(y), kind(w)), weighted, strict=True),
    ):
        assert kind.owns(got)
        assert np.asarray(got).dtype == expected.dtype
        atol = 1e-3 if dtype.itemsize == 4 else 1e-10
        np.testing.assert_allclose(np.asarray(got), expected, rtol=0, atol=atol)


# name -> the settings of recover
CALLS = {
    "RGN": {"solver": lt.RGN(), "max_epochs": 2},
    "RGN-products": {"solver": lt.RGN(products=True), "max_epochs": 8, "tol": 1e-4},
    "RSGD": {"solver": lt.RSGD(block_size=20), "max_epochs": 2},
    "RSGD-least-squares": {
        "solver": lt.RSGD(block_size=40, least_squares=True),
        "max_epochs": 2,
    },
    "RCG": {"solver": lt.RCG(), "max_epochs": 2},
    "huber": {"solver": "rgn", "loss": "huber"},
}
JAX_CALLS = {"RGN", "RGN-products", "huber"}


# One problem for all runs: what JAX has compiled for one of them serves the others
TRUTH = lt.random_tucker((6, 5), (2, 2), seed=0)


def measured():
    A = lt.gaussian((6, 5), 80, seed=1)
    return A, A.forward(TRUTH)


@pytest.mark.parametrize("name", CALLS)
def test_recovery(kind, name, tmp_path):
    skip_jax(kind, name, JAX_CALLS)
    A, y = measured()
    if name == "huber":
        y += 0.01 * np.std(y) * numbers((80,))
        y[::10] += 10 * np.std(y)
    expected = lt.recover(A, y, (2, 2), **CALLS[name])
    given = lt.DenseOperator(kind(A.matrix), A.shape)
    result = lt.recover(given, kind(y), (2, 2), **CALLS[name], max_seconds=np.inf)
    assert all(kind.owns(part) for part in (result.X.core, *result.X.factors))
    assert result.status is expected.status
    np.testing.assert_allclose(np.asarray(result.X.full()), expected.X.full(), rtol=0, atol=1e-6)
    if name == "huber":
        assert kind.owns(result.weights)
        weights = np.asarray(result.weights)
        np.testing.assert_allclose(weights, expected.weights, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(weights == 0, np.arange(80) % 10 == 0)
        result.save(tmp_path / "result.npz")
        np.testing.assert_array_equal(lt.load(tmp_path / "result.npz").weights, weights)


def test_the_default_solver_takes_a_matrix(kind):
    A, y = measured()
    result = lt.recover(
        kind(A.matrix), kind(y), (2, 2), shape=A.shape, tol=1e-4, max_seconds=np.inf
    )
    assert result.success
    assert all(kind.owns(part) for part in (result.X.core, *result.X.factors))
    assert lt.metrics.relative_error(np.asarray(result.X.full()), TRUTH.full()) < 1e-3


def test_a_saved_run_resumes_with_arrays_of_another_kind(kind, tmp_path):
    A, y = measured()
    lt.recover(A, y, (2, 2), max_epochs=2, solver="stotiht").save(tmp_path / "x.npz")
    half = lt.load(tmp_path / "x.npz")
    result = lt.recover(
        kind(A.matrix), kind(y), (2, 2), shape=A.shape, start=half, tol=1e-3, solver="stotiht",
        max_seconds=np.inf,
    )  # fmt: skip
    assert result.success
    assert kind.owns(result.X.core)
