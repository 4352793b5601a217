"""What must not pass silently: Ctrl-C, masked arrays, settings that change in between."""

from __future__ import annotations

import os
import signal
import sys
import threading

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.estimators import TuckerImputer, TuckerRegressor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 4, 4, 3))
Y = np.tensordot(X, lt.random_tucker((4, 4, 3), (1, 1, 1), seed=0).full(), 3)
Y = Y + 0.3 * RNG.standard_normal(120)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent another way")
@pytest.mark.parametrize("estimator", [TuckerRegressor(), TuckerImputer()], ids=["fit", "fill"])
def test_ctrl_c_ends_a_fit(estimator):
    """A rank by half the folds would look like a result."""
    holes = np.where(RNG.random(X.shape) < 0.3, np.nan, X)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - wherever it is
        timer.start()
        for _ in range(10_000):
            estimator.fit(holes if isinstance(estimator, TuckerImputer) else X, Y)
    timer.join()


@pytest.mark.parametrize("estimator", [TuckerRegressor(), TuckerImputer()], ids=["fit", "fill"])
def test_masked_entries_are_not_taken_for_data(estimator):
    masked = np.ma.masked_array(np.where(X > 2, 999.0, X), X > 2)
    with pytest.raises(TypeError, match=r"masked array.*X\.filled\(numpy\.nan\)"):
        estimator.fit(masked, Y)
    estimator.fit(np.ma.masked_array(X), Y)  # nothing is masked


@pytest.mark.parametrize(("first", "then"), [((1, 1, 1), "auto"), ("auto", (1, 1, 1))])
def test_a_rank_that_changes_between_batches_is_refused(first, then):
    model = TuckerRegressor(first).partial_fit(X[:60], Y[:60])
    with pytest.raises(ValueError, match="was changed since the first call of partial_fit"):
        model.set_params(rank=then).partial_fit(X[60:], Y[60:])


def test_too_few_entries_for_a_given_rank_warn():
    few = np.where(RNG.random(X.shape) < 0.95, np.nan, X)
    with pytest.warns(lt.UnderdeterminedWarning, match=r"entries of X are known, fewer than the"):
        TuckerImputer(rank=(4, 3, 3, 3), max_epochs=5).fit(few)
