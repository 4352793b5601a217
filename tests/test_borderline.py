"""A decision close to its threshold is reported as borderline; a clear one is not."""

from __future__ import annotations

import numpy as np
import pytest

import lowtucker as lt
from lowtucker.recovery import diagnosis
from lowtucker.recovery.evidence import Evidence
from lowtucker.recovery.fit import noise_floor
from lowtucker.solvers.models import covariance_error, eigenvalues, full_rank_margin

SHAPE, RANK = (8, 7, 6), (2, 2, 2)
A = lt.gaussian(SHAPE, 300, seed=0)
X = lt.random_tucker(SHAPE, RANK, seed=1)
CLEAN = A.forward(X)
NOISE = 0.05 * np.std(CLEAN)
NOISY = CLEAN + NOISE * np.random.default_rng(2).standard_normal(A.m)


def test_a_clear_result_is_not_borderline():
    for y in (CLEAN, NOISY):
        result = lt.recover(A, y, RANK)
        assert result.success
        assert result.borderline == ()
        assert "orderline" not in repr(result)


@pytest.mark.parametrize(("limit", "success"), [(1.1, True), (1 / 1.1, False)])
def test_an_estimate_close_to_the_limit(monkeypatch, limit, success):
    estimate = lt.recover(A, NOISY, RANK).error_estimate
    monkeypatch.setattr(diagnosis, "HOPELESS", limit * estimate)
    result = lt.recover(A, NOISY, RANK)
    assert result.success == success
    (remark,) = result.borderline
    assert remark.startswith("The estimated error, ")
    assert f"borderline  {remark}" in repr(result)
    monkeypatch.setattr(diagnosis, "HOPELESS", limit**10 * estimate)
    assert lt.recover(A, NOISY, RANK).borderline == ()


ROWS = [np.random.default_rng((5, k)).standard_normal((300, n)) for k, n in enumerate(SHAPE)]


@pytest.mark.parametrize("B", [A, lt.rank_one(ROWS)], ids=["gaussian", "rank-one"])
def test_a_residual_whose_structure_is_close_to_that_of_noise(monkeypatch, B):
    y = B.forward(X)
    y = y + 0.05 * np.std(y) * np.random.default_rng(2).standard_normal(B.m)
    clear = lt.recover(B, y, RANK, solver="rgn")
    assert clear.status is lt.Status.NOISE_FLOOR
    assert clear.borderline == ()
    found = Evidence(lt.Problem(B, y), clear, 0).structure
    for above, near in ((0.1, True), (-0.1, True), (0.9, True), (1.1, False), (-1.1, False)):
        for name in ("STRUCTURE", "DOUBTFUL"):
            monkeypatch.setattr(diagnosis, name, found.excess + above)
        result = lt.recover(B, y, RANK, solver="rgn")
        assert result.status is (lt.Status.NOISE_FLOOR if above > 0 else lt.Status.STALLED)
        remark = f"The residual exceeds noise by {found.excess:.1f} standard deviations"
        assert [one.startswith(remark) for one in result.borderline] == [True] * near
        numbers = [one.numbers for one in result.findings if one.kind == "structure"]
        assert [one["excess"] for one in numbers] == [pytest.approx(found.excess)] * near


def test_a_residual_close_to_the_tolerance():
    noisy = CLEAN + 1e-3 * (NOISY - CLEAN)
    least = lt.recover(A, noisy, RANK).residual
    for share, near in ((0.9, True), (0.1, False)):
        result = lt.recover(A, noisy, RANK, solver="rgn", tol=share * least, noise_std=1e-9)
        assert not result.success
        assert bool(result.borderline) == near
    assert result.residual == pytest.approx(least)


def test_a_residual_close_to_the_noise_floor():
    std = noise_floor(lt.Problem(A, NOISY), NOISE, lt.degrees_of_freedom(SHAPE, RANK))
    fitted = lt.recover(A, NOISY, RANK).residual
    spare = A.m - lt.degrees_of_freedom(SHAPE, RANK)
    seen = {}
    half = 0.5 * np.sqrt(2 * spare)
    # of the residual above the floor: half more may still be noise, if it has no structure
    for deviations in (-2.0, -0.25, 0.25, 2.0, 0.95 * half, 1.05 * half):
        floor = fitted / (1 + deviations / np.sqrt(2 * spare))
        result = lt.recover(A, NOISY, RANK, noise_std=NOISE * floor / float(std))
        seen[deviations] = result.success, bool(result.borderline)
        assert result.status is (lt.Status.NOISE_FLOOR if result.success else
                                 lt.Status.LOCAL_MINIMUM)  # fmt: skip
    assert seen == {
        -2.0: (True, False),
        -0.25: (True, True),
        0.25: (True, True),
        2.0: (True, False),
        0.95 * half: (True, False),
        1.05 * half: (False, False),
    }


