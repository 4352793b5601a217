"""What wrappers pass on from their inner operators: findings, isotropy, samples of entries."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker import compose, scale, stack
from lowtucker.operators.entries import unsampled
from lowtucker.operators.wrapped import RestrictedOperator
from lowtucker.solvers.auto import automatic

SHAPE = (3, 4, 2)
INDEX = np.array([[0, 3, 1], [2, 0, 0], [0, 3, 1], [1, 1, 1]])


def vector(m):
    return np.random.default_rng(m).standard_normal(m)


def test_rows_of_a_slow_operator_are_as_isotropic_as_the_operator():
    slow = lt.FunctionOperator(lambda x: 2 * x, lambda v: 2 * v, (5,), 5)
    assert RestrictedOperator(slow, slice(2)).traits.isotropic
    mixed = compose(slow, lt.gaussian(SHAPE, 5))  # noise through a second map has structure
    assert not mixed.traits.isotropic
    with pytest.warns(lt.SlowOperatorWarning):
        assert not mixed.restrict(slice(0, 2)).traits.isotropic


# Samples of entries, in all wrappings


KNOWN = np.array([[i, j, k] for i in range(3) for j in range(4) for k in range(2) if j != 2])
WRAPPED = {
    "scale": lambda A: scale(A, np.linspace(1, 2, A.m)),
    "stack": lambda A: stack([A.restrict(slice(0, 7)), A.restrict(slice(7, None))]),
    "stack of scaled": lambda A: stack(
        [A.restrict(slice(0, 7)), scale(A.restrict(slice(7, A.m)), 3)]
    ),
    "rows": lambda A: RestrictedOperator(A, slice(None)),
    "units": lambda A: A.in_units(5),
    "block": lambda A: scale(stack([A, A]), 2.0).restrict(slice(0, A.m)),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_the_warning_about_a_slice_without_samples_survives_wrapping(kind):
    A = WRAPPED[kind](lt.entries(SHAPE, KNOWN))
    (found,) = A.diagnose((1, 1, 1))
    assert (found.kind, found.numbers) == ("unsampled", {"mode": 1, "slices": (2,)})
    y = A.forward(np.ones(SHAPE))
    with pytest.warns(lt.UnderdeterminedWarning, match="Mode 1 has no samples in slice 2"):
        result = lt.recover(A, y, rank=(1, 1, 1), max_epochs=20)
    assert not result.success
    assert any("Mode 1 has no samples in slice 2" in note for note in result.notes)


def test_a_slice_is_unsampled_only_if_no_part_of_a_stack_measures_it():
    A = lt.entries(SHAPE, KNOWN)
    rest = lt.entries(SHAPE, [[0, 2, 0]])
    assert stack([A, rest]).diagnose((1, 1, 1)) == []
    (few,) = stack([A, rest]).diagnose((1, 2, 1))  # one sample, for two numbers
    assert (few.kind, few.numbers) == (
        "undersampled",
        {"mode": 1, "slices": (2,), "needed": 2},
    )
    assert stack([A, lt.gaussian(SHAPE, 2)]).diagnose((1, 1, 1)) == []
    (found,) = stack([A, scale(rest, 1.0)]).diagnose((1, 1, 1), np.arange(A.m + 1) < A.m)
    assert found.kind == "unsampled"
    zero = scale(stack([A, rest]), np.r_[np.ones(A.m), 0.0])
    assert [one.kind for one in zero.diagnose((1, 1, 1))] == ["unsampled"]
    assert [one.kind for one in stack([zero, A]).diagnose((1, 1, 1))] == ["duplicates", "unsampled"]


def test_slices_that_no_part_samples_whatever_the_parts_are():
    class Reports(lt.MeasurementOperator):
        shape, m = SHAPE, 1

        def __init__(self, slices):
            self.slices = slices

        def _forward(self, X):
            return X[0, 0, :1]

        def _adjoint(self, v):
            out = np.zeros(SHAPE)
            out[0, 0, 0] = v[0]
            return out

        def diagnose(self, rank, mask=None):
            return [unsampled(1, self.slices)]

    (found,) = stack([Reports((1, 2)), Reports((2, 3))]).diagnose((1, 1, 1))
    assert found.numbers == {"mode": 1, "slices": (2,)}
    assert stack([Reports((1,)), Reports((2,))]).diagnose((1, 1, 1)) == []


@pytest.mark.parametrize("kind", [kind for kind in WRAPPED if kind != "rows"])
def test_wrapped_samples_get_the_solver_of_plain_ones(kind):
    shape, rank = (100, 100, 100), (15, 15, 15)  # 7200 degrees of freedom: no dof^2 numbers
    index = np.random.default_rng(0).integers(0, 100, (3000, 3))
    A = lt.entries(shape, index)
    names = [solver.name for solver in automatic(lt.Problem(A, np.ones(A.m)), rank)]
    W = WRAPPED[kind](A)
    assert [one.name for one in automatic(lt.Problem(W, np.ones(W.m)), rank)] == names
    assert names == ["RCG", "RGN"]


@pytest.mark.parametrize("weights", [None, np.linspace(0, 2, 24)])
def test_scaled_samples_are_fitted_as_weighted_ones(weights):
    """To the bit: f_j X_j = y_j with w_j is X_j = y_j / f_j with w_j f_j^2."""
    index = np.argwhere(np.ones(SHAPE))
    A, X = lt.entries(SHAPE, index), lt.random_tucker(SHAPE, (2, 2, 2), seed=0)
    f = 2.0 ** (np.arange(24) % 5 - 2)
    y = A.forward(X) + 0.1 * vector(24)
    w = f**2 if weights is None else weights * f**2
    options = {"rank": (2, 2, 2), "solver": lt.ALS(), "stop": lt.MaxEpochs(4)}
    plain = lt.solve(lt.Problem(A, y, w), **options)
    scaled = lt.solve(lt.Problem(scale(A, f), f * y, weights), **options)
    np.testing.assert_array_equal(scaled.X.core, plain.X.core)
    np.testing.assert_allclose(scaled.residual, plain.residual, rtol=1e-12)


def test_samples_times_zero_do_not_count():
    index = np.argwhere(np.ones(SHAPE))
    f = np.where(np.arange(24) % 6 == 0, 0.0, 1.5)
    A, y = scale(lt.entries(SHAPE, index), f), vector(24)
    problem = lt.Problem(A, y).as_entries
    np.testing.assert_array_equal(problem.weights, f**2)
    np.testing.assert_allclose(problem.y[f > 0], y[f > 0] / 1.5)
    assert np.isfinite(problem.y).all()


def test_measurements_other_than_samples_have_no_indices():
    assert lt.Problem(lt.gaussian(SHAPE, 4), np.ones(4)).as_entries is None
    mixed = stack([lt.gaussian(SHAPE, 4), lt.entries(SHAPE, INDEX)])
    assert mixed.entry_samples() is None
    assert RestrictedOperator(mixed, slice(2)).entry_samples() is None
    assert mixed.in_units(2).entry_samples() is None
    with pytest.raises(TypeError, match="ALS is for sampled entries"):
        lt.solve(lt.Problem(mixed, np.ones(mixed.m)), rank=(1, 1, 1), solver="als")


def test_factors_of_samples_multiply():
    A = lt.entries(SHAPE, INDEX)
    _, factors = scale(scale(A, 3.0).in_units(2), np.arange(1.0, A.m + 1)).entry_samples()
    np.testing.assert_array_equal(factors, 12 * np.arange(1.0, A.m + 1))
    indices, factors = RestrictedOperator(scale(A, 3.0), [1, 0]).entry_samples()
    np.testing.assert_array_equal(indices, INDEX[[1, 0]])
    np.testing.assert_array_equal(factors, [3, 3])
