"""Equations (3.2) and (4.3) by plain loops over the measurements."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import lowtucker as lt

SHAPE = (3, 2, 2)
M = 11


def measured(A_j, X):
    """<A_j, X> = sum over all elements; a complex A_j is conjugated, so the row of A is A_j^*."""
    return sum(np.conj(A_j[index]) * X[index] for index in itertools.product(*map(range, SHAPE)))


def loop_objective(tensors, y, X, rows, weights=None):
    total = 0.0
    for j in rows:
        w = 1.0 if weights is None else weights[j]
        total += w * abs(y[j] - measured(tensors[j], X)) ** 2
    return total / (2 * len(rows))


def loop_gradient(tensors, y, X, rows, weights=None):
    gradient = np.zeros(SHAPE, dtype=np.result_type(tensors, y, X))
    for j in rows:
        w = 1.0 if weights is None else weights[j]
        gap = measured(tensors[j], X) - y[j]
        for index in itertools.product(*map(range, SHAPE)):
            gradient[index] += w * tensors[j][index] * gap
    return gradient / len(rows)


def draw(rng, shape, dtype):
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x


class Case:
    """Sensing tensors, data and a point; the operator gets its rows from the tensors."""

    def __init__(self, dtype, weighted, seed=0, m=M):
        rng = np.random.default_rng(seed)
        self.tensors = draw(rng, (m, *SHAPE), dtype)
        self.y = draw(rng, (m,), dtype)
        self.X = draw(rng, SHAPE, dtype)
        self.weights = rng.uniform(0.1, 3.0, m) if weighted else None
        self.problem = lt.Problem(lt.DenseOperator(self.tensors.conj()), self.y, self.weights)

    def objective(self, rows=None, X=None):
        rows = range(len(self.y)) if rows is None else rows
        X = self.X if X is None else X
        return loop_objective(self.tensors, self.y, X, rows, self.weights)

    def gradient(self, rows=None):
        rows = range(len(self.y)) if rows is None else rows
        return loop_gradient(self.tensors, self.y, self.X, rows, self.weights)


@pytest.fixture(params=[np.float64, np.complex128], ids=["real", "complex"])
def dtype(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["unweighted", "weighted"])
def case(request, dtype):
    return Case(dtype, request.param)


def test_objective_and_cost_are_the_sums_over_the_measurements(case):
    assert case.problem.objective(case.X) == pytest.approx(case.objective(), rel=1e-13)
    assert case.problem.cost(case.X) == pytest.approx(M * case.objective(), rel=1e-13)


def test_norm_of_a_residual_is_the_root_of_twice_its_cost(case):
    size = case.problem.weighted_norm(case.problem.residual(case.X))
    assert size**2 / 2 == pytest.approx(case.problem.cost(case.X), rel=1e-13)


def test_residual_is_y_minus_the_inner_products(case):
    expected = [y - measured(A, case.X) for y, A in zip(case.y, case.tensors, strict=True)]
    np.testing.assert_allclose(case.problem.residual(case.X), expected, rtol=0, atol=1e-13)
    root = np.sqrt(np.ones(M) if case.weights is None else case.weights)
    relative = np.linalg.norm(root * expected) / np.linalg.norm(root * case.y)
    assert case.problem.relative_residual(case.X) == pytest.approx(relative, rel=1e-13)


def test_gradient_is_the_weighted_sum_of_the_sensing_tensors(case):
    np.testing.assert_allclose(case.problem.gradient(case.X), case.gradient(), rtol=0, atol=1e-13)


def test_residual_and_gradient_together_match_the_separate_ones(case):
    residual, gradient = case.problem.residual_and_gradient(case.X)
    np.testing.assert_allclose(residual, case.problem.residual(case.X), rtol=0, atol=1e-13)
    np.testing.assert_allclose(gradient, case.gradient(), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "rows", [range(0, 4), range(8, 11), range(10, 11), [7, 0, 3], [2, 2, 5]], ids=str
)
def test_block_averages_over_its_own_length(case, rows):
    """Blocks of 4 out of 11 measurements: the last has three."""
    wanted = slice(rows.start, rows.stop) if isinstance(rows, range) else np.array(rows)
    block = case.problem.block(wanted)
    assert block.objective(case.X) == pytest.approx(case.objective(rows), rel=1e-13)
    np.testing.assert_allclose(block.gradient(case.X), case.gradient(rows), rtol=0, atol=1e-13)


def test_block_of_a_block_averages_over_its_own_length(case):
    block = case.problem.block(slice(2, 9)).block(np.array([1, 4]))
    np.testing.assert_allclose(block.gradient(case.X), case.gradient([3, 6]), rtol=0, atol=1e-13)


def test_gradient_agrees_with_central_differences(case, dtype):
    """d/dh F(X + h E) = Re <grad F, E>, for every unit tensor E (and i E)."""
    gradient, h = case.problem.gradient(case.X), 1e-5
    for index in itertools.product(*map(range, SHAPE)):
        for unit in (1.0, 1j) if np.dtype(dtype).kind == "c" else (1.0,):
            E = np.zeros(SHAPE, dtype=dtype)
            E[index] = unit
            slope = (
                case.problem.objective(case.X + h * E) - case.problem.objective(case.X - h * E)
            ) / (2 * h)
            expected = (gradient[index] * np.conj(unit)).real
            assert slope == pytest.approx(expected, rel=1e-8, abs=1e-8)


# Sensing tensors, data and tensors: real or complex
KINDS = {"rrr": (0, 0, 0), "rcr": (0, 1, 0), "rcc": (0, 1, 1), "rrc": (0, 0, 1),
         "ccc": (1, 1, 1), "ccr": (1, 1, 0), "crc": (1, 0, 1)}  # fmt: skip


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("batch", ["one", "shared", "stack", "selected", "blocks"])
def test_residual_and_gradient_in_tiles(kinds, weighted, batch, monkeypatch, rng):
    """Three rows per tile, or one, match the plain formulas."""
    monkeypatch.setattr("lowtucker.operators.tiles.TILE_BYTES", 3 * 12 * 8)
    a, d, x = ((np.float64, np.complex128)[k] for k in KINDS[kinds])
    trials = () if batch == "one" else (2,)  # as many as parts, to detect mix-ups
    matrix = draw(rng, (M, 12) if batch in ("one", "shared") else (2, M, 12), a)
    y, X = draw(rng, (*trials, M), d), draw(rng, (*trials, *SHAPE), x)
    weights = rng.uniform(0.1, 3, M) if weighted else None
    problem = lt.Problem(lt.DenseOperator(matrix, SHAPE, dtype=x), y, weights)
    rows = [np.arange(M)] * 2
    if batch == "selected":
        problem, X, matrix, y = problem.select([1, 0]), X[::-1], matrix[::-1], y[::-1]
    if batch == "blocks":
        rows = [np.arange(8), np.arange(8, M)]
        problem = problem.block((slice(0, 8), slice(8, M)))
    residual, gradient = problem.residual_and_gradient(X)
    assert gradient.dtype == x
    for k in np.ndindex(*trials):
        own = rows[k[0] if k else 0]
        A = (matrix if matrix.ndim == 2 else matrix[k])[own]
        r = y[k][own] - A @ X[k].ravel()
        w = 1.0 if weights is None else weights[own]
        expected = -(A.conj().T @ (w * r)).reshape(SHAPE) / len(own)
        expected = expected if x is np.complex128 else expected.real
        np.testing.assert_allclose(residual[k][: len(own)], r, rtol=0, atol=1e-12)
        np.testing.assert_allclose(gradient[k], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tensors", [np.float64, np.complex128], ids=["real", "complex"])
def test_one_tensor_for_a_batch_of_two_operators(tensors, rng):
    A = lt.DenseOperator(rng.standard_normal((2, M, 12)), SHAPE, dtype=tensors)
    X, y = draw(rng, SHAPE, tensors), draw(rng, (M,), np.complex128)
    residual, gradient = A.misfit(X, y, np.ones(M))
    assert residual.shape == (2, M)
    np.testing.assert_allclose(residual, y - A.forward(X), rtol=0, atol=1e-13)
    np.testing.assert_allclose(gradient, A.adjoint(y - A.forward(X)), rtol=0, atol=1e-12)


def test_real_tensor_from_complex_measurements_has_the_real_part_of_the_gradient():
    case = Case(np.complex128, weighted=True)
    A = lt.DenseOperator(case.tensors.conj(), dtype=np.dtype(np.float64))
    problem, X = lt.Problem(A, case.y, case.weights), case.X.real
    expected = loop_gradient(case.tensors, case.y, X, range(M), case.weights).real
    got = problem.gradient(X)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-13)
    assert problem.objective(X) == pytest.approx(case.objective(X=X), rel=1e-13)


@pytest.mark.parametrize("weighted", [False, True])
def test_complex_data_of_a_real_operator_have_the_real_part_of_the_gradient(weighted):
    """Real X with complex y: the inner product is its real part."""
    case = Case(np.float64, weighted)
    y = case.y + 1j * case.y[::-1]
    problem = lt.Problem(lt.DenseOperator(case.tensors), y, case.weights)
    expected = loop_gradient(case.tensors, y, case.X, range(M), case.weights).real
    np.testing.assert_allclose(problem.gradient(case.X), expected, rtol=0, atol=1e-13)
    assert problem.objective(case.X) == pytest.approx(
        loop_objective(case.tensors, y, case.X, range(M), case.weights), rel=1e-13
    )


def every_block(sampler, seed=0):
    """All blocks of a partition, drawn until each has occurred."""
    seen = {}
    for t in range(10_000):
        drawn = sampler.draw(t, seed=seed)
        seen[drawn.rows.start] = drawn
        if len(seen) == sampler.n_blocks:
            return [seen[start] for start in sorted(seen)]
    raise AssertionError(f"only {len(seen)} of {sampler.n_blocks} blocks were drawn")


@pytest.mark.parametrize("b", [1, 2, 3, 4, 5, 7, 10, 11])
@pytest.mark.parametrize("probabilities", ["uniform", "given", "norms"])
def test_expected_weighted_block_gradient_is_the_gradient_exactly(case, b, probabilities):
    """sum_i p(i) weight_i grad f_i = grad F, also if b does not divide m."""
    n_blocks = -(-M // b)
    p = np.random.default_rng(b).uniform(0.5, 2.0, n_blocks)
    p /= p.sum()
    if probabilities == "uniform":
        p, given = np.full(n_blocks, 1 / n_blocks), None
    elif probabilities == "norms":
        squares = [sum(abs(v) ** 2 for v in A.ravel()) for A in case.tensors]
        p = np.array([sum(squares[i : i + b]) for i in range(0, M, b)])
        p, given = p / p.sum(), "norms"
    else:
        given = p
    blocks = every_block(lt.Partition(b, p=given).bind(case.problem))
    assert [(block.rows.start, block.rows.stop) for block in blocks] == [
        (i, min(M, i + b)) for i in range(0, M, b)
    ]
    total = sum(
        p[i] * block.weight * case.problem.block(block.rows).gradient(case.X)
        for i, block in enumerate(blocks)
    )
    np.testing.assert_allclose(total, case.gradient(), rtol=0, atol=1e-13)


def test_weight_is_one_over_M_p_if_b_divides_m():
    """The paper's 1/(M p(i)), equation (4.3)."""
    case = Case(np.float64, weighted=False, m=12)
    p = (0.1, 0.2, 0.3, 0.4)
    for i, block in enumerate(every_block(lt.Partition(3, p=p).bind(case.problem))):
        assert block.weight == pytest.approx(1 / (4 * p[i]), rel=1e-14)


