"""What the logger ``lowtucker`` tells, and that it is silent by default."""

from __future__ import annotations

import logging
import subprocess
import sys

import numpy as np
import pytest

import lowtucker as lt

SHAPE, RANK = (5, 5, 6), (1, 2, 2)


@pytest.fixture
def lines(caplog):
    """Messages so far, of a level."""
    caplog.set_level(logging.DEBUG, logger="lowtucker")

    def of(level):
        assert all(r.name.startswith("lowtucker.") for r in caplog.records)
        return [r.getMessage() for r in caplog.records if r.levelno == level]

    return of


def measured(m=120, noise=0.0):
    A = lt.gaussian(SHAPE, m=m, seed=1)
    y = A.forward(lt.random_tucker(SHAPE, RANK, seed=0))
    return A, y + noise * np.random.default_rng(0).standard_normal(m)


def test_info_tells_the_call_its_phases_and_the_verdict(lines):
    result = lt.recover(*measured(noise=0.01), rank=RANK)
    first, choice, start, *others = lines(logging.INFO)
    assert first == (
        "lt.recover(A, y, rank=(1, 2, 2)): 120 measurements of a tensor of shape (5, 5, 6)."
    )
    assert "5.45 measurements per degree of freedom. Auto takes RSGD, then RGN: that is" in choice
    assert start.startswith("The fit of rank (1, 2, 2) starts with RSGD(least_squares=True)")
    assert any("RSGD stalled at a residual of" in one and "takes over" in one for one in others)
    assert f"{result.passes:.1f} passes over the rows" in others[-1]
    assert others[-1].startswith("Result: recovered up to noise. Residual")


def test_debug_tells_every_epoch_of_the_history(lines):
    result = lt.recover(*measured(), rank=RANK)
    epochs = [one for one in lines(logging.DEBUG) if one.startswith("Epoch ")]
    assert len(epochs) == result.history.rows
    assert f"residual {result.residual:.2e}" in epochs[-1]


def test_info_tells_restarts(lines):
    A = lt.gaussian((8, 8, 8), 60, seed=1)
    X = lt.random_tucker((8, 8, 8), (2, 2, 2), seed=0)
    result = lt.recover(A, A.forward(X), (2, 2, 2))
    assert "RGN restart 1" in result.history["phase"]
    assert "The fit of rank (2, 2, 2) tries start 2." in lines(logging.INFO)


def test_info_tells_held_out_errors_of_ranks(lines):
    lt.recover(*measured(), rank="auto")
    assert any("Rank (1, 1, 1) predicts held-out data to 0." in x for x in lines(logging.INFO))
    assert any(one.startswith("Rank (1, 2, 2) was found.") for one in lines(logging.INFO))


def test_info_tells_what_was_chosen_without_a_rank(lines):
    full = np.array(lt.random_tucker((8, 8, 8), (2, 2, 2), seed=0).full())
    full[np.random.default_rng(0).random(full.shape) < 0.5] = np.nan
    lt.complete(full)
    said = "\n".join(lines(logging.INFO))
    assert "Shrinkage (product prior) predicts fold 1 to " in said
    assert "The spectra have a gap after rank (2, 2, 2): it is fitted too." in said
    assert "Rank (2, 2, 2) is kept: it predicts held-out measurements as well" in said


def test_a_batch_is_summed_up(lines):
    A, y = measured()
    lt.recover(A, np.stack([y, 2 * y, -y]), RANK)
    assert "3 problems of 120 measurements" in lines(logging.INFO)[0]
    assert "3 of 3 problems recovered" in lines(logging.INFO)[-1]


CODE = """
import logging, sys
{set_up}
import lowtucker as lt
A = lt.gaussian((5, 5, 6), m=120, seed=1)
lt.recover(A, A.forward(lt.random_tucker((5, 5, 6), (1, 2, 2), seed=0)), (1, 2, 2))
logging.getLogger("lowtucker").warning("a warning")
"""


@pytest.mark.parametrize(
    ("set_up", "said"), [("", ""), ("logging.basicConfig(level=logging.INFO)", "Result: recovered")]
)
def test_nothing_is_written_unless_logging_is_set_up(set_up, said):
    code = CODE.format(set_up=set_up)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert said in done.stderr
    assert bool(done.stderr) == bool(said)
