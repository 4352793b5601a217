r"""
A first recovery
================

A tensor with 9000 entries from 1200 linear measurements, with no step size and nothing to tune.

The unknown is a tensor :math:`X` of shape 30x30x10 and Tucker rank (4, 4, 2): a core of 4x4x2
numbers and three thin matrices, 256 degrees of freedom. What we have of it are 1200 numbers

.. math:: y_j = \langle A_j, X \rangle, \qquad j = 1, \dots, 1200,

with known random tensors :math:`A_j`.
"""

import matplotlib.pyplot as plt
import numpy as np

import lowtucker as lt

shape, rank = (30, 30, 10), (4, 4, 2)
X_true = lt.random_tucker(shape, rank, seed=0)
A = lt.gaussian(shape, m=1200, seed=1)
y = A.forward(X_true)

print(X_true)
print(lt.degrees_of_freedom(shape, rank), "degrees of freedom,", A.m, "measurements")

# %%
# One call. ``X_true`` is given here for the error in the history alone; the solver never sees it.
result = lt.recover(A, y, rank, X_true=X_true)

print(result.status)
print(
    f"residual {result.residual:.0e}, error {result.error:.0e}, {result.passes:.1f} readings of A"
)
assert result.success
assert result.error < 1e-5

# %%
# A slice of the tensor, the same slice of what was found, and how the two came together.
found = result.X.full()
truth = X_true.full()
limit = np.abs(truth[:, :, 0]).max()

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for axis, image, title in (
    (axes[0], truth, "true, slice 0"),
    (axes[1], found, "recovered, slice 0"),
):
    axis.imshow(image[:, :, 0], cmap="RdBu_r", vmin=-limit, vmax=limit)
    axis.set(title=title, xticks=[], yticks=[])
axes[2].semilogy(result.history["passes"], result.history["residual"], "o-", label="residual")
axes[2].semilogy(result.history["passes"], result.history["error"], "s-", label="error")
axes[2].set(xlabel="readings of A", title="relative, against work")
axes[2].grid(alpha=0.3)
axes[2].legend()

# %%
# The rank need not be known, and measurements may be noisy. Then ``error_estimate`` says how far
# off X may be, without the truth.
rng = np.random.default_rng(2)
noisy = y + 0.05 * np.linalg.norm(y) / np.sqrt(A.m) * rng.standard_normal(A.m)
result = lt.recover(A, noisy, rank="auto")
error = float(lt.metrics.relative_error(result.X, X_true))

print(result.rank, result.status)
print(f"error {error:.4f}, estimated {result.error_estimate:.4f}")
assert result.rank == rank
assert 0.5 < error / result.error_estimate < 2

# %%
# Keep it, load it: ``result.save("x.npz")``, ``lt.load("x.npz")``. Without a file:
# ``result.X.core`` and ``result.X.factors`` are arrays.
print([U.shape for U in result.X.factors], result.X.core.shape)
