"""Random sparse matrices, the same with every version of SciPy."""

from __future__ import annotations

import numpy as np
import scipy.sparse


def random_sparse(shape, seed):
    """A matrix with three tenths of its entries stored, as a ``coo_array``."""
    rng = np.random.default_rng(seed)
    return scipy.sparse.coo_array(np.where(rng.random(shape) < 0.3, rng.random(shape), 0.0))
