r"""
A hyperspectral cube from 2 % of its size
=========================================

Indian Pines: 145x145 pixels of farmland in Indiana, seen from the air in 200 bands, 4.2 million
numbers. A spectrometer that measures random sums instead of single bands needs far fewer numbers:
here 84100, which is 2 %.

The measurements are randomly chosen coefficients of the discrete cosine transform of the cube,
after random sign flips of its entries:

.. math:: y_j = \sqrt N \, \bigl(\mathrm{DCT}(\varepsilon \cdot X)\bigr)_{k_j} .

No matrix is stored: with 84100 x 4205000 entries it would take 2.8 TB. The cube is distributed with
TensorLy (CC BY 3.0, Baumgardner, Biehl and Landgrebe, Purdue University); nothing is downloaded.
"""

import matplotlib.pyplot as plt
import numpy as np

import lowtucker as lt

# %%
# The file of TensorLy 0.10 has damaged values, which :func:`lowtucker.datasets.indian_pines`
# corrects. This repairs the data that are to be measured; the recovery below knows nothing of it.
data = lt.datasets.indian_pines()
print(data)
cube = data.values.astype(np.float32)

# %%
# Measure the cube.
A = lt.subsampled_transform(cube.shape, m=cube.size // 50, kind="dct", seed=0)
y = A.forward(cube)
print(f"{cube.shape}: {cube.size} numbers; {A.m} measurements, {A.m / cube.size:.0%}")

# %%
# Recover it, with no rank and no option: nothing is known but the operator and the measurements.
# The spectra of the cube decay without a gap, so that no rank is right. Every direction is shrunk
# by its share of signal instead, and held-out measurements decide by how much.
result = lt.recover(A, y)
found = result.X.full()
print(result.advice)

# %%
# The cube is used from here on only.
error = np.linalg.norm(found - cube) / np.linalg.norm(cube)
print(f"error {error:.3f}, predicted by held-out measurements: {result.held_out:.3f}")
print(f"{result.passes:.0f} passes over the measurements, {result.seconds:.0f} s")
assert error < 0.05
assert 0.7 < error / result.held_out < 1.3

# %%
# False colours, with vegetation in red. The middle image shows all measurements, one per pixel.


def colours(X):
    """Near infrared, red and green, scaled to percentiles of the true cube."""
    bands = [50, 27, 17]
    low, high = np.percentile(cube[:, :, bands], (1, 99), axis=(0, 1))
    return np.clip((X[:, :, bands] - low) / (high - low), 0, 1)


figure, axes = plt.subplots(1, 3, figsize=(10, 3.9), layout="constrained")
axes[0].imshow(colours(cube))
axes[0].set_title("145 x 145 pixels, 200 bands:\n4 205 000 numbers")
axes[1].imshow(y.reshape(290, 290), cmap="gray", vmin=-3 * y.std(), vmax=3 * y.std())
axes[1].set_title("measurements:\n84 100 numbers")
axes[2].imshow(colours(found))
axes[2].set_title(f"recovered, no rank given:\nerror {error:.1%}")
for axis in axes:
    axis.set_axis_off()

# %%
# One infrared band, and the difference, on the same scale.
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
limits = {"vmin": cube[:, :, 90].min(), "vmax": cube[:, :, 90].max(), "cmap": "magma"}
shift = limits["vmin"]
views = (("band 91", cube), ("recovered", found), ("difference", shift + np.abs(found - cube)))
for axis, (name, X) in zip(axes, views, strict=True):
    axis.imshow(X[:, :, 90], **limits)
    axis.set_title(name)
    axis.set_axis_off()

# %%
# Spectra of three pixels, measured (dots) and recovered (lines). The publishers of the cube removed
# the infrared bands in which water vapour absorbs the light.
figure, axis = plt.subplots(figsize=(10, 3.6), layout="constrained")
for (i, j), colour in (((20, 70), "C0"), ((75, 40), "C1"), ((120, 100), "C2")):
    axis.plot(cube[i, j], ".", color=colour, markersize=3, alpha=0.6)
    axis.plot(found[i, j], color=colour, label=f"pixel {i}, {j}")
axis.set(xlabel="band", ylabel="radiance, counts")
axis.grid(alpha=0.3)
axis.legend()

# %%
# For comparison, the best approximations of the cube itself at three ranks. Somebody who saw the
# cube could choose one of these; a user with measurements alone cannot.
for rank in ((20, 20, 3), (40, 40, 5), (80, 80, 10)):
    nearest = lt.sthosvd(cube, rank).full()
    best = np.linalg.norm(nearest - cube) / np.linalg.norm(cube)
    print(f"rank {rank}: {best:.3f}")