# Batches of problems


def stacked(cases):
    A = lt.DenseOperator(np.stack([c.tensors.conj().reshape(M, -1) for c in cases]), SHAPE)
    weights = None if cases[0].weights is None else np.stack([c.weights for c in cases])
    return lt.Problem(A, np.stack([c.y for c in cases]), weights)


ROWS = {
    "one-length": (slice(0, 4), slice(7, 11), np.array([3, 1, 1, 9])),
    "lengths-differ": (slice(0, 4), slice(8, 11), np.array([5])),
    "shared": slice(3, 8),
}


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_one_block_per_problem_equals_the_single_blocks(dtype, weighted, rows):
    cases = [Case(dtype, weighted, seed=k) for k in range(3)]
    X = np.stack([c.X for c in cases])
    block = stacked(cases).block(rows)
    gradient, objective = block.gradient(X), block.objective(X)
    residual, cost = block.residual(X), block.cost(X)
    for k, c in enumerate(cases):
        own = rows if isinstance(rows, slice) else rows[k]
        alone = c.problem.block(own)
        np.testing.assert_allclose(gradient[k], alone.gradient(c.X), rtol=0, atol=1e-13)
        np.testing.assert_allclose(gradient[k], c.gradient(np.arange(M)[own]), rtol=0, atol=1e-13)
        assert objective[k] == pytest.approx(alone.objective(c.X), rel=1e-12)
        assert cost[k] == pytest.approx(alone.cost(c.X), rel=1e-12)
        np.testing.assert_allclose(residual[k][: alone.m], alone.residual(c.X), rtol=0, atol=1e-13)
        assert not residual[k][alone.m :].any()  # padded with zero rows


