"""Estimators with the scikit-learn interface: tensor regression and low-rank imputation.

Requires scikit-learn: ``pip install "lowtucker[sklearn]"``. The rest of the package does not.
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
