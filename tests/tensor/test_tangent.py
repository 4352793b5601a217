"""The tangent space against brute force: every basis vector as a full tensor."""

from __future__ import annotations

import math
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowtucker as lt
from lowtucker.tensor import kernels, tangent
from lowtucker.tensor.complement import Complement

fixed = settings(derandomize=True, max_examples=40, deadline=None, database=None)

# name -> (shape, rank, dtype)
CASES = {
    "order-1": ((5,), (1,), float),
    "order-1-complex": ((4,), (1,), complex),
    "order-2": ((5, 4), (2, 2), float),
    "order-2-complex": ((4, 5), (2, 2), complex),
    "order-3": ((5, 4, 6), (2, 3, 2), float),
    "order-3-complex": ((4, 3, 5), (2, 2, 2), complex),
    "order-3-float32": ((5, 4, 6), (2, 3, 2), np.float32),
    "order-3-ones": ((4, 5, 3), (1, 1, 1), float),
    "order-3-no-arm": ((4, 3, 5), (2, 3, 2), float),
    "order-3-no-arms": ((2, 3, 2), (2, 3, 2), float),
    "order-3-size-1": ((1, 4, 3), (1, 2, 2), float),
    "order-4": ((3, 4, 2, 3), (2, 2, 1, 2), float),
    "order-4-complex": ((3, 2, 3, 2), (2, 2, 2, 2), complex),
    "order-5": ((2, 3, 2, 3, 2), (1, 2, 2, 2, 1), float),
    "order-5-complex": ((2, 2, 3, 2, 2), (2, 1, 2, 1, 2), complex),
}
# unattainable ranks, and rank-deficient cores
UNATTAINABLE = {
    "order-1": ((5,), (3,), float),
    "order-2": ((5, 4), (3, 2), float),
    "order-3": ((5, 4, 6), (1, 1, 2), float),
    "order-3-complex": ((4, 3, 5), (3, 1, 2), complex),
    "order-4": ((3, 5, 2, 3), (1, 4, 1, 2), float),
}


def numbers(rng, shape, dtype=float):
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def tucker(shape, rank, dtype=float, seed=0):
    """A tensor of norm one and any rank, including unattainable ones."""
    rng = np.random.default_rng(seed)
    core = numbers(rng, rank, dtype)
    core = (core / np.linalg.norm(core)).astype(dtype)
    factors = [
        np.linalg.qr(numbers(rng, (n, r), dtype))[0] for n, r in zip(shape, rank, strict=True)
    ]
    return lt.TuckerTensor(core, factors)


def deficient(shape, rank, dtype=float, seed=0):
    """A tensor whose core of any size has rank one in every mode."""
    X = tucker(shape, rank, dtype, seed)
    return lt.TuckerTensor(lt.hosvd(X.core, (1,) * len(rank)).full(), X.factors)


def basis(T):
    """Every basis vector as a full tensor: (N, dof)."""
    unit = np.eye(T.dof, dtype=T.X.core.dtype)
    return np.stack([T.full(unit[i]).reshape(-1) for i in range(T.dof)], axis=1)


def times(core, matrices):
    for k, U in enumerate(matrices):
        core = np.moveaxis(np.tensordot(U, core, axes=(1, k)), 0, k)
    return core


def jacobian(X):
    """Derivatives by every entry of the core and of the factors: they span the tangent space."""
    columns = []
    for i in range(math.prod(X.rank)):
        dS = np.zeros(math.prod(X.rank), dtype=X.core.dtype)
        dS[i] = 1
        columns.append(times(dS.reshape(X.rank), X.factors))
    for k, (n, r) in enumerate(zip(X.shape, X.rank, strict=True)):
        for a, j in np.ndindex(n, r):
            dU = np.zeros((n, r), dtype=X.core.dtype)
            dU[a, j] = 1
            columns.append(times(X.core, [*X.factors[:k], dU, *X.factors[k + 1 :]]))
    return np.stack([c.reshape(-1) for c in columns], axis=1)


def tolerance(dtype):
    return 2e-5 if np.dtype(dtype) == np.float32 else 1e-12


def close(a, b, dtype=float, factor=1.0):
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=0, atol=factor * tolerance(dtype))


