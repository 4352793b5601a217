"""When a decomposition does not converge, another is used; no run ends with a traceback."""

from __future__ import annotations

import ast
import functools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse.linalg

import lowtucker as lt
from lowtucker._array import linalg as _linalg
from lowtucker.estimators import TuckerImputer, TuckerRegressor
from lowtucker.metrics import relative_error
from lowtucker.operators import checks
from matrices import random_sparse

SHAPE, RANK = (6, 5, 4), (1, 2, 2)
X_TRUE = lt.random_tucker(SHAPE, RANK, seed=0)
SOURCE = Path(lt.__file__).parent
NAMES = ["svd", "svdvals", "eigh", "eigvalsh", "solve", "inv", "qr"]


def draws(seed=0):
    return np.random.default_rng(seed)


def square(n):
    """A matrix that is far from singular."""
    return np.eye(n) + 0.3 * draws(n).standard_normal((n, n)) / n**0.5


OPERATORS = {
    "dense": lambda: lt.gaussian(SHAPE, m=240, seed=1),
    "entries": lambda: lt.entries(SHAPE, np.argwhere(draws().random(SHAPE) < 0.7)),
    "kronecker": lambda: lt.kronecker([square(n) for n in SHAPE]),
    "fourier": lambda: lt.subsampled_transform(SHAPE, 55, "fft", signs=False, seed=1),
    "sparse": lambda: lt.as_operator(random_sparse((100, 120), 1).tocsr(), SHAPE),
}
RSGD = lt.RSGD(block_size=60)
RUNS = [
    ("dense", "auto"),
    ("dense", "tiht"),
    ("dense", "stotiht"),
    ("dense", RSGD),
    ("dense", "rgn"),
    ("dense", lt.RGN(products=True)),
    ("dense", "rcg"),
    ("entries", "auto"),
    ("entries", "als"),
    ("kronecker", "auto"),
    ("fourier", "auto"),
    ("sparse", "auto"),
]
IDS = [f"{operator}-{solver}" for operator, solver in RUNS]


def recovered(operator, solver, epochs=300):
    A = OPERATORS[operator]()
    return lt.recover(A, A.forward(X_TRUE), RANK, solver=solver, max_epochs=epochs, seed=3)


def solved(operator, solver):
    """The run alone, without the verdicts of recover."""
    A = OPERATORS[operator]()
    return lt.solve(lt.Problem(A, A.forward(X_TRUE)), solver, RANK, seed=3)


def fallbacks_of(result):
    """Rows of the history that name another algorithm."""
    return [phase for phase in result.history["phase"] if " by " in phase]


def fail(monkeypatch, where, name, calls=None):
    """Let a function fail, always or at some of its calls; the count of calls is returned."""
    real, count = getattr(where, name), [0]

    def failing(*args, **options):
        count[0] += 1
        if calls is None or count[0] in calls:
            raise np.linalg.LinAlgError(f"injected: {name} did not converge")
        return real(*args, **options)

    monkeypatch.setattr(where, name, failing)
    return count


@functools.cache
def undisturbed(operator, solver):
    """A recovery where nothing fails, and the decompositions that it and its run alone call."""
    with pytest.MonkeyPatch.context() as patch:
        counts = {name: fail(patch, np.linalg, name, calls=()) for name in NAMES}
        result, run = recovered(operator, solver), solved(operator, solver)
    assert fallbacks_of(result) == fallbacks_of(run) == []
    return result, {name for name, count in counts.items() if count[0]}


# The functions themselves, against what NumPy gives where nothing fails


