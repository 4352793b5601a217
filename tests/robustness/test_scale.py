"""Multiplying A, or y, by a power of two changes nothing but the scale of X.

To the bit: X, the residuals, the verdict, the passes and the notes. The exponents go beyond
1e-150 and 1e150 (2^-500, 2^500), on both sides of the threshold for rescaling.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lowtucker as lt
from lowtucker._array.errors import SlowOperatorWarning, UnderdeterminedWarning
from lowtucker.operators.units import PoweredOperator
from lowtucker.run.units import Units, into_units, out_of_units, scaled, solver_in_units, units_of
from lowtucker.solvers.noise import is_noise
from lowtucker.tensor.products import exponent, shifted
from matrices import random_sparse

SHAPE, RANK, M = (5, 4, 3), (1, 2, 2), 55  # 14 degrees of freedom
N = 60
X_TRUE = lt.random_tucker(SHAPE, RANK, seed=0)
EXPONENTS = [-500, -159, -80, -3, 33, 130, 500]
pytestmark = pytest.mark.filterwarnings("ignore::lowtucker._array.errors.SlowOperatorWarning")


def draws(seed=0):
    return np.random.default_rng(seed)


MATRIX = draws().standard_normal((M, N))
COMPLEX = MATRIX + 1j * draws(1).standard_normal((M, N))
VECTORS = [draws(2 + k).standard_normal((M, n)) for k, n in enumerate(SHAPE)]
SQUARES = [draws(5 + k).standard_normal((n, n)) for k, n in enumerate(SHAPE)]
KNOWN = np.argwhere(draws(8).random(SHAPE) < 0.85)
SPARSE = random_sparse((M, N), 9).tocsr()
MIX = draws(10).standard_normal((M, M))


class Source:
    """Rows that are read when they are needed."""

    def __init__(self, rows):
        self.rows, self.shape, self.dtype, self.ndim = rows, rows.shape, rows.dtype, 2

    def __getitem__(self, where):
        return self.rows[where]


def function(f):
    def forward(X):
        return f * (MATRIX @ X.reshape(-1))

    def adjoint(v):
        return f * (MATRIX.T @ v).reshape(SHAPE)

    return lt.FunctionOperator(forward, adjoint, SHAPE, M)


def transform(f, kind="dct", signs=True, m=50):
    return lt.scale(lt.subsampled_transform(SHAPE, m, kind, signs=signs, seed=3), f)


def kronecker(f):
    return lt.kronecker([SQUARES[0] * f, *SQUARES[1:]])


def entries():
    return lt.entries(SHAPE, KNOWN)


# Every kind of operator, times a number
OPERATORS = {
    "dense": lambda f: lt.DenseOperator(MATRIX * f, SHAPE),
    "complex": lambda f: lt.DenseOperator(COMPLEX * f, SHAPE),
    "complex-real": lambda f: lt.DenseOperator(COMPLEX * f, SHAPE, dtype=float),
    "rank-one": lambda f: lt.rank_one([VECTORS[0] * f, *VECTORS[1:]]),
    "kronecker": kronecker,
    "modewise": lambda f: lt.kronecker([SQUARES[0] * f, np.kron(*SQUARES[1:])], shape=SHAPE),
    "sparse": lambda f: lt.as_operator(SPARSE * f, SHAPE),
    "function": function,
    "stored": lambda f: lt.stored(Source(MATRIX * f), SHAPE),
    "composed": lambda f: lt.compose(MIX * f, MATRIX, shape=SHAPE),
    "scaled-entries": lambda f: lt.scale(entries(), f),
    "dct": transform,
    "separable-dct": lambda f: transform(f, signs=False),
    "fft": lambda f: transform(f, "fft", m=30),
    "stack": lambda f: lt.stack([lt.scale(entries(), f), kronecker(f)]),
}
SOLVERS = {
    "auto": "auto",
    "tiht": "tiht",
    "stotiht": "stotiht",
    "rsgd": lt.RSGD(block_size=20),
    "rsgd-squares": lt.RSGD(least_squares=True),
    "rgn": "rgn",
    "rgn-products": lt.RGN(products=True),
    "rcg": "rcg",
}
# Which are multiplied: of A and y
SIDES = {"A": (1, 0), "y": (0, 1), "both": (1, 1)}
# Exponents of A and y at which all would underflow or overflow: each side alone, and both
EXTREME = [(-500, 0), (0, -500), (500, 500)]


def power(e, dtype=float):
    return np.dtype(dtype).type(2.0**e)


def assert_same(result, base, e, cost=0):
    """The result is the base's times 2^e, to the bit."""
    assert np.all(result.status == base.status)
    assert np.all(result.success == base.success)
    np.testing.assert_array_equal(result.X.core, shifted(base.X.core, e))
    for U, V in zip(result.X.factors, base.X.factors, strict=True):
        np.testing.assert_array_equal(U, V)
    for name in ("residual", "phase", "passes", "epoch"):
        np.testing.assert_array_equal(result.history[name], base.history[name])
    with np.errstate(all="ignore"):
        expected = np.ldexp(base.history["cost"], cost)
    np.testing.assert_array_equal(result.history["cost"], expected)
    np.testing.assert_array_equal(result.residual, base.residual)
    np.testing.assert_array_equal(result.error, base.error)
    np.testing.assert_array_equal(result.error_estimate, base.error_estimate)
    assert result.passes == base.passes
    assert result.notes == base.notes
    assert result.rank == base.rank
    assert result.solver == base.solver


