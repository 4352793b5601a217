"""A Dask array as measurements: on a real cluster of two processes, and in threads."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager, suppress

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from distributed import Client, LocalCluster

import lowtucker as lt
from lowtucker.operators import engines

SHAPE, RANK, M = (6, 6, 5), (2, 2, 2), 140
N = 6 * 6 * 5
DEADLINE = 120
SOLVERS = {
    "auto": "auto",
    "tiht": lt.TIHT(),
    "tiht-fixed": lt.TIHT(step=0.5),
    "stotiht": lt.StoTIHT(block_size=50),
    "rsgd": lt.RSGD(),
    "rsgd-least-squares": lt.RSGD(least_squares=True),
    "rgn": lt.RGN(),
    "rgn-restarts": lt.RGN(starts=3, iht_steps=2),
    "rgn-products": lt.RGN(products=True),
    "rcg": lt.RCG(),
}


def quietly(make):
    """Ignore the warnings of Dask as a cluster starts and stops."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


def new_cluster(**options):
    return quietly(
        lambda: LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", **options)
    )


@contextmanager
def connected():
    """A new cluster, and a client of it."""
    cluster = new_cluster()
    client = quietly(lambda: Client(cluster, set_as_default=False))
    try:
        yield cluster, client
    finally:
        quietly(client.close)
        quietly(cluster.close)


@pytest.fixture(scope="module")
def client():
    with connected() as (_, client):
        yield client


@pytest.fixture
def mortal():
    """Cluster whose workers may be killed, and a client of it.

    Used once per nanny: one that has just restarted a worker may give it up.
    """
    with connected() as both:
        yield both


def eventually(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def problem():
    X = lt.random_tucker(SHAPE, RANK, seed=0)
    matrix = lt.gaussian(SHAPE, M, seed=1).matrix
    return matrix, matrix @ X.full().reshape(-1), X


def loaded(chunk=32):
    """The same matrix by a loader, in uneven chunks; a function that workers get by its text."""

    def rows_of(start, stop):
        return lt.gaussian(SHAPE, M, seed=1).matrix[start:stop]

    parts = [
        da.from_delayed(
            dask.delayed(rows_of, pure=True)(start, min(start + chunk, M)),
            (min(chunk, M - start), N),
            np.float64,
        )
        for start in range(0, M, chunk)
    ]
    return da.concatenate(parts)


def assert_same_run(a, b, bound=1e-9):
    """Check that rows on workers (a) are treated as those in memory (b)."""
    assert a.status == b.status
    assert a.epochs == b.epochs
    # where its numbers are asked for, workers compute a residual again
    assert b.passes - 1e-9 <= a.passes <= 1.3 * b.passes
    assert lt.metrics.relative_error(a.X, b.X) < bound


@pytest.mark.parametrize(
    ("where", "name"),
    [("threads", name) for name in SOLVERS]
    + [
        pytest.param("cluster", name, marks=[] if name in ("auto", "rgn") else pytest.mark.slow)
        for name in SOLVERS
    ]
    + [("not kept", name) for name in ("auto", "rgn", "rcg", "rsgd-least-squares")],
)
def test_the_result_is_that_of_a_matrix_in_memory(name, where, client, problem):
    matrix, y, _ = problem
    keep = where != "not kept"
    rows = loaded() if keep else loaded(75)  # which are computed in every pass: two chunks
    A = lt.from_dask(rows, SHAPE, client=client if where == "cluster" else None, keep=keep)
    ours = lt.recover(A, y, RANK, solver=SOLVERS[name])
    dense = lt.recover(matrix, y, RANK, shape=SHAPE, solver=SOLVERS[name])
    # TIHT's guard mistakes a first residual of 1 + 1e-16 for growth: rounding halves its first step
    assert_same_run(ours, dense)
    assert ours.success


@pytest.fixture(scope="module")
def harder(problem):
    """Measurements, options, and the result of a matrix in memory: weights, outliers, scale."""
    matrix, y, _ = problem
    rng = np.random.default_rng(0)
    noisy = y + 0.01 * np.std(y) * rng.standard_normal(M)
    weights = rng.uniform(0.5, 2, M) * (rng.random(M) > 0.1)
    wild = noisy.copy()
    wild[::20] += 30 * np.std(y)
    given = {
        "weights": (noisy, {"weights": weights}),
        "huber": (wild, {"loss": "huber"}),
        "scale": (noisy * 1e200, {}),
    }
    return {
        name: (v, more, lt.recover(matrix, v, RANK, shape=SHAPE, **more))
        for name, (v, more) in given.items()
    }


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("threads", "weights"),
        ("threads", "huber"),
        ("threads", "scale"),
        ("cluster", "weights"),
        ("cluster", "scale"),
        pytest.param("cluster", "huber", marks=pytest.mark.slow),
    ],
)
def test_noise_with_weights_outliers_and_a_large_scale(where, what, client, harder):
    y, options, dense = harder[what]
    A = lt.from_dask(loaded(), SHAPE, client=client if where == "cluster" else None)
    assert_same_run(lt.recover(A, y, RANK, **options), dense, 1e-7)


