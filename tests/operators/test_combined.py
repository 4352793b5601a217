"""Operators made of operators, against the matrices that they are."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pylops
import pytest
import scipy.sparse
import scipy.sparse.linalg

import lowtucker as lt
from lowtucker import compose, scale, stack
from lowtucker.operators import combined

SHAPE, N = (3, 4, 2), 24
NEAR = {"rtol": 0, "atol": 1e-12}


def matrix(m, n=N, seed=0, dtype=float):
    rng = np.random.default_rng((seed, m, n))
    out = rng.standard_normal((m, n))
    return (out + 1j * rng.standard_normal((m, n)) if dtype is complex else out).astype(dtype)


def vector(m, seed=0, dtype=float):
    return matrix(m, 1, seed, dtype)[:, 0]


INDEX = np.array([[0, 3, 1], [2, 0, 0], [0, 3, 1], [1, 1, 1]])
ONE_HOT = np.eye(N)[np.ravel_multi_index(tuple(INDEX.T), SHAPE)]
FACTORS = [matrix(3, n, seed=7) for n in SHAPE]
OUTER = np.einsum("ji,jk,jl->jikl", *FACTORS).reshape(3, N)


def three():
    """Five dense rows, four entries, three outer products; and their matrix."""
    dense = matrix(5)
    parts = [lt.DenseOperator(dense, SHAPE), lt.entries(SHAPE, INDEX), lt.rank_one(FACTORS)]
    return stack(parts), np.vstack([dense, ONE_HOT, OUTER])


def complex_rows(m, seed=0):
    """Complex measurements of real tensors, and their matrix."""
    M = matrix(m, seed=seed, dtype=complex)
    return lt.DenseOperator(M, SHAPE, dtype=float), M


def function(M, shape=SHAPE):
    return lt.FunctionOperator(
        lambda X: M @ X.reshape(-1), lambda v: (M.conj().T @ v).reshape(shape), shape, len(M)
    )


def assert_is(A, M, real=True):
    """Check A against its matrix: forward, adjoint, and norms of the rows."""
    X = matrix(1, M.shape[1], seed=1, dtype=float if real else complex).reshape(A.shape)
    v = vector(A.m, seed=2, dtype=complex if np.iscomplexobj(M) else float)
    assert A.m == len(M)
    np.testing.assert_allclose(A.forward(X), M @ X.reshape(-1), **NEAR)
    back = (M.conj().T @ v).reshape(A.shape)
    np.testing.assert_allclose(A.adjoint(v), back.real if real else back, **NEAR)
    np.testing.assert_allclose(A.row_norms(), np.linalg.norm(M, axis=1), **NEAR)


def assert_design_is(A, M):
    """Check the tangent design at some X against the matrix times the basis."""
    T = lt.TangentSpace(lt.random_tucker(SHAPE, (2, 2, 2), seed=0))
    D = M @ np.stack([T.full(e).reshape(-1) for e in np.eye(T.dof)], axis=1)
    design = A.tangent(T)
    kind = complex if np.iscomplexobj(M) else float
    c, y, w = vector(T.dof), vector(A.m, dtype=kind), np.linspace(0.5, 2, A.m)
    np.testing.assert_allclose(design.dense(), D, **NEAR)
    np.testing.assert_allclose(design.matvec(c), D @ c, **NEAR)
    np.testing.assert_allclose(design.rmatvec(y), (D.conj().T @ y).real, **NEAR)
    for weights in (None, w):
        residual, gradient = design.misfit(y, weights)
        r = y - D @ T.here
        expected = (D.conj().T @ (r if weights is None else weights * r)).real
        np.testing.assert_allclose(residual, r, **NEAR)
        np.testing.assert_allclose(gradient, expected, **NEAR)
        residual, gradient = A.misfit(T.X, y, weights)
        np.testing.assert_allclose(residual, r, **NEAR)
        np.testing.assert_allclose(T.coordinates(gradient), expected, **NEAR)
        gram, gradient, residual = design.normal_equations(y, weights)
        weighted = D if weights is None else weights[:, None] * D
        np.testing.assert_allclose(gram, (D.conj().T @ weighted).real, rtol=0, atol=1e-11)
        np.testing.assert_allclose(gradient, expected, **NEAR)
        np.testing.assert_allclose(residual, r, **NEAR)
    where = [rows for rows, _ in design.rows()]
    assert [rows.start for rows in where] == [0, *(rows.stop for rows in where[:-1])]
    assert where[-1].stop == A.m


# stack


def test_a_stack_has_the_rows_of_its_parts():
    A, M = three()
    assert_is(A, M)
    assert_design_is(A, M)
    assert A.traits.row_separable
    assert A.traits.has_fast_tangent


ROWS = [
    slice(0, 5),
    slice(5, 9),
    slice(3, 11),
    slice(1, 12, 3),
    slice(4, 12, 7),
    slice(None, None, 4),
    slice(None, None, -1),
    slice(0, 12, 6),
    np.array([11, 0, 4, 5, 5, 8, 1, 1]),
    np.array([9]),
    np.array([0, 9, 0, 9]),
    np.arange(12) % 5 == 4,
]


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_blocks_of_a_stack_have_its_rows(rows):
    A, M = three()
    assert_is(A.restrict(rows), M[rows])
    assert_design_is(A.restrict(rows), M[rows])


def test_a_block_is_made_of_runs_of_rows_of_one_part():
    A, _ = three()
    assert [part.m for part in A.restrict(slice(3, 11)).parts] == [2, 4, 2]
    assert [part.m for part in A.restrict(slice(4, 12, 7)).parts] == [1, 1]  # none of the entries
    assert [part.m for part in A.restrict(np.array([4, 5, 5, 6, 0])).parts] == [1, 3, 1]
    again = A.restrict(slice(3, 11)).restrict(slice(1, 4))
    assert [part.m for part in again.parts] == [1, 2]


def test_rows_of_one_part_are_a_block_of_that_part():
    first, second = lt.DenseOperator(matrix(5), SHAPE), lt.DenseOperator(matrix(6), SHAPE)
    block = stack([first, second]).restrict(slice(6, 9))
    assert isinstance(block, lt.DenseOperator)
    assert np.shares_memory(block.matrix, second.matrix)  # a slice is a view
    np.testing.assert_array_equal(block.matrix, matrix(6)[1:4])
    assert isinstance(stack([first, second]).restrict(np.array([2, 0])), lt.DenseOperator)


def test_a_stack_is_row_separable_and_has_a_fast_tangent_if_all_parts_are():
    M = matrix(4)
    A = stack([lt.DenseOperator(matrix(5), SHAPE), function(M)])
    assert not A.traits.row_separable
    assert not A.traits.has_fast_tangent
    sparse = stack(
        [lt.DenseOperator(matrix(5), SHAPE), lt.SparseOperator(scipy.sparse.csr_array(M), SHAPE)]
    )
    assert sparse.traits.row_separable
    assert sparse.traits.has_fast_tangent
    assert_design_is(sparse, np.vstack([matrix(5), M]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        A.restrict(slice(0, 5))  # the fast part
    with pytest.warns(lt.SlowOperatorWarning, match="FunctionOperator cannot measure some"):
        block = A.restrict(slice(4, 7))
    assert_is(block, np.vstack([matrix(5), M])[4:7])


def test_nested_stacks_are_flattened():
    a, b, c = (lt.gaussian(SHAPE, 3, seed=k) for k in range(3))
    nested = stack([stack([a, b]), c])
    assert nested.parts == (a, b, c)
    assert_is(nested, np.vstack([a.matrix, b.matrix, c.matrix]))
    assert stack([a]) is a


def test_the_start_of_a_stack_is_that_of_the_summed_adjoints():
    A, M = three()
    v = vector(A.m)
    expected = lt.hosvd((M.T @ v).reshape(SHAPE), (2, 2, 2))  # entries are not isotropic
    np.testing.assert_allclose(A.spectral_start(v, (2, 2, 2)).full(), expected.full(), **NEAR)


def test_the_start_of_a_stack_of_large_tensors_is_that_of_its_largest_part(monkeypatch):
    A, _ = three()
    v = vector(A.m)
    monkeypatch.setattr(combined, "FULL", N - 1)
    expected = lt.hooi((matrix(5).T @ v[:5]).reshape(SHAPE), (2, 2, 2), max_iterations=10)
    np.testing.assert_allclose(A.spectral_start(v, (2, 2, 2)).full(), expected.full(), **NEAR)


def test_large_tensors_are_not_formed():
    shape = (400, 300, 200)  # 192 MB
    rng = np.random.default_rng(0)
    indices = rng.integers(0, shape, (3000, 3))
    A = stack([lt.entries(shape, indices[:1000]), lt.entries(shape, indices[1000:])])
    X = lt.random_tucker(shape, (2, 2, 2), seed=0)
    T = lt.TangentSpace(X)
    tracemalloc.start()
    y = A.forward(X)
    start = A.spectral_start(y, (2, 2, 2))
    A.tangent(T).misfit(y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6
    np.testing.assert_allclose(y, X.entries(indices), **NEAR)
    expected = lt.entries(shape, indices[1000:]).spectral_start(y[1000:], (2, 2, 2))
    np.testing.assert_array_equal(start.core, expected.core)


def test_parts_without_a_dtype_take_that_of_the_others():
    entries = lt.entries(SHAPE, INDEX)
    assert stack([entries, entries]).dtype is None
    for dtype in (np.float32, np.float64, np.complex64, np.complex128):
        A = stack([entries, lt.gaussian(SHAPE, 3, dtype=dtype)])
        assert A.dtype == dtype
        X = np.ones(SHAPE, dtype=dtype)
        y = A.forward(np.ones(SHAPE, dtype=np.promote_types(dtype, np.float64)))
        assert y.dtype == A.forward(X).dtype == dtype
        assert A.adjoint(y).dtype == A.misfit(X, y)[1].dtype == dtype
        block = A.restrict(slice(0, 3))  # of entries alone, and still of that dtype
        assert block.dtype == dtype
        assert block.adjoint(y[:3].astype(np.promote_types(dtype, np.float64))).dtype == dtype
        v = vector(3).astype(dtype)
        start = entries.restrict(slice(0, 3)).spectral_start(v, (2, 2, 2)).full()
        np.testing.assert_array_equal(block.spectral_start(v, (2, 2, 2)).full(), start)
        T = lt.TangentSpace(lt.random_tucker(SHAPE, (2, 2, 2), seed=0, dtype=dtype))
        assert A.tangent(T).dense().dtype == A.tangent(T).rmatvec(y).dtype == dtype
        assert A.row_norms().dtype == np.real(X).dtype
        A = stack([function(matrix(4)), lt.gaussian(SHAPE, 3, dtype=dtype)])  # computes in double
        assert A.forward(X).dtype == A.adjoint(v[[0] * 7]).dtype == A.tangent(T).dense().dtype
        assert A.forward(X).dtype == dtype


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_real_rows_beside_complex_rows_of_real_tensors(order):
    """The tensor stays real, even if y has imaginary parts for real rows."""
    C, M = complex_rows(4)
    parts = [lt.rank_one(FACTORS), C, lt.entries(SHAPE, INDEX)]
    A = stack([parts[k] for k in order])
    M = np.vstack([(OUTER, M, ONE_HOT)[k] for k in order])
    assert_is(A, M)
    assert_design_is(A, M)
    at = {k: A.starts[i] for i, k in enumerate(order)}
    y = vector(A.m, dtype=complex)
    for k, part in enumerate(parts):
        rows = slice(at[k], at[k] + part.m)
        block = lt.Problem(A, y).block(rows)
        assert block.tensor_dtype == np.float64
        residual, gradient = block.residual_and_gradient(np.zeros(SHAPE))
        np.testing.assert_array_equal(residual, y[rows])
        expected = -(M[rows].conj().T @ y[rows]).real.reshape(SHAPE) / part.m
        np.testing.assert_allclose(gradient, expected, **NEAR)
    assert isinstance(A.restrict(slice(at[1], at[1] + 2)), lt.DenseOperator)


def test_normal_equations_are_those_of_the_parts(monkeypatch):
    """Some have them in closed form: rows of D would be many."""
    first, second = (lt.kronecker([matrix(n, n, seed=k) for n in SHAPE]) for k in range(2))
    T = lt.TangentSpace(lt.random_tucker(SHAPE, (2, 2, 2), seed=0))
    y = vector(2 * N)
    expected = stack([first, second]).tangent(T).normal_equations(y, np.ones(2 * N))  # by rows
    design = stack([first, second]).tangent(T)
    monkeypatch.setattr(type(design.designs[0]), "rows", None)
    for got, wanted in zip(design.normal_equations(y), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-10)


def test_a_stack_is_isotropic_if_all_parts_are():
    dense, samples = lt.DenseOperator(matrix(5), SHAPE), lt.entries(SHAPE, INDEX)
    assert stack([dense, dense]).traits.isotropic
    assert not stack([dense, samples]).traits.isotropic
    assert scale(dense, 2.0).traits.isotropic
    assert not scale(samples, 2.0).traits.isotropic
    assert not compose(dense, matrix(24), shape=SHAPE).traits.isotropic


def only_real(M, shape=SHAPE):
    """Measurements of real tensors that refuse complex numbers."""

    def adjoint(v):
        assert not np.iscomplexobj(v)
        return (M.T @ v).reshape(shape)

    return lt.FunctionOperator(
        lambda X: M @ X.reshape(-1), adjoint, shape, len(M), dtype=np.float64
    )


def test_each_part_gets_real_or_complex_measurements_as_it_returns_them():
    C, M = complex_rows(4)
    A, M = stack([only_real(matrix(3)), C]), np.vstack([matrix(3), M])
    assert_is(A, M)
    assert_design_is(A, M)
    A = stack([function(M), lt.DenseOperator(matrix(3), SHAPE)])  # the functions give complex X
    assert A.dtype == np.float64
    assert_design_is(A, np.vstack([M, matrix(3)]))
    X, v = matrix(1).reshape(SHAPE), vector(10, dtype=complex)
    np.testing.assert_allclose(A.forward(X), np.vstack([M, matrix(3)]) @ X.reshape(-1), **NEAR)
    back = (np.vstack([M, matrix(3)]).conj().T @ v).real.reshape(SHAPE)
    assert A.adjoint(v).dtype == np.float64
    np.testing.assert_allclose(A.adjoint(v), back, **NEAR)
    R = matrix(5, 3, dtype=complex)
    assert_is(compose(R, only_real(matrix(3))), R @ matrix(3))


def test_one_row_decides_whether_measurements_are_complex():
    class Large(lt.DenseOperator):
        def _forward(self, X):
            raise AssertionError("all rows were read")

    assert stack([Large(matrix(5), SHAPE), lt.entries(SHAPE, INDEX)]).m == 9
    assert scale(Large(matrix(5), SHAPE), 1j).m == 5
    assert compose(matrix(2, 5), Large(matrix(5), SHAPE)).m == 2


def test_a_stack_recovers():
    """Of 38 degrees of freedom no part has more than 1.6 measurements for each."""
    shape, rank = (8, 7, 6), (2, 2, 2)
    X = lt.random_tucker(shape, rank, seed=0)
    rng = np.random.default_rng(0)
    unit = 1 / np.sqrt(8 * 7 * 6)  # so that rows are about as large as those of entries
    A = stack(
        [
            lt.entries(shape, rng.integers(0, shape, (60, 3))),
            scale(lt.rank_one([rng.standard_normal((40, n)) for n in shape]), unit),
            scale(lt.gaussian(shape, 40, seed=1), unit),
        ]
    )
    for solver in ("auto", lt.RGN(starts=10), lt.RCG(), lt.RSGD()):
        result = lt.recover(A, A.forward(X), rank, solver=solver)
        assert result.success
        assert lt.metrics.relative_error(result.X, X) < 1e-5


GAUSSIAN = lt.gaussian(SHAPE, 3)


@pytest.mark.parametrize(
    ("operators", "exception", "message"),
    [
        (GAUSSIAN, TypeError, "operators must be a list .* got DenseOperator"),
        ([], TypeError, "operators must be a list .* got an empty one"),
        ([GAUSSIAN, matrix(3)], TypeError, r"operators\[1\] must be a Mea.* got ndarray.*as_oper"),
        ([GAUSSIAN, lt.gaussian((3, 4), 2)], ValueError, r"\[1\] measures \(3, 4\), .*\(3, 4, 2\)"),
        ([lt.gaussian(SHAPE, 3, trials=2)], ValueError, r"operators\[0\] must be one operator"),
        (
            [GAUSSIAN, lt.gaussian(SHAPE, 3, dtype=np.float32)],
            TypeError,
            r"one dtype: operators\[1\] measures float32, those before it float64",
        ),
        (
            [lt.entries(SHAPE, INDEX), GAUSSIAN, lt.gaussian(SHAPE, 3, dtype=complex)],
            TypeError,
            r"operators\[2\] measures complex128, those before it float64.*DenseOperator",
        ),
    ],
)
def test_operators_that_cannot_be_stacked_are_refused(operators, exception, message):
    with pytest.raises(exception, match=message):
        stack(operators)


def test_kinds_of_arrays_do_not_mix():
    strict = pytest.importorskip("array_api_strict")
    other = lt.DenseOperator(strict.asarray(matrix(3)), SHAPE)
    for pair in ([GAUSSIAN, other], [lt.entries(SHAPE, INDEX), other], [other, GAUSSIAN]):
        with pytest.raises(TypeError, match=r"a tensor of operators\[1\] is a .*Convert one"):
            stack(pair)
    assert stack([other, other]).prototype is other.prototype
    with pytest.raises(TypeError, match=r"a tensor of maps\[1\] is a .*Convert one"):
        compose(matrix(2, 3), other)
    with pytest.raises(TypeError, match=r"factor is a NumPy array, but DenseOperator"):
        scale(other, np.ones(3))


# scale


@pytest.mark.parametrize("factor", [-2.5, np.float32(3), np.linspace(-1, 2, 5), [1, 2, 0, 4, 5]])
def test_a_scaled_operator_has_scaled_rows(factor):
    A = scale(lt.DenseOperator(matrix(5), SHAPE), factor)
    M = np.broadcast_to(factor, 5)[:, None] * matrix(5)
    assert A.traits.row_separable
    assert A.traits.has_fast_tangent
    assert_is(A, M)
    assert_design_is(A, M)
    for rows in (slice(1, 5, 2), np.array([4, 0, 1, 1])):
        assert_is(A.restrict(rows), M[rows])
        assert_design_is(A.restrict(rows), M[rows])


@pytest.mark.parametrize("inner", ["outer", "complex rows"])
def test_complex_factors_of_measurements_of_real_tensors(inner):
    factor = vector(3, dtype=complex)
    B, M = (lt.rank_one(FACTORS), OUTER) if inner == "outer" else complex_rows(3)
    A = scale(B, factor)
    assert A.dtype == np.float64
    assert_is(A, factor[:, None] * M)
    assert_design_is(A, factor[:, None] * M)
    assert_is(A.restrict(slice(1, 3)), (factor[:, None] * M)[1:3])
    start = A.spectral_start(factor, (2, 2, 2)).full()
    back = (M.conj().T @ (np.abs(factor) ** 2)).real.reshape(SHAPE)
    assert start.dtype == np.float64
    if inner == "complex rows":  # a start of outer products clips
        expected = lt.hooi(back, (2, 2, 2), max_iterations=10).full()
        np.testing.assert_allclose(start, expected, **NEAR)


def test_complex_factors_of_measurements_of_complex_tensors():
    M, factor = matrix(4, dtype=complex), vector(4, dtype=complex)
    assert_is(scale(lt.DenseOperator(M, SHAPE), factor), factor[:, None] * M, real=False)
    A = scale(lt.entries(SHAPE, INDEX), factor)  # without a dtype: that of y
    assert A.dtype is None
    assert_is(A, factor[:, None] * ONE_HOT, real=False)


def test_a_scaled_start_is_that_of_the_inner_operator():
    factor, v = np.array([2.0, -1, 3, 1]), vector(4)
    A = lt.entries(SHAPE, INDEX)  # its start leaves out a diagonal
    got = scale(A, factor).spectral_start(v, (2, 2, 2)).full()
    np.testing.assert_array_equal(got, A.spectral_start(factor * v, (2, 2, 2)).full())


def test_a_scaled_operator_keeps_the_fast_paths_of_its_inner_one():
    A = scale(function(matrix(4)), 2.0)
    assert not A.traits.row_separable
    assert not A.traits.has_fast_tangent
    with pytest.warns(lt.SlowOperatorWarning, match="FunctionOperator"):
        assert_is(A.restrict(np.array([3, 1])), 2 * matrix(4)[[3, 1]])


def test_factors_take_the_precision_of_the_operator():
    A = scale(lt.gaussian(SHAPE, 3, dtype=np.float32), np.array([1.0, 2, 3]))
    assert A.forward(np.ones(SHAPE)).dtype == A.adjoint(np.ones(3)).dtype == np.float32
    assert A.row_norms().dtype == np.float32
    entries = scale(lt.entries(SHAPE, INDEX), 2.0)
    assert entries.forward(np.ones(SHAPE, dtype=np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("A", "factor", "exception", "message"),
    [
        (matrix(3), 2.0, TypeError, "A must be a MeasurementOperator, got ndarray"),
        (lt.gaussian(SHAPE, 3, trials=2), 2.0, ValueError, "A must be one operator, got a batch"),
        (
            GAUSSIAN,
            np.ones(4),
            ValueError,
            r"each of the 3 measurements, shape \(3,\), got.*\(4,\)",
        ),
        (GAUSSIAN, np.ones((3, 1)), ValueError, r"factor must be a number.*\(3, 1\)"),
        (GAUSSIAN, [1.0, np.nan, 1.0], ValueError, "factor has NaN or infinite"),
        (GAUSSIAN, np.inf, ValueError, "factor has NaN or infinite"),
        (lt.gaussian(SHAPE, 3, dtype=np.float32), 1e300, ValueError, "overflow in A's precision"),
        (GAUSSIAN, 0, ValueError, "factor is zero everywhere"),
        (lt.gaussian(SHAPE, 3, dtype=np.float32), 1e-300, ValueError, "factor is zero everywhere"),
        (GAUSSIAN, "2", TypeError, "factor must be an array of numbers, got str"),
        (GAUSSIAN, None, TypeError, "factor must be an array of numbers, got NoneType"),
    ],
)
def test_bad_factors_are_refused(A, factor, exception, message):
    with pytest.raises(exception, match=message):
        scale(A, factor)


# compose


def test_the_last_map_is_applied_first():
    A, B = lt.DenseOperator(matrix(6), SHAPE), matrix(4, 6)
    assert_is(compose(B, A), B @ matrix(6))
    T = lt.TangentSpace(lt.random_tucker(SHAPE, (2, 2, 2), seed=0))
    np.testing.assert_allclose(
        compose(B, A).tangent(T).matvec(T.here), B @ (matrix(6) @ T.X.full().reshape(-1)), **NEAR
    )
    assert not compose(B, A).traits.has_fast_tangent


def own(M):
    """An object with shape, matvec and rmatvec only."""

    class Own:
        shape, dtype = M.shape, M.dtype
        matvec, rmatvec = staticmethod(lambda x: M @ x), staticmethod(lambda v: M.conj().T @ v)

    return Own()


MAPS = {
    "matrix": lambda M: M,
    "list": lambda M: M.tolist(),
    "tensors": lambda M: M.reshape(len(M), 2, -1),
    "sparse": scipy.sparse.coo_array,
    "scipy": scipy.sparse.linalg.aslinearoperator,
    "pylops": pylops.MatrixMult,
    "own": own,
    "operator": lambda M: lt.DenseOperator(M, (2, M.shape[1] // 2)),
    "function": lambda M: function(M, (M.shape[1],)),
}


@pytest.mark.parametrize("name", MAPS)
def test_every_map_in_every_place(name):
    make = MAPS[name]
    A, B, C = matrix(5, 6), matrix(6, 8), matrix(8, 24)
    expected = A @ B @ C
    shape = {"tensors": (2, 12), "operator": (2, 12), "function": (24,)}.get(name, SHAPE)
    assert_is(compose(A, B, make(C), shape=shape), expected)
    assert_is(compose(A, make(B), C, shape=SHAPE), expected)
    assert_is(compose(make(A), B, C, shape=SHAPE), expected)
    assert_is(compose(make(A), make(B), make(C), shape=shape), expected)
    assert_is(compose(make(C), shape=shape), C)


def test_a_map_with_a_shape_needs_no_other():
    A = lt.DenseOperator(matrix(6), SHAPE)
    assert compose(A) is A
    assert compose(A, shape=SHAPE) is A
    assert compose(matrix(2, 6), A, shape=SHAPE).shape == SHAPE
    assert compose(matrix(2, 6), matrix(6).reshape(6, *SHAPE)).shape == SHAPE


def test_tensors_in_between_are_row_major():
    B = lt.DenseOperator(matrix(5, 6), (2, 3), order="F")
    mixed = compose(B, matrix(6), shape=SHAPE)
    columns = np.arange(6).reshape(3, 2).T.reshape(-1)  # where its rows have entry (i, j)
    assert_is(mixed, matrix(5, 6)[:, columns] @ matrix(6))


def test_factors_reach_the_last_map_as_they_are():
    shape = (400, 300, 200)  # 192 MB
    indices = np.random.default_rng(0).integers(0, shape, (50, 3))
    A = compose(matrix(6, 50), lt.entries(shape, indices))
    X = lt.random_tucker(shape, (2, 2, 2), seed=0)
    tracemalloc.start()
    y = A.forward(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6
    np.testing.assert_allclose(y, matrix(6, 50) @ X.entries(indices), **NEAR)


def test_blocks_are_those_of_the_first_map():
    M = matrix(5, 6) @ matrix(6)
    A = compose(lt.DenseOperator(matrix(5, 6), (6,)), pylops.MatrixMult(matrix(6)), shape=SHAPE)
    assert A.traits.row_separable
    for rows in (slice(1, 4), np.array([4, 0, 0])):
        block = A.restrict(rows)
        assert block.links[0].map.m == block.m == len(M[rows])
        assert_is(block, M[rows])
    slow = compose(pylops.MatrixMult(matrix(5, 6)), matrix(6), shape=SHAPE)
    assert not slow.traits.row_separable
    with pytest.warns(lt.SlowOperatorWarning, match="ComposedOperator cannot measure some"):
        block = slow.restrict(np.array([4, 0, 0]))
    assert_is(block, M[[4, 0, 0]])


def test_real_maps_of_complex_vectors_take_both_parts():
    C, M = complex_rows(6)
    R = matrix(5, 6)
    outer = np.einsum("ji,jk->jik", matrix(5, 2), matrix(5, 3)).reshape(5, 6)
    rank_one = lt.rank_one([matrix(5, 2), matrix(5, 3)])
    real_tensors = lt.DenseOperator(matrix(5, 6, dtype=complex), (6,), dtype=float)
    for first, expected in (
        (R, R),
        (scipy.sparse.csr_array(R), R),
        (pylops.MatrixMult(R), R),
        (rank_one, outer),
        (real_tensors, matrix(5, 6, dtype=complex)),
        (lt.entries((6,), [[4], [1]]), np.eye(6)[[4, 1]]),
    ):
        A = compose(first, C)
        assert A.dtype == np.float64
        assert_is(A, expected @ M)
        complex_tensors = compose(first, matrix(6, dtype=complex), shape=SHAPE)
        assert complex_tensors.dtype == np.complex128
        assert_is(complex_tensors, expected @ matrix(6, dtype=complex), real=False)
        assert_is(
            compose(matrix(3, len(expected)), first, C), matrix(3, len(expected)) @ expected @ M
        )


def test_real_vectors_in_between_stay_real():
    """The adjoint of a complex map of real measurements is a real part."""
    C = matrix(5, 6, dtype=complex)
    for last in (lt.rank_one(FACTORS), lt.SparseOperator(scipy.sparse.csr_array(OUTER), SHAPE)):
        assert_is(compose(C, matrix(6, 3), last), C @ matrix(6, 3) @ OUTER)
    entries = compose(C, matrix(6, 4), lt.entries(SHAPE, INDEX))  # without a dtype of its own
    assert entries.dtype == np.float64
    assert_is(entries, C @ matrix(6, 4) @ ONE_HOT)


def test_combined_operators_combine():
    C, M = complex_rows(6)
    R = matrix(4, 6)
    inner = compose(R, C)
    assert_is(compose(matrix(3, 4), inner), matrix(3, 4) @ R @ M)
    factor = vector(4)
    A = stack([lt.rank_one(FACTORS), scale(inner, factor), stack([C, inner])])
    assert_is(A, np.vstack([OUTER, factor[:, None] * (R @ M), M, R @ M]))
    both = np.vstack([M, OUTER])
    assert_is(compose(matrix(2, 9), stack([C, lt.rank_one(FACTORS)])), matrix(2, 9) @ both)
    mixed = scale(stack([lt.rank_one(FACTORS), C]), 1j)  # its first row is real but for the factor
    assert_is(mixed, 1j * np.vstack([OUTER, M]))
    assert_is(compose(matrix(2, 9), mixed), matrix(2, 9) @ (1j * np.vstack([OUTER, M])))


def test_functions_choose_their_own_dtype():
    M = matrix(5, 6, dtype=complex) @ matrix(6)
    A = compose(function(matrix(5, 6, dtype=complex), (6,)), function(matrix(6)))
    assert A.dtype is None
    X, v = matrix(1, dtype=complex).reshape(SHAPE), vector(5, dtype=complex)
    np.testing.assert_allclose(A.forward(X), M @ X.reshape(-1), **NEAR)
    np.testing.assert_allclose(A.adjoint(v).reshape(-1), M.conj().T @ v, **NEAR)


def test_the_precision_is_that_of_the_least_precise_map():
    single = matrix(6, 7).astype(np.float32)
    for maps in ((matrix(5, 6), single, matrix(7)), (single, matrix(7)), (matrix(7, 6), single)):
        A = compose(*maps, shape=(maps[-1].shape[1],))
        assert A.dtype == np.float32
        X = np.ones(A.shape)
        assert A.forward(X).dtype == A.adjoint(np.ones(A.m)).dtype == np.float32
        factors = lt.random_tucker(A.shape, (1,), seed=0)
        assert A.forward(factors).dtype == np.float32
        assert lt.check_adjoint(A) < 1e-5
    A = compose(single, matrix(7, dtype=complex), shape=SHAPE)
    assert A.dtype == np.complex64


def test_a_blurred_tensor_is_recovered_from_blocks():
    shape, rank = (10, 9, 8), (2, 2, 2)
    smooth = np.eye(10) + 0.2 * np.eye(10, k=1) + 0.2 * np.eye(10, k=-1)
    blur = pylops.Kronecker(pylops.MatrixMult(smooth), pylops.Identity(72))
    A = compose(lt.gaussian(shape, 400, seed=1), blur, shape=shape)
    X = lt.random_tucker(shape, rank, seed=0)
    y = A.forward(X)
    blurred = np.einsum("ai,ijk->ajk", smooth, X.full())
    np.testing.assert_allclose(y, lt.gaussian(shape, 400, seed=1).forward(blurred), atol=1e-11)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for solver in ("auto", lt.StoTIHT()):
            result = lt.recover(A, y, rank, solver=solver)
            assert lt.metrics.relative_error(result.X, X) < 1e-4


@pytest.mark.parametrize(
    ("maps", "shape", "exception", "message"),
    [
        ((), None, TypeError, "at least one map"),
        (
            (matrix(4, 6), GAUSSIAN),
            None,
            ValueError,
            r"maps\[0\] \(ndarray\) takes 6 numbers, but maps\[1\] \(DenseOperator\) returns 3",
        ),
        (
            (GAUSSIAN, pylops.MatrixMult(matrix(24)), scipy.sparse.eye_array(25)),
            (5, 5),
            ValueError,
            r"maps\[1\] \(MatrixMult\) takes 24 numbers, but maps\[2\] \(dia_array\) returns 25",
        ),
        ((GAUSSIAN, matrix(24)), None, ValueError, "shape is needed"),
        ((GAUSSIAN, pylops.Identity(24)), None, ValueError, "shape is needed"),
        ((GAUSSIAN, matrix(24)), (5, 5), ValueError, r"maps\[1\] \(ndarray\) takes 24.*have 25"),
        ((matrix(2, 3), GAUSSIAN), (4, 3, 2), ValueError, r"not the shape of A's tensors"),
        ((GAUSSIAN, matrix(24)), 24, TypeError, "shape must have one entry per mode"),
        ((GAUSSIAN, np.sin), SHAPE, TypeError, r"maps\[1\] .* got a function.*FunctionOperator"),
        (
            (vector(3), GAUSSIAN),
            None,
            ValueError,
            r"maps\[0\] must have one row per output.*\(3,\)",
        ),
        (("A", GAUSSIAN), None, TypeError, r"maps\[0\] must be an array of numbers, got str"),
        ((GAUSSIAN, None), SHAPE, TypeError, r"maps\[1\] must be an array of numbers"),
        (
            (lt.gaussian((4,), 2, trials=2), matrix(4)),
            SHAPE,
            ValueError,
            r"maps\[0\] must be one operator, got a batch of \(2,\)",
        ),
    ],
)
def test_maps_that_cannot_be_composed_are_refused(maps, shape, exception, message):
    with pytest.raises(exception, match=message):
        compose(*maps, shape=shape)


def test_a_number_as_factor_becomes_an_array_of_the_kind_of_the_operator(kind):
    dense = lt.DenseOperator(kind(matrix(5)), SHAPE)
    for number in (2, np.float64(2), [2.0] * 5):
        factor = scale(dense, number).factor
        assert kind.owns(factor)
        np.testing.assert_array_equal(np.asarray(factor), np.full(5, 2.0))


def sketches(n, s, rank, dtype=float, seed=0):
    """Leave-one-out sketches of a tensor: random matrices on all modes but one."""
    rng = np.random.default_rng(seed)

    def numbers(*shape):
        x = rng.standard_normal(shape)
        return x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x

    def whole(k):
        return numbers(n[k] + 1, n[k]) if k else np.eye(n[k], dtype=dtype)

    modes = range(len(n))
    parts = [lt.kronecker([whole(k) if j == k else numbers(s, n[j]) for j in modes]) for k in modes]
    return stack(parts), lt.random_tucker(n, rank, seed=seed, dtype=np.dtype(dtype))


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize(("n", "rank"), [((12, 11, 10), (3, 2, 2)), ((9, 8), (2, 2))])
def test_sketches_start_from_the_one_pass_solution(n, rank, dtype):
    """Exact for a tensor of that rank: the adjoint of a sketch is far from it."""
    A, X = sketches(n, 4, rank, dtype)
    start = A.spectral_start(A.forward(X), rank)
    np.testing.assert_allclose(start.full(), X.full(), rtol=0, atol=1e-10 * float(X.norm()))
    lt.TuckerTensor(start.core, start.factors)  # the factors are orthonormal
    result = lt.recover(A, A.forward(X), rank)
    assert result.success
    assert result.epochs <= 1


def test_noisy_sketches_are_fitted():
    A, X = sketches((20, 20, 20), 6, (2, 2, 2))
    y = A.forward(X)
    noise = np.random.default_rng(1).standard_normal(A.m)
    y = y + 1e-3 * np.linalg.norm(y) * noise / np.linalg.norm(noise)
    start = A.spectral_start(y, (2, 2, 2))
    assert lt.metrics.relative_error(start, X) < 0.01
    result = lt.recover(A, y, (2, 2, 2), noise_std=1e-3 * np.linalg.norm(y) / A.m**0.5)
    assert lt.metrics.relative_error(result.X, X) < 2e-3


def test_sketches_that_leave_a_mode_undetermined_start_from_adjoints():
    rng = np.random.default_rng(0)
    parts = [lt.kronecker([rng.standard_normal((3, n)) for n in (6, 5, 4)]) for _ in range(2)]
    A = stack(parts)
    v = rng.standard_normal(A.m)
    expected = lt.MeasurementOperator._spectral_start(A, v, (2, 2, 2))
    np.testing.assert_array_equal(A.spectral_start(v, (2, 2, 2)).full(), expected.full())
    singular = [np.ones((6, 6)), np.eye(5), np.eye(4)]  # of rank one
    A = stack([lt.kronecker(singular), lt.kronecker(singular)])
    assert A.spectral_start(rng.standard_normal(A.m), (2, 2, 2)).rank == (2, 2, 2)
