r"""
Error bars on a pixel's spectrum
================================

A part of Indian Pines, 40x40 pixels of farmland seen from the air, in 50 bands. One number in ten
is known. :func:`lowtucker.complete` estimates the others; this example asks how far off they are.

The data are distributed with TensorLy (CC BY 3.0, Baumgardner, Biehl and Landgrebe, Purdue
University); nothing is downloaded.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import lowtucker as lt

cube = lt.datasets.indian_pines().values[40:80, 40:80, ::4]
rng = np.random.default_rng(0)
known = rng.random(cube.shape) < 0.1
array = np.where(known, cube, np.nan)
print(f"{cube.shape}: {known.sum()} of {cube.size} numbers are known")

# %%
# Complete the cube. To choose how much to shrink, the call holds some of the known entries out,
# and their residuals stay with the result. They say how far predictions are from entries that were
# not seen: conformal intervals.
result = lt.complete(array)
print(result.headline)
print(f"{len(result.calibration.scores)} held-out entries")

# %%
# The spectrum of one pixel, with 90 % intervals. Each entry has its own width: bands and pixels
# with larger residuals have wider intervals.
pixel = (22, 9)
bands = np.arange(cube.shape[2])
spectrum = np.array([(*pixel, k) for k in bands])
low, high = result.interval(spectrum, level=0.9)

seen = known[pixel]
figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
axis.fill_between(bands, low, high, alpha=0.3, label="90 % interval, conformal")
axis.plot(bands, result.X.entries(spectrum), label="completed")
axis.plot(bands[~seen], cube[pixel][~seen], "k.", markersize=4, label="hidden truth")
axis.plot(bands[seen], cube[pixel][seen], "C3o", fillstyle="none", label="known")
axis.set(xlabel="band", ylabel="radiance, counts", title=f"pixel {pixel}")
axis.grid(alpha=0.3)
axis.legend()

# %%
# ``result.plot_entries(spectrum, level=0.9)`` draws about the same in one call.
#
# Are they right? Of all hidden entries, about 90 % should be in their intervals. That holds on
# average over entries. A single pixel may have fewer: where the scene is unusual, the model is
# wrong for many bands at once.
hidden = np.argwhere(~known)


def covered(where, low, high, truth=cube):
    """Return which of some entries are in their intervals."""
    values = truth[tuple(where.T)]
    return (low <= values) & (values <= high)


inside = covered(hidden, *result.interval(hidden, level=0.9))
of_pixel = hidden[:, 0] * cube.shape[1] + hidden[:, 1]
by_pixel = np.bincount(of_pixel, inside) / np.bincount(of_pixel)
print(f"coverage of all hidden entries: {inside.mean():.1%}")
print(f"coverage of a tenth of the pixels is below {np.quantile(by_pixel, 0.1):.0%}")
assert 0.87 < inside.mean() < 0.95

# %%
# The other kind of error bars presumes the model: X has exactly the rank that was given, and the
# residual is independent noise. The spectra of this scene decay without a gap, so that no rank is
# right. The verdict is no success, and a warning says what the bars presume.
some = hidden[::20]
modelled = lt.complete(array, (6, 6, 3), solver="rcg", max_epochs=40)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", lt.ModelWarning)
    by_model = modelled.interval(some, level=0.9, method="model")
print(caught[0].message)

inside_model = covered(some, *by_model)
inside_conformal = covered(some, *modelled.interval(some, level=0.9, method="conformal"))
print(f"rank (6, 6, 3), by the model: coverage {inside_model.mean():.1%}")
print(f"rank (6, 6, 3), conformal: coverage {inside_conformal.mean():.1%}")
assert caught
assert inside_model.mean() < 0.7
assert 0.87 < inside_conformal.mean() < 0.95

# %%
# Nearly half of the hidden entries are outside of intervals that claim 90 %: most of the error is
# what rank (6, 6, 3) cannot express, and the model knows nothing of it. Conformal intervals of the
# same tensor are honest, and wider.
#
# The model is right where the tensor has its rank. As a check, replace the scene by its best
# approximation of rank (6, 6, 3), add noise, and measure it by random sums instead of entries.
# Then the bars by the model cover about what they claim. All entries share one draw of the noise,
# and the coverage of one run varies: over four runs it was 89 % on average.
#
# Even then the noise must be small. The bars linearise the set of tensors of that rank at X, and
# the smallest singular values of this one are 1 to 2 % of its norm. With 5 % noise instead of 0.5 %
# the coverage was 86 % over eight runs, below 90 % in each of them; with ten measurements for each
# degree of freedom instead of five, 89 %.
exact = lt.hooi(cube, (6, 6, 3))
A = lt.subsampled_transform(cube.shape, m=5 * exact.degrees_of_freedom, kind="dct", seed=1)
y = A.forward(exact)
y += 0.005 * np.linalg.norm(y) / np.sqrt(A.m) * rng.standard_normal(A.m)  # 0.5 % noise
recovered = lt.recover(A, y, rank=(6, 6, 3))
print(recovered.headline)

low, high = recovered.interval(spectrum, level=0.9)
truth_line = exact.entries(spectrum)
figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
axis.fill_between(bands, low, high, alpha=0.3, label="90 % interval, by the model")
axis.plot(bands, recovered.X.entries(spectrum), label="recovered")
axis.plot(bands, truth_line, "k.", markersize=4, label="truth")
axis.set(xlabel="band", ylabel="radiance, counts", title="a scene of exact rank")
axis.grid(alpha=0.3)
axis.legend()

inside_exact = covered(some, *recovered.interval(some, level=0.9), truth=exact.full())
print(f"coverage of {len(some)} entries: {inside_exact.mean():.1%}")
assert 0.8 < inside_exact.mean() < 0.97

# %%
# Errors of neighbouring bands go together: the truth runs along one side of the band for a while.
# An interval speaks of its own entry. For a sum or a contrast, such as the mean of a band over the
# scene, use ``result.functional``, which takes this into account: :doc:`/uncertainty`.
W = np.zeros(cube.shape)
W[:, :, 20] = 1 / (cube.shape[0] * cube.shape[1])
mean = recovered.functional(W)
true_mean = exact.full()[:, :, 20].mean()
print(f"mean of band 20: {mean.estimate:.1f} +- {mean.standard_error:.1f}, true {true_mean:.1f}")
assert abs(mean.estimate - true_mean) < 4 * mean.standard_error
