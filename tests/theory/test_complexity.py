"""Sample complexity, section 5 of the paper."""

from __future__ import annotations

import math

import pytest

import lowtucker as lt
from lowtucker.theory.complexity import sample_complexity


@pytest.mark.parametrize(
    ("shape", "rank", "delta", "constant", "expected"),
    [
        ((30, 30, 30), (3, 3, 3), 0.5, 1.0, 4 * (27 + 270)),
        ((30, 20, 10), (2, 4, 3), 0.5, 1.0, 4 * (64 + 3 * 30 * 4)),  # the largest n and r
        ((10, 10), (2, 2), 0.1, 1.0, 4400),
        ((10, 10), (2, 2), 0.1, 2.5, 11000),
        ((10,), (1,), 0.9, 1.0, math.ceil(11 / 0.81)),
        ((3, 3, 3), (6, 6, 6), 0.5, 1.0, 4 * (216 + 54)),  # 3r, beyond the shape
    ],
)
def test_sample_complexity_against_values_by_hand(shape, rank, delta, constant, expected):
    found = sample_complexity(shape, rank, delta, constant)
    assert isinstance(found, int)
    assert abs(found - expected) <= 1  # 1 / 0.1^2 is rounded
    assert found >= constant * (max(rank) ** len(shape)) / delta**2


def test_sample_complexity_is_rounded_up():
    assert sample_complexity((3, 3), (1, 1), 0.75) == 13  # 7 / 0.5625 = 12.4


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((0, 3), (1, 1), 0.5), ValueError, "shape must be a tuple of positive integers"),
        (((3, 3), (1, 0), 0.5), ValueError, r"rank\[1\] = 0 must be at least 1"),
        (((3, 3), (1, 1, 1), 0.5), ValueError, r"got 3 entries, \(1, 1, 1\), for shape \(3, 3\)"),
        (((3, 3), 2, 0.5), TypeError, "rank must have one entry per mode"),
        (((3, 3), (1, 1), 0.0), ValueError, "delta must be positive, got 0"),
        (((3, 3), (1, 1), 1.0), ValueError, r"delta must be between 0 and 1, got 1\. Try"),
        (((3, 3), (1, 1), "a"), TypeError, "delta must be a real number"),
        (((3, 3), (1, 1), 1e-200), ValueError, "delta = 1e-200 is too small"),
        (((3, 3), (1, 1), 0.5, -1), ValueError, "constant must be positive, got -1"),
    ],
)
def test_invalid_arguments_raise(arguments, error, message):
    with pytest.raises(error, match=message):
        sample_complexity(*arguments)


def test_unattainable_rank_warns():
    with pytest.warns(lt.RankWarning, match="try rank="):
        sample_complexity((5, 5, 5), (1, 1, 2), 0.5)
