"""Faces for scikit-learn: tensor regression, and missing values filled by a low-rank tensor.

Needs scikit-learn: ``pip install "lowtucker[sklearn]"``. Nothing else of the package does.
"""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "lowtucker.estimators needs scikit-learn, which is not installed. "
        'Try pip install "lowtucker[sklearn]".'
    ) from error

from lowtucker.estimators.imputer import TuckerImputer
from lowtucker.estimators.regressor import TuckerRegressor

__all__ = ["TuckerImputer", "TuckerRegressor"]
