"""What threads may share: operators, problems, solvers, results and streams; not checkpoints."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

import cases
import lowtucker as lt
from lowtucker.run.history import History
from runs import assert_same

RANK = (1, 1, 1)
pytestmark = pytest.mark.filterwarnings("ignore::lowtucker.SlowOperatorWarning")


def together(work, count=4):
    """Results of work(k), begun by all threads at once."""
    gate, found, errors = threading.Barrier(count), {}, []

    def run(k):
        gate.wait(30)
        try:
            found[k] = work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    return [found[k] for k in range(count)]


@pytest.mark.parametrize("name", cases.OPERATORS)
def test_threads_share_an_operator(name):
    """Made anew, so that caches are filled by several threads at once."""

    def numbers(A, k):
        rng = np.random.default_rng(k)
        X = lt.random_tucker(A.shape, (1,) * len(A.shape), seed=k)
        Z = rng.standard_normal((*A.batch_shape, *A.shape))
        v = rng.standard_normal((*A.batch_shape, A.m))
        return [A.forward(Z), A.adjoint(v), A.row_norms(), A.forward(X)]

    alone = [numbers(cases.OPERATORS[name](), k) for k in range(3)]
    A = cases.OPERATORS[name]()
    for one, other in zip(together(lambda k: numbers(A, k), 3), alone, strict=True):
        for mine, its in zip(one, other, strict=True):
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(its))


@pytest.mark.parametrize("kind", ["entries", "kronecker", "seeded"])
def test_threads_share_a_problem_and_a_solver(kind):
    shape = (6, 6, 6)
    A = {
        "entries": lambda: lt.entries(
            shape, np.argwhere(np.random.default_rng(0).random(shape) < 0.7)
        ),
        "kronecker": lambda: lt.kronecker([np.random.default_rng(9).standard_normal((5, 6))] * 3),
        "seeded": lambda: lt.seeded_gaussian(shape, 90, seed=1),
    }[kind]()
    y, solver = A.forward(lt.random_tucker(shape, RANK, seed=0)), lt.RSGD(least_squares=True)
    problem = lt.Problem(A, y)
    alone = [lt.solve(problem, [solver, lt.RGN()], RANK, seed=k) for k in range(3)]
    found = together(lambda k: lt.solve(problem, [solver, lt.RGN()], RANK, seed=k), 3)
    for one, other in zip(found, alone, strict=True):
        assert_same(one, other)
        assert one.passes == other.passes  # each call counts its own


def test_threads_share_a_result():
    A = lt.gaussian((5, 5, 6), 120, seed=1)
    y = A.forward(lt.random_tucker((5, 5, 6), RANK, seed=0))
    y = y + 0.01 * np.random.default_rng(2).standard_normal(120)
    where = np.argwhere(np.ones((5, 5, 6)))

    def bars(result):
        with warnings.catch_warnings():
            return result.interval(where), result.standard_error(where), str(result)

    alone = bars(lt.recover(A, y, RANK))
    result = lt.recover(A, y, RANK)
    for one in together(lambda k: bars(result)):
        np.testing.assert_array_equal(one[0], alone[0])
        np.testing.assert_array_equal(one[1], alone[1])
    assert isinstance(result.history, History)


def test_threads_share_a_stream_and_no_block_is_lost():
    A = lt.gaussian((4, 4, 4), 160, seed=1)
    y = A.forward(lt.random_tucker((4, 4, 4), RANK, seed=0))
    stream = lt.Online((4, 4, 4), RANK)

    def feed(k):
        for first in range(40 * k, 40 * (k + 1), 8):
            stream.update(A.matrix[first : first + 8], y[first : first + 8])
            stream.result()

    together(feed)
    assert stream.m == 160
    assert stream.result().residual < 1e-6


def test_threads_do_not_share_a_checkpoint(tmp_path):
    """One of them has it, the others are refused; nothing is lost or mixed."""
    A = lt.gaussian((5, 5, 6), 120, seed=1)
    y = A.forward(lt.random_tucker((5, 5, 6), RANK, seed=0))
    gate = threading.Barrier(4)

    def wait(progress):
        if progress.epoch == 1:
            gate.wait(30)

    def work(k):
        try:
            return lt.recover(
                A, y, RANK, solver="tiht", checkpoint=tmp_path / "run.ckpt", callbacks=[wait]
            )
        except BlockingIOError:
            gate.wait(30)
            return None

    found = [one for one in together(work) if one is not None]
    assert len(found) == 1
    assert_same(found[0], lt.recover(A, y, RANK, solver="tiht"))
