"""Rows that are far from isotropic: scaled, or replaced by singular vectors, for a better start."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.recovery import hard, precondition
from lowtucker.recovery.precondition import isotropic_rows
from lowtucker.solvers import noise
from lowtucker.solvers.rows import spread_of_rows

SHAPE, RANK, M = (10, 10, 10), (2, 2, 2), 300
SEED = (0, 0)


def rng(seed=0):
    return np.random.default_rng(seed)


def gaussian_rows(m=M, shape=SHAPE, seed=1):
    return rng(seed).standard_normal((m, int(np.prod(shape))))


def spread_out(decades, m=M, shape=SHAPE, seed=1):
    """Matrix whose singular values fall by so many decades."""
    N = int(np.prod(shape))
    U = np.linalg.qr(rng(seed).standard_normal((m, m)))[0]
    V = np.linalg.qr(rng(seed + 1).standard_normal((N, m)))[0]
    return U * np.logspace(0, -decades, m) @ V.T


def truth(seed=0, shape=SHAPE):
    return lt.random_tucker(shape, RANK, seed=seed).full()


def recovered(A, y, **settings):
    return lt.recover(A, y, RANK, shape=SHAPE, **settings)


def found(result):
    return [f for f in result.findings if f.kind == "preconditioned"]


CASES = {
    "singular values by 1e3": lambda seed: spread_out(3, seed=seed),
    "singular values by 1e4": lambda seed: spread_out(4, seed=seed),
    "singular values by 1e6": lambda seed: spread_out(6, seed=seed),
    "norms by 1e4": lambda seed: gaussian_rows(seed=seed) * np.logspace(0, -4, M)[:, None],
    "norms by 1e6": lambda seed: gaussian_rows(seed=seed) * np.logspace(0, -6, M)[:, None],
    "rows with a mean": lambda seed: gaussian_rows(seed=seed) + 3,
    "zeros and ones": lambda seed: (rng(seed).random((M, 1000)) < 0.5).astype(float),
}


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        *((name, 0.0) for name in CASES),
        *((name, 0.01) for name in CASES if "1e3" not in name and "1e4" not in name),
    ],
)
def test_anisotropic_rows_lead_to_the_global_minimum(name, noise):
    seed = 0
    X, matrix = truth(seed), CASES[name](10 * seed + 1)
    y = matrix @ X.ravel()
    y = y + noise * np.linalg.norm(y) / M**0.5 * rng(seed).standard_normal(M)
    result = recovered(matrix, y)
    if not noise:
        assert result.status is lt.Status.CONVERGED
        assert lt.metrics.relative_error(result.X, X) < 1e-5
        return
    problem = lt.Problem(lt.DenseOperator(matrix, SHAPE), y)
    near = lt.solve(problem, lt.RGN(), RANK, start=lt.hosvd(X, RANK))
    assert result.residual < 1.001 * near.residual
    assert lt.metrics.relative_error(result.X, near.X) < 1e-3


def test_what_was_done_is_said_with_its_numbers():
    X, matrix = truth(0), spread_out(4)
    result = recovered(matrix, matrix @ X.ravel(), X_true=X)
    (said,) = found(result)
    assert said.numbers["spread"] > precondition.SPREAD > said.numbers["after"]
    assert said.numbers["smallest"] == pytest.approx(1e-4)
    assert said.numbers["largest"] == pytest.approx(1.0)
    assert said.numbers["noise"] == 0
    assert said.numbers["effective"] == pytest.approx(M)
    assert "singular values (1.0e-04 to 1.0e+00) led to a better fit" in said.text
    phases = [str(phase) for phase in result.history["phase"]]
    assert any(phase.startswith("isotropic rows") for phase in phases)
    assert phases[-1].startswith("preconditioned")
    assert result.history.last["passes"] < result.passes
    assert result.error < 1e-5


def test_few_measurements_whose_restarts_use_up_the_epochs():
    X, matrix = truth(0), spread_out(4, m=110)  # two per degree of freedom
    result = recovered(matrix, matrix @ X.ravel(), max_epochs=60)
    assert result.status is lt.Status.CONVERGED
    assert lt.metrics.relative_error(result.X, X) < 1e-5


def test_isotropic_rows_and_fits_that_converged_are_left_alone(monkeypatch):
    X, matrix = truth(0), gaussian_rows()
    y = matrix @ X.ravel() + rng(5).standard_normal(M)
    result = recovered(matrix, y)
    assert not found(result)
    with monkeypatch.context() as patch:
        patch.setattr(precondition, "spread_of_rows", lambda *_: pytest.fail("it looked"))
        rows = spread_out(1)
        assert recovered(rows, rows @ X.ravel()).status is lt.Status.CONVERGED
    monkeypatch.setattr(precondition, "isotropic_rows", lambda *_: None)
    plain = recovered(matrix, y)
    np.testing.assert_array_equal(plain.X.full(), result.X.full())
    assert plain.passes == result.passes - 3  # to look at the rows


def test_i_i_d_rows_never_look_anisotropic():
    for seed in range(60):
        m, shape = [(20, (4, 4, 4)), (40, (5, 5, 6)), (120, (5, 5, 6))][seed % 3]
        draw = rng(seed).standard_normal((m, int(np.prod(shape))))
        rows = np.sign(draw) if seed % 2 else draw
        problem = lt.Problem(lt.DenseOperator(rows, shape), np.ones(m))
        assert 0.7 < spread_of_rows(problem, SEED) < 1.5


def test_the_spread_is_that_of_the_eigenvalues():
    matrix = spread_out(2, m=40, shape=(5, 5, 6)).reshape(40, 5, 5, 6)
    weights = rng(3).random(40) + 0.1
    weights[:7] = 0
    problem = lt.Problem(lt.DenseOperator(matrix), np.ones(40), weights)
    B = np.sqrt(weights[7:, None]) * matrix.reshape(40, -1)[7:]
    values = np.linalg.eigvalsh(B @ B.T)
    expected = np.mean(values**2) / np.mean(values) ** 2 / (1 + 33 / 150)
    draws = [spread_of_rows(problem, (seed, 0)) for seed in range(200)]
    assert np.median(draws) == pytest.approx(expected, rel=0.15)


KINDS = {
    "real": lambda B: (B, None),
    "complex": lambda B: (B + 1j * B[::-1, ::-1], None),
    "complex rows of real tensors": lambda B: (B + 1j * B[::-1, ::-1], float),
    "single precision": lambda B: (B.astype(np.float32), None),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("weighted", [False, True])
def test_singular_vectors_measure_the_same_tensor(kind, order, weighted):
    shape, m = (5, 4, 6), 30
    matrix, dtype = kind(spread_out(3, m, shape))
    A = lt.DenseOperator(matrix, shape, order=order, dtype=dtype)
    X = truth(1, shape).astype(A.dtype)
    X = X + 1j * truth(2, shape) if A.dtype.kind == "c" else X
    weights = np.where(np.arange(m) < 3, 0.0, rng(4).random(m) + 0.5) if weighted else None
    y = A.forward(X)
    for problem in (lt.Problem(A, y, weights), lt.Problem(A.in_units(9), 2.0**9 * y, weights)):
        made = isotropic_rows(problem, SEED)
        assert made.spreads[1] < precondition.SPREAD < made.spreads[0]
        tol = 1e-3 if A.dtype.itemsize == 4 else 1e-9
        assert float(made.problem.relative_residual(X)) < tol
        assert made.problem.tensor_dtype == problem.tensor_dtype
        rows = made.problem.A.matrix
        gram = rows @ rows.conj().T
        np.testing.assert_allclose(gram, np.eye(len(rows)), atol=1e-5)
        assert made.problem.m == problem.equations


def test_noise_is_estimated_from_the_data():
    s = np.logspace(0, -4, 400)
    for share in (0.0, 1e-3, 1e-2, 0.1):
        clean = s * rng(1).standard_normal(400)
        sigma = share * np.linalg.norm(clean) / 400**0.5
        t = clean + sigma * rng(2).standard_normal(400)
        _, noise = precondition._noise_by_likelihood(s**2, t**2)
        assert share / 2 <= noise <= 2 * share + 1e-4


def test_rows_of_different_norms_are_divided_by_them_and_not_copied():
    matrix = gaussian_rows() * np.logspace(0, -4, M)[:, None]
    A = lt.DenseOperator(matrix, SHAPE)
    weights = rng(1).random(M) + 0.5
    weights[5] = 0
    made = isotropic_rows(lt.Problem(A, A.forward(truth()), weights), SEED)
    assert made.problem.A.inner is A
    assert made.delta == 0
    np.testing.assert_array_equal(made.problem.weights, weights > 0)
    norms = made.problem.A.row_norms()[weights > 0]
    np.testing.assert_allclose(norms, 1, rtol=1e-9)
    assert float(made.problem.relative_residual(truth())) < 1e-9


def test_only_matrices_of_moderate_size_and_functions_of_small_tensors_are_decomposed(monkeypatch):
    matrix = gaussian_rows(60, (5, 5, 6)) + 3
    y = matrix @ truth(0, (5, 5, 6)).ravel()
    dense = lt.DenseOperator(matrix, (5, 5, 6))
    function = lt.FunctionOperator(
        lambda X: matrix @ X.ravel(), lambda v: (v @ matrix).reshape(5, 5, 6), (5, 5, 6), 60
    )
    scaled = lt.scale(dense, np.full(60, 2.0))
    assert isotropic_rows(lt.Problem(dense, y), SEED) is not None
    assert isotropic_rows(lt.Problem(scaled, 2 * y), SEED) is not None
    of_matrix, of_function = (isotropic_rows(lt.Problem(A, y), SEED) for A in (dense, function))
    np.testing.assert_allclose(of_function.squares, of_matrix.squares)
    monkeypatch.setattr(precondition, "FEW", 149)
    assert isotropic_rows(lt.Problem(function, y), SEED) is None
    monkeypatch.setattr(precondition, "COSTLY", 60 * 60 * 149)
    assert isotropic_rows(lt.Problem(dense, y), SEED) is None


def test_an_interruption_keeps_the_first_fit_and_a_checkpoint_resumes_bit_for_bit(tmp_path):
    X, matrix = truth(0), spread_out(4)
    y = matrix @ X.ravel()
    y = y + 0.01 * np.linalg.norm(y) / M**0.5 * rng(1).standard_normal(M)
    whole = recovered(matrix, y)
    file = tmp_path / "run.ckpt"

    def stop(progress):
        return "isotropic rows" in progress.stage

    part = recovered(matrix, y, checkpoint=file, callbacks=[stop])
    assert part.status is lt.Status.INTERRUPTED
    assert part.rank == RANK
    again = recovered(matrix, y, checkpoint=file)
    np.testing.assert_array_equal(again.X.full(), whole.X.full())
    assert again.passes == whole.passes


def test_hubers_loss_is_left_alone():
    X, matrix = truth(0), spread_out(4)
    y = matrix @ X.ravel()
    y[::20] += 5 * np.abs(y).max()
    assert not found(recovered(matrix, y, loss="huber"))


def test_noise_of_a_given_size_and_no_rank():
    """The size of the noise belongs to fits of a rank; the look at the rows has none."""
    matrix = np.logspace(0, 3, M)[:, None] * gaussian_rows()
    clean = matrix @ truth(0).ravel()
    std = 0.1 * float(np.std(clean))
    result = lt.recover(matrix, clean + std * rng(1).standard_normal(M), shape=SHAPE, noise_std=std)
    assert found(result)
    assert np.isfinite(result.residual)


@pytest.mark.parametrize("signal", [1.0, 0.0])
def test_diagnosis_forms_no_large_tensor(monkeypatch, signal):
    """Samples with noise, and noise alone: no adjoint and no random tensor is formed."""
    for module in (precondition, hard, noise):
        monkeypatch.setattr(module, "FULL", 1000)
    shape = (20, 19, 18)
    index = rng(0).integers(0, shape, (2000, 3))
    values = lt.random_tucker(shape, (1, 1, 1), seed=0).entries(index)
    values = signal * values + 0.05 * np.std(values) * rng(1).standard_normal(2000)
    A = lt.entries(shape, index)
    for name in ("_adjoint", "_forward"):
        monkeypatch.setattr(type(A), name, lambda *_: pytest.fail("a tensor of the full size"))
    result = lt.recover(A, values, (1, 1, 1), max_epochs=60)
    assert result.success == (signal > 0)
