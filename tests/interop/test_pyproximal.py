"""Thresholdings as projections of PyProximal: its solvers run with them, and take our steps."""

from __future__ import annotations

import sys

import numpy as np
import pyproximal
import pytest
from pyproximal.optimization.primal import ADMM, HQS, ProximalGradient

import lowtucker as lt

SHAPE, RANK, M, N = (6, 5, 4), (2, 2, 1), 256, 120
THRESHOLDINGS = {
    "hosvd": lt.HOSVD(RANK),
    "sthosvd": lt.STHOSVD(RANK, mode_order=(2, 0, 1)),
    "hooi": lt.HOOI(RANK, max_iterations=5),
}
X_TRUE = lt.random_tucker(SHAPE, RANK, seed=0)


@pytest.fixture
def A():
    return lt.gaussian(SHAPE, M, seed=1)


@pytest.fixture(params=THRESHOLDINGS)
def threshold(request):
    return THRESHOLDINGS[request.param]


@pytest.fixture
def misfit(A):
    return pyproximal.L2(Op=lt.to_pylops(A), b=A.forward(X_TRUE), niter=50)


def error_of(x):
    return lt.metrics.relative_error(x.reshape(SHAPE), X_TRUE)


def test_the_projection_does_not_depend_on_tau(threshold, rng):
    x = rng.standard_normal(N)
    g = threshold.to_pyproximal(SHAPE)
    assert isinstance(g, pyproximal.ProxOperator)
    expected = threshold(x.reshape(SHAPE)).full().ravel()
    for tau in (1e-3, 1.0, 50, np.float32(2)):
        np.testing.assert_array_equal(g.prox(x, tau), expected)
    np.testing.assert_array_equal(g.prox(x.reshape(SHAPE), 1.0), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_a_call_returns_whether_the_rank_is_low_enough(threshold, dtype, rng):
    x = (rng.standard_normal(N) * (1 if dtype[0] == "f" else 1 + 1j)).astype(dtype)
    g = threshold.to_pyproximal(SHAPE)
    projected = g.prox(x, 1.0)
    assert projected.dtype == dtype
    assert g(x) is False
    assert g(projected) is True
    assert g(np.zeros(N, dtype)) is True
    lower = lt.HOSVD((1, 1, 1))(x.reshape(SHAPE)).full().ravel()
    assert g(lower) is True
    assert g(lower + 1e-3 * x) is False


def test_the_dual_satisfies_moreaus_identity(threshold, rng):
    x = rng.standard_normal(N)
    g = threshold.to_pyproximal(SHAPE)
    for tau in (0.5, 3.0):
        np.testing.assert_allclose(g.prox(x, tau) + tau * g.proxdual(x / tau, 1 / tau), x)


@pytest.mark.parametrize("step", [0.5, 0.25])
def test_proximal_gradient_takes_the_steps_of_tiht(A, threshold, misfit, step):
    """PyProximal's f is not a mean: its tau is step / m. It rounds tau to single precision."""
    theirs, ours = [], []
    ProximalGradient(
        misfit, threshold.to_pyproximal(SHAPE), np.zeros(N), tau=step / M, niter=25,
        callback=lambda x: theirs.append(x.copy()),
    )  # fmt: skip
    lt.solve(
        lt.Problem(A, A.forward(X_TRUE)), lt.TIHT(step=step, thresholding=threshold), RANK,
        start=np.zeros(SHAPE), stop=lt.MaxEpochs(25),
        callbacks=[lambda progress: ours.append(progress.state.X.full().ravel())],
    )  # fmt: skip
    assert len(theirs) == len(ours) == 25
    assert error_of(theirs[-1]) < 0.1 * error_of(theirs[0])
    for x, y in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-14)


SOLVERS = {
    "proximal gradient": lambda f, g: ProximalGradient(f, g, np.zeros(N), tau=0.6 / M, niter=60),
    "with backtracking": lambda f, g: ProximalGradient(f, g, np.zeros(N), niter=60),
    "accelerated": lambda f, g: ProximalGradient(
        f, g, np.zeros(N), tau=0.3 / M, niter=60, acceleration="fista", tol=1e-12
    ),
    "admm": lambda f, g: ADMM(f, g, np.zeros(N), tau=0.01, niter=60)[1],
    "half-quadratic": lambda f, g: HQS(f, g, np.zeros(N), tau=1.0, niter=60)[1],
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_of_pyproximal_recover(solver, threshold, misfit):
    x = SOLVERS[solver](misfit, threshold.to_pyproximal(SHAPE))
    assert x.shape == (N,)
    assert error_of(x) < 1e-3
    assert threshold.to_pyproximal(SHAPE)(x)


def test_complex_tensors_are_recovered():
    rng = np.random.default_rng(3)
    A = lt.DenseOperator(rng.standard_normal((M, N)) + 1j * rng.standard_normal((M, N)), SHAPE)
    X = X_TRUE * (1 + 2j)
    f = pyproximal.L2(Op=lt.to_pylops(A), b=A.forward(X))
    g = lt.HOSVD(RANK).to_pyproximal(SHAPE)
    x = ProximalGradient(f, g, np.zeros(N, complex), tau=0.3 / M, niter=60)
    assert lt.metrics.relative_error(x.reshape(SHAPE), X) < 1e-3


BAD = {
    "tau": (lambda g: g.prox(np.zeros(N), 0.0), "tau must be positive, got 0.0"),
    "nan": (lambda g: g.prox(np.zeros(N), np.nan), "tau must be positive, got nan"),
    "length": (
        lambda g: g.prox(np.zeros(N - 1), 1.0),
        r"vector of length 120.*\(119,\)",
    ),
    "shape": (lambda g: g(np.zeros((5, 6, 4))), r"for tensors of shape \(6, 5, 4\); got shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_refused(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call(lt.HOSVD(RANK).to_pyproximal(SHAPE))


def test_a_shape_that_the_rank_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"rank.*5"):
        lt.HOSVD((4, 4, 5)).to_pyproximal(SHAPE)
    with pytest.raises(TypeError, match=r"shape must have one entry per mode, got the number 120"):
        lt.HOSVD(RANK).to_pyproximal(N)


def test_without_pyproximal_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyproximal", None)
    with pytest.raises(ImportError, match=r"needs PyProximal.*pip install pyproximal"):
        lt.HOSVD(RANK).to_pyproximal(SHAPE)
