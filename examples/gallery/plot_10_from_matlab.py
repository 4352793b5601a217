r"""
Coming from the MATLAB code
===========================

The paper's experiments were published as MATLAB scripts: a matrix A with one row per
measurement, ``A = A/norm(A,'fro')``, and iterations

.. math:: X \leftarrow H_r\bigl(X + \mu\, A_b^T (y_b - A_b X)\bigr) .

There are three differences. **Vectorisation**: ``X(:)`` is column-major in MATLAB and row-major in
NumPy, so pass ``order="F"``. **Step sizes**: the scripts multiply the *sum* of a block's gradients;
Algorithm 1 and this library multiply the *mean*. The scripts' :math:`\mu` corresponds to
``step = mu * b``, with b rows in a block. **Indices** start at 0.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.io

import lowtucker as lt

# %%
# Files
# -----
# A file as saved by ``save problem.mat A y X`` in MATLAB, in the setting of Figure 1.
shape, rank, m = (5, 5, 6), (1, 2, 2), 360
X_true = lt.random_tucker(shape, rank, seed=0, orthonormal=False).full()
rng = np.random.default_rng(1)
A = rng.standard_normal((m, X_true.size))
A /= np.linalg.norm(A)
y = A @ X_true.reshape(-1, order="F")

folder = tempfile.TemporaryDirectory()
file = Path(folder.name, "problem.mat")
scipy.io.savemat(file, {"A": A, "y": y[:, None], "X": X_true})

# %%
# Read the arrays by name. The readers check sizes first and never load a pickle; ``describe`` lists
# the contents of a file without reading it.
for info in lt.io.describe(file):
    print(info)
matrix, measured = lt.io.load_array(file, "A"), lt.io.load_array(file, "y").reshape(-1)

result = lt.recover(matrix, measured, rank, shape=shape, order="F", X_true=X_true)
print(result.status, f"error {result.error:.0e}")
assert result.success

# %%
# With the wrong order the data are inconsistent, and the result reports failure:
wrong = lt.recover(matrix, measured, rank, shape=shape, max_epochs=30)
print(wrong.success, wrong.status.name, f"residual {wrong.residual:.2f}")
assert not wrong.success

# %%
# The same iterations
# -------------------
# The loop of the scripts in NumPy, with all rows (TIHT) and their step size of 0.46 m, compared
# with :class:`lowtucker.TIHT` with ``step = mu * b``, where b = m.
mu = 0.46 * m
X = np.zeros(shape)
for _ in range(20):
    gradient = (A.T @ (y - A @ X.reshape(-1, order="F"))).reshape(shape, order="F")
    X = lt.hosvd(X + mu * gradient, rank).full()

operator = lt.as_operator(matrix, shape=shape, order="F")
problem = lt.Problem(operator, measured)
same = lt.solve(problem, lt.TIHT(step=mu * m), rank, stop=lt.MaxEpochs(20))
difference = float(lt.metrics.relative_error(same.state.X.full(), X))
print(f"relative difference after 20 iterations: {difference:.0e}")
assert difference < 1e-10

# %%
# One trial of Figure 1: random blocks of 90 rows against all 360 rows. An epoch processes 360 rows.
runs = {"TIHT": lt.TIHT(step=mu * m), "StoTIHT, b = 90": lt.StoTIHT(block_size=90, step=mu * 90)}
figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
for name, solver in runs.items():
    run = lt.solve(problem, solver, rank, stop=lt.MaxEpochs(40), X_true=X_true)
    axis.semilogy(run.history["epoch"], run.history["error"], label=f"{name}, $\\mu$ = 0.46 m")
axis.semilogy(result.history["epoch"], result.history["error"], "o-", label="auto")
axis.set(xlabel="epoch", ylabel="relative error")
axis.grid(alpha=0.3)
axis.legend()
folder.cleanup()

# %%
# Terminology
# -----------
# =====================================  ==========================================================
# MATLAB (Tensor Toolbox, Tensorlab)     lowtucker
# =====================================  ==========================================================
# ``ttensor(G, U)``, ``lmlragen``        ``lt.TuckerTensor.from_factors(core, factors)``
# ``full(T)``                            ``X.full()``
# ``tenmat(X, k)``                       ``lt.unfold(X, k - 1)``; columns are in row-major order
# ``ttm(X, U, k)``, ``tmprod``           ``lt.mode_product(X, U, k - 1)``
# ``hosvd(X, ...)``, ``mlsvd``           ``lt.hosvd(X, rank)``, ``lt.sthosvd(X, rank)``
# ``tucker_als(X, rank)``, ``lmlra``     ``lt.hooi(X, rank)``
# ``A*X(:)``, ``A'*v``                   ``A.forward(X)``, ``A.adjoint(v)``
# =====================================  ==========================================================
#
# On the command line::
#
#     lowtucker recover problem.mat problem.mat --name-a A --name-y y --order F \
#         --shape 5,5,6 --rank 1,2,2 -o X.npz
