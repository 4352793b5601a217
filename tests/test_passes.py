"""Passes are what is read: the bytes of a file that a call reads, over the size of the file."""

import numpy as np
import pytest

import lowtucker as lt
from lowtucker._array.readings import Readings, side_by_side
from lowtucker.operators.stored import StoredOperator

SHAPE, RANK = (8, 8, 8), (2, 2, 2)  # 44 degrees of freedom
NUMBERS = 512


class File(StoredOperator):
    """Rows of a file; counts the bytes that are read of it."""

    def __init__(self, path):
        super().__init__(np.load(path, mmap_mode="r"), SHAPE)
        self.seen = [0]  # shared by what is made of this operator

    def _read(self, start, stop, out):
        super()._read(start, stop, out)
        self.seen[0] += out.nbytes


@pytest.fixture
def stored(tmp_path):
    def make(m, noise=0.0):
        rows = np.random.default_rng(3).standard_normal((m, NUMBERS))
        np.save(tmp_path / "rows.npy", rows)
        y = rows @ lt.random_tucker(SHAPE, RANK, seed=0).full().ravel()
        y += noise * np.linalg.norm(y) / m**0.5 * np.random.default_rng(4).standard_normal(m)
        return File(tmp_path / "rows.npy"), y

    return make


def check(A, result):
    size = A.m * NUMBERS * 8
    assert result.passes == A.seen[0] / size > 0
    assert (np.diff(result.history.passes) >= 0).all()
    assert result.history.passes[-1] <= result.passes


@pytest.mark.parametrize(
    ("m", "noise"), [(60, 0.0), (100, 0.0), (200, 0.0), (440, 0.0), (200, 0.02), (440, 0.02)]
)
def test_auto(stored, m, noise):
    A, y = stored(m, noise)
    check(A, lt.recover(A, y, RANK))


@pytest.mark.parametrize(
    "solver",
    [
        lt.RGN(),
        lt.RGN(products=True),
        lt.RSGD(),
        lt.RSGD(least_squares=True),
        lt.RSGD(least_squares=True, block_size=70),
        lt.RCG(),
        lt.TIHT(),
        lt.TIHT(step=0.5),
        lt.StoTIHT(),
        lt.StoTIHT(step=0.3, block_size=50),
        lt.AMP(),
    ],
    ids=repr,
)
def test_solvers(stored, solver):
    A, y = stored(200)
    rank = None if isinstance(solver, lt.AMP) else RANK
    check(A, lt.recover(A, y, rank, solver=solver, max_epochs=40))


def test_other_blocks(stored, monkeypatch):
    monkeypatch.setattr("lowtucker.operators.streamed.BLOCK_BYTES", 60 * NUMBERS * 8)
    A, y = stored(200)  # blocks of more rows than that are not kept
    check(A, lt.recover(A, y, RANK, solver=lt.StoTIHT(block_size=100), max_epochs=10))
    A, y = stored(200)
    check(A, lt.recover(A, y, RANK))


@pytest.mark.parametrize("rank", ["auto", None])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_unknown_rank(stored, rank, noise):
    A, y = stored(200, noise)
    check(A, lt.recover(A, y, rank))


def test_robust(stored):
    A, y = stored(200, 0.01)
    y[:5] += 10
    check(A, lt.recover(A, y, RANK, loss="huber"))


def test_restarts(stored):
    A, y = stored(48)
    result = lt.recover(A, y, RANK)
    assert any("restart" in phase for phase in result.history.phase)
    check(A, result)


def test_other_units(stored):
    A, y = stored(200)
    one = lt.recover(A, y, RANK)
    other = lt.recover(lt.scale(A, 1.0), 2.0**200 * y, RANK)
    assert other.passes == one.passes
    assert A.seen[0] == 2 * one.passes * A.m * NUMBERS * 8


def test_a_solver_and_its_states(stored):
    A, y = stored(200)
    problem = lt.Problem(A, y)
    check(A, lt.solve(problem, lt.RCG(), RANK, stop=lt.MaxEpochs(5)))
    A.seen[0] = 0
    states = lt.iterate(problem, lt.RCG(), RANK)
    first, second = next(states), next(states)
    seen = A.seen[0] / (NUMBERS * 8)
    assert 0 < seen - A.m * second.passes < 20  # rows that tell the scale of A, before the run
    assert second.passes == first.passes + 2


def test_resumed(stored, tmp_path):
    A, y = stored(200, 0.02)
    whole = lt.recover(A, y, RANK)
    cut = lt.recover(A, y, RANK, max_epochs=3, checkpoint=tmp_path / "kept")
    assert cut.epochs < whole.epochs
    again = lt.recover(A, y, RANK, checkpoint=tmp_path / "kept")
    np.testing.assert_array_equal(again.history.passes, whole.history.passes)
    assert again.passes == whole.passes


def test_a_start_is_not_made_again(stored):
    A, y = stored(200)
    first = lt.recover(A, y, RANK, max_epochs=1)
    A.seen[0] = 0
    check(A, lt.recover(A, y, RANK, start=first))


def test_batches_count_as_one_problem():
    A = lt.gaussian(SHAPE, m=100, seed=1)
    each = lt.batch([A, lt.gaussian(SHAPE, m=80, seed=2)])
    X = lt.random_tucker(SHAPE, RANK, seed=0)
    with Readings().counting() as readings:
        each.adjoint(each.forward(X))
        for _ in side_by_side([1, 2, 3]):
            A.forward(X)
    assert readings.rows == 300