@pytest.mark.parametrize("where", [pytest.param("cluster", marks=pytest.mark.slow), "threads"])
def test_rank_search(where, client, problem):
    _, y, _ = problem
    A = lt.from_dask(loaded(), SHAPE, client=client if where == "cluster" else None)
    assert lt.recover(A, y, "auto").rank == RANK


def test_recover_takes_a_dask_array_with_the_client_of_the_session(problem):
    matrix, y, _ = problem
    array = da.from_array(matrix.reshape(M, *SHAPE), chunks=(40, -1, -1, -1))
    with new_cluster(processes=False) as cluster, quietly(lambda: Client(cluster)):
        A = lt.as_operator(array)
        assert isinstance(A.engine, engines.Cluster)
        assert_same_run(lt.recover(array, y, RANK), lt.recover(matrix, y, RANK, shape=SHAPE))
    assert isinstance(lt.as_operator(array).engine, engines.Threads)


def test_a_client_may_be_an_address(client, problem):
    _, y, X = problem
    A = lt.from_dask(loaded(), SHAPE, client=client.scheduler.address)
    np.testing.assert_allclose(A.forward(X), y, atol=1e-12)
    assert A.engine.client is not client
    quietly(A.engine.client.close)


def test_y_may_be_a_dask_array(client, problem):
    _, y, _ = problem
    A = lt.from_dask(loaded(), SHAPE, client=client)
    lazy, eager = (lt.recover(A, v, RANK) for v in (da.from_array(y, chunks=40), y))
    np.testing.assert_array_equal(lazy.history.residual, eager.history.residual)
    np.testing.assert_array_equal(lazy.X.core, eager.X.core)


def test_a_pickled_operator_finds_its_own_cluster(client, problem):
    _, y, X = problem
    A = lt.from_dask(loaded(), SHAPE, client=client)
    again = pickle.loads(cloudpickle.dumps(A))  # whose loader is a function of this test
    np.testing.assert_allclose(again.forward(X), y, atol=1e-12)
    assert isinstance(again.engine, engines.Threads)


# What travels


def test_a_vector_of_measurements_stays_on_the_workers(client, problem, monkeypatch):
    """An iteration sends no y and fetches no residual, unless its values are needed."""
    monkeypatch.setattr(engines, "LONG", 100)
    _, _, X = problem
    matrix = lt.gaussian(SHAPE, 3000, seed=1).matrix
    y = matrix @ X.full().reshape(-1)
    A = lt.from_dask(da.from_array(matrix, chunks=(800, -1)), SHAPE, client=client)
    T = lt.TangentSpace(X)
    sent, fetched = [], []
    submit, gather = client.submit, client.gather

    def watched_submit(function, *args, **options):
        sent.append(len(pickle.dumps([a for a in args if not _has_futures(a)])))
        return submit(function, *args, **options)

    def watched_gather(futures):
        answers = gather(futures)
        fetched.append(len(pickle.dumps(answers)))
        return answers

    D = A.tangent(T)
    D.normal_equations(y)
    monkeypatch.setattr(client, "submit", watched_submit)
    monkeypatch.setattr(client, "gather", watched_gather)
    equations = D.normal_equations(y)
    assert len(sent) == len(A.engine.groups) == 2
    assert sum(sent) < y.nbytes / 2
    assert sum(fetched) < 2 * 8 * (T.dof**2 + T.dof + 200) < y.nbytes
    fetched.clear()
    residual = equations.residual
    assert float(residual.norm) == pytest.approx(0, abs=1e-10)
    assert not fetched
    np.testing.assert_allclose(np.asarray(residual), y - matrix @ X.full().reshape(-1), atol=1e-12)
    assert fetched


def _has_futures(value):
    if isinstance(value, list | tuple):
        return any(map(_has_futures, value))
    return type(value).__name__ == "Future"


