"""eta of (3.6): proven, and measured against a best approximation."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lowtucker as lt


def noisy(seed, shape=(6, 7, 8)):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("make", [lt.HOSVD, lt.STHOSVD, lt.HOOI])
def test_proven_bounds(make):
    assert lt.theory.eta(make((2, 2, 2))).proven == pytest.approx(math.sqrt(3))
    assert lt.theory.eta(make((2, 2, 2, 2))).proven == 2
    assert lt.theory.eta(make((2, 2))).proven == 1
    assert lt.theory.eta(make((2, 2, 2)))[1:] == (None, None, None)


@pytest.mark.parametrize("make", [lt.HOSVD, lt.STHOSVD, lt.HOOI])
@pytest.mark.parametrize("seed", range(3))
def test_measured_eta_is_between_one_and_the_proven_bound(make, seed):
    Z, H = noisy(seed), make((2, 3, 2))
    found = lt.theory.eta(H, Z, starts=2)
    assert 1 <= found.measured <= found.proven
    best = np.linalg.norm(found.best.full() - Z)
    assert np.linalg.norm(H(Z).full() - Z) == pytest.approx(found.measured * best)
    assert found.best.rank == (2, 3, 2)


def test_eta_of_matrices_is_one():
    Z = noisy(1, (6, 9))
    found = lt.theory.eta(lt.HOSVD((2, 2)), Z, starts=3)
    values = np.linalg.svd(Z, compute_uv=False)
    assert np.linalg.norm(found.best.full() - Z) == pytest.approx(np.linalg.norm(values[2:]))
    assert found.measured == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_more_starts_find_a_better_approximation():
    """HOOI from the HOSVD stops in a local optimum here; random starts do not."""
    shape, rank = (8, 8, 8), (1, 1, 1)
    ratios = [
        [lt.theory.eta(lt.HOSVD(rank), noisy(seed, shape), starts=n).measured for n in (0, 20)]
        for seed in (0, 1, 3)
    ]
    few, many = np.array(ratios).T
    assert (many >= few).all()
    assert (many > few * 1.001).any()


def test_eta_of_a_tensor_with_known_best_approximation():
    """Two rank-one terms that share a factor: the HOSVD does not choose the best approximation.

    With e_i unit vectors, Z = 2 e1 e1 e1 + a (e1 e2 e2 + e2 e1 e2 + e2 e2 e1): best rank one error
    found by a grid over unit vectors (cos t, sin t), equal in all modes by symmetry.
    """
    a = 0.9
    Z = np.zeros((2, 2, 2))
    Z[0, 0, 0] = 2
    Z[0, 1, 1] = Z[1, 0, 1] = Z[1, 1, 0] = a
    t = np.linspace(0, np.pi, 200001)
    fit = 2 * np.cos(t) ** 3 + 3 * a * np.cos(t) * np.sin(t) ** 2
    best = math.sqrt(np.sum(Z**2) - np.max(fit**2))
    given = np.linalg.norm(lt.hosvd(Z, (1, 1, 1)).full() - Z)
    found = lt.theory.eta(lt.HOSVD((1, 1, 1)), Z)
    assert found.measured == pytest.approx(given / best, rel=1e-6)


def test_eta_of_a_tensor_of_that_rank_is_one_at_any_scale():
    X = lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)
    for factor in (1.0, 1e150, 1e-150):
        assert lt.theory.eta(lt.HOSVD((1, 2, 2)), X * factor, starts=2).measured == 1
    assert lt.theory.eta(lt.HOSVD((1, 2, 2)), np.zeros((3, 3, 3)), starts=2).measured == 1
    one, two = (lt.theory.eta(lt.STHOSVD((2, 2, 2)), c * noisy(0), starts=2) for c in (1, 2.0**40))
    assert two.measured == pytest.approx(one.measured)
    assert float(two.best.norm()) == pytest.approx(2.0**40 * float(one.best.norm()))


def test_hooi_uses_the_given_start():
    Z = noisy(0)
    start = lt.random_tucker(Z.shape, (2, 2, 2), seed=3)
    only = lt.hooi(Z, (2, 2, 2), start=start, max_iterations=1)
    U = start.factors
    left = np.einsum("ijk,jb,kc->ibc", Z, U[1], U[2]).reshape(6, -1)
    expected = np.linalg.svd(left)[0][:, :2]
    overlap = np.linalg.svd(expected.T @ only.factors[0], compute_uv=False)
    assert overlap == pytest.approx([1, 1])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: lt.theory.eta("hosvd"), TypeError, "thresholding must be a Thresholding"),
        (lambda: lt.theory.eta(lt.HOSVD), TypeError, r"Try lowtucker.HOSVD\(\(3, 3, 3\)\)"),
        (lambda: lt.theory.eta(lt.HOSVD((2, 2)), noisy(0)), ValueError, "rank must have one entry"),
        (
            lambda: lt.theory.eta(lt.HOSVD((2, 2, 2)), noisy(0), starts=-1),
            ValueError,
            "starts must be between 0 and 1000000",
        ),
        (
            lambda: lt.theory.eta(lt.HOSVD((1, 1)), np.array([[1.0, np.nan], [0, 0]])),
            ValueError,
            "NaN or infinite",
        ),
        (
            lambda: lt.hooi(noisy(0), (2, 2, 2), start=lt.random_tucker((6, 7, 8), (1, 2, 2))),
            ValueError,
            r"start must be a TuckerTensor of rank \(2, 2, 2\)",
        ),
        (
            lambda: lt.hooi(noisy(0), (2, 2, 2), start=lt.random_tucker((6, 7, 9), (2, 2, 2))),
            ValueError,
            "start must have the shape of X",
        ),
    ],
)
def test_invalid_arguments_raise(call, error, message):
    with pytest.raises(error, match=message):
        call()


FORMATS = {
    "train": (lt.TensorTrain((2, 2, 2)), (4, 4, 4, 4), math.sqrt(3)),
    "tree": (lt.HierarchicalTucker(2), (4, 4, 4, 4), math.sqrt(5)),
    "tree of five": (lt.HierarchicalTucker(2), (3, 3, 3, 3, 3), math.sqrt(7)),
    "sparse": (lt.Sparse(7), (5, 6), 1.0),
    "rows": (lt.RowSparse(2), (5, 6), 1.0),
    "tubal": (lt.Tubal(2), (5, 6, 4), 1.0),
    "SeMP": (lt.SeMP((2, 2, 2)), (5, 6, 4), math.sqrt(3)),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", range(4))
def test_eta_of_every_format_is_at_most_the_proven_one(name, seed):
    H, shape, proven = FORMATS[name]
    Z = noisy(seed, shape)
    found = lt.theory.eta(H, Z, starts=3)
    assert found.proven == pytest.approx(proven)
    assert 1 <= found.measured <= found.at_most * (1 + 1e-12)
    assert found.at_most <= proven * (1 + 1e-12)
    if proven == 1:
        assert found.measured == 1


def test_at_most_is_by_the_largest_tail_of_a_matricisation():
    Z, H = noisy(0, (4, 4, 4, 4)), lt.TensorTrain((2, 3, 2))
    tails = [
        np.linalg.norm(np.linalg.svd(Z.reshape(4**k, -1), compute_uv=False)[r:])
        for k, r in ((1, 2), (2, 3), (3, 2))
    ]
    error = np.linalg.norm(H(Z).full() - Z)
    assert error <= math.sqrt(sum(t * t for t in tails)) * (1 + 1e-12)
    assert lt.theory.eta(H, Z).at_most == pytest.approx(error / max(tails))
    tree = lt.HierarchicalTucker(2, tree=((0, 2), (1, 3))).for_shape(Z.shape)
    rows = dict(tree.matricisations(Z.shape))
    assert set(rows) == {(0, 2), (0,), (2,), (1, 3), (1,), (3,)}
    moved = np.transpose(Z, (0, 2, 1, 3)).reshape(16, 16)
    pair = np.linalg.norm(np.linalg.svd(moved, compute_uv=False)[rows[0, 2] :])
    assert np.linalg.norm(tree(Z).full() - Z) >= pair


def test_contraction_takes_the_eta_of_a_thresholding():
    sparse = lt.theory.contraction(0.05, 0.9, eta=lt.Sparse(5))
    assert sparse.kappa == lt.theory.contraction(0.05, 0.9).kappa
    train = lt.theory.contraction(0.02, 0.95, eta=lt.TensorTrain((2, 2)), block_norms=[1.1])
    assert train.eta == pytest.approx(math.sqrt(2))
    assert train.kappa == lt.theory.contraction(0.02, 0.95, eta=2**0.5, block_norms=[1.1]).kappa
    assert lt.theory.best_step(0.05, eta=lt.Tubal(2)) == lt.theory.best_step(0.05)
    with pytest.raises(ValueError, match="eta is infinite: a shrinkage is no approximation"):
        lt.theory.contraction(0.05, 0.9, eta=lt.Shrinkage(1.0))
    with pytest.raises(ValueError, match="for_shape"):
        lt.theory.contraction(0.05, 0.9, eta=lt.TensorTrain(2))


def test_the_theorem_bounds_a_run_on_sparse_vectors():
    """With its isometry constant by brute force: all supports of 3 s = 3 entries."""
    from itertools import combinations

    rng = np.random.default_rng(0)
    n, m = 8, 2000
    matrix = rng.standard_normal((m, n))
    grams = [
        np.linalg.eigvalsh(matrix[:, list(c)].T @ matrix[:, list(c)] / m)
        for c in combinations(range(n), 3)
    ]
    low, high = min(g[0] for g in grams), max(g[-1] for g in grams)
    delta = max(1 - low, high - 1)
    A = lt.DenseOperator(matrix, (n,))
    x = np.zeros(n)
    x[3] = 1.0
    problem = lt.Problem(A, A.forward(x))
    solver = lt.TIHT(step=0.9, thresholding=lt.Sparse(1))
    bound = lt.theory.contraction_of(problem, x, solver, delta=delta)
    assert bound.contracts
    assert bound.eta == 1
    result = lt.solve(problem, solver, X_true=x, stop=lt.MaxEpochs(10))
    errors = result.history.error
    assert (errors <= [bound.error_bound(t, 1.0) + 1e-12 for t in range(len(errors))]).all()
    with pytest.raises(ValueError, match="delta must be a number for Sparse"):
        lt.theory.contraction_of(problem, x, solver)


def test_degrees_of_freedom_take_formats():
    assert lt.degrees_of_freedom((5, 5, 6), lt.Sparse(7)) == 7
    assert lt.degrees_of_freedom((30, 20), 3) == 3 * (30 + 20 - 3)
    assert lt.degrees_of_freedom((30, 20), lt.HOSVD((3, 3))) == 3 * (30 + 20 - 3)
    assert lt.degrees_of_freedom((6, 6, 6, 6), lt.TensorTrain(2)) == 12 + 24 + 24 + 12 - 12
