"""lowtucker: recover a low-Tucker-rank tensor from linear measurements.

Given ``y = A(X)`` and a rank, find ``X``.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from lowtucker._version import __version__

if TYPE_CHECKING:
    from lowtucker import datasets, io, metrics, theory
    from lowtucker._array.errors import (
        CheckError,
        CheckpointWarning,
        FileFormatError,
        ModelWarning,
        OperatorWarning,
        RankWarning,
        SlowOperatorWarning,
        UnderdeterminedWarning,
    )
    from lowtucker.io import stored
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
        batch,
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
    from lowtucker.recovery import (
        FormatComparison,
        RankSearch,
        compare,
        complete,
        iterate,
        recover,
        solve,
    )
    from lowtucker.run import History, Progress, ProgressBar
    from lowtucker.run.result import Result, load
    from lowtucker.run.stopping import (
        ErrorBelow,
        MaxEpochs,
        MaxSeconds,
        ResidualBelow,
        Stalled,
        StoppingRule,
    )
    from lowtucker.solvers import (
        ALS,
        AMP,
        RCG,
        RGN,
        RSGD,
        TIHT,
        Annealing,
        GrowingRank,
        NuclearNorm,
        Solver,
        State,
        StoGradMP,
        StoTIHT,
    )
    from lowtucker.solvers.sampling import (
        BlockSampler,
        Draw,
        KaczmarzRows,
        Partition,
        RandomRows,
        Shuffled,
    )
    from lowtucker.status import Finding, Status
    from lowtucker.streams import Online
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
    from lowtucker.thresholding import (
        HOOI,
        HOSVD,
        STHOSVD,
        HierarchicalTucker,
        HTTensor,
        RowSparse,
        SeMP,
        Shrinkage,
        ShrunkTensor,
        Sparse,
        SparseTensor,
        TensorTrain,
        Thresholding,
        TTTensor,
        Tubal,
        TubalTensor,
        random_tensor,
    )
    from lowtucker.uncertainty import Calibration, Functional, Uncertainty

__all__ = [
    "ALS",
    "AMP",
    "HOOI",
    "HOSVD",
    "RCG",
    "RGN",
    "RSGD",
    "STHOSVD",
    "TIHT",
    "Annealing",
    "BlockSampler",
    "Calibration",
    "CheckError",
    "CheckpointWarning",
    "DaskOperator",
    "DenseOperator",
    "Draw",
    "EntriesOperator",
    "ErrorBelow",
    "FileFormatError",
    "Finding",
    "FormatComparison",
    "FunctionOperator",
    "Functional",
    "GrowingRank",
    "HTTensor",
    "HierarchicalTucker",
    "History",
    "KaczmarzRows",
    "KroneckerOperator",
    "LinearOperatorAdapter",
    "MaxEpochs",
    "MaxSeconds",
    "MeasurementOperator",
    "ModelWarning",
    "ModewiseOperator",
    "NuclearNorm",
    "Online",
    "OperatorWarning",
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
    "RowSparse",
    "SeMP",
    "SeededGaussianOperator",
    "Shrinkage",
    "ShrunkTensor",
    "Shuffled",
    "SlowOperatorWarning",
    "Solver",
    "Sparse",
    "SparseOperator",
    "SparseTensor",
    "Spectra",
    "Stalled",
    "State",
    "Status",
    "StoGradMP",
    "StoTIHT",
    "StoppingRule",
    "StoredOperator",
    "TTTensor",
    "TangentSpace",
    "TensorTrain",
    "Thresholding",
    "Traits",
    "Tubal",
    "TubalTensor",
    "TuckerTensor",
    "Uncertainty",
    "UnderdeterminedWarning",
    "__version__",
    "as_operator",
    "attainable_rank",
    "batch",
    "check_adjoint",
    "check_restriction",
    "compare",
    "complete",
    "compose",
    "datasets",
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
    "random_tensor",
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

# Names load when they are first used. A new one is added here, to `__all__` and to the imports
# above: `tests/test_import.py` compares the three.
# fmt: off
_HOME = {
    name: module
    for module, names in {
        "_array.errors": [
            "CheckError", "CheckpointWarning", "FileFormatError", "ModelWarning",
            "OperatorWarning", "RankWarning", "SlowOperatorWarning", "UnderdeterminedWarning",
        ],
        "io": ["stored"],
        "operators": [
            "DaskOperator", "DenseOperator", "EntriesOperator", "FunctionOperator",
            "KroneckerOperator", "LinearOperatorAdapter", "MeasurementOperator", "ModewiseOperator",
            "RankOneOperator", "SeededGaussianOperator", "SparseOperator", "StoredOperator",
            "Traits", "as_operator", "batch", "check_adjoint", "check_restriction", "compose",
            "entries", "from_dask", "gaussian", "kronecker", "operator_norm", "rank_one", "scale",
            "seeded_gaussian", "stack", "subsampled_transform", "to_pylops", "to_scipy",
        ],
        "problem": ["Problem"],
        "recovery": [
            "FormatComparison", "RankSearch", "compare", "complete", "iterate", "recover", "solve",
        ],
        "run": ["History", "Progress", "ProgressBar"],
        "run.result": ["Result", "load"],
        "run.stopping": [
            "ErrorBelow", "MaxEpochs", "MaxSeconds", "ResidualBelow", "Stalled", "StoppingRule",
        ],
        "solvers": [
            "ALS", "AMP", "RCG", "RGN", "RSGD", "TIHT", "Annealing", "GrowingRank", "NuclearNorm",
            "Solver", "State", "StoGradMP", "StoTIHT",
        ],
        "solvers.sampling": [
            "BlockSampler",
            "Draw",
            "KaczmarzRows",
            "Partition",
            "RandomRows",
            "Shuffled",
        ],
        "status": ["Finding", "Status"],
        "streams": ["Online"],
        "tensor": [
            "Spectra", "TangentSpace", "TuckerTensor", "attainable_rank", "degrees_of_freedom",
            "fold", "hooi", "hosvd", "inner", "mode_product", "multi_mode_product",
            "multilinear_rank", "norm", "quasi_optimality", "random_tucker", "spectra", "sthosvd",
            "unfold",
        ],
        "thresholding": [
            "HOOI", "HOSVD", "STHOSVD", "HTTensor", "HierarchicalTucker", "RowSparse", "SeMP",
            "Shrinkage", "ShrunkTensor", "Sparse", "SparseTensor", "TTTensor", "TensorTrain",
            "Thresholding", "Tubal", "TubalTensor", "random_tensor",
        ],
        "uncertainty": ["Calibration", "Functional", "Uncertainty"],
    }.items()
    for name in names
}
# fmt: on
# Parts that need no import of their own: `lowtucker.io` and so on
_PARTS = (
    "datasets",
    "estimators",
    "io",
    "metrics",
    "operators",
    "run",
    "solvers",
    "streams",
    "tensor",
    "theory",
    "thresholding",
)


def __dir__() -> list[str]:
    """Public names only."""
    return __all__


if not TYPE_CHECKING:  # type checkers see the imports above, and report names that do not exist

    def __getattr__(name: str) -> object:
        """Import what a name needs, and keep it: the next access is a plain one (PEP 562)."""
        if name in _PARTS:
            return import_module(f"lowtucker.{name}")
        if name not in _HOME:
            raise AttributeError(
                f"module 'lowtucker' has no attribute {name!r}; dir(lowtucker) lists the public "
                "names",
                name=name,
                obj=sys.modules[__name__],
            )
        value = getattr(import_module(f"lowtucker.{_HOME[name]}"), name)
        return globals().setdefault(name, value)
