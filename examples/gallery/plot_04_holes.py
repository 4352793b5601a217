r"""
A tensor with holes: one entry in twenty
========================================

Fluorescence of mixtures of three catecholamines: 64 samples, 12 wavelengths of emission, 10 of
excitation, 60 moments of time, 460800 numbers. Suppose that only one in twenty was measured.
:func:`lowtucker.complete` fills in the others.

The data come with TensorLy (R. Nikolajsen, K. Booksh, Å. Hansen, R. Bro, *Quantifying
catecholamines using multi-way kinetic modelling*, Analytica Chimica Acta 475, 2003); nothing is
downloaded.
"""

import matplotlib.pyplot as plt
import numpy as np
from tensorly.datasets import load_kinetic

import lowtucker as lt

truth = np.asarray(load_kinetic().tensor)
rng = np.random.default_rng(0)
array = np.where(rng.random(truth.shape) < 0.05, truth, np.nan)
known = ~np.isnan(array)
print(f"{truth.shape}: {known.sum()} of {truth.size} entries are known")

# %%
# Three substances and a rank of 3 in every mode: 567 degrees of freedom. The entries that are not
# known are the NaN of the array. Real data have no exact fit, so we ask for a few steps of
# conjugate gradients rather than for a tolerance.
rank = (3, 3, 3, 3)
result = lt.complete(array, rank, solver="rcg", max_epochs=25)
filled = np.where(known, array, result.X.full())

unseen = ~known
error = np.linalg.norm((filled - truth)[unseen]) / np.linalg.norm(truth[unseen])
best = float(lt.metrics.relative_error(lt.hooi(truth, rank), truth))
print(f"error on entries that were never seen: {error:.3f}")
print(f"what lowtucker expected of it, from entries that it held out: {result.held_out:.3f}")
print(f"best approximation of that rank to the full data: {best:.3f}")
assert error < 1.1 * best < 0.06
assert 0.7 < error / result.held_out < 1.4

# %%
# One sample at one wavelength of excitation: emission against time.
sample, excitation = 40, 4
views = (
    ("measured, all", truth),
    ("known: one in twenty", array),
    ("filled in", filled),
    ("difference x 10", 10 * np.abs(filled - truth)),
)
limit = truth[sample, :, excitation].max()
colours = plt.get_cmap("viridis").with_extremes(bad="0.85")
figure, axes = plt.subplots(4, 1, figsize=(9, 7), sharex=True, layout="constrained")
for axis, (name, X) in zip(axes, views, strict=True):
    axis.imshow(X[sample, :, excitation], cmap=colours, vmin=0, vmax=limit, aspect="auto")
    axis.set(title=name, ylabel="emission", yticks=[])
axes[-1].set_xlabel("time")

# %%
# The factors are what one reads: three profiles of emission, of excitation and of time span all the
# data.
figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
for axis, k, name in zip(axes, (1, 2, 3), ("emission", "excitation", "time"), strict=True):
    axis.plot(result.X.factors[k])
    axis.set(title=f"factor of {name}", xlabel="index")
    axis.grid(alpha=0.3)

# %%
# Without the full array: ``lt.complete(values, rank, indices=indices, shape=shape)`` takes samples
# alone, and completes tensors that never fit into memory: 1000x1000x1000 from 0.3 % of its entries
# (:doc:`/measurements`).
