"""Every operator of cases.OPERATORS inside every wrapper: what is passed on, and by which rules."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace

import numpy as np
import pytest

import lowtucker as lt
from cases import OPERATORS
from lowtucker.operators.combined import FULL
from lowtucker.operators.wrapped import RestrictedOperator

ROWS = {1: [0, 0], 4: [3, 0, 3]}


def tensor_dtype(A):
    return np.dtype(np.float64 if A.dtype is None else A.dtype)


def factors(m):
    return np.linspace(0.5, 2, m)


def rows_of(m):
    return np.array(ROWS.get(m, [m - 1, 0, 2, 2]))


def beside(A):
    """Gaussian rows to stack with A, of its dtype."""
    return lt.gaussian(A.shape, 3, seed=9, dtype=tensor_dtype(A))


def measured(A):
    """Matrix of the operator, by one forward of all unit tensors."""
    size = int(np.prod(A.shape))
    units = np.eye(size, dtype=tensor_dtype(A)).reshape(size, *A.shape)
    return A.forward(units).T


# name -> (how to wrap A, matrix of the wrapped operator from that of A)
WRAPPERS = {
    "scale": (lambda A: lt.scale(A, factors(A.m)), lambda A, M: factors(A.m)[:, None] * M),
    "stack-twice": (lambda A: lt.stack([A, A]), lambda A, M: np.vstack([M, M])),
    "stack-gaussian": (
        lambda A: lt.stack([A, beside(A)]),
        lambda A, M: np.vstack([M, beside(A).matrix]),
    ),
    "rows": (lambda A: RestrictedOperator(A, rows_of(A.m)), lambda A, M: M[rows_of(A.m)]),
    "compose": (lambda A: lt.compose(np.eye(A.m), A), lambda A, M: M),
    "units": (lambda A: A.in_units(7), lambda A, M: 2.0**7 * M),
}


@functools.cache
def operator(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        return OPERATORS[name]()


@functools.cache
def matrix(name):
    return measured(operator(name))


SINGLE = [name for name in OPERATORS if not operator(name).batch_shape]
BATCHES = [name for name in OPERATORS if operator(name).batch_shape]


@pytest.fixture(params=SINGLE)
def name(request):
    return request.param


@pytest.fixture(params=WRAPPERS)
def wrapper(request):
    return request.param


@pytest.fixture
def A(name):
    return operator(name)


@pytest.fixture
def W(A, wrapper):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        yield WRAPPERS[wrapper][0](A)


@pytest.fixture
def wrapped(A):
    """A in every wrapper, for what is checked faster than a test is started."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        yield {wrapper: wrap(A) for wrapper, (wrap, _) in WRAPPERS.items()}


@pytest.fixture
def expected(A, name, wrapper):
    return WRAPPERS[wrapper][1](A, matrix(name))


def tolerance(A):
    return 1e-4 if tensor_dtype(A).itemsize == 4 else 1e-11


def near(A, expected):
    """Tolerances relative to the largest entry."""
    return {"rtol": 0, "atol": tolerance(A) * max(1.0, float(np.abs(expected).max()))}


def test_forward_and_adjoint_are_those_of_the_wrapped_matrix(A, W, expected, rng):
    assert (W.shape, W.m, W.batch_shape) == (A.shape, len(expected), ())
    np.testing.assert_allclose(measured(W), expected, **near(A, expected))
    X = rng.standard_normal(A.shape).astype(tensor_dtype(A))
    v, linear = W.forward(X), expected @ X.reshape(-1)
    np.testing.assert_allclose(v, linear, **near(A, linear))
    back = (expected.conj().T @ v).reshape(A.shape)
    back = back if tensor_dtype(A).kind == "c" else back.real
    got = W.adjoint(v)
    assert got.dtype == tensor_dtype(A)
    np.testing.assert_allclose(got, back, **near(A, back))
    norms = np.linalg.norm(expected, axis=1)
    np.testing.assert_allclose(W.row_norms(), norms, **near(A, norms))
    assert W.complex_rows == np.iscomplexobj(expected)


def test_restriction_measures_those_rows(A, name, wrapped):
    for wrapper, W in wrapped.items():
        if W.m == 1:
            continue
        expected = WRAPPERS[wrapper][1](A, matrix(name))
        for rows in (slice(1, None, 2), np.array([1, 0, 1])):
            np.testing.assert_allclose(
                measured(W.restrict(rows)), expected[rows], **near(A, expected), err_msg=wrapper
            )


def test_tucker_input_equals_full_input_and_the_design_measures_the_basis(A, W, expected):
    rank = lt.attainable_rank(tuple(min(2, n) for n in A.shape) if len(A.shape) > 1 else (1,))
    T = lt.TangentSpace(lt.random_tucker(A.shape, rank, seed=1, dtype=tensor_dtype(A)))
    full = expected @ T.X.full().reshape(-1)
    np.testing.assert_allclose(W.forward(T.X), full, **near(A, full))
    units = np.eye(T.dof, dtype=tensor_dtype(A))
    D = expected @ np.stack([T.full(e).reshape(-1) for e in units], axis=1)
    design = W.tangent(T)
    np.testing.assert_allclose(design.dense(), D, **near(A, D))
    np.testing.assert_allclose(design.matvec(T.here), full, **near(A, full))
    back = D.conj().T @ full
    back = back if tensor_dtype(A).kind == "c" else back.real
    np.testing.assert_allclose(design.rmatvec(W.forward(T.X)), back, **near(A, back))


