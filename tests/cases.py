"""The parts under contract tests. One line here adds a new part to all of them."""

from __future__ import annotations

import functools
import tempfile
import warnings
from pathlib import Path

import dask.array as da
import h5py
import numpy as np
import pylops
import scipy.sparse
import scipy.sparse.linalg
import zarr

import lowtucker as lt
from lowtucker.solvers.shrinking import Shrinking

SHAPE = (3, 4, 2)
N = 24
M = 11


def _matrix(m=M, dtype=np.float64, seed=5, n=N):
    rng = np.random.default_rng(seed)
    real = rng.standard_normal((m, n))
    if np.dtype(dtype).kind == "c":
        return (real + 1j * rng.standard_normal((m, n))).astype(dtype)
    return real.astype(dtype)


def _times(matrix, X):
    return matrix @ X.reshape(-1)


def _transposed_times(matrix, v):
    return (matrix.T @ v).reshape(SHAPE)


def _function():
    matrix = _matrix()
    return lt.FunctionOperator(
        functools.partial(_times, matrix), functools.partial(_transposed_times, matrix), SHAPE, M
    )


def _restricted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        return _function().restrict(np.array([4, 0, 7, 7, 2]))


def _sparse(order="C"):
    matrix = _matrix()
    matrix[np.abs(matrix) < 0.5] = 0
    return lt.SparseOperator(scipy.sparse.coo_array(matrix), SHAPE, order=order)


def _blocks():
    stack = lt.gaussian(SHAPE, M, seed=2, trials=3)
    return stack.restrict((slice(0, 4), slice(4, 8), slice(8, 11)))


def _matrices(rows, columns, dtype=np.float64):
    return [_matrix(m, dtype, m + 7 * n, n) for m, n in zip(rows, columns, strict=True)]


SOME = np.random.default_rng(1).integers(0, SHAPE, (5, 3))
PHASES = np.exp(1j * np.arange(M))


def _outer(m=M):
    return lt.rank_one([_matrix(m, n=n, seed=n) for n in SHAPE])


def _complex_rows(m=4):
    return lt.DenseOperator(_matrix(m, np.complex128), SHAPE, dtype=np.float64)


FOLDER = tempfile.TemporaryDirectory(prefix="lowtucker-cases-")


def _stored(kind, dtype=np.float64):
    """Rows in a file of some kind."""
    path, matrix = Path(FOLDER.name, f"{np.dtype(dtype).name}.{kind}"), _matrix(dtype=dtype)
    if not path.exists():
        if kind == "npy":
            np.save(path, matrix)
        elif kind == "h5":
            with h5py.File(path, "w") as file:
                file["rows"] = matrix
        else:
            zarr.save_array(path, matrix)
    return lt.stored(path, SHAPE)