def assert_orthonormal(X):
    """The constructor checks what ``trusted`` does not."""
    lt.TuckerTensor(X.core, X.factors)


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


# the basis


@pytest.mark.parametrize("name", CASES)
def test_basis_is_orthonormal_and_spans_the_derivatives(name):
    shape, rank, dtype = CASES[name]
    T = lt.TangentSpace(tucker(shape, rank, dtype))
    assert T.dof == lt.degrees_of_freedom(shape, rank)
    E = basis(T)
    close(E.conj().T @ E, np.eye(T.dof, dtype=dtype), dtype)
    if dtype is not np.float32:
        J = jacobian(T.X)
        assert np.linalg.matrix_rank(J, tol=1e-10) == T.dof
        close(E @ (E.conj().T @ J), J, dtype)


@pytest.mark.parametrize("X", [tucker(*case) for case in (*CASES.values(), *UNATTAINABLE.values())])
def test_basis_vectors_formed_together_are_those_formed_one_by_one(X):
    T = lt.TangentSpace(X)
    together = T.basis()
    assert together.dtype == X.core.dtype
    assert together.shape == (T.dof, *X.shape)
    close(together.reshape(T.dof, -1).T, basis(T), X.core.dtype)


@pytest.mark.parametrize("name", UNATTAINABLE)
def test_unattainable_ranks(name):
    shape, rank, dtype = UNATTAINABLE[name]
    T = lt.TangentSpace(tucker(shape, rank, dtype))
    E = basis(T)
    assert T.dof < math.prod(rank) + sum(r * (n - r) for n, r in zip(shape, rank, strict=True))
    close(E.conj().T @ E, np.eye(T.dof, dtype=dtype), dtype)
    close(T.full(T.here), T.X.full(), dtype)
    close(E @ (E.conj().T @ jacobian(T.X)), jacobian(T.X), dtype)
    Z = numbers(np.random.default_rng(3), shape, dtype)
    close(T.coordinates(Z), E.conj().T @ Z.reshape(-1), dtype, 10)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize(
    ("shape", "rank"), [((5, 4), (2, 2)), ((5, 4, 6), (2, 3, 2)), ((3, 3, 3, 3), (2, 2, 2, 2))]
)
def test_rank_deficient_cores(shape, rank, dtype):
    for X in (deficient(shape, rank, dtype), tucker(shape, rank, dtype) * 0.0):
        T = lt.TangentSpace(X)
        assert T.dof == lt.degrees_of_freedom(shape, rank)
        E = basis(T)
        close(E.conj().T @ E, np.eye(T.dof, dtype=dtype), dtype)
        close(E @ (E.conj().T @ jacobian(X)), jacobian(X), dtype)
        close(T.full(T.here), X.full())
        Z = numbers(np.random.default_rng(3), shape, dtype)
        close(T.coordinates(Z), E.conj().T @ Z.reshape(-1), dtype, 10)
        again = T.coordinates(T.full(T.coordinates(Z)))
        close(again, T.coordinates(Z), dtype, 10)


# coordinates and projection


def test_coordinates_are_the_projection(case, rng):
    shape, rank, dtype = case
    T = lt.TangentSpace(tucker(shape, rank, dtype))
    E = basis(T)
    Z = numbers(rng, shape, dtype)
    got = T.coordinates(Z)
    assert got.dtype == np.dtype(dtype)
    close(got, E.conj().T @ Z.reshape(-1), dtype, 10)
    stack = numbers(rng, (2, 3, *shape), dtype)
    got = T.coordinates(stack)
    assert got.shape == (2, 3, T.dof)
    close(got, stack.reshape(2, 3, -1) @ E.conj(), dtype, 10)


def test_coordinates_of_a_tucker_tensor_are_those_of_the_full_one(case):
    shape, rank, dtype = case
    T = lt.TangentSpace(tucker(shape, rank, dtype))
    for other in (rank, (1,) * len(rank), shape):
        Z = tucker(shape, other, dtype, seed=5)
        close(T.coordinates(Z), T.coordinates(Z.full()), dtype)