def on_sides(exponents, sides=SIDES):
    """Exponents of A and of y: each side, multiplied by each power."""
    return [(a * e, k * e) for a, k in (SIDES[side] for side in sides) for e in exponents]


def check(run, exponents):
    """Compare runs (of an exponent of A and one of y) with that of (0, 0)."""
    base = run(0, 0)
    assert np.all(base.residual < 0.9)  # there is something to compare
    for a, k in exponents:
        assert_same(run(a, k), base, k - a, 2 * k)


@pytest.mark.parametrize(
    ("operator", "solver", "every"),
    [
        *[("dense", solver, False) for solver in SOLVERS],
        *[(operator, "auto", False) for operator in OPERATORS if operator != "dense"],
        *[
            pytest.param(operator, solver, True, marks=pytest.mark.slow)
            for operator in OPERATORS
            for solver in SOLVERS
        ],
    ],
)
def test_scale_of_A_and_y(operator, solver, every):
    y = OPERATORS[operator](1.0).forward(X_TRUE)

    def run(a, k):
        A = OPERATORS[operator](power(a))
        return lt.recover(
            A,
            power(k) * y,
            RANK,
            solver=SOLVERS[solver],
            max_epochs=6 if solver == "stotiht" else 3,
            X_true=X_TRUE * power(k - a),
        )

    if every:
        check(run, on_sides(EXPONENTS if operator == "dense" else [-500, 500]))
    else:
        check(run, [*EXTREME, (-159, 0), (0, 130), (33, 33)] if operator == "dense" else EXTREME)


@pytest.mark.parametrize("solver", [*SOLVERS, "als"])
def test_scale_of_entries(solver):
    A, y = entries(), entries().forward(X_TRUE)

    def run(_a, k):
        return lt.recover(A, power(k) * y, RANK, solver=SOLVERS.get(solver, solver), max_epochs=6)

    check(run, on_sides(EXPONENTS, ["y"]))


def dense(a, dtype=float):
    return lt.DenseOperator((MATRIX * 2.0**a).astype(dtype), SHAPE)


Y = MATRIX @ X_TRUE.full().ravel()
NOISY = Y + 0.02 * draws(11).standard_normal(M)
OUTLIERS = np.where(np.arange(M) < 5, Y + 30, Y)


