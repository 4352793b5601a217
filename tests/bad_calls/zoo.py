"""A zoo of bad values, and a good call of every public function to throw them at.

tests/robustness/test_zoo.py replaces every argument of every call by every value. What is refused
must be so by a message of the package.
"""

from __future__ import annotations

import datetime
import decimal
import fractions

import numpy as np
import scipy.sparse

import lowtucker as lt
from lowtucker import metrics, theory
from lowtucker.estimators import TuckerImputer, TuckerRegressor

SHAPE, RANK, M = (3, 4, 2), (1, 1, 1), 30
A = lt.gaussian(SHAPE, M, seed=1)
X = lt.random_tucker(SHAPE, RANK, seed=0)
Y = A.forward(X)
Z = X.full()
P = lt.Problem(A, Y)
INDEX = np.argwhere(np.random.default_rng(0).random(SHAPE) < 0.8)
ROWS = np.random.default_rng(1).standard_normal((M, *SHAPE))
HOLES = np.where(np.random.default_rng(2).random(SHAPE) < 0.2, np.nan, Z)
FACTORS = [np.random.default_rng(k).standard_normal((5, n)) for k, n in enumerate(SHAPE)]
ORTHONORMAL = [np.eye(n)[:, :1] for n in SHAPE]
RESULT = lt.recover(A, Y, RANK)
STREAM = lt.Online(SHAPE, RANK)
STREAM.update(A.matrix, Y)


class Thing:
    """An object that is nothing in particular."""

    def __repr__(self):
        return "a thing"


# New at every call: an iterator is used up, and an array may be changed
VALUES = {
    "None": lambda: None,
    "text": lambda: "text",
    "empty text": lambda: "",
    "bytes": lambda: b"\1\1\1",
    "five": lambda: 5,
    "minus one": lambda: -1,
    "zero": lambda: 0,
    "half": lambda: 0.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "minus inf": lambda: float("-inf"),
    "huge": lambda: 10**30,
    "largest": lambda: 1.7e308,
    "imaginary": lambda: 1j,
    "true": lambda: True,
    "empty list": list,
    "empty tuple": tuple,
    "dict": lambda: {0: 1},
    "set": lambda: {1, 2, 3},
    "iterator": lambda: iter([1, 1, 1]),
    "range": lambda: range(3),
    "thing": Thing,
    "class": lambda: Thing,
    "function": lambda: lambda *args: args,
    "texts": lambda: ["a", "b", "c"],
    "ragged": lambda: [[1], [1, 2]],
    "Nones": lambda: [None, None, None],
    "things": lambda: [Thing(), Thing(), Thing()],
    "halves": lambda: (0.5, 0.5, 0.5),
    "negative": lambda: (-1, -1, -1),
    "big": lambda: (10**30, 1, 1),
    "empty array": lambda: np.array([]),
    "text array": lambda: np.array(["a", "b"]),
    "object array": lambda: np.array([Thing(), None], dtype=object),
    "dates": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "record": lambda: np.zeros(3, dtype=[("a", float)]),
    "matrix": lambda: np.eye(2),
    "long": lambda: np.ones(1000),
    "nans": lambda: np.full(SHAPE, np.nan),
    "complex": lambda: 1j * np.ones(SHAPE),
    "masked": lambda: np.ma.masked_all(3),
    "longdouble": lambda: np.ones(3, np.longdouble),
    "sparse": lambda: scipy.sparse.eye_array(3),
    "fraction": lambda: fractions.Fraction(1, 3),
    "decimal": lambda: decimal.Decimal("0.1"),
    "date": lambda: datetime.date(2020, 1, 1),
    "slice": lambda: slice(None),
    "ellipsis": lambda: ...,
    "a tensor": lambda: X,
    "an operator": lambda: A,
    "a problem": lambda: P,
    "a solver": lambda: lt.TIHT(),
    "a format": lambda: lt.Sparse(2),
    "a status": lambda: lt.Status.CONVERGED,
    "an exception": lambda: ValueError("x"),
}

