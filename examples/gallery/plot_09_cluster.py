r"""
On a cluster, with Dask
=======================

Rows that are spread over machines stay there. Every worker answers for its own chunks, with small
matrices; the tensor is on the client. The call is the same: a Dask array takes the place of a NumPy
array.

This page runs on two workers of its own machine. On a real cluster, give ``Client`` the address of
the scheduler.
"""

# %%
# Workers are processes of their own, and import this script where it is run as one: so the work is
# in a function, and a guard at the end.
import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

import lowtucker as lt

shape, rank, m = (30, 30, 20), (3, 3, 3), 750
X_true = lt.random_tucker(shape, rank, seed=0)


def main():
    """Measure and recover on two workers, and then without them."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        # chunks of rows, made where they are used: an instrument's files would be read there
        rows = da.random.default_rng(1).standard_normal((m, int(np.prod(shape))), chunks=(125, -1))
        A = lt.from_dask(rows, shape, client=client)
        print(A)
        y = A.forward(X_true)
        there = lt.recover(A, y, rank, X_true=X_true)
        matrix = rows.compute()  # for the comparison below; a real one would not fit
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
    axis.set(xlabel="readings of the rows", ylabel="relative error")
    axis.grid(alpha=0.3)
    axis.legend()

# %%
# What travels in a reading of the rows is X to the workers and a few small matrices back, never
# rows. A worker that dies is made up for by the others. It pays where rows do not fit into one
# memory, or above about 100 MB read at a time: :doc:`/cluster`.
