r"""
Missing entries: a tensor from one entry in twenty
==================================================

Fluorescence of mixtures of three catecholamines: 64 samples, 12 wavelengths of emission, 10 of
excitation, 60 time points, 460800 numbers. Suppose that only one in twenty was measured.
:func:`lowtucker.complete` estimates the others.

The data are distributed with TensorLy (R. Nikolajsen, K. Booksh, Å. Hansen, R. Bro, *Quantifying
catecholamines using multi-way kinetic modelling*, Analytica Chimica Acta 475, 2003); nothing is
downloaded.
"""

import matplotlib.pyplot as plt
import numpy as np

import lowtucker as lt

data = lt.datasets.kinetic()
truth = data.values
print(data)

# %%
# Keep one entry in twenty. (0.4 % of the data were missing from the start: they are NaN, and have
# no part in the errors below.)
rng = np.random.default_rng(0)
array = np.where(rng.random(truth.shape) < 0.05, truth, np.nan)
known = ~np.isnan(array)
hidden = ~known & ~np.isnan(truth)
print(f"{truth.shape}: {known.sum()} of {truth.size} entries are known")

# %%
# Missing entries are NaN. Nothing else is given: no rank, no option. Real data have no exact rank,
# so every direction is shrunk by its share of signal, and held-out entries decide by how much.
result = lt.complete(array)
filled = np.where(known, array, result.X.full())
print(result.advice)


def error_of(X):
    """Relative error on the hidden entries."""
    return np.linalg.norm((X - truth)[hidden]) / np.linalg.norm(truth[hidden])


error = error_of(filled)
print(f"error on the missing entries: {error:.3f}")
print(f"estimate of this error from held-out entries: {result.held_out:.3f}")
assert error < 0.045
assert 0.6 < error / result.held_out < 1.6

# %%
# One sample at one excitation wavelength: emission against time. The truth is used for the first
# and the last picture only.
sample, excitation = 40, 4
views = (
    ("measured, all", truth),
    ("known: one in twenty", array),
    ("filled in", filled),
    ("difference x 10", 10 * np.abs(filled - truth)),
)
limit = np.nanmax(truth[sample, :, excitation])
colours = plt.get_cmap("viridis").with_extremes(bad="0.85")
figure, axes = plt.subplots(4, 1, figsize=(9, 7), sharex=True, layout="constrained")
for axis, (name, X) in zip(axes, views, strict=True):
    axis.imshow(X[sample, :, excitation], cmap=colours, vmin=0, vmax=limit, aspect="auto")
    axis.set(title=name, ylabel="emission", yticks=[])
axes[-1].set_xlabel("time")

# %%
# Sometimes a rank is known: three substances suggest rank 3 in every mode, 567 degrees of freedom.
# The error is larger, since the data contain more than that, but the factors can be interpreted:
# three emission, three excitation and three time profiles. There is no exact fit, so the run is
# limited to a few steps of conjugate gradients instead of a tolerance.
rank = (3, 3, 3, 3)
low = lt.complete(array, rank, solver="rcg", max_epochs=25)
whole = np.where(np.isnan(truth), result.X.full(), truth)
best = float(lt.metrics.relative_error(lt.hooi(whole, rank), whole))
print(f"error on the missing entries: {error_of(low.X.full()):.3f}")
print(f"best approximation of that rank to the full data: {best:.3f}")
assert error < best < error_of(low.X.full()) < 1.1 * best

figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
for axis, k, name in zip(axes, (1, 2, 3), ("emission", "excitation", "time"), strict=True):
    axis.plot(low.X.factors[k])
    axis.set(title=f"{name} factor", xlabel="index")
    axis.grid(alpha=0.3)

# %%
# ``lt.complete(values, rank, indices=indices, shape=shape)`` takes only the samples, and completes
# tensors that do not fit into memory: 1000x1000x1000 from 0.3 % of its entries
# (:doc:`/measurements`). :doc:`/realdata` compares other data and other methods.
