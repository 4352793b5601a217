r"""
Many columns with one support
=============================

Which of 64 radio channels are in use? A receiver that samples all of them is expensive. The
modulated wideband converter (Mishali, Eldar 2010) has a few cheap branches instead, here 16. Each
adds up all the channels with its own known signs: :math:`Y = B X`, with B of shape 16x64.

In one time slot, a column of X, there are 16 numbers for 64 unknowns, and the five channels in use
are hard to find. In the next slots the amplitudes are different, but the channels are the same:
these are multiple measurement vectors (MMV), columns with one support. The format is
:class:`lowtucker.RowSparse`, which keeps the s rows of largest norm.
"""

import matplotlib.pyplot as plt
import numpy as np

import lowtucker as lt

channels, branches, slots, s = 64, 16, 16, 5
rng = np.random.default_rng(0)
used = np.sort(rng.choice(channels, s, replace=False))
X_true = np.zeros((channels, slots))
X_true[used] = rng.standard_normal((s, slots))

B = rng.choice([-1.0, 1.0], (branches, channels))
Y = B @ X_true
Y += 0.05 * np.linalg.norm(Y) / np.sqrt(Y.size) * rng.standard_normal(Y.shape)  # 5 % noise
print("channels in use:", used)

# %%
# B measures every column, so the operator is a Kronecker product of B and the identity.
A = lt.kronecker([B, np.eye(slots)])
result = lt.recover(A, Y.reshape(-1), lt.RowSparse(s))

print(result)
print("channels found:", result.X.support())
assert np.array_equal(result.X.support(), used)

# %%
# Column by column, each slot has to find its five channels from 16 numbers.
one = lt.as_operator(B, (channels,))
alone = [lt.recover(one, Y[:, t], lt.Sparse(s)).X for t in range(slots)]
X_alone = np.stack([x.full() for x in alone], axis=1)

hits = [int(np.isin(x.support(), used).sum()) for x in alone]
print("channels found in each slot:", hits)
error = float(lt.metrics.relative_error(result.X, X_true))
error_alone = float(lt.metrics.relative_error(X_alone, X_true))
print(f"error together {error:.3f}, column by column {error_alone:.3f}")
assert error < 0.05
assert error_alone > 0.2

# %%
# Most slots put at least one channel in the wrong place. RowSparse adds up the evidence of all
# slots before it decides on a channel. The gain is large because branches are scarce: with 20
# branches and ten slots, column by column came close, with an error of 0.031 compared to 0.025.
limit = np.abs(X_true).max()
figure, axes = plt.subplots(1, 3, figsize=(9, 5.5), sharey=True, layout="constrained")
views = (
    (X_true, "true\n"),
    (X_alone, f"column by column\nerror {error_alone:.2f}"),
    (result.X.full(), f"RowSparse({s})\nerror {error:.2f}"),
)
for axis, (X, name) in zip(axes, views, strict=True):
    image = axis.imshow(X, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    axis.set(title=name, xlabel="time slot")
axes[0].set(ylabel="channel")
figure.colorbar(image, ax=axes, label="amplitude")

# %%
# The slots could vote: how often is each channel found by a slot alone? Here the five channels in
# use win, but the slots that chose others still have wrong amplitudes. The fit together gives the
# channels and the amplitudes at once.
votes = np.bincount(np.concatenate([x.support() for x in alone]), minlength=channels)
norms = np.linalg.norm(result.X.full(), axis=1)
figure, axes = plt.subplots(2, 1, figsize=(9, 4.5), sharex=True, layout="constrained")
colours = np.where(np.isin(np.arange(channels), used), "C0", "C3")
for axis, heights, name in (
    (axes[0], votes, "column by column: slots that find the channel"),
    (axes[1], norms, f"RowSparse({s}): norm of the row"),
):
    axis.bar(np.arange(channels), heights, color=colours)
    axis.set(title=name)
axes[1].set(xlabel="channel (blue: in use, red: not in use)")
print("votes for the channels in use:", votes[used])
print("most votes for another channel:", np.delete(votes, used).max())