def test_one_set_of_weights_applies_to_every_problem():
    cases = [Case(np.float64, True, seed=k) for k in range(3)]
    shared = cases[0].weights
    A = lt.DenseOperator(np.stack([c.tensors.reshape(M, -1) for c in cases]), SHAPE)
    problem = lt.Problem(A, np.stack([c.y for c in cases]), shared)
    X = np.stack([c.X for c in cases])
    for rows in ROWS.values():
        gradient = problem.block(rows).gradient(X)
        for k, c in enumerate(cases):
            own = np.arange(M)[rows if isinstance(rows, slice) else rows[k]]
            expected = loop_gradient(c.tensors, c.y, c.X, own, shared)
            np.testing.assert_allclose(gradient[k], expected, rtol=0, atol=1e-13)


def test_two_leading_axes_are_batch_axes():
    cases = [Case(np.float64, True, seed=k) for k in range(6)]
    A = lt.DenseOperator(
        np.stack([c.tensors.reshape(M, -1) for c in cases]).reshape(2, 3, M, -1), SHAPE
    )
    y = np.stack([c.y for c in cases]).reshape(2, 3, M)
    weights = np.stack([c.weights for c in cases]).reshape(2, 3, M)
    X = np.stack([c.X for c in cases]).reshape(2, 3, *SHAPE)
    problem = lt.Problem(A, y, weights)
    rows = tuple(slice(k, 2 * k + 1) for k in range(6))
    whole, block = problem.gradient(X), problem.block(rows).gradient(X)
    for k, c in enumerate(cases):
        at = divmod(k, 3)
        np.testing.assert_allclose(whole[at], c.gradient(), rtol=0, atol=1e-13)
        own = range(k, min(M, 2 * k + 1))
        np.testing.assert_allclose(block[at], c.gradient(own), rtol=0, atol=1e-13)


