"""BLAS threads of a call."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (has a BLAS of its own)
from threadpoolctl import ThreadpoolController, threadpool_limits

import lowtucker as lt
from lowtucker._array.threads import OF_LIBRARIES, VARIABLE, few_blas_threads


class Library:
    """A BLAS with three threads, on machines that have fewer."""

    def __init__(self, threads=3):
        self.threads = threads

    def get_num_threads(self):
        return self.threads

    def set_num_threads(self, number):
        self.threads = number


@pytest.fixture
def library(monkeypatch):
    for name in (VARIABLE, *OF_LIBRARIES):
        monkeypatch.delenv(name, raising=False)
    one = Library()
    monkeypatch.setattr("lowtucker._array.threads._libraries", lambda with_scipy: [one])
    return one


@pytest.mark.parametrize(
    ("variables", "inside"),
    [
        ({}, 1),
        ({VARIABLE: "2"}, 2),
        ({VARIABLE: "8"}, 3),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": ""}, 1),
        ({"OPENBLAS_NUM_THREADS": "3", VARIABLE: "1"}, 1),
    ],
    ids=str,
)
def test_a_call_uses_few_threads_and_gives_them_back(library, monkeypatch, variables, inside):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    A = lt.gaussian((4, 4, 4), m=60, seed=1)
    y = A.forward(lt.random_tucker((4, 4, 4), (1, 1, 1), seed=0))
    seen = set()
    lt.recover(A, y, (1, 1, 1), callbacks=[lambda progress: seen.add(library.threads)])
    assert seen == {inside}
    assert library.threads == 3


def test_threads_are_given_back_after_an_error_and_after_nested_calls(library):
    def failing():
        with few_blas_threads():
            with few_blas_threads():
                assert library.threads == 1
            assert library.threads == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert library.threads == 3


def test_calls_in_parallel_threads_share_the_limit(library):
    inside, leave = threading.Event(), threading.Event()

    def other():
        with few_blas_threads():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with few_blas_threads():
        thread.start()
        assert inside.wait(10)
    assert library.threads == 1  # the other call is at work
    leave.set()
    thread.join()
    assert library.threads == 3


def test_a_lower_limit_stays(library):
    library.threads = 1
    with few_blas_threads():
        assert library.threads == 1
    assert library.threads == 1


@pytest.mark.parametrize("value", ["0", "-1", "two", "", "1.5"])
def test_a_wrong_variable_is_refused(library, monkeypatch, value):
    monkeypatch.setenv(VARIABLE, value)
    A = lt.gaussian((4, 4, 4), m=60, seed=1)
    with pytest.raises(ValueError, match=f"{VARIABLE} must be a positive integer"):
        lt.recover(A, np.ones(60), (1, 1, 1))


def test_the_libraries_of_numpy_and_scipy_are_found(monkeypatch):
    for name in (VARIABLE, *OF_LIBRARIES):
        monkeypatch.delenv(name, raising=False)

    def threads():
        """Those of NumPy and SciPy: torch, where a test has loaded it, has libraries of its own."""
        ours = ("numpy", "scipy")
        found = [one for one in ThreadpoolController().info() if one["user_api"] == "blas"]
        return [one["num_threads"] for one in found if any(x in one["filepath"] for x in ours)]

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with few_blas_threads():
            assert set(threads()) <= {1}
        assert threads() == before
