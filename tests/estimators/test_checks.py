"""All estimator checks of scikit-learn."""

from __future__ import annotations

import pytest

pytest.importorskip("sklearn")
from sklearn.utils.estimator_checks import parametrize_with_checks

from lowtucker.estimators import TuckerImputer, TuckerRegressor


@parametrize_with_checks([
    TuckerRegressor(),
    TuckerRegressor(alpha=0.1),
    TuckerImputer(max_epochs=5),
])  # fmt: skip
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([TuckerImputer()])
def test_scikit_learn_check_without_any_setting(estimator, check):
    check(estimator)
