"""Guarded readers and writers: no pickle, and sizes are checked before memory is taken."""

from lowtucker.io.arrays import (
    ArrayInfo,
    describe,
    is_sparse,
    load_array,
    load_sparse,
    save_arrays,
)
from lowtucker.io.guards import replacing
from lowtucker.io.operators import load_operator
from lowtucker.io.rows import stored
from lowtucker.io.video import load_video, save_gif

__all__ = [
    "ArrayInfo",
    "describe",
    "is_sparse",
    "load_array",
    "load_operator",
    "load_sparse",
    "load_video",
    "replacing",
    "save_arrays",
    "save_gif",
    "stored",
]
