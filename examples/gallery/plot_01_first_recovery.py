r"""
A first recovery
================

Recover a tensor with 9000 entries from 1200 linear measurements, without a step size or any tuning.

The unknown is a tensor :math:`X` of shape 30x30x10 and Tucker rank (4, 4, 2): a core of 4x4x2
numbers and three thin matrices, 256 degrees of freedom. The data are 1200 measurements

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
# Recovery is one call. ``X_true`` is passed only to record the error in the history; the solver
# does not use it.
result = lt.recover(A, y, rank, X_true=X_true)

print(result.status)
print(
    f"residual {result.residual:.0e}, error {result.error:.0e}, {result.passes:.1f} passes over A"
)
assert result.success
assert result.error < 1e-5

# %%
# A slice of the true tensor, the same slice of the recovered tensor, and the convergence.
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
axes[2].set(xlabel="passes over A", title="relative residual and error")
axes[2].grid(alpha=0.3)
axes[2].legend()

# %%
# The rank can be estimated, and measurements can be noisy. ``error_estimate`` is then the expected
# relative error of X, computed without the true tensor.
rng = np.random.default_rng(2)
noisy = y + 0.05 * np.linalg.norm(y) / np.sqrt(A.m) * rng.standard_normal(A.m)
result = lt.recover(A, noisy, rank="auto")
error = float(lt.metrics.relative_error(result.X, X_true))

print(result.rank, result.status)
print(f"error {error:.4f}, estimated {result.error_estimate:.4f}")
assert result.rank == rank
assert 0.5 < error / result.error_estimate < 2

# %%
# Save a result with ``result.save("x.npz")`` and load it with ``lt.load("x.npz")``. The arrays
# themselves are ``result.X.core`` and ``result.X.factors``.
print([U.shape for U in result.X.factors], result.X.core.shape)