def test_a_changed_y_is_sent_again(client, problem, monkeypatch):
    monkeypatch.setattr(engines, "LONG", 100)
    matrix, y, _ = problem
    A = lt.from_dask(loaded(), SHAPE, client=client)
    y = y.copy()
    for _ in range(2):
        np.testing.assert_allclose(A.adjoint(y).reshape(-1), y @ matrix, atol=1e-9)
        y *= -3
    for k in range(2 * engines.VECTORS):  # more than are kept
        A.adjoint(y + k)
    assert len(A.engine._vectors) == engines.VECTORS


def test_many_sums_are_added_up_on_the_workers(client, problem, monkeypatch):
    matrix, y, _ = problem
    monkeypatch.setattr(engines, "FAN_IN", 2)
    monkeypatch.setattr(client, "nthreads", lambda: dict.fromkeys(_workers(client), 4))
    A = lt.from_dask(loaded(14), SHAPE, client=client)
    assert len(A.engine.groups) == 8
    gathered = []
    gather = client.gather
    monkeypatch.setattr(client, "gather", lambda f: gathered.append(len(f)) or gather(f))
    np.testing.assert_allclose(A.adjoint(y).reshape(-1), y @ matrix, atol=1e-9)
    assert gathered == [2]


def _workers(client):
    return list(client.scheduler_info()["workers"])


@pytest.mark.parametrize(
    ("rows", "count", "groups"),
    [
        ([10], 4, [[0]]),
        ([10, 10, 10, 10], 2, [[0, 1], [2, 3]]),
        ([100, 1, 1, 1], 2, [[0], [1, 2, 3]]),
        ([1, 1, 1, 100], 2, [[0, 1, 2], [3]]),
        ([5] * 7, 3, [[0, 1], [2, 3, 4], [5, 6]]),
    ],
)
def test_groups_are_runs_of_about_equal_length(rows, count, groups):
    assert [list(group) for group in engines._split(rows, count)] == groups


# Workers that die


def kill(cluster, count):
    """Kill worker processes for good: their nannies would start others."""
    for worker in list(cluster.workers.values())[:count]:
        nanny = worker.process.process
        os.kill(nanny.pid, signal.SIGKILL)


class Once:
    """Callback that does something after so many epochs, once."""

    def __init__(self, epoch, action):
        self.epoch, self.action, self.done = epoch, action, False

    def __call__(self, progress):
        if progress.epoch >= self.epoch and not self.done:
            self.done = True
            self.action()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["rgn", *(pytest.param(name, marks=pytest.mark.slow) for name in ("tiht-fixed", "rsgd"))],
)
def test_a_run_that_loses_a_worker_ends_with_the_same_bits(name, mortal, problem):
    (cluster, client), (_, y, _) = mortal, problem
    solver = SOLVERS[name]
    whole = lt.recover(lt.from_dask(loaded(), SHAPE, client=client), y, RANK, solver=solver)
    A = lt.from_dask(loaded(), SHAPE, client=client)
    homes = set(A.engine._homes)
    assert len(homes) == 2
    killer = Once(1, lambda: kill(cluster, 1))
    after = lt.recover(A, y, RANK, solver=solver, callbacks=[killer])
    assert killer.done
    assert set(A.engine._homes) != homes
    np.testing.assert_array_equal(after.X.core, whole.X.core)
    np.testing.assert_array_equal(after.history.residual, whole.history.residual)
    assert after.success


@pytest.mark.slow
def test_a_restarted_worker_gets_its_chunks_back(mortal, problem, monkeypatch):
    """Its nanny restarts it some seconds later."""
    monkeypatch.setattr(engines, "LOOK", 0.2)
    (cluster, client), (matrix, y, _) = mortal, problem
    A = lt.from_dask(loaded(), SHAPE, client=client)
    before = set(A.engine._homes)
    kill(cluster, 1)

    def there_are_two_again():
        np.testing.assert_allclose(A.adjoint(y).reshape(-1), y @ matrix, atol=1e-9)
        homes = set(A.engine._homes)
        return len(homes) == 2 and homes != before

    eventually(there_are_two_again)
    assert len(set(A.engine._homes) & before) == 1


