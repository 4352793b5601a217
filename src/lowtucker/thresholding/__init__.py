"""Thresholdings: maps onto simple tensors, the step H_r of equation (3.5).

A new format is one file, with a thresholding and the iterate that it returns, and one line in
``FORMATS``, by which files know it.
"""

from lowtucker.tensor.tucker import TuckerTensor
from lowtucker.thresholding.hierarchical import HierarchicalTucker, HTTensor
from lowtucker.thresholding.protocol import Iterate, Thresholding, ThresholdingDefaults
from lowtucker.thresholding.random import random_tensor
from lowtucker.thresholding.shrinkage import Shrinkage, ShrunkTensor
from lowtucker.thresholding.sparse import RowSparse, Sparse, SparseTensor
from lowtucker.thresholding.tensor_train import TensorTrain, TTTensor
from lowtucker.thresholding.tubal import Tubal, TubalTensor
from lowtucker.thresholding.tucker import HOOI, HOSVD, STHOSVD, SeMP, TuckerTruncation

__all__ = [
    "FORMATS",
    "HOOI",
    "HOSVD",
    "STHOSVD",
    "HTTensor",
    "HierarchicalTucker",
    "Iterate",
    "RowSparse",
    "SeMP",
    "Shrinkage",
    "ShrunkTensor",
    "Sparse",
    "SparseTensor",
    "TTTensor",
    "TensorTrain",
    "Thresholding",
    "ThresholdingDefaults",
    "Tubal",
    "TubalTensor",
    "TuckerTruncation",
    "random_tensor",
]

FORMATS: dict[str, type[Iterate]] = {
    "tucker": TuckerTensor,
    "shrunk": ShrunkTensor,
    "sparse": SparseTensor,
    "train": TTTensor,
    "tubal": TubalTensor,
    "hierarchical": HTTensor,
}
