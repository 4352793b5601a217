"""The operator contract, over every operator in cases.OPERATORS."""

from __future__ import annotations

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest

import lowtucker as lt
from cases import OPERATORS, SHAPE, SLOW
from lowtucker.operators.wrapped import RestrictedOperator


@pytest.fixture(params=OPERATORS)
def name(request):
    return request.param


@pytest.fixture
def A(name):
    with warnings.catch_warnings():
        if name in SLOW:  # tested by test_a_slow_restriction_warns_once
            warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        yield OPERATORS[name]()


MATRICES = {}


@pytest.fixture
def matrix(name, A):
    """The matrix of the operator, measured once for all tests."""
    if name not in MATRICES:
        MATRICES[name] = matrix_of(A)
        MATRICES[name].flags.writeable = False
    return MATRICES[name]


def tensor_dtype(A):
    return np.dtype(np.float64 if A.dtype is None else A.dtype)


def random_tensor(A, rng, batch=None):
    shape = (*(A.batch_shape if batch is None else batch), *A.shape)
    X = rng.standard_normal(shape)
    if tensor_dtype(A).kind == "c":
        X = X + 1j * rng.standard_normal(shape)
    X = X.astype(tensor_dtype(A))
    X.flags.writeable = False
    return X


def random_measurements(A, rng):
    y = A.forward(random_tensor(A, rng))
    v = rng.standard_normal(y.shape)
    if y.dtype.kind == "c":
        v = v + 1j * rng.standard_normal(y.shape)
    v = v.astype(y.dtype)
    v.flags.writeable = False
    return v


def tolerance(A):
    return 1e-5 if tensor_dtype(A).itemsize == 4 else 1e-12


def units(A):
    N = int(np.prod(A.shape))
    return np.eye(N, dtype=tensor_dtype(A)).reshape(N, *A.shape)


def matrix_of(A):
    """The matrix of the operator, one column for each unit tensor: (*batch, m, N)."""
    columns = [A.forward(np.broadcast_to(unit, A.batch_shape + A.shape)) for unit in units(A)]
    return np.stack(columns, axis=-1)


def matrix_at_once(A):
    """The same from a batch of all unit tensors, see test_leading_axes_are_a_batch."""
    return matrix_of(A) if A.batch_shape else A.forward(units(A)).T


def test_adjoint_is_the_conjugate_transpose_of_forward(A, matrix, rng):
    v = random_measurements(A, rng)
    expected = (np.swapaxes(matrix.conj(), -1, -2) @ v[..., None])[..., 0]
    if tensor_dtype(A).kind != "c":
        expected = expected.real
    got = A.adjoint(v)
    assert got.dtype == tensor_dtype(A)
    np.testing.assert_allclose(
        got.reshape(expected.shape), expected, rtol=0, atol=100 * tolerance(A)
    )


def test_public_checks_pass(A):
    assert lt.check_adjoint(A) <= tolerance(A)
    assert lt.check_restriction(A) <= tolerance(A)


def test_forward_is_linear(A, rng):
    X, W = random_tensor(A, rng), random_tensor(A, rng)
    together = A.forward(2 * X - W)
    apart = 2 * A.forward(X) - A.forward(W)
    np.testing.assert_allclose(together, apart, rtol=0, atol=100 * tolerance(A))


@pytest.mark.parametrize(
    "rows", [slice(0, 2), slice(1, None, 2), np.array([2, 0, 1, 1]), "mask"], ids=str
)
def test_restriction_measures_those_rows(A, matrix, rows, rng):
    if A.m == 1:
        pytest.skip("one row")
    if isinstance(rows, str):
        rows = np.arange(A.m) % 3 == 1
    X = random_tensor(A, rng)
    block = A.restrict(rows)
    np.testing.assert_allclose(
        block.forward(X), A.forward(X)[..., rows], rtol=0, atol=10 * tolerance(A)
    )
    np.testing.assert_allclose(matrix_at_once(block), matrix[..., rows, :], atol=tolerance(A))
    assert lt.check_adjoint(block) <= tolerance(A)