@pytest.mark.slow
def test_a_run_survives_the_restart_of_all_workers(mortal, problem, monkeypatch):
    monkeypatch.setattr(engines, "LOOK", 0.2)
    monkeypatch.setattr(engines, "LONG", 100)
    monkeypatch.setattr(engines, "GRACE", DEADLINE)
    (cluster, client), (_, y, _) = mortal, problem
    solver = SOLVERS["tiht-fixed"]
    whole = lt.recover(lt.from_dask(loaded(), SHAPE, client=client), y, RANK, solver=solver)
    A = lt.from_dask(loaded(), SHAPE, client=client)
    before = set(A.engine._homes)
    killer = Once(2, lambda: kill(cluster, 2))
    after = lt.recover(A, y, RANK, solver=solver, callbacks=[killer])
    assert killer.done
    assert not set(A.engine._homes) & before
    np.testing.assert_array_equal(after.X.core, whole.X.core)


@contextmanager
def workers_of(cluster, count):
    """Worker processes without nannies: once dead, they stay so."""
    command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address,
               "--no-nanny", "--nthreads", "1", "--no-dashboard"]  # fmt: skip
    started = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_without_workers_the_error_names_the_cause_and_the_checkpoint_is_kept(
    problem, tmp_path, monkeypatch
):
    monkeypatch.setattr(engines, "LOOK", 0.2)
    _, y, _ = problem
    file = tmp_path / "run.ckpt"
    options = {"solver": lt.TIHT(step=0.5), "checkpoint": file}
    empty = quietly(lambda: LocalCluster(n_workers=0, dashboard_address=":0"))
    with (
        empty as cluster,
        quietly(lambda: Client(cluster, set_as_default=False)) as client,
        workers_of(cluster, 1) as workers,
    ):
        client.wait_for_workers(1, timeout=DEADLINE)
        A = lt.from_dask(loaded(), SHAPE, client=client)

        def end():
            monkeypatch.setattr(engines, "GRACE", 0.5)
            for process in workers:
                process.kill()

        with pytest.raises(ConnectionError, match=r"has no workers left.*checkpoint=") as e:
            lt.recover(A, y, RANK, callbacks=[Once(3, end)], **options)
    assert e.value.result.epochs >= 3
    assert file.exists()
    again = lt.recover(lt.from_dask(loaded(), SHAPE), y, RANK, **options)
    whole = lt.recover(lt.from_dask(loaded(), SHAPE), y, RANK, solver=options["solver"])
    assert again.success
    assert again.epochs == whole.epochs
    assert lt.metrics.relative_error(again.X, whole.X) < 1e-12


