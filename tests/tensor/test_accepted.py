"""What the tensor algebra accepts: sequences, subclasses, empty tensors, unattainable ranks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lowtucker as lt

X = np.arange(24.0).reshape(2, 3, 4)
TUCKER = lt.random_tucker((4, 5, 3), (2, 2, 2), seed=1)
BATCH = lt.random_tucker((4, 5, 3), (2, 2, 2), seed=1, trials=3)

unattainable = {
    "hosvd": lambda: lt.hosvd(np.ones((5, 5, 6)), (1, 1, 2)),
    "sthosvd": lambda: lt.sthosvd(np.ones((5, 5, 6)), (1, 1, 2)),
    "hooi": lambda: lt.hooi(np.ones((5, 5, 6)), (1, 1, 2)),
    "HOSVD": lambda: lt.HOSVD((1, 1, 2)),
    "STHOSVD": lambda: lt.STHOSVD((1, 1, 2)),
    "HOOI": lambda: lt.HOOI((1, 1, 2)),
    "random_tucker": lambda: lt.random_tucker((5, 5, 6), (1, 1, 2)),
    "degrees_of_freedom": lambda: lt.degrees_of_freedom((5, 5, 6), (1, 1, 2)),
}


@pytest.mark.parametrize("make", [lt.HOSVD, lt.STHOSVD, lt.HOOI])
@pytest.mark.parametrize("rank", [[1, 2, 2], np.array([1, 2, 2])], ids=["list", "array"])
def test_a_rank_may_be_any_sequence_of_integers(make, rank):
    assert make(rank).rank == (1, 2, 2)
    assert lt.hosvd(X, rank).rank == (1, 2, 2)


@pytest.mark.parametrize("function", unattainable)
def test_unattainable_rank_warns_with_the_attainable_one(function):
    with pytest.warns(lt.RankWarning, match=r"rank \(1, 1, 2\).*try rank=\(1, 1, 1\)") as caught:
        unattainable[function]()
    assert len(caught) == 1
    assert caught[0].filename == __file__, "the warning should point at the caller's line"


def test_unattainable_rank_still_works():
    Y = lt.random_tucker((5, 5, 6), (1, 1, 1), seed=2).full()
    with pytest.warns(lt.RankWarning, match="No tensor has Tucker rank"):
        got = lt.hosvd(Y, (1, 1, 2))
    assert got.rank == (1, 1, 2)
    np.testing.assert_allclose(got.full(), Y, rtol=0, atol=1e-13)
    np.testing.assert_allclose(got.factors[2].T @ got.factors[2], np.eye(2), rtol=0, atol=1e-13)


def test_thresholding_warns_about_its_rank_only_once():
    with pytest.warns(lt.RankWarning, match="No tensor has Tucker rank") as caught:
        made = [make((1, 1, 2)) for make in (lt.HOSVD, lt.STHOSVD, lt.HOOI)]
    assert len(caught) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for threshold in made:
            assert threshold(np.ones((5, 5, 6))).rank == (1, 1, 2)


def test_entries_of_no_indices_are_empty():
    assert TUCKER.entries(np.empty((0, 3), dtype=int)).shape == (0,)
    assert BATCH.entries(np.empty((0, 3), dtype=int)).shape == (3, 0)


def test_norm_of_an_empty_tensor_is_zero():
    assert lt.norm(np.zeros((0, 3))) == 0
    np.testing.assert_array_equal(lt.norm(np.zeros((2, 0)), batch_ndim=1), np.zeros(2))


def test_thresholding_of_a_tucker_tensor_of_smaller_rank_is_that_of_the_full_tensor():
    """H_r maps onto rank at most r: a tensor of smaller rank is unchanged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.RankWarning)
        from_full = lt.hosvd(TUCKER.full(), (3, 3, 3))
        through = lt.hosvd(TUCKER, (3, 3, 3))
    np.testing.assert_allclose(from_full.full(), TUCKER.full(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(through.full(), TUCKER.full(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("matrix", [np.matrix, np.ma.array], ids=["matrix", "masked"])
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_subclasses_of_numpy_arrays_give_plain_arrays(matrix):
    M = matrix(np.arange(6.0).reshape(2, 3))
    plain = np.arange(6.0).reshape(2, 3)
    assert type(lt.unfold(M, 1)) is np.ndarray
    np.testing.assert_array_equal(lt.unfold(M, 1), plain.T)
    assert float(lt.inner(M, M)) == pytest.approx(float((plain**2).sum()))
    np.testing.assert_allclose(lt.hosvd(M, (1, 1)).full(), lt.hosvd(plain, (1, 1)).full())


def test_products_of_bytes_do_not_wrap_around():
    X = np.full((2, 2), 200, np.uint8)
    np.testing.assert_array_equal(lt.mode_product(X, X, 0), np.full((2, 2), 80_000.0))


def test_product_with_a_complex_number_keeps_the_precision():
    X = lt.random_tucker((4, 5), (2, 2), seed=1, dtype=np.float32)
    got = X * 2j
    assert got.dtype == np.complex64
    np.testing.assert_allclose(got.full(), 2j * X.full(), rtol=1e-6)


def test_numpy_asarray_gives_the_full_tensor():
    full = TUCKER.full()
    np.testing.assert_array_equal(np.asarray(TUCKER), full)
    assert np.array(TUCKER, dtype=np.float32).dtype == np.float32
    assert np.linalg.norm(TUCKER) == pytest.approx(float(TUCKER.norm()))


def test_trial_returns_one_tensor_of_a_batch():
    batch = lt.random_tucker((3, 4), (2, 2), seed=5, trials=6)
    two = lt.TuckerTensor(
        batch.core.reshape(2, 3, 2, 2),
        [U.reshape(2, 3, *U.shape[1:]) for U in batch.factors],
    )
    for k in range(6):
        np.testing.assert_array_equal(batch.trial(k).full(), batch.full()[k])
        np.testing.assert_array_equal(two.trial(k).full(), two.full()[divmod(k, 3)])
    assert batch.trial(np.int64(2)).batch_shape == ()


def test_a_mode_order_may_be_a_list():
    assert lt.STHOSVD((1, 1), mode_order=[1, 0]).mode_order == (1, 0)