# name -> how to make it. Every operator here passes tests/contracts/test_operators.py
OPERATORS = {
    "gaussian": lambda: lt.gaussian(SHAPE, M, seed=3),
    "gaussian-frobenius": lambda: lt.gaussian(SHAPE, M, seed=3, normalize="frobenius"),
    "gaussian-float32": lambda: lt.gaussian(SHAPE, M, seed=3, dtype=np.float32),
    "gaussian-complex": lambda: lt.gaussian(SHAPE, M, seed=3, dtype=np.complex128),
    "dense-tensors": lambda: lt.DenseOperator(_matrix().reshape(M, *SHAPE)),
    "dense-matlab-order": lambda: lt.DenseOperator(_matrix(), SHAPE, order="F"),
    "dense-complex-matrix-real-tensors": lambda: lt.DenseOperator(
        _matrix(dtype=np.complex128), SHAPE, dtype=np.dtype(np.float64)
    ),
    "dense-real-matrix-complex-tensors": lambda: lt.DenseOperator(
        _matrix(), SHAPE, dtype=np.dtype(np.complex128)
    ),
    "dense-int8": lambda: lt.DenseOperator((9 * _matrix()).astype(np.int8), SHAPE),
    "dense-float16": lambda: lt.DenseOperator(_matrix(dtype=np.float16), SHAPE),
    "dense-column-major": lambda: lt.DenseOperator(np.asfortranarray(_matrix()), SHAPE),
    "dense-int8-stack": lambda: lt.DenseOperator(
        (9 * _matrix(3 * M)).astype(np.int8).reshape(3, M, N), SHAPE
    ),
    "dense-one-row": lambda: lt.gaussian(SHAPE, 1, seed=4),
    "dense-order-1": lambda: lt.gaussian((6,), 4, seed=4),
    "dense-order-5": lambda: lt.gaussian((2, 3, 1, 2, 2), 7, seed=4),
    "dense-stack": lambda: lt.gaussian(SHAPE, M, seed=2, trials=3),
    "dense-stack-blocks": _blocks,
    "dense-stack-row-sets": lambda: lt.gaussian(SHAPE, M, seed=2, trials=2).restrict(
        (np.array([0, 3, 3, 7, 9]), np.array([10, 1, 2, 5]))
    ),
    "dense-block": lambda: lt.gaussian(SHAPE, M, seed=3).restrict(slice(2, 9)),
    "dask": lambda: lt.from_dask(da.from_array(_matrix(), chunks=(4, -1)), SHAPE),
    "dask-tensors": lambda: lt.as_operator(
        da.from_array(_matrix().reshape(M, *SHAPE), chunks=((1, 2, 8), -1, -1, -1))
    ),
    "dask-matlab-order-not-kept": lambda: lt.from_dask(
        da.from_array(_matrix(), chunks=(3, -1)), SHAPE, order="F", keep=False
    ),
    "dask-complex": lambda: lt.from_dask(
        da.from_array(_matrix(dtype=np.complex128), chunks=(4, -1)), SHAPE
    ),
    "dask-float32": lambda: lt.from_dask(
        da.from_array(_matrix(dtype=np.float32), chunks=(4, -1)), SHAPE
    ),
    "dask-block": lambda: lt.from_dask(da.from_array(_matrix(), chunks=(4, -1)), SHAPE).restrict(
        np.array([9, 0, 9, 5, 10])
    ),
    "sparse": _sparse,
    "sparse-matlab-order": lambda: _sparse("F"),
    "scipy-linear-operator": lambda: lt.as_operator(
        scipy.sparse.linalg.aslinearoperator(_matrix()), shape=SHAPE
    ),
    "pylops": lambda: lt.as_operator(pylops.MatrixMult(_matrix()), shape=SHAPE),
    "entries": lambda: lt.entries(SHAPE, np.random.default_rng(1).integers(0, SHAPE, (M, 3))),
    "entries-order-1": lambda: lt.entries((6,), np.array([[4], [0], [4], [5]])),
    "rank-one": lambda: lt.rank_one([_matrix(n=n, seed=n) for n in SHAPE]),
    "rank-one-complex": lambda: lt.rank_one(
        [_matrix(n=n, seed=n, dtype=np.complex128) for n in SHAPE]
    ),
    "rank-one-float32": lambda: lt.rank_one([_matrix(n=n, dtype=np.float32) for n in SHAPE]),
    "rank-one-order-1": lambda: lt.rank_one([_matrix(n=6)]),
    "rank-one-order-4": lambda: lt.rank_one([_matrix(n=n, seed=n) for n in (2, 3, 2, 3)]),
    "kronecker": lambda: lt.kronecker(_matrices((2, 3, 2), SHAPE)),
    "kronecker-tall": lambda: lt.kronecker(_matrices((5, 2, 3), SHAPE)),
    "kronecker-complex": lambda: lt.kronecker(_matrices((2, 3, 2), SHAPE, np.complex128)),
    "kronecker-float32": lambda: lt.kronecker(_matrices((2, 3, 2), SHAPE, np.float32)),
    "kronecker-order-1": lambda: lt.kronecker(_matrices((4,), (6,))),
    "kronecker-order-4": lambda: lt.kronecker(_matrices((2, 2, 1, 3), (2, 3, 2, 3))),
    "kronecker-block": lambda: lt.kronecker(_matrices((2, 3, 2), SHAPE)).restrict(slice(3, 9)),
    "modewise": lambda: lt.kronecker(_matrices((5, 2), (12, 2)), SHAPE),
    "modewise-block": lambda: lt.kronecker(_matrices((5, 2), (12, 2)), SHAPE).restrict(
        np.array([4, 0, 4, 7, 9])
    ),
    "modewise-final": lambda: lt.kronecker(
        _matrices((5, 2), (12, 2)), SHAPE, final=_matrix(7, n=10)
    ),
    "modewise-final-complex": lambda: lt.kronecker(
        _matrices((2, 3, 2), SHAPE), final=_matrix(7, np.complex128, n=12)
    ),
    "transform-dct": lambda: lt.subsampled_transform(SHAPE, M, seed=3),
    "transform-fft": lambda: lt.subsampled_transform(SHAPE, M, "fft", seed=3),
    "transform-hadamard": lambda: lt.subsampled_transform((4, 8, 2), M, "hadamard", seed=3),
    "transform-fft-order-1": lambda: lt.subsampled_transform((6,), 4, "fft", seed=3),
    "transform-block": lambda: lt.subsampled_transform(SHAPE, M, seed=3).restrict(
        np.array([4, 0, 7, 7, 2])
    ),
    "separable-dct": lambda: lt.subsampled_transform(SHAPE, M, signs=False, seed=3),
    "separable-fft": lambda: lt.subsampled_transform(SHAPE, M, "fft", signs=False, seed=3),
    "separable-hadamard": lambda: lt.subsampled_transform(
        (4, 8, 2), M, "hadamard", signs=False, seed=3
    ),
    "separable-fft-order-4": lambda: lt.subsampled_transform((2, 3, 1, 4), 9, "fft", False, 3),
    "separable-fft-block": lambda: lt.subsampled_transform(SHAPE, M, "fft", False, 3).restrict(
        slice(2, 9)
    ),
    "seeded-gaussian": lambda: lt.seeded_gaussian(SHAPE, M, seed=3),
    "seeded-gaussian-float32": lambda: lt.seeded_gaussian(SHAPE, M, seed=3, dtype=np.float32),
    "stored-npy": lambda: _stored("npy"),
    "stored-npy-complex": lambda: _stored("npy", np.complex128),
    "stored-npy-float32": lambda: _stored("npy", np.float32),
    "stored-hdf5": lambda: _stored("h5"),
    "stored-zarr": lambda: _stored("zarr"),
    "stored-matlab-order": lambda: lt.stored(_stored("npy")._file[0], SHAPE, order="F"),
    "stack": lambda: lt.stack([lt.gaussian(SHAPE, 4, seed=3), lt.entries(SHAPE, SOME), _outer(3)]),
    "stack-float32": lambda: lt.stack(
        [lt.entries(SHAPE, SOME), lt.gaussian(SHAPE, 4, seed=3, dtype=np.float32)]
    ),
    "stack-complex": lambda: lt.stack(
        [lt.entries(SHAPE, SOME), lt.gaussian(SHAPE, 4, seed=3, dtype=np.complex128)]
    ),
    "stack-real-and-complex-rows": lambda: lt.stack([_outer(3), _complex_rows(), _sparse()]),
    "stack-function": lambda: lt.stack([_function(), lt.gaussian(SHAPE, 4, seed=3)]),
    "stack-block": lambda: lt.stack([lt.gaussian(SHAPE, 4, seed=3), _sparse()]).restrict(
        slice(1, 13, 2)
    ),
    "scale": lambda: lt.scale(lt.gaussian(SHAPE, M, seed=3), -2.5),
    "scale-rows": lambda: lt.scale(_outer(), np.linspace(-1, 2, M)),
    "scale-complex-rows-real-tensors": lambda: lt.scale(_outer(), PHASES),
    "scale-complex": lambda: lt.scale(lt.gaussian(SHAPE, M, seed=3, dtype=np.complex128), PHASES),
    "scale-stack": lambda: lt.scale(lt.stack([_complex_rows(), lt.entries(SHAPE, SOME)]), 2j),
    "compose": lambda: lt.compose(_matrix(7, n=M), lt.gaussian(SHAPE, M, seed=3)),
    "compose-blur": lambda: lt.compose(
        lt.gaussian(SHAPE, M, seed=3), scipy.sparse.csr_array(_matrix(N)), shape=SHAPE
    ),
    "compose-pylops-between": lambda: lt.compose(
        lt.gaussian((5, 4), M, seed=3), pylops.MatrixMult(_matrix(20)), lt.gaussian(SHAPE, N)
    ),
    "compose-pylops-first": lambda: lt.compose(pylops.MatrixMult(_matrix(M, n=20)), _outer(20)),
    "compose-real-of-complex": lambda: lt.compose(_matrix(7, n=4), _complex_rows()),
    "compose-float32": lambda: lt.compose(
        _matrix(M, n=5), _matrix(5, dtype=np.float32), shape=SHAPE
    ),
    "function": _function,
    "restricted": _restricted,
}

