"""Tensor algebra: pure functions of arrays of any order, with leading batch axes."""

from lowtucker.tensor.decompose import hooi, hosvd, quasi_optimality, sthosvd
from lowtucker.tensor.products import inner, mode_product, multi_mode_product, norm
from lowtucker.tensor.random import random_tucker
from lowtucker.tensor.rank import (
    Spectra,
    attainable_rank,
    degrees_of_freedom,
    multilinear_rank,
    spectra,
)
from lowtucker.tensor.tangent import TangentSpace
from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.tensor.unfolding import fold, unfold

__all__ = [
    "Spectra",
    "TangentSpace",
    "TuckerTensor",
    "attainable_rank",
    "degrees_of_freedom",
    "fold",
    "hooi",
    "hosvd",
    "inner",
    "mode_product",
    "multi_mode_product",
    "multilinear_rank",
    "norm",
    "quasi_optimality",
    "random_tucker",
    "spectra",
    "sthosvd",
    "unfold",
]