def test_adjoints_of_blocks_sum_to_the_adjoint(A, rng):
    v = random_measurements(A, rng)
    rows = [slice(i, i + 3) for i in range(0, A.m, 3)]
    total = sum(A.restrict(r).adjoint(v[..., r]) for r in rows)
    np.testing.assert_allclose(total, A.adjoint(v), rtol=0, atol=100 * tolerance(A))


def test_tucker_input_equals_full_input(A, rng):
    rank = tuple(min(2, n) for n in A.shape) if len(A.shape) > 1 else (1,)
    trials = A.batch_shape[0] if A.batch_shape else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.RankWarning)
        X = lt.random_tucker(A.shape, rank, seed=1, dtype=tensor_dtype(A), trials=trials)
    np.testing.assert_allclose(A.forward(X), A.forward(X.full()), rtol=0, atol=100 * tolerance(A))


def test_misfit_is_residual_and_weighted_adjoint(A, rng):
    X, y = random_tensor(A, rng), random_measurements(A, rng)
    weights = rng.uniform(0.5, 2, A.m).astype(y.real.dtype)
    for w in (None, weights):
        residual, ascent = A.misfit(X, y, w)
        expected = y - A.forward(X)
        np.testing.assert_allclose(residual, expected, rtol=0, atol=100 * tolerance(A))
        scaled = expected if w is None else w * expected
        np.testing.assert_allclose(ascent, A.adjoint(scaled), rtol=0, atol=1000 * tolerance(A))
        assert ascent.dtype == tensor_dtype(A)


def tangent_space(A):
    rank = tuple(min(2, n) for n in A.shape) if len(A.shape) > 1 else (1,)
    rank = lt.attainable_rank(rank)
    return lt.TangentSpace(lt.random_tucker(A.shape, rank, seed=1, dtype=tensor_dtype(A)))


def test_designs_of_a_batch_of_spaces(A, rng):
    """One operator for all spaces, or one for each: the design of every space."""
    count, largest = (A.batch_shape or (3,))[0], min(2, len(A.shape))
    rank = tuple(min(largest, n) for n in A.shape)
    if len(A.batch_shape) > 1:
        pytest.skip("spaces have one leading axis")
    X = lt.random_tucker(A.shape, rank, seed=1, trials=count, dtype=tensor_dtype(A))
    T, near = lt.TangentSpace(X), {"rtol": 0, "atol": 1000 * tolerance(A)}
    D, y = A.tangent(T), np.stack([random_measurements(A.trial(0), rng) for _ in range(count)])
    y = np.stack([np.where(np.arange(A.m) < A.trial(k).m, y[k], 0) for k in range(count)])
    weights = rng.uniform(0, 2, y.shape).astype(np.finfo(y.dtype).dtype)
    c = T.coordinates(X.full() + 1)
    assert c.shape == (count, T.dof)
    misfit, equations = D.misfit(y, weights), D.normal_equations(y, weights)
    products = D.matvec(c), D.rmatvec(y), D.dense(), *misfit, *equations
    for k in range(count):
        m, w = A.trial(k).m, weights[k]
        single = A.trial(k).tangent(T.take(k))
        expected = (
            single.matvec(c[k]), single.rmatvec(y[k, :m]), single.dense(),
            *single.misfit(y[k, :m], w[:m]), *single.normal_equations(y[k, :m], w[:m]),
        )  # fmt: skip
        for got, one in zip(products, expected, strict=True):
            inside = tuple(slice(0, n) for n in one.shape)  # short blocks are padded
            np.testing.assert_allclose(np.asarray(got)[k][inside], one, **near)