def combined(wrapper, A):
    """Traits of a wrapped operator, by the table of WrappedOperator."""
    own = A.traits
    if wrapper == "rows":
        fast = own.has_fast_row_norms
        return lt.Traits(isotropic=own.isotropic, supports_batch=True, has_fast_row_norms=fast)
    if wrapper == "compose":
        return lt.Traits(row_separable=True, isotropic=False, supports_batch=True)
    if wrapper.startswith("stack"):
        large = int(np.prod(A.shape)) > FULL
        forms = own.forms_full_tensor or wrapper == "stack-gaussian" or not large
        return replace(own, forms_full_tensor=forms, supports_batch=True)
    return replace(own, supports_batch=True)


def test_traits_follow_the_rules(A, wrapped):
    assert {wrapper: W.traits for wrapper, W in wrapped.items()} == {
        wrapper: combined(wrapper, A) for wrapper in WRAPPERS
    }


def kinds(found):
    return {(one.kind, one.numbers.get("mode"), one.numbers.get("slices")) for one in found}


def test_findings_are_passed_on(A, wrapped):
    rank = (1,) * len(A.shape)
    own = A.diagnose(rank)
    found = {wrapper: W.diagnose(rank) for wrapper, W in wrapped.items()}
    mask = np.isin(np.arange(A.m), rows_of(A.m))
    twice, unsampled = ({one for one in kinds(some) if one[0] == "unsampled"}
                        for some in (found.pop("stack-twice"), own))  # fmt: skip
    assert twice == unsampled
    assert found == {
        "scale": own,
        "stack-gaussian": [one for one in own if one.kind == "duplicates"],  # samples every slice
        "rows": A.diagnose(rank, mask),
        "compose": [],
        "units": own,
    }


@pytest.mark.parametrize("name", list(OPERATORS))
@pytest.mark.parametrize("power", [7, -3, 0])
def test_units_change_no_digit(name, power, rng):
    A = operator(name)
    W = A.in_units(power)
    X = rng.standard_normal((*A.batch_shape, *A.shape)).astype(tensor_dtype(A))
    y = A.forward(X)
    np.testing.assert_array_equal(W.forward(X), 2.0**power * y)
    np.testing.assert_array_equal(W.adjoint(y), 2.0**power * A.adjoint(y))
    assert W.traits == replace(A.traits, supports_batch=A.traits.supports_batch or power != 0)
    assert (W is A) == (power == 0)


@pytest.mark.parametrize("name", BATCHES)
def test_units_of_a_batch_select_arrange_and_restrict_its_problems(name, rng):
    A = operator(name)
    W, trials = A.in_units(5), A.batch_shape[0]
    X = rng.standard_normal((trials, *A.shape))
    y = A.forward(X)
    np.testing.assert_array_equal(W.select([1, 0]).forward(X[[1, 0]]), 32 * y[[1, 0]])
    rows = tuple([k, 1] for k in range(trials))
    block = W.restrict(tuple(map(np.array, rows)))
    some = np.stack([y[k, one] for k, one in enumerate(rows)])
    np.testing.assert_allclose(block.forward(X), 32 * some, atol=1e-10)
    arranged = block.arranged((1, trials))
    np.testing.assert_allclose(arranged.forward(X[None])[0], 32 * some, atol=1e-10)
    np.testing.assert_array_equal(W.count, A.count)


# A new operator is one class; nothing else changes


class Fibres(lt.MeasurementOperator):
    """Sums along the last mode at some positions: two hooks, row-separable."""

    traits = lt.Traits(row_separable=True)

    def __init__(self, shape, at):
        self.shape, self.m, self.at = shape, len(at), np.asarray(at)

    def _forward(self, X):
        return X.sum(axis=-1).ravel()[self.at]

    def _adjoint(self, v):
        picture = np.zeros(int(np.prod(self.shape[:-1])))
        np.add.at(picture, self.at, v)
        return np.repeat(picture, self.shape[-1]).reshape(self.shape)

    def _restrict(self, rows):
        return Fibres(self.shape, self.at[rows])


TOY = Fibres((4, 5, 3), np.random.default_rng(0).permutation(20)[:14])


@pytest.mark.parametrize("kind", WRAPPERS)
def test_a_toy_operator_works_in_every_wrapper(kind):
    wrap, expect = WRAPPERS[kind]
    W, expected = wrap(TOY), expect(TOY, measured(TOY))
    np.testing.assert_allclose(measured(W), expected, atol=1e-12)
    assert lt.check_adjoint(W) < 1e-12
    assert lt.check_restriction(W) < 1e-12
    assert W.traits == combined(kind, TOY)
    assert W.diagnose((1, 1, 1)) == []
    assert W.entry_samples() is None


def test_a_toy_operator_is_recovered_from_alone_and_wrapped():
    shape = (6, 5, 4)
    X_true = lt.random_tucker(shape, (1, 1, 1), seed=0)
    toy = Fibres(shape, np.arange(30))
    A = lt.stack([lt.scale(toy, 2.0), lt.gaussian(shape, 40, seed=1)])
    for power in (1, 2.0**300):
        result = lt.recover(A, power * A.forward(X_true), rank=(1, 1, 1))
        assert result.success
        assert lt.metrics.relative_error(result.X, power * X_true.full()) < 1e-5
    alone = lt.recover(toy, toy.forward(X_true), rank=(1, 1, 1), max_epochs=50)
    assert alone.residual < 1e-6  # the sums are fitted, but do not determine the last mode
    assert not alone.success
