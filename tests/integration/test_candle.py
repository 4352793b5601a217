"""Real data: the candle clip of the paper's Figures 6 and 7, if available."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lowtucker as lt

FILE = Path(__file__).parents[3] / "shared" / "data" / "candle_5_A.mat"
RANK = (8, 8, 2)


@pytest.fixture(scope="module")
def clip():
    if not FILE.exists():
        pytest.skip(f"the candle clip is third-party data; not found at {FILE}")
    frames = lt.io.load_array(FILE, "grayMat")
    assert frames.shape == (110, 160, 75)
    assert frames.dtype == np.uint8
    return frames[60:90, 70:100, :10] / 255


def test_truncations_have_the_reference_errors(clip):
    """PAPER.md section 3: HOSVD 0.0926, the best rank-(8,8,2) approximation 0.0903."""
    assert lt.metrics.relative_error(lt.hosvd(clip, RANK), clip) == pytest.approx(0.0926, abs=5e-5)
    assert lt.metrics.relative_error(lt.hooi(clip, RANK), clip) == pytest.approx(0.0903, abs=5e-5)


@pytest.mark.slow
def test_clip_is_recovered_from_fewer_measurements_than_pixels(clip):
    """The clip is not of low rank: the run stalls near the best approximation."""
    A = lt.gaussian(clip.shape, 4000, seed=0, dtype=np.float32)
    result = lt.recover(A, A.forward(clip), RANK, X_true=clip, max_epochs=80)
    assert lt.metrics.relative_error(result.X.full(), clip) < 0.115
    assert lt.metrics.psnr(result.X.full(), clip, data_range=1) > 20
    assert not result.success