def test_tangent_design_measures_the_basis(A, matrix, rng):
    if A.batch_shape:
        pytest.skip("a batch: test_designs_of_a_batch_of_spaces")
    T = tangent_space(A)
    D = A.tangent(T)
    assert D.shape == (A.m, T.dof)
    unit = np.eye(T.dof, dtype=tensor_dtype(A))
    expected = matrix @ np.stack([T.full(e).reshape(-1) for e in unit], axis=1)
    dense = D.dense()
    assert dense.dtype == expected.dtype
    near = {"rtol": 0, "atol": 100 * tolerance(A)}
    np.testing.assert_allclose(dense, expected, **near)
    blocks = list(D.rows())
    assert [rows.start for rows, _ in blocks] == [0, *(rows.stop for rows, _ in blocks[:-1])]
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), dense)
    c, y = T.coordinates(random_tensor(A, rng)), random_measurements(A, rng)
    np.testing.assert_allclose(D.matvec(c), expected @ c, **near)
    np.testing.assert_allclose(D.matvec(T.here), A.forward(T.X), **near)
    back = expected.conj().T @ y
    back = back if tensor_dtype(A).kind == "c" else back.real
    np.testing.assert_allclose(D.rmatvec(y), back, **near)
    assert D.rmatvec(y).dtype == tensor_dtype(A)


def test_normal_equations_are_those_of_the_dense_design(A, rng):
    if A.batch_shape:
        pytest.skip("a batch has no tangent design")
    T = tangent_space(A)
    D = A.tangent(T)
    dense, y = D.dense(), random_measurements(A, rng)
    weights = rng.uniform(0, 2, A.m).astype(y.real.dtype)
    weights[0] = 0
    for w in (None, weights):
        gram, gradient, residual = D.normal_equations(y, w)
        scaled = dense if w is None else w[:, None] * dense
        r = y - A.forward(T.X)
        expected = [dense.conj().T @ scaled, scaled.conj().T @ r]
        if tensor_dtype(A).kind != "c":
            expected = [part.real for part in expected]
        assert gram.dtype == gradient.dtype == tensor_dtype(A)
        assert residual.dtype == y.dtype
        for got, want in zip((gram, gradient, residual), (*expected, r), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1000 * tolerance(A))
        np.testing.assert_allclose(
            gradient, D.rmatvec(r if w is None else w * r), rtol=0, atol=1000 * tolerance(A)
        )


def test_leading_axes_are_a_batch(A, rng):
    if A.batch_shape:
        pytest.skip("a batch already")
    X = random_tensor(A, rng, batch=(2, 3))
    out = A.forward(X)
    assert out.shape == (2, 3, A.m)
    np.testing.assert_allclose(out[1, 2], A.forward(X[1, 2]), rtol=0, atol=10 * tolerance(A))
    back = A.adjoint(out)
    np.testing.assert_allclose(back[0, 1], A.adjoint(out[0, 1]), rtol=0, atol=100 * tolerance(A))


def test_row_norms_are_those_of_the_matrix(A, matrix):
    expected = np.linalg.norm(matrix, axis=-1)
    np.testing.assert_allclose(A.row_norms(), expected, rtol=10 * tolerance(A))


def test_inputs_are_not_changed(A, rng):
    X = random_tensor(A, rng).copy()
    before = X.copy()
    y = A.forward(X)
    copy = y.copy()
    A.adjoint(y)
    A.misfit(X, y)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(y, copy)


def test_pickles(A, rng):
    X = random_tensor(A, rng)
    again = pickle.loads(pickle.dumps(A))
    np.testing.assert_array_equal(again.forward(X), A.forward(X))


def test_wrong_shapes_say_what_was_expected(A):
    name = type(A).__name__
    with pytest.raises(ValueError, match=rf"{name}\.forward expects X of shape .*got \(7, 9\)"):
        A.forward(np.zeros((7, 9)))
    with pytest.raises(ValueError, match=rf"{name}\.adjoint expects v of shape .*{A.m}\), got"):
        A.adjoint(np.zeros(A.m + 1))
    with pytest.raises(TypeError, match="X must be an array of numbers"):
        A.forward("tensor")


def test_wrong_rows_say_what_was_expected(A):
    with pytest.raises(ValueError, match=rf"rows must be from 0 to {A.m - 1}, got values from -1"):
        A.restrict(np.array([-1]))
    with pytest.raises(ValueError, match="rows selects none"):
        A.restrict(slice(3, 3))
    with pytest.raises(TypeError, match="rows must be a slice, a 1-D integer array"):
        A.restrict(np.array([0.5]))


