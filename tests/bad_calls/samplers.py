"""Samplers: block sizes, probabilities and draws."""

from __future__ import annotations

from functools import partial

import numpy as np

import lowtucker as lt

M = 10
PROBLEM = lt.Problem(lt.gaussian((3, 2), M, seed=1), np.ones(M))
SAMPLERS = [lt.Partition, lt.Shuffled, lt.RandomRows, lt.KaczmarzRows]

BLOCK_SIZES = [
    (0, ValueError, "block_size must be at least 1, got 0"),
    (-3, ValueError, "block_size must be at least 1, got -3"),
    (2.0, TypeError, "block_size must be an integer, got 2.0"),
    (True, TypeError, "block_size must be an integer, got True"),
    ("3", TypeError, "block_size must be an integer, got '3'"),
    (None, TypeError, "block_size must be an integer, got None"),
    (np.array([3]), TypeError, "block_size must be an integer, got array"),
    (np.nan, TypeError, "block_size must be an integer, got nan"),
]

NOT_PROBLEMS = [
    (None, "problem must be a Problem, got NoneType. Try lowtucker.Problem(A"),
    (5, "problem must be a Problem, got int"),
    (np.ones(10), "problem must be a Problem, got ndarray"),
]

DRAWS = [
    ({"t": -1}, ValueError, "t must be between 0 and ... got -1"),
    ({"t": 2**64}, ValueError, "t must be between 0 and"),
    ({"t": 1.5}, TypeError, "t must be an integer, got 1.5"),
    ({"t": None}, TypeError, "t must be an integer, got None"),
    ({"t": 0, "seed": -1}, ValueError, "seed must not be negative, got -1"),
    ({"t": 0, "seed": 2**64}, ValueError, "seed must be below 2**64"),
    ({"t": 0, "seed": "a"}, TypeError, "seed must be an integer or a pair ... got 'a'"),
    ({"t": 0, "seed": (1, -2)}, ValueError, "seed must not be negative, got (1, -2)"),
    ({"t": 0, "seed": (1, 2, 3)}, TypeError, "seed must be ... got (1, 2, 3)"),
    ({"t": 0, "trials": 2.5}, TypeError, "trials must ... 2.5"),
]


def of_every_sampler():
    for make in SAMPLERS:
        for size, error, text in BLOCK_SIZES:
            yield partial(make, size), error, text
        yield (
            lambda make=make: make(11).bind(PROBLEM),
            ValueError,
            "block_size = 11 must be between 1 and the number of measurements, 10",
        )
        for value, text in NOT_PROBLEMS:
            yield partial(make(3).bind, value), TypeError, text
        for arguments, error, text in DRAWS:
            yield partial(make(3).bind(PROBLEM).draw, **arguments), error, text


BAD_P = [
    (
        "foo",
        ValueError,
        "p must be None (uniform), \"norms\" or a list of probabilities, got 'foo'",
    ),
    (0.5, ValueError, "p must be a list of probabilities, got shape ()"),
    ([[0.5, 0.5]], ValueError, "p must be a list of probabilities, got shape (1, 2). Try p=None"),
    ([0.5, 0.5, 0.0], ValueError, "p must be positive"),
    ([1.5, -0.5], ValueError, "p must be positive ... Try p=None (uniform)"),
    ([0.5, np.nan], ValueError, "p must be positive"),
    ([0.5, np.inf], ValueError, "p must be positive"),
    ([0.5, 0.6], ValueError, "p must sum to 1, got 1.1"),
    ([0.5, 0.4], ValueError, "p must sum to 1, got 0.9"),
    ([0.5 + 0j, 0.5], ValueError, "p must be real numbers, got dtype complex128"),
    ([True], ValueError, "p must be real numbers, got dtype bool"),
    (["a", "b"], TypeError, "p must be an array of numbers, got dtype"),
    ([None, 1], TypeError, "p must be an array of numbers, got dtype object"),
    ([[0.5], [0.2, 0.3]], ValueError, "p must be an array of numbers, got a ragged list"),
    ({0: 1.0}, TypeError, "p must be an array of numbers, got dict"),
    ([], ValueError, "p must "),
]


def problem_with_zero_rows():
    matrix = np.ones((4, 6))
    matrix[2:] = 0
    return lt.Problem(lt.DenseOperator(matrix, (3, 2)), np.ones(4))


def rows_of_a_batch():
    A = lt.gaussian((3, 2), M, seed=1, trials=3)
    return lt.KaczmarzRows(5).bind(lt.Problem(A, np.ones((3, M))))


def norms_of_a_batch():
    A = lt.gaussian((3, 2), M, seed=1, trials=3)
    return lt.Partition(5, p="norms").bind(lt.Problem(A, np.ones((3, M))))


ROWS = [
    *of_every_sampler(),
    *((partial(lt.Partition, 5, p=p), error, text) for p, error, text in BAD_P),
    (lambda: lt.Shuffled(5).bind(PROBLEM.A), TypeError, "problem must ... Try lowtucker.Problem(A"),
    (lambda: lt.RandomRows(5).draw(0), ValueError, "RandomRows does not know its problem yet:"),
    (
        lambda: lt.Shuffled(5).bind(PROBLEM).draw(0, seed="x"),
        TypeError,
        "seed must be an integer or a pair",
    ),
    (
        lambda: lt.Shuffled(5).bind(PROBLEM).draw(0, trials=b"x"),
        TypeError,
        "trials must ... Try trials=range(2)",
    ),
    (
        lambda: lt.Partition(5).bind(PROBLEM).draw(0, trials=5),
        TypeError,
        "trials must ... Try trials=range(2)",
    ),
    (
        lambda: lt.Partition(3, p=[0.5, 0.3, 0.2]).bind(PROBLEM),
        ValueError,
        "p must have one probability for each of the 4 blocks of 3 out",
    ),
    (
        lambda: lt.Partition(2, p="norms").bind(problem_with_zero_rows()),
        ValueError,
        'p="norms" would never draw a block whose rows are all zero. Remove the zero',
    ),
    (
        lambda: norms_of_a_batch().draw(0),
        ValueError,
        'p="norms" was bound to a ... of 3 ... got 1 ... trials=range(3)',
    ),
    (
        lambda: norms_of_a_batch().draw(0, 0, (0, 1)),
        ValueError,
        'p="norms" was bound to a ... of 3 ... got 2',
    ),
    (
        lambda: rows_of_a_batch().draw(0),
        ValueError,
        "KaczmarzRows was bound to a batch of 3 ... got 1 ... trials=range(3)",
    ),
    (
        lambda: rows_of_a_batch().draw(0, 0, (0, 1)),
        ValueError,
        "KaczmarzRows was bound to a batch of 3 ... got 2",
    ),
    (
        lambda: lt.Partition(3).bind(PROBLEM).draw(0, 0, ()),
        ValueError,
        "trials must have at least one entry ... Try trials=range(2)",
    ),
    (
        lambda: lt.Partition(3).bind(PROBLEM).draw(0, 0, (0, -1)),
        ValueError,
        "trials must be between 0 and ... got -1",
    ),
    (
        lambda: lt.Partition(3).bind(PROBLEM).draw(0, 0, (0, 0.5)),
        TypeError,
        "trials must be a sequence of integers ... 0.5",
    ),
    (
        lambda: lt.Partition(3).bind(PROBLEM).draw(0, 0, "ab"),
        TypeError,
        "trials must be a sequence of integers ... 'ab'",
    ),
    (lambda: lt.gaussian((3, 2), M, seed=2**64 + 1), ValueError, "seed must be below 2**64"),
]
