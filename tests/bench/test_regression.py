"""The benchmark of regression compares equal tasks. No test asserts a time."""

from __future__ import annotations

import csv

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("tensorly")
from click.testing import CliRunner

from lowtucker.cli import main
from lowtucker.estimators import TuckerRegressor
from lowtucker.lab.bench import regression
from lowtucker.lab.bench.timing import Row, write_csv


def small(alphas=(0.0,)):
    splits = regression.synthetic((5, 4, 3), (1, 1, 1), 60, 2)
    return regression.Case("small", (1, 1, 1), lambda: splits, alphas)


def test_rows_compare_errors_and_times_with_the_best_and_the_default(tmp_path):
    rows = list(regression.run(TuckerRegressor, [small()]))
    assert [row.what for row in rows] == [
        "small: error / TensorLy's best",
        "small: time of TensorLy's best / ours",
        "small: error / TensorLy's default",
        "small: time of TensorLy's default / ours",
    ]
    for row in rows:
        assert row.ratio > 0
        assert "RidgeCV" in row.detail
        assert " ms" in row.detail
        assert row.met == (row.ratio <= 1 if row.target == "<= 1" else row.ratio >= 5)
    assert rows[0].ratio >= rows[2].ratio  # the best of several is at least as good as the default
    assert rows[2].ratio < 1.2
    write_csv(rows, tmp_path / "rows.csv")
    with open(tmp_path / "rows.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 4


def test_all_three_methods_solve_an_easy_case():
    case = small((0.0, 1.0))
    ours = regression.outcome(lambda s: regression._ours(case, s, TuckerRegressor), case.splits())
    theirs = regression.outcome(lambda s: regression._tensorly(case, s, 0.01), case.splits())
    plain = regression.outcome(regression._plain, case.splits())
    assert ours.error < 0.1
    assert theirs.error < 0.1
    assert ours.error < plain.error < 1
    assert len(ours.seconds) == 2


def test_data_are_centred_for_tensorly():
    (split, _) = small().splits()
    moved = regression.Split(split.X + 3, split.y + 50, split.X_test + 3, split.y_test + 50)
    for fit in (
        lambda s: regression._tensorly(small(), s, 0.01),
        lambda s: regression._ours(small(), s, TuckerRegressor),
    ):
        np.testing.assert_allclose(
            regression.outcome(fit, [moved]).errors, regression.outcome(fit, [split]).errors,
            rtol=0.2,
        )  # fmt: skip


def test_times_of_useless_fits_are_omitted(monkeypatch):
    monkeypatch.setattr(regression, "RIDGES", (1e6,))
    monkeypatch.setattr(regression, "DEFAULT", 1e6)
    rows = list(regression.run(TuckerRegressor, [small()]))
    assert [row.target for row in rows] == ["<= 1", "<= 1"]
    assert rows[0].ratio < 0.1


def test_errors_are_relative_to_the_mean_of_the_training_data():
    (split, _) = small().splits()
    mean = float(split.y.mean())
    made = regression.outcome(lambda s: ((lambda Z: np.full(len(Z), mean)), 0.5), [split])
    assert made.error == pytest.approx(1)
    assert made.time == 0.5


def test_patches_have_the_share_of_their_labels(rng):
    labels = np.zeros((20, 20), dtype=int)
    labels[:9, :9] = 11
    scene = rng.uniform(1, 2, (20, 20, 8))
    X, y, corners = regression.patches(scene, labels)
    assert X.shape == (16, 9, 9, 2)
    assert y[0] == 1
    at = corners.tolist().index([0, 3])
    assert y[at] == pytest.approx(6 / 9)
    np.testing.assert_allclose(X[at, :, :6], X[0, :, 3:])


def test_halves_of_the_scene_do_not_overlap():
    splits = regression.pines()
    assert len(splits) == 4
    for split in splits:
        assert split.X.shape[1:] == (9, 9, 50)
        assert 500 < len(split.y) < 1200
        assert 0.05 < split.y_test.mean() < 0.5
    first = {row.tobytes() for row in splits[0].X}
    assert not first & {row.tobytes() for row in splits[0].X_test}


def test_command_prints_a_table_and_sets_the_exit_code(monkeypatch):
    rows = [Row("small: error", 0.5, "<= 1", True, "error 1"), Row("t", 2.0, ">= 5", False, "ms")]
    monkeypatch.setattr(regression, "run", lambda regressor: iter(rows))
    done = CliRunner().invoke(main, ["bench", "regression"])
    assert done.exit_code == 3
    assert "small: error" in done.output
    rows.pop()
    assert CliRunner().invoke(main, ["bench", "regression"]).exit_code == 0
    refused = CliRunner().invoke(main, ["bench", "regression", "--trials", "3"])
    assert refused.exit_code == 2
    assert "--trials is not an option of regression" in refused.output