def test_repr_names_the_measurements(A):
    assert f"{A.m} measurements of tensors of shape {A.shape}" in repr(A)


def overrides(A, hook):
    return getattr(type(A), hook) is not getattr(lt.MeasurementOperator, hook)


def test_declared_traits_agree_with_the_hooks(name, A, rng):
    traits = A.traits
    assert isinstance(traits, lt.Traits)
    assert not (traits.row_separable and name in SLOW)
    if traits.row_separable:
        assert overrides(A, "_restrict")
        with warnings.catch_warnings():
            warnings.simplefilter("error", lt.SlowOperatorWarning)
            assert not isinstance(A.restrict(slice(0, 1)), RestrictedOperator)
    if traits.has_fast_tangent:
        assert overrides(A, "_tangent")
    if not traits.forms_full_tensor:
        assert traits.has_fast_tangent, "the tangent design of the base class forms adjoints"
        assert overrides(A, "_spectral_start")
    if traits.supports_batch:
        X = random_tensor(A, rng, batch=A.batch_shape or (2,))
        assert A._forward(X).shape == (*X.shape[:1], A.m)


LARGE = (400, 400, 400)  # one tensor is 512 MB


def large(kind):
    rng = np.random.default_rng(0)
    if kind == "entries":
        return lt.entries(LARGE, rng.integers(0, LARGE, (2000, 3)))
    if kind == "kronecker":
        return lt.kronecker([rng.standard_normal((12, n)) for n in LARGE])
    if kind == "separable transform":
        return lt.subsampled_transform(LARGE, 2000, signs=False)
    return lt.stack([large("entries"), large("kronecker")])


@pytest.mark.parametrize("kind", ["entries", "kronecker", "separable transform", "stack"])
@pytest.mark.parametrize(
    "wrap", [lambda A: A, lambda A: lt.scale(A, 2.0), lambda A: A.in_units(3)], ids=["", "x2", "u3"]
)
def test_operators_that_form_no_full_tensor_stay_below_its_memory(kind, wrap):
    A = wrap(large(kind))
    assert not A.traits.forms_full_tensor
    X = lt.random_tucker(LARGE, (2, 2, 2), seed=0)
    tracemalloc.start()
    y = A.forward(X)
    A.spectral_start(y, (2, 2, 2))
    A.tangent(lt.TangentSpace(X)).misfit(y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


@pytest.mark.parametrize(
    "A",
    [
        lt.gaussian(SHAPE, 4),
        lt.rank_one([np.ones((5, n)) for n in SHAPE]),
        lt.scale(lt.gaussian(SHAPE, 4), 2.0),
        lt.gaussian(SHAPE, 4).in_units(3),
        lt.stack([lt.gaussian(SHAPE, 4), lt.gaussian(SHAPE, 5)]),
        lt.gaussian(SHAPE, 4).restrict(slice(2)),
    ],
    ids=lambda A: type(A).__name__,
)
def test_operators_whose_start_forms_the_full_adjoint_declare_it(A):
    assert A.traits.forms_full_tensor


@pytest.mark.parametrize("wrap", [lambda A: A, lambda A: lt.scale(A, 2.0)], ids=["", "scaled"])
def test_rank_one_rows_of_a_tensor_that_exceeds_memory_are_refused_before_any_work(wrap):
    """The start forms the adjoint, 1.7 TB, which the memory check must include."""
    rng = np.random.default_rng(0)
    A = wrap(lt.rank_one([rng.standard_normal((60, 6000)) for _ in range(3)]))
    with pytest.raises(MemoryError, match=r"would need about 6\.91 TB beside A"):
        lt.recover(A, np.ones(60), rank=(1, 1, 1))


@pytest.mark.parametrize("name", sorted(SLOW))
def test_a_slow_restriction_warns_once(name):
    A = OPERATORS[name]()
    with pytest.warns(lt.SlowOperatorWarning, match="every block costs all the rows") as caught:
        A.restrict(slice(0, 2))
    assert len(caught) == 1
    assert caught[0].filename == __file__, "the warning should point at the caller's line"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            A.restrict(slice(0, 2)).restrict(slice(0, 1))
