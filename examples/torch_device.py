"""Recover on a GPU: torch tensors in, torch tensors out, on the device where they are.

Nothing has to be said about the device: ``lowtucker.recover`` computes where A and y are, in their
precision. Here A is a matrix of 1500 Gaussian rows. On a machine with a GPU that torch sees, try

    python examples/torch_device.py
    python examples/torch_device.py --device cuda
    python examples/torch_device.py --device cuda --dtype float32

Without torch it says so, and recovers the same tensor with NumPy.
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
    """Torch tensor on a device; a NumPy array where torch is not installed."""
    try:
        import torch
    except ImportError:
        return x.astype(dtype)
    return torch.asarray(x, dtype=getattr(torch, dtype), device=device)


def main(argv: Sequence[str] | None = None) -> float:
    """Measure, recover, report. Gives the relative error."""
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
        print("torch is not installed, so this runs with NumPy. Try: pip install torch")

    result = lt.recover(A, y, RANK)
    core = result.X.core
    print(f"{type(core).__name__} of {core.dtype} on {getattr(core, 'device', 'cpu')}")
    print(result.status)
    error = float(lt.metrics.relative_error(result.X, full))
    print(f"relative error {error:.1e} after {result.seconds:.2f} s")
    return error


if __name__ == "__main__":
    main()