@pytest.mark.parametrize("known", [True, False])
def test_scale_with_noise(known):
    def run(a, k):
        std = 0.02 * power(k) if known else None
        return lt.recover(dense(a), NOISY * power(k), RANK, noise_std=std, max_epochs=40)

    check(run, [*on_sides([-500, -80, 33, 500], ["A", "y"]), (-80, -80), (500, 500)])


def test_too_small_a_rank_is_not_mistaken_for_noise():
    """The spectral norm of an adjoint that overflows is no larger than infinity."""
    more = lt.random_tucker(SHAPE, (1, 1, 1), seed=9)
    Z = X_TRUE.full() + more.full() * (0.15 * float(X_TRUE.norm()) / float(more.norm()))
    y = MATRIX @ Z.ravel()

    def run(a, k):
        return lt.recover(dense(a), y * power(k), RANK, max_epochs=60)

    result = run(0, 0)
    assert result.status is lt.Status.APPROXIMATED
    low, high = result.error_interval
    assert low < float(lt.metrics.relative_error(result.X, Z)) < high
    check(run, on_sides([-500, 260, 500]))


@pytest.mark.parametrize("e", [-500, 500])
def test_the_verdict_on_the_residual_does_not_depend_on_the_scale(e):
    """By the test for noise itself, without rescaling."""
    rng = draws()
    signs = [rng.choice([-1.0, 1.0], n) for n in SHAPE]
    random, structure = NOISY - Y, 0.01 * MATRIX @ np.einsum("i,j,k->ijk", *signs).ravel()
    for left, expected in ((random, True), (structure, False)):
        problem = lt.Problem(dense(e), NOISY * power(e))
        assert is_noise(problem, left * power(e), X_TRUE) is expected
        assert is_noise(lt.Problem(dense(0), NOISY), left, X_TRUE) is expected
        outweighed = lt.Problem(dense(0), NOISY, np.logspace(-9, 9, M))
        assert is_noise(outweighed, left, X_TRUE) is None


def test_scale_with_outliers():
    def run(a, k):
        result = lt.recover(dense(a), OUTLIERS * power(k), RANK, loss="huber", max_epochs=40)
        assert set(np.flatnonzero(result.weights == 0)) == set(range(5))
        return result

    check(run, on_sides([-500, 33, 500]))


def test_weights_chosen_by_a_loss_have_the_units_of_the_given_ones():
    given = draws(14).random(M) + 0.5

    def run(e):
        weights = given * power(e)
        return lt.recover(dense(0), OUTLIERS, RANK, loss="huber", weights=weights, max_epochs=40)

    base = run(0)
    for e in (-400, 400):
        assert_same(run(e), base, 0, e)
        np.testing.assert_array_equal(run(e).weights, shifted(base.weights, e))


def test_scale_with_an_unknown_rank():
    def run(a, k):
        return lt.recover(dense(a), Y * power(k), "auto", max_epochs=40)

    check(run, EXTREME)


@pytest.mark.parametrize("options", [{}, {"rank": "auto"}, {"loss": "huber"}], ids=str)
def test_scale_of_completion(options):
    array = X_TRUE.full().copy()
    array.reshape(-1)[draws(12).permutation(N)[:10]] = np.nan

    def run(_a, k):
        return lt.complete(array * power(k), **{"rank": RANK, **options}, max_epochs=40)

    held = {run(0, k).held_out for k in (0, -500, 500)}
    assert len(held) == 1
    check(run, on_sides([-500, 33, 500], ["y"]))


@pytest.mark.parametrize("solver", ["auto", "tiht", "stotiht"])
@pytest.mark.parametrize("shared", [True, False])
def test_scale_of_a_batch_of_problems(solver, shared):
    matrices = MATRIX if shared else draws(13).standard_normal((3, M, N))
    truth = lt.random_tucker(SHAPE, RANK, seed=1, trials=3)
    y = lt.DenseOperator(matrices, SHAPE).forward(truth)

    def run(a, k):
        A = lt.DenseOperator(matrices * power(a), SHAPE)
        return lt.recover(A, y * power(k), RANK, solver=solver, max_epochs=10)

    check(run, [*EXTREME, (33, 33)])