def test_one_operator_with_a_batch_of_tensors_and_data(case):
    """Problems with one A: different y and X, with the same or different rows."""
    rng = np.random.default_rng(9)
    y = np.stack([case.y, draw(rng, M, case.y.dtype)])
    X = np.stack([case.X, draw(rng, SHAPE, case.X.dtype)])
    problem = lt.Problem(case.problem.A, y, case.weights)
    gradient = problem.gradient(X)
    rows = (slice(0, 4), slice(6, 9))
    block = problem.block(rows).gradient(X)
    for k in range(2):
        expected = loop_gradient(case.tensors, y[k], X[k], range(M), case.weights)
        np.testing.assert_allclose(gradient[k], expected, rtol=0, atol=1e-13)
        expected = loop_gradient(case.tensors, y[k], X[k], range(M)[rows[k]], case.weights)
        np.testing.assert_allclose(block[k], expected, rtol=0, atol=1e-13)


def test_one_tensor_with_a_batch_of_data(case):
    """One start X0 for all problems: residual, cost and gradient broadcast."""
    y = np.stack([case.y, 2 * case.y])
    problem = lt.Problem(case.problem.A, y, case.weights)
    assert problem.residual(case.X).shape == (2, M)
    assert problem.cost(case.X).shape == (2,)
    gradient = problem.gradient(case.X)
    for k in range(2):
        expected = loop_gradient(case.tensors, y[k], case.X, range(M), case.weights)
        np.testing.assert_allclose(gradient[k], expected, rtol=0, atol=1e-13)


