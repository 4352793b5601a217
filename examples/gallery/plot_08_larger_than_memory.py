r"""
Larger than memory: a matrix on disk
====================================

A dense measurement matrix exceeds the memory long before the tensor does. :func:`lowtucker.stored`
reads its rows from a file in blocks, and reads the next block while the current one is processed.
Two blocks of 32 MB are in memory, regardless of the file size.

To keep the run time short, this example uses a file of 320 MB; ``lowtucker bench structured`` does
the same with 12 GB.
"""

import tempfile
import tracemalloc
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import lowtucker as lt

shape, rank, m = (40, 40, 25), (3, 3, 3), 2000
X_true = lt.random_tucker(shape, rank, seed=0)

# %%
# In practice an instrument writes the file. Here it is written in slices: a plain ``.npy`` file of
# float32, row by row.
folder = tempfile.TemporaryDirectory()
file = Path(folder.name, "A.npy")
rows = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(m, int(np.prod(shape))))
rng = np.random.default_rng(1)
for k in range(0, m, 250):
    rows[k : k + 250] = rng.standard_normal((250, rows.shape[1]), dtype=np.float32)
del rows
size = file.stat().st_size
print(f"{size / 1e6:.0f} MB")

# %%
# Measure and recover as usual; ``tracemalloc`` records the memory used by NumPy.
tracemalloc.start()
A = lt.stored(file, shape=shape)
y = A.forward(X_true)
result = lt.recover(A, y, rank, X_true=X_true)
peak = tracemalloc.get_traced_memory()[1]
tracemalloc.stop()

print(A)
print(result.status)
print(
    f"error {result.error:.0e}, {result.passes:.1f} passes over the file, peak {peak / 1e6:.0f} MB"
)
assert result.success
assert result.error < 1e-5
assert peak < 0.4 * size

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
axes[0].barh(["file", "memory"], [size / 1e6, peak / 1e6], color=["0.75", "C1"])
axes[0].set(xlabel="MB", title="independent of the file size")
axes[1].semilogy(result.history["passes"], result.history["error"], "o-")
axes[1].set(xlabel="passes over the file", title="relative error")
axes[1].grid(alpha=0.3)
folder.cleanup()

# %%
# HDF5 arrays, Zarr arrays and ``numpy.memmap`` are also supported. For random rows,
# :func:`lowtucker.seeded_gaussian` needs no file: it generates them on demand. On the command line,
# ``lowtucker recover A.npy y.npy --shape 40,40,25 --rank 3,3,3`` reads files larger than half the
# memory in blocks automatically.