def matrices(dtype):
    numbers = draws(2).standard_normal((2, 3, 5, 4))
    batch = numbers[0] + 1j * numbers[1] if np.dtype(dtype).kind == "c" else numbers[0]
    batch = batch.astype(dtype)
    batch[2, :, 3] = batch[2, :, 0]  # of less than full rank
    return batch


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("tall", [True, False])
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("also", [False, True], ids=["gesvd", "gram"])
def test_svd_falls_back_to_another_algorithm(monkeypatch, dtype, tall, full, also):
    M = matrices(dtype)
    M = M if tall else np.conj(np.swapaxes(M, -1, -2))
    expected = np.linalg.svd(M, full_matrices=full)
    fail(monkeypatch, np.linalg, "svd")
    if also:
        fail(monkeypatch, scipy.linalg, "svd")
    with _linalg.fallbacks() as used:
        U, s, Vh = _linalg.svd(M, full_matrices=full)
    assert [text for text in used if "svd" in text] == 3 * [
        "svd by its gram" if also else "svd by gesvd"
    ]
    assert [part.shape for part in (U, s, Vh)] == [part.shape for part in expected]
    assert [part.dtype for part in (U, s, Vh)] == [part.dtype for part in expected]
    eps = np.finfo(dtype).eps
    # the gram has half the digits of singular values that are small
    np.testing.assert_allclose(s, expected[1], atol=(eps**0.5 if also else 30 * eps) * s.max())
    q = s.shape[-1]
    np.testing.assert_allclose((U[..., :q] * s[..., None, :]) @ Vh[..., :q, :], M, atol=100 * eps)
    for V in (np.conj(np.swapaxes(U, -1, -2)), Vh):
        unit = np.broadcast_to(np.eye(V.shape[-2]), (3, V.shape[-2], V.shape[-2]))
        np.testing.assert_allclose(V @ np.conj(np.swapaxes(V, -1, -2)), unit, atol=100 * eps)