SCRIPT = """
import dask.array as da, lowtucker as lt
from distributed import Client, LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
        with Client(cluster):
            rows = da.random.default_rng(1).standard_normal((140, 180), chunks=(35, -1))
            A = lt.from_dask(rows, (6, 6, 5))
            y = A.forward(lt.random_tucker((6, 6, 5), (2, 2, 2), seed=0))
            callbacks = [lambda progress: progress.epoch == 3 and print("at work", flush=True)]
            found = lt.recover(A, y, (2, 2, 2), solver=lt.TIHT(step=0.001), tol=1e-14,
                               max_epochs=10**6, callbacks=callbacks)
            print(found.status.name, found.epochs, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent another way")
def test_ctrl_c_on_the_terminal_returns_the_best_result_so_far(tmp_path):
    """Workers of a LocalCluster receive the signal too, and exit."""
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, file], stdout=subprocess.PIPE, text=True, start_new_session=True,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stdout.readline() == "at work\n"
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=DEADLINE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert out.startswith("INTERRUPTED"), out + err
    assert int(out.split()[1]) >= 3


def test_a_lost_scheduler_is_an_error_too(problem, monkeypatch):
    monkeypatch.setattr(engines, "LOOK", 0.2)
    _, y, _ = problem
    cluster = new_cluster(processes=False)
    client = quietly(lambda: Client(cluster, set_as_default=False))
    A = lt.from_dask(loaded(), SHAPE, client=client)
    A.forward(np.ones(SHAPE))
    quietly(cluster.close)
    with pytest.raises(ConnectionError, match=r"Dask scheduler .*is gone|client is closed"):
        lt.recover(A, y, RANK)
    quietly(client.close)


def test_results_and_chunks_are_released(client):
    """Results and chunks are released when no longer needed, without a garbage collection.

    Only its own count: an error of another test keeps chunks in its traceback until one.
    """

    def kept():
        return {key for key, workers in client.who_has().items() if workers}

    others = kept()
    A = lt.from_dask(loaded(), SHAPE, client=client)
    A.forward(np.ones(SHAPE))
    mine = kept() - others
    assert mine
    del A
    eventually(lambda: not mine & kept())


# Bad input


ROWS = da.from_array(np.ones((20, N)), chunks=(5, -1))
NAN = np.ones((20, N))
NAN[12, 3] = np.nan
BAD = {
    "no Dask array": (np.ones((20, N)), SHAPE, {}, TypeError, "must be a Dask array.*from_array"),
    "columns": (
        ROWS.rechunk((5, 36)), SHAPE, {}, ValueError,
        r"chunked along axis 1, into 5 parts.*rechunk\(\{0: 'auto', 1: -1\}\)",
    ),
    "columns of tensors": (
        da.ones((20, *SHAPE), chunks=(5, -1, -1, 3)), None, {}, ValueError,
        r"along axis 3, into 2 parts.*1: -1, 2: -1, 3: -1",
    ),
    "unknown chunks": (ROWS[ROWS[:, 0] > 0], SHAPE, {}, ValueError, "compute_chunk_sizes"),
    "no shape": (ROWS, None, {}, ValueError, "shape is needed"),
    "other shape": (ROWS, (6, 6, 6), {}, ValueError, r"expected \(m, 216\)"),
    "vector": (da.ones(20), SHAPE, {}, ValueError, "one row per measurement"),
    "no rows": (da.ones((0, N)), SHAPE, {}, ValueError, "expected"),
    "text": (ROWS.astype(str), SHAPE, {}, TypeError, "holds <U.*astype"),
    "order": (ROWS, SHAPE, {"order": "K"}, ValueError, "order"),
    "keep": (ROWS, SHAPE, {"keep": "no"}, TypeError, "keep must be True or False"),
    "client": (ROWS, SHAPE, {"client": 3}, TypeError, "must be a distributed.Client"),
    "address": (ROWS, SHAPE, {"client": "localhost"}, ValueError, "address"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_advice(name):
    array, shape, options, kind, text = BAD[name]
    with pytest.raises(kind, match=text):
        lt.from_dask(array, shape, **options)


@pytest.mark.parametrize("where", ["cluster", "threads"])
def test_non_finite_rows_are_named(where, client):
    array = da.from_array(NAN, chunks=(5, -1))
    A = lt.from_dask(array, SHAPE, client=client if where == "cluster" else None)
    with pytest.raises(ValueError, match="NaN or infinite entries, in row 2 of its chunk 2"):
        A.forward(np.ones(SHAPE))


def test_an_exception_of_a_loader_reaches_the_user(client):
    def broken(start):
        raise FileNotFoundError(f"rows-{start}.npy is not there")

    parts = [da.from_delayed(dask.delayed(broken)(k), (5, N), float) for k in range(2)]
    A = lt.from_dask(da.concatenate(parts), SHAPE, client=client)
    with pytest.raises(FileNotFoundError, match=r"rows-\d\.npy is not there"):
        A.forward(np.ones(SHAPE))


@pytest.mark.parametrize("wrong", [np.ones((4, N)), np.ones((5, N - 1)), 1j * np.ones((5, N))])
def test_a_loader_whose_output_differs_from_its_declaration_is_named(wrong):
    parts = [da.from_delayed(dask.delayed(x), (5, N), float) for x in (np.ones((5, N)), wrong)]
    A = lt.from_dask(da.concatenate(parts), SHAPE)
    with pytest.raises(
        ValueError, match=r"Chunk 1 of A is an array of shape .*declares \(5, 180\)"
    ):
        A.forward(np.ones(SHAPE))


def test_sparse_chunks_are_accepted(problem):
    matrix, y, X = problem
    parts = [
        da.from_delayed(dask.delayed(scipy.sparse.csr_array)(matrix[k : k + 70]), (70, N), float)
        for k in (0, 70)
    ]
    np.testing.assert_allclose(lt.from_dask(da.concatenate(parts), SHAPE).forward(X), y, atol=1e-12)


def test_an_error_leaves_nothing_on_the_workers(client):
    for _ in range(2):
        with pytest.raises(ValueError, match="NaN"):
            lt.from_dask(da.from_array(NAN, chunks=(5, -1)), SHAPE, client=client).forward(
                np.ones(SHAPE)
            )

    def let_go():
        gc.collect()
        return not client.futures

    eventually(let_go)


def test_chunks_that_do_not_fit_warn_and_are_computed_again(client, problem, monkeypatch):
    _, y, X = problem
    monkeypatch.setattr(engines, "_memory", lambda *_: 1e5)
    with pytest.warns(UserWarning, match="more than the workers can keep"):
        A = lt.from_dask(loaded(), SHAPE, client=client)
    assert not A.engine.keep
    np.testing.assert_allclose(A.forward(X), y, atol=1e-12)
