"""The metrics against their formulae."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import lowtucker as lt
from lowtucker import metrics


def pair(shape=(4, 5, 3), dtype=float, seed=0):
    rng = np.random.default_rng(seed)
    X_true = rng.standard_normal(shape)
    X = X_true + 0.1 * rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        X_true = X_true + 1j * rng.standard_normal(shape)
        X = X + 1.1j * X_true.imag
    return X.astype(dtype), X_true.astype(dtype)


def squares(X):
    return sum(abs(x) ** 2 for x in X.ravel())


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_relative_error_nmse_and_snr_match_their_formulae(dtype):
    X, X_true = pair(dtype=dtype)
    ratio = squares(X - X_true) / squares(X_true)
    assert metrics.relative_error(X, X_true) == pytest.approx(math.sqrt(ratio), rel=1e-13)
    assert metrics.nmse(X, X_true) == pytest.approx(ratio, rel=1e-13)
    assert metrics.snr_db(X, X_true) == pytest.approx(-10 * math.log10(ratio), rel=1e-13)
    assert isinstance(metrics.relative_error(X, X_true), float)


def test_equal_tensors_have_no_error_and_infinite_ratios():
    X, _ = pair()
    assert metrics.relative_error(X, X) == metrics.nmse(X, X) == 0
    assert metrics.snr_db(X, X) == metrics.psnr(X, X) == math.inf


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_relative_error_does_not_depend_on_the_scale(scale):
    X, X_true = pair()
    expected = metrics.relative_error(X, X_true)
    assert metrics.relative_error(X * scale, X_true * scale) == pytest.approx(expected, rel=1e-12)


def test_tucker_tensors_and_arrays_give_the_same():
    X, X_true = lt.random_tucker((4, 5, 3), (2, 2, 2), 1), lt.random_tucker((4, 5, 3), (1, 2, 2), 2)
    expected = np.linalg.norm(X.full() - X_true.full()) / np.linalg.norm(X_true.full())
    for a, b in itertools.product((X, X.full()), (X_true, X_true.full())):
        assert metrics.relative_error(a, b) == pytest.approx(expected, rel=1e-12)
        assert metrics.nmse(a, b) == pytest.approx(expected**2, rel=1e-12)
        assert metrics.snr_db(a, b) == pytest.approx(-20 * math.log10(expected), rel=1e-12)
        assert metrics.psnr(a, b, 1.0) == pytest.approx(
            metrics.psnr(X.full(), X_true.full(), 1.0), rel=1e-12
        )


def test_batch_has_one_relative_error_per_problem():
    X = lt.random_tucker((4, 5, 3), (2, 2, 2), 1, trials=3)
    X_true = lt.random_tucker((4, 5, 3), (1, 2, 2), 2, trials=3)
    expected = [
        np.linalg.norm(a - b) / np.linalg.norm(b)
        for a, b in zip(X.full(), X_true.full(), strict=True)
    ]
    for a, b, options in (
        (X, X_true, {}),
        (X, X_true.full(), {}),
        (X.full(), X_true, {}),
        (X.full(), X_true.full(), {"batch_ndim": 1}),
    ):
        got = metrics.relative_error(a, b, **options)
        assert got.shape == (3,)
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    whole = np.linalg.norm(X.full() - X_true.full()) / np.linalg.norm(X_true.full())
    assert metrics.relative_error(X.full(), X_true.full()) == pytest.approx(whole, rel=1e-12)


def test_psnr_matches_its_formula_with_given_or_default_range():
    X, X_true = pair((6, 7))
    mse = squares(X - X_true) / X.size
    found = X_true.max() - X_true.min()
    assert metrics.psnr(X, X_true) == pytest.approx(10 * math.log10(found**2 / mse), rel=1e-13)
    assert metrics.psnr(X, X_true, 255) == pytest.approx(10 * math.log10(255**2 / mse), rel=1e-13)


def test_bytes_do_not_wrap_around():
    X, X_true = np.array([[10, 200]], np.uint8), np.array([[20, 190]], np.uint8)
    assert metrics.psnr(X, X_true, 255) == pytest.approx(10 * math.log10(255**2 / 100))
    expected = math.sqrt(200 / (20**2 + 190**2))
    assert metrics.relative_error(X, X_true) == pytest.approx(expected)


def loop_ssim(X, Y, length):
    """Wang et al. (2004): every window that fits, 11 Gaussian taps of standard deviation 1.5."""
    taps = [math.exp(-((i - 5) ** 2) / (2 * 1.5**2)) for i in range(11)]
    taps = [t / sum(taps) for t in taps]
    offsets = list(itertools.product(range(11), repeat=X.ndim))
    weights = [math.prod(taps[i] for i in offset) for offset in offsets]
    c1, c2 = (0.01 * length) ** 2, (0.03 * length) ** 2
    scores = []
    for corner in itertools.product(*(range(n - 10) for n in X.shape)):
        at = [tuple(c + o for c, o in zip(corner, offset, strict=True)) for offset in offsets]
        mu_x = sum(w * X[i] for w, i in zip(weights, at, strict=True))
        mu_y = sum(w * Y[i] for w, i in zip(weights, at, strict=True))
        var_x = sum(w * (X[i] - mu_x) ** 2 for w, i in zip(weights, at, strict=True))
        var_y = sum(w * (Y[i] - mu_y) ** 2 for w, i in zip(weights, at, strict=True))
        cov = sum(w * (X[i] - mu_x) * (Y[i] - mu_y) for w, i in zip(weights, at, strict=True))
        scores.append(
            (2 * mu_x * mu_y + c1)
            * (2 * cov + c2)
            / ((mu_x**2 + mu_y**2 + c1) * (var_x + var_y + c2))
        )
    return sum(scores) / len(scores)


@pytest.mark.parametrize("shape", [(11, 11), (14, 12), (30,), (11, 12, 11)], ids=str)
def test_ssim_is_the_mean_over_all_windows(shape):
    rng = np.random.default_rng(1)
    Y = rng.random(shape)
    X = np.clip(Y + 0.2 * rng.standard_normal(shape), 0, 1)
    assert metrics.ssim(X, Y, 1.0) == pytest.approx(loop_ssim(X, Y, 1.0), rel=1e-10)
    found = float(Y.max() - Y.min())
    assert metrics.ssim(X, Y) == pytest.approx(loop_ssim(X, Y, found), rel=1e-10)


def test_ssim_of_bytes_is_that_of_the_same_image_in_0_1():
    rng = np.random.default_rng(1)
    Y = rng.integers(0, 256, (16, 15)).astype(np.uint8)
    X = np.clip(Y.astype(int) + rng.integers(-20, 20, Y.shape), 0, 255).astype(np.uint8)
    assert metrics.ssim(X, Y, 255) == pytest.approx(metrics.ssim(X / 255, Y / 255, 1.0), rel=1e-10)
    assert metrics.ssim(Y, Y, 255) == pytest.approx(1, abs=1e-12)


EVERY = {
    "relative_error": metrics.relative_error,
    "nmse": metrics.nmse,
    "snr_db": metrics.snr_db,
    "psnr": metrics.psnr,
    "ssim": metrics.ssim,
}
IMAGE = np.random.default_rng(2).random((12, 12))

bad_pairs = {
    "None": (None, IMAGE, TypeError, "X must be an array of numbers, got NoneType"),
    "None-true": (IMAGE, None, TypeError, "X_true must be an array of numbers, got NoneType"),
    "string": ("x", IMAGE, TypeError, "X must be an array of numbers, got str"),
    "objects": (np.array([None]), IMAGE, TypeError, "X must be an array .*got dtype object"),
    "ragged": ([[1.0], [1.0, 2.0]], IMAGE, ValueError, "X must be .*ragged list"),
    "shapes": (
        IMAGE,
        IMAGE[1:],
        ValueError,
        r"X and X_true must have the same shape, got \(12, 12\) and \(11, 12\)",
    ),
    "nan-true": (IMAGE, IMAGE * np.nan, ValueError, "X_true has NaN or infinite entries"),
    "inf-true": (IMAGE, IMAGE + np.inf, ValueError, "X_true has NaN or infinite entries"),
    "empty": (np.ones((0, 3)), np.ones((0, 3)), ValueError, r"\(0, 3\)"),
}


@pytest.mark.parametrize("name", bad_pairs)
@pytest.mark.parametrize("metric", EVERY)
def test_invalid_arguments_raise(metric, name):
    X, X_true, error, message = bad_pairs[name]
    with pytest.raises(error, match=message):
        EVERY[metric](X, X_true)


def test_diverged_problem_of_a_batch_does_not_affect_the_others():
    X, X_true = pair((3, 4, 5))
    X[1] = np.nan
    got = metrics.relative_error(X, X_true, batch_ndim=1)
    assert np.isnan(got[1])
    for k in (0, 2):
        assert got[k] == pytest.approx(metrics.relative_error(X[k], X_true[k]))


@pytest.mark.parametrize("metric", ["relative_error", "nmse", "snr_db"])
def test_error_relative_to_zero_is_rejected(metric):
    with pytest.raises(ValueError, match="X_true is zero"):
        EVERY[metric](IMAGE, 0 * IMAGE)


@pytest.mark.parametrize("metric", ["psnr", "ssim"])
@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (0, ValueError, "data_range must be positive, got 0"),
        (-1, ValueError, "data_range must be positive, got -1"),
        (np.nan, ValueError, "data_range must be positive, got nan"),
        (np.inf, ValueError, "data_range must be a finite number, got inf"),
        ("a", TypeError, "data_range must .*'a'"),
        ((0, 1), TypeError, r"data_range must .*\(0, 1\)"),
    ],
    ids=str,
)
@pytest.mark.parametrize("X", [IMAGE, IMAGE + 0.1], ids=["equal", "different"])
def test_invalid_data_range_is_rejected(metric, given, error, message, X):
    with pytest.raises(error, match=message):
        EVERY[metric](X, IMAGE, given)


@pytest.mark.parametrize("metric", ["psnr", "ssim"])
def test_constant_image_needs_a_data_range(metric):
    constant = np.full((12, 12), 0.5)
    with pytest.raises(ValueError, match=r"data_range must be positive.*constant X_true"):
        EVERY[metric](IMAGE, constant)
    assert math.isfinite(EVERY[metric](IMAGE, constant, 1.0))


@pytest.mark.parametrize("metric", ["psnr", "ssim"])
def test_complex_images_are_rejected(metric):
    other = IMAGE + 1j * IMAGE[::-1]
    for X, X_true in ((other, IMAGE + 1j * IMAGE), (IMAGE, other), (other, IMAGE)):
        for data_range in ((), (1.0,)):
            with pytest.raises(TypeError, match=r"^X and X_true must be real, got complex"):
                EVERY[metric](X, X_true, *data_range)


@pytest.mark.parametrize("shape", [(10, 30), (10,), ()], ids=str)
def test_ssim_needs_eleven_entries_per_mode(shape):
    with pytest.raises(ValueError, match="ssim needs at least 11 entries in every mode, got shape"):
        metrics.ssim(np.ones(shape), np.zeros(shape), 1.0)


def test_relative_error_rejects_leading_axes_that_do_not_exist():
    with pytest.raises(ValueError, match="batch_ndim must be between 0 and 2, got 3"):
        metrics.relative_error(IMAGE, IMAGE, batch_ndim=3)


def test_relative_error_rejects_arrays_of_different_kinds():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="X_true is a NumPy array, but X holds torch"):
        metrics.relative_error(torch.asarray(IMAGE), IMAGE)
    with pytest.raises(TypeError, match="X_true is a torch on cpu array, but X holds NumPy"):
        metrics.relative_error(IMAGE, torch.asarray(IMAGE))
