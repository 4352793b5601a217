"""Invalid arguments of the tensor algebra are rejected with a message that names them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lowtucker as lt

NAN, INF = np.full((3, 4), np.nan), np.full((3, 4), np.inf)
X = np.arange(24.0).reshape(2, 3, 4)
RAGGED = [[1.0, 2.0], [3.0]]
OBJECTS = np.array([[object(), object()]])
TUCKER = lt.random_tucker((4, 5, 3), (2, 2, 2), seed=1)
STACK = lt.random_tucker((4, 5, 3), (2, 2, 2), seed=1, trials=3)

not_an_array = {
    "None": (None, TypeError, "{} must be an array of numbers, got NoneType"),
    "string": ("tensor", TypeError, "{} must be an array of numbers, got str"),
    "dict": ({}, TypeError, "{} must be an array of numbers, got dict"),
    "objects": (OBJECTS, TypeError, "{} must be an array of numbers, got dtype object"),
    "strings": (np.array(["a", "b"]), TypeError, "{} must be an array of numbers, got dtype"),
    "ragged": (RAGGED, ValueError, "{} must be an array of numbers, got a ragged list"),
}

takes_an_array = {
    "unfold": (lambda V: lt.unfold(V, 0), "X"),
    "fold": (lambda V: lt.fold(V, 0, (2, 3)), "matrix"),
    "mode_product-X": (lambda V: lt.mode_product(V, np.eye(2), 0), "X"),
    "mode_product-U": (lambda V: lt.mode_product(X, V, 0), "U"),
    "multi_mode_product": (lambda V: lt.multi_mode_product(V, [None]), "X"),
    "inner-X": (lambda V: lt.inner(V, X), "X"),
    "inner-Y": (lambda V: lt.inner(X, V), "Y"),
    "norm": (lt.norm, "X"),
    "hosvd": (lambda V: lt.hosvd(V, (1, 1)), "X"),
    "sthosvd": (lambda V: lt.sthosvd(V, (1, 1)), "X"),
    "hooi": (lambda V: lt.hooi(V, (1, 1)), "X"),
    "spectra": (lt.spectra, "X"),
    "multilinear_rank": (lt.multilinear_rank, "X"),
    "TuckerTensor-core": (lambda V: lt.TuckerTensor(V, [np.eye(2)]), "core"),
    "TuckerTensor-factors": (lambda V: lt.TuckerTensor(np.eye(2), [V, np.eye(2)]), r"factors\[0\]"),
    "from_factors-core": (lambda V: lt.TuckerTensor.from_factors(V, [np.eye(2)]), "core"),
    "entries": (TUCKER.entries, "indices"),
    "times": (lambda V: TUCKER * V, "number"),
    "HOSVD": (lambda V: lt.HOSVD((1, 1))(V), "X"),
}


@pytest.mark.parametrize("given", not_an_array)
@pytest.mark.parametrize("function", takes_an_array)
def test_non_numeric_arrays_are_rejected(function, given):
    call, name = takes_an_array[function]
    value, error, message = not_an_array[given]
    with pytest.raises(error, match=message.format(name)):
        call(value)


truncations = {
    "hosvd": lt.hosvd,
    "sthosvd": lt.sthosvd,
    "hooi": lt.hooi,
    "HOSVD": lambda V, rank: lt.HOSVD(rank)(V),
    "STHOSVD": lambda V, rank: lt.STHOSVD(rank)(V),
    "HOOI": lambda V, rank: lt.HOOI(rank)(V),
    "compress": lambda V, rank: lt.hosvd(V).compress(rank),
    "random_tucker": lambda V, rank: lt.random_tucker(V.shape, rank),
    "degrees_of_freedom": lambda V, rank: lt.degrees_of_freedom(V.shape, rank),
}

bad_ranks = {
    "too-large": ((2, 3, 5), ValueError, r"rank\[2\] = 5 must be between 1 and 4"),
    "zero": ((0, 2, 2), ValueError, r"rank\[0\] = 0 must be (between 1 and|at least 1)"),
    "negative": ((1, -1, 2), ValueError, r"rank\[1\] = -1 must be (between 1 and|at least 1)"),
    "too-many": ((1, 1, 1, 1), ValueError, "rank must have one entry per mode: got 4 entries"),
    "scalar": (2, TypeError, "rank must have one entry per mode, got the number 2"),
    "float-scalar": (2.0, TypeError, r"rank must be a tuple of integers, got 2\.0"),
    "floats": ((2.0, 2, 2), TypeError, r"rank must be a tuple of integers, got \(2\.0, 2, 2\)"),
    "booleans": ((True, 1, 1), TypeError, r"rank must be a tuple of integers, got \(True, 1, 1\)"),
    "name": ("abc", TypeError, "rank must be a tuple of integers, got 'abc'"),
    "None-inside": ((None, 1, 1), TypeError, r"rank must be a tuple of integers, got \(None"),
}


@pytest.mark.parametrize("given", bad_ranks)
@pytest.mark.parametrize("function", truncations)
def test_invalid_rank_is_rejected(function, given):
    rank, error, message = bad_ranks[given]
    with pytest.raises(error, match=message):
        truncations[function](X, rank)


@pytest.mark.parametrize("make", [lt.HOSVD, lt.STHOSVD, lt.HOOI])
def test_thresholding_with_an_invalid_rank_is_rejected(make):
    with pytest.raises(ValueError, match=r"rank must .*got .*\(\)"):
        make(())
    with pytest.raises(TypeError, match="rank must be a tuple of integers, got None"):
        make(None)


@pytest.mark.parametrize("make", [lt.HOSVD, lt.STHOSVD, lt.HOOI])
def test_thresholding_errors_mention_no_shape(make):
    with pytest.raises(TypeError, match="got the number 5") as caught:
        make(5)
    assert str(2**62) not in str(caught.value)


@pytest.mark.parametrize("make", [lt.HOSVD, lt.STHOSVD, lt.HOOI])
@pytest.mark.parametrize("rank", [[1, 2, 2], np.array([1, 2, 2])], ids=["list", "array"])
def test_a_rank_may_be_any_sequence_of_integers(make, rank):
    assert make(rank).rank == (1, 2, 2)
    assert lt.hosvd(X, rank).rank == (1, 2, 2)


@pytest.mark.parametrize("function", ["hosvd", "sthosvd", "hooi", "HOSVD", "STHOSVD", "HOOI"])
@pytest.mark.parametrize("bad", [NAN, INF], ids=["nan", "inf"])
def test_truncations_reject_nan_and_infinity(function, bad):
    with pytest.raises(ValueError, match="X has NaN or infinite entries"):
        truncations[function](bad, (1, 1))


@pytest.mark.parametrize("truncate", [lt.hosvd, lt.sthosvd, lt.hooi])
@pytest.mark.parametrize("bad", [NAN, INF], ids=["nan", "inf"])
def test_truncations_reject_nan_and_infinity_without_a_rank(truncate, bad):
    with pytest.raises(ValueError, match="X has NaN or infinite entries"):
        truncate(bad)


@pytest.mark.parametrize("function", [lt.spectra, lt.multilinear_rank])
@pytest.mark.parametrize("bad", [NAN, INF], ids=["nan", "inf"])
def test_spectra_reject_nan_and_infinity(function, bad):
    with pytest.raises(ValueError, match="X has NaN or infinite entries"):
        function(bad)


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


bad_calls = {
    "unfold-scalar": (lambda: lt.unfold(5.0, 0), ValueError, "X .*at least one mode"),
    "unfold-mode": (lambda: lt.unfold(X, 3), ValueError, "mode must be between 0 and 2, got 3"),
    "unfold-negative": (
        lambda: lt.unfold(X, -1),
        ValueError,
        "mode must be between 0 and 2, got -1",
    ),
    "unfold-float": (lambda: lt.unfold(X, 1.0), TypeError, r"mode must be an integer, got 1\.0"),
    "unfold-None": (lambda: lt.unfold(X, None), TypeError, "mode must be an integer, got None"),
    "unfold-batch": (
        lambda: lt.unfold(X, 0, batch_ndim=3),
        ValueError,
        "batch_ndim must be between 0 and 2, got 3",
    ),
    "fold-shape": (
        lambda: lt.fold(np.ones((2, 5)), 0, (2, 3)),
        ValueError,
        r"fold expects a matrix of shape \(\*batch, 2, 3\).*got \(2, 5\)",
    ),
    "fold-vector": (
        lambda: lt.fold(np.ones(6), 0, (2, 3)),
        ValueError,
        r"fold expects a matrix.*got \(6,\)",
    ),
    "fold-mode": (
        lambda: lt.fold(np.ones((2, 3)), 2, (2, 3)),
        ValueError,
        "mode must be between 0",
    ),
    "fold-empty": (lambda: lt.fold(np.ones((2, 3)), 0, ()), ValueError, r"shape must .*got \(\)"),
    "fold-number": (lambda: lt.fold(np.ones((2, 3)), 0, 6), TypeError, "shape must .*the number 6"),
    "fold-float": (lambda: lt.fold(np.ones((2, 3)), 0, (2.0, 3)), ValueError, r"shape must .*2\.0"),
    "fold-zero": (
        lambda: lt.fold(np.ones((2, 3)), 0, (2, 0)),
        ValueError,
        r"shape must .*\(2, 0\)",
    ),
    "fold-None": (lambda: lt.fold(np.ones((2, 3)), 0, None), TypeError, "shape must .*NoneType"),
    "product-vector": (
        lambda: lt.mode_product(X, np.ones(2), 0),
        ValueError,
        r"U must be a matrix of shape .*got shape \(2,\)",
    ),
    "product-columns": (
        lambda: lt.mode_product(X, np.ones((2, 3)), 0),
        ValueError,
        "U has 3 columns, but mode 0 of X",
    ),
    "product-mode": (
        lambda: lt.mode_product(X, np.ones((2, 3)), 7),
        ValueError,
        "mode must be between 0 and 2, got 7",
    ),
    "product-stacks-differ": (
        lambda: lt.mode_product(X, np.ones((5, 7, 4)), 1),
        ValueError,
        r"U .*\(5, 7, 4\)",
    ),
    "product-stack-of-matrices-for-one-tensor": (
        lambda: lt.mode_product(X, np.ones((5, 7, 4)), 2, batch_ndim=0),
        ValueError,
        r"U .*\(5, 7, 4\)",
    ),
    "products-too-many": (
        lambda: lt.multi_mode_product(X, [None] * 4),
        ValueError,
        "matrices must have one entry for each mode of X.*got 4",
    ),
    "products-none": (
        lambda: lt.multi_mode_product(X, []),
        ValueError,
        "matrices must have one entry for each mode of X.*got 0",
    ),
    "products-number": (lambda: lt.multi_mode_product(X, 5), TypeError, "matrices must .*int"),
    "products-missing": (lambda: lt.multi_mode_product(X, None), TypeError, "matrices must .*None"),
    "products-string": (
        lambda: lt.multi_mode_product(X, "abc"),
        TypeError,
        r"matrices.* must be .*got str",
    ),
    "products-vector": (
        lambda: lt.multi_mode_product(X, [np.ones(2), None, None]),
        ValueError,
        r"(U|matrices\[0\]) must be a matrix of shape .*got shape \(2,\)",
    ),
    "products-columns": (
        lambda: lt.multi_mode_product(X, [None, np.ones((2, 2)), None]),
        ValueError,
        "has 2 columns, but mode 1 of X",
    ),
    "products-no-columns": (
        lambda: lt.multi_mode_product(X, [np.ones((2, 0)), None, None]),
        ValueError,
        "has 0 columns, but mode 0 of X",
    ),
    "inner-shapes": (
        lambda: lt.inner(X, X[0]),
        ValueError,
        r"inner expects two tensors of the same shape, got \(2, 3, 4\) and \(3, 4\)",
    ),
    "inner-batch": (lambda: lt.inner(X, X, batch_ndim=4), ValueError, "batch_ndim must be between"),
    "norm-batch": (lambda: lt.norm(X, batch_ndim=-1), ValueError, "batch_ndim must be between"),
    "hosvd-number": (lambda: lt.hosvd(3.0), ValueError, "X .*at least one mode"),
    "spectra-number": (lambda: lt.spectra(3.0), ValueError, "at least one mode, got a number"),
    "sthosvd-order-repeats": (
        lambda: lt.sthosvd(X, (1, 1, 1), mode_order=(0, 0, 1)),
        ValueError,
        r"mode_order must be a permutation of 0 to 2, got \(0, 0, 1\)",
    ),
    "sthosvd-order-short": (
        lambda: lt.sthosvd(X, (1, 1, 1), mode_order=(0, 1)),
        ValueError,
        r"mode_order must be a permutation of 0 to 2, got \(0, 1\)",
    ),
    "sthosvd-order-number": (
        lambda: lt.sthosvd(X, (1, 1, 1), mode_order=1),
        TypeError,
        "mode_order must be a permutation",
    ),
    "sthosvd-order-floats": (
        lambda: lt.sthosvd(X, (1, 1, 1), mode_order=(0.0, 1.0, 2.0)),
        (TypeError, ValueError),
        "mode_order must be a permutation",
    ),
    "sthosvd-order-mixed": (
        lambda: lt.sthosvd(X, (1, 1, 1), mode_order=(0, "a", 1)),
        (TypeError, ValueError),
        "mode_order must be a permutation",
    ),
    "hooi-iterations": (
        lambda: lt.hooi(X, (1, 1, 1), max_iterations=0),
        ValueError,
        "max_iterations must be at least 1, got 0",
    ),
    "hooi-iterations-float": (
        lambda: lt.hooi(X, (1, 1, 1), max_iterations=2.5),
        TypeError,
        r"max_iterations must be an integer, got 2\.5",
    ),
    "hooi-tol-string": (lambda: lt.hooi(X, (1, 1, 1), tol="a"), TypeError, "tol must .*'a'"),
    "hooi-tol-nan": (lambda: lt.hooi(X, (1, 1, 1), tol=np.nan), ValueError, "tol must .*nan"),
    "hooi-tol-negative": (lambda: lt.hooi(X, (1, 1, 1), tol=-1.0), ValueError, r"tol must .*-1"),
    "HOOI-iterations": (
        lambda: lt.HOOI((1, 1), max_iterations=0),
        ValueError,
        "max_iterations must be at least 1, got 0",
    ),
    "quasi_optimality": (
        lambda: lt.quasi_optimality(0),
        ValueError,
        "order must be at least 1, got 0",
    ),
    "compress-stack": (
        STACK.compress,
        ValueError,
        "compress needs a rank for a batch",
    ),
    "spectra-stack": (lambda: lt.spectra(STACK), ValueError, "got a batch"),
    "multilinear_rank-stack": (lambda: lt.multilinear_rank(STACK), ValueError, "got a batch"),
    "energy-short": (lambda: lt.spectra(X).energy((1, 2)), ValueError, "rank must .*2 entries"),
    "energy-scalar": (lambda: lt.spectra(X).energy(2), TypeError, "rank must .*the number 2"),
    "energy-negative": (
        lambda: lt.spectra(X).energy((1, 2, -1)),
        ValueError,
        r"rank\[2\] = -1 must be",
    ),
    "attainable-number": (lambda: lt.attainable_rank(5), TypeError, "rank must .*the number 5"),
    "attainable-zero": (lambda: lt.attainable_rank((0, 1)), ValueError, r"rank\[0\] = 0 must be"),
    "attainable-float": (lambda: lt.attainable_rank((1.5, 2)), TypeError, r"rank must .*1\.5"),
    "random-shape": (lambda: lt.random_tucker((), ()), ValueError, r"shape must .*got \(\)"),
    "random-shape-number": (lambda: lt.random_tucker(5, (1,)), TypeError, "shape must .*number 5"),
    "random-shape-negative": (
        lambda: lt.random_tucker((3, -4), (1, 1)),
        ValueError,
        r"shape must be a tuple of positive integers, got \(3, -4\)",
    ),
    "random-rank-short": (
        lambda: lt.random_tucker((3, 4, 5), (1, 1)),
        ValueError,
        "rank must have one entry per mode: got 2 entries.*3 modes",
    ),
    "random-seed-negative": (
        lambda: lt.random_tucker((3, 4), (1, 1), seed=-1),
        ValueError,
        "seed must not be negative, got -1",
    ),
    "random-seed-float": (
        lambda: lt.random_tucker((3, 4), (1, 1), seed=1.5),
        TypeError,
        r"seed must be an integer .*got 1\.5",
    ),
    "random-seed-None": (
        lambda: lt.random_tucker((3, 4), (1, 1), seed=None),
        TypeError,
        "seed must be an integer .*got None",
    ),
    "random-seed-triple": (
        lambda: lt.random_tucker((3, 4), (1, 1), seed=(1, 2, 3)),
        TypeError,
        r"seed must be .*pair \(seed, trial\), got \(1, 2, 3\)",
    ),
    "random-dtype-int": (
        lambda: lt.random_tucker((3, 4), (1, 1), dtype=int),
        TypeError,
        "dtype must be float32, float64, complex64 or complex128, got int64",
    ),
    "random-dtype-half": (
        lambda: lt.random_tucker((3, 4), (1, 1), dtype=np.float16),
        TypeError,
        "dtype must be float32, float64, complex64 or complex128, got float16",
    ),
    "random-dtype-long": (
        lambda: lt.random_tucker((3, 4), (1, 1), dtype=np.longdouble),
        TypeError,
        "dtype must be float32, float64, complex64 or complex128, got",
    ),
    "random-dtype-name": (
        lambda: lt.random_tucker((3, 4), (1, 1), dtype="foo"),
        TypeError,
        "dtype must be float32, float64, complex64 or complex128, got 'foo'",
    ),
    "random-trials": (
        lambda: lt.random_tucker((3, 4), (1, 1), trials=0),
        ValueError,
        "trials must be at least 1, got 0",
    ),
    "random-mean-string": (
        lambda: lt.random_tucker((3, 4), (1, 1), core_mean="a"),
        TypeError,
        "core_mean must .*'a'",
    ),
    "random-mean-nan": (
        lambda: lt.random_tucker((3, 4), (1, 1), core_mean=np.nan),
        ValueError,
        "core_mean must .*nan",
    ),
    "random-mean-complex": (
        lambda: lt.random_tucker((3, 4), (1, 1), core_mean=1j),
        (TypeError, ValueError),
        "core_mean must .*1j",
    ),
}


@pytest.mark.parametrize("name", bad_calls)
def test_invalid_argument_is_rejected(name):
    call, error, message = bad_calls[name]
    with pytest.raises(error, match=message):
        call()


bad_tuckers = {
    "no-factors": ((np.ones((1, 1)), []), ValueError, "factors must have one matrix .*got 0"),
    "too-many-factors": (
        (np.ones(1), [np.eye(1)] * 2),
        ValueError,
        r"factors must have one matrix .*got 2 for a core of shape \(1,\)",
    ),
    "factors-number": ((np.ones((1, 1)), 5), TypeError, "factors must .*int"),
    "factors-None": ((np.ones((1, 1)), None), TypeError, "factors must .*None"),
    "factors-string": ((np.ones((1, 1)), "ab"), TypeError, r"factors\[0\] must be an array .*str"),
    "vector-factor": (
        (np.ones((1, 1)), [np.ones(3), np.ones((4, 1))]),
        ValueError,
        r"factors\[0\] must have shape .*got \(3,\)",
    ),
    "wrong-columns": (
        (np.ones((1, 1)), [np.eye(3)[:, :2], np.eye(4)[:, :1]]),
        ValueError,
        r"factors\[0\] must have shape .*core of shape \(1, 1\), got \(3, 2\)",
    ),
    "stacks-differ": (
        (np.ones((2, 1, 1)), [np.ones((3, 4, 1)), np.ones((2, 4, 1))]),
        ValueError,
        r"factors\[0\] must have shape .*got \(3, 4, 1\)",
    ),
    "nan-core": (
        (np.full((1, 1), np.nan), [np.eye(3)[:, :1]] * 2),
        ValueError,
        "core has NaN or infinite entries",
    ),
    "nan-factor": (
        (np.ones((1, 1)), [np.eye(3)[:, :1], np.full((3, 1), np.inf)]),
        ValueError,
        r"factors\[1\] has NaN or infinite entries",
    ),
}


@pytest.mark.parametrize("make", [lt.TuckerTensor, lt.TuckerTensor.from_factors])
@pytest.mark.parametrize("name", bad_tuckers)
def test_parts_that_do_not_match_are_rejected(name, make):
    parts, error, message = bad_tuckers[name]
    with pytest.raises(error, match=message):
        make(*parts)


def test_non_orthonormal_factors_are_rejected_with_advice():
    with pytest.raises(ValueError, match=r"factors\[1\] must have orthonormal.*from_factors"):
        lt.TuckerTensor(np.ones((1, 1)), [np.eye(3)[:, :1], np.ones((4, 1))])


bad_operands = {
    "plus-array": (
        lambda: TUCKER + TUCKER.full(),
        TypeError,
        "expected a TuckerTensor, got ndarray",
    ),
    "minus-number": (
        lambda: TUCKER - 1,
        TypeError,
        "(expected a TuckerTensor, got int|unsupported)",
    ),
    "plus-shape": (
        lambda: TUCKER + lt.random_tucker((4, 5, 4), (2, 2, 2)),
        ValueError,
        r"two tensors of the same shape, got \(4, 5, 3\) and \(4, 5, 4\)",
    ),
    "plus-order": (
        lambda: TUCKER + lt.random_tucker((4, 5), (2, 2)),
        ValueError,
        r"two tensors of the same shape, got \(4, 5, 3\) and \(4, 5\)",
    ),
    "plus-stack": (
        lambda: TUCKER + STACK,
        ValueError,
        r"two tensors of the same shape, got \(4, 5, 3\) and \(3, 4, 5, 3\)",
    ),
    "inner-array": (
        lambda: TUCKER.inner(TUCKER.full()),
        TypeError,
        "expected a TuckerTensor, got ndarray",
    ),
    "inner-None": (lambda: TUCKER.inner(None), TypeError, "expected a TuckerTensor, got NoneType"),
    "times-vector": (
        lambda: TUCKER * np.ones(3),
        ValueError,
        r"multiplied by a number .*got shape \(3,\)",
    ),
    "times-wrong-trials": (
        lambda: STACK * np.ones(4),
        ValueError,
        r"one number per tensor of a batch, shape \(3,\); got shape \(4,\)",
    ),
    "times-tucker": (lambda: TUCKER * TUCKER, TypeError, "number must be an array of numbers"),
}


@pytest.mark.parametrize("name", bad_operands)
def test_operands_that_do_not_match_are_rejected(name):
    call, error, message = bad_operands[name]
    with pytest.raises(error, match=message):
        call()


bad_indices = {
    "one-based": ([[4, 0, 0]], ValueError, "indices must be 0-based, from 0 to 3 in mode 0"),
    "negative": ([[0, -1, 0]], ValueError, "indices must be 0-based.* mode 1; got values from -1"),
    "floats": ([[0.0, 1.0, 2.0]], TypeError, "indices must be integers, got dtype float64"),
    "booleans": ([[True, True, True]], TypeError, "indices must be integers, got dtype bool"),
    "vector": ([0, 1, 2], ValueError, r"indices must have shape \(k, 3\).*got \(3,\)"),
    "two-columns": ([[0, 1]], ValueError, r"indices must have shape \(k, 3\).*got \(1, 2\)"),
    "empty": ([], ValueError, r"indices must have shape \(k, 3\).*got \(0,\)"),
}


@pytest.mark.parametrize("name", bad_indices)
def test_indices_outside_the_tensor_are_rejected(name):
    indices, error, message = bad_indices[name]
    with pytest.raises(error, match=message):
        TUCKER.entries(indices)


def test_entries_of_no_indices_are_empty():
    assert TUCKER.entries(np.empty((0, 3), dtype=int)).shape == (0,)
    assert STACK.entries(np.empty((0, 3), dtype=int)).shape == (3, 0)


def test_norm_of_an_empty_tensor_is_zero():
    assert lt.norm(np.zeros((0, 3))) == 0
    np.testing.assert_array_equal(lt.norm(np.zeros((2, 0)), batch_ndim=1), np.zeros(2))


@pytest.mark.parametrize("truncate", [lt.hosvd, lt.sthosvd, lt.hooi])
def test_extended_precision_is_rejected(truncate):
    if np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("longdouble is float64 here")
    message = f"X must be of single or double precision, got dtype {np.dtype(np.longdouble)}. Try"
    with pytest.raises(TypeError, match=message):
        truncate(X.astype(np.longdouble), (1, 1, 1))


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


takes_numbers = {
    "hosvd": lambda V: lt.hosvd(V, (1, 1)),
    "norm": lt.norm,
    "DenseOperator": lambda V: lt.DenseOperator(V, (3,)),
    "Problem": lambda V: lt.Problem(lt.gaussian((3,), 6), np.ma.ravel(V)),
}


@pytest.mark.parametrize("function", takes_numbers)
def test_masked_elements_are_rejected_with_advice(function):
    masked = np.ma.masked_greater(np.arange(6.0).reshape(2, 3), 4.0)
    with pytest.raises(TypeError, match=r"must be an array of numbers, got a masked array.*filled"):
        takes_numbers[function](masked)


def test_arrays_of_different_kinds_are_rejected():
    torch = pytest.importorskip("torch")
    T = torch.ones((2, 3))
    for call, name in (
        (lambda: lt.mode_product(T, np.ones((2, 2)), 0), "U"),
        (lambda: lt.multi_mode_product(T, [None, np.ones((2, 3))]), r"matrices\[1\]"),
        (lambda: lt.inner(T, np.ones((2, 3))), "Y"),
        (lambda: lt.TuckerTensor(T, [np.eye(2), np.eye(3)]), r"factors\[0\]"),
        (lambda: lt.hosvd(T) + lt.hosvd(np.ones((2, 3))), "the other tensor"),
    ):
        with pytest.raises(TypeError, match=rf"{name} is a NumPy array, but .* holds torch"):
            call()


def test_products_of_bytes_do_not_wrap_around():
    X = np.full((2, 2), 200, np.uint8)
    np.testing.assert_array_equal(lt.mode_product(X, X, 0), np.full((2, 2), 80_000.0))


def test_tucker_tensor_instead_of_an_array_is_rejected_with_advice():
    with pytest.raises(TypeError, match=r"X must be an array .*got TuckerTensor\. Try X\.full\(\)"):
        lt.unfold(TUCKER, 0)


@pytest.mark.parametrize("function", [lt.hosvd, lt.sthosvd, lt.hooi, lt.spectra])
def test_empty_tensors_are_rejected(function):
    with pytest.raises(ValueError, match=r"X must have entries in every mode, got shape \(0, 3\)"):
        function(np.ones((0, 3)))


def test_thresholding_warns_about_its_rank_only_once():
    with pytest.warns(lt.RankWarning, match="No tensor has Tucker rank") as caught:
        made = [make((1, 1, 2)) for make in (lt.HOSVD, lt.STHOSVD, lt.HOOI)]
    assert len(caught) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for threshold in made:
            assert threshold(np.ones((5, 5, 6))).rank == (1, 1, 2)


def test_wrong_mode_order_is_rejected_on_construction():
    with pytest.raises(ValueError, match="mode_order must be a permutation of 0 to 1"):
        lt.STHOSVD((1, 1), mode_order=(0, 0))
    assert lt.STHOSVD((1, 1), mode_order=[1, 0]).mode_order == (1, 0)


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
    with pytest.raises(ValueError, match="copy=False is not possible"):
        np.asarray(TUCKER, copy=False)


def test_trial_returns_one_tensor_of_a_batch():
    stack = lt.random_tucker((3, 4), (2, 2), seed=5, trials=6)
    two = lt.TuckerTensor(
        stack.core.reshape(2, 3, 2, 2),
        [U.reshape(2, 3, *U.shape[1:]) for U in stack.factors],
    )
    for k in range(6):
        np.testing.assert_array_equal(stack.trial(k).full(), stack.full()[k])
        np.testing.assert_array_equal(two.trial(k).full(), two.full()[divmod(k, 3)])
    assert stack.trial(np.int64(2)).batch_shape == ()
    for k in (-1, 6):
        with pytest.raises(ValueError, match=f"k must be between 0 and 5, got {k}"):
            stack.trial(k)
    with pytest.raises(TypeError, match=r"k must be an integer, got 1\.0"):
        stack.trial(1.0)
    with pytest.raises(ValueError, match=r"needs a batch of tensors, got a single .*\(3, 4\)"):
        stack.trial(0).trial(0)
