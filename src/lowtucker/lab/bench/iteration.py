"""Cost of the parts of an iteration: ``lowtucker bench iteration``."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker.lab.bench.timing import Row, holds, side_by_side
from lowtucker.operators import gaussian
from lowtucker.problem import Problem
from lowtucker.solvers import StoTIHT
from lowtucker.tensor import hosvd, random_tucker

__all__ = ["run"]

SHAPE, RANK, M, B = (5, 5, 6), (1, 2, 2), 360, 90  # Figure 1 of the paper
STEP = 0.46 * M  # in the paper's convention, which has no 1/b
# What a process of its own runs, and its yardstick. Most modules load at the first use of a name
IMPORTS = {
    "import lowtucker": ("import lowtucker", "import numpy"),
    "first use of lowtucker.recover": ("import lowtucker; lowtucker.recover", "import numpy"),
    "lowtucker --help": (
        "from lowtucker.cli import main; main(['--help'], standalone_mode=False)",
        "import click, numpy",
    ),
}


def run() -> Iterator[Row]:
    """Yield the rows of the benchmark as they are measured, with one BLAS thread."""
    with one_blas_thread():
        yield gradient_row()
        yield hosvd_row()
        yield from iteration_rows()
    for what in IMPORTS:
        yield import_row(what)


def gradient_row(m: int = 3000, shape: tuple[int, ...] = (30, 30, 30)) -> Row:
    """Compare the gradient of a large dense problem with one product with its matrix."""
    A = gaussian(shape, m, seed=1)
    X = random_tucker(shape, (3, 3, 3), seed=0).full()
    problem = Problem(A, A.forward(X))
    x = X.reshape(-1)
    times = side_by_side({"A @ x": lambda: A.matrix @ x, "gradient": lambda: problem.gradient(X)})
    return _row("gradient / one A @ x", times["gradient"] / times["A @ x"], "<= 1.7", times)


def hosvd_row(trials: int = 100) -> Row:
    """Compare the HOSVD of a batch of small tensors with a loop over them."""
    Z = random_tucker(SHAPE, SHAPE, seed=0, trials=trials).full()
    times = side_by_side(
        {
            "loop": lambda: [numpy_hosvd(z, RANK) for z in Z],
            "own loop": lambda: [hosvd(z, RANK) for z in Z],
            "batch": lambda: hosvd(Z, RANK),
        }
    )
    return _row(
        "hosvd of 100 5x5x6: NumPy loop / batch", times["loop"] / times["batch"], ">= 3", times
    )


def iteration_rows(trials: int = 100, iterations: int = 40) -> list[Row]:
    """Compare StoTIHT iterations of Figure 1, b = 90, per trial of a batch."""
    X_true = random_tucker(SHAPE, RANK, seed=0, orthonormal=False, trials=trials)
    A = gaussian(SHAPE, M, seed=1, normalize="frobenius", trials=trials)
    problem = Problem(A, A.forward(X_true))
    solver = StoTIHT(block_size=B, step=STEP * B).bind(problem, RANK)
    few = 5

    def ours() -> None:
        state = solver.init(None, 0)
        for _ in range(iterations):
            state = solver.advance(state)

    def loop(truncate: Any) -> None:
        for k in range(few):
            numpy_stotiht(A.matrix[k], problem.y[k], iterations, truncate)

    times = side_by_side(
        {
            "TensorLy loop": lambda: loop(tensorly_tucker),
            "TensorLy loop, one sweep": lambda: loop(lambda Z, r: tensorly_tucker(Z, r, 1)),
            "TensorLy loop, HOSVD only": lambda: loop(lambda Z, r: tensorly_tucker(Z, r, 0)),
            "NumPy loop": lambda: loop(numpy_hosvd),
            "lowtucker": ours,
        },
        repeats=5,
    )
    each = {
        name: seconds / iterations / (trials if name == "lowtucker" else few)
        for name, seconds in times.items()
    }
    return [
        _row(
            f"StoTIHT iteration: {name} / lowtucker",
            each[name] / each["lowtucker"],
            target,
            each,
        )
        for name, target in (
            ("TensorLy loop", ">= 20"),
            ("TensorLy loop, one sweep", ">= 1"),
            ("TensorLy loop, HOSVD only", ">= 1"),
            ("NumPy loop", ">= 3"),
        )
    ]


def import_row(what: str = "import lowtucker", repeats: int = 7) -> Row:
    """Compare the import time with NumPy's, each in its own process, with bytecode at hand."""
    ours, yardstick = IMPORTS[what]
    times: dict[str, list[float]] = {yardstick: [], what: []}
    code = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(repeats):
        for name, statement in ((yardstick, yardstick), (what, ours)):
            done = subprocess.run(
                [sys.executable, "-c", code.format(statement)],
                capture_output=True, text=True, check=True, env=environment,
            )  # fmt: skip
            times[name].append(float(done.stdout.split()[-1]))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return _row(f"{what} / {yardstick}", medians[what] / medians[yardstick], "<= 2", medians)


def numpy_hosvd(Z: Any, rank: tuple[int, ...]) -> Any:
    """Return the truncated HOSVD in plain NumPy: Gram matrices, no needless copies."""
    X = Z
    for k, r in enumerate(rank):
        M = np.moveaxis(Z, k, 0).reshape(Z.shape[k], -1)
        U = np.linalg.eigh(M @ M.T)[1][:, -r:]
        X = np.moveaxis(np.tensordot(U @ U.T, X, axes=(1, k)), 0, k)
    return X


def tensorly_tucker(Z: Any, rank: tuple[int, ...], n_iter_max: int = 100) -> Any:
    """Call TensorLy's ``tucker``; with ``n_iter_max=0`` it is the truncated HOSVD."""
    import tensorly
    from tensorly.decomposition import tucker

    return tensorly.tucker_to_tensor(tucker(Z, rank=list(rank), n_iter_max=n_iter_max))


def numpy_stotiht(A: Any, y: Any, iterations: int, truncate: Any) -> Any:
    """Run Algorithm 1 in plain NumPy, one trial."""
    rng = np.random.default_rng(0)
    X = np.zeros(SHAPE)
    for i in rng.integers(0, M // B, iterations):
        block = A[i * B : (i + 1) * B]
        residual = y[i * B : (i + 1) * B] - block @ X.reshape(-1)
        X = truncate(X + STEP * (residual @ block).reshape(SHAPE), RANK)
    return X


def _row(what: str, ratio: float, target: str, times: dict[str, float]) -> Row:
    detail = ", ".join(f"{name} {seconds * 1e6:.4g} us" for name, seconds in times.items())
    return Row(what, ratio, target, holds(ratio, target), detail)
