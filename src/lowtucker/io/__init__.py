"""Guarded readers and writers of arrays in files."""

from lowtucker.io.arrays import (
    ArrayInfo,
    describe,
    is_sparse,
    load_array,
    load_sparse,
    save_arrays,
)

__all__ = ["ArrayInfo", "describe", "is_sparse", "load_array", "load_sparse", "save_arrays"]
