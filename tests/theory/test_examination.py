"""Findings of examine for operators with known defects."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import lowtucker as lt
from lowtucker.theory import examination

SHAPE, RANK = (5, 5, 6), (1, 2, 2)  # 22 degrees of freedom


def matrix(m, seed=0):
    return np.random.default_rng(seed).standard_normal((m, 150))


def levels(found, *words):
    """Levels of the findings that contain these words."""
    return [one.level for one in found.findings if all(word in one.text for word in words)]


def look(A, rank=RANK, **settings):
    A = A if isinstance(A, lt.MeasurementOperator) else lt.as_operator(A, SHAPE)
    return lt.theory.examine(A, rank, **{"starts": 1, "samples": 10} | settings)


def test_good_measurements():
    found = look(matrix(100))
    assert found.ok
    assert found.verdict == "These measurements can determine a tensor of rank (1, 2, 2)."
    assert (found.m, found.equations, found.dof, found.looked_at) == (100, 100, 22, 100)
    assert found.adjoint < 1e-14
    assert found.row_norms == pytest.approx(np.linalg.norm(matrix(100), axis=1))
    assert all(level == "good" for level in levels(found, ""))
    assert levels(found, "4.5 equations per degree of freedom: enough") == ["good"]
    assert levels(found, "2 blocks of 50 rows are balanced") == ["good"]


def test_tangent_design_is_that_of_random_tensors():
    A = lt.as_operator(matrix(100), SHAPE)
    found = look(A, seed=3)
    usual = found.trip.usual
    amplifications = []
    for k, (low, high) in enumerate(found.design):
        T = lt.TangentSpace(lt.random_tucker(SHAPE, RANK, seed=(3, k)))
        D = np.stack([A.forward(T.full(unit)) for unit in np.eye(22)], axis=1)
        values = np.linalg.svd(D, compute_uv=False) ** 2
        assert (low, high) == pytest.approx((values[-1], values[0]), rel=1e-6)
        amplifications.append(np.sqrt(usual * np.sum(1 / values)))
    assert found.amplification == pytest.approx(max(amplifications), rel=1e-6)


def test_amplification_predicts_the_effect_of_noise():
    """Relative error of X over relative noise in y, from noisy recoveries."""
    A = lt.as_operator(matrix(132), SHAPE)
    ratios = []
    for k in range(9):
        X = lt.random_tucker(SHAPE, RANK, seed=(0, k))
        y = A.forward(X)
        noise = np.random.default_rng(k).standard_normal(132)
        noise *= 1e-3 * np.linalg.norm(y) / np.linalg.norm(noise)
        result = lt.recover(A, y + noise, RANK, noise_std=1e-3 * np.linalg.norm(y) / 132**0.5)
        ratios.append(lt.metrics.relative_error(result.X, X) / 1e-3)
    assert look(A).amplification == pytest.approx(np.median(ratios), rel=0.5)


def test_fewer_equations_than_degrees_of_freedom():
    found = look(matrix(20))
    assert not found.ok
    assert "20 equations for 22 degrees of freedom: take at least 44" in found.verdict
    assert levels(found, "rank-deficient") == ["bad"]
    assert found.amplification is None


def test_few_and_many_measurements_are_noted():
    few = look(matrix(40))
    assert few.ok
    assert "expect local minima" in few.verdict
    assert levels(few, "lowtucker plan") == ["note"]
    assert levels(look(matrix(160)), "ordinary least squares suffices") == ["note"]


def test_repeated_rows_do_not_determine_the_tensor():
    rows = matrix(15)
    found = look(np.concatenate([rows] * 4))
    assert not found.ok
    assert levels(found, "rank-deficient") == ["bad"]
    assert "other tensors nearby have the same measurements" in found.verdict


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_barely_measured_parts_are_reported(kind):
    """A slice measured 1e-5 times as strongly amplifies noise by 1e4."""
    shape, m = (4, 3, 3), 30
    for factor, level in ((1e-5, "bad"), (0.005, "note")):
        rows = np.random.default_rng(0).standard_normal((m, *shape))
        rows[:, 2] *= factor
        rows = rows.reshape(m, -1)
        A = lt.as_operator(scipy.sparse.csr_array(rows) if kind == "sparse" else rows, shape)
        found = look(A, (1, 1, 1))
        assert levels(found, "1 % of noise in y becomes about") == [level]
        assert found.ok == (level == "note")
    assert "barely measured" not in found.verdict


def test_zero_rows_and_unequal_rows_are_noted():
    rows = matrix(100)
    rows[7] = 0
    rows[50:] *= 30
    found = look(rows, block_size=50)
    assert found.ok
    assert levels(found, "zero rows: 1") == ["note"]
    assert levels(found, "row norms differ by a factor of") == ["note"]
    assert levels(found, "blocks of 50 rows differ in energy", 'p="norms"') == ["note"]
    assert levels(found, "steps of TIHT") == ["note"]


def test_wrong_adjoint_ends_the_examination():
    wrong = lt.FunctionOperator(
        lambda X: X.sum(0).ravel(), lambda v: 2 * np.repeat(v.reshape(1, 5, 6), 5, 0), SHAPE, 30
    )
    found = look(wrong)
    assert not found.ok
    assert found.trip is None
    assert found.adjoint is None
    assert "<A(X), v> = <X, A*(v)>" in found.verdict


def test_operator_without_a_fast_design_is_examined_by_products(monkeypatch):
    rows = matrix(60)
    good = lt.FunctionOperator(lambda X: rows @ X.ravel(), lambda v: (v @ rows).reshape(SHAPE),
                               SHAPE, 60)  # fmt: skip
    same = look(rows)
    found = look(good)
    assert found.ok
    np.testing.assert_allclose(found.design, same.design)  # column by column
    assert found.amplification == pytest.approx(same.amplification)
    monkeypatch.setattr(examination, "FEW", 0)
    found = look(good)
    assert found.design is None
    assert levels(found, "the tangent design has full rank") == ["good"]
    blind = lt.FunctionOperator(
        lambda X: X.sum(0).ravel(), lambda v: np.repeat(v.reshape(1, 5, 6), 5, 0), SHAPE, 30
    )
    assert levels(look(blind), "rank-deficient") == ["bad"]


def test_unsampled_slice_is_reported():
    cells = np.argwhere(np.random.default_rng(0).random((6, 6, 6)) < 0.7)
    whole = look(lt.entries((6, 6, 6), cells), (1, 1, 1))
    assert whole.ok
    assert levels(whole, "some tensor of that rank has measurements of zero") == ["note"]
    hole = look(lt.entries((6, 6, 6), cells[cells[:, 1] != 4]), (1, 1, 1))
    assert not hole.ok
    assert levels(hole, "Mode 1 has no samples in slice 4") == ["bad"]
    assert "Mode 1 has no samples in slice 4" in hole.verdict


def test_complex_measurements_count_twice():
    A = lt.subsampled_transform((6, 6, 6), 60, "fft", seed=1)
    found = look(A, (1, 1, 1))
    assert (found.m, found.equations, found.dof) == (60, 120, 16)
    assert found.ok


def test_very_large_matrices_are_examined_in_part(monkeypatch):
    monkeypatch.setattr(examination, "MANY", 60 * 150)
    found = look(matrix(100))
    assert (found.m, found.looked_at) == (100, 60)
    assert levels(found, "use the first 60 rows") == ["note"]
    assert sum(found.trip.block_sizes) == 60
    assert len(found.row_norms) == 100


def test_unattainable_rank_warns():
    with pytest.warns(lt.RankWarning, match=r"try rank=\(1, 1, 1\)"):
        found = look(matrix(60), (1, 1, 2))
    assert found.rank == (1, 1, 1)


def test_progress_is_reported():
    heard = []
    look(matrix(60), report=heard.append)
    assert heard == ["the adjoint", "row norms", "blocks and isometry bounds", "tangent designs"]


def test_str_contains_numbers_findings_and_verdict():
    found = look(matrix(20))
    lines = str(found).splitlines()
    assert lines[0] == "20 measurements of 5x5x6 tensors, 150 entries"
    assert "0.91 equations per degree" in lines[1]
    assert any(line.startswith("  BAD ") for line in lines)
    assert any(line.startswith("  ok ") for line in lines)
    assert any(line.startswith("    delta >=") for line in lines)
    assert lines[-1] == found.verdict


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: look(matrix(30), (1, 2)), "rank must have one entry per mode"),
        (lambda: look(matrix(30), block_size=31), "blocks must be between 1 and 30"),
        (lambda: look(lt.gaussian(SHAPE, 30, trials=2)), "A must be a single operator"),
        (lambda: lt.theory.examine(matrix(30), RANK), "shape is needed to read the rows"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
