"""Mode-wise measurements, against Kronecker products made by NumPy."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.operators.kronecker import KroneckerOperator, ModewiseOperator, kronecker
from lowtucker.solvers.auto import automatic

# sizes of the result, shape of the tensors, rank
PLAIN = {
    "wide": ((2, 3, 2), (5, 4, 6), (2, 3, 2)),
    "tall": ((6, 5, 7), (5, 4, 6), (2, 2, 2)),
    "a mode of full rank": ((2, 3, 4), (2, 4, 5), (2, 2, 3)),
    "a mode of one": ((3, 2, 4), (4, 1, 5), (2, 1, 2)),
    "order 1": ((4,), (6,), (1,)),
    "order 2": ((4, 3), (6, 5), (2, 2)),
    "order 4": ((2, 3, 2, 2), (3, 4, 2, 5), (2, 3, 2, 2)),
}


def numbers(shape, seed=0, dtype=float):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if dtype is complex else x


def matrices(sizes, columns, dtype=float):
    pairs = zip(sizes, columns, strict=True)
    return [numbers(pair, seed, dtype) for seed, pair in enumerate(pairs)]


def kron(factors):
    return functools.reduce(np.kron, factors)


@pytest.fixture(params=PLAIN.values(), ids=PLAIN.keys())
def case(request):
    return request.param


@pytest.fixture(params=[float, complex])
def dtype(request):
    return request.param


def test_the_matrix_is_the_kronecker_product(case, dtype):
    sizes, shape, _ = case
    factors = matrices(sizes, shape, dtype)
    A, K = kronecker(factors), kron(factors)
    assert isinstance(A, KroneckerOperator)
    assert (A.m, A.shape) == (len(K), shape)
    X, v = numbers(shape, 7, dtype), numbers(A.m, 8, dtype)
    np.testing.assert_allclose(A.forward(X), K @ X.ravel(), atol=1e-12)
    np.testing.assert_allclose(A.adjoint(v).ravel(), K.conj().T @ v, atol=1e-12)
    np.testing.assert_allclose(A.row_norms(), np.linalg.norm(K, axis=1), rtol=1e-13)


def test_a_block_has_outer_products_of_rows(case, dtype):
    sizes, shape, _ = case
    factors = matrices(sizes, shape, dtype)
    rows = np.array([3, 0, 3, 2])
    block = kronecker(factors).restrict(rows)
    assert [F.shape for F in block.factors] == [(4, n) for n in shape]
    X = numbers(shape, 7, dtype)
    np.testing.assert_allclose(block.forward(X), kron(factors)[rows] @ X.ravel(), atol=1e-12)


def design(factors, T, dtype):
    """D by its definition: the Kronecker product times every basis vector."""
    basis = [T.full(e).ravel() for e in np.eye(T.dof, dtype=dtype)]
    return kron(factors) @ np.stack(basis, axis=1)


def refused(self):
    raise AssertionError("made in full")


@pytest.mark.parametrize("real_tensors", [False, True], ids=["", "real tensors"])
def test_normal_equations_in_closed_form(case, dtype, real_tensors, monkeypatch):
    sizes, shape, rank = case
    factors, field = matrices(sizes, shape, dtype), float if real_tensors else dtype
    A, T = kronecker(factors), lt.TangentSpace(lt.random_tucker(shape, rank, seed=3, dtype=field))
    D, y, w = design(factors, T, field), numbers(A.m, 8, dtype), np.arange(A.m) / A.m
    X = T.X.full().ravel()
    # complex measurements of real tensors: the real part is what counts
    part = np.real if real_tensors else np.asarray
    near = {"rtol": 0, "atol": 1e-11 * np.linalg.norm(kron(factors), 2) ** 2}
    weighted = A.tangent(T).normal_equations(y, w)
    np.testing.assert_allclose(weighted.gram, part(D.conj().T @ (w[:, None] * D)), **near)
    monkeypatch.setattr(type(A.tangent(T)), "rows", refused)
    gram, gradient, residual = A.tangent(T).normal_equations(y)
    np.testing.assert_allclose(gram, part(D.conj().T @ D), **near)
    np.testing.assert_allclose(residual, y - kron(factors) @ X, **near)
    np.testing.assert_allclose(gradient, part(D.conj().T @ residual), **near)


def test_products_with_the_design(case, dtype):
    sizes, shape, rank = case
    factors = matrices(sizes, shape, dtype)
    A, T = kronecker(factors), lt.TangentSpace(lt.random_tucker(shape, rank, seed=3, dtype=dtype))
    D, r, w = design(factors, T, dtype), numbers(A.m, 8, dtype), np.arange(A.m) / A.m
    c, near = numbers(T.dof, 9, dtype), {"rtol": 0, "atol": 1e-11}
    got = A.tangent(T)
    np.testing.assert_allclose(got.dense(), D, **near)
    np.testing.assert_allclose(got.matvec(c), D @ c, **near)
    np.testing.assert_allclose(got.rmatvec(r), D.conj().T @ r, **near)
    residual, gradient = got.misfit(r, w)
    np.testing.assert_allclose(residual, r - kron(factors) @ T.X.full().ravel(), **near)
    np.testing.assert_allclose(gradient, D.conj().T @ (w * residual), rtol=0, atol=1e-10)


def test_the_rows_of_a_design_come_in_chunks():
    factors = matrices((9, 8, 10), (5, 4, 6))
    T = lt.TangentSpace(lt.random_tucker((5, 4, 6), (2, 2, 2), seed=3))
    blocks = list(kronecker(factors).tangent(T).rows())
    assert [(rows.start, rows.stop) for rows, _ in blocks] == [(0, 512), (512, 720)]
    D = np.concatenate([block for _, block in blocks])
    np.testing.assert_allclose(D, design(factors, T, float), rtol=0, atol=1e-11)


def test_the_start_is_the_hosvd_of_the_adjoint(case, dtype):
    """Also where a mode is measured fewer times than its rank."""
    sizes, shape, rank = case
    v = numbers(int(np.prod(sizes)), 8, dtype)
    for some in (sizes, (1, *sizes[1:])):
        factors, u = matrices(some, shape, dtype), v[: int(np.prod(some))]
        expected = lt.hosvd((kron(factors).conj().T @ u).reshape(shape), rank, warn=False)
        start = kronecker(factors).spectral_start(u, rank)
        assert start.rank == rank
        lt.TuckerTensor(start.core, start.factors)  # the factors are orthonormal
        np.testing.assert_allclose(start.full(), expected.full(), rtol=0, atol=1e-10)


def test_nothing_of_the_size_of_the_tensor_is_allocated():
    """The full tensor would have 8 petabytes."""
    n = 100_000
    A = kronecker(matrices((3, 2, 1), (n, n, n)))
    X = lt.random_tucker((n, n, n), (2, 2, 2), seed=0)
    y = A.forward(X)
    assert A.restrict(np.array([4])).forward(X) == pytest.approx(y[4])
    design = A.tangent(lt.TangentSpace(X))
    residual, gradient = design.misfit(y)
    assert np.abs(residual).max() < 1e-12 * np.abs(y).max()
    assert gradient.shape == (design.T.dof,)
    np.testing.assert_allclose(design.matvec(design.T.here), y)
    start = A.spectral_start(y, (3, 2, 2))  # all of the adjoint, and one more in the last mode
    index = np.array([[0, 0, 0], [5, 1, 2]])
    at = [F[:, index[:, k]] for k, F in enumerate(A.factors)]
    expected = np.einsum("abc,ai,bi,ci->i", y.reshape(3, 2, 1), *at)
    np.testing.assert_allclose(start.entries(index), expected)


def test_batches_of_tensors():
    factors = matrices((2, 3, 2), (5, 4, 6))
    A, K = kronecker(factors), kron(factors)
    X = lt.random_tucker((5, 4, 6), (2, 2, 2), seed=0, trials=3)
    expected = X.full().reshape(3, -1) @ K.T
    two_steps = kronecker(factors, final=numbers((7, 12), 4))
    np.testing.assert_allclose(A.forward(X), expected, atol=1e-12)
    np.testing.assert_allclose(two_steps.forward(X), expected @ two_steps.final.T, atol=1e-11)
    starts = A.spectral_start(expected, (2, 2, 2))
    for k in range(3):
        one = lt.hosvd((K.T @ expected[k]).reshape(5, 4, 6), (2, 2, 2))
        np.testing.assert_allclose(starts.trial(k).full(), one.full(), rtol=0, atol=1e-9)


# sizes of the result, columns, shape of the tensors, the modes of each matrix
GROUPED = {
    "pairs": ((5, 4), (6, 6), (2, 3, 3, 2), ((0, 1), (2, 3))),
    "first two": ((5, 2), (6, 4), (2, 3, 4), ((0, 1), (2,))),
    "last two": ((2, 5), (2, 12), (2, 3, 4), ((0,), (1, 2))),
    "all": ((7,), (24,), (2, 3, 4), ((0, 1, 2),)),
    "modes of one": ((2, 3), (2, 3), (1, 2, 1, 3, 1), ((0, 1), (2, 3, 4))),
    "each alone": ((2, 2, 3), (2, 3, 4), (2, 3, 4), ((0,), (1,), (2,))),
}


@pytest.fixture(params=GROUPED.values(), ids=GROUPED.keys())
def grouped(request):
    return request.param


@pytest.mark.parametrize("rows", [None, 6, 30], ids=["one step", "final", "tall final"])
def test_two_steps(grouped, dtype, rows, monkeypatch):
    sizes, columns, shape, groups = grouped
    factors = matrices(sizes, columns, dtype)
    K, final = kron(factors), None
    if rows is not None:
        final = numbers((rows, len(K)), 9, dtype)
        K = final @ K
    A = kronecker(factors, shape, final)
    assert (A.m, A.shape) == (len(K), shape)
    X, v = numbers(shape, 7, dtype), numbers(A.m, 8, dtype)
    near = {"rtol": 0, "atol": 1e-11}
    np.testing.assert_allclose(A.forward(X), K @ X.ravel(), **near)
    np.testing.assert_allclose(A.adjoint(v).ravel(), K.conj().T @ v, rtol=0, atol=1e-10)
    np.testing.assert_allclose(A.row_norms(), np.linalg.norm(K, axis=1), rtol=1e-12)
    for some in (slice(1, 6, 2), np.array([3, 0, 3, 2])):
        block = A.restrict(some)
        np.testing.assert_allclose(block.forward(X), K[some] @ X.ravel(), **near)
        np.testing.assert_allclose(block.row_norms(), np.linalg.norm(K[some], axis=1), rtol=1e-12)
    if isinstance(A, ModewiseOperator):
        assert A.groups == groups
        assert not A.traits.has_fast_tangent
    rank = lt.attainable_rank(tuple(min(2, n) for n in shape))
    T = lt.random_tucker(shape, rank, seed=0, dtype=dtype)
    x = T.full().ravel()
    monkeypatch.setattr(lt.TuckerTensor, "full", refused)  # measured by its factors
    np.testing.assert_allclose(A.forward(T), K @ x, **near)
    np.testing.assert_allclose(block.forward(T), K[some] @ x, **near)


def test_kronecker_chooses_the_class():
    factors = matrices((2, 2), (3, 4))
    assert type(kronecker(factors, (3, 4))) is KroneckerOperator
    assert type(kronecker(factors, (3, 2, 2))) is ModewiseOperator
    assert type(kronecker(factors, final=np.ones((1, 4)))) is ModewiseOperator


def test_the_matrices_get_one_dtype():
    real, other = np.ones((2, 3)), 1j * np.ones((2, 4))
    assert kronecker([real, other]).dtype == complex
    assert kronecker([real.astype(np.float32), np.ones((2, 4))]).dtype == np.float64
    A = kronecker([real, np.ones((2, 4))], final=1j * np.ones((3, 4)))
    assert A.dtype == complex
    assert A.first.dtype == complex
    assert kronecker([np.ones((2, 3), dtype=int)]).dtype == np.float64


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", ["auto", "rgn", "rcg"])
def test_recovers(weighted, solver):
    sizes, shape, rank = (10, 9, 8), (7, 6, 5), (2, 2, 2)
    rng = np.random.default_rng(0)
    A = kronecker([rng.standard_normal(pair) for pair in zip(sizes, shape, strict=True)])
    X = lt.random_tucker(shape, rank, seed=0)
    weights = rng.uniform(0.5, 2, A.m) if weighted else None
    result = lt.recover(A, A.forward(X), rank, weights=weights, solver=solver)
    assert result.success
    assert lt.metrics.relative_error(result.X, X) < 1e-4


def test_auto_uses_no_blocks():
    """A block of 1000 rows costs more than D^* D of all of them in closed form."""
    problem = lt.Problem(kronecker(matrices((10, 9, 8), (7, 6, 5))), np.ones(720))
    assert [type(one) for one in automatic(problem, (2, 2, 2))] == [lt.RGN]


def test_some_rows_of_square_matrices_recover():
    shape, rank = (15, 15, 15), (2, 2, 2)
    rng = np.random.default_rng(0)
    A = kronecker([rng.standard_normal((n, n)) for n in shape])
    A = A.restrict(rng.choice(A.m, 400, replace=False))
    X = lt.random_tucker(shape, rank, seed=0)
    result = lt.recover(A, A.forward(X), rank)
    assert result.success
    assert lt.metrics.relative_error(result.X, X) < 1e-5


def test_a_mode_with_fewer_measurements_than_entries_is_no_success():
    """512 measurements for 116 degrees of freedom, but the null space of A_k is not measured."""
    shape, rank = (20, 20, 20), (2, 2, 2)
    A = kronecker(matrices((8, 8, 8), shape))
    X = lt.random_tucker(shape, rank, seed=0)
    result = lt.recover(A, A.forward(X), rank)
    assert result.residual < 1e-6
    assert result.status is lt.Status.UNDERDETERMINED
    assert not result.success


def test_recovers_from_two_steps():
    shape, rank = (6, 5, 5, 6), (2, 1, 1, 2)
    factors = matrices((18, 18), (30, 30))
    A = kronecker(factors, shape, final=numbers((150, 324), 9) / 18)
    X = lt.random_tucker(shape, rank, seed=0)
    result = lt.recover(A, A.forward(X), rank)
    assert result.success
    assert lt.metrics.relative_error(result.X, X) < 1e-5


ONES = np.ones((2, 3))


@pytest.mark.parametrize(
    ("arguments", "exception", "message"),
    [
        ((ONES,), TypeError, r"matrices must be a list of matrices.*got ndarray.*\[matrix\]"),
        (([],), TypeError, "matrices must be a list of matrices"),
        (([ONES, np.ones(3)],), ValueError, r"matrices\[1\] must be a matrix.*\(3,\)"),
        (([np.ones((0, 3))],), ValueError, r"matrices\[0\] must be a matrix with entries"),
        (([ONES, np.full((2, 3), np.nan)],), ValueError, r"matrices\[1\] has NaN"),
        (([np.full((2, 3), "a")],), TypeError, r"matrices\[0\] must be an array of numbers"),
        (([ONES, ONES], (3, 4)), ValueError, r"matrices\[1\] has 3 columns.*from 1 on give 4\."),
        (([ONES, ONES], (2, 2, 3)), ValueError, r"matrices\[0\] has 3.*from 0 on give 2, 4, 12"),
        (([ONES, ONES], (3,)), ValueError, r"matrices\[1\] has 3 columns.*no modes are left"),
        (([ONES], (3, 4)), ValueError, r"first 1 modes of shape \(3, 4\) only.*eye"),
        (([ONES], 3), TypeError, r"shape must have one entry per mode"),
        (([ONES, ONES], None, np.ones((4, 5))), ValueError, r"final must have 4 columns.*\(4, 5\)"),
        (([ONES], None, np.ones(2)), ValueError, "final must be a matrix"),
        (([ONES], None, [[1.0, np.inf]]), ValueError, "final has NaN or infinite"),
    ],
)
def test_bad_arguments_are_refused(arguments, exception, message):
    with pytest.raises(exception, match=message):
        kronecker(*arguments)


def test_kinds_are_not_mixed():
    strict = pytest.importorskip("array_api_strict")
    given = strict.asarray(ONES)
    with pytest.raises(TypeError, match=r"matrices\[1\] is a array_api_strict.*Convert one"):
        kronecker([ONES, given])
    with pytest.raises(TypeError, match=r"final is a array_api_strict"):
        kronecker([ONES], final=given)
