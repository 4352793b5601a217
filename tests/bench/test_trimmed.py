"""The published counts of TrimTIHT and KaczTIHT, and how they are measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.lab.bench import trimmed
from lowtucker.lab.bench.trimmed import NAMES, PUBLISHED, chosen, measure


def test_every_count_has_a_solver_with_the_published_settings():
    assert chosen(NAMES) == list(PUBLISHED)
    for cell in PUBLISHED:
        assert 0 <= cell.published <= 50
        assert cell.solver().step == 1.0
        assert isinstance(cell.solver().thresholding, lt.HOOI)
    trim = next(cell for cell in PUBLISHED if cell.method == "TrimTIHT").solver(40).trim
    assert trim == 40 / 200


def test_unknown_works_are_refused():
    with pytest.raises(ValueError, match=r"Unknown yardstick 'A9'. Choose from A2, A3, A4"):
        chosen(["A9"])


@pytest.mark.slow
def test_a_row_counts_and_compares():
    cell = replace(chosen(["A2"])[2], m=600)
    row = measure(cell, trials=2, problems=1)
    assert (row.work, row.method, row.m, row.trials) == ("A2", "TrimTIHT", 600, 2)
    assert row.recovered == 2
    assert row.left_out in cell.candidates
    assert row.agrees
    assert row.p_value == pytest.approx(1.0)


def test_a_count_that_differs_does_not_agree():
    cell = replace(chosen(["A4"])[1], published=50)  # TIHT, which fails
    assert not measure(cell, trials=2).agrees


def test_rank_one_rows_are_outer_products():
    A = trimmed._outer(3, 0, 0, 2)
    row = A.matrix[1, 2].reshape(15, 15, 15)
    assert lt.multilinear_rank(row) == (1, 1, 1)
    assert np.linalg.norm(A.matrix[0] - A.matrix[1]) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("method", "m"), [("TrimTIHT", 300), ("TIHT", 500)])
def test_published_counts_are_reproduced_within_sampling_error(method, m):
    cell = next(one for one in chosen(["A2"]) if (one.method, one.m) == (method, m))
    assert measure(cell).agrees