def test_the_gram_matrix_gives_all_singular_values(monkeypatch):
    M = matrices(float)[0]
    expected = np.linalg.svdvals(M)
    fail(monkeypatch, np.linalg, "svdvals")
    np.testing.assert_allclose(_linalg.svdvals(M), expected, rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_svd_falls_back_at_any_scale(monkeypatch, scale):
    M = matrices(float)[0] * scale
    expected = np.linalg.svdvals(M / scale)
    fail(monkeypatch, np.linalg, "svd")
    fail(monkeypatch, scipy.linalg, "svd")
    np.testing.assert_allclose(_linalg.svd(M)[1] / scale, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("drivers", [("ev",), ("ev", "evr")])
def test_eigh_falls_back_to_another_driver(monkeypatch, dtype, drivers):
    M = matrices(dtype)
    M = M @ np.conj(np.swapaxes(M, -1, -2))
    expected = np.linalg.eigvalsh(M)
    real = scipy.linalg.eigh

    def eigh(matrix, driver, check_finite):
        if driver != drivers[-1]:
            raise np.linalg.LinAlgError("injected")
        return real(matrix, driver=driver, check_finite=check_finite)

    for name in ("eigh", "eigvalsh"):
        fail(monkeypatch, np.linalg, name)
    monkeypatch.setattr(scipy.linalg, "eigh", eigh)
    with _linalg.fallbacks() as used:
        values, vectors = _linalg.eigh(M)
        np.testing.assert_array_equal(_linalg.eigvalsh(M), values)
    assert used == 6 * [f"eigh by {drivers[-1]}"]
    close = 50 * np.finfo(dtype).eps * np.abs(expected).max()
    assert values.dtype == expected.dtype
    assert vectors.dtype == M.dtype
    np.testing.assert_allclose(values, expected, atol=close)
    np.testing.assert_allclose(M @ vectors, vectors * values[..., None, :], atol=close)


@pytest.mark.parametrize("columns", [(), (2,)])
def test_solve_falls_back_to_least_squares(monkeypatch, columns):
    M, right = square(5), draws(3).standard_normal((5, *columns))
    expected = np.linalg.solve(M, right)
    fail(monkeypatch, np.linalg, "solve")
    with _linalg.fallbacks() as used:
        np.testing.assert_allclose(_linalg.solve(M, right), expected, rtol=1e-12)
    assert used == ["solve by gelsy"]


def test_solve_of_a_singular_matrix_is_the_smallest_solution():
    M = np.diag([2.0, 0.0, 1.0])
    np.testing.assert_allclose(_linalg.solve(M, np.array([4.0, 0.0, 3.0])), [2, 0, 3])
    batch = np.stack([M, np.eye(3)])
    x = _linalg.solve(batch, np.ones((2, 3, 1)))
    np.testing.assert_allclose(x[..., 0], [[0.5, 0, 1], [1, 1, 1]])


def test_inverse_and_qr_fall_back(monkeypatch):
    M, tall = square(4), matrices(float)
    for name in ("inv", "qr"):
        fail(monkeypatch, np.linalg, name)
    np.testing.assert_allclose(_linalg.inv(M) @ M, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(_linalg.inv(np.diag([2.0, 0.0])), np.diag([0.5, 0.0]))
    Q, R = _linalg.qr(tall)
    assert (Q.shape, R.shape) == ((3, 5, 4), (3, 4, 4))
    np.testing.assert_allclose(Q @ R, tall, atol=1e-12)
    np.testing.assert_allclose(np.swapaxes(Q, 1, 2) @ Q, np.stack(3 * [np.eye(4)]), atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite_has_no_fallback(monkeypatch, bad):
    M = square(3)
    M[1, 1] = bad
    for name in NAMES:
        fail(monkeypatch, np.linalg, name)
        arguments = (M, np.ones(3)) if name == "solve" else (M,)
        with (
            _linalg.fallbacks() as used,
            pytest.raises(np.linalg.LinAlgError, match="NaN or infinite"),
        ):
            getattr(_linalg, name)(*arguments)
        assert used == []
    with pytest.raises(np.linalg.LinAlgError, match="NaN or infinite"):
        _linalg.solve(square(3), M[:, 1])


@pytest.mark.parametrize("name", ["svd", "svdvals", "eigh", "eigvalsh", "solve", "inv", "qr"])
def test_other_errors_are_not_swallowed(name, monkeypatch):
    def out_of_memory(*args, **kwargs):
        raise RuntimeError("memory")

    monkeypatch.setattr(np.linalg, name, out_of_memory)
    with pytest.raises(RuntimeError, match="memory"):
        getattr(_linalg, name)(*(square(2), np.ones(2))[: 1 + (name == "solve")])


def test_fallbacks_keep_the_array_kind(kind, monkeypatch):
    M = kind(square(4))
    expected = np.linalg.svdvals(square(4))
    xp = _linalg.namespace(M)
    fail(monkeypatch, xp.linalg, "svd")
    with _linalg.fallbacks() as used:
        U, s, _ = _linalg.svd(M)
    assert used == ["svd by gesvd"]
    assert kind.owns(U)
    assert kind.owns(s)
    np.testing.assert_allclose(np.asarray(s), expected, rtol=1e-12)


def test_torch_has_an_error_of_its_own():
    torch = pytest.importorskip("torch")
    with _linalg.fallbacks() as used:
        x = _linalg.solve(torch.zeros((2, 2), dtype=torch.float64), torch.ones(2).double())
    assert used == ["solve by gelsy"]
    assert x.tolist() == [0.0, 0.0]


def test_lists_of_fallbacks_do_not_mix(monkeypatch):
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    barrier = Barrier(2)

    def work(times):
        with _linalg.fallbacks() as used:
            barrier.wait()
            for _ in range(times):
                _linalg.solve(np.zeros((2, 2)), np.ones(2))
            barrier.wait()
        return len(used)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, [1, 5])) == [1, 5]
    with _linalg.fallbacks() as outer:
        with _linalg.fallbacks() as inner:
            _linalg.solve(np.zeros((2, 2)), np.ones(2))
        _linalg.note_fallback("mine")
    assert (outer, inner) == (["mine"], ["solve by gelsy"])
    _linalg.note_fallback("nobody listens")


# Every place that calls them


def calls_in_the_source():
    """(module, function) of every decomposition by a function of _linalg."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        mine = {
            name.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module == "lowtucker._array.linalg"
            for name in node.names
        }
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    called = isinstance(node, ast.Call) and getattr(node.func, "id", "")
                    if called in mine & set(NAMES):
                        found.add((path.relative_to(SOURCE).as_posix(), function.name))
    return found


# Not reached by recover: makers of test tensors, checks, theory, and what users call themselves
APART = {
    ("tensor/random.py", "random_tucker"),
    ("operators/checks.py", "operator_norm"),
    ("operators/kronecker.py", "_row_norms"),
    ("theory/isometry.py", "_from_gram"),
}


def sketches():
    """Stack of mode-wise sketches that leave out one mode each."""
    shape = X_TRUE.shape
    parts = []
    for k in range(len(shape)):
        rows = [n if j == k else min(n, 4) for j, n in enumerate(shape)]
        parts.append(lt.kronecker([
            np.eye(n) if j == k else draws(j + 10 * k).standard_normal((rows[j], n))
            for j, n in enumerate(shape)
        ]))  # fmt: skip
    return lt.stack(parts)


def approximated(m):
    """Approximation of a tensor with 336 entries whose spectra decay."""
    decays = [1 / np.arange(1, n + 1) ** 1.5 for n in (8, 7, 6)]
    X = draws(7).standard_normal((8, 7, 6)) * np.einsum("i,j,k->ijk", *decays)
    A = lt.gaussian(X.shape, m, seed=1)
    return lt.recover(A, A.forward(X) + 0.01 * draws(8).standard_normal(m))


@pytest.mark.parametrize("m", [pytest.param(200, marks=pytest.mark.slow), 400])
@pytest.mark.parametrize("where", [(np.linalg,), (np.linalg, scipy.linalg)], ids=["one", "both"])
def test_an_approximation_survives_a_failure(monkeypatch, where, m):
    usual = approximated(m)
    assert usual.status is lt.Status.APPROXIMATED
    for module in where:
        fail(monkeypatch, module, "eigvalsh")
    again = approximated(m)
    assert again.status is usual.status
    np.testing.assert_allclose(again.X.full(), usual.X.full(), atol=1e-8)


def test_every_call_is_reached_by_these_runs(monkeypatch):
    """So the tests below make each of them fail."""
    reached, real = set(), _linalg.namespace

    def spy(*args):
        code = sys._getframe(2).f_code
        if code.co_name in ("<listcomp>", "<genexpr>"):
            code = sys._getframe(3).f_code
        reached.add((Path(code.co_filename).relative_to(SOURCE).as_posix(), code.co_name))
        return real(*args)

    monkeypatch.setattr(_linalg, "namespace", spy)
    for operator, solver in RUNS:
        recovered(operator, solver)
    A = OPERATORS["dense"]()
    lt.recover(A, A.forward(X_TRUE), RANK, noise_std=1e-3, X_true=X_TRUE)
    noisy = A.forward(X_TRUE) + 0.01 * draws(4).standard_normal(A.m)
    lt.recover(A, noisy, RANK)  # tests the residual for noise
    large = lt.entries((2100, 6, 6), draws(1).integers(0, (2100, 6, 6), (25000, 3)))
    large.spectral_start(draws(2).standard_normal(25000), RANK)
    TuckerRegressor().fit(matrices(float).reshape(-1, 4), np.arange(15.0))
    batches = TuckerRegressor()
    for k in range(4):
        batches.partial_fit(draws(k).standard_normal((15, 3)), draws(k).standard_normal(15))
    TuckerImputer(rank=(2, 2, 2)).fit(np.where(HOLES, np.nan, NOISY))
    TuckerImputer().fit(np.where(HOLES, np.nan, NOISY))
    lt.recover(A, noisy, "auto")
    lt.recover(A, noisy)
    approximated(400)
    sketches().spectral_start(sketches().forward(X_TRUE), RANK)
    left, right = (np.linalg.qr(draws(n).standard_normal((n, 100)))[0] for n in (100, 120))
    uneven = lt.DenseOperator((left * np.logspace(0, -4, 100)) @ right.T, SHAPE)
    lt.recover(uneven, uneven.forward(X_TRUE), RANK)  # makes rows isotropic
    lt.theory.examine(uneven, RANK)
    for H in FORMATS:
        X = lt.random_tensor(H, SHAPE, seed=0)
        lt.recover(A, A.forward(X), H)
        (X + X).compress()
    lt.recover(A, A.forward(X_TRUE), solver=lt.NuclearNorm(), max_epochs=3)
    rows = lt.gaussian(SHAPE, m=30, seed=1, dtype=complex).matrix
    made = lt.DenseOperator(rows, SHAPE, dtype=np.float64)  # by products
    lt.recover(made, made.forward(X_TRUE), solver=lt.NuclearNorm(), max_epochs=1)
    lt.theory.eta(lt.HOSVD(RANK), X_TRUE)
    lt.recover(A, noisy, RANK, loss="huber").standard_error([[0, 0, 0]])
    followed(A, noisy)
    assert calls_in_the_source() - APART <= reached


def followed(A, y):
    """Result of a stream of two blocks."""
    online = lt.Online(SHAPE, RANK)
    for rows in (slice(0, 120), slice(120, 240)):
        online.update(A.restrict(rows), y[rows])
    return online.result()


@pytest.mark.parametrize("name", ["eigh", "qr", "solve"])
def test_error_bars_and_streams_use_the_fallbacks(monkeypatch, name):
    """With the same answers: NumPy's functions fail where these are asked for."""
    A = OPERATORS["dense"]()
    noisy = A.forward(X_TRUE) + 0.01 * draws(4).standard_normal(A.m)
    bars = lt.Uncertainty(X_TRUE, lt.Problem(A, noisy))
    index = [[0, 0, 0], [5, 4, 3]]
    expected = bars.standard_error(index), followed(A, noisy)
    fail(monkeypatch, np.linalg, name)
    again = lt.Uncertainty(X_TRUE, lt.Problem(A, noisy)).standard_error(index)
    np.testing.assert_allclose(again, expected[0], rtol=1e-9)
    stream = followed(A, noisy)
    assert relative_error(stream.X, expected[1].X) < 1e-3 * expected[1].error_estimate
    np.testing.assert_allclose(
        stream.standard_error(index), expected[1].standard_error(index), rtol=1e-3
    )


FORMATS = [lt.Sparse(6), lt.TensorTrain((2, 2)), lt.HierarchicalTucker(2), lt.Tubal(1)]


@pytest.mark.parametrize("name", ["svd", "svdvals", "qr", "eigh"])
@pytest.mark.parametrize("H", FORMATS, ids=["sparse", "train", "tree", "tubal"])
def test_formats_use_the_fallbacks(monkeypatch, H, name):
    A, X = OPERATORS["dense"](), lt.random_tensor(H, SHAPE, seed=0)
    y = A.forward(X)
    fail(monkeypatch, np.linalg, name)
    result = lt.recover(A, y, H, tol=1e-5)
    assert result.success
    assert relative_error(result.X, X) < 1e-4
    np.testing.assert_allclose((X + X).compress().full(), 2 * X.full(), atol=1e-6)


HOLES = draws(5).random((8, 7, 6)) < 0.5
NOISY = lt.random_tucker((8, 7, 6), (2, 2, 2), seed=0).full()
NOISY = NOISY + 1e-4 * draws(1).standard_normal(NOISY.shape)


@pytest.mark.parametrize("name", ["svd", "eigh"])
def test_shrinkage_uses_the_fallbacks(monkeypatch, name):
    tall = draws(6).standard_normal((40, 3, 2))  # the first mode by an SVD
    usual = lt.Shrinkage(0.5)(tall).full()
    fail(monkeypatch, np.linalg, name)
    with _linalg.fallbacks() as used:
        again = lt.Shrinkage(0.5)(tall).full()
    assert used
    np.testing.assert_allclose(again, usual, atol=1e-6)


@pytest.mark.parametrize("name", ["svd", "qr", "inv", "solve", "eigh"])
def test_estimators_use_the_fallbacks(monkeypatch, name):
    rows, y = draws(0).standard_normal((60, 5)), draws(1).standard_normal(60)
    known = np.where(HOLES, np.nan, NOISY)
    linear, batches = TuckerRegressor().fit(rows, y), TuckerRegressor()
    filled = TuckerImputer(rank=(2, 2, 2)).fit_transform(known)
    fail(monkeypatch, np.linalg, name)
    for start in range(0, 60, 20):
        batches.partial_fit(rows[start : start + 20], y[start : start + 20])
    for model in (TuckerRegressor().fit(rows, y), batches):
        np.testing.assert_allclose(model.coef_, linear.coef_, atol=1e-8)
    again = TuckerImputer(rank=(2, 2, 2)).fit_transform(known)
    np.testing.assert_allclose(again, filled, atol=1e-4)


def test_no_decomposition_bypasses_the_fallbacks():
    around = []
    for path in SOURCE.rglob("*.py"):
        part = path.relative_to(SOURCE).parts[0]
        if part in ("_array", "theory", "lab", "simulation"):  # not part of a recovery
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            inner = node.value if isinstance(node, ast.Attribute) else None
            if getattr(inner, "attr", "") == "linalg" and node.attr in [*NAMES, "lstsq", "pinv"]:
                around.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert not around


# Faults in the middle of a recovery


@pytest.mark.parametrize(
    ("operator", "solver"),
    [
        pytest.param(*run, marks=[] if run[0] == "dense" else pytest.mark.slow, id=name)
        for run, name in zip(RUNS, IDS, strict=True)
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_a_recovery_survives_failures(monkeypatch, operator, solver, name):
    """Each function always fails: the result is as good, and the history records it."""
    expected, called = undisturbed(operator, solver)
    assert expected.success
    assert {"qr", "svd", "eigh"} & called
    if name not in called:  # then this recovery does not use it
        return
    with monkeypatch.context() as patch:
        fail(patch, np.linalg, name)
        result = recovered(operator, solver)
    with monkeypatch.context() as patch:
        count = fail(patch, np.linalg, name)
        run = solved(operator, solver)
    assert result.status is expected.status
    assert relative_error(result.X, X_TRUE) < 1e-5
    assert relative_error(run.X, X_TRUE) < 1e-5
    if name != "eigvalsh":  # which comes after the last row
        assert bool(fallbacks_of(run)) == (count[0] > 0)


@pytest.mark.parametrize("solver", ["auto", "tiht", "rgn", "rcg", RSGD], ids=str)
@pytest.mark.parametrize("name", ["svd", "eigh", "solve", "inv", "qr"])
@pytest.mark.parametrize("call", [1, 13])
def test_a_recovery_survives_one_failure(monkeypatch, solver, name, call):
    count = fail(monkeypatch, np.linalg, name, {call})
    result = solved("dense", solver)
    monkeypatch.undo()
    assert result.success
    assert relative_error(result.X, X_TRUE) < 1e-5
    assert len(fallbacks_of(result)) == (count[0] >= call)


@pytest.mark.parametrize(("operator", "solver"), RUNS, ids=IDS)
@pytest.mark.parametrize("after", [0, 7])
def test_when_every_algorithm_fails_the_last_iterate_is_returned(
    monkeypatch, operator, solver, after
):
    """Both NumPy and SciPy fail, at once or after some calls: a status, and finite numbers."""
    always = range(after + 1, 10**6)
    for where in (np.linalg, scipy.linalg):
        for name in ("svd", "eigh", "qr"):
            fail(monkeypatch, where, name, always)
    result = recovered(operator, solver, epochs=20)
    assert result.status.name in ("DIVERGED", "STALLED", "MAX_EPOCHS")
    assert not result.success
    assert np.isfinite(result.X.full()).all()
    assert np.isfinite(result.residual)


def test_a_start_is_found_when_arpack_does_not_converge(monkeypatch):
    shape = (2100, 6, 6)
    A = lt.entries(shape, draws(1).integers(0, shape, (25000, 3)))
    y = A.forward(lt.random_tucker(shape, (2, 2, 2), seed=0))

    for had in (0, 1):

        def eigsh(gram, k, had=had, **options):
            raise scipy.sparse.linalg.ArpackNoConvergence(
                "injected: %s", np.ones(had), np.eye(gram.shape[0], had)
            )

        monkeypatch.setattr(scipy.sparse.linalg, "eigsh", eigsh)
        with _linalg.fallbacks() as used:
            start = A.spectral_start(y, (2, 2, 2))
        assert used == ["eigsh unfinished"]
        U = start.factors[0]
        np.testing.assert_allclose(U.T @ U, np.eye(2), atol=1e-12)
        if had:  # what it had is kept
            np.testing.assert_allclose(np.abs(U[:, 0]), np.eye(2100)[:, 0], atol=1e-12)


def test_operator_norm_without_arpack(monkeypatch):
    A = lt.gaussian((6, 5, 4), m=140, seed=1)
    expected = checks.operator_norm(A)
    real = scipy.sparse.linalg.svds

    def svds(matrix, *, solver="arpack", **options):
        if solver == "arpack":
            raise scipy.sparse.linalg.ArpackError(3)
        return real(matrix, solver=solver, **options)

    monkeypatch.setattr(checks, "SMALL", 10)
    monkeypatch.setattr(scipy.sparse.linalg, "svds", svds)
    with _linalg.fallbacks() as used:
        assert checks.operator_norm(A) == pytest.approx(expected, rel=1e-8)
    assert used == ["svds by PROPACK"]


@pytest.mark.parametrize("solver", ["auto", "tiht", "rgn", "rcg", "rsgd"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_start_that_is_not_finite_is_refused(solver, bad):
    A = OPERATORS["dense"]()
    y = A.forward(X_TRUE)
    spoiled = X_TRUE.full().copy()
    spoiled[0, 0, 0] = bad
    factors = [U.copy() for U in X_TRUE.factors]
    factors[1][2, 0] = bad
    for start in (X_TRUE * bad, spoiled, lt.TuckerTensor.trusted(X_TRUE.core, factors)):
        with pytest.raises(ValueError, match="start has NaN or infinite entries"):
            lt.recover(A, y, RANK, solver=solver, start=start)
    state = lt.solve(lt.Problem(A, y), "tiht", RANK, stop=lt.MaxEpochs(1)).state
    with pytest.raises(ValueError, match="start has NaN or infinite entries"):
        lt.recover(A, y, RANK, solver=solver, start=replace(state, X=X_TRUE * bad))


def test_a_step_that_overflows_ends_as_blow_up():
    """The retraction has no tensor to return: the status reports it."""
    A = OPERATORS["dense"]()
    result = lt.recover(A, A.forward(X_TRUE), RANK, solver=lt.TIHT(step=1e300), max_epochs=20)
    assert result.status.name == "DIVERGED"
    assert np.isfinite(result.X.full()).all()