def test_weight_zero_excludes_a_measurement(case):
    weights = np.ones(M) if case.weights is None else case.weights.copy()
    weights[3] = 0
    problem = lt.Problem(case.problem.A, case.y, weights)
    rest = [j for j in range(M) if j != 3]
    expected = loop_gradient(case.tensors, case.y, case.X, rest, weights) * len(rest) / M
    np.testing.assert_allclose(problem.gradient(case.X), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_block_of_unequal_blocks_ignores_padding_rows(dtype, weighted):
    """Shorter blocks are padded with zeros, which must not be counted, at any depth."""
    cases = [Case(dtype, weighted, seed=k) for k in range(3)]
    X = np.stack([c.X for c in cases])
    own = [[0, 1, 2, 3], [8, 9, 10], [5, 6]]
    block = stacked(cases).block((slice(0, 4), slice(8, 11), np.array([5, 6])))
    for rows in (slice(0, 3), np.array([3, 1, 0]), (slice(1, 3), np.array([2]), slice(0, 4))):
        inner = block.block(rows)
        for problem, order in ((inner, (0, 1, 2)), (inner.select([2, 0]), (2, 0))):
            gradient, objective = (
                problem.gradient(X[list(order)]),
                problem.objective(X[list(order)]),
            )
            for position, k in enumerate(order):
                chosen = np.arange(4)[rows[k] if isinstance(rows, tuple) else rows]
                left = [own[k][i] for i in chosen if i < len(own[k])]
                expected = loop_gradient(cases[k].tensors, cases[k].y, X[k], left, cases[k].weights)
                np.testing.assert_allclose(gradient[position], expected, rtol=0, atol=1e-13)
                expected = loop_objective(
                    cases[k].tensors, cases[k].y, X[k], left, cases[k].weights
                )
                assert objective[position] == pytest.approx(expected, rel=1e-12)
    again = block.block(np.array([3, 0])).block(slice(1, 2))
    assert again.objective(X)[2] == pytest.approx(
        loop_objective(cases[2].tensors, cases[2].y, X[2], [5], cases[2].weights)
    )
    with pytest.raises(
        ValueError, match="rows selects no measurement of some problems of the batch"
    ):
        block.block(slice(3, 4))


def test_problems_on_two_axes_with_one_operator_can_use_different_rows():
    case = Case(np.float64, weighted=True)
    rng = np.random.default_rng(3)
    y, X = rng.standard_normal((2, 3, M)), rng.standard_normal((2, 3, *SHAPE))
    rows = tuple(slice(k, 2 * k + 1) for k in range(6))
    gradient = lt.Problem(case.problem.A, y, case.weights).block(rows).gradient(X)
    for k in range(6):
        at = divmod(k, 3)
        expected = loop_gradient(case.tensors, y[at], X[at], range(M)[rows[k]], case.weights)
        np.testing.assert_allclose(gradient[at], expected, rtol=0, atol=1e-13)


def test_complex_data_of_real_sparse_rows_have_the_real_part_of_the_gradient():
    case = Case(np.float64, weighted=True)
    y = case.y + 1j * case.y[::-1]
    matrix = scipy.sparse.csr_array(case.tensors.reshape(M, -1))
    for A in (
        lt.SparseOperator(matrix, SHAPE),
        lt.as_operator(scipy.sparse.linalg.aslinearoperator(matrix), SHAPE),
    ):
        expected = loop_gradient(case.tensors, y, case.X, range(M), case.weights).real
        got = lt.Problem(A, y, case.weights).gradient(case.X)
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-13)
        with pytest.raises(TypeError, match="X is complex, but the operator measures real tensors"):
            A.forward(1j * case.X)


def test_double_precision_weights_do_not_change_a_single_precision_matrix(rng):
    stack = lt.gaussian(SHAPE, M, dtype=np.float32, trials=2)
    blocks = stack.restrict((slice(0, 4), slice(4, 8)))
    for A in (stack, blocks):
        X, y = np.ones((2, *SHAPE), np.float32), np.ones((2, A.m), np.float32)
        weights = rng.uniform(0.5, 2, A.m)
        residual, gradient = A.misfit(X, y, weights)
        assert residual.dtype == gradient.dtype == np.float32
        expected = A.adjoint((weights * (y - A.forward(X))).astype(np.float32))
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-4)
