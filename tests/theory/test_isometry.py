"""Bounds on the isometry constant, Definition 5.1, against operators with known constants."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.theory import isometry

SHAPE, N = (2, 3, 4), 24


def rng(seed=0):
    return np.random.default_rng(seed)


def diagonal(weights):
    """Rows sqrt(b w_j) e_j: the unit tensor at j has quotient w_j, others are in between."""
    weights = np.asarray(weights, dtype=float)
    return lt.as_operator(np.diag(np.sqrt(N * weights)), SHAPE)


def quotient(A, X):
    full = X.full() if isinstance(X, lt.TuckerTensor) else X
    rows = np.stack([A.forward(unit.reshape(A.shape)) for unit in np.eye(full.size)], axis=1)
    return np.linalg.norm(rows @ full.ravel()) ** 2 / A.m / np.linalg.norm(full) ** 2


@pytest.mark.parametrize("rank", [(1, 1, 1), (2, 2, 2), (2, 3, 4)])
def test_constant_of_diagonal_operators_is_given_by_their_weights(rank):
    weights = rng().uniform(0.6, 1.3, N)
    found = lt.theory.trip(diagonal(weights), rank, starts=3, samples=50)
    assert found.lowest == pytest.approx(weights.min(), rel=1e-9)
    assert found.highest == pytest.approx(weights.max(), rel=1e-9)
    exact = max(1 - weights.min(), weights.max() - 1)
    assert found.delta_at_least == pytest.approx(exact, rel=1e-8)
    assert found.delta_at_most == pytest.approx(exact, rel=1e-8)
    assert found.delta_sampled < exact


def test_upper_bound_is_over_blocks_and_lower_bound_over_all_rows():
    low, high = np.full(N, 0.8), np.full(N, 1.1)
    low[5], high[7] = 0.5, 1.7
    matrix = np.concatenate([diagonal(low).matrix, diagonal(high).matrix])
    found = lt.theory.trip(lt.as_operator(matrix, SHAPE), (1, 1, 1), blocks=N, starts=3, samples=20)
    assert found.block_sizes == (N, N)
    assert found.highest == pytest.approx(1.7)
    assert found.highest_block == 1
    assert found.lowest == pytest.approx((0.5 + 1.1) / 2)
    assert found.block_norms == pytest.approx([0.8, 1.7])
    assert found.delta_at_least == pytest.approx(0.7)


def test_orthogonal_blocks_are_isometries():
    blocks = [np.sqrt(N) * np.linalg.qr(rng(k).standard_normal((N, N)))[0] for k in range(3)]
    found = lt.theory.trip(
        lt.as_operator(np.concatenate(blocks), SHAPE), (1, 2, 2), lt.Partition(N)
    )
    for delta in (found.delta_at_least, found.delta_sampled, found.delta_at_most):
        assert delta < 1e-10
    assert found.scaled.delta < 1e-10


def test_two_by_two_rank_one_matrices_against_all_angles():
    A = lt.gaussian((2, 2), m=5, seed=3)
    angles = np.linspace(0, np.pi, 721)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    tensors = np.einsum("ai,bj->abij", vectors, vectors).reshape(-1, 4)
    quotients = np.sum((tensors @ A.matrix.T) ** 2, axis=1) / 5
    found = lt.theory.trip(A, (1, 1))
    assert found.lowest == pytest.approx(quotients.min(), rel=1e-3)
    assert found.highest == pytest.approx(quotients.max(), rel=1e-3)


@pytest.mark.parametrize("blocks", [None, 20, lt.Shuffled(25)])
def test_witnesses_attain_the_bounds(blocks):
    A = lt.gaussian((4, 4, 3), m=66, seed=1)
    found = lt.theory.trip(A, (1, 2, 2), blocks, starts=2, samples=40)
    for X, value, part in (
        (found.lowest_witness, found.lowest, A),
        (
            found.highest_witness,
            found.highest,
            A.restrict(isometry.block_slices(blocks, 66)[found.highest_block]),
        ),
    ):
        assert float(X.norm()) == pytest.approx(1)
        assert all(r <= s for r, s in zip(lt.multilinear_rank(X, 1e-9), (1, 2, 2), strict=True))
        assert quotient(part, X) == pytest.approx(value, rel=1e-10)
    assert found.delta_sampled < found.delta_at_least < found.delta_at_most


@pytest.mark.slow
def test_search_beats_plain_projected_power_iteration():
    """Reference: X <- H_r(A*A X) and X <- H_r(X - A*A X / 2m), ten starts of 200 steps."""
    A = lt.gaussian((6, 6, 6), m=80, seed=2)
    G = A.matrix.T @ A.matrix / 80
    low, high = np.inf, 0.0
    for k, sign in itertools.product(range(10), (1, -1)):
        x = rng(k).standard_normal(216)
        for _ in range(200):
            step = G @ x if sign > 0 else x - 0.5 * (G @ x)
            x = lt.hosvd(step.reshape(6, 6, 6), (2, 2, 2)).full().ravel()
            x /= np.linalg.norm(x)
        low, high = min(low, x @ G @ x), max(high, x @ G @ x)
    found = lt.theory.trip(A, (2, 2, 2))
    assert found.lowest <= low * 1.001
    assert found.highest >= high / 1.001


def test_scaling_the_operator_scales_the_quotients():
    A = lt.gaussian((4, 4, 4), m=60, seed=1)
    few = {"starts": 2, "samples": 20}
    one, two = (lt.theory.trip(lt.scale(A, c), (1, 1, 1), 30, **few) for c in (1.0, 8.0))
    for name in ("lowest", "highest", "floor"):
        assert getattr(two, name) == pytest.approx(64 * getattr(one, name), rel=1e-9)
    assert two.block_norms == pytest.approx(64 * one.block_norms)
    assert two.scaled.scale_squared == pytest.approx(one.scaled.scale_squared / 64)
    assert two.scaled.delta == pytest.approx(one.scaled.delta)
    assert two.scaled.delta_sampled == pytest.approx(one.scaled.delta_sampled)
    low, high = one.scaled.scale_squared * one.lowest, one.scaled.scale_squared * one.highest
    assert 1 - low == pytest.approx(high - 1) == pytest.approx(one.scaled.delta)


def test_sampled_entries_have_a_tensor_with_zero_measurements():
    cells = np.stack(np.unravel_index(rng().permutation(125)[:60], (5, 5, 5)), axis=1)
    found = lt.theory.trip(lt.entries((5, 5, 5), cells), (1, 1, 1))
    assert found.lowest == 0
    assert found.delta_at_least == 1
    assert not np.any(found.lowest_witness.full()[tuple(cells.T)])
    assert found.highest == pytest.approx(1 / 60)


def test_products_find_what_the_gram_matrix_finds(monkeypatch):
    A = lt.gaussian((3, 4, 4), m=48, seed=5)
    few = {"starts": 3, "samples": 20}
    by_gram = lt.theory.trip(A, (1, 2, 2), **few)
    monkeypatch.setattr(isometry, "GRAM", 0)
    by_products = lt.theory.trip(A, (1, 2, 2), **few)
    assert by_products.highest == pytest.approx(by_gram.highest, rel=1e-4)
    assert by_products.lowest == pytest.approx(by_gram.lowest, rel=0.01)
    assert by_products.lowest != by_gram.lowest
    function = lt.FunctionOperator(A._forward, A._adjoint, A.shape, A.m)
    same = lt.theory.trip(function, (1, 2, 2), **few)
    assert same.highest == pytest.approx(by_products.highest, rel=1e-3)


def test_norms_and_the_smallest_singular_value_against_numpy():
    A = lt.gaussian((3, 3, 3), m=70, seed=1)
    found = lt.theory.trip(A, (1, 1, 1), 30, samples=5, starts=1)
    values = np.linalg.svd(A.matrix, compute_uv=False)
    assert found.floor == pytest.approx(values[-1] ** 2 / 70, rel=1e-9)
    assert found.block_sizes == (30, 30, 10)
    for L, (start, b) in zip(found.block_norms, ((0, 30), (30, 30), (60, 10)), strict=True):
        assert pytest.approx(np.linalg.norm(A.matrix[start : start + b], 2) ** 2 / b) == L
    few = lt.theory.trip(A.restrict(slice(0, 26)), (1, 1, 1), samples=5, starts=1)
    assert few.floor == 0
    assert few.delta_at_most >= 1


def test_samples_are_random_tensors_of_the_seed():
    A = lt.gaussian((3, 4, 3), m=30, seed=1)
    found = lt.theory.trip(A, (1, 2, 2), 10, samples=7, starts=1, seed=5, quantile=0.5)
    expected = []
    for k in range(7):
        y = A.forward(lt.random_tucker((3, 4, 3), (1, 2, 2), seed=(5, k)).full())
        size = np.linalg.norm(lt.random_tucker((3, 4, 3), (1, 2, 2), seed=(5, k)).full()) ** 2
        blocks = [np.sum(y[i : i + 10] ** 2) / 10 / size for i in (0, 10, 20)]
        expected.append((np.sum(y**2) / 30 / size, max(blocks)))
    assert found.sampled == pytest.approx(np.array(expected))
    deltas = [max(1 - low, high - 1) for low, high in expected]
    assert found.delta_sampled == pytest.approx(np.median(deltas))
    assert found.usual == pytest.approx(np.median([low for low, _ in expected]))


def test_rank_beyond_the_shape_is_reduced_and_solved_exactly():
    A = lt.gaussian((3, 3, 4), m=60, seed=1)
    found = lt.theory.trip(A, (9, 9, 9), samples=3)
    assert found.rank == (3, 3, 4)
    values = np.linalg.svd(A.matrix, compute_uv=False) ** 2 / 60
    assert (found.lowest, found.highest) == pytest.approx((values[-1], values[0]), rel=1e-6)


@pytest.mark.parametrize("kind", ["fourier", "complex matrix", "rank-one", "kronecker", "sparse"])
def test_other_operators(kind):
    numbers = rng(1)
    operators = {
        "fourier": lambda: lt.subsampled_transform((4, 4, 4), 30, "fft", seed=1),
        "complex matrix": lambda: lt.DenseOperator(
            numbers.standard_normal((40, 64)) + 1j * numbers.standard_normal((40, 64)),
            (4, 4, 4), dtype=complex,
        ),
        "rank-one": lambda: lt.rank_one([numbers.standard_normal((40, 4)) for _ in range(3)]),
        "kronecker": lambda: lt.kronecker([numbers.standard_normal((5, 4)) for _ in range(3)]),
        "sparse": lambda: lt.as_operator(
            __import__("scipy.sparse").sparse.random_array((40, 64), density=0.3, rng=1), (4, 4, 4)
        ),
    }  # fmt: skip
    A = operators[kind]()
    found = lt.theory.trip(A, (1, 2, 2), starts=1, samples=20)
    for X, value in ((found.lowest_witness, found.lowest), (found.highest_witness, found.highest)):
        assert np.sum(np.abs(A.forward(X)) ** 2) / A.m == pytest.approx(value, rel=1e-9, abs=1e-14)
    assert 0 <= found.floor <= found.lowest <= found.sampled[:, 0].min()
    assert found.sampled[:, 1].max() <= found.highest <= found.block_norms.max() * (1 + 1e-9)


def test_torch_operators_give_torch_witnesses():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    numbers = rng().standard_normal((40, 3, 4, 4))
    found = lt.theory.trip(torch.asarray(numbers), (1, 2, 2), starts=2, samples=10)
    same = lt.theory.trip(numbers, (1, 2, 2), starts=2, samples=10)
    assert isinstance(found.lowest_witness.core, torch.Tensor)
    assert (found.lowest, found.highest) == pytest.approx((same.lowest, same.highest), rel=1e-6)


def test_str_labels_the_bounds():
    A = lt.gaussian((3, 3, 3), m=40, seed=1)
    text = str(lt.theory.trip(A, (1, 1, 1), 20, starts=1, samples=10))
    lines = text.splitlines()
    assert "40 measurements, 3x3x3 tensors of rank (1, 1, 1)" in lines[0]
    assert lines[1].startswith("  delta >=")
    assert "certified by witnesses" in lines[1]
    assert lines[1].endswith("of 2 blocks")
    assert "not a bound" in lines[2]
    assert lines[3].startswith("  delta <=")
    assert "certified by norms" in lines[3]


def test_blocks_are_numbered_from_one_in_str():
    places = [isometry._ordinal(k) for k in (0, 1, 2, 3, 10, 11, 12, 20, 21, 110)]
    assert places == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "111th"]


@pytest.mark.parametrize("scale", [1e160, 1e-160])
def test_extreme_scales_are_rejected(scale):
    A = lt.scale(lt.gaussian((3, 3, 3), m=20, seed=1), scale)
    for look in (lt.theory.trip, lt.theory.examine):
        with pytest.raises(ValueError, match="Rescale A"):
            look(A, (1, 1, 1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda A: lt.theory.trip(A, (1, 1)), "rank must have one entry per mode"),
        (lambda A: lt.theory.trip(A, (0, 1, 1)), r"rank\[0\] = 0"),
        (lambda A: lt.theory.trip(A, (1, 1, 1), 0), "blocks must be between 1 and 20, got 0"),
        (lambda A: lt.theory.trip(A, (1, 1, 1), 21), "blocks must be between 1 and 20, got 21"),
        (
            lambda A: lt.theory.trip(A, (1, 1, 1), lt.RandomRows(5)),
            "RandomRows draws any subset of rows",
        ),
        (lambda A: lt.theory.trip(A, (1, 1, 1), quantile=1.5), "quantile must be between 0 and 1"),
        (lambda A: lt.theory.trip(A, (1, 1, 1), starts=0), "starts must be between 1 and 1000000"),
        (
            lambda A: lt.theory.trip(A, (1, 1, 1), samples=0),
            "samples must be between 1 and",
        ),
        (lambda A: lt.theory.trip(A, (1, 1, 1), iterations=-1), "iterations must be at least 0"),
        (
            lambda A: lt.theory.trip(lt.gaussian((3, 3, 3), m=4, trials=2), (1, 1, 1)),
            "A must be a single operator, got a batch",
        ),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call(lt.gaussian((3, 3, 3), m=20, seed=1))