def test_projection_is_idempotent_and_self_adjoint(case, rng):
    shape, rank, dtype = case
    T = lt.TangentSpace(tucker(shape, rank, dtype))
    Z, W = numbers(rng, shape, dtype), numbers(rng, shape, dtype)
    c = T.coordinates(Z)
    close(T.coordinates(T.full(c)), c, dtype, 10)
    PZ, PW = T.full(c), T.full(T.coordinates(W))
    assert np.vdot(PZ, W) == pytest.approx(np.vdot(Z, PW), abs=100 * tolerance(dtype))
    assert np.linalg.norm(PZ) <= np.linalg.norm(Z) * (1 + tolerance(dtype))
    assert float(np.linalg.norm(c)) == pytest.approx(np.linalg.norm(PZ), rel=tolerance(dtype))


def test_complex_tensors_at_a_real_point(rng):
    T = lt.TangentSpace(tucker((4, 3, 5), (2, 2, 2)))
    Z = numbers(rng, (4, 3, 5), complex)
    close(T.coordinates(Z), T.coordinates(Z.real) + 1j * T.coordinates(Z.imag))


def test_point_is_tangent_at_itself(case):
    shape, rank, dtype = case
    T = lt.TangentSpace(tucker(shape, rank, dtype))
    assert T.here.shape == (T.dof,)
    assert T.here.dtype == np.dtype(dtype)
    close(T.full(T.here), T.X.full(), dtype)
    close(T.coordinates(T.X), T.here, dtype)
    close(T.coordinates(T.X.full()), T.here, dtype)


def test_parts_and_tensor(case, rng):
    shape, rank, dtype = case
    T = lt.TangentSpace(tucker(shape, rank, dtype))
    c = numbers(rng, T.dof, dtype)
    parts = T.split(c)
    assert [p.shape for p in parts] == list(T.blocks)
    assert parts[0].shape == rank
    np.testing.assert_array_equal(np.concatenate([p.reshape(-1) for p in parts]), c)
    Z = T.tensor(c)
    assert all(r <= min(2 * s, n + s) for r, s, n in zip(Z.rank, rank, shape, strict=True))
    close(Z.full(), (basis(T) @ c).reshape(shape), dtype, 20)
    close(T.tensor(c, here=-2.0).full(), Z.full() - 2 * T.X.full(), dtype, 20)
    assert float(Z.norm()) == pytest.approx(np.linalg.norm(c), rel=tolerance(dtype))


def test_factors_of_a_tangent_vector_are_orthonormal(case, rng):
    """Also if D_k is rank-deficient: columns of zeros, n_k < 2 r_k."""
    shape, rank, dtype = case
    T = lt.TangentSpace(tucker(shape, rank, dtype))
    assert_orthonormal(T.tensor(numbers(rng, T.dof, dtype)))
    for i in range(T.dof):
        assert_orthonormal(T.tensor(np.eye(T.dof, dtype=dtype)[i]))


def test_empty_batch_has_no_coordinates():
    T = lt.TangentSpace(tucker((4, 5, 3), (2, 2, 2)))
    assert T.coordinates(np.ones((2, 0, 4, 5, 3))).shape == (2, 0, T.dof)


# retraction


