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
from lowtucker.operators.function import FunctionOperator
from lowtucker.operators.gaussian import gaussian

__all__ = [
    "DenseOperator",
    "FunctionOperator",
    "LinearOperatorAdapter",
    "MeasurementOperator",
    "SparseOperator",
    "as_operator",
    "check_adjoint",
    "check_restriction",
    "gaussian",
    "operator_norm",
    "to_scipy",
]
