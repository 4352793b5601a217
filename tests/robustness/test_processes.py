"""No leaks; threads and processes give the same results; a seed determines everything."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import warnings

import numpy as np
import psutil
import pytest
import threadpoolctl

import lowtucker as lt
from runs import CALLS, assert_same, undisturbed

RANK = (1, 2, 2)


def recovery(seed, solver="auto"):
    A = lt.gaussian((5, 5, 6), 120, seed=seed)
    y = A.forward(lt.random_tucker((5, 5, 6), RANK, seed=seed))
    return lt.recover(A, y, RANK, solver=solver, seed=seed)


def numbers_of(name):
    """Result of a call, as values that can be sent between processes."""
    with threadpoolctl.threadpool_limits(1):
        result = CALLS[name]()()
    return result.X.core, result.X.factors, result.history["residual"], result.status.name


def assert_same_numbers(one, other):
    np.testing.assert_array_equal(one[0], other[0])
    for U, V in zip(one[1], other[1], strict=True):
        np.testing.assert_array_equal(U, V)
    np.testing.assert_array_equal(one[2], other[2])
    assert one[3] == other[3]


@pytest.mark.slow
def test_five_hundred_recoveries_leak_no_memory():
    process, threads = psutil.Process(), threading.active_count()  # other tests leave some
    solvers = ["auto", lt.TIHT(step=0.5), lt.StoTIHT(block_size=60, step=0.5), "rgn", "rcg"]
    sizes = []
    for k in range(600):
        recovery(k % 7, solvers[k % 5])
        if k >= 100 and k % 100 == 99:  # the first ones fill caches
            gc.collect()
            sizes.append(process.memory_info().rss)
    assert max(sizes) <= 1.05 * sizes[0], sizes
    assert threading.active_count() <= threads


def test_files_are_closed(tmp_path):
    process = psutil.Process()
    before = len(process.open_files())
    matrix = lt.gaussian((5, 5, 6), 120, seed=1).matrix
    np.save(tmp_path / "A.npy", matrix)
    y = matrix @ lt.random_tucker((5, 5, 6), RANK, seed=0).full().ravel()
    for k in range(5):
        A = lt.stored(tmp_path / "A.npy", (5, 5, 6))
        assert lt.recover(A, y, RANK, checkpoint=tmp_path / f"{k}.ckpt").success
    del A
    gc.collect()
    assert len(process.open_files()) == before


@pytest.mark.parametrize("name", ["auto", "StoTIHT", "RGN-starts", "rank unknown", "completion"])
def test_parallel_threads_give_the_results_of_sequential_runs(name):
    alone = undisturbed(name)
    found = {}

    def work(k):
        with warnings.catch_warnings():
            found[k] = CALLS[name]()()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(found[0], alone)
    assert_same(found[1], alone)


def test_two_threads_share_an_operator_and_a_problem():
    A = lt.gaussian((5, 5, 6), 120, seed=1)
    problem = lt.Problem(A, A.forward(lt.random_tucker((5, 5, 6), RANK, seed=0)))
    solver = lt.StoTIHT(block_size=40, step=0.4)
    alone = [lt.solve(problem, solver, RANK, seed=k) for k in range(4)]
    found = {}
    threads = [
        threading.Thread(
            target=lambda k=k: found.update({k: lt.solve(problem, solver, RANK, seed=k)})
        )
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        assert_same(found[k], alone[k])


@pytest.mark.parametrize("way", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_other_processes_give_the_same_results(way):
    if way not in multiprocessing.get_all_start_methods():
        pytest.skip(f"there is no {way} here")
    names = ["auto", "StoTIHT"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX and Python 3.12 warn of forks beside threads
        # one is enough where each imports everything
        with multiprocessing.get_context(way).Pool(2 if way == "fork" else 1) as pool:
            found = pool.map(numbers_of, names)
    for name, numbers in zip(names, found, strict=True):
        assert_same_numbers(numbers, numbers_of(name))


@pytest.mark.parametrize("name", CALLS)
def test_a_seed_gives_the_same_bits_again(name):
    assert_same(CALLS[name]()(), undisturbed(name))


@pytest.mark.parametrize("name", ["auto", "StoTIHT", "RCG", "ALS", "huber"])
def test_small_problems_do_not_depend_on_the_threads_of_blas(name):
    """Small: OpenBLAS splits larger products, and sums then round otherwise (docs/promises.md)."""
    results = []
    for threads in (1, os.cpu_count() or 1):
        with threadpoolctl.threadpool_limits(threads, user_api="blas"):
            results.append(CALLS[name]()())
    assert_same(*results)
