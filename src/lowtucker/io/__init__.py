"""Guarded readers and writers: no pickle, and sizes are checked before allocation."""

from lowtucker.io.arrays import ArrayInfo, describe, is_sparse, load_array, load_sparse, save_arrays
from lowtucker.io.guards import replacing
from lowtucker.io.operators import load_operator
from lowtucker.io.rows import stored
from lowtucker.io.samples import TABLES, load_indices, load_samples, save_samples
from lowtucker.io.tables import Table, load_table, save_table

__all__ = [
    "TABLES",
    "ArrayInfo",
    "Table",
    "describe",
    "is_sparse",
    "load_array",
    "load_indices",
    "load_operator",
    "load_samples",
    "load_sparse",
    "load_table",
    "replacing",
    "save_arrays",
    "save_samples",
    "save_table",
    "stored",
]
