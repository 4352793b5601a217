"""Measurement operators: linear maps from tensors to measurements."""

from lowtucker.operators.adapters import LinearOperatorAdapter, as_operator, to_pylops, to_scipy
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.batched import batch
from lowtucker.operators.checks import check_adjoint, check_restriction, operator_norm
from lowtucker.operators.combined import scale, stack
from lowtucker.operators.composed import compose
from lowtucker.operators.dask import DaskOperator, from_dask
from lowtucker.operators.dense import DenseOperator
from lowtucker.operators.entries import EntriesOperator, entries
from lowtucker.operators.function import FunctionOperator
from lowtucker.operators.gaussian import gaussian
from lowtucker.operators.kronecker import KroneckerOperator, ModewiseOperator, kronecker
from lowtucker.operators.rank_one import RankOneOperator, rank_one
from lowtucker.operators.seeded import SeededGaussianOperator, seeded_gaussian
from lowtucker.operators.sparse import SparseOperator
from lowtucker.operators.stored import StoredOperator
from lowtucker.operators.traits import Traits
from lowtucker.operators.transforms import subsampled_transform

__all__ = [
    "DaskOperator",
    "DenseOperator",
    "EntriesOperator",
    "FunctionOperator",
    "KroneckerOperator",
    "LinearOperatorAdapter",
    "MeasurementOperator",
    "ModewiseOperator",
    "RankOneOperator",
    "SeededGaussianOperator",
    "SparseOperator",
    "StoredOperator",
    "Traits",
    "as_operator",
    "batch",
    "check_adjoint",
    "check_restriction",
    "compose",
    "entries",
    "from_dask",
    "gaussian",
    "kronecker",
    "operator_norm",
    "rank_one",
    "scale",
    "seeded_gaussian",
    "stack",
    "subsampled_transform",
    "to_pylops",
    "to_scipy",
]
