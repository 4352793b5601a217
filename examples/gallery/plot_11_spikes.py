r"""
Sparse spikes from a few Fourier coefficients
=============================================

A stepped-frequency radar sends one tone after another. The echo of tone :math:`f` is one Fourier
coefficient of the scene: of the reflectivity :math:`x` in 512 cells of distance,

.. math:: y_f = \sum_{k=0}^{511} x_k \, e^{-2 \pi i f k / 512}.

All 257 tones determine any real scene. This one has only 12 reflectors, and 48 tones suffice to
find them. The thresholding of iterative hard thresholding takes the place of a Tucker rank:
:class:`lowtucker.Sparse` keeps the s largest entries.
"""

import matplotlib.pyplot as plt
import numpy as np

import lowtucker as lt

n, s, m = 512, 12, 48
rng = np.random.default_rng(0)
truth = np.zeros(n)
truth[rng.choice(n, s, replace=False)] = rng.choice([-1, 1], s) * rng.uniform(0.5, 1.5, s)

A = lt.subsampled_transform((n,), m, kind="fft", signs=False, seed=1)
y = A.forward(truth)
print(f"{m} of {n // 2 + 1} tones, {y.dtype}")

# %%
# Recovery is one call, with the number of reflectors where a rank would be. The solver for sparse
# formats is :class:`lowtucker.StoGradMP`.
result = lt.recover(A, y, lt.Sparse(s))

print(result)
print("found at", result.X.support())
assert result.success
assert np.array_equal(result.X.support(), np.flatnonzero(truth))

# %%
# Without sparsity, the usual answer is to set the unknown coefficients to zero and to transform
# back. Of all the scenes that fit the 48 tones, it is the one of least norm.
spectrum = np.zeros(n // 2 + 1, dtype=complex)
spectrum[A.index[:, 0]] = y
least_norm = np.fft.irfft(spectrum, n)


def error_of(x):
    """Relative error."""
    return np.linalg.norm(x - truth) / np.linalg.norm(truth)


print(f"error of the least-norm answer: {error_of(least_norm):.2f}")
print(f"error of the sparse answer:     {error_of(result.X.full()):.0e}")
assert np.allclose(A.forward(least_norm), y)
assert error_of(least_norm) > 0.8
assert error_of(result.X.full()) < 1e-5

# %%
# The number of tones matters: of four such scenes, all were recovered from 40
# tones, and one from 30.
#
# Both answers fit the data. The least-norm answer spreads the energy over all cells: a fifth of a
# reflector's size is left at its place, among sidelobes of the same size.
places = np.flatnonzero(truth)
figure, axes = plt.subplots(2, 1, figsize=(9, 5), sharex=True, sharey=True, layout="constrained")
for axis, x, name in (
    (axes[0], least_norm, f"least norm, error {error_of(least_norm):.2f}"),
    (axes[1], result.X.full(), f"Sparse({s}), error {error_of(result.X.full()):.0e}"),
):
    axis.plot(x, label="recovered")
    axis.plot(places, truth[places], "o", mfc="none", label="true reflectors")
    axis.set(title=name, ylabel="reflectivity")
    axis.grid(alpha=0.3)
axes[0].legend(loc="upper right")
axes[1].set(xlabel="cell", xlim=(-5, n))

# %%
# In practice there is noise, here 5 %, and the number of reflectors is not known. With more entries
# than reflectors, the spare entries fit noise and are small. With fewer, the largest reflectors are
# found here, and the error is that of the missing ones.
noise = rng.standard_normal(m) + 1j * rng.standard_normal(m)
noisy = y + 0.05 * np.linalg.norm(y) / np.linalg.norm(noise) * noise
guesses = {guess: lt.recover(A, noisy, lt.Sparse(guess)) for guess in (8, s, 16)}
for guess, found in guesses.items():
    hits = np.isin(found.X.support(), places).sum()
    error = error_of(found.X.full())
    print(f"Sparse({guess}): {hits} of {s} reflectors, error {error:.3f}: {found.status.name}")

assert set(places) <= set(guesses[16].X.support())
assert error_of(guesses[s].X.full()) < 0.05

largest = np.sort(np.abs(guesses[16].X.full()))[::-1]
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
axis.bar(np.arange(1, 17), largest[:16])
axis.axvline(s + 0.5, color="0.5", linestyle=":")
axis.set(xlabel="entry, by size", ylabel="absolute value", title="5 % noise, Sparse(16)")

# %%
# Without the truth, the result says that X approximates the data, and estimates the error from
# held-out tones.
print(guesses[16])