def test_retraction_is_the_hosvd_of_the_sum(case, rng):
    shape, rank, dtype = case
    X = tucker(shape, rank, dtype)
    T = lt.TangentSpace(X)
    directions = [numbers(rng, T.dof, dtype), *np.eye(T.dof, dtype=dtype)[:: max(1, T.dof // 7)]]
    for c in directions:
        for length in (1e-3, 0.3):
            got = T.retract(length * c)
            expected = lt.hosvd(X.full() + T.full(length * c), rank)
            assert got.rank == rank
            assert got.dtype == np.dtype(dtype)
            assert_orthonormal(got)
            close(got.full(), expected.full(), dtype, 20)


def test_retraction_of_zero_is_the_point(case):
    shape, rank, dtype = case
    X = tucker(shape, rank, dtype)
    T = lt.TangentSpace(X)
    close(T.retract(np.zeros(T.dof, dtype=dtype)).full(), X.full(), dtype)


@pytest.mark.parametrize("name", ["order-2", "order-3-complex", "order-4", "order-5"])
def test_retraction_is_of_second_order(name, rng):
    shape, rank, dtype = CASES[name]
    X = tucker(shape, rank, dtype)
    T = lt.TangentSpace(X)
    c = numbers(rng, T.dof, dtype)
    c = c / np.linalg.norm(c)
    lengths = np.array([3e-4, 1e-3, 3e-3])
    errors = [np.linalg.norm(T.retract(t * c).full() - X.full() - t * T.full(c)) for t in lengths]
    slope = np.polyfit(np.log(lengths), np.log(errors), 1)[0]
    assert slope == pytest.approx(2, abs=0.1)


def test_steps_along_the_core_are_exact(rng):
    X = tucker((5, 4, 6), (2, 3, 2))
    T = lt.TangentSpace(X)
    c = numbers(rng, T.dof)
    c[12:] = 0
    close(T.retract(c).full(), X.full() + T.full(c))


@pytest.mark.parametrize("length", [0.0, 1e-9, 0.1])
def test_retraction_at_a_rank_deficient_core(length, rng):
    """Its factors are orthonormal, and the tensor is a valid result of the HOSVD."""
    X = deficient((5, 4, 6), (2, 2, 2))
    T = lt.TangentSpace(X)
    c = length * numbers(rng, T.dof)
    got = T.retract(c)
    assert_orthonormal(got)
    if length != 1e-9:
        close(got.full(), lt.hosvd(X.full() + T.full(c), X.rank).full())
    assert np.linalg.norm(got.full() - X.full()) <= 20 * length + 1e-12
    lt.TangentSpace(got)


def test_retraction_at_zero_has_orthonormal_factors():
    T = lt.TangentSpace(tucker((5, 4, 6), (2, 2, 2)) * 0.0)
    for c in 0.1 * np.eye(T.dof):
        assert_orthonormal(T.retract(c))


# complements


def orthonormal(n, r, dtype=float, seed=0):
    return np.linalg.qr(numbers(np.random.default_rng(seed), (n, r), dtype))[0]


COMPLEMENTS = {
    "tall": orthonormal(9, 2),
    "complex": orthonormal(7, 3, complex),
    "square": orthonormal(4, 4),
    "square-complex": orthonormal(3, 3, complex),
    "one": np.ones((1, 1)),
    "minus-one": -np.ones((1, 1)),
    "short": orthonormal(5, 3),
    "short-complex": orthonormal(5, 4, complex),
    "column": orthonormal(6, 1),
    "identity": np.eye(6, 3),
    "minus-identity": -np.eye(6, 3),
    "zero-top": np.eye(6)[:, 3:],
    "zero-top-mixed": np.vstack([np.zeros((2, 2)), orthonormal(4, 2)]),
    "singular-top": np.eye(6)[:, [0, 4, 5]],
    "singular-top-complex": 1j * np.eye(5)[:, [4, 0]],
    "nearly-singular-top": np.linalg.qr(np.eye(6)[:, 3:] + 1e-9 * orthonormal(6, 3))[0],
}


@pytest.mark.parametrize("name", COMPLEMENTS)
def test_complement_completes_to_a_unitary_matrix(name, rng):
    U = COMPLEMENTS[name]
    n, r = U.shape
    complement = Complement.of(U)
    assert complement.reflected.shape == (n, r)
    assert complement.inverse.shape == (r, r)
    full = complement.times(np.eye(n - r, dtype=U.dtype))
    assert full.shape == (n, n - r)
    Q = np.hstack([U, full])
    close(Q.conj().T @ Q, np.eye(n, dtype=U.dtype))
    B = numbers(rng, (2, n, 4), U.dtype)
    close(complement.coordinates(B), full.conj().T @ B)
    close(complement.coordinates(B[0]), full.conj().T @ B[0])
    D = numbers(rng, (n - r, 3), U.dtype)
    close(complement.times(D), full @ D)


def test_complement_is_never_formed():
    n, r = 20_000, 3
    U = orthonormal(n, r)
    tracemalloc.start()
    try:
        complement = Complement.of(U)
        D = complement.coordinates(U @ np.ones((r, 2)))
        back = complement.times(D)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.abs(D).max() < 1e-12
    assert np.abs(back).max() < 1e-12
    assert peak < 20 * n * r * 8


def test_large_space_takes_little_memory():
    n = 3000
    X = tucker((n, n, 2), (2, 2, 2))
    tracemalloc.start()
    try:
        T = lt.TangentSpace(X)
        back = T.coordinates(T.retract(1e-3 * T.here))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    close(back, 1.001 * T.here)
    assert peak < 100 * n * 2 * 8  # n x n would be 9e6 numbers


# arguments


def test_batch_of_two_axes_is_rejected():
    X = lt.random_tucker((4, 3, 5), (2, 2, 2), seed=0, trials=6)
    two = X._map(lambda x: x.reshape(2, 3, *x.shape[1:]))
    with pytest.raises(ValueError, match=r"X must be .* one leading axis, got \(2, 3\)\."):
        lt.TangentSpace(two)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize(
    ("shape", "rank"),
    [((6,), (1,)), ((6, 7), (2, 2)), ((5, 5, 6), (1, 2, 2)), ((4, 5, 3, 6), (2, 3, 2, 2)),
     ((4, 3, 5), (4, 2, 2)), ((6, 4, 3), (2, 2, 2))],
)  # fmt: skip
@pytest.mark.parametrize(("cache", "entries"), [(1 << 20, 10**4), (1 << 9, 10**4), (1 << 9, 0)])
def test_batch_is_its_spaces(shape, rank, dtype, cache, entries, rng, monkeypatch):
    """The same rows for all spaces, others for each, tensors, retraction.

    Tiles of any size; the last or the first mode first.
    """
    monkeypatch.setattr(kernels, "CACHE_BYTES", cache)
    monkeypatch.setattr(tangent, "MANY_ENTRIES", entries)
    X = lt.random_tucker(shape, rank, seed=3, trials=3, dtype=np.dtype(dtype))
    T = lt.TangentSpace(X)
    shared, own = numbers(rng, (7, *shape), dtype), numbers(rng, (3, 7, *shape), dtype)
    c = numbers(rng, (3, T.dof), dtype)
    moved, step = T.retract(c), T.tensor(c)
    first = T._begins_with_first
    assert first == (not entries and len(shape) > 2 and rank[0] < shape[0] >= shape[-1])
    for k in range(3):
        one = lt.TangentSpace(X.trial(k))
        full = np.stack([one.full(e) for e in np.eye(T.dof, dtype=dtype)]).reshape(T.dof, -1)
        close(T.rows_coordinates(shared)[k], shared.reshape(7, -1) @ full.conj().T)
        for space in (one, T.take(k), T.take([2, k]).take(1)):
            close(T.rows_coordinates(shared)[k], space.rows_coordinates(shared))
            close(T.rows_coordinates(own)[k], space.rows_coordinates(own[k]))
            close(T.coordinates(own[:, 0])[k], space.coordinates(own[k, 0]))
            close(T.coordinates(step)[k], c[k])
            close(T.here[k], space.here)
            close(moved.trial(k).full(), space.retract(c[k]).full())
            close(step.trial(k).full(), space.full(c[k]))


def test_repr():
    X = tucker((5, 5, 6), (1, 2, 2))
    assert repr(lt.TangentSpace(X)) == f"TangentSpace of dimension 22 at {X!r}"


@pytest.mark.parametrize("shape", [(5, 4, 3), (4, 5, 4), (5, 3)])
def test_tensors_of_another_shape_are_rejected(shape):
    """(5, 4, 3) has as many entries as (4, 5, 3): it must not be accepted."""
    T = lt.TangentSpace(tucker((4, 5, 3), (2, 2, 2)))
    message = f"Z must have the shape of X, (4, 5, 3), got {shape}."
    with pytest.raises(ValueError, match=re.escape(message)):
        T.coordinates(np.ones(shape))


def test_batch_of_tucker_tensors_is_rejected_but_its_full_tensors_are_accepted():
    T = lt.TangentSpace(tucker((4, 5, 3), (2, 2, 2)))
    Z = lt.random_tucker((4, 5, 3), (2, 2, 2), seed=1, trials=3)
    with pytest.raises(ValueError, match=r"got \(3, 4, 5, 3\)\. Give one tensor for each"):
        T.coordinates(Z)
    got = T.coordinates(Z.full())
    for k in range(3):
        close(got[k], T.coordinates(Z.trial(k)))


@pytest.mark.parametrize("more", [-1, 1])
def test_vectors_of_another_length_are_rejected(more):
    T = lt.TangentSpace(tucker((4, 5, 3), (2, 2, 2)))
    message = rf"c must have shape \({T.dof},\), one .* got \({T.dof + more},\)"
    with pytest.raises(ValueError, match=message):
        T.tensor(np.zeros(T.dof + more))


# every kind of array


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_every_kind_of_array(kind, dtype, rng):
    if kind.name == "jax" and dtype is not np.float64:
        pytest.skip("compiling takes seconds, and one dtype shows what there is to see")
    shape, rank = (4, 3, 5), (2, 2, 2)
    X = tucker(shape, rank, dtype)
    there = lt.TuckerTensor(kind(X.core), [kind(U) for U in X.factors])
    T, reference = lt.TangentSpace(there), lt.TangentSpace(X)
    assert T.dof == reference.dof
    Z, c = numbers(rng, (2, *shape), dtype), numbers(rng, T.dof, dtype)
    moved = kind(c)
    got = T.coordinates(kind(Z))
    assert kind.owns(got)
    # bases may differ by signs between SVDs; the projection does not
    for i in range(2):
        projected = T.full(got[i, :])
        assert kind.owns(projected)
        expected = reference.full(reference.coordinates(Z[i]))
        close(np.asarray(projected), expected, dtype, 20)
    assert kind.owns(T.here)
    close(np.asarray(T.full(T.here)), X.full(), dtype)
    for Y in (T.tensor(moved), T.retract(moved)):
        assert all(kind.owns(part) for part in (Y.core, *Y.factors))
    xi = np.asarray(T.full(moved))
    close(np.asarray(T.retract(moved).full()), lt.hosvd(X.full() + xi, rank).full(), dtype, 30)
    close(np.asarray(T.coordinates(T.tensor(moved))), c, dtype, 20)


@pytest.mark.parametrize(
    ("shape", "rank"), [((5,), (1,)), ((4, 3), (2, 2)), ((3, 2, 2), (3, 2, 2))]
)
def test_every_kind_of_array_in_other_orders(kind, shape, rank, rng):
    if kind.name == "jax":
        pytest.skip("compiling takes seconds, and one order shows what there is to see")
    X = tucker(shape, rank)
    T = lt.TangentSpace(lt.TuckerTensor(kind(X.core), [kind(U) for U in X.factors]))
    c = numbers(rng, T.dof)
    close(np.asarray(T.coordinates(T.full(kind(c)))), c)
    close(np.asarray(T.retract(kind(np.zeros(T.dof))).full()), X.full())


# any shape and rank


@st.composite
def points(draw):
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple))
    rank = tuple(draw(st.integers(1, n)) for n in shape)
    dtype = draw(st.sampled_from([float, complex]))
    make = draw(st.sampled_from([tucker, deficient]))
    return make(shape, rank, dtype, seed=draw(st.integers(0, 2**16)))


@given(points(), st.integers(0, 2**16))
@fixed
def test_coordinates_of_any_space_are_orthonormal(X, seed):
    T = lt.TangentSpace(X)
    rng = np.random.default_rng(seed)
    Z, c = numbers(rng, X.shape, X.dtype), numbers(rng, T.dof, X.dtype)
    assert T.dof <= math.prod(X.shape)
    if lt.multilinear_rank(X) == X.rank:
        assert T.dof == lt.degrees_of_freedom(X.shape, X.rank)
    xi = T.full(c)
    # isometry, adjoint, inverse on the space, and membership of the point
    assert np.linalg.norm(xi) == pytest.approx(np.linalg.norm(c), rel=1e-12)
    assert np.vdot(xi, Z) == pytest.approx(np.vdot(c, T.coordinates(Z)), abs=1e-11)
    close(T.coordinates(xi), c, factor=10)
    close(T.coordinates(T.tensor(c)), c, factor=10)
    close(T.full(T.here), X.full())
    if lt.attainable_rank(X.rank) == X.rank:
        got = T.retract(0.1 * c)
        expected = lt.hosvd(X.full() + 0.1 * xi, X.rank)
        close(got.full(), expected.full(), factor=1e4)