@pytest.mark.parametrize("solver", SOLVERS)
def test_scale_in_single_precision(solver):
    y = Y.astype(np.float32)

    def run(a, k):
        A = dense(a, np.float32)
        scaled_y = y * power(k, np.float32)
        return lt.recover(A, scaled_y, RANK, solver=SOLVERS[solver], tol=1e-4, max_epochs=3)

    check(run, [*on_sides([-100, -17, 5, 11, 60], ["A", "y"]), (-60, -60), (30, 30), (100, 100)])


@pytest.mark.parametrize("solver", [*SOLVERS, "als"])
def test_scale_of_the_weights(solver):
    """Powers of four: the root of two is not a power of two."""
    A = entries() if solver == "als" else dense(0)
    y, weights = A.forward(X_TRUE), draws(14).random(A.m) + 0.5

    def run(e, of_y=0):
        return lt.recover(
            A, y * power(of_y), RANK, solver=SOLVERS.get(solver, solver),
            weights=weights * power(e), max_epochs=3,
        )  # fmt: skip

    base = run(0)
    for e in (-500, -34, 6, 160, 500):
        assert_same(run(e), base, 0, e)
        assert_same(run(e, -e // 2), base, -e // 2, 0)
    odd = run(161)
    assert odd.status is base.status
    np.testing.assert_allclose(odd.X.full(), base.X.full(), atol=1e-10)


def test_weights_of_very_different_sizes_are_no_false_success():
    weights = np.logspace(-150, 150, M)
    result = lt.recover(dense(0), NOISY, RANK, weights=weights)
    assert not result.success
    assert np.isfinite(result.X.full()).all()


@pytest.mark.parametrize("solver", [lt.TIHT(step=0.5), lt.StoTIHT(step=0.3, block_size=20)])
def test_a_fixed_step_is_in_the_units_of_A(solver):
    """Step 2^-2e goes with 2^e A, as without units."""

    def run(a, k):
        other = type(solver)(**{
            name: getattr(solver, name) for name in ("block_size",) if hasattr(solver, name)
        }, step=solver.step * power(-2 * a))  # fmt: skip
        result = lt.recover(dense(a), Y * power(k), RANK, solver=other, max_epochs=10)
        assert repr(other).removesuffix(")") in result.solver
        return lt.Result(**{**vars(result), "solver": ""})

    check(run, on_sides([-400, -60, 60, 400]))
    diverged = lt.recover(dense(400), Y, RANK, solver=solver, max_epochs=10)
    assert diverged.status.name == "DIVERGED"
    assert np.isfinite(diverged.X.full()).all()


def test_a_fixed_step_is_in_the_units_of_the_weights():
    weights = draws(14).random(M) + 0.5

    def run(e):
        solver = lt.TIHT(step=0.5 * power(-e))
        return lt.recover(
            dense(0), Y, RANK, solver=solver, weights=weights * power(e), max_epochs=10
        )

    base = run(0)
    assert base.residual < 0.5
    for e in (-400, 400):
        np.testing.assert_array_equal(run(e).X.full(), base.X.full())


def test_a_fixed_step_for_problems_that_end_at_different_times():
    y = np.stack([0 * Y, Y, 2 * Y])

    def run(a, k):
        solver = lt.TIHT(step=0.5 * power(-2 * a))
        result = lt.recover(dense(a), y * power(k), RANK, solver=solver, max_epochs=10)
        assert result.epochs.tolist() == [0, 10, 10]
        return lt.Result(**{**vars(result), "solver": ""})

    check(run, on_sides([-400, 400]))


@pytest.mark.parametrize("solver", ["auto", "tiht", "rcg", "rsgd"])
@pytest.mark.parametrize("as_array", [True, False])
def test_scale_of_a_start_and_the_truth(solver, as_array):
    start = lt.random_tucker(SHAPE, RANK, seed=7)

    def given(X, e):
        return (X * power(e)).full() if as_array else X * power(e)

    def run(a, k):
        return lt.recover(
            dense(a), Y * power(k), RANK, solver=solver, max_epochs=3,
            start=given(start, k - a), X_true=given(X_TRUE, k - a),
        )  # fmt: skip

    check(run, [(-400, 0), (400, 400), (0, -400), (33, 0)])


@pytest.mark.parametrize("solver", [*SOLVERS, lt.TIHT(step=2.0**-800 / 2)])
@pytest.mark.parametrize("as_result", [True, False])
def test_a_run_resumes_at_any_scale(solver, as_result):
    """Two halves are the whole, to the bit; the state is in the user's units."""
    problem = lt.Problem(dense(400), Y * power(-100))
    solver = SOLVERS.get(solver, solver) if isinstance(solver, str) else solver

    def rule(epochs):
        return lt.MaxEpochs(epochs)

    whole = lt.solve(problem, solver, RANK, stop=rule(4))
    half = lt.solve(problem, solver, RANK, stop=rule(2))
    np.testing.assert_array_equal(half.state.X.core, half.X.core)
    rest = lt.solve(problem, solver, RANK, stop=rule(2), start=half if as_result else half.state)
    np.testing.assert_array_equal(rest.X.full(), whole.X.full())
    assert rest.residual == whole.residual


def test_states_of_iterate_are_in_the_units_of_the_user():
    from itertools import islice

    plain = list(islice(lt.iterate(lt.Problem(dense(0), Y), "tiht", RANK), 4))
    states = list(islice(lt.iterate(lt.Problem(dense(300), Y), "tiht", RANK), 4))
    for state, base in zip(states, plain, strict=True):
        np.testing.assert_array_equal(state.X.core, shifted(base.X.core, -300))
        assert state.cache is None  # what has other units is recomputed


def test_callbacks_see_the_units_of_the_user():
    seen = []

    def callback(progress):
        seen.append(progress.state.X)

    class Manager:
        def __enter__(self):
            seen.append("entered")

        def __exit__(self, *error):
            seen.append("left")

        def __call__(self, progress):
            return progress.epoch == 2

    callbacks = [callback, Manager()]
    result = lt.recover(dense(300), Y, RANK, solver="tiht", max_epochs=9, callbacks=callbacks)
    assert result.status.name == "INTERRUPTED"
    assert (seen[0], seen[-1], len(seen)) == ("entered", "left", 4)
    np.testing.assert_array_equal(seen[-2].core, result.state.X.core)
    assert exponent(seen[-2].norm()) < -250


# The parts, by themselves


def test_ordinary_problems_are_not_rescaled():
    for e in (-60, 0, 60):
        problem = lt.Problem(dense(e), Y)
        assert units_of(problem) == Units()
        assert scaled(problem, Units()) is problem
    result = lt.recover(dense(0), Y, RANK)
    assert out_of_units(result, Units()) is result
    assert into_units("anything", Units(), "start") == "anything"
    assert solver_in_units("auto", Units()) == "auto"


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("e", [-1000, -500, 500, 990])
def test_units_rescale_a_problem_to_moderate_size(operator, e):
    """By the norm of the rows, which the units are not computed from."""
    y = OPERATORS[operator](1.0).forward(X_TRUE)
    e = e if operator in ("dense", "kronecker", "dct", "scaled-entries") else e // 2
    A = OPERATORS[operator](power(e))
    problem = lt.Problem(A, y * power(e))
    units = units_of(problem)
    inner = scaled(problem, units)
    rows = float(np.linalg.norm(inner.A.row_norms()))
    assert 2.0**-10 < rows / N**0.5 < 2.0**10
    assert 0.5 <= float(inner.y_norm) < 1
    # the same measurements, but for the units
    np.testing.assert_array_equal(
        inner.A.forward(X_TRUE), shifted(OPERATORS[operator](1.0).forward(X_TRUE), e - units.A)
    )


def test_entries_have_the_scale_one():
    problem = lt.Problem(entries(), 2.0**400 * entries().forward(X_TRUE))
    units = units_of(problem)
    assert units.A == 0
    assert isinstance(scaled(problem, units).A, lt.EntriesOperator)


def test_the_scale_of_A_costs_a_few_rows_or_one_forward():
    counts = {"rows": 0, "forward": 0}

    class Counted(Source):
        def __getitem__(self, where):
            counts["rows"] += len(range(*where.indices(self.shape[0])))
            return super().__getitem__(where)

    def forward(X):
        counts["forward"] += 1
        return MATRIX @ X.reshape(-1)

    many = np.tile(MATRIX, (10, 1))
    units_of(lt.Problem(lt.stored(Counted(many), SHAPE), np.tile(Y, 10)))
    assert 0 < counts["rows"] <= 40
    A = lt.FunctionOperator(forward, lambda v: (MATRIX.T @ v).reshape(SHAPE), SHAPE, M)
    counts["forward"] = 0
    units_of(lt.Problem(A, Y))
    assert counts["forward"] == 1


def test_a_matrix_is_not_copied():
    problem = lt.Problem(dense(300), Y)
    inner = scaled(problem, units_of(problem)).A
    assert isinstance(inner, PoweredOperator)
    assert inner.inner.matrix is problem.A.matrix


def test_missing_and_zero_data_have_no_scale():
    assert units_of(lt.Problem(dense(0), np.zeros(M))) == Units()
    assert units_of(lt.Problem(dense(500), np.zeros(M))).X == 0  # A has one, and X is as it is
    assert units_of(lt.Problem(lt.DenseOperator(np.zeros((M, N)), SHAPE), Y)) == Units()
    weights = np.r_[0.0, np.ones(M - 1)]
    left_out = np.r_[1e300, Y[1:]]
    assert units_of(lt.Problem(dense(0), left_out, weights)) == Units()


@pytest.mark.parametrize(("a", "k"), [(-600, 450), (600, -450)])
def test_a_tensor_outside_double_precision_is_refused(a, k):
    with pytest.raises(ValueError, match=r"norm 2\^.* would not be a number of double precision"):
        lt.recover(dense(a), Y * power(k), RANK)


def test_costs_out_of_range_are_infinite_or_zero():
    for e, expected in ((700, np.inf), (-700, 0.0)):
        result = lt.recover(dense(e), Y * power(e), RANK, max_epochs=3)
        assert result.success
        assert set(result.history["cost"]) == {expected}


def test_a_powered_operator_is_the_multiple():
    """Against the matrix times the power; the contract of operators, where numbers are exact."""
    plain = lt.DenseOperator(MATRIX * 2.0**-7, SHAPE)
    A = PoweredOperator(dense(0), -7)
    Z, v, w = draws(1).standard_normal(SHAPE), draws(2).standard_normal(M), draws(3).random(M)
    T = lt.TangentSpace(X_TRUE)
    np.testing.assert_array_equal(A.forward(Z), plain.forward(Z))
    np.testing.assert_array_equal(A.forward(X_TRUE), plain.forward(X_TRUE))
    np.testing.assert_array_equal(A.adjoint(v), plain.adjoint(v))
    np.testing.assert_array_equal(A.row_norms(), plain.row_norms())
    for weights in (None, w):
        for mine, own in zip(A.misfit(Z, v, weights), plain.misfit(Z, v, weights), strict=True):
            np.testing.assert_array_equal(mine, own)
        D, own_D = A.tangent(T), plain.tangent(T)
        for mine, own in zip(D.misfit(v, weights), own_D.misfit(v, weights), strict=True):
            np.testing.assert_array_equal(mine, own)
        pairs = zip(D.normal_equations(v, weights), own_D.normal_equations(v, weights), strict=True)
        for mine, own in pairs:
            np.testing.assert_array_equal(mine, own)
    c = draws(4).standard_normal(T.dof)
    np.testing.assert_array_equal(D.matvec(c), own_D.matvec(c))
    np.testing.assert_array_equal(D.rmatvec(v), own_D.rmatvec(v))
    np.testing.assert_array_equal(D.dense(), own_D.dense())
    rows = np.array([3, 1, 4, 1, 5])
    np.testing.assert_array_equal(A.restrict(rows).forward(Z), plain.restrict(rows).forward(Z))
    mine, own = A.spectral_start(v, RANK), plain.spectral_start(v, RANK)
    np.testing.assert_array_equal(mine.core, own.core)
    assert lt.check_adjoint(A) < 1e-13
    assert A.traits.has_fast_tangent
    assert A.traits.row_separable


def test_a_powered_design_reads_rows_once_where_its_operator_does(monkeypatch):
    calls, real = [], lt.DenseOperator._misfit

    def misfit(self, *args):
        calls.append(self)
        return real(self, *args)

    monkeypatch.setattr(lt.DenseOperator, "_misfit", misfit)
    A = PoweredOperator(dense(0), 5)
    A.tangent(lt.TangentSpace(X_TRUE)).misfit(Y)
    A.misfit(X_TRUE, Y)
    assert len(calls) == 2


@pytest.mark.parametrize("times", [lambda A: lt.scale(A, 3.0), lambda A: PoweredOperator(A, 2)])
def test_multiples_have_the_findings_of_their_operator(times):
    one_slice = [[0, j, k] for j in range(3) for k in range(3)] + [[0, 0, 0]]
    A = lt.entries((4, 3, 3), one_slice)
    B = times(A)
    assert [one.kind for one in A.diagnose((1, 1, 1))] == ["duplicates", "unsampled"]
    assert B.diagnose((1, 1, 1)) == A.diagnose((1, 1, 1))
    mask = np.arange(10) != 0
    assert B.diagnose((2, 2, 2), mask) == A.diagnose((2, 2, 2), mask) != A.diagnose((1, 1, 1))
    assert B.traits.isotropic is A.traits.isotropic


def test_samples_scaled_by_zero_do_not_count():
    A = lt.entries((3, 2), [[i, j] for i in range(3) for j in range(2)])
    factor = np.array([1.0, 1, 1, 1, 0, 0])  # the last slice
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnderdeterminedWarning)
        (found,) = lt.scale(A, factor).diagnose((1, 1))
    assert found.kind == "unsampled"
    assert found.numbers == {"mode": 0, "slices": (2,)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_truncations_of_any_scale(dtype):
    """hosvd, sthosvd and hooi of a multiple are the multiple, to the bit."""
    Z = draws(5).standard_normal((2, 6, 5, 4)).astype(dtype)
    powers = (
        (-140, -70, -12, 9, 70, 120) if dtype == np.float32 else (-1000, -300, -9, 9, 300, 1000)
    )
    for truncate in (lt.hosvd, lt.sthosvd, lt.hooi):
        base = truncate(Z, (2, 2, 2))
        for e in powers:
            if e == -140:  # its digits are lost already
                continue
            other = truncate(shifted(Z, e), (2, 2, 2))
            np.testing.assert_array_equal(other.core, shifted(base.core, e))
            for U, V in zip(other.factors, base.factors, strict=True):
                np.testing.assert_array_equal(U, V)


def test_problems_of_different_scales_are_truncated_to_the_same_digits():
    Z = draws(5).standard_normal((6, 5, 4))
    both = lt.hosvd(np.stack([Z * 2.0**900, Z * 2.0**-900]), (2, 2, 2))
    one = lt.hosvd(Z, (2, 2, 2))
    for k, e in enumerate((900, -900)):
        np.testing.assert_allclose(both.trial(k).core, shifted(one.core, e), rtol=1e-10)


def test_shifted_and_exponent():
    assert [exponent(x) for x in (0.5, 0.75, 1.0, 3.0, np.inf, 0.0)] == [0, 0, 1, 2, 0, 0]
    x = np.array([1.5, -(2.0**-1000)])
    np.testing.assert_array_equal(shifted(x, 0), x)
    np.testing.assert_array_equal(shifted(shifted(x, 1020), -1020), x)
    np.testing.assert_array_equal(shifted(np.array([2.0**-1040]), 2000), [2.0**960])
    assert shifted(np.float32([1.0]), -120).dtype == np.float32
    np.testing.assert_array_equal(shifted(np.float32([3.0]), -120), [3 * 2.0**-120])


def test_slow_operators_still_warn():
    problem = lt.Problem(function(2.0**300), Y)
    inner = scaled(problem, units_of(problem)).A
    with pytest.warns(SlowOperatorWarning, match="FunctionOperator"):
        inner.restrict(slice(0, 4))


# Numbers whose norm exceeds the largest number


@pytest.mark.parametrize(("dtype", "e"), [(np.float32, 120), (np.float64, 1000)])
@pytest.mark.parametrize("batch", [False, True])
def test_y_of_a_norm_that_overflows(dtype, e, batch):
    """Where A is as large, X is that of moderate numbers; in double precision to the bit."""
    largest = np.ldexp(1.0, np.finfo(dtype).maxexp - 1 - int(np.log2(np.abs(Y).max())))
    y = (Y * largest).astype(dtype)
    with np.errstate(over="ignore"):
        assert np.isfinite(y).all()
        assert np.isinf(lt.norm(y))
    A = lt.DenseOperator((MATRIX * 2.0**e).astype(dtype), SHAPE)
    y, plain = (np.stack([y, y]), np.stack([Y, Y])) if batch else (y, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = lt.recover(A, y, RANK, max_epochs=3)
    base = lt.recover(
        lt.DenseOperator(MATRIX.astype(dtype), SHAPE), plain.astype(dtype), RANK, max_epochs=3
    )
    power = int(np.log2(largest)) - e
    expected = shifted(base.X.full(), power)
    if dtype == np.float64:
        np.testing.assert_array_equal(result.X.core, shifted(base.X.core, power))
        np.testing.assert_array_equal(result.residual, base.residual)
    assert np.linalg.norm(result.X.full() - expected) < 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda y: lt.recover(dense(0), y, RANK),
        lambda y: lt.recover(dense(0), y),
        lambda y: lt.recover(dense(0), y, RANK, weights=np.full(M, 2.0)),
        lambda y: lt.recover(dense(0), y, RANK, loss="huber"),
        lambda y: lt.recover(dense(0), np.stack([y, y]), RANK),
        lambda y: lt.recover(dense(0), y, RANK, noise_std=1e300),
        lambda y: lt.solve(lt.Problem(dense(0), y), "tiht", RANK),
        lambda y: next(lt.iterate(lt.Problem(dense(0), y), "tiht", RANK)),
        lambda y: lt.complete(np.resize(y, SHAPE), RANK),
        lambda y: lt.Online(SHAPE, RANK).update(MATRIX, y),
        lambda y: lt.recover(dense(0), Y, RANK, start=np.resize(y, SHAPE)),
        lambda y: lt.recover(dense(0), Y, RANK, X_true=np.resize(y, SHAPE)),
        lambda y: lt.recover(dense(0), Y, RANK, noise_std=1.7e308),
    ],
)
def test_numbers_too_large_for_any_X_are_refused_without_warnings(call):
    y = np.sign(Y) * 1.7e308
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UnderdeterminedWarning)
        with pytest.raises(ValueError, match=r"other units|in the units of"):
            call(y)
