"""Cost of the parts of an iteration: ``lowtucker bench iteration``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lowtucker._array import one_blas_thread
from lowtucker.lab.bench.timing import REPEATS, Row, Spread, holds, machine_rows, side_by_side
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
        yield from machine_rows()
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
    return _row("gradient / one A @ x", "gradient", "A @ x", "<= 1.7", times)


def hosvd_row(trials: int = 100) -> Row:
    """Compare the HOSVD of a batch of small tensors with a loop over them."""
    Z = random_tucker(SHAPE, SHAPE, seed=0, trials=trials).full()
    vectors, lean = Z.reshape(trials, -1), lean_hosvd()
    times = side_by_side(
        {
            "loop": lambda: [lean(z) for z in vectors],
            "own loop": lambda: [hosvd(z, RANK) for z in Z],
            "batch": lambda: hosvd(Z, RANK),
        }
    )
    return _row("hosvd of 100 5x5x6: NumPy loop / batch", "loop", "batch", ">= 3", times)


def iteration_rows(trials: int = 100, iterations: int = 40, repeats: int = REPEATS) -> list[Row]:
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

    def loop(run: Callable[[Any, Any, int], Any]) -> Callable[[], Any]:
        return lambda: [run(A.matrix[k], problem.y[k], iterations) for k in range(few)]

    def by_tensorly(sweeps: int) -> Callable[[], Any]:
        return loop(lambda A, y, t: numpy_stotiht(A, y, t, lambda Z: tensorly_tucker(Z, sweeps)))

    times = side_by_side(
        {
            "TensorLy loop": by_tensorly(100),
            "TensorLy loop, one sweep": by_tensorly(1),
            "TensorLy loop, HOSVD only": by_tensorly(0),
            "NumPy loop": loop(lean_stotiht),
            "lowtucker": ours,
        },
        repeats,
    )
    each = {
        name: took / (iterations * (trials if name == "lowtucker" else few))
        for name, took in times.items()
    }
    targets = {"TensorLy loop": ">= 20", "TensorLy loop, one sweep": ">= 1",
               "TensorLy loop, HOSVD only": ">= 1", "NumPy loop": ">= 3"}  # fmt: skip
    return [
        _row(f"StoTIHT iteration: {name} / lowtucker", name, "lowtucker", target, each)
        for name, target in targets.items()
    ]


def import_row(what: str = "import lowtucker", repeats: int = REPEATS) -> Row:
    """Compare the import time with NumPy's, each in its own process, with bytecode at hand."""
    ours, yardstick = IMPORTS[what]
    times: dict[str, list[float]] = {yardstick: [], what: []}
    code = "import time; t = time.process_time(); {}; print(time.process_time() - t)"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(repeats):
        for name, statement in ((yardstick, yardstick), (what, ours)):
            done = subprocess.run(
                [sys.executable, "-c", code.format(statement)],
                capture_output=True, text=True, check=True, env=environment,
            )  # fmt: skip
            times[name].append(float(done.stdout.split()[-1]))
    spreads = {name: Spread.of(values) for name, values in times.items()}
    return _row(f"{what} / {yardstick}", what, yardstick, "<= 2", spreads)


def lean_hosvd() -> Callable[[Any], Any]:
    """Return the truncated HOSVD of 5x5x6 tensors at rank (1, 2, 2) in NumPy, as lean as it gets.

    On vectors. One call of ``eigh`` for the three Gram matrices, padded with zeros: of three calls
    its checks alone take as long as LAPACK. The Gram matrices are written where ``eigh`` reads
    them. An SVD of each unfolding took 1.7 times as long.
    """
    grams = np.zeros((3, 6, 6))
    first, second, third = grams[0, :5, :5], grams[1, :5, :5], grams[2]
    eigh, matmul, outer = np.linalg.eigh, np.matmul, np.multiply.outer

    def truncated(z: Any) -> Any:
        rows, last = z.reshape(5, 30), z.reshape(25, 6)
        middle = z.reshape(5, 5, 6).transpose(1, 0, 2).reshape(5, 30)
        matmul(rows, rows.T, out=first)
        matmul(middle, middle.T, out=second)
        matmul(last.T, last, out=third)
        vectors = eigh(grams)[1]
        u, V, W = vectors[0, :5, 5], vectors[1, :5, 4:], vectors[2, :, 4:]
        core = V.T.dot(u.dot(rows).reshape(5, 6)).dot(W)
        return outer(u, V.dot(core).dot(W.T)).reshape(150)

    return truncated


def lean_stotiht(A: Any, y: Any, iterations: int) -> Any:
    """Run Algorithm 1 on Figure 1 of the paper in NumPy, as lean as it gets; one trial."""
    truncated = lean_hosvd()
    blocks, parts = list(A.reshape(M // B, B, -1)), list(y.reshape(M // B, B))
    x = np.zeros(A.shape[1])
    for i in np.random.default_rng(0).integers(0, M // B, iterations).tolist():
        block = blocks[i]
        z = (parts[i] - block.dot(x)).dot(block)
        z *= STEP
        z += x
        x = truncated(z)
    return x.reshape(SHAPE)


def tensorly_tucker(Z: Any, n_iter_max: int = 100) -> Any:
    """Call TensorLy's ``tucker``; with ``n_iter_max=0`` it is the truncated HOSVD."""
    import tensorly
    from tensorly.decomposition import tucker

    return tensorly.tucker_to_tensor(tucker(Z, rank=list(RANK), n_iter_max=n_iter_max))


def numpy_stotiht(A: Any, y: Any, iterations: int, truncate: Callable[[Any], Any]) -> Any:
    """Run Algorithm 1 in NumPy with another truncation, one trial."""
    rng = np.random.default_rng(0)
    X = np.zeros(SHAPE)
    for i in rng.integers(0, M // B, iterations):
        block = A[i * B : (i + 1) * B]
        residual = y[i * B : (i + 1) * B] - block @ X.reshape(-1)
        X = truncate(X + STEP * (residual @ block).reshape(SHAPE))
    return X


def _row(what: str, one: str, other: str, target: str, times: dict[str, Spread]) -> Row:
    """Ratio of two medians; all medians, with the least and the greatest, in its detail."""
    ratio = times[one].median / times[other].median
    detail = ", ".join(f"{name} {took.text(1e6, 'us')}" for name, took in times.items())
    return Row(what, ratio, target, holds(ratio, target), detail)