# Operators that are not row-separable, and warn of it once: every block costs all rows
SLOW = {"scipy-linear-operator", "pylops", "function", "stack-function", "compose-pylops-first"}

# name -> how to make it for a rank. tests/contracts/test_thresholdings.py
THRESHOLDINGS = {
    "HOSVD": lt.HOSVD,
    "STHOSVD": lt.STHOSVD,
    "STHOSVD-backwards": lambda rank: lt.STHOSVD(rank, mode_order=tuple(range(len(rank)))[::-1]),
    "SeMP": lt.SeMP,
    "HOOI": lambda rank: lt.HOOI(rank, max_iterations=5),  # its limit depends on rounding
}

# name -> a thresholding with the format that it returns, and the problem that TIHT and StoTIHT must
# solve with it: (thresholding, shape, m, a fixed step). tests/contracts/test_formats.py
FORMATS = {
    "HOSVD": (lt.HOSVD((1, 2, 2)), (5, 5, 6), 120, 0.5),
    "SeMP": (lt.SeMP((1, 2, 2)), (5, 5, 6), 120, 0.5),
    "Sparse": (lt.Sparse(5), (6, 5, 4), 90, 0.4),
    "Sparse-vector": (lt.Sparse(4), (80,), 50, 0.3),
    "RowSparse": (lt.RowSparse(3), (30, 4), 90, 0.4),
    "TensorTrain": (lt.TensorTrain((2, 2)), (5, 4, 6), 110, 0.5),
    "TensorTrain-order-5": (lt.TensorTrain((2, 2, 2, 1)), (3, 4, 3, 3, 2), 150, 0.5),
    "Tubal": (lt.Tubal(1), (6, 5, 4), 110, 0.5),
    "HierarchicalTucker": (lt.HierarchicalTucker(2), (4, 3, 4, 3), 150, 0.5),
    "HierarchicalTucker-order-5": (
        lt.HierarchicalTucker((2, 3, 2, 2, 2, 2, 2, 2), (((0, 3), 1), (4, 2))),
        (3, 4, 3, 3, 2),
        170,
        0.5,
    ),
    "Tubal-odd": (lt.Tubal(2), (7, 8, 3), 230, 0.5),
}

