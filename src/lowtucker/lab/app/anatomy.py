"""The photograph as a sum of patterns, for the panel "Why does this work?"."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker.lab.app.photo import photo

__all__ = ["PATTERNS", "anatomy"]

# Patterns of rows and of columns that the page can add up
PATTERNS = 40


def anatomy() -> dict[str, Any]:
    """Return the leading singular vectors of every mode, and the core between them.

    The leading r vectors and the leading r x r block of the core are the truncated HOSVD of rank
    (r, r, min(r, 3)): the page computes every rank from one answer. Arrays are little-endian
    float32 in row-major order, in base64.
    """
    X = photo()
    unfolded = (np.moveaxis(X, k, 0).reshape(n, -1) for k, n in enumerate(X.shape))
    with one_blas_thread():
        factors = [np.linalg.svd(Z, full_matrices=False)[0][:, :PATTERNS] for Z in unfolded]
        core = np.einsum("ijk,ia,jb,kc->abc", X, *factors, optimize=True)
    return {
        "shape": list(X.shape),
        "rank": list(core.shape),
        "norm": float(np.linalg.norm(X)),
        "factors": [_encoded(U) for U in factors],
        "core": _encoded(core),
    }


def _encoded(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype="<f4").tobytes()).decode()
