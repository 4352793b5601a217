r"""
Running on a cluster with Dask
==============================

The rows of A stay on the machines where they are stored. Every worker processes its own chunks and
returns small matrices; the tensor is on the client. The call is the same, with a Dask array instead
of a NumPy array.

This example uses two local workers. On a real cluster, pass the address of the scheduler to
``Client``.
"""

# %%
# Workers are separate processes that import this script, so the computation is in a function, with
# a ``__main__`` guard at the end.
import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

import lowtucker as lt

shape, rank, m = (30, 30, 20), (3, 3, 3), 750
X_true = lt.random_tucker(shape, rank, seed=0)


def main():
    """Measure and recover on two workers, then in one process."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        # chunks of rows are generated on the workers; in practice, files would be read there
        rows = da.random.default_rng(1).standard_normal((m, int(np.prod(shape))), chunks=(125, -1))
        A = lt.from_dask(rows, shape, client=client)
        print(A)
        y = A.forward(X_true)
        there = lt.recover(A, y, rank, X_true=X_true)
        matrix = rows.compute()  # for the comparison below
    here = lt.recover(matrix, y, rank, shape=shape, X_true=X_true)
    return there, here


# %%
if __name__ == "__main__":
    there, here = main()
    for name, result in (("two workers", there), ("one process", here)):
        print(f"{name}: {result.status} error {result.error:.0e}, {result.passes:.1f} passes")
    assert there.success
    assert here.success
    assert max(there.error, here.error) < 1e-5

    figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
    axis.semilogy(there.history["passes"], there.history["error"], "o-", label="two workers")
    axis.semilogy(here.history["passes"], here.history["error"], "s--", label="one process")
    axis.set(xlabel="passes over the rows", ylabel="relative error")
    axis.grid(alpha=0.3)
    axis.legend()

# %%
# In each pass, X is sent to the workers and a few small matrices are returned; rows are never
# transferred. If a worker dies, the others take over its chunks. A cluster is worthwhile if the
# rows do not fit into the memory of one machine, or if a pass reads more than about 100 MB:
# :doc:`/cluster`.
