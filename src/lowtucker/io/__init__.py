"""Guarded readers and writers: no pickle, and sizes are checked before allocation."""

from lowtucker.io.arrays import ArrayInfo, describe, is_sparse, load_array, load_sparse, save_arrays
from lowtucker.io.guards import replacing
from lowtucker.io.operators import load_operator
from lowtucker.io.rows import stored
from lowtucker.io.samples import TABLES, load_indices, load_samples, save_samples

__all__ = [
    "TABLES",
    "ArrayInfo",
    "describe",
    "is_sparse",
    "load_array",
    "load_indices",
    "load_operator",
    "load_samples",
    "load_sparse",
    "replacing",
    "save_arrays",
    "save_samples",
    "stored",
]