def test_more_than_the_given_noise_leaves_is_none_if_it_has_structure():
    """A misfit of half the size of the noise is no noise, though the noise is given."""
    more = A.forward(lt.random_tucker(SHAPE, (1, 1, 1), seed=7))
    y = NOISY + 0.6 * NOISE * more / np.std(more)
    result = lt.recover(A, y, RANK, noise_std=NOISE)
    floor = float(noise_floor(lt.Problem(A, y), NOISE, lt.degrees_of_freedom(SHAPE, RANK)))
    assert floor < result.residual < 1.5 * floor
    assert result.status is lt.Status.RANK_TOO_SMALL


def test_a_tangent_design_that_is_almost_rank_deficient():
    """A slice is measured ever more faintly: close to rounding level it is reported."""
    for faint, determined, near in ((1.0, True, False), (1e-6, True, True), (1e-9, False, False)):
        scales = np.ones(SHAPE)
        scales[0] = faint
        B = lt.DenseOperator(A.matrix.reshape(A.m, *SHAPE) * scales, SHAPE)
        result = lt.recover(B, B.forward(X), RANK, start=X, solver="tiht")
        values = eigenvalues(lt.Problem(B, B.forward(X)), result.X)
        assert (full_rank_margin(values) > 1) == determined
        assert result.success == determined
        assert bool(result.borderline) == near


def test_a_value_at_rounding_level_gives_no_estimate():
    problem = lt.Problem(A, NOISY)
    values = eigenvalues(problem, X)
    assert covariance_error(problem, X, values, 0.05) == pytest.approx(
        0.05 * np.linalg.norm(NOISY) * np.sqrt(np.sum(1 / values) / (A.m - len(values)))
        / float(X.norm())
    )  # fmt: skip
    for least in (0.0, -1e-16, 1e-16):
        values[0] = least * values[-1]
        assert full_rank_margin(values) < 1
        assert covariance_error(problem, X, values, 0.05) is None
    assert covariance_error(lt.Problem(A.restrict(slice(0, 30)), NOISY[:30]), X, values, 1) is None


def test_a_block_represents_all_rows_only_if_they_are_isotropic():
    """A block of entries may miss a slice: its smallest eigenvalue is then at rounding level."""
    index = np.argwhere(np.random.default_rng(0).random(SHAPE) < 0.7)
    for B, tells in ((A, True), (lt.entries(SHAPE, index), False)):
        problem = lt.Problem(B, B.forward(X))
        result = lt.solve(problem, lt.RSGD(least_squares=True), RANK)
        assert result.success
        assert (result.error_estimate is not None) == tells
    # the verdict then uses all rows
    result = lt.recover(B, problem.y, RANK, solver=lt.RSGD(least_squares=True))
    error = float(lt.metrics.relative_error(result.X, X))
    assert error / 10 < result.error_estimate < 10 * error


def test_a_rank_chosen_by_a_small_margin_names_the_runners_up():
    """One direction fades from far above the noise to far below: somewhere it is borderline."""
    seen = []
    rng = np.random.default_rng(7)
    noise = rng.standard_normal(A.m)
    parts = [lt.random_tucker(SHAPE, (1, 1, 1), seed=s) for s in (4, 5)]
    first, second = (A.forward(part) / np.linalg.norm(A.forward(part)) for part in parts)
    for size in (0.3, 0.08, 0.06, 0.05, 0.0):
        y = first + size * second + 0.1 * noise / np.linalg.norm(noise)
        found = lt.recover(A, y, "auto")
        close = [one for one in found.findings if one.kind == "rank"]
        for one in close:
            rivals = one.numbers["rivals"]
            over = ", ".join(map(str, rivals))
            assert one.text == f"Rank {found.rank} was chosen by a small margin over {over}."
            assert one.text in found.borderline
            assert one.numbers["rank"] == found.rank not in rivals
            assert list(rivals) == sorted(rivals)
        seen.append((found.rank, bool(close)))
    assert seen[0] == ((2, 2, 2), False)
    assert seen[-1] == ((1, 1, 1), False)
    assert any(near for _, near in seen)


def test_remarks_are_kept_in_files(tmp_path, monkeypatch):
    estimate = lt.recover(A, NOISY, RANK).error_estimate
    monkeypatch.setattr(diagnosis, "HOPELESS", 1.1 * estimate)
    result = lt.recover(A, NOISY, RANK)
    result.save(tmp_path / "x.npz")
    assert lt.load(tmp_path / "x.npz").borderline == result.borderline != ()
