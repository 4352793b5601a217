"""Tensor trains against reshapes and plain SVDs."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lowtucker as lt

SHAPE, RANK = (4, 3, 5, 2), (2, 4, 2)


def tt_svd(Z, rank):
    """TT-SVD as in the textbook: an SVD of every reshape, and the product of the cores."""
    shape, left, rest, cores = Z.shape, 1, Z, []
    for k, r in enumerate(rank):
        U, s, Vh = np.linalg.svd(rest.reshape(left * shape[k], -1), full_matrices=False)
        cores.append(U[:, :r].reshape(left, shape[k], r))
        rest, left = s[:r, None] * Vh[:r], r
    full = rest.reshape(left, shape[-1])
    for core in reversed(cores):
        full = np.tensordot(core, full, axes=(2, 0))
    return full[0]


def discarded(Z, rank):
    """Norm of what a truncation of each unfolding alone leaves out."""
    values = [
        np.linalg.svd(Z.reshape(int(np.prod(Z.shape[: k + 1])), -1))[1] for k in range(len(rank))
    ]
    return [np.linalg.norm(s[r:]) for s, r in zip(values, rank, strict=True)]


def tensor(rng, shape=SHAPE, dtype=float):
    Z = rng.standard_normal(shape)
    return Z + 1j * rng.standard_normal(shape) if dtype is complex else Z


@pytest.mark.parametrize("dtype", [float, complex])
def test_equals_the_textbook(rng, dtype):
    Z = tensor(rng, dtype=dtype)
    np.testing.assert_allclose(lt.TensorTrain(RANK)(Z).full(), tt_svd(Z, RANK), atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "rank"), [(SHAPE, RANK), ((3, 3, 3), (1, 2)), ((2,) * 6, (1, 2, 3, 2, 2)),
                        ((7, 6), (3,))]
)  # fmt: skip
def test_error_is_within_eta_of_a_lower_bound_on_the_best(rng, shape, rank):
    H = lt.TensorTrain(rank)
    assert H.eta == pytest.approx(np.sqrt(len(shape) - 1))
    for noise in (0.1, 1.0, 1.0, 100.0):
        Z = lt.random_tensor(H, shape, seed=1).full() + noise * tensor(rng, shape)
        error, tails = np.linalg.norm(H(Z).full() - Z), discarded(Z, rank)
        assert max(tails) <= error * (1 + 1e-12)
        assert error <= np.linalg.norm(tails) * (1 + 1e-12)
        assert error <= H.eta * max(tails) * (1 + 1e-12)


def test_cores_are_left_orthonormal(rng):
    X = lt.TensorTrain(RANK)(tensor(rng, (2, *SHAPE)))
    for G in (*X.bases, *(X + X).bases):
        flat = G.reshape(2, -1, G.shape[-1])
        gram = flat.swapaxes(-1, -2) @ flat
        assert np.abs(gram - np.eye(G.shape[-1])).max() < 1e-13


@pytest.mark.parametrize("dtype", [float, complex])
def test_compress_is_the_truncation_of_the_full_tensor(rng, dtype):
    X = lt.TensorTrain((4, 6, 2))(tensor(rng, dtype=dtype))
    np.testing.assert_allclose(
        X.compress((2, 3, 1)).full(), tt_svd(X.full(), (2, 3, 1)), atol=1e-12
    )
    assert X.compress(2).rank == (2, 2, 2)


def test_compress_finds_the_rank_of_a_sum(rng):
    H = lt.TensorTrain((1, 2, 1))
    X, Y = H(tensor(rng)), H(tensor(rng))
    assert (X + Y).rank == (2, 4, 2)
    assert (X + X).compress().rank == (1, 2, 1)
    assert (X - X).norm() < 1e-14
    assert (0.0 * X).compress().rank == (1, 1, 1)


@pytest.mark.parametrize("dtype", [float, complex])
def test_inner_product_is_that_of_the_full_tensors(rng, dtype):
    X = lt.TensorTrain(RANK)(tensor(rng, (3, *SHAPE), dtype))
    Y = lt.TensorTrain((1, 2, 2))(tensor(rng, (3, *SHAPE), dtype))
    expected = [np.vdot(Y.full()[k], X.full()[k]) for k in range(3)]
    np.testing.assert_allclose(X.inner(Y), expected, rtol=1e-12)


def test_any_cores_make_a_train(rng):
    cores = [rng.standard_normal(s) for s in [(1, 3, 2), (2, 4, 9), (9, 2, 1)]]
    X = lt.TTTensor.from_cores(cores)
    expected = np.einsum("aib,bjc,ckd->ijk", *cores)
    np.testing.assert_allclose(X.full(), expected, atol=1e-12)
    np.testing.assert_allclose(X.norm(), np.linalg.norm(expected), rtol=1e-13)
    assert X.rank == (2, 8)
    assert X.degrees_of_freedom == 3 * 2 + 2 * 4 * 2 + 2 * 2 - 4 - 4  # rank (2, 2) at most


def test_entries_of_many_modes_need_no_full_tensor(rng):
    """3^40 numbers would be 97 EB."""
    shape = (3,) * 40
    cores = [rng.standard_normal((1 if k == 0 else 2, 3, 1 if k == 39 else 2)) for k in range(40)]
    X = lt.TTTensor.from_cores(cores)
    index = rng.integers(0, 3, (70_000, 40))  # more than one chunk
    got = X.entries(index)
    for row in (0, 65_535, 65_536, 69_999):
        product = np.eye(1)
        for G, i in zip(cores, index[row], strict=True):
            product = product @ G[:, i]
        assert got[row] == pytest.approx(product.item(), rel=1e-9)
    np.testing.assert_allclose(X.inner(X), X.norm() ** 2, rtol=1e-12)
    assert X.shape == shape


def test_huge_and_tiny_entries_are_truncated_alike(rng):
    Z = tensor(rng)
    one = lt.TensorTrain(RANK)(Z).full()
    for power in (-800, 800):
        np.testing.assert_allclose(
            np.ldexp(lt.TensorTrain(RANK)(np.ldexp(Z, power)).full(), -power), one, atol=1e-12
        )
    both = lt.TensorTrain(RANK)(np.stack([np.ldexp(Z, 800), Z]))
    np.testing.assert_allclose(np.ldexp(both.full()[0], -800), one, atol=1e-12)
    np.testing.assert_allclose(both.full()[1], one, atol=1e-12)


def test_unattainable_ranks_warn_once_and_name_the_attainable_one(rng):
    H = lt.TensorTrain((5, 9, 3))
    with pytest.warns(lt.RankWarning, match=r"has the rank \(5, 9, 3\).*try rank=\(4, 9, 2\)"):
        fitting = H.for_shape((4, 3, 5, 2))
    assert fitting.rank == (4, 9, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitting.for_shape((4, 3, 5, 2)) is fitting
        Z = tensor(rng, (4, 3, 5, 2))
        np.testing.assert_allclose(fitting.at_rank((4, 10, 2))(Z).full(), Z, atol=1e-12)
        assert H.degrees_of_freedom((4, 3, 5, 2)) == fitting.degrees_of_freedom((4, 3, 5, 2))
    A = lt.gaussian((4, 3), 12, seed=0)
    with pytest.warns(lt.RankWarning) as caught:
        result = lt.recover(A, A.forward(Z[:, :, 0, 0]), lt.TensorTrain((4,)))
    assert len(caught) == 1
    assert result.X.rank == (3,)


def test_one_number_is_that_rank_wherever_it_is_attained():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        H = lt.TensorTrain(3).for_shape((2,) * 6)
    assert H.rank == (2, 3, 3, 3, 2)
    assert np.isnan(lt.TensorTrain(3).eta)
    assert lt.TensorTrain(3)(np.ones((4, 4, 4))).rank == (3, 3)


def test_entries_are_completed(rng):
    """A tensor train of order 5 from 40 % of its entries."""
    shape, H = (4,) * 5, lt.TensorTrain(2)
    X = lt.random_tensor(H, shape, seed=2)
    index = np.argwhere(rng.random(shape) < 0.4)
    result = lt.recover(lt.entries(shape, index), X.entries(index), H, X_true=X)
    assert result.success
    assert result.error < 1e-4


def test_random_tensors_are_functions_of_seed_and_trial():
    H = lt.TensorTrain((2, 2))
    X = lt.random_tensor(H, (3, 4, 5), seed=7, trials=3)
    assert X.batch_shape == (3,)
    np.testing.assert_allclose(
        X.trial(2).full(), lt.random_tensor(H, (3, 4, 5), seed=(7, 2)).full(), atol=1e-13
    )
    assert lt.random_tensor(lt.Sparse(2), (9,), dtype=np.complex64).dtype == np.complex64
    with pytest.raises(TypeError, match="thresholding must be a Thresholding, got 3"):
        lt.random_tensor(3, (4, 4))
    with pytest.raises(TypeError, match="thresholding must be a Thresholding"):
        lt.random_tensor(lt.Sparse, (4, 4))
