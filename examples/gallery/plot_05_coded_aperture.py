r"""
Coded aperture: a clip from three pictures
==========================================

A camera exposes one picture over all the frames of a short clip, behind a mask that changes from
frame to frame. Every pixel sums up the frames that its mask lets through:

.. math:: y(i, j) = \sum_t \mathrm{mask}(i, j, t)\, X(i, j, t) .

Three such pictures, with different masks, are 6912 numbers for the 36864 of the clip.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse

import lowtucker as lt
from lowtucker.lab.experiments.flame import synthetic_clip

shape, rank = (48, 48, 16), (7, 7, 4)
X_true = synthetic_clip(shape, rank)  # a flame made of formulae, of exactly that rank
pixels, frames = shape[0] * shape[1], shape[2]

# %%
# With the entries of X in their order in memory, t is the last index: row (i, j) of the matrix has
# the mask of that pixel in ``frames`` neighbouring columns, and zeros elsewhere. A sparse matrix is
# all that a measurement needs to be.
rng = np.random.default_rng(0)
masks = rng.integers(0, 2, (3, *shape)).astype(float)
places = np.repeat(np.arange(pixels), frames), np.arange(pixels * frames)
matrix = scipy.sparse.vstack(
    [scipy.sparse.csr_array((mask.reshape(-1), places)) for mask in masks], format="csr"
)
y = matrix @ X_true.full().reshape(-1)
print(matrix.shape, f"{matrix.nnz} numbers of {np.prod(matrix.shape)}")

# %%
result = lt.recover(matrix, y, rank, shape=shape, X_true=X_true)
print(result.status)
print(f"error {result.error:.0e}, {result.seconds:.1f} s")
assert result.success
assert result.error < 1e-4

# %%
# Above, what the camera saw; below, four of the frames that were in it.
found = result.X.full()
pictures = y.reshape(3, *shape[:2])
figure, axes = plt.subplots(2, 4, figsize=(10, 5.2), layout="constrained")
for axis, picture, k in zip(axes[0], pictures, range(1, 4), strict=False):
    axis.imshow(picture, cmap="gray")
    axis.set_title(f"picture {k}")
axes[0, 3].imshow(masks[0, :, :, 0], cmap="gray")
axes[0, 3].set_title("mask of frame 1")
for axis, t in zip(axes[1], (0, 5, 10, 15), strict=True):
    axis.imshow(found[:, :, t], cmap="inferno", vmin=0, vmax=1)
    axis.set_title(f"frame {t + 1}, recovered")
for axis in axes.flat:
    axis.set_axis_off()

# %%
# ``examples/coded_aperture.py`` in the repository does the same without a matrix: an operator with
# two methods, as in :ref:`sphx_glr_gallery_plot_07_own_operator.py`.