# Good calls: the function, and its arguments by name. No file is written
GOOD = {
    "recover": (lt.recover, {
        "A": ROWS, "y": Y, "rank": RANK, "shape": SHAPE, "order": "C", "solver": "tiht",
        "tol": 1e-6, "max_epochs": 2, "max_seconds": 10.0, "noise_std": None, "weights": None,
        "loss": "squared", "start": None, "X_true": None, "seed": 0, "callbacks": (),
        "checkpoint": None}),
    "complete": (lt.complete, {
        "values": HOLES, "rank": RANK, "indices": None, "shape": None, "held_out": 0.1,
        "solver": "auto", "tol": 1e-6, "max_epochs": 2, "max_seconds": 10.0, "noise_std": None,
        "X_true": None, "seed": 0, "callbacks": ()}),
    "complete, entries": (lt.complete, {
        "values": X.entries(INDEX), "rank": RANK, "indices": INDEX, "shape": SHAPE,
        "max_epochs": 2}),
    "solve": (lt.solve, {
        "problem": P, "solver": "tiht", "rank": RANK, "stop": lt.MaxEpochs(2), "start": None,
        "X_true": None, "seed": 0, "callbacks": ()}),
    "iterate": (lambda **given: next(lt.iterate(**given)), {
        "problem": P, "solver": "tiht", "rank": RANK, "start": None, "seed": 0}),
    "Problem": (lt.Problem, {"A": A, "y": Y, "weights": None}),
    "Online": (lt.Online, {"shape": SHAPE, "rank": RANK, "memory": None, "tol": 1e-6, "seed": 0}),
    "Online.update": (lambda **given: lt.Online(SHAPE, RANK).update(**given), {
        "A_block": ROWS[:4], "y_block": Y[:4], "weights": None}),
    "Online.update_entries": (lambda **given: lt.Online(SHAPE, RANK).update_entries(**given), {
        "indices": INDEX[:4], "values": np.ones(4), "weights": None}),
    "gaussian": (lt.gaussian, {
        "shape": SHAPE, "m": 3, "seed": 0, "normalize": None, "dtype": float, "trials": None}),
    "seeded_gaussian": (lt.seeded_gaussian, {"shape": SHAPE, "m": 3, "seed": 0, "dtype": float}),
    "entries": (lt.entries, {"shape": SHAPE, "indices": INDEX}),
    "rank_one": (lt.rank_one, {"factors": FACTORS}),
    "kronecker": (lt.kronecker, {"matrices": FACTORS, "shape": None, "final": None}),
    "subsampled_transform": (lt.subsampled_transform, {
        "shape": SHAPE, "m": 3, "kind": "dct", "signs": True, "seed": 0}),
    "DenseOperator": (lt.DenseOperator, {
        "matrix": A.matrix, "shape": SHAPE, "order": "C", "dtype": None}),
    "FunctionOperator": (lt.FunctionOperator, {
        "forward": A._forward, "adjoint": A._adjoint, "shape": SHAPE, "m": M}),
    "as_operator": (lt.as_operator, {"A": A.matrix, "shape": SHAPE, "order": "C"}),
    "stack": (lt.stack, {"operators": [A, A]}),
    "batch": (lt.batch, {"operators": [A, A]}),
    "scale": (lt.scale, {"A": A, "factor": 2.0}),
    "compose": (lambda a, b, shape: lt.compose(a, b, shape=shape), {
        "a": np.eye(M), "b": A.matrix, "shape": SHAPE}),
    "check_adjoint": (lt.check_adjoint, {"A": A, "rtol": None, "seed": 0}),
    "check_restriction": (lt.check_restriction, {"A": A, "rtol": None, "seed": 0}),
    "operator_norm": (lt.operator_norm, {"A": A, "seed": 0}),
    "to_scipy": (lt.to_scipy, {"A": A}),
    "to_pylops": (lt.to_pylops, {"A": A}),
    "A.forward": (A.forward, {"X": Z}),
    "A.adjoint": (A.adjoint, {"v": Y}),
    "A.restrict": (A.restrict, {"rows": [0, 1]}),
    "random_tucker": (lt.random_tucker, {
        "shape": SHAPE, "rank": RANK, "seed": 0, "orthonormal": True, "core_mean": 0.0,
        "dtype": float, "trials": None}),
    "random_tensor": (lt.random_tensor, {
        "thresholding": lt.Sparse(2), "shape": SHAPE, "seed": 0, "dtype": float, "trials": None}),
    "TuckerTensor": (lt.TuckerTensor, {"core": np.ones((1, 1, 1)), "factors": ORTHONORMAL}),
    "X.entries": (X.entries, {"indices": INDEX}),
    "hosvd": (lt.hosvd, {"X": Z, "rank": RANK}),
    "sthosvd": (lt.sthosvd, {"X": Z, "rank": RANK}),
    "hooi": (lt.hooi, {"X": Z, "rank": RANK}),
    "unfold": (lt.unfold, {"X": Z, "mode": 0}),
    "fold": (lt.fold, {"matrix": lt.unfold(Z, 0), "mode": 0, "shape": SHAPE}),
    "inner": (lt.inner, {"X": Z, "Y": Z}),
    "norm": (lt.norm, {"X": Z}),
    "mode_product": (lt.mode_product, {"X": Z, "U": np.eye(3), "mode": 0}),
    "multi_mode_product": (lt.multi_mode_product, {
        "X": Z, "matrices": [np.eye(n) for n in SHAPE], "transpose": False}),
    "multilinear_rank": (lt.multilinear_rank, {"X": Z}),
    "degrees_of_freedom": (lt.degrees_of_freedom, {"shape": SHAPE, "rank": RANK}),
    "attainable_rank": (lt.attainable_rank, {"rank": RANK}),
    "spectra": (lt.spectra, {"X": Z}),
    "TangentSpace": (lt.TangentSpace, {"X": X}),
    **{name: (getattr(lt, name), {"rank": rank}) for name, rank in {
        "HOSVD": RANK, "STHOSVD": RANK, "HOOI": RANK, "TensorTrain": (1, 1), "Sparse": 2,
        "RowSparse": 2, "Tubal": 1, "HierarchicalTucker": 1}.items()},
    **{f"{name} of": (getattr(lt, name)(rank), {"Z": Z}) for name, rank in {
        "HOSVD": RANK, "TensorTrain": (1, 1), "Sparse": 2, "Tubal": 1,
        "HierarchicalTucker": 1}.items()},
    "Shrinkage": (lt.Shrinkage, {"sigma": 0.1}),
    "RankSearch": (lambda **given: lt.recover(A, Y, lt.RankSearch(**given), max_epochs=2), {
        "max": RANK}),
    "TIHT at work": (lambda **given: lt.recover(A, Y, RANK, solver=lt.TIHT(**given),
                                                max_epochs=2), {"thresholding": None}),
    "StoTIHT at work": (lambda **given: lt.recover(A, Y, RANK, solver=lt.StoTIHT(**given),
                                                   max_epochs=2), {
        "thresholding": None, "block_size": 5, "sampler": None}),
    "stopping rules": (lambda rule: lt.MaxEpochs(2) | rule, {"rule": lt.ResidualBelow(0.1)}),
    "ResidualBelow": (lt.ResidualBelow, {"tol": 1e-3, "status": lt.Status.CONVERGED}),
    "ErrorBelow": (lt.ErrorBelow, {"tol": 1e-3}),
    "Stalled": (lt.Stalled, {"window": 5, "fall": 0.1}),
    "MaxEpochs": (lt.MaxEpochs, {"epochs": 5}),
    "MaxSeconds": (lt.MaxSeconds, {"seconds": 5.0}),
    "TIHT": (lt.TIHT, {"step": 0.5, "thresholding": None, "trim": None}),
    "StoTIHT": (lt.StoTIHT, {"block_size": 5, "step": 0.5, "thresholding": None}),
    "RGN": (lt.RGN, {"products": False, "starts": 1}),
    "RSGD": (lt.RSGD, {"block_size": 5, "least_squares": False}),
    "GrowingRank": (lt.GrowingRank, {}),
    "RandomRows": (lt.RandomRows, {"block_size": 5}),
    "Partition": (lt.Partition, {"block_size": 5}),
    "Shuffled": (lt.Shuffled, {"block_size": 5}),
    "KaczmarzRows": (lt.KaczmarzRows, {"block_size": 5}),
    "interval": (RESULT.interval, {"indices": [[0, 0, 0]], "level": 0.9, "method": "auto"}),
    "relative_error": (metrics.relative_error, {"X": Z, "X_true": Z}),
    "psnr": (metrics.psnr, {"X": Z, "X_true": Z, "data_range": None}),
    "trip": (theory.trip, {
        "A": A, "rank": RANK, "starts": 1, "samples": 2, "iterations": 1, "quantile": 0.9,
        "seed": 0}),
    "eta": (theory.eta, {"thresholding": lt.HOSVD(RANK), "Z": Z, "starts": 1, "seed": 0}),
    "sample_complexity": (theory.sample_complexity, {"shape": SHAPE, "rank": RANK, "delta": 0.5}),
    "phase_transition": (theory.phase_transition, {
        "operator": "gaussian", "shape": SHAPE, "rank": RANK, "measurements": [20], "trials": 1,
        "solver": "tiht", "noise": 0.0, "tol": 1e-5, "seed": 0, "folder": None, "workers": 1,
        "progress": False}),
    "TuckerRegressor": (lambda X, y, **given: TuckerRegressor(**given).fit(X, y), {
        "X": ROWS, "y": Y, "rank": RANK, "tensor_shape": None, "alpha": 0.0,
        "fit_intercept": False, "solver": "tiht", "tol": 1e-3, "max_epochs": 2,
        "random_state": 0}),
    "TuckerImputer": (lambda X, **given: TuckerImputer(**given).fit(X), {
        "X": HOLES, "rank": RANK, "tensor_shape": None, "tol": 1e-3, "max_epochs": 2}),
}  # fmt: skip
