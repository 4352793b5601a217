"""The phase diagrams of the paper's family, and the claims that they support or refute."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli.family import FILES
from lowtucker.cli.main import main
from lowtucker.lab.bench import family, family_claims, family_experiments, family_series
from lowtucker.lab.bench.family import Point, Series, half, measure, read
from lowtucker.lab.bench.family_claims import CLAIMS, Judged, judge, verdict
from lowtucker.lab.bench.family_experiments import Evidence
from lowtucker.lab.bench.family_plot import PANELS, RATIO, diagrams
from lowtucker.lab.bench.family_series import DEFAULT, NAMES, chosen, name_of, standard
from lowtucker.lab.bench.timing import write_csv

POINT = Point("sparse 5", "IHT", "Sparse(s=5)", 20, 5, 10, 4, 12.0, 26.0, math.nan, math.nan, 0.1,
              "2026-11-17")  # fmt: skip


def curve(panel, method, shares, dof=10, **changed):
    """Points at m = dof, 2 dof, ... with these fractions of ten."""
    return [
        replace(POINT, panel=panel, method=method, dof=dof, m=dof * (k + 1),
                recovered=round(10 * share), **changed)
        for k, share in enumerate(shares)
    ]  # fmt: skip


def checked(text, points):
    """Verdict and numbers of the claim with that beginning."""
    (claim,) = [one for one in CLAIMS if one.text.startswith(text)]
    found = claim.check(points, True)
    return verdict(found.holds), found.numbers


def test_every_format_has_curves_with_the_default_beside_the_ancestors():
    panels = {}
    for one in standard():
        panels.setdefault(one.panel, []).append(one.method)
    assert {name_of(panel) for panel in panels} == set(NAMES) - {"trimmed"}
    for panel, methods in panels.items():
        if name_of(panel) not in ("growing", "matrix") and "n =" not in panel:
            assert any(method.startswith(DEFAULT) for method in methods), panel
            assert any(not method.startswith(DEFAULT) for method in methods), panel
    drawn = {panel for panel in PANELS if panel != RATIO and not panel.startswith("trimmed")}
    assert drawn <= set(panels)


def test_names_of_formats_are_checked():
    assert {one.panel for one in chosen(["tubal"])} == {"tubal"}
    with pytest.raises(ValueError, match=r"Unknown yardstick 'cp'. Choose from sparse, mmv"):
        chosen(["cp"])


@pytest.mark.parametrize("one", standard(), ids=lambda one: f"{one.panel}, {one.method}")
def test_measurements_are_in_units_of_the_degrees_of_freedom(one):
    levels = one.measurements()
    assert levels == sorted(set(levels))
    assert levels[-1] <= math.prod(one.shape)
    for m, ratio in zip(levels, sorted(one.per_dof), strict=True):
        assert m / one.dof == pytest.approx(ratio, abs=0.1)


@pytest.mark.parametrize(
    ("target", "shape", "dof"),
    [(lt.Sparse(5), (256,), 5), (lt.RowSparse(3), (20, 4), 12), ((2, 2), (6, 7), 22),
     (lt.TensorTrain(2), (6,) * 4, 60), (lt.Tubal(2), (20, 20, 10), 760)],
)  # fmt: skip
def test_degrees_of_freedom_are_those_of_the_format(target, shape, dof):
    one = Series(panel="", method="", solver="auto", target=target, shape=shape, per_dof=(2,),
                 trials=1)  # fmt: skip
    assert one.dof == dof


def test_a_point_counts_what_is_recovered():
    one = replace(chosen(["sparse"])[0], trials=3, per_dof=(1, 20))
    none, every = (measure(one, m) for m in one.measurements())
    assert (none.recovered, every.recovered, every.share) == (0, 3, 1.0)
    assert math.isnan(none.epochs)
    assert 0 < every.epochs < every.passes


@pytest.mark.parametrize("split", [False, True])
def test_columns_are_measured_by_one_matrix(split):
    one = Series(panel="mmv", method="", solver=lt.TIHT(), target=lt.RowSparse(2), shape=(20, 3),
                 per_dof=(8,), trials=2, rows="columns", split=split,
                 truth=family_series.sparse_truth((20, 3), 2))  # fmt: skip
    (m,) = one.measurements()
    A, X = one.operator(m, 2), one.draw(2)
    assert m % 3 == 0
    assert np.count_nonzero(np.abs(X).sum(axis=2)) == 4
    y = A.forward(X).reshape(2, m // 3, 3)
    single = family._columns((20, 1), m // 3, 1)  # as the columns are measured one by one
    for column in range(3):
        np.testing.assert_allclose(y[1, :, column], single.forward(X[1, :, [column]].T), atol=1e-12)
    assert measure(one, m).recovered == 2


def test_every_problem_samples_other_entries_once():
    one = replace(next(s for s in chosen(["train"]) if s.rows == "entries"), trials=2)
    A = one.operator(50, 2)
    places = np.nonzero(A.adjoint(np.ones((2, 50))))
    assert np.bincount(places[0]).tolist() == [50, 50]


def test_nearly_low_rank_tensors_count_by_the_best_approximation():
    X = family_series.decaying_truth((6, 6, 6), 2.5)(2, 0)
    least = family._least_errors(X, lt.SeMP((2, 2, 2)))
    assert (least > 1e-3).all()
    assert (least < 0.2).all()
    one = replace(chosen(["growing"])[0], shape=(6, 6, 6), target=lt.SeMP((2, 2, 2)), trials=2,
                  truth=family_series.decaying_truth((6, 6, 6), 2.5))  # fmt: skip
    assert measure(one, 200).recovered == 2
    assert measure(replace(one, tol=1e-3), 200).recovered == 0


def test_half_is_interpolated():
    assert half(curve("p", "m", [0.0, 0.4, 0.8])) == pytest.approx(22.5)
    assert math.isnan(half(curve("p", "m", [0.6, 0.8])))
    assert math.isnan(half(curve("p", "m", [0.0, 0.4])))


@pytest.mark.parametrize(
    ("holds", "word"),
    [([True, True], "supported"), ([False, False], "refuted"), ([True, False], "mixed"),
     ([True, None], "open"), ([], "open")],
)  # fmt: skip
def test_verdicts(holds, word):
    assert verdict(holds) == word


def test_epochs_decide_on_stochastic_blocks():
    fast = [POINT, replace(POINT, method="StoIHT", epochs=9.0, passes=30.0)]
    slow = [POINT, replace(POINT, method="StoIHT", epochs=15.0)]
    word, numbers = checked("StoIHT with blocks", fast)
    assert (word, numbers) == (
        "supported", "Sparse(s=5), m = 20: 9 epochs (30 passes), IHT 12 (26)")  # fmt: skip
    assert checked("StoIHT with blocks", slow)[0] == "refuted"
    assert checked("StoIHT with blocks", fast + curve("sparse 9", "IHT", [0.0]))[0] == "open"


def test_pursuit_is_compared_where_both_recover_half():
    points = curve("sparse 5", "StoIHT", [0.0, 0.6], epochs=50.0)
    points += curve("sparse 5", DEFAULT, [0.9, 1.0], epochs=3.0)
    word, numbers = checked("StoGradMP needs", points)
    assert word == "supported"
    assert "m = 20: 3 epochs" in numbers


def test_columns_decide_on_joint_sparsity():
    shares = {"column by column, L = 8": [0, 0, 0, 1], "MStoIHT, L = 1": [0, 0, 0.9, 1],
              "MStoIHT, L = 2": [0, 0.2, 1, 1], "MStoIHT, L = 4": [0, 0.4, 1, 1],
              f"{DEFAULT}, L = 1": [0, 1, 1, 1], f"{DEFAULT}, L = 8": [0, 1, 1, 1]}  # fmt: skip

    def points(last):
        found = []
        for name, own in (shares | {"MStoIHT, L = 8": last}).items():
            found += curve("mmv", name, own, dof=10 * int(name[-1]))
        return found

    word, numbers = checked("Joint sparsity", points([0, 0.6, 1, 1]))
    assert word == "supported"
    assert numbers.endswith("18.3 measurements per column, column by column 35.0")
    assert checked("Joint sparsity", points([0, 0, 0, 1]))[0] == "refuted"
    word, numbers = checked("The measurements per column", points([0, 0.6, 1, 1]))
    assert word == "supported"
    assert "L = 1: 25.6, L = 2: 23.8" in numbers
    assert checked("The measurements per column", points([0, 0.1, 1, 1]))[0] == "mixed"


def test_matrix_ratios_must_be_near_those_stated():
    both = curve("matrix 3", "NIHT", [0, 1], dof=171)
    points = [replace(p, m=m) for p, m in zip(both, (200, 256), strict=True)]
    default = [replace(p, method=DEFAULT, m=m) for p, m in zip(points, (180, 200), strict=True)]
    word, numbers = checked("30x30, rank 3", points + default)
    assert word == "supported"
    assert "NIHT 0.75, default 0.90" in numbers
    assert checked("30x30, rank 3", points + [replace(p, m=2 * p.m) for p in default])[0] == "mixed"


def test_order_of_convex_programs():
    points = curve("convex 4", "SNN", [0, 0, 1]) + curve("convex 4", "square deal", [0, 1, 1])
    points += curve("convex 4", DEFAULT, [0, 1, 1])
    assert checked("Four modes", points)[0] == "supported"
    other = {"SNN": "square deal", "square deal": "SNN", DEFAULT: DEFAULT}
    swapped = [replace(p, method=other[p.method]) for p in points]
    assert checked("Four modes", swapped)[0] == "mixed"
    three = [replace(p, panel="convex 3") for p in points]
    assert checked("Three modes", three)[0] == "refuted"
    assert checked("Three modes", [replace(p, panel="convex 3") for p in swapped])[0] == "supported"


def test_growth_of_the_sum_of_nuclear_norms():
    def points(power):
        panels = {5: "convex, n = 5", 8: "convex 3", 12: "convex, n = 12"}
        return [replace(p, m=round(k * n**power)) for n, panel in panels.items()
                for p, k in zip(curve(panel, "SNN", [0, 1]), (10, 20), strict=True)]  # fmt: skip

    assert checked("SNN needs", points(2))[0] == "supported"
    assert checked("SNN needs", points(1))[0] == "refuted"


def test_gap_must_be_below_what_is_stated():
    assert checked("The duality gap", [replace(POINT, gap=5e-5), POINT])[0] == "supported"
    assert checked("The duality gap", [replace(POINT, gap=5e-4)])[0] == "refuted"


def test_published_counts_are_compared_by_sampling_error():
    same = replace(POINT, panel="trimmed A2", trials=20, recovered=10, published=0.5)
    other = replace(same, published=1.0)
    assert checked("Published success", [same])[0] == "supported"
    word, numbers = checked("Published success", [same, other])
    assert word == "mixed"
    assert numbers.startswith("1 of 2 agree; A2 IHT m = 20: 10/20 (published 25/50); ")
    assert numbers.endswith("(published 50/50, differs)")


def test_default_is_compared_with_the_best_ancestor():
    points = curve("train", "TIHT", [0, 1, 1]) + curve("train", DEFAULT, [0, 0, 1])
    own = family_claims.default_needs(points, True)
    assert verdict(own.holds) == "refuted"
    assert own.numbers.endswith("train: TIHT 1.50, default 2.50")
    close = [replace(p, m=p.m + 1 if p.method == DEFAULT else p.m) for p in points]
    close = [replace(p, recovered=10 * (p.m > 20)) for p in close]
    assert verdict(family_claims.default_needs(close, True).holds) == "supported"


def test_growing_rank_must_save_measurements():
    points = curve("growing 1.5", "fixed rank", [0, 0, 1])
    points += curve("growing 1.5", "growing rank", [0, 1, 1])
    assert checked("On nearly low-rank", points)[0] == "supported"
    for name in ("fixed rank", "growing rank"):
        points += curve("growing 2.5", name, [0, 1])
    assert checked("On nearly low-rank", points)[0] == "mixed"


@pytest.mark.parametrize(
    "check",
    [family_experiments.train_bound, family_experiments.hierarchical_bound,
     family_experiments.brute_force_tubal],
)  # fmt: skip
def test_what_is_proven_is_supported(check):
    assert verdict(check([], True).holds) == "supported"


def test_a_bound_that_is_too_small_is_refuted():
    found = family_experiments._bounds(lt.TensorTrain, (4,), lambda d: 1.0,
                                       family_experiments._beginnings, True)  # fmt: skip
    assert verdict(found.holds) == "refuted"


def test_trees_are_those_of_the_format():
    Z = np.random.default_rng(0).standard_normal((3, 4, 3, 4, 3))
    X = lt.HierarchicalTucker(2).for_shape(Z.shape)(Z).full()
    for modes in family_experiments._halves(tuple(range(5))):
        assert family_experiments._tail(X, modes, 2) < 1e-12


def test_claims_that_need_an_experiment_are_measured():
    noisy = family_experiments.oracle([], True)
    assert noisy.holds == [True, True]
    semp = family_experiments.never_worse([], True)
    assert "of 270 random tensors" in semp.numbers
    assert "by the best order" in semp.numbers


def test_files_of_a_run(tmp_path, monkeypatch):
    """The command writes points, claims and the picture; --update keeps other formats."""
    few = [replace(one, trials=2, per_dof=(3, 20)) for one in standard() if one.panel == "sparse 5"]
    monkeypatch.setattr(family_series, "chosen", lambda names: few)
    write_csv([replace(POINT, panel="tubal", method="TIHT")], tmp_path / "points.csv")
    arguments = ["bench", "family", "--only", "sparse", "--quick", "-o", str(tmp_path)]
    refused = CliRunner().invoke(main, arguments)
    assert "points.csv exists" in refused.output
    done = CliRunner().invoke(main, [*arguments, "--update"])
    assert done.exit_code == 0, done.output
    points = read(tmp_path / "points.csv", Point)
    assert [p.panel for p in points] == ["sparse 5"] * 3 + ["tubal"]
    claims = read(tmp_path / "claims.csv", Judged)
    assert [one.claim for one in claims] == [c.text for c in CLAIMS if c.name == "sparse"]
    assert (tmp_path / FILES[2]).read_bytes().startswith(b"\x89PNG")


def test_update_needs_a_folder():
    done = CliRunner().invoke(main, ["bench", "family", "--update"])
    assert done.exit_code != 0
    assert "give it with --output" in done.output


def test_picture_has_a_panel_for_each_diagram():
    points = [replace(POINT, panel=panel, dof=171) for panel in PANELS if panel != RATIO]
    axes = diagrams(points).axes
    assert [one.get_title() for one in axes if one.axison] == list(PANELS.values())
    assert axes[0].get_xlabel() == "m / degrees of freedom"


def test_judged_claims_have_verdict_numbers_and_date(monkeypatch):
    claim = replace(CLAIMS[0], check=lambda points, quick: Evidence(f"{len(points)}", [True]))
    monkeypatch.setattr(family_claims, "CLAIMS", (claim,))
    (one,) = judge(["sparse"], [POINT, replace(POINT, panel="tubal")])
    assert (one.verdict, one.numbers) == ("supported", "1")
    (quick,) = judge(["sparse"], [POINT], quick=True)
    assert quick.verdict == "open"
