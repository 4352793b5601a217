"""Measurement operators: linear maps from tensors to measurements."""

from lowtucker.operators.adapters import (
    LinearOperatorAdapter,
    SparseOperator,
    as_operator,
    to_scipy,
)
from lowtucker.operators.base import MeasurementOperator
from lowtucker.operators.checks import check_adjoint, check_restriction, operator_norm
from lowtucker.operators.dense import DenseOperator
from lowtucker.operators.entries import EntriesOperator, entries
from lowtucker.operators.function import FunctionOperator
from lowtucker.operators.gaussian import gaussian
from lowtucker.operators.rank_one import RankOneOperator, rank_one

__all__ = [
    "DenseOperator",
    "EntriesOperator",
    "FunctionOperator",
    "LinearOperatorAdapter",
    "MeasurementOperator",
    "RankOneOperator",
    "SparseOperator",
    "as_operator",
    "check_adjoint",
    "check_restriction",
    "entries",
    "gaussian",
    "operator_norm",
    "rank_one",
    "to_scipy",
]
