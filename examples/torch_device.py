"""Recover on a GPU: with torch tensors as input, the result is a torch tensor on the same device.

No option is needed: ``lowtucker.recover`` computes on the device and in the precision of A and y.
Here A is a matrix of 1500 Gaussian rows. On a machine with a GPU supported by torch, try

    python examples/torch_device.py
    python examples/torch_device.py --device cuda
    python examples/torch_device.py --device cuda --dtype float32

Without torch, the script prints a message and recovers the same tensor with NumPy.
"""
# ruff: noqa: T201 -- a script prints

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

import lowtucker as lt

SHAPE, RANK, M = (20, 20, 10), (3, 3, 2), 1500


def moved(x: Any, device: str, dtype: str) -> Any:
    """Return a torch tensor on the device, or a NumPy array if torch is not installed."""
    try:
        import torch
    except ImportError:
        return x.astype(dtype)
    return torch.asarray(x, dtype=getattr(torch, dtype), device=device)


def main(argv: Sequence[str] | None = None) -> float:
    """Measure, recover and report. Return the relative error."""
    parser = argparse.ArgumentParser(description="Recover a tensor on the device of torch tensors.")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, mps, ...")
    parser.add_argument("--dtype", default="float64", choices=["float64", "float32"])
    arguments = parser.parse_args(argv)

    X_true = lt.random_tucker(SHAPE, RANK, seed=0)
    rows = np.random.default_rng(1).standard_normal((M, *SHAPE))
    A, y, full = (
        moved(x, arguments.device, arguments.dtype)
        for x in (rows, lt.as_operator(rows).forward(X_true), X_true.full())
    )
    if isinstance(A, np.ndarray):
        print("torch is not installed; using NumPy. Try: pip install torch")

    result = lt.recover(A, y, RANK)
    core = result.X.core
    print(f"{type(core).__name__} of {core.dtype} on {getattr(core, 'device', 'cpu')}")
    print(result.status)
    error = float(lt.metrics.relative_error(result.X, full))
    print(f"relative error {error:.1e} after {result.seconds:.2f} s")
    return error


if __name__ == "__main__":
    main()
