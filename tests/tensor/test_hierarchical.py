"""Hierarchical Tucker tensors against plain SVDs of the matricisations of the nodes."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import lowtucker as lt

TREES = [
    (((0, 1), (2, 3)), (4, 3, 5, 2), (3, 2, 2, 3, 3, 2)),
    ((((3, 0), 2), 1), (4, 3, 5, 2), (3, 4, 2, 3, 2, 3)),
    ((((0, 3), 1), (4, 2)), (3, 4, 3, 3, 2), (2, 3, 2, 2, 2, 2, 2, 2)),
    (((0, 1), 2), (4, 4, 4), (2, 2, 2, 2)),
    ((1, 0), (6, 5), (2, 2)),
]


def below(tree):
    """Nodes below the root, as they begin from left to right, by a stack."""
    found, stack = [], list(reversed(tree))
    while stack:
        node = stack.pop()
        found.append(node)
        stack += reversed(node) if isinstance(node, tuple) else []
    return found


def modes(node):
    return [node] if isinstance(node, int) else [k for child in node for k in modes(child)]


def matricised(Z, node):
    """Matrix with the modes of a node as its rows."""
    rows = modes(node)
    others = [k for k in range(Z.ndim) if k not in rows]
    return Z.transpose(*rows, *others).reshape(int(np.prod([Z.shape[k] for k in rows])), -1)


def onto(Z, node, r):
    """Truncated SVD of the matricisation of one node, as a tensor again."""
    rows = modes(node)
    order = rows + [k for k in range(Z.ndim) if k not in rows]
    U, s, Vh = np.linalg.svd(matricised(Z, node), full_matrices=False)
    low = (U[:, :r] * s[:r]) @ Vh[:r]
    return low.reshape([Z.shape[k] for k in order]).transpose(np.argsort(order))


def tensor(rng, shape, dtype=float):
    Z = rng.standard_normal(shape)
    return Z + 1j * rng.standard_normal(shape) if dtype is complex else Z


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize(("tree", "shape", "rank"), TREES)
def test_equals_projections_of_full_tensors_one_after_another(rng, tree, shape, rank, dtype):
    """Modes from left to right, then other nodes, children first."""
    Z = tensor(rng, shape, dtype)
    X = lt.HierarchicalTucker(rank, tree)(Z)
    pairs = list(zip(below(tree), rank, strict=True))
    leaves = [pair for pair in pairs if isinstance(pair[0], int)]
    others = [pair for pair in reversed(pairs) if isinstance(pair[0], tuple)]
    expected = Z
    for node, r in leaves + others:
        expected = onto(expected, node, r)
    np.testing.assert_allclose(X.full(), expected, atol=1e-12)
    found = [np.linalg.matrix_rank(matricised(X.full(), t), tol=1e-10) for t in below(tree)]
    assert tuple(found) == rank == X.rank


@pytest.mark.parametrize(("tree", "shape", "rank"), TREES)
def test_error_is_within_eta_of_a_lower_bound_on_the_best(rng, tree, shape, rank):
    H = lt.HierarchicalTucker(rank, tree)
    assert H.eta == pytest.approx(np.sqrt(2 * len(shape) - 3))
    for noise, compress in itertools.product((0.1, 1.0, 100.0), (False, True)):
        Z = lt.random_tensor(H, shape, seed=1).full() + noise * tensor(rng, shape)
        X = lt.HierarchicalTucker(99, tree)(Z).compress(rank) if compress else H(Z)
        spectra = [np.linalg.svd(matricised(Z, t))[1] for t in below(tree)]
        tails = [np.linalg.norm(s[r:]) for s, r in zip(spectra, rank, strict=True)]
        error = np.linalg.norm(X.full() - Z)
        assert max(tails) <= error * (1 + 1e-12)
        # that of one child of the root counts for both
        assert error**2 <= (np.linalg.norm(tails) ** 2 - tails[0] ** 2) * (1 + 1e-12)
        assert error <= H.eta * max(tails) * (1 + 1e-12)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize(("tree", "shape", "rank"), TREES)
def test_spectra_of_the_nodes_need_no_full_tensor(rng, tree, shape, rank, dtype):
    X = lt.HierarchicalTucker(rank, tree)(tensor(rng, shape, dtype))
    for node, (_, s) in X._spectra().items():
        expected = np.linalg.svd(matricised(X.full(), node))[1]
        np.testing.assert_allclose(s, expected[: len(s)], atol=1e-12)
        assert len(s) == X.rank[below(tree).index(node)]


def test_bases_are_orthonormal(rng):
    X = lt.HierarchicalTucker(2)(tensor(rng, (3, 4, 3, 4, 3)))
    X = X.compress(2)
    for Y in (X, X + X, (X + X).compress(2)):
        for U in Y.bases:
            flat = U.reshape(-1, U.shape[-1])
            assert np.abs(flat.T @ flat - np.eye(U.shape[-1])).max() < 1e-13


def test_compress_finds_the_rank_of_a_sum(rng):
    H = lt.HierarchicalTucker((2, 2, 2, 2, 2, 2))
    X, Y = (H(tensor(rng, (4, 5, 4, 5))) for _ in range(2))
    assert (X + Y).rank == (4,) * 6
    assert (X + X).compress().rank == (2,) * 6
    assert (0.0 * X).compress().rank == (1,) * 6
    np.testing.assert_allclose((X + X).compress(2).full(), 2 * X.full(), atol=1e-12)


def test_a_batch_is_compressed_as_its_tensors(rng):
    X = lt.HierarchicalTucker(3, ((0, 2), 1))(tensor(rng, (2, 4, 4, 4)))
    Y = X.compress((2, 2, 2, 2))
    for k in range(2):
        np.testing.assert_allclose(Y.full()[k], X.trial(k).compress(2).full(), atol=1e-12)


def test_the_default_tree_halves_the_modes():
    trees = {
        2: (0, 1),
        3: ((0, 1), 2),
        4: ((0, 1), (2, 3)),
        5: (((0, 1), 2), (3, 4)),
    }
    for order, tree in trees.items():
        assert lt.HierarchicalTucker(2).for_shape((3,) * order).tree == tree
    assert np.isnan(lt.HierarchicalTucker(2).eta)
    assert lt.HierarchicalTucker(2, ((0, 1), 2)).eta == pytest.approx(np.sqrt(3))


def test_unattainable_ranks_warn_once_and_name_the_attainable_one(rng):
    H = lt.HierarchicalTucker((9, 2, 2, 3, 3, 3))
    with pytest.warns(lt.RankWarning, match=r"try rank=\(3, 2, 2, 3, 3, 2\)"):
        fitting = H.for_shape((4, 3, 5, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitting.for_shape((4, 3, 5, 2)) is fitting
        X = fitting(tensor(rng, (4, 3, 5, 2)))
        assert X.rank == (3, 2, 2, 3, 3, 2)
        assert lt.HierarchicalTucker(9).for_shape((2, 3, 2)).rank == (2, 2, 3, 2)
    found = [np.linalg.matrix_rank(matricised(X.full(), t)) for t in below(fitting.tree)]
    assert tuple(found) == X.rank


def test_entries_of_many_modes_need_no_full_tensor(rng):
    """A sum of products of functions of one index: rank 2 in 30 modes."""
    d = 30
    waves = rng.standard_normal((2, d, 3))
    small = lt.HierarchicalTucker(2).for_shape((3,) * d)
    ones = np.zeros((2, 2, 2))
    ones[0, 0, 0] = ones[1, 1, 1] = 1
    from lowtucker.thresholding.hierarchical import _sum
    from lowtucker.thresholding.tree import nodes_of

    bases = [waves[:, t].T if isinstance(t, int) else ones for t in nodes_of(small.tree)]
    X = _sum([lt.HTTensor(tuple(bases), np.eye(2), small.tree)])
    index = rng.integers(0, 3, (50, d))
    expected = waves[:, np.arange(d), index].prod(axis=-1).sum(axis=0)
    np.testing.assert_allclose(X.entries(index), expected, rtol=1e-10)
    grams = np.einsum("adi,bdi->dab", waves, waves).prod(axis=0)
    assert X.norm() == pytest.approx(np.sqrt(grams.sum()), rel=1e-12)
    assert (X + X).compress().rank == X.rank


def test_another_tree_is_another_format(rng):
    """A start of another tree is thresholded again."""
    shape = (3, 3, 3, 3)
    H = lt.HierarchicalTucker(2, ((0, 2), (1, 3)))
    X = lt.random_tensor(H, shape, seed=0)
    A = lt.gaussian(shape, 78, seed=1)
    start = lt.HierarchicalTucker(2)(X.full() + 0.01 * tensor(rng, shape))
    result = lt.recover(A, A.forward(X), H, start=start, X_true=X)
    assert result.X.tree == H.tree
    assert result.success
