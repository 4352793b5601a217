r"""
Coded aperture: a clip from three exposures
===========================================

A camera takes one exposure during all the frames of a short clip, behind a mask that changes from
frame to frame. Every pixel is the sum of the frames that its mask transmits:

.. math:: y(i, j) = \sum_t \mathrm{mask}(i, j, t)\, X(i, j, t) .

Three such exposures, with different masks, give 6912 measurements of the 36864 pixels of the clip.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse

import lowtucker as lt
from lowtucker.lab.experiments.flame import synthetic_clip

shape, rank = (48, 48, 16), (7, 7, 4)
X_true = synthetic_clip(shape, rank)  # a synthetic flame of exactly that rank
pixels, frames = shape[0] * shape[1], shape[2]

# %%
# In row-major order t is the fastest index of X: row (i, j) of the matrix has the mask of that
# pixel in ``frames`` adjacent columns, and zeros elsewhere. A sparse matrix can be used directly as
# the measurement operator.
rng = np.random.default_rng(0)
masks = rng.integers(0, 2, (3, *shape)).astype(float)
places = np.repeat(np.arange(pixels), frames), np.arange(pixels * frames)
matrix = scipy.sparse.vstack(
    [scipy.sparse.csr_array((mask.reshape(-1), places)) for mask in masks], format="csr"
)
y = matrix @ X_true.full().reshape(-1)
print(matrix.shape, f"{matrix.nnz} non-zeros of {np.prod(matrix.shape)}")

# %%
result = lt.recover(matrix, y, rank, shape=shape, X_true=X_true)
print(result.status)
print(f"error {result.error:.0e}, {result.seconds:.1f} s")
assert result.success
assert result.error < 1e-4

# %%
# Top row: the three exposures and a mask. Bottom row: four of the recovered frames.
found = result.X.full()
pictures = y.reshape(3, *shape[:2])
figure, axes = plt.subplots(2, 4, figsize=(10, 5.2), layout="constrained")
for axis, picture, k in zip(axes[0], pictures, range(1, 4), strict=False):
    axis.imshow(picture, cmap="gray")
    axis.set_title(f"exposure {k}")
axes[0, 3].imshow(masks[0, :, :, 0], cmap="gray")
axes[0, 3].set_title("mask of frame 1")
for axis, t in zip(axes[1], (0, 5, 10, 15), strict=True):
    axis.imshow(found[:, :, t], cmap="inferno", vmin=0, vmax=1)
    axis.set_title(f"frame {t + 1}, recovered")
for axis in axes.flat:
    axis.set_axis_off()

# %%
# ``examples/coded_aperture.py`` in the repository does the same without a matrix, by an operator
# with two methods, as in :ref:`sphx_glr_gallery_plot_07_own_operator.py`.