# name -> how to make it for a block size. tests/contracts/test_samplers.py
SAMPLERS = {
    "Partition": lt.Partition,
    "Partition-norms": lambda b: lt.Partition(b, p="norms"),
    "RandomRows": lt.RandomRows,
    "Shuffled": lt.Shuffled,
    "KaczmarzRows": lt.KaczmarzRows,
}


def _entries(shape, m, seed):
    flat = np.random.default_rng(seed).choice(int(np.prod(shape)), m, replace=False)
    return lt.entries(shape, np.stack(np.unravel_index(flat, shape), axis=1))


# name -> a solver, and the seconds-free instance that it must solve: (shape, rank, m), with the
# measurements (shape, m, seed) if they are not Gaussian.
# tests/contracts/test_solvers.py
EASY = ((5, 5, 6), (1, 2, 2), 120)
SOLVERS = {
    "TIHT": (lt.TIHT(step=0.6), EASY),
    "TIHT-auto": (lt.TIHT(), EASY),
    "TIHT-HOOI": (lt.TIHT(step=0.6, thresholding=lt.HOOI), EASY),
    "TIHT-trim": (lt.TIHT(step=0.6, trim=0.1), EASY),
    "TIHT-trim-auto": (lt.TIHT(trim=0.1), EASY),
    "StoTIHT": (lt.StoTIHT(block_size=60, step=0.5), EASY),
    "StoTIHT-auto": (lt.StoTIHT(), EASY),
    "StoTIHT-auto-short-block": (lt.StoTIHT(block_size=50), EASY),
    "StoTIHT-norms": (lt.StoTIHT(block_size=50, step=0.4, p="norms"), EASY),
    "StoTIHT-random-rows": (lt.StoTIHT(step=0.5, sampler=lt.RandomRows(60)), EASY),
    "StoTIHT-shuffled-auto": (lt.StoTIHT(sampler=lt.Shuffled(40)), EASY),
    "TIHT-growing-rank": (lt.TIHT(schedule=lt.GrowingRank(epochs=5)), EASY),
    "StoTIHT-SeMP-growing-rank": (
        lt.StoTIHT(thresholding=lt.SeMP, schedule=lt.GrowingRank((1, 1, 1), 10)),
        EASY,
    ),
    "StoTIHT-trim": (lt.StoTIHT(block_size=60, trim=0.1), EASY),
    "StoTIHT-Kaczmarz": (lt.StoTIHT(step=1.0, sampler=lt.KaczmarzRows(120)), EASY),
    "StoTIHT-Kaczmarz-short-block": (lt.StoTIHT(step=0.5, sampler=lt.KaczmarzRows(50)), EASY),
    "StoTIHT-STHOSVD": (lt.StoTIHT(block_size=60, step=0.5, thresholding=lt.STHOSVD), EASY),
    "RGN": (lt.RGN(), EASY),
    "RGN-starts": (lt.RGN(starts=5), ((5, 5, 6), (1, 2, 2), 40)),
    "RSGD": (lt.RSGD(), EASY),
    "RSGD-block-size": (lt.RSGD(block_size=17), EASY),
    "RSGD-least-squares": (lt.RSGD(least_squares=True), EASY),
    "RCG": (lt.RCG(), EASY),
    "ALS": (lt.ALS(), ((8, 7, 6), (2, 2, 2), 250, _entries)),
    "NuclearNorm": (lt.NuclearNorm(gap=1e-6), EASY),
    "NuclearNorm-square": (
        lt.NuclearNorm(unfolding="square", gap=1e-6),
        ((5, 4, 4, 5), (1, 1, 1, 1), 350, _entries),
    ),
}


def rank_given(solver, rank):
    """Rank that a call with a solver needs: none where it shrinks."""
    return None if isinstance(solver, Shrinking) else rank
