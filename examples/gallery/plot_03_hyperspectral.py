r"""
A hyperspectral cube from 2 % of its size
=========================================

Indian Pines: 145x145 pixels of farmland in Indiana, seen from the air in 200 bands, 4.2 million
numbers. A spectrometer that measured not the bands but random sums of them all would need far
fewer: here 84100, which is 2 %.

The measurements are coefficients of the discrete cosine transform of the cube, chosen at random,
after the signs of its entries were flipped at random:

.. math:: y_j = \sqrt N \, \bigl(\mathrm{DCT}(\varepsilon \cdot X)\bigr)_{k_j} .

There is no matrix: as one of 84100 x 4205000 numbers it would have 2.8 TB. The cube comes with
TensorLy (CC BY 3.0, Baumgardner, Biehl and Landgrebe, Purdue University); nothing is downloaded.
"""

import matplotlib.pyplot as plt
import numpy as np
from tensorly.datasets import load_indian_pines

import lowtucker as lt

read = np.asarray(load_indian_pines().tensor, dtype=np.float32)

# %%
# A look at the data first: between 3328 and 3583 there is nothing at all. In the file of TensorLy
# 0.10 every byte 13 has become a 10, as happens where a carriage return is taken for the end of a
# line, so that 3328 + k now reads 2560 + k. Which of the values there belong higher up? A coarse
# low-rank approximation of the cube knows what to expect, and a finer one after it. (Bytes 13 in
# the lower half of a number are off by 3, which we leave.)
suspect = (read >= 2560) & (read < 2816)
print(
    f"{np.sum((read >= 3328) & (read < 3584))} values in the gap, {suspect.mean():.1%} to look at"
)
cube = read
for coarse in ((20, 20, 3), (40, 40, 4), (40, 40, 4), (60, 60, 6)):
    expected = lt.sthosvd(cube, coarse).full()
    cube = read + np.float32(768) * (suspect & (expected > read + 384))
print(f"{np.mean(cube != read):.1%} of the values were put back")
del expected

# %%
# Now measure.
m = cube.size // 50
A = lt.subsampled_transform(cube.shape, m=m, kind="dct", seed=0)
y = A.forward(cube)
print(f"{cube.shape}: {cube.size} numbers; {A.m} measurements, {A.m / cube.size:.1%}")

# %%
# A cube of fields has a low rank: few spectra, and rows and columns that repeat. At rank (40, 40,
# 5) it has 17375 degrees of freedom, one for five measurements. Twenty steps of conjugate gradients
# on the tensors of that rank are enough: there is no exact fit, as the cube is of low rank only
# nearly. (Rank and steps were chosen with the whole cube at hand. With measurements alone one would
# hold some of them out, and compare.)
rank = (40, 40, 5)
result = lt.recover(A, y, rank, solver="rcg", max_epochs=20)
found = result.X.full()

error = np.linalg.norm(found - cube) / np.linalg.norm(cube)
nearest = lt.sthosvd(cube, rank).full()
best = np.linalg.norm(nearest - cube) / np.linalg.norm(cube)
print(result.X)
print(f"error {error:.3f}; that of the truncated cube itself {best:.3f}; {result.seconds:.0f} s")
assert error < 1.25 * best < 0.045

# %%
# In false colours, where what grows is red. In the middle, all that was measured, one pixel a
# number.


def colours(X):
    """Near infrared, red and green, between percentiles of the true ones."""
    bands = [50, 27, 17]
    low, high = np.percentile(cube[:, :, bands], (1, 99), axis=(0, 1))
    return np.clip((X[:, :, bands] - low) / (high - low), 0, 1)


figure, axes = plt.subplots(1, 3, figsize=(10, 3.9), layout="constrained")
axes[0].imshow(colours(cube))
axes[0].set_title("145 x 145 pixels, 200 bands:\n4 205 000 numbers")
axes[1].imshow(y.reshape(290, 290), cmap="gray", vmin=-3 * y.std(), vmax=3 * y.std())
axes[1].set_title("what was measured:\n84 100 numbers")
axes[2].imshow(colours(found))
axes[2].set_title(f"recovered from these:\nrank {rank}, error {error:.1%}")
for axis in axes:
    axis.set_axis_off()

# %%
# One band in the infrared, beside the truncated cube: nothing of that rank can do much better.
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
limits = {"vmin": cube[:, :, 90].min(), "vmax": cube[:, :, 90].max(), "cmap": "magma"}
for axis, name, X in zip(
    axes, ("band 91", "recovered", "truncated"), (cube, found, nearest), strict=True
):
    axis.imshow(X[:, :, 90], **limits)
    axis.set_title(name)
    axis.set_axis_off()

# %%
# What a spectrometer is for are spectra: those of three pixels, measured (dots) and recovered
# (lines). The gaps in the infrared, where water vapour swallows the light, were left out by those
# who published the cube.
figure, axis = plt.subplots(figsize=(10, 3.6), layout="constrained")
for (i, j), colour in (((20, 70), "C0"), ((75, 40), "C1"), ((120, 100), "C2")):
    axis.plot(cube[i, j], ".", color=colour, markersize=3, alpha=0.6)
    axis.plot(found[i, j], color=colour, label=f"pixel {i}, {j}")
axis.set(xlabel="band", ylabel="radiance, counts")
axis.grid(alpha=0.3)
axis.legend()

# %%
# Where is the rest of the error? Nearly all of it is in what rank (40, 40, 5) cannot say: small
# fields and noise of the sensor. Measurements of noise-free low-rank tensors are fitted to the last
# digit (:ref:`sphx_glr_gallery_plot_01_first_recovery.py`); here what lies outside of the rank acts
# as noise, and costs about 15 % more.
print(f"{error / best:.2f} times the error of the best")