def test_readings_of_products():
    X = lt.random_tucker(SHAPE, RANK, seed=0)
    A = lt.gaussian(SHAPE, m=100, seed=1)
    function = lt.FunctionOperator(A.forward, A.adjoint, SHAPE, 100)
    T = lt.TangentSpace(X)
    y = A.forward(X)

    def rows(action):
        with Readings().counting() as readings:
            action()
        return readings.rows

    assert rows(lambda: A.misfit(X, y)) == 100
    assert rows(lambda: function.misfit(X, y)) == 200
    assert rows(lambda: A.tangent(T).normal_equations(y)) == 100
    assert rows(lambda: function.tangent(T).dense()) == 100 * T.dof
    assert rows(lambda: lt.scale(A, 2.0).tangent(T).misfit(y)) == 200
    both = lt.stack([A, function])
    assert rows(lambda: both.forward(X)) == 200
    assert rows(lambda: A.restrict(slice(0, 30)).forward(X)) == 30
    with pytest.warns(lt.SlowOperatorWarning):
        assert rows(lambda: function.restrict(slice(0, 30)).forward(X)) == 100


# residuals by the blocks that an epoch reads anyway

BLOCKS = lt.RSGD(least_squares=True, block_size=70)


def noisy(m, noise, seed=3):
    A = lt.gaussian(SHAPE, m, seed=seed)
    y = A.forward(lt.random_tucker(SHAPE, RANK, seed=seed))
    return lt.Problem(A, y + noise * np.std(y) * np.random.default_rng(4).standard_normal(m))


def test_only_the_last_residual_costs_a_pass():
    problem = noisy(140, 0.0)
    result = lt.solve(problem, BLOCKS, RANK)
    passes, seen = result.history.passes, result.history.residual
    assert result.success
    assert result.epochs >= 3
    first = 1 + (16 + 64) / 140  # the start, the scale of A and that of the start
    np.testing.assert_allclose(passes[:-1] + 16 / 140, first + np.arange(result.epochs))
    assert seen[-1] == result.residual == pytest.approx(float(problem.relative_residual(result.X)))
    assert (np.diff(seen) < 0).all()


@pytest.mark.parametrize("epochs", [1, 2, 30])
def test_where_a_run_ends_the_residual_is_measured(epochs):
    problem = noisy(140, 0.1)
    result = lt.solve(problem, BLOCKS, RANK, stop=lt.Stalled(3, 0.2) | lt.MaxEpochs(epochs))
    assert (result.status is lt.Status.STALLED) == (epochs == 30)
    assert result.residual == pytest.approx(float(problem.relative_residual(result.X)))
    last = float(problem.relative_residual(result.state.X))
    assert result.history.residual[-1] == pytest.approx(last)


def test_estimates_are_those_of_the_last_block():
    problem = noisy(140, 0.1)
    stop = lt.MaxEpochs(3)
    residual = lt.solve(problem, BLOCKS, RANK, stop=stop).history.residual
    states = lt.iterate(problem, BLOCKS, RANK)
    levels = [next(states).memory.level for _ in range(5)]
    np.testing.assert_allclose(residual[:3], [levels[0], levels[2], levels[4]])


def test_a_batch_has_the_estimates_of_single_runs():
    ones = [noisy(140, 0.0, seed) for seed in range(4)]
    matrices = np.stack([one.A.matrix for one in ones])
    A = lt.DenseOperator(matrices, SHAPE)
    problem = lt.Problem(A, np.stack([one.y for one in ones]))
    together = lt.solve(problem, BLOCKS, RANK, stop=lt.ResidualBelow(1e-6) | lt.MaxEpochs(9))
    for k, one in enumerate(ones):
        stop = lt.ResidualBelow(1e-6) | lt.MaxEpochs(9)
        alone = lt.solve(one, BLOCKS, RANK, stop=stop, seed=(0, k))
        assert together.epochs[k] == alone.epochs
        assert together.status[k] is alone.status
        rows = alone.history.rows - 1  # the last residual is rounding error
        np.testing.assert_allclose(
            together.history.residual[:rows, k], alone.history.residual[:rows], rtol=1e-6
        )


def test_estimates_are_resumed(tmp_path):
    problem = noisy(140, 0.1)

    def run(epochs, **options):
        stop = lt.Stalled(3, 0.2) | lt.MaxEpochs(epochs)
        return lt.solve(problem, [BLOCKS, lt.RGN()], RANK, stop=stop, **options)

    whole = run(30)
    for epochs in (1, 3):
        kept = tmp_path / f"kept {epochs}"
        cut = run(epochs, checkpoint=kept)
        assert cut.epochs == epochs < whole.epochs < 30
        again = run(30, checkpoint=kept)
        np.testing.assert_array_equal(again.X.full(), whole.X.full())
        for name in ("residual", "passes"):
            np.testing.assert_array_equal(again.history[name], whole.history[name])
        assert again.passes == whole.passes


def test_a_start_reads_part_of_many_rows(stored, monkeypatch):
    monkeypatch.setattr("lowtucker.solvers.rsgd.MANY", 0)
    A, y = stored(440)  # 10 per degree of freedom: half of them
    result = lt.recover(A, y, RANK, solver=BLOCKS)
    check(A, result)
    assert result.success
    assert result.history.passes[0] == 0.5  # its scale is by rows that are in memory by then
    weights = np.ones(440)
    weights[0] = 0.5
    result = lt.recover(A, y, RANK, solver=BLOCKS, weights=weights)
    assert result.history.passes[0] == pytest.approx((440 + 64) / 440)
