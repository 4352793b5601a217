"""What has no meaning is refused by name, before any work: the samplers."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt

M = 10
PROBLEM = lt.Problem(lt.gaussian((3, 2), M, seed=1), np.ones(M))
SAMPLERS = [lt.Partition, lt.Shuffled, lt.RandomRows]


@pytest.mark.parametrize("make", SAMPLERS)
@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (0, ValueError, "block_size must be at least 1, got 0"),
        (-3, ValueError, "block_size must be at least 1, got -3"),
        (2.0, TypeError, r"block_size must be an integer, got 2\.0"),
        (True, TypeError, "block_size must be an integer, got True"),
        ("3", TypeError, "block_size must be an integer, got '3'"),
        (None, TypeError, "block_size must be an integer, got None"),
        (np.array([3]), TypeError, "block_size must be an integer, got array"),
        (np.nan, TypeError, "block_size must be an integer, got nan"),
    ],
    ids=str,
)
def test_a_block_size_without_meaning_is_refused(make, given, error, message):
    with pytest.raises(error, match=message):
        make(given)


@pytest.mark.parametrize("make", SAMPLERS)
def test_a_block_larger_than_the_data_is_refused(make):
    with pytest.raises(ValueError, match=r"block_size = 11 must be between 1 and .*10"):
        make(11).bind(PROBLEM)
    assert make(10).bind(PROBLEM).n_blocks == 1


@pytest.mark.parametrize("make", SAMPLERS)
@pytest.mark.parametrize("given", [None, 5, np.ones(10)], ids=["None", "number", "array"])
def test_what_is_not_a_problem_is_refused(make, given):
    with pytest.raises(TypeError, match=f"problem must be a Problem.*{type(given).__name__}"):
        make(3).bind(given)


bad_p = {
    "name": ("foo", ValueError, "p must be None .*\"norms\" or a list of probabilities, got 'foo'"),
    "number": (0.5, ValueError, r"p must be a list of probabilities, got shape \(\)"),
    "matrix": ([[0.5, 0.5]], ValueError, r"p must be a list of probabilities, got shape \(1, 2\)"),
    "zero": ([0.5, 0.5, 0.0], ValueError, "p must be positive"),
    "negative": ([1.5, -0.5], ValueError, "p must be positive"),
    "nan": ([0.5, np.nan], ValueError, "p must be positive"),
    "infinite": ([0.5, np.inf], ValueError, "p must be positive"),
    "sum": ([0.5, 0.6], ValueError, r"p must sum to 1, got 1\.1"),
    "too-small-a-sum": ([0.5, 0.4], ValueError, r"p must sum to 1, got 0\.9"),
    "complex": ([0.5 + 0j, 0.5], ValueError, "p must be .*(real|dtype|complex)"),
    "booleans": ([True], ValueError, "p must be .*(real|dtype|bool)"),
    "strings": (["a", "b"], TypeError, "p must be an array of numbers, got dtype"),
    "objects": ([None, 1], TypeError, "p must be an array of numbers, got dtype object"),
    "ragged": ([[0.5], [0.2, 0.3]], ValueError, "p must be an array of numbers, got a ragged list"),
    "dict": ({0: 1.0}, TypeError, "p must be an array of numbers, got dict"),
    "empty": ([], ValueError, "p must "),
}


@pytest.mark.parametrize("name", bad_p)
def test_probabilities_without_meaning_are_refused(name):
    p, error, message = bad_p[name]
    with pytest.raises(error, match=message):
        lt.Partition(5, p=p)


def test_probabilities_of_the_wrong_length_say_how_many_blocks_there_are():
    with pytest.raises(
        ValueError, match="p must have one probability for each of the 4 blocks of 3 "
    ):
        lt.Partition(3, p=[0.5, 0.3, 0.2]).bind(PROBLEM)


def test_norms_of_a_block_of_zeros_are_refused():
    matrix = np.ones((4, 6))
    matrix[2:] = 0
    problem = lt.Problem(lt.DenseOperator(matrix, (3, 2)), np.ones(4))
    with pytest.raises(
        ValueError, match='p="norms" would never draw a block whose rows are all zero'
    ):
        lt.Partition(2, p="norms").bind(problem)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_norms_do_not_depend_on_the_scale_of_the_operator(scale):
    matrix = np.random.default_rng(0).standard_normal((10, 6))
    plain, scaled = (
        lt.Partition(3, p="norms").bind(
            lt.Problem(lt.DenseOperator(matrix * s, (3, 2)), np.ones(10))
        )
        for s in (1.0, scale)
    )
    for t in range(8):
        assert plain.draw(t).rows == scaled.draw(t).rows
        assert plain.draw(t).weight == pytest.approx(scaled.draw(t).weight, rel=1e-12)


def test_single_precision_probabilities_that_sum_to_one_are_taken():
    p = np.random.default_rng(0).random(10).astype(np.float32)
    p /= p.sum()
    assert lt.Partition(1, p=p).bind(PROBLEM).n_blocks == 10


@pytest.mark.parametrize("make", SAMPLERS)
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"t": -1}, ValueError, "t must be between 0 and .*, got -1"),
        ({"t": 1.5}, TypeError, r"t must be an integer, got 1\.5"),
        ({"t": None}, TypeError, "t must be an integer, got None"),
        ({"t": 0, "seed": -1}, ValueError, "seed must not be negative, got -1"),
        ({"t": 0, "seed": "a"}, TypeError, "seed must be an integer .*got 'a'"),
        ({"t": 0, "seed": (1, -2)}, ValueError, r"seed must not be negative, got \(1, -2\)"),
        ({"t": 0, "seed": (1, 2, 3)}, TypeError, r"seed must be .*got \(1, 2, 3\)"),
        ({"t": 0, "trials": 2.5}, TypeError, r"trials must .*2\.5"),
    ],
    ids=str,
)
def test_draws_without_meaning_are_refused(make, arguments, error, message):
    with pytest.raises(error, match=message):
        make(3).bind(PROBLEM).draw(**arguments)


@pytest.mark.parametrize("make", SAMPLERS)
def test_draws_can_be_compared(make):
    sampler = make(3).bind(PROBLEM)
    assert sampler.draw(4, seed=1) == sampler.draw(4, seed=1)


def test_samplers_are_values():
    assert lt.Partition(3) == lt.Partition(3)
    assert lt.Partition(3) != lt.Partition(4)
    bound = lt.Partition(3).bind(PROBLEM)
    assert lt.Partition(3).m == 0, "bind gives a copy"
    assert bound.bind(PROBLEM).draw(3, 2) == bound.draw(3, 2)


def test_draws_of_a_stack_can_be_compared():
    for make in SAMPLERS:
        sampler = make(3).bind(PROBLEM)
        one, other = sampler.draw(0, 1, (0, 1)), sampler.draw(0, 1, range(2))
        assert one == other
        assert one != sampler.draw(0, 1, (0, 1, 2))
        assert one != sampler.draw(0, 1)
        assert one != "draw"


def test_probabilities_of_a_stack_need_its_trials():
    A = lt.gaussian((3, 2), M, seed=1, trials=3)
    sampler = lt.Partition(5, p="norms").bind(lt.Problem(A, np.ones((3, M))))
    with pytest.raises(ValueError, match=r"bound to a stack of 3 trials.*got 1.*trials=range\(3\)"):
        sampler.draw(0)
    with pytest.raises(ValueError, match=r"bound to a stack of 3 trials.*got 2"):
        sampler.draw(0, 0, (0, 1))
    assert len(sampler.draw(0, 0, range(3)).rows) == 3


@pytest.mark.parametrize("make", SAMPLERS)
def test_seeds_and_steps_beyond_the_generator_are_refused_not_wrapped_around(make):
    sampler = make(3).bind(PROBLEM)
    with pytest.raises(ValueError, match=r"seed must be below 2\*\*64"):
        sampler.draw(0, seed=2**64)
    with pytest.raises(ValueError, match="t must be between 0 and"):
        sampler.draw(2**64)
    with pytest.raises(ValueError, match=r"seed must be below 2\*\*64"):
        lt.gaussian((3, 2), M, seed=2**64 + 1)
    largest = 2**64 - 1
    for t, seed in ((largest, 0), (0, largest), (0, (0, largest))):
        assert sampler.draw(t, seed) == make(3).bind(PROBLEM).draw(t, seed)
    rows = {tuple(np.arange(M)[lt.RandomRows(3).bind(PROBLEM).draw(0, largest - k).rows])
            for k in range(6)}  # fmt: skip
    assert len(rows) > 3, "large seeds differ in their last bits too"


@pytest.mark.parametrize("make", SAMPLERS)
def test_trials_far_apart_draw_what_they_draw_alone(make):
    sampler = make(3).bind(PROBLEM)
    together = sampler.draw(2, 5, (0, 10**12))
    for k, trial in enumerate((0, 10**12)):
        alone = sampler.draw(2, (5, trial))
        np.testing.assert_array_equal(np.arange(M)[together.rows[k]], np.arange(M)[alone.rows])


@pytest.mark.parametrize(
    ("trials", "error", "message"),
    [
        ((), ValueError, "trials must have at least one entry"),
        ((0, -1), ValueError, "trials must be between 0 and .*got -1"),
        ((0, 0.5), TypeError, r"trials must be a sequence of integers.*0\.5"),
        ("ab", TypeError, "trials must be a sequence of integers.*'ab'"),
    ],
    ids=str,
)
def test_trials_without_meaning_are_refused(trials, error, message):
    with pytest.raises(error, match=message):
        lt.Partition(3).bind(PROBLEM).draw(0, 0, trials)
