"""Batches of problems: each as if it were alone; restarts; operators of any kind."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.operators.design import DenseDesign
from lowtucker.solvers import rgn

FEW = ((5, 5, 6), (1, 2, 2), 28)  # 22 degrees of freedom
EASY = ((6, 5, 6), (2, 2, 2), 150)


def problems(setting, count, seed=0):
    """Gaussian problems, and their truths."""
    shape, rank, m = setting
    operators = [lt.gaussian(shape, m, seed=(seed, k)) for k in range(count)]
    truths = [lt.random_tucker(shape, rank, seed=(seed + 100, k)) for k in range(count)]
    return [lt.Problem(A, A.forward(X)) for A, X in zip(operators, truths, strict=True)], truths


def dense(some):
    """The same problems as one batch of matrices."""
    matrix = np.stack([one.A.matrix for one in some])
    return lt.Problem(lt.DenseOperator(matrix, some[0].shape), np.stack([one.y for one in some]))


def assert_same(batched, k, alone, tol=1e-9):
    """Check that problem k of a batch had the run that it has alone, to rounding."""
    one = batched.trial(k)
    assert one.status is alone.status
    assert one.epochs == alone.epochs
    np.testing.assert_allclose(
        one.X.full(), alone.X.full(), rtol=0, atol=tol * float(alone.X.norm())
    )


# Restarts


@functools.cache
def restarted():
    """Runs of problems with few measurements: alone, and as a batch."""
    some, _ = problems(FEW, 8, seed=1)
    solver, stop = lt.RGN(starts=20), lt.ResidualBelow(1e-6) | lt.MaxEpochs(80)
    alone = [lt.solve(one, solver, FEW[1], stop=stop, seed=(5, k)) for k, one in enumerate(some)]
    return alone, lt.solve(dense(some), solver, FEW[1], stop=stop, seed=5)


def test_restarts_in_a_batch_are_those_of_each_problem():
    alone, batched = restarted()
    begun = [one.state.memory.problems[0].begun for one in alone]
    assert min(begun) == 1  # some need no other start, others several
    assert sorted(begun)[-2] > 3
    for k, one in enumerate(alone):
        assert_same(batched, k, one, 1e-7)
        np.testing.assert_allclose(
            batched.trial(k).history.residual, one.history.residual, rtol=1e-4, atol=1e-9
        )


def test_the_history_of_a_problem_that_has_ended_is_frozen():
    _, batched = restarted()
    residual, running = batched.history.residual, batched.history.running
    assert len(set(batched.epochs.tolist())) > 2
    for k, last in enumerate(batched.epochs):
        assert (residual[last:, k] == residual[last, k]).all()
        assert running[: last + 1, k].all()
        assert not running[last + 1 :, k].any()


def test_trial_is_the_result_of_one_problem():
    alone, batched = restarted()
    for k, one in enumerate(alone):
        trial = batched.trial(k)
        assert trial.X.batch_shape == ()
        assert isinstance(trial.status, lt.Status)
        assert trial.success == one.success
        assert trial.residual == batched.residual[k]
        assert trial.history.rows == trial.epochs + 1


def test_as_many_starts_run_together_as_were_begun_before():
    """1, then 1, then 2, 4, 8, up to 16; every one with the draws of its number."""
    shape, rank, m = FEW
    A = lt.gaussian(shape, m, seed=0)
    problem = lt.Problem(A, np.random.default_rng(0).standard_normal(m))  # no tensor fits
    bound = lt.RGN(starts=70).bind(problem, rank)
    state, sizes = bound.init(None, 0), []
    while not bound.solver.is_stuck(state).all() and state.t < 300:
        (before,), state = state.memory.problems, bound.advance(state)
        (after,) = state.memory.problems
        if before.begun < after.begun < 70:
            assert len(after.starts) == min(before.begun, rgn.TOGETHER)
            sizes.append(len(after.starts))
        numbers = [start.number for start in after.starts]
        assert numbers == sorted(set(numbers))
        assert max(numbers) < after.begun <= 70
    assert sizes[:2] == [1, 2]
    assert max(sizes) == rgn.TOGETHER


class Reads(lt.DenseOperator):
    """Matrix that counts how many of its rows are read by designs."""

    read = 0

    def _tangent(self, T):
        return ReadDesign(self, T)

    def _restrict(self, rows):
        return lt.DenseOperator(self.matrix, self.shape)._restrict(rows)


class ReadDesign(DenseDesign):
    def _tile(self, rows):
        tile = super()._tile(rows)
        self.A.read += tile.shape[-2]
        return tile


def test_starts_at_work_share_a_pass():
    shape, rank, m = FEW
    A = Reads(lt.gaussian(shape, m, seed=0).matrix, shape)
    problem = lt.Problem(A, np.random.default_rng(0).standard_normal(m))
    bound = lt.RGN(starts=20).bind(problem, rank)
    state, seen = bound.init(None, 0), set()
    for _ in range(60):
        A.read, before = 0, state
        state = bound.advance(state)
        if bound.solver.is_stuck(state).all():
            break
        assert A.read == m
        seen.add(len(before.memory.starts))
    assert max(seen) >= 4


def test_a_checkpoint_in_the_middle_of_restarts_resumes_bit_for_bit(tmp_path):
    some, _ = problems(FEW, 6, seed=1)
    problem, path = dense(some), tmp_path / "run.ckpt"

    def run(epochs, **more):
        stop = lt.ResidualBelow(1e-6) | lt.MaxEpochs(epochs)
        return lt.solve(problem, lt.RGN(starts=20), FEW[1], stop=stop, seed=5, **more)

    whole = run(60)
    assert "restart" in " ".join(whole.history.phase[:31])
    for epochs in (8, 17, 24, 31, 60):  # before, at and within other starts
        result = run(epochs, checkpoint=path)
    for name in ("residual", "phase", "running", "passes"):
        np.testing.assert_array_equal(result.history[name], whole.history[name])
    for one, other in zip(result.X.parts().values(), whole.X.parts().values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert result.status.tolist() == whole.status.tolist()
    assert result.epochs.tolist() == whole.epochs.tolist()


@pytest.mark.parametrize("products", [False, True])
def test_steps_of_some_problems_are_rejected_beside_others(products):
    solver, rank = lt.RGN(products=products, damping=1e-3), (2, 2, 2)
    some, _ = problems(((5, 5, 6), rank, 36), 6, seed=1)
    rule = lt.MaxEpochs(8)
    batched = lt.solve(dense(some), solver, rank, stop=rule, seed=3)
    kept = batched.history.residual[1:] == batched.history.residual[:-1]
    assert (kept.any(axis=1) & ~kept.all(axis=1)).any()
    for k, one in enumerate(some):
        assert_same(batched, k, lt.solve(one, solver, rank, stop=rule, seed=(3, k)), 1e-7)


# Problems that fail beside others


SOLVERS = [lt.RGN(starts=3), lt.RSGD(), lt.RSGD(least_squares=True), lt.RCG(), lt.StoTIHT()]


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_a_problem_whose_rows_are_zero_does_not_change_the_others(solver):
    some, _ = problems(EASY, 3)
    whole = dense(some)
    matrix, y = whole.A.matrix.copy(), whole.y.copy()
    matrix[1] = 0
    rule = lt.ResidualBelow(1e-3) | lt.MaxEpochs(8)
    for measured in (y, np.where(np.arange(3)[:, None] == 1, 0.0, y)):
        problem = lt.Problem(lt.DenseOperator(matrix, whole.shape), measured)
        batched = lt.solve(problem, solver, EASY[1], stop=rule, seed=3)
        assert np.isfinite(batched.X.full()).all()
        for k in (0, 2):
            alone = lt.solve(some[k], solver, EASY[1], stop=rule, seed=(3, k))
            assert_same(batched, k, alone)


def test_the_first_row_of_the_history_does_not_depend_on_other_problems():
    """That of RSGD is of a few rows, unless these say nothing: there y is zero."""
    some, _ = problems(EASY, 3)
    some[1] = lt.Problem(some[1].A, 0 * some[1].y)
    solver, rule = lt.RSGD(), lt.MaxEpochs(1)
    batched = lt.solve(dense(some), solver, EASY[1], stop=rule, seed=3)
    for k, one in enumerate(some):
        alone = lt.solve(one, solver, EASY[1], stop=rule, seed=(3, k))
        for name in ("residual", "cost"):
            expected = alone.history[name][0]
            assert batched.history[name][0, k] == pytest.approx(expected, rel=1e-9)
        if k != 1:  # not that of all rows
            start = next(lt.iterate(one, solver, EASY[1], seed=(3, k))).X
            whole = float(one.relative_residual(start))
            assert abs(batched.history.residual[0, k] - whole) > 1e-3 * whole


@pytest.mark.parametrize("error", [np.linalg.LinAlgError, FloatingPointError])
@pytest.mark.parametrize("solver", [lt.RGN(), lt.RGN(starts=3)], ids=repr)
def test_a_step_that_raises_ends_only_its_problem(monkeypatch, solver, error):
    some, _ = problems(EASY, 3)
    rule = lt.ResidualBelow(1e-6) | lt.MaxEpochs(30)
    alone = [lt.solve(one, solver, EASY[1], stop=rule, seed=(3, k)) for k, one in enumerate(some)]
    target = some[1].y

    real = lt.RGN._measured

    def measured(self, bound, X, owners):
        """Raise for problem 1 after its third step."""
        model, levels = real(self, bound, X, owners)
        y = bound.problem.y.reshape(-1, bound.problem.m)
        for k, level in zip(owners, levels, strict=True):
            if np.array_equal(y[k], target) and level < alone[1].history.residual[2]:
                raise error("injected")
        return model, levels

    monkeypatch.setattr(lt.RGN, "_measured", measured)
    batched = lt.solve(dense(some), solver, EASY[1], stop=rule, seed=3)
    assert batched.status[1] is lt.Status.DIVERGED
    assert batched.epochs[1] == 3
    for k in (0, 2):
        assert alone[k].epochs > 3
        assert_same(batched, k, alone[k])
    # at its last finite iterate
    two = lt.solve(some[1], solver, EASY[1], stop=lt.MaxEpochs(2), seed=(3, 1))
    np.testing.assert_allclose(batched.X.full()[1], two.state.X.full(), rtol=0, atol=1e-9)
    # alone it ends in the same way
    single = lt.solve(some[1], solver, EASY[1], stop=rule, seed=(3, 1))
    assert single.status is lt.Status.DIVERGED


@pytest.mark.parametrize("which", [[2], [1, 2, 3]])
def test_a_phase_that_cannot_begin_ends_only_its_problems(monkeypatch, which):
    """Problem 0 is solved by the first solver; noise leaves the others to the second."""
    some, _ = problems(EASY, 4)
    noise = 0.3 * np.random.default_rng(0).standard_normal((4, EASY[2]))
    some = [lt.Problem(one.A, one.y + (k > 0) * noise[k]) for k, one in enumerate(some)]
    chain, rule = [lt.RSGD(), lt.RGN()], lt.ResidualBelow(1e-6) | lt.MaxEpochs(60)
    alone = [lt.solve(one, chain, EASY[1], stop=rule, seed=(3, k)) for k, one in enumerate(some)]
    real = lt.RGN.init

    def init(self, bound, start, seed):
        y = bound.problem.y.reshape(-1, bound.problem.m)
        if any(np.array_equal(v, some[k].y) for v in y for k in which):
            raise np.linalg.LinAlgError("injected")
        return real(self, bound, start, seed)

    monkeypatch.setattr(lt.RGN, "init", init)
    batched = lt.solve(dense(some), chain, EASY[1], stop=rule, seed=3)
    for k in range(4):
        if k not in which:
            assert_same(batched, k, alone[k])
            continue
        assert batched.status[k] is lt.Status.DIVERGED
        rows = alone[k].history.residual[alone[k].history.phase == "RSGD"]
        assert batched.residual[k] == pytest.approx(rows.min(), rel=1e-6)


# Operators of any kind


def _samples(shape, count, seed):
    flat = np.random.default_rng(seed).choice(int(np.prod(shape)), count, replace=False)
    return lt.entries(shape, np.stack(np.unravel_index(flat, shape), axis=1))


def _rank_one(shape, count, seed):
    rng = np.random.default_rng(seed)
    return lt.rank_one([rng.standard_normal((count, n)) for n in shape])


def _function(shape, count, seed):
    A = lt.gaussian(shape, count, seed=seed)
    return lt.FunctionOperator(A.forward, A.adjoint, shape, count)


KINDS = {"entries": _samples, "rank-one": _rank_one, "function": _function}
SHAPE, RANK = (7, 6, 5), (2, 2, 2)


def batch_of(kind, lengths):
    """Operators of so many rows as a batch of problems, and one by one; and the truths."""
    operators = [KINDS[kind](SHAPE, m, seed) for seed, m in enumerate(lengths)]
    truths = [lt.random_tucker(SHAPE, RANK, seed=k) for k in range(len(lengths))]
    A, longest = lt.batch(operators), max(lengths)
    assert (A.batch_shape, A.m, A.shape) == ((len(lengths),), longest, SHAPE)
    some = [lt.Problem(B, B.forward(X)) for B, X in zip(operators, truths, strict=True)]
    y = np.stack([np.pad(one.y, (0, longest - one.m)) for one in some])
    X_true = lt.TuckerTensor.concat([X.batched() for X in truths])
    np.testing.assert_allclose(A.forward(X_true), y, rtol=0, atol=1e-12)
    return lt.Problem(A, y), some, X_true


UNEQUAL, EQUAL = (170, 150, 160), (160, 160, 160)


@pytest.mark.filterwarnings("ignore::lowtucker.SlowOperatorWarning")
@pytest.mark.parametrize(
    ("solver", "lengths"),
    [
        (lt.RGN(), UNEQUAL),
        (lt.RGN(products=True), UNEQUAL),
        (lt.RCG(), UNEQUAL),
        (lt.TIHT(), UNEQUAL),
        (lt.RSGD(), EQUAL),  # blocks are drawn of the rows of the longest
        (lt.StoTIHT(), EQUAL),
        ("auto", EQUAL),
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_operators_equals_them_one_by_one(kind, solver, lengths):
    if kind == "function" and not isinstance(solver, lt.RGN | lt.StoTIHT):
        pytest.skip("its rows are those of a matrix; all else is as of the other kinds")
    problem, some, _ = batch_of(kind, lengths)
    rule = lt.ResidualBelow(1e-3) | lt.MaxEpochs(6)
    batched = lt.solve(problem, solver, RANK, stop=rule, seed=3)
    for k, one in enumerate(some):
        alone = lt.solve(one, solver, RANK, stop=rule, seed=(3, k))
        assert_same(batched, k, alone)


@pytest.mark.filterwarnings("ignore::lowtucker.SlowOperatorWarning")
@pytest.mark.parametrize("solver", [lt.RSGD(), lt.RSGD(least_squares=True), "auto"], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_operators_with_unequal_numbers_of_rows(kind, solver):
    """No block is without a row of a problem, nor has one of the padding."""
    problem, _, X_true = batch_of(kind, (170, 90, 160))
    rule = lt.ResidualBelow(1e-2) | lt.MaxEpochs(20)
    result = lt.solve(problem, solver, RANK, stop=rule, X_true=X_true)
    assert (result.residual[[0, 2]] <= 1e-2).all()
    assert (result.error[[0, 2]] < 0.1).all()
    assert np.isfinite(result.X.full()).all()


def test_rows_of_the_padding_are_left_out_of_blocks():
    problem, some, X_true = batch_of("entries", (20, 12))
    rows = np.array([15, 3, 19, 11])
    for block in (problem.block(rows), problem.trusted_block(rows), problem.block((rows, rows))):
        np.testing.assert_allclose(block.residual(X_true), 0, atol=1e-12)
        np.testing.assert_allclose(block.y[1], [*some[1].y[[3, 11]], 0, 0])
        np.testing.assert_allclose(block.count, [4, 2])
    padding = np.array([15, 19])
    with pytest.raises(ValueError, match="rows selects no measurement of some problems"):
        problem.block(padding)
    block = problem.trusted_block(padding)  # as a sampler may draw them
    np.testing.assert_allclose(block.count, [2, 1])
    np.testing.assert_allclose(block.residual(X_true), 0, atol=1e-12)


def test_als_takes_a_batch_of_sampled_entries():
    operators = [_samples(SHAPE, m, seed) for seed, m in enumerate((170, 150))]
    truths = [lt.random_tucker(SHAPE, RANK, seed=k) for k in range(2)]
    A = lt.batch(operators)
    y = A.forward(lt.TuckerTensor.concat([X.batched() for X in truths]))
    rule = lt.ResidualBelow(1e-6) | lt.MaxEpochs(30)
    batched = lt.solve(lt.Problem(A, y), lt.ALS(), RANK, stop=rule)
    for k, B in enumerate(operators):
        one = lt.Problem(B, B.forward(truths[k]))
        assert_same(batched, k, lt.solve(one, lt.ALS(), RANK, stop=rule, seed=(0, k)))


@pytest.mark.parametrize("kind", KINDS)
def test_other_rows_of_every_problem(kind):
    """One operator for all, and other rows of it for each problem: a batch of operators."""
    A = KINDS[kind](SHAPE, 20, 0)
    rows = (np.array([3, 1, 4]), np.array([0, 19, 7]))
    truths = [lt.random_tucker(SHAPE, RANK, seed=k) for k in range(2)]
    problem = lt.Problem(A, np.stack([A.forward(X) for X in truths]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lt.SlowOperatorWarning)
        block = problem.block(rows)
    assert block.A.batch_shape == (2,)
    X = lt.TuckerTensor.concat([X.batched() for X in truths])
    expected = np.stack([problem.y[k, some] for k, some in enumerate(rows)])
    np.testing.assert_allclose(block.y, expected)
    np.testing.assert_allclose(block.A.forward(X), expected, rtol=0, atol=1e-10)


def test_auto_of_a_batch_is_auto_of_each():
    """With few measurements, and with plenty."""
    for setting in (FEW, EASY):
        some, _ = problems(setting, 3, seed=7)
        rule = lt.ResidualBelow(1e-6) | lt.MaxEpochs(40)
        batched = lt.solve(dense(some), "auto", setting[1], stop=rule, seed=3)
        for k, one in enumerate(some):
            alone = lt.solve(one, "auto", setting[1], stop=rule, seed=(3, k))
            assert alone.solver == batched.solver
            assert_same(batched, k, alone, 1e-7)
