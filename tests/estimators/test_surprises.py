"""Ctrl-C, masked arrays and changed settings must raise."""

from __future__ import annotations

import signal
import sys

import numpy as np
import pytest

import lowtucker as lt
from lowtucker._array import linalg
from lowtucker.estimators import TuckerImputer, TuckerRegressor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3, 3, 2))
Y = np.tensordot(X, lt.random_tucker((3, 3, 2), (1, 1, 1), seed=0).full(), 3)
Y = Y + 0.3 * RNG.standard_normal(60)


@pytest.fixture
def ctrl_c():
    """Default Ctrl-C handler, which background scripts may have disabled."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ on Windows")
@pytest.mark.parametrize("estimator", [TuckerRegressor(), TuckerImputer()], ids=["fit", "fill"])
@pytest.mark.parametrize("call", [1, 20, 100])
def test_ctrl_c_ends_a_fit(monkeypatch, ctrl_c, estimator, call):
    """A rank from half of the folds must not be returned."""
    holes = np.where(np.random.default_rng(1).random(X.shape) < 0.3, np.nan, X)
    calls, decomposed = [], linalg.namespace

    def pressed(*arguments):
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return decomposed(*arguments)

    monkeypatch.setattr(linalg, "namespace", pressed)  # each decomposition calls it
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(holes if isinstance(estimator, TuckerImputer) else X, Y)
    assert len(calls) == call


@pytest.mark.parametrize(
    "estimator", [TuckerRegressor((1, 1, 1)), TuckerImputer((1, 1, 1, 1))], ids=["fit", "fill"]
)
def test_masked_entries_are_not_used_as_data(estimator):
    masked = np.ma.masked_array(np.where(X > 2, 999.0, X), X > 2)
    with pytest.raises(TypeError, match=r"masked array.*X\.filled\(numpy\.nan\)"):
        estimator.fit(masked, Y)
    estimator.fit(np.ma.masked_array(X), Y)  # nothing is masked


@pytest.mark.parametrize(("first", "then"), [((1, 1, 1), "auto"), ("auto", (1, 1, 1))])
def test_rank_that_changes_between_batches_is_rejected(first, then):
    model = TuckerRegressor(first).partial_fit(X[:25], Y[:25])
    with pytest.raises(ValueError, match="was changed since the first call of partial_fit"):
        model.set_params(rank=then).partial_fit(X[40:], Y[40:])


def test_too_few_entries_for_a_given_rank_warn():
    few = np.where(np.random.default_rng(1).random(X.shape) < 0.95, np.nan, X)
    with pytest.warns(lt.UnderdeterminedWarning, match=r"entries of X are known, fewer than the"):
        TuckerImputer(rank=(4, 3, 3, 2), max_epochs=5).fit(few)
