"""lowtucker: recover a low-Tucker-rank tensor from linear measurements.

Given ``y = A(X)`` and a rank, find ``X``.
"""

from typing import Any

from lowtucker import metrics
from lowtucker._array.errors import (
    CheckError,
    CheckpointWarning,
    FileFormatError,
    RankWarning,
    SlowOperatorWarning,
    UnderdeterminedWarning,
)
from lowtucker._version import __version__
from lowtucker.completion import complete
from lowtucker.operators import (
    DaskOperator,
    DenseOperator,
    EntriesOperator,
    FunctionOperator,
    KroneckerOperator,
    LinearOperatorAdapter,
    MeasurementOperator,
    ModewiseOperator,
    RankOneOperator,
    SeededGaussianOperator,
    SparseOperator,
    StoredOperator,
    Traits,
    as_operator,
    check_adjoint,
    check_restriction,
    compose,
    entries,
    from_dask,
    gaussian,
    kronecker,
    operator_norm,
    rank_one,
    scale,
    seeded_gaussian,
    stack,
    subsampled_transform,
    to_pylops,
    to_scipy,
)
from lowtucker.problem import Problem
from lowtucker.ranks import RankSearch
from lowtucker.recover import recover
from lowtucker.result import Result, load
from lowtucker.run import History, Progress, ProgressBar
from lowtucker.run.stopping import (
    ErrorBelow,
    MaxEpochs,
    MaxSeconds,
    ResidualBelow,
    Stalled,
    StoppingRule,
)
from lowtucker.solve import iterate, solve
from lowtucker.solvers import ALS, RCG, RGN, RSGD, TIHT, Solver, State, StoTIHT
from lowtucker.solvers.sampling import BlockSampler, Draw, Partition, RandomRows, Shuffled
from lowtucker.status import Status
from lowtucker.tensor import (
    Spectra,
    TangentSpace,
    TuckerTensor,
    attainable_rank,
    degrees_of_freedom,
    fold,
    hooi,
    hosvd,
    inner,
    mode_product,
    multi_mode_product,
    multilinear_rank,
    norm,
    quasi_optimality,
    random_tucker,
    spectra,
    sthosvd,
    unfold,
)
from lowtucker.thresholding import HOOI, HOSVD, STHOSVD, Thresholding

__all__ = [
    "ALS",
    "HOOI",
    "HOSVD",
    "RCG",
    "RGN",
    "RSGD",
    "STHOSVD",
    "TIHT",
    "BlockSampler",
    "CheckError",
    "CheckpointWarning",
    "DaskOperator",
    "DenseOperator",
    "Draw",
    "EntriesOperator",
    "ErrorBelow",
    "FileFormatError",
    "FunctionOperator",
    "History",
    "KroneckerOperator",
    "LinearOperatorAdapter",
    "MaxEpochs",
    "MaxSeconds",
    "MeasurementOperator",
    "ModewiseOperator",
    "Partition",
    "Problem",
    "Progress",
    "ProgressBar",
    "RandomRows",
    "RankOneOperator",
    "RankSearch",
    "RankWarning",
    "ResidualBelow",
    "Result",
    "SeededGaussianOperator",
    "Shuffled",
    "SlowOperatorWarning",
    "Solver",
    "SparseOperator",
    "Spectra",
    "Stalled",
    "State",
    "Status",
    "StoTIHT",
    "StoppingRule",
    "StoredOperator",
    "TangentSpace",
    "Thresholding",
    "Traits",
    "TuckerTensor",
    "UnderdeterminedWarning",
    "__version__",
    "as_operator",
    "attainable_rank",
    "check_adjoint",
    "check_restriction",
    "complete",
    "compose",
    "degrees_of_freedom",
    "entries",
    "fold",
    "from_dask",
    "gaussian",
    "hooi",
    "hosvd",
    "inner",
    "io",
    "iterate",
    "kronecker",
    "load",
    "metrics",
    "mode_product",
    "multi_mode_product",
    "multilinear_rank",
    "norm",
    "operator_norm",
    "quasi_optimality",
    "random_tucker",
    "rank_one",
    "recover",
    "scale",
    "seeded_gaussian",
    "solve",
    "spectra",
    "stack",
    "sthosvd",
    "stored",
    "subsampled_transform",
    "theory",
    "to_pylops",
    "to_scipy",
    "unfold",
]


def __dir__() -> list[str]:
    """Public names only."""
    return __all__


def __getattr__(name: str) -> Any:
    """Import ``io`` and ``theory`` when they are first asked for: most recoveries need neither."""
    import importlib

    if name in ("io", "theory"):
        return importlib.import_module(f"lowtucker.{name}")
    if name == "stored":
        return importlib.import_module("lowtucker.io").stored
    raise AttributeError(f"module 'lowtucker' has no attribute {name!r}")
