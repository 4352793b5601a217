"""Properties of operators, problems and samplers, for any shape and any number of rows."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import lowtucker as lt

settings.register_profile("fixed", derandomize=True, max_examples=30, deadline=None, database=None)
fixed = settings.get_profile("fixed")

seeds = st.integers(0, 2**16)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
counts = st.integers(1, 9)
dtypes = st.sampled_from([np.float32, np.float64, np.complex64, np.complex128])
orders = st.sampled_from(["C", "F"])


def make(seed, shape, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        X = X + 1j * rng.standard_normal(shape)
    return X.astype(dtype)


def make_operator(name, seed, shape, m, dtype, order):
    matrix = make(seed, (m, math.prod(shape)), dtype)
    if name == "gaussian":
        return lt.gaussian(shape, m, seed, dtype=dtype)
    if name == "dense":
        return lt.DenseOperator(matrix, shape, order=order)
    if name == "tensors":
        return lt.DenseOperator(matrix.reshape(m, *shape), shape)
    matrix[np.abs(matrix) < 0.7] = 0
    return lt.SparseOperator(scipy.sparse.csr_array(matrix), shape, order=order)


names = st.sampled_from(["gaussian", "dense", "tensors", "sparse"])
operators = st.builds(make_operator, names, seeds, shapes, counts, dtypes, orders)


def tolerance(A):
    return 1000 * float(np.finfo(A.dtype).eps)


@given(operators, seeds)
@settings(fixed)
def test_adjoint_identity(A, seed):
    X, v = make(seed, A.shape, A.dtype), make(seed + 1, A.m, A.dtype)
    left, right = lt.inner(A.forward(X), v), lt.inner(X, A.adjoint(v))
    size = np.linalg.norm(A.row_norms()) * np.linalg.norm(X) * np.linalg.norm(v)
    assert abs(left - right) <= tolerance(A) * max(size, 1)
    assert A.forward(X).dtype == A.adjoint(v).dtype == A.dtype


@st.composite
def operators_and_rows(draw):
    A = draw(operators)
    one = draw(st.sampled_from(["slice", "index", "mask"]))
    if one == "slice":
        start = draw(st.integers(0, A.m - 1))
        step = draw(st.integers(1, 3))
        return A, slice(start, draw(st.integers(start + 1, A.m + 2)), step)
    if one == "index":
        return A, np.array(draw(st.lists(st.integers(0, A.m - 1), min_size=1, max_size=12)))
    mask = np.array(draw(st.lists(st.booleans(), min_size=A.m, max_size=A.m)))
    mask[draw(st.integers(0, A.m - 1))] = True
    return A, mask


@given(operators_and_rows(), seeds)
@settings(fixed)
def test_restriction_measures_those_rows(pair, seed):
    A, rows = pair
    X = make(seed, A.shape, A.dtype)
    block, expected = A.restrict(rows), A.forward(X)[rows]
    assert block.m == len(expected)
    scale = np.linalg.norm(A.row_norms()) * np.linalg.norm(X)
    np.testing.assert_allclose(
        block.forward(X), expected, rtol=0, atol=tolerance(A) * max(1, scale)
    )
    np.testing.assert_allclose(block.row_norms(), A.row_norms()[rows], rtol=tolerance(A))
    # its adjoint equals the full adjoint of a vector padded with zeros
    v = make(seed + 1, block.m, A.dtype)
    spread = np.zeros(A.m, dtype=A.dtype)
    np.add.at(spread, np.arange(A.m)[rows], v)
    np.testing.assert_allclose(
        block.adjoint(v), A.adjoint(spread), rtol=0, atol=tolerance(A) * max(1, 10 * scale)
    )


@given(seeds, shapes, counts, dtypes)
@settings(fixed)
def test_column_major_rows_measure_the_transposed_tensor(seed, shape, m, dtype):
    matrix, X = make(seed, (m, math.prod(shape)), dtype), make(seed + 1, shape, dtype)
    column_major = X.ravel(order="F")
    expected = np.array(
        [sum(a * x for a, x in zip(row, column_major, strict=True)) for row in matrix]
    )
    for A in (
        lt.DenseOperator(matrix, shape, order="F"),
        lt.SparseOperator(scipy.sparse.csr_array(matrix), shape, order="F"),
        lt.as_operator(matrix, shape, order="F"),
    ):
        scale = np.linalg.norm(matrix) * np.linalg.norm(X)
        np.testing.assert_allclose(A.forward(X), expected, rtol=0, atol=tolerance(A) * scale)
        assert lt.check_adjoint(A) <= tolerance(A)


@given(operators, seeds, st.booleans())
@settings(fixed)
def test_misfit_is_the_residual_and_its_adjoint(A, seed, weighted):
    X, y = make(seed, A.shape, A.dtype), make(seed + 1, A.m, A.dtype)
    w = np.abs(make(seed + 2, A.m)).astype(np.finfo(A.dtype).dtype) if weighted else None
    residual, ascent = A.misfit(X, y, w)
    expected = y - A.forward(X)
    scale = 1 + np.linalg.norm(A.row_norms()) ** 2 * (1 + np.linalg.norm(X)) * 4
    np.testing.assert_allclose(residual, expected, rtol=0, atol=tolerance(A) * scale)
    back = A.adjoint(expected if w is None else w * expected)
    np.testing.assert_allclose(ascent, back, rtol=0, atol=tolerance(A) * scale)


@given(seeds, shapes, counts, dtypes)
@settings(fixed)
def test_operator_norm_is_the_largest_singular_value(seed, shape, m, dtype):
    matrix = make(seed, (m, math.prod(shape)), dtype)
    A = lt.DenseOperator(matrix, shape)
    expected = np.linalg.norm(matrix.astype(np.complex128), 2)
    assert abs(lt.operator_norm(A) - expected) <= tolerance(A) * expected


def test_checks_pass_for_every_correct_operator():
    """Also if A*(v) nearly cancels: rounding is relative to the norm of the operator."""
    for seed in range(300):
        A = lt.gaussian((1,), 5, seed)
        assert lt.check_adjoint(A) <= tolerance(A)
        assert lt.check_restriction(A) <= tolerance(A)


@given(seeds, shapes, counts)
@settings(fixed)
def test_gaussian_normalisations_differ_by_a_factor(seed, shape, m):
    plain = lt.gaussian(shape, m, seed).matrix
    unit = lt.gaussian(shape, m, seed, normalize="unit").matrix
    frobenius = lt.gaussian(shape, m, seed, normalize="frobenius").matrix
    np.testing.assert_allclose(unit * math.sqrt(m), plain, rtol=1e-14)
    np.testing.assert_allclose(frobenius * np.linalg.norm(plain), plain, rtol=1e-13)
    stack = lt.gaussian(shape, m, seed, trials=2)
    np.testing.assert_array_equal(stack.matrix[1], lt.gaussian(shape, m, (seed, 1)).matrix)


# Samplers: unbiased for every row, by summing over all blocks


def make_problem(m, seed=0):
    A = lt.gaussian((2, 2), m, seed)
    return lt.Problem(A, np.ones(m))


def all_blocks(sampler):
    """Every block of a partition with its weight, drawn until each has occurred."""
    seen = {}
    for t in range(20_000):
        draw = sampler.draw(t, seed=3)
        seen[draw.rows.start] = draw
        if len(seen) == sampler.n_blocks:
            break
    assert len(seen) == sampler.n_blocks
    return [seen[start] for start in sorted(seen)]


@st.composite
def m_b_p(draw):
    m = draw(st.integers(1, 23))
    b = draw(st.integers(1, m))
    n_blocks = -(-m // b)
    shares = draw(st.lists(st.integers(1, 4), min_size=n_blocks, max_size=n_blocks))
    return m, b, np.array(shares) / sum(shares)


def assert_each_row_counts_once(m, p, blocks):
    """sum_i p(i) weight_i (1/b_i) [row in block i] = 1/m for every row."""
    share = np.zeros(m)
    for p_i, block in zip(p, blocks, strict=True):
        rows = np.arange(m)[block.rows]
        share[rows] += p_i * block.weight / len(rows)
    np.testing.assert_allclose(share, np.full(m, 1 / m), rtol=1e-12)


@given(m_b_p())
@settings(fixed)
def test_partition_is_unbiased_for_any_probabilities(case):
    m, b, p = case
    sampler = lt.Partition(b, p=p).bind(make_problem(m))
    assert sampler.n_blocks == len(p)
    assert_each_row_counts_once(m, p, all_blocks(sampler))


@given(m_b_p(), seeds)
@settings(fixed)
def test_partition_by_norms_is_unbiased_for_its_own_probabilities(case, seed):
    m, b, _ = case
    problem = make_problem(m, seed)
    squares = problem.A.row_norms() ** 2
    p = np.array([squares[i : i + b].sum() for i in range(0, m, b)])
    sampler = lt.Partition(b, p="norms").bind(problem)
    if p.min() > 2e-3 * p.sum():  # a block with a tiny probability would take too long to be drawn
        assert_each_row_counts_once(m, p / p.sum(), all_blocks(sampler))


@given(m_b_p(), seeds)
@settings(fixed)
def test_shuffled_draws_every_row_once_per_epoch_and_is_unbiased(case, seed):
    m, b, _ = case
    sampler = lt.Shuffled(b).bind(make_problem(m))
    for epoch in range(2):
        steps = range(epoch * sampler.n_blocks, (epoch + 1) * sampler.n_blocks)
        draws = sorted((sampler.draw(t, seed) for t in steps), key=lambda d: d.rows.start)
        np.testing.assert_array_equal(
            np.concatenate([np.arange(m)[d.rows] for d in draws]), np.arange(m)
        )
        assert_each_row_counts_once(m, np.full(len(draws), 1 / len(draws)), draws)


@given(m_b_p(), seeds, st.integers(0, 100))
@settings(fixed)
def test_random_rows_are_b_different_rows_of_weight_one(case, seed, t):
    """By symmetry each row has probability b/m, so b/m * 1/b * weight = 1/m."""
    m, b, _ = case
    draw = lt.RandomRows(b).bind(make_problem(m)).draw(t, seed)
    rows = np.arange(m)[draw.rows]
    assert len(set(rows.tolist())) == len(rows) == b
    assert draw.weight == 1
